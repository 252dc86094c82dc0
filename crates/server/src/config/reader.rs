//! What makes a server a reader: whom it may follow, and what goes with that.

use std::fmt;

use super::ensemble::EnsembleSettings;
use super::error::ConfigError;
use super::kind::Kind;
use super::member::{Host, parse_port, split_host};
use super::settings::Settings;

/// A reader's number where a number is asked for: that of no member of an ensemble with readers.
pub(crate) const READER_ID: u8 = u8::MAX;

/// Where a server listens that may be a reader's parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentAddress {
    /// A name or address; an IPv6 address is without brackets.
    pub host: String,
    /// The port for other servers.
    pub port: u16,
}

impl fmt::Display for ParentAddress {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}:{}", Host(&self.host), self.port)
    }
}

/// Addresses of parents, with commas between them.
pub(super) struct Parents;
impl Kind for Parents {
    type Value = Vec<ParentAddress>;
    const PLACEHOLDER: &'static str = "HOST:PORT,...";
    const EXPECTED: &'static str = "where servers listen for each other, with commas between them, such as a.example:2888,b.example:2888";
    fn parse(text: &str) -> Option<Vec<ParentAddress>> {
        let parent = |text: &str| {
            let (host, port) = split_host(text)?;
            Some(ParentAddress { host, port: parse_port(port.trim())? })
        };
        text.split(',').map(str::trim).filter(|parent| !parent.is_empty()).map(parent).collect()
    }
    fn show(value: &Vec<ParentAddress>) -> String {
        value.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

impl Settings {
    /// Whether this server belongs to no ensemble, to begin with, and follows a parent.
    pub fn is_reader(&self) -> bool {
        !self.reader_of.is_empty() && self.servers.is_empty()
    }

    /// Whether there are other servers that this one has to do with.
    pub fn has_others(&self) -> bool {
        !self.servers.is_empty() || self.is_reader()
    }
}

impl EnsembleSettings<'_> {
    /// A reader has no part in an ensemble. Returns what has no effect, and what is dangerous.
    pub(super) fn check_reader(&self) -> Result<Vec<String>, ConfigError> {
        let settings = &*self.settings;
        let is_open = settings.max_readers > 0 && settings.peer_secret.is_none() && !settings.has_peer_tls();
        let open = is_open.then(|| {
            format!(
                "{}: everybody who reaches the port for other servers may be a reader, who reads everything and writes in the \
                 name of every client: set peer-secret, or peer-tls-certificate and what belongs to it, on all servers",
                self.place("max-readers")
            )
        });
        let mut warnings: Vec<String> = open.into_iter().collect();
        if settings.reader_of.is_empty() {
            if self.is_set("reader-port") {
                let place = self.place("reader-port");
                warnings.push(format!("{place} has no effect: reader-of is not set, so this is no reader"));
            }
            return Ok(warnings);
        }
        if settings.site.is_some() && settings.server_id.is_none() {
            let why = "site is set too, and a reader hears from its parent of which site it is: leave site out, or set \
                       server-id if this server is to become a member";
            return self.refuse("reader-of", why);
        }
        if settings.join && settings.servers.is_empty() {
            let place = self.place("join");
            warnings.push(format!(
                "{place} has no effect: who follows a parent joins when the list of servers names it"
            ));
        }
        if settings.servers.is_empty() && settings.max_readers > 0 && settings.reader_port == 0 {
            let place = self.place("max-readers");
            warnings.push(format!("{place} has no effect: this is a reader, and reader-port is not set"));
        }
        Ok(warnings)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::load::{Loaded, Machine, by_key, resolve};
    use super::*;

    fn load(flags: &[(&str, &str)]) -> Result<Loaded, String> {
        let flags: Vec<(usize, String)> =
            flags.iter().map(|(key, text)| (by_key(key).unwrap(), (*text).to_owned())).collect();
        let read = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
        resolve(&flags, &[], None, Machine { read: &read, host: "" }).map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_of_parents_read_back_as_they_are_written() {
        let text = "zoo1.example:2888,[2001:db8::1]:2889";
        let parents = Parents::parse(text).unwrap();
        assert_eq!(Parents::show(&parents), text);
        assert_eq!((parents[1].host.as_str(), parents[1].port), ("2001:db8::1", 2889));
        assert_eq!(Parents::parse(" a:1 , b:2,"), Parents::parse("a:1,b:2"));
        assert_eq!(Parents::parse(""), Some(Vec::new()));
        for text in ["a", "a:", "a:0", ":1", "a:1:2", "a:x", "::1:1", "a b:1", "a:1;b:2"] {
            assert_eq!(Parents::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_reader_belongs_to_no_ensemble() {
        let reader = ("reader-of", "a:2888,b:2888");
        let loaded = load(&[reader]).unwrap();
        assert!(loaded.settings.is_reader() && loaded.settings.has_others() && loaded.warnings.is_empty());
        let refused = load(&[reader, ("site", "x")]).unwrap_err();
        assert!(refused.contains("a reader hears from its parent of which site it is"), "{refused}");
        let member_to_be = load(&[
            reader,
            ("server-id", "4"),
            ("site", "x"),
            ("sites", "y=a:1,x=b:1"),
            ("site-tls-certificate", "c"),
            ("site-tls-authority", "a"),
        ]);
        assert!(member_to_be.unwrap().settings.is_reader());
        let vain = load(&[reader, ("join", "true"), ("max-readers", "5"), ("peer-secret", "x")]).unwrap();
        assert!(vain.warnings[0].contains("--join has no effect"), "{:?}", vain.warnings);
        assert!(vain.warnings[1].contains("--max-readers has no effect"), "{:?}", vain.warnings);
        // One with a number may become a member, and one in the list may have parents for when it is taken out.
        let may_join = load(&[reader, ("server-id", "4")]).unwrap();
        assert!(may_join.settings.is_reader() && may_join.warnings.is_empty(), "{:?}", may_join.warnings);
        let member = load(&[reader, ("servers", "1=a:2888"), ("server-id", "1")]).unwrap();
        assert!(!member.settings.is_reader() && member.warnings.is_empty(), "{:?}", member.warnings);
        let vain = load(&[("reader-port", "2888")]).unwrap().warnings;
        assert!(vain[0].contains("--reader-port has no effect: reader-of is not set"), "{vain:?}");
        assert!(!Settings::default().is_reader());
    }

    #[test]
    fn whoever_lets_readers_in_without_a_proof_is_warned() {
        let member = ("servers", "1=a:2888");
        let warned = |more: &[(&'static str, &'static str)]| {
            let warnings = load(&[&[member, ("max-readers", "5")], more].concat()).unwrap().warnings;
            warnings.iter().any(|warning| warning.contains("may be a reader, who reads everything"))
        };
        assert!(warned(&[]));
        assert!(!warned(&[("peer-secret", "x")]));
        assert!(!warned(&[("peer-tls-certificate", "c"), ("peer-tls-authority", "a")]));
        assert!(load(&[member]).unwrap().warnings.is_empty());
    }
}
