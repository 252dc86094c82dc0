//! What a site that was given up has made and the others do not have, listed for operators: by a server of that site
//! (`stoa sites lost`), or by what is on a server's disk (`stoa log lost`).

mod folder;
mod list;
mod now;
mod server;

use clap::Args;
use stoa_core::KeptZxids;

use crate::failure::{Failure, Result};

pub(crate) use folder::{LogLostArgs, run as of_folder};
pub(crate) use server::run as of_server;

/// Which of it, and how much is told of each.
#[derive(Debug, Clone, Args)]
pub(crate) struct LostArgs {
    /// Only what stands behind this zxid: the last one that was listed before
    #[arg(long, value_name = "ZXID", value_parser = zxid, default_value = "0")]
    after: i64,
    /// No more than so many updates
    #[arg(long, default_value_t = 1000, value_name = "COUNT")]
    limit: u64,
    /// Also the data that they give znodes. From a server only as somebody who has all permissions on / (--auth)
    #[arg(long)]
    data: bool,
    /// Also what has become of the znodes since at a site that serves, asked with --server and --auth
    #[arg(long)]
    compare: bool,
}

/// A zxid as it is shown, with or without `0x`.
pub(crate) fn zxid(text: &str) -> std::result::Result<i64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let number = i64::from_str_radix(digits, 16).ok().filter(|zxid| *zxid >= 0);
    number.ok_or_else(|| format!("{text:?} is no zxid, as in 0x5003"))
}

/// One update that is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Update {
    zxid: i64,
    time_ms: i64,
    session: i64,
    is_multi: bool,
    /// Whether it is known to be committed.
    is_committed: bool,
    operations: Vec<LostPart>,
}

/// A part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LostPart {
    name: String,
    path: Option<String>,
    bytes: Option<u64>,
    data: Option<Vec<u8>>,
}

/// What there is, of which some is listed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Summary {
    /// What the others have of the site's updates.
    kept: KeptZxids,
    /// How many there are behind that.
    count: u64,
    /// Whether some behind the last one that was listed were not.
    are_more: bool,
    /// Whether it is known that nothing is missing.
    is_all: bool,
}

/// Fails where not everything may have been found.
fn whole(summary: &Summary) -> Result<()> {
    if summary.is_all {
        return Ok(());
    }
    Err(Failure::failed(
        "the log may not reach back to what the others have: what was made before the first update listed may be missing",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zxids_are_read_as_they_are_shown() {
        assert_eq!([zxid("0x5003"), zxid("5003"), zxid("0")], [Ok(0x5003), Ok(0x5003), Ok(0)]);
        for bad in ["", "0x", "-1", "x", "0xffffffffffffffff"] {
            assert!(zxid(bad).unwrap_err().contains("is no zxid"), "{bad}");
        }
    }
}
