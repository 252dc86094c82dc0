//! Which servers, and how to be their client.

use std::fmt;
use std::time::Duration;

use stoa_client_core::{Chroot, Settings};

use crate::tls::Tls;

const PORT: u16 = 2181;
/// What ZooKeeper's own limit (`jute.maxbuffer`) allows a server to answer, and room to spare: lists
/// of children may be longer than any request.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// How to connect.
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) servers: Vec<String>,
    pub(crate) chroot: Chroot,
    pub(crate) session_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Option<Duration>,
    pub(crate) read_only: bool,
    pub(crate) identities: Vec<(String, Vec<u8>)>,
    pub(crate) direct: bool,
    pub(crate) tls: Option<Tls>,
}

/// A list of servers that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionsError {
    servers: String,
    problem: &'static str,
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { servers, problem } = self;
        write!(
            f,
            "{problem} in {servers:?}; expected host:port, several with commas, then a chroot: a:2181,b:2181/app"
        )
    }
}

impl std::error::Error for OptionsError {}

impl Options {
    /// `servers` is a list as ZooKeeper's clients take it: `host:port,host:port/chroot`. The port
    /// may be left out.
    ///
    /// # Errors
    /// When the list is empty, or a port or the chroot is not valid.
    pub fn new(servers: &str) -> Result<Self, OptionsError> {
        let error = |problem| OptionsError { servers: servers.to_owned(), problem };
        let (hosts, chroot) = servers.split_at(servers.find('/').unwrap_or(servers.len()));
        let chroot = Chroot::new(chroot).ok_or_else(|| error("the chroot is not a valid path"))?;
        let servers = hosts
            .split(',')
            .map(|host| with_port(host.trim()).ok_or_else(|| error("a host or port is not valid")))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            servers,
            chroot,
            session_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            call_timeout: None,
            read_only: false,
            identities: Vec::new(),
            direct: false,
            tls: None,
        })
    }

    /// The servers, each as host and port.
    #[must_use]
    pub fn servers(&self) -> &[String] {
        &self.servers
    }

    /// Wanted session timeout, 30 s if not set; the server may choose another one.
    #[must_use]
    pub fn session_timeout(self, session_timeout: Duration) -> Self {
        Self { session_timeout, ..self }
    }

    /// How long `connect` tries to open the first session, 10 s if not set.
    #[must_use]
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        Self { connect_timeout, ..self }
    }

    /// How long a call waits, also for a connection, before it fails with `OperationTimeout`. It may
    /// be carried out after that. For ever if not set.
    #[must_use]
    pub fn call_timeout(self, call_timeout: Duration) -> Self {
        Self { call_timeout: Some(call_timeout), ..self }
    }

    /// Be content with a server that only answers reads.
    #[must_use]
    pub fn read_only(self, read_only: bool) -> Self {
        Self { read_only, ..self }
    }

    /// Have a connection to each partition of the server, if that is a Stoa with several: requests then come
    /// in where their znodes live, and [`crate::Client::fast`] has something to offer. Off if not set. Each
    /// connection counts for the server's limits.
    #[must_use]
    pub fn direct(self, direct: bool) -> Self {
        Self { direct, ..self }
    }

    /// Speak TLS with every server, on all connections. Off if not set.
    #[must_use]
    pub fn tls(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Adds an identity from the start.
    #[must_use]
    pub fn identity(mut self, scheme: &str, auth: &[u8]) -> Self {
        self.identities.push((scheme.to_owned(), auth.to_owned()));
        self
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            session_timeout_ms: u32::try_from(self.session_timeout.as_millis()).unwrap_or(u32::MAX),
            read_only: self.read_only,
            chroot: self.chroot.clone(),
            frame_bytes_max: FRAME_BYTES_MAX,
            direct: self.direct,
        }
    }
}

/// `host` with a port; IPv6 addresses stand in brackets when they have one.
fn with_port(host: &str) -> Option<String> {
    let is_bare = |host: &str| !host.is_empty() && !host.contains(char::is_whitespace);
    if host.matches(':').count() > 1 && !host.starts_with('[') {
        return is_bare(host).then(|| format!("[{host}]:{PORT}"));
    }
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => {
            let port: u16 = port.parse().ok()?;
            is_bare(name).then(|| format!("{name}:{port}"))
        }
        _ => is_bare(host).then(|| format!("{host}:{PORT}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_servers_is_understood() {
        let options = Options::new("a:1, b,[::1]:3,::1,[::2]/app/x").unwrap();
        assert_eq!(options.servers, ["a:1", "b:2181", "[::1]:3", "[::1]:2181", "[::2]:2181"]);
        assert_eq!(options.chroot.path(), "/app/x");
    }

    #[test]
    fn a_bad_list_is_refused() {
        for servers in ["", "a:x", ":2181", "a:99999", "a,,b", "a/b/", "a b:1"] {
            assert!(Options::new(servers).is_err(), "{servers:?}");
        }
    }
}
