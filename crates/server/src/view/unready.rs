//! Why clients are not served, or had better be sent to another server: one reason, for the log, for the word
//! `srvr` and for `/ready`.

use std::fmt::Write as _;

use super::{EnsembleStatus, LAG_ENTRIES_MAX, MemberStatus, Mode, Stats};
use crate::process::Phase;

/// Of so many servers that are not reached it is told why.
const UNREACHED_TOLD_MAX: usize = 5;

/// Why a server in this phase is not ready for clients, if it is not. `stats` are what its partitions have
/// answered, if they have.
pub(crate) fn why_unready(phase: Phase, stats: Option<&Stats>) -> Option<String> {
    match (phase, stats) {
        (Phase::Recovering, _) => Some("the state is being read from the data folder".into()),
        (Phase::Stopping, _) => Some("the server is stopping".into()),
        (Phase::Looking | Phase::Serving, None) => Some("the partition does not answer".into()),
        (Phase::Serving, Some(stats)) => stats.unready(),
        (Phase::Looking, Some(stats)) => {
            let why = stats.unready();
            Some(why.unwrap_or_else(|| {
                match (stats.mode, stats.ensemble.out_of_room) {
                    (Mode::Standalone, true) => {
                        "the disk is full: the data folder has no room for what must be \
                                             written before anybody is served"
                            .into()
                    }
                    (Mode::Standalone, false) => {
                        "the disk has not stored yet what must be written before anybody is served".into()
                    }
                    _ => "it begins to serve just now".into(),
                }
            }))
        }
    }
}

impl Stats {
    /// Why clients had better be sent to another server, if that is so.
    pub fn unready(&self) -> Option<String> {
        let EnsembleStatus { leader, behind, out_of_room, takes_over, .. } = self.ensemble;
        match (self.mode, leader) {
            (Mode::Looking, _) if out_of_room => Some(
                "the disk is full, so clients are sent to the other servers; make room in the data folder"
                    .into(),
            ),
            (Mode::Looking, _) if takes_over => Some(
                "this server was too far behind and takes over the state of another one, a snapshot, first"
                    .into(),
            ),
            (Mode::Looking, _) if self.readers.parent.is_some() => self.readers.why_unready(),
            (Mode::Looking, None) => Some(self.ensemble.why_leaderless()),
            (Mode::ReadOnly, _) => {
                let why = self.readers.why_unready().unwrap_or_else(|| self.ensemble.why_leaderless());
                Some(format!("only reads are answered, as {why}"))
            }
            (Mode::Looking, Some(leader)) => {
                Some(format!("server {leader} leads, but what was committed before is not all applied here"))
            }
            _ if behind > LAG_ENTRIES_MAX => Some(format!(
                "{behind} committed entries are not applied here yet; up to {LAG_ENTRIES_MAX} would be ready"
            )),
            _ => self.readers.why_waits(),
        }
    }
}

impl EnsembleStatus {
    /// Why there is none for a server with the folder of another one.
    fn why_of_another(&self, other: &[&MemberStatus], names_servers: bool) -> String {
        let (other, own) = (numbers(other), self.id);
        if names_servers {
            return format!(
                "no leader is known: the data folder is a copy of that of server {other}, which stood alone, and what it has \
                 is compared with that one's first. If there is no such server any more, run `stoa recover` on one of the copies, \
                 and start the others with empty folders{}",
                self.unreached(|_| true)
            );
        }
        format!(
            "no leader is known: the data folder is that of server {other}, which stood alone, and this is server {own}: set \
             server-id to that (or write it into the file myid), or run `stoa recover` to make the folder this server's"
        )
    }

    /// Why no leader is known: what is missing, and whom this server does not reach.
    fn why_leaderless(&self) -> String {
        let voters: Vec<_> = self.members.iter().filter(|member| member.votes).collect();
        let is_named = |member: &MemberStatus| member.address.is_some();
        let belongs = self.members.iter().any(|member| member.id == self.id && member.belongs);
        let is_alone = voters.len() == 1 && self.members.iter().filter(|member| member.belongs).count() == 1;
        if !belongs && is_alone {
            return self.why_of_another(&voters, self.members.iter().any(is_named));
        }
        if voters.iter().any(|member| member.id != self.id) && !self.members.iter().any(is_named) {
            return format!(
                "no leader is known: the data folder is that of one of the servers {}, and the settings name no \
                 servers to look for: give it `servers` and `server-id` as they are on the others",
                numbers(&voters),
            );
        }
        if self.history.is_none() {
            return self.why_new();
        }
        if voters.is_empty() {
            let (others, history) = (self.unreached(|_| true), self.history.as_deref().unwrap_or_default());
            return format!(
                "no leader is known: this server waits to be taken in by the ensemble {history}, which takes a majority of \
                 its servers, and this one in its list: reconfig adds it{others}"
            );
        }
        if !belongs {
            let others = self.unreached(|member| member.votes);
            return format!(
                "no leader is known: this server does not belong to the servers {}; reconfig adds it{others}",
                numbers(&voters)
            );
        }
        let changed: Vec<_> = voters.iter().copied().filter(|member| member.has_other_disk).collect();
        if changed.len() > (voters.len() - 1) / 2 {
            return format!(
                "no leader is known: the servers {} have come back with other data folders than they had, or with older \
                 copies of them, and the others are no majority without what was in those. Put the folders back; or, if they are lost for \
                 good, stop all servers, run `stoa recover` on the folder of this one, and start the others with empty ones",
                numbers(&changed),
            );
        }
        // What another one says does not count: it has to join anew, which takes a leader.
        let counts = |member: &MemberStatus| is_connected(member) && !member.has_other_disk;
        let is_reached = |member: &&&MemberStatus| member.id == self.id || counts(member);
        let (reached, needed) = (voters.iter().filter(is_reached).count(), voters.len() / 2 + 1);
        let mut others = self.unreached(|member| member.votes && !member.has_other_disk);
        if !changed.is_empty() {
            let _ = write!(
                others,
                "; server {} has come back with another data folder than it had, or with an older copy of it, and counts \
                 again when a leader has let it join anew",
                numbers(&changed)
            );
        }
        let counts = format!("{reached} of {} servers that vote", voters.len());
        let own = if self.votes() { ", itself included" } else { "" };
        if reached < needed {
            format!(
                "no leader is known: this server reaches {counts}{own}, and it takes {needed} to elect one{others}"
            )
        } else {
            format!(
                "no leader is known, and an election is under way: this server reaches {counts}{own}{others}"
            )
        }
    }

    /// Why a server whose data folder holds nothing has not begun.
    fn why_new(&self) -> String {
        if self.missing.is_empty() {
            let others = self.unreached(|_| true);
            return format!(
                "the data folder is empty, and this server waits to hear of an ensemble that it is to join{others}"
            );
        }
        let missing: Vec<_> =
            self.members.iter().filter(|member| self.missing.contains(&member.id)).collect();
        let others = self.unreached(|member| self.missing.contains(&member.id));
        format!(
            "the data folder is empty, and a new ensemble begins when all servers that are to vote in it have heard of \
             each other, as one of them may have the data of an ensemble that there was. Start the servers {} (without \
             `join`), or take them out of `servers` on all{others}",
            numbers(&missing)
        )
    }

    /// Those of these that are not connected, and why they are not.
    fn unreached(&self, concerns: impl Fn(&MemberStatus) -> bool) -> String {
        let is_one =
            |member: &&MemberStatus| member.id != self.id && concerns(member) && !is_connected(member);
        let unreached: Vec<_> = self.members.iter().filter(is_one).collect();
        let mut text = String::new();
        for MemberStatus { id, address, link, .. } in unreached.iter().take(UNREACHED_TOLD_MAX) {
            let _ = write!(text, "; server {id}");
            if let Some((host, port)) = address {
                let _ = write!(text, " ({host} port {port})");
            }
            let why = link.as_ref().and_then(|link| link.last_error.as_deref());
            let _ = write!(text, ": {}", why.unwrap_or("not connected yet"));
        }
        if unreached.len() > UNREACHED_TOLD_MAX {
            let _ = write!(text, "; and {} more", unreached.len() - UNREACHED_TOLD_MAX);
        }
        text
    }
}

fn is_connected(member: &MemberStatus) -> bool {
    member.link.as_ref().is_some_and(|link| link.connected_ms.is_some())
}

fn numbers(members: &[&MemberStatus]) -> String {
    members.iter().map(|member| member.id.to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::LinkStatus;
    use super::super::tests::{follower, leader, looking, read_only, stats};
    use super::*;

    fn starts(why: Option<String>, expected: &str) {
        assert!(why.as_ref().is_some_and(|why| why.starts_with(expected)), "{why:?} instead of {expected}");
    }

    #[test]
    fn a_server_is_ready_when_it_follows_and_has_applied_nearly_all() {
        assert_eq!((stats().unready(), leader().unready(), follower().unready()), (None, None, None));
        starts(read_only().unready(), "only reads are answered, as no leader is known");
        let mut found = looking();
        found.ensemble.leader = Some(3);
        starts(found.unready(), "server 3 leads, but");
        found.ensemble.takes_over = true;
        starts(found.unready(), "this server was too far behind and takes over the state");
        found.ensemble.out_of_room = true;
        starts(found.unready(), "the disk is full");
        let mut behind = follower();
        behind.ensemble.behind = LAG_ENTRIES_MAX;
        assert_eq!(behind.unready(), None);
        behind.ensemble.behind += 1;
        starts(behind.unready(), "1001 committed entries");
    }

    #[test]
    fn without_a_leader_it_says_what_is_missing() {
        // Of three voters and an observer, this is the second; the first is connected, the third is not.
        let why = looking().unready().unwrap();
        assert_eq!(
            why,
            "no leader is known, and an election is under way: this server reaches 3 of 3 servers that vote, itself \
             included"
        );
        let mut alone = looking();
        for (member, why) in alone.ensemble.members.iter_mut().zip([Some("nobody listens"), None, None, None])
        {
            let last_error = why.map(str::to_owned);
            member.link = member.link.take().map(|_| LinkStatus { last_error, ..LinkStatus::default() });
        }
        assert_eq!(
            alone.unready().unwrap(),
            "no leader is known: this server reaches 1 of 3 servers that vote, itself included, and it takes 2 to \
             elect one; server 1 (zoo1.example port 2888): nobody listens; server 3 (zoo3.example port 2888): not \
             connected yet"
        );
        let mut observer = alone.clone();
        observer.ensemble.id = 4;
        starts(
            observer.unready(),
            "no leader is known: this server reaches 0 of 3 servers that vote, and it takes 2",
        );
        let mut many = alone.clone();
        let third = many.ensemble.members[2].clone();
        many.ensemble.members.extend((5..=9).map(|id| MemberStatus { id, ..third.clone() }));
        let why = many.unready().unwrap();
        assert!(
            why.contains("reaches 1 of 8") && why.contains("takes 5") && why.ends_with("; and 2 more"),
            "{why}"
        );
    }

    #[test]
    fn who_does_not_belong_to_the_ensemble_says_so() {
        let mut out = looking();
        let own = &mut out.ensemble.members[1];
        (own.belongs, own.votes) = (false, false);
        starts(
            out.unready(),
            "no leader is known: this server does not belong to the servers 1, 3; reconfig adds it",
        );
        let mut joining = looking();
        for member in &mut joining.ensemble.members {
            (member.belongs, member.votes) = (false, false);
        }
        let mut new = joining.clone();
        new.ensemble.history = None;
        starts(new.unready(), "the data folder is empty, and this server waits to hear of an ensemble");
        new.ensemble.missing = vec![4];
        let why = new.unready().unwrap();
        let expected = "Start the servers 4 (without `join`), or take them out of `servers` on all; server 4 (zoo4.example port 2888): \
                        refused";
        assert!(why.starts_with("the data folder is empty, and a new") && why.ends_with(expected), "{why}");
        starts(
            joining.unready(),
            "no leader is known: this server waits to be taken in by the ensemble 0123",
        );
        let mut renumbered = looking();
        for member in &mut renumbered.ensemble.members {
            (member.belongs, member.votes) = (member.id == 1, member.id == 1);
        }
        starts(
            renumbered.unready(),
            "no leader is known: the data folder is a copy of that of server 1, which stood alone, and what it has is",
        );
        for member in &mut renumbered.ensemble.members {
            (member.address, member.link) = (None, None);
        }
        starts(
            renumbered.unready(),
            "no leader is known: the data folder is that of server 1, which stood alone, and this is server 2: set",
        );
        let mut no_list = looking();
        for member in &mut no_list.ensemble.members {
            (member.address, member.link) = (None, None);
        }
        starts(
            no_list.unready(),
            "no leader is known: the data folder is that of one of the servers 1, 2, 3, and the settings name no",
        );
    }

    #[test]
    fn who_is_left_of_a_majority_says_what_can_be_done() {
        let mut left = looking();
        left.ensemble.members[0].has_other_disk = true;
        let why = left.unready().unwrap();
        let expected = "an election is under way: this server reaches 2 of 3 servers that vote, itself included; \
                        server 1 has come back with another data folder than it had, or with an older copy";
        assert!(why.contains(expected), "{why}");
        left.ensemble.members[2].has_other_disk = true;
        let why = left.unready().unwrap();
        assert!(why.contains("the servers 1, 3 have come back") && why.contains("`stoa recover`"), "{why}");
    }

    #[test]
    fn the_phase_comes_first() {
        starts(why_unready(Phase::Recovering, None), "the state is being read");
        starts(why_unready(Phase::Stopping, Some(&leader())), "the server is stopping");
        starts(why_unready(Phase::Serving, None), "the partition does not answer");
        assert_eq!(why_unready(Phase::Serving, Some(&leader())), None);
        starts(why_unready(Phase::Looking, Some(&looking())), "no leader is known");
        starts(why_unready(Phase::Looking, Some(&stats())), "the disk has not stored yet");
        let mut full = stats();
        full.ensemble.out_of_room = true;
        starts(why_unready(Phase::Looking, Some(&full)), "the disk is full: the data folder");
        starts(why_unready(Phase::Looking, Some(&leader())), "it begins to serve");
    }
}
