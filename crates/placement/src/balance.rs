//! Which subtree is moved next, so that all partitions have about as much to do (AGORA, section IV-F).
//!
//! The leader compares what is asked of its partitions. When the busiest one has much more to do than the
//! mean, and really is busy, it gives up the subtree whose move helps most, and so on until all are about
//! equal: many moves in quick succession after the load has shifted, none while it stays as it is. A subtree
//! that is too big for that is divided: one below it moves. What was moved and is not asked any more goes back
//! where it would live by itself, so that the table of exceptions says what is hot, and no more.
//!
//! A report lags behind: what has just been moved is told by where it was, less and less, and by where it is,
//! more and more. All reports of a subtree together say how much it is asked, and the table where it lives: so
//! what is compared is right from the moment that a move is done.

use crate::hints::{Hints, is_at_or_below};
use crate::load::{DEPTH_MAX, LoadReport, WINDOW_US, above, depth};
use crate::placement::Placement;
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// One thread that is busy all the time.
const THREAD_NS: u64 = 1_000_000_000;
/// A partition that has less to do needs no relief: about 11,000 writes a second, or 40,000 reads. The estimate
/// leaves sockets and kernel out: a thread with so many writes of clients that wait for each answer was seen to
/// use a tenth of a core.
const BUSY_NS: u64 = THREAD_NS / 100;
/// Relief begins when the busiest has more than this part of the mean, and goes on down to that one; percent.
const BEGIN_PERCENT: u64 = 125;
const END_PERCENT: u64 = 107;
/// Where that is known, the thread of who is relieved has hardly time to spare when that begins, and that of who takes
/// over always has some; percent. Clients that wait for their answers ask most where they are answered soonest: so
/// of two threads that have as much to do, the one that shares its core with something else is asked less, and must
/// not get more.
const SHORT_PERCENT: u64 = 90;
const FULL_PERCENT: u64 = 97;
/// It begins when two reports in a row have looked like that; and it is over when nothing had to be moved for so
/// long, since a thread that could do no more shows only then what it is asked.
const BEGIN_US: u64 = WINDOW_US;
const END_US: u64 = 1_500_000;
/// Nothing is divided for the sake of a partition that has less to do than this, and nothing that has not this part
/// of the mean, percent: a client that works on all of it, with many requests outstanding, would wait at each step
/// from one side to the other, and everybody would do less, so that reports would differ even more. What has a
/// partition for itself is asked more than what has to share one, without being too big.
const DIVIDE_NS: u64 = THREAD_NS / 10;
const DIVIDE_PERCENT: u64 = 150;
/// A move that brings less than one part in so many of the mean, or of what is moved, is not worth it: all
/// partitions quiesce for it. That is no time of a thread, because a thread does less while others move.
const MEAN_PARTS: u64 = 128;
const MOVED_PARTS: u64 = 8;
/// Who was moved is left alone for so long, twice as long when it comes back soon, and so on.
const REST_US: u64 = 2_000_000;
const REST_MAX_US: u64 = 600_000_000;
/// What was moved when it was hardly asked, and is asked so many times as much now, need not rest. What has come
/// from where it had to share a thread grows too, but not so much.
const GROWN: u64 = 16;
/// What counts as soon: within so many times its rest.
const SOON: u64 = 4;
/// What was refused is not asked again for so long.
const REFUSED_US: u64 = 60_000_000;
/// An exception that is asked less is cold, and goes back when it has been for so long.
const WARM_NS: u64 = THREAD_NS / 20_000;
const COLD_US: u64 = 60_000_000;

/// A subtree that is to live on another partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The znode that it begins with.
    pub path: String,
    /// Where it is to live.
    pub to: u8,
}

/// When a subtree that was moved may be moved again.
#[derive(Debug)]
struct Rest {
    since_us: u64,
    rest_us: u64,
    /// What it was asked when it was moved, once that is looked at.
    busy_ns: Option<u64>,
}

/// Decides what is moved next, and remembers what it has to for that.
#[derive(Debug, Default)]
pub struct Balancer {
    /// Since when the busiest partition has too much.
    unequal_since_us: Option<u64>,
    /// Until when it is being relieved.
    relieves_until_us: u64,
    /// Whose threads had no time to spare at some moment since that began, a bit for each partition: a thread has
    /// some, too, while subtrees move and nobody is answered.
    full: u64,
    /// Whether it had so much to do meanwhile that subtrees may be divided for it.
    divides: bool,
    rests: BTreeMap<String, Rest>,
    /// Until when not to ask again.
    refused: BTreeMap<String, u64>,
    /// When each exception was last asked for.
    warm_us: BTreeMap<String, u64>,
    imbalance_percent: u64,
}

impl Balancer {
    /// The next move, if there should be one now. `loads` are the last reports of all partitions. Say with
    /// [`Balancer::moved`] or [`Balancer::refused`] what became of it before asking again.
    pub fn tick(
        &mut self,
        now_us: u64,
        loads: &[LoadReport],
        placement: &Placement,
        hints: &Hints,
    ) -> Option<Move> {
        self.rests.retain(|_, rest| now_us < rest.since_us + SOON * rest.rest_us);
        self.refused.retain(|_, until_us| now_us < *until_us);
        let picture = Picture::new(loads, placement);
        self.imbalance_percent = picture.busiest_percent();
        for (path, rest) in &mut self.rests {
            rest.busy_ns.get_or_insert_with(|| picture.of_subtree(path));
        }
        self.note_warm(now_us, &picture, placement);
        let hinted = self.hinted(placement, hints);
        if hinted.is_some() || hints.is_off {
            return hinted;
        }
        self.relieve(now_us, &picture, placement, hints).or_else(|| self.merge(now_us, placement, hints))
    }

    /// A move is done.
    pub fn moved(&mut self, path: &str, now_us: u64) {
        let before = self.rests.remove(path);
        let rest_us = before.map_or(REST_US, |rest| (rest.rest_us * 2).min(REST_MAX_US));
        self.rests.insert(path.to_owned(), Rest { since_us: now_us, rest_us, busy_ns: None });
        self.warm_us.insert(path.to_owned(), now_us);
    }

    /// A move was refused.
    pub fn refused(&mut self, path: &str, now_us: u64) {
        self.refused.insert(path.to_owned(), now_us + REFUSED_US);
    }

    /// The operator has said something new: what was refused may be asked again.
    pub fn forget_refusals(&mut self) {
        self.refused.clear();
    }

    /// What the busiest partition has to do, in percent of the mean; 0 when there is nothing to do.
    #[must_use]
    pub fn imbalance_percent(&self) -> u64 {
        self.imbalance_percent
    }

    fn note_warm(&mut self, now_us: u64, picture: &Picture<'_>, placement: &Placement) {
        let known: BTreeSet<&str> = placement.exceptions().map(|(path, _)| path).collect();
        self.warm_us.retain(|path, _| known.contains(path.as_str()));
        for path in known {
            let is_warm = picture.of_subtree(counted(path)) > WARM_NS;
            match self.warm_us.get_mut(path) {
                Some(warm_us) if is_warm => *warm_us = now_us,
                Some(_) => {}
                None => {
                    self.warm_us.insert(path.to_owned(), now_us);
                }
            }
        }
    }

    /// What the operator wants and is not so.
    fn hinted(&self, placement: &Placement, hints: &Hints) -> Option<Move> {
        let wrong = |path: &String, to: u8| {
            let is_wrong = placement.of(path) != to && !self.refused.contains_key(path);
            is_wrong.then(|| Move { path: path.clone(), to })
        };
        let pinned = hints.pins.iter().find_map(|(path, to)| wrong(path, *to));
        pinned.or_else(|| {
            hints.together.iter().find_map(|group| {
                let to = placement.of(leader_of(group, hints)?);
                group.iter().filter(|member| !is_fixed(member, hints)).find_map(|member| wrong(member, to))
            })
        })
    }

    /// Takes something from the busiest partition that can be helped.
    fn relieve(
        &mut self,
        now_us: u64,
        picture: &Picture<'_>,
        placement: &Placement,
        hints: &Hints,
    ) -> Option<Move> {
        let is_short = picture
            .busiest_first()
            .next()
            .is_some_and(|busiest| picture.occupied(busiest).is_none_or(|percent| percent >= SHORT_PERCENT));
        let is_unequal = picture.busiest_percent() > BEGIN_PERCENT && picture.busiest() > BUSY_NS && is_short;
        // Since the end of the window that has told it, so that the next one's report is not a moment too early.
        let since_us = *self.unequal_since_us.get_or_insert(now_us - now_us % WINDOW_US);
        if !is_unequal {
            self.unequal_since_us = None;
        }
        let begins = is_unequal && now_us >= since_us + BEGIN_US;
        if now_us >= self.relieves_until_us {
            if !begins {
                return None;
            }
            (self.divides, self.full) = (false, 0);
        }
        self.full |= picture.full();
        self.divides |= picture.busiest() > DIVIDE_NS;
        let next = picture.busiest_first().find_map(|from| {
            let busy = picture.busy[from];
            let is_too_much = busy * 100 > picture.mean() * END_PERCENT;
            if is_too_much { self.best(from, now_us, picture, placement, hints) } else { None }
        });
        if next.is_some() {
            self.relieves_until_us = now_us + END_US;
        }
        next
    }

    /// The best move away from a partition: to the one that has least to do.
    fn best(
        &self,
        from: usize,
        now_us: u64,
        picture: &Picture<'_>,
        placement: &Placement,
        hints: &Hints,
    ) -> Option<Move> {
        let to = picture.least_busy(self.full)?;
        let mut best: Option<((u64, u64), &str)> = None;
        for path in picture.subtrees_at(from) {
            let Some(value) = self.value(path, (from, to), picture, placement, hints) else { continue };
            if best.is_none_or(|(least, _)| value > least)
                && self.may_move(path, now_us, picture, hints)
                && self.may_divide(path, picture, placement)
            {
                best = Some((value, path));
            }
        }
        best.map(|(_, path)| Move { path: path.to_owned(), to: u8::try_from(to).unwrap_or(0) })
    }

    /// What a move brings, to be compared: by how much less partitions lie above the mean, and by how much the
    /// busier of the two gets better. `None` if that is not enough.
    fn value(
        &self,
        path: &str,
        (from, to): (usize, usize),
        picture: &Picture<'_>,
        placement: &Placement,
        hints: &Hints,
    ) -> Option<(u64, u64)> {
        let moved = match hints.group(path) {
            // The others follow the one that leads them.
            Some(group) if leader_of(group, hints) != Some(path) => return None,
            Some(group) => {
                let here = group.iter().filter(|member| usize::from(placement.of(member)) == from);
                here.map(|member| picture.of_subtree(member)).sum()
            }
            None => picture.of_subtree(path),
        };
        let (more, less) = (picture.busy[from], picture.busy[to]);
        let gain = moved.min(more.checked_sub(less + moved)?);
        if gain <= (picture.mean() / MEAN_PARTS).max(moved / MOVED_PARTS) {
            return None;
        }
        let above_mean = |busy: u64| busy.saturating_sub(picture.mean());
        let before = above_mean(more) + above_mean(less);
        let after = above_mean(more - moved) + above_mean(less + moved);
        // A cut further down concerns more requests of those that go to both sides of it.
        let shallowness = (DEPTH_MAX + 2).saturating_sub(depth(path)) as u64;
        Some((before.saturating_sub(after) * shallowness / 4, gain))
    }

    /// Whether a subtree lives apart from its parent already, or may from now on.
    fn may_divide(&self, path: &str, picture: &Picture<'_>, placement: &Placement) -> bool {
        let is_apart = depth(path) == 1 || placement.of(path) != placement.default_of(path);
        is_apart || self.divides && picture.of_all(above(path)) * 100 > picture.mean() * DIVIDE_PERCENT
    }

    fn may_move(&self, path: &str, now_us: u64, picture: &Picture<'_>, hints: &Hints) -> bool {
        let is_resting = |path| {
            let rests = |rest: &Rest| {
                let before_ns = rest.busy_ns.unwrap_or(u64::MAX).max(WARM_NS);
                now_us < rest.since_us + rest.rest_us
                    && picture.of_subtree(path) < before_ns.saturating_mul(GROWN)
            };
            self.rests.get(path).is_some_and(rests)
        };
        // What has come with something else rests with it.
        let around = core::iter::successors(Some(path), |path| Some(above(path)));
        let rests = around.take_while(|path| !path.is_empty()).any(is_resting);
        let is_held = match hints.group(path) {
            Some(group) => group.iter().any(|member| is_fixed(member, hints)),
            None => hints.hold(path),
        };
        !rests && !is_held && !self.refused.contains_key(path) && !is_numbered(path)
    }

    /// Takes back an exception that has been cold for long.
    fn merge(&self, now_us: u64, placement: &Placement, hints: &Hints) -> Option<Move> {
        let (cold_us, path) = self.coldest(placement, hints)?;
        let to = placement.default_of(path);
        (now_us >= cold_us).then(|| Move { path: path.to_owned(), to })
    }

    /// When there will be an exception to take back, if nothing is asked any more.
    #[must_use]
    pub fn next_merge_us(&self, placement: &Placement, hints: &Hints) -> Option<u64> {
        if hints.is_off { None } else { self.coldest(placement, hints).map(|(cold_us, _)| cold_us) }
    }

    /// The exception that was not asked for the longest time, and when it counts as cold.
    fn coldest<'a>(&self, placement: &'a Placement, hints: &Hints) -> Option<(u64, &'a str)> {
        let may = |path: &str| !hints.hold(path) && !self.refused.contains_key(path);
        let away = placement.exceptions().filter(|(path, to)| placement.default_of(path) != *to && may(path));
        let cold_us = |path: &str| Some(self.warm_us.get(path)? + COLD_US);
        away.filter_map(|(path, _)| Some((cold_us(path)?, path))).min_by_key(|(cold_us, _)| *cold_us)
    }
}

/// The subtree whose load tells whether something at a path is asked.
fn counted(path: &str) -> &str {
    let end = path.match_indices('/').nth(DEPTH_MAX).map_or(path.len(), |(at, _)| at);
    &path[..end]
}

/// Whom the others of a group follow: one that has to be where it is, or the first.
fn leader_of<'a>(group: &'a [String], hints: &Hints) -> Option<&'a str> {
    let fixed = group.iter().find(|member| is_fixed(member, hints));
    fixed.or(group.first()).map(String::as_str)
}

fn is_fixed(path: &str, hints: &Hints) -> bool {
    hints.pins.contains_key(path) || hints.stays.contains(path)
}

/// Whether a name ends as a sequential create makes it: that is not for long, and where it lives must be known
/// before its number is.
fn is_numbered(path: &str) -> bool {
    const DIGITS: usize = 10;
    let end = path.as_bytes();
    end.len() >= DIGITS && end[end.len() - DIGITS..].iter().all(u8::is_ascii_digit)
}

/// What the shared log takes of a partition's thread, in what requests are counted in: those leave sockets and kernel
/// out, so they say less than the threads' time.
fn log_ns(report: &LoadReport, loads: &[LoadReport]) -> u64 {
    if report.log_ns == 0 {
        return 0;
    }
    let time_ns = |load: &LoadReport| {
        let occupied_ns = load.occupied_percent? * (THREAD_NS / 100);
        Some((load.total.busy_ns(), occupied_ns.saturating_sub(load.log_ns)))
    };
    let (counted, took) =
        loads.iter().filter_map(time_ns).fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    if took == 0 {
        return report.log_ns;
    }
    let log_ns = u128::from(report.log_ns) * u128::from(counted) / u128::from(took);
    u64::try_from(log_ns).unwrap_or(u64::MAX).min(report.log_ns)
}

/// What all reports come to, with everything where it lives now.
struct Picture<'a> {
    /// What each partition has to do, nanoseconds of each second.
    busy: Vec<u64>,
    /// How much of the time each thread is occupied, percent.
    occupied: Vec<Option<u64>>,
    /// What each subtree is asked, those apart that are told by themselves, and where it lives.
    own: BTreeMap<&'a str, (u64, usize)>,
}

impl<'a> Picture<'a> {
    fn new(loads: &'a [LoadReport], placement: &Placement) -> Self {
        let occupied = loads.iter().map(|load| load.occupied_percent).collect();
        let mut picture = Self { busy: alloc::vec![0; loads.len()], occupied, own: BTreeMap::new() };
        for (reporter, report) in loads.iter().enumerate() {
            let mut rest = report.total.busy_ns();
            let mut own: BTreeMap<&str, u64> =
                report.subtrees.iter().map(|it| (it.path.as_str(), it.rates.busy_ns())).collect();
            for subtree in &report.subtrees {
                let busy = subtree.rates.busy_ns();
                let mut around = above(&subtree.path);
                while !around.is_empty() && !own.contains_key(around) {
                    around = above(around);
                }
                let around = own.get_mut(around).unwrap_or(&mut rest);
                *around = around.saturating_sub(busy);
            }
            for (path, busy) in own {
                // What is below it lives in many places, as its quotas do.
                if is_at_or_below(path, "/zookeeper") || is_at_or_below(path, stoa_tree::PROGRAMS) {
                    rest += busy;
                    continue;
                }
                let place = usize::from(placement.of(path)).min(loads.len() - 1);
                picture.busy[place] += busy;
                picture.own.entry(path).or_insert((0, place)).0 += busy;
            }
            picture.busy[reporter] += rest + log_ns(report, loads);
        }
        picture
    }

    fn mean(&self) -> u64 {
        self.busy.iter().sum::<u64>() / (self.busy.len() as u64).max(1)
    }

    fn busiest(&self) -> u64 {
        self.busy.iter().copied().max().unwrap_or(0)
    }

    fn busiest_percent(&self) -> u64 {
        (self.busiest() * 100).checked_div(self.mean()).unwrap_or(0)
    }

    fn occupied(&self, partition: usize) -> Option<u64> {
        *self.occupied.get(partition)?
    }

    /// Those whose threads have no time to spare, a bit for each.
    fn full(&self) -> u64 {
        let is_full =
            |partition: &usize| self.occupied(*partition).is_some_and(|percent| percent >= FULL_PERCENT);
        (0..self.busy.len()).filter(is_full).fold(0, |full, partition| full | 1 << partition)
    }

    /// The partition that has least to do, without these.
    fn least_busy(&self, without: u64) -> Option<usize> {
        let others = (0..self.busy.len()).filter(|partition| without & 1 << partition == 0);
        others.min_by_key(|partition| self.busy[*partition])
    }

    fn busiest_first(&self) -> impl Iterator<Item = usize> {
        let mut order: Vec<usize> = (0..self.busy.len()).collect();
        order.sort_by_key(|partition| core::cmp::Reverse(self.busy[*partition]));
        order.into_iter()
    }

    fn subtrees_at(&self, partition: usize) -> impl Iterator<Item = &'a str> {
        self.own.iter().filter(move |(_, (_, place))| *place == partition).map(|(path, _)| *path)
    }

    /// What goes with a subtree: all below it that lives where it does.
    fn of_subtree(&self, path: &str) -> u64 {
        let Some(&(_, place)) = self.own.get(path) else { return 0 };
        self.of_all_at(path, |at| at == place)
    }

    /// What a subtree and all below it is asked, wherever it lives.
    fn of_all(&self, path: &str) -> u64 {
        self.of_all_at(path, |_| true)
    }

    fn of_all_at(&self, path: &str, is_meant: impl Fn(usize) -> bool) -> u64 {
        let own = self.own.get(path);
        let (first, end) = (format!("{path}/"), format!("{path}0"));
        let below = self.own.range::<str, _>((
            core::ops::Bound::Included(first.as_str()),
            core::ops::Bound::Excluded(end.as_str()),
        ));
        let all = own.into_iter().chain(below.map(|(_, of)| of));
        all.filter(|(_, at)| is_meant(*at)).map(|(busy, _)| busy).sum()
    }
}

#[cfg(test)]
mod tests;
