//! What clients log in with, and what operators configure that with.

use crate::Input;
use stoa_sasl::{Acceptor, Config, Secret, Step, TOKEN_BYTES_MAX};

const KEYTAB: &[u8] = include_bytes!("../../crates/sasl/tests/recorded/server.keytab");
const NOW_S: &str = include_str!("../../crates/sasl/tests/recorded/now_s");
const NAME: &str = "zookeeper/localhost@STOA.TEST";

/// A login configuration.
pub fn jaas(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else { return };
    match stoa_sasl::jaas::read(text, "Server") {
        Ok(login) => {
            let _ = Acceptor::new(Config::new().login(&login));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The tokens of one exchange with both mechanisms; with rules before them; or a keytab.
pub fn sasl(data: &[u8]) {
    let mut input = Input(data);
    let mut config = Config::new().user("bob", Secret::new("secret"));
    match input.byte() {
        0 => config = config.keytab(KEYTAB, NAME),
        1 => config = config.rules(&String::from_utf8_lossy(input.piece())),
        _ => config = config.keytab(input.bytes(usize::MAX), NAME),
    }
    let Ok(acceptor) = Acceptor::new(config) else { return };
    let now_ms = NOW_S.trim().parse::<u64>().unwrap_or_default() * 1000;
    let mut exchange = acceptor.begin();
    while !input.is_empty() {
        match exchange.step(input.piece(), now_ms, [7; 32]) {
            Step::Challenge(token) => assert!(!token.is_empty() && token.len() <= TOKEN_BYTES_MAX),
            Step::Done { name, .. } => assert!(name == "bob" || name == "bob@STOA.TEST", "{name}"),
            Step::Failed(message) => assert!(!message.is_empty()),
        }
    }
}
