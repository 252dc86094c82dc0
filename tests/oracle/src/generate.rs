//! The stream: steps drawn from a seed.
//!
//! The stream never looks at an answer, so it is the same whatever the servers do. It comes in
//! phases, each with a character of its own (mostly reads and writes, mostly multis, quotas, ...).
//! Between phases the superuser takes down what stands in the way, so that no phase starts in a
//! tree that nobody may touch.

use crate::call::{Call, Moment, Name, Op};
use crate::menu;
use crate::random::Random;
use stoa_wire::Opcode;

/// How a connection is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dial {
    /// Close the connection, open another one for the same session.
    Again,
    /// Open another one for the same session while the first is still there.
    Over,
    /// Close the connection, then try with a wrong password.
    WrongPassword,
    /// Close the connection, then claim to have seen a zxid that does not exist yet.
    FromTheFuture,
    /// Close the connection, then ask for a session that never was.
    NoSuchSession,
    /// Close the connection, open another one as a client older than 3.4 does.
    OldClient,
    /// Close the connection, ask for this timeout when opening another one.
    Timeout(i32),
    /// Close the connection, send these bytes instead of a connect request.
    Garbage(&'static [u8]),
}

/// One step of the stream. Only one session has requests in flight at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Requests sent together.
    Burst {
        /// Which session.
        slot: usize,
        /// At least one request.
        calls: Vec<Call>,
    },
    /// A new connection for a session.
    Dial {
        /// Which session.
        slot: usize,
        /// In which manner.
        how: Dial,
    },
    /// Bytes that are no request, after which the server is expected to close the connection.
    Garbage {
        /// Which session.
        slot: usize,
        /// What is sent.
        bytes: &'static [u8],
    },
}

impl Step {
    /// The session that it is about.
    #[must_use]
    pub fn slot(&self) -> usize {
        match self {
            Self::Burst { slot, .. } | Self::Dial { slot, .. } | Self::Garbage { slot, .. } => *slot,
        }
    }

    /// Requests in the step.
    #[must_use]
    pub fn requests(&self) -> u64 {
        match self {
            Self::Burst { calls, .. } => calls.len() as u64,
            Self::Dial { .. } | Self::Garbage { .. } => 1,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Profile {
    Mixed,
    Writes,
    Watches,
    Access,
    Multis,
    Sessions,
    Quotas,
}

const PROFILES: &[(usize, Profile)] = &[
    (5, Profile::Mixed),
    (3, Profile::Writes),
    (4, Profile::Watches),
    (3, Profile::Access),
    (4, Profile::Multis),
    (1, Profile::Sessions),
    (4, Profile::Quotas),
];

/// Bytes that end a connection: a header cut short, an empty frame, lengths out of range.
const GARBAGE: &[&[u8]] =
    &[b"\0\0\0\x04\0\0\0\x01", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\x7f\xff\xff\xff", b"ruok"];

/// What some send instead of a connect request.
const BAD_GREETINGS: &[&[u8]] = &[
    b"\0\0\0\0",
    b"\0\0\0\x08\0\0\0\x01\0\0\0\x0b",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\0\0\0\x1c\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x75\x30\0\0\0\0\0\0\0\0\xff\xff\xff\xf0",
];

/// Opcodes that ZooKeeper does not know, or gives to itself.
const STRANGE_OPCODES: &[i32] = &[0, 10, 23, 71, 99, 108, -1, -2, -12, 12345, i32::MIN, i32::MAX];

/// Draws the stream.
#[derive(Debug)]
pub struct Generator {
    random: Random,
    sessions: usize,
    pipeline: usize,
    profile: Profile,
    phase_left: usize,
    queue: Vec<Step>,
}

impl Generator {
    /// The stream of `seed` over so many sessions, with at most `pipeline` requests in a burst.
    #[must_use]
    pub fn new(seed: u64, sessions: usize, pipeline: usize) -> Self {
        Self {
            random: Random::new(seed),
            sessions: sessions.max(1),
            pipeline: pipeline.max(1),
            profile: Profile::Mixed,
            phase_left: 0,
            queue: Vec::new(),
        }
    }

    /// Sessions that the stream uses: those that were asked for and the superuser's.
    #[must_use]
    pub fn slots(sessions: usize) -> usize {
        sessions.max(1) + 1
    }

    fn start_phase(&mut self) {
        self.profile = self.random.weighted(PROFILES);
        self.phase_left = match self.profile {
            // One request at a time: as many steps as in other phases, not as many requests.
            Profile::Quotas => 100 + self.random.below(250),
            _ => 300 + self.random.below(2500),
        };
        self.sweep();
    }

    /// The superuser opens and deletes everything. The steps are queued last one first.
    fn sweep(&mut self) {
        let slot = self.sessions;
        let mut calls: Vec<Call> = Vec::new();
        let everything =
            ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"].iter().chain(menu::TREE);
        for path in everything {
            calls.push(menu::set_acl(path));
        }
        calls.extend(menu::quota_paths().map(|path| delete(Name::Text(path))));
        for round in 0..2 {
            calls.extend((0..40).map(|nth| delete(Name::Sequential(nth))));
            if round == 1 {
                calls.extend(menu::TREE.iter().rev().map(|path| delete(Name::text(*path))));
            }
        }
        let mut steps = vec![Step::Burst { slot, calls: vec![menu::superuser()] }];
        // The superuser may do everything under any ACL, so its own requests need not wait for it.
        for chunk in calls.chunks(self.pipeline) {
            steps.push(Step::Burst { slot, calls: chunk.to_vec() });
        }
        steps.extend(self.seedlings());
        steps.reverse();
        self.queue = steps;
    }

    /// Some znodes to begin with, so that the first requests of a phase find something.
    fn seedlings(&mut self) -> Vec<Step> {
        let slot = self.random.below(self.sessions);
        let mut calls = Vec::new();
        for path in menu::TREE {
            if self.random.percent(60) {
                calls.push(Call::from(Op::Create {
                    opcode: Opcode::Create,
                    path: Name::text(*path),
                    data: menu::data(&mut self.random),
                    acl: menu::open_acl(),
                    flags: 0,
                    ttl_ms: 0,
                }));
            }
        }
        let mut steps: Vec<Step> =
            calls.chunks(self.pipeline).map(|chunk| Step::Burst { slot, calls: chunk.to_vec() }).collect();
        if self.profile == Profile::Quotas {
            for path in menu::some_quota(&mut self.random) {
                let data = menu::quota_data(&mut self.random);
                let create = Op::Create {
                    opcode: Opcode::Create,
                    path: Name::Text(path),
                    data,
                    acl: menu::open_acl(),
                    flags: 0,
                    ttl_ms: 0,
                };
                steps.push(Step::Burst { slot, calls: vec![create.into()] });
            }
        }
        steps
    }

    fn draw(&mut self) -> Step {
        let slot = self.random.below(self.sessions);
        let restless = if self.profile == Profile::Sessions { 8 } else { 200 };
        if self.random.once_in(restless) {
            return self.connection_step(slot);
        }
        // ZooKeeper checks a quota against what has been applied, not against what has been
        // ordered, so with quotas only one request at a time has one right answer.
        let longest = if self.profile == Profile::Quotas { 1 } else { self.pipeline };
        let want = 1 + if self.random.percent(8) { 0 } else { self.random.below(longest) };
        let mut calls = Vec::with_capacity(want);
        let mut bytes = 0;
        while calls.len() < want && bytes < BURST_BYTES_MAX {
            let call = self.call();
            if call.op.travels_alone() {
                if calls.is_empty() {
                    calls.push(call);
                }
                break;
            }
            bytes += approximate_bytes(&call.op);
            let last = call.op.ends_burst();
            calls.push(call);
            if last {
                break;
            }
        }
        Step::Burst { slot, calls }
    }

    fn connection_step(&mut self, slot: usize) -> Step {
        let how = match self.random.below(100) {
            0..=44 => Dial::Again,
            45..=59 => Dial::Over,
            60..=65 => Dial::WrongPassword,
            66..=71 => Dial::FromTheFuture,
            72..=75 => Dial::NoSuchSession,
            76..=81 => Dial::OldClient,
            82..=87 => Dial::Timeout(self.random.pick(&[0, -1, 1, 700_000, i32::MAX, i32::MIN])),
            88..=91 => Dial::Garbage(self.random.pick(BAD_GREETINGS)),
            _ => return Step::Garbage { slot, bytes: self.random.pick(GARBAGE) },
        };
        Step::Dial { slot, how }
    }

    fn call(&mut self) -> Call {
        let mut call = Call::from(self.op());
        avoid_misread_paths(&mut call.op);
        if self.random.once_in(300) {
            call.cut = 1 + self.random.below(24);
        } else if self.random.once_in(300) {
            call.extra = 1 + self.random.below(9);
        }
        call
    }

    fn op(&mut self) -> Op {
        #[derive(Clone, Copy)]
        enum Kind {
            Create,
            Delete,
            SetData,
            Acl,
            Read,
            Watch,
            Multi,
            MultiRead,
            Auth,
            Session,
            Quota,
            Odd,
        }
        let weights: [usize; 12] = match self.profile {
            Profile::Mixed => [18, 12, 12, 4, 26, 8, 6, 4, 1, 3, 0, 1],
            Profile::Writes => [36, 24, 20, 2, 12, 0, 3, 1, 0, 1, 0, 1],
            Profile::Watches => [16, 14, 12, 2, 20, 30, 3, 0, 1, 1, 0, 1],
            Profile::Access => [20, 10, 14, 14, 24, 6, 6, 3, 3, 1, 0, 1],
            Profile::Multis => [10, 6, 4, 1, 8, 4, 48, 14, 1, 1, 0, 1],
            Profile::Sessions => [30, 8, 6, 2, 22, 18, 4, 2, 1, 6, 0, 1],
            Profile::Quotas => [30, 20, 20, 1, 6, 2, 8, 0, 1, 1, 10, 0],
        };
        const KINDS: [Kind; 12] = [
            Kind::Create,
            Kind::Delete,
            Kind::SetData,
            Kind::Acl,
            Kind::Read,
            Kind::Watch,
            Kind::Multi,
            Kind::MultiRead,
            Kind::Auth,
            Kind::Session,
            Kind::Quota,
            Kind::Odd,
        ];
        let menu: Vec<(usize, Kind)> = weights.into_iter().zip(KINDS).collect();
        match self.random.weighted(&menu) {
            Kind::Create => self.create(),
            Kind::Delete => self.delete(),
            Kind::SetData => self.set_data(),
            Kind::Acl => self.acl_op(),
            Kind::Read => self.read(),
            Kind::Watch => self.watch_op(),
            Kind::Multi => self.multi(),
            Kind::MultiRead => self.multi_read(),
            Kind::Auth => {
                let (scheme, auth) = self.random.pick(menu::CREDENTIALS);
                Op::Auth { scheme, auth }
            }
            Kind::Session => self.session_op(),
            Kind::Quota => self.quota_op(),
            Kind::Odd => self.odd_op(),
        }
    }

    fn create(&mut self) -> Op {
        let random = &mut self.random;
        let opcode = random.pick(&[
            Opcode::Create,
            Opcode::Create,
            Opcode::Create2,
            Opcode::Create2,
            Opcode::CreateContainer,
            Opcode::CreateTtl,
        ]);
        let usual: &[i32] = match opcode {
            Opcode::CreateContainer => &[4],
            Opcode::CreateTtl => &[5, 6],
            _ => &[0, 0, 0, 1, 1, 2, 3],
        };
        let flags = match random.below(60) {
            0 => random.pick(&[-1, 7, 8, 100, i32::MIN, i32::MAX]),
            1..=3 => random.below(7) as i32,
            _ => random.pick(usual),
        };
        let ttl_ms = match random.below(10) {
            0 => random.pick(&[0, -1, i64::MIN, i64::MAX, 1 << 40, (1 << 40) - 1, (1 << 40) + 1]),
            _ => 1_000_000_000 + random.below(1000) as i64,
        };
        // A negative TTL with a mode that has none stops ZooKeeper.
        let ttl_ms = if matches!(flags, 5 | 6) { ttl_ms } else { ttl_ms.max(0) };
        let path =
            if matches!(flags, 2 | 3 | 6) { menu::sequential_path(random) } else { menu::path(random) };
        let closed_percent = if self.profile == Profile::Access { 40 } else { 4 };
        let data = menu::data(random);
        Op::Create { opcode, path, data, acl: menu::acl(random, closed_percent), flags, ttl_ms }
    }

    fn delete(&mut self) -> Op {
        let path = if self.random.percent(40) {
            Name::Sequential(self.random.below(64))
        } else {
            menu::path(&mut self.random)
        };
        Op::Number { opcode: Opcode::Delete, path, number: menu::version(&mut self.random) }
    }

    fn set_data(&mut self) -> Op {
        let random = &mut self.random;
        Op::SetData { path: menu::path(random), data: menu::data(random), version: menu::version(random) }
    }

    fn acl_op(&mut self) -> Op {
        let random = &mut self.random;
        let path = menu::path(random);
        if random.percent(50) {
            return Op::Path { opcode: Opcode::GetAcl, path };
        }
        // The root and its like are closed rarely: everything below would come to a halt.
        let reserved = matches!(&path, Name::Text(path) if path == "/" || path.starts_with("/zookeeper"));
        let closed_percent = if reserved { 3 } else { 50 };
        Op::SetAcl { path, acl: menu::acl(random, closed_percent), version: menu::version(random) }
    }

    fn read(&mut self) -> Op {
        let random = &mut self.random;
        let watch_percent = if self.profile == Profile::Watches { 60 } else { 20 };
        let opcode = random.pick(&[
            Opcode::Exists,
            Opcode::Exists,
            Opcode::GetData,
            Opcode::GetData,
            Opcode::GetChildren,
            Opcode::GetChildren2,
            Opcode::GetAllChildrenNumber,
            Opcode::Sync,
        ]);
        let path = menu::path(random);
        match opcode {
            Opcode::GetAllChildrenNumber | Opcode::Sync => Op::Path { opcode, path },
            _ => Op::Watch { opcode, path, watch: random.percent(watch_percent) },
        }
    }

    fn watch_op(&mut self) -> Op {
        let random = &mut self.random;
        let path = menu::path(random);
        match random.below(100) {
            0..=34 => {
                let number =
                    if random.once_in(25) { random.pick(&[-1, 2, 9]) } else { random.below(2) as i32 };
                Op::Number { opcode: Opcode::AddWatch, path, number }
            }
            35..=79 => {
                let opcode = random.pick(&[Opcode::CheckWatches, Opcode::RemoveWatches]);
                let number =
                    if random.once_in(25) { random.pick(&[-1, 0, 6]) } else { 1 + random.below(5) as i32 };
                Op::Number { opcode, path, number }
            }
            _ => {
                let opcode = random.pick(&[Opcode::SetWatches, Opcode::SetWatches2]);
                let seen = match random.below(6) {
                    0 => Moment::Fixed(0),
                    1 => Moment::Fixed(i64::MAX),
                    2 => Moment::Fixed(-1),
                    _ => Moment::WritesAgo(random.below(60)),
                };
                let lists = std::array::from_fn(|_| {
                    let len = random.pick(&[0, 0, 1, 1, 2, 3, 5]);
                    (0..len).map(|_| menu::path(random)).collect()
                });
                Op::SetWatches { opcode, seen, lists }
            }
        }
    }

    fn multi(&mut self) -> Op {
        // See `differences`: quotas within a multi.
        let most = if self.profile == Profile::Quotas { 1 } else { usize::MAX };
        let len = self.random.pick(&[0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 12]).min(most);
        let mut ops: Vec<Op> = (0..len).map(|_| self.multi_part()).collect();
        if self.random.once_in(60) && !ops.is_empty() {
            // A read, or something that may stand in no multi, among the writes.
            let at = self.random.below(ops.len());
            ops[at] = if self.random.percent(50) { self.read() } else { self.acl_op() };
        }
        Op::Multi { opcode: Opcode::Multi, ops }
    }

    /// One write of a multi. Half of them are such that they rarely fail: otherwise hardly any long
    /// multi would get through.
    fn multi_part(&mut self) -> Op {
        let random = &mut self.random;
        if random.percent(50) {
            let parent = random.pick(&["/a", "/b", "/w", "/c", "/"]);
            let parent = if parent == "/" { "" } else { parent };
            return match random.below(4) {
                0 | 1 => Op::Create {
                    opcode: random.pick(&[Opcode::Create, Opcode::Create2]),
                    path: Name::text(format!("{parent}/m-")),
                    data: menu::data(random),
                    acl: menu::open_acl(),
                    flags: random.pick(&[2, 3, 3, 3]),
                    ttl_ms: 0,
                },
                2 => Op::SetData {
                    path: Name::text(random.pick(&["/a", "/b", "/w"])),
                    data: menu::data(random),
                    version: -1,
                },
                _ => Op::Number {
                    opcode: Opcode::Check,
                    path: Name::text(random.pick(&["/a", "/", "/w"])),
                    number: -1,
                },
            };
        }
        match random.below(10) {
            0..=3 => {
                let mut op = self.create();
                if let Op::Create { acl, .. } = &mut op {
                    // See `differences`: a null ACL.
                    acl.get_or_insert_default();
                }
                op
            }
            4..=5 => {
                let path = menu::path(random);
                Op::Number { opcode: Opcode::Delete, path, number: menu::version(random) }
            }
            6..=7 => self.set_data(),
            _ => {
                let path = menu::path(random);
                Op::Number { opcode: Opcode::Check, path, number: menu::version(random) }
            }
        }
    }

    fn multi_read(&mut self) -> Op {
        let len = self.random.pick(&[0, 1, 2, 3, 5, 9]);
        let random = &mut self.random;
        let mut ops: Vec<Op> = (0..len)
            .map(|_| Op::Watch {
                opcode: random.pick(&[Opcode::GetData, Opcode::GetChildren]),
                path: menu::path(random),
                watch: random.percent(20),
            })
            .collect();
        if self.random.once_in(30) && !ops.is_empty() {
            let at = self.random.below(ops.len());
            ops[at] = if self.random.percent(50) { self.read() } else { self.multi_part() };
        }
        // Reads in a multi and writes in a multiRead, now and then.
        let opcode = if self.random.once_in(30) { Opcode::Multi } else { Opcode::MultiRead };
        Op::Multi { opcode, ops }
    }

    fn session_op(&mut self) -> Op {
        match self.random.below(20) {
            0..=5 => Op::Path { opcode: Opcode::GetEphemerals, path: menu::prefix(&mut self.random) },
            6..=9 => Op::Bare(Opcode::WhoAmI),
            10..=15 => Op::Bare(Opcode::Ping),
            _ => Op::Bare(Opcode::CloseSession),
        }
    }

    fn quota_op(&mut self) -> Op {
        let random = &mut self.random;
        let path = menu::quota_path(random);
        let data = menu::quota_data(random);
        match random.below(10) {
            0..=5 => {
                Op::Create { opcode: Opcode::Create, path, data, acl: menu::open_acl(), flags: 0, ttl_ms: 0 }
            }
            6 => Op::SetData { path, data, version: -1 },
            7 => Op::Number { opcode: Opcode::Delete, path, number: -1 },
            _ => Op::Watch { opcode: Opcode::GetData, path, watch: false },
        }
    }

    fn odd_op(&mut self) -> Op {
        let random = &mut self.random;
        match random.below(5) {
            0 => Op::Raw { opcode: random.pick(STRANGE_OPCODES), body: vec![0; random.below(20)] },
            1 => {
                Op::Number { opcode: Opcode::Check, path: menu::path(random), number: menu::version(random) }
            }
            2 => {
                let mut body = vec![0xff; 12];
                body.extend_from_slice(&(-1_i64).to_be_bytes());
                Op::Raw { opcode: Opcode::Reconfig as i32, body }
            }
            3 => {
                // A known opcode with a body of noise.
                let opcode = random.pick(&[
                    Opcode::Create,
                    Opcode::GetData,
                    Opcode::Multi,
                    Opcode::MultiRead,
                    Opcode::SetWatches2,
                    Opcode::SetAcl,
                ]);
                let mut body: Vec<u8> = (0..random.below(64))
                    .map(|_| if random.percent(60) { 0 } else { random.bits() as u8 & 0x7f })
                    .collect();
                if let Some(length) = body.get_mut(3) {
                    // Neither the path "" nor one that is no UTF-8 (see `differences`).
                    *length |= 1;
                }
                Op::Raw { opcode: opcode as i32, body }
            }
            _ => Op::Bare(Opcode::WhoAmI),
        }
    }
}

/// Requests of one burst together stay below what a socket takes in without being read.
const BURST_BYTES_MAX: usize = 48 << 10;

fn approximate_bytes(op: &Op) -> usize {
    match op {
        Op::Create { data, .. } | Op::SetData { data, .. } => 100 + data.as_ref().map_or(0, Vec::len),
        Op::Multi { ops, .. } => ops.iter().map(approximate_bytes).sum(),
        _ => 100,
    }
}

/// See `differences`: a path that ZooKeeper takes for another, or sends back as no UTF-8, becomes one
/// that it refuses.
fn avoid_misread_paths(op: &mut Op) {
    const REFUSED: &str = "/..";
    let never = |_: &str| false;
    let empty = |text: &str| text.is_empty();
    let beyond_plane = |text: &str| text.chars().any(|c| c > '\u{ffff}');
    let avoid = |path: &mut Name, null: bool, bad: &dyn Fn(&str) -> bool| {
        if (null && *path == Name::Null) || matches!(path, Name::Text(text) if bad(text)) {
            *path = Name::text(REFUSED);
        }
    };
    match op {
        Op::Path { opcode: Opcode::Sync, path } => avoid(path, true, &beyond_plane),
        Op::SetData { path, .. } | Op::SetAcl { path, .. } => avoid(path, true, &never),
        Op::Path { opcode: Opcode::GetAcl | Opcode::GetAllChildrenNumber, path } | Op::Watch { path, .. } => {
            avoid(path, false, &empty);
        }
        Op::Number {
            opcode: Opcode::AddWatch | Opcode::CheckWatches | Opcode::RemoveWatches, path, ..
        } => {
            avoid(path, true, &never);
        }
        Op::SetWatches { lists, .. } => {
            for path in lists.iter_mut().flatten() {
                avoid(path, true, &|text| empty(text) || beyond_plane(text));
            }
        }
        // ZooKeeper looks at the mode first and only then stumbles over the null.
        Op::Create { path: path @ Name::Null, opcode, flags, .. }
            if *flags != 0 || *opcode != Opcode::Create =>
        {
            *path = Name::text(REFUSED);
        }
        Op::Multi { ops, .. } => ops.iter_mut().for_each(avoid_misread_paths),
        _ => {}
    }
}

fn delete(path: Name) -> Call {
    Op::Number { opcode: Opcode::Delete, path, number: -1 }.into()
}

impl Iterator for Generator {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if let Some(step) = self.queue.pop() {
            return Some(step);
        }
        if self.phase_left == 0 {
            self.start_phase();
            return self.queue.pop();
        }
        let step = self.draw();
        self.phase_left = self.phase_left.saturating_sub(usize::try_from(step.requests()).unwrap_or(1));
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_streams() {
        let stream = |seed| Generator::new(seed, 8, 32).take(3000).collect::<Vec<_>>();
        assert!(stream(7) == stream(7));
        assert!(stream(7) != stream(8));
    }

    #[test]
    fn what_must_travel_alone_does() {
        for step in Generator::new(3, 8, 32).take(20_000) {
            if let Step::Burst { calls, .. } = step {
                assert!(!calls.is_empty());
                assert!(calls.len() == 1 || calls.iter().all(|call| !call.op.travels_alone()), "{calls:?}");
            }
        }
    }

    #[test]
    fn a_long_stream_asks_for_every_opcode_of_a_client() {
        // See `differences` for those that are left out.
        let not_sent = [Opcode::DeleteContainer, Opcode::CreateSession, Opcode::Sasl];
        let mut missing: Vec<Opcode> = Opcode::ALL.to_vec();
        missing.retain(|opcode| !not_sent.contains(opcode));
        for step in Generator::new(1, 8, 32).take(50_000) {
            if let Step::Burst { calls, .. } = step {
                missing.retain(|opcode| calls.iter().all(|call| call.op.opcode() != *opcode as i32));
            }
        }
        assert_eq!(missing, []);
    }
}
