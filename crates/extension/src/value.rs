//! What a program computes with.
//!
//! Values are immutable and shared; who changes an array or a map that others hold too gets a copy of its own.
//! So a value costs memory once, however often it is passed around.

use crate::error::Trouble;
use crate::limits::Meter;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Unit,
    Bool(bool),
    Int(i64),
    Text(Arc<str>),
    Blob(Arc<[u8]>),
    Array(Arc<Array>),
    Map(Arc<Map>),
    /// A request, an event or a znode: cannot be changed.
    Record(Arc<[(&'static str, Value)]>),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Array {
    pub(crate) items: Vec<Value>,
    /// At least how many containers are within each other here, this one included.
    pub(crate) height: u32,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Map {
    pub(crate) entries: BTreeMap<Arc<str>, Value>,
    pub(crate) height: u32,
}

/// What a value takes where it is kept: itself, and a share of what keeps it.
pub(crate) const ITEM_BYTES: usize = 2 * size_of::<Value>();
/// What an entry of a map takes. Nodes of the map are at least a third full.
pub(crate) const ENTRY_BYTES: usize = 3 * (size_of::<Value>() + size_of::<Arc<str>>());
/// What anything takes that is allocated by itself.
pub(crate) const ALLOCATION_BYTES: usize = 32;

pub(crate) const DATA: &str = "data";

impl Value {
    pub(crate) fn text(text: &str, meter: &mut Meter) -> Result<Self, Trouble> {
        meter.memory(text.len() + ALLOCATION_BYTES)?;
        Ok(Self::Text(text.into()))
    }

    pub(crate) fn blob(bytes: &[u8], meter: &mut Meter) -> Result<Self, Trouble> {
        meter.memory(bytes.len() + ALLOCATION_BYTES)?;
        Ok(Self::Blob(bytes.into()))
    }

    pub(crate) fn array(items: Vec<Self>, meter: &Meter) -> Result<Self, Trouble> {
        let height = 1 + items.iter().map(Self::height).max().unwrap_or(0);
        meter.nesting(height)?;
        Ok(Self::Array(Arc::new(Array { items, height })))
    }

    pub(crate) fn map(entries: BTreeMap<Arc<str>, Self>, meter: &Meter) -> Result<Self, Trouble> {
        let height = 1 + entries.values().map(Self::height).max().unwrap_or(0);
        meter.nesting(height)?;
        Ok(Self::Map(Arc::new(Map { entries, height })))
    }

    pub(crate) fn height(&self) -> u32 {
        match self {
            Self::Array(array) => array.height,
            Self::Map(map) => map.height,
            _ => 0,
        }
    }

    /// What kind of value it is, with the article.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Unit => "nothing `()`",
            Self::Bool(_) => "a bool",
            Self::Int(_) => "a number",
            Self::Text(_) => "a text",
            Self::Blob(_) => "a blob",
            Self::Array(_) => "an array",
            Self::Map(_) => "a map",
            Self::Record(_) => "an object",
        }
    }

    pub(crate) fn int(&self, what: &str) -> Result<i64, Trouble> {
        match self {
            Self::Int(int) => Ok(*int),
            other => Err(expected(what, "a number", other)),
        }
    }

    pub(crate) fn bool(&self, what: &str) -> Result<bool, Trouble> {
        match self {
            Self::Bool(bool) => Ok(*bool),
            other => Err(expected(what, "true or false", other)),
        }
    }

    pub(crate) fn str(&self, what: &str) -> Result<&str, Trouble> {
        match self {
            Self::Text(text) => Ok(text),
            other => Err(expected(what, "a text", other)),
        }
    }

    pub(crate) fn field(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Record(fields) => fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value),
            Self::Map(map) => map.entries.get(name),
            _ => None,
        }
    }

    /// Appends it to a text, as a program would write it.
    pub(crate) fn write(&self, out: &mut String, meter: &mut Meter) -> Result<(), Trouble> {
        let mut digits = String::new();
        let text = match self {
            Self::Bool(true) => "true",
            Self::Bool(false) => "false",
            Self::Int(int) => {
                // Writing to a text cannot fail.
                let _ = write!(digits, "{int}");
                &digits
            }
            Self::Text(text) => text,
            Self::Blob(bytes) => utf8(bytes, meter)?,
            other => return Err(Trouble::wrong(format!("{} cannot be made a text", other.kind()))),
        };
        // Twice: a text that grows is copied to a place that is up to twice as large.
        meter.memory(2 * text.len() + ALLOCATION_BYTES)?;
        out.push_str(text);
        Ok(())
    }

    /// What is written to a znode, or answered, for this value.
    pub(crate) fn bytes(&self, meter: &mut Meter) -> Result<Arc<[u8]>, Trouble> {
        match self {
            Self::Blob(bytes) => Ok(bytes.clone()),
            Self::Text(text) => {
                meter.memory(text.len() + ALLOCATION_BYTES)?;
                Ok(text.as_bytes().into())
            }
            Self::Unit => Ok(Arc::from(&[][..])),
            Self::Int(_) | Self::Bool(_) => {
                let mut text = String::new();
                self.write(&mut text, meter)?;
                Ok(text.into_bytes().into())
            }
            Self::Record(_) => match self.field(DATA) {
                Some(Self::Blob(bytes)) => Ok(bytes.clone()),
                _ => Err(Trouble::wrong("this object has no data")),
            },
            Self::Array(_) | Self::Map(_) => {
                let what =
                    format!("{} cannot be written as data; make a text of it, as by `join`", self.kind());
                Err(Trouble::wrong(what))
            }
        }
    }

    /// Whether two values are the same. Of different kinds, none are.
    pub(crate) fn equals(&self, other: &Self, meter: &mut Meter) -> Result<bool, Trouble> {
        meter.step()?;
        Ok(match (self, other) {
            (Self::Unit, Self::Unit) => true,
            (Self::Bool(one), Self::Bool(other)) => one == other,
            (Self::Int(one), Self::Int(other)) => one == other,
            (Self::Text(one), Self::Text(other)) => {
                meter.scan(one.len().min(other.len()))?;
                one == other
            }
            (Self::Blob(one), Self::Blob(other)) => {
                meter.scan(one.len().min(other.len()))?;
                one == other
            }
            (Self::Array(one), Self::Array(other)) => {
                if one.items.len() != other.items.len() {
                    return Ok(false);
                }
                for (one, other) in one.items.iter().zip(&other.items) {
                    if !one.equals(other, meter)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Map(one), Self::Map(other)) => {
                if one.entries.len() != other.entries.len() {
                    return Ok(false);
                }
                for ((key, one), (other_key, other)) in one.entries.iter().zip(&other.entries) {
                    meter.scan(key.len().min(other_key.len()))?;
                    if key != other_key || !one.equals(other, meter)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Record(one), Self::Record(other)) => {
                if one.len() != other.len() {
                    return Ok(false);
                }
                for ((name, one), (other_name, other)) in one.iter().zip(other.iter()) {
                    if name != other_name || !one.equals(other, meter)? {
                        return Ok(false);
                    }
                }
                true
            }
            _ => false,
        })
    }
}

pub(crate) fn expected(what: &str, expected: &str, found: &Value) -> Trouble {
    Trouble::wrong(format!("{what} has to be {expected} and is {}", found.kind()))
}

pub(crate) fn utf8<'b>(bytes: &'b [u8], meter: &mut Meter) -> Result<&'b str, Trouble> {
    meter.scan(bytes.len())?;
    core::str::from_utf8(bytes).map_err(|_| Trouble::wrong("the data is no text: it is not UTF-8"))
}
