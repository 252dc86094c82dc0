//! At one server with several partitions.

use crate::threads::*;
use crate::{BARRIER, ELECTION};
use stoa_core::{Config, FAILURE_PATH, ProgramLimits};
use stoa_wire::{
    ErrorCode, EventKind, MultiResult, MultiResults, OPEN_ACL, Opcode, Reader, Stat, WatcherEvent,
    request::encode, xid,
};

pub(crate) const PARTITIONS: u8 = 4;

/// A counter below each top, so that it and what is asked for live together.
pub(crate) const COUNTER: &str = r#"
    on_operation("read", "/*/increment");
    fn read(request) {
        let at = request.path.parent_of() + "/count";
        let next = local.read(at).data.to_int() + 1;
        local.update(at, next);
        return next;
    }
"#;

pub(crate) fn register(xid: i32, name: &str, source: &str) -> Vec<u8> {
    let path = format!("/em/{name}");
    request(xid, Opcode::Create, |body| {
        encode::create(body, &path, Some(source.as_bytes()), OPEN_ACL, 0, None);
    })
}

pub(crate) fn acknowledge(xid: i32, name: &str) -> Vec<u8> {
    create_as(xid, &format!("/em/{name}/ack-"), 3)
}

fn delete(xid: i32, path: &str) -> Vec<u8> {
    request(xid, Opcode::Delete, |body| encode::path_version(body, path, -1))
}

fn exists(xid: i32, path: &str) -> Vec<u8> {
    request(xid, Opcode::Exists, |body| encode::path_watch(body, path, true))
}

fn text(threads: &mut Threads, client: Client, path: &str) -> Result<String, i32> {
    let frame = threads.ask(client, &get(7, path, false));
    if frame.err != 0 {
        return Err(frame.err);
    }
    Ok(String::from_utf8(Reader::new(&frame.body).buffer().unwrap().unwrap_or_default().to_vec()).unwrap())
}

/// A counter on each partition.
pub(crate) fn counters(threads: &mut Threads, client: Client) -> Vec<String> {
    let tops = tops(PARTITIONS);
    for top in &tops {
        threads.ask(client, &create(1, top));
        assert_eq!(threads.ask(client, &create(2, &format!("{top}/count"))).err, 0);
        assert_eq!(threads.ask(client, &set(3, &format!("{top}/count"), b"0")).err, 0);
    }
    tops
}

#[test]
fn every_partition_runs_the_programs() {
    let mut threads = Threads::new(PARTITIONS);
    let (anna, bruno) = (threads.open(0), threads.open(1));
    let tops = counters(&mut threads, anna);
    assert_eq!(threads.ask(anna, &register(1, "counter", COUNTER)).err, 0);
    for top in &tops {
        let path = format!("{top}/increment");
        assert_eq!(text(&mut threads, anna, &path), Ok("1".into()), "{top}");
        assert_eq!(text(&mut threads, bruno, &path), Err(ErrorCode::NoNode as i32));
    }
    assert_eq!(threads.ask(bruno, &acknowledge(1, "counter")).err, 0);
    for top in &tops {
        assert_eq!(text(&mut threads, bruno, &format!("{top}/increment")), Ok("2".into()));
    }
    // What stands at /em is seen once.
    assert_eq!(children(&mut threads, anna, "/em"), ["counter"]);
    assert_eq!(children(&mut threads, anna, "/em/counter").len(), 3);
    let all = request(5, Opcode::GetAllChildrenNumber, |body| encode::path(body, "/"));
    let counted = threads.ask(anna, &all).body;
    let znodes = 3 + 2 * tops.len() + 1 + 1 + 3;
    assert_eq!(i32::from_be_bytes(counted[..4].try_into().unwrap()), znodes as i32);
    let own = request(6, Opcode::GetEphemerals, |body| encode::path(body, "/"));
    assert_eq!(names(&threads.ask(bruno, &own)).len(), 1);

    threads.restart();
    let carla = threads.open(2);
    assert_eq!(threads.ask(carla, &acknowledge(1, "counter")).err, 0);
    for top in &tops {
        assert_eq!(text(&mut threads, carla, &format!("{top}/increment")), Ok("3".into()));
    }
    assert_eq!(threads.ask(carla, &delete(1, "/em/counter")).err, 0);
    for top in &tops {
        assert_eq!(text(&mut threads, carla, &format!("{top}/increment")), Err(ErrorCode::NoNode as i32));
    }
    assert_eq!(threads.ask(carla, &delete(1, "/em")).err, 0);
    assert_eq!(threads.ask(carla, &register(1, "counter", COUNTER)).err, 0);
    assert_eq!(text(&mut threads, carla, &format!("{}/increment", tops[3])), Ok("4".into()));
}

#[test]
fn the_end_of_a_session_takes_its_acknowledgements_everywhere_and_sets_off_reactions() {
    let mut threads = Threads::new(PARTITIONS);
    let (anna, bruno) = (threads.open(0), threads.open(3));
    let source = r#"
        on_event("deleted", "/*/members/*");
        fn deleted(event) {
            local.create_sequential("/" + event.path.split("/")[1] + "/gone-", event.name);
        }
    "#;
    assert_eq!(threads.ask(anna, &register(1, "witness", source)).err, 0);
    assert_eq!(threads.ask(bruno, &acknowledge(1, "witness")).err, 0);
    let tops = tops(PARTITIONS);
    for top in &tops {
        threads.ask(anna, &create(1, top));
        threads.ask(anna, &create(2, &format!("{top}/members")));
        assert_eq!(threads.ask(bruno, &create_as(3, &format!("{top}/members/bruno"), 1)).err, 0);
    }
    assert_eq!(threads.ask(bruno, &request(9, Opcode::CloseSession, |_| ())).err, 0);
    for top in &tops {
        assert_eq!(children(&mut threads, anna, top), ["gone-0000000001", "members"]);
    }
    for partition in 0..PARTITIONS {
        let server = threads.shard(partition);
        assert_eq!(server.program_acknowledgements(), 1, "anna's");
        assert_eq!(server.tree().digest(), server.tree().recomputed_digest());
    }
}

#[test]
fn what_lives_elsewhere_is_refused_and_why_can_be_read() {
    let mut threads = Threads::new(PARTITIONS);
    let anna = threads.open(1);
    let tops = counters(&mut threads, anna);
    let source = format!(
        "on_operation(\"update\", \"/*/read\");\nfn update(request) {{\n    local.create(request.path);\n    return local.read({:?}).data;\n}}",
        tops[2]
    );
    assert_eq!(threads.ask(anna, &register(1, "reader", &source)).err, 0);
    assert_eq!(threads.ask(anna, &set(2, &format!("{}/read", tops[2]), b"")).err, 0);
    for top in [&tops[0], &tops[1], &tops[3]] {
        let refused = threads.ask(anna, &set(2, &format!("{top}/read"), b""));
        assert_eq!(refused.err, ErrorCode::Unimplemented as i32, "{top}");
        let why = text(&mut threads, anna, FAILURE_PATH).unwrap();
        assert!(why.starts_with("reader: line 4, column 17: local.read("), "{why}");
        assert_eq!(text(&mut threads, anna, &format!("{top}/read")), Err(ErrorCode::NoNode as i32));
    }
    let bad = threads.ask(anna, &register(3, "bad", "fn"));
    assert_eq!(bad.err, ErrorCode::BadArguments as i32);
    assert!(text(&mut threads, anna, FAILURE_PATH).unwrap().starts_with("/em/bad: line 1"));
    let multi = threads.ask(
        anna,
        &multi(4, Opcode::Multi, |out| {
            op(out, Opcode::Create, |out| {
                encode::create(out, &format!("{}/m", tops[1]), None, OPEN_ACL, 0, None);
            });
            op(out, Opcode::Create, |out| encode::create(out, "/em/forged", None, OPEN_ACL, 0, None));
        }),
    );
    assert!(!multi.body.is_empty());
    assert_eq!(children(&mut threads, anna, "/em"), ["reader"]);
}

#[test]
fn what_a_session_asks_behind_its_registration_sees_it_on_every_partition() {
    let mut threads = Threads::new(PARTITIONS);
    for thread in 0..PARTITIONS {
        let anna = threads.open(thread);
        let tops = counters(&mut threads, anna);
        let mut bytes = register(1, &format!("counter-{thread}"), COUNTER);
        for (number, top) in tops.iter().enumerate() {
            bytes.extend(get(2 + number as i32, &format!("{top}/increment"), false));
        }
        bytes.extend(delete(9, &format!("/em/counter-{thread}")));
        for top in &tops {
            bytes.extend(delete(10, &format!("{top}/count")));
        }
        threads.send(anna, &bytes);
        threads.settle();
        let frames = threads.take(anna);
        assert_eq!(frames.len(), 2 + 2 * tops.len());
        assert!(frames.iter().all(|frame| frame.err == 0), "{frames:?}");
        for frame in &frames[1..=tops.len()] {
            assert_eq!(&frame.body[..5], [0, 0, 0, 1, b'1']);
            assert_eq!(frame.body.len(), 5 + Stat::LEN);
        }
    }
}

/// The multi that clients send to delete a znode with all that is below it, which goes to one partition.
#[test]
fn a_program_that_is_deleted_with_what_is_below_it_is_gone_everywhere() {
    let mut threads = Threads::new(PARTITIONS);
    let (anna, bruno) = (threads.open(0), threads.open(2));
    let tops = counters(&mut threads, anna);
    for by_multi in [true, false] {
        assert_eq!(threads.ask(anna, &register(1, "counter", COUNTER)).err, 0);
        assert_eq!(threads.ask(bruno, &acknowledge(1, "counter")).err, 0);
        if by_multi {
            let names = children(&mut threads, anna, "/em/counter");
            let paths = names.iter().map(|name| format!("/em/counter/{name}"));
            let paths: Vec<String> = paths.chain(["/em/counter".to_owned()]).collect();
            let deletes = multi(2, Opcode::Multi, |out| {
                for path in &paths {
                    op(out, Opcode::Delete, |out| encode::path_version(out, path, -1));
                }
            });
            let answer = threads.ask(anna, &deletes);
            let results = MultiResults::decode(&mut Reader::new(&answer.body)).unwrap();
            assert_eq!((answer.err, results), (0, vec![MultiResult::Deleted; 4]));
        } else {
            assert_eq!(threads.ask(anna, &delete(2, "/em/counter/owner")).err, 0);
        }
        assert_eq!(children(&mut threads, anna, "/em"), [""; 0]);
        for top in &tops {
            assert_eq!(text(&mut threads, bruno, &format!("{top}/increment")), Err(ErrorCode::NoNode as i32));
        }
        for partition in 0..PARTITIONS {
            let server = threads.shard(partition);
            assert_eq!((server.programs().count(), server.program_acknowledgements()), (0, 0));
            assert!(server.tree().get("/em/counter").is_none());
        }
    }
}

#[test]
fn whoever_watches_is_told_once() {
    let mut threads = Threads::new(PARTITIONS);
    let (anna, bruno) = (threads.open(0), threads.open(1));
    let watch = request(1, Opcode::AddWatch, |body| encode::path_number(body, "/", 1));
    assert_eq!(threads.ask(bruno, &watch).err, 0);
    assert_eq!(threads.ask(anna, &register(1, "counter", COUNTER)).err, 0);
    let events: Vec<(i32, String)> = threads
        .take(bruno)
        .iter()
        .filter(|frame| frame.xid == xid::NOTIFICATION)
        .map(|frame| WatcherEvent::decode(&mut Reader::new(&frame.body)).unwrap())
        .map(|event| (event.kind, event.path.to_owned()))
        .filter(|(kind, _)| *kind == EventKind::Created as i32)
        .collect();
    let mut paths: Vec<&str> = events.iter().map(|(_, path)| path.as_str()).collect();
    let session = paths.pop().unwrap();
    assert!(session.starts_with("/em/counter/session-"));
    assert_eq!(paths, ["/em", "/em/counter", "/em/counter/owner"]);
    // What is only called alike is somebody's own, wherever it lives.
    for number in 0..10 {
        assert_eq!(threads.ask(anna, &create(2, &format!("/em{number}"))).err, 0);
    }
    let told = threads.take(bruno).iter().filter(|frame| frame.xid == xid::NOTIFICATION).count();
    assert_eq!(told, 10);
}

#[test]
fn programs_that_wait_find_their_znodes_on_one_partition() {
    let mut threads = Threads::new(PARTITIONS);
    let (anna, bruno) = (threads.open(2), threads.open(3));
    let source =
        BARRIER.replace("\"/ready", "\"/b/ready").replace("\"/barrier", "\"/b/barrier").replace("= 3", "= 2");
    for path in ["/b", "/b/barrier"] {
        assert_eq!(threads.ask(anna, &create(1, path)).err, 0);
    }
    assert_eq!(threads.ask(anna, &register(1, "barrier", &source)).err, 0);
    assert_eq!(threads.ask(bruno, &acknowledge(1, "barrier")).err, 0);
    assert_eq!(threads.ask(anna, &exists(2, "/b/ready/anna")).err, ErrorCode::NoNode as i32);
    assert_eq!(threads.ask(bruno, &exists(2, "/b/ready/bruno")).err, 0);
    let told: Vec<_> = threads.take(anna).iter().map(|frame| frame.xid).collect();
    assert_eq!(told, [xid::NOTIFICATION; 2]);
    assert_eq!(threads.ask(anna, &register(3, "election", ELECTION)).err, 0);
}

#[test]
fn calls_of_several_partitions_are_carried_out_once_and_in_order() {
    let mut threads = Threads::new(PARTITIONS);
    let (anna, bruno) = (threads.open(0), threads.open(1));
    let tops = counters(&mut threads, anna);
    assert_eq!(threads.ask(anna, &register(1, "counter", COUNTER)).err, 0);
    assert_eq!(threads.ask(bruno, &acknowledge(1, "counter")).err, 0);
    let mut expected = Vec::new();
    for round in 0..400 {
        let number = threads.draw(tops.len());
        threads.send(bruno, &get(round, &format!("{}/increment", tops[number]), false));
        expected.push(round);
        // What others write makes answers differ in how new they are.
        let other = threads.draw(tops.len());
        threads.send(anna, &set(1, &tops[other], b"x"));
        for _ in 0..threads.draw(4) {
            threads.step();
        }
    }
    threads.settle();
    let frames = threads.take(bruno);
    assert_eq!(frames.iter().map(|frame| frame.xid).collect::<Vec<_>>(), expected);
    assert!(frames.iter().all(|frame| frame.err == 0));
    threads.take(anna);
    let counts = tops.iter().map(|top| text(&mut threads, anna, &format!("{top}/count")).unwrap());
    let counts: Vec<i32> = counts.map(|count| count.parse().unwrap()).collect();
    assert_eq!(counts.iter().sum::<i32>(), 400);
}

#[test]
fn sessions_that_register_at_once_get_no_more_programs_than_there_may_be() {
    let programs = ProgramLimits { programs: 3, programs_per_session: 1, ..ProgramLimits::default() };
    for seed in 0..20 {
        let config = Config { partitions: PARTITIONS, programs: programs.clone(), ..Config::default() };
        let mut threads = Threads::of(&config, &[1]);
        threads.settle();
        let clients: Vec<_> = (0..PARTITIONS).map(|thread| threads.open(thread)).collect();
        (0..seed).for_each(|_| _ = threads.draw(2));
        for (number, client) in clients.iter().enumerate() {
            let both = [1, 2].map(|xid| register(xid, &format!("program-{number}-{xid}"), COUNTER));
            threads.send(*client, &both.concat());
        }
        threads.settle();
        let mut registered = 0;
        for client in &clients {
            let errors: Vec<i32> = threads.take(*client).into_iter().map(|frame| frame.err).collect();
            let succeeded = errors.iter().filter(|err| **err == 0).count();
            assert!(errors.len() == 2 && succeeded <= 1, "seed {seed}: {errors:?}");
            registered += succeeded;
        }
        assert_eq!(registered, 3, "seed {seed}");
        assert_eq!(children(&mut threads, clients[0], "/em").len(), 3);
    }
}

#[test]
fn a_multi_over_several_partitions_is_refused_where_a_program_would_carry_out_a_part() {
    let mut threads = Threads::new(PARTITIONS);
    let anna = threads.open(1);
    let tops = tops(PARTITIONS);
    for top in &tops {
        assert_eq!(threads.ask(anna, &create(1, top)).err, 0);
    }
    let source = "on_operation(\"create\", \"/*/made\");\nfn create(request) { return \"/elsewhere\"; }";
    assert_eq!(threads.ask(anna, &register(1, "maker", source)).err, 0);
    let makes = |names: [&str; 2]| {
        multi(4, Opcode::Multi, |out| {
            for (top, name) in tops.iter().zip(names) {
                op(out, Opcode::Create, |out| {
                    encode::create(out, &format!("{top}/{name}"), None, OPEN_ACL, 0, None);
                });
            }
        })
    };
    let refused = threads.ask(anna, &makes(["other", "made"]));
    let results = MultiResults::decode(&mut Reader::new(&refused.body)).unwrap();
    assert_eq!(results[1], MultiResult::Error(ErrorCode::Unimplemented as i32));
    assert_eq!(children(&mut threads, anna, &tops[0]), Vec::<String>::new());
    let bruno = threads.open(2);
    let made = threads.ask(bruno, &makes(["other", "made"]));
    let results = MultiResults::decode(&mut Reader::new(&made.body)).unwrap();
    assert!(matches!(results[1], MultiResult::Created { .. }), "he has acknowledged no program");
}
