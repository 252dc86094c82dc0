//! Where things are in this repository.

use std::path::{Path, PathBuf};

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask/ lies in the root of the repository")
}

/// Everything that is built, fetched or written by a run goes below this directory.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => root().join(directory),
        None => root().join("target"),
    }
}

/// The directory of one suite of tests.
pub(crate) fn suite(name: &str) -> PathBuf {
    root().join("tests").join(name)
}
