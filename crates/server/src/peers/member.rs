//! What is known of another member, and its connections.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::hello::Identity;
use super::link::{Direction, Link, Meter, ReceiveWindow};
use crate::{clock, random};

/// A member of the ensemble, and where it listens for the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerAddress {
    /// The member.
    pub(crate) id: u64,
    /// A name, looked up at every attempt, or an IP address.
    pub(crate) host: String,
    /// The port for other servers.
    pub(crate) port: u16,
}

/// How it stands with a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerStatus {
    /// Its id and address.
    pub(crate) address: PeerAddress,
    /// Since when it has been connected, milliseconds since the epoch; `None` when it is not.
    pub(crate) connected_ms: Option<i64>,
    /// What it says of itself, when it is connected.
    pub(crate) identity: Option<Identity>,
    /// The last thing that went wrong, also if it has been well since.
    pub(crate) last_error: Option<String>,
    /// Bytes received on connections for messages.
    pub(crate) bytes_in: u64,
    /// Bytes sent on connections for messages.
    pub(crate) bytes_out: u64,
    /// Messages received.
    pub(crate) messages_in: u64,
    /// Messages queued to be sent.
    pub(crate) messages_out: u64,
    /// Bytes that wait to be sent.
    pub(crate) queued_bytes: u64,
    /// Whether it is sending a snapshot.
    pub(crate) sends_snapshot: bool,
}

impl Direction {
    pub(super) fn other(self) -> Self {
        match self {
            Self::To => Self::From,
            Self::From => Self::To,
        }
    }
}

/// A connection that is up, and whom it leads to.
pub(super) struct Up {
    pub(super) link: Rc<Link>,
    pub(super) identity: Identity,
}

/// One other member.
pub(super) struct PeerMember {
    pub(super) id: u64,
    address: RefCell<PeerAddress>,
    /// How often its address has changed.
    pub(super) moves: Cell<u64>,
    to: RefCell<Option<Up>>,
    from: RefCell<Option<Up>>,
    /// Since when both connections have been up.
    pub(super) connected_ms: Cell<Option<i64>>,
    last_error: RefCell<Option<String>>,
    /// The process that has connected last, and the one before it.
    processes: Cell<[Option<u64>; 2]>,
    pub(super) meter: Rc<Meter>,
    pub(super) window: Rc<ReceiveWindow>,
    /// Something is queued since the last flush.
    pub(super) unsent: Cell<bool>,
    /// The peer is up: there is no need to wait before the next attempt.
    pub(super) redial: Notify,
    pub(super) dialer: RefCell<Option<AbortHandle>>,
    pub(super) sending: RefCell<Option<AbortHandle>>,
    pub(super) receiving: RefCell<Option<AbortHandle>>,
    /// Waits for the peer's lifeline to end.
    pub(super) watching: RefCell<Option<AbortHandle>>,
}

impl PeerMember {
    pub(super) fn new(address: PeerAddress) -> Self {
        Self {
            id: address.id,
            address: RefCell::new(address),
            moves: Cell::default(),
            to: RefCell::default(),
            from: RefCell::default(),
            connected_ms: Cell::default(),
            last_error: RefCell::default(),
            processes: Cell::default(),
            meter: Rc::default(),
            window: Rc::default(),
            unsent: Cell::default(),
            redial: Notify::new(),
            dialer: RefCell::default(),
            sending: RefCell::default(),
            receiving: RefCell::default(),
            watching: RefCell::default(),
        }
    }

    pub(super) fn address(&self) -> PeerAddress {
        self.address.borrow().clone()
    }

    /// It is connected to there from now on. A connection that exists stays until there is one to the new address: of
    /// that nobody knows yet whether it is right.
    pub(super) fn set_address(&self, address: PeerAddress) {
        *self.address.borrow_mut() = address;
        self.moves.update(|moves| moves + 1);
        if let Some(dialer) = self.dialer.take().filter(|_| self.to.borrow().is_none()) {
            dialer.abort();
        }
    }

    pub(super) fn links(&self, direction: Direction) -> &RefCell<Option<Up>> {
        match direction {
            Direction::To => &self.to,
            Direction::From => &self.from,
        }
    }

    /// Whether the connection in this direction is this one.
    pub(super) fn has(&self, direction: Direction, link: &Rc<Link>) -> bool {
        self.links(direction).borrow().as_ref().is_some_and(|up| Rc::ptr_eq(&up.link, link))
    }

    pub(super) fn incarnation(&self, direction: Direction) -> Option<u64> {
        self.links(direction).borrow().as_ref().map(|up| up.identity.incarnation())
    }

    /// A process of the peer has connected. True when it is one that another one had taken the place of: whoever has
    /// ended does not come back, so there are two at a time.
    pub(super) fn takes_turns(&self, incarnation: u64) -> bool {
        let [last, before] = self.processes.get();
        if last != Some(incarnation) {
            self.processes.set([Some(incarnation), last]);
        }
        last != Some(incarnation) && before == Some(incarnation)
    }

    /// What the peer is sent to on, while it is connected.
    pub(super) fn sends_on(&self) -> Option<Rc<Link>> {
        self.connected_ms.get()?;
        self.to.borrow().as_ref().map(|up| Rc::clone(&up.link))
    }

    /// Makes the peer connected when both connections are up, and returns who it is.
    pub(super) fn connect(&self) -> Option<Identity> {
        let (to, from) = (self.to.borrow(), self.from.borrow());
        let (Some(_), Some(from)) = (to.as_ref(), from.as_ref()) else { return None };
        self.connected_ms.set(Some(clock::wall_ms()));
        from.link.open();
        Some(from.identity.clone())
    }

    /// Notes what went wrong; it is told of when it is not the same as before.
    pub(super) fn failed(&self, why: String) {
        let PeerAddress { id, host, port } = &*self.address.borrow();
        let mut last = self.last_error.borrow_mut();
        if last.as_ref() != Some(&why) {
            tracing::info!("server {id} ({host} port {port}): {why}");
            *last = Some(why);
        }
    }

    /// Ends what runs for this member.
    pub(super) fn stop(&self) {
        self.moves.update(|moves| moves + 1);
        for task in [&self.dialer, &self.receiving, &self.watching] {
            if let Some(task) = task.take() {
                task.abort();
            }
        }
        if let Some(task) = self.sending.borrow().as_ref() {
            task.abort();
        }
    }

    pub(super) fn status(&self) -> PeerStatus {
        let to = self.to.borrow();
        PeerStatus {
            address: self.address(),
            connected_ms: self.connected_ms.get(),
            identity: to.as_ref().filter(|_| self.connected_ms.get().is_some()).map(|up| up.identity.clone()),
            last_error: self.last_error.borrow().clone(),
            bytes_in: self.meter.bytes_in.get(),
            bytes_out: self.meter.bytes_out.get(),
            messages_in: self.meter.messages_in.get(),
            messages_out: self.meter.messages_out.get(),
            queued_bytes: to.as_ref().map_or(0, |up| up.link.queued_bytes() as u64),
            sends_snapshot: self.receiving.borrow().as_ref().is_some_and(|task| !task.is_finished()),
        }
    }
}

/// How long to wait before the next attempt to connect.
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    /// A connection that lasted so long was a good one.
    pub(super) const LASTED: Duration = Duration::from_millis(100);
    const MIN: Duration = Duration::from_millis(10);
    const MAX: Duration = Duration::from_secs(1);

    pub(super) fn new() -> Self {
        Self { next: Self::MIN }
    }

    /// Up to a quarter more or less than twice the last one: servers that fail together should not
    /// try again together.
    pub(super) fn next(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(Self::MAX);
        let [byte] = random::bytes().unwrap_or([128]);
        wait.mul_f64(0.75 + f64::from(byte) / 510.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_come_ever_later_up_to_a_second() {
        let mut backoff = Backoff::new();
        let mut expected = 10.0;
        for _ in 0..12 {
            let wait = backoff.next().as_secs_f64() * 1000.0;
            assert!((expected * 0.75..=expected * 1.25).contains(&wait), "{wait} for {expected}");
            expected = (expected * 2.0_f64).min(1000.0);
        }
    }
}
