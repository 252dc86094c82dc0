//! What can be wrong with certificates, keys and settings of TLS.

use std::error::Error;
use std::fmt;

/// Why there is no key store, trust store or TLS setting to be had. Its text says what is wrong and, where that is
/// known, what to do; it does not say which file it is about, which only the caller knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// It is longer than [`crate::BYTES_MAX`], or has more than [`crate::CERTIFICATES_MAX`] certificates.
    TooLarge(&'static str),
    /// It is in a format, or protected in a way, that is known and not read: which, and the way out.
    Unsupported(String),
    /// It is in no format that is known.
    Unknown,
    /// The password does not fit, or there is none where one is needed.
    Password(&'static str),
    /// It ends early, or contradicts itself.
    Damaged(&'static str),
    /// It lacks something: a key, a certificate, a list.
    Missing(&'static str),
    /// The key cannot be used, or fits no certificate.
    Key(String),
    /// A setting cannot be meant.
    Setting(String),
}

impl fmt::Display for KeyError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge(what) => write!(to, "it is too large: {what}"),
            Self::Unsupported(what) | Self::Key(what) | Self::Setting(what) => to.write_str(what),
            Self::Unknown => to.write_str(
                "it is neither PEM (text with -----BEGIN), nor a store of the types JKS or PKCS12",
            ),
            Self::Password(what) => write!(to, "the password does not fit: {what}"),
            Self::Damaged(what) => write!(to, "it is damaged: {what}"),
            Self::Missing(what) => write!(to, "there is {what} in it"),
        }
    }
}

impl Error for KeyError {}
