//! The lists of bugs: what each is, and how the source is changed to have it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A bug that can be planted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bug {
    pub(crate) name: String,
    /// What it is, in a sentence.
    pub(crate) is: String,
    changes: Vec<Change>,
    /// Where it is listed.
    list: String,
    line: usize,
}

/// A change of one file.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    /// Path from the root of the repository.
    file: String,
    /// What stands there, exactly once.
    find: String,
    /// What stands there instead: it does the same as before where the bug is not planted.
    becomes: String,
}

/// Where a file is changed, and what stands there then.
type Place<'a> = (Range<usize>, &'a str);

/// Something that is wrong with a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) list: String,
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl Bug {
    fn fault(&self, message: String) -> Fault {
        Fault { list: self.list.clone(), line: self.line, message }
    }
}

/// Reads lists, of which each has a path and a text. What is wrong with a bug is told beside those that are as they
/// should be.
pub(crate) fn read<'a>(lists: impl IntoIterator<Item = (&'a str, &'a str)>) -> (Vec<Bug>, Vec<Fault>) {
    let (mut bugs, mut faults) = (Vec::<Bug>::new(), Vec::new());
    for (list, text) in lists {
        let mut found = |line, message| faults.push(Fault { list: list.to_owned(), line, message });
        let table = match text.parse::<toml::Table>() {
            Ok(table) => table,
            Err(error) => {
                let before = &text[..error.span().map_or(0, |span| span.start)];
                found(before.matches('\n').count() + 1, error.message().to_owned());
                continue;
            }
        };
        for (name, value) in table {
            let header = format!("[{name}]");
            let line = text.lines().position(|line| line == header).map_or(0, |index| index + 1);
            match bug(&name, value) {
                Ok(_) if bugs.iter().any(|other| other.name == name) => {
                    found(line, format!("{name}: there is another bug of this name"));
                }
                Ok((is, changes)) => bugs.push(Bug { name, is, changes, list: list.to_owned(), line }),
                Err(message) => found(line, format!("{name}: {message}")),
            }
        }
    }
    (bugs, faults)
}

/// What a bug is, and its changes.
fn bug(name: &str, value: toml::Value) -> Result<(String, Vec<Change>), String> {
    let is_name = name.starts_with(|first: char| first.is_ascii_uppercase())
        && name.chars().all(|character| character.is_ascii_alphanumeric());
    if !is_name {
        return Err("a bug's name is a word like `AckBeforeDurable`".to_owned());
    }
    let toml::Value::Table(mut bug) = value else { return Err("a bug has `is` and `changes`".to_owned()) };
    let is = take_text(&mut bug, "is")?;
    if is.contains('\n') {
        return Err("`is` is one sentence, in one line".to_owned());
    }
    let Some(toml::Value::Array(changes)) = bug.remove("changes") else {
        return Err(format!("lacks `[[{name}.changes]]`"));
    };
    refuse_more(&bug)?;
    let changes: Vec<Change> =
        changes.into_iter().map(|value| change(name, value)).collect::<Result<_, _>>()?;
    if changes.is_empty() { Err("has no changes".to_owned()) } else { Ok((is, changes)) }
}

fn change(name: &str, value: toml::Value) -> Result<Change, String> {
    let toml::Value::Table(mut change) = value else {
        return Err("a change has `file`, `find` and `becomes`".to_owned());
    };
    let mut take = |key| take_text(&mut change, key);
    let (file, find, becomes) = (take("file")?, take("find")?, take("becomes")?);
    refuse_more(&change)?;
    if !super::copy::SOURCES.iter().any(|sources| file.starts_with(sources)) {
        return Err(format!("{file} is not copied: a bug can be in {}", super::copy::SOURCES.join(", ")));
    }
    // One that asks for another bug, or for none, would be there when it is not planted.
    let asked: Vec<&str> =
        becomes.split("planted!(").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    if asked.is_empty() || asked.iter().any(|asked| *asked != name) {
        return Err(format!("what {file} becomes has to ask `planted!({name})`, and for no other bug"));
    }
    Ok(Change { file, find, becomes })
}

fn take_text(table: &mut toml::Table, key: &str) -> Result<String, String> {
    match table.remove(key) {
        Some(toml::Value::String(text)) if !text.is_empty() => Ok(text),
        Some(_) => Err(format!("`{key}` is a text that is not empty")),
        None => Err(format!("lacks `{key}`")),
    }
}

fn refuse_more(table: &toml::Table) -> Result<(), String> {
    table.keys().next().map_or(Ok(()), |key| Err(format!("`{key}` is not known here")))
}

/// Where the changes are in the files, in order, or what does not fit; `text` gives a file's.
fn places<'a>(
    bugs: &'a [Bug],
    text: impl Fn(&str) -> Option<&'a str>,
) -> (BTreeMap<&'a str, Vec<Place<'a>>>, Vec<Fault>) {
    let mut places = BTreeMap::<&str, Vec<(Range<usize>, &str, &Bug)>>::new();
    let mut faults = Vec::new();
    for bug in bugs {
        for Change { file, find, becomes } in &bug.changes {
            let found: Vec<usize> =
                text(file).unwrap_or_default().match_indices(find).map(|(at, _)| at).collect();
            if let [at] = *found {
                places.entry(file).or_default().push((at..at + find.len(), becomes, bug));
                continue;
            }
            let message = match (text(file), found.len()) {
                (None, _) => "there is no such file".to_owned(),
                (_, 0) => "does not have it any more: put the text that is there now into `find` and change \
                           `becomes` likewise"
                    .to_owned(),
                (_, times) => format!("has it {times} times: add lines before or behind it to both texts"),
            };
            let line = find.trim().lines().next().unwrap_or_default();
            faults.push(bug.fault(format!("{}: finds `{line} ...` in {file}, which {message}", bug.name)));
        }
    }
    for (file, places) in &mut places {
        places.sort_by_key(|(place, ..)| place.start);
        for pair in places.windows(2) {
            let [(one, _, before), (other, _, bug)] = pair else { continue };
            if other.start < one.end {
                let message = format!("{}: changes in {file} what {} does: find less", bug.name, before.name);
                faults.push(bug.fault(message));
            }
        }
    }
    let without_bugs = |places: Vec<(Range<usize>, &'a str, _)>| {
        places.into_iter().map(|(place, becomes, _)| (place, becomes)).collect()
    };
    (places.into_iter().map(|(file, places)| (file, without_bugs(places))).collect(), faults)
}

/// The bugs whose texts are not where they should be.
pub(crate) fn misplaced(bugs: &[Bug], files: &BTreeMap<String, String>) -> Vec<Fault> {
    places(bugs, |path| files.get(path).map(String::as_str)).1
}

/// The bugs that no test names.
pub(crate) fn unused(bugs: &[Bug], tests: &[&str]) -> Vec<Fault> {
    let part_of_word = |character: char| !character.is_ascii_alphanumeric() && character != '_';
    let words: BTreeSet<&str> = tests.iter().flat_map(|test| test.split(part_of_word)).collect();
    let unused = bugs.iter().filter(|bug| !words.contains(bug.name.as_str()));
    let fault = |bug: &Bug| {
        let message =
            format!("{}: no test plants it: add one to {}, or remove it", bug.name, super::TESTS[0]);
        bug.fault(message)
    };
    unused.map(fault).collect()
}

/// The files with all bugs planted.
pub(super) fn plant(bugs: &[Bug], files: &mut BTreeMap<String, String>) -> Result<(), String> {
    let before = files.clone();
    let (places, faults) = places(bugs, |path| before.get(path).map(String::as_str));
    if let Some(Fault { list, line, message }) = faults.first() {
        return Err(format!("{list}:{line}: {message}"));
    }
    for (file, changes) in places {
        let Some(text) = files.get_mut(file) else { continue };
        for (place, becomes) in changes.into_iter().rev() {
            text.replace_range(place, becomes);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "crates/core/src/a.rs";

    fn listed(name: &str, find: &str) -> String {
        format!(
            "[{name}]\nis = \"It is wrong.\"\n\n[[{name}.changes]]\nfile = \"{FILE}\"\nfind = '''\n{find}\n'''\n\
             becomes = '''\nif !planted!({name}) {{ {find} }}\n'''\n"
        )
    }

    fn read_one(text: &str) -> (Vec<Bug>, Vec<String>) {
        let (bugs, faults) = read([("l.toml", text)]);
        (bugs, faults.into_iter().map(|fault| format!("{}: {}", fault.line, fault.message)).collect())
    }

    fn files(text: &str) -> BTreeMap<String, String> {
        [(FILE.to_owned(), text.to_owned())].into()
    }

    #[test]
    fn bugs_are_planted_side_by_side() {
        let (bugs, faults) = read_one(&format!("{}\n{}", listed("Last", "c();"), listed("First", "a();")));
        assert_eq!(faults, [""; 0]);
        let mut planted = files("a();\nb();\nc();\n");
        assert_eq!(plant(&bugs, &mut planted), Ok(()));
        let expected = "if !planted!(First) { a(); }\nb();\nif !planted!(Last) { c(); }\n";
        assert_eq!(planted[FILE], expected);
    }

    #[test]
    fn a_text_that_is_not_there_exactly_once_is_named() {
        let (bugs, _) = read_one(&listed("Lost", "a();"));
        let says = |text| misplaced(&bugs, &files(text)).remove(0).message;
        assert!(
            says("b();\n").starts_with(&format!("Lost: finds `a(); ...` in {FILE}, which does not have it"))
        );
        assert!(says("a();\na();\n").contains("has it 2 times"));
        assert!(misplaced(&bugs, &BTreeMap::new()).remove(0).message.contains("no such file"));
        assert!(
            plant(&bugs, &mut files("b();\n")).is_err_and(|message| message.starts_with("l.toml:1: Lost"))
        );
        assert_eq!(misplaced(&bugs, &files("a();\n")), []);
    }

    #[test]
    fn two_bugs_do_not_change_the_same_text() {
        let (bugs, _) =
            read_one(&format!("{}\n{}", listed("One", "a();\nb();"), listed("Other", "b();\nc();")));
        let says = misplaced(&bugs, &files("a();\nb();\nc();\n"));
        assert_eq!(says.len(), 1);
        assert!(says[0].message.contains("what One does"), "{says:?}");
    }

    #[test]
    fn a_bug_asks_for_itself_alone() {
        for wrong in ["a();", "if planted!(Othre) { a(); }", "if planted!(Mine) || planted!(Other) { a(); }"]
        {
            let (bugs, faults) = read_one(
                &listed("Mine", "a();").replace("if !planted!(Mine) { a(); }\n", &format!("{wrong}\n")),
            );
            assert_eq!((bugs.len(), faults.len()), (0, 1), "{wrong}");
            assert!(faults[0].starts_with("1: Mine: ") && faults[0].contains("planted!(Mine)"), "{faults:?}");
        }
    }

    #[test]
    fn a_list_that_is_not_understood_is_refused() {
        let good = listed("Good", "a();");
        for (from, to, says) in [
            ("is =", "iss =", "lacks `is`"),
            ("find =", "finds =", "lacks `find`"),
            ("file =", "of = \"x\"\nfile =", "`of` is not known here"),
            ("crates/core/src", "crates/storage/src", "is not copied"),
            ("[Good", "[good", "a bug's name"),
            ("'''\nbecomes", "''\nbecomes", ""),
        ] {
            let (bugs, faults) = read_one(&good.replace(from, to));
            assert!(bugs.is_empty() && faults.len() == 1 && faults[0].contains(says), "{to}: {faults:?}");
        }
        let (_, faults) = read([("l.toml", good.as_str()), ("m.toml", good.as_str())]);
        assert!(faults.len() == 1 && faults[0].list == "m.toml" && faults[0].message.contains("another bug"));
    }

    #[test]
    fn a_bug_that_no_test_plants_is_found() {
        let (bugs, _) = read_one(&format!("{}\n{}", listed("Used", "a();"), listed("Unused", "b();")));
        let faults = unused(&bugs, &["it: Used in \"calm\",", "NotUnused"]);
        assert_eq!(faults.len(), 1);
        assert!(faults[0].message.starts_with("Unused: no test plants it"), "{faults:?}");
    }
}
