//! The little of DER (X.690) that stores and certificates need: tags of one byte, lengths of up to four.

use crate::KeyError;

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OID: u8 = 0x06;
pub(crate) const UTC_TIME: u8 = 0x17;
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// The tag `[number]` of something that consists of others.
pub(crate) const fn context(number: u8) -> u8 {
    0xa0 | number
}

const ENDS: KeyError = KeyError::Damaged("something in it ends early");

/// One value: its tag, what is in it, and all of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'a> {
    pub(crate) tag: u8,
    pub(crate) content: &'a [u8],
    pub(crate) whole: &'a [u8],
}

impl<'a> Value<'a> {
    /// What is in it, if it has this tag.
    pub(crate) fn expect(self, tag: u8) -> Result<&'a [u8], KeyError> {
        if self.tag == tag { Ok(self.content) } else { Err(KeyError::Damaged("something else is expected")) }
    }

    /// The values in it, if it has this tag.
    pub(crate) fn inside(self, tag: u8) -> Result<Reader<'a>, KeyError> {
        self.expect(tag).map(Reader)
    }
}

/// Values one after another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tag of the next value.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The next value.
    pub(crate) fn value(&mut self) -> Result<Value<'a>, KeyError> {
        let [tag, first, rest @ ..] = self.0 else { return Err(ENDS) };
        if tag & 0x1f == 0x1f {
            return Err(KeyError::Damaged("it has a tag of several bytes"));
        }
        let (len, rest) = match first {
            0..0x80 => (usize::from(*first), rest),
            // Firefox writes stores like that.
            0x80 => {
                return Err(KeyError::Unsupported(
                    "it has values of indefinite length (BER), which are not read: write it anew with \
                     keytool -importkeystore or openssl pkcs12"
                        .to_owned(),
                ));
            }
            0x81..=0x84 => {
                let (len, rest) = rest.split_at_checked(usize::from(first & 0x7f)).ok_or(ENDS)?;
                (len.iter().fold(0_usize, |len, byte| len << 8 | usize::from(*byte)), rest)
            }
            _ => return Err(ENDS),
        };
        let (content, after) = rest.split_at_checked(len).ok_or(ENDS)?;
        let whole = &self.0[..self.0.len() - after.len()];
        self.0 = after;
        Ok(Value { tag: *tag, content, whole })
    }

    /// What is in the next value, which has this tag.
    pub(crate) fn take(&mut self, tag: u8) -> Result<&'a [u8], KeyError> {
        self.value()?.expect(tag)
    }

    /// The values in the next value, which has this tag.
    pub(crate) fn inside(&mut self, tag: u8) -> Result<Reader<'a>, KeyError> {
        self.value()?.inside(tag)
    }

    /// The next value, if it has this tag.
    pub(crate) fn optional(&mut self, tag: u8) -> Result<Option<Value<'a>>, KeyError> {
        if self.peek() == Some(tag) { self.value().map(Some) } else { Ok(None) }
    }

    /// The next value, a number from 0 to 4,294,967,295.
    pub(crate) fn number(&mut self) -> Result<u32, KeyError> {
        let bytes = self.take(INTEGER)?;
        let digits = bytes.strip_prefix(&[0]).unwrap_or(bytes);
        // A negative number begins with a bit that is set.
        if bytes.is_empty() || bytes[0] >= 0x80 || digits.len() > 4 {
            return Err(KeyError::Damaged("a number in it is negative or too large"));
        }
        Ok(digits.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    /// Nothing follows.
    pub(crate) fn end(&self) -> Result<(), KeyError> {
        if self.is_empty() { Ok(()) } else { Err(KeyError::Damaged("something follows where it should end")) }
    }
}

/// The bytes of one value.
pub(crate) fn encode(tag: u8, contents: &[&[u8]]) -> Vec<u8> {
    let len: usize = contents.iter().map(|content| content.len()).sum();
    let bytes = len.to_be_bytes();
    let digits = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
    let mut out = vec![tag];
    if len < 0x80 {
        out.push(len as u8);
    } else {
        out.push(0x80 | digits.len() as u8);
        out.extend(digits);
    }
    contents.iter().for_each(|content| out.extend(*content));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_all_sizes_come_back() {
        for len in [0, 1, 127, 128, 255, 256, 65_535, 65_536] {
            let content = vec![7; len];
            let bytes = encode(OCTET_STRING, &[&content]);
            let mut reader = Reader(&bytes);
            let value = reader.value().unwrap();
            assert_eq!((value.tag, value.content, value.whole), (OCTET_STRING, &*content, &*bytes));
            reader.end().unwrap();
            for end in 0..bytes.len().min(300) {
                assert!(Reader(&bytes[..end]).value().is_err(), "{len} cut at {end}");
            }
        }
    }

    #[test]
    fn numbers_are_bounded() {
        let number = |bytes: &[u8]| Reader(bytes).number();
        assert_eq!(number(&[2, 1, 0]), Ok(0));
        assert_eq!(number(&[2, 2, 0, 0x80]), Ok(128));
        assert_eq!(number(&[2, 5, 0, 0xff, 0xff, 0xff, 0xff]), Ok(u32::MAX));
        let wrong: [&[u8]; 4] = [&[2, 0], &[2, 1, 0x80], &[2, 5, 1, 0, 0, 0, 0], &[4, 1, 1]];
        assert!(wrong.iter().all(|wrong| number(wrong).is_err()));
    }

    #[test]
    fn what_is_no_der_is_refused() {
        let wrong: [&[u8]; 5] =
            [&[], &[0x30], &[0x3f, 0x81, 0], &[0x30, 0x85, 0, 0, 0, 0, 0], &[0x30, 0x84, 255, 255, 255, 255]];
        for wrong in wrong {
            assert!(matches!(Reader(wrong).value(), Err(KeyError::Damaged(_))), "{wrong:?}");
        }
        assert!(matches!(Reader(&[0x30, 0x80, 0, 0]).value(), Err(KeyError::Unsupported(_))));
    }
}
