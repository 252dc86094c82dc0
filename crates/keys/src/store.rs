//! Key stores and trust stores, whatever format they are in.

use std::collections::{HashMap, HashSet};
use std::fmt;

use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificate::{Certificate, PublicKey};
use crate::der::{INTEGER, Reader, SEQUENCE};
use crate::ec::Half;
use crate::{KeyError, jks, pem, pkcs12};

/// The longest store that is read, in bytes: Java's own list of authorities has a fifth of it.
pub const BYTES_MAX: usize = 1 << 20;

/// How many certificates a store may have.
pub const CERTIFICATES_MAX: usize = 1000;

/// What a store is written in. It shows in its first bytes: since Java 9 keytool writes PKCS12 whatever the name of
/// the file ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFormat {
    /// RFC 7468: text with `-----BEGIN`.
    Pem,
    /// Java's old format.
    Jks,
    /// RFC 7292.
    Pkcs12,
}

impl StoreFormat {
    /// The format of these bytes.
    ///
    /// # Errors
    /// When it is none of the three; of others that are known the error says how to convert them.
    pub fn of(bytes: &[u8]) -> Result<Self, KeyError> {
        match bytes {
            [0xfe, 0xed, 0xfe, 0xed, ..] => return Ok(Self::Jks),
            [0xce, 0xce, 0xce, 0xce, ..] => return Err(to_convert("JCEKS", "")),
            _ => {}
        }
        let mut all = Reader(bytes);
        if let Ok(store) = all.inside(SEQUENCE)
            && all.is_empty()
        {
            return Self::of_der(bytes, store);
        }
        if bytes.windows(10).any(|window| window == b"-----BEGIN") {
            return Ok(Self::Pem);
        }
        // One that was cut short, or has values of indefinite length: its reader says so.
        if bytes.first() == Some(&SEQUENCE) && !bytes.is_ascii() {
            Ok(Self::Pkcs12)
        } else {
            Err(KeyError::Unknown)
        }
    }

    fn of_der(bytes: &[u8], mut store: Reader<'_>) -> Result<Self, KeyError> {
        if Certificate::of(bytes).is_ok() {
            let what = "it is a certificate in DER, which is not read: convert it with \
                        openssl x509 -inform DER -in OLD -out NEW.pem";
            return Err(KeyError::Unsupported(what.to_owned()));
        }
        match store.value() {
            Ok(version) if version.tag == INTEGER && version.content == [3] => Ok(Self::Pkcs12),
            Ok(first) if first.tag == SEQUENCE => Err(to_convert(
                "BCFKS (or another one that Java reads with a provider of its own)",
                " -providerclass org.bouncycastle.jcajce.provider.BouncyCastleFipsProvider \
                 -providerpath bc-fips.jar",
            )),
            _ => Err(KeyError::Unknown),
        }
    }
}

fn to_convert(name: &str, more: &str) -> KeyError {
    let kind = name.split(' ').next().unwrap_or(name);
    KeyError::Unsupported(format!(
        "it is a store of the type {name}, which is not read: convert it with keytool -importkeystore \
         -srckeystore OLD -srcstoretype {kind} -destkeystore NEW -deststoretype PKCS12{more}"
    ))
}

/// A private key and the certificates that show whose it is: the one for the key first, then those that have signed
/// it, in turn.
pub struct KeyStore {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl KeyStore {
    /// Takes both from two PEM files, the first of which has certificates in any order.
    ///
    /// # Errors
    /// When one cannot be read, or no certificate is for the key.
    pub fn of_pem_pair(certificates: &[u8], key: &[u8], password: Option<&str>) -> Result<Self, KeyError> {
        bounded(certificates)?;
        bounded(key)?;
        let certificates = pem::read(certificates, None)?.certificates;
        Self::of_pem(certificates, pem::read(key, password)?.keys)
    }

    fn of_pem(
        certificates: Vec<CertificateDer<'static>>,
        keys: Vec<PrivateKeyDer<'static>>,
    ) -> Result<Self, KeyError> {
        check_all(&certificates)?;
        let key = keys.into_iter().next().ok_or(KeyError::Missing("no private key"))?;
        let (leaf, key) = fitting(key, &certificates)?;
        let (mut chain, rest) = chain_of(leaf, certificates)?;
        // Whoever has put them there may know what for.
        chain.extend(rest);
        Ok(Self { chain, key })
    }

    /// The certificate for the key, and then those that have signed it, in turn.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// Both.
    pub fn into_parts(self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        (self.chain, self.key)
    }

    /// The private key.
    pub fn key(&self) -> &PrivateKeyDer<'static> {
        &self.key
    }
}

impl Clone for KeyStore {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

impl fmt::Debug for KeyStore {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key stays out of logs.
        to.debug_struct("KeyStore").field("chain", &self.chain.len()).finish_non_exhaustive()
    }
}

/// Reads a key store. In PEM there are one key and certificates in any order; in a JKS or PKCS12 the first private
/// key counts, whatever its alias. The password is for the store and for the key, as ZooKeeper has it.
///
/// # Errors
/// When it cannot be read, has no key, or no certificate for it, or a key of a kind that ring does not know.
pub fn key_store(bytes: &[u8], password: Option<&str>) -> Result<KeyStore, KeyError> {
    bounded(bytes)?;
    match StoreFormat::of(bytes)? {
        StoreFormat::Pem => {
            let contents = pem::read(bytes, password)?;
            KeyStore::of_pem(contents.certificates, contents.keys)
        }
        StoreFormat::Jks => {
            let (chain, key) = jks::key(bytes, password)?;
            check_all(&chain)?;
            let (_, key) = fitting(key, chain.get(..1).ok_or(KeyError::Missing(NO_CERTIFICATE))?)?;
            Ok(KeyStore { chain, key })
        }
        StoreFormat::Pkcs12 => {
            let (leaf, certificates, key) = pkcs12::key(bytes, password)?;
            check_all(&certificates)?;
            let (leaf, key) = match leaf {
                Some(leaf) => (leaf, fitting(key, &certificates[leaf..=leaf])?.1),
                None => fitting(key, &certificates)?,
            };
            let (chain, _) = chain_of(leaf, certificates)?;
            Ok(KeyStore { chain, key })
        }
    }
}

/// Reads the certificates that are trusted. From a JKS or PKCS12 these are, as Java's PKIX does it, the entries of
/// trusted certificates and of each private key the certificate for it. Without a password the digest of a JKS is
/// not checked; a PKCS12 is read as one with the empty password.
///
/// # Errors
/// When it cannot be read or trusts nobody.
pub fn trust_store(bytes: &[u8], password: Option<&str>) -> Result<Vec<CertificateDer<'static>>, KeyError> {
    bounded(bytes)?;
    let certificates = match StoreFormat::of(bytes)? {
        StoreFormat::Pem => {
            // Its keys, if there are any, are not needed, so no password is.
            pem::certificates(bytes)?
        }
        StoreFormat::Jks => jks::trusted(bytes, password)?,
        StoreFormat::Pkcs12 => pkcs12::trusted(bytes, password)?,
    };
    if certificates.is_empty() {
        return Err(KeyError::Missing(NO_CERTIFICATE));
    }
    check_all(&certificates)?;
    Ok(certificates)
}

const NO_CERTIFICATE: &str = "no certificate";

fn bounded(bytes: &[u8]) -> Result<(), KeyError> {
    if bytes.len() > BYTES_MAX { Err(KeyError::TooLarge("more than 1 MiB")) } else { Ok(()) }
}

/// All of them are certificates, and not too many.
fn check_all(certificates: &[CertificateDer<'_>]) -> Result<(), KeyError> {
    if certificates.len() > CERTIFICATES_MAX {
        return Err(KeyError::TooLarge("more than 1,000 certificates"));
    }
    certificates.iter().try_for_each(|certificate| Certificate::of(certificate).map(drop))
}

/// Which certificate is for this key, and the key as ring takes it.
fn fitting(
    key: PrivateKeyDer<'static>,
    certificates: &[CertificateDer<'_>],
) -> Result<(usize, PrivateKeyDer<'static>), KeyError> {
    if certificates.is_empty() {
        return Err(KeyError::Missing(NO_CERTIFICATE));
    }
    let public = certificates.iter().map(|certificate| Ok(Certificate::of(certificate)?.key));
    let public: Vec<PublicKey<'_>> = public.collect::<Result<_, KeyError>>()?;
    let found = if let Some(half) = Half::of(&key) {
        let whole = |(at, public)| {
            let key = half.with(public)?;
            any_supported_type(&key).is_ok().then_some((at, key))
        };
        public.iter().enumerate().find_map(whole)
    } else {
        let own = any_supported_type(&key).map_err(|error| unusable(&error))?;
        let own =
            own.public_key().ok_or_else(|| KeyError::Key("the private key has no public one".to_owned()))?;
        let own = PublicKey::of(Reader(&own).inside(SEQUENCE)?)?.bits;
        public.iter().position(|public| public.bits == own).map(|at| (at, key))
    };
    found.ok_or_else(|| KeyError::Key("no certificate is for the private key".to_owned()))
}

fn unusable(error: &rustls::Error) -> KeyError {
    KeyError::Key(format!(
        "the private key cannot be used ({error}): keys of RSA with 2,048 to 4,096 bits, ECDSA with P-256 or P-384, \
         and Ed25519 can"
    ))
}

/// One certificate and those that have signed it, as far as there are any; and the rest.
fn chain_of(
    leaf: usize,
    mut certificates: Vec<CertificateDer<'static>>,
) -> Result<(Vec<CertificateDer<'static>>, Vec<CertificateDer<'static>>), KeyError> {
    let name = |certificate| Certificate::of(certificate).map(|it| (it.subject, it.issuer));
    let names: Vec<_> = certificates.iter().map(|it| name(it)).collect::<Result<_, KeyError>>()?;
    // Of several with one name the first counts.
    let mut signers: HashMap<&[u8], usize> =
        names.iter().enumerate().rev().map(|(at, (subject, _))| (*subject, at)).collect();
    let mut order = Vec::new();
    let mut next = Some(leaf);
    while let Some(at) = next {
        let (subject, issuer) = names[at];
        order.push(at);
        signers.remove(subject);
        next = signers.get(issuer).copied();
    }
    let chain = order.iter().map(|at| certificates[*at].clone()).collect();
    let mut at = 0..;
    let chosen: HashSet<usize> = order.into_iter().collect();
    certificates.retain(|_| at.next().is_some_and(|at| !chosen.contains(&at)));
    Ok((chain, certificates))
}
