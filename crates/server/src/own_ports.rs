//! Where this server listens for clients and for the other servers: as its settings say, and once reconfig has
//! changed the list of servers as that one does.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use crate::config::{FixedPorts, Member, Settings, client_ip};
use crate::driver::Driver;
use crate::listen::{Bound, Listener};
use crate::openings::{Asks, Encryption, Opening};
use crate::process::Process;

/// How often a port that could not be had is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// What the settings say of the ports.
#[derive(Clone, Debug)]
pub(crate) struct OwnPorts {
    /// Its id, where there are other servers.
    id: Option<u8>,
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
        let of_reader = Some(settings.reader_port).filter(|port| settings.is_reader() && *port != 0);
        let of_reader = of_reader.map(|port| SocketAddr::new(settings.peer_bind, port));
        Self {
            id: own.map(|own| own.id),
            fixed,
            clients: SocketAddr::new(settings.bind, settings.port),
            any_ip: if fixed.bind { settings.bind } else { Settings::default().bind },
            peers: own.map_or(of_reader, |own| Some(SocketAddr::new(settings.peer_bind, own.peer_port))),
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
        list?.lines().filter_map(Member::of_line).find(|member| Some(member.id) == self.id)
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
    /// Who may connect where.
    pub(crate) fn openings(&self, settings: &Settings) -> Vec<Opening> {
        let has_tls = settings.has_peer_tls();
        let asks = Asks::of_peers(settings.peer_secret.is_some(), has_tls);
        let at = |bound: &Bound| bound.socket.local_addr().unwrap_or(bound.address);
        let clients = Opening::of_clients(settings, at(&self.clients), settings.tls_on_port);
        let encryption = if has_tls { Encryption::All } else { Encryption::None };
        let peers = |bound| Opening::new("other servers", at(bound), asks).encrypted(encryption);
        [clients].into_iter().chain(self.peers.as_ref().map(peers)).collect()
    }

    /// Must be called within a runtime.
    pub(crate) fn listeners(self, backlog: u32) -> std::io::Result<Listeners> {
        let peers = self.peers.map(|bound| Listener::new(bound, backlog)).transpose()?;
        Ok(Listeners { clients: Listener::new(self.clients, backlog)?, peers })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU16, Ordering};

    use super::*;

    const LIST: &str = "server.1=a:2:3:participant;5\nserver.2=b:2:3:participant;127.0.0.1:6\nversion=9";

    fn ports(id: u8, fixed: FixedPorts) -> OwnPorts {
        let servers = LIST.lines().filter_map(Member::of_line).collect();
        let bind = if fixed.bind { [127, 0, 0, 9].into() } else { Settings::default().bind };
        let settings = Settings { servers, server_id: Some(id), port: 4, bind, ..Settings::default() };
        OwnPorts::new(&settings, fixed)
    }

    fn clients(ports: &OwnPorts, list: &str) -> Result<String, String> {
        ports.clients_by(&ports.own_line(Some(list)).unwrap()).map(|address| address.to_string())
    }

    #[test]
    fn the_list_says_where_a_server_listens_and_its_own_settings_win() {
        let free = FixedPorts::default();
        assert_eq!(clients(&ports(1, free), LIST).unwrap(), "[::]:5");
        assert_eq!(clients(&ports(2, free), LIST).unwrap(), "127.0.0.1:6");
        assert_eq!(clients(&ports(2, FixedPorts { port: true, bind: false }), LIST).unwrap(), "127.0.0.1:4");
        assert_eq!(clients(&ports(2, FixedPorts { port: false, bind: true }), LIST).unwrap(), "127.0.0.9:6");
        assert_eq!(clients(&ports(1, free), "server.1=a:7:8;0.0.0.0:9").unwrap(), "[::]:9");
        assert_eq!(clients(&ports(1, free), "server.1=a:7:8").unwrap(), "[::]:4", "it says nothing");
        assert!(
            clients(&ports(1, free), "server.1=a:7:8;nowhere.invalid:9")
                .unwrap_err()
                .contains("nowhere.invalid")
        );
        let peers = ports(1, free);
        let line = peers.own_line(Some("server.1=a:7:8;9")).unwrap();
        assert_eq!(peers.peers_by(&line).unwrap().to_string(), "[::]:7");
        assert_eq!(peers.own_line(Some("server.2=a:7:8;9")), None);
        assert_eq!(peers.own_line(None), None);
    }

    #[test]
    fn a_port_that_is_taken_is_found_out_at_once_where_no_list_can_say_another_one() {
        let port = free_port();
        let taken = crate::listen::bind([127, 0, 0, 1].into(), port, 16).unwrap();
        let settings = Settings { port, bind: [127, 0, 0, 1].into(), ..Settings::default() };
        let why = OwnPorts::new(&settings, FixedPorts::default()).bind().err().unwrap();
        assert!(why.starts_with(&format!("cannot listen for clients on 127.0.0.1 port {port}: ")), "{why}");
        let line =
            |port: u16| Member::of_line(&format!("server.1=127.0.0.1:{}:1;127.0.0.1:{port}", free_port()));
        let servers = vec![line(port).unwrap()];
        let settings = Settings { servers, server_id: Some(1), peer_bind: [127, 0, 0, 1].into(), ..settings };
        let ports = OwnPorts::new(&settings, FixedPorts::default());
        assert!(
            ports
                .bind()
                .unwrap()
                .settle(&ports, None)
                .err()
                .unwrap()
                .starts_with("cannot listen for clients")
        );
        let list = line(free_port()).unwrap().to_string();
        let sockets = ports.bind().unwrap().settle(&ports, Some(&list)).unwrap();
        assert!(list.ends_with(&format!(":{}", sockets.clients.address.port())));
        // What is taken there, too, can be had where the settings say.
        drop((sockets, taken));
        let again = free_port();
        let _taken = crate::listen::bind([127, 0, 0, 1].into(), again, 16).unwrap();
        let list = line(again).unwrap().to_string();
        let sockets = ports.bind().unwrap().settle(&ports, Some(&list)).unwrap();
        assert_eq!(sockets.clients.address.port(), port);
    }

    /// A port that nobody listens on, below those that the system gives to connections; each one is given once.
    fn free_port() -> u16 {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let first = std::process::id() as u16;
        loop {
            let port = 30_000 + first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 2_000;
            if crate::listen::bind([127, 0, 0, 1].into(), port, 16).is_ok() {
                return port;
            }
        }
    }
}
