//! `stoa extension` as its users meet it, and the examples by way of it.
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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
