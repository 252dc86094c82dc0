//! Sites to try out: which there are, and how far they are from each other.

use std::path::Path;
use std::time::Duration;

use stoa_server::config::{SETTINGS, Settings};

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
    /// How long it takes to each of the sites and back, in their order; nothing to itself.
    pub(super) round_trips: Vec<Duration>,
    /// For each of the sites the ports of the proxies through which this one reaches its servers, in their order; none
    /// for itself.
    pub(super) proxies: Vec<Vec<u16>>,
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
    let site = |name: &String| {
        let to =
            |other: &String| if other == name { Duration::ZERO } else { round_trip(&distances, name, other) };
        let (round_trips, proxies) = (names.iter().map(to).collect(), vec![Vec::new(); names.len()]);
        SitePlan { name: name.clone(), round_trips, proxies }
    };
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

#[cfg(test)]
mod tests {
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
        let round_trips: Vec<&[Duration]> = sites.iter().map(|site| &site.round_trips[..]).collect();
        let expected = [[0, 50, 62], [50, 0, 50], [62, 50, 0]].map(|row| row.map(ms));
        assert_eq!(round_trips, expected, "each pair has its own, the same both ways");
        assert!(make(&["a", "b", "a"].map(str::to_owned), None).is_err());
        assert!(make(&names, Some(Path::new("/nowhere/at/all"))).is_err());
    }
}
