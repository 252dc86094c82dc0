//! What the subtrees of a partition are asked, sampled: who looks for a hot spot sees it here.
//!
//! Only some of the requests are looked at, at irregular distances so that clients in step are not missed,
//! and only so many subtrees are remembered: a new one takes the place of the one with the least, and its
//! count with it (Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in
//! data streams"). So whatever takes more than one part in [`SUBTREES_MAX`] of all requests is in the list.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use stoa_wire::{MultiOps, Opcode, Reader, RequestHeader};

use crate::config::Now;
use crate::placement::top_of;

/// So many subtrees are remembered.
const SUBTREES_MAX: usize = 64;
/// One request in so many is looked at, on average.
const SAMPLED: u32 = 16;
/// How long is counted before it is told.
const WINDOW_US: u64 = 10_000_000;

/// What was asked of a subtree in a second.
#[derive(Debug, Clone, PartialEq)]
pub struct SubtreeLoad {
    /// The znode right below the root that it begins with, or the root.
    pub path: String,
    /// Requests a second.
    pub requests: f64,
    /// Bytes of them a second.
    pub bytes: f64,
}

#[derive(Debug, Clone)]
struct Count {
    path: String,
    requests: u64,
    bytes: u64,
}

/// The requests to a partition since a while ago, by subtree.
#[derive(Debug)]
pub(crate) struct Load {
    /// Requests until the next one that is looked at.
    until_next: u32,
    /// What makes the distances irregular.
    state: u32,
    counts: Vec<Count>,
    since_us: u64,
    last: Vec<SubtreeLoad>,
}

impl Load {
    pub(crate) fn new(now: Now) -> Self {
        Self { until_next: SAMPLED, state: 1, counts: Vec::new(), since_us: now.mono_us, last: Vec::new() }
    }

    /// A request has come.
    #[inline]
    pub(crate) fn request(&mut self, frame: &[u8]) {
        self.until_next -= 1;
        if self.until_next == 0 {
            self.look_at(frame);
        }
    }

    #[cold]
    fn look_at(&mut self, frame: &[u8]) {
        // From 1 to twice the distance, less one.
        self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.until_next = 1 + (self.state >> 16) % (2 * SAMPLED - 1);
        let Some(top) = top_asked(frame) else { return };
        let (requests, bytes) = (u64::from(SAMPLED), u64::from(SAMPLED) * frame.len() as u64);
        if let Some(count) = self.counts.iter_mut().find(|count| count.path == top) {
            count.requests += requests;
            count.bytes += bytes;
        } else if self.counts.len() < SUBTREES_MAX {
            self.counts.push(Count { path: top.to_string(), requests, bytes });
        } else if let Some(least) = self.counts.iter_mut().min_by_key(|count| count.requests) {
            *least = Count { path: top.to_string(), requests: least.requests + requests, bytes };
        }
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Now) {
        let elapsed_us = now.mono_us.saturating_sub(self.since_us);
        if elapsed_us < WINDOW_US {
            return;
        }
        let per_second = 1e6 / elapsed_us as f64;
        let rate = |count: Count| SubtreeLoad {
            path: count.path,
            requests: count.requests as f64 * per_second,
            bytes: count.bytes as f64 * per_second,
        };
        self.last = self.counts.drain(..).map(rate).collect();
        self.last.sort_unstable_by(|one, other| other.requests.total_cmp(&one.requests));
        self.since_us = now.mono_us;
    }

    /// The last window that is over, what is asked most first.
    pub(crate) fn subtrees(&self) -> &[SubtreeLoad] {
        &self.last
    }
}

/// The subtree that a request concerns; of a multi that of its first operation.
fn top_asked(frame: &[u8]) -> Option<&str> {
    let mut reader = Reader::new(frame);
    let header = RequestHeader::decode(&mut reader).ok()?;
    match Opcode::from_i32(header.opcode)? {
        Opcode::Ping | Opcode::Auth | Opcode::CloseSession | Opcode::SetWatches | Opcode::SetWatches2 => None,
        Opcode::Multi | Opcode::MultiRead => {
            let first = MultiOps::decode(&mut reader).ok()?.iter().next()?;
            top_of(crate::route::path_of(&first)?)
        }
        _ => top_of(reader.path().ok()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use stoa_wire::put;

    fn get(path: &str) -> Vec<u8> {
        let mut frame = Vec::new();
        RequestHeader { xid: 1, opcode: Opcode::GetData as i32 }.encode(&mut frame);
        put::str(&mut frame, path);
        frame.push(0);
        frame
    }

    fn at(seconds: u64) -> Now {
        Now { mono_us: seconds * 1_000_000, wall_ms: 0 }
    }

    #[test]
    fn hot_subtrees_are_found_among_many_and_their_rates_told() {
        let mut load = Load::new(at(5));
        for number in 0..100_000_u32 {
            // Every second request is for one subtree, and the others hardly ever meet.
            let path = if number % 2 == 0 { "/hot/a".into() } else { format!("/top-{}/b", number % 5003) };
            load.request(&get(&path));
        }
        load.tick(at(14));
        assert!(load.subtrees().is_empty(), "the window is not over");
        load.tick(at(15));
        let [hottest, next, ..] = load.subtrees() else { panic!("{load:?}") };
        assert_eq!((hottest.path.as_str(), load.subtrees().len()), ("/hot", SUBTREES_MAX));
        assert!((4_500.0..5_500.0).contains(&hottest.requests), "{hottest:?}");
        assert!((18.0..20.0).contains(&(hottest.bytes / hottest.requests)), "{hottest:?}");
        assert!(next.requests < hottest.requests / 10.0, "{next:?}");
        load.tick(at(25));
        assert!(load.subtrees().is_empty(), "nothing was asked since");
    }

    #[test]
    fn what_concerns_no_subtree_is_not_counted() {
        let mut load = Load::new(at(0));
        let mut ping = Vec::new();
        RequestHeader { xid: -2, opcode: Opcode::Ping as i32 }.encode(&mut ping);
        for frame in [&ping, &get("no path"), &get("/")] {
            (0..1000).for_each(|_| load.request(frame));
        }
        load.tick(at(10));
        assert!(load.subtrees().iter().all(|subtree| subtree.path == "/"), "{load:?}");
        assert_eq!(load.subtrees().len(), 1);
    }
}
