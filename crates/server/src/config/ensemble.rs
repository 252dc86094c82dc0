//! What the settings of an ensemble leave to files and to each other: which of the servers this one is,
//! where it serves clients, and the secret. Then whether they fit together.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use super::error::{ConfigError, Place, Problem};
use super::java;
use super::kind::{Address, Kind, Secret};
use super::load::{Machine, by_key};
use super::member::{MemberRole, OF_TTL, ServerId};
use super::settings::Settings;

/// What a forest may have at most.
const TREES_MAX: u32 = 16;
const CHILDREN_MAX: u32 = 64;

/// The file in the data folder that says which server this is, as ZooKeeper has it.
const MY_ID: &str = "myid";

/// The settings under way, with the place where each was found.
pub(super) struct EnsembleSettings<'a> {
    pub(super) settings: &'a mut Settings,
    /// In the order of the table of settings.
    pub(super) places: &'a mut [Place],
    pub(super) machine: Machine<'a>,
    /// What was found out where nobody has said it.
    pub(super) notes: Vec<String>,
}

impl EnsembleSettings<'_> {
    /// Fills in what follows from files and from this server's own line, and checks the rest.
    pub(super) fn complete(&mut self) -> Result<Vec<String>, ConfigError> {
        self.read_secret()?;
        self.read_passwords()?;
        self.check_tls()?;
        self.check_times()?;
        self.check_ttl()?;
        self.check_forest()?;
        // First: who is a reader is told that it need not say which sites there are.
        let of_reader = self.check_reader()?;
        self.check_sites()?;
        let vain = self.site_settings_in_vain();
        let warnings = self.complete_client_tls()?.into_iter().chain(vain).chain(of_reader);
        if self.settings.servers.is_empty() {
            let alone = "server-id has no effect: there are no servers, so that this one stands alone";
            let alone =
                self.settings.server_id.filter(|_| !self.settings.is_reader()).map(|_| alone.to_owned());
            return Ok(warnings.chain(alone).collect());
        }
        self.check_servers()?;
        self.find_id()?;
        self.take_client_address()?;
        Ok(warnings.chain(self.warnings()).collect())
    }

    pub(super) fn place(&self, key: &str) -> &Place {
        &self.places[by_key(key).expect("the key is in the table")]
    }

    pub(super) fn is_set(&self, key: &str) -> bool {
        !matches!(self.place(key), Place::Default(_))
    }

    pub(super) fn refuse<T>(&self, key: &str, why: impl Into<String>) -> Result<T, ConfigError> {
        Err(Problem::Refused { place: self.place(key).clone(), why: why.into() }.into())
    }

    pub(super) fn set_place(&mut self, key: &str, place: Place) {
        self.places[by_key(key).expect("the key is in the table")] = place;
    }

    fn read_secret(&mut self) -> Result<(), ConfigError> {
        let Some(file) = &self.settings.peer_secret_file else { return Ok(()) };
        if self.settings.peer_secret.is_some() {
            return self.refuse("peer-secret-file", "peer-secret is set too; leave one of them out");
        }
        let text = (self.machine.read)(file).map_err(|source| unreadable(file, source))?;
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let Some(secret) = Secret::parse(line.strip_suffix('\r').unwrap_or(line)) else {
            // What was found is not said: it may be the secret, with something around it.
            let why = format!("{} does not hold {}", file.display(), Secret::EXPECTED);
            return self.refuse("peer-secret-file", why);
        };
        self.settings.peer_secret = Some(secret);
        let place = self.place("peer-secret-file").clone();
        self.set_place("peer-secret", place);
        Ok(())
    }

    fn check_tls(&self) -> Result<(), ConfigError> {
        let settings = &*self.settings;
        let needed = [
            ("peer-tls-certificate", &settings.peer_tls_certificate),
            ("peer-tls-authority", &settings.peer_tls_authority),
        ];
        let more =
            [("peer-tls-key", &settings.peer_tls_key), ("peer-tls-revoked", &settings.peer_tls_revoked)];
        let missing = needed.iter().find(|(_, file)| file.is_none());
        let given = needed.iter().chain(&more).find(|(_, file)| file.is_some());
        if let (Some((missing, _)), Some((given, _))) = (missing, given) {
            let why =
                format!("{missing} is not set; TLS between servers takes a certificate and an authority");
            return self.refuse(given, why);
        }
        Ok(())
    }

    fn check_times(&self) -> Result<(), ConfigError> {
        let (heartbeat, timeout) = (self.settings.heartbeat, self.settings.election_timeout);
        if heartbeat.is_zero() {
            return self.refuse("heartbeat", "expected a time above zero, found 0");
        }
        // Fewer, and one late heartbeat on a busy machine costs an ensemble its leader.
        if timeout < heartbeat * 4 {
            let key = if self.is_set("election-timeout") { "election-timeout" } else { "heartbeat" };
            let (heartbeat, timeout) = (heartbeat.as_millis(), timeout.as_millis());
            let why = format!(
                "an election timeout of {timeout} ms with heartbeats every {heartbeat} ms: election-timeout \
                 must be at least four times heartbeat"
            );
            return self.refuse(key, why);
        }
        Ok(())
    }

    /// What a session of this server owns would look like TTL znodes.
    fn check_ttl(&self) -> Result<(), ConfigError> {
        let is_in_list = self.settings.servers.iter().any(|member| member.id == OF_TTL);
        if !self.settings.extended_types || !(is_in_list || self.settings.server_id == Some(OF_TTL)) {
            return Ok(());
        }
        let why = format!(
            "no server may have the id {OF_TTL} where there are TTL znodes, of which it is the mark: give it another \
             one, or set extended-types (extendedTypesEnabled in a zoo.cfg) to false on all servers"
        );
        self.refuse(if is_in_list { "servers" } else { "server-id" }, why)
    }

    fn check_forest(&self) -> Result<(), ConfigError> {
        let Settings { forest_servers_min, forest_trees, forest_children, .. } = *self.settings;
        if forest_servers_min == 0 || self.settings.forest().is_some() {
            return Ok(());
        }
        if !(1..=TREES_MAX).contains(&forest_trees) {
            let why = format!("expected 1 to {TREES_MAX} trees, found {forest_trees}");
            return self.refuse("forest-trees", why);
        }
        let key = if self.is_set("forest-children") { "forest-children" } else { "forest-trees" };
        let why = format!(
            "{forest_trees} trees with {forest_children} children each: forest-children is at least forest-trees, so \
             that nobody has to pass on more than comes to it, and at most {CHILDREN_MAX}"
        );
        self.refuse(key, why)
    }

    fn check_servers(&self) -> Result<(), ConfigError> {
        let servers = &self.settings.servers;
        for (index, member) in servers.iter().enumerate() {
            if servers[..index].iter().any(|other| other.id == member.id) {
                let why = format!("two servers have the id {}; each needs one of its own", member.id);
                return self.refuse("servers", why);
            }
        }
        if servers.iter().all(|member| member.role == MemberRole::Observer) {
            return self
                .refuse("servers", "all servers are observers; without a participant nobody can lead");
        }
        Ok(())
    }

    fn find_id(&mut self) -> Result<(), ConfigError> {
        let file = self.settings.data_dir.join(MY_ID);
        if self.settings.server_id.is_none() {
            match (self.machine.read)(&file) {
                Ok(text) => {
                    let line = text.lines().next().unwrap_or_default().trim();
                    let place = Place::Line { file: file.clone(), line: 1, key: "server-id".to_owned() };
                    let Some(id) = ServerId::parse(line) else {
                        let (expected, found) = (ServerId::EXPECTED.to_owned(), shorten(line));
                        return Err(Problem::Value { place, found, expected }.into());
                    };
                    self.settings.server_id = Some(id);
                    self.set_place("server-id", place);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.take_id_of_host(&file)?,
                Err(error) => return Err(unreadable(&file, error)),
            }
        }
        let ids: Vec<String> = self.settings.servers.iter().map(|member| member.id.to_string()).collect();
        let ids = ids.join(", ");
        if self.settings.own_member().is_none() {
            let id = self.settings.server_id.unwrap_or_default();
            let why = format!("this server is {id}, but the ids of the servers are {ids}");
            return self.refuse("server-id", why);
        }
        Ok(())
    }

    /// Where neither a setting nor a file says it, the name of the host may.
    fn take_id_of_host(&mut self, file: &Path) -> Result<(), ConfigError> {
        let servers = &self.settings.servers;
        // The only one there is can be no other. ZooKeeper asks for no id then either.
        if let [only] = &servers[..] {
            self.settings.server_id = Some(only.id);
            return Ok(());
        }
        let (host, file) = (self.machine.host, file.display());
        let namesakes: Vec<u8> = servers
            .iter()
            .filter(|member| are_of_one_host(&member.host, host))
            .map(|member| member.id)
            .collect();
        if let [id] = namesakes[..] {
            self.notes.push(format!(
                "server-id is {id}, since this host is called {host} as server {id} is and no other server; there is \
                 no {file}"
            ));
            self.settings.server_id = Some(id);
            self.set_place("server-id", Place::Host);
            return Ok(());
        }
        let list =
            |ids: &mut dyn Iterator<Item = u8>| ids.map(|id| id.to_string()).collect::<Vec<_>>().join(", ");
        let ids = list(&mut servers.iter().map(|member| member.id));
        let called = if namesakes.is_empty() { "none".to_owned() } else { list(&mut namesakes.into_iter()) };
        let why = format!(
            "which of the servers {ids} is this one? There is no {file}, and of the servers that are called as this \
             host, {host:?}, there has to be one, but there are: {called}. Set server-id, or write the id to {file}"
        );
        self.refuse("servers", why)
    }

    /// This server's own line says where it serves clients unless settings of their own do.
    fn take_client_address(&mut self) -> Result<(), ConfigError> {
        let Some((host, port)) = self.settings.own_member().and_then(|member| member.client.clone()) else {
            return Ok(());
        };
        if !self.is_set("port") {
            self.settings.port = port;
            let place = self.place("servers").clone();
            self.set_place("port", place);
        } else if self.settings.port != port {
            let own = self.settings.port;
            let why = format!("the client port is {own}, but {port} in this server's own line of servers");
            return self.refuse("port", why);
        }
        if self.is_set("bind") {
            return Ok(());
        }
        // Serving on every address where one was named would open the server wider than it was asked for.
        let Some(host) = host else { return Ok(()) };
        let Some(address) = client_ip(&host) else {
            let why = format!(
                "the client address of this server is the name {host}, which cannot be looked up; set bind \
                 (clientPortAddress in a zoo.cfg) to the IP address to listen on"
            );
            return self.refuse("servers", why);
        };
        self.settings.bind = if address.is_unspecified() { self.settings.bind } else { address };
        Ok(())
    }

    fn warnings(&self) -> Vec<String> {
        let participants =
            self.settings.servers.iter().filter(|member| member.role == MemberRole::Participant).count();
        if participants.is_multiple_of(2) {
            let (failures, odd) = (participants / 2 - 1, participants - 1);
            return vec![format!(
                "servers: {participants} participants stand the failure of {failures}, no more than {odd} do; \
                 an odd number is better"
            )];
        }
        Vec::new()
    }
}

/// Whether a server of the list and this host have the same name. One of them may be short of the domain, or of its
/// end; names with different domains are of different hosts, and which domains mean the same only DNS could say. It is
/// not asked: what it answers may change, and the id of a server must not.
fn are_of_one_host(server: &str, host: &str) -> bool {
    let (server, host) = (server.trim_end_matches('.'), host.trim_end_matches('.'));
    let (short, long) = if server.len() < host.len() { (server, host) } else { (host, server) };
    // Every machine is that, too.
    let is_no_name =
        short.is_empty() || short.split('.').next().is_some_and(|it| it.eq_ignore_ascii_case("localhost"));
    // Of addresses no part says anything.
    let is_address = long.parse::<IpAddr>().is_ok();
    let begins = long.get(..short.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(short));
    let rest = long.get(short.len()..).unwrap_or_default();
    !is_no_name && begins && (rest.is_empty() || rest.starts_with('.') && !is_address)
}

/// The address that clients connect to by a server's line; a name is looked up, which may take long.
pub(crate) fn client_ip(host: &str) -> Option<IpAddr> {
    Address::parse(host).or_else(|| java::address(host))
}

pub(super) fn unreadable(file: &Path, source: io::Error) -> ConfigError {
    Problem::Read { file: file.to_owned(), source }.into()
}

/// What stands in a file that may hold anything.
fn shorten(line: &str) -> String {
    const SHOWN_MAX: usize = 40;
    line.chars().take(SHOWN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::super::load::{Loaded, Origin, resolve};
    use super::*;

    const THREE: &str = "1=a:2888;2181,2=b:2888;10.0.0.2:2182,3=c:2888:observer";

    /// Loads flags, with files beside them.
    fn load(flags: &[(&str, &str)], files: &[(&str, &str)]) -> Result<Loaded, String> {
        load_at("", flags, files)
    }

    /// The same on a host with this name.
    fn load_at(host: &str, flags: &[(&str, &str)], files: &[(&str, &str)]) -> Result<Loaded, String> {
        let flags: Vec<(usize, String)> =
            flags.iter().map(|(key, text)| (by_key(key).unwrap(), (*text).to_owned())).collect();
        let files: Vec<(String, String)> =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let read = move |path: &Path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path);
            file.map(|(_, text)| text.clone()).ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        resolve(&flags, &[], None, Machine { read: &read, host }).map_err(|error| error.to_string())
    }

    fn error(flags: &[(&str, &str)], files: &[(&str, &str)]) -> String {
        load(flags, files).unwrap_err()
    }

    #[test]
    fn the_id_is_that_of_the_setting_else_that_of_the_file() {
        let file = [("./stoa-data/myid", "2\n")];
        let loaded = load(&[("servers", THREE), ("server-id", "3")], &file).unwrap();
        assert_eq!(loaded.settings.own_member().unwrap().host, "c");
        let loaded = load(&[("servers", THREE)], &file).unwrap();
        assert_eq!(loaded.settings.server_id, Some(2));
        assert!(loaded.summary().contains("server-id=2 (file)"), "{}", loaded.summary());
    }

    #[test]
    fn a_server_has_to_know_which_it_is() {
        assert_eq!(
            error(&[("servers", THREE)], &[]),
            "flag --servers: which of the servers 1, 2, 3 is this one? There is no ./stoa-data/myid, and of the \
             servers that are called as this host, \"\", there has to be one, but there are: none. Set server-id, or \
             write the id to ./stoa-data/myid"
        );
        assert_eq!(
            error(&[("servers", THREE), ("server-id", "4")], &[]),
            "flag --server-id: this server is 4, but the ids of the servers are 1, 2, 3"
        );
        assert_eq!(
            error(&[("servers", THREE)], &[("./stoa-data/myid", "two\n")]),
            "./stoa-data/myid, line 1: server-id: expected the id of a server, 0 to 255, found \"two\""
        );
        assert!(error(&[("servers", THREE)], &[("./stoa-data/myid", "")]).contains("found \"\""));
    }

    #[test]
    fn the_name_of_the_host_says_which_server_it_is_where_nothing_else_does() {
        let pods = "0=stoa-0.stoa.default.svc:2888,1=stoa-1.stoa.default.svc:2888,2=STOA-2:2888";
        let id = |host, more: &[(&'static str, &'static str)], files: &[(&str, &str)]| {
            load_at(host, &[&[("servers", pods)], more].concat(), files).map(|loaded| {
                let place = loaded.origins[by_key("server-id").unwrap()];
                (loaded.settings.server_id.unwrap(), place == Origin::Host, loaded.notes.len())
            })
        };
        for (host, expected) in [
            ("stoa-0", 0),
            ("Stoa-1.STOA.default.svc", 1),
            ("stoa-1.stoa.default.svc.cluster.local", 1),
            ("stoa-2.stoa.default.svc.cluster.local.", 2),
        ] {
            assert_eq!(id(host, &[], &[]), Ok((expected, true, 1)), "{host}");
        }
        assert_eq!(id("stoa-0", &[("server-id", "2")], &[]), Ok((2, false, 0)));
        assert_eq!(id("stoa-0", &[], &[("./stoa-data/myid", "1\n")]), Ok((1, false, 0)));
        let loaded = load_at("stoa-0", &[("servers", pods)], &[]).unwrap();
        assert!(loaded.summary().contains("server-id=0 (host name)"), "{}", loaded.summary());
        assert_eq!(
            loaded.notes,
            [
                "server-id is 0, since this host is called stoa-0 as server 0 is and no other server; there is no \
              ./stoa-data/myid"
            ]
        );
        for host in ["", "stoa", "stoa-", "stoa-00", "stoa-3", "other", "stoa-0.elsewhere.example"] {
            assert!(id(host, &[], &[]).unwrap_err().contains("but there are: none. Set server-id"), "{host}");
        }
        let same = "4=stoa:2888,5=Stoa.example:2888,6=other:2888";
        let error = load_at("stoa", &[("servers", same)], &[]).unwrap_err();
        assert!(
            error.contains("\"stoa\"") && error.contains("but there are: 4, 5. Set server-id"),
            "{error}"
        );
        // Of these no part is a name.
        for (servers, host) in [("1=10.0.0.1:1,2=b:1", "10"), ("1=localhost:1,2=b:1", "localhost")] {
            assert!(load_at(host, &[("servers", servers)], &[]).is_err(), "{host}");
        }
    }

    #[test]
    fn the_id_of_ttl_znodes_is_a_servers_only_where_there_are_none() {
        let off = ("extended-types", "false");
        let list = ("servers", "0=a:2888,1=b:2888,255=c:2888");
        for id in ["0", "255"] {
            let loaded = load(&[list, ("server-id", id), off], &[]).unwrap();
            assert_eq!(loaded.settings.server_id.unwrap().to_string(), id);
            let refused = error(&[list, ("server-id", id)], &[]);
            assert!(refused.starts_with("flag --servers: no server may have the id 255"), "{refused}");
            assert!(refused.contains("set extended-types (extendedTypesEnabled in a zoo.cfg) to false"));
        }
        assert!(error(&[("server-id", "255")], &[]).starts_with("flag --server-id: no server may have"));
        assert!(load(&[("server-id", "255"), off], &[]).is_ok());
    }

    #[test]
    fn one_server_alone_is_an_ensemble_and_needs_no_id() {
        assert_eq!(load(&[("servers", "9=a:2888")], &[]).unwrap().settings.server_id, Some(9));
        assert!(load(&[("servers", "9=a:2888"), ("server-id", "8")], &[]).is_err());
        let alone = load(&[("server-id", "8")], &[]).unwrap();
        assert!(alone.settings.own_member().is_none());
        assert!(alone.warnings[0].contains("no effect"), "{:?}", alone.warnings);
    }

    #[test]
    fn servers_that_are_no_ensemble_are_refused() {
        assert_eq!(
            error(&[("servers", "1=a:2888,1=b:2888")], &[]),
            "flag --servers: two servers have the id 1; each needs one of its own"
        );
        assert!(error(&[("servers", "1=a:2888:observer")], &[]).contains("all servers are observers"));
        assert!(error(&[("servers", "1=a")], &[]).contains("expected servers such as"));
        let even = load(&[("servers", "1=a:1,2=b:1,3=c:1,4=d:1"), ("server-id", "1")], &[]).unwrap();
        assert_eq!(
            even.warnings,
            ["servers: 4 participants stand the failure of 1, no more than 3 do; an odd number is better"]
        );
    }

    #[test]
    fn a_forest_has_trees_that_can_be() {
        let shape = |flags: &[(&str, &str)]| {
            let forest = load(flags, &[]).unwrap().settings.forest();
            forest.map(|it| (it.servers_min, it.settings.trees(), it.settings.children()))
        };
        assert_eq!(shape(&[]), Some((10, 5, 5)));
        assert_eq!(
            shape(&[("forest-servers-min", "3"), ("forest-trees", "2"), ("forest-children", "64")]),
            Some((3, 2, 64))
        );
        assert_eq!(shape(&[("forest-servers-min", "0"), ("forest-trees", "99")]), None);
        for (flags, begin) in [
            (&[("forest-trees", "0")][..], "flag --forest-trees: expected 1 to 16 trees, found 0"),
            (&[("forest-trees", "17")], "flag --forest-trees: expected 1 to 16 trees, found 17"),
            (&[("forest-trees", "6")], "flag --forest-trees: 6 trees with 5 children each: "),
            (&[("forest-children", "4")], "flag --forest-children: 5 trees with 4 children each: "),
            (&[("forest-children", "65")], "flag --forest-children: 5 trees with 65 children each: "),
        ] {
            assert!(error(flags, &[]).starts_with(begin), "{}", error(flags, &[]));
        }
    }

    #[test]
    fn the_own_line_says_where_clients_are_served() {
        let own = |id, more: &[(&'static str, &'static str)]| {
            load(&[&[("servers", THREE), ("server-id", id)], more].concat(), &[])
        };
        let settings = own("2", &[]).unwrap().settings;
        assert_eq!((settings.port, settings.bind.to_string()), (2182, "10.0.0.2".to_owned()));
        let settings = own("1", &[]).unwrap().settings;
        assert_eq!((settings.port, settings.bind.to_string()), (2181, "::".to_owned()));
        assert_eq!(own("3", &[("port", "2183")]).unwrap().settings.port, 2183);
        assert_eq!(own("2", &[("bind", "::1")]).unwrap().settings.bind.to_string(), "::1");
        assert_eq!(
            own("2", &[("port", "2181")]).unwrap_err(),
            "flag --port: the client port is 2181, but 2182 in this server's own line of servers"
        );
        let looked_up = load(&[("servers", "1=a:2888;LOCALHOST:2181")], &[]).unwrap().settings;
        assert_eq!(looked_up.bind.to_string(), "127.0.0.1");
        let named = [("servers", "1=a:2888;inner.invalid:2181")];
        assert!(error(&named, &[]).contains("set bind"), "{}", error(&named, &[]));
        assert!(load(&[named[0], ("bind", "10.0.0.1")], &[]).is_ok());
    }

    #[test]
    fn the_secret_may_be_in_a_file_and_is_never_shown() {
        let by_file = [("peer-secret-file", "/run/secret")];
        let loaded = load(&by_file, &[("/run/secret", "a b c\n")]).unwrap();
        assert_eq!(loaded.settings.peer_secret.as_deref(), Some("a b c"));
        assert!(loaded.summary().contains("peer-secret=set"), "{}", loaded.summary());
        assert!(error(&by_file, &[]).starts_with("cannot read the configuration file /run/secret: "));
        for text in ["", "\n", "a\nhidden\n"] {
            let error = error(&by_file, &[("/run/secret", text)]);
            assert!(error.contains("does not hold a secret") && !error.contains("hidden"), "{error}");
        }
        let both = [by_file[0], ("peer-secret", "x")];
        assert!(error(&both, &[("/run/secret", "x")]).contains("leave one of them out"));
        let long = "x".repeat(1025);
        assert!(!error(&[("peer-secret", &long)], &[]).contains("xx"));
    }

    #[test]
    fn files_of_tls_come_together() {
        let all = [("peer-tls-certificate", "c"), ("peer-tls-key", "k"), ("peer-tls-authority", "a")];
        assert!(load(&all, &[]).is_ok());
        assert!(load(&[all[0], all[2]], &[]).is_ok(), "the key may be with the certificate");
        let alone = error(&[("peer-tls-revoked", "r")], &[]);
        assert!(alone.starts_with("flag --peer-tls-revoked: peer-tls-certificate is not set"), "{alone}");
        let by_file =
            [all[0], all[2], ("peer-tls-password-file", "/p"), ("peer-tls-authority-password", "x")];
        let loaded = load(&by_file, &[("/p", "hidden\n")]).unwrap();
        assert_eq!(loaded.settings.peer_tls_password.as_deref(), Some("hidden"));
        assert!(!loaded.summary().contains("hidden"), "{}", loaded.summary());
        let twice = [by_file[0], by_file[1], by_file[2], ("peer-tls-password", "y")];
        assert!(error(&twice, &[("/p", "z")]).contains("leave one of them out"));
        let error = error(&all[..2], &[]);
        assert!(error.starts_with("flag --peer-tls-certificate: peer-tls-authority is not set"), "{error}");
    }

    #[test]
    fn an_election_takes_four_heartbeats() {
        assert!(load(&[("heartbeat", "250ms")], &[]).is_ok());
        assert!(error(&[("heartbeat", "0")], &[]).contains("above zero"));
        let error = error(&[("heartbeat", "251ms")], &[]);
        assert!(error.starts_with("flag --heartbeat: an election timeout of 1000 ms"), "{error}");
    }
}
