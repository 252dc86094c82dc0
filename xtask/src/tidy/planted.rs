//! Bugs on purpose: each can be planted, and some test does so.

use std::collections::BTreeMap;

use super::Violation;
use crate::planted::{self, Fault, LISTS, TESTS};

/// Checks the lists of bugs against all files.
pub(super) fn check(files: &BTreeMap<String, String>) -> Vec<Violation> {
    let lists = files.iter().filter(|(path, _)| path.starts_with(LISTS) && path.ends_with(".toml"));
    let (bugs, mut faults) = planted::read(lists.map(|(path, text)| (path.as_str(), text.as_str())));
    faults.extend(planted::misplaced(&bugs, files));
    let tests = files.iter().filter(|(path, _)| TESTS.iter().any(|tests| path.starts_with(tests)));
    let tests: Vec<&str> = tests.map(|(_, text)| text.as_str()).collect();
    faults.extend(planted::unused(&bugs, &tests));
    faults.into_iter().map(|Fault { list, line, message }| Violation::new(&list, line, message)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bug_that_cannot_be_planted_and_one_that_nobody_plants_are_found() {
        let list = "[Wrong]\nis = \"It is.\"\n[[Wrong.changes]]\nfile = \"crates/core/src/a.rs\"\n\
                    find = 'a'\nbecomes = 'planted!(Wrong)'\n";
        let mut files = BTreeMap::from(
            [
                ("crates/sim/bugs/core.toml", list),
                ("crates/core/src/a.rs", "a"),
                ("crates/sim/tests/planted/main.rs", "Bug::Wrong"),
            ]
            .map(|(path, text)| (path.to_owned(), text.to_owned())),
        );
        assert_eq!(check(&files), []);
        files.insert("crates/core/src/a.rs".to_owned(), "b".to_owned());
        assert!(check(&files)[0].to_string().starts_with("crates/sim/bugs/core.toml:1: Wrong: finds `a"));
        files.insert("crates/core/src/a.rs".to_owned(), "a".to_owned());
        files.insert("crates/sim/tests/planted/main.rs".to_owned(), "Bug::Wrongly".to_owned());
        assert!(check(&files)[0].message.contains("no test plants it"));
    }
}
