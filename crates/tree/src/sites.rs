//! What a tree knows of sites: ensembles in several data centres that have one tree together (*WanKeeper*, the
//! fourth paper that Stoa is made of).
//!
//! Every site has the whole tree, and applies what it prepares itself and what the others have prepared, which it
//! *imports*. For each znode there is one *token*, and one *holder* of it: only that site prepares what needs it
//! ([`tokens_of`]). One site is the *hub*, which holds whatever nobody else does. So two sites never change the same
//! thing at once, and all come to the same state though they apply things in different orders.
//!
//! **Where a token is** is said by marks of znodes. A mark says who holds the token of a znode and of all below it
//! that has no mark itself; the root is always marked. An update moves it ([`Tree::prepare_token`]): whoever gives it
//! away is no holder any more when that is prepared, who gets it is one when it is applied there. Updates of a site
//! are imported in its order, so the token comes behind everything that was done under it.
//!
//! **The token of a znode** is for its data, its ACL and what is created right below it: names, their numbers, the
//! count of them. Deleting needs the token of what is deleted and not that of its parent: which children there are
//! follows from the children, the count that clients see from how many were ever created, and pzxid is a maximum.
//! (The paper's prototype has a token for each path that an operation names, and none for the parent: two sites may
//! create under one parent there, and the counters of the two part for good.)
//!
//! **An ephemeral** is held by the *home* of its session, the site where its client is, for as long as it lives, and
//! so is the session itself. The end of a session is one update of its home, that of all its ephemerals with it. One
//! that was created elsewhere for the session and comes after that end is not there at all ([`ended`]).
//!
//! **zxids** name the site that made them, in their lowest bits. Who prepares takes one that is larger than all that
//! it has applied. What it imports may have a smaller one than what is there already, of something else: so of two
//! zxids the larger one need not be the later one here, and what clients wait for is compared with
//! [`Tree::last_prepared_zxid`]. See [`late`] for watches.
//!
//! Where there are no sites nothing of this costs anything: no byte of a znode, and an update asks once.
//!
//! | file | what stands there |
//! | --- | --- |
//! | `marks` | who holds what |
//! | `tokens` | what an operation needs |
//! | `ops` | kinds of updates, preparing and applying them |
//! | `import` | applying what another site has prepared |
//! | `divided` | what a partition knows because its site is divided |
//! | `share` | what of an import is a partition's own |
//! | `whole` | what this site has prepared, as if it were not divided |
//! | `join` | the state becomes the hub's |
//! | `read_tokens` | who reads what is newest without asking |
//! | `reign` | which site is the hub, and which are given up |
//! | `moved` | what moves with a subtree to another partition |
//! | `kept` | how much others have of a site that was given up |
//! | `ended` | sessions that have ended |
//! | `late` | znodes that were changed with zxids that clients had seen already |
//! | `level` | what all sites can read |
//! | `streams` | how far streams between sites have come, and requests on their way |
//! | `state`, `outstanding` | what is kept of all this, applied and proposed |
//! | `snapshot` | what a snapshot says of it |

mod divided;
mod ended;
mod import;
mod join;
mod kept;
mod late;
mod level;
mod marks;
mod moved;
mod names;
mod ops;
mod outstanding;
mod read_tokens;
mod reign;
mod share;
mod snapshot;
mod state;
mod streams;
mod tokens;
mod whole;

pub use divided::Places;
pub use kept::KeptZxids;
pub(crate) use late::Changed;
pub use level::{Levels, NewerLevel};
pub(crate) use moved::MovedOfSites;
pub(crate) use names::NO_SITE;
pub use names::{SITE_MAX, SiteId, SiteSet, Source, site_of_zxid, source_of_zxid};
pub(crate) use ops::SiteOp;
pub use ops::TokenRefusal;
pub(crate) use outstanding::{OutstandingTokens, TokenBefore};
pub use reign::Claim;
pub(crate) use snapshot::write_home;
pub(crate) use state::Sites;
pub use streams::{CarriedOut, SiteStanding, Streams, Ticket, Waiting};
pub use tokens::{LackedTokens, tokens_of};
pub use whole::{SiteStep, whole_update};
