//! `cargo xtask`: the commands that check and test this repository.
#![allow(clippy::print_stdout, reason = "it is a program for the terminal")]

mod against;
mod arguments;
mod build;
mod c_client;
mod fuzz;
mod peer;
mod planted;
mod python;
mod report;
mod run;
mod suites;
mod tally;
mod tidy;
mod workspace;

use std::process::{Command, ExitCode};
use std::time::Duration;

use against::Against;
use arguments::Arguments;
use report::Report;
use tally::Tally;

const USAGE: &str = "\
cargo xtask COMMAND

  check                       format, lints, tidy and unit tests: before a commit
  test                        everything below but upstream, in order; ends with `N passed, N failed`
  tidy                        the repository's own rules
  planted [CARGO TEST OPTIONS]
                              bugs are planted into a copy of the source, and the simulators must find each
  sim [--seeds N]             the simulator over N seeds
  fuzz [TARGETS] [--seconds N]
                              bytes that libFuzzer makes up, N seconds for each way in
  benches                     what the benchmarks make of measurements
  cost [WORDS]                no operation costs more than its size times a logarithm; those with these words
  kazoo [PYTEST OPTIONS]      kazoo's own tests
  java [MAVEN OPTIONS]        our tests with the Apache client and Curator
  upstream [MAVEN OPTIONS]    ZooKeeper's and Curator's own tests
  go [GO TEST OPTIONS]        the Go client
  c                           the C client, as Debian packages it and with TLS
  kill [--rounds N]           kill -9 under load, N times
  programs [--long] [PYTEST OPTIONS]
                              Kafka, Patroni and Curator with an ensemble whose doors are locked
  ensemble [PYTEST OPTIONS]   kazoo with an ensemble of three whose servers are stopped one by one, and metrics
                              beside those of Apache ZooKeeper
  tls [PYTEST OPTIONS]        TLS with openssl, with bad certificates, and with half-open handshakes: 10,000 with --long
  sasl [PYTEST OPTIONS]       logins by DIGEST-MD5 and Kerberos, good ones and hostile ones
  audit [PYTEST OPTIONS]      the audit log beside that of Apache ZooKeeper, line for line
  linearizable [--rounds N] [--servers N]
                              kill -9, pauses and cut links in an ensemble of three servers or more, N times
  locks [--rounds N]          the same and more for processes that take one lock in all ways
  sites [--rounds N]          faults of three sites, and of the links between them
  oracle [OPTIONS]            the same requests to Stoa and to Apache ZooKeeper
  settings [OPTIONS]          the same zoo.cfg read by Stoa and by Apache ZooKeeper
  peer --port P --data-dir D  Apache ZooKeeper in the foreground [--heap 512m] [--config FILE]
  peer --member FILE          the same as a server of the ensemble in FILE

kazoo, java, upstream, go, c, kill and linearizable take `--against zookeeper` to drive Apache ZooKeeper
instead of Stoa. kazoo, java, upstream, go and c take `--through K` to start ensembles of three Stoa servers
and drive server 1, 2 or 3 of each; `--through reader` drives a reader below such an ensemble, `reader:2` one below
another; `--through forest:K` starts ensembles of fifteen, in which appends go down trees; `--through site:K` starts three sites that are a server each, with `--partitions N` or `--partitions L,M,N`
so many partitions. sites takes `--partitions`, too.";

const SEEDS: u64 = 200;
/// Runs of an ensemble.
const ENSEMBLE_SEEDS: u64 = 300;
/// How many partitions the servers have that clients drive once more.
const PARTITIONS: u8 = 4;
const FUZZ_SECONDS: u64 = 25;
const KILL_ROUNDS: u64 = 10;
const LINEARIZABLE_ROUNDS: u64 = 6;
const FOREST_ROUNDS: u64 = 3;
/// One of fifteen that passes on in one tree, below another one, unless it leads.
const FOREST_SERVER: u8 = 9;
const LOCKS_ROUNDS: u64 = 3;
const SITES_ROUNDS: u64 = 2;
const ORACLE_REQUESTS: &str = "20000";
const CARGO_LIMIT: Duration = Duration::from_secs(1800);

fn main() -> ExitCode {
    match dispatch(Arguments::new(std::env::args().skip(1))) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::from(2)
        }
    }
}

/// Runs a suite as often as `--rounds` says.
fn in_rounds(
    report: &mut Report,
    name: &'static str,
    rounds: u64,
    suite: fn(u64, &[String]) -> Result<Tally, String>,
    mut arguments: Arguments,
) -> Result<(), String> {
    let rounds = arguments.number("--rounds")?.unwrap_or(rounds);
    report.step(name, || suite(rounds, &arguments.rest()));
    Ok(())
}

/// Runs one command. `false` means that something was found, an error that it could not be run.
fn dispatch(mut arguments: Arguments) -> Result<bool, String> {
    let command = arguments.word().unwrap_or_else(|| "help".to_owned());
    if command == "peer" {
        return peer::serve(arguments).map(|()| true);
    }
    let against = against(&command, &mut arguments)?;
    let mut report = Report::default();
    match command.as_str() {
        "help" => return Ok(help()),
        "check" => {
            arguments.finish()?;
            checks(&mut report);
            report.step("unit tests", || cargo_test(&["--lib", "--bins"]));
        }
        "test" => {
            arguments.finish()?;
            everything(&mut report);
        }
        "tidy" => {
            arguments.finish()?;
            report.step("tidy", tidy::run);
        }
        "planted" => report.step("planted", || planted::run(&arguments.rest())),
        "sim" => {
            let seeds = arguments.number("--seeds")?.unwrap_or(SEEDS);
            arguments.finish()?;
            simulations(&mut report, seeds, seeds);
        }
        "fuzz" => {
            let seconds = arguments.number("--seconds")?.unwrap_or(FUZZ_SECONDS);
            report.step("fuzz", || fuzz::run(seconds, &arguments.rest()));
        }
        "benches" => {
            arguments.finish()?;
            report.step("benches", suites::benches);
        }
        "cost" => report.step("cost", || suites::cost(&arguments.rest())),
        "kazoo" => report.step("kazoo", || suites::kazoo(against, &arguments.rest())),
        "java" => report.step("java", || suites::java(against, &arguments.rest())),
        "upstream" => report.step("upstream", || suites::upstream(against, &arguments.rest())),
        "go" => report.step("go", || suites::go(against, &arguments.rest())),
        "c" => {
            arguments.finish()?;
            report.step("c", || c_client::run(against));
        }
        "oracle" => report.step("oracle", || suites::oracle(&arguments.rest())),
        "settings" => report.step("settings", || suites::settings(&arguments.rest())),
        "kill" => {
            let rounds = arguments.number("--rounds")?.unwrap_or(KILL_ROUNDS);
            report.step("kill", || suites::kill(against, rounds, &arguments.rest()));
        }
        "programs" => report.step("programs", || suites::programs(arguments)),
        "ensemble" => report.step("ensemble", || suites::ensemble(&arguments.rest())),
        "tls" => report.step("tls", || suites::tls(&arguments.rest())),
        "sasl" => report.step("sasl", || suites::sasl(&arguments.rest())),
        "audit" => report.step("audit", || suites::audit(&arguments.rest())),
        "linearizable" => {
            let rounds = arguments.number("--rounds")?.unwrap_or(LINEARIZABLE_ROUNDS);
            report.step("linearizable", || suites::linearizable(against, rounds, &arguments.rest()));
        }
        "locks" => in_rounds(&mut report, "locks", LOCKS_ROUNDS, suites::locks, arguments)?,
        "sites" => in_rounds(&mut report, "sites", SITES_ROUNDS, suites::sites, arguments)?,
        other => return Err(format!("no command `{other}`\n\n{USAGE}")),
    }
    Ok(report.finish())
}

/// Says which commands there are.
fn help() -> bool {
    println!("{USAGE}");
    true
}

/// What a suite is to drive.
fn against(command: &str, arguments: &mut Arguments) -> Result<Against, String> {
    match command {
        "kazoo" | "java" | "upstream" | "go" | "c" => Against::from_arguments(arguments)?.through(arguments),
        "kill" | "linearizable" => Against::from_arguments(arguments),
        _ => Ok(Against::Stoa),
    }
}

/// What needs no server and little time.
fn checks(report: &mut Report) {
    report.step("format", || cargo(&["fmt", "--all", "--check"]));
    report.step("format of fuzz", || cargo(&["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]));
    report.step("clippy", || {
        cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"])
    });
    report.step("tidy", tidy::run);
}

fn simulations(report: &mut Report, of_one_server: u64, of_ensembles: u64) {
    report.step("simulation", || suites::simulation(&["run"], of_one_server));
    report.step("ensemble simulation", || suites::simulation(&["ensemble"], of_ensembles));
    report.step("roles simulation", || suites::simulation(&["ensemble", "--roles", "3"], of_ensembles));
    report.step("forest simulation", || suites::simulation(&["ensemble", "--forest"], of_ensembles));
    report.step("partitions simulation", || suites::simulation(&["partitions"], of_ensembles));
    report.step("recipes simulation", || suites::simulation(&["recipes"], of_ensembles));
    report.step("sites simulation", || suites::simulation(&["sites"], of_ensembles));
}

fn everything(report: &mut Report) {
    checks(report);
    report.step("cargo test", || cargo_test(&[]));
    report.step("planted", || planted::run(&[]));
    report.step("release build", || cargo(&["build", "--release", "--workspace"]));
    simulations(report, SEEDS, ENSEMBLE_SEEDS);
    report.step("fuzz", || fuzz::run(FUZZ_SECONDS, &[]));
    report.step("benches", suites::benches);
    report.step("settings", || suites::settings(&[]));
    report.step("cost", || suites::cost(&[]));
    report.step("kazoo", || suites::kazoo(Against::Stoa, &[]));
    report.step("java", || suites::java(Against::Stoa, &[]));
    report.step("go", || suites::go(Against::Stoa, &[]));
    report.step("c", || c_client::run(Against::Stoa));
    report.step("oracle", || suites::oracle(&oracle_options(1)));
    report.step("kill", || suites::kill(Against::Stoa, KILL_ROUNDS, &[]));
    for server in 1..=3 {
        report.step("go through an ensemble", || suites::go(Against::Ensemble(server), &[]));
        report.step("go through a site", || suites::go(Against::Site(server, [1; 3]), &[]));
        report.step("c through an ensemble", || c_client::run(Against::Ensemble(server)));
    }
    report.step("kazoo with partitions", || suites::kazoo(Against::Divided(PARTITIONS), &[]));
    report.step("java with partitions", || suites::java_with_partitions(PARTITIONS));
    report.step("programs", || suites::programs(Arguments::new([])));
    report.step("go with partitions", || suites::go(Against::Divided(PARTITIONS), &[]));
    report.step("c with partitions", || c_client::run(Against::Divided(PARTITIONS)));
    report.step("oracle with partitions", || suites::oracle(&oracle_options(PARTITIONS)));
    report.step("ensemble", || suites::ensemble(&[]));
    report.step("tls", || suites::tls(&[]));
    report.step("sasl", || suites::sasl(&[]));
    report.step("audit", || suites::audit(&[]));
    report.step("linearizable", || suites::linearizable(Against::Stoa, LINEARIZABLE_ROUNDS, &[]));
    report.step("kazoo through a reader", || suites::kazoo(Against::Reader(1), &[]));
    forests(report);
    report.step("locks", || suites::locks(LOCKS_ROUNDS, &[]));
    report.step("sites", || suites::sites(SITES_ROUNDS, &[]));
}

/// Fifteen servers, most of which are fed by others.
fn forests(report: &mut Report) {
    let fifteen = ["--servers", "15"].map(str::to_owned);
    report.step("go through a forest", || suites::go(Against::Forest(FOREST_SERVER), &[]));
    report.step("linearizable in a forest", || suites::linearizable(Against::Stoa, FOREST_ROUNDS, &fifteen));
}

fn oracle_options(partitions: u8) -> [String; 4] {
    ["--requests", ORACLE_REQUESTS, "--partitions", &partitions.to_string()].map(str::to_owned)
}

/// A cargo command that passes or fails as a whole.
fn cargo(words: &[&str]) -> Result<Tally, String> {
    let mut command = Command::new("cargo");
    command.args(words).current_dir(workspace::root());
    run::run(&mut command, CARGO_LIMIT).map(|outcome| Tally::one(outcome.succeeded()))
}

fn cargo_test(words: &[&str]) -> Result<Tally, String> {
    let mut command = Command::new("cargo");
    command.args(["test", "--workspace", "--no-fail-fast"]).args(words).current_dir(workspace::root());
    let outcome = run::run(&mut command, CARGO_LIMIT)?;
    Ok(tally::cargo(&outcome.output).judged(outcome.succeeded()))
}
