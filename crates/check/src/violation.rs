//! What a checker has to say.

use std::fmt;

/// Something that must never happen has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation(String);

impl Violation {
    /// With a description for whoever reads the report.
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether all is as it must be.
pub type Checked = Result<(), Violation>;

/// Something that must never happen has happened.
///
/// # Errors
/// This one, always.
pub fn wrong<T, E: From<Violation>>(what: impl Into<String>) -> Result<T, E> {
    Err(Violation::new(what).into())
}
