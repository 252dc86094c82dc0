//! The handshake of a reader with its parent, which is a member or another reader.
//!
//! It begins as that of two members does, and an older release refuses it by its purpose. What follows is another hello:
//! a reader has no number, knows its parent by an address alone, and is known to nobody.

use std::time::Duration;

use stoa_core::{HistoryId, Levels, ParentOffer, Share, Standing};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::frame::FrameKind;
use super::hello::{
    self, Local, PROOF_BYTES, Role, SOFTWARE_BYTES_MAX, WRONG_SECRET, field, printable, short,
};
use super::ties::{Asker, LEADS, Ties};
use crate::config::SITE_NAME_BYTES_MAX;
use crate::random;

/// What proves that a connection is for a snapshot that was offered.
pub(super) type Ticket = [u8; 16];

/// Of a server that has nothing that a reader could be given. It soon will.
pub(super) const NO_ENSEMBLE: &str = "is of no ensemble yet";

/// A hello without the text at its end.
const HELLO_BYTES: usize = 93;
/// Ends the text where more follows: how its sender stands as a parent, and its ports. A release that knows nothing of
/// that passes it over.
const TEXT_END: u8 = 0;
const NO_WAY: u8 = u8::MAX;
/// What else a reader says there: these flags, and its number.
const NEWCOMER: u8 = 1;
const LAST_RESORT: u8 = 2;
/// Behind those and its number, of a release whose readers can be below a server of one of several sites: this, and the
/// name of the site, behind its length.
const FOLLOWS_SITES: u8 = 1;
const IS_READER: u8 = 0;
const IS_MEMBER: u8 = 1;

/// What a connection of a reader is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReaderPurpose {
    /// Everything but snapshots.
    Words = 4,
    /// A snapshot that the parent has offered.
    Snapshot = 5,
}

/// Whether the first frame of whoever has connected is that of a reader.
pub(super) fn is_of_reader(hello: &[u8]) -> bool {
    hello.starts_with(&hello::MAGIC)
        && hello
            .get(12)
            .is_some_and(|it| [ReaderPurpose::Words as u8, ReaderPurpose::Snapshot as u8].contains(it))
}

/// How a process stands as a parent, and what goes with that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TieStanding {
    /// Readers right below it.
    pub(super) readers: u32,
    /// As many it lets in.
    pub(super) readers_max: u32,
    /// How many are between a reader below it and the ensemble, itself counted; `None` where it has no way there.
    pub(super) distance: Option<u8>,
    /// Where its clients connect.
    pub(super) client_port: u16,
}

impl TieStanding {
    const BYTES: usize = 11;

    fn write(self, to: &mut Vec<u8>) {
        to.push(TEXT_END);
        to.extend_from_slice(&self.readers.to_le_bytes());
        to.extend_from_slice(&self.readers_max.to_le_bytes());
        to.push(self.distance.unwrap_or(NO_WAY));
        to.extend_from_slice(&self.client_port.to_le_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let [distance] = field(bytes, 8)?;
        Some(Self {
            readers: u32::from_le_bytes(field(bytes, 0)?),
            readers_max: u32::from_le_bytes(field(bytes, 4)?),
            distance: Some(distance).filter(|distance| *distance != NO_WAY),
            client_port: u16::from_le_bytes(field(bytes, 9)?),
        })
    }

    /// The same for whoever chooses among parents.
    pub(super) fn offer(self, round_trip: Duration) -> ParentOffer {
        let Self { readers, readers_max, distance, .. } = self;
        let round_trip_us = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX);
        ParentOffer { readers, readers_max, distance, round_trip_us }
    }
}

/// What one of the two says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReaderHello {
    pub(super) purpose: ReaderPurpose,
    /// Of the process.
    pub(super) tag: u64,
    /// The number of a member.
    pub(super) member: Option<u8>,
    pub(super) levels: Levels,
    pub(super) ticket: Ticket,
    pub(super) standing: Standing,
    /// Name and version of the program.
    pub(super) software: String,
    /// `None` of a release that does not say it. Who does also takes lists of readers, and what they read.
    pub(super) tie: Option<TieStanding>,
    /// The number of a reader that is to belong to the ensemble.
    pub(super) newcomer: Option<u8>,
    /// It has tried all others.
    is_last_resort: bool,
    /// Whether a reader of this release can be one of a site, and what its site is called, or that of its data folder.
    follows_sites: bool,
    pub(super) site: Option<String>,
    partitions: u8,
    proves: bool,
    bytes: Vec<u8>,
}

impl ReaderHello {
    /// Who it is, for people.
    pub(super) fn name(&self) -> String {
        match (self.member, self.newcomer) {
            (Some(member), _) => format!("server {member}"),
            (None, Some(newcomer)) => format!("server {newcomer}, which is a reader"),
            (None, None) => "a reader".to_owned(),
        }
    }

    /// As who it asks to be let in, once it has proved that it knows the secret, if there is one.
    pub(super) fn asker(&self, local: &Local) -> Asker {
        let (is_newcomer, has_proved) = (self.newcomer.is_some(), local.secret.is_some());
        Asker { tag: self.tag, levels: self.levels, is_newcomer, has_proved }
    }

    pub(super) fn parse(bytes: Vec<u8>) -> Result<Self, String> {
        if field(&bytes, 0) != Some(hello::MAGIC) {
            return Err("it does not speak as a Stoa server: what listens or connects there?".into());
        }
        let purpose = match bytes.get(12) {
            Some(4) => ReaderPurpose::Words,
            Some(5) => ReaderPurpose::Snapshot,
            _ => return Err("the purpose of its connection is unknown: is it of another release?".into()),
        };
        let theirs = field(&bytes, 8).map_or(0, u32::from_le_bytes);
        let [partition, partitions] = field(&bytes, 14).ok_or_else(short)?;
        let ours = hello::protocol(Share { partition, partitions });
        if theirs != ours {
            return Err(format!(
                "one server speaks version {theirs} of the protocol between servers, the other one {ours}: update the one \
                 with the older release"
            ));
        }
        let [kind, number, oldest, newest] = field(&bytes, 16).ok_or_else(short)?;
        let member = match kind {
            IS_READER => None,
            IS_MEMBER => Some(number),
            _ => return Err("it is neither a member nor a reader: is it of another release?".into()),
        };
        let history = HistoryId(field(&bytes, 77).ok_or_else(short)?);
        let standing = match bytes.get(76) {
            Some(0) => Standing::New,
            Some(2) => Standing::Has(history),
            _ => return Err("what it says of its history is unknown: is it of another release?".into()),
        };
        // The next release may say more behind that.
        let rest = bytes.get(HELLO_BYTES..).ok_or_else(short)?;
        let mut parts = rest.splitn(2, |byte| *byte == TEXT_END);
        let (text, more) = (parts.next().unwrap_or_default(), parts.next());
        let [flags, number] = more.and_then(|more| field(more, TieStanding::BYTES)).unwrap_or_default();
        let sites = more.and_then(|more| more.get(TieStanding::BYTES + 2..)).unwrap_or_default();
        let named = sites.get(1).map_or(0, |len| usize::from(*len)).min(SITE_NAME_BYTES_MAX);
        let site = sites.get(2..2 + named).filter(|name| !name.is_empty()).map(printable);
        Ok(Self {
            follows_sites: sites.first().is_some_and(|follows| follows & FOLLOWS_SITES != 0),
            site,
            newcomer: Some(number).filter(|_| flags & NEWCOMER != 0),
            is_last_resort: flags & LAST_RESORT != 0,
            purpose,
            tag: u64::from_le_bytes(field(&bytes, 20).ok_or_else(short)?),
            member,
            levels: Levels { oldest, newest },
            ticket: field(&bytes, 28).ok_or_else(short)?,
            standing,
            software: printable(&text[..text.len().min(SOFTWARE_BYTES_MAX)]),
            tie: more.and_then(TieStanding::read),
            partitions,
            proves: bytes.get(13) == Some(&1),
            bytes,
        })
    }
}

fn write(local: &Local, ties: &Ties, purpose: ReaderPurpose, ticket: &Ticket) -> Result<Vec<u8>, String> {
    let challenge: [u8; 32] = random::bytes()?;
    let more = 5 + TieStanding::BYTES + SITE_NAME_BYTES_MAX;
    let mut bytes = Vec::with_capacity(HELLO_BYTES + SOFTWARE_BYTES_MAX + more);
    let partitions = local.share.partitions;
    bytes.extend_from_slice(&hello::MAGIC);
    bytes.extend_from_slice(&hello::protocol(local.share).to_le_bytes());
    bytes.extend_from_slice(&[purpose as u8, u8::from(local.secret.is_some()), 0, partitions]);
    let (kind, number) = match ties.is_reader() {
        true => (IS_READER, 0),
        false => (IS_MEMBER, u8::try_from(local.me).unwrap_or_default()),
    };
    bytes.extend_from_slice(&[kind, number, ties.levels().oldest, ties.levels().newest]);
    bytes.extend_from_slice(&ties.tag().to_le_bytes());
    bytes.extend_from_slice(ticket);
    bytes.extend_from_slice(&challenge);
    let (kind, history) = match *local.standing.borrow() {
        Standing::Has(history) => (2, history),
        _ => (0, HistoryId::default()),
    };
    bytes.push(kind);
    bytes.extend_from_slice(&history.0);
    let text = local.software.as_bytes();
    bytes.extend_from_slice(&text[..text.len().min(SOFTWARE_BYTES_MAX)]);
    ties.standing().write(&mut bytes);
    let flags = match ties.newcomer() {
        Some(_) if ties.has_tried_all() => NEWCOMER | LAST_RESORT,
        Some(_) => NEWCOMER,
        None => 0,
    };
    let site = ties.site().unwrap_or_default();
    let site = &site.as_bytes()[..site.len().min(SITE_NAME_BYTES_MAX)];
    let named = u8::try_from(site.len()).unwrap_or_default();
    bytes.extend_from_slice(&[flags, ties.newcomer().unwrap_or_default(), FOLLOWS_SITES, named]);
    bytes.extend_from_slice(site);
    Ok(bytes)
}

/// Whether both have the same secret or none, and as many partitions, in words for the other side's operator.
fn check_both(local: &Local, own: &str, theirs: &ReaderHello) -> Result<(), String> {
    let other = theirs.name();
    let (with, without) = match (theirs.proves, local.secret.is_some()) {
        (true, false) => (&*other, own),
        (false, true) => (own, &*other),
        _ => {
            let (own_count, their_count) = (local.share.partitions, theirs.partitions);
            if own_count == their_count {
                return Ok(());
            }
            return Err(format!(
                "{own} has {own_count} partitions, {other} {their_count}: a reader has as many as its ensemble (setting \
                 partitions, with an empty data folder)"
            ));
        }
    };
    Err(format!("{with} has a secret, {without} has none: set peer-secret to the same on all servers"))
}

/// Of which ensemble somebody is, and of which site, for people.
fn ensemble(history: HistoryId, site: Option<&String>) -> String {
    match site {
        Some(site) => format!("{history} (the site {site})"),
        None => history.to_string(),
    }
}

impl Ties {
    /// What this process is called in words for the operator of one below it.
    fn own_name(&self, local: &Local) -> String {
        if self.is_reader() { "the reader above".to_owned() } else { format!("server {}", local.me) }
    }

    /// Whether whoever has connected may be a reader of this server.
    pub(super) fn check_reader(&self, local: &Local, reader: &ReaderHello) -> Result<(), String> {
        let own = self.own_name(local);
        if reader.member.is_some() {
            return Err(format!("{} is a member, and looks for {own} as a reader does", reader.name()));
        }
        if reader.tag == self.tag() {
            return Err("this is the same server: an address in reader-of leads back to it".into());
        }
        check_both(local, &own, reader)?;
        let asker = reader.asker(local);
        if self.max() == 0 && !(asker.is_newcomer && asker.has_proved) {
            return Err(match asker.is_newcomer {
                true => format!(
                    "{own} lets no readers in, and a server that is to join only where servers have a secret: set max-readers \
                     on it, or peer-secret on all"
                ),
                false => format!("{own} lets no readers in: set max-readers on it"),
            });
        }
        if asker.is_newcomer && self.leads() && !reader.is_last_resort {
            return Err(format!("{own} is no parent for now: {LEADS}"));
        }
        let Some(history) = local.standing.borrow().history() else {
            return Err(format!("{own} {NO_ENSEMBLE}"));
        };
        if let Some(theirs) = reader.standing.history()
            && theirs != history
        {
            let (ours, theirs) =
                (ensemble(history, self.site().as_ref()), ensemble(theirs, reader.site.as_ref()));
            return Err(format!(
                "{own} is of the ensemble {ours}, the data folder of the reader of {theirs}: see reader-of; to follow {own}, \
                 stop the reader and move that folder away"
            ));
        }
        if let Some(site) = self.site().filter(|_| !reader.follows_sites) {
            return Err(format!(
                "{own} is of {site}, one of several sites, and readers of this release follow none: give the reader the \
                 release of the others"
            ));
        }
        let (level, Levels { oldest, newest }) = (*local.level.borrow(), reader.levels);
        if level > 0 && oldest > level {
            return Err(format!(
                "the reader works at feature level {oldest} and above, {own} uses level {level}: give the reader the release \
                 of the others"
            ));
        }
        if newest < level {
            return Err(format!(
                "the reader reads up to feature level {newest}, {own} uses level {level}: give the reader the release of the \
                 others"
            ));
        }
        if reader.purpose == ReaderPurpose::Words && !self.has_room_for(asker) {
            return Err(format!(
                "{own} has {} readers, as many as max-readers lets in",
                self.readers().len()
            ));
        }
        Ok(())
    }

    fn check_parent(&self, local: &Local, parent: &ReaderHello) -> Result<HistoryId, String> {
        if parent.tag == self.tag() {
            return Err("it is this server itself: take it out of reader-of".into());
        }
        check_both(local, "this reader", parent)?;
        let name = parent.name();
        let history = parent.standing.history().ok_or_else(|| format!("{name} {NO_ENSEMBLE}"))?;
        match local.standing.borrow().history() {
            Some(own) if own != history => {
                let (theirs, ours) =
                    (ensemble(history, parent.site.as_ref()), ensemble(own, self.site().as_ref()));
                Err(format!(
                    "{name} is of the ensemble {theirs}, the data folder of this reader of {ours}: see reader-of; to follow \
                     {name}, stop this reader and move that folder away"
                ))
            }
            _ => Ok(history),
        }
    }
}

/// Introduces a reader to the server that it has connected to, and returns who that is, and how long it took to ask it
/// something.
pub(super) async fn call<S>(
    stream: &mut S,
    (local, ties): (&Local, &Ties),
    purpose: ReaderPurpose,
    ticket: &Ticket,
) -> Result<(ReaderHello, HistoryId, Duration), String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let ours = write(local, ties, purpose, ticket)?;
    hello::send(stream, FrameKind::Hello, &ours).await?;
    let theirs = ReaderHello::parse(hello::receive(stream, FrameKind::Hello).await?)?;
    if theirs.purpose != purpose {
        return Err("it answers for another purpose".into());
    }
    let history = ties.check_parent(local, &theirs)?;
    let asked = Instant::now();
    hello::send(stream, FrameKind::Proof, &local.proof(Role::Reader, &ours, &theirs.bytes)).await?;
    let proof = hello::receive(stream, FrameKind::Accepted).await?;
    let round_trip = asked.elapsed();
    if !local.is_proven(Role::Parent, &ours, &theirs.bytes, &proof) {
        return Err(format!("{} {WRONG_SECRET}", theirs.name()));
    }
    Ok((theirs, history, round_trip))
}

/// Has a reader prove its hello, and proves this server's.
pub(super) async fn answer<S>(
    stream: &mut S,
    (local, ties): (&Local, &Ties),
    bytes: Vec<u8>,
) -> Result<ReaderHello, String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let theirs = ReaderHello::parse(bytes)?;
    ties.check_reader(local, &theirs)?;
    let ours = write(local, ties, theirs.purpose, &[0; 16])?;
    hello::send(stream, FrameKind::Hello, &ours).await?;
    let proof = hello::receive(stream, FrameKind::Proof).await?;
    if !local.is_proven(Role::Reader, &theirs.bytes, &ours, &proof) {
        return Err(format!("the reader {WRONG_SECRET}"));
    }
    let proof: [u8; PROOF_BYTES] = local.proof(Role::Parent, &theirs.bytes, &ours);
    hello::send(stream, FrameKind::Accepted, &proof).await?;
    Ok(theirs)
}
