//! Serves what the lock protects to the client processes, and knows what they are at.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

use crate::resource::Resource;
use crate::words::{Answer, Said};

/// Waits for the next one that comes in, which is answered only when that is allowed.
#[derive(Debug)]
struct Snare {
    caught: oneshot::Sender<usize>,
    /// Whether it is to stay.
    go_on: oneshot::Receiver<bool>,
}

/// What is known of the clients of a round.
#[derive(Debug)]
struct Watched {
    resource: Resource,
    /// The same without a guard, which is asked the same.
    twin: Resource,
    snare: Option<Snare>,
    /// Whether clients are to rest once they have had the lock again; who has since; who rests.
    ends: bool,
    last_turns: BTreeSet<usize>,
    resting: BTreeSet<usize>,
    /// How often the lock was seen to be held by a leaf, and by a place in the queue.
    leaves: u64,
    places: u64,
    /// How often clients went away without the lock.
    without: u64,
}

/// What a round has come to.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) entries: BTreeMap<usize, u64>,
    pub(crate) writes: u64,
    pub(crate) refused: u64,
    pub(crate) overlaps: u64,
    pub(crate) leaves: u64,
    pub(crate) places: u64,
    pub(crate) without: u64,
    pub(crate) complaints: Vec<String>,
    /// What the twin without a guard has to complain of.
    pub(crate) misuses: usize,
}

/// The resource of a round, and where it listens. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    watched: Arc<Mutex<Watched>>,
    pub(crate) address: SocketAddr,
    /// Tells of every change, and of the end.
    changes: Arc<watch::Sender<()>>,
    listening: tokio::task::JoinHandle<()>,
}

impl Guard {
    pub(crate) async fn open() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let watched = Watched {
            resource: Resource::new(true),
            twin: Resource::new(false),
            snare: None,
            ends: false,
            last_turns: BTreeSet::new(),
            resting: BTreeSet::new(),
            leaves: 0,
            places: 0,
            without: 0,
        };
        let (watched, changes) = (Arc::new(Mutex::new(watched)), Arc::new(watch::channel(()).0));
        let listening = tokio::spawn(listen(listener, Arc::clone(&watched), Arc::clone(&changes)));
        Ok(Self { watched, address, changes, listening })
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        lock(&self.watched)
    }

    async fn until(&self, mut is_it: impl FnMut(&Watched) -> bool) {
        let mut changes = self.changes.subscribe();
        while !is_it(&self.watched()) {
            // The sender is ours.
            let _ = changes.changed().await;
        }
    }

    /// How often somebody came in.
    pub(crate) fn entered(&self) -> u64 {
        self.watched().resource.entered()
    }

    /// Waits until somebody has come in so often.
    pub(crate) async fn until_entered(&self, times: u64) {
        self.until(|watched| watched.resource.entered() >= times).await;
    }

    /// Waits until all have had the lock.
    pub(crate) async fn until_all_entered(&self, clients: usize) {
        self.until(|watched| (0..clients).all(|who| watched.resource.entries.contains_key(&who))).await;
    }

    /// Waits for the next one to come in, and keeps it from knowing until it is let go.
    pub(crate) async fn catch(&self) -> Option<Caught> {
        let (caught, who) = oneshot::channel();
        let (let_go, go_on) = oneshot::channel();
        self.watched().snare = Some(Snare { caught, go_on });
        who.await.ok().map(|who| Caught { who, let_go })
    }

    /// Has all clients rest, each when it has had the lock once more.
    pub(crate) fn end(&self) {
        self.watched().ends = true;
    }

    /// Waits until so many clients rest.
    pub(crate) async fn until_resting(&self, clients: usize) {
        self.until(|watched| watched.resting.len() == clients).await;
    }

    /// Which of them do.
    pub(crate) fn resting(&self) -> Vec<usize> {
        self.watched().resting.iter().copied().collect()
    }

    /// What it has come to.
    pub(crate) fn seen(&self) -> Seen {
        let watched = self.watched();
        let Resource { entries, writes, refused, overlaps, complaints, .. } = &watched.resource;
        Seen {
            entries: entries.clone(),
            writes: *writes,
            refused: *refused,
            overlaps: *overlaps,
            leaves: watched.leaves,
            places: watched.places,
            without: watched.without,
            complaints: complaints.clone(),
            misuses: watched.twin.complaints.len(),
        }
    }

    /// Has the clients that rest close their sessions.
    pub(crate) fn close(&self) {
        self.watched().resting.clear();
        self.changes.send_replace(());
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// A client that has just come in, and does not know yet.
#[derive(Debug)]
pub(crate) struct Caught {
    pub(crate) who: usize,
    let_go: oneshot::Sender<bool>,
}

impl Caught {
    /// Tells it, and also to stay until it is refused.
    pub(crate) fn let_go(self, stays: bool) {
        // It may have ended meanwhile.
        let _ = self.let_go.send(stays);
    }
}

fn lock(watched: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    // Nothing panics half way in there.
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn listen(listener: TcpListener, watched: Arc<Mutex<Watched>>, changes: Arc<watch::Sender<()>>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, Arc::clone(&watched), Arc::clone(&changes)));
    }
}

/// Serves a client until its process ends.
async fn serve(stream: TcpStream, watched: Arc<Mutex<Watched>>, changes: Arc<watch::Sender<()>>) {
    let (reading, mut writing) = stream.into_split();
    let mut lines = BufReader::new(reading).lines();
    let mut who = None;
    while let Ok(Some(line)) = lines.next_line().await {
        let (mut answer, snare) = match line.parse() {
            Ok(Said::Hello(number)) => {
                who = Some(number);
                (Answer::Take, None)
            }
            Ok(said) => match who {
                Some(who) => lock(&watched).answer(who, said),
                None => break,
            },
            Err(problem) => {
                lock(&watched).resource.complaints.push(problem);
                break;
            }
        };
        changes.send_replace(());
        if let (Some(Snare { caught, go_on }), Some(who)) = (snare, who)
            && caught.send(who).is_ok()
            && go_on.await.is_ok_and(|stays| stays)
        {
            answer = Answer::Stay;
        }
        if writing.write_all(format!("{answer}\n").as_bytes()).await.is_err() {
            break;
        }
        if let (Answer::Rest, Some(who)) = (answer, who) {
            let mut changed = changes.subscribe();
            while lock(&watched).resting.contains(&who) && changed.changed().await.is_ok() {}
            // Its process may have been killed.
            let _ = writing.write_all(format!("{}\n", Answer::Close).as_bytes()).await;
            // It goes before the connection does, or it would take this for our end.
            let _ = lines.next_line().await;
            break;
        }
    }
    if let Some(who) = who {
        let mut watched = lock(&watched);
        watched.resource.end(who);
        watched.twin.end(who);
    }
}

impl Watched {
    /// What somebody is answered, but perhaps not before a fault has caught it.
    fn answer(&mut self, who: usize, said: Said) -> (Answer, Option<Snare>) {
        let done = |is_done| if is_done { Answer::Done } else { Answer::Refused };
        let answer = match said {
            Said::Enter(token) => {
                self.twin.enter(who, token);
                let enters = self.resource.enter(who, token);
                if enters && self.ends {
                    self.last_turns.insert(who);
                }
                return (done(enters), self.snare.take_if(|_| enters));
            }
            Said::Write(token) => {
                self.twin.write(who, token);
                done(self.resource.write(who, token))
            }
            Said::Leave(seen) => {
                self.leaves += u64::from(seen == Some(true));
                self.places += u64::from(seen == Some(false));
                self.twin.leave(who);
                done(self.resource.leave(who))
            }
            Said::Over(ending) => {
                self.twin.over(who, ending);
                self.resource.over(who, ending);
                self.next(who)
            }
            Said::Nothing => {
                self.without += 1;
                self.next(who)
            }
            Said::Problem(what) => {
                self.resource.complaints.push(format!("client {who}: {what}"));
                self.resource.end(who);
                self.twin.end(who);
                self.next(who)
            }
            Said::Hello(_) => Answer::Take,
        };
        (answer, None)
    }

    fn next(&mut self, who: usize) -> Answer {
        if self.ends && self.last_turns.contains(&who) {
            self.resting.insert(who);
            return Answer::Rest;
        }
        Answer::Take
    }
}
