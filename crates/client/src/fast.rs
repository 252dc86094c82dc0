//! Reads and watches that wait for nothing.

use stoa_client_core::{Acl, Call};
use stoa_wire::{AddWatchMode, ErrorCode, Stat};

use crate::client::Client;
use crate::reads::Reads;
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
    reads: Reads<'a>,
}

impl<'a> Fast<'a> {
    pub(crate) fn new(client: &'a Client) -> Self {
        Self { reads: Reads { client, fast: true } }
    }

    /// As [`Client::exists`].
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn exists(&self, path: &str) -> Result<Option<Stat>> {
        self.reads.exists(path).await
    }

    /// As [`Client::exists_and_watch`].
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn exists_and_watch(&self, path: &str) -> Result<(Option<Stat>, Watch)> {
        self.reads.exists_and_watch(path).await
    }

    /// As [`Client::get_data`].
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn get_data(&self, path: &str) -> Result<(Vec<u8>, Stat)> {
        self.reads.data(path).await
    }

    /// As [`Client::get_data_and_watch`].
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn get_data_and_watch(&self, path: &str) -> Result<(Vec<u8>, Stat, Watch)> {
        self.reads.data_and_watch(path).await
    }

    /// As [`Client::get_acl`].
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn get_acl(&self, path: &str) -> Result<(Vec<Acl>, Stat)> {
        self.reads.acl(path).await
    }

    /// As [`Client::get_children2`].
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn get_children(&self, path: &str) -> Result<(Vec<String>, Stat)> {
        self.reads.children(path).await
    }

    /// As [`Client::get_children_and_watch`].
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn get_children_and_watch(&self, path: &str) -> Result<(Vec<String>, Stat, Watch)> {
        self.reads.children_and_watch(path).await
    }

    /// As [`Client::add_watch`]: it is set in the order of the calls, and its events are told at once.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn add_watch(&self, path: &str, mode: AddWatchMode) -> Result<Watch> {
        let (result, watch) =
            self.reads.call_and_watch(|watch| Call::AddWatch { path: path.to_owned(), mode, watch }).await;
        result.map(|_| watch)
    }
}
