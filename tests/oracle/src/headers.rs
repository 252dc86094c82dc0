//! What a server with several partitions may say in the headers of its replies.
//!
//! With one partition the zxid there is that of the last write that the reply reflects. With several it is
//! the last one of the partition that answers, and is lowered while the client watches several of them, to
//! where everything has been delivered. Its use is to be sent with the watches when the client comes back;
//! so what remains is this:
//!
//! - No later write of a client has a zxid that is not above it, and no later event either: nothing would
//!   be missed.
//! - It is not above the zxid of the write that is answered; and where the client can have no watches, it is
//!   that zxid, and not below any that the answer itself shows (but for a multiRead).
//! - It catches up: see [`crate::pair::Pair::finish`].

use crate::answer::{self, Field, Item};
use crate::call::Op;
use crate::ledger::{Ledger, Value};
use crate::side::Received;
use stoa_wire::Opcode;

/// What the headers of one server have said so far.
#[derive(Debug)]
pub struct Headers {
    /// The largest zxid of all.
    newest: i64,
    /// The largest that each session was told.
    told: Vec<i64>,
    /// Which connections may have left a watch behind.
    watches: Vec<bool>,
}

impl Headers {
    /// Of so many sessions.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Self { newest: 0, told: vec![0; slots], watches: vec![false; slots] }
    }

    /// A request is about to be sent.
    pub fn asks(&mut self, slot: usize, op: &Op) {
        self.watches[slot] |= may_watch(op);
    }

    /// The connection is over, and its watches with it.
    pub fn hangs_up(&mut self, slot: usize) {
        self.watches[slot] = false;
    }

    /// Whether a write's reply must say its zxid.
    #[must_use]
    pub fn is_exact(&self, slot: usize) -> bool {
        !self.watches[slot]
    }

    /// The largest zxid so far.
    #[must_use]
    pub fn newest(&self) -> i64 {
        self.newest
    }

    /// The reply to a write says this.
    pub fn says(&mut self, zxid: i64) {
        self.newest = self.newest.max(zxid);
    }

    /// What is wrong with what a connection brought: the first such item, and in which way.
    pub fn judge(
        &mut self,
        slot: usize,
        received: &Received,
        items: &[Item],
        ledger: &Ledger,
    ) -> Option<(usize, String)> {
        let headers = received.frames.iter().map(|frame| answer::header(frame).map_or(0, |it| it.zxid));
        let is_exact = self.is_exact(slot);
        let told = &mut self.told[slot];
        for (at, (zxid, item)) in headers.zip(items).enumerate() {
            match item {
                Item::Event(_) if zxid > 0 && zxid <= *told => {
                    let what =
                        format!("an event with the zxid {zxid:#x}, up to {told:#x} nothing is missing");
                    return Some((at, what));
                }
                Item::Reply(_, fields) => {
                    let shown = shown(fields, ledger).unwrap_or(0);
                    if is_exact && zxid > 0 && shown > zxid {
                        return Some((at, format!("the zxid {zxid:#x} of a reply that shows {shown:#x}")));
                    }
                    *told = zxid.max(*told);
                    self.newest = zxid.max(self.newest);
                }
                _ => {}
            }
        }
        None
    }
}

/// The largest zxid among the fields of a reply, if it comes from one partition: a multiRead is put together
/// of what several say, and has the header of one of them.
fn shown(fields: &[Field], ledger: &Ledger) -> Option<i64> {
    if fields.iter().any(|field| field.name == "result type") {
        return None;
    }
    let zxid = |field: &Field| match field.value {
        Value::Write(nth) => ledger.zxid_of(nth),
        _ => None,
    };
    fields.iter().filter_map(zxid).max()
}

/// Notes the zxids of writes that only `right` did not know yet: where the left server names a write, the
/// right one has put its zxid. Answers whether there was one.
pub fn learn(left: &[Item], right: &[Item], ledger: &mut Ledger) -> bool {
    let mut learned = false;
    for (ours, theirs) in left.iter().zip(right) {
        let (ours, theirs) = match (ours, theirs) {
            (Item::Reply(_, ours), Item::Reply(_, theirs)) | (Item::Event(ours), Item::Event(theirs)) => {
                (ours, theirs)
            }
            _ => break,
        };
        for (ours, theirs) in ours.iter().zip(theirs) {
            if let (Value::Write(nth), Value::Number(zxid)) = (&ours.value, &theirs.value)
                && ours.name == theirs.name
            {
                learned |= ledger.learn(*nth, *zxid);
            }
        }
    }
    learned
}

/// Whether a request may leave a watch behind.
fn may_watch(op: &Op) -> bool {
    match op {
        Op::Watch { watch, .. } => *watch,
        Op::Multi { ops, .. } => ops.iter().any(may_watch),
        Op::SetWatches { .. } | Op::Number { opcode: Opcode::AddWatch, .. } | Op::Raw { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Name;
    use stoa_wire::{ReplyHeader, xid};

    fn frame(xid: i32, zxid: i64) -> Vec<u8> {
        let mut frame = Vec::new();
        ReplyHeader { xid, zxid, err: 0 }.encode(&mut frame);
        frame
    }

    /// What is wrong with replies (and events, where `xid` says so) with these zxids; each reply shows the
    /// write with the zxid beside it.
    fn judge(headers: &mut Headers, brought: &[(i32, i64, i64)]) -> Option<usize> {
        let mut ledger = Ledger::divided();
        for zxid in 1..100 {
            ledger.wrote(zxid);
        }
        let frames = brought.iter().map(|(xid, zxid, _)| frame(*xid, *zxid)).collect();
        let item = |(xid, _, shown): &(i32, i64, i64)| {
            let fields = vec![Field { name: "mzxid", value: ledger.zxid(*shown) }];
            if *xid == xid::NOTIFICATION { Item::Event(fields) } else { Item::Reply(0, fields) }
        };
        let items: Vec<Item> = brought.iter().map(item).collect();
        headers.judge(0, &Received { frames, ended: None }, &items, &ledger).map(|(at, _)| at)
    }

    #[test]
    fn an_event_up_to_which_nothing_is_missing_is_seen() {
        let event = xid::NOTIFICATION;
        let watched = || {
            let mut headers = Headers::new(1);
            headers.asks(0, &Op::Watch { opcode: Opcode::Exists, path: Name::text("/a"), watch: true });
            headers
        };
        assert_eq!(judge(&mut watched(), &[(1, 5, 5), (event, 9, 9), (2, 7, 9), (event, 8, 8)]), None);
        assert_eq!(judge(&mut watched(), &[(1, 5, 5), (event, 5, 5)]), Some(1));
        let mut headers = watched();
        assert_eq!(judge(&mut headers, &[(1, 8, 8), (2, 3, 3)]), None);
        assert_eq!((headers.newest(), judge(&mut headers, &[(event, 7, 7)])), (8, Some(0)));
    }

    #[test]
    fn a_reply_may_be_behind_what_it_shows_only_while_something_is_watched() {
        let mut headers = Headers::new(1);
        assert_eq!(judge(&mut headers, &[(1, 5, 5), (2, 3, 0), (xid::PING, 0, 9)]), None);
        assert_eq!(judge(&mut headers, &[(1, 5, 6)]), Some(0));
        headers.asks(0, &Op::Number { opcode: Opcode::AddWatch, path: Name::text("/a"), number: 0 });
        assert!(!headers.is_exact(0));
        assert_eq!(judge(&mut headers, &[(1, 5, 6)]), None);
        headers.hangs_up(0);
        assert_eq!(judge(&mut headers, &[(1, 5, 6)]), Some(0));
    }

    #[test]
    fn a_zxid_is_learned_where_both_servers_speak_of_the_same() {
        let fields = |name, value| vec![Field { name, value }];
        let reply = |name, value| Item::Reply(0, fields(name, value));
        let learned = |left: Vec<Item>, right: Vec<Item>| {
            let mut ledger = Ledger::divided();
            ledger.wrote_within(crate::ledger::Bounds { above: 4, least: 5 });
            learn(&left, &right, &mut ledger).then(|| ledger.zxid_of(0))
        };
        let write = || reply("czxid", Value::Write(0));
        assert_eq!(learned(vec![write()], vec![reply("czxid", Value::Number(5))]), Some(Some(5)));
        assert_eq!(learned(vec![write()], vec![reply("czxid", Value::Number(4))]), None);
        assert_eq!(learned(vec![write()], vec![reply("pzxid", Value::Number(5))]), None);
        assert_eq!(learned(vec![write()], vec![Item::Event(fields("czxid", Value::Number(5)))]), None);
    }
}
