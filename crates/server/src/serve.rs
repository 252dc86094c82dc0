//! Starting and stopping: recovery, threads, signals.

use std::io::Write;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use stoa_core::{Config, Limits, Server, TIMELINE};
use stoa_storage::{FolderId, Log, Options as LogOptions};
use stoa_tree::Options as TreeOptions;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::LocalSet;

use crate::clock::{self, Clock};
use crate::config::{MemberRole, Settings};
use crate::driver::{Driver, Surroundings, accept};
use crate::ensemble::{Meeting, StoredSnapshot};
use crate::file_disk::FileDisk;
use crate::log_thread::{DiskEvent, LogThread};
use crate::meter::{LogMeter, snapshot_bytes};
use crate::process::{Phase, Process};
use crate::recovery::{Recovering, RestoreReport};
use crate::snapshot_thread::SnapshotThread;
use crate::view::{Question, Startup};
use crate::{admin, listen, random};

/// How long a clean stop waits for what is under way.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// Serves until told to stop. `Err` says what an operator must know.
pub(crate) fn serve(settings: Settings) -> Result<(), String> {
    let began = Instant::now();
    raise_descriptor_limit();
    let disk = FileDisk::open(&settings.data_dir).map_err(|error| error.to_string())?;
    // Bound before the recovery, so that a port that is taken is found out at once; nobody is
    // accepted until the state is there.
    let (bind, port) = (settings.bind, settings.port);
    let listener = listen::bind(bind, port, settings.listen_backlog).map_err(|error| {
        format!("cannot listen for clients on {bind} port {port}: {error} (settings bind and port)")
    })?;
    let address = listener.local_addr().map_err(|error| format!("the client port: {error}"))?;
    let process = Arc::new(Process::new(settings, address.port()));
    // From now on, so that it can be seen that the server is up but not ready.
    let (questions_in, questions) = unbounded_channel();
    admin::start(&process, questions_in);
    let peer_listener = Meeting::listen(&process.settings)?;
    let recovered = recover(&process.settings, disk, peer_listener)?;
    let clock = Clock::start();
    let total_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let startup = Startup {
        total_ms,
        snapshot_ms: recovered.report.snapshot_ms,
        replay_ms: total_ms - recovered.report.snapshot_ms.min(total_ms),
        updates_replayed: recovered.report.updates,
    };
    tracing::info!(
        "data folder {}: {} znodes, {} sessions, zxid {:#x}, ready after {total_ms} ms",
        process.data_dir.display(),
        recovered.server.tree().znode_count(),
        recovered.server.session_count(),
        recovered.server.tree().last_zxid(),
    );
    run(process, listener, recovered, clock, startup, questions)
}

struct Recovered {
    server: Server,
    log: Log,
    disk: FileDisk,
    report: RestoreReport,
    meeting: Option<Meeting>,
}

impl Recovered {
    /// What is known of the disk before anything is written to it.
    fn meter(&mut self) -> LogMeter {
        LogMeter {
            log_bytes: self.log.stats().bytes,
            position: self.log.position(TIMELINE),
            snapshot_bytes: snapshot_bytes(&mut self.disk),
            snapshot_zxid: self.report.snapshot.as_ref().map(|snapshot| snapshot.zxid),
            snapshot_wall_ms: self.report.snapshot.as_ref().map_or(0, |snapshot| snapshot.created_ms),
            ..LogMeter::default()
        }
    }
}

fn recover(
    settings: &Settings,
    mut disk: FileDisk,
    peer_listener: Option<std::net::TcpListener>,
) -> Result<Recovered, String> {
    let options = LogOptions {
        segment_bytes: settings.segment_bytes,
        snapshots_kept: settings.snapshots_kept.max(1) as usize,
        must_exist: !settings.create_data_dir,
        new_folder_id: FolderId(random::bytes()?),
        now_ms: clock::wall_ms(),
        ..LogOptions::default()
    };
    let tree_options = TreeOptions {
        enforce_quota: settings.enforce_quota,
        skip_acl: settings.skip_acl,
        extended_types: settings.extended_types,
        unused_container_ms: i64::try_from(settings.container_unused.as_millis()).unwrap_or(0),
        hash_seed: u64::from_ne_bytes(random::bytes()?),
        ..TreeOptions::default()
    };
    let config = core_config(settings);
    let failed = |error: String| format!("the data folder {}: {error}", settings.data_dir.display());
    let participants = settings.servers.iter().filter(|member| member.role == MemberRole::Participant);
    let mut voters: Vec<_> = participants.map(|member| member.id).collect();
    if settings.join {
        voters.clear();
    } else if voters.is_empty() {
        voters.push(u64::from(config.server_id));
    }
    let mut recovering = Recovering::new(tree_options.clone(), &voters);
    let log = Log::open(&mut disk, &options, &mut recovering).map_err(|error| failed(error.to_string()))?;
    let (recovered, report) = recovering.finish(config.server_id).map_err(failed)?;
    let newest = recovered
        .snapshot
        .as_ref()
        .zip(report.snapshot.as_ref())
        .map(|(mark, loaded)| StoredSnapshot { position: mark.position, file: loaded.file.clone() });
    let now = Clock::start().now();
    let server = Server::new(config, recovered, random::bytes()?, now)
        .ok_or_else(|| failed("the log contradicts itself: entries are missing".into()))?;
    let meeting = peer_listener.map(|listener| Meeting {
        listener,
        disk: disk.another(),
        disk_id: log.folder_id().0,
        tree_options,
        newest,
    });
    Ok(Recovered { server, log, disk, report, meeting })
}

fn core_config(settings: &Settings) -> Config {
    let millis = |duration: Duration| u32::try_from(duration.as_millis()).unwrap_or(u32::MAX);
    let timeout = |duration: Duration| i32::try_from(duration.as_millis()).unwrap_or(i32::MAX);
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let (min, max) = settings.session_timeouts();
    let per_minute = u64::from(settings.container_max_per_minute);
    let reap_interval_ms = millis(settings.container_check).max(1);
    Config {
        server_id: settings.server_id.and_then(|id| u8::try_from(id).ok()).unwrap_or(1),
        tick_ms: millis(settings.tick_time).clamp(1, EXPIRY_GRAIN_MS),
        session_timeout_min_ms: timeout(min),
        session_timeout_max_ms: timeout(max),
        digest: settings.digest_algorithm,
        super_digest: settings.super_digest.clone(),
        reap_interval_ms,
        reap_max: u32::try_from((per_minute * u64::from(reap_interval_ms) / 60_000).max(1))
            .unwrap_or(u32::MAX),
        snapshot_updates: u64::from(settings.snapshot_updates),
        snapshot_log_bytes: if settings.snapshot_log_bytes == 0 {
            u64::MAX
        } else {
            settings.snapshot_log_bytes
        },
        servers: settings.servers.iter().map(|member| format!("{member}\n")).collect(),
        reconfig_enabled: settings.reconfig_enabled,
        read_only_mode: settings.read_only_mode,
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
        ..Config::default()
    }
}

/// Sessions expire on this grain at the coarsest: a long tick is no reason for late expiry.
const EXPIRY_GRAIN_MS: u32 = 500;

fn run(
    process: Arc<Process>,
    listener: std::net::TcpListener,
    mut recovered: Recovered,
    clock: Clock,
    startup: Startup,
    questions: UnboundedReceiver<Question>,
) -> Result<(), String> {
    let settings = &process.settings;
    let failed = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
    let meter = Arc::new(Mutex::new(recovered.meter()));
    let durable = recovered.log.position(TIMELINE);
    let (events_in, events) = unbounded_channel();
    let (log_in, log_requests) = mpsc::channel();
    let (snapshot_in, snapshot_requests) = mpsc::channel();
    let snapshot_thread = SnapshotThread {
        disk: recovered.disk.another(),
        requests: snapshot_requests,
        events: events_in.clone(),
        log: log_in.clone(),
        meter: Arc::clone(&meter),
    }
    .spawn()
    .map_err(failed("the snapshot thread"))?;
    let log_thread = LogThread {
        log: recovered.log,
        disk: recovered.disk,
        fsync: settings.fsync,
        slow: settings.fsync_warning,
        requests: log_requests,
        events: events_in.clone(),
        meter: Arc::clone(&meter),
    }
    .spawn()
    .map_err(failed("the log thread"))?;
    let disk_events = events_in;

    let meeting = recovered.meeting.take().map(|meeting| (meeting, disk_events.clone()));
    let driver = Driver::new(
        recovered.server,
        clock,
        Arc::clone(&process),
        Surroundings { durable, log: log_in, snapshot: snapshot_in, meter, startup, failed: disk_events },
    );
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed("the runtime"))?;
    let result =
        LocalSet::new().block_on(&runtime, partition(driver, process, listener, events, questions, meeting));
    // The driver is gone with its future, and with it the senders: the disk's threads end.
    drop(runtime);
    let _ = snapshot_thread.join();
    let _ = log_thread.join();
    if result.is_ok() {
        tracing::info!("stopped");
    }
    result
}

async fn partition(
    driver: Rc<Driver>,
    process: Arc<Process>,
    listener: std::net::TcpListener,
    mut events: UnboundedReceiver<DiskEvent>,
    mut questions: UnboundedReceiver<Question>,
    meeting: Option<(Meeting, UnboundedSender<DiskEvent>)>,
) -> Result<(), String> {
    let listener = TcpListener::from_std(listener).map_err(|error| format!("the client port: {error}"))?;
    let address = listener.local_addr().map_err(|error| format!("the client port: {error}"))?;
    let (stop, stopped) = watch::channel(false);

    let (peer_events_in, mut peer_events) = unbounded_channel();
    if let Some((meeting, disk_events)) = meeting {
        let ensemble = {
            let server = driver.server.borrow();
            meeting.begin(&process.settings, server.changed_servers(), disk_events, peer_events_in)?
        };
        let _ = driver.ensemble.set(ensemble);
    }
    driver.after_input();
    tokio::task::spawn_local(Rc::clone(&driver).feed_log());
    tokio::task::spawn_local(Rc::clone(&driver).feed_snapshot());
    tokio::task::spawn_local(Rc::clone(&driver).keep_time());
    let mut accepting = Some({
        let driver = Rc::clone(&driver);
        accept(listener, stopped, move |socket, address| Rc::clone(&driver).connection(socket, address))
    });
    let mut acceptor = None;

    let mut terminate = signal(tokio::signal::unix::SignalKind::terminate())?;
    let mut interrupt = signal(tokio::signal::unix::SignalKind::interrupt())?;
    let mut patience = None;
    let mut announced = false;
    loop {
        let is_ready = driver.server.borrow().serves();
        // A server alone is ready in a moment. One of several may wait long for the others, and says so
        // to whoever asks.
        if is_ready || driver.ensemble.get().is_some() {
            acceptor = acceptor.or_else(|| accepting.take().map(tokio::task::spawn_local));
        }
        if !announced && is_ready {
            announced = true;
            announce(address);
        }
        tokio::select! {
            biased;
            event = events.recv() => {
                let mut event = Some(event.ok_or("the log's thread has ended")?);
                while let Some(next) = event {
                    driver.disk_event(next)?;
                    event = events.try_recv().ok();
                }
                driver.after_input();
            }
            // Alone nobody tells: then this never comes.
            Some(event) = peer_events.recv() => {
                let mut event = Some(event);
                while let Some(next) = event {
                    driver.peer_event(next)?;
                    event = peer_events.try_recv().ok();
                }
                driver.after_input();
            }
            // Without admin HTTP nobody asks: then this never comes.
            Some(question) = questions.recv() => question.answer(&mut &*driver),
            _ = terminate.recv(), if patience.is_none() => patience = Some(Instant::now()),
            _ = interrupt.recv(), if patience.is_none() => patience = Some(Instant::now()),
            () = tokio::time::sleep(Duration::from_millis(10)), if patience.is_some() => {}
        }
        if let Some(since) = patience {
            if process.phase() != Phase::Stopping {
                tracing::info!("stopping: what is under way is finished first");
                process.set_phase(Phase::Stopping);
                let _ = stop.send(true);
                if let Some(acceptor) = &acceptor {
                    acceptor.abort();
                }
                driver.resign();
            }
            // Nothing is acknowledged that is not durable, so stopping early loses nothing.
            if (driver.is_settled() && !driver.is_handing_over()) || since.elapsed() > STOP_PATIENCE {
                return Ok(());
            }
        }
    }
}

fn signal(kind: tokio::signal::unix::SignalKind) -> Result<tokio::signal::unix::Signal, String> {
    tokio::signal::unix::signal(kind).map_err(|error| format!("signals: {error}"))
}

/// The one line on standard output: clients are accepted now.
fn announce(address: SocketAddr) {
    let mut out = std::io::stdout().lock();
    // Whoever started us may not listen; the server runs all the same.
    let _ = writeln!(out, "stoa is ready for clients on {address}");
    let _ = out.flush();
}

/// As many descriptors as the system allows: each connection takes one.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
