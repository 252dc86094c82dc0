//! Which sites there are: the znode `/zookeeper/sites`.
//!
//! ```text
//! site.1=virginia:hub;a.example:2889|b.example:2889
//! site.2=frankfurt;c.example:2889
//! pin /eu frankfurt
//! ```
//! The hub writes it when it begins, from its settings. From then on it counts, and numbers never change: zxids and
//! marks have them in them. What the operator says of tokens and of durability stands in other lines (`stoa_sites::Rules`).

use std::fmt::Write as _;

use stoa_core::SiteId;

use crate::config::SiteAddresses;

/// One of the sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) number: SiteId,
    pub(crate) is_hub: bool,
    pub(crate) addresses: SiteAddresses,
}

/// Numbers the sites of the settings; the first one is the hub.
pub(super) fn number(sites: &[SiteAddresses]) -> Vec<Site> {
    let of = |(number, addresses): (SiteId, &SiteAddresses)| Site {
        number,
        is_hub: number == 1,
        addresses: addresses.clone(),
    };
    (1..).zip(sites).map(of).collect()
}

pub(super) fn encode(sites: &[Site]) -> String {
    let mut list = String::new();
    for Site { number, is_hub, addresses } in sites {
        let hub = if *is_hub { ":hub" } else { "" };
        let text = addresses.to_string();
        let (name, servers) = text.split_once('=').unwrap_or((&text, ""));
        let _ = writeln!(list, "site.{number}={name}{hub};{servers}");
    }
    list
}

/// A list with these sites, and with all else that it says.
pub(super) fn replace(list: &str, sites: &[Site]) -> String {
    let others = list.lines().filter(|line| !line.starts_with("site.") && !line.is_empty());
    others.fold(encode(sites), |text, line| text + line + "\n")
}

/// What the operator says: all lines but those of sites, in their places.
pub(super) fn rules(list: &str) -> String {
    let lines = list.lines().map(|line| if line.starts_with("site.") { "" } else { line });
    lines.map(|line| format!("{line}\n")).collect()
}

/// Reads a list; lines that are none of a site are passed over.
pub(crate) fn decode(list: &str) -> Vec<Site> {
    let site = |line: &str| {
        let (number, rest) = line.strip_prefix("site.")?.split_once('=')?;
        let (name, servers) = rest.split_once(';')?;
        let (name, is_hub) = name.strip_suffix(":hub").map_or((name, false), |name| (name, true));
        let addresses = SiteAddresses::parse(&format!("{name}={servers}"))?;
        Some(Site { number: number.parse().ok()?, is_hub, addresses })
    };
    list.lines().filter_map(site).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_back() {
        let of = |text| SiteAddresses::parse(text).unwrap();
        let sites = number(&[of("virginia=a:1|[::1]:2"), of("frankfurt=b:3")]);
        let list = encode(&sites);
        assert_eq!(list, "site.1=virginia:hub;a:1|[::1]:2\nsite.2=frankfurt;b:3\n");
        assert_eq!(decode(&list), sites);
        assert_eq!(replace("site.9=x;y:1\npin /a virginia\n", &sites), format!("{list}pin /a virginia\n"));
    }

    #[test]
    fn lines_on_tokens_keep_their_numbers() {
        let list = "site.1=a:hub;b:1\npin /x a\r\n# note\nsite.2=b;c:1\nstay /y";
        assert_eq!(rules(list), "\npin /x a\n# note\n\nstay /y\n");
        assert_eq!(decode(list).len(), 2);
    }

    #[test]
    fn what_is_no_site_is_passed_over() {
        assert!(decode("site.=a;b:1\nsite.1=A;b:1\nsite.300=a;b:1\nserver.1=a;b:1\nsite.1=a\n").is_empty());
    }
}
