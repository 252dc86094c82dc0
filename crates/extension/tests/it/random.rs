//! Programs that nobody has written: whatever the bytes, nothing panics, and nothing takes more than it may.

use crate::world::*;
use proptest::prelude::*;
use stoa_extension::{EventKind, Limits, OperationKind, Program, Reply};

/// Everything that the language has, so that mutations of it are near to what may run.
const EVERYTHING: &str = r#"
const N = 3;
on_operation("read", "/x");
on_operation("create", "/in/**");
on_event("deleted", "/d/*");
fn helper(a, b) { if a > b { return a - b; } else { return b - a; } }
fn read(request) {
    let all = local.sub_objects("/d");
    let texts = [];
    for (one, i) in all { if i == N { break; } texts.push(`${one.name}=${one.data}`); }
    let map = #{a: 1, "b": [2, 3], c: #{d: ()}};
    map.b[0] += helper(7, 9); map.c.d = texts;
    let next = local.read("/ctr").data.to_int() + 1;
    if !local.exists("/n") && next % 2 == 0 || "a" in map { local.create("/n", next.pad(5)); }
    local.update("/ctr", next);
    local.cas("/ctr", next, -next * 2 / 3);
    let path = local.create_sequential("/d/s-", "x".to_string());
    local.monitor("/mine"); local.delete(path);
    for i in 0..=N { for k in map.keys().sorted() { continue; } }
    if "x,y".split(",").len() != 2 { throw "no"; }
    return path.name_of().sub_string(1, 3) + path.parent_of() + texts.join(";") + "ab".index_of("b");
}
fn create(request) { local.block("/in/" + request.name); }
fn deleted(event) { local.suppress(); local.notify(event.name.len(), event.path); }
"#;

const WORDS: &[&str] = &[
    "for",
    "in",
    "if",
    "else",
    "return",
    "let",
    "const",
    "fn",
    "throw",
    "break",
    "continue",
    "local",
    "request",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    ";",
    ",",
    ".",
    "..",
    "..=",
    "+=",
    "=",
    "==",
    "#{",
    "`",
    "${",
    "\"",
    "'",
    "|",
    "||",
    "&&",
    "!",
    "-",
    "0",
    "1",
    "9223372036854775807",
    "a",
    "texts",
    "map",
    "/*",
    "*/",
    "//",
    "\\",
    "\u{e9}",
    "\u{1f600}",
    ".push(",
    ".len()",
    "local.read(",
    "switch",
    "while",
    "loop",
    "this",
    "?.",
    "??",
    "=>",
    "import",
    "eval(",
    "Fn(",
];

/// Cuts, doubles, swaps and puts in, at places that are given.
fn mutated(changes: &[(usize, usize, u8, usize)]) -> String {
    let mut text: Vec<char> = EVERYTHING.chars().collect();
    for (from, len, how, word) in changes {
        let from = from % text.len().max(1);
        let to = (from + len).min(text.len());
        match how % 4 {
            0 => drop(text.drain(from..to)),
            1 => {
                let part: Vec<char> = text[from..to].to_vec();
                text.splice(from..from, part);
            }
            2 => drop(text.splice(from..from, WORDS[word % WORDS.len()].chars())),
            _ => drop(text.splice(from..to, WORDS[word % WORDS.len()].chars())),
        }
    }
    text.into_iter().collect()
}

fn world() -> World {
    let mut world = World::new();
    for (path, data) in [("/ctr", "41"), ("/d", ""), ("/d/a", "1"), ("/d/b", "\u{e9}"), ("/in", "")] {
        world.create(path, data.as_bytes());
    }
    world
}

/// Compiles it, and calls it in every way if that can be done.
fn try_out(source: &str) -> bool {
    let Ok(program) = Program::compile("random", source, &Limits::default()) else {
        return false;
    };
    let mut world = world();
    for kind in OperationKind::ALL {
        // The world checks that a call that fails leaves no trace.
        let _ = world.call(&program, &request(*kind, "/x"));
    }
    let _ = world.event(&program, &event(EventKind::Deleted, "/d/a"));
    assert_eq!(world.tree.digest(), world.tree.recomputed_digest());
    true
}

#[test]
fn everything_at_once_runs() {
    let program = compiled(EVERYTHING);
    let mut world = world();
    let reply = world.read(&program, "/x").unwrap();
    assert_eq!(reply, Reply::Data("-00/da=1;b=\u{e9}1".as_bytes().into()));
    assert_eq!(world.data("/ctr").unwrap(), b"-28");
    assert!(try_out(EVERYTHING));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn arbitrary_bytes_are_no_danger(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        try_out(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn arbitrary_words_are_no_danger(words in prop::collection::vec(0..WORDS.len(), 0..60)) {
        let words: Vec<&str> = words.into_iter().map(|word| WORDS[word]).collect();
        try_out(&words.join(" "));
        try_out(&reading(&words.join(" ")));
    }

    #[test]
    fn mutated_programs_are_no_danger(
        changes in prop::collection::vec((any::<usize>(), 0_usize..12, any::<u8>(), any::<usize>()), 1..4),
    ) {
        try_out(&mutated(&changes));
    }
}

/// The mutations would show little if none of them could run.
#[test]
fn many_mutated_programs_can_run() {
    let mutations = (0..400_usize).map(|n| mutated(&[(n * 7919, n % 5, (n % 4) as u8, n)]));
    let running = mutations.filter(|source| try_out(source)).count();
    assert!(running > 40, "{running} of 400");
}
