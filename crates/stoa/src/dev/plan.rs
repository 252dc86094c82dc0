//! Which server has which ports and folder.

use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use super::ADDRESS;
use crate::failure::{Context as _, Failure, Result};

/// The file that keeps the peer ports between starts, one line a server: an ensemble finds itself again.
const PEER_PORTS: &str = "peer-ports";
/// The peer ports of a new ensemble are so far above the ports for clients, where they are free.
const PEER_PORTS_ABOVE: u16 = 10_000;
/// The admin port of the first server, as that of a server alone.
const ADMIN_PORT: u16 = 8080;

/// Everything that is decided before the first server is started.
pub(super) struct EnsemblePlan {
    pub(super) folder: PathBuf,
    pub(super) servers: Vec<ServerPlan>,
    /// How many partitions they are told to have, if they are.
    pub(super) partitions: Option<u8>,
}

/// One server.
#[derive(Clone, Debug)]
pub(super) struct ServerPlan {
    pub(super) id: u8,
    pub(super) folder: PathBuf,
    pub(super) port: u16,
    pub(super) peer_port: u16,
    /// 0 if the port was taken.
    pub(super) admin_port: u16,
}

impl EnsemblePlan {
    /// The setting `servers`.
    pub(super) fn servers(&self) -> String {
        let line = |server: &ServerPlan| {
            format!("{}={ADDRESS}:{};{ADDRESS}:{}", server.id, server.peer_port, server.port)
        };
        self.servers.iter().map(line).collect::<Vec<_>>().join(",")
    }

    /// What clients connect to.
    pub(super) fn connection_string(&self) -> String {
        let address = |server: &ServerPlan| format!("{ADDRESS}:{}", server.port);
        self.servers.iter().map(address).collect::<Vec<_>>().join(",")
    }
}

/// Finds ports for an ensemble. `first_port` is that of the first server for clients.
pub(super) fn make(count: u8, first_port: u16, folder: &Path) -> Result<EnsemblePlan> {
    // Held until all are chosen, so that no port is chosen twice.
    let mut held = Vec::new();
    let ports = client_ports(count, first_port, &mut held)?;
    let peer_ports = peer_ports(&ports, folder, &mut held)?;
    let servers = (1..=count).zip(ports.iter().zip(peer_ports)).map(|(id, (&port, peer_port))| {
        let admin_port = ADMIN_PORT + u16::from(id) - 1;
        let admin_port = hold(admin_port, &mut held).map_or(0, |()| admin_port);
        ServerPlan { id, folder: folder.join(id.to_string()), port, peer_port, admin_port }
    });
    Ok(EnsemblePlan { folder: folder.to_owned(), servers: servers.collect(), partitions: None })
}

fn client_ports(count: u8, first: u16, held: &mut Vec<TcpListener>) -> Result<Vec<u16>> {
    if first == 0 {
        return (0..count).map(|_| any(held)).collect();
    }
    let last = first.checked_add(u16::from(count) - 1).ok_or_else(|| {
        Failure::usage(format!(
            "--port {first}: there are no {count} ports from there on; choose a lower one"
        ))
    })?;
    for port in first..=last {
        hold(port, held).map_err(|error| {
            Failure::failed(format!("cannot listen on port {port}: {error}; choose others with --port"))
        })?;
    }
    Ok((first..=last).collect())
}

fn peer_ports(ports: &[u16], folder: &Path, held: &mut Vec<TcpListener>) -> Result<Vec<u16>> {
    let file = folder.join(PEER_PORTS);
    let name = file.display();
    match std::fs::read_to_string(&file) {
        Ok(text) => {
            let kept: Option<Vec<u16>> = text.lines().map(|line| line.trim().parse().ok()).collect();
            let kept =
                kept.ok_or_else(|| Failure::failed(format!("{name} does not hold ports, one a line")))?;
            if kept.len() != ports.len() {
                let (count, folder) = (kept.len(), folder.display());
                return Err(Failure::usage(format!(
                    "{folder} has an ensemble of {count}: take --servers {count}, or another --data-dir"
                )));
            }
            for &port in &kept {
                hold(port, held).map_err(|error| {
                    Failure::failed(format!(
                        "cannot listen on peer port {port}, kept in {name}: {error}; end what uses it, or \
                         remove the file, so that others are chosen"
                    ))
                })?;
            }
            Ok(kept)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let chosen: Vec<u16> = ports.iter().map(|&port| beside(port, held)).collect::<Result<_>>()?;
            let text: String = chosen.iter().map(|port| format!("{port}\n")).collect();
            std::fs::write(&file, text).context(format!("cannot write {name}"))?;
            Ok(chosen)
        }
        Err(error) => Err(Failure::failed(format!("cannot read {name}: {error}"))),
    }
}

/// The peer port that belongs to a port for clients, or any other if that is taken.
fn beside(port: u16, held: &mut Vec<TcpListener>) -> Result<u16> {
    match port.checked_add(PEER_PORTS_ABOVE) {
        Some(port) if hold(port, held).is_ok() => Ok(port),
        _ => any(held),
    }
}

fn any(held: &mut Vec<TcpListener>) -> Result<u16> {
    hold(0, held).context("cannot find a free port")?;
    let listener = held.last().expect("it was put there just now");
    Ok(listener.local_addr().context("cannot find a free port")?.port())
}

fn hold(port: u16, held: &mut Vec<TcpListener>) -> io::Result<()> {
    held.push(TcpListener::bind((ADDRESS, port))?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_distinct_and_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let first = make(3, 0, folder.path()).unwrap();
        let mut ports: Vec<u16> =
            first.servers.iter().flat_map(|server| [server.port, server.peer_port]).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 6);
        assert_eq!(first.servers[2].folder, folder.path().join("3"));
        let again = make(3, 0, folder.path()).unwrap();
        for (one, other) in first.servers.iter().zip(&again.servers) {
            assert_eq!(one.peer_port, other.peer_port);
        }
        let error = make(2, 0, folder.path()).err().unwrap().to_string();
        assert!(error.contains("has an ensemble of 3: take --servers 3"), "{error}");
        std::fs::write(folder.path().join(PEER_PORTS), "1\nx\n").unwrap();
        assert!(make(2, 0, folder.path()).is_err());
    }

    #[test]
    fn ports_that_are_taken_or_missing_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let taken = TcpListener::bind((ADDRESS, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = make(1, port, folder.path()).err().unwrap().to_string();
        assert!(error.starts_with(&format!("cannot listen on port {port}: ")), "{error}");
        assert!(matches!(make(2, 65535, folder.path()), Err(Failure::Usage(_))));
        std::fs::write(folder.path().join(PEER_PORTS), format!("{port}\n")).unwrap();
        let error = make(1, 0, folder.path()).err().unwrap().to_string();
        assert!(error.starts_with(&format!("cannot listen on peer port {port}, kept in ")), "{error}");
    }

    #[test]
    fn servers_are_written_as_the_setting_takes_them() {
        let server = |id| ServerPlan {
            id,
            folder: PathBuf::new(),
            port: 2180 + u16::from(id),
            peer_port: 12180 + u16::from(id),
            admin_port: 0,
        };
        let plan =
            EnsemblePlan { folder: PathBuf::new(), servers: vec![server(1), server(2)], partitions: None };
        assert_eq!(plan.servers(), "1=127.0.0.1:12181;127.0.0.1:2181,2=127.0.0.1:12182;127.0.0.1:2182");
        assert_eq!(plan.connection_string(), "127.0.0.1:2181,127.0.0.1:2182");
    }
}
