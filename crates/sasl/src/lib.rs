//! The server's side of SASL as ZooKeeper's clients speak it: tokens in, tokens out.
//!
//! An [`Acceptor`] has the users, or the keys of the service, and begins an [`Exchange`] for each connection. There are
//! DIGEST-MD5 (RFC 2831) and GSSAPI with Kerberos (RFC 4752), both at once if both are configured. Nothing here opens a
//! socket or a file, or asks for the time: whoever drives it hands all that in.

#![forbid(unsafe_code)]

mod acceptor;
mod digest;
pub mod jaas;
mod kerberos;
mod names;
mod secret;

pub use acceptor::{Acceptor, Config, Error, Exchange, Step, TOKEN_BYTES_MAX};
pub use kerberos::Taken;
pub use secret::Secret;

/// A name that somebody else has chosen, for a log: escaped, and not too long.
fn shown(name: &str) -> String {
    const CHARS_MAX: usize = 100;
    let mut short: String = name.chars().take(CHARS_MAX).collect();
    if short.len() < name.len() {
        short.push('…');
    }
    format!("{short:?}")
}
