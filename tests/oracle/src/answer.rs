//! Frames from a server, as the fields that are compared.

use crate::call::Op;
use crate::ledger::{Ledger, Value};
use crate::link::Ended;
use stoa_wire::{
    ConnectResponse, DecodeError, ErrorCode, MultiHeader, Opcode, Reader, ReplyHeader, Stat, xid,
};

/// A named value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Field {
    /// As in the protocol.
    pub name: &'static str,
    /// What it stands for.
    pub value: Value,
}

/// One thing that a connection brought.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// The answer to the nth call of a burst.
    Reply(usize, Vec<Field>),
    /// A watch notification.
    Event(Vec<Field>),
    /// The end of the connection.
    Ended(Ended),
}

impl Item {
    /// Which call it answers.
    #[must_use]
    pub fn call(&self) -> Option<usize> {
        match self {
            Self::Reply(nth, _) => Some(*nth),
            Self::Event(_) | Self::Ended(_) => None,
        }
    }
}

/// Whether a frame is a watch notification. The oracle never uses its xid for a request.
#[must_use]
pub fn is_event(frame: &[u8]) -> bool {
    header(frame).is_some_and(|header| header.xid == xid::NOTIFICATION)
}

/// The reply header of a frame.
#[must_use]
pub fn header(frame: &[u8]) -> Option<ReplyHeader> {
    ReplyHeader::decode(&mut Reader::new(frame)).ok()
}

/// The fields of a watch notification.
pub fn event(frame: &[u8], ledger: &mut Ledger) -> Vec<Field> {
    let mut fields = Fields { list: Vec::with_capacity(5), ledger };
    let mut reader = Reader::new(frame);
    let outcome = fields.event(&mut reader);
    fields.finish(&reader, outcome)
}

/// The fields of the answer to `op`.
pub fn reply(op: &Op, frame: &[u8], ledger: &mut Ledger) -> Vec<Field> {
    let mut fields = Fields { list: Vec::with_capacity(16), ledger };
    let mut reader = Reader::new(frame);
    let opcode = Opcode::from_i32(op.opcode());
    // ZooKeeper answers a createSession on an open connection like a greeting, without a header.
    let greeting = opcode == Some(Opcode::CreateSession) && frame.len() > ReplyHeader::LEN;
    let outcome =
        if greeting { fields.greeting(&mut reader, frame) } else { fields.reply(opcode, &mut reader) };
    fields.finish(&reader, outcome)
}

/// The fields of the answer to a connect request.
pub fn greeting(frame: &[u8], ledger: &mut Ledger) -> Vec<Field> {
    let mut fields = Fields { list: Vec::with_capacity(5), ledger };
    let mut reader = Reader::new(frame);
    let outcome = fields.greeting(&mut reader, frame);
    fields.finish(&reader, outcome)
}

struct Fields<'l> {
    list: Vec<Field>,
    ledger: &'l mut Ledger,
}

type Outcome = Result<(), DecodeError>;

impl Fields<'_> {
    fn put(&mut self, name: &'static str, value: Value) {
        self.list.push(Field { name, value });
    }

    fn number(&mut self, name: &'static str, value: impl Into<i64>) {
        self.put(name, Value::Number(value.into()));
    }

    fn bytes(&mut self, name: &'static str, reader: &mut Reader<'_>) -> Outcome {
        let value = reader.buffer()?.map_or(Value::Null, |bytes| Value::Bytes(bytes.to_vec()));
        self.put(name, value);
        Ok(())
    }

    /// No byte of a frame may go unnoticed: what no field took is compared as it is.
    fn finish(mut self, reader: &Reader<'_>, outcome: Outcome) -> Vec<Field> {
        if outcome.is_err() {
            self.number("cut short or damaged", 1);
        }
        if outcome.is_err() || !reader.rest().is_empty() {
            self.put("rest", Value::Bytes(reader.rest().to_vec()));
        }
        self.list
    }

    fn greeting(&mut self, reader: &mut Reader<'_>, frame: &[u8]) -> Outcome {
        let response = ConnectResponse::decode(frame)?;
        self.number("protocolVersion", response.protocol_version);
        self.number("timeOut", response.timeout_ms);
        let session = self.ledger.session(response.session_id);
        self.put("sessionId", session);
        self.number("passwd is zero", response.password == [0; 16]);
        self.put("readOnly", response.read_only.map_or(Value::Null, |flag| Value::Number(flag.into())));
        reader.take(if response.read_only.is_some() { 37 } else { 36 })?;
        Ok(())
    }

    fn event(&mut self, reader: &mut Reader<'_>) -> Outcome {
        let header = ReplyHeader::decode(reader)?;
        let zxid = self.ledger.zxid(header.zxid);
        self.put("zxid", zxid);
        self.number("err", header.err);
        self.number("type", reader.i32()?);
        self.number("state", reader.i32()?);
        self.bytes("path", reader)
    }

    fn reply(&mut self, opcode: Option<Opcode>, reader: &mut Reader<'_>) -> Outcome {
        let header = ReplyHeader::decode(reader)?;
        self.number("xid", header.xid);
        self.number("err", header.err);
        let unknown = opcode.is_none_or(|opcode| opcode == Opcode::Check);
        let is_unrelated = unknown && header.err == ErrorCode::Unimplemented as i32;
        if !is_unrelated && !self.ledger.is_divided() {
            // See `differences`: an unknown opcode has nothing to do with any zxid.
            let seen = self.ledger.seen(header.zxid);
            self.put("zxid", seen);
        }
        if header.err != 0 {
            if opcode == Some(Opcode::MultiRead) {
                // See `differences`: the results that came before the failure, which nobody reads.
                reader.take(reader.rest().len())?;
            }
            return Ok(());
        }
        match opcode {
            Some(opcode) => self.body(opcode, reader),
            None => Ok(()),
        }
    }

    fn body(&mut self, opcode: Opcode, reader: &mut Reader<'_>) -> Outcome {
        match opcode {
            Opcode::Create | Opcode::Sync => self.bytes("path", reader),
            Opcode::Create2 | Opcode::CreateContainer | Opcode::CreateTtl => {
                self.bytes("path", reader)?;
                self.stat(reader)
            }
            Opcode::Exists | Opcode::SetData | Opcode::SetAcl => self.stat(reader),
            Opcode::GetData | Opcode::Reconfig => {
                self.bytes("data", reader)?;
                self.stat(reader)
            }
            Opcode::GetAcl => {
                self.acl(reader)?;
                self.stat(reader)
            }
            Opcode::GetChildren => self.strings("children", reader),
            Opcode::GetChildren2 => {
                self.strings("children", reader)?;
                self.stat(reader)
            }
            Opcode::GetEphemerals => self.strings("ephemerals", reader),
            Opcode::GetAllChildrenNumber => {
                self.number("totalNumber", reader.i32()?);
                Ok(())
            }
            Opcode::AddWatch => {
                self.number("watch err", reader.i32()?);
                Ok(())
            }
            Opcode::Sasl => self.bytes("token", reader),
            Opcode::WhoAmI => self.identities(reader),
            Opcode::Multi | Opcode::MultiRead => self.results(reader),
            Opcode::Delete
            | Opcode::DeleteContainer
            | Opcode::Check
            | Opcode::Ping
            | Opcode::CheckWatches
            | Opcode::RemoveWatches
            | Opcode::Auth
            | Opcode::SetWatches
            | Opcode::SetWatches2
            | Opcode::CreateSession
            | Opcode::CloseSession => Ok(()),
        }
    }

    fn stat(&mut self, reader: &mut Reader<'_>) -> Outcome {
        let stat = Stat::decode(reader)?;
        let czxid = self.ledger.zxid(stat.czxid);
        let mzxid = self.ledger.zxid(stat.mzxid);
        let ctime = self.ledger.time(stat.czxid, stat.ctime);
        let mtime = self.ledger.time(stat.mzxid, stat.mtime);
        let owner = self.ledger.session(stat.ephemeral_owner);
        let pzxid = self.ledger.zxid(stat.pzxid);
        self.put("czxid", czxid);
        self.put("mzxid", mzxid);
        self.put("ctime", ctime);
        self.put("mtime", mtime);
        self.number("version", stat.version);
        self.number("cversion", stat.cversion);
        self.number("aversion", stat.aversion);
        self.put("ephemeralOwner", owner);
        self.number("dataLength", stat.data_length);
        self.number("numChildren", stat.num_children);
        self.put("pzxid", pzxid);
        Ok(())
    }

    fn count(&mut self, name: &'static str, reader: &mut Reader<'_>) -> Result<usize, DecodeError> {
        let count = reader.i32()?;
        self.number(name, count);
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Strings from a hash set: their order is the server's own.
    fn strings(&mut self, name: &'static str, reader: &mut Reader<'_>) -> Outcome {
        let count = self.count("count", reader)?;
        let mut strings = Vec::new();
        for _ in 0..count {
            strings.push(reader.buffer()?.unwrap_or(b"(null)").to_vec());
        }
        strings.sort();
        self.put(name, Value::Set(strings));
        Ok(())
    }

    /// Entries in order, but those of the schemes that `auth` can stand for sorted among themselves:
    /// ZooKeeper puts the identities of a connection there in the order of a hash set.
    fn acl(&mut self, reader: &mut Reader<'_>) -> Outcome {
        let count = self.count("acl count", reader)?;
        let mut entries = Vec::new();
        for _ in 0..count {
            let perms = reader.i32()?;
            let scheme = reader.buffer()?.unwrap_or(b"(null)");
            let id = reader.buffer()?.unwrap_or(b"(null)");
            entries.push([format!("{perms:02} ").as_bytes(), scheme, b":", id].concat());
        }
        if entries.iter().filter(|entry| entry.windows(8).any(|part| part == b" digest:")).count() > 1 {
            entries.sort();
        }
        for entry in entries {
            self.put("acl", Value::Bytes(entry));
        }
        Ok(())
    }

    /// The identities of a connection: a hash set again.
    fn identities(&mut self, reader: &mut Reader<'_>) -> Outcome {
        let count = self.count("count", reader)?;
        let mut identities = Vec::new();
        for _ in 0..count {
            let scheme = reader.buffer()?.unwrap_or(b"(null)");
            let user = reader.buffer()?.unwrap_or(b"(null)");
            identities.push([scheme, b":", user].concat());
        }
        identities.sort();
        self.put("clientInfo", Value::Set(identities));
        Ok(())
    }

    fn results(&mut self, reader: &mut Reader<'_>) -> Outcome {
        loop {
            let header = MultiHeader::decode(reader)?;
            self.number("result type", header.opcode);
            self.number("result done", header.done);
            self.number("result header err", header.err);
            if header.done {
                return Ok(());
            }
            match Opcode::from_i32(header.opcode) {
                Some(opcode) => self.body(opcode, reader)?,
                None => self.number("result err", reader.i32()?),
            }
        }
    }
}

/// Whether the answer says that the tree was changed, and nothing failed.
#[must_use]
pub fn shows_write(op: &Op, frame: &[u8]) -> bool {
    let mut reader = Reader::new(frame);
    let Ok(header) = ReplyHeader::decode(&mut reader) else {
        return false;
    };
    if header.err != 0 {
        return false;
    }
    match Opcode::from_i32(op.opcode()) {
        Some(
            Opcode::Create
            | Opcode::Create2
            | Opcode::CreateContainer
            | Opcode::CreateTtl
            | Opcode::Delete
            | Opcode::DeleteContainer
            | Opcode::SetData
            | Opcode::SetAcl,
        ) => true,
        Some(Opcode::Multi) => {
            use stoa_wire::MultiResult as Result;
            stoa_wire::MultiResults::decode(&mut reader).is_ok_and(|results| {
                !results.iter().any(|result| matches!(result, Result::Error(_)))
                    && results.iter().any(|result| {
                        matches!(result, Result::Created { .. } | Result::Deleted | Result::DataSet { .. })
                    })
            })
        }
        _ => false,
    }
}

/// The paths that the answer says were created.
pub fn created_paths(op: &Op, frame: &[u8], mut note: impl FnMut(&Op, &str)) {
    let mut reader = Reader::new(frame);
    if !ReplyHeader::decode(&mut reader).is_ok_and(|header| header.err == 0) {
        return;
    }
    match op {
        Op::Create { .. } => {
            if let Ok(path) = reader.str() {
                note(op, path);
            }
        }
        Op::Multi { ops, .. } => {
            let results = stoa_wire::MultiResults::decode(&mut reader).unwrap_or_default();
            for (op, result) in ops.iter().zip(results) {
                if let stoa_wire::MultiResult::Created { path, .. } = result {
                    note(op, path);
                }
            }
        }
        _ => {}
    }
}
