//! `stoa-sim`: runs seeds, and replays one.

use clap::{Args, Parser, Subcommand};
use std::cell::RefCell;
use std::fmt::Display;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::ops::Add;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;
use stoa_sim::costed::{self, Failing};
use stoa_sim::ensemble::{self, Costs, Failure, Outcome};
use stoa_sim::partitions;
use stoa_sim::recipes;
use stoa_sim::sites;
use stoa_sim::standalone::{self, Profile};

/// Exit code when the server panicked.
const CRASH: u8 = 127;
/// Exit code when something did not happen that must.
const LIVENESS: u8 = 128;
/// Exit code when something happened that must not.
const CORRECTNESS: u8 = 129;

/// One run in so many is repeated, and must come to the same.
const REPEAT_ONE_IN: u64 = 16;

/// Seeds that once failed: run before all others.
const OLD_SEEDS: &str = include_str!("../seeds.txt");

/// The server under a simulated clock, disk and clients.
#[derive(Parser)]
#[command(name = "stoa-sim", version)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run many seeds, first those that once failed.
    Run(Standalone),
    /// Run one seed, and print what happens.
    Replay(Replay),
    /// List the profiles.
    Profiles,
    /// Run many seeds of an ensemble whose servers have several partitions.
    Partitions(Partitions),
    /// Run many seeds of the client library's recipes, with an ensemble underneath.
    Recipes(Recipes),
    /// Run many seeds of an ensemble: several servers, and a network between them.
    Ensemble(Ensembles),
    /// Run many seeds of several sites, each an ensemble.
    Sites(Sites),
    /// Say how long things take in an ensemble where messages cost something, with trees and without.
    Costs(Costed),
}

/// Which seeds.
#[derive(Args)]
struct Seeds {
    /// How many seeds.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first one.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Go on after a failure.
    #[arg(long)]
    keep_going: bool,
    /// How many at a time; otherwise as many as there are processors. With 1, the traces of several come one after the
    /// other.
    #[arg(long)]
    jobs: Option<NonZeroUsize>,
}

#[derive(Args)]
struct Standalone {
    #[command(flatten)]
    seeds: Seeds,
    /// Only this profile; otherwise the seeds take turns through all of them.
    #[arg(long)]
    profile: Option<String>,
    /// Requests of a run, instead of what the profile says.
    #[arg(long)]
    steps: Option<u64>,
}

#[derive(Args)]
struct Replay {
    /// The seed.
    seed: u64,
    /// The profile.
    #[arg(long, default_value = "default")]
    profile: String,
    /// Requests of the run, instead of what the profile says.
    #[arg(long)]
    steps: Option<u64>,
    /// Only the end.
    #[arg(long)]
    quiet: bool,
}

/// Which lives, of those that there are many kinds of.
#[derive(Args)]
struct Lives {
    #[command(flatten)]
    seeds: Seeds,
    /// Only this kind of life; otherwise the seeds take turns through all of them, recipes through some. For recipes one
    /// that begins with `divided-` is of servers with several partitions.
    #[arg(long)]
    kind: Option<String>,
    /// Print what happens.
    #[arg(long)]
    trace: bool,
}

#[derive(Args)]
struct Partitions {
    #[command(flatten)]
    lives: Lives,
    /// As many partitions; otherwise the seeds take turns from 2 to 8.
    #[arg(long)]
    partitions: Option<u8>,
    /// Clients use programs of the service; otherwise the seeds say so, unless there is a kind.
    #[arg(long)]
    programs: bool,
    /// Clients ask for more before they are answered.
    #[arg(long)]
    impatient: bool,
    /// So many readers, below members and below each other.
    #[arg(long, default_value_t = 0)]
    readers: usize,
}

#[derive(Args)]
struct Recipes {
    #[command(flatten)]
    lives: Lives,
    /// Only this recipe; otherwise the seeds take turns through all of them.
    #[arg(long)]
    play: Option<String>,
}

#[derive(Args)]
struct Ensembles {
    #[command(flatten)]
    lives: Lives,
    /// As many servers; otherwise the seeds decide, and mostly for three.
    #[arg(long)]
    servers: Option<usize>,
    /// Appends go down trees.
    #[arg(long)]
    forest: bool,
    /// The same, and every other start of a server is one of a release that knows nothing of that.
    #[arg(long)]
    upgrades: bool,
    /// So many readers, below members and below each other.
    #[arg(long, default_value_t = 0)]
    readers: usize,
    /// So many servers more, and each is a reader while the list of servers does not have it.
    #[arg(long, default_value_t = 0, conflicts_with = "readers")]
    roles: usize,
}

#[derive(Args)]
struct Costed {
    /// As many servers, several numbers with commas between them.
    #[arg(long, value_delimiter = ',', default_value = "3,15,50")]
    servers: Vec<usize>,
    /// As many seeds of each failure.
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// Mbit/s that a server sends, and receives; 0 for no bound.
    #[arg(long, default_value_t = 1000)]
    mbit: u64,
    /// As many readers, up to 10000; several numbers with commas between them.
    #[arg(long, value_delimiter = ',', default_value = "0")]
    readers: Vec<usize>,
    /// As many of them are right below each server that does not lead; the others are below those.
    #[arg(long, default_value_t = 5)]
    fan_out: usize,
    /// Only what is said when idle, writes, or failures; otherwise all of it.
    #[arg(long)]
    only: Option<String>,
}

#[derive(Args)]
struct Sites {
    #[command(flatten)]
    lives: Lives,
    /// As many sites, from 2 to 5; otherwise the seeds decide.
    #[arg(long, value_parser = clap::value_parser!(u8).range(2..=5))]
    sites: Option<u8>,
    /// As many servers of each, 1 or 3; otherwise the seeds decide.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=5))]
    servers: Option<u8>,
    /// Over how many partitions each site is divided, from 1 to 4, as in 2,3,1; otherwise the seeds decide, if the kind
    /// begins with `divided`, which alone is most other kinds in turn.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=4))]
    partitions: Vec<u8>,
    /// As many readers of each, below its servers and below each other; otherwise the seeds decide.
    #[arg(long)]
    readers: Option<usize>,
}

thread_local! {
    /// The command that repeats the run at hand, for the message of a panic.
    static AT_HAND: RefCell<String> = const { RefCell::new(String::new()) };
}

#[allow(clippy::print_stderr, reason = "a program for the command line")]
fn main() -> ExitCode {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        AT_HAND.with_borrow(|command| eprintln!("the server panicked; to see it again: {command}"));
        std::process::exit(i32::from(CRASH));
    }));
    match Line::parse().command {
        Command::Run(asked) => asked.run(),
        Command::Partitions(asked) => asked.run(),
        Command::Recipes(asked) => asked.run(),
        Command::Replay(asked) => asked.run(),
        Command::Profiles => {
            for profile in Profile::all() {
                say(&format_args!("{:<12} {}", profile.life.name, profile.about));
            }
            ExitCode::SUCCESS
        }
        Command::Ensemble(asked) => asked.run(),
        Command::Sites(asked) => asked.run(),
        Command::Costs(asked) => asked.run(),
    }
}

impl Seeds {
    fn each<T: Default + Add<Output = T> + Display + Send>(
        &self,
        kinds: &str,
        run: impl Fn(u64) -> Option<(String, Result<T, Failure>)> + Sync,
    ) -> ExitCode {
        over_seeds(self.from..self.from + self.seeds, self, run).unwrap_or_else(|| unknown(kinds))
    }
}

#[allow(clippy::print_stderr, reason = "a program for the command line")]
fn unknown(kinds: &str) -> ExitCode {
    eprintln!("there is no such kind of run; {kinds} tells which there are");
    ExitCode::from(2)
}

/// What came of the seeds so far.
#[derive(Default)]
struct Score<T> {
    passed: u64,
    failed: u64,
    worst: u8,
    total: T,
}

impl<T: Default + Add<Output = T>> Score<T> {
    #[allow(clippy::print_stderr, reason = "a program for the command line")]
    fn count(&mut self, what: &str, result: Result<T, Failure>) {
        match result {
            Ok(outcome) => {
                self.passed += 1;
                self.total = std::mem::take(&mut self.total) + outcome;
            }
            Err(failure) => {
                self.failed += 1;
                self.worst = self.worst.max(code_of(&failure));
                eprintln!("seed {what}: {failure}");
                AT_HAND.with_borrow(|command| eprintln!("  to see it again: {command}"));
            }
        }
    }
}

/// Runs seeds, several at a time, and says what came of them. `run` begins with [`AT_HAND`]; it
/// returns what it was, or `None` if there is no such kind of run.
fn over_seeds<S: Send, T: Default + Add<Output = T> + Display + Send>(
    seeds: impl IntoIterator<Item = S, IntoIter: Send>,
    how: &Seeds,
    run: impl Fn(S) -> Option<(String, Result<T, Failure>)> + Sync,
) -> Option<ExitCode> {
    let began = Instant::now();
    let left = Mutex::new(Some(seeds.into_iter()));
    let tally = Mutex::new(Score::default());
    let next = || left.lock().ok()?.as_mut()?.next();
    let stop = || left.lock().map(|mut left| *left = None);
    let work = || -> Option<()> {
        while let Some(seed) = next() {
            let Some((what, result)) = run(seed) else {
                let _ = stop();
                return None;
            };
            if result.is_err() && !how.keep_going {
                let _ = stop();
            }
            tally.lock().ok()?.count(&what, result);
        }
        Some(())
    };
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = how.jobs.map_or_else(processors, usize::from);
    let known = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().all(|worker| matches!(worker.join(), Ok(Some(()))))
    });
    let Score { passed, failed, worst, total } = tally.into_inner().ok().filter(|_| known)?;
    say(&total);
    say(&format_args!("{:.1} s of real time", began.elapsed().as_secs_f64()));
    say(&format_args!("{passed} passed, {failed} failed"));
    Some(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(worst) })
}

impl Ensembles {
    fn run(&self) -> ExitCode {
        self.lives.seeds.each("crates/sim/src/ensemble/settings.rs", |seed| {
            let mut settings = ensemble::Settings::of(seed, self.servers, self.lives.kind.as_deref())?;
            let mut ways = String::new();
            if self.upgrades {
                settings = settings.with_upgrades();
                ways += " --upgrades";
            } else if self.forest {
                settings = settings.with_forest();
                ways += " --forest";
            }
            if self.readers > 0 {
                settings = settings.with_readers(self.readers);
                ways += &format!(" --readers {}", self.readers);
            }
            if self.roles > 0 {
                settings = settings.with_roles(self.roles);
                ways += &format!(" --roles {}", self.roles);
            }
            let ensemble::Settings { name, servers, .. } = settings;
            AT_HAND.set(format!(
                "stoa-sim ensemble --seeds 1 --from {seed} --servers {servers} --kind {name}{ways} --trace"
            ));
            Some((format!("{seed} ({name})"), ensemble::World::new(seed, settings, self.lives.trace).run()))
        })
    }
}

impl Costed {
    fn run(&self) -> ExitCode {
        let costs = Costs { up_mbit: self.mbit, down_mbit: self.mbit, ..Costs::default() };
        let parts: [(&str, CostedPart); 3] =
            [("idle", Self::idle), ("writes", Self::writes), ("failures", Self::failures)];
        for (_, part) in
            parts.iter().filter(|(name, _)| self.only.as_deref().is_none_or(|only| only == *name))
        {
            for (servers, readers) in self.sizes() {
                for has_forest in [false, true].into_iter().filter(|has_forest| !has_forest || servers >= 10)
                {
                    let ensemble =
                        costed::Ensemble { servers, has_forest, readers, fan_out: self.fan_out, costs };
                    if let Err(failure) = part(self, ensemble) {
                        say(&failure);
                        return ExitCode::from(code_of(&failure));
                    }
                }
            }
        }
        ExitCode::SUCCESS
    }

    fn sizes(&self) -> impl Iterator<Item = (usize, usize)> {
        self.servers.iter().flat_map(|servers| self.readers.iter().map(|readers| (*servers, *readers)))
    }

    fn idle(&self, ensemble: costed::Ensemble) -> Result<(), Failure> {
        let said = ensemble.idle(1)?;
        let (sent, received) = (said.sent, said.received);
        say(&format_args!(
            "{}: idle: the leader sends {sent} messages a second and receives {received}",
            title(ensemble)
        ));
        Ok(())
    }

    fn writes(&self, ensemble: costed::Ensemble) -> Result<(), Failure> {
        for (clients, window, bytes) in [(1, 1, 1000), (8, 8, 1000), (8, 8, 200), (64, 8, 1000)] {
            let it = ensemble.write(1, (clients, window), bytes)?;
            let each = |count: u64, among: u64| count as f64 / among.max(1) as f64;
            say(&format_args!(
                "{}: {clients} x {window} of {bytes} bytes: {} writes a second, {} us, the slowest hundredth {} us; \
                 entries of {:.0} bytes; the leader sends {:.1} messages an entry, receives {:.1}, sends {:.2} bytes a byte",
                title(ensemble),
                it.rate,
                it.median_us,
                it.slow_us,
                each(it.batch_bytes, it.batches),
                each(it.leader.sent, it.batches),
                each(it.leader.received, it.batches),
                each(it.leader.sent_bytes, it.batch_bytes),
            ));
            if ensemble.readers > 0 {
                let (sent, received) =
                    (each(it.parent.sent, it.batches), each(it.parent.received, it.batches));
                say(&format_args!("     a parent sends {sent:.1} messages an entry, receives {received:.1}"));
            }
        }
        Ok(())
    }

    fn failures(&self, ensemble: costed::Ensemble) -> Result<(), Failure> {
        use Failing::{LeaderEnds, LeaderFreezes, OtherEnds, OtherFreezes, RootEnds, RootFreezes};
        let all = [LeaderEnds, LeaderFreezes, RootEnds, RootFreezes, OtherEnds, OtherFreezes];
        let is_there = |failing: &&Failing| ensemble.has_forest || !matches!(failing, RootEnds | RootFreezes);
        for failing in all.iter().filter(is_there) {
            let seeds = 1..=self.seeds;
            let gaps: Result<Vec<(u64, u64)>, Failure> =
                seeds.map(|seed| ensemble.fail(seed, *failing)).collect();
            let mut gaps = gaps?;
            gaps.sort_unstable();
            let terms = gaps.iter().map(|(_, terms)| *terms).max().unwrap_or(0);
            let ms = |at: usize| gaps.get(at).map_or(0.0, |(gap_us, _)| *gap_us as f64 / 1000.0);
            say(&format_args!(
                "{}: {failing:?}: no write for {:.1} ms, the median of {}; at worst {:.1} ms; {terms} terms at most",
                title(ensemble),
                ms(gaps.len() / 2),
                gaps.len(),
                ms(gaps.len().saturating_sub(1)),
            ));
        }
        Ok(())
    }
}

/// What is measured of an ensemble.
type CostedPart = fn(&Costed, costed::Ensemble) -> Result<(), Failure>;

fn title(ensemble: costed::Ensemble) -> String {
    let readers =
        if ensemble.readers > 0 { format!(", {} readers", ensemble.readers) } else { String::new() };
    format!(
        "{:3} servers, {}{readers}",
        ensemble.servers,
        if ensemble.has_forest { "trees" } else { "star " }
    )
}

impl Sites {
    fn run(&self) -> ExitCode {
        let (sites, servers) = (self.sites.map(usize::from), self.servers.map(usize::from));
        self.lives.seeds.each("crates/sim/src/sites/plan.rs", |seed| {
            let mut plan = sites::SitePlan::of(seed, self.lives.kind.as_deref(), sites, servers)?;
            if !self.partitions.is_empty() {
                plan = plan.with_partitions(&self.partitions);
            }
            if let Some(readers) = self.readers {
                plan = plan.with_readers(readers);
            }
            AT_HAND.set(format!("stoa-sim sites --seeds 1 --from {seed} {plan} --trace"));
            Some((format!("{seed} ({plan})"), sites::SiteRun::new(seed, &plan, self.lives.trace).run()))
        })
    }
}

impl Partitions {
    fn plan(&self, seed: u64) -> Option<partitions::Plan> {
        let any = partitions::Plan::of(seed);
        let count = self.partitions.unwrap_or(any.life.config.partitions);
        let plan = match &self.lives.kind {
            Some(kind) => partitions::Plan::named(kind)?,
            None => any,
        };
        let plan = if self.programs { plan.with_programs() } else { plan };
        let plan = if self.impatient { plan.with_impatience() } else { plan };
        let plan = plan.with_partitions(count).numbered(seed);
        Some(if self.readers > 0 { plan.with_readers(self.readers) } else { plan })
    }

    fn run(&self) -> ExitCode {
        self.lives.seeds.each("crates/sim/src/partitions/plan.rs", |seed| {
            let plan = self.plan(seed)?;
            AT_HAND.set(format!("stoa-sim partitions --seeds 1 --from {seed} {plan} --trace"));
            Some((format!("{seed} ({plan})"), partitions::Run::new(seed, &plan, self.lives.trace).run()))
        })
    }
}

impl Recipes {
    fn plan(&self, seed: u64) -> Option<recipes::RecipePlan> {
        let play = match &self.play {
            Some(name) => Some(recipes::Play::named(name)?),
            None => None,
        };
        recipes::RecipePlan::of(seed, play, self.lives.kind.as_deref())
    }

    fn run(&self) -> ExitCode {
        self.lives.seeds.each("crates/sim/src/recipes/plan.rs", |seed| {
            let plan = self.plan(seed)?;
            let (play, kind) = (plan.play.name(), plan.kind());
            AT_HAND
                .set(format!("stoa-sim recipes --seeds 1 --from {seed} --play {play} --kind {kind} --trace"));
            Some((format!("{seed} ({play}, {kind})"), recipes::run(seed, &plan, self.lives.trace)))
        })
    }
}

/// Writes a line for whoever still reads.
fn say(what: &dyn Display) {
    let _ = writeln!(io::stdout(), "{what}");
}

fn named(name: &str, steps: Option<u64>) -> Option<Profile> {
    let mut profile = Profile::named(name)?;
    profile.life.requests = steps.unwrap_or(profile.life.requests);
    Some(profile)
}

fn live(seed: u64, profile: &Profile, steps: Option<u64>, printing: bool) -> Result<Outcome, Failure> {
    let steps = steps.map(|steps| format!(" --steps {steps}")).unwrap_or_default();
    AT_HAND.set(format!("stoa-sim replay {seed} --profile {}{steps}", profile.life.name));
    standalone::world(seed, profile, printing).run()
}

fn code_of(failure: &Failure) -> u8 {
    match failure {
        Failure::Correctness(_) => CORRECTNESS,
        Failure::Liveness(_) => LIVENESS,
    }
}

impl Standalone {
    /// The seeds to run, each with its profile: the old ones that fit, then the new ones.
    fn plan(&self) -> Option<Vec<(u64, Profile)>> {
        let all = || Profile::all().iter().map(|profile| profile.life.name).collect();
        let names: Vec<&str> = self.profile.as_deref().map_or_else(all, |only| vec![only]);
        let profiles: Option<Vec<Profile>> = names.into_iter().map(|name| named(name, self.steps)).collect();
        let profiles = profiles?;
        let old = OLD_SEEDS.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut plan: Vec<(u64, Profile)> = old
            .filter_map(|line| {
                let (seed, name) = line.split_once(' ')?;
                let profile = profiles.iter().find(|profile| profile.life.name == name.trim())?;
                Some((seed.parse().ok()?, profile.clone()))
            })
            .collect();
        let Seeds { seeds, from, .. } = self.seeds;
        let any = |seed: u64| profiles[(seed % profiles.len() as u64) as usize].clone();
        plan.extend((from..from + seeds).map(|seed| (seed, any(seed))));
        Some(plan)
    }

    fn run(&self) -> ExitCode {
        let Some(plan) = self.plan() else { return unknown("`stoa-sim profiles`") };
        let ran = over_seeds(plan, &self.seeds, |(seed, profile)| {
            let once = || live(seed, &profile, self.steps, false);
            let result = once().and_then(|first| match seed % REPEAT_ONE_IN {
                0 if once()? != first => {
                    Err(Failure::Liveness("the same seed came to something else the second time".into()))
                }
                _ => Ok(first),
            });
            Some((format!("{seed} ({})", profile.life.name), result))
        });
        ran.unwrap_or(ExitCode::SUCCESS)
    }
}

impl Replay {
    fn run(&self) -> ExitCode {
        let Self { seed, profile: name, steps, quiet } = self;
        let Some(profile) = named(name, *steps) else { return unknown("`stoa-sim profiles`") };
        match live(*seed, &profile, *steps, !quiet) {
            Ok(outcome) => {
                say(&outcome);
                say(&format_args!("fingerprint {:016x}", outcome.fingerprint));
                say(&format_args!("1 passed, 0 failed"));
                ExitCode::SUCCESS
            }
            Err(failure) => {
                say(&format_args!("seed {seed} ({name}): {failure}"));
                say(&format_args!("0 passed, 1 failed"));
                ExitCode::from(code_of(&failure))
            }
        }
    }
}
