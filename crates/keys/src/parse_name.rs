//! Names written by people: whether Java takes them for one.

use crate::der::Reader;

/// Words for kinds of attributes, in capitals.
const WORDS: [&str; 21] = [
    "CN",
    "C",
    "L",
    "S",
    "ST",
    "O",
    "OU",
    "T",
    "IP",
    "STREET",
    "DC",
    "DNQUALIFIER",
    "DNQ",
    "SURNAME",
    "GIVENNAME",
    "INITIALS",
    "GENERATION",
    "EMAIL",
    "EMAILADDRESS",
    "UID",
    "SERIALNUMBER",
];

/// Whether a text is a name (RFC 1779, RFC 2253 and RFC 4514, and what Java takes besides): what an ACL of the scheme
/// x509 may have as its id, for which ZooKeeper asks `new X500Principal(text)`. The empty text is one.
pub fn parses_as_name(text: &str) -> bool {
    text.is_empty()
        || split(text, &[',', ';']).iter().all(|part| split(part, &['+']).iter().all(is_attribute))
}

/// The parts between these characters, where they are neither escaped nor in quotes.
fn split<'a>(text: &'a str, at: &[char]) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let (mut begin, mut is_quoted, mut is_escaped) = (0, false, false);
    for (index, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ if !is_quoted && at.contains(&character) => {
                parts.push(&text[begin..index]);
                begin = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

/// `WORD=value` or `1.2.3=value`.
fn is_attribute(text: &&str) -> bool {
    let Some((kind, value)) = text.split_once('=') else { return false };
    is_kind(kind.trim_matches(|character| character <= ' '))
        && is_value(value.trim_start_matches([' ', '\n']))
}

fn is_kind(kind: &str) -> bool {
    let kind = kind.to_uppercase();
    if WORDS.contains(&kind.as_str()) {
        return true;
    }
    let numbers: Option<Vec<u64>> =
        kind.strip_prefix("OID.").unwrap_or(&kind).split('.').map(number).collect();
    match numbers.as_deref() {
        Some([0 | 1, second, ..]) => *second < 40,
        Some([2, _, ..]) => true,
        _ => false,
    }
}

fn number(digits: &str) -> Option<u64> {
    if digits.bytes().all(|digit| digit.is_ascii_digit()) { digits.parse().ok() } else { None }
}

fn is_value(value: &str) -> bool {
    match value.as_bytes().first() {
        None => true,
        Some(b'#') => is_hex(&value[1..]),
        Some(b'"') => is_quoted(&value[1..]),
        Some(_) => is_plain(value),
    }
}

/// One value in DER, in hexadecimal digits.
fn is_hex(digits: &str) -> bool {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let digits: Option<Vec<u8>> = digits.as_bytes().iter().map(digit).collect();
    let Some(digits) = digits.filter(|digits| digits.len() % 2 == 0) else { return false };
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    let mut reader = Reader(&bytes);
    reader.value().is_ok() && reader.is_empty()
}

/// What follows a quote, up to the one that ends it and spaces.
fn is_quoted(text: &str) -> bool {
    let mut rest = text.chars();
    loop {
        match rest.next() {
            None => return false,
            Some('"') => return rest.all(|character| matches!(character, ' ' | '\n')),
            Some('\\') if !is_escape(&mut rest, "") => return false,
            Some(_) => {}
        }
    }
}

fn is_plain(text: &str) -> bool {
    let mut rest = text.chars();
    loop {
        match rest.next() {
            None => return true,
            Some('\\') if !is_escape(&mut rest, " ") => return false,
            Some(',' | '+' | '<' | '>' | ';' | '"') => return false,
            Some(_) => {}
        }
    }
}

/// What may follow a backslash: two hexadecimal digits, or what has to be escaped.
fn is_escape(rest: &mut std::str::Chars<'_>, more: &str) -> bool {
    match rest.next() {
        Some(first) if first.is_ascii_hexdigit() => rest.next().is_some_and(|next| next.is_ascii_hexdigit()),
        Some(next) => ",=\n+<>#;\\\"".contains(next) || more.contains(next),
        None => false,
    }
}
