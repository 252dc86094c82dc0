//! What goes wrong, and for how long.

use std::fmt;
use std::time::Duration;

use stoa_client::{Client, CreateMode, ErrorCode};
use stoa_oracle::random::Random;
use stoa_proxy::{Direction, Link};
use tokio::time::{sleep, timeout};

use crate::crew::{Crew, SESSION_TIMEOUT};
use crate::ensemble::{Ensemble, SERVERS};
use crate::guard::Guard;

/// Longer than a session lives that nobody is heard of.
const PAST_SESSION: Duration = Duration::from_millis(3500);
/// So long a fault waits for somebody to come in.
const CATCH_PATIENCE: Duration = Duration::from_secs(30);
/// So long it takes until the connection of a process that was killed is known to be closed, at least.
const KILLED_MIN: Duration = Duration::from_millis(300);
/// A leader has moved a subtree by then, if it can.
const MOVE_MIN: Duration = Duration::from_secs(1);
/// Where the operator says what lives where.
const HINTS: &str = "/zookeeper/partitions";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    KillLeader,
    KillFollower,
    KillAll,
    PauseLeader,
    PauseFollower,
    /// Of who has the lock, for longer than its session lives.
    PauseHolder,
    /// Of anybody.
    PauseClient,
    KillHolder,
    /// No server and holder hear of each other, until its session is over; it goes on with its work.
    CutHolder,
    /// No client and a server hear of each other.
    CutClients,
    /// What a server answers does not arrive, and then connections end.
    CutReplies,
    /// A server hears nothing of the others.
    CutTo,
    /// The others hear nothing of a server.
    CutFrom,
    /// Both.
    Isolate,
    /// The lock goes to live on another partition.
    Move,
}

impl Kind {
    pub(crate) const ALL: [Self; 15] = [
        Self::KillLeader,
        Self::KillFollower,
        Self::KillAll,
        Self::PauseLeader,
        Self::PauseFollower,
        Self::PauseHolder,
        Self::PauseClient,
        Self::KillHolder,
        Self::CutHolder,
        Self::CutClients,
        Self::CutReplies,
        Self::CutTo,
        Self::CutFrom,
        Self::Isolate,
        Self::Move,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::KillLeader => "kill-leader",
            Self::KillFollower => "kill-follower",
            Self::KillAll => "kill-all",
            Self::PauseLeader => "pause-leader",
            Self::PauseFollower => "pause-follower",
            Self::PauseHolder => "pause-holder",
            Self::PauseClient => "pause-client",
            Self::KillHolder => "kill-holder",
            Self::CutHolder => "cut-holder",
            Self::CutClients => "cut-clients",
            Self::CutReplies => "cut-replies",
            Self::CutTo => "cut-to",
            Self::CutFrom => "cut-from",
            Self::Isolate => "isolate",
            Self::Move => "move",
        }
    }

    fn longest(self) -> Duration {
        match self {
            Self::KillAll => Duration::from_millis(500),
            Self::KillLeader | Self::KillFollower | Self::KillHolder => Duration::from_millis(1500),
            Self::PauseLeader | Self::PauseFollower | Self::PauseClient => Duration::from_millis(4500),
            Self::PauseHolder | Self::CutHolder => Duration::from_millis(500),
            _ => Duration::from_millis(3500),
        }
    }

    /// Whether it waits for somebody to come in; there is one at a time that does.
    fn catches(self) -> bool {
        matches!(self, Self::PauseHolder | Self::KillHolder | Self::CutHolder)
    }
}

/// A fault as it was drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    kind: Kind,
    lasts: Duration,
    /// Chooses where the kind leaves a choice.
    pick: usize,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:.1} s)", self.kind.name(), self.lasts.as_secs_f64())
    }
}

/// All kinds of faults, in an order that follows from the seed, again and again.
#[derive(Debug)]
pub(crate) struct Deck {
    random: Random,
    left: Vec<Kind>,
}

impl Deck {
    pub(crate) fn new(random: Random) -> Self {
        Self { random, left: Vec::new() }
    }

    /// One fault, or two at the same time.
    pub(crate) fn draw(&mut self) -> Vec<Fault> {
        let first = self.draw_one();
        let mut faults = vec![first];
        if self.random.once_in(3) {
            let second = self.draw_one();
            if first.kind.catches() && second.kind.catches() {
                self.left.push(second.kind);
            } else {
                faults.push(second);
            }
        }
        faults
    }

    fn draw_one(&mut self) -> Fault {
        if self.left.is_empty() {
            self.left.extend(Kind::ALL);
        }
        let kind = self.left.swap_remove(self.random.below(self.left.len()));
        let longest = kind.longest().as_millis() as usize;
        let lasts = Duration::from_millis(self.random.below(longest + 1) as u64);
        Fault { kind, lasts, pick: self.random.below(1 << 16) }
    }
}

/// Lets faults happen to those who take part in a round.
#[derive(Debug)]
pub(crate) struct Nemesis<'a> {
    pub(crate) ensemble: &'a Ensemble,
    pub(crate) guard: &'a Guard,
    pub(crate) crew: &'a Crew<'a>,
    /// A session of the operator's, around all links.
    pub(crate) operator: &'a Client,
    /// The part of the lock's path that is moved.
    pub(crate) subtree: &'a str,
    pub(crate) partitions: u8,
    pub(crate) clients: usize,
}

impl Nemesis<'_> {
    /// Lets one fault happen, or two at the same time, to their ends. Returns what could not be done.
    pub(crate) async fn wreak(&self, faults: &[Fault]) -> Vec<String> {
        let (one, other) =
            tokio::join!(self.wreak_one(faults.first().copied()), self.wreak_one(faults.get(1).copied()));
        [one, other].into_iter().filter_map(Result::err).collect()
    }

    async fn wreak_one(&self, fault: Option<Fault>) -> Result<(), String> {
        let Some(fault) = fault else { return Ok(()) };
        match fault.kind {
            Kind::KillLeader | Kind::KillFollower | Kind::PauseLeader | Kind::PauseFollower => {
                self.strike_server(fault).await
            }
            Kind::KillAll => {
                self.ensemble.servers.iter().for_each(|server| server.kill());
                sleep(fault.lasts).await;
                self.ensemble.servers.iter().try_for_each(|server| server.start())
            }
            Kind::PauseHolder | Kind::KillHolder | Kind::CutHolder => self.strike_holder(fault).await,
            Kind::PauseClient => {
                let client = fault.pick % self.clients;
                self.crew.pause(client);
                sleep(fault.lasts).await;
                self.crew.resume(client);
                Ok(())
            }
            Kind::CutClients => {
                self.cut_clients(fault, &[Direction::Up, Direction::Down]).await;
                Ok(())
            }
            Kind::CutReplies => {
                self.cut_clients(fault, &[Direction::Down]).await;
                Ok(())
            }
            Kind::CutTo | Kind::CutFrom | Kind::Isolate => {
                let server = fault.pick % SERVERS;
                self.ensemble.cut_between(server, fault.kind == Kind::CutFrom, fault.kind == Kind::CutTo);
                sleep(fault.lasts).await;
                self.ensemble.heal_between(server);
                Ok(())
            }
            Kind::Move => {
                self.move_about(fault).await;
                Ok(())
            }
        }
    }

    async fn strike_server(&self, fault: Fault) -> Result<(), String> {
        let leader = self.ensemble.leader().await;
        let number = match (leader, fault.kind) {
            (None, _) => fault.pick % SERVERS,
            (Some(leader), Kind::KillLeader | Kind::PauseLeader) => leader,
            (Some(leader), _) => (leader + 1 + fault.pick % (SERVERS - 1)) % SERVERS,
        };
        let server = &self.ensemble.servers[number];
        if matches!(fault.kind, Kind::PauseLeader | Kind::PauseFollower) {
            server.pause();
            sleep(fault.lasts).await;
            server.resume();
            return Ok(());
        }
        server.kill();
        sleep(fault.lasts).await;
        server.start()
    }

    /// Something happens to the next one that has come in, before it can do anything else.
    async fn strike_holder(&self, fault: Fault) -> Result<(), String> {
        let caught = timeout(CATCH_PATIENCE, self.guard.catch()).await;
        let caught = caught.ok().flatten().ok_or("nobody has had the lock for long")?;
        let who = caught.who;
        match fault.kind {
            Kind::PauseHolder => {
                self.crew.pause(who);
                caught.let_go(true);
                sleep(PAST_SESSION + fault.lasts).await;
                self.crew.resume(who);
                Ok(())
            }
            Kind::CutHolder => {
                let links = &self.ensemble.clients[who];
                links.iter().for_each(|link| cut(link, &[Direction::Up, Direction::Down]));
                caught.let_go(true);
                sleep(PAST_SESSION + fault.lasts).await;
                links.iter().for_each(Link::heal);
                Ok(())
            }
            _ => {
                self.crew.kill(who);
                sleep(KILLED_MIN + fault.lasts).await;
                self.crew.replace(who)
            }
        }
    }

    async fn cut_clients(&self, fault: Fault, directions: &[Direction]) {
        let server = fault.pick % SERVERS;
        self.ensemble.links_of(server).for_each(|link| cut(link, directions));
        sleep(fault.lasts).await;
        for link in self.ensemble.links_of(server) {
            if directions.len() == 1 {
                link.break_connections();
            }
            link.heal();
        }
    }

    /// Has the lock live on one partition, and then on the next: on one of them it does not live now.
    async fn move_about(&self, fault: Fault) {
        for offset in 0..2 {
            self.pin((fault.pick + offset) % usize::from(self.partitions)).await;
            sleep(MOVE_MIN + fault.lasts / 2).await;
        }
    }

    /// Says where the lock is to live; the leader sees to it.
    async fn pin(&self, partition: usize) {
        let hint = format!("pin {} {partition}\n", self.subtree);
        let said = async {
            match self.operator.set_data(HINTS, hint.as_bytes(), None).await {
                Err(ErrorCode::NoNode) => {
                    self.operator.create(HINTS, hint.as_bytes(), CreateMode::Persistent).await.map(drop)
                }
                other => other.map(drop),
            }
        };
        // There may be no leader, and whether it was done or not is no matter.
        let _ = timeout(SESSION_TIMEOUT, said).await;
    }
}

fn cut(link: &Link, directions: &[Direction]) {
    directions.iter().for_each(|direction| link.cut(*direction));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_fault_is_drawn() {
        let mut deck = Deck::new(Random::new(7));
        let mut drawn = Vec::new();
        while drawn.len() < Kind::ALL.len() {
            drawn.extend(deck.draw().iter().map(|fault| fault.kind.name()));
        }
        drawn.sort_unstable();
        drawn.dedup();
        assert!(drawn.len() >= Kind::ALL.len() - 1, "{drawn:?}");
    }
}
