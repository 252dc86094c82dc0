//! How Java reads a text as a number or as an address, and what it trims.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};

/// `String.trim`: what is cut off are blanks and control characters, and no other spaces. It matters: a word
/// with a space at its end that Java keeps is another word.
pub(super) fn trim(text: &str) -> &str {
    text.trim_matches(|letter| letter <= ' ')
}

/// `Integer.parseInt`: decimal digits, with a sign if there is one.
pub(super) fn parse_int(text: &str) -> Option<i64> {
    in_radix(text, 10).filter(|number| i32::try_from(*number).is_ok())
}

/// `Integer.decode`, behind `Integer.getInteger`.
pub(super) fn decode_int(text: &str) -> Option<i64> {
    decode_long(text).filter(|number| i32::try_from(*number).is_ok())
}

/// `Long.decode`, behind `Long.getLong`: decimal, `0x`, `0X` or `#` and hexadecimal, `0` and octal, behind a
/// sign if there is one.
pub(super) fn decode_long(text: &str) -> Option<i64> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("", &text[1..]),
        _ => ("", text),
    };
    let hexadecimal = ["0x", "0X", "#"].iter().find_map(|prefix| digits.strip_prefix(prefix));
    let (digits, radix) = match hexadecimal {
        Some(digits) => (digits, 16),
        None => match digits.strip_prefix('0').filter(|rest| !rest.is_empty()) {
            Some(digits) => (digits, 8),
            None => (digits, 10),
        },
    };
    if digits.starts_with(['-', '+']) {
        return None;
    }
    in_radix(&format!("{sign}{digits}"), radix)
}

fn in_radix(text: &str, radix: u32) -> Option<i64> {
    i64::from_str_radix(text, radix).ok()
}

/// `InetAddress.getByName`: an address, or a name that is looked up, where IPv4 is preferred; nothing is this
/// machine.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    if text.is_empty() {
        return Some(Ipv4Addr::LOCALHOST.into());
    }
    if let Some(bracketed) = text.strip_prefix('[') {
        return bracketed.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(IpAddr::from);
    }
    if let Some(address) = ipv4(text) {
        return Some(address.into());
    }
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Some(address.into());
    }
    let found: Vec<IpAddr> = (text, 0).to_socket_addrs().ok()?.map(|address| address.ip()).collect();
    found.iter().find(|address| address.is_ipv4()).or(found.first()).copied()
}

/// One to four decimal numbers with points between them; the last one fills what the others leave.
fn ipv4(text: &str) -> Option<Ipv4Addr> {
    let parts: Vec<&str> = text.split('.').collect();
    let (last, first) = parts.split_last()?;
    let number = |part: &str| -> Option<u32> {
        (!part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())).then(|| part.parse().ok())?
    };
    let mut bytes = [0; 4];
    for (byte, part) in bytes.iter_mut().take(3).zip(first) {
        *byte = u8::try_from(number(part)?).ok()?;
    }
    let rest_bits = 8 * 4_usize.checked_sub(first.len()).filter(|left| *left > 0)?;
    let rest = number(last)?;
    if u64::from(rest) >> rest_bits != 0 {
        return None;
    }
    Some(Ipv4Addr::from(u32::from_be_bytes(bytes) | rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_java_reads_them() {
        for (text, parsed, decoded) in [
            ("5", Some(5), Some(5)),
            ("+5", Some(5), Some(5)),
            ("-5", Some(-5), Some(-5)),
            ("010", Some(10), Some(8)),
            ("-010", Some(-10), Some(-8)),
            ("08", Some(8), None),
            ("0", Some(0), Some(0)),
            ("0x10", None, Some(16)),
            ("0X1f", None, Some(31)),
            ("#10", None, Some(16)),
            ("-#10", None, Some(-16)),
            ("0x", None, None),
            ("0x-1", None, None),
            ("0-1", None, None),
            ("--1", None, None),
            ("+-1", None, None),
            ("", None, None),
            ("+", None, None),
            (" 5", None, None),
            ("5 ", None, None),
            ("5s", None, None),
            ("1_000", None, None),
            ("1.0", None, None),
            ("2147483647", Some(2_147_483_647), Some(2_147_483_647)),
            ("2147483648", None, None),
            ("-2147483648", Some(-2_147_483_648), Some(-2_147_483_648)),
            ("0xffffffff", None, None),
        ] {
            assert_eq!(parse_int(text), parsed, "{text:?}");
            assert_eq!(decode_int(text), decoded, "{text:?}");
        }
        assert_eq!(decode_long("-0x8000000000000000"), Some(i64::MIN));
        assert_eq!(decode_long("0x8000000000000000"), None);
        assert_eq!(decode_long("é"), None);
    }

    #[test]
    fn only_blanks_and_control_characters_are_trimmed() {
        assert_eq!(trim("\u{b} \t a b\u{1}\r"), "a b");
        assert_eq!(trim("yes\u{a0}"), "yes\u{a0}");
    }

    #[test]
    fn addresses_and_names_are_read_as_java_reads_them() {
        for (text, expected) in [
            ("", "127.0.0.1"),
            ("10.0.0.1", "10.0.0.1"),
            ("010.0.0.1", "10.0.0.1"),
            ("127.1", "127.0.0.1"),
            ("10.258", "10.0.1.2"),
            ("1", "0.0.0.1"),
            ("::1", "::1"),
            ("[::]", "::"),
            ("localhost", "127.0.0.1"),
        ] {
            assert_eq!(address(text), Some(expected.parse().unwrap()), "{text:?}");
        }
        for wrong in ["[127.0.0.1]", "[::1", "256.0.0.1.1", "*", "a b", "no-such-host.invalid"] {
            assert_eq!(address(wrong), None, "{wrong:?}");
        }
    }
}
