//! Whom to trust, and what to show.

use std::error::Error;
use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use stoa_keys::{Choice, ServerTrust, StoreFormat, client_config, key_store, trust_store};

use super::{TlsFailure, TlsStream};

/// How to speak TLS with servers. Made ready with [`TlsOptions::build`].
///
/// Certificates and keys are the bytes of files in PEM, PKCS12 or JKS, whichever they are.
///
/// ```no_run
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use stoa_client::{Options, tls::TlsOptions};
///
/// let tls = TlsOptions::new(&std::fs::read("authority.pem")?)
///     .certificate(&std::fs::read("client.p12")?)
///     .password("of the store")
///     .build()?;
/// let options = Options::new("zoo1.example:2281,zoo2.example:2281")?.tls(tls);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TlsOptions {
    authority: Vec<u8>,
    authority_password: Option<String>,
    certificate: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
    password: Option<String>,
    checks_host: bool,
    server_name: Option<String>,
}

impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { checks_host, server_name, .. } = self;
        f.debug_struct("TlsOptions")
            .field("checks_host", checks_host)
            .field("server_name", server_name)
            .finish_non_exhaustive()
    }
}

/// Why options for TLS cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsError {
    what: String,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for TlsError {}

impl TlsOptions {
    /// Trusts servers whose certificates are of one of these authorities, or stand here themselves.
    #[must_use]
    pub fn new(authority: &[u8]) -> Self {
        Self {
            authority: authority.to_owned(),
            authority_password: None,
            certificate: None,
            key: None,
            password: None,
            checks_host: true,
            server_name: None,
        }
    }

    /// The password of the authorities' store; that of [`TlsOptions::password`] if not set.
    #[must_use]
    pub fn authority_password(self, password: &str) -> Self {
        Self { authority_password: Some(password.to_owned()), ..self }
    }

    /// A certificate to show, with those that lead to its authority, and with its key if that is not given by
    /// itself.
    #[must_use]
    pub fn certificate(self, certificate: &[u8]) -> Self {
        Self { certificate: Some(certificate.to_owned()), ..self }
    }

    /// The private key of the certificate, in PEM, where that is in PEM too and without its key.
    #[must_use]
    pub fn key(self, key: &[u8]) -> Self {
        Self { key: Some(key.to_owned()), ..self }
    }

    /// The password of keys and stores. None if not set.
    #[must_use]
    pub fn password(self, password: &str) -> Self {
        Self { password: Some(password.to_owned()), ..self }
    }

    /// Whether the certificate of a server has to be for its host. On if not set; whoever switches it off trusts
    /// everybody with a certificate of the authority.
    #[must_use]
    pub fn check_host(self, checks_host: bool) -> Self {
        Self { checks_host, ..self }
    }

    /// The name that certificates of servers have to be for; the host by which each is connected to if not set.
    #[must_use]
    pub fn server_name(self, server_name: &str) -> Self {
        Self { server_name: Some(server_name.to_owned()), ..self }
    }

    /// Reads certificates and keys.
    ///
    /// # Errors
    /// When they cannot be read, do not fit each other, or the server's name is none.
    pub fn build(&self) -> Result<Tls, TlsError> {
        let config = self.config().map_err(|what| TlsError { what })?;
        if let Some(name) = &self.server_name {
            name_of(name).map_err(|failure| TlsError { what: failure.to_string() })?;
        }
        let host = self.server_name.as_deref().map(Arc::from);
        Ok(Tls { config: Arc::new(config), is_fixed: host.is_some(), host: host.unwrap_or_default() })
    }

    fn config(&self) -> Result<ClientConfig, String> {
        let own = self.password.as_deref();
        let trusted = trust_store(&self.authority, self.authority_password.as_deref().or(own))
            .map_err(|error| format!("the authority's certificates: {error}"))?;
        let trust = ServerTrust::new(trusted, self.checks_host, None)
            .map_err(|error| format!("the authority's certificates: {error}"))?;
        let shown = self.shown()?;
        let read = shown.map(|bytes| key_store(&bytes, own)).transpose();
        let store = read.map_err(|error| format!("the client's certificate and key: {error}"))?;
        let choice = Choice::new::<&str, &str>(&[], &[]).map_err(|error| error.to_string())?;
        client_config(store, trust, &choice)
            .map_err(|error| format!("the client's certificate and key: {error}"))
    }

    /// The client's certificate and key in one.
    fn shown(&self) -> Result<Option<Vec<u8>>, String> {
        match (&self.certificate, &self.key) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err("the client's key has no certificate: give that too".to_owned()),
            (Some(certificate), None) => Ok(Some(certificate.clone())),
            (Some(certificate), Some(key)) => {
                let is_pem = |bytes| matches!(StoreFormat::of(bytes), Ok(StoreFormat::Pem));
                if !is_pem(certificate) || !is_pem(key) {
                    return Err("a key in a file of its own takes certificate and key in PEM".to_owned());
                }
                Ok(Some([certificate.as_slice(), b"\n", key].concat()))
            }
        }
    }
}

/// TLS with servers, ready to begin. Clones share what makes later handshakes short.
#[derive(Debug, Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    /// What certificates have to be for.
    host: Arc<str>,
    /// `host` is the same for all servers.
    is_fixed: bool,
}

impl Tls {
    /// The same for a server, as `host:port`: its certificate has to be for that host, unless
    /// [`TlsOptions::server_name`] says another one.
    #[must_use]
    pub fn to(&self, server: &str) -> Self {
        if self.is_fixed { self.clone() } else { Self { host: host_of(server).into(), ..self.clone() } }
    }

    /// The same for a server, as `host:port`, that is connected to by another address.
    #[must_use]
    pub fn behind(&self, server: &str) -> Self {
        Self { is_fixed: true, ..self.to(server) }
    }

    /// Begins TLS on a socket; [`TlsStream::handshake`] goes on.
    ///
    /// # Errors
    /// When the host is no name that a certificate can be for.
    pub fn begin<S: Read + Write>(&self, socket: S) -> io::Result<TlsStream<S>> {
        let name = name_of(&self.host).map_err(TlsFailure::into_io)?;
        TlsStream::new(Arc::clone(&self.config), name, socket)
    }
}

/// The host of `host:port`.
fn host_of(server: &str) -> &str {
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn name_of(host: &str) -> Result<ServerName<'static>, TlsFailure> {
    // A name that is complete ends with a dot, which certificates leave out.
    let name = host.strip_suffix('.').unwrap_or(host);
    ServerName::try_from(name.to_owned()).map_err(|_| TlsFailure::of_name(host))
}
