//! Words that read and change znodes.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::json;
use stoa_client::protocol::{Call, Reply};
use stoa_client::{Acl, CreateMode, CreateOptions, ErrorCode, blocking};

use super::answer::{self, Answer, DataForm, server_error};
use super::arguments::Arguments;
use super::session::Shell;
use crate::failure::{Failure, Result};

/// Requests that are under way at a time when a subtree is walked.
const BATCH: usize = 1000;

/// The path of a child.
pub(super) fn child(parent: &str, name: &str) -> String {
    if parent == "/" { format!("/{name}") } else { format!("{parent}/{name}") }
}

/// Every znode of a subtree with the sorted names of its children, a parent before its children.
fn walk(client: &blocking::Client, root: &str) -> Result<Vec<(String, Vec<String>)>> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let mut level = vec![root.to_owned()];
    while !level.is_empty() {
        let mut next = Vec::new();
        for batch in level.chunks(BATCH) {
            let list =
                |path: &String| Call::GetChildren { path: path.clone(), watch: None, with_stat: false };
            for (path, reply) in batch.iter().zip(client.call_all(batch.iter().map(list))) {
                match reply {
                    Ok(Reply::Children { mut names, .. }) => {
                        names.sort_unstable();
                        next.extend(names.iter().map(|name| child(path, name)));
                        found.push((path.clone(), names));
                    }
                    // Somebody else deleted it meanwhile.
                    Err(ErrorCode::NoNode) if path != root => {}
                    Err(code) => return Err(server_error(code, path)),
                    Ok(_) => return Err(server_error(ErrorCode::MarshallingError, path)),
                }
            }
        }
        level = next;
    }
    Ok(found)
}

/// The paths of a subtree in zkCli's order: all children of a znode, then what is below each.
fn in_order(root: &str, found: Vec<(String, Vec<String>)>) -> Vec<String> {
    let mut children: HashMap<String, Vec<String>> = found.into_iter().collect();
    let mut paths = vec![root.to_owned()];
    let mut to_visit = vec![root.to_owned()];
    while let Some(path) = to_visit.pop() {
        let names = children.remove(&path).unwrap_or_default();
        let below: Vec<String> = names.iter().map(|name| child(&path, name)).collect();
        paths.extend(below.iter().cloned());
        to_visit.extend(below.into_iter().rev());
    }
    paths
}

pub(super) fn ls(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let path = arguments.at(0);
    let failed = |code| server_error(code, path);
    let client = shell.client()?;
    if arguments.has('R') {
        let paths = in_order(path, walk(&client, path)?);
        if arguments.has('w') {
            for path in &paths {
                let (_, _, watch) =
                    client.get_children_and_watch(path).map_err(|code| server_error(code, path))?;
                shell.follow(watch)?;
            }
        }
        let text: String = paths.iter().flat_map(|path| [path, "\n"]).collect();
        return Ok(Answer::new(text, json!({ "paths": paths })));
    }
    let (mut names, stat) = if arguments.has('w') {
        let (names, stat, watch) = client.get_children_and_watch(path).map_err(failed)?;
        shell.follow(watch)?;
        (names, stat)
    } else {
        client.get_children2(path).map_err(failed)?
    };
    names.sort_unstable();
    let answer = answer::list("children", &names);
    Ok(if arguments.has('s') { answer.and_stat(&stat) } else { answer })
}

pub(super) fn get(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let path = arguments.at(0);
    let failed = |code| server_error(code, path);
    let client = shell.client()?;
    let (data, stat) = if arguments.has('w') {
        let (data, stat, watch) = client.get_data_and_watch(path).map_err(failed)?;
        shell.follow(watch)?;
        (data, stat)
    } else {
        client.get_data(path).map_err(failed)?
    };
    let form = match (arguments.has('x'), arguments.has('b')) {
        (true, _) => DataForm::Hex,
        (false, true) => DataForm::Base64,
        (false, false) => DataForm::Plain,
    };
    let answer = answer::data(&data, form);
    Ok(if arguments.has('s') { answer.and_stat(&stat) } else { answer })
}

pub(super) fn set(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let (path, data) = (arguments.at(0), arguments.at(1));
    let data = if arguments.has('b') { answer::from_base64(data)? } else { data.as_bytes().to_owned() };
    let version = version(arguments)?;
    let stat = shell.client()?.set_data(path, &data, version).map_err(|code| server_error(code, path))?;
    Ok(if arguments.has('s') { answer::stat(&stat) } else { Answer::done() })
}

/// The flag -v; as everywhere in the protocol, -1 stands for any version.
fn version(arguments: &Arguments) -> Result<Option<i32>> {
    Ok(arguments.number('v')?.filter(|version| *version != -1))
}

pub(super) fn create(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let [ephemeral, sequential, container, ttl] = ['e', 's', 'c', 't'].map(|letter| arguments.has(letter));
    let mode = match (container, ttl, ephemeral, sequential) {
        (true, true, ..) => return Err(Failure::usage("TTLs cannot be used with Container znodes")),
        (true, false, false, false) => CreateMode::Container,
        (true, false, ..) => return Err(Failure::usage("-c cannot be combined with -s or -e")),
        (_, true, true, _) => return Err(Failure::usage("TTLs cannot be used with Ephemeral znodes")),
        (_, true, false, false) => CreateMode::PersistentTtl,
        (_, true, false, true) => CreateMode::PersistentSequentialTtl,
        (_, false, true, true) => CreateMode::EphemeralSequential,
        (_, false, true, false) => CreateMode::Ephemeral,
        (_, false, false, true) => CreateMode::PersistentSequential,
        (_, false, false, false) => CreateMode::Persistent,
    };
    let path = arguments.at(0);
    let acl = arguments.get(2).map_or_else(|| Ok(Acl::open()), answer::parse_acl)?;
    let options = CreateOptions { mode, acl, ttl: arguments.number('t')?.map(Duration::from_millis) };
    let created = shell
        .client()?
        .create(path, arguments.at(1).as_bytes(), options)
        .map_err(|code| server_error(code, path))?;
    Ok(Answer::new(format!("Created {created}\n"), json!({ "created": created })))
}

pub(super) fn delete(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let path = arguments.at(0);
    shell.client()?.delete(path, version(arguments)?).map_err(|code| server_error(code, path))?;
    Ok(Answer::done())
}

pub(super) fn delete_all(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let batch = arguments.number('b')?.unwrap_or(BATCH).max(1);
    let client = shell.client()?;
    let mut paths: Vec<String> = walk(&client, arguments.at(0))?.into_iter().map(|(path, _)| path).collect();
    // Children come before their parents; requests of a session take effect in their order.
    paths.reverse();
    let mut deleted = 0;
    let mut failures = Vec::new();
    for batch in paths.chunks(batch) {
        let delete = |path: &String| Call::Delete { path: path.clone(), version: None };
        for (path, reply) in batch.iter().zip(client.call_all(batch.iter().map(delete))) {
            match reply {
                Ok(_) => deleted += 1,
                Err(ErrorCode::NoNode) => {}
                Err(code) => failures.push(server_error(code, path)),
            }
        }
    }
    match failures.first() {
        None => Ok(Answer::new("", json!({ "deleted": deleted }))),
        Some(first) => Err(Failure::failed(format!(
            "Failed to delete some node(s) in the subtree! {} of {} failed; the first: {first}",
            failures.len(),
            paths.len()
        ))),
    }
}

pub(super) fn stat(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let path = arguments.at(0);
    let failed = |code| server_error(code, path);
    let client = shell.client()?;
    let stat = if arguments.has('w') {
        let (stat, watch) = client.exists_and_watch(path).map_err(failed)?;
        shell.follow(watch)?;
        stat
    } else {
        client.exists(path).map_err(failed)?
    };
    stat.map(|stat| answer::stat(&stat)).ok_or_else(|| failed(ErrorCode::NoNode))
}

pub(super) fn sync(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let path = arguments.at(0);
    shell.client()?.sync(path).map_err(|code| server_error(code, path))?;
    Ok(Answer::new("Sync is OK\n", json!({})))
}

pub(super) fn get_ephemerals(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let path = arguments.get(0).unwrap_or("/");
    let paths = shell.client()?.get_ephemerals(path).map_err(|code| server_error(code, path))?;
    Ok(answer::list("ephemerals", &paths))
}

pub(super) fn get_all_children_number(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let path = arguments.at(0);
    let count = shell.client()?.get_all_children_number(path).map_err(|code| server_error(code, path))?;
    Ok(Answer::new(format!("{count}\n"), json!({ "count": count })))
}

pub(super) fn get_acl(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let path = arguments.at(0);
    let (acl, stat) = shell.client()?.get_acl(path).map_err(|code| server_error(code, path))?;
    let answer = answer::acl(&acl);
    Ok(if arguments.has('s') { answer.and_stat(&stat) } else { answer })
}

pub(super) fn set_acl(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let path = arguments.at(0);
    let acl = answer::parse_acl(arguments.at(1))?;
    let version = version(arguments)?;
    let client = shell.client()?;
    if !arguments.has('R') {
        let stat = client.set_acl(path, &acl, version).map_err(|code| server_error(code, path))?;
        return Ok(if arguments.has('s') { answer::stat(&stat) } else { Answer::done() });
    }
    for batch in walk(&client, path)?.chunks(BATCH) {
        let set = |(path, _): &(String, _)| Call::SetAcl { path: path.clone(), acl: acl.clone(), version };
        for ((path, _), reply) in batch.iter().zip(client.call_all(batch.iter().map(set))) {
            match reply {
                Ok(_) | Err(ErrorCode::NoNode) => {}
                Err(code) => return Err(server_error(code, path)),
            }
        }
    }
    Ok(Answer::done())
}

pub(super) fn add_auth(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let scheme = arguments.at(0);
    shell
        .client()?
        .auth(scheme, arguments.at(1).as_bytes())
        .map_err(|code| Failure::failed(format!("cannot add an identity of the scheme {scheme}: {code}")))?;
    Ok(Answer::done())
}

pub(super) fn who_am_i(shell: &mut Shell, _: &Arguments) -> Result<Answer> {
    let identities = shell.client()?.who_am_i().map_err(Failure::failed)?;
    let lines = identities.iter().map(|identity| format!("{}: {}\n", identity.scheme, identity.user));
    let text: String = ["Auth scheme: User\n".to_owned()].into_iter().chain(lines).collect();
    let json: Vec<_> = identities
        .iter()
        .map(|identity| json!({ "scheme": identity.scheme, "user": identity.user }))
        .collect();
    Ok(Answer::new(text, json!({ "identities": json })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subtree_is_listed_in_zkclis_order() {
        let found = [
            ("/", vec!["a", "b"]),
            ("/a", vec!["x"]),
            ("/b", vec!["y", "z"]),
            ("/a/x", vec![]),
            ("/b/y", vec!["q"]),
            ("/b/z", vec![]),
            ("/b/y/q", vec![]),
        ];
        let found = found
            .map(|(path, names)| (path.to_owned(), names.into_iter().map(str::to_owned).collect::<Vec<_>>()));
        assert_eq!(in_order("/", found.to_vec()), ["/", "/a", "/b", "/a/x", "/b/y", "/b/z", "/b/y/q"]);
    }
}
