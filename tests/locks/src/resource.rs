//! What the lock protects. It trusts nobody: whoever comes in, or writes, shows a token.

use std::collections::BTreeMap;

use stoa_client::recipes::Token;

/// How somebody's turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It gave the lock back, and had it until then.
    Released,
    /// Its session had ended before.
    Lost,
    /// It let go of the lock without a look.
    Dropped,
}

/// A client that believes that it has the lock.
#[derive(Debug, Clone, Copy)]
struct Turn {
    token: Token,
    /// It works with what is protected, and has not said yet that it is done.
    is_inside: bool,
    /// Who came in with a larger token while it was inside.
    overtaken_by: Option<Token>,
}

/// Sees who is inside, and what is written.
#[derive(Debug)]
pub(crate) struct Resource {
    /// Whether tokens that are too small are refused.
    is_guarded: bool,
    turns: BTreeMap<usize, Turn>,
    largest: Option<Token>,
    /// The token of the last write that was taken.
    last: Option<Token>,
    /// How often somebody came in, by number.
    pub(crate) entries: BTreeMap<usize, u64>,
    pub(crate) writes: u64,
    /// How often somebody was refused.
    pub(crate) refused: u64,
    /// How often somebody came in while another one believed that it had the lock.
    pub(crate) overlaps: u64,
    /// What must not happen.
    pub(crate) complaints: Vec<String>,
}

impl Resource {
    pub(crate) fn new(is_guarded: bool) -> Self {
        Self {
            is_guarded,
            turns: BTreeMap::new(),
            largest: None,
            last: None,
            entries: BTreeMap::new(),
            writes: 0,
            refused: 0,
            overlaps: 0,
            complaints: Vec::new(),
        }
    }

    /// Somebody has the lock, and may come in, unless a later holder was here already.
    pub(crate) fn enter(&mut self, who: usize, token: Token) -> bool {
        if self.largest == Some(token) {
            self.complaints.push(format!("client {who} has token {token}, which another one had"));
        }
        let mut turn = Turn { token, is_inside: true, overtaken_by: None };
        match self.largest {
            Some(largest) if largest > token => turn.overtaken_by = Some(largest),
            _ => {
                for other in self.turns.values_mut().filter(|turn| turn.is_inside) {
                    self.overlaps += u64::from(other.overtaken_by.is_none());
                    other.overtaken_by.get_or_insert(token);
                }
                self.largest = Some(token);
            }
        }
        self.turns.insert(who, turn);
        let enters = self.takes(token);
        if enters {
            *self.entries.entry(who).or_default() += 1;
        }
        enters
    }

    /// Somebody who was let in writes.
    pub(crate) fn write(&mut self, who: usize, token: Token) -> bool {
        if !self.takes(token) {
            return false;
        }
        if let Some(last) = self.last.filter(|last| *last > token) {
            self.complaints.push(format!("client {who} wrote with token {token} after a write with {last}"));
        }
        self.last = Some(token);
        self.writes += 1;
        true
    }

    fn takes(&mut self, token: Token) -> bool {
        let is_late = self.largest.is_some_and(|largest| largest > token);
        self.refused += u64::from(is_late);
        !(self.is_guarded && is_late)
    }

    /// Somebody is done with what is protected, and is about to give the lock back. Says whether it was alone.
    pub(crate) fn leave(&mut self, who: usize) -> bool {
        let turn = self.turns.get_mut(&who);
        turn.is_some_and(|turn| {
            turn.is_inside = false;
            turn.overtaken_by.is_none()
        })
    }

    /// Somebody has seen what became of the lock that it had. Whoever was overtaken must have lost it before: who
    /// gives back what another one has been given meanwhile was not excluded by it.
    pub(crate) fn over(&mut self, who: usize, ending: Ending) {
        let Some(turn) = self.turns.remove(&who) else { return };
        if let (Some(other), Ending::Released) = (turn.overtaken_by, ending) {
            let token = turn.token;
            self.complaints.push(format!(
                "client {who} had the lock with token {token} all the while, and somebody came in with {other}"
            ));
        }
    }

    /// Somebody's process has ended.
    pub(crate) fn end(&mut self, who: usize) {
        self.turns.remove(&who);
    }

    /// How often somebody came in.
    pub(crate) fn entered(&self) -> u64 {
        self.entries.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_after_the_other_is_well() {
        let mut resource = Resource::new(true);
        for (who, token) in [(1, 5), (2, 6), (1, 9)] {
            assert!(resource.enter(who, Token(token)) && resource.write(who, Token(token)));
            assert!(resource.leave(who));
            resource.over(who, Ending::Released);
        }
        assert_eq!((resource.entered(), resource.writes, resource.overlaps), (3, 3, 0));
        assert_eq!(resource.complaints, [""; 0]);
    }

    #[test]
    fn a_holder_that_slept_through_the_end_of_its_session_is_refused() {
        let mut resource = Resource::new(true);
        assert!(resource.enter(1, Token(5)) && resource.enter(2, Token(6)));
        assert!(!resource.write(1, Token(5)) && resource.write(2, Token(6)));
        assert!(!resource.leave(1) && resource.leave(2));
        resource.over(1, Ending::Lost);
        // It slept before it came in.
        assert!(!resource.enter(3, Token(4)) && !resource.leave(3));
        resource.over(3, Ending::Lost);
        assert_eq!((resource.overlaps, resource.refused), (1, 2));
        assert_eq!(resource.complaints, [""; 0]);
    }

    #[test]
    fn a_holder_that_was_overtaken_must_have_lost_the_lock() {
        let mut resource = Resource::new(true);
        resource.enter(1, Token(5));
        resource.enter(2, Token(6));
        resource.leave(1);
        resource.over(1, Ending::Released);
        assert_eq!(resource.complaints.len(), 1);
        // Who has left before may take as long as it likes to give the lock back.
        resource.leave(2);
        resource.enter(3, Token(7));
        resource.over(2, Ending::Released);
        assert_eq!(resource.complaints.len(), 1);
        // As must who was refused at once.
        resource.enter(4, Token(6));
        resource.leave(4);
        resource.over(4, Ending::Released);
        assert_eq!(resource.complaints.len(), 2);
    }

    #[test]
    fn a_token_is_given_once() {
        let mut resource = Resource::new(true);
        resource.enter(1, Token(5));
        resource.leave(1);
        resource.enter(2, Token(5));
        assert_eq!(resource.complaints.len(), 1);
    }

    #[test]
    fn without_a_guard_late_writes_are_taken() {
        let mut resource = Resource::new(false);
        resource.enter(1, Token(5));
        resource.enter(2, Token(6));
        assert!(resource.write(2, Token(6)) && resource.write(1, Token(5)));
        assert_eq!(resource.complaints.len(), 1);
    }
}
