//! What all clients know together: what there is, and what any of them was told.

use super::plan::Plan;
use super::witness::programs::Books;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use stoa_core::Placement;

/// The newest version of each znode that somebody knows of.
pub(super) type Known = BTreeMap<usize, i32>;

/// What there is: a plain znode and one of the group for each partition. All of the group are only ever written
/// together.
pub(super) struct Board {
    pub(super) tops: Vec<String>,
    /// Programs of the service work below the plain znodes.
    pub(super) has_programs: bool,
    /// Nobody waits for answers.
    pub(super) is_impatient: bool,
    /// A write may be refused for lack of room, and the next be carried out because there is some again.
    pub(super) skips_writes: bool,
    /// The client that makes what everybody writes to.
    pub(super) founder: usize,
    /// What everybody writes to is there.
    pub(super) is_founded: Cell<bool>,
    /// The newest version of each znode that was acknowledged to anybody.
    pub(super) newest: RefCell<Known>,
    /// What programs did.
    pub(super) books: RefCell<Books>,
}

impl Board {
    pub(super) fn new(plan: &Plan, founder: usize) -> Self {
        let partitions = plan.life.config.partitions;
        let placement = Placement::new(partitions);
        let names = || (0..).map(|number| format!("/top-{number}"));
        let top = |of| names().find(|name| placement.of(name) == of).unwrap_or_default();
        Self {
            tops: (0..partitions).map(top).collect(),
            has_programs: plan.programs,
            is_impatient: plan.impatient,
            skips_writes: plan.life.faults.disk_full_ms > 0,
            founder,
            is_founded: Cell::new(false),
            newest: RefCell::default(),
            books: RefCell::default(),
        }
    }

    /// What may be moved: mostly what is written to all the time.
    pub(super) fn movable(&self) -> Vec<String> {
        let used = (0..2 * self.count()).flat_map(|index| [self.path(index), self.path(index)]);
        used.chain((0..3).map(|number| format!("/t-{number}"))).collect()
    }

    pub(super) fn count(&self) -> usize {
        self.tops.len()
    }

    /// Paths below `count` are plain, those above it the group's, and above those the counters'.
    pub(super) fn path(&self, index: usize) -> String {
        let top = &self.tops[index % self.count()];
        match index / self.count() {
            0 => top.clone(),
            1 => format!("{top}/group"),
            _ => format!("{top}/counter"),
        }
    }

    pub(super) fn counter(&self, top: usize) -> usize {
        2 * self.count() + top
    }

    pub(super) fn index(&self, path: &str) -> Option<usize> {
        (0..2 * self.count()).find(|index| self.path(*index) == path)
    }

    pub(super) fn is_group(&self, index: usize) -> bool {
        self.group().contains(&index)
    }

    pub(super) fn group(&self) -> std::ops::Range<usize> {
        self.count()..2 * self.count()
    }

    /// Somebody was told that there is this version.
    pub(super) fn acknowledge(&self, index: usize, version: i32) {
        let mut newest = self.newest.borrow_mut();
        let known = newest.entry(index).or_insert(version);
        *known = version.max(*known);
    }

    /// The newest version of a znode that was acknowledged.
    pub(super) fn floor(&self, index: usize) -> i32 {
        self.newest.borrow().get(&index).copied().unwrap_or(0)
    }
}
