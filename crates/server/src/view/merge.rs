//! One picture of a server from those of its threads.

use std::collections::BTreeMap;

use super::{
    Digest, EnsembleStatus, Extension, Histogram, LinkStatus, MemberStatus, Mode, Op, Quota, SessionWatches,
    Sizes, Snapshots, Stats, WatchSummary,
};

impl Stats {
    /// Adds what another thread knows. What the threads share, as the log, the first one tells.
    pub(crate) fn add(&mut self, other: &Stats) {
        self.mode = self.mode.with(other.mode);
        self.ensemble.add(&other.ensemble);
        let had_answers = self.answered > 0;
        self.zxid = self.zxid.max(other.zxid);
        if other.answered > 0 {
            let least = other.latency_min_us;
            self.latency_min_us = if had_answers { self.latency_min_us.min(least) } else { least };
        }
        self.latency_max_us = self.latency_max_us.max(other.latency_max_us);
        for (own, other) in [
            (&mut self.znodes, other.znodes),
            (&mut self.data_bytes, other.data_bytes),
            (&mut self.watches, other.watches),
            (&mut self.ephemerals, other.ephemerals),
            (&mut self.sessions, other.sessions),
            (&mut self.local_sessions, other.local_sessions),
            (&mut self.connections, other.connections),
            (&mut self.outstanding, other.outstanding),
            (&mut self.latency_sum_us, other.latency_sum_us),
            (&mut self.answered, other.answered),
            (&mut self.packets_received, other.packets_received),
            (&mut self.packets_sent, other.packets_sent),
            (&mut self.bytes_received, other.bytes_received),
            (&mut self.bytes_sent, other.bytes_sent),
            (&mut self.requests_kept, other.requests_kept),
            (&mut self.requests_handed_over, other.requests_handed_over),
            (&mut self.connection_requests, other.connection_requests),
            (&mut self.connections_rejected, other.connections_rejected),
            (&mut self.connections_dropped, other.connections_dropped),
            (&mut self.handshakes_expired, other.handshakes_expired),
            (&mut self.sessions_expired, other.sessions_expired),
            (&mut self.auth_failed, other.auth_failed),
            (&mut self.frames_too_large, other.frames_too_large),
            (&mut self.sessions_brought, other.sessions_brought),
            (&mut self.sessions_asked_for, other.sessions_asked_for),
            (&mut self.stale_replies, other.stale_replies),
            (&mut self.watch_events, other.watch_events),
            (&mut self.watch_bytes, other.watch_bytes),
            (&mut self.containers_deleted, other.containers_deleted),
            (&mut self.log.entries, other.log.entries),
            (&mut self.log.updates, other.log.updates),
            (&mut self.log.bytes_written, other.log.bytes_written),
            (&mut self.log.queued, other.log.queued),
            (&mut self.log.refusals, other.log.refusals),
            (&mut self.snapshots.errors, other.snapshots.errors),
        ] {
            *own += other;
        }
        self.reply_bytes = Sizes::of_both(self.reply_bytes, other.reply_bytes);
        self.watchers.add(&other.watchers);
        self.following.add(&other.following);
        Quota::add_all(&mut self.quotas, &other.quotas);
        self.snapshots.progress = Snapshots::slower(self.snapshots.progress, other.snapshots.progress);
        if let (Some(own), Some(other)) = (&mut self.sites, &other.sites) {
            own.add(other);
        }
        for op in &other.ops {
            self.add_op(op);
        }
        for extension in &other.extensions {
            self.add_extension(extension);
        }
    }

    fn add_op(&mut self, other: &Op) {
        match self.ops.iter_mut().find(|op| op.opcode == other.opcode) {
            Some(own) => {
                Histogram::add(&mut own.latency, &other.latency);
                own.errors += other.errors;
            }
            None => self.ops.push(other.clone()),
        }
    }

    /// Each partition has all of them, and carries out what concerns its own znodes.
    fn add_extension(&mut self, other: &Extension) {
        if let Some(own) = self.extensions.iter_mut().find(|own| own.name == other.name) {
            own.calls += other.calls;
            own.failures += other.failures;
            own.pauses += other.pauses;
            own.throttled += other.throttled;
            own.suspensions += other.suspensions;
            own.missed += other.missed;
            own.steps += other.steps;
            own.memory_bytes += other.memory_bytes;
            own.time.add(&other.time);
        }
    }
}

impl Mode {
    /// What a server is that is this in some of its partitions, and that in another: it serves when all do,
    /// who leads the first leads, and where the first only reads, all do.
    fn with(self, other: Mode) -> Mode {
        match (self, other) {
            (Mode::ReadOnly, _) => Mode::ReadOnly,
            (Mode::Looking, _) | (_, Mode::Looking) => Mode::Looking,
            (_, Mode::ReadOnly) => Mode::ReadOnly,
            (first, _) => first,
        }
    }
}

impl EnsembleStatus {
    fn add(&mut self, other: &EnsembleStatus) {
        self.leader = self.leader.filter(|_| other.leader.is_some());
        self.behind = self.behind.max(other.behind);
        self.out_of_room |= other.out_of_room;
        self.takes_over |= other.takes_over;
        self.leaders_found = self.leaders_found.max(other.leaders_found);
        for (own, other) in [
            (&mut self.last, other.last),
            (&mut self.committed, other.committed),
            (&mut self.applied, other.applied),
            (&mut self.snapshots_sent, other.snapshots_sent),
            (&mut self.snapshots_received, other.snapshots_received),
        ] {
            *own += other;
        }
        for member in &mut self.members {
            match other.members.iter().find(|it| it.id == member.id) {
                Some(it) => member.add(it),
                // There it is not taken in yet, or not any more.
                None => member.belongs = false,
            }
        }
        for member in &other.members {
            if !self.members.iter().any(|it| it.id == member.id) {
                self.members.push(MemberStatus { belongs: false, ..member.clone() });
            }
        }
        self.members.sort_unstable_by_key(|member| member.id);
        self.timelines.extend(&other.timelines);
    }
}

impl MemberStatus {
    fn add(&mut self, other: &MemberStatus) {
        self.belongs &= other.belongs;
        self.joins |= other.joins;
        self.votes &= other.votes;
        // The first partition knows it, with which the log is.
        self.matched = self.matched.or(other.matched);
        self.lag = self.lag.or(other.lag);
        match (&mut self.link, &other.link) {
            (Some(own), Some(other)) => own.add(other),
            // No partition has one with the server itself.
            (own, other) => *own = own.take().or(other.clone()),
        }
    }
}

impl LinkStatus {
    /// Two servers are connected when all of their partitions are.
    fn add(&mut self, other: &LinkStatus) {
        self.connected_ms = self.connected_ms.zip(other.connected_ms).map(|(one, other)| one.max(other));
        self.software = self.software.take().or(other.software.clone());
        self.last_error = self.last_error.take().or(other.last_error.clone());
        for (own, other) in [
            (&mut self.bytes_received, other.bytes_received),
            (&mut self.bytes_sent, other.bytes_sent),
            (&mut self.messages_received, other.messages_received),
            (&mut self.messages_sent, other.messages_sent),
            (&mut self.queued_bytes, other.queued_bytes),
        ] {
            *own += other;
        }
    }
}

impl Snapshots {
    /// How far the one is that has further to go.
    fn slower(one: Option<f64>, other: Option<f64>) -> Option<f64> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }
}

/// The watches of each session, wherever what they watch lives.
pub(crate) fn watches(of_threads: Vec<Vec<SessionWatches>>) -> Vec<SessionWatches> {
    let mut sessions: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for SessionWatches { session, paths } in of_threads.into_iter().flatten() {
        sessions.entry(session).or_default().extend(paths);
    }
    let whole = sessions.into_iter().map(|(session, mut paths)| {
        // A watch on all below the root is known everywhere.
        paths.sort_unstable();
        paths.dedup();
        SessionWatches { session, paths }
    });
    whole.collect()
}

/// The same, counted.
pub(crate) fn count(watches: &[SessionWatches]) -> WatchSummary {
    let mut paths: Vec<&str> = watches.iter().flat_map(|of| of.paths.iter().map(String::as_str)).collect();
    let all = paths.len();
    paths.sort_unstable();
    paths.dedup();
    WatchSummary { sessions: watches.len() as u64, paths: paths.len() as u64, watches: all as u64 }
}

/// A tree's digest is the sum of what its parts come to.
pub(crate) fn digests(of_threads: &[Vec<Digest>]) -> Vec<Digest> {
    let last = of_threads.iter().filter_map(|digests| digests.last());
    let sum = last.copied().reduce(|one, other| Digest {
        zxid: one.zxid.max(other.zxid),
        digest: one.digest.wrapping_add(other.digest),
    });
    sum.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{follower, hub, leader, looking, read_only, stats};
    use super::super::{Following, Log, Service, SitesView, Watchers};
    use super::*;
    use stoa_core::SiteCounts;
    use stoa_wire::Opcode;

    #[test]
    fn what_threads_count_adds_up_and_what_they_share_does_not() {
        let latency = Histogram { buckets: vec![(250, 1), (1000, 0), (u64::MAX, 2)], sum: 9 };
        let op = |opcode| Op { opcode, latency: latency.clone(), errors: 1 };
        let other = Stats {
            zxid: 0x30,
            znodes: 5,
            connections: 1,
            latency_min_us: 10,
            latency_max_us: 70,
            latency_sum_us: 100,
            answered: 2,
            requests_handed_over: 4,
            reply_bytes: Some(Sizes { last: 9, max: 500, min: 9 }),
            ops: vec![op(Opcode::SetData), op(Opcode::GetData)],
            log: Log { position: 90, entries: 3, bytes: 4_096, ..Log::default() },
            ..Stats::default()
        };
        let mut all = stats();
        all.add(&other);
        assert_eq!((all.zxid, all.znodes, all.connections, all.sessions), (0x30, 12, 3, 2));
        assert_eq!((all.latency_min_us, all.latency_max_us), (10, 7_900));
        assert_eq!((all.latency_sum_us, all.answered, all.requests_handed_over), (125_100, 1_002, 4));
        assert_eq!(all.reply_bytes, Some(Sizes { last: 20, max: 500, min: 9 }));
        assert_eq!((all.log.position, all.log.entries, all.log.bytes), (90, 3, 4_096));
        let counts: Vec<_> = all.ops.iter().map(|op| (op.opcode, op.latency.count(), op.errors)).collect();
        assert_eq!(counts, [(Opcode::GetData, 103, 5), (Opcode::SetData, 3, 1)]);
        // A thread that has answered nothing says nothing of latencies.
        all.add(&Stats::default());
        assert_eq!(all.latency_min_us, 10);
        let mut first = Stats::default();
        first.add(&other);
        assert_eq!(first.latency_min_us, 10);
    }

    #[test]
    fn what_is_counted_of_updates_watchers_and_quotas_adds_up() {
        let sizes = |last, max, min| Some(Sizes { last, max, min });
        let quota = |name: &str, number: i64| Quota {
            namespace: name.to_owned(),
            count_limit: number,
            bytes_limit: -1,
            count: number,
            bytes: number,
            refused: 1,
        };
        let thread = |number: u64, proposal_bytes, quotas| Stats {
            sessions_brought: number,
            sessions_asked_for: 10 * number,
            stale_replies: 100 * number,
            watch_bytes: 1_000 * number,
            watchers: Watchers { deleted: Histogram::of_one(2), ..Watchers::default() },
            following: Following {
                proposals: number,
                proposal_bytes,
                led_updates: 2 * number,
                followed_updates: 3 * number,
                propagation: Histogram::of_one(5),
                agreement: Histogram::of_one(6),
                pending_syncs: number,
            },
            service: Service { looking: number, led_ms: Some(number), ..Service::default() },
            quotas,
            ..Stats::default()
        };
        let mut all = thread(1, sizes(50, 60, 40), vec![quota("a", 5), quota("c", 7)]);
        all.add(&thread(2, sizes(30, 90, 30), vec![quota("b", 1), quota("c", 2)]));
        all.add(&thread(0, None, Vec::new()));
        assert_eq!((all.sessions_brought, all.sessions_asked_for), (3, 30));
        assert_eq!((all.stale_replies, all.watch_bytes), (300, 3_000));
        assert_eq!((all.watchers.deleted.count(), all.watchers.deleted.sum), (3, 6));
        let Following { proposals, proposal_bytes, led_updates, followed_updates, pending_syncs, .. } =
            all.following;
        assert_eq!((proposals, led_updates, followed_updates, pending_syncs), (3, 6, 9, 3));
        assert_eq!(proposal_bytes, sizes(50, 90, 30));
        assert_eq!((all.following.propagation.sum, all.following.agreement.sum), (15, 18));
        // All threads share that, and the first one tells it.
        assert_eq!((all.service.looking, all.service.led_ms), (1, Some(1)));
        let quotas: Vec<_> = all
            .quotas
            .iter()
            .map(|it| (&*it.namespace, it.count_limit, it.bytes_limit, it.bytes, it.refused))
            .collect();
        assert_eq!(quotas, [("a", 5, -1, 5, 1), ("b", 1, -1, 1, 1), ("c", 9, -2, 9, 2)]);
    }

    #[test]
    fn what_partitions_count_of_sites_adds_up_and_the_first_tells_the_rest() {
        let of_sites = |held, writes_local| {
            let counts = SiteCounts { writes_local, ..SiteCounts::default() };
            Some(SitesView { held, counts, ..SitesView::default() })
        };
        let mut all = hub();
        all.add(&Stats { sites: of_sites(3, 40), ..Stats::default() });
        // A thread whose partition knows of no sites as yet says nothing.
        all.add(&Stats::default());
        let before = SitesView::example();
        let counts = SiteCounts { writes_local: before.counts.writes_local + 40, ..before.counts };
        assert_eq!(all.sites, Some(SitesView { held: before.held + 3, counts, ..before }));
        let mut none = Stats::default();
        none.add(&Stats { sites: of_sites(1, 1), ..Stats::default() });
        assert_eq!(none.sites, None);
    }

    #[test]
    fn a_server_stands_where_all_its_partitions_do() {
        let with = |first: Stats, other: Stats| {
            let mut all = first;
            all.add(&other);
            all
        };
        let (leading, following) = (with(leader(), follower()), with(follower(), leader()));
        assert_eq!((leading.mode, following.mode), (Mode::Leader, Mode::Follower));
        assert_eq!(leading.ensemble.leader, Some(1));
        for other in [looking, read_only] {
            for all in [with(leader(), other()), with(other(), leader())] {
                assert_eq!((all.mode, all.ensemble.leader), (other().mode, None));
                assert!(all.unready().is_some());
            }
        }
        assert_eq!(with(looking(), read_only()).mode, Mode::Looking);
        assert_eq!(with(read_only(), looking()).mode, Mode::ReadOnly);
        let mut behind = follower();
        behind.ensemble.behind = 2_000;
        assert!(with(follower(), behind).unready().is_some_and(|why| why.starts_with("2000 committed")));
        let mut full = looking();
        full.ensemble.out_of_room = true;
        assert!(with(follower(), full).unready().is_some_and(|why| why.starts_with("the disk is full")));
        let both: Vec<_> =
            leading.ensemble.timelines.iter().map(|timeline| (timeline.mode, timeline.term)).collect();
        assert_eq!(both, [(Mode::Leader, 7), (Mode::Follower, 7)]);
        assert_eq!((leading.ensemble.led(), with(leader(), leader()).ensemble.led()), (2, 2));
    }

    #[test]
    fn what_is_known_of_the_others_is_the_worst_and_their_traffic_adds_up() {
        let mut all = leader();
        let mut other = leader();
        let third = &mut other.ensemble.members[2];
        (third.lag, third.matched) = (None, None);
        third.link =
            Some(LinkStatus { bytes_sent: 1, last_error: Some("cut".into()), ..LinkStatus::default() });
        let new = MemberStatus { id: 5, ..other.ensemble.members.remove(3) };
        other.ensemble.members.push(new);
        all.add(&other);
        let EnsembleStatus { last, committed, applied, behind, leaders_found, ref members, .. } =
            all.ensemble;
        assert_eq!((last, committed, applied, behind), (10_002, 9_998, 9_996, 1));
        assert_eq!((leaders_found, all.ensemble.snapshots_sent), (3, 2));
        let lags: Vec<_> = members.iter().map(|member| (member.id, member.matched, member.lag)).collect();
        let third = (3, Some(1_000), Some(4_001));
        let away = |id| (id, Some(0), Some(5_001));
        assert_eq!(lags, [(1, None, None), (2, Some(4_999), Some(2)), third, away(4), away(5)]);
        let link = |at: usize| members[at].link.clone().unwrap();
        assert_eq!((link(1).bytes_sent, link(1).connected_ms), (18_000, Some(1_700_000_000_000)));
        assert_eq!((link(2).bytes_sent, link(2).connected_ms), (9_001, None));
        assert_eq!(link(2).last_error.as_deref(), Some("cut"));
        let belong: Vec<_> = members.iter().map(|member| member.belongs).collect();
        assert_eq!(belong, [true, true, true, false, false]);
        assert!(members[0].link.is_none(), "nobody is connected with himself");
    }

    #[test]
    fn watches_of_a_session_are_put_together() {
        let of = |session, paths: &[&str]| SessionWatches {
            session,
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        };
        let all = watches(vec![
            vec![of(1, &["/", "/b"]), of(3, &["/b"])],
            vec![of(1, &["/a", "/"])],
            vec![of(2, &["/c"])],
        ]);
        let shown: Vec<_> = all.iter().map(|of| (of.session, of.paths.join(" "))).collect();
        assert_eq!(shown, [(1, "/ /a /b".to_owned()), (2, "/c".to_owned()), (3, "/b".to_owned())]);
        assert_eq!(count(&all), WatchSummary { sessions: 3, paths: 4, watches: 5 });
    }

    #[test]
    fn digests_of_parts_add_up() {
        let of = |zxid, digest| vec![Digest { zxid, digest }];
        assert_eq!(digests(&[of(5, u64::MAX), of(7, 3)]), of(7, 2));
        assert_eq!(digests(&[]), []);
    }
}
