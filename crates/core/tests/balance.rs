//! The load of a server's partitions reaches whoever balances it, and so does what the operator says.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

mod threads;

use stoa_core::{HINTS_PATH, MoveError};
use threads::*;

/// Many reads of a client, as one second of them would be, a quarter at a time.
fn ask_much(threads: &mut Threads, client: Client, path: &str) {
    let many = get(1, path, false).repeat(2000);
    for _ in 0..10 {
        for _ in 0..30 {
            threads.send(client, &many);
            threads.settle();
            threads.take_bytes(client);
        }
        threads.pass(100);
    }
}

#[test]
fn what_is_asked_reaches_the_leader_who_has_something_moved() {
    let mut threads = Threads::new(2);
    let client = threads.open(0);
    let [_, top] = tops(2).try_into().unwrap();
    for path in [top.clone(), format!("{top}/a"), format!("{top}/b")] {
        threads.ask(client, &create(1, &path));
    }
    threads.pass(1000);
    let both = [format!("{top}/a"), format!("{top}/b")];
    for _ in 0..20 {
        for path in &both {
            let many = get(1, path, false).repeat(2000);
            (0..15).for_each(|_| {
                threads.send(client, &many);
                threads.settle();
                threads.take_bytes(client);
            });
        }
        threads.pass(100);
    }
    let leader = threads.shard(0);
    assert_eq!(leader.move_counts(), (1, 0), "one of the two");
    let recent = leader.recent_moves().next().unwrap();
    assert!(both.contains(&recent.path) && (recent.to, recent.refused) == (0, None), "{recent:?}");
    assert_ne!(leader.place_of(&both[0]), leader.place_of(&both[1]));
}

#[test]
fn nobody_is_woken_when_nothing_is_asked() {
    let mut threads = Threads::new(2);
    let client = threads.open(0);
    threads.pass(10);
    let wakes =
        |threads: &Threads| threads.shards.iter().map(|shard| shard.next_wake_us()).collect::<Vec<_>>();
    let tops = tops(2);
    tops.iter().for_each(|top| drop(threads.ask(client, &create(1, top))));
    ask_much(&mut threads, client, &tops[1]);
    let next_window = threads.now.mono_us + 250_000;
    assert!(wakes(&threads)[1] <= next_window, "it is to be told");
    (0..40).for_each(|_| threads.pass(250));
    let next_window = threads.now.mono_us + 250_000;
    assert!(wakes(&threads).iter().all(|wake| *wake > next_window), "{:?}", wakes(&threads));
    assert!(threads.messages.values().all(|messages| messages.is_empty()));
    assert_eq!(threads.shard(0).imbalance_percent(), 0);
}

#[test]
fn hints_are_read_when_they_change_and_bad_ones_are_named() {
    let mut threads = Threads::new(2);
    let client = threads.open(1);
    threads.ask(client, &create(1, HINTS_PATH));
    let [there, here] = tops(2).try_into().unwrap();
    let pin = format!("pin {there} 1\npin {here} 1\nthis is none\nbalance off");
    assert_eq!(threads.ask(client, &set(2, HINTS_PATH, pin.as_bytes())).err, 0);
    threads.pass(10);
    let server = threads.shard(0);
    let warnings: Vec<_> = std::iter::from_fn(|| server.poll_warning()).collect();
    let named = "/zookeeper/partitions: line 3 (\"this is none\"): a line begins with";
    assert!(warnings.iter().any(|warning| warning.starts_with(named)), "{warnings:?}");
    let lines = server.hints().lines();
    assert_eq!(lines, [format!("pin {there} 1"), format!("pin {here} 1"), "balance off".into()]);
    threads.pass(10);
    // It is asked once, whatever becomes of it.
    threads.pass(1000);
    let recent: Vec<_> = threads.shard(0).recent_moves().cloned().collect();
    assert!(matches!(recent.as_slice(), [only] if only.path == there && only.to == 1), "{recent:?}");
}

#[test]
fn an_operator_is_told_why_nothing_is_moved() {
    let mut threads = Threads::new(2);
    let client = threads.open(1);
    threads.ask(client, &create(1, HINTS_PATH));
    threads.ask(client, &set(2, HINTS_PATH, b"pin /p 1\nstay /s\ntogether /x /y"));
    let now = threads.now;
    let mut ask = |path: &str, to| threads.shard(0).request_move(path, to, now);
    for path in ["/", "", "a", "/a/", "/zookeeper", "/zookeeper/quota/a"] {
        assert_eq!(ask(path, 1), Err(MoveError::NotMovable), "{path}");
    }
    assert_eq!(ask("/a", 2), Err(MoveError::NoSuchPartition));
    for path in ["/p", "/s", "/x"] {
        assert_eq!(ask(path, 0), Err(MoveError::Pinned), "{path}");
    }
    assert_eq!(ask("/p", 1), Ok(()));
    assert_eq!(threads.shard(1).request_move("/a", 0, now), Err(MoveError::NotLeader(Some(1))));
    threads.pass(10);
    threads.pass(10);
    assert_eq!(threads.shard(0).recent_moves().count(), 1);
}
