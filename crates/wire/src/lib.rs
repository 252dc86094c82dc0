//! ZooKeeper's wire format: frames, records, opcodes and error codes.
//!
//! Encode and decode only: no sockets, no state. Decoding borrows from the frame and never panics,
//! whatever the bytes are; every length is checked against what is really there before it is used,
//! so a frame cannot make us allocate more than a small multiple of its own size.
//!
//! The format is that of Apache ZooKeeper 3.9 (its records are the same in 3.5 to master):
//! a frame is a big-endian `i32` length and that many bytes; records are "jute": integers
//! big-endian, buffers and strings with an `i32` length (-1 is null), vectors with an `i32` count.
#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod acl;
mod codec;
mod direct;
mod error;
mod frame;
mod handshake;
mod multi;
mod opcode;
pub mod path;
mod placement;
mod reply;
pub mod request;
mod stat;
mod timestamp;

pub use acl::{Acl, AclList, OPEN_ACL, READ_ACL, perms};
pub use codec::{DecodeError, Reader, put};
pub use direct::{
    ELSEWHERE, Offer, PREAMBLE, SideHello, Stamped, TAG_LEN, Table, answer_side, ask_direct, asks_direct,
    direct_op, direct_xid, side_answer, stamp_of,
};
pub use error::ErrorCode;
pub use frame::{FrameError, Split, begin_frame, end_frame, next_frame};
pub use handshake::{ConnectRequest, ConnectResponse, PASSWORD_LEN};
pub use multi::{MultiHeader, MultiOps, MultiResult, MultiResults};
pub use opcode::Opcode;
pub use placement::{partition_of, partition_of_top, without_number};
pub use reply::{EventKind, KeeperState, ReplyHeader, WatcherEvent};
pub use request::{
    AddWatchMode, Create, CreateMode, Reconfig, Request, RequestHeader, SetWatches, StrList, WatcherKind, xid,
};
pub use stat::Stat;
pub use timestamp::{Timestamp, ZXID_MAX};
