//! Expressions.

use super::statements::no_operator;
use super::{FunctionLowering, LOCAL, Result, declarations, position};
use crate::code::{Binary, Builtin, Expr, ExprKind, Literal, Local, StmtKind};
use crate::error::{CompileError, Position};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rhai::{ASTFlags, BinaryExpr, FnCallExpr, Token};

/// What follows a value: `.name`, `.name(...)` or `[index]`.
pub(super) struct Link<'e> {
    pub(super) at: Position,
    kind: LinkKind<'e>,
}

enum LinkKind<'e> {
    Field(&'e str),
    Method(&'e FnCallExpr),
    Index(&'e rhai::Expr),
}

impl<'e> Link<'e> {
    /// What is appended, if it is the method that appends.
    pub(super) fn pushed(&self) -> Option<&'e rhai::Expr> {
        match self.kind {
            LinkKind::Method(call) if call.name == "push" => match &*call.args {
                [value] => Some(value),
                _ => None,
            },
            _ => None,
        }
    }
}

impl FunctionLowering<'_> {
    pub(super) fn expr(&mut self, expr: &rhai::Expr) -> Result<Expr> {
        let at = position(expr.position());
        let refuse = |what: &str| Err(CompileError::new(at, what));
        let kind = match expr {
            rhai::Expr::Variable(name, _, _) => return self.name(&name.1, at),
            rhai::Expr::CharConstant(character, _) => {
                let mut text = String::new();
                text.push(*character);
                ExprKind::Literal(Literal::Text(text.into()))
            }
            rhai::Expr::InterpolatedString(parts, _) => ExprKind::Template(self.exprs(parts.iter())?),
            rhai::Expr::Array(items, _) => ExprKind::Array(self.exprs(items.iter())?),
            rhai::Expr::Map(map, _) => {
                let mut entries = Vec::with_capacity(map.0.len());
                for (key, value) in &map.0 {
                    entries.push((key.name.as_str().into(), self.expr(value)?));
                }
                ExprKind::Map(entries)
            }
            rhai::Expr::Stmt(block) => match block.statements() {
                [statement @ rhai::Stmt::If(..)] => return self.conditional(statement, true),
                [rhai::Stmt::Expr(value)] => return self.expr(value),
                [rhai::Stmt::FnCall(call, at)] => return self.call(call, position(*at)),
                [] => ExprKind::Literal(Literal::Unit),
                _ => return refuse("a block is no value, only an `if` is; make a function of it"),
            },
            rhai::Expr::FnCall(call, _) => return self.call(call, at),
            rhai::Expr::Dot(..) | rhai::Expr::Index(..) => return self.linked(expr),
            rhai::Expr::And(parts, _) => ExprKind::And(self.exprs(parts.iter())?),
            rhai::Expr::Or(parts, _) => ExprKind::Or(self.exprs(parts.iter())?),
            rhai::Expr::Coalesce(..) => return refuse("`??` is not part of the language; use `if`"),
            rhai::Expr::ThisPtr(_) => {
                return refuse("`this` is not part of the language; pass it as an argument");
            }
            other => match declarations::literal(other) {
                Some(literal) => ExprKind::Literal(literal),
                None => return refuse("this expression is not part of the language"),
            },
        };
        Ok(Expr { at, kind })
    }

    fn exprs<'e>(&mut self, exprs: impl Iterator<Item = &'e rhai::Expr>) -> Result<Vec<Expr>> {
        exprs.map(|expr| self.expr(expr)).collect()
    }

    /// A call of a function or an operator.
    pub(super) fn call(&mut self, call: &FnCallExpr, at: Position) -> Result<Expr> {
        let name = call.name.as_str();
        match (&call.op_token, &*call.args) {
            (None | Some(Token::NotIn), _) => {}
            (Some(Token::Bang), [value]) => {
                return Ok(Expr { at, kind: ExprKind::Not(Box::new(self.expr(value)?)) });
            }
            (Some(Token::Minus | Token::UnaryMinus), [value]) => {
                return Ok(Expr { at, kind: ExprKind::Negate(Box::new(self.expr(value)?)) });
            }
            (Some(Token::ExclusiveRange | Token::InclusiveRange), _) => {
                return Err(CompileError::new(at, "a range can only stand behind the `in` of a `for`"));
            }
            (Some(token), [left, right]) => {
                let operator = binary(token).ok_or_else(|| no_operator(name, at))?;
                let sides = Box::new((self.expr(left)?, self.expr(right)?));
                return Ok(Expr { at, kind: ExprKind::Binary(operator, sides) });
            }
            (Some(_), _) => return Err(no_operator(name, at)),
        }
        if call.capture_parent_scope {
            return Err(CompileError::new(at, "`!` behind a name is not part of the language"));
        }
        let arguments = self.exprs(call.args.iter())?;
        if let Some((number, parameters)) = self.globals.functions.get(name).copied() {
            check_count(name, arguments.len(), parameters, parameters, at)?;
            self.calls.entry(number).or_insert(at);
            return Ok(Expr { at, kind: ExprKind::Call(number, arguments) });
        }
        builtin(name, arguments, at)
    }

    /// Takes `a.b[c].d()` apart.
    pub(super) fn chain<'e>(&self, expr: &'e rhai::Expr) -> Result<(&'e rhai::Expr, Vec<Link<'e>>)> {
        let mut links = Vec::new();
        let Some((mut pair, mut flags, mut dotted, mut at)) = pair(expr) else {
            return Ok((expr, links));
        };
        let root = &pair.lhs;
        loop {
            if flags.contains(ASTFlags::NEGATED) {
                let what = "`?.` and `?[` are not part of the language; use `if`";
                return Err(CompileError::new(at, what));
            }
            // Behind a dot there can only be more of the chain; in brackets, a flag ends it.
            let more = pair_if(&pair.rhs, dotted || !flags.contains(ASTFlags::BREAK));
            let here = more.map_or(&pair.rhs, |(next, ..)| &next.lhs);
            links.push(link(here, dotted, at)?);
            match more {
                Some((next, next_flags, next_dotted, next_at)) => {
                    (pair, flags, dotted, at) = (next, next_flags, next_dotted, next_at);
                }
                None => return Ok((root, links)),
            }
        }
    }

    fn linked(&mut self, expr: &rhai::Expr) -> Result<Expr> {
        let (root, links) = self.chain(expr)?;
        let mut links = links.into_iter();
        let mut value = match root {
            rhai::Expr::Variable(name, _, _) if name.1 == LOCAL => match links.next() {
                Some(Link { at, kind: LinkKind::Method(call) }) => self.local(call, at)?,
                _ => return Err(CompileError::new(position(root.position()), NOT_A_VALUE)),
            },
            _ => self.expr(root)?,
        };
        for Link { at, kind } in links {
            let kind = match kind {
                LinkKind::Field(name) => ExprKind::Field(Box::new(value), name.into()),
                LinkKind::Index(index) => ExprKind::Index(Box::new((value, self.expr(index)?))),
                LinkKind::Method(call) => {
                    let mut arguments = Vec::with_capacity(1 + call.args.len());
                    arguments.push(value);
                    for argument in &call.args {
                        arguments.push(self.expr(argument)?);
                    }
                    value = builtin(&call.name, arguments, at)?;
                    continue;
                }
            };
            value = Expr { at, kind };
        }
        Ok(value)
    }

    fn local(&mut self, call: &FnCallExpr, at: Position) -> Result<Expr> {
        let name = call.name.as_str();
        let Some((local, _, min, max)) = Local::ALL.iter().copied().find(|(_, known, _, _)| *known == name)
        else {
            let known: Vec<&str> = Local::ALL.iter().map(|(_, name, _, _)| *name).collect();
            let what = format!("`local` has no method `{name}`; it has {}", known.join(", "));
            return Err(CompileError::new(at, what));
        };
        let arguments = self.exprs(call.args.iter())?;
        check_count(name, arguments.len(), min, max, at)?;
        Ok(Expr { at, kind: ExprKind::Local(local, arguments) })
    }

    pub(super) fn place_step(&mut self, link: Link<'_>) -> Result<Expr> {
        match link.kind {
            LinkKind::Field(name) => {
                Ok(Expr { at: link.at, kind: ExprKind::Literal(Literal::Text(name.into())) })
            }
            LinkKind::Index(index) => self.expr(index),
            LinkKind::Method(_) => Err(CompileError::new(
                link.at,
                "what a method returns cannot be changed; assign it to a variable first",
            )),
        }
    }
}

const NOT_A_VALUE: &str = "`local` is no value; call one of its methods, as `local.read(path)`";

type Pair<'e> = (&'e BinaryExpr, ASTFlags, bool, Position);

/// The two sides of a dot or of brackets.
fn pair(expr: &rhai::Expr) -> Option<Pair<'_>> {
    match expr {
        rhai::Expr::Dot(pair, flags, at) => Some((pair, *flags, true, position(*at))),
        rhai::Expr::Index(pair, flags, at) => Some((pair, *flags, false, position(*at))),
        _ => None,
    }
}

fn pair_if(expr: &rhai::Expr, goes_on: bool) -> Option<Pair<'_>> {
    if goes_on { pair(expr) } else { None }
}

fn link(expr: &rhai::Expr, dotted: bool, at: Position) -> Result<Link<'_>> {
    let kind = match expr {
        _ if !dotted => LinkKind::Index(expr),
        rhai::Expr::Property(property, _) => LinkKind::Field(&property.2),
        rhai::Expr::MethodCall(call, _) => LinkKind::Method(call),
        _ => return Err(CompileError::new(at, "behind a dot there can only be a name or a call")),
    };
    Ok(Link { at, kind })
}

fn builtin(name: &str, arguments: Vec<Expr>, at: Position) -> Result<Expr> {
    if name == "push" {
        return Err(CompileError::new(at, "`push` is a statement of its own, as `list.push(value);`"));
    }
    let Some((builtin, _, min, max)) = Builtin::ALL.iter().copied().find(|(_, known, _, _)| *known == name)
    else {
        let known: Vec<&str> = Builtin::ALL.iter().map(|(_, name, _, _)| *name).collect();
        let what = format!(
            "there is no function `{}`; the language has {}",
            name.escape_default(),
            known.join(", ")
        );
        return Err(CompileError::new(at, what));
    };
    check_count(name, arguments.len(), min, max, at)?;
    Ok(Expr { at, kind: ExprKind::Builtin(builtin, arguments) })
}

fn check_count(name: &str, count: usize, min: usize, max: usize, at: Position) -> Result<()> {
    if (min..=max).contains(&count) {
        return Ok(());
    }
    let expected = if min == max { format!("{min}") } else { format!("{min} to {max}") };
    Err(CompileError::new(at, format!("`{name}` takes {expected} values and is given {count}")))
}

fn binary(token: &Token) -> Option<Binary> {
    Some(match token {
        Token::Plus => Binary::Add,
        Token::Minus => Binary::Subtract,
        Token::Multiply => Binary::Multiply,
        Token::Divide => Binary::Divide,
        Token::Modulo => Binary::Remainder,
        Token::EqualsTo => Binary::Equal,
        Token::NotEqualsTo => Binary::NotEqual,
        Token::LessThan => Binary::Less,
        Token::LessThanEqualsTo => Binary::LessOrEqual,
        Token::GreaterThan => Binary::Greater,
        Token::GreaterThanEqualsTo => Binary::GreaterOrEqual,
        _ => return None,
    })
}

impl StmtKind {
    /// Whether it does something. A value that nothing is done with is a mistake of the program.
    pub(super) fn has_effect(&self) -> bool {
        match self {
            Self::Do(expr) => matches!(expr.kind, ExprKind::If(_) | ExprKind::Call(..) | ExprKind::Local(..)),
            _ => true,
        }
    }
}
