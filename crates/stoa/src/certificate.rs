//! `stoa certificate`: an authority and certificates of it, to try TLS out with.
//!
//! Keys are ECDSA with P-256, as rustls, OpenSSL and Java all take them. Nothing is written over.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use clap::Args;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};

use crate::failure::{Context as _, Failure, Result};

/// The longest common name (X.520).
const NAME_CHARS_MAX: usize = 64;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Clocks of machines are not the same.
const CLOCKS_DIFFER: Duration = DAY;
/// An authority outlives what it signs by far.
const AUTHORITY_DAYS: u32 = 3650;
/// What every server is called.
const OWN_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// What the files of a server are, by the ends of the settings that name them.
pub(crate) const SERVER_FILES: [(&str, &str); 3] =
    [("certificate", "server.pem"), ("key", "server-key.pem"), ("authority", "authority.pem")];

/// For a first trial, and for tests: the authority's key stays in the folder, and nothing is ever revoked. An authority
/// that is in the folder already is used again; to use it in another folder, copy authority.pem and authority-key.pem
/// there. Nothing else that is in the folder is touched, and nothing is made when a file of its name is there.
#[derive(Debug, Args)]
pub(crate) struct CertificateArgs {
    /// The folder for the files; it is made if it is missing
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Names and addresses of the server, or of all servers that are to share the certificate, besides localhost and
    /// the addresses for that
    #[arg(long = "name", value_name = "HOST", num_args = 1..)]
    names: Vec<String>,
    /// Makes a certificate for a client with this name; without --name, for nobody else
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// How many days certificates are valid; an authority is made for ten years
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
}

/// A certificate and its key, in files.
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn of(folder: &Path, whose: &str) -> Self {
        let file = |name: String| folder.join(name);
        Self { certificate: file(format!("{whose}.pem")), key: file(format!("{whose}-key.pem")) }
    }

    fn exist(&self) -> [bool; 2] {
        [&self.certificate, &self.key].map(|file| file.symlink_metadata().is_ok())
    }

    fn must_not_exist(&self) -> Result<()> {
        let there = [&self.certificate, &self.key].into_iter().zip(self.exist()).find(|(_, exists)| *exists);
        match there {
            Some((file, _)) => Err(Failure::failed(format!(
                "{} is there already, and nothing was made: move it away, or choose another folder",
                file.display()
            ))),
            None => Ok(()),
        }
    }

    /// The key first: a certificate without its key is of no use.
    fn write(&self, certificate: &str, key: &str) -> Result<()> {
        create(&self.key, key, 0o600)?;
        create(&self.certificate, certificate, 0o644)
    }
}

/// Makes a file that is not there.
fn create(file: &Path, text: &str, mode: u32) -> Result<()> {
    let made = OpenOptions::new().write(true).create_new(true).mode(mode).open(file);
    made.and_then(|mut made| {
        made.write_all(text.as_bytes())?;
        made.sync_all()
    })
    .context(format!("cannot write {}", file.display()))
}

/// Carries out the command.
pub(crate) fn run(args: &CertificateArgs) -> Result<()> {
    let said = make(args)?;
    write!(io::stdout(), "{said}").context("cannot print")
}

/// Makes the files for servers on this machine, where they are not in the folder already.
pub(crate) fn make_for_this_machine(folder: &Path) -> Result<()> {
    if Files::of(folder, "server").exist() == [true; 2] {
        return Ok(());
    }
    let (names, client) = (Vec::new(), None);
    make(&CertificateArgs { to: folder.to_owned(), names, client, days: AUTHORITY_DAYS }).map(drop)
}

/// Makes the files, and says what was made.
fn make(args: &CertificateArgs) -> Result<String> {
    let folder = &args.to;
    let server = Files::of(folder, "server");
    let client = Files::of(folder, "client");
    let for_server = args.client.is_none() || !args.names.is_empty();
    let server_params = server_params(&args.names, args.days)?;
    let client_params = args.client.as_deref().map(|name| client_params(name, args.days)).transpose()?;
    if for_server {
        server.must_not_exist()?;
    }
    if client_params.is_some() {
        client.must_not_exist()?;
    }
    fs::create_dir_all(folder).context(format!("cannot make {}", folder.display()))?;
    let mut said = String::new();
    let authority = authority(&Files::of(folder, "authority"), &mut said)?;
    if for_server {
        signed(&server, &server_params, &authority)?;
        let names = OWN_NAMES.iter().copied().chain(args.names.iter().map(String::as_str));
        let names = names.collect::<Vec<_>>().join(", ");
        say(&mut said, &server, &format!("a server called {names}, for {} days", args.days));
    }
    if let (Some(params), Some(name)) = (client_params, &args.client) {
        signed(&client, &params, &authority)?;
        say(&mut said, &client, &format!("a client, CN={name}, for {} days", args.days));
    }
    if for_server {
        // A server may be started in another folder.
        let folder = std::path::absolute(folder).context("the folder")?;
        said += "\nWith these settings a server encrypts what clients with TLS say to it, beside those without, and asks\n\
                 for their certificates:\n\n";
        settings(&mut said, &folder, "tls");
        line(&mut said, "tls-on-port = \"also\"");
        said += "\nWith these the servers of an ensemble know and encrypt what they say to each other:\n\n";
        settings(&mut said, &folder, "peer-tls");
    }
    Ok(said)
}

/// The settings that begin like this, for the files of a server.
fn settings(said: &mut String, folder: &Path, beginning: &str) {
    for (end, file) in SERVER_FILES {
        line(said, &format!("{beginning}-{end} = {:?}", folder.join(file).display().to_string()));
    }
}

fn line(said: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(said, "{text}");
}

fn say(said: &mut String, files: &Files, what: &str) {
    line(said, &format!("{}, {}: {what}", files.certificate.display(), files.key.display()));
}

/// That which is in the folder, or a new one.
fn authority(files: &Files, said: &mut String) -> Result<Issuer<'static, KeyPair>> {
    match files.exist() {
        [false, false] => {
            let (key, params) = (new_key()?, authority_params());
            let authority = CertifiedIssuer::self_signed(params.clone(), key).context("the authority")?;
            files.write(&authority.pem(), &authority.key().serialize_pem())?;
            say(said, files, &format!("an authority, for {AUTHORITY_DAYS} days"));
            let key = KeyPair::from_pem(&authority.key().serialize_pem()).context("the authority")?;
            Ok(Issuer::new(params, key))
        }
        [true, true] => {
            let read =
                |file: &Path| fs::read_to_string(file).context(format!("cannot read {}", file.display()));
            let key = read(&files.key)?;
            let key = KeyPair::from_pem(&key).context(format!("{} is no key", files.key.display()))?;
            let certificate = read(&files.certificate)?;
            let wrong = format!("{} is no certificate of an authority", files.certificate.display());
            if !names_key(&certificate, &key) {
                return Err(Failure::failed(format!("{wrong}, or not of that key")));
            }
            let issuer = Issuer::from_ca_cert_pem(&certificate, key).context(&wrong)?;
            let usages = issuer.key_usages();
            if !usages.is_empty() && !usages.contains(&KeyUsagePurpose::KeyCertSign) {
                return Err(Failure::failed(wrong));
            }
            line(said, &format!("{}: the authority that was there", files.certificate.display()));
            Ok(issuer)
        }
        _ => Err(Failure::failed(format!(
            "{} and {} belong together, and only one of them is there: add the other, or choose another folder",
            files.certificate.display(),
            files.key.display()
        ))),
    }
}

/// Whether a certificate in PEM has this key in it: otherwise nobody believes what the key signs.
fn names_key(certificate: &str, key: &KeyPair) -> bool {
    let lines = certificate.lines().map(str::trim).skip_while(|line| !line.starts_with("-----BEGIN"));
    let text: String = lines.skip(1).take_while(|line| !line.starts_with("-----")).collect();
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default();
    let public = key.public_key_raw();
    !public.is_empty() && bytes.windows(public.len()).any(|window| window == public)
}

fn new_key() -> Result<KeyPair> {
    KeyPair::generate().context("cannot make a key")
}

fn signed(files: &Files, params: &CertificateParams, authority: &Issuer<'_, KeyPair>) -> Result<()> {
    let key = new_key()?;
    let certificate: Certificate = params.signed_by(&key, authority).context("cannot sign a certificate")?;
    files.write(&certificate.pem(), &key.serialize_pem())
}

/// Valid for so many days from now on, and called so.
fn dated(mut params: CertificateParams, name: &str, days: u32) -> CertificateParams {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(CLOCKS_DIFFER);
    params.not_after = epoch + now + DAY * days;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn authority_params() -> CertificateParams {
    let mut params = dated(CertificateParams::default(), "Stoa trial authority", AUTHORITY_DAYS);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// A server is called by its clients, and calls other servers.
fn server_params(names: &[String], days: u32) -> Result<CertificateParams> {
    let wrong =
        |name: &str| Failure::usage(format!("--name {name}: neither the name of a host nor an address"));
    for name in names {
        let is_label = |label: &str| {
            let may_be = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            !label.is_empty() && label.len() <= 63 && label.bytes().all(may_be)
        };
        // Whatever is below a domain: all servers of a StatefulSet, say.
        let labels = name.strip_prefix("*.").unwrap_or(name);
        let is_name = name.len() <= 253 && labels.split('.').all(is_label);
        if !is_name && name.parse::<IpAddr>().is_err() {
            return Err(wrong(name));
        }
    }
    let all = OWN_NAMES.iter().map(|name| (*name).to_owned()).chain(names.iter().cloned());
    let params = CertificateParams::new(all.collect::<Vec<_>>()).context("the names of the server")?;
    let own = names.first().filter(|name| name.len() <= NAME_CHARS_MAX).map_or("stoa", String::as_str);
    let mut params = dated(params, own, days);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

fn client_params(name: &str, days: u32) -> Result<CertificateParams> {
    if name.is_empty() || name.chars().count() > NAME_CHARS_MAX || name.chars().any(char::is_control) {
        return Err(Failure::usage(format!("--client: a name has 1 to {NAME_CHARS_MAX} characters")));
    }
    let mut params = dated(CertificateParams::default(), name, days);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}
