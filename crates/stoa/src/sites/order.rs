//! What an operator has done with sites, by way of a server's admin HTTP.

use std::io::{self, Write as _};
use std::time::Instant;

use super::{PATIENCE, POLL, SitesCommand};
use crate::admin::Admin;
use crate::failure::{Context as _, Failure, Result};

/// Orders it, and says what is being done.
pub(super) fn run(args: &SitesCommand, name: &str, about: (&str, &str)) -> Result<()> {
    let admin = Admin::new(&args.admin, args.shell.tls()?)?;
    let answer = admin.order(name, about, args.shell.first_auth())?;
    super::say(answer["done"].as_str().unwrap_or("done"))
}

/// Orders it, and waits until the hub's leader has it.
pub(super) fn upgrade(args: &SitesCommand) -> Result<()> {
    let admin = Admin::new(&args.admin, args.shell.tls()?)?;
    let level = |admin: &Admin| Ok::<_, Failure>(admin.command("sites", None)?["feature_level"].as_u64());
    let before = level(&admin)?;
    admin.order("sites_upgrade", ("site", ""), args.shell.first_auth())?;
    let began = Instant::now();
    loop {
        let now = level(&admin)?;
        if let Some(now) = now.filter(|_| now > before) {
            return super::say(&format!("the sites use feature level {now}"));
        }
        if began.elapsed() > PATIENCE {
            return Err(Failure::failed("the level is ordered, and not in use yet: see stoa sites"));
        }
        std::thread::sleep(POLL);
    }
}

/// Orders it, and waits until the site is the hub.
pub(super) fn promote(args: &SitesCommand, lost: &[String]) -> Result<()> {
    run(args, "sites_promote", ("lose", &lost.join(",")))?;
    let admin = Admin::new(&args.admin, args.shell.tls()?)?;
    let (began, mut told) = (Instant::now(), String::new());
    loop {
        let sites = admin.command("sites", None)?;
        if sites["next_hub"].is_null() && sites["hub"] == sites["number"] {
            return super::say("it is the hub");
        }
        let waits: Vec<&str> =
            sites["waits_for"].as_array().into_iter().flatten().filter_map(|site| site.as_str()).collect();
        let waits = waits.join(", ");
        if began.elapsed() > PATIENCE {
            return Err(Failure::failed(format!(
                "it still waits for {waits}. It becomes the hub when they are there; if they are lost, promote once more \
                 with --lose"
            )));
        }
        if waits != told && !waits.is_empty() {
            writeln!(io::stdout(), "waiting for {waits}").context("cannot print")?;
            told = waits;
        }
        std::thread::sleep(POLL);
    }
}
