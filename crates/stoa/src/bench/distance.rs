//! How far the clients of a run are from its servers: links in this process.

use std::time::Duration;

use clap::Args;
use stoa_client::tls::Tls;
use stoa_client::{Client, Options};
use stoa_proxy::{Link, Quality, Spec};

use super::run::Target;
use crate::failure::{Context as _, Failure, Result};

/// Options that say how far.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct DistanceArgs {
    /// Round trip between clients and servers, on top of what there is
    #[arg(long, default_value = "0", value_name = "MS", value_parser = milliseconds)]
    pub(super) rtt_ms: Duration,
    /// By how much more or less it may be
    #[arg(long, default_value = "0", value_name = "MS", value_parser = milliseconds)]
    pub(super) jitter_ms: Duration,
}

/// A time from the command line, in milliseconds.
pub(super) fn milliseconds(text: &str) -> std::result::Result<Duration, String> {
    let ms: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of milliseconds"))?;
    Duration::try_from_secs_f64(ms / 1e3)
        .ok()
        .filter(|time| *time <= Duration::from_secs(3600))
        .ok_or_else(|| format!("{text:?} milliseconds are out of range"))
}

/// A time as it stands in a report.
pub(super) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The servers as the clients see them.
pub(super) struct Distance {
    servers: Vec<(String, Option<Tls>)>,
    timeout: Duration,
    /// They end when they are dropped.
    _links: Vec<Link>,
}

impl Distance {
    /// Opens a link to each of the servers; none, where it would be no distance.
    pub(super) async fn open(target: &Target, args: DistanceArgs) -> Result<Self> {
        let quality = Quality { delay: args.rtt_ms / 2, jitter: args.jitter_ms / 2, ..Quality::default() };
        let tls = target.tls.tls()?;
        let behind = |server: &String| (server.clone(), tls.as_ref().map(|tls| tls.behind(server)));
        let mut servers: Vec<_> = target.server.iter().map(behind).collect();
        let mut links = Vec::new();
        if quality != Quality::default() {
            for (address, _) in &mut servers {
                let spec = Spec { up: quality, down: quality, ..Spec::new("127.0.0.1:0", address) };
                let link = Link::open(&spec).await.context(format!("cannot open a link to {address}"))?;
                *address = link.address().to_string();
                links.push(link);
            }
        }
        Ok(Self { servers, timeout: target.timeout, _links: links })
    }

    /// A session at the server whose turn it is.
    pub(super) async fn connect(&self, number: usize) -> Result<Client> {
        connect(self.server(number), self.timeout).await
    }

    /// So many sessions, spread over the servers, that see what was written before. They are opened at the same time,
    /// or it would take long from afar.
    pub(super) async fn connect_all(&self, count: usize) -> Result<Vec<Client>> {
        let timeout = self.timeout;
        let open = |server| async move {
            let client = connect(server, timeout).await?;
            client.sync("/").await.map_err(|code| Failure::failed(format!("cannot sync: {code}")))?;
            Ok(client)
        };
        let opening: Vec<_> = (0..count).map(|number| tokio::spawn(open(self.server(number)))).collect();
        let mut clients = Vec::new();
        for client in opening {
            clients.push(client.await.context("a client has panicked")??);
        }
        Ok(clients)
    }

    fn server(&self, number: usize) -> (String, Option<Tls>) {
        self.servers[number % self.servers.len()].clone()
    }
}

/// A session at a server, which is an address, with TLS or without.
pub(super) async fn connect((address, tls): (String, Option<Tls>), timeout: Duration) -> Result<Client> {
    let mut options = Options::new(&address).map_err(Failure::usage)?;
    if let Some(tls) = tls {
        options = options.tls(tls);
    }
    Client::connect(options.session_timeout(timeout)).await.map_err(Failure::failed)
}

/// Closes sessions, all at the same time.
pub(super) async fn close_all(clients: Vec<Client>) -> Result<()> {
    let close = |client: Client| tokio::spawn(async move { client.close().await });
    let closing: Vec<_> = clients.into_iter().map(close).collect();
    for closed in closing {
        let closed = closed.await.context("a client has panicked")?;
        closed.map_err(|code| Failure::failed(format!("cannot close a session: {code}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_milliseconds() {
        assert_eq!(milliseconds("0.25"), Ok(Duration::from_micros(250)));
        assert_eq!(ms(milliseconds("1500").unwrap()), 1500.0);
        for wrong in ["", "1ms", "-1", "inf", "1e9"] {
            assert!(milliseconds(wrong).is_err(), "{wrong}");
        }
    }
}
