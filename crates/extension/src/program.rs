//! A compiled program, and what is asked of it.

use crate::code::Function;
use crate::error::{CallError, CompileError, Failure, Position, Trouble};
use crate::host::Host;
use crate::limits::{Limits, Meter, Used};
use crate::lower::{Lowered, lower};
use crate::pattern::Pattern;
use crate::run::{Occasion, Outcome, Run};
use crate::value::{ALLOCATION_BYTES, DATA, ITEM_BYTES, Value};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

macro_rules! kinds {
    ($(#[$doc:meta])* $type:ident { $($(#[$variant_doc:meta])* $variant:ident $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type { $($(#[$variant_doc])* $variant,)* }

        impl $type {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// What programs call it, and its handler.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The one that programs call so.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| kind.name() == name)
            }

            /// All names, for messages.
            pub(crate) fn names() -> String {
                let names: Vec<&str> = Self::ALL.iter().map(|kind| kind.name()).collect();
                names.join(", ")
            }
        }
    };
}

kinds! {
    /// An operation that a program may carry out in place of the service: those of the paper's Table 2.
    OperationKind {
        /// A create of any kind.
        Create "create",
        /// A delete.
        Delete "delete",
        /// A getData.
        Read "read",
        /// A setData.
        Update "update",
        /// A getChildren.
        SubObjects "sub_objects",
        /// An exists with a watch: the client waits for the znode.
        Block "block",
    }
}

kinds! {
    /// A change of a znode that a program may react to.
    EventKind {
        /// It was created.
        Created "created",
        /// Its data was set.
        Changed "changed",
        /// It was deleted.
        Deleted "deleted",
    }
}

/// What a program is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subscription {
    /// Operations on these paths.
    Operation {
        /// Which.
        kind: OperationKind,
        /// Where.
        pattern: Pattern,
    },
    /// Events of these paths.
    Event {
        /// Which.
        kind: EventKind,
        /// Where.
        pattern: Pattern,
    },
}

/// An operation that a client asks for.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Which.
    pub kind: OperationKind,
    /// Of which znode.
    pub path: &'a str,
    /// The data that came with it.
    pub data: &'a [u8],
    /// The version that it expects; -1 for any.
    pub version: i32,
    /// Who asks.
    pub session: i64,
    /// Whether it is a create of an ephemeral.
    pub ephemeral: bool,
    /// Whether it is a create of a znode with a number.
    pub sequential: bool,
}

/// Something that has happened.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// What.
    pub kind: EventKind,
    /// To which znode.
    pub path: &'a str,
}

/// What a client is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// These bytes: the data of a read, the path of a create.
    Data(Arc<[u8]>),
    /// These names: what a sub_objects is answered with.
    Names(Vec<String>),
    /// Nothing yet: the answer is given when there is a znode at this path.
    Blocked(String),
}

/// What those are told who watch for an event, and who else is told something.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notify {
    /// Those who watch are not told.
    pub suppress: bool,
    /// These are told, in this order.
    pub send: Vec<Notification>,
}

/// A notification that a program sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// To whom.
    pub session: i64,
    /// Of an event of this znode.
    pub path: String,
}

/// A program: verified, compiled, and used as often as one likes. What it computes with is new in each call.
#[derive(Debug)]
pub struct Program {
    name: Box<str>,
    limits: Limits,
    subscriptions: Vec<Subscription>,
    functions: Vec<Function>,
    handlers: Handlers,
}

/// The function for each kind of operation and event.
#[derive(Debug, Default)]
struct Handlers {
    operations: [Option<usize>; OperationKind::ALL.len()],
    events: [Option<usize>; EventKind::ALL.len()],
}

impl Program {
    /// Verifies and compiles.
    ///
    /// # Errors
    /// When it is too large, can not be read, uses what is not part of the language, calls itself, or does
    /// not handle what it subscribes to.
    pub fn compile(name: &str, source: &str, limits: &Limits) -> Result<Self, CompileError> {
        let Lowered { subscriptions, functions } = lower(source, limits)?;
        let mut handlers = Handlers::default();
        for (number, function) in functions.iter().enumerate() {
            if let Some(kind) = OperationKind::from_name(&function.name) {
                handlers.operations[kind as usize] = Some(number);
            } else if let Some(kind) = EventKind::from_name(&function.name) {
                handlers.events[kind as usize] = Some(number);
            }
        }
        Ok(Self { name: name.into(), limits: *limits, subscriptions, functions, handlers })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is for, in the order of the source.
    #[must_use]
    pub fn subscriptions(&self) -> &[Subscription] {
        &self.subscriptions
    }

    /// Whether it carries out this operation.
    #[must_use]
    pub fn handles_operation(&self, kind: OperationKind, path: &str) -> bool {
        self.subscriptions.iter().any(|subscription| {
            matches!(subscription, Subscription::Operation { kind: it, pattern } if *it == kind && pattern.matches(path))
        })
    }

    /// Whether it reacts to this event.
    #[must_use]
    pub fn handles_event(&self, kind: EventKind, path: &str) -> bool {
        self.subscriptions.iter().any(|subscription| {
            matches!(subscription, Subscription::Event { kind: it, pattern } if *it == kind && pattern.matches(path))
        })
    }

    /// Carries out an operation that it handles, and says what that has used.
    ///
    /// # Errors
    /// When it gives up, does something wrong, is refused something, or needs more than it may. What it has
    /// done by way of the host must not last then.
    pub fn operation(
        &self,
        host: &mut impl Host,
        request: &Request<'_>,
        used: &mut Used,
    ) -> Result<Reply, CallError> {
        let mut meter = Meter::new(self.limits);
        let reply = self.carry_out(host, request, &mut meter);
        *used = meter.used();
        reply
    }

    fn carry_out(
        &self,
        host: &mut impl Host,
        request: &Request<'_>,
        meter: &mut Meter,
    ) -> Result<Reply, CallError> {
        let argument = request_value(request, meter).map_err(|trouble| trouble.at(Position::default()))?;
        let handler = self.handlers.operations[request.kind as usize];
        let outcome = self.call(handler, Occasion::Operation, argument, host, meter)?;
        let at = outcome.returned_at;
        match outcome.blocked {
            Some(path) if matches!(outcome.value, Value::Unit) => Ok(Reply::Blocked(path)),
            Some(_) => Err(Trouble::wrong("a call that has blocked cannot return a value too").at(at)),
            None => reply(request.kind, &outcome.value, meter).map_err(|trouble| trouble.at(at)),
        }
    }

    /// Reacts to an event that it handles, and says what that has used.
    ///
    /// # Errors
    /// As of [`Program::operation`].
    pub fn event(
        &self,
        host: &mut impl Host,
        event: &Event<'_>,
        used: &mut Used,
    ) -> Result<Notify, CallError> {
        let mut meter = Meter::new(self.limits);
        let argument = event_value(event, &mut meter).map_err(|trouble| trouble.at(Position::default()));
        let handler = self.handlers.events[event.kind as usize];
        let outcome =
            argument.and_then(|argument| self.call(handler, Occasion::Event, argument, host, &mut meter));
        *used = meter.used();
        outcome.map(|outcome| outcome.notify)
    }

    fn call(
        &self,
        handler: Option<usize>,
        occasion: Occasion,
        argument: Value,
        host: &mut impl Host,
        meter: &mut Meter,
    ) -> Result<Outcome, CallError> {
        let Some(handler) = handler else {
            let failure = Failure::Wrong(format!("`{}` handles nothing of this kind", self.name));
            return Err(CallError { at: Position::default(), failure });
        };
        Run::new(&self.functions, occasion, host, meter).handle(handler, argument)
    }
}

/// Everything before the last slash, and everything behind it.
pub(crate) fn split_path(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((parent, name)) => (parent, name),
        None => ("", path),
    }
}

pub(crate) fn record<const FIELDS: usize>(
    fields: [(&'static str, Value); FIELDS],
    meter: &mut Meter,
) -> Result<Value, Trouble> {
    meter.memory(FIELDS * ITEM_BYTES + ALLOCATION_BYTES)?;
    Ok(Value::Record(Arc::new(fields)))
}

fn request_value(request: &Request<'_>, meter: &mut Meter) -> Result<Value, Trouble> {
    let fields = [
        ("kind", Value::text(request.kind.name(), meter)?),
        ("path", Value::text(request.path, meter)?),
        ("name", Value::text(split_path(request.path).1, meter)?),
        (DATA, Value::blob(request.data, meter)?),
        ("version", Value::Int(i64::from(request.version))),
        ("session", Value::Int(request.session)),
        ("ephemeral", Value::Bool(request.ephemeral)),
        ("sequential", Value::Bool(request.sequential)),
    ];
    record(fields, meter)
}

fn event_value(event: &Event<'_>, meter: &mut Meter) -> Result<Value, Trouble> {
    let fields = [
        ("kind", Value::text(event.kind.name(), meter)?),
        ("path", Value::text(event.path, meter)?),
        ("name", Value::text(split_path(event.path).1, meter)?),
    ];
    record(fields, meter)
}

fn reply(kind: OperationKind, value: &Value, meter: &mut Meter) -> Result<Reply, Trouble> {
    if kind != OperationKind::SubObjects {
        let bytes = value.bytes(meter)?;
        meter.reply(bytes.len())?;
        return Ok(Reply::Data(bytes));
    }
    let Value::Array(array) = value else {
        let what = format!("a `sub_objects` returns an array of names or objects and not {}", value.kind());
        return Err(Trouble::wrong(what));
    };
    let mut names = Vec::new();
    let mut bytes = 0;
    for item in &array.items {
        let name = match item {
            Value::Text(name) => name,
            other => match other.field("name") {
                Some(Value::Text(name)) => name,
                _ => return Err(Trouble::wrong("a `sub_objects` returns names or objects")),
            },
        };
        // With four bytes for the length, as it is sent.
        bytes += name.len() + 4;
        meter.reply(bytes)?;
        meter.memory(name.len() + ITEM_BYTES + ALLOCATION_BYTES)?;
        names.push(String::from(&**name));
    }
    Ok(Reply::Names(names))
}
