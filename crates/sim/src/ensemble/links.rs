//! The connections between clients and servers: what is sent arrives in order, unless the way is cut.
//! A connection does not notice that: what was sent meanwhile arrives when the way is free again, also
//! from a client that has long gone elsewhere.

use super::HostId;
use super::process::{Input, Key};
use super::visitor::Act;
use super::world::{Failure, Happening, World};
use std::collections::{BTreeMap, VecDeque};

/// A direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    ToServer,
    ToClient,
}

/// What comes to the end of its way.
#[derive(Debug)]
pub(super) enum Passing {
    /// The connection itself.
    Arrival,
    Request(Vec<u8>),
    /// The client's end of it.
    HangUp,
    Reply(Vec<u8>),
    /// The server's end of it.
    Gone,
}

impl Passing {
    fn way(&self) -> Way {
        match self {
            Self::Arrival | Self::Request(_) | Self::HangUp => Way::ToServer,
            Self::Reply(_) | Self::Gone => Way::ToClient,
        }
    }
}

#[derive(Debug)]
struct Cable {
    client: usize,
    server: HostId,
    /// Which thread of the server it is to.
    thread: u8,
    /// When the last that was sent arrives: nothing overtakes it.
    arrives_us: BTreeMap<Way, u64>,
    held_up: BTreeMap<Way, VecDeque<Passing>>,
}

/// The connections.
#[derive(Debug, Default)]
pub(super) struct Links {
    cables: BTreeMap<Key, Cable>,
    /// The connection that a client uses; older ones may still be open.
    current: BTreeMap<usize, Key>,
    last_key: Key,
    /// Until when a way is cut.
    cuts: BTreeMap<(usize, HostId, Way), u64>,
}

impl Links {
    /// When something arrives that would arrive at `at_us` if nothing were before it.
    pub(super) fn reach(&mut self, key: Key, way: Way, at_us: u64) -> Option<u64> {
        let arrives_us = self.cables.get_mut(&key)?.arrives_us.entry(way).or_insert(0);
        *arrives_us = at_us.max(*arrives_us);
        Some(*arrives_us)
    }

    /// Nothing arrives any more, on this way, until then.
    pub(super) fn cut(&mut self, client: usize, server: HostId, way: Way, until_us: u64) {
        let until = self.cuts.entry((client, server, way)).or_insert(0);
        *until = until_us.max(*until);
    }

    /// Every way is free; returns those on which something is held up.
    pub(super) fn mend(&mut self) -> Vec<(Key, Way)> {
        self.cuts.clear();
        let held_up = self.cables.iter().flat_map(|(key, cable)| {
            let ways = cable.held_up.iter().filter(|(_, waiting)| !waiting.is_empty());
            ways.map(|(way, _)| (*key, *way))
        });
        held_up.collect()
    }

    fn cut_until(&self, key: Key, way: Way, now_us: u64) -> Option<u64> {
        let Cable { client, server, .. } = self.cables.get(&key)?;
        self.cuts.get(&(*client, *server, way)).copied().filter(|until| *until > now_us)
    }

    /// Keeps what cannot pass now. Returns what can, and otherwise when the way is free, if nobody waits
    /// for that yet.
    fn hold_up(&mut self, key: Key, passing: Passing, now_us: u64) -> Result<Passing, Option<u64>> {
        let way = passing.way();
        let until = self.cut_until(key, way, now_us);
        let Some(cable) = self.cables.get_mut(&key) else { return Ok(passing) };
        let waiting = cable.held_up.entry(way).or_default();
        if until.is_none() && waiting.is_empty() {
            return Ok(passing);
        }
        waiting.push_back(passing);
        Err(until.filter(|_| waiting.len() == 1))
    }
}

impl World {
    pub(super) fn wake(&mut self, index: usize) -> Result<(), Failure> {
        // Of others the sessions go on: what they have left behind must be seen.
        if self.judges.checker.is_some() && self.healing && self.clients[index].is_done() {
            return Ok(());
        }
        let (acts, pause_us) = self.clients[index].wake(&mut self.judges, self.now_us)?;
        for act in acts {
            self.act(index, act);
        }
        self.schedule(pause_us, Happening::Wake(index));
        Ok(())
    }

    fn act(&mut self, index: usize, act: Act) {
        match act {
            Act::Connect(server, hello) => {
                let arrives_us = self.now_us + self.rng.range(50, 400);
                let thread = self.any_partition();
                let links = &mut self.links;
                links.last_key += 1;
                let key = links.last_key;
                let cable = Cable {
                    client: index,
                    server: self.settings.manners.first_id + server as HostId,
                    thread,
                    arrives_us: BTreeMap::from([(Way::ToServer, arrives_us), (Way::ToClient, arrives_us)]),
                    held_up: BTreeMap::new(),
                };
                links.cables.insert(key, cable);
                links.current.insert(index, key);
                self.schedule_at(arrives_us, Happening::Arrive(key));
                self.send(key, hello);
            }
            Act::Send(bytes) => {
                if let Some(key) = self.links.current.get(&index) {
                    self.send(*key, bytes);
                }
            }
            Act::Drop => {
                if let Some(key) = self.links.current.remove(&index)
                    && let Some(at) = self.links.reach(key, Way::ToServer, self.now_us)
                {
                    self.schedule_at(at, Happening::HangUp(key));
                }
            }
            Act::Stall(for_us) => {
                if let Some(key) = self.links.current.get(&index).copied() {
                    self.stall_socket(key, for_us);
                }
            }
        }
    }

    /// Puts bytes on their way to a server; to one that stands alone cut at random places.
    fn send(&mut self, key: Key, mut bytes: Vec<u8>) {
        while !bytes.is_empty() {
            let cut = if self.judges.checker.is_some() && self.rng.one_in(4) {
                self.rng.index(bytes.len()) + 1
            } else {
                bytes.len()
            };
            let rest = bytes.split_off(cut);
            let after = match &self.network.traffic {
                Some(traffic) => traffic.costs.hop_us,
                None => self.rng.around(200),
            };
            let Some(at) = self.links.reach(key, Way::ToServer, self.now_us + after) else { return };
            self.schedule_at(at, Happening::ToServer(key, std::mem::replace(&mut bytes, rest)));
        }
    }

    /// A client reads nothing for a while.
    fn stall_socket(&mut self, key: Key, for_us: u64) {
        let Some(Cable { server, thread, .. }) = self.links.cables.get(&key) else { return };
        let (server, thread, until_us) = (*server, *thread, self.now_us + for_us);
        let process = self.process_mut(server);
        let socket = process.and_then(|process| process.thread(thread).sockets.get_mut(&key));
        if let Some(socket) = socket {
            socket.stalled_until_us = until_us;
            self.schedule_turn(server, thread, until_us);
        }
    }

    /// Something has come to the end of its way, unless that is cut.
    pub(super) fn pass_on(&mut self, key: Key, passing: Passing) -> Result<(), Failure> {
        let way = passing.way();
        match self.links.hold_up(key, passing, self.now_us) {
            Ok(passing) => self.arrives(key, passing),
            Err(until_us) => {
                if let Some(until_us) = until_us {
                    self.schedule_at(until_us, Happening::Freed(key, way));
                }
                Ok(())
            }
        }
    }

    /// A way may be free again.
    pub(super) fn freed(&mut self, key: Key, way: Way) -> Result<(), Failure> {
        if let Some(until_us) = self.links.cut_until(key, way, self.now_us) {
            self.schedule_at(until_us, Happening::Freed(key, way));
            return Ok(());
        }
        let cable = self.links.cables.get_mut(&key);
        let waiting = cable.and_then(|cable| cable.held_up.remove(&way)).unwrap_or_default();
        waiting.into_iter().try_for_each(|passing| self.arrives(key, passing))
    }

    fn arrives(&mut self, key: Key, passing: Passing) -> Result<(), Failure> {
        match passing {
            Passing::Arrival => self.arrive(key),
            Passing::Request(bytes) => self.hand_to_server(key, Input::Bytes(key, bytes)),
            Passing::HangUp => self.hand_to_server(key, Input::HangUp(key)),
            Passing::Reply(bytes) => self.deliver(key, &bytes)?,
            Passing::Gone => self.server_gone(key),
        }
        Ok(())
    }

    fn hand_to_server(&mut self, key: Key, input: Input) {
        if let Some(cable) = self.links.cables.get(&key) {
            self.push(cable.server, cable.thread, input);
        }
    }

    fn arrive(&mut self, key: Key) {
        let Some(cable) = self.links.cables.get(&key) else { return };
        let Cable { client, server, thread, .. } = *cable;
        let address = std::net::SocketAddr::from(([10, 0, 0, client as u8 + 1], 4000));
        let accepted = self.push(server, thread, Input::Connect(key, address));
        let what = if accepted { "at" } else { "refused by" };
        self.note("connect", format_args!("client {client}: connection {key} {what} server {server}"));
        if !accepted {
            let after = self.rng.range(100, 5000);
            self.schedule(after, Happening::ServerGone(key));
        }
    }

    fn is_current(&self, client: usize, key: Key) -> bool {
        self.links.current.get(&client) == Some(&key)
    }

    fn deliver(&mut self, key: Key, bytes: &[u8]) -> Result<(), Failure> {
        let Some(index) = self.links.cables.get(&key).map(|cable| cable.client) else { return Ok(()) };
        if self.is_current(index, key) {
            let client = &mut self.clients[index];
            let what = format_args!("client {index}: connection {key}, {} bytes", bytes.len());
            self.trace.detail(self.now_us, "to client", what);
            for act in client.receive(bytes, &mut self.judges, self.now_us)? {
                self.act(index, act);
            }
        }
        Ok(())
    }

    fn server_gone(&mut self, key: Key) {
        let Some(cable) = self.links.cables.remove(&key) else { return };
        if self.is_current(cable.client, key) {
            self.links.current.remove(&cable.client);
            self.clients[cable.client].gone();
        }
    }

    /// A server has ended, and with it the connections of its clients.
    pub(super) fn hang_up_all(&mut self, id: HostId) {
        let of_server = self.links.cables.iter().filter(|(_, cable)| cable.server == id);
        let keys: Vec<Key> = of_server.map(|(key, _)| *key).collect();
        for key in keys {
            let after = self.rng.below(2000);
            self.schedule(after, Happening::ServerGone(key));
        }
    }
}
