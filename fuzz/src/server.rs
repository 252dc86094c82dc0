//! Whole servers: one that stands alone and its clients, and a member of an ensemble with what the others say.

use crate::Input;
use bytes::Bytes;
use stoa_core::{
    Config, ConnectionId, ForestConfig, Givers, Items, Now, Outcome, Output, PeerOutput, Reaping, Recovered,
    Relief, ServerPart, Shard, SiteConfig, SiteId, SnapshotOutput,
};
use stoa_forest::{Content, Frame, Spread};
use stoa_tree::{Options, Tree};
use stoa_wire::{ConnectRequest, begin_frame, end_frame, next_frame};

/// A server whose disk stores at once, and two clients of it.
pub struct Member {
    /// The server.
    pub server: Shard,
    /// The time.
    pub now: Now,
    /// What is on the disk.
    pub records: Vec<Vec<u8>>,
    clients: [Option<ConnectionId>; 2],
}

impl Member {
    /// The member with this number of an ensemble of so many, at its beginning.
    ///
    /// # Panics
    /// When the server does not take up an empty disk.
    #[must_use]
    pub fn new(id: u8, voters: &[u8]) -> Self {
        Self::with(id, voters, None, ServerPart::Member)
    }

    /// A reader, which has nothing.
    #[must_use]
    pub fn reader() -> Self {
        Self::with(u8::MAX, &[], None, ServerPart::Reader)
    }

    /// The only server of a site, which has nothing.
    #[must_use]
    pub fn of_site(id: u8) -> Self {
        Self::with(id, &[id], Some(SiteConfig::default()), ServerPart::Member)
    }

    fn with(id: u8, voters: &[u8], site: Option<SiteConfig>, part: ServerPart) -> Self {
        let now = Now { mono_us: 1_000_000, wall_ms: 1_700_000_000_000 };
        let config = Config {
            server_id: id,
            site,
            part,
            tick_ms: 100,
            session_timeout_min_ms: 500,
            heartbeat_ms: 20,
            reaping: Reaping { interval_ms: 50, max: 10_000 },
            relief: Relief {
                forest: ForestConfig::new(2, 2, 2).filter(|_| voters.len() > 1),
                givers: Givers::Any,
            },
            ..Config::default()
        };
        let recovered = Recovered::new(Tree::new(Options::default()), voters);
        let server = Shard::new(config, recovered, [id; 32], now).expect("an empty disk is sound");
        let mut member = Self { server, now, records: Vec::new(), clients: [None; 2] };
        member.settle();
        member
    }

    /// Stores what is to be stored; what is for other servers goes to `send`.
    pub fn settle_with(&mut self, mut send: impl FnMut(u8, Vec<u8>)) {
        loop {
            let mut is_done = true;
            while let Some(output) = self.server.poll_peer() {
                is_done = false;
                match output {
                    PeerOutput::Send { to, message } => send(to, message.encode().join().to_vec()),
                    PeerOutput::Snapshot { to, .. } => self.server.snapshot_sent(to, None, self.now),
                    _ => {}
                }
            }
            while let Some(append) = self.server.poll_append() {
                is_done = false;
                self.records.push(append.payload.join().to_vec());
                self.server.appended(append.position, self.now);
            }
            while let Some(output) = self.server.poll_output() {
                is_done = false;
                match output {
                    Output::Send(id) => self.take(id),
                    Output::Resume(_) => {}
                    Output::Close(id, _) => self.hang_up(id),
                }
            }
            if is_done {
                return;
            }
        }
    }

    fn settle(&mut self) {
        self.settle_with(|_, _| ());
    }

    /// Time passes.
    pub fn pass(&mut self, ms: u64) {
        self.now.mono_us += ms * 1000;
        self.now.wall_ms += ms.cast_signed();
        self.server.tick(self.now);
    }

    /// What a connection is sent is whole frames.
    fn take(&mut self, id: ConnectionId) {
        let bytes = self.server.output(id);
        let count = bytes.len();
        let mut rest = bytes;
        while let Ok(Some((_, tail))) = next_frame(rest, usize::MAX) {
            rest = tail;
        }
        assert!(rest.is_empty() || rest.len() == count, "an answer is cut");
        self.server.sent(id, count, self.now);
    }

    fn hang_up(&mut self, id: ConnectionId) {
        for client in &mut self.clients {
            client.take_if(|client| *client == id);
        }
        self.server.disconnected(id, self.now);
    }

    /// One of the two clients sends bytes, and is connected first if need be.
    pub fn from_client(&mut self, which: usize, bytes: &[u8]) {
        let id = match self.clients[which] {
            Some(id) => id,
            None => match self.server.connect(([127, 0, 0, 1], 4000).into(), self.now) {
                Ok(id) => *self.clients[which].insert(id),
                Err(_) => return,
            },
        };
        let consumed = self.server.receive(id, bytes, self.now);
        assert!(consumed <= bytes.len());
    }
}

/// What a client says first.
#[must_use]
pub fn hello() -> Vec<u8> {
    let mut out = Vec::new();
    let start = begin_frame(&mut out);
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms: 1000,
        session_id: 0,
        password: &[0; 16],
        read_only: Some(false),
    };
    request.encode(&mut out);
    end_frame(&mut out, start);
    out
}

/// Bytes of two clients, of which the first has a session already: who and how, and a piece.
pub fn client(data: &[u8]) {
    let mut input = Input(data);
    let mut member = Member::new(1, &[1]);
    member.from_client(0, &hello());
    member.settle();
    while !input.is_empty() {
        match input.byte() {
            how @ 0..=127 => {
                let piece = input.piece();
                member.from_client(usize::from(how % 2), piece);
                // Others wait until all are in the log together.
                if how < 64 {
                    member.settle();
                }
            }
            ms @ 128..=250 => member.pass(u64::from(ms - 127)),
            251 => member.pass(2000),
            hangs_up => {
                if let Some(id) = member.clients[usize::from(hangs_up % 2)] {
                    member.hang_up(id);
                }
            }
        }
    }
    member.settle();
    member.pass(5000);
    member.settle();
    assert_eq!(member.server.tree().digest(), member.server.tree().recomputed_digest());
}

/// Whether it is a message with entries of a leader. These are believed: whoever is elected by a majority writes what
/// all have, and a server to which that makes no sense can only stop.
pub(crate) fn has_entries(message: &[u8]) -> Option<bool> {
    if let Some(frame) = message.strip_prefix(&[9]) {
        // They may come down a tree, or be the answer to a question.
        let body = match Frame::decode(bytes::Bytes::copy_from_slice(frame)).ok()? {
            Frame::Spread(Spread { content: Content::Whole(body), .. }) => body,
            Frame::Pulled(pulled) => pulled.body,
            _ => return None,
        };
        return has_entries(&[&[1], &body[..]].concat());
    }
    // A message of a group: kind, flags, nine numbers, a context, and entries.
    let mut input = Input(message.strip_prefix(&[1, 1])?);
    input.bytes(1 + 9 * 8);
    let context = input.number();
    input.bytes(context);
    let entries = input.number();
    Some((0..entries.min(message.len())).any(|_| {
        input.bytes(1 + 8 + 8);
        let payload = input.number();
        !input.bytes(payload).is_empty()
    }))
}

/// What two other members of an ensemble of three say, in pieces; and time, and a client.
pub fn peer(data: &[u8]) {
    let mut input = Input(data);
    let mut member = Member::new(1, &[1, 2, 3]);
    for other in [2, 3] {
        member.server.peer_connected(other, member.now);
    }
    while !input.is_empty() {
        match input.byte() {
            how @ 0..=127 => {
                let message = input.piece();
                if has_entries(message).unwrap_or(false) {
                    continue;
                }
                let message = bytes::Bytes::copy_from_slice(message);
                let _ = member.server.peer_message(2 + how % 2, message, member.now);
            }
            ms @ 128..=199 => member.pass(u64::from(ms - 127)),
            how @ 200..=220 => {
                let piece = input.piece();
                member.from_client(usize::from(how % 2), piece);
            }
            lost @ 221..=230 => member.server.peer_lost(2 + lost % 2, member.now),
            met => member.server.peer_connected(2 + met % 2, member.now),
        }
        member.settle();
    }
    assert_eq!(member.server.tree().digest(), member.server.tree().recomputed_digest());
}

/// The hub of two sites, and the other one.
pub const HUB: SiteId = 1;
pub const LEAF: SiteId = 2;

/// Two sites that are connected, each a server: the hub and one that has joined it.
///
/// # Panics
/// When they do not understand each other.
#[must_use]
pub fn sites() -> [Member; 2] {
    let mut sites = [Member::of_site(HUB), Member::of_site(LEAF)];
    let now = sites[0].now;
    sites[0].server.begin_sites(HUB, "the sites", now).expect("it leads");
    sites.iter_mut().for_each(Member::settle);
    sites[0].server.site_connected(LEAF, now);
    sites[1].server.site_connected(HUB, now);
    while talk(&mut sites, &mut |_, _| ()) {}
    assert!(sites[1].server.has_joined());
    sites
}

/// Carries what each has for the other one; `hears` is told it, with who hears it. Returns whether there was anything.
pub fn talk(sites: &mut [Member; 2], hears: &mut impl FnMut(SiteId, &Bytes)) -> bool {
    let mut slices: Vec<Vec<u8>> = Vec::new();
    let mut has_talked = false;
    for from in 0..2 {
        sites[from].settle();
        while let Some(piece) = sites[from].server.poll_snapshot() {
            match piece {
                SnapshotOutput::Begin { .. } => slices.clear(),
                SnapshotOutput::Slice { bytes, .. } => {
                    slices.push(bytes);
                    sites[from].server.snapshot_taken();
                }
                SnapshotOutput::End { number } => sites[from].server.snapshot_finished(number, true),
                SnapshotOutput::Abort { number } => sites[from].server.snapshot_finished(number, false),
            }
            has_talked = true;
        }
        while let Some((to, position)) = sites[from].server.poll_site_state() {
            let (other, now) = (&mut sites[1 - from].server, sites[from].now);
            slices.iter().enumerate().for_each(|(at, slice)| other.site_state(u8::from(at == 0), slice, now));
            other.site_state_ended(to, HUB, position, now);
            has_talked = true;
        }
        while let Some((to, message)) = sites[from].server.poll_site() {
            hears(to, &message);
            let now = sites[from].now;
            let heard = sites[1 - from].server.site_message(from as SiteId + 1, &message, now);
            heard.expect("they understand each other");
            has_talked = true;
        }
        sites[1 - from].settle();
    }
    has_talked
}

/// Whether a message has what another site has done. That is believed, as what an elected leader has; and so is where
/// its log is. What it asks for is not.
fn has_updates(message: &[u8]) -> bool {
    let Some(mut entries) = message.strip_prefix(&[1]).and_then(|rest| rest.get(16..)) else { return false };
    while entries.len() > 12 {
        let mut input = Input(&entries[8..]);
        let len = input.number();
        let items = input.bytes(len);
        if Items::imported(items).flatten().any(|item| !matches!(item.outcome, Outcome::Site(_))) {
            return true;
        }
        entries = &entries[12 + items.len()..];
    }
    false
}

/// What the leader of another site says, to the hub or to a site that has joined it, in pieces; and time, a client, and
/// connections that end.
pub fn site(data: &[u8]) {
    let mut input = Input(data);
    let [hub, leaf] = sites();
    let (mut member, from) = if input.byte() % 2 == 0 { (hub, LEAF) } else { (leaf, HUB) };
    while !input.is_empty() {
        match input.byte() {
            0..=127 => {
                let message = Bytes::copy_from_slice(input.piece());
                if !has_updates(&message) {
                    let _ = member.server.site_message(from, &message, member.now);
                }
            }
            ms @ 128..=199 => member.pass(u64::from(ms - 127)),
            how @ 200..=220 => {
                let piece = input.piece();
                member.from_client(usize::from(how % 2), piece);
            }
            221..=230 => member.server.site_lost(from),
            _ => member.server.site_connected(from, member.now),
        }
        member.settle();
        while member.server.poll_site().is_some() {}
        while let Some(wanted) = member.server.poll_site_backlog() {
            member.server.site_backlog(wanted.site, wanted.since, &[], member.now);
        }
    }
    assert_eq!(member.server.tree().digest(), member.server.tree().recomputed_digest());
}
