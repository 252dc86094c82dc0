//! As much of DER as Kerberos needs. What is read comes from anybody: nothing is taken on trust, and nothing is kept.

use super::Malformed;

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const GENERAL_STRING: u8 = 0x1b;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;

/// Elements that stand one behind the other.
#[derive(Clone, Copy)]
pub(super) struct Der<'a>(pub(super) &'a [u8]);

impl<'a> Der<'a> {
    /// The content of the next element, which has to have this tag.
    pub(super) fn take(&mut self, tag: u8) -> Result<Der<'a>, Malformed> {
        let (found, rest) = self.0.split_first().ok_or(Malformed)?;
        if *found != tag {
            return Err(Malformed);
        }
        let (first, mut rest) = rest.split_first().ok_or(Malformed)?;
        let mut length = usize::from(*first);
        if length >= 0x80 {
            let count = length - 0x80;
            // A token has two bytes of length at most.
            if count == 0 || count > 3 || count > rest.len() {
                return Err(Malformed);
            }
            let (bytes, tail) = rest.split_at(count);
            length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
            rest = tail;
        }
        let (content, rest) = rest.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(Der(content))
    }

    /// The same of an element that may be left out.
    pub(super) fn take_if(&mut self, tag: u8) -> Result<Option<Der<'a>>, Malformed> {
        if self.0.first() == Some(&tag) { self.take(tag).map(Some) } else { Ok(None) }
    }

    pub(super) fn sequence(&mut self) -> Result<Der<'a>, Malformed> {
        self.take(SEQUENCE)
    }

    /// `[number]`
    pub(super) fn field(&mut self, number: u8) -> Result<Der<'a>, Malformed> {
        self.take(context(number))
    }

    pub(super) fn field_if(&mut self, number: u8) -> Result<Option<Der<'a>>, Malformed> {
        self.take_if(context(number))
    }

    pub(super) fn integer_bytes(mut self) -> Result<&'a [u8], Malformed> {
        self.take(INTEGER).map(|content| content.0)
    }

    /// A number of at most 32 bits.
    pub(super) fn integer(self) -> Result<i64, Malformed> {
        let bytes = self.integer_bytes()?;
        let first = *bytes.first().ok_or(Malformed)?;
        if bytes.len() > 5 {
            return Err(Malformed);
        }
        let sign = if first & 0x80 == 0 { 0 } else { -1 };
        Ok(bytes.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte)))
    }

    pub(super) fn octets(mut self) -> Result<&'a [u8], Malformed> {
        self.take(OCTET_STRING).map(|content| content.0)
    }

    /// The first 32 flags, the first of them the highest bit.
    pub(super) fn flags(mut self) -> Result<u32, Malformed> {
        let content = self.take(BIT_STRING)?;
        let (_, bits) = content.0.split_first().ok_or(Malformed)?;
        let mut flags = [0; 4];
        for (flag, bits) in flags.iter_mut().zip(bits) {
            *flag = *bits;
        }
        Ok(u32::from_be_bytes(flags))
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        core::str::from_utf8(self.take(GENERAL_STRING)?.0).map_err(|_| Malformed)
    }

    /// `YYYYMMDDHHMMSSZ`
    pub(super) fn time(mut self) -> Result<&'a [u8; 15], Malformed> {
        self.take(GENERALIZED_TIME)?.0.try_into().map_err(|_| Malformed)
    }
}

fn context(number: u8) -> u8 {
    0xa0 | number
}

/// An element.
pub(super) fn put(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len();
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let bytes = length.to_be_bytes();
            let start = bytes.iter().position(|byte| *byte != 0).unwrap_or_default();
            out.push(0x80 | u8::try_from(bytes.len() - start).unwrap_or_default());
            out.extend(&bytes[start..]);
        }
    }
    out.extend(content);
    out
}

pub(super) fn put_field(number: u8, content: &[u8]) -> Vec<u8> {
    put(context(number), content)
}

/// A sequence in an application tag.
pub(super) fn put_message(tag: u8, fields: &[Vec<u8>]) -> Vec<u8> {
    put(tag, &put(SEQUENCE, &fields.concat()))
}

pub(super) fn put_sequence(fields: &[Vec<u8>]) -> Vec<u8> {
    put(SEQUENCE, &fields.concat())
}

pub(super) fn put_number(number: u32) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend(number.to_be_bytes());
    while let [0, second, ..] = bytes[..]
        && second < 0x80
    {
        bytes.remove(0);
    }
    put(INTEGER, &bytes)
}

pub(super) fn put_integer_bytes(bytes: &[u8]) -> Vec<u8> {
    put(INTEGER, bytes)
}

pub(super) fn put_octets(octets: &[u8]) -> Vec<u8> {
    put(OCTET_STRING, octets)
}

pub(super) fn put_time(time: &[u8; 15]) -> Vec<u8> {
    put(GENERALIZED_TIME, time)
}

/// Seconds since 1970 of a time.
pub(super) fn seconds(time: &[u8; 15]) -> Result<i64, Malformed> {
    let (digits, zone) = time.split_at(14);
    if zone != b"Z" || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Malformed);
    }
    let number = |from: usize, to: usize| {
        digits[from..to].iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'))
    };
    let (year, month, day) = (number(0, 4), number(4, 6), number(6, 8));
    let (hour, minute, second) = (number(8, 10), number(10, 12), number(12, 14));
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return Err(Malformed);
    }
    // Years that begin in March, so that the day that is there every four years is their last.
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leaps = years.div_euclid(4) - years.div_euclid(100) + years.div_euclid(400);
    let days = years * 365 + leaps + (months * 153 + 2) / 5 + day - 1 - 719_468;
    Ok(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, expected) in [
            (b"19700101000000Z", Some(0)),
            (b"20240229235959Z", Some(1_709_251_199)),
            (b"20240301000000Z", Some(1_709_251_200)),
            (b"20380119031408Z", Some(1 << 31)),
            (b"20240001000000Z", None),
            (b"20240101240000Z", None),
            (b"20240101000000+", None),
            (b"2024010100000 Z", None),
        ] {
            assert_eq!(seconds(text).ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn numbers_are_written_and_read() {
        for number in [0, 1, 127, 128, 255, 256, 0x7fff_ffff, u32::MAX] {
            assert_eq!(Der(&put_number(number)).integer().ok(), Some(i64::from(number)));
        }
        assert_eq!(put_number(128), [2, 2, 0, 128]);
        assert_eq!(Der(&[2, 1, 0xff]).integer().ok(), Some(-1));
        assert!(Der(&[2, 0]).integer().is_err() && Der(&[2, 6, 1, 0, 0, 0, 0, 0]).integer().is_err());
    }

    #[test]
    fn lengths_are_held_to_what_is_there() {
        for content in [0, 1, 127, 128, 255, 256, 65_535] {
            let element = put(0x60, &vec![7; content]);
            assert_eq!(Der(&element).take(0x60).ok().map(|it| it.0.len()), Some(content));
            assert!(Der(&element[..element.len() - 1]).take(0x60).is_err());
        }
        for broken in [&[0x60][..], &[0x60, 0x80], &[0x60, 0x84, 0, 0, 0, 0], &[0x60, 0x82, 0], &[0x61, 0]] {
            assert!(Der(broken).take(0x60).is_err(), "{broken:?}");
        }
    }
}
