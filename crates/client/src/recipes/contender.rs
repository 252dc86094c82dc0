//! Places in a queue of znodes: what locks, elections and semaphores are made of.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use stoa_client_core::{Call, Reply};
use stoa_wire::{CreateMode, ErrorCode, Stat};

use super::error::Error;
use super::service::{Events, Service};
use super::znodes::{PAUSE_MIN, Znodes, is_lost, unexpected};

/// The name of a contender's znode: `ID-KIND-NUMBER`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rival {
    pub(super) name: String,
    pub(super) kind: String,
    number: i32,
}

impl Rival {
    /// `None` for the names of others.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.splitn(3, '-');
        let (_id, kind, number) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self { name: name.to_owned(), kind: kind.to_owned(), number: number.parse().ok()? })
    }

    /// How much later it came than the other one. Numbers begin anew behind the largest one.
    pub(super) fn behind(&self, other: &Self) -> i32 {
        self.number.wrapping_sub(other.number)
    }
}

/// The first of some contenders.
pub(super) fn oldest(names: &[String]) -> Option<Rival> {
    names.iter().filter_map(|name| Rival::parse(name)).reduce(
        |first, it| {
            if first.behind(&it) > 0 { it } else { first }
        },
    )
}

/// Who stands before somebody, the nearest last.
#[derive(Debug)]
pub(super) struct Before(pub(super) Vec<Rival>);

/// Only who is first is not in the way of anybody.
pub(super) fn nearest(before: Before) -> Option<Rival> {
    before.0.into_iter().next_back()
}

/// An ephemeral sequential znode of ours. It is deleted when this is dropped.
///
/// Its name begins with an id, by which it is found when the answer to its create is lost.
#[derive(Debug)]
pub(super) struct Contender<S: Service> {
    znodes: Znodes<S>,
    directory: String,
    id: String,
    /// What is known of it once it is known to be there.
    place: Option<Place>,
    /// Whoever watches it may believe that it was first when it goes with a change.
    hands_over: bool,
    is_over: bool,
}

#[derive(Debug, Clone)]
struct Place {
    rival: Rival,
    stat: Stat,
}

impl<S: Service> Contender<S> {
    /// Before anything is asked for. From here on whatever becomes of it is cleared away when it is dropped.
    pub(super) fn new(znodes: &Znodes<S>, directory: &str) -> Self {
        let (id, directory) = (znodes.id(), directory.to_owned());
        Self { znodes: znodes.clone(), directory, id, place: None, hands_over: false, is_over: false }
    }

    /// Creates a znode behind those that are there.
    pub(super) async fn enter(
        znodes: &Znodes<S>,
        directory: &str,
        kind: &str,
        data: &[u8],
    ) -> Result<Self, Error> {
        let mut this = Self::new(znodes, directory);
        let mut pause = PAUSE_MIN;
        loop {
            let answer = this.znodes.service.call(this.create_call(kind, data)).await;
            match this.take(answer, &mut pause).await? {
                Ok(()) => return Ok(this),
                // A container goes when it has been empty for a while.
                Err(ErrorCode::NoNode) => {
                    this.znodes.make(&this.directory, b"", CreateMode::Container).await?;
                }
                Err(code) if is_lost(code) => {}
                Err(code) => return Err(Error::of(&this.directory, code)),
            }
        }
    }

    /// What its name begins with.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The request to create its znode.
    pub(super) fn create_call(&self, kind: &str, data: &[u8]) -> Call {
        let path = format!("{}/{}-{kind}-", self.directory, self.id);
        self.znodes.create_call(&path, data, CreateMode::EphemeralSequential)
    }

    /// Takes in what became of that. Refused or lost, it was not carried out, and is not going to be.
    pub(super) async fn take(
        &mut self,
        answer: Result<Reply, ErrorCode>,
        pause: &mut Duration,
    ) -> Result<Result<(), ErrorCode>, Error> {
        match answer {
            Ok(Reply::Created { path, stat }) => {
                let name = path.rsplit('/').next().unwrap_or_default();
                self.stands(name, stat)?;
                Ok(Ok(()))
            }
            Err(code) if is_lost(code) => {
                self.znodes.pause(pause).await;
                self.place = self.find().await?;
                Ok(if self.place.is_some() { Ok(()) } else { Err(code) })
            }
            Err(code) if code != ErrorCode::SessionExpired => Ok(Err(code)),
            other => Err(unexpected(&self.directory, other)),
        }
    }

    /// It is there, by this name.
    pub(super) fn stands(&mut self, name: &str, stat: Stat) -> Result<(), Error> {
        let rival = Rival::parse(name).ok_or_else(|| self.foreign())?;
        self.place = Some(Place { rival, stat });
        Ok(())
    }

    fn foreign(&self) -> Error {
        Error::Foreign { path: self.directory.clone(), problem: "its children have no numbers" }
    }

    /// Looks for our znode, after a request to create it whose answer is lost.
    ///
    /// If it is not there now, it will not be: the request was made before on the same session, so whichever
    /// server we ask now has it before this, or never.
    async fn find(&self) -> Result<Option<Place>, Error> {
        let names = self.znodes.settled_children(&self.directory).await?;
        let Some(name) = names.iter().find(|name| name.starts_with(&self.id)) else { return Ok(None) };
        let rival = Rival::parse(name).ok_or_else(|| self.foreign())?;
        let stat = self.znodes.settled_stat(&format!("{}/{name}", self.directory)).await?;
        Ok(stat.map(|stat| Place { rival, stat }))
    }

    /// Whether it is one of those in a directory.
    pub(super) fn stands_in(&self, directory: &str) -> bool {
        self.directory == directory
    }

    /// It is to have another place, with the same id. Returns the name of the one that it has. At no time it has
    /// both, so whichever there is when this is dropped is found by the id.
    pub(super) fn begin_anew(&mut self) -> String {
        self.place.take().map_or_else(String::new, |place| place.rival.name)
    }

    /// Its znode.
    pub(super) fn path(&self) -> String {
        let name = self.place.as_ref().map_or(self.id.as_str(), |place| &place.rival.name);
        format!("{}/{name}", self.directory)
    }

    /// The zxid of its creation.
    pub(super) fn created(&self) -> i64 {
        self.place.as_ref().map_or(0, |place| place.stat.czxid)
    }

    /// The session that it lives as long as.
    pub(super) fn session(&self) -> i64 {
        self.place.as_ref().map_or(0, |place| place.stat.ephemeral_owner)
    }

    pub(super) fn service(&self) -> &S {
        &self.znodes.service
    }

    /// The contenders before it among some children.
    pub(super) fn before(&self, names: &[String]) -> Result<Before, Error> {
        let own = self.place.as_ref().map(|place| &place.rival).filter(|own| names.contains(&own.name));
        let own = own.ok_or_else(|| self.gone())?;
        let all = names.iter().filter_map(|name| Rival::parse(name));
        let mut before: Vec<Rival> = all.filter(|it| own.behind(it) > 0).collect();
        before.sort_by_key(|it| core::cmp::Reverse(own.behind(it)));
        Ok(Before(before))
    }

    /// Why its znode is not there any more.
    pub(super) fn gone(&self) -> Error {
        if self.service().situation().session == Some(self.session()) {
            Error::Removed { path: self.path() }
        } else {
            Error::SessionLost
        }
    }

    /// Waits as long as somebody is in the way of it, watching nobody else.
    pub(super) async fn wait(
        &self,
        in_the_way: impl Fn(Before) -> Option<Rival> + Send + Sync,
    ) -> Result<(), Error> {
        loop {
            let Some(rival) = self.look(&in_the_way).await? else { return Ok(()) };
            let path = format!("{}/{}", self.directory, rival.name);
            if let Some((_, mut watch)) = self.znodes.watch(&path).await? {
                // Whatever it is, an event or the end of the watch: look again.
                let _ = watch.next().await;
            }
        }
    }

    /// Who is in the way of it now.
    pub(super) async fn look(
        &self,
        in_the_way: impl Fn(Before) -> Option<Rival> + Send + Sync,
    ) -> Result<Option<Rival>, Error> {
        let names = self.znodes.children(&self.directory).await?;
        Ok(in_the_way(self.before(&names)?))
    }

    /// It has what it waited for, and nobody else: from now on it hands that over when it goes.
    pub(super) fn hands_over(mut self) -> Self {
        self.hands_over = true;
        self
    }

    /// Deletes its znode.
    pub(super) async fn leave(mut self) -> Result<(), Error> {
        let was_there = self.delete().await?;
        self.is_over = true;
        // If it is gone when it is deleted again, its session may have taken it away.
        let is_over = self.service().situation().session != Some(self.session());
        if was_there && !is_over { Ok(()) } else { Err(self.gone()) }
    }

    async fn delete(&self) -> Result<bool, Error> {
        let path = self.path();
        if self.hands_over {
            self.znodes.change_and_delete(&path).await
        } else {
            self.znodes.delete(&path).await
        }
    }

    /// Deletes whatever there is of it.
    async fn withdraw(self) {
        if self.place.is_some() {
            let mut pause = PAUSE_MIN;
            while self.delete().await.is_err_and(|error| error.is_for_now()) {
                self.znodes.pause(&mut pause).await;
            }
            return;
        }
        // Any error is the end of the session, or would be the same again.
        if let Ok(Some(place)) = self.find().await {
            let path = format!("{}/{}", self.directory, place.rival.name);
            self.znodes.delete_for_sure(&path).await;
        }
    }
}

impl<S: Service> Drop for Contender<S> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let service = self.znodes.service.clone();
        let rest = Self {
            znodes: self.znodes.clone(),
            directory: core::mem::take(&mut self.directory),
            id: core::mem::take(&mut self.id),
            place: self.place.take(),
            hands_over: self.hands_over,
            // It is over when the task is, however that ends.
            is_over: true,
        };
        service.spawn(rest.withdraw());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_no_rivals() {
        let rival = Rival::parse("00ff-read-0000000007").unwrap();
        assert_eq!((rival.kind.as_str(), rival.number), ("read", 7));
        for name in ["", "a", "a-b", "a-b-c", "_c_1-2-3-lock-0000000001"] {
            assert_eq!(Rival::parse(name), None, "{name}");
        }
    }

    #[test]
    fn the_order_goes_on_where_numbers_begin_anew() {
        let names = ["a-lock--2147483648", "b-lock-2147483647", "c-lock--2147483647", "other"];
        let names = names.map(str::to_owned);
        assert_eq!(oldest(&names).unwrap().name, "b-lock-2147483647");
        assert_eq!(oldest(&names[3..]), None);
    }
}
