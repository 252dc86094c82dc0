//! `stoa certificate` as its users meet it, and what TLS makes of its files.
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

/// Runs it, and says whether it worked and what it said.
fn certificate(folder: &Path, words: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stoa"));
    let output = command.arg("certificate").arg("--to").arg(folder).args(words).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

fn made(folder: &Path, words: &[&str]) -> String {
    let (done, said) = certificate(folder, words);
    assert!(done, "{said}");
    said
}

fn files(folder: &Path) -> Vec<(String, u32)> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let mode = |entry: &fs::DirEntry| entry.metadata().unwrap().permissions().mode() & 0o077;
    let mut files: Vec<_> =
        entries.map(|entry| (entry.file_name().into_string().unwrap(), mode(&entry))).collect();
    files.sort();
    files
}

fn roots(folder: &Path) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("authority.pem")).unwrap()).unwrap();
    Arc::new(roots)
}

fn identity(folder: &Path, whose: &str) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let certificate = CertificateDer::from_pem_file(folder.join(format!("{whose}.pem"))).unwrap();
    (vec![certificate], PrivateKeyDer::from_pem_file(folder.join(format!("{whose}-key.pem"))).unwrap())
}

/// A client of one folder calls a server of another by a name; both must have certificates.
fn meet(server: &Path, client: (&Path, &str), name: &str) -> Result<(), rustls::Error> {
    let verifier = WebPkiClientVerifier::builder(roots(server)).build().unwrap();
    let (chain, key) = identity(server, "server");
    let config = ServerConfig::builder().with_client_cert_verifier(verifier).with_single_cert(chain, key)?;
    let mut server = ServerConnection::new(Arc::new(config))?;
    let (folder, whose) = client;
    let (chain, key) = identity(folder, whose);
    let config =
        ClientConfig::builder().with_root_certificates(roots(folder)).with_client_auth_cert(chain, key)?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name)?;
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        server.read_tls(&mut &bytes[..]).unwrap();
        server.process_new_packets()?;
        bytes.clear();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        client.read_tls(&mut &bytes[..]).unwrap();
        client.process_new_packets()?;
    }
    client.writer().write_all(b"hello").unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    server.read_tls(&mut &bytes[..]).unwrap();
    server.process_new_packets()?;
    let mut heard = [0; 5];
    server.reader().read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
    Ok(())
}

#[test]
fn servers_and_clients_believe_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("new/tls");
    let said =
        made(&to, &["--name", "zoo1.example", "10.0.0.1", "--name", "*.zoo.example", "--client", "app"]);
    for file in ["authority", "server", "client"] {
        assert!(
            said.contains(&format!("{file}.pem, ")) && said.contains(&format!("{file}-key.pem: ")),
            "{said}"
        );
    }
    for setting in ["peer-tls-certificate", "peer-tls-key", "peer-tls-authority"] {
        assert!(said.contains(&format!("{setting} = \"{}", to.display())), "{said}");
    }
    for setting in ["tls-certificate", "tls-key", "tls-authority"] {
        assert!(said.contains(&format!("\n{setting} = \"{}", to.display())), "{said}");
    }
    assert!(said.contains("\ntls-on-port = \"also\"\n"), "{said}");
    let files = files(&to);
    let expected = [
        ("authority-key.pem", true),
        ("authority.pem", false),
        ("client-key.pem", true),
        ("client.pem", false),
        ("server-key.pem", true),
        ("server.pem", false),
    ];
    let found: Vec<_> = files.iter().map(|(name, open)| (&name[..], *open == 0)).collect();
    assert_eq!(found, expected, "nobody else reads the keys");
    for name in ["zoo1.example", "10.0.0.1", "localhost", "127.0.0.1", "::1", "zoo-2.zoo.example"] {
        meet(&to, (&to, "client"), name).unwrap();
        // Servers call one another.
        meet(&to, (&to, "server"), name).unwrap();
    }
    let wrong = meet(&to, (&to, "client"), "zoo2.example").unwrap_err();
    assert!(format!("{wrong:?}").contains("NotValidForName"), "{wrong:?}");
    let elsewhere = folder.path().join("elsewhere");
    made(&elsewhere, &["--client", "app", "--name", "zoo1.example"]);
    meet(&to, (&elsewhere, "client"), "zoo1.example").unwrap_err();
}

#[test]
fn an_authority_is_used_again_and_nothing_is_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path();
    made(to, &["--client", "app"]);
    let names = |files: Vec<(String, u32)>| files.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let of_client = ["authority-key.pem", "authority.pem", "client-key.pem", "client.pem"];
    assert_eq!(names(files(to)), of_client, "no server was asked for");
    let authority = fs::read(to.join("authority.pem")).unwrap();
    let said = made(to, &["--days", "1"]);
    assert!(said.contains("authority.pem: the authority that was there"), "{said}");
    assert_eq!(fs::read(to.join("authority.pem")).unwrap(), authority);
    meet(to, (to, "client"), "localhost").unwrap();

    let before = fs::read(to.join("server-key.pem")).unwrap();
    fs::remove_file(to.join("server.pem")).unwrap();
    let (done, said) = certificate(to, &["--name", "zoo1"]);
    assert!(!done && said.contains("server-key.pem is there already, and nothing was made"), "{said}");
    let (done, said) = certificate(to, &["--name", "zoo1", "--client", "other"]);
    assert!(!done && said.contains("is there already"), "{said}");
    assert_eq!(fs::read(to.join("server-key.pem")).unwrap(), before);
    assert!(!to.join("server.pem").exists());
}

#[test]
fn what_is_no_authority_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    made(&one, &["--client", "app"]);
    made(&other, &["--client", "app"]);
    let refused = |why: &str| {
        let (done, said) = certificate(&one, &[]);
        assert!(!done && said.contains(why), "{said}");
        assert!(!one.join("server.pem").exists());
    };
    fs::copy(other.join("authority-key.pem"), one.join("authority-key.pem")).unwrap();
    refused("is no certificate of an authority, or not of that key");
    fs::copy(one.join("client.pem"), one.join("authority.pem")).unwrap();
    fs::copy(one.join("client-key.pem"), one.join("authority-key.pem")).unwrap();
    refused("is no certificate of an authority");
    fs::write(one.join("authority-key.pem"), "nonsense").unwrap();
    refused("authority-key.pem is no key");
    fs::remove_file(one.join("authority-key.pem")).unwrap();
    refused("belong together");
}

#[test]
fn names_that_no_certificate_can_have_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let long = "x".repeat(65);
    let wrong: [&[&str]; 7] = [
        &["--name", "a b"],
        &["--name", ""],
        &["--name", "a..b"],
        &["--name", "zoo1,zoo2"],
        &["--client", ""],
        &["--client", &long],
        &["--days", "0"],
    ];
    for words in wrong {
        assert!(!certificate(folder.path(), words).0, "{words:?}");
    }
    assert_eq!(files(folder.path()), []);
}
