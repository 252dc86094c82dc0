//! Requests for znodes, repeated until they are answered where that is safe.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use stoa_client_core::{Acl, Call, Operation, Reply, WatchId};
use stoa_wire::{CreateMode, ErrorCode, Stat, path as znode_path};

use super::error::Error;
use super::service::Service;
use super::witness::refusal;

/// How long to wait before something that has failed is tried again.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(10);
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Whether nobody can say what became of a request that fails like this, or it is to be asked again later.
pub(super) fn is_lost(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::ConnectionLoss
            | ErrorCode::OperationTimeout
            | ErrorCode::RequestTimeout
            | ErrorCode::SessionMoved
            | ErrorCode::ThrottledOp
    )
}

/// Somebody's access to znodes: a client, and the ACL of what it creates.
#[derive(Debug, Clone)]
pub(super) struct Znodes<S> {
    pub(super) service: S,
    pub(super) acl: Vec<Acl>,
    /// The session that requests are meant for, if it matters.
    session: Option<i64>,
}

impl<S: Service> Znodes<S> {
    pub(super) fn new(service: &S) -> Self {
        Self { service: service.clone(), acl: Acl::open(), session: None }
    }

    /// The same for one session: when it has ended, no request is carried out in a later one.
    pub(super) fn within(&self, session: i64) -> Self {
        Self { session: Some(session), ..self.clone() }
    }

    fn meant(&self, call: Call) -> Call {
        match self.session {
            Some(session) => Call::Within { session, call: Box::new(call) },
            None => call,
        }
    }

    /// An id that nobody else has.
    pub(super) fn id(&self) -> String {
        alloc::format!("{:016x}", self.service.unique())
    }

    /// A request that may be repeated: asks until there is an answer.
    async fn ask(&self, call: Call) -> Result<Reply, ErrorCode> {
        let call = self.meant(call);
        let mut pause = PAUSE_MIN;
        loop {
            match self.service.call(call.clone()).await {
                Err(code) if is_lost(code) => self.pause(&mut pause).await,
                result => return result,
            }
        }
    }

    /// Waits, and longer the next time.
    pub(super) async fn pause(&self, pause: &mut Duration) {
        self.service.sleep(*pause).await;
        *pause = (*pause * 2).min(PAUSE_MAX);
    }

    /// The same, with a watch. One that is set by a request whose answer is lost is dropped.
    pub(super) async fn ask_and_watch(
        &self,
        call: impl Fn(WatchId) -> Call + Send + Sync,
    ) -> (Result<Reply, ErrorCode>, S::Watch) {
        let mut pause = PAUSE_MIN;
        loop {
            match self.service.call_and_watch(|watch| self.meant(call(watch))).await {
                (Err(code), _) if is_lost(code) => self.pause(&mut pause).await,
                answer => return answer,
            }
        }
    }

    pub(super) fn create_call(&self, path: &str, data: &[u8], mode: CreateMode) -> Call {
        let (path, data, acl) = (path.to_owned(), data.to_owned(), self.acl.clone());
        Call::Create { path, data, acl, mode, ttl_ms: None, with_stat: true }
    }

    /// Creates a znode that anybody may have created, and those above it; it is there afterwards.
    pub(super) async fn make(&self, path: &str, data: &[u8], mode: CreateMode) -> Result<(), Error> {
        // From the znode up to the first parent that is there, and down again.
        let mut missing = alloc::vec![(path, data, mode)];
        while let Some((path, data, mode)) = missing.last().copied() {
            match self.ask(self.create_call(path, data, mode)).await {
                Ok(_) | Err(ErrorCode::NodeExists) => {
                    missing.pop();
                }
                Err(ErrorCode::NoNode) => {
                    let (parent, _) =
                        znode_path::split(path).ok_or_else(|| Error::of(path, ErrorCode::BadArguments))?;
                    missing.push((parent, b"", CreateMode::Persistent));
                }
                Err(code) => return Err(Error::of(path, code)),
            }
        }
        Ok(())
    }

    /// The children of a znode; none when it does not exist.
    pub(super) async fn children(&self, path: &str) -> Result<Vec<String>, Error> {
        let call = Call::GetChildren { path: path.to_owned(), watch: None, with_stat: false };
        names(path, self.ask(call).await)
    }

    /// The same, with a watch; without one when the znode does not exist.
    pub(super) async fn children_and_watch(
        &self,
        path: &str,
    ) -> Result<Option<(Vec<String>, S::Watch)>, Error> {
        let call = |watch| Call::GetChildren { path: path.to_owned(), watch: Some(watch), with_stat: false };
        match self.ask_and_watch(call).await {
            (Err(ErrorCode::NoNode), _) => Ok(None),
            (result, watch) => Ok(Some((names(path, result)?, watch))),
        }
    }

    /// The Stat of a znode.
    pub(super) async fn stat(&self, path: &str) -> Result<Option<Stat>, Error> {
        stat(path, self.ask(Call::Exists { path: path.to_owned(), watch: None }).await)
    }

    /// The same, with a watch for its creation, change or deletion.
    pub(super) async fn stat_and_watch(&self, path: &str) -> Result<(Option<Stat>, S::Watch), Error> {
        let call = |watch| Call::Exists { path: path.to_owned(), watch: Some(watch) };
        let (result, watch) = self.ask_and_watch(call).await;
        Ok((stat(path, result)?, watch))
    }

    /// Watches a znode that is there, for its change or deletion. Unlike `exists` it leaves no watch behind for one
    /// that is not, and will never be.
    pub(super) async fn watch(&self, path: &str) -> Result<Option<(Stat, S::Watch)>, Error> {
        Ok(self.data_and_watch(path).await?.map(|(_, stat, watch)| (stat, watch)))
    }

    /// The data and Stat of a znode.
    pub(super) async fn data(&self, path: &str) -> Result<Option<(Vec<u8>, Stat)>, Error> {
        data(path, self.ask(Call::GetData { path: path.to_owned(), watch: None }).await)
    }

    /// The same, with a watch for its change or deletion.
    pub(super) async fn data_and_watch(
        &self,
        path: &str,
    ) -> Result<Option<(Vec<u8>, Stat, S::Watch)>, Error> {
        let call = |watch| Call::GetData { path: path.to_owned(), watch: Some(watch) };
        let (result, watch) = self.ask_and_watch(call).await;
        Ok(data(path, result)?.map(|(data, stat)| (data, stat, watch)))
    }

    /// Sees to it that what follows is not older than this.
    pub(super) async fn sync(&self, path: &str) -> Result<(), Error> {
        match self.ask(Call::Sync { path: path.to_owned() }).await {
            Ok(_) => Ok(()),
            Err(code) => Err(Error::of(path, code)),
        }
    }

    /// Answers a read when whatever we have asked before has been carried out, or never will be. Only then anybody
    /// knows what became of a request whose answer is lost, so a service that cannot say it for now, because it has
    /// no room, is asked until it can.
    async fn ask_settled(&self, path: &str, read: Call) -> Result<Reply, ErrorCode> {
        let mut pause = PAUSE_MIN;
        loop {
            let mut answer = self.ask(Call::Sync { path: path.to_owned() }).await;
            if answer.is_ok() {
                answer = self.ask(read.clone()).await;
            }
            match answer {
                Err(code) if Error::of(path, code).is_for_now() => self.pause(&mut pause).await,
                answer => return answer,
            }
        }
    }

    /// The children of a znode when all that we have asked is settled.
    pub(super) async fn settled_children(&self, path: &str) -> Result<Vec<String>, Error> {
        let call = Call::GetChildren { path: path.to_owned(), watch: None, with_stat: false };
        names(path, self.ask_settled(path, call).await)
    }

    /// The Stat of a znode then.
    pub(super) async fn settled_stat(&self, path: &str) -> Result<Option<Stat>, Error> {
        let call = Call::Exists { path: path.to_owned(), watch: None };
        stat(path, self.ask_settled(path, call).await)
    }

    /// The data and Stat of a znode then.
    pub(super) async fn settled_data(&self, path: &str) -> Result<Option<(Vec<u8>, Stat)>, Error> {
        let call = Call::GetData { path: path.to_owned(), watch: None };
        data(path, self.ask_settled(path, call).await)
    }

    /// Deletes a znode that nobody else makes again. Returns whether it was there, as far as is known: when
    /// an answer is lost, a znode that is gone may have been deleted by us.
    pub(super) async fn delete(&self, path: &str) -> Result<bool, Error> {
        self.remove(path, Call::Delete { path: path.to_owned(), version: None }).await
    }

    /// The same, and whoever watches its data is told that the znode has changed, and not that it is gone.
    pub(super) async fn change_and_delete(&self, path: &str) -> Result<bool, Error> {
        let change = Operation::SetData { path: path.to_owned(), data: Vec::new(), version: None };
        let delete = Operation::Delete { path: path.to_owned(), version: None };
        self.remove(path, Call::Multi([change, delete].into())).await
    }

    async fn remove(&self, path: &str, call: Call) -> Result<bool, Error> {
        let mut pause = PAUSE_MIN;
        let mut is_repeated = false;
        loop {
            match done(self.service.call(self.meant(call.clone())).await) {
                Ok(_) => return Ok(true),
                Err(ErrorCode::NoNode) => return Ok(is_repeated),
                Err(code) if is_lost(code) => self.pause(&mut pause).await,
                Err(code) => return Err(Error::of(path, code)),
            }
            is_repeated = true;
        }
    }

    /// Deletes a znode in the background of somebody who has no use for an error: tries until it is gone, or cannot
    /// be deleted.
    pub(super) async fn delete_for_sure(&self, path: &str) {
        let mut pause = PAUSE_MIN;
        while self.delete(path).await.is_err_and(|error| error.is_for_now()) {
            self.pause(&mut pause).await;
        }
    }
}

/// Of a multi, why it was not carried out.
pub(super) fn done(result: Result<Reply, ErrorCode>) -> Result<Reply, ErrorCode> {
    match result {
        Ok(Reply::Results(results)) => match refusal(&results) {
            Some((_, code)) => Err(code),
            None => Ok(Reply::Results(results)),
        },
        result => result,
    }
}

fn names(path: &str, result: Result<Reply, ErrorCode>) -> Result<Vec<String>, Error> {
    match result {
        Ok(Reply::Children { names, .. }) => Ok(names),
        Err(ErrorCode::NoNode) => Ok(Vec::new()),
        other => Err(unexpected(path, other)),
    }
}

fn stat(path: &str, result: Result<Reply, ErrorCode>) -> Result<Option<Stat>, Error> {
    match result {
        Ok(Reply::Stat(stat)) => Ok(Some(stat)),
        Err(ErrorCode::NoNode) => Ok(None),
        other => Err(unexpected(path, other)),
    }
}

fn data(path: &str, result: Result<Reply, ErrorCode>) -> Result<Option<(Vec<u8>, Stat)>, Error> {
    match result {
        Ok(Reply::Data { data, stat }) => Ok(Some((data, stat))),
        Err(ErrorCode::NoNode) => Ok(None),
        other => Err(unexpected(path, other)),
    }
}

/// An error, or a reply of another kind than the request's: the protocol core does not give one.
pub(super) fn unexpected(path: &str, result: Result<Reply, ErrorCode>) -> Error {
    Error::of(path, result.err().unwrap_or(ErrorCode::MarshallingError))
}
