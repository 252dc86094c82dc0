//! Reads and watches that wait for nothing.

use stoa_wire::{AddWatchMode, ErrorCode, Stat};

use crate::client::{Client, children, data, found};
use crate::protocol::{Call, Reply, WatchId};
use crate::types::Acl;
use crate::watch::Watch;

type Result<T> = std::result::Result<T, ErrorCode>;

/// Reads and watches of a [`Client`] that wait for nothing: the fast reads and fast watches of AGORA
/// (sections IV-D and IV-G). Made by [`Client::fast`].
///
/// A fast read is answered at once by the partition that has the znode, from what is committed there. It
/// waits neither for what the client has seen of other partitions nor for the calls that it has made before,
/// its own writes among them. Events of a fast watch are told as soon as they come, without a look at what
/// happened before on other partitions.
///
/// Servers with one partition, and clients that are not [direct](crate::Options::direct), know no such
/// difference: there these are reads and watches like any other.
#[derive(Debug, Clone, Copy)]
pub struct Fast<'a> {
    client: &'a Client,
}

impl<'a> Fast<'a> {
    pub(crate) fn new(client: &'a Client) -> Self {
        Self { client }
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        self.client.call(Call::Fast(Box::new(call))).await
    }

    async fn call_and_watch(&self, call: impl FnOnce(WatchId) -> Call) -> (Result<Reply>, Watch) {
        self.client.call_and_watch(|watch| Call::Fast(Box::new(call(watch)))).await
    }

    /// As [`Client::exists`].
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn exists(&self, path: &str) -> Result<Option<Stat>> {
        found(self.call(Call::Exists { path: path.to_owned(), watch: None }).await)
    }

    /// As [`Client::exists_and_watch`].
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn exists_and_watch(&self, path: &str) -> Result<(Option<Stat>, Watch)> {
        let call = |watch| Call::Exists { path: path.to_owned(), watch: Some(watch) };
        let (result, watch) = self.call_and_watch(call).await;
        Ok((found(result)?, watch))
    }

    /// As [`Client::get_data`].
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn get_data(&self, path: &str) -> Result<(Vec<u8>, Stat)> {
        data(self.call(Call::GetData { path: path.to_owned(), watch: None }).await?)
    }

    /// As [`Client::get_data_and_watch`].
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn get_data_and_watch(&self, path: &str) -> Result<(Vec<u8>, Stat, Watch)> {
        let call = |watch| Call::GetData { path: path.to_owned(), watch: Some(watch) };
        let (result, watch) = self.call_and_watch(call).await;
        let (data, stat) = data(result?)?;
        Ok((data, stat, watch))
    }

    /// As [`Client::get_acl`].
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn get_acl(&self, path: &str) -> Result<(Vec<Acl>, Stat)> {
        match self.call(Call::GetAcl { path: path.to_owned() }).await? {
            Reply::Acl { acl, stat } => Ok((acl, stat)),
            _ => Err(ErrorCode::MarshallingError),
        }
    }

    /// As [`Client::get_children2`].
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn get_children(&self, path: &str) -> Result<(Vec<String>, Stat)> {
        let call = Call::GetChildren { path: path.to_owned(), watch: None, with_stat: true };
        let (names, stat) = children(self.call(call).await?)?;
        Ok((names, stat.ok_or(ErrorCode::MarshallingError)?))
    }

    /// As [`Client::get_children_and_watch`].
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn get_children_and_watch(&self, path: &str) -> Result<(Vec<String>, Stat, Watch)> {
        let call = |watch| Call::GetChildren { path: path.to_owned(), watch: Some(watch), with_stat: true };
        let (result, watch) = self.call_and_watch(call).await;
        let (names, stat) = children(result?)?;
        Ok((names, stat.ok_or(ErrorCode::MarshallingError)?, watch))
    }

    /// As [`Client::add_watch`]: it is set in the order of the calls, and its events are told at once.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn add_watch(&self, path: &str, mode: AddWatchMode) -> Result<Watch> {
        let (result, watch) =
            self.call_and_watch(|watch| Call::AddWatch { path: path.to_owned(), mode, watch }).await;
        result.map(|_| watch)
    }
}
