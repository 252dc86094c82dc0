//! The connections between sites: leader to leader, each site's to the hub's. What is said on them is the core's
//! business, which makes them whole again when they have broken.
//!
//! The leader of a site opens its connection to whichever server of the hub's leads; the others send it on. Both show
//! certificates of the sites' authority, and the hub looks that the other one's is for a host that its list has for that
//! site. A site that has not joined is sent a snapshot of the hub on the same connection. Frames are those of
//! [`crate::peers`]; docs/sites.md has what they mean here.

mod backlog;
mod hello;
mod link;
mod list;
mod pack;
mod view;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::BytesMut;
use stoa_core::{SITES_PATH, SiteId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::complaints::Complaints;
use crate::config::{Settings, SiteAddresses};
use crate::driver::Driver;
use crate::ensemble::StoredSnapshot;
use crate::file_disk::FileDisk;
use crate::listen::{self, Bound, Listener};
use crate::peers::frame::{self, FrameKind};
use crate::peers::stream::{self, Stream};
use crate::peers::{PeerAddress, PeerTls};
pub use hello::check_site_greeting;
use hello::{SiteHello, Welcome};
use link::{Say, SiteLink};
use list::Site;

/// How often it is looked at whether there has to be a connection.
const TEND: Duration = Duration::from_millis(100);
/// How long it may take until both sides know each other: some round trips around the world.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(5);
/// What is said before both know each other is shorter.
const HELLO_BYTES_MAX: usize = 4 << 10;
/// How long it is waited before a hub that could not be reached is tried again.
const RETRY: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// The other sites, for a server of one of them.
pub(crate) struct Sites {
    /// The name of this site.
    own: String,
    /// As the settings have them.
    listed: Vec<SiteAddresses>,
    tls: PeerTls,
    disk: FileDisk,
    links: RefCell<BTreeMap<SiteId, Rc<SiteLink>>>,
    newest: RefCell<Option<StoredSnapshot>>,
    complaints: Complaints,
    is_connecting: Cell<bool>,
    driver: OnceCell<Weak<Driver>>,
    /// The last term in which this server, leading the hub, has begun that there are sites.
    began_in: Cell<u64>,
}

/// How it stands with another site.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SiteStatus {
    site: SiteId,
    connected: Duration,
    round_trip: Option<Duration>,
}

/// The socket where the leaders of other sites connect.
pub(crate) fn bind(settings: &Settings) -> Result<Option<Bound>, String> {
    if settings.site.is_none() || settings.site_port == 0 {
        return Ok(None);
    }
    let (ip, port) = (settings.site_address(), settings.site_port);
    let bound = Bound::new(SocketAddr::new(ip, port), settings.listen_backlog);
    bound.map(Some).map_err(|error| {
        format!(
            "cannot listen for other sites on {ip} port {port}: {error} (settings site-bind and site-port)"
        )
    })
}

impl Sites {
    /// `None` where the settings name no sites.
    ///
    /// # Errors
    /// Which file of TLS cannot be used, and why.
    pub(crate) fn new(settings: &Settings, disk: FileDisk) -> Result<Option<Rc<Self>>, String> {
        let Some(own) = settings.own_site() else { return Ok(None) };
        let tls = PeerTls::begin_between_sites(settings)?;
        let tls = tls.ok_or("sites need site-tls-certificate and site-tls-authority")?;
        Ok(Some(Rc::new(Self {
            own: own.name.clone(),
            listed: settings.sites.clone(),
            tls,
            disk,
            links: RefCell::default(),
            newest: RefCell::default(),
            complaints: Complaints::new("connections between sites were refused, or could not be made"),
            is_connecting: Cell::new(false),
            driver: OnceCell::new(),
            began_in: Cell::new(0),
        })))
    }

    /// Takes up the work, in tasks of its own. Must be called on a `LocalSet`.
    pub(crate) fn begin(
        self: &Rc<Self>,
        driver: &Rc<Driver>,
        listener: Option<Rc<Listener>>,
        stopped: watch::Receiver<bool>,
    ) {
        if let Some(listener) = listener {
            let (sites, driver) = (Rc::clone(self), Rc::clone(driver));
            tokio::task::spawn_local(listen::accept(listener, stopped, move |socket, address| {
                Rc::clone(&sites).admit(Rc::clone(&driver), socket, address)
            }));
        }
        let _ = driver.sites.set(Rc::clone(self));
        let _ = self.driver.set(Rc::downgrade(driver));
        let (sites, driver) = (Rc::clone(self), Rc::clone(driver));
        tokio::task::spawn_local(async move {
            loop {
                sites.tend(&driver);
                tokio::time::sleep(TEND).await;
            }
        });
    }

    /// There is a newer snapshot of this server.
    pub(crate) fn stored(&self, snapshot: StoredSnapshot) {
        *self.newest.borrow_mut() = Some(snapshot);
    }

    /// Carries what the core has for other sites.
    pub(crate) fn carry(self: &Rc<Self>, driver: &Driver) {
        let mut server = driver.server.borrow_mut();
        while let Some((site, message)) = server.poll_site() {
            self.say(site, Say::Message(message));
        }
        while let Some((site, position)) = server.poll_site_state() {
            let newest = self.newest.borrow();
            if let Some(snapshot) = newest.as_ref().filter(|snapshot| snapshot.position == position) {
                let file = snapshot.file.clone();
                tracing::info!("site {site} is sent {file}, the state at position {position}");
                self.say(site, Say::State { position, file });
            }
        }
        while let Some(wanted) = server.poll_site_backlog() {
            let Some(driver) = self.driver.get().and_then(Weak::upgrade) else { return };
            tokio::task::spawn_local(Rc::clone(self).send_backlog(driver, wanted));
        }
    }

    /// Sends a site what it lacks and is not in memory any more.
    async fn send_backlog(self: Rc<Self>, driver: Rc<Driver>, wanted: (SiteId, u64, u64)) {
        let (site, since, upto) = wanted;
        tracing::info!("site {site} was away for long: it is sent positions {since} to {upto} from the disk");
        if let Err(why) = backlog::hand_in(driver, self.disk.another(), wanted).await {
            self.complaints.say(&format!(
                "site {site} lacks what stands behind position {since}, and cannot be sent it: {why} (setting \
                 site-backlog-bytes). It has to join anew, see docs/sites.md"
            ));
            if let Some(link) = self.links.borrow().get(&site) {
                link.end();
            }
        }
    }

    /// How it stands with those that are connected.
    fn status(&self) -> Vec<SiteStatus> {
        let of = |link: &Rc<SiteLink>| SiteStatus {
            site: link.site,
            connected: link.since.elapsed(),
            round_trip: link.round_trip.get(),
        };
        self.links.borrow().values().map(of).collect()
    }

    /// Which sites there are, as far as this server knows.
    fn list(&self, driver: &Driver) -> Vec<Site> {
        let server = driver.server.borrow();
        let data = server.tree().get(SITES_PATH).and_then(|znode| znode.data().map(<[u8]>::to_vec));
        let list = data.map(|data| list::decode(&String::from_utf8_lossy(&data)));
        list.filter(|list| !list.is_empty()).unwrap_or_else(|| list::number(&self.listed))
    }

    fn say(&self, site: SiteId, what: Say) {
        if let Some(link) = self.links.borrow().get(&site) {
            link.say(what);
        }
    }

    /// Sees to it that there are the connections that there have to be.
    fn tend(self: &Rc<Self>, driver: &Rc<Driver>) {
        let (leads, own, hub) = {
            let server = driver.server.borrow();
            (server.leads(), server.tree().own_site(), server.tree().hub())
        };
        if !leads {
            self.links.borrow().values().for_each(|link| link.end());
            return;
        }
        match own {
            None if self.is_first() => self.begin_sites(driver),
            Some(own) if Some(own) == hub => {}
            _ if !self.is_connecting.replace(true) => {
                let (sites, driver) = (Rc::clone(self), Rc::clone(driver));
                tokio::task::spawn_local(async move {
                    sites.connect(&driver).await;
                    sites.is_connecting.set(false);
                });
            }
            _ => {}
        }
    }

    /// Whether this site is the hub by the settings.
    fn is_first(&self) -> bool {
        self.listed.first().is_some_and(|first| first.name == self.own)
    }

    /// This is the hub, and there are sites from now on.
    fn begin_sites(&self, driver: &Driver) {
        let term = driver.server.borrow().status().term;
        if self.began_in.replace(term) == term {
            return;
        }
        let sites = list::number(&self.listed);
        let now = driver.now();
        let begun = driver.server.borrow_mut().begin_sites(1, &list::encode(&sites), now);
        driver.after_input();
        match begun {
            Ok(()) => tracing::info!("{} is the hub of {} sites from now on", self.own, sites.len()),
            Err(_) => self.began_in.set(0),
        }
    }

    // ---- a site connects to the hub ----

    /// Connects to the hub's leader, and stays connected as long as that lasts.
    async fn connect(self: &Rc<Self>, driver: &Rc<Driver>) {
        let mut wait = RETRY;
        while driver.server.borrow().leads() {
            if !driver.server.borrow().may_join() {
                self.complaints.say(&format!(
                    "{} cannot join the other sites: it has znodes or sessions of its own, which would be lost. Start its \
                     servers with empty data folders, or without the setting site",
                    self.own
                ));
                tokio::time::sleep(RETRY_MAX).await;
                continue;
            }
            let Some((hub, addresses)) = self.hub_addresses(driver) else {
                self.complaints.say("the list of sites names no hub: see the znode /zookeeper/sites");
                return;
            };
            for address in addresses {
                match self.meet_hub(&address, driver).await {
                    Ok((stream, rest, welcome)) => {
                        let began = Instant::now();
                        let hello = (welcome.hub, hub.as_str());
                        let (link, said) = SiteLink::new(hello, (welcome.number, welcome.hub), 0);
                        tracing::info!(
                            "the hub {hub} is connected at {}:{} ({})",
                            address.host,
                            address.port,
                            welcome.software
                        );
                        self.keep(&link, (stream, rest), said, driver).await;
                        if began.elapsed() > RETRY_MAX {
                            wait = RETRY;
                        }
                        break;
                    }
                    Err(why) => {
                        let (host, port) = (&address.host, address.port);
                        self.complaints
                            .say(&format!("the hub {hub} cannot be reached at {host}:{port}: {why}"));
                    }
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RETRY_MAX);
        }
    }

    /// The hub's name, and where its servers may be: as the settings say, since that is how this server reaches them,
    /// or else as all know it.
    fn hub_addresses(&self, driver: &Driver) -> Option<(String, Vec<PeerAddress>)> {
        let known = self.list(driver).into_iter().find(|site| site.is_hub)?.addresses;
        let listed = self.listed.iter().find(|site| site.name == known.name);
        let of = |(host, port): &(String, u16)| PeerAddress { id: 0, host: host.clone(), port: *port };
        let addresses = listed.unwrap_or(&known).servers.iter().map(of).collect();
        Some((known.name, addresses))
    }

    async fn meet_hub(
        &self,
        address: &PeerAddress,
        driver: &Driver,
    ) -> Result<(Stream, BytesMut, Welcome), String> {
        let hello = {
            let server = driver.server.borrow();
            let tree = server.tree();
            SiteHello {
                name: self.own.clone(),
                term: server.status().term,
                has_joined: server.has_joined(),
                applied: server.applied(),
                imported: tree.hub().map_or(0, |hub| tree.streams().imported(hub)),
                software: software(),
            }
        };
        let meeting = async {
            let socket = stream::open(address).await?;
            let mut stream = Stream::to(socket, Some(&self.tls), &address.host).await?;
            send(&mut stream, FrameKind::Hello, &hello.encode()).await?;
            let mut rest = BytesMut::new();
            match receive(&mut stream, &mut rest).await? {
                (FrameKind::Accepted, welcome) => {
                    let welcome = Welcome::decode(&welcome).ok_or("its welcome cannot be read")?;
                    Ok((stream, rest, welcome))
                }
                (FrameKind::Refused, why) => Err(String::from_utf8_lossy(&why).escape_debug().to_string()),
                (other, _) => Err(format!("it has sent {other:?} instead of a welcome")),
            }
        };
        let met = timeout(HANDSHAKE_PATIENCE, meeting).await;
        let (stream, rest, welcome) = met.unwrap_or_else(|_| Err("it does not answer in time".to_owned()))?;
        let own = driver.server.borrow().tree().own_site();
        if own.is_some_and(|own| own != welcome.number) {
            let known = own.unwrap_or_default();
            return Err(format!("it takes this site for number {}, but it is {known}", welcome.number));
        }
        Ok((stream, rest, welcome))
    }

    // ---- the hub is connected to ----

    /// Somebody connects who says to be the leader of another site.
    async fn admit(self: Rc<Self>, driver: Rc<Driver>, socket: TcpStream, address: SocketAddr) {
        let meeting = async {
            stream::prepare(&socket);
            let mut stream = Stream::from(socket, Some(&self.tls)).await?;
            let mut rest = BytesMut::new();
            match receive(&mut stream, &mut rest).await? {
                (FrameKind::Hello, hello) => Ok((stream, rest, SiteHello::decode(&hello))),
                (other, _) => Err(format!("it has sent {other:?} first")),
            }
        };
        let met = timeout(HANDSHAKE_PATIENCE, meeting).await;
        let met = met.unwrap_or_else(|_| Err("it has said nothing for too long".to_owned()));
        let refused = |why: &str| {
            self.complaints.say(&format!("a connection of another site from {address} was refused: {why}"));
        };
        let (mut stream, rest, hello) = match met {
            Ok(met) => met,
            Err(why) => return refused(&why),
        };
        let judged = hello.and_then(|hello| {
            let welcome = self.judge(&hello, &stream, &driver)?;
            Ok((hello, welcome))
        });
        match judged {
            Ok((hello, welcome)) => {
                if send(&mut stream, FrameKind::Accepted, &welcome.encode()).await.is_ok() {
                    let of = (welcome.number, hello.name.as_str());
                    let (link, said) = SiteLink::new(of, (welcome.hub, welcome.hub), hello.term);
                    tracing::info!("site {} is connected from {address} ({})", hello.name, hello.software);
                    self.keep(&link, (stream, rest), said, &driver).await;
                }
            }
            Err(why) => {
                refused(&why);
                let _ = send(&mut stream, FrameKind::Refused, why.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        }
    }

    /// Whether a site may be connected to the hub here.
    ///
    /// # Errors
    /// Why not, for the operator of that site.
    fn judge(&self, hello: &SiteHello, stream: &Stream, driver: &Driver) -> Result<Welcome, String> {
        let server = driver.server.borrow();
        let (tree, own) = (server.tree(), server.status().id);
        let Some(hub) = tree.own_site().filter(|own| server.leads() && tree.hub() == Some(*own)) else {
            return Err(match server.leader().filter(|leader| *leader != own) {
                Some(leader) => format!("server {leader} of {} leads, this is server {own}", self.own),
                None => format!("server {own} of {} does not lead its site, or that is no hub", self.own),
            });
        };
        drop(server);
        let sites = self.list(driver);
        let Some(site) = sites.iter().find(|site| site.addresses.name == hello.name && site.number != hub)
        else {
            let names: Vec<&str> = sites.iter().map(|site| site.addresses.name.as_str()).collect();
            return Err(format!(
                "{} is not one of the sites that join a hub here, which are: {}",
                hello.name,
                names.join(", ")
            ));
        };
        let mut is_its_own = false;
        for (host, _) in &site.addresses.servers {
            is_its_own |= stream.certifies(host)?;
        }
        if !is_its_own {
            return Err(format!(
                "its certificate is for none of the hosts that the sites have for {}: {}",
                hello.name, site.addresses
            ));
        }
        let server = driver.server.borrow();
        let imported = server.tree().streams().imported(site.number);
        check_past(hello, imported, server.applied())?;
        let known = self.links.borrow().get(&site.number).map(|link| link.term);
        if known.is_some_and(|term| term > hello.term) {
            return Err("a later leader of its site is connected".to_owned());
        }
        Ok(Welcome { number: site.number, hub, applied: server.applied(), software: software() })
    }

    /// Serves a connection until it ends. One with the same site that is there already ends.
    async fn keep(
        &self,
        link: &Rc<SiteLink>,
        (stream, rest): (Stream, BytesMut),
        said: tokio::sync::mpsc::UnboundedReceiver<Say>,
        driver: &Rc<Driver>,
    ) {
        if let Some(before) = self.links.borrow_mut().insert(link.site, Rc::clone(link)) {
            before.end();
        }
        let now = driver.now();
        driver.server.borrow_mut().site_connected(link.site, now);
        driver.after_input();
        let why = link.run(stream, rest, said, driver, self.disk.another()).await;
        let is_current = |links: &BTreeMap<SiteId, Rc<SiteLink>>| {
            links.get(&link.site).is_some_and(|current| Rc::ptr_eq(current, link))
        };
        if is_current(&self.links.borrow()) {
            self.links.borrow_mut().remove(&link.site);
            driver.server.borrow_mut().site_lost(link.site);
        }
        tracing::info!("site {} is not connected any more: {why}", link.name);
    }
}

/// Whether the pasts of a site and of the hub, which has so much of that site's log and has applied so much of its own,
/// fit together.
fn check_past(hello: &SiteHello, imported: u64, applied: u64) -> Result<(), String> {
    if !hello.has_joined && imported > 0 {
        return Err(format!(
            "{} has been here before with what it has lost by now, and is empty: what others have of it must not be \
             mixed with what it begins anew",
            hello.name
        ));
    }
    if hello.has_joined && hello.applied < imported {
        return Err(format!(
            "the hub has more of what {} has done than that has itself (up to {imported}, it is at {}): its data is \
             an older copy",
            hello.name, hello.applied
        ));
    }
    if hello.imported > applied {
        return Err(format!(
            "{} has more of what the hub has done than the hub has itself (up to {}, it is at {applied}): the hub's data \
             is an older copy",
            hello.name, hello.imported
        ));
    }
    Ok(())
}

fn software() -> String {
    format!("stoa {}", env!("CARGO_PKG_VERSION"))
}

async fn send(stream: &mut Stream, kind: FrameKind, payload: &[u8]) -> Result<(), String> {
    let sent = async {
        stream.write_all(&frame::encode(kind, &[payload])).await?;
        stream.flush().await
    };
    sent.await.map_err(|error| format!("the connection broke: {error}"))
}

/// The next frame; what follows it stays in the buffer.
async fn receive(stream: &mut Stream, buffer: &mut BytesMut) -> Result<(FrameKind, bytes::Bytes), String> {
    loop {
        match frame::take(buffer, HELLO_BYTES_MAX) {
            Ok(Some(frame)) => return Ok(frame),
            Ok(None) => {}
            Err(error) => return Err(format!("it has sent {error}")),
        }
        match stream.read_buf(buffer).await {
            Ok(0) => return Err("it has closed the connection".to_owned()),
            Ok(_) => {}
            Err(error) => return Err(format!("the connection broke: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pasts_that_do_not_fit_are_kept_apart() {
        let hello = |has_joined, applied, imported| SiteHello {
            name: "frankfurt".into(),
            term: 1,
            has_joined,
            applied,
            imported,
            software: String::new(),
        };
        assert_eq!(check_past(&hello(false, 3, 0), 0, 100), Ok(()));
        assert_eq!(check_past(&hello(true, 30, 100), 30, 100), Ok(()));
        let why = |hello, imported| check_past(&hello, imported, 100).unwrap_err();
        assert!(why(hello(false, 3, 0), 1).contains("is empty"));
        assert!(why(hello(true, 30, 0), 31).contains("an older copy"));
        assert!(why(hello(true, 30, 101), 0).contains("the hub's data is an older copy"));
    }
}
