//! What is assigned to.

use super::{Result, Run, operators};
use crate::code::{Binary, Place};
use crate::error::{Position, Trouble};
use crate::host::Host;
use crate::limits::Meter;
use crate::value::{ALLOCATION_BYTES, Array, ENTRY_BYTES, ITEM_BYTES, Map, Value, expected};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

impl<'r, H: Host> Run<'r, H> {
    pub(super) fn assign(
        &mut self,
        place: &'r Place,
        operator: Option<Binary>,
        value: Value,
        at: Position,
    ) -> Result<()> {
        let keys = self.keys(place)?;
        let locate = |trouble: Trouble| trouble.at(at);
        let value = match operator {
            None => value,
            Some(operator) => {
                let mut before = self.stack[self.base + place.slot].clone();
                for key in &keys {
                    before = operators::index(&before, key).map_err(locate)?;
                }
                operators::binary(operator, &before, &value, self.meter).map_err(locate)?
            }
        };
        let variable = &mut self.stack[self.base + place.slot];
        let Some((last, before)) = keys.split_last() else {
            *variable = value;
            return Ok(());
        };
        let container = descend(variable, before, 1 + value.height(), self.meter).map_err(locate)?;
        put(container, last, value, self.meter).map_err(locate)
    }

    pub(super) fn push(&mut self, place: &'r Place, value: Value, at: Position) -> Result<()> {
        let keys = self.keys(place)?;
        let locate = |trouble: Trouble| trouble.at(at);
        let variable = &mut self.stack[self.base + place.slot];
        let container = descend(variable, &keys, 1 + value.height(), self.meter).map_err(locate)?;
        let height = 1 + value.height();
        let array = own_array(container, height, self.meter).map_err(locate)?;
        self.meter.memory(ITEM_BYTES).map_err(|limit| locate(limit.into()))?;
        array.items.push(value);
        Ok(())
    }

    /// The keys that lead to a place.
    fn keys(&mut self, place: &'r Place) -> Result<Vec<Value>> {
        let mut keys = Vec::with_capacity(place.inside.len());
        for key in &place.inside {
            keys.push(self.expr(key)?);
        }
        Ok(keys)
    }
}

/// Goes inside, to a container that will then be `height` high.
fn descend<'v>(
    value: &'v mut Value,
    keys: &[Value],
    height: u32,
    meter: &mut Meter,
) -> core::result::Result<&'v mut Value, Trouble> {
    let Some((key, rest)) = keys.split_first() else {
        return Ok(value);
    };
    // There are as many containers around it as there are keys left.
    let outer = height.saturating_add(u32::try_from(keys.len()).unwrap_or(u32::MAX));
    let inner = match (&*value, key) {
        (Value::Array(array), Value::Int(index)) => {
            let at = operators::place_in(*index, array.items.len())?;
            &mut own_array(value, outer, meter)?.items[at]
        }
        (Value::Map(_), Value::Text(name)) => {
            operators::field(value, name)?;
            let entries = &mut own_map(value, outer, meter)?.entries;
            entries.get_mut(name).ok_or_else(|| Trouble::wrong("the map has no such entry"))?
        }
        (container, key) => return Err(unassignable(container, key)),
    };
    descend(inner, rest, height, meter)
}

fn put(
    container: &mut Value,
    key: &Value,
    value: Value,
    meter: &mut Meter,
) -> core::result::Result<(), Trouble> {
    let height = 1 + value.height();
    match (&*container, key) {
        (Value::Array(array), Value::Int(index)) => {
            let at = operators::place_in(*index, array.items.len())?;
            own_array(container, height, meter)?.items[at] = value;
        }
        (Value::Map(_), Value::Text(name)) => {
            meter.memory(ENTRY_BYTES)?;
            own_map(container, height, meter)?.entries.insert(name.clone(), value);
        }
        (container, key) => return Err(unassignable(container, key)),
    }
    Ok(())
}

fn unassignable(container: &Value, key: &Value) -> Trouble {
    Trouble::wrong(format!("in {} nothing can be changed by {}", container.kind(), key.kind()))
}

/// An array that nobody else holds, and that may be so high.
fn own_array<'v>(
    value: &'v mut Value,
    height: u32,
    meter: &mut Meter,
) -> core::result::Result<&'v mut Array, Trouble> {
    meter.nesting(height)?;
    let Value::Array(shared) = value else {
        return Err(expected("what is appended to", "an array", value));
    };
    if Arc::get_mut(shared).is_none() {
        meter.memory(shared.items.len() * ITEM_BYTES + ALLOCATION_BYTES)?;
    }
    let array = Arc::make_mut(shared);
    array.height = array.height.max(height);
    Ok(array)
}

/// A map that nobody else holds, and that may be so high.
fn own_map<'v>(
    value: &'v mut Value,
    height: u32,
    meter: &mut Meter,
) -> core::result::Result<&'v mut Map, Trouble> {
    meter.nesting(height)?;
    let Value::Map(shared) = value else {
        return Err(expected("what gets an entry", "a map", value));
    };
    if Arc::get_mut(shared).is_none() {
        meter.memory(shared.entries.len() * ENTRY_BYTES + ALLOCATION_BYTES)?;
    }
    let map = Arc::make_mut(shared);
    map.height = map.height.max(height);
    Ok(map)
}
