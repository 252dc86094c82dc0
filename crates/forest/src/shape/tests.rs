use super::*;
use std::collections::BTreeSet;

/// Numbers from a seed (splitmix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound as u64).unwrap()
    }

    /// Some ids, with gaps.
    fn ids(&mut self, count: usize) -> Ids {
        let mut all: Vec<u8> = (1..=254).collect();
        (0..count).map(|_| all.swap_remove(self.below(all.len()))).collect()
    }
}

type Edge = (u8, u8, u8);

fn edges(shape: &Shape) -> BTreeSet<Edge> {
    let trees = (0..shape.trees()).flat_map(|tree| shape.servers().iter().map(move |id| (tree, id)));
    trees.filter_map(|(tree, id)| Some((tree, shape.parent(tree, id)?, id))).collect()
}

fn sequence(n: u8) -> Ids {
    (1..=n).collect()
}

/// Levels of a heap of so many.
fn levels(mut interiors: usize, children: usize) -> u8 {
    let (mut levels, mut width) = (0, 1);
    while interiors > 0 {
        interiors = interiors.saturating_sub(width);
        width *= children;
        levels += 1;
    }
    levels
}

fn check_tree(shape: &Shape, tree: u8, aside: &Ids, settings: Settings) {
    let servers = shape.servers();
    let able = servers.iter().filter(|id| !aside.contains(*id)).count();
    let group = servers.iter().filter(|id| !aside.contains(*id) && shape.colour(*id) == Some(tree));
    let group: Ids = group.collect();
    let (small, large) = (able / usize::from(shape.trees()), able.div_ceil(usize::from(shape.trees())));
    assert!((small..=large).contains(&group.len()), "{} of {able}", group.len());
    let root = shape.root(tree).unwrap();
    assert!(group.contains(root) && shape.parent(tree, root).is_none());
    let bound = fan(servers.len() - 1, group.len(), settings);
    let depth_max = levels(group.len(), settings.children().into()) + 1;
    // From the top, everybody is met once.
    let (mut met, mut queue) = (Ids::default(), vec![root]);
    while let Some(id) = queue.pop() {
        assert!(!met.contains(id), "{id} stands twice in {tree}");
        met.insert(id);
        assert!(shape.depth(tree, id).unwrap() <= depth_max);
        let children = shape.children(tree, id);
        assert!(children.len() <= bound, "{id} has {} children", children.len());
        assert!(children.is_empty() || group.contains(id), "{id} is an interior of another colour");
        for child in children {
            assert_eq!(shape.parent(tree, *child), Some(id));
            assert_eq!(shape.depth(tree, *child).unwrap(), shape.depth(tree, id).unwrap() + 1);
            assert!(shape.neighbours(id).contains(*child) && shape.neighbours(*child).contains(id));
        }
        queue.extend(children);
    }
    assert_eq!(met, servers);
}

#[test]
fn every_tree_spans_everybody_and_interiors_are_of_one_tree() {
    let mut rng = Rng(1);
    for round in 0..300 {
        let count = if round % 10 == 0 { 254 } else { 1 + rng.below(200) };
        let servers = rng.ids(count);
        let leader = servers.iter().nth(rng.below(count)).unwrap();
        let trees = 1 + u8::try_from(rng.below(9)).unwrap();
        let settings = Settings::new(trees, trees + u8::try_from(rng.below(5)).unwrap()).unwrap();
        let aside_odds = 1 + rng.below(20);
        let aside: Ids = servers.iter().filter(|_| rng.below(aside_odds) == 1).collect();
        let shape = Shape::new(&servers, leader, settings, &aside);
        let able = shape.servers().iter().filter(|id| !aside.contains(*id)).count();
        assert_eq!(usize::from(shape.trees()), able.min(trees.into()));
        assert_eq!(shape.servers().len(), count - 1);
        assert!(!shape.servers().contains(leader) && shape.colour(leader).is_none());
        for tree in 0..shape.trees() {
            check_tree(&shape, tree, &aside, settings);
        }
        assert_eq!(shape, Shape::new(&servers, leader, settings, &aside));
    }
}

#[test]
fn without_interiors_there_are_no_trees() {
    for (servers, aside) in [(vec![], vec![]), (vec![3], vec![]), (vec![3, 9], vec![9])] {
        let (servers, aside): (Ids, Ids) = (servers.into_iter().collect(), aside.into_iter().collect());
        let shape = Shape::new(&servers, 3, Settings::default(), &aside);
        assert_eq!((shape.trees(), shape.root(0), shape.colour(9)), (0, None, None));
        assert!(shape.children(0, 9).is_empty() && shape.neighbours(9).is_empty());
    }
}

#[test]
fn settings_have_bounds() {
    assert_eq!(Settings::new(5, 5), Some(Settings::default()));
    for (trees, children) in [(0, 5), (5, 4), (17, 17), (5, 65)] {
        assert_eq!(Settings::new(trees, children), None);
    }
}

/// How many steps the farthest server is away: a level more than where interiors are packed, which buys steadiness.
#[test]
fn depths_are_those_of_a_heap_and_a_level() {
    for (n, trees, children, most) in [
        (15, 5, 5, 3),
        (50, 5, 5, 4),
        (100, 5, 5, 4),
        (155, 5, 5, 4),
        (200, 5, 5, 5),
        (200, 9, 9, 4),
        (39, 3, 3, 4),
    ] {
        let shape = Shape::new(&sequence(n), 1, Settings::new(trees, children).unwrap(), &Ids::default());
        let pairs = (0..trees).flat_map(|tree| shape.servers().iter().map(move |id| (tree, id)));
        let depth = pairs.filter_map(|(tree, id)| shape.depth(tree, id)).max().unwrap();
        assert!(depth <= most, "{n} {trees}-{children}: {depth}");
        let neighbours = shape.servers().iter().map(|id| shape.neighbours(id).len()).max().unwrap();
        assert!(neighbours <= usize::from(2 * trees + children + 2), "{n} {trees}-{children}: {neighbours}");
    }
}

/// Edges that are others, in the mean, when one server leaves: those of the server itself are not counted.
fn mean_change(servers: &Ids, leader: u8, is_aside: bool) -> (usize, usize) {
    let settings = Settings::default();
    let whole = edges(&Shape::new(servers, leader, settings, &Ids::default()));
    let mut changes = Vec::new();
    for gone in servers.iter().filter(|id| *id != leader) {
        let (mut rest, mut aside) = (*servers, Ids::default());
        if is_aside {
            aside.insert(gone);
        } else {
            rest.remove(gone);
        }
        let after = edges(&Shape::new(&rest, leader, settings, &aside));
        changes.push(after.difference(&whole).filter(|edge| edge.2 != gone).count());
    }
    (changes.iter().sum::<usize>() / changes.len(), changes.into_iter().max().unwrap())
}

#[test]
fn one_that_leaves_changes_few_edges() {
    let mut rng = Rng(7);
    for (n, most) in [(15, 15), (50, 20), (100, 30), (200, 32)] {
        for servers in [sequence(n), rng.ids(n.into()), rng.ids(n.into())] {
            let leader = servers.iter().next().unwrap();
            let (left, worst) = mean_change(&servers, leader, false);
            let (aside, _) = mean_change(&servers, leader, true);
            println!("{n}: {left} (at worst {worst}) of {}, aside {aside}", 5 * (n - 2) as usize);
            assert!(left <= most && aside <= most, "{n}: {left} {aside}");
        }
    }
}
