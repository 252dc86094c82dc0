//! The table of settings for the documentation.

use super::reading::Reading;
use super::settings::{SETTINGS, Settings};
use super::zoo::{REFUSED, TAKEN, WITHOUT_EFFECT};

/// The table of settings in Markdown, one row a setting.
pub fn settings_table() -> String {
    let defaults = Settings::default();
    let mut table =
        String::from("| setting | default | what it is | in a zoo.cfg |\n| --- | --- | --- | --- |\n");
    for setting in SETTINGS {
        let default = match setting.get(&defaults) {
            text if text.is_empty() => String::new(),
            text => format!("`{text}`"),
        };
        let zoo: Vec<String> = setting.zoo.iter().map(|(key, _)| format!("`{key}`")).collect();
        let help = setting.help.trim().replace('|', "\\|");
        table += &format!("| `{}` | {default} | {help} | {} |\n", setting.key, zoo.join(", "));
    }
    table
}

/// The keys of a `zoo.cfg` in Markdown: how each is read, and what it sets here,
/// or why it has no effect or is refused.
pub fn zoo_table() -> String {
    let settings = SETTINGS.iter().flat_map(|setting| {
        let row = |(key, reading): &(&'static str, Reading)| {
            (*key, Some(*reading), format!("yes: `{}`", setting.key))
        };
        setting.zoo.iter().map(row)
    });
    let mut rows: Vec<(&str, Option<Reading>, String)> = settings
        .chain(WITHOUT_EFFECT.iter().map(|(key, why)| (*key, None, format!("no: {why}"))))
        .chain(TAKEN.iter().map(|(key, reading, what)| (*key, Some(*reading), format!("yes: {what}"))))
        .chain(REFUSED.iter().map(|(key, reading, why)| (*key, *reading, refused(reading.is_some(), why))))
        .collect();
    rows.sort_unstable_by_key(|(key, _, _)| key.to_ascii_lowercase());
    let mut table = String::from("| key | read as | here |\n| --- | --- | --- |\n");
    for (key, reading, here) in rows {
        let reading = reading.map(Reading::describe).unwrap_or_default();
        table += &format!("| `{key}` | {reading} | {here} |\n");
    }
    table
}

fn refused(by_value: bool, why: &str) -> String {
    if by_value { format!("refused when it is true: {why}") } else { format!("refused: {why}") }
}
