//! What a program may use, and the meter that counts it.

use core::fmt;

/// How much a program may be, and how much one call of it may use. A breach ends the call without a trace.
///
/// There is no limit on the size of one string or one array: `memory_bytes` counts everything that a call
/// allocates, from its beginning to its end, and gives nothing back for what is dropped. So it bounds what a
/// call holds at any moment, and how much it can copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of source.
    pub source_bytes: usize,
    /// Subscriptions of one program.
    pub subscriptions: usize,
    /// Functions of one program, handlers included.
    pub functions: usize,
    /// How deeply blocks and expressions may be nested.
    pub depth: usize,
    /// How many functions may be under way at once. Known when the program is compiled, for none may call
    /// itself, not even by way of others.
    pub call_depth: usize,
    /// Steps of one call: a step is an expression, a turn of a loop, or 64 bytes looked through.
    pub steps: u64,
    /// Bytes that one call allocates in all.
    pub memory_bytes: u64,
    /// How deeply arrays and maps may hold each other.
    pub nesting: u32,
    /// Znodes that one call asks for, changes, creates or deletes, each time counted anew.
    pub znodes: u64,
    /// Bytes of data that one call reads from znodes.
    pub read_bytes: u64,
    /// Bytes of data and paths that one call writes.
    pub written_bytes: u64,
    /// Bytes of a reply.
    pub reply_bytes: u64,
    /// Notifications that one call sends.
    pub notifications: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            source_bytes: 16 * 1024,
            subscriptions: 16,
            functions: 64,
            depth: 64,
            call_depth: 8,
            steps: 10_000,
            memory_bytes: 2 * 1024 * 1024,
            nesting: 16,
            znodes: 1024,
            read_bytes: 1024 * 1024,
            written_bytes: 256 * 1024,
            reply_bytes: 256 * 1024,
            notifications: 16,
        }
    }
}

/// A bound on a call that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "as in Limits")]
pub enum Limit {
    Steps,
    Memory,
    Nesting,
    Znodes,
    ReadBytes,
    WrittenBytes,
    ReplyBytes,
    Notifications,
}

impl Limit {
    /// The field of [`Limits`] that says how much it is.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Memory => "memory_bytes",
            Self::Nesting => "nesting",
            Self::Znodes => "znodes",
            Self::ReadBytes => "read_bytes",
            Self::WrittenBytes => "written_bytes",
            Self::ReplyBytes => "reply_bytes",
            Self::Notifications => "notifications",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a call has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// Steps, see [`Limits::steps`].
    pub steps: u64,
    /// Bytes allocated in all.
    pub memory_bytes: u64,
}

/// A limit was reached: what it allows is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exhausted {
    pub(crate) limit: Limit,
    pub(crate) allowed: u64,
}

/// Counts what one call uses. Everything is counted before it is done.
#[derive(Debug)]
pub(crate) struct Meter {
    limits: Limits,
    steps: u64,
    memory_bytes: u64,
    znodes: u64,
    read_bytes: u64,
    written_bytes: u64,
    notifications: u64,
}

fn add(used: &mut u64, more: u64, allowed: u64, limit: Limit) -> Result<(), Exhausted> {
    let sum = used.saturating_add(more);
    if sum > allowed {
        return Err(Exhausted { limit, allowed });
    }
    *used = sum;
    Ok(())
}

impl Meter {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            steps: 0,
            memory_bytes: 0,
            znodes: 0,
            read_bytes: 0,
            written_bytes: 0,
            notifications: 0,
        }
    }

    pub(crate) fn used(&self) -> Used {
        Used { steps: self.steps, memory_bytes: self.memory_bytes }
    }

    #[inline]
    pub(crate) fn step(&mut self) -> Result<(), Exhausted> {
        add(&mut self.steps, 1, self.limits.steps, Limit::Steps)
    }

    /// So many bytes are looked through.
    pub(crate) fn scan(&mut self, bytes: usize) -> Result<(), Exhausted> {
        add(&mut self.steps, bytes as u64 / 64, self.limits.steps, Limit::Steps)
    }

    /// So many bytes are about to be allocated.
    pub(crate) fn memory(&mut self, bytes: usize) -> Result<(), Exhausted> {
        add(&mut self.memory_bytes, bytes as u64, self.limits.memory_bytes, Limit::Memory)
    }

    /// Containers are about to be so many deep.
    pub(crate) fn nesting(&self, height: u32) -> Result<(), Exhausted> {
        let allowed = self.limits.nesting;
        if height > allowed {
            return Err(Exhausted { limit: Limit::Nesting, allowed: u64::from(allowed) });
        }
        Ok(())
    }

    pub(crate) fn znode(&mut self) -> Result<(), Exhausted> {
        add(&mut self.znodes, 1, self.limits.znodes, Limit::Znodes)
    }

    pub(crate) fn read(&mut self, bytes: usize) -> Result<(), Exhausted> {
        add(&mut self.read_bytes, bytes as u64, self.limits.read_bytes, Limit::ReadBytes)
    }

    pub(crate) fn written(&mut self, bytes: usize) -> Result<(), Exhausted> {
        add(&mut self.written_bytes, bytes as u64, self.limits.written_bytes, Limit::WrittenBytes)
    }

    pub(crate) fn notification(&mut self) -> Result<(), Exhausted> {
        add(&mut self.notifications, 1, self.limits.notifications, Limit::Notifications)
    }

    /// A reply is about to have so many bytes.
    pub(crate) fn reply(&self, bytes: usize) -> Result<(), Exhausted> {
        let allowed = self.limits.reply_bytes;
        if bytes as u64 > allowed {
            return Err(Exhausted { limit: Limit::ReplyBytes, allowed });
        }
        Ok(())
    }
}
