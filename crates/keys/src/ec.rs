//! Private keys of elliptic curves that Java has written. They lack the public key (RFC 5915 lets them), and ring
//! wants it; a certificate has it.

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::KeyError;
use crate::certificate::{PublicKey, octets};
use crate::der::{BIT_STRING, INTEGER, OCTET_STRING, OID, Reader, SEQUENCE, context, encode};

/// 1.2.840.10045.2.1, id-ecPublicKey.
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];

/// A key without its public half.
pub(crate) struct Half<'a> {
    /// The curve's object identifier.
    curve: &'a [u8],
    secret: &'a [u8],
}

impl<'a> Half<'a> {
    /// None where it is a key of another kind, or has its public half.
    pub(crate) fn of(key: &'a PrivateKeyDer<'_>) -> Option<Self> {
        let parsed = match key {
            PrivateKeyDer::Pkcs8(key) => Self::of_pkcs8(key.secret_pkcs8_der()),
            PrivateKeyDer::Sec1(key) => Self::of_sec1(key.secret_sec1_der(), None),
            _ => return None,
        };
        parsed.ok().flatten()
    }

    /// RFC 5208.
    fn of_pkcs8(bytes: &'a [u8]) -> Result<Option<Self>, KeyError> {
        let mut info = Reader(bytes).inside(SEQUENCE)?;
        info.take(INTEGER)?;
        let mut algorithm = info.inside(SEQUENCE)?;
        if algorithm.take(OID)? != EC {
            return Ok(None);
        }
        let curve = algorithm.take(OID)?;
        Self::of_sec1(info.take(OCTET_STRING)?, Some(curve))
    }

    /// RFC 5915.
    fn of_sec1(bytes: &'a [u8], curve: Option<&'a [u8]>) -> Result<Option<Self>, KeyError> {
        let mut key = Reader(bytes).inside(SEQUENCE)?;
        key.take(INTEGER)?;
        let secret = key.take(OCTET_STRING)?;
        let own_curve = match key.optional(context(0))? {
            Some(parameters) => Some(Reader(parameters.content).take(OID)?),
            None => None,
        };
        if key.peek() == Some(context(1)) {
            return Ok(None);
        }
        Ok(curve.or(own_curve).map(|curve| Self { curve, secret }))
    }

    /// The whole key, if the other half may be this one. Whether it is, ring finds out.
    pub(crate) fn with(&self, public: &PublicKey<'_>) -> Option<PrivateKeyDer<'static>> {
        let mut algorithm = Reader(public.algorithm);
        if algorithm.take(OID).ok()? != EC || algorithm.take(OID).ok()? != self.curve {
            return None;
        }
        // No unused bits, then 4 for an uncompressed point, then two numbers as long as the secret one.
        let [0, 4, point @ ..] = public.bits else { return None };
        let len = point.len() / 2;
        let digits = self.secret.iter().position(|byte| *byte != 0).map_or(&[][..], |at| &self.secret[at..]);
        let zeros = vec![0; len.checked_sub(digits.len())?];
        let key = encode(
            SEQUENCE,
            &[
                &encode(INTEGER, &[&[1]]),
                &encode(OCTET_STRING, &[&zeros, digits]),
                &encode(context(1), &[&encode(BIT_STRING, &[public.bits])]),
            ],
        );
        let algorithm = encode(SEQUENCE, &[&encode(OID, &[EC]), &encode(OID, &[self.curve])]);
        let whole = encode(SEQUENCE, &[&encode(INTEGER, &[&[0]]), &algorithm, &octets(&key)]);
        Some(PrivatePkcs8KeyDer::from(whole).into())
    }
}
