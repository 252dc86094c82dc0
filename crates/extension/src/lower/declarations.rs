//! What stands outside of functions: subscriptions and constants.

use super::{Globals, Result, check_name, position};
use crate::code::Literal;
use crate::error::{CompileError, Position};
use crate::pattern::Pattern;
use crate::program::{EventKind, OperationKind, Subscription};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use rhai::{AST, ASTFlags, Expr, FnCallExpr, ScriptFuncDef, Stmt};

const ON_OPERATION: &str = "on_operation";
const ON_EVENT: &str = "on_event";

const ALLOWED: &str = "outside of functions there can only be `on_operation(kind, pattern);`, \
     `on_event(kind, pattern);` and constants, as `const NAME = 10;`";

/// Gives each function its number. The order is that of the source.
pub(super) fn functions(definitions: &[&ScriptFuncDef]) -> Result<BTreeMap<String, (usize, usize)>> {
    let mut functions = BTreeMap::new();
    for (number, definition) in definitions.iter().enumerate() {
        let at = position(definition.body.start_position());
        check_name(&definition.name, at)?;
        if definition.this_type.is_some() {
            let what = format!("`{}` is a function of a type; make it a plain one", definition.name);
            return Err(CompileError::new(at, what));
        }
        let known = functions.insert(definition.name.to_string(), (number, definition.params.len()));
        if known.is_some() {
            let what =
                format!("there are two functions `{}`; give one of them another name", definition.name);
            return Err(CompileError::new(at, what));
        }
    }
    Ok(functions)
}

/// Reads the declarations. The constants become known to the whole program.
pub(super) fn declarations(tree: &AST, globals: &mut Globals<'_>) -> Result<Vec<Subscription>> {
    let mut subscriptions = Vec::new();
    for statement in tree.statements() {
        match statement {
            Stmt::Noop(_) => {}
            Stmt::Var(variable, flags, at) if flags.contains(ASTFlags::CONSTANT) => {
                let (name, value, _) = &**variable;
                let at = position(*at);
                check_name(&name.name, at)?;
                let literal = literal(value).ok_or_else(|| {
                    CompileError::new(
                        at,
                        "a constant outside of functions is a number, a text, `true` or `false`",
                    )
                })?;
                if globals.constants.insert(name.name.to_string(), literal).is_some() {
                    let what = format!("there are two constants `{}`", name.name);
                    return Err(CompileError::new(at, what));
                }
            }
            Stmt::FnCall(call, at) => subscriptions.push(subscription(call, position(*at))?),
            Stmt::Expr(expr) => match &**expr {
                Expr::FnCall(call, at) => subscriptions.push(subscription(call, position(*at))?),
                other => return Err(CompileError::new(position(other.position()), ALLOWED)),
            },
            other => return Err(CompileError::new(position(other.position()), ALLOWED)),
        }
    }
    let allowed = globals.limits.subscriptions;
    if subscriptions.is_empty() || subscriptions.len() > allowed {
        let what = match subscriptions.len() {
            0 => {
                "it subscribes to nothing; say what it is for, as `on_operation(\"read\", \"/path\");`".into()
            }
            count => format!("{count} subscriptions are more than the limit `subscriptions` of {allowed}"),
        };
        return Err(CompileError::new(Position::default(), what));
    }
    Ok(subscriptions)
}

/// A literal, if the expression is nothing else.
pub(super) fn literal(expr: &Expr) -> Option<Literal> {
    match expr {
        Expr::Unit(_) => Some(Literal::Unit),
        Expr::BoolConstant(value, _) => Some(Literal::Bool(*value)),
        Expr::IntegerConstant(value, _) => Some(Literal::Int(*value)),
        Expr::StringConstant(text, _) => Some(Literal::Text(text.as_str().into())),
        _ => None,
    }
}

fn subscription(call: &FnCallExpr, at: Position) -> Result<Subscription> {
    let (Expr::StringConstant(kind, kind_at), Expr::StringConstant(pattern, pattern_at)) = (match &*call.args
    {
        [kind, pattern] => (kind, pattern),
        _ => return Err(CompileError::new(at, ALLOWED)),
    }) else {
        return Err(CompileError::new(at, ALLOWED));
    };
    let parsed = Pattern::parse(pattern)
        .map_err(|error| CompileError::new(position(*pattern_at), error.to_string()))?;
    let unknown = |known: &str| {
        let what = format!("there is no kind \"{}\"; there are {known}", kind.escape_default());
        CompileError::new(position(*kind_at), what)
    };
    match call.name.as_str() {
        ON_OPERATION => match OperationKind::from_name(kind) {
            Some(kind) => Ok(Subscription::Operation { kind, pattern: parsed }),
            None => Err(unknown(&OperationKind::names())),
        },
        ON_EVENT => match EventKind::from_name(kind) {
            Some(kind) => Ok(Subscription::Event { kind, pattern: parsed }),
            None => Err(unknown(&EventKind::names())),
        },
        _ => Err(CompileError::new(at, ALLOWED)),
    }
}

/// Each subscription needs its handler, and a handler one of its subscriptions.
pub(super) fn check_handlers(definitions: &[&ScriptFuncDef], subscriptions: &[Subscription]) -> Result<()> {
    for subscription in subscriptions {
        let (name, parameter) = match subscription {
            Subscription::Operation { kind, .. } => (kind.name(), "request"),
            Subscription::Event { kind, .. } => (kind.name(), "event"),
        };
        if !definitions.iter().any(|definition| definition.name == name) {
            let what =
                format!("nothing handles what it subscribes to; add `fn {name}({parameter}) {{ ... }}`");
            return Err(CompileError::new(Position::default(), what));
        }
    }
    for definition in definitions {
        let name = definition.name.as_str();
        let at = position(definition.body.start_position());
        let (call, subscribed) = if let Some(kind) = OperationKind::from_name(name) {
            let of_kind =
                |one: &Subscription| matches!(one, Subscription::Operation { kind: it, .. } if *it == kind);
            (ON_OPERATION, subscriptions.iter().any(of_kind))
        } else if let Some(kind) = EventKind::from_name(name) {
            let of_kind =
                |one: &Subscription| matches!(one, Subscription::Event { kind: it, .. } if *it == kind);
            (ON_EVENT, subscriptions.iter().any(of_kind))
        } else {
            continue;
        };
        if !subscribed {
            let what =
                format!("`{name}` handles nothing; add `{call}(\"{name}\", pattern);` or take another name");
            return Err(CompileError::new(at, what));
        }
        if definition.params.len() != 1 {
            let what = format!("`{name}` is a handler: it takes one parameter");
            return Err(CompileError::new(at, what));
        }
    }
    Ok(())
}
