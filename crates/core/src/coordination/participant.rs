//! For whom a partition is quiesced, and what it has prepared for them.

use stoa_timeline::EntryId;
use stoa_tree::Part;

/// For whom a partition is quiesced.
pub(crate) struct Participation {
    pub(crate) coordinator: u8,
    pub(crate) op: u64,
    pub(crate) place: EntryId,
    /// What is prepared of it, and the zxid of that.
    pub(crate) part: Option<(Part, i64)>,
    /// Its part is written: it goes on when that is applied.
    pub(crate) is_written: bool,
}

impl Participation {
    pub(super) fn has_open_part(&self) -> bool {
        self.part.is_some()
    }

    pub(crate) fn is_written(&self) -> bool {
        self.is_written
    }
}
