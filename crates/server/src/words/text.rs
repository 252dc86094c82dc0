//! What each word answers, as text.
//!
//! The lines are those of ZooKeeper, spaces and all: scripts cut them apart.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

use super::Word;
use crate::config::{MemberRole, Settings};
use crate::date;
use crate::metrics::{Figures, average_ms, latency_min_us, monitor_lines};
use crate::process::{Phase, Process, VERSION};
use crate::view::forest::own_place;
use crate::view::{Connection, Mode, Session, SessionWatches, SitesView, Sizes, Source, Stats, why_unready};

/// What every word but a few answers while there is nothing to tell.
pub(crate) const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests";

/// What a word answers: the bytes to send before the connection is closed.
///
/// `argument` is what came after the word; only `stmk` looks at it, and a newline that a telnet or an
/// `echo` left there does no harm.
pub fn answer(word: Word, argument: &[u8], process: &Process, source: &mut dyn Source) -> String {
    if !process.settings.allows(word) {
        return format!("{} is not executed because it is not in the whitelist.\n", word.name());
    }
    match word {
        Word::Ruok | Word::Envi | Word::Gtmk | Word::Stmk => of_process(word, argument, process),
        _ if process.is_serving() => of_server(word, process, source),
        Word::Isro => "null".to_owned(),
        Word::Srvr => not_serving(process, source),
        Word::Hash => NOT_SERVING.to_owned(),
        _ => format!("{NOT_SERVING}\n"),
    }
}

/// What `srvr` answers while nobody is served: the line that scripts look for, and why on another one.
fn not_serving(process: &Process, source: &dyn Source) -> String {
    // Before it looks for a leader nobody is there to be asked, and afterwards nobody need be.
    let stats = (process.phase() == Phase::Looking).then(|| source.stats());
    match why_unready(process.phase(), stats.as_ref()) {
        // Another server's words may be among them: neither a line of their own nor what scripts look for.
        Some(why) => {
            format!("{NOT_SERVING}\n{}\n", why.replace(char::is_control, " ").replace("Mode", "mode"))
        }
        None => format!("{NOT_SERVING}\n"),
    }
}

/// Words that need nobody to be served.
fn of_process(word: Word, argument: &[u8], process: &Process) -> String {
    match word {
        Word::Envi => environment(process),
        Word::Gtmk => process.trace_mask().to_string(),
        Word::Stmk => match argument.first_chunk() {
            Some(mask) => {
                process.set_trace_mask(i64::from_be_bytes(*mask));
                process.trace_mask().to_string()
            }
            None => "stmk takes the mask as eight bytes, most significant first\n".to_owned(),
        },
        _ => "imok".to_owned(),
    }
}

fn of_server(word: Word, process: &Process, source: &mut dyn Source) -> String {
    match word {
        Word::Conf => configuration(process, &source.stats()),
        Word::Cons => connections(&source.connections()),
        Word::Crst => {
            source.reset_connections();
            "Connection stats reset.\n".to_owned()
        }
        Word::Dirs => {
            let stats = source.stats();
            format!("datadir_size: {}\nlogdir_size: {}\n", stats.snapshots.bytes, stats.log.bytes)
        }
        Word::Dump => dump(&source.sessions(), &source.connections(), &process.settings, source.stats().mode),
        Word::Hash => source.digests().iter().fold(String::new(), |mut text, point| {
            // Java's numbers have a sign.
            let _ = writeln!(text, "{:x}: {}", point.zxid, point.digest.cast_signed());
            text
        }),
        Word::Isro => if source.stats().mode == Mode::ReadOnly { "ro" } else { "rw" }.to_owned(),
        Word::Mntr => monitor_lines(&Figures::now(source.stats())),
        Word::Srst => {
            source.reset_stats();
            "Server stats reset.\n".to_owned()
        }
        Word::Srvr => server(&source.stats(), ""),
        Word::Stat => server(&source.stats(), &clients(&source.connections())),
        Word::Wchc => watches_by_session(&source.watches()),
        Word::Wchp => watches_by_path(&source.watches()),
        Word::Wchs => {
            let summary = source.watch_summary();
            format!(
                "{} connections watching {} paths\nTotal watches:{}\n",
                summary.sessions, summary.paths, summary.watches
            )
        }
        Word::Ruok | Word::Envi | Word::Gtmk | Word::Stmk => of_process(word, &[], process),
    }
}

/// Which site the server is of, and a line for each, with the names that admin HTTP has for the same.
fn sites(view: &SitesView) -> String {
    view.sites.iter().fold(format!("Site: {}\n", view.name), |mut text, site| {
        let unshipped = site.unshipped;
        let said = [
            Some(("number", site.number.to_string())),
            site.is_hub.then(|| ("is_hub", true.to_string())),
            site.is_lost.then(|| ("is_given_up", true.to_string())),
            site.connected.map(|is| ("connected", is.to_string())),
            site.connected_ms.map(|ms| ("connected_since", ms.to_string())),
            site.round_trip_us.map(|us| ("round_trip_ms", (us as f64 / 1e3).to_string())),
            unshipped.map(|of| ("unshipped_entries", of.entries.to_string())),
            unshipped.map(|of| ("unshipped_ms", (of.age_us as f64 / 1e3).to_string())),
            unshipped.map(|of| ("unshipped_is_all", of.is_all.to_string())),
            site.imported.map(|position| ("imported_position", position.to_string())),
        ];
        let said = said.into_iter().flatten().map(|(name, value)| format!("{name} {value}"));
        let _ = writeln!(text, "Site {}: {}", site.name, said.collect::<Vec<_>>().join(", "));
        text
    })
}

/// `srvr`, and `stat` with the lines of the clients.
fn server(stats: &Stats, clients: &str) -> String {
    let proposals = match (stats.mode, stats.following.proposal_bytes) {
        (Mode::Leader, Some(Sizes { last, min, max })) => {
            format!("Proposal sizes last/min/max: {last}/{min}/{max}\n")
        }
        (Mode::Leader, None) => "Proposal sizes last/min/max: -1/-1/-1\n".to_owned(),
        _ => String::new(),
    };
    let sites = stats.sites.as_ref().map(sites).unwrap_or_default();
    let place = stats.forest.as_ref().and_then(|forest| own_place(forest, stats.ensemble.id));
    let forest = place.map(|place| format!("Forest: {place}\n")).unwrap_or_default();
    let readers = stats.readers.words();
    format!(
        "Zookeeper version: {VERSION}\n{clients}Latency min/avg/max: {}/{:?}/{}\nReceived: {}\nSent: {}\n\
         Connections: {}\nOutstanding: {}\nZxid: 0x{:x}\nMode: {}\nNode count: {}\n\
         {proposals}{forest}{readers}{sites}",
        latency_min_us(stats) / 1000,
        average_ms(stats),
        stats.latency_max_us / 1000,
        stats.packets_received,
        stats.packets_sent,
        stats.connections,
        stats.outstanding,
        stats.zxid,
        stats.mode.name(),
        stats.znodes,
    )
}

fn clients(connections: &[Connection]) -> String {
    let mut text = String::from("Clients:\n");
    for connection in connections {
        write_counts(&mut text, connection);
        text.push_str(")\n");
    }
    text.push('\n');
    text
}

fn connections(connections: &[Connection]) -> String {
    let mut text = String::new();
    for connection in connections {
        write_counts(&mut text, connection);
        if let Some(partition) = connection.partition {
            let _ = write!(text, ",partition={partition}");
        }
        if let Some(session) = &connection.session {
            let last_op = session.last_op.map_or("NA", |opcode| opcode.short_name());
            let _ = write!(
                text,
                ",sid=0x{:x},lop={last_op},est={},to={}",
                session.id, connection.established_ms, session.timeout_ms
            );
            if let Some(xid) = session.last_xid.filter(|xid| *xid >= 0) {
                let _ = write!(text, ",lcxid=0x{xid:x}");
            }
            let _ = write!(
                text,
                ",lzxid=0x{:x},lresp={},llat={},minlat={},avglat={},maxlat={}",
                session.last_zxid,
                session.last_reply_ms,
                session.latency_last_us / 1000,
                session.latency_min_us / 1000,
                session.latency_avg_us / 1000,
                session.latency_max_us / 1000,
            );
        }
        text.push_str(")\n");
    }
    text.push('\n');
    text
}

fn write_counts(text: &mut String, connection: &Connection) {
    let _ = write!(
        text,
        " {}[{:x}](queued={},recved={},sent={}",
        java_address(connection.peer),
        interest_ops(connection),
        connection.outstanding,
        connection.packets_received,
        connection.packets_sent,
    );
}

/// What Java waits for on a socket: 1 is reading, 4 is writing.
pub(crate) fn interest_ops(connection: &Connection) -> u8 {
    u8::from(connection.reading) | u8::from(connection.writing) << 2
}

/// An address as Java writes it: a slash where a host name would stand, and IPv6 in eight full groups.
pub(crate) fn java_address(address: SocketAddr) -> String {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => format!("/{ip}:{}", address.port()),
        IpAddr::V6(ip) => {
            let groups: Vec<String> = ip.segments().iter().map(|group| format!("{group:x}")).collect();
            format!("/[{}]:{}", groups.join(":"), address.port())
        }
    }
}

fn configuration(process: &Process, stats: &Stats) -> String {
    let settings = &process.settings;
    let (min, max) = settings.session_timeouts();
    let folder = process.data_dir.display();
    let mut text = format!(
        "clientPort={}\nsecureClientPort=-1\ndataDir={folder}\ndataDirSize={}\ndataLogDir={folder}\n\
         dataLogSize={}\ntickTime={}\nmaxClientCnxns={}\nminSessionTimeout={}\nmaxSessionTimeout={}\n\
         clientPortListenBacklog={}\nserverId={}\n",
        process.port(),
        stats.snapshots.bytes,
        stats.log.bytes,
        settings.tick_time.as_millis(),
        settings.max_connections_per_address,
        min.as_millis(),
        max.as_millis(),
        settings.listen_backlog,
        server_id(settings),
    );
    if stats.partitions > 1 {
        let _ = writeln!(text, "partitions={}", stats.partitions);
    }
    let servers = &stats.ensemble.servers;
    let own = servers.iter().find(|member| Some(member.id) == settings.server_id);
    if let Some(own) = own.filter(|_| stats.mode != Mode::Standalone) {
        // ZooKeeper's number for a voter and for an observer, and its space behind `membership:`.
        let kind = u8::from(own.role == MemberRole::Observer);
        let _ = write!(text, "quorumPort={}\npeerType={kind}\nmembership: \n", own.peer_port);
        let mut members: Vec<_> = servers.iter().collect();
        members.sort_unstable_by_key(|member| member.id);
        for member in members {
            let _ = writeln!(text, "{member}");
        }
    }
    text
}

/// The number of this server; that of one without an ensemble is 0, as it is in ZooKeeper.
pub(crate) fn server_id(settings: &Settings) -> u64 {
    settings.own_member().map_or(0, |own| own.id.into())
}

fn environment(process: &Process) -> String {
    process.environment().into_iter().fold("Environment:\n".to_owned(), |mut text, (key, value)| {
        let _ = writeln!(text, "{key}={value}");
        text
    })
}

pub(super) fn dump(
    sessions: &[Session],
    connections: &[Connection],
    settings: &Settings,
    mode: Mode,
) -> String {
    let mut text = String::from("SessionTracker dump:\n");
    let has_locals = settings.local_sessions && mode != Mode::Standalone;
    let ending = |local: bool| {
        let kept = sessions.iter().filter(move |session| session.is_local == local);
        kept.map(|session| (session.expires_ms, format!("0x{:x}", session.id)))
    };
    if has_locals {
        text.push_str("Local Session ");
        write_buckets(&mut text, ending(true));
    }
    if mode.judges_sessions() {
        text.push_str(if has_locals { "Global Session " } else { "Session " });
        write_buckets(&mut text, ending(false));
    } else {
        let globals: Vec<&Session> = sessions.iter().filter(|session| !session.is_local).collect();
        let _ = writeln!(text, "Global Sessions({}):", globals.len());
        for session in globals {
            let _ = writeln!(text, "0x{:x}\t{}ms", session.id, session.timeout_ms);
        }
    }

    text.push_str("ephemeral nodes dump:\n");
    let owners: Vec<&Session> = sessions.iter().filter(|session| !session.ephemerals.is_empty()).collect();
    let _ = writeln!(text, "Sessions with Ephemerals ({}):", owners.len());
    for session in owners {
        let _ = writeln!(text, "0x{:x}:", session.id);
        for path in &session.ephemerals {
            let _ = writeln!(text, "\t{path}");
        }
    }

    // A connection goes when its session expires, or when its handshake takes too long.
    let expiry: HashMap<i64, i64> = sessions.iter().map(|session| (session.id, session.expires_ms)).collect();
    let handshake_ms = i64::try_from(settings.handshake_timeout.as_millis()).unwrap_or(i64::MAX);
    text.push_str("Connections dump:\nConnections ");
    let by_expiry = connections.iter().map(|connection| {
        let session = connection.session.as_ref().map_or(0, |session| session.id);
        let expires_ms = expiry.get(&session).copied();
        let expires_ms = expires_ms.unwrap_or_else(|| connection.established_ms.saturating_add(handshake_ms));
        (expires_ms, format!("ip: {} sessionId: 0x{session:x}", java_address(connection.peer)))
    });
    write_buckets(&mut text, by_expiry);
    text
}

/// What expires, by when it does.
fn write_buckets(text: &mut String, members: impl Iterator<Item = (i64, String)>) {
    let mut buckets: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for (expires_ms, member) in members {
        buckets.entry(expires_ms).or_default().push(member);
    }
    let _ = writeln!(text, "Sets ({})/({}):", buckets.len(), buckets.values().map(Vec::len).sum::<usize>());
    for (expires_ms, members) in buckets {
        let _ = writeln!(text, "{} expire at {}:", members.len(), date::java(expires_ms));
        for member in members {
            let _ = writeln!(text, "\t{member}");
        }
    }
}

fn watches_by_session(watches: &[SessionWatches]) -> String {
    let mut text = String::new();
    for SessionWatches { session, paths } in watches {
        let _ = writeln!(text, "0x{session:x}");
        for path in paths {
            let _ = writeln!(text, "\t{path}");
        }
    }
    text.push('\n');
    text
}

fn watches_by_path(watches: &[SessionWatches]) -> String {
    let mut text = String::new();
    for (path, sessions) in by_path(watches) {
        let _ = writeln!(text, "{path}");
        for session in sessions {
            let _ = writeln!(text, "\t0x{session:x}");
        }
    }
    text.push('\n');
    text
}

/// The sessions that watch each path.
pub(crate) fn by_path(watches: &[SessionWatches]) -> BTreeMap<&str, Vec<i64>> {
    let mut paths: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    let mut seen = HashSet::new();
    for SessionWatches { session, paths: watched } in watches {
        for path in watched {
            if seen.insert((path.as_str(), *session)) {
                paths.entry(path).or_default().push(*session);
            }
        }
    }
    paths
}
