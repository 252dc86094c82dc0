//! Who may do what.

use stoa_wire::{ErrorCode, perms};

/// A proved identity: scheme and id.
pub(crate) type Identity = (String, String);

/// One entry of an ACL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Permission bits.
    pub(crate) perms: i32,
    /// The scheme.
    pub(crate) scheme: String,
    /// The id within it.
    pub(crate) id: String,
}

/// `world:anyone` with the given permissions.
pub(super) fn world(perms: i32) -> Vec<Entry> {
    vec![Entry { perms, scheme: "world".into(), id: "anyone".into() }]
}

/// Whether one of `perms` is granted to one of `identities`.
pub(super) fn permits(acl: &[Entry], perms: i32, identities: &[Identity]) -> bool {
    if acl.is_empty() || identities.iter().any(|(scheme, _)| scheme == "super") {
        return true;
    }
    acl.iter().filter(|entry| entry.perms & perms != 0).any(|entry| {
        (entry.scheme == "world" && entry.id == "anyone")
            || identities.iter().any(|(scheme, id)| *scheme == entry.scheme && matches(entry, id))
    })
}

fn matches(entry: &Entry, id: &str) -> bool {
    match entry.scheme.as_str() {
        "ip" => in_network(id, &entry.id),
        _ => entry.id == id,
    }
}

/// Whether an IPv4 address lies in `network`, written `a.b.c.d` or `a.b.c.d/bits`.
fn in_network(address: &str, network: &str) -> bool {
    let (base, bits) = match network.split_once('/') {
        Some((base, bits)) => (base, bits.parse().unwrap_or(99)),
        None => (network, 32),
    };
    let (Some(address), Some(base)) = (octets(address), octets(base)) else { return false };
    let mask = if bits == 0 { 0 } else { u32::MAX << (32 - bits) };
    address & mask == base & mask
}

fn octets(text: &str) -> Option<u32> {
    let parts: Vec<u8> = text.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    Some(u32::from_be_bytes(parts.try_into().ok()?))
}

/// The ACL as it is stored: without doubles, `auth` replaced by who the caller is.
pub(super) fn stored<'a>(
    list: impl Iterator<Item = stoa_wire::Acl<'a>>,
    identities: &[Identity],
) -> Result<Vec<Entry>, ErrorCode> {
    let mut unique: Vec<Entry> = Vec::new();
    for acl in list {
        let entry = Entry { perms: acl.perms, scheme: acl.scheme.into(), id: acl.id.into() };
        if !unique.contains(&entry) {
            unique.push(entry);
        }
    }
    if unique.is_empty() {
        return Err(ErrorCode::InvalidAcl);
    }
    let mut stored = Vec::new();
    for entry in unique {
        match entry.scheme.as_str() {
            "world" if entry.id == "anyone" => stored.push(entry),
            "auth" => {
                let before = stored.len();
                // An address is no authentication.
                let proved = identities.iter().filter(|(scheme, _)| scheme == "digest");
                stored.extend(proved.map(|(scheme, id)| Entry {
                    perms: entry.perms,
                    scheme: scheme.clone(),
                    id: id.clone(),
                }));
                if stored.len() == before {
                    return Err(ErrorCode::InvalidAcl);
                }
            }
            "digest" if entry.id.split(':').count() == 2 => stored.push(entry),
            "ip" if is_network(&entry.id) => stored.push(entry),
            _ => return Err(ErrorCode::InvalidAcl),
        }
    }
    Ok(stored)
}

fn is_network(id: &str) -> bool {
    match id.split_once('/') {
        Some((base, bits)) => octets(base).is_some() && bits.parse::<u32>().is_ok_and(|bits| bits <= 32),
        None => octets(id).is_some(),
    }
}

/// The ACL as getACL shows it to somebody who may not administrate the znode.
pub(super) fn masked(acl: &[Entry], identities: &[Identity]) -> Vec<Entry> {
    let mut shown = acl.to_vec();
    if !permits(acl, perms::ADMIN, identities) {
        for entry in shown.iter_mut().filter(|entry| entry.scheme == "digest") {
            if let Some(colon) = entry.id.find(':') {
                entry.id.truncate(colon);
                entry.id.push_str(":x");
            }
        }
    }
    shown
}
