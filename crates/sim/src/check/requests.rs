//! What comes in: each request is executed by the head model, which says what must follow.

use super::link::{Answer, Expect, Hello, Immediate, Inbound, Phase, name};
use super::{Checked, Checker, Moment, Proposed, What, violation};
use crate::model::{Body, ConnectionKey, Failure, Identity, Stamp};
use std::rc::Rc;
use stoa_core::CloseReason;
use stoa_wire::{ConnectRequest, ErrorCode, Opcode, Reader, Request, RequestHeader};

/// Identities that one connection can hold.
const IDENTITIES_MAX: usize = 64;

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
        if request.session_id == 0 {
            if moment.out_of_room {
                self.shut(key, Some(CloseReason::NoRoom));
                return;
            }
            let zxid = self.propose(0, What::Open { connection: key, timeout_ms }, moment);
            if let Some(link) = self.links.get_mut(&key) {
                link.phase = Phase::Creating(zxid);
                link.hello = Some(Hello::Created { timeout_ms });
            }
            return;
        }
        self.reopen(key, timeout_ms, &request, moment);
    }

    fn reopen(&mut self, key: ConnectionKey, timeout_ms: i32, request: &ConnectRequest<'_>, moment: Moment) {
        let session = request.session_id;
        let fits = self.head.session(session).is_some()
            && self
                .applied
                .session(session)
                .is_some_and(|known| known.password.is_some_and(|password| password == request.password));
        if !fits {
            if let Some(link) = self.links.get_mut(&key) {
                link.hello = Some(Hello::Expired);
            }
            self.shut(key, Some(CloseReason::SessionExpired));
            return;
        }
        let mut previous = None;
        if let Some(timer) = self.timers.by_session.get_mut(&session) {
            timer.timeout_ms = timeout_ms;
            timer.heard_us = moment.now.mono_us;
            previous = timer.connection.replace(key).filter(|&previous| previous != key);
        }
        if let Some(previous) = previous {
            self.shut(previous, Some(CloseReason::SessionMoved));
        }
        if let Some(link) = self.links.get_mut(&key) {
            link.phase = Phase::Live;
            link.session = session;
            link.hello = Some(Hello::Reopened { session, timeout_ms });
        }
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
            Opcode::CloseSession => self.close_session(key, header.xid, moment),
            Opcode::Create
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
        let Ok(request) = Request::decode(opcode, &mut Reader::new(&frame[8..])) else {
            self.answer(key, xid, opcode, Err(ErrorCode::MarshallingError as i32));
            return;
        };
        if moment.out_of_room {
            self.answer(key, xid, opcode, Err(ErrorCode::SystemError as i32));
            return;
        }
        let Some(link) = self.links.get(&key) else { return };
        let (session, identities) = (link.session, Rc::clone(&link.identities));
        let stamp = Stamp { zxid: self.next_zxid(), time_ms: moment.now.wall_ms };
        match self.head.write(&request, session, &identities, stamp) {
            Ok(_) => {
                let what = What::Write { connection: key, frame: Rc::clone(&frame), identities };
                let zxid = self.propose(session, what, moment);
                self.expect(key, Expect::Write { zxid, xid, opcode });
            }
            Err(Failure::Error(code)) => self.answer(key, xid, opcode, Err(code as i32)),
            Err(Failure::Multi { count, failed, code }) => {
                self.answer(key, xid, opcode, Ok(Body::failed_multi(count, failed, code)));
            }
        }
    }

    fn close_session(&mut self, key: ConnectionKey, xid: i32, moment: Moment) {
        let Some(session) = self.links.get(&key).map(|link| link.session) else { return };
        let opcode = Opcode::CloseSession;
        if moment.out_of_room {
            self.answer(key, xid, opcode, Err(ErrorCode::SystemError as i32));
        } else if self.head.session(session).is_none() {
            self.answer(key, xid, opcode, Err(ErrorCode::SessionExpired as i32));
        } else {
            self.timers.closing(session);
            let zxid = self.propose(session, What::Close, moment);
            self.head.close_session(session, zxid);
            self.expect(key, Expect::Write { zxid, xid, opcode });
        }
    }

    fn auth(&mut self, key: ConnectionKey, xid: i32, reader: &mut Reader<'_>) {
        let Some(link) = self.links.get_mut(&key) else { return };
        let proved: Vec<Identity> = match Request::decode(Opcode::Auth, reader) {
            Ok(Request::Auth { scheme: "digest", auth }) if std::str::from_utf8(auth).is_ok() => {
                let id = stoa_core::digest_id(&String::from_utf8_lossy(auth));
                let is_super = self.config.super_digest.as_ref() == Some(&id);
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

    fn propose(&mut self, session: i64, what: What, moment: Moment) -> i64 {
        let stamp = Stamp { zxid: self.next_zxid(), time_ms: moment.now.wall_ms };
        self.proposed.push_back(Proposed { stamp, session, what });
        stamp.zxid
    }

    fn at_once(&mut self, key: ConnectionKey, xid: i32, err: i32, outside_order: bool) {
        if let Some(link) = self.links.get_mut(&key) {
            link.immediate.push_back(Immediate { xid, err, outside_order });
        }
    }

    fn answer(&mut self, key: ConnectionKey, xid: i32, opcode: Opcode, answer: Answer) {
        let after = self.next_zxid() - 1;
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
                None => None,
                Some(Expect::Write { zxid, xid, .. }) => (*zxid <= applied).then_some(*xid),
                Some(Expect::Answer { after, xid, .. }) => (*after <= applied).then_some(*xid),
                Some(Expect::Read { xid, .. }) => Some(*xid),
            };
            let late = late.or(link.immediate.front().map(|immediate| immediate.xid));
            if let Some(xid) = late {
                return violation(format!("{} has no answer to xid {xid}, at zxid {applied}", name(key)));
            }
        }
        Ok(())
    }
}

impl super::Link {
    /// Everything that waits is answered with an error, except reads.
    pub(super) fn refuse_waiting(&mut self, applied: i64) {
        for expect in &mut self.queue {
            let (xid, opcode) = match *expect {
                Expect::Write { xid, opcode, .. } | Expect::Answer { xid, opcode, .. } => (xid, opcode),
                Expect::Read { .. } => continue,
            };
            let answer = Err(ErrorCode::SystemError as i32);
            *expect = Expect::Answer { after: applied, xid, opcode, answer };
        }
    }
}
