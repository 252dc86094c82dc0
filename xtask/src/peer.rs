//! Apache ZooKeeper, the server that Stoa is compared with: its jars are brought from Maven once,
//! and it runs in the foreground, as the process that was started, so that a signal reaches it.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::arguments::Arguments;
use crate::{run, workspace};

const SERVER_CLASS: &str = "org.apache.zookeeper.server.ZooKeeperServerMain";
const MEMBER_CLASS: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
const HEAP_DEFAULT: &str = "512m";
const FETCH_LIMIT: Duration = Duration::from_secs(300);

/// `cargo xtask peer --port P --data-dir D [--heap 1g] [--config FILE]`: becomes the server.
/// `cargo xtask peer --member FILE [--heap 1g]`: becomes a server of the ensemble in FILE.
pub(crate) fn serve(mut arguments: Arguments) -> Result<(), String> {
    if let Some(config) = arguments.value("--member")? {
        let heap = arguments.value("--heap")?.unwrap_or_else(|| HEAP_DEFAULT.to_owned());
        arguments.finish()?;
        let mut command = java(&fetch()?, &heap);
        return Err(become_program(command.arg(MEMBER_CLASS).arg(config)));
    }
    let port = arguments.number("--port")?.ok_or("`peer` needs `--port P`")?;
    let data = PathBuf::from(arguments.value("--data-dir")?.ok_or("`peer` needs `--data-dir D`")?);
    let heap = arguments.value("--heap")?.unwrap_or_else(|| HEAP_DEFAULT.to_owned());
    let config = arguments.value("--config")?.map_or_else(config, PathBuf::from);
    arguments.finish()?;
    let jars = fetch()?;
    Err(become_program(&mut launch(&jars, &config, port, &data, &heap)?))
}

/// Returns only when that failed.
fn become_program(command: &mut Command) -> String {
    let error = command.exec();
    format!("cannot start `{}`: {error}", command.get_program().to_string_lossy())
}

/// Java with the settings that every server runs with, up to the class.
fn java(jars: &Path, heap: &str) -> Command {
    let mut command = Command::new("java");
    command
        .arg(format!("-Xmx{heap}"))
        .arg(format!("-Xms{heap}"))
        .arg("-XX:+UseG1GC")
        .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
        .arg("-cp")
        .arg(jars.join("*"));
    command
}

/// The configuration that both servers are started with.
pub(crate) fn config() -> PathBuf {
    workspace::suite("peer").join("zoo.cfg")
}

/// The jars of the server.
pub(crate) fn fetch() -> Result<PathBuf, String> {
    fetch_into("peer", &workspace::suite("peer"))
}

/// Copies the jars that the pom.xml in a folder names into this folder of `target`, unless this version of the list has
/// been copied before.
pub(crate) fn fetch_into(name: &str, list: &Path) -> Result<PathBuf, String> {
    let directory = workspace::target().join(name);
    let pom = list.join("pom.xml");
    let wanted = read(&pom)?;
    let stamp = directory.join("pom.xml");
    if std::fs::read_to_string(&stamp).is_ok_and(|present| present == wanted) {
        return Ok(directory);
    }
    if directory.exists() {
        std::fs::remove_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    }
    let mut maven = Command::new("mvn");
    maven
        .args(["--quiet", "--batch-mode", "dependency:copy-dependencies", "-DincludeScope=runtime", "--file"])
        .arg(&pom)
        .arg(format!("-DoutputDirectory={}", directory.display()));
    run::must(&mut maven, FETCH_LIMIT)?;
    write(&stamp, &wanted)?;
    Ok(directory)
}

/// The server's command line. Its working files lie in `data`, beside the snapshots and the log.
fn launch(jars: &Path, template: &Path, port: u64, data: &Path, heap: &str) -> Result<Command, String> {
    std::fs::create_dir_all(data).map_err(|error| format!("{}: {error}", data.display()))?;
    let data = data.canonicalize().map_err(|error| format!("{}: {error}", data.display()))?;
    let (settings, properties) = split_settings(&read(template)?);
    let config = data.join("zoo.cfg");
    write(&config, &format!("{settings}dataDir={}\nclientPort={port}\n", data.display()))?;
    let mut command = java(jars, heap);
    command
        .arg(format!("-Dorg.slf4j.simpleLogger.logFile={}", data.join("zookeeper.log").display()))
        .args(properties.iter().map(|property| format!("-D{property}")))
        .arg(SERVER_CLASS)
        .arg(config);
    Ok(command)
}

/// Apache ZooKeeper takes the settings of container znodes as Java properties only; Stoa reads
/// them from the configuration like all others.
fn split_settings(config: &str) -> (String, Vec<String>) {
    let mut settings = String::new();
    let mut properties = Vec::new();
    for line in config.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with("znode.container.") {
            properties.push(line.to_owned());
        } else {
            settings.push_str(line);
            settings.push('\n');
        }
    }
    (settings, properties)
}

pub(crate) fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_settings_become_properties() {
        let (settings, properties) =
            split_settings("# a\ntickTime=500\n\nznode.container.checkIntervalMs=5\n");
        assert_eq!(settings, "tickTime=500\n");
        assert_eq!(properties, ["znode.container.checkIntervalMs=5"]);
    }
}
