//! Addresses in ACLs of the scheme `ip`: `10.1.2.3`, `10.0.0.0/8`, `fe80::/10`.

use alloc::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Address {
    V4(u32),
    V6(u128),
}

impl Address {
    fn parse(text: &str) -> Option<Self> {
        if text.contains(':') { v6(text).map(Self::V6) } else { v4(text).map(Self::V4) }
    }

    fn bits(self) -> u32 {
        match self {
            Self::V4(_) => 32,
            Self::V6(_) => 128,
        }
    }

    /// Keeps the first `bits` bits.
    fn masked(self, bits: u32) -> Self {
        let dropped = self.bits().saturating_sub(bits);
        match self {
            Self::V4(address) => Self::V4(address & u32::MAX.checked_shl(dropped).unwrap_or(0)),
            Self::V6(address) => Self::V6(address & u128::MAX.checked_shl(dropped).unwrap_or(0)),
        }
    }
}

fn v4(text: &str) -> Option<u32> {
    let mut parts = text.split('.');
    let mut address = 0;
    for _ in 0..4 {
        address = address << 8 | u32::from(parts.next()?.parse::<u8>().ok()?);
    }
    parts.next().is_none().then_some(address)
}

fn v6(text: &str) -> Option<u128> {
    const SEGMENTS: usize = 8;
    match text.split_once("::") {
        None => {
            let (address, count) = v6_segments(text)?;
            (count == SEGMENTS).then_some(address)
        }
        Some((_, tail)) if tail.contains("::") => None,
        Some((head, tail)) => {
            let (high, high_count) = v6_segments(head)?;
            let (low, low_count) = v6_segments(tail)?;
            // `::` stands for at least one segment. Without a head the shift is by all 128 bits.
            let room = SEGMENTS.checked_sub(high_count).filter(|room| *room > low_count)?;
            let shift = u32::try_from(room * 16).ok()?;
            Some(high.checked_shl(shift).unwrap_or(0) | low)
        }
    }
}

/// The segments of a part without `::` as one number, and how many there are.
fn v6_segments(text: &str) -> Option<(u128, usize)> {
    if text.is_empty() {
        return Some((0, 0));
    }
    let mut address = 0;
    let mut count = 0;
    for segment in text.split(':') {
        if segment.is_empty() || segment.len() > 4 || segment.starts_with('+') || count == 8 {
            return None;
        }
        address = address << 16 | u128::from(u16::from_str_radix(segment, 16).ok()?);
        count += 1;
    }
    Some((address, count))
}

/// The address and the number of its bits that count.
fn parse_expression(expression: &str) -> Option<(Address, u32)> {
    let (address, bits) = match expression.split_once('/') {
        Some((address, bits)) => (Address::parse(address)?, Some(bits.parse::<u32>().ok()?)),
        None => (Address::parse(expression)?, None),
    };
    let bits = bits.unwrap_or(address.bits());
    (bits <= address.bits()).then_some((address, bits))
}

/// Whether an ACL may hold this expression.
pub(crate) fn is_valid(expression: &str) -> bool {
    parse_expression(expression).is_some()
}

/// Whether the address `id` lies in what the expression means.
pub(crate) fn matches(id: &str, expression: &str) -> bool {
    let (Some((wanted, bits)), Some(address)) = (parse_expression(expression), Address::parse(id)) else {
        return false;
    };
    address.masked(bits) == wanted.masked(bits)
}

/// Many expressions, and what they permit.
#[derive(Debug, Default)]
pub(crate) struct Networks {
    perms: BTreeMap<(u32, Address), i32>,
    /// How many bits count in any of them.
    bits: BTreeSet<u32>,
}

impl Networks {
    /// What is no expression matches nothing.
    pub(crate) fn add(&mut self, expression: &str, perms: i32) {
        if let Some((address, bits)) = parse_expression(expression) {
            *self.perms.entry((bits, address.masked(bits))).or_default() |= perms;
            self.bits.insert(bits);
        }
    }

    /// What all that match permit to the address `id`.
    pub(crate) fn perms_of(&self, id: &str) -> i32 {
        let Some(address) = Address::parse(id) else { return 0 };
        let around = self.bits.iter().filter_map(|bits| self.perms.get(&(*bits, address.masked(*bits))));
        around.fold(0, |all, perms| all | perms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_checked() {
        for good in
            ["1.2.3.4", "0.0.0.0/0", "10.0.0.0/8", "::1", "::", "fe80::/10", "1:2:3:4:5:6:7:8", "1::8/128"]
        {
            assert!(is_valid(good), "{good}");
        }
        for bad in [
            "",
            "1.2.3",
            "1.2.3.4.5",
            "1.2.3.256",
            "1.2.3.4/33",
            "1.2.3.4/-1",
            "1.2.3.4/",
            "a.b.c.d",
            "1:2:3",
            "1::2::3",
            "1:2:3:4:5:6:7::8",
            "1:2:3:4:5:6:7:8:9",
            "12345::",
            "::g",
            "::1/129",
        ] {
            assert!(!is_valid(bad), "{bad}");
        }
    }

    #[test]
    fn prefixes_match() {
        assert!(matches("10.1.2.3", "10.0.0.0/8"));
        assert!(!matches("11.1.2.3", "10.0.0.0/8"));
        assert!(matches("10.1.2.3", "10.1.2.3"));
        assert!(!matches("10.1.2.4", "10.1.2.3"));
        assert!(matches("9.9.9.9", "1.2.3.4/0"));
        assert!(matches("fe80::1", "fe80::/10"));
        assert!(matches("0:0:0:0:0:0:0:1", "::1"));
        assert!(!matches("::2", "::1"));
        assert!(!matches("::1", "0.0.0.0/0"));
        assert!(!matches("nonsense", "0.0.0.0/0"));
    }
    #[test]
    fn many_expressions_match_as_each_by_itself() {
        let ids = ["10.1.2.3", "10.1.9.9", "9.9.9.9", "::1", "fe80::1", "fe80::a01:203", "nonsense", ""];
        let expressions =
            ["10.0.0.0/8", "10.1.2.3", "10.1.2.0/24", "1.2.3.4/0", "::1", "fe80::/10", "::/0", "x"];
        for many in [&expressions[..], &expressions[..3], &expressions[4..], &[]] {
            let mut networks = Networks::default();
            (0..).zip(many).for_each(|(bit, expression)| networks.add(expression, 1 << bit));
            for id in ids {
                let each = (0..).zip(many).map(|(bit, it)| if matches(id, it) { 1 << bit } else { 0 });
                assert_eq!(networks.perms_of(id), each.sum::<i32>(), "{id} {many:?}");
            }
        }
    }
}
