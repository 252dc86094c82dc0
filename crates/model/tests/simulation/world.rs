//! Clients, a leader and messages between them, one after the other: what the models are compared with.
//!
//! Only what the models are about is here: trips, commits, the order of a session's requests, watches. The leader is
//! the contact server of all.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use stoa_model::Primitive;

/// All that is random follows from a seed.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Exponentially distributed with mean 1. The generator is splitmix64.
    pub(crate) fn exponential(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let below_one = ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
        -(-below_one).ln_1p()
    }
}

/// Times by mean, with the part of it that is exponential.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time {
    pub(crate) mean_ms: f64,
    pub(crate) random: f64,
}

/// What is simulated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) primitive: Primitive,
    pub(crate) poll_ms: f64,
    pub(crate) looks_again: bool,
    pub(crate) round_trip: Time,
    pub(crate) commit: Time,
    /// A server that is alone does not wait with refusals.
    pub(crate) alone: bool,
    pub(crate) section: Time,
    /// 0 clients: requests come from outside, this far apart. Else how long each client waits.
    pub(crate) clients: usize,
    pub(crate) between: Time,
    /// How often the lock is taken until the end, and from when on it counts.
    pub(crate) rounds: usize,
    pub(crate) warm_up: usize,
}

/// What came of it: means. Infinite when more was asked for than the lock could give.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) latency_ms: f64,
    /// Requests until the lock is had.
    pub(crate) requests: f64,
}

type Place = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ask {
    Create,
    Children,
    Exists(Place),
    Delete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tell {
    Created,
    Refused,
    Children(Option<Place>),
    Watched,
    Gone,
    Deleted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wants(usize),
    Polls(usize, Place),
    Leaves(usize),
    AtLeader(usize, Place, Ask),
    Applied(usize, Place, Ask, bool),
    AtClient(usize, Place, Tell),
}

#[derive(Debug, Clone, Default)]
struct Client {
    wanted_at: u64,
    /// The number of its attempt, which is also the name of its place.
    place: Place,
    holds: bool,
    has_place: bool,
    requests: u64,
    asked_watch: bool,
    watches: bool,
    /// Messages of a connection do not overtake one another.
    up: u64,
    down: u64,
    /// Writes that are not applied yet, and reads behind them.
    under_way: usize,
    behind: Vec<(Place, Ask)>,
}

pub(crate) struct World {
    setting: Setting,
    chance: Chance,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
    clients: Vec<Client>,
    places: u64,
    /// Places in order: as prepared, and as applied.
    prepared: Vec<(Place, usize)>,
    applied: Vec<Place>,
    last_applied: u64,
    watchers: HashMap<Place, Vec<(usize, Place)>>,
    holder: Option<usize>,
    taken: usize,
    sum_ms: f64,
    requests: u64,
}

/// When so many wait for it who were not asked whether they can, their number grows without end.
const WAITING_MAX: usize = 400;

/// The one znode of test-and-set locks.
const SHARED: Place = 0;

impl World {
    pub(crate) fn run(setting: Setting, seed: u64) -> Measured {
        let mut world = Self {
            setting,
            chance: Chance::new(seed),
            now: 0,
            events: BinaryHeap::new(),
            count: 0,
            clients: Vec::new(),
            places: 0,
            prepared: Vec::new(),
            applied: Vec::new(),
            last_applied: 0,
            watchers: HashMap::new(),
            holder: None,
            taken: 0,
            sum_ms: 0.0,
            requests: 0,
        };
        for client in 0..setting.clients.max(1) {
            let at = world.draw(setting.between);
            world.at(at, Event::Wants(client));
        }
        while world.taken < setting.rounds {
            if setting.clients == 0 && world.places > (world.taken + WAITING_MAX) as u64 {
                return Measured { latency_ms: f64::INFINITY, requests: f64::INFINITY };
            }
            let Reverse((now, _, event)) = world.events.pop().expect("somebody always wants the lock");
            world.now = now;
            world.happens(event);
        }
        let counted = (setting.rounds - setting.warm_up) as f64;
        Measured { latency_ms: world.sum_ms / counted, requests: world.requests as f64 / counted }
    }

    fn draw(&mut self, time: Time) -> u64 {
        let excess = self.chance.exponential() * time.random * time.mean_ms;
        ((time.mean_ms * (1.0 - time.random) + excess) * 1e6) as u64
    }

    fn at(&mut self, at: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at, self.count, event)));
    }

    fn trip(&mut self) -> u64 {
        let Time { mean_ms, random } = self.setting.round_trip;
        self.draw(Time { mean_ms: mean_ms / 2.0, random })
    }

    fn ask(&mut self, client: usize, ask: Ask) {
        let at = (self.now + self.trip()).max(self.clients[client].up);
        self.clients[client].up = at;
        self.clients[client].requests += u64::from(ask != Ask::Delete);
        let place = self.clients[client].place;
        self.at(at, Event::AtLeader(client, place, ask));
    }

    fn tell(&mut self, client: usize, place: Place, tell: Tell) {
        let at = (self.now + self.trip()).max(self.clients[client].down);
        self.clients[client].down = at;
        self.at(at, Event::AtClient(client, place, tell));
    }

    fn is_tas(&self) -> bool {
        matches!(self.setting.primitive, Primitive::SyncTas | Primitive::TasWatch | Primitive::AsyncTas)
    }

    fn polls(&self) -> bool {
        use Primitive::{AsyncQueue, AsyncQueueWatch, AsyncTas};
        matches!(self.setting.primitive, AsyncQueue | AsyncQueueWatch | AsyncTas)
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Wants(client) => self.wants(client),
            Event::Polls(client, place) => {
                let it = &self.clients[client];
                if it.place == place && !it.holds && !it.watches {
                    self.poll(client);
                }
            }
            Event::Leaves(client) => {
                assert_eq!(self.holder.take(), Some(client), "one holds it at a time");
                self.ask(client, Ask::Delete);
            }
            Event::AtLeader(client, place, ask) => self.at_leader(client, place, ask),
            Event::Applied(client, place, ask, granted) => self.is_applied(client, place, ask, granted),
            Event::AtClient(client, place, tell) => self.at_client(client, place, tell),
        }
    }

    fn wants(&mut self, client: usize) {
        if self.setting.clients == 0 {
            let next = self.now + self.draw(self.setting.between);
            self.at(next, Event::Wants(client + 1));
        }
        self.clients.resize(self.clients.len().max(client + 1), Client::default());
        self.places += 1;
        let old = &self.clients[client];
        self.clients[client] = Client {
            wanted_at: self.now,
            place: self.places,
            up: old.up,
            down: old.down,
            ..Client::default()
        };
        if self.setting.primitive != Primitive::AsyncTas {
            self.ask(client, Ask::Create);
        }
        if self.polls() {
            self.poll(client);
        }
    }

    fn poll(&mut self, client: usize) {
        self.ask(client, if self.is_tas() { Ask::Create } else { Ask::Children });
        let next = self.now + (self.setting.poll_ms * 1e6) as u64;
        let place = self.clients[client].place;
        self.at(next, Event::Polls(client, place));
    }

    /// Prepares a write, or carries out a read behind the writes of its client.
    fn at_leader(&mut self, client: usize, place: Place, ask: Ask) {
        let granted = match ask {
            Ask::Create if self.is_tas() => {
                let is_free = self.prepared.is_empty();
                if is_free {
                    self.prepared.push((place, client));
                } else if self.setting.alone {
                    return self.tell(client, place, Tell::Refused);
                }
                is_free
            }
            Ask::Create => {
                self.prepared.push((place, client));
                self.prepared.len() == 1
            }
            Ask::Delete => {
                self.prepared.retain(|(other, _)| *other != place);
                false
            }
            Ask::Children | Ask::Exists(_) if self.clients[client].under_way > 0 => {
                return self.clients[client].behind.push((place, ask));
            }
            Ask::Children | Ask::Exists(_) => return self.read(client, place, ask),
        };
        self.clients[client].under_way += 1;
        self.last_applied = (self.now + self.draw(self.setting.commit)).max(self.last_applied);
        self.at(self.last_applied, Event::Applied(client, place, ask, granted));
    }

    fn read(&mut self, client: usize, place: Place, ask: Ask) {
        let tell = match ask {
            Ask::Exists(other) if self.applied.contains(&other) => {
                self.watchers.entry(other).or_default().push((client, place));
                Tell::Watched
            }
            Ask::Exists(_) => Tell::Gone,
            _ => {
                let own = self.applied.iter().position(|other| *other == place);
                Tell::Children(own.and_then(|own| own.checked_sub(1)).map(|before| self.applied[before]))
            }
        };
        self.tell(client, place, tell);
    }

    fn is_applied(&mut self, client: usize, place: Place, ask: Ask, granted: bool) {
        let name = if self.is_tas() { SHARED } else { place };
        let is_extension = self.setting.primitive == Primitive::Extension;
        match ask {
            Ask::Create if self.is_tas() && !granted => self.tell(client, place, Tell::Refused),
            Ask::Create => {
                self.applied.push(name);
                if !is_extension || granted {
                    self.tell(client, place, Tell::Created);
                }
            }
            _ => {
                self.applied.retain(|other| *other != name);
                self.tell(client, place, Tell::Deleted);
                for (watcher, its) in self.watchers.remove(&name).unwrap_or_default() {
                    self.tell(watcher, its, Tell::Gone);
                }
                if let Some((next, its)) = self.prepared.first().copied().filter(|_| is_extension)
                    && self.applied.contains(&next)
                {
                    self.tell(its, next, Tell::Created);
                }
            }
        }
        self.clients[client].under_way -= 1;
        if self.clients[client].under_way == 0 {
            for (its, read) in std::mem::take(&mut self.clients[client].behind) {
                self.read(client, its, read);
            }
        }
    }

    fn at_client(&mut self, client: usize, place: Place, tell: Tell) {
        let it = &mut self.clients[client];
        if tell == Tell::Deleted {
            if self.setting.clients > 0 {
                let next = self.now + self.draw(self.setting.between);
                self.at(next, Event::Wants(client));
            }
            return;
        }
        if it.place != place || it.holds {
            return;
        }
        it.has_place |= tell == Tell::Created;
        let has_place = it.has_place;
        use Primitive::{AsyncQueue, AsyncQueueWatch, AsyncTas, Extension, SyncQueue, SyncTas, TasWatch};
        match (self.setting.primitive, tell) {
            (SyncTas | TasWatch | AsyncTas | Extension, Tell::Created) => self.has_it(client),
            (SyncTas, Tell::Refused) | (TasWatch, Tell::Gone) => self.ask(client, Ask::Create),
            (TasWatch, Tell::Refused) => self.ask(client, Ask::Exists(SHARED)),
            (SyncQueue, Tell::Created) => self.ask(client, Ask::Children),
            (SyncQueue, Tell::Gone) if self.setting.looks_again => self.ask(client, Ask::Children),
            (SyncQueue, Tell::Gone) | (SyncQueue, Tell::Children(None)) => self.has_it(client),
            (SyncQueue, Tell::Children(Some(other))) => self.ask(client, Ask::Exists(other)),
            (AsyncQueue | AsyncQueueWatch, Tell::Children(None)) if has_place => self.has_it(client),
            // Polling goes on until the watch is there: it is asked for only once.
            (AsyncQueueWatch, Tell::Children(Some(other))) if has_place && !it.asked_watch => {
                it.asked_watch = true;
                self.ask(client, Ask::Exists(other));
            }
            (AsyncQueueWatch, Tell::Watched) => it.watches = true,
            (AsyncQueueWatch, Tell::Gone) => self.has_it(client),
            _ => {}
        }
    }

    fn has_it(&mut self, client: usize) {
        assert_eq!(self.holder.replace(client), None, "one holds it at a time");
        self.clients[client].holds = true;
        if self.taken >= self.setting.warm_up {
            self.requests += self.clients[client].requests;
            self.sum_ms += (self.now - self.clients[client].wanted_at) as f64 / 1e6;
        }
        self.taken += 1;
        let end = self.now + self.draw(self.setting.section);
        self.at(end, Event::Leaves(client));
    }
}
