//! Programs that mean no good. Each has its clear error, and a bound on the memory and the time that it takes.

use crate::world::*;
use allocation_counter::measure;
use std::time::{Duration, Instant};
use stoa_extension::{Limits, Program};

/// What a program may hold at any moment while it is compiled and called: the limit on memory, what the
/// parser makes of the longest source, and what the update and the tree take.
const BYTES_MAX: u64 = 3 * 1024 * 1024;
/// Far above what is measured (the slowest takes 15 ms where this was written, built for tests), for
/// machines that do much else.
const TIME_MAX: Duration = Duration::from_secs(2);

struct Case {
    name: &'static str,
    source: String,
    /// What the error says.
    wanted: &'static str,
}

/// In the body of a handler.
fn body(name: &'static str, body: impl AsRef<str>, wanted: &'static str) -> Case {
    whole(name, reading(body.as_ref()), wanted)
}

fn whole(name: &'static str, source: impl Into<String>, wanted: &'static str) -> Case {
    Case { name, source: source.into(), wanted }
}

fn nested(open: &str, inner: &str, close: &str, times: usize) -> String {
    format!("{}{inner}{}", open.repeat(times), close.repeat(times))
}

/// A program beside whose handler there is something.
fn beside(what: &str) -> String {
    format!("{}\n{what}\n", reading("return 1;"))
}

const STEPS: &str = "its limit `steps` of 10000";
const MEMORY: &str = "its limit `memory_bytes` of 2097152";
const NESTING: &str = "its limit `nesting` of 16";
const DEPTH: &str = "the limit `depth` of 64";
const NO_LOOP: &str = "the only loop is `for` over an array or a range";
const NO_PATH: &str = "is no path";
const CLOSED: &str = "is closed to programs";

/// Never ending, or ending too late.
fn endless() -> Vec<Case> {
    vec![
        body("loop", "loop { }", NO_LOOP),
        body("while", "while true { }", NO_LOOP),
        body("do", "do { } while true;", NO_LOOP),
        body("do until", "do { } until false;", NO_LOOP),
        body("loop as a value", "let x = loop { break 1; };", "a block is no value"),
        body("a huge range", "for i in 0..9223372036854775807 { }", STEPS),
        body("the hugest range", "for i in 0..=9223372036854775807 { }", STEPS),
        body(
            "a range from the least number",
            "for i in -9223372036854775807..9223372036854775807 { }",
            STEPS,
        ),
        body("ranges in ranges", nested("for i in 0..1000 {", "", "}", 8), STEPS),
        body(
            "a list that grows while it is gone through",
            "let a = [1]; for x in a { a.push(x); } for y in a { for z in 0..100000 { a.push(1); } }",
            STEPS,
        ),
        whole("recursion", beside("fn f(n) { return f(n + 1); }"), "`f` calls itself"),
        whole(
            "recursion of the handler",
            "on_operation(\"read\", \"/x\"); fn read(r) { return read(r); }",
            "`read` calls itself",
        ),
        whole(
            "two that call each other",
            beside("fn f(n) { g(n); } fn g(n) { f(n); }"),
            "calls itself, directly or by way of others",
        ),
        whole(
            "a ring of functions",
            beside(&(0..40).map(|n| format!("fn f{n}() {{ f{}(); }}\n", (n + 1) % 40)).collect::<String>()),
            "calls itself, directly or by way of others",
        ),
        whole(
            "a deep chain of functions",
            beside(
                &((0..30).map(|n| format!("fn f{n}() {{ f{}(); }}\n", n + 1)).collect::<String>()
                    + "fn f30() { }"),
            ),
            "more than the limit `call_depth` of 8",
        ),
        whole(
            "functions that double the work",
            (0..6)
                .map(|n| format!("fn f{n}() {{ {} }}\n", format!("f{}();", n + 1).repeat(10)))
                .collect::<String>()
                + "fn f6() { for i in 0..10 { } }\n"
                + &*reading("f0();"),
            STEPS,
        ),
        whole(
            "too many functions",
            beside(&(0..70).map(|n| format!("fn f{n}() {{ }}\n")).collect::<String>()),
            "the limit `functions` of 64",
        ),
        body(
            "a sort of many",
            "let a = []; for i in 0..9000 { a.push(-i * 7919 % 10007); } return a.sorted().len() + a.sorted().len();",
            STEPS,
        ),
        body(
            "a search in a long text",
            format!(
                "let a = \"{}\"; let b = [a, a, a, a, a, a, a, a].join(\"\"); for i in 0..20000 {{ b.contains(\"y\") == 1 || false == a.contains(\"z\"); }}",
                "x".repeat(8000)
            ),
            "nothing is done with this value",
        ),
        body(
            "a search in a long text, used",
            format!(
                "let a = \"{}\"; let n = 0; for i in 0..8000 {{ if a.contains(\"y\") {{ n += 1; }} }}",
                "x".repeat(8000)
            ),
            STEPS,
        ),
    ]
}

/// Too much memory.
fn bombs() -> Vec<Case> {
    vec![
        body("a text that doubles", "let s = \"x\"; for i in 0..64 { s += s; }", MEMORY),
        body("a text in a text", "let s = \"xxxxxxxx\"; for i in 0..64 { s = `${s}${s}${s}${s}`; }", MEMORY),
        body("an array that grows", "let a = []; for i in 0..49000 { a.push(\"x\"); }", "than its limit"),
        body("arrays within arrays", "let a = [1]; for i in 0..100 { a = [a, a]; }", NESTING),
        body("an array within itself", "let a = [1]; for i in 0..100 { a[0] = a; }", NESTING),
        body("an array pushed into itself", "let a = []; for i in 0..100 { a.push(a); }", NESTING),
        body("maps within maps", "let m = #{}; for i in 0..100 { m = #{a: m, b: m}; }", NESTING),
        body("a map within itself", "let m = #{}; for i in 0..100 { m.x = m; }", NESTING),
        body(
            "deep by an index",
            "let m = #{a: #{a: #{a: 1}}}; let d = [[[[[[[[[[[[[[1]]]]]]]]]]]]]]; m.a.a.a = d;",
            NESTING,
        ),
        body(
            "shared arrays that are compared",
            "let a = [1, 1]; let b = [1, 1]; for i in 0..14 { a = [a, a]; b = [b, b]; } let c = 0; for i in 0..9 { if a == b { c += 1; } }",
            STEPS,
        ),
        body(
            "copies of an array",
            "let a = []; for i in 0..1000 { a.push(i); } let all = []; for i in 0..1000 { let b = a; b.push(1); all.push(b); }",
            MEMORY,
        ),
        body("a map of many keys", "let m = #{}; for i in 0..12000 { m[`${i}`] = i; }", "than its limit"),
        body(
            "a map of long keys",
            "let k = \"k\"; for i in 0..14 { k += k; } let m = #{}; for i in 0..1000 { m[k + i] = 1; }",
            MEMORY,
        ),
        body(
            "a text that is split",
            "let s = \"a,\"; for i in 0..15 { s += s; } return s.split(\",\").len();",
            "than its limit",
        ),
        body(
            "texts that are joined",
            "let s = \"xxxxxxxxxxxxxxxx\"; for i in 0..12 { s += s; } let a = [s, s, s, s, s, s, s, s]; for i in 0..40 { a = [a.join(s), s]; }",
            MEMORY,
        ),
        body(
            "arrays that are copied to be sorted",
            "let a = []; for i in 0..2000 { a.push(1); } let all = []; for i in 0..20 { all.push(a.sorted()); }",
            "than its limit",
        ),
        body(
            "many variables",
            (0..1500).map(|n| format!("let v{n}=1;")).collect::<String>() + "return v1;",
            "1",
        ),
        body(
            "a big znode, read again and again",
            "local.create(\"/big\", \"x\"); let s = \"xxxxxxxxxxxxxxxx\"; for i in 0..12 { s += s; } local.update(\"/big\", s); let a = []; for i in 0..100 { a.push(local.read(\"/big\")); }",
            "its limit `read_bytes` of 1048576",
        ),
        body(
            "a huge reply",
            "let s = \"xxxxxxxxxxxxxxxx\"; for i in 0..10 { s += s; } return [s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s].join(\"\");",
            "its limit `reply_bytes` of 262144",
        ),
        body(
            "a huge literal",
            format!("return \"{}\";", "x".repeat(20_000)),
            "more than its limit `source_bytes` of 16384",
        ),
        body("a number too large", "return 99999999999999999999;", "99999999999999999999"),
        body("an array written down", format!("let a = [{}]; return a.len();", "1,".repeat(7900)), "7900"),
        body("a huge exception", "let s = \"x\"; for i in 0..17 { s += s; } throw s;", "thrown: xxxx"),
    ]
}

/// Too deep for the stack.
fn towers() -> Vec<Case> {
    vec![
        body("brackets", format!("return {};", nested("(", "1", ")", 8000)), DEPTH),
        body("blocks", nested("{", "", "}", 8000), DEPTH),
        body("arrays", format!("return {};", nested("[", "1", "]", 8000)), DEPTH),
        body("maps", format!("return {};", nested("#{a:", "1", "}", 3000)), DEPTH),
        body("negations", format!("return {}true;", "!".repeat(16000)), DEPTH),
        body("minus signs", format!("return {}1;", "- ".repeat(8000)), DEPTH),
        body("sums", format!("return 1{};", "+1".repeat(8000)), DEPTH),
        body("dots", format!("return request{};", ".a".repeat(8000)), DEPTH),
        body("indices", format!("return request{};", "[0]".repeat(5000)), DEPTH),
        body("calls of methods", format!("return request{};", ".len()".repeat(2500)), DEPTH),
        body("ifs", nested("if true {", "", "}", 1500), DEPTH),
        body("else ifs", format!("if true {{}} {}", "else if true {}".repeat(1000)), DEPTH),
        body("loops", nested("for i in 0..1 {", "", "}", 1000), DEPTH),
        body("texts within texts", format!("return {};", nested("`${", "1", "}`", 3000)), DEPTH),
        body("closures", format!("return {}1;", "|x| ".repeat(4000)), DEPTH),
        body("powers", format!("return 2{};", "**2".repeat(5000)), DEPTH),
        body(
            "comments within comments",
            format!("{}{} return 1;", "/*".repeat(4000), "*/".repeat(4000)),
            "1",
        ),
        body("a comment without end", "/* /* */ return 1;", "Expecting '}' to terminate this block"),
        // As deep as it may be in each of as many functions as there may be.
        whole(
            "depth in each of a chain of functions",
            (0..7)
                .map(|n| {
                    format!(
                        "fn f{n}(n) {{ return {}; }}\n",
                        nested("[", &format!("f{}(n)", n + 1), "][0]", 14)
                    )
                })
                .collect::<String>()
                + "fn f7(n) { return n; }"
                + &*reading("return f0(7);"),
            "more than the limit `call_depth` of 8",
        ),
        whole(
            "negations in each of a chain of functions",
            (0..6)
                .map(|n| format!("fn f{n}(n) {{ return {}f{}(n); }}\n", "!".repeat(54), n + 1))
                .collect::<String>()
                + "fn f6(n) { return n; }"
                + &*reading("return f0(true);"),
            "true",
        ),
        whole(
            "depth in each of a chain of functions that is short enough",
            (0..6)
                .map(|n| {
                    format!(
                        "fn f{n}(n) {{ return {}; }}\n",
                        nested("[", &format!("f{}(n)", n + 1), "][0]", 14)
                    )
                })
                .collect::<String>()
                + "fn f6(n) { return n; }"
                + &*reading("return f0(7);"),
            "7",
        ),
    ]
}

/// Out of the box.
fn escapes() -> Vec<Case> {
    vec![
        body("eval", "eval(\"1\");", "`eval`"),
        body("eval as a value", "let x = eval(\"1\");", "`eval`"),
        body("import", "import \"a\" as a;", "`import` is a reserved word"),
        body("export", "export x;", "`export` is a reserved word"),
        body("a function pointer", "let f = Fn(\"read\"); f.call(1);", "there is no function `Fn`"),
        body("a call by name", "call(\"read\", 1);", "there is no function `call`"),
        body("curry", "return \"a\".curry(1);", "there is no function `curry`"),
        body(
            "a closure",
            "let f = |x| x + 1; return f.call(1);",
            "this expression is not part of the language",
        ),
        body(
            "a closure without parameters",
            "let f = || 1; return f;",
            "this expression is not part of the language",
        ),
        body("this", "return this.x;", "`this`"),
        whole("a method of a type", beside("fn int.f() { return this; }"), "is a function of a type"),
        whole("a private function", beside("private fn f() { return 1; }"), "1"),
        body("time", "return timestamp();", "there is no function `timestamp`"),
        body("random", "return rand();", "there is no function `rand`"),
        body("sleep", "sleep(10);", "there is no function `sleep`"),
        body("print", "for i in 0..1000000 { print(\"x\"); }", "there is no function `print`"),
        body("debug", "debug(1);", "there is no function `debug`"),
        body("the type of", "return type_of(1);", "there is no function `type_of`"),
        body("the scope", "return is_def_var(\"x\");", "there is no function `is_def_var`"),
        body(
            "catch a breach",
            "try { for i in 0..1000000 { } } catch { return 1; }",
            "`try` is not part of the language",
        ),
        body(
            "switch",
            "switch 1 { 0..9223372036854775807 => 1, _ => 2 }",
            "`switch` is not part of the language",
        ),
        body("switch as a value", "let x = switch 1 { 1 => 2, _ => 3 };", "a block is no value"),
        body("threads", "spawn(1);", "`spawn` is a reserved word"),
        body("a global", "return global::X;", "line 3, column 14: Expecting ';'"),
        body("local shadowed by let", "let local = 1;", "`local` is the tree"),
        body("local shadowed by a constant", "const local = 1;", "`local` is the tree"),
        body("local shadowed by a loop", "for local in [1] { }", "`local` is the tree"),
        body("local assigned to", "local = 1;", "there is no variable `local`"),
        whole("local shadowed by a parameter", beside("fn f(local) { }"), "`local` is the tree"),
        whole("local shadowed by a function", beside("fn local() { }"), "`local` is the tree"),
        whole("local shadowed outside", beside("const local = 1;"), "`local` is the tree"),
        body(
            "a name that looks like another",
            "let l\u{43e}cal = 1; return l\u{43e}cal;",
            "line 3, column 6: Unexpected",
        ),
        body("text that goes the other way", "return \"\u{202e}\".len(); // \u{202e} } fn x", "1"),
        body("a NUL in the source", "return \0 1;", "line 3, column 8: Unexpected"),
        body("an unknown escape", "return \"\\q\";", "Invalid escape sequence"),
        body("an operator of one's own", "return 1 <=> 2;", "line 3, column 12: Unexpected '>'"),
        whole("nothing", "", "subscribes to nothing"),
        whole("only a comment", "// nothing", "subscribes to nothing"),
        whole(
            "too many subscriptions",
            beside(&"on_operation(\"read\", \"/y\");".repeat(17)),
            "the limit `subscriptions` of 16",
        ),
        whole(
            "a pattern that is everything but a path",
            "on_operation(\"read\", \"/../x\"); fn read(r) { }",
            "a pattern is a path",
        ),
        whole(
            "a pattern that is put together",
            "const P = \"/x\"; on_operation(\"read\", P); fn read(r) { }",
            "outside of functions",
        ),
    ]
}

/// Where they have no business in the tree.
fn trespassers() -> Vec<Case> {
    vec![
        body("up", "local.read(\"/a/../zookeeper\");", NO_PATH),
        body("here", "local.read(\"/./a\");", NO_PATH),
        body("an empty name", "local.create(\"/a//b\");", NO_PATH),
        body("a slash at the end", "local.delete(\"/a/\");", NO_PATH),
        body("relative", "local.create(\"a\");", NO_PATH),
        body("no path at all", "local.create(\"\");", NO_PATH),
        body("a NUL", "local.create(\"/a\\0b\");", "Invalid escape sequence"),
        body("a NUL by another way", "local.create(\"/a\\x00b\");", NO_PATH),
        body("a path that is no text", "local.read(1);", "a path has to be a text and is a number"),
        body("the service's own", "local.read(\"/zookeeper\");", CLOSED),
        body("the configuration", "local.update(\"/zookeeper/config\", \"x\");", CLOSED),
        body("a quota", "local.delete(\"/zookeeper/quota/a/zookeeper_limits\");", CLOSED),
        body("another program", "local.create(\"/em/evil\", \"x\");", CLOSED),
        body("itself", "local.delete(\"/em/test\");", CLOSED),
        body("all programs", "local.sub_objects(\"/em\");", CLOSED),
        body("telling others", "local.notify(1, \"/a\");", "local.notify is for handlers of an event only"),
        body(
            "keeping back what is no event",
            "local.suppress();",
            "local.suppress is for handlers of an event only",
        ),
        body("the root", "local.delete(\"/\");", "BadArguments"),
        body(
            "an ephemeral of somebody else",
            "local.monitor(2, \"/mine\");",
            "a path has to be a text and is a number",
        ),
        body(
            "a child of an ephemeral",
            "local.monitor(\"/e\"); local.create(\"/e/c\");",
            "NoChildrenForEphemerals",
        ),
        body("too many znodes", "for i in 0..5000 { local.exists(\"/a\"); }", "its limit `znodes` of 1024"),
        body(
            "too many new znodes",
            "for i in 0..5000 { local.create_sequential(\"/n\"); }",
            "its limit `znodes` of 1024",
        ),
        body(
            "too much written",
            "let s = \"xxxxxxxxxxxxxxxx\"; for i in 0..10 { s += s; } for i in 0..100 { local.create_sequential(\"/n\", s); }",
            "its limit `written_bytes` of 262144",
        ),
        body(
            "a long name",
            "let s = \"xxxxxxxxxxxxxxxx\"; for i in 0..14 { s += s; } local.create(\"/\" + s);",
            "its limit `memory_bytes` of 2097152",
        ),
        body("itself, again", "local.create(\"/x\"); local.create(\"/x\");", "NodeExists"),
        body("its own trigger", "return local.read(\"/x\").data;", "NoNode"),
        body(
            "an impossible version",
            "local.delete(\"/a\", 9999999999);",
            "there can be no version 9999999999",
        ),
        body("a number that is none", "return request.data.to_int();", "is no number of 64 bits"),
    ]
}

/// Compiles and calls. What it says, or returns.
fn outcome(world: &mut World, source: &str) -> String {
    match Program::compile("hostile", source, &Limits::default()) {
        Err(error) => error.to_string(),
        Ok(program) => match world.read(&program, "/x") {
            Err(error) => error.to_string(),
            Ok(stoa_extension::Reply::Data(data)) => String::from_utf8_lossy(&data).into_owned(),
            Ok(other) => format!("{other:?}"),
        },
    }
}

fn try_all(cases: Vec<Case>) {
    let mut wrong = Vec::new();
    for Case { name, source, wanted } in cases {
        let mut world = World::new();
        let before = world.tree.digest();
        let (began, mut said) = (Instant::now(), String::new());
        let used = measure(|| said = outcome(&mut world, &source));
        let took = began.elapsed();
        let mut complain = |what: String| wrong.push(format!("{name}: {what}\n  {said:.300}"));
        if !said.contains(wanted) {
            complain(format!("does not say {wanted:?}"));
        }
        if used.bytes_max > BYTES_MAX {
            complain(format!("takes {} bytes", used.bytes_max));
        }
        if took > TIME_MAX {
            complain(format!("takes {took:?}"));
        }
        if said.len() > 2000 && !wanted.starts_with("its limit") {
            complain(format!("says it in {} bytes", said.len()));
        }
        if world.tree.digest() != before && said.contains("line") {
            complain("leaves a trace".into());
        }
        if std::env::var_os("SHOW").is_some() {
            eprintln!("{:>9} bytes {:>8.2?} {name}: {said:.160}", used.bytes_max, took);
        }
    }
    assert!(wrong.is_empty(), "{} cases\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_would_never_end_does() {
    try_all(endless());
}

#[test]
fn what_would_fill_the_memory_does_not() {
    try_all(bombs());
}

#[test]
fn what_would_overflow_the_stack_does_not() {
    // The stack that threads have by default.
    std::thread::Builder::new()
        .stack_size(2 * 1024 * 1024)
        .spawn(|| try_all(towers()))
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn there_is_no_way_out() {
    try_all(escapes());
}

#[test]
fn what_is_closed_stays_closed() {
    try_all(trespassers());
}

#[test]
fn there_are_many_of_them() {
    let all = [endless(), bombs(), towers(), escapes(), trespassers()];
    let mut names: Vec<_> = all.into_iter().flatten().map(|case| case.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert!(count >= 100 && names.len() == count, "{count} cases, {} names", names.len());
}
