//! Where this server listens for clients and for the other servers: as its settings say, and once reconfig has
//! changed the list of servers as that one does.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use crate::config::{FixedPorts, Member, Settings, client_ip};
use crate::driver::Driver;
use crate::listen::{Bound, Listener};
use crate::process::Process;

/// How often a port that could not be had is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// What the settings say of the ports.
#[derive(Clone, Debug)]
pub(crate) struct OwnPorts {
    id: u64,
    fixed: FixedPorts,
    /// Where clients connect.
    clients: SocketAddr,
    /// For clients, when nothing more is said.
    any_ip: IpAddr,
    /// Where other servers connect.
    peers: Option<SocketAddr>,
    backlog: u32,
}

/// Sockets that are bound before there is a runtime.
pub(crate) struct Sockets {
    pub(crate) clients: Bound,
    pub(crate) peers: Option<Bound>,
}

/// The same as the settings say, before the list of servers in the data folder is known. What could not be had may
/// not be needed.
pub(crate) struct FirstSockets {
    clients: Result<Bound, String>,
    peers: Option<Result<Bound, String>>,
}

/// Where a server listens.
#[derive(Clone)]
pub(crate) struct Listeners {
    pub(crate) clients: Rc<Listener>,
    pub(crate) peers: Option<Rc<Listener>>,
}

impl OwnPorts {
    pub(crate) fn new(settings: &Settings, fixed: FixedPorts) -> Self {
        let own = settings.own_member();
        Self {
            id: own.map_or(0, |own| own.id),
            fixed,
            clients: SocketAddr::new(settings.bind, settings.port),
            any_ip: if fixed.bind { settings.bind } else { Settings::default().bind },
            peers: own.map(|own| SocketAddr::new(settings.peer_bind, own.peer_port)),
            backlog: settings.listen_backlog,
        }
    }

    /// Binds what the settings say, so that a port that is taken is found out at once. Only of a server whose list
    /// in the data folder may say something else it is not known yet whether that matters.
    pub(crate) fn bind(&self) -> Result<FirstSockets, String> {
        let clients = self.bind_for(self.clients, "clients", "bind and port");
        let peers = self.peers.map(|peers| self.bind_for(peers, "other servers", "peer-bind and servers"));
        if self.peers.is_none() || self.fixed.port && self.fixed.bind {
            clients.as_ref().map_err(String::clone)?;
        }
        Ok(FirstSockets { clients, peers })
    }

    fn bind_for(&self, address: SocketAddr, whom: &str, settings: &str) -> Result<Bound, String> {
        let (ip, port) = (address.ip(), address.port());
        Bound::new(address, self.backlog).map_err(|error| {
            format!("cannot listen for {whom} on {ip} port {port}: {error} (settings {settings})")
        })
    }

    /// This server in a list of servers.
    fn own_line(&self, list: Option<&str>) -> Option<Member> {
        list?.lines().filter_map(Member::of_line).find(|member| member.id == self.id)
    }

    /// Where clients connect by this server's line in the list. A name is looked up, which may take long.
    fn clients_by(&self, own: &Member) -> Result<SocketAddr, String> {
        let Some((host, port)) = &own.client else { return Ok(self.clients) };
        let ip = match host {
            Some(host) if !self.fixed.bind => client_ip(host).ok_or_else(|| {
                format!("the client address {host} of this server in the list of servers cannot be looked up")
            })?,
            _ => self.any_ip,
        };
        let ip = if ip.is_unspecified() { self.any_ip } else { ip };
        Ok(SocketAddr::new(ip, if self.fixed.port { self.clients.port() } else { *port }))
    }

    fn peers_by(&self, own: &Member) -> Option<SocketAddr> {
        self.peers.map(|peers| SocketAddr::new(peers.ip(), own.peer_port))
    }

    /// Says where the settings win over the list.
    fn warn(&self, own: &Member) {
        let Some((_, port)) =
            own.client.as_ref().filter(|(_, port)| self.fixed.port && *port != self.clients.port())
        else {
            return;
        };
        tracing::warn!(
            "the list of servers says that clients connect to this server at port {port}, but the setting port says {}, \
             which counts: take it out of the settings, or change the list with reconfig",
            self.clients.port()
        );
    }
}

impl OwnPorts {
    /// Follows the list of servers, for ever.
    pub(crate) async fn follow(self, listeners: Listeners, driver: Rc<Driver>) {
        let Some(ensemble) = driver.ensemble.get() else { return };
        let (mut followed, mut attempts) = (None, 0_u32);
        loop {
            let own = self.own_line(ensemble.servers(&driver.server.borrow()).as_deref());
            if own != followed {
                attempts = 0;
                own.iter().for_each(|own| self.warn(own));
                followed = own;
            }
            attempts += 1;
            let failed = match followed.clone() {
                Some(own) => self.move_to(own, &listeners, &driver.process).await,
                None => Vec::new(),
            };
            // It is the same as often as it is tried.
            if attempts.is_power_of_two() {
                failed.iter().for_each(|why| tracing::error!("{why}"));
            }
            tokio::select! {
                () = ensemble.list_changed() => {}
                () = tokio::time::sleep(RETRY), if !failed.is_empty() => {}
            }
        }
    }

    /// Listens where this line says, and tells why it could not.
    async fn move_to(&self, own: Member, listeners: &Listeners, process: &Process) -> Vec<String> {
        let ports = self.clone();
        let (peers, found) = (self.peers_by(&own), move || ports.clients_by(&own));
        let found = tokio::task::spawn_blocking(found).await.unwrap_or_else(|error| Err(error.to_string()));
        let clients = found.and_then(|address| moved(&listeners.clients, address, "clients"));
        if let Some(now) = listeners.clients.address() {
            process.set_port(now.port());
        }
        let peers = peers.zip(listeners.peers.as_ref());
        let peers = peers.map(|(address, listener)| moved(listener, address, "other servers"));
        [Some(clients), peers].into_iter().flatten().filter_map(Result::err).collect()
    }
}

fn moved(listener: &Listener, to: SocketAddr, whom: &str) -> Result<(), String> {
    if listener.is_at(to) {
        return Ok(());
    }
    let moved = listener.move_to(to);
    let now = listener.address().map_or_else(|| "nowhere".to_owned(), |now| format!("on {now}"));
    match moved {
        Ok(()) => {
            tracing::info!("listens for {whom} {now} now, as the list of servers says");
            Ok(())
        }
        Err(error) => Err(format!(
            "cannot listen for {whom} on {to}, where the list of servers has this server: {error}; it listens {now}, \
             and tries again now and then: free that port, or say another one with reconfig"
        )),
    }
}

impl FirstSockets {
    /// The port that clients find, if it is known already.
    pub(crate) fn client_port(&self) -> Option<u16> {
        self.clients.as_ref().ok()?.socket.local_addr().ok().map(|address| address.port())
    }

    /// Binds what the list of servers says instead, if reconfig has changed it. What cannot be had there is listened
    /// for as the settings say, and tried again later.
    pub(crate) fn settle(self, ports: &OwnPorts, list: Option<&str>) -> Result<Sockets, String> {
        let Some(own) = ports.own_line(list) else {
            return Ok(Sockets { clients: self.clients?, peers: self.peers.transpose()? });
        };
        let by_list = |first: Result<Bound, String>, wanted: Result<SocketAddr, String>, whom| match wanted {
            Ok(wanted) if first.as_ref().is_ok_and(|first| first.address == wanted) => first,
            wanted => wanted
                .and_then(|wanted| {
                    ports.bind_for(wanted, whom, "bind and peer-bind, and the list of servers")
                })
                .or_else(|why| first.map_err(|first| format!("{why}; {first}"))),
        };
        let peers = self.peers.zip(ports.peers_by(&own));
        Ok(Sockets {
            clients: by_list(self.clients, ports.clients_by(&own), "clients")?,
            peers: peers.map(|(first, wanted)| by_list(first, Ok(wanted), "other servers")).transpose()?,
        })
    }
}

impl Sockets {
    /// Must be called within a runtime.
    pub(crate) fn listeners(self, backlog: u32) -> std::io::Result<Listeners> {
        let peers = self.peers.map(|bound| Listener::new(bound, backlog)).transpose()?;
        Ok(Listeners { clients: Listener::new(self.clients, backlog)?, peers })
    }
}
