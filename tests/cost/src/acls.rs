//! Many ACLs, large ones, and clients that have proved to be many.

use crate::ask::{self, PERSISTENT};
use crate::count::counted;
use crate::world::{Client, World};
use crate::{Operation, constant, linear};
use stoa_wire::{Acl, Opcode, perms};

const ACLS: usize = 500;
const ENTRIES: usize = 500;
/// A client can prove no more.
const IDENTITIES: usize = 62;

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("user-{number}:hash")).collect()
}

fn entries(ids: &[String]) -> Vec<Acl<'_>> {
    ids.iter().map(|id| Acl { perms: perms::READ, scheme: "digest", id }).collect()
}

fn addresses(ids: &[String]) -> Vec<Acl<'_>> {
    ids.iter().map(|id| Acl { perms: perms::READ, scheme: "ip", id }).collect()
}

/// A client that has proved to be many.
fn many(world: &mut World) -> Client {
    let client = world.client();
    for number in 0..IDENTITIES {
        world.turn(client, &ask::auth("digest", &format!("me-{number}:secret")));
    }
    client
}

/// A znode `/a` that only `entries` may read, and one request of it, which is refused.
fn ask(entries: &[Acl<'_>], request: impl FnOnce() -> Vec<u8>) {
    let mut world = World::new();
    let client = many(&mut world);
    world.turn(client, &ask::create_with("/a", PERSISTENT, entries));
    assert_eq!(world.last_error(), 0);
    world.count(client, &request());
}

pub(crate) const OPERATIONS: &[Operation] = &[
    linear("acls: create with one of many entries", ENTRIES, |n| {
        let mut world = World::new();
        let client = world.client();
        world.count(client, &ask::create_with("/a", PERSISTENT, &entries(&ids(n))));
        assert_eq!(world.last_error(), 0);
    }),
    linear("acls: setACL with many entries, all the same", ENTRIES, |n| {
        let mut world = World::new();
        let client = world.client();
        world.turn(client, &ask::create("/a", PERSISTENT));
        let same = vec!["user:hash".to_owned(); n];
        world.count(client, &ask::set_acl("/a", &entries(&same)));
        assert_eq!(world.last_error(), 0);
    }),
    linear("acls: getACL of many entries", ENTRIES, |n| {
        let everybody = Acl { perms: perms::READ, scheme: "world", id: "anyone" };
        let ids = ids(n);
        let all = [&entries(&ids)[..], &[everybody]].concat();
        ask(&all, || ask::of_path(Opcode::GetAcl, "/a"));
    }),
    constant("acls: getData that many entries forbid", ENTRIES, |n| {
        ask(&entries(&ids(n)), || ask::read(Opcode::GetData, "/a", false));
    }),
    constant("acls: getData that many addresses forbid", ENTRIES, |n| {
        let ids: Vec<String> =
            (0..n).map(|number| format!("10.0.{}.{}", number / 250, number % 250)).collect();
        ask(&addresses(&ids), || ask::read(Opcode::GetData, "/a", false));
    }),
    linear("acls: a multiRead that one of many entries forbids", ENTRIES, |n| {
        ask(&entries(&ids(n)), || {
            ask::multi(Opcode::MultiRead, (0..n).map(|_| ask::read(Opcode::GetData, "/a", false)))
        });
    }),
    linear("acls: many are made, each another one", ACLS, |n| {
        let mut world = World::new();
        let client = world.client();
        world.turn(client, &ask::create("/a", PERSISTENT));
        let ids = ids(n);
        let set: Vec<Vec<u8>> = ids
            .iter()
            .enumerate()
            .map(|(number, id)| {
                let acl = [Acl { perms: perms::ALL, scheme: "digest", id }];
                ask::create_with(&format!("/a/{number}"), PERSISTENT, &acl)
            })
            .collect();
        counted(&mut || set.iter().for_each(|set| world.turn(client, set)));
        assert!(world.server.tree().acl_count() >= n);
    }),
    constant("acls: create where there are many others", ACLS, |n| {
        let mut world = World::new();
        let client = world.client();
        world.turn(client, &ask::create("/a", PERSISTENT));
        for (number, id) in ids(n).iter().enumerate() {
            let acl = [Acl { perms: perms::ALL, scheme: "digest", id }];
            world.turn(client, &ask::create_with(&format!("/a/{number}"), PERSISTENT, &acl));
        }
        let acl = [Acl { perms: perms::ALL, scheme: "digest", id: "another:one" }];
        world.count(client, &ask::create_with("/b", PERSISTENT, &acl));
        assert_eq!(world.last_error(), 0);
    }),
    linear("acls: create with the ACL `auth`, many times, by who has proved much", ENTRIES, |n| {
        let mut world = World::new();
        let client = many(&mut world);
        let entries: Vec<Acl<'_>> =
            (0..n).map(|number| Acl { perms: number as i32 + 1, scheme: "auth", id: "" }).collect();
        world.count(client, &ask::create_with("/a", PERSISTENT, &entries));
    }),
    linear("acls: many auth packets", ACLS, |n| {
        let mut world = World::new();
        let client = world.client();
        let proof = |number| ask::auth("digest", &format!("me-{}:secret", number % IDENTITIES));
        let proofs: Vec<u8> = (0..n).flat_map(proof).collect();
        world.count(client, &proofs);
    }),
];
