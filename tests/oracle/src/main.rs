//! `stoa-oracle`: sends one random stream to two servers and compares every answer.
#![allow(clippy::print_stdout, reason = "it is a program for the terminal")]

use clap::Parser;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use stoa_oracle::generate::{Generator, Step};
use stoa_oracle::pair::{Pair, Stop};
use stoa_oracle::servers::{Kind, Server};
use stoa_oracle::shrink::{Trial, shrink};
use stoa_wire::Opcode;

#[derive(Debug, Parser)]
#[command(about = "The same random requests to two servers, every answer compared")]
struct Options {
    /// Requests to send.
    #[arg(long, default_value_t = 100_000)]
    requests: u64,
    /// Gives the stream: the same seed, the same requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Sessions that take turns (the superuser's comes on top); 8, or 1 where there are several partitions.
    #[arg(long)]
    sessions: Option<usize>,
    /// Partitions of the server to judge. With several, less can be said of zxids.
    #[arg(long, env = "STOA_PARTITIONS", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    partitions: u8,
    /// Most requests that a session has in flight.
    #[arg(long, default_value_t = 96)]
    pipeline: usize,
    /// The server to compare with, host:port; starts Apache ZooKeeper when left out.
    #[arg(long)]
    left: Option<String>,
    /// The server to judge, host:port; starts Stoa when left out.
    #[arg(long)]
    right: Option<String>,
    /// Compare Apache ZooKeeper with itself: shows that the comparison asks for nothing that is chance.
    #[arg(long, conflicts_with = "right")]
    against_itself: bool,
    /// After a difference, look for a short stream that shows it (on servers that it starts itself).
    #[arg(long, conflicts_with_all = ["left", "right"])]
    shrink: bool,
    /// Requests that a report shows: the last of all sessions.
    #[arg(long, default_value_t = 24)]
    context: usize,
    /// Print how often each opcode was answered with each error code.
    #[arg(long)]
    coverage: bool,
    /// Record the golden transcripts from Apache ZooKeeper into this folder, and do nothing else.
    #[arg(long)]
    record: Option<PathBuf>,
}

impl Options {
    fn kinds(&self) -> (Kind, Kind) {
        (Kind::ZooKeeper, if self.against_itself { Kind::ZooKeeper } else { Kind::Stoa(self.partitions) })
    }

    fn generator(&self) -> Generator {
        Generator::new(self.seed, self.sessions(), self.pipeline)
    }

    fn sessions(&self) -> usize {
        self.sessions.unwrap_or(if self.partitions > 1 { 1 } else { 8 })
    }

    fn replay(&self) -> String {
        let Self { requests, seed, partitions, pipeline, .. } = self;
        let sessions = self.sessions();
        let itself = if self.against_itself { " --against-itself" } else { "" };
        format!(
            "stoa-oracle --requests {requests} --seed {seed} --partitions {partitions} --sessions {sessions} \
             --pipeline {pipeline}{itself} --shrink"
        )
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = match &options.record {
        Some(folder) => stoa_oracle::golden::record(folder).map(|files| {
            println!("{files} transcripts recorded");
            true
        }),
        None => run(&options),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("stoa-oracle: {message}");
            ExitCode::from(2)
        }
    }
}

/// The two servers of a run: those that were named, or started here.
struct Setting {
    started: Vec<Server>,
    pair: Pair,
}

impl Setting {
    fn new(options: &Options) -> Result<Self, String> {
        let (left, right) = options.kinds();
        let mut started = Vec::new();
        let mut address = |given: &Option<String>, kind| match given {
            Some(given) => resolve(given),
            None => {
                let server = Server::start(kind)?;
                let address = server.address;
                started.push(server);
                Ok(address)
            }
        };
        let (left, right) = (address(&options.left, left)?, address(&options.right, right)?);
        let slots = Generator::slots(options.sessions());
        Ok(Self { started, pair: Pair::new(left, right, slots, options.partitions) })
    }
}

fn resolve(address: &str) -> Result<SocketAddr, String> {
    let mut found = address.to_socket_addrs().map_err(|error| format!("{address}: {error}"))?;
    found.next().ok_or_else(|| format!("{address}: no such address"))
}

/// Answers whether there was no difference.
fn run(options: &Options) -> Result<bool, String> {
    let mut setting = Setting::new(options)?;
    let begun = Instant::now();
    let mut steps = 0;
    let outcome = drive(&mut setting.pair, options, &mut steps);
    let seconds = begun.elapsed().as_secs_f64();
    let pair = &setting.pair;
    let (requests, events) = (pair.requests, pair.events);
    let [left, right] = pair.waited().map(|waited| waited.as_secs_f64());
    println!(
        "{requests} requests in {steps} steps, {events} watch events in {seconds:.1} s ({:.0} requests/s; \
         waited {left:.1} s for the left server, {right:.1} s for the right)",
        requests as f64 / seconds
    );
    if options.coverage {
        for ((opcode, err), count) in &pair.answers {
            let name = Opcode::from_i32(*opcode)
                .map_or_else(|| opcode.to_string(), |opcode| opcode.name().to_owned());
            println!("{name:22} {err:5} {count:9}");
        }
    }
    match outcome {
        Ok(()) => {
            println!("no difference\n1 passed, 0 failed");
            Ok(true)
        }
        Err(Stop::Broken(message)) => {
            let outputs: String = setting.started.iter().map(Server::output).collect();
            Err(format!("{message}\n{outputs}"))
        }
        Err(Stop::Difference(difference)) => {
            println!("\ndifference at step {steps}, request {requests}\n");
            println!("the last requests, answered alike:\n{}", context(pair, options.context));
            println!("\n{difference}");
            println!("again, and shorter: {}\n0 passed, 1 failed", options.replay());
            if options.shrink {
                drop(setting);
                show_short(options, steps)?;
            }
            Ok(false)
        }
    }
}

/// The last `requests` requests of all sessions with their answers.
fn context(pair: &Pair, requests: usize) -> String {
    let mut left = requests;
    let wanted = pair.history.iter().rev().take_while(|past| {
        let wanted = left > 0;
        left = left.saturating_sub(past.calls.len());
        wanted
    });
    let mut bursts: Vec<String> = wanted.map(|past| format!("session {}:\n{past}", past.slot)).collect();
    bursts.reverse();
    bursts.concat()
}

fn drive(pair: &mut Pair, options: &Options, steps: &mut usize) -> Result<(), Stop> {
    for step in options.generator() {
        if pair.requests >= options.requests {
            break;
        }
        *steps += 1;
        pair.step(step)?;
    }
    pair.finish()
}

struct Fresh<'o> {
    options: &'o Options,
    setting: Option<Setting>,
}

impl Trial for Fresh<'_> {
    fn fresh(&mut self) -> Result<Pair, String> {
        self.setting = None;
        let mut setting = Setting::new(self.options)?;
        let spare = Pair::new(setting.started[0].address, setting.started[1].address, 0, 1);
        let pair = std::mem::replace(&mut setting.pair, spare);
        self.setting = Some(setting);
        Ok(pair)
    }
}

fn show_short(options: &Options, steps: usize) -> Result<(), String> {
    let steps: Vec<Step> = options.generator().take(steps).collect();
    let (steps, difference) = shrink(&mut Fresh { options, setting: None }, steps)?;
    println!("\n{} steps on empty servers show it:", steps.len());
    for step in &steps {
        println!("  {step}");
    }
    println!("\n{difference}");
    Ok(())
}
