//! A type that decides consists of parts: in the pure crates none has more than fifteen fields. Settings, counters and
//! what is handed on as it is may.

use super::Finding;
use super::types::name;

const FIELDS_MAX: usize = 15;

/// Finds the types of a file that have more fields.
pub(super) fn check(path: &str, content: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut open: Option<(&str, usize, usize)> = None;
    for (index, line) in content.lines().enumerate() {
        if let Some((name, at, fields)) = open {
            open = Some((name, at, fields + usize::from(is_field(line))));
            if line == "}" {
                findings.extend(finding(path, name, at, fields));
                open = None;
            }
        } else if line.contains("struct ") && line.ends_with('{') {
            open = name(line).map(|name| (name, index + 1, 0));
        }
    }
    findings
}

fn finding(path: &str, name: &str, line: usize, fields: usize) -> Option<Finding> {
    (fields > FIELDS_MAX).then(|| Finding {
        rule: "fields",
        about: format!("{path} {name}"),
        size: fields,
        line,
        why: format!("`{name}` has {fields} fields; more than {FIELDS_MAX} are to be parts, each a type"),
    })
}

/// Whether a line of a type begins a field.
fn is_field(line: &str) -> bool {
    let Some(field) = line.strip_prefix("    ").filter(|field| !field.starts_with([' ', '#', '}'])) else {
        return false;
    };
    let name = field.strip_prefix("pub ").or_else(|| Some(field.strip_prefix("pub(")?.split_once(") ")?.1));
    let name = name.unwrap_or(field).split(':').next().unwrap_or_default();
    !name.is_empty() && name.chars().all(|character| character.is_alphanumeric() || character == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_too_many_fields_are_found() {
        let fields = |count| (0..count).map(|at| format!("    pub(crate) f{at}: Vec<\n        u8,\n    >,\n"));
        let code = |count| format!("pub struct Much<T> {{\n{}}}\n", fields(count).collect::<String>());
        assert_eq!(check("a.rs", &code(FIELDS_MAX)), []);
        let found = check("a.rs", &code(FIELDS_MAX + 1));
        assert_eq!((found[0].about.as_str(), found[0].size, found[0].line), ("a.rs Much", FIELDS_MAX + 1, 1));
    }
}
