//! What snapshots say of sites. [`crate::records`] describes them.

use crate::load::Loader;
use crate::records::{LoadError, RecordReader, Result, put_bytes};
use crate::session::Session;
use crate::sites::level;
use crate::sites::names::{NO_SITE, SITE_MAX, SiteId, SiteSet, Source};
use crate::sites::reign::{Claim, Loss};
use crate::sites::streams::{CarriedOut, SiteStanding, Ticket, Waiting};
use crate::tree::Tree;
use crate::walk::Walk;
use alloc::vec::Vec;
use stoa_wire::ZXID_MAX;

mod tag {
    pub(super) const SITES: u8 = 10;
    pub(super) const ENDED: u8 = 11;
    pub(super) const HOME: u8 = 12;
    pub(super) const IMPORTED: u8 = 13;
    pub(super) const WAITING: u8 = 14;
    pub(super) const RECALLED: u8 = 15;
    pub(super) const REIGN: u8 = 16;
    pub(super) const LOSS: u8 = 17;
    pub(super) const SEEN: u8 = 18;
    pub(super) const CLAIM: u8 = 19;
    pub(super) const READ_TOKEN: u8 = 21;
    pub(super) const KEPT: u8 = 20;
    pub(super) const LEVEL: u8 = 22;
    pub(super) const SEEN_OF: u8 = 23;
    pub(super) const ROOT_MARK: u8 = 24;
    pub(super) const OWNED_AWAY: u8 = 25;
    pub(super) const MARK: u8 = 26;
}

/// Writes the home of a session, if there are sites. Of one that has come there from another site it is said twice: a
/// release that does not know what that means reads it twice.
pub(crate) fn write_home(id: i64, session: &Session, out: &mut Vec<u8>) {
    let times = if session.came_zxid == 0 { 1 } else { 2 };
    for _ in (0..times).filter(|_| session.home != NO_SITE) {
        out.push(tag::HOME);
        out.extend_from_slice(&id.to_le_bytes());
        out.push(session.home);
    }
}

fn site(reader: &mut RecordReader<'_>) -> Result<SiteId> {
    let site = reader.u8()?;
    if (1..=SITE_MAX).contains(&site) {
        Ok(site)
    } else {
        Err(LoadError::Malformed("a site is out of range"))
    }
}

fn zxid(reader: &mut RecordReader<'_>) -> Result<i64> {
    let zxid = reader.i64()?;
    let is_one = (0..=ZXID_MAX).contains(&zxid);
    if is_one { Ok(zxid) } else { Err(LoadError::Malformed("a zxid is out of range")) }
}

impl Tree {
    /// Writes the feature level, before all that may be of it.
    pub(crate) fn write_level(&self, walk: &mut Walk) {
        if self.level() > level::FIRST {
            walk.block().extend_from_slice(&[tag::LEVEL, self.level()]);
        }
    }

    /// Writes what is known of sites, if there are any.
    pub(crate) fn write_sites(&self, walk: &mut Walk) {
        if !self.sites.are_there() {
            return;
        }
        let block = walk.block();
        block.extend_from_slice(&[tag::SITES, self.sites.own, self.sites.hub]);
        block.extend_from_slice(&self.sites.since_zxid.to_le_bytes());
        block.extend_from_slice(&self.zxids.last_prepared.to_le_bytes());
        block.extend_from_slice(&self.sites.ended.forgotten().to_le_bytes());
        block.extend_from_slice(&self.sites.streams.numbered().to_le_bytes());
        block.extend_from_slice(&self.sites.streams.begun().to_le_bytes());
        for (session, zxid) in self.sites.ended.iter() {
            let block = walk.block();
            block.push(tag::ENDED);
            block.extend_from_slice(&session.to_le_bytes());
            block.extend_from_slice(&zxid.to_le_bytes());
        }
        for (path, site, given) in self.sites.read_tokens.iter() {
            let block = walk.block();
            block.extend_from_slice(&[tag::READ_TOKEN, site]);
            block.extend_from_slice(&given.to_le_bytes());
            put_bytes(block, path.as_bytes());
        }
        if self.sites.divided.root_mark != NO_SITE {
            walk.block().extend_from_slice(&[tag::ROOT_MARK, self.sites.divided.root_mark]);
        }
        for (path, mark) in &self.sites.divided.marks {
            let block = walk.block();
            block.extend_from_slice(&[tag::MARK, *mark]);
            put_bytes(block, path.as_bytes());
        }
        for (path, session) in self.sites.divided.owned_away.iter() {
            let block = walk.block();
            block.push(tag::OWNED_AWAY);
            block.extend_from_slice(&session.to_le_bytes());
            put_bytes(block, path.as_bytes());
        }
        self.write_reign(walk);
        self.write_streams(walk);
    }

    fn write_reign(&self, walk: &mut Walk) {
        let (sites, streams) = (&self.sites, &self.sites.streams);
        let [reign, claimed] = streams.reigns_noted();
        let block = walk.block();
        block.push(tag::REIGN);
        for number in [sites.reign, reign.0, reign.1, claimed.0, claimed.1] {
            block.extend_from_slice(&number.to_le_bytes());
        }
        block.push(streams.standing() as u8);
        for (site, loss) in &sites.losses {
            let block = walk.block();
            block.extend_from_slice(&[tag::LOSS, *site, u8::from(loss.is_away)]);
            block.extend_from_slice(&u64::from(loss.times).to_le_bytes());
        }
        let of_others = sites.losses.iter().filter_map(|(site, loss)| Some((*site, loss.kept.as_ref()?)));
        for (site, kept) in of_others.chain(streams.kept().map(|kept| (NO_SITE, kept))) {
            // A record for each partition of it that has made anything.
            for zxid in kept.encode().chunks(8) {
                let block = walk.block();
                block.extend_from_slice(&[tag::KEPT, site]);
                block.extend_from_slice(zxid);
            }
        }
        // What the only partition of this site has done last stands elsewhere, and here in which reign it has promised
        // something: a release that does not know that passes it over.
        let promised_in = ZXID_MAX.min(i64::try_from(streams.promised_in()).unwrap_or(ZXID_MAX));
        let own = Source::first_of(sites.own);
        let block = walk.block();
        block.extend_from_slice(&[tag::SEEN, sites.own]);
        block.extend_from_slice(&promised_in.to_le_bytes());
        let floor = sites.floors.get(&own).copied().unwrap_or_default();
        block.extend_from_slice(&floor.to_le_bytes());
        for (source, zxid) in &sites.seen {
            let block = walk.block();
            if *source == own || source.partition != 0 {
                block.extend_from_slice(&[tag::SEEN_OF, source.partition, source.site]);
            } else {
                block.extend_from_slice(&[tag::SEEN, source.site]);
            }
            block.extend_from_slice(&zxid.to_le_bytes());
            let floor = sites.floors.get(source).copied().unwrap_or_default();
            block.extend_from_slice(&floor.to_le_bytes());
        }
        if let Some(claim) = streams.claim() {
            let block = walk.block();
            block.extend_from_slice(&[tag::CLAIM, claim.hub]);
            let sets = [claim.lost, claim.needed, streams.followed()].map(|set| u64::from(set.bits()));
            for number in [claim.reign, claim.life.into()].into_iter().chain(sets) {
                block.extend_from_slice(&number.to_le_bytes());
            }
            block.push(u8::from(claim.is_automatic));
        }
    }

    fn write_streams(&self, walk: &mut Walk) {
        let streams = &self.sites.streams;
        for (site, position) in streams.all_imported() {
            let block = walk.block();
            block.extend_from_slice(&[tag::IMPORTED, site]);
            block.extend_from_slice(&position.to_le_bytes());
        }
        for waiting in streams.all_waiting() {
            let block = walk.block();
            let by = match waiting.by {
                CarriedOut::Here => NO_SITE,
                CarriedOut::At(site) => site,
            };
            block.extend_from_slice(&[tag::WAITING, waiting.ticket.site, waiting.server, by]);
            block.extend_from_slice(&waiting.ticket.number.to_le_bytes());
            block.extend_from_slice(&waiting.session.to_le_bytes());
            put_bytes(block, &waiting.asked);
        }
        for path in streams.recalled() {
            let block = walk.block();
            block.push(tag::RECALLED);
            put_bytes(block, path.as_bytes());
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
            tag::IMPORTED => Some(self.read_imported(reader)),
            tag::WAITING => Some(self.read_waiting(reader)),
            tag::RECALLED => Some(self.read_recalled(reader)),
            tag::REIGN => Some(self.read_reign(reader)),
            tag::LOSS => Some(self.read_loss(reader)),
            tag::SEEN => Some(self.read_seen(None, reader)),
            tag::SEEN_OF => Some(reader.u8().and_then(|partition| self.read_seen(Some(partition), reader))),
            tag::CLAIM => Some(self.read_claim(reader)),
            tag::READ_TOKEN => Some(self.read_read_token(reader)),
            tag::KEPT => Some(self.read_kept(reader)),
            tag::LEVEL => Some(self.read_level(reader)),
            tag::ROOT_MARK => Some(site(reader).map(|site| self.tree.sites.divided.root_mark = site)),
            tag::OWNED_AWAY => Some(self.read_owned_away(reader)),
            tag::MARK => Some(self.read_mark(reader)),
            _ => None,
        }
    }

    fn read_level(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        self.tree.sites.level = reader.u8()?;
        self.tree.check_level().map_err(LoadError::NewerLevel)
    }

    fn read_sites(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        if self.tree.sites.are_there() {
            return Err(LoadError::Malformed("it says twice which site it is of"));
        }
        let sites = &mut self.tree.sites;
        sites.own = site(reader)?;
        sites.hub = site(reader)?;
        sites.since_zxid = zxid(reader)?;
        self.prepared = Some(zxid(reader)?);
        sites.ended.load_forgotten(reader.u64()?);
        sites.streams.load_numbered(reader.u64()?);
        sites.streams.begin(reader.u64()?);
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
        // When it came is not known any more, but that this was before.
        let last_zxid = self.last_zxid();
        let set = self.tree.sessions.change(session, |session| {
            session.came_zxid = if session.home == NO_SITE { 0 } else { last_zxid };
            session.home = home;
        });
        set.ok_or(LoadError::Malformed("a session that is missing has a home"))
    }

    fn read_imported(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        let (from, position) = (site(reader)?, reader.u64()?);
        self.tree.sites.streams.set_imported(from, position);
        Ok(())
    }

    fn read_reign(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        self.tree.sites.reign = reader.u64()?;
        let streams = &mut self.tree.sites.streams;
        streams.load_reign((reader.u64()?, reader.u64()?), (reader.u64()?, reader.u64()?));
        let known = [SiteStanding::Member, SiteStanding::Lost, SiteStanding::Discarded];
        let standing = known.get(usize::from(reader.u8()?));
        streams.set_standing(*standing.ok_or(LoadError::Malformed("it says badly what its site is"))?);
        Ok(())
    }

    fn read_loss(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        let (site, is_away) = (site(reader)?, reader.u8()? != 0);
        let times = u32::try_from(reader.u64()?);
        let times = times.map_err(|_| LoadError::Malformed("a site was given up too often"))?;
        self.tree.sites.losses.insert(site, Loss { times, is_away, kept: None });
        Ok(())
    }

    fn read_kept(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        let (site, zxid) = (reader.u8()?, zxid(reader)?);
        let sites = &mut self.tree.sites;
        if site == NO_SITE {
            let mut kept = sites.streams.kept().cloned().unwrap_or_default();
            kept.note(zxid);
            sites.streams.set_kept(kept);
            return Ok(());
        }
        let loss = sites.losses.get_mut(&site);
        let never = LoadError::Malformed("something is lost of a site that was never given up");
        loss.ok_or(never)?.kept.get_or_insert_default().note(zxid);
        Ok(())
    }

    /// What is here of a partition of a site, or of the only one.
    fn read_seen(&mut self, of: Option<u8>, reader: &mut RecordReader<'_>) -> Result<()> {
        let (site, last, floor) = (site(reader)?, zxid(reader)?, zxid(reader)?);
        let source = Source { site, partition: of.unwrap_or(0) };
        if (site, of) == (self.tree.sites.own, None) {
            self.tree.sites.streams.has_promised_in(last as u64);
        } else {
            self.tree.sites.seen.insert(source, last);
        }
        if floor != 0 {
            self.tree.sites.floors.insert(source, floor);
        }
        Ok(())
    }

    fn read_claim(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        let (hub, reign, life) = (site(reader)?, reader.u64()?, reader.u64()? as u32);
        let mut set = || Ok(SiteSet::from_bits(reader.u64()? as u32));
        let (lost, needed, followed) = (set()?, set()?, set()?);
        let is_automatic = reader.u8()? != 0;
        let claim = Claim { reign, hub, life, lost, needed, is_automatic };
        self.tree.sites.streams.load_claim(claim, followed);
        Ok(())
    }

    fn read_waiting(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        let (site, server, by) = (site(reader)?, reader.u8()?, reader.u8()?);
        let ticket = Ticket { site, number: reader.u64()? };
        let (session, asked) = (reader.i64()?, reader.bytes()?.to_vec());
        let by = if by == NO_SITE { CarriedOut::Here } else { CarriedOut::At(by) };
        let sites = &mut self.tree.sites;
        let is_known = sites.streams.waiting(ticket).is_some();
        if !sites.are_there() || is_known || ticket.number == u64::MAX {
            return Err(LoadError::Malformed("a request waits twice, or before there were sites"));
        }
        sites.streams.wait(sites.own, Waiting { ticket, server, session, by, asked });
        Ok(())
    }

    fn read_read_token(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        let (site, given) = (site(reader)?, zxid(reader)?);
        let path = core::str::from_utf8(reader.bytes()?);
        let path = path.map_err(|_| LoadError::Malformed("a path that has a read token is not UTF-8"))?;
        self.tree.sites.read_tokens.give(path, site, given);
        Ok(())
    }

    fn read_owned_away(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        let session = reader.i64()?;
        let path = core::str::from_utf8(reader.bytes()?);
        let path = path.map_err(|_| LoadError::Malformed("a path that lives elsewhere is not UTF-8"))?;
        self.tree.sites.divided.owned_away.add(path, session);
        Ok(())
    }

    fn read_mark(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        let mark = site(reader)?;
        let path = core::str::from_utf8(reader.bytes()?);
        let path = path.map_err(|_| LoadError::Malformed("a path that has a mark is not UTF-8"))?;
        self.tree.sites.divided.marks.insert(path.into(), mark);
        Ok(())
    }

    fn read_recalled(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        let path = core::str::from_utf8(reader.bytes()?);
        let path = path.map_err(|_| LoadError::Malformed("a path that is recalled is not UTF-8"))?;
        self.tree.sites.streams.recall(path);
        Ok(())
    }

    /// Ends what is known of sites, with the largest zxid of all.
    pub(crate) fn finish_sites(tree: &mut Tree, prepared: Option<i64>, last_zxid: i64) {
        tree.zxids.last_prepared = prepared.unwrap_or(last_zxid);
        tree.sites.late.begin(last_zxid);
        if !tree.sites.losses.is_empty() {
            tree.sites.late.give_up(last_zxid);
        }
    }
}
