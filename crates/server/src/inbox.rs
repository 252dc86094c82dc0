//! What a thread is told by others of the same server: messages, clients and questions.
//!
//! Where a partition is asked more than it can answer, thousands of requests wait here. Words that are
//! urgent ([`ShardMessage::is_urgent`]) do not wait behind them: moves of subtrees away from that partition rest on
//! them. So there are two channels: what is urgent is heard before all else that waits, and never after what
//! was said later.

use std::net::TcpStream;

use stoa_core::ShardMessage;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::threads::Pass;
use crate::tls::Accepted;
use crate::view::Question;

/// What a thread is told.
#[derive(Debug)]
pub(crate) enum Message {
    /// Something between two partitions, and which one says it.
    Shard(u8, ShardMessage),
    /// What one of them says in a turn, if nothing of it is urgent.
    Batch(u8, Vec<ShardMessage>),
    /// A client that has connected: it is this thread's from now on.
    Client(Accepted<TcpStream>, Pass),
    /// A side connection of a direct client, for this thread's partition.
    Side(Accepted<TcpStream>, Pass),
    /// Somebody wants to know something.
    Question(Question),
}

impl Message {
    pub(crate) fn is_urgent(&self) -> bool {
        matches!(self, Self::Shard(_, message) if message.is_urgent())
    }
}

/// Where a thread is told something.
#[derive(Debug, Clone)]
pub(crate) struct InboxSender {
    urgent: UnboundedSender<Message>,
    others: UnboundedSender<Message>,
}

impl InboxSender {
    /// Tells the thread. If it has ended, so has the server.
    pub(crate) fn tell(&self, message: Message) {
        let channel = if message.is_urgent() { &self.urgent } else { &self.others };
        let _ = channel.send(message);
    }
}

/// What a thread was told and has not heard yet.
#[derive(Debug)]
pub(crate) struct Inbox {
    urgent: UnboundedReceiver<Message>,
    others: UnboundedReceiver<Message>,
    /// Taken out of a channel already.
    next: Option<Message>,
    /// What comes next of the others, and who says it.
    opened: (u8, std::vec::IntoIter<ShardMessage>),
}

/// A thread's inbox, and where it is told something.
pub(crate) fn inbox() -> (InboxSender, Inbox) {
    let ((urgent_in, urgent), (others_in, others)) = (unbounded_channel(), unbounded_channel());
    let opened = (0, Vec::new().into_iter());
    (InboxSender { urgent: urgent_in, others: others_in }, Inbox { urgent, others, next: None, opened })
}

impl Inbox {
    /// Waits until there is something; false when there never will be. Who stops waiting misses nothing.
    pub(crate) async fn wait(&mut self) -> bool {
        self.next = self.next.take().or_else(|| self.next_opened());
        if self.next.is_none() {
            let next = tokio::select! {
                biased;
                Some(urgent) = self.urgent.recv() => Some(urgent),
                Some(other) = self.others.recv() => Some(other),
                else => None,
            };
            self.next = next.and_then(|next| self.open(next));
        }
        self.next.is_some()
    }

    fn next_opened(&mut self) -> Option<Message> {
        let (from, messages) = &mut self.opened;
        messages.next().map(|message| Message::Shard(*from, message))
    }

    /// The first of several messages, which are not empty.
    fn open(&mut self, message: Message) -> Option<Message> {
        match message {
            Message::Batch(from, messages) => {
                self.opened = (from, messages.into_iter());
                self.next_opened()
            }
            message => Some(message),
        }
    }

    /// What is to be heard next, if there is something now.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Message> {
        if self.next.is_none() {
            self.next = self.next_opened();
        }
        if self.next.is_none() {
            let next = self.others.try_recv().ok();
            self.next = next.and_then(|next| self.open(next));
        }
        if self.next.as_ref().is_some_and(Message::is_urgent) {
            return self.next.take();
        }
        // Only now: whatever was said before the next of the others, and is urgent, can be seen by now.
        self.urgent.try_recv().ok().or_else(|| self.next.take())
    }

    /// Whether there is more to hear.
    pub(crate) fn has_more(&self) -> bool {
        let has_opened = self.next.is_some() || self.opened.1.len() > 0;
        has_opened || !self.urgent.is_empty() || !self.others.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoa_core::ShardMessage;

    /// Words that are told apart by a number; those of a crossing are urgent.
    fn message(number: u64, is_urgent: bool) -> Message {
        let stand = ShardMessage::Quiesce { op: number, is_quiet: true, asked: None };
        let reached = ShardMessage::Watermark { position: number, clock: 0 };
        Message::Shard(0, if is_urgent { stand } else { reached })
    }

    fn heard(inbox: &mut Inbox) -> Vec<u64> {
        std::iter::from_fn(|| inbox.take())
            .map(|message| match message {
                Message::Shard(_, ShardMessage::Quiesce { op, .. }) => op,
                Message::Shard(_, ShardMessage::Watermark { position, .. }) => position,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[tokio::test]
    async fn what_is_urgent_is_heard_before_what_waits_and_all_else_in_order() {
        let (sender, mut inbox) = inbox();
        for number in 0..1000 {
            sender.tell(message(number, false));
        }
        // Also one that is told while the thread is woken by what it was told before.
        assert!(inbox.wait().await);
        sender.tell(message(1000, true));
        sender.tell(message(1001, true));
        assert!(matches!(inbox.take(), Some(Message::Shard(0, ShardMessage::Quiesce { op: 1000, .. }))));
        sender.tell(message(1002, true));
        sender.tell(message(1003, false));
        let expected: Vec<u64> = [1001, 1002].into_iter().chain(0..1000).chain([1003]).collect();
        assert!(inbox.has_more());
        assert_eq!(heard(&mut inbox), expected);
        assert!(!inbox.has_more());
        // Nothing that is urgent is overtaken, whatever the thread was woken by.
        sender.tell(message(1, true));
        sender.tell(message(2, false));
        sender.tell(message(3, true));
        assert!(inbox.wait().await);
        assert_eq!(heard(&mut inbox), [1, 3, 2]);
        let messages = [4, 5].map(|position| ShardMessage::Watermark { position, clock: 0 });
        sender.tell(Message::Batch(1, messages.into()));
        assert!(inbox.wait().await);
        sender.tell(message(6, false));
        sender.tell(message(7, true));
        assert_eq!(heard(&mut inbox), [7, 4, 5, 6], "what several messages hold is overtaken too");
        sender.tell(message(4, false));
        drop(sender);
        assert!(inbox.wait().await);
        assert_eq!(heard(&mut inbox), [4]);
        assert!(!inbox.wait().await);
    }
}
