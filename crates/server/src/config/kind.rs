//! The kinds of values that settings have: how each is written, read and shown.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use stoa_core::DigestAlgorithm;

use crate::words::Word;

/// How the value of a setting is written as text.
///
/// `show` gives text that `parse` reads back as the same value; the tables in the documentation, the
/// defaults and the answers of the server are all made with it.
pub(super) trait Kind {
    /// What is kept in [`super::Settings`].
    type Value;
    /// Stands for the value in the help text, such as `<BYTES>`.
    const PLACEHOLDER: &'static str;
    /// What was expected, for error messages.
    const EXPECTED: &'static str;
    /// Whether the value must not be shown.
    const IS_SECRET: bool = false;
    /// Reads the value; `None` if it is not of this kind.
    fn parse(text: &str) -> Option<Self::Value>;
    /// Writes the value.
    fn show(value: &Self::Value) -> String;
}

/// A file.
pub(super) struct File;
impl Kind for File {
    type Value = PathBuf;
    const PLACEHOLDER: &'static str = "FILE";
    const EXPECTED: &'static str = Folder::EXPECTED;
    fn parse(text: &str) -> Option<PathBuf> {
        Folder::parse(text)
    }
    fn show(value: &PathBuf) -> String {
        Folder::show(value)
    }
}

/// A folder.
pub(super) struct Folder;
impl Kind for Folder {
    type Value = PathBuf;
    const PLACEHOLDER: &'static str = "DIR";
    const EXPECTED: &'static str = "a path";
    fn parse(text: &str) -> Option<PathBuf> {
        (!text.is_empty()).then(|| PathBuf::from(text))
    }
    fn show(value: &PathBuf) -> String {
        value.display().to_string()
    }
}

/// An IP address to listen on. `*` stands for every address of the machine.
pub(super) struct Address;
impl Kind for Address {
    type Value = IpAddr;
    const PLACEHOLDER: &'static str = "ADDRESS";
    const EXPECTED: &'static str = "an IPv4 or IPv6 address, such as 127.0.0.1 or ::";
    fn parse(text: &str) -> Option<IpAddr> {
        match text {
            "localhost" => Some(IpAddr::from([127, 0, 0, 1])),
            _ => text.trim_matches(['[', ']']).parse().ok(),
        }
    }
    fn show(value: &IpAddr) -> String {
        value.to_string()
    }
}

/// Names of hosts, with commas between them; `*` stands for every name.
pub(super) struct Hosts;
impl Kind for Hosts {
    type Value = Vec<String>;
    const PLACEHOLDER: &'static str = "NAMES";
    const EXPECTED: &'static str =
        "names of hosts with commas between them, such as zoo1.example,zoo; or * for all";
    fn parse(text: &str) -> Option<Vec<String>> {
        let is_name = |name: &str| {
            let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            name == "*" || name.bytes().all(may_be)
        };
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(|name| is_name(name).then(|| name.to_ascii_lowercase())).collect()
    }
    fn show(value: &Vec<String>) -> String {
        value.join(",")
    }
}

/// A TCP port.
pub(super) struct Port;
impl Kind for Port {
    type Value = u16;
    const PLACEHOLDER: &'static str = "PORT";
    const EXPECTED: &'static str = "a port, 0 to 65535";
    fn parse(text: &str) -> Option<u16> {
        text.parse().ok()
    }
    fn show(value: &u16) -> String {
        value.to_string()
    }
}

/// A number of things.
pub(super) struct Count;
impl Kind for Count {
    type Value = u32;
    const PLACEHOLDER: &'static str = "N";
    const EXPECTED: &'static str = "a whole number, 0 to 4294967295";
    fn parse(text: &str) -> Option<u32> {
        text.replace('_', "").parse().ok()
    }
    fn show(value: &u32) -> String {
        value.to_string()
    }
}

/// A size in bytes: a number, by itself or with one of `KiB`, `MiB`, `GiB` (or `K`, `M`, `G`).
pub(super) struct Bytes;
impl Kind for Bytes {
    type Value = u64;
    const PLACEHOLDER: &'static str = "BYTES";
    const EXPECTED: &'static str = "a size such as 1048575, 512KiB, 64MiB or 4GiB";
    fn parse(text: &str) -> Option<u64> {
        let (number, unit) = split_unit(text);
        let factor: u64 = match unit {
            "" | "B" => 1,
            "K" | "KiB" => 1 << 10,
            "M" | "MiB" => 1 << 20,
            "G" | "GiB" => 1 << 30,
            // ZooKeeper takes sizes in hexadecimal too: 0xfffff is its usual jute.maxbuffer.
            _ => return u64::from_str_radix(text.strip_prefix("0x")?, 16).ok(),
        };
        number.parse::<u64>().ok()?.checked_mul(factor)
    }
    fn show(value: &u64) -> String {
        for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if *value > 0 && value.trailing_zeros() >= shift {
                return format!("{}{unit}", value >> shift);
            }
        }
        value.to_string()
    }
}

/// A hundred years: no time is longer, so that none overflows when it is added to another.
const TIME_MAX_MS: u64 = 100 * 365 * 24 * 3_600_000;

/// A length of time: a number of milliseconds, or a number with one of `ms`, `s`, `m`, `h`.
pub(super) struct Time;
impl Kind for Time {
    type Value = Duration;
    const PLACEHOLDER: &'static str = "TIME";
    const EXPECTED: &'static str = "a time such as 2000 (milliseconds), 500ms, 30s, 5m or 1h";
    fn parse(text: &str) -> Option<Duration> {
        let (number, unit) = split_unit(text);
        let factor_ms: u64 = match unit {
            "" | "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        let ms = number.parse::<u64>().ok()?.checked_mul(factor_ms)?;
        (ms <= TIME_MAX_MS).then(|| Duration::from_millis(ms))
    }
    fn show(value: &Duration) -> String {
        let ms = value.as_millis();
        match ms {
            0 => "0".to_owned(),
            _ if ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
            _ if ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
            _ if ms.is_multiple_of(1_000) => format!("{}s", ms / 1_000),
            _ => format!("{ms}ms"),
        }
    }
}

fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (&text[..digits], text[digits..].trim_start())
}

/// Yes or no.
pub(super) struct Flag;
impl Kind for Flag {
    type Value = bool;
    const PLACEHOLDER: &'static str = "true|false";
    const EXPECTED: &'static str = "true or false (yes, no, on and off do too)";
    fn parse(text: &str) -> Option<bool> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Some(true),
            "false" | "no" | "off" => Some(false),
            _ => None,
        }
    }
    fn show(value: &bool) -> String {
        value.to_string()
    }
}

/// A digest credential, `user:base64(hash(user:password))`. Shown as `set`, never as what it is.
pub(super) struct Credential;
impl Kind for Credential {
    type Value = String;
    const PLACEHOLDER: &'static str = "USER:HASH";
    const EXPECTED: &'static str =
        "user:base64(hash(user:password)), as ZooKeeper's digest generator prints it";
    const IS_SECRET: bool = true;
    fn parse(text: &str) -> Option<String> {
        let (user, hash) = text.split_once(':')?;
        (!user.is_empty() && !hash.is_empty()).then(|| text.to_owned())
    }
    fn show(_: &String) -> String {
        "set".to_owned()
    }
}

/// A secret that several servers share. Shown as `set`, never as what it is.
pub(super) struct Secret;
/// Longer than any secret that somebody keeps in a setting.
pub(super) const SECRET_BYTES_MAX: usize = 1024;
impl Kind for Secret {
    type Value = String;
    const PLACEHOLDER: &'static str = "SECRET";
    const EXPECTED: &'static str = "a secret of 1 to 1024 bytes on one line";
    const IS_SECRET: bool = true;
    fn parse(text: &str) -> Option<String> {
        let fits = (1..=SECRET_BYTES_MAX).contains(&text.len()) && !text.contains(['\n', '\r']);
        fits.then(|| text.to_owned())
    }
    fn show(_: &String) -> String {
        "set".to_owned()
    }
}

/// Some text on one line.
pub(super) struct Text;
/// Longer than what anybody is called.
const TEXT_BYTES_MAX: usize = 4096;
impl Kind for Text {
    type Value = String;
    const PLACEHOLDER: &'static str = "TEXT";
    const EXPECTED: &'static str = "a text of up to 4096 bytes on one line";
    fn parse(text: &str) -> Option<String> {
        (text.len() <= TEXT_BYTES_MAX && !text.contains(['\n', '\r'])).then(|| text.to_owned())
    }
    fn show(value: &String) -> String {
        value.clone()
    }
}

/// Names with commas between them.
pub(super) struct NameList;
impl Kind for NameList {
    type Value = Vec<String>;
    const PLACEHOLDER: &'static str = "NAMES";
    const EXPECTED: &'static str = "names with commas between them";
    fn parse(text: &str) -> Option<Vec<String>> {
        let names = Text::parse(text)?;
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        Some(names.map(str::to_owned).collect())
    }
    fn show(value: &Vec<String>) -> String {
        value.join(",")
    }
}

/// Which four-letter words are answered: names with commas between them, or `*` for all.
pub(super) struct Words;
impl Kind for Words {
    type Value = Vec<Word>;
    const PLACEHOLDER: &'static str = "WORDS";
    const EXPECTED: &'static str =
        "four-letter words with commas between them, such as srvr,mntr,ruok; or * for all";
    fn parse(text: &str) -> Option<Vec<Word>> {
        let names: Vec<&str> = text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        if names.contains(&"*") {
            return Some(Word::ALL.to_vec());
        }
        names.into_iter().map(Word::from_name).collect()
    }
    fn show(value: &Vec<Word>) -> String {
        if value.len() == Word::ALL.len() {
            return "*".to_owned();
        }
        value.iter().map(|word| word.name()).collect::<Vec<_>>().join(",")
    }
}

/// A setting that has no value of its own until one is given.
pub(super) struct Maybe<K>(std::marker::PhantomData<K>);
impl<K: Kind> Kind for Maybe<K> {
    type Value = Option<K::Value>;
    const PLACEHOLDER: &'static str = K::PLACEHOLDER;
    const EXPECTED: &'static str = K::EXPECTED;
    const IS_SECRET: bool = K::IS_SECRET;
    fn parse(text: &str) -> Option<Option<K::Value>> {
        match text {
            "" => Some(None),
            _ => K::parse(text).map(Some),
        }
    }
    fn show(value: &Option<K::Value>) -> String {
        value.as_ref().map(K::show).unwrap_or_default()
    }
}

/// The hash behind the digest scheme, by the names that Java has for them.
pub(super) struct DigestHash;
/// The name that is shown, and the others.
const HASHES: [(DigestAlgorithm, &str, &[&str]); 9] = [
    (DigestAlgorithm::Sha1, "SHA1", &["SHA-1", "SHA"]),
    (DigestAlgorithm::Sha224, "SHA-224", &["SHA224"]),
    (DigestAlgorithm::Sha256, "SHA-256", &["SHA256"]),
    (DigestAlgorithm::Sha384, "SHA-384", &["SHA384"]),
    (DigestAlgorithm::Sha512, "SHA-512", &["SHA512"]),
    (DigestAlgorithm::Sha3With224, "SHA3-224", &[]),
    (DigestAlgorithm::Sha3With256, "SHA3-256", &[]),
    (DigestAlgorithm::Sha3With384, "SHA3-384", &[]),
    (DigestAlgorithm::Sha3With512, "SHA3-512", &[]),
];
impl Kind for DigestHash {
    type Value = DigestAlgorithm;
    const PLACEHOLDER: &'static str = "ALGORITHM";
    const EXPECTED: &'static str =
        "one of SHA1 SHA-224 SHA-256 SHA-384 SHA-512 SHA3-224 SHA3-256 SHA3-384 SHA3-512";
    fn parse(text: &str) -> Option<DigestAlgorithm> {
        let is_one = |name: &&str| name.eq_ignore_ascii_case(text);
        HASHES
            .iter()
            .find(|(_, name, others)| is_one(name) || others.iter().any(is_one))
            .map(|(hash, ..)| *hash)
    }
    fn show(value: &DigestAlgorithm) -> String {
        HASHES.iter().find(|(hash, ..)| hash == value).map_or("", |(_, name, _)| *name).to_owned()
    }
}

/// A closed list of names, each standing for a value.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident, $placeholder:literal { $($(#[$value_doc:meta])* $value:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$value_doc])* $value),+ }
        impl $name {
            /// The name that the setting takes.
            pub fn name(self) -> &'static str {
                match self { $(Self::$value => $text),+ }
            }
        }
        impl Kind for $name {
            type Value = $name;
            const PLACEHOLDER: &'static str = $placeholder;
            const EXPECTED: &'static str = concat!("one of" $(, " ", $text)+);
            fn parse(text: &str) -> Option<$name> {
                $(if text.eq_ignore_ascii_case($text) { return Some($name::$value); })+
                None
            }
            fn show(value: &$name) -> String { value.name().to_owned() }
        }
    };
}

choice! {
    /// How log lines look.
    LogFormat, "FORMAT" {
        /// For people.
        Text = "text",
        /// One JSON object a line, for machines.
        Json = "json",
    }
}

choice! {
    /// What becomes of an event for which the queue of the audit log has no room.
    AuditFull, "WHAT" {
        /// It is lost, and counted.
        Drop = "drop",
        /// Whatever caused it waits, and all other requests of the partition with it.
        Block = "block",
    }
}

choice! {
    /// How much is logged.
    LogLevel, "LEVEL" {
        /// Only what needs somebody's attention now.
        Error = "error",
        /// Also what may need it later.
        Warn = "warn",
        /// Also what an operator likes to know: start, stop, snapshots.
        Info = "info",
        /// Also each connection and session.
        Debug = "debug",
        /// Also each request.
        Trace = "trace",
    }
}

choice! {
    /// Whether clients connect to a port with TLS.
    TlsOnPort, "WHETHER" {
        /// None do.
        No = "no",
        /// Those who begin with it, beside those who do not.
        Also = "also",
        /// All do.
        Only = "only",
    }
}

choice! {
    /// Whether clients with TLS show certificates.
    ClientCertificates, "WHETHER" {
        /// They are not asked for one.
        None = "none",
        /// They may.
        Want = "want",
        /// They have to.
        Need = "need",
    }
}
