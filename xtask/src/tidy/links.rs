//! Links between the documents: what they point at has to be there.

use std::collections::BTreeSet;

use super::Violation;

/// Checks the relative links of one markdown file against the files of the repository.
pub(super) fn check(path: &str, markdown: &str, files: &BTreeSet<String>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut fenced = false;
    for (index, line) in markdown.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for target in targets(line) {
            if is_elsewhere(target) {
                continue;
            }
            let file = target.split(['#', '?']).next().unwrap_or_default();
            if file.is_empty() {
                continue;
            }
            if !resolve(path, file).is_some_and(|place| exists(&place, files)) {
                violations.push(Violation::new(
                    path,
                    index + 1,
                    format!("the link `{target}` leads nowhere"),
                ));
            }
        }
    }
    violations
}

/// What stands in the round brackets of `[text](target)` and `![text](target "title")`, and after
/// the colon of `[label]: target`.
fn targets(line: &str) -> Vec<&str> {
    let mut found: Vec<&str> =
        line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()).collect();
    if line.starts_with('[')
        && let Some((_, target)) = line.split_once("]: ")
    {
        found.extend(target.split_whitespace().next());
    }
    found
}

fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// The path from the root that `target` means in the file `path`; nothing where it leaves the
/// repository.
fn resolve(path: &str, target: &str) -> Option<String> {
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    let base = if target.starts_with('/') { "" } else { directory };
    let mut parts = Vec::new();
    for part in base.split('/').chain(target.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

fn exists(target: &str, files: &BTreeSet<String>) -> bool {
    let directory = format!("{target}/");
    target.is_empty()
        || files.contains(target)
        || files.range(directory.clone()..).next().is_some_and(|file| file.starts_with(&directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> BTreeSet<String> {
        ["README.md", "docs/start.md", "docs/deep/log.md"].map(str::to_owned).into()
    }

    fn lines(path: &str, markdown: &str) -> Vec<usize> {
        check(path, markdown, &files()).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_dead_link_is_found_with_its_line() {
        assert_eq!(lines("README.md", "a\n[x](docs/gone.md) and [y](docs/start.md)\n"), [2]);
        assert_eq!(lines("docs/start.md", "[x](README.md)\n[l]: ../gone.md\n"), [1, 2]);
        assert_eq!(lines("README.md", "[x](../../README.md)\n"), [1]);
    }

    #[test]
    fn living_links_pass() {
        assert_eq!(lines("README.md", "[x](docs/start.md#top) ![p](docs/deep/log.md \"t\")\n"), [0; 0]);
        assert_eq!(
            lines("docs/deep/log.md", "[x](../start.md) [y](..) [z](#here) [w](/README.md)\n"),
            [0; 0]
        );
        assert_eq!(lines("README.md", "[x](https://example.org/gone)\n```\n[x](gone.md)\n```\n"), [0; 0]);
    }
}
