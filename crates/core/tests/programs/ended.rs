//! A session ends on each partition in that one's own time. Where it has ended, nobody is answered as if it had never
//! been there, nor shown that its ephemerals are gone, before its connection ends.

use crate::divided::{COUNTER, PARTITIONS, acknowledge, counters, register};
use crate::threads::*;
use stoa_core::{CloseReason, Placement};
use stoa_wire::{Opcode, xid};

/// A client of the third thread, who alone has a session and has acknowledged the counter. There is a top on each
/// partition.
fn world() -> (Threads, Client, Vec<String>) {
    let mut threads = Threads::new(PARTITIONS);
    let bruno = threads.open(0);
    let tops = counters(&mut threads, bruno);
    assert_eq!(threads.ask(bruno, &register(1, "counter", COUNTER)).err, 0);
    assert_eq!(threads.ask(bruno, &request(2, Opcode::CloseSession, |_| ())).err, 0);
    threads.closed.clear();
    let anna = threads.open(2);
    assert_eq!(threads.ask(anna, &acknowledge(1, "counter")).err, 0);
    (threads, anna, tops)
}

/// What `begins` begins, the end of a session, is applied by the last partition, and her front does not hear of it.
fn end_but_not_at_her_home(threads: &mut Threads, begins: impl FnOnce(&mut Threads)) {
    threads.slow_log = vec![0];
    begins(threads);
    threads.settle();
    assert!(threads.shards[1..].iter().all(|shard| shard.has_written_part()));
    threads.silent = Some((0, 2));
    threads.slow_log.clear();
    threads.settle();
    let known = threads.shards.iter().map(|shard| shard.program_acknowledgements());
    assert_eq!(known.collect::<Vec<_>>(), [0, 0, 0, 0]);
}

fn expire(threads: &mut Threads) {
    end_but_not_at_her_home(threads, |threads| threads.pass(11_000));
}

/// Nothing is answered to these requests, and then the connection ends.
#[track_caller]
fn is_not_served(threads: &mut Threads, client: Client, asked: &[u8]) {
    threads.send(client, asked);
    threads.settle();
    assert_eq!((threads.take(client), threads.closed.as_slice()), (vec![], [].as_slice()));
    threads.silent = None;
    threads.settle();
    assert_eq!(threads.take(client), []);
    assert_eq!(threads.closed, [(client, CloseReason::SessionExpired)]);
}

#[test]
fn a_program_is_not_denied_to_who_has_acknowledged_it_while_its_session_ends() {
    let (mut threads, anna, tops) = world();
    let increment = format!("{}/increment", tops[3]);
    assert_eq!(data(&threads.ask(anna, &get(3, &increment, false))), b"1");
    expire(&mut threads);
    is_not_served(&mut threads, anna, &get(4, &increment, false));
}

#[test]
fn nor_is_it_by_a_partition_that_is_asked_for_the_first_time_then() {
    let (mut threads, anna, tops) = world();
    assert_ne!(Placement::new(PARTITIONS).of("/em"), 3, "or she has asked it already");
    expire(&mut threads);
    is_not_served(&mut threads, anna, &get(4, &format!("{}/increment", tops[3]), false));
}

#[test]
fn what_waits_behind_a_write_is_not_answered_either() {
    let (mut threads, anna, tops) = world();
    let path = format!("{}/increment", tops[3]);
    threads.slow_log = vec![0];
    threads.send(anna, &[set(3, &tops[3], b"x"), get(4, &path, false)].concat());
    threads.settle();
    expire(&mut threads);
    // What stood before the end is answered when that is known, whatever the program has answered.
    let answered: Vec<_> = threads.take(anna).into_iter().map(|frame| (frame.xid, frame.err)).collect();
    assert_eq!(answered, [(3, 0), (4, 0)]);
    is_not_served(&mut threads, anna, &get(5, &path, false));
}

#[test]
fn nobody_sees_an_ephemeral_of_its_own_session_gone() {
    let (mut threads, anna, tops) = world();
    let path = format!("{}/anna", tops[3]);
    assert_eq!(threads.ask(anna, &create_as(2, &path, 1)).err, 0);
    assert_eq!(data(&threads.ask(anna, &get(3, &path, false))), b"first");
    expire(&mut threads);
    is_not_served(&mut threads, anna, &get(4, &path, false));
}

#[test]
fn who_closes_its_session_is_answered_and_told_of_what_goes_with_it() {
    let (mut threads, anna, tops) = world();
    let path = format!("{}/anna", tops[3]);
    assert_eq!(threads.ask(anna, &create_as(2, &path, 1)).err, 0);
    assert_eq!(threads.ask(anna, &get(3, &path, true)).err, 0);
    end_but_not_at_her_home(&mut threads, |threads| {
        let behind = get(5, &format!("{}/increment", tops[3]), false);
        threads.send(anna, &[request(4, Opcode::CloseSession, |_| ()), behind].concat());
    });
    threads.silent = None;
    threads.settle();
    let told: Vec<_> = threads.take(anna).into_iter().map(|frame| (frame.xid, frame.err)).collect();
    assert_eq!(told, [(xid::NOTIFICATION, 0), (4, 0)]);
    assert_eq!(threads.closed, [(anna, CloseReason::SessionClosed)]);
}
