//! What programs compute.

use crate::world::*;
use stoa_extension::{Limits, Program};

fn assert_results(cases: &[(&str, &str)]) {
    for (body, wanted) in cases {
        assert_eq!(result_of(body), *wanted, "{body}");
    }
}

#[test]
fn numbers_and_texts() {
    assert_results(&[
        ("return 1 + 2 * 3 - 7 / 2 % 2;", "6"),
        ("return -(3 - 5);", "2"),
        ("return 7 % 3;", "1"),
        ("return \"a\" + 1 + true;", "a1true"),
        ("return 1 + \"a\";", "1a"),
        ("let n = 2; return `n is ${n + 1}!`;", "n is 3!"),
        ("return 'x' + \"y\";", "xy"),
        ("return 1 < 2 && \"a\" < \"b\" && !(2 <= 1) && 2 >= 2 && 3 > 2 && 1 != 2;", "true"),
        ("return 1 == \"1\" || 2 == 3;", "false"),
        ("return \"41\".to_int() + 1;", "42"),
        ("return 7.pad(3) + 7.to_string();", "0077"),
        ("return 3.min(2) + 3.max(2) + min(1, 5);", "6"),
        (
            "return \"h\u{e4}llo\".len() + \"abc\".index_of(\"c\") * 10 + \"abc\".index_of(\"x\") * 100;",
            "-75",
        ),
        (
            "return \"h\u{e4}llo\".sub_string(1, 3) + \"abc\".sub_string(2) + \"abc\".sub_string(9);",
            "\u{e4}llc",
        ),
        ("return \" a \".trim() + \"a-b-c\".split(\"-\").join(\"+\");", "aa+b+c"),
        (
            "return \"abc\".starts_with(\"ab\") && \"abc\".ends_with(\"bc\") && \"abc\".contains(\"b\");",
            "true",
        ),
        ("return \"/a/b\".parent_of() + \" \" + \"/a/b\".name_of() + \" \" + \"/a\".parent_of();", "/a b /"),
        ("return;", ""),
        ("", ""),
    ]);
}

#[test]
fn arrays_and_maps() {
    assert_results(&[
        ("let a = [1, 2]; a.push(3); return a.len() * 10 + a[2];", "33"),
        ("let a = [3, 1, 2]; return a.sorted().join(\",\") + a.join(\",\");", "1,2,33,1,2"),
        (
            "let a = [1]; let b = a; b.push(2); b[0] = 9; return a.join(\",\") + \";\" + b.join(\",\");",
            "1;9,2",
        ),
        ("let a = [[1], [2]]; a[1].push(5); a[0][0] += 6; return `${a[0][0]}${a[1].len()}`;", "72"),
        ("let a = [1]; a[0] = a; return a[0][0];", "1"),
        ("return 2 in [1, 2] && !(3 in [1, 2]) && 3 !in [1] && \"b\" in \"abc\";", "true"),
        ("return [1, [2]] == [1, [2]] && #{a: 1} == #{a: 1} && [1] != [2];", "true"),
        (
            "let m = #{a: 1, \"b c\": 2}; m.d = 3; m[\"a\"] += 4; return `${m.a}${m[\"b c\"]}${m.d}${m.len()}`;",
            "5233",
        ),
        ("let m = #{b: 1, a: 2}; return m.keys().join(\",\") + (\"a\" in m);", "a,btrue"),
        ("let m = #{l: []}; m.l.push(4); return m.l[0];", "4"),
        ("return [].is_empty() && \"\".is_empty() && #{}.is_empty();", "true"),
    ]);
}

#[test]
fn control() {
    assert_results(&[
        ("let s = 0; for i in 0..4 { s += i; } for i in 0..=4 { s += i; } return s;", "16"),
        ("let s = 0; for i in 3..=1 { s += 1; } for i in 3..1 { s += 1; } return s;", "0"),
        ("let s = 0; for (x, i) in [5, 6] { s += x * 10 + i; } return s;", "111"),
        ("let s = 0; for i in 0..9 { if i == 2 { continue; } if i == 5 { break; } s += i; } return s;", "8"),
        ("for i in 0..9 { for j in 0..9 { if j == 3 { return i * 10 + j; } } }", "3"),
        ("let a = [1]; for x in a { a.push(x); } return a.len();", "2"),
        ("let x = if 1 > 2 { \"a\" } else if 2 > 1 { \"b\" } else { \"c\" }; return x;", "b"),
        ("let x = 1; { let x = 2; x = 3; } return x;", "1"),
        ("let x = 1; let x = x + 1; return x;", "2"),
        ("const A = 3; return A;", "3"),
        ("if false { return 1; } else { return 2; }", "2"),
        ("throw \"no\" + 1;", "call: line 3, column 1: thrown: no1"),
    ]);
}

#[test]
fn functions_and_constants() {
    let mut world = World::new();
    let program = compiled(
        "const BASE = 10; const NAME = \"n\"; const LOW = -3;
         on_operation(\"read\", \"/x\");
         fn twice(n) { return n * 2; }
         fn add(a, b) { let c = a + b; return c + BASE; }
         fn nothing() { let a = 5; }
         fn read(request) { let x = add(twice(1), twice(2)); nothing(); return NAME + x + LOW; }",
    );
    assert_eq!(format!("{:?}", world.read(&program, "/x").unwrap()), "Data([110, 49, 54, 45, 51])");
}

#[test]
fn mistakes_of_a_call_say_where_and_what() {
    assert_results(&[
        (
            "let a = 9223372036854775807;\nreturn a + 1;",
            "call: line 4, column 10: the number does not fit into 64 bits",
        ),
        (
            "return 0 - 9223372036854775807 - 2;",
            "call: line 3, column 32: the number does not fit into 64 bits",
        ),
        (
            "let a = -9223372036854775807 - 1; return -a;",
            "call: line 3, column 42: the number does not fit into 64 bits",
        ),
        (
            "let a = -9223372036854775807 - 1; return a / -1;",
            "call: line 3, column 44: the number does not fit into 64 bits",
        ),
        ("return 1 / 0;", "call: line 3, column 10: a division by zero"),
        ("return 1 % 0;", "call: line 3, column 10: a division by zero"),
        ("return 1 - \"a\";", "call: line 3, column 10: there is no `-` of a number and a text"),
        ("return [1] + [2];", "call: line 3, column 12: there is no `+` of an array and an array"),
        ("return [1][1];", "call: line 3, column 11: there is no place 1: there are 1, counted from 0"),
        ("return [1][-1];", "call: line 3, column 11: there is no place -1: there are 1, counted from 0"),
        ("return \"4x\".to_int();", "call: line 3, column 12: \"4x\" is no number of 64 bits"),
        ("return #{a: 1}.b;", "call: line 3, column 15: the map has no \"b\"; ask `\"b\" in map` first"),
        (
            "return request.no;",
            "call: line 3, column 15: there is no `no`; there are kind, path, name, data, version, session, \
             ephemeral, sequential",
        ),
        (
            "let x = 1; if x { }",
            "call: line 3, column 15: a condition has to be true or false and is a number",
        ),
        (
            "return \"a\" < 1;",
            "call: line 3, column 12: a text and a number have no order; two numbers or two texts have",
        ),
        (
            "for x in \"abc\" { }",
            "call: line 3, column 1: what `for` goes through has to be an array or a range and is a text",
        ),
        (
            "return [1];",
            "call: line 3, column 1: an array cannot be written as data; make a text of it, as by `join`",
        ),
        ("request.path = 1;", "call: line 3, column 14: in an object nothing can be changed by a text"),
        ("return 1.pad(100);", "call: line 3, column 9: a width is 0 to 64 and not 100"),
        (
            "let a = [2, \"b\"]; return a.sorted();",
            "call: line 3, column 27: a text and a number have no order; two numbers or two texts have",
        ),
        ("return \"abc\".split(\"\");", "call: line 3, column 13: a separator cannot be empty"),
    ]);
}

#[test]
fn an_if_that_is_a_value_cannot_leave_its_function() {
    assert_results(&[(
        "let x = if true { return 1; } else { 2 }; return x;",
        "call: line 3, column 9: this `if` is a value; what it decides cannot leave the function or the loop",
    )]);
}

#[test]
fn declarations_are_checked() {
    let on = "on_operation(\"read\", \"/x\"); ";
    let read = " fn read(request) { }";
    let mut wrong = Vec::new();
    for (source, wanted) in [
        (
            read.to_string(),
            "the program: it subscribes to nothing; say what it is for, as `on_operation(\"read\", \"/path\");`",
        ),
        (
            on.to_string(),
            "the program: nothing handles what it subscribes to; add `fn read(request) { ... }`",
        ),
        (
            "on_operation(\"get\", \"/x\");".to_string(),
            "line 1, column 14: there is no kind \"get\"; there are create, delete, read, update, sub_objects, block",
        ),
        (
            "on_event(\"read\", \"/x\");".to_string(),
            "line 1, column 10: there is no kind \"read\"; there are created, changed, deleted",
        ),
        ("on_operation(\"read\", \"x\");".to_string(), "line 1, column 22: a pattern is a path"),
        ("on_operation(\"read\", \"/x*\");".to_string(), "line 1, column 22: `*` stands for a whole name"),
        (format!("{on}{read} fn created(event) {{ }}"), "line 1, column 69: `created` handles nothing; add"),
        (format!("{on} fn read() {{ }}"), "line 1, column 40: `read` is a handler: it takes one parameter"),
        (
            format!("{on}{read} fn f(a) {{ }} fn f(a, b) {{ }}"),
            "line 1, column 74: there are two functions `f`",
        ),
        (format!("{on}{read} const A = 1; const A = 2;"), "line 1, column 64: there are two constants `A`"),
        (
            format!("{on}{read} const A = [1];"),
            "line 1, column 51: a constant outside of functions is a number",
        ),
        (format!("{on}{read} let a = 1;"), "line 1, column 51: outside of functions there can only be"),
        (format!("{on}{read} if true {{ }}"), "line 1, column 51: outside of functions there can only be"),
        (format!("{on}{read} 5"), "line 1, column 51: outside of functions there can only be"),
        (
            format!("{on}{read} on_operation(1, 2);"),
            "line 1, column 51: outside of functions there can only be",
        ),
    ] {
        let error = Program::compile("test", &source, &Limits::default()).unwrap_err().to_string();
        if !error.starts_with(wanted) {
            wrong.push(format!("{source}\n{error}\n"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_not_understood_is_refused_with_its_place() {
    for (body, wanted) in [
        ("return x;", "line 3, column 8: there is no variable or constant `x`"),
        ("x = 1;", "line 3, column 3: there is no variable `x`; declare it with `let`"),
        ("const A = 1; A = 2;", "line 3"),
        ("f(1);", "line 3, column 1: there is no function `f`"),
        ("\"a\".foo();", "line 3, column 4: there is no function `foo`"),
        ("return \"a\".len(1);", "line 3, column 11: `len` takes 1 values and is given 2"),
        ("local.open(\"/a\");", "line 3, column 6: `local` has no method `open`"),
        ("local.read();", "line 3, column 6: `read` takes 1 values and is given 0"),
        ("return local;", "line 3, column 8: `local` is no value"),
        ("return local.path;", "line 3, column 8: `local` is no value"),
        ("1 + 2;", "line 3, column 3: nothing is done with this value"),
        ("\"a\".len();", "line 3"),
        ("request.path;", "line 3"),
        ("return 0..3;", "line 3, column 9: a range can only stand behind the `in` of a `for`"),
        ("return 2 ** 3;", "line 3, column 10: there is no operator `**`"),
        ("return 1 & 2;", "line 3, column 10: there is no operator `&`"),
        ("let a = 1; a <<= 2;", "line 3, column 14: there is no operator `<<`"),
        ("let a = [1]; return a.push(2);", "line 3, column 22: `push` is a statement of its own"),
        ("request.path.len().x = 1;", "line 3"),
        ("break;", "line 3"),
        ("throw;", "line 3, column 1: say why"),
        ("let x = { let y = 1; y }; return x;", "line 3, column 9: a block is no value"),
        ("return a?.b;", "line 3"),
        ("return 1.5;", "line 3"),
        ("let x = ;", "line 3"),
        ("return \"abc", "line 3"),
    ] {
        let result = result_of(body);
        assert!(result.starts_with(&format!("compile: {wanted}")), "{body}\n{result}");
    }
}
