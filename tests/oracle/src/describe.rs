//! Requests and answers as text.

use crate::answer::{Field, Item};
use crate::call::{AclEntry, Call, Moment, Name, Op};
use crate::generate::Step;
use crate::ledger::Value;
use crate::pair::{Difference, Past};
use std::fmt;

/// Bytes of a name or buffer that are shown.
const SHOWN_BYTES: usize = 60;

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) if text.len() <= 120 => write!(f, "{text:?}"),
            Self::Text(text) => {
                write!(f, "{:?}... ({} bytes)", text.chars().take(8).collect::<String>(), text.len())
            }
            Self::Sequential(nth) => write!(f, "<sequential znode {nth}>"),
            Self::Null => f.write_str("null"),
        }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WritesAgo(count) => write!(f, "<{count} writes ago>"),
            Self::Fixed(zxid) => write!(f, "{zxid}"),
        }
    }
}

struct Data<'a>(Option<&'a [u8]>);

impl fmt::Display for Data<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("null"),
            Some(bytes) if bytes.len() > SHOWN_BYTES || bytes.iter().any(|byte| !byte.is_ascii_graphic()) => {
                write!(f, "{} bytes", bytes.len())?;
                bytes.first().map_or(Ok(()), |first| write!(f, " of {first:#04x}"))
            }
            Some(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
        }
    }
}

struct AclText<'a>(Option<&'a [AclEntry]>);

impl fmt::Display for AclText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(entries) = self.0 else {
            return f.write_str("null");
        };
        f.write_str("[")?;
        for (nth, entry) in entries.iter().enumerate() {
            let (scheme, id) = (entry.scheme.unwrap_or("(null)"), entry.id.unwrap_or("(null)"));
            write!(f, "{}{scheme}:{id}:{}", if nth == 0 { "" } else { " " }, entry.perms)?;
        }
        f.write_str("]")
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.opcode_name())?;
        match self {
            Self::Create { opcode, path, data, acl, flags, ttl_ms } => {
                write!(
                    f,
                    " {path} data {} acl {} flags {flags}",
                    Data(data.as_deref()),
                    AclText(acl.as_deref())
                )?;
                if *opcode == stoa_wire::Opcode::CreateTtl { write!(f, " ttl {ttl_ms}") } else { Ok(()) }
            }
            Self::Path { path, .. } => write!(f, " {path}"),
            Self::Watch { path, watch, .. } => write!(f, " {path}{}", if *watch { " watch" } else { "" }),
            Self::Number { path, number, .. } => write!(f, " {path} {number}"),
            Self::SetData { path, data, version } => {
                write!(f, " {path} data {} version {version}", Data(data.as_deref()))
            }
            Self::SetAcl { path, acl, version } => {
                write!(f, " {path} acl {} version {version}", AclText(acl.as_deref()))
            }
            Self::Multi { ops, .. } => {
                f.write_str(" (")?;
                for (nth, op) in ops.iter().enumerate() {
                    write!(f, "{}{op}", if nth == 0 { "" } else { "; " })?;
                }
                f.write_str(")")
            }
            Self::SetWatches { seen, lists, .. } => {
                write!(f, " seen {seen}")?;
                for (name, list) in ["data", "exist", "child", "persistent", "recursive"].iter().zip(lists) {
                    if !list.is_empty() {
                        write!(f, " {name}")?;
                        list.iter().try_for_each(|path| write!(f, " {path}"))?;
                    }
                }
                Ok(())
            }
            Self::Auth { scheme, auth } => write!(f, " {scheme:?} \"{}\"", auth.escape_ascii()),
            Self::Bare(_) => Ok(()),
            Self::Raw { body, .. } => write!(f, " body {}", hex(body)),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.op.fmt(f)?;
        if self.cut > 0 {
            write!(f, ", the last {} bytes missing", self.cut)?;
        }
        if self.extra > 0 {
            write!(f, ", {} bytes too many", self.extra)?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Burst { slot, calls } => {
                for (nth, call) in calls.iter().enumerate() {
                    if nth == 0 {
                        write!(f, "session {slot}: {call}")?;
                    } else {
                        write!(f, "\n      and: {call}")?;
                    }
                }
                Ok(())
            }
            Self::Dial { slot, how } => write!(f, "session {slot}: connect {how:?}"),
            Self::Garbage { slot, bytes } => write!(f, "session {slot}: bytes {}", hex(bytes)),
        }
    }
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Bytes(bytes) if bytes.len() > 4 * SHOWN_BYTES => {
                write!(f, "\"{}\"... ({} bytes)", bytes[..SHOWN_BYTES].escape_ascii(), bytes.len())
            }
            Self::Bytes(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Null => f.write_str("null"),
            Self::Set(items) => {
                f.write_str("{")?;
                for item in items {
                    write!(f, " {}", item.escape_ascii())?;
                }
                f.write_str(" }")
            }
            Self::Write(nth) => write!(f, "<write {nth}>"),
            Self::Since(nth) => write!(f, "<after {nth} writes>"),
            Self::TimeOf(nth) => write!(f, "<time of write {nth}>"),
            Self::Session(nth) => write!(f, "<session {nth}>"),
        }
    }
}

fn fields(f: &mut fmt::Formatter<'_>, fields: &[Field]) -> fmt::Result {
    fields.iter().enumerate().try_for_each(|(nth, field)| {
        write!(f, "{}{} {}", if nth == 0 { "" } else { ", " }, field.name, field.value)
    })
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply(_, list) => {
                f.write_str("reply: ")?;
                fields(f, list)
            }
            Self::Event(list) => {
                f.write_str("watch event: ")?;
                fields(f, list)
            }
            Self::Ended(how) => write!(f, "the connection ended ({how:?})"),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "session {}: {}", self.slot, self.what)?;
        if let Some(call) = &self.call {
            writeln!(f, "  request: {call}")?;
        }
        for (side, item) in [("left", &self.left), ("right", &self.right)] {
            match item {
                Some(item) => writeln!(f, "  {side:5}: {item}")?,
                None => writeln!(f, "  {side:5}: nothing")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Past {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answered = self.items.iter().filter(|item| matches!(item, Item::Reply(..))).count();
        for item in &self.items {
            match item {
                Item::Reply(nth, _) => {
                    if let Some(call) = self.calls.get(*nth) {
                        writeln!(f, "  {call}")?;
                    }
                    writeln!(f, "      {item}")?;
                }
                _ => writeln!(f, "      {item}")?,
            }
        }
        for call in self.calls.iter().skip(answered) {
            writeln!(f, "  {call}\n      not answered")?;
        }
        Ok(())
    }
}
