//! What is asked about a server with several partitions: each thread is asked, and the answers are put
//! together, on a thread that serves no client.

use std::sync::Arc;

use stoa_tree::Identity;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;

use crate::inbox::{InboxSender, Message};
use crate::process::Process;
use crate::threads::Door;
use crate::view::SiteOrder;
use crate::view::{
    Balance, Connection, Digest, Holder, LostAsked, LostView, Partition, PathToken, Question, Session,
    SessionWatches, SnapshotDone, Source, Stats, WatchSummary, merge,
};
use crate::words::{self, Word};

/// All threads of a server, to be asked by whoever may wait.
#[derive(Clone)]
pub(crate) struct Together {
    pub(crate) inboxes: Arc<[InboxSender]>,
    pub(crate) door: Arc<Door>,
    /// One word is answered at a time: of answers that are being made there is only so much in memory.
    pub(crate) answering: Arc<Mutex<()>>,
}

/// Answers that are on their way.
type Awaited<T> = Vec<oneshot::Receiver<T>>;

impl Together {
    /// What a four-letter word answers.
    pub(crate) async fn answer(&self, word: Word, argument: Vec<u8>, process: &Arc<Process>) -> String {
        let (mut asker, process) = (self.clone(), Arc::clone(process));
        let turn = Arc::clone(&self.answering).lock_owned().await;
        let answered = tokio::task::spawn_blocking(move || {
            let answer = words::answer(word, &argument, &process, &mut asker);
            drop(turn);
            answer
        });
        answered.await.unwrap_or_default()
    }

    /// Answers what admin HTTP asks, for as long as it does, on a thread of its own. Gives back questions
    /// that nobody asks.
    pub(crate) fn take_questions(
        mut self,
        mut questions: UnboundedReceiver<Question>,
    ) -> Result<UnboundedReceiver<Question>, String> {
        let answering = move || {
            while let Some(question) = questions.blocking_recv() {
                question.answer(&mut self);
            }
        };
        let thread = std::thread::Builder::new().name("questions".into()).spawn(answering);
        thread.map_err(|error| format!("the thread that answers questions: {error}"))?;
        Ok(unbounded_channel().1)
    }

    fn ask<T>(&self, question: impl Fn(oneshot::Sender<T>) -> Question) -> Awaited<T> {
        let ask = |inbox: &InboxSender| {
            let (reply, answer) = oneshot::channel();
            inbox.tell(Message::Question(question(reply)));
            answer
        };
        self.inboxes.iter().map(ask).collect()
    }

    /// Asks the first partition's thread only: it knows what concerns them all.
    fn ask_first<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Question) -> oneshot::Receiver<T> {
        let (reply, answer) = oneshot::channel();
        if let Some(inbox) = self.inboxes.first() {
            inbox.tell(Message::Question(question(reply)));
        }
        answer
    }

    /// The answers of all threads, the first one's first.
    fn hear<T>(&self, question: impl Fn(oneshot::Sender<T>) -> Question) -> Vec<T> {
        self.ask(question).into_iter().filter_map(|answer| answer.blocking_recv().ok()).collect()
    }
}

impl Source for Together {
    fn stats(&self) -> Stats {
        let mut answers = self.hear(Question::Stats).into_iter();
        let mut all = answers.next().map(|first| *first).unwrap_or_default();
        for other in answers {
            all.add(&other);
        }
        all.partitions = self.inboxes.len() as u64;
        all.connections_rejected += self.door.rejected();
        all
    }

    fn connections(&self) -> Vec<Connection> {
        self.hear(Question::Connections).into_iter().flatten().collect()
    }

    fn sessions(&self) -> Vec<Session> {
        let mut sessions: Vec<_> = self.hear(Question::Sessions).into_iter().flatten().collect();
        let ids: Vec<i64> = sessions.iter().map(|session| session.id).collect();
        let of_threads = self.hear(|reply| Question::Ephemerals(ids.clone(), reply));
        for (at, session) in sessions.iter_mut().enumerate() {
            let paths = of_threads.iter().filter_map(|of_thread| of_thread.get(at));
            session.ephemerals = paths.flatten().cloned().collect();
        }
        sessions
    }

    fn ephemerals(&self, sessions: &[i64]) -> Vec<Vec<String>> {
        let of_threads = self.hear(|reply| Question::Ephemerals(sessions.to_vec(), reply));
        let of_session = |at| of_threads.iter().filter_map(move |of_thread| of_thread.get(at));
        (0..sessions.len()).map(|at| of_session(at).flatten().cloned().collect()).collect()
    }

    fn watch_summary(&self) -> WatchSummary {
        merge::count(&self.watches())
    }

    fn watches(&self) -> Vec<SessionWatches> {
        merge::watches(self.hear(Question::Watches))
    }

    fn partitions(&self) -> Vec<Partition> {
        self.hear(Question::Partitions).into_iter().flatten().collect()
    }

    fn balance(&self, path: Option<&str>) -> Balance {
        let of_first = self.ask_first(|reply| Question::Balance(path.map(str::to_owned), reply));
        of_first.blocking_recv().unwrap_or_default()
    }

    fn move_subtree(&mut self, path: &str, to: u8) -> Result<(), String> {
        let of_first = self.ask_first(|reply| Question::Move(path.to_owned(), to, reply));
        of_first.blocking_recv().unwrap_or_else(|_| Err("the server is stopping".to_owned()))
    }

    fn order_sites(&mut self, order: SiteOrder, reply: oneshot::Sender<Result<(), String>>) {
        // Other sites may have to be asked first, and others have questions too: the thread answers by itself.
        if let Some(inbox) = self.inboxes.first() {
            inbox.tell(Message::Question(Question::Order(order, reply)));
        }
    }

    fn path_token(&self, path: &str) -> Option<PathToken> {
        let of_threads = self.hear(|reply| Question::PathToken(path.to_owned(), reply));
        of_threads.into_iter().flatten().next()
    }

    fn holder_by(&self, path: &str, token: PathToken) -> Option<Holder> {
        let of_first = self.ask_first(|reply| Question::HolderBy(path.to_owned(), token, reply));
        of_first.blocking_recv().unwrap_or_default()
    }

    fn lost(&mut self, asked: LostAsked, reply: oneshot::Sender<Result<LostView, String>>) {
        // It takes long, and others have questions too: the thread answers by itself.
        if let Some(inbox) = self.inboxes.first() {
            inbox.tell(Message::Question(Question::Lost(asked, reply)));
        }
    }

    fn may_administer(&self, identities: &[Identity]) -> bool {
        let of_first = self.ask_first(|reply| Question::MayAdminister(identities.to_vec(), reply));
        of_first.blocking_recv().unwrap_or(false)
    }

    fn digests(&self) -> Vec<Digest> {
        merge::digests(&self.hear(Question::Digests))
    }

    fn reset_stats(&mut self) {
        self.hear(Question::ResetStats);
    }

    fn reset_connections(&mut self) {
        self.hear(Question::ResetConnections);
    }

    fn snapshot(&mut self, reply: oneshot::Sender<Result<SnapshotDone, String>>) {
        let asked = self.ask(Question::Snapshot);
        // It may take long, and others have questions too.
        let waiting = std::thread::Builder::new().name("snapshots".into()).spawn(move || {
            let _ = reply.send(all_done(asked));
        });
        if let Err(error) = waiting {
            tracing::warn!("nobody can wait for the snapshots: {error}");
        }
    }
}

/// Snapshots of all partitions are one of the server.
fn all_done(asked: Awaited<Result<SnapshotDone, String>>) -> Result<SnapshotDone, String> {
    let mut all = SnapshotDone { zxid: 0, bytes: 0 };
    for answer in asked {
        let done = answer.blocking_recv().map_err(|_| "the server is stopping".to_owned())??;
        all = SnapshotDone { zxid: all.zxid.max(done.zxid), bytes: all.bytes + done.bytes };
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::inbox;
    use crate::view::tests::Example;

    /// Asks threads that all answer as the example does.
    fn asked_of<T>(threads: usize, ask: impl FnOnce(&mut Together) -> T) -> T {
        let (senders, inboxes): (Vec<_>, Vec<_>) = (0..threads).map(|_| inbox()).unzip();
        for mut inbox in inboxes {
            std::thread::spawn(move || {
                let mut example = Example::default();
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                while runtime.block_on(inbox.wait()) {
                    if let Some(Message::Question(question)) = inbox.take() {
                        question.answer(&mut example);
                    }
                }
            });
        }
        ask(&mut Together { inboxes: senders.into(), door: Arc::default(), answering: Arc::default() })
    }

    #[test]
    fn answers_of_all_threads_are_put_together() {
        let stats = asked_of(3, |together| together.stats());
        assert_eq!((stats.partitions, stats.znodes, stats.answered), (3, 21, 3_000));
        assert_eq!(asked_of(3, |together| together.connections().len()), 6);
        assert_eq!(asked_of(3, |together| together.partitions().len()), 3);
        assert_eq!(asked_of(2, |together| together.digests().len()), 1);
        let done = asked_of(2, |together| {
            let (reply, answer) = oneshot::channel();
            together.snapshot(reply);
            answer.blocking_recv().unwrap()
        });
        assert_eq!(done, Ok(SnapshotDone { zxid: 0x2a, bytes: 4_096 }));
    }

    #[test]
    fn who_has_ended_keeps_nobody_waiting() {
        let (sender, _) = inbox();
        let mut gone =
            Together { inboxes: Arc::new([sender]), door: Arc::default(), answering: Arc::default() };
        assert_eq!((gone.stats().znodes, gone.connections().len()), (0, 0));
        let (reply, answer) = oneshot::channel();
        gone.snapshot(reply);
        assert_eq!(answer.blocking_recv().unwrap(), Err("the server is stopping".to_owned()));
    }
}
