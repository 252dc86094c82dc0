//! What the audit log is told, with one partition and with several.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

mod threads;

use stoa_core::{AuditEvent, AuditOperation, AuditResult, Authentication, Config};
use stoa_wire::{Acl, ErrorCode, OPEN_ACL, Opcode, perms, request::encode, xid};
use threads::*;

fn audited(partitions: u8) -> Threads {
    let authentication = Authentication { is_audited: true, ..Authentication::default() };
    let mut threads = Threads::of(&Config { partitions, authentication, ..Config::default() }, &[1]);
    threads.settle();
    threads
}

/// All events since the last call, each as one line.
fn told(threads: &mut Threads) -> Vec<String> {
    threads.settle();
    let polled = threads.shards.iter_mut();
    polled.flat_map(|shard| std::iter::from_fn(|| shard.poll_audit()).map(line).collect::<Vec<_>>()).collect()
}

fn line(event: AuditEvent) -> String {
    let AuditEvent { operation, path, kind, acl, result, error, .. } = event;
    let mut line = format!("{operation:?}");
    for part in
        [path, kind.map(|kind| format!("{kind:?}")), acl, Some(format!("{result:?}"))].iter().flatten()
    {
        line.push(' ');
        line.push_str(part);
    }
    if error != 0 {
        line.push_str(&format!(" {error}"));
    }
    line
}

fn delete(xid: i32, path: &str) -> Vec<u8> {
    request(xid, Opcode::Delete, |out| encode::path_version(out, path, -1))
}

fn set_acl(xid: i32, path: &str, acl: &[Acl<'_>]) -> Vec<u8> {
    request(xid, Opcode::SetAcl, |out| encode::set_acl(out, path, acl, -1))
}

fn auth(scheme: &str, auth: &[u8]) -> Vec<u8> {
    request(xid::AUTH, Opcode::Auth, |out| encode::auth(out, scheme, auth))
}

#[test]
fn every_change_and_every_refusal_is_told_once() {
    for partitions in [1, 2, 4] {
        let mut threads = audited(partitions);
        let tops = tops(partitions);
        let client = threads.open(0);
        for (number, top) in tops.iter().enumerate() {
            let xid = 10 * number as i32;
            threads.send(client, &create(xid + 1, top));
            threads.send(client, &get(xid + 2, top, true));
            threads.send(client, &create(xid + 3, top));
            threads.send(client, &set(xid + 4, top, b"more"));
            threads.send(client, &create_as(xid + 5, &format!("{top}/n-"), 2));
            threads.send(client, &set_acl(xid + 6, top, OPEN_ACL));
            threads.send(client, &delete(xid + 7, &format!("{top}/none")));
            threads.send(client, &delete(xid + 8, &format!("{top}/n-0000000000")));
            threads.send(client, &request(xid::PING, Opcode::Ping, |_| {}));
            let told = told(&mut threads);
            let expected = [
                format!("Create {top} Persistent Success"),
                format!("Create {top} Persistent Failure {}", ErrorCode::NodeExists as i32),
                format!("SetData {top} Success"),
                format!("Create {top}/n-0000000000 PersistentSequential Success"),
                format!("SetAcl {top} world:anyone:cdrwa Success"),
                format!("Delete {top}/none Failure {}", ErrorCode::NoNode as i32),
                format!("Delete {top}/n-0000000000 Success"),
            ];
            assert_eq!(told, expected, "{partitions} partitions");
        }
    }
}

#[test]
fn a_multi_is_told_by_what_it_did_or_as_one_that_failed() {
    for partitions in [1, 3] {
        let mut threads = audited(partitions);
        let tops = tops(partitions);
        let client = threads.open(partitions - 1);
        let (first, last) = (&tops[0], &tops[tops.len() - 1]);
        let write = |out: &mut Vec<u8>| {
            op(out, Opcode::Create2, |out| {
                encode::create(out, &format!("{last}-b"), None, OPEN_ACL, 3, None);
            });
            op(out, Opcode::Create, |out| {
                encode::create(out, &format!("{first}-a"), None, OPEN_ACL, 0, None);
            });
            op(out, Opcode::Check, |out| encode::path_version(out, "/", -1));
            op(out, Opcode::SetData, |out| encode::set_data(out, &format!("{first}-a"), None, -1));
            op(out, Opcode::Delete, |out| encode::path_version(out, &format!("{first}-a"), -1));
        };
        threads.send(client, &multi(1, Opcode::Multi, write));
        assert_eq!(
            told(&mut threads),
            [
                format!("Create {last}-b0000000000 EphemeralSequential Success"),
                format!("Create {first}-a Persistent Success"),
                format!("SetData {first}-a Success"),
                format!("Delete {first}-a Success"),
            ]
        );
        threads.send(
            client,
            &multi(2, Opcode::Multi, |out| {
                write(out);
                op(out, Opcode::Delete, |out| encode::path_version(out, &format!("{last}-none"), -1));
            }),
        );
        assert_eq!(told(&mut threads), [format!("Multi Failure {}", ErrorCode::NoNode as i32)]);
    }
}

#[test]
fn the_end_of_a_session_is_told_by_its_ephemerals() {
    for partitions in [1, 3] {
        let mut threads = audited(partitions);
        let tops = tops(partitions);
        let client = threads.open(0);
        for (number, top) in tops.iter().enumerate() {
            threads.ask(client, &create_as(number as i32 + 1, &format!("{top}-e"), 1));
        }
        let session = threads.shards[0].connection(client.1).unwrap().session;
        assert_eq!(told(&mut threads).len(), tops.len());
        threads.send(client, &request(90, Opcode::CloseSession, |_| {}));
        threads.settle();
        let events: Vec<_> = threads
            .shards
            .iter_mut()
            .flat_map(|shard| std::iter::from_fn(|| shard.poll_audit()).collect::<Vec<_>>())
            .collect();
        assert_eq!(events.len(), tops.len());
        for event in events {
            assert_eq!((event.session, event.address, event.users.len()), (session, None, 0));
            assert_eq!(event.operation, AuditOperation::EphemeralEnds);
            assert_eq!(event.result, AuditResult::Success);
            assert!(tops.iter().any(|top| event.path == Some(format!("{top}-e"))), "{event:?}");
        }
    }
}

#[test]
fn whoever_asks_is_told_with_all_that_he_had_proved_when_he_asked() {
    for partitions in [1, 2] {
        let mut threads = audited(partitions);
        let top = &tops(partitions)[usize::from(partitions - 1)];
        let (owner, other) = (threads.open(0), threads.open(0));
        threads.ask(owner, &create(1, top));
        threads.ask(owner, &auth("digest", b"bob:secret"));
        let acl = [Acl { perms: perms::READ, scheme: "world", id: "anyone" }];
        threads.ask(owner, &set_acl(2, top, &acl));
        assert_eq!(threads.ask(other, &set(1, top, b"")).err, ErrorCode::NoAuth as i32);
        let shards = threads.shards.iter_mut();
        let events: Vec<_> =
            shards.flat_map(|shard| std::iter::from_fn(|| shard.poll_audit()).collect::<Vec<_>>()).collect();
        let users = |event: &AuditEvent| {
            let names = event
                .users
                .iter()
                .map(|user| format!("{}:{}", user.scheme, user.id.split(':').next().unwrap()));
            names.collect::<Vec<_>>().join(" ")
        };
        let users: Vec<_> = events.iter().map(users).collect();
        assert!(users[0].starts_with("ip:") && !users[0].contains("bob"), "{users:?}");
        assert_eq!(users[1], format!("{} digest:bob", users[0]));
        assert_eq!((users[2].as_str(), events[2].error), (users[0].as_str(), ErrorCode::NoAuth as i32));
        assert!(events.iter().all(|event| event.session != 0 && event.address.is_some()));
    }
}

#[test]
fn a_client_that_leaves_early_is_told_of_all_the_same() {
    for partitions in [1, 2] {
        let mut threads = audited(partitions);
        let top = &tops(partitions)[usize::from(partitions - 1)];
        let client = threads.open(0);
        threads.send(client, &create(1, top));
        let now = threads.now;
        threads.shard(0).disconnected(client.1, now);
        assert_eq!(told(&mut threads), [format!("Create {top} Persistent Invoked")]);
        let again = threads.open(0);
        assert_eq!(threads.ask(again, &get(1, top, false)).err, 0, "it was done");
    }
}

#[test]
fn what_a_client_was_told_of_something_else_is_no_outcome() {
    let mut threads = audited(2);
    let top = &tops(2)[1];
    let client = threads.open(0);
    threads.ask(client, &create(1, top));
    // All with one number, the first and the last of which fail.
    let mut bytes = get(7, "/none", false);
    bytes.extend(set(7, top, b"x"));
    bytes.extend(get(7, "/none", false));
    bytes.extend(delete(7, "/none"));
    threads.send(client, &bytes);
    let told = told(&mut threads);
    let failed = format!("Delete /none Failure {}", ErrorCode::NoNode as i32);
    assert_eq!(told[1..], [format!("SetData {top} Success"), failed]);
}

#[test]
fn nobody_is_told_where_nobody_wants_to_know() {
    for partitions in [1, 2] {
        let mut threads = Threads::new(partitions);
        let client = threads.open(0);
        threads.ask(client, &create_as(1, "/a", 1));
        threads.send(client, &request(2, Opcode::CloseSession, |_| {}));
        assert_eq!(told(&mut threads), [""; 0]);
    }
}

#[test]
fn a_login_that_fails_is_told() {
    for partitions in [1, 2] {
        let mut threads = audited(partitions);
        let client = threads.open(0);
        threads.send(client, &auth("digest", b""));
        threads.send(client, &auth("nonsense", b"x"));
        threads.settle();
        let now = threads.now;
        threads.shard(0).disconnected(client.1, now);
        assert_eq!(told(&mut threads), [format!("Login Failure {}", ErrorCode::AuthFailed as i32)]);
    }
}
