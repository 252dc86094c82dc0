//! `stoa proxy`: links that take as long as those between data centres.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use stoa_proxy::{Link, Spec};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Context as _, Failure, Result};

#[derive(Debug, Args)]
pub(crate) struct ProxyArgs {
    /// Where to listen, for one link
    #[arg(long, requires = "to", value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Where to connect to for whoever comes
    #[arg(long, requires = "listen", value_name = "HOST:PORT")]
    to: Option<String>,
    /// One way, of all links that say nothing else: a round trip takes twice as long
    #[arg(long, value_name = "TIME")]
    delay: Option<String>,
    /// By how much more or less it may be
    #[arg(long, value_name = "TIME")]
    jitter: Option<String>,
    /// The share of segments that are lost and sent again
    #[arg(long, value_name = "PERCENT")]
    loss: Option<String>,
    /// Bits a second, as in 10mbit
    #[arg(long, value_name = "RATE")]
    bandwidth: Option<String>,
    /// A link: LISTEN=TO, and what is different, as in `127.0.0.1:4001=127.0.0.1:2181,delay=25ms,down.loss=1%`
    #[arg(long = "link", value_name = "LINK")]
    links: Vec<String>,
    /// Links from a file, one a line; `#` begins a remark
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl ProxyArgs {
    /// All links, from the options and from the file.
    fn specs(&self) -> Result<Vec<Spec>> {
        let mut specs = Vec::new();
        if let (Some(listen), Some(to)) = (&self.listen, &self.to) {
            specs.push(self.spec(&format!("{listen}={to}")).map_err(Failure::usage)?);
        }
        for text in &self.links {
            specs.push(self.spec(text).map_err(Failure::usage)?);
        }
        if let Some(file) = &self.file {
            specs.extend(self.read_file(file)?);
        }
        if specs.is_empty() {
            return Err(Failure::usage("there is no link: say --listen and --to, --link or --file"));
        }
        Ok(specs)
    }

    /// A link, as it is written behind what is said of all.
    fn spec(&self, text: &str) -> std::result::Result<Spec, String> {
        let (addresses, own) = text.split_once(',').map_or((text, None), |(one, other)| (one, Some(other)));
        let mut whole = addresses.to_owned();
        let all = [
            ("delay", &self.delay),
            ("jitter", &self.jitter),
            ("loss", &self.loss),
            ("bandwidth", &self.bandwidth),
        ];
        for (name, value) in all {
            if let Some(value) = value {
                whole.push_str(&format!(",{name}={value}"));
            }
        }
        if let Some(own) = own {
            whole.push_str(&format!(",{own}"));
        }
        whole.parse()
    }

    fn read_file(&self, file: &Path) -> Result<Vec<Spec>> {
        let text = fs::read_to_string(file).context(format!("cannot read {}", file.display()))?;
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        let links = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let parse = |(number, line)| {
            self.spec(line).map_err(|error| Failure::usage(format!("{}:{number}: {error}", file.display())))
        };
        links.map(parse).collect()
    }
}

/// Carries bytes until it is told to stop.
pub(crate) fn run(args: &ProxyArgs) -> Result<()> {
    let specs = args.specs()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let mut links = Vec::new();
        let listen = |kind| signal(kind).context("cannot listen to signals");
        let (mut interrupt, mut terminate) =
            (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        for spec in &specs {
            let link = Link::open(spec).await.context(format!("cannot listen on {}", spec.listen))?;
            let ways = if spec.up == spec.down {
                spec.up.to_string()
            } else {
                format!("up: {}; down: {}", spec.up, spec.down)
            };
            writeln!(io::stdout(), "{} -> {}: {ways}", link.address(), spec.to).context("cannot print")?;
            links.push(link);
        }
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        for link in links {
            link.close().await;
        }
        Ok(())
    })
}
