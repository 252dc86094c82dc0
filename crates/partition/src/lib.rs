//! One partition: its state, the entries of its timeline, and the programs that run in it.
//!
//! A [`Partition`] has its part of the tree, its watches and what is known of programs. At a leader it prepares what
//! is asked ([`Asked`]) against the state as it will be, and what comes of that are items of the entry under
//! construction; [`Partition::take_entry`] closes it, for the timeline. At every server [`Items`] are what a committed
//! entry holds. [`Restore`] puts the states of all partitions together from what a disk has: a snapshot and records.
//!
//! Nothing here knows connections, other servers or disks: time, requests and bytes are handed in.
#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod asked;
mod counts;
mod entry;
mod extensions;
mod outstanding;
mod partition;
mod restore;
mod share;
mod sites;
mod state;
mod step;
mod time;
mod whole;

pub use asked::{After, Asked, IDENTITIES_MAX};
pub use counts::{Histogram, Proposals, Sizes};
pub use entry::{Item, Items, Outcome, Part, Seen, part_places, put_site_item, put_told};
pub use extensions::{
    Answer, Extensions, FAILURE_PATH, NotProposed, ProgramLimits, ProgramStats, ProgramStep, Ran, Record,
    Registration, Watch, changes_programs, is_of_programs,
};
pub use partition::Partition;
pub use restore::{GoesOn, Recovered, Restore, note_whole};
pub use share::{ImportShare, divide_import, next_number, partition_of_number};
pub use sites::{
    Link, SiteItem, export, is_heeded, is_of_streams, made_in, note_at_partition, note_in_streams,
    note_joining, own_updates, ticket_of, update_in, zxid_beyond_lost,
};
pub use state::{Share, State, StateLoader, encode_standing};
pub use step::{end_of, entry_of, step_of};
pub use time::{Now, Stopwatch};
pub use whole::{WholeEntry, whole_entry};
