//! TLS in front of a server that has none, and the certificates for it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{HandshakeKind, RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// An authority, which signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
pub(crate) struct Signed {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::named("the authority")
    }

    pub(crate) fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> Vec<u8> {
        self.0.pem().into_bytes()
    }

    /// A certificate for these names and addresses.
    pub(crate) fn sign(&self, names: &[&str]) -> Signed {
        let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        self.sign_with(CertificateParams::new(names).unwrap())
    }

    pub(crate) fn sign_with(&self, params: CertificateParams) -> Signed {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap().pem();
        Signed { certificate, key: key.serialize_pem() }
    }
}

/// What has come in: the client's certificate, if it has shown one, and how the handshake was.
pub(crate) type Shown = (Option<CertificateDer<'static>>, Option<HandshakeKind>);

/// Takes connections with TLS and hands them on to a server without.
pub(crate) struct Terminator {
    pub(crate) address: SocketAddr,
    shown: Arc<Mutex<Vec<Shown>>>,
}

impl Terminator {
    /// In front of the server at `to`. With `clients` it wants certificates of that authority.
    pub(crate) async fn start(to: SocketAddr, own: &Signed, clients: Option<&Authority>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config(own, clients)));
        let shown = Arc::<Mutex<Vec<Shown>>>::default();
        let log = Arc::clone(&shown);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, log) = (acceptor.clone(), Arc::clone(&log));
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(socket).await else { return };
                    let session = stream.get_ref().1;
                    let certificate = session.peer_certificates().and_then(|chain| chain.first());
                    let certificate = certificate.map(|certificate| certificate.clone().into_owned());
                    log.lock().unwrap().push((certificate, session.handshake_kind()));
                    let mut server = TcpStream::connect(to).await.unwrap();
                    // Whichever side ends, the other one sees it.
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
                });
            }
        });
        Self { address, shown }
    }

    pub(crate) fn shown(&self) -> Vec<Shown> {
        self.shown.lock().unwrap().clone()
    }
}

pub(crate) fn config(own: &Signed, clients: Option<&Authority>) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(&authority.pem()).unwrap()).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        }
    };
    let chain = vec![CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap()];
    builder.with_single_cert(chain, PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap()).unwrap()
}
