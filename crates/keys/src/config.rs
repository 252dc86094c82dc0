//! Settings of TLS for servers and clients, from the words that ZooKeeper's settings have.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring;
use rustls::server::ServerSessionMemoryCache;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};

use crate::{ClientTrust, KeyError, KeyStore, ServerTrust};

/// How many sessions of TLS 1.2 a server keeps for clients that know no tickets.
const SESSIONS_KEPT: usize = 1024;

/// How many servers a client keeps tickets of.
const SERVERS_KEPT: usize = 32;

/// Protocols and cipher suites.
#[derive(Clone, Debug)]
pub struct Choice {
    provider: Arc<CryptoProvider>,
    versions: Vec<&'static SupportedProtocolVersion>,
    ignored: Vec<String>,
}

impl Choice {
    /// Takes the names that Java has for protocols (`TLSv1.2`, `TLSv1.3`) and cipher suites
    /// (`TLS_AES_256_GCM_SHA384`), the preferred ones first. None at all are all that there are.
    ///
    /// # Errors
    /// When a protocol is another one, or no cipher suite is left that one of the protocols has.
    pub fn new<P: AsRef<str>, S: AsRef<str>>(protocols: &[P], suites: &[S]) -> Result<Self, KeyError> {
        let mut versions = Vec::new();
        for name in protocols.iter().map(|name| name.as_ref().trim()) {
            versions.push(match name {
                "TLSv1.2" => &TLS12,
                "TLSv1.3" => &TLS13,
                _ => {
                    return Err(KeyError::Setting(format!(
                        "there is no protocol {name}: there are TLSv1.2 and TLSv1.3"
                    )));
                }
            });
        }
        if versions.is_empty() {
            versions.extend([&TLS13, &TLS12]);
        }
        let mut provider = ring::default_provider();
        let known = std::mem::take(&mut provider.cipher_suites);
        let mut ignored = Vec::new();
        for name in suites.iter().map(|name| name.as_ref().trim()) {
            let is_meant = |suite: &&SupportedCipherSuite| java_name(suite) == name;
            match known.iter().find(is_meant).filter(|suite| versions.contains(&suite.version())) {
                Some(suite) if !provider.cipher_suites.contains(suite) => provider.cipher_suites.push(*suite),
                Some(_) => {}
                None => ignored.push(name.to_owned()),
            }
        }
        if suites.is_empty() {
            provider.cipher_suites = known;
        } else if provider.cipher_suites.is_empty() {
            let with_version = known.iter().filter(|suite| versions.contains(&suite.version()));
            let names: Vec<String> = with_version.map(java_name).collect();
            return Err(KeyError::Setting(format!(
                "there is none of the cipher suites {}: there are {}",
                ignored.join(", "),
                names.join(", ")
            )));
        }
        Ok(Self { provider: Arc::new(provider), versions, ignored })
    }

    /// The cipher suites that were asked for and are not there, or belong to a protocol that was not asked for: for a
    /// warning.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }
}

/// What Java calls a cipher suite.
fn java_name(suite: &SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replacen("TLS13_", "TLS_", 1)
}

/// The settings of a server that shows this certificate, and of clients takes those that `trust` does. Clients come
/// back by tickets, which carry what certificate they have shown and are not checked again: whoever trusts somebody
/// no more takes new settings, which know no ticket of old ones, and [`ClientTrust::check_resumed`] looks whether time
/// has changed anything.
///
/// # Errors
/// When rustls refuses the certificate, or protocols and cipher suites do not go together.
pub fn server_config(
    store: KeyStore,
    trust: Arc<ClientTrust>,
    choice: &Choice,
) -> Result<ServerConfig, KeyError> {
    let (chain, key) = store.into_parts();
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&choice.provider))
        .with_protocol_versions(&choice.versions)
        .map_err(|error| refused(&error))?
        .with_client_cert_verifier(trust)
        .with_single_cert(chain, key)
        .map_err(|error| refused(&error))?;
    config.ticketer = ring::Ticketer::new().map_err(|error| refused(&error))?;
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS_KEPT);
    // A client has one connection, and gets a new ticket each time.
    config.send_tls13_tickets = 1;
    Ok(config)
}

/// The settings of a client that takes servers that `trust` does, and shows a certificate where it has one and is
/// asked for it.
///
/// # Errors
/// When rustls refuses the certificate, or protocols and cipher suites do not go together.
pub fn client_config(
    store: Option<KeyStore>,
    trust: Arc<ServerTrust>,
    choice: &Choice,
) -> Result<ClientConfig, KeyError> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(&choice.provider))
        .with_protocol_versions(&choice.versions)
        .map_err(|error| refused(&error))?
        .dangerous()
        .with_custom_certificate_verifier(trust);
    let mut config = match store {
        Some(store) => {
            let (chain, key) = store.into_parts();
            builder.with_client_auth_cert(chain, key).map_err(|error| refused(&error))?
        }
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::in_memory_sessions(SERVERS_KEPT);
    Ok(config)
}

fn refused(error: &rustls::Error) -> KeyError {
    KeyError::Setting(crate::why(error))
}
