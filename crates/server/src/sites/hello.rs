//! What the leaders of two sites say to each other first. The connection is mutual TLS, so each knows by then that the
//! other one belongs to the sites.
//!
//! ```text
//! hello   := "stoa sites", version i32, name, term i64, joined bool, applied i64, hub i32, imported i64, lives i32,
//!            following i64, looks bool, claim, software, levels
//! welcome := number i32, from i32, hub i32, reign i64, what i32, applied i64, claim, misses bool, software, kept i64,
//!            levels, [reach], [count i32, (kept i64)*], [reach]
//! reach   := members i32, promised bool, count i32, (site i32, last i64, floor i64)*
//! levels  := oldest i32, newest i32, all i32, level i32     at which those of its servers can work that are connected, up
//!            to which all of them read, and the one in use, 0 of none
//! claim   := reign i64, hub i32, life i32, lost i32, needed i32, automatic bool        of reign 0 where there is none
//! ```
//! `kept` is for a site that was given up: the zxid of the last of its updates that the others have, 0 of none, and -1
//! where there is nothing to tell. Of a site with several partitions it is the largest of them, and that of each stands at
//! the end. What a site has that misses the hub stands before that; any other says what it has behind everything else,
//! but to who was given up. Releases have `kept`, `levels` and what a site has since they say so, and the version need
//! not change for what sites ship: that is what levels are for. Whoever does not know what stands behind the rest passes
//! over it; who is told nothing there takes it for -1, and for a site that takes no part in giving the hub up.
//!
//! Integers are big-endian, texts have their length before them (i32).

pub(super) use stoa_core::SiteAnswer as Answer;
use stoa_core::{
    Claim, Greeting, KeptZxids, Levels, SITE_MAX, SiteId, SiteLevels, SiteReach, SiteSet, Source,
};
use stoa_wire::{DecodeError, Reader, ZXID_MAX, put};

/// The protocol between sites, and the state that is sent with it.
const VERSION: i32 = 4;
const MAGIC: &str = "stoa sites";

/// The leader of a site that connects to the hub, or looks around.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SiteHello {
    /// The site's name.
    pub(super) name: String,
    /// The term in which it leads.
    pub(super) term: u64,
    /// Whether the site has joined the others.
    pub(super) has_joined: bool,
    /// Up to which position of its own log everything is applied.
    pub(super) applied: u64,
    /// Who the hub is, as far as it knows; 0 if it has not joined.
    pub(super) hub: SiteId,
    /// Up to which position of the hub's log everything is there.
    pub(super) imported: u64,
    /// How often it was given up, as far as it knows.
    pub(super) lives: u32,
    /// The reign that it follows; 0 of none.
    pub(super) following: u64,
    /// Whether it only looks around, and does not want to stay connected.
    pub(super) looks: bool,
    /// The reign that is claimed, as far as it knows: who is told so need not ask for it first.
    pub(super) claim: Option<Claim>,
    /// What it runs.
    pub(super) software: String,
    /// What its site can read and write.
    pub(super) levels: SiteLevels,
}

/// What the leader of another site says to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Welcome {
    /// The number of the site.
    pub(super) number: SiteId,
    /// That of who answers.
    pub(super) from: SiteId,
    /// The hub's, as far as it knows.
    pub(super) hub: SiteId,
    /// Its reign.
    pub(super) reign: u64,
    /// What comes of it.
    pub(super) answer: Answer,
    /// The reign that is claimed, as far as it knows.
    pub(super) claim: Option<Claim>,
    /// Up to which position of the hub's log everything is applied.
    pub(super) applied: u64,
    /// Whether it would follow who takes the hub's place without an operator.
    pub(super) misses_hub: bool,
    /// What it has. Nothing is said of that by a release before, and to who was given up.
    pub(super) reach: Option<SiteReach>,
    /// Of a site that was given up: what the others have of its updates.
    pub(super) kept: Option<KeptZxids>,
    /// What it runs.
    pub(super) software: String,
    /// What its site can read and write.
    pub(super) levels: SiteLevels,
}

impl SiteHello {
    /// What it says of its site's place among the others.
    pub(super) fn greeting(&self) -> Greeting {
        let Self { has_joined, lives, following, looks, levels, .. } = *self;
        Greeting { has_joined, lives, following, looks, levels }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put::str(&mut out, MAGIC);
        put::i32(&mut out, VERSION);
        put::str(&mut out, &self.name);
        put::i64(&mut out, self.term.cast_signed());
        put::bool(&mut out, self.has_joined);
        put::i64(&mut out, self.applied.cast_signed());
        put::i32(&mut out, self.hub.into());
        put::i64(&mut out, self.imported.cast_signed());
        put::i32(&mut out, self.lives.cast_signed());
        put::i64(&mut out, self.following.cast_signed());
        put::bool(&mut out, self.looks);
        put_claim(&mut out, self.claim);
        put::str(&mut out, &self.software);
        put_levels(&mut out, self.levels);
        out
    }

    /// # Errors
    /// What to tell who has sent it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let unreadable = |_: DecodeError| "what connects is no server of a site".to_owned();
        let mut reader = Reader::new(bytes);
        if reader.str().map_err(unreadable)? != MAGIC {
            return Err("what connects is no server of a site".to_owned());
        }
        let version = reader.i32().map_err(unreadable)?;
        if version != VERSION {
            return Err(format!(
                "it speaks version {version} of the protocol between sites, this server {VERSION}: give all sites the \
                 same release"
            ));
        }
        let mut hello = || {
            Ok(Self {
                name: reader.str()?.to_owned(),
                term: reader.i64()?.cast_unsigned(),
                has_joined: reader.bool()?,
                applied: reader.i64()?.cast_unsigned(),
                hub: SiteId::try_from(reader.i32()?).unwrap_or_default(),
                imported: reader.i64()?.cast_unsigned(),
                lives: reader.i32()?.cast_unsigned(),
                following: reader.i64()?.cast_unsigned(),
                looks: reader.bool()?,
                claim: claim(&mut reader)?,
                software: reader.str()?.to_owned(),
                levels: levels(&mut reader)?,
            })
        };
        hello().map_err(unreadable)
    }
}

impl Welcome {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for site in [self.number, self.from, self.hub] {
            put::i32(&mut out, site.into());
        }
        put::i64(&mut out, self.reign.cast_signed());
        put::i32(&mut out, self.answer as i32);
        put::i64(&mut out, self.applied.cast_signed());
        put_claim(&mut out, self.claim);
        put::bool(&mut out, self.misses_hub);
        put::str(&mut out, &self.software);
        put::i64(&mut out, self.kept.as_ref().map_or(-1, KeptZxids::largest));
        put_levels(&mut out, self.levels);
        if let Some(reach) = self.reach.as_ref().filter(|_| self.misses_hub) {
            put_reach(&mut out, reach);
        }
        match (&self.kept, &self.reach) {
            (Some(kept), _) => put_kept(&mut out, kept),
            (None, Some(reach)) if !self.misses_hub => put_reach(&mut out, reach),
            (None, _) => {}
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let (number, from, hub) = (site(&mut reader).ok()?, site(&mut reader).ok()?, site(&mut reader).ok()?);
        let reign = reader.i64().ok()?.cast_unsigned();
        let answer = match reader.i32().ok()? {
            0 => Answer::Connected,
            1 => Answer::Known,
            2 => Answer::Lost,
            _ => return None,
        };
        let applied = reader.i64().ok()?.cast_unsigned();
        let claim = claim(&mut reader).ok()?;
        let misses_hub = reader.bool().ok()?;
        let software = reader.str().ok()?.to_owned();
        let largest = if reader.rest().is_empty() { None } else { Some(reader.i64().ok()?) };
        let largest = largest.filter(|zxid| (0..=ZXID_MAX).contains(zxid));
        let levels = levels(&mut reader).ok()?;
        let has_reach = (misses_hub || largest.is_none()) && !reader.rest().is_empty();
        let reach = if has_reach { Some(reach(&mut reader).ok()?) } else { None };
        let misses_hub = misses_hub && has_reach;
        let kept = match largest {
            Some(_) if !reader.rest().is_empty() => Some(kept(&mut reader).ok()?),
            largest => largest.map(|zxid| KeptZxids::from_iter([zxid])),
        };
        Some(Self {
            number,
            from,
            hub,
            reign,
            answer,
            claim,
            applied,
            misses_hub,
            reach,
            kept,
            software,
            levels,
        })
    }
}

fn site(reader: &mut Reader<'_>) -> Result<SiteId, DecodeError> {
    let number = SiteId::try_from(reader.i32()?).ok().filter(|site| *site <= SITE_MAX);
    number.ok_or(DecodeError::BadValue("site"))
}

/// A site has no more partitions.
const PARTITIONS_MAX: i32 = 64;

/// A site, and above its eight bits its partition.
fn source(reader: &mut Reader<'_>) -> Result<Source, DecodeError> {
    let number = reader.i32()?;
    let site = SiteId::try_from(number & 0xff).ok().filter(|site| *site <= SITE_MAX);
    let partition = Some(number >> 8).filter(|partition| (0..PARTITIONS_MAX).contains(partition));
    let partition = partition.and_then(|partition| u8::try_from(partition).ok());
    let (site, partition) = site.zip(partition).ok_or(DecodeError::BadValue("source"))?;
    Ok(Source { site, partition })
}

fn put_reach(out: &mut Vec<u8>, reach: &SiteReach) {
    put::i32(out, reach.members.bits().cast_signed());
    put::bool(out, reach.has_promised);
    put::i32(out, i32::try_from(reach.updates.len()).unwrap_or(i32::MAX));
    for (source, (last, floor)) in &reach.updates {
        put::i32(out, i32::from(source.partition) << 8 | i32::from(source.site));
        put::i64(out, *last);
        put::i64(out, *floor);
    }
}

fn reach(reader: &mut Reader<'_>) -> Result<SiteReach, DecodeError> {
    let members = SiteSet::from_bits(reader.i32()?.cast_unsigned());
    let has_promised = reader.bool()?;
    let count = reader.i32()?;
    if !(0..=i32::from(SITE_MAX) * PARTITIONS_MAX).contains(&count) {
        return Err(DecodeError::BadValue("sites"));
    }
    let updates = (0..count).map(|_| Ok((source(reader)?, (reader.i64()?, reader.i64()?))));
    Ok(SiteReach { members, has_promised, updates: updates.collect::<Result<_, _>>()? })
}

/// One zxid was said already.
fn put_kept(out: &mut Vec<u8>, kept: &KeptZxids) {
    let count = kept.iter().count();
    if count > 1 {
        put::i32(out, i32::try_from(count).unwrap_or(i32::MAX));
        kept.iter().for_each(|zxid| put::i64(out, zxid));
    }
}

fn kept(reader: &mut Reader<'_>) -> Result<KeptZxids, DecodeError> {
    let count = reader.i32()?;
    if !(2..=PARTITIONS_MAX).contains(&count) {
        return Err(DecodeError::BadValue("zxids"));
    }
    let is_one = |zxid: &i64| (1..=ZXID_MAX).contains(zxid);
    let zxids = (0..count).map(|_| Some(reader.i64()?).filter(is_one).ok_or(DecodeError::BadValue("zxid")));
    zxids.collect()
}

fn put_claim(out: &mut Vec<u8>, claim: Option<Claim>) {
    let none = SiteSet::default();
    let none = Claim { reign: 0, hub: 0, life: 0, lost: none, needed: none, is_automatic: false };
    let claim = claim.unwrap_or(none);
    put::i64(out, claim.reign.cast_signed());
    put::i32(out, claim.hub.into());
    put::i32(out, claim.life.cast_signed());
    put::i32(out, claim.lost.bits().cast_signed());
    put::i32(out, claim.needed.bits().cast_signed());
    put::bool(out, claim.is_automatic);
}

fn claim(reader: &mut Reader<'_>) -> Result<Option<Claim>, DecodeError> {
    let claim = Claim {
        reign: reader.i64()?.cast_unsigned(),
        hub: site(reader)?,
        life: reader.i32()?.cast_unsigned(),
        lost: SiteSet::from_bits(reader.i32()?.cast_unsigned()),
        needed: SiteSet::from_bits(reader.i32()?.cast_unsigned()),
        is_automatic: reader.bool()?,
    };
    Ok(Some(claim).filter(|claim| claim.reign > 0 && claim.hub > 0))
}

fn put_levels(out: &mut Vec<u8>, levels: SiteLevels) {
    let SiteLevels { can: Levels { oldest, newest }, all_read, in_use } = levels;
    for level in [oldest, newest, all_read, in_use] {
        put::i32(out, level.into());
    }
}

/// Who says nothing of them has a release from before there were any.
fn levels(reader: &mut Reader<'_>) -> Result<SiteLevels, DecodeError> {
    if reader.rest().is_empty() {
        return Ok(SiteLevels::UNSAID);
    }
    let mut level = || u8::try_from(reader.i32()?).map_err(|_| DecodeError::BadValue("level"));
    let (oldest, newest, all_read, in_use) = (level()?, level()?, level()?, level()?);
    Ok(SiteLevels { can: Levels { oldest, newest }, all_read, in_use })
}

/// Reads bytes as what a leader of a site says first, and as what it is told: what can be read comes back when it is
/// written. For a fuzzer.
///
/// # Panics
/// When it does not.
pub fn check_site_greeting(bytes: &[u8]) {
    if let Ok(hello) = SiteHello::decode(bytes) {
        assert_eq!(SiteHello::decode(&hello.encode()), Ok(hello));
    }
    if let Some(welcome) = Welcome::decode(bytes) {
        assert_eq!(Welcome::decode(&welcome.encode()), Some(welcome));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: SiteLevels = SiteLevels { can: Levels { oldest: 1, newest: 3 }, all_read: 2, in_use: 2 };
    /// So many bytes say them.
    const LEVELS_BYTES: usize = 16;

    fn claim_of_two() -> Claim {
        let lost = SiteSet::of(1);
        Claim { reign: 4, hub: 2, life: 5, lost, needed: SiteSet::of(3), is_automatic: true }
    }

    #[test]
    fn hellos_come_back_and_cuts_do_not() {
        let hello = SiteHello {
            name: "virginia".into(),
            term: 7,
            has_joined: true,
            applied: 1 << 40,
            hub: 1,
            imported: 3,
            lives: 2,
            following: 4,
            looks: true,
            claim: Some(claim_of_two()),
            software: "stoa 1".into(),
            levels: LEVELS,
        };
        let bytes = hello.encode();
        assert_eq!(SiteHello::decode(&bytes), Ok(hello.clone()));
        // Who says less than that has a release from before there were levels.
        let before = bytes.len() - LEVELS_BYTES;
        let of_before = SiteHello { levels: SiteLevels::UNSAID, ..hello.clone() };
        assert_eq!(SiteHello::decode(&bytes[..before]), Ok(of_before));
        assert!((0..bytes.len()).all(|len| len == before || SiteHello::decode(&bytes[..len]).is_err()));
        // And who has the next one may say more.
        assert_eq!(SiteHello::decode(&[&bytes[..], b"more"].concat()), Ok(hello));
    }

    #[test]
    fn welcomes_come_back_and_cuts_do_not() {
        let of = |site, partition| Source { site, partition };
        let updates = [(of(1, 0), (90 << 11, 40 << 11)), (of(3, 63), (7 << 11, 0))].into();
        let reach = SiteReach { members: SiteSet::of(3).with(1), updates, has_promised: true };
        let welcome = Welcome {
            number: 2,
            from: 3,
            hub: 1,
            reign: 3,
            answer: Answer::Lost,
            claim: Some(claim_of_two()),
            applied: 9,
            misses_hub: true,
            reach: Some(reach),
            kept: Some([7 << 11, 9 << 11 | 1 << 5].into_iter().collect()),
            software: "stoa 1".into(),
            levels: LEVELS,
        };
        let bytes = welcome.encode();
        assert_eq!(Welcome::decode(&bytes), Some(welcome.clone()));
        // Who says less than that has a release before, and takes no part in giving the hub up.
        let reach_bytes = 4 + 1 + 4 + 2 * 20;
        let kept_bytes = 4 + 2 * 8;
        let without_kept = bytes.len() - kept_bytes;
        let without_reach = without_kept - reach_bytes;
        let without_levels = without_reach - LEVELS_BYTES;
        let without_all = without_levels - 8;
        // Of one zxid nothing is said twice.
        let of_before = Welcome { kept: Some([9 << 11 | 1 << 5].into_iter().collect()), ..welcome.clone() };
        assert_eq!(Welcome::decode(&bytes[..without_kept]), Some(of_before.clone()));
        assert_eq!(of_before.encode(), bytes[..without_kept]);
        let of_before = Welcome { misses_hub: false, reach: None, ..of_before };
        assert_eq!(Welcome::decode(&bytes[..without_reach]), Some(of_before.clone()));
        let of_before = Welcome { levels: SiteLevels::UNSAID, ..of_before };
        assert_eq!(Welcome::decode(&bytes[..without_levels]), Some(of_before.clone()));
        let of_before = Welcome { kept: None, ..of_before };
        assert_eq!(Welcome::decode(&bytes[..without_all]), Some(of_before.clone()));
        let is_one = |len: usize| [without_kept, without_reach, without_levels, without_all].contains(&len);
        assert!((0..bytes.len()).all(|len| is_one(len) || Welcome::decode(&bytes[..len]).is_none()));
        // And who has the next one may say more.
        assert_eq!(Welcome::decode(&[&bytes[..], b"more"].concat()), Some(welcome.clone()));
        assert_eq!(Welcome::decode(&of_before.encode()), Some(of_before));
        // Who does not miss the hub says what it has behind everything else, where a release before looks at nothing.
        let known = Welcome { misses_hub: false, kept: None, ..welcome };
        assert_eq!(Welcome::decode(&known.encode()), Some(known.clone()));
        let said = known.encode().len() - reach_bytes;
        assert_eq!(Welcome::decode(&known.encode()[..said]), Some(Welcome { reach: None, ..known }));
    }

    #[test]
    fn another_version_is_said_to_be_one() {
        let mut out = Vec::new();
        put::str(&mut out, MAGIC);
        put::i32(&mut out, 99);
        assert!(SiteHello::decode(&out).unwrap_err().contains("version 99"));
    }
}
