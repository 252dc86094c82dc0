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
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::ServerConfig;
use stoa_tree::Identity;
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(crate) use channel::Channel;
use files::{Files, Stamp};
use handshakes::{Done, Failed, Handshakes};

use crate::complaints::Complaints;
use crate::config::{Settings, TlsOnPort};
use crate::farewell::Farewells;
use crate::foreign::Foreign;
use crate::view;

/// How often the files are looked at. Clusters put a changed secret in its place within a minute.
const LOOK: Duration = Duration::from_secs(10);

const TOO_MANY: &str =
    "too many TLS handshakes are under way (settings tls-max-handshakes, max-connections-per-address)";

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

/// What is counted, see [`view::Tls`].
#[derive(Debug, Default)]
struct TlsCounts {
    done: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    exceeded: AtomicU64,
    reloads: AtomicU64,
    failed_reloads: AtomicU64,
}

/// The TLS of all clients.
#[derive(Debug)]
pub(crate) struct ClientTls {
    files: Files,
    /// The one that counts, and what the files were that it is made from.
    current: Mutex<(Arc<ServerConfig>, Stamp)>,
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
        let files = Files::of(settings);
        let stamp = files.stamp();
        let config = files.load()?;
        let patience = settings.handshake_timeout;
        let (max, of_address) = (settings.tls_max_handshakes, settings.max_connections_per_address);
        let farewells = Arc::default();
        let handshakes = Handshakes::start(patience, (max as usize, of_address as usize), &farewells)
            .map_err(|error| format!("the threads of TLS: {error}"))?;
        let tls = Arc::new(Self {
            files,
            current: Mutex::new((config, stamp)),
            handshakes,
            farewells,
            patience,
            super_subject: settings.super_certificate.clone(),
            counts: TlsCounts::default(),
        });
        if settings.tls_reload {
            tls.watch_files()?;
        }
        Ok(Some(tls))
    }

    fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner).0)
    }

    /// What has been counted.
    pub(crate) fn view(&self) -> view::Tls {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let TlsCounts { done, failed, refused, exceeded, reloads, failed_reloads } = &self.counts;
        view::Tls {
            under_way: self.handshakes.under_way() as u64,
            done: of(done),
            failed: of(failed),
            refused: of(refused),
            exceeded: of(exceeded),
            reloads: of(reloads),
            failed_reloads: of(failed_reloads),
        }
    }

    /// Looks at the files now and then, on a thread that ends with the last who holds this.
    fn watch_files(self: &Arc<Self>) -> Result<(), String> {
        let tls = Arc::downgrade(self);
        let watching = std::thread::Builder::new().name("tls-files".to_owned()).spawn(move || {
            loop {
                std::thread::sleep(LOOK);
                let Some(tls) = tls.upgrade() else { return };
                tls.reload_changed();
            }
        });
        watching.map(drop).map_err(|error| format!("the thread of TLS: {error}"))
    }

    fn reload_changed(&self) {
        let stamp = self.files.stamp();
        if self.current.lock().unwrap_or_else(PoisonError::into_inner).1 != stamp {
            self.reload();
        }
    }

    /// Takes the files as they are now, if they can be used; else those before count on.
    pub(crate) fn reload(&self) {
        // Looked at before they are read: a change in between is seen the next time.
        let stamp = self.files.stamp();
        match self.files.load() {
            Ok(config) => {
                *self.current.lock().unwrap_or_else(PoisonError::into_inner) = (config, stamp);
                self.counts.reloads.fetch_add(1, Ordering::Relaxed);
                tracing::info!(
                    "TLS of clients: the certificates were read anew, and count for new connections"
                );
            }
            Err(why) => {
                // Said once for each state of the files.
                self.current.lock().unwrap_or_else(PoisonError::into_inner).1 = stamp;
                self.counts.failed_reloads.fetch_add(1, Ordering::Relaxed);
                tracing::error!("TLS of clients goes on with the certificates that it had: {why}");
            }
        }
    }

    /// What somebody is who has connected to a port where there is TLS; `None` when he could not be let in, which was
    /// said then.
    pub(crate) async fn admit(
        &self,
        socket: TcpStream,
        address: SocketAddr,
        port: TlsOnPort,
        complaints: &Complaints,
    ) -> Option<Accepted> {
        // Held until he has said something, too: who says nothing is one of those who may be waited for.
        let Some(place) = self.handshakes.place(address) else {
            self.counts.exceeded.fetch_add(1, Ordering::Relaxed);
            complaints.say(&format!("connection from {address} closed: {TOO_MANY}"));
            return None;
        };
        match self.first_byte(&socket).await {
            Ok(Some(first)) if Foreign::of(&[first, 3]) == Some(Foreign::Tls) => {}
            Ok(Some(_)) if port == TlsOnPort::Also => return Some(Accepted::plain(socket, address)),
            Ok(Some(_)) => {
                complaints.say(&format!(
                    "connection from {address} closed: it does not begin with TLS, which all clients of this port have"
                ));
                let farewell = self.farewells.begin(ALERT.len(), Arc::default());
                farewell.say(&socket, &ALERT).await;
                return None;
            }
            // Nobody is there any more, or he has nothing to say.
            Ok(None) | Err(_) => return None,
        }
        match self.handshakes.with(place, self.current(), socket).await {
            Ok(done) => self.accepted(done, address, complaints),
            Err(failed) => {
                let why = self.count(&failed);
                complaints.say(&format!("connection from {address} closed: {why}"));
                None
            }
        }
    }

    async fn first_byte(&self, socket: &TcpStream) -> io::Result<Option<u8>> {
        let mut first = [0];
        let len = timeout(self.patience, socket.peek(&mut first)).await??;
        Ok((len > 0).then_some(first[0]))
    }

    fn accepted(&self, done: Done, address: SocketAddr, complaints: &Complaints) -> Option<Accepted> {
        let Done { socket, tls } = done;
        let subject =
            tls.peer_certificates().and_then(|chain| chain.first()).map(stoa_keys::subject).transpose();
        let subject = match subject {
            Ok(subject) => subject,
            Err(why) => {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                let why = format!("connection from {address} closed: the subject of its certificate: {why}");
                complaints.say(&why);
                return None;
            }
        };
        self.counts.done.fetch_add(1, Ordering::Relaxed);
        let identity = |scheme: &str, id: &str| Identity { scheme: scheme.into(), id: id.into() };
        let is_super = subject.is_some() && subject == self.super_subject;
        let identities = subject.iter().flat_map(|subject| {
            let rank = is_super.then(|| identity("super", subject));
            rank.into_iter().chain([identity("x509", subject)])
        });
        let identities = identities.collect();
        let socket = TcpStream::from_std(socket).ok()?;
        Some(Accepted { socket, address, channel: Some(Channel::new(tls)), identities })
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
