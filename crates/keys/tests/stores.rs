//! Key stores and trust stores as keytool and openssl have made them: `tests/data/make.sh`.
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use stoa_keys::{
    BYTES_MAX, Choice, ClientTrust, KeyError, KeyStore, StoreFormat, key_store, server_config, subject,
    trust_store,
};

const PASSWORD: Option<&str> = Some("changeit");

fn data(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn subjects(certificates: &[CertificateDer<'_>]) -> Vec<String> {
    certificates.iter().map(|certificate| subject(certificate).unwrap()).collect()
}

/// The subjects of a store's chain, once rustls has found that key and certificate fit.
fn chain(store: Result<KeyStore, KeyError>) -> Result<Vec<String>, String> {
    let store = store.map_err(|error| error.to_string())?;
    let subjects = subjects(store.chain());
    let choice = Choice::new(&[""; 0], &[""; 0]).unwrap();
    let config = server_config(store, ClientTrust::none(), &choice).map_err(|error| error.to_string())?;
    assert_eq!(Arc::new(config).send_tls13_tickets, 1);
    Ok(subjects)
}

fn keys(name: &str, password: Option<&str>) -> Result<Vec<String>, String> {
    chain(key_store(&data(name), password))
}

fn trusts(name: &str, password: Option<&str>) -> Result<Vec<String>, String> {
    trust_store(&data(name), password).map(|it| subjects(&it)).map_err(|error| error.to_string())
}

const LEAF: [&str; 3] = ["CN=leaf,O=Stoa", "CN=below,O=Stoa", "CN=authority,O=Stoa"];

#[test]
fn stores_of_keytool_give_key_and_chain() {
    for format in ["jks", "p12"] {
        for kind in ["rsa", "p256", "p384"] {
            let name = format!("{kind}.{format}");
            assert_eq!(keys(&name, PASSWORD).unwrap(), [format!("CN={kind},O=Stoa")], "{name}");
        }
    }
    assert_eq!(keys("ed25519.p12", PASSWORD).unwrap(), ["CN=ed25519,O=Stoa"]);
    for name in ["chain.jks", "chain.p12", "chain-legacy.p12", "chain-plain.p12"] {
        assert_eq!(keys(name, PASSWORD).unwrap(), LEAF, "{name}");
    }
}

#[test]
fn the_first_key_of_several_counts() {
    // A JKS has its entries in the order of a hash table.
    assert_eq!(keys("both.p12", PASSWORD).unwrap(), ["CN=first,O=Stoa"]);
    let of_jks = keys("both.jks", PASSWORD).unwrap();
    assert!(of_jks == ["CN=first,O=Stoa"] || of_jks == ["CN=second,O=Stoa"], "{of_jks:?}");
}

#[test]
fn stores_of_openssl_give_key_and_chain() {
    for kind in ["", "-legacy", "-3des", "-rc2", "-aes128", "-nomac"] {
        assert_eq!(keys(&format!("openssl{kind}.p12"), PASSWORD).unwrap(), LEAF, "{kind}");
    }
    for kind in ["-plain", "-empty", "-empty-legacy"] {
        let name = format!("openssl{kind}.p12");
        assert_eq!(keys(&name, Some("")).unwrap(), LEAF, "{name}");
        assert_eq!(keys(&name, None).unwrap(), LEAF, "{name}");
    }
}

#[test]
fn keys_in_pem_are_read_in_all_forms() {
    assert_eq!(keys("pkcs8.pem", None).unwrap(), LEAF);
    assert_eq!(keys("sec1.pem", None).unwrap(), LEAF[..1]);
    assert_eq!(keys("sec1-half.pem", None).unwrap(), LEAF[..2]);
    assert_eq!(keys("pkcs1.pem", None).unwrap(), ["CN=rsa leaf,O=Stoa"]);
    assert_eq!(keys("pkcs8-rsa.pem", PASSWORD).unwrap(), ["CN=rsa leaf,O=Stoa"]);
    for kind in ["", "-scrypt", "-sha512", "-3des", "-pkcs12"] {
        let name = format!("encrypted{kind}.pem");
        assert_eq!(keys(&name, PASSWORD).unwrap(), LEAF[..2], "{name}");
        let wrong = keys(&name, Some("changed")).unwrap_err();
        assert_eq!(wrong, "the password does not fit: what is encrypted with it cannot be read", "{name}");
    }
    assert_eq!(
        keys("encrypted.pem", None).unwrap_err(),
        "the password does not fit: the private key is encrypted, and no password is given"
    );
    let pair = |certificates: &str, key: &str, password| {
        chain(KeyStore::of_pem_pair(&data(certificates), &data(key), password))
    };
    assert_eq!(pair("leaf.pem", "leaf-key.pem", None).unwrap(), LEAF[..1]);
    assert_eq!(pair("pkcs8.pem", "encrypted.pem", PASSWORD).unwrap(), LEAF);
    assert_eq!(pair("below.pem", "leaf-key.pem", None).unwrap_err(), "no certificate is for the private key");
    assert_eq!(pair("leaf-key.pem", "leaf-key.pem", None).unwrap_err(), "there is no certificate in it");
    assert_eq!(pair("leaf.pem", "leaf.pem", None).unwrap_err(), "there is no private key in it");
}

#[test]
fn trust_stores_give_what_java_trusts() {
    let both = ["CN=authority,O=Stoa", "CN=below,O=Stoa"];
    for (name, password) in [("trust.p12", PASSWORD), ("trust.jks", PASSWORD), ("trust.jks", None)] {
        let mut trusted = trusts(name, password).unwrap();
        trusted.sort();
        assert_eq!(trusted, both, "{name}");
    }
    assert_eq!(trusts("trust-plain.p12", None).unwrap(), both[..1]);
    assert_eq!(trusts("chain.pem", None).unwrap(), both);
    // The key in it is encrypted, and nobody needs it.
    assert_eq!(trusts("encrypted.pem", None).unwrap(), LEAF[..2]);
    for name in ["both.jks", "both.p12"] {
        let mut trusted = trusts(name, PASSWORD).unwrap();
        trusted.sort();
        assert_eq!(trusted, ["CN=authority,O=Stoa", "CN=first,O=Stoa", "CN=second,O=Stoa"], "{name}");
    }
    // Of a key's chain the first one, and no authority that stands behind it.
    for name in ["chain.jks", "chain.p12", "openssl.p12"] {
        assert_eq!(trusts(name, PASSWORD).unwrap(), LEAF[..1], "{name}");
    }
    assert_eq!(
        trusts("openssl-unmarked.p12", PASSWORD).unwrap_err(),
        "there is no certificate that is marked as trusted (Java trusts no other; openssl before 3.2 does not mark \
         them: use keytool -importcert, or PEM) in it"
    );
}

#[test]
fn wrong_passwords_are_told() {
    for name in ["rsa.jks", "p256.jks", "trust.jks"] {
        let expected = "the password does not fit: its digest is another one, or it was changed";
        for wrong in ["", "changei", "changeit "] {
            assert_eq!(trusts(name, Some(wrong)).unwrap_err(), expected, "{name}");
            assert_eq!(keys(name, Some(wrong)).unwrap_err(), expected, "{name}");
        }
    }
    assert_eq!(
        keys("rsa.jks", None).unwrap_err(),
        "the password does not fit: no password is given, and one is needed"
    );
    assert_eq!(
        keys("two-passwords.jks", PASSWORD).unwrap_err(),
        "the password does not fit: the private key's is another one than the store's; they have to be the same"
    );
    for name in ["rsa.p12", "openssl.p12", "openssl-legacy.p12", "trust.p12"] {
        let expected = "the password does not fit: its checksum is another one, or it was changed";
        assert_eq!(trusts(name, Some("changed")).unwrap_err(), expected, "{name}");
        assert_eq!(keys(name, Some("")).unwrap_err(), expected, "{name}");
        let expected = "the password does not fit: no password is given, and one is needed";
        assert_eq!(trusts(name, None).unwrap_err(), expected, "{name}");
    }
    for name in ["openssl-nomac.p12", "chain-plain.p12"] {
        let expected = "the password does not fit: what is encrypted with it cannot be read";
        assert_eq!(keys(name, Some("changed")).unwrap_err(), expected, "{name}");
    }
}

#[test]
fn what_is_not_read_says_what_to_do() {
    let error = |name| keys(name, PASSWORD).unwrap_err();
    assert_eq!(
        error("secret.jceks"),
        "it is a store of the type JCEKS, which is not read: convert it with keytool -importkeystore -srckeystore \
         OLD -srcstoretype JCEKS -destkeystore NEW -deststoretype PKCS12"
    );
    // The beginning of a BCFKS, as far as it tells: an object store's content, and its checksum.
    let bouncy = [0x30, 7, 0x30, 2, 0x30, 0, 0x30, 1, 0];
    let bouncy = key_store(&bouncy, PASSWORD).unwrap_err().to_string();
    assert!(bouncy.starts_with("it is a store of the type BCFKS"), "{bouncy}");
    assert!(
        bouncy.contains("-srcstoretype BCFKS -destkeystore NEW -deststoretype PKCS12 -provider"),
        "{bouncy}"
    );
    assert_eq!(
        error("leaf.der"),
        "it is a certificate in DER, which is not read: convert it with openssl x509 -inform DER -in OLD -out NEW.pem"
    );
    assert_eq!(
        error("encrypted-old.pem"),
        "its private key is encrypted in openssl's old way (Proc-Type), which is not read: convert it with openssl \
         pkcs8 -topk8 -in OLD -out NEW"
    );
    assert_eq!(
        error("encrypted-md5.pem"),
        "it is encrypted in a way that is not read (1.2.840.113549.1.5.3): write it anew with keytool \
         -importkeystore, or with openssl pkcs12 -export or openssl pkcs8 -topk8"
    );
    assert_eq!(
        error("openssl-iterations.p12"),
        "it is too large: its password is to be hashed more than 10 million times"
    );
    // SHA-256 and PBMAC1, of which this version of openssl knows only the first.
    let mut newer = data("openssl.p12");
    let sha256 = [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01];
    let at = newer.windows(9).rposition(|window| window == sha256).unwrap();
    newer[at..at + 9].copy_from_slice(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0e]);
    let newer = key_store(&newer, PASSWORD).unwrap_err().to_string();
    assert!(newer.starts_with("its checksum is PBMAC1, which is not read: write it anew with"), "{newer}");
    assert_eq!(error("unfit.pem"), "no certificate is for the private key");
    assert_eq!(error("chain.pem"), "there is no private key in it");
    assert_eq!(error("trust.jks"), "there is no private key in it");
    assert_eq!(error("trust.p12"), "there is no private key in it");
    for name in ["dsa.p12", "p521.p12", "p521.jks", "short.pem"] {
        let error = error(name);
        assert!(
            error.starts_with("the private key cannot be used (")
                && error.ends_with(
                    "keys of RSA with 2,048 to 4,096 bits, ECDSA with P-256 or P-384, and Ed25519 can"
                ),
            "{name}: {error}"
        );
    }
    for nothing in ["", "nothing", "-----BEGI", "\u{0}\u{1}"] {
        let error = key_store(nothing.as_bytes(), PASSWORD).unwrap_err();
        assert_eq!(error, KeyError::Unknown, "{nothing}");
    }
}

#[test]
fn the_format_shows_in_the_bytes() {
    let format = |name| StoreFormat::of(&data(name));
    assert_eq!(format("rsa.jks"), Ok(StoreFormat::Jks));
    assert_eq!(format("rsa.p12"), Ok(StoreFormat::Pkcs12));
    assert_eq!(format("openssl.p12"), Ok(StoreFormat::Pkcs12));
    assert_eq!(format("pkcs8.pem"), Ok(StoreFormat::Pem));
    // A text may begin with the digit that DER begins with.
    assert_eq!(StoreFormat::of(b"0 s:CN = a\n-----BEGIN CERTIFICATE-----\n"), Ok(StoreFormat::Pem));
}

#[test]
fn a_store_may_be_as_long_as_it_may_be() {
    let too_long = vec![b'-'; BYTES_MAX + 1];
    assert_eq!(key_store(&too_long, None).unwrap_err().to_string(), "it is too large: more than 1 MiB");
    assert_eq!(trust_store(&too_long, None).unwrap_err().to_string(), "it is too large: more than 1 MiB");
    let one = data("leaf.pem");
    assert_eq!(trust_store(&one.repeat(1000), None).unwrap().len(), 1000);
    let error = trust_store(&one.repeat(1001), None).unwrap_err().to_string();
    assert_eq!(error, "it is too large: more than 1,000 certificates");
}

/// Whatever is cut off, and whichever byte is another one, there is an answer.
#[test]
fn damage_anywhere_is_told() {
    for name in
        ["p256.jks", "trust.jks", "chain-plain.p12", "trust-plain.p12", "openssl-plain.p12", "pkcs8.pem"]
    {
        let whole = data(name);
        for end in 0..whole.len() {
            let cut = &whole[..end];
            if name.ends_with("pem") {
                // Certificates that are whole count.
                let _ = (key_store(cut, PASSWORD), trust_store(cut, PASSWORD));
                continue;
            }
            assert!(key_store(cut, PASSWORD).is_err(), "{name} cut at {end}");
            assert!(trust_store(cut, PASSWORD).is_err(), "{name} cut at {end}");
        }
        for at in 0..whole.len() {
            for mask in [1, 0x80, 0xff] {
                let mut changed = whole.clone();
                changed[at] ^= mask;
                let trusted = trust_store(&changed, PASSWORD);
                // Its digest is over everything but itself, and an error in that is one too.
                assert!(!name.ends_with("jks") || trusted.is_err(), "{name} changed at {at}");
                let _ = trust_store(&changed, None);
                // Its key takes 10,000 hashes each time.
                let _ = (name != "chain-plain.p12").then(|| key_store(&changed, PASSWORD));
            }
        }
    }
}

/// What has a checksum is believed only with it, and read only as far as it goes.
#[test]
fn a_checksum_that_is_wrong_is_told() {
    for name in ["p256.p12", "openssl-legacy.p12"] {
        let whole = data(name);
        // Each try hashes the password some thousand times.
        for at in (60..whole.len()).step_by(23) {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert!(key_store(&changed, PASSWORD).is_err(), "{name} changed at {at}");
            assert!(key_store(&whole[..at], PASSWORD).is_err(), "{name} cut at {at}");
        }
    }
}
