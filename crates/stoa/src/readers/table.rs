//! The answers of `/commands/readers` for people.

use std::fmt::Write as _;

use serde_json::Value;

use crate::failure::Result;

/// A tree below each server.
pub(super) fn of(answers: &[(&str, Result<Value>)]) -> String {
    let mut text = String::new();
    for (admin, answer) in answers {
        match answer {
            Ok(answer) => server(&mut text, admin, answer),
            // Writing to a string cannot fail.
            Err(failure) => _ = writeln!(text, "{admin}  does not answer: {failure}"),
        }
    }
    text
}

fn server(text: &mut String, admin: &str, answer: &Value) {
    let number = |field: &str| answer[field].as_u64().unwrap_or_default();
    // An older release tells of those right below it.
    let direct = answer["readers"].as_array().map_or(0, Vec::len) as u64;
    let all = answer["all_readers"].as_u64().unwrap_or(direct);
    let parent = answer["parent"]["address"].as_str();
    let parent = parent.map(|parent| format!(", itself below {parent}")).unwrap_or_default();
    let _ = writeln!(
        text,
        "{admin}  {all} readers, {direct} of them right below it ({} at most), {} behind{parent}",
        number("readers_max"),
        number("lagging_readers"),
    );
    below(text, &answer["tree"], 1);
    let left_out = number("left_out_readers");
    if left_out > 0 {
        let _ = writeln!(text, "  and {left_out} more");
    }
}

/// Readers, and those below each.
fn below(text: &mut String, readers: &Value, depth: usize) {
    for reader in readers.as_array().into_iter().flatten() {
        let word = |field: &str| reader[field].as_str().unwrap_or_default().to_owned();
        let (address, software) = (word("client_address"), word("software"));
        let count = reader["readers"].as_array().map_or(0, Vec::len);
        let own = if count > 0 { format!(", {count} below it") } else { String::new() };
        let _ = writeln!(text, "{}{address}  {software}{own}", "  ".repeat(depth));
        below(text, &reader["readers"], depth + 1);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::failure::Failure;

    #[test]
    fn each_server_has_a_tree_and_who_does_not_answer_is_told_of() {
        let leaf = |address: &str| json!({ "client_address": address, "software": "stoa 1", "readers": [] });
        let upper = json!({ "client_address": "10.0.0.7:2181", "software": "stoa 1", "readers": [leaf("10.0.0.8:2181")] });
        let answer = json!({
            "readers_max": 9, "readers": [{}, {}], "all_readers": 6, "left_out_readers": 3, "lagging_readers": 1,
            "parent": null, "tree": [upper, leaf("10.0.0.9:2181")],
        });
        let old = json!({ "readers_max": 9, "readers": [{}], "lagging_readers": 0, "parent": { "address": "zoo1 port 2888" } });
        let answers = [("a:1", Ok(answer)), ("b:1", Err(Failure::usage("no"))), ("c:1", Ok(old))];
        assert_eq!(
            of(&answers),
            "a:1  6 readers, 2 of them right below it (9 at most), 1 behind\n  \
             10.0.0.7:2181  stoa 1, 1 below it\n    \
             10.0.0.8:2181  stoa 1\n  \
             10.0.0.9:2181  stoa 1\n  \
             and 3 more\n\
             b:1  does not answer: no\n\
             c:1  1 readers, 1 of them right below it (9 at most), 0 behind, itself below zoo1 port 2888\n"
        );
    }
}
