//! A reader looks for a parent, follows it for as long as it can, and goes to the next one.

use std::rc::Rc;
use std::time::Duration;

use stoa_core::HistoryId;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep, timeout};

use super::member::Backoff;
use super::reader_hello::{self, NO_ENSEMBLE, ReaderHello, ReaderPurpose, Ticket};
use super::stream::{self, Stream};
use super::tie::{self, Heard};
use super::ties::{LEADS, TieEvent};
use super::{HANDSHAKE_PATIENCE, Inner, PeerAddress, late, snapshot};

/// A parent that was one for so long was a good one: the next one need not be waited for.
const LASTED: Duration = Duration::from_secs(3);
/// What a parent's refusal begins with.
const REFUSED: &str = "refused: ";
/// As what its snapshots are stored.
const PARENT: u64 = 255;

/// Whether somebody has said that this reader is not let in, and will not be as things are.
fn is_turned_away(why: &str) -> bool {
    why.starts_with(REFUSED) && !why.ends_with(NO_ENSEMBLE) && !why.ends_with(LEADS)
}

impl Inner {
    /// Follows one of these, for ever.
    pub(super) async fn seek(self: Rc<Self>, parents: Vec<PeerAddress>) {
        let mut backoff = Backoff::new();
        let mut tried = false;
        let mut told: Vec<Option<String>> = parents.iter().map(|_| None).collect();
        for at in (0..parents.len()).cycle() {
            let parent = &parents[at];
            if at == 0 && tried {
                self.common.ties.tried_all();
            }
            tried = true;
            let address = format!("{} port {}", parent.host, parent.port);
            self.common.ties.tries(&address);
            let began = Instant::now();
            match self.call(parent, ReaderPurpose::Words, &[0; 16]).await {
                Ok((stream, hello, history)) => {
                    told[at] = None;
                    let why = Rc::clone(&self).follow(parent, &address, (stream, hello, history)).await;
                    tracing::warn!("{address} is this reader's parent no more: {why}");
                    self.common.ties.detach(&address, &why);
                    tried = false;
                    if began.elapsed() >= LASTED {
                        backoff = Backoff::new();
                    }
                }
                Err(why) => {
                    self.common.ties.detach(&address, &why);
                    self.common.ties.was_not_let_in(is_turned_away(&why));
                    // It is the same as often as it is tried.
                    if told[at].as_ref() != Some(&why) {
                        match why.ends_with(NO_ENSEMBLE) || why.ends_with(LEADS) {
                            true => tracing::info!("{address} cannot be this reader's parent: {why}"),
                            false => tracing::warn!("{address} cannot be this reader's parent: {why}"),
                        }
                        told[at] = Some(why);
                    }
                }
            }
            sleep(backoff.next()).await;
        }
    }

    /// The handshake on a connection to who may be a parent.
    async fn call(
        &self,
        parent: &PeerAddress,
        purpose: ReaderPurpose,
        ticket: &Ticket,
    ) -> Result<(Stream, ReaderHello, HistoryId), String> {
        let mut socket = stream::open(parent).await?;
        let meeting = async {
            // For the first partition, whose thread has the log.
            let said = socket.write_u8(0).await;
            said.map_err(|error| format!("the connection broke: {error}"))?;
            let mut stream = Stream::to(socket, self.tls.as_ref(), &parent.host).await?;
            let sides = (&self.local, &*self.common.ties);
            let (hello, history) = reader_hello::call(&mut stream, sides, purpose, ticket).await?;
            Ok((stream, hello, history))
        };
        timeout(HANDSHAKE_PATIENCE, meeting).await.unwrap_or_else(|_| Err(late()))
    }

    /// Follows a parent until that ends, and says why it has.
    async fn follow(
        self: Rc<Self>,
        parent: &PeerAddress,
        address: &str,
        (stream, hello, history): (Stream, ReaderHello, HistoryId),
    ) -> String {
        let ties = &self.common.ties;
        let name = hello.name();
        tracing::info!("{name} ({address}) is this reader's parent, {}", hello.software);
        let (link, mouth, said) = ties.attach(|status| {
            status.name = name;
            status.software = hello.software;
        });
        ties.tell(0, TieEvent::ParentCame(link, history));
        let why = tie::run(stream, (ties, &mouth), said, |heard| match heard {
            Heard::Word(word) => ties.tell(0, TieEvent::ParentSays(link, word)),
            Heard::Offer(ticket) => {
                let fetching = self.spawn(Rc::clone(&self).fetch(parent.clone(), ticket));
                if let Some(older) = self.fetching.replace(Some(fetching)) {
                    older.abort();
                }
            }
        });
        let why = why.await;
        ties.tell(0, TieEvent::ParentGone(link));
        why
    }

    /// Fetches a snapshot that the parent has offered.
    async fn fetch(self: Rc<Self>, parent: PeerAddress, ticket: Ticket) {
        let stream = match self.call(&parent, ReaderPurpose::Snapshot, &ticket).await {
            Ok((stream, ..)) => stream,
            Err(why) => return self.common.complaints.say(&format!("no snapshot of the parent: {why}")),
        };
        tracing::info!("a snapshot of the parent is coming");
        let report = |result: Result<snapshot::Arrival, String>| match result {
            Ok(snapshot::Arrival { header, file }) => {
                self.common.ties.tell(0, TieEvent::ParentSnapshot { header, file });
            }
            Err(why) => {
                self.common
                    .complaints
                    .say(&format!("the snapshot of the parent could not be received: {why}"));
            }
        };
        let (whole, place) = (self.incoming(PARENT), self.place(PARENT));
        snapshot::receive(stream, "this reader's parent", whole, place, report).await;
    }
}
