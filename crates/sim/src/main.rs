//! `stoa-sim`: runs seeds, and replays one.

use clap::{Parser, Subcommand};
use std::cell::RefCell;
use std::fmt::Display;
use std::io::{self, Write};
use std::ops::{Add, Range};
use std::process::ExitCode;
use std::time::Instant;
use stoa_sim::ensemble;
use stoa_sim::partitions;
use stoa_sim::profile::Profile;
use stoa_sim::recipes;
use stoa_sim::world::{Failure, Outcome, World};

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
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run many seeds, first those that once failed.
    Run {
        /// How many seeds.
        #[arg(long, default_value_t = 200)]
        seeds: u64,
        /// The first one.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Only this profile; otherwise the seeds take turns through all of them.
        #[arg(long)]
        profile: Option<String>,
        /// Requests of a run, instead of what the profile says.
        #[arg(long)]
        steps: Option<u64>,
        /// Go on after a failure.
        #[arg(long)]
        keep_going: bool,
    },
    /// Run one seed, and print what happens.
    Replay {
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
    },
    /// List the profiles.
    Profiles,
    /// Run many seeds of an ensemble whose servers have several partitions.
    Partitions {
        /// How many seeds.
        #[arg(long, default_value_t = 200)]
        seeds: u64,
        /// The first one.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// As many partitions; otherwise the seeds take turns from 2 to 8.
        #[arg(long)]
        partitions: Option<u8>,
        /// Only this kind of life; otherwise the seeds take turns through all of them.
        #[arg(long)]
        kind: Option<String>,
        /// Clients use programs of the service; otherwise the seeds say so, unless there is a kind.
        #[arg(long)]
        programs: bool,
        /// Clients ask for more before they are answered.
        #[arg(long)]
        impatient: bool,
        /// Print what happens.
        #[arg(long)]
        trace: bool,
        /// Go on after a failure.
        #[arg(long)]
        keep_going: bool,
    },
    /// Run many seeds of the client library's recipes, with an ensemble underneath.
    Recipes {
        /// How many seeds.
        #[arg(long, default_value_t = 200)]
        seeds: u64,
        /// The first one.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Only this recipe; otherwise the seeds take turns through all of them.
        #[arg(long)]
        play: Option<String>,
        /// Only this kind of life of the ensemble, with several partitions if it begins with `divided-`; otherwise the
        /// seeds take turns through some of them.
        #[arg(long)]
        kind: Option<String>,
        /// Print what happens.
        #[arg(long)]
        trace: bool,
        /// Go on after a failure.
        #[arg(long)]
        keep_going: bool,
    },
    /// Run many seeds of an ensemble: several servers, and a network between them.
    Ensemble {
        /// How many seeds.
        #[arg(long, default_value_t = 200)]
        seeds: u64,
        /// The first one.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// As many servers; otherwise the seeds decide, and mostly for three.
        #[arg(long)]
        servers: Option<usize>,
        /// Only this kind of life; otherwise the seeds take turns through all of them.
        #[arg(long)]
        kind: Option<String>,
        /// Print what happens.
        #[arg(long)]
        trace: bool,
        /// Go on after a failure.
        #[arg(long)]
        keep_going: bool,
    },
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
    match Args::parse().command {
        Command::Run { seeds, from, profile, steps, keep_going } => {
            run(seeds, from, profile.as_deref(), steps, keep_going)
        }
        Command::Partitions { seeds, from, partitions, kind, programs, impatient, trace, keep_going } => {
            run_partitions(&Partitions {
                seeds,
                from,
                partitions,
                kind,
                programs,
                impatient,
                trace,
                keep_going,
            })
        }
        Command::Recipes { seeds, from, play, kind, trace, keep_going } => {
            run_recipes(&Recipes { seeds, from, play, kind, trace, keep_going })
        }
        Command::Replay { seed, profile, steps, quiet } => replay(seed, &profile, steps, quiet),
        Command::Profiles => {
            for profile in Profile::all() {
                say(&format_args!("{:<12} {}", profile.name, profile.about));
            }
            ExitCode::SUCCESS
        }
        Command::Ensemble { seeds, from, servers, kind, trace, keep_going } => {
            let plan = Ensembles { seeds, from, servers, kind, trace, keep_going };
            run_ensembles(&plan)
        }
    }
}

/// What is asked of `stoa-sim ensemble`.
struct Ensembles {
    seeds: u64,
    from: u64,
    servers: Option<usize>,
    kind: Option<String>,
    trace: bool,
    keep_going: bool,
}

impl Ensembles {
    fn settings(&self, seed: u64) -> Option<ensemble::Settings> {
        ensemble::Settings::of(seed, self.servers, self.kind.as_deref())
    }

    fn command(&self, seed: u64, settings: &ensemble::Settings) -> String {
        let ensemble::Settings { name, servers, .. } = settings;
        format!("stoa-sim ensemble --seeds 1 --from {seed} --servers {servers} --kind {name} --trace")
    }
}

/// Runs one seed after the other, and says what came of them. `run` begins with [`AT_HAND`]; it returns what kind of
/// run it was, or `None` if there is no such. `code` is how bad a failure is.
#[allow(clippy::print_stderr, reason = "a program for the command line")]
fn over_seeds<T: Default + Add<Output = T> + Display, E: Display>(
    seeds: Range<u64>,
    keep_going: bool,
    code: impl Fn(&E) -> u8,
    run: impl Fn(u64) -> Option<(String, Result<T, E>)>,
) -> Option<ExitCode> {
    let began = Instant::now();
    let (mut passed, mut failed, mut worst) = (0_u64, 0_u64, 0_u8);
    let mut total = T::default();
    for seed in seeds {
        match run(seed)? {
            (_, Ok(outcome)) => {
                passed += 1;
                total = total + outcome;
            }
            (kind, Err(failure)) => {
                failed += 1;
                worst = worst.max(code(&failure));
                eprintln!("seed {seed} ({kind}): {failure}");
                AT_HAND.with_borrow(|command| eprintln!("  to see it again: {command}"));
                if !keep_going {
                    break;
                }
            }
        }
    }
    say(&total);
    say(&format_args!("{:.1} s of real time", began.elapsed().as_secs_f64()));
    say(&format_args!("{passed} passed, {failed} failed"));
    Some(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(worst) })
}

#[allow(clippy::print_stderr, reason = "a program for the command line")]
fn run_ensembles(plan: &Ensembles) -> ExitCode {
    let ran = over_seeds(plan.from..plan.from + plan.seeds, plan.keep_going, code_of, |seed| {
        let settings = plan.settings(seed)?;
        AT_HAND.set(plan.command(seed, &settings));
        Some((settings.name.into(), ensemble::World::new(seed, settings, plan.trace).run()))
    });
    ran.unwrap_or_else(|| {
        eprintln!("no such kind of life; there are those of crates/sim/src/ensemble/settings.rs");
        ExitCode::from(2)
    })
}

/// What is asked of `stoa-sim partitions`.
struct Partitions {
    seeds: u64,
    from: u64,
    partitions: Option<u8>,
    kind: Option<String>,
    programs: bool,
    impatient: bool,
    trace: bool,
    keep_going: bool,
}

impl Partitions {
    fn plan(&self, seed: u64) -> Option<partitions::Plan> {
        let any = partitions::Plan::of(seed);
        let count = self.partitions.unwrap_or(any.life.config.partitions);
        let plan = match &self.kind {
            Some(kind) => partitions::Plan::named(kind)?,
            None => any,
        };
        let plan = if self.programs { plan.with_programs() } else { plan };
        let plan = if self.impatient { plan.with_impatience() } else { plan };
        Some(plan.with_partitions(count))
    }
}

#[allow(clippy::print_stderr, reason = "a program for the command line")]
fn run_partitions(asked: &Partitions) -> ExitCode {
    let ran = over_seeds(asked.from..asked.from + asked.seeds, asked.keep_going, code_of, |seed| {
        let plan = asked.plan(seed)?;
        AT_HAND.set(format!("stoa-sim partitions --seeds 1 --from {seed} {plan} --trace"));
        Some((plan.to_string(), partitions::Run::new(seed, &plan, asked.trace).run()))
    });
    ran.unwrap_or_else(|| {
        eprintln!("no such kind of life; there are those of crates/sim/src/partitions/plan.rs");
        ExitCode::from(2)
    })
}

/// What is asked of `stoa-sim recipes`.
struct Recipes {
    seeds: u64,
    from: u64,
    play: Option<String>,
    kind: Option<String>,
    trace: bool,
    keep_going: bool,
}

impl Recipes {
    fn settings(&self, seed: u64) -> Option<recipes::Settings> {
        let play = match &self.play {
            Some(name) => Some(recipes::Play::named(name)?),
            None => None,
        };
        recipes::Settings::of(seed, play, self.kind.as_deref())
    }
}

#[allow(clippy::print_stderr, reason = "a program for the command line")]
fn run_recipes(plan: &Recipes) -> ExitCode {
    let ran = over_seeds(plan.from..plan.from + plan.seeds, plan.keep_going, code_of, |seed| {
        let settings = plan.settings(seed)?;
        let (play, kind) = (settings.play.name(), settings.kind());
        AT_HAND.set(format!("stoa-sim recipes --seeds 1 --from {seed} --play {play} --kind {kind} --trace"));
        Some((format!("{play}, {kind}"), recipes::run(seed, &settings, plan.trace)))
    });
    ran.unwrap_or_else(|| {
        eprintln!("no such recipe or kind of life; there are those of crates/sim/src/recipes/settings.rs");
        ExitCode::from(2)
    })
}

/// Writes a line for whoever still reads.
fn say(what: &dyn Display) {
    let _ = writeln!(io::stdout(), "{what}");
}

fn named(name: &str, steps: Option<u64>) -> Option<Profile> {
    let mut profile = Profile::named(name)?;
    profile.requests = steps.unwrap_or(profile.requests);
    Some(profile)
}

fn command(seed: u64, profile: &Profile, steps: Option<u64>) -> String {
    let steps = steps.map(|steps| format!(" --steps {steps}")).unwrap_or_default();
    format!("stoa-sim replay {seed} --profile {}{steps}", profile.name)
}

fn live(seed: u64, profile: &Profile, steps: Option<u64>, printing: bool) -> Result<Outcome, Failure> {
    AT_HAND.set(command(seed, profile, steps));
    World::new(seed, profile.clone(), printing).run()
}

fn code_of(failure: &Failure) -> u8 {
    match failure {
        Failure::Correctness(_) => CORRECTNESS,
        Failure::Liveness(_) => LIVENESS,
    }
}

/// The seeds to run, each with its profile: the old ones that fit, then the new ones.
fn plan(seeds: u64, from: u64, only: Option<&str>, steps: Option<u64>) -> Option<Vec<(u64, Profile)>> {
    let profiles: Vec<Profile> = match only {
        Some(name) => vec![named(name, steps)?],
        None => Profile::all().iter().filter_map(|profile| named(profile.name, steps)).collect(),
    };
    let old = OLD_SEEDS.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut plan: Vec<(u64, Profile)> = old
        .filter_map(|line| {
            let (seed, name) = line.split_once(' ')?;
            let profile = profiles.iter().find(|profile| profile.name == name.trim())?;
            Some((seed.parse().ok()?, profile.clone()))
        })
        .collect();
    let count = profiles.len() as u64;
    plan.extend((from..from + seeds).map(|seed| (seed, profiles[(seed % count) as usize].clone())));
    Some(plan)
}

#[allow(clippy::print_stderr, reason = "a program for the command line")]
fn run(seeds: u64, from: u64, only: Option<&str>, steps: Option<u64>, keep_going: bool) -> ExitCode {
    let Some(plan) = plan(seeds, from, only, steps) else {
        eprintln!("no such profile; `stoa-sim profiles` lists them");
        return ExitCode::from(2);
    };
    let began = Instant::now();
    let (mut passed, mut failed, mut worst) = (0_u64, 0_u64, 0_u8);
    let mut total = Totals::default();
    for (seed, profile) in plan {
        let mut result = live(seed, &profile, steps, false);
        if let Ok(first) = result
            && seed % REPEAT_ONE_IN == 0
        {
            result = live(seed, &profile, steps, false).and_then(|second| {
                let differs = "the same seed came to something else the second time";
                if first == second { Ok(second) } else { Err(Failure::Liveness(differs.into())) }
            });
        }
        match result {
            Ok(outcome) => {
                passed += 1;
                total.add(&outcome);
            }
            Err(failure) => {
                failed += 1;
                worst = worst.max(code_of(&failure));
                eprintln!("seed {seed} ({}): {failure}", profile.name);
                eprintln!("  to see it again: {}", command(seed, &profile, steps));
                if !keep_going {
                    break;
                }
            }
        }
    }
    say(&total);
    say(&format_args!("{:.1} s of real time", began.elapsed().as_secs_f64()));
    say(&format_args!("{passed} passed, {failed} failed"));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(worst) }
}

#[allow(clippy::print_stderr, reason = "a program for the command line")]
fn replay(seed: u64, name: &str, steps: Option<u64>, quiet: bool) -> ExitCode {
    let Some(profile) = named(name, steps) else {
        eprintln!("no profile {name}; `stoa-sim profiles` lists them");
        return ExitCode::from(2);
    };
    match live(seed, &profile, steps, !quiet) {
        Ok(outcome) => {
            let mut total = Totals::default();
            total.add(&outcome);
            say(&total);
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

/// What all runs together have come to.
#[derive(Default)]
struct Totals {
    outcomes: Vec<Outcome>,
}

impl Totals {
    fn add(&mut self, outcome: &Outcome) {
        self.outcomes.push(*outcome);
    }
}

impl Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sum = |of: &dyn Fn(&Outcome) -> u64| self.outcomes.iter().map(of).sum::<u64>();
        write!(
            f,
            "compared {} replies, {} events, {} updates and {} whole states; {} starts, {} snapshots, \
             {} times no room, {} requests waited for an election; {} sessions came back, {} expired, \
             {} znodes reaped; {} damaged folders, {} of them refused; \
             {:.0} s of simulated time",
            sum(&|outcome| outcome.counts.replies),
            sum(&|outcome| outcome.counts.events),
            sum(&|outcome| outcome.counts.updates),
            sum(&|outcome| outcome.counts.states),
            sum(&|outcome| outcome.starts),
            sum(&|outcome| outcome.snapshots),
            sum(&|outcome| outcome.refusals),
            sum(&|outcome| outcome.counts.waited),
            sum(&|outcome| outcome.counts.returned),
            sum(&|outcome| outcome.counts.expired),
            sum(&|outcome| outcome.counts.reaped),
            sum(&|outcome| outcome.damaged),
            sum(&|outcome| outcome.refused),
            sum(&|outcome| outcome.lasted_us) as f64 / 1e6,
        )
    }
}
