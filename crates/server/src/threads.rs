//! The threads of a server with several partitions: how they hear of each other, of clients, and of the
//! end.
//!
//! The first partition's thread is the one that the server began on. It accepts the connections and
//! gives them to all threads in turn, itself among them; from then on a connection stays where it is.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, TcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use stoa_core::{ConnectError, Shard, ShardMessage};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio::task::LocalSet;

use crate::clock::Clock;
use crate::driver::{Driver, Surroundings};
use crate::ensemble::Meeting;
use crate::inbox::{Inbox, InboxSender, Message};
use crate::log_thread::{DiskEvent, FIRST};
use crate::peers::PeerEvent;
use crate::process::Process;
use crate::tls::Accepted;
use crate::together::Together;

/// How often threads that are to end look whether they can.
pub(crate) const END_CHECK: Duration = Duration::from_millis(10);

/// So many messages are heard before sockets and timers have their turn: about a millisecond's work.
const TURN_MESSAGES: usize = 1024;

/// The others, as one of the threads sees them.
pub(crate) struct Neighbours {
    own: u8,
    pub(crate) together: Together,
    /// What is said to each, and not told yet.
    said: RefCell<Vec<Vec<ShardMessage>>>,
}

impl Neighbours {
    pub(crate) fn new(own: u8, together: Together) -> Self {
        let said = together.inboxes.iter().map(|_| Vec::new()).collect();
        Self { own, together, said: RefCell::new(said) }
    }

    /// The partition of the thread whose neighbours they are.
    pub(crate) fn own(&self) -> u8 {
        self.own
    }

    /// Tells the other threads what there is for them.
    pub(crate) fn say_all(&self, messages: impl Iterator<Item = (u8, ShardMessage)>) {
        self.say_urgent(messages);
        let mut said = self.said.borrow_mut();
        for (said, inbox) in
            said.iter_mut().zip(self.together.inboxes.iter()).filter(|(said, _)| !said.is_empty())
        {
            let next = Vec::with_capacity(said.len().min(TURN_MESSAGES));
            inbox.tell(Message::Batch(self.own, core::mem::replace(said, next)));
        }
    }

    /// Tells them what is urgent at once, and collects the rest: to tell a thread much costs one look at whether it
    /// sleeps, and so does to tell it little.
    fn say_urgent(&self, messages: impl Iterator<Item = (u8, ShardMessage)>) {
        let mut said = self.said.borrow_mut();
        for (to, message) in messages {
            match (self.together.inboxes.get(usize::from(to)), said.get_mut(usize::from(to))) {
                (Some(inbox), _) if message.is_urgent() => inbox.tell(Message::Shard(self.own, message)),
                (_, Some(said)) => said.push(message),
                _ => {}
            }
        }
    }

    /// What was taken for a client is a side connection: it has taken nobody's turn.
    fn is_no_client(&self) {
        self.together.door.turn.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whose the next client is: where it goes, or `None` if it is this thread's own.
    pub(crate) fn next(&self) -> Option<&InboxSender> {
        let inboxes = &self.together.inboxes;
        let turn = self.together.door.turn.fetch_add(1, Ordering::Relaxed) % inboxes.len();
        inboxes.get(turn).filter(|_| turn != usize::from(self.own))
    }
}

/// Counts the connections of all threads, for the limits on them.
#[derive(Debug, Default)]
pub(crate) struct Door {
    open: Mutex<HashMap<IpAddr, usize>>,
    /// Whose turn it is to get a client.
    turn: AtomicUsize,
    rejected: AtomicU64,
    max: usize,
    max_per_address: usize,
}

/// A connection that was let in; it counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Pass {
    door: Arc<Door>,
    address: IpAddr,
}

impl Door {
    /// With these limits in all and for one address; 0 is no limit.
    pub(crate) fn new(max: usize, max_per_address: usize) -> Self {
        Self { max, max_per_address, ..Self::default() }
    }

    /// Lets a client in, unless a limit is reached.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Result<Pass, ConnectError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = if self.max != 0 && open.values().sum::<usize>() >= self.max {
            Some(ConnectError::TooMany { limit: self.max })
        } else {
            let from_address = open.get(&address).copied().unwrap_or(0);
            (self.max_per_address != 0 && from_address >= self.max_per_address)
                .then_some(ConnectError::TooManyFromAddress { limit: self.max_per_address })
        };
        if let Some(refused) = refused {
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return Err(refused);
        }
        *open.entry(address).or_default() += 1;
        Ok(Pass { door: Arc::clone(self), address })
    }

    /// How many were not let in.
    pub(crate) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut open = self.door.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

impl Driver {
    /// Hears what other threads of this server have said, as much of it as is for one turn.
    pub(crate) fn heed(self: &Rc<Self>, inbox: &mut Inbox) {
        let now = self.now();
        for _ in 0..TURN_MESSAGES {
            let Some(message) = inbox.take() else { break };
            let is_urgent = message.is_urgent();
            match message {
                Message::Shard(from, message) => self.server.borrow_mut().hear(from, message, now),
                Message::Batch(from, messages) => {
                    let mut server = self.server.borrow_mut();
                    messages.into_iter().for_each(|message| server.hear(from, message, now));
                }
                Message::Client(accepted, pass) => self.take_client(accepted, pass),
                Message::Side(accepted, pass) => self.take_side(accepted, pass),
                Message::Question(question) => question.answer(&mut &**self),
            }
            if is_urgent {
                self.speak_at_once();
            }
        }
        {
            let mut server = self.server.borrow_mut();
            server.settle(now);
            server.turn_ended(self.now());
        }
        self.after_input();
    }

    /// What follows from an urgent message does not wait for the end of a turn, nor does a part that was written for
    /// an operation over several partitions wait for more that goes to the log with it: the other partitions' parts are
    /// on their way.
    fn speak_at_once(&self) {
        if let Some(neighbours) = &self.surroundings.neighbours {
            let mut server = self.server.borrow_mut();
            self.settle(&mut server);
            neighbours.say_urgent(core::iter::from_fn(|| server.poll_message()));
        }
        if self.server.borrow().has_written_part() {
            self.log_entries();
        }
    }

    fn take_client(self: &Rc<Self>, accepted: Accepted<TcpStream>, pass: Pass) {
        let address = accepted.address;
        match accepted.attach() {
            Ok(accepted) => {
                let driver = Rc::clone(self);
                tokio::task::spawn_local(async move {
                    if let Some((partition, accepted)) = Rc::clone(&driver).connection(accepted).await {
                        driver.pass_side(partition, accepted, pass);
                    }
                });
            }
            Err(error) => tracing::warn!("connection from {address} is lost: {error}"),
        }
    }

    fn take_side(self: &Rc<Self>, accepted: Accepted<TcpStream>, pass: Pass) {
        let address = accepted.address;
        match accepted.attach() {
            Ok(accepted) => {
                let driver = Rc::clone(self);
                tokio::task::spawn_local(async move {
                    driver.side_connection(accepted).await;
                    drop(pass);
                });
            }
            Err(error) => tracing::warn!("connection from {address} is lost: {error}"),
        }
    }

    /// A side connection goes to the thread of its partition. One that is for none is closed.
    fn pass_side(&self, partition: u8, accepted: Accepted, pass: Pass) {
        let Some(neighbours) = &self.surroundings.neighbours else { return };
        neighbours.is_no_client();
        let address = accepted.address;
        match (neighbours.together.inboxes.get(usize::from(partition)), accepted.detach()) {
            (Some(inbox), Ok(accepted)) => inbox.tell(Message::Side(accepted, pass)),
            (None, _) => {
                tracing::info!("connection from {address} closed: there is no partition {partition}");
            }
            (_, Err(error)) => tracing::warn!("connection from {address} is lost: {error}"),
        }
    }

    /// Lets a client in that has connected to a server with several threads: it belongs to the one whose
    /// turn it is.
    pub(crate) fn greet(self: &Rc<Self>, accepted: Accepted) {
        let Some(neighbours) = &self.surroundings.neighbours else { return };
        let address = accepted.address;
        match neighbours.together.door.admit(address.ip()) {
            Err(refused) => self.refuse_client(address, &refused),
            Ok(pass) => match (neighbours.next(), accepted.detach()) {
                (None, Ok(accepted)) => self.take_client(accepted, pass),
                (Some(inbox), Ok(accepted)) => inbox.tell(Message::Client(accepted, pass)),
                (_, Err(error)) => tracing::warn!("connection from {address} is lost: {error}"),
            },
        }
    }
}

/// Marks what a partition's thread logs, where there are several.
pub(crate) fn span(partition: u8) -> tracing::Span {
    tracing::info_span!("partition", number = partition)
}

/// What the threads besides the first are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Serve,
    /// Say when nothing waits for the log, nor for a server that could lead in this one's place.
    Settle,
    /// Let clients go, be it before they are answered, and say when none is left.
    Dismiss {
        at_once: bool,
    },
    End,
}

/// How far a thread is that stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StopStage {
    None,
    Settled,
    Dismissed,
}

/// The threads besides the first, as that one holds them. They end with it.
pub(crate) struct Others {
    order: watch::Sender<Order>,
    /// Each one's [`StopStage`].
    progress: Vec<Arc<AtomicU8>>,
    threads: Vec<JoinHandle<()>>,
}

impl Others {
    /// Of a server with one partition: nobody.
    pub(crate) fn none() -> Self {
        Self { order: watch::Sender::new(Order::Serve), progress: Vec::new(), threads: Vec::new() }
    }

    /// Starts one more thread.
    pub(crate) fn start(&mut self, beginning: Beginning) -> std::io::Result<()> {
        let progress = Arc::new(AtomicU8::new(StopStage::None as u8));
        self.progress.push(Arc::clone(&progress));
        let order = self.order.subscribe();
        let name = format!("partition-{}", beginning.surroundings.partition);
        self.threads.push(std::thread::Builder::new().name(name).spawn(move || {
            let reports = beginning.surroundings.reports.clone();
            if let Err(why) = beginning.run(order, &progress) {
                // The first thread ends the server.
                reports.tell(FIRST, DiskEvent::Failed(why));
            }
        })?);
        Ok(())
    }

    /// The server stops when they have nothing under way.
    pub(crate) fn settle(&self) {
        self.order.send_replace(Order::Settle);
    }

    /// Whether each of them had nothing under way at some moment since.
    pub(crate) fn are_settled(&self) -> bool {
        self.have_come_to(StopStage::Settled)
    }

    /// Their clients are let go; true when none is left.
    pub(crate) fn dismiss(&self, at_once: bool) -> bool {
        self.order.send_if_modified(|order| {
            let dismiss = Order::Dismiss { at_once };
            std::mem::replace(order, dismiss) != dismiss
        });
        self.have_come_to(StopStage::Dismissed)
    }

    fn have_come_to(&self, aim: StopStage) -> bool {
        self.progress.iter().all(|progress| progress.load(Ordering::Acquire) >= aim as u8)
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.order.send_replace(Order::End);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// What the thread of a partition begins with.
pub(crate) struct Beginning {
    pub(crate) shard: Shard,
    pub(crate) clock: Clock,
    pub(crate) process: Arc<Process>,
    pub(crate) surroundings: Surroundings,
    /// Where there are other servers.
    pub(crate) meeting: Option<Meeting>,
    pub(crate) events: UnboundedReceiver<DiskEvent>,
    pub(crate) inbox: Inbox,
}

/// What a thread is told.
pub(crate) struct Inputs {
    events: UnboundedReceiver<DiskEvent>,
    inbox: Inbox,
    peer_events: UnboundedReceiver<PeerEvent>,
}

impl Inputs {
    /// Waits for the next thing that the thread is told, and does what has to be done then. `Err` when the
    /// server must stop. Who stops waiting misses nothing.
    pub(crate) async fn take(&mut self, driver: &Rc<Driver>) -> Result<(), String> {
        tokio::select! {
            biased;
            event = self.events.recv() => driver.disk_events(event, &mut self.events),
            // Of a server with one partition nobody is told anything: then this never comes.
            true = self.inbox.wait() => {
                driver.heed(&mut self.inbox);
                if self.inbox.has_more() {
                    // Sockets and timers have their turn first.
                    tokio::task::yield_now().await;
                }
                Ok(())
            }
            // Alone nobody tells: then this never comes.
            Some(event) = self.peer_events.recv() => driver.peer_events(event, &mut self.peer_events),
        }
    }
}

impl Beginning {
    /// Takes up the work, on the partition's own thread from now on. Must be called on a `LocalSet`.
    pub(crate) fn begin(self) -> Result<(Rc<Driver>, Inputs), String> {
        let Self { shard, clock, process, surroundings, meeting, events, inbox } = self;
        let reports = surroundings.reports.clone();
        let driver = Driver::new(shard, clock, process, surroundings);
        let (peer_events_in, peer_events) = unbounded_channel();
        if let Some(meeting) = meeting {
            let ensemble = {
                let server = driver.server.borrow();
                meeting.begin(&driver.process.settings, server.changed_servers(), reports, peer_events_in)?
            };
            let _ = driver.ensemble.set(ensemble);
        }
        driver.begin();
        Ok((driver, Inputs { events, inbox, peer_events }))
    }

    fn run(self, order: watch::Receiver<Order>, progress: &AtomicU8) -> Result<(), String> {
        let partition = self.surroundings.partition;
        let _shown = span(partition).entered();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("the runtime of partition {partition}: {error}"))?;
        LocalSet::new().block_on(&runtime, serve(self, order, progress))
    }
}

async fn serve(
    beginning: Beginning,
    mut order: watch::Receiver<Order>,
    progress: &AtomicU8,
) -> Result<(), String> {
    let (driver, mut inputs) = beginning.begin()?;
    let mut current = Order::Serve;
    while current != Order::End {
        tokio::select! {
            biased;
            taken = inputs.take(&driver) => taken?,
            changed = order.changed() => match changed {
                Ok(()) => current = *order.borrow_and_update(),
                Err(_) => current = Order::End,
            },
            () = tokio::time::sleep(END_CHECK), if current != Order::Serve => {}
        }
        // The lead goes where the first partition's goes.
        if current == Order::Settle && driver.is_settled() && !driver.leads_though_others_could() {
            progress.store(StopStage::Settled as u8, Ordering::Release);
        }
        if let Order::Dismiss { at_once } = current
            && driver.dismiss(at_once)
        {
            progress.store(StopStage::Dismissed as u8, Ordering::Release);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::inbox;

    #[test]
    fn limits_hold_for_all_threads_together() {
        let door = Arc::new(Door::new(3, 2));
        let admit = |last: u8| door.admit(IpAddr::from([10, 0, 0, last]));
        let first = admit(1).unwrap();
        let second = admit(1).unwrap();
        assert!(matches!(admit(1), Err(ConnectError::TooManyFromAddress { limit: 2 })));
        let third = admit(2).unwrap();
        assert!(matches!(admit(3), Err(ConnectError::TooMany { limit: 3 })));
        assert_eq!(door.rejected(), 2);
        drop(first);
        let fourth = admit(1).unwrap();
        drop((second, third, fourth));
        assert!(door.open.lock().unwrap().is_empty());
    }

    #[test]
    fn clients_go_to_all_threads_in_turn() {
        let (senders, mut inboxes): (Vec<_>, Vec<_>) = (0..3).map(|_| inbox()).unzip();
        let together = Together { inboxes: senders.into(), door: Arc::default(), answering: Arc::default() };
        let neighbours = Neighbours::new(0, together);
        let mut own = 0;
        for _ in 0..9 {
            match neighbours.next() {
                Some(inbox) => inbox.tell(Message::Shard(0, ShardMessage::Clock(1))),
                None => own += 1,
            }
        }
        let given: Vec<_> =
            inboxes.iter_mut().map(|inbox| std::iter::from_fn(|| inbox.take()).count()).collect();
        assert_eq!((own, given), (3, vec![0, 3, 3]));
    }
}
