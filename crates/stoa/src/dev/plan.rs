//! Which server has which ports and folder.
//!
//! There is one ensemble, or one for each site. Servers are numbered through all of them.

use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use super::ADDRESS;
use super::sites::SitePlan;
use crate::failure::{Context as _, Failure, Result};

/// The file that keeps the peer ports between starts, one line a server: an ensemble finds itself again.
const PEER_PORTS: &str = "peer-ports";
/// The peer ports of a new ensemble are so far above the ports for clients, where they are free.
const PEER_PORTS_ABOVE: u16 = 10_000;
/// The admin port of the first server, where it is free, as that of a server alone.
const ADMIN_PORT: u16 = 8080;
/// The ports for other sites are so far above those for clients, where they are free.
const SITE_PORTS_ABOVE: u16 = 20_000;
/// The largest id that a server can have where there are TTL znodes.
const SERVERS_MAX: u16 = 254;
/// The file that keeps the names of the sites between starts, one a line: they count by their order. No site is called
/// so.
const SITES: &str = "sites.txt";

/// Everything that is decided before the first server is started.
pub(super) struct DevPlan {
    pub(super) folder: PathBuf,
    /// All servers, in the order of their ids, which begin with 1, and of their sites; readers behind all others.
    pub(super) servers: Vec<ServerPlan>,
    /// The hub first; none where there is one ensemble and nothing else.
    pub(super) sites: Vec<SitePlan>,
    /// How many partitions the servers of each site are told to have, if they are; of the only ensemble where there are no
    /// sites.
    pub(super) partitions: Vec<u8>,
    /// Whether another site becomes the hub without an operator.
    pub(super) is_automatic: bool,
}

/// One server.
#[derive(Clone, Debug)]
pub(super) struct ServerPlan {
    pub(super) id: u8,
    /// Which of the sites it belongs to; 0 where there are none.
    pub(super) site: usize,
    pub(super) folder: PathBuf,
    pub(super) port: u16,
    pub(super) peer_port: u16,
    pub(super) admin_port: u16,
    /// Where it listens for other sites; 0 where there are none.
    pub(super) site_port: u16,
    /// The peer ports of its parents, if it is a reader; none of a server that belongs to the ensemble.
    pub(super) parents: Vec<u16>,
}

impl ServerPlan {
    pub(super) fn is_reader(&self) -> bool {
        !self.parents.is_empty()
    }

    /// The setting `reader-of`.
    pub(super) fn reader_of(&self) -> String {
        self.parents.iter().map(|port| format!("{ADDRESS}:{port}")).collect::<Vec<_>>().join(",")
    }
}

impl DevPlan {
    /// The servers of a site, or all where there are none; no readers.
    pub(super) fn servers_of(&self, site: usize) -> impl Iterator<Item = &ServerPlan> {
        self.servers.iter().filter(move |server| server.site == site && !server.is_reader())
    }

    /// Adds readers, so many of each site, each below two of its servers, where there are as many.
    pub(super) fn add_readers(&mut self, count: u8, first_port: u16) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let sites = self.sites.len().max(1);
        let members: Vec<Vec<u16>> =
            (0..sites).map(|site| self.servers_of(site).map(|server| server.peer_port).collect()).collect();
        let mut held = Vec::new();
        let first = if first_port == 0 { 0 } else { first_port.saturating_add(self.count()) };
        let total = usize::from(count) * sites;
        let total = u8::try_from(total)
            .map_err(|_| Failure::usage(format!("{total} readers are more than there are ids")))?;
        for (place, port) in client_ports(total, first, &mut held)?.into_iter().enumerate() {
            let (site, index) = (place / usize::from(count), place % usize::from(count));
            let members = &members[site];
            let id = u8::try_from(self.servers.len() + 1).ok().filter(|id| u16::from(*id) <= SERVERS_MAX);
            let id =
                id.ok_or_else(|| Failure::usage(format!("there can be {SERVERS_MAX} servers in all")))?;
            let parents = (0..members.len().min(2)).map(|next| members[(index + next) % members.len()]);
            let admin_port = match first_port {
                0 => any(&mut held)?,
                _ => above(ADMIN_PORT, u16::from(id) - 1, &mut held)?,
            };
            self.servers.push(ServerPlan {
                id,
                site,
                folder: self.folder_of(site).join(id.to_string()),
                port,
                peer_port: above(PEER_PORTS_ABOVE, port, &mut held)?,
                admin_port,
                site_port: 0,
                parents: parents.collect(),
            });
        }
        Ok(())
    }

    fn folder_of(&self, site: usize) -> PathBuf {
        self.sites.get(site).map_or_else(|| self.folder.clone(), |site| self.folder.join(&site.name))
    }

    fn count(&self) -> u16 {
        u16::try_from(self.servers.len()).unwrap_or(u16::MAX)
    }

    /// What clients of the readers of a site connect to, if there are any.
    pub(super) fn readers(&self, site: usize) -> Option<String> {
        let readers = self.servers.iter().filter(|server| server.is_reader() && server.site == site);
        let addresses: Vec<String> = readers.map(|server| format!("{ADDRESS}:{}", server.port)).collect();
        (!addresses.is_empty()).then(|| addresses.join(","))
    }

    /// The setting `servers` of a site.
    pub(super) fn servers(&self, site: usize) -> String {
        let line = |server: &ServerPlan| {
            format!("{}={ADDRESS}:{};{ADDRESS}:{}", server.id, server.peer_port, server.port)
        };
        self.servers_of(site).map(line).collect::<Vec<_>>().join(",")
    }

    /// What clients of a site connect to.
    pub(super) fn connection_string(&self, site: usize) -> String {
        let address = |server: &ServerPlan| format!("{ADDRESS}:{}", server.port);
        self.servers_of(site).map(address).collect::<Vec<_>>().join(",")
    }

    /// The setting `sites` of the servers of a site: they reach all others through their own proxies.
    pub(super) fn sites(&self, of: usize) -> String {
        let addresses = |(index, site): (usize, &SitePlan)| {
            let ports: Vec<u16> = match index {
                _ if index == of => self.servers_of(of).map(|server| server.site_port).collect(),
                _ => self.sites[of].proxies[index].clone(),
            };
            let ports: Vec<String> = ports.iter().map(|port| format!("{ADDRESS}:{port}")).collect();
            format!("{}={}", site.name, ports.join("|"))
        };
        self.sites.iter().enumerate().map(addresses).collect::<Vec<_>>().join(",")
    }
}

/// Finds ports for an ensemble of so many servers, or for so many of each site. `first_port` is that of the first server
/// for clients.
pub(super) fn make(count: u8, first_port: u16, folder: &Path, mut sites: Vec<SitePlan>) -> Result<DevPlan> {
    let total = u16::from(count) * u16::try_from(sites.len().max(1)).unwrap_or(u16::MAX);
    let total =
        u8::try_from(total).ok().filter(|total| u16::from(*total) <= SERVERS_MAX).ok_or_else(|| {
            Failure::usage(format!("{total} servers are more than the {SERVERS_MAX} that can have an id"))
        })?;
    keep_sites(&sites, folder)?;
    // Held until all are chosen, so that no port is chosen twice.
    let mut held = Vec::new();
    let ports = client_ports(total, first_port, &mut held)?;
    let mut servers = Vec::new();
    for (site, ports) in ports.chunks(usize::from(count)).enumerate() {
        let folder = sites.get(site).map_or_else(|| folder.to_owned(), |site| folder.join(&site.name));
        std::fs::create_dir_all(&folder).context(format!("cannot make the folder {}", folder.display()))?;
        for (&port, peer_port) in ports.iter().zip(peer_ports(ports, &folder, &mut held)?) {
            let id = u8::try_from(servers.len() + 1).expect("there are no more than there are ids");
            let folder = folder.join(id.to_string());
            // Who lets the system choose starts several at the same time.
            let admin_port = match first_port {
                0 => any(&mut held)?,
                _ => above(ADMIN_PORT, u16::from(id) - 1, &mut held)?,
            };
            let site_port = if sites.is_empty() { 0 } else { above(SITE_PORTS_ABOVE, port, &mut held)? };
            let parents = Vec::new();
            servers.push(ServerPlan { id, site, folder, port, peer_port, admin_port, site_port, parents });
        }
    }
    for (from, site) in sites.iter_mut().enumerate() {
        for (_, proxies) in site.proxies.iter_mut().enumerate().filter(|(to, _)| *to != from) {
            *proxies = (0..count).map(|_| any(&mut held)).collect::<Result<_>>()?;
        }
    }
    Ok(DevPlan { folder: folder.to_owned(), servers, sites, partitions: Vec::new(), is_automatic: false })
}

/// How many partitions each site has, or the only ensemble: as many as are said for it, or for all.
pub(super) fn partitions(said: &[u8], sites: usize) -> Result<Vec<u8>> {
    let needed = sites.max(1);
    match said {
        [] => Ok(Vec::new()),
        [all] => Ok(vec![*all; needed]),
        each if each.len() == needed => Ok(each.to_vec()),
        each => Err(Failure::usage(format!(
            "--partitions: there are {} numbers; say one for all, or with --sites as many as there are sites",
            each.len()
        ))),
    }
}

/// Sees to it that a folder has the same sites at each start, or none.
fn keep_sites(sites: &[SitePlan], folder: &Path) -> Result<()> {
    let (file, shown) = (folder.join(SITES), folder.display());
    let names = sites.iter().map(|site| format!("{}\n", site.name)).collect::<String>();
    match std::fs::read_to_string(&file) {
        Ok(kept) if kept == names => Ok(()),
        Ok(kept) => {
            let kept = kept.lines().collect::<Vec<_>>().join(",");
            Err(Failure::usage(format!("{shown} has sites: take --sites {kept}, or another --data-dir")))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if sites.is_empty() {
                return Ok(());
            }
            if folder.join(PEER_PORTS).is_file() {
                return Err(Failure::usage(format!(
                    "{shown} has an ensemble without sites: leave --sites out, or take another --data-dir"
                )));
            }
            std::fs::write(&file, names).context(format!("cannot write {}", file.display()))
        }
        Err(error) => Err(Failure::failed(format!("cannot read {}: {error}", file.display()))),
    }
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
            let chosen: Vec<u16> =
                ports.iter().map(|&port| above(PEER_PORTS_ABOVE, port, held)).collect::<Result<_>>()?;
            let text: String = chosen.iter().map(|port| format!("{port}\n")).collect();
            std::fs::write(&file, text).context(format!("cannot write {name}"))?;
            Ok(chosen)
        }
        Err(error) => Err(Failure::failed(format!("cannot read {name}: {error}"))),
    }
}

/// The port so far above one for clients, or any other if that is taken.
fn above(distance: u16, port: u16, held: &mut Vec<TcpListener>) -> Result<u16> {
    match port.checked_add(distance) {
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
        let first = make(3, 0, folder.path(), Vec::new()).unwrap();
        let mut ports: Vec<u16> =
            first.servers.iter().flat_map(|server| [server.port, server.peer_port]).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 6);
        assert_eq!(first.servers[2].folder, folder.path().join("3"));
        let again = make(3, 0, folder.path(), Vec::new()).unwrap();
        for (one, other) in first.servers.iter().zip(&again.servers) {
            assert_eq!(one.peer_port, other.peer_port);
        }
        let error = make(2, 0, folder.path(), Vec::new()).err().unwrap().to_string();
        assert!(error.contains("has an ensemble of 3: take --servers 3"), "{error}");
        std::fs::write(folder.path().join(PEER_PORTS), "1\nx\n").unwrap();
        assert!(make(2, 0, folder.path(), Vec::new()).is_err());
    }

    #[test]
    fn ports_that_are_taken_or_missing_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let taken = TcpListener::bind((ADDRESS, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = make(1, port, folder.path(), Vec::new()).err().unwrap().to_string();
        assert!(error.starts_with(&format!("cannot listen on port {port}: ")), "{error}");
        assert!(matches!(make(2, 65535, folder.path(), Vec::new()), Err(Failure::Usage(_))));
        std::fs::write(folder.path().join(PEER_PORTS), format!("{port}\n")).unwrap();
        let error = make(1, 0, folder.path(), Vec::new()).err().unwrap().to_string();
        assert!(error.starts_with(&format!("cannot listen on peer port {port}, kept in ")), "{error}");
    }

    #[test]
    fn readers_have_ports_of_their_own_and_two_parents_each() {
        let folder = tempfile::tempdir().unwrap();
        let mut plan = make(3, 0, folder.path(), Vec::new()).unwrap();
        let (servers, clients) = (plan.servers(0), plan.connection_string(0));
        plan.add_readers(4, 0).unwrap();
        assert_eq!((plan.servers(0), plan.connection_string(0)), (servers, clients));
        let peers: Vec<u16> = plan.servers.iter().map(|server| server.peer_port).collect();
        let parents: Vec<Vec<u16>> = plan.servers[3..].iter().map(|server| server.parents.clone()).collect();
        let two = |one: usize, other: usize| vec![peers[one], peers[other]];
        assert_eq!(parents, [two(0, 1), two(1, 2), two(2, 0), two(0, 1)]);
        assert_eq!(plan.servers[6].reader_of(), format!("127.0.0.1:{},127.0.0.1:{}", peers[0], peers[1]));
        assert_eq!(plan.readers(0).unwrap().split(',').count(), 4);
        let folder = tempfile::tempdir().unwrap();
        let mut alone = make(1, 0, folder.path(), Vec::new()).unwrap();
        alone.add_readers(1, 0).unwrap();
        assert_eq!(alone.servers[1].parents, [alone.servers[0].peer_port]);
    }

    fn sites_of(names: &[&str]) -> Vec<SitePlan> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        super::super::sites::make(&names, None).unwrap()
    }

    fn two_sites() -> Vec<SitePlan> {
        sites_of(&["virginia", "frankfurt"])
    }

    #[test]
    fn each_site_is_an_ensemble_and_servers_are_numbered_through() {
        let folder = tempfile::tempdir().unwrap();
        let plan = make(2, 0, folder.path(), two_sites()).unwrap();
        let places: Vec<(u8, usize)> = plan.servers.iter().map(|server| (server.id, server.site)).collect();
        assert_eq!(places, [(1, 0), (2, 0), (3, 1), (4, 1)]);
        assert_eq!(plan.servers[3].folder, folder.path().join("frankfurt/4"));
        let of_servers = plan.servers.iter().flat_map(|it| [it.port, it.peer_port, it.site_port]);
        let proxies = plan.sites.iter().flat_map(|site| site.proxies.concat());
        let mut ports: Vec<u16> = of_servers.chain(proxies).collect();
        ports.sort_unstable();
        ports.dedup();
        let proxies = |site: usize| plan.sites[site].proxies.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!((ports.len(), proxies(0), proxies(1)), (16, vec![0, 2], vec![2, 0]));
        let again = make(2, 0, folder.path(), two_sites()).unwrap();
        assert_eq!(again.servers[2].peer_port, plan.servers[2].peer_port);
        assert!(make(9, 0, folder.path(), vec![two_sites()[0].clone(); 29]).is_err(), "there are 254 ids");
    }

    #[test]
    fn readers_of_sites_are_numbered_behind_all_servers_and_below_those_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let mut plan = make(2, 0, folder.path(), two_sites()).unwrap();
        let before = [0, 1].map(|site| (plan.servers(site), plan.sites(site)));
        plan.add_readers(2, 0).unwrap();
        let places: Vec<(u8, usize)> = plan.servers.iter().map(|server| (server.id, server.site)).collect();
        assert_eq!(places[4..], [(5, 0), (6, 0), (7, 1), (8, 1)]);
        assert_eq!([0, 1].map(|site| (plan.servers(site), plan.sites(site))), before);
        let peers: Vec<u16> = plan.servers.iter().map(|server| server.peer_port).collect();
        assert_eq!(plan.servers[7].parents, [peers[3], peers[2]]);
        assert_eq!(plan.servers[7].folder, folder.path().join("frankfurt/8"));
        assert_eq!([0, 1].map(|site| plan.readers(site).unwrap().split(',').count()), [2, 2]);
        assert!(plan.add_readers(200, 0).is_err(), "there are 254 ids");
    }

    #[test]
    fn one_number_of_partitions_is_for_all_sites_and_several_are_one_for_each() {
        let read = |said: &[u8], sites| partitions(said, sites).map_err(|error| error.to_string());
        assert_eq!(read(&[], 3), Ok(Vec::new()));
        assert_eq!(read(&[4], 0), Ok(vec![4]));
        assert_eq!(read(&[2], 3), Ok(vec![2; 3]));
        assert_eq!(read(&[2, 3, 1], 3), Ok(vec![2, 3, 1]));
        for (said, sites) in [(&[2, 3][..], 0), (&[2, 3], 3), (&[2, 3, 1, 1], 3)] {
            assert!(read(said, sites).is_err_and(|error| error.contains("as many as there are sites")));
        }
    }

    #[test]
    fn a_folder_stays_with_its_sites() {
        let folder = tempfile::tempdir().unwrap();
        make(1, 0, folder.path(), two_sites()).unwrap();
        let mut others = two_sites();
        others.reverse();
        for sites in [others, Vec::new()] {
            let error = make(1, 0, folder.path(), sites).err().unwrap().to_string();
            assert!(error.contains("has sites: take --sites virginia,frankfurt, or"), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        make(1, 0, folder.path(), Vec::new()).unwrap();
        let error = make(1, 0, folder.path(), two_sites()).err().unwrap().to_string();
        assert!(error.contains("an ensemble without sites: leave --sites out"), "{error}");
    }

    fn server(id: u8, site: usize) -> ServerPlan {
        let port = 2180 + u16::from(id);
        let (peer_port, site_port) = (port + PEER_PORTS_ABOVE, port + SITE_PORTS_ABOVE);
        let (folder, parents) = (PathBuf::new(), Vec::new());
        ServerPlan { id, site, folder, port, peer_port, admin_port: 0, site_port, parents }
    }

    fn plan(servers: Vec<ServerPlan>, sites: Vec<SitePlan>) -> DevPlan {
        DevPlan { folder: PathBuf::new(), servers, sites, partitions: Vec::new(), is_automatic: false }
    }

    #[test]
    fn servers_are_written_as_the_setting_takes_them() {
        let plan = plan(vec![server(1, 0), server(2, 0), server(3, 1)], Vec::new());
        assert_eq!(plan.servers(0), "1=127.0.0.1:12181;127.0.0.1:2181,2=127.0.0.1:12182;127.0.0.1:2182");
        assert_eq!(plan.connection_string(0), "127.0.0.1:2181,127.0.0.1:2182");
        assert_eq!(plan.servers(1), "3=127.0.0.1:12183;127.0.0.1:2183");
    }

    #[test]
    fn each_site_reaches_each_other_one_through_proxies_of_its_own() {
        let mut sites = sites_of(&["virginia", "california", "frankfurt"]);
        sites[0].proxies = vec![vec![], vec![4012], vec![4013]];
        sites[1].proxies = vec![vec![4101, 4102], vec![], vec![4103]];
        sites[2].proxies = vec![vec![4201, 4202], vec![4203], vec![]];
        let plan = plan(vec![server(1, 0), server(2, 0), server(3, 1), server(4, 2)], sites);
        let expected = [
            "virginia=127.0.0.1:22181|127.0.0.1:22182,california=127.0.0.1:4012,frankfurt=127.0.0.1:4013",
            "virginia=127.0.0.1:4101|127.0.0.1:4102,california=127.0.0.1:22183,frankfurt=127.0.0.1:4103",
            "virginia=127.0.0.1:4201|127.0.0.1:4202,california=127.0.0.1:4203,frankfurt=127.0.0.1:22184",
        ];
        assert_eq!([0, 1, 2].map(|of| plan.sites(of)), expected);
    }
}
