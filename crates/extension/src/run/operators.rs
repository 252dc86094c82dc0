//! Operators, fields and indices.

use crate::code::Binary;
use crate::error::{Shortened, Trouble};
use crate::limits::Meter;
use crate::value::{ALLOCATION_BYTES, Value};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;

type Result<T> = core::result::Result<T, Trouble>;

pub(super) fn overflow() -> Trouble {
    Trouble::wrong("the number does not fit into 64 bits")
}

pub(super) fn binary(operator: Binary, left: &Value, right: &Value, meter: &mut Meter) -> Result<Value> {
    let ordering = |meter: &mut Meter| order(left, right, meter);
    Ok(match operator {
        Binary::Equal => Value::Bool(left.equals(right, meter)?),
        Binary::NotEqual => Value::Bool(!left.equals(right, meter)?),
        Binary::Less => Value::Bool(ordering(meter)?.is_lt()),
        Binary::LessOrEqual => Value::Bool(ordering(meter)?.is_le()),
        Binary::Greater => Value::Bool(ordering(meter)?.is_gt()),
        Binary::GreaterOrEqual => Value::Bool(ordering(meter)?.is_ge()),
        Binary::Add if matches!(left, Value::Text(_)) || matches!(right, Value::Text(_)) => {
            let mut text = String::new();
            left.write(&mut text, meter)?;
            right.write(&mut text, meter)?;
            meter.memory(text.len() + ALLOCATION_BYTES)?;
            Value::Text(text.into())
        }
        _ => {
            let (Value::Int(left), Value::Int(right)) = (left, right) else {
                let what =
                    format!("there is no `{}` of {} and {}", sign(operator), left.kind(), right.kind());
                return Err(Trouble::wrong(what));
            };
            Value::Int(number(operator, *left, *right)?)
        }
    })
}

fn number(operator: Binary, left: i64, right: i64) -> Result<i64> {
    if right == 0 && matches!(operator, Binary::Divide | Binary::Remainder) {
        return Err(Trouble::wrong("a division by zero"));
    }
    let result = match operator {
        Binary::Add => left.checked_add(right),
        Binary::Subtract => left.checked_sub(right),
        Binary::Multiply => left.checked_mul(right),
        Binary::Divide => left.checked_div(right),
        Binary::Remainder => left.checked_rem(right),
        Binary::Equal
        | Binary::NotEqual
        | Binary::Less
        | Binary::LessOrEqual
        | Binary::Greater
        | Binary::GreaterOrEqual => Some(i64::from(left == right)),
    };
    result.ok_or_else(overflow)
}

fn sign(operator: Binary) -> &'static str {
    match operator {
        Binary::Add => "+",
        Binary::Subtract => "-",
        Binary::Multiply => "*",
        Binary::Divide => "/",
        Binary::Remainder => "%",
        Binary::Equal => "==",
        Binary::NotEqual => "!=",
        Binary::Less => "<",
        Binary::LessOrEqual => "<=",
        Binary::Greater => ">",
        Binary::GreaterOrEqual => ">=",
    }
}

/// Which of two numbers or two texts comes first.
pub(super) fn order(left: &Value, right: &Value, meter: &mut Meter) -> Result<Ordering> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => Ok(left.cmp(right)),
        (Value::Text(left), Value::Text(right)) => {
            meter.scan(left.len().min(right.len()))?;
            Ok(left.cmp(right))
        }
        _ => {
            let what =
                format!("{} and {} have no order; two numbers or two texts have", left.kind(), right.kind());
            Err(Trouble::wrong(what))
        }
    }
}

pub(super) fn field(value: &Value, name: &str) -> Result<Value> {
    if let Some(found) = value.field(name) {
        return Ok(found.clone());
    }
    Err(match value {
        Value::Record(fields) => {
            let known: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
            Trouble::wrong(format!(
                "there is no `{}`; there are {}",
                Shortened(name).text(),
                known.join(", ")
            ))
        }
        Value::Map(_) => Trouble::wrong(format!(
            "the map has no {:?}; ask `{:?} in map` first",
            Shortened(name),
            Shortened(name)
        )),
        other => Trouble::wrong(format!("{} has no `.{}`", other.kind(), Shortened(name).text())),
    })
}

pub(super) fn index(value: &Value, index: &Value) -> Result<Value> {
    match (value, index) {
        (Value::Array(array), Value::Int(index)) => {
            let at = place_in(*index, array.items.len())?;
            Ok(array.items[at].clone())
        }
        (Value::Blob(bytes), Value::Int(index)) => {
            let at = place_in(*index, bytes.len())?;
            Ok(Value::Int(i64::from(bytes[at])))
        }
        (Value::Map(_) | Value::Record(_), Value::Text(name)) => field(value, name),
        _ => Err(Trouble::wrong(format!("{} cannot be indexed by {}", value.kind(), index.kind()))),
    }
}

pub(super) fn place_in(index: i64, len: usize) -> Result<usize> {
    usize::try_from(index)
        .ok()
        .filter(|index| *index < len)
        .ok_or_else(|| Trouble::wrong(format!("there is no place {index}: there are {len}, counted from 0")))
}
