//! The methods of `local`.

use super::{Occasion, Result, Run};
use crate::code::{Expr, Local};
use crate::error::{CallError, Failure, Position, Trouble};
use crate::host::{CreateKind, Host, Object};
use crate::limits::Meter;
use crate::program::{Notification, record, split_path};
use crate::value::{ALLOCATION_BYTES, DATA, ITEM_BYTES, Value};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use stoa_wire::{ErrorCode, path};

/// Where programs have no business: what the service keeps its own state in, and the programs themselves.
const CLOSED: [&str; 2] = ["/zookeeper", stoa_tree::PROGRAMS];

type Done<T> = core::result::Result<T, Stop>;

/// What ends a call of a method.
enum Stop {
    Trouble(Trouble),
    Code(ErrorCode),
}

impl<T: Into<Trouble>> From<T> for Stop {
    fn from(trouble: T) -> Self {
        Self::Trouble(trouble.into())
    }
}

impl<'r, H: Host> Run<'r, H> {
    pub(super) fn local(&mut self, local: Local, arguments: &'r [Expr], at: Position) -> Result<Value> {
        let base = self.stack.len();
        self.arguments(arguments)?;
        let arguments: Vec<Value> = self.stack.drain(base..).collect();
        self.carry_out(local, &arguments).map_err(|stop| match stop {
            Stop::Trouble(trouble) => trouble.at(at),
            Stop::Code(code) => {
                let path = arguments.first().and_then(|path| path.str("").ok()).unwrap_or_default();
                let failure = Failure::Refused { operation: local.name(), path: path.into(), code };
                CallError { at, failure }
            }
        })
    }

    fn carry_out(&mut self, local: Local, arguments: &[Value]) -> Done<Value> {
        let occasion = match local {
            Local::Suppress | Local::Notify => Occasion::Event,
            Local::Block => Occasion::Operation,
            _ => self.occasion,
        };
        if occasion != self.occasion {
            let whose = if occasion == Occasion::Event { "an event" } else { "an operation" };
            return Err(
                Trouble::wrong(format!("local.{} is for handlers of {whose} only", local.name())).into()
            );
        }
        match local {
            Local::Suppress => {
                self.notify.suppress = true;
                return Ok(Value::Unit);
            }
            Local::Notify => return self.notify(&arguments[0], &arguments[1]),
            _ => {}
        }
        let path = checked(&arguments[0], local)?;
        match local {
            Local::Create => self.create(path, arguments.get(1), CreateKind::Persistent),
            Local::CreateSequential => self.create(path, arguments.get(1), CreateKind::Sequential),
            Local::Monitor => self.create(path, arguments.get(1), CreateKind::Ephemeral),
            Local::Delete => {
                self.count_write(path, &[])?;
                let version = version(arguments.get(1))?;
                self.host.delete(path, version).map_err(Stop::Code)?;
                Ok(Value::Unit)
            }
            Local::Exists => {
                self.meter.znode()?;
                self.host.exists(path).map(Value::Bool).map_err(Stop::Code)
            }
            Local::Read => {
                self.meter.znode()?;
                let object = self.host.read(path).map_err(Stop::Code)?;
                Ok(object_value(path, split_path(path).1, object, self.meter)?)
            }
            Local::Update => {
                let data = arguments[1].bytes(self.meter)?;
                let version = version(arguments.get(2))?;
                self.update(path, &data, version).map(|version| Value::Int(i64::from(version)))
            }
            Local::Cas => self.cas(path, &arguments[1], &arguments[2]),
            Local::SubObjects => self.sub_objects(path),
            Local::Oldest => self.oldest(path),
            Local::Block => self.block_until(path),
            Local::Suppress | Local::Notify => Ok(Value::Unit),
        }
    }

    fn count_write(&mut self, path: &str, data: &[u8]) -> Done<()> {
        self.meter.znode()?;
        self.meter.written(path.len() + data.len())?;
        // What the update takes until it is handed on, and what the tree notes of it.
        self.meter.memory(4 * path.len() + 2 * data.len() + 8 * ALLOCATION_BYTES)?;
        Ok(())
    }

    fn create(&mut self, path: &str, data: Option<&Value>, kind: CreateKind) -> Done<Value> {
        let data = match data {
            Some(data) => data.bytes(self.meter)?,
            None => Arc::from(&[][..]),
        };
        self.count_write(path, &data)?;
        let created = self.host.create(path, &data, kind).map_err(Stop::Code)?;
        Ok(Value::text(&created, self.meter)?)
    }

    fn update(&mut self, path: &str, data: &[u8], version: i32) -> Done<i32> {
        self.count_write(path, data)?;
        self.host.update(path, data, version).map_err(Stop::Code)
    }

    /// Sets the data if it is what is expected, and says whether it was.
    fn cas(&mut self, path: &str, expected: &Value, new: &Value) -> Done<Value> {
        let (expected, new) = (expected.bytes(self.meter)?, new.bytes(self.meter)?);
        self.meter.znode()?;
        let object = self.host.read(path).map_err(Stop::Code)?;
        self.meter.read(object.data.len())?;
        self.meter.scan(object.data.len())?;
        if object.data != &*expected {
            return Ok(Value::Bool(false));
        }
        self.update(path, &new, -1)?;
        Ok(Value::Bool(true))
    }

    /// All children, the oldest first; those of one update by their names.
    fn sub_objects(&mut self, path: &str) -> Done<Value> {
        self.meter.znode()?;
        let meter = &mut *self.meter;
        let mut found: Vec<(i64, Arc<str>, Value)> = Vec::new();
        let mut trouble = None;
        let listed = self.host.sub_objects(path, &mut |name, object| {
            let value = child_value(path, name, object, meter);
            match value {
                Ok(value) => found.push((object.created, name.into(), value)),
                Err(stopped) => trouble = Some(stopped),
            }
            trouble.is_none()
        });
        if let Some(trouble) = trouble {
            return Err(trouble.into());
        }
        listed.map_err(Stop::Code)?;
        found.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
        Ok(Value::array(found.into_iter().map(|(_, _, value)| value).collect(), self.meter)?)
    }

    /// The first of all children, without making objects of the others.
    fn oldest(&mut self, path: &str) -> Done<Value> {
        self.meter.znode()?;
        let meter = &mut *self.meter;
        let mut exhausted = None;
        let oldest = self.host.oldest(path, &mut || {
            exhausted = meter.step().err();
            exhausted.is_none()
        });
        let oldest = oldest.map_err(Stop::Code)?;
        if let Some(exhausted) = exhausted {
            return Err(exhausted.into());
        }
        Ok(match oldest {
            Some((name, object)) => child_value(path, name, object, self.meter)?,
            None => Value::Unit,
        })
    }

    fn block_until(&mut self, path: &str) -> Done<Value> {
        if let Some(other) = &self.blocked {
            let what = format!(
                "a call can wait for one znode only; it waits for {:?}",
                crate::error::Shortened(other)
            );
            return Err(Trouble::wrong(what).into());
        }
        self.meter.memory(path.len() + ALLOCATION_BYTES)?;
        self.blocked = Some(path.into());
        Ok(Value::Unit)
    }

    fn notify(&mut self, session: &Value, path: &Value) -> Done<Value> {
        let session = session.int("a session")?;
        let path = checked(path, Local::Notify)?;
        self.meter.notification()?;
        self.meter.memory(path.len() + 2 * ITEM_BYTES)?;
        self.notify.send.push(Notification { session, path: path.into() });
        Ok(Value::Unit)
    }
}

/// A path that a program may speak of.
fn checked(path: &Value, local: Local) -> Done<&str> {
    let text = path.str("a path")?;
    let wrong = |why: &str| {
        let what = format!("local.{}: {:?} {why}", local.name(), crate::error::Shortened(text));
        Err(Trouble::wrong(what).into())
    };
    // A sequential znode may have no name but its number.
    let complete = match local {
        Local::CreateSequential => text.strip_suffix('/').filter(|parent| !parent.is_empty()).unwrap_or(text),
        _ => text,
    };
    if !path::is_valid(complete) {
        return wrong(
            "is no path: one begins with `/`, does not end with it, and has no empty name, `.` or `..`",
        );
    }
    let is_below =
        |top: &str| text.strip_prefix(top).is_some_and(|tail| tail.is_empty() || tail.starts_with('/'));
    if CLOSED.into_iter().any(is_below) {
        return wrong("is closed to programs, as all of /zookeeper and /em");
    }
    Ok(text)
}

fn version(value: Option<&Value>) -> Done<i32> {
    let Some(value) = value else {
        return Ok(-1);
    };
    let version = value.int("a version")?;
    Ok(i32::try_from(version).map_err(|_| Trouble::wrong(format!("there can be no version {version}")))?)
}

fn child_value(
    parent: &str,
    name: &str,
    object: Object<'_>,
    meter: &mut Meter,
) -> core::result::Result<Value, Trouble> {
    meter.znode()?;
    meter.step()?;
    // The entry in the list that is sorted, which may be copied when it grows.
    meter.memory(4 * ITEM_BYTES + name.len() + ALLOCATION_BYTES)?;
    let mut path = String::with_capacity(parent.len() + 1 + name.len());
    path.push_str(parent.trim_end_matches('/'));
    path.push('/');
    path.push_str(name);
    object_value(&path, name, object, meter)
}

fn object_value(
    path: &str,
    name: &str,
    object: Object<'_>,
    meter: &mut Meter,
) -> core::result::Result<Value, Trouble> {
    meter.read(object.data.len())?;
    let fields = [
        ("path", Value::text(path, meter)?),
        ("name", Value::text(name, meter)?),
        (DATA, Value::blob(object.data, meter)?),
        ("version", Value::Int(i64::from(object.version))),
        ("created", Value::Int(object.created)),
        ("modified", Value::Int(object.modified)),
        ("children", Value::Int(object.children)),
        ("owner", Value::Int(object.owner)),
    ];
    record(fields, meter)
}
