//! Conversations between members, word by word. Each file of `tests/transcripts` has commands
//! (behind `>`) and what they lead to; `REWRITE=1` writes down anew what happens.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod world;

use stoa_group::{Change, Group};
use world::World;

fn numbers(words: &[&str]) -> Vec<u64> {
    words.iter().map(|word| word.parse().unwrap()).collect()
}

fn change(word: &str) -> Change {
    let (kind, id) = word.split_at(1);
    let id = id.parse().unwrap();
    match kind {
        "+" => Change::AddVoter(id),
        "~" => Change::AddLearner(id),
        "-" => Change::Remove(id),
        _ => panic!("{word}: no such change"),
    }
}

fn run(world: &mut World, command: &str) {
    let words: Vec<&str> = command.split_whitespace().collect();
    let (verb, rest) = words.split_first().unwrap();
    match *verb {
        "voters" => {
            let at = rest.iter().position(|word| *word == "others").unwrap_or(rest.len());
            let others = numbers(rest.get(at + 1..).unwrap_or_default());
            *world = World::new(&numbers(&rest[..at]), &others);
        }
        "settle" => world.settle(),
        "lose" => world.network.clear(),
        "deliver" => {
            for parcel in std::mem::take(&mut world.network) {
                world.deliver(&parcel);
            }
        }
        "propose" => {
            let id = rest[0].parse().unwrap();
            if !world.propose(id, rest[1]) {
                world.story.push(format!("{id} refuses"));
            }
        }
        "change" => {
            let changes: Vec<Change> = rest[1..].iter().map(|word| change(word)).collect();
            let mut refused = None;
            world.with(rest[0].parse().unwrap(), |group| refused = group.propose_changes(&changes).err());
            world.story.extend(refused.map(|error| format!("refused: {error}")));
        }
        _ => run_on_members(world, verb, &numbers(rest)),
    }
}

fn run_on_members(world: &mut World, verb: &str, ids: &[u64]) {
    match (verb, ids) {
        ("campaign", [id]) => world.with(*id, Group::campaign),
        ("tick", [id, count]) => (0..*count).for_each(|_| world.with(*id, Group::tick)),
        ("sync", [id]) => world.sync(*id),
        ("crash", [id]) => world.crash(*id, 0),
        ("start", [id]) => world.start(*id),
        ("read", [id, question]) => world.read(*id, *question),
        ("snapshot", [id, kept]) => world.take_snapshot(*id, *kept),
        ("transfer", [from, to]) => world.with(*from, |group| group.transfer(*to)),
        ("cut", [from, to]) => world.cuts.extend([(*from, *to), (*to, *from)]),
        ("mend", []) => world.cuts.clear(),
        _ => panic!("{verb}: no such command"),
    }
}

fn play(text: &str) -> String {
    let mut world = World::new(&[1], &[]);
    world.story.clear();
    let mut out = String::new();
    for line in text.lines() {
        let Some(command) = line.strip_prefix("> ") else {
            // What happened last time is not taken over; what explains it is.
            if line.is_empty() || line.starts_with('#') {
                out.push_str(line);
                out.push('\n');
            }
            continue;
        };
        out.push_str(line);
        out.push('\n');
        run(&mut world, command);
        for line in world.story.drain(..) {
            out.push_str(&line);
            out.push('\n');
        }
    }
    out
}

#[test]
fn members_say_what_is_written_down() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let played = play(&text);
        if std::env::var_os("REWRITE").is_some() {
            std::fs::write(&path, played).unwrap();
        } else {
            assert_eq!(played, text, "{}: REWRITE=1 writes down what happens now", path.display());
        }
    }
}
