//! Java's properties format: `key=value`, `key: value` or `key value`, comments after `#` or `!`, lines
//! continued by a backslash at their end, and backslash escapes.

use std::iter::Peekable;
use std::str::Chars;

use super::java::trim;

/// One property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Property {
    /// The line that it begins on, from 1.
    pub(super) line: usize,
    pub(super) key: String,
    pub(super) value: String,
}

/// What is wrong with a text, and on which line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PropertiesError {
    pub(super) line: usize,
    pub(super) message: &'static str,
}

/// Every property of a text, in order.
pub(super) fn parse(text: &str) -> Result<Vec<Property>, PropertiesError> {
    let mut properties = Vec::new();
    let mut lines = lines(text).enumerate();
    while let Some((index, first)) = lines.next() {
        let mut joined = first.trim_start_matches(is_blank).to_owned();
        if joined.starts_with(['#', '!']) {
            continue;
        }
        while is_continued(&joined) {
            joined.pop();
            let Some((_, next)) = lines.next() else { break };
            let next = next.trim_start_matches(is_blank);
            // A line of nothing but a backslash has not begun anything yet: a comment may follow.
            if joined.is_empty() && next.starts_with(['#', '!']) {
                continue;
            }
            joined.push_str(next);
        }
        if joined.is_empty() {
            continue;
        }
        let line = index + 1;
        let (key, value) = split(&joined).map_err(|message| PropertiesError { line, message })?;
        // ZooKeeper trims both; Java itself would keep spaces after a value.
        properties.push(Property { line, key: trim(&key).to_owned(), value: trim(&value).to_owned() });
    }
    Ok(properties)
}

/// Lines end with a line feed, a carriage return, or both.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).flat_map(|line| line.split('\r'))
}

/// No other space separates anything.
fn is_blank(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\x0c')
}

/// Whether a line ends in a backslash that is not itself escaped.
fn is_continued(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

fn split(line: &str) -> Result<(String, String), &'static str> {
    let mut letters = line.chars().peekable();
    let key = unescape(&mut letters, |letter| is_blank(letter) || matches!(letter, '=' | ':'))?;
    while letters.next_if(|letter| is_blank(*letter)).is_some() {}
    if letters.next_if(|letter| matches!(letter, '=' | ':')).is_some() {
        while letters.next_if(|letter| is_blank(*letter)).is_some() {}
    }
    let value = unescape(&mut letters, |_| false)?;
    Ok((key, value))
}

/// What stands before a letter that ends it, with its escapes resolved.
fn unescape(letters: &mut Peekable<Chars<'_>>, ends: impl Fn(char) -> bool) -> Result<String, &'static str> {
    // An escape is of half of a pair of UTF-16, as a letter is to Java.
    let mut units: Vec<u16> = Vec::new();
    while let Some(letter) = letters.next_if(|letter| !ends(*letter)) {
        if letter == '\\' {
            escaped(letters, &mut units)?;
        } else {
            units.extend_from_slice(letter.encode_utf16(&mut [0; 2]));
        }
    }
    Ok(String::from_utf16_lossy(&units))
}

/// What a backslash and what follows it stand for.
fn escaped(letters: &mut Peekable<Chars<'_>>, units: &mut Vec<u16>) -> Result<(), &'static str> {
    let letter = match letters.next() {
        Some('t') => '\t',
        Some('n') => '\n',
        Some('r') => '\r',
        Some('f') => '\x0c',
        Some('u') => {
            units.push(hexadecimal(letters)?);
            return Ok(());
        }
        Some(letter) => letter,
        None => return Err("the file ends in the middle of an escape"),
    };
    units.extend_from_slice(letter.encode_utf16(&mut [0; 2]));
    Ok(())
}

fn hexadecimal(letters: &mut Peekable<Chars<'_>>) -> Result<u16, &'static str> {
    const EXPECTED: &str = "expected four hexadecimal digits of a letter after \\u";
    let mut unit = 0;
    for _ in 0..4 {
        let digit = letters.next().and_then(|letter| letter.to_digit(16)).ok_or(EXPECTED)?;
        unit = (unit << 4) | digit;
    }
    u16::try_from(unit).map_err(|_| EXPECTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(usize, String, String)> {
        parse(text).unwrap().into_iter().map(|found| (found.line, found.key, found.value)).collect()
    }

    #[test]
    fn keys_and_values_are_split_as_java_does() {
        let text = "a=1\n b : 2 \nc 3\n# no\n! no\n\nd\\ e\\=f = g\\th\\u0041\ni=j\\\n   k\nl\nm=C:\\\\x\n";
        let expected = [
            (1, "a", "1"),
            (2, "b", "2"),
            (3, "c", "3"),
            (7, "d e=f", "g\thA"),
            (8, "i", "jk"),
            (10, "l", ""),
            (11, "m", "C:\\x"),
        ];
        assert_eq!(pairs(text), expected.map(|(line, key, value)| (line, key.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_line_may_end_with_a_carriage_return_alone() {
        assert_eq!(pairs("a=1\rb=2\r\nc=3\\\r\n4\\\r#5").len(), 3);
        assert_eq!(pairs("a=1\\\r\n2\\\r#3"), [(1, "a".to_owned(), "12#3".to_owned())]);
    }

    #[test]
    fn a_line_of_a_backslash_has_not_begun_anything() {
        assert_eq!(pairs("\\\n# no\na=1\\"), [(3, "a".to_owned(), "1".to_owned())]);
        assert_eq!(pairs("\\"), []);
    }

    #[test]
    fn other_spaces_than_blanks_belong_to_what_they_stand_beside() {
        assert_eq!(pairs("\u{a0}a=1\u{a0}\n"), [(1, "\u{a0}a".to_owned(), "1\u{a0}".to_owned())]);
    }

    #[test]
    fn a_letter_may_be_escaped_in_two_halves() {
        let pair = "a=\\ud83d\\ude00\\\u{1f600}";
        assert_eq!(pairs(pair), [(1, "a".to_owned(), "\u{1f600}\u{1f600}".to_owned())]);
        assert_eq!(pairs("a=\\uD800")[0].2, "\u{fffd}");
    }

    #[test]
    fn a_broken_escape_is_refused_with_its_line() {
        assert_eq!(parse("a=1\nb=\\u12\n").unwrap_err().line, 2);
        assert!(parse("a=\\u+123").is_err());
    }
}
