//! The interpreter. Everything is counted before it is done, and nothing is done that is not counted.

mod builtins;
mod local;
mod operators;
mod places;

use crate::code::{Block, Expr, ExprKind, For, Function, Literal, Over, Stmt, StmtKind};
use crate::error::{CallError, Failure, Position, Trouble};
use crate::host::Host;
use crate::limits::Meter;
use crate::program::Notify;
use crate::value::{ALLOCATION_BYTES, ENTRY_BYTES, ITEM_BYTES, Value, expected};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

type Result<T> = core::result::Result<T, CallError>;

/// What a call came to, besides what it did by way of the host.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) value: Value,
    /// Where the value was returned.
    pub(crate) returned_at: Position,
    /// The path that the caller waits for.
    pub(crate) blocked: Option<String>,
    pub(crate) notify: Notify,
}

/// What a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occasion {
    Operation,
    Event,
}

/// How a block ends.
enum Flow {
    /// At its end. With the value of its last statement, if that is one.
    End(Value),
    Break,
    Continue,
    Return(Value),
}

/// One call of a handler.
pub(crate) struct Run<'r, H> {
    functions: &'r [Function],
    host: &'r mut H,
    meter: &'r mut Meter,
    /// The variables of all functions under way.
    stack: Vec<Value>,
    /// Where those of the innermost one begin.
    base: usize,
    occasion: Occasion,
    returned_at: Position,
    blocked: Option<String>,
    notify: Notify,
}

impl<'r, H: Host> Run<'r, H> {
    pub(crate) fn new(
        functions: &'r [Function],
        occasion: Occasion,
        host: &'r mut H,
        meter: &'r mut Meter,
    ) -> Self {
        Self {
            functions,
            host,
            meter,
            occasion,
            stack: Vec::new(),
            base: 0,
            returned_at: Position::default(),
            blocked: None,
            notify: Notify::default(),
        }
    }

    pub(crate) fn handle(mut self, handler: usize, argument: Value) -> Result<Outcome> {
        self.stack.push(argument);
        let value = self.function(handler, Position::default())?;
        let Self { returned_at, blocked, notify, .. } = self;
        Ok(Outcome { value, returned_at, blocked, notify })
    }

    /// Calls a function whose arguments are the last on the stack.
    fn function(&mut self, number: usize, at: Position) -> Result<Value> {
        let functions = self.functions;
        let function = &functions[number];
        let base = self.stack.len() - function.parameters;
        self.meter.memory(function.slots * ITEM_BYTES).map_err(|limit| Trouble::from(limit).at(at))?;
        self.stack.resize(base + function.slots, Value::Unit);
        let caller = core::mem::replace(&mut self.base, base);
        let flow = self.block(&function.body)?;
        self.base = caller;
        self.stack.truncate(base);
        match flow {
            Flow::Return(value) => Ok(value),
            Flow::End(_) | Flow::Break | Flow::Continue => Ok(Value::Unit),
        }
    }

    fn block(&mut self, block: &'r Block) -> Result<Flow> {
        let mut last = Value::Unit;
        for statement in block {
            last = match self.statement(statement)? {
                Flow::End(value) => value,
                other => return Ok(other),
            };
        }
        Ok(Flow::End(last))
    }

    fn statement(&mut self, statement: &'r Stmt) -> Result<Flow> {
        let at = statement.at;
        self.step(at)?;
        match &statement.kind {
            // Not by way of the value of an expression: it may return, or leave a loop.
            StmtKind::Do(Expr { kind: ExprKind::If(parts), .. }) => {
                let (condition, then, otherwise) = &**parts;
                let block = if self.condition(condition)? { then } else { otherwise };
                return self.block(block);
            }
            StmtKind::Do(expr) => return self.expr(expr).map(Flow::End),
            StmtKind::Assign { place, operator, value } => {
                let value = self.expr(value)?;
                self.assign(place, *operator, value, at)?;
            }
            StmtKind::Push { place, value } => {
                let value = self.expr(value)?;
                self.push(place, value, at)?;
            }
            StmtKind::For(parts) => return self.for_loop(parts, at),
            StmtKind::Break => return Ok(Flow::Break),
            StmtKind::Continue => return Ok(Flow::Continue),
            StmtKind::Return(value) => {
                let value = value.as_ref().map_or(Ok(Value::Unit), |value| self.expr(value))?;
                self.returned_at = at;
                return Ok(Flow::Return(value));
            }
            StmtKind::Throw(value) => {
                let value = self.expr(value)?;
                let mut text = String::new();
                value.write(&mut text, self.meter).map_err(|trouble| trouble.at(at))?;
                return Err(CallError { at, failure: Failure::Thrown(text) });
            }
        }
        Ok(Flow::End(Value::Unit))
    }

    fn for_loop(&mut self, parts: &'r For, at: Position) -> Result<Flow> {
        match &parts.over {
            Over::Range { from, to, inclusive } => {
                let from =
                    self.expr(from)?.int("the beginning of a range").map_err(|trouble| trouble.at(at))?;
                let to = self.expr(to)?.int("the end of a range").map_err(|trouble| trouble.at(at))?;
                let items = from..to;
                let last = (*inclusive && from <= to).then_some(to);
                self.turns(parts, items.chain(last).map(Value::Int), at)
            }
            Over::Each(expr) => {
                let value = self.expr(expr)?;
                let Value::Array(array) = &value else {
                    let trouble = expected("what `for` goes through", "an array or a range", &value);
                    return Err(trouble.at(at));
                };
                self.turns(parts, array.items.iter().cloned(), at)
            }
        }
    }

    fn turns(&mut self, parts: &'r For, items: impl Iterator<Item = Value>, at: Position) -> Result<Flow> {
        for (count, item) in (0..).zip(items) {
            self.step(at)?;
            self.stack[self.base + parts.item] = item;
            if let Some(counter) = parts.counter {
                self.stack[self.base + counter] = Value::Int(count);
            }
            match self.block(&parts.body)? {
                Flow::End(_) | Flow::Continue => {}
                Flow::Break => break,
                returned @ Flow::Return(_) => return Ok(returned),
            }
        }
        Ok(Flow::End(Value::Unit))
    }

    fn step(&mut self, at: Position) -> Result<()> {
        self.meter.step().map_err(|limit| Trouble::from(limit).at(at))
    }

    fn condition(&mut self, expr: &'r Expr) -> Result<bool> {
        self.expr(expr)?.bool("a condition").map_err(|trouble| trouble.at(expr.at))
    }

    fn expr(&mut self, expr: &'r Expr) -> Result<Value> {
        let at = expr.at;
        self.step(at)?;
        let locate = |trouble: Trouble| trouble.at(at);
        Ok(match &expr.kind {
            ExprKind::Literal(literal) => match literal {
                Literal::Unit => Value::Unit,
                Literal::Bool(value) => Value::Bool(*value),
                Literal::Int(value) => Value::Int(*value),
                Literal::Text(text) => Value::Text(text.clone()),
            },
            ExprKind::Variable(slot) => self.stack[self.base + slot].clone(),
            ExprKind::Binary(operator, sides) => {
                let left = self.expr(&sides.0)?;
                let right = self.expr(&sides.1)?;
                operators::binary(*operator, &left, &right, self.meter).map_err(locate)?
            }
            ExprKind::Not(value) => Value::Bool(!self.condition(value)?),
            ExprKind::Negate(value) => {
                let int = self.expr(value)?.int("what is negated").map_err(locate)?;
                Value::Int(int.checked_neg().ok_or_else(|| locate(operators::overflow()))?)
            }
            ExprKind::And(parts) => Value::Bool(self.all(parts, true)?),
            ExprKind::Or(parts) => Value::Bool(!self.all(parts, false)?),
            ExprKind::Field(value, name) => {
                let value = self.expr(value)?;
                operators::field(&value, name).map_err(locate)?
            }
            ExprKind::Index(parts) => {
                let value = self.expr(&parts.0)?;
                let index = self.expr(&parts.1)?;
                operators::index(&value, &index).map_err(locate)?
            }
            ExprKind::If(parts) => return self.conditional(parts, at),
            ExprKind::Call(number, arguments) => {
                self.arguments(arguments)?;
                return self.function(*number, at);
            }
            ExprKind::Builtin(builtin, arguments) => return self.builtin(*builtin, arguments, at),
            ExprKind::Local(local, arguments) => return self.local(*local, arguments, at),
            ExprKind::Template(_) | ExprKind::Array(_) | ExprKind::Map(_) => return self.made(expr),
        })
    }

    /// Whether all parts are `wanted`, without looking at those behind the first that is not.
    fn all(&mut self, parts: &'r [Expr], wanted: bool) -> Result<bool> {
        for part in parts {
            if self.condition(part)? != wanted {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn conditional(&mut self, parts: &'r (Expr, Block, Block), at: Position) -> Result<Value> {
        let (condition, then, otherwise) = parts;
        let block = if self.condition(condition)? { then } else { otherwise };
        match self.block(block)? {
            Flow::End(value) => Ok(value),
            Flow::Break | Flow::Continue | Flow::Return(_) => {
                let what = "this `if` is a value; what it decides cannot leave the function or the loop";
                Err(Trouble::wrong(what).at(at))
            }
        }
    }

    /// Puts arguments on the stack.
    fn arguments(&mut self, arguments: &'r [Expr]) -> Result<()> {
        for argument in arguments {
            let value = self.expr(argument)?;
            self.stack.push(value);
        }
        Ok(())
    }

    /// A value that is put together from others.
    fn made(&mut self, expr: &'r Expr) -> Result<Value> {
        let at = expr.at;
        let locate = |trouble: Trouble| trouble.at(at);
        match &expr.kind {
            ExprKind::Template(parts) => {
                let mut text = String::new();
                for part in parts {
                    let value = self.expr(part)?;
                    value.write(&mut text, self.meter).map_err(locate)?;
                }
                Value::text(&text, self.meter).map_err(locate)
            }
            ExprKind::Array(items) => {
                let bytes = items.len() * ITEM_BYTES + ALLOCATION_BYTES;
                self.meter.memory(bytes).map_err(|limit| locate(limit.into()))?;
                let mut values = Vec::with_capacity(items.len());
                for item in items {
                    values.push(self.expr(item)?);
                }
                Value::array(values, self.meter).map_err(locate)
            }
            ExprKind::Map(items) => {
                let mut entries = BTreeMap::new();
                for (key, value) in items {
                    self.meter.memory(ENTRY_BYTES).map_err(|limit| locate(limit.into()))?;
                    entries.insert(key.clone(), self.expr(value)?);
                }
                Value::map(entries, self.meter).map_err(locate)
            }
            _ => Err(locate(Trouble::wrong("this is not put together from others"))),
        }
    }
}
