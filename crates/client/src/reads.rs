//! Reads of znodes, each as a call and what its answer is taken for.

use stoa_client_core::{Acl, Call, Reply, WatchId};
use stoa_wire::{ErrorCode, Stat};

use crate::client::{Client, children, data, found};
use crate::watch::Watch;

type Result<T> = std::result::Result<T, ErrorCode>;

/// Reads of a client: those that wait for what was asked before them, or [fast](crate::Fast) ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reads<'a> {
    pub(crate) client: &'a Client,
    pub(crate) fast: bool,
}

impl Reads<'_> {
    fn made(self, call: Call) -> Call {
        if self.fast { Call::Fast(Box::new(call)) } else { call }
    }

    async fn call(self, call: Call) -> Result<Reply> {
        self.client.call(self.made(call)).await
    }

    pub(crate) async fn call_and_watch(self, call: impl FnOnce(WatchId) -> Call) -> (Result<Reply>, Watch) {
        self.client.call_and_watch(|watch| self.made(call(watch))).await
    }

    pub(crate) async fn exists(self, path: &str) -> Result<Option<Stat>> {
        found(self.call(Call::Exists { path: path.to_owned(), watch: None }).await)
    }

    pub(crate) async fn exists_and_watch(self, path: &str) -> Result<(Option<Stat>, Watch)> {
        let call = |watch| Call::Exists { path: path.to_owned(), watch: Some(watch) };
        let (result, watch) = self.call_and_watch(call).await;
        Ok((found(result)?, watch))
    }

    pub(crate) async fn data(self, path: &str) -> Result<(Vec<u8>, Stat)> {
        data(self.call(Call::GetData { path: path.to_owned(), watch: None }).await?)
    }

    pub(crate) async fn data_and_watch(self, path: &str) -> Result<(Vec<u8>, Stat, Watch)> {
        let call = |watch| Call::GetData { path: path.to_owned(), watch: Some(watch) };
        let (result, watch) = self.call_and_watch(call).await;
        let (data, stat) = data(result?)?;
        Ok((data, stat, watch))
    }

    pub(crate) async fn acl(self, path: &str) -> Result<(Vec<Acl>, Stat)> {
        match self.call(Call::GetAcl { path: path.to_owned() }).await? {
            Reply::Acl { acl, stat } => Ok((acl, stat)),
            _ => Err(ErrorCode::MarshallingError),
        }
    }

    pub(crate) async fn children(self, path: &str) -> Result<(Vec<String>, Stat)> {
        let call = Call::GetChildren { path: path.to_owned(), watch: None, with_stat: true };
        let (names, stat) = children(self.call(call).await?)?;
        Ok((names, stat.ok_or(ErrorCode::MarshallingError)?))
    }

    pub(crate) async fn children_and_watch(self, path: &str) -> Result<(Vec<String>, Stat, Watch)> {
        let call = |watch| Call::GetChildren { path: path.to_owned(), watch: Some(watch), with_stat: true };
        let (result, watch) = self.call_and_watch(call).await;
        let (names, stat) = children(result?)?;
        Ok((names, stat.ok_or(ErrorCode::MarshallingError)?, watch))
    }
}
