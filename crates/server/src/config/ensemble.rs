//! What the settings of an ensemble leave to files and to each other: which of the servers this one is,
//! where it serves clients, and the secret. Then whether they fit together.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use super::error::{ConfigError, Place, Problem};
use super::java;
use super::kind::{Address, Kind, Secret};
use super::load::{ReadFile, by_key};
use super::member::{MemberRole, ServerId};
use super::settings::Settings;

/// The file in the data folder that says which server this is, as ZooKeeper has it.
const MY_ID: &str = "myid";

/// The settings under way, with the place where each was found.
pub(super) struct EnsembleSettings<'a> {
    pub(super) settings: &'a mut Settings,
    /// In the order of the table of settings.
    pub(super) places: &'a mut [Place],
    pub(super) read: &'a ReadFile,
}

impl EnsembleSettings<'_> {
    /// Fills in what follows from files and from this server's own line, and checks the rest.
    pub(super) fn complete(mut self) -> Result<Vec<String>, ConfigError> {
        self.read_secret()?;
        self.check_tls()?;
        self.check_times()?;
        if self.settings.servers.is_empty() {
            let alone = "server-id has no effect: there are no servers, so that this one stands alone";
            return Ok(self.settings.server_id.map(|_| alone.to_owned()).into_iter().collect());
        }
        self.check_servers()?;
        self.find_id()?;
        self.take_client_address()?;
        Ok(self.warnings())
    }

    fn place(&self, key: &str) -> &Place {
        &self.places[by_key(key).expect("the key is in the table")]
    }

    fn is_set(&self, key: &str) -> bool {
        !matches!(self.place(key), Place::Default(_))
    }

    fn refuse<T>(&self, key: &str, why: impl Into<String>) -> Result<T, ConfigError> {
        Err(Problem::Refused { place: self.place(key).clone(), why: why.into() }.into())
    }

    fn set_place(&mut self, key: &str, place: Place) {
        self.places[by_key(key).expect("the key is in the table")] = place;
    }

    fn read_secret(&mut self) -> Result<(), ConfigError> {
        let Some(file) = &self.settings.peer_secret_file else { return Ok(()) };
        if self.settings.peer_secret.is_some() {
            return self.refuse("peer-secret-file", "peer-secret is set too; leave one of them out");
        }
        let text = (self.read)(file).map_err(|source| unreadable(file, source))?;
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
        let files = [
            ("peer-tls-certificate", &self.settings.peer_tls_certificate),
            ("peer-tls-key", &self.settings.peer_tls_key),
            ("peer-tls-authority", &self.settings.peer_tls_authority),
        ];
        let missing = files.iter().find(|(_, file)| file.is_none());
        let given = files.iter().find(|(_, file)| file.is_some());
        if let (Some((missing, _)), Some((given, _))) = (missing, given) {
            let why =
                format!("{missing} is not set; TLS between servers takes certificate, key and authority");
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
            match (self.read)(&file) {
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
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(unreadable(&file, error)),
            }
        }
        let ids: Vec<String> = self.settings.servers.iter().map(|member| member.id.to_string()).collect();
        let ids = ids.join(", ");
        match (self.settings.server_id, &self.settings.servers[..]) {
            // The only one there is can be no other. ZooKeeper asks for no id then either.
            (None, [only]) => self.settings.server_id = Some(only.id),
            (None, _) => {
                let file = file.display();
                let why = format!(
                    "which of the servers {ids} is this one? Set server-id, or write the id to {file}"
                );
                return self.refuse("servers", why);
            }
            (Some(_), _) if self.settings.own_member().is_some() => {}
            (Some(id), _) => {
                let why = format!("this server is {id}, but the ids of the servers are {ids}");
                return self.refuse("server-id", why);
            }
        }
        Ok(())
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

/// The address that clients connect to by a server's line; a name is looked up, which may take long.
pub(crate) fn client_ip(host: &str) -> Option<IpAddr> {
    Address::parse(host).or_else(|| java::address(host))
}

fn unreadable(file: &Path, source: io::Error) -> ConfigError {
    Problem::Read { file: file.to_owned(), source }.into()
}

/// What stands in a file that may hold anything.
fn shorten(line: &str) -> String {
    const SHOWN_MAX: usize = 40;
    line.chars().take(SHOWN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::super::load::{Loaded, resolve};
    use super::*;

    const THREE: &str = "1=a:2888;2181,2=b:2888;10.0.0.2:2182,3=c:2888:observer";

    /// Loads flags, with files beside them.
    fn load(flags: &[(&str, &str)], files: &[(&str, &str)]) -> Result<Loaded, String> {
        let flags: Vec<(usize, String)> =
            flags.iter().map(|(key, text)| (by_key(key).unwrap(), (*text).to_owned())).collect();
        let files: Vec<(String, String)> =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let read = move |path: &Path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path);
            file.map(|(_, text)| text.clone()).ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        resolve(&flags, &[], None, &read).map_err(|error| error.to_string())
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
            "flag --servers: which of the servers 1, 2, 3 is this one? Set server-id, or write the id to \
             ./stoa-data/myid"
        );
        assert_eq!(
            error(&[("servers", THREE), ("server-id", "4")], &[]),
            "flag --server-id: this server is 4, but the ids of the servers are 1, 2, 3"
        );
        assert_eq!(
            error(&[("servers", THREE)], &[("./stoa-data/myid", "two\n")]),
            "./stoa-data/myid, line 1: server-id: expected the id of a server, 1 to 254, found \"two\""
        );
        assert!(error(&[("servers", THREE)], &[("./stoa-data/myid", "")]).contains("found \"\""));
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
