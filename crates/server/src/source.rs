//! Answers what is asked about the running server, on the partition's thread.

use std::collections::BTreeSet;

use stoa_core::{Connection, Histogram, ProgramStats, RecentMove, Replica, Role, Scope, Sizes, Status};
use stoa_tree::{Caller, Identity};
use stoa_wire::{Opcode, perms};
use tokio::sync::oneshot;

use crate::config::Member;
use crate::driver::Driver;
use crate::ensemble::Ensemble;
use crate::peers::{ListedReader, PeerStatus};
use crate::threads::Neighbours;
use crate::view::{self, NO_SITES, SiteOrder, Source};

fn sizes(of: Sizes) -> Option<view::Sizes> {
    let Sizes { least, last, largest } = of;
    let sizes = view::Sizes { last: last as u64, max: largest as u64, min: least as u64 };
    (largest > 0).then_some(sizes)
}

fn histogram(of: &Histogram) -> view::Histogram {
    view::Histogram { buckets: of.buckets().collect(), sum: of.sum_us() }
}

impl Driver {
    fn log_view(&self, stats: &stoa_core::Stats, queued: usize) -> view::Log {
        let Ok(meter) = self.surroundings.meter.lock() else { return view::Log::default() };
        view::Log {
            position: meter.position,
            entries: stats.log_entries,
            updates: stats.log_updates,
            bytes_written: stats.log_bytes,
            bytes: meter.log_bytes,
            queued: queued as u64,
            refusals: stats.log_refusals,
            append: histogram(&meter.append),
            fsync: histogram(&meter.fsync),
            fsync_slow: meter.slow,
            batch: histogram(&meter.batch),
        }
    }

    fn snapshots_view(&self, errors: u64) -> view::Snapshots {
        let Ok(meter) = self.surroundings.meter.lock() else { return view::Snapshots::default() };
        let progress = self.snapshot_progress.get();
        view::Snapshots {
            time: histogram(&meter.snapshot),
            errors,
            last_zxid: meter.snapshot_zxid,
            last_wall_ms: meter.snapshot_wall_ms,
            bytes: meter.snapshot_bytes,
            progress: progress.map(|(done, all)| (done as f64 / all.max(1) as f64).min(1.0)),
        }
    }
}

impl Driver {
    fn ensemble_view(&self, standing: &Status, leaders_found: u64) -> view::EnsembleStatus {
        let timeline = timeline(standing);
        let view::Timeline { leader, term, last, committed, applied, .. } = timeline;
        let id = standing.id;
        let peers = self.ensemble.get();
        let links = peers.map(|peers| peers.status()).unwrap_or_default();
        let mut ids: BTreeSet<_> =
            links.iter().filter_map(|link| u8::try_from(link.address.id).ok()).collect();
        // A reader is none of them.
        let own = Some(id).filter(|_| !self.process.settings.is_reader());
        ids.extend(own.iter().chain(&standing.voters).chain(&standing.observers));
        let (joining, emptied) = (self.server.borrow().joining(), self.server.borrow().emptied());
        let servers = self.listed();
        let member = |id| {
            let joins = joining.contains(&id);
            let has_other_disk = emptied.contains(&id);
            view::MemberStatus { joins, has_other_disk, ..self.member_view(id, standing, &links, &servers) }
        };
        let members = ids.into_iter().map(member).collect();
        view::EnsembleStatus {
            id: id.into(),
            history: self.server.borrow().history().map(|history| history.id.to_string()),
            missing: self.server.borrow().founders_missing().into_iter().map(u64::from).collect(),
            leader,
            term,
            last,
            committed,
            applied,
            behind: committed.saturating_sub(applied),
            timelines: vec![timeline],
            out_of_room: self.server.borrow().is_out_of_room(),
            takes_over: self.is_taking_over() || links.iter().any(|link| link.sends_snapshot),
            leaders_found,
            snapshots_sent: peers.map_or(0, |peers| peers.snapshots_sent.get()),
            snapshots_received: peers.map_or(0, |peers| peers.snapshots_received.get()),
            given: self.server.borrow().given_snapshots(),
            members,
            servers,
        }
    }

    /// The servers by the list in force, else those of the settings.
    fn listed(&self) -> Vec<Member> {
        if self.ensemble.get().is_none() {
            return Vec::new();
        }
        let server = self.server.borrow();
        let list = server.changed_servers().map(|list| list.lines().filter_map(Member::of_line).collect());
        list.unwrap_or_else(|| self.process.settings.servers.clone())
    }

    fn following_view(&self, stats: &stoa_core::Stats) -> view::Following {
        view::Following {
            proposals: stats.proposals.count,
            proposal_bytes: sizes(stats.proposals.bytes),
            led_updates: stats.led_updates,
            followed_updates: stats.followed_updates,
            propagation: histogram(&stats.propagation),
            agreement: histogram(&stats.agreement),
            pending_syncs: self.server.borrow().pending_syncs() as u64,
        }
    }

    fn service_view(&self) -> view::Service {
        let (record, led_ms) = self.process.availability();
        view::Service {
            looking: record.looking,
            election: histogram(&record.election),
            unavailable: histogram(&record.unavailable),
            leader_unavailable: histogram(&record.leader_unavailable),
            follower_sync: histogram(&record.follower_sync),
            observer_sync: histogram(&record.observer_sync),
            led_ms,
        }
    }

    fn quotas_view(&self) -> Vec<view::Quota> {
        let server = self.server.borrow();
        let quotas = server.tree().quota_sums().into_iter().map(|(namespace, sums)| view::Quota {
            namespace: namespace.to_owned(),
            count_limit: sums.count_limit,
            bytes_limit: sums.bytes_limit,
            count: sums.count,
            bytes: sums.bytes,
            refused: sums.refused,
        });
        quotas.collect()
    }

    fn member_view(
        &self,
        id: u8,
        standing: &Status,
        links: &[PeerStatus],
        servers: &[Member],
    ) -> view::MemberStatus {
        let number = u64::from(id);
        let listed = servers.iter().find(|member| member.id == id);
        let matched = standing.matched.iter().find(|(member, _)| *member == id && id != standing.id);
        let matched = matched.map(|(_, position)| *position);
        let votes = standing.voters.contains(&id);
        let link = links.iter().find(|link| link.address.id == number);
        let listed = listed.map(|member| (member.host.clone(), member.peer_port));
        // Where it is looked for.
        let address = link.map(|link| (link.address.host.clone(), link.address.port)).or(listed);
        view::MemberStatus {
            id: number,
            belongs: votes || standing.observers.contains(&id),
            votes,
            joins: false,
            has_other_disk: false,
            address,
            matched,
            lag: matched.map(|matched| standing.last.saturating_sub(matched)),
            link: link.map(self::link),
        }
    }
}

impl Driver {
    fn readers_view(&self, server: &Replica) -> view::ReadersView {
        let Some(ties) = self.ensemble.get().map(Ensemble::ties) else { return view::ReadersView::default() };
        let readers = ties.readers().into_iter().map(|reader| view::ReaderView {
            address: reader.address,
            software: reader.software,
            connected_ms: reader.since_ms,
            bytes_received: reader.bytes_in,
            bytes_sent: reader.bytes_out,
            queued_bytes: reader.waiting,
        });
        let below = server.below();
        let parent = ties.parent().map(|parent| view::ParentView {
            address: parent.address,
            connected_ms: parent.since_ms,
            name: parent.name,
            software: parent.software,
            member: below.map(|below| below.top.into()),
            distance: below.map_or(0, |below| below.chain.len() as u64),
            behind: below.map_or(0, |below| below.committed.saturating_sub(server.log_applied())),
            entries: below.map_or(0, |below| below.committed),
            last_error: parent.last_error,
            parents_found: parent.found,
        });
        let list = ties.list();
        let place = |of: ListedReader| view::ReaderPlace {
            parent: of.parent,
            address: of.address,
            software: of.software,
            connected_ms: of.since_ms,
        };
        view::ReadersView {
            max: ties.max() as u64,
            readers: readers.collect(),
            all: list.readers.into_iter().map(place).collect(),
            left_out: list.left_out.into(),
            lagging: server.readers().1 as u64,
            older: server.older_readers() as u64,
            refused: ties.refused(),
            parent,
            newcomer: self.process.newcomer.clone(),
        }
    }

    fn sites_view(&self) -> Option<view::SitesView> {
        match self.sites.get() {
            Some(sites) => Some(sites.view(self)),
            None => self.server.borrow().site_status().as_ref().map(view::SitesView::of_partition),
        }
    }
}

fn watchers(of: &stoa_core::Watchers) -> view::Watchers {
    view::Watchers {
        created: histogram(&of.created),
        deleted: histogram(&of.deleted),
        changed: histogram(&of.changed),
        children: histogram(&of.children),
    }
}

fn link(of: &PeerStatus) -> view::LinkStatus {
    view::LinkStatus {
        connected_ms: of.connected_ms,
        software: of.identity.as_ref().map(|identity| identity.software.clone()),
        last_error: of.last_error.clone(),
        bytes_received: of.bytes_in,
        bytes_sent: of.bytes_out,
        messages_received: of.messages_in,
        messages_sent: of.messages_out,
        queued_bytes: of.queued_bytes,
    }
}

fn timeline(of: &Status) -> view::Timeline {
    let Status { leader, term, last, committed, applied, .. } = *of;
    let leader = leader.map(u64::from);
    view::Timeline { mode: mode(of), leader, term, last, committed, applied }
}

/// What a server is, in ZooKeeper's words.
pub(crate) fn mode(of: &Status) -> view::Mode {
    match of.role {
        Role::Standalone => view::Mode::Standalone,
        Role::Leader => view::Mode::Leader,
        Role::Follower => view::Mode::Follower,
        Role::Observer => view::Mode::Observer,
        Role::ReadOnly => view::Mode::ReadOnly,
        // Nobody else could lead: its disk keeps it from it for a moment.
        Role::Looking if of.voters == [of.id] && of.observers.is_empty() => view::Mode::Standalone,
        Role::Looking => view::Mode::Looking,
    }
}

fn connection(of: &Connection, partition: Option<u8>) -> view::Connection {
    let session = (of.session != 0).then(|| view::ConnectionSession {
        id: of.session,
        timeout_ms: u32::try_from(of.timeout_ms).unwrap_or(0),
        last_op: of.traffic.last_op,
        last_xid: of.traffic.last_op.map(|_| of.traffic.last_xid),
        last_zxid: of.traffic.last_zxid,
        last_reply_ms: of.traffic.last_reply_us / 1000,
        latency_last_us: of.traffic.latency_last_us,
        latency_min_us: if of.traffic.latency_min_us == u64::MAX { 0 } else { of.traffic.latency_min_us },
        latency_avg_us: of.traffic.latency_sum_us.checked_div(of.traffic.sent).unwrap_or(0),
        latency_max_us: of.traffic.latency_max_us,
    });
    view::Connection {
        peer: of.peer,
        partition,
        reading: !of.is_paused(),
        writing: of.output_bytes() > 0,
        outstanding: of.outstanding() as u64,
        packets_received: of.traffic.received,
        packets_sent: of.traffic.sent,
        established_ms: of.traffic.established.wall_ms,
        session,
    }
}

fn ops(stats: &stoa_core::Stats) -> Vec<view::Op> {
    let op = |&opcode: &Opcode| {
        let op = stats.op(opcode);
        view::Op { opcode, latency: histogram(&op.latency), errors: op.errors }
    };
    Opcode::ALL.iter().map(op).collect()
}

impl Source for &Driver {
    fn stats(&self) -> view::Stats {
        let server = self.server.borrow();
        let stats = server.stats();
        let tree = server.tree();
        let standing = server.status();
        let clients = server.client_stats();
        let (moves, moves_refused) = server.move_counts();
        view::Stats {
            mode: mode(&standing),
            ensemble: self.ensemble_view(&standing, stats.leaders_found),
            sites: self.sites_view(),
            forest: server.forest_status(),
            readers: self.readers_view(&server),
            partitions: 1,
            uptime_ms: self.clock.now().mono_us / 1000,
            zxid: tree.last_zxid(),
            znodes: tree.znode_count() as u64,
            data_bytes: tree.data_bytes(),
            watches: server.watches().count() as u64,
            ephemerals: tree.ephemeral_count() as u64,
            sessions: (server.session_count() - server.local_session_count()) as u64,
            local_sessions: server.local_session_count() as u64,
            connections: server.connection_count() as u64,
            outstanding: server.outstanding() as u64,
            latency_min_us: if stats.answered == 0 { 0 } else { stats.latency_min_us },
            latency_max_us: stats.latency_max_us,
            latency_sum_us: stats.latency_sum_us,
            answered: stats.answered,
            packets_received: clients.packets_received,
            packets_sent: stats.packets_sent + clients.pings,
            bytes_received: clients.bytes_received,
            bytes_sent: stats.bytes_sent,
            reply_bytes: sizes(stats.reply_bytes),
            requests_kept: clients.kept,
            requests_handed_over: clients.handed_over,
            moves,
            moves_refused,
            exceptions: server.exceptions().1.len() as u64,
            imbalance: server.imbalance_percent() as f64 / 1e2,
            connection_requests: stats.connection_requests,
            sessions_brought: stats.sessions_brought,
            sessions_asked_for: stats.sessions_asked_for,
            connections_rejected: clients.connections_rejected,
            connections_dropped: clients.connections_dropped,
            handshakes_expired: self.handshakes_expired.get(),
            sessions_expired: stats.sessions_expired,
            auth_failed: stats.auth_failed,
            tls: self.process.tls.as_ref().map(|tls| tls.view()).unwrap_or_default(),
            admin_in_the_clear: self.process.admin_tls.as_ref().map_or(0, |tls| tls.in_the_clear()),
            admin_tls: self.process.admin_tls.as_ref().map(|tls| tls.view()).unwrap_or_default(),
            peer_tls: self.process.peer_tls.as_ref().map(|tls| tls.view()).unwrap_or_default(),
            audit: self.process.audit().map(|audit| audit.view()).unwrap_or_default(),
            frames_too_large: clients.frames_too_large,
            watch_events: stats.watch_events,
            watch_bytes: stats.watch_bytes,
            watchers: watchers(&stats.watchers),
            stale_replies: stats.stale_replies,
            following: self.following_view(stats),
            service: self.service_view(),
            quotas: self.quotas_view(),
            extensions: server.programs().map(|(name, stats)| extension(name, &stats)).collect(),
            extension_acknowledgements: server.program_acknowledgements() as u64,
            containers_deleted: stats.containers_deleted,
            ops: ops(stats),
            log: self.log_view(stats, server.log_queue().0),
            snapshots: self.snapshots_view(server.snapshot_counts().1),
            startup: self.surroundings.startup,
        }
    }

    fn connections(&self) -> Vec<view::Connection> {
        let server = self.server.borrow();
        let partition = self.surroundings.neighbours.as_ref().map(Neighbours::own);
        server.connections().map(|(_, client)| connection(client, partition)).collect()
    }

    fn sessions(&self) -> Vec<view::Session> {
        let server = self.server.borrow();
        let now = self.clock.now();
        let mut sessions: Vec<_> = server
            .live_sessions()
            .map(|live| view::Session {
                id: live.id,
                timeout_ms: u32::try_from(live.timeout_ms).unwrap_or(0),
                expires_ms: now.wall_ms
                    + (i64::try_from(live.deadline_us()).unwrap_or(i64::MAX)
                        - i64::try_from(now.mono_us).unwrap_or(0))
                        / 1000,
                ephemerals: server.tree().ephemerals_of(live.id).collect(),
                is_local: live.scope() != Scope::Global,
            })
            .collect();
        sessions.sort_unstable_by_key(|session| session.id);
        sessions
    }

    fn ephemerals(&self, sessions: &[i64]) -> Vec<Vec<String>> {
        let server = self.server.borrow();
        sessions.iter().map(|session| server.tree().ephemerals_of(*session).collect()).collect()
    }

    fn watch_summary(&self) -> view::WatchSummary {
        let summary = self.server.borrow().watches().summary();
        view::WatchSummary {
            sessions: summary.watchers as u64,
            paths: summary.paths as u64,
            watches: summary.watches as u64,
        }
    }

    fn watches(&self) -> Vec<view::SessionWatches> {
        let server = self.server.borrow();
        let mut all: Vec<_> = server
            .watched_paths()
            .map(|(session, paths)| view::SessionWatches {
                session,
                paths: paths.map(str::to_owned).collect(),
            })
            .filter(|watches| !watches.paths.is_empty())
            .collect();
        all.sort_unstable_by_key(|watches| watches.session);
        all
    }

    fn partitions(&self) -> Vec<view::Partition> {
        let server = self.server.borrow();
        let (clients, tree) = (server.client_stats(), server.tree());
        let load = server.load();
        let subtrees = load.subtrees.iter().map(|of| view::Subtree {
            path: of.path.clone(),
            reads: of.rates.reads,
            writes: of.rates.writes,
            bytes: of.rates.bytes,
            busy: of.rates.busy_ns() as f64 / 1e9,
        });
        vec![view::Partition {
            number: self.surroundings.partition.into(),
            timeline: timeline(&server.status()),
            znodes: tree.znode_count() as u64,
            data_bytes: tree.data_bytes(),
            connections: server.connection_count() as u64,
            requests_kept: clients.kept,
            requests_handed_over: clients.handed_over,
            reads: load.total.reads,
            writes: load.total.writes,
            busy: load.total.busy_ns() as f64 / 1e9,
            subtrees: subtrees.collect(),
        }]
    }

    fn balance(&self, path: Option<&str>) -> view::Balance {
        let server = self.server.borrow();
        let (version, exceptions) = server.exceptions();
        let hints = server.hints();
        let moved = |of: &RecentMove| view::Moved {
            path: of.path.clone(),
            to: of.to.into(),
            refused: of.refused.map(|code| code.to_string()),
            at_ms: of.at_ms,
        };
        view::Balance {
            is_on: self.process.settings.balance && !hints.is_off,
            version,
            exceptions: exceptions.into_iter().map(|(path, to)| (path, to.into())).collect(),
            hints: hints.lines(),
            imbalance: server.imbalance_percent() as f64 / 1e2,
            moves: server.recent_moves().map(moved).collect(),
            place: path.map(|path| server.place_of(path).into()),
        }
    }

    fn move_subtree(&mut self, path: &str, to: u8) -> Result<(), String> {
        let begun = self.server.borrow_mut().request_move(path, to, self.clock.now());
        self.after_input();
        begun.map_err(|why| why.to_string())
    }

    fn order_sites(&mut self, order: SiteOrder, reply: oneshot::Sender<Result<(), String>>) {
        match self.sites.get() {
            Some(sites) => sites.take_order(order, self, reply),
            None => drop(reply.send(Err(NO_SITES.to_owned()))),
        }
    }

    fn path_token(&self, path: &str) -> Option<view::PathToken> {
        let server = self.server.borrow();
        if server.place_of(path) != self.surroundings.partition {
            return None;
        }
        let mark = server.token_mark(path)?;
        let tree = server.tree();
        let (is_there, readers) = (tree.get(path).is_some(), tree.readers(path).collect());
        Some(view::PathToken { mark, is_there, readers })
    }

    fn holder_by(&self, path: &str, token: view::PathToken) -> Option<view::Holder> {
        Some(self.sites.get()?.holder(path, token, self))
    }

    fn lost(&mut self, asked: view::LostAsked, reply: oneshot::Sender<Result<view::LostView, String>>) {
        match self.sites.get() {
            Some(sites) => sites.tell_lost(asked, self, reply),
            None => drop(reply.send(Err(NO_SITES.to_owned()))),
        }
    }

    fn may_administer(&self, identities: &[Identity]) -> bool {
        const ALL: [i32; 5] = [perms::READ, perms::WRITE, perms::CREATE, perms::DELETE, perms::ADMIN];
        let server = self.server.borrow();
        let tree = server.tree();
        // Asked for as one, any of them would do.
        let caller = Caller { session: Caller::REACTION, identities };
        tree.get("/").is_some_and(|root| ALL.iter().all(|perm| tree.permits(root, *perm, &caller)))
    }

    fn digests(&self) -> Vec<view::Digest> {
        let server = self.server.borrow();
        vec![view::Digest { zxid: server.tree().last_zxid(), digest: server.tree().digest() }]
    }

    fn reset_stats(&mut self) {
        self.server.borrow_mut().reset_stats();
    }

    fn reset_connections(&mut self) {
        self.server.borrow_mut().reset_connection_stats();
    }

    fn snapshot(&mut self, reply: oneshot::Sender<Result<view::SnapshotDone, String>>) {
        self.snapshot_waiters.borrow_mut().push(reply);
        self.server.borrow_mut().request_snapshot();
        self.after_input();
    }
}

fn extension(name: &str, stats: &ProgramStats) -> view::Extension {
    let ProgramStats { calls, failures, pauses, throttled, suspensions, missed, steps, memory_bytes, time } =
        *stats;
    let (name, time) = (name.to_owned(), histogram(&time));
    view::Extension {
        name,
        calls,
        failures,
        pauses,
        throttled,
        suspensions,
        missed,
        steps,
        memory_bytes,
        time,
    }
}
