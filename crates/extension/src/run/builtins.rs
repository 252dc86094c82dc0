//! The functions of the language.

use super::{Result, Run, operators};
use crate::code::{Builtin, Expr};
use crate::error::{Position, Trouble};
use crate::host::Host;
use crate::limits::Meter;
use crate::program::split_path;
use crate::value::{ALLOCATION_BYTES, ITEM_BYTES, Value, expected, utf8};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;

type Done = core::result::Result<Value, Trouble>;

impl<'r, H: Host> Run<'r, H> {
    pub(super) fn builtin(&mut self, builtin: Builtin, arguments: &'r [Expr], at: Position) -> Result<Value> {
        let base = self.stack.len();
        self.arguments(arguments)?;
        let value = call(builtin, &self.stack[base..], self.meter).map_err(|trouble| trouble.at(at));
        self.stack.truncate(base);
        value
    }
}

/// There are as many arguments as the table of functions says.
fn call(builtin: Builtin, arguments: &[Value], meter: &mut Meter) -> Done {
    match arguments {
        [subject] => of_one(builtin, subject, meter),
        [subject, other] => of_two(builtin, subject, other, meter),
        [subject, start, length] => sub_string(subject, start, Some(length), meter),
        _ => Err(Trouble::wrong("a wrong number of values")),
    }
}

fn of_one(builtin: Builtin, subject: &Value, meter: &mut Meter) -> Done {
    match builtin {
        Builtin::Len => Ok(Value::Int(i64::try_from(len(subject, meter)?).unwrap_or(i64::MAX))),
        Builtin::IsEmpty => Ok(Value::Bool(len(subject, meter)? == 0)),
        Builtin::ToInt => to_int(subject, meter),
        Builtin::ToText => {
            if let Value::Text(_) = subject {
                return Ok(subject.clone());
            }
            let mut text = String::new();
            subject.write(&mut text, meter)?;
            Value::text(&text, meter)
        }
        Builtin::Trim => {
            let text = subject.str("what is trimmed")?;
            meter.scan(text.len())?;
            Value::text(text.trim(), meter)
        }
        Builtin::Sorted => sorted(subject, meter),
        Builtin::Keys => {
            let Value::Map(map) = subject else {
                return Err(expected("what has keys", "a map", subject));
            };
            meter.memory(map.entries.len() * ITEM_BYTES + ALLOCATION_BYTES)?;
            meter.scan(map.entries.len() * ITEM_BYTES)?;
            Value::array(map.entries.keys().cloned().map(Value::Text).collect(), meter)
        }
        Builtin::NameOf => Value::text(split_path(subject.str("a path")?).1, meter),
        Builtin::ParentOf => Value::text(split_path(subject.str("a path")?).0, meter),
        other => Err(missing(other)),
    }
}

fn of_two(builtin: Builtin, subject: &Value, other: &Value, meter: &mut Meter) -> Done {
    match builtin {
        Builtin::Contains => contains(subject, other, meter).map(Value::Bool),
        Builtin::Pad => pad(subject, other, meter),
        Builtin::Min | Builtin::Max => {
            let wanted = if builtin == Builtin::Min { Ordering::Less } else { Ordering::Greater };
            let order = operators::order(subject, other, meter)?;
            Ok(if order == wanted { subject } else { other }.clone())
        }
        Builtin::StartsWith | Builtin::EndsWith | Builtin::IndexOf => {
            let (text, part) = (subject.str("what is looked through")?, other.str("what is looked for")?);
            meter.scan(text.len() + part.len())?;
            Ok(match builtin {
                Builtin::StartsWith => Value::Bool(text.starts_with(part)),
                Builtin::EndsWith => Value::Bool(text.ends_with(part)),
                _ => {
                    let before = text.find(part).map(|at| text[..at].chars().count());
                    Value::Int(before.and_then(|count| i64::try_from(count).ok()).unwrap_or(-1))
                }
            })
        }
        Builtin::SubString => sub_string(subject, other, None, meter),
        Builtin::Split => split(subject, other, meter),
        Builtin::Join => join(subject, other, meter),
        other => Err(missing(other)),
    }
}

fn missing(builtin: Builtin) -> Trouble {
    Trouble::wrong(format!("`{}` takes another number of values", builtin.name()))
}

fn len(subject: &Value, meter: &mut Meter) -> core::result::Result<usize, Trouble> {
    Ok(match subject {
        Value::Text(text) => {
            meter.scan(text.len())?;
            text.chars().count()
        }
        Value::Blob(bytes) => bytes.len(),
        Value::Array(array) => array.items.len(),
        Value::Map(map) => map.entries.len(),
        other => return Err(expected("what has a length", "a text, a blob, an array or a map", other)),
    })
}

fn to_int(subject: &Value, meter: &mut Meter) -> Done {
    let text = match subject {
        Value::Int(_) => return Ok(subject.clone()),
        Value::Text(text) => text,
        Value::Blob(bytes) => utf8(bytes, meter)?,
        other => return Err(expected("what is read as a number", "a text or a blob", other)),
    };
    meter.scan(text.len())?;
    let int = text.trim().parse().map_err(|_| {
        Trouble::wrong(format!("{:?} is no number of 64 bits", crate::error::Shortened(text)))
    })?;
    Ok(Value::Int(int))
}

fn contains(subject: &Value, wanted: &Value, meter: &mut Meter) -> core::result::Result<bool, Trouble> {
    match subject {
        Value::Text(text) => {
            let part = wanted.str("what is looked for in a text")?;
            meter.scan(text.len() + part.len())?;
            Ok(text.contains(part))
        }
        Value::Array(array) => {
            for item in &array.items {
                if item.equals(wanted, meter)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::Map(_) | Value::Record(_) => {
            let name = wanted.str("what is looked for in a map")?;
            meter.scan(name.len())?;
            Ok(subject.field(name).is_some())
        }
        other => Err(expected("what is looked through", "a text, an array or a map", other)),
    }
}

/// A number with zeros before it, as the names of sequential znodes have.
fn pad(subject: &Value, width: &Value, meter: &mut Meter) -> Done {
    const WIDTH_MAX: i64 = 64;
    let (number, width) = (subject.int("what is padded")?, width.int("a width")?);
    if !(0..=WIDTH_MAX).contains(&width) {
        return Err(Trouble::wrong(format!("a width is 0 to {WIDTH_MAX} and not {width}")));
    }
    let width = usize::try_from(width).unwrap_or(0);
    Value::text(&format!("{number:0width$}"), meter)
}

/// Characters, not bytes. What is beyond the end is left out.
fn sub_string(subject: &Value, start: &Value, length: Option<&Value>, meter: &mut Meter) -> Done {
    let text = subject.str("what a part is taken of")?;
    let natural = |value: &Value, what| {
        let int = value.int(what)?;
        usize::try_from(int).map_err(|_| Trouble::wrong(format!("{what} cannot be {int}")))
    };
    let start = natural(start, "the start of a part")?;
    let length = length.map(|length| natural(length, "the length of a part")).transpose()?;
    meter.scan(text.len())?;
    let byte_of = |text: &str, character: usize| {
        text.char_indices().nth(character).map_or(text.len(), |(byte, _)| byte)
    };
    let tail = &text[byte_of(text, start)..];
    let part = &tail[..length.map_or(tail.len(), |length| byte_of(tail, length))];
    Value::text(part, meter)
}

fn split(subject: &Value, separator: &Value, meter: &mut Meter) -> Done {
    let (text, separator) = (subject.str("what is split")?, separator.str("a separator")?);
    if separator.is_empty() {
        return Err(Trouble::wrong("a separator cannot be empty"));
    }
    meter.scan(text.len())?;
    let mut parts = Vec::new();
    for part in text.split(separator) {
        meter.step()?;
        // Twice: an array that grows is copied to a place that is up to twice as large.
        meter.memory(2 * ITEM_BYTES)?;
        parts.push(Value::text(part, meter)?);
    }
    Value::array(parts, meter)
}

fn join(subject: &Value, separator: &Value, meter: &mut Meter) -> Done {
    let Value::Array(array) = subject else {
        return Err(expected("what is joined", "an array", subject));
    };
    let mut text = String::new();
    for (index, item) in array.items.iter().enumerate() {
        meter.step()?;
        if index > 0 {
            separator.write(&mut text, meter)?;
        }
        item.write(&mut text, meter)?;
    }
    Value::text(&text, meter)
}

/// Numbers or texts in their order.
fn sorted(subject: &Value, meter: &mut Meter) -> Done {
    let Value::Array(array) = subject else {
        return Err(expected("what is sorted", "an array", subject));
    };
    let len = array.items.len();
    meter.memory(2 * len * ITEM_BYTES + ALLOCATION_BYTES)?;
    let mut items = array.items.clone();
    // The sort cannot be left in its midst; what goes wrong is kept, and nothing is compared any more.
    let mut trouble = None;
    items.sort_by(|one, other| {
        if trouble.is_some() {
            return Ordering::Equal;
        }
        let order = meter.step().map_err(Trouble::from).and_then(|()| operators::order(one, other, meter));
        order.unwrap_or_else(|found| {
            trouble = Some(found);
            Ordering::Equal
        })
    });
    match trouble {
        Some(trouble) => Err(trouble),
        None => Value::array(items, meter),
    }
}
