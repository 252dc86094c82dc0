//! What the forest looks like: for each size and each pair of settings how deep its trees are, how many children a
//! server has in its tree (of those that have any), how many neighbours in all trees, and how many edges are others when
//! one server leaves, comes, or is put aside; and how long it takes to make it. The leader is not counted, nor are edges
//! of the server that comes or goes.
//!
//! `cargo run --release -p stoa-forest --example shape`

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::collections::BTreeSet;
use std::time::Instant;
use stoa_forest::{Ids, Settings, Shape};

type Edge = (u8, u8, u8);

const LEADER: u8 = 1;

fn edges(shape: &Shape) -> BTreeSet<Edge> {
    let pairs = (0..shape.trees()).flat_map(|tree| shape.servers().iter().map(move |id| (tree, id)));
    pairs.filter_map(|(tree, id)| Some((tree, shape.parent(tree, id)?, id))).collect()
}

fn mean(numbers: &[usize]) -> f64 {
    numbers.iter().sum::<usize>() as f64 / numbers.len().max(1) as f64
}

/// Edges of `after` that are not in `before`, without those of `id`.
fn others(after: &BTreeSet<Edge>, before: &BTreeSet<Edge>, id: u8) -> usize {
    after.difference(before).filter(|(_, parent, child)| *parent != id && *child != id).count()
}

fn row(n: u8, settings: Settings) {
    let servers: Ids = (1..=n).collect();
    let make = |servers: &Ids, aside: &Ids| Shape::new(servers, LEADER, settings, aside);
    let start = Instant::now();
    let shape = make(&servers, &Ids::default());
    let took_us = start.elapsed().as_micros();
    let pairs = || (0..shape.trees()).flat_map(|tree| shape.servers().iter().map(move |id| (tree, id)));
    let depths: Vec<usize> =
        pairs().filter_map(|(tree, id)| shape.depth(tree, id)).map(usize::from).collect();
    let children = pairs().map(|(tree, id)| shape.children(tree, id).len()).filter(|count| *count > 0);
    let children: Vec<usize> = children.collect();
    let neighbours: Vec<usize> = shape.servers().iter().map(|id| shape.neighbours(id).len()).collect();
    let whole = edges(&shape);
    let (mut leaves, mut comes, mut aside) = (Vec::new(), Vec::new(), Vec::new());
    for id in shape.servers().iter() {
        let mut rest = servers;
        rest.remove(id);
        let without = edges(&make(&rest, &Ids::default()));
        leaves.push(others(&without, &whole, id));
        comes.push(others(&whole, &without, id));
        aside.push(others(&edges(&make(&servers, &[id].into_iter().collect())), &whole, id));
    }
    let most = |numbers: &[usize]| numbers.iter().max().copied().unwrap_or(0);
    println!(
        "| {n} | {}-{} | {:.1} / {} | {:.1} / {} | {:.1} / {} | {} | {:.0} / {} | {:.0} | {:.0} | {took_us} |",
        settings.trees(),
        settings.children(),
        mean(&depths),
        most(&depths),
        mean(&children),
        most(&children),
        mean(&neighbours),
        most(&neighbours),
        whole.len(),
        mean(&leaves),
        most(&leaves),
        mean(&comes),
        mean(&aside),
    );
}

fn main() {
    println!(
        "| n | t-c | depth (mean / most) | children | neighbours | edges | others when one leaves | comes | is put aside | us |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for n in [5, 10, 15, 30, 50, 100, 155, 200, 254] {
        for (trees, children) in [(3, 3), (3, 5), (5, 5), (7, 7), (9, 9)] {
            if let Some(settings) = Settings::new(trees, children).filter(|_| n > 2 * trees) {
                row(n, settings);
            }
        }
    }
}
