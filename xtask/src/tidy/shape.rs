//! Rules on the shape of the code: how long functions are, which files use each other in a circle, which types share
//! a name, how many fields a type has that decides. What is there already is in [`LISTED`], which can only become shorter.

mod circles;
mod fields;
mod functions;
mod types;

use std::collections::{BTreeMap, BTreeSet};

use super::{Violation, text};

/// What is there already. A line is a rule, what it is about, and how large that is.
const LISTED: &str = "xtask/src/tidy/shape.txt";

/// One thing that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    rule: &'static str,
    /// What has to be listed: a path, and a name where there may be several.
    about: String,
    size: usize,
    line: usize,
    /// Why it is one.
    why: String,
}

/// The Rust code of one crate: its folder, and its files with their contents, without tests.
struct Crate<'a> {
    folder: &'a str,
    files: Vec<(&'a str, String)>,
}

/// Checks all files together.
pub(super) fn check(files: &BTreeMap<String, String>) -> Vec<Violation> {
    let mut findings = Vec::new();
    for code in crates(files) {
        for (path, content) in &code.files {
            findings.extend(functions::check(path, content));
            if text::pure_file(path).is_some() {
                findings.extend(fields::check(path, content));
            }
        }
        findings.extend(circles::check(&code));
        findings.extend(types::check(&code));
    }
    compare(&findings, files.get(LISTED).map_or("", String::as_str))
}

/// All but tests: of those nobody asks how long they are.
fn crates(files: &BTreeMap<String, String>) -> Vec<Crate<'_>> {
    let mut crates: BTreeMap<&str, Vec<(&str, String)>> = BTreeMap::new();
    for (path, content) in files.iter().filter(|(path, _)| path.ends_with(".rs")) {
        let is_test = path.ends_with("/tests.rs") || path.contains("/tests/") || path.contains("/benches/");
        if let Some((folder, _)) = path.split_once("/src/").filter(|_| !is_test) {
            crates.entry(folder).or_default().push((path, without_tests(content)));
        }
    }
    crates.into_iter().map(|(folder, files)| Crate { folder, files }).collect()
}

/// Leaves out modules of tests, and comments; the lines stay where they are.
fn without_tests(content: &str) -> String {
    let mut kept = String::with_capacity(content.len());
    let (mut is_marked, mut inside) = (false, false);
    for line in content.lines() {
        inside |= is_marked && line.starts_with("mod ") && line.ends_with('{');
        is_marked = line == "#[cfg(test)]";
        if !inside && !line.trim_start().starts_with("//") {
            kept.push_str(line);
        }
        kept.push('\n');
        inside &= line != "}";
    }
    kept
}

/// What is found and not listed, and what is listed and not found.
fn compare(findings: &[Finding], listed: &str) -> Vec<Violation> {
    let key = |finding: &Finding| format!("{} {}", finding.rule, finding.about);
    let mut violations = Vec::new();
    let mut sizes = BTreeMap::new();
    for (index, line) in listed.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let row = line.rsplit_once(' ').and_then(|(key, size)| Some((key, size.parse::<usize>().ok()?)));
        match row {
            Some((key, _)) if sizes.contains_key(key) => {
                violations.push(Violation::new(LISTED, index + 1, "is listed twice"));
            }
            Some((key, size)) => drop(sizes.insert(key, (index + 1, size))),
            None => violations.push(Violation::new(
                LISTED,
                index + 1,
                "is not a rule, what it is about, and a number",
            )),
        }
    }
    for finding in findings {
        let key = key(finding);
        let path = finding.about.split(' ').next().unwrap_or_default();
        match sizes.get(key.as_str()) {
            Some((_, size)) if *size == finding.size => {}
            Some((line, size)) if *size > finding.size => {
                let message = format!("is better than that now: write `{key} {}`", finding.size);
                violations.push(Violation::new(LISTED, *line, message));
            }
            Some((_, size)) => {
                let message = format!("{}; it was {size} in {LISTED}", finding.why);
                violations.push(Violation::new(path, finding.line, message));
            }
            None => violations.push(Violation::new(path, finding.line, finding.why.clone())),
        }
    }
    let found: BTreeSet<String> = findings.iter().map(key).collect();
    for (key, (line, _)) in sizes.into_iter().filter(|(key, _)| !found.contains(*key)) {
        violations.push(Violation::new(
            LISTED,
            line,
            format!("`{key}` is not needed any more: remove the line"),
        ));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(about: &str, size: usize) -> Finding {
        Finding { rule: "function", about: about.to_owned(), size, line: 7, why: "is long".to_owned() }
    }

    fn said(findings: &[Finding], listed: &str) -> Vec<String> {
        compare(findings, listed).iter().map(Violation::to_string).collect()
    }

    #[test]
    fn what_is_listed_may_stay_as_it_is() {
        let listed = "# A remark.\nfunction a.rs f 80\n";
        assert_eq!(said(&[finding("a.rs f", 80)], listed), [""; 0]);
        assert_eq!(said(&[finding("a.rs f", 80)], ""), ["a.rs:7: is long"]);
    }

    #[test]
    fn the_list_only_becomes_shorter() {
        let listed = "function a.rs f 80\n";
        let grown = said(&[finding("a.rs f", 81)], listed);
        assert_eq!(grown, [format!("a.rs:7: is long; it was 80 in {LISTED}")]);
        let better = said(&[finding("a.rs f", 75)], listed);
        assert_eq!(better, [format!("{LISTED}:1: is better than that now: write `function a.rs f 75`")]);
        let gone = said(&[], listed);
        assert_eq!(gone, [format!("{LISTED}:1: `function a.rs f` is not needed any more: remove the line")]);
        assert_eq!(
            said(&[finding("a.rs f", 80)], &listed.repeat(2)),
            [format!("{LISTED}:2: is listed twice")]
        );
    }

    #[test]
    fn tests_and_comments_are_left_out_and_lines_stay() {
        let code = "// a\nfn f() {}\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\nfn h() {}\n";
        assert_eq!(without_tests(code), "\nfn f() {}\n#[cfg(test)]\n\n\n\nfn h() {}\n");
        let files =
            ["crates/a/src/b.rs", "crates/a/src/tests.rs", "crates/a/tests/it.rs", "tests/c/src/main.rs"];
        let files = files.map(|path| (path.to_owned(), String::new())).into();
        let folders: Vec<_> = crates(&files).iter().map(|it| (it.folder, it.files.len())).collect();
        assert_eq!(folders, [("crates/a", 1), ("tests/c", 1)]);
    }
}
