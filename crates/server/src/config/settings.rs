//! The table of settings. Each setting is written down once, here; flags, environment variables, the
//! configuration file, `zoo.cfg`, the help text and the documentation are made from it.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use super::kind::{
    Address, AuditFull, Bytes, ClientCertificates, Count, Credential, DigestHash, File, Flag, Folder, Hosts,
    Kind, LogFormat, LogLevel, Maybe, NameList, Port, Secret, Text, Time, TlsOnPort, Words,
};
use super::member::{Member, Members, ServerId};
use super::partitions::{PartitionCount, Partitions};
use super::reader::{ParentAddress, Parents};
use super::reading::Reading;
use super::site::{SiteAddresses, SiteList, SiteName, SitePolicy};
use stoa_core::{DigestAlgorithm, ForestConfig, PolicyKind};

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
    /// Whether clients connect to `port` with TLS: `no`, `also` beside those without, by the first byte that each sends, or `only`.
    tls_on_port: TlsOnPort = "tls-on-port" "STOA_TLS_ON_PORT" TlsOnPort, "no", zoo ["client.portUnification" Reading::ALSO];
    /// A second port for clients, where all have TLS; 0 is none.
    secure_port: u16 = "secure-port" "STOA_SECURE_PORT" Port, "0", zoo ["secureClientPort" Reading::PORT];
    /// The address to listen on at `secure-port`; by default that of `bind`.
    secure_bind: Option<IpAddr> = "secure-bind" "STOA_SECURE_BIND" Maybe<Address>, "", zoo ["secureClientPortAddress" Reading::Address];
    /// The certificate that is shown to clients, with those that lead to its authority, and its key: a file in PEM, PKCS12 or JKS.
    tls_certificate: Option<PathBuf> = "tls-certificate" "STOA_TLS_CERTIFICATE" Maybe<File>, "", zoo ["ssl.keyStore.location" Reading::Path];
    /// The private key of that certificate in PEM, where it has a file of its own.
    tls_key: Option<PathBuf> = "tls-key" "STOA_TLS_KEY" Maybe<File>, "", zoo [];
    /// The password of the key, or of the store that it is in.
    tls_password: Option<String> = "tls-password" "STOA_TLS_PASSWORD" Maybe<Secret>, "", zoo ["ssl.keyStore.password" Reading::Own];
    /// A file with that password on its one line, in place of `tls-password`.
    tls_password_file: Option<PathBuf> = "tls-password-file" "STOA_TLS_PASSWORD_FILE" Maybe<File>, "", zoo ["ssl.keyStore.passwordPath" Reading::Path];
    /// The certificates of the authorities that clients' certificates come from, or those certificates themselves: a file in PEM, PKCS12 or JKS.
    tls_authority: Option<PathBuf> = "tls-authority" "STOA_TLS_AUTHORITY" Maybe<File>, "", zoo ["ssl.trustStore.location" Reading::Path];
    /// The password of the store with the authorities.
    tls_authority_password: Option<String> = "tls-authority-password" "STOA_TLS_AUTHORITY_PASSWORD" Maybe<Secret>, "", zoo ["ssl.trustStore.password" Reading::Own];
    /// A file with that password on its one line, in place of `tls-authority-password`.
    tls_authority_password_file: Option<PathBuf> = "tls-authority-password-file" "STOA_TLS_AUTHORITY_PASSWORD_FILE" Maybe<File>, "", zoo ["ssl.trustStore.passwordPath" Reading::Path];
    /// Whether a client with TLS has to show a certificate: `need`; may: `want`; or is not asked: `none`.
    tls_client_certificates: ClientCertificates = "tls-client-certificates" "STOA_TLS_CLIENT_CERTIFICATES" ClientCertificates, "need", zoo ["ssl.clientAuth" Reading::ClientAuth];
    /// A file in PEM with the lists of certificates that the authorities have revoked.
    tls_revoked: Option<PathBuf> = "tls-revoked" "STOA_TLS_REVOKED" Maybe<File>, "", zoo [];
    /// The versions of TLS that clients may have, with commas between them.
    tls_protocols: Vec<String> = "tls-protocols" "STOA_TLS_PROTOCOLS" NameList, "TLSv1.3,TLSv1.2", zoo ["ssl.enabledProtocols" Reading::Own];
    /// The cipher suites that clients may have, by the names of the standard with commas between them; by default all that are safe.
    tls_ciphers: Vec<String> = "tls-ciphers" "STOA_TLS_CIPHERS" NameList, "", zoo ["ssl.ciphersuites" Reading::Own];
    /// How many TLS handshakes may be under way; whoever comes beyond that is turned away. 0 is no limit.
    tls_max_handshakes: u32 = "tls-max-handshakes" "STOA_TLS_MAX_HANDSHAKES" Count, "4096", zoo ["netty.server.outstandingHandshake.limit" Reading::HANDSHAKES];
    /// Whether changed files of certificates count without a restart; they are looked at every ten seconds, and on the signal HUP.
    tls_reload: bool = "tls-reload" "STOA_TLS_RELOAD" Flag, "true", zoo ["client.certReload" Reading::True];
    /// The subject of the certificate whose owner passes every ACL.
    super_certificate: Option<String> = "super-certificate" "STOA_SUPER_CERTIFICATE" Maybe<Text>, "", zoo ["X509AuthenticationProvider.superUser" Reading::Own];
    /// A login configuration (JAAS) with the users of DIGEST-MD5, the keytab and the principal of Kerberos, or both; with it clients are offered SASL.
    sasl_config: Option<PathBuf> = "sasl-config" "STOA_SASL_CONFIG" Maybe<File>, "", zoo [];
    /// The section of that file that counts.
    sasl_section: String = "sasl-section" "STOA_SASL_SECTION" Text, "Server", zoo ["sasl.serverconfig" Reading::Own];
    /// The names, as SASL proves them, of those who pass every ACL, with commas between them.
    sasl_super_users: Vec<String> = "sasl-super-users" "STOA_SASL_SUPER_USERS" NameList, "", zoo [];
    /// The password of the user `super` of DIGEST-MD5, in place of one in the file.
    sasl_super_password: Option<String> = "sasl-super-password" "STOA_SASL_SUPER_PASSWORD" Maybe<Secret>, "", zoo ["SASLAuthenticationProvider.superPassword" Reading::Own];
    /// Whether a client that has failed to prove who it is by SASL is served as one that has not tried.
    allow_failed_sasl: bool = "allow-failed-sasl" "STOA_ALLOW_FAILED_SASL" Flag, "false", zoo ["allowSaslFailedClients" Reading::True];
    /// Whether the host is left out of names that Kerberos proves.
    kerberos_remove_host: bool = "kerberos-remove-host" "STOA_KERBEROS_REMOVE_HOST" Flag, "false", zoo ["kerberos.removeHostFromPrincipal" Reading::True];
    /// Whether the realm is left out of names that Kerberos proves.
    kerberos_remove_realm: bool = "kerberos-remove-realm" "STOA_KERBEROS_REMOVE_REALM" Flag, "false", zoo ["kerberos.removeRealmFromPrincipal" Reading::True];
    /// The rules by which names that Kerberos proves become short ones (`auth_to_local`, as Hadoop writes them); by default those of the own realm lose it.
    kerberos_rules: Option<String> = "kerberos-rules" "STOA_KERBEROS_RULES" Maybe<Text>, "", zoo ["security.auth_to_local" Reading::Own];
    /// The realm that these rules take for the own one; by default that of the server's principal.
    kerberos_realm: Option<String> = "kerberos-realm" "STOA_KERBEROS_REALM" Maybe<Text>, "", zoo [];
    /// The schemes of which a client has to have proved one before it is served, with commas between them: `digest`, `sasl`, `x509`; by default none has to.
    require_schemes: Vec<String> = "require-schemes" "STOA_REQUIRE_SCHEMES" NameList, "", zoo [];
    /// Whether clients can prove who they are by a name and a password, with the scheme `digest`.
    digest: bool = "digest" "STOA_DIGEST" Flag, "true", zoo ["DigestAuthenticationProvider.enabled" Reading::True];
    /// What this ensemble is called: a client that names another one with the scheme `ensemble` is turned away. Several names have commas between them.
    ensemble_names: Vec<String> = "ensemble-names" "STOA_ENSEMBLE_NAMES" NameList, "", zoo ["ensembleAuthName" Reading::Own];
    /// How many connections may wait to be accepted.
    listen_backlog: u32 = "listen-backlog" "STOA_LISTEN_BACKLOG" Count, "1024", zoo ["clientPortListenBacklog" Reading::BACKLOG];
    /// The port for admin HTTP and `/metrics`; 0 switches it off.
    admin_port: u16 = "admin-port" "STOA_ADMIN_PORT" Port, "8080", zoo ["admin.serverPort" Reading::PORT_PROPERTY];
    /// The address to listen on for admin HTTP; by default 127.0.0.1, which only programs on this machine reach; `::` is every address of the machine, IPv4 and IPv6.
    admin_bind: Option<IpAddr> = "admin-bind" "STOA_ADMIN_BIND" Maybe<Address>, "", zoo ["admin.serverAddress" Reading::Address];
    /// Whether admin HTTP is asked with TLS: `no`, `also` beside those without, by the first byte that each sends, or `only`. Its files are those of `tls-certificate` and its like; where that is not set, those of `peer-tls-certificate`.
    admin_tls: TlsOnPort = "admin-tls" "STOA_ADMIN_TLS" TlsOnPort, "no", zoo [];
    /// Whether whoever asks admin HTTP with TLS has to show a certificate: `need`; may: `want`; or is not asked: `none`.
    admin_client_certificates: ClientCertificates = "admin-client-certificates" "STOA_ADMIN_CLIENT_CERTIFICATES" ClientCertificates, "none", zoo [];
    /// Names of this server by which admin HTTP may be asked, with commas between them, besides `localhost`, the name of the machine and that in `servers`; `*` is every name. An IP address always will do.
    admin_hosts: Vec<String> = "admin-hosts" "STOA_ADMIN_HOSTS" Hosts, "", zoo [];
    /// A second port that answers `/metrics` only, as ZooKeeper's Prometheus provider does; 0 switches it off. It is on the address in `admin-bind`, and without that where clients connect.
    metrics_port: u16 = "metrics-port" "STOA_METRICS_PORT" Port, "0", zoo ["metricsProvider.httpPort" Reading::PORT];
    /// The servers of the ensemble, this one among them, each as `ID=HOST:PEERPORT[:ELECTIONPORT][:ROLE][;[CLIENTADDRESS:]CLIENTPORT]`, the role `participant` or `observer`; none is a server that stands alone.
    servers: Vec<Member> = "servers" "STOA_SERVERS" Members, "", zoo ["server.N" Reading::Server];
    /// The id of this server, 0 to 255, and 255 only without `extended-types`; by default what the file `myid` in the data folder says, and without one that of the only one of the servers that is called as this host.
    server_id: Option<u8> = "server-id" "STOA_SERVER_ID" Maybe<ServerId>, "", zoo [];
    /// Whether a server whose data folder holds nothing waits for others whose ensemble it is to join, whatever `servers` says; without effect when the folder holds something. Until the list of servers has it, it is fed by one of the others that lets it in.
    join: bool = "join" "STOA_JOIN" Flag, "false", zoo [];
    /// Makes this server a reader, which follows one of these, members or other readers: the host of each and its port for other servers. With `server-id` it is a member while the list of servers has it, and a reader while it has not. See docs/readers.md.
    reader_of: Vec<ParentAddress> = "reader-of" "STOA_READER_OF" Parents, "", zoo [];
    /// Whether a reader takes the first of `reader-of` that will do, and goes back to it; without it the one that is near and has few readers.
    reader_in_order: bool = "reader-in-order" "STOA_READER_IN_ORDER" Flag, "false", zoo [];
    /// The port where other readers can connect to this reader, at the address of `peer-bind`; 0 is none. Members let readers in at their port for other servers.
    reader_port: u16 = "reader-port" "STOA_READER_PORT" Port, "0", zoo [];
    /// How many readers may be below this server at a time. By default none: whoever is let in as a reader reads everything, and may write in the name of every client. Where there is a `peer-secret`, 16 servers that are to join are let in besides.
    max_readers: u32 = "max-readers" "STOA_MAX_READERS" Count, "0", zoo [];
    /// Whether clients may change the list of servers with reconfig; they need the permission to write /zookeeper/config besides.
    reconfig_enabled: bool = "reconfig-enabled" "STOA_RECONFIG_ENABLED" Flag, "false", zoo ["reconfigEnabled" Reading::Strict];
    /// The address to listen on for the other servers; `::` is every address of the machine, IPv4 and IPv6.
    peer_bind: IpAddr = "peer-bind" "STOA_PEER_BIND" Address, "::", zoo [];
    /// The secret with which the servers of an ensemble prove themselves to each other, the same on all of them.
    peer_secret: Option<String> = "peer-secret" "STOA_PEER_SECRET" Maybe<Secret>, "", zoo [];
    /// A file with the secret on its one line, in place of `peer-secret`.
    peer_secret_file: Option<PathBuf> = "peer-secret-file" "STOA_PEER_SECRET_FILE" Maybe<File>, "", zoo [];
    /// Whether the servers have TLS among each other where `peer-tls-certificate` is set; without it those files are for admin HTTP alone.
    peer_tls: bool = "peer-tls" "STOA_PEER_TLS" Flag, "true", zoo [];
    /// This server's certificate for TLS between servers, with those that lead to the authority, and its key: a file in PEM, PKCS12 or JKS.
    peer_tls_certificate: Option<PathBuf> = "peer-tls-certificate" "STOA_PEER_TLS_CERTIFICATE" Maybe<File>, "", zoo [];
    /// The private key of that certificate in PEM, where it has a file of its own.
    peer_tls_key: Option<PathBuf> = "peer-tls-key" "STOA_PEER_TLS_KEY" Maybe<File>, "", zoo [];
    /// The password of that key, or of the store that it is in.
    peer_tls_password: Option<String> = "peer-tls-password" "STOA_PEER_TLS_PASSWORD" Maybe<Secret>, "", zoo [];
    /// A file with that password on its one line, in place of `peer-tls-password`.
    peer_tls_password_file: Option<PathBuf> = "peer-tls-password-file" "STOA_PEER_TLS_PASSWORD_FILE" Maybe<File>, "", zoo [];
    /// The certificates of the authority that must have signed those of the other servers, or those certificates themselves: a file in PEM, PKCS12 or JKS.
    peer_tls_authority: Option<PathBuf> = "peer-tls-authority" "STOA_PEER_TLS_AUTHORITY" Maybe<File>, "", zoo [];
    /// The password of the store with the authority.
    peer_tls_authority_password: Option<String> = "peer-tls-authority-password" "STOA_PEER_TLS_AUTHORITY_PASSWORD" Maybe<Secret>, "", zoo [];
    /// A file with that password on its one line, in place of `peer-tls-authority-password`.
    peer_tls_authority_password_file: Option<PathBuf> = "peer-tls-authority-password-file" "STOA_PEER_TLS_AUTHORITY_PASSWORD_FILE" Maybe<File>, "", zoo [];
    /// A file in PEM with the lists of certificates that the authority of the servers has revoked.
    peer_tls_revoked: Option<PathBuf> = "peer-tls-revoked" "STOA_PEER_TLS_REVOKED" Maybe<File>, "", zoo [];
    /// Whether changed files of certificates for servers count without a restart; they are looked at every ten seconds, and on the signal HUP.
    peer_tls_reload: bool = "peer-tls-reload" "STOA_PEER_TLS_RELOAD" Flag, "true", zoo ["sslQuorumReloadCertFiles" Reading::Strict];
    /// The site, one of several ensembles with one tree, that this server belongs to, one of those in `sites`; without it there are no other sites.
    site: Option<String> = "site" "STOA_SITE" Maybe<SiteName>, "", zoo [];
    /// All sites, this one among them, each as `NAME=HOST:PORT[|HOST:PORT...]`, with where its servers listen for other sites; the first one is the hub. It is the same on all servers, but for addresses, which are those at which this server reaches the others.
    sites: Vec<SiteAddresses> = "sites" "STOA_SITES" SiteList, "", zoo [];
    /// How the hub decides which site holds the right to change a znode: `expected` where the next writes are expected to cost least, with no site paying more for others than it gains; `consecutive N` gives it after N requests in a row from one site, and takes it back when another one asks; `hub` keeps all at the hub. It is the same on all servers of the hub.
    site_policy: PolicyKind = "site-policy" "STOA_SITE_POLICY" SitePolicy, "expected", zoo [];
    /// Whether the first other site of the list becomes the hub without an operator, when all sites but the hub have not heard of it for ten seconds; what the hub has done and not shipped is lost then. There have to be three sites. The hub needs a majority of them to be heard of to write anything. It is the same on all servers of all sites.
    site_automatic_promotion: bool = "site-automatic-promotion" "STOA_SITE_AUTOMATIC_PROMOTION" Flag, "false", zoo [];
    /// The port for the leaders of other sites, which servers of the hub need; 0 is none.
    site_port: u16 = "site-port" "STOA_SITE_PORT" Port, "0", zoo [];
    /// The address to listen on at `site-port`; by default that of `bind`.
    site_bind: Option<IpAddr> = "site-bind" "STOA_SITE_BIND" Maybe<Address>, "", zoo [];
    /// So much of the log is kept on the disk for sites that are away: one that lacks more has to join anew.
    site_backlog_bytes: u64 = "site-backlog-bytes" "STOA_SITE_BACKLOG_BYTES" Bytes, "1GiB", zoo [];
    /// This server's certificate for TLS between sites, for a host that `sites` has of its own site, with those that lead to the authority: a file in PEM.
    site_tls_certificate: Option<PathBuf> = "site-tls-certificate" "STOA_SITE_TLS_CERTIFICATE" Maybe<File>, "", zoo [];
    /// The private key of that certificate in PEM, where it has a file of its own.
    site_tls_key: Option<PathBuf> = "site-tls-key" "STOA_SITE_TLS_KEY" Maybe<File>, "", zoo [];
    /// The certificates of the authority that must have signed those of other sites' servers: a file in PEM.
    site_tls_authority: Option<PathBuf> = "site-tls-authority" "STOA_SITE_TLS_AUTHORITY" Maybe<File>, "", zoo [];
    /// A file in PEM with the lists of certificates that the authority of the sites has revoked.
    site_tls_revoked: Option<PathBuf> = "site-tls-revoked" "STOA_SITE_TLS_REVOKED" Maybe<File>, "", zoo [];
    /// How often a leader lets the other servers hear of it.
    heartbeat: Duration = "heartbeat" "STOA_HEARTBEAT" Time, "100ms", zoo [];
    /// How long the servers hear nothing of a leader before they elect another; at least four heartbeats.
    election_timeout: Duration = "election-timeout" "STOA_ELECTION_TIMEOUT" Time, "1s", zoo [];
    /// From how many servers on, the leader counted, appends reach members by way of each other, down trees, see docs/forest.md; with fewer, and with 0 always, the leader sends to each itself.
    forest_servers_min: u32 = "forest-servers-min" "STOA_FOREST_SERVERS_MIN" Count, "10", zoo [];
    /// How many trees there are then, 1 to 16: each server passes on what comes down one of them. What the leader has counts for all.
    forest_trees: u32 = "forest-trees" "STOA_FOREST_TREES" Count, "5", zoo [];
    /// To about how many others a server passes on what comes down its tree: at least as many as there are trees, and at most 64.
    forest_children: u32 = "forest-children" "STOA_FOREST_CHILDREN" Count, "5", zoo [];
    /// Whether members that lack more than the logs hold, or have just joined, are given snapshots by others than the leader where those can be spared, see docs/forest.md; where it is off, this server gives none so, takes none, and sends all of them itself when it leads.
    neighbour_snapshots: bool = "neighbour-snapshots" "STOA_NEIGHBOUR_SNAPSHOTS" Flag, "true", zoo [];
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
    /// Whether there is an audit log: a file that says who has changed what, and who was not let.
    audit: bool = "audit" "STOA_AUDIT" Flag, "false", zoo ["audit.enable" Reading::True];
    /// How the lines of the audit log look: `text` as ZooKeeper's, or `json`, which also has failed logins and the changes that are asked for by admin HTTP.
    audit_format: LogFormat = "audit-format" "STOA_AUDIT_FORMAT" LogFormat, "text", zoo [];
    /// The file of the audit log, which only its owner can read; a relative path begins at the data folder. By default `audit.log`.
    audit_file: Option<PathBuf> = "audit-file" "STOA_AUDIT_FILE" Maybe<File>, "", zoo [];
    /// How long that file gets before the next one is begun; 0 is no limit.
    audit_file_bytes: u64 = "audit-file-bytes" "STOA_AUDIT_FILE_BYTES" Bytes, "10MiB", zoo [];
    /// How many files of the audit log are kept besides, with `.1`, `.2` and so on behind the name.
    audit_files_kept: u32 = "audit-files-kept" "STOA_AUDIT_FILES_KEPT" Count, "10", zoo [];
    /// How many events may wait to be written to the audit log, 1 to 1000000.
    audit_queue: u32 = "audit-queue" "STOA_AUDIT_QUEUE" Count, "16384", zoo [];
    /// What becomes of events beyond that: `drop`, they are lost and counted; or `block`, clients wait.
    audit_full: AuditFull = "audit-full" "STOA_AUDIT_FULL" AuditFull, "drop", zoo [];
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

    /// How appends reach many members, if not from the leader alone. Numbers that make no trees give none.
    pub fn forest(&self) -> Option<ForestConfig> {
        let servers_min = usize::try_from(self.forest_servers_min).ok().filter(|least| *least > 0)?;
        let (trees, children) = (u8::try_from(self.forest_trees), u8::try_from(self.forest_children));
        ForestConfig::new(servers_min, trees.ok()?, children.ok()?)
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
