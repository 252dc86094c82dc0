//! SASL, and what is demanded of clients: tokens are the driver's, whatever they come with.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

mod threads;

use stoa_core::{Authentication, SaslStep, SaslToken};
use stoa_tree::Identity;
use stoa_wire::{Acl, ErrorCode, Opcode, perms, put, request::encode};
use threads::*;

fn token(xid: i32, token: &[u8]) -> Vec<u8> {
    request(xid, Opcode::Sasl, |out| put::buffer(out, token))
}

fn next(threads: &mut Threads, client: Client) -> Option<SaslToken> {
    let token = threads.shard(client.0).poll_sasl()?;
    assert_eq!(token.connection, client.1);
    Some(token)
}

fn answer(threads: &mut Threads, client: Client, xid: i32, step: SaslStep) -> Vec<Frame> {
    let now = threads.now;
    threads.shard(client.0).sasl_answered(client.1, xid, step, now);
    threads.settle();
    threads.take(client)
}

fn ping(xid: i32) -> Vec<u8> {
    request(xid, Opcode::Ping, |_| ())
}

fn is_closed(threads: &Threads, client: Client) -> bool {
    threads.closed.iter().any(|(closed, _)| *closed == client)
}

fn done() -> SaslStep {
    let identities = vec![Identity { scheme: "sasl".into(), id: "anna".into() }];
    SaslStep::Done { token: Some(b"proof".to_vec()), identities }
}

fn authentication(demands: &[&str]) -> Authentication {
    let demands = demands.iter().map(|scheme| (*scheme).to_owned()).collect();
    Authentication { has_sasl: true, demands, ..Authentication::default() }
}

#[test]
fn whoever_has_proved_who_he_is_is_known_to_all_partitions() {
    for (partitions, thread) in [(1, 0), (3, 0), (3, 1), (3, 2)] {
        let mut threads = Threads::with(partitions, authentication(&["sasl"]));
        let client = threads.open(thread);
        // In one piece with what is no token, as it is when requests come fast.
        threads.send(client, &[token(1, b""), ping(-2)].concat());
        assert_eq!(next(&mut threads, client).unwrap().token, b"");
        let frames = answer(&mut threads, client, 1, SaslStep::Challenge(b"who".to_vec()));
        let challenge = frames.iter().find(|frame| frame.xid == 1).unwrap();
        assert_eq!((challenge.err, &challenge.body[..]), (0, &[0, 0, 0, 3, b'w', b'h', b'o'][..]));
        threads.send(client, &token(2, b"anna"));
        assert_eq!(
            next(&mut threads, client).unwrap(),
            SaslToken { connection: client.1, xid: 2, token: b"anna".into() }
        );
        assert_eq!(next(&mut threads, client), None);
        let frames = answer(&mut threads, client, 2, done());
        assert_eq!((frames[0].xid, frames[0].err, &frames[0].body[..]), (2, 0, &b"\0\0\0\x05proof"[..]));
        for top in tops(partitions) {
            let acl = [Acl { perms: perms::ALL, scheme: "sasl", id: "anna" }];
            let create =
                request(3, Opcode::Create, |out| encode::create(out, &top, Some(b"x"), &acl, 0, None));
            assert_eq!(threads.ask(client, &create).err, 0, "{top} of {partitions}");
            assert_eq!(data(&threads.ask(client, &get(4, &top, false))), b"x");
        }
    }
}

#[test]
fn who_has_to_prove_who_he_is_is_served_nothing_before() {
    for (partitions, thread) in [(1, 0), (2, 1)] {
        let mut threads = Threads::with(partitions, authentication(&["sasl", "digest"]));
        let [nobody, failed, known] = [(); 3].map(|()| threads.open(thread));
        let refused = ErrorCode::SessionClosedRequireSaslAuth as i32;
        assert_eq!(threads.ask(nobody, &get(1, "/", false)).err, refused);
        assert!(is_closed(&threads, nobody));
        threads.send(failed, &token(1, b"x"));
        next(&mut threads, failed).unwrap();
        let frames = answer(&mut threads, failed, 1, SaslStep::Failed);
        assert_eq!((frames[0].err, &frames[0].body[..]), (refused, &[255; 4][..]), "a null token");
        assert!(is_closed(&threads, failed));
        let digest = request(-4, Opcode::Auth, |out| encode::auth(out, "digest", b"a:b"));
        threads.send(known, &digest);
        threads.settle();
        assert_eq!(threads.take(known)[0].err, 0);
        assert_eq!(threads.ask(known, &get(1, "/", false)).err, 0);
    }
}

#[test]
fn who_has_failed_is_turned_away_unless_that_is_allowed() {
    for allows_failed_sasl in [false, true] {
        let mut threads = Threads::with(2, Authentication { allows_failed_sasl, ..authentication(&[]) });
        let client = threads.open(1);
        threads.send(client, &token(1, b"x"));
        next(&mut threads, client).unwrap();
        let frames = answer(&mut threads, client, 1, SaslStep::Failed);
        let err = if allows_failed_sasl { 0 } else { ErrorCode::AuthFailed as i32 };
        assert_eq!((frames[0].err, &frames[0].body[..]), (err, &[255; 4][..]));
        assert_eq!(is_closed(&threads, client), !allows_failed_sasl);
    }
}

#[test]
fn without_sasl_tokens_are_answered_as_what_is_not_known() {
    for (partitions, thread) in [(1, 0), (2, 1)] {
        let mut threads = Threads::new(partitions);
        let client = threads.open(thread);
        threads.send(client, &token(1, b"x"));
        threads.settle();
        assert_eq!(threads.take(client)[0].err, ErrorCode::Unimplemented as i32);
        assert_eq!(next(&mut threads, client), None);
    }
}
