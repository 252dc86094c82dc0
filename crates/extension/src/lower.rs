//! From rhai's syntax tree to code. This is the verification of the paper's section 4.1.1: a white list, for
//! what has no place in [`crate::code`] is refused.

mod declarations;
mod expressions;
mod statements;

use crate::code::{Expr, ExprKind, Function, Literal};
use crate::error::{CompileError, Position};
use crate::limits::Limits;
use crate::program::Subscription;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use rhai::{AST, Engine, ParseError, ParseErrorType, ScriptFuncDef};

/// A program whose every name is resolved.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub(crate) subscriptions: Vec<Subscription>,
    pub(crate) functions: Vec<Function>,
}

pub(crate) type Result<T> = core::result::Result<T, CompileError>;

/// What the whole program knows.
struct Globals<'a> {
    limits: &'a Limits,
    constants: BTreeMap<String, Literal>,
    /// Number of each function, by name, and how many parameters it takes.
    functions: BTreeMap<String, (usize, usize)>,
}

/// The name by which programs reach the tree. Nothing else may have it.
const LOCAL: &str = "local";

pub(crate) fn lower(source: &str, limits: &Limits) -> Result<Lowered> {
    if source.len() > limits.source_bytes {
        let what = format!(
            "the source has {} bytes, more than its limit `source_bytes` of {}; divide it into several programs",
            source.len(),
            limits.source_bytes
        );
        return Err(CompileError::new(Position::default(), what));
    }
    let tree = parse(source, limits)?;
    let mut definitions: Vec<&ScriptFuncDef> = tree.iter_fn_def().map(|function| &**function).collect();
    // The parser hands them over in the order of their hashes.
    definitions.sort_by_key(|function| position(function.body.start_position()));
    let functions = declarations::functions(&definitions)?;
    let mut globals = Globals { limits, constants: BTreeMap::new(), functions };
    let subscriptions = declarations::declarations(&tree, &mut globals)?;
    declarations::check_handlers(&definitions, &subscriptions)?;

    let mut lowered = Vec::with_capacity(definitions.len());
    let mut calls = Vec::with_capacity(definitions.len());
    for definition in &definitions {
        let (function, called) = FunctionLowering::lower(&globals, &tree, definition)?;
        lowered.push(function);
        calls.push(called);
    }
    check_calls(&lowered, &calls, limits)?;
    Ok(Lowered { subscriptions, functions: lowered })
}

fn parse(source: &str, limits: &Limits) -> Result<AST> {
    let mut engine = Engine::new_raw();
    engine.set_max_expr_depths(limits.depth, limits.depth);
    engine.set_max_functions(limits.functions);
    engine.set_max_string_size(limits.source_bytes);
    engine.set_max_array_size(limits.source_bytes);
    engine.set_max_map_size(limits.source_bytes);
    engine.compile(source).map_err(|error| parse_error(&error, limits))
}

fn parse_error(error: &ParseError, limits: &Limits) -> CompileError {
    let what = match &*error.0 {
        ParseErrorType::ExprTooDeep => format!(
            "this is nested more deeply than the limit `depth` of {} allows; make functions or variables of its parts",
            limits.depth
        ),
        ParseErrorType::TooManyFunctions => {
            format!("there are more functions than the limit `functions` of {} allows", limits.functions)
        }
        ParseErrorType::Reserved(name) => {
            format!(
                "`{name}` is a reserved word and not part of the language; take another name or do without it"
            )
        }
        other => other.to_string(),
    };
    CompileError::new(position(error.1), what)
}

/// The statements of a function. The parser has no name by which they could be reached, but it walks over
/// them: those that nothing encloses are the function's own.
fn body_of(tree: &AST, name: &str) -> Vec<rhai::Stmt> {
    let mut function = tree.clone_functions_only();
    function.retain_functions(|_, _, known, _| known == name);
    let mut body = Vec::new();
    function.walk(&mut |path| {
        if let [rhai::ASTNode::Stmt(statement)] = path {
            body.push((*statement).clone());
        }
        true
    });
    body
}

fn position(position: rhai::Position) -> Position {
    let number = |number: Option<usize>| number.and_then(|number| u16::try_from(number).ok()).unwrap_or(0);
    Position { line: number(position.line()), column: number(position.position()) }
}

/// Refuses programs whose functions call themselves, by whatever detour, or each other too deeply.
fn check_calls(functions: &[Function], calls: &[BTreeMap<usize, Position>], limits: &Limits) -> Result<()> {
    // The calls below each function, once they are known; it is under way until then.
    let mut below: Vec<Option<usize>> = vec![None; functions.len()];
    let mut path: Vec<(usize, Vec<usize>)> = Vec::new();
    for start in 0..functions.len() {
        if below[start].is_some() {
            continue;
        }
        path.push((start, calls[start].keys().copied().collect()));
        while let Some((function, open)) = path.last_mut() {
            let function = *function;
            let Some(called) = open.pop() else {
                let deepest = calls[function].keys().filter_map(|called| below[*called]).max();
                let depth = deepest.map_or(1, |depth| depth + 1);
                if depth > limits.call_depth {
                    let name = &functions[function].name;
                    let what = format!(
                        "`{name}` leads to {depth} functions within each other, more than the limit `call_depth` of {}",
                        limits.call_depth
                    );
                    return Err(CompileError::new(Position::default(), what));
                }
                below[function] = Some(depth);
                path.pop();
                continue;
            };
            if path.iter().any(|(caller, _)| *caller == called) {
                let name = &functions[called].name;
                let what = format!(
                    "`{name}` calls itself, directly or by way of others; use `for` over an array or a range"
                );
                return Err(CompileError::new(calls[function][&called], what));
            }
            if below[called].is_none() {
                path.push((called, calls[called].keys().copied().collect()));
            }
        }
    }
    Ok(())
}

struct Variable {
    name: String,
    slot: usize,
    is_constant: bool,
}

/// What is known while one function is lowered.
struct FunctionLowering<'g> {
    globals: &'g Globals<'g>,
    /// The variables in sight, the innermost last.
    variables: Vec<Variable>,
    slots: usize,
    loops: usize,
    /// Which functions it calls, and where first.
    calls: BTreeMap<usize, Position>,
}

impl<'g> FunctionLowering<'g> {
    fn lower(
        globals: &'g Globals<'g>,
        tree: &AST,
        definition: &ScriptFuncDef,
    ) -> Result<(Function, BTreeMap<usize, Position>)> {
        let at = position(definition.body.start_position());
        let mut lowering =
            Self { globals, variables: Vec::new(), slots: 0, loops: 0, calls: BTreeMap::new() };
        for parameter in &definition.params {
            lowering.declare(parameter, false, at)?;
        }
        let body = lowering.statements(&body_of(tree, &definition.name), false)?;
        let function = Function {
            name: definition.name.as_str().into(),
            parameters: definition.params.len(),
            slots: lowering.slots,
            body,
        };
        Ok((function, lowering.calls))
    }

    /// Makes room for a variable. It is in sight until its block ends.
    fn declare(&mut self, name: &str, is_constant: bool, at: Position) -> Result<usize> {
        check_name(name, at)?;
        let slot = self.variables.len();
        self.variables.push(Variable { name: name.into(), slot, is_constant });
        self.slots = self.slots.max(self.variables.len());
        Ok(slot)
    }

    fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().rev().find(|variable| variable.name == name)
    }

    /// What a name stands for, where a value is wanted.
    fn name(&self, name: &str, at: Position) -> Result<Expr> {
        if let Some(variable) = self.variable(name) {
            return Ok(Expr { at, kind: ExprKind::Variable(variable.slot) });
        }
        if let Some(literal) = self.globals.constants.get(name) {
            return Ok(Expr { at, kind: ExprKind::Literal(literal.clone()) });
        }
        let what = match name {
            LOCAL => "`local` is no value; call one of its methods, as `local.read(path)`".into(),
            _ => format!("there is no variable or constant `{name}`"),
        };
        Err(CompileError::new(at, what))
    }
}

/// Refuses names that would make a program read as what it is not.
fn check_name(name: &str, at: Position) -> Result<()> {
    if name == LOCAL {
        return Err(CompileError::new(at, "`local` is the tree; take another name"));
    }
    if !name.is_ascii() {
        let what =
            format!("the name `{}` is not made of ASCII letters, digits and `_`", name.escape_unicode());
        return Err(CompileError::new(at, what));
    }
    Ok(())
}
