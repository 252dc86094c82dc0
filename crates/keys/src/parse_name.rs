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
    text.is_empty() || split(text, is_end).iter().all(|part| split(part, is_plus).iter().all(is_attribute))
}

/// The parts between characters that are neither escaped nor in quotes. What is escaped, in Java's eyes, says
/// `is_separator`, which is given the text before the character, and from where on nothing was asked for yet.
fn split(text: &str, is_separator: impl Fn(char, &str, usize) -> Option<bool>) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut begin, mut seen, mut quotes) = (0, 0, 0);
    for (index, character) in text.char_indices() {
        let Some(separates) = is_separator(character, &text[..index], seen) else { continue };
        quotes += quotes_in(&text[seen..index]);
        seen = index + 1;
        if separates && quotes != 1 {
            parts.push(&text[begin..index]);
            (begin, quotes) = (index + 1, 0);
        }
    }
    parts.push(&text[begin..]);
    parts
}

/// Java looks at all backslashes where there are two before the character, not only at those just before it.
fn is_end(character: char, before: &str, seen: usize) -> Option<bool> {
    if !matches!(character, ',' | ';') {
        return None;
    }
    let is_escaped = match before {
        _ if before.ends_with(r"\\") => before[seen..].matches('\\').count() % 2 == 1,
        _ => before.ends_with('\\'),
    };
    Some(!is_escaped)
}

fn is_plus(character: char, before: &str, _: usize) -> Option<bool> {
    (character == '+').then(|| !before.ends_with('\\'))
}

fn quotes_in(text: &str) -> usize {
    let (mut count, mut is_escaped) = (0, false);
    for character in text.chars() {
        count += usize::from(character == '"' && !is_escaped);
        is_escaped = character == '\\' && !is_escaped;
    }
    count
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
    let mut numbers = kind.strip_prefix("OID.").unwrap_or(&kind).split('.');
    let is_number = |digits: &&str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let (Some(first), Some(second)) = (numbers.next().filter(is_number), numbers.next().filter(is_number))
    else {
        return false;
    };
    // As large as they like, but for these two.
    let is_begin = match first.trim_start_matches('0') {
        "" | "1" => second.parse::<u8>().is_ok_and(|second| second < 40),
        "2" => true,
        _ => false,
    };
    is_begin && numbers.all(|digits| is_number(&digits))
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
        let is_first = rest.as_str().len() == text.len();
        match rest.next() {
            None => return true,
            Some('\\') if !is_escape(&mut rest, " ") => return false,
            // One that is not escaped, and to Java did not look like that before. It asks for nothing more.
            Some(',' | '+' | ';') if !is_first => return true,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{hidden, lines};

    /// What Java 17 has said: `tests/data/make.sh`.
    #[test]
    fn texts_are_names_where_java_takes_them() {
        let mut wrong = Vec::new();
        let mut count = [0, 0];
        for (is_name, text) in lines("texts.txt") {
            let expected = is_name == "true";
            count[usize::from(expected)] += 1;
            if parses_as_name(&hidden(&text)) != expected {
                wrong.push(format!("{text} is {is_name}"));
            }
        }
        assert_eq!(wrong, [""; 0]);
        assert!(count[0] > 100 && count[1] > 100, "{count:?}");
    }
}
