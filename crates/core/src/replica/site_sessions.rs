//! Sessions that go from one site to another.

use crate::replica::Replica;
use bytes::Bytes;
use stoa_front::{CloseReason, ConnectionId};
use stoa_partition::{Asked, SiteItem};
use stoa_timeline::Origin;
use stoa_tree::{SiteId, SiteStep, Ticket};

impl Replica {
    /// Which site says what becomes of a session that is to go elsewhere.
    pub(super) fn home_for(&self, session: i64) -> SiteId {
        let tree = self.applied.partition.tree();
        let (own, hub, home) = (tree.own_site(), tree.hub(), tree.home_to_ask(session));
        // There may never have been such a site, or it was given up: what it had made alone is lost.
        let is_one = self.sites.outgoing.contains_key(&home) || self.knows_site(home);
        let may_know = Some(home) == hub || is_one && !tree.is_lost(home);
        own.filter(|_| own == hub && !may_know).unwrap_or(home)
    }

    /// A session's client is at another site than the session: that goes there, when its home has carried out what it has
    /// asked before.
    pub(super) fn take_coming(
        &mut self,
        ticket: Ticket,
        (origin, session, password): (Origin, i64, &[u8]),
        asked: &[u8],
    ) {
        let tree = self.applied.partition.tree();
        let (Some(own), Some(hub)) = (tree.own_site(), tree.hub()) else { return };
        let home = self.home_for(session);
        if own == hub && home != own && !self.sites.is_open(home) {
            // It may be about to take the state, which does not say what others are to do.
            return self.sites.broker.awaits(ticket, home, self.now.mono_us);
        }
        let is_busy =
            tree.streams().of_session(session).next().is_some() || self.sites.requests.is_leaving(session);
        if home == own && is_busy {
            return self.sites.broker.comes_later(session, ticket);
        }
        self.sites.broker.take_in_hand(ticket);
        let reign = tree.reign();
        if home == own && self.applied.placement.is_divided() {
            return self.operate(Some(origin), &SiteStep::Home { session, password, site: ticket.site });
        }
        let partition = &mut self.applied.partition;
        let number = ticket.number;
        match () {
            () if home == own => partition.propose_home(origin, session, password, ticket.site, self.now),
            () if own == hub => {
                partition.propose_site_item(Some(origin), &SiteItem::Visit { to: home, session: 0, asked });
            }
            () if ticket.site == own => {
                let server = origin.server;
                partition.propose_site_item(
                    None,
                    &SiteItem::Forwarded { server, number, reign, session: 0, asked },
                );
            }
            () => partition.propose_site_item(Some(origin), &SiteItem::Declined),
        }
    }

    /// Whether a session is judged by another site.
    pub(super) fn is_at_home_elsewhere(&self, session: i64) -> bool {
        let tree = self.applied.partition.tree();
        tree.own_site().is_some_and(|own| tree.home_to_ask(session) != own)
    }

    /// A session goes to a site. There its client, if it is still there, asks once more; where it was nobody speaks for it
    /// any more.
    pub(super) fn session_goes(
        &mut self,
        session: i64,
        to: SiteId,
        own: Option<ConnectionId>,
        asked: &Bytes,
    ) {
        if !self.has_sessions() {
            return;
        }
        if self.applied.partition.tree().own_site() != Some(to) {
            if let Some(left) = self.sessions.live.remove(session)
                && let Some(connection) = left.connection
            {
                self.close(connection, CloseReason::SessionMoved);
            }
            return;
        }
        let known = self.applied.partition.tree().session(session);
        let timeout_ms = known.map_or(0, |known| known.timeout_ms);
        // Also when its client is gone already: then it expires like any silent session.
        self.sessions.live.insert(session, timeout_ms, self.now);
        if let (Some(id), Ok(Asked::OpenSession { timeout_ms, password, .. })) = (own, Asked::decode(asked)) {
            let opening = self.timeline.next_request().request;
            if let Some(connection) = self.clients.connections.get_mut(id) {
                (connection.mode.opening, connection.mode.has_come) = (opening, true);
            }
            self.ask_for_session(id, false, session, timeout_ms, password);
        }
    }
}
