//! Sites to try out: how far they are from the hub, and the links to it, which take as long as that.

use std::path::Path;
use std::time::Duration;

use stoa_proxy::{Direction, Link, Spec};
use stoa_server::config::{SETTINGS, Settings};

use super::ADDRESS;
use super::plan::DevPlan;
use crate::failure::{Context as _, Failure, Result};

/// Round trips between data centres of those names, in milliseconds.
const KNOWN: [(&str, &str, u64); 3] =
    [("virginia", "california", 62), ("virginia", "frankfurt", 90), ("california", "frankfurt", 148)];
/// The round trip of sites that nobody knows anything about.
const UNKNOWN: Duration = Duration::from_millis(50);
/// No data centre is farther away.
const ROUND_TRIP_MAX_MS: u64 = 60_000;

/// One site.
#[derive(Clone, Debug)]
pub(super) struct SitePlan {
    pub(super) name: String,
    /// How long it takes to the hub and back; without meaning for the hub.
    pub(super) round_trip: Duration,
    /// The ports of the proxies through which this site reaches the servers of the hub, in their order.
    pub(super) proxies: Vec<u16>,
}

impl SitePlan {
    pub(super) fn new(name: &str, round_trip: Duration) -> Self {
        Self { name: name.to_owned(), round_trip, proxies: Vec::new() }
    }
}

/// Takes what the setting `site` does.
pub(super) fn site_name(text: &str) -> std::result::Result<String, String> {
    let setting = SETTINGS.iter().find(|setting| setting.key == "site").expect("there is this setting");
    let is_name = !text.is_empty() && setting.set(&mut Settings::default(), text);
    is_name.then(|| text.to_owned()).ok_or_else(|| format!("expected {}", setting.expected))
}

/// The sites of these names, the hub first, as far away as a file says.
pub(super) fn make(names: &[String], file: Option<&Path>) -> Result<Vec<SitePlan>> {
    if let Some((index, name)) = names.iter().enumerate().find(|(index, name)| names[..*index].contains(name))
    {
        let place = index + 1;
        return Err(Failure::usage(format!(
            "--sites: the name {name} is there twice, the second time as number {place}"
        )));
    }
    let distances = match file {
        Some(file) => {
            let shown = file.display();
            let text = std::fs::read_to_string(file).context(format!("cannot read {shown}"))?;
            parse_distances(&text).map_err(|problem| Failure::usage(format!("{shown}, {problem}")))?
        }
        None => Vec::new(),
    };
    let site = |name: &String| SitePlan::new(name, round_trip(&distances, &names[0], name));
    Ok(names.iter().map(site).collect())
}

/// Two sites, and how long it takes from one to the other and back.
type Distance = (String, String, Duration);

/// Reads a file of round trips; `Err` says what is wrong on which line.
fn parse_distances(text: &str) -> std::result::Result<Vec<Distance>, String> {
    let mut distances: Vec<Distance> = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        let (one, other, ms) = match words[..] {
            [] => continue,
            [one, other, ms] => (one, other, ms.parse().ok().filter(|ms| *ms <= ROUND_TRIP_MAX_MS)),
            _ => return Err(format!("line {number}: expected two sites and milliseconds, such as a b 50")),
        };
        let Some(ms) = ms else {
            let found = words[2];
            return Err(format!(
                "line {number}: expected milliseconds, 0 to {ROUND_TRIP_MAX_MS}, found {found}"
            ));
        };
        if distances.iter().any(|distance| is_between(distance, one, other)) {
            return Err(format!("line {number}: there is a line for {one} and {other} already"));
        }
        distances.push((one.to_owned(), other.to_owned(), Duration::from_millis(ms)));
    }
    Ok(distances)
}

fn is_between(distance: &Distance, one: &str, other: &str) -> bool {
    let (from, to) = (distance.0.as_str(), distance.1.as_str());
    (from, to) == (one, other) || (from, to) == (other, one)
}

fn round_trip(distances: &[Distance], one: &str, other: &str) -> Duration {
    if let Some((_, _, round_trip)) = distances.iter().find(|distance| is_between(distance, one, other)) {
        return *round_trip;
    }
    let known =
        KNOWN.iter().find(|(from, to, _)| (*from, *to) == (one, other) || (*from, *to) == (other, one));
    known.map_or(UNKNOWN, |(_, _, ms)| Duration::from_millis(*ms))
}

/// The links of all sites to the hub.
pub(super) struct Links {
    /// In the order of the sites. The hub has none.
    sites: Vec<SiteLinks>,
}

/// The links of one site, one to each server of the hub.
#[derive(Default)]
struct SiteLinks {
    links: Vec<Link>,
    is_cut: bool,
}

impl Links {
    /// Opens them, before there is anybody to use them.
    pub(super) async fn open(plan: &DevPlan) -> Result<Links> {
        let mut sites = Vec::new();
        for site in &plan.sites {
            let mut opened = SiteLinks::default();
            for (port, server) in site.proxies.iter().zip(plan.servers_of(0)) {
                let (listen, to) = (format!("{ADDRESS}:{port}"), format!("{ADDRESS}:{}", server.site_port));
                let mut spec = Spec::new(&listen, &to);
                (spec.up.delay, spec.down.delay) = (site.round_trip / 2, site.round_trip / 2);
                let link = Link::open(&spec).await;
                let name = &site.name;
                opened.links.push(link.context(format!("cannot open a link of {name} on {listen}"))?);
            }
            sites.push(opened);
        }
        Ok(Links { sites })
    }

    /// As a cable that is torn: what is sent is held back, and nobody is told.
    pub(super) fn cut(&mut self, site: usize) {
        let site = &mut self.sites[site];
        site.is_cut = true;
        for link in &site.links {
            link.cut(Direction::Up);
            link.cut(Direction::Down);
        }
    }

    pub(super) fn heal(&mut self, site: usize) {
        let site = &mut self.sites[site];
        site.is_cut = false;
        site.links.iter().for_each(Link::heal);
    }

    pub(super) fn is_cut(&self, site: usize) -> bool {
        self.sites[site].is_cut
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::{Instant, timeout};

    use super::super::plan::ServerPlan;
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn round_trips_are_those_of_the_file_else_known_ones_else_the_same_for_all() {
        let text = "# there and back\n\nfrankfurt virginia 80 # less\ntokyo paris 200\n";
        let distances = parse_distances(text).unwrap();
        for (one, other, expected) in [
            ("virginia", "frankfurt", 80),
            ("california", "virginia", 62),
            ("frankfurt", "california", 148),
            ("paris", "tokyo", 200),
            ("virginia", "tokyo", 50),
        ] {
            assert_eq!(round_trip(&distances, one, other), ms(expected), "{one} {other}");
        }
        for (text, problem) in [
            ("a b", "line 1: expected two sites"),
            ("\na b 1 2", "line 2: expected two sites"),
            ("a b 1ms", "line 1: expected milliseconds"),
            ("a b 60001", "line 1: expected milliseconds"),
            ("a b 1\nb a 2", "line 2: there is a line for b and a already"),
        ] {
            assert!(parse_distances(text).unwrap_err().starts_with(problem), "{text}");
        }
    }

    #[test]
    fn sites_have_names_of_their_own() {
        assert!(site_name("eu-west-1").is_ok());
        for name in ["", "a=b", "A", "1"] {
            assert!(site_name(name).unwrap_err().starts_with("expected the name of a site"), "{name}");
        }
        let names = ["virginia", "tokyo", "california"].map(str::to_owned);
        let sites = make(&names, None).unwrap();
        let round_trips: Vec<Duration> = sites.iter().map(|site| site.round_trip).collect();
        assert_eq!(round_trips[1..], [ms(50), ms(62)]);
        assert!(make(&["a", "b", "a"].map(str::to_owned), None).is_err());
        assert!(make(&names, Some(Path::new("/nowhere/at/all"))).is_err());
    }

    /// A site's link to a hub of one server, and whoever has connected to that through it.
    async fn link(round_trip: Duration) -> (Links, TcpStream, TcpStream) {
        let hub = TcpListener::bind((ADDRESS, 0)).await.unwrap();
        let site_port = hub.local_addr().unwrap().port();
        let free = TcpListener::bind((ADDRESS, 0)).await.unwrap().local_addr().unwrap().port();
        let server =
            ServerPlan { id: 1, site: 0, folder: "".into(), port: 0, peer_port: 0, admin_port: 0, site_port };
        let mut sites = vec![SitePlan::new("a", ms(0)), SitePlan::new("b", round_trip)];
        sites[1].proxies = vec![free];
        let plan = DevPlan {
            folder: "".into(),
            servers: vec![server],
            sites,
            partitions: None,
            is_automatic: false,
        };
        let links = Links::open(&plan).await.unwrap();
        let leaf = TcpStream::connect((ADDRESS, free)).await.unwrap();
        let (hub, _) = hub.accept().await.unwrap();
        (links, leaf, hub)
    }

    #[tokio::test]
    async fn a_link_takes_its_time_and_what_is_cut_waits() {
        let (mut links, mut leaf, mut hub) = link(ms(40)).await;
        let began = Instant::now();
        let mut byte = [0];
        leaf.write_all(b"1").await.unwrap();
        hub.read_exact(&mut byte).await.unwrap();
        hub.write_all(b"2").await.unwrap();
        leaf.read_exact(&mut byte).await.unwrap();
        assert!(began.elapsed() >= ms(40), "{:?}", began.elapsed());
        assert!(!links.is_cut(1));
        links.cut(1);
        leaf.write_all(b"3").await.unwrap();
        hub.write_all(b"4").await.unwrap();
        assert!(links.is_cut(1));
        assert!(timeout(ms(200), hub.read_exact(&mut byte)).await.is_err());
        assert!(timeout(ms(50), leaf.read_exact(&mut byte)).await.is_err());
        links.heal(1);
        hub.read_exact(&mut byte).await.unwrap();
        leaf.read_exact(&mut byte).await.unwrap();
        assert_eq!((byte, links.is_cut(1)), (*b"4", false));
    }
}
