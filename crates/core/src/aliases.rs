//! What clients are told of by other names than it has.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use stoa_partition::FAILURE_PATH;

/// Names of watches that clients know by other paths than what is watched: by the path, what it is known as.
pub(crate) type Aliases = BTreeMap<Box<str>, BTreeSet<Box<str>>>;

/// Why the last request of a connection failed, if it is what is asked for.
pub(crate) fn failure_of<'a>(path: &str, failure: Option<&'a str>) -> Option<&'a str> {
    failure.filter(|_| path == FAILURE_PATH)
}
