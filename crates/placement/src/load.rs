//! What is asked of the subtrees of a partition, sampled: who balances the load sees it here.
//!
//! Only some of the requests are looked at, at irregular distances so that clients in step are not missed: one in so
//! much work, so that reads, of which there may be many more, are as well known as writes, and cost no more to know.
//! What they ask for is counted for the subtrees that it lies in, down to the third level: each of these could
//! live elsewhere. Only so many subtrees are remembered, and after each window those that are asked least are
//! forgotten. Whatever is asked much is among the first of a window that are seen, so it has a place.
//!
//! Windows are short, and older ones count a quarter as much with each that follows: so what changes suddenly
//! is seen at once, and one window's chance is not the whole truth. They end at the same moments on all threads:
//! of a subtree that moves, what two of them tell comes to what it is asked.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use stoa_wire::{MultiOps, Opcode, Reader, path};

/// The deepest subtrees that are counted: `/a/b/c`.
pub(crate) const DEPTH_MAX: usize = 3;
/// How long is counted before it is told.
pub(crate) const WINDOW_US: u64 = 250_000;
/// So many bits less a window counts with each that follows.
const KEPT_SHIFT: u32 = 2;
/// So many subtrees are counted in a window, and so many are remembered behind it.
const COUNTED_MAX: usize = 2048;
const REMEMBERED_MAX: usize = 1024;
/// Most subtrees that a report tells of, those that live here by an exception apart.
const REPORTED_MAX: usize = 192;
/// What is below a subtree is told when that has at least one part in so many of all: who is smaller need not
/// be divided.
const PARTS_WORTH_DIVIDING: u64 = 16;

/// What a thread spends on a request for its partition, nanoseconds, and more for each KiB that comes with it:
/// measured with `cargo run --release -p stoa-core --example cost`, between those that a thread keeps and
/// those that are handed over to it. What sockets and the log cost is not in it: that does not move with a
/// subtree.
const READ_NS: u64 = 250;
const WRITE_NS: u64 = 900;
const KIB_NS: u64 = 80;
/// What the log that all partitions share costs the thread that makes its batches, for each of them and for each KiB:
/// measured as what the first partition's thread takes more than the others, with batches of 50 to 3,500 writes.
const BATCH_NS: u64 = 30_000;
const BATCH_KIB_NS: u64 = 1_000;
/// One request in so much work is looked at, on average: of writes one in 15, of reads one in 54.
const LOOK_NS: u32 = 13_500;

/// What is asked of something in a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rates {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of both.
    pub bytes: u64,
}

impl Rates {
    /// About how much of a thread that takes: nanoseconds of each second.
    #[must_use]
    pub fn busy_ns(&self) -> u64 {
        self.reads * READ_NS + self.writes * WRITE_NS + self.bytes * KIB_NS / 1024
    }
}

/// What is asked of a subtree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubtreeLoad {
    /// The znode that it begins with, down to the third level.
    pub path: String,
    /// How often, with everything below it that lives on the same partition.
    pub rates: Rates,
}

/// What is asked of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// In all.
    pub total: Rates,
    /// What the shared log takes of its thread besides, nanoseconds of each second: that does not move with a subtree.
    pub log_ns: u64,
    /// How much of the time its thread had something to do, percent; `None` where nobody measures that.
    pub occupied_percent: Option<u64>,
    /// Of its subtrees: those that are asked most, the busiest first. What is below one is told if that has a
    /// good part of all, or has a place of its own.
    pub subtrees: Vec<SubtreeLoad>,
}

/// What a request counts when one is chosen to be looked at, nanoseconds.
#[inline]
fn work_ns(is_write: bool) -> u32 {
    (if is_write { WRITE_NS } else { READ_NS }) as u32
}

#[inline]
fn is_write(opcode: Option<Opcode>) -> bool {
    opcode.is_some_and(|opcode| !opcode.is_read() && opcode != Opcode::Sync)
}

/// What was asked in a window, by what was looked at.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    reads: u32,
    writes: u32,
    bytes: u64,
}

impl Window {
    /// A request that was looked at stands for as many as make up the work in which one is.
    fn add(&mut self, is_write: bool, bytes: usize) {
        let quiesced_for = LOOK_NS / work_ns(is_write);
        if is_write {
            self.writes += quiesced_for;
        } else {
            self.reads += quiesced_for;
        }
        self.bytes += bytes as u64 * u64::from(quiesced_for);
    }
}

/// A count, and what it was before.
#[derive(Debug, Clone, Copy, Default)]
struct Average {
    window: Window,
    rates: Rates,
}

impl Average {
    /// Ends a window. `windows` is how many would have fitted into the time that it took.
    fn fold(&mut self, elapsed_us: u64, windows: u32) -> u64 {
        let Window { reads, writes, bytes } = core::mem::take(&mut self.window);
        let fold = |before, asked| fold(before, asked, elapsed_us, windows);
        self.rates = Rates {
            reads: fold(self.rates.reads, reads.into()),
            writes: fold(self.rates.writes, writes.into()),
            bytes: fold(self.rates.bytes, bytes),
        };
        self.rates.busy_ns()
    }
}

/// What there is of something in a second, when a window ends in which so much of it was counted.
fn fold(before: u64, counted: u64, elapsed_us: u64, windows: u32) -> u64 {
    let part = |of: u64| of.checked_shr(windows.saturating_mul(KEPT_SHIFT)).unwrap_or(0);
    let rate = counted.saturating_mul(1_000_000) / elapsed_us;
    part(before) + rate - part(rate)
}

/// The requests to a partition, counted.
#[derive(Debug)]
pub struct Load {
    /// Work until the next one that is looked at, nanoseconds.
    until_next_ns: u32,
    /// What makes the distances irregular.
    state: u32,
    subtrees: HashMap<String, Average, FixedState>,
    total: Average,
    /// When the window has begun; `None` as long as nothing is asked.
    since_us: Option<u64>,
    /// When that was last known, and how long the thread has had something to do until then.
    occupied: Option<(u64, u64)>,
    /// The same when it was last reported.
    occupied_before: (u64, u64),
    /// What the shared log has taken of the thread since it began, nanoseconds, and had when the window began.
    log_ns: u64,
    log_before_ns: u64,
    report: LoadReport,
}

impl Load {
    /// `seed` keeps clients from choosing paths that collide.
    pub fn new(seed: u64) -> Self {
        Self {
            until_next_ns: LOOK_NS,
            state: 1,
            subtrees: HashMap::with_hasher(FixedState::with_seed(seed)),
            total: Average::default(),
            since_us: None,
            occupied: None,
            occupied_before: (0, 0),
            log_ns: 0,
            log_before_ns: 0,
            report: LoadReport::default(),
        }
    }

    /// A request has come.
    #[inline]
    pub fn request(&mut self, opcode: Option<Opcode>, body: Reader<'_>, now_us: u64) {
        if self.is_next(is_write(opcode)) {
            self.look_at(opcode, body, now_us);
        }
    }

    /// Whether a request that has come is one to look at. Then [`Load::look_at`] is next.
    #[inline]
    pub fn is_next(&mut self, is_write: bool) -> bool {
        let left_ns = self.until_next_ns.checked_sub(work_ns(is_write)).filter(|left_ns| *left_ns > 0);
        self.until_next_ns = left_ns.unwrap_or(self.until_next_ns);
        left_ns.is_none()
    }

    /// Counts a request, and draws the next one that will be: it is up to twice the distance away.
    #[cold]
    pub fn look_at(&mut self, opcode: Option<Opcode>, body: Reader<'_>, now_us: u64) {
        if let Some(opcode) = opcode {
            self.count(opcode, body, now_us);
        }
        let beyond_ns = work_ns(is_write(opcode)).saturating_sub(self.until_next_ns);
        self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let next_ns = work_ns(true) + (self.state >> 12) % (2 * (LOOK_NS - work_ns(true)));
        self.until_next_ns = next_ns - beyond_ns;
    }

    fn count(&mut self, opcode: Opcode, body: Reader<'_>, now_us: u64) {
        let bytes = body.rest().len();
        let Some(path) = path_asked(opcode, body) else { return };
        let is_write = is_write(Some(opcode));
        self.since_us.get_or_insert(now_us - now_us % WINDOW_US);
        self.total.window.add(is_write, bytes);
        for subtree in subtrees_of(path) {
            if let Some(average) = self.subtrees.get_mut(subtree) {
                average.window.add(is_write, bytes);
            } else if self.subtrees.len() < COUNTED_MAX && path::is_valid(path) {
                let average = self.subtrees.entry(subtree.to_owned()).or_default();
                average.window.add(is_write, bytes);
            }
        }
    }

    /// So long has the thread had something to do since it began.
    pub fn occupied(&mut self, occupied_us: u64, now_us: u64) {
        self.occupied = Some((now_us, occupied_us));
    }

    /// So many batches of the shared log, of so many bytes in all, were made here since the thread began.
    pub fn batches(&mut self, count: u64, bytes: u64, now_us: u64) {
        let log_ns = count * BATCH_NS + bytes * BATCH_KIB_NS / 1024;
        if log_ns != self.log_ns {
            self.log_ns = log_ns;
            self.since_us.get_or_insert(now_us - now_us % WINDOW_US);
        }
    }

    /// What the shared log takes of a second, with what it took in the windows before.
    fn fold_log(&mut self, elapsed_us: u64, windows: u32) -> u64 {
        let took_ns = self.log_ns - core::mem::replace(&mut self.log_before_ns, self.log_ns);
        fold(self.report.log_ns, took_ns, elapsed_us, windows)
    }

    /// How much of the time since it was reported before; unknown when nothing has been asked for a while.
    fn occupied_percent(&mut self) -> Option<u64> {
        let (at_us, occupied_us) = self.occupied?;
        let (before_us, occupied_before_us) =
            core::mem::replace(&mut self.occupied_before, (at_us, occupied_us));
        let elapsed_us = at_us.saturating_sub(before_us);
        let percent = occupied_us.saturating_sub(occupied_before_us).saturating_mul(100) / elapsed_us.max(1);
        (1..=2 * WINDOW_US).contains(&elapsed_us).then_some(percent)
    }

    /// When [`Load::tick`] is next needed: never while nothing is asked.
    pub fn next_wake_us(&self) -> Option<u64> {
        self.since_us.map(|since| since + WINDOW_US)
    }

    /// Time has passed. Returns whether there is a new report; `own` are the subtrees that live here by an
    /// exception.
    pub fn tick<'a>(&mut self, now_us: u64, own: impl Iterator<Item = &'a str>) -> bool {
        let Some(since_us) = self.since_us else { return false };
        let end_us = now_us - now_us % WINDOW_US;
        let elapsed_us = end_us.saturating_sub(since_us);
        if elapsed_us == 0 {
            return false;
        }
        let windows = u32::try_from(elapsed_us / WINDOW_US).unwrap_or(u32::MAX);
        let total_ns = self.total.fold(elapsed_us, windows);
        // What has come to less than a request every now and then is nothing.
        self.subtrees.retain(|_, average| average.fold(elapsed_us, windows) >= READ_NS);
        self.forget_least();
        let mut log_ns = self.fold_log(elapsed_us, windows);
        // When all is quiet that is told once.
        self.since_us = (total_ns + log_ns >= READ_NS).then_some(end_us);
        if self.since_us.is_none() {
            log_ns = 0;
            self.total = Average::default();
            self.subtrees.clear();
        }
        let occupied_percent = self.occupied_percent();
        self.report = LoadReport { occupied_percent, log_ns, ..self.make_report(own) };
        true
    }

    fn forget_least(&mut self) {
        if self.subtrees.len() <= REMEMBERED_MAX {
            return;
        }
        let mut busy: Vec<u64> = self.subtrees.values().map(|it| it.rates.busy_ns()).collect();
        let (more, least, _) = busy.select_nth_unstable_by(REMEMBERED_MAX, |one, other| other.cmp(one));
        let least = *least;
        // Many were seen once: some of them stay.
        let mut equals = more.iter().filter(|busy| **busy == least).count();
        self.subtrees.retain(|_, it| {
            let busy = it.rates.busy_ns();
            let is_kept = busy > least || (busy == least && equals > 0);
            equals -= usize::from(is_kept && busy == least);
            is_kept
        });
    }

    fn make_report<'a>(&self, own: impl Iterator<Item = &'a str>) -> LoadReport {
        let worth_dividing = self.total.rates.busy_ns() / PARTS_WORTH_DIVIDING;
        let is_divided = |path: &str| {
            let above = self.subtrees.get(above(path)).map(|average| average.rates.busy_ns());
            above.is_some_and(|busy| busy > worth_dividing)
        };
        let load =
            |(path, average): (&String, &Average)| SubtreeLoad { path: path.clone(), rates: average.rates };
        let told = self.subtrees.iter().filter(|(path, _)| depth(path) <= 1 || is_divided(path));
        let mut subtrees: Vec<_> = told.map(load).collect();
        let busiest_first = |one: &SubtreeLoad, other: &SubtreeLoad| {
            let by_busy = other.rates.busy_ns().cmp(&one.rates.busy_ns());
            by_busy.then_with(|| one.path.cmp(&other.path))
        };
        subtrees.sort_unstable_by(busiest_first);
        subtrees.truncate(REPORTED_MAX);
        for path in own {
            if let Some(found) = self.subtrees.get_key_value(path)
                && !subtrees.iter().any(|subtree| subtree.path == path)
            {
                subtrees.push(load(found));
            }
        }
        LoadReport { total: self.total.rates, log_ns: 0, occupied_percent: None, subtrees }
    }

    /// The last report.
    pub fn report(&self) -> &LoadReport {
        &self.report
    }
}

/// The path of the parent; that of a top is the empty one.
pub(crate) fn above(path: &str) -> &str {
    path::last_slash(path).map_or("", |at| &path[..at])
}

/// How far below the root a znode stands.
pub(crate) fn depth(path: &str) -> usize {
    if path == "/" { 0 } else { path.bytes().filter(|byte| *byte == b'/').count() }
}

/// The subtrees that a path lies in, from its top down to the third level. The root is none: what is below it
/// lives everywhere.
fn subtrees_of(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain(core::iter::once(path.len()));
    ends.take(DEPTH_MAX).map(|end| &path[..end]).filter(|subtree| subtree.len() > 1)
}

/// The path that a request concerns; of a multi that of its first operation.
fn path_asked(opcode: Opcode, mut body: Reader<'_>) -> Option<&str> {
    let path = match opcode {
        Opcode::Ping | Opcode::Auth | Opcode::CloseSession | Opcode::SetWatches | Opcode::SetWatches2 => {
            return None;
        }
        Opcode::Multi | Opcode::MultiRead => {
            let first = MultiOps::decode(&mut body).ok()?.iter().next()?;
            first.op_path()?
        }
        _ => body.path().ok()?,
    };
    // That it is one in full shows before it is remembered.
    path.starts_with('/').then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use stoa_wire::{RequestHeader, put};

    fn ask(opcode: Opcode, path: &str) -> Vec<u8> {
        let mut frame = Vec::new();
        RequestHeader { xid: 1, opcode: opcode as i32 }.encode(&mut frame);
        put::str(&mut frame, path);
        frame.push(0);
        frame
    }

    fn at(ms: u64) -> u64 {
        ms * 1000
    }

    fn request(load: &mut Load, frame: &[u8], now_us: u64) {
        let mut body = Reader::new(frame);
        let header = RequestHeader::decode(&mut body).ok();
        load.request(header.and_then(|header| Opcode::from_i32(header.opcode)), body, now_us);
    }

    fn busy(load: &Load, path: &str) -> u64 {
        let found = load.report().subtrees.iter().find(|subtree| subtree.path == path);
        found.map_or(0, |subtree| subtree.rates.busy_ns())
    }

    #[test]
    fn hot_subtrees_are_found_among_many_and_their_rates_told() {
        let mut load = Load::new(7);
        assert_eq!(load.next_wake_us(), None);
        let mut round = |from_ms: u64| {
            for number in 0..100_000_u32 {
                // Every second request is for one subtree, and the others hardly ever meet.
                let hot = number % 2 == 0;
                let path = if hot { "/hot/a/b/c/d".into() } else { format!("/top-{}/b", number % 5003) };
                let opcode = if number % 4 == 0 { Opcode::SetData } else { Opcode::GetData };
                request(&mut load, &ask(opcode, &path), at(from_ms));
            }
            assert!(!load.tick(at(from_ms + 249), core::iter::empty()), "the window is not over");
            assert!(load.tick(at(from_ms + 250), core::iter::empty()));
            load.report().clone()
        };
        for window in 0..4 {
            round(window * 250);
        }
        let LoadReport { total, subtrees, .. } = round(1000);
        assert!((380_000..420_000).contains(&(total.reads + total.writes)), "{total:?}");
        assert_eq!(subtrees.len(), REPORTED_MAX);
        let hottest: Vec<_> = subtrees.iter().take(3).map(|subtree| subtree.path.as_str()).collect();
        assert_eq!(hottest, ["/hot", "/hot/a", "/hot/a/b"]);
        for hot in &subtrees[..3] {
            let Rates { reads, writes, bytes } = hot.rates;
            assert!((90_000..110_000).contains(&reads) && (90_000..110_000).contains(&writes), "{hot:?}");
            assert!((16..19).contains(&(bytes / (reads + writes))), "{hot:?}");
        }
        assert!(subtrees[3..].iter().all(|subtree| depth(&subtree.path) == 1), "{subtrees:?}");
        assert!(subtrees[3].rates.busy_ns() < subtrees[0].rates.busy_ns() / 20);
    }

    #[test]
    fn what_is_not_asked_any_more_is_forgotten_and_nobody_is_woken_for_it() {
        let mut load = Load::new(7);
        (0..1600).for_each(|_| request(&mut load, &ask(Opcode::GetData, "/a/b"), at(1000)));
        let mut before = u64::MAX;
        let mut now = 1000;
        while let Some(wake_us) = load.next_wake_us() {
            assert_eq!(wake_us, (now + 250) * 1000);
            now += 250;
            assert!(load.tick(at(now), core::iter::empty()));
            assert!(busy(&load, "/a") < before);
            before = busy(&load, "/a");
        }
        assert!((1500..5000).contains(&now), "{now}");
        assert_eq!(*load.report(), LoadReport::default());
        assert!(!load.tick(at(20_000), core::iter::empty()));
        // After a pause a window begins anew.
        (0..1600).for_each(|_| request(&mut load, &ask(Opcode::GetData, "/a/b"), at(30_000)));
        assert!(load.tick(at(30_250), core::iter::empty()));
        assert!((4000..5600).contains(&load.report().total.reads), "{load:?}");
    }

    #[test]
    fn what_lives_here_by_an_exception_is_always_told() {
        let mut load = Load::new(7);
        for number in 0..64_000_u32 {
            let path = format!("/big-{}", number % 40);
            request(
                &mut load,
                &ask(Opcode::GetData, if number % 80 == 0 { "/x/small" } else { &path }),
                at(0),
            );
        }
        load.tick(at(250), ["/x/small", "/none"].into_iter());
        assert!(busy(&load, "/x/small") > 0 && busy(&load, "/none") == 0);
        load.tick(at(500), core::iter::empty());
        assert_eq!(busy(&load, "/x/small"), 0);
    }

    #[test]
    fn what_concerns_no_subtree_is_not_counted() {
        let mut load = Load::new(7);
        let mut ping = Vec::new();
        RequestHeader { xid: -2, opcode: Opcode::Ping as i32 }.encode(&mut ping);
        for frame in [&ping, &ask(Opcode::GetData, "no path"), &ask(Opcode::GetData, ""), &Vec::new()] {
            (0..1000).for_each(|_| request(&mut load, frame, at(0)));
        }
        assert_eq!(load.next_wake_us(), None);
        (0..1000).for_each(|_| request(&mut load, &ask(Opcode::GetData, "/"), at(0)));
        load.tick(at(250), core::iter::empty());
        assert!(load.report().total.reads > 0 && load.report().subtrees.is_empty(), "{load:?}");
    }

    #[test]
    fn subtrees_go_down_to_the_third_level() {
        let of = |path| subtrees_of(path).collect::<Vec<_>>();
        assert_eq!(of("/"), [""; 0]);
        assert_eq!(of("/a"), ["/a"]);
        assert_eq!(of("/a/b/c"), ["/a", "/a/b", "/a/b/c"]);
        assert_eq!(of("/ä/b/c/d/e"), ["/ä", "/ä/b", "/ä/b/c"]);
        assert_eq!((depth("/"), depth("/a"), depth("/a/b")), (0, 1, 2));
        assert_eq!((above("/a/b"), above("/a")), ("/a", ""));
    }

    /// One batch of 1 KiB in each millisecond is a bit more than three hundredths of a thread.
    #[test]
    fn what_the_shared_log_takes_is_told_until_nothing_is_left_of_it() {
        let mut load = Load::new(1);
        for ms in 1..=4000 {
            load.batches(ms, 1024 * ms, at(ms));
            load.tick(at(ms), core::iter::empty());
        }
        let LoadReport { total, log_ns, .. } = load.report();
        assert_eq!(*total, Rates::default());
        assert!((30_000_000..32_000_000).contains(log_ns), "{log_ns}");
        let mut now_us = 4_000_000;
        while let Some(wake_us) = load.next_wake_us() {
            assert!(wake_us < now_us + 2 * WINDOW_US && now_us < 20_000_000);
            now_us = wake_us;
            load.batches(4000, 1024 * 4000, now_us);
            load.tick(now_us, core::iter::empty());
        }
        assert_eq!(*load.report(), LoadReport::default());
    }
}
