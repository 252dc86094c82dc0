//! What the lock protects. It trusts nobody: who comes in shows a token.

use hdrhistogram::Histogram;
use stoa_client::recipes::Token;

use crate::bench::clock::Nanos;
use crate::bench::record::latency_histogram;

/// Sees who is inside, and how it is handed over.
#[derive(Debug)]
pub(super) struct Resource {
    /// The largest token that was shown.
    largest: Option<Token>,
    /// Who is inside, by number.
    inside: Vec<usize>,
    /// When the one who was inside last began to give the lock back.
    left: Option<Nanos>,
    /// How often somebody came in while another one was inside, or with a token that is not larger than the largest.
    pub(super) violations: u64,
    /// From when one begins to give the lock back until one knows that it has it who wanted it before.
    pub(super) handovers: Histogram<u64>,
}

impl Resource {
    pub(super) fn new() -> Self {
        let handovers = latency_histogram();
        Self { largest: None, inside: Vec::new(), left: None, violations: 0, handovers }
    }

    /// Somebody who wanted the lock from `wanted` on has it, and says so with its token.
    pub(super) fn enter(&mut self, who: usize, token: Token, wanted: Nanos, now: Nanos) {
        if !self.inside.is_empty() || self.largest.is_some_and(|largest| token <= largest) {
            self.violations += 1;
        }
        self.largest = self.largest.max(Some(token));
        self.inside.push(who);
        // It was waited for, so nobody needed to come first.
        if let Some(left) = self.left.take().filter(|left| wanted < *left) {
            self.handovers.saturating_record(now.saturating_sub(left));
        }
    }

    /// Somebody is about to give the lock back.
    pub(super) fn leave(&mut self, who: usize, now: Nanos) {
        self.inside.retain(|inside| *inside != who);
        self.left = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_after_the_other_is_no_violation() {
        let mut resource = Resource::new();
        resource.enter(1, Token(5), 0, 10_000);
        resource.leave(1, 20_000);
        // It has waited.
        resource.enter(2, Token(6), 15_000, 25_000);
        resource.leave(2, 30_000);
        // It has come later, to a lock that was free.
        resource.enter(1, Token(9), 31_000, 40_000);
        assert_eq!((resource.violations, resource.handovers.len()), (0, 1));
        assert_eq!(resource.handovers.max() / 1000, 5);
    }

    #[test]
    fn two_inside_are_a_violation() {
        let mut resource = Resource::new();
        resource.enter(1, Token(5), 0, 1);
        resource.enter(2, Token(6), 0, 2);
        assert_eq!(resource.violations, 1);
        // The second one is still there.
        resource.leave(1, 3);
        resource.enter(3, Token(7), 0, 4);
        assert_eq!(resource.violations, 2);
    }

    #[test]
    fn tokens_that_do_not_grow_are_violations() {
        let mut resource = Resource::new();
        for (token, violations) in [(5, 0), (5, 1), (4, 2), (6, 2)] {
            resource.enter(1, Token(token), 0, 1);
            resource.leave(1, 2);
            assert_eq!(resource.violations, violations, "{token}");
        }
    }
}
