//! The end of a run: nothing goes wrong any more, and everything must be finished.

use super::{Event, Failure, Outcome, World};
use crate::check::Violation;
use crate::client::Client;
use crate::model::Kind;

/// How long the healed world may take to finish everything.
const HEALING_US: u64 = 60_000_000;

impl World {
    /// Nothing goes wrong any more: everybody must be able to finish.
    pub(super) fn heal(&mut self) -> Result<(), Failure> {
        self.trace.event(self.now_us, "heal", format_args!("nothing goes wrong from here on"));
        self.healing = true;
        self.disk.clear_fault();
        self.disk.set_capacity(u64::MAX);
        self.disk_is_full = false;
        self.slow_until_us = 0;
        for index in 0..self.clients.len() {
            self.clients[index].finish();
            self.schedule(0, Event::Wake(index));
        }
        let deadline_us = self.now_us + HEALING_US;
        while !self.is_quiet() {
            if self.now_us > deadline_us {
                return Err(Failure::Liveness(self.unfinished()));
            }
            self.step()?;
        }
        self.checker.is_quiet()?;
        self.take_snapshot(deadline_us)
    }

    /// A snapshot on demand, from which the last restart then begins.
    fn take_snapshot(&mut self, deadline_us: u64) -> Result<(), Failure> {
        let before = self.snapshots;
        if let Some(process) = &mut self.process {
            process.server.request_snapshot();
        }
        self.schedule_turn(self.now_us);
        // A znode's time may be up meanwhile: what the server makes of that must be done, too.
        while self.snapshots == before || !self.is_quiet() {
            if self.now_us > deadline_us {
                let what = format!("a snapshot that was asked for is not taken: {}", self.unfinished());
                return Err(Failure::Liveness(what));
            }
            self.step()?;
        }
        Ok(())
    }

    fn is_quiet(&self) -> bool {
        let Some(process) = &self.process else { return false };
        let server = &process.server;
        self.clients.iter().all(Client::is_done)
            && process.connection_count() == 0
            && server.session_count() == 0
            && server.outstanding() == 0
            && server.log_queue() == (0, 0)
            && !server.is_snapshotting()
            && server.tree().container_count() + server.tree().ttl_count() == self.reapable_never()
    }

    /// Containers that never had a child, and TTL znodes with children or a TTL beyond this run.
    fn reapable_never(&self) -> usize {
        let later_ms = self.now().wall_ms;
        let model = self.checker.applied();
        let special = model.nodes().filter(|(_, node)| matches!(node.kind, Kind::Container | Kind::Ttl(_)));
        special.filter(|(path, _)| !model.is_reapable(path, later_ms)).count()
    }

    /// What the healed world has not finished.
    fn unfinished(&self) -> String {
        let Some(process) = &self.process else { return "the server does not start".into() };
        let server = &process.server;
        let clients = self.clients.iter().filter(|client| !client.is_done()).count();
        format!(
            "{} s after the last fault {clients} clients are not done, {} connections, {} sessions and {} requests \
             are left, the log's queue is {:?}, a snapshot is {}under way",
            HEALING_US / 1_000_000,
            process.connection_count(),
            server.session_count(),
            server.outstanding(),
            server.log_queue(),
            if server.is_snapshotting() { "" } else { "not " }
        )
    }

    /// Compares everything once more, before and after a last loss of power.
    pub(super) fn end(mut self) -> Result<Outcome, Failure> {
        if let Some(process) = &self.process {
            let server = &process.server;
            self.checker.compare_state(server.tree())?;
            if server.watches().count() != 0 {
                let count = server.watches().count();
                return Err(
                    Violation::new(format!("{count} watches are left, and nobody is connected")).into()
                );
            }
            if server.tree().ephemeral_count() != 0 {
                let count = server.tree().ephemeral_count();
                return Err(Violation::new(format!("{count} ephemerals are left without a session")).into());
            }
        }
        let zxid = self.checker.applied().zxid();
        self.crash("the end", true);
        self.restart()?;
        if self.checker.applied().zxid() != zxid {
            return Err(Violation::new("the last restart changed the state").into());
        }
        Ok(Outcome {
            fingerprint: self.trace.fingerprint(),
            counts: self.checker.counts(),
            starts: self.starts,
            damaged: self.damaged,
            refused: self.refused,
            snapshots: self.snapshots,
            refusals: self.refusals,
            lasted_us: self.now_us,
        })
    }
}
