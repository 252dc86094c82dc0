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
mod lost;
mod meet;
mod order;
mod pack;
mod rules;
mod succession;
mod view;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::BytesMut;
use stoa_core::{BacklogWanted, SITES_PATH, SiteId, SiteSet, Succession};
use stoa_tree::Tree;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
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
use link::{Say, SiteLink};
use list::Site;

/// How often it is looked at whether there has to be a connection.
const TEND: Duration = Duration::from_millis(100);
/// How often a site asks another one who the hub is.
const LOOK: Duration = Duration::from_secs(2);
/// How long it may take until both sides know each other: some round trips around the world.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(5);
/// What is said before both know each other is shorter.
const HELLO_BYTES_MAX: usize = 64 << 10;
/// How long it is waited before a hub that could not be reached is tried again.
const RETRY: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(1);

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
    /// The site that is being connected to, or was last.
    connecting_to: Cell<SiteId>,
    is_looking: Cell<bool>,
    looked_at: Cell<Instant>,
    /// The site that was looked at last, and those to be looked at soon: they know of a later hub, or have to hear of it.
    looked_at_site: Cell<SiteId>,
    to_look_at: Cell<SiteSet>,
    /// There is another site to connect to.
    is_news: Notify,
    /// The hub of a later reign than is known here, as another site says.
    believed: Cell<(u64, SiteId)>,
    driver: OnceCell<Weak<Driver>>,
    /// Which other sites miss the hub.
    succession: RefCell<Succession>,
    /// The last term in which this server, leading the hub, has begun that there are sites.
    began_in: Cell<u64>,
    has_said_what_moved: Cell<bool>,
    /// The zxid of the list whose lines on tokens have been handed in.
    ruled_by: Cell<i64>,
    /// Where this site was given up: how many of its updates the others do not have, once that is counted.
    lost_count: Cell<Option<u64>>,
    is_counting_lost: Cell<bool>,
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

/// What the site is called whose state this is, if it is that of one.
pub(crate) fn own_name(tree: &Tree) -> Option<String> {
    let own = tree.own_site()?;
    let text = tree.get(SITES_PATH)?.data().map(String::from_utf8_lossy)?;
    let site = list::decode(&text).into_iter().find(|site| site.number == own)?;
    Some(site.addresses.name)
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
            connecting_to: Cell::new(0),
            is_looking: Cell::new(false),
            looked_at: Cell::new(Instant::now()),
            looked_at_site: Cell::new(0),
            to_look_at: Cell::new(SiteSet::default()),
            is_news: Notify::new(),
            believed: Cell::new((0, 0)),
            succession: RefCell::default(),
            driver: OnceCell::new(),
            began_in: Cell::new(0),
            has_said_what_moved: Cell::new(false),
            ruled_by: Cell::new(0),
            lost_count: Cell::new(None),
            is_counting_lost: Cell::new(false),
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
        while let Some(site) = server.poll_torn_site() {
            self.complaints.say(&format!(
                "site {site} lacks what this one has, and the log here does not reach back to that any more. If it is to be \
                 the hub, promote this site in its place; else have it given up and join anew, see docs/sites.md"
            ));
            if let Some(link) = self.links.borrow().get(&site) {
                link.end();
            }
        }
        while let Some(wanted) = server.poll_site_backlog() {
            let Some(driver) = self.driver.get().and_then(Weak::upgrade) else { return };
            tokio::task::spawn_local(Rc::clone(self).send_backlog(driver, wanted));
        }
    }

    /// Sends a site what it lacks and is not in memory any more.
    async fn send_backlog(self: Rc<Self>, driver: Rc<Driver>, wanted: BacklogWanted) {
        let BacklogWanted { site, since, upto, .. } = wanted;
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

    fn end_links(&self) {
        self.links.borrow().values().for_each(|link| link.end());
    }

    /// Sees to it that there are the connections that there have to be, and no others.
    fn tend(self: &Rc<Self>, driver: &Rc<Driver>) {
        self.hand_in_rules(driver);
        self.tend_lost(driver);
        driver.tell_level();
        let leads = driver.server.borrow().leads();
        if !leads {
            return self.end_links();
        }
        if driver.server.borrow().tree().own_site().is_none() && self.is_first() {
            return self.begin_sites(driver);
        }
        if !driver.server.borrow().may_join() {
            // It was given up a moment ago, and what it has must not go before an operator says so.
            self.end_links();
        }
        let upper = self.upper(driver);
        let fits = |link: &SiteLink| match upper {
            Some(upper) => link.site == upper && !link.is_below(),
            None => link.is_below(),
        };
        self.links.borrow().values().filter(|link| !fits(link)).for_each(|link| link.end());
        if upper.is_none() {
            self.say_who_is_the_hub(driver);
        } else if !self.is_connecting.replace(true) {
            let (sites, driver) = (Rc::clone(self), Rc::clone(driver));
            tokio::task::spawn_local(async move {
                sites.connect(&driver).await;
                sites.is_connecting.set(false);
            });
        } else if upper != Some(self.connecting_to.get()) {
            // This site has followed another one since.
            self.is_news.notify_one();
        }
        self.tend_succession(driver);
        for site in self.to_look_at.take().iter() {
            let (sites, driver) = (Rc::clone(self), Rc::clone(driver));
            tokio::task::spawn_local(async move { drop(sites.look_at(site, &driver).await) });
        }
        if self.looked_at.get().elapsed() >= LOOK && !self.is_looking.replace(true) {
            let (sites, driver) = (Rc::clone(self), Rc::clone(driver));
            tokio::task::spawn_local(async move {
                sites.look_around(&driver).await;
                sites.looked_at.set(Instant::now());
                sites.is_looking.set(false);
            });
        }
    }

    /// This is the hub: the list has to say so.
    fn say_who_is_the_hub(&self, driver: &Driver) {
        let own = driver.server.borrow().tree().own_site();
        let mut sites = self.list(driver);
        if sites.iter().any(|site| site.is_hub && Some(site.number) != own) {
            sites.iter_mut().for_each(|site| site.is_hub = Some(site.number) == own);
            // It is tried again soon.
            let _ = self.write(&sites, driver);
            driver.after_input();
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
            Err(_) => self.say_why_it_cannot_begin(driver),
        }
    }

    /// It is tried again soon; an operator may have to do something first.
    fn say_why_it_cannot_begin(&self, driver: &Driver) {
        self.began_in.set(0);
        let server = driver.server.borrow();
        if let Some((moved, _)) = server.placement().exceptions().next()
            && !self.has_said_what_moved.replace(true)
        {
            let home = server.placement().default_of(moved);
            tracing::error!(
                "{} does not become a site yet: {moved} was moved between its partitions, and nothing moves in one of \
                 several sites. Write `balance off` into /zookeeper/partitions, and move {moved} back to partition \
                 {home}, and what else `stoa partitions` shows as moved",
                self.own
            );
        }
    }
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
