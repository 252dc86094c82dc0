//! What has become of a znode since, at a site that serves.

use stoa_client::blocking::Client;
use stoa_client::{ErrorCode, Stat};

use crate::failure::{Context as _, Failure, Result};
use crate::shell::ShellArgs;

/// A site that serves.
pub(super) struct Now(Client);

impl Now {
    /// Connects to a server of it.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn connect(shell: &ShellArgs) -> Result<Self> {
        let client = Client::connect(shell.options()?).map_err(Failure::failed);
        Ok(Self(client.context("there is no site to compare with (--server says where one is)")?))
    }

    /// Of what a lost update is about. `is_created` says that one has created the znode, itself or one before it.
    pub(super) fn of(
        &self,
        path: &str,
        operation: &str,
        zxid: i64,
        is_created: bool,
    ) -> Result<Option<&'static str>> {
        let stat = match self.0.exists(path) {
            Ok(stat) => stat,
            Err(ErrorCode::NoAuth) => return Ok(Some("not readable")),
            Err(why) => return Err(Failure::failed(format!("{path} cannot be compared: {why}"))),
        };
        let changed = stat.as_ref().map(|stat| is_changed(stat, operation, zxid));
        Ok(match (operation, changed) {
            ("token to another site", _) => None,
            (_, None) if is_created => Some("not there"),
            ("delete", None) => Some("deleted"),
            (_, None) => Some("gone"),
            (_, Some(_)) if is_created => Some("created since"),
            (_, Some(true)) => Some("changed since"),
            (_, Some(false)) => Some("unchanged"),
        })
    }
}

/// Where a site was given up, whatever is done then of what it held has a larger zxid than all that it had done. A delete
/// is also about what is below.
fn is_changed(stat: &Stat, operation: &str, zxid: i64) -> bool {
    stat.czxid > zxid || stat.mzxid > zxid || operation == "delete" && stat.pzxid > zxid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_larger_zxid_has_changed_since() {
        let stat = Stat { czxid: 3, mzxid: 5, pzxid: 9, ..Stat::default() };
        assert!(!is_changed(&stat, "setData", 5) && is_changed(&stat, "setData", 4));
        assert!(is_changed(&stat, "delete", 8) && !is_changed(&stat, "delete", 9));
        assert!(is_changed(&Stat { czxid: 7, mzxid: 7, ..stat }, "check", 6));
    }
}
