//! Sockets between servers, with TLS or without.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::client::{Resumption, verify_server_name};
use rustls::pki_types::ServerName;
use rustls::server::{NoServerSessionStorage, ParsedCertificate};
use rustls::{ClientConfig, ServerConfig};
use stoa_keys::{Choice, ClientTrust, Demand, ServerTrust, client_config, server_config};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::PeerAddress;
use crate::config::Settings;
use crate::foreign::Foreign;
use crate::tls::{Files, Reloaded};
use crate::view;

/// How long one address of a host may take to answer before the next is tried.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);
/// How many names are looked up at a time; whoever connects to us can cause one.
const LOOKUPS_MAX: usize = 32;
/// The system's own look after a silent connection, should the process be stopped.
const KEEPALIVE: Duration = Duration::from_secs(1);

/// Which settings say whether there is TLS.
pub(super) const TLS_WAY_OUT: &str =
    "set peer-tls-certificate and peer-tls-authority on all servers or on none";

/// A certificate, its key, and the authority that certificates of other servers must come from; read anew when their
/// files change.
#[derive(Clone, Debug)]
pub(crate) struct PeerTls {
    roles: Arc<Reloaded<Roles>>,
    settings: TlsSettings,
}

/// Which settings it comes from, for those who have to change them.
#[derive(Clone, Copy, Debug)]
struct TlsSettings {
    /// How their names begin.
    prefix: &'static str,
    /// Which one lists the hosts.
    list: &'static str,
    /// Where they have to be set.
    way_out: &'static str,
}

const OF_PEERS: TlsSettings =
    TlsSettings { prefix: "peer-tls", list: "servers or reader-of", way_out: TLS_WAY_OUT };
const OF_SITES: TlsSettings = TlsSettings {
    prefix: "site-tls",
    list: "sites",
    way_out: "set site-tls-certificate and site-tls-authority on the servers of all sites",
};

/// The two roles of a server in a connection.
#[derive(Clone)]
struct Roles {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Roles {
    fn of(files: &Files) -> Result<Self, String> {
        let refused = |error| format!("{}: {error}", files.certificate.display());
        let (own, trusted, revoked) = (files.own()?, files.trusted()?, files.revoked()?);
        let choice = Choice::new(&["TLSv1.3"], &[""; 0]).map_err(refused)?;
        let servers = ServerTrust::new(trusted.clone(), true, revoked.clone()).map_err(files.distrust())?;
        let mut client = client_config(Some(own.clone()), servers, &choice).map_err(refused)?;
        // Connections are few and last; a resumed one would not show its certificate again.
        client.resumption = Resumption::disabled();
        let clients = ClientTrust::new(trusted, Demand::Need, revoked).map_err(files.distrust())?;
        let mut server = server_config(own, clients, &choice).map_err(refused)?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }
}

impl PeerTls {
    /// As the settings say, and watched if they say so; `None` where servers have no TLS, or there are no others.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub(crate) fn begin(settings: &Settings) -> Result<Option<Self>, String> {
        let Some(files) = Files::of_peers(settings).filter(|_| settings.has_peer_tls()) else {
            return Ok(None);
        };
        let tls = Self::load(files)?;
        if settings.peer_tls_reload {
            tls.roles.watch("peer-tls-files")?;
        }
        Ok(Some(tls))
    }

    /// The same between sites; `None` where there are no others.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub(crate) fn begin_between_sites(settings: &Settings) -> Result<Option<Self>, String> {
        let Some(files) = Files::of_sites(settings) else { return Ok(None) };
        let roles = Reloaded::load("TLS between sites", files, Roles::of)?;
        roles.watch("site-tls-files")?;
        Ok(Some(Self { roles, settings: OF_SITES }))
    }

    /// Reads the files.
    ///
    /// # Errors
    /// Which one cannot be used, and why.
    pub(crate) fn load(files: Files) -> Result<Self, String> {
        let roles = Reloaded::load("TLS between servers", files, Roles::of)?;
        Ok(Self { roles, settings: OF_PEERS })
    }

    /// Takes the files as they are now, if they can be used; else those before count on.
    pub(crate) fn reload(&self) {
        self.roles.reload();
    }

    /// Does so if they look otherwise than before.
    #[cfg(test)]
    pub(crate) fn reload_changed(&self) {
        self.roles.reload_changed();
    }

    /// What has been counted.
    pub(crate) fn view(&self) -> view::Reloads {
        let (reloads, failed_reloads) = self.roles.counts();
        view::Reloads { reloads, failed_reloads }
    }
}

/// One connection to or from another server.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Begins TLS, if there is any, on a socket that this server has opened to `host`.
    pub(crate) async fn to(socket: TcpStream, tls: Option<&PeerTls>, host: &str) -> Result<Self, String> {
        let Some(tls) = tls else { return Ok(Self::Plain(socket)) };
        let connector = TlsConnector::from(tls.roles.current().client);
        let stream = match connector.connect(server_name(host)?, socket).await {
            Ok(stream) => Self::Tls(Box::new(stream.into())),
            Err(error) => return Err(tls_failed(&error, tls.settings)),
        };
        // The subject of a certificate says which host it is for to clients, and not among servers.
        if stream.certifies(host)? {
            Ok(stream)
        } else {
            Err(format!("TLS: {OF_ANOTHER}: {}", for_host(tls.settings)))
        }
    }

    /// Begins TLS, if there is any, on a socket that was accepted.
    pub(crate) async fn from(socket: TcpStream, tls: Option<&PeerTls>) -> Result<Self, String> {
        let Some(tls) = tls else { return Ok(Self::Plain(socket)) };
        match TlsAcceptor::from(tls.roles.current().server).accept(socket).await {
            Ok(stream) => Ok(Self::Tls(Box::new(stream.into()))),
            Err(error) => Err(tls_failed(&error, tls.settings)),
        }
    }

    /// The socket alone, on which nothing can be said any more with TLS.
    pub(super) fn into_socket(self) -> io::Result<OwnedFd> {
        let socket = match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => match *stream {
                TlsStream::Client(stream) => stream.into_inner().0,
                TlsStream::Server(stream) => stream.into_inner().0,
            },
        };
        Ok(socket.into_std()?.into())
    }

    /// Whether the other side has shown a certificate for this host.
    pub(crate) fn certifies(&self, host: &str) -> Result<bool, String> {
        let Self::Tls(stream) = self else { return Ok(false) };
        let (_, session) = stream.get_ref();
        let Some(certificate) = session.peer_certificates().and_then(|chain| chain.first()) else {
            return Ok(false);
        };
        let certificate = ParsedCertificate::try_from(certificate)
            .map_err(|error| format!("its certificate cannot be read: {error}"))?;
        Ok(verify_server_name(&certificate, &server_name(host)?).is_ok())
    }
}

/// Whether somebody who has connected begins with TLS as this server expects it. He speaks first, so there is
/// something to look at.
pub(super) async fn check_tls(socket: &TcpStream, is_expected: bool) -> Result<(), String> {
    let mut first = [0; 2];
    let len = socket.peek(&mut first).await.map_err(|error| format!("the connection broke: {error}"))?;
    let begins = match first[..len].first() {
        // It is closed, which is found out soon enough.
        None => return Ok(()),
        // One byte tells as much here: the length of a hello is another one.
        Some(first) => Foreign::of(&[*first, 3]) == Some(Foreign::Tls),
    };
    match (begins, is_expected) {
        (true, false) => Err(format!("the other server has TLS, this one has none: {TLS_WAY_OUT}")),
        (false, true) => Err(format!("one server has TLS, the one that connects has none: {TLS_WAY_OUT}")),
        _ => Ok(()),
    }
}

/// What is wrong with a certificate that does not name the host, and what to do.
const OF_ANOTHER: &str = "its certificate is for another host";
fn for_host(TlsSettings { list, .. }: TlsSettings) -> String {
    format!("its certificate must be for the host that stands in {list}, as a subject alternative name")
}

/// Why TLS did not come about, and what to do.
fn tls_failed(error: &io::Error, settings: TlsSettings) -> String {
    use rustls::{AlertDescription as Alert, CertificateError, Error};
    let TlsSettings { prefix, way_out, .. } = settings;
    let Some(error) = error.get_ref().and_then(|error| error.downcast_ref::<Error>()) else {
        return format!("TLS: {error}: has the other server TLS too? {way_out}");
    };
    let way_out = match error {
        // The signature is wrong where another authority has the same name.
        error
            if *error == Error::InvalidCertificate(CertificateError::UnknownIssuer)
                || stoa_keys::is_wrongly_signed(error) =>
        {
            format!("all servers need certificates from the authority in {prefix}-authority")
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => for_host(settings),
        Error::InvalidCertificate(
            CertificateError::UnknownRevocationStatus
            | CertificateError::ExpiredRevocationList
            | CertificateError::ExpiredRevocationListContext { .. },
        ) => format!("{prefix}-revoked takes a list of each authority, and newer ones in time"),
        Error::InvalidCertificate(_) => format!("look at its {prefix}-certificate"),
        Error::AlertReceived(
            Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::DecryptError,
        ) => format!("see {prefix}-certificate here, and {prefix}-authority and {prefix}-revoked there"),
        Error::InvalidMessage(_) => format!("has the other server TLS too? {way_out}"),
        _ => format!("see the settings {prefix}-certificate and {prefix}-authority of both"),
    };
    format!("TLS: {}: {way_out}", stoa_keys::why(error))
}

fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(host.to_owned())
        .map_err(|_| format!("`{host}` is no name that a certificate can be for"))
}

/// Opens a socket to a member: its name is looked up now, its addresses are tried in turn.
pub(crate) async fn open(address: &PeerAddress) -> Result<TcpStream, String> {
    let mut last = None;
    for candidate in resolve(&address.host, address.port).await? {
        match tokio::time::timeout(CONNECT_PATIENCE, TcpStream::connect(candidate)).await {
            // A free port of this machine may be given to the very socket that looks for it.
            Ok(Ok(socket)) if socket.local_addr().ok() == Some(candidate) => {
                last = Some(format!("cannot connect to {candidate}: nobody listens"));
            }
            Ok(Ok(socket)) => {
                prepare(&socket);
                return Ok(socket);
            }
            Ok(Err(error)) => last = Some(format!("cannot connect to {candidate}: {error}")),
            Err(_) => {
                let seconds = CONNECT_PATIENCE.as_secs();
                last = Some(format!("cannot connect to {candidate}: no answer within {seconds} s"));
            }
        }
    }
    Err(last.unwrap_or_else(|| format!("the host `{}` has no address", address.host)))
}

/// Sets what all sockets between servers have in common.
pub(crate) fn prepare(socket: &TcpStream) {
    // All of these only tell the worse cases apart sooner; without them the pings do.
    let _ = socket.set_nodelay(true);
    let keepalive =
        socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(2);
    let _ = socket2::SockRef::from(socket).set_tcp_keepalive(&keepalive);
}

/// Whether a host has this address.
pub(super) async fn has_address(host: &str, address: IpAddr) -> Result<bool, String> {
    let known = resolve(host, 0).await?;
    Ok(known.iter().any(|known| known.ip().to_canonical() == address.to_canonical()))
}

/// The addresses of a host. Each look-up has a thread of its own: the system's resolver blocks, for
/// half a minute if need be, and a server that stops does not wait for such a thread.
async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
    if UNDER_WAY.fetch_add(1, Ordering::Relaxed) >= LOOKUPS_MAX {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
        return Err(format!("the host `{host}` cannot be looked up: {LOOKUPS_MAX} look-ups are under way"));
    }
    let (answer, found) = oneshot::channel();
    let name = host.to_owned();
    let look = move || {
        let addresses = (name.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
        let _ = answer.send(addresses);
    };
    let failed = |error| format!("the host `{host}` cannot be looked up: {error}");
    if let Err(error) = std::thread::Builder::new().name("resolve".into()).spawn(look) {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
        return Err(failed(error));
    }
    match found.await {
        Ok(Ok(addresses)) => Ok(addresses),
        Ok(Err(error)) => Err(failed(error)),
        Err(_) => Err(format!("the host `{host}` cannot be looked up: the resolver has failed")),
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, into),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, parts),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
