//! Which server a suite drives.

use std::path::Path;

use crate::arguments::Arguments;
use crate::{build, peer, workspace};

/// How many sites there are, where there are any.
const SITES: usize = 3;
/// How many servers an ensemble has in which appends go down trees.
const FOREST: u8 = 15;

/// The server under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Against {
    Stoa,
    /// Shows that a suite asks for what ZooKeeper does, and not for what Stoa happens to do.
    ZooKeeper,
    /// The server with this number of an ensemble of three Stoa servers.
    Ensemble(u8),
    /// The server with this number of an ensemble of fifteen, of which most are fed by others.
    Forest(u8),
    /// A reader of an ensemble of three, at this distance: 1 is right below a server of it.
    Reader(u8),
    /// One of three sites, each a server with so many partitions; the first is the hub.
    Site(u8, [u8; SITES]),
    /// The first server of an ensemble whose servers have so many partitions.
    Divided(u8),
}

impl Against {
    pub(crate) fn from_arguments(arguments: &mut Arguments) -> Result<Against, String> {
        match arguments.value("--against")?.as_deref() {
            None | Some("stoa") => Ok(Against::Stoa),
            Some("zookeeper") => Ok(Against::ZooKeeper),
            Some(other) => Err(format!("`--against` takes `stoa` or `zookeeper`, not `{other}`")),
        }
    }

    /// The same server, or with `--through K` server K of an ensemble of it, or with `--through site:K` site K, and with
    /// `--partitions` as many of them.
    pub(crate) fn through(self, arguments: &mut Arguments) -> Result<Against, String> {
        let partitions = arguments.value("--partitions")?;
        let against = self.through_server(arguments)?;
        match (against, partitions.as_deref()) {
            (_, None) => Ok(against),
            (Against::Site(site, _), Some(said)) => Ok(Against::Site(site, of_sites(said)?)),
            _ => Err("`--partitions` goes with `--through site:K`".to_owned()),
        }
    }

    fn through_server(self, arguments: &mut Arguments) -> Result<Against, String> {
        match (arguments.value("--through")?.as_deref(), self) {
            (None, _) => Ok(self),
            (Some(_), Against::ZooKeeper) => {
                Err("`--through` starts an ensemble of Stoa; leave out `--against zookeeper`".to_owned())
            }
            (Some("1"), _) => Ok(Against::Ensemble(1)),
            (Some("2"), _) => Ok(Against::Ensemble(2)),
            (Some("3"), _) => Ok(Against::Ensemble(3)),
            (Some("reader" | "reader:1"), _) => Ok(Against::Reader(1)),
            (Some("reader:2"), _) => Ok(Against::Reader(2)),
            (Some("site:1"), _) => Ok(Against::Site(1, [1; SITES])),
            (Some("site:2"), _) => Ok(Against::Site(2, [1; SITES])),
            (Some("site:3"), _) => Ok(Against::Site(3, [1; SITES])),
            (Some(other), _) => match other.strip_prefix("forest:").map(str::parse) {
                Some(Ok(server)) if (1..=FOREST).contains(&server) => Ok(Against::Forest(server)),
                _ => Err(format!(
                    "`--through` takes 1, 2 or 3, or site:1, site:2 or site:3, or forest:1 to forest:{FOREST}, or reader \
                     or reader:2, not `{other}`"
                )),
            },
        }
    }

    /// How the command line and the suites call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Against::ZooKeeper => "zookeeper",
            _ => "stoa",
        }
    }

    /// Builds or fetches the server.
    pub(crate) fn prepare(self) -> Result<(), String> {
        match self {
            Against::ZooKeeper => peer::fetch().map(|_| ()),
            _ => build::program("stoa").map(|_| ()),
        }
    }

    /// The command to which a suite adds `--port P --data-dir D`. The suites split it at blanks.
    pub(crate) fn command(self, config: &Path) -> Result<String, String> {
        let words = match self {
            Against::Stoa
            | Against::Ensemble(_)
            | Against::Forest(_)
            | Against::Reader(_)
            | Against::Site(..) => "serve --admin-port 0".to_owned(),
            Against::Divided(partitions) => format!("serve --admin-port 0 --partitions {partitions}"),
            Against::ZooKeeper => "peer --heap 256m".to_owned(),
        };
        let command = format!("{} {words} --config {}", self.program()?, without_blanks(config)?);
        let server = match self {
            Against::Stoa | Against::ZooKeeper => return Ok(command),
            Against::Ensemble(server) => server.to_string(),
            Against::Forest(server) => format!("forest:{server}"),
            Against::Reader(distance) => format!("reader:{distance}"),
            Against::Site(site, partitions) => {
                let partitions = partitions.map(|partitions| partitions.to_string()).join(",");
                format!("site:{site}:{partitions}")
            }
            Against::Divided(_) => "1".to_owned(),
        };
        let launcher = without_blanks(&workspace::suite("ensemble").join("launch.py"))?;
        Ok(format!("{launcher} {server} {command}"))
    }

    /// The command to which a suite adds the `zoo.cfg` of one server of an ensemble.
    pub(crate) fn member_command(self) -> Result<String, String> {
        let words = match self {
            Against::ZooKeeper => "peer --heap 256m --member",
            _ => "serve --admin-port 0 --config",
        };
        Ok(format!("{} {words}", self.program()?))
    }

    fn program(self) -> Result<String, String> {
        without_blanks(&match self {
            Against::ZooKeeper => {
                std::env::current_exe().map_err(|error| format!("xtask's own program: {error}"))?
            }
            _ => workspace::target().join("release").join("stoa"),
        })
    }
}

/// How many partitions each site has: the same number, or one for each with commas between them.
fn of_sites(said: &str) -> Result<[u8; SITES], String> {
    let read: Option<Vec<u8>> =
        said.split(',').map(|number| number.parse().ok().filter(|number| *number > 0)).collect();
    let read = match read.as_deref() {
        Some([all]) => Some([*all; SITES]),
        Some(each) => each.try_into().ok(),
        None => None,
    };
    read.ok_or_else(|| format!("`--partitions` takes a number, or {SITES} such as 2,3,1, not `{said}`"))
}

/// The suites split commands at blanks.
fn without_blanks(path: &Path) -> Result<String, String> {
    let path = path.display().to_string();
    if path.contains(char::is_whitespace) {
        return Err(format!("the suites need a checkout whose path has no blanks: {path}"));
    }
    Ok(path)
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

    #[test]
    fn a_server_of_an_ensemble_is_one_of_three() {
        let parse = |line: &str| {
            let mut arguments = Arguments::new(line.split_whitespace().map(str::to_owned));
            Against::from_arguments(&mut arguments)?.through(&mut arguments)
        };
        assert_eq!(parse(""), Ok(Against::Stoa));
        assert_eq!(parse("--against stoa --through 2"), Ok(Against::Ensemble(2)));
        assert_eq!(parse("--through site:3"), Ok(Against::Site(3, [1, 1, 1])));
        assert_eq!(parse("--through forest:15"), Ok(Against::Forest(15)));
        assert_eq!(parse("--through reader"), Ok(Against::Reader(1)));
        assert_eq!(parse("--through reader:2"), Ok(Against::Reader(2)));
        assert!(parse("--through reader:3").is_err());
        assert!(parse("--through forest:16").is_err() && parse("--through forest:").is_err());
        assert_eq!(parse("--through site:2 --partitions 2"), Ok(Against::Site(2, [2, 2, 2])));
        assert_eq!(parse("--partitions 2,3,1 --through site:2"), Ok(Against::Site(2, [2, 3, 1])));
        for refused in ["--partitions 2", "--through 1 --partitions 2", "--through site:1 --partitions 2,0,1"]
        {
            assert!(parse(refused).is_err(), "{refused}");
        }
        assert!(parse("--through 4").is_err_and(|message| message.contains("1, 2 or 3")));
        assert!(parse("--against zookeeper --through 2").is_err());
    }

    #[test]
    fn paths_with_blanks_are_refused() {
        assert_eq!(without_blanks(Path::new("/a/b")), Ok("/a/b".to_owned()));
        assert!(without_blanks(Path::new("/a b/c")).is_err_and(|message| message.contains("/a b/c")));
    }
}
