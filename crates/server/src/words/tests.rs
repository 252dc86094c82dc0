//! Each word's answer, to the letter.

use tokio::sync::oneshot;

use super::*;
use crate::config::Settings;
use crate::process::{Phase, Process, VERSION};
use crate::view::readers::below;
use crate::view::tests::{
    Example, ensemble_settings, feeder, follower, hub, leader, looking, read_only, stats,
};
use crate::view::{LinkStatus, Mode, Source, Stats, why_unready};

fn process(words: &[Word]) -> Process {
    let settings = Settings { words: words.to_vec(), data_dir: "/srv/stoa".into(), ..Settings::default() };
    let process = Process::new(settings, 2181);
    process.set_phase(Phase::Serving);
    process
}

fn ask(name: &str) -> String {
    answer(Word::from_name(name).unwrap(), b"\r\n", &process(Word::ALL), &mut Example::default())
}

/// The same of a server of three voters and an observer.
fn ask_of(stats: fn() -> Stats, name: &str) -> String {
    let settings = Settings { words: Word::ALL.to_vec(), ..ensemble_settings(stats().ensemble.id) };
    let process = Process::new(settings, 2181);
    process.set_phase(Phase::Serving);
    let mut example = Example { stats, ..Example::default() };
    answer(Word::from_name(name).unwrap(), b"\n", &process, &mut example)
}

#[test]
fn words_are_known_by_their_four_letters() {
    for word in Word::ALL {
        assert_eq!(parse(word.name().as_bytes().try_into().unwrap()), Some(*word));
    }
    assert_eq!(parse(*b"RUOK"), None);
    assert_eq!(parse([0, 0, 0, 44]), None);
    assert_eq!(parse(TELNET_END), None);
}

#[test]
fn srvr_and_stat() {
    let figures = "Latency min/avg/max: 0/0.125/7\nReceived: 1000\nSent: 1010\nConnections: 2\nOutstanding: 3\n\
                   Zxid: 0x2a\nMode: standalone\nNode count: 7\n";
    assert_eq!(ask("srvr"), format!("Zookeeper version: {VERSION}\n{figures}"));
    let clients = "Clients:\n /127.0.0.1:4242[1](queued=1,recved=10,sent=11)\n \
                   /[0:0:0:0:0:0:0:1]:4243[5](queued=0,recved=1,sent=0)\n\n";
    assert_eq!(ask("stat"), format!("Zookeeper version: {VERSION}\n{clients}{figures}"));
}

#[test]
fn srvr_and_stat_say_how_the_sites_stand() {
    let lines = "Proposal sizes last/min/max: 44/40/90\nSite: virginia\nSite virginia: number 1, is_hub true\n\
                 Site california: number 2, connected true, connected_since 1700000000000, round_trip_ms 62.5, \
                 unshipped_entries 3, unshipped_ms 31, unshipped_is_all true, imported_position 40\n\
                 Site frankfurt: number 3, is_given_up true, connected false, imported_position 0\n";
    for word in ["srvr", "stat"] {
        let text = ask_of(hub, word);
        assert!(text.ends_with(lines), "{text}");
    }
}

#[test]
fn srvr_and_stat_say_where_the_server_stands_in_the_forest() {
    for word in ["srvr", "stat"] {
        let text = ask_of(feeder, word);
        assert!(text.ends_with("\nForest: leader of the forest\n"), "{text}");
    }
}

#[test]
fn srvr_and_stat_say_below_whom_a_reader_is() {
    for word in ["srvr", "stat"] {
        let text = ask_of(below, word);
        let lines = "Reader: below zoo1 port 2888 (a reader), by way of server 2, 4 behind\nReaders: 1, 1 of them behind\n";
        assert!(text.ends_with(lines), "{text}");
    }
}

#[test]
fn srvr_and_stat_say_what_the_server_is_to_the_others() {
    for (stats, mode) in
        [(leader as fn() -> Stats, "leader"), (follower, "follower"), (read_only, "read-only")]
    {
        for word in ["srvr", "stat"] {
            let text = ask_of(stats, word);
            let proposals = if mode == "leader" { "Proposal sizes last/min/max: 44/40/90\n" } else { "" };
            assert!(text.ends_with(&format!("\nMode: {mode}\nNode count: 7\n{proposals}")), "{text}");
        }
    }
}

#[test]
fn a_server_that_only_reads_says_so() {
    assert_eq!(ask_of(follower, "isro"), "rw");
    assert_eq!(ask_of(read_only, "isro"), "ro");
    let mntr = ask_of(read_only, "mntr");
    assert!(mntr.contains("\nzk_server_state\tread-only\n"), "{mntr}");
    assert!(!mntr.contains("zk_peer_state"), "{mntr}");
}

#[test]
fn conf_has_the_lines_of_an_ensemble() {
    let conf = ask_of(leader, "conf");
    let (own, ensemble) = conf.split_once("serverId=").unwrap();
    assert!(own.ends_with("clientPortListenBacklog=1024\n"), "{own}");
    assert_eq!(
        ensemble,
        "1\nquorumPort=2888\npeerType=0\nmembership: \n\
         server.1=zoo1.example:2888:3888:participant;0.0.0.0:2181\n\
         server.2=zoo2.example:2888:3888:participant;0.0.0.0:2181\n\
         server.3=zoo3.example:2888:3888:participant;0.0.0.0:2181\n\
         server.4=zoo4.example:2888:3888:observer;0.0.0.0:2181\n"
    );
    assert!(ask_of(|| Stats { mode: Mode::Observer, ..observer() }, "conf").contains("\npeerType=1\n"));
}

fn observer() -> Stats {
    let mut stats = follower();
    stats.ensemble.id = 4;
    stats
}

#[test]
fn only_who_judges_sessions_says_when_they_end() {
    assert!(ask_of(leader, "dump").starts_with("SessionTracker dump:\nSession Sets (2)/(2):\n1 expire at "));
    assert!(ask_of(follower, "dump").starts_with(
        "SessionTracker dump:\nGlobal Sessions(2):\n0x100000000000001\t30000ms\n0x100000000000002\t30000ms\n\
         ephemeral nodes dump:\nSessions with Ephemerals (1):\n"
    ));
}

#[test]
fn local_sessions_are_listed_by_themselves_where_there_may_be_some() {
    let example = Example::default();
    let mut sessions = example.sessions();
    sessions[1].is_local = true;
    let settings = Settings { local_sessions: true, ..Settings::default() };
    let dumped = |mode| text::dump(&sessions, &example.connections(), &settings, mode);
    let leader = dumped(Mode::Leader);
    assert!(
        leader.starts_with("SessionTracker dump:\nLocal Session Sets (1)/(1):\n1 expire at "),
        "{leader}"
    );
    assert!(
        leader.contains(":\n\t0x100000000000002\nGlobal Session Sets (1)/(1):\n1 expire at "),
        "{leader}"
    );
    let follower = dumped(Mode::Follower);
    assert!(follower.starts_with("SessionTracker dump:\nLocal Session Sets (1)/(1):\n1 expire at "));
    assert!(follower.contains("\nGlobal Sessions(1):\n0x100000000000001\t30000ms\nephemeral nodes dump:"));
    assert!(dumped(Mode::Standalone).starts_with("SessionTracker dump:\nSession Sets "));
}

#[test]
fn latency_before_the_first_request_is_zero() {
    struct Fresh;
    impl Source for Fresh {
        fn order_sites(&mut self, _: crate::view::SiteOrder, _: oneshot::Sender<Result<(), String>>) {}
        fn stats(&self) -> Stats {
            Stats { latency_min_us: u64::MAX, ..Stats::default() }
        }
        fn connections(&self) -> Vec<crate::view::Connection> {
            Vec::new()
        }
        fn sessions(&self) -> Vec<crate::view::Session> {
            Vec::new()
        }
        fn ephemerals(&self, sessions: &[i64]) -> Vec<Vec<String>> {
            vec![Vec::new(); sessions.len()]
        }
        fn watch_summary(&self) -> crate::view::WatchSummary {
            crate::view::WatchSummary::default()
        }
        fn watches(&self) -> Vec<crate::view::SessionWatches> {
            Vec::new()
        }
        fn partitions(&self) -> Vec<crate::view::Partition> {
            Vec::new()
        }
        fn balance(&self, _: Option<&str>) -> crate::view::Balance {
            crate::view::Balance::default()
        }
        fn move_subtree(&mut self, _: &str, _: u8) -> Result<(), String> {
            Ok(())
        }
        fn path_token(&self, _: &str) -> Option<crate::view::PathToken> {
            None
        }
        fn holder_by(&self, _: &str, _: crate::view::PathToken) -> Option<crate::view::Holder> {
            None
        }
        fn lost(
            &mut self,
            _: crate::view::LostAsked,
            _: oneshot::Sender<Result<crate::view::LostView, String>>,
        ) {
        }
        fn may_administer(&self, _: &[stoa_tree::Identity]) -> bool {
            false
        }
        fn digests(&self) -> Vec<crate::view::Digest> {
            Vec::new()
        }
        fn reset_stats(&mut self) {}
        fn reset_connections(&mut self) {}
        fn snapshot(&mut self, _: oneshot::Sender<Result<crate::view::SnapshotDone, String>>) {}
    }
    let text = answer(Word::Srvr, b"", &process(&[]), &mut Fresh);
    assert!(text.contains("Latency min/avg/max: 0/0.0/0\n"), "{text}");
}

#[test]
fn cons() {
    assert_eq!(
        ask("cons"),
        " /127.0.0.1:4242[1](queued=1,recved=10,sent=11,sid=0x100000000000001,lop=GETD,est=1700000000000,to=30000,\
         lcxid=0x9,lzxid=0x2a,lresp=5000,llat=1,minlat=0,avglat=1,maxlat=2)\n \
         /[0:0:0:0:0:0:0:1]:4243[5](queued=0,recved=1,sent=0)\n\n"
    );
}

#[test]
fn dump() {
    assert_eq!(
        ask("dump"),
        "SessionTracker dump:\nSession Sets (2)/(2):\n1 expire at Tue Nov 14 22:13:40 UTC 2023:\n\
         \t0x100000000000001\n1 expire at Tue Nov 14 22:13:50 UTC 2023:\n\t0x100000000000002\n\
         ephemeral nodes dump:\nSessions with Ephemerals (1):\n0x100000000000001:\n\t/a\n\t/b\n\
         Connections dump:\nConnections Sets (2)/(2):\n1 expire at Tue Nov 14 22:13:30 UTC 2023:\n\
         \tip: /[0:0:0:0:0:0:0:1]:4243 sessionId: 0x0\n1 expire at Tue Nov 14 22:13:40 UTC 2023:\n\
         \tip: /127.0.0.1:4242 sessionId: 0x100000000000001\n"
    );
}

#[test]
fn watches() {
    assert_eq!(ask("wchs"), "2 connections watching 2 paths\nTotal watches:3\n");
    assert_eq!(ask("wchc"), "0x100000000000001\n\t/a\n\t/b\n0x100000000000002\n\t/a\n\n");
    assert_eq!(ask("wchp"), "/a\n\t0x100000000000001\n\t0x100000000000002\n/b\n\t0x100000000000001\n\n");
}

/// The keys of ZooKeeper's environment, in its order.
const ENVIRONMENT: [&str; 18] = [
    "zookeeper.version",
    "host.name",
    "java.version",
    "java.vendor",
    "java.home",
    "java.class.path",
    "java.library.path",
    "java.io.tmpdir",
    "java.compiler",
    "os.name",
    "os.arch",
    "os.version",
    "user.name",
    "user.home",
    "user.dir",
    "os.memory.free",
    "os.memory.max",
    "os.memory.total",
];

#[test]
fn conf_dirs_and_envi() {
    assert_eq!(
        ask("conf"),
        "clientPort=2181\nsecureClientPort=-1\ndataDir=/srv/stoa\ndataDirSize=2048\ndataLogDir=/srv/stoa\n\
         dataLogSize=4096\ntickTime=3000\nmaxClientCnxns=60\nminSessionTimeout=6000\nmaxSessionTimeout=60000\n\
         clientPortListenBacklog=1024\nserverId=0\n"
    );
    assert_eq!(ask("dirs"), "datadir_size: 2048\nlogdir_size: 4096\n");
    let environment = ask("envi");
    assert!(environment.starts_with(&format!("Environment:\nzookeeper.version={VERSION}\nhost.name=")));
    let lines: Vec<_> = environment.lines().skip(1).filter_map(|line| line.split_once('=')).collect();
    let keys: Vec<_> = lines.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, ENVIRONMENT);
    let java = lines.iter().filter(|(key, _)| key.starts_with("java."));
    assert!(
        java.clone().count() == 7 && java.into_iter().all(|(_, value)| *value == "none"),
        "{environment}"
    );
}

#[test]
fn small_words() {
    assert_eq!(ask("ruok"), "imok");
    assert_eq!(ask("isro"), "rw");
    assert_eq!(ask("hash"), "80: -2\n100: 12\n");
    assert_eq!(ask("gtmk"), "306");
    assert_eq!(ask("srst"), "Server stats reset.\n");
    assert_eq!(ask("crst"), "Connection stats reset.\n");
    assert!(ask("mntr").starts_with("zk_version\t"));
}

#[test]
fn the_trace_mask_is_kept() {
    let process = process(Word::ALL);
    let text = answer(Word::Stmk, &7_i64.to_be_bytes(), &process, &mut Example::default());
    assert_eq!((text.as_str(), process.trace_mask()), ("7", 7));
    assert!(answer(Word::Stmk, b"7\n", &process, &mut Example::default()).starts_with("stmk takes the mask"));
    assert_eq!(process.trace_mask(), 7);
}

#[test]
fn resets_reach_the_server() {
    let mut example = Example::default();
    let process = process(Word::ALL);
    answer(Word::Srst, b"", &process, &mut example);
    answer(Word::Crst, b"", &process, &mut example);
    answer(Word::Crst, b"", &process, &mut example);
    assert_eq!((example.stats_resets, example.connection_resets), (1, 2));
}

#[test]
fn only_srvr_is_answered_unless_others_are_allowed() {
    let process = process(&[]);
    for word in Word::ALL {
        let text = answer(*word, b"", &process, &mut Example::default());
        let refusal = format!("{} is not executed because it is not in the whitelist.\n", word.name());
        assert_eq!(text == refusal, *word != Word::Srvr, "{text}");
    }
    let settings = Settings { read_only_mode: true, words: Vec::new(), ..Settings::default() };
    assert!(settings.allows(Word::Isro) && !settings.allows(Word::Stat), "clients ask for it");
}

#[test]
fn a_server_that_does_not_serve_says_so() {
    for phase in [Phase::Recovering, Phase::Looking, Phase::Stopping] {
        let process = process(Word::ALL);
        process.set_phase(phase);
        let ask = |word| answer(word, b"", &process, &mut Example::default());
        for word in [Word::Stat, Word::Mntr, Word::Conf, Word::Cons, Word::Dump, Word::Wchs] {
            assert_eq!(ask(word), "This ZooKeeper instance is not currently serving requests\n");
        }
        // Only this one says why, on a line of its own.
        let srvr = ask(Word::Srvr);
        let mut lines = srvr.lines();
        assert_eq!(lines.next(), Some("This ZooKeeper instance is not currently serving requests"));
        assert_eq!(lines.next(), why_unready(phase, Some(&stats())).as_deref());
        assert!(lines.next().is_none() && srvr.ends_with('\n'), "{srvr:?}");
        assert_eq!(ask(Word::Hash), "This ZooKeeper instance is not currently serving requests");
        assert_eq!(ask(Word::Isro), "null");
        assert_eq!(ask(Word::Ruok), "imok");
        assert!(ask(Word::Envi).starts_with("Environment:"));
    }
    let stats = stats();
    assert_eq!(stats.zxid, 0x2a, "the example is what the other tests rest on");
}

#[test]
fn what_others_have_said_neither_looks_like_a_figure_nor_breaks_the_line() {
    fn told() -> Stats {
        let mut stats = looking();
        let last_error = Some("refused: x\nMode: leader".to_owned());
        stats.ensemble.members[2].link = Some(LinkStatus { last_error, ..LinkStatus::default() });
        stats
    }
    let process = process(&[]);
    process.set_phase(Phase::Looking);
    let mut example = Example { stats: told, ..Example::default() };
    let srvr = answer(Word::Srvr, b"", &process, &mut example);
    assert!(srvr.contains("server 3 (zoo3.example port 2888): refused: x mode: leader"), "{srvr}");
    // What zkServer.sh looks for.
    assert!(!srvr.contains("Mode") && srvr.lines().count() == 2, "{srvr}");
}

#[test]
fn the_settings_say_how_many_partitions_there_are_if_there_are_several() {
    let several = || Stats { partitions: 4, ..stats() };
    assert!(ask_of(several, "conf").contains("\nserverId=0\npartitions=4\n"));
    assert!(!ask_of(stats, "conf").contains("partitions"));
    assert!(ask_of(several, "mntr").contains("zk_stoa_requests_handed_over_total\t0\n"));
    assert!(!ask_of(stats, "mntr").contains("handed_over"));
}

#[test]
fn connections_tell_which_partition_s_thread_has_them_if_there_are_several() {
    let cons = ask_of(|| Stats { partitions: 4, ..stats() }, "cons");
    assert!(cons.contains("[1](queued=1,recved=10,sent=11,partition=2,sid=0x100000000000001,"), "{cons}");
}
