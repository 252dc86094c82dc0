//! What the leaders of two sites say to each other first. The connection is mutual TLS, so each knows by then that the
//! other one belongs to the sites.
//!
//! ```text
//! hello   := "stoa sites", version i32, name, term i64, joined bool, applied i64, imported i64, software
//! welcome := number i32, hub i32, applied i64, software        the number of who said hello, the hub's
//! ```
//! Integers are big-endian, texts have their length before them (i32).

use stoa_core::SiteId;
use stoa_wire::{DecodeError, Reader, put};

/// The protocol between sites, and the state that is sent with it.
const VERSION: i32 = 1;
const MAGIC: &str = "stoa sites";

/// The leader of a site that connects to the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SiteHello {
    /// The site's name.
    pub(super) name: String,
    /// The term in which it leads.
    pub(super) term: u64,
    /// Whether the site has joined the others.
    pub(super) has_joined: bool,
    /// Up to which position of its own log everything is applied.
    pub(super) applied: u64,
    /// Up to which position of the hub's log everything is there.
    pub(super) imported: u64,
    /// What it runs.
    pub(super) software: String,
}

/// What the hub's leader says to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Welcome {
    /// The number of the site.
    pub(super) number: SiteId,
    /// The hub's.
    pub(super) hub: SiteId,
    /// Up to which position of the hub's log everything is applied.
    pub(super) applied: u64,
    /// What it runs.
    pub(super) software: String,
}

impl SiteHello {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put::str(&mut out, MAGIC);
        put::i32(&mut out, VERSION);
        put::str(&mut out, &self.name);
        put::i64(&mut out, self.term.cast_signed());
        put::bool(&mut out, self.has_joined);
        put::i64(&mut out, self.applied.cast_signed());
        put::i64(&mut out, self.imported.cast_signed());
        put::str(&mut out, &self.software);
        out
    }

    /// # Errors
    /// What to tell who has sent it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let unreadable = |_: DecodeError| "what connects is no server of a site".to_owned();
        let mut reader = Reader::new(bytes);
        if reader.str().map_err(unreadable)? != MAGIC {
            return Err("what connects is no server of a site".to_owned());
        }
        let version = reader.i32().map_err(unreadable)?;
        if version != VERSION {
            return Err(format!(
                "it speaks version {version} of the protocol between sites, this server {VERSION}: give all sites the \
                 same release"
            ));
        }
        let mut hello = || {
            Ok(Self {
                name: reader.str()?.to_owned(),
                term: reader.i64()?.cast_unsigned(),
                has_joined: reader.bool()?,
                applied: reader.i64()?.cast_unsigned(),
                imported: reader.i64()?.cast_unsigned(),
                software: reader.str()?.to_owned(),
            })
        };
        hello().map_err(unreadable)
    }
}

impl Welcome {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put::i32(&mut out, self.number.into());
        put::i32(&mut out, self.hub.into());
        put::i64(&mut out, self.applied.cast_signed());
        put::str(&mut out, &self.software);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        Some(Self {
            number: SiteId::try_from(reader.i32().ok()?).ok()?,
            hub: SiteId::try_from(reader.i32().ok()?).ok()?,
            applied: reader.i64().ok()?.cast_unsigned(),
            software: reader.str().ok()?.to_owned(),
        })
    }
}

/// Reads bytes as what a leader of a site says first, and as what it is told: what can be read comes back when it is
/// written. For a fuzzer.
///
/// # Panics
/// When it does not.
pub fn check_site_greeting(bytes: &[u8]) {
    if let Ok(hello) = SiteHello::decode(bytes) {
        assert_eq!(SiteHello::decode(&hello.encode()), Ok(hello));
    }
    if let Some(welcome) = Welcome::decode(bytes) {
        assert_eq!(Welcome::decode(&welcome.encode()), Some(welcome));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_back_and_cuts_do_not() {
        let hello = SiteHello {
            name: "virginia".into(),
            term: 7,
            has_joined: true,
            applied: 1 << 40,
            imported: 3,
            software: "stoa 1".into(),
        };
        let bytes = hello.encode();
        assert_eq!(SiteHello::decode(&bytes), Ok(hello));
        assert!((0..bytes.len()).all(|len| SiteHello::decode(&bytes[..len]).is_err()));
        let welcome = Welcome { number: 2, hub: 1, applied: 9, software: "stoa 1".into() };
        let bytes = welcome.encode();
        assert_eq!(Welcome::decode(&bytes), Some(welcome));
        assert!((0..bytes.len()).all(|len| Welcome::decode(&bytes[..len]).is_none()));
    }

    #[test]
    fn another_version_is_said_to_be_one() {
        let mut out = Vec::new();
        put::str(&mut out, MAGIC);
        put::i32(&mut out, 99);
        assert!(SiteHello::decode(&out).unwrap_err().contains("version 99"));
    }
}
