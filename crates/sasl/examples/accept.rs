//! One exchange over standard input and output, for clients from elsewhere: a line with a token in base64 comes in, a
//! line goes out, `challenge TOKEN`, `done TOKEN NAME` or `failed WORDS`. Nothing is `-`.
//!
//! `accept JAAS_FILE [--fixed] [--short] [--late]`: users and keytab are those of the section `Server`; with `--fixed` all random
//! bytes are 7, with `--short` ids have neither host nor realm, with `--late` the clock is ten minutes fast. An empty line begins the
//! next exchange.

use std::io::{BufRead, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use stoa_sasl::{Acceptor, Config, Step, jaas};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("accept JAAS_FILE [--fixed] [--short] [--late]")?;
    let options: Vec<String> = arguments.collect();
    let has = |option: &str| options.iter().any(|it| it == option);
    let fixed = has("--fixed");
    let login = jaas::read(&std::fs::read_to_string(path)?, "Server")?;
    let mut config = Config::new().login(&login).remove_host(has("--short")).remove_realm(has("--short"));
    if let Some(service) = login.kerberos() {
        config = config.keytab(&std::fs::read(service.keytab_path())?, service.principal());
    }
    let acceptor = Acceptor::new(config)?;
    let mut exchange = acceptor.begin();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if line.is_empty() {
            exchange = acceptor.begin();
            continue;
        }
        let token = STANDARD.decode(line.trim().trim_matches('-')).map_err(|error| error.to_string())?;
        let now_ms = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
        let now_ms = if has("--late") { now_ms + 600_000 } else { now_ms };
        let answer = match exchange.step(&token, now_ms, random(fixed)?) {
            Step::Challenge(token) => format!("challenge {}", text(&token)),
            Step::Done { token, name } => format!("done {} {name}", text(&token.unwrap_or_default())),
            Step::Failed(message) => format!("failed {message}"),
        };
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn text(token: &[u8]) -> String {
    if token.is_empty() { "-".to_owned() } else { STANDARD.encode(token) }
}

fn random(fixed: bool) -> Outcome<[u8; 32]> {
    let mut bytes = [7; 32];
    if !fixed {
        std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    }
    Ok(bytes)
}
