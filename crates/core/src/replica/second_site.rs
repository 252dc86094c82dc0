//! Where the operator says that two sites have to have a change, the answer to it waits until another one has it.
//!
//! What has come from another site is at two of them already. What this site has prepared under its own tokens is known to
//! be at another one when that says what it has of this site's log. Its leader hears that, and tells the other servers of
//! this site, whose clients may be the ones who wait.

use crate::peer::PeerMessage;
use crate::replica::Replica;
use crate::replica::sites::SITES_PATH;
use crate::second_site::Shared;
use stoa_front::{CloseReason, Connection, ConnectionId, HeldReply, Phase};
use stoa_sites::Durability;
use stoa_timeline::Lead;
use stoa_tree::{SiteId, Update};
use stoa_wire::{Opcode, Reader, RequestHeader};

/// A client that has waited for another site for so long is let go: nobody can tell it that what it has asked is safe.
const WAIT_US: u64 = 10_000_000;

impl Replica {
    /// What the operator says of durability may be something else. Every server reads it where it stands in the tree, so
    /// that it counts from the same position of the log on, and at once after a start.
    pub(super) fn durability_changed(&mut self) {
        if !self.has_sessions() {
            // The first partition says it.
            return;
        }
        let znode = self.applied.partition.tree().get(SITES_PATH);
        let durability = znode.and_then(|znode| znode.data()).map(Durability::parse).unwrap_or_default();
        self.second_site.set_durability(durability);
        self.tell_durability();
    }

    /// An update is applied, and its writer is about to be answered: that waits until another site has it, if it needs two.
    pub(super) fn hold_if_needed(&mut self, id: ConnectionId, update: &Update<'_>) {
        if self.needs_second_site(update) {
            self.hold(id, update.zxid);
        }
    }

    /// A part of an operation over several partitions is applied, whose client is about to be answered. What the others have
    /// of it is not known here, so that the answer waits wherever something needs two sites.
    pub(super) fn hold_part_if_needed(&mut self, id: ConnectionId, zxid: i64) {
        let needs = !self.second_site.durability().is_empty() && self.has_second_site();
        if needs && !self.sites.is_importing {
            self.hold(id, zxid);
        }
    }

    fn hold(&mut self, id: ConnectionId, zxid: i64) {
        let place = (self.applied.applying, zxid);
        if self.second_site.is_shared(place) {
            return;
        }
        self.clients.connections.hold(id, place);
        let connections = &self.clients.connections;
        let is_there = |id: ConnectionId| {
            connections.get(id).is_some_and(|connection| connection.phase != Phase::Closing)
        };
        self.second_site.hold(place, id, self.now.mono_us, is_there);
    }

    fn needs_second_site(&self, update: &Update<'_>) -> bool {
        let durability = self.second_site.durability();
        if durability.is_empty() || self.sites.is_importing || !self.has_second_site() {
            return false;
        }
        let mut is_needed = false;
        update.for_each_written(|path| is_needed |= durability.needs_two(path));
        is_needed
    }

    /// Whether there is another site that could have something.
    pub(super) fn has_second_site(&self) -> bool {
        if !self.has_sessions() {
            return self.sites.divided.has_second;
        }
        let tree = self.applied.partition.tree();
        let (Some(own), hub) = (tree.own_site(), tree.hub()) else { return false };
        let mut others = tree.known_sites().chain(hub).filter(|site| *site != own);
        others.any(|site| !tree.is_lost(site))
    }

    /// At the leader: another site says how much it has of this site's log.
    pub(super) fn other_site_has(&mut self, site: SiteId, shared: Shared) {
        // What is not in this log yet cannot be there.
        let is_divided = self.applied.placement.is_divided();
        let last = if is_divided { self.timeline.divided() } else { self.timeline.last() };
        let position = shared.position.min(last);
        if self.applied.partition.tree().listens_to(site) {
            self.is_shared_up_to(Shared { position, ..shared });
        }
    }

    /// Another site has so much of this site's log, as is known now.
    pub(super) fn is_shared_up_to(&mut self, shared: Shared) {
        if self.applied.placement.is_divided() {
            let known = &mut self.sites.divided.shared;
            let before = *known;
            known.position = before.position.max(shared.position);
            known.zxid = before.zxid.max(shared.zxid);
            if *known != before {
                self.share_with_partitions(shared.position);
                self.learns_of_share(Shared { position: 0, ..shared });
                self.tell_shared();
            }
        } else if self.second_site.learns(shared) {
            self.let_held_go();
            self.tell_shared();
        }
    }

    /// Another site has so much of this partition's timeline.
    pub(super) fn learns_of_share(&mut self, shared: Shared) {
        if self.second_site.learns(shared) {
            self.let_held_go();
        }
    }

    fn let_held_go(&mut self) {
        while let Some(id) = self.second_site.next_shared() {
            let second_site = &self.second_site;
            let sent = self.clients.connections.let_go(id, |place| second_site.is_shared(place));
            for HeldReply { opcode, zxid, arrived_us, .. } in sent {
                self.count_reply(id, opcode, zxid, arrived_us);
            }
            // The end of its session may have waited for that.
            self.drain(id);
        }
        self.resume_congested();
    }

    /// At the leader: tells the other servers of this site how much another site has. What is lost on the way, or came
    /// before a server has known that it needs it, comes once more with the next heartbeat. Each server tells the readers
    /// below it.
    pub(super) fn tell_shared(&mut self) {
        let is_divided = self.applied.placement.is_divided();
        let shared = if is_divided { self.sites.divided.shared } else { self.second_site.shared() };
        let is_of_use = !self.second_site.durability().is_empty() && shared != Shared::default();
        if !is_of_use {
            return;
        }
        let message = PeerMessage::Shared { term: self.timeline.term(), shared }.encode();
        self.timeline.tell_all_readers(message.clone());
        if self.timeline.lead() != Lead::Active {
            return;
        }
        for to in self.timeline.member_ids() {
            if to != self.config.server_id {
                self.timeline.send(to, message.clone());
            }
        }
    }

    /// Clients that have waited for too long are let go. Nobody waits where the operator has taken it back, or where
    /// there is no other site any more.
    pub(super) fn tend_held(&mut self) {
        self.tell_durability();
        if self.second_site.oldest_us().is_none() {
            return;
        }
        if (self.second_site.durability().is_empty() || !self.has_second_site())
            && self.second_site.needs_nobody()
        {
            self.let_held_go();
        }
        let since_us = self.now.mono_us.saturating_sub(WAIT_US);
        while let Some(connection) = self.second_site.next_late(since_us) {
            self.close(connection, CloseReason::SiteAway);
        }
    }

    /// When an answer will have waited for too long.
    pub(super) fn next_held_end_us(&self) -> Option<u64> {
        self.second_site.oldest_us().map(|since_us| since_us + WAIT_US)
    }

    /// Answers of clients of this server that wait until another site has what they are about.
    pub(super) fn held_answers(&self) -> u64 {
        let is_there = |id: &ConnectionId| {
            let connection = self.clients.connections.get(*id);
            connection.is_some_and(|connection| connection.phase != Phase::Closing)
        };
        self.second_site.waiting().filter(is_there).count() as u64
    }

    /// Whether a request ends a session, and has to wait until what its client has asked before is answered: else its
    /// connection would end before those answers.
    #[inline]
    pub(super) fn has_to_end_later(&self, id: ConnectionId, opcode: Opcode) -> bool {
        let waits = |connection: &Connection| connection.is_held() || !connection.slots().is_empty();
        opcode == Opcode::CloseSession
            && !self.second_site.durability().is_empty()
            && self.clients.connections.get(id).is_some_and(waits)
    }
}

/// Whether a request ends a session.
pub(super) fn ends_session(frame: &[u8]) -> bool {
    RequestHeader::decode(&mut Reader::new(frame)).is_ok_and(|it| it.opcode == Opcode::CloseSession as i32)
}
