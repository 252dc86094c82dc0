//! Whoever comes to the servers for its own sake, and is not one of the clients that the world looks after.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use stoa_core::ConnectionId;
use stoa_tree::Tree;

use super::world::{Done, Outcome, World};
use crate::check::Violation;
use crate::ensemble::Act;

/// What happens while things go wrong, in steps.
const STEPS: u64 = 40_000;
/// By then sessions have ended that nobody speaks for, microseconds.
const SESSIONS_END_US: u64 = 5_000_000;

/// A guest. It has one connection at a time.
pub(crate) trait Guest {
    /// Time to do something; returns what, and after how many microseconds it wants to be asked again.
    fn wake(&mut self, now_us: u64, ended: &Ended) -> Result<(Vec<Act>, u64), Violation>;

    /// Bytes have come on the connection.
    fn receive(&mut self, bytes: &[u8], now_us: u64, ended: &Ended) -> Result<Vec<Act>, Violation>;

    /// The connection is gone.
    fn gone(&mut self);

    /// From now on it only finishes what it has begun.
    fn finish(&mut self);

    /// Whether it has.
    fn is_done(&self) -> bool;

    /// What it waits for.
    fn waits_for(&self) -> String;
}

/// The sessions that have ended.
///
/// A session lives on all partitions that it has something on, and its end is one operation over all of them. So it
/// has ended when one of them has applied that; the others will, though they may not have come so far.
#[derive(Default)]
pub(crate) struct Ended {
    ended: BTreeSet<i64>,
    /// How far each partition has come, and the sessions that it had then.
    alive: BTreeMap<u8, (u64, BTreeSet<i64>)>,
}

impl Ended {
    pub(crate) fn contains(&self, session: i64) -> bool {
        self.ended.contains(&session)
    }

    /// Takes in what a partition has applied.
    fn look(&mut self, partition: u8, applied: u64, tree: &Tree) {
        let (last, alive) = self.alive.entry(partition).or_default();
        if applied <= *last {
            return;
        }
        let now: BTreeSet<i64> = tree.sessions().map(|session| session.id).collect();
        self.ended.extend(alive.difference(&now));
        (*last, *alive) = (applied, now);
    }
}

/// Where a guest is connected, and when it wants to do something.
struct Place {
    guest: Box<dyn Guest>,
    at: Option<(u8, u8, ConnectionId)>,
    due_us: u64,
}

/// All guests, and what they want done.
#[derive(Default)]
pub(super) struct Guests {
    places: Vec<Place>,
    errands: VecDeque<(usize, Act)>,
    ended: Ended,
}

impl Guests {
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Who is connected to a thread of a server.
    pub(super) fn at(&self, id: u8, thread: u8) -> Vec<(usize, ConnectionId)> {
        let places = self.places.iter().enumerate();
        let at = places.filter_map(|(index, place)| Some((index, place.at?)));
        at.filter(|(_, (server, of, _))| (*server, *of) == (id, thread))
            .map(|(index, at)| (index, at.2))
            .collect()
    }

    /// Shows one what it was sent.
    fn receive(&mut self, index: usize, bytes: &[u8], now_us: u64) -> Done {
        let acts = self.places[index].guest.receive(bytes, now_us, &self.ended)?;
        self.errands.extend(acts.into_iter().map(|act| (index, act)));
        Ok(())
    }

    /// Connections are gone.
    pub(super) fn lose(&mut self, which: impl Fn((u8, u8, ConnectionId)) -> bool) {
        for place in self.places.iter_mut().filter(|place| place.at.is_some_and(&which)) {
            place.at = None;
            place.guest.gone();
        }
    }

    /// Those do something whose time has come.
    fn wake(&mut self, now_us: u64) -> Done {
        for (index, place) in self.places.iter_mut().enumerate().filter(|(_, place)| place.due_us <= now_us) {
            let (acts, pause_us) = place.guest.wake(now_us, &self.ended)?;
            place.due_us = now_us + pause_us;
            self.errands.extend(acts.into_iter().map(|act| (index, act)));
        }
        Ok(())
    }
}

impl World<'_> {
    /// What guests want is done, and they are told what becomes of it.
    pub(super) fn tend_guests(&mut self) -> Done {
        if self.guests.is_empty() {
            return Ok(());
        }
        self.look_at_sessions();
        self.guests.wake(self.now_us)?;
        // What comes of it is done the next time.
        for _ in 0..self.guests.errands.len() {
            let Some((index, act)) = self.guests.errands.pop_front() else { break };
            self.run_errand(index, act)?;
        }
        Ok(())
    }

    fn look_at_sessions(&mut self) {
        let machines = &self.machines;
        for partition in 0..self.partitions {
            let shards = machines.values().filter_map(|machine| machine.process.as_ref());
            let servers = shards.map(|server| &server.shards[usize::from(partition)]);
            if let Some(server) = servers.max_by_key(|server| server.applied()) {
                self.guests.ended.look(partition, server.applied(), server.tree());
            }
        }
    }

    /// Shows guests what they were sent.
    pub(super) fn tell_guests(&mut self, told: Vec<(usize, Vec<u8>)>) -> Done {
        if !told.is_empty() {
            // Who is told of something may know by it that a session has ended.
            self.look_at_sessions();
        }
        told.into_iter().try_for_each(|(index, bytes)| self.guests.receive(index, &bytes, self.now_us))
    }

    fn run_errand(&mut self, index: usize, act: Act) -> Done {
        let at = self.guests.places[index].at;
        match act {
            Act::Connect(server, hello) => {
                let (id, thread) = (server as u8 + 1, self.rng.index(self.partitions.into()) as u8);
                let now = self.now(id);
                let address: SocketAddr = ([127, 0, 0, 1], 5000).into();
                let connection = self.process(id).and_then(|it| it.shard(thread).connect(address, now).ok());
                // An old connection is left as it is.
                self.guests.places[index].at = connection.map(|connection| (id, thread, connection));
                match connection {
                    Some(_) => self.send(index, &hello),
                    None => {
                        self.guests.places[index].guest.gone();
                        Ok(())
                    }
                }
            }
            Act::Send(bytes) => self.send(index, &bytes),
            Act::Drop => {
                self.guests.places[index].at = None;
                let Some((id, thread, connection)) = at else { return Ok(()) };
                let now = self.now(id);
                if let Some(server) = self.process(id) {
                    server.shard(thread).disconnected(connection, now);
                }
                self.poll(id, thread)
            }
        }
    }

    fn send(&mut self, index: usize, bytes: &[u8]) -> Done {
        let Some((id, thread, connection)) = self.guests.places[index].at else { return Ok(()) };
        let now = self.now(id);
        if let Some(server) = self.process(id) {
            server.shard(thread).receive(connection, bytes, now);
        }
        self.poll(id, thread)
    }

    /// Lives with guests, heals everything, lets them finish and sessions end that nobody speaks for, and has somebody
    /// judge the state of what lives where a path does, which is moved about.
    ///
    /// # Errors
    /// What must not have happened, or has not happened though it must.
    pub(crate) fn host(
        mut self,
        guests: Vec<Box<dyn Guest>>,
        path: &str,
        judge: impl FnOnce(&Tree) -> Result<(), Violation>,
    ) -> Result<Outcome, Violation> {
        self.moved = Some(path.to_owned());
        self.begin()?;
        let now_us = self.now_us;
        let place = |guest| Place { guest, at: None, due_us: now_us };
        self.guests.places = guests.into_iter().map(place).collect();
        self.be_troubled(STEPS)?;
        self.guests.places.iter_mut().for_each(|place| place.guest.finish());
        self.heal_servers()?;
        self.until("all guests are done", |world| world.guests.places.iter().all(|it| it.guest.is_done()))
            .map_err(|violation| {
                let late = self.guests.places.iter().filter(|place| !place.guest.is_done());
                let late: Vec<_> = late.map(|place| place.guest.waits_for()).collect();
                Violation::new(format!("{violation}; {}", late.join("; ")))
            })?;
        let end_us = self.now_us + SESSIONS_END_US;
        self.until("time passes", |world| world.now_us > end_us)?;
        self.take_leave()?;
        self.compare()?;
        judge(self.tree_of(path))?;
        Ok(self.come_to())
    }
}
