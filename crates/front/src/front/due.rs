//! In which order a client is told what several partitions have for it.

use super::Front;
use crate::connection::ConnectionId;
use crate::route::Undelivered;
use alloc::vec::Vec;
use stoa_wire::{EventKind, Reader, ReplyHeader, WatcherEvent, next_frame, xid};

impl Front {
    /// Gives a client what it need not wait for.
    pub(super) fn deliver(&mut self, id: ConnectionId) {
        self.collect(id);
        while let Some(next) = self.next_due(id) {
            let Some(route) = self.route(id) else { break };
            if route.delivery.undelivered.get(next).is_some_and(|late| route.is_too_old(late))
                && self.begin_again(id)
            {
                continue;
            }
            let late = self.route(id).and_then(|route| route.delivery.undelivered.remove(next));
            let Some(Undelivered { from, answers, mut bytes, stamp, .. }) = late else { break };
            self.hand_out(from, id, &stamp, answers, &mut bytes);
            self.connections.recycle(bytes);
        }
        self.give_collected(id);
        match self
            .route(id)
            .filter(|route| route.delivery.undelivered.is_empty())
            .and_then(|route| route.delivery.ends)
        {
            Some(reason) => drop(self.end(id, reason)),
            None => self.go_on(id),
        }
    }

    /// Which of what a client waits for is next: the first of its partition, with no event before it that
    /// has not come, or has not been given yet. (Parts of one operation are each before the others: then
    /// events come before the reply, and what is behind the operation comes after all of them.)
    fn next_due(&mut self, id: ConnectionId) -> Option<usize> {
        let route = self.connections.get(id)?.route.as_ref()?;
        let mut missing = None;
        let mut firsts: Vec<usize> = Vec::new();
        for (at, late) in route.delivery.undelivered.iter().enumerate() {
            if route.is_held_back(late)
                || firsts.iter().any(|first| route.delivery.undelivered[*first].from == late.from)
            {
                continue;
            }
            firsts.push(at);
            let lacks = route.lacks(late, &self.progress.reached);
            missing = missing.or(lacks.map(|of| (of, late.stamp.at(of))));
        }
        let is_before = |one: &Undelivered, other: &Undelivered| {
            one.from != other.from && one.stamp.at(one.from) <= other.stamp.at(one.from)
        };
        let is_due = |at: &&usize| {
            let late = &route.delivery.undelivered[**at];
            route.lacks(late, &self.progress.reached).is_none()
                && !firsts.iter().any(|first| is_before(&route.delivery.undelivered[*first], late))
        };
        let due = firsts.iter().find(is_due).copied();
        if let (None, Some((partition, position))) = (due, missing) {
            self.tell_me(partition, position);
            self.pending.waiting.push(id);
            return None;
        }
        let is_part_of_next = |at: &&usize| {
            let late = &route.delivery.undelivered[**at];
            let mut before = firsts
                .iter()
                .map(|first| &route.delivery.undelivered[*first])
                .filter(|it| is_before(it, late));
            before.all(|before| is_before(late, before))
        };
        // Besides events others than the partition that was asked have at most answers to fast reads.
        let mut parts: Vec<_> = firsts.iter().filter(is_part_of_next).copied().collect();
        parts.sort_by_key(|part| {
            let late = &route.delivery.undelivered[*part];
            (route.is_answer(late), is_of_children(&late.bytes))
        });
        due.or(parts.first().copied()).or(firsts.first().copied())
    }
}

/// Whether frames begin with the event that a znode has other children: of one update it is the last.
fn is_of_children(frames: &[u8]) -> bool {
    let Ok(Some((frame, _))) = next_frame(frames, usize::MAX) else { return false };
    let mut frame = Reader::new(frame);
    let is_event = ReplyHeader::decode(&mut frame).is_ok_and(|header| header.xid == xid::NOTIFICATION);
    let event = WatcherEvent::decode(&mut frame);
    is_event && event.is_ok_and(|event| event.kind == EventKind::ChildrenChanged as i32)
}
