//! The suites that drive a running server with clients from elsewhere.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::against::Against;
use crate::arguments::Arguments;
use crate::tally::{self, Tally};
use crate::{build, peer, python, run, workspace};

/// How the suites find the server: a command line to which they add `--port` and `--data-dir`.
pub(crate) const SERVER_COMMAND: &str = "SERVER_COMMAND";

/// The same for a suite that starts an ensemble: it adds the path of a server's configuration.
const MEMBER_COMMAND: &str = "MEMBER_COMMAND";

/// The same for Apache ZooKeeper, in a suite that compares the two.
const PEER_COMMAND: &str = "PEER_COMMAND";

/// The same for a server of an ensemble, in a suite that compares the two in both ways.
const PEER_MEMBER_COMMAND: &str = "PEER_MEMBER_COMMAND";

/// How many partitions servers have, as they and the suites are told.
const PARTITIONS: &str = "STOA_PARTITIONS";

/// kazoo's harness wants to know which ZooKeeper it talks to.
const ZOOKEEPER_VERSION: &str = "3.9.5";

/// Stoa answers a request that is too large, and keeps the connection; ZooKeeper closes it, and the
/// tests of its clients ask for that. The C client tests what Stoa does by itself.
const CLOSE_ON_TOO_LARGE: &str = " --skip-request-bytes 0";

/// Where programs in Java lie.
const KAFKA_JARS: &str = "KAFKA_JARS";
const CURATOR_JARS: &str = "CURATOR_JARS";

const BENCHES_LIMIT: Duration = Duration::from_secs(60);
const ENSEMBLE_LIMIT: Duration = Duration::from_secs(300);
const KAZOO_LIMIT: Duration = Duration::from_secs(900);
const JAVA_LIMIT: Duration = Duration::from_secs(1500);
const GO_LIMIT: Duration = Duration::from_secs(300);
const TLS_LIMIT: Duration = Duration::from_secs(600);
const SASL_LIMIT: Duration = Duration::from_secs(600);
const AUDIT_LIMIT: Duration = Duration::from_secs(600);
const CHECKER_LIMIT: Duration = Duration::from_secs(120);
const PROGRAMS_LIMIT: Duration = Duration::from_secs(900);
const APT_LIMIT: Duration = Duration::from_secs(300);
/// What a program of this repository may take.
const PROGRAM_LIMIT: Duration = Duration::from_secs(1200);

/// kazoo's own tests, all but those in `tests/kazoo/left-out.txt`.
pub(crate) fn kazoo(against: Against, more: &[String]) -> Result<Tally, String> {
    against.prepare()?;
    let server = as_zookeeper(against)?;
    let mut pytest = python::command()?;
    pytest
        .args(["-m", "pytest", "-p", "stoa_cluster", "-p", "no:cacheprovider", "--durations", "10"])
        // Each process has a server of its own; a class of tests stays in one process.
        .args(["--numprocesses", "2", "--dist", "loadscope"])
        .args(["--pyargs", "kazoo.tests", "--color", "no"])
        .args(more)
        .current_dir(workspace::target())
        .env(SERVER_COMMAND, server)
        .env("ZOOKEEPER_VERSION", ZOOKEEPER_VERSION)
        // Under this variable kazoo tests its own build and waits for its own slow machines.
        .env_remove("CI");
    let outcome = run::run(&mut pytest, KAZOO_LIMIT)?;
    Ok(tally::plain(&outcome.output).judged(outcome.succeeded()))
}

/// Our tests with the Apache client and Curator's recipes.
pub(crate) fn java(against: Against, more: &[String]) -> Result<Tally, String> {
    junit(against, &[], more)
}

/// The same with servers that have so many partitions.
pub(crate) fn java_with_partitions(partitions: u8) -> Result<Tally, String> {
    junit(Against::Stoa, &[(PARTITIONS, &partitions.to_string())], &[])
}

/// ZooKeeper's and Curator's own tests, those in `tests/java/src/upstream/taken.txt`.
pub(crate) fn upstream(against: Against, more: &[String]) -> Result<Tally, String> {
    let profile = ["--activate-profiles", "upstream"].map(str::to_owned);
    junit(against, &[], &[&profile, more].concat())
}

fn junit(against: Against, environment: &[(&str, &str)], more: &[String]) -> Result<Tally, String> {
    against.prepare()?;
    let server = as_zookeeper(against)?;
    let mut maven = Command::new("mvn");
    if against == Against::Stoa {
        maven.env(MEMBER_COMMAND, against.member_command()?);
    }
    maven
        .args(["--batch-mode", "--no-transfer-progress", "-Dstyle.color=never", "test"])
        .args(more)
        .current_dir(workspace::suite("java"))
        .env(SERVER_COMMAND, server)
        .envs(environment.iter().copied());
    let outcome = run::run(&mut maven, JAVA_LIMIT)?;
    Ok(tally::surefire(&outcome.output).judged(outcome.succeeded()))
}

/// The server's command, where the two servers have to do the same in everything.
fn as_zookeeper(against: Against) -> Result<String, String> {
    let command = against.command(&peer::config())?;
    Ok(match against {
        Against::ZooKeeper => command,
        _ => command + CLOSE_ON_TOO_LARGE,
    })
}

/// The Go client.
pub(crate) fn go(against: Against, more: &[String]) -> Result<Tally, String> {
    against.prepare()?;
    let mut go = Command::new("go");
    go.args(["test", "-v", "-count=1", "./..."])
        .args(more)
        .current_dir(workspace::suite("go"))
        .env(SERVER_COMMAND, against.command(&peer::config())?);
    let outcome = run::run(&mut go, GO_LIMIT)?;
    Ok(tally::go(&outcome.output).judged(outcome.succeeded()))
}

/// Installs a Debian package.
pub(crate) fn install(what: &str, package: &str) -> Result<(), String> {
    let wanted = format!("{what} is missing: run `apt-get install {package}` as root");
    let mut update = Command::new("apt-get");
    update.args(["--quiet", "update"]);
    run::must(&mut update, APT_LIMIT).map_err(|error| format!("{wanted} ({error})"))?;
    let mut install = Command::new("apt-get");
    install
        .args(["--quiet", "--yes", "--no-install-recommends", "install", package])
        .env("DEBIAN_FRONTEND", "noninteractive");
    run::must(&mut install, APT_LIMIT).map_err(|error| format!("{wanted} ({error})"))?;
    Ok(())
}

/// No operation costs more than its size times a logarithm: instructions, counted at two sizes.
pub(crate) fn cost(more: &[String]) -> Result<Tally, String> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        install("Valgrind", "valgrind")?;
    }
    let mut cost = build::program("stoa-cost")?;
    cost.args(more).current_dir(workspace::root());
    let outcome = run::run(&mut cost, PROGRAM_LIMIT)?;
    Ok(tally::plain(&outcome.output).judged(outcome.succeeded()))
}

/// Random requests, the same to Stoa and to Apache ZooKeeper, and the answers compared.
pub(crate) fn oracle(more: &[String]) -> Result<Tally, String> {
    Against::Stoa.prepare()?;
    Against::ZooKeeper.prepare()?;
    let mut oracle = build::program("stoa-oracle")?;
    oracle.args(more).current_dir(workspace::root());
    let outcome = run::run(&mut oracle, PROGRAM_LIMIT)?;
    Ok(tally::plain(&outcome.output).judged(outcome.succeeded()))
}

/// The same `zoo.cfg` read by Stoa and by Apache ZooKeeper's own classes, and what comes out compared.
pub(crate) fn settings(more: &[String]) -> Result<Tally, String> {
    let jars = peer::fetch()?;
    let mut program = build::program("stoa-settings")?;
    program
        .arg("--jars")
        .arg(jars)
        .arg("--program")
        .arg(workspace::suite("settings").join("Effective.java"))
        .args(more)
        .current_dir(workspace::root());
    // What the environment sets would count besides what the files say.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("STOA_")) {
        program.env_remove(name);
    }
    let outcome = run::run(&mut program, PROGRAM_LIMIT)?;
    Ok(tally::plain(&outcome.output).judged(outcome.succeeded()))
}

/// The simulator over a range of seeds.
pub(crate) fn simulation(kind: &[&str], seeds: u64) -> Result<Tally, String> {
    let mut simulator = build::program("stoa-sim")?;
    simulator.args(kind).arg("--seeds").arg(seeds.to_string()).current_dir(workspace::root());
    let outcome = run::run(&mut simulator, PROGRAM_LIMIT)?;
    Ok(tally::plain(&outcome.output).judged(outcome.succeeded()))
}

/// Kills the server under load again and again, and looks for what it must not have lost.
pub(crate) fn kill(against: Against, rounds: u64, more: &[String]) -> Result<Tally, String> {
    against.prepare()?;
    let mut checker = python::command()?;
    checker
        .args(["-m", "pytest", "-p", "no:cacheprovider", "--color", "no", "--quiet"])
        .arg(workspace::suite("kill"))
        .current_dir(workspace::target());
    let checked = run::run(&mut checker, CHECKER_LIMIT)?;
    let mut sum = tally::plain(&checked.output).judged(checked.succeeded());
    let mut program = python::command()?;
    program
        .arg(workspace::suite("kill").join("kill_rounds.py"))
        .arg("--rounds")
        .arg(rounds.to_string())
        .args(more)
        .current_dir(workspace::target())
        .env(SERVER_COMMAND, against.command(&workspace::suite("kill").join("zoo.cfg"))?);
    let limit = Duration::from_secs(120 + 30 * rounds);
    let outcome = run::run(&mut program, limit)?;
    sum += tally::plain(&outcome.output).judged(outcome.succeeded());
    Ok(sum)
}

/// What an ensemble is to kazoo when its servers are stopped and started one by one, and to whoever reads metrics
/// beside one of Apache ZooKeeper.
pub(crate) fn ensemble(more: &[String]) -> Result<Tally, String> {
    Against::Stoa.prepare()?;
    Against::ZooKeeper.prepare()?;
    let mut pytest = python::command()?;
    pytest
        .args(["-m", "pytest", "-p", "no:cacheprovider", "--color", "no", "--durations", "5"])
        .args(["--numprocesses", "2", "--dist", "load"])
        .args(more)
        .arg(workspace::suite("ensemble"))
        .current_dir(workspace::target())
        .env(MEMBER_COMMAND, Against::Stoa.member_command()?)
        .env(PEER_COMMAND, Against::ZooKeeper.member_command()?);
    let outcome = run::run(&mut pytest, ENSEMBLE_LIMIT)?;
    Ok(tally::plain(&outcome.output).judged(outcome.succeeded()))
}

/// Three sites whose servers are killed and whose links are cut.
pub(crate) fn sites(rounds: u64, more: &[String]) -> Result<Tally, String> {
    Against::Stoa.prepare()?;
    let mut program = python::command()?;
    program
        .arg(workspace::suite("sites").join("fault_rounds.py"))
        .arg("--rounds")
        .arg(rounds.to_string())
        .args(more)
        .current_dir(workspace::target())
        .env(SERVER_COMMAND, Against::Stoa.command(&workspace::suite("kill").join("zoo.cfg"))?);
    let outcome = run::run(&mut program, Duration::from_secs(120 + 180 * rounds))?;
    Ok(tally::plain(&outcome.output).judged(outcome.succeeded()))
}

/// TLS with clients from elsewhere, and with hostile ones.
pub(crate) fn tls(more: &[String]) -> Result<Tally, String> {
    Against::Stoa.prepare()?;
    install_missing(&[("openssl", "openssl")])?;
    pytest(&mut python::command()?, "tls", more, TLS_LIMIT)
}

/// SASL in the same way, with a realm of Kerberos of its own.
pub(crate) fn sasl(more: &[String]) -> Result<Tally, String> {
    Against::Stoa.prepare()?;
    install_missing(&[
        ("krb5kdc", "krb5-kdc"),
        ("kadmin.local", "krb5-admin-server"),
        ("kinit", "krb5-user"),
        // The Python package is built.
        ("krb5-config", "libkrb5-dev"),
        ("cc", "build-essential"),
        ("java", "openjdk-17-jdk-headless"),
    ])?;
    let accept = build::example("accept")?;
    pytest(python::command_for("sasl")?.env("SASL_ACCEPT", accept), "sasl", more, SASL_LIMIT)
}

/// The lines of the audit log beside those of Apache ZooKeeper.
pub(crate) fn audit(more: &[String]) -> Result<Tally, String> {
    Against::Stoa.prepare()?;
    Against::ZooKeeper.prepare()?;
    let suite = workspace::suite("audit");
    let config = suite.join("zoo.cfg");
    let modules = ["kazoo", "ensemble"].map(|name| workspace::suite(name).display().to_string());
    let mut pytest = python::command()?;
    pytest
        .args(["-m", "pytest", "-p", "no:cacheprovider", "--color", "no", "--durations", "5"])
        .args(["--numprocesses", "2", "--dist", "loadscope"])
        .args(more)
        .arg(suite)
        .current_dir(workspace::target())
        .env("PYTHONPATH", modules.join(":"))
        .env(SERVER_COMMAND, Against::Stoa.command(&config)?)
        .env(MEMBER_COMMAND, Against::Stoa.member_command()?)
        .env(PEER_COMMAND, Against::ZooKeeper.command(&config)?)
        .env(PEER_MEMBER_COMMAND, Against::ZooKeeper.member_command()?);
    let outcome = run::run(&mut pytest, AUDIT_LIMIT)?;
    Ok(tally::plain(&outcome.output).judged(outcome.succeeded()))
}

/// A suite whose tests start servers of Stoa as they need them.
fn pytest(python: &mut Command, suite: &str, more: &[String], limit: Duration) -> Result<Tally, String> {
    python
        .args(["-m", "pytest", "-p", "no:cacheprovider", "--color", "no", "--durations", "5"])
        .args(["--numprocesses", "2", "--dist", "loadscope"])
        .args(more)
        .arg(workspace::suite(suite))
        .current_dir(workspace::target())
        .env(SERVER_COMMAND, Against::Stoa.command(&peer::config())?);
    let outcome = run::run(python, limit)?;
    Ok(tally::plain(&outcome.output).judged(outcome.succeeded()))
}

/// Installs the Debian package of each command that there is not.
pub(crate) fn install_missing(commands: &[(&str, &str)]) -> Result<(), String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian has what only root needs where others do not look.
    let folders: Vec<_> =
        std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(Into::into)).collect();
    for (command, package) in commands {
        if !folders.iter().any(|folder| folder.join(command).is_file()) {
            install(&format!("the command {command}"), package)?;
        }
    }
    Ok(())
}

/// Programs that people run on ZooKeeper, with an ensemble whose doors are locked.
pub(crate) fn programs(mut arguments: Arguments) -> Result<Tally, String> {
    let long = arguments.flag("--long");
    Against::Stoa.prepare()?;
    let folder = workspace::suite("programs");
    let kafka = peer::fetch_into("kafka", &folder.join("kafka"))?;
    let curator = peer::fetch_into("curator", &folder.join("curator"))?;
    if !Path::new("/usr/lib/postgresql").exists() {
        install("PostgreSQL", "postgresql")?;
    }
    if long && !Path::new("/usr/sbin/krb5kdc").exists() {
        install("MIT's KDC", "krb5-kdc")?;
        install("its administration", "krb5-admin-server")?;
    }
    let mut pytest = python::of_programs()?;
    pytest
        .args(["-m", "pytest", "-p", "no:cacheprovider", "--color", "no", "--durations", "10"])
        // Of a package that reads its files in an old way.
        .args(["-W", "ignore::DeprecationWarning"])
        .args(long.then_some("--long"))
        .args(arguments.rest())
        .arg(folder)
        .current_dir(workspace::target())
        .env(MEMBER_COMMAND, Against::Stoa.member_command()?)
        .env(KAFKA_JARS, kafka)
        .env(CURATOR_JARS, curator);
    let outcome = run::run(&mut pytest, PROGRAMS_LIMIT)?;
    Ok(tally::plain(&outcome.output).judged(outcome.succeeded()))
}

/// Has processes take one lock in all ways, and breaks them, the ensemble and the links between them.
pub(crate) fn locks(rounds: u64, more: &[String]) -> Result<Tally, String> {
    Against::Stoa.prepare()?;
    let mut program = build::program("stoa-locks")?;
    program
        .arg("--rounds")
        .arg(rounds.to_string())
        .args(more)
        .current_dir(workspace::target())
        .env(MEMBER_COMMAND, Against::Stoa.member_command()?);
    let limit = Duration::from_secs(180 + 120 * rounds);
    let outcome = run::run(&mut program, limit)?;
    Ok(tally::plain(&outcome.output).judged(outcome.succeeded()))
}

/// What the benchmarks make of measurements, without servers.
pub(crate) fn benches() -> Result<Tally, String> {
    let mut pytest = python::command()?;
    pytest
        .args(["-m", "pytest", "-p", "no:cacheprovider", "--color", "no"])
        .arg(workspace::root().join("bench"))
        .current_dir(workspace::target());
    let outcome = run::run(&mut pytest, BENCHES_LIMIT)?;
    Ok(tally::plain(&outcome.output).judged(outcome.succeeded()))
}

/// Breaks an ensemble of three under load again and again, and looks for what it must not have lost,
/// repeated or shown.
pub(crate) fn linearizable(against: Against, rounds: u64, more: &[String]) -> Result<Tally, String> {
    against.prepare()?;
    let directory = workspace::suite("linearizable");
    let mut checker = Command::new("go");
    checker.args(["test", "-v", "-count=1", "./..."]).current_dir(&directory);
    let checked = run::run(&mut checker, GO_LIMIT)?;
    let mut sum = tally::go(&checked.output).judged(checked.succeeded());
    let program = workspace::target().join("linearizable");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(".").current_dir(&directory);
    run::must(&mut build, GO_LIMIT)?;
    let mut rounds_of_faults = Command::new(program);
    rounds_of_faults
        .arg("--rounds")
        .arg(rounds.to_string())
        .args(more)
        .current_dir(&directory)
        .env(MEMBER_COMMAND, against.member_command()?);
    if against == Against::ZooKeeper {
        // A leader that was cut off or paused may answer a sync before it notices.
        rounds_of_faults.arg("--allow-stale-reads");
    }
    let limit = Duration::from_secs(120 + 90 * rounds);
    let outcome = run::run(&mut rounds_of_faults, limit)?;
    sum += tally::plain(&outcome.output).judged(outcome.succeeded());
    Ok(sum)
}
