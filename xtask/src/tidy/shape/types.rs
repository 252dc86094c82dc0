//! One word per thing: no two types of a crate have the same name.

use std::collections::BTreeMap;

use super::{Crate, Finding};

/// Finds the names that several types of a crate have.
pub(super) fn check(code: &Crate<'_>) -> Vec<Finding> {
    let mut places: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
    for (path, content) in &code.files {
        // One that is there on some systems only has another one for the others.
        let mut is_choice = false;
        for (index, line) in content.lines().enumerate() {
            if let Some(name) = name(line).filter(|_| !is_choice) {
                places.entry(name).or_default().push((path, index + 1));
            }
            is_choice = line.starts_with("#[cfg(") || is_choice && line.starts_with("#[");
        }
    }
    let twins = places.into_iter().filter(|(_, places)| places.len() > 1);
    let finding = |(name, places): (&str, Vec<(&str, usize)>)| {
        let all: Vec<String> = places.iter().map(|(path, line)| format!("{path}:{line}")).collect();
        Finding {
            rule: "types",
            about: format!("{} {name}", code.folder),
            size: places.len(),
            line: 0,
            why: format!("has {} types with the name `{name}`: {}", places.len(), all.join(", ")),
        }
    };
    twins.map(finding).collect()
}

/// The name of the type that a line defines; what only stands for another type is none.
pub(super) fn name(line: &str) -> Option<&str> {
    let mut words = line.split(' ').skip_while(|word| *word == "pub" || word.starts_with("pub("));
    words.next().filter(|word| ["struct", "enum", "trait", "union"].contains(word))?;
    let name = words.next()?;
    let end = name.find(|character: char| !(character.is_alphanumeric() || character == '_'));
    Some(&name[..end.unwrap_or(name.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_with_one_name_are_found() {
        let one = "pub(crate) struct Entry<'a> {\n}\ntype Result = ();\n".to_owned();
        let other = "enum Entry {\n}\ntype Result = ();\npub struct Other;\n".to_owned()
            + "#[cfg(unix)]\n#[derive(Debug)]\nstruct Other;\n";
        let code = Crate { folder: "crates/a", files: vec![("a.rs", one), ("b.rs", other)] };
        let found = check(&code);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].about.as_str(), found[0].size), ("crates/a Entry", 2));
        assert!(found[0].why.ends_with("a.rs:1, b.rs:1"), "{}", found[0].why);
    }
}
