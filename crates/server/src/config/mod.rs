//! What a server runs with, and where it comes from.

mod kind;
mod settings;

pub use kind::{DigestAlgorithm, LogFormat, LogLevel};
pub use settings::{SETTINGS, Setting, Settings};
