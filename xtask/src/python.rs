//! Pythons with packages, for kazoo and for programs: virtual environments below `target`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::{run, suites, workspace};

const INSTALL_LIMIT: Duration = Duration::from_secs(300);

/// The system's own.
const OF_THE_SYSTEM: &str = "/usr/bin/python3";

/// The interpreter of kazoo's environment.
fn interpreter() -> Result<PathBuf, String> {
    environment("python", &workspace::suite("kazoo"), Path::new("python3"))
}

/// The interpreter of an environment with the packages of a suite, which is made anew when the list of them changes.
fn environment(name: &str, suite: &Path, base: &Path) -> Result<PathBuf, String> {
    let environment = workspace::target().join(name);
    let interpreter = environment.join("bin").join("python");
    let list = suite.join("requirements.txt");
    let wanted =
        std::fs::read_to_string(&list).map_err(|error| format!("cannot read {}: {error}", list.display()))?;
    let stamp = environment.join("requirements.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|present| present == wanted) {
        return Ok(interpreter);
    }
    let mut create = Command::new(base);
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
    Ok(started(&interpreter()?, &["kazoo", "kill"]))
}

/// The same for programs that run on Stoa, with the modules that start ensembles and the realm of Kerberos. It is the
/// system's where there is one: root starts `PostgreSQL` as another user, who cannot read what lies in root's home.
pub(crate) fn of_programs() -> Result<Command, String> {
    let base = Path::new(OF_THE_SYSTEM);
    let base = if base.exists() { base } else { Path::new("python3") };
    let mut probe = Command::new(base);
    probe.args(["-c", "import ensurepip"]);
    if !probe.output().is_ok_and(|output| output.status.success()) {
        suites::install("Python's venv", "python3-venv")?;
    }
    let interpreter = environment("python-of-programs", &workspace::suite("programs"), base)?;
    Ok(started(&interpreter, &["programs", "ensemble", "kazoo", "sasl"]))
}

fn started(interpreter: &Path, suites: &[&str]) -> Command {
    let mut command = Command::new(interpreter);
    let modules: Vec<String> =
        suites.iter().map(|suite| workspace::suite(suite).display().to_string()).collect();
    command
        .env("PYTHONPATH", modules.join(":"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONUNBUFFERED", "1");
    command
}
