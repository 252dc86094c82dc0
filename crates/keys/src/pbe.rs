//! What is encrypted with a password: PBES2 (RFC 8018), and the schemes of PKCS12 (RFC 7292, appendix B and C).

use cbc::Decryptor;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockCipherDecrypt, BlockModeDecrypt, KeyInit, KeyIvInit};
use des::{TdesEde2, TdesEde3};
use pkcs5::der::Decode;
use pkcs5::pbes2::{Kdf, Parameters};
use rc2::Rc2;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha384, Sha512};

use crate::KeyError;
use crate::der::{OCTET_STRING, OID, Reader, SEQUENCE};

/// How many iterations all that one file has may ask for: some seconds of one core. Java writes 10,000 at a time,
/// openssl 2,048.
const ITERATIONS_MAX: u64 = 10_000_000;

/// How much memory scrypt may take, in bytes; openssl has it take a quarter of that.
const SCRYPT_MAX: u64 = 64 << 20;

/// 1.2.840.113549.1.5.13.
const PBES2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0d];
/// 1.2.840.113549.1.12.1, and a number more: the schemes of PKCS12.
const PKCS12: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x0c, 0x01];

const WRONG: KeyError = KeyError::Password("what is encrypted with it cannot be read");

/// What one file may still ask for.
pub(crate) struct Budget(u64);

impl Budget {
    pub(crate) fn new() -> Self {
        Self(ITERATIONS_MAX)
    }

    pub(crate) fn spend(&mut self, iterations: u64) -> Result<(), KeyError> {
        let too_many = KeyError::TooLarge("its password is to be hashed more than 10 million times");
        self.0 = self.0.checked_sub(iterations).ok_or(too_many)?;
        Ok(())
    }
}

/// A password in the forms that the schemes want.
#[derive(Clone)]
pub(crate) struct Password<'a> {
    pub(crate) text: &'a str,
    /// UTF-16 with two zeros at its end; see [`Self::all`].
    pub(crate) wide: Vec<u8>,
}

impl<'a> Password<'a> {
    /// The forms of one password. The empty one has two in PKCS12: with the zeros at its end, and without them.
    pub(crate) fn all(text: &'a str) -> Vec<Self> {
        let wide = text.encode_utf16().chain([0]).flat_map(u16::to_be_bytes).collect();
        let mut all = vec![Self { text, wide }];
        if text.is_empty() {
            all.push(Self { text, wide: Vec::new() });
        }
        all
    }
}

/// The key in an EncryptedPrivateKeyInfo (RFC 5958), as PKCS8.
pub(crate) fn private_key(bytes: &[u8], password: &str, budget: &mut Budget) -> Result<Vec<u8>, KeyError> {
    let mut found = Err(WRONG);
    for password in Password::all(password) {
        found = decrypted_key(Reader(bytes).inside(SEQUENCE)?, &password, budget);
        if !matches!(found, Err(KeyError::Password(_))) {
            break;
        }
    }
    found
}

/// The same with one form of the password, from the content of an EncryptedPrivateKeyInfo.
pub(crate) fn decrypted_key(
    mut info: Reader<'_>,
    password: &Password<'_>,
    budget: &mut Budget,
) -> Result<Vec<u8>, KeyError> {
    let algorithm = info.inside(SEQUENCE)?;
    checked(decrypt(algorithm, info.take(OCTET_STRING)?, password, budget)?)
}

/// What was decrypted, if it is one value: with a wrong password the padding is right once in 256 times.
pub(crate) fn checked(plain: Vec<u8>) -> Result<Vec<u8>, KeyError> {
    let mut all = Reader(&plain);
    if all.take(SEQUENCE).is_ok() && all.is_empty() { Ok(plain) } else { Err(WRONG) }
}

/// Decrypts with the algorithm of an AlgorithmIdentifier, whose content is given.
pub(crate) fn decrypt(
    mut algorithm: Reader<'_>,
    data: &[u8],
    password: &Password<'_>,
    budget: &mut Budget,
) -> Result<Vec<u8>, KeyError> {
    let kind = algorithm.take(OID)?;
    if kind == PBES2 {
        return pbes2(algorithm.0, data, password.text, budget);
    }
    let scheme = kind.strip_prefix(PKCS12).unwrap_or_default();
    let decrypt = match scheme {
        [3] => cbc::<TdesEde3>,
        [4] => cbc::<TdesEde2>,
        [5 | 6] => cbc::<Rc2>,
        _ => return Err(unsupported(kind)),
    };
    let len = match scheme {
        [3] => 24,
        [6] => 5,
        _ => 16,
    };
    let mut parameters = algorithm.inside(SEQUENCE)?;
    let (salt, iterations) = (parameters.take(OCTET_STRING)?, parameters.number()?);
    let key = derive::<Sha1>(64, Purpose::Key, &password.wide, salt, iterations, len, budget)?;
    let iv = derive::<Sha1>(64, Purpose::Iv, &password.wide, salt, iterations, 8, budget)?;
    decrypt(&key, &iv, data).ok_or(WRONG)
}

fn cbc<C: KeyInit + BlockCipherDecrypt>(key: &[u8], iv: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let cipher = Decryptor::<C>::new_from_slices(key, iv).ok()?;
    cipher.decrypt_padded_vec::<Pkcs7>(data).ok()
}

fn pbes2(parameters: &[u8], data: &[u8], password: &str, budget: &mut Budget) -> Result<Vec<u8>, KeyError> {
    let parameters = Parameters::from_der(parameters).map_err(|_| {
        KeyError::Unsupported(
            "it is encrypted in a way that is not read: PBKDF2 or scrypt with AES-CBC are (see the options -v2 and \
             -certpbe, -keypbe of openssl)"
                .to_owned(),
        )
    })?;
    match &parameters.kdf {
        Kdf::Pbkdf2(pbkdf2) => budget.spend(pbkdf2.iteration_count.into())?,
        Kdf::Scrypt(scrypt) => {
            let too_much = KeyError::TooLarge("scrypt is to take more than 64 MiB for its password");
            let blocks = scrypt.cost_parameter.checked_mul(scrypt.block_size.into());
            let blocks = blocks.filter(|blocks| *blocks <= SCRYPT_MAX / 128).ok_or(too_much)?;
            // A block of it takes as long as two iterations of PBKDF2.
            budget.spend(blocks * 2 * u64::from(scrypt.parallelization))?;
        }
        _ => {}
    }
    parameters.decrypt(password, data).map_err(|_| WRONG)
}

fn unsupported(kind: &[u8]) -> KeyError {
    let kind = crate::name::dotted(kind).unwrap_or_default();
    KeyError::Unsupported(format!(
        "it is encrypted in a way that is not read ({kind}): write it anew with keytool -importkeystore, or with \
         openssl pkcs12 -export or openssl pkcs8 -topk8"
    ))
}

/// What bytes are derived for.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Key = 1,
    Iv = 2,
    Mac = 3,
}

/// RFC 7292, B.2. `block` is the length of the hash's blocks.
fn derive<D: Digest>(
    block: usize,
    purpose: Purpose,
    password: &[u8],
    salt: &[u8],
    iterations: u32,
    len: usize,
    budget: &mut Budget,
) -> Result<Vec<u8>, KeyError> {
    if iterations == 0 {
        return Err(KeyError::Damaged("its password is to be hashed no times"));
    }
    let mut input: Vec<u8> = Vec::new();
    for part in [salt, password] {
        let filled = part.len().next_multiple_of(block);
        input.extend(part.iter().cycle().take(filled));
    }
    let mut out: Vec<u8> = Vec::with_capacity(len);
    while out.len() < len {
        budget.spend(iterations.into())?;
        let mut hash = D::new().chain_update(vec![purpose as u8; block]).chain_update(&input).finalize();
        for _ in 1..iterations {
            hash = D::digest(&hash);
        }
        let wanted = len - out.len();
        out.extend(hash.iter().take(wanted));
        let addend: Vec<u8> = hash.iter().copied().cycle().take(block).collect();
        for chunk in input.chunks_exact_mut(block) {
            let mut carry = 1;
            for (byte, more) in chunk.iter_mut().zip(&addend).rev() {
                carry += u16::from(*byte) + u16::from(*more);
                *byte = carry as u8;
                carry >>= 8;
            }
        }
    }
    Ok(out)
}

/// The key of a PKCS12's checksum, for the hash of this name (the last bytes of its object identifier).
pub(crate) fn mac_key(
    hash: Hash,
    password: &Password<'_>,
    salt: &[u8],
    iterations: u32,
    budget: &mut Budget,
) -> Result<Vec<u8>, KeyError> {
    let wide = &password.wide;
    match hash {
        Hash::Sha1 => derive::<Sha1>(64, Purpose::Mac, wide, salt, iterations, 20, budget),
        Hash::Sha256 => derive::<Sha256>(64, Purpose::Mac, wide, salt, iterations, 32, budget),
        Hash::Sha384 => derive::<Sha384>(128, Purpose::Mac, wide, salt, iterations, 48, budget),
        Hash::Sha512 => derive::<Sha512>(128, Purpose::Mac, wide, salt, iterations, 64, budget),
    }
}

/// The hashes that a checksum can be made with.
#[derive(Clone, Copy)]
pub(crate) enum Hash {
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::der::{INTEGER, encode};

    /// The parameters of PBES2 with scrypt (RFC 7914, 7) and AES-256.
    fn scrypt(cost: u32, block: u8, lanes: u8) -> Vec<u8> {
        let scrypt = [0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x04, 0x0b];
        let aes = [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x01, 0x2a];
        let cost = encode(INTEGER, &[&cost.to_be_bytes()[1..]]);
        let (block, lanes) = (encode(INTEGER, &[&[block]]), encode(INTEGER, &[&[lanes]]));
        let parameters = encode(SEQUENCE, &[&encode(OCTET_STRING, &[&[1; 8]]), &cost, &block, &lanes]);
        let kdf = encode(SEQUENCE, &[&encode(OID, &[&scrypt]), &parameters]);
        let cipher = encode(SEQUENCE, &[&encode(OID, &[&aes]), &encode(OCTET_STRING, &[&[2; 16]])]);
        encode(SEQUENCE, &[&kdf, &cipher])
    }

    #[test]
    fn scrypt_has_bounds() {
        let of = |cost, block, lanes| pbes2(&scrypt(cost, block, lanes), &[0; 16], "a", &mut Budget::new());
        let too_much = KeyError::TooLarge("scrypt is to take more than 64 MiB for its password");
        assert_eq!(of(1 << 20, 8, 1), Err(too_much));
        let too_long = KeyError::TooLarge("its password is to be hashed more than 10 million times");
        assert_eq!(of(1 << 16, 8, 100), Err(too_long));
        // Within them it is the password that does not fit.
        assert_eq!(of(1 << 17, 1, 1), Err(WRONG));
    }

    #[test]
    fn a_file_has_one_budget() {
        let mut budget = Budget::new();
        let password = &Password::all("a")[0];
        let mut mac = |iterations| mac_key(Hash::Sha1, password, &[1; 8], iterations, &mut budget);
        assert!(mac(1000).is_ok());
        assert!(matches!(mac(9_999_001), Err(KeyError::TooLarge(_))));
        assert!(matches!(mac(0), Err(KeyError::Damaged(_))));
    }
}
