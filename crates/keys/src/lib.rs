//! Certificates, from the bytes of a file to the settings of a connection: key stores and trust stores in the
//! formats that ZooKeeper's settings name, the names of subjects as Java prints them, who is trusted, and TLS for
//! servers and clients. Bytes in, values out: no file, no socket, no clock but the one that rustls asks.
#![forbid(unsafe_code)]

mod certificate;
mod config;
mod der;
mod ec;
mod error;
mod jks;
mod name;
mod parse_name;
mod pbe;
mod pem;
mod pkcs12;
mod refusal;
mod store;
mod trust;
mod why;

#[cfg(test)]
mod tests;

pub use config::{Choice, client_config, server_config};
pub use error::KeyError;
pub use name::subject;
pub use parse_name::parses_as_name;
pub use refusal::is_wrongly_signed;
pub use store::{BYTES_MAX, CERTIFICATES_MAX, KeyStore, StoreFormat, key_store, trust_store};
pub use trust::{ClientTrust, Demand, Revocation, ServerTrust, Unknown, revocation_lists};
pub use why::why;
