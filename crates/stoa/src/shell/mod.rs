//! `stoa shell`, and each of its words as a command: `stoa get /a`.
//!
//! Words, flags and output are those of ZooKeeper's own shell, zkCli, so that scripts and habits
//! carry over; `--json` gives scripts something better to read.

mod answer;
mod arguments;
mod complete;
mod date;
mod interactive;
mod one_shot;
mod quota;
mod reconfig;
mod session;
mod status;
mod tree;
mod watches;
mod words;

use std::time::Duration;

use clap::Args;
use stoa_client::Options;
use stoa_client::tls::Tls;

use crate::failure::{Failure, Result};
use crate::tls::TlsArgs;

pub(crate) use date::date;
pub(crate) use one_shot::{begins_with_option, run as run_word};
pub(crate) use words::overview;

/// Where to connect and how to answer.
#[derive(Debug, Clone, Args)]
pub(crate) struct ShellArgs {
    /// Servers, and a chroot if wanted: host:port,host:port/chroot
    #[arg(long, env = "STOA_SERVER", default_value = DEFAULT_SERVER, value_name = "HOST:PORT")]
    server: String,
    /// Answer in JSON, one object a line
    #[arg(long)]
    json: bool,
    /// Session timeout
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    timeout: u32,
    /// An identity to have from the start, as in digest:user:password; may be repeated
    #[arg(long, value_name = "SCHEME:AUTH")]
    auth: Vec<String>,
    /// Be content with a server that only answers reads
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    tls: TlsArgs,
}

const DEFAULT_SERVER: &str = "127.0.0.1:2181";
/// A shell should not hang for long on a server that is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

impl ShellArgs {
    /// What is said first of who asks, as `SCHEME:PROOF`.
    pub(crate) fn first_auth(&self) -> Option<&str> {
        self.auth.first().map(String::as_str)
    }

    /// How a client connects by them.
    pub(crate) fn options(&self) -> Result<Options> {
        let mut options = Options::new(&self.server)
            .map_err(Failure::usage)?
            .session_timeout(Duration::from_secs(self.timeout.into()))
            .connect_timeout(CONNECT_TIMEOUT)
            .call_timeout(CALL_TIMEOUT)
            .read_only(self.read_only);
        for identity in &self.auth {
            let Some((scheme, auth)) = identity.split_once(':') else {
                return Err(Failure::usage(format!("--auth {identity} does not have the form scheme:auth")));
            };
            options = options.identity(scheme, auth.as_bytes());
        }
        Ok(match self.tls()? {
            Some(tls) => options.tls(tls),
            None => options,
        })
    }

    /// The TLS that they ask for, if they do.
    pub(crate) fn tls(&self) -> Result<Option<Tls>> {
        self.tls.tls()
    }

    /// Whether answers are JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }
}

/// `stoa shell`.
pub(crate) fn run(args: ShellArgs) -> Result<()> {
    interactive::run(args)
}
