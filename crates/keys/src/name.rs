//! The name that a certificate is for, as Java prints it: ZooKeeper's ids of the scheme x509 are such texts, and they
//! are compared byte for byte, so what Java does differently from RFC 2253 is done here as well.

use std::fmt::Write;

use rustls::pki_types::CertificateDer;

use crate::KeyError;
use crate::certificate::Certificate;
use crate::der::{OID, Reader, SEQUENCE, SET, Value};

/// The kinds of attributes that have a word (RFC 2253, 2.3).
const WORDS: [(&[u8], &str); 9] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
];

/// The tags of texts: UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString.
const TEXTS: [u8; 6] = [0x0c, 0x13, 0x14, 0x16, 0x1b, 0x1e];

/// The subject of a certificate, as `X500Principal.getName()` of Java 17 gives it: RFC 2253 with the attributes in
/// reverse order, those without a word as `OID=#hex`.
///
/// # Errors
/// When it is no certificate.
pub fn subject(certificate: &CertificateDer<'_>) -> Result<String, KeyError> {
    print(Certificate::of(certificate)?.subject)
}

/// A name (RFC 5280, 4.1.2.4) as Java prints it.
fn print(name: &[u8]) -> Result<String, KeyError> {
    let mut parts = Reader(name).inside(SEQUENCE)?;
    let mut printed = Vec::new();
    while !parts.is_empty() {
        let mut attributes = parts.inside(SET)?;
        let mut out = String::new();
        while !attributes.is_empty() {
            let mut attribute = attributes.inside(SEQUENCE)?;
            let kind = attribute.take(OID)?;
            let value = attribute.value()?;
            if !out.is_empty() {
                out.push('+');
            }
            print_attribute(&mut out, kind, value)?;
        }
        printed.push(out);
    }
    printed.reverse();
    Ok(printed.join(","))
}

fn print_attribute(out: &mut String, kind: &[u8], value: Value<'_>) -> Result<(), KeyError> {
    let word = WORDS.iter().find(|(known, _)| *known == kind).map(|(_, word)| *word);
    match word {
        Some(word) => out.push_str(word),
        None => out.push_str(&dotted(kind).ok_or(KeyError::Damaged("it names a kind of attribute wrongly"))?),
    }
    out.push('=');
    if word.is_some() && TEXTS.contains(&value.tag) {
        // A BMPString as well, which is none: so does Java.
        out.push_str(&escaped(&decoded(value.content)));
        return Ok(());
    }
    out.push('#');
    value.whole.iter().for_each(|byte| {
        let _ = write!(out, "{byte:02x}");
    });
    Ok(())
}

/// UTF-8. What is none is replaced as Java does it: half of a surrogate pair counts as one mistake, not as three.
fn decoded(mut bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    loop {
        let error = match std::str::from_utf8(bytes) {
            Ok(rest) => return out + rest,
            Err(error) => error,
        };
        let (good, bad) = bytes.split_at(error.valid_up_to());
        out.push_str(&String::from_utf8_lossy(good));
        out.push(char::REPLACEMENT_CHARACTER);
        let len = match bad {
            [0xed, 0xa0..=0xbf, 0x80..=0xbf, ..] => 3,
            [0xed, 0xa0..=0xbf, ..] => 2,
            _ => error.error_len().unwrap_or(bad.len()),
        };
        bytes = &bad[len..];
    }
}

/// RFC 2253, 2.4, as Java does it: `=` is escaped too, and a carriage return counts as space.
fn escaped(text: &str) -> String {
    let is_space = |character: &char| matches!(character, ' ' | '\r');
    let count = text.chars().count();
    let lead = text.chars().take_while(is_space).count();
    let trail = text.chars().rev().take_while(is_space).count();
    let mut out = String::with_capacity(text.len());
    for (at, character) in text.chars().enumerate() {
        match character {
            '\0' => out.push_str("\\00"),
            ',' | '=' | '+' | '<' | '>' | '#' | ';' | '"' | '\\' => out.extend(['\\', character]),
            _ if at < lead || at >= count - trail => out.extend(['\\', character]),
            _ => out.push(character),
        }
    }
    out
}

/// An object identifier with dots. None where it is none, or has a number of more than 128 bits.
pub(crate) fn dotted(oid: &[u8]) -> Option<String> {
    let mut out = String::new();
    let mut number: u128 = 0;
    let mut is_under_way = false;
    for byte in oid {
        number = number.checked_mul(128)?.checked_add(u128::from(byte & 0x7f))?;
        is_under_way = byte & 0x80 != 0;
        if is_under_way {
            continue;
        }
        if out.is_empty() {
            let first = (number / 40).min(2);
            let _ = write!(out, "{first}.{}", number - first * 40);
        } else {
            let _ = write!(out, ".{number}");
        }
        number = 0;
    }
    (!is_under_way && !out.is_empty()).then_some(out)
}

/// The last common name of a subject. None where there is none, or it is no text.
pub(crate) fn common_name(subject: &[u8]) -> Option<&str> {
    let mut parts = Reader(subject).inside(SEQUENCE).ok()?;
    let mut found = None;
    while !parts.is_empty() {
        let mut attributes = parts.inside(SET).ok()?;
        while !attributes.is_empty() {
            let mut attribute = attributes.inside(SEQUENCE).ok()?;
            let (kind, value) = (attribute.take(OID).ok()?, attribute.value().ok()?);
            if kind == WORDS[0].0 && TEXTS.contains(&value.tag) {
                found = std::str::from_utf8(value.content).ok();
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{from_hex, lines, shown};

    /// What Java 17 has printed: `tests/data/make.sh`.
    #[test]
    fn names_are_printed_as_java_prints_them() {
        let mut count = 0;
        for (der, printed) in lines("names.txt") {
            let name = from_hex(&der);
            assert_eq!(print(&name).map(|text| shown(&text)), Ok(printed), "{der}");
            count += 1;
        }
        assert!(count > 300, "{count}");
    }

    #[test]
    fn a_name_that_is_cut_is_none() {
        for (der, _) in lines("names.txt") {
            let name = from_hex(&der);
            for end in 0..name.len() {
                assert!(print(&name[..end]).is_err(), "{der} cut at {end}");
            }
        }
    }

    #[test]
    fn object_identifiers_have_bounds() {
        assert_eq!(dotted(&[0x55, 4, 3]).as_deref(), Some("2.5.4.3"));
        assert_eq!(dotted(&[0x88, 0x37, 3]).as_deref(), Some("2.999.3"));
        assert_eq!(dotted(&[]), None);
        assert_eq!(dotted(&[0x55, 0x84]), None);
        assert_eq!(dotted(&[0xff; 30]), None);
    }
}
