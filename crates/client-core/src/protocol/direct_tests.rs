//! A direct client of a server with three partitions, of which the main connection leads to the first.

use super::lane::MAIN;
use super::tests::{completed, data_reply, frame, outputs, reply};
use super::*;
use alloc::vec;
use stoa_wire::{
    AddWatchMode, KeeperState, Opcode, PREAMBLE, RequestHeader, SideHello, Stamped, TAG_LEN, Table,
    Timestamp, answer_side, direct_op, partition_of,
};

const PARTITIONS: u8 = 3;

fn top(partition: u8) -> String {
    let find =
        |number: &u32| partition_of(alloc::format!("/top-{number}").as_bytes(), PARTITIONS) == partition;
    alloc::format!("/top-{}", (0..).find(find).unwrap())
}

/// A token of the positions of all partitions.
fn token(positions: [u64; 3]) -> Vec<u8> {
    let mut stamp = Timestamp::new(PARTITIONS);
    (0..).zip(positions).for_each(|(partition, position)| stamp.raise(partition, position));
    let mut token = Vec::new();
    stamp.encode(&mut token);
    token.extend([9; TAG_LEN]);
    token
}

fn greeting(table: Table) -> Vec<u8> {
    frame(|out| {
        let response = ConnectResponse {
            protocol_version: 0,
            timeout_ms: 6000,
            session_id: 7,
            password: [7; PASSWORD_LEN],
            read_only: Some(false),
        };
        response.encode(out);
        Offer { partitions: PARTITIONS, own: 0, token: &token([1, 1, 1]), table }.encode(out);
    })
}

fn stamped(positions: [u64; 3], frames: &[Vec<u8>]) -> Vec<u8> {
    let frames = frames.concat();
    let stamp = reply(direct_xid::STAMP, 0, 0, |out| {
        Stamped { covers: frames.len(), token: &token(positions) }.encode(out);
    });
    [stamp, frames].concat()
}

fn event(kind: EventKind, path: &str) -> Vec<u8> {
    reply(xid::NOTIFICATION, 9, 0, |out| {
        WatcherEvent { kind: kind as i32, state: KeeperState::SyncConnected as i32, path }.encode(out);
    })
}

fn opens(protocol: &mut Protocol) -> Vec<u8> {
    let open = |output| match output {
        Output::Side(SideWish::Open { partition }) => Some(partition),
        _ => None,
    };
    outputs(protocol).into_iter().filter_map(open).collect()
}

fn accept_side(protocol: &mut Protocol, partition: u8) {
    protocol.side_connected(partition, 0);
    let hello = core::mem::take(protocol.side_output(partition).unwrap());
    assert_eq!(hello[..4], PREAMBLE);
    assert_eq!(hello[4], partition);
    let hello = SideHello::decode(&hello[9..]).unwrap();
    assert_eq!((hello.session_id, hello.password), (7, &[7; PASSWORD_LEN][..]));
    protocol.side_receive(partition, &frame(|out| answer_side(out, 0)), 0).unwrap();
}

/// A client with all its connections.
fn direct() -> Protocol {
    let mut protocol = tests::protocol_of(true);
    protocol.connected(0);
    protocol.output().clear();
    protocol.receive(&greeting(Table::default()), 0).unwrap();
    assert_eq!(opens(&mut protocol), [1, 2]);
    accept_side(&mut protocol, 1);
    assert_eq!(outputs(&mut protocol), [], "another one is to come");
    accept_side(&mut protocol, 2);
    assert_eq!(outputs(&mut protocol), [Output::State(State::Connected)]);
    protocol
}

/// What was sent on a connection: xids, opcodes and bodies.
fn sent(protocol: &mut Protocol, at: usize) -> Vec<(i32, i32, Vec<u8>)> {
    let bytes = core::mem::take(&mut protocol.lanes[at].output);
    let (mut rest, mut frames) = (bytes.as_slice(), Vec::new());
    while let Some((payload, tail)) = next_frame(rest, 1 << 20).unwrap() {
        rest = tail;
        let mut reader = Reader::new(payload);
        let header = RequestHeader::decode(&mut reader).unwrap();
        frames.push((header.xid, header.opcode, reader.rest().to_vec()));
    }
    frames
}

fn opcodes(frames: &[(i32, i32, Vec<u8>)]) -> Vec<i32> {
    frames.iter().map(|(_, opcode, _)| *opcode).collect()
}

fn get(partition: u8, watch: Option<u64>) -> Call {
    Call::GetData { path: top(partition), watch: watch.map(WatchId) }
}

const GET: i32 = Opcode::GetData as i32;

fn data() -> Output {
    completed(0, Ok(Reply::Data { data: vec![], stat: stoa_wire::Stat::default() }))
}

fn done(token: Token) -> Output {
    let Output::Completed { result, .. } = data() else { panic!() };
    completed(token, result)
}

fn changed(watch: u64, partition: u8) -> Output {
    let event = Event { kind: EventKind::DataChanged, path: top(partition), zxid: 9 };
    Output::Event { watch: WatchId(watch), event }
}

/// Sets a persistent watch on a partition's directory.
fn watch(protocol: &mut Protocol, partition: u8, watch: u64, fast: bool) {
    let call = Call::AddWatch { path: top(partition), mode: AddWatchMode::Persistent, watch: WatchId(watch) };
    let call = if fast { Call::Fast(call.into()) } else { call };
    protocol.submit(watch, call, 0);
    let at = if partition == 0 { MAIN } else { usize::from(partition) + 1 };
    let (xid, ..) = sent(protocol, at).pop().unwrap();
    let answer = reply(xid, 5, 0, |out| stoa_wire::put::i32(out, 0));
    match partition {
        0 => protocol.receive(&answer, 0).unwrap(),
        of => protocol.side_receive(of, &answer, 0).unwrap(),
    }
    outputs(protocol);
}

#[test]
fn calls_go_to_their_partitions_one_after_the_other() {
    let mut protocol = direct();
    for (token, partition) in [(1, 1), (2, 1), (3, 2), (4, 0)] {
        protocol.submit(token, get(partition, None), 0);
    }
    let first = sent(&mut protocol, 2);
    assert_eq!(opcodes(&first), [direct_op::SEEN, GET, GET], "with what was seen with the session");
    assert_eq!(first[0].2, token([1, 1, 1]));
    assert!(sent(&mut protocol, 3).is_empty());
    protocol.side_receive(1, &data_reply(1), 0).unwrap();
    assert!(sent(&mut protocol, 3).is_empty(), "not all is answered");
    protocol.side_receive(1, &stamped([1, 5, 1], &[data_reply(2)]), 0).unwrap();
    assert_eq!(outputs(&mut protocol), [done(1), done(2)]);
    let second = sent(&mut protocol, 3);
    assert_eq!(opcodes(&second), [direct_op::SEEN, direct_op::SEEN, GET]);
    assert_eq!(second[1].2, token([1, 5, 1]));
    protocol.side_receive(2, &data_reply(3), 0).unwrap();
    let third = sent(&mut protocol, MAIN);
    assert_eq!(opcodes(&third), [direct_op::SEEN, GET], "the other one has said nothing new");
    protocol.receive(&data_reply(4), 0).unwrap();
    protocol.submit(5, get(2, None), 0);
    assert_eq!(opcodes(&sent(&mut protocol, 3)), [GET], "it is told nothing twice");
}

#[test]
fn fast_reads_go_at_once_and_are_answered_out_of_turn() {
    let mut protocol = direct();
    protocol.submit(1, get(1, None), 0);
    protocol.submit(2, get(2, None), 0);
    protocol.submit(3, Call::Fast(get(2, None).into()), 0);
    protocol.submit(4, Call::Fast(get(1, None).into()), 0);
    assert_eq!(opcodes(&sent(&mut protocol, 2)), [direct_op::SEEN, GET, direct_op::FAST]);
    let quick = sent(&mut protocol, 3);
    assert_eq!(opcodes(&quick), [direct_op::FAST]);
    assert_eq!(quick[0].2[..4], GET.to_be_bytes());
    protocol.side_receive(1, &data_reply(3), 0).unwrap();
    protocol.side_receive(2, &data_reply(2), 0).unwrap();
    assert_eq!(outputs(&mut protocol), [done(4), done(3)]);
    protocol.side_receive(1, &data_reply(1), 0).unwrap();
    assert_eq!(outputs(&mut protocol), [done(1)]);
    assert_eq!(opcodes(&sent(&mut protocol, 3)), [direct_op::SEEN, GET]);
    // What is no read is no fast read.
    let call = Call::Fast(Call::Sync { path: top(1) }.into());
    protocol.submit(5, call, 0);
    assert_eq!(outputs(&mut protocol), [completed(5, Err(ErrorCode::BadArguments))]);
}

#[test]
fn a_reply_waits_for_events_that_come_before_it_on_other_connections() {
    let mut protocol = direct();
    watch(&mut protocol, 1, 50, false);
    protocol.submit(1, get(2, None), 0);
    let (xid, ..) = sent(&mut protocol, 3).pop().unwrap();
    // It rests on position 7 of the watched partition, of which nothing has come yet.
    protocol.side_receive(2, &stamped([1, 7, 4], &[data_reply(xid)]), 0).unwrap();
    assert_eq!(outputs(&mut protocol), []);
    let asked = sent(&mut protocol, 2);
    assert_eq!((opcodes(&asked), asked[0].2.clone()), (vec![direct_op::REACH], token([1, 7, 4])));
    // The batch is not whole before its last byte.
    let batch = stamped([1, 7, 1], &[event(EventKind::DataChanged, &top(1)), data_reply(0)]);
    let event_end = batch.len() - data_reply(0).len() - 1;
    protocol.side_receive(1, &batch[..event_end], 0).unwrap();
    assert_eq!(outputs(&mut protocol), []);
    protocol.side_receive(1, &batch[event_end..=event_end], 0).unwrap();
    assert_eq!(outputs(&mut protocol), [changed(50, 1)]);
    let rest = reply(direct_xid::REACHED, 0, 0, |_| {});
    let mut other = direct_with_event();
    other.side_receive(1, &rest, 0).unwrap();
    assert_eq!(outputs(&mut other), [done(1)]);
}

/// A client that waits for one partition to have nothing more to say.
fn direct_with_event() -> Protocol {
    let mut protocol = direct();
    watch(&mut protocol, 1, 50, false);
    protocol.submit(1, get(2, None), 0);
    let (xid, ..) = sent(&mut protocol, 3).pop().unwrap();
    protocol.side_receive(2, &stamped([1, 7, 4], &[data_reply(xid)]), 0).unwrap();
    assert_eq!(outputs(&mut protocol), []);
    protocol
}

#[test]
fn events_of_two_partitions_come_in_the_order_in_which_they_happened() {
    let mut protocol = direct();
    watch(&mut protocol, 1, 51, false);
    watch(&mut protocol, 2, 52, false);
    // The second follows from the first, and comes before it.
    let second = stamped([1, 7, 4], &[event(EventKind::DataChanged, &top(2))]);
    protocol.side_receive(2, &second, 0).unwrap();
    assert_eq!(outputs(&mut protocol), []);
    let first = stamped([1, 7, 1], &[event(EventKind::DataChanged, &top(1))]);
    protocol.side_receive(1, &first, 0).unwrap();
    assert_eq!(outputs(&mut protocol), [changed(51, 1), changed(52, 2)]);
    // What has nothing to do with the other one does not wait.
    let apart = stamped([1, 8, 1], &[event(EventKind::DataChanged, &top(1))]);
    protocol.side_receive(1, &apart, 0).unwrap();
    assert_eq!(outputs(&mut protocol), [changed(51, 1)]);
}

#[test]
fn a_fast_watch_waits_for_nothing_and_nothing_waits_for_it() {
    let mut protocol = direct();
    watch(&mut protocol, 1, 51, false);
    watch(&mut protocol, 2, 52, true);
    let second = stamped([1, 7, 4], &[event(EventKind::DataChanged, &top(2))]);
    protocol.side_receive(2, &second, 0).unwrap();
    assert_eq!(outputs(&mut protocol), [changed(52, 2)]);
    let mut protocol = direct();
    watch(&mut protocol, 1, 51, true);
    protocol.submit(1, get(2, None), 0);
    let (xid, ..) = sent(&mut protocol, 3).pop().unwrap();
    protocol.side_receive(2, &stamped([1, 7, 4], &[data_reply(xid)]), 0).unwrap();
    assert_eq!(outputs(&mut protocol), [done(1)]);
}

#[test]
fn what_was_sent_to_the_wrong_partition_is_sent_again_in_order() {
    let mut protocol = direct();
    for (token, partition) in [(1, 1), (2, 1), (3, 2)] {
        protocol.submit(token, get(partition, None), 0);
    }
    sent(&mut protocol, 2);
    protocol.side_receive(1, &reply(1, 0, ELSEWHERE, |_| {}), 0).unwrap();
    assert_eq!(opcodes(&sent(&mut protocol, MAIN)), [direct_op::TABLE]);
    let table = Table { version: 4, exceptions: vec![(top(1), 2)] };
    protocol.receive(&reply(direct_xid::TABLE, 0, 0, |out| table.encode(out)), 0).unwrap();
    assert!(sent(&mut protocol, 3).is_empty(), "another one may come back too");
    protocol.side_receive(1, &reply(2, 0, ELSEWHERE, |_| {}), 0).unwrap();
    // It is asked once more, because the first answer may have been older than the second refusal.
    assert_eq!(opcodes(&sent(&mut protocol, MAIN)), [direct_op::TABLE]);
    protocol.receive(&reply(direct_xid::TABLE, 0, 0, |out| table.encode(out)), 0).unwrap();
    let again = sent(&mut protocol, 3);
    assert_eq!(opcodes(&again), [direct_op::SEEN, direct_op::ROUTED, GET, GET, GET]);
    assert_eq!(again[1].2, 4_u64.to_be_bytes());
    for (_, xid) in [(1, again[2].0), (2, again[3].0), (3, again[4].0)] {
        protocol.side_receive(2, &data_reply(xid), 0).unwrap();
    }
    assert_eq!(outputs(&mut protocol), [done(1), done(2), done(3)]);
    // Where the table does not help, the main connection does.
    protocol.submit(4, get(2, None), 0);
    for _ in 0..2 {
        let (xid, ..) = sent(&mut protocol, 3).pop().unwrap();
        protocol.side_receive(2, &reply(xid, 0, ELSEWHERE, |_| {}), 0).unwrap();
        assert_eq!(opcodes(&sent(&mut protocol, MAIN)), [direct_op::TABLE]);
        protocol.receive(&reply(direct_xid::TABLE, 0, 0, |out| table.encode(out)), 0).unwrap();
    }
    assert_eq!(sent(&mut protocol, MAIN).pop().map(|(_, opcode, _)| opcode), Some(GET));
}

#[test]
fn a_lost_side_connection_is_opened_again_with_its_watches() {
    let mut protocol = direct();
    watch(&mut protocol, 1, 51, false);
    protocol.submit(1, get(1, None), 0);
    protocol.submit(2, get(2, None), 0);
    protocol.side_disconnected(1, 10).unwrap();
    let lost = [completed(1, Err(ErrorCode::ConnectionLoss)), Output::Side(SideWish::Open { partition: 1 })];
    assert_eq!(outputs(&mut protocol), lost);
    protocol.submit(3, get(1, None), 10);
    protocol.tick(10).unwrap();
    protocol.submit(4, get(2, None), 10);
    // The event that was lost comes before what followed it.
    let (xid, ..) = sent(&mut protocol, 3).pop().unwrap();
    protocol.side_receive(2, &stamped([1, 7, 4], &[data_reply(xid)]), 10).unwrap();
    assert_eq!(outputs(&mut protocol), []);
    accept_side(&mut protocol, 1);
    let again = sent(&mut protocol, 2);
    let again = again.iter().find(|(_, opcode, _)| *opcode == Opcode::SetWatches2 as i32).unwrap();
    assert_eq!(again.2[..8], 5_i64.to_be_bytes(), "since the last that was answered there");
    let missed = [event(EventKind::DataChanged, &top(1)), reply(xid::SET_WATCHES, 9, 0, |_| {})];
    protocol.side_receive(1, &stamped([1, 7, 1], &missed), 10).unwrap();
    assert_eq!(outputs(&mut protocol), [changed(51, 1), done(2)]);
    assert_eq!(opcodes(&sent(&mut protocol, 2)).last(), Some(&GET), "what waited for it goes on");
    // One that does not come back ends all.
    protocol.side_disconnected(1, 20).unwrap();
    assert_eq!(protocol.side_disconnected(1, 30), Err(Fault::SideLost));
    protocol.disconnected();
    assert!(outputs(&mut protocol).contains(&Output::State(State::Suspended)));
    assert_eq!(protocol.sides().count(), 0);
}

#[test]
fn side_connections_that_are_refused_or_late_are_done_without() {
    let mut protocol = tests::protocol_of(true);
    protocol.connected(0);
    protocol.output().clear();
    protocol.receive(&greeting(Table::default()), 0).unwrap();
    protocol.side_connected(1, 0);
    protocol.side_receive(1, &frame(|out| answer_side(out, -112)), 0).unwrap();
    protocol.side_disconnected(1, 0).unwrap();
    protocol.side_connected(2, 0);
    outputs(&mut protocol);
    assert_eq!(protocol.next_tick_ms(), Some(1000));
    protocol.tick(1000).unwrap();
    let told = [Output::Side(SideWish::Close { partition: 2 }), Output::State(State::Connected)];
    assert_eq!(outputs(&mut protocol), told);
    protocol.submit(1, get(1, None), 1000);
    protocol.submit(2, Call::Fast(get(2, None).into()), 1000);
    assert_eq!(opcodes(&sent(&mut protocol, MAIN)), [GET, GET]);
}

#[test]
fn heartbeats_and_silence_are_each_connection_s_own() {
    let mut protocol = direct();
    protocol.tick(2000).unwrap();
    for at in [MAIN, 2, 3] {
        assert_eq!(opcodes(&sent(&mut protocol, at)), [Opcode::Ping as i32]);
    }
    protocol.receive(&reply(xid::PING, 0, 0, |_| {}), 3000).unwrap();
    protocol.side_receive(1, &reply(xid::PING, 0, 0, |_| {}), 3000).unwrap();
    protocol.tick(4000).unwrap();
    let told =
        [Output::Side(SideWish::Close { partition: 2 }), Output::Side(SideWish::Open { partition: 2 })];
    assert_eq!(outputs(&mut protocol), told);
}

#[test]
fn identities_are_proved_on_each_connection() {
    let mut protocol = direct();
    protocol.submit(1, Call::Auth { scheme: "digest".to_owned(), auth: b"me:secret".to_vec() }, 0);
    for at in [MAIN, 2, 3] {
        assert_eq!(opcodes(&sent(&mut protocol, at)), [Opcode::Auth as i32]);
    }
    let proved = reply(xid::AUTH, 0, 0, |_| {});
    protocol.side_receive(1, &proved, 0).unwrap();
    assert_eq!(outputs(&mut protocol), []);
    protocol.receive(&proved, 0).unwrap();
    assert_eq!(outputs(&mut protocol), [completed(1, Ok(Reply::Nothing))]);
    assert_eq!(protocol.side_receive(2, &reply(xid::AUTH, 0, -115, |_| {}), 0), Err(Fault::AuthFailed));
}

#[test]
fn nonsense_from_a_server_is_a_fault() {
    let bad = [
        reply(direct_xid::STAMP, 0, 0, |_| {}),
        reply(direct_xid::STAMP, 0, 0, |out| out.extend([0xff; 40])),
        reply(direct_xid::TABLE, 0, 0, |_| {}),
        reply(5, 0, 0, |_| {}),
    ];
    for bytes in bad {
        assert!(direct().side_receive(1, &bytes, 0).is_err());
    }
    direct().side_receive(7, &[1, 2, 3], 0).unwrap();
    direct().side_receive(0, &reply(direct_xid::REACHED, 0, 0, |_| {}), 0).unwrap();
}

#[test]
fn a_side_connection_that_is_lost_before_all_are_there_counts_when_it_is_back() {
    let mut protocol = tests::protocol_of(true);
    protocol.connected(0);
    protocol.output().clear();
    protocol.receive(&greeting(Table::default()), 0).unwrap();
    accept_side(&mut protocol, 1);
    protocol.side_disconnected(1, 0).unwrap();
    accept_side(&mut protocol, 2);
    outputs(&mut protocol);
    accept_side(&mut protocol, 1);
    assert_eq!(outputs(&mut protocol), [Output::State(State::Connected)]);
}

#[test]
fn an_event_is_kept_behind_the_reply_that_sets_its_watch() {
    for fast in [false, true] {
        let mut protocol = direct();
        watch(&mut protocol, 2, 52, false);
        let call = Call::AddWatch { path: top(1), mode: AddWatchMode::Persistent, watch: WatchId(51) };
        protocol.submit(1, if fast { Call::Fast(call.into()) } else { call }, 0);
        let (xid, ..) = sent(&mut protocol, 2).pop().unwrap();
        let set = reply(xid, 5, 0, |out| stoa_wire::put::i32(out, 0));
        // Something of the other partition comes before both.
        let batch = stamped([1, 7, 4], &[set, event(EventKind::DataChanged, &top(1))]);
        protocol.side_receive(1, &batch, 0).unwrap();
        let at_once = if fast { vec![changed(51, 1)] } else { vec![] };
        assert_eq!(outputs(&mut protocol), at_once);
        protocol.side_receive(2, &reply(direct_xid::REACHED, 0, 0, |_| {}), 0).unwrap();
        let mut then = vec![completed(1, Ok(Reply::Nothing))];
        if !fast {
            then.push(changed(51, 1));
        }
        assert_eq!(outputs(&mut protocol), then);
    }
}

/// Nothing is missing on a side connection up to there.
fn reaches(protocol: &mut Protocol, partition: u8, positions: [u64; 3]) {
    protocol.side_receive(partition, &stamped(positions, &[]), 0).unwrap();
}

#[test]
fn an_event_of_one_partition_may_stand_behind_one_of_another_that_waits() {
    let mut protocol = direct();
    for (partition, id) in [(0, 50), (1, 51), (2, 52)] {
        watch(&mut protocol, partition, id, false);
    }
    (1..3).for_each(|of| reaches(&mut protocol, of, [1, 1, 1]));
    // On the main connection two partitions speak. The first event waits for the third partition.
    let of_third = stamped([1, 1, 5], &[event(EventKind::DataChanged, &top(0))]);
    let of_first = stamped([3, 1, 1], &[event(EventKind::DataChanged, &top(0))]);
    protocol.receive(&[of_third, of_first, stamped([3, 4, 1], &[])].concat(), 0).unwrap();
    assert_eq!(outputs(&mut protocol), []);
    // This one follows from the second event.
    let follows = stamped([3, 4, 1], &[event(EventKind::DataChanged, &top(1))]);
    protocol.side_receive(1, &follows, 0).unwrap();
    assert_eq!(outputs(&mut protocol), []);
    reaches(&mut protocol, 2, [1, 1, 5]);
    assert_eq!(outputs(&mut protocol), [changed(50, 0), changed(50, 0), changed(51, 1)]);
}

#[test]
fn what_follows_from_an_operation_comes_after_all_parts_of_it() {
    let mut protocol = direct();
    for (partition, id) in [(0, 50), (1, 51), (2, 52)] {
        watch(&mut protocol, partition, id, false);
    }
    let part = |partition| stamped([1, 7, 4], &[event(EventKind::DataChanged, &top(partition))]);
    let follows = stamped([3, 7, 5], &[event(EventKind::DataChanged, &top(0))]);
    protocol.receive(&follows, 0).unwrap();
    protocol.side_receive(1, &part(1), 0).unwrap();
    protocol.side_receive(2, &part(2), 0).unwrap();
    assert_eq!(outputs(&mut protocol), [], "more may come of the third one before the first event");
    reaches(&mut protocol, 2, [1, 7, 5]);
    assert_eq!(outputs(&mut protocol), [changed(51, 1), changed(52, 2), changed(50, 0)]);
}

#[test]
fn an_event_that_was_missed_is_told_at_once() {
    let mut protocol = direct();
    watch(&mut protocol, 1, 51, false);
    watch(&mut protocol, 2, 52, false);
    let waits = stamped([1, 5, 5], &[event(EventKind::DataChanged, &top(1))]);
    protocol.side_receive(1, &waits, 0).unwrap();
    assert_eq!(outputs(&mut protocol), []);
    // Nobody knows what it comes before, so it does not stand behind what waits.
    let (kind, path) = (EventKind::DataChanged, top(1));
    let missed = reply(xid::NOTIFICATION, ZXID_MISSED, 0, |out| {
        let state = KeeperState::SyncConnected as i32;
        WatcherEvent { kind: kind as i32, state, path: &path }.encode(out);
    });
    protocol.side_receive(1, &missed, 0).unwrap();
    let event = Event { kind, path, zxid: ZXID_MISSED };
    assert_eq!(outputs(&mut protocol), [Output::Event { watch: WatchId(51), event }]);
}

#[test]
fn what_is_given_at_once_is_there_when_all_of_it_is() {
    let mut protocol = direct();
    watch(&mut protocol, 0, 50, false);
    protocol.submit(1, get(1, None), 0);
    let (xid, ..) = sent(&mut protocol, 2).pop().unwrap();
    protocol.side_receive(1, &stamped([3, 4, 1], &[data_reply(xid)]), 0).unwrap();
    // The first stamp covers the second one too.
    let second = stamped([3, 4, 1], &[event(EventKind::DataChanged, &top(0))]);
    let first = reply(direct_xid::STAMP, 0, 0, |out| {
        Stamped { covers: second.len(), token: &token([3, 4, 5]) }.encode(out);
    });
    protocol.receive(&first, 0).unwrap();
    assert_eq!(outputs(&mut protocol), []);
    protocol.receive(&second, 0).unwrap();
    assert_eq!(outputs(&mut protocol), [changed(50, 0), done(1)]);
    assert_eq!(protocol.lanes[MAIN].reached.at(2), 5, "the first one's too");
}

#[test]
fn every_partition_hears_of_all_that_others_have_told() {
    let mut protocol = direct();
    // On the main connection one that does not know of the other comes behind it.
    protocol.receive(&[stamped([5, 1, 1], &[]), stamped([1, 6, 1], &[])].concat(), 0).unwrap();
    reaches(&mut protocol, 1, [1, 7, 1]);
    protocol.side_disconnected(1, 0).unwrap();
    protocol.submit(1, get(2, None), 0);
    let told = sent(&mut protocol, 3);
    assert_eq!(opcodes(&told), [direct_op::SEEN, direct_op::SEEN, direct_op::SEEN, GET]);
    let tokens: Vec<_> = told[..3].iter().map(|(_, _, token)| token.clone()).collect();
    assert_eq!(tokens, [[5, 1, 1], [1, 6, 1], [1, 7, 1]].map(token), "also on a connection that is lost");
}

#[test]
fn watches_that_were_moved_while_their_connection_was_lost_begin_anew() {
    let mut protocol = direct();
    watch(&mut protocol, 1, 51, false);
    protocol.side_disconnected(1, 0).unwrap();
    let table = Table { version: 1, exceptions: vec![(top(1), 2)] };
    protocol.receive(&reply(direct_xid::TABLE, 0, 0, |out| table.encode(out)), 0).unwrap();
    protocol.side_connected(1, 0);
    let accepted = protocol.side_receive(1, &frame(|out| answer_side(out, 0)), 0);
    assert_eq!(accepted, Err(Fault::SideLost));
}

#[test]
fn a_fast_watch_is_set_again_by_what_its_partition_had_said() {
    let mut protocol = direct();
    watch(&mut protocol, 0, 50, false);
    let read = |xid, zxid| {
        reply(xid, zxid, 0, |out| {
            stoa_wire::put::opt_buffer(out, Some(b""));
            stoa_wire::Stat::default().encode(out);
        })
    };
    protocol.submit(1, get(0, None), 0);
    protocol.submit(2, Call::Fast(get(0, Some(53)).into()), 0);
    let xids: Vec<_> =
        sent(&mut protocol, MAIN).iter().map(|(xid, ..)| *xid).filter(|xid| *xid > 0).collect();
    // The first answer is another partition's, by way of the main connection.
    protocol.receive(&[read(xids[0], 40), read(xids[1], 30)].concat(), 0).unwrap();
    outputs(&mut protocol);
    protocol.disconnected();
    assert_eq!(protocol.unset.iter().map(|(since, _)| *since).collect::<Vec<_>>(), [30]);
}
