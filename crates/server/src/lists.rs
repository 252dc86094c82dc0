//! The list of servers in the settings beside the one that the ensemble has: which of the two counts, and what to do
//! about it.

use std::fmt::Write as _;

use stoa_core::{Replica, Status};

use crate::config::{Member, Settings};

/// What is to be said at the start, if the two are not the same.
pub(crate) fn compare(settings: &Settings, first: &Replica) -> Option<String> {
    if settings.is_reader() {
        return None;
    }
    if settings.servers.is_empty() {
        let Status { id, voters, .. } = first.status();
        return names_nobody(id, &voters);
    }
    let list = first.servers()?;
    let listed: Vec<Member> = list.lines().filter_map(Member::of_line).collect();
    let difference = difference(&settings.servers, &listed)?;
    Some(if first.settings_count() {
        format!(
            "the settings name other servers than the list of the ensemble (/zookeeper/config), and become the list, as \
                 nobody else belongs to it: {difference}"
        )
    } else {
        format!(
            "the settings name other servers than the list of the ensemble (/zookeeper/config), and the list counts: \
                 {difference}. Make the settings of all servers agree with the list, or change the list by reconfig"
        )
    })
}

/// What it means that the settings name no servers, where others vote by the data folder.
fn names_nobody(id: u8, voters: &[u8]) -> Option<String> {
    let others: Vec<_> = voters.iter().filter(|voter| **voter != id).map(u8::to_string).collect();
    (!others.is_empty()).then(|| {
        format!(
            "by the data folder the servers {} vote besides this one, and the settings name no servers to look for: nobody \
             is served. Set `servers` and `server-id` as they are on the others; or run `stoa recover`, for this server to \
             go on alone",
            others.join(", ")
        )
    })
}

/// What servers in the settings are not as in the list.
fn difference(named: &[Member], listed: &[Member]) -> Option<String> {
    let find = |members: &[Member], id: u8| members.iter().find(|member| member.id == id).cloned();
    let (mut added, mut changed) = (Vec::new(), String::new());
    for member in named {
        match find(listed, member.id) {
            None => added.push(member.to_string()),
            Some(other) if is_same(&other, member) => {}
            Some(other) => {
                let _ = write!(changed, "; it has {other}, the settings have {member}");
            }
        }
    }
    let gone = listed.iter().filter(|member| find(named, member.id).is_none());
    let gone: Vec<_> = gone.map(|member| member.id.to_string()).collect();
    let mut text = String::new();
    if !added.is_empty() {
        let added = added.join(",");
        let _ = write!(text, "; it lacks {added} (`stoa reconfig -add '{added}'` adds what is missing)");
    }
    if !gone.is_empty() {
        let gone = gone.join(",");
        let _ = write!(
            text,
            "; it has the servers {gone} besides (`stoa reconfig -remove {gone}` takes them out)"
        );
    }
    text.push_str(&changed);
    text.strip_prefix("; ").map(str::to_owned)
}

/// Whether two lines say the same of a server. A line need not say where its clients connect.
fn is_same(one: &Member, other: &Member) -> bool {
    let is_client_same = one.client == other.client || one.client.is_none() || other.client.is_none();
    (&one.host, one.peer_port, one.role) == (&other.host, other.peer_port, other.role) && is_client_same
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &str) -> Vec<Member> {
        text.lines().filter_map(Member::of_line).collect()
    }

    #[test]
    fn that_nobody_is_named_is_told_where_others_vote() {
        assert_eq!((names_nobody(1, &[1]), names_nobody(1, &[])), (None, None));
        let why = names_nobody(2, &[1, 2, 3]).unwrap();
        assert!(why.starts_with("by the data folder the servers 1, 3 vote besides this one, and"), "{why}");
        assert!(names_nobody(2, &[1]).is_some(), "it stood alone with another number");
    }

    #[test]
    fn what_differs_is_told_with_the_command_for_it() {
        let list = members("server.1=a:1:2;3\nserver.2=b:1:2;3\nserver.3=c:1:2;3\nversion=100000000");
        assert_eq!(difference(&list, &list), None);
        assert_eq!(difference(&members("server.1=a:1:7\nserver.2=b:1:2\nserver.3=c:1:2"), &list), None);
        let more = members("server.1=a:1:2;3\nserver.2=b:1:2;3\nserver.3=c:1:2;3\nserver.4=d:1:2:observer;3");
        let added = "server.4=d:1:2:observer;0.0.0.0:3";
        assert_eq!(
            difference(&more, &list).unwrap(),
            format!("it lacks {added} (`stoa reconfig -add '{added}'` adds what is missing)")
        );
        let why = difference(&members("server.1=a:1:2;3\nserver.2=x:1:2;3"), &list).unwrap();
        assert!(why.starts_with("it has the servers 3 besides (`stoa reconfig -remove 3` takes"), "{why}");
        assert!(
            why.contains("; it has server.2=b:1:2:participant;0.0.0.0:3, the settings have server.2=x:1"),
            "{why}"
        );
    }
}
