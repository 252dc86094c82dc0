//! TLS of clients: who may have it, what it proves, and when its files have changed.
//!
//! A connection begins here where it may have TLS: its first byte says whether it has, the handshake is done on other
//! threads ([`handshakes`]), and a partition's thread is given the socket with the TLS on it ([`channel`]) and with the
//! identities that the client's certificate proves.

mod channel;
mod files;
mod handshakes;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::{ServerConfig, ServerConnection};
use stoa_keys::{Choice, ClientTrust, Demand, server_config};
use stoa_tree::Identity;
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(crate) use channel::Channel;
pub(crate) use files::{Files, Reloaded};
use handshakes::{Done, Failed, Handshakes};

use crate::config::{ClientCertificates, Settings, TlsOnPort};
use crate::farewell::Farewells;
use crate::foreign::Foreign;
use crate::view;

const TOO_MANY: &str =
    "too many TLS handshakes are under way (settings tls-max-handshakes, max-connections-per-address)";

const NOT_TLS: &str = "it does not begin with TLS, which all clients of this port have";

/// Why somebody is not let in.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// For what his handshake has shown, or that it was none.
    Handshake(String),
    /// For something else.
    Other(String),
    /// Nobody is there any more, or he has nothing to say.
    Gone,
}

/// What somebody without TLS is answered who should have it: by this a client can tell what the port is. It is the
/// fatal alert `unexpected_message` (RFC 8446, 6).
const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 10];

/// A client's socket, and what is known of it.
#[derive(Debug)]
pub(crate) struct Accepted<S = TcpStream> {
    pub(crate) socket: S,
    pub(crate) address: SocketAddr,
    /// Where it has TLS.
    pub(crate) channel: Option<Channel>,
    /// What its certificate proves.
    pub(crate) identities: Vec<Identity>,
}

impl Accepted {
    /// One in the clear.
    pub(crate) fn plain(socket: TcpStream, address: SocketAddr) -> Self {
        Self { socket, address, channel: None, identities: Vec::new() }
    }

    /// To be handed to another thread.
    pub(crate) fn detach(self) -> io::Result<Accepted<std::net::TcpStream>> {
        let Self { socket, address, channel, identities } = self;
        Ok(Accepted { socket: socket.into_std()?, address, channel, identities })
    }
}

impl Accepted<std::net::TcpStream> {
    /// For the calling thread, whose runtime it belongs to from now on.
    pub(crate) fn attach(self) -> io::Result<Accepted> {
        let Self { socket, address, channel, identities } = self;
        Ok(Accepted { socket: TcpStream::from_std(socket)?, address, channel, identities })
    }
}

/// What a server shows its clients, and whom of them it takes.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) config: Arc<ServerConfig>,
    trust: Arc<ClientTrust>,
}

impl Terms {
    pub(crate) fn new(config: ServerConfig, trust: Arc<ClientTrust>) -> Self {
        Self { config: Arc::new(config), trust }
    }

    /// Looks at what time may have changed since a client got the ticket with which he came back.
    ///
    /// # Errors
    /// Why he is not taken.
    pub(crate) fn check_resumed(&self, tls: &ServerConnection) -> Result<(), rustls::Error> {
        self.trust.check_resumed(tls, UnixTime::now())
    }
}

/// What is counted, see [`view::Tls`].
#[derive(Debug, Default)]
struct TlsCounts {
    done: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    exceeded: AtomicU64,
}

/// What is asked of a client.
pub(crate) fn demand(asked: ClientCertificates) -> Demand {
    match asked {
        ClientCertificates::None => Demand::None,
        ClientCertificates::Want => Demand::Want,
        ClientCertificates::Need => Demand::Need,
    }
}

/// What the certificate proves that somebody has shown, if he has.
///
/// # Errors
/// Its subject cannot be read.
pub(crate) fn identities(
    tls: &ServerConnection,
    super_subject: Option<&str>,
) -> Result<Vec<Identity>, String> {
    let shown = tls.peer_certificates().and_then(|chain| chain.first());
    let Some(subject) = shown
        .map(stoa_keys::subject)
        .transpose()
        .map_err(|why| format!("the subject of its certificate: {why}"))?
    else {
        return Ok(Vec::new());
    };
    let identity = |scheme: &str| Identity { scheme: scheme.into(), id: subject.as_str().into() };
    let rank = (super_subject == Some(&subject)).then(|| identity("super"));
    Ok(rank.into_iter().chain([identity("x509")]).collect())
}

/// What is wrong with the TLS of somebody whose handshake is done; `None` where the socket has failed.
pub(crate) fn why(error: &io::Error) -> Option<String> {
    let tls = error.get_ref()?.downcast_ref()?;
    Some(format!("after its TLS handshake: {}", stoa_keys::why(tls)))
}

/// How what a server shows its clients, and asks of them, is made from the files.
fn for_clients(settings: &Settings) -> impl Fn(&Files) -> Result<Terms, String> + Send + Sync + 'static {
    let demand = demand(settings.tls_client_certificates);
    let (protocols, ciphers) = (settings.tls_protocols.clone(), settings.tls_ciphers.clone());
    move |files| {
        let trust = ClientTrust::new(files.trusted()?, demand, files.revoked()?);
        let trust = trust.map_err(files.distrust())?;
        let choice = Choice::new(&protocols, &ciphers)
            .map_err(|error| format!("{error} (settings tls-protocols and tls-ciphers)"))?;
        if !choice.ignored().is_empty() {
            tracing::warn!("tls-ciphers: there are no {}", choice.ignored().join(", "));
        }
        let config = server_config(files.own()?, Arc::clone(&trust), &choice)
            .map_err(|error| format!("{}: {error}", files.certificate.display()))?;
        Ok(Terms::new(config, trust))
    }
}

/// The TLS of all clients.
#[derive(Debug)]
pub(crate) struct ClientTls {
    terms: Arc<Reloaded<Terms>>,
    handshakes: Handshakes,
    /// Who is told why he is turned away.
    farewells: Arc<Farewells>,
    patience: Duration,
    super_subject: Option<String>,
    counts: TlsCounts,
}

impl ClientTls {
    /// As the settings say; `None` where no client has TLS.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub(crate) fn begin(settings: &Settings) -> Result<Option<Arc<Self>>, String> {
        if !settings.has_client_tls() {
            return Ok(None);
        }
        // Without a certificate the settings were refused.
        let files = Files::of_clients(settings).ok_or("TLS for clients needs tls-certificate")?;
        let terms = Reloaded::load("TLS of clients", files, for_clients(settings))?;
        let patience = settings.handshake_timeout;
        let (max, of_address) = (settings.tls_max_handshakes, settings.max_connections_per_address);
        let farewells = Arc::default();
        let handshakes = Handshakes::start(patience, (max as usize, of_address as usize), &farewells)
            .map_err(|error| format!("the threads of TLS: {error}"))?;
        let tls = Arc::new(Self {
            terms,
            handshakes,
            farewells,
            patience,
            super_subject: settings.super_certificate.clone(),
            counts: TlsCounts::default(),
        });
        if settings.tls_reload {
            tls.terms.watch("tls-files")?;
        }
        Ok(Some(tls))
    }

    /// What has been counted.
    pub(crate) fn view(&self) -> view::Tls {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let TlsCounts { done, failed, refused, exceeded } = &self.counts;
        let (reloads, failed_reloads) = self.terms.counts();
        view::Tls {
            under_way: self.handshakes.under_way() as u64,
            done: of(done),
            failed: of(failed),
            refused: of(refused),
            exceeded: of(exceeded),
            reloads,
            failed_reloads,
        }
    }

    /// Takes the files as they are now, if they can be used; else those before count on.
    pub(crate) fn reload(&self) {
        self.terms.reload();
    }

    /// What somebody is who has connected to a port where there is TLS. His handshake begins, or he is sent away, when it
    /// is his `turn`: thousands may come at once.
    ///
    /// # Errors
    /// Why he is not let in.
    pub(crate) async fn admit<T>(
        &self,
        socket: TcpStream,
        (address, port): (SocketAddr, TlsOnPort),
        turn: impl Future<Output = T>,
    ) -> Result<Accepted, Refusal> {
        let Some(silent) = self.handshakes.silent_place(address) else {
            return self.has_no_place();
        };
        match self.first_byte(&socket).await {
            Ok(Some(first)) if Foreign::of(&[first, 3]) == Some(Foreign::Tls) => {}
            Ok(Some(_)) if port == TlsOnPort::Also => return Ok(Accepted::plain(socket, address)),
            Ok(Some(_)) => {
                let farewell = self.farewells.begin(ALERT.len(), Arc::default());
                // Why it is closed is logged first, however long its end takes.
                tokio::task::spawn_local(async move { farewell.say(&socket, &ALERT).await });
                return Err(Refusal::Other(NOT_TLS.to_owned()));
            }
            Ok(None) | Err(_) => return Err(Refusal::Gone),
        }
        // Whoever waits for his turn is counted with those who have said nothing.
        let turn = turn.await;
        drop(silent);
        let Some(place) = self.handshakes.place(address) else {
            drop(socket);
            return self.has_no_place();
        };
        let begun = self.handshakes.begin(place, self.terms.current(), socket);
        drop(turn);
        let done = begun.await;
        let done = done.map_err(|failed| Refusal::Handshake(self.count(&failed)))?;
        self.accepted(done, address)
    }

    fn has_no_place(&self) -> Result<Accepted, Refusal> {
        self.counts.exceeded.fetch_add(1, Ordering::Relaxed);
        Err(Refusal::Other(TOO_MANY.to_owned()))
    }

    async fn first_byte(&self, socket: &TcpStream) -> io::Result<Option<u8>> {
        let mut first = [0];
        let len = timeout(self.patience, socket.peek(&mut first)).await??;
        Ok((len > 0).then_some(first[0]))
    }

    fn accepted(&self, done: Done, address: SocketAddr) -> Result<Accepted, Refusal> {
        let Done { socket, tls } = done;
        let identities = identities(&tls, self.super_subject.as_deref()).map_err(|why| {
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
            Refusal::Handshake(why)
        })?;
        self.counts.done.fetch_add(1, Ordering::Relaxed);
        let socket = TcpStream::from_std(socket).map_err(|_| Refusal::Gone)?;
        Ok(Accepted { socket, address, channel: Some(Channel::new(tls)), identities })
    }

    /// Counts a handshake that was none, and says why it was.
    fn count(&self, failed: &Failed) -> String {
        match failed {
            Failed::Late => {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                "its TLS handshake took too long (setting handshake-timeout)".to_owned()
            }
            Failed::Error(error) => {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                let Some(tls) = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>())
                else {
                    return format!("its TLS handshake broke off: {error}");
                };
                use rustls::Error::{InvalidCertRevocationList, InvalidCertificate, NoCertificatesPresented};
                if matches!(
                    tls,
                    InvalidCertificate(_) | NoCertificatesPresented | InvalidCertRevocationList(_)
                ) {
                    self.counts.refused.fetch_add(1, Ordering::Relaxed);
                }
                format!("its TLS handshake failed: {}", stoa_keys::why(tls))
            }
        }
    }
}
