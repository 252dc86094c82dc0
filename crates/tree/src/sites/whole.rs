//! What a site that is divided over partitions has prepared, as if it were not divided: so it goes to other sites.
//!
//! An operation over several partitions is an update on each, with the same zxid. Of these one update is made. A create or
//! delete at a cut has two sides, of which the znode's counts, at the place of the parent's among what was done to that:
//! so children have the order and the numbers that their parent has given them. What is there because the site is divided
//! falls away.

use crate::node::{ROOT_ID, ZnodeKind};
use crate::part::Part;
use crate::partitions::{PartResult, PartitionOp};
use crate::sites::divided::{Places, is_copied};
use crate::sites::import::stat_of_absent;
use crate::sites::names::SiteSet;
use crate::sites::ops::{SiteOp, TokenRefusal};
use crate::tree::Tree;
use crate::update::{self, CorruptUpdate, Op, Update};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use stoa_wire::{ErrorCode, MultiResults, Stat};

/// A change of a site as a whole: each of its partitions notes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiteStep<'a> {
    /// See [`Tree::prepare_site`].
    Begin {
        /// Which site this is.
        site: u8,
        /// The hub.
        hub: u8,
    },
    /// The token of the root, or of a znode below which something was moved by itself, and of all below it that has no
    /// mark, goes to a site: see [`Tree::prepare_token`].
    Token {
        /// The znode.
        path: &'a str,
        /// The site.
        holder: u8,
        /// Whether the znode lives here.
        is_home: bool,
    },
    /// See [`Tree::prepare_reign`].
    Reign {
        /// The reign.
        reign: u64,
        /// Its hub.
        hub: u8,
        /// The sites that are given up, a bit for each.
        lost: u32,
    },
    /// See [`Tree::prepare_return`].
    Return {
        /// The site.
        site: u8,
    },
    /// See [`Tree::prepare_level`].
    Level {
        /// The level.
        level: u8,
    },
    /// See [`Tree::prepare_home`]; the session is that of the part.
    Home {
        /// The session.
        session: i64,
        /// Its password.
        password: &'a [u8],
        /// Where it goes.
        site: u8,
    },
}

/// One partition's update, whose operations are taken in their order.
struct Side<'a> {
    partition: u8,
    ops: VecDeque<Op<'a>>,
    taken: usize,
    /// Where each side of what is done at a cut stands among all operations, of those that are left.
    cuts: BTreeMap<Cut<'a>, VecDeque<usize>>,
}

/// A side of what is done at a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cut<'a> {
    path: &'a str,
    is_create: bool,
    /// Whether it is the parent's side, or the znode's.
    of_parent: bool,
}

impl<'a> Cut<'a> {
    fn new(op: &Op<'a>) -> Option<Self> {
        let Op::Partition(op) = op else { return None };
        let (path, is_create, of_parent) = match op {
            PartitionOp::CreateAt(create) => (create.path, true, false),
            PartitionOp::DeleteAt { path } => (*path, false, false),
            PartitionOp::Adopt { path, .. } | PartitionOp::AdoptOf { path, .. } => (*path, true, true),
            PartitionOp::Disown { path } => (*path, false, true),
            _ => return None,
        };
        Some(Self { path, is_create, of_parent })
    }
}

impl<'a> Side<'a> {
    fn new(partition: u8, update: &Update<'a>) -> Result<Self, CorruptUpdate> {
        let mut side = Self { partition, ops: VecDeque::new(), taken: 0, cuts: BTreeMap::new() };
        update.for_each_op(|op| {
            if let Some(cut) = Cut::new(&op) {
                side.cuts.entry(cut).or_default().push_back(side.ops.len());
            }
            side.ops.push_back(op);
            Ok(())
        })?;
        Ok(side)
    }

    fn take(&mut self) -> Option<Op<'a>> {
        let op = self.ops.pop_front()?;
        self.taken += 1;
        if let Some(places) = Cut::new(&op).and_then(|cut| self.cuts.get_mut(&cut)) {
            places.pop_front();
        }
        Some(op)
    }

    /// So many operations come up to that side of what is done at a cut, itself among them; 0 where it is not here.
    fn up_to(&self, cut: &Cut<'_>) -> usize {
        let place = self.cuts.get(cut).and_then(VecDeque::front);
        place.map_or(0, |place| place + 1 - self.taken)
    }
}

/// Puts the operations of all sides in one order.
struct Merge<'a, 'p> {
    sides: Vec<Side<'a>>,
    places: &'p Places<'p>,
    out: Vec<u8>,
    count: usize,
    /// Whether it gives a token.
    gives: bool,
}

impl<'a> Merge<'a, '_> {
    /// Takes the operations of a side: all, or up to the znode's side of what is done at a path.
    fn flush(&mut self, at: usize, until: Option<(&str, Option<i32>)>) {
        while !self.step(at, until) && !self.sides[at].ops.is_empty() {}
    }

    /// Takes the next operation of a side, or first what has to come before that. Returns whether it is the znode's side of
    /// what is done at that path.
    fn step(&mut self, at: usize, until: Option<(&str, Option<i32>)>) -> bool {
        let Some(next) = self.sides[at].ops.front().map(Cut::new) else { return true };
        let next = next.filter(|cut| !cut.of_parent);
        let is_last = next.is_some_and(|cut| {
            until.is_some_and(|(path, cversion)| (cut.path, cut.is_create) == (path, cversion.is_some()))
        });
        if let Some(cut) = next.filter(|_| !is_last) {
            // Its place is where its parent's side is, if there is one.
            let of_parent = Cut { of_parent: true, ..cut };
            let counts = self.sides.iter().map(|side| side.up_to(&of_parent));
            if let Some((parents, count)) = counts.enumerate().find(|(_, count)| *count > 0) {
                let left = self.sides[parents].ops.len() - count;
                while self.sides[parents].ops.len() > left {
                    self.step(parents, None);
                }
                return false;
            }
        }
        let cversion = until.and_then(|(_, cversion)| cversion).filter(|_| is_last);
        if let Some(op) = self.sides[at].take() {
            self.put(self.sides[at].partition, op, cversion);
        }
        is_last
    }

    /// The parent's side is the next: what the znode's partition has done up to there comes first.
    fn cut(&mut self, path: &str, cversion: Option<i32>) {
        let cut = Cut { path, is_create: cversion.is_some(), of_parent: false };
        if let Some(at) = self.sides.iter().position(|side| side.up_to(&cut) > 0) {
            self.flush(at, Some((path, cversion)));
        }
    }

    fn put(&mut self, partition: u8, op: Op<'a>, cversion: Option<i32>) {
        let is_own = |path: &str| (self.places.of)(path) == partition;
        let whole = match op {
            Op::Partition(PartitionOp::Adopt { path, parent_cversion }) => {
                return self.cut(path, Some(parent_cversion));
            }
            Op::Partition(PartitionOp::AdoptOf { path, parent_cversion, .. }) => {
                return self.cut(path, Some(parent_cversion));
            }
            Op::Partition(PartitionOp::Disown { path }) => return self.cut(path, None),
            Op::Partition(PartitionOp::CreateAt(create)) => match cversion {
                Some(parent_cversion) => Op::Create { create, parent_cversion },
                // A copy of what says which programs there are.
                None => return,
            },
            Op::Partition(PartitionOp::DeleteAt { path }) if !is_copied(path) || is_own(path) => {
                Op::Delete { path }
            }
            Op::Partition(_) => return,
            Op::Create { create, .. } if is_copied(create.path) && !is_own(create.path) => return,
            Op::Delete { path } | Op::SetData { path, .. } | Op::SetAcl { path, .. } | Op::Check { path }
                if is_copied(path) && !is_own(path) =>
            {
                return;
            }
            // Each partition has its own, and they are the same.
            Op::CloseSession if partition != 0 => return,
            Op::Site(SiteOp::Token { .. }) if core::mem::replace(&mut self.gives, true) => return,
            Op::Site(SiteOp::Token { .. } | SiteOp::GiveRead { .. } | SiteOp::ReturnRead { .. }) => op,
            Op::Site(_) if partition != 0 => return,
            op => op,
        };
        whole.encode(&mut self.out);
        self.count += 1;
    }
}

impl Update<'_> {
    /// Whether something of it is there because its site is divided, or may be. Every update is asked that a divided site
    /// has prepared.
    #[must_use]
    pub fn is_divided(&self) -> bool {
        let mut is_divided = false;
        let read = self.for_each_op(|op| {
            is_divided |= match op {
                Op::Partition(_) | Op::CloseSession | Op::Site(_) => true,
                Op::Create { create, .. } => is_copied(create.path),
                Op::Delete { path }
                | Op::SetData { path, .. }
                | Op::SetAcl { path, .. }
                | Op::Check { path } => is_copied(path),
                _ => false,
            };
            Ok(())
        });
        is_divided || read.is_err()
    }
}

/// Appends what several partitions have prepared together as one update of the whole tree, with its length. Returns
/// whether there is anything left of it.
///
/// # Errors
/// When one of them is damaged.
pub fn whole_update(
    parts: &[(u8, Update<'_>)],
    places: &Places<'_>,
    out: &mut Vec<u8>,
) -> Result<bool, CorruptUpdate> {
    let Some((_, first)) = parts.first() else { return Ok(false) };
    let mut sides = Vec::with_capacity(parts.len());
    for (partition, update) in parts {
        sides.push(Side::new(*partition, update)?);
    }
    let mut merge = Merge { sides, places, out: Vec::new(), count: 0, gives: false };
    (0..merge.sides.len()).for_each(|at| merge.flush(at, None));
    if merge.count == 0 {
        return Ok(false);
    }
    let session = parts.iter().map(|(_, update)| update.session).find(|session| *session != 0);
    let start = update::begin(out, first.zxid, first.time_ms, session.unwrap_or(0));
    if merge.count > 1 || first.is_multi() && !is_by_itself(&merge.out, session.unwrap_or(0)) {
        update::begin_multi(out, merge.count);
    }
    out.extend_from_slice(&merge.out);
    update::end(out, start);
    Ok(true)
}

/// Whether one operation is never one of a multi: others look for it where it is alone.
fn is_by_itself(op: &[u8], session: i64) -> bool {
    let op = Op::decode_all(op, session).next();
    op.is_some_and(|op| matches!(op, Ok(Op::Site(_) | Op::CloseSession)))
}

impl Tree {
    /// The body of the reply to a multi that has just been prepared here, of whose operations the first `count` were asked
    /// for.
    #[must_use]
    pub fn reply_to_multi(&mut self, update: &Update<'_>, count: usize) -> Vec<u8> {
        // A znode's stat has how many children it will have, which others prepared before may take away.
        self.count_going();
        let (mut body, mut left) = (Vec::new(), count);
        let read = update.for_each_op(|op| {
            left = match left.checked_sub(1) {
                Some(left) => left,
                None => return Ok(()),
            };
            match op {
                Op::Create { create, .. } => {
                    let owner = match create.kind {
                        ZnodeKind::Ephemeral { session } => session,
                        _ => 0,
                    };
                    let stat = stat_of_absent(update, create.data.map_or(0, <[u8]>::len), owner);
                    MultiResults::created(&mut body, create.path, create.with_stat.then_some(&stat));
                }
                Op::Delete { .. } => MultiResults::deleted(&mut body),
                Op::SetData { path, data, version } => {
                    // What is behind it may have changed it once more, or taken it away.
                    let known = self.project(path, self.hasher.path(path)).map(|_| self.proposed_stat(path));
                    let stat = known.unwrap_or_else(|| stat_of_absent(update, 0, 0));
                    let data_length = data.map_or(0, <[u8]>::len) as i32;
                    MultiResults::data_set(&mut body, &Stat { version, data_length, ..stat });
                }
                _ => MultiResults::checked(&mut body),
            }
            Ok(())
        });
        debug_assert!(read.is_ok(), "it was prepared here");
        MultiResults::end(&mut body);
        body
    }

    /// Prepares a step of a change of the site as a whole. The first partition decides whether it may be.
    pub(crate) fn part_site(&mut self, part: &mut Part, step: SiteStep<'_>) -> Result<PartResult, ErrorCode> {
        let is_first = !self.nodes[ROOT_ID].is_absent();
        let stamp = part.stamp();
        let refused = |refusal| match refusal {
            TokenRefusal::NoZnode => ErrorCode::NoNode,
            TokenRefusal::Ephemeral => ErrorCode::NoChildrenForEphemerals,
            _ => ErrorCode::BadArguments,
        };
        let op = match step {
            SiteStep::Begin { site, hub } => SiteOp::Begin { site, hub },
            SiteStep::Reign { reign, hub, lost } => {
                let lost = SiteSet::from_bits(lost);
                self.check_reign(hub, lost).map_err(refused)?;
                SiteOp::Reign { reign, hub, lost }
            }
            SiteStep::Return { site } => SiteOp::Return { site },
            SiteStep::Level { level } => SiteOp::Level { level },
            SiteStep::Token { path, holder, is_home } => {
                if is_home {
                    self.check_token(path, holder).map_err(refused)?;
                }
                self.overlay.touch_mark(stamp.zxid, path, holder);
                SiteOp::Token { path, holder: self.said_holder(holder) }
            }
            SiteStep::Home { session, password, site } => {
                let known = match is_first {
                    true => Some(self.check_home(session, password, site)?),
                    false => self.proposed_session(session),
                };
                self.goes_home(session, known, site, stamp);
                SiteOp::Home { site, life: self.times_lost(site) }
            }
        };
        op.encode(&mut part.ops);
        Ok(PartResult::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Caller, Options, PartOp, Stamp, Updates};
    use alloc::string::ToString;
    use alloc::vec;
    use stoa_wire::{AclList, Create, Reader, Request};

    const STAMP: Stamp = Stamp { zxid: 9 << 11 | 1, time_ms: 7 };

    fn create<'a>(path: &'a str, acl: &'a [u8]) -> Request<'a> {
        let acl = AclList::decode(&mut Reader::new(acl)).unwrap();
        Request::Create(Create { path, data: None, acl, flags: 0, ttl_ms: 0 })
    }

    fn open_acl() -> Vec<u8> {
        let mut acl = Vec::new();
        stoa_wire::Acl::encode_list(&mut acl, stoa_wire::OPEN_ACL.iter().copied());
        acl
    }

    #[test]
    fn a_create_at_a_cut_is_one_create() {
        let acl = open_acl();
        let request = create("/x", &acl);
        let below = create("/x/y", &acl);
        let (mut first, mut second) = (Tree::new(Options::default()), Tree::new_part(Options::default()));
        let caller = Caller { session: 0, identities: &[] };
        let prepare = |tree: &mut Tree, ops: &[PartOp<'_>]| {
            let mut part: Part = tree.part_begin(STAMP, 0);
            ops.iter().for_each(|op| drop(tree.part_op(&mut part, *op, &caller).unwrap()));
            let mut batch = Vec::new();
            tree.part_keep(part, &mut batch);
            batch
        };
        let parents = prepare(&mut first, &[PartOp::Adopt(&request)]);
        let znodes = prepare(
            &mut second,
            &[PartOp::CreateAt { request: &request, path: "/x" }, PartOp::Whole(&below)],
        );
        let update = |batch: &[u8]| Updates::new(batch).next().unwrap().unwrap().describe().to_string();
        let of = |path: &str| u8::from(path.starts_with("/x"));
        let places = Places { own: 0, partitions: 2, of: &of, is_split: &|_| false };
        let (one, two) =
            (Updates::new(&parents).next().unwrap().unwrap(), Updates::new(&znodes).next().unwrap().unwrap());
        assert!(one.is_divided() && two.is_divided());
        let mut out = vec![];
        assert_eq!(whole_update(&[(0, one), (1, two)], &places, &mut out), Ok(true));
        let text = update(&out);
        assert!(text.contains("create \"/x\"") && text.contains("create \"/x/y\""), "{text}");
        // It can be applied where there is one tree.
        let whole = Updates::new(&out).next().unwrap().unwrap();
        let mut tree = Tree::new(Options::default());
        tree.apply(&whole, &mut ()).unwrap();
        assert!(tree.get("/x/y").is_some());
        assert_eq!(whole.concerns(&places), Ok(3));
    }
}
