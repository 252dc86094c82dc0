//! Several data centres, one tree: which site holds the right to write what.
//!
//! The right to write a znode is its *token*, and the site that has it the *holder*. One site is the *hub*: what a site
//! does not hold it asks of the hub, which has the token, or has it returned (a *recall*), or has the request carried
//! out by the holder (a *visit*). After each such access a [`Policy`] decides where the token is to be next. It knows
//! names of znodes, sites and times, and nothing of what is in a tree; `docs/models.md` says why it decides as it does.
//!
//! - [`Sites`] are the sites with their round trips to the hub.
//! - [`Policy`] takes [`Access`]es and gives [`Decision`]s.
//! - [`Rules`] are what an operator says of it.
//! - [`Durability`] is what an operator says of how many sites have to have a change before it is answered.
#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod budget;
mod decision;
mod durability;
mod groups;
mod odds;
mod paths;
mod policy;
mod rules;
mod settled;
mod site;
mod table;

pub use decision::{Access, Decision, Kind, Next, Settings};
pub use durability::Durability;
pub use paths::{is_at_or_below, is_movable, upward};
pub use policy::{Policy, Usage};
pub use rules::{Rule, Rules};
pub use site::{SITES_MAX, Site, Sites, TooManySites};
