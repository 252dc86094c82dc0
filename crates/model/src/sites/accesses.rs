//! What sites write, and in which order.

use stoa_sites::Site;

use super::chance::Chance;
use super::zipf::Zipf;
use crate::{Invalid, is_time};

/// Most writes that are made or read.
pub(crate) const WRITES_MAX: usize = 10_000_000;

/// Where records of several sites lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// All in one directory.
    Together,
    /// Those of each site in a directory of its own, and these in one.
    Below,
    /// Those of each site in a directory right below the root.
    Apart,
}

/// Records that clients write without end, each client one after the other.
#[derive(Debug, Clone)]
pub struct Records {
    /// How many each site uses.
    pub count: usize,
    /// How much more often the first are used than the last: the exponent of a zipf distribution, 0 for all alike.
    pub exponent: f64,
    /// Which share of each site's writes are of records that all sites use.
    pub overlap: f64,
    /// Where they lie.
    pub layout: Layout,
    /// Clients of each site that writes.
    pub clients: usize,
    /// How long a client waits between two writes, in milliseconds.
    pub think_ms: f64,
}

/// One client.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) site: Site,
    pub(crate) chance: Chance,
    /// Which object each number of the distribution is.
    objects: usize,
}

/// Clients that write again when they have been answered.
#[derive(Debug, Clone)]
pub(crate) struct Closed {
    pub(crate) clients: Vec<Client>,
    /// The objects of each site, by how often they are used.
    objects: Vec<Vec<usize>>,
    zipf: Zipf,
    pub(crate) think_us: u64,
}

impl Closed {
    /// What a client writes next.
    pub(crate) fn pick(&mut self, client: usize) -> usize {
        let client = &mut self.clients[client];
        self.objects[client.objects][self.zipf.pick(&mut client.chance)]
    }
}

/// In which order things are written.
#[derive(Debug, Clone)]
pub(crate) enum Order {
    /// One after the other, whoever writes.
    Sequence(Vec<(Site, usize)>),
    /// At given times in microseconds.
    Timed(Vec<(u64, Site, usize)>),
    Closed(Closed),
}

/// What sites write.
#[derive(Debug, Clone)]
pub struct Accesses {
    /// Paths in their order.
    pub(crate) paths: Vec<String>,
    pub(crate) order: Order,
}

impl Accesses {
    fn sequence(sites: impl Iterator<Item = Site>) -> Self {
        Self {
            paths: vec!["/object".to_owned()],
            order: Order::Sequence(sites.map(|site| (site, 0)).collect()),
        }
    }

    /// One object whose writers are drawn one by one: the first of these sites with this share, the others alike.
    ///
    /// # Errors
    /// When there are fewer than two sites, or what is said to be a share is none, or there are too many writes.
    pub fn drawn(sites: &[Site], share: f64, writes: usize, seed: u64) -> Result<Self, Invalid> {
        check(sites, share, writes)?;
        let mut chance = Chance::new(seed, 0);
        let mut pick = || match chance.share() {
            at if at < share => sites[0],
            _ => sites[1 + (chance.share() * (sites.len() - 1) as f64) as usize],
        };
        Ok(Self::sequence((0..writes).map(|_| pick())))
    }

    /// One object that who wrote last writes again with this probability, and else another site; nearly 0 is an
    /// alternation.
    ///
    /// # Errors
    /// As with [`Accesses::drawn`].
    pub fn runs(sites: &[Site], same: f64, writes: usize, seed: u64) -> Result<Self, Invalid> {
        check(sites, same, writes)?;
        let (mut chance, mut last) = (Chance::new(seed, 0), 0);
        let mut pick = || {
            if chance.share() >= same {
                let other = 1 + (chance.share() * (sites.len() - 1) as f64) as usize;
                last = (last + other) % sites.len();
            }
            sites[last]
        };
        Ok(Self::sequence((0..writes).map(|_| pick())))
    }

    /// Writers that take turns: who is on turn writes so many times to these objects, one after the other, as three
    /// writers of one site and one of another do with BookKeeper's lock, metadata and log. The objects lie in one
    /// directory, or apart in a directory each.
    ///
    /// # Errors
    /// When there is no turn, no write or no object, or there are too many writes.
    pub fn turns(
        turns: &[Site],
        each: usize,
        objects: usize,
        layout: Layout,
        writes: usize,
    ) -> Result<Self, Invalid> {
        Invalid::unless(!turns.is_empty() && each > 0, "there is a turn, and a write in it")?;
        Invalid::unless((1..=1000).contains(&objects), "there are 1 to 1000 objects")?;
        Invalid::unless(writes <= WRITES_MAX, "there are at most ten million writes")?;
        let path = |object: usize| match layout {
            Layout::Together | Layout::Below => format!("/turns/{object:04}"),
            Layout::Apart => format!("/turns-{object:04}/object"),
        };
        let paths = (0..objects).map(path).collect();
        let writer = |write: usize| (turns[write / each % turns.len()], write % each % objects);
        Ok(Self { paths, order: Order::Sequence((0..writes).map(writer).collect()) })
    }

    /// Clients of several sites that write records, without end.
    ///
    /// Records are shared so that of the accesses to the first ones, however many, as near as can be this share is
    /// to those that all use.
    ///
    /// # Errors
    /// When something is out of bounds.
    pub fn records(sites: &[(Site, &str)], records: &Records, seed: u64) -> Result<Self, Invalid> {
        Invalid::unless(!sites.is_empty(), "there is a site that writes")?;
        Invalid::unless((0.0..=1.0).contains(&records.overlap), "an overlap is from 0 to 1")?;
        Invalid::unless((1..=1000).contains(&records.clients), "a site has 1 to 1000 clients")?;
        Invalid::unless(is_time(records.think_ms), "what clients wait is a time")?;
        let zipf = Zipf::new(records.count, records.exponent)?;
        let (mut all, mut shared) = (0.0, 0.0);
        let mut is_shared = Vec::new();
        for number in 0..records.count {
            let share = zipf.share(number);
            all += share;
            // Whether that leaves it nearer to what is asked for.
            is_shared.push(shared + share / 2.0 < records.overlap * all);
            shared += if is_shared[number] { share } else { 0.0 };
        }
        let path = |name: &str, number: usize| match records.layout {
            Layout::Together => format!("/records/{name}-{number:07}"),
            Layout::Below => format!("/records/{name}/{number:07}"),
            Layout::Apart => format!("/{name}/{number:07}"),
        };
        let named = |name: &str, number: usize| path(if is_shared[number] { "all" } else { name }, number);
        let of_site =
            |(_, name): &(Site, &str)| (0..records.count).map(|number| named(name, number)).collect();
        let used: Vec<Vec<String>> = sites.iter().map(of_site).collect();
        let (paths, objects) = sorted(&used);
        let mut clients = Vec::new();
        for (at, (site, _)) in sites.iter().enumerate() {
            for _ in 0..records.clients {
                clients.push(Client { site: *site, chance: Chance::new(seed, clients.len()), objects: at });
            }
        }
        let think_us = (records.think_ms * 1e3) as u64;
        Ok(Self { paths, order: Order::Closed(Closed { clients, objects, zipf, think_us }) })
    }

    /// How many sites must be there.
    pub(crate) fn sites(&self) -> usize {
        let sites: Vec<Site> = match &self.order {
            Order::Sequence(all) => all.iter().map(|(site, _)| *site).collect(),
            Order::Timed(all) => all.iter().map(|(_, site, _)| *site).collect(),
            Order::Closed(closed) => closed.clients.iter().map(|client| client.site).collect(),
        };
        sites.iter().map(|site| usize::from(site.0) + 1).max().unwrap_or_default()
    }
}

/// All paths in their order, each once, and where those that were given are among them.
pub(crate) fn sorted(used: &[Vec<String>]) -> (Vec<String>, Vec<Vec<usize>>) {
    let mut paths: Vec<String> = used.iter().flatten().cloned().collect();
    paths.sort_unstable();
    paths.dedup();
    let place = |path: &String| paths.binary_search(path).expect("every path is among all of them");
    let places = used.iter().map(|some| some.iter().map(place).collect()).collect();
    (paths, places)
}

fn check(sites: &[Site], share: f64, writes: usize) -> Result<(), Invalid> {
    Invalid::unless(sites.len() > 1, "there are two sites that write, or more")?;
    Invalid::unless((0.0..=1.0).contains(&share), "a share is from 0 to 1")?;
    Invalid::unless(writes <= WRITES_MAX, "there are at most ten million writes")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: [Site; 2] = [Site(1), Site(2)];

    fn sites_of(accesses: &Accesses) -> Vec<u8> {
        let Order::Sequence(all) = &accesses.order else { panic!("{accesses:?}") };
        all.iter().map(|(site, _)| site.0).collect()
    }

    #[test]
    fn writers_come_as_they_are_asked_to() {
        let drawn = sites_of(&Accesses::drawn(&TWO, 0.75, 100_000, 1).unwrap());
        let first = drawn.iter().filter(|site| **site == 1).count();
        assert!((74_500..75_500).contains(&first), "{first}");
        let runs = sites_of(&Accesses::runs(&TWO, 0.9, 100_000, 1).unwrap());
        let changes = runs.windows(2).filter(|two| two[0] != two[1]).count();
        assert!((9_700..10_300).contains(&changes), "{changes}");
        let turns = Accesses::turns(&[Site(1), Site(2)], 3, 2, Layout::Apart, 9).unwrap();
        assert_eq!(sites_of(&turns), [1, 1, 1, 2, 2, 2, 1, 1, 1]);
        assert_eq!((turns.paths.len(), turns.sites()), (2, 3));
        assert_ne!(sites_of(&Accesses::runs(&TWO, 0.9, 100, 2).unwrap()), runs[..100]);
        assert!(Accesses::drawn(&TWO[..1], 0.5, 1, 1).is_err() && Accesses::runs(&TWO, 1.5, 1, 1).is_err());
    }

    #[test]
    fn overlaps_are_shares_of_accesses() {
        for (exponent, overlap) in
            [(0.0, 0.1), (0.99, 0.1), (0.99, 0.5), (1.2, 0.8), (0.99, 1.0), (0.99, 0.0)]
        {
            let records = Records {
                count: 1000,
                exponent,
                overlap,
                layout: Layout::Together,
                clients: 1,
                think_ms: 0.0,
            };
            let accesses = Accesses::records(&[(Site(1), "c"), (Site(2), "f")], &records, 1).unwrap();
            let Order::Closed(closed) = &accesses.order else { panic!("{accesses:?}") };
            let shared: f64 = (0..1000)
                .filter(|number| closed.objects[0][*number] == closed.objects[1][*number])
                .map(|number| closed.zipf.share(number))
                .sum();
            assert!((shared - overlap).abs() < 0.005, "{exponent} {overlap}: {shared}");
        }
    }
}
