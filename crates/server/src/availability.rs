//! When a server serves and when it does not, over all of its partitions: what Apache ZooKeeper tells of elections
//! and of the time without service.

use std::time::Instant;

use stoa_core::Histogram;

use crate::meter::micros;
use crate::process::Serves;
use crate::view::Mode;

/// What one partition is at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it does for clients.
    pub serves: Serves,
    /// Who leads it, if that is known.
    pub leader: Option<u8>,
    /// What the server is there.
    pub mode: Mode,
    /// Whether it votes there.
    pub votes: bool,
}

impl Seen {
    /// Before it says anything.
    const NOTHING: Seen = Seen { serves: Serves::Nothing, leader: None, mode: Mode::Looking, votes: false };
}

/// What all partitions together are, and since when.
#[derive(Debug)]
pub(crate) struct Availability {
    partitions: Vec<Seen>,
    leader: Option<u8>,
    looking_since: Option<Instant>,
    found_at: Option<Instant>,
    unavailable_since: Option<Instant>,
    leading_since: Option<Instant>,
    record: Record,
}

/// What has happened since the start, microseconds. A server that stands alone elects nobody and waits for nobody.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Record {
    /// How often the server has begun to look for a leader.
    pub(crate) looking: u64,
    /// From then until one was found, at a server that votes; 0 for one that follows another one at once.
    pub(crate) election: Histogram,
    /// How long not everything was served.
    pub(crate) unavailable: Histogram,
    /// The same where the server leads from then on.
    pub(crate) leader_unavailable: Histogram,
    /// From the time that a leader was found until everything is applied that was committed before, at a follower.
    pub(crate) follower_sync: Histogram,
    /// The same at an observer.
    pub(crate) observer_sync: Histogram,
}

impl Availability {
    pub(crate) fn new(partitions: u8) -> Availability {
        Availability {
            partitions: vec![Seen::NOTHING; usize::from(partitions)],
            leader: None,
            looking_since: None,
            found_at: None,
            unavailable_since: None,
            leading_since: None,
            record: Record::default(),
        }
    }

    /// What has happened, and for how many milliseconds the server has led, if it does.
    pub(crate) fn told(&self, now: Instant) -> (Record, Option<u64>) {
        let led = self.leading_since.map(|since| micros(now.saturating_duration_since(since)) / 1000);
        (self.record, led)
    }

    /// Whether only the reads of some are served: one partition decides that for all.
    pub(crate) fn only_reads(&self) -> bool {
        self.partitions.iter().any(|it| it.serves == Serves::Reads)
    }

    /// Whether anybody is served: everybody by all partitions, or the reads of some by one.
    pub(crate) fn is_anything_served(&self) -> bool {
        let reads = self.only_reads();
        reads || self.is_all_served()
    }

    fn is_all_served(&self) -> bool {
        self.partitions.iter().all(|it| it.serves == Serves::All)
    }

    /// A partition is that from now on. One server leads all of them, so what the first one says of the leader
    /// holds when all know one.
    pub(crate) fn saw(&mut self, partition: u8, seen: Seen, now: Instant) {
        if let Some(known) = self.partitions.get_mut(usize::from(partition)) {
            *known = seen;
        }
        let first = self.partitions.first().copied().unwrap_or(Seen::NOTHING);
        // Where one has no others, none has; the first may not have said so yet.
        if self.partitions.iter().any(|it| it.mode == Mode::Standalone) {
            (self.leader, self.looking_since, self.found_at, self.unavailable_since) =
                (first.leader, None, None, None);
            self.leads(self.is_all_served(), now);
            return;
        }
        let is_known = self.partitions.iter().all(|it| it.leader.is_some());
        self.leader_is(first.leader.filter(|_| is_known), first.votes, now);
        if !self.is_all_served() {
            self.unavailable_since.get_or_insert(now);
            self.leads(false, now);
            return;
        }
        let is_leader = first.mode == Mode::Leader;
        let took = |since: Instant| micros(now.saturating_duration_since(since));
        if let Some(us) = self.unavailable_since.take().map(took) {
            self.record.unavailable.record(us, 1);
            self.record.leader_unavailable.record(us, u64::from(is_leader));
        }
        if let Some(us) = self.found_at.take().map(took) {
            match first.mode {
                Mode::Follower => self.record.follower_sync.record(us, 1),
                Mode::Observer => self.record.observer_sync.record(us, 1),
                _ => {}
            }
        }
        self.leads(is_leader, now);
    }

    fn leader_is(&mut self, leader: Option<u8>, votes: bool, now: Instant) {
        if leader.is_none() {
            if self.looking_since.is_none() {
                self.looking_since = Some(now);
                self.record.looking += 1;
            }
            self.found_at = None;
        } else if leader != self.leader || self.looking_since.is_some() {
            let since = self.looking_since.take().unwrap_or(now);
            self.record.election.record(micros(now.saturating_duration_since(since)), u64::from(votes));
            self.found_at = Some(now);
        }
        self.leader = leader;
    }

    fn leads(&mut self, does: bool, now: Instant) {
        self.leading_since = does.then(|| self.leading_since.unwrap_or(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Partitions, and a clock that tells them apart in milliseconds.
    struct World(Availability, Instant);

    impl World {
        fn new(partitions: u8) -> World {
            World(Availability::new(partitions), Instant::now())
        }

        fn see(&mut self, at_ms: u64, partition: u8, mode: Mode, leader: Option<u8>, serves: Serves) {
            let votes = mode != Mode::Observer;
            let seen = Seen { serves, leader, mode, votes };
            self.0.saw(partition, seen, self.1 + Duration::from_millis(at_ms));
        }

        fn at(&self, ms: u64) -> (Record, Option<u64>) {
            self.0.told(self.1 + Duration::from_millis(ms))
        }
    }

    fn counted(of: &Histogram) -> (u64, u64) {
        (of.count(), of.sum_us() / 1000)
    }

    #[test]
    fn a_follower_looks_finds_and_catches_up() {
        let mut world = World::new(1);
        world.see(0, 0, Mode::Looking, None, Serves::Nothing);
        world.see(50, 0, Mode::Looking, None, Serves::Nothing);
        world.see(100, 0, Mode::Looking, Some(3), Serves::Nothing);
        world.see(130, 0, Mode::Follower, Some(3), Serves::All);
        let (record, led) = world.at(200);
        assert_eq!((record.looking, led), (1, None));
        assert_eq!(counted(&record.election), (1, 100));
        assert_eq!((counted(&record.follower_sync), counted(&record.observer_sync)), ((1, 30), (0, 0)));
        assert_eq!((counted(&record.unavailable), counted(&record.leader_unavailable)), ((1, 130), (0, 0)));
        // The leader is lost, another one found, and lost before all is applied.
        world.see(1_000, 0, Mode::Looking, None, Serves::Nothing);
        world.see(1_010, 0, Mode::Looking, Some(2), Serves::Nothing);
        world.see(1_020, 0, Mode::Looking, None, Serves::Nothing);
        world.see(1_050, 0, Mode::Looking, Some(2), Serves::Nothing);
        world.see(1_090, 0, Mode::Follower, Some(2), Serves::All);
        let (record, _) = world.at(2_000);
        assert_eq!((record.looking, counted(&record.election)), (3, (3, 140)));
        assert_eq!((counted(&record.follower_sync), counted(&record.unavailable)), ((2, 70), (2, 220)));
        // It is handed over: nobody is looked for, and nothing is missing.
        world.see(3_000, 0, Mode::Follower, Some(0), Serves::All);
        let (record, _) = world.at(3_000);
        assert_eq!((record.looking, counted(&record.election)), (3, (4, 140)));
        assert_eq!((counted(&record.follower_sync), counted(&record.unavailable)), ((3, 70), (2, 220)));
    }

    #[test]
    fn a_leader_counts_from_when_it_serves_and_no_longer_than_it_does() {
        let mut world = World::new(1);
        world.see(0, 0, Mode::Looking, None, Serves::Nothing);
        world.see(10, 0, Mode::Looking, Some(1), Serves::Nothing);
        world.see(40, 0, Mode::Leader, Some(1), Serves::All);
        let (record, led) = world.at(1_040);
        assert_eq!((counted(&record.leader_unavailable), led), ((1, 40), Some(1_000)));
        assert_eq!((counted(&record.unavailable), counted(&record.follower_sync)), ((1, 40), (0, 0)));
        world.see(2_000, 0, Mode::Follower, Some(2), Serves::All);
        assert_eq!(world.at(3_000).1, None);
    }

    #[test]
    fn an_observer_elects_nobody() {
        let mut world = World::new(1);
        world.see(0, 0, Mode::Observer, None, Serves::Nothing);
        world.see(10, 0, Mode::Observer, Some(1), Serves::Nothing);
        world.see(30, 0, Mode::Observer, Some(1), Serves::All);
        let (record, _) = world.at(30);
        assert_eq!((record.looking, counted(&record.election)), (1, (0, 0)));
        assert_eq!((counted(&record.observer_sync), counted(&record.unavailable)), ((1, 20), (1, 30)));
    }

    #[test]
    fn reads_alone_are_not_all_that_is_served() {
        let mut world = World::new(1);
        world.see(0, 0, Mode::Looking, None, Serves::Nothing);
        world.see(100, 0, Mode::ReadOnly, None, Serves::Reads);
        assert_eq!(counted(&world.at(100).0.unavailable), (0, 0));
        world.see(300, 0, Mode::Follower, Some(2), Serves::All);
        assert_eq!(counted(&world.at(300).0.unavailable), (1, 300));
    }

    #[test]
    fn whoever_stands_alone_elects_and_waits_for_nobody() {
        let mut world = World::new(2);
        for partition in [1, 0] {
            world.see(0, partition, Mode::Standalone, None, Serves::Nothing);
            world.see(10, partition, Mode::Standalone, Some(1), Serves::All);
        }
        let (record, led) = world.at(20);
        assert_eq!((record.looking, record.election.count(), record.unavailable.count()), (0, 0, 0));
        // It leads, for when others come.
        assert_eq!(led, Some(10));
    }

    #[test]
    fn several_partitions_are_as_far_as_the_last_of_them() {
        let mut world = World::new(3);
        for partition in 0..3 {
            world.see(0, partition, Mode::Looking, None, Serves::Nothing);
        }
        for partition in 0..3 {
            world.see(10 + 10 * u64::from(partition), partition, Mode::Looking, Some(1), Serves::Nothing);
        }
        for partition in [2, 0, 1] {
            world.see(50 + u64::from(partition), partition, Mode::Follower, Some(1), Serves::All);
        }
        let (record, _) = world.at(100);
        assert_eq!((record.looking, counted(&record.election)), (1, (1, 30)));
        assert_eq!((counted(&record.follower_sync), counted(&record.unavailable)), ((1, 21), (1, 51)));
    }
}
