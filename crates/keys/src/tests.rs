//! What tests of several modules need.

use std::path::Path;

/// The bytes of a file of `tests/data`.
pub(crate) fn data(name: &str) -> Vec<u8> {
    let path = match std::env::var_os("STOA_KEYS_DATA") {
        Some(folder) => Path::new(&folder).join(name),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name),
    };
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines of a file, each of which has two words.
pub(crate) fn lines(name: &str) -> Vec<(String, String)> {
    let text = String::from_utf8(data(name)).unwrap();
    let pair = |line: &str| line.split_once(' ').map(|(one, two)| (one.to_owned(), two.to_owned())).unwrap();
    text.lines().map(pair).collect()
}

pub(crate) fn from_hex(digits: &str) -> Vec<u8> {
    digits.as_bytes().chunks(2).map(byte).collect()
}

fn byte(pair: &[u8]) -> u8 {
    u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()
}

/// A text as such files have it: `%xx` for what is no printable ASCII.
pub(crate) fn shown(text: &str) -> String {
    let each = |byte: u8| match byte {
        0..=b' ' | 0x7f.. | b'%' => format!("%{byte:02x}"),
        _ => char::from(byte).to_string(),
    };
    text.bytes().map(each).collect()
}

/// The other way round.
pub(crate) fn hidden(shown: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = shown.as_bytes();
    while let [first, more @ ..] = rest {
        rest = more;
        if *first == b'%' {
            bytes.push(byte(&more[..2]));
            rest = &more[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).unwrap()
}
