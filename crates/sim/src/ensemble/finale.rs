//! The end of a run: nothing goes wrong any more, and everything must come to its end.

use super::HostId;
use super::client::Client;
use super::network::Weather;
use super::roster::{Wish, any_roster};
use super::visitor::Judges;
use super::workload::Tagged;
use super::world::{Failure, Happening, Outcome, World};
use std::ops::Add;
use stoa_check::{Checked, Checker, Counts, wrong};
use stoa_core::{Replica, Status};
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
    pub fn finish(self) -> Result<Outcome, Failure> {
        self.finish_with(|_| Ok(()))
    }

    /// The same, and has somebody judge what it has come to, before and after all power is lost.
    pub(crate) fn finish_with(mut self, judge: impl Fn(&Self) -> Checked) -> Result<Outcome, Failure> {
        self.heal();
        self.clients_leave()?;
        self.sessions_end()?;
        self.members_settle()?;
        if self.judges.checker.is_some() {
            self.come_to_rest()?;
        } else if self.partitions() == 1 {
            self.probe()?;
        }
        self.catch_up()?;
        self.judge(&judge)?;
        for id in self.ids() {
            self.fell(id, true);
        }
        for id in self.ids() {
            self.rise(id);
        }
        self.pass(2_000_000)?;
        self.catch_up()?;
        self.judge(&judge)?;
        Ok(self.outcome())
    }

    fn judge(&mut self, judge: impl Fn(&Self) -> Checked) -> Checked {
        judge(self)?;
        let Some(checker) = &mut self.judges.checker else { return Ok(()) };
        for process in self.machines.values().filter_map(|machine| machine.process.as_ref()) {
            checker.compare_at_rest(process.first())?;
        }
        Ok(())
    }

    /// The only server has nothing under way any more, and has then taken a snapshot, from which its last start begins.
    fn come_to_rest(&mut self) -> Result<(), Failure> {
        let end_us = self.now_us + SETTLE_US;
        let mut before = None;
        loop {
            let only = self.settings.manners.first_id;
            let now = self.machines[&only].clock.now(self.now_us);
            if let (Some(process), Some(checker)) = (self.process(only), &self.judges.checker)
                && checker.is_idle(process.first(), now)
            {
                match before {
                    None => {
                        before = Some(self.counts.snapshots);
                        self.process_mut(only)
                            .into_iter()
                            .for_each(|it| it.thread(0).core.request_snapshot());
                        self.schedule_turn(1, 0, self.now_us);
                    }
                    Some(before) if self.counts.snapshots > before => return Ok(()),
                    Some(_) => {}
                }
            }
            if self.now_us > end_us {
                return self.stuck("the server does not come to rest, or takes no snapshot");
            }
            self.step()?;
        }
    }

    /// The list of servers can be changed once more, and each server serves a new client.
    fn probe(&mut self) -> Result<(), Failure> {
        if self.settings.spares > 0 {
            self.reconfigure_once_more()?;
            self.members_settle()?;
        }
        for server in self.roster().ids().chain(self.readers()).collect::<Vec<_>>() {
            let index = self.clients.len();
            let server = usize::from(server - self.settings.manners.first_id);
            let probe = Client::probe(index, self.rng.fork(), self.settings.manners, server, Tagged::new());
            self.enter(Box::new(probe));
        }
        self.clients_leave()
    }

    /// The same for visitors who are there for their own sake: heals everything, lets them finish and sessions
    /// end that nobody speaks for, and has somebody judge the state.
    ///
    /// # Errors
    /// What went wrong.
    pub(crate) fn visit(mut self, judge: impl FnOnce(&Self) -> Checked) -> Result<Outcome, Failure> {
        self.live()?;
        self.heal();
        self.clients_leave()?;
        self.sessions_end()?;
        if self.partitions() > 1 {
            self.members_settle()?;
            self.catch_up()?;
        }
        judge(&self)?;
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
                let seconds = PATIENCE_US / 1_000_000;
                return self.stuck(format!("{seconds} s after the end of all trouble {what}"));
            }
        }
        Ok(())
    }

    /// The list of servers can still be changed, to any other one.
    fn reconfigure_once_more(&mut self) -> Result<(), Failure> {
        self.members_settle()?;
        let wanted = any_roster(&mut self.rng, self.settings.ids(self.settings.members()));
        let servers: Vec<HostId> = self.roster().ids().filter(|id| wanted.contains(*id)).collect();
        let Some(server) = servers.first() else { return Ok(()) };
        self.note("reconfig", format_args!("once more: {}", wanted.text()));
        self.enter_operator(*server, Wish::all(wanted.clone()));
        self.clients_leave()?;
        if self.roster() == wanted {
            return Ok(());
        }
        wrong("the list of servers is another one than it was told to be")
    }

    /// What must happen in the end does not.
    pub(crate) fn stuck(&mut self, what: impl Into<String>) -> Result<(), Failure> {
        for (id, machine) in &self.machines {
            let threads = machine.process.iter().flat_map(|process| &process.threads);
            let standing: Vec<_> = threads.map(|thread| thread.core.status()).collect();
            self.trace.event(self.now_us, "standing", format_args!("server {id}: {standing:?}"));
        }
        Err(Failure::Liveness(what.into()))
    }

    /// The members become those of the list, and all of them know it.
    fn members_settle(&mut self) -> Result<(), Failure> {
        let end_us = self.now_us + SETTLE_US;
        loop {
            let roster = self.roster();
            let standings = |id: &HostId| -> Vec<Status> {
                let threads = self.machines[id].process.iter().flat_map(|process| &process.threads);
                threads.map(|thread| thread.core.status()).collect()
            };
            let unsettled = roster.ids().find(|id| {
                let all = standings(id);
                all.is_empty() || !all.iter().all(|it| it.leader.is_some() && self.is_settled(it))
            });
            let Some(id) = unsettled else { return Ok(()) };
            if self.now_us > end_us {
                let standing = standings(&id);
                let text = roster.text();
                return self.stuck(format!(
                    "the members do not become those of the list of servers: server {id}: {standing:?}; {text}"
                ));
            }
            self.step()?;
        }
    }

    pub(crate) fn ids(&self) -> Vec<HostId> {
        self.machines.keys().copied().collect()
    }

    pub(super) fn heal(&mut self) {
        self.healing = true;
        self.falls += 1;
        self.note("heal", format_args!("nothing goes wrong any more"));
        self.network.weather = Weather::default();
        self.mend();
        for (key, way) in self.links.mend() {
            self.schedule(1, Happening::Freed(key, way));
        }
        for id in self.ids() {
            self.room(id);
            self.flip_back(id);
            let Some(machine) = self.machines.get_mut(&id) else { continue };
            machine.held.disk.clear_fault();
            machine.slow_until_us = 0;
            machine.paused_until_us = 0;
            machine.late.clear();
            let threads = machine.process.iter_mut().flat_map(|process| &mut process.threads);
            threads.for_each(|thread| thread.paused_until_us = 0);
            let life = machine.life;
            let is_down = std::mem::take(&mut machine.stays_down);
            // What a slow disk has begun would take seconds still: sessions may not end before it. Of a server alone it
            // is known which end, and when.
            if self.judges.checker.is_none() {
                self.schedule(1, Happening::LogDone(id, life));
                self.schedule(1, Happening::SnapshotDone(id, life));
            }
            if is_down {
                self.schedule(1, Happening::Restart(id));
            }
            (0..self.partitions()).for_each(|of| self.schedule_turn(id, of, self.now_us + 1));
        }
        for id in self.ids() {
            if self.is_of_another(id) {
                self.empty_what_is_of_another(id);
            }
        }
        self.clients.iter_mut().for_each(|client| client.finish());
    }

    fn newest_term(&self) -> Option<u64> {
        self.running().map(|(_, process)| process.first().status().term).max()
    }

    /// Sessions that nobody speaks for any more end, and with them their ephemerals.
    fn sessions_end(&mut self) -> Result<(), Failure> {
        let longest_us = self.settings.config.session_timeout_max_ms as u64 * 1000;
        loop {
            let term = self.newest_term();
            self.pass(longest_us + 2_000_000)?;
            let locals: usize =
                self.running().map(|(_, process)| process.first().local_session_count()).sum();
            let history = &self.judges.history;
            let left = self.clients.iter().flat_map(|client| client.left()).copied();
            let mut left =
                left.filter(|session| history.is_global(*session, i64::MAX) && !history.is_closed(*session));
            let what = match (left.next(), locals) {
                (None, 0) => return Ok(()),
                (Some(session), _) => format!("session {session:#x} does not end"),
                (None, locals) => format!("{locals} local sessions do not end"),
            };
            // A list may still be carried out, and whoever leads anew gives everybody the whole timeout.
            if self.newest_term() == term {
                return self.stuck(what);
            }
        }
    }

    /// Every member comes to the end of each timeline, and to the same state.
    fn catch_up(&mut self) -> Result<(), Failure> {
        let end_us = self.now_us + CATCH_UP_US;
        while !self.have_all_caught_up() {
            if self.now_us > end_us {
                return self.stuck("a server stays behind the others");
            }
            self.step()?;
        }
        let history = &self.judges.history;
        for (id, process) in self.running() {
            for (of, thread) in process.threads.iter().enumerate() {
                let (applied, tree) = (thread.core.applied(), thread.core.tree());
                if !self.has_timelines() && self.judges.checker.is_none() {
                    history.compare(id, applied, tree)?;
                    history.compare_order(id, applied, tree)?;
                }
                if tree.digest() != tree.recomputed_digest() {
                    return wrong(format!(
                        "the digest of server {id} is not that of its state in partition {of}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether all members run, and have applied all that is committed.
    pub(crate) fn have_all_caught_up(&self) -> bool {
        let Judges { history, timelines, .. } = &self.judges;
        self.roster().ids().chain(self.readers()).all(|id| {
            let Some(process) = &self.machines[&id].process else { return false };
            let mut threads = (0..).zip(&process.threads).map(|(of, thread)| (of, &thread.core));
            if !self.has_timelines() {
                return process.first().applied() >= history.position();
            }
            threads.all(|(of, core)| {
                let Status { applied, last, committed, .. } = core.status();
                applied == last && applied == committed && applied == timelines.last(of)
            })
        })
    }

    // ---- what a judge may look at ----

    /// The servers that belong to the ensemble, and readers, all of which run in the end.
    pub(crate) fn members(&self) -> Vec<HostId> {
        self.roster().ids().chain(self.readers()).collect()
    }

    /// A partition of a member.
    pub(crate) fn partition_of(&self, id: HostId, partition: u8) -> &Replica {
        let process = self.process(id).expect("all members run in the end");
        &process.threads[usize::from(partition)].core
    }

    /// The state that a path is in, in the end.
    pub(crate) fn tree_of(&self, path: &str) -> &Tree {
        if self.partitions() == 1 {
            return self.judges.history.tree();
        }
        let one = self.members()[0];
        self.partition_of(one, self.partition_of(one, 0).placement().of(path)).tree()
    }

    pub(crate) fn outcome(&self) -> Outcome {
        let Judges { history, checker, .. } = &self.judges;
        let placed = self.running().map(|(_, process)| process.first().placement().version());
        let mut outcome = Outcome {
            fingerprint: self.trace.fingerprint(),
            updates: history.zxid() as u64,
            refusals: history.refusals(),
            terms: history.terms(),
            placed: placed.max().unwrap_or(0),
            lasted_us: self.now_us,
            checked: checker.as_ref().map(Checker::counts).unwrap_or_default(),
            ..self.counts
        };
        outcome.met.messages_lost = self.network.lost;
        outcome.met.messages_doubled = self.network.doubled;
        outcome.met.messages_late = self.network.late;
        // What is compared with a model is counted there.
        let counted = self.clients.iter().filter(|_| checker.is_none()).map(|client| client.counts());
        outcome.seen = counted.fold(outcome.seen, Add::add);
        let Counts { replies, events, updates, returned, .. } = outcome.checked;
        outcome.seen.answers += replies;
        outcome.seen.events += events;
        outcome.seen.moves += returned;
        outcome.updates += updates;
        outcome
    }
}
