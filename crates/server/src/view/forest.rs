//! The trees down which appends go, in words.

use stoa_core::{ForestPlace, ForestServer, ForestStatus, RepairCause};

/// Why there are no trees to tell of.
pub(crate) const NO_FOREST: &str = "there is no forest: forest-servers-min is 0";

/// Where a server stands, for people.
pub(crate) fn place(server: &ForestServer) -> String {
    let in_tree = |what: &str| match server.tree {
        Some(tree) => format!("{what} of tree {tree}"),
        None => what.to_owned(),
    };
    match server.place {
        ForestPlace::Leader => "leader of the forest".to_owned(),
        ForestPlace::Root => in_tree("root"),
        ForestPlace::Interior => in_tree("interior"),
        ForestPlace::Leaf => "leaf".to_owned(),
        ForestPlace::Aside => "aside".to_owned(),
        ForestPlace::Direct => "sent to directly".to_owned(),
    }
}

/// The same in one word, as admin HTTP has it.
pub(crate) fn place_name(place: ForestPlace) -> &'static str {
    match place {
        ForestPlace::Leader => "leader",
        ForestPlace::Root => "root",
        ForestPlace::Interior => "interior",
        ForestPlace::Leaf => "leaf",
        ForestPlace::Aside => "aside",
        ForestPlace::Direct => "direct",
    }
}

/// Why a server has another place.
pub(crate) fn cause(cause: &RepairCause) -> String {
    match cause {
        RepairCause::Lost => "its connection with the leader has ended".to_owned(),
        RepairCause::Silent { tree, by } => {
            let by: Vec<String> = by.iter().map(ToString::to_string).collect();
            format!("nothing came down tree {tree} from it, as {} said", by.join(", "))
        }
        RepairCause::Joined => "it has just come into the list of servers".to_owned(),
        RepairCause::Back => "its time aside is over".to_owned(),
        RepairCause::Left => "it is in the list of servers no more".to_owned(),
    }
}

/// Where a server stands, if there are trees.
pub(crate) fn own_place(forest: &ForestStatus, id: u64) -> Option<String> {
    forest.shape?;
    forest.servers.iter().find(|server| u64::from(server.id) == id).map(place)
}

/// That of a leader of fourteen others, one of which is late, one aside, and one of an older release.
#[cfg(test)]
pub(crate) fn example() -> ForestStatus {
    use stoa_core::{ForestConfig, ForestCounts, ForestShape, ForestTree, Lateness, Repair};

    let server = |id, place, tree| ForestServer {
        id,
        place,
        tree,
        is_fed: (id != 1).then_some(id < 4),
        understands: id != 5,
        late: (id != 1).then(|| match id {
            3 => Lateness { entries: 2, bytes: 900, age_us: 1_500 },
            _ => Lateness::default(),
        }),
    };
    ForestStatus {
        servers_min: 10,
        settings: ForestConfig::default().settings,
        shape: Some(ForestShape { term: 7, number: 3, leader: 1 }),
        trees: vec![ForestTree { root: 2, children: vec![(2, vec![3, 4])], silent_us: None }],
        servers: vec![
            server(1, ForestPlace::Leader, None),
            server(2, ForestPlace::Root, Some(0)),
            server(3, ForestPlace::Leaf, Some(0)),
            server(4, ForestPlace::Aside, Some(0)),
            server(5, ForestPlace::Direct, None),
        ],
        counts: ForestCounts { frames_sent: 90, bytes_sent: 8_000, pulls_answered: 3, ..<_>::default() },
        repairs: vec![
            Repair { term: 7, number: 2, age_us: 61_000_000, servers: vec![(4, RepairCause::Lost)] },
            Repair {
                term: 7,
                number: 3,
                age_us: 1_000_000,
                servers: vec![(4, RepairCause::Silent { tree: 2, by: vec![3, 9] })],
            },
        ],
    }
}
