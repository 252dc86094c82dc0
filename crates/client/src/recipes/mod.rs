//! Recipes: locks, elections, queues and the like, made of znodes.
//!
//! A recipe is a value that knows a client and a path; it may be made anew at any time, and keeps nothing
//! but what it holds at the moment:
//!
//! ```no_run
//! # #[cfg(feature = "net")]
//! # async fn example(client: stoa_client::Client) -> Result<(), stoa_client::recipes::Error> {
//! use stoa_client::recipes::Lock;
//!
//! let lock = Lock::new(&client, "/locks/a");
//! let held = lock.acquire().await?;
//! println!("writes to what it protects say {}", held.token());
//! held.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! What all of them have in common:
//!
//! - **The outcome of every request is found out**, whatever becomes of connections: a znode that was created
//!   by a request whose answer is lost is found again by the id in its name ([protected
//!   create](Lock#connections-that-are-lost)), and an update that must not be done twice has a witness
//!   ([`Queue`], [`Counter`]). Only the end of the session may leave an outcome in the dark, and then the
//!   error says so: [`Error::Uncertain`].
//! - **Futures may be dropped** at any moment, to give up waiting or for a timeout: what was begun is taken
//!   back in the background.
//! - **Who holds something has a [`Token`]**, and learns when its session has ended: [`Held::lost`].
//! - **Nobody is woken in vain**: who waits in a queue watches the one before it.
//!
//! They are written against [`Service`], not against sockets: [`crate::Client`] is one, and so is the client
//! of the simulator that they are tested in. `docs/recipes.md` is the guide.

mod barrier;
mod cache;
mod contender;
mod counter;
mod double_barrier;
mod election;
mod error;
mod flight;
mod group;
mod held;
mod lock;
mod own;
mod program;
mod queue;
mod race;
mod rw_lock;
mod semaphore;
mod service;
mod witness;
mod znodes;

#[cfg(test)]
mod tests;

pub use barrier::Barrier;
pub use cache::{Cache, Cached};
pub use counter::Counter;
pub use double_barrier::{DoubleBarrier, Entered};
pub use election::{Candidate, Election};
pub use error::Error;
pub use group::{Group, Member, Members, Membership};
pub use held::{Held, Standing, Token};
pub use lock::{Choice, Lock, Primitive, Reason, UnknownPrimitive};
pub use queue::Queue;
pub use rw_lock::RwLock;
pub use semaphore::Semaphore;
pub use service::{Events, Service, Situation};
