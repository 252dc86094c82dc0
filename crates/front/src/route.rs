//! Where the requests of a front's client go, and what the front knows of the client.

use crate::connection::{CloseReason, ConnectionId};
use crate::delivered_zxid;
use crate::frame::Frame;
use crate::front::{Direct, Pipeline};
use crate::gather::{Gather, is_for_all};
use crate::message::Attached;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use stoa_partition::{FAILURE_PATH, entry_of};
use stoa_placement::{FIRST, Placement, Recent};
use stoa_tree::PROGRAMS;
use stoa_wire::{MultiOps, Opcode, Timestamp};

/// What a front knows of a client, besides its connection.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) requests: ClientRequests,
    pub(crate) seen: SeenByClient,
    pub(crate) partitions: ClientPartitions,
    pub(crate) delivery: Delivery,
    pub(crate) session: Option<Attached>,
    /// Its connection at this thread's own partition.
    pub(crate) remote: Option<ConnectionId>,
    /// The subtree that it has asked last.
    recent: Recent,
    /// What it has proved to be, as it sent it, for partitions that it comes to later.
    pub(crate) proofs: Vec<Box<[u8]>>,
    /// What goes through all partitions just now; nothing else is under way then.
    pub(crate) gather: Option<Gather>,
    /// What it has asked of one partition before others have answered.
    pub(crate) pipeline: Option<Box<Pipeline>>,
    /// Its client was heard of since the first partition was told.
    pub(crate) is_heard: bool,
    /// A read-only client: since when it was seen to wait, microseconds.
    pub(crate) waits_us: Option<u64>,
    /// It carries timestamps itself.
    pub(crate) direct: Option<Box<Direct>>,
    /// It has asked for something at `/em`: programs may carry out what it asks.
    has_programs: bool,
}

/// What a client has asked that is not answered.
#[derive(Debug, Default)]
pub(crate) struct ClientRequests {
    /// The partition that has all requests under way, and how many these are.
    pub(crate) at: u8,
    pub(crate) under_way: u32,
    /// How many bytes they are.
    pub(crate) bytes: usize,
    /// The version of the table by which they were sent there.
    pub(crate) placed: u64,
    /// Those of them that have come back, and the version by which they can be sent anew.
    pub(crate) back: Vec<Box<[u8]>>,
    pub(crate) needs: u64,
}

/// What a client has seen.
#[derive(Debug)]
pub(crate) struct SeenByClient {
    /// All of it, but for what `own` says.
    pub(crate) stamp: Timestamp,
    /// It has seen what this thread's own partition rests on by now, or part of it.
    pub(crate) own: bool,
    /// Who need not be told what it has seen: a bit for each partition.
    pub(crate) informed: u64,
}

/// Which partitions have to do with a client: a bit for each.
#[derive(Debug)]
pub(crate) struct ClientPartitions {
    /// Where it is known.
    pub(crate) joined: u64,
    /// Who knows it for certain, as he has told it something.
    pub(crate) met: u64,
    /// Where it may have watches.
    pub(crate) watched: u64,
    /// The zxids of the last answers, by partition, where it has watches.
    answered: Vec<i64>,
}

/// What a client is to be told later.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    /// What has to wait for events before it.
    pub(crate) undelivered: VecDeque<Undelivered>,
    /// The partitions that have a part of what it is answered next.
    pub(crate) parts: u64,
    /// Behind all that its connection ends.
    pub(crate) ends: Option<CloseReason>,
}

/// Frames of a partition that may have to wait for events of others.
#[derive(Debug)]
pub(crate) struct Undelivered {
    pub(crate) from: u8,
    pub(crate) answers: u32,
    /// The partitions that have a part of what is answered.
    pub(crate) parts: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) stamp: Timestamp,
}

/// Where a request has to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Destination {
    /// Nowhere: it is answered here.
    Front,
    /// The first partition answers it, the others must know it.
    Proof,
    Partition(u8),
    /// All of them, one after the other.
    All(Opcode),
}

impl Route {
    /// That of a client which wants a session. Whom it asks must have come as far as `placed`.
    pub(crate) fn new(placed: &Timestamp) -> Self {
        Self {
            requests: ClientRequests { at: FIRST, ..ClientRequests::default() },
            seen: SeenByClient {
                stamp: placed.clone(),
                own: false,
                // Before anything was moved there is nothing to know.
                informed: if placed.zxid() == 0 { u64::MAX } else { 0 },
            },
            partitions: ClientPartitions { joined: 1 << FIRST, met: 0, watched: 0, answered: Vec::new() },
            delivery: Delivery::default(),
            session: None,
            remote: None,
            recent: Recent::default(),
            proofs: Vec::new(),
            gather: None,
            pipeline: None,
            is_heard: false,
            waits_us: None,
            direct: None,
            has_programs: false,
        }
    }

    /// Where a request has to go.
    pub(crate) fn destination(&mut self, placement: &Placement, frame: &Frame<'_>) -> Destination {
        match frame.opcode {
            // Before all others: by far the most requests, and the quickest to answer.
            Some(Opcode::GetData | Opcode::Exists | Opcode::SetData) => {
                let path = frame.body().buffer().ok().flatten();
                if path.is_some_and(|path| path == FAILURE_PATH.as_bytes()) {
                    // Whoever has answered last says what was wrong with that.
                    return Destination::Partition(self.requests.at);
                }
                // Where the path is none, or no text, any partition says so.
                Destination::Partition(path.map_or(FIRST, |path| self.recent.of(placement, path)))
            }
            Some(Opcode::Create | Opcode::Create2) => {
                let path = frame.body().buffer().ok().flatten();
                self.has_programs |= path.is_some_and(|path| path.starts_with(PROGRAMS.as_bytes()));
                destination(placement, frame, |path| self.recent.of(placement, path))
            }
            _ => destination(placement, frame, |path| self.recent.of(placement, path)),
        }
    }

    /// Whether a request goes to this partition, and if so, whether it may leave a watch behind there.
    /// [`Route::destination`] and [`may_watch`] in one, for the most frequent requests.
    #[inline]
    pub(crate) fn goes_to(
        &mut self,
        partition: u8,
        placement: &Placement,
        frame: &Frame<'_>,
    ) -> Option<bool> {
        let mut body = frame.body();
        let is_read = matches!(frame.opcode, Some(Opcode::GetData | Opcode::Exists));
        if (is_read || frame.opcode == Some(Opcode::SetData))
            && let Ok(Some(path)) = body.buffer()
            && let Some(of) = self.recent.knows(placement, path)
        {
            return (of == partition).then(|| is_read && body.bool().is_ok_and(|watch| watch));
        }
        (self.destination(placement, frame) == Destination::Partition(partition)).then(|| may_watch(frame))
    }

    /// Whether programs may carry out what it asks. Then nothing is pipelined: what looks like a read may be a
    /// write, which must not be asked twice.
    pub(crate) fn has_programs(&self) -> bool {
        self.has_programs || self.session.is_some_and(|session| session.programs)
    }

    /// Whether a request may go where it has to without overtaking any.
    pub(crate) fn is_free_for(&self, destination: Destination, placed: u64) -> bool {
        match destination {
            _ if self.requests.needs > placed => false,
            _ if self.requests.under_way == 0 => true,
            Destination::Partition(partition) => {
                self.requests.at == partition && self.requests.placed == placed && self.gather.is_none()
            }
            _ => false,
        }
    }

    /// Whether requests to a partition may go there as they come, and nothing has to be told with them.
    pub(crate) fn has_only_to_ask(&self, partition: u8, placed: u64) -> bool {
        let is_informed = self.seen.informed & (1 << partition) != 0;
        self.is_heard
            && is_informed
            && self.pipeline.is_none()
            && self.is_free_for(Destination::Partition(partition), placed)
    }

    /// It asks a partition, and may watch something there. Whether that must be told what it has seen.
    #[inline]
    pub(crate) fn asks(&mut self, partition: u8, placed: u64, watches: bool) -> bool {
        let bit = 1 << partition;
        (self.requests.at, self.requests.placed) = (partition, placed);
        self.partitions.watched |= if watches { bit } else { 0 };
        let has_news = self.seen.informed & bit == 0;
        self.seen.informed |= bit;
        has_news
    }

    /// The partitions of which something may have to come before what another one has for the client: events, and
    /// before an event also answers. `parts`: those that have to have come as far.
    pub(crate) fn concerned(&self, from: u8, stamp: &Timestamp, answers: u32, parts: u64) -> u64 {
        let is_unmet = self.partitions.met & (1 << from) == 0 && self.may_have_ended(stamp);
        self.partitions.watched
            | u64::from(is_unmet) << FIRST
            | if answers > 0 { parts } else { self.awaits() }
    }

    /// Whether a partition that has told the client nothing may have come past the end of its session before it knew of
    /// the connection: see `silence_remote_clients` of the replica. What it tells first then waits for the first
    /// partition, which will have ended the connection.
    #[cold]
    fn may_have_ended(&self, stamp: &Timestamp) -> bool {
        let lasts = |session: Attached| session.read_only || entry_of(stamp.at(FIRST)) <= session.since;
        !self.session.is_none_or(lasts)
    }

    /// The first of them of which something may not be here.
    pub(crate) fn lacks(&self, late: &Undelivered, reached: &Timestamp) -> Option<u8> {
        lacks(
            self.concerned(late.from, &late.stamp, late.answers, late.parts),
            late.from,
            &late.stamp,
            reached,
        )
    }

    /// The client is about to be given these frames. Lowers the zxids of answers where it would otherwise
    /// not be told, after a reconnect, what it was not told before: see [`mark`]. Returns the partitions
    /// for whose sake that was done. `clocks` is how far what each partition had for clients here has
    /// arrived.
    pub(crate) fn mark(&mut self, from: u8, clocks: &[i64], bytes: &mut [u8]) -> u64 {
        if self.partitions.watched == 0 {
            return 0;
        }
        let Some(newest) = delivered_zxid::last_answer(bytes) else { return 0 };
        let is_here = self.partitions.watched & (1 << from) != 0;
        let (mut least, mut behind) = (i64::MAX, 0);
        for of in bits(self.partitions.watched & !(1 << from)) {
            let delivered = self.delivered(of, clocks);
            least = least.min(delivered);
            behind |= u64::from(delivered < newest) << of;
        }
        if behind != 0 {
            delivered_zxid::lower(bytes, least);
        }
        if is_here {
            self.partitions.answered.resize(clocks.len(), 0);
            if let Some(answered) = self.partitions.answered.get_mut(usize::from(from)) {
                *answered = newest.max(*answered);
            }
        }
        behind
    }

    /// Up to which zxid the client has been given everything that a partition had for it.
    pub(crate) fn delivered(&self, of: u8, clocks: &[i64]) -> i64 {
        if let Some(late) = self.delivery.undelivered.iter().find(|late| late.from == of) {
            return delivered_zxid::before(&late.bytes);
        }
        let by_number = |zxids: &[i64]| zxids.get(usize::from(of)).copied().unwrap_or(0);
        by_number(clocks).max(by_number(&self.partitions.answered))
    }
}

/// The first of the concerned partitions that has not reached what another one rests on.
pub(crate) fn lacks(concerned: u64, from: u8, stamp: &Timestamp, reached: &Timestamp) -> Option<u8> {
    bits(concerned & !(1 << from)).find(|of| stamp.at(*of) > reached.at(*of))
}

/// Where a request goes.
pub(crate) fn destination_of(placement: &Placement, frame: &Frame<'_>) -> Destination {
    destination(placement, frame, |path| placement.of_bytes(path))
}

/// Where a request goes. `of` says where the subtree lives that a path is in.
fn destination(placement: &Placement, frame: &Frame<'_>, mut of: impl FnMut(&[u8]) -> u8) -> Destination {
    let Some(opcode) = frame.opcode else { return Destination::Partition(FIRST) };
    let mut body = frame.body();
    match opcode {
        _ if is_for_all(placement, opcode, body) => Destination::All(opcode),
        // Tokens are the front's, and never go in a run with what is a partition's.
        Opcode::Ping | Opcode::Sasl => Destination::Front,
        Opcode::Auth => Destination::Proof,
        Opcode::CloseSession | Opcode::Reconfig | Opcode::WhoAmI => Destination::Partition(FIRST),
        Opcode::Multi | Opcode::MultiRead => {
            // Where the first one lives, which then asks the others; mostly there are none.
            let ops = MultiOps::decode(&mut body).ok();
            let first = ops.and_then(|ops| ops.iter().next());
            Destination::Partition(
                first.and_then(|op| op.op_path().map(|path| of(path.as_bytes()))).unwrap_or(FIRST),
            )
        }
        // The parent's partition.
        Opcode::Create | Opcode::Create2 | Opcode::CreateContainer | Opcode::CreateTtl | Opcode::Delete => {
            Destination::Partition(placement.of_parent(body.path().unwrap_or("/")))
        }
        _ => {
            let path = body.buffer().ok().flatten();
            Destination::Partition(path.map_or(FIRST, of))
        }
    }
}

/// Whether a request to one partition may leave a watch behind.
#[inline]
pub(crate) fn may_watch(frame: &Frame<'_>) -> bool {
    match frame.opcode {
        Some(Opcode::GetData | Opcode::Exists | Opcode::GetChildren | Opcode::GetChildren2) => {
            let mut body = frame.body();
            body.buffer().is_ok() && body.bool().is_ok_and(|watch| watch)
        }
        opcode => opcode == Some(Opcode::AddWatch),
    }
}

/// The numbers of the bits that are set.
#[inline]
pub(crate) fn bits(mut set: u64) -> impl Iterator<Item = u8> {
    core::iter::from_fn(move || {
        let next = u8::try_from(set.trailing_zeros()).ok().filter(|next| *next < 64)?;
        set &= set - 1;
        Some(next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoa_wire::{RequestHeader, request::encode};

    fn moved(path: &str, to: u8) -> Placement {
        Placement::with(4, 1, [(path, to)])
    }

    #[test]
    fn what_a_run_takes_goes_where_one_request_does() {
        let paths =
            ["/", "/a", "/a/b", "/ab", "/em/counter", FAILURE_PATH, "/zookeeper/quota/a", "", "no path"];
        let looked_up = [Opcode::GetData, Opcode::SetData, Opcode::Exists];
        let opcodes = [&looked_up[..], &[Opcode::GetChildren2, Opcode::Delete]].concat();
        let mut taken = [0; 2];
        for placement in [Placement::new(4), moved("/a", 3), moved("/a/b", 1)] {
            let mut route = Route::new(&Timestamp::new(4));
            for (one, other) in paths.iter().flat_map(|one| paths.iter().map(move |other| (one, other))) {
                for (opcode, watch) in opcodes.iter().flat_map(|opcode| [(*opcode, false), (*opcode, true)]) {
                    for path in [one, one, other] {
                        let mut bytes = Vec::new();
                        RequestHeader { xid: 1, opcode: opcode as i32 }.encode(&mut bytes);
                        encode::path_watch(&mut bytes, path, watch);
                        let frame = Frame::read(&bytes).expect("it has a header");
                        route.requests.at = 1;
                        let watches = route.goes_to(1, &placement, &frame);
                        let asks_last = *path == FAILURE_PATH && looked_up.contains(&opcode);
                        let destination = if asks_last {
                            Destination::Partition(1)
                        } else {
                            destination_of(&placement, &frame)
                        };
                        let goes_here = destination == Destination::Partition(1);
                        assert_eq!(route.destination(&placement, &frame), destination, "{opcode:?} {path}");
                        assert_eq!(watches, goes_here.then(|| may_watch(&frame)), "{opcode:?} {path}");
                        taken[usize::from(watches == Some(true))] += u32::from(goes_here);
                    }
                }
            }
        }
        assert!(taken.iter().all(|count| *count > 100), "{taken:?}");
    }
}
