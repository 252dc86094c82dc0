//! Handshakes over memory: who is let in, and in which words somebody is not.
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
    date_time_ymd,
};
use rustls::internal::msgs::codec::Codec as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier as _;
use rustls::{
    ClientConnection, DigitallySignedStruct, Error, HandshakeKind, ProtocolVersion, ServerConnection,
    SignatureScheme,
};
use stoa_keys::{
    Choice, ClientTrust, Demand, KeyError, KeyStore, Revocation, ServerTrust, Unknown, client_config,
    key_store, revocation_lists, server_config, trust_store, why,
};

type Der = CertificateDer<'static>;

struct Authority(CertifiedIssuer<'static, KeyPair>);

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

/// A key store of these certificates, as PEM gives it.
fn store(chain: &[&Der], key: &KeyPair) -> KeyStore {
    let pem = |der: &&Der| pem::encode(&pem::Pem::new("CERTIFICATE", der.to_vec()));
    let text: String = chain.iter().map(pem).chain([key.serialize_pem()]).collect();
    key_store(text.as_bytes(), None).unwrap()
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(authority_params(name), key).unwrap())
    }

    fn der(&self) -> Der {
        self.0.der().clone()
    }

    fn signs(&self, change: impl FnOnce(&mut CertificateParams)) -> KeyStore {
        let mut params = named("leaf");
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        store(&[certificate.der()], &key)
    }

    /// A list that revokes these numbers, until a year's end.
    fn list(&self, numbers: &[u64], until: i32) -> Vec<u8> {
        let time = date_time_ymd(2020, 1, 1);
        let revoked = |number: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*number),
            revocation_time: time,
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: time,
            next_update: date_time_ymd(until, 12, 31),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: numbers.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.0).unwrap().pem().unwrap().into_bytes()
    }
}

fn self_signed(change: impl FnOnce(&mut CertificateParams)) -> KeyStore {
    let mut params = named("alone");
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    store(&[certificate.der()], &key)
}

fn all() -> Choice {
    Choice::new(&[""; 0], &[""; 0]).unwrap()
}

fn is_ca(params: &mut CertificateParams) {
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
}

/// Passes bytes to and fro until both have nothing to say.
fn shake(client: &mut ClientConnection, server: &mut ServerConnection) -> Result<(), (bool, Error)> {
    loop {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let said = bytes.len();
        let mut rest = &*bytes;
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets().map_err(|error| (true, error))?;
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let said = said + bytes.len();
        let mut rest = &*bytes;
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().map_err(|error| (false, error))?;
        }
        if said == 0 {
            return Ok(());
        }
    }
}

/// A handshake of one kind; what the server says of a client that it refuses, or how many certificates it has seen.
fn with_version(version: &str, client: Option<&KeyStore>, trust: &Arc<ClientTrust>) -> Result<usize, String> {
    let authority = Authority::new("of the server");
    let choice = Choice::new(&[version], &[""; 0]).unwrap();
    let server = server_config(authority.signs(|_| ()), Arc::clone(trust), &choice).unwrap();
    let servers = ServerTrust::new(vec![authority.der()], true, None).unwrap();
    let client = client_config(client.cloned(), servers, &choice).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    match shake(&mut client, &mut server) {
        Ok(()) => Ok(server.peer_certificates().map_or(0, <[_]>::len)),
        Err((true, error)) => Err(why(&error)),
        Err((false, error)) => panic!("the client refuses: {}", why(&error)),
    }
}

fn comes_in(client: Option<&KeyStore>, trust: &Arc<ClientTrust>) -> Result<usize, String> {
    let found = with_version("TLSv1.3", client, trust);
    assert_eq!(with_version("TLSv1.2", client, trust), found);
    found
}

fn needs(trusted: &[Der]) -> Arc<ClientTrust> {
    ClientTrust::new(trusted.to_vec(), Demand::Need, None).unwrap()
}

fn refused(client: &KeyStore, trust: &Arc<ClientTrust>) -> String {
    comes_in(Some(client), trust).unwrap_err()
}

#[test]
fn a_certificate_is_asked_for_as_is_demanded() {
    let authority = Authority::new("a");
    let (good, bad) = (authority.signs(|_| ()), self_signed(|_| ()));
    let trust = |demand| ClientTrust::new(vec![authority.der()], demand, None).unwrap();
    let none = trust(Demand::None);
    assert_eq!([None, Some(&good), Some(&bad)].map(|it| comes_in(it, &none)), [Ok(0), Ok(0), Ok(0)]);
    let want = trust(Demand::Want);
    assert_eq!([None, Some(&good)].map(|it| comes_in(it, &want)), [Ok(0), Ok(1)]);
    assert_eq!(refused(&bad, &want), "its certificate is signed by nobody in the trust store");
    let need = trust(Demand::Need);
    assert_eq!(comes_in(Some(&good), &need), Ok(1));
    assert_eq!(comes_in(None, &need).unwrap_err(), "it has shown no certificate, and one is needed");
    assert_eq!(refused(&bad, &need), "its certificate is signed by nobody in the trust store");
}

#[test]
fn certificates_out_of_their_time_are_refused() {
    let authority = Authority::new("a");
    let trust = needs(&[authority.der()]);
    let expired = authority.signs(|params| params.not_after = date_time_ymd(2020, 1, 1));
    let text = refused(&expired, &trust);
    assert!(text.starts_with("its certificate, or one that signed it, has expired "), "{text}");
    assert!(text.ends_with(" days ago"), "{text}");
    let early = authority.signs(|params| params.not_before = date_time_ymd(3000, 1, 1));
    let text = refused(&early, &trust);
    assert!(
        text.starts_with("its certificate, or one that signed it, is not valid yet: it will be in "),
        "{text}"
    );
    assert!(text.ends_with(" days; are the clocks right?"), "{text}");
}

#[test]
fn certificates_of_others_are_refused() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let trust = needs(&[ours.der()]);
    let nobody = "its certificate is signed by nobody in the trust store";
    assert_eq!(refused(&theirs.signs(|_| ()), &trust), nobody);
    assert_eq!(refused(&self_signed(|_| ()), &trust), nobody);
    assert_eq!(
        refused(&self_signed(is_ca), &trust),
        "its certificate is one of an authority (CA:TRUE), and is accepted only where it stands in the trust store \
         itself"
    );
    // Another key under the same name.
    assert_eq!(
        refused(&Authority::new("ours").signs(|_| ()), &trust),
        "the signature on its certificate is wrong: is it from another authority of that name?"
    );
    // Somebody who is no authority has signed it.
    let mut middle = named("middle");
    middle.is_ca = IsCa::ExplicitNoCa;
    let key = KeyPair::generate().unwrap();
    let middle = CertifiedIssuer::signed_by(middle, key, &ours.0).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = named("leaf").signed_by(&key, &middle).unwrap();
    assert_eq!(
        refused(&store(&[leaf.der(), middle.der()], &key), &trust),
        "its certificate is signed with one that is not an authority's (CA:TRUE)"
    );
}

#[test]
fn certificates_for_another_use_are_refused() {
    let authority = Authority::new("a");
    let trust = needs(&[authority.der()]);
    let of = |uses: &[ExtendedKeyUsagePurpose]| authority.signs(|it| it.extended_key_usages = uses.to_vec());
    let (server, client) = (ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth);
    assert_eq!(
        refused(&of(std::slice::from_ref(&server)), &trust),
        "its certificate is for another use: its extended key usage lacks what is needed here (clientAuth of a \
         client, serverAuth of a server)"
    );
    assert_eq!(comes_in(Some(&of(std::slice::from_ref(&client))), &trust), Ok(1));
    assert_eq!(comes_in(Some(&of(&[server, client])), &trust), Ok(1));
}

/// RFC 5280, 4.2.1.3, which webpki leaves out and Java does not.
#[test]
fn keys_are_for_what_their_usage_says() {
    use KeyUsagePurpose::{CrlSign, DigitalSignature, KeyCertSign, KeyEncipherment};
    let root = Authority::new("root");
    let trust = needs(&[root.der()]);
    let of = |usages: &[KeyUsagePurpose]| root.signs(|it| it.key_usages = usages.to_vec());
    assert_eq!(comes_in(Some(&of(&[DigitalSignature])), &trust), Ok(1));
    assert_eq!(comes_in(Some(&of(&[KeyEncipherment, DigitalSignature])), &trust), Ok(1));
    let other_use = "its certificate is for another use: its key usage lacks digitalSignature";
    assert_eq!(refused(&of(&[KeyEncipherment]), &trust), other_use);
    assert_eq!(
        connects(&of(&[KeyEncipherment]), &[root.der()], true, "localhost"),
        Err(other_use.to_owned())
    );
    // Whatever the host is.
    assert_eq!(connects(&of(&[KeyEncipherment]), &[root.der()], false, "other"), Err(other_use.to_owned()));
    assert_eq!(connects(&of(&[DigitalSignature]), &[root.der()], false, "other"), Ok(()));

    let below = |usages: &[KeyUsagePurpose]| {
        let mut middle = authority_params("middle");
        middle.key_usages = usages.to_vec();
        let middle = CertifiedIssuer::signed_by(middle, KeyPair::generate().unwrap(), &root.0).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = named("leaf").signed_by(&key, &middle).unwrap();
        store(&[leaf.der(), middle.der()], &key)
    };
    assert_eq!(comes_in(Some(&below(&[KeyCertSign])), &trust), Ok(2));
    assert_eq!(
        refused(&below(&[DigitalSignature, CrlSign]), &trust),
        "its certificate is signed with one that may not sign others: its key usage lacks keyCertSign"
    );
    // One that is no authority's is told so, whatever its key is for.
    let mut middle = named("middle");
    (middle.is_ca, middle.key_usages) = (IsCa::ExplicitNoCa, vec![DigitalSignature]);
    let middle = CertifiedIssuer::signed_by(middle, KeyPair::generate().unwrap(), &root.0).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = named("leaf").signed_by(&key, &middle).unwrap();
    assert_eq!(
        refused(&store(&[leaf.der(), middle.der()], &key), &trust),
        "its certificate is signed with one that is not an authority's (CA:TRUE)"
    );
}

/// webpki says of both that the signature is wrong, as it does of a handshake that another key has signed.
#[test]
fn small_keys_are_told_from_wrong_signatures() {
    let chain = |name: &str| {
        let text = std::fs::read(format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        trust_store(&text, None).unwrap()
    };
    // The first certificate is signed by the second one, whose key has 1,024 bits.
    let small = chain("small.pem");
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
    let error = needs(&small[1..]).verify_client_cert(&small[0], &[], now).unwrap_err();
    assert_eq!(
        why(&error),
        "the RSA key of its certificate, or of one that signed it, has fewer than 2,048 bits"
    );
    // A signature that nobody looks at, by such a key.
    let authority = Authority::new("a");
    let trust = needs(&[authority.der()]);
    let said = trust.verify_tls13_signature(b"said", &small[1], &signed(SignatureScheme::RSA_PSS_SHA256));
    assert_eq!(why(&said.unwrap_err()), why(&error));
    let own = authority.signs(|_| ());
    let said = trust.verify_tls13_signature(
        b"said",
        &own.chain()[0],
        &signed(SignatureScheme::ECDSA_NISTP256_SHA256),
    );
    assert_eq!(
        why(&said.unwrap_err()),
        "what it has signed in the handshake is wrong: its key does not belong to its certificate"
    );
}

/// A signature that is none, as it comes in a handshake.
fn signed(scheme: SignatureScheme) -> DigitallySignedStruct {
    let mut bytes = u16::from(scheme).to_be_bytes().to_vec();
    bytes.extend([0, 128]);
    bytes.extend([7; 128]);
    DigitallySignedStruct::read(&mut rustls::internal::msgs::codec::Reader::init(&bytes)).unwrap()
}

#[test]
fn what_stands_in_the_trust_store_is_accepted() {
    for (store, what) in [(self_signed(|_| ()), "a leaf"), (self_signed(is_ca), "an authority")] {
        assert_eq!(comes_in(Some(&store), &needs(store.chain())), Ok(1), "{what}");
    }
    // But only in its time.
    let expired = self_signed(|params| params.not_after = date_time_ymd(2020, 1, 1));
    let text = refused(&expired, &needs(expired.chain()));
    assert!(text.starts_with("its certificate, or one that signed it, has expired "), "{text}");
    let early = self_signed(|params| params.not_before = date_time_ymd(3000, 1, 1));
    let text = refused(&early, &needs(early.chain()));
    assert!(text.contains("is not valid yet"), "{text}");
    // One that is signed by an authority which is not trusted, too.
    let leaf = Authority::new("a").signs(|_| ());
    assert_eq!(comes_in(Some(&leaf), &needs(leaf.chain())), Ok(1));
    assert!(refused(&Authority::new("a").signs(|_| ()), &needs(leaf.chain())).contains("nobody"));
}

/// A chain with this many authorities between root and leaf.
fn chain_of(root: &Authority, count: usize, limit: Option<u8>) -> KeyStore {
    let mut issuers: Vec<CertifiedIssuer<'static, KeyPair>> = Vec::new();
    for at in 0..count {
        let mut params = authority_params(&format!("middle {at}"));
        if let Some(limit) = limit {
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(limit));
        }
        let key = KeyPair::generate().unwrap();
        let above = issuers.last().map_or(&root.0, |above| above);
        issuers.push(CertifiedIssuer::signed_by(params, key, above).unwrap());
    }
    let key = KeyPair::generate().unwrap();
    let leaf = named("leaf").signed_by(&key, issuers.last().map_or(&root.0, |last| last)).unwrap();
    let chain: Vec<&Der> = std::iter::once(leaf.der()).chain(issuers.iter().map(|it| it.der())).collect();
    store(&chain, &key)
}

#[test]
fn chains_are_followed_as_far_as_they_may_go() {
    let root = Authority::new("root");
    let trust = needs(&[root.der()]);
    assert_eq!(comes_in(Some(&chain_of(&root, 1, None)), &trust), Ok(2));
    assert_eq!(comes_in(Some(&chain_of(&root, 5, None)), &trust), Ok(6));
    assert_eq!(refused(&chain_of(&root, 9, None), &trust), "the chain of its certificate is too long");
    assert_eq!(
        refused(&chain_of(&root, 2, Some(0)), &trust),
        "the chain of its certificate is longer than an authority in it allows"
    );
}

#[test]
fn revoked_certificates_are_refused() {
    let (authority, other) = (Authority::new("a"), Authority::new("b"));
    let numbered = |number: u64| authority.signs(|it| it.serial_number = Some(SerialNumber::from(number)));
    let (bad, good) = (numbered(13), numbered(14));
    let of_other = other.signs(|_| ());
    let trust = |list: &[u8], unknown| {
        let revocation = Revocation::new(revocation_lists(list).unwrap(), unknown).unwrap();
        ClientTrust::new(vec![authority.der(), other.der()], Demand::Need, Some(revocation)).unwrap()
    };
    let revoked = "its certificate, or one that signed it, is revoked";
    for unknown in [Unknown::Allow, Unknown::Refuse] {
        let trust = trust(&authority.list(&[12, 13], 3000), unknown);
        assert_eq!(refused(&bad, &trust), revoked);
        assert_eq!(comes_in(Some(&good), &trust), Ok(1));
        let expected = match unknown {
            Unknown::Allow => Ok(1),
            Unknown::Refuse => Err("no list says whether its certificate is revoked".to_owned()),
        };
        assert_eq!(comes_in(Some(&of_other), &trust), expected);
    }
    // A list whose time is over still says who was revoked.
    let old = authority.list(&[13], 2021);
    assert_eq!(refused(&bad, &trust(&old, Unknown::Allow)), revoked);
    assert_eq!(comes_in(Some(&good), &trust(&old, Unknown::Allow)), Ok(1));
    assert_eq!(
        refused(&good, &trust(&old, Unknown::Refuse)),
        "the list that says whether its certificate is revoked is out of date"
    );
    // An authority below the root is looked up as well.
    let mut middle = authority_params("middle");
    middle.serial_number = Some(SerialNumber::from(13));
    let middle = CertifiedIssuer::signed_by(middle, KeyPair::generate().unwrap(), &authority.0).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = named("leaf").signed_by(&key, &middle).unwrap();
    let below = store(&[leaf.der(), middle.der()], &key);
    assert_eq!(refused(&below, &trust(&authority.list(&[13], 3000), Unknown::Allow)), revoked);
}

#[test]
fn lists_are_read_in_both_forms() {
    let authority = Authority::new("a");
    let text = authority.list(&[1], 3000);
    let lists = revocation_lists(&text).unwrap();
    assert_eq!(revocation_lists(lists[0].as_ref()).unwrap(), lists);
    assert_eq!(revocation_lists(&[&*text, &*text].concat()).unwrap().len(), 2);
    let none = "there is no list of revoked certificates (X509 CRL) in it";
    assert_eq!(revocation_lists(b"").unwrap_err().to_string(), none);
    assert_eq!(Revocation::new(Vec::new(), Unknown::Refuse).unwrap_err().to_string(), none);
    let no_list = Revocation::new(vec![vec![0x30, 0].into()], Unknown::Refuse).unwrap();
    let error = ClientTrust::new(vec![authority.der()], Demand::Need, Some(no_list)).unwrap_err();
    assert_eq!(error.to_string(), "a list of revoked certificates cannot be used: ParseError");
}

/// What a client says of a server, or nothing.
fn connects(server: &KeyStore, trusted: &[Der], checks_host: bool, host: &str) -> Result<(), String> {
    let choice = all();
    let server = server_config(server.clone(), ClientTrust::none(), &choice).unwrap();
    let trust = ServerTrust::new(trusted.to_vec(), checks_host, None).unwrap();
    let client = client_config(None, trust, &choice).unwrap();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    shake(&mut client, &mut server).map_err(|(at_server, error)| {
        assert!(!at_server, "{error}");
        why(&error)
    })
}

#[test]
fn servers_are_checked_as_well() {
    let authority = Authority::new("a");
    let trusted = [authority.der()];
    let good = authority.signs(|_| ());
    assert_eq!(connects(&good, &trusted, true, "localhost"), Ok(()));
    assert_eq!(
        connects(&good, &trusted, true, "elsewhere").unwrap_err(),
        "its certificate is for another host"
    );
    assert_eq!(
        connects(&good, &trusted, true, "127.0.0.1").unwrap_err(),
        "its certificate is for another host"
    );
    assert_eq!(connects(&good, &trusted, false, "elsewhere"), Ok(()));
    // The host is not all that there is to check.
    let nobody = "its certificate is signed by nobody in the trust store";
    assert_eq!(
        connects(&Authority::new("b").signs(|_| ()), &trusted, false, "localhost").unwrap_err(),
        nobody
    );
    let uses = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let text = connects(&authority.signs(|it| it.extended_key_usages = uses), &trusted, false, "localhost");
    assert!(text.clone().unwrap_err().starts_with("its certificate is for another use"), "{text:?}");
    for alone in [self_signed(|_| ()), self_signed(is_ca)] {
        assert_eq!(connects(&alone, alone.chain(), true, "localhost"), Ok(()));
        assert_eq!(connects(&alone, alone.chain(), false, "elsewhere"), Ok(()));
        let text = connects(&alone, alone.chain(), true, "elsewhere").unwrap_err();
        assert_eq!(text, "its certificate is for another host");
        assert!(connects(&alone, &trusted, false, "localhost").is_err());
    }
}

#[test]
fn a_certificate_without_other_names_is_for_its_subject() {
    let authority = Authority::new("a");
    let bare = |change: &mut CertificateParams| {
        change.subject_alt_names.clear();
        change.distinguished_name.push(DnType::CommonName, "Zk-1.example.com");
    };
    let signed = authority.signs(bare);
    assert_eq!(connects(&signed, &[authority.der()], true, "zk-1.example.com"), Ok(()));
    assert!(connects(&signed, &[authority.der()], true, "zk-2.example.com").is_err());
    let alone = self_signed(bare);
    assert_eq!(connects(&alone, alone.chain(), true, "zk-1.example.com"), Ok(()));
    // Where there are other names these alone count.
    let named = authority.signs(|it| it.distinguished_name.push(DnType::CommonName, "zk-1.example.com"));
    assert!(connects(&named, &[authority.der()], true, "zk-1.example.com").is_err());
}

#[test]
fn a_client_that_is_refused_is_told() {
    let authority = Authority::new("a");
    let choice = all();
    let server = server_config(authority.signs(|_| ()), needs(&[authority.der()]), &choice).unwrap();
    let trust = ServerTrust::new(vec![authority.der()], true, None).unwrap();
    let client = client_config(None, trust, &choice).unwrap();
    let mut client =
        ClientConnection::new(Arc::new(client), ServerName::try_from("localhost").unwrap()).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    shake(&mut client, &mut server).unwrap_err();
    let mut alert = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut alert).unwrap();
    }
    client.read_tls(&mut &*alert).unwrap();
    let error = client.process_new_packets().unwrap_err();
    assert_eq!(why(&error), "it needs a certificate of ours, and there is none (CertificateRequired)");
}

#[test]
fn clients_come_back_by_tickets_of_the_same_settings() {
    for version in ["TLSv1.2", "TLSv1.3"] {
        let authority = Authority::new("a");
        let choice = Choice::new(&[version], &[""; 0]).unwrap();
        let new =
            || Arc::new(server_config(authority.signs(|_| ()), needs(&[authority.der()]), &choice).unwrap());
        let server = new();
        let trust = ServerTrust::new(vec![authority.der()], true, None).unwrap();
        let client = Arc::new(client_config(Some(authority.signs(|_| ())), trust, &choice).unwrap());
        let connect = |server: &Arc<_>| {
            let name = ServerName::try_from("localhost").unwrap();
            let mut client = ClientConnection::new(Arc::clone(&client), name).unwrap();
            let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
            shake(&mut client, &mut server).unwrap();
            assert_eq!(server.peer_certificates().map(<[_]>::len), Some(1));
            server.handshake_kind().unwrap()
        };
        assert_eq!(connect(&server), HandshakeKind::Full);
        assert_eq!(connect(&server), HandshakeKind::Resumed, "{version}");
        assert_eq!(connect(&new()), HandshakeKind::Full, "{version}");
    }
}

#[test]
fn what_time_has_changed_is_seen_of_who_comes_back_by_a_ticket() {
    for version in ["TLSv1.2", "TLSv1.3"] {
        let authority = Authority::new("a");
        let choice = Choice::new(&[version], &[""; 0]).unwrap();
        let clients = needs(&[authority.der()]);
        let server = server_config(authority.signs(|_| ()), Arc::clone(&clients), &choice).unwrap();
        let server = Arc::new(server);
        let trust = ServerTrust::new(vec![authority.der()], true, None).unwrap();
        let own = authority.signs(|params| params.not_after = date_time_ymd(2999, 1, 1));
        let client = Arc::new(client_config(Some(own), trust, &choice).unwrap());
        let connect = || {
            let name = ServerName::try_from("localhost").unwrap();
            let mut client = ClientConnection::new(Arc::clone(&client), name).unwrap();
            let mut server = ServerConnection::new(Arc::clone(&server)).unwrap();
            shake(&mut client, &mut server).unwrap();
            server
        };
        let seconds = |year| date_time_ymd(year, 1, 2).unix_timestamp().try_into().unwrap();
        let at = |year| UnixTime::since_unix_epoch(Duration::from_secs(seconds(year)));
        let full = connect();
        // In a handshake that was not short all was looked at already.
        assert_eq!(clients.check_resumed(&full, at(2999)), Ok(()));
        let resumed = connect();
        assert_eq!(resumed.handshake_kind(), Some(HandshakeKind::Resumed), "{version}");
        assert_eq!(clients.check_resumed(&resumed, UnixTime::now()), Ok(()));
        let text = why(&clients.check_resumed(&resumed, at(2999)).unwrap_err());
        assert!(text.starts_with("its certificate, or one that signed it, has expired "), "{text}");
    }
}

#[test]
fn protocols_and_suites_are_those_asked_for() {
    let authority = Authority::new("a");
    let connect = |client: &Choice, server: &Choice| {
        let server = server_config(authority.signs(|_| ()), ClientTrust::none(), server).unwrap();
        let trust = ServerTrust::new(vec![authority.der()], true, None).unwrap();
        let client = client_config(None, trust, client).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();
        shake(&mut client, &mut server).map_err(|(_, error)| why(&error))?;
        let suite = server.negotiated_cipher_suite().unwrap().suite();
        Ok::<_, String>((server.protocol_version().unwrap(), format!("{suite:?}")))
    };
    let of = |protocols: &[&str], suites: &[&str]| Choice::new(protocols, suites).unwrap();
    let (old, new) = (ProtocolVersion::TLSv1_2, ProtocolVersion::TLSv1_3);
    assert_eq!(connect(&all(), &all()).unwrap().0, new);
    assert_eq!(connect(&of(&["TLSv1.2"], &[]), &all()).unwrap().0, old);
    let suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
    assert_eq!(connect(&all(), &of(&["TLSv1.2"], &[suite])), Ok((old, suite.to_owned())));
    let chosen = connect(&of(&[], &["TLS_CHACHA20_POLY1305_SHA256"]), &all()).unwrap();
    assert_eq!(chosen, (new, "TLS13_CHACHA20_POLY1305_SHA256".to_owned()));
    let only_new = of(&["TLSv1.3"], &[]);
    assert_eq!(
        connect(&of(&["TLSv1.2"], &[]), &only_new).unwrap_err(),
        "it has no protocol in common with us"
    );
    let other = of(&["TLSv1.3"], &["TLS_AES_256_GCM_SHA384"]);
    let another = of(&["TLSv1.3"], &["TLS_AES_128_GCM_SHA256"]);
    assert_eq!(connect(&other, &another).unwrap_err(), "it has no cipher suite in common with us");
}

#[test]
fn settings_that_cannot_be_meant_are_refused() {
    let error = |protocols: &[&str], suites: &[&str]| Choice::new(protocols, suites).unwrap_err();
    let unknown = error(&["TLSv1.1"], &[]);
    assert_eq!(
        unknown,
        KeyError::Setting("there is no protocol TLSv1.1: there are TLSv1.2 and TLSv1.3".to_owned())
    );
    let cbc = "TLS_RSA_WITH_AES_128_CBC_SHA";
    assert_eq!(
        error(&["TLSv1.3"], &[cbc, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]).to_string(),
        "there is none of the cipher suites TLS_RSA_WITH_AES_128_CBC_SHA, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256: \
         there are TLS_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256, TLS_CHACHA20_POLY1305_SHA256"
    );
    let choice = Choice::new(&["TLSv1.2"], &[cbc, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]).unwrap();
    assert_eq!(choice.ignored(), [cbc]);
    assert_eq!(
        ClientTrust::new(Vec::new(), Demand::Need, None).unwrap_err().to_string(),
        "there is no certificate that can be trusted in it"
    );
    assert_eq!(
        trust_store(b"-----BEGIN X-----\n-----END X-----\n", None).unwrap_err(),
        KeyError::Missing("no certificate")
    );
}

/// More names of authorities than fit into what TLS has for them.
#[test]
fn a_trust_store_may_be_large() {
    let many: Vec<Der> =
        (0..400).map(|at| Authority::new(&format!("{at} {}", "x".repeat(200))).der()).collect();
    let authority = Authority::new("a");
    let trust = needs(&[many, vec![authority.der()]].concat());
    assert_eq!(comes_in(Some(&authority.signs(|_| ())), &trust), Ok(1));
}
