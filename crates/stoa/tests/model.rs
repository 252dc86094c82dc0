//! `stoa model` as its users meet it, and its page by way of it.
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn model(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stoa")).arg("model").args(arguments.split(' ')).output().unwrap()
}

fn text(arguments: &str) -> String {
    let output = model(arguments);
    assert!(output.status.success(), "{arguments}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &str) -> Value {
    serde_json::from_str(&text(&format!("{arguments} --json"))).unwrap()
}

/// Exit code and standard error of a command that fails.
fn failure(arguments: &str) -> (i32, String) {
    let output = model(arguments);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn every_example_of_the_page_prints_what_the_page_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/models.md");
    let page = fs::read_to_string(page).unwrap();
    let examples: Vec<&str> = page.split("```console\n$ stoa model ").skip(1).collect();
    assert_eq!(examples.len(), 7);
    for example in examples {
        let (command, rest) = example.split_once('\n').unwrap();
        let (shown, _) = rest.split_once("```").unwrap();
        assert_eq!(text(command), shown, "stoa model {command}");
    }
}

#[test]
fn json_has_what_the_table_has() {
    let operation = json("operation --client-rtt 40ms --server-rtt 10ms --disk 1ms --window 10");
    assert_eq!(operation["read"]["mean"], 40.0);
    assert_eq!(operation["write"]["mean"], 51.0);
    assert_eq!(operation["write"]["between_answers"], 5.1);
    let round = json("round --servers 3 --rtt 5ms");
    assert_eq!(round["rounds"][0]["awaited"], 1);
    assert_eq!(round["rounds"][1]["chain"], 5.0);
    // Overloaded: no mean, unless of so many requests.
    let overload = "primitive --client-rtt 100ms --section 150ms --fixed-section --between 200ms --regular";
    assert_eq!(json(overload)["async-tas"]["latency"], Value::Null);
    let some = json(&format!("{overload} --requests 101 --disk 0 --server-rtt 0"));
    assert!((some["async-tas"]["latency"].as_f64().unwrap() - 2600.0).abs() < 1e-3, "{some}");
    assert!(text(overload).contains("overload"));
    let grid = json("grid --rtts 1,100 --clients 1,4 --primitives sync-queue,extension");
    assert_eq!(grid.as_array().unwrap().len(), 4);
    assert_eq!(grid[3]["best"], "extension");
    assert!(grid[3]["latency"]["sync-queue"].as_f64() > grid[3]["latency"]["extension"].as_f64());
}

#[test]
fn times_may_be_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rtt");
    fs::write(&file, "1ms\n2ms\n9ms\n").unwrap();
    let round = json(&format!("round --servers 2 --rtt samples:{}", file.display()));
    assert_eq!(round["rounds"][0]["mean"], 4.0);
}

#[test]
fn sites_are_told_one_by_one() {
    let turns = json("sites --workload turns --writes 2400 --local 0 --policies observers,consecutive-2");
    let observers = &turns["observers"];
    assert_eq!((&observers["all"]["mean"], &observers["moves"]), (&Value::from(69.0), &Value::from(0)));
    assert_eq!(observers["sites"]["frankfurt"]["writes"], 600);
    assert_eq!(turns["consecutive-2"]["regret"].as_f64().map(|regret| regret.round()), Some(3.0));
    let far = "sites --round-trip a=10ms --round-trip b=20ms --round-trip c=30ms --hub h --workload drawn --share 0";
    let far = json(&format!("{far} --policies default"));
    assert_eq!(far["default"]["sites"]["a"], Value::Null);
    assert!(far["default"]["sites"]["c"]["mean"].as_f64() > Some(1.0));
}

#[test]
fn what_was_recorded_is_replayed_by_the_operators_rules() {
    let folder = tempfile::tempdir().unwrap();
    let (record, rules) = (folder.path().join("record"), folder.path().join("rules"));
    let lines = (0..100).map(|at| format!("{at}.5 {} /a/b\n", ["virginia", "frankfurt"][at % 2]));
    fs::write(&record, format!("# when, who, what\n{}", lines.collect::<String>())).unwrap();
    fs::write(&rules, "pin /a frankfurt\n").unwrap();
    let command = format!("sites --record {} --local 0", record.display());
    let found = json(&command);
    assert_eq!(found["observers"]["all"]["mean"], 45.0);
    let pinned = json(&format!("{command} --rules {}", rules.display()));
    assert_eq!(pinned["default"]["sites"]["frankfurt"]["local"], 50);
    assert_eq!(pinned["default"]["moves"], 1);
    fs::write(&rules, "pin /a tokyo\n").unwrap();
    let (code, why) = failure(&format!("{command} --rules {}", rules.display()));
    assert!(code == 1 && why.contains("line 1 (") && why.contains("there is no such site"), "{why}");
    fs::write(&record, "1 frankfurt /a\n2 tokyo /a\n").unwrap();
    let (code, why) = failure(&command);
    assert!(code == 1 && why.contains("record: line 2: there is no site `tokyo`"), "{why}");
    let (code, why) = failure(&format!("{command} --svg {}", folder.path().join("plot").display()));
    assert!(code == 1 && why.contains("line 2"), "{why}");
}

#[test]
fn plots_are_written() {
    let folder = tempfile::tempdir().unwrap();
    for (index, command) in [
        "round --servers 3 --rtt uniform:1ms,2ms",
        "operation",
        "primitive --points 0,100",
        "primitive --client-rtt 100ms --between 200ms --regular --over section",
        "grid --rtts 1,100 --clients 1,4",
        "sites --until 5s",
        "sites --workload runs --writes 500",
        "sites --workload turns --writes 500 --policies default",
    ]
    .into_iter()
    .enumerate()
    {
        let file = folder.path().join(format!("{index}.svg"));
        text(&format!("{command} --svg {}", file.display()));
        let svg = fs::read_to_string(&file).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{command}: {svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{command}: {svg}");
    }
}

#[test]
fn mistakes_are_said() {
    for (command, code, said) in [
        ("round --servers 1 --rtt 1ms", 2, "one server alone asks nobody"),
        ("round --servers 3 --rtt 1m", 2, "m is no unit of time"),
        ("round --servers 3 --rtt 1000s --unit 1us", 2, "at most a million units"),
        ("operation --servers 0", 2, "an ensemble has 1 to 51 servers"),
        ("operation --servers 1 --contact follower", 2, "the contact server is one of the ensemble"),
        ("operation --client-rtt gauss:1,2", 2, "`gauss` is no kind of spread"),
        ("primitive --poll 0", 2, "the interval is more than 0"),
        ("primitive --clients 1000", 2, "there are 1 to 256 clients"),
        ("primitive --clients 4 --between 5", 2, "cannot be used with"),
        ("grid --primitives mutex", 2, "`mutex` is no lock: these are sync-queue,"),
        ("sites --round-trip california", 2, "`california` is not like california=62ms"),
        ("sites --round-trip a=1ms --round-trip a=2ms", 2, "there are two sites `a`"),
        ("sites --round-trip virginia=1ms", 2, "there are two sites `virginia`"),
        ("sites --round-trip a=1h", 2, "h is no unit of time"),
        ("sites --round-trip a=1ms --workload drawn", 2, "there are two sites that write, or more"),
        ("sites --overlap 2", 2, "an overlap is from 0 to 1"),
        ("sites --records 0", 2, "there are 1 to a million records"),
        ("sites --local 0", 2, "a client that neither waits nor writes never ends"),
        ("sites --policies consecutive-0", 2, "`consecutive-0` is none of observers,"),
        ("sites --workload turns --turns tokyo", 2, "--turns: there is no site `tokyo`"),
        ("sites --record /nowhere/record", 1, "cannot read /nowhere/record"),
        ("operation --svg /nowhere/plot.svg", 1, "cannot write /nowhere/plot.svg"),
    ] {
        let (found, why) = failure(command);
        assert!(found == code && why.contains(said), "{command}: {found} {why}");
    }
}
