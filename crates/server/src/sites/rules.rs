//! What the operator says of tokens, beside the list of the sites. What it says of durability each server reads by itself,
//! and only mistakes in it are named here.

use stoa_core::SITES_PATH;

use super::{Sites, list};
use crate::driver::Driver;

impl Sites {
    /// Hands in what the operator says, when that has changed. Each server does, so that whoever leads next knows it.
    pub(super) fn hand_in_rules(&self, driver: &Driver) {
        let mut server = driver.server.borrow_mut();
        let Some(znode) = server.tree().get(SITES_PATH) else { return };
        let zxid = znode.stat().mzxid;
        if self.ruled_by.replace(zxid) == zxid {
            return;
        }
        let text = String::from_utf8_lossy(znode.data().unwrap_or_default()).into_owned();
        let sites = list::decode(&text);
        let number =
            |name: &str| sites.iter().find(|site| site.addresses.name == name).map(|site| site.number);
        let all_bad = server.site_rules(list::rules(&text).as_bytes(), number);
        drop(server);
        for bad in all_bad {
            tracing::warn!("{SITES_PATH}: {bad}");
        }
        // Tokens may have to move now.
        driver.after_input();
    }
}
