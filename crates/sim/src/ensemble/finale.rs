//! The end of a run: nothing goes wrong any more, and everything must come to its end.

use super::client::Client;
use super::network::Weather;
use super::roster::{Wish, any_roster};
use super::world::{Event, Outcome, World};
use crate::check::Violation;
use crate::world::Failure;
use stoa_tree::Tree;

/// By then everybody has an answer, microseconds after the last trouble.
const PATIENCE_US: u64 = 40_000_000;
/// By then every server has applied everything.
const CATCH_UP_US: u64 = 10_000_000;
/// By then the members are those of the list of servers.
const SETTLE_US: u64 = 20_000_000;

impl World {
    /// Heals everything and waits for the end: every server runs, a leader is found, all requests are
    /// answered or their connections closed, writes succeed through every server, sessions that were
    /// left alone end, all states are equal, and survive a loss of power everywhere.
    ///
    /// # Errors
    /// What went wrong.
    pub fn finish(mut self) -> Result<Outcome, Failure> {
        self.heal();
        self.clients_leave()?;
        self.sessions_end()?;
        if self.settings.spares > 0 {
            self.reconfigure_once_more()?;
        }
        self.members_settle()?;
        for server in self.roster().ids() {
            let index = self.clients.len();
            let server = usize::from(server) - 1;
            let probe = Client::probe(index, self.rng.fork(), self.settings.manners, server);
            self.enter(Box::new(probe));
        }
        self.clients_leave()?;
        self.catch_up()?;
        for id in self.ids() {
            self.fell(id, true);
        }
        for id in self.ids() {
            self.rise(id);
        }
        self.pass(2_000_000)?;
        self.catch_up()?;
        Ok(self.outcome())
    }

    /// The same for visitors who are there for their own sake: heals everything, lets them finish and sessions
    /// end that nobody speaks for, and has somebody judge the state.
    ///
    /// # Errors
    /// What went wrong.
    pub(crate) fn visit(
        mut self,
        judge: impl FnOnce(&Tree) -> Result<(), Violation>,
    ) -> Result<Outcome, Failure> {
        self.live()?;
        self.heal();
        self.clients_leave()?;
        self.sessions_end()?;
        judge(self.history.tree())?;
        Ok(self.outcome())
    }

    /// Everybody says its last words.
    fn clients_leave(&mut self) -> Result<(), Failure> {
        let end_us = self.now_us + PATIENCE_US;
        while !self.clients.iter().all(|client| client.is_done()) {
            self.step()?;
            if self.now_us > end_us {
                let waits = self.clients.iter().find(|client| !client.is_done());
                let what = waits.map_or_else(String::new, |it| it.waits_for());
                self.show_standings();
                return Err(Failure::Liveness(format!(
                    "{} s after the end of all trouble {what}",
                    PATIENCE_US / 1_000_000
                )));
            }
        }
        Ok(())
    }

    /// The list of servers can still be changed, to any other one.
    fn reconfigure_once_more(&mut self) -> Result<(), Failure> {
        self.members_settle()?;
        let wanted = any_roster(&mut self.rng, self.machines.len());
        let servers: Vec<u8> = self.roster().ids().filter(|id| wanted.contains(*id)).collect();
        let Some(server) = servers.first() else { return Ok(()) };
        self.trace.event(self.now_us, "reconfig", format_args!("once more: {}", wanted.text()));
        self.enter_operator(*server, Wish::all(wanted.clone()));
        self.clients_leave()?;
        if self.roster() == wanted {
            return Ok(());
        }
        Err(Violation::new("the list of servers is another one than it was told to be").into())
    }

    fn show_standings(&mut self) {
        for (id, machine) in &self.machines {
            let standing = machine.process.as_ref().map(|process| process.server.status());
            self.trace.event(self.now_us, "standing", format_args!("server {id}: {standing:?}"));
        }
    }

    /// The members become those of the list, and all of them know it.
    fn members_settle(&mut self) -> Result<(), Failure> {
        let end_us = self.now_us + SETTLE_US;
        loop {
            let roster = self.roster();
            let running = |id: &u8| self.machines[id].process.as_ref().map(|it| it.server.status());
            let unsettled = roster.ids().find(|id| {
                let standing = running(id);
                !standing.is_some_and(|it| it.leader != 0 && self.is_settled(&it))
            });
            let Some(id) = unsettled else { return Ok(()) };
            if self.now_us > end_us {
                let standing = running(&id);
                self.show_standings();
                return Err(Failure::Liveness(format!(
                    "the members do not become those of the list of servers: server {id}: {:?}; {}",
                    standing,
                    roster.text()
                )));
            }
            self.step()?;
        }
    }

    pub(super) fn ids(&self) -> Vec<u8> {
        self.machines.keys().copied().collect()
    }

    fn heal(&mut self) {
        self.healing = true;
        self.falls += 1;
        self.trace.event(self.now_us, "heal", format_args!("nothing goes wrong any more"));
        self.network.weather = Weather { loss_percent: 0, double_percent: 0, late_percent: 0 };
        self.mend();
        for (key, way) in self.links.mend() {
            self.schedule(1, Event::Freed(key, way));
        }
        for id in self.ids() {
            self.room(id);
            self.flip_back(id);
            let Some(machine) = self.machines.get_mut(&id) else { continue };
            machine.disk.clear_fault();
            machine.slow_until_us = 0;
            machine.paused_until_us = 0;
            let life = machine.life;
            let is_down = std::mem::take(&mut machine.stays_down);
            // What a slow disk has begun would take seconds still: sessions may not end before it.
            self.schedule(1, Event::LogDone(id, life));
            self.schedule(1, Event::SnapshotDone(id, life));
            if is_down {
                self.schedule(1, Event::Restart(id));
            }
            self.schedule_turn(id, self.now_us + 1);
        }
        self.clients.iter_mut().for_each(|client| client.finish());
    }

    /// Sessions that nobody speaks for any more end, and with them their ephemerals.
    fn sessions_end(&mut self) -> Result<(), Failure> {
        let longest_us = self.settings.config.session_timeout_max_ms as u64 * 1000;
        self.pass(longest_us + 2_000_000)?;
        let left = self.clients.iter().flat_map(|client| client.left());
        let mut left = left.copied().filter(|session| {
            self.history.is_global(*session, i64::MAX) && !self.history.is_closed(*session)
        });
        let locals =
            self.machines.values().filter_map(|it| Some(it.process.as_ref()?.server.local_session_count()));
        let locals: usize = locals.sum();
        if locals > 0 {
            return Err(Failure::Liveness(format!("{locals} local sessions do not end")));
        }
        match left.next() {
            None => Ok(()),
            Some(session) => Err(Failure::Liveness(format!("session {session:#x} does not end"))),
        }
    }

    /// Every server comes to the end of the timeline, and to the same state.
    fn catch_up(&mut self) -> Result<(), Failure> {
        let end_us = self.now_us + CATCH_UP_US;
        loop {
            let last = self.history.position();
            let roster = self.roster();
            let members = || self.states().filter(|(id, ..)| roster.contains(*id));
            let behind = members().find(|(_, applied, _)| *applied < last);
            let behind = behind.map(|(id, applied, _)| (id, applied));
            if behind.is_none() && members().count() == roster.ids().count() {
                break;
            }
            if self.now_us > end_us {
                let what = format!("a server stays behind position {last}: {behind:?}");
                self.show_standings();
                return Err(Failure::Liveness(what));
            }
            self.step()?;
        }
        for (id, applied, tree) in self.states() {
            self.history.compare(id, applied, tree)?;
            self.history.compare_order(id, applied, tree)?;
            if tree.digest() != tree.recomputed_digest() {
                return Err(
                    Violation::new(format!("the digest of server {id} is not that of its state")).into()
                );
            }
        }
        Ok(())
    }

    fn outcome(&self) -> Outcome {
        let mut outcome = Outcome {
            fingerprint: self.trace.fingerprint(),
            updates: self.history.zxid() as u64,
            refusals: self.history.refusals(),
            terms: self.history.terms(),
            lasted_us: self.now_us,
            ..self.counts
        };
        for client in &self.clients {
            let counts = client.counts();
            outcome.answers += counts.answers;
            outcome.events += counts.events;
            outcome.moves += counts.moves;
            outcome.read_only += counts.read_only;
        }
        outcome
    }
}
