//! Directories of which nothing more is learnt from a site that comes again: who has used one alone for long is expected to
//! come again as surely as can be put down, and one access more changes nothing of what is remembered. That is so of most
//! accesses, and finding it out takes a lookup for each level of the path. So it is noted for some directories.

use crate::Site;

/// So many directories are noted: a power of two.
const NOTED: usize = 64;
/// So often it is gone by a note: then everything is looked up once more, so that the table does not take the directory for
/// one that nobody uses.
const USES: u8 = 64;

/// A directory, by its hash, in which a site settles nothing more.
#[derive(Debug, Clone, Copy, Default)]
struct Note {
    directory: u64,
    site: u8,
    /// How often it may still be gone by; 0 of no note.
    uses: u8,
    /// The table's version for which it counts.
    version: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Settled {
    notes: [Note; NOTED],
    /// How often an access was one of which nothing is learnt.
    passed: u64,
}

impl Settled {
    pub(crate) fn new() -> Self {
        Self { notes: [Note::default(); NOTED], passed: 0 }
    }

    /// As long as the table has this version, an access of a site to something in a directory that it was the last to use
    /// changes nothing of what is remembered of that directory, and of those above it.
    pub(crate) fn note(&mut self, directory: u64, site: Site, version: u64) {
        self.notes[slot(directory)] = Note { directory, site: site.0, uses: USES, version };
    }

    /// Whether that is noted.
    pub(crate) fn is_noted(&mut self, directory: u64, site: Site, version: u64) -> bool {
        let note = &mut self.notes[slot(directory)];
        let is_one =
            note.uses > 0 && (note.directory, note.site, note.version) == (directory, site.0, version);
        note.uses -= u8::from(is_one);
        self.passed += u64::from(is_one);
        is_one
    }

    /// How often that was so.
    #[cfg(test)]
    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }
}

fn slot(directory: u64) -> usize {
    directory as usize % NOTED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_counts_until_something_changes_and_not_for_ever() {
        let mut settled = Settled::new();
        assert!(!settled.is_noted(0, Site(0), 0), "nothing is noted in the beginning");
        settled.note(7, Site(1), 3);
        assert!(settled.is_noted(7, Site(1), 3) && !settled.is_noted(7, Site(1), 4));
        assert!(!settled.is_noted(7, Site(2), 3) && !settled.is_noted(7 + NOTED as u64, Site(1), 3));
        settled.note(7, Site(1), 4);
        assert_eq!((0..200).filter(|_| settled.is_noted(7, Site(1), 4)).count(), usize::from(USES));
    }
}
