//! What differs on purpose is told to users.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use stoa_oracle::differences::DELIBERATE;

#[test]
fn every_deliberate_difference_is_on_the_page() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../COMPAT.md")).unwrap();
    for difference in DELIBERATE {
        let row = format!("| {} | {} |", difference.subject, difference.reason);
        assert!(page.lines().any(|line| line == row), "COMPAT.md lacks {row}");
    }
}
