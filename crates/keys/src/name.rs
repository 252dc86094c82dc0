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
        out.push_str(&escaped(&String::from_utf8_lossy(value.content)));
        return Ok(());
    }
    out.push('#');
    value.whole.iter().for_each(|byte| {
        let _ = write!(out, "{byte:02x}");
    });
    Ok(())
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
