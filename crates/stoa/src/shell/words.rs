//! The words of the shell: one table, from which running, help and completion come.

use super::answer::Answer;
use super::arguments::{Arguments, Syntax};
use super::session::Shell;
use super::{quota, reconfig, session, status, tree, watches};
use crate::failure::{Failure, Result};

/// A word.
pub(super) struct Word {
    pub(super) name: &'static str,
    pub(super) syntax: Syntax,
    help: &'static str,
    pub(super) run: fn(&mut Shell, &Arguments) -> Result<Answer>,
}

impl Word {
    /// One line about it.
    pub(super) fn describe(&self) -> String {
        let call = format!("{} {}", self.name, self.syntax.usage);
        format!("  {:<52} {}\n", call.trim_end(), self.help)
    }
}

macro_rules! words {
    ($($name:literal [$usage:literal] $switches:literal $options:literal $fewest:literal..=$most:literal
        $run:path, $help:literal;)*) => {
        /// Every word, in the order of `help`.
        pub(super) const WORDS: &[Word] = &[$(Word {
            name: $name,
            syntax: Syntax {
                usage: $usage,
                switches: $switches,
                options: $options,
                arguments: ($fewest, $most),
            },
            help: $help,
            run: $run,
        },)*];
    };
}

words! {
    "ls" ["[-s] [-w] [-R] path"] "swR" "" 1..=1 tree::ls,
        "list children; -s with the Stat, -w watch, -R everything below";
    "get" ["[-s] [-w] [-b] [-x] path"] "swbx" "" 1..=1 tree::get,
        "show data; -s with the Stat, -w watch, -b base64, -x hex dump";
    "set" ["[-s] [-v version] [-b] path data"] "sb" "v" 2..=2 tree::set,
        "set data; -v only if this is the version, -b data is base64";
    "create" ["[-s] [-e] [-c] [-t ttl_ms] path [data] [acl]"] "sec" "t" 1..=3 tree::create,
        "create; -s sequential, -e ephemeral, -c container, -t with a time to live";
    "delete" ["[-v version] path"] "" "v" 1..=1 tree::delete,
        "delete; -v only if this is the version";
    "deleteall" ["path [-b batch]"] "" "b" 1..=1 tree::delete_all,
        "delete with everything below; -b so many requests at a time";
    "stat" ["[-w] path"] "w" "" 1..=1 tree::stat,
        "show the Stat; -w watch";
    "sync" ["path"] "" "" 1..=1 tree::sync,
        "wait until the server has applied everything ordered before";
    "getEphemerals" ["[path]"] "" "" 0..=1 tree::get_ephemerals,
        "list this session's ephemerals, below a path";
    "getAllChildrenNumber" ["path"] "" "" 1..=1 tree::get_all_children_number,
        "count what is below";
    "getAcl" ["[-s] path"] "s" "" 1..=1 tree::get_acl,
        "show the ACL; -s with the Stat";
    "setAcl" ["[-s] [-v version] [-R] path acl"] "sR" "v" 2..=2 tree::set_acl,
        "set the ACL, scheme:id:perms with commas; -R also below";
    "addauth" ["scheme auth"] "" "" 1..=2 tree::add_auth,
        "add an identity, as in: addauth digest user:password";
    "whoami" [""] "" "" 0..=0 tree::who_am_i,
        "list the identities of this session";
    "setquota" ["-n|-b|-N|-B value path"] "" "nbNB" 1..=1 quota::set,
        "limit a subtree; -n znodes, -b bytes (warned about), -N, -B (enforced)";
    "listquota" ["path"] "" "" 1..=1 quota::list,
        "show limits and use of a subtree";
    "delquota" ["[-n|-b|-N|-B] path"] "nbNB" "" 1..=1 quota::delete,
        "lift limits, or all of them";
    "addWatch" ["[-m PERSISTENT|PERSISTENT_RECURSIVE] path"] "" "m" 1..=1 watches::add,
        "watch for good; recursive unless -m says otherwise";
    "removewatches" ["path [-c|-d|-p|-r|-a]"] "cdpra" "" 1..=1 watches::remove,
        "remove watches: -c children, -d data, -p persistent, -r recursive, -a all";
    "printwatches" ["[on|off]"] "" "" 0..=1 session::print_watches,
        "print watch events, or not";
    "config" ["[-c] [-w] [-s]"] "cws" "" 0..=0 reconfig::config,
        "show the members of the ensemble; -c their client addresses";
    "reconfig" ["[-s] [-w] [-v version] -file path | -members list | [-add list] [-remove ids]"] "sw" "vfmar" 0..=0
        reconfig::reconfig,
        "change who belongs to the ensemble; -w wait until it is so";
    "status" [""] "" "" 0..=0 status::status,
        "show what each server is: leader, follower, observer or standalone";
    "connect" ["[host:port]"] "" "" 0..=1 session::connect,
        "open a new session";
    "close" [""] "" "" 0..=0 session::close,
        "close the session";
    "history" [""] "" "" 0..=0 session::history,
        "show the last lines";
    "redo" ["number"] "" "" 1..=1 session::redo,
        "do a line of the history again";
    "version" [""] "" "" 0..=0 session::version,
        "show the version";
    "help" ["[word]"] "" "" 0..=1 session::help,
        "show this";
    "quit" [""] "" "" 0..=0 session::quit,
        "leave";
}

/// The word with this name.
pub(super) fn find(name: &str) -> Result<&'static Word> {
    WORDS.iter().find(|word| word.name == name).ok_or_else(|| {
        let hint = nearest(name).map(|word| format!("; did you mean `{word}`?")).unwrap_or_default();
        Failure::usage(format!("unknown word {name}{hint} (`help` lists all words)"))
    })
}

/// All words, a line each.
pub(crate) fn overview() -> String {
    WORDS.iter().map(Word::describe).collect()
}

/// The word that was probably meant.
fn nearest(name: &str) -> Option<&'static str> {
    match name {
        "rmr" => return Some("deleteall"),
        "ls2" => return Some("ls -s"),
        "exit" => return Some("quit"),
        _ => {}
    }
    let lower = name.to_ascii_lowercase();
    WORDS
        .iter()
        .map(|word| (distance(&lower, &word.name.to_ascii_lowercase()), word.name))
        .min()
        .filter(|(distance, word)| *distance <= 1 + word.len() / 4)
        .map(|(_, word)| word)
}

/// Edits that turn one word into the other, two swapped neighbours being one edit.
fn distance(from: &str, to: &str) -> usize {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let mut rows = vec![(0..=to.len()).collect::<Vec<_>>()];
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_gets_a_hint() {
        for (slip, word) in [
            ("gte", "get"),
            ("lss", "ls"),
            ("getacl", "getAcl"),
            ("delteall", "deleteall"),
            ("rmr", "deleteall"),
            ("whoamI", "whoami"),
        ] {
            assert_eq!(nearest(slip), Some(word), "{slip}");
        }
        assert_eq!(nearest("frobnicate"), None);
    }

    #[test]
    fn usage_names_every_flag_and_no_other() {
        for word in WORDS {
            let Syntax { usage, switches, options, .. } = word.syntax;
            let named: Vec<char> = usage
                .split('-')
                .skip(1)
                .filter_map(|tail| tail.chars().next())
                .filter(char::is_ascii_alphabetic)
                .collect();
            for letter in switches.chars().chain(options.chars()) {
                assert!(named.contains(&letter), "{}: -{letter} is not in its usage", word.name);
            }
            assert_eq!(named.len(), switches.len() + options.len(), "{}", word.name);
        }
    }
}
