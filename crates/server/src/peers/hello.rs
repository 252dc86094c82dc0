//! The handshake: who is who, and the proof of it.
//!
//! The initiator proves first: whoever merely connects learns nothing that a guess at the secret
//! could be tested with.

use std::fmt::Write as _;
use std::io;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use stoa_core::{DiskId, Disks, HistoryId, KnownDisk, Levels, Share, Standing, Start, Starts};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

use super::copied::Copied;
use super::frame::{self, FrameKind, HEADER_BYTES, Header};
use super::stream::TLS_WAY_OUT;
use crate::config::READER_ID;
use crate::random;

/// The version of the protocol; servers with another are refused.
pub(super) const PROTOCOL: u32 = 5;
/// The same of servers with several partitions: they had logs of their own before.
const PROTOCOL_OF_SEVERAL: u32 = 6;

pub(super) fn protocol(share: Share) -> u32 {
    if share.partitions > 1 { PROTOCOL_OF_SEVERAL } else { PROTOCOL }
}
/// Until it is proven who speaks, no frame may be longer.
const FRAME_BYTES_MAX: usize = 1 << 10;
pub(super) const MAGIC: [u8; 8] = *b"STOAPEER";
/// A hello without the starts, and the text and the levels at its end.
const HELLO_BYTES: usize = 138;
const START_BYTES: usize = 8;
pub(super) const SOFTWARE_BYTES_MAX: usize = 64;
/// Ends the text where more follows: the levels, and what messages are understood. A release that knows nothing of
/// them has them for more of the text.
const TEXT_END: u8 = 0;
/// The bit of a server that understands messages of the forest. Those that a server says nothing of are not sent to it.
const READS_FOREST: u8 = 1;
const GIVES_SNAPSHOTS: u8 = 2;
pub(super) const PROOF_BYTES: usize = 32;
/// Reasons and other texts of others have no more bytes, and are cut after as many characters before they are shown.
const TEXT_MAX: usize = 256;

/// What a server with TLS answers when it is spoken to without: a record of TLS that is an alert.
const TLS_ALERT: [u8; 2] = [21, 3];
/// Behind whoever has not proven it.
pub(super) const WRONG_SECRET: &str = "does not know the secret: set peer-secret to the same on all servers";

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Messages = 1,
    Snapshot = 2,
    /// Nothing: that it ends is all it says.
    Lifeline = 3,
}

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The member that it is.
    pub(crate) id: u64,
    /// Its data folder.
    pub(crate) disk: DiskId,
    /// Its starts with that.
    pub(crate) starts: Starts,
    /// What it knows of this server.
    pub(crate) knows: Option<KnownDisk>,
    /// Which history it has, or would found.
    pub(crate) standing: Standing,
    /// The version of the protocol between servers.
    pub(crate) protocol: u32,
    /// Name and version of its program.
    pub(crate) software: String,
    /// At which feature levels of several sites it can work.
    pub(crate) levels: Levels,
    /// What it understands that not all releases do, and has.
    pub(crate) understands: Understands,
}

/// What a server understands that others do not, and has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Understands {
    /// Messages of the forest.
    pub(crate) forest: bool,
    /// Orders to give another member a snapshot in the place of the leader, and snapshots that are given so.
    pub(crate) snapshots: bool,
}

impl Understands {
    fn of(bits: u8) -> Self {
        Self { forest: bits & READS_FOREST != 0, snapshots: bits & GIVES_SNAPSHOTS != 0 }
    }

    fn bits(self) -> u8 {
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        bit(self.forest, READS_FOREST) | bit(self.snapshots, GIVES_SNAPSHOTS)
    }
}

impl Identity {
    /// Which process of the server it is.
    pub(crate) fn incarnation(&self) -> u64 {
        self.starts.ids().last().copied().unwrap_or_default()
    }
}

/// What this server says of itself, and what it proves it with.
pub(super) struct Local {
    pub(super) me: u64,
    pub(super) disk: DiskId,
    /// The present start is the last one.
    pub(super) starts: Starts,
    /// What is known of the others.
    pub(super) known: watch::Receiver<Disks>,
    /// Which history it has, or would found; it comes to one while it runs.
    pub(super) standing: watch::Receiver<Standing>,
    /// The partition that its connections are for.
    pub(super) share: Share,
    pub(super) software: String,
    /// At which feature levels it can work, if it is of one of several sites; and the one in use, 0 before that is known.
    pub(super) levels: Option<Levels>,
    pub(super) level: watch::Receiver<u8>,
    /// What may be sent to it.
    pub(super) understands: Understands,
    pub(super) secret: Option<Vec<u8>>,
    /// Where its folder is from.
    pub(super) copied: Copied,
}

/// The first frame of either side.
pub(super) struct Hello {
    pub(super) identity: Identity,
    pub(super) purpose: Purpose,
    to: u64,
    proves: bool,
    share: Share,
    /// As they were sent: the proofs cover them.
    bytes: Vec<u8>,
}

impl Local {
    fn hello(&self, to: u64, purpose: Purpose, standing: Standing) -> Result<Vec<u8>, String> {
        let challenge: [u8; 32] = random::bytes()?;
        let mut bytes = Vec::with_capacity(HELLO_BYTES + Starts::IDS_MAX * START_BYTES + SOFTWARE_BYTES_MAX);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&protocol(self.share).to_le_bytes());
        let Share { partition, partitions } = self.share;
        bytes.extend_from_slice(&[purpose as u8, u8::from(self.secret.is_some()), partition, partitions]);
        bytes.extend_from_slice(&self.me.to_le_bytes());
        bytes.extend_from_slice(&to.to_le_bytes());
        bytes.extend_from_slice(&self.disk);
        bytes.extend_from_slice(&challenge);
        let (kind, history) = match standing {
            Standing::New => (0, HistoryId::default()),
            Standing::Founds(history) => (1, history),
            Standing::Has(history) => (2, history),
        };
        bytes.push(kind);
        bytes.extend_from_slice(&history.0);
        let known = u8::try_from(to).ok().and_then(|to| self.known.borrow().get(&to).copied());
        let start = known.and_then(|known| known.start).unwrap_or(Start { number: 0, id: 0 });
        bytes.extend_from_slice(&known.map_or([0; 16], |known| known.id));
        bytes.extend_from_slice(&start.number.to_le_bytes());
        bytes.extend_from_slice(&start.id.to_le_bytes());
        bytes.extend_from_slice(&self.starts.count().to_le_bytes());
        let ids = self.starts.ids();
        bytes.push(ids.len() as u8);
        ids.iter().for_each(|id| bytes.extend_from_slice(&id.to_le_bytes()));
        let text = self.software.as_bytes();
        bytes.extend_from_slice(&text[..text.len().min(SOFTWARE_BYTES_MAX)]);
        if self.levels.is_some() || self.understands != Understands::default() {
            let Levels { oldest, newest } = self.levels.unwrap_or(Levels::UNSAID);
            bytes.extend_from_slice(&[TEXT_END, oldest, newest, self.understands.bits()]);
        }
        Ok(bytes)
    }

    /// Whether a hello is meant for this server, in words for the other side's operator.
    fn check(&self, hello: &Hello) -> Result<(), String> {
        let from = hello.identity.id;
        if from == self.me {
            return Err(format!(
                "it says that it is server {from} too: another server has the same server-id (or myid), or an address in \
                 servers leads back to its own server"
            ));
        }
        if hello.to != self.me && self.me == u64::from(READER_ID) {
            return Err(format!(
                "server {from} looks for server {}, and this is a reader, which is a member as soon as it has what the \
                 others have: if it is not to be that one, see server-id here, and this one's address in servers there",
                hello.to
            ));
        }
        if hello.to != self.me {
            return Err(format!(
                "server {from} looks for server {}, this is server {}: see server-id (or myid) here, and this one's \
                 address in servers there",
                hello.to, self.me
            ));
        }
        match (hello.proves, self.secret.is_some()) {
            (true, false) => Err(format!(
                "server {from} has a secret, server {} has none: set peer-secret to the same on all servers",
                self.me
            )),
            (false, true) => Err(format!(
                "server {from} has no secret, server {} has one: set peer-secret to the same on all servers",
                self.me
            )),
            _ => self.check_share(hello),
        }?;
        self.check_history(hello)?;
        self.check_level(hello)
    }

    /// Whether another server knows a later start of this one than its folder has: then that is an older copy.
    pub(super) fn is_older_than_known(&self, by: &Identity) -> bool {
        let known = by.knows.filter(|known| known.id == self.disk);
        known.and_then(|known| known.start).is_some_and(|start| self.starts.lack(start))
    }

    /// Servers of two ensembles have nothing to say to each other.
    fn check_history(&self, hello: &Hello) -> Result<(), String> {
        let ours = self.standing.borrow().history();
        match (ours, hello.identity.standing.history()) {
            (Some(ours), Some(theirs)) if ours != theirs => Err(format!(
                "servers {} and {} are of different ensembles, {theirs} and {ours}: see servers on both. For one to join \
                 the other's, stop it, move its data folder away, and start it with an empty one",
                hello.identity.id, self.me
            )),
            (Some(_), Some(_)) => self.copied.check(self.me, &self.starts, &hello.identity),
            _ => Ok(()),
        }
    }

    /// A server that cannot read what this one may write is not let in: by that it would stop.
    fn check_level(&self, hello: &Hello) -> Result<(), String> {
        let (level, newest) = (*self.level.borrow(), hello.identity.levels.newest);
        if newest >= level {
            return Ok(());
        }
        let id = hello.identity.id;
        Err(format!(
            "server {id} reads up to feature level {newest}, and the sites use level {level}: give server {id} the release \
             of the others"
        ))
    }

    fn check_share(&self, hello: &Hello) -> Result<(), String> {
        let (own, theirs) = (self.share, hello.share);
        let count = |share: Share| match share.partitions {
            1 => "1 partition".to_owned(),
            several => format!("{several} partitions"),
        };
        if theirs.partitions != own.partitions {
            return Err(format!(
                "server {} has {}, server {} has {}: all servers of an ensemble are born with the same number \
                 (setting partitions)",
                hello.identity.id,
                count(theirs),
                self.me,
                count(own)
            ));
        }
        if theirs.partition != own.partition {
            let (theirs, own) = (theirs.partition, own.partition);
            return Err(format!("its connection is for partition {theirs}, this is partition {own}"));
        }
        Ok(())
    }

    /// What proves that this side knows the secret; zeros without one.
    pub(super) fn proof(&self, role: Role, initiator: &[u8], acceptor: &[u8]) -> [u8; PROOF_BYTES] {
        match self.mac(role, initiator, acceptor) {
            Some(mac) => mac.finalize().into_bytes().into(),
            None => [0; PROOF_BYTES],
        }
    }

    pub(super) fn is_proven(&self, role: Role, initiator: &[u8], acceptor: &[u8], proof: &[u8]) -> bool {
        match self.mac(role, initiator, acceptor) {
            // In constant time.
            Some(mac) => mac.verify_slice(proof).is_ok(),
            None => proof == [0; PROOF_BYTES],
        }
    }

    fn mac(&self, role: Role, initiator: &[u8], acceptor: &[u8]) -> Option<Hmac<Sha256>> {
        let secret = self.secret.as_ref()?;
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
        mac.update(match role {
            Role::Initiator => b"stoa initiator 1",
            Role::Acceptor => b"stoa acceptor  1",
            Role::Reader => b"stoa reader    1",
            Role::Parent => b"stoa parent    1",
        });
        // The length keeps the two hellos apart.
        mac.update(&(initiator.len() as u64).to_le_bytes());
        mac.update(initiator);
        mac.update(acceptor);
        Some(mac)
    }
}

#[derive(Clone, Copy)]
pub(super) enum Role {
    Initiator,
    Acceptor,
    Reader,
    Parent,
}

pub(super) fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

pub(super) fn short() -> String {
    "its hello is cut short".to_owned()
}

/// The starts in a hello, and what follows.
fn read_starts(hello: &[u8]) -> Result<(Starts, &[u8]), String> {
    let count = u64::from_le_bytes(field(hello, HELLO_BYTES - 9).ok_or_else(short)?);
    let ids = usize::from(*hello.get(HELLO_BYTES - 1).ok_or_else(short)?) * START_BYTES;
    let rest = hello.get(HELLO_BYTES..).ok_or_else(short)?;
    let (ids, software) = rest.split_at_checked(ids).ok_or_else(short)?;
    let ids = ids.as_chunks().0.iter().map(|id| u64::from_le_bytes(*id)).collect();
    let starts = Starts::of(count, ids).filter(|starts| starts.count() > 0);
    Ok((starts.ok_or("its starts contradict themselves: is it of another release?")?, software))
}

/// The text at the end of a hello, and what follows it: the levels, and what is understood.
fn read_end(rest: &[u8]) -> (&[u8], Levels, Understands) {
    let end = rest.iter().position(|byte| *byte == TEXT_END).unwrap_or(rest.len());
    let (software, more) = rest.split_at(end);
    let (levels, understands) = match *more {
        // The next release may say more.
        [TEXT_END, oldest, newest, understands, ..] => (Levels { oldest, newest }, understands),
        [TEXT_END, oldest, newest] => (Levels { oldest, newest }, 0),
        _ => (Levels::UNSAID, 0),
    };
    (&software[..software.len().min(SOFTWARE_BYTES_MAX)], levels, Understands::of(understands))
}

impl Hello {
    fn parse(bytes: Vec<u8>) -> Result<Self, String> {
        if field(&bytes, 0) != Some(MAGIC) {
            return Err(
                "it does not speak as a Stoa server of an ensemble: what listens or connects there?".into()
            );
        }
        // The rest of a hello may look different in another version.
        let theirs = field(&bytes, 8).map_or(0, u32::from_le_bytes);
        let share = field(&bytes, 14).map(|[partition, partitions]| Share { partition, partitions });
        let ours = share.map_or(PROTOCOL, protocol);
        if theirs != ours {
            return Err(format!(
                "one server speaks version {theirs} of the protocol between servers, the other one {ours}: update \
                 the one with the older release"
            ));
        }
        let purpose = match bytes.get(12) {
            Some(1) => Purpose::Messages,
            Some(2) => Purpose::Snapshot,
            Some(3) => Purpose::Lifeline,
            _ => return Err("the purpose of its connection is unknown: is it of another release?".into()),
        };
        let history = HistoryId(field(&bytes, 81).ok_or_else(short)?);
        let standing = match bytes.get(80) {
            Some(0) => Standing::New,
            Some(1) => Standing::Founds(history),
            Some(2) => Standing::Has(history),
            _ => return Err("what it says of its history is unknown: is it of another release?".into()),
        };
        let (starts, software) = read_starts(&bytes)?;
        let (software, levels, understands) = read_end(software);
        let start = Start {
            number: u64::from_le_bytes(field(&bytes, 113).ok_or_else(short)?),
            id: u64::from_le_bytes(field(&bytes, 121).ok_or_else(short)?),
        };
        let known = (start.number > 0).then_some(start);
        let known = known.map(|start| {
            let id = field(&bytes, 97).ok_or_else(short)?;
            Ok::<_, String>(KnownDisk { id, start: Some(start), removed: 0 })
        });
        let known = known.transpose()?;
        Ok(Self {
            identity: Identity {
                id: u64::from_le_bytes(field(&bytes, 16).ok_or_else(short)?),
                disk: field(&bytes, 32).ok_or_else(short)?,
                starts,
                knows: known,
                standing,
                protocol: theirs,
                software: printable(software),
                levels,
                understands,
            },
            purpose,
            proves: bytes.get(13) == Some(&1),
            share: share.ok_or_else(short)?,
            to: u64::from_le_bytes(field(&bytes, 24).ok_or_else(short)?),
            bytes,
        })
    }
}

/// A text of another server, fit for a log: short, and without anything that moves a cursor.
pub(super) fn printable(bytes: &[u8]) -> String {
    let mut text = String::new();
    for character in String::from_utf8_lossy(bytes).chars().take(TEXT_MAX) {
        let _ = match character.is_control() {
            true => write!(text, "{}", character.escape_default()),
            false => write!(text, "{character}"),
        };
    }
    text
}

/// Another server, whose name is proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Met {
    /// Who it is.
    pub(super) identity: Identity,
    /// What this server has said of its own history.
    pub(super) said: Standing,
}

impl Met {
    /// Whether both have the same history: then, and only then, is there more to say. Both sides come to the same.
    pub(super) fn is_of_one_history(&self) -> bool {
        self.said.history().is_some() && self.said == self.identity.standing
    }

    /// Why there is no more to say for now.
    pub(super) fn why_not(&self) -> &'static str {
        match (self.said.history(), self.identity.standing.history()) {
            (None, None) => "it is new, as this server is",
            (Some(_), None) => "it is new, and joins the ensemble of this server",
            (None, Some(_)) => "this server is new, and joins its ensemble",
            (Some(ours), Some(theirs)) if ours == theirs => "the data folder of this server is an older copy",
            (Some(_), Some(_)) => "it is of another ensemble",
        }
    }
}

/// Introduces this server to the one it has connected to. `Err` says why that failed.
pub(super) async fn initiate<S>(
    stream: &mut S,
    local: &Local,
    to: u64,
    purpose: Purpose,
) -> Result<Met, String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let said = *local.standing.borrow();
    let ours = local.hello(to, purpose, said)?;
    send(stream, FrameKind::Hello, &ours).await?;
    let theirs = Hello::parse(receive(stream, FrameKind::Hello).await?)?;
    if theirs.identity.id != to {
        return Err(format!(
            "this is server {}, not {to}: see server-id (or myid) there, and the address of server {to} in servers here",
            theirs.identity.id
        ));
    }
    if theirs.purpose != purpose {
        return Err("it answers for another purpose".into());
    }
    local.check(&theirs)?;
    send(stream, FrameKind::Proof, &local.proof(Role::Initiator, &ours, &theirs.bytes)).await?;
    let proof = receive(stream, FrameKind::Accepted).await?;
    if !local.is_proven(Role::Acceptor, &ours, &theirs.bytes, &proof) {
        return Err(format!("it {WRONG_SECRET}"));
    }
    Ok(Met { identity: theirs.identity, said })
}

/// Receives the hello of a server that has connected, which proves nothing yet.
#[cfg(test)]
pub(super) async fn greeting<S>(stream: &mut S, local: &Local) -> Result<Hello, String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let bytes = receive(stream, FrameKind::Hello).await?;
    greeting_of(bytes, local)
}

/// The same of one that has come.
pub(super) fn greeting_of(bytes: Vec<u8>, local: &Local) -> Result<Hello, String> {
    let theirs = Hello::parse(bytes)?;
    local.check(&theirs)?;
    Ok(theirs)
}

/// Has a server prove its hello, and proves this one's.
pub(super) async fn accept<S>(stream: &mut S, local: &Local, theirs: &Hello) -> Result<Met, String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let said = *local.standing.borrow();
    let ours = local.hello(theirs.identity.id, theirs.purpose, said)?;
    send(stream, FrameKind::Hello, &ours).await?;
    let proof = receive(stream, FrameKind::Proof).await?;
    if !local.is_proven(Role::Initiator, &theirs.bytes, &ours, &proof) {
        return Err(format!("server {} {WRONG_SECRET}", theirs.identity.id));
    }
    send(stream, FrameKind::Accepted, &local.proof(Role::Acceptor, &theirs.bytes, &ours)).await?;
    Ok(Met { identity: theirs.identity.clone(), said })
}

/// Tells the other side why it is refused, as far as it listens.
pub(super) async fn refuse<S>(stream: &mut S, why: &str)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let why = &why.as_bytes()[..why.len().min(TEXT_MAX)];
    if send(stream, FrameKind::Refused, why).await.is_ok() {
        let _ = stream.shutdown().await;
    }
}

pub(super) async fn send<S: AsyncWrite + Unpin>(
    stream: &mut S,
    kind: FrameKind,
    payload: &[u8],
) -> Result<(), String> {
    let frame = frame::encode(kind, &[payload]);
    let sent = async {
        stream.write_all(&frame).await?;
        stream.flush().await
    };
    sent.await.map_err(|error| format!("the connection broke in the handshake: {error}"))
}

/// The payload of the next frame, which must be of this kind. Reads not a byte beyond it.
pub(super) async fn receive<S: AsyncRead + Unpin>(
    stream: &mut S,
    expected: FrameKind,
) -> Result<Vec<u8>, String> {
    let frame = async {
        let mut header = [0; HEADER_BYTES];
        stream.read_exact(&mut header).await?;
        if header.starts_with(&TLS_ALERT) {
            return Err(io::Error::other(format!("it has TLS, this server has none: {TLS_WAY_OUT}")));
        }
        let header = Header::read(&header, FRAME_BYTES_MAX)?;
        let mut payload = vec![0; header.len];
        stream.read_exact(&mut payload).await?;
        Ok::<_, io::Error>((header.check(&payload)?, payload))
    };
    match frame.await {
        Ok((kind, payload)) if kind == expected => Ok(payload),
        Ok((FrameKind::Refused, why)) => Err(format!("refused: {}", printable(&why))),
        Ok((kind, _)) => Err(format!("{kind:?} instead of {expected:?} in the handshake")),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err("closed in the handshake".to_owned())
        }
        Err(error) => Err(format!("the connection broke in the handshake: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(me: u64, secret: Option<&str>) -> Local {
        let start = Some(Start { number: 2, id: 101 });
        let known = [(1, KnownDisk { id: [1; 16], start, removed: 0 })].into();
        Local {
            me,
            disk: [u8::try_from(me).unwrap(); 16],
            starts: Starts::default().and(7).and(100 + me),
            known: watch::channel(known).1,
            standing: watch::channel(Standing::Has(HistoryId([7; 16]))).1,
            share: Share { partition: 1, partitions: 4 },
            software: "stoa 9".into(),
            levels: None,
            level: watch::channel(0).1,
            understands: Understands::default(),
            secret: secret.map(|secret| secret.as_bytes().to_vec()),
            copied: Copied::default(),
        }
    }

    fn of(local: Local, partition: u8, partitions: u8) -> Local {
        Local { share: Share { partition, partitions }, ..local }
    }

    fn standing(local: Local, standing: Standing) -> Local {
        Local { standing: watch::channel(standing).1, ..local }
    }

    fn at(local: Local, level: u8) -> Local {
        Local { level: watch::channel(level).1, ..local }
    }

    async fn meet(one: &Local, two: &Local, to: u64) -> (Result<Met, String>, Result<Met, String>) {
        let (mut near, mut far) = tokio::io::duplex(64);
        let accepting = async {
            let accepted = async {
                let hello = greeting(&mut far, two).await?;
                accept(&mut far, two, &hello).await
            };
            let accepted = accepted.await;
            if let Err(why) = &accepted {
                refuse(&mut far, why).await;
            }
            accepted
        };
        tokio::join!(initiate(&mut near, one, to, Purpose::Snapshot), accepting)
    }

    #[tokio::test]
    async fn two_servers_learn_who_the_other_is() {
        for secret in [None, Some("s3cret")] {
            let (of_two, of_one) = meet(&local(1, secret), &local(2, secret), 2).await;
            let (of_two, of_one) = (of_two.unwrap(), of_one.unwrap());
            assert!(of_two.is_of_one_history() && of_one.is_of_one_history());
            let (of_two, of_one) = (of_two.identity, of_one.identity);
            assert_eq!((of_one.id, of_one.incarnation(), of_one.disk), (1, 101, [1; 16]));
            assert_eq!((of_two.id, of_two.incarnation(), of_two.disk), (2, 102, [2; 16]));
            assert_eq!(of_one.starts, Starts::default().and(7).and(101));
            assert_eq!((of_one.knows, of_two.knows), (None, Some(KnownDisk::shown([1; 16], &of_one.starts))));
            assert_eq!((of_two.software.as_str(), of_two.protocol), ("stoa 9", PROTOCOL_OF_SEVERAL));
        }
    }

    #[tokio::test]
    async fn whoever_does_not_fit_is_told_why() {
        let secret = "set peer-secret to the same on all servers";
        let cases = [
            (
                local(1, Some("a")),
                local(2, Some("b")),
                2,
                "does not know the secret: set peer-secret to the same",
            ),
            (
                local(1, Some("a")),
                local(2, None),
                2,
                "server 1 has a secret, server 2 has none: set peer-secret",
            ),
            (
                local(1, None),
                local(2, Some("a")),
                2,
                "server 1 has no secret, server 2 has one: set peer-secret",
            ),
            (local(1, None), local(2, Some("a")), 2, secret),
            (
                local(1, None),
                local(2, None),
                3,
                "looks for server 3, this is server 2: see server-id (or myid) here",
            ),
            (local(2, None), local(2, None), 2, "it is server 2 too: another server has the same server-id"),
            (
                of(local(1, None), 0, 4),
                of(local(2, None), 0, 2),
                2,
                "server 1 has 4 partitions, server 2 has 2 partitions: all",
            ),
            (of(local(1, None), 0, 1), of(local(2, None), 0, 4), 2, "server 1 has 1 partition, server 2"),
            (of(local(1, None), 2, 4), of(local(2, None), 0, 4), 2, "for partition 2, this is partition 0"),
            (
                standing(local(1, None), Standing::Has(HistoryId([6; 16]))),
                local(2, None),
                2,
                "servers 1 and 2 are of different ensembles, 06060606060606060606060606060606 and 0707",
            ),
            (
                local(1, None),
                at(local(2, None), 2),
                2,
                "server 1 reads up to feature level 1, and the sites use level 2: give server 1 the release of the others",
            ),
        ];
        for (one, two, to, expected) in cases {
            let (near, far) = meet(&one, &two, to).await;
            let (near, far) = (near.unwrap_err(), far.unwrap_err());
            assert!(far.contains(expected) && far.len() <= TEXT_MAX, "{far}");
            assert!(near.starts_with("refused: ") && near.contains(expected), "{near}");
        }
    }

    #[tokio::test]
    async fn levels_are_said_and_who_reads_the_one_in_use_is_let_in() {
        let levels = Levels { oldest: 1, newest: 2 };
        let next = |me| at(Local { levels: Some(levels), ..local(me, None) }, 2);
        let (of_two, of_one) = meet(&next(1), &next(2), 2).await;
        for met in [of_two.unwrap(), of_one.unwrap()] {
            assert_eq!((met.identity.levels, met.identity.software.as_str()), (levels, "stoa 9"));
        }
        let before = at(Local { levels: Some(levels), ..local(1, None) }, 1);
        let (of_two, _) = meet(&before, &at(local(2, None), 0), 2).await;
        assert_eq!(of_two.unwrap().identity.levels, Levels::UNSAID);
        // Who connects may be the one that knows it.
        let old = Hello::parse(local(2, None).hello(1, Purpose::Messages, Standing::New).unwrap()).unwrap();
        assert!(next(1).check(&old).unwrap_err().starts_with("server 2 reads up to feature level 1"));
        // The next release may say more, and what is cut is not said.
        let levels = Levels { oldest: 1, newest: 3 };
        let both = Understands { forest: true, snapshots: true };
        let snapshots = Understands { forest: false, snapshots: true };
        for (end, understands) in [
            (&b"\x03\x07"[..], both),
            (b"\x01", Understands { snapshots: false, ..both }),
            (b"\x02", snapshots),
            (b"\x0a", snapshots),
            (b"\x04", Understands::default()),
            (b"", Understands::default()),
        ] {
            let hello = [b"stoa 9\0\x01\x03", end].concat();
            assert_eq!(read_end(&hello), (&b"stoa 9"[..], levels, understands));
            assert_eq!(Understands::of(understands.bits()), understands);
        }
        for cut in ["stoa 9", "stoa 9\0", "stoa 9\0\x01"] {
            assert_eq!(read_end(cut.as_bytes()), (&b"stoa 9"[..], Levels::UNSAID, Understands::default()));
        }
    }

    #[tokio::test]
    async fn who_understands_the_forest_says_so_and_who_says_nothing_does_not() {
        let forest = Understands { forest: true, snapshots: false };
        let with_forest = |local: Local| Local { understands: forest, ..local };
        let (of_two, of_one) = meet(&with_forest(local(1, None)), &local(2, None), 2).await;
        assert_eq!(of_two.unwrap().identity.understands, Understands::default());
        assert_eq!(of_one.as_ref().unwrap().identity.understands, forest);
        assert_eq!(of_one.unwrap().identity.levels, Levels::UNSAID);
        // Servers of sites have said their levels before they said that, and nothing more.
        let levels = Levels { oldest: 1, newest: 1 };
        let of_site = Local { levels: Some(levels), ..local(2, None) };
        let (of_two, of_one) = meet(&with_forest(of_site), &local(1, None), 1).await;
        assert_eq!(of_one.unwrap().identity.understands, forest);
        assert_eq!(of_two.unwrap().identity.understands, Understands::default());
        let gives = Local { understands: Understands { forest: false, snapshots: true }, ..local(1, None) };
        let (_, of_one) = meet(&gives, &local(2, None), 2).await;
        assert_eq!(of_one.unwrap().identity.understands, gives.understands);
    }

    #[tokio::test]
    async fn who_is_new_is_met_and_no_more() {
        let history = HistoryId([7; 16]);
        for (one, two, near, far) in [
            (Standing::New, Standing::Founds(history), "it is new, as this", "it is new, as this"),
            (Standing::Has(history), Standing::New, "it is new, and joins the", "this server is new"),
            (Standing::Has(history), Standing::Founds(history), "it is new, and joins", "this server is new"),
        ] {
            let (one, two) = (standing(local(1, None), one), standing(local(2, None), two));
            let (of_two, of_one) = meet(&one, &two, 2).await;
            for (met, of, why) in [(of_two.unwrap(), &two, near), (of_one.unwrap(), &one, far)] {
                assert!(!met.is_of_one_history() && met.why_not().starts_with(why), "{met:?}");
                assert_eq!(met.identity.standing, *of.standing.borrow());
            }
        }
    }

    #[tokio::test]
    async fn whoever_answers_for_another_partition_is_left() {
        let (mut near, mut far) = tokio::io::duplex(1024);
        let (one, two) = (local(1, None), of(local(2, None), 0, 4));
        let acting = async {
            receive(&mut far, FrameKind::Hello).await.unwrap();
            send(&mut far, FrameKind::Hello, &two.hello(1, Purpose::Messages, Standing::New).unwrap())
                .await
                .unwrap();
        };
        let (result, ()) = tokio::join!(initiate(&mut near, &one, 2, Purpose::Messages), acting);
        assert_eq!(result.unwrap_err(), "its connection is for partition 0, this is partition 1");
    }

    #[tokio::test]
    async fn a_server_that_does_not_know_the_secret_cannot_pose_as_another() {
        // It answers with what it was sent, the one proof it can come by.
        let (mut near, mut far) = tokio::io::duplex(1024);
        let knows = local(1, Some("secret"));
        let poses = local(2, Some("guess"));
        let acting = async {
            greeting(&mut far, &poses).await.unwrap();
            send(&mut far, FrameKind::Hello, &poses.hello(1, Purpose::Messages, Standing::New).unwrap())
                .await
                .unwrap();
            let proof = receive(&mut far, FrameKind::Proof).await.unwrap();
            send(&mut far, FrameKind::Accepted, &proof).await.unwrap();
        };
        let (result, ()) = tokio::join!(initiate(&mut near, &knows, 2, Purpose::Messages), acting);
        assert!(result.unwrap_err().contains("does not know the secret"));
    }

    #[test]
    fn a_proof_holds_for_one_role_and_one_pair_of_hellos() {
        let local = local(1, Some("secret"));
        let proof = local.proof(Role::Initiator, b"ab", b"c");
        assert!(local.is_proven(Role::Initiator, b"ab", b"c", &proof));
        assert!(!local.is_proven(Role::Acceptor, b"ab", b"c", &proof));
        assert!(!local.is_proven(Role::Initiator, b"a", b"bc", &proof));
        assert!(!local.is_proven(Role::Initiator, b"ab", b"d", &proof));
        assert!(!local.is_proven(Role::Initiator, b"ab", b"c", &proof[..31]));
    }

    #[tokio::test]
    async fn who_answers_with_tls_or_nonsense_is_told_apart() {
        let alert = [21, 3, 3, 0, 2, 2, 10, 0, 0];
        for (answer, expected) in
            [(&alert[..], "it has TLS, this server has none: set peer-tls-"), (&[9; 9], "")]
        {
            let (mut near, mut far) = tokio::io::duplex(1024);
            far.write_all(answer).await.unwrap();
            let why = initiate(&mut near, &local(1, None), 2, Purpose::Messages).await.unwrap_err();
            assert!(why.contains(expected) && why.starts_with("the connection broke"), "{why}");
        }
    }

    #[test]
    fn hellos_that_are_cut_or_foreign_are_refused() {
        let whole = local(1, None).hello(2, Purpose::Messages, Standing::New).unwrap();
        for cut in 0..HELLO_BYTES + 2 * START_BYTES {
            assert!(Hello::parse(whole[..cut].to_vec()).is_err(), "{cut}");
        }
        assert_eq!(whole[12..16], [1, 0, 1, 4]);
        let mut newer = whole.clone();
        newer[8] = 9;
        assert!(Hello::parse(newer).err().unwrap().contains("version 9"));
        let mut odd = whole;
        odd[12] = 4;
        assert!(Hello::parse(odd.clone()).err().unwrap().contains("purpose"));
        (odd[12], odd[80]) = (1, 3);
        assert!(Hello::parse(odd.clone()).err().unwrap().contains("history"));
        odd[80] = 2;
        for (at, wrong) in [(129, 1), (129, 3), (136, 1), (137, 0), (137, 1), (137, 3)] {
            let mut odd = odd.clone();
            odd[at] = wrong;
            assert!(Hello::parse(odd).is_err(), "{wrong} at {at}");
        }
        assert!(Hello::parse(odd).is_ok());
        let starts = (0..100).fold(Starts::default(), Starts::and);
        let long = Local { starts, software: "s".repeat(100), ..local(1, None) };
        let longest = long.hello(2, Purpose::Messages, Standing::New).unwrap();
        assert!(longest.len() <= FRAME_BYTES_MAX, "{}", longest.len());
        assert_eq!(Hello::parse(longest).unwrap().identity.starts, long.starts);
        assert_eq!(printable(b"a\x1b[2Jb\xff\n"), "a\\u{1b}[2Jb\u{fffd}\\n");
    }
}
