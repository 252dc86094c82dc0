//! Requests of a partition's own clients that are carried out elsewhere, or later.

use crate::site_news::UnderWay;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use bytes::Bytes;
use stoa_front::ConnectionId;

/// A client here that waits for the outcome of a request which has left.
#[derive(Debug, Clone)]
pub(crate) struct Forwarded {
    pub(crate) connection: ConnectionId,
    pub(crate) since_us: u64,
    /// What is asked, where another partition has what is replicated of it.
    pub(crate) asked: Bytes,
}

#[derive(Debug, Default)]
pub(crate) struct SiteRequests {
    /// By their numbers.
    pub(crate) forwarded: BTreeMap<u64, Forwarded>,
    /// Of each session, the requests that are proposed to go elsewhere, or to be done later (true), and are not applied.
    leaving: BTreeMap<i64, VecDeque<bool>>,
    /// At a partition other than the first, which has the streams: those that are applied and have no outcome.
    under_way: BTreeMap<u64, UnderWay>,
    of_session: BTreeMap<i64, BTreeSet<u64>>,
}

impl SiteRequests {
    /// A request of a session is proposed to leave.
    pub(crate) fn leaves(&mut self, session: i64, here: bool) {
        self.leaving.entry(session).or_default().push_back(here);
    }

    /// The oldest one of a session that was proposed to leave does.
    pub(crate) fn has_left(&mut self, session: i64) {
        if let Some(leaving) = self.leaving.get_mut(&session) {
            leaving.pop_front();
            if leaving.is_empty() {
                self.leaving.remove(&session);
            }
        }
    }

    /// Nothing is proposed any more.
    pub(crate) fn forget_leaving(&mut self) {
        self.leaving.clear();
    }

    /// Whether some session has proposed one.
    pub(crate) fn are_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Whether this one has.
    pub(crate) fn is_leaving(&self, session: i64) -> bool {
        self.leaving.contains_key(&session)
    }

    /// Of a session, whether each that is proposed is to be done here, later.
    pub(crate) fn leaving(&self, session: i64) -> impl Iterator<Item = bool> {
        self.leaving.get(&session).into_iter().flatten().copied()
    }

    /// One is on its way, as the first partition has it.
    pub(crate) fn begins(&mut self, request: UnderWay) {
        self.under_way.insert(request.number, request);
        self.of_session.entry(request.session).or_default().insert(request.number);
    }

    /// It has its outcome.
    pub(crate) fn ends(&mut self, number: u64) {
        let Some(UnderWay { session, .. }) = self.under_way.remove(&number) else { return };
        if let Some(numbers) = self.of_session.get_mut(&session) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.of_session.remove(&session);
            }
        }
    }

    /// Nobody else carries them out any more: all are to be done here.
    pub(crate) fn all_are_for_here(&mut self) {
        self.under_way.values_mut().for_each(|request| request.here = true);
    }

    /// None has begun, as far as is known.
    pub(crate) fn forget_under_way(&mut self) {
        self.under_way.clear();
        self.of_session.clear();
    }

    /// Whether none is on its way.
    pub(crate) fn none_is_under_way(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Of a session, whether each that is on its way is to be done here.
    pub(crate) fn under_way(&self, session: i64) -> impl Iterator<Item = bool> {
        let numbers = self.of_session.get(&session).into_iter().flatten();
        numbers.filter_map(|number| self.under_way.get(number)).map(|request| request.here)
    }

    /// Whether a client waits for what it has asked before the request with this number.
    pub(crate) fn has_earlier(&self, number: u64, connection: ConnectionId) -> bool {
        self.forwarded.range(..number).any(|(_, waiting)| waiting.connection == connection)
    }
}
