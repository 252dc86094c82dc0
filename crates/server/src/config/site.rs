//! The sites that have one tree together: how settings name them, and whether what is said of them fits together.

use std::fmt;
use std::net::IpAddr;

use super::ensemble::EnsembleSettings;
use super::error::ConfigError;
use super::kind::Kind;
use super::member::{Host, parse_port, split_host};
use super::settings::Settings;
use stoa_core::PolicyKind;

/// A zxid has five bits for the site that made it, and one of their values is no site's.
const SITES_MAX: usize = 31;
pub(crate) const SITE_NAME_BYTES_MAX: usize = 32;
/// What has no effect where there are no sites.
const OF_SITES: [&str; 9] = [
    "site-policy",
    "site-automatic-promotion",
    "site-port",
    "site-bind",
    "site-backlog-bytes",
    "site-tls-certificate",
    "site-tls-key",
    "site-tls-authority",
    "site-tls-revoked",
];

/// A site, and where its servers listen for other sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteAddresses {
    /// What it is called; no two sites have the same name.
    pub name: String,
    /// The hosts and ports of its servers, at least one; an IPv6 address is without brackets.
    pub servers: Vec<(String, u16)>,
}

impl SiteAddresses {
    /// Reads `NAME=HOST:PORT[|HOST:PORT...]`.
    pub(crate) fn parse(text: &str) -> Option<SiteAddresses> {
        let (name, servers) = text.split_once('=')?;
        let address = |text: &str| {
            let (host, port) = split_host(text.trim())?;
            Some((host, parse_port(port.trim())?))
        };
        let servers = servers.split('|').map(address).collect::<Option<_>>()?;
        Some(SiteAddresses { name: SiteName::parse(name.trim())?, servers })
    }
}

impl fmt::Display for SiteAddresses {
    /// As it would be read.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = |(host, port): &(String, u16)| format!("{}:{port}", Host(host));
        let addresses: Vec<String> = self.servers.iter().map(address).collect();
        write!(to, "{}={}", self.name, addresses.join("|"))
    }
}

/// What a site is called.
pub(super) struct SiteName;
impl Kind for SiteName {
    type Value = String;
    const PLACEHOLDER: &'static str = "NAME";
    const EXPECTED: &'static str =
        "the name of a site: 1 to 32 of a-z, 0-9 and -, beginning with a letter, such as frankfurt";
    fn parse(text: &str) -> Option<String> {
        let may_be = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_name = text.len() <= SITE_NAME_BYTES_MAX
            && text.bytes().next().is_some_and(|first| first.is_ascii_lowercase())
            && text.bytes().all(may_be);
        is_name.then(|| text.to_owned())
    }
    fn show(value: &String) -> String {
        value.clone()
    }
}

/// All sites, with commas between them.
pub(super) struct SiteList;
impl Kind for SiteList {
    type Value = Vec<SiteAddresses>;
    const PLACEHOLDER: &'static str = "NAME=HOST:PORT,...";
    const EXPECTED: &'static str = "sites such as virginia=a.example:2889|b.example:2889,frankfurt=c.example:2889, \
        each a name (1 to 32 of a-z, 0-9 and -, beginning with a letter) and HOST:PORT of its servers";
    fn parse(text: &str) -> Option<Vec<SiteAddresses>> {
        let sites = text.split(',').map(str::trim).filter(|site| !site.is_empty());
        sites.map(SiteAddresses::parse).collect()
    }
    fn show(value: &Vec<SiteAddresses>) -> String {
        value.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

/// How the hub decides which site holds a token.
pub(super) struct SitePolicy;
impl Kind for SitePolicy {
    type Value = PolicyKind;
    const PLACEHOLDER: &'static str = "POLICY";
    const EXPECTED: &'static str =
        "expected, hub, or consecutive with a number from 1 to 65535, such as consecutive 2";
    fn parse(text: &str) -> Option<PolicyKind> {
        match text.split_whitespace().collect::<Vec<_>>()[..] {
            ["expected"] => Some(PolicyKind::Expected),
            ["hub"] => Some(PolicyKind::Hub),
            ["consecutive", count] => {
                let is_number = count.bytes().all(|byte| byte.is_ascii_digit());
                let count = count.parse().ok().filter(|count| is_number && *count > 0)?;
                Some(PolicyKind::Consecutive(count))
            }
            _ => None,
        }
    }
    fn show(value: &PolicyKind) -> String {
        match value {
            PolicyKind::Expected => "expected".to_owned(),
            PolicyKind::Hub => "hub".to_owned(),
            PolicyKind::Consecutive(count) => format!("consecutive {count}"),
        }
    }
}

impl Settings {
    /// This server's site among all; none if there are no sites.
    pub fn own_site(&self) -> Option<&SiteAddresses> {
        let name = self.site.as_ref()?;
        self.sites.iter().find(|site| site.name == *name)
    }

    /// The site through which all others hear of each other; none if there are no sites.
    pub fn hub(&self) -> Option<&SiteAddresses> {
        self.own_site().and_then(|_| self.sites.first())
    }

    /// Whether this server's site is the hub.
    pub fn is_at_hub(&self) -> bool {
        self.own_site().is_some() && self.own_site() == self.hub()
    }

    /// Where it listens for the leaders of other sites.
    pub fn site_address(&self) -> IpAddr {
        self.site_bind.unwrap_or(self.bind)
    }
}

impl EnsembleSettings<'_> {
    /// Checks what is said of sites.
    pub(super) fn check_sites(&self) -> Result<(), ConfigError> {
        self.check_site_list()?;
        let settings = &*self.settings;
        let Some(name) = &settings.site else {
            if settings.sites.is_empty() {
                return Ok(());
            }
            let why = "site is not set: say with it which of these is this server's, or leave sites out";
            return self.refuse("sites", why);
        };
        if settings.sites.is_empty() {
            let why = "sites is not set: list all sites with it, this one among them and the hub first";
            return self.refuse("site", why);
        }
        if settings.own_site().is_none() {
            let names: Vec<&str> = settings.sites.iter().map(|site| site.name.as_str()).collect();
            let why = format!("this server's site is {name}, but the sites are {}", names.join(", "));
            return self.refuse("site", why);
        }
        self.check_site_tls()?;
        if settings.is_at_hub() && settings.site_port == 0 {
            let why = format!(
                "{name} is the hub, the first of sites, to which all other sites connect: set site-port to the port \
                 on which this server listens for them"
            );
            return self.refuse("site", why);
        }
        self.check_what_sites_have_not()
    }

    fn check_site_list(&self) -> Result<(), ConfigError> {
        let sites = &self.settings.sites;
        if sites.len() > SITES_MAX {
            let why = format!("there are {} sites, and {SITES_MAX} is the most that can be", sites.len());
            return self.refuse("sites", why);
        }
        for (index, site) in sites.iter().enumerate() {
            if sites[..index].iter().any(|other| other.name == site.name) {
                let why = format!(
                    "two sites are called {}; each needs a name of its own, and has all its servers behind it with | \
                     between them",
                    site.name
                );
                return self.refuse("sites", why);
            }
        }
        Ok(())
    }

    fn check_site_tls(&self) -> Result<(), ConfigError> {
        let settings = &*self.settings;
        let needed = [
            ("site-tls-certificate", &settings.site_tls_certificate),
            ("site-tls-authority", &settings.site_tls_authority),
        ];
        let Some((missing, _)) = needed.iter().find(|(_, file)| file.is_none()) else { return Ok(()) };
        let why = format!(
            "{missing} is not set: sites are connected by TLS only, with certificates on both sides; `stoa certificate` \
             makes them for a trial"
        );
        self.refuse("site", why)
    }

    fn check_what_sites_have_not(&self) -> Result<(), ConfigError> {
        let settings = &*self.settings;
        if settings.local_sessions {
            let why = "the other sites do not know of local sessions as yet: set local-sessions \
                       (localSessionsEnabled in a zoo.cfg) to false, or leave site and sites out";
            return self.refuse("local-sessions", why);
        }
        Ok(())
    }

    /// What is said for sites where there are none.
    pub(super) fn site_settings_in_vain(&self) -> Option<String> {
        let key = OF_SITES.into_iter().find(|key| self.is_set(key))?;
        let vain =
            format!("{} has no effect: site is not set, so that there are no other sites", self.place(key));
        self.settings.site.is_none().then_some(vain)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::load::{Loaded, Machine, by_key, resolve};
    use super::*;

    const SITES: &str = "virginia=a:2889|[2001:db8::1]:2890,frankfurt=c:2889";

    /// A server of the hub, as little as that takes.
    const HUB: [(&str, &str); 5] = [
        ("site", "virginia"),
        ("sites", SITES),
        ("site-port", "2889"),
        ("site-tls-certificate", "c"),
        ("site-tls-authority", "a"),
    ];

    fn load(flags: &[(&str, &str)]) -> Result<Loaded, String> {
        let flags: Vec<(usize, String)> =
            flags.iter().map(|(key, text)| (by_key(key).unwrap(), (*text).to_owned())).collect();
        let read = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
        resolve(&flags, &[], None, Machine { read: &read, host: "" }).map_err(|error| error.to_string())
    }

    /// What is said of the hub's server with a setting left out, and others set in place of its own.
    fn error(without: &str, others: &[(&'static str, &'static str)]) -> String {
        let kept = HUB.into_iter().filter(|(key, _)| *key != without);
        load(&kept.chain(others.iter().copied()).collect::<Vec<_>>()).unwrap_err()
    }

    #[test]
    fn a_site_has_a_name_for_people() {
        for name in ["a", "eu-west-1", "frankfurt", &"a".repeat(32)] {
            assert_eq!(SiteName::parse(name).as_deref(), Some(name));
        }
        for name in ["", "1a", "-a", "A", "a_b", "a.b", "ä", "a b", &"a".repeat(33)] {
            assert_eq!(SiteName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn sites_read_back_as_they_are_written() {
        let sites = SiteList::parse(SITES).unwrap();
        assert_eq!(SiteList::show(&sites), SITES);
        assert_eq!(sites[0].servers, [("a".to_owned(), 2889), ("2001:db8::1".to_owned(), 2890)]);
        assert_eq!(SiteList::parse(" virginia = a : 1 | b:2 , "), SiteList::parse("virginia=a:1|b:2"));
        assert_eq!(SiteList::parse(""), Some(Vec::new()));
        for text in
            ["a", "a=", "=h:1", "a=h", "a=h:0", "a=h:1|", "a=h:1:2", "A=h:1", "a=::1:1", "a=h:1,b", "a=h/:1"]
        {
            assert_eq!(SiteList::parse(text), None, "{text}");
        }
    }

    #[test]
    fn policies_read_back_as_they_are_written() {
        for text in ["expected", "hub", "consecutive 1", "consecutive 2", "consecutive 65535"] {
            assert_eq!(SitePolicy::show(&SitePolicy::parse(text).unwrap()), text);
        }
        assert_eq!(SitePolicy::parse(" consecutive  3 "), Some(PolicyKind::Consecutive(3)));
        for text in [
            "",
            "consecutive",
            "consecutive 0",
            "consecutive 65536",
            "consecutive -1",
            "consecutive +1",
            "consecutive 2 2",
            "hub 2",
            "Expected",
            "paper",
        ] {
            assert_eq!(SitePolicy::parse(text), None, "{text}");
        }
        assert_eq!(load(&HUB).unwrap().settings.site_policy, PolicyKind::Expected);
        let vain = load(&[("site-policy", "hub")]).unwrap().warnings;
        assert!(vain[0].starts_with("flag --site-policy has no effect: site is not set"), "{vain:?}");
        assert!(
            error("", &[("site-policy", "paper")]).contains("expected, hub, or consecutive with a number")
        );
    }

    #[test]
    fn a_server_knows_its_site_and_the_hub() {
        let hub = load(&HUB).unwrap();
        assert!(hub.settings.is_at_hub());
        assert_eq!((&hub.settings.site_address(), hub.warnings.len()), (&hub.settings.bind, 0));
        let leaf =
            load(&[&HUB[1..], &[("site", "frankfurt"), ("site-port", "0"), ("site-bind", "::1")]].concat());
        let leaf = leaf.unwrap().settings;
        assert_eq!((leaf.own_site(), leaf.hub()), (leaf.sites.last(), leaf.sites.first()));
        assert!(!leaf.is_at_hub() && leaf.site_address().is_loopback());
        assert!(
            load(&[&HUB[2..], &[("site", "one"), ("sites", "one=a:1")]].concat()).is_ok(),
            "more may come"
        );
        let none = Settings::default();
        assert_eq!((none.own_site(), none.hub(), none.is_at_hub()), (None, None, false));
    }

    #[test]
    fn what_is_missing_is_said() {
        assert_eq!(
            error("sites", &[]),
            "flag --site: sites is not set: list all sites with it, this one among them and the hub first"
        );
        assert!(error("site", &[]).starts_with("flag --sites: site is not set"));
        assert_eq!(
            error("site", &[("site", "california")]),
            "flag --site: this server's site is california, but the sites are virginia, frankfurt"
        );
        for file in ["site-tls-certificate", "site-tls-authority"] {
            assert!(error(file, &[]).starts_with(&format!("flag --site: {file} is not set: sites are")));
        }
        assert!(error("site-port", &[]).starts_with("flag --site: virginia is the hub"));
        let vain = load(&HUB[2..]).unwrap().warnings;
        assert_eq!(
            vain,
            ["flag --site-port has no effect: site is not set, so that there are no other sites"]
        );
    }

    #[test]
    fn what_does_not_fit_sites_is_refused() {
        assert!(
            error("sites", &[("sites", "virginia=a:1,virginia=b:1")])
                .contains("two sites are called virginia")
        );
        for count in [31, 32] {
            let sites: Vec<String> = (1..count).map(|number| format!("s{number}=h:1")).collect();
            let sites = format!("virginia=a:1,{}", sites.join(","));
            let loaded = load(&[&HUB[..1], &HUB[2..], &[("sites", &sites)]].concat());
            assert_eq!(loaded.is_ok(), count == 31, "{count}");
        }
        assert_eq!(load(&HUB).unwrap().settings.partitions, None, "one, if nothing is said");
        for partitions in ["1", "2", "auto"] {
            assert!(load(&[&HUB[..], &[("partitions", partitions)]].concat()).is_ok(), "{partitions}");
        }
        assert!(
            error("", &[("local-sessions", "true")]).starts_with("flag --local-sessions: the other sites")
        );
    }
}
