//! Why TLS does not come about, and what to do.

use std::error::Error as _;
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
        let what = match &error {
            Error::InvalidCertificate(why) => of_certificate(why),
            Error::AlertReceived(alert) => of_alert(*alert, has_certificate),
            Error::InvalidMessage(_) => format!("it does not speak TLS here ({error}): {OTHER_PORT}"),
            Error::PeerIncompatible(_) => {
                format!("it has no version or cipher of TLS in common with this client ({error}): let it have TLS 1.2 or 1.3")
            }
            _ => format!("TLS failed: {error}"),
        };
        Self { what, cause: Some(error) }
    }

    pub(super) fn closed_in_handshake() -> Self {
        let what = format!("it closed the connection in the TLS handshake: does it speak TLS here? If not, {OTHER_PORT}");
        Self { what, cause: None }
    }

    pub(super) fn closed_unheard(has_certificate: bool) -> Self {
        let what = format!("it closed the connection right after the TLS handshake: {}", certificate_help(has_certificate));
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

const OTHER_PORT: &str = "connect without TLS, or to its port for TLS";

/// What may be wrong when a server is not content with what it is shown.
fn certificate_help(has_certificate: bool) -> &'static str {
    if has_certificate {
        "it has to trust the authority of this client's certificate, which has to be valid for clients"
    } else {
        "it may want a certificate of the client, and none is given"
    }
}

/// What is wrong with the server's certificate.
fn of_certificate(why: &CertificateError) -> String {
    match why {
        // The signature is wrong where another authority has the same name.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is not of the authority that is trusted: trust the authority that has signed it, \
             or the certificate itself"
                .to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names = match presented.as_slice() {
                [] => "no name at all".to_owned(),
                names => names.iter().map(|name| plain(name)).collect::<Vec<_>>().join(", "),
            };
            let expected = expected.to_str();
            format!(
                "its certificate is for {names} and not for {expected}: connect by a name that it is for, \
                 or switch off the check of names"
            )
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => {
            format!("its certificate is not valid now ({why}): renew it, or set the clocks right")
        }
        _ => format!("its certificate cannot be accepted: {why}"),
    }
}

/// A name without the kind that stands around it: `DnsName("a")`.
fn plain(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"').chars().filter(|char| !char.is_control()).take(NAME_CHARS_MAX).collect()
}

/// What is shown of a name, whoever wrote it.
const NAME_CHARS_MAX: usize = 255;

/// What the server has told before it closed the connection.
fn of_alert(alert: Alert, has_certificate: bool) -> String {
    match alert {
        Alert::CertificateRequired
        | Alert::NoCertificate
        | Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied
        | Alert::DecryptError => {
            let whose = if has_certificate { "refuses this client's certificate" } else { "refuses this client" };
            format!("it {whose} ({alert:?}): {}", certificate_help(has_certificate))
        }
        Alert::ProtocolVersion | Alert::HandshakeFailure | Alert::InsufficientSecurity => format!(
            "it refuses the TLS handshake ({alert:?}): let it have TLS 1.2 or 1.3 and a cipher with AES-GCM or ChaCha20; {}",
            certificate_help(has_certificate)
        ),
        Alert::UnrecognisedName => {
            "it has no certificate for the name of this server (UnrecognisedName): give the server's name".to_owned()
        }
        _ => format!("it ended TLS ({alert:?})"),
    }
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
