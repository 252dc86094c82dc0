//! `stoa dev`: an ensemble in one terminal, or one for each of several sites, for people who try Stoa out. Servers are
//! processes of their own, so that one can be killed and the others be watched.

mod asked;
mod ensemble;
mod links;
mod plan;
mod process;
mod screen;
mod sites;
mod typed;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use clap::Args;
use tempfile::TempDir;

use crate::certificate;
use crate::failure::{Context as _, Result};

pub(crate) use process::end_with;

/// Everything is on this address: an ensemble to try out is nobody else's business.
const ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// What to start.
#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// How many servers; 3 unless it is said, with --sites as many of each, and 1 unless it is said
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=50), value_name = "N")]
    servers: Option<u8>,
    /// How many readers besides, each below two of the servers; with --sites as many of each
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=50), value_name = "N")]
    readers: Option<u8>,
    /// Several ensembles with one tree, as if each was in a data centre of its own; the first one is the hub
    #[arg(long, value_delimiter = ',', value_parser = sites::site_name, value_name = "NAME,NAME...")]
    sites: Vec<String>,
    /// How far sites are from each other, a line for two of them: SITE SITE MILLISECONDS, there and back; `#` begins a
    /// remark
    #[arg(long, requires = "sites", value_name = "FILE")]
    round_trips: Option<PathBuf>,
    /// The first other site becomes the hub when that is away for ten seconds (setting site-automatic-promotion)
    #[arg(long, requires = "sites")]
    automatic_promotion: bool,
    /// How many partitions each server has, when they are made; 1 unless it is said. With --sites one number for all of
    /// them, or one for each
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=64), value_name = "N,N...")]
    partitions: Vec<u8>,
    /// The first server's port for clients, the others have the ones behind it; 0 lets the system choose
    #[arg(long, default_value_t = 2181)]
    port: u16,
    /// Where data is kept between starts; without it, it is in a temporary folder and removed at the end
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// Where the data is.
enum Folder {
    Kept(PathBuf),
    Temporary(TempDir),
}

impl Folder {
    fn open(args: &DevArgs) -> Result<Folder> {
        if let Some(folder) = &args.data_dir {
            std::fs::create_dir_all(folder)
                .context(format!("cannot make the folder {}", folder.display()))?;
            return Ok(Folder::Kept(folder.clone()));
        }
        let folder = tempfile::Builder::new().prefix("stoa-dev-").tempdir();
        Ok(Folder::Temporary(folder.context("cannot make a temporary folder")?))
    }

    fn path(&self) -> &Path {
        match self {
            Folder::Kept(path) => path,
            Folder::Temporary(folder) => folder.path(),
        }
    }

    /// Removes what was only for now. To be called when nobody writes there any more.
    fn close(self) -> Result<()> {
        match self {
            Folder::Kept(_) => Ok(()),
            Folder::Temporary(folder) => {
                let what = format!("cannot remove {}", folder.path().display());
                folder.close().context(what)
            }
        }
    }
}

/// Each two sites have sockets of their own, which for many sites are more than most systems allow at first.
fn allow_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // What is not allowed is said when there are too many.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Runs an ensemble until it is told to stop.
pub(crate) fn run(args: &DevArgs) -> Result<()> {
    let sites = sites::make(&args.sites, args.round_trips.as_deref())?;
    if !sites.is_empty() {
        allow_files();
    }
    let folder = Folder::open(args)?;
    let count = args.servers.unwrap_or(if sites.is_empty() { 3 } else { 1 });
    let mut plan = plan::make(count, args.port, folder.path(), sites)?;
    if !plan.sites.is_empty() {
        certificate::make_for_this_machine(folder.path())?;
    }
    plan.add_readers(args.readers.unwrap_or(0), args.port)?;
    plan.partitions = plan::partitions(&args.partitions, plan.sites.len())?;
    plan.is_automatic = args.automatic_promotion;
    // The system tells children of the end of the thread that started them, not of its process: this
    // thread starts them all, and stays until the end.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(ensemble::run(plan, matches!(folder, Folder::Temporary(_))));
    drop(runtime);
    result.and(folder.close())
}
