//! The table of settings. Each setting is written down once, here; flags, environment variables, the
//! configuration file, `zoo.cfg`, the help text and the documentation are made from it.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use super::kind::{
    Address, Bytes, Count, Credential, DigestHash, File, Flag, Folder, Hosts, Kind, LogFormat, LogLevel,
    Maybe, Port, Secret, Time, Words,
};
use super::member::{Member, Members, ServerId};
use super::partitions::{PartitionCount, Partitions};
use super::reading::Reading;
use stoa_core::DigestAlgorithm;

use crate::words::Word;

/// One row of the table of settings.
pub struct Setting {
    /// The name in the configuration file and of the flag, such as `data-dir`.
    pub key: &'static str,
    /// The environment variable, such as `STOA_DATA_DIR`.
    pub environment: &'static str,
    /// One sentence for people.
    pub help: &'static str,
    /// The default, as it would be written; empty if there is none.
    pub default: &'static str,
    /// Stands for the value in the help text.
    pub placeholder: &'static str,
    /// What the value has to look like.
    pub expected: &'static str,
    /// The keys of a `zoo.cfg` that mean the same, and how their values are read.
    pub(super) zoo: &'static [(&'static str, Reading)],
    /// Whether its value must not be shown.
    is_secret: bool,
    /// Reads a value into the settings; false if it is not of the right kind.
    set: fn(&mut Settings, &str) -> bool,
    /// Writes the value that the settings hold.
    get: fn(&Settings) -> String,
}

impl Setting {
    /// Reads a value into the settings; false if it is not of the right kind.
    #[must_use]
    pub fn set(&self, settings: &mut Settings, text: &str) -> bool {
        (self.set)(settings, text)
    }

    /// Whether it takes yes or no, so that its flag needs no value.
    pub(super) fn is_flag(&self) -> bool {
        self.expected == Flag::EXPECTED
    }

    /// Whether its value must not be shown.
    pub fn is_secret(&self) -> bool {
        self.is_secret
    }

    /// The value that the settings hold, written as it would be read.
    pub fn get(&self, settings: &Settings) -> String {
        (self.get)(settings)
    }
}

macro_rules! settings {
    ($(
        #[doc = $help:literal]
        $field:ident: $type:ty = $key:literal $environment:literal $kind:ty, $default:literal,
            zoo [$($zoo:literal $reading:expr),*];
    )+) => {
        /// What a server runs with: every setting, with defaults filled in.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Settings {
            $(#[doc = $help] pub $field: $type,)+
        }

        impl Default for Settings {
            fn default() -> Self {
                Settings {
                    $($field: <$kind>::parse($default).expect("defaults are of their own kind"),)+
                }
            }
        }

        /// Every setting there is, in the order of the documentation.
        pub const SETTINGS: &[Setting] = &[$(
            Setting {
                key: $key,
                environment: $environment,
                help: $help,
                default: $default,
                placeholder: <$kind>::PLACEHOLDER,
                expected: <$kind>::EXPECTED,
                zoo: &[$(($zoo, $reading)),*],
                is_secret: <$kind>::IS_SECRET,
                set: |settings, text| match <$kind>::parse(text) {
                    Some(value) => {
                        settings.$field = value;
                        true
                    }
                    None => false,
                },
                get: |settings| <$kind>::show(&settings.$field),
            },
        )+];
    };
}

settings! {
    /// The folder that holds the log and the snapshots.
    data_dir: PathBuf = "data-dir" "STOA_DATA_DIR" Folder, "./stoa-data", zoo ["dataDir" Reading::Path];
    /// Whether to make the data folder when it is missing; if not, a missing or empty folder is an error, so that a lost disk is not taken for a new server.
    create_data_dir: bool = "create-data-dir" "STOA_CREATE_DATA_DIR" Flag, "true", zoo ["datadir.autocreate" Reading::True, "db.autocreate" Reading::True];
    /// How many partitions the tree is spread over, each executed by a thread of its own, 1 to 64, or `auto` for as many as there are cores; fixed when the data folder is made, and by default what that has, or 1. All servers of an ensemble have the same number.
    partitions: Option<Partitions> = "partitions" "STOA_PARTITIONS" Maybe<PartitionCount>, "", zoo ["partitions" Reading::Own];
    /// Whether subtrees are moved between partitions so that all have about as much to do; what the operator says in `/zookeeper/partitions` is done either way.
    balance: bool = "balance" "STOA_BALANCE" Flag, "true", zoo [];
    /// The port for clients and four-letter words; 0 lets the system choose one.
    port: u16 = "port" "STOA_PORT" Port, "2181", zoo ["clientPort" Reading::PORT];
    /// The address to listen on for clients; `::` is every address of the machine, IPv4 and IPv6.
    bind: IpAddr = "bind" "STOA_BIND" Address, "::", zoo ["clientPortAddress" Reading::Address];
    /// How many connections may wait to be accepted.
    listen_backlog: u32 = "listen-backlog" "STOA_LISTEN_BACKLOG" Count, "1024", zoo ["clientPortListenBacklog" Reading::BACKLOG];
    /// The port for admin HTTP and `/metrics`; 0 switches it off.
    admin_port: u16 = "admin-port" "STOA_ADMIN_PORT" Port, "8080", zoo ["admin.serverPort" Reading::PORT_PROPERTY];
    /// The address to listen on for admin HTTP; by default 127.0.0.1, which only programs on this machine reach; `::` is every address of the machine, IPv4 and IPv6.
    admin_bind: Option<IpAddr> = "admin-bind" "STOA_ADMIN_BIND" Maybe<Address>, "", zoo ["admin.serverAddress" Reading::Address];
    /// Names of this server by which admin HTTP may be asked, with commas between them, besides `localhost`, the name of the machine and that in `servers`; `*` is every name. An IP address always will do.
    admin_hosts: Vec<String> = "admin-hosts" "STOA_ADMIN_HOSTS" Hosts, "", zoo [];
    /// A second port that answers `/metrics` only, as ZooKeeper's Prometheus provider does; 0 switches it off. It is on the address in `admin-bind`, and without that where clients connect.
    metrics_port: u16 = "metrics-port" "STOA_METRICS_PORT" Port, "0", zoo ["metricsProvider.httpPort" Reading::PORT];
    /// The servers of the ensemble, this one among them, each as `ID=HOST:PEERPORT[:ELECTIONPORT][:ROLE][;[CLIENTADDRESS:]CLIENTPORT]`, the role `participant` or `observer`; none is a server that stands alone.
    servers: Vec<Member> = "servers" "STOA_SERVERS" Members, "", zoo ["server.N" Reading::Server];
    /// The id of this server, 0 to 255, and 255 only without `extended-types`; by default what the file `myid` in the data folder says, and without one that of the only one of the servers that is called as this host.
    server_id: Option<u8> = "server-id" "STOA_SERVER_ID" Maybe<ServerId>, "", zoo [];
    /// Whether a server whose data folder holds nothing waits for others whose ensemble it is to join, whatever `servers` says; without effect when the folder holds something.
    join: bool = "join" "STOA_JOIN" Flag, "false", zoo [];
    /// Whether clients may change the list of servers with reconfig; they need the permission to write /zookeeper/config besides.
    reconfig_enabled: bool = "reconfig-enabled" "STOA_RECONFIG_ENABLED" Flag, "false", zoo ["reconfigEnabled" Reading::Strict];
    /// The address to listen on for the other servers; `::` is every address of the machine, IPv4 and IPv6.
    peer_bind: IpAddr = "peer-bind" "STOA_PEER_BIND" Address, "::", zoo [];
    /// The secret with which the servers of an ensemble prove themselves to each other, the same on all of them.
    peer_secret: Option<String> = "peer-secret" "STOA_PEER_SECRET" Maybe<Secret>, "", zoo [];
    /// A file with the secret on its one line, in place of `peer-secret`.
    peer_secret_file: Option<PathBuf> = "peer-secret-file" "STOA_PEER_SECRET_FILE" Maybe<File>, "", zoo [];
    /// This server's certificate for TLS between servers, with those that lead to the authority, in PEM.
    peer_tls_certificate: Option<PathBuf> = "peer-tls-certificate" "STOA_PEER_TLS_CERTIFICATE" Maybe<File>, "", zoo [];
    /// The private key of that certificate, in PEM and not encrypted.
    peer_tls_key: Option<PathBuf> = "peer-tls-key" "STOA_PEER_TLS_KEY" Maybe<File>, "", zoo [];
    /// The certificates of the authority that must have signed those of the other servers, in PEM.
    peer_tls_authority: Option<PathBuf> = "peer-tls-authority" "STOA_PEER_TLS_AUTHORITY" Maybe<File>, "", zoo [];
    /// How often a leader lets the other servers hear of it.
    heartbeat: Duration = "heartbeat" "STOA_HEARTBEAT" Time, "100ms", zoo [];
    /// How long the servers hear nothing of a leader before they elect another; at least four heartbeats.
    election_timeout: Duration = "election-timeout" "STOA_ELECTION_TIMEOUT" Time, "1s", zoo [];
    /// Whether a server that knows of no leader answers reads of clients that have said that this will do (`canBeReadOnly`, `read_only`); it is then behind the others, if they have a majority, and the word isro is answered.
    read_only_mode: bool = "read-only-mode" "STOA_READ_ONLY_MODE" Flag, "false", zoo ["readonlymode.enabled" Reading::True];
    /// Whether a new session is a local one, which the server that it is opened at keeps by itself: that costs the ensemble no write, and the session ends with that server. A server that stands alone, or has several partitions, makes none.
    local_sessions: bool = "local-sessions" "STOA_LOCAL_SESSIONS" Flag, "false", zoo ["localSessionsEnabled" Reading::Strict];
    /// Whether a local session becomes one of the whole ensemble when it creates an ephemeral znode or has to do with extensions; otherwise that is refused.
    local_sessions_upgrading: bool = "local-sessions-upgrading" "STOA_LOCAL_SESSIONS_UPGRADING" Flag, "false", zoo ["localSessionsUpgradingEnabled" Reading::Strict];
    /// The unit that session timeouts are bounded in, and the grain at which sessions expire.
    tick_time: Duration = "tick-time" "STOA_TICK_TIME" Time, "3s", zoo ["tickTime" Reading::TICK];
    /// The shortest session timeout that a client can have; by default two ticks.
    min_session_timeout: Option<Duration> = "min-session-timeout" "STOA_MIN_SESSION_TIMEOUT" Maybe<Time>, "", zoo ["minSessionTimeout" Reading::SESSION_TIMEOUT];
    /// The longest session timeout that a client can have; by default twenty ticks.
    max_session_timeout: Option<Duration> = "max-session-timeout" "STOA_MAX_SESSION_TIMEOUT" Maybe<Time>, "", zoo ["maxSessionTimeout" Reading::SESSION_TIMEOUT];
    /// How many connections one client address may have; 0 is no limit.
    max_connections_per_address: u32 = "max-connections-per-address" "STOA_MAX_CONNECTIONS_PER_ADDRESS" Count, "60", zoo ["maxClientCnxns" Reading::CONNECTIONS_PER_ADDRESS];
    /// How many connections the server takes in total; 0 is no limit.
    max_connections: u32 = "max-connections" "STOA_MAX_CONNECTIONS" Count, "0", zoo ["maxCnxns" Reading::CONNECTIONS];
    /// The longest request that is taken; ZooKeeper calls it jute.maxbuffer, and clients have the same limit for replies.
    max_request_bytes: u64 = "max-request-bytes" "STOA_MAX_REQUEST_BYTES" Bytes, "1048575", zoo ["jute.maxbuffer" Reading::FRAME];
    /// A longer request, up to this length, is passed over and answered with MarshallingError; beyond it, or with 0 always, the connection is closed, as ZooKeeper does.
    skip_request_bytes: u64 = "skip-request-bytes" "STOA_SKIP_REQUEST_BYTES" Bytes, "64MiB", zoo [];
    /// How many requests of all clients may be under way before the server reads no more from any of them.
    max_outstanding: u32 = "max-outstanding" "STOA_MAX_OUTSTANDING" Count, "16384", zoo ["globalOutstandingLimit" Reading::OUTSTANDING];
    /// How many requests of one connection may be under way before the server reads no more from it.
    max_outstanding_per_connection: u32 = "max-outstanding-per-connection" "STOA_MAX_OUTSTANDING_PER_CONNECTION" Count, "2048", zoo [];
    /// How many bytes of replies may wait for a client before the server reads no more from it.
    write_buffer_bytes: u64 = "write-buffer-bytes" "STOA_WRITE_BUFFER_BYTES" Bytes, "1MiB", zoo [];
    /// How many bytes of replies and watch events may wait for a client that does not read before it is disconnected.
    write_buffer_max_bytes: u64 = "write-buffer-max-bytes" "STOA_WRITE_BUFFER_MAX_BYTES" Bytes, "128MiB", zoo [];
    /// How long a connection may go without finishing its handshake.
    handshake_timeout: Duration = "handshake-timeout" "STOA_HANDSHAKE_TIMEOUT" Time, "10s", zoo ["nio.sessionlessCnxnTimeout" Reading::HANDSHAKE];
    /// A snapshot is taken after this many updates, and at least as many bytes of log as the znodes have.
    snapshot_updates: u32 = "snapshot-updates" "STOA_SNAPSHOT_UPDATES" Count, "100000", zoo ["snapCount" Reading::SNAPSHOT_UPDATES];
    /// A snapshot is taken after this many bytes of log; 0 is no limit.
    snapshot_log_bytes: u64 = "snapshot-log-bytes" "STOA_SNAPSHOT_LOG_BYTES" Bytes, "4GiB", zoo ["snapSizeLimitInKb" Reading::SNAPSHOT_SIZE];
    /// How many snapshots are kept, with the log from the oldest of them on; at least 1.
    snapshots_kept: u32 = "snapshots-kept" "STOA_SNAPSHOTS_KEPT" Count, "3", zoo ["autopurge.snapRetainCount" Reading::SNAPSHOTS_KEPT];
    /// How long a segment of the log gets before the next one is begun.
    segment_bytes: u64 = "segment-bytes" "STOA_SEGMENT_BYTES" Bytes, "64MiB", zoo ["txnLogSizeLimitInKb" Reading::LOG_SIZE];
    /// Whether updates are on disk before they are acknowledged; without it a power failure loses acknowledged updates.
    fsync: bool = "fsync" "STOA_FSYNC" Flag, "true", zoo ["forceSync" Reading::FORCE_SYNC];
    /// A flush of the log that takes longer than this is logged as a warning.
    fsync_warning: Duration = "fsync-warning" "STOA_FSYNC_WARNING" Time, "1s", zoo ["fsync.warningthresholdms" Reading::FSYNC_WARNING];
    /// Which four-letter words are answered, `*` for all; srvr always is.
    words: Vec<Word> = "words" "STOA_WORDS" Words, "srvr", zoo ["4lw.commands.whitelist" Reading::Words];
    /// The super user, who passes every ACL, as `super:base64(hash(super:password))`.
    super_digest: Option<String> = "super-digest" "STOA_SUPER_DIGEST" Maybe<Credential>, "", zoo ["DigestAuthenticationProvider.superDigest" Reading::Digest];
    /// The hash of the digest scheme.
    digest_algorithm: DigestAlgorithm = "digest-algorithm" "STOA_DIGEST_ALGORITHM" DigestHash, "SHA1", zoo ["DigestAuthenticationProvider.digestAlg" Reading::Hash];
    /// Whether ACLs are ignored: everybody may do everything.
    skip_acl: bool = "skip-acl" "STOA_SKIP_ACL" Flag, "false", zoo ["skipACL" Reading::SKIP_ACL];
    /// Whether a write beyond a hard quota is refused; without it quotas only warn.
    enforce_quota: bool = "enforce-quota" "STOA_ENFORCE_QUOTA" Flag, "false", zoo ["enforceQuota" Reading::True];
    /// Whether clients may make TTL znodes.
    extended_types: bool = "extended-types" "STOA_EXTENDED_TYPES" Flag, "true", zoo ["extendedTypesEnabled" Reading::True];
    /// How many extensions may be registered in all; with 0 none can be.
    max_extensions: u32 = "max-extensions" "STOA_MAX_EXTENSIONS" Count, "100", zoo [];
    /// How many extensions one session may have registered.
    max_extensions_per_session: u32 = "max-extensions-per-session" "STOA_MAX_EXTENSIONS_PER_SESSION" Count, "20", zoo [];
    /// How long the source of an extension may be.
    extension_source_bytes: u64 = "extension-source-bytes" "STOA_EXTENSION_SOURCE_BYTES" Bytes, "16KiB", zoo [];
    /// How many steps one call of an extension may take, see docs/extensions.md.
    extension_steps: u32 = "extension-steps" "STOA_EXTENSION_STEPS" Count, "10000", zoo [];
    /// How much one call of an extension may allocate in all.
    extension_memory_bytes: u64 = "extension-memory-bytes" "STOA_EXTENSION_MEMORY_BYTES" Bytes, "2MiB", zoo [];
    /// How often empty container znodes and TTL znodes that are due are looked for.
    container_check: Duration = "container-check" "STOA_CONTAINER_CHECK" Time, "1m", zoo ["znode.container.checkIntervalMs" Reading::CONTAINER_CHECK];
    /// How many container and TTL znodes are deleted a minute at most.
    container_max_per_minute: u32 = "container-max-per-minute" "STOA_CONTAINER_MAX_PER_MINUTE" Count, "10000", zoo ["znode.container.maxPerMinute" Reading::CONTAINERS_PER_MINUTE];
    /// A container that never had a child is deleted after this time; 0 leaves it.
    container_unused: Duration = "container-unused" "STOA_CONTAINER_UNUSED" Time, "0", zoo ["znode.container.maxNeverUsedIntervalMs" Reading::CONTAINER_UNUSED];
    /// How much is logged, to standard error; STOA_LOG takes filters by module too.
    log_level: LogLevel = "log-level" "STOA_LOG_LEVEL" LogLevel, "info", zoo [];
    /// How log lines look.
    log_format: LogFormat = "log-format" "STOA_LOG_FORMAT" LogFormat, "text", zoo [];
}

impl Settings {
    /// The bounds of a session timeout: two and twenty ticks unless they are set.
    pub fn session_timeouts(&self) -> (Duration, Duration) {
        (
            self.min_session_timeout.unwrap_or(self.tick_time * 2),
            self.max_session_timeout.unwrap_or(self.tick_time * 20),
        )
    }

    /// Where admin HTTP listens: unless it is said, on this machine alone. It tells paths and session ids to whoever
    /// asks.
    pub fn admin_address(&self) -> IpAddr {
        self.admin_bind.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// Where `/metrics` has a port of its own: that tells figures only.
    pub fn metrics_address(&self) -> IpAddr {
        self.admin_bind.unwrap_or(self.bind)
    }

    /// This server among those of its ensemble; none if it stands alone.
    pub fn own_member(&self) -> Option<&Member> {
        self.servers.iter().find(|member| Some(member.id) == self.server_id)
    }

    /// How many partitions there are, once that is settled.
    pub fn partition_count(&self) -> u8 {
        match self.partitions {
            Some(Partitions::Exactly(number)) => number,
            Some(Partitions::Auto) | None => 1,
        }
    }

    /// Whether a four-letter word is answered.
    pub fn allows(&self, word: Word) -> bool {
        // Start scripts of ZooKeeper depend on srvr, so that it cannot be switched off there either.
        // With isro clients look for a server that does more than read.
        word == Word::Srvr || (word == Word::Isro && self.read_only_mode) || self.words.contains(&word)
    }
}
