//! Requests that every partition has a share in: they are asked one after the other, and the answers are
//! put together. What is asked later carries what the earlier ones had seen.

use crate::placement::{FIRST, Placement};
use alloc::boxed::Box;
use alloc::vec::Vec;
use stoa_wire::{
    AddWatchMode, MultiOps, MultiResult, MultiResults, Opcode, Reader, ReplyHeader, Request, begin_frame,
    end_frame, next_frame, put,
};

/// A request on its way through all partitions.
#[derive(Debug)]
pub(crate) struct Gather {
    pub(crate) frame: Box<[u8]>,
    pub(crate) opcode: Opcode,
    xid: i32,
    /// The answers so far, without their lengths.
    replies: Vec<Vec<u8>>,
}

impl Gather {
    pub(crate) fn new(frame: Box<[u8]>, opcode: Opcode, xid: i32) -> Self {
        Self { frame, opcode, xid, replies: Vec::new() }
    }

    /// The partition that is asked next.
    pub(crate) fn next(&self) -> u8 {
        u8::try_from(self.replies.len()).unwrap_or(u8::MAX)
    }

    /// Takes the answer out of what a partition has said; what remains is for the client.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut others = Vec::new();
        let (mut rest, mut taken) = (bytes, false);
        while let Ok(Some((frame, tail))) = next_frame(rest, usize::MAX >> 1) {
            let is_answer = ReplyHeader::decode(&mut Reader::new(frame)).is_ok_and(|it| it.xid == self.xid);
            if is_answer && !taken {
                taken = true;
                self.replies.push(frame.into());
            } else {
                others.extend_from_slice(&rest[..rest.len() - tail.len()]);
            }
            rest = tail;
        }
        others
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
    let mut request = Reader::new(frame.get(8..)?);
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
