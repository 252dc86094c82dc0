//! Subtrees that move between the partitions of a site, while it is one of several ([`crate::replica::moves`]).
//!
//! What is kept of znodes moves with them (`tree/src/sites/moved.rs`), and while something moves nothing is proposed on any
//! partition that is not applied everywhere: so what is prepared, imported and shared out is always of one table, on all
//! partitions. What is left is on its way between partitions, or between sites:
//!
//! - **What the first partition asks of another one, of something at a path.** It says by which table. Who knows an older
//!   one waits until it has that, too; who knows a newer one, by which that lives elsewhere, gives it back.
//! - **Requests of clients that are carried out elsewhere, or later.** Each has the number of the partition that it was
//!   asked of, whose client is told there, whatever has moved since. Where it is carried out here, that is an operation,
//!   of which the first partition tells; where another site has done so, the partition that has the znode does.

use crate::replica::Replica;
use crate::replica::request::is_of_one_znode;
use crate::replica::site_partitions::path_of;
use crate::site_news::{SiteNews, TicketOutcome, TicketReply};
use alloc::boxed::Box;
use bytes::Bytes;
use stoa_front::{CloseReason, Connection, ConnectionId, Slot};
use stoa_group::Entry;
use stoa_partition::{Answer, Asked, Item, Outcome, end_of, partition_of_number, ticket_of, update_in};
use stoa_placement::FIRST;
use stoa_timeline::{Origin, Slices};
use stoa_tree::{SiteId, SiteStep, Ticket, TokenRefusal};
use stoa_wire::{ErrorCode, Opcode, Reader, Request, RequestHeader, Timestamp, path};

impl Replica {
    /// Each partition knows who holds the root, and what is split.
    pub(super) fn give_known_token(&mut self, path: &str, holder: SiteId) -> Result<(), TokenRefusal> {
        let tree = self.applied.partition.tree();
        let is_here = tree.may_write(path) && tree.own_site().is_some();
        let going =
            self.leader.coordination.operations.iter().find_map(|it| match Asked::decode(&it.asked) {
                Ok(Asked::SiteStep(SiteStep::Token { path: given, holder, .. })) if given == path => {
                    Some(holder)
                }
                _ => None,
            });
        match going {
            Some(to) if to == holder => return Ok(()),
            None if is_here => {}
            _ => return Err(TokenRefusal::NotHeld),
        }
        self.operate(None, &SiteStep::Token { path, holder, is_home: false });
        Ok(())
    }

    /// The token of something that is split was to go to a site, on all partitions. If nothing is there any more, what is
    /// above it is held with what it was asked for.
    pub(super) fn token_is_refused(&mut self, path: &str, to: SiteId, code: ErrorCode) {
        let above = path::split(path).filter(|_| code == ErrorCode::NoNode);
        if above.is_some_and(|(parent, _)| self.hand_token(parent, to).is_ok()) {
            return;
        }
        let refused = match code {
            ErrorCode::NoChildrenForEphemerals => TokenRefusal::Ephemeral,
            _ => TokenRefusal::NotHeld,
        };
        match self.has_sessions() {
            true => self.was_given(path, to, Err(refused)),
            false => self.tell_news(FIRST, SiteNews::Given(path.into(), to, Err(refused))),
        }
    }

    /// Whether what is asked of this partition is about something that lives elsewhere since.
    pub(super) fn is_about_what_moved(&self, placed: u64, news: &SiteNews) -> bool {
        if placed == self.applied.placement.version() {
            return false;
        }
        match news {
            SiteNews::Try(_) => true,
            SiteNews::Give(path, _)
            | SiteNews::Bring(path, _)
            | SiteNews::Return(path, _)
            | SiteNews::GiveRead(path, _) => self.applied.placement.of(path) != self.config.partition,
            _ => false,
        }
    }

    /// At the first partition: another one has given back what was asked of it.
    pub(super) fn is_asked_elsewhere(&mut self, news: SiteNews) {
        match news {
            SiteNews::Try(it) => self.is_to_be_looked_at(it.origin),
            SiteNews::Give(path, to) => self.was_given(&path, to, Err(TokenRefusal::NotHeld)),
            SiteNews::Bring(path, to) => self.bring(&path, to),
            // It is asked for once more.
            SiteNews::Return(path, _) => drop(self.sites.divided.asked_back.remove(&path)),
            SiteNews::GiveRead(path, to) => self.give_read_tokens(&path, to),
            _ => {}
        }
    }

    /// At the first partition: whether the client of a request of this site asks a partition that has nothing to do with it
    /// any more, as it is to be carried out on this one.
    pub(super) fn has_moved_since(&self, origin: Origin, at: u8) -> bool {
        self.asker_of(Some(origin)).is_some_and(|asker| asker != at)
    }

    /// The partition whose client has asked for what came by way of this very site.
    pub(super) fn asker_of(&self, origin: Option<Origin>) -> Option<u8> {
        let own = self.applied.partition.tree().own_site();
        let origin = origin.filter(|origin| Some(origin.site) == own)?;
        Some(partition_of_number(origin.request, self.applied.placement.partitions()))
    }

    /// What a client has asked behind a write, in its turn, which has come by an older table. What it asks last goes back
    /// to its front; but what it has asked behind this may be carried out elsewhere, and answered here. Returns whether
    /// it is to be carried out here all the same.
    pub(super) fn is_asked_here(&mut self, id: ConnectionId, frame: &[u8]) -> bool {
        // Where there are sites, the outcomes of both may have come with one entry.
        let queue = self.clients.connections.get(id).map(Connection::slots).filter(|_| self.is_of_sites());
        let is_answered =
            queue.is_some_and(|queue| queue.iter().any(|slot| matches!(slot, Slot::Answer { .. })));
        if !is_answered && !self.has_forwarded(id) {
            self.send_back(id, frame.into());
            return false;
        }
        let mut reader = Reader::new(frame);
        let opcode = RequestHeader::decode(&mut reader).ok().and_then(|it| Opcode::from_i32(it.opcode));
        let opcode = opcode.filter(|opcode| is_of_one_znode(*opcode));
        let request = opcode.and_then(|opcode| Request::decode(opcode, &mut reader).ok());
        let is_here =
            request.is_some_and(|it| self.applied.placement.of(path_of(&it)) == self.config.partition);
        if !is_here {
            self.close(id, CloseReason::LeaderChanged);
        }
        is_here
    }

    /// Of something that another site has done for a client of this one: which partition tells that client's, since what
    /// it is about has moved to it.
    pub(super) fn is_told_by(&self, item: &Item<'_>) -> Option<u8> {
        let placement = &self.applied.placement;
        let has_moved = self.sites.is_importing && placement.is_divided() && placement.version() > 0;
        let ticket = ticket_of(item.origin).filter(|_| has_moved)?;
        let tree = self.applied.partition.tree();
        let update = update_in(item).filter(|_| tree.own_site() == Some(ticket.site))?;
        let is_said = match item.outcome {
            Outcome::Ran(ran) => matches!(ran.record().answer, Answer::Reply { .. }),
            _ => update.is_multi(),
        };
        let mut about = None;
        update.for_each_operation(|operation| about = about.or(Some(operation))).ok()?;
        let about = about.filter(|_| !is_said)?;
        let path = about.path?;
        let is_at_cut = about.name == "delete" || about.name.starts_with("create");
        let (at, asker) = (placement.of(path), partition_of_number(ticket.number, placement.partitions()));
        let has_parent = is_at_cut && placement.of_parent(path) == asker;
        (at != asker && !has_parent).then_some(at)
    }

    /// The number of the request whose client is told by this partition what it comes to.
    pub(super) fn number_to_tell(&self, told_by: Option<u8>, item: &Item<'_>) -> Option<u64> {
        let is_news = |item: &Item<'_>| {
            update_in(item).is_some_and(|update| !self.applied.partition.tree().has_come(&update))
        };
        told_by.filter(|by| *by == self.config.partition && is_news(item))?;
        ticket_of(item.origin).map(|ticket| ticket.number)
    }

    /// What another site has done for a client of another partition is applied, with what that is told.
    pub(super) fn tell_moved_asker(&mut self, number: u64, body: &[u8]) {
        let own = self.config.partition;
        let mut seen = self.stamp_by_now();
        seen.raise(own, end_of(self.applied.applying));
        let reply = TicketReply::DoneElsewhere(Bytes::copy_from_slice(body));
        let outcome = TicketOutcome { number, seen, parts: 1 << own, reply };
        let asker = partition_of_number(number, self.applied.placement.partitions());
        self.tell_news(asker, SiteNews::Outcome(Box::new(outcome)));
    }

    /// At the first partition: what follows an entry of the log.
    pub(super) fn seen_with(&self, entry: &Entry) -> Timestamp {
        let mut seen = self.applied.stamp.clone();
        for (partition, position, _) in Slices::new(entry.payload.clone()).map_while(Result::ok) {
            seen.raise(partition, end_of(position));
        }
        seen
    }

    /// At the first partition: what another one has said of a request that it was not asked, and that changes nothing.
    pub(super) fn tell_whom_it_was_asked(&mut self, item: &Item<'_>, seen: &Timestamp) {
        let (placement, tree) = (&self.applied.placement, self.applied.partition.tree());
        let is_own = |ticket: &Ticket| placement.version() > 0 && tree.own_site() == Some(ticket.site);
        let Some(ticket) = ticket_of(item.origin).filter(is_own) else { return };
        let asker = partition_of_number(ticket.number, placement.partitions());
        let reply = match item.outcome {
            Outcome::Refused(refusal) => TicketReply::Refused(refusal),
            Outcome::Failed(code, text) => TicketReply::Failed(code, text.into()),
            Outcome::Untaken => TicketReply::Untaken,
            _ => return,
        };
        let outcome = TicketOutcome { number: ticket.number, seen: seen.clone(), parts: 0, reply };
        self.tell_news(asker, SiteNews::Outcome(Box::new(outcome)));
    }
}
