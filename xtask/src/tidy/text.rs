//! Rules on the text of the files.

use super::Violation;

const RUST_LINES_MAX: usize = 1000;

/// The crates that do no I/O. `no_std` is what keeps files, sockets, clocks and threads out.
const PURE: [&str; 13] = [
    "wire",
    "tree",
    "group",
    "forest",
    "timeline",
    "storage",
    "extension",
    "placement",
    "partition",
    "front",
    "core",
    "sites",
    "client-core",
];
const NO_STD: &str = "#![cfg_attr(not(test), no_std)]";

/// Left in the code, these words say that it is not finished. They are spelt in two parts, as are
/// all words below, so that this file passes its own rules.
const UNFINISHED_WORDS: [&str; 4] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX"), concat!("HA", "CK")];
const UNFINISHED_MACROS: [&str; 2] = [concat!("to", "do!"), concat!("unimple", "mented!")];

/// The package registries are the business of the machine that builds.
const REGISTRY_HOSTS: [&str; 9] = [
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("crates", ".io"),
    concat!("proxy.golang", ".org"),
    concat!("registry.npm", "js"),
    concat!("repo.", "maven.apache"),
    concat!("repo1.", "maven.org"),
    concat!("deb.debian", ".org"),
    concat!("security.debian", ".org"),
];

/// Paths of one machine mean nothing on another.
const MACHINE_PATHS: [&str; 4] = [
    concat!("/work", "/main"),
    concat!("/work", "/shared"),
    concat!("/tmp", "/ref"),
    concat!("/tmp", "/briefs"),
];

const IGNORED_TEST: &str = concat!("#[ig", "nore");

/// Checks one file.
pub(super) fn check(path: &str, content: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    let rust = path.ends_with(".rs");
    if rust && content.lines().count() > RUST_LINES_MAX {
        violations.push(Violation::new(path, 0, format!("is longer than {RUST_LINES_MAX} lines; split it")));
    }
    if let Some(file) = pure_file(path) {
        check_purity(path, file, content, &mut violations);
    }
    // cargo writes the name of its registry into the lock file.
    let hosts_apply = !path.ends_with("Cargo.lock");
    for (index, line) in content.lines().enumerate() {
        let mut found = |message: String| violations.push(Violation::new(path, index + 1, message));
        for word in UNFINISHED_WORDS.into_iter().filter(|word| has_word(line, word)) {
            found(format!("`{word}`: finish it, or say what is left out as a sentence"));
        }
        for name in UNFINISHED_MACROS.into_iter().filter(|name| rust && line.contains(name)) {
            found(format!("`{name}`: finish it"));
        }
        for host in REGISTRY_HOSTS.into_iter().filter(|host| hosts_apply && line.contains(host)) {
            found(format!("names the registry host `{host}`"));
        }
        for place in MACHINE_PATHS.into_iter().filter(|place| line.contains(place)) {
            found(format!("names `{place}`, a path of one machine"));
        }
        if rust && line.contains(IGNORED_TEST) {
            found("a test that is never run: repair it or remove it".to_owned());
        }
    }
    violations
}

/// The path below `src` for a file of a pure crate.
pub(super) fn pure_file(path: &str) -> Option<&str> {
    let (room, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
    (PURE.contains(&room) && file.ends_with(".rs")).then_some(file)
}

fn check_purity(path: &str, file: &str, content: &str, violations: &mut Vec<Violation>) {
    if file == "lib.rs" && !content.lines().any(|line| line == NO_STD) {
        violations.push(Violation::new(path, 0, format!("lacks `{NO_STD}`: this crate does no I/O")));
    }
    for (index, line) in content.lines().enumerate() {
        if line.trim_start().starts_with("extern crate std") {
            violations.push(Violation::new(path, index + 1, "takes `std` in again: this crate does no I/O"));
        }
    }
}

/// Whether `word` stands in `line` by itself.
fn has_word(line: &str, word: &str) -> bool {
    let part_of_word = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(word).any(|(start, _)| {
        !line[..start].ends_with(part_of_word) && !line[start + word.len()..].starts_with(part_of_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, content: &str) -> Vec<usize> {
        check(path, content).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn unfinished_work_is_found() {
        for word in UNFINISHED_WORDS {
            assert_eq!(lines("a.py", &format!("fine\n# {word}: later\n")), [2], "{word}");
            assert_eq!(lines("a.py", &format!("{word}LIST = 1\n")), [0; 0], "{word} inside another word");
        }
        for name in UNFINISHED_MACROS {
            assert_eq!(lines("a.rs", &format!("    {name}()\n")), [1], "{name}");
        }
    }

    #[test]
    fn hosts_paths_and_ignored_tests_are_found() {
        for host in REGISTRY_HOSTS {
            assert_eq!(lines("pom.xml", &format!("<url>https://{host}/x</url>\n")), [1], "{host}");
            assert_eq!(lines("Cargo.lock", &format!("source = \"{host}\"\n")), [0; 0]);
        }
        for place in MACHINE_PATHS {
            assert_eq!(lines("a.md", &format!("see {place}/x\n")), [1], "{place}");
        }
        assert_eq!(lines("a.rs", &format!("{IGNORED_TEST}]\n")), [1]);
    }

    #[test]
    fn long_files_are_found() {
        assert_eq!(lines("a.rs", &"x\n".repeat(RUST_LINES_MAX)), [0; 0]);
        assert_eq!(lines("a.rs", &"x\n".repeat(RUST_LINES_MAX + 1)), [0]);
    }

    #[test]
    fn a_pure_crate_has_to_refuse_std() {
        assert_eq!(lines("crates/tree/src/lib.rs", "//! Trees.\n"), [0]);
        assert_eq!(lines("crates/tree/src/lib.rs", &format!("{NO_STD}\n")), [0; 0]);
        assert_eq!(lines("crates/tree/src/acl.rs", "extern crate std;\n"), [1]);
        assert_eq!(lines("crates/server/src/lib.rs", "extern crate std;\n"), [0; 0]);
    }
}
