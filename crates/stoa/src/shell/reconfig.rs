//! The list of servers: shown, and changed as zkCli changes it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use stoa_client::ErrorCode;
use stoa_client::protocol::{Call, Reply};
use stoa_client::tls::Tls;
use stoa_core::reconfigured;
use stoa_server::config::{Member, MemberRole};
use stoa_wire::Reconfig;

use super::answer::{Answer, server_error};
use super::arguments::Arguments;
use super::session::Shell;
use super::status;
use crate::failure::{Context as _, Failure, Result};

const CONFIG_PATH: &str = "/zookeeper/config";
/// How often servers are asked how far they are.
const LOOK: Duration = Duration::from_millis(300);

pub(super) fn config(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let failed = |code| server_error(code, CONFIG_PATH);
    let client = shell.client()?;
    let (data, stat) = if arguments.has('w') {
        let (data, stat, watch) = client.get_data_and_watch(CONFIG_PATH).map_err(failed)?;
        shell.follow(watch)?;
        (data, stat)
    } else {
        client.get_data(CONFIG_PATH).map_err(failed)?
    };
    let text = String::from_utf8_lossy(&data);
    let answer = if arguments.has('c') {
        let (version, addresses) = (version(&text), client_addresses(&text));
        let line = format!("{version} {}\n", addresses.join(","));
        Answer::new(line, json!({ "version": version, "addresses": addresses }))
    } else {
        Answer::new(format!("{text}\n"), json!({ "config": text }))
    };
    Ok(if arguments.has('s') { answer.and_stat(&stat) } else { answer })
}

/// As it stands in the list, in hexadecimal.
fn version(list: &str) -> &str {
    list.lines().find_map(|line| line.strip_prefix("version=")).unwrap_or_default().trim()
}

/// The addresses for clients from lines `server.1=host:port:port:role;host:port`.
fn client_addresses(list: &str) -> Vec<String> {
    list.lines()
        .filter_map(|line| {
            let (_, client) = line.strip_prefix("server.")?.split_once('=')?.1.split_once(';')?;
            // As zkCli shows an address that is left out.
            Some(if client.contains(':') { client.to_owned() } else { format!("0.0.0.0:{client}") })
        })
        .collect()
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    joining: Option<String>,
    leaving: Option<String>,
    members: Option<String>,
    version: i64,
}

impl Change {
    fn of(arguments: &Arguments) -> Result<Self> {
        let lower = |letter| arguments.option(letter).map(str::to_lowercase);
        let (joining, leaving) = (lower('a'), lower('r'));
        let members = match (lower('m'), arguments.option('f')) {
            (Some(_), Some(_)) => return Err(Failure::usage("-file and -members both say the whole list")),
            (None, Some(file)) => Some(servers_of(Path::new(file))?),
            (members, None) => members,
        };
        let (is_whole, is_change) = (members.is_some(), joining.is_some() || leaving.is_some());
        if is_whole == is_change {
            return Err(Failure::usage(
                "either -file or -members says the whole list, or -add and -remove say what changes",
            ));
        }
        let version = match arguments.option('v') {
            None => -1,
            Some(text) => i64::from_str_radix(text, 16).map_err(|_| {
                Failure::usage(format!(
                    "-v {text}: the version of a list is a hexadecimal number, see `config`"
                ))
            })?,
        };
        Ok(Self { joining, leaving, members, version })
    }

    fn request(&self) -> Reconfig<'_> {
        Reconfig {
            joining: self.joining.as_deref(),
            leaving: self.leaving.as_deref(),
            new_members: self.members.as_deref(),
            current_config: self.version,
        }
    }

    fn call(&self) -> Call {
        let Self { joining, leaving, members, version } = self.clone();
        Call::Reconfig { joining, leaving, new_members: members, current_config: version }
    }
}

/// The servers of a configuration file, with commas between them.
fn servers_of(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).context(format!("cannot read {}", file.display()))?;
    let lines = || text.lines().map(str::trim);
    if let Some(line) = lines().find(|line| line.starts_with("group.") || line.starts_with("weight.")) {
        return Err(Failure::usage(format!("{}: {line}: there are no groups and weights", file.display())));
    }
    let servers: Vec<String> =
        lines().filter(|line| line.starts_with("server.")).map(str::to_lowercase).collect();
    match servers.is_empty() {
        true => Err(Failure::usage(format!("{} has no line server.N=...", file.display()))),
        false => Ok(servers.join(",")),
    }
}

pub(super) fn reconfig(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let change = Change::of(arguments)?;
    let waits = arguments.has('w');
    let before = if waits { members(&list(shell)?) } else { BTreeMap::new() };
    let done = shell.client()?.call_all([change.call()]).pop();
    let (data, stat) = match done {
        Some(Ok(Reply::Data { data, stat })) => (data, stat),
        Some(Err(code)) => return Err(explain(code, &change, shell)),
        _ => return Err(Failure::failed("the server's answer to reconfig is none")),
    };
    let text = String::from_utf8_lossy(&data);
    if waits {
        wait(&before, &members(&text), shell.tls()?.as_ref());
    }
    let answer = Answer::new(format!("Committed new configuration:\n{text}\n"), json!({ "config": text }));
    Ok(if arguments.has('s') { answer.and_stat(&stat) } else { answer })
}

/// The list in force.
fn list(shell: &Shell) -> Result<String> {
    let (data, _) = shell.client()?.get_data(CONFIG_PATH).map_err(|code| server_error(code, CONFIG_PATH))?;
    Ok(String::from_utf8_lossy(&data).into_owned())
}

fn members(list: &str) -> BTreeMap<u8, Member> {
    list.lines().filter_map(Member::of_line).map(|member| (member.id, member)).collect()
}

/// Why a change was refused, and the way out.
fn explain(code: ErrorCode, change: &Change, shell: &Shell) -> Failure {
    // What cannot be read now is not said.
    let list = list(shell).unwrap_or_default();
    let new = reconfigured(&list, &change.request());
    Failure::failed(match (code, new) {
        (ErrorCode::BadArguments, Err(why)) => format!("Arguments are not valid: {why}"),
        (ErrorCode::BadArguments, Ok(_)) => "Arguments are not valid; the server does not say why".to_owned(),
        (ErrorCode::NewConfigNoQuorum, Ok(new)) => format!(
            "{code}: of the participants that stay too few are connected to the leader{}; start them first, or \
             remove them in a change of its own",
            missing(&members(&list), &members(&new), shell.tls().unwrap_or_default().as_ref())
        ),
        (ErrorCode::ReconfigDisabled, _) => {
            format!("{code}: set reconfig-enabled (reconfigEnabled in a zoo.cfg) to true on all servers")
        }
        (ErrorCode::NoAuth, _) => format!(
            "{code}: it takes the permission to write {CONFIG_PATH}: be the super user (--auth digest:super:..., with \
             super-digest set on the servers), or have it given to you there with setAcl"
        ),
        (ErrorCode::BadVersion, _) => match version(&list) {
            "" => format!("{code}: the list has another version by now"),
            now => format!("{code}: the list has version {now} by now; look at it again with `config`"),
        },
        (ErrorCode::ReconfigInProgress, _) => format!("{code}: try again when that is through"),
        (ErrorCode::Unimplemented, _) => {
            format!("{code}: the server stands alone and has no list; set servers in its settings")
        }
        (ErrorCode::ConnectionLoss, _) => {
            format!("{code}: it may have been done or not, and `config` shows which")
        }
        (code, _) => code.to_string(),
    })
}

/// Which of the participants that stay do not serve, as far as can be seen from here.
fn missing(before: &BTreeMap<u8, Member>, after: &BTreeMap<u8, Member>, tls: Option<&Tls>) -> String {
    let stay = after
        .values()
        .filter(|member| member.role == MemberRole::Participant && before.contains_key(&member.id));
    let missing = stay.filter_map(|member| {
        let why = address(member).map(|address| status::mode(&address, tls))?.err()?;
        Some(format!("server {}: {why}", member.id))
    });
    let missing: Vec<_> = missing.collect();
    if missing.is_empty() { String::new() } else { format!(" ({})", missing.join("; ")) }
}

/// Where a server answers clients, if its line says so.
fn address(member: &Member) -> Option<String> {
    let (host, port) = member.client.as_ref()?;
    let is_any = |host: &&String| matches!(host.as_str(), "0.0.0.0" | "::");
    let host = host.as_ref().filter(|host| !is_any(host)).unwrap_or(&member.host);
    Some(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

/// Shows on standard error what is still to be done until all servers are what the list says.
fn wait(before: &BTreeMap<u8, Member>, after: &BTreeMap<u8, Member>, tls: Option<&Tls>) {
    eprintln!("the list is in force; the servers follow it, whether anybody waits or not");
    let mut shown = Vec::new();
    loop {
        let joining = after.values().filter_map(|member| still_joins(member, tls));
        let gone = before.values().filter(|member| !after.contains_key(&member.id));
        let leaving = gone.filter_map(|member| still_serves(member, tls));
        let left: Vec<String> = joining.chain(leaving).collect();
        if left != shown {
            left.iter().for_each(|line| eprintln!("{line}"));
        }
        if left.is_empty() {
            return eprintln!("all servers are what the list says");
        }
        shown = left;
        std::thread::sleep(LOOK);
    }
}

/// What keeps a server from being what the list says. One whose line has no port for clients cannot be asked.
fn still_joins(member: &Member, tls: Option<&Tls>) -> Option<String> {
    let (id, address) = (member.id, address(member)?);
    let mode = match status::mode(&address, tls) {
        Ok(mode) => mode,
        Err(why) => return Some(format!("server {id} ({address}) does not serve yet: {why}")),
    };
    let is_observer = mode == "observer";
    match member.role {
        MemberRole::Participant if is_observer => {
            Some(format!("server {id} ({address}) catches up and has no vote yet"))
        }
        MemberRole::Observer if !is_observer => Some(format!("server {id} ({address}) has its vote still")),
        _ => None,
    }
}

fn still_serves(member: &Member, tls: Option<&Tls>) -> Option<String> {
    let (id, address) = (member.id, address(member)?);
    status::mode(&address, tls)
        .is_ok()
        .then(|| format!("server {id} ({address}) still belongs to the ensemble"))
}

#[cfg(test)]
mod tests {
    use super::super::arguments::split;
    use super::super::words;
    use super::*;

    fn change(line: &str) -> Result<Change> {
        let parts = split(line);
        let word = words::find(&parts[0]).unwrap();
        Change::of(&Arguments::parse(word.name, &word.syntax, &parts[1..])?)
    }

    #[test]
    fn a_change_is_said_as_in_zkcli() {
        let both =
            change("reconfig -s -remove 2,3 -add 'server.4=H:1:2:PARTICIPANT;3,5=h:2:3;4' -v 1f").unwrap();
        assert_eq!(both.joining.as_deref(), Some("server.4=h:1:2:participant;3,5=h:2:3;4"));
        assert_eq!((both.leaving.as_deref(), both.version, both.members), (Some("2,3"), 0x1f, None));
        let whole = change("reconfig -members server.1=h:1:2;3").unwrap();
        assert_eq!((whole.members.as_deref(), whole.version), (Some("server.1=h:1:2;3"), -1));
        for (line, why) in [
            ("reconfig", "either -file or -members"),
            ("reconfig -members server.1=h:1:2;3 -remove 2", "either -file or -members"),
            ("reconfig -members server.1=h:1:2;3 -file x", "both say the whole list"),
            ("reconfig -remove 2 -v x", "hexadecimal"),
            ("reconfig -remove", "-remove needs a value"),
            ("reconfig -remove 2 -remove 3", "-remove is there twice"),
            ("reconfig -adds 2", "unknown flag -adds"),
            ("reconfig -a server.4=h:1:2;3", "unknown flag -a"),
        ] {
            let said = change(line).unwrap_err().to_string();
            assert!(said.contains(why), "{line}: {said}");
        }
    }

    #[test]
    fn a_file_says_the_whole_list() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("zoo.cfg.dynamic");
        let said = |text: &str| {
            std::fs::write(&file, text).unwrap();
            servers_of(&file).map_err(|failure| failure.to_string())
        };
        let list = "# ours\ntickTime=2000\n server.1=A:1:2;3\nserver.2=b:1:2:Observer;3\nversion=0\n";
        assert_eq!(said(list).unwrap(), "server.1=a:1:2;3,server.2=b:1:2:observer;3");
        assert!(said("tickTime=2000\n").unwrap_err().contains("no line server.N="));
        assert!(said("server.1=a:1:2;3\ngroup.1=1:2\n").unwrap_err().contains("no groups"));
    }

    #[test]
    fn addresses_for_clients_come_from_the_config() {
        let config = "server.1=a:2888:3888:participant;0.0.0.0:2181\nserver.2=b:2888:3888;2182\nversion=1f";
        assert_eq!(client_addresses(config), ["0.0.0.0:2181", "0.0.0.0:2182"]);
        assert_eq!(version(config), "1f");
        let asked: Vec<_> = members(config).values().map(|member| address(member).unwrap()).collect();
        assert_eq!(asked, ["a:2181", "b:2182"]);
        assert_eq!(address(&Member::of_line("server.1=a:1:2;[::1]:3").unwrap()).unwrap(), "[::1]:3");
    }
}
