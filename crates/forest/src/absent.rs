//! Who is aside.

use crate::ids::Ids;
use crate::limits::Limits;
use crate::shape::Shape;
use alloc::collections::BTreeMap;

/// How many children have to complain about a server, where it has that many (as in Rapid: one alone may be cut off
/// itself).
const COMPLAINTS: usize = 2;

/// How long a server was aside last.
#[derive(Debug, Clone, Copy)]
struct Wait {
    wait_us: u64,
    until_us: u64,
}

/// Whom the leader keeps from being an interior: those whose connection has ended, and those about whom their children
/// complain.
#[derive(Debug, Default)]
pub(crate) struct Absent {
    waits: BTreeMap<u8, Wait>,
    /// When each child has complained about its parent last, by tree, parent and child.
    complaints: BTreeMap<(u8, u8, u8), u64>,
    /// When each server has complained last of a tree, by both.
    complainers: BTreeMap<(u8, u8), u64>,
}

impl Absent {
    /// All who are aside now.
    pub(crate) fn aside(&self, gone: &Ids, now_us: u64) -> Ids {
        let mut aside = *gone;
        aside.extend(self.waits.iter().filter(|(_, wait)| wait.until_us > now_us).map(|(id, _)| *id));
        aside
    }

    /// Somebody hears nothing in a tree, whoever its parent is.
    pub(crate) fn hears_nothing(&mut self, tree: u8, by: u8, now_us: u64) {
        self.complainers.insert((tree, by), now_us);
    }

    /// A child says that nothing comes down a tree from its parent. Whether the parent is put aside for it.
    ///
    /// Who has complained of the same tree itself is not: it hears nothing either, so the blame is further up.
    pub(crate) fn complain(
        &mut self,
        (tree, by, about): (u8, u8, u8),
        (shape, gone): (&Shape, &Ids),
        now_us: u64,
        limits: &Limits,
    ) -> bool {
        if shape.parent(tree, by) != Some(about) {
            return false;
        }
        self.complaints.insert((tree, about, by), now_us);
        let is_recent = |at_us: Option<&u64>| {
            at_us.is_some_and(|at_us| now_us.saturating_sub(*at_us) <= limits.complaints_us)
        };
        let aside = self.aside(gone, now_us);
        let children = || shape.children(tree, about).iter();
        let said = |child: &&u8| is_recent(self.complaints.get(&(tree, about, **child)));
        let complaining = children().filter(said).count();
        // One that is dead or frozen itself will not say anything.
        let living = children().filter(|child| !aside.contains(**child)).count();
        // Half of all at most: where more seem to be bad, it is something else that is.
        let servers = shape.servers();
        let bad = aside.iter().filter(|id| servers.contains(*id)).count();
        let excused = is_recent(self.complainers.get(&(tree, about))) || 2 * (bad + 1) > servers.len();
        let is_enough = complaining >= COMPLAINTS.min(living).max(1);
        if is_enough && !excused {
            self.put_aside(about, now_us, limits);
        }
        is_enough && !excused
    }

    /// From now on, for longer each time.
    pub(crate) fn put_aside(&mut self, id: u8, now_us: u64, limits: &Limits) {
        let again = |wait: &Wait| now_us < wait.until_us + limits.aside_max_us;
        let wait_us = match self.waits.get(&id).filter(|wait| again(wait)) {
            Some(wait) => (2 * wait.wait_us).min(limits.aside_max_us),
            None => limits.aside_us,
        };
        self.waits.insert(id, Wait { wait_us, until_us: now_us + wait_us });
    }

    /// There is another shape. A complaint counts in it as well where the way down the tree is the same, as several may be
    /// bad at once; where it is another one nothing can be said yet.
    pub(crate) fn reshape(&mut self, before: &Shape, after: &Shape, now_us: u64, limits: &Limits) {
        let since_us = now_us.saturating_sub(limits.complaints_us);
        self.complainers.retain(|_, at_us| *at_us >= since_us);
        self.complaints
            .retain(|(tree, _, by), at_us| *at_us >= since_us && after.has_way(before, *tree, *by));
    }
}
