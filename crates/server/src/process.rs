//! What can be told of this process without asking the partition: settings, environment, files, memory.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::admin::AdminTls;
use crate::audit::AuditLog;
use crate::availability::{Availability, Record, Seen};
use crate::complaints::Complaints;
use crate::config::Settings;
use crate::farewell::Farewells;
use crate::peers::PeerTls;
use crate::sasl::ClientSasl;
use crate::tls::ClientTls;
use crate::user::user_name;
use crate::view::NewcomerView;

/// The version in the form of a ZooKeeper version.
///
/// Client libraries and scripts cut the number at the front out of it and choose by it what they may
/// ask (kazoo, for one, goes by `zookeeper.version` of `envi`), so it is that of the ZooKeeper whose
/// protocol is spoken here; what follows says what this really is. The date is fixed, so that two
/// builds of the same source are the same.
pub const VERSION: &str =
    concat!("3.9.5-stoa-", env!("CARGO_PKG_VERSION"), ", built on 2026-11-21 00:00 UTC");

/// What `envi` says of a Java machine.
const NO_JVM: &str = "none";

/// ZooKeeper's trace mask at the start: client requests, server packets, sessions and warnings.
const TRACE_MASK: i64 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8;

/// How far a process is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The state is being read from the disk; nobody is there to be asked.
    Recovering,
    /// The state is there, but the server takes no part in its ensemble, and serves nobody.
    Looking,
    /// Requests are served, be it reads only.
    Serving,
    /// It was told to stop.
    Stopping,
}

/// What a partition does for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serves {
    /// Nothing.
    Nothing,
    /// It answers reads.
    Reads,
    /// Everything.
    All,
}

impl Phase {
    const ALL: [Phase; 4] = [Phase::Recovering, Phase::Looking, Phase::Serving, Phase::Stopping];
}

/// This process, as it is seen from outside.
#[derive(Debug)]
pub struct Process {
    /// What it runs with.
    pub settings: Settings,
    /// The data folder, absolute.
    pub data_dir: PathBuf,
    /// The port that clients connect to; known once it is bound, also when the setting is 0.
    port: AtomicU16,
    /// Kept and told, as ZooKeeper does; nothing here is traced by it.
    trace_mask: AtomicI64,
    life: Life,
    availability: Mutex<Availability>,
    /// Connections of clients that are about to end, and of those that ask words.
    pub(crate) farewells: Arc<Farewells>,
    /// Those of admin HTTP.
    pub(crate) pages: Arc<Farewells>,
    /// About those who come to the client port.
    pub(crate) complaints: Complaints,
    /// TLS of clients, where they have it.
    pub(crate) tls: Option<Arc<ClientTls>>,
    /// TLS with the other servers, where they have it.
    pub(crate) peer_tls: Option<PeerTls>,
    /// TLS of admin HTTP, where it has it.
    pub(crate) admin_tls: Option<Arc<AdminTls>>,
    /// SASL of clients, where it is offered.
    pub(crate) sasl: Option<ClientSasl>,
    /// What it is to be added to the list of servers as, if it is a reader that may be.
    pub(crate) newcomer: Option<NewcomerView>,
    /// The audit log, from the moment that the state is there.
    audit: OnceLock<AuditLog>,
}

/// How far it is.
#[derive(Debug)]
struct Life {
    /// The phase's place in [`Phase::ALL`].
    phase: AtomicU8,
    /// The phase is another one.
    turned: Notify,
}

impl Process {
    /// A process that does not serve yet.
    pub fn new(settings: Settings, port: u16) -> Process {
        let data_dir = std::path::absolute(&settings.data_dir).unwrap_or_else(|_| settings.data_dir.clone());
        let trace_mask = AtomicI64::new(TRACE_MASK);
        let life = Life { phase: AtomicU8::new(Phase::Recovering as u8), turned: Notify::new() };
        let availability = Mutex::new(Availability::new(settings.partition_count()));
        let complaints = Complaints::new("connections to the client port were refused or closed");
        let (farewells, pages) = Default::default();
        Process {
            settings,
            port: AtomicU16::new(port),
            data_dir,
            trace_mask,
            life,
            availability,
            farewells,
            pages,
            complaints,
            tls: None,
            peer_tls: None,
            admin_tls: None,
            sasl: None,
            newcomer: None,
            audit: OnceLock::new(),
        }
    }

    /// The same with TLS and SASL for clients.
    pub(crate) fn with_doors(self, tls: Option<Arc<ClientTls>>, sasl: Option<ClientSasl>) -> Process {
        Process { tls, sasl, ..self }
    }

    /// The same with TLS between servers.
    pub(crate) fn with_peer_tls(self, peer_tls: Option<PeerTls>) -> Process {
        Process { peer_tls, ..self }
    }

    /// The same with TLS for admin HTTP.
    pub(crate) fn with_admin_tls(self, admin_tls: Option<Arc<AdminTls>>) -> Process {
        Process { admin_tls, ..self }
    }

    /// The same as a reader that may be added to the list of servers.
    pub(crate) fn with_newcomer(self, newcomer: Option<NewcomerView>) -> Process {
        Process { newcomer, ..self }
    }

    /// Keeps an audit log from now on.
    pub(crate) fn keep_audit(&self, audit: Option<AuditLog>) {
        if let Some(audit) = audit {
            // It is kept once.
            let _ = self.audit.set(audit);
        }
    }

    /// The audit log, if one is kept.
    pub(crate) fn audit(&self) -> Option<&AuditLog> {
        self.audit.get()
    }

    /// The port that clients connect to.
    pub fn port(&self) -> u16 {
        self.port.load(Ordering::Relaxed)
    }

    /// They connect to this one from now on.
    pub(crate) fn set_port(&self, port: u16) {
        self.port.store(port, Ordering::Relaxed);
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        Phase::ALL[usize::from(self.life.phase.load(Ordering::Acquire))]
    }

    /// Says how far it is. Whoever stops does nothing else any more.
    pub fn set_phase(&self, phase: Phase) {
        if self.phase() != Phase::Stopping {
            self.life.phase.store(phase as u8, Ordering::Release);
            self.life.turned.notify_one();
        }
    }

    /// Waits, for the one who may, until the phase has become another one.
    pub async fn turned(&self) {
        self.life.turned.notified().await;
    }

    /// Says what a partition is. The process serves when all do, or when one only reads: the first
    /// decides that for all.
    pub fn follow(&self, partition: u8, seen: Seen) {
        // Held until the phase is set, so that what is known last is what is said last.
        let mut availability = self.availability.lock().unwrap_or_else(PoisonError::into_inner);
        availability.saw(partition, seen, Instant::now());
        let phase = if availability.is_anything_served() { Phase::Serving } else { Phase::Looking };
        if self.phase() != phase {
            self.set_phase(phase);
        }
    }

    /// What has happened to service since the start, and for how many milliseconds the server has led, if it does.
    pub(crate) fn availability(&self) -> (Record, Option<u64>) {
        self.availability.lock().unwrap_or_else(PoisonError::into_inner).told(Instant::now())
    }

    /// Whether requests are served: after recovery, while the server takes part in its ensemble or is
    /// read-only, until the shutdown.
    pub fn is_serving(&self) -> bool {
        self.phase() == Phase::Serving
    }

    /// Whether everything is served, not only reads.
    pub(crate) fn serves_all(&self) -> bool {
        let availability = self.availability.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_serving() && !availability.only_reads()
    }

    /// The trace mask.
    pub fn trace_mask(&self) -> i64 {
        self.trace_mask.load(Ordering::Relaxed)
    }

    /// Sets the trace mask.
    pub fn set_trace_mask(&self, mask: i64) {
        self.trace_mask.store(mask, Ordering::Relaxed);
    }

    /// The environment, in ZooKeeper's keys and their order. Where there is no Java machine, its properties are
    /// [`NO_JVM`].
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let system = rustix::system::uname();
        let text = |field: &std::ffi::CStr| field.to_string_lossy().into_owned();
        let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| "<NA>".to_owned());
        let current = std::env::current_dir().map(|path| path.display().to_string());
        let memory = Memory::now();
        let megabytes = |bytes: u64| format!("{}MB", bytes >> 20);
        vec![
            ("zookeeper.version", VERSION.to_owned()),
            ("host.name", text(system.nodename())),
            ("java.version", NO_JVM.to_owned()),
            ("java.vendor", NO_JVM.to_owned()),
            ("java.home", NO_JVM.to_owned()),
            ("java.class.path", NO_JVM.to_owned()),
            ("java.library.path", NO_JVM.to_owned()),
            ("java.io.tmpdir", NO_JVM.to_owned()),
            ("java.compiler", NO_JVM.to_owned()),
            ("os.name", text(system.sysname())),
            ("os.arch", text(system.machine())),
            ("os.version", text(system.release())),
            ("user.name", user_name().unwrap_or_else(|| variable("USER"))),
            ("user.home", variable("HOME")),
            ("user.dir", current.unwrap_or_else(|_| "<NA>".to_owned())),
            ("os.memory.free", megabytes(memory.available)),
            ("os.memory.max", megabytes(memory.total)),
            ("os.memory.total", megabytes(memory.resident)),
        ]
    }
}

/// Memory in bytes; 0 where the system does not tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Of this process.
    pub resident: u64,
    /// Addresses that this process has taken.
    pub taken: u64,
    /// Of the machine, not in use.
    pub available: u64,
    /// Of the machine.
    pub total: u64,
}

impl Memory {
    /// As it is now.
    pub fn now() -> Memory {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let machine = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Memory {
            resident: kibibytes(&status, "VmRSS:"),
            taken: kibibytes(&status, "VmSize:"),
            available: kibibytes(&machine, "MemAvailable:"),
            total: kibibytes(&machine, "MemTotal:"),
        }
    }
}

/// The value on the line of `/proc` that begins like this, in bytes.
fn kibibytes(text: &str, beginning: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(beginning));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// How many files are open, and how many may be.
pub fn open_files() -> (u64, u64) {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    // The folder that is read is itself open meanwhile.
    (open.saturating_sub(1), limit.current.unwrap_or(u64::MAX))
}

/// Processor time that this process has used, in seconds.
pub fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// When this process was started, in seconds since 1970, if the system tells.
pub fn started_seconds() -> Option<f64> {
    let own = std::fs::read_to_string("/proc/self/stat").ok()?;
    let machine = std::fs::read_to_string("/proc/stat").ok()?;
    started(&own, &machine, rustix::param::clock_ticks_per_second())
}

/// The same from the texts of `/proc`: ticks since the machine was started stand in the 20th field behind the name,
/// which ends with the last parenthesis.
fn started(own: &str, machine: &str, ticks_per_second: u64) -> Option<f64> {
    let ticks: f64 = own.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let booted = machine.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(booted.trim().parse::<f64>().ok()? + ticks / ticks_per_second as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Mode;

    #[test]
    fn the_version_begins_as_scripts_expect() {
        let number = VERSION.split('-').next().unwrap();
        assert_eq!(number.split('.').filter(|part| part.parse::<u32>().is_ok()).count(), 3);
        assert!(VERSION.contains(", built on "));
    }

    #[test]
    fn a_process_serves_when_all_its_partitions_do() {
        for count in [1, 3, 64] {
            let partitions = Some(crate::config::Partitions::Exactly(count));
            let process = Process::new(Settings { partitions, ..Settings::default() }, 1);
            let follow = |partition, serves| {
                let seen = Seen { serves, leader: Some(1), mode: Mode::Follower, votes: true };
                process.follow(partition, seen);
            };
            for partition in 0..count {
                assert!(!process.is_serving());
                follow(partition, Serves::All);
                let expected = if partition + 1 == count { Phase::Serving } else { Phase::Looking };
                assert_eq!(process.phase(), expected, "{partition} of {count}");
            }
            follow(count - 1, Serves::Nothing);
            assert_eq!(process.phase(), Phase::Looking);
            follow(0, Serves::Reads);
            assert!(process.is_serving(), "the others are as they are");
            follow(0, Serves::Nothing);
            assert_eq!(process.phase(), Phase::Looking);
            follow(0, Serves::All);
            follow(count - 1, Serves::All);
            assert!(process.is_serving());
            process.set_phase(Phase::Stopping);
            follow(0, Serves::Nothing);
            assert_eq!(process.phase(), Phase::Stopping);
        }
    }

    #[test]
    fn whoever_stops_serves_no_more() {
        let process = Process::new(Settings::default(), 2181);
        for phase in Phase::ALL {
            assert_eq!(Phase::ALL[phase as usize], phase);
            process.set_phase(phase);
            assert_eq!((process.phase(), process.is_serving()), (phase, phase == Phase::Serving));
        }
        process.set_phase(Phase::Serving);
        assert_eq!(process.phase(), Phase::Stopping);
    }

    #[test]
    fn this_process_can_be_seen() {
        assert!(Memory::now().resident > 0 && Memory::now().total > Memory::now().resident);
        let (open, limit) = open_files();
        assert!(open > 0 && open < limit);
        assert!(processor_seconds() > 0.0);
    }

    #[test]
    fn the_start_of_a_process_is_read() {
        let own = "42 (a) b) c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 250 20";
        assert_eq!(started(own, "cpu 1\nbtime 1700000000\n", 100), Some(1_700_000_002.5));
        assert_eq!(started("42 (a) S 1", "btime 1\n", 100), None);
        let age = crate::clock::wall_ms() as f64 / 1e3 - started_seconds().unwrap();
        // Both clocks are the machine's; one of them counts whole seconds.
        assert!((-2.0..3_600.0).contains(&age), "{age}");
    }

    #[test]
    fn lines_of_proc_are_read() {
        assert_eq!(kibibytes("A:  12 kB\nVmRSS:\t  34 kB\n", "VmRSS:"), 34 * 1024);
        assert_eq!(kibibytes("nothing", "VmRSS:"), 0);
    }
}
