//! The answer of `/commands/forest` for people.

use std::fmt::Write as _;

use serde_json::Value;

use crate::columns::aligned;

/// The shape in a line, a table of the servers, what was sent, and the last repairs.
pub(super) fn of(answer: &Value) -> String {
    let servers: Vec<&Value> = list(&answer["servers"]).collect();
    let mut text = head(answer, servers.len());
    if list(&answer["trees"]).next().is_none() {
        return text;
    }
    let header = ["server", "place", "fed by", "feeds", "late"].map(str::to_owned);
    let rows = servers.iter().map(|server| row(answer, server));
    let _ = write!(text, "\n{}", aligned(&[header].into_iter().chain(rows).collect::<Vec<_>>()));
    silent(&mut text, answer);
    let number = |field: &str| answer[field].as_u64().unwrap_or_default();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "\nframes      {} sent ({} bytes), {} received ({} bytes)\n\
         pulls       {} sent, {} answered\n\
         complaints  {} sent, {} received",
        number("frames_sent"),
        number("bytes_sent"),
        number("frames_received"),
        number("bytes_received"),
        number("pulls_sent"),
        number("pulls_answered"),
        number("complaints_sent"),
        number("complaints_received"),
    );
    snapshots(&mut text, answer);
    repairs(&mut text, answer);
    text
}

fn list(of: &Value) -> impl Iterator<Item = &Value> {
    of.as_array().into_iter().flatten()
}

fn head(answer: &Value, servers: usize) -> String {
    let trees = list(&answer["trees"]).count();
    if trees == 0 {
        return format!(
            "no trees: there are {servers} servers, and trees from {} on; the leader sends to each\n",
            answer["servers_min"]
        );
    }
    let trees = if trees == 1 { "1 tree".to_owned() } else { format!("{trees} trees") };
    format!(
        "{trees} with {} children each for {servers} servers; server {} leads, term {}, shape {}\n",
        answer["children"], answer["leader_id"], answer["term"], answer["shape"]
    )
}

/// Who passes on to a server, in each tree, and to whom it does.
fn row(answer: &Value, server: &Value) -> [String; 5] {
    let id = server["server_id"].as_u64().unwrap_or_default();
    let leader = answer["leader_id"].as_u64();
    let parent = |tree: &Value| {
        let children = tree["children"].as_object()?;
        let has = |its: &Value| list(its).any(|child| child.as_u64() == Some(id));
        let above = children.iter().find(|(_, its)| has(its)).map(|(parent, _)| parent.clone());
        let is_root = tree["root"].as_u64() == Some(id);
        above.or_else(|| leader.filter(|_| is_root).map(|leader| leader.to_string()))
    };
    let fed_by: Vec<String> = list(&answer["trees"]).filter_map(parent).collect();
    let feeds: Vec<String> = if leader == Some(id) {
        list(&answer["trees"]).map(|tree| tree["root"].to_string()).collect()
    } else {
        let its = list(&answer["trees"]).flat_map(|tree| list(&tree["children"][id.to_string()]));
        its.map(ToString::to_string).collect()
    };
    [id.to_string(), place(server), fed_by.join(" "), feeds.join(" "), late(server)]
}

fn place(server: &Value) -> String {
    let place: String =
        server["place"].as_str().unwrap_or_default().chars().filter(|c| !c.is_control()).collect();
    let tree = server["tree"].as_u64().filter(|_| place == "root" || place == "interior");
    let mut said = tree.map_or_else(|| place.clone(), |tree| format!("{place} of tree {tree}"));
    if server["understands"] == false {
        said += ", sent to directly: its release or its settings have no forest";
    } else if server["is_fed"] == false && place != "direct" {
        said += ", sent to directly";
    }
    said
}

fn late(server: &Value) -> String {
    match server["late_entries"].as_u64() {
        None => String::new(),
        Some(0) => "no".to_owned(),
        Some(entries) => {
            let bytes = server["late_bytes"].as_u64().unwrap_or_default();
            let ms = server["late_ms"].as_f64().unwrap_or_default();
            format!("{entries} entries, {bytes} bytes, {ms:.1} ms")
        }
    }
}

/// How long ago something came down each tree, which a server knows that follows.
fn silent(text: &mut String, answer: &Value) {
    let times = list(&answer["trees"]).filter_map(|tree| tree["silent_ms"].as_f64());
    let times: Vec<String> = times.map(|ms| format!("{ms:.0}")).collect();
    if !times.is_empty() {
        let _ = writeln!(text, "\nlast heard of the trees, ms ago: {}", times.join(" "));
    }
}

/// Which are on their way to members that were far behind.
fn snapshots(text: &mut String, answer: &Value) {
    for snapshot in list(&answer["snapshots"]) {
        let age = snapshot["age_ms"].as_f64().unwrap_or_default() / 1e3;
        let to = &snapshot["to_server_id"];
        let what = match (snapshot["by_server_id"].as_u64(), snapshot["position"].as_u64()) {
            (None, _) => "waits for a server that can give it a snapshot".to_owned(),
            (Some(by), None) => format!("is to be given a snapshot by server {by}"),
            (Some(by), Some(position)) if snapshot["is_there"] == true => {
                format!("takes over the snapshot of position {position} of server {by}")
            }
            (Some(by), Some(position)) => {
                format!("is given the snapshot of position {position} by server {by}")
            }
        };
        let _ = writeln!(text, "\nserver {to} {what}, since {age:.1} s");
    }
}

fn repairs(text: &mut String, answer: &Value) {
    let mut repairs = list(&answer["repairs"]).peekable();
    if repairs.peek().is_some() {
        let _ = writeln!(text, "\nrepairs");
    }
    for repair in repairs {
        let age = repair["age_ms"].as_f64().unwrap_or_default() / 1e3;
        let what = |of: &Value| {
            let how = if of["is_aside"] == true { "is aside" } else { "is not aside any more" };
            let why: String =
                of["why"].as_str().unwrap_or_default().chars().filter(|c| !c.is_control()).collect();
            format!("server {} {how}: {why}", of["server_id"])
        };
        let said: Vec<String> = list(&repair["servers"]).map(what).collect();
        let said = if said.is_empty() { "another list of servers".to_owned() } else { said.join("; ") };
        let _ =
            writeln!(text, "  {age:.1} s ago, shape {} of term {}: {said}", repair["shape"], repair["term"]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn who_feeds_whom_is_shown_as_a_table() {
        let server = |id: u64, place: &str, tree: Option<u64>, late: u64| {
            json!({
                "server_id": id, "place": place, "tree": tree, "is_fed": id != 4, "understands": id != 5,
                "late_entries": late, "late_bytes": 10 * late, "late_ms": 1.26
            })
        };
        let leader =
            json!({ "server_id": 1, "place": "leader", "tree": null, "is_fed": null, "understands": true });
        let answer = json!({
            "servers_min": 3, "children": 2, "leader_id": 1, "term": 7, "shape": 4,
            "trees": [
                { "tree": 0, "root": 2, "children": { "2": [3, 4, 5] }, "silent_ms": null },
                { "tree": 1, "root": 3, "children": { "3": [2, 4], "4": [5] }, "silent_ms": 12.4 }
            ],
            "servers": [
                leader, server(2, "root", Some(0), 0), server(3, "root", Some(1), 0),
                server(4, "interior", Some(1), 9), server(5, "aside", Some(0), 0)
            ],
            "frames_sent": 1, "bytes_sent": 20, "frames_received": 3, "bytes_received": 40, "pulls_sent": 5,
            "pulls_answered": 6, "complaints_sent": 7, "complaints_received": 8,
            "snapshots": [
                { "to_server_id": 4, "by_server_id": 3, "position": 70, "is_there": false, "age_ms": 1500.0 },
                { "to_server_id": 5, "by_server_id": 3, "position": 60, "is_there": true, "age_ms": 40.0 },
                { "to_server_id": 6, "by_server_id": null, "position": null, "is_there": false, "age_ms": 0.0 }
            ],
            "repairs": [
                { "term": 7, "shape": 3, "age_ms": 61_000.0, "servers": [
                    { "server_id": 5, "is_aside": true, "why": "it\u{7} went" },
                    { "server_id": 4, "is_aside": false, "why": "it is well" }
                ] },
                { "term": 7, "shape": 4, "age_ms": 120.0, "servers": [] }
            ]
        });
        let expected = "\
2 trees with 2 children each for 5 servers; server 1 leads, term 7, shape 4

server  place                                                                     fed by  feeds  late
1       leader                                                                            2 3
2       root of tree 0                                                            1 3     3 4 5  no
3       root of tree 1                                                            2 1     2 4    no
4       interior of tree 1, sent to directly                                      2 3     5      9 entries, 90 bytes, 1.3 ms
5       aside, sent to directly: its release or its settings have no forest  2 4            no

last heard of the trees, ms ago: 12

frames      1 sent (20 bytes), 3 received (40 bytes)
pulls       5 sent, 6 answered
complaints  7 sent, 8 received

server 4 is given the snapshot of position 70 by server 3, since 1.5 s

server 5 takes over the snapshot of position 60 of server 3, since 0.0 s

server 6 waits for a server that can give it a snapshot, since 0.0 s

repairs
  61.0 s ago, shape 3 of term 7: server 5 is aside: it went; server 4 is not aside any more: it is well
  0.1 s ago, shape 4 of term 7: another list of servers
";
        let squeezed = |text: &str| {
            let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            text.lines().map(line).collect::<Vec<_>>()
        };
        assert_eq!(squeezed(&of(&answer)), squeezed(expected));
        let none = json!({ "servers_min": 10, "trees": [], "servers": [{}, {}, {}] });
        assert_eq!(
            of(&none),
            "no trees: there are 3 servers, and trees from 10 on; the leader sends to each\n"
        );
    }
}
