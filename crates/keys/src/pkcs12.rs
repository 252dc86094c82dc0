//! PKCS12 (RFC 7292) as keytool, openssl and others write it: certificates and keys in bags, bags in safes. Of the
//! keys one is decrypted, and of everything else nothing but what has certificates: what is not needed costs nothing.
//!
//! A reader of its own, since the libraries that there are stand on pre-releases, bound what one password costs but
//! not what a file does, and know one form of the empty password; the ciphers and hashes are theirs (see `pbe.rs`).
//!
//! Firefox and old versions of Windows write values of indefinite length, which are refused by name.

use hmac::{Hmac, KeyInit, Mac};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha1::Sha1;
use sha2::{Sha256, Sha384, Sha512};

use crate::KeyError;
use crate::der::{INTEGER, OCTET_STRING, OID, Reader, SEQUENCE, SET, context};
use crate::pbe::{self, Budget, Hash, Password};

/// 1.2.840.113549.1.7, and a number more: 1 for data, 6 for encrypted data.
const CONTENT: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07];
/// 1.2.840.113549.1.12.10.1, and a number more: kinds of bags.
const BAG: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x0c, 0x0a, 0x01];
/// 1.2.840.113549.1.9.22.1: a certificate of X.509.
const X509: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x16, 0x01];
/// 1.2.840.113549.1.9.21: which certificate is for which key.
const LOCAL_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x15];
/// 2.16.840.1.113894.746875.1.1: what Java marks trusted certificates with.
const TRUSTED: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x86, 0xf9, 0x66, 0xad, 0xca, 0x7b, 0x01, 0x01];
/// 1.2.840.113549.1.5.14: RFC 9579.
const PBMAC1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0e];
/// 1.3.14.3.2.26.
const SHA1: &[u8] = &[0x2b, 0x0e, 0x03, 0x02, 0x1a];
/// 2.16.840.1.101.3.4.2, and a number more.
const SHA2: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02];

/// How many bags there may be: keys besides certificates.
const BAGS_MAX: usize = 2 * crate::CERTIFICATES_MAX;

const EMPTY_WRONG: KeyError = KeyError::Password("no password is given, and one is needed");

/// What a store has.
#[derive(Default)]
struct Store {
    bags: usize,
    certificates: Vec<CertificateBag>,
    keys: Vec<KeyBag>,
}

struct CertificateBag {
    der: CertificateDer<'static>,
    local_key: Option<Vec<u8>>,
    is_trusted: bool,
}

struct KeyBag {
    der: Vec<u8>,
    is_encrypted: bool,
    local_key: Option<Vec<u8>>,
}

/// The first private key; the certificates, and which of them is for it where the store says so.
pub(crate) fn key(
    bytes: &[u8],
    password: Option<&str>,
) -> Result<(Option<usize>, Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), KeyError> {
    with(bytes, password, |store, password, budget| {
        let Store { certificates, keys, .. } = store;
        let key = keys.into_iter().next().ok_or(KeyError::Missing("no private key"))?;
        let leaf = key.local_key.as_ref().and_then(|own| {
            certificates.iter().position(|certificate| certificate.local_key.as_ref() == Some(own))
        });
        let plain = if key.is_encrypted {
            let mut info = Reader(&key.der);
            pbe::decrypted_key(info.inside(SEQUENCE)?, password, budget)?
        } else {
            key.der
        };
        let certificates = certificates.into_iter().map(|bag| bag.der).collect();
        Ok((leaf, certificates, PrivatePkcs8KeyDer::from(plain).into()))
    })
}

/// What Java trusts: certificates that are marked, and of each key its own.
pub(crate) fn trusted(
    bytes: &[u8],
    password: Option<&str>,
) -> Result<Vec<CertificateDer<'static>>, KeyError> {
    with(bytes, password, |store, _, _| {
        let Store { certificates, keys, .. } = store;
        let mut of_keys: Vec<&[u8]> = keys.iter().filter_map(|key| key.local_key.as_deref()).collect();
        of_keys.sort_unstable();
        // Java takes the first certificate for the one of a key that does not say which is its own.
        let first_is_of_key = matches!(&*keys, [KeyBag { local_key: None, .. }]);
        let is_there = !certificates.is_empty();
        let mut taken: Vec<CertificateDer<'static>> = Vec::new();
        for (at, bag) in certificates.into_iter().enumerate() {
            let is_of_key = match &bag.local_key {
                Some(own) => of_keys.binary_search(&&**own).is_ok(),
                None => first_is_of_key && at == 0,
            };
            if bag.is_trusted || is_of_key {
                taken.push(bag.der);
            }
        }
        if taken.is_empty() && is_there {
            return Err(KeyError::Missing(
                "no certificate that is marked as trusted (Java trusts no other; openssl before 3.2 does not mark \
                 them: use keytool -importcert, or PEM)",
            ));
        }
        Ok(taken)
    })
}

/// Reads a store with each form of the password, until one fits, and does something with it.
fn with<T>(
    bytes: &[u8],
    password: Option<&str>,
    act: impl Fn(Store, &Password<'_>, &mut Budget) -> Result<T, KeyError>,
) -> Result<T, KeyError> {
    let mut budget = Budget::new();
    let mut first = None;
    for form in Password::all(password.unwrap_or_default()) {
        let done = read(bytes, &form, &mut budget).and_then(|store| act(store, &form, &mut budget));
        match done {
            Err(error @ KeyError::Password(_)) => first = first.or(Some(error)),
            done => return done,
        }
    }
    match (first, password) {
        (_, None) => Err(EMPTY_WRONG),
        (first, Some(_)) => Err(first.unwrap_or(EMPTY_WRONG)),
    }
}

fn read(bytes: &[u8], password: &Password<'_>, budget: &mut Budget) -> Result<Store, KeyError> {
    let mut all = Reader(bytes);
    let mut store = all.inside(SEQUENCE)?;
    all.end()?;
    if store.number()? != 3 {
        return Err(KeyError::Damaged("it is of another version than 3"));
    }
    let mut content = store.inside(SEQUENCE)?;
    if content.take(OID)?.strip_prefix(CONTENT) != Some(&[1]) {
        return Err(KeyError::Unsupported(
            "it is a PKCS12 that is signed with a key rather than with a password, which is not read"
                .to_owned(),
        ));
    }
    let content = content.inside(context(0))?.take(OCTET_STRING)?;
    if !store.is_empty() {
        check(store.inside(SEQUENCE)?, content, password, budget)?;
    }
    let mut found = Store::default();
    let mut safes = Reader(content).inside(SEQUENCE)?;
    while !safes.is_empty() {
        let mut safe = safes.inside(SEQUENCE)?;
        let kind = safe.take(OID)?;
        let mut safe = safe.inside(context(0))?;
        match kind.strip_prefix(CONTENT) {
            Some([1]) => bags(safe.take(OCTET_STRING)?, &mut found)?,
            Some([6]) => {
                let plain = decrypted(safe.inside(SEQUENCE)?, password, budget)?;
                bags(&plain, &mut found)?;
            }
            _ => {
                return Err(KeyError::Unsupported(
                    "it is a PKCS12 that is encrypted with a key rather than with a password, which is not read"
                        .to_owned(),
                ));
            }
        }
    }
    Ok(found)
}

/// The checksum over all of it (RFC 7292, 4).
fn check(
    mut mac: Reader<'_>,
    content: &[u8],
    password: &Password<'_>,
    budget: &mut Budget,
) -> Result<(), KeyError> {
    let mut digest = mac.inside(SEQUENCE)?;
    let kind = digest.inside(SEQUENCE)?.take(OID)?;
    let expected = digest.take(OCTET_STRING)?;
    let salt = mac.take(OCTET_STRING)?;
    let iterations = if mac.is_empty() { 1 } else { mac.number()? };
    let hash = match (kind, kind.strip_prefix(SHA2)) {
        (SHA1, _) => Hash::Sha1,
        (_, Some([1])) => Hash::Sha256,
        (_, Some([2])) => Hash::Sha384,
        (_, Some([3])) => Hash::Sha512,
        (PBMAC1, _) => {
            return Err(KeyError::Unsupported(
                "its checksum is PBMAC1, which is not read: write it anew with keytool -importkeystore, or with \
                 openssl pkcs12 -export without -pbmac1_pbkdf2"
                    .to_owned(),
            ));
        }
        _ => {
            let kind = crate::name::dotted(kind).unwrap_or_default();
            return Err(KeyError::Unsupported(format!(
                "its checksum is made in a way that is not read ({kind})"
            )));
        }
    };
    let key = pbe::mac_key(hash, password, salt, iterations, budget)?;
    let fits = match hash {
        Hash::Sha1 => verified(Hmac::<Sha1>::new_from_slice(&key), content, expected),
        Hash::Sha256 => verified(Hmac::<Sha256>::new_from_slice(&key), content, expected),
        Hash::Sha384 => verified(Hmac::<Sha384>::new_from_slice(&key), content, expected),
        Hash::Sha512 => verified(Hmac::<Sha512>::new_from_slice(&key), content, expected),
    };
    if fits { Ok(()) } else { Err(KeyError::Password("its checksum is another one, or it was changed")) }
}

fn verified<M: Mac, E>(mac: Result<M, E>, content: &[u8], expected: &[u8]) -> bool {
    mac.is_ok_and(|mac| mac.chain_update(content).verify_slice(expected).is_ok())
}

/// EncryptedData (RFC 5652, 8).
fn decrypted(
    mut data: Reader<'_>,
    password: &Password<'_>,
    budget: &mut Budget,
) -> Result<Vec<u8>, KeyError> {
    data.take(INTEGER)?;
    let mut content = data.inside(SEQUENCE)?;
    content.take(OID)?;
    let algorithm = content.inside(SEQUENCE)?;
    if content.is_empty() {
        return Ok(Vec::new());
    }
    let encrypted = content.value()?;
    let plain = match encrypted.tag {
        0x80 => pbe::decrypt(algorithm, encrypted.content, password, budget)?,
        // In pieces.
        0xa0 => {
            let (mut pieces, mut joined) = (Reader(encrypted.content), Vec::new());
            while !pieces.is_empty() {
                joined.extend(pieces.take(OCTET_STRING)?);
            }
            pbe::decrypt(algorithm, &joined, password, budget)?
        }
        _ => return Err(KeyError::Damaged("something else is expected")),
    };
    pbe::checked(plain)
}

/// SafeContents (RFC 7292, 4.2).
fn bags(content: &[u8], into: &mut Store) -> Result<(), KeyError> {
    if content.is_empty() {
        return Ok(());
    }
    let mut bags = Reader(content).inside(SEQUENCE)?;
    while !bags.is_empty() {
        into.bags += 1;
        if into.bags > BAGS_MAX {
            return Err(KeyError::TooLarge("more than 2,000 certificates, keys and others"));
        }
        let mut bag = bags.inside(SEQUENCE)?;
        let kind = bag.take(OID)?;
        let mut value = bag.inside(context(0))?;
        let Some([kind]) = kind.strip_prefix(BAG) else { continue };
        let (mut local_key, mut is_trusted) = (None, false);
        let mut attributes = if bag.is_empty() { Reader(&[]) } else { bag.inside(SET)? };
        while !attributes.is_empty() {
            let mut attribute = attributes.inside(SEQUENCE)?;
            let name = attribute.take(OID)?;
            let mut values = attribute.inside(SET)?;
            match name {
                LOCAL_KEY => local_key = Some(values.take(OCTET_STRING)?.to_vec()),
                TRUSTED => is_trusted = true,
                _ => {}
            }
        }
        match kind {
            1 | 2 => {
                let der = value.value()?;
                der.expect(SEQUENCE)?;
                into.keys.push(KeyBag { der: der.whole.to_vec(), is_encrypted: *kind == 2, local_key });
            }
            3 => {
                let mut certificate = value.inside(SEQUENCE)?;
                if certificate.take(OID)? == X509 {
                    let der = certificate.inside(context(0))?.take(OCTET_STRING)?.to_vec().into();
                    into.certificates.push(CertificateBag { der, local_key, is_trusted });
                }
            }
            // Lists of revoked certificates, secret keys, and bags in bags, which nobody writes.
            _ => {}
        }
    }
    Ok(())
}
