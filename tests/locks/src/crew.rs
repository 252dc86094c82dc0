//! The client processes of a round.

use std::cell::RefCell;
use std::process::{Command, Stdio};
use std::time::Duration;

use stoa_client::recipes::Primitive;
use tokio::time::{sleep, timeout};

use crate::client::ADAPTIVE;
use crate::ensemble::Ensemble;
use crate::guard::Guard;
use crate::process::Process;

/// What a client asks for; the servers take it.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(2);
/// Longer than a session has to close on a busy machine.
const CLOSE_PATIENCE: Duration = Duration::from_secs(30);

/// The ways in which the clients take the lock, by their numbers: all primitives, and two that choose.
pub(crate) fn ways() -> Vec<&'static str> {
    Primitive::ALL.iter().map(|primitive| primitive.name()).chain([ADAPTIVE; 2]).collect()
}

/// Clients, each a process that takes the lock in its way.
#[derive(Debug)]
pub(crate) struct Crew<'a> {
    ensemble: &'a Ensemble,
    guard: &'a Guard,
    seed: u64,
    /// Where the lock of each is: the same for all, or they have different ones.
    paths: Vec<String>,
    processes: RefCell<Vec<Process>>,
}

impl<'a> Crew<'a> {
    /// Starts a process for each path.
    pub(crate) fn start(
        ensemble: &'a Ensemble,
        guard: &'a Guard,
        seed: u64,
        paths: Vec<String>,
    ) -> Result<Self, String> {
        let this = Self { ensemble, guard, seed, paths, processes: RefCell::default() };
        for number in 0..this.paths.len() {
            let process = this.start_one(number)?;
            this.processes.borrow_mut().push(process);
        }
        Ok(this)
    }

    fn start_one(&self, number: usize) -> Result<Process, String> {
        let own = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
        let ways = ways();
        let mut command = Command::new(own);
        command.stdin(Stdio::null()).arg("client");
        let mut option = |name: &str, value: &str| {
            command.arg(name).arg(value);
        };
        option("--number", &number.to_string());
        option("--servers", &self.ensemble.addresses(number));
        option("--session-timeout-ms", &SESSION_TIMEOUT.as_millis().to_string());
        option("--path", &self.paths[number]);
        option("--way", ways[number % ways.len()]);
        option("--resource", &self.guard.address.to_string());
        option("--seed", &(self.seed ^ number as u64).to_string());
        if number % 2 == 1 {
            command.arg("--direct");
        }
        Process::start(&mut command)
    }

    /// Ends one without a word.
    pub(crate) fn kill(&self, number: usize) {
        self.processes.borrow_mut()[number].kill();
    }

    /// Starts another one in the place of one that was killed.
    pub(crate) fn replace(&self, number: usize) -> Result<(), String> {
        let process = self.start_one(number)?;
        self.processes.borrow_mut()[number] = process;
        Ok(())
    }

    pub(crate) fn pause(&self, number: usize) {
        self.processes.borrow()[number].pause();
    }

    pub(crate) fn resume(&self, number: usize) {
        self.processes.borrow()[number].resume();
    }

    /// Those that have ended, though nobody has told them to.
    pub(crate) fn dead(&self) -> Vec<usize> {
        let mut processes = self.processes.borrow_mut();
        let ended = processes.iter_mut().enumerate().filter_map(|(number, it)| it.ended().map(|_| number));
        ended.collect()
    }

    /// Has all close their sessions and end. Returns those that do not.
    pub(crate) async fn close(self) -> Vec<usize> {
        self.guard.close();
        let mut left: Vec<_> = self.processes.take().into_iter().enumerate().collect();
        let mut failed = Vec::new();
        let closed = async {
            while !left.is_empty() {
                left.retain_mut(|(number, process)| match process.ended() {
                    Some(is_well) => {
                        failed.extend((!is_well).then_some(*number));
                        false
                    }
                    None => true,
                });
                sleep(Duration::from_millis(10)).await;
            }
        };
        let is_late = timeout(CLOSE_PATIENCE, closed).await.is_err();
        failed.extend(left.iter().filter(|_| is_late).map(|(number, _)| *number));
        failed
    }
}
