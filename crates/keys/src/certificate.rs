//! The parts of a certificate (RFC 5280, 4.1) that are needed besides the checks that webpki makes.

use crate::KeyError;
use crate::der::{
    self, BIT_STRING, BOOLEAN, GENERALIZED_TIME, OCTET_STRING, OID, Reader, SEQUENCE, UTC_TIME, Value,
    context,
};

/// 2.5.29.17, subjectAltName.
const ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// 2.5.29.15, keyUsage, and two of its bits.
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const DIGITAL_SIGNATURE: u8 = 0x80;
const KEY_CERT_SIGN: u8 = 0x04;

/// 1.2.840.113549.1.1.1, rsaEncryption.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];

/// The parts of one certificate. Its signature is not checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Certificate<'a> {
    /// The name of whoever has signed it, as it is encoded.
    pub(crate) issuer: &'a [u8],
    /// The name of whoever it is for, as it is encoded.
    pub(crate) subject: &'a [u8],
    /// From when and until when it is valid, in seconds since 1970.
    pub(crate) valid: (i64, i64),
    /// The public key with its algorithm.
    pub(crate) key: PublicKey<'a>,
    /// Whether it says for which hosts it is, which its subject then does not.
    pub(crate) has_alternative_name: bool,
    /// The first eight bits of what its key may be used for, where it says so.
    key_usage: Option<u8>,
}

/// SubjectPublicKeyInfo.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PublicKey<'a> {
    /// Algorithm and parameters, as they are encoded one after another.
    pub(crate) algorithm: &'a [u8],
    /// The content of the bit string, with the number of unused bits before it.
    pub(crate) bits: &'a [u8],
}

impl<'a> PublicKey<'a> {
    pub(crate) fn of(mut info: Reader<'a>) -> Result<Self, KeyError> {
        Ok(Self { algorithm: info.take(SEQUENCE)?, bits: info.take(BIT_STRING)? })
    }

    /// How long an RSA key is; `None` of any other.
    pub(crate) fn rsa_bits(&self) -> Option<usize> {
        if Reader(self.algorithm).take(OID) != Ok(RSA) {
            return None;
        }
        let modulus = Reader(self.bits.get(1..)?).inside(SEQUENCE).ok()?.take(der::INTEGER).ok()?;
        let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
        let first = modulus.get(zeros)?;
        Some((modulus.len() - zeros) * 8 - first.leading_zeros() as usize)
    }
}

impl<'a> Certificate<'a> {
    /// Takes one apart.
    ///
    /// # Errors
    /// When it is no certificate.
    pub(crate) fn of(bytes: &'a [u8]) -> Result<Self, KeyError> {
        let mut all = Reader(bytes);
        let mut outer = all.inside(SEQUENCE)?;
        all.end()?;
        let mut to_sign = outer.inside(SEQUENCE)?;
        outer.take(SEQUENCE)?;
        outer.take(BIT_STRING)?;
        outer.end()?;
        to_sign.optional(context(0))?;
        to_sign.take(der::INTEGER)?;
        to_sign.take(SEQUENCE)?;
        let issuer = to_sign.value()?;
        issuer.expect(SEQUENCE)?;
        let mut valid = to_sign.inside(SEQUENCE)?;
        let valid = (seconds(valid.value()?)?, seconds(valid.value()?)?);
        let subject = to_sign.value()?;
        subject.expect(SEQUENCE)?;
        let key = PublicKey::of(to_sign.inside(SEQUENCE)?)?;
        let (mut has_alternative_name, mut key_usage) = (false, None);
        while !to_sign.is_empty() {
            let value = to_sign.value()?;
            if value.tag == context(3) {
                let mut extensions = Reader(value.content).inside(SEQUENCE)?;
                while !extensions.is_empty() {
                    let mut extension = extensions.inside(SEQUENCE)?;
                    let id = extension.take(OID)?;
                    has_alternative_name |= id == ALTERNATIVE_NAME;
                    if id == KEY_USAGE {
                        // Where it cannot be read it allows nothing.
                        key_usage = Some(usages(extension).unwrap_or(0));
                    }
                }
            }
        }
        Ok(Self { issuer: issuer.whole, subject: subject.whole, valid, key, has_alternative_name, key_usage })
    }

    /// Whether its key may sign other certificates, as far as its key usage says.
    pub(crate) fn may_sign_certificates(&self) -> bool {
        self.key_usage.is_none_or(|usage| usage & KEY_CERT_SIGN != 0)
    }

    /// Whether its key may sign handshakes, in the same way.
    pub(crate) fn may_sign_handshakes(&self) -> bool {
        self.key_usage.is_none_or(|usage| usage & DIGITAL_SIGNATURE != 0)
    }
}

/// The first eight bits of a keyUsage; `extension` is what follows its OID.
fn usages(mut extension: Reader<'_>) -> Option<u8> {
    extension.optional(BOOLEAN).ok()?;
    let bits = Reader(extension.take(OCTET_STRING).ok()?).take(BIT_STRING).ok()?;
    bits.get(1).copied()
}

/// A time of RFC 5280, 4.1.2.5: `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn seconds(value: Value<'_>) -> Result<i64, KeyError> {
    const WRONG: KeyError = KeyError::Damaged("a certificate has a time that is none");
    let digits = value.content.strip_suffix(b"Z").ok_or(WRONG)?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return Err(WRONG);
    }
    let number = |digits: &[u8]| digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
    let (year, rest) = match (value.tag, digits.len()) {
        (UTC_TIME, 12) => {
            let year = number(&digits[..2]);
            (if year < 50 { 2000 + year } else { 1900 + year }, &digits[2..])
        }
        (GENERALIZED_TIME, 14) => (number(&digits[..4]), &digits[4..]),
        _ => return Err(WRONG),
    };
    let [month, day, hour, minute, second] = [0, 2, 4, 6, 8].map(|at| number(&rest[at..at + 2]));
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return Err(WRONG);
    }
    // Years begin with March, so that the day that some of them lack is the last one.
    let year = if month <= 2 { year - 1 } else { year };
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days = days + (153 * ((month + 9) % 12) + 2) / 5 + day - 1 - 719_468;
    Ok(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// The encoded form of an octet string.
pub(crate) fn octets(content: &[u8]) -> Vec<u8> {
    der::encode(OCTET_STRING, &[content])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tag: u8, text: &str) -> Result<i64, KeyError> {
        seconds(Value { tag, content: text.as_bytes(), whole: &[] })
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(at(UTC_TIME, "700101000000Z"), Ok(0));
        assert_eq!(at(UTC_TIME, "500101000000Z"), Ok(-631_152_000));
        assert_eq!(at(UTC_TIME, "240229235959Z"), Ok(1_709_251_199));
        assert_eq!(at(UTC_TIME, "240301000000Z"), Ok(1_709_251_200));
        assert_eq!(at(UTC_TIME, "491231235959Z"), Ok(2_524_607_999));
        assert_eq!(at(GENERALIZED_TIME, "20500101000000Z"), Ok(2_524_608_000));
        assert_eq!(at(GENERALIZED_TIME, "99991231235959Z"), Ok(253_402_300_799));
        for wrong in
            ["", "Z", "7001010000Z", "701301000000Z", "700100000000Z", "7001010000000", "70010100000xZ"]
        {
            assert!(at(UTC_TIME, wrong).is_err(), "{wrong}");
        }
        assert!(at(GENERALIZED_TIME, "700101000000Z").is_err());
    }
}
