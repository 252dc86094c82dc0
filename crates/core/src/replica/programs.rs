//! What programs did, when it is applied.

use crate::replica::Replica;
use crate::replica::apply::{Telling, notify};
use alloc::string::String;
use stoa_front::{ConnectionId, Phase, Slot, frame};
use stoa_partition::{Answer, Asked, ProgramStats, Ran, Record, Watch};
use stoa_tree::{Refusal, WatcherId};
use stoa_wire::{ErrorCode, EventKind, Opcode, Reader, Request, RequestHeader};

impl Replica {
    /// The state is another one: what is known of programs is read from it.
    pub(crate) fn load_programs(&mut self) {
        let limits = self.config.programs.clone();
        self.applied.partition.load_programs(limits, self.config.stopwatch);
        self.applied
            .partition
            .extensions_mut()
            .is_at_home(self.applied.placement.clone(), self.config.partition);
    }

    /// Programs have carried a request out, or reacted to it.
    pub(crate) fn apply_ran(&mut self, ran: &Ran<'_>, own: Option<ConnectionId>) {
        let Record { answer, watch, muted, told } = ran.record();
        let telling = match answer {
            Answer::Reply { err, body } => {
                Telling { reply: Some((err, body)), muted: &muted, ..Telling::default() }
            }
            Answer::Results(results) => Telling { results, muted: &muted, ..Telling::default() },
        };
        match (&ran.update, telling.reply) {
            (Some(update), _) => self.apply_update(update, own, &telling),
            (None, Some((err, body))) => self.answer_own(own, err, body),
            (None, None) => {}
        }
        if let (Some(Watch { path, known_as, mode }), Some(id)) = (watch, own) {
            self.watch_as(id, path, known_as, mode);
        }
        self.tell(&told);
    }

    /// Tells sessions that are here of something at a path.
    pub(crate) fn tell(&mut self, told: &[(i64, &str)]) {
        let zxid = self.applied.partition.tree().last_zxid();
        for (session, path) in told.iter().copied() {
            let is_open = |id: &ConnectionId| {
                self.clients.connections.get(*id).is_some_and(|connection| connection.phase == Phase::Remote)
            };
            let remote = || self.clients.remote.of_session(session).rfind(is_open);
            if let Some(id) = self.sessions.live.connection_of(session).or_else(remote) {
                notify(
                    &mut self.clients.connections,
                    &mut self.stats,
                    id,
                    zxid,
                    EventKind::DataChanged,
                    path,
                );
                self.check_output(id);
            }
        }
    }

    fn watch_as(&mut self, id: ConnectionId, path: &str, known_as: &str, mode: stoa_tree::WatchMode) {
        let Some(connection) = self.clients.connections.get_mut(id) else { return };
        if path != known_as {
            connection.knows_as(path, known_as);
        }
        self.applied.partition.watches_mut().add(path, WatcherId(id.0), mode);
    }

    /// The leader has refused a request, and says why.
    pub(crate) fn failed(&mut self, code: ErrorCode, text: &str, own: Option<ConnectionId>) {
        if let Some(id) = own {
            self.tell_failure(id, text.into());
        }
        self.refused(Refusal::Error(code), own);
    }

    /// Why the last request of a connection failed can be read there.
    pub(crate) fn tell_failure(&mut self, id: ConnectionId, text: String) {
        if let Some(connection) = self.clients.connections.get_mut(id) {
            connection.failed(text.into());
        }
    }

    /// What changes nothing has got its place on the timeline, and all that is before it is applied: it is answered
    /// here, in its turn.
    pub(crate) fn read_untaken(&mut self, id: ConnectionId, asked: &[u8]) {
        let Some(connection) = self.clients.connections.get_mut(id) else { return };
        if let Some(remote) = &mut connection.remote {
            // It was taken because the session is known to have come here.
            remote.is_known = true;
        }
        let write = connection.slots().iter().find(|slot| matches!(slot, Slot::Write { .. }));
        let Some(&Slot::Write { xid, .. }) = write else { return };
        let Ok(Asked::Write { opcode, body, .. }) = Asked::decode(asked) else {
            return self.answer_own(Some(id), ErrorCode::SystemError as i32, &[]);
        };
        if opcode == Opcode::Sync {
            return self.answer_own(Some(id), 0, body);
        }
        connection.reads_instead(frame(RequestHeader { xid, opcode: opcode as i32 }, body));
        self.drain(id);
    }

    /// Where there are several partitions: whether a program carries out a request, so that it concerns this one
    /// alone, or why a request is refused before the others are asked.
    pub(crate) fn take_of_programs(&mut self, asked: &Asked<'_>) -> Option<Result<(), Refusal>> {
        let Asked::Write { session, opcode, body, .. } = asked else { return None };
        let request = Request::decode(*opcode, &mut Reader::new(body)).ok()?;
        if self.applied.partition.is_taken(*session, &request) {
            return Some(Ok(()));
        }
        if let Err(refusal) = self.applied.partition.check_multi(*session, &request) {
            return Some(Err(refusal));
        }
        self.applied.partition.check_registration(&request, *session).err().map(|code| Err(code.into()))
    }

    /// An update is applied that may have changed what stands at `/em`.
    pub(crate) fn programs_applied(&mut self, changes: &[(EventKind, String)], zxid: i64) {
        self.applied.partition.programs_applied(zxid);
        self.applied.partition.programs_changed(changes);
    }

    /// The programs, in the order of their names, with what they did at this server.
    pub fn programs(&self) -> impl Iterator<Item = (&str, ProgramStats)> {
        self.applied.partition.extensions().stats()
    }

    /// How many acknowledgements of programs there are.
    #[must_use]
    pub fn program_acknowledgements(&self) -> usize {
        self.applied.partition.extensions().acknowledgements()
    }
}
