//! What a data folder can be, and what an operator can do with it: alone, a member's, an observer's, new, restored, of
//! another ensemble, and what is left of a majority. Whatever is done, no two histories come to be one, nothing is lost
//! in silence, and there is a way on. docs/operating.md has the table.
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

mod common;

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{PATIENCE, eventually, free_port};
use stoa_client::blocking::Client;
use stoa_client::{CreateMode, Options};
use tempfile::TempDir;

const STOA: &str = env!("CARGO_BIN_EXE_stoa");
/// How long something is waited for that must not happen: several elections.
const NEVER: Duration = Duration::from_millis(1500);

/// Servers that there may be, by their ids, each with a folder.
struct Machines {
    folder: TempDir,
    partitions: u8,
    ports: Vec<(u16, u16)>,
    running: Vec<Option<Child>>,
    /// What the servers are started with besides.
    flags: &'static [&'static str],
}

impl Drop for Machines {
    fn drop(&mut self) {
        (1..=self.running.len()).for_each(|id| self.kill(id));
    }
}

impl Machines {
    fn new(count: usize, partitions: u8) -> Self {
        Self {
            folder: TempDir::new().unwrap(),
            partitions,
            ports: (0..count).map(|_| (free_port(), free_port())).collect(),
            running: (0..count).map(|_| None).collect(),
            flags: &[],
        }
    }

    /// The folder of a server.
    fn of(&self, id: usize) -> PathBuf {
        self.folder.path().join(format!("{id}"))
    }

    fn address(&self, id: usize) -> String {
        format!("127.0.0.1:{}", self.ports[id - 1].0)
    }

    /// The settings of a server, in which these are named with their roles; alone, if there are none.
    fn settings(&self, id: usize, named: &[(usize, &str)]) -> Vec<String> {
        let line = |(id, role): &(usize, &str)| {
            let (port, peer_port) = self.ports[id - 1];
            format!("{id}=127.0.0.1:{peer_port}:{role};127.0.0.1:{port}")
        };
        let mut settings = vec![
            format!("--data-dir={}", self.of(id).display()),
            format!("--partitions={}", self.partitions),
            format!("--server-id={id}"),
        ];
        if !named.is_empty() {
            settings.push(format!("--servers={}", named.iter().map(line).collect::<Vec<_>>().join(",")));
        }
        settings
    }

    fn start_as(&mut self, id: usize, named: &[(usize, &str)]) {
        let log = File::options().create(true).append(true).open(self.log_of(id)).unwrap();
        let mut command = Command::new(STOA);
        command.arg("serve").args(self.settings(id, named)).args(["--admin-port=0", "--words=*"]);
        command.args(["--heartbeat=50ms", "--election-timeout=500ms", "--bind=127.0.0.1"]);
        command.args([format!("--port={}", self.ports[id - 1].0), "--peer-bind=127.0.0.1".to_owned()]);
        command.args(self.flags).stdout(Stdio::null()).stderr(log);
        self.running[id - 1] = Some(command.spawn().unwrap());
    }

    fn start(&mut self, id: usize, named: &[usize]) {
        let named: Vec<_> = named.iter().map(|id| (*id, "participant")).collect();
        self.start_as(id, &named);
    }

    fn kill(&mut self, id: usize) {
        if let Some(mut child) = self.running[id - 1].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn kill_all(&mut self) {
        (1..=self.running.len()).for_each(|id| self.kill(id));
    }

    fn empty(&self, id: usize) {
        fs::remove_dir_all(self.of(id)).unwrap();
    }

    /// Copies the folder of one server for another one.
    fn copy(&self, from: &Path, to: usize) {
        let _ = fs::remove_dir_all(self.of(to));
        copy(from, &self.of(to));
    }

    fn log_of(&self, id: usize) -> PathBuf {
        self.folder.path().join(format!("{id}.log"))
    }

    fn logged(&self, id: usize, text: &str) -> bool {
        fs::read_to_string(self.log_of(id)).unwrap().contains(text)
    }

    fn word(&self, id: usize, word: &str) -> String {
        let mut answer = String::new();
        let Ok(mut stream) = TcpStream::connect(self.address(id)) else { return answer };
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        if stream.write_all(word.as_bytes()).is_ok() {
            let _ = stream.read_to_string(&mut answer);
        }
        answer
    }

    fn serves(&self, id: usize) -> bool {
        self.word(id, "srvr").contains("\nMode: ")
    }

    fn all_serve(&self, ids: &[usize]) {
        eventually(&format!("the servers {ids:?} serve"), || ids.iter().all(|id| self.serves(*id)));
    }

    /// Three servers start that name one another, and serve.
    fn all_start(&mut self) {
        (1..=3).for_each(|id| self.start(id, &[1, 2, 3]));
        self.all_serve(&[1, 2, 3]);
    }

    fn nobody_serves(&self, ids: &[usize]) {
        let deadline = Instant::now() + NEVER;
        while Instant::now() < deadline {
            assert!(!ids.iter().any(|id| self.serves(*id)), "one of {ids:?} serves");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// `srvr` of a server that serves nobody says this.
    fn says(&self, id: usize, why: &str) {
        eventually(&format!("server {id} says {why:?}"), || self.word(id, "srvr").contains(why));
    }

    fn ensemble_id(&self, id: usize) -> String {
        let lines = self.word(id, "mntr");
        let found = lines.lines().find_map(|line| line.strip_prefix("zk_stoa_ensemble_id\t"));
        found.unwrap_or_else(|| panic!("no id in {lines}")).to_owned()
    }

    fn connect(&self, id: usize) -> Client {
        Client::connect(Options::new(&self.address(id)).unwrap().connect_timeout(PATIENCE)).unwrap()
    }

    /// Whether a majority is behind a server.
    fn decides(&self, id: usize) -> bool {
        let options = Options::new(&self.address(id)).unwrap().connect_timeout(Duration::from_secs(1));
        Client::connect(options).is_ok_and(|client| client.sync("/").is_ok())
    }

    /// Writes something that lives in several partitions.
    fn write(&self, id: usize, what: &str) {
        let client = self.connect(id);
        for number in 0..6 {
            client.create(&format!("/{what}-{number}"), what.as_bytes(), CreateMode::Persistent).unwrap();
        }
    }

    /// Whether all servers have all of that.
    fn have(&self, ids: &[usize], what: &str) -> bool {
        let has = |id: &usize| {
            let client = self.connect(*id);
            client.sync("/").unwrap();
            (0..6).all(|number| client.exists(&format!("/{what}-{number}")).unwrap().is_some())
        };
        ids.iter().all(has)
    }

    /// All of three vote, so these two serve without the other one, which is stopped then.
    fn stand_the_loss_of(&mut self, lost: usize, left: [usize; 2]) {
        eventually("it stands the loss of one", || {
            // Who serves may have been given everything a moment ago, and have no vote yet.
            std::thread::sleep(Duration::from_secs(1));
            self.kill(lost);
            let began = Instant::now();
            // What they say of themselves may be from before.
            let mut stands = false;
            while began.elapsed() < Duration::from_secs(5) && !stands {
                std::thread::sleep(Duration::from_millis(50));
                stands = left.iter().all(|id| self.decides(*id));
            }
            if !stands {
                self.start(lost, &[1, 2, 3]);
                self.all_serve(&[1, 2, 3]);
            }
            stands
        });
    }

    fn recover(&self, id: usize, more: &[&str]) -> Output {
        Command::new(STOA).arg("recover").args(self.settings(id, &[])).args(more).output().unwrap()
    }

    /// Three machines, of which the first has what its server had written when it stood alone.
    fn stood_alone(partitions: u8) -> Self {
        let mut machines = Self::new(3, partitions);
        machines.start(1, &[]);
        machines.all_serve(&[1]);
        machines.write(1, "old");
        machines.kill(1);
        machines
    }

    /// Three servers of an ensemble, with something in it.
    fn ensemble(partitions: u8) -> Self {
        Self::ensemble_with(partitions, &[])
    }

    fn ensemble_with(partitions: u8, flags: &'static [&'static str]) -> Self {
        let mut machines = Self::new(3, partitions);
        machines.flags = flags;
        machines.all_start();
        machines.write(1, "old");
        assert!(machines.have(&[1, 2, 3], "old"));
        machines
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn each(test: impl Fn(u8)) {
    [1, 4].into_iter().for_each(test);
}

#[test]
fn a_server_alone_shares_what_it_has_with_new_ones() {
    each(|partitions| {
        let mut machines = Machines::new(3, partitions);
        machines.start(2, &[]);
        machines.all_serve(&[2]);
        machines.write(2, "old");
        let id = machines.ensemble_id(2);
        machines.kill(2);
        // Whoever starts first.
        machines.start(1, &[1, 2, 3]);
        machines.start(3, &[1, 2, 3]);
        machines.nobody_serves(&[1, 3]);
        machines.says(1, "Start the servers 2 (without `join`), or take them out");
        machines.start(2, &[1, 2, 3]);
        machines.all_serve(&[1, 2, 3]);
        assert!(machines.have(&[1, 2, 3], "old"));
        (1..=3).for_each(|of| assert_eq!(machines.ensemble_id(of), id));
        // All of them belong to it: it stands the loss of the first one.
        eventually("all vote", || {
            let config = machines.connect(1).get_data("/zookeeper/config").unwrap().0;
            String::from_utf8(config).unwrap().matches(":participant").count() == 3
                && machines.word(1, "mntr").contains("zk_server_state\tfollower")
        });
        machines.stand_the_loss_of(2, [1, 3]);
        machines.write(3, "new");
        machines.start(2, &[1, 2, 3]);
        machines.all_serve(&[2]);
        assert!(machines.have(&[1, 2, 3], "new"));
    });
}

#[test]
fn a_backup_of_a_server_alone_on_all_members_is_their_state() {
    each(|partitions| {
        let mut machines = Machines::stood_alone(partitions);
        let backup = machines.of(1);
        machines.copy(&backup, 2);
        machines.copy(&backup, 3);
        machines.all_start();
        machines.write(2, "new");
        assert!(machines.have(&[1, 2, 3], "old") && machines.have(&[1, 2, 3], "new"));
    });
}

#[test]
fn what_is_left_of_a_majority_is_recovered_by_one_command() {
    each(|partitions| {
        let mut machines = Machines::ensemble(partitions);
        let old_id = machines.ensemble_id(1);
        machines.kill_all();
        let saved = machines.folder.path().join("saved");
        copy(&machines.of(1), &saved);
        // Two lose their folders, and do not begin anew in silence while the third is away.
        machines.empty(1);
        machines.empty(2);
        machines.start(1, &[1, 2, 3]);
        machines.start(2, &[1, 2, 3]);
        machines.nobody_serves(&[1, 2]);
        machines.says(2, "Start the servers 3 (without `join`), or take them out");
        machines.start(3, &[1, 2, 3]);
        machines.says(3, "the servers 1, 2 have come back with other data folders than they had");
        machines.nobody_serves(&[1, 2, 3]);
        machines.kill_all();
        // It is said what would be done, and done when that is confirmed.
        let said = machines.recover(3, &[]);
        assert!(!said.status.success());
        let text = String::from_utf8(said.stderr).unwrap();
        assert!(text.contains(&old_id) && text.contains("Nothing was changed"), "{text}");
        machines.empty(1);
        machines.empty(2);
        assert!(machines.recover(3, &["--yes"]).status.success());
        machines.all_start();
        assert!(machines.have(&[1, 2, 3], "old"));
        let new_id = machines.ensemble_id(3);
        assert_ne!(new_id, old_id);
        assert_eq!(machines.ensemble_id(1), new_id);
        machines.write(2, "new");
        // A folder of the old ensemble turns up again: it is of another one now.
        machines.kill(1);
        machines.copy(&saved, 1);
        machines.start(1, &[1, 2, 3]);
        let expected = "servers 3 and 1 are of different ensembles";
        eventually("both say so", || {
            machines.logged(1, expected) && machines.logged(3, "are of different ensembles")
        });
        assert!(!machines.serves(1) && machines.have(&[2, 3], "new"));
        // The way out is what it says.
        machines.kill(1);
        machines.empty(1);
        machines.start(1, &[1, 2, 3]);
        machines.all_serve(&[1]);
        assert!(machines.have(&[1, 2, 3], "new"));
    });
}

#[test]
fn what_is_recovered_may_stand_alone_or_begin_with_others() {
    each(|partitions| {
        let mut machines = Machines::ensemble(partitions);
        machines.kill_all();
        assert!(machines.recover(2, &["--yes"]).status.success());
        machines.start(2, &[]);
        machines.all_serve(&[2]);
        assert!(machines.have(&[2], "old"));
        let list = machines.connect(2).get_data("/zookeeper/config").unwrap().0;
        assert!(list.is_empty(), "{list:?}");
        machines.write(2, "new");
        machines.kill(2);
        // Others than before, and it has another number with them.
        let folder = machines.of(2);
        machines.copy(&folder, 3);
        let output = machines.recover(3, &["--yes"]);
        assert!(output.status.success());
        machines.empty(1);
        machines.start(3, &[1, 3]);
        machines.start(1, &[1, 3]);
        machines.all_serve(&[1, 3]);
        assert!(machines.have(&[1, 3], "old") && machines.have(&[1, 3], "new"));
        // The one that it was copied from is of another ensemble.
        machines.start(2, &[1, 2, 3]);
        eventually("it is told apart", || machines.logged(2, "are of different ensembles"));
    });
}

#[test]
fn a_members_folder_waits_for_the_others_and_says_so() {
    each(|partitions| {
        let mut machines = Machines::ensemble(partitions);
        machines.kill_all();
        machines.start(1, &[1, 2, 3]);
        machines.says(1, "no leader is known: this server reaches 1 of 3 servers that vote, itself included");
        machines.kill(1);
        machines.start(1, &[]);
        eventually("it says so at once", || {
            machines.logged(1, "by the data folder the servers 2, 3 vote besides this one")
        });
        machines.says(
            1,
            "the data folder is that of one of the servers 1, 2, 3, and the settings name no servers",
        );
        machines.kill(1);
        // A minority that has lost its folder comes back by itself.
        machines.empty(3);
        machines.all_start();
        assert!(machines.have(&[1, 2, 3], "old"));
    });
}

/// Whoever has lost its folder and is told of no others is alone, and nobody of those that are left takes it for theirs.
#[test]
fn an_empty_folder_without_servers_is_a_new_ensemble() {
    each(|partitions| {
        let mut machines = Machines::ensemble(partitions);
        let id = machines.ensemble_id(1);
        machines.kill(3);
        machines.empty(3);
        machines.start(3, &[]);
        machines.all_serve(&[3]);
        machines.write(3, "other");
        let other_id = machines.ensemble_id(3);
        assert!(other_id != id && !machines.have(&[3], "old"));
        machines.write(1, "new");
        assert!(machines.have(&[1, 2], "new"));
        // The same with a majority's.
        machines.kill(2);
        machines.empty(2);
        machines.start(2, &[]);
        machines.all_serve(&[2]);
        assert!(![&id, &other_id].contains(&&machines.ensemble_id(2)) && !machines.have(&[2], "old"));
        eventually("it is no majority", || !machines.serves(1));
        machines.nobody_serves(&[1]);
        // With the others in their settings they are refused, until they come with empty folders.
        machines.kill(3);
        machines.start(3, &[1, 2, 3]);
        eventually("they are told apart", || {
            machines.logged(1, "are of different ensembles")
                && machines.logged(3, "are of different ensembles")
        });
        assert!(!machines.serves(1));
        machines.kill(1);
        assert!(machines.recover(1, &["--yes"]).status.success());
        for id in [2, 3] {
            machines.kill(id);
            machines.empty(id);
        }
        machines.all_start();
        assert!(machines.have(&[1, 2, 3], "old") && machines.have(&[1, 2, 3], "new"));
    });
}

/// It has forgotten what it has acknowledged since: with who has not got that it is no majority.
#[test]
fn an_older_copy_of_a_members_own_folder_is_noticed_and_joins_anew() {
    const OLDER: &str = "server 2 has come back with an older copy of its data folder";
    each(|partitions| {
        let mut machines = Machines::ensemble(partitions);
        machines.kill(2);
        let older = machines.folder.path().join("older");
        copy(&machines.of(2), &older);
        machines.start(2, &[1, 2, 3]);
        machines.all_serve(&[1, 2, 3]);
        assert!(machines.have(&[2, 3], "old"));
        // What is acknowledged now is on 1 and 2, and not on 3.
        machines.kill(3);
        machines.all_serve(&[1, 2]);
        machines.write(1, "later");
        machines.kill(2);
        machines.kill(1);
        machines.copy(&older, 2);
        machines.start(2, &[1, 2, 3]);
        machines.start(3, &[1, 2, 3]);
        eventually("3 says what 2 has", || machines.logged(3, OLDER));
        eventually("2 says so too", || {
            machines.logged(2, "server 3 knows a later start of this server than its data folder has")
        });
        machines.nobody_serves(&[2, 3]);
        machines.says(3, "reaches 1 of 3 servers that vote, itself included, and it takes 2");
        machines
            .says(3, "server 2 has come back with another data folder than it had, or with an older copy");
        machines.start(1, &[1, 2, 3]);
        machines.all_serve(&[1, 2, 3]);
        assert!(machines.logged(1, OLDER) && machines.have(&[1, 2, 3], "later"));
        // It is a member again, with what it has now, and remains one.
        machines.write(2, "new");
        machines.stand_the_loss_of(3, [1, 2]);
        assert!(machines.have(&[1, 2], "later") && machines.have(&[1, 2], "new"));
        machines.start(3, &[1, 2, 3]);
        machines.all_serve(&[3]);
        machines.kill(2);
        machines.start(2, &[1, 2, 3]);
        machines.all_serve(&[1, 2, 3]);
        machines.stand_the_loss_of(1, [2, 3]);
        assert!(machines.have(&[2, 3], "later") && machines.have(&[2, 3], "new"));
    });
}

/// Not by the entry that took the other one out, but by a snapshot from behind it.
#[test]
fn an_older_copy_learns_who_has_joined_anew_meanwhile() {
    each(|partitions| {
        let mut machines =
            Machines::ensemble_with(partitions, &["--snapshot-updates=20", "--snapshots-kept=1"]);
        machines.kill(3);
        let older = machines.folder.path().join("older");
        copy(&machines.of(3), &older);
        machines.start(3, &[1, 2, 3]);
        machines.all_serve(&[1, 2, 3]);
        machines.kill(2);
        machines.empty(2);
        machines.start(2, &[1, 2, 3]);
        machines.all_serve(&[1, 2, 3]);
        for number in 0..100 {
            machines.write(1, &format!("much-{number}"));
        }
        machines.write(1, "later");
        // Whoever has started again has no entries from before its snapshot.
        for id in [1, 2] {
            machines.kill(id);
            machines.start(id, &[1, 2, 3]);
            machines.all_serve(&[1, 2, 3]);
        }
        // Whoever leads is no stranger.
        let leads = |machines: &Machines, id| machines.word(id, "srvr").contains("Mode: leader");
        eventually("1 leads", || {
            for id in [2, 3] {
                if leads(&machines, id) {
                    machines.kill(id);
                    eventually("another one leads", || leads(&machines, 5 - id) || leads(&machines, 1));
                    machines.start(id, &[1, 2, 3]);
                    machines.all_serve(&[1, 2, 3]);
                }
            }
            leads(&machines, 1)
        });
        machines.kill(3);
        machines.copy(&older, 3);
        machines.start(3, &[1, 2, 3]);
        machines.all_serve(&[1, 2, 3]);
        assert!(machines.have(&[1, 2, 3], "later"));
        assert!(
            !machines.word(3, "mntr").contains("zk_stoa_snapshots_received_total\t0"),
            "it takes entries"
        );
        // That one has met both as they are now.
        eventually("both vote", || machines.word(1, "mntr").contains("zk_synced_followers\t2"));
        machines.kill(1);
        eventually("they elect one of them", || machines.decides(3) && machines.decides(2));
        assert!(machines.have(&[2, 3], "later"));
    });
}

#[test]
fn an_older_copy_of_an_observers_folder_is_noticed_too() {
    each(|partitions| {
        let mut machines = Machines::new(3, partitions);
        let named = [(1, "participant"), (2, "participant"), (3, "observer")];
        (1..=3).for_each(|id| machines.start_as(id, &named));
        machines.all_serve(&[1, 2, 3]);
        machines.write(1, "old");
        machines.kill(3);
        let older = machines.folder.path().join("older");
        copy(&machines.of(3), &older);
        machines.start_as(3, &named);
        machines.all_serve(&[3]);
        machines.write(3, "later");
        machines.kill(3);
        machines.copy(&older, 3);
        machines.start_as(3, &named);
        eventually("it is noticed", || {
            machines.logged(1, "server 3 has come back with an older copy of its data folder")
        });
        machines.all_serve(&[1, 2, 3]);
        assert!(machines.have(&[1, 2, 3], "old") && machines.have(&[1, 2, 3], "later"));
        assert!(machines.word(3, "srvr").contains("Mode: observer"));
        // Without the others it is nobody's.
        machines.kill(3);
        machines.start(3, &[]);
        machines
            .says(3, "the data folder is that of one of the servers 1, 2, and the settings name no servers");
        machines.nobody_serves(&[3]);
    });
}

/// A majority that has forgotten is no majority; who has not is the one to go on from.
#[test]
fn a_folder_that_is_newer_than_those_of_a_majority_is_what_is_left() {
    each(|partitions| {
        let mut machines = Machines::ensemble(partitions);
        let older = |id: usize| format!("older-{id}");
        for id in [1, 2] {
            machines.kill(id);
            copy(&machines.of(id), &machines.folder.path().join(older(id)));
            machines.start(id, &[1, 2, 3]);
            machines.all_serve(&[1, 2, 3]);
        }
        machines.write(1, "later");
        assert!(machines.have(&[3], "later"));
        machines.kill_all();
        for id in [1, 2] {
            let copied = machines.folder.path().join(older(id));
            machines.copy(&copied, id);
        }
        (1..=3).for_each(|id| machines.start(id, &[1, 2, 3]));
        machines
            .says(3, "the servers 1, 2 have come back with other data folders than they had, or with older");
        machines.nobody_serves(&[1, 2, 3]);
        machines.kill_all();
        assert!(machines.recover(3, &["--yes"]).status.success());
        machines.empty(1);
        machines.empty(2);
        machines.all_start();
        assert!(machines.have(&[1, 2, 3], "old") && machines.have(&[1, 2, 3], "later"));
    });
}

/// What clients have written to it is nowhere else, and is not dropped in silence.
#[test]
fn a_copy_of_a_folder_that_went_on_by_itself_is_told_from_one_that_did_not() {
    each(|partitions| {
        let mut machines = Machines::stood_alone(partitions);
        let backup = machines.folder.path().join("backup");
        copy(&machines.of(1), &backup);
        machines.start(1, &[]);
        machines.all_serve(&[1]);
        machines.write(1, "other");
        machines.kill(1);
        let went_on = machines.of(1);
        machines.copy(&went_on, 2);
        machines.copy(&backup, 3);
        machines.copy(&backup, 1);
        machines.start(1, &[]);
        machines.all_serve(&[1]);
        machines.write(1, "new");
        machines.kill(1);
        // Nothing is known as long as the first one is not there.
        machines.start(2, &[1, 2, 3]);
        machines.start(3, &[1, 2, 3]);
        machines.says(3, "the data folder is a copy of that of server 1, which stood alone");
        machines.nobody_serves(&[2, 3]);
        machines.start(1, &[1, 2, 3]);
        machines.all_serve(&[1, 3]);
        let why = "the data folder of server 2 is a copy of that of server 1, and has gone on by itself";
        machines.says(2, why);
        eventually("the other one says so too", || machines.logged(1, why));
        machines.nobody_serves(&[2]);
        assert!(machines.have(&[1, 3], "old") && machines.have(&[1, 3], "new"));
        assert!(!machines.have(&[1], "other"));
        // Both ways out are there.
        machines.kill(2);
        assert!(machines.recover(2, &["--yes"]).status.success());
        machines.start(2, &[]);
        machines.all_serve(&[2]);
        assert!(machines.have(&[2], "other") && machines.ensemble_id(2) != machines.ensemble_id(1));
        machines.kill(2);
        machines.empty(2);
        machines.start(2, &[1, 2, 3]);
        machines.all_serve(&[1, 2, 3]);
        assert!(machines.have(&[1, 2, 3], "new"));
    });
}

/// A backup from when a server stood alone is gone on from; whoever has what came after it is of no use any more.
#[test]
fn what_came_after_a_backup_that_is_gone_on_from_does_not_come_back() {
    each(|partitions| {
        let mut machines = Machines::stood_alone(partitions);
        let backup = machines.folder.path().join("backup");
        copy(&machines.of(1), &backup);
        machines.all_start();
        machines.write(1, "given-up");
        assert!(machines.have(&[2], "given-up"));
        machines.kill_all();
        let given_up = machines.folder.path().join("given-up");
        copy(&machines.of(2), &given_up);
        machines.copy(&backup, 1);
        machines.empty(2);
        machines.empty(3);
        machines.all_start();
        eventually("all vote", || machines.word(1, "mntr").contains("zk_synced_followers\t2"));
        for what in ["new", "newer", "newest"] {
            machines.write(1, what);
        }
        machines.kill(2);
        machines.copy(&given_up, 2);
        machines.start(2, &[1, 2, 3]);
        eventually("it is said", || {
            machines.logged(1, "server 2 has the folder of an ensemble that was given up")
        });
        machines.nobody_serves(&[2]);
        // When the first one has not stood alone as it started, it may be given everything by the others, and have nothing
        // else then.
        machines.kill(1);
        machines.start(1, &[1, 2, 3]);
        machines.all_serve(&[1, 3]);
        std::thread::sleep(NEVER);
        assert!(machines.have(&[1, 3], "newest") && !machines.have(&[1], "given-up"));
        if machines.serves(2) {
            assert!(machines.have(&[2], "newest") && !machines.have(&[2], "given-up"));
        }
        machines.kill(2);
        machines.empty(2);
        machines.start(2, &[1, 2, 3]);
        machines.all_serve(&[1, 2, 3]);
        assert!(machines.have(&[1, 2, 3], "newest"));
    });
}

/// By the copy it needs nobody to decide, and the others have gone on without it.
#[test]
fn an_older_copy_from_when_a_server_stood_alone_is_refused() {
    each(|partitions| {
        let mut machines = Machines::stood_alone(partitions);
        let older = machines.folder.path().join("older");
        copy(&machines.of(1), &older);
        machines.all_start();
        machines.stand_the_loss_of(1, [2, 3]);
        machines.write(2, "new");
        machines.copy(&older, 1);
        machines.start(1, &[1, 2, 3]);
        eventually("it ends", || machines.logged(1, "by it this server would decide alone"));
        eventually("it has ended", || !machines.serves(1));
        machines.all_serve(&[2, 3]);
        assert!(machines.have(&[2, 3], "old") && machines.have(&[2, 3], "new"));
        machines.kill(1);
        machines.empty(1);
        machines.start(1, &[1, 2, 3]);
        machines.all_serve(&[1, 2, 3]);
        assert!(machines.have(&[1, 2, 3], "old") && machines.have(&[1, 2, 3], "new"));
    });
}

#[test]
fn a_folder_of_another_number_is_made_this_servers() {
    each(|partitions| {
        let mut machines = Machines::stood_alone(partitions);
        let folder = machines.of(1);
        machines.copy(&folder, 3);
        machines.start(3, &[]);
        machines.says(
            3,
            "the data folder is that of server 1, which stood alone, and this is server 3: set server-id",
        );
        machines.kill(3);
        assert!(machines.recover(3, &["--yes"]).status.success());
        machines.start(3, &[2, 3]);
        machines.start(2, &[2, 3]);
        machines.all_serve(&[2, 3]);
        assert!(machines.have(&[2, 3], "old"));
    });
}

#[test]
fn an_observer_may_be_all_that_is_left() {
    each(|partitions| {
        let mut machines = Machines::new(3, partitions);
        let named = [(1, "participant"), (2, "participant"), (3, "observer")];
        (1..=3).for_each(|id| machines.start_as(id, &named));
        machines.all_serve(&[1, 2, 3]);
        machines.write(1, "old");
        assert!(machines.have(&[3], "old"));
        machines.kill_all();
        assert!(machines.recover(3, &["--yes"]).status.success());
        machines.empty(1);
        machines.empty(2);
        machines.all_start();
        assert!(machines.have(&[1, 2, 3], "old"));
    });
}

#[test]
fn servers_of_two_ensembles_do_not_become_one() {
    each(|partitions| {
        let mut machines = Machines::new(2, partitions);
        for (id, what) in [(1, "one"), (2, "two")] {
            machines.start(id, &[]);
            machines.all_serve(&[id]);
            machines.write(id, what);
            machines.kill(id);
        }
        machines.start(1, &[1, 2]);
        machines.start(2, &[1, 2]);
        eventually("both say so", || {
            (1..=2).all(|id| {
                machines.logged(id, "are of different ensembles")
                    && machines.logged(id, "move its data folder away")
            })
        });
        std::thread::sleep(NEVER);
        assert!(!machines.have(&[1], "two") && !machines.have(&[2], "one"));
        machines.kill(2);
        machines.empty(2);
        machines.start(2, &[1, 2]);
        machines.all_serve(&[1, 2]);
        assert!(machines.have(&[1, 2], "one"));
    });
}

#[test]
fn settings_that_name_others_than_the_list_are_told() {
    each(|partitions| {
        let mut machines = Machines::new(4, partitions);
        machines.all_start();
        machines.write(1, "old");
        assert!(machines.have(&[3], "old"));
        machines.kill(3);
        machines.start(3, &[1, 2, 3, 4]);
        machines.all_serve(&[3]);
        assert!(machines.logged(3, "and the list counts: it lacks server.4="));
        assert!(machines.logged(3, "`stoa reconfig -add 'server.4=127.0.0.1:"));
        machines.kill(3);
        machines.start(3, &[1, 3]);
        machines.all_serve(&[3]);
        assert!(machines.logged(3, "it has the servers 2 besides (`stoa reconfig -remove 2`"));
    });
}

#[test]
fn a_folder_that_cannot_be_gone_on_from_is_refused() {
    each(|partitions| {
        let mut machines = Machines::new(2, partitions);
        let said = |output: Output| String::from_utf8(output.stderr).unwrap();
        assert!(said(machines.recover(1, &["--yes"])).contains("it is not one of Stoa's"));
        machines.start(1, &[1, 2]);
        machines.says(1, "the data folder is empty, and a new ensemble begins");
        assert!(said(machines.recover(1, &["--yes"])).contains("is in use"), "it runs");
        machines.kill(1);
        assert!(said(machines.recover(1, &["--yes"])).contains("it holds nothing of an ensemble"));
    });
}
