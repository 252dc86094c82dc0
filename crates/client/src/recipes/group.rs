//! Who is there.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use stoa_client_core::Acl;

use super::error::Error;
use super::own::Own;
use super::service::{Events, Service};
use super::znodes::Znodes;

/// A group whose members know of each other.
///
/// A member is an ephemeral znode below the path, named `ID-NAME`: it is there as long as its session. Names
/// need not be unique, so a program that starts again need not wait for the end of the session that it had.
#[derive(Debug, Clone)]
pub struct Group<S> {
    znodes: Znodes<S>,
    path: String,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The name that it has joined with.
    pub name: String,
    /// The name of its znode, which no other member ever has.
    pub znode: String,
}

impl Member {
    fn parse(znode: &str) -> Option<Self> {
        let (_id, name) = znode.split_once('-')?;
        Some(Self { name: name.to_owned(), znode: znode.to_owned() })
    }
}

/// A membership. It ends when this is dropped.
#[derive(Debug)]
pub struct Membership<S: Service> {
    own: Own<S>,
}

/// The members of a group, again and again.
#[derive(Debug)]
pub struct Members<S: Service> {
    group: Group<S>,
    watch: Option<S::Watch>,
    known: Option<Vec<Member>>,
}

impl<S: Service> Group<S> {
    /// The group at a path.
    #[must_use]
    pub fn new(service: &S, path: &str) -> Self {
        Self { znodes: Znodes::new(service), path: path.to_owned() }
    }

    /// Has its znodes made with this ACL, instead of open to everybody.
    #[must_use]
    pub fn acl(mut self, acl: Vec<Acl>) -> Self {
        self.znodes.acl = acl;
        self
    }

    /// Joins, with data for whoever asks. A future that is dropped leaves again.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn join(&self, name: &str, data: &[u8]) -> Result<Membership<S>, Error> {
        let mut own = Own::new(&self.znodes, format!("{}/{}-{name}", self.path, self.znodes.id()));
        own.create(data).await?;
        Ok(Membership { own })
    }

    /// Who is there, in order of their znodes.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn members(&self) -> Result<Vec<Member>, Error> {
        Ok(members(&self.znodes.children(&self.path).await?))
    }

    /// What a member has said of itself; `None` when it is there no more.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn data(&self, member: &Member) -> Result<Option<Vec<u8>>, Error> {
        let read = self.znodes.data(&format!("{}/{}", self.path, member.znode)).await?;
        Ok(read.map(|(data, _)| data))
    }

    /// Who is there, from now on.
    #[must_use]
    pub fn watch(&self) -> Members<S> {
        Members { group: self.clone(), watch: None, known: None }
    }
}

fn members(names: &[String]) -> Vec<Member> {
    let mut members: Vec<_> = names.iter().filter_map(|name| Member::parse(name)).collect();
    members.sort_by(|a, b| a.znode.cmp(&b.znode));
    members
}

impl<S: Service> Membership<S> {
    /// Waits until the session has ended, and the membership with it. Then it is time to join again.
    pub async fn lost(&self) {
        self.own.lost().await;
    }

    /// Leaves the group.
    ///
    /// # Errors
    /// [`Error::SessionLost`] or [`Error::Removed`] when we were no member any more, and otherwise when the
    /// service refuses.
    pub async fn leave(self) -> Result<(), Error> {
        self.own.leave().await
    }
}

impl<S: Service> Members<S> {
    /// Waits until others are there than were returned last, and returns them; the first time at once. What
    /// is over soon may be missed.
    ///
    /// # Errors
    /// When the service refuses. It may be called again.
    pub async fn next(&mut self) -> Result<Vec<Member>, Error> {
        let Group { znodes, path } = &self.group;
        loop {
            if let Some(watch) = &mut self.watch {
                // An event or the end of the watch: look again.
                let _ = watch.next().await;
                self.watch = None;
            }
            let names = match znodes.children_and_watch(path).await? {
                Some((names, watch)) => {
                    self.watch = Some(watch);
                    names
                }
                None => {
                    let (stat, watch) = znodes.stat_and_watch(path).await?;
                    if stat.is_some() {
                        continue;
                    }
                    self.watch = Some(watch);
                    Vec::new()
                }
            };
            let now = members(&names);
            if self.known.as_ref() != Some(&now) {
                self.known = Some(now.clone());
                return Ok(now);
            }
        }
    }
}
