//! Which program is meant.

use std::collections::BTreeSet;
use std::sync::Arc;
use stoa_extension::{EventKind, Limits, NameTaken, OperationKind, Program, Registry};

fn program(name: &str, pattern: &str) -> Arc<Program> {
    let source = format!(
        "on_operation(\"read\", \"{pattern}\"); on_event(\"deleted\", \"{pattern}\");
         fn read(r) {{ }} fn deleted(e) {{ }}"
    );
    Arc::new(Program::compile(name, &source, &Limits::default()).unwrap())
}

fn chosen<'r>(registry: &'r Registry, session: i64, path: &str) -> Option<&'r str> {
    registry.operation_for(session, OperationKind::Read, path).map(|program| program.name())
}

fn told(registry: &Registry, path: &str) -> Vec<String> {
    registry.events_for(EventKind::Deleted, path).map(|program| program.name().to_string()).collect()
}

#[test]
fn the_last_registered_of_those_acknowledged_is_chosen() {
    let mut registry = Registry::default();
    for (name, pattern) in [("any", "/**"), ("first", "/a/*"), ("second", "/a/*"), ("other", "/b")] {
        registry.register(program(name, pattern)).unwrap();
    }
    assert_eq!(chosen(&registry, 1, "/a/x"), None);
    for name in ["any", "first", "other"] {
        assert!(registry.acknowledge(1, name));
    }
    assert!(!registry.acknowledge(1, "none"));
    assert_eq!(chosen(&registry, 1, "/a/x"), Some("first"));
    assert_eq!(chosen(&registry, 1, "/c"), Some("any"));
    assert_eq!(chosen(&registry, 1, "/b"), Some("other"));
    assert_eq!(chosen(&registry, 2, "/b"), None);
    registry.acknowledge(1, "second");
    assert_eq!(chosen(&registry, 1, "/a/x"), Some("second"));
    assert!(registry.operation_for(1, OperationKind::Update, "/a/x").is_none());
    registry.forget_session(1);
    assert_eq!(chosen(&registry, 1, "/a/x"), None);
}

#[test]
fn events_go_to_all_in_the_order_of_registration() {
    let mut registry = Registry::default();
    for (name, pattern) in [("z", "/a/*"), ("y", "/**"), ("x", "/a/b"), ("w", "/b")] {
        registry.register(program(name, pattern)).unwrap();
    }
    assert_eq!(told(&registry, "/a/b"), ["z", "y", "x"]);
    assert_eq!(told(&registry, "/b"), ["y", "w"]);
    assert_eq!(registry.events_for(EventKind::Created, "/a/b").count(), 0);
}

#[test]
fn a_program_that_is_gone_is_nobodys() {
    let mut registry = Registry::default();
    registry.register(program("p", "/a")).unwrap();
    assert_eq!(registry.register(program("p", "/b")), Err(NameTaken));
    registry.acknowledge(1, "p");
    assert!(registry.has_acknowledged(1, "p") && !registry.has_acknowledged(2, "p"));
    assert!(registry.deregister("p") && !registry.deregister("p"));
    assert_eq!((chosen(&registry, 1, "/a"), told(&registry, "/a").len()), (None, 0));
    // Another one of that name has to be acknowledged anew, and is the last now.
    registry.register(program("q", "/a")).unwrap();
    registry.register(program("p", "/a")).unwrap();
    assert!(!registry.has_acknowledged(1, "p"));
    registry.acknowledge(1, "q");
    registry.acknowledge(1, "p");
    assert_eq!(chosen(&registry, 1, "/a"), Some("p"));
    assert_eq!(registry.programs().map(|program| program.name()).collect::<Vec<_>>(), ["q", "p"]);
}

/// Whatever is known of the beginning of a path: programs are found by names of all lengths, with slashes and bytes
/// anywhere in what is looked at together, also when others have gone.
#[test]
fn programs_are_found_by_names_of_all_lengths() {
    let lengths = 1..=10;
    let names: BTreeSet<String> =
        lengths.flat_map(|count| ["n", "0.", "é"].map(|unit| unit.repeat(count))).collect();
    let mut registry = Registry::default();
    let below = ["", "/x", "/0/0/0/0/0", "/ééé"];
    let finds = |registry: &Registry, name: &str, expected: bool| {
        for rest in below {
            let path = format!("/{name}{rest}");
            assert_eq!(registry.reacts(EventKind::Deleted, &path), expected && rest == "/x", "{path}");
            assert!(registry.may_react(&path) || !expected, "{path}");
        }
    };
    for name in &names {
        finds(&registry, name, false);
        registry.register(program(name, &format!("/{name}/x"))).unwrap();
        names.iter().for_each(|other| finds(&registry, other, other <= name));
    }
    for name in &names {
        assert!(registry.deregister(name));
        names.iter().for_each(|other| finds(&registry, other, other > name));
    }
    assert!(names.iter().all(|name| !registry.may_react(&format!("/{name}"))));
}
