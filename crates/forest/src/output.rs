//! What is to be done.

use crate::frame::{Acknowledgement, Place};
use alloc::vec::Vec;
use bytes::Bytes;

/// What a [`crate::Relay`] or a [`crate::Spreader`] wants done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// This frame goes to that server. What cannot be sent, or would have to wait behind more than
    /// [`crate::BACKLOG_BYTES_MAX`] for a server that reads slowly, is dropped: nobody waits for it, and it asks for what it
    /// lacks.
    Send {
        /// Whom it is for.
        to: u8,
        /// The frame, encoded. Many servers are given the same bytes.
        frame: Bytes,
    },
    /// From a relay: this append goes to the consensus engine, in the leader's name. Then the relay has to be told how
    /// far the log goes ([`crate::Relay::has`]), whatever the engine made of it.
    Deliver {
        /// The leader's term.
        term: u64,
        /// Where the append stands. It follows on what this server has; some of it may be there already.
        place: Place,
        /// The append.
        body: Bytes,
    },
    /// From a relay: this much is committed, and this server has it. Give the engine an append without entries behind this
    /// position, made from the own log, in the leader's name. It is no more than what [`crate::Relay::has`] says is the
    /// leader's log, which a heartbeat to everybody must not exceed either.
    Committed {
        /// The leader's term.
        term: u64,
        /// The last position that is.
        position: u64,
    },
    /// From a relay: the leader of this term asks who is still in it. Whoever is says so with [`crate::Relay::heard`].
    Heard {
        /// The leader's term.
        term: u64,
        /// Which time it asks.
        round: u64,
    },
    /// Somebody asks for entries that this server has: send a [`crate::Pulled`] with an append of them, made from the
    /// log, or of the first of them. Where they are not kept any more nothing is sent; who asks tries others.
    Asked {
        /// Who asks.
        by: u8,
        /// In which term.
        term: u64,
        /// Those behind this position.
        after: u64,
        /// The last one that is wanted.
        upto: u64,
    },
    /// From the leader: these are durable there, in the leader's term. Whoever counts them has to know the disks.
    Acknowledged(Vec<Acknowledgement>),
    /// From the leader: there is a later one.
    Newer {
        /// Its term.
        term: u64,
        /// Who it is.
        leader: u8,
    },
}
