//! What a program is lowered to: only what may run can be said here.

use crate::error::Position;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: Box<str>,
    pub(crate) parameters: usize,
    /// Variables that may be alive at once, the parameters first.
    pub(crate) slots: usize,
    pub(crate) body: Block,
}

pub(crate) type Block = Vec<Stmt>;

#[derive(Debug)]
pub(crate) struct Stmt {
    pub(crate) at: Position,
    pub(crate) kind: StmtKind,
}

#[derive(Debug)]
pub(crate) enum StmtKind {
    Assign {
        place: Place,
        operator: Option<Binary>,
        value: Expr,
    },
    Do(Expr),
    /// `place.push(value)`
    Push {
        place: Place,
        value: Expr,
    },
    For(Box<For>),
    Break,
    Continue,
    Return(Option<Expr>),
    Throw(Expr),
}

#[derive(Debug)]
pub(crate) struct For {
    pub(crate) item: usize,
    pub(crate) counter: Option<usize>,
    pub(crate) over: Over,
    pub(crate) body: Block,
}

#[derive(Debug)]
pub(crate) enum Over {
    Each(Expr),
    Range { from: Expr, to: Expr, inclusive: bool },
}

/// Something that can be assigned to: a variable, or what is somewhere inside of it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) slot: usize,
    pub(crate) inside: Vec<Expr>,
}

#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) at: Position,
    pub(crate) kind: ExprKind,
}

#[derive(Debug)]
pub(crate) enum ExprKind {
    Literal(Literal),
    Variable(usize),
    /// Texts and values, put together to one text.
    Template(Vec<Expr>),
    Array(Vec<Expr>),
    Map(Vec<(Arc<str>, Expr)>),
    Not(Box<Expr>),
    Negate(Box<Expr>),
    Binary(Binary, Box<(Expr, Expr)>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Field(Box<Expr>, Arc<str>),
    Index(Box<(Expr, Expr)>),
    If(Box<(Expr, Block, Block)>),
    /// One of the program's own functions.
    Call(usize, Vec<Expr>),
    /// A function of the language. What stands before the dot is its first argument.
    Builtin(Builtin, Vec<Expr>),
    Local(Local, Vec<Expr>),
}

#[derive(Debug, Clone)]
pub(crate) enum Literal {
    Unit,
    Bool(bool),
    Int(i64),
    Text(Arc<str>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

macro_rules! named {
    ($(#[$doc:meta])* $type:ident { $($variant:ident $name:literal $min:literal $max:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $type { $($variant,)* }

        impl $type {
            /// Each with its name and the least and the largest number of arguments.
            pub(crate) const ALL: &[(Self, &'static str, usize, usize)] =
                &[$((Self::$variant, $name, $min, $max),)*];

            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

named! {
    /// What the language has as functions of a value.
    Builtin {
        Len "len" 1 1,
        IsEmpty "is_empty" 1 1,
        Contains "contains" 2 2,
        ToInt "to_int" 1 1,
        ToText "to_string" 1 1,
        Pad "pad" 2 2,
        Min "min" 2 2,
        Max "max" 2 2,
        StartsWith "starts_with" 2 2,
        EndsWith "ends_with" 2 2,
        IndexOf "index_of" 2 2,
        SubString "sub_string" 2 3,
        Split "split" 2 2,
        Trim "trim" 1 1,
        Join "join" 2 2,
        Sorted "sorted" 1 1,
        Keys "keys" 1 1,
        NameOf "name_of" 1 1,
        ParentOf "parent_of" 1 1,
    }
}

named! {
    /// The methods of `local`: Table 2 of the paper, and what ZooKeeper has besides.
    Local {
        Create "create" 1 2,
        CreateSequential "create_sequential" 1 2,
        Delete "delete" 1 2,
        Read "read" 1 1,
        Exists "exists" 1 1,
        Update "update" 2 3,
        Cas "cas" 3 3,
        SubObjects "sub_objects" 1 1,
        Oldest "oldest" 1 1,
        Block "block" 1 1,
        Monitor "monitor" 1 2,
        Suppress "suppress" 0 0,
        Notify "notify" 2 2,
    }
}
