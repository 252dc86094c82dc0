//! Statements.

use super::{FunctionLowering, Result, position};
use crate::code::{Binary, Block, Expr, ExprKind, For, Literal, Over, Place, Stmt, StmtKind};
use crate::error::{CompileError, Position};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use rhai::{ASTFlags, Ident, Token};

const LOOPS: &str = "the only loop is `for` over an array or a range: it comes to an end";

impl FunctionLowering<'_> {
    /// A block: what it declares is out of sight behind it. If it `is_value`, its last statement says which.
    pub(super) fn statements(&mut self, block: &[rhai::Stmt], is_value: bool) -> Result<Block> {
        let outside = self.variables.len();
        let mut lowered = Vec::with_capacity(block.len());
        for (index, statement) in block.iter().enumerate() {
            self.statement(statement, is_value && index + 1 == block.len(), &mut lowered)?;
        }
        self.variables.truncate(outside);
        Ok(lowered)
    }

    fn statement(&mut self, statement: &rhai::Stmt, is_value: bool, out: &mut Block) -> Result<()> {
        let at = position(statement.position());
        let refuse = |what: &str| Err(CompileError::new(at, what));
        let kind = match statement {
            rhai::Stmt::Noop(_) => return Ok(()),
            rhai::Stmt::Var(variable, flags, _) => {
                let (name, value, _) = &**variable;
                // The value first: it does not see the variable.
                let value = self.expr(value)?;
                let slot = self.declare(&name.name, flags.contains(ASTFlags::CONSTANT), at)?;
                StmtKind::Assign { place: Place { slot, inside: Vec::new() }, operator: None, value }
            }
            rhai::Stmt::Assignment(assignment) => {
                let (operator, sides) = &**assignment;
                let operator = match operator.get_op_assignment_info() {
                    Some((_, _, _, _, token, syntax)) => Some(arithmetic(token, syntax, at)?),
                    None => None,
                };
                let value = self.expr(&sides.rhs)?;
                StmtKind::Assign { place: self.place(&sides.lhs, at)?, operator, value }
            }
            rhai::Stmt::FnCall(call, at) => StmtKind::Do(self.call(call, position(*at))?),
            rhai::Stmt::Expr(expr) => match self.push(expr)? {
                Some(push) => push,
                None => StmtKind::Do(self.expr(expr)?),
            },
            rhai::Stmt::If(..) => StmtKind::Do(self.conditional(statement, is_value)?),
            rhai::Stmt::Block(block) => {
                let always = Expr { at, kind: ExprKind::Literal(Literal::Bool(true)) };
                let block = self.statements(block.statements(), is_value)?;
                StmtKind::Do(Expr { at, kind: ExprKind::If(Box::new((always, block, Vec::new()))) })
            }
            rhai::Stmt::For(parts, _) => {
                let (item, counter, control) = &**parts;
                StmtKind::For(Box::new(self.for_loop(item, counter.as_ref(), control, at)?))
            }
            rhai::Stmt::BreakLoop(value, flags, _) => {
                if value.is_some() {
                    return refuse("`break` takes no value here; assign it to a variable");
                }
                if self.loops == 0 {
                    return refuse("there is no loop here to leave or to go on with");
                }
                if flags.contains(ASTFlags::BREAK) { StmtKind::Break } else { StmtKind::Continue }
            }
            rhai::Stmt::Return(value, flags, _) => {
                let value = value.as_deref().map(|value| self.expr(value)).transpose()?;
                match (flags.contains(ASTFlags::BREAK), value) {
                    (false, value) => StmtKind::Return(value),
                    (true, Some(value)) => StmtKind::Throw(value),
                    (true, None) => return refuse("say why, as `throw \"the queue is closed\"`"),
                }
            }
            rhai::Stmt::While(..) => return refuse(&format!("`while` and `loop` may not end; {LOOPS}")),
            rhai::Stmt::Do(..) => return refuse(&format!("`do` may not end; {LOOPS}")),
            rhai::Stmt::Switch(..) => return refuse("`switch` is not part of the language; use `if`"),
            rhai::Stmt::TryCatch(..) => {
                return refuse(
                    "`try` is not part of the language: an error ends the call; ask first, as by `local.exists`",
                );
            }
            _ => return refuse("this statement is not part of the language"),
        };
        if !is_value && !kind.has_effect() {
            return refuse("nothing is done with this value; write `return` before it, or leave it out");
        }
        out.push(Stmt { at, kind });
        Ok(())
    }

    fn for_loop(
        &mut self,
        item: &Ident,
        counter: Option<&Ident>,
        control: &rhai::FlowControl,
        at: Position,
    ) -> Result<For> {
        let over = self.over(&control.expr)?;
        let outside = self.variables.len();
        let counter = counter.map(|name| self.declare(&name.name, false, at)).transpose()?;
        let item = self.declare(&item.name, false, at)?;
        self.loops += 1;
        let body = self.statements(control.body.statements(), false)?;
        self.loops -= 1;
        self.variables.truncate(outside);
        Ok(For { item, counter, over, body })
    }

    fn over(&mut self, expr: &rhai::Expr) -> Result<Over> {
        if let rhai::Expr::FnCall(call, _) = expr
            && let Some(token @ (Token::ExclusiveRange | Token::InclusiveRange)) = &call.op_token
            && let [from, to] = &*call.args
        {
            let inclusive = *token == Token::InclusiveRange;
            return Ok(Over::Range { from: self.expr(from)?, to: self.expr(to)?, inclusive });
        }
        self.expr(expr).map(Over::Each)
    }

    /// An `if`, as a statement or as a value.
    pub(super) fn conditional(&mut self, statement: &rhai::Stmt, is_value: bool) -> Result<Expr> {
        let rhai::Stmt::If(control, at) = statement else {
            return Err(CompileError::new(position(statement.position()), "a value is expected here"));
        };
        let condition = self.expr(&control.expr)?;
        let then = self.statements(control.body.statements(), is_value)?;
        let otherwise = self.statements(control.branch.statements(), is_value)?;
        let kind = ExprKind::If(Box::new((condition, then, otherwise)));
        Ok(Expr { at: position(*at), kind })
    }

    /// What is assigned to.
    fn place(&mut self, expr: &rhai::Expr, at: Position) -> Result<Place> {
        let (root, links) = self.chain(expr)?;
        let rhai::Expr::Variable(name, _, _) = root else {
            return Err(CompileError::new(
                at,
                "only variables, and what is inside of them, can be assigned to",
            ));
        };
        let mut inside = Vec::with_capacity(links.len());
        for link in links {
            inside.push(self.place_step(link)?);
        }
        let slot = self.assignable(&name.1, at)?;
        Ok(Place { slot, inside })
    }

    fn assignable(&self, name: &str, at: Position) -> Result<usize> {
        match self.variable(name) {
            Some(variable) if variable.is_constant => {
                Err(CompileError::new(at, format!("`{name}` is a constant; declare it with `let`")))
            }
            Some(variable) => Ok(variable.slot),
            None => {
                Err(CompileError::new(at, format!("there is no variable `{name}`; declare it with `let`")))
            }
        }
    }

    /// `place.push(value)`, the one method that changes what it is called on.
    fn push(&mut self, expr: &rhai::Expr) -> Result<Option<StmtKind>> {
        let (root, mut links) = self.chain(expr)?;
        let Some(last) = links.pop() else {
            return Ok(None);
        };
        let Some(value) = last.pushed() else {
            return Ok(None);
        };
        let at = last.at;
        let rhai::Expr::Variable(name, _, _) = root else {
            return Err(CompileError::new(at, "`push` changes a variable, or what is inside of one"));
        };
        let value = self.expr(value)?;
        let mut inside = Vec::with_capacity(links.len());
        for link in links {
            inside.push(self.place_step(link)?);
        }
        let slot = self.assignable(&name.1, at)?;
        Ok(Some(StmtKind::Push { place: Place { slot, inside }, value }))
    }
}

fn arithmetic(token: &Token, syntax: &str, at: Position) -> Result<Binary> {
    Ok(match token {
        Token::Plus => Binary::Add,
        Token::Minus => Binary::Subtract,
        Token::Multiply => Binary::Multiply,
        Token::Divide => Binary::Divide,
        Token::Modulo => Binary::Remainder,
        _ => return Err(no_operator(syntax, at)),
    })
}

pub(super) fn no_operator(syntax: &str, at: Position) -> CompileError {
    let what = format!(
        "there is no operator `{}`; there are + - * / % == != < <= > >= && || ! and `in`",
        syntax.escape_default()
    );
    CompileError::new(at, what)
}
