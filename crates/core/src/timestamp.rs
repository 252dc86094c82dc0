//! What somebody has seen: clients may carry it themselves, so it is a part of the protocol.

pub use stoa_wire::Timestamp;
