//! Which crate may use which: dependencies point from the world to the logic.

use super::Violation;

/// Crate and the crates of ours that it may depend on.
const ALLOWED: [(&str, &[&str]); 22] = [
    (
        "stoa",
        &[
            "stoa-server",
            "stoa-client",
            "stoa-storage",
            "stoa-core",
            "stoa-extension",
            "stoa-group",
            "stoa-model",
            "stoa-proxy",
            "stoa-sites",
            "stoa-tree",
            "stoa-wire",
        ],
    ),
    ("stoa-server", &["stoa-core", "stoa-keys", "stoa-sasl", "stoa-storage", "stoa-tree", "stoa-wire"]),
    (
        "stoa-sim",
        &[
            "stoa-check",
            "stoa-client",
            "stoa-client-core",
            "stoa-core",
            "stoa-group",
            "stoa-storage",
            "stoa-tree",
            "stoa-wire",
        ],
    ),
    (
        "stoa-core",
        &[
            "stoa-extension",
            "stoa-front",
            "stoa-group",
            "stoa-partition",
            "stoa-placement",
            "stoa-sites",
            "stoa-timeline",
            "stoa-tree",
            "stoa-wire",
        ],
    ),
    ("stoa-front", &["stoa-partition", "stoa-placement", "stoa-timeline", "stoa-tree", "stoa-wire"]),
    (
        "stoa-partition",
        &["stoa-extension", "stoa-group", "stoa-placement", "stoa-timeline", "stoa-tree", "stoa-wire"],
    ),
    ("stoa-placement", &["stoa-tree", "stoa-wire"]),
    ("stoa-check", &["stoa-core", "stoa-group", "stoa-tree", "stoa-wire"]),
    ("stoa-extension", &["stoa-tree", "stoa-wire"]),
    ("stoa-client", &["stoa-client-core", "stoa-keys", "stoa-wire"]),
    ("stoa-client-core", &["stoa-wire"]),
    ("stoa-tree", &["stoa-wire"]),
    ("stoa-forest", &[]),
    ("stoa-group", &[]),
    ("stoa-keys", &[]),
    ("stoa-timeline", &["stoa-forest", "stoa-group", "stoa-wire"]),
    ("stoa-model", &["stoa-sites"]),
    ("stoa-proxy", &[]),
    ("stoa-sasl", &[]),
    ("stoa-sites", &["stoa-wire"]),
    ("stoa-storage", &[]),
    ("stoa-wire", &[]),
];

/// Checks one manifest. Crates outside `crates/` are tools: they may use what they like.
pub(super) fn check(path: &str, manifest: &str) -> Vec<Violation> {
    if !path.starts_with("crates/") {
        return Vec::new();
    }
    let Some(name) = package_name(manifest) else {
        return vec![Violation::new(path, 0, "has no package name")];
    };
    let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
        let message =
            format!("{name} has no entry in the table of allowed dependencies (xtask/src/tidy/arrows.rs)");
        return vec![Violation::new(path, 0, message)];
    };
    dependencies(manifest)
        .into_iter()
        .filter(|(_, dependency)| dependency.starts_with("stoa") && !allowed.contains(dependency))
        .map(|(line, dependency)| {
            Violation::new(path, line, format!("{name} may not depend on {dependency}"))
        })
        .collect()
}

fn package_name(manifest: &str) -> Option<&str> {
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == "[package]";
        }
        match line.split_once('=') {
            Some((key, value)) if inside && key.trim() == "name" => {
                return Some(value.trim().trim_matches('"'));
            }
            _ => {}
        }
    }
    None
}

/// Line and name of each dependency that is built into the crate; those of its tests may go
/// anywhere.
fn dependencies(manifest: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            inside = is_dependencies(section);
            // `[dependencies.name]` is the long form of one entry.
            if let Some((table, name)) = section.rsplit_once('.')
                && is_dependencies(table)
            {
                found.push((index + 1, name));
            }
        } else if inside && !line.starts_with('#') {
            let end = line.find(|character: char| !(character.is_alphanumeric() || "-_".contains(character)));
            let name = &line[..end.unwrap_or(line.len())];
            if !name.is_empty() {
                found.push((index + 1, name));
            }
        }
    }
    found
}

fn is_dependencies(section: &str) -> bool {
    ["dependencies", "build-dependencies"].iter().any(|kind| {
        section == *kind || (section.starts_with("target.") && section.ends_with(&format!(".{kind}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "[package]\nname = \"stoa-tree\"\n\n[dependencies]\n";

    #[test]
    fn an_arrow_that_points_back_is_found() {
        let manifest = format!(
            "{TREE}slab.workspace = true\nstoa-wire.workspace = true\nstoa-core = {{ path = \"../core\" }}\n"
        );
        let found = check("crates/tree/Cargo.toml", &manifest);
        assert_eq!(
            found,
            [Violation::new("crates/tree/Cargo.toml", 7, "stoa-tree may not depend on stoa-core")]
        );
    }

    #[test]
    fn long_and_target_forms_are_found() {
        let long = format!("{TREE}\n[dependencies.stoa-core]\npath = \"../core\"\n");
        assert_eq!(check("crates/tree/Cargo.toml", &long).len(), 1);
        let target =
            format!("{TREE}\n[target.'cfg(unix)'.dependencies]\nstoa-server = {{ path = \"../server\" }}\n");
        assert_eq!(check("crates/tree/Cargo.toml", &target).len(), 1);
    }

    #[test]
    fn tests_of_a_crate_may_use_any() {
        let manifest = format!("{TREE}\n[dev-dependencies]\nstoa-sim.workspace = true\n");
        assert_eq!(check("crates/tree/Cargo.toml", &manifest), []);
    }

    #[test]
    fn an_unknown_crate_has_to_be_entered() {
        assert_eq!(check("crates/new/Cargo.toml", "[package]\nname = \"stoa-new\"\n").len(), 1);
        assert_eq!(check("tests/oracle/Cargo.toml", "[package]\nname = \"stoa-oracle\"\n"), []);
    }
}
