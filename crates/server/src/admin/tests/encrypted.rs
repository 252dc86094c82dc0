//! Admin HTTP with TLS.

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use stoa_keys::{Choice, ServerTrust, client_config, key_store, trust_store};

use super::*;

const STAT: &str = "GET /commands/stat HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn resets(authorization: &str) -> String {
    format!("POST /commands/srst HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n{authorization}\r\n")
}

/// An authority, and the certificates of a server and of clients that it has signed, in a folder.
struct Certificates {
    folder: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Certificates {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let certificates = Self { folder: tempfile::tempdir().unwrap(), authority };
        fs::write(certificates.folder.path().join("authority"), certificates.authority.pem()).unwrap();
        certificates.sign("server");
        certificates
    }

    fn path(&self, name: &str) -> Option<std::path::PathBuf> {
        Some(self.folder.path().join(name))
    }

    /// A certificate with this name, and the key with it.
    fn sign(&self, name: &str) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let signed = params.signed_by(&key, &self.authority).unwrap();
        fs::write(self.folder.path().join(name), format!("{}{}", signed.pem(), key.serialize_pem())).unwrap();
    }

    fn settings(&self, admin_tls: TlsOnPort, asked: ClientCertificates) -> Settings {
        Settings {
            tls_certificate: self.path("server"),
            tls_authority: self.path("authority"),
            super_certificate: Some("CN=root".to_owned()),
            admin_tls,
            admin_client_certificates: asked,
            ..Settings::default()
        }
    }

    /// How a client connects that shows this certificate, if any.
    fn client(&self, shown: Option<&str>) -> Arc<ClientConfig> {
        let read = |name: &Path| fs::read(self.folder.path().join(name)).unwrap();
        let trusted = trust_store(&read("authority".as_ref()), None).unwrap();
        let trust = ServerTrust::new(trusted, true, None).unwrap();
        let shown = shown.map(|name| key_store(&read(name.as_ref()), None).unwrap());
        let choice = Choice::new(&[""; 0], &[""; 0]).unwrap();
        Arc::new(client_config(shown, trust, &choice).unwrap())
    }
}

/// Status and all of the reply.
fn ask(served: &Served, client: &Arc<ClientConfig>, request: &str) -> std::io::Result<(u16, String)> {
    let name = ServerName::try_from("localhost").unwrap();
    let tls = ClientConnection::new(Arc::clone(client), name).unwrap();
    let mut stream = StreamOwned::new(tls, TcpStream::connect(served.address)?);
    stream.write_all(request.as_bytes())?;
    let mut reply = String::new();
    // An end that TLS does not tell would be an error.
    stream.read_to_string(&mut reply)?;
    let status = reply.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    Ok((status, reply))
}

#[test]
fn the_first_byte_decides_where_both_are_served() {
    let certificates = Certificates::new();
    let settings = certificates.settings(TlsOnPort::Also, ClientCertificates::None);
    let served = served(settings, Phase::Serving, stats);
    let (status, reply) = ask(&served, &certificates.client(None), STAT).unwrap();
    assert!(status == 200 && reply.contains("\"server_stats\""), "{reply}");
    let in_the_clear = || served.process.admin_tls.as_ref().unwrap().in_the_clear();
    assert_eq!(in_the_clear(), 0);
    assert_eq!(served.get("/commands/stat").0, 200);
    assert_eq!(in_the_clear(), 1);
}

#[test]
fn who_has_no_tls_where_all_have_is_told_so() {
    let certificates = Certificates::new();
    let settings = certificates.settings(TlsOnPort::Only, ClientCertificates::None);
    let served = served(settings, Phase::Serving, stats);
    let (status, body) = served.get("/commands/stat");
    assert_eq!((status, &body[..]), (400, "This port has TLS: ask with https://\n"));
    assert_eq!(ask(&served, &certificates.client(None), STAT).unwrap().0, 200);
}

#[test]
fn who_needs_a_certificate_and_shows_none_is_refused() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    certificates.sign("app");
    others.sign("app");
    let settings = certificates.settings(TlsOnPort::Only, ClientCertificates::Need);
    let served = served(settings, Phase::Serving, stats);
    assert_eq!(ask(&served, &certificates.client(Some("app")), STAT).unwrap().0, 200);
    let why = ask(&served, &certificates.client(None), STAT).unwrap_err().to_string();
    assert!(why.contains("CertificateRequired"), "{why}");
    fs::copy(others.path("app").unwrap(), certificates.path("foreign").unwrap()).unwrap();
    assert!(ask(&served, &certificates.client(Some("foreign")), STAT).is_err());
}

#[test]
fn a_change_is_authorised_by_a_certificate() {
    let certificates = Certificates::new();
    for name in ["app", "root", "admin"] {
        certificates.sign(name);
    }
    let settings = certificates.settings(TlsOnPort::Also, ClientCertificates::Want);
    // The ACL on `/` names one of them.
    let admins = Some("CN=admin".to_owned());
    let closed = Example { is_open: false, admins, ..Example::default() };
    let served = served_by(settings, Phase::Serving, closed);
    let post = |name: Option<&str>, authorization: &str| {
        ask(&served, &certificates.client(name), &resets(authorization)).unwrap().0
    };
    assert_eq!(post(None, ""), 401);
    assert_eq!(post(None, "Authorization: x509\r\n"), 401);
    assert_eq!(post(Some("app"), ""), 403);
    for header in ["", "Authorization: x509\r\n", "Authorization: x509 any\r\n"] {
        assert_eq!(post(Some("admin"), header), 200, "{header}");
        assert_eq!(post(Some("root"), header), 200, "{header}");
    }
    assert_eq!(post(Some("admin"), "Authorization: Basic x\r\n"), 401, "what is said has to be true");
}

#[test]
fn the_files_of_servers_do_where_there_are_no_others() {
    let certificates = Certificates::new();
    let files = certificates.settings(TlsOnPort::Only, ClientCertificates::None);
    let settings = Settings {
        peer_tls_certificate: files.tls_certificate.clone(),
        peer_tls_authority: files.tls_authority.clone(),
        tls_certificate: None,
        tls_authority: None,
        ..files
    };
    let served = served(settings, Phase::Serving, stats);
    assert_eq!(ask(&served, &certificates.client(None), STAT).unwrap().0, 200);
}
