//! What programs do to the tree.

use crate::world::*;
use std::sync::Arc;
use stoa_extension::{EventKind, Failure, Limits, Notification, OperationKind, Program, Reply};
use stoa_wire::{Acl, ErrorCode, perms};

fn data(text: &str) -> Reply {
    Reply::Data(Arc::from(text.as_bytes()))
}

#[test]
fn the_shared_counter_counts() {
    let mut world = World::new();
    world.create("/ctr", b"41");
    let program = compiled(
        "on_operation(\"read\", \"/ctr-increment\");
         fn read(request) {
             let next = local.read(\"/ctr\").data.to_int() + 1;
             local.update(\"/ctr\", next);
             return next;
         }",
    );
    assert_eq!(world.read(&program, "/ctr-increment"), Ok(data("42")));
    assert_eq!(world.read(&program, "/ctr-increment"), Ok(data("43")));
    assert_eq!(world.data("/ctr").unwrap(), b"43");
    assert_eq!(world.tree.get("/ctr").unwrap().stat().version, 2);
}

#[test]
fn a_call_sees_its_own_writes() {
    assert_eq!(
        result_of(
            "local.create(\"/d\", \"1\");
             let a = local.create_sequential(\"/d/s-\", \"x\");
             let b = local.create_sequential(\"/d/\");
             let e = local.monitor(\"/d/e\", \"mine\");
             local.update(\"/d\", 5);
             local.delete(b);
             let d = local.read(\"/d\");
             let names = [];
             for o in local.sub_objects(\"/d\") { names.push(o.name + \"=\" + o.data.to_string() + o.owner); }
             return [a, b, e, d.data, d.version, d.children, local.exists(b), names.join(\" \")].join(\" \");"
        ),
        "/d/s-0000000000 /d/0000000001 /d/e 5 1 2 false e=mine1 s-0000000000=x0"
    );
}

#[test]
fn sub_objects_come_in_the_order_of_their_creation() {
    let mut world = World::new();
    world.create("/q", b"");
    for name in ["b", "c", "a"] {
        world.create(&format!("/q/{name}"), name.as_bytes());
    }
    let program = compiled(&reading(
        "let all = []; for o in local.sub_objects(\"/q\") { all.push(o.path); } return all.join(\" \");",
    ));
    assert_eq!(world.read(&program, "/x"), Ok(data("/q/b /q/c /q/a")));
}

#[test]
fn the_oldest_is_the_first_of_all_with_what_the_call_has_done() {
    let mut world = World::new();
    world.create("/q", b"");
    for name in ["b", "c", "a"] {
        world.create(&format!("/q/{name}"), name.as_bytes());
    }
    let program = compiled(&reading(
        "let all = [];
         for i in 0..5 {
             if i == 2 {
                 local.create(\"/q/z\", \"new\");
                 local.create(\"/q/y\", \"new\");
             }
             let first = local.oldest(\"/q\");
             let listed = local.sub_objects(\"/q\")[0];
             if first.path != listed.path || first.data != listed.data || first.name != listed.name {
                 throw \"not the first\";
             }
             all.push(first.path + \"=\" + first.data.to_string());
             local.delete(first.path);
         }
         all.push(local.oldest(\"/q\") == ());
         return all.join(\" \");",
    ));
    assert_eq!(world.read(&program, "/x"), Ok(data("/q/b=b /q/c=c /q/a=a /q/y=new /q/z=new true")));
}

#[test]
fn who_asks_for_the_oldest_pays_for_all_and_need_read_no_other() {
    let mut world = World::new();
    world.create("/q", b"");
    for name in ["a", "b", "c"] {
        world.create(&format!("/q/{name}"), &[b'x'; 1000]);
    }
    let oldest = |limits| {
        let source = reading("return local.oldest(\"/q\").name;");
        Program::compile("oldest", &source, &limits).unwrap()
    };
    // The statement, the field, the call, its argument, a step for each child, and one for the object.
    let enough = Limits { steps: 8, read_bytes: 1000, znodes: 2, ..Limits::default() };
    assert_eq!(world.read(&oldest(enough), "/x"), Ok(data("a")));
    let error = world.read(&oldest(Limits { steps: 7, ..enough }), "/x").unwrap_err();
    assert!(matches!(error.failure, Failure::Limit { .. }), "{error}");
    let error = world.read(&oldest(Limits { steps: 6, ..enough }), "/x").unwrap_err();
    assert!(matches!(error.failure, Failure::Limit { .. }), "{error}");
}

#[test]
fn cas_changes_what_is_as_expected_only() {
    assert_eq!(
        result_of(
            "return `${local.cas(\"/ctr\", 40, 1)} ${local.cas(\"/ctr\", \"41\", 7)} ${local.read(\"/ctr\").data}`;"
        ),
        "false true 7"
    );
}

#[test]
fn an_error_takes_everything_back() {
    let mut world = World::new();
    world.create("/ctr", b"1");
    let failing = [
        "throw \"no\";",
        "return 1 / 0;",
        "local.delete(\"/none\");",
        "for i in 0..1000000 { }",
        "return [1];",
    ];
    for end in failing {
        let program = compiled(&reading(&format!(
            "local.update(\"/ctr\", 2); local.create(\"/new\"); local.monitor(\"/mine\"); {end}"
        )));
        // The world sees to it that nothing is left behind.
        world.read(&program, "/x").unwrap_err();
        assert_eq!(world.data("/ctr").unwrap(), b"1");
        assert_eq!(world.data("/new"), None);
    }
}

#[test]
fn what_the_tree_refuses_ends_the_call_with_its_code() {
    for (body, wanted, code) in [
        (
            "local.read(\"/none\");",
            "line 3, column 6: local.read(\"/none\") was refused: NoNode",
            ErrorCode::NoNode,
        ),
        (
            "local.create(\"/ctr\");",
            "line 3, column 6: local.create(\"/ctr\") was refused",
            ErrorCode::NodeExists,
        ),
        ("local.create(\"/a/b\");", "line 3", ErrorCode::NoNode),
        ("local.delete(\"/ctr\", 7);", "line 3", ErrorCode::BadVersion),
        ("local.update(\"/ctr\", 1, 7);", "line 3", ErrorCode::BadVersion),
        ("local.create(\"/ctr/a\"); local.delete(\"/ctr\");", "line 3", ErrorCode::NotEmpty),
        ("local.delete(\"/\");", "line 3", ErrorCode::BadArguments),
    ] {
        let mut world = World::new();
        world.create("/ctr", b"1");
        let error = world.read(&compiled(&reading(body)), "/x").unwrap_err();
        assert!(error.to_string().starts_with(wanted), "{error}");
        assert_eq!(error.code(), code);
    }
}

#[test]
fn a_program_has_the_rights_of_its_caller_only() {
    let mut world = World::new();
    let only = |perms| [Acl { perms, scheme: "world", id: "anyone" }];
    world.create_for("/readable", b"r", &only(perms::READ));
    world.create_for("/writable", b"w", &only(perms::WRITE | perms::CREATE | perms::DELETE));
    for (body, is_allowed) in [
        ("local.read(\"/readable\");", true),
        ("local.update(\"/readable\", 1);", false),
        ("local.cas(\"/readable\", \"r\", 1);", false),
        ("local.create(\"/readable/a\");", false),
        ("local.monitor(\"/readable/a\");", false),
        ("local.read(\"/writable\");", false),
        ("local.sub_objects(\"/writable\");", false),
        ("local.oldest(\"/writable\");", false),
        ("local.cas(\"/writable\", \"w\", 1);", false),
        ("local.update(\"/writable\", 1);", true),
        ("local.create(\"/writable/a\"); local.delete(\"/writable/a\");", true),
        // What it makes has the ACL of where it makes it.
        ("local.create(\"/writable/a\"); local.read(\"/writable/a\");", false),
    ] {
        let result = world.read(&compiled(&reading(body)), "/x");
        match result {
            Ok(_) => assert!(is_allowed, "{body}"),
            Err(error) => assert!(!is_allowed && error.code() == ErrorCode::NoAuth, "{body} {error}"),
        }
    }
}

#[test]
fn quotas_hold_inside_of_calls() {
    let mut world = World::new();
    world.create("/a", b"");
    for path in ["/zookeeper/quota/a", "/zookeeper/quota/a/zookeeper_limits"] {
        world.create(path, b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=3");
    }
    world.create("/zookeeper/quota/a/zookeeper_stats", b"count=0,bytes=0");
    let program = compiled(&reading("for i in 0..3 { local.create(`/a/${i}`); }"));
    assert_eq!(world.read(&program, "/x").unwrap_err().code(), ErrorCode::QuotaExceeded);
    let program = compiled(&reading("for i in 0..2 { local.create(`/a/${i}`); }"));
    world.read(&program, "/x").unwrap();
}

#[test]
fn a_client_that_ended_gets_nothing_done() {
    let mut world = World::new();
    let program =
        compiled("on_operation(\"read\", \"/x\"); fn read(request) { return local.exists(\"/a\"); }");
    let mut gone = request(OperationKind::Read, "/x");
    gone.session = 77;
    assert_eq!(world.call(&program, &gone).unwrap_err().code(), ErrorCode::SessionExpired);
}

#[test]
fn requests_have_their_fields() {
    let mut world = World::new();
    let program = compiled(
        "on_operation(\"create\", \"/in/**\");
         fn create(r) { return [r.kind, r.path, r.name, r.data, r.version, r.session, r.ephemeral, r.sequential].join(\" \"); }",
    );
    let mut asked = request(OperationKind::Create, "/in/a/b");
    (asked.data, asked.sequential, asked.session) = (b"12", true, 2);
    assert_eq!(world.call(&program, &asked), Ok(data("create /in/a/b b 12 -1 2 false true")));
}

#[test]
fn a_call_that_blocks_is_answered_later() {
    let mut world = World::new();
    let program = compiled(
        "on_operation(\"block\", \"/in/*\");
         fn block(r) { local.block(r.path); }",
    );
    let asked = request(OperationKind::Block, "/in/a");
    assert_eq!(world.call(&program, &asked), Ok(Reply::Blocked("/in/a".into())));
    let wrong = |body: &str| World::new().read(&compiled(&reading(body)), "/x").unwrap_err().to_string();
    assert_eq!(
        wrong("local.block(\"/a\"); return 1;"),
        "line 3, column 20: a call that has blocked cannot return a value too"
    );
    assert!(wrong("local.block(\"/a\"); local.block(\"/b\");").contains("can wait for one znode only"));
}

#[test]
fn names_are_what_sub_objects_answers() {
    let mut world = World::new();
    world.create("/d", b"");
    world.create("/d/k", b"");
    let program = compiled(
        "on_operation(\"sub_objects\", \"/x\");
         fn sub_objects(r) { let all = local.sub_objects(\"/d\"); all.push(\"more\"); return all; }",
    );
    let asked = request(OperationKind::SubObjects, "/x");
    assert_eq!(world.call(&program, &asked), Ok(Reply::Names(vec!["k".into(), "more".into()])));
}

#[test]
fn events_can_be_kept_back_and_replaced() {
    let mut world = World::new();
    world.create("/d", b"");
    let program = compiled(
        "on_event(\"created\", \"/d/*\"); on_event(\"changed\", \"/d/*\"); on_event(\"deleted\", \"/d/*\");
         fn created(e) { }
         fn changed(e) { local.suppress(); }
         fn deleted(e) { local.suppress(); local.notify(2, e.path + \"-gone\"); local.create(\"/d/log\", `${e.kind} ${e.name}`); }",
    );
    let mut at = |kind| world.event(&program, &event(kind, "/d/a")).unwrap();
    assert_eq!((at(EventKind::Created).suppress, at(EventKind::Changed).suppress), (false, true));
    let notify = at(EventKind::Deleted);
    assert!(notify.suppress);
    assert_eq!(notify.send, [Notification { session: 2, path: "/d/a-gone".into() }]);
    assert_eq!(world.data("/d/log").unwrap(), b"deleted a");
}

#[test]
fn who_handles_an_event_cannot_wait_nor_tell_without_end() {
    for (body, wanted) in [
        ("local.block(\"/a\");", "local.block is for handlers of an operation only"),
        ("for i in 0..100 { local.notify(1, \"/a\"); }", "its limit `notifications` of 16"),
        ("local.notify(1, \"/zookeeper/config\");", "is closed to programs"),
    ] {
        let program = compiled(&format!("on_event(\"created\", \"/x\"); fn created(event) {{ {body} }}"));
        let error = World::new().event(&program, &event(EventKind::Created, "/x")).unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
    }
}

#[test]
fn what_a_program_does_not_handle_it_refuses() {
    let program = compiled("on_operation(\"read\", \"/x\"); fn read(r) { }");
    assert!(program.handles_operation(OperationKind::Read, "/x"));
    assert!(!program.handles_operation(OperationKind::Read, "/y"));
    assert!(!program.handles_operation(OperationKind::Update, "/x"));
    assert!(!program.handles_event(EventKind::Created, "/x"));
    let error = World::new().call(&program, &request(OperationKind::Update, "/x")).unwrap_err();
    assert!(matches!(error.failure, Failure::Wrong(_)));
}

#[test]
fn programs_can_be_shared_by_threads() {
    fn is_shareable<T: Send + Sync>() {}
    is_shareable::<Program>();
    is_shareable::<Limits>();
}
