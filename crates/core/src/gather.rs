//! Requests that every partition has a share in: they are asked one after the other, and the answers are
//! put together. What is asked later carries what the earlier ones had seen.

use crate::placement::{FIRST, Placement};
use alloc::boxed::Box;
use alloc::vec::Vec;
use stoa_wire::{
    AddWatchMode, MultiOps, MultiResult, MultiResults, Opcode, Reader, ReplyHeader, Request, StrList,
    begin_frame, end_frame, next_frame, put,
};

/// A request on its way through all partitions.
#[derive(Debug)]
pub(crate) struct Gather {
    pub(crate) frame: Box<[u8]>,
    pub(crate) opcode: Opcode,
    /// Where it leaves watches behind: a bit for each partition.
    pub(crate) watches: u64,
    xid: i32,
    /// The answers so far, without their lengths.
    replies: Vec<Vec<u8>>,
}

impl Gather {
    pub(crate) fn new(frame: Box<[u8]>, opcode: Opcode, xid: i32, placement: Placement) -> Self {
        let watches = watches(placement, opcode, frame.get(REQUEST_HEADER_BYTES..).unwrap_or_default());
        Self { frame, opcode, watches, xid, replies: Vec::new() }
    }

    /// The partition that is asked next.
    pub(crate) fn next(&self) -> u8 {
        u8::try_from(self.replies.len()).unwrap_or(u8::MAX)
    }

    /// Takes the answer out of what a partition has said, if it is there; what remains is for the client.
    pub(crate) fn take(&mut self, bytes: &mut Vec<u8>) -> bool {
        let (mut rest, mut at) = (bytes.as_slice(), 0);
        while let Ok(Some((frame, tail))) = next_frame(rest, usize::MAX >> 1) {
            let end = bytes.len() - tail.len();
            if ReplyHeader::decode(&mut Reader::new(frame)).is_ok_and(|it| it.xid == self.xid) {
                self.replies.push(frame.into());
                bytes.drain(at..end);
                return true;
            }
            (rest, at) = (tail, end);
        }
        false
    }

    /// The answer for the client, as a frame.
    pub(crate) fn merge(&self, placement: Placement, out: &mut Vec<u8>) {
        let Some((first, others)) = self.replies.split_first() else { return };
        let start = begin_frame(out);
        let merged = match self.opcode {
            Opcode::GetEphemerals => merge_lists(first, others, out),
            Opcode::GetAllChildrenNumber => merge_counts(first, others, out),
            Opcode::MultiRead => merge_reads(&self.frame, &self.replies, placement, out),
            _ => None,
        };
        if merged.is_none() {
            // The first partition speaks for all, and so it does where it refuses.
            out.truncate(start + 4);
            out.extend_from_slice(first);
        }
        end_frame(out, start);
    }
}

const REQUEST_HEADER_BYTES: usize = 8;

/// Whether a request has to go through all partitions.
pub(crate) fn is_for_all(placement: Placement, opcode: Opcode, mut body: Reader<'_>) -> bool {
    match opcode {
        Opcode::SetWatches | Opcode::SetWatches2 | Opcode::GetEphemerals => true,
        Opcode::GetAllChildrenNumber | Opcode::RemoveWatches | Opcode::CheckWatches => {
            body.path().is_ok_and(|path| path == "/")
        }
        Opcode::AddWatch => match Request::decode(opcode, &mut body) {
            Ok(Request::AddWatch { path, mode }) => {
                path == "/" && AddWatchMode::from_i32(mode) == Some(AddWatchMode::PersistentRecursive)
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
fn watches(placement: Placement, opcode: Opcode, body: &[u8]) -> u64 {
    let everywhere = u64::MAX >> (64 - u32::from(placement.partitions()));
    match Request::decode(opcode, &mut Reader::new(body)) {
        Ok(Request::SetWatches(watches) | Request::SetWatches2(watches)) => {
            let lists = [watches.data, watches.exist, watches.child, watches.persistent];
            let paths = lists.iter().flat_map(StrList::iter);
            let below = watches.persistent_recursive.iter();
            let of_tree = |path| if path == "/" { everywhere } else { 1 << placement.of(path) };
            let set = below.fold(0, |set, path| set | of_tree(path));
            paths.fold(set, |set, path| set | 1 << placement.of(path))
        }
        Ok(Request::AddWatch { .. }) => everywhere,
        _ => 0,
    }
}

fn owner(placement: Placement, op: &Request<'_>) -> u8 {
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

fn merge_lists(first: &[u8], others: &[Vec<u8>], out: &mut Vec<u8>) -> Option<()> {
    let mut count = 0;
    let mut items = Vec::new();
    let (header, _) = body(first)?;
    for reply in core::iter::once(first).chain(others.iter().map(Vec::as_slice)) {
        let (_, mut reader) = body(reply)?;
        count += reader.count(4).ok()?;
        items.extend_from_slice(reader.rest());
    }
    header.encode(out);
    put::len(out, count);
    out.extend_from_slice(&items);
    Some(())
}

fn merge_counts(first: &[u8], others: &[Vec<u8>], out: &mut Vec<u8>) -> Option<()> {
    let (header, mut reader) = body(first)?;
    let mut sum = reader.i32().ok()?;
    for reply in others {
        let (_, mut reader) = body(reply)?;
        sum = sum.saturating_add(reader.i32().ok()?);
    }
    header.encode(out);
    put::i32(out, sum);
    Some(())
}

fn merge_reads(frame: &[u8], replies: &[Vec<u8>], placement: Placement, out: &mut Vec<u8>) -> Option<()> {
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
