//! The table of settings for the documentation.

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

/// The keys of a `zoo.cfg` in Markdown: what each sets here, or why it has no effect or is refused.
pub fn zoo_table() -> String {
    let mut rows: Vec<(&str, String)> = SETTINGS
        .iter()
        .flat_map(|setting| setting.zoo.iter().map(|(key, _)| (*key, format!("yes: `{}`", setting.key))))
        .chain(WITHOUT_EFFECT.iter().map(|(key, why)| (*key, format!("no: {why}"))))
        .chain(TAKEN.iter().map(|(key, what)| (*key, format!("yes: {what}"))))
        .chain(REFUSED.iter().map(|(key, values, why)| (*key, refused(values, why))))
        .collect();
    rows.sort_unstable_by_key(|(key, _)| key.to_ascii_lowercase());
    let mut table = String::from("| key | here |\n| --- | --- |\n");
    for (key, here) in rows {
        table += &format!("| `{key}` | {here} |\n");
    }
    table
}

fn refused(values: &[&str], why: &str) -> String {
    match values.first() {
        Some(value) => format!("refused when it is `{value}`: {why}"),
        None => format!("refused: {why}"),
    }
}
