//! One relay or one leader, frame by frame.

use crate::rng::Rng;
use bytes::Bytes;
use stoa_forest::{
    Acknowledge, Acknowledgement, Complaint, Content, Epoch, Frame, Ids, Limits, Output, Place, Pull, Pulled,
    Relay, Settings, Shape, Spread, Spreader,
};

const LEADER: u8 = 1;

fn servers() -> Ids {
    (1..=50).collect()
}

fn shape() -> Shape {
    Shape::new(&servers(), LEADER, Settings::default(), &Ids::default())
}

/// An interior of tree 2 that has a parent and children, and a relay that is it.
fn relay() -> (u8, Relay) {
    let shape = shape();
    let is_middle = |id: &u8| shape.parent(2, *id).is_some() && !shape.children(2, *id).is_empty();
    let me = shape.servers().iter().find(is_middle).unwrap();
    let mut relay = Relay::new(me, Limits::default());
    relay.set_servers(&servers());
    relay.enter(0, 3, Some(LEADER));
    (me, relay)
}

fn spread(count: u32, tree: u8, number: u64, place: (u64, u64), content: Content) -> Bytes {
    Frame::Spread(Spread {
        epoch: Epoch { term: 3, count },
        leader: LEADER,
        settings: Settings::default(),
        aside: Ids::default(),
        tree,
        number,
        round: 0,
        place: Place { previous: place.0, last: place.1 },
        content,
    })
    .encode()
}

fn whole() -> Content {
    Content::Whole(Bytes::from_static(b"append"))
}

fn all(relay: &mut Relay) -> Vec<Output> {
    std::iter::from_fn(|| relay.poll()).collect()
}

fn delivered(outputs: &[Output]) -> Vec<(u64, u64)> {
    let place = |output: &Output| match output {
        Output::Deliver { place, .. } => Some((place.previous, place.last)),
        _ => None,
    };
    outputs.iter().filter_map(place).collect()
}

/// To whom what was sent.
fn sent(outputs: &[Output]) -> Vec<(u8, Frame)> {
    let frame = |output: &Output| match output {
        Output::Send { to, frame } => Some((*to, Frame::decode(frame.clone()).unwrap())),
        _ => None,
    };
    outputs.iter().filter_map(frame).collect()
}

#[test]
fn a_frame_is_passed_on_once_before_it_is_delivered() {
    let (me, mut relay) = relay();
    let shape = shape();
    let parent = shape.parent(2, me).unwrap();
    let frame = spread(1, 2, 1, (0, 4), whole());
    relay.receive(10, parent, frame.clone()).unwrap();
    let outputs = all(&mut relay);
    let children = shape.children(2, me);
    for (output, child) in outputs.iter().zip(children) {
        assert_eq!(*output, Output::Send { to: *child, frame: frame.clone() });
    }
    assert_eq!(outputs.len(), children.len() + 1);
    assert_eq!(delivered(&outputs), [(0, 4)]);
    // Again, from wherever: nothing. Down another tree, where it is a leaf: nothing but what it is.
    relay.receive(11, parent, frame.clone()).unwrap();
    relay.receive(11, 7, frame).unwrap();
    relay.receive(11, 7, spread(1, 3, 1, (0, 4), whole())).unwrap();
    assert_eq!(all(&mut relay), []);
}

#[test]
fn frames_of_former_shapes_and_terms() {
    let (me, mut relay) = relay();
    let parent = shape().parent(2, me).unwrap();
    let children = shape().children(2, me).len();
    for (count, number) in [(5, 10), (6, 11)] {
        relay.receive(10, parent, spread(count, 2, number, (0, 0), Content::Idle { committed: 0 })).unwrap();
        assert_eq!(all(&mut relay).len(), children);
    }
    // Of the shape before: as good as any. Of one before that: a good append, but it goes nowhere.
    relay.receive(10, parent, spread(5, 2, 9, (0, 1), whole())).unwrap();
    assert_eq!(all(&mut relay).len(), children + 1);
    relay.receive(10, parent, spread(4, 2, 8, (1, 2), whole())).unwrap();
    let outputs = all(&mut relay);
    assert_eq!((outputs.len(), delivered(&outputs)), (1, vec![(1, 2)]));
    // Of a former leader: nothing.
    relay.enter(11, 4, Some(2));
    relay.receive(12, parent, spread(7, 2, 20, (2, 3), whole())).unwrap();
    relay.receive(12, 9, Frame::Pull(Pull { term: 3, after: 0, upto: 1 }).encode()).unwrap();
    relay.stored(3, 1, 2);
    assert_eq!(all(&mut relay), []);
    assert_eq!(relay.reign(), (4, Some(2)));
}

#[test]
fn nothing_of_a_former_term_reaches_the_engine() {
    let (_, mut relay) = relay();
    relay.receive(10, 7, spread(1, 2, 1, (0, 4), whole())).unwrap();
    relay.enter(10, 4, None);
    assert_eq!(delivered(&all(&mut relay)), []);
    // Of its log it only has what is committed, until it is told more.
    relay.receive(11, 9, Frame::Pull(Pull { term: 4, after: 0, upto: 4 }).encode()).unwrap();
    assert_eq!(all(&mut relay), []);
    relay.has(4, 2);
    assert_eq!(all(&mut relay), [Output::Asked { by: 9, term: 4, after: 0, upto: 2 }]);
}

#[test]
fn what_has_a_gap_before_it_waits() {
    let (_, mut relay) = relay();
    for (number, place) in [(3, (9, 12)), (2, (5, 9)), (4, (12, 12))] {
        relay.receive(10, 7, spread(1, 3, number, place, whole())).unwrap();
    }
    assert_eq!(all(&mut relay), []);
    relay.receive(11, 7, spread(1, 3, 1, (0, 5), whole())).unwrap();
    assert_eq!(delivered(&all(&mut relay)), [(0, 5), (5, 9), (9, 12), (12, 12)]);
}

#[test]
fn what_is_missing_is_asked_of_who_named_it_then_of_parents_then_of_the_leader() {
    let (me, mut relay) = relay();
    let shape = shape();
    let by = shape.parent(4, me).unwrap();
    relay.receive(1000, by, spread(1, 4, 1, (0, 8), Content::Header)).unwrap();
    relay.tick(5_999);
    assert!(sent(&all(&mut relay)).is_empty(), "the body is on its way");
    let mut asked = Vec::new();
    for now in (6_000..60_000).step_by(1000) {
        relay.tick(now);
        for (to, frame) in sent(&all(&mut relay)) {
            assert_eq!(frame, Frame::Pull(Pull { term: 3, after: 0, upto: 8 }));
            asked.push(to);
        }
        if asked.last() == Some(&LEADER) {
            break;
        }
    }
    let mut expected = vec![by];
    expected.extend((0..5).filter_map(|tree| shape.parent(tree, me)));
    let mut met = Ids::default();
    expected.retain(|id| {
        !met.contains(*id) && {
            met.insert(*id);
            true
        }
    });
    expected.push(LEADER);
    assert_eq!(asked, expected);
    // A part of it comes: who has sent it is asked for the rest at once.
    let place = Place { previous: 0, last: 3 };
    let pulled = Frame::Pulled(Pulled { term: 3, place, body: Bytes::from_static(b"part") });
    relay.receive(60_000, LEADER, pulled.encode()).unwrap();
    let outputs = all(&mut relay);
    assert_eq!(delivered(&outputs), [(0, 3)]);
    assert_eq!(sent(&outputs), [(LEADER, Frame::Pull(Pull { term: 3, after: 3, upto: 8 }))]);
}

#[test]
fn who_asks_too_early_is_told_later() {
    let (_, mut relay) = relay();
    relay.receive(10, 9, Frame::Pull(Pull { term: 3, after: 2, upto: 6 }).encode()).unwrap();
    assert_eq!(all(&mut relay), []);
    relay.receive(11, 7, spread(1, 3, 1, (0, 4), whole())).unwrap();
    let outputs = all(&mut relay);
    assert_eq!(outputs[1..], [Output::Asked { by: 9, term: 3, after: 2, upto: 4 }]);
}

fn acknowledge(server: u8, position: u64) -> Acknowledge {
    Acknowledge { term: 3, items: vec![Acknowledgement { server, disk: 77, position, round: 0 }] }
}

#[test]
fn acknowledgements_of_a_turn_go_up_together_and_in_no_circle() {
    let (me, mut relay) = relay();
    let shape = shape();
    let (parent, child) = (shape.parent(2, me).unwrap(), shape.children(2, me)[0]);
    relay.receive(1000, parent, spread(1, 2, 1, (0, 0), Content::Idle { committed: 0 })).unwrap();
    all(&mut relay);
    for (server, position) in [(child, 5), (child, 4), (40, 9)] {
        let frame = Frame::Acknowledge(acknowledge(server, position));
        relay.receive(1000, child, frame.encode()).unwrap();
    }
    let late = Acknowledge { term: 2, ..acknowledge(child, 99) };
    relay.receive(1000, child, Frame::Acknowledge(late).encode()).unwrap();
    relay.stored(3, 5, 6);
    relay.stored(3, 5, 7);
    // From somebody who takes this server for its parent, by another shape: straight to the leader.
    relay.receive(1000, parent, Frame::Acknowledge(acknowledge(parent, 3)).encode()).unwrap();
    let sent_now = sent(&all(&mut relay));
    let mut items = vec![
        Acknowledgement { server: child, disk: 77, position: 5, round: 0 },
        Acknowledgement { server: 40, disk: 77, position: 9, round: 0 },
        Acknowledgement { server: me, disk: 5, position: 7, round: 0 },
    ];
    items.sort_unstable();
    let merged = Frame::Acknowledge(Acknowledge { term: 3, items });
    assert_eq!(sent_now, [(parent, merged), (LEADER, Frame::Acknowledge(acknowledge(parent, 3)))]);
    // The parent ends: what it was given last is said again, to the leader, but not too often.
    relay.gone(parent);
    assert!(all(&mut relay).is_empty());
    assert_eq!(relay.due_us(), Some(1250));
    relay.tick(1250);
    let own =
        Acknowledge { term: 3, items: vec![Acknowledgement { server: me, disk: 5, position: 7, round: 0 }] };
    assert_eq!(sent(&all(&mut relay)), [(LEADER, Frame::Acknowledge(own))]);
}

#[test]
fn what_a_server_has_is_said_again_as_it_may_have_been_lost() {
    let (me, mut relay) = relay();
    let idle = |number| spread(1, 2, number, (0, 0), Content::Idle { committed: 0 });
    let acknowledged = |relay: &mut Relay| {
        let own = Acknowledge {
            term: 3,
            items: vec![Acknowledgement { server: me, disk: 5, position: 7, round: 0 }],
        };
        sent(&all(relay)).iter().filter(|(_, frame)| *frame == Frame::Acknowledge(own.clone())).count()
    };
    relay.receive(0, 7, idle(1)).unwrap();
    relay.stored(3, 5, 7);
    assert_eq!(acknowledged(&mut relay), 1);
    // With an idle frame of its own tree when it is time; who hears nothing says nothing, and is not taken for well.
    for (now, number, count) in [(20_000, 2, 0), (200_000, 3, 0), (250_000, 4, 1), (270_000, 5, 0)] {
        relay.receive(now, 7, idle(number)).unwrap();
        assert_eq!(acknowledged(&mut relay), count, "{now}");
    }
    for now in [400_000, 500_000, 600_000] {
        relay.tick(now);
        assert_eq!(acknowledged(&mut relay), 0, "{now}");
    }
}

#[test]
fn what_is_committed_is_told_by_idle_frames_up_to_what_is_here() {
    let (_, mut relay) = relay();
    relay.receive(10, 7, spread(1, 3, 1, (9, 9), Content::Idle { committed: 6 })).unwrap();
    assert_eq!(all(&mut relay), []);
    relay.receive(11, 7, spread(1, 3, 2, (0, 4), whole())).unwrap();
    let outputs = all(&mut relay);
    assert_eq!(outputs[1..], [Output::Committed { term: 3, position: 4 }]);
    relay.has(3, 4);
    relay.committed(4);
    relay.receive(12, 7, spread(1, 4, 3, (9, 9), Content::Idle { committed: 6 })).unwrap();
    assert_eq!(all(&mut relay), []);
}

#[test]
fn who_was_stopped_does_not_complain() {
    let (me, mut relay) = relay();
    for tree in 0..5 {
        relay.receive(1000, 7, spread(1, tree, 1, (0, 0), Content::Idle { committed: 0 })).unwrap();
    }
    relay.tick(2000);
    relay.tick(900_000);
    let complaints = |relay: &mut Relay| -> Vec<Complaint> {
        let frames = sent(&all(relay)).into_iter();
        frames
            .filter_map(
                |(_, frame)| if let Frame::Complaint(complaint) = frame { Some(complaint) } else { None },
            )
            .collect()
    };
    assert_eq!(complaints(&mut relay), []);
    // One tree is silent from here on.
    let mut found = Vec::new();
    for now in (910_000..1_230_000).step_by(10_000) {
        for tree in [0, 1, 2, 3] {
            relay.receive(now, 7, spread(1, tree, now, (0, 0), Content::Idle { committed: 0 })).unwrap();
        }
        relay.tick(now);
        found.extend(complaints(&mut relay).into_iter().map(|complaint| (now, complaint)));
    }
    let about = shape().parent(4, me).unwrap();
    let complaint = Complaint { epoch: Epoch { term: 3, count: 1 }, tree: 4, about };
    assert_eq!(found.iter().map(|(_, complaint)| *complaint).collect::<Vec<_>>(), [complaint, complaint]);
    assert!(found[1].0 - found[0].0 >= 125_000);
}

#[test]
fn complaints_count_when_two_children_say_so() {
    let shape = shape();
    let root = shape.root(0).unwrap();
    let [first, second] = shape.children(0, root)[..2] else { panic!("a root has children") };
    let below = shape.children(0, first)[0];
    let new = || Spreader::new(LEADER, 3, &servers(), 0, Settings::default(), Limits::default());
    let complain = |leader: &mut Spreader, now, from, tree, about, count| {
        let complaint = Complaint { epoch: Epoch { term: 3, count }, tree, about };
        leader.receive(now, from, Frame::Complaint(complaint).encode()).unwrap();
        leader.aside().iter().collect::<Vec<_>>()
    };
    let mut leader = new();
    assert_eq!(complain(&mut leader, 0, first, 0, root, 1), []);
    assert_eq!(complain(&mut leader, 10, first, 0, root, 1), [], "the same one again");
    assert_eq!(complain(&mut leader, 20, second, 1, root, 1), [], "no child of it there");
    assert_eq!(complain(&mut leader, 400_000, second, 0, root, 1), [], "too late");
    assert_eq!(complain(&mut leader, 500_000, first, 0, root, 1), [root]);
    assert_eq!(leader.epoch().count, 2);
    // Who complains as well is silent because it hears nothing.
    let mut leader = new();
    complain(&mut leader, 0, first, 0, root, 1);
    for child in shape.children(0, first) {
        assert_eq!(complain(&mut leader, 1, *child, 0, first, 1), []);
    }
    let mut leader = new();
    for child in shape.children(0, first) {
        complain(&mut leader, 1, *child, 0, first, 1);
    }
    assert_eq!(leader.aside().iter().collect::<Vec<_>>(), [first], "{below} and others");
}

/// The way from the leader to a server.
fn way(shape: &Shape, tree: u8, id: u8) -> Vec<u8> {
    std::iter::successors(Some(id), |id| shape.parent(tree, *id)).collect()
}

#[test]
fn a_complaint_outlasts_a_change_of_shape_where_nothing_above_has_changed() {
    let new = || {
        let mut leader = Spreader::new(LEADER, 3, &servers(), 0, Settings::default(), Limits::default());
        leader.gone(0, shape().root(0).unwrap());
        leader.tick(0);
        leader
    };
    let (before, after) = (shape(), new().shape().clone());
    let mut tried = [0, 0];
    for (tree, about) in (0..5).flat_map(|tree| after.servers().iter().map(move |id| (tree, id))) {
        let children = after.children(tree, about).iter().copied();
        let kept: Vec<u8> = children.filter(|child| before.parent(tree, *child) == Some(about)).collect();
        let [first, second, ..] = kept[..] else { continue };
        let is_same = way(&before, tree, first) == way(&after, tree, first);
        let mut leader = new();
        for child in [first, second] {
            let complaint = Complaint { epoch: Epoch { term: 3, count: 1 }, tree, about };
            leader.receive(10, child, Frame::Complaint(complaint).encode()).unwrap();
        }
        assert_eq!(leader.aside().contains(about), is_same, "{about} in {tree}");
        tried[usize::from(is_same)] += 1;
    }
    assert!(tried[0] > 2 && tried[1] > 10, "{tried:?}");
}

/// Whatever is sent, nothing panics, and what is kept is bounded.
#[test]
fn hostile_frames_do_no_harm() {
    let mut rng = Rng(5);
    let (_, mut relay) = relay();
    let mut leader = Spreader::new(LEADER, 3, &servers(), 0, Settings::default(), Limits::default());
    let numbers = [0, 1, 2, 5, 100, u64::MAX >> 2, (u64::MAX >> 1) - 1, u64::MAX >> 1];
    for round in 0..30_000 {
        let mut number = || numbers[rng.below(8) as usize];
        let (one, other) = (number(), number());
        let place = (one.min(other), one.max(other));
        let (term, count) = (3 + u64::from(number() > 1 << 62 && round % 5000 == 0), number() as u32);
        let (tree, id) = (rng.below(16) as u8, 1 + rng.below(254) as u8);
        let epoch = Epoch { term, count };
        let content = match rng.below(3) {
            0 => whole(),
            1 if place.0 < place.1 => Content::Header,
            _ => Content::Idle { committed: place.0 },
        };
        let mut place = Place { previous: place.0, last: place.1 };
        if let Content::Idle { .. } = content {
            place.previous = place.last;
        }
        let frame = match rng.below(5) {
            0 => Frame::Acknowledge(Acknowledge { term, ..acknowledge(id, place.last) }),
            1 => Frame::Pull(Pull { term, after: place.previous, upto: place.last }),
            2 => Frame::Pulled(Pulled { term, place, body: Bytes::from_static(b"x") }),
            3 => Frame::Complaint(Complaint { epoch, tree, about: id }),
            _ => {
                let leader = [LEADER, LEADER, LEADER, id][rng.below(4) as usize];
                let settings = Settings::new(1 + rng.below(16) as u8, 16 + rng.below(48) as u8).unwrap();
                let aside = (0..rng.below(60)).map(|_| rng.next() as u8).collect();
                Frame::Spread(Spread {
                    epoch,
                    leader,
                    settings,
                    aside,
                    tree,
                    number: one,
                    round: 0,
                    place,
                    content,
                })
            }
        };
        let mut bytes = frame.encode().to_vec();
        if rng.one_in(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.next() as u8;
        }
        let (from, now) = (1 + rng.below(254) as u8, round * rng.below(3000));
        let _ = relay.receive(now, from, bytes.clone().into());
        let _ = leader.receive(now, from, bytes.into());
        relay.tick(now);
        leader.tick(now);
        if rng.one_in(50) {
            relay.set_servers(&(0..rng.below(250)).map(|_| rng.next() as u8).collect());
            relay.has(3, 0);
            relay.gone(from);
            leader.gone(now, from);
        }
        let outputs =
            std::iter::from_fn(|| relay.poll()).count() + std::iter::from_fn(|| leader.poll()).count();
        assert!(outputs < 1000, "{outputs} outputs");
    }
}
