//! Keytabs as MIT's Kerberos writes them: version 5.2, all numbers big-endian.

use super::Principal;

const VERSION: [u8; 2] = [5, 2];

/// More keys than that nobody has for one service.
const ENTRIES_MAX: usize = 10_000;

/// A key of a service.
pub(super) struct Key {
    pub(super) principal: Principal,
    /// The number of the key's version, and of its encryption type.
    pub(super) version: u32,
    pub(super) etype: i64,
    pub(super) bytes: Vec<u8>,
}

/// Reads the keys.
///
/// # Errors
/// When it is not of the format.
pub(super) fn read(keytab: &[u8]) -> Result<Vec<Key>, String> {
    let Some(mut rest) = keytab.strip_prefix(&VERSION) else {
        return Err("the keytab does not begin with 05 02: it is of another version, or no keytab".to_owned());
    };
    let mut keys = Vec::new();
    while !rest.is_empty() {
        let offset = keytab.len() - rest.len();
        let broken = || format!("the keytab is damaged: the entry at byte {offset} is not as it should be");
        let (size, tail) = rest.split_first_chunk().ok_or_else(broken)?;
        let size = i32::from_be_bytes(*size);
        let length = usize::try_from(size.unsigned_abs()).map_err(|_| broken())?;
        // What was deleted has a negative size. Nothing more follows a size of 0.
        let (entry, tail) = match length {
            0 => break,
            length => tail.split_at_checked(length).ok_or_else(broken)?,
        };
        rest = tail;
        if size > 0 {
            keys.push(Bytes(entry).key().ok_or_else(broken)?);
        }
        if keys.len() > ENTRIES_MAX {
            return Err(format!("the keytab has more than {ENTRIES_MAX} entries"));
        }
    }
    Ok(keys)
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn key(mut self) -> Option<Key> {
        let parts = usize::from(self.short()?);
        let realm = self.text()?;
        let parts = (0..parts).map(|_| self.text()).collect::<Option<Vec<String>>>()?;
        let (_name_type, _time) = (self.number()?, self.number()?);
        let short_version = u32::from(self.bytes(1)?[0]);
        let etype = i64::from(self.short()?);
        let length = usize::from(self.short()?);
        let bytes = self.bytes(length)?.to_vec();
        // Newer files have the version in four bytes behind the key, too.
        let version = self.number().filter(|version| *version != 0).unwrap_or(short_version);
        Some(Key { principal: Principal { parts, realm }, version, etype, bytes })
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn short(&mut self) -> Option<u16> {
        self.bytes(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    fn number(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::from(self.short()?);
        String::from_utf8(self.bytes(length)?.to_vec()).ok()
    }
}
