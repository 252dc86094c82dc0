//! JKS, Java's old format of stores: big-endian numbers, keys under a stream made of SHA-1, and a SHA-1 of all of it
//! at its end, both with the password. It protects little; who can choose takes PKCS12.

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha1::{Digest, Sha1};

use crate::KeyError;
use crate::der::{OCTET_STRING, OID, Reader, SEQUENCE};

/// 1.3.6.1.4.1.42.2.17.1.1: the way in which keys are protected.
const PROTECTOR: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x2a, 0x02, 0x11, 0x01, 0x01];

/// What stands between the password and the store in its digest.
const WHITENER: &[u8] = b"Mighty Aphrodite";

const HASH: usize = 20;

const ENDS: KeyError = KeyError::Damaged("it ends early");

/// One entry: of certificates the first is the one that counts.
struct Entry<'a> {
    key: Option<&'a [u8]>,
    chain: Vec<&'a [u8]>,
}

/// The first private key and its chain.
pub(crate) fn key(
    bytes: &[u8],
    password: Option<&str>,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), KeyError> {
    let entries = read(bytes, password)?;
    let first = entries.into_iter().find_map(|entry| entry.key.map(|key| (key, entry.chain)));
    let (key, chain) = first.ok_or(KeyError::Missing("no private key"))?;
    let password = password.ok_or(KeyError::Password("no password is given, and one is needed"))?;
    let key = PrivatePkcs8KeyDer::from(unprotected(key, password)?);
    Ok((chain.into_iter().map(|certificate| certificate.to_vec().into()).collect(), key.into()))
}

/// The trusted certificates, and the first one of each chain.
pub(crate) fn trusted(
    bytes: &[u8],
    password: Option<&str>,
) -> Result<Vec<CertificateDer<'static>>, KeyError> {
    let first = |entry: &Entry<'_>| entry.chain.first().map(|certificate| certificate.to_vec().into());
    Ok(read(bytes, password)?.iter().filter_map(first).collect())
}

/// What is left to read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], KeyError> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(ENDS)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<usize, KeyError> {
        Ok(self.bytes(4)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// Bytes with their length, four bytes, before them.
    fn long(&mut self) -> Result<&'a [u8], KeyError> {
        let len = self.number()?;
        self.bytes(len)
    }

    /// Text with its length, two bytes, before it.
    fn text(&mut self) -> Result<&'a [u8], KeyError> {
        let len = self.bytes(2)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte));
        self.bytes(len)
    }

    /// A certificate. From version 2 on its kind stands before it.
    fn certificate(&mut self, version: usize) -> Result<&'a [u8], KeyError> {
        if version == 2 && self.text()? != b"X.509" {
            return Err(KeyError::Unsupported("it has a certificate of another kind than X.509".to_owned()));
        }
        self.long()
    }
}

fn read<'a>(bytes: &'a [u8], password: Option<&str>) -> Result<Vec<Entry<'a>>, KeyError> {
    let (content, digest) = bytes.split_last_chunk::<HASH>().ok_or(ENDS)?;
    if let Some(password) = password {
        let own = Sha1::new().chain_update(wide(password)).chain_update(WHITENER).chain_update(content);
        if own.finalize().as_slice() != digest {
            return Err(KeyError::Password("its digest is another one, or it was changed"));
        }
    }
    let mut rest = Rest(content);
    // What tells the format.
    rest.number()?;
    let version = rest.number()?;
    if !(1..=2).contains(&version) {
        return Err(KeyError::Damaged("it is of another version than 1 and 2"));
    }
    let count = rest.number()?;
    let mut certificates = 0;
    let mut entries = Vec::new();
    for _ in 0..count {
        let tag = rest.number()?;
        let (_alias, _created) = (rest.text()?, rest.bytes(8)?);
        let key = match tag {
            1 => Some(rest.long()?),
            2 => None,
            _ => return Err(KeyError::Damaged("it has an entry that is neither a key nor a certificate")),
        };
        let len = if key.is_some() { rest.number()? } else { 1 };
        // Each takes bytes, so this ends, whatever the number says.
        let mut chain = Vec::new();
        for _ in 0..len {
            certificates += 1;
            if certificates > crate::CERTIFICATES_MAX {
                return Err(KeyError::TooLarge("more than 1,000 certificates"));
            }
            chain.push(rest.certificate(version)?);
        }
        entries.push(Entry { key, chain });
    }
    if rest.0.is_empty() { Ok(entries) } else { Err(KeyError::Damaged("something follows its entries")) }
}

/// A key without its protection: salt, key under the stream, and a digest of password and key.
fn unprotected(bytes: &[u8], password: &str) -> Result<Vec<u8>, KeyError> {
    let mut info = Reader(bytes).inside(SEQUENCE)?;
    if info.inside(SEQUENCE)?.take(OID)? != PROTECTOR {
        return Err(KeyError::Unsupported(
            "its private key is protected in a way that is not known".to_owned(),
        ));
    }
    let protected = info.take(OCTET_STRING)?;
    let parts = protected.split_first_chunk::<HASH>();
    let parts = parts.and_then(|(salt, rest)| Some((salt, rest.split_last_chunk::<HASH>()?)));
    let (salt, (hidden, digest)) = parts.ok_or(ENDS)?;
    let password = wide(password);
    let hash = |bytes: &[u8]| Sha1::new().chain_update(&password).chain_update(bytes).finalize();
    let mut stream = hash(salt);
    let mut key = hidden.to_vec();
    for chunk in key.chunks_mut(HASH) {
        chunk.iter_mut().zip(&stream).for_each(|(byte, mask)| *byte ^= mask);
        stream = hash(&stream);
    }
    if hash(&key).as_slice() == digest {
        Ok(key)
    } else {
        Err(KeyError::Password("the private key's is another one than the store's; they have to be the same"))
    }
}

/// A password as Java hashes it.
fn wide(password: &str) -> Vec<u8> {
    password.encode_utf16().flat_map(u16::to_be_bytes).collect()
}
