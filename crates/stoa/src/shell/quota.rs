//! Words about quotas. A quota is data of znodes below `/zookeeper/quota`, which servers heed.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stoa_client::{CreateMode, ErrorCode, blocking};

use super::answer::{Answer, server_error};
use super::arguments::Arguments;
use super::session::Shell;
use super::tree::child;
use crate::failure::{Failure, Result};

const ROOT: &str = "/zookeeper/quota";
const LIMITS: &str = "zookeeper_limits";
const STATS: &str = "zookeeper_stats";
/// The flags of setquota and delquota with the keys they stand for.
const KEYS: [(char, &str); 4] =
    [('n', "count"), ('b', "bytes"), ('N', "countHardLimit"), ('B', "byteHardLimit")];
/// Stands for no limit.
const UNLIMITED: i64 = -1;

/// Limits or use of a subtree, as the data of a znode.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Track(BTreeMap<String, i64>);

impl Track {
    /// No limit, or no use, with the keys that zkCli writes.
    fn unlimited() -> Self {
        Self(KEYS.iter().map(|(_, key)| ((*key).to_owned(), UNLIMITED)).collect())
    }

    fn parse(data: &[u8]) -> Self {
        let text = String::from_utf8_lossy(data);
        let pairs = text.split([',', ';']).filter_map(|pair| {
            let mut parts = pair.split('=');
            let (key, value) = (parts.next()?, parts.next()?);
            Some((key.to_owned(), value.parse().unwrap_or(UNLIMITED)))
        });
        Self(pairs.collect())
    }

    fn get(&self, key: &str) -> i64 {
        self.0.get(key).copied().unwrap_or(UNLIMITED)
    }

    fn json(&self) -> Value {
        json!(self.0)
    }
}

impl std::fmt::Display for Track {
    /// `count=1,bytes=2=;byteHardLimit=3;countHardLimit=4`: the odd `=` keeps servers of old, which
    /// know only the first two, from failing over the rest.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "count={},bytes={}", self.get("count"), self.get("bytes"))?;
        let rest = self.0.iter().filter(|(key, _)| !matches!(key.as_str(), "count" | "bytes"));
        for (index, (key, value)) in rest.enumerate() {
            let separator = if index == 0 { "=;" } else { ";" };
            write!(f, "{separator}{key}={value}")?;
        }
        Ok(())
    }
}

fn quota_path(path: &str) -> String {
    if path == "/" { ROOT.to_owned() } else { format!("{ROOT}{path}") }
}

/// Paths above `path`, without the root and without itself.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').skip(1).map(|(at, _)| &path[..at])
}

pub(super) fn set(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let path = arguments.at(0);
    if path.starts_with(ROOT) {
        return Err(Failure::usage(format!("cannot set a quota under the path: {ROOT}")));
    }
    let mut wanted = Vec::new();
    for (letter, key) in KEYS {
        if let Some(limit) = arguments.number::<i64>(letter)? {
            let least = if key.starts_with("count") { 1 } else { 0 };
            if limit < least {
                return Err(Failure::usage(format!("-{letter} {limit}: a quota must be at least {least}")));
            }
            wanted.push((key, limit));
        }
    }
    if wanted.is_empty() {
        return Err(Failure::usage("one of -n, -b, -N and -B is needed"));
    }
    let client = shell.client()?;
    let failed = |code| server_error(code, path);
    client.exists(path).map_err(failed)?.ok_or_else(|| failed(ErrorCode::NoNode))?;
    refuse_nested(&client, path)?;
    let limits_path = child(&quota_path(path), LIMITS);
    let mut limits = match client.get_data(&limits_path) {
        Ok((data, _)) => Track::parse(&data),
        Err(ErrorCode::NoNode) => Track::unlimited(),
        Err(code) => return Err(server_error(code, &limits_path)),
    };
    limits.0.extend(wanted.into_iter().map(|(key, limit)| (key.to_owned(), limit)));
    store(&client, path, &limits)?;
    let stats_path = child(&quota_path(path), STATS);
    let (data, _) = client.get_data(&stats_path).map_err(|code| server_error(code, &stats_path))?;
    Ok(Answer::new(warnings(&limits, &Track::parse(&data)), json!({ "limits": limits.json() })))
}

/// Writes the limits; makes the znodes for them if this is the first quota of `path`.
fn store(client: &blocking::Client, path: &str, limits: &Track) -> Result<()> {
    let quota = quota_path(path);
    let limits_path = child(&quota, LIMITS);
    match client.set_data(&limits_path, limits.to_string().as_bytes(), None) {
        Ok(_) => return Ok(()),
        Err(ErrorCode::NoNode) => {}
        Err(code) => return Err(server_error(code, &limits_path)),
    }
    let create = |path: &str, data: &str| match client.create(path, data.as_bytes(), CreateMode::Persistent) {
        Ok(_) | Err(ErrorCode::NodeExists) => Ok(()),
        Err(code) => Err(server_error(code, path)),
    };
    for ancestor in ancestors(&quota) {
        create(ancestor, "")?;
    }
    create(&quota, "")?;
    create(&limits_path, &limits.to_string())?;
    create(&child(&quota, STATS), "count=0,bytes=0")
}

/// Quotas do not nest: refuses a path above or below which there is one.
fn refuse_nested(client: &blocking::Client, path: &str) -> Result<()> {
    let quota = quota_path(path);
    let names = |path: &str| match client.get_children(path) {
        Ok(names) => Ok(names),
        Err(ErrorCode::NoNode) => Ok(Vec::new()),
        Err(code) => Err(server_error(code, path)),
    };
    for above in ancestors(&quota).filter(|above| above.len() > ROOT.len()) {
        if names(above)?.iter().any(|name| name == LIMITS) {
            let above = &above[ROOT.len()..];
            return Err(Failure::failed(format!("{path} has a parent {above} which has a quota")));
        }
    }
    let mut to_visit = vec![quota.clone()];
    while let Some(at) = to_visit.pop() {
        for name in names(&at)? {
            if name == LIMITS && at != quota {
                let below = &at[ROOT.len()..];
                return Err(Failure::failed(format!("{path} has a child {below} which has a quota")));
            }
            if name != LIMITS && name != STATS {
                to_visit.push(child(&at, &name));
            }
        }
    }
    Ok(())
}

fn warnings(limits: &Track, stats: &Track) -> String {
    let mut text = String::new();
    for (what, soft, hard) in [("count", "count", "countHardLimit"), ("bytes", "bytes", "byteHardLimit")] {
        let used = stats.get(what);
        if [soft, hard].iter().any(|key| (0..used).contains(&limits.get(key))) {
            text +=
                &format!("[Warning]: the {what} quota you create is less than the existing {what}:{used}\n");
        }
    }
    text
}

pub(super) fn list(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let path = arguments.at(0);
    let client = shell.client()?;
    let quota = quota_path(path);
    let read = |name| {
        let at = child(&quota, name);
        let data = client.get_data(&at).map_err(|code| no_quota(code, path))?;
        Ok((Track::parse(&data.0), at))
    };
    let (limits, at) = read(LIMITS)?;
    let (stats, _) = read(STATS)?;
    let text =
        format!("absolute path is {at}\nOutput quota for {path} {limits}\nOutput stat for {path} {stats}\n");
    Ok(Answer::new(text, json!({ "limits": limits.json(), "stats": stats.json() })))
}

pub(super) fn delete(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let path = arguments.at(0);
    let client = shell.client()?;
    let quota = quota_path(path);
    let limits_path = child(&quota, LIMITS);
    let (data, _) = client.get_data(&limits_path).map_err(|code| no_quota(code, path))?;
    let lifted: Vec<_> = KEYS.iter().filter(|(letter, _)| arguments.has(*letter)).collect();
    if !lifted.is_empty() {
        let mut limits = Track::parse(&data);
        limits.0.extend(lifted.into_iter().map(|(_, key)| ((*key).to_owned(), UNLIMITED)));
        let data = limits.to_string();
        client
            .set_data(&limits_path, data.as_bytes(), None)
            .map_err(|code| server_error(code, &limits_path))?;
        return Ok(Answer::new("", json!({ "limits": limits.json() })));
    }
    for name in [LIMITS, STATS] {
        let at = child(&quota, name);
        match client.delete(&at, None) {
            Ok(()) | Err(ErrorCode::NoNode) => {}
            Err(code) => return Err(server_error(code, &at)),
        }
    }
    // Directories that no other quota needs go as well.
    let mut above: Vec<&str> = ancestors(&quota).chain([quota.as_str()]).collect();
    while let Some(at) = above.pop().filter(|at| at.len() > ROOT.len()) {
        match client.delete(at, None) {
            Ok(()) | Err(ErrorCode::NoNode) => {}
            Err(ErrorCode::NotEmpty) => break,
            Err(code) => return Err(server_error(code, at)),
        }
    }
    Ok(Answer::done())
}

fn no_quota(code: ErrorCode, path: &str) -> Failure {
    match code {
        ErrorCode::NoNode => Failure::failed(format!("quota for {path} does not exist.")),
        code => server_error(code, path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_as_zkcli_writes_them() {
        let mut limits = Track::unlimited();
        limits.0.insert("count".to_owned(), 5);
        let text = limits.to_string();
        assert_eq!(text, "count=5,bytes=-1=;byteHardLimit=-1;countHardLimit=-1");
        assert_eq!(Track::parse(text.as_bytes()), limits);
        assert_eq!(Track::parse(b"count=3,bytes=9").to_string(), "count=3,bytes=9");
    }

    #[test]
    fn a_quota_below_its_use_is_warned_about() {
        let stats = Track::parse(b"count=3,bytes=9");
        assert_eq!(warnings(&Track::unlimited(), &stats), "");
        assert_eq!(warnings(&Track::parse(b"count=3,bytes=9"), &stats), "");
        let warned = warnings(&Track::parse(b"count=2,bytes=10=;byteHardLimit=8"), &stats);
        assert_eq!(warned.lines().count(), 2, "{warned}");
    }

    #[test]
    fn ancestors_go_from_the_top() {
        assert_eq!(ancestors("/a/b/c").collect::<Vec<_>>(), ["/a", "/a/b"]);
        assert_eq!(ancestors("/a").count(), 0);
    }
}
