//! Java's properties format: `key=value`, `key: value` or `key value`, comments after `#` or `!`, lines
//! continued by a backslash at their end, and backslash escapes.

use std::iter::Peekable;
use std::str::Chars;

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
    let mut lines = text.lines().enumerate();
    while let Some((index, first)) = lines.next() {
        let first = first.trim_start();
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let mut joined = first.to_owned();
        while is_continued(&joined) {
            joined.pop();
            let Some((_, next)) = lines.next() else { break };
            joined.push_str(next.trim_start());
        }
        let line = index + 1;
        let (key, value) = split(&joined).map_err(|message| PropertiesError { line, message })?;
        // ZooKeeper trims both; Java itself would keep spaces after a value.
        properties.push(Property { line, key: key.trim().to_owned(), value: value.trim().to_owned() });
    }
    Ok(properties)
}

/// Whether a line ends in a backslash that is not itself escaped.
fn is_continued(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

fn split(line: &str) -> Result<(String, String), &'static str> {
    let mut letters = line.chars().peekable();
    let mut key = String::new();
    while let Some(letter) = letters.next_if(|letter| !matches!(letter, '=' | ':' | ' ' | '\t' | '\x0c')) {
        key.push(if letter == '\\' { escaped(&mut letters)? } else { letter });
    }
    let is_blank = |letter: &char| matches!(letter, ' ' | '\t' | '\x0c');
    while letters.next_if(is_blank).is_some() {}
    if letters.next_if(|letter| matches!(letter, '=' | ':')).is_some() {
        while letters.next_if(is_blank).is_some() {}
    }
    let mut value = String::new();
    while let Some(letter) = letters.next() {
        value.push(if letter == '\\' { escaped(&mut letters)? } else { letter });
    }
    Ok((key, value))
}

/// The letter that a backslash and what follows it stand for.
fn escaped(letters: &mut Peekable<Chars<'_>>) -> Result<char, &'static str> {
    match letters.next() {
        Some('t') => Ok('\t'),
        Some('n') => Ok('\n'),
        Some('r') => Ok('\r'),
        Some('f') => Ok('\x0c'),
        Some('u') => {
            let digits: String = letters.take(4).collect();
            u32::from_str_radix(&digits, 16)
                .ok()
                .filter(|_| digits.len() == 4)
                .and_then(char::from_u32)
                .ok_or("expected four hexadecimal digits of a letter after \\u")
        }
        Some(letter) => Ok(letter),
        None => Err("the file ends in the middle of an escape"),
    }
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
    fn a_broken_escape_is_refused_with_its_line() {
        assert_eq!(parse("a=1\nb=\\u12\n").unwrap_err().line, 2);
        assert!(parse("a=\\uD800").is_err());
    }
}
