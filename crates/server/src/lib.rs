//! The server: the only room with threads, sockets, files and clocks.
//!
//! | thread | what it does |
//! | --- | --- |
//! | main | the partition, or the first of several: client connections, the core, timers ([`driver`]) |
//! | partition-K | the same for each further partition ([`threads`]) |
//! | log | writes and syncs entries, whatever has queued up at a time ([`log_thread`]) |
//! | snapshot | writes snapshots ([`snapshot_thread`]) |
//! | audit | writes the audit log, where there is one ([`audit`]) |
//! | admin | HTTP for operators and metrics ([`admin`]) |

pub mod admin;
mod alarm;
mod audit;
pub mod availability;
mod clock;
mod complaints;
pub mod config;
mod date;
mod driver;
mod ensemble;
mod farewell;
pub mod file_disk;
mod foreign;
mod inbox;
mod known_disks;
mod listen;
mod lists;
mod log_thread;
pub mod logging;
mod logins_file;
mod meter;
pub mod metrics;
mod occupied;
mod openings;
mod own_ports;
pub mod partitions_file;
mod peers;
mod priority;
pub mod process;
pub mod progress;
mod random;
mod recover;
mod recovery;
mod role;
mod sasl;
mod serve;
mod sites;
mod snapshot_thread;
mod source;
mod standstill;
mod starts_file;
mod threads;
mod tls;
mod together;
mod user;
pub mod view;
mod whole_file;
pub mod words;
mod zookeeper_files;

use std::io::Write as _;
use std::process::ExitCode;

use config::ServeArgs;
pub use peers::check_reader_frames;
pub use sites::check_site_greeting;

/// Switches huge pages off for this process; to be called first of all, while nothing is allocated.
///
/// The allocator asks for huge pages, and the first allocation of each size then touches a whole one:
/// measured, 18 MiB more at start and 22 MiB more with 10,000 idle sessions.
pub fn keep_pages_small() {
    // Where the system cannot be asked, the process is only larger.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Makes the data folder that a server with these settings would use that of an ensemble of its own, because the
/// majority of the one that it belonged to is lost for good; only if the operator has `confirmed` that. What was found
/// and done goes to standard output. The exit code is 2 when the settings are wrong, and 1 when nothing was changed.
pub fn recover(arguments: &ServeArgs, confirmed: bool) -> ExitCode {
    let loaded = match arguments.load() {
        Ok(loaded) => loaded,
        Err(error) => {
            eprintln!("stoa: {error}");
            return ExitCode::from(2);
        }
    };
    match recover::recover(&loaded.settings, confirmed) {
        Ok(done) => {
            // It is done, whoever reads of it.
            let _ = writeln!(std::io::stdout(), "{done}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("stoa: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a server with the settings that flags, environment and file give, until it is told to stop.
/// The exit code is 2 when the settings are wrong and 1 when the server could not start or go on.
pub fn run(arguments: &ServeArgs) -> ExitCode {
    let loaded = match arguments.load() {
        Ok(loaded) => loaded,
        Err(error) => {
            eprintln!("stoa: {error}");
            return ExitCode::from(2);
        }
    };
    let problem = logging::start(&loaded.settings);
    tracing::info!("stoa {}; {}", env!("CARGO_PKG_VERSION"), loaded.summary());
    for note in &loaded.notes {
        tracing::info!("{note}");
    }
    for warning in loaded.warnings.iter().chain(&problem) {
        tracing::warn!("{warning}");
    }
    let data_dir = &loaded.settings.data_dir;
    let begin = zookeeper_files::refuse(data_dir, loaded.zookeeper_log_dir.as_deref());
    match begin.and_then(|()| serve::serve(loaded.settings, loaded.fixed)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}
