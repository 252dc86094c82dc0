//! The links between sites, one or more for each two of them, which take as long as it is far and can be cut.
//!
//! A site reaches each server of another one through a proxy of its own, so that each pair of sites has its own
//! connections, whoever is the hub and whoever connects.

use std::collections::BTreeSet;

use stoa_proxy::{Direction, Link, Spec};

use super::ADDRESS;
use super::plan::DevPlan;
use crate::failure::{Context as _, Result};

/// From one site to another, by their places among the sites.
pub(super) type Way = (usize, usize);

/// What is cut, or healed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cable {
    /// Between all sites.
    All,
    /// Between a site and all others.
    Of(usize),
    /// Between two sites.
    Between(usize, usize),
    /// From the first site to the second one, and not back.
    From(usize, usize),
}

impl Cable {
    /// Every way that belongs to it, of so many sites.
    pub(super) fn ways(self, sites: usize) -> Vec<Way> {
        let all = (0..sites).flat_map(|from| (0..sites).map(move |to| (from, to)));
        let is_it = move |(from, to): &Way| match self {
            _ if from == to => false,
            Cable::All => true,
            Cable::Of(site) => *from == site || *to == site,
            Cable::Between(one, other) => [(one, other), (other, one)].contains(&(*from, *to)),
            Cable::From(one, other) => (*from, *to) == (one, other),
        };
        all.filter(is_it).collect()
    }
}

/// The links of all sites to all others.
pub(super) struct Links {
    links: Vec<SiteLink>,
    cut: BTreeSet<Way>,
}

/// A link through which a site reaches a server of another one.
struct SiteLink {
    from: usize,
    to: usize,
    link: Link,
}

impl Links {
    /// Opens them, before there is anybody to use them.
    pub(super) async fn open(plan: &DevPlan) -> Result<Links> {
        let mut links = Vec::new();
        for (from, site) in plan.sites.iter().enumerate() {
            for (to, proxies) in site.proxies.iter().enumerate() {
                for (port, server) in proxies.iter().zip(plan.servers_of(to)) {
                    let (listen, server) =
                        (format!("{ADDRESS}:{port}"), format!("{ADDRESS}:{}", server.site_port));
                    let mut spec = Spec::new(&listen, &server);
                    (spec.up.delay, spec.down.delay) = (site.round_trips[to] / 2, site.round_trips[to] / 2);
                    let link = Link::open(&spec).await;
                    let name = &site.name;
                    let link = link.context(format!("cannot open a link of {name} on {listen}"))?;
                    links.push(SiteLink { from, to, link });
                }
            }
        }
        Ok(Links { links, cut: BTreeSet::new() })
    }

    /// As a cable that is torn: what is sent is held back, and nobody is told. Returns whether any of it was whole.
    pub(super) fn cut(&mut self, ways: &[Way]) -> bool {
        let before = self.cut.len();
        self.cut.extend(ways);
        self.set();
        self.cut.len() != before
    }

    /// Returns whether any of it was cut.
    pub(super) fn heal(&mut self, ways: &[Way]) -> bool {
        let before = self.cut.len();
        self.cut.retain(|way| !ways.contains(way));
        self.set();
        self.cut.len() != before
    }

    fn set(&self) {
        for SiteLink { from, to, link } in &self.links {
            for (direction, way) in [(Direction::Up, (*from, *to)), (Direction::Down, (*to, *from))] {
                if self.cut.contains(&way) {
                    link.cut(direction);
                } else {
                    link.heal_one(direction);
                }
            }
        }
    }

    /// Whether nothing passes from one site to another one.
    pub(super) fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cut.contains(&(from, to))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU16, Ordering};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::{Instant, timeout};

    use super::super::plan::ServerPlan;
    use super::super::sites::SitePlan;
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_cable_is_of_all_sites_or_of_one_or_of_two() {
        let ways = |cable: Cable| cable.ways(3);
        assert_eq!(ways(Cable::All), [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]);
        assert_eq!(ways(Cable::Of(2)), [(0, 2), (1, 2), (2, 0), (2, 1)]);
        assert_eq!(ways(Cable::Between(2, 1)), [(1, 2), (2, 1)]);
        assert_eq!(ways(Cable::From(2, 1)), [(2, 1)]);
    }

    /// Three sites of one server each, none of which is the hub for the links, with a connection of each to each.
    struct Sites {
        links: Links,
        connections: Vec<(Way, TcpStream, TcpStream)>,
    }

    /// A port that nobody listens on, below those that the system gives to connections: of those one might be gone by
    /// the time that it is listened on.
    async fn free_port() -> u16 {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        loop {
            let next = (std::process::id() as u16).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
            let port = 11_000 + next % 1_000;
            if TcpListener::bind((ADDRESS, port)).await.is_ok() {
                return port;
            }
        }
    }

    async fn sites(round_trips: [[u64; 3]; 3]) -> Sites {
        let mut listeners = Vec::new();
        let mut servers = Vec::new();
        for site in 0..3 {
            let listener = TcpListener::bind((ADDRESS, 0)).await.unwrap();
            let site_port = listener.local_addr().unwrap().port();
            listeners.push(listener);
            let (id, folder) = (site as u8 + 1, "".into());
            let ([port, peer_port, admin_port], parents) = ([0; 3], Vec::new());
            servers.push(ServerPlan { id, site, folder, port, peer_port, admin_port, site_port, parents });
        }
        let mut sites = Vec::new();
        for (from, row) in round_trips.into_iter().enumerate() {
            let mut proxies = vec![Vec::new(); 3];
            for (to, ports) in proxies.iter_mut().enumerate() {
                if to != from {
                    ports.push(free_port().await);
                }
            }
            let round_trips = row.map(ms).to_vec();
            sites.push(SitePlan { name: format!("s{from}"), round_trips, proxies });
        }
        let folder = "".into();
        let plan = DevPlan { folder, servers, sites, partitions: Vec::new(), is_automatic: false };
        let links = Links::open(&plan).await.unwrap();
        let mut connections = Vec::new();
        for (from, to) in Cable::All.ways(3) {
            let one = TcpStream::connect((ADDRESS, plan.sites[from].proxies[to][0])).await.unwrap();
            let (other, _) = listeners[to].accept().await.unwrap();
            connections.push(((from, to), one, other));
        }
        Sites { links, connections }
    }

    impl Sites {
        /// The ways on which a byte does not come at once, both from who has connected and back. It comes later, so
        /// each has to be one that was not seen before.
        async fn held(&mut self, byte: u8) -> Vec<(Way, Direction)> {
            let mut held = Vec::new();
            for (way, one, other) in &mut self.connections {
                for direction in [Direction::Up, Direction::Down] {
                    let (from, to) = match direction {
                        Direction::Up => (&mut *one, &mut *other),
                        Direction::Down => (&mut *other, &mut *one),
                    };
                    from.write_all(&[byte]).await.unwrap();
                    if timeout(ms(200), until(to, byte)).await.is_err() {
                        held.push((*way, direction));
                    }
                }
            }
            held
        }
    }

    async fn until(stream: &mut TcpStream, byte: u8) {
        while stream.read_u8().await.unwrap() != byte {}
    }

    #[tokio::test]
    async fn each_two_sites_have_a_link_that_takes_its_time() {
        let round_trips = [[0, 40, 80], [40, 0, 120], [80, 120, 0]];
        let mut sites = sites(round_trips).await;
        for ((from, to), one, other) in &mut sites.connections {
            let expected = ms(round_trips[*from][*to]);
            // The first bytes of a connection take longer.
            one.write_all(&[0]).await.unwrap();
            until(other, 0).await;
            let began = Instant::now();
            one.write_all(&[1]).await.unwrap();
            until(other, 1).await;
            other.write_all(&[2]).await.unwrap();
            until(one, 2).await;
            let took = began.elapsed();
            assert!(took >= expected && took < expected + ms(35), "{from} to {to}: {took:?}");
        }
    }

    #[tokio::test]
    async fn what_is_cut_is_between_the_sites_that_are_named_and_waits() {
        let mut sites = sites([[0; 3]; 3]).await;
        let (up, down) = (Direction::Up, Direction::Down);
        assert_eq!(sites.held(1).await, []);
        let ways = |cable: Cable| cable.ways(3);
        assert!(sites.links.cut(&ways(Cable::From(1, 2))));
        assert!(!sites.links.cut(&ways(Cable::From(1, 2))));
        assert_eq!(sites.held(2).await, [((1, 2), up), ((2, 1), down)]);
        assert!(sites.links.is_cut(1, 2) && !sites.links.is_cut(2, 1));
        assert!(sites.links.cut(&ways(Cable::Between(1, 2))));
        assert_eq!(sites.held(3).await, [((1, 2), up), ((1, 2), down), ((2, 1), up), ((2, 1), down)]);
        assert!(sites.links.heal(&ways(Cable::From(2, 1))));
        assert_eq!(sites.held(4).await, [((1, 2), up), ((2, 1), down)]);
        assert!(!sites.links.heal(&ways(Cable::Of(0))));
        assert!(sites.links.cut(&ways(Cable::Of(0))));
        let of_first = [(0, 1), (0, 2), (1, 0), (2, 0)].map(|way| [(way, up), (way, down)]).concat();
        let held = sites.held(5).await;
        assert!(of_first.iter().all(|way| held.contains(way)) && held.len() == 10, "{held:?}");
        assert!(sites.links.heal(&ways(Cable::All)));
        assert_eq!(sites.held(6).await, []);
    }
}
