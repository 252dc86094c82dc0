//! TLS of admin HTTP: by the first byte of a connection, as ZooKeeper has it, or on all of them.
//!
//! Handshakes are done on the thread of admin HTTP, which is in nobody's way. How many there are is bounded with the
//! connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stoa_keys::{Choice, ClientTrust, Demand, server_config};
use stoa_tree::Identity;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::config::{ClientCertificates, Settings, TlsOnPort};
use crate::foreign::Foreign;
use crate::tls::{Files, Reloaded, Terms, demand, identities};
use crate::view;

/// How long a handshake may take.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);

/// What somebody is answered who has no TLS and should.
pub(super) const NO_TLS: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\
    Content-Length: 36\r\n\r\nThis port has TLS: ask with https://\n";

/// What a connection is read from and written to.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// What the certificate proves that somebody has shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown(pub(super) Vec<Identity>);

/// Why a connection does not come about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// He has said nothing, or is gone.
    Silent,
    /// He should have TLS.
    InTheClear,
    /// The handshake failed.
    Failed(String),
}

/// The TLS of admin HTTP.
#[derive(Debug)]
pub(crate) struct AdminTls {
    terms: Arc<Reloaded<Terms>>,
    has_all: bool,
    super_subject: Option<String>,
    in_the_clear: AtomicU64,
}

impl AdminTls {
    /// As the settings say; `None` where admin HTTP has no TLS.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub(crate) fn begin(settings: &Settings) -> Result<Option<Arc<Self>>, String> {
        if !settings.has_admin_tls() {
            return Ok(None);
        }
        // Without any the settings were refused.
        let files = Files::of_clients(settings).or_else(|| Files::of_peers(settings));
        let files = files.ok_or("admin-tls needs tls-certificate or peer-tls-certificate")?;
        let tls = Self::load(settings, files)?;
        let reloads =
            if settings.tls_certificate.is_some() { settings.tls_reload } else { settings.peer_tls_reload };
        if reloads {
            tls.terms.watch("admin-tls-files")?;
        }
        Ok(Some(tls))
    }

    fn load(settings: &Settings, files: Files) -> Result<Arc<Self>, String> {
        let asked = demand(settings.admin_client_certificates);
        let terms = Reloaded::load("TLS of admin HTTP", files, move |files| {
            let refused = |error| format!("{}: {error}", files.certificate.display());
            // Nobody's certificate is looked at, so neither are the files that say whose to believe.
            let trust = match asked {
                Demand::None => ClientTrust::none(),
                _ => ClientTrust::new(files.trusted()?, asked, files.revoked()?).map_err(files.distrust())?,
            };
            let choice = Choice::new(&[""; 0], &[""; 0]).map_err(refused)?;
            let config = server_config(files.own()?, Arc::clone(&trust), &choice).map_err(refused)?;
            Ok(Terms::new(config, trust))
        })?;
        let has_all = settings.admin_tls == TlsOnPort::Only;
        let super_subject = settings.super_certificate.clone();
        Ok(Arc::new(Self { terms, has_all, super_subject, in_the_clear: AtomicU64::new(0) }))
    }

    /// Takes the files as they are now, if they can be used; else those before count on.
    pub(crate) fn reload(&self) {
        self.terms.reload();
    }

    /// What has been counted.
    pub(crate) fn view(&self) -> view::Reloads {
        let (reloads, failed_reloads) = self.terms.counts();
        view::Reloads { reloads, failed_reloads }
    }

    /// How many have connected without TLS.
    pub(crate) fn in_the_clear(&self) -> u64 {
        self.in_the_clear.load(Ordering::Relaxed)
    }

    /// Begins TLS on a connection that has it; `stream` reads and writes `socket`.
    pub(super) async fn admit(
        &self,
        socket: &TcpStream,
        stream: impl Duplex + 'static,
    ) -> Result<(Box<dyn Duplex>, Shown), Refused> {
        let begun = timeout(HANDSHAKE_TIME, self.begin_on(socket, stream)).await;
        begun.unwrap_or_else(|_| Err(Refused::Failed("its TLS handshake took too long".to_owned())))
    }

    async fn begin_on(
        &self,
        socket: &TcpStream,
        stream: impl Duplex + 'static,
    ) -> Result<(Box<dyn Duplex>, Shown), Refused> {
        let mut first = [0];
        let len = socket.peek(&mut first).await.unwrap_or(0);
        if len == 0 {
            return Err(Refused::Silent);
        }
        if Foreign::of(&[first[0], 3]) != Some(Foreign::Tls) {
            self.in_the_clear.fetch_add(1, Ordering::Relaxed);
            let stream: Box<dyn Duplex> = Box::new(stream);
            return if self.has_all { Err(Refused::InTheClear) } else { Ok((stream, Shown::default())) };
        }
        let failed = |error: std::io::Error| {
            let tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
            Refused::Failed(format!(
                "its TLS handshake failed: {}",
                tls.map_or(error.to_string(), stoa_keys::why)
            ))
        };
        let terms = self.terms.current();
        let acceptor = TlsAcceptor::from(Arc::clone(&terms.config));
        let stream = acceptor.accept(stream).await.map_err(failed)?;
        terms.check_resumed(stream.get_ref().1).map_err(|error| failed(std::io::Error::other(error)))?;
        let shown = identities(stream.get_ref().1, self.super_subject.as_deref()).map_err(Refused::Failed)?;
        Ok((Box::new(stream), Shown(shown)))
    }
}

impl Settings {
    /// Whether admin HTTP is asked with TLS.
    pub(crate) fn has_admin_tls(&self) -> bool {
        self.admin_tls != TlsOnPort::No && self.admin_port != 0
    }

    /// Whether those who ask it may show certificates.
    pub(crate) fn has_admin_certificates(&self) -> bool {
        self.has_admin_tls() && self.admin_client_certificates != ClientCertificates::None
    }
}
