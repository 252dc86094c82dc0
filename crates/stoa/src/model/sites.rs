//! `stoa model sites`.

use std::fs;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use stoa_model::{Accesses, Layout, Records, Replay, SiteTotal, Span, read_record, replay};
use stoa_sites::{Kind, Rules, Settings, Site, Sites};

use super::output::{OutputArgs, ms};
use super::plot::{Lines, Series};
use super::{times, valid};
use crate::failure::{Context as _, Failure, Result};

#[derive(Debug, Args)]
pub(crate) struct SitesArgs {
    /// A site with its round trip to the hub, as in california=62ms; those are california and frankfurt (90ms) if none is
    #[arg(long, value_parser = round_trip, value_name = "SITE=TIME")]
    round_trip: Vec<(String, f64)>,
    /// The name of the hub
    #[arg(long, default_value = "virginia", value_name = "SITE")]
    hub: String,
    /// Which policies, of observers, consecutive-1 to consecutive-9, expected and default
    #[arg(
        long,
        default_value = "observers,consecutive-2,expected,default",
        value_delimiter = ',',
        value_parser = policy,
        value_name = "NAMES"
    )]
    policies: Vec<(String, Settings)>,
    /// What an operator says of tokens: a file of lines such as `pin /eu frankfurt`
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// How long a write takes where its token is held
    #[arg(long, default_value = "1ms", value_parser = times::milliseconds, value_name = "TIME")]
    local: f64,
    #[command(flatten)]
    output: OutputArgs,
}

/// What is written.
#[derive(Debug, Args)]
struct WorkloadArgs {
    /// What sites write
    #[arg(long, default_value = "records")]
    workload: Kinds,
    /// Replays what was recorded instead: time in milliseconds, site and path, one write a line
    #[arg(long, conflicts_with = "workload", value_name = "FILE")]
    record: Option<PathBuf>,
    /// records: how many each site uses
    #[arg(long, default_value_t = 1000, value_name = "N")]
    records: usize,
    /// records: how much more the first are used than the last, the exponent of a zipf distribution
    #[arg(long, default_value_t = 0.99, value_name = "E")]
    exponent: f64,
    /// records: the share of writes that are to records which all sites use
    #[arg(long, default_value_t = 0.5, value_name = "SHARE")]
    overlap: f64,
    /// records: where they lie; turns: whether they lie together or apart
    #[arg(long, default_value = "together")]
    layout: Layouts,
    /// records: clients of each site
    #[arg(long, default_value_t = 1, value_name = "N")]
    clients: usize,
    /// records: how long clients wait between two writes
    #[arg(long, default_value = "0ms", value_parser = times::milliseconds, value_name = "TIME")]
    think: f64,
    /// records: how long they write
    #[arg(long, default_value = "600s", value_parser = times::milliseconds, value_name = "TIME")]
    until: f64,
    /// How much of the beginning is not counted
    #[arg(long, default_value = "0s", value_parser = times::milliseconds, value_name = "TIME")]
    from: f64,
    /// drawn: the first site's share of the writes; runs: how often who wrote last writes again
    #[arg(long, default_value_t = 0.9, value_name = "SHARE")]
    share: f64,
    /// drawn, runs and turns: how many writes
    #[arg(long, default_value_t = 20_000, value_name = "N")]
    writes: usize,
    /// turns: whose they are; three of the first site and one of the second if nothing is said
    #[arg(long, value_delimiter = ',', value_name = "SITES")]
    turns: Vec<String>,
    /// turns: writes of a turn
    #[arg(long, default_value_t = 6, value_name = "N")]
    each: usize,
    /// turns: znodes that are written, one after the other
    #[arg(long, default_value_t = 1, value_name = "N")]
    objects: usize,
    /// What chance follows from
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kinds {
    /// Clients of all sites but the hub write records, some of them shared, without a pause
    Records,
    /// One znode; who writes is drawn anew each time
    Drawn,
    /// One znode; who wrote last writes again, or not
    Runs,
    /// Sites take turns, several writes each
    Turns,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Layouts {
    /// In one directory
    Together,
    /// In a directory for each site, and these in one
    Below,
    /// In a directory for each site
    Apart,
}

/// `california=62ms`.
fn round_trip(text: &str) -> std::result::Result<(String, f64), String> {
    let (name, time) = text.split_once('=').ok_or_else(|| format!("`{text}` is not like california=62ms"))?;
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(format!("`{name}` is no name of a site"));
    }
    let time_ms = times::milliseconds(time)?;
    if time_ms > 1e6 {
        return Err(format!("`{time}` is too long a way"));
    }
    Ok((name.to_owned(), time_ms))
}

fn policy(name: &str) -> std::result::Result<(String, Settings), String> {
    let of = |kind| Settings { kind, ..Settings::default() };
    let settings = match name.split_once('-') {
        Some(("consecutive", count)) => {
            let count = count.parse().ok().filter(|count| (1..=9).contains(count));
            count.map(|count| of(Kind::Consecutive(count)))
        }
        _ => match name {
            "observers" => Some(of(Kind::Hub)),
            "expected" => Some(Settings { is_fair: false, ..Settings::default() }),
            "default" => Some(Settings::default()),
            _ => None,
        },
    };
    let known = "observers, consecutive-1 to consecutive-9, expected and default";
    settings.map(|settings| (name.to_owned(), settings)).ok_or_else(|| format!("`{name}` is none of {known}"))
}

/// The sites with their names, the hub first.
struct Named {
    names: Vec<String>,
    sites: Sites,
}

impl Named {
    fn site(&self, name: &str) -> Option<Site> {
        self.names.iter().position(|known| known == name).map(|at| Site(at as u8))
    }

    fn leaves(&self) -> impl Iterator<Item = (Site, &str)> {
        (0..).map(Site).zip(self.names.iter().map(String::as_str)).skip(1)
    }
}

impl WorkloadArgs {
    fn accesses(&self, named: &Named) -> Result<Accesses> {
        if let Some(file) = &self.record {
            let text = fs::read_to_string(file).context(format!("cannot read {}", file.display()))?;
            return read_record(&text, |name| named.site(name)).context(file.display());
        }
        let leaves: Vec<Site> = named.leaves().map(|(site, _)| site).collect();
        let layout = match self.layout {
            Layouts::Together => Layout::Together,
            Layouts::Below => Layout::Below,
            Layouts::Apart => Layout::Apart,
        };
        valid(match self.workload {
            Kinds::Records => {
                let records = Records {
                    count: self.records,
                    exponent: self.exponent,
                    overlap: self.overlap,
                    layout,
                    clients: self.clients,
                    think_ms: self.think,
                };
                Accesses::records(&named.leaves().collect::<Vec<_>>(), &records, self.seed)
            }
            Kinds::Drawn => Accesses::drawn(&leaves, self.share, self.writes, self.seed),
            Kinds::Runs => Accesses::runs(&leaves, self.share, self.writes, self.seed),
            Kinds::Turns => {
                Accesses::turns(&self.whose(named, &leaves)?, self.each, self.objects, layout, self.writes)
            }
        })
    }

    /// Whose turns these are.
    fn whose(&self, named: &Named, leaves: &[Site]) -> Result<Vec<Site>> {
        if let ([], [first, .., last]) = (self.turns.as_slice(), leaves) {
            return Ok(vec![*first, *first, *first, *last]);
        }
        let site = |name: &String| {
            named.site(name).ok_or_else(|| Failure::usage(format!("--turns: there is no site `{name}`")))
        };
        self.turns.iter().map(site).collect()
    }
}

impl SitesArgs {
    pub(super) fn run(&self) -> Result<()> {
        let named = self.named()?;
        let rules = self.rules(&named)?;
        let found = self.replay_all(&named, &rules, &self.workload.accesses(&named)?)?;
        let header =
            ["policy, site", "writes", "ms/write", "local", "over observers", "moves", "visits", "regret"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        let mut values = serde_json::Map::new();
        for ((name, _), found) in self.policies.iter().zip(&found) {
            rows.extend(self.rows(&named, name, found));
            values.insert(name.clone(), self.value(&named, found));
        }
        let series = if self.output.wants_plot() { self.series(&named, &rules)? } else { Vec::new() };
        let plot = || self.plot(series);
        self.output.show(&rows, &Value::Object(values), || plot().svg())
    }

    fn named(&self) -> Result<Named> {
        let usual = || vec![("california".to_owned(), 62.0), ("frankfurt".to_owned(), 90.0)];
        let leaves = if self.round_trip.is_empty() { usual() } else { self.round_trip.clone() };
        let (mut names, mut times) = (vec![self.hub.clone()], vec![0]);
        for (name, time_ms) in leaves {
            if names.contains(&name) {
                return Err(Failure::usage(format!("there are two sites `{name}`")));
            }
            names.push(name);
            times.push((time_ms * 1e3) as u32);
        }
        Ok(Named { names, sites: Sites::new(Site(0), times).map_err(Failure::usage)? })
    }

    fn rules(&self, named: &Named) -> Result<Rules> {
        let Some(file) = &self.rules else { return Ok(Rules::default()) };
        let text = fs::read(file).context(format!("cannot read {}", file.display()))?;
        match Rules::parse(&text, |name| named.site(name)) {
            (rules, bad) if bad.is_empty() => Ok(rules),
            (_, bad) => Err(Failure::failed(format!("{}: {}", file.display(), bad.join("; ")))),
        }
    }

    fn span(&self) -> Span {
        Span { local_ms: self.local, until_ms: self.workload.until, from_ms: self.workload.from }
    }

    fn replay_all(&self, named: &Named, rules: &Rules, accesses: &Accesses) -> Result<Vec<Replay>> {
        let one = |(_, settings): &(String, Settings)| {
            valid(replay(accesses, *settings, rules.clone(), &named.sites, &self.span()))
        };
        self.policies.iter().map(one).collect()
    }

    /// The sites that have written, by name.
    fn writers<'a>(named: &'a Named, found: &'a Replay) -> impl Iterator<Item = (&'a str, &'a SiteTotal)> {
        let all = named.names.iter().map(String::as_str).zip(&found.sites);
        all.filter(|(_, total)| total.writes > 0)
    }

    fn rows(&self, named: &Named, policy: &str, found: &Replay) -> Vec<Vec<String>> {
        let span = self.span();
        let row = |name: &str, total: &SiteTotal, over: String| {
            let local = format!("{:.1}%", total.local as f64 * 100.0 / total.writes.max(1) as f64);
            let writes = total.writes.to_string();
            vec![name.to_owned(), writes, ms(total.mean_ms(&span)), local, over]
        };
        let worst = found.worst(&span);
        let worst = worst.map(|(site, over)| format!("{over:.2}x at {}", named.names[usize::from(site.0)]));
        let mut all = row(policy, &found.all(), worst.unwrap_or_default());
        let regret =
            if found.regret().is_finite() { format!("{:.2}", found.regret()) } else { "-".to_owned() };
        all.extend([found.moves.to_string(), found.visits.to_string(), regret]);
        let site = |(name, total): (&str, &SiteTotal)| {
            row(&format!("- {name}"), total, format!("{:.2}x", total.over_observers(&span)))
        };
        std::iter::once(all).chain(Self::writers(named, found).map(site)).collect()
    }

    fn value(&self, named: &Named, found: &Replay) -> Value {
        let span = self.span();
        let total = |total: &SiteTotal| {
            json!({
                "writes": total.writes,
                "local": total.local,
                "mean": total.mean_ms(&span),
                "observers": total.observers_ms(&span),
                "over_observers": total.over_observers(&span),
            })
        };
        let sites: serde_json::Map<_, _> =
            Self::writers(named, found).map(|(name, site)| (name.to_owned(), total(site))).collect();
        json!({
            "all": total(&found.all()),
            "sites": sites,
            "worst_over_observers": found.worst(&span).map(|(_, over)| over),
            "moves": found.moves,
            "visits": found.visits,
            "regret": found.regret(),
        })
    }

    /// For records how the worst site stands by overlap, for all else the mean latency by what makes the workload.
    fn series(&self, named: &Named, rules: &Rules) -> Result<Vec<Series>> {
        if self.workload.record.is_some() {
            return Err(Failure::usage("what was recorded is one workload: it has no plot"));
        }
        let mut series: Vec<Series> =
            self.policies.iter().map(|(name, _)| (name.clone(), Vec::new())).collect();
        for step in 0..=10_u32 {
            let share = f64::from(step) / 10.0;
            let (mut x, mut workload) = (share, self.workload.copy());
            match workload.workload {
                Kinds::Records => workload.overlap = share,
                Kinds::Drawn | Kinds::Runs => workload.share = share,
                Kinds::Turns => {
                    workload.each = step as usize * 2 + 1;
                    x = workload.each as f64;
                }
            }
            let found = self.replay_all(named, rules, &workload.accesses(named)?)?;
            for ((_, points), found) in series.iter_mut().zip(&found) {
                let worst = found.worst(&self.span()).map_or(1.0, |(_, over)| over);
                let is_worst = workload.workload == Kinds::Records;
                points.push((x, if is_worst { worst } else { found.all().mean_ms(&self.span()) }));
            }
        }
        Ok(series)
    }

    fn plot(&self, series: Vec<Series>) -> Lines {
        let (x_title, y_title) = match self.workload.workload {
            Kinds::Records => {
                ("share of writes to shared records", "times as fast as observers, the worst site")
            }
            Kinds::Drawn => ("the first site's share of the writes", "mean ms a write"),
            Kinds::Runs => ("how often who wrote last writes again", "mean ms a write"),
            Kinds::Turns => ("writes of a turn", "mean ms a write"),
        };
        let title = "Writes of several sites".to_owned();
        Lines { title, x_title: x_title.to_owned(), y_title: y_title.to_owned(), series }
    }
}

impl WorkloadArgs {
    /// The same, to be changed.
    fn copy(&self) -> Self {
        Self { record: None, turns: self.turns.clone(), ..*self }
    }
}
