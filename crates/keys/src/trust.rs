//! Who is trusted: webpki's checks, and besides them the certificates that stand in the trust store themselves.
//!
//! webpki refuses a certificate that is marked as an authority's where a client or a server shows it. `openssl req
//! -x509` marks all that it makes, and putting such a one into the other side's trust store is how many ensembles
//! began; Java takes it. So a certificate that is byte for byte in the trust store is accepted within its dates,
//! and nothing else about it is checked, its revocation neither.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, HandshakeKind, RootCertStore,
    ServerConnection, SignatureScheme,
};

use crate::certificate::Certificate;
use crate::der::{Reader, SEQUENCE};
use crate::{KeyError, pem, refusal};

/// The longest file with lists of revoked certificates, in bytes.
const LISTS_MAX: usize = 16 << 20;

/// How long the names of authorities may be together that a server says it takes; more say nothing, and clients choose
/// by themselves. TLS has no room for more than 64 KiB of them.
const HINTS_MAX: usize = 16 << 10;

/// What a server asks of its clients; ZooKeeper's `ssl.clientAuth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// No certificate.
    None,
    /// A certificate if the client has one. One that is not trusted is refused all the same.
    Want,
    /// A certificate.
    Need,
}

/// What becomes of a certificate of which no list says whether it is revoked, or only one whose time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// It is accepted.
    Allow,
    /// It is refused, as Java's PKIX does.
    Refuse,
}

/// Lists of revoked certificates, by which all certificates of a chain but the trusted one at its end are checked.
#[derive(Clone, Debug)]
pub struct Revocation {
    lists: Vec<CertificateRevocationListDer<'static>>,
    unknown: Unknown,
}

impl Revocation {
    /// Has certificates checked by these lists.
    ///
    /// # Errors
    /// When there is no list: none would be checked.
    pub fn new(
        lists: Vec<CertificateRevocationListDer<'static>>,
        unknown: Unknown,
    ) -> Result<Self, KeyError> {
        if lists.is_empty() { Err(KeyError::Missing(NO_LIST)) } else { Ok(Self { lists, unknown }) }
    }
}

const NO_LIST: &str = "no list of revoked certificates (X509 CRL)";

/// Reads lists of revoked certificates: one in DER, or any number in PEM.
///
/// # Errors
/// When it is longer than 16 MiB, or there is none.
pub fn revocation_lists(bytes: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, KeyError> {
    if bytes.len() > LISTS_MAX {
        return Err(KeyError::TooLarge("more than 16 MiB"));
    }
    let mut all = Reader(bytes);
    if all.take(SEQUENCE).is_ok() && all.is_empty() {
        return Ok(vec![bytes.to_vec().into()]);
    }
    let lists = pem::lists(bytes)?;
    if lists.is_empty() { Err(KeyError::Missing(NO_LIST)) } else { Ok(lists) }
}

/// The certificates of a trust store: as they are, and as those that others may be signed by.
#[derive(Debug)]
struct Trusted {
    pinned: BTreeSet<Vec<u8>>,
    roots: Arc<RootCertStore>,
}

impl Trusted {
    fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, KeyError> {
        let mut roots = RootCertStore::empty();
        // Some that webpki does not take may be among them. They can still be shown.
        roots.add_parsable_certificates(certificates.iter().cloned());
        if roots.is_empty() {
            return Err(KeyError::Missing("no certificate that can be trusted"));
        }
        Ok(Self { pinned: certificates.iter().map(|it| it.to_vec()).collect(), roots: Arc::new(roots) })
    }

    /// Whether this very certificate is trusted, at this time.
    fn has(&self, certificate: &CertificateDer<'_>, time: UnixTime) -> Result<bool, Error> {
        if !self.pinned.contains(certificate.as_ref()) {
            return Ok(false);
        }
        let (from, until) = Certificate::of(certificate).map_err(|_| CertificateError::BadEncoding)?.valid;
        let unix =
            |seconds: i64| UnixTime::since_unix_epoch(Duration::from_secs(seconds.try_into().unwrap_or(0)));
        let (not_before, not_after) = (unix(from), unix(until));
        if time < not_before {
            return Err(CertificateError::NotValidYetContext { time, not_before }.into());
        }
        if time > not_after || until < 0 {
            return Err(CertificateError::ExpiredContext { time, not_after }.into());
        }
        Ok(true)
    }
}

fn unusable(error: &VerifierBuilderError) -> KeyError {
    match error {
        VerifierBuilderError::InvalidCrl(error) => {
            KeyError::Setting(format!("a list of revoked certificates cannot be used: {error:?}"))
        }
        _ => KeyError::Setting(error.to_string()),
    }
}

/// The clients that a server accepts.
#[derive(Debug)]
pub struct ClientTrust {
    /// None where no certificate is asked for.
    trusted: Option<Trusted>,
    webpki: Arc<dyn ClientCertVerifier>,
    has_hints: bool,
}

impl ClientTrust {
    /// Asks no client for a certificate.
    pub fn none() -> Arc<Self> {
        let webpki = WebPkiClientVerifier::no_client_auth();
        Arc::new(Self { trusted: None, webpki, has_hints: false })
    }

    /// Accepts clients with certificates that these have signed, or that are among them. With [`Demand::None`] the
    /// certificates are not looked at.
    ///
    /// # Errors
    /// When there is no certificate that can sign others, or a list of revoked ones cannot be used.
    pub fn new(
        certificates: Vec<CertificateDer<'static>>,
        demand: Demand,
        revocation: Option<Revocation>,
    ) -> Result<Arc<Self>, KeyError> {
        if demand == Demand::None {
            return Ok(Self::none());
        }
        let trusted = Trusted::new(certificates)?;
        let provider = Arc::new(ring::default_provider());
        let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(&trusted.roots), provider);
        if let Some(Revocation { lists, unknown }) = revocation {
            builder = builder.with_crls(lists);
            builder = match unknown {
                Unknown::Allow => builder.allow_unknown_revocation_status(),
                Unknown::Refuse => builder.enforce_revocation_expiration(),
            };
        }
        if demand == Demand::Want {
            builder = builder.allow_unauthenticated();
        }
        let webpki = builder.build().map_err(|error| unusable(&error))?;
        let hints: usize = webpki.root_hint_subjects().iter().map(|name| name.as_ref().len() + 2).sum();
        Ok(Arc::new(Self { trusted: Some(trusted), webpki, has_hints: hints <= HINTS_MAX }))
    }

    /// Looks once more at what a client has shown who came back by a ticket: meanwhile his certificate may have
    /// expired, or the list that says which ones are revoked. Of others all was looked at in their handshake.
    ///
    /// # Errors
    /// Why he would be refused if he had come without a ticket.
    pub fn check_resumed(&self, tls: &ServerConnection, now: UnixTime) -> Result<(), Error> {
        if tls.handshake_kind() != Some(HandshakeKind::Resumed) {
            return Ok(());
        }
        match tls.peer_certificates() {
            Some([own, others @ ..]) => self.verify_client_cert(own, others, now).map(drop),
            _ => Ok(()),
        }
    }
}

impl ClientCertVerifier for ClientTrust {
    fn offer_client_auth(&self) -> bool {
        self.webpki.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.webpki.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        if self.has_hints { self.webpki.root_hint_subjects() } else { &[] }
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match &self.trusted {
            Some(trusted) if trusted.has(own, now)? => Ok(ClientCertVerified::assertion()),
            Some(trusted) => refusal::check((own, others), &trusted.roots, |signers| {
                self.webpki.verify_client_cert(own, signers, now)
            }),
            None => self.webpki.verify_client_cert(own, others, now),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verified = self.webpki.verify_tls12_signature(message, certificate, signature);
        verified.map_err(|error| refusal::of_handshake(error, certificate))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verified = self.webpki.verify_tls13_signature(message, certificate, signature);
        verified.map_err(|error| refusal::of_handshake(error, certificate))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// The servers that a client accepts.
#[derive(Debug)]
pub struct ServerTrust {
    trusted: Trusted,
    webpki: Arc<WebPkiServerVerifier>,
    checks_host: bool,
}

impl ServerTrust {
    /// Accepts servers with certificates that these have signed, or that are among them; with `checks_host` only those
    /// that are for the host that the client connects to. A certificate that names no host but in its subject (CN) is
    /// for that one, as ZooKeeper has it.
    ///
    /// # Errors
    /// When there is no certificate that can sign others, or a list of revoked ones cannot be used.
    pub fn new(
        certificates: Vec<CertificateDer<'static>>,
        checks_host: bool,
        revocation: Option<Revocation>,
    ) -> Result<Arc<Self>, KeyError> {
        let trusted = Trusted::new(certificates)?;
        let provider = Arc::new(ring::default_provider());
        let mut builder = WebPkiServerVerifier::builder_with_provider(Arc::clone(&trusted.roots), provider);
        if let Some(Revocation { lists, unknown }) = revocation {
            builder = builder.with_crls(lists);
            builder = match unknown {
                Unknown::Allow => builder.allow_unknown_revocation_status(),
                Unknown::Refuse => builder.enforce_revocation_expiration(),
            };
        }
        let webpki = builder.build().map_err(|error| unusable(&error))?;
        Ok(Arc::new(Self { trusted, webpki, checks_host }))
    }
}

/// Whether it is for another host. This is what webpki looks at last.
fn is_of_another(error: &Error) -> bool {
    use CertificateError::{NotValidForName, NotValidForNameContext};
    matches!(error, Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }))
}

/// Whether the subject of a certificate that has no other names is this host.
fn is_host_of(certificate: &CertificateDer<'_>, host: &ServerName<'_>) -> bool {
    let Ok(certificate) = Certificate::of(certificate) else { return false };
    if certificate.has_alternative_name {
        return false;
    }
    let host = host.to_str();
    crate::name::common_name(certificate.subject).is_some_and(|name| name.eq_ignore_ascii_case(&host))
}

impl ServerCertVerifier for ServerTrust {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let checked = if self.trusted.has(own, now)? {
            ParsedCertificate::try_from(own).and_then(|parsed| verify_server_name(&parsed, host))
        } else {
            let of_another = refusal::check((own, others), &self.trusted.roots, |signers| {
                match self.webpki.verify_server_cert(own, signers, host, ocsp, now) {
                    Err(error) if is_of_another(&error) => Ok(Some(error)),
                    checked => checked.map(|_| None),
                }
            })?;
            of_another.map_or(Ok(()), Err)
        };
        match checked {
            Err(error) if is_of_another(&error) && (!self.checks_host || is_host_of(own, host)) => {}
            checked => checked?,
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verified = self.webpki.verify_tls12_signature(message, certificate, signature);
        verified.map_err(|error| refusal::of_handshake(error, certificate))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verified = self.webpki.verify_tls13_signature(message, certificate, signature);
        verified.map_err(|error| refusal::of_handshake(error, certificate))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}
