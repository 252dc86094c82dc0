//! Starting and stopping: recovery, threads, signals.

use std::io::Write;
use std::mem;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stoa_core::{
    CallLimits, Config, Givers, Levels, Limits, LocalSessions, PolicySettings, ProgramLimits, Reaping,
    Relief, ServerPart, Shard, SiteConfig, Stopwatch, timeline_of,
};
use stoa_storage::{FolderId, Log, Options as LogOptions};
use stoa_tree::Options as TreeOptions;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::admin::AdminTls;
use crate::audit::{AuditLog, Event, StartAttempt};
use crate::clock::{self, Clock};
use crate::config::{FixedPorts, Partitions, READER_ID, Settings, TlsOnPort};
use crate::driver::{Driver, Surroundings};
use crate::ensemble::{Home, Meeting, StoredSnapshot};
use crate::file_disk::FileDisk;
use crate::inbox::inbox;
use crate::listen::{Bound, Listener};
use crate::log_thread::{LogRequest, LogThread, Reports};
use crate::meter::{LogMeter, snapshot_bytes};
use crate::openings::Opening;
use crate::own_ports::{Listeners, OwnPorts, Sockets};
use crate::peers::{PeerPort, PeerTls};
use crate::process::{Phase, Process};
use crate::recovery::{LoadedSnapshot, Recovering, RestoreReport};
use crate::role::{OwnRoles, RoleTurn};
use crate::sasl::ClientSasl;
use crate::sites::Sites;
use crate::snapshot_thread::{SnapshotRequest, SnapshotThread};
use crate::threads::{Beginning, Door, END_CHECK, Neighbours, Others};
use crate::tls::ClientTls;
use crate::together::Together;
use crate::view::{Question, Startup};
use crate::{
    admin, listen, lists, openings, partitions_file, random, role, sites, standstill, starts_file, threads,
};

/// How long a clean stop waits for what is under way.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// How long it then waits for answers to what clients have asked, and how long in all until they have taken what is
/// for them and gone.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);
const FAREWELL_PATIENCE: Duration = Duration::from_secs(4);
/// A server alone is ready in a moment, and until then clients wait to be accepted. One that is not says so to
/// whoever asks.
const ACCEPT_TIME: Duration = Duration::from_secs(1);

/// What outlives a change of the server's role: see [`crate::role`].
struct Lasting {
    roles: OwnRoles,
    fixed: FixedPorts,
    partitions: u8,
    /// Signals come by way of it, also while nothing runs.
    runtime: Runtime,
    signals: Option<Signals>,
    has_announced: bool,
}

/// What an operator tells the process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Must be called within a runtime.
    fn listen() -> Result<Self, String> {
        let listen = |kind| signal(kind).map_err(|error| format!("signals: {error}"));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits until the process is told something.
    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::Stop,
            _ = self.interrupt.recv() => Told::Stop,
            _ = self.hangup.recv() => Told::Reload,
        }
    }
}

enum Told {
    Stop,
    Reload,
    /// It is to go on as something else.
    Turn(RoleTurn),
}

/// Serves until told to stop. `Err` says what an operator must know.
pub(crate) fn serve(mut settings: Settings, fixed: FixedPorts) -> Result<(), String> {
    raise_descriptor_limit();
    let disk = FileDisk::open(&settings.data_dir).map_err(|error| error.to_string())?;
    let attempt = StartAttempt::new(&settings);
    let partitions = count_partitions(&mut settings)?;
    let roles = OwnRoles::load(settings)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed("the runtime"))?;
    let mut lasting = Lasting { roles, fixed, partitions, runtime, signals: None, has_announced: false };
    let mut attempt = Some(attempt);
    while let Some(turn) = serve_as(&mut lasting, disk.another(), attempt.take())? {
        tracing::info!("this server goes on as a {}", turn.name());
        lasting.roles.turn(turn)?;
    }
    Ok(())
}

/// Serves in the role that the server has, until it is told to stop, or is to have another one.
fn serve_as(
    lasting: &mut Lasting,
    disk: FileDisk,
    attempt: Option<StartAttempt>,
) -> Result<Option<RoleTurn>, String> {
    let began = Instant::now();
    let (settings, fixed, partitions) = (lasting.roles.settings(), lasting.fixed, lasting.partitions);
    let attempt = attempt.unwrap_or_else(|| StartAttempt::new(&settings));
    // Bound before the recovery, so that a port that is taken is found out at once; nobody is
    // accepted until the state is there.
    let ports = OwnPorts::new(&settings, fixed);
    let sockets = ports.bind()?;
    let secure = secure_socket(&settings)?;
    let of_sites = sites::bind(&settings)?;
    let port = sockets.client_port().unwrap_or(settings.port);
    lasting.roles.keep_port(port);
    let tls = ClientTls::begin(&settings)?;
    let sasl = ClientSasl::begin(&settings)?;
    let peer_tls = PeerTls::begin(&settings)?;
    let admin_tls = AdminTls::begin(&settings)?;
    let process = Process::new(settings, port).with_doors(tls, sasl);
    let process = process.with_peer_tls(peer_tls.clone()).with_admin_tls(admin_tls);
    let process = process.with_newcomer(lasting.roles.newcomer());
    let process = Arc::new(process);
    // From now on, so that it can be seen that the server is up but not ready.
    let (questions_in, questions) = unbounded_channel();
    let (_admin, mut openings) = admin::start(&process, questions_in.clone());
    let recovered = recover(&process.settings, partitions, disk, peer_tls)?;
    process.keep_audit(AuditLog::start(&process.settings)?);
    attempt.succeeded();
    let first = recovered.partitions.first();
    if let Some(difference) = first.and_then(|first| lists::compare(&process.settings, first)) {
        tracing::warn!("{difference}");
    }
    check_site(&process, first)?;
    let sockets = sockets.settle(&ports, first.and_then(|first| first.changed_servers()))?;
    let of_secure = secure.as_ref().map(|bound| {
        let address = bound.socket.local_addr().unwrap_or(bound.address);
        Opening::of_clients(&process.settings, address, TlsOnPort::Only)
    });
    openings.splice(0..0, sockets.openings(&process.settings).into_iter().chain(of_secure));
    tracing::info!("{}", openings::told(&openings));
    let clock = Clock::start();
    let total_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let startup = Startup {
        total_ms,
        snapshot_ms: recovered.report.snapshot_ms,
        replay_ms: total_ms - recovered.report.snapshot_ms.min(total_ms),
        updates_replayed: recovered.report.updates,
    };
    let trees = || recovered.partitions.iter().map(|partition| partition.tree());
    let history = recovered.partitions.first().and_then(|first| first.history());
    tracing::info!(
        "data folder {}: {}, {}{} znodes, {} sessions, zxid {:#x}, ready after {total_ms} ms",
        process.data_dir.display(),
        history.map_or_else(|| "new".to_owned(), |history| format!("of the ensemble {}", history.id)),
        if partitions > 1 { format!("{partitions} partitions, ") } else { String::new() },
        trees().map(stoa_tree::Tree::znode_count).sum::<usize>(),
        recovered.partitions.iter().map(|partition| partition.session_count()).sum::<usize>(),
        trees().map(stoa_tree::Tree::last_zxid).max().unwrap_or(0),
    );
    let ports = Ports { own: ports, sockets, secure, of_sites };
    let beginning = (Arc::clone(&process), ports, recovered);
    let result = run(lasting, beginning, clock, startup, (questions_in, questions));
    if let Some(audit) = process.audit() {
        audit.finish();
    }
    result
}

/// Whether the settings know that the data folder is one of a site.
fn check_site(process: &Process, first: Option<&Shard>) -> Result<(), String> {
    let of_site = first.and_then(|first| first.tree().own_site());
    // A reader hears of it from its parent.
    let has_to = process.settings.site.is_none() && !process.settings.is_reader();
    let Some(site) = of_site.filter(|_| has_to) else { return Ok(()) };
    Err(format!(
        "the data folder {} is that of site {site}, which has its part of a tree together with others: set site, sites and \
         what belongs to them as before, see docs/sites.md",
        process.data_dir.display()
    ))
}

/// The port where all clients have TLS, if it is another one than `port`.
fn secure_socket(settings: &Settings) -> Result<Option<Bound>, String> {
    if settings.secure_port == 0 {
        return Ok(None);
    }
    let (ip, port) = (settings.secure_bind.unwrap_or(settings.bind), settings.secure_port);
    let bound = Bound::new(SocketAddr::new(ip, port), settings.listen_backlog);
    bound.map(Some).map_err(|error| {
        format!(
            "cannot listen for clients with TLS on {ip} port {port}: {error} (settings secure-bind and secure-port)"
        )
    })
}

/// How many partitions this server has, and from now on the settings say so too.
fn count_partitions(settings: &mut Settings) -> Result<u8, String> {
    let must_exist = !settings.create_data_dir;
    let partitions = partitions_file::settle(&settings.data_dir, settings.partitions, must_exist)?;
    if partitions > 1 {
        settings.partitions = Some(Partitions::Exactly(partitions));
        if settings.local_sessions {
            tracing::warn!(
                "local-sessions has no effect: with several partitions every session is a global one"
            );
        }
    }
    Ok(partitions)
}

/// The ports, before anybody is accepted.
struct Ports {
    own: OwnPorts,
    sockets: Sockets,
    secure: Option<Bound>,
    of_sites: Option<Bound>,
}

/// The same, when somebody is.
struct Doors {
    own: OwnPorts,
    listeners: Listeners,
    secure: Option<Rc<Listener>>,
    of_sites: Option<Rc<Listener>>,
}

struct Recovered {
    partitions: Vec<Shard>,
    log: Log,
    disk: FileDisk,
    report: RestoreReport,
    /// Where there are other servers: the port for them, and what each partition begins with.
    meeting: Option<(PeerPort, Vec<Meeting>)>,
}

impl Recovered {
    /// What is known of the disk before anything is written to it.
    fn meter(&mut self) -> LogMeter {
        let stats = self.log.stats();
        let newest = self.report.snapshot.as_ref();
        LogMeter {
            log_bytes: stats.bytes,
            position: stats.positions.iter().map(|(_, position)| position).sum(),
            snapshot_bytes: snapshot_bytes(&mut self.disk),
            snapshot_zxid: newest.map(|snapshot| snapshot.zxid),
            snapshot_wall_ms: newest.map_or(0, |snapshot| snapshot.created_ms),
            ..LogMeter::default()
        }
    }
}

fn recover(
    settings: &Settings,
    partitions: u8,
    mut disk: FileDisk,
    tls: Option<PeerTls>,
) -> Result<Recovered, String> {
    let options = LogOptions {
        segment_bytes: settings.segment_bytes,
        snapshots_kept: settings.snapshots_kept.max(1) as usize,
        kept_bytes: if settings.site.is_some() { settings.site_backlog_bytes } else { 0 },
        must_exist: !settings.create_data_dir,
        new_folder_id: FolderId(random::bytes()?),
        now_ms: clock::wall_ms(),
        ..LogOptions::default()
    };
    let tree_options = TreeOptions {
        enforce_quota: settings.enforce_quota,
        skip_acl: settings.skip_acl,
        extended_types: settings.extended_types,
        x509_scheme: settings.has_client_tls() || settings.has_admin_certificates(),
        sasl_scheme: settings.sasl_config.is_some(),
        unused_container_ms: i64::try_from(settings.container_unused.as_millis()).unwrap_or(0),
        levels: Levels::OWN,
        hash_seed: u64::from_ne_bytes(random::bytes()?),
    };
    let mut config = core_config(settings);
    config.partitions = partitions;
    let failed = |error: String| format!("the data folder {}: {error}", settings.data_dir.display());
    let mut recovering = Recovering::new(&tree_options, partitions);
    let log = Log::open(&mut disk, &options, &mut recovering).map_err(|error| failed(error.to_string()))?;
    let (recovered, report) = recovering.finish(config.server_id).map_err(failed)?;
    let mark = recovered.first().and_then(|first| first.snapshot.as_ref());
    let stored = |(mark, loaded): (&stoa_core::Mark, &LoadedSnapshot)| StoredSnapshot {
        position: mark.position,
        file: loaded.file.clone(),
    };
    let newest = mark.zip(report.snapshot.as_ref()).map(stored);
    let now = Clock::start().now();
    config.direct_secret = random::bytes()?;
    config.disk = log.folder_id().0;
    let drive = |(partition, recovered)| -> Result<Shard, String> {
        let secret = random::bytes()?;
        let mut config = Config { partition, ..config.clone() };
        if partitions > 1 {
            // The limits on connections hold for all threads together.
            config.limits = Limits { connections: 0, connections_per_address: 0, ..config.limits };
        }
        let shard = Shard::new(config, recovered, secret, now);
        shard.ok_or_else(|| failed("the log contradicts itself: entries are missing".into()))
    };
    let shards: Vec<Shard> = (0..).zip(recovered).map(drive).collect::<Result<_, _>>()?;
    let meeting =
        meeting((settings, tls), shards.first(), &disk, config.disk, (&tree_options, newest, partitions))?;
    Ok(Recovered { partitions: shards, log, disk, report, meeting })
}

/// Notes this start in the data folder, and prepares to meet the other servers, if there are to be any.
fn meeting(
    (settings, tls): (&Settings, Option<PeerTls>),
    first: Option<&Shard>,
    disk: &FileDisk,
    disk_id: [u8; 16],
    (tree_options, newest, partitions): (&TreeOptions, Option<StoredSnapshot>, u8),
) -> Result<Option<(PeerPort, Vec<Meeting>)>, String> {
    let own = if settings.is_reader() { READER_ID } else { settings.server_id.unwrap_or(1) };
    let standing = first.map(|first| first.standing()).unwrap_or_default();
    let status = first.map(|first| first.status());
    let (decides_alone, copied_from) = match status.as_ref().map(|status| &status.voters[..]) {
        // Where a reader's folder is from does not matter: it follows.
        Some(_) if settings.is_reader() => (false, None),
        Some([voter]) => (true, Some(*voter).filter(|voter| *voter != own)),
        _ => (false, None),
    };
    let starts = starts_file::draw(disk.folder(), decides_alone && copied_from.is_none());
    if settings.own_member().is_none() && !settings.is_reader() {
        // Alone it can do without: it may have ended because there is no room.
        _ = starts.inspect_err(|why| tracing::warn!("this start could not be noted: {why}"));
        return Ok(None);
    }
    let starts = starts?;
    let home = Home {
        disk,
        disk_id,
        standing,
        starts,
        decides_alone,
        copied_from,
        tree_options,
        newest,
        partitions,
        tls,
        tag: first.map_or(0, |first| first.tag()),
        site: first.and_then(|first| sites::own_name(first.tree())),
    };
    Meeting::prepare(settings, home).map(Some)
}

fn part(settings: &Settings) -> ServerPart {
    match (settings.is_reader(), settings.join) {
        (true, _) => ServerPart::Reader,
        (_, true) => ServerPart::Joins,
        _ => ServerPart::Member,
    }
}

fn core_config(settings: &Settings) -> Config {
    let millis = |duration: Duration| u32::try_from(duration.as_millis()).unwrap_or(u32::MAX);
    let timeout = |duration: Duration| i32::try_from(duration.as_millis()).unwrap_or(i32::MAX);
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let (min, max) = settings.session_timeouts();
    let per_minute = u64::from(settings.container_max_per_minute);
    let interval_ms = millis(settings.container_check).max(1);
    // At least one each time, unless there are to be none.
    let reaped_max = (per_minute * u64::from(interval_ms) / 60_000).max(per_minute.min(1));
    Config {
        server_id: if settings.is_reader() { READER_ID } else { settings.server_id.unwrap_or(1) },
        tick_ms: millis(settings.tick_time).clamp(1, EXPIRY_GRAIN_MS),
        session_timeout_min_ms: timeout(min),
        session_timeout_max_ms: timeout(max),
        authentication: settings.authentication(),
        reaping: Reaping { interval_ms, max: u32::try_from(reaped_max).unwrap_or(u32::MAX) },
        snapshot_updates: u64::from(settings.snapshot_updates),
        snapshot_log_bytes: if settings.snapshot_log_bytes == 0 {
            u64::MAX
        } else {
            settings.snapshot_log_bytes
        },
        servers: settings.servers.iter().map(|member| format!("{member}\n")).collect(),
        part: part(settings),
        reconfig_enabled: settings.reconfig_enabled,
        read_only_mode: settings.read_only_mode,
        local_sessions: LocalSessions {
            are_made: settings.local_sessions,
            are_upgraded: settings.local_sessions_upgrading,
        },
        balance: settings.balance,
        site: settings.site.as_ref().map(|_| SiteConfig {
            policy: PolicySettings { kind: settings.site_policy, ..PolicySettings::default() },
            automatic_promotion: settings.site_automatic_promotion,
            // A tenth of the way to the next data centre, and most of what streams cost.
            ship_pause_us: 1000,
        }),
        relief: Relief {
            forest: settings.forest().filter(|_| !settings.is_reader()),
            givers: if settings.neighbour_snapshots { Givers::Spare } else { Givers::None },
        },
        heartbeat_ms: millis(settings.heartbeat).max(1),
        election_heartbeats: (millis(settings.election_timeout) / millis(settings.heartbeat).max(1)).max(2),
        limits: Limits {
            frame_bytes: size(settings.max_request_bytes),
            frame_skip_bytes: size(settings.skip_request_bytes),
            connections: settings.max_connections as usize,
            connections_per_address: settings.max_connections_per_address as usize,
            outstanding: settings.max_outstanding.max(1) as usize,
            outstanding_per_connection: settings.max_outstanding_per_connection.max(1) as usize,
            output_pause_bytes: size(settings.write_buffer_bytes),
            output_close_bytes: size(settings.write_buffer_max_bytes),
            handshake_ms: millis(settings.handshake_timeout),
            ..Limits::default()
        },
        stopwatch: Stopwatch(clock::stopwatch_us),
        programs: ProgramLimits {
            programs: settings.max_extensions as usize,
            programs_per_session: settings.max_extensions_per_session as usize,
            of_call: CallLimits {
                source_bytes: size(settings.extension_source_bytes),
                steps: u64::from(settings.extension_steps),
                memory_bytes: settings.extension_memory_bytes,
                ..CallLimits::default()
            },
        },
        ..Config::default()
    }
}

/// Sessions expire on this grain at the coarsest: a long tick is no reason for late expiry.
const EXPIRY_GRAIN_MS: u32 = 500;

fn run(
    lasting: &mut Lasting,
    (process, ports, mut recovered): (Arc<Process>, Ports, Recovered),
    clock: Clock,
    startup: Startup,
    (questions_in, questions): (UnboundedSender<Question>, UnboundedReceiver<Question>),
) -> Result<Option<RoleTurn>, String> {
    let settings = &process.settings;
    tell_audit(&process, Event::Start { is_good: true });
    let count = recovered.partitions.len();
    let durable = recovered.log.position(timeline_of(u8::try_from(count).unwrap_or(u8::MAX)));
    let meter = Arc::new(Mutex::new(recovered.meter()));
    let (events_in, events): (Vec<_>, Vec<_>) = (0..count).map(|_| unbounded_channel()).unzip();
    let reports = Reports(events_in.into());
    let other_sites = Sites::new(settings, recovered.disk.another())?;
    let disk = DiskThreads::start(settings, recovered.log, recovered.disk, &reports, &meter)?;
    let door = Door::new(settings.max_connections as usize, settings.max_connections_per_address as usize);
    let (inboxes_in, inboxes): (Vec<_>, Vec<_>) = (0..count).map(|_| inbox()).unzip();
    let together = Together { inboxes: inboxes_in.into(), door: Arc::new(door), answering: Arc::default() };
    let (port, meetings) = recovered.meeting.take().unzip();
    let mut meetings = meetings.into_iter().flatten();
    let beginnings = recovered.partitions.into_iter().zip(events.into_iter().zip(inboxes));
    let mut beginnings = (0..).zip(beginnings).map(|(partition, (shard, (events, inbox)))| {
        let neighbours = (count > 1).then(|| Neighbours::new(partition, together.clone()));
        let surroundings = Surroundings {
            durable,
            log: disk.log.clone(),
            snapshot: disk.snapshots.clone(),
            meter: Arc::clone(&meter),
            startup,
            reports: reports.clone(),
            partition,
            neighbours,
        };
        let (process, meeting) = (Arc::clone(&process), meetings.next());
        Beginning { shard, clock, process, surroundings, meeting, events, inbox }
    });
    let first = beginnings.next().ok_or("a server has at least one partition")?;
    let mut others = Others::none();
    for beginning in beginnings {
        others.start(beginning).map_err(failed("the thread of a partition"))?;
    }
    let questions = if count > 1 { together.take_questions(questions)? } else { questions };
    let shown = (count > 1).then(|| threads::span(0).entered());
    let tasks = LocalSet::new();
    tasks.spawn_local(standstill::watch(Arc::clone(&process), questions_in));
    let backlog = settings.listen_backlog;
    let Lasting { roles, runtime, signals, has_announced, .. } = lasting;
    let serving = async {
        let operator = Operator::new(signals, roles, has_announced)?;
        let listen = |bound: Option<Bound>| bound.map(|bound| Listener::new(bound, backlog)).transpose();
        let doors = Doors {
            listeners: ports.sockets.listeners(backlog).map_err(failed("the ports"))?,
            own: ports.own,
            secure: listen(ports.secure).map_err(failed("the ports"))?,
            of_sites: listen(ports.of_sites).map_err(failed("the ports"))?,
        };
        partition(first, doors, (questions, operator), (port, other_sites), others).await
    };
    let result = tasks.block_on(runtime, serving);
    // The drivers are gone with their threads' futures, and with them their senders.
    drop((tasks, shown));
    disk.join();
    if matches!(result, Ok(None)) {
        tracing::info!("stopped");
    }
    result
}

fn tell_audit(process: &Process, event: Event) {
    if let Some(audit) = process.audit() {
        audit.tell(event);
    }
}

fn failed(what: &'static str) -> impl FnOnce(std::io::Error) -> String {
    move |error| format!("{what}: {error}")
}

/// The threads of the disk, and where they are asked.
struct DiskThreads {
    log: mpsc::Sender<LogRequest>,
    snapshots: mpsc::Sender<SnapshotRequest>,
    threads: [JoinHandle<()>; 2],
}

impl DiskThreads {
    fn start(
        settings: &Settings,
        log: Log,
        disk: FileDisk,
        reports: &Reports,
        meter: &Arc<Mutex<LogMeter>>,
    ) -> Result<Self, String> {
        let (log_in, log_requests) = mpsc::channel();
        let (snapshots_in, snapshot_requests) = mpsc::channel();
        let snapshot_thread = SnapshotThread {
            disk: disk.another(),
            requests: snapshot_requests,
            reports: reports.clone(),
            log: log_in.clone(),
            meter: Arc::clone(meter),
        };
        let log_thread = LogThread {
            log,
            disk,
            fsync: settings.fsync,
            slow: settings.fsync_warning,
            requests: log_requests,
            reports: reports.clone(),
            meter: Arc::clone(meter),
        };
        let threads = [
            snapshot_thread.spawn().map_err(failed("the snapshot thread"))?,
            log_thread.spawn().map_err(failed("the log thread"))?,
        ];
        Ok(Self { log: log_in, snapshots: snapshots_in, threads })
    }

    /// Waits until they end: when nobody can ask them any more.
    fn join(self) {
        let Self { log, snapshots, threads } = self;
        drop((log, snapshots));
        for thread in threads {
            let _ = thread.join();
        }
    }
}

/// By whom a server that runs is told to stop, and who hears that it serves.
struct Operator<'a> {
    signals: &'a mut Signals,
    roles: &'a mut OwnRoles,
    has_announced: &'a mut bool,
    looks: Interval,
}

impl<'a> Operator<'a> {
    /// Must be called within a runtime.
    fn new(
        signals: &'a mut Option<Signals>,
        roles: &'a mut OwnRoles,
        has_announced: &'a mut bool,
    ) -> Result<Self, String> {
        let signals = match signals {
            Some(signals) => signals,
            None => signals.insert(Signals::listen()?),
        };
        let mut looks = interval(role::LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self { signals, roles, has_announced, looks })
    }

    /// Waits until the process is told something, or the list of servers says that it is to be something else.
    async fn next(&mut self, driver: &Driver, may_turn: bool) -> Told {
        let may_turn = may_turn && self.roles.may_turn();
        loop {
            tokio::select! {
                told = self.signals.next() => return told,
                _ = self.looks.tick(), if may_turn => {
                    let turn = self.roles.look(&driver.server.borrow(), driver.ensemble.get());
                    if let Some(turn) = turn {
                        return Told::Turn(turn);
                    }
                }
            }
        }
    }
}

/// Runs the first partition, and with it the server. Returns what it is to go on as, if it is not to stop.
async fn partition(
    beginning: Beginning,
    Doors { own: ports, listeners, secure, of_sites }: Doors,
    (mut questions, mut operator): (UnboundedReceiver<Question>, Operator<'_>),
    (port, other_sites): (Option<PeerPort>, Option<Rc<Sites>>),
    others: Others,
) -> Result<Option<RoleTurn>, String> {
    let process = Arc::clone(&beginning.process);
    let (stop, stopped) = watch::channel(false);
    let (driver, mut inputs) = beginning.begin()?;
    if let (Some(port), Some(listener)) = (port, &listeners.peers) {
        tokio::task::spawn_local(port.open(Rc::clone(listener)));
    }
    other_sites.into_iter().for_each(|sites| sites.begin(&driver, of_sites.clone(), stopped.clone()));
    let clients = Rc::clone(&listeners.clients);
    let following = tokio::task::spawn_local(ports.follow(listeners, Rc::clone(&driver)));
    let on_port = process.settings.tls_on_port;
    let mut accepting = Some(vec![accept_clients(&driver, Rc::clone(&clients), on_port, stopped.clone())]);
    if let (Some(secure), Some(accepting)) = (&secure, &mut accepting) {
        accepting.push(accept_clients(&driver, Rc::clone(secure), TlsOnPort::Only, stopped));
    }
    let mut acceptors = Vec::new();
    let (began, mut stopping) = (tokio::time::Instant::now(), None::<Stop>);
    let mut turn = None;
    loop {
        // The other partitions say so to the process.
        let is_ready = driver.server.borrow().serves() && process.is_serving();
        // One of several may wait long for the others.
        if is_ready || driver.ensemble.get().is_some() || began.elapsed() >= ACCEPT_TIME {
            acceptors.extend(accepting.take().into_iter().flatten().map(tokio::task::spawn_local));
        }
        if is_ready && !mem::replace(operator.has_announced, true) {
            announce(&clients, secure.as_deref());
        }
        tokio::select! {
            biased;
            taken = inputs.take(&driver) => taken?,
            () = process.turned() => {}
            Some(question) = questions.recv() => question.answer(&mut &*driver),
            told = operator.next(&driver, stopping.is_none()) => match told {
                Told::Reload => reload(Arc::clone(&process)),
                Told::Stop => {
                    turn = None;
                    stopping.get_or_insert_with(Stop::begin);
                }
                Told::Turn(to) => (turn, stopping) = (Some(to), Some(Stop::begin())),
            },
            () = tokio::time::sleep(END_CHECK), if stopping.is_some() => {}
            () = tokio::time::sleep_until(began + ACCEPT_TIME), if accepting.is_some() => {}
        }
        if let Some(stopping) = &mut stopping {
            if process.phase() != Phase::Stopping {
                begin_to_stop(&process, turn.as_ref());
                let _ = stop.send(true);
                accepting = None;
                following.abort();
                clients.close();
                secure.iter().for_each(|secure| secure.close());
                acceptors.iter().for_each(tokio::task::JoinHandle::abort);
                others.settle();
            }
            if stopping.may_end(&driver, &others) {
                return Ok(turn);
            }
        }
    }
}

/// From now on the server stops, to go on as something else if that is said.
fn begin_to_stop(process: &Process, turn: Option<&RoleTurn>) {
    match turn {
        None => tracing::info!("stopping: what is under way is finished first"),
        Some(turn) => tracing::info!(
            "this server is to go on as a {}, as {}; what is under way is finished first",
            turn.name(),
            turn.why()
        ),
    }
    process.set_phase(Phase::Stopping);
    tell_audit(process, Event::Stop);
}

/// A clean stop: what is under way is finished, another server leads, clients are answered and let go.
struct Stop {
    since: Instant,
    has_resigned: bool,
    dismissing_since: Option<Instant>,
}

impl Stop {
    fn begin() -> Self {
        Self { since: Instant::now(), has_resigned: false, dismissing_since: None }
    }

    /// Does what can be done by now, and says whether that was all.
    fn may_end(&mut self, driver: &Driver, others: &Others) -> bool {
        let Some(since) = self.dismissing_since else {
            // While it stands still for an operation over several partitions it cannot.
            self.has_resigned = self.has_resigned || driver.resign();
            // Nothing is acknowledged that is not durable, so stopping early loses nothing.
            let is_settled = self.has_resigned && driver.is_settled() && !driver.is_handing_over();
            if is_settled && others.are_settled() || self.since.elapsed() > STOP_PATIENCE {
                self.dismissing_since = Some(Instant::now());
            }
            return false;
        };
        let at_once = since.elapsed() > ANSWER_PATIENCE;
        let (own_left, others_left) = (driver.dismiss(at_once), others.dismiss(at_once));
        let process = &driver.process;
        let is_said = !process.farewells.are_under_way() && !process.pages.are_under_way();
        own_left && others_left && is_said || since.elapsed() > FAREWELL_PATIENCE
    }
}

/// Accepts connections: all for this thread, or for each thread in turn.
fn accept_clients(
    driver: &Rc<Driver>,
    listener: Rc<Listener>,
    tls: TlsOnPort,
    stopped: watch::Receiver<bool>,
) -> Pin<Box<dyn Future<Output = ()>>> {
    let driver = Rc::clone(driver);
    Box::pin(listen::accept(listener, stopped, move |socket, address| {
        let driver = Rc::clone(&driver);
        async move {
            let Some(accepted) = driver.admit(socket, address, tls).await else { return };
            if driver.surroundings.neighbours.is_none() {
                // With one partition there are no others that a side connection could be for.
                drop(driver.connection(accepted).await);
            } else {
                driver.greet(accepted);
            }
        }
    }))
}

/// The files of certificates may have changed. To open a store can take seconds, and this thread has a partition.
fn reload(process: Arc<Process>) {
    tokio::task::spawn_blocking(move || {
        if let Some(tls) = &process.tls {
            tls.reload();
        }
        if let Some(tls) = &process.peer_tls {
            tls.reload();
        }
        if let Some(tls) = &process.admin_tls {
            tls.reload();
        }
        if process.tls.is_none() && process.peer_tls.is_none() && process.admin_tls.is_none() {
            tracing::info!("nothing is read anew on HUP: there is no TLS");
        }
    });
}

/// The one line on standard output: clients are accepted now.
fn announce(clients: &Listener, secure: Option<&Listener>) {
    let Some(address) = clients.address() else { return };
    let secure = secure.and_then(Listener::address);
    let secure = secure.map(|address| format!(", and with TLS on {address}")).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    // Whoever started us may not listen; the server runs all the same.
    let _ = writeln!(out, "stoa is ready for clients on {address}{secure}");
    let _ = out.flush();
}

/// As many descriptors as the system allows: each connection takes one.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
