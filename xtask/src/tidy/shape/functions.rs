//! Functions that do not fit a screen.

use super::Finding;

const LINES_MAX: usize = 70;

/// Finds the long functions of one file. It relies on rustfmt: a function ends with a bracket that stands as far to
/// the right as its first line.
pub(super) fn check(path: &str, content: &str) -> Vec<Finding> {
    let lines: Vec<&str> = content.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = name(line) else { continue };
        let rest = &lines[start..];
        let signature = rest.iter().position(|line| line.ends_with([';', '{', '}'])).unwrap_or(0);
        if !rest[signature].ends_with('{') {
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let end = rest.iter().position(|line| line.strip_prefix(indent) == Some("}"));
        let size = end.map_or(0, |end| end + 1);
        if size > LINES_MAX {
            found.push(Finding {
                rule: "function",
                about: format!("{path} {name}"),
                size,
                line: start + 1,
                why: format!("`{name}` has {size} lines; more than {LINES_MAX} do not fit a screen"),
            });
        }
    }
    found
}

/// The name of the function that begins in a line.
fn name(line: &str) -> Option<&str> {
    let (before, after) = line.trim_start().split_once("fn ")?;
    let words = ["pub", "const", "async", "unsafe", "default", "extern", "\"C\""];
    let is_word = |word: &str| words.contains(&word) || word.starts_with("pub(") || word.ends_with(')');
    before.split_whitespace().all(is_word).then_some(())?;
    let end = after.find(|character: char| !(character.is_alphanumeric() || character == '_'))?;
    Some(&after[..end]).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(first: &str, lines: usize) -> String {
        format!(
            "impl A {{\n    {first} {{\n{}    }}\n    fn next() {{}}\n}}\n",
            "        a();\n".repeat(lines - 2)
        )
    }

    #[test]
    fn long_functions_are_found_with_their_lines() {
        assert_eq!(check("a.rs", &long("fn f()", 70)), []);
        let found = check("a.rs", &long("pub(crate) async fn f<T>(a: T) -> B", 71));
        assert_eq!((found.len(), found[0].size, found[0].line), (1, 71, 2));
        assert_eq!(found[0].about, "a.rs f");
    }

    #[test]
    fn declarations_and_words_in_between_are_none() {
        let code =
            format!("trait A {{\n    fn f(\n        a: B,\n    );\n{}}}\n", "    const X: u8;\n".repeat(80));
        assert_eq!(check("a.rs", &code), []);
        assert_eq!(name("    let a: fn (u8) = b;"), None);
        assert_eq!(name("    pub(in crate::a) const unsafe fn of<'a>() {"), Some("of"));
    }
}
