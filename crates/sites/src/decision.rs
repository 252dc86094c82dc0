//! What a policy is asked, and what it answers.

use alloc::string::String;
use alloc::vec::Vec;

use crate::Site;

/// How a policy decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// By the expected cost of the next access.
    Expected,
    /// The paper's: to the site from which so many requests in a row came, and back to the hub when another one asks.
    Consecutive(u16),
    /// No token leaves the hub: what observers give.
    Hub,
}

/// What a policy is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How it decides.
    pub kind: Kind,
    /// So many objects and directories are remembered, 32 bytes each.
    pub entries: usize,
    /// Whether no site is made to pay for others more than what it gains.
    pub is_fair: bool,
    /// Whether directories move as a whole when what is in them behaves alike.
    pub has_units: bool,
    /// Whether what is used together moves together.
    pub has_groups: bool,
    /// A token is given to a site so often in a second at most. Beyond that it is at the hub.
    pub moves_per_second: u16,
    /// A token that a site has not used for so long returns if another one is likelier to be next, in milliseconds.
    pub idle_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            kind: Kind::Expected,
            entries: 1 << 16,
            is_fair: true,
            has_units: true,
            has_groups: true,
            moves_per_second: 16,
            idle_ms: 5000,
        }
    }
}

/// An access of an object that the hub sees: every one by a site that does not hold the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access<'a> {
    /// The znode whose token it needs.
    pub path: &'a str,
    /// Who asks.
    pub site: Site,
    /// Who has the token now.
    pub holder: Site,
    /// How often the holder has used it since it got it or last said so: it says so with a return and with what a visit
    /// came to.
    pub holder_uses: u32,
    /// When, in milliseconds of a clock that does not go back.
    pub at_ms: u64,
}

/// Where a token is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Where it is: at another leaf, the request visits it.
    Stay,
    /// At the hub: from another leaf it is recalled.
    Hub,
    /// At this site. From another leaf it is recalled, and granted behind the answer.
    Site(Site),
}

/// What is to become of a token after an access, and what goes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Where it is to be next.
    pub next: Next,
    /// The subtree that moves: so many bytes of the path's beginning. What goes is the znode itself, and all of the subtree
    /// that the same site holds and that has no mark of its own. When it is as long as the path, that is the znode with
    /// what is below it.
    pub subtree: usize,
    /// Other subtrees that move to the same site.
    pub along: Vec<String>,
}

impl Decision {
    /// A move of the znode alone, or none.
    pub(crate) fn of(path: &str, next: Next) -> Self {
        Self { next, subtree: path.len(), along: Vec::new() }
    }
}
