//! The table of settings for the documentation.

use super::settings::{SETTINGS, Settings};

/// The table of settings in Markdown, one row a setting.
pub fn settings_table() -> String {
    let defaults = Settings::default();
    let mut table = String::from(
        "| setting | default | what it is | environment | in a zoo.cfg | restart |\n\
         | --- | --- | --- | --- | --- | --- |\n",
    );
    for setting in SETTINGS {
        let default = match setting.get(&defaults) {
            text if text.is_empty() => String::new(),
            text => format!("`{text}`"),
        };
        let zoo: Vec<String> = setting.zoo.iter().map(|(key, _)| format!("`{key}`")).collect();
        let restart = if setting.hot { "no" } else { "yes" };
        table += &format!(
            "| `{}` | {default} | {} | `{}` | {} | {restart} |\n",
            setting.key,
            setting.help.trim().replace('|', "\\|"),
            setting.environment,
            zoo.join(", "),
        );
    }
    table
}
