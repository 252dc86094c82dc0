//! The copy of the source that has the bugs: the crates in which they are, and the simulator with its tests, in a
//! workspace of their own below the target directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::bugs::{self, Bug};
use crate::workspace;

/// Where bugs can be.
pub(super) const SOURCES: [&str; 8] = [
    "crates/client/src/",
    "crates/core/src/",
    "crates/forest/src/",
    "crates/front/src/",
    "crates/group/src/",
    "crates/partition/src/",
    "crates/timeline/src/",
    "crates/tree/src/",
];

/// What is copied, files and folders. All else that these crates depend on is used where it is.
const COPIED: [&str; 26] = [
    "crates/check/Cargo.toml",
    "crates/check/src",
    "crates/client/Cargo.toml",
    "crates/client/src",
    "crates/core/Cargo.toml",
    "crates/core/src",
    "crates/extension/Cargo.toml",
    "crates/extension/src",
    "crates/forest/Cargo.toml",
    "crates/forest/src",
    "crates/front/Cargo.toml",
    "crates/front/src",
    "crates/group/Cargo.toml",
    "crates/group/src",
    "crates/partition/Cargo.toml",
    "crates/partition/src",
    "crates/placement/Cargo.toml",
    "crates/placement/src",
    "crates/sim/Cargo.toml",
    "crates/sim/src",
    "crates/sim/tests/histories",
    "crates/sim/tests/planted",
    "crates/timeline/Cargo.toml",
    "crates/timeline/src",
    "crates/tree/Cargo.toml",
    "crates/tree/src",
];

/// The crate that says which bug is planted; its manifest inherits what those of the others do.
const MANIFEST: &str = "\
[package]
name = \"stoa-planted\"
version.workspace = true
edition.workspace = true
rust-version.workspace = true
publish.workspace = true
";

/// What stands behind the list of bugs in that crate. A run is on one thread from its beginning to its end.
const ASKED: &str = "\
std::thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Does something while a bug is planted in all that this thread does.
pub fn with<T>(bug: Bug, run: impl FnOnce() -> T) -> T {
    struct Until;
    impl Drop for Until {
        fn drop(&mut self) {
            PLANTED.set(None);
        }
    }
    let _until = Until;
    assert_eq!(PLANTED.replace(Some(bug)), None, \"one bug at a time\");
    run()
}

/// Whether this bug is planted.
#[must_use]
pub fn is(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether the bug of this name is planted.
#[macro_export]
macro_rules! planted {
    ($bug:ident) => {
        $crate::is($crate::Bug::$bug)
    };
}
";

/// Writes the copy, as far as it is not there yet, and says where it is.
pub(super) fn make(bugs: &[Bug]) -> Result<PathBuf, String> {
    let mut copy = BTreeMap::new();
    for path in COPIED {
        copy.extend(files(path)?);
    }
    // Its own tests plant nothing, and its program would take the place of the one without bugs.
    copy.remove("crates/sim/src/main.rs");
    bugs::plant(bugs, &mut copy)?;
    for sources in SOURCES {
        let (manifest, root) = (sources.replace("src/", "Cargo.toml"), format!("{sources}lib.rs"));
        depend(&mut copy, &manifest, "[dependencies]\n")?;
        let root = copy.get_mut(&root).ok_or_else(|| format!("{root} is missing"))?;
        root.push_str("\n#[macro_use]\nextern crate stoa_planted;\n");
    }
    depend(&mut copy, "crates/sim/Cargo.toml", "[dev-dependencies]\n")?;
    copy.insert("crates/planted/Cargo.toml".to_owned(), MANIFEST.to_owned());
    copy.insert("crates/planted/src/lib.rs".to_owned(), asked(bugs));
    let root = read(&workspace::root().join("Cargo.toml"))?;
    copy.insert("Cargo.toml".to_owned(), manifest(&root, &workspace::root().display().to_string())?);
    let folder = workspace::target().join("planted");
    write_all(&folder, &copy)?;
    // Cargo takes out what is not needed.
    let lock = "Cargo.lock";
    write(&folder.join(lock), &read(&workspace::root().join(lock))?)?;
    Ok(folder)
}

/// The texts below a path of the repository, by their paths from its root.
pub(super) fn files(path: &str) -> Result<BTreeMap<String, String>, String> {
    let place = workspace::root().join(path);
    if place.is_file() {
        return Ok([(path.to_owned(), read(&place)?)].into());
    }
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(&place).map_err(|error| format!("{}: {error}", place.display()))? {
        let entry = entry.map_err(|error| format!("{}: {error}", place.display()))?;
        found.extend(files(&format!("{path}/{}", entry.file_name().to_string_lossy()))?);
    }
    Ok(found)
}

/// Has a crate depend on the one that says which bug is planted.
fn depend(copy: &mut BTreeMap<String, String>, manifest: &str, section: &str) -> Result<(), String> {
    let text = copy.get_mut(manifest).ok_or_else(|| format!("{manifest} is missing"))?;
    if !text.contains(section) {
        text.push('\n');
        text.push_str(section);
    }
    *text = text.replacen(section, &format!("{section}stoa-planted.workspace = true\n"), 1);
    Ok(())
}

/// The crate that says which bug is planted.
fn asked(bugs: &[Bug]) -> String {
    let mut text = "//! Which bug is planted.\n\n/// A bug that can be planted.\n\
                    #[derive(Debug, Clone, Copy, PartialEq, Eq)]\npub enum Bug {\n"
        .to_owned();
    for Bug { name, is, .. } in bugs {
        let _ = writeln!(text, "    /// {is}\n    {name},");
    }
    text + "}\n\n" + ASKED
}

/// The manifest of the copy, made of that of the repository in `root`: the same but for where crates are.
fn manifest(text: &str, root: &str) -> Result<String, String> {
    let mut made = String::new();
    for line in text.lines() {
        let path = line.split_once("{ path = \"").and_then(|(_, rest)| rest.split('"').next());
        if line.starts_with("members = ") {
            made.push_str("members = [\"crates/*\"]\n");
        } else if line.starts_with("exclude = ") || line.starts_with("default-members = ") {
        } else if let Some(path) = path
            && !COPIED.contains(&format!("{path}/src").as_str())
        {
            made += &line.replacen(path, &format!("{root}/{path}"), 1);
            made.push('\n');
        } else {
            made = made + line + "\n";
        }
        if line == "[workspace.dependencies]" {
            made.push_str("stoa-planted = { path = \"crates/planted\" }\n");
        }
    }
    let is_whole = made.contains("members = [\"crates/*\"]") && made.contains("stoa-planted");
    if is_whole {
        Ok(made)
    } else {
        Err("Cargo.toml lacks `members` or `[workspace.dependencies]`".to_owned())
    }
}

/// Writes the files that are others than before, so that cargo builds no more than it has to, and removes those that
/// do not belong there any more.
fn write_all(folder: &Path, copy: &BTreeMap<String, String>) -> Result<(), String> {
    for (path, text) in copy {
        write(&folder.join(path), text)?;
    }
    let kept: BTreeSet<PathBuf> = copy.keys().map(|path| folder.join(path)).collect();
    remove_others(&folder.join("crates"), &kept)
}

fn remove_others(folder: &Path, kept: &BTreeSet<PathBuf>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            remove_others(&path, kept)?;
        } else if !kept.contains(&path) {
            std::fs::remove_file(&path).map_err(failed)?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    if std::fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    made.and_then(|()| std::fs::write(path, text)).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_of_the_copy_points_at_what_is_not_copied() {
        let text = "[workspace]\nmembers = [\"crates/*\", \"xtask\"]\nexclude = [\"fuzz\"]\n\n\
                    [workspace.dependencies]\nstoa-wire = { path = \"crates/wire\" }\n\
                    stoa-core = { path = \"crates/core\" }\nbytes = \"1\"\n";
        let expected = "[workspace]\nmembers = [\"crates/*\"]\n\n[workspace.dependencies]\n\
                        stoa-planted = { path = \"crates/planted\" }\nstoa-wire = { path = \"/r/crates/wire\" }\n\
                        stoa-core = { path = \"crates/core\" }\nbytes = \"1\"\n";
        assert_eq!(manifest(text, "/r").as_deref(), Ok(expected));
        assert!(manifest("[workspace]\n", "/r").is_err());
    }

    #[test]
    fn only_what_has_changed_is_written_and_what_is_gone_is_removed() {
        let folder = workspace::target().join("tmp").join(format!("planted-{}", std::process::id()));
        let copy = |files: &[(&str, &str)]| {
            let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
            write_all(&folder, &files).unwrap();
        };
        copy(&[("crates/a/one.rs", "1"), ("crates/a/two.rs", "2")]);
        let written = |path: &str| std::fs::metadata(folder.join(path)).unwrap().modified().unwrap();
        let before = written("crates/a/one.rs");
        std::thread::sleep(std::time::Duration::from_millis(20));
        copy(&[("crates/a/one.rs", "1"), ("crates/b/three.rs", "3")]);
        assert_eq!(written("crates/a/one.rs"), before);
        assert!(written("crates/b/three.rs") > before);
        assert!(!folder.join("crates/a/two.rs").exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
