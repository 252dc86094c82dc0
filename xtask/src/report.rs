//! The steps of a run, their times and counts, and the summary at its end.

use std::time::{Duration, Instant};

use crate::run::{self, Failure};
use crate::tally::Tally;

struct Step {
    name: &'static str,
    took: Duration,
    tally: Tally,
}

/// What has been run so far.
#[derive(Default)]
pub(crate) struct Report {
    steps: Vec<Step>,
}

impl Report {
    /// Runs one step. An error counts as one failure, and the steps after it run all the same: one
    /// run shows all that is broken.
    pub(crate) fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<Tally, String>) {
        println!("\n=== {name}");
        let begun = Instant::now();
        let tally = work().unwrap_or_else(|message| {
            println!("{name}: {message}");
            Tally::one(false)
        });
        let took = begun.elapsed();
        println!("=== {name}: {} passed, {} failed, {:.1} s", tally.passed, tally.failed, took.as_secs_f64());
        self.steps.push(Step { name, took, tally });
    }

    /// Prints the summary, and once more what programs that failed said last: who sees only the end of a long run sees
    /// why. The last line is `N passed, N failed`. Says whether all passed.
    pub(crate) fn finish(&self) -> bool {
        let mut sum = Tally::default();
        let mut took = Duration::ZERO;
        println!("\n{:<14}{:>9}{:>9}{:>11}", "step", "passed", "failed", "seconds");
        for step in &self.steps {
            let Step { name, took: time, tally } = step;
            println!("{name:<14}{:>9}{:>9}{:>11.1}", tally.passed, tally.failed, time.as_secs_f64());
            sum += *tally;
            took += *time;
        }
        println!("{:<32}{:>11.1}", "", took.as_secs_f64());
        for Failure { command, end } in run::failures() {
            println!("\n=== has failed: {command}\n{end}");
        }
        println!("{} passed, {} failed", sum.passed, sum.failed);
        sum.failed == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_fails_the_run() {
        let mut report = Report::default();
        report.step("good", || Ok(Tally { passed: 2, failed: 0 }));
        assert!(report.finish());
        report.step("broken", || Err("could not start".to_owned()));
        report.step("good again", || Ok(Tally { passed: 1, failed: 0 }));
        assert_eq!(report.steps.len(), 3);
        assert!(!report.finish());
    }
}
