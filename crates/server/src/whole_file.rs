//! Small files of the data folder that are written as a whole: after a crash there is the one before or the new one.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::Path;

/// What a file is called behind its name until it is whole.
const TEMPORARY: &str = ".tmp";

/// The text of a file, if there is one. One that is longer than this is none of ours and is not read.
pub(crate) fn read(file: &Path, bytes_max: u64) -> Result<Option<String>, String> {
    let failed = |what: &dyn std::fmt::Display| format!("{}: {what}", file.display());
    match fs::metadata(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(&error)),
        Ok(found) if found.len() > bytes_max => Err(failed(&"it is far too long")),
        Ok(_) => fs::read_to_string(file).map(Some).map_err(|error| failed(&error)),
    }
}

/// Puts this text in the place of what the file was, durably.
pub(crate) fn replace(folder: &Path, name: &str, text: &str) -> Result<(), String> {
    let temporary = folder.join(format!("{name}{TEMPORARY}"));
    let write = || {
        let mut file = File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, folder.join(name))?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|error| format!("{} cannot be written: {error}", temporary.display()))
}
