//! What is asked of the leader of a partition.
//!
//! ```text
//! asked    := 1, session i64, timeout_ms i32, password buffer                      create
//!           | 2, session i64, timeout_ms i32, password buffer                      open
//!           | 3, session, opening i64, opcode i32, count i32, (scheme, id)*, body  any write;
//!             session 0 if its contact server alone keeps it
//!           | 4, since i64, placed i64, seen, as 3                      where there are partitions
//!           | 5, to u8, path                                            a move; not between servers
//!           | 6, seen, as 1;  | 7, seen, as 2                           where there are partitions
//!           | 8, step u8, site u8, hub u8, reign i64, lost i32, session i64, password buffer
//!                                                                       of the site as a whole; not between servers
//!           | 9, items buffer, count i32, (partition u8, items buffer)*  the same, as items of entries
//! seen     := zxid i64, count i32, position i64*
//! ```
//! Encoded like the clients' protocol.

use alloc::string::ToString;
use alloc::vec::Vec;
use stoa_timeline::BadMessage;
use stoa_tree::{Identity, SiteStep};
use stoa_wire::{Opcode, PASSWORD_LEN, Reader, Timestamp, put};

/// Identities that one connection can hold, that of its address among them: each costs a comparison per ACL check,
/// and all go along with its writes. A packet that would prove more of them is refused.
pub const IDENTITIES_MAX: usize = 64;

const CREATE_SESSION: u8 = 1;
const OPEN_SESSION: u8 = 2;
const WRITE: u8 = 3;
const WRITE_AFTER: u8 = 4;
const MOVE: u8 = 5;
const CREATE_SESSION_AFTER: u8 = 6;
const OPEN_SESSION_AFTER: u8 = 7;
const SITE_STEP: u8 = 8;
const SITE_ITEMS: u8 = 9;

type Result<T> = core::result::Result<T, BadMessage>;

/// A request that a contact server hands to the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked<'a> {
    /// A new session, and what its client had seen.
    CreateSession {
        /// What its client had seen.
        seen: Timestamp,
        /// Its id.
        session: i64,
        /// What it was granted.
        timeout_ms: i32,
        /// Its password.
        password: [u8; PASSWORD_LEN],
    },
    /// A session comes back, with what its client had seen.
    OpenSession {
        /// What its client had seen.
        seen: Timestamp,
        /// Its id.
        session: i64,
        /// What it is granted now.
        timeout_ms: i32,
        /// What the client says its password is.
        password: &'a [u8],
    },
    /// A write, or the end of the session.
    Write {
        /// Whose it is; 0 where its contact server alone keeps the session.
        session: i64,
        /// The number of the request with which the session came to its connection.
        opening: u64,
        /// What it rests on.
        after: After,
        /// What it asks for.
        opcode: Opcode,
        /// What its client has proved to be.
        identities: Vec<Identity>,
        /// The request behind its header.
        body: &'a [u8],
    },
    /// A subtree is to live on another partition; the server itself wants that.
    Move {
        /// The znode that it begins with.
        path: &'a str,
        /// The partition.
        to: u8,
    },
    /// A change of the site as a whole; the server itself wants that, or another site with its session.
    SiteStep(SiteStep<'a>),
    /// Something of the streams between sites, for all partitions, or for those that it concerns.
    SiteItems {
        /// Items for the first partition.
        items: &'a [u8],
        /// And for others.
        others: Vec<(u8, &'a [u8])>,
    },
}

/// What a request rests on, where there are several partitions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct After {
    /// Where on the first partition's timeline its session came to its connection.
    pub since: u64,
    /// By which version of the table of what lives where it came to its partition.
    pub placed: u64,
    /// What its client had seen.
    pub seen: Timestamp,
}

impl<'a> Asked<'a> {
    /// Appends a session that is created or comes back.
    pub fn put_session(
        out: &mut Vec<u8>,
        is_new: bool,
        seen: &Timestamp,
        session: i64,
        timeout_ms: i32,
        password: &[u8],
    ) {
        out.push(match (is_new, seen.is_empty()) {
            (true, true) => CREATE_SESSION,
            (false, true) => OPEN_SESSION,
            (true, false) => CREATE_SESSION_AFTER,
            (false, false) => OPEN_SESSION_AFTER,
        });
        if !seen.is_empty() {
            seen.encode(out);
        }
        put::i64(out, session);
        put::i32(out, timeout_ms);
        put::buffer(out, password);
    }

    /// Appends a write of a session, by its number and opening.
    pub fn put_write(
        out: &mut Vec<u8>,
        (session, opening): (i64, u64),
        after: &After,
        opcode: Opcode,
        identities: &[Identity],
        body: &[u8],
    ) {
        if after.seen.is_empty() {
            out.push(WRITE);
        } else {
            out.push(WRITE_AFTER);
            put_number(out, after.since);
            put_number(out, after.placed);
            after.seen.encode(out);
        }
        put::i64(out, session);
        put_number(out, opening);
        put::i32(out, opcode as i32);
        put::len(out, identities.len());
        for identity in identities {
            put::str(out, &identity.scheme);
            put::str(out, &identity.id);
        }
        put::buffer(out, body);
    }

    /// The same for another site, which knows nothing of this one's partitions, and what it rests on here.
    #[must_use]
    pub fn without_partitions(&self) -> (Vec<u8>, Timestamp) {
        let (mut out, nothing) = (Vec::new(), Timestamp::default());
        match self {
            Self::CreateSession { seen, session, timeout_ms, password } => {
                Self::put_session(&mut out, true, &nothing, *session, *timeout_ms, password);
                (out, seen.clone())
            }
            Self::OpenSession { seen, session, timeout_ms, password } => {
                Self::put_session(&mut out, false, &nothing, *session, *timeout_ms, password);
                (out, seen.clone())
            }
            Self::Write { session, opening, after, opcode, identities, body } => {
                let by = (*session, *opening);
                Self::put_write(&mut out, by, &After::default(), *opcode, identities, body);
                (out, after.seen.clone())
            }
            Self::Move { .. } | Self::SiteStep(_) | Self::SiteItems { .. } => (out, nothing),
        }
    }

    /// Appends a move.
    pub fn put_move(out: &mut Vec<u8>, path: &str, to: u8) {
        out.extend_from_slice(&[MOVE, to]);
        put::str(out, path);
    }

    /// Appends a change of the site as a whole.
    pub fn put_site_step(out: &mut Vec<u8>, step: &SiteStep<'_>) {
        let nothing = (0, 0, 0, 0, 0, &[][..]);
        let (kind, (site, hub, reign, lost, session, password)) = match *step {
            SiteStep::Begin { site, hub } => (0, (site, hub, 0, 0, 0, nothing.5)),
            SiteStep::Token { path, holder, .. } => (1, (holder, 0, 0, 0, 0, path.as_bytes())),
            SiteStep::Reign { reign, hub, lost } => (2, (0, hub, reign, lost, 0, nothing.5)),
            SiteStep::Return { site } => (3, (site, 0, 0, 0, 0, nothing.5)),
            SiteStep::Level { level } => (4, (level, 0, 0, 0, 0, nothing.5)),
            SiteStep::Home { session, password, site } => (5, (site, 0, 0, 0, session, password)),
        };
        out.extend_from_slice(&[SITE_STEP, kind, site, hub]);
        put_number(out, reign);
        put::i32(out, lost.cast_signed());
        put::i64(out, session);
        put::buffer(out, password);
    }

    /// Appends items of the streams.
    pub fn put_site_items(out: &mut Vec<u8>, items: &[u8], others: &[(u8, &[u8])]) {
        out.push(SITE_ITEMS);
        put::buffer(out, items);
        put::len(out, others.len());
        for (partition, items) in others {
            out.push(*partition);
            put::buffer(out, items);
        }
    }

    /// Reads what one of the others wrote.
    ///
    /// # Errors
    /// When it is not well formed.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let [kind] = *reader.take(1)? else { return Err(BadMessage) };
        let asked = match kind {
            CREATE_SESSION | OPEN_SESSION | CREATE_SESSION_AFTER | OPEN_SESSION_AFTER => {
                let seen = match kind {
                    CREATE_SESSION | OPEN_SESSION => Timestamp::default(),
                    _ => Timestamp::decode(&mut reader)?,
                };
                let (session, timeout_ms) = (reader.i64()?, reader.i32()?);
                let password = buffer(&mut reader)?;
                if matches!(kind, CREATE_SESSION | CREATE_SESSION_AFTER) {
                    let password = password.try_into().map_err(|_| BadMessage)?;
                    Self::CreateSession { seen, session, timeout_ms, password }
                } else {
                    Self::OpenSession { seen, session, timeout_ms, password }
                }
            }
            WRITE | WRITE_AFTER => {
                let after = match kind {
                    WRITE => After::default(),
                    _ => After {
                        since: number(&mut reader)?,
                        placed: number(&mut reader)?,
                        seen: Timestamp::decode(&mut reader)?,
                    },
                };
                let (session, opening) = (reader.i64()?, number(&mut reader)?);
                let opcode = Opcode::from_i32(reader.i32()?).ok_or(BadMessage)?;
                let count = reader.count(8)?;
                if count > IDENTITIES_MAX {
                    return Err(BadMessage);
                }
                let mut identities = Vec::with_capacity(count);
                for _ in 0..count {
                    let (scheme, id) = (reader.str()?.to_string(), reader.str()?.to_string());
                    identities.push(Identity { scheme, id });
                }
                Self::Write { session, opening, after, opcode, identities, body: buffer(&mut reader)? }
            }
            SITE_STEP => Self::SiteStep(site_step(&mut reader)?),
            SITE_ITEMS => {
                let items = buffer(&mut reader)?;
                let mut others = Vec::new();
                for _ in 0..reader.count(5)? {
                    let [partition] = *reader.take(1)? else { return Err(BadMessage) };
                    others.push((partition, buffer(&mut reader)?));
                }
                Self::SiteItems { items, others }
            }
            MOVE => {
                let [to] = *reader.take(1)? else { return Err(BadMessage) };
                Self::Move { to, path: reader.str()? }
            }
            _ => return Err(BadMessage),
        };
        if reader.rest().is_empty() { Ok(asked) } else { Err(BadMessage) }
    }
}

fn site_step<'a>(reader: &mut Reader<'a>) -> Result<SiteStep<'a>> {
    let [kind, site, hub] = *reader.take(3)? else { return Err(BadMessage) };
    let (reign, lost) = (number(reader)?, reader.i32()?.cast_unsigned());
    let (session, password) = (reader.i64()?, buffer(reader)?);
    Ok(match kind {
        0 => SiteStep::Begin { site, hub },
        1 => {
            let path = core::str::from_utf8(password).map_err(|_| BadMessage)?;
            SiteStep::Token { path, holder: site, is_home: false }
        }
        2 => SiteStep::Reign { reign, hub, lost },
        3 => SiteStep::Return { site },
        4 => SiteStep::Level { level: site },
        5 => SiteStep::Home { session, password, site },
        _ => return Err(BadMessage),
    })
}

fn buffer<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8]> {
    reader.buffer()?.ok_or(BadMessage)
}

fn number(reader: &mut Reader<'_>) -> Result<u64> {
    Ok(reader.i64()? as u64)
}

fn put_number(out: &mut Vec<u8>, number: u64) {
    put::i64(out, number as i64);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked_samples() -> [Vec<u8>; 9] {
        let mut asked = [const { Vec::new() }; 9];
        let after = After { since: 5, placed: 2, seen: Timestamp::new(3) };
        let identity = Identity { scheme: "ip".into(), id: "127.0.0.1".into() };
        let nothing = Timestamp::default();
        Asked::put_session(&mut asked[0], true, &nothing, 7, 1000, &[1; PASSWORD_LEN]);
        Asked::put_session(&mut asked[1], false, &nothing, 7, 1000, b"short");
        let identities = [identity];
        Asked::put_write(&mut asked[2], (7, 99), &After::default(), Opcode::SetData, &identities, b"body");
        Asked::put_write(&mut asked[3], (7, 99), &after, Opcode::SetData, &identities, b"body");
        Asked::put_move(&mut asked[4], "/a/b", 3);
        Asked::put_session(&mut asked[5], true, &after.seen, 7, 1000, &[1; PASSWORD_LEN]);
        Asked::put_session(&mut asked[6], false, &after.seen, 7, 1000, b"short");
        Asked::put_site_step(&mut asked[7], &SiteStep::Home { session: -4, password: b"p", site: 3 });
        Asked::put_site_items(&mut asked[8], b"items", &[(3, b"others")]);
        asked
    }

    #[test]
    fn what_is_written_is_read_and_cuts_are_refused() {
        for asked in asked_samples() {
            assert!(Asked::decode(&asked).is_ok());
            for len in 0..asked.len() {
                assert!(Asked::decode(&asked[..len]).is_err(), "cut at {len}");
            }
        }
    }
}
