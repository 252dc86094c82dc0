//! How far work is that takes longer than a second: a bar on a terminal, a line a second in a log.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that is faster than this is over before anybody asks how far it is.
const QUIET: Duration = Duration::from_secs(1);
const BETWEEN_LINES: Duration = Duration::from_secs(1);

/// Shows how far a piece of work is.
pub struct Progress {
    what: &'static str,
    began: Instant,
    last_line: Instant,
    /// Only on a terminal, and only once the work takes long.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Begins a piece of work, named in a word such as `recovery`.
    pub fn new(what: &'static str) -> Progress {
        let now = Instant::now();
        Progress { what, began: now, last_line: now, bar: None }
    }

    /// Says how many bytes of how many are done, and what is being done with them.
    pub fn show(&mut self, done_bytes: u64, total_bytes: u64, step: &str) {
        if self.began.elapsed() < QUIET {
            return;
        }
        if std::io::stderr().is_terminal() {
            let what = self.what;
            let bar = self.bar.get_or_insert_with(|| begin_bar(what));
            bar.set_length(total_bytes);
            bar.set_position(done_bytes);
            if bar.message() != step {
                bar.set_message(step.to_owned());
            }
        } else if self.last_line.elapsed() >= BETWEEN_LINES {
            self.last_line = Instant::now();
            tracing::info!("{}: {step}, {} %", self.what, percent(done_bytes, total_bytes));
        }
    }

    /// Ends it.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        if self.began.elapsed() >= QUIET {
            tracing::info!("{}: done in {:.1} s", self.what, self.began.elapsed().as_secs_f64());
        }
    }
}

/// Every bar there is; log lines are written between redraws of them.
static BARS: std::sync::LazyLock<MultiProgress> =
    std::sync::LazyLock::new(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr()));

/// Writes to standard error without tearing a bar apart.
pub(crate) fn above_bars(write: impl FnOnce() -> std::io::Result<usize>) -> std::io::Result<usize> {
    BARS.suspend(write)
}

fn begin_bar(what: &'static str) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{prefix} [{bar:40}] {percent:>3} % {bytes}/{total_bytes} {msg}")
            .expect("the template is well formed")
            .progress_chars("=> ");
    BARS.add(ProgressBar::new(0).with_style(style).with_prefix(what))
}

fn percent(done: u64, total: u64) -> u64 {
    (u128::from(done.min(total)) * 100).checked_div(u128::from(total)).map_or(100, |percent| percent as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_stays_between_nothing_and_all() {
        assert_eq!(percent(0, 10), 0);
        assert_eq!(percent(5, 10), 50);
        assert_eq!(percent(11, 10), 100);
        assert_eq!(percent(u64::MAX, u64::MAX), 100);
        assert_eq!(percent(0, 0), 100);
    }

    #[test]
    fn short_work_draws_nothing() {
        let mut progress = Progress::new("test");
        progress.show(1, 2, "halfway");
        assert!(progress.bar.is_none());
        progress.finish();
    }
}
