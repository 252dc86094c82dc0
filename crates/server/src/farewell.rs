//! What is still to be delivered on connections that end: the answer to a word, the last replies to a client,
//! a page of admin HTTP.
//!
//! Who closes a socket in which something lies unread resets it, and the reset eats what was written and not read
//! yet. So an end has three parts: what is left is written as fast as the other side reads it; then the stream is
//! ended; and what the other side still sends is thrown away until it has closed too. Nobody is hurried who reads:
//! only who takes nothing for [`PATIENCE`] is given up, or who has taken nothing for longest when there are too many.

use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// How long the other side may take nothing of what is for it, and how long it may take to close.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many connections may be about to end.
const CONNECTIONS_MAX: usize = 1024;
/// How much may wait for all of them together. An answer that is longer by itself waits alone.
const BYTES_MAX: usize = 64 << 20;
/// When the server stops: how long somebody may take to close who has taken all that was for him.
const CLOSE_TIME: Duration = Duration::from_millis(500);
/// What others still send is thrown away in pieces of this length.
const DISCARD_BYTES: usize = 4 << 10;

/// The connections that are about to end, on whatever thread.
#[derive(Debug)]
pub(crate) struct Farewells {
    waiting: Mutex<Waiting>,
    /// How long the other side may take nothing.
    pub(crate) patience: Duration,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    bytes: usize,
    readers: BTreeMap<u64, Reader>,
}

/// Somebody who has something to read.
#[derive(Debug)]
struct Reader {
    /// What he has not taken.
    bytes: usize,
    /// When he has last taken something.
    since: Instant,
    /// Told when he is given up.
    given_up: Arc<Notify>,
}

/// One connection's place among the others; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Farewell {
    of: Arc<Farewells>,
    number: u64,
    given_up: Arc<Notify>,
}

impl Default for Farewells {
    fn default() -> Self {
        Self::of_patience(PATIENCE)
    }
}

impl Farewells {
    /// With so much patience for who takes nothing.
    pub(crate) fn of_patience(patience: Duration) -> Self {
        Self { waiting: Mutex::default(), patience }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody has so much to read, which is held for him. Where there are too many, or is too much, those are
    /// given up who have taken nothing for longest. `given_up` is told when he is.
    pub(crate) fn begin(self: &Arc<Self>, bytes: usize, given_up: Arc<Notify>) -> Farewell {
        let mut waiting = self.lock();
        let number = waiting.next;
        waiting.next += 1;
        while waiting.readers.len() >= CONNECTIONS_MAX && waiting.give_up_slowest(|_, _| true) {}
        let reader = Reader { bytes, since: Instant::now(), given_up: Arc::clone(&given_up) };
        waiting.bytes += bytes;
        waiting.readers.insert(number, reader);
        while waiting.bytes > BYTES_MAX
            && waiting.give_up_slowest(|other, reader| other != number && reader.bytes > 0)
        {}
        drop(waiting);
        Farewell { of: Arc::clone(self), number, given_up }
    }

    /// Gives up whoever has taken nothing for longest.
    pub(crate) fn make_room(&self) {
        self.lock().give_up_slowest(|_, _| true);
    }

    /// Whether a server that stops should wait: for those who read, and for a moment for the others to close.
    pub(crate) fn are_under_way(&self) -> bool {
        let is_under_way = |reader: &Reader| reader.bytes > 0 || reader.since.elapsed() < CLOSE_TIME;
        self.lock().readers.values().any(is_under_way)
    }

    #[cfg(test)]
    fn held(&self) -> (usize, usize) {
        let waiting = self.lock();
        (waiting.readers.len(), waiting.bytes)
    }
}

impl Waiting {
    fn take(&mut self, number: u64, bytes: usize) {
        if let Some(reader) = self.readers.get_mut(&number) {
            let bytes = bytes.min(reader.bytes);
            reader.bytes -= bytes;
            reader.since = Instant::now();
            self.bytes -= bytes;
        }
    }

    /// He has taken all but so much.
    fn leave(&mut self, number: u64, bytes: usize) {
        if let Some(reader) = self.readers.get_mut(&number) {
            self.bytes = self.bytes - reader.bytes + bytes;
            reader.bytes = bytes;
        }
    }

    fn remove(&mut self, number: u64) -> Option<Reader> {
        let reader = self.readers.remove(&number)?;
        self.bytes -= reader.bytes;
        Some(reader)
    }

    /// Gives up one of these; false when there is none.
    fn give_up_slowest(&mut self, may: impl Fn(u64, &Reader) -> bool) -> bool {
        let candidates = self.readers.iter().filter(|(number, reader)| may(**number, reader));
        let slowest = candidates.min_by_key(|(_, reader)| reader.since);
        let Some(number) = slowest.map(|(number, _)| *number) else { return false };
        if let Some(reader) = self.remove(number) {
            reader.given_up.notify_one();
        }
        true
    }
}

impl Farewell {
    /// He has taken so much of it.
    pub(crate) fn take(&self, bytes: usize) {
        self.of.lock().take(self.number, bytes);
    }

    /// Waits until he is given up to make room for others.
    pub(crate) async fn given_up(&self) {
        self.given_up.notified().await;
    }

    /// Writes what is left, ends the stream, and throws away what still comes, until the other side has closed or
    /// is given up.
    pub(crate) async fn say(&self, socket: &TcpStream, output: &[u8]) {
        self.of.lock().leave(self.number, output.len());
        tokio::select! {
            biased;
            () = self.given_up() => {}
            // Whatever goes wrong on the socket, there is nobody any more who could be told.
            _ = self.deliver(socket, output) => {}
        }
    }

    async fn deliver(&self, socket: &TcpStream, mut rest: &[u8]) -> io::Result<()> {
        let mut unread = [0; DISCARD_BYTES];
        let mut deadline = Instant::now() + self.of.patience;
        let (mut has_ended, mut is_closed) = (false, false);
        loop {
            if rest.is_empty() && !has_ended {
                has_ended = true;
                socket2::SockRef::from(socket).shutdown(Shutdown::Write)?;
            }
            let interest = match (rest.is_empty(), is_closed) {
                (true, true) => return Ok(()),
                (true, false) => Interest::READABLE,
                (false, true) => Interest::WRITABLE,
                // Who does not read before all is sent that he has to say must be listened to.
                (false, false) => Interest::READABLE | Interest::WRITABLE,
            };
            let ready = timeout_at(deadline, socket.ready(interest)).await.map_err(io::Error::other)??;
            if ready.is_writable() && !rest.is_empty() {
                let sent = done(socket.try_write(rest))?.unwrap_or(0);
                rest = &rest[sent..];
                if sent > 0 {
                    self.take(sent);
                    deadline = Instant::now() + self.of.patience;
                }
            }
            if ready.is_readable() && !is_closed {
                is_closed = done(socket.try_read(&mut unread))? == Some(0);
                // Whoever sends without end must not keep the thread from its other work.
                tokio::task::yield_now().await;
            }
        }
    }
}

impl Drop for Farewell {
    fn drop(&mut self) {
        self.of.lock().remove(self.number);
    }
}

/// `None` when there was nothing to be done after all.
fn done(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::sleep;

    fn of_patience(patience: Duration) -> Arc<Farewells> {
        Arc::new(Farewells::of_patience(patience))
    }

    fn begin(farewells: &Arc<Farewells>, bytes: usize) -> Farewell {
        farewells.begin(bytes, Arc::default())
    }

    fn is_given_up(farewell: &Farewell) -> bool {
        !farewell.of.lock().readers.contains_key(&farewell.number)
    }

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    const STEP: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn who_reads_slowly_and_says_more_gets_all_of_it() {
        let farewells = of_patience(STEP * 8);
        let (mut near, far) = pair().await;
        let output: Vec<u8> = (0..12_000_000_u32).map(|at| at as u8).collect();
        let (farewell, expected) = (begin(&farewells, output.len()), output.clone());
        let saying = tokio::spawn(async move { farewell.say(&far, &output).await });
        near.write_all(b"what nobody reads").await.unwrap();
        let mut got = vec![0; 12_000_000];
        // In all it takes longer than anybody may take nothing.
        for piece in got.chunks_mut(1_000_000) {
            sleep(STEP).await;
            near.read_exact(piece).await.unwrap();
            near.write_all(b"and more").await.unwrap();
        }
        assert!(got == expected);
        assert_eq!(near.read(&mut [0]).await.unwrap(), 0, "the stream ends as it should");
        assert_eq!(farewells.held(), (1, 0));
        assert!(farewells.are_under_way(), "the other side has not closed");
        drop(near);
        saying.await.unwrap();
        assert_eq!(farewells.held(), (0, 0));
    }

    #[tokio::test]
    async fn who_has_ended_his_side_still_gets_what_is_for_him() {
        let (mut near, far) = pair().await;
        near.shutdown().await.unwrap();
        let farewell = begin(&Arc::default(), 0);
        let output = vec![7; 8_000_000];
        let (_, got) = tokio::join!(farewell.say(&far, &output), async {
            sleep(STEP).await;
            let mut got = Vec::new();
            near.read_to_end(&mut got).await.unwrap();
            got
        });
        assert!(got == output);
    }

    #[tokio::test]
    async fn who_takes_nothing_is_given_up() {
        let farewells = of_patience(STEP);
        let output = vec![7; 50_000_000];
        for more in [&b""[..], b"he still talks"] {
            let (mut near, far) = pair().await;
            let farewell = begin(&farewells, output.len());
            let talks = async {
                while !more.is_empty() && near.write_all(more).await.is_ok() {
                    sleep(STEP / 10).await;
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = farewell.say(&far, &output) => {}
                () = talks => {}
                () = sleep(Duration::from_secs(20)) => panic!("he is waited for"),
            }
        }
        // Nor is it waited long for somebody to close.
        let (_near, far) = pair().await;
        begin(&farewells, 0).say(&far, b"all that there is").await;
        assert_eq!(farewells.held(), (0, 0));
    }

    #[tokio::test]
    async fn for_too_many_and_too_much_the_slowest_make_room() {
        let farewells = Arc::<Farewells>::default();
        let third = BYTES_MAX / 3;
        let first = begin(&farewells, third);
        let (second, done) = (begin(&farewells, third), begin(&farewells, 0));
        first.take(1);
        let long = begin(&farewells, BYTES_MAX / 2);
        assert!(is_given_up(&second) && !is_given_up(&first), "the first has taken something since");
        assert!(!is_given_up(&done), "nothing is held for it");
        let (near, far) = pair().await;
        second.say(&far, &vec![7; third]).await;
        // What is longer than all may be is held alone.
        let longest = begin(&farewells, BYTES_MAX * 2);
        assert!(is_given_up(&first) && is_given_up(&long) && !is_given_up(&longest));
        drop((second, first, long, longest, near));
        assert_eq!(farewells.held(), (1, 0));
        let many: Vec<_> = (0..CONNECTIONS_MAX).map(|_| begin(&farewells, 1)).collect();
        assert!(is_given_up(&done) && many.iter().all(|one| !is_given_up(one)));
        assert_eq!(farewells.held().0, CONNECTIONS_MAX);
        farewells.make_room();
        assert!(is_given_up(&many[0]));
        drop((many, done));
        assert_eq!(farewells.held(), (0, 0));
        assert!(!farewells.are_under_way());
    }
}
