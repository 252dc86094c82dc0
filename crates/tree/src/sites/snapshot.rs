//! What snapshots say of sites. [`crate::records`] describes them.

use crate::load::Loader;
use crate::records::{LoadError, RecordReader, Result};
use crate::sites::state::{NO_SITE, SITE_MAX, SiteId};
use crate::tree::Tree;
use crate::walk::Walk;
use alloc::vec::Vec;
use stoa_wire::ZXID_MAX;

mod tag {
    pub(super) const SITES: u8 = 10;
    pub(super) const ENDED: u8 = 11;
    pub(super) const HOME: u8 = 12;
}

/// Writes the home of a session, if there are sites.
pub(crate) fn write_home(session: i64, home: SiteId, out: &mut Vec<u8>) {
    if home != NO_SITE {
        out.push(tag::HOME);
        out.extend_from_slice(&session.to_le_bytes());
        out.push(home);
    }
}

fn site(reader: &mut RecordReader<'_>) -> Result<SiteId> {
    let site = reader.u8()?;
    if (1..=SITE_MAX).contains(&site) { Ok(site) } else { Err(LoadError::Malformed("a site is out of range")) }
}

fn zxid(reader: &mut RecordReader<'_>) -> Result<i64> {
    let zxid = reader.i64()?;
    let is_one = (0..=ZXID_MAX).contains(&zxid);
    if is_one { Ok(zxid) } else { Err(LoadError::Malformed("a zxid is out of range")) }
}

impl Tree {
    /// Writes what is known of sites, if there are any.
    pub(crate) fn write_sites(&self, walk: &mut Walk) {
        if !self.sites.are_there() {
            return;
        }
        let block = walk.block();
        block.extend_from_slice(&[tag::SITES, self.sites.own]);
        block.extend_from_slice(&self.sites.since_zxid.to_le_bytes());
        block.extend_from_slice(&self.last_prepared_zxid.to_le_bytes());
        block.extend_from_slice(&self.sites.ended.forgotten().to_le_bytes());
        for (session, zxid) in self.sites.ended.iter() {
            let block = walk.block();
            block.push(tag::ENDED);
            block.extend_from_slice(&session.to_le_bytes());
            block.extend_from_slice(&zxid.to_le_bytes());
        }
    }
}

impl Loader {
    /// Reads a record of a kind that only a tree of one of several sites has; `None` if it is none.
    pub(crate) fn read_of_sites(&mut self, tag: u8, reader: &mut RecordReader<'_>) -> Option<Result<()>> {
        match tag {
            tag::SITES => Some(self.read_sites(reader)),
            tag::ENDED => Some(self.read_ended(reader)),
            tag::HOME => Some(self.read_home(reader)),
            _ => None,
        }
    }

    fn read_sites(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        if self.tree.sites.are_there() {
            return Err(LoadError::Malformed("it says twice which site it is of"));
        }
        let sites = &mut self.tree.sites;
        sites.own = site(reader)?;
        sites.since_zxid = zxid(reader)?;
        self.prepared = Some(zxid(reader)?);
        sites.ended.load_forgotten(reader.u64()?);
        Ok(())
    }

    fn read_ended(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        let (session, zxid) = (reader.i64()?, zxid(reader)?);
        if !self.tree.sites.are_there() || self.tree.sites.ended.zxid(session).is_some() {
            return Err(LoadError::Malformed("a session has ended twice, or before there were sites"));
        }
        self.tree.sites.ended.note(session, zxid);
        Ok(())
    }

    fn read_home(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        let (session, home) = (reader.i64()?, site(reader)?);
        let set = self.tree.sessions.set_home(session, home);
        set.ok_or(LoadError::Malformed("a session that is missing has a home"))
    }

    /// Ends what is known of sites, with the largest zxid of all.
    pub(crate) fn finish_sites(tree: &mut Tree, prepared: Option<i64>, last_zxid: i64) {
        tree.last_prepared_zxid = prepared.unwrap_or(last_zxid);
        tree.sites.late.begin(last_zxid);
    }
}
