//! Operations over several partitions: all parts of one are in one entry of the log, where it says that they are.

use stoa_check::{Checked, Violation, wrong};
use stoa_core::{EntryId, Items, Outcome, Slices};
use stoa_group::{Entry, EntryKind};

/// Looks at an entry that a server with several partitions stores.
pub(super) fn check_places(partitions: usize, entry: &Entry) -> Checked {
    if entry.kind != EntryKind::Payload || entry.payload.is_empty() {
        return Ok(());
    }
    let slices: Result<Vec<_>, _> = Slices::new(entry.payload.clone()).collect();
    let slices = slices.map_err(|error| Violation::new(error.to_string()))?;
    for (partition, position, payload) in &slices {
        if usize::from(*partition) >= partitions {
            return wrong(format!("there is no partition {partition}"));
        }
        let Some(item) = Items::new(payload).next() else { continue };
        let Outcome::Part(part) = item.map_err(|error| Violation::new(error.to_string()))?.outcome else {
            continue;
        };
        let is_here = |place: &EntryId| {
            let stands = (place.partition, place.position);
            place.term == entry.term && slices.iter().any(|(of, at, _)| (*of, *at) == stands)
        };
        let is_own = |place: &EntryId| (place.partition, place.position) == (*partition, *position);
        if !part.places().any(|place| is_own(&place)) || !part.places().all(|place| is_here(&place)) {
            let places: Vec<_> = part.places().collect();
            return wrong(format!("not all parts of an operation are at {places:?}"));
        }
    }
    Ok(())
}
