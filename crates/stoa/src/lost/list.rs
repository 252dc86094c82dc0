//! How what is lost is shown: as a table, or in JSON, one update a line.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::{LostArgs, Summary, Update};
use crate::columns::aligned;
use crate::failure::{Context as _, Result};
use crate::lost::now::Now;
use crate::shell::{ShellArgs, date};

/// Shows updates as they come.
pub(super) struct List {
    is_json: bool,
    with_data: bool,
    now: Option<Now>,
    /// Znodes that are there by an update that is lost.
    created: BTreeSet<String>,
    has_head: bool,
}

const COLUMNS: [&str; 6] = ["time", "zxid", "session", "operation", "path", "bytes"];

impl List {
    /// Nothing was shown yet.
    ///
    /// # Errors
    /// When there is nobody to compare with.
    pub(super) fn new(args: &LostArgs, shell: &ShellArgs) -> Result<Self> {
        let now = if args.compare { Some(Now::connect(shell)?) } else { None };
        let (is_json, with_data) = (shell.is_json(), args.data);
        Ok(Self { is_json, with_data, now, created: BTreeSet::new(), has_head: false })
    }

    /// Shows some more.
    pub(super) fn show(&mut self, updates: &[Update]) -> Result<()> {
        let now: Vec<Vec<Option<&'static str>>> =
            updates.iter().map(|update| self.become_of(update)).collect::<Result<_>>()?;
        let text = if self.is_json { in_json(updates, &now) } else { self.table(updates, &now) };
        write!(io::stdout(), "{text}").context("cannot print")
    }

    /// What has become of what each operation is about; nothing if that is not asked.
    fn become_of(&mut self, update: &Update) -> Result<Vec<Option<&'static str>>> {
        let Some(now) = &self.now else { return Ok(vec![None; update.operations.len()]) };
        let mut all = Vec::new();
        for operation in &update.operations {
            let Some(path) = &operation.path else {
                all.push(None);
                continue;
            };
            if operation.name.starts_with("create") {
                self.created.insert(path.clone());
            }
            all.push(now.of(path, &operation.name, update.zxid, self.created.contains(path))?);
        }
        Ok(all)
    }

    fn table(&mut self, updates: &[Update], now: &[Vec<Option<&'static str>>]) -> String {
        let mut rows: Vec<[String; 8]> = Vec::new();
        if !std::mem::replace(&mut self.has_head, true) && !updates.is_empty() {
            let mut head: [String; 8] = Default::default();
            for (cell, name) in head.iter_mut().zip(COLUMNS) {
                *cell = name.to_owned();
            }
            head[6] = self.now.as_ref().map_or(String::new(), |_| "now".to_owned());
            head[7] = if self.with_data { "data".to_owned() } else { String::new() };
            rows.push(head);
        }
        for (update, now) in updates.iter().zip(now) {
            for (operation, now) in update.operations.iter().zip(now) {
                let dash = || "-".to_owned();
                let multi = if update.is_multi { "multi: " } else { "" };
                let doubt = if update.is_committed { "" } else { " (not known to be committed)" };
                let data = operation.data.as_ref().map(|data| data.escape_ascii().to_string());
                rows.push([
                    date(update.time_ms),
                    format!("0x{:x}", update.zxid),
                    format!("0x{:x}", update.session),
                    format!("{multi}{}{doubt}", operation.name),
                    operation.path.as_ref().map_or_else(dash, |path| shown(path)),
                    operation.bytes.map_or_else(dash, |bytes| bytes.to_string()),
                    now.unwrap_or(if self.now.is_some() { "-" } else { "" }).to_owned(),
                    data.unwrap_or_default(),
                ]);
            }
        }
        aligned(&rows)
    }

    /// Says at the end how much there is.
    pub(super) fn end(self, site: &str, summary: &Summary) -> Result<()> {
        if self.is_json {
            return Ok(());
        }
        let Summary { ref kept, count, are_more, .. } = *summary;
        let kept = match kept.iter().count() {
            0 => "the others have nothing that it has made".to_owned(),
            1 => format!("the others have what it has made up to zxid {kept}"),
            _ => format!("the others have what its partitions have made up to zxid {kept}"),
        };
        let empty = if self.has_head { "\n" } else { "" };
        let mut text = format!("{empty}{site} was given up; {kept}, and lack {count} of its updates\n");
        if are_more {
            text += "there are more behind the last one of these: --after and --limit\n";
        }
        write!(io::stdout(), "{text}").context("cannot print")
    }
}

/// A path as it can be printed.
fn shown(path: &str) -> String {
    path.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn in_json(updates: &[Update], now: &[Vec<Option<&'static str>>]) -> String {
    let mut text = String::new();
    for (update, now) in updates.iter().zip(now) {
        let operations = update.operations.iter().zip(now).map(|(operation, now)| {
            let mut told = json!({
                "operation": operation.name, "path": operation.path, "bytes": operation.bytes
            });
            if let Some(data) = &operation.data {
                told["data"] = data.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into();
            }
            if let Some(now) = now {
                told["now"] = (*now).into();
            }
            told
        });
        let line: Value = json!({
            "zxid": format!("0x{:x}", update.zxid),
            "time": update.time_ms,
            "session": format!("0x{:x}", update.session),
            "is_multi": update.is_multi,
            "is_committed": update.is_committed,
            "operations": operations.collect::<Vec<_>>(),
        });
        text += &line.to_string();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lost::LostPart;

    fn updates() -> Vec<Update> {
        let operation = |name: &str, path: Option<&str>, data: Option<&[u8]>| LostPart {
            name: name.to_owned(),
            path: path.map(str::to_owned),
            bytes: data.map(|data| data.len() as u64),
            data: data.map(<[u8]>::to_vec),
        };
        let set = operation("setData", Some("/a\u{1b}"), Some(b"a\n"));
        let end = operation("end of a session", None, None);
        let update = Update {
            zxid: 0x803,
            time_ms: 0,
            session: 0x77,
            is_multi: false,
            is_committed: true,
            operations: vec![set.clone()],
        };
        let doubted = Update { zxid: 0x1003, is_committed: false, operations: vec![end], ..update.clone() };
        let multi =
            Update { zxid: 0x1803, is_multi: true, operations: vec![set.clone(), set], ..update.clone() };
        vec![update, doubted, multi]
    }

    #[test]
    fn updates_are_rows_of_a_table() {
        let mut list =
            List { is_json: false, with_data: true, now: None, created: BTreeSet::new(), has_head: false };
        let none = updates().iter().map(|update| vec![None; update.operations.len()]).collect::<Vec<_>>();
        let expected = "\
time                          zxid    session  operation                                     path  bytes    data
Thu Jan 01 00:00:00 UTC 1970  0x803   0x77     setData                                       /a?   2        a\\n
Thu Jan 01 00:00:00 UTC 1970  0x1003  0x77     end of a session (not known to be committed)  -     -
Thu Jan 01 00:00:00 UTC 1970  0x1803  0x77     multi: setData                                /a?   2        a\\n
Thu Jan 01 00:00:00 UTC 1970  0x1803  0x77     multi: setData                                /a?   2        a\\n
";
        let table = list.table(&updates(), &none);
        assert_eq!(table, expected);
        // What comes later has no head any more.
        assert!(list.table(&updates()[..1], &none[..1]).starts_with("Thu Jan 01"));
    }

    #[test]
    fn in_json_each_update_is_a_line() {
        let now = vec![vec![Some("unchanged")], vec![None], vec![None, None]];
        let text = in_json(&updates(), &now);
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3);
        let expected = json!({
            "zxid": "0x803", "time": 0, "session": "0x77", "is_multi": false, "is_committed": true,
            "operations": [
                { "operation": "setData", "path": "/a\u{1b}", "bytes": 2, "data": "610a", "now": "unchanged" }
            ]
        });
        assert_eq!(lines[0], expected);
        assert_eq!(
            lines[1]["operations"][0],
            json!({ "operation": "end of a session", "path": null, "bytes": null })
        );
    }
}
