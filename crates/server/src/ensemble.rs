//! Between the core and the other servers: carries messages and snapshots, and knows the others' disks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::PathBuf;

use bytes::Bytes;
use stoa_core::{
    Acquaintance, DiskId, HistoryId, Now, ParentOutput, PeerOutput, ReaderOutput, Replica, Share, Standing,
    Starts, StateLoader, Status,
};
use stoa_storage::SnapshotReader;
use stoa_tree::Options as TreeOptions;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::clock::Clock;
use crate::config::{Member, ParentAddress, READER_ID, Settings};
use crate::file_disk::FileDisk;
use crate::known_disks::StoredDisks;
use crate::log_thread::{DiskEvent, FIRST, Reports};
use crate::peers::{
    Common, Identity, NOT_LISTED, PeerAddress, PeerEvent, PeerOptions, PeerPort, PeerStatus, PeerTls, Peers,
    TieEvent, TieOwner, Ties, Understands,
};

/// While so much is asked of the leader and has no outcome, no more is read of readers.
const ASKED_BYTES_MAX: usize = 64 << 20;
const NOT_READ: &str = "it says what cannot be read: is it of another release?";

/// A snapshot of this server that can be sent.
#[derive(Clone, Debug)]
pub(crate) struct StoredSnapshot {
    /// Where on the timeline it stands.
    pub(crate) position: u64,
    /// Its file.
    pub(crate) file: String,
}

/// What it takes one partition to meet the other servers.
pub(crate) struct Meeting {
    options: PeerOptions,
    /// What the partition is told of readers and of a parent.
    tied: UnboundedReceiver<TieEvent>,
    disk: FileDisk,
    history: Option<HistoryId>,
    tree_options: TreeOptions,
    /// At the first partition: the newest snapshot here.
    newest: Option<StoredSnapshot>,
}

/// The data folder, for those who meet others.
pub(crate) struct Home<'a> {
    pub(crate) disk: &'a FileDisk,
    pub(crate) disk_id: DiskId,
    pub(crate) standing: Standing,
    /// Its starts, the present one included.
    pub(crate) starts: Starts,
    /// It needs nobody to decide.
    pub(crate) decides_alone: bool,
    /// It is that of another server, which stood alone.
    pub(crate) copied_from: Option<u8>,
    pub(crate) tree_options: &'a TreeOptions,
    /// Its newest snapshot.
    pub(crate) newest: Option<StoredSnapshot>,
    pub(crate) partitions: u8,
    pub(crate) tls: Option<PeerTls>,
    /// Of this process.
    pub(crate) tag: u64,
    /// What the site is called that the folder is of, if it is of one.
    pub(crate) site: Option<String>,
}

/// Whether anybody else belongs to the ensemble by now, with a vote or without.
fn others_belong(status: &Status) -> bool {
    status.voters.len() + status.observers.len() > 1
}

impl Meeting {
    /// The port for the others, and what each partition begins with.
    pub(crate) fn prepare(settings: &Settings, home: Home<'_>) -> Result<(PeerPort, Vec<Self>), String> {
        let Home { disk, disk_id, standing, starts, decides_alone, copied_from, tree_options, .. } = home;
        let (mut newest, partitions, tls) = (home.newest, home.partitions, home.tls);
        let common = Common::new(disk.folder(), starts, standing, decides_alone)?;
        let common = common.copied_from(copied_from.map(u64::from));
        let own = match settings.own_member() {
            Some(own) => own.id,
            None if settings.is_reader() => READER_ID,
            None => return Err("server-id is none of the ids of servers".to_owned()),
        };
        let max = usize::try_from(settings.max_readers).unwrap_or(usize::MAX);
        let own_tie = TieOwner { is_reader: settings.is_reader(), id: settings.server_id, tag: home.tag };
        let (ties, tied) = Ties::new(own_tie, tree_options.levels, (max, settings.port), partitions);
        ties.set_site(settings.site.clone().or(home.site));
        let common = common.with_ties(ties);
        let (port, callers) = PeerPort::new(partitions, &common);
        let meetings = (0..).zip(callers.into_iter().zip(tied)).map(|(partition, (callers, tied))| {
            let options = PeerOptions {
                me: own.into(),
                // Servers know one another's disks, which says more.
                disk: disk_id,
                share: Share { partition, partitions },
                callers,
                common: common.clone(),
                secret: settings.peer_secret.clone().map(String::into_bytes),
                tls: tls.clone(),
                folder: disk.folder().to_owned(),
                software: format!("stoa {}", env!("CARGO_PKG_VERSION")),
                levels: settings.site.is_some().then_some(tree_options.levels),
                understands: Understands {
                    forest: settings.forest().is_some(),
                    snapshots: settings.neighbour_snapshots,
                },
            };
            // It is sent by the first partition, with which the log is.
            let newest = newest.take();
            let history = standing.history();
            Self { options, tied, disk: disk.another(), history, tree_options: tree_options.clone(), newest }
        });
        Ok((port, meetings.collect()))
    }

    /// Begins to connect to the others: those in the list of servers, if reconfig has changed it, and
    /// those in the settings. Must be called on a `LocalSet`.
    pub(crate) fn begin(
        self,
        settings: &Settings,
        servers: Option<&str>,
        reports: Reports,
        peer_events: UnboundedSender<PeerEvent>,
    ) -> Result<Ensemble, String> {
        let Self { options, tied, disk, history, tree_options, newest } = self;
        let share = options.share;
        let is_first = share.partition == FIRST;
        let disks = options.common.known.clone();
        let load = || StoredDisks::load(disk.folder(), history.unwrap_or_default(), disks);
        let known = is_first.then(load).transpose()?;
        let named: Vec<_> = settings.servers.iter().map(address).collect();
        // A reader is connected with nobody in the list.
        let servers = servers.filter(|_| !settings.is_reader());
        let mut members = servers.map(addresses).unwrap_or_default();
        add_missing(&mut members, &named);
        let peers = Peers::start(options, members, peer_events);
        servers.iter().for_each(|servers| peers.tell_servers(servers));
        let parents =
            settings.reader_of.iter().filter(|_| is_first && settings.is_reader()).map(parent).collect();
        peers.tie(tied, (parents, settings.reader_in_order));
        Ok(Ensemble {
            peers,
            told: RefCell::default(),
            given_up: RefCell::default(),
            named,
            share,
            disk,
            tree_options,
            reports,
            known: RefCell::new(known),
            newest: RefCell::new(newest),
            list_changed: Notify::new(),
            held: RefCell::default(),
            snapshots_sent: Cell::default(),
            snapshots_received: Cell::default(),
        })
    }
}

/// The id of a server with which there is a connection.
fn short(id: u64) -> u8 {
    u8::try_from(id).expect("there are connections with servers of a list alone, whose ids are bytes")
}

/// Adds those whom it does not have yet.
fn add_missing(addresses: &mut Vec<PeerAddress>, others: &[PeerAddress]) {
    for other in others {
        if !addresses.iter().any(|address| address.id == other.id) {
            addresses.push(other.clone());
        }
    }
}

fn parent(of: &ParentAddress) -> PeerAddress {
    PeerAddress { id: READER_ID.into(), host: of.host.clone(), port: of.port }
}

fn address(member: &Member) -> PeerAddress {
    PeerAddress { id: member.id.into(), host: member.host.clone(), port: member.peer_port }
}

/// The servers of a list as it stands in `/zookeeper/config`.
fn addresses(servers: &str) -> Vec<PeerAddress> {
    servers.lines().filter_map(Member::of_line).map(|member| address(&member)).collect()
}

/// The version of a list as it stands in `/zookeeper/config`.
pub(crate) fn version(servers: &str) -> Option<i64> {
    let (_, version) = servers.rsplit_once("version=")?;
    i64::from_str_radix(version.trim(), 16).ok()
}

/// The other servers, for one partition.
pub(crate) struct Ensemble {
    peers: Peers,
    /// Those whom the settings name.
    named: Vec<PeerAddress>,
    share: Share,
    disk: FileDisk,
    tree_options: TreeOptions,
    reports: Reports,
    /// At the first partition, with which the log is.
    known: RefCell<Option<StoredDisks>>,
    newest: RefCell<Option<StoredSnapshot>>,
    /// A list of servers that is newer than the one here was when another server told it. It says where the servers
    /// are; who belongs to them the timeline says.
    told: RefCell<Option<String>>,
    /// Those that have the folder of an ensemble that was given up, as was said of them.
    given_up: RefCell<BTreeSet<u64>>,
    /// There may be another list of servers.
    list_changed: Notify,
    /// What readers have asked, for as long as too much is asked.
    held: RefCell<Vec<OwnedSemaphorePermit>>,
    /// Snapshots that the others have received, and that have come from them.
    pub(crate) snapshots_sent: Cell<u64>,
    pub(crate) snapshots_received: Cell<u64>,
}

impl Ensemble {
    /// How it stands with every other server.
    pub(crate) fn status(&self) -> Vec<PeerStatus> {
        self.peers.status()
    }

    /// Whether one of those is connected who vote by this server's log (anybody, if it knows of none), and whether somebody
    /// has said that this server does not belong to it, or it is not known where any of those is.
    pub(crate) fn company(&self, status: &Status) -> (bool, bool) {
        let peers = self.peers.status();
        let others: Vec<u64> = status
            .voters
            .iter()
            .filter(|voter| **voter != status.id)
            .map(|voter| u64::from(*voter))
            .collect();
        let votes = |peer: &&PeerStatus| others.is_empty() || others.contains(&peer.address.id);
        let is_connected = peers.iter().filter(votes).any(|peer| peer.connected_ms.is_some());
        let finds_nobody = !others.is_empty() && !peers.iter().any(|peer| votes(&peer));
        let is_refused =
            |peer: &PeerStatus| peer.last_error.as_ref().is_some_and(|why| why.contains(NOT_LISTED));
        (is_connected, finds_nobody || peers.iter().any(is_refused))
    }

    /// Waits, for the one who may, until there may be another list of servers.
    pub(crate) async fn list_changed(&self) {
        self.list_changed.notified().await;
    }

    /// Whether one of these is connected.
    pub(crate) fn is_connected_to_any(&self, servers: &[u8]) -> bool {
        let is_one = |id: u64| servers.iter().any(|server| u64::from(*server) == id);
        self.peers.status().iter().any(|peer| peer.connected_ms.is_some() && is_one(peer.address.id))
    }

    /// The feature level that the sites use.
    pub(crate) fn set_level(&self, level: u8) {
        self.peers.set_level(level);
    }

    /// There is a newer snapshot.
    pub(crate) fn stored(&self, snapshot: StoredSnapshot) {
        *self.newest.borrow_mut() = Some(snapshot);
    }

    /// Hands in what has happened between the servers.
    pub(crate) fn hand_in(
        &self,
        event: PeerEvent,
        server: &mut Replica,
        clock: &Clock,
    ) -> Result<(), String> {
        let now = clock.now();
        match event {
            PeerEvent::Met(id, identity) => {
                server.peer_met(short(id), identity.disk, identity.standing, now);
            }
            PeerEvent::OwnFolderIsOlder(id) if others_belong(&server.status()) => {
                if self.given_up.borrow_mut().insert(id) {
                    tracing::warn!(
                        "server {id} knows a later start of this server than its data folder had when it began to stand alone, \
                     and has been joined by others: server {id} has the folder of an ensemble that was given up. Start it \
                     with an empty one"
                    );
                }
            }
            PeerEvent::OwnFolderIsOlder(id) => {
                return Err(format!(
                    "server {id} knows a later start of this server than the data folder {} has: the folder is an older \
                     copy, and by it this server would decide alone. If others vote with it now, start it with an empty \
                     folder, and they give it everything; if not, run `stoa recover` on that of the two servers' folders \
                     that has the highest last update",
                    self.disk.folder().display()
                ));
            }
            PeerEvent::Connected(id, identity) => self.connected(id, identity, server, clock)?,
            PeerEvent::Lost(id, why) => {
                tracing::info!("server {id} is not connected any more: {why}");
                server.peer_lost(short(id), now);
            }
            PeerEvent::Messages(id, messages) => {
                for message in &messages.list {
                    if server.peer_message(short(id), message.clone(), now).is_err() {
                        tracing::warn!(
                            "server {id} has sent something that is no message; is it of another release?"
                        );
                    }
                }
            }
            PeerEvent::Servers(id, list) => self.hear_servers(id, &list, server),
            PeerEvent::SnapshotArrived { from, header, file } => {
                self.snapshots_received.update(|count| count + 1);
                if server.wants_snapshot(header.clone()) {
                    self.load(from, header, file);
                } else {
                    server.decline_snapshot(header, now);
                }
            }
            PeerEvent::SnapshotSent { to, result } => {
                match &result {
                    Ok(_) => self.snapshots_sent.update(|count| count + 1),
                    Err(why) => tracing::warn!("server {to} has not received a snapshot: {why}"),
                }
                server.snapshot_sent(short(to), result.ok(), now);
            }
            PeerEvent::Tie(event) => self.hand_in_tie(event, server, now),
        }
        Ok(())
    }

    /// Hands in what has happened between this server and its readers, or its parent.
    fn hand_in_tie(&self, event: TieEvent, server: &mut Replica, now: Now) {
        let ties = self.peers.ties();
        match event {
            TieEvent::ReaderCame(id, levels) => server.reader_connected(id, levels, now),
            TieEvent::ReaderSays(id, word) => {
                if server.reader_says(id, word.message, now).is_err() {
                    ties.end_below(id, NOT_READ);
                }
                if server.asked_bytes() >= ASKED_BYTES_MAX {
                    self.held.borrow_mut().push(word.room);
                }
            }
            TieEvent::ReaderGone(id) => server.reader_lost(id, now),
            TieEvent::SnapshotSent(id, result) => {
                match &result {
                    Ok(bytes) => {
                        self.snapshots_sent.update(|count| count + 1);
                        tracing::info!("a reader has received a snapshot, {bytes} bytes");
                    }
                    Err(why) => self.peers.complain(&format!("a reader has not received a snapshot: {why}")),
                }
                server.reader_snapshot_sent(id, result.is_ok(), now);
            }
            TieEvent::ParentCame(link, history, traits) if server.parent_met(history, now) => {
                self.peers.set_standing(Standing::Has(history));
                server.parent_connected(link, traits, now);
            }
            // The tie ends where it does.
            TieEvent::ParentBetter(link) => _ = server.leaves_quietly(link, now),
            TieEvent::ParentCame(link, history, _) => {
                ties.leave_link(link, &format!("it is of another ensemble, {history}"));
            }
            TieEvent::ParentSays(link, word) => {
                if server.parent_says(link, word.partition, word.message, now).is_err() {
                    ties.leave_link(link, NOT_READ);
                }
            }
            TieEvent::ParentGone(link) => server.parent_lost(link, now),
            TieEvent::ParentSnapshot { header, file } => {
                self.snapshots_received.update(|count| count + 1);
                if server.wants_snapshot(header.clone()) {
                    self.load(READER_ID.into(), header, file);
                } else {
                    server.parent_snapshot_declined(now);
                }
            }
        }
    }

    /// Carries what this partition has for readers and for the parent. It goes before anything that is for other servers
    /// or threads. Returns whether there was anything.
    pub(crate) fn carry_ties(&self, server: &mut Replica) -> bool {
        let (ties, partition) = (self.peers.ties(), self.share.partition);
        if partition == FIRST && ties.max() > 0 {
            ties.set_distance(server.distance_below());
        }
        if !ties.are_in_use() {
            return false;
        }
        let mut any = false;
        while let Some((ids, output)) = server.poll_reader() {
            any = true;
            match (output, ids.first().copied()) {
                (ReaderOutput::Say(word), _) => ties.say_below(&ids, partition, word.encode()),
                (ReaderOutput::Snapshot { position, message }, Some(id)) => {
                    let newest = self.newest.borrow().clone();
                    match newest.filter(|snapshot| snapshot.position == position) {
                        Some(snapshot) => {
                            tracing::info!("a reader is far behind and is sent {}", snapshot.file);
                            self.peers.offer_snapshot(id, message, self.disk.folder().join(snapshot.file));
                        }
                        None => {
                            let why = Err("it is not here any more".to_owned());
                            ties.tell(FIRST, TieEvent::SnapshotSent(id, why));
                        }
                    }
                }
                (ReaderOutput::Drop(why), Some(id)) => ties.end_below(id, why),
                (_, None) => {}
            }
        }
        while let Some(output) = server.poll_parent() {
            any = true;
            match output {
                ParentOutput::Say(link, word) => ties.say_above(link, partition, word.encode()),
                ParentOutput::Leave(why) => ties.leave(why),
            }
        }
        if server.asked_bytes() < ASKED_BYTES_MAX {
            self.held.borrow_mut().clear();
        }
        any
    }

    /// The connections with readers, and with a parent.
    pub(crate) fn ties(&self) -> &Ties {
        self.peers.ties()
    }

    fn connected(
        &self,
        id: u64,
        identity: Identity,
        server: &mut Replica,
        clock: &Clock,
    ) -> Result<(), String> {
        let (now, starts) = (clock.now(), &identity.starts);
        server.peer_levels(short(id), identity.levels);
        server.peer_reads_forest(short(id), identity.understands.forest);
        server.peer_gives_snapshots(short(id), identity.understands.snapshots);
        if self.share.partition == FIRST && self.peers.is_older_than_known(&identity) {
            tracing::warn!(
                "server {id} knows a later start of this server than its data folder has: that is an older copy, so this \
                 server does not count as if it had its past; the leader takes it out of the ensemble and lets it join anew"
            );
        }
        let what = match &mut *self.known.borrow_mut() {
            Some(known) => match known.meet(short(id), identity.disk, starts)? {
                Acquaintance::Known => None,
                Acquaintance::Stranger => Some("another data folder than it had"),
                Acquaintance::Older => Some(
                    "an older copy of its data folder than what it had, or with a damaged file `starts` in it",
                ),
            },
            None => None,
        };
        let Some(what) = what else {
            tracing::info!("server {id} is connected ({})", identity.software);
            server.peer_connected(short(id), now);
            return Ok(());
        };
        tracing::warn!(
            "server {id} has come back with {what}, so it may not vote as if it had its past; the leader takes it out of \
             the ensemble and lets it join anew"
        );
        server.peer_emptied(short(id), now);
        Ok(())
    }

    /// Carries something to another server; call [`Ensemble::flush`] at the end of the turn.
    pub(crate) fn carry(
        &self,
        output: PeerOutput,
        server: &mut Replica,
        clock: &Clock,
    ) -> Result<(), String> {
        match output {
            PeerOutput::Send { to, message } => {
                // What is not connected, or does not keep up, is asked again by whoever misses it.
                let fits = |most: usize| self.peers.queued_bytes(u64::from(to)) <= most;
                if message.backlog_bytes_max().is_none_or(fits) {
                    self.peers.send(u64::from(to), message.encode());
                }
            }
            PeerOutput::Snapshot { to, position, message } => {
                let newest = self.newest.borrow().clone();
                match newest.filter(|snapshot| snapshot.position == position) {
                    Some(snapshot) => {
                        tracing::info!("server {to} is far behind and is sent {}", snapshot.file);
                        let file = self.disk.folder().join(snapshot.file);
                        self.peers.send_snapshot(u64::from(to), message.into(), file);
                    }
                    None => {
                        self.reports.tell(FIRST, DiskEvent::NoSnapshot { to });
                    }
                }
            }
            PeerOutput::Note(what) => tracing::info!("{what}"),
            PeerOutput::Founds(standing) => self.peers.set_standing(standing),
            PeerOutput::Began { history, founders } => {
                tracing::info!("this server is of the ensemble {history} from now on");
                if let Some(known) = &mut *self.known.borrow_mut() {
                    known.begin(history, founders)?;
                }
                self.peers.set_standing(Standing::Has(history));
            }
            PeerOutput::Servers => {
                self.list_changed.notify_one();
                self.connect(server);
            }
            PeerOutput::Leads(id) => {
                let Status { id: own, term, .. } = server.status();
                let who = if id == own { "this server".into() } else { format!("server {id}") };
                self.peers.ties().set_leads(id == own);
                tracing::info!("{who} leads in term {term}");
                if let Some(known) = &mut *self.known.borrow_mut()
                    && known.leads(id)?
                {
                    tracing::info!(
                        "server {id} was elected, so it has joined anew with the data folder that it has now"
                    );
                }
            }
            PeerOutput::Members { members, removed } => {
                tracing::info!("the ensemble consists of the servers {members:?}");
                self.connect(server);
                let welcome = match &mut *self.known.borrow_mut() {
                    Some(known) => known.members_are(members, removed)?,
                    None => Vec::new(),
                };
                for id in welcome {
                    server.peer_connected(id, clock.now());
                }
            }
        }
        Ok(())
    }

    /// Keeps the connections to those who are in the list of servers, and to those who still belong to
    /// the ensemble: whoever is taken out has a vote until then, and should hear of it. Those whom the
    /// settings name stay: a server that was away while all others were replaced knows nobody else.
    fn connect(&self, server: &Replica) {
        if let Some(own) = server.changed_servers() {
            self.peers.tell_servers(own);
        }
        let Some(servers) = self.servers(server) else { return };
        let mut addresses = addresses(&servers);
        let company: Vec<_> = server.company().into_iter().map(u64::from).collect();
        let known = self.peers.status().into_iter().map(|peer| peer.address);
        let known: Vec<_> = known.filter(|address| company.contains(&address.id)).collect();
        add_missing(&mut addresses, &known);
        add_missing(&mut addresses, &self.named);
        self.peers.set_members(addresses);
    }

    /// The newest list of servers that is known here, if reconfig has changed it.
    pub(crate) fn servers(&self, server: &Replica) -> Option<String> {
        let own = server.changed_servers().map(str::to_owned);
        own.into_iter().chain(self.told.borrow().clone()).max_by_key(|list| version(list))
    }

    fn hear_servers(&self, from: u64, list: &[u8], server: &Replica) {
        let list = String::from_utf8_lossy(list).into_owned();
        let known = self.servers(server).as_deref().and_then(version);
        if version(&list) > known {
            tracing::info!("server {from} has a newer list of servers, which says where they are now");
            *self.told.borrow_mut() = Some(list);
            self.list_changed.notify_one();
            self.connect(server);
        }
    }

    /// Everything of this turn has been carried.
    pub(crate) fn flush(&self) {
        self.peers.flush();
    }

    /// Reads a snapshot that has come, apart from the partition's thread.
    fn load(&self, from: u64, header: Bytes, file: PathBuf) {
        let mut disk = self.disk.another();
        let (options, partitions) = (self.tree_options.clone(), self.share.partitions);
        let reports = self.reports.clone();
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let loading = move || {
            let mut loader = StateLoader::new(&options, partitions);
            let mut load = || -> Result<(), String> {
                let mut reader =
                    SnapshotReader::open_foreign(&mut disk, &name).map_err(|error| error.to_string())?;
                let mut is_head = true;
                while let Some(chunk) = reader.next(&mut disk).map_err(|error| error.to_string())? {
                    // The first is the sender's own.
                    if !std::mem::take(&mut is_head) {
                        loader.chunk(chunk)?;
                    }
                }
                Ok(())
            };
            let loaded = load();
            let states = loaded.and_then(|()| loader.finish());
            reports.tell(FIRST, DiskEvent::SnapshotLoaded { from, header, file: name, states });
        };
        if let Err(error) = std::thread::Builder::new().name("load".into()).spawn(loading) {
            tracing::error!("a snapshot that has come cannot be read: {error}");
        }
    }
}
