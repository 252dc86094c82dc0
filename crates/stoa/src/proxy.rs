//! `stoa proxy`: links that take as long as those between data centres.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread;

use clap::Args;
use stoa_proxy::{Direction, Link, Spec};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::failure::{Context as _, Failure, Result};

#[derive(Debug, Args)]
pub(crate) struct ProxyArgs {
    /// Where to listen, for one link
    #[arg(long, requires = "to", value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Where to connect to for whoever comes
    #[arg(long, requires = "listen", value_name = "HOST:PORT")]
    to: Option<String>,
    /// One way, of all links that say nothing else: a round trip takes twice as long
    #[arg(long, value_name = "TIME")]
    delay: Option<String>,
    /// By how much more or less it may be
    #[arg(long, value_name = "TIME")]
    jitter: Option<String>,
    /// The share of segments that are lost and sent again
    #[arg(long, value_name = "PERCENT")]
    loss: Option<String>,
    /// Bits a second, as in 10mbit
    #[arg(long, value_name = "RATE")]
    bandwidth: Option<String>,
    /// A link: LISTEN=TO, and what is different, as in `127.0.0.1:4001=127.0.0.1:2181,delay=25ms,down.loss=1%`
    #[arg(long = "link", value_name = "LINK")]
    links: Vec<String>,
    /// Links from a file, one a line; `#` begins a remark
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Takes changes from standard input, one a line: where a link listens, or `*` for all of them, and what is to be
    /// different, as in `127.0.0.1:4001,delay=50ms`
    #[arg(long)]
    control: bool,
}

impl ProxyArgs {
    /// All links, from the options and from the file.
    fn specs(&self) -> Result<Vec<Spec>> {
        let mut specs = Vec::new();
        if let (Some(listen), Some(to)) = (&self.listen, &self.to) {
            specs.push(self.spec(&format!("{listen}={to}")).map_err(Failure::usage)?);
        }
        for text in &self.links {
            specs.push(self.spec(text).map_err(Failure::usage)?);
        }
        if let Some(file) = &self.file {
            specs.extend(self.read_file(file)?);
        }
        if specs.is_empty() {
            return Err(Failure::usage("there is no link: say --listen and --to, --link or --file"));
        }
        Ok(specs)
    }

    /// A link, as it is written behind what is said of all.
    fn spec(&self, text: &str) -> std::result::Result<Spec, String> {
        let (addresses, own) = text.split_once(',').map_or((text, None), |(one, other)| (one, Some(other)));
        let mut whole = addresses.to_owned();
        let all = [
            ("delay", &self.delay),
            ("jitter", &self.jitter),
            ("loss", &self.loss),
            ("bandwidth", &self.bandwidth),
        ];
        for (name, value) in all {
            if let Some(value) = value {
                whole.push_str(&format!(",{name}={value}"));
            }
        }
        if let Some(own) = own {
            whole.push_str(&format!(",{own}"));
        }
        whole.parse()
    }

    fn read_file(&self, file: &Path) -> Result<Vec<Spec>> {
        let text = fs::read_to_string(file).context(format!("cannot read {}", file.display()))?;
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        let links = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let parse = |(number, line)| {
            self.spec(line).map_err(|error| Failure::usage(format!("{}:{number}: {error}", file.display())))
        };
        links.map(parse).collect()
    }
}

/// Carries bytes until it is told to stop.
pub(crate) fn run(args: &ProxyArgs) -> Result<()> {
    let specs = args.specs()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(carry(specs, args.control))
}

async fn carry(specs: Vec<Spec>, is_controlled: bool) -> Result<()> {
    let listen = |kind| signal(kind).context("cannot listen to signals");
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let mut links = Vec::new();
    for spec in specs {
        let link = Link::open(&spec).await.context(format!("cannot listen on {}", spec.listen))?;
        let relay = Relay { link, spec };
        relay.show()?;
        links.push(relay);
    }
    let mut changes = if is_controlled { changes() } else { mpsc::channel(1).1 };
    loop {
        tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            Some(line) = changes.recv() => change(&mut links, &line)?,
        }
    }
    for relay in links {
        relay.link.close().await;
    }
    Ok(())
}

/// Lines of standard input, read by a thread of their own: a terminal cannot be waited for otherwise. When they end,
/// the links go on.
fn changes() -> mpsc::Receiver<String> {
    let (tell, changes) = mpsc::channel(1);
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(io::Result::ok) {
            if tell.blocking_send(line).is_err() {
                return;
            }
        }
    });
    changes
}

/// An open link, and what it is like.
struct Relay {
    link: Link,
    spec: Spec,
}

impl Relay {
    /// Says where it listens and what it is like.
    fn show(&self) -> Result<()> {
        let Spec { to, up, down, .. } = &self.spec;
        let ways = if up == down { up.to_string() } else { format!("up: {up}; down: {down}") };
        writeln!(io::stdout(), "{} -> {to}: {ways}", self.link.address()).context("cannot print")
    }

    /// Makes it different for what is sent from now on.
    fn set(&mut self, settings: &str) -> std::result::Result<(), String> {
        let mut spec = self.spec.clone();
        for setting in settings.split(',').map(str::trim) {
            let (name, value) = setting.split_once('=').ok_or_else(|| format!("`{setting}` has no value"))?;
            spec.set(name, value)?;
        }
        spec.up.check()?;
        spec.down.check()?;
        self.link.set(Direction::Up, spec.up)?;
        self.link.set(Direction::Down, spec.down)?;
        self.spec = spec;
        Ok(())
    }
}

/// Carries out a line of changes and shows the links that it is about. One that is wrong changes nothing from there
/// on, is told of, and is no reason to end.
fn change(links: &mut [Relay], line: &str) -> Result<()> {
    let (address, settings) = line.trim().split_once(',').unwrap_or((line, ""));
    let mut is_known = false;
    for relay in links {
        if address != "*" && address != relay.link.address().to_string() {
            continue;
        }
        is_known = true;
        match relay.set(settings) {
            Ok(()) => relay.show()?,
            Err(problem) => return complain(&format!("`{line}`: {problem}")),
        }
    }
    if is_known { Ok(()) } else { complain(&format!("`{line}`: no link listens there")) }
}

/// On standard output, where whoever sends changes waits for an answer.
fn complain(what: &str) -> Result<()> {
    writeln!(io::stdout(), "error: {what}").context("cannot print")
}
