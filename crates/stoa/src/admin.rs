//! What a server's admin HTTP answers.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use serde_json::Value;
use stoa_client::tls::Tls;

use crate::failure::{Context as _, Failure, Result};

const TIMEOUT: Duration = Duration::from_secs(10);
/// The server gives up before.
const LONG_TIMEOUT: Duration = Duration::from_secs(140);
/// A longer answer is none of a server's.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// What an address begins with where admin HTTP has TLS.
const WITH_TLS: &str = "https://";

/// Where it is.
pub(crate) struct Admin<'a> {
    address: &'a str,
    tls: Option<Tls>,
    patience: Duration,
}

impl<'a> Admin<'a> {
    /// At `HOST:PORT`, `http://HOST:PORT` or `https://HOST:PORT`; the last one needs to be told whom to trust.
    pub(crate) fn new(address: &'a str, tls: Option<Tls>) -> Result<Self> {
        let Some(address) = address.strip_prefix(WITH_TLS) else {
            return Ok(Self {
                address: address.strip_prefix("http://").unwrap_or(address),
                tls: None,
                patience: TIMEOUT,
            });
        };
        let untold = "--admin https://... needs --tls-authority: a file with the authority to trust";
        let tls = tls.ok_or_else(|| Failure::usage(untold))?.to(address);
        Ok(Self { address, tls: Some(tls), patience: TIMEOUT })
    }

    /// Waits longer for answers, which take their time.
    pub(crate) fn patient(mut self) -> Self {
        self.patience = LONG_TIMEOUT;
        self
    }

    /// What a command answers, which may be about a path.
    pub(crate) fn command(&self, name: &str, path: Option<&str>) -> Result<Value> {
        let about: Vec<_> = path.into_iter().map(|path| ("path", path)).collect();
        self.command_about(name, &about)
    }

    /// What a command answers that is about several things.
    pub(crate) fn command_about(&self, name: &str, about: &[(&str, &str)]) -> Result<Value> {
        self.answer(&format!("GET /commands/{name}{}", query(about)), "")
    }

    /// What a command answers that changes something, asked by somebody who proves with `SCHEME:PROOF` who he is.
    pub(crate) fn order(&self, name: &str, about: (&str, &str), proof: Option<&str>) -> Result<Value> {
        let about = [about];
        let is_none = about[0].1.is_empty();
        self.order_about(name, if is_none { &[] } else { &about }, proof)
    }

    /// The same of one that is about several things.
    pub(crate) fn order_about(
        &self,
        name: &str,
        about: &[(&str, &str)],
        proof: Option<&str>,
    ) -> Result<Value> {
        let proof = proof.and_then(|proof| proof.split_once(':'));
        let headers = proof.map(|(scheme, proof)| format!("Authorization: {scheme} {proof}\r\n"));
        let headers = headers.unwrap_or_default();
        if headers.trim_end().contains(['\r', '\n']) {
            return Err(Failure::usage("--auth has a line break in it"));
        }
        let asked = format!("POST /commands/{name}{}", query(about));
        self.answer(&asked, &format!("{headers}Content-Length: 0\r\n"))
    }

    fn answer(&self, asked: &str, headers: &str) -> Result<Value> {
        let body = self.get(asked, headers);
        let body = body.context(format!("admin HTTP at {} (--admin says where it is)", self.address))?;
        let answer: Value =
            serde_json::from_str(&body).context(format!("what {} answers is no JSON", self.address))?;
        match answer["error"].as_str() {
            Some(error) => Err(Failure::failed(format!("{}: {error}", self.address))),
            None => Ok(answer),
        }
    }

    fn get(&self, asked: &str, headers: &str) -> std::io::Result<String> {
        let none = || std::io::Error::other("there is no such address");
        let address = self.address.to_socket_addrs()?.next().ok_or_else(none)?;
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(self.patience))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let Some(tls) = &self.tls else { return self.ask(stream, asked, headers) };
        let mut stream = tls.begin(stream)?;
        stream.handshake()?;
        self.ask(stream, asked, headers)
    }

    fn ask(&self, mut stream: impl Read + Write, asked: &str, headers: &str) -> std::io::Result<String> {
        let host = self.address;
        write!(stream, "{asked} HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n")?;
        stream.flush()?;
        let mut answer = String::new();
        stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| std::io::Error::other("no answer"))?;
        match head.split(' ').nth(1) {
            Some("400") => Err(std::io::Error::other(body.trim_end().to_owned())),
            _ => Ok(body.to_owned()),
        }
    }
}

fn query(about: &[(&str, &str)]) -> String {
    let parts: Vec<_> = about.iter().map(|(key, value)| format!("{key}={}", encoded(value))).collect();
    if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) }
}

/// A path as a part of a query.
fn encoded(path: &str) -> String {
    path.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"/-_.,".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_so_that_a_query_can_hold_them() {
        assert_eq!(encoded("/a-b_c.d/0"), "/a-b_c.d/0");
        assert_eq!(encoded("/a b&c=%ä"), "/a%20b%26c%3D%25%C3%A4");
    }
}
