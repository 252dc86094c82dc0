//! The documentation says what the source does: its tables are made from the tables of the source.
//!
//! `REWRITE_DOCS=1 cargo test -p stoa-server --test documentation` writes them anew.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::PathBuf;

use stoa_server::config::{settings_table, zoo_table};
use stoa_server::metrics::{absent_table, metrics_table};
use stoa_server::words::Word;
use stoa_wire::{ErrorCode, Opcode};

const COMPAT: &str = "COMPAT.md";
const OPERATING: &str = "docs/operating.md";
const THREATS: &str = "docs/threat-model.md";

fn path(page: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(page)
}

fn read(page: &str) -> String {
    fs::read_to_string(path(page)).unwrap()
}

/// Compares a table of a page with what the source makes of it.
fn check(page: &str, name: &str, table: &str) {
    let text = read(page);
    let begin = format!("<!-- {name}: made from the source -->\n");
    let (before, rest) = text.split_once(&begin).expect("the page has a place for the table");
    let (found, after) = rest.split_once("<!-- end -->").expect("the table has an end");
    if found == table {
        return;
    }
    if std::env::var_os("REWRITE_DOCS").is_some() {
        fs::write(path(page), format!("{before}{begin}{table}<!-- end -->{after}")).unwrap();
    } else {
        panic!("{page}: the table `{name}` is not what the source says; REWRITE_DOCS=1 rewrites it");
    }
}

// One test, because rewriting one page twice at a time would lose a table.
#[test]
fn tables_are_those_of_the_source() {
    check(OPERATING, "settings", &settings_table());
    check(OPERATING, "metrics", &metrics_table());
    check(COMPAT, "metrics", &metrics_table());
    check(COMPAT, "absent", &absent_table());
    check(COMPAT, "zoo", &zoo_table());
}

#[test]
fn every_opcode_error_and_word_is_on_the_page() {
    let text = read(COMPAT);
    let rows: Vec<Vec<&str>> =
        text.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>()).collect();
    let has = |first: &str, second: Option<&str>| {
        rows.iter()
            .any(|row| row.get(1) == Some(&first) && second.is_none_or(|second| row.get(2) == Some(&second)))
    };
    for opcode in Opcode::ALL {
        assert!(has(&(*opcode as i32).to_string(), Some(opcode.name())), "{opcode:?}");
    }
    for error in ErrorCode::ALL {
        assert!(has(&(*error as i32).to_string(), Some(&format!("{error:?}"))), "{error:?}");
    }
    for word in Word::ALL {
        assert!(has(&format!("`{}`", word.name()), None), "{word:?}");
    }
}

/// Each test that the page names is where it says.
#[test]
fn what_the_threat_model_rests_on_is_tested() {
    // Blocks of code have three marks on both sides.
    let text = read(THREATS).replace("```", "");
    let quoted = text.split('`').skip(1).step_by(2);
    let named: Vec<(&str, &str)> =
        quoted.filter_map(|word| word.split_once(' ')).filter(|(file, _)| file.ends_with(".rs")).collect();
    assert!(named.len() > 30, "{} tests", named.len());
    for (file, test) in named {
        assert!(
            read(&format!("crates/{file}")).contains(&format!("fn {test}(")),
            "{file} has no test {test}"
        );
    }
}
