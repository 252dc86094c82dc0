//! Why TLS does not come about, and what to do.

use std::fmt;
use std::io::{self, ErrorKind};

use rustls::{AlertDescription as Alert, CertificateError, Error};

/// Why there is no TLS with a server, or no more, and what to do about it.
///
/// It is behind the errors of a [`super::TlsStream`], which are those of sockets otherwise.
#[derive(Debug)]
pub struct TlsFailure {
    what: String,
    cause: Option<Error>,
}

impl TlsFailure {
    pub(super) fn of(error: Error, has_certificate: bool) -> Self {
        let why = stoa_keys::why(&error);
        let what = match &error {
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => format!("{why}: {TRUST}"),
            error if stoa_keys::is_wrongly_signed(error) => {
                format!("its certificate is signed by another authority of the trusted one's name: {TRUST}")
            }
            Error::InvalidCertificate(CertificateError::NotValidForNameContext { expected, presented }) => {
                of_another(&expected.to_str(), presented)
            }
            Error::AlertReceived(alert) if is_of_certificate(*alert) => {
                format!("{why}: {}", certificate_help(has_certificate))
            }
            Error::InvalidMessage(_) => format!("{why}: {OTHER_PORT}"),
            _ => why,
        };
        Self { what, cause: Some(error) }
    }

    pub(super) fn closed_in_handshake() -> Self {
        let what = format!(
            "it closed the connection in the TLS handshake: does it speak TLS here? If not, {OTHER_PORT}"
        );
        Self { what, cause: None }
    }

    pub(super) fn closed_unheard(has_certificate: bool) -> Self {
        let why = match has_certificate {
            true => "does not take this client's certificate, whose authority it has to trust",
            false => "wants a certificate of the client, and none is given",
        };
        let what = format!(
            "it closed the connection right after the TLS handshake: it does not serve now, or {why}"
        );
        Self { what, cause: None }
    }

    pub(crate) fn late(patience: std::time::Duration) -> Self {
        let what = format!(
            "it did not complete the TLS handshake within {patience:?}: does it speak TLS here? If not, {OTHER_PORT}"
        );
        Self { what, cause: None }
    }

    pub(super) fn of_name(host: &str) -> Self {
        let what = format!("`{host}` is no name that a certificate can be for: give the server's name");
        Self { what, cause: None }
    }

    pub(crate) fn into_io(self) -> io::Error {
        io::Error::new(ErrorKind::InvalidData, self)
    }
}

const TRUST: &str = "trust the authority that has signed it, or the certificate itself";
const OTHER_PORT: &str = "connect without TLS, or to its port for TLS";

/// What may be wrong when a server is not content with what it is shown.
fn certificate_help(has_certificate: bool) -> &'static str {
    if has_certificate {
        "it has to trust the authority of this client's certificate, which has to be valid for clients"
    } else {
        "it may want a certificate of the client, and none is given"
    }
}

/// The server's certificate is for other hosts, which are told.
fn of_another(expected: &str, presented: &[String]) -> String {
    let names = match presented {
        [] => "no host".to_owned(),
        names => names.iter().take(NAMES_MAX).map(|name| plain(name)).collect::<Vec<_>>().join(", "),
    };
    format!(
        "its certificate is for {names} and not for {expected}: connect by a name that it is for, or switch \
         off the check of names"
    )
}

/// A name without the kind that stands around it: `DnsName("a")`.
fn plain(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"').chars().filter(|char| !char.is_control()).take(NAME_CHARS_MAX).collect()
}

/// What is shown of names, whoever wrote them.
const NAME_CHARS_MAX: usize = 255;
const NAMES_MAX: usize = 10;

/// Whether a server that says this may want another certificate, or one at all.
fn is_of_certificate(alert: Alert) -> bool {
    matches!(
        alert,
        Alert::CertificateRequired
            | Alert::NoCertificate
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::DecryptError
            | Alert::HandshakeFailure
    )
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for TlsFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}
