//! What words answer: text as zkCli prints it, or JSON.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};
use stoa_client::{Acl, ErrorCode, Event, EventKind, Stat, State, perms};

use super::date::date;
use crate::failure::{Context as _, Failure, Result};

/// What a word has to say.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// For people; bytes, because data may be anything.
    text: Vec<u8>,
    /// For scripts.
    json: Value,
}

impl Answer {
    /// Lines of text, each with its line end, and the same as JSON.
    pub(super) fn new(text: impl Into<Vec<u8>>, json: Value) -> Self {
        Self { text: text.into(), json }
    }

    /// Nothing but that it worked.
    pub(super) fn done() -> Self {
        Self::new("", json!({}))
    }

    /// Adds a Stat.
    pub(super) fn and_stat(mut self, stat: &Stat) -> Self {
        self.text.extend_from_slice(stat_text(stat).as_bytes());
        if let Value::Object(object) = &mut self.json {
            object.insert("stat".to_owned(), stat_json(stat));
        }
        self
    }

    /// Prints to standard output.
    pub(super) fn print(&self, as_json: bool) -> Result<()> {
        let mut out = io::stdout().lock();
        let written = if as_json { writeln!(out, "{}", self.json) } else { out.write_all(&self.text) };
        written.and_then(|()| out.flush()).context("cannot print the answer")
    }

    /// The text or the JSON, for a printer that is not standard output.
    pub(super) fn render(&self, as_json: bool) -> String {
        if as_json { format!("{}\n", self.json) } else { String::from_utf8_lossy(&self.text).into_owned() }
    }
}

/// How data is to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DataForm {
    /// Text as it is; other bytes as they are to a file or pipe, as a hex dump to a terminal.
    Plain,
    Base64,
    Hex,
}

/// Data of a znode, and a line end.
pub(super) fn data(data: &[u8], form: DataForm) -> Answer {
    let hex = match form {
        DataForm::Plain => io::stdout().is_terminal() && !is_text(data),
        DataForm::Base64 => return Answer::new(BASE64.encode(data) + "\n", data_json(data)),
        DataForm::Hex => true,
    };
    let text = if hex { hex_dump(data).into_bytes() } else { [data, b"\n"].concat() };
    Answer::new(text, data_json(data))
}

/// Reads base64.
pub(super) fn from_base64(text: &str) -> Result<Vec<u8>> {
    BASE64.decode(text).map_err(|error| Failure::usage(format!("the data is not base64: {error}")))
}

fn is_text(data: &[u8]) -> bool {
    let is_odd = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    str::from_utf8(data).is_ok_and(|text| !text.chars().any(is_odd))
}

fn data_json(data: &[u8]) -> Value {
    match str::from_utf8(data) {
        Ok(text) => json!({ "data": text }),
        Err(_) => json!({ "data_base64": BASE64.encode(data) }),
    }
}

/// Sixteen bytes a line: offset, bytes, characters.
pub(super) fn hex_dump(data: &[u8]) -> String {
    let mut out = String::new();
    for (line, bytes) in data.chunks(16).enumerate() {
        let mut hex = String::new();
        for byte in bytes {
            write!(hex, " {byte:02x}").expect("a String takes everything");
        }
        let character = |&byte: &u8| if matches!(byte, 0x20..=0x7e) { char::from(byte) } else { '.' };
        let characters: String = bytes.iter().map(character).collect();
        writeln!(out, "{:08x} {hex:<48}  |{characters}|", line * 16).expect("a String takes everything");
    }
    out
}

fn stat_text(stat: &Stat) -> String {
    format!(
        "cZxid = 0x{:x}\nctime = {}\nmZxid = 0x{:x}\nmtime = {}\npZxid = 0x{:x}\ncversion = {}\n\
         dataVersion = {}\naclVersion = {}\nephemeralOwner = 0x{:x}\ndataLength = {}\nnumChildren = {}\n",
        stat.czxid,
        date(stat.ctime),
        stat.mzxid,
        date(stat.mtime),
        stat.pzxid,
        stat.cversion,
        stat.version,
        stat.aversion,
        stat.ephemeral_owner,
        stat.data_length,
        stat.num_children,
    )
}

fn stat_json(stat: &Stat) -> Value {
    json!({
        "czxid": stat.czxid,
        "mzxid": stat.mzxid,
        "pzxid": stat.pzxid,
        "ctime": stat.ctime,
        "mtime": stat.mtime,
        "version": stat.version,
        "cversion": stat.cversion,
        "aversion": stat.aversion,
        "ephemeralOwner": stat.ephemeral_owner,
        "dataLength": stat.data_length,
        "numChildren": stat.num_children,
    })
}

/// A Stat alone.
pub(super) fn stat(stat: &Stat) -> Answer {
    Answer::done().and_stat(stat)
}

/// `[a, b]`, and as JSON under `key`.
pub(super) fn list(key: &str, items: &[String]) -> Answer {
    let json = Map::from_iter([(key.to_owned(), json!(items))]);
    Answer::new(format!("[{}]\n", items.join(", ")), Value::Object(json))
}

/// Permissions by their letters, in zkCli's order.
const PERMISSIONS: [(char, i32); 5] = [
    ('c', perms::CREATE),
    ('d', perms::DELETE),
    ('r', perms::READ),
    ('w', perms::WRITE),
    ('a', perms::ADMIN),
];

/// An ACL.
pub(super) fn acl(acl: &[Acl]) -> Answer {
    let mut text = String::new();
    let mut entries = Vec::new();
    for Acl { perms, scheme, id } in acl {
        let granted = PERMISSIONS.iter().filter(|(_, bit)| perms & bit != 0);
        let letters: String = granted.map(|(letter, _)| letter).collect();
        // zkCli prints its record of the identity, line end included, and scripts count on it.
        writeln!(text, "'{scheme},'{id}\n: {letters}").expect("a String takes everything");
        entries.push(json!({ "scheme": scheme, "id": id, "perms": letters }));
    }
    Answer::new(text, json!({ "acl": entries }))
}

/// Reads an ACL: `scheme:id:perms`, several with commas.
pub(super) fn parse_acl(text: &str) -> Result<Vec<Acl>> {
    text.split(',')
        .map(|entry| {
            let parts =
                entry.split_once(':').and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once(':')?)));
            let Some((scheme, (id, letters))) = parts else {
                return Err(Failure::usage(format!("{entry} does not have the form scheme:id:perm")));
            };
            let mut bits = 0;
            for letter in letters.chars() {
                let Some((_, bit)) = PERMISSIONS.iter().find(|(known, _)| *known == letter) else {
                    return Err(Failure::usage(format!(
                        "unknown permission {letter} in {entry}; known are c, d, r, w, a"
                    )));
                };
                bits |= bit;
            }
            Ok(Acl::new(bits, scheme, id))
        })
        .collect()
}

/// An error of the server, in zkCli's words.
pub(super) fn server_error(code: ErrorCode, path: &str) -> Failure {
    let what = match code {
        ErrorCode::NoNode => "Node does not exist",
        ErrorCode::NoChildrenForEphemerals => "Ephemerals cannot have children",
        ErrorCode::NodeExists => "Node already exists",
        ErrorCode::NotEmpty => "Node not empty",
        ErrorCode::NotReadOnly => "Not a read-only call",
        ErrorCode::InvalidAcl => "Acl is not valid ",
        ErrorCode::NoAuth => "Insufficient permission ",
        ErrorCode::BadArguments => "Arguments are not valid ",
        ErrorCode::BadVersion => "version No is not valid ",
        ErrorCode::QuotaExceeded => "Quota has exceeded ",
        _ => return Failure::failed(format!("{code}: {path}")),
    };
    Failure::failed(format!("{what}: {path}"))
}

/// A watch event, as zkCli prints it.
pub(super) fn event(event: &Event) -> Answer {
    let kind = match event.kind {
        EventKind::None => "None",
        EventKind::Created => "NodeCreated",
        EventKind::Deleted => "NodeDeleted",
        EventKind::DataChanged => "NodeDataChanged",
        EventKind::ChildrenChanged => "NodeChildrenChanged",
        EventKind::DataWatchRemoved => "DataWatchRemoved",
        EventKind::ChildWatchRemoved => "ChildWatchRemoved",
        EventKind::PersistentWatchRemoved => "PersistentWatchRemoved",
    };
    let Event { path, zxid, .. } = event;
    Answer::new(
        watched("SyncConnected", kind, path, *zxid),
        json!({ "event": kind, "path": path, "zxid": zxid }),
    )
}

/// A change of the connection's state, as zkCli prints it.
pub(super) fn state(state: State) -> Answer {
    let name = match state {
        State::Connected => "SyncConnected",
        State::ConnectedReadOnly => "ConnectedReadOnly",
        State::Connecting | State::Suspended => "Disconnected",
        State::Lost => "Expired",
        State::AuthFailed => "AuthFailed",
        State::Closed => "Closed",
    };
    Answer::new(watched(name, "None", "null", -1), json!({ "state": name }))
}

fn watched(state: &str, kind: &str, path: &str, zxid: i64) -> String {
    format!("\nWATCHER::\n\nWatchedEvent state:{state} type:{kind} path:{path} zxid: {zxid}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acl_is_read_and_shown() {
        let parsed = parse_acl("world:anyone:r,digest:u:h=:cdrwa").unwrap();
        assert_eq!(parsed, [Acl::new(1, "world", "anyone"), Acl::new(31, "digest", "u:h=")]);
        assert_eq!(acl(&parsed).render(false), "'world,'anyone\n: r\n'digest,'u:h=\n: cdrwa\n");
        for bad in ["", "world:anyone", "world:anyone:x"] {
            assert!(parse_acl(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn bytes_are_dumped_sixteen_a_line() {
        let dump = hex_dump(b"0123456789abcdef\n\xff");
        assert_eq!(
            dump,
            "00000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  |0123456789abcdef|\n\
             00000010  0a ff                                            |..|\n"
        );
    }

    #[test]
    fn data_that_is_no_text_is_base64_in_json() {
        assert_eq!(data(b"a", DataForm::Plain).render(true), "{\"data\":\"a\"}\n");
        assert_eq!(data(&[0xff], DataForm::Plain).render(true), "{\"data_base64\":\"/w==\"}\n");
        assert_eq!(data(b"ab", DataForm::Base64).render(false), "YWI=\n");
        assert_eq!(from_base64("YWI=").unwrap(), b"ab");
    }

    #[test]
    fn a_stat_has_zkclis_lines() {
        let shown = stat(&Stat { czxid: 255, ephemeral_owner: -1, ..Stat::default() }).render(false);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "cZxid = 0xff");
        assert_eq!(lines[8], "ephemeralOwner = 0xffffffffffffffff");
        assert_eq!(lines.len(), 11);
    }
}
