//! From flags, environment and file to settings.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::args::{CONFIG_ENVIRONMENT, ServeArgs};
use super::ensemble::EnsembleSettings;
use super::error::{ConfigError, Place, Problem};
use super::settings::{SETTINGS, Settings};
use super::{toml_file, zoo};

/// Settings with what there is to say about them.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What the server runs with.
    pub settings: Settings,
    /// The configuration file, if there is one.
    pub file: Option<PathBuf>,
    /// What an operator should know: settings that have no effect here, and the like.
    pub warnings: Vec<String>,
    /// What was found out where nobody has said it, and how.
    pub notes: Vec<String>,
    /// Where each setting comes from, in the order of [`SETTINGS`].
    pub origins: Vec<Origin>,
    /// Which of its ports are settings of the server's own.
    pub(crate) fixed: FixedPorts,
    /// Where ZooKeeper has its log by the `zoo.cfg` that names the data folder, if it says.
    pub zookeeper_log_dir: Option<PathBuf>,
}

/// What counts of a server's settings whatever the list of servers says: what was set for it alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FixedPorts {
    /// The client port.
    pub(crate) port: bool,
    /// The address that clients connect to.
    pub(crate) bind: bool,
}

/// Where the value of a setting comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// The configuration file.
    File,
    /// The environment.
    Environment,
    /// The command line.
    Flag,
    /// The name of the host.
    Host,
}

/// A value for a setting, with the place where it was found.
pub(super) struct Entry {
    /// Index into [`SETTINGS`].
    pub(super) setting: usize,
    pub(super) text: String,
    pub(super) place: Place,
}

/// Of a server with several addresses.
pub(super) const ONE_ADDRESS: &str =
    "a server is reached at the first of its addresses, the others have no effect";

/// What a file says.
#[derive(Default)]
pub(super) struct FileEntries {
    pub(super) entries: Vec<Entry>,
    pub(super) warnings: Vec<String>,
    /// The folder that a `zoo.cfg` names for ZooKeeper's log.
    pub(super) log_folder: Option<PathBuf>,
}

/// Reads a file that settings name.
pub type ReadFile = dyn Fn(&Path) -> io::Result<String>;

/// What settings are looked up in, besides what gives them.
#[derive(Clone, Copy)]
pub(super) struct Machine<'a> {
    pub(super) read: &'a ReadFile,
    /// How the system calls this host; empty when it has no name.
    pub(super) host: &'a str,
}

/// No file with settings is this long; one that is was named by mistake.
const FILE_BYTES_MAX: u64 = 1 << 20;

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if read as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than 1 MiB"));
    }
    Ok(bytes)
}

fn read_file(path: &Path) -> io::Result<String> {
    String::from_utf8(read_bytes(path)?).map_err(|_| not_utf8())
}

/// A `zoo.cfg` may be in Latin-1, as Java's properties are.
fn decode(path: &Path, bytes: Vec<u8>) -> io::Result<String> {
    let bytes = match String::from_utf8(bytes) {
        Ok(text) => return Ok(text),
        Err(error) => error.into_bytes(),
    };
    let text: String = bytes.into_iter().map(char::from).collect();
    if is_zoo_cfg(path, &text) { Ok(text) } else { Err(not_utf8()) }
}

fn not_utf8() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is not in UTF-8")
}

impl ServeArgs {
    /// Reads the environment, the configuration file and the files that settings name, and puts everything together.
    ///
    /// # Errors
    /// When the file cannot be read, or any value is not what its setting takes.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        let environment: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let path = self.config.clone().or_else(|| {
            let (_, path) = environment.iter().find(|(name, _)| name == CONFIG_ENVIRONMENT)?;
            Some(PathBuf::from(path))
        });
        let text = match &path {
            Some(path) => {
                let read = read_bytes(path).and_then(|bytes| decode(path, bytes));
                Some(read.map_err(|source| Problem::Read { file: path.clone(), source })?)
            }
            None => None,
        };
        let file = path.as_deref().zip(text.as_deref());
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        resolve(&self.flags, &environment, file, Machine { read: &read_file, host: &host })
    }
}

/// The settings that a configuration file gives by itself, whatever flags and environment say, on a host without a
/// name. `read` reads the files that it names.
///
/// # Errors
/// When any value is not what its setting takes.
pub fn of_file(path: &Path, bytes: Vec<u8>, read: &ReadFile) -> Result<Loaded, ConfigError> {
    let text = decode(path, bytes).map_err(|source| Problem::Read { file: path.to_owned(), source })?;
    resolve(&[], &[], Some((path, &text)), Machine { read, host: "" })
}

/// Puts everything together. What is said last wins: file, environment, flags.
pub(super) fn resolve(
    flags: &[(usize, String)],
    environment: &[(String, String)],
    file: Option<(&Path, &str)>,
    machine: Machine<'_>,
) -> Result<Loaded, ConfigError> {
    let is_zoo_cfg = file.is_some_and(|(path, text)| is_zoo_cfg(path, text));
    let FileEntries { mut entries, mut warnings, log_folder } = match file {
        Some((path, text)) if is_zoo_cfg => zoo::read(path, text, machine.read)?,
        Some((path, text)) => toml_file::read(path, text)?,
        None => FileEntries::default(),
    };
    from_environment(environment, &mut entries, &mut warnings);
    entries.extend(flags.iter().map(|(setting, text)| Entry {
        setting: *setting,
        text: text.clone(),
        place: Place::Flag(SETTINGS[*setting].key),
    }));

    let mut settings = Settings::default();
    let mut places: Vec<Place> = SETTINGS.iter().map(|setting| Place::Default(setting.key)).collect();
    for Entry { setting: index, text, place } in entries {
        let setting = &SETTINGS[index];
        if !setting.set(&mut settings, &text) {
            // A secret that is mistyped is a secret still.
            let found = if setting.is_secret() { "something else".to_owned() } else { text };
            return Err(Problem::Value { place, found, expected: setting.expected.to_owned() }.into());
        }
        if setting.key == "servers" && text.contains('|') {
            warnings.push(format!("{place}: {ONE_ADDRESS}"));
        }
        places[index] = place;
    }
    let is_set = |key| !matches!(places[index_of(key)], Place::Default(_));
    let fixed = FixedPorts { port: is_set("port"), bind: is_set("bind") };
    let mut ensemble =
        EnsembleSettings { settings: &mut settings, places: &mut places, machine, notes: Vec::new() };
    warnings.extend(ensemble.complete()?);
    let notes = ensemble.notes;
    warnings.extend(is_zoo_cfg.then(|| shorten(&mut settings, &places)).flatten());
    warnings.extend(make_room(&mut settings, &places, is_zoo_cfg));
    Check { settings: &settings, places: &places }.all()?;
    warnings.extend(dangers(&settings));
    warnings.extend(secure_port_in_vain(&settings, &places));
    let of_file = |key| matches!(places[index_of(key)], Place::Line { .. });
    Ok(Loaded {
        zookeeper_log_dir: log_folder.filter(|_| of_file("data-dir")),
        settings,
        notes,
        fixed,
        file: file.map(|(path, _)| path.to_owned()),
        warnings,
        origins: places.iter().map(Origin::of).collect(),
    })
}

impl Origin {
    fn of(place: &Place) -> Origin {
        match place {
            Place::Line { .. } => Origin::File,
            Place::Environment(_) => Origin::Environment,
            Place::Flag(_) => Origin::Flag,
            Place::Host => Origin::Host,
            Place::Default(_) => Origin::Default,
        }
    }
}

fn from_environment(environment: &[(String, String)], entries: &mut Vec<Entry>, warnings: &mut Vec<String>) {
    for (name, value) in environment.iter().filter(|(name, _)| name.starts_with("STOA_")) {
        // Kubernetes describes a service called `stoa` to its pods in variables of these forms; one of
        // them, STOA_PORT=tcp://10.0.0.1:2181, has the name of a setting of ours.
        let from_kubernetes = name.starts_with("STOA_SERVICE_")
            || name.starts_with("STOA_PORT_")
            || (name == "STOA_PORT" && value.starts_with("tcp://"));
        if from_kubernetes || name == CONFIG_ENVIRONMENT || name == "STOA_LOG" {
            continue;
        }
        match SETTINGS.iter().position(|setting| setting.environment == name) {
            Some(setting) => entries.push(Entry {
                setting,
                text: value.clone(),
                place: Place::Environment(SETTINGS[setting].environment),
            }),
            None => warnings.push(format!("environment variable {name} is not a setting and is ignored")),
        }
    }
}

/// Tells a `zoo.cfg` from TOML: by its ending, else by the first key that is only one of the two's.
fn is_zoo_cfg(path: &Path, text: &str) -> bool {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => false,
        Some("cfg" | "properties") => true,
        _ => zoo::looks_like(text),
    }
}

/// The longest request where there are several servers: what it becomes goes to the others in one message, which may
/// have 64 MiB.
const REQUEST_BYTES_OF_SEVERAL: u64 = 32 << 20;

/// ZooKeeper's servers take any `jute.maxbuffer`, so a `zoo.cfg` that says more is no reason not to start.
fn shorten(settings: &mut Settings, places: &[Place]) -> Option<String> {
    let place = &places[index_of("max-request-bytes")];
    let is_too_long = settings.has_others() && settings.max_request_bytes > REQUEST_BYTES_OF_SEVERAL;
    if !is_too_long || !matches!(place, Place::Line { .. }) {
        return None;
    }
    settings.max_request_bytes = REQUEST_BYTES_OF_SEVERAL;
    Some(format!(
        "{place}: {REQUEST_BYTES_OF_SEVERAL} bytes count: a longer request does not go to the other servers in one \
         message"
    ))
}

/// A longer request needs longer buffers and segments. Those that nobody set grow; so does what a `zoo.cfg`
/// says, for it means something else there.
fn make_room(settings: &mut Settings, places: &[Place], is_zoo_cfg: bool) -> Option<String> {
    let place = |key| &places[index_of(key)];
    let is_set = |key| !matches!(place(key), Place::Default(_));
    let buffer = settings.write_buffer_bytes.saturating_add(settings.max_request_bytes);
    if !is_set("write-buffer-max-bytes") {
        settings.write_buffer_max_bytes = settings.write_buffer_max_bytes.max(buffer);
    }
    let segment = settings.max_request_bytes.saturating_mul(2);
    if settings.segment_bytes >= segment {
        return None;
    }
    let of_zoo_cfg = is_zoo_cfg && matches!(place("segment-bytes"), Place::Line { .. });
    if is_set("segment-bytes") && !of_zoo_cfg {
        return None;
    }
    settings.segment_bytes = segment;
    of_zoo_cfg.then(|| {
        let place = place("segment-bytes");
        format!(
            "{place}: {segment} bytes count: a segment of the log holds at least two of the longest requests"
        )
    })
}

/// Settings that are all there, to be checked for what no single one can know: that they fit together.
struct Check<'a> {
    settings: &'a Settings,
    places: &'a [Place],
}

impl Check<'_> {
    fn all(&self) -> Result<(), ConfigError> {
        self.session_timeouts()?;
        self.request_bytes()?;
        self.counts()?;
        if self.settings.segment_bytes < 2 * self.settings.max_request_bytes {
            let found = self.settings.segment_bytes.to_string();
            return self.wrong("segment-bytes", found, "at least twice max-request-bytes");
        }
        let times = [
            ("handshake-timeout", self.settings.handshake_timeout),
            ("container-check", self.settings.container_check),
        ];
        match times.iter().find(|(_, time)| time.is_zero()) {
            Some((key, _)) => self.wrong(key, "0", "a time above zero"),
            None => Ok(()),
        }
    }

    fn wrong(
        &self,
        key: &str,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Result<(), ConfigError> {
        let place = self.places[index_of(key)].clone();
        Err(Problem::Value { place, found: found.into(), expected: expected.into() }.into())
    }

    fn session_timeouts(&self) -> Result<(), ConfigError> {
        let settings = self.settings;
        if settings.tick_time.is_zero() {
            return self.wrong("tick-time", "0", "a time above zero");
        }
        let (min, max) = settings.session_timeouts();
        if min.is_zero() || min > max {
            let is_max_set = settings.max_session_timeout.is_some();
            return self.wrong(
                if is_max_set { "max-session-timeout" } else { "min-session-timeout" },
                format!("{} to {} ms", min.as_millis(), max.as_millis()),
                "bounds of session timeouts above zero, the shortest not above the longest",
            );
        }
        // The client is told its timeout in 32 bits.
        for (key, time) in
            [("tick-time", settings.tick_time), ("min-session-timeout", min), ("max-session-timeout", max)]
        {
            if time.as_millis() > i32::MAX.unsigned_abs().into() {
                let found = format!("{} ms", time.as_millis());
                return self.wrong(key, found, format!("at most {} ms", i32::MAX));
            }
        }
        Ok(())
    }

    fn request_bytes(&self) -> Result<(), ConfigError> {
        let settings = self.settings;
        let max = settings.max_request_bytes;
        // A request that is longer cannot be logged.
        if max > 1 << 30 {
            return self.wrong("max-request-bytes", max.to_string(), "at most 1GiB");
        }
        if settings.has_others() && max > REQUEST_BYTES_OF_SEVERAL {
            let expected = "at most 32MiB where there are several servers";
            return self.wrong("max-request-bytes", max.to_string(), expected);
        }
        if settings.write_buffer_max_bytes < settings.write_buffer_bytes.saturating_add(max) {
            return self.wrong(
                "write-buffer-max-bytes",
                settings.write_buffer_max_bytes.to_string(),
                "at least write-buffer-bytes and max-request-bytes together",
            );
        }
        Ok(())
    }

    fn counts(&self) -> Result<(), ConfigError> {
        let settings = self.settings;
        for (key, value) in [
            ("snapshots-kept", settings.snapshots_kept),
            ("snapshot-updates", settings.snapshot_updates),
            ("max-outstanding", settings.max_outstanding),
            ("max-outstanding-per-connection", settings.max_outstanding_per_connection),
            ("listen-backlog", settings.listen_backlog),
        ] {
            if value == 0 {
                return self.wrong(key, "0", "a number above zero");
            }
        }
        let queue = settings.audit_queue;
        if !(1..=1_000_000).contains(&queue) {
            return self.wrong("audit-queue", queue.to_string(), "1 to 1000000");
        }
        if settings.audit_files_kept > 1000 {
            return self.wrong("audit-files-kept", settings.audit_files_kept.to_string(), "at most 1000");
        }
        for (key, value, most, text) in [
            ("extension-source-bytes", settings.extension_source_bytes, 1 << 20, "at most 1MiB"),
            ("extension-steps", u64::from(settings.extension_steps), 10_000_000, "at most 10000000"),
            ("extension-memory-bytes", settings.extension_memory_bytes, 1 << 28, "at most 256MiB"),
        ] {
            if value > most {
                return self.wrong(key, value.to_string(), text);
            }
        }
        Ok(())
    }
}

/// What somebody may have set for a test and forgotten.
fn dangers(settings: &Settings) -> impl Iterator<Item = String> {
    let small = settings.max_request_bytes;
    let dangers = [
        (!settings.fsync, "fsync is false: a power failure loses updates that were acknowledged".to_owned()),
        (settings.skip_acl, "skip-acl is true: every client may read and change everything".to_owned()),
        (
            settings.local_sessions && !settings.has_others(),
            "local-sessions has no effect: a server that stands alone makes global ones, as ZooKeeper's does"
                .to_owned(),
        ),
        (
            small < REQUEST_BYTES_USUAL,
            format!("max-request-bytes is {small}: a handshake takes 45, and most requests take more"),
        ),
    ];
    dangers.into_iter().filter(|(applies, _)| *applies).map(|(_, danger)| danger)
}

/// A `secureClientPort` without a `clientPort` is the one port that there is, and flags and environment say another one.
fn secure_port_in_vain(settings: &Settings, places: &[Place]) -> Option<String> {
    let (tls, port) = (&places[index_of("tls-on-port")], &places[index_of("port")]);
    let is_zookeepers = matches!(tls, Place::Line { key, .. } if key == "secureClientPort");
    let is_in_vain = is_zookeepers && matches!(port, Place::Flag(_) | Place::Environment(_));
    is_in_vain.then(|| {
        format!(
            "{tls} has no effect: by {port} the one port is {}, which has TLS alone; set secure-port for a second one",
            settings.port
        )
    })
}

/// A server that takes no requests of this length was hardly meant to be one.
const REQUEST_BYTES_USUAL: u64 = 1024;

impl Loaded {
    /// What the server runs with, in a line: where it is not the default, and who said so.
    pub fn summary(&self) -> String {
        let changed: Vec<String> = SETTINGS
            .iter()
            .zip(&self.origins)
            .filter(|(_, origin)| **origin != Origin::Default)
            .map(|(setting, origin)| {
                let by = match origin {
                    Origin::Flag => "flag",
                    Origin::Environment => "environment",
                    Origin::Host => "host name",
                    Origin::File | Origin::Default => "file",
                };
                format!("{}={} ({by})", setting.key, setting.get(&self.settings))
            })
            .collect();
        let file = self.file.as_ref().map(|file| format!(" from {}", file.display())).unwrap_or_default();
        if changed.is_empty() {
            format!("settings{file}: the defaults")
        } else {
            format!("settings{file}: {}", changed.join(", "))
        }
    }
}

fn index_of(key: &str) -> usize {
    by_key(key).expect("the key is in the table")
}

/// The index of the setting with this key.
pub(super) fn by_key(key: &str) -> Option<usize> {
    SETTINGS.iter().position(|setting| setting.key == key)
}

/// The setting whose key is most like what was written, if any is like it at all.
pub(super) fn nearest(written: &str) -> Option<&'static str> {
    let written = written.replace('_', "-").to_ascii_lowercase();
    let (distance, key) =
        SETTINGS.iter().map(|setting| (distance(&written, setting.key), setting.key)).min()?;
    (distance <= 1 + written.len() / 4).then_some(key)
}

/// How many letters have to be inserted, left out or changed to get from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::super::partitions::Partitions;
    use super::*;

    /// Settings that name no files.
    fn resolve(
        flags: &[(usize, String)],
        environment: &[(String, String)],
        file: Option<(&Path, &str)>,
    ) -> Result<Loaded, ConfigError> {
        let read = |_: &Path| Err(io::ErrorKind::NotFound.into());
        super::resolve(flags, environment, file, Machine { read: &read, host: "" })
    }

    fn flag(key: &str, text: &str) -> (usize, String) {
        (by_key(key).unwrap(), text.to_owned())
    }

    fn environment(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn error(file: &str, text: &str) -> String {
        resolve(&[], &[], Some((Path::new(file), text))).unwrap_err().to_string()
    }

    #[test]
    fn defaults_are_the_settings_of_zookeeper_where_it_has_them() {
        let settings = Settings::default();
        assert_eq!(settings.port, 2181);
        assert_eq!(settings.max_request_bytes, 0xf_ffff);
        assert_eq!(settings.max_connections_per_address, 60);
        let (min, max) = settings.session_timeouts();
        assert_eq!((min.as_millis(), max.as_millis()), (6_000, 60_000));
    }

    #[test]
    fn flags_win_over_environment_over_file() {
        let text = "port = 1\ntick-time = 10\nsegment-bytes = '8MiB'\n";
        let file = Some((Path::new("stoa.toml"), text));
        let variables = environment(&[("STOA_PORT", "2"), ("STOA_TICK_TIME", "20ms"), ("PATH", "/bin")]);
        let loaded = resolve(&[flag("port", "3")], &variables, file).unwrap();
        assert_eq!(loaded.settings.port, 3);
        assert_eq!(loaded.settings.tick_time.as_millis(), 20);
        assert_eq!(loaded.settings.segment_bytes, 8 << 20);
        let origin = |key| loaded.origins[by_key(key).unwrap()];
        assert_eq!(origin("port"), Origin::Flag);
        assert_eq!(origin("tick-time"), Origin::Environment);
        assert_eq!(origin("segment-bytes"), Origin::File);
        assert_eq!(origin("data-dir"), Origin::Default);
        assert!(loaded.warnings.is_empty());
        assert_eq!(
            loaded.summary(),
            "settings from stoa.toml: port=3 (flag), tick-time=20ms (environment), segment-bytes=8MiB (file)"
        );
    }

    #[test]
    fn dangerous_settings_are_warned_of() {
        let loaded = resolve(&[flag("fsync", "no"), flag("skip-acl", "yes")], &[], None).unwrap();
        assert_eq!(loaded.warnings.len(), 2, "{:?}", loaded.warnings);
        let secret = resolve(&[flag("super-digest", "super:abc")], &[], None).unwrap().summary();
        assert_eq!(secret, "settings: super-digest=set (flag)");
    }

    #[test]
    fn what_kubernetes_says_of_a_service_called_stoa_is_no_setting() {
        let variables =
            environment(&[("STOA_PORT", "tcp://10.0.0.1:2181"), ("STOA_SERVICE_HOST", "10.0.0.1")]);
        let loaded = resolve(&[], &variables, None).unwrap();
        assert_eq!(loaded.settings.port, 2181);
        assert!(loaded.warnings.is_empty());
    }

    #[test]
    fn a_misspelt_variable_is_warned_of() {
        let loaded = resolve(&[], &environment(&[("STOA_PROT", "1")]), None).unwrap();
        assert_eq!(loaded.warnings, ["environment variable STOA_PROT is not a setting and is ignored"]);
    }

    #[test]
    fn errors_name_place_and_what_was_expected() {
        assert_eq!(
            error("a/stoa.toml", "\nport = 70000"),
            "a/stoa.toml, line 2: port: expected a port, 0 to 65535, found \"70000\""
        );
        assert_eq!(
            error("zoo.cfg", "clientPort=x"),
            "zoo.cfg, line 1: clientPort: expected a whole number, in decimal, found \"x\""
        );
        assert_eq!(
            error("stoa.toml", "prt = 1"),
            "stoa.toml, line 1: prt: there is no such setting; did you mean port?"
        );
        assert_eq!(
            error("stoa.toml", "something-else-entirely = 1"),
            "stoa.toml, line 1: something-else-entirely: there is no such setting; `stoa serve --help` lists \
             them all"
        );
        let variables = environment(&[("STOA_FSYNC", "maybe")]);
        assert_eq!(
            resolve(&[], &variables, None).unwrap_err().to_string(),
            "environment variable STOA_FSYNC: expected true or false (yes, no, on and off do too), found \
             \"maybe\""
        );
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        let refused = [
            (
                "min-session-timeout = 5000\nmax-session-timeout = 4000",
                "max-session-timeout: expected bounds",
            ),
            ("min-session-timeout = '2m'", "min-session-timeout: expected bounds"),
            ("tick-time = 0", "tick-time: expected a time above zero"),
            ("max-request-bytes = '2GiB'", "max-request-bytes: expected at most 1GiB"),
            (
                "max-request-bytes = 33554433\nserver-id = 1\npeer-secret = 's'\nservers = ['1=a:1', '2=b:1']",
                "max-request-bytes: expected at most 32MiB where there are several servers",
            ),
            ("segment-bytes = '1MiB'", "segment-bytes: expected at least twice"),
            ("write-buffer-max-bytes = '1MiB'", "write-buffer-max-bytes: expected at least"),
            ("tick-time = '600h'", "tick-time: expected at most 2147483647 ms"),
            ("tick-time = '40h'", "max-session-timeout: expected at most"),
            ("snapshots-kept = 0", "snapshots-kept: expected a number above zero"),
        ];
        for (text, expected) in refused {
            let found = error("stoa.toml", text);
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn buffers_and_segments_grow_with_the_longest_request() {
        let load = |file: &str, text: &str| resolve(&[], &[], Some((Path::new(file), text)));
        let loaded = load("zoo.cfg", "jute.maxbuffer=0x10000000\ntxnLogSizeLimitInKb=1\n").unwrap();
        assert_eq!(loaded.settings.segment_bytes, 512 << 20);
        assert_eq!(loaded.settings.write_buffer_max_bytes, 257 << 20);
        assert!(
            loaded.warnings[0].starts_with("zoo.cfg, line 2: txnLogSizeLimitInKb: "),
            "{:?}",
            loaded.warnings
        );
        let loaded = load("stoa.toml", "max-request-bytes = '256MiB'").unwrap();
        assert_eq!((loaded.settings.segment_bytes, loaded.warnings.len()), (512 << 20, 0));
        assert!(load("stoa.toml", "max-request-bytes = '256MiB'\nsegment-bytes = '64MiB'").is_err());
    }

    #[test]
    fn the_longest_request_of_a_zoo_cfg_is_shortened_where_there_are_several_servers() {
        let load = |text: &str| resolve(&[], &[], Some((Path::new("zoo.cfg"), text))).unwrap();
        let loaded = load("jute.maxbuffer=100000000\nserver.1=a:2888:3888\n");
        assert_eq!(loaded.settings.max_request_bytes, 32 << 20);
        let warned = "zoo.cfg, line 1: jute.maxbuffer: 33554432 bytes count: ";
        assert!(loaded.warnings.iter().any(|it| it.starts_with(warned)), "{:?}", loaded.warnings);
        assert_eq!(load("jute.maxbuffer=100000000\n").settings.max_request_bytes, 100_000_000);
    }

    #[test]
    fn a_request_may_be_as_short_as_somebody_likes() {
        for (text, expected) in [("10", 10), ("0", 0), ("-1", 0), ("0x10", 16)] {
            let text = format!("jute.maxbuffer={text}");
            let loaded = resolve(&[], &[], Some((Path::new("zoo.cfg"), &text))).unwrap();
            assert_eq!(loaded.settings.max_request_bytes, expected);
            let warning = format!("max-request-bytes is {expected}: a handshake takes 45");
            assert!(loaded.warnings.last().unwrap().starts_with(&warning), "{:?}", loaded.warnings);
        }
    }

    #[test]
    fn a_zoo_cfg_may_be_in_latin_1() {
        let load = |name: &str, text: &[u8]| of_file(Path::new(name), text.to_vec(), &read_file);
        assert_eq!(load("zoo.cfg", b"# Gr\xf6\xdfe\nclientPort=1").unwrap().settings.port, 1);
        assert_eq!(
            load("utf8.cfg", "dataDir=/gr\u{f6}".as_bytes()).unwrap().settings.data_dir,
            Path::new("/gr\u{f6}")
        );
        let error = load("stoa.toml", b"# Gr\xf6\xdfe\nport = 1").unwrap_err().to_string();
        assert!(error.ends_with("it is not in UTF-8"), "{error}");
    }

    #[test]
    fn a_server_alone_and_one_of_several_can_have_partitions() {
        let servers = "server-id = 1\npeer-secret = 's'\nservers = ['1=a:1', '2=b:1', '3=c:1']\n";
        for (partitions, expected) in [("4", Partitions::Exactly(4)), ("'auto'", Partitions::Auto)] {
            for servers in ["", servers] {
                let text = format!("partitions = {partitions}\n{servers}");
                let loaded = resolve(&[], &[], Some((Path::new("stoa.toml"), &text))).unwrap();
                assert_eq!(loaded.settings.partitions, Some(expected));
            }
        }
        let of_zoo = resolve(&[], &[], Some((Path::new("zoo.cfg"), "partitions=4"))).unwrap();
        assert_eq!(of_zoo.settings.partitions, Some(Partitions::Exactly(4)));
    }

    #[test]
    fn every_value_reads_back_as_it_is_shown() {
        for setting in SETTINGS.iter().filter(|setting| setting.key != "super-digest") {
            let mut settings = Settings::default();
            let shown = setting.get(&settings);
            assert!(setting.set(&mut settings, &shown), "{} {shown}", setting.key);
            assert_eq!(settings, Settings::default(), "{}", setting.key);
            assert_eq!(setting.environment, format!("STOA_{}", setting.key.replace('-', "_").to_uppercase()));
        }
    }
}
