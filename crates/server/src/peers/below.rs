//! Readers that have connected to this server: their ties, and the snapshots that they fetch.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use stoa_core::ConnectionId;
use tokio::time::sleep;

use super::reader_hello::{ReaderHello, ReaderPurpose};
use super::stream::Stream;
use super::tie::{self, Heard};
use super::ties::TieEvent;
use super::{Inner, snapshot};
use crate::random;

/// How long a reader may take to fetch a snapshot that it was offered.
const FETCH_PATIENCE: Duration = Duration::from_secs(10);
/// How long it is waited before one that could not be sent is sent again.
const SNAPSHOT_PAUSE: Duration = Duration::from_secs(1);

impl Inner {
    /// Serves a reader that is proven, until its connection ends.
    pub(super) async fn serve_reader(&self, stream: Stream, hello: ReaderHello, address: SocketAddr) {
        match hello.purpose {
            ReaderPurpose::Words => self.keep_tie(stream, hello, address).await,
            ReaderPurpose::Snapshot => self.send_offered(stream, &hello).await,
        }
    }

    async fn keep_tie(&self, stream: Stream, hello: ReaderHello, address: SocketAddr) {
        let ties = &self.common.ties;
        let client_port = hello.tie.map_or(0, |tie| tie.client_port);
        let asker = hello.asker(&self.local);
        let admitted = ties.admit(asker, (address, hello.software.clone()), client_port);
        let Some((id, mouth, said)) = admitted else { return };
        tracing::info!("a reader at {address} is connected, {}", hello.software);
        let why = tie::run(stream, (ties, &mouth), said, |heard| match heard {
            Heard::Word(word) => ties.tell(word.partition, TieEvent::ReaderSays(id, word)),
            Heard::List(list) => ties.listed(id, list),
            Heard::Offer(_) => mouth.end("it offers a snapshot to its parent; is it of another release?"),
        });
        let why = why.await;
        ties.gone(id);
        tracing::info!("the reader at {address} is not connected any more: {why}");
    }

    /// Offers a reader a snapshot, and takes that back when it is not fetched.
    pub(super) async fn offer_snapshot(self: Rc<Self>, id: ConnectionId, header: Bytes, file: PathBuf) {
        let ties = &self.common.ties;
        if !ties.begins_snapshot(id) {
            return ties.tell(0, TieEvent::SnapshotSent(id, Err("it is sent another one".to_owned())));
        }
        let failed = |why: &str| ties.snapshot_sent(id, Err(why.to_owned()));
        let ticket = match random::bytes() {
            Ok(ticket) => ticket,
            Err(why) => return failed(&why),
        };
        if ties.offer(id, ticket, header, file).await {
            sleep(FETCH_PATIENCE).await;
            if ties.take_back(id, &ticket) {
                failed("it was not fetched");
            }
        }
    }

    async fn send_offered(&self, stream: Stream, hello: &ReaderHello) {
        let ties = &self.common.ties;
        // What nobody was offered is nobody's.
        let Some((id, offer)) = ties.take_offer(&hello.ticket) else { return };
        let sent = snapshot::send(stream, &offer.header, offer.file).await;
        drop(offer.turn);
        if sent.is_err() {
            // It is offered anew at once: a reader without room for it should not be sent one after the other.
            sleep(SNAPSHOT_PAUSE).await;
        }
        ties.snapshot_sent(id, sent);
    }
}
