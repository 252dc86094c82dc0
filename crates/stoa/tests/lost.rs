//! What a site that was given up alone has is listed, and nothing else: by its server, which serves nobody, and by what is
//! on that one's disk.
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use common::eventually;
use serde_json::Value;
use tempfile::TempDir;

const STOA: &str = env!("CARGO_BIN_EXE_stoa");

/// Three sites of one server each: Virginia, the hub, California and Frankfurt.
struct Sites {
    process: Child,
    keyboard: Option<ChildStdin>,
    /// Of each, where its server is for clients, and its admin HTTP.
    clients: Vec<String>,
    admins: Vec<String>,
}

impl Sites {
    fn start(temporary: &Path, data: &Path) -> Self {
        let distances = temporary.join("distances");
        fs::write(&distances, "frankfurt virginia 4\ncalifornia virginia 4\n").unwrap();
        let mut process = Command::new(STOA)
            .args(["dev", "--port", "0", "--sites", "virginia,california,frankfurt", "--data-dir"])
            .arg(data)
            .arg("--round-trips")
            .arg(distances)
            // Two requests in a row bring a token.
            .env("STOA_SITE_POLICY", "consecutive 2")
            .env("TMPDIR", temporary)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (mut clients, mut admins) = (Vec::new(), Vec::new());
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        for line in lines.by_ref().map_while(Result::ok) {
            if ["virginia (the hub) ", "california (4 ms", "frankfurt (4 ms"]
                .iter()
                .any(|site| line.contains(site))
                && line.contains("127.0.0.1:")
            {
                clients.push(line.rsplit(' ').next().unwrap().to_owned());
            }
            if line.contains("  admin ") {
                let urls = line.split_whitespace().filter_map(|word| word.strip_suffix("/commands"));
                admins = urls.map(|url| url.trim_start_matches("http://").to_owned()).collect();
                break;
            }
        }
        std::thread::spawn(move || lines.for_each(drop));
        assert_eq!((clients.len(), admins.len()), (3, 3), "{clients:?} {admins:?}");
        Self { keyboard: process.stdin.take(), process, clients, admins }
    }

    fn type_line(&mut self, line: &str) {
        writeln!(self.keyboard.as_mut().unwrap(), "{line}").unwrap();
    }

    /// A word of the shell, said at a site; what it answers if it succeeds.
    fn word(&self, site: usize, words: &[&str]) -> Option<String> {
        ran(Command::new(STOA).args(words).env("STOA_SERVER", &self.clients[site])).ok()
    }

    fn sites(&self, site: usize, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(STOA);
        ran(command.arg("sites").args(words).args(["--admin", &self.admins[site]]))
    }

    fn http(&self, site: usize, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.admins[site]).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Sites {
    fn drop(&mut self) {
        // The servers go with it.
        drop(self.keyboard.take());
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a command says, or on which it fails.
fn ran(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// Of each operation on a znode in a list: its kind, its path, its data, and what has become of the znode.
fn operations(list: &str) -> Vec<[String; 4]> {
    let updates = list.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let operations = updates.flat_map(|update| update["operations"].as_array().unwrap().clone());
    let on_znodes = operations.filter(|operation| operation["path"].is_string());
    let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
    on_znodes.map(|of| ["operation", "path", "data", "now"].map(|field| text(&of[field]))).collect()
}

/// The folder of a server somewhere below another one.
fn folder_of_server(within: &Path) -> PathBuf {
    let mut folders = vec![within.to_owned()];
    while let Some(folder) = folders.pop() {
        let below: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        let is_segment = |path: &PathBuf| path.to_string_lossy().contains("/log-");
        if below.iter().any(is_segment) {
            return folder;
        }
        folders.extend(below.into_iter().filter(|path| path.is_dir()));
    }
    panic!("{} has no server", within.display());
}

const VIRGINIA: usize = 0;
const CALIFORNIA: usize = 1;
const FRANKFURT: usize = 2;

/// What Frankfurt does when nobody else hears of it.
const LOST: [&[&str]; 4] = [
    &["set", "/mine", "ours"],
    &["set", "/mine/kept", "ours too"],
    &["create", "/mine/new", "new"],
    &["delete", "/mine/known"],
];

/// Frankfurt holds `/mine`, all know it, and then it is cut off, goes on, and is given up.
fn give_frankfurt_up(sites: &mut Sites) {
    eventually("Frankfurt serves", || sites.word(FRANKFURT, &["create", "/mine", "x"]).is_some());
    eventually("Frankfurt holds what it uses", || {
        sites.word(FRANKFURT, &["set", "/mine", "known"]).unwrap();
        sites.sites(FRANKFURT, &["token", "/mine"]).unwrap().starts_with("frankfurt (site 3)")
    });
    for path in ["/mine/kept", "/mine/known"] {
        sites.word(FRANKFURT, &["create", path, "known"]).unwrap();
    }
    eventually("all know it", || sites.word(VIRGINIA, &["get", "/mine/known"]).is_some());
    sites.type_line("cut frankfurt");
    eventually("nothing comes from Frankfurt", || {
        sites.word(FRANKFURT, &["set", "/mine", "cut?"]).unwrap();
        sites.word(VIRGINIA, &["set", "/x", "x"]);
        std::thread::sleep(std::time::Duration::from_millis(200));
        !sites.word(VIRGINIA, &["get", "/mine"]).unwrap().contains("cut?")
    });
    for words in LOST {
        sites.word(FRANKFURT, words).unwrap();
    }
    sites.sites(VIRGINIA, &["lose", "frankfurt"]).unwrap();
    eventually("Virginia writes what Frankfurt held", || {
        sites.word(VIRGINIA, &["set", "/mine", "theirs"]).is_some()
    });
}

#[test]
fn what_a_site_alone_has_is_listed_and_nothing_else() {
    let temporary = TempDir::new().unwrap();
    let data = temporary.path().join("data");
    let mut sites = Sites::start(temporary.path(), &data);
    let none = sites.sites(FRANKFURT, &["lost"]).unwrap_err();
    assert!(none.contains("nothing of it is lost") || none.contains("has not joined"), "{none}");
    give_frankfurt_up(&mut sites);
    let hub: Value = serde_json::from_str(&sites.sites(VIRGINIA, &["--json"]).unwrap()).unwrap();
    let kept = hub["sites"][FRANKFURT]["kept_zxid"].as_str().unwrap().to_owned();
    let told = sites.sites(CALIFORNIA, &[]).unwrap();
    assert!(
        told.contains(&format!("frankfurt was given up; what it has made behind zxid {kept} is lost")),
        "{told}"
    );
    sites.type_line("heal frankfurt");
    eventually("Frankfurt knows what is lost", || sites.sites(FRANKFURT, &["--json", "lost"]).is_ok());

    let server = sites.clients[VIRGINIA].clone();
    let compared = ["--json", "--server", &server, "lost", "--data", "--compare"];
    let list = sites.sites(FRANKFURT, &compared).unwrap();
    let of = |operation: &str, path: &str, data: &str, now: &str| {
        let hex: String = data.bytes().map(|byte| format!("{byte:02x}")).collect();
        [operation.to_owned(), path.to_owned(), hex, now.to_owned()]
    };
    let expected = [
        of("setData", "/mine", "ours", "changed since"),
        of("setData", "/mine/kept", "ours too", "unchanged"),
        of("create", "/mine/new", "new", "not there"),
        of("delete", "/mine/known", "", "unchanged"),
    ];
    // Behind the one that showed that the line was cut.
    let all = operations(&list);
    let ours: Vec<_> = all.iter().skip_while(|of| of[2] == expected_probe()).cloned().collect();
    assert_eq!(ours, expected, "{list}");
    assert!(!all.is_empty() && all.len() < list.lines().count(), "sessions begin and end, too: {list}");

    // It is counted where it is, and bounded.
    let count = list.lines().count();
    eventually("it is counted", || {
        sites.http(FRANKFURT, "/metrics").contains(&format!("\nstoa_site_lost_updates {count}\n"))
    });
    let behind = i64::from_str_radix(kept.trim_start_matches("0x"), 16).unwrap();
    let metric = format!("\nstoa_site_lost_behind_zxid{{site=\"frankfurt\"}} {behind}\n");
    assert!(sites.http(VIRGINIA, "/metrics").contains(&metric));
    let one = sites.sites(FRANKFURT, &["lost", "--limit", "1"]).unwrap();
    assert!(one.contains(&format!("lack {count} of its updates\nthere are more behind")), "{one}");
    assert!(!list.lines().next().unwrap().contains("\"is_committed\":false"));

    // The disk says the same, also when the site has joined anew and has nothing of it any more.
    let folder = folder_of_server(&data.join("frankfurt"));
    let offline = |options: &[&str]| {
        ran(Command::new(STOA).args(["log", "lost"]).arg(&folder).args(["--json", "--data"]).args(options))
    };
    let of_disk = |options: &[&str]| operations(&offline(options).unwrap());
    let without_now = |all: &[[String; 4]]| -> Vec<_> { all.iter().map(|of| of[..3].to_vec()).collect() };
    assert_eq!(without_now(&of_disk(&[])), without_now(&all));
    assert_eq!(without_now(&of_disk(&["--behind", &kept])), without_now(&all));
    sites.sites(FRANKFURT, &["rejoin", "--discard"]).unwrap();
    eventually("Frankfurt has joined anew", || {
        sites.word(FRANKFURT, &["get", "/mine"]).is_some_and(|data| data.contains("theirs"))
    });
    let none = sites.sites(FRANKFURT, &["lost"]).unwrap_err();
    assert!(none.contains("nothing of it is lost"), "{none}");
    assert_eq!(without_now(&of_disk(&[])), without_now(&all));
}

/// The data of the write with which it is found that the line is cut, in hex.
fn expected_probe() -> String {
    "cut?".bytes().map(|byte| format!("{byte:02x}")).collect()
}
