//! The readers below a server, and the parent of one that is a reader itself.

use std::net::SocketAddr;

/// Who is below this server, and whom it is below.
#[derive(Clone, Debug, Default)]
pub struct ReadersView {
    /// How many there may be.
    pub max: u64,
    /// Those that are connected.
    pub readers: Vec<ReaderView>,
    /// All below this server, those below others too. Those that are connected to it come first.
    pub all: Vec<ReaderPlace>,
    /// How many more there are.
    pub left_out: u64,
    /// How many of them have not got everything that was committed a moment ago.
    pub lagging: u64,
    /// How many are of a release that cannot read all that this one could write.
    pub older: u64,
    /// Those that were not let in, since the start.
    pub refused: u64,
    /// If this server is a reader: its parent.
    pub parent: Option<ParentView>,
    /// If it is a reader that is a member once the list of servers has it.
    pub newcomer: Option<NewcomerView>,
}

/// A reader that waits to be added to the list of servers, or may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewcomerView {
    /// What reconfig is to add, as far as this server knows it.
    pub line: String,
    /// Whether it is there for that alone (setting `join`): then it is not ready before.
    pub waits: bool,
}

/// A reader somewhere below a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderPlace {
    /// Its parent, by its place in the list, where that stands before; `None` where it is connected to the server.
    pub parent: Option<usize>,
    /// Where its clients find it, as its parent sees it; the port is 0 where it has not said that.
    pub address: SocketAddr,
    /// Name and version of its program.
    pub software: String,
    /// Since when it is connected to its parent, milliseconds since the epoch.
    pub connected_ms: i64,
}

/// A reader that is connected.
#[derive(Clone, Debug)]
pub struct ReaderView {
    /// Where it has connected from.
    pub address: SocketAddr,
    /// Name and version of its program.
    pub software: String,
    /// Since when, milliseconds since the epoch.
    pub connected_ms: i64,
    /// Bytes received of it.
    pub bytes_received: u64,
    /// Bytes sent to it.
    pub bytes_sent: u64,
    /// Bytes that wait to be sent.
    pub queued_bytes: u64,
}

/// The parent of a reader.
#[derive(Clone, Debug, Default)]
pub struct ParentView {
    /// Its host and port for other servers; while there is none, those that were tried last.
    pub address: String,
    /// Since when it is connected, milliseconds since the epoch; `None` while there is none.
    pub connected_ms: Option<i64>,
    /// What it is: a server of the ensemble with its number, or another reader.
    pub name: String,
    /// Name and version of its program.
    pub software: String,
    /// The member that asks the ensemble in this reader's place, while there is one.
    pub member: Option<u64>,
    /// How many servers are between this reader and the ensemble, the parent counted: 1 below a member.
    pub distance: u64,
    /// Entries of the log that are committed as far as the parent knew, and are not applied here.
    pub behind: u64,
    /// How many entries there are, as far as it knew: some may be part of a snapshot.
    pub entries: u64,
    /// The last thing that went wrong, also if it has been well since.
    pub last_error: Option<String>,
    /// How often there was one.
    pub parents_found: u64,
}

impl ReadersView {
    /// In words, for a line of `srvr`: below whom, or how many are below; nothing where neither is.
    pub(crate) fn words(&self) -> String {
        let above = self.parent.as_ref().map(|parent| match (parent.connected_ms, parent.member) {
            (Some(_), Some(member)) => {
                format!(
                    "Reader: below {} ({}), by way of server {member}, {} behind\n",
                    parent.address, parent.name, parent.behind
                )
            }
            (Some(_), None) => {
                format!("Reader: below {} ({}), which has no way to a leader\n", parent.address, parent.name)
            }
            (None, _) => "Reader: below nobody\n".to_owned(),
        });
        let below = (!self.readers.is_empty())
            .then(|| format!("Readers: {}, {} of them behind\n", self.readers.len(), self.lagging));
        let joins = self.newcomer.as_ref().map(|newcomer| {
            format!("Joins: when it is in the list of servers: reconfig -add {}\n", newcomer.line)
        });
        [above, joins, below].into_iter().flatten().collect()
    }

    /// Why a reader that has everything is not ready, if it is there to join.
    pub(crate) fn why_waits(&self) -> Option<String> {
        let newcomer = self.newcomer.as_ref().filter(|newcomer| newcomer.waits)?;
        Some(format!(
            "this server has what the ensemble has, and waits to be added to the list of servers: reconfig -add {}",
            newcomer.line
        ))
    }

    /// Why a reader serves nobody.
    pub(crate) fn why_unready(&self) -> Option<String> {
        let parent = self.parent.as_ref()?;
        let error = parent.last_error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
        Some(match (parent.connected_ms, parent.member) {
            (None, _) => format!("this reader has no parent{error}"),
            (Some(_), None) => {
                format!("the parent of this reader, {}, has no way to a leader", parent.address)
            }
            (Some(_), Some(_)) => format!(
                "this reader has not got everything yet from its parent {}, {} entries of {} are missing",
                parent.address, parent.behind, parent.entries
            ),
        })
    }
}

/// One with a parent that is a reader, and a reader below it that lags.
#[cfg(test)]
pub(crate) fn example() -> ReadersView {
    let reader = ReaderView {
        address: ([10, 0, 0, 7], 5000).into(),
        software: "stoa 1".to_owned(),
        connected_ms: 1_700_000_000_000,
        bytes_received: 10,
        bytes_sent: 2000,
        queued_bytes: 30,
    };
    let parent = ParentView {
        address: "zoo1 port 2888".to_owned(),
        connected_ms: Some(1_700_000_000_001),
        name: "a reader".to_owned(),
        software: "stoa 2".to_owned(),
        member: Some(2),
        distance: 2,
        behind: 4,
        entries: 9,
        last_error: None,
        parents_found: 5,
    };
    let place = |parent, last| ReaderPlace {
        parent,
        address: ([10, 0, 0, last], 2181).into(),
        software: "stoa 1".to_owned(),
        connected_ms: 1_700_000_000_002,
    };
    ReadersView {
        max: 6,
        readers: vec![reader],
        all: vec![place(None, 7), place(Some(0), 8), place(Some(1), 9)],
        left_out: 2,
        lagging: 1,
        older: 1,
        refused: 3,
        parent: Some(parent),
        newcomer: None,
    }
}

/// That of such a reader.
#[cfg(test)]
pub(crate) fn below() -> super::Stats {
    super::Stats { readers: example(), ..super::tests::follower() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_below_whom_a_reader_is_and_how_many_are_below() {
        let mut view = example();
        assert_eq!(
            view.words(),
            "Reader: below zoo1 port 2888 (a reader), by way of server 2, 4 behind\nReaders: 1, 1 of them behind\n"
        );
        assert!(view.why_unready().unwrap().ends_with("zoo1 port 2888, 4 entries of 9 are missing"));
        assert_eq!(view.why_waits(), None);
        let line = "server.4=d:2888:3888:participant;2181".to_owned();
        view.newcomer = Some(NewcomerView { line, waits: false });
        assert!(
            view.words()
                .contains("\nJoins: when it is in the list of servers: reconfig -add server.4=d:2888:")
        );
        assert_eq!(view.why_waits(), None, "it is a reader like any other meanwhile");
        view.newcomer.iter_mut().for_each(|newcomer| newcomer.waits = true);
        assert!(view.why_waits().unwrap().ends_with(
            "waits to be added to the list of servers: reconfig -add \
            server.4=d:2888:3888:participant;2181"
        ));
        view.newcomer = None;
        let parent = view.parent.as_mut().unwrap();
        parent.member = None;
        assert!(
            view.words()
                .starts_with("Reader: below zoo1 port 2888 (a reader), which has no way to a leader\n")
        );
        let parent = view.parent.as_mut().unwrap();
        (parent.connected_ms, parent.last_error) = (None, Some("zoo1 port 2888: refused".to_owned()));
        assert!(view.words().starts_with("Reader: below nobody\n"));
        assert_eq!(view.why_unready().unwrap(), "this reader has no parent: zoo1 port 2888: refused");
        assert_eq!(ReadersView::default().words(), "");
    }
}
