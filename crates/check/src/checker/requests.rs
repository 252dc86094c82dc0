//! What comes in: each request is executed by the head model, which says what must follow.

use super::link::{Answer, Expect, Hello, Immediate, Inbound, Phase, name};
use super::{Checker, Moment, Proposed, What};
use crate::model::{Body, ConnectionKey, Denial, Identity, Stamp};
use crate::{Checked, wrong};
use std::rc::Rc;
use stoa_core::{CloseReason, Now};
use stoa_wire::{ConnectRequest, ErrorCode, Opcode, Reader, Request, RequestHeader};

/// Identities that one connection can hold.
const IDENTITIES_MAX: usize = 64;

/// What a client wants to have in the log.
#[derive(Debug)]
pub(super) struct Asked {
    connection: ConnectionKey,
    wanted: Wanted,
}

#[derive(Debug)]
enum Wanted {
    /// A new session.
    Create { timeout_ms: i32 },
    /// Its session, on this connection.
    Reopen { session: i64, password: Vec<u8>, timeout_ms: i32 },
    /// A write, or the session's end.
    Write { session: i64, xid: i32, opcode: Opcode, frame: Rc<[u8]>, identities: Rc<Vec<Identity>> },
}

impl Checker {
    /// The server has been given bytes of a connection, of which it has handled these frames.
    pub fn received(&mut self, key: ConnectionKey, frames: Vec<Inbound>, moment: Moment) {
        if let Some(link) = self.links.get(&key).filter(|link| link.phase == Phase::Live) {
            let session = link.session;
            self.timers.heard(session, moment.now.mono_us);
        }
        for frame in frames {
            let Some(phase) = self.links.get(&key).map(|link| link.phase) else { return };
            match (phase, frame) {
                (Phase::Live, Inbound::Frame(frame)) => self.request(key, frame.into(), moment),
                (Phase::Live, Inbound::Oversized { header }) => self.oversized(key, &header),
                (Phase::Handshake, Inbound::Frame(frame)) => self.handshake(key, &frame, moment),
                _ => {}
            }
        }
    }

    fn handshake(&mut self, key: ConnectionKey, frame: &[u8], moment: Moment) {
        let Ok(request) = ConnectRequest::decode(frame) else {
            self.shut(key, Some(CloseReason::Malformed));
            return;
        };
        if request.last_zxid_seen > self.applied.zxid() {
            self.shut(key, Some(CloseReason::ClientAhead));
            return;
        }
        let (least, most) = (self.config.session_timeout_min_ms, self.config.session_timeout_max_ms);
        let timeout_ms = request.timeout_ms.max(least).min(most);
        if moment.out_of_room {
            self.shut(key, Some(CloseReason::NoRoom));
            return;
        }
        if let Some(link) = self.links.get_mut(&key) {
            link.phase = Phase::Opening;
        }
        let wanted = match request.session_id {
            0 => Wanted::Create { timeout_ms },
            session => Wanted::Reopen { session, password: request.password.into(), timeout_ms },
        };
        self.ask(Asked { connection: key, wanted }, moment.now);
    }

    /// Something for the log: it is prepared at once, or when the server leads.
    fn ask(&mut self, asked: Asked, now: Now) {
        let key = asked.connection;
        if !self.leads {
            if let Wanted::Write { xid, opcode, .. } = asked.wanted {
                self.expect(key, Expect::Asked { xid, opcode });
            }
            self.asked.push_back(asked);
            return;
        }
        match (self.prepare(&asked, now), asked.wanted) {
            (Ok(zxid), Wanted::Write { xid, opcode, .. }) => {
                self.expect(key, Expect::Write { zxid, xid, opcode });
            }
            (Ok(_), _) => {}
            (Err(failure), Wanted::Write { xid, opcode, .. }) => {
                self.answer(key, xid, opcode, refusal(failure));
            }
            (Err(failure), Wanted::Reopen { session, password, .. })
                if self.may_still_open(session, &password) =>
            {
                self.propose_refusal(key, failure, now);
            }
            (Err(_), _) => {
                if let Some(link) = self.links.get_mut(&key) {
                    link.hello = Some(Hello::Expired);
                }
                self.shut(key, Some(CloseReason::SessionExpired));
            }
        }
    }

    /// The session is there and only proposed to end: until that is durable nobody may be told.
    fn may_still_open(&self, session: i64, password: &[u8]) -> bool {
        let known = self.applied.session(session).and_then(|known| known.password);
        known.is_some_and(|known| known == *password)
    }

    fn propose_refusal(&mut self, connection: ConnectionKey, failure: Denial, now: Now) {
        self.counts.refused += 1;
        let stamp = Stamp { zxid: self.last_zxid(), time_ms: now.wall_ms };
        let what = What::Refused { connection, failure };
        self.proposed.push_back(Proposed::new(stamp, 0, what));
    }

    /// The server leads from now on: what it was asked before is prepared, in order. There is an outcome
    /// in the log in any case.
    pub(super) fn begin_to_lead(&mut self, now: Now) {
        self.leads = true;
        self.timers.judge(now.mono_us);
        for asked in std::mem::take(&mut self.asked) {
            self.counts.waited += 1;
            let prepared = self.prepare(&asked, now);
            let connection = asked.connection;
            if let Err(failure) = prepared {
                self.propose_refusal(connection, failure, now);
            }
            let Some(link) = self.links.get_mut(&connection) else { continue };
            let waiting = link.queue.iter_mut().find(|expect| matches!(expect, Expect::Asked { .. }));
            if let Some(expect) = waiting
                && let Expect::Asked { xid, opcode } = *expect
                && let Wanted::Write { .. } = asked.wanted
            {
                *expect = match prepared {
                    Ok(zxid) => Expect::Write { zxid, xid, opcode },
                    Err(_) => Expect::Refused { xid, opcode },
                };
            }
        }
    }

    /// Executes it on the head: the zxid that it will have, or why it is refused.
    fn prepare(&mut self, asked: &Asked, now: Now) -> Result<i64, Denial> {
        let Asked { connection, wanted } = asked;
        let connection = *connection;
        let stamp = Stamp { zxid: self.next_zxid(), time_ms: now.wall_ms };
        let (session, what) = match wanted {
            Wanted::Create { timeout_ms } => (0, What::Open { connection, timeout_ms: *timeout_ms }),
            Wanted::Reopen { session, password, timeout_ms } => {
                let known = self.head.session(*session).and_then(|known| known.password);
                if known.is_none_or(|known| known != **password) {
                    return Err(Denial::Error(ErrorCode::SessionExpired));
                }
                self.head.open_session(*session, *timeout_ms, (connection, 0), stamp.zxid);
                (*session, What::Reopen { connection, timeout_ms: *timeout_ms })
            }
            Wanted::Write { session, opcode, frame, identities, .. } => {
                self.head.check_contact(*session, connection).map_err(Denial::Error)?;
                if *opcode == Opcode::CloseSession {
                    self.timers.closing(*session);
                    self.head.close_session(*session, stamp.zxid);
                    (*session, What::Close)
                } else {
                    let request = Request::decode(*opcode, &mut Reader::new(&frame[8..]));
                    let request = request.expect("it was read when it came");
                    self.head.write(&request, *session, identities, stamp)?;
                    let (frame, identities) = (Rc::clone(frame), Rc::clone(identities));
                    (*session, What::Write { connection, frame, identities })
                }
            }
        };
        self.proposed.push_back(Proposed::new(stamp, session, what));
        Ok(stamp.zxid)
    }

    fn request(&mut self, key: ConnectionKey, frame: Rc<[u8]>, moment: Moment) {
        let mut reader = Reader::new(&frame);
        let Ok(header) = RequestHeader::decode(&mut reader) else {
            self.shut(key, Some(CloseReason::Malformed));
            return;
        };
        // A check is known in a multi only.
        let known = Opcode::from_i32(header.opcode).filter(|opcode| *opcode != Opcode::Check);
        let Some(opcode) = known else {
            self.at_once(key, header.xid, ErrorCode::Unimplemented as i32, false);
            self.shut(key, Some(CloseReason::UnknownOpcode));
            return;
        };
        let error = |code: ErrorCode| Err(code as i32);
        match opcode {
            Opcode::Ping => self.at_once(key, header.xid, 0, false),
            Opcode::Auth => self.auth(key, header.xid, &mut reader),
            Opcode::Sasl | Opcode::CreateSession => {
                self.answer(key, header.xid, opcode, error(ErrorCode::Unimplemented));
            }
            Opcode::Reconfig => {
                let code = match Request::decode(opcode, &mut reader) {
                    Ok(_) if moment.out_of_room => ErrorCode::SystemError,
                    Ok(_) => ErrorCode::ReconfigDisabled,
                    Err(_) => ErrorCode::MarshallingError,
                };
                self.answer(key, header.xid, opcode, error(code));
            }
            Opcode::Sync => {
                let answer = match Request::decode(opcode, &mut reader) {
                    Ok(Request::Sync { path }) => Ok(Body::Path(path.into())),
                    _ => error(ErrorCode::MarshallingError),
                };
                self.answer(key, header.xid, opcode, answer);
            }
            Opcode::CloseSession
            | Opcode::Create
            | Opcode::Create2
            | Opcode::CreateContainer
            | Opcode::CreateTtl
            | Opcode::Delete
            | Opcode::DeleteContainer
            | Opcode::SetData
            | Opcode::SetAcl
            | Opcode::Multi => self.write(key, header.xid, opcode, frame, moment),
            _ => self.expect(key, Expect::Read { xid: header.xid, opcode, frame }),
        }
    }

    fn write(&mut self, key: ConnectionKey, xid: i32, opcode: Opcode, frame: Rc<[u8]>, moment: Moment) {
        if Request::decode(opcode, &mut Reader::new(&frame[8..])).is_err() {
            self.answer(key, xid, opcode, Err(ErrorCode::MarshallingError as i32));
            return;
        }
        if moment.out_of_room {
            self.answer(key, xid, opcode, Err(ErrorCode::SystemError as i32));
            return;
        }
        let Some(link) = self.links.get(&key) else { return };
        let (session, identities) = (link.session, Rc::clone(&link.identities));
        let wanted = Wanted::Write { session, xid, opcode, frame, identities };
        self.ask(Asked { connection: key, wanted }, moment.now);
    }

    fn auth(&mut self, key: ConnectionKey, xid: i32, reader: &mut Reader<'_>) {
        let Some(link) = self.links.get_mut(&key) else { return };
        let proved: Vec<Identity> = match Request::decode(Opcode::Auth, reader) {
            Ok(Request::Auth { scheme: "digest", auth }) if std::str::from_utf8(auth).is_ok() => {
                let id = stoa_core::digest_id(&String::from_utf8_lossy(auth));
                let is_super = self.config.authentication.super_digest.as_ref() == Some(&id);
                let rank = is_super.then(|| ("super".to_owned(), String::new()));
                rank.into_iter().chain([("digest".to_owned(), id)]).collect()
            }
            Ok(Request::Auth { scheme: "ip", .. }) => link.identities.first().cloned().into_iter().collect(),
            _ => Vec::new(),
        };
        if proved.is_empty() {
            self.at_once(key, xid, ErrorCode::AuthFailed as i32, true);
            self.shut(key, Some(CloseReason::AuthFailed));
            return;
        }
        for identity in proved {
            if !link.identities.contains(&identity) && link.identities.len() < IDENTITIES_MAX {
                Rc::make_mut(&mut link.identities).push(identity);
            }
        }
        self.at_once(key, xid, 0, true);
    }

    fn oversized(&mut self, key: ConnectionKey, header: &[u8; 8]) {
        let Ok(header) = RequestHeader::decode(&mut Reader::new(header)) else { return };
        let opcode = Opcode::from_i32(header.opcode).unwrap_or(Opcode::Ping);
        self.answer(key, header.xid, opcode, Err(ErrorCode::MarshallingError as i32));
    }

    fn at_once(&mut self, key: ConnectionKey, xid: i32, err: i32, outside_order: bool) {
        if let Some(link) = self.links.get_mut(&key) {
            link.immediate.push_back(Immediate { xid, err, outside_order });
        }
    }

    fn answer(&mut self, key: ConnectionKey, xid: i32, opcode: Opcode, answer: Answer) {
        let after = self.last_zxid();
        self.expect(key, Expect::Answer { after, xid, opcode, answer });
    }

    fn expect(&mut self, key: ConnectionKey, expect: Expect) {
        if let Some(link) = self.links.get_mut(&key) {
            link.queue.push_back(expect);
        }
    }

    /// A connection on which something is owed that could have been paid.
    pub(super) fn check_prompt(&self) -> Checked {
        let applied = self.applied.zxid();
        for (&key, link) in self.links.iter().filter(|(_, link)| link.is_open()) {
            let late = match link.queue.front() {
                // Both wait for the disk.
                None | Some(Expect::Asked { .. } | Expect::Refused { .. }) => None,
                Some(Expect::Write { zxid, xid, .. }) => (*zxid <= applied).then_some(*xid),
                Some(Expect::Answer { after, xid, .. }) => (*after <= applied).then_some(*xid),
                Some(Expect::Read { xid, .. }) => Some(*xid),
            };
            let late = late.or(link.immediate.front().map(|immediate| immediate.xid));
            if let Some(xid) = late {
                return wrong(format!("{} has no answer to xid {xid}, at zxid {applied}", name(key)));
            }
        }
        Ok(())
    }
}

impl super::Link {
    /// The log had no room: everything that waits is answered with an error, except reads.
    pub(super) fn refuse_waiting(&mut self, applied: i64) {
        if self.phase == Phase::Opening {
            self.shut(Some(CloseReason::NoRoom));
        }
        for expect in &mut self.queue {
            let (xid, opcode) = match *expect {
                Expect::Write { xid, opcode, .. }
                | Expect::Asked { xid, opcode }
                | Expect::Refused { xid, opcode }
                | Expect::Answer { xid, opcode, .. } => (xid, opcode),
                Expect::Read { .. } => continue,
            };
            let answer = Err(ErrorCode::SystemError as i32);
            *expect = Expect::Answer { after: applied, xid, opcode, answer };
        }
    }
}

/// What is answered to a request that is refused.
pub(super) fn refusal(failure: Denial) -> Answer {
    match failure {
        Denial::Error(code) => Err(code as i32),
        Denial::Multi { count, failed, code } => Ok(Body::failed_multi(count, failed, code)),
    }
}
