//! Members of a group with a network and disks that can be told what to do.

mod disk;

use bytes::Bytes;
use disk::Disk;
use std::collections::{BTreeMap, VecDeque};
use stoa_group::{Config, Entry, EntryKind, Group, Members, Message, Output, Pieces, Role, Store};

/// What a member's state machine holds: everything applied, as one number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) position: u64,
    pub(crate) digest: u64,
}

impl State {
    fn apply(&mut self, entry: &Entry) {
        self.position = entry.position;
        for byte in entry.payload.iter().chain(&entry.term.to_le_bytes()) {
            self.digest = (self.digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

pub(crate) struct Server {
    pub(crate) group: Option<Group>,
    pub(crate) disk: Disk,
    pub(crate) state: State,
    /// States of the snapshots taken here, by position.
    snapshots: BTreeMap<u64, State>,
    /// A snapshot that has arrived and is not taken over yet.
    arrived: Option<(u64, State)>,
    starts: u64,
}

/// On its way.
#[derive(Debug, Clone)]
pub(crate) struct Parcel {
    pub(crate) message: Message,
    pub(crate) snapshot: Option<State>,
    /// Which round it was, if it went to all.
    pub(crate) round: Option<u64>,
    /// Another member than its sender has given the snapshot.
    pub(crate) giver: Option<u64>,
}

/// That a member was in a term when it heard of a round, on its way to the leader of the term.
#[derive(Debug, Clone, Copy)]
struct Confirmed {
    leader: u64,
    term: u64,
    member: u64,
    round: u64,
}

/// A fault that the checks must find.
#[allow(dead_code, reason = "one of the two tests plants none")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planted {
    /// Stores count as durable when they are written.
    EarlyAcknowledgement,
    /// A restart forgets whom a member voted for.
    ForgottenVote,
    /// A snapshot forgets it.
    SnapshotWithoutVote,
}

pub(crate) struct World {
    pub(crate) servers: BTreeMap<u64, Server>,
    pub(crate) network: VecDeque<Parcel>,
    /// Pairs (from, to) between which nothing arrives.
    pub(crate) cuts: Vec<(u64, u64)>,
    /// Everything ever committed: term and payload by position.
    pub(crate) committed: BTreeMap<u64, (u64, Bytes)>,
    /// The state behind each position.
    states: BTreeMap<u64, State>,
    leaders: BTreeMap<u64, u64>,
    /// Questions under way: what must be seen by the answer.
    pub(crate) questions: BTreeMap<u64, u64>,
    pub(crate) reads_answered: u64,
    /// What happened, for transcripts and for comparing two runs.
    pub(crate) story: Vec<String>,
    pub(crate) tells: bool,
    /// What members do wrong.
    pub(crate) planted: Option<Planted>,
    /// Appends come out once for all.
    spreads: bool,
    /// So many were.
    pub(crate) spread: u64,
    /// So many acknowledgements have come.
    acknowledged: u64,
    confirmed: VecDeque<Confirmed>,
    /// Members give each other snapshots where they can.
    pub(crate) gives: bool,
    /// So many were taken over.
    pub(crate) given: u64,
}

impl Drop for World {
    #[allow(clippy::print_stdout, reason = "a failed test tells how it came to that")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.story.iter().for_each(|line| println!("{line}"));
        }
    }
}

impl World {
    pub(crate) fn new(voters: &[u64], others: &[u64]) -> Self {
        let members = Members::of_voters(voters);
        let mut world = Self {
            servers: BTreeMap::new(),
            network: VecDeque::new(),
            cuts: Vec::new(),
            committed: BTreeMap::new(),
            states: BTreeMap::from([(0, State::default())]),
            leaders: BTreeMap::new(),
            questions: BTreeMap::new(),
            reads_answered: 0,
            story: Vec::new(),
            tells: true,
            planted: None,
            spreads: false,
            spread: 0,
            acknowledged: 0,
            confirmed: VecDeque::new(),
            gives: false,
            given: 0,
        };
        for id in voters.iter().chain(others) {
            let server = Server {
                group: None,
                disk: Disk::new(*id, members.clone()),
                state: State::default(),
                snapshots: BTreeMap::new(),
                arrived: None,
                starts: 0,
            };
            world.servers.insert(*id, server);
            world.start(*id);
        }
        world
    }

    /// From now on appends come out once for all who keep up.
    #[allow(dead_code, reason = "one of the two tests has no use for it")]
    pub(crate) fn spread_appends(&mut self) {
        self.spreads = true;
        self.servers
            .values_mut()
            .filter_map(|server| server.group.as_mut())
            .for_each(|group| group.spread_to(1..=5));
    }

    fn tell(&mut self, line: impl FnOnce() -> String) {
        if self.tells {
            self.story.push(line());
        }
    }

    fn server(&mut self, id: u64) -> &mut Server {
        self.servers.get_mut(&id).unwrap()
    }

    pub(crate) fn is_up(&self, id: u64) -> bool {
        self.servers[&id].group.is_some()
    }

    #[allow(dead_code, reason = "one of the two tests has no use for it")]
    pub(crate) fn leader(&self) -> Option<u64> {
        let leading = |server: &Server| {
            let status = server.group.as_ref()?.status();
            (status.role == Role::Leader).then_some(status.term)
        };
        let leaders = self.servers.iter().filter_map(|(id, server)| Some((leading(server)?, *id)));
        leaders.max().map(|(_, id)| id)
    }

    pub(crate) fn start(&mut self, id: u64) {
        self.tell(|| format!("{id} starts"));
        let spreads = self.spreads;
        let server = self.server(id);
        server.starts += 1;
        let config = Config {
            message_bytes: 256,
            messages_in_flight: 4,
            ..Config::new(id, id.wrapping_mul(0x9e37_79b9) + server.starts)
        };
        let (restored, state) = server.disk.start();
        server.state = state;
        server.snapshots = BTreeMap::from([(restored.base.position, server.state)]);
        let mut group = Group::new(&config, &restored).expect("what was stored is sound");
        if spreads {
            group.spread_to(1..=5);
        }
        if restored.base.position > 0 {
            group.offer_snapshot(restored.base);
        }
        server.group = Some(group);
        self.act(id);
    }

    /// Ends a server by a loss of power, at this call to its disk while that is storing.
    pub(crate) fn crash(&mut self, id: u64, calls: u64) {
        self.tell(|| format!("{id} crashes"));
        let server = self.server(id);
        server.group = None;
        server.arrived = None;
        server.disk.crash(calls);
    }

    /// Everything that was written is durable.
    pub(crate) fn sync(&mut self, id: u64) {
        let server = self.server(id);
        let Some(group) = &mut server.group else { return };
        if let Some(number) = server.disk.sync().expect("the disk works") {
            group.stored(number);
        }
        self.act(id);
    }

    /// Every disk syncs and every message arrives, until nothing moves any more.
    pub(crate) fn settle(&mut self) {
        loop {
            let ids: Vec<u64> = self.servers.keys().copied().collect();
            for id in ids {
                self.sync(id);
            }
            if self.network.is_empty() {
                return;
            }
            for parcel in std::mem::take(&mut self.network) {
                self.deliver(&parcel);
            }
        }
    }

    pub(crate) fn with(&mut self, id: u64, call: impl FnOnce(&mut Group)) {
        if let Some(group) = &mut self.server(id).group {
            call(group);
            self.act(id);
        }
    }

    pub(crate) fn propose(&mut self, id: u64, payload: &str) -> bool {
        let mut done = false;
        self.with(id, |group| done = group.propose(Bytes::copy_from_slice(payload.as_bytes())).is_ok());
        done
    }

    /// Asks from where may be read; the answer must cover everything that is committed now.
    pub(crate) fn read(&mut self, id: u64, question: u64) {
        let seen = self.committed.keys().last().copied().unwrap_or(0);
        self.questions.insert(question, seen);
        self.with(id, |group| group.read(question));
    }

    pub(crate) fn take_snapshot(&mut self, id: u64, keep_entries: u64) {
        let planted = self.planted;
        let server = self.server(id);
        let Some(group) = &mut server.group else { return };
        let mark = group.mark();
        let position = server.state.position;
        assert_eq!(mark.position, position);
        server.snapshots.insert(position, server.state);
        group.offer_snapshot(mark);
        group.compact(position.saturating_sub(keep_entries), 0);
        let forgetful = planted == Some(Planted::SnapshotWithoutVote);
        server.disk.take_snapshot(&group.mark(), server.state, !forgetful);
    }

    /// Hands a parcel to its receiver, over the wire's form.
    pub(crate) fn deliver(&mut self, parcel: &Parcel) {
        let (from, to) = (parcel.message.from(), parcel.message.to());
        if let Some(giver) = parcel.giver {
            return self.deliver_given((giver, parcel), parcel.message.clone());
        }
        let arrives = !self.cuts.contains(&(from, to)) && self.is_up(to);
        if arrives {
            let mut bytes = Pieces::default();
            parcel.message.encode(&mut bytes);
            let message = Message::decode(bytes.join()).expect("what was encoded can be decoded");
            assert_eq!(message, parcel.message);
            if let (Some(state), Some(mark)) = (parcel.snapshot, message.snapshot()) {
                self.server(to).arrived = Some((mark.position, state));
            }
            // Who was never asked may be someone who was a member once.
            let mut refused = None;
            // Whoever passes on what is acknowledged may lower it, and some comes directly.
            let in_bulk =
                message.acknowledges().filter(|_| self.spreads && !self.acknowledged.is_multiple_of(4));
            let lowered = u64::from(self.acknowledged.is_multiple_of(3));
            self.acknowledged += u64::from(message.acknowledges().is_some());
            let (term, mut is_in_term) = (message.term(), false);
            self.with(to, |group| {
                match in_bulk {
                    Some(position) => {
                        group.acknowledge(term, [(from, position.saturating_sub(lowered))]);
                    }
                    None => refused = group.step(message).err(),
                }
                is_in_term = group.in_step().0 == term;
            });
            if let Some(round) = parcel.round.filter(|_| is_in_term) {
                self.confirmed.push_back(Confirmed { leader: from, term, member: to, round });
            }
            self.confirm();
            assert!(
                matches!(refused, None | Some(stoa_group::StepError::Stranger)),
                "{refused:?}: {}",
                parcel.message
            );
        }
        if parcel.snapshot.is_some() {
            self.with(from, |group| group.snapshot_sent(to, arrives));
        }
    }

    /// Who gives a member a snapshot in the place of its leader, and what goes with it. One that has none that will do
    /// takes one.
    fn giver(&mut self, leader: u64, message: &Message) -> Option<(u64, Message)> {
        let (to, term) = (message.to(), message.term());
        let from = self.servers[&leader].group.as_ref()?.give_from(to);
        let others = self.servers.keys().copied().filter(|id| self.gives && ![leader, to].contains(id));
        for id in others.collect::<Vec<u64>>() {
            let group = self.servers[&id].group.as_ref().filter(|group| !group.is_taking_over());
            let Some(group) =
                group.filter(|group| group.status().leader == leader && group.in_step().0 == term)
            else {
                continue;
            };
            if group.give_snapshot(to, from).is_none() && group.mark().position >= from {
                self.take_snapshot(id, 3);
            }
            let given = self.servers[&id].group.as_ref().and_then(|group| group.give_snapshot(to, from));
            if let Some((_, given)) = given {
                return Some((id, given));
            }
        }
        None
    }

    /// A snapshot that another member has given in the name of its leader comes to its end.
    fn deliver_given(&mut self, (giver, parcel): (u64, &Parcel), message: Message) {
        let (leader, to) = (message.from(), message.to());
        let mark = message.snapshot().expect("snapshots are given");
        let arrives = !self.cuts.contains(&(giver, to)) && self.is_up(to);
        if arrives {
            // Of what is no news it is only said to the leader that it is here.
            let server = self.server(to);
            if server.group.as_ref().is_some_and(|group| group.committed() < mark.position) {
                server.arrived = parcel.snapshot.map(|state| (mark.position, state));
            }
            let mut refused = None;
            self.with(to, |group| refused = group.take_given(message).err());
            assert_eq!(refused, None, "{}", parcel.message);
            self.given += 1;
        }
        // The leader waits for what the member says, but not for ever.
        let is_over = arrives && !mark.position.is_multiple_of(3);
        self.with(leader, |group| {
            group.snapshot_is_at(to, mark.position);
            group.snapshot_sent(to, is_over);
        });
    }

    /// Something of what members have said of rounds arrives, late and in any order, or does not.
    fn confirm(&mut self) {
        if !self.acknowledged.is_multiple_of(2) || self.confirmed.is_empty() {
            return;
        }
        let at = self.acknowledged as usize % self.confirmed.len();
        let Some(Confirmed { leader, term, member, round }) = self.confirmed.remove(at) else { return };
        if self.is_up(leader) && !self.acknowledged.is_multiple_of(5) {
            self.with(leader, |group| group.confirm(term, [(member, round)]));
        }
    }

    /// Carries out what a member wants done.
    fn act(&mut self, id: u64) {
        while let Some(output) = self.server(id).group.as_mut().and_then(Group::poll) {
            match output {
                Output::Send(message) => {
                    self.tell(|| format!("{message}"));
                    self.network.push_back(Parcel { message, snapshot: None, round: None, giver: None });
                }
                Output::Spread(message) => {
                    self.tell(|| format!("{message}"));
                    self.spread += 1;
                    let round = self.server(id).group.as_ref().map(Group::round);
                    for to in self.servers.keys().filter(|to| **to != id) {
                        let message = message.addressed(*to);
                        self.network.push_back(Parcel { message, snapshot: None, round, giver: None });
                    }
                }
                Output::SendSnapshot(message) => {
                    let (giver, message) = self.giver(id, &message).unwrap_or((id, message));
                    let position = message.snapshot().unwrap().position;
                    self.tell(|| format!("{message}, given by {giver}"));
                    let state = self.servers[&giver].snapshots[&position];
                    let giver = Some(giver).filter(|giver| *giver != id);
                    self.network.push_back(Parcel { message, snapshot: Some(state), round: None, giver });
                }
                Output::Store(store) => self.store(id, store),
                Output::Committed(entries) => self.apply(id, &entries),
                Output::Members(members) => {
                    self.tell(|| match &members.outgoing[..] {
                        [] => format!("{id} voters {:?}, learners {:?}", members.voters, members.learners),
                        old => format!("{id} voters {:?} and still {old:?}", members.voters),
                    });
                }
                Output::Read { id: question, position } => {
                    self.tell(|| format!("{id} may read from {position}"));
                    if let Some(seen) = self.questions.remove(&question) {
                        assert!(position >= seen, "a read at {position} misses what was committed at {seen}");
                        self.reads_answered += 1;
                    }
                }
                Output::Leader { term, leader, role } => {
                    self.tell(|| format!("{id} is {role:?} in term {term}, leader {leader}"));
                    if role == Role::Leader {
                        let first = *self.leaders.entry(term).or_insert(id);
                        assert_eq!(first, id, "two leaders in term {term}");
                    }
                }
                Output::SnapshotWanted(at_least) => {
                    self.tell(|| format!("{id} needs a snapshot of {at_least} or later"));
                    self.take_snapshot(id, 0);
                }
            }
        }
    }

    fn store(&mut self, id: u64, mut store: Store) {
        self.tell(|| {
            let mut line = format!("{id} stores");
            if let Some(mark) = &store.snapshot {
                line += &format!(" snapshot {},", mark.position);
            }
            if let Some(vote) = store.vote {
                line += &format!(" term {} vote {} committed {},", vote.term, vote.voted_for, vote.committed);
            }
            if let (Some(first), Some(last)) = (store.entries.first(), store.entries.last()) {
                line += &format!(" entries {} to {},", first.position, last.position);
            }
            line.trim_end_matches(',').to_owned()
        });
        let planted = self.planted;
        if planted == Some(Planted::ForgottenVote) {
            // The term is learned again from others; the vote is not.
            if let Some(vote) = &mut store.vote {
                vote.voted_for = 0;
            }
        }
        let server = self.server(id);
        let mut state = None;
        if let Some(mark) = &store.snapshot {
            let (position, arrived) = server.arrived.take().expect("it came with its message");
            assert_eq!(position, mark.position);
            server.state = arrived;
            server.snapshots.insert(position, arrived);
            state = Some(arrived);
        }
        let number = store.number;
        server.disk.write(store, state);
        if planted == Some(Planted::EarlyAcknowledgement) {
            server.group.as_mut().unwrap().stored(number);
        }
    }

    fn apply(&mut self, id: u64, entries: &[Entry]) {
        for entry in entries {
            let server = self.server(id);
            assert_eq!(entry.position, server.state.position + 1, "server {id} leaves nothing out");
            server.state.apply(entry);
            let state = server.state;
            let what = (entry.term, entry.payload.clone());
            let first = self.committed.entry(entry.position).or_insert_with(|| what.clone());
            assert_eq!(*first, what, "two servers differ at {}", entry.position);
            let first = *self.states.entry(entry.position).or_insert(state);
            assert_eq!(first, state, "two states differ behind {}", entry.position);
            self.tell(|| match entry.kind {
                EntryKind::Payload => {
                    format!("{id} applies {} {:?}", entry.position, String::from_utf8_lossy(&entry.payload))
                }
                EntryKind::Change => format!("{id} applies {}, a change of members", entry.position),
            });
        }
    }
}
