//! Why certificates are refused that webpki takes, or of which it says less than is known here.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, Error, OtherError, RootCertStore};

use crate::certificate::{Certificate, PublicKey};
use crate::der::{Reader, SEQUENCE};

/// The smallest RSA keys that are accepted.
const RSA_BITS_MIN: usize = 2048;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Whoever has signed it has another key than who should have.
    WrongSignature,
    SmallKey,
    /// A certificate between it and the trusted one has a key usage without keyCertSign.
    MayNotSign,
    /// Its key usage lacks digitalSignature, and in a handshake nothing else is done with its key.
    MayNotShakeHands,
}

impl fmt::Display for Refusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::WrongSignature => {
                "the signature on its certificate is wrong: is it from another authority of that name?"
            }
            Self::SmallKey => {
                "the RSA key of its certificate, or of one that signed it, has fewer than 2,048 bits"
            }
            Self::MayNotSign => {
                "its certificate is signed with one that may not sign others: its key usage lacks keyCertSign"
            }
            Self::MayNotShakeHands => {
                "its certificate is for another use: its key usage lacks digitalSignature"
            }
        })
    }
}

impl StdError for Refusal {}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        CertificateError::Other(OtherError(Arc::new(refusal))).into()
    }
}

/// Whether a certificate is refused because its signature is wrong, as it is where another authority has the same name
/// as the trusted one.
pub fn is_wrongly_signed(error: &Error) -> bool {
    match error {
        Error::InvalidCertificate(CertificateError::Other(OtherError(other))) => {
            other.downcast_ref() == Some(&Refusal::WrongSignature)
        }
        _ => false,
    }
}

/// Has webpki check a chain, and checks what it does not: for what the keys may be used (RFC 5280, 4.2.1.3).
///
/// # Errors
/// Those of `by_webpki`, which is given the certificates that may sign others, and [`Refusal`].
pub(crate) fn check<T>(
    (own, others): (&CertificateDer<'_>, &[CertificateDer<'_>]),
    roots: &RootCertStore,
    by_webpki: impl Fn(&[CertificateDer<'_>]) -> Result<T, Error>,
) -> Result<T, Error> {
    use CertificateError::{BadSignature, UnknownIssuer};
    // Those that cannot be read webpki complains of.
    let may_sign =
        |it: &&CertificateDer<'_>| Certificate::of(it).map_or(true, |it| it.may_sign_certificates());
    let signers: Vec<_> =
        others.iter().filter(may_sign).map(|it| CertificateDer::from(it.as_ref())).collect();
    match by_webpki(&signers) {
        // With the others it fails for another reason, or for none but that they may not sign.
        Err(Error::InvalidCertificate(UnknownIssuer)) if signers.len() < others.len() => {
            by_webpki(others).and(Err(Refusal::MayNotSign.into()))
        }
        Err(Error::InvalidCertificate(BadSignature)) => {
            let is_small = is_signed_with_small_key(own, others, roots);
            Err(if is_small { Refusal::SmallKey } else { Refusal::WrongSignature }.into())
        }
        Ok(_) if Certificate::of(own).is_ok_and(|own| !own.may_sign_handshakes()) => {
            Err(Refusal::MayNotShakeHands.into())
        }
        checked => checked,
    }
}

/// What is wrong with a signature of the handshake. With small keys it is not even looked at.
pub(crate) fn of_handshake(error: Error, own: &CertificateDer<'_>) -> Error {
    let is_small = || Certificate::of(own).is_ok_and(|own| is_small(&own.key));
    match error {
        Error::InvalidCertificate(CertificateError::BadSignature) if is_small() => Refusal::SmallKey.into(),
        error => error,
    }
}

fn is_small(key: &PublicKey<'_>) -> bool {
    key.rsa_bits().is_some_and(|bits| bits < RSA_BITS_MIN)
}

/// Whether one of these is signed by somebody with such a key: webpki says of it that the signature is wrong.
fn is_signed_with_small_key(
    own: &CertificateDer<'_>,
    others: &[CertificateDer<'_>],
    roots: &RootCertStore,
) -> bool {
    let others: Vec<_> = others.iter().filter_map(|it| Certificate::of(it).ok()).collect();
    let mut shown = Certificate::of(own).into_iter().chain(others.iter().copied());
    shown.any(|it| {
        let is_of_root = |name: &[u8]| Reader(it.issuer).take(SEQUENCE).is_ok_and(|issuer| issuer == name);
        let roots = roots.roots.iter().filter(|root| is_of_root(root.subject.as_ref()));
        let keys_of_roots =
            roots.filter_map(|root| PublicKey::of(Reader(root.subject_public_key_info.as_ref())).ok());
        let signers = others.iter().filter(|other| other.subject == it.issuer).map(|other| other.key);
        signers.chain(keys_of_roots).any(|key| is_small(&key))
    })
}
