//! The answer of `/commands/partitions` for people.

use std::fmt::Write as _;

use serde_json::Value;

use crate::columns::aligned;

/// So many of the hottest subtrees are shown.
const HOTTEST_MAX: usize = 4;
/// And those only that take so much of the thread.
const HOT: f64 = 0.005;

/// The table, and below it what is not as names and load alone would have it.
pub(super) fn of(answer: &Value) -> String {
    let header =
        ["partition", "role", "znodes", "bytes", "reads/s", "writes/s", "busy", "hottest"].map(str::to_owned);
    let rows = list(&answer["partitions"]).map(row);
    let mut text = aligned(&[header].into_iter().chain(rows).collect::<Vec<_>>());
    let balance = if answer["balance"] == true { "on" } else { "off" };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\nbalance is {balance}, imbalance {}", imbalance(&answer["imbalance"]));
    let exceptions = list(&answer["exceptions"]);
    section(&mut text, &format!("exceptions, version {}", answer["version"]), exceptions, |of| {
        format!("{} on {}", shown(&of["path"]), of["partition"])
    });
    section(&mut text, "hints", list(&answer["hints"]), shown);
    section(&mut text, "moves", list(&answer["moves"]), |of| {
        let refused = of["refused"].as_str().map(|why| format!(" refused: {why}")).unwrap_or_default();
        format!("{} to {}{refused}", shown(&of["path"]), of["to"])
    });
    text
}

fn list(of: &Value) -> impl Iterator<Item = &Value> {
    of.as_array().into_iter().flatten()
}

fn imbalance(of: &Value) -> String {
    match of.as_f64() {
        Some(times) if times > 0.0 => format!("{times:.2}"),
        _ => "unknown: nothing is asked, or another server leads".to_owned(),
    }
}

/// A text as it can be printed.
fn shown(of: &Value) -> String {
    let plain = |c: char| if c.is_control() { '?' } else { c };
    of.as_str().unwrap_or_default().chars().map(plain).collect()
}

fn percent(of: &Value) -> String {
    format!("{:.1}%", of.as_f64().unwrap_or(0.0) * 100.0)
}

fn row(of: &Value) -> [String; 8] {
    let hot = list(&of["subtrees"]).filter(|subtree| subtree["busy"].as_f64() >= Some(HOT));
    let hottest: Vec<_> = hot
        .take(HOTTEST_MAX)
        .map(|subtree| format!("{} {}", shown(&subtree["path"]), percent(&subtree["busy"])))
        .collect();
    let number = |field: &str| of[field].as_u64().map_or_else(|| "-".to_owned(), |number| number.to_string());
    [
        number("partition"),
        shown(&of["role"]),
        number("znodes"),
        number("data_bytes"),
        number("reads_per_second"),
        number("writes_per_second"),
        percent(&of["busy"]),
        hottest.join(", "),
    ]
}

fn section<'a>(
    text: &mut String,
    title: &str,
    items: impl Iterator<Item = &'a Value>,
    line: impl Fn(&'a Value) -> String,
) {
    let mut items = items.peekable();
    if items.peek().is_some() {
        let _ = writeln!(text, "\n{title}");
        for item in items {
            let _ = writeln!(text, "  {}", line(item));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn partitions_are_shown_as_a_table() {
        let answer = json!({
            "partitions": [
                {
                    "partition": 0, "role": "leader", "znodes": 12, "data_bytes": 3456,
                    "reads_per_second": 100_000, "writes_per_second": 5, "busy": 0.2518,
                    "subtrees": [{ "path": "/a", "busy": 0.2 }, { "path": "/b\u{1b}", "busy": 0.05 },
                        { "path": "/c", "busy": 0.001 }]
                },
                { "partition": 1, "role": "leader", "znodes": 3, "data_bytes": 7, "subtrees": [] }
            ],
            "balance": true, "imbalance": 1.238, "version": 4,
            "exceptions": [{ "path": "/a/b", "partition": 1 }],
            "hints": ["pin /a/b 1"],
            "moves": [{ "path": "/a/b", "to": 1, "refused": null }, { "path": "/x", "to": 0, "refused": "NoNode" }]
        });
        let expected = "\
partition  role    znodes  bytes  reads/s  writes/s  busy   hottest
0          leader  12      3456   100000   5         25.2%  /a 20.0%, /b? 5.0%
1          leader  3       7      -        -         0.0%

balance is on, imbalance 1.24

exceptions, version 4
  /a/b on 1

hints
  pin /a/b 1

moves
  /a/b to 1
  /x to 0 refused: NoNode
";
        assert_eq!(of(&answer), expected);
        let other = of(&json!({ "partitions": [], "balance": false }));
        assert!(
            other.ends_with(
                "\nbalance is off, imbalance unknown: nothing is asked, or another server leads\n"
            )
        );
    }
}
