//! Which role this server has: the settings that go with it, and what the data folder says of it. The rules are
//! [`stoa_core::RoleKeeper`].
//!
//! The file `role` in the data folder says what the server was last, by which version of the list of servers, and has the
//! last list in which it stood: by that it finds the others when it is a member.
//!
//! ```text
//! member
//! by 20000001f
//! server.1=zoo1.example:2888:3888:participant;2181
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use stoa_core::{Company, Replica, RoleCause, RoleChange, RoleKeeper, ServerRole};

use crate::config::{Member, ParentAddress, Settings};
use crate::ensemble::{Ensemble, version};
use crate::view::NewcomerView;
use crate::whole_file;

const FILE: &str = "role";
/// More is not read: a list of servers has at most 256 lines, of 600 bytes at most.
const FILE_BYTES_MAX: u64 = 256 << 10;
/// How often to look whether the list says something else.
pub(crate) const LOOK: Duration = Duration::from_millis(50);
/// Who is known to nobody for so many election timeouts asks a parent, and who finds none in that time is a member again.
const PATIENCE_ELECTIONS: u32 = 5;
const PATIENCE_MIN: Duration = Duration::from_secs(2);

/// What the server goes on as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoleTurn {
    change: RoleChange,
    /// The list of servers, if it has this one.
    list: Option<String>,
}

impl RoleTurn {
    /// What it is from then on.
    pub(crate) fn name(&self) -> &'static str {
        name(self.change.role)
    }

    /// Why, for an operator.
    pub(crate) fn why(&self) -> &'static str {
        match self.change.cause {
            RoleCause::Listed => "the list of servers has this server",
            RoleCause::TakenOut => "the list of servers does not have this server any more",
            RoleCause::Unknown => {
                "nobody whom this server reaches knows it: as a reader it learns whether it was taken out"
            }
            RoleCause::NoParent => {
                "this server finds no parent, and by what it has it belongs to the ensemble"
            }
            RoleCause::NotFed => {
                "no server feeds this one before it is in the list: it waits to be added, and is fed by the leader then"
            }
        }
    }
}

fn name(role: ServerRole) -> &'static str {
    match role {
        ServerRole::Member => "member",
        ServerRole::Reader => "reader",
    }
}

/// Which role a server has, over all that it runs one after the other.
pub(crate) struct OwnRoles {
    base: Settings,
    /// If the list of servers says what it is.
    keeper: Option<RoleKeeper>,
    /// The last list in which it stood.
    list: Option<String>,
    began: Instant,
    /// It was said that it waits to be added to the list.
    has_told: bool,
    seen: SeenLists,
}

/// The list of servers that is applied, and the last line of each server that was ever in it.
#[derive(Default)]
struct SeenLists {
    applied: String,
    lines: BTreeMap<u8, String>,
}

impl SeenLists {
    fn see(&mut self, applied: &str) {
        if self.applied != applied {
            applied.clone_into(&mut self.applied);
            let known = |line: &str| Some((Member::of_line(line)?.id, line.to_owned()));
            self.lines.extend(applied.lines().filter_map(known));
        }
    }

    /// The list, and behind it those who belong to the ensemble for as long as that is not what the list says: a server
    /// that the list does not have any more may be the one that takes in whom it has.
    fn with(&self, company: &[u8]) -> String {
        let listed: Vec<u8> =
            self.applied.lines().filter_map(Member::of_line).map(|member| member.id).collect();
        let more = company.iter().filter(|id| !listed.contains(id)).filter_map(|id| self.lines.get(id));
        more.fold(format!("{}\n", self.applied.trim_end()), |list, line| list + line.as_str() + "\n")
    }
}

impl OwnRoles {
    /// By these settings, and by what the data folder says of the last time.
    pub(crate) fn load(base: Settings) -> Result<Self, String> {
        let has_parents = !base.reader_of.is_empty();
        let is_newcomer = base.join && base.servers.len() > 1 && base.site.is_none();
        let mut roles = Self {
            keeper: None,
            list: None,
            began: Instant::now(),
            has_told: false,
            seen: SeenLists::default(),
            base,
        };
        let Some(id) = roles.base.server_id.filter(|_| has_parents || is_newcomer) else { return Ok(roles) };
        let file = roles.base.data_dir.join(FILE);
        let text = whole_file::read(&file, FILE_BYTES_MAX)?.unwrap_or_default();
        let first =
            if roles.base.is_reader() || is_newcomer { ServerRole::Reader } else { ServerRole::Member };
        let was = match parse(&text) {
            Some((role, by, list)) => {
                roles.list = Some(list).filter(|list| own_line(list, id).is_some());
                // Whoever is to be a member has to know where the others are.
                let may_be = role == ServerRole::Reader || roles.list.is_some();
                may_be.then_some((role, Some(by)))
            }
            // The list says it again.
            None => None,
        };
        let patience = (roles.base.election_timeout * PATIENCE_ELECTIONS).max(PATIENCE_MIN);
        roles.keeper = Some(RoleKeeper::new(id, was.unwrap_or((first, None)), has_parents, micros(patience)));
        Ok(roles)
    }

    fn store(&self) -> Result<(), String> {
        let Some((keeper, by)) = self.keeper.as_ref().and_then(|keeper| Some((keeper, keeper.by()?))) else {
            return Ok(());
        };
        let mut text = format!("{}\nby {by:x}\n", name(keeper.role()));
        for line in self.list.iter().flat_map(|list| list.lines()).filter(|line| line.starts_with("server."))
        {
            let _ = writeln!(text, "{line}");
        }
        whole_file::replace(&self.base.data_dir, FILE, &text)
    }

    /// Whether the role may become another one while the server runs.
    pub(crate) fn may_turn(&self) -> bool {
        self.keeper.is_some()
    }

    /// What it runs with in the role that it has now.
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = self.base.clone();
        let Some(keeper) = &self.keeper else { return settings };
        match keeper.role() {
            ServerRole::Reader => {
                if settings.reader_of.is_empty() {
                    settings.reader_of = neighbours(&settings.servers, keeper.id());
                }
                (settings.servers, settings.join) = (Vec::new(), false);
                // Of which one it is its parent says; it has nothing to do with others.
                (settings.site, settings.sites) = (None, Vec::new());
            }
            ServerRole::Member => {
                if let Some(list) = &self.list {
                    let named = std::mem::take(&mut settings.servers);
                    settings.servers = list.lines().filter_map(Member::of_line).collect();
                    // All others may have been replaced meanwhile, and then an operator says where they are now.
                    let is_known = |id| settings.servers.iter().any(|member| member.id == id);
                    let more: Vec<_> = named.into_iter().filter(|member| !is_known(member.id)).collect();
                    settings.servers.extend(more);
                    // It founds nothing: others have it in their list.
                    settings.join = true;
                }
            }
        }
        settings
    }

    /// What it is to be added to the list of servers as, while it is a reader.
    pub(crate) fn newcomer(&self) -> Option<NewcomerView> {
        let keeper = self.keeper.as_ref().filter(|keeper| keeper.role() == ServerRole::Reader)?;
        let (base, id) = (&self.base, keeper.id());
        let known = base.own_member().cloned().or_else(|| own_line(self.list.as_deref()?, id));
        let line = known.map_or_else(
            || {
                // Under which name the others reach it, nobody has told it.
                let port =
                    if base.reader_port == 0 { "PEERPORT".to_owned() } else { base.reader_port.to_string() };
                format!("server.{id}=HOST:{port}:ELECTIONPORT:participant;{}", base.port)
            },
            |member| member.to_string(),
        );
        Some(NewcomerView { line, waits: base.reader_of.is_empty() })
    }

    /// Says once that nothing is missing but a line in the list of servers.
    fn tell_that_it_waits(&mut self, server: &Replica) {
        let has_all =
            server.below().is_some_and(|below| (1..=server.log_applied()).contains(&below.committed));
        if !has_all || self.has_told {
            return;
        }
        self.has_told = true;
        if let Some(NewcomerView { line, .. }) = self.newcomer() {
            tracing::info!(
                "this server has what its parent has, and is a member when the list of servers has it: reconfig -add {line}"
            );
        }
    }

    /// Clients connect at this port, also where the settings leave open which one it is.
    pub(crate) fn keep_port(&mut self, port: u16) {
        if self.base.port == 0 {
            self.base.port = port;
        }
    }

    /// From now on it is something else; that is durable when this returns.
    pub(crate) fn turn(&mut self, RoleTurn { change, list }: RoleTurn) -> Result<(), String> {
        let Some(keeper) = &mut self.keeper else { return Ok(()) };
        keeper.change(change);
        self.has_told = false;
        self.list = list.or(self.list.take());
        self.store()
    }

    /// Looks whether it is to be something else.
    pub(crate) fn look(&mut self, server: &Replica, ensemble: Option<&Ensemble>) -> Option<RoleTurn> {
        let (keeper, ensemble) = (self.keeper.as_mut()?, ensemble?);
        server.servers().iter().for_each(|list| self.seen.see(list));
        let (is_connected, is_refused) = ensemble.company(&server.status());
        let applied = server.servers().and_then(version);
        let newer = ensemble.servers(server).filter(|list| version(list) > applied);
        let company = Company {
            is_connected,
            is_refused,
            is_told_out: newer.is_some_and(|list| own_line(&list, keeper.id()).is_none()),
            is_let_in_nowhere: ensemble.ties().is_let_in_nowhere(),
            has_address: self.list.is_some() || !self.base.servers.is_empty(),
        };
        let Some(change) = keeper.look(server, company, micros(self.began.elapsed())) else {
            self.tell_that_it_waits(server);
            return None;
        };
        let stands = own_line(&self.seen.applied, keeper.id()).is_some();
        Some(RoleTurn { change, list: stands.then(|| self.seen.with(&server.company())) })
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// What the file says.
fn parse(text: &str) -> Option<(ServerRole, i64, String)> {
    let mut lines = text.lines();
    let first = lines.next()?;
    let role = [ServerRole::Member, ServerRole::Reader].into_iter().find(|role| name(*role) == first)?;
    let by = i64::from_str_radix(lines.next()?.strip_prefix("by ")?, 16).ok()?;
    Some((role, by, lines.fold(String::new(), |list, line| list + line + "\n")))
}

/// A server in a list of servers.
fn own_line(list: &str, id: u8) -> Option<Member> {
    list.lines().filter_map(Member::of_line).find(|member| member.id == id)
}

/// Where a newcomer finds a parent: at the other servers, and not all newcomers at the same one first.
fn neighbours(servers: &[Member], id: u8) -> Vec<ParentAddress> {
    let others = servers.iter().filter(|member| member.id != id);
    let mut parents: Vec<_> =
        others.map(|member| ParentAddress { host: member.host.clone(), port: member.peer_port }).collect();
    let first = usize::from(id) % parents.len().max(1);
    parents.rotate_left(first);
    parents
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Server 4, with servers called by a letter each, and parents.
    fn settings(folder: &tempfile::TempDir, servers: &str, parents: &str) -> Settings {
        let server =
            |host: char| Member::of_line(&format!("server.{}={host}:1", host as u8 - b'a' + 1)).unwrap();
        let parent = |host: char| ParentAddress { host: host.to_string(), port: 1 };
        Settings {
            data_dir: folder.path().to_owned(),
            server_id: Some(4),
            servers: servers.chars().map(server).collect(),
            reader_of: parents.chars().map(parent).collect(),
            ..Settings::default()
        }
    }

    fn load(base: &Settings) -> OwnRoles {
        OwnRoles::load(base.clone()).unwrap()
    }

    #[test]
    fn a_role_is_kept_over_a_restart_with_the_list_that_it_takes() {
        let folder = tempfile::tempdir().unwrap();
        let base = settings(&folder, "", "ab");
        let roles = load(&base);
        assert!(roles.may_turn() && roles.settings().is_reader());
        assert_eq!(roles.settings(), base);
        std::fs::write(
            folder.path().join(FILE),
            "member\nby 9\nserver.1=a:1:2:participant;3\nserver.4=d:1:2:observer;3\n",
        )
        .unwrap();
        let member = load(&base);
        let own = member.settings();
        assert!(!own.is_reader() && own.join, "it founds nothing");
        assert_eq!((own.servers.len(), own.own_member().unwrap().host.as_str()), (2, "d"));
        assert_eq!(member.keeper.as_ref().unwrap().by(), Some(9));
        member.store().unwrap();
        assert_eq!(load(&base).settings(), own);
        let ids: Vec<_> =
            load(&settings(&folder, "cd", "a")).settings().servers.iter().map(|it| it.id).collect();
        assert_eq!(ids, [1, 4, 3], "those of the settings are looked for, too");
    }

    #[test]
    fn who_belongs_to_the_ensemble_is_found_though_the_list_has_it_no_more() {
        let mut seen = SeenLists::default();
        seen.see("server.1=a:1:2:participant;3\nserver.2=b:1:2:participant;3\nversion=1");
        seen.see("server.4=d:1:2:participant;3\nversion=2");
        let lines = |list: &str| list.lines().filter_map(Member::of_line).map(|it| it.id).collect::<Vec<_>>();
        assert_eq!(lines(&seen.with(&[1, 9])), [4, 1]);
        assert_eq!(lines(&seen.with(&[])), [4]);
    }

    #[test]
    fn a_file_that_cannot_be_read_counts_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let base = settings(&folder, "", "a");
        for text in ["", "member", "member\nby x\n", "member\nby 9\n", "leader\nby 9\nserver.4=d:1:2\n"] {
            std::fs::write(folder.path().join(FILE), text).unwrap();
            let roles = load(&base);
            assert!(roles.settings().is_reader() && roles.keeper.unwrap().by().is_none(), "{text:?}");
        }
        std::fs::write(folder.path().join(FILE), "reader\nby 9\n").unwrap();
        assert!(load(&settings(&folder, "ad", "a")).settings().is_reader(), "it was taken out");
    }

    #[test]
    fn who_is_to_join_begins_below_one_of_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let base = Settings { join: true, ..settings(&folder, "abcd", "") };
        let own = load(&base).settings();
        assert!(own.is_reader() && !own.join);
        let hosts: Vec<_> = own.reader_of.iter().map(|parent| parent.host.as_str()).collect();
        assert_eq!(hosts, ["b", "c", "a"], "not all begin with the same one");
        let newcomer = load(&base).newcomer().unwrap();
        assert!(newcomer.waits && newcomer.line.starts_with("server.4=d:1:"), "{newcomer:?}");
        let reader =
            load(&Settings { reader_port: 5, port: 6, ..settings(&folder, "", "a") }).newcomer().unwrap();
        assert!(!reader.waits && reader.line == "server.4=HOST:5:ELECTIONPORT:participant;6", "{reader:?}");
        for plain in [
            Settings { server_id: None, ..settings(&folder, "", "a") },
            settings(&folder, "ad", ""),
            Settings { join: true, ..settings(&folder, "d", "") },
        ] {
            assert!(!load(&plain).may_turn());
            assert_eq!(load(&plain).settings(), plain);
        }
    }
}
