//! What a tree knows of the others that together with it are one tree, each of a partition.
//!
//! Who reads how a tree works by itself need know this of it: a node may be *absent*, that is no znode but a name
//! ([`Node::is_absent`](crate::node::Node::is_absent)), and the znode at a path may be *away*, on another partition
//! ([`Presence`](crate::proposed::Presence)). Where there is one partition, neither ever is. The rest of the crate
//! comes here for no more than this:
//!
//! - kinds of updates ([`PartitionOp`]): bytes, what they change, and carrying them out (`apply_partition_op`);
//! - deleting a znode whose parent is away, as the end of a session does (`delete_at_cut`);
//! - where a znode will be (`presence`), whether a session may be live that is not known here (`may_live`), and
//!   whether it may own a znode here (`check_owner`);
//! - state: in the tree ([`Partitions`]), in a session (`visited`), and what of it is proposed ([`Outstanding`]);
//! - records of snapshots ([`write_absent`], [`write_visits`], `write_placed`, `read_of_partitions`), and what has to
//!   hold of what was read (`check_loaded_cut`).
//!
//! All else of it is private, or what whoever leads all partitions calls: [`PartOp`], [`Placed`], [`MovedWatch`].
//!
//! | file | what stands there |
//! | --- | --- |
//! | `cut` | a znode and its parent on two partitions, by `absent` nodes |
//! | `ops`, `apply` | kinds of updates, and carrying them out |
//! | `step`, `presence` | preparing what concerns several partitions |
//! | `moves`, `content`, `quotas`, `watches` | subtrees that move, and what goes with them |
//! | `placed` | the table of what lives elsewhere than the rule says |
//! | `sessions` | sessions that own something on several partitions |
//! | `tree`, `state`, `outstanding` | what is kept of all this, applied and proposed |
//! | `records`, `snapshot` | what a snapshot says of it |

mod absent;
mod apply;
mod content;
mod cut;
mod moves;
mod ops;
mod outstanding;
mod placed;
mod presence;
mod quotas;
mod records;
mod sessions;
mod snapshot;
mod state;
mod step;
mod tree;
mod watches;

pub use moves::Moving;
pub(crate) use ops::PartitionOp;
pub(crate) use outstanding::Outstanding;
pub use placed::{PLACED_MAX, PLACED_PATH_BYTES_MAX, Placed};
pub(crate) use records::{write_absent, write_visits};
pub(crate) use state::Partitions;
pub use step::{PartOp, PartResult};
pub use watches::MovedWatch;
