//! The keys with an effect, from the table of the documentation, which is made from the source.

use std::net::IpAddr;

use stoa_server::config::{SETTINGS, Setting, zoo_table};

/// Keys that are no text for one value: what they name is read elsewhere.
const LEFT_OUT: [&str; 3] = ["server.N", "dynamicConfigFile", "partitions"];

/// Keys whose values are texts and files that are taken as they are, or that only work together: a server that has one
/// of them and not the others does not start here, and in ZooKeeper fails when it is connected to. The tests of the
/// settings look at them, and those of TLS and SASL.
const TOGETHER: [&str; 18] = [
    "client.certReload",
    "client.portUnification",
    "ensembleAuthName",
    "sasl.serverconfig",
    "SASLAuthenticationProvider.superPassword",
    "secureClientPort",
    "secureClientPortAddress",
    "security.auth_to_local",
    "ssl.ciphersuites",
    "ssl.clientAuth",
    "ssl.enabledProtocols",
    "ssl.keyStore.location",
    "ssl.keyStore.password",
    "ssl.keyStore.passwordPath",
    "ssl.trustStore.location",
    "ssl.trustStore.password",
    "ssl.trustStore.passwordPath",
    "X509AuthenticationProvider.superUser",
];

/// A key that sets something.
pub(crate) struct Row {
    pub(crate) key: String,
    /// How its values are read, as the documentation has it.
    pub(crate) reading: String,
    setting: usize,
}

impl Row {
    pub(crate) fn setting(&self) -> &'static Setting {
        &SETTINGS[self.setting]
    }
}

/// Every key of a setting.
pub(crate) fn rows() -> Vec<Row> {
    zoo_table().lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<Row> {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let (key, reading, here) = (cells.get(1)?, cells.get(2)?, cells.get(3)?);
    let key = key.strip_prefix('`')?.strip_suffix('`')?;
    let name = here.strip_prefix("yes: `")?.strip_suffix('`')?;
    let setting = SETTINGS.iter().position(|setting| setting.key == name)?;
    let row = Row { key: key.to_owned(), reading: (*reading).to_owned(), setting };
    (!LEFT_OUT.contains(&key) && !TOGETHER.contains(&key)).then_some(row)
}

/// A value without its unit: in milliseconds or bytes.
pub(crate) fn plain(text: &str) -> String {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let factor = match &text[digits..] {
        "" | "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return text.to_owned(),
    };
    text[..digits].parse::<u64>().map_or(text.to_owned(), |number| (number * factor).to_string())
}

/// Whether two texts stand for the same: addresses are written in more than one way.
pub(crate) fn same(one: &str, other: &str) -> bool {
    let addresses = (one.parse::<IpAddr>(), other.parse::<IpAddr>());
    one == other || matches!(addresses, (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_with_a_key_is_among_the_rows() {
        let rows = rows();
        let has = |key: &str| rows.iter().any(|row| row.key == key);
        assert!(has("skipACL") && has("clientPort") && has("db.autocreate") && !has("server.N"));
        assert!(rows.len() > 30, "{}", rows.len());
    }

    #[test]
    fn units_are_taken_off() {
        for (text, expected) in
            [("1m", "60000"), ("4GiB", "4294967296"), ("true", "true"), ("", ""), ("/5m", "/5m")]
        {
            assert_eq!(plain(text), expected);
        }
        assert!(same("0:0:0:0:0:0:0:1", "::1") && !same("::1", "::"));
    }
}
