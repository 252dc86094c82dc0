//! Which server a suite drives.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::arguments::Arguments;
use crate::{peer, run, workspace};

const BUILD_LIMIT: Duration = Duration::from_secs(1200);

/// The server under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Against {
    Stoa,
    /// Shows that a suite asks for what ZooKeeper does, and not for what Stoa happens to do.
    ZooKeeper,
}

impl Against {
    pub(crate) fn from_arguments(arguments: &mut Arguments) -> Result<Against, String> {
        match arguments.value("--against")?.as_deref() {
            None | Some("stoa") => Ok(Against::Stoa),
            Some("zookeeper") => Ok(Against::ZooKeeper),
            Some(other) => Err(format!("`--against` takes `stoa` or `zookeeper`, not `{other}`")),
        }
    }

    /// How the command line and the suites call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Against::Stoa => "stoa",
            Against::ZooKeeper => "zookeeper",
        }
    }

    /// Builds or fetches the server.
    pub(crate) fn prepare(self) -> Result<(), String> {
        match self {
            Against::Stoa => {
                let mut cargo = Command::new("cargo");
                cargo.args(["build", "--release", "--package", "stoa"]).current_dir(workspace::root());
                run::must(&mut cargo, BUILD_LIMIT).map(|_| ())
            }
            Against::ZooKeeper => peer::fetch().map(|_| ()),
        }
    }

    /// The command to which a suite adds `--port P --data-dir D`. The suites split it at blanks.
    pub(crate) fn command(self, config: &Path) -> Result<String, String> {
        let (program, words) = match self {
            Against::Stoa => (workspace::target().join("release").join("stoa"), "serve --admin-port 0"),
            Against::ZooKeeper => {
                let own = std::env::current_exe().map_err(|error| format!("xtask's own program: {error}"))?;
                (own, "peer --heap 256m")
            }
        };
        let paths = [program.display().to_string(), config.display().to_string()];
        if let Some(path) = paths.iter().find(|path| path.contains(char::is_whitespace)) {
            return Err(format!("the suites need a checkout whose path has no blanks: {path}"));
        }
        let [program, config] = paths;
        Ok(format!("{program} {words} --config {config}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stoa_is_driven_unless_told_otherwise() {
        let parse = |line: &str| {
            Against::from_arguments(&mut Arguments::new(line.split_whitespace().map(str::to_owned)))
        };
        assert_eq!(parse(""), Ok(Against::Stoa));
        assert_eq!(parse("--against zookeeper"), Ok(Against::ZooKeeper));
        assert!(parse("--against etcd").is_err());
    }
}
