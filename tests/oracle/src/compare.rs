//! Two sequences of answers, held against each other.

use crate::answer::{Field, Item};
use crate::ledger::Value;

/// The first place where two sequences part.
#[derive(Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// In short, what differs.
    pub what: String,
    /// Which call of the burst was answered differently.
    pub call: Option<usize>,
    /// What the left server sent there.
    pub left: Option<Item>,
    /// What the right server sent there.
    pub right: Option<Item>,
}

/// What the order of events with one zxid must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The same.
    Same,
    /// The same for each subtree right below the root.
    SamePerSubtree,
    /// Any.
    Any,
}

/// Compares what one connection brought from each server, in order; `order` tells how strict that is
/// for events with one zxid.
///
/// # Errors
/// With the first difference.
pub fn first_difference(
    mut left: Vec<Item>,
    mut right: Vec<Item>,
    order: impl Fn(&Value) -> Order,
) -> Result<Vec<Item>, Box<Mismatch>> {
    sort_events(&mut left, &order);
    sort_events(&mut right, &order);
    let len = left.len().max(right.len());
    for at in 0..len {
        let (ours, theirs) = (left.get(at), right.get(at));
        if ours == theirs {
            continue;
        }
        let call = [ours, theirs].into_iter().flatten().find_map(Item::call);
        return Err(Box::new(Mismatch {
            what: describe(ours, theirs),
            call,
            left: ours.cloned(),
            right: theirs.cloned(),
        }));
    }
    Ok(left)
}

fn describe(left: Option<&Item>, right: Option<&Item>) -> String {
    match (left, right) {
        (Some(Item::Reply(_, left)), Some(Item::Reply(_, right))) => {
            format!("the field {} of a reply", first_field(left, right))
        }
        (Some(Item::Event(left)), Some(Item::Event(right))) => {
            format!("the field {} of a watch event", first_field(left, right))
        }
        (Some(Item::Event(_)), _) => "a watch event that only the left server sends here".to_owned(),
        (_, Some(Item::Event(_))) => "a watch event that only the right server sends here".to_owned(),
        (Some(Item::Ended(_)), _) => "the left server ends the connection".to_owned(),
        (_, Some(Item::Ended(_))) => "the right server ends the connection".to_owned(),
        _ => "one server sends more than the other".to_owned(),
    }
}

fn first_field(left: &[Field], right: &[Field]) -> &'static str {
    let at = left.iter().zip(right).take_while(|(left, right)| left == right).count();
    left.get(at).or(right.get(at)).map_or("(none)", |field| field.name)
}

fn sort_events(items: &mut [Item], order: &impl Fn(&Value) -> Order) {
    let zxid = |item: &Item| field(item, "zxid").filter(|_| matches!(item, Item::Event(_))).cloned();
    for run in items.chunk_by_mut(|a, b| zxid(a).is_some() && zxid(a) == zxid(b)) {
        match run.first().and_then(zxid).map(|zxid| order(&zxid)) {
            Some(Order::SamePerSubtree) => run.sort_by_key(subtree),
            Some(Order::Any) => run.sort(),
            Some(Order::Same) | None => {}
        }
    }
}

fn field<'i>(item: &'i Item, name: &str) -> Option<&'i Value> {
    let (Item::Reply(_, fields) | Item::Event(fields)) = item else { return None };
    fields.iter().find(|field| field.name == name).map(|field| &field.value)
}

/// The znode right below the root that the path of an event begins with.
fn subtree(event: &Item) -> Vec<u8> {
    let Some(Value::Bytes(path)) = field(event, "path") else { return Vec::new() };
    let end = path.iter().skip(1).position(|byte| *byte == b'/');
    path[..end.map_or(path.len(), |end| end + 1)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer;
    use crate::call::Op;
    use crate::ledger::Ledger;
    use crate::link::Ended;
    use crate::side::Received;
    use stoa_wire::{Opcode, ReplyHeader, Stat, WatcherEvent, put, xid};

    const OPS: [Op; 2] = [Op::Bare(Opcode::WhoAmI), Op::Bare(Opcode::Ping)];

    fn reply(xid: i32, zxid: i64, err: i32, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut frame = Vec::new();
        ReplyHeader { xid, zxid, err }.encode(&mut frame);
        body(&mut frame);
        frame
    }

    fn event(zxid: i64, kind: i32, path: &str) -> Vec<u8> {
        reply(xid::NOTIFICATION, zxid, 0, |frame| WatcherEvent { kind, state: 3, path }.encode(frame))
    }

    fn stat(scale: i64) -> Stat {
        Stat {
            czxid: 10 * scale,
            mzxid: 20 * scale,
            ctime: 0,
            mtime: 0,
            version: 1,
            cversion: 2,
            aversion: 3,
            ephemeral_owner: 99 * scale,
            data_length: 4,
            num_children: 5,
            pzxid: 30 * scale,
        }
    }

    /// A ledger of three writes; `scale` makes the raw numbers of two servers differ.
    fn ledger(scale: i64) -> Ledger {
        let mut ledger = Ledger::default();
        for write in 1..=3 {
            ledger.wrote(10 * write * scale);
        }
        ledger.opened(99 * scale, 0);
        ledger
    }

    fn exists(scale: i64, change: impl FnOnce(&mut Stat)) -> Vec<u8> {
        let mut stat = stat(scale);
        change(&mut stat);
        reply(1, 31 * scale, 0, |frame| stat.encode(frame))
    }

    fn items(frames: Vec<Vec<u8>>, scale: i64, ended: Option<Ended>) -> Vec<Item> {
        let op = Op::Watch { opcode: Opcode::Exists, path: crate::call::Name::text("/a"), watch: false };
        let received = Received { frames, ended };
        received.items([&op, &OPS[1]].into_iter(), &mut ledger(scale))
    }

    fn differ(left: Vec<Vec<u8>>, right: Vec<Vec<u8>>) -> Option<String> {
        first_difference(items(left, 1, None), items(right, 7, None), |zxid| match zxid {
            Value::Write(2) => Order::Any,
            _ => Order::Same,
        })
        .err()
        .map(|mismatch| mismatch.what)
    }

    #[test]
    fn numbers_of_their_own_are_no_difference() {
        assert_eq!(differ(vec![exists(1, |_| {})], vec![exists(7, |_| {})]), None);
    }

    #[test]
    fn every_field_of_a_stat_is_looked_at() {
        type Change = (&'static str, fn(&mut Stat));
        let changes: [Change; 11] = [
            ("czxid", |stat| stat.czxid = 140),
            ("mzxid", |stat| stat.mzxid = 70),
            ("pzxid", |stat| stat.pzxid += 1),
            ("ctime", |stat| stat.ctime = 1),
            ("mtime", |stat| stat.mtime = 1),
            ("version", |stat| stat.version += 1),
            ("cversion", |stat| stat.cversion += 1),
            ("aversion", |stat| stat.aversion += 1),
            ("ephemeralOwner", |stat| stat.ephemeral_owner = 0),
            ("dataLength", |stat| stat.data_length += 1),
            ("numChildren", |stat| stat.num_children += 1),
        ];
        for (name, change) in changes {
            let what = differ(vec![exists(1, |_| {})], vec![exists(7, change)]);
            assert_eq!(what, Some(format!("the field {name} of a reply")));
        }
    }

    #[test]
    fn a_stale_zxid_in_a_header_is_seen_and_a_later_one_without_a_write_is_not() {
        let ping = |zxid| vec![exists(1, |_| {}), reply(xid::PING, zxid, 0, |_| {})];
        let other = |zxid| vec![exists(7, |_| {}), reply(xid::PING, zxid, 0, |_| {})];
        assert_eq!(differ(ping(31), other(30 * 7 + 5)), None);
        assert_eq!(differ(ping(31), other(30 * 7 - 1)), Some("the field zxid of a reply".to_owned()));
    }

    #[test]
    fn error_codes_and_bytes_behind_the_end_are_seen() {
        let left = || vec![reply(1, 30, -101, |_| {})];
        assert_eq!(
            differ(left(), vec![reply(1, 210, -102, |_| {})]),
            Some("the field err of a reply".to_owned())
        );
        assert_eq!(
            differ(left(), vec![reply(1, 210, -101, |frame| put::i32(frame, 0))]),
            Some("the field rest of a reply".to_owned())
        );
    }

    #[test]
    fn a_body_cut_anywhere_is_seen() {
        let whole = exists(7, |_| {});
        for len in ReplyHeader::LEN..whole.len() {
            assert!(differ(vec![exists(1, |_| {})], vec![whole[..len].to_vec()]).is_some(), "{len}");
        }
    }

    #[test]
    fn a_dropped_or_changed_event_is_seen() {
        let with = |scale: i64, kind, path| vec![event(10 * scale, kind, path), exists(scale, |_| {})];
        assert_eq!(differ(with(1, 3, "/a"), with(7, 3, "/a")), None);
        assert_eq!(
            differ(with(1, 3, "/a"), vec![exists(7, |_| {})]),
            Some("a watch event that only the left server sends here".to_owned())
        );
        assert_eq!(
            differ(with(1, 3, "/a"), with(7, 2, "/a")),
            Some("the field type of a watch event".to_owned())
        );
        assert_eq!(
            differ(with(1, 3, "/a"), with(7, 3, "/b")),
            Some("the field path of a watch event".to_owned())
        );
    }

    #[test]
    fn an_event_after_the_reply_that_it_belongs_before_is_seen() {
        let before = vec![event(10, 3, "/a"), exists(1, |_| {})];
        let after = vec![exists(7, |_| {}), event(70, 3, "/a")];
        assert!(differ(before, after).is_some());
    }

    #[test]
    fn only_the_end_of_a_session_may_order_its_events_freely() {
        let two = |scale: i64, write: i64, paths: [&str; 2]| {
            paths.map(|path| event(10 * write * scale, 2, path)).to_vec()
        };
        assert_eq!(differ(two(1, 3, ["/a", "/b"]), two(7, 3, ["/b", "/a"])), None);
        assert!(differ(two(1, 2, ["/a", "/b"]), two(7, 2, ["/b", "/a"])).is_some());
        assert!(differ(two(1, 3, ["/a", "/b"]), two(7, 3, ["/a", "/a"])).is_some());
    }

    #[test]
    fn events_of_one_write_may_only_be_ordered_freely_between_subtrees() {
        let differ = |left: [&str; 3], right: [&str; 3]| {
            let events = |scale: i64, paths: [&str; 3]| {
                items(paths.map(|path| event(10 * scale, 2, path)).to_vec(), scale, None)
            };
            first_difference(events(1, left), events(7, right), |_| Order::SamePerSubtree).is_err()
        };
        assert!(!differ(["/a", "/b/x", "/a/x"], ["/b/x", "/a", "/a/x"]));
        assert!(differ(["/a", "/b/x", "/a/x"], ["/b/x", "/a/x", "/a"]));
        assert!(differ(["/a", "/b/x", "/a/x"], ["/b/x", "/a", "/a/y"]));
    }

    #[test]
    fn a_closed_connection_is_seen() {
        let left = items(vec![exists(1, |_| {})], 1, None);
        let right = items(vec![exists(7, |_| {})], 7, Some(Ended::Closed));
        let mismatch = first_difference(left, right, |_| Order::Same).expect_err("one of them closed");
        assert_eq!(mismatch.what, "the right server ends the connection");
    }

    #[test]
    fn children_are_a_set_but_not_a_bag() {
        let children = |names: &[&str]| {
            reply(1, 10, 0, |frame| {
                put::len(frame, names.len());
                names.iter().for_each(|name| put::str(frame, name));
            })
        };
        let op = Op::Watch { opcode: Opcode::GetChildren, path: crate::call::Name::text("/a"), watch: false };
        let fields = |names: &[&str]| answer::reply(&op, &children(names), &mut ledger(1));
        assert_eq!(fields(&["b", "a"]), fields(&["a", "b"]));
        assert_ne!(fields(&["a", "a", "b"]), fields(&["a", "b", "b"]));
        assert_ne!(fields(&["a"]), fields(&["a", "b"]));
    }
}
