//! Why TLS did not come about, in plain words.

use rustls::{
    AlertDescription, CertRevocationListError, CertificateError, Error, OtherError, PeerIncompatible,
};

use crate::refusal::Refusal;

/// What an error means, for a line in a log: who is at fault shows in its beginning. `its` is the other side's.
pub fn why(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => certificate(error),
        Error::NoCertificatesPresented => "it has shown no certificate, and one is needed".to_owned(),
        Error::InvalidCertRevocationList(CertRevocationListError::IssuerInvalidForCrl) => {
            "the list that says whether its certificate is revoked is signed by one that may not: its key usage lacks \
             cRLSign"
                .to_owned()
        }
        Error::InvalidCertRevocationList(error) => {
            format!("a list of revoked certificates cannot be used: {error:?}")
        }
        Error::AlertReceived(alert) => refused(*alert),
        Error::PeerIncompatible(what) => incompatible(what),
        Error::InvalidMessage(_) => format!("what it says is no TLS ({error})"),
        Error::DecryptError => "what it says cannot be decrypted".to_owned(),
        Error::PeerMisbehaved(_) => format!("it breaks the rules of TLS ({error})"),
        _ => error.to_string(),
    }
}

fn certificate(error: &CertificateError) -> String {
    use CertificateError as E;
    let text = match error {
        E::BadEncoding => "its certificate cannot be read",
        E::ExpiredContext { time, not_after } => {
            let days = time.as_secs().saturating_sub(not_after.as_secs()) / 86_400;
            return format!("its certificate, or one that signed it, has expired {}", ago(days));
        }
        E::Expired => "its certificate, or one that signed it, has expired",
        E::NotValidYetContext { time, not_before } => {
            let days = not_before.as_secs().saturating_sub(time.as_secs()) / 86_400;
            return format!(
                "its certificate, or one that signed it, is not valid yet: it will be {}; are the clocks right?",
                ahead(days)
            );
        }
        E::NotValidYet => "its certificate, or one that signed it, is not valid yet; are the clocks right?",
        E::Revoked => "its certificate, or one that signed it, is revoked",
        E::UnknownIssuer => "its certificate is signed by nobody in the trust store",
        E::UnknownRevocationStatus => "no list says whether its certificate is revoked",
        E::ExpiredRevocationList | E::ExpiredRevocationListContext { .. } => {
            "the list that says whether its certificate is revoked is out of date"
        }
        E::BadSignature => {
            "what it has signed in the handshake is wrong: its key does not belong to its certificate"
        }
        E::NotValidForName | E::NotValidForNameContext { .. } => "its certificate is for another host",
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => {
            "its certificate is for another use: its extended key usage lacks what is needed here (clientAuth of \
             a client, serverAuth of a server)"
        }
        E::UnsupportedSignatureAlgorithmContext { .. }
        | E::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its certificate is signed in a way that is not accepted (such as SHA-1 or MD5)"
        }
        E::Other(OtherError(other)) => match other.downcast_ref::<webpki::Error>() {
            Some(error) => return of_webpki(error),
            None if other.is::<Refusal>() => return other.to_string(),
            None => return format!("its certificate is refused: {other}"),
        },
        _ => return format!("its certificate is refused: {error}"),
    };
    text.to_owned()
}

fn of_webpki(error: &webpki::Error) -> String {
    use webpki::Error as E;
    let text = match error {
        E::CaUsedAsEndEntity => {
            "its certificate is one of an authority (CA:TRUE), and is accepted only where it stands in the trust \
             store itself"
        }
        E::EndEntityUsedAsCa => "its certificate is signed with one that is not an authority's (CA:TRUE)",
        E::MaximumPathDepthExceeded => "the chain of its certificate is too long",
        E::PathLenConstraintViolated => {
            "the chain of its certificate is longer than an authority in it allows"
        }
        E::MaximumPathBuildCallsExceeded
        | E::MaximumSignatureChecksExceeded
        | E::MaximumNameConstraintComparisonsExceeded => {
            "the chain of its certificate takes too long to check"
        }
        E::NameConstraintViolation => "its certificate has a name that its authority may not give",
        E::UnsupportedCriticalExtension => "its certificate has a critical extension that is not known",
        E::UnsupportedCertVersion => "its certificate is none of version 3 of X.509",
        _ => return format!("its certificate is refused: {error}"),
    };
    text.to_owned()
}

fn ago(days: u64) -> String {
    match days {
        0 => "today".to_owned(),
        1 => "yesterday".to_owned(),
        _ => format!("{days} days ago"),
    }
}

fn ahead(days: u64) -> String {
    match days {
        0 => "within a day".to_owned(),
        1 => "in a day".to_owned(),
        _ => format!("in {days} days"),
    }
}

fn refused(alert: AlertDescription) -> String {
    use AlertDescription as A;
    let text = match alert {
        A::BadCertificate
        | A::CertificateUnknown
        | A::UnknownCA
        | A::UnsupportedCertificate
        | A::AccessDenied
        | A::DecryptError => "it does not accept our certificate",
        A::CertificateExpired => "it says that our certificate has expired",
        A::CertificateRevoked => "it says that our certificate is revoked",
        A::CertificateRequired => "it needs a certificate of ours, and there is none",
        A::ProtocolVersion => "it has no protocol in common with us",
        A::HandshakeFailure => "it has no cipher suite in common with us, or needs a certificate of ours",
        _ => return format!("it gives up ({alert:?})"),
    };
    format!("{text} ({alert:?})")
}

fn incompatible(what: &PeerIncompatible) -> String {
    use PeerIncompatible as P;
    let text = match what {
        P::NoCipherSuitesInCommon => "it has no cipher suite in common with us",
        P::NoKxGroupsInCommon | P::NamedGroupsExtensionRequired => "it has no key exchange in common with us",
        P::NoSignatureSchemesInCommon | P::NoCertificateRequestSignatureSchemesInCommon => {
            "it knows no kind of signature that our key can make"
        }
        P::ServerDoesNotSupportTls12Or13
        | P::SupportedVersionsExtensionRequired
        | P::Tls12NotOffered
        | P::Tls12NotOfferedOrEnabled
        | P::ServerTlsVersionIsDisabledByOurConfig => "it has no protocol in common with us",
        P::SignatureAlgorithmsExtensionRequired => {
            "it does not say which signatures it takes, as all do that have TLS 1.2 or newer: is it older?"
        }
        _ => return format!("it cannot be understood ({what:?})"),
    };
    text.to_owned()
}
