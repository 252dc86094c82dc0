//! `stoa extension` as its users meet it, and the examples by way of it.
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use stoa_client::blocking::Client;
use stoa_client::{CreateMode, Options};

const STOA: &str = env!("CARGO_BIN_EXE_stoa");

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/extensions")
}

fn check(files: &[&Path]) -> Output {
    Command::new(STOA).args(["extension", "check"]).args(files).output().unwrap()
}

fn test(file: &Path, script: &Path) -> Output {
    Command::new(STOA).args(["extension", "test"]).arg(file).arg("--script").arg(script).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn every_example_does_what_its_script_says() {
    let mut programs: Vec<PathBuf> = fs::read_dir(examples())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rhai"))
        .collect();
    programs.sort();
    assert_eq!(programs.len(), 6, "{programs:?}");
    for program in &programs {
        let output = test(program, &program.with_extension("script"));
        assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    }
    let all: Vec<&Path> = programs.iter().map(PathBuf::as_path).collect();
    let output = check(&all);
    assert!(output.status.success());
    assert!(
        text(&output.stdout)
            .contains("election: ok\n  operation block /leader/*\n  event deleted /clients/*\n")
    );
}

#[test]
fn an_expectation_that_is_not_met_fails_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    fs::write(&script, "given /ctr 1\nanna: read /ctr-increment\nexpect reply 3\n").unwrap();
    let output = test(&examples().join("counter.rhai"), &script);
    assert_eq!(output.status.code(), Some(1));
    let out = text(&output.stdout);
    assert!(
        out.contains(&format!("{}:3: EXPECTED reply 3\n  but there is\n  reply 2\n", script.display())),
        "{out}"
    );
    assert_eq!(text(&output.stderr), "stoa: 1 of 1 expectations are not met\n");

    // One result meets one expectation.
    fs::write(&script, "given /ctr 1\nanna: read /ctr-increment\nexpect reply 2\nexpect reply 2\n").unwrap();
    assert_eq!(test(&examples().join("counter.rhai"), &script).status.code(), Some(1));

    fs::write(&script, "anna reads /ctr\n").unwrap();
    let output = test(&examples().join("counter.rhai"), &script);
    assert!(text(&output.stderr).starts_with(&format!("stoa: {}:1: a line is", script.display())));
}

#[test]
fn what_cannot_be_registered_is_said_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.rhai");
    fs::write(&file, "on_operation(\"read\", \"/x\");\nfn read(request) {\n    while true { }\n}\n").unwrap();
    let output = check(&[&file, &examples().join("queue.rhai")]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.starts_with(&format!("{}:3:5: `while` and `loop` may not end;", file.display())), "{said}");
    assert!(said.ends_with("stoa: 1 of 2 programs cannot be registered\n"), "{said}");
    assert!(text(&output.stdout).starts_with("queue: ok\n"));
    assert_eq!(test(&file, &file).status.code(), Some(1));
}

/// A server; killed when dropped.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(STOA);
        command.args(["serve", "--admin-port=0", "--port=0", "--data-dir"]).arg(folder);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let ready = BufReader::new(process.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        let address = format!("127.0.0.1:{}", ready.trim().rsplit(':').next().unwrap());
        Self { process, address }
    }

    fn extension(&self, arguments: &[&str]) -> Output {
        Command::new(STOA)
            .arg("extension")
            .args(arguments)
            .env("STOA_SERVER", &self.address)
            .output()
            .unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
fn programs_of_a_server_are_added_listed_shown_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let (counter, queue) = (examples().join("counter.rhai"), examples().join("queue.rhai"));
    let none = server.extension(&["list"]);
    assert!(none.status.success() && none.stdout.is_empty());

    let bad = folder.path().join("bad.rhai");
    fs::write(&bad, "on_operation(\"read\", \"/x\");\nfn read(request) {\n  loop {}\n}\n").unwrap();
    let refused = server.extension(&["add", counter.to_str().unwrap(), bad.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("bad.rhai:3:3: "), "{}", text(&refused.stderr));
    assert!(server.extension(&["list"]).stdout.is_empty(), "all are checked before one is registered");

    let added = server.extension(&["add", counter.to_str().unwrap(), queue.to_str().unwrap()]);
    assert!(added.status.success(), "{}", text(&added.stderr));
    assert!(text(&added.stdout).starts_with("counter: ok\n  operation read /ctr-increment\nqueue: ok\n"));
    let again = server.extension(&["add", counter.to_str().unwrap()]);
    assert!(text(&again.stderr).contains("/em/counter: NodeExists (-110)"), "{}", text(&again.stderr));

    let client = Client::connect(Options::new(&server.address).unwrap()).unwrap();
    client.create("/em/counter/me", b"", CreateMode::Ephemeral).unwrap();
    client.create("/ctr", b"6", CreateMode::Persistent).unwrap();
    assert_eq!(client.get_data("/ctr-increment").unwrap().0, b"7");

    let listed = text(&server.extension(&["list"]).stdout);
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 2, "{listed}");
    assert!(lines[0].starts_with("counter  registered by 0x") && lines[0].ends_with(", 1 acknowledgements"));
    let shown = text(&server.extension(&["show", "counter"]).stdout);
    let source = fs::read_to_string(&counter).unwrap();
    assert!(
        shown.starts_with("// registered by session 0x") && shown.contains(" as ip:127.0.0.1\n"),
        "{shown}"
    );
    assert!(shown.contains("// acknowledged: me\n") && shown.ends_with(&source), "{shown}");

    assert!(server.extension(&["remove", "counter"]).status.success());
    let gone = server.extension(&["remove", "counter"]);
    assert_eq!(text(&gone.stderr), "stoa: there is no extension counter\n");
    assert!(client.get_data("/ctr-increment").is_err());
}
