//! Bugs on purpose, in what a replica does: see [`crate::planted`].

use crate::connection::ConnectionId;
use crate::planted::Bug;
#[cfg(feature = "planted-bugs")]
use crate::planted::Planted;
use crate::replica::Replica;
use stoa_wire::ReplyHeader;

impl Replica {
    /// Where the output of a write's connection stands before its update is applied.
    #[inline]
    pub(crate) fn planted_mark(&self, writer: Option<ConnectionId>) -> usize {
        match writer {
            Some(id) if self.planted.is(Bug::ReplyBeforeEvent) => {
                self.clients.connections.get(id).map_or(0, |connection| connection.output.len())
            }
            _ => 0,
        }
    }

    /// Moves a reply that was just written before everything that was written since `mark`.
    #[inline]
    pub(crate) fn planted_swap(&mut self, id: ConnectionId, mark: usize, body_bytes: usize) {
        if self.planted.is(Bug::ReplyBeforeEvent)
            && let Some(connection) = self.clients.connections.get_mut(id)
            && let Some(written) = connection.output.get_mut(mark..)
        {
            let reply_bytes = 4 + ReplyHeader::LEN + body_bytes;
            written.rotate_right(reply_bytes.min(written.len()));
        }
    }
}

#[cfg(feature = "planted-bugs")]
impl Replica {
    /// What is planted here.
    pub(crate) fn planted(&self) -> Planted {
        self.planted
    }

    /// Plants a bug.
    pub fn plant(&mut self, bug: Bug) {
        self.planted.bug = Some(bug);
        self.applied.partition.planted = self.planted;
        let of_timeline = match bug {
            Bug::HalfIsEnough => stoa_timeline::Bug::HalfIsEnough,
            Bug::TakenTwice => stoa_timeline::Bug::TakenTwice,
            Bug::AskedAgainAtOnce => stoa_timeline::Bug::AskedAgainAtOnce,
            Bug::OutsiderIsHeard => stoa_timeline::Bug::OutsiderIsHeard,
            Bug::EmptiedStays => stoa_timeline::Bug::EmptiedStays,
            Bug::StrangerStays => stoa_timeline::Bug::StrangerStays,
            _ => return,
        };
        self.timeline.plant(of_timeline);
    }
}
