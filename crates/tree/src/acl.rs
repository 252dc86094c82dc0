//! Access control: each distinct ACL is stored once.

use crate::address::{self, Networks};
use crate::hash::{PathHasher, spread};
use crate::{Caller, Identity, Options, digest};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use hashbrown::HashTable;
use stoa_wire::{Acl, AclList, ErrorCode, OPEN_ACL, Reader};

/// The id of `world:anyone` with all permissions, which nearly every znode has. Never freed.
pub(crate) const OPEN: u32 = 0;

#[derive(Debug)]
struct StoredAcl {
    /// The vector as it stands on the wire, with its count. Empty when the slot is free.
    encoded: Box<[u8]>,
    uses: u32,
    /// The permissions that everybody has.
    world: i32,
    digest: u64,
    /// For the table below; seeded, unlike the digest.
    hash: u32,
    /// What each identity may do, where there are many entries.
    index: Option<Box<Index>>,
}

/// From so many entries on, what an identity may do is looked up, and not looked for.
const INDEXED_MIN: usize = 16;

/// The entries of a large ACL, so that a check takes no longer than with a small one.
#[derive(Debug, Default)]
struct Index {
    /// By scheme and id, where they have to be the same.
    exact: BTreeMap<Box<str>, BTreeMap<Box<str>, i32>>,
    networks: Networks,
    /// What any entry of the scheme `sasl` permits: the identity `super` has them all.
    sasl: i32,
}

impl Index {
    fn new(list: AclList<'_>) -> Self {
        let mut index = Self::default();
        for Acl { perms, scheme, id } in list.iter() {
            match scheme {
                "ip" => index.networks.add(id, perms),
                "digest" | "x509" | "sasl" => {
                    index.sasl |= if scheme == "sasl" { perms } else { 0 };
                    *index.exact.entry(scheme.into()).or_default().entry(id.into()).or_default() |= perms;
                }
                _ => {}
            }
        }
        index
    }

    fn perms_of(&self, identity: &Identity) -> i32 {
        match (identity.scheme.as_str(), identity.id.as_str()) {
            ("ip", address) => self.networks.perms_of(address),
            ("sasl", "super") => self.sasl,
            (scheme, id) => self.exact.get(scheme).and_then(|ids| ids.get(id)).copied().unwrap_or(0),
        }
    }
}

/// The ACLs in use, by id. Ids are local to a server.
#[derive(Debug)]
pub(crate) struct AclTable {
    entries: Vec<StoredAcl>,
    free: Vec<u32>,
    by_content: HashTable<u32>,
    hasher: PathHasher,
    skip: bool,
}

/// An ACL of the tree.
#[derive(Debug, Clone, Copy)]
pub struct AclView<'a> {
    entry: &'a StoredAcl,
    skip: bool,
}

impl AclTable {
    pub(crate) fn new(options: &Options) -> Self {
        let mut table = Self {
            entries: Vec::new(),
            free: Vec::new(),
            by_content: HashTable::new(),
            hasher: PathHasher::new(options.hash_seed),
            skip: options.skip_acl,
        };
        let mut encoded = Vec::new();
        Acl::encode_list(&mut encoded, OPEN_ACL.iter().copied());
        let open = table.intern(&encoded).expect("the open ACL is well formed");
        debug_assert_eq!(open, OPEN);
        table
    }

    /// The id of an encoded ACL, with one use more. `None` when the bytes are not an ACL.
    pub(crate) fn intern(&mut self, encoded: &[u8]) -> Option<u32> {
        let hash = self.hasher.child(0, encoded);
        let entries = &self.entries;
        if let Some(id) = self.by_content.find(spread(hash), |id| *entries[*id as usize].encoded == *encoded)
        {
            let id = *id;
            self.retain(id);
            return Some(id);
        }
        let mut reader = Reader::new(encoded);
        let list = AclList::decode(&mut reader).ok().filter(|list| !list.is_empty())?;
        if !reader.rest().is_empty() {
            return None;
        }
        let world = list.iter().filter(is_world).fold(0, |perms, entry| perms | entry.perms);
        let digest = digest::bytes(0, encoded);
        let index = (list.len() >= INDEXED_MIN).then(|| Box::new(Index::new(list)));
        let entry = StoredAcl { encoded: encoded.into(), uses: 1, world, digest, hash, index };
        let id = if let Some(id) = self.free.pop() {
            self.entries[id as usize] = entry;
            id
        } else {
            self.entries.push(entry);
            u32::try_from(self.entries.len() - 1).expect("fewer ACLs than znodes, and those have 32-bit ids")
        };
        let entries = &self.entries;
        self.by_content.insert_unique(spread(hash), id, |id| spread(entries[*id as usize].hash));
        Some(id)
    }

    /// Adds a use.
    #[inline]
    pub(crate) fn retain(&mut self, id: u32) {
        if id != OPEN {
            self.entries[id as usize].uses += 1;
        }
    }

    /// Takes a use away; the last one frees the ACL.
    #[inline]
    pub(crate) fn release(&mut self, id: u32) {
        if id == OPEN {
            return;
        }
        let entry = &mut self.entries[id as usize];
        entry.uses -= 1;
        if entry.uses > 0 {
            return;
        }
        entry.encoded = Box::default();
        entry.index = None;
        if let Ok(found) = self.by_content.find_entry(spread(entry.hash), |other| *other == id) {
            found.remove();
        }
        self.free.push(id);
    }

    #[inline]
    pub(crate) fn view(&self, id: u32) -> AclView<'_> {
        AclView { entry: &self.entries[id as usize], skip: self.skip }
    }

    pub(crate) fn encoded(&self, id: u32) -> &[u8] {
        &self.entries[id as usize].encoded
    }

    pub(crate) fn digest(&self, id: u32) -> u64 {
        self.entries[id as usize].digest
    }

    /// Number of distinct ACLs.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// The ids in use.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.entries).filter(|(_, entry)| !entry.encoded.is_empty()).map(|(id, _)| id)
    }
}

impl<'a> AclView<'a> {
    /// The entries.
    #[must_use]
    pub fn list(&self) -> AclList<'a> {
        AclList::decode(&mut Reader::new(&self.entry.encoded)).expect("checked when it was interned")
    }

    /// The entries as a vector on the wire, with its count.
    #[must_use]
    pub fn encoded(&self) -> &'a [u8] {
        &self.entry.encoded
    }

    /// Whether the caller has at least one of the permissions `perms`.
    #[inline]
    #[must_use]
    pub fn permits(&self, perms: i32, caller: &Caller<'_>) -> bool {
        self.entry.world & perms != 0 || self.skip || self.permits_by_identity(perms, caller)
    }

    #[cold]
    fn permits_by_identity(&self, perms: i32, caller: &Caller<'_>) -> bool {
        if caller.session == 0 || caller.identities.iter().any(|identity| identity.scheme == "super") {
            return true;
        }
        if let Some(index) = &self.entry.index {
            return caller.identities.iter().any(|identity| index.perms_of(identity) & perms != 0);
        }
        self.list().iter().filter(|entry| entry.perms & perms != 0).any(|entry| {
            let same_scheme = caller.identities.iter().filter(|identity| identity.scheme == entry.scheme);
            same_scheme.into_iter().any(|identity| matches(entry.scheme, &identity.id, entry.id))
        })
    }
}

/// An encoded ACL without its count.
pub(crate) fn entries_of(encoded: &[u8]) -> &[u8] {
    encoded.get(4..).unwrap_or_default()
}

fn is_world(entry: &Acl<'_>) -> bool {
    entry.scheme == "world" && entry.id == "anyone"
}

/// Whether the identity `id` is one that the ACL entry means by `expression`.
fn matches(scheme: &str, id: &str, expression: &str) -> bool {
    match scheme {
        "ip" => address::matches(id, expression),
        "digest" | "x509" => id == expression,
        "sasl" => id == expression || id == "super",
        _ => false,
    }
}

/// Whether an ACL may name `id` in this scheme.
fn is_valid_id(scheme: &str, id: &str, options: &Options) -> bool {
    match scheme {
        "ip" => address::is_valid(id),
        // Exactly `user:hash`, not counting empty parts at the end.
        "digest" => id.trim_end_matches(':').split(':').count() == 2,
        "sasl" => options.sasl_scheme && is_principal(id),
        "x509" => options.x509_scheme && is_distinguished_name(id),
        _ => false,
    }
}

/// `name`, `name@REALM` or `name/host@REALM`.
fn is_principal(id: &str) -> bool {
    let Some((name, realm)) = id.split_once('@') else {
        return true;
    };
    !realm.contains(['@', '/']) && name.split('/').count() <= 2
}

/// `attribute=value` parts, separated by commas, semicolons or plus signs, none of which stands behind a backslash or
/// between quotes (RFC 2253). The empty name is valid.
fn is_distinguished_name(id: &str) -> bool {
    let (mut is_escaped, mut is_quoted) = (false, false);
    let mut parts = id.split(|character: char| {
        let is_plain = !core::mem::replace(&mut is_escaped, false);
        is_escaped = is_plain && character == '\\';
        is_quoted ^= is_plain && character == '"';
        is_plain && !is_quoted && matches!(character, ',' | ';' | '+')
    });
    let is_part =
        |part: &str| part.split_once('=').is_some_and(|(attribute, _)| !attribute.trim().is_empty());
    let are_parts = id.is_empty() || parts.all(is_part);
    are_parts && !is_escaped && !is_quoted
}

/// So many bytes the identities may have, at most, for which `auth` stands in an ACL: each time it stands there
/// it stands for all of them, so a request of a megabyte could ask for an ACL of gigabytes.
const EXPANDED_BYTES_MAX: usize = 1 << 20;

/// Bytes of an entry besides scheme and id.
const ENTRY_BYTES: usize = 12;

/// Whether an identity of this scheme says who somebody is, so that `auth` expands to it.
fn is_authenticated(scheme: &str) -> bool {
    matches!(scheme, "digest" | "sasl" | "x509")
}

/// Turns the ACL of a request into the one to store: without duplicates, with the identities of
/// the caller in place of `auth`, checked. Appends it to `encoded` as a vector.
pub(crate) fn resolve(
    requested: AclList<'_>,
    caller: &Caller<'_>,
    options: &Options,
    encoded: &mut Vec<u8>,
) -> Result<(), ErrorCode> {
    let mut seen = BTreeSet::new();
    let mut resolved: Vec<Acl<'_>> = Vec::with_capacity(requested.len());
    let known: Vec<&Identity> =
        caller.identities.iter().filter(|identity| is_authenticated(&identity.scheme)).collect();
    let known_bytes: usize =
        known.iter().map(|identity| ENTRY_BYTES + identity.scheme.len() + identity.id.len()).sum();
    let mut expanded_bytes = 0;
    for entry in requested.iter() {
        if !seen.insert(entry) {
            continue;
        }
        if entry.scheme == "auth" {
            expanded_bytes += known_bytes;
            if known.is_empty() || expanded_bytes > EXPANDED_BYTES_MAX {
                return Err(ErrorCode::InvalidAcl);
            }
            resolved.extend(known.iter().map(|identity| Acl {
                perms: entry.perms,
                scheme: &identity.scheme,
                id: &identity.id,
            }));
        } else if is_world(&entry) || is_valid_id(entry.scheme, entry.id, options) {
            resolved.push(entry);
        } else {
            return Err(ErrorCode::InvalidAcl);
        }
    }
    if resolved.is_empty() {
        return Err(ErrorCode::InvalidAcl);
    }
    Acl::encode_list(encoded, resolved.into_iter());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use stoa_wire::perms::{CREATE, DELETE, READ, WRITE};

    fn identity(scheme: &str, id: &str) -> Identity {
        Identity { scheme: scheme.into(), id: id.into() }
    }

    #[test]
    fn names_of_subjects_are_told_from_other_text() {
        for name in
            ["", "CN=a", "CN=a,O=b", "CN=a+OU=b, C=DE", r"O=Acme\, Inc,C=DE", r#"O="Acme, Inc";C=DE"#, "O="]
        {
            assert!(is_distinguished_name(name), "{name}");
        }
        for other in ["anna", "CN=a,b", "=a", "CN=a,", r"CN=a\", r#"CN="a"#, r"O=Acme\\, Inc"] {
            assert!(!is_distinguished_name(other), "{other}");
        }
    }

    fn encoded(entries: &[Acl<'_>]) -> Vec<u8> {
        let mut encoded = Vec::new();
        Acl::encode_list(&mut encoded, entries.iter().copied());
        encoded
    }

    #[test]
    fn a_large_acl_permits_what_its_entries_do_each_by_itself() {
        let entry = |perms, scheme, id| Acl { perms, scheme, id };
        let named: Vec<String> = (0..20).map(|number| format!("user-{number}:hash")).collect();
        let mut entries: Vec<Acl<'_>> = named.iter().map(|id| entry(READ, "digest", id)).collect();
        entries.extend([
            entry(WRITE, "digest", "user-7:hash"),
            entry(CREATE, "x509", "CN=a"),
            entry(READ, "sasl", "anna"),
            entry(DELETE, "sasl", "bruno"),
            entry(WRITE, "ip", "10.0.0.0/8"),
            entry(CREATE, "ip", "10.1.2.3"),
            entry(READ, "ip", "::1"),
        ]);
        let mut table = AclTable::new(&Options::default());
        let large = table.intern(&encoded(&entries)).unwrap();
        let small: Vec<u32> = entries.iter().map(|it| table.intern(&encoded(&[*it])).unwrap()).collect();
        let identities = [
            identity("digest", "user-7:hash"),
            identity("digest", "user-8:hash"),
            identity("digest", "user-8:other"),
            identity("x509", "CN=a"),
            identity("x509", "anna"),
            identity("sasl", "anna"),
            identity("sasl", "super"),
            identity("ip", "10.1.2.3"),
            identity("ip", "10.9.9.9"),
            identity("ip", "::1"),
            identity("world", "anyone"),
        ];
        let mut permitted = 0;
        for pair in identities.windows(2).chain(identities.chunks(1)).chain([&[][..]]) {
            let caller = Caller { session: 5, identities: pair };
            for perms in [READ, WRITE, CREATE, DELETE, READ | DELETE] {
                let each = small.iter().any(|id| table.view(*id).permits(perms, &caller));
                assert_eq!(table.view(large).permits(perms, &caller), each, "{perms} {pair:?}");
                permitted += usize::from(each);
            }
        }
        assert!(permitted > 20, "{permitted}");
    }

    #[test]
    fn entries_auth_stand_for_no_more_than_a_frame_could_hold() {
        let long = format!("{}:hash", "u".repeat(100_000));
        let identities = [identity("digest", &long), identity("digest", "short:hash")];
        let resolved = |entries: i32| {
            let entries: Vec<Acl<'_>> =
                (1..=entries).map(|perms| Acl { perms, scheme: "auth", id: "" }).collect();
            let requested = encoded(&entries);
            let requested = AclList::decode(&mut Reader::new(&requested)).unwrap();
            let (mut out, options) = (Vec::new(), Options::default());
            let caller = Caller { session: 5, identities: &identities };
            resolve(requested, &caller, &options, &mut out).map(|()| out.len())
        };
        assert!(resolved(10).unwrap() > 1_000_000);
        assert_eq!(resolved(11), Err(ErrorCode::InvalidAcl));
    }

    #[test]
    fn entries_that_are_there_twice_are_stored_once() {
        let anna = Acl { perms: READ, scheme: "digest", id: "anna:hash" };
        let bruno = Acl { perms: READ, scheme: "digest", id: "bruno:hash" };
        let requested = encoded(&[bruno, anna, bruno, anna, Acl { perms: WRITE, ..anna }]);
        let requested = AclList::decode(&mut Reader::new(&requested)).unwrap();
        let mut out = Vec::new();
        resolve(requested, &Caller::SERVER, &Options::default(), &mut out).unwrap();
        assert_eq!(out, encoded(&[bruno, anna, Acl { perms: WRITE, ..anna }]));
    }
}
