//! Starts the servers that are compared, each on an empty folder and a free port.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(60);

/// Lines of a server's output that a report shows.
const OUTPUT_LINES: usize = 12;

/// What a side can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Apache ZooKeeper.
    ZooKeeper,
    /// Stoa with so many partitions.
    Stoa(u8),
}

/// A running server; it is killed and its folder removed when dropped.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    child: Child,
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// When its program is not there, or it does not come up.
    pub fn start(kind: Kind) -> Result<Self, String> {
        let folder = tempfile::Builder::new()
            .prefix("stoa-oracle-")
            .tempdir_in(scratch())
            .map_err(|error| format!("no temporary folder: {error}"))?;
        let address = free_address().map_err(|error| format!("no free port: {error}"))?;
        let mut command = command(kind, address.port(), &folder.path().join("data"));
        let log = std::fs::File::create(folder.path().join("output"))
            .map_err(|error| format!("no log file for the server: {error}"))?;
        let errors = log.try_clone().map_err(|error| format!("no log file for the server: {error}"))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let mut server = Self { address, child, folder };
        server.wait_until_ready(&command)?;
        Ok(server)
    }

    fn wait_until_ready(&mut self, command: &Command) -> Result<(), String> {
        let deadline = Instant::now() + START_LIMIT;
        while !is_ready(self.address) {
            let ended = self.child.try_wait().map_err(|error| format!("cannot watch the server: {error}"))?;
            if let Some(status) = ended {
                return Err(format!("{command:?} ended at once ({status}):\n{}", self.output()));
            }
            if Instant::now() > deadline {
                return Err(format!("{command:?} does not answer:\n{}", self.output()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// What the server has written to its terminal and, if it has one, its log.
    #[must_use]
    pub fn output(&self) -> String {
        let text = ["output", "data/zookeeper.log"]
            .map(|file| std::fs::read_to_string(self.folder.path().join(file)).unwrap_or_default());
        let text = text.concat();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(OUTPUT_LINES)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server that is gone already needs no more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Memory where there is some: one server syncs each burst, and the other waits for it meanwhile.
fn scratch() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Whether the four-letter word `srvr` is answered as a serving server does.
fn is_ready(address: SocketAddr) -> bool {
    use std::io::{Read, Write};
    let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else {
        return false;
    };
    let mut answer = Vec::new();
    let patience = stream.set_read_timeout(Some(Duration::from_secs(2)));
    let asked =
        patience.and_then(|()| stream.write_all(b"srvr")).and_then(|()| stream.read_to_end(&mut answer));
    asked.is_ok() && answer.windows(5).any(|part| part == b"Mode:")
}

fn command(kind: Kind, port: u16, data: &Path) -> Command {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("zoo.cfg");
    let mut command = match kind {
        Kind::Stoa(partitions) => {
            let mut command = Command::new(beside_us("stoa", "release"));
            command.args(["serve", "--admin-port", "0", "--partitions", &partitions.to_string()]);
            command
        }
        Kind::ZooKeeper => {
            let mut command = peer_command();
            command.args(["--heap", "512m"]);
            command
        }
    };
    command.arg("--config").arg(config);
    command.arg("--port").arg(port.to_string()).arg("--data-dir").arg(data);
    command
}

/// `cargo xtask peer`, without cargo where that has been built: cargo would wait for other builds.
fn peer_command() -> Command {
    for profile in ["debug", "release"] {
        let program = beside_us("xtask", profile);
        if program.exists() {
            let mut command = Command::new(program);
            command.arg("peer");
            return command;
        }
    }
    let mut command = Command::new("cargo");
    command.args(["xtask", "peer"]);
    command
}

/// A program of this workspace in the target directory that this one was built in.
fn beside_us(program: &str, profile: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let target = own.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    target.unwrap_or(Path::new("target")).join(profile).join(program)
}
