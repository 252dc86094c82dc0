//! The answers of `/commands/sites` and `/commands/token` for people.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::columns::aligned;

const COLUMNS: [&str; 7] = ["site", "number", "servers", "connected", "round trip", "unshipped", "imported"];

/// The table, and below it what the server's own site has done.
pub(super) fn of(answer: &Value) -> String {
    of_now(answer, now_ms())
}

fn of_now(answer: &Value, now_ms: u128) -> String {
    let mut text = rows(answer["sites"].as_array().map_or(&[], Vec::as_slice), now_ms);
    let name = shown(&answer["site"]);
    // Writing to a string cannot fail.
    if answer["number"].is_null() {
        let _ = writeln!(text, "\n{name} has not joined the others yet");
        return text;
    }
    if answer["is_given_up"] == true {
        let _ = writeln!(
            text,
            "\n{name} was given up by the others, and serves nobody: stoa sites rejoin --discard"
        );
        if let Some(lost) = answer["lost_updates"].as_u64() {
            let _ = writeln!(text, "{lost} of its updates the others do not have: stoa sites lost");
        }
    }
    for site in answer["sites"].as_array().into_iter().flatten().filter(|site| site["is_given_up"] == true) {
        if site["kept_zxid"].is_string() {
            let (lost, kept) = (shown(&site["site"]), shown(&site["kept_zxid"]));
            let _ = writeln!(
                text,
                "\n{lost} was given up; what it has made behind zxid {kept} is lost (stoa sites lost, asked there)"
            );
        }
    }
    if answer["next_hub"].is_string() {
        let waits: Vec<_> = answer["waits_for"].as_array().into_iter().flatten().map(shown).collect();
        let waits = if waits.is_empty() { "the others".to_owned() } else { waits.join(", ") };
        let _ = writeln!(text, "\n{} is becoming the hub, and waits for {waits}", shown(&answer["next_hub"]));
    }
    let count = |field: &str| answer[field].as_u64().unwrap_or(0);
    if answer["leads"] == true {
        let _ = writeln!(
            text,
            "\nat {name}: {} writes here, {} forwarded, {} requests wait",
            count("writes_local"),
            count("writes_forwarded"),
            count("waiting_requests")
        );
        let _ = writeln!(
            text,
            "tokens: {} given, {} recalled, {} visits",
            count("token_grants"),
            count("token_recalls"),
            count("token_visits")
        );
        text += &level(answer);
    } else {
        let _ = writeln!(text, "\nthis server does not lead {name}: the one that does knows more");
    }
    if answer["lease_ms"] == 0.0 {
        let _ = writeln!(
            text,
            "{name} writes nothing for now: too few sites answer it, and another one may take its place"
        );
    }
    if answer["bound_to_hub_ms"] == 0.0 {
        let _ = writeln!(text, "{name} misses the hub, and would follow another one that takes its place");
    }
    if count("held_answers") > 0 {
        let _ = writeln!(
            text,
            "{} answers wait here until another site has what they are about",
            count("held_answers")
        );
    }
    text
}

/// The feature level, and why it is not a higher one.
fn level(answer: &Value) -> String {
    let Some(level) = answer["feature_level"].as_u64() else { return String::new() };
    let waits = answer["feature_level_waits_for"].as_array();
    let waits = waits.map(|waits| waits.iter().map(shown).collect::<Vec<_>>());
    let more = match waits {
        Some(waits) if !waits.is_empty() => format!("; a higher one waits: {}", waits.join("; ")),
        Some(_) if answer["hub"] == answer["number"] => {
            "; all read a higher one: stoa sites upgrade".to_owned()
        }
        _ => String::new(),
    };
    format!("feature level {level}{more}\n")
}

/// The table alone, of sites whose servers are not told.
pub(crate) fn of_sites(sites: &[Value]) -> String {
    let now_ms = now_ms();
    let rows = [COLUMNS.map(str::to_owned)].into_iter().chain(sites.iter().map(|site| row(site, now_ms)));
    let without = |row: [String; COLUMNS.len()]| {
        let [site, number, _, connected, round_trip, unshipped, imported] = row;
        [site, number, connected, round_trip, unshipped, imported]
    };
    aligned(&rows.map(without).collect::<Vec<_>>())
}

fn rows(sites: &[Value], now_ms: u128) -> String {
    let rows = sites.iter().map(|site| row(site, now_ms));
    aligned(&[COLUMNS.map(str::to_owned)].into_iter().chain(rows).collect::<Vec<_>>())
}

fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis())
}

/// Who holds a token, since when, and who uses it, as far as the server knows.
pub(super) fn of_token(answer: &Value) -> String {
    of_token_now(answer, now_ms())
}

fn of_token_now(answer: &Value, now_ms: u128) -> String {
    let (path, number) = (shown(&answer["path"]), &answer["holder_number"]);
    let holder = match answer["holder"].as_str() {
        Some(_) => format!("{} (site {number})", shown(&answer["holder"])),
        None => format!("site {number}"),
    };
    let absent = if answer["exists"] == false { "; there is no such znode" } else { "" };
    let mut text = format!("{holder} holds the token of {path}{absent}\n");
    let readers = answer["readers"].as_array().into_iter().flatten();
    let readers: Vec<String> = readers.map(|reader| shown(&reader["site"])).collect();
    if !readers.is_empty() {
        text += &format!("read without asking at: {}\n", readers.join(", "));
    }
    if answer["is_at_hubs_leader"] != true {
        return text + "since when, and who uses it, only the leader of the hub knows\n";
    }
    let ago = |at: &Value| {
        let ms = now_ms.saturating_sub(at.as_u64()?.into());
        Some(format!("{} ago", time(ms / 1000)))
    };
    let unknown = || "unknown".to_owned();
    let uses = match (answer["uses_by_holder"].as_u64(), ago(&answer["last_use_by_holder"])) {
        (Some(uses), Some(last)) => format!("{uses} times since then, the last {last}"),
        (Some(uses), None) => format!("{uses} times since then"),
        (None, _) => unknown(),
    };
    let of_site = |site: &Value| {
        let (number, name) = (&site["number"], shown(&site["site"]));
        let name = if name.is_empty() { format!("site {number}") } else { name };
        let last = if *number == answer["used_last_by"] { " (the last)" } else { "" };
        format!("{name} {}%{last}", site["share_percent"].as_u64().unwrap_or(0))
    };
    let by = answer["used_by"].as_array().map(|sites| sites.iter().map(of_site).collect::<Vec<_>>());
    let more = if answer["used_by_more"] == true { ", and others" } else { "" };
    let by = by.map_or_else(unknown, |by| by.join(", ") + more);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "given to it: {}", ago(&answer["since"]).unwrap_or_else(unknown));
    let _ = writeln!(text, "used by it: {uses}");
    let _ = writeln!(text, "used lately by: {by}");
    text
}

/// A text as it can be printed.
fn shown(of: &Value) -> String {
    let plain = |c: char| if c.is_control() { '?' } else { c };
    of.as_str().unwrap_or_default().chars().map(plain).collect()
}

fn row(of: &Value, now_ms: u128) -> [String; COLUMNS.len()] {
    let dash = || "-".to_owned();
    let hub = match (of["is_hub"] == true, of["is_given_up"] == true) {
        (true, _) => " (hub)",
        (_, true) => " (given up)",
        _ => "",
    };
    let own = if of["is_self"] == true { " *" } else { "" };
    let servers: Vec<_> = of["servers"].as_array().into_iter().flatten().map(shown).collect();
    let connected = match (of["connected"].as_bool(), of["connected_since"].as_u64()) {
        (Some(true), Some(since)) => format!("for {}", time(now_ms.saturating_sub(since.into()) / 1000)),
        (Some(true), None) => "yes".to_owned(),
        (Some(false), _) => "no".to_owned(),
        (None, _) => dash(),
    };
    // What was not counted is in files of the log.
    let more = if of["unshipped_is_all"] == false { "+" } else { "" };
    let unshipped = match (of["unshipped_entries"].as_u64(), of["unshipped_ms"].as_f64()) {
        (Some(0), _) => format!("0{more}"),
        (Some(entries), ms) => format!("{entries}{more}, {:.1} s", ms.unwrap_or(0.0) / 1e3),
        (None, _) => dash(),
    };
    let number = |field: &str| of[field].as_u64().map_or_else(dash, |number| number.to_string());
    [
        format!("{}{hub}{own}", shown(&of["site"])),
        number("number"),
        servers.join(" "),
        connected,
        of["round_trip_ms"].as_f64().map_or_else(dash, |ms| format!("{ms:.1} ms")),
        unshipped,
        number("imported_position"),
    ]
}

/// A time in the largest units that it has.
fn time(seconds: u128) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW_MS: u128 = 1_700_000_000_000;

    #[test]
    fn sites_are_shown_as_a_table() {
        let answer = json!({
            "site": "virginia", "number": 1, "hub": 1, "leads": true, "waiting_requests": 2,
            "feature_level": 1, "writes_local": 100, "writes_forwarded": 0, "token_grants": 5, "token_recalls": 3, "token_visits": 1,
            "sites": [
                { "site": "virginia", "number": 1, "is_hub": true, "is_self": true, "servers": ["a:2889", "b:2889"] },
                {
                    "site": "california", "number": 2, "is_hub": false, "servers": ["c:2889"], "connected": true,
                    "connected_since": 1_699_999_925_000_u64, "round_trip_ms": 62.04, "imported_position": 40,
                    "unshipped_entries": 3, "unshipped_ms": 1240.0, "unshipped_is_all": true
                },
                {
                    "site": "frank\u{1b}", "number": 3, "servers": [], "connected": false,
                    "unshipped_entries": 0, "unshipped_is_all": false
                }
            ]
        });
        let expected = "\
site              number  servers        connected       round trip  unshipped  imported
virginia (hub) *  1       a:2889 b:2889  -               -           -          -
california        2       c:2889         for 1 min 15 s  62.0 ms     3, 1.2 s   40
frank?            3                      no              -           0+         -

at virginia: 100 writes here, 0 forwarded, 2 requests wait
tokens: 5 given, 3 recalled, 1 visits
feature level 1
";
        assert_eq!(of_now(&answer, NOW_MS), expected);
        let follower = of(&json!({ "site": "a", "number": 2, "leads": false, "sites": [] }));
        assert!(
            follower.ends_with("\nthis server does not lead a: the one that does knows more\n"),
            "{follower}"
        );
        let waits = of(&json!({ "site": "a", "number": 2, "leads": false, "held_answers": 4, "sites": [] }));
        assert!(
            waits.ends_with("knows more\n4 answers wait here until another site has what they are about\n"),
            "{waits}"
        );
        let alone = of(&json!({ "site": "a", "number": 1, "leads": true, "lease_ms": 0.0, "sites": [] }));
        assert!(
            alone.ends_with(
                "\na writes nothing for now: too few sites answer it, and another one may take its place\n"
            ),
            "{alone}"
        );
        let misses = json!({ "site": "b", "number": 2, "leads": true, "bound_to_hub_ms": 0.0, "sites": [] });
        let misses = of(&misses);
        assert!(
            misses.ends_with("\nb misses the hub, and would follow another one that takes its place\n"),
            "{misses}"
        );
        let hub = of(&json!({
            "site": "a", "number": 1, "leads": true, "sites": [
                { "site": "b", "number": 2, "servers": [], "is_given_up": true, "kept_zxid": "0x5003" },
                { "site": "c", "number": 3, "servers": [], "is_given_up": false, "kept_zxid": "0x803" }
            ]
        }));
        let kept =
            "\nb was given up; what it has made behind zxid 0x5003 is lost (stoa sites lost, asked there)\n";
        assert!(hub.contains(kept) && !hub.contains("0x803"), "{hub}");
        let lost = of(&json!({
            "site": "b", "number": 2, "leads": true, "is_given_up": true, "lost_updates": 12, "sites": []
        }));
        assert!(lost.contains("\n12 of its updates the others do not have: stoa sites lost\n"), "{lost}");
        let new = of(&json!({ "site": "a", "number": null, "leads": true, "sites": [] }));
        assert!(new.ends_with("\na has not joined the others yet\n"), "{new}");
    }

    #[test]
    fn why_the_level_is_not_a_higher_one_is_said() {
        let told = |hub: u8, waits: Value| {
            level(&json!({ "number": 1, "hub": hub, "feature_level": 1, "feature_level_waits_for": waits }))
        };
        assert_eq!(told(1, Value::Null), "feature level 1\n");
        assert_eq!(told(1, json!([])), "feature level 1; all read a higher one: stoa sites upgrade\n");
        assert_eq!(told(2, json!([])), "feature level 1\n");
        let waits = json!(["frankfurt reads up to level 1", "tokyo\u{1b} is not connected"]);
        assert_eq!(
            told(1, waits),
            "feature level 1; a higher one waits: frankfurt reads up to level 1; tokyo? is not connected\n"
        );
        assert_eq!(level(&json!({ "site": "a" })), "");
    }

    #[test]
    fn servers_that_are_not_told_have_no_column() {
        let site =
            json!({ "site": "a", "number": 1, "is_hub": true, "connected": false, "unshipped_entries": 0 });
        let expected = "site     number  connected  round trip  unshipped  imported\n\
                        a (hub)  1       no         -           0          -\n";
        assert_eq!(of_sites(&[site]), expected);
    }

    #[test]
    fn what_is_known_of_a_token_is_said_and_what_is_not() {
        let elsewhere = "since when, and who uses it, only the leader of the hub knows\n";
        let answer = json!({ "path": "/a", "holder": "california", "holder_number": 2, "exists": true });
        assert_eq!(of_token(&answer), format!("california (site 2) holds the token of /a\n{elsewhere}"));
        let answer = json!({ "path": "/b", "holder": null, "holder_number": 3, "exists": false });
        let expected = format!("site 3 holds the token of /b; there is no such znode\n{elsewhere}");
        assert_eq!(of_token(&answer), expected);
        let answer = json!({ "path": "/a", "holder": "a", "holder_number": 1, "is_at_hubs_leader": true });
        assert_eq!(
            of_token(&answer),
            "a (site 1) holds the token of /a\ngiven to it: unknown\nused by it: unknown\nused lately by: unknown\n"
        );
        let answer = json!({
            "path": "/a", "holder": "b", "holder_number": 2, "exists": true, "is_at_hubs_leader": true,
            "since": 1_699_999_925_000_u64, "uses_by_holder": 40, "last_use_by_holder": 1_699_999_998_000_u64,
            "used_by": [
                { "site": "b", "number": 2, "share_percent": 93 }, { "site": null, "number": 9, "share_percent": 7 }
            ],
            "used_by_more": true, "used_last_by": 9
        });
        assert_eq!(
            of_token_now(&answer, NOW_MS),
            "b (site 2) holds the token of /a\ngiven to it: 1 min 15 s ago\n\
             used by it: 40 times since then, the last 2 s ago\nused lately by: b 93%, site 9 7% (the last), and others\n"
        );
    }

    #[test]
    fn times_have_the_units_that_count() {
        let times = [5, 75, 3_700, 90_000].map(time);
        assert_eq!(times, ["5 s", "1 min 15 s", "1 h 1 min", "1 d 1 h"]);
    }
}
