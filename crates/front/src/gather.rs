//! Requests that every partition has a share in: they are asked one after the other, and the answers are
//! put together. What is asked later carries what the earlier ones had seen.

use alloc::boxed::Box;
use alloc::vec::Vec;
use stoa_placement::{FIRST, Placement};
use stoa_wire::{
    AddWatchMode, MultiOps, MultiResult, MultiResults, Opcode, Reader, ReplyHeader, Request, StrList,
    Timestamp, begin_frame, end_frame, next_frame, put,
};

/// A request on its way through all partitions.
#[derive(Debug)]
pub(crate) struct Gather {
    pub(crate) frame: Box<[u8]>,
    pub(crate) opcode: Opcode,
    /// Where it leaves watches behind: a bit for each partition.
    pub(crate) watches: u64,
    xid: i32,
    placement: Placement,
    /// The answers so far, without their lengths, and what they rest on.
    replies: Vec<Vec<u8>>,
    stamp: Timestamp,
    /// When it had to begin again, a watch had been removed.
    found: Option<Vec<u8>>,
}

impl Gather {
    pub(crate) fn new(frame: Box<[u8]>, opcode: Opcode, xid: i32, placement: Placement) -> Self {
        let watches = watches(&placement, opcode, frame.get(REQUEST_HEADER_BYTES..).unwrap_or_default());
        let stamp = Timestamp::new(placement.partitions());
        Self { frame, opcode, watches, xid, placement, replies: Vec::new(), stamp, found: None }
    }

    /// The same from the beginning, by this table.
    pub(crate) fn again(self, placement: Placement) -> Self {
        let found = self.found.clone().or_else(|| {
            let is_found = |reply: &&Vec<u8>| self.opcode == Opcode::RemoveWatches && body(reply).is_some();
            self.replies.iter().find(is_found).cloned()
        });
        Self { found, ..Self::new(self.frame, self.opcode, self.xid, placement) }
    }

    /// By which version of the table it is asked.
    pub(crate) fn placed(&self) -> u64 {
        self.placement.version()
    }

    /// What the answer rests on.
    pub(crate) fn stamp(&self) -> &Timestamp {
        &self.stamp
    }

    /// The partition that is asked next.
    pub(crate) fn next(&self) -> u8 {
        u8::try_from(self.replies.len()).unwrap_or(u8::MAX)
    }

    /// Takes the answer out of what a partition has said, if it is there; what remains is for the client.
    pub(crate) fn take(&mut self, bytes: &mut Vec<u8>, stamp: &Timestamp) -> bool {
        let (mut rest, mut at) = (bytes.as_slice(), 0);
        while let Ok(Some((frame, tail))) = next_frame(rest, usize::MAX >> 1) {
            let end = bytes.len() - tail.len();
            if ReplyHeader::decode(&mut Reader::new(frame)).is_ok_and(|it| it.xid == self.xid) {
                self.replies.push(frame.into());
                self.stamp.merge(stamp);
                bytes.drain(at..end);
                return true;
            }
            (rest, at) = (tail, end);
        }
        false
    }

    /// The answer for the client, as a frame.
    pub(crate) fn merge(&self, out: &mut Vec<u8>) {
        let Some(speaker) = self.speaker() else { return };
        let start = begin_frame(out);
        let merged = match self.opcode {
            Opcode::GetEphemerals => merge_lists(&self.replies, out),
            Opcode::GetAllChildrenNumber => body(speaker).and_then(|_| merge_counts(&self.replies, out)),
            Opcode::MultiRead => merge_reads(&self.frame, &self.replies, &self.placement, out),
            _ => None,
        };
        if merged.is_none() {
            out.truncate(start + 4);
            out.extend_from_slice(speaker);
        }
        end_frame(out, start);
    }

    /// Whose answer is that of all, if they cannot be put together: of a watch whoever has it speaks, of a
    /// znode the partition where it lives, of all else the first.
    fn speaker(&self) -> Option<&[u8]> {
        if let Some(found) = &self.found {
            return Some(found);
        }
        let mut reader = Reader::new(self.frame.get(REQUEST_HEADER_BYTES..)?);
        let speaker = match self.opcode {
            Opcode::RemoveWatches | Opcode::CheckWatches => {
                self.replies.iter().position(|reply| body(reply).is_some()).unwrap_or(0)
            }
            Opcode::GetAllChildrenNumber | Opcode::AddWatch => {
                usize::from(reader.path().map_or(FIRST, |path| self.placement.of(path)))
            }
            _ => 0,
        };
        self.replies.get(speaker).map(Vec::as_slice)
    }
}

const REQUEST_HEADER_BYTES: usize = 8;

/// Whether a request has to go through all partitions.
pub(crate) fn is_for_all(placement: &Placement, opcode: Opcode, mut body: Reader<'_>) -> bool {
    match opcode {
        Opcode::SetWatches | Opcode::SetWatches2 | Opcode::GetEphemerals => true,
        // Recursive ones may have been left behind wherever something below has been.
        Opcode::RemoveWatches | Opcode::CheckWatches if placement.version() > 0 => true,
        Opcode::GetAllChildrenNumber | Opcode::RemoveWatches | Opcode::CheckWatches => {
            body.path().is_ok_and(|path| placement.is_spread(path))
        }
        Opcode::AddWatch => match Request::decode(opcode, &mut body) {
            Ok(Request::AddWatch { path, mode }) => {
                let is_recursive = AddWatchMode::from_i32(mode) == Some(AddWatchMode::PersistentRecursive);
                is_recursive && placement.is_spread(path)
            }
            _ => false,
        },
        Opcode::MultiRead => MultiOps::decode(&mut body).is_ok_and(|ops| {
            let mut owners = ops.iter().map(|op| owner(placement, &op));
            let first = owners.next();
            owners.any(|owner| Some(owner) != first)
        }),
        _ => false,
    }
}

/// Where a request that goes through all partitions leaves watches behind.
fn watches(placement: &Placement, opcode: Opcode, body: &[u8]) -> u64 {
    let everywhere = u64::MAX >> (64 - u32::from(placement.partitions()));
    match Request::decode(opcode, &mut Reader::new(body)) {
        Ok(Request::SetWatches(watches) | Request::SetWatches2(watches)) => {
            let lists = [watches.data, watches.exist, watches.child, watches.persistent];
            let paths = lists.iter().flat_map(StrList::iter);
            let below = watches.persistent_recursive.iter();
            let set = below.fold(0, |set, path| set | placement.all_of(path));
            paths.fold(set, |set, path| set | 1 << placement.of(path))
        }
        Ok(Request::AddWatch { .. }) => everywhere,
        _ => 0,
    }
}

fn owner(placement: &Placement, op: &Request<'_>) -> u8 {
    match op {
        Request::GetData { path, .. } | Request::GetChildren { path, .. } => placement.of(path),
        _ => FIRST,
    }
}

/// A reply's header and body, if it is no refusal.
fn body(reply: &[u8]) -> Option<(ReplyHeader, Reader<'_>)> {
    let mut reader = Reader::new(reply);
    let header = ReplyHeader::decode(&mut reader).ok()?;
    (header.err == 0).then_some((header, reader))
}

fn merge_lists(replies: &[Vec<u8>], out: &mut Vec<u8>) -> Option<()> {
    let mut count = 0;
    let mut items = Vec::new();
    let (header, _) = body(replies.first()?)?;
    for reply in replies {
        let (_, mut reader) = body(reply)?;
        count += reader.count(4).ok()?;
        items.extend_from_slice(reader.rest());
    }
    header.encode(out);
    put::len(out, count);
    out.extend_from_slice(&items);
    Some(())
}

fn merge_counts(replies: &[Vec<u8>], out: &mut Vec<u8>) -> Option<()> {
    let (header, _) = body(replies.first()?)?;
    let mut sum = 0_i32;
    for reply in replies {
        let (_, mut reader) = body(reply)?;
        sum = sum.saturating_add(reader.i32().ok()?);
    }
    header.encode(out);
    put::i32(out, sum);
    Some(())
}

fn merge_reads(frame: &[u8], replies: &[Vec<u8>], placement: &Placement, out: &mut Vec<u8>) -> Option<()> {
    let mut request = Reader::new(frame.get(REQUEST_HEADER_BYTES..)?);
    let ops = MultiOps::decode(&mut request).ok()?;
    let (header, _) = body(replies.first()?)?;
    let mut results = Vec::new();
    for reply in replies {
        let (_, mut reader) = body(reply)?;
        results.push(MultiResults::decode(&mut reader).ok()?);
    }
    header.encode(out);
    for (at, op) in ops.iter().enumerate() {
        let result = results.get(usize::from(owner(placement, &op)))?.get(at)?;
        match result {
            MultiResult::Data { data, stat } => MultiResults::data(out, *data, stat),
            MultiResult::Children(names) => {
                MultiResults::children(out);
                put::len(out, names.len());
                names.iter().for_each(|name| put::str(out, name));
            }
            MultiResult::Error(code) => MultiResults::error(out, *code),
            _ => return None,
        }
    }
    MultiResults::end(out);
    Some(())
}
