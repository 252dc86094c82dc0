//! What a server runs with, and where it comes from.
//!
//! Every setting is one row of [`SETTINGS`]. Its value is, in this order: that of its flag, of its
//! environment variable, of the configuration file (TOML, or a `zoo.cfg` as it is), or its default.

mod args;
mod document;
mod doors;
mod ensemble;
mod error;
mod java;
mod kind;
mod load;
mod member;
mod partitions;
mod properties;
mod reader;
mod reading;
mod settings;
mod site;
mod toml_file;
mod zoo;

pub use args::ServeArgs;
pub(crate) use ensemble::client_ip;
pub(crate) use load::FixedPorts;
pub(crate) use reader::READER_ID;
pub(crate) use site::SITE_NAME_BYTES_MAX;

pub use document::{settings_table, zoo_table};
pub use error::ConfigError;
pub use kind::{AuditFull, ClientCertificates, LogFormat, LogLevel, TlsOnPort};
pub use load::{Loaded, Origin, ReadFile, of_file};
pub use member::{Member, MemberRole};
pub use partitions::{PARTITIONS_MAX, Partitions};
pub use reader::ParentAddress;
pub use settings::{SETTINGS, Setting, Settings};
pub use site::SiteAddresses;
