//! What a process has used so far, as Linux counts it.

use crate::failure::{Context as _, Failure, Result};

/// CPU time and memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    /// User and system time of all its threads, microseconds. The kernel counts in ticks of 10 ms.
    pub(crate) cpu_us: u64,
    /// Resident memory, KiB.
    pub(crate) rss_kib: u64,
}

impl Usage {
    /// The sum over several processes; `None` when there are none.
    pub(crate) fn of_all(pids: &[u32]) -> Result<Option<Self>> {
        let mut sum: Option<Self> = None;
        for &pid in pids {
            let one = Self::of(pid)?;
            let before = sum.unwrap_or(Self { cpu_us: 0, rss_kib: 0 });
            sum = Some(Self { cpu_us: before.cpu_us + one.cpu_us, rss_kib: before.rss_kib + one.rss_kib });
        }
        Ok(sum)
    }

    /// Reads the figures of the process `pid`.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let read = |file: &str| {
            let path = format!("/proc/{pid}/{file}");
            std::fs::read_to_string(&path).context(format!("cannot read {path}"))
        };
        let ticks = cpu_ticks(&read("stat")?)
            .ok_or_else(|| Failure::failed(format!("/proc/{pid}/stat has no CPU times")))?;
        let rss_kib = rss_kib(&read("status")?)
            .ok_or_else(|| Failure::failed(format!("/proc/{pid}/status has no line VmRSS")))?;
        let cpu_us = ticks * 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
        Ok(Self { cpu_us, rss_kib })
    }
}

/// User and system time from a `stat` line. The second field, the name, may contain anything, so
/// fields are counted from its closing parenthesis.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn rss_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_an_odd_name() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 3 0 100 1 2 3";
        assert_eq!(cpu_ticks(stat), Some(300));
    }

    #[test]
    fn memory_is_read_in_kib() {
        assert_eq!(rss_kib("Name:\tx\nVmRSS:\t   1234 kB\nThreads:\t1\n"), Some(1234));
    }

    #[test]
    fn the_figures_of_processes_are_added_up() {
        let own = std::process::id();
        let one = Usage::of(own).unwrap().rss_kib;
        let three = Usage::of_all(&[own, own, own]).unwrap().unwrap().rss_kib;
        assert!(three >= one * 2, "{three} KiB for three, {one} KiB for one");
        assert_eq!(Usage::of_all(&[]), Ok(None));
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(Usage::of(std::process::id()).unwrap().rss_kib > 0);
    }
}
