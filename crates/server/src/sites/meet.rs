//! How the leaders of sites find each other: each connects to that of the hub, or of the site that is to be the hub, and
//! asks the others now and then who that is. Whoever is asked tells what he knows of it.

use std::collections::BTreeMap;

use super::hello::{Answer, SiteHello, Welcome};
use super::*;
use stoa_core::{
    Claim, Greeting, SiteReach, answer_site, believed_hub, is_of_later_life, kept_of_site, knows_later_hub,
    upper_site,
};

impl Sites {
    /// The site that this one is to be connected to: the hub, or who is to be it. None where this is that site.
    pub(super) fn upper(&self, driver: &Driver) -> Option<SiteId> {
        let first = || Some(self.list(driver).into_iter().find(|site| site.is_hub)?.number);
        let server = driver.server.borrow();
        upper_site(&server, self.believed.get(), first)
    }

    /// Connects to the leader of the hub, or of who is to be it, and stays connected as long as that lasts.
    pub(super) async fn connect(self: &Rc<Self>, driver: &Rc<Driver>) {
        let mut wait = RETRY;
        while driver.server.borrow().leads()
            && let Some(upper) = self.upper(driver)
        {
            self.connecting_to.set(upper);
            if !driver.server.borrow().may_join() {
                self.complaints.say(&self.why_not(driver));
                tokio::time::sleep(RETRY_MAX).await;
                continue;
            }
            let began = Instant::now();
            let is_met = self.connect_to(upper, driver).await;
            let is_another = self.upper(driver) != Some(upper);
            if is_another || is_met && began.elapsed() > RETRY_MAX {
                wait = RETRY;
            }
            if is_another {
                continue;
            }
            if !is_met {
                // Somebody else may know who the hub is, or say so meanwhile.
                tokio::select! {
                    () = self.look_around(driver) => {}
                    () = self.is_news.notified() => continue,
                }
            }
            let _ = timeout(wait, self.is_news.notified()).await;
            wait = (wait * 2).min(RETRY_MAX);
        }
    }

    fn why_not(&self, driver: &Driver) -> String {
        if driver.server.borrow().tree().own_site().is_some() {
            return format!(
                "{} was given up by the other sites, which may have gone on without something that it has done: it serves \
                 nobody. `stoa sites rejoin --discard` has it give up what it has and join anew",
                self.own
            );
        }
        format!(
            "{} cannot join the other sites: it has znodes or sessions of its own, which would be lost. Start its servers \
             with empty data folders, or without the setting site",
            self.own
        )
    }

    /// Whether it was connected.
    async fn connect_to(self: &Rc<Self>, upper: SiteId, driver: &Rc<Driver>) -> bool {
        let Some((name, addresses)) = self.addresses(upper, driver) else {
            self.complaints.say("the list of sites names no hub: see the znode /zookeeper/sites");
            return false;
        };
        for address in addresses {
            let (host, port) = (&address.host, address.port);
            let met = tokio::select! {
                met = self.meet(&address, false, driver) => met,
                // One that does not answer may not be the hub any more.
                () = self.is_news.notified() => return false,
            };
            match met {
                Ok((stream, rest, welcome)) if welcome.answer == Answer::Connected => {
                    let (link, said) =
                        SiteLink::new((welcome.from, &name), (welcome.number, welcome.from), 0);
                    let software = &welcome.software;
                    tracing::info!("{name}, the hub, is connected at {host}:{port} ({software})");
                    self.keep(&link, (stream, rest), said, driver).await;
                    return true;
                }
                Ok((.., welcome)) => {
                    self.learn(&welcome, driver);
                    return false;
                }
                Err(why) => {
                    self.complaints.say(&format!("the hub {name} cannot be reached at {host}:{port}: {why}"));
                }
            }
        }
        false
    }

    /// Asks the next one of the other sites who the hub is.
    pub(super) async fn look_around(&self, driver: &Driver) {
        let sites = self.list(driver);
        let others = || sites.iter().filter(|site| site.addresses.name != self.own);
        let after = self.looked_at_site.get();
        let Some(site) = others().find(|site| site.number > after).or_else(|| others().next()) else {
            return;
        };
        self.looked_at_site.set(site.number);
        let _ = self.look_at(site.number, driver).await;
    }

    /// Asks a site who the hub is. Returns what the site has, if it says so.
    pub(super) async fn look_at(&self, site: SiteId, driver: &Driver) -> Option<SiteReach> {
        let (_, addresses) = self.addresses(site, driver)?;
        for address in addresses {
            if let Ok((_, _, welcome)) = self.meet(&address, true, driver).await {
                self.learn(&welcome, driver);
                return welcome.reach;
            }
        }
        None
    }

    /// Another site has told what it knows.
    fn learn(&self, welcome: &Welcome, driver: &Driver) {
        let (now, upper) = (driver.now(), self.upper(driver));
        let reach = welcome.reach.clone().filter(|_| welcome.misses_hub);
        self.succession.borrow_mut().heard(welcome.from, reach, now);
        self.make_up(welcome, driver);
        {
            let mut server = driver.server.borrow_mut();
            let told = (welcome.reign, welcome.hub);
            self.believed.set(believed_hub(&server, self.believed.get(), told));
            if welcome.answer == Answer::Lost && server.has_joined() {
                tracing::error!("the other sites have given this one up");
                server.site_is_lost(now);
            }
            if let Some(kept) = &welcome.kept {
                server.site_is_kept(kept, now);
            }
        }
        driver.after_input();
        if self.upper(driver) != upper {
            self.is_news.notify_one();
        }
        self.hear_of(welcome.claim, driver);
    }

    /// Another site knows that one is to be the hub, if there is such a claim.
    fn hear_of(&self, claim: Option<Claim>, driver: &Driver) {
        let Some(claim) = claim else { return };
        let (now, upper) = (driver.now(), self.upper(driver));
        driver.server.borrow_mut().follow_site(claim, now);
        driver.after_input();
        if Some(claim.hub) != upper {
            self.is_news.notify_one();
        }
    }

    /// Where this server reaches a site: as its own settings say, which may be another network than that of others, or
    /// else as all know it.
    pub(super) fn reached_at<'a>(&'a self, known: &'a SiteAddresses) -> &'a SiteAddresses {
        self.listed.iter().find(|site| site.name == known.name).unwrap_or(known)
    }

    /// A site's name, and where its servers may be.
    fn addresses(&self, site: SiteId, driver: &Driver) -> Option<(String, Vec<PeerAddress>)> {
        let known = self.list(driver).into_iter().find(|known| known.number == site)?.addresses;
        let of = |(host, port): &(String, u16)| PeerAddress { id: 0, host: host.clone(), port: *port };
        let addresses = self.reached_at(&known).servers.iter().map(of).collect();
        Some((known.name, addresses))
    }

    fn hello(&self, looks: bool, driver: &Driver) -> SiteHello {
        let server = driver.server.borrow();
        let (tree, streams) = (server.tree(), server.tree().streams());
        let Greeting { has_joined, lives, following, looks, levels } = Greeting::of(&server, looks);
        SiteHello {
            name: self.own.clone(),
            term: server.status().term,
            has_joined,
            applied: server.applied_of_log(),
            hub: tree.hub().filter(|_| has_joined).unwrap_or_default(),
            imported: tree.hub().map_or(0, |hub| streams.imported(hub)),
            lives,
            following,
            looks,
            claim: tree.streams().claim(),
            software: software(),
            levels,
        }
    }

    async fn meet(
        &self,
        address: &PeerAddress,
        looks: bool,
        driver: &Driver,
    ) -> Result<(Stream, BytesMut, Welcome), String> {
        let meeting = async {
            let socket = stream::open(address).await?;
            let mut stream = Stream::to(socket, Some(&self.tls), &address.host).await?;
            // Two round trips have gone by, in which this site may have followed who is asked.
            let hello = self.hello(looks, driver);
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
        self.compare_levels(&welcome, driver)?;
        Ok((stream, rest, welcome))
    }

    /// Whether this site and one that has answered can ship each other anything.
    fn compare_levels(&self, welcome: &Welcome, driver: &Driver) -> Result<(), String> {
        let known = self.list(driver).into_iter().find(|site| site.number == welcome.from);
        let other = known.map_or_else(|| format!("site {}", welcome.from), |site| site.addresses.name);
        let mut server = driver.server.borrow_mut();
        server.site_levels(welcome.from, welcome.levels);
        if welcome.answer == Answer::Lost {
            // Nothing is shipped, and what it has to tell is not of any level.
            return Ok(());
        }
        server.own_levels().check(&self.own, welcome.levels, &other)
    }

    // ---- another one connects ----

    /// Somebody connects who says to be the leader of another site.
    pub(super) async fn admit(self: Rc<Self>, driver: Rc<Driver>, socket: TcpStream, address: SocketAddr) {
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
                let is_told = send(&mut stream, FrameKind::Accepted, &welcome.encode()).await.is_ok();
                if is_told && welcome.answer == Answer::Connected {
                    let of = (welcome.number, hello.name.as_str());
                    let (link, said) = SiteLink::new(of, (welcome.from, welcome.from), hello.term);
                    tracing::info!("site {} is connected from {address} ({})", hello.name, hello.software);
                    self.keep(&link, (stream, rest), said, &driver).await;
                } else {
                    let _ = stream.shutdown().await;
                }
            }
            Err(why) => {
                refused(&why);
                let _ = send(&mut stream, FrameKind::Refused, why.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        }
    }

    /// What a site is told that connects here.
    ///
    /// # Errors
    /// Why it is told nothing, for the operator of that site.
    fn judge(&self, hello: &SiteHello, stream: &Stream, driver: &Driver) -> Result<Welcome, String> {
        let (own, hub, reign, claim) = {
            let server = driver.server.borrow();
            let (tree, id) = (server.tree(), server.status().id);
            let own = tree.own_site().filter(|_| server.leads() && server.has_joined());
            let Some(own) = own else {
                return Err(match server.leader().filter(|leader| *leader != id) {
                    Some(leader) => format!("server {leader} of {} leads, this is server {id}", self.own),
                    None => format!("server {id} of {} does not lead its site, or has not joined", self.own),
                });
            };
            (own, tree.hub().unwrap_or_default(), tree.reign(), tree.streams().claim())
        };
        let site = self.prove(hello, stream, driver)?;
        driver.server.borrow_mut().site_levels(site.number, hello.levels);
        // Who is to be the hub says so when it asks: to ask back would cost a handshake more.
        self.hear_of(hello.claim, driver);
        let greeting = hello.greeting();
        self.go_on_without(&site, &greeting, driver);
        let server = driver.server.borrow();
        let tree = server.tree();
        if hello.claim.is_none() && knows_later_hub(&server, &greeting) {
            self.to_look_at.set(self.to_look_at.get().with(site.number));
        }
        let answer = answer_site(&server, site.number, &greeting);
        if answer != Answer::Lost {
            server.own_levels().check(&self.own, hello.levels, &hello.name)?;
        }
        if is_of_later_life(&server, site.number, &greeting) {
            return Err(format!(
                "{0} was given up and came back under a hub of which {1} has not heard, so {0} cannot follow {1} before \
                 another site has told {1} of that; if none can, promote {0} instead (stoa sites promote), or give {0} \
                 up at {1}",
                hello.name, self.own
            ));
        }
        if answer == Answer::Connected {
            let imported = tree.streams().imported(site.number);
            check_past(hello, own, imported, server.applied_of_log())?;
            let known = self.links.borrow().get(&site.number).map(|link| link.term);
            if known.is_some_and(|term| term > hello.term) {
                return Err("a later leader of its site is connected".to_owned());
            }
        }
        let applied = server.applied_of_log();
        let misses_hub = server.misses_hub(driver.now());
        Ok(Welcome {
            number: site.number,
            from: own,
            hub,
            reign,
            answer,
            claim,
            applied,
            misses_hub,
            reach: (misses_hub || hello.looks && answer != Answer::Lost).then(|| server.reach()),
            kept: kept_of_site(&server, site.number, &greeting),
            software: software(),
            levels: server.own_levels(),
        })
    }

    /// Whether it is a server of the site that it says to be of.
    fn prove(&self, hello: &SiteHello, stream: &Stream, driver: &Driver) -> Result<Site, String> {
        let sites = self.list(driver);
        let is_other = |site: &&Site| site.addresses.name == hello.name && site.addresses.name != self.own;
        let Some(site) = sites.iter().find(is_other) else {
            let names: Vec<&str> = sites.iter().map(|site| site.addresses.name.as_str()).collect();
            return Err(format!(
                "{} is not one of the other sites that are known here: {}",
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
        Ok(site.clone())
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
fn check_past(hello: &SiteHello, own: SiteId, imported: u64, applied: u64) -> Result<(), String> {
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
    if hello.hub == own && hello.imported > applied {
        return Err(format!(
            "{} has more of what the hub has done than the hub has itself (up to {}, it is at {applied}): the hub's data \
             is an older copy",
            hello.name, hello.imported
        ));
    }
    Ok(())
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
            hub: 1,
            imported,
            lives: 0,
            following: 1,
            looks: false,
            claim: None,
            software: String::new(),
            levels: stoa_core::SiteLevels::UNSAID,
        };
        assert_eq!(check_past(&hello(false, 3, 0), 1, 0, 100), Ok(()));
        assert_eq!(check_past(&hello(true, 30, 100), 1, 30, 100), Ok(()));
        let why = |hello, imported| check_past(&hello, 1, imported, 100).unwrap_err();
        assert!(why(hello(false, 3, 0), 1).contains("is empty"));
        assert!(why(hello(true, 30, 0), 31).contains("an older copy"));
        assert!(why(hello(true, 30, 101), 0).contains("the hub's data is an older copy"));
    }
}
