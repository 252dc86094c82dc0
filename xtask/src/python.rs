//! The Python that runs kazoo: a virtual environment below `target`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::{run, workspace};

const INSTALL_LIMIT: Duration = Duration::from_secs(300);

/// The interpreter of the environment, which is made anew when the list of packages changes.
pub(crate) fn interpreter() -> Result<PathBuf, String> {
    let environment = workspace::target().join("python");
    let interpreter = environment.join("bin").join("python");
    let list = workspace::suite("kazoo").join("requirements.txt");
    let wanted =
        std::fs::read_to_string(&list).map_err(|error| format!("cannot read {}: {error}", list.display()))?;
    let stamp = environment.join("requirements.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|present| present == wanted) {
        return Ok(interpreter);
    }
    let mut create = Command::new("python3");
    create.args(["-m", "venv", "--clear"]).arg(&environment);
    run::must(&mut create, INSTALL_LIMIT)?;
    install(&interpreter, &list)?;
    std::fs::write(&stamp, wanted).map_err(|error| format!("cannot write {}: {error}", stamp.display()))?;
    Ok(interpreter)
}

fn install(interpreter: &Path, list: &Path) -> Result<(), String> {
    let mut install = Command::new(interpreter);
    install
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"])
        .arg(list);
    run::must(&mut install, INSTALL_LIMIT).map(|_| ())
}

/// As [`command`], with the packages that this suite needs besides.
pub(crate) fn command_for(suite: &str) -> Result<Command, String> {
    let interpreter = interpreter()?;
    let list = workspace::suite(suite).join("requirements.txt");
    let wanted =
        std::fs::read_to_string(&list).map_err(|error| format!("cannot read {}: {error}", list.display()))?;
    // It goes with the environment when that is made anew.
    let stamp = workspace::target().join("python").join(format!("{suite}.txt"));
    if !std::fs::read_to_string(&stamp).is_ok_and(|present| present == wanted) {
        install(&interpreter, &list)?;
        std::fs::write(&stamp, wanted)
            .map_err(|error| format!("cannot write {}: {error}", stamp.display()))?;
    }
    command()
}

/// Python that finds the modules of `tests/kazoo` and `tests/kill`, wherever it is started, and
/// leaves no compiled files in the source tree.
pub(crate) fn command() -> Result<Command, String> {
    let mut command = Command::new(interpreter()?);
    let modules = format!("{}:{}", workspace::suite("kazoo").display(), workspace::suite("kill").display());
    command.env("PYTHONPATH", modules).env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONUNBUFFERED", "1");
    Ok(command)
}
