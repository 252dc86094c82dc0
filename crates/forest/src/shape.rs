//! The shape of the forest: who passes on what to whom.
//!
//! The Giraffe paper (section III A) has a server build the trees one change after the other, and tells all others of
//! each. Here the shape is a pure function of what all know anyway: the list of servers, the leader, the settings, and
//! who is aside. So nobody is asked, nothing is elected, and servers that disagree for a moment do no harm: an append
//! is valid whichever way it came.
//!
//! Everybody but the leader stands in each tree, once. A server has one colour, which is the number of the tree where
//! it may have children; in all others it is a leaf. So an end of one server costs one tree, and everybody passes on
//! about as much as it receives. That needs `(n / trees) * children >= n - 1`, so never fewer children than trees.
//!
//! Little changes when a server comes or leaves. Colours, the order of interiors and the parents of leaves all follow
//! from weights, numbers as good as random that only depend on the ids concerned (rendezvous hashing with bounded
//! room). Those of a colour that are the most likely to lose it stand the lowest in its tree.

use crate::ids::Ids;
use alloc::vec;
use alloc::vec::Vec;

/// The most trees that a forest may have: frames of more would not be cheaper, and edges are connections.
pub(crate) const TREES_MAX: u8 = 16;

/// The most children that may be asked for.
pub(crate) const CHILDREN_MAX: u8 = 64;

/// How many trees there are, and how wide they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    trees: u8,
    children: u8,
}

impl Settings {
    /// A forest of `trees` trees (1 to 16; fewer where there are fewer servers), whose interiors stand
    /// in levels, each `children` times as wide as the one above it (`trees` to 64). `None` for other numbers. The paper calls them
    /// `MAX_COLOR_NUM` and `MAX_CHILDREN_SIZE`.
    #[must_use]
    pub fn new(trees: u8, children: u8) -> Option<Self> {
        let fits = (1..=TREES_MAX).contains(&trees) && (trees..=CHILDREN_MAX).contains(&children);
        fits.then_some(Self { trees, children })
    }

    /// How many trees there are at most.
    #[must_use]
    pub fn trees(&self) -> u8 {
        self.trees
    }

    /// How many times as wide as the one above it a level of interiors is.
    #[must_use]
    pub fn children(&self) -> u8 {
        self.children
    }
}

/// Five of each: enough up to 200 servers.
impl Default for Settings {
    fn default() -> Self {
        Self { trees: 5, children: 5 }
    }
}

/// What weights are for: the same ids weigh differently for each.
#[derive(Clone, Copy)]
enum Use {
    Colour = 1,
    Turn = 2,
    Parent = 3,
}

/// A number that is the same on every server, and as good as random.
fn weight(purpose: Use, tree: u8, first: u8, second: u8) -> u64 {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    for number in [purpose as u8, tree, first, second] {
        x = (x ^ u64::from(number)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
    }
    x ^ x >> 29
}

/// How many ids there can be, and a place for none.
const IDS: usize = 256;

/// One tree. Id 0 stands for nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tree {
    root: u8,
    parents: [u8; IDS],
    /// 1 for the root; 0 for who is not there.
    depths: [u8; IDS],
    /// Children of all, those of one server side by side.
    children: Vec<u8>,
    /// Where in `children` those of a server begin; the next one's begin where they end.
    begins: Vec<u16>,
}

/// Who passes on what to whom. Building one takes time in proportion to the square of the number of servers (about a
/// millisecond for 254), so keep it as long as its epoch lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    leader: u8,
    servers: Ids,
    colours: [Option<u8>; IDS],
    trees: Vec<Tree>,
}

impl Shape {
    /// The shape for these servers, in any order, when `leader` leads. Those in `aside` are leaves everywhere: they are
    /// dead, slow, or have just come. There are no trees when nobody can be an interior.
    #[must_use]
    pub fn new(servers: &Ids, leader: u8, settings: Settings, aside: &Ids) -> Self {
        let mut servers = *servers;
        servers.remove(leader);
        let able: Vec<u8> = servers.iter().filter(|id| !aside.contains(*id)).collect();
        let trees = settings.trees.min(u8::try_from(able.len()).unwrap_or(u8::MAX));
        let groups = groups(&able, trees);
        let mut colours = [None; IDS];
        for (tree, group) in (0..trees).zip(&groups) {
            group.iter().for_each(|id| colours[usize::from(*id)] = Some(tree));
        }
        // Who is aside acknowledges by way of one tree all the same.
        for id in servers.iter().filter(|id| aside.contains(*id)) {
            colours[usize::from(id)] = (0..trees).max_by_key(|tree| weight(Use::Colour, *tree, id, 0));
        }
        let trees = (0..trees).zip(&groups).map(|(tree, group)| Tree::new(tree, group, &servers, settings));
        Self { leader, servers, colours, trees: trees.collect() }
    }

    /// How many trees there are.
    #[must_use]
    pub fn trees(&self) -> u8 {
        u8::try_from(self.trees.len()).expect("settings bound it")
    }

    /// Who leads: the parent of all roots, and in no tree itself.
    #[must_use]
    pub fn leader(&self) -> u8 {
        self.leader
    }

    /// All that stand in the trees.
    #[must_use]
    pub fn servers(&self) -> Ids {
        self.servers
    }

    /// Who is at the top of a tree; `None` when there is no such tree.
    #[must_use]
    pub fn root(&self, tree: u8) -> Option<u8> {
        self.tree(tree).map(|tree| tree.root)
    }

    /// Who passes on to `id` what comes down this tree; `None` for its root, which is given it by the leader, and for
    /// who is not in it.
    #[must_use]
    pub fn parent(&self, tree: u8, id: u8) -> Option<u8> {
        let parent = self.tree(tree)?.parents[usize::from(id)];
        (parent != 0).then_some(parent)
    }

    /// To whom `id` passes on what comes down this tree, those first who have others below them.
    #[must_use]
    pub fn children(&self, tree: u8, id: u8) -> &[u8] {
        let Some(tree) = self.tree(tree) else { return &[] };
        let (begin, end) = (tree.begins[usize::from(id)], tree.begins[usize::from(id) + 1]);
        &tree.children[usize::from(begin)..usize::from(end)]
    }

    /// In which tree `id` may have children, and up which it acknowledges. `None` for the leader and for strangers.
    #[must_use]
    pub fn colour(&self, id: u8) -> Option<u8> {
        self.colours[usize::from(id)]
    }

    /// How many steps a frame takes from the leader to `id`; `None` for who is not in this tree.
    #[must_use]
    pub fn depth(&self, tree: u8, id: u8) -> Option<u8> {
        let depth = self.tree(tree)?.depths[usize::from(id)];
        (depth != 0).then_some(depth)
    }

    /// Everybody who is a parent or a child of `id` in some tree; for the leader, the roots.
    #[must_use]
    pub fn neighbours(&self, id: u8) -> Ids {
        let mut near = Ids::default();
        for tree in 0..self.trees() {
            if id == self.leader {
                near.extend(self.root(tree));
            } else if self.root(tree) == Some(id) {
                near.insert(self.leader);
            }
            near.extend(self.parent(tree, id));
            near.extend(self.children(tree, id).iter().copied());
        }
        near
    }

    /// Whether a frame comes to `id` down this tree by the same servers as in another shape.
    pub(crate) fn has_way(&self, other: &Self, tree: u8, id: u8) -> bool {
        self.ancestors(tree, id).eq(other.ancestors(tree, id))
    }

    /// All above `id` in a tree, the nearest first.
    fn ancestors(&self, tree: u8, id: u8) -> impl Iterator<Item = u8> {
        core::iter::successors(self.parent(tree, id), move |parent| self.parent(tree, *parent))
    }

    fn tree(&self, tree: u8) -> Option<&Tree> {
        self.trees.get(usize::from(tree))
    }
}

impl Extend<u8> for Ids {
    fn extend<I: IntoIterator<Item = u8>>(&mut self, ids: I) {
        ids.into_iter().for_each(|id| self.insert(id));
    }
}

/// The interiors of each tree, the one at the top first: sizes differ by at most one.
///
/// All pairs of a server and a tree are gone through, the heaviest first, and one that still has room for both counts.
/// So a server that leaves is followed by few others in its colour: those that were kept out of the colour weigh the
/// least of all in it, come in at its end, and so stand where they have nobody below them.
fn groups(able: &[u8], trees: u8) -> Vec<Vec<u8>> {
    let mut groups = vec![Vec::new(); usize::from(trees)];
    if trees == 0 {
        return groups;
    }
    let (size, mut larger) = (able.len() / usize::from(trees), able.len() % usize::from(trees));
    let pairs =
        able.iter().flat_map(|id| (0..trees).map(|tree| (weight(Use::Colour, tree, *id, 0), *id, tree)));
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort_unstable_by(|one, other| other.cmp(one));
    let mut placed = Ids::default();
    for (_, id, tree) in pairs {
        let group = &mut groups[usize::from(tree)];
        if placed.contains(id) || group.len() > size || group.len() == size && larger == 0 {
            continue;
        }
        if group.len() == size {
            larger -= 1;
        }
        group.push(id);
        placed.insert(id);
    }
    groups
}

/// The most children that anybody has: a tenth more than needed, as else the place of one leaf would decide those of
/// many.
fn fan(others: usize, interiors: usize, settings: Settings) -> usize {
    let interiors = interiors.max(1);
    (usize::from(settings.children) + 1).max((11 * others).div_ceil(10 * interiors))
}

/// Makes the heaviest of `parents` that has more room than `kept` the parent of `id`.
fn place(tree: u8, id: u8, parents: &mut [(u8, usize)], kept: usize, edges: &mut Vec<(u8, u8)>) {
    let open = parents.iter_mut().filter(|(_, room)| *room > kept);
    let best = open.max_by_key(|(parent, _)| (weight(Use::Parent, tree, id, *parent), *parent));
    let (parent, room) = best.expect("all together have more room than there are others");
    edges.push((*parent, id));
    *room -= 1;
}

impl Tree {
    /// `group` has the interiors, and is not empty.
    fn new(tree: u8, group: &[u8], servers: &Ids, settings: Settings) -> Self {
        let room = fan(servers.len() - 1, group.len(), settings);
        let mut edges = Vec::with_capacity(servers.len());
        let mut free: Vec<(u8, usize)> = group.iter().map(|id| (*id, room)).collect();
        // A heap in its levels: as deep as one, but who leaves does not move all others to other parents.
        let (mut level, mut width) = (0..1, usize::from(settings.children));
        while level.end < group.len() {
            let below = level.end..group.len().min(level.end + width);
            for id in &group[below.clone()] {
                let kept = room - usize::from(settings.children) - 1;
                place(tree, *id, &mut free[level.clone()], kept, &mut edges);
            }
            (level, width) = (below, width * usize::from(settings.children));
        }
        let interiors: Ids = group.iter().copied().collect();
        let leaves = servers.iter().filter(|id| !interiors.contains(*id));
        let mut leaves: Vec<(u64, u8)> = leaves.map(|id| (weight(Use::Turn, tree, id, 0), id)).collect();
        leaves.sort_unstable();
        for (_, leaf) in leaves {
            place(tree, leaf, &mut free, 0, &mut edges);
        }
        Self::from_edges(group[0], &edges)
    }

    /// Parents come before their children.
    fn from_edges(root: u8, edges: &[(u8, u8)]) -> Self {
        let (mut parents, mut depths, mut begins) = ([0; IDS], [0; IDS], vec![0_u16; IDS + 1]);
        depths[usize::from(root)] = 1;
        for (parent, child) in edges {
            parents[usize::from(*child)] = *parent;
            depths[usize::from(*child)] = depths[usize::from(*parent)] + 1;
            begins[usize::from(*parent) + 1] += 1;
        }
        for id in 0..IDS {
            begins[id + 1] += begins[id];
        }
        let (mut ends, mut children) = (begins.clone(), vec![0; edges.len()]);
        for (parent, child) in edges {
            let end = &mut ends[usize::from(*parent)];
            children[usize::from(*end)] = *child;
            *end += 1;
        }
        Self { root, parents, depths, children, begins }
    }
}

#[cfg(test)]
mod tests;
