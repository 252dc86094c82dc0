//! Asks ZooKeeper what it makes of the files of a folder.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use crate::Values;

/// What ZooKeeper has said of each file: the values, or why it does not start with it.
pub(crate) type Answers = HashMap<String, Result<Values, String>>;

pub(crate) fn ask(program: &Path, jars: &Path, files: &Path) -> Result<Answers, String> {
    let mut java = Command::new("java");
    let output = java.arg(program).arg(jars).arg(files).output().map_err(|error| format!("java: {error}"))?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        return Err(format!("{} has failed: {err}", program.display()));
    }
    parse(&out)
}

fn parse(out: &str) -> Result<Answers, String> {
    let mut answers = Answers::new();
    for said in out.split("file ").skip(1) {
        let (name, said) = said.split_once('\n').ok_or("a file without an answer")?;
        let answer = match said.strip_prefix("refused ") {
            Some(why) => Err(why.trim_end().to_owned()),
            None => Ok(said.lines().filter_map(|line| line.split_once('=')).map(owned).collect()),
        };
        answers.insert(name.to_owned(), answer);
    }
    Ok(answers)
}

fn owned((key, value): (&str, &str)) -> (String, String) {
    (key.to_owned(), value.to_owned())
}
