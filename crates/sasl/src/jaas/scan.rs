//! Words of a login configuration, as Java's `StreamTokenizer` makes them out.

use core::iter::Peekable;
use core::str::Chars;

use super::JaasError;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    Quoted(String),
    Sign(char),
    /// What begins as a number does. It is a word to people, but not to Java.
    Number,
    End,
}

impl Token {
    /// An error about this token, without what may be a password.
    pub(super) fn unexpected(&self, line: u32, expected: &str) -> JaasError {
        let found = match self {
            Self::Word(_) => "a word".to_owned(),
            Self::Quoted(_) => "a text in quotes".to_owned(),
            Self::Sign('\'') => "a single quote; only double quotes are quotes here".to_owned(),
            Self::Sign(sign) => format!("{sign:?}"),
            Self::Number => "a number, which has to be in double quotes".to_owned(),
            Self::End => "the end of the file".to_owned(),
        };
        JaasError::new(line, format!("expected {expected}, found {found}"))
    }
}

pub(super) struct Scanner<'a> {
    rest: Peekable<Chars<'a>>,
    line: u32,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text.chars().peekable(), line: 1 }
    }

    /// The next token, with the line on which it begins.
    pub(super) fn next(&mut self) -> Result<(u32, Token), JaasError> {
        loop {
            let line = self.line;
            let Some(first) = self.step() else { return Ok((line, Token::End)) };
            let token = match first {
                '\0'..=' ' => continue,
                '/' => {
                    self.comment(line)?;
                    continue;
                }
                '"' => Token::Quoted(self.quoted(line)?),
                '0'..='9' | '.' => {
                    self.word(first);
                    Token::Number
                }
                '-' if matches!(self.rest.peek(), Some('0'..='9' | '.')) => {
                    self.word(first);
                    Token::Number
                }
                // Java has it begin no word.
                '-' => Token::Sign(first),
                _ if in_word(first) => Token::Word(self.word(first)),
                _ => Token::Sign(first),
            };
            return Ok((line, token));
        }
    }

    /// Passes over a sign.
    pub(super) fn expect(&mut self, sign: char) -> Result<(), JaasError> {
        match self.next()? {
            (_, Token::Sign(found)) if found == sign => Ok(()),
            (line, other) => Err(other.unexpected(line, &format!("`{sign}`"))),
        }
    }

    /// A word or a text in quotes.
    pub(super) fn text(&mut self, expected: &str) -> Result<(u32, String), JaasError> {
        match self.next()? {
            (line, Token::Word(text) | Token::Quoted(text)) => Ok((line, text)),
            (line, other) => Err(other.unexpected(line, expected)),
        }
    }

    /// The next character. A line ends with `\n`, `\r` or both.
    fn step(&mut self) -> Option<char> {
        let next = self.rest.next()?;
        if next == '\n' || (next == '\r' && self.rest.peek() != Some(&'\n')) {
            self.line = self.line.saturating_add(1);
        }
        Some(next)
    }

    fn word(&mut self, first: char) -> String {
        let mut word = String::from(first);
        while let Some(next) = self.rest.next_if(|next| in_word(*next)) {
            word.push(next);
        }
        word
    }

    /// Passes over a comment, behind its `/`.
    fn comment(&mut self, line: u32) -> Result<(), JaasError> {
        if self.rest.next_if_eq(&'*').is_none() {
            while self.rest.next_if(|next| !matches!(next, '\n' | '\r')).is_some() {}
            return Ok(());
        }
        let mut last = ' ';
        while let Some(next) = self.step() {
            if (last, next) == ('*', '/') {
                return Ok(());
            }
            last = next;
        }
        Err(JaasError::new(line, "expected `*/` at the end of the comment that begins here"))
    }

    /// A text in quotes, behind the first one.
    fn quoted(&mut self, line: u32) -> Result<String, JaasError> {
        let mut text = String::new();
        loop {
            match self.rest.next() {
                Some('"') => return Ok(text),
                Some('\\') => match self.rest.next() {
                    Some(escaped) if !matches!(escaped, '\n' | '\r') => text.push(self.escape(escaped)),
                    _ => break,
                },
                Some(next) if !matches!(next, '\n' | '\r') => text.push(next),
                _ => break,
            }
        }
        Err(JaasError::new(line, "expected `\"` at the end of the text in quotes, on the same line"))
    }

    /// What stands behind a backslash: Java's letters, up to three octal digits, or the character itself.
    fn escape(&mut self, escaped: char) -> char {
        match escaped {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            '0'..='7' => self.octal(escaped),
            other => other,
        }
    }

    fn octal(&mut self, first: char) -> char {
        let mut number = first.to_digit(8).unwrap_or_default();
        // A third digit only behind a first one of up to 3: 377 is 255.
        let more = if first <= '3' { 2 } else { 1 };
        for _ in 0..more {
            let Some(digit) = self.rest.peek().and_then(|next| next.to_digit(8)) else { break };
            number = number * 8 + digit;
            self.rest.next();
        }
        char::from_u32(number).unwrap_or_default()
    }
}

/// Whether a word may have it, in the middle at least.
fn in_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || "._-$*".contains(character) || character >= '\u{a0}'
}
