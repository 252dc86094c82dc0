//! Which records each site works on, and how much it asks for each of them.

use std::fmt;
use std::str::FromStr;

use clap::Args;
use serde_json::{Value, json};

use super::super::lock::absolute;
use super::super::random::Random;
use super::super::requests::{ROOT, ZNODES_MAX};
use super::super::tops::Tops;
use crate::failure::{Failure, Result};

/// The order of the records is drawn from this, so it is the same in every run.
const ORDER_SEED: u64 = 17;

/// Options that say what the sites work on.
#[derive(Debug, Args)]
pub(super) struct RecordsArgs {
    /// Records in all
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=ZNODES_MAX))]
    pub(super) records: u64,
    /// How much of what a site works on all sites share, in percent: of its accesses as of its records
    #[arg(long, default_value = "0", value_name = "PERCENT", value_parser = percent)]
    overlap: f64,
    /// Exponent of Zipf's law: the record in place k is asked for as often as 1 / k^EXPONENT; 0: all alike
    #[arg(long, default_value_t = 0.99, value_name = "EXPONENT", value_parser = exponent)]
    zipf: f64,
    /// Instead of Zipf's law: that many percent of the accesses go to that many percent of a site's
    /// records, to its own ones first; within both parts all are asked for alike
    #[arg(long, value_name = "ACCESSES/RECORDS", conflicts_with = "zipf")]
    hotspot: Option<Hotspot>,
    /// What is shared and what each site has for itself lie below tops of their own; without it the records of
    /// all sites lie side by side
    #[arg(long)]
    apart: bool,
    /// The znode below which they lie. A policy that learns knows what has happened to those of earlier runs
    #[arg(long, default_value = ROOT, value_name = "PATH", value_parser = absolute)]
    path: String,
    /// Bytes of data of each record
    #[arg(long, default_value_t = 100, value_name = "BYTES")]
    pub(super) payload: usize,
}

/// A share from the command line, where it stands in percent.
pub(super) fn percent(text: &str) -> std::result::Result<f64, String> {
    let percent: Option<f64> = text.parse().ok();
    percent
        .filter(|percent| (0.0..=100.0).contains(percent))
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("{text:?} is not a number of percent from 0 to 100"))
}

fn exponent(text: &str) -> std::result::Result<f64, String> {
    let exponent: Option<f64> = text.parse().ok();
    exponent
        .filter(|exponent| (0.0..=10.0).contains(exponent))
        .ok_or_else(|| format!("{text:?} is not an exponent from 0 to 10"))
}

/// A small part of the records that many of the accesses go to. Both are shares of 1.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Hotspot {
    accesses: f64,
    records: f64,
}

impl FromStr for Hotspot {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (accesses, records) = text.split_once('/').ok_or("expected two numbers, as in 80/20")?;
        let (accesses, records) = (percent(accesses)?, percent(records)?);
        if records == 0.0 || records == 1.0 {
            return Err(
                "a hotspot is a part of the records: more than 0 and less than 100 percent".to_owned()
            );
        }
        Ok(Self { accesses, records })
    }
}

impl fmt::Display for Hotspot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.accesses * 100.0, self.records * 100.0)
    }
}

/// Where a record is: the number of its top, and its own number below that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) top: usize,
    pub(super) number: u64,
}

/// The records of a run. Each site works on as many of them as each other one.
#[derive(Debug)]
pub(super) struct Records {
    tops: Tops,
    /// The numbers of all records, shuffled: what is much asked for does not lie side by side.
    order: Vec<u64>,
    /// How many each site has for itself, and how many are all sites'.
    own: usize,
    shared: usize,
    is_apart: bool,
    law: Law,
}

/// How accesses are spread over the records of a site.
#[derive(Debug, Clone, Copy)]
enum Law {
    /// So many accesses go to what is shared. Among it, and among a site's own records, Zipf's law holds.
    Zipf {
        exponent: f64,
        overlap: f64,
    },
    Hotspot(Hotspot),
}

impl Records {
    pub(super) fn new(args: &RecordsArgs, sites: usize) -> Result<Self> {
        let (all, overlap) = (args.records as f64, args.overlap);
        let each = all / (overlap + sites as f64 * (1.0 - overlap));
        // A little more, for what should be a whole number may come out just below it.
        let [own, shared] = [1.0 - overlap, overlap].map(|share| (each * share + 1e-6) as usize);
        if (own == 0 && overlap < 1.0) || (shared == 0 && overlap > 0.0) {
            return Err(Failure::usage("there are too few --records for so many sites with this --overlap"));
        }
        let mut order: Vec<u64> = (0..args.records).collect();
        let mut random = Random::new(ORDER_SEED);
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at as u64 + 1) as usize);
        }
        let law = match args.hotspot {
            Some(hotspot) => Law::Hotspot(hotspot),
            None => Law::Zipf { exponent: args.zipf, overlap },
        };
        let mut tops = Tops::new(if args.apart { 1 + sites } else { 1 }, 1, 0);
        for top in &mut tops.paths {
            *top = top.replacen(ROOT, &args.path, 1);
        }
        Ok(Self { tops, order, own, shared, is_apart: args.apart, law })
    }

    /// The paths below which they lie.
    pub(super) fn tops(&self) -> &[String] {
        &self.tops.paths
    }

    /// What a site works on.
    pub(super) fn of(&self, site: usize) -> Territory {
        let place = |top: usize| {
            move |number: &u64| Place { top: if self.is_apart { top } else { 0 }, number: *number }
        };
        let first = self.shared + site * self.own;
        let own = self.order[first..first + self.own].iter().map(place(1 + site));
        let places: Vec<Place> = own.chain(self.order[..self.shared].iter().map(place(0))).collect();
        let popularity = match self.law {
            Law::Zipf { exponent, overlap } => Popularity::Ranked {
                own: Zipf::new(self.own, exponent),
                shared: Zipf::new(self.shared, exponent),
                overlap,
            },
            Law::Hotspot(Hotspot { accesses, records }) => {
                let hot = (places.len() as f64 * records).round() as u64;
                Popularity::Hot { hot: hot.clamp(1, places.len() as u64), accesses }
            }
        };
        Territory { places, own: self.own, popularity }
    }

    /// As they stand in a report.
    pub(super) fn settings(&self) -> Value {
        let mut settings = json!({
            "all": self.order.len(),
            "own": self.own,
            "shared": self.shared,
            "apart": self.is_apart,
        });
        match self.law {
            Law::Zipf { exponent, .. } => settings["zipf_exponent"] = json!(exponent),
            Law::Hotspot(hotspot) => settings["hotspot"] = json!(hotspot.to_string()),
        }
        settings
    }
}

/// The records that one site works on.
#[derive(Debug)]
pub(super) struct Territory {
    /// Its own ones, then the shared ones; in both, first those most asked for.
    places: Vec<Place>,
    own: usize,
    popularity: Popularity,
}

#[derive(Debug)]
enum Popularity {
    Ranked {
        own: Zipf,
        shared: Zipf,
        overlap: f64,
    },
    /// Of the first ones, a hot part, and of all others.
    Hot {
        hot: u64,
        accesses: f64,
    },
}

impl Territory {
    /// A record, drawn at random.
    pub(super) fn draw(&self, random: &mut Random) -> Place {
        let at = match &self.popularity {
            Popularity::Ranked { own, shared, overlap } => match random.share() < *overlap {
                true => self.own + shared.draw(random),
                false => own.draw(random),
            },
            Popularity::Hot { hot, accesses } => {
                let cold = self.places.len() as u64 - hot;
                let is_hot = cold == 0 || random.share() < *accesses;
                (if is_hot { random.below(*hot) } else { hot + random.below(cold) }) as usize
            }
        };
        self.places[at]
    }
}

/// Zipf's law over a few things, without an approximation.
#[derive(Debug)]
struct Zipf {
    /// The weights of all up to and including each.
    sums: Vec<f64>,
}

impl Zipf {
    /// The one in place k, from 1 on, has the weight 1 / k^exponent.
    fn new(count: usize, exponent: f64) -> Self {
        let weights = (1..=count).map(|place| (place as f64).powf(-exponent));
        let sums = weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Self { sums: sums.collect() }
    }

    /// A place, from 0 on, by the inverse of the sums.
    fn draw(&self, random: &mut Random) -> usize {
        let all = self.sums.last().copied().unwrap_or_default();
        let ticket = random.share() * all;
        self.sums.partition_point(|sum| *sum <= ticket).min(self.sums.len().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    const DRAWS: u32 = 200_000;

    fn args() -> RecordsArgs {
        RecordsArgs {
            records: 1000,
            overlap: 0.0,
            zipf: 0.99,
            hotspot: None,
            apart: false,
            path: ROOT.into(),
            payload: 100,
        }
    }

    fn draws(territory: &Territory) -> BTreeMap<Place, u32> {
        let mut random = Random::new(5);
        let mut drawn = BTreeMap::new();
        (0..DRAWS).for_each(|_| *drawn.entry(territory.draw(&mut random)).or_default() += 1);
        drawn
    }

    /// Which part of its accesses a site makes to these places.
    fn share_of(territory: &Territory, places: &[Place]) -> f64 {
        let drawn = draws(territory);
        let hits: u32 = places.iter().filter_map(|place| drawn.get(place)).sum();
        f64::from(hits) / f64::from(DRAWS)
    }

    #[test]
    fn zipf_draws_each_place_as_often_as_its_weight_says() {
        for exponent in [0.0, 0.99, 1.2] {
            let (zipf, mut random) = (Zipf::new(50, exponent), Random::new(3));
            let mut drawn = [0_u32; 50];
            (0..DRAWS).for_each(|_| drawn[zipf.draw(&mut random)] += 1);
            let all: f64 = (1..=50).map(|place| f64::from(place).powf(-exponent)).sum();
            for (place, count) in (1..).zip(drawn) {
                let expected = f64::from(DRAWS) * f64::from(place).powf(-exponent) / all;
                let off = (f64::from(count) - expected).abs();
                // Four and a half standard deviations.
                assert!(off < 4.5 * expected.sqrt(), "{exponent}: {place}: {count} of {expected}");
            }
        }
    }

    #[test]
    fn records_much_asked_for_are_scattered_the_same_way_each_time() {
        let records = Records::new(&args(), 1).unwrap();
        let territory = records.of(0);
        assert_eq!(territory.places, Records::new(&args(), 1).unwrap().of(0).places);
        let first: Vec<u64> = territory.places[..10].iter().map(|place| place.number).collect();
        assert!(first.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1), "{first:?}");
        let different: BTreeSet<_> = territory.places.iter().collect();
        assert_eq!(different.len(), 1000);
        // The one asked for most has its share: 1 of the sum of 1 / k^0.99 to 1000.
        assert!((share_of(&territory, &territory.places[..1]) - 0.1297).abs() < 0.005);
    }

    #[test]
    fn as_much_is_shared_as_is_wanted() {
        for (overlap, own, shared) in [(0.0, 500, 0), (0.1, 473, 52), (0.5, 333, 333), (1.0, 0, 1000)] {
            let records = Records::new(&RecordsArgs { overlap, ..args() }, 2).unwrap();
            assert_eq!((records.own, records.shared), (own, shared), "{overlap}");
            let [one, other] = [0, 1].map(|site| records.of(site));
            assert_eq!(one.places[own..], other.places[own..]);
            let mine: BTreeSet<_> = one.places[..own].iter().collect();
            assert!(other.places.iter().all(|place| !mine.contains(place)));
            for site in [one, other] {
                let accesses = share_of(&site, &site.places[own..]);
                assert!((accesses - overlap).abs() < 0.005, "{accesses} of {overlap}");
            }
        }
    }

    #[test]
    fn what_is_apart_lies_below_tops_of_its_own() {
        let records = Records::new(&RecordsArgs { overlap: 0.5, apart: true, ..args() }, 2).unwrap();
        assert_eq!(records.tops(), ["/bench-1", "/bench-2", "/bench-3"]);
        let elsewhere = Records::new(&RecordsArgs { path: "/a/b".into(), ..args() }, 2).unwrap();
        assert_eq!(elsewhere.tops(), ["/a/b"]);
        for site in [0, 1] {
            let territory = records.of(site);
            let (own, shared) = territory.places.split_at(territory.own);
            assert!(own.iter().all(|place| place.top == 1 + site));
            assert!(shared.iter().all(|place| place.top == 0));
        }
    }

    #[test]
    fn a_hotspot_is_in_a_sites_own_records_as_long_as_they_last() {
        let hotspot = Some("80/20".parse().unwrap());
        let records = Records::new(&RecordsArgs { overlap: 0.8, hotspot, ..args() }, 2).unwrap();
        // A fifth of what it works on is its own, and hot.
        let site = records.of(1);
        assert_eq!((site.own, site.places.len()), (166, 832));
        let accesses = share_of(&site, &site.places[..site.own]);
        assert!((accesses - 0.8).abs() < 0.005, "{accesses}");
        assert_eq!(draws(&site).len(), site.places.len());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (overlap, records) in [(0.5, 1), (0.01, 50), (0.99, 2)] {
            assert!(Records::new(&RecordsArgs { overlap, records, ..args() }, 2).is_err(), "{overlap}");
        }
        for wrong in ["80", "80/", "80/0", "80/100", "101/20", "x/20"] {
            assert!(wrong.parse::<Hotspot>().is_err(), "{wrong}");
        }
        assert_eq!((percent("25"), exponent("0.99")), (Ok(0.25), Ok(0.99)));
        for wrong in ["", "-1", "100.1", "NaN"] {
            assert!(percent(wrong).is_err() && exponent(wrong).is_err(), "{wrong}");
        }
    }
}
