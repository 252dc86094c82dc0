//! The configuration file in TOML: the keys of the table of settings, flat.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Place, Problem};
use super::load::{Entry, FileEntries, by_key, nearest};
use super::settings::SETTINGS;

pub(super) fn read(path: &Path, text: &str) -> Result<FileEntries, ConfigError> {
    let table = DeTable::parse(text).map_err(|error| Problem::Syntax {
        file: path.to_owned(),
        line: error.span().map_or(1, |span| line_of(text, span.start)),
        message: error.message().to_owned(),
    })?;
    let mut entries = Vec::new();
    for (key, value) in table.get_ref() {
        let line = line_of(text, key.span().start);
        let key = key.get_ref().to_string();
        let place = Place::Line { file: path.to_owned(), line, key: key.clone() };
        let Some(setting) = by_key(&key) else {
            return Err(Problem::UnknownKey { place, nearest: nearest(&key) }.into());
        };
        let Some(text) = as_text(value.get_ref()) else {
            let expected = SETTINGS[setting].expected.to_owned();
            return Err(Problem::Value { place, found: kind_of(value.get_ref()).to_owned(), expected }.into());
        };
        entries.push(Entry { setting, text, place });
    }
    Ok(FileEntries { entries, ..FileEntries::default() })
}

/// A value as it would be given to the flag; lists become words with commas between them.
fn as_text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            let digits = number.as_str();
            i64::from_str_radix(digits, number.radix()).ok().map(|number| number.to_string())
        }
        DeValue::Boolean(value) => Some(value.to_string()),
        DeValue::Array(items) => {
            let items: Option<Vec<String>> = items
                .iter()
                .map(|item| match item.get_ref() {
                    DeValue::String(text) => Some(text.to_string()),
                    _ => None,
                })
                .collect();
            Some(items?.join(","))
        }
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}

fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::Float(_) => "a number with a point",
        DeValue::Datetime(_) => "a date",
        DeValue::Table(_) => "a table",
        _ => "a list of something else than words",
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_pairs(text: &str) -> Result<Vec<(&'static str, String)>, ConfigError> {
        let entries = read(Path::new("stoa.toml"), text)?.entries;
        Ok(entries.into_iter().map(|entry| (SETTINGS[entry.setting].key, entry.text)).collect())
    }

    #[test]
    fn strings_numbers_booleans_and_lists_are_taken() {
        let pairs = read_pairs(
            "# a comment\ndata-dir = '/srv'\nport = 2_182\nmax-request-bytes = 0xfffff\nskip-acl = true\n\
             words = ['srvr', 'ruok']\n",
        );
        let mut pairs = pairs.unwrap();
        pairs.sort();
        let expected = [
            ("data-dir", "/srv"),
            ("max-request-bytes", "1048575"),
            ("port", "2182"),
            ("skip-acl", "true"),
            ("words", "srvr,ruok"),
        ];
        assert_eq!(pairs, expected.map(|(key, text)| (key, text.to_owned())));
    }

    #[test]
    fn what_is_not_toml_is_refused_with_its_line() {
        let error = read_pairs("port = 1\ndata-dir = /srv\n").unwrap_err().to_string();
        assert!(error.starts_with("stoa.toml, line 2: "), "{error}");
    }

    #[test]
    fn tables_and_other_values_are_refused() {
        let error = read_pairs("[port]\nx = 1").unwrap_err().to_string();
        assert_eq!(error, "stoa.toml, line 1: port: expected a port, 0 to 65535, found \"a table\"");
        assert!(read_pairs("port = 1.5").is_err());
        assert!(read_pairs("words = [1]").is_err());
    }
}
