//! Files of a crate that use each other in a circle: nobody understands one of them without the others.

use std::collections::{BTreeMap, BTreeSet};

use super::{Crate, Finding};

const FILES_MAX: usize = 8;

/// Finds the largest circle of a crate, by what its files take with `use crate::`.
pub(super) fn check(code: &Crate<'_>) -> Option<Finding> {
    let modules: BTreeMap<Vec<&str>, usize> =
        code.files.iter().enumerate().map(|(at, (path, _))| (module(code.folder, path), at)).collect();
    let uses: Vec<BTreeSet<usize>> = code.files.iter().map(|(_, content)| used(content, &modules)).collect();
    let reached: Vec<BTreeSet<usize>> = (0..uses.len()).map(|from| reached(from, &uses)).collect();
    let circle = |from: usize| -> Vec<usize> {
        reached[from].iter().copied().filter(|to| reached[*to].contains(&from)).collect()
    };
    let largest =
        (0..uses.len()).map(circle).max_by_key(Vec::len).filter(|circle| circle.len() > FILES_MAX)?;
    let names: Vec<&str> = largest.iter().map(|at| code.files[*at].0).collect();
    let size = names.len();
    let within = names.join(", ").replace(&format!("{}/src/", code.folder), "");
    Some(Finding {
        rule: "circle",
        about: code.folder.to_owned(),
        size,
        line: 0,
        why: format!("{size} files use each other in a circle, and {FILES_MAX} may: {within}"),
    })
}

/// The module that a file is, as the words of its path.
fn module<'a>(folder: &str, path: &'a str) -> Vec<&'a str> {
    let within = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix("/src/")).unwrap_or(path);
    let mut words: Vec<&str> = within.trim_end_matches(".rs").split('/').collect();
    if matches!(words.as_slice(), ["lib" | "main"] | [_, .., "mod"]) {
        words.pop();
    }
    words
}

/// The files whose modules a file names in its uses.
fn used(content: &str, modules: &BTreeMap<Vec<&str>, usize>) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    for tree in content.split("use crate::").skip(1).filter_map(|rest| rest.split(';').next()) {
        for path in paths(tree) {
            // The longest beginning that is a file; what a module has within itself is that module's.
            let file = (1..=path.len())
                .rev()
                .find_map(|len| modules.get(&path[..len].iter().map(String::as_str).collect::<Vec<_>>()));
            found.extend(file);
        }
    }
    found
}

/// The paths that a tree of uses stands for: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn paths(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim();
    let Some((stem, group)) = tree.split_once('{') else {
        let words =
            tree.split("::").map(|word| word.split_whitespace().next().unwrap_or_default().to_owned());
        return vec![words.collect()];
    };
    let stem: Vec<String> =
        stem.split("::").map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect();
    let group = group.trim_end().strip_suffix('}').unwrap_or(group);
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&group[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[begin..]);
    let within = parts.into_iter().filter(|part| !part.trim().is_empty()).flat_map(paths);
    within.map(|path| stem.iter().cloned().chain(path).collect()).collect()
}

/// What is used from one file on.
fn reached(from: usize, uses: &[BTreeSet<usize>]) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut left = vec![from];
    while let Some(at) = left.pop() {
        left.extend(uses[at].iter().copied().filter(|to| reached.insert(*to)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files that each use the next one, the last one the first.
    fn ring(count: usize) -> Vec<(String, String)> {
        let name = |at: usize| format!("crates/a/src/m{at}.rs");
        let uses = |at: usize| format!("use std::fmt;\nuse crate::m{}::{{A, B}};\n", (at + 1) % count);
        (0..count).map(|at| (name(at), uses(at))).collect()
    }

    fn size(files: &[(String, String)]) -> Option<usize> {
        let files = files.iter().map(|(path, content)| (path.as_str(), content.clone())).collect();
        check(&Crate { folder: "crates/a", files }).map(|found| found.size)
    }

    #[test]
    fn circles_are_found_by_their_size() {
        assert_eq!(size(&ring(FILES_MAX)), None);
        assert_eq!(size(&ring(FILES_MAX + 1)), Some(FILES_MAX + 1));
        let mut open = ring(FILES_MAX + 1);
        open[3].1.clear();
        assert_eq!(size(&open), None);
        // What only uses it does not belong to it.
        let mut more = ring(FILES_MAX + 1);
        more.push(("crates/a/src/lib.rs".to_owned(), "use crate::m0::A;".to_owned()));
        assert_eq!(size(&more), Some(FILES_MAX + 1));
    }

    #[test]
    fn trees_of_uses_are_taken_apart() {
        let all =
            paths("a::{self, b::{C, d::E as F}, g}").iter().map(|path| path.join("::")).collect::<Vec<_>>();
        assert_eq!(all, ["a::self", "a::b::C", "a::b::d::E", "a::g"]);
        assert_eq!(paths("a::B as C"), [["a", "B"]]);
    }

    #[test]
    fn a_use_means_the_innermost_file() {
        let paths =
            ["crates/a/src/lib.rs", "crates/a/src/b.rs", "crates/a/src/b/c.rs", "crates/a/src/d/mod.rs"];
        let modules = paths.iter().enumerate().map(|(at, path)| (module("crates/a", path), at)).collect();
        let used = |content: &str| used(content, &modules).into_iter().collect::<Vec<_>>();
        assert_eq!(used("use crate::b::c::D;"), [2]);
        assert_eq!(used("use crate::{b::X, d::e::Y};"), [1, 3]);
        assert_eq!(used("use crate::Anything;"), [0; 0]);
    }
}
