//! Readers and their parents: who is let in, and what passes on their connections.

use std::sync::Arc;

use stoa_core::{ConnectionId, Levels, Pieces};
use tokio::net::TcpListener;

use super::*;
use crate::peers::frame::{self, FrameKind};
use crate::peers::listing::{ListedReader, ReaderList};
use crate::peers::reader_hello::{self, ReaderHello, ReaderPurpose};
use crate::peers::stream::Stream;
use crate::peers::tie::{self, Heard};
use crate::peers::ties::{Asker, Saying, TieEvent, TieOwner, Ties};

const HISTORY: HistoryId = HistoryId([1; 16]);

/// One of the two.
struct Side {
    local: Local,
    ties: Arc<Ties>,
    events: UnboundedReceiver<TieEvent>,
}

fn side(is_reader: bool, change: impl FnOnce(&mut Local)) -> Side {
    with_room(is_reader, 2, change)
}

fn with_room(is_reader: bool, max: usize, change: impl FnOnce(&mut Local)) -> Side {
    owned_by(TieOwner { is_reader, id: None, tag: if is_reader { 7 } else { 8 } }, max, change)
}

fn owned_by(own: TieOwner, max: usize, change: impl FnOnce(&mut Local)) -> Side {
    let is_reader = own.is_reader;
    let mut local = Puppet::new(if is_reader { 255 } else { 1 }, Some("a secret")).local;
    change(&mut local);
    let (ties, mut events) = Ties::new(own, Levels::OWN, (max, 2181), local.share.partitions);
    Side { local, ties, events: events.remove(0) }
}

fn asker(tag: u64) -> Asker {
    Asker { tag, levels: Levels::OWN, is_newcomer: false, has_proved: true }
}

/// What both come to.
async fn meet(reader: &Side, parent: &Side) -> (Result<(), String>, Result<(), String>) {
    let (mut near, mut far) = tokio::io::duplex(64);
    let answering = async {
        let bytes = hello::receive(&mut far, FrameKind::Hello).await?;
        assert!(reader_hello::is_of_reader(&bytes));
        let answered = reader_hello::answer(&mut far, (&parent.local, &parent.ties), bytes).await;
        if let Err(why) = &answered {
            hello::refuse(&mut far, why).await;
        }
        answered.map(|hello| assert_eq!(hello.tag, 7))
    };
    let calling = async {
        let sides = (&reader.local, &*reader.ties);
        let called = reader_hello::call(&mut near, sides, ReaderPurpose::Words, &[0; 16]).await;
        drop(near);
        called.map(|(hello, history, _)| assert_eq!((hello.member, history), (Some(1), HISTORY)))
    };
    tokio::join!(calling, answering)
}

async fn refused(reader: &Side, parent: &Side, why: &str) {
    let (called, answered) = meet(reader, parent).await;
    let called = called.unwrap_err();
    assert!(called.contains(why), "{called}");
    assert!(answered.is_err());
}

#[test]
fn a_reader_and_its_parent_know_each_other() {
    run(async {
        let parent = side(false, |_| {});
        assert_eq!(meet(&side(true, |_| {}), &parent).await, (Ok(()), Ok(())));
        // One that has nothing yet is given everything.
        let new = side(true, |local| local.standing = watch::channel(Standing::New).1);
        assert_eq!(meet(&new, &parent).await, (Ok(()), Ok(())));
        let open = |local: &mut Local| local.secret = None;
        assert_eq!(meet(&side(true, open), &side(false, open)).await, (Ok(()), Ok(())));
    });
}

#[test]
fn who_cannot_be_a_reader_is_told_why() {
    run(async {
        let (reader, parent) = (side(true, |_| {}), side(false, |_| {}));
        let standing = |standing| move |local: &mut Local| local.standing = watch::channel(standing).1;
        let other = Standing::Has(HistoryId([2; 16]));
        refused(&side(true, standing(other)), &parent, "server 1 is of the ensemble").await;
        refused(&reader, &side(false, standing(other)), "server 1 is of the ensemble").await;
        refused(&reader, &side(false, standing(Standing::New)), "server 1 is of no ensemble yet").await;
        refused(&reader, &with_room(false, 0, |_| {}), "server 1 lets no readers in: set max-readers").await;
        let secret = |secret: Option<&'static str>| {
            move |local: &mut Local| local.secret = secret.map(|secret| secret.as_bytes().to_vec())
        };
        refused(&side(true, secret(None)), &parent, "server 1 has a secret, a reader has none").await;
        refused(&reader, &side(false, secret(None)), "a reader has a secret, server 1 has none").await;
        refused(&side(true, secret(Some("a guess"))), &parent, "the reader does not know the secret").await;
        let divided = |local: &mut Local| local.share = Share { partition: 0, partitions: 3 };
        refused(&side(true, divided), &parent, "server 1 has 1 partitions, a reader 3").await;
        let newer = |local: &mut Local| local.level = watch::channel(Levels::OWN.newest + 1).1;
        refused(&reader, &side(false, newer), "the reader reads up to feature level").await;
        refused(&reader, &Side { ties: Arc::clone(&reader.ties), ..side(false, |_| {}) }, "leads back to it")
            .await;
        let full = with_room(false, 1, |_| {});
        let (_one, ..) = full.ties.admit(asker(1), (([127, 0, 0, 1], 1).into(), String::new()), 0).unwrap();
        refused(&reader, &full, "server 1 has 1 readers, as many as max-readers lets in").await;
        assert!(full.ties.admit(asker(2), (([127, 0, 0, 1], 1).into(), String::new()), 0).is_none());
    });
}

#[test]
fn a_release_without_readers_says_what_it_does_not_know() {
    run(async {
        let reader = side(true, |_| {});
        let (mut near, mut far) = tokio::io::duplex(1 << 10);
        let sides = (&reader.local, &*reader.ties);
        let calling = reader_hello::call(&mut near, sides, ReaderPurpose::Words, &[0; 16]);
        let answering = async {
            let bytes = hello::receive(&mut far, FrameKind::Hello).await.unwrap();
            let why = hello::greeting_of(bytes, &side(false, |_| {}).local).err().unwrap();
            hello::refuse(&mut far, &why).await;
        };
        let (called, ()) = tokio::join!(calling, answering);
        let why = called.unwrap_err();
        assert!(why.contains("the purpose of its connection is unknown: is it of another release?"), "{why}");
    });
}

#[test]
fn no_hello_is_misread() {
    run(async {
        let reader = side(true, |_| {});
        let (mut near, mut far) = tokio::io::duplex(1 << 10);
        let sides = (&reader.local, &*reader.ties);
        let calling = reader_hello::call(&mut near, sides, ReaderPurpose::Snapshot, &[9; 16]);
        let reading = async {
            let bytes = hello::receive(&mut far, FrameKind::Hello).await.unwrap();
            hello::refuse(&mut far, "enough").await;
            bytes
        };
        let (_, bytes) = tokio::join!(calling, reading);
        let hello = ReaderHello::parse(bytes.clone()).unwrap();
        assert_eq!((hello.ticket, hello.purpose, hello.member), ([9; 16], ReaderPurpose::Snapshot, None));
        assert_eq!((hello.software.as_str(), hello.name().as_str()), ("puppet", "a reader"));
        let tie = hello.tie.unwrap();
        assert_eq!((tie.readers, tie.readers_max, tie.distance, tie.client_port), (0, 2, None, 2181));
        // The text, its end, how it stands, and which number and which site it has, without which it is the hello of an
        // older release.
        let (text, number) = ("puppet".len(), 4);
        let more = 12 + number;
        for cut in 0..bytes.len() {
            let read = ReaderHello::parse(bytes[..cut].to_vec());
            assert_eq!(read.is_ok(), cut >= bytes.len() - text - more, "{cut}");
            assert!(read.is_ok_and(|read| read.tie.is_some()) == (cut >= bytes.len() - number), "{cut}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0xff;
            let _ = ReaderHello::parse(changed);
        }
    });
}

#[test]
fn a_reader_hears_of_which_site_it_is_and_says_so_to_those_below() {
    run(async {
        let (reader, parent) = (side(true, |_| {}), side(false, |_| {}));
        assert_eq!(called_at(&reader, &parent).await, None);
        parent.ties.set_site(Some("frankfurt".into()));
        assert_eq!(called_at(&reader, &parent).await.as_deref(), Some("frankfurt"));
        // The folder of a reader that was of another site.
        reader.ties.set_site(Some("virginia".into()));
        let other = Standing::Has(HistoryId([2; 16]));
        let moved = side(true, |local| local.standing = watch::channel(other).1);
        moved.ties.set_site(Some("virginia".into()));
        refused(&moved, &parent, " (the site frankfurt), the data folder of the reader of ").await;
        refused(&moved, &parent, " (the site virginia): see reader-of; to follow server 1, stop the reader")
            .await;
        let levels = |oldest| Levels { oldest, newest: 9 };
        let later = of_levels(levels(2));
        let at = |level| side(false, |local| local.level = watch::channel(level).1);
        refused(&later, &at(1), "works at feature level 2 and above, server 1 uses level 1").await;
        assert_eq!(meet(&later, &at(2)).await, (Ok(()), Ok(())));
    });
}

#[test]
fn a_release_whose_readers_follow_no_site_is_told_so() {
    run(async {
        let (reader, parent) = (side(true, |_| {}), side(false, |_| {}));
        let bytes = hello_of(&reader).await;
        let old = bytes[..bytes.len() - 2].to_vec();
        let answer = async |bytes: Vec<u8>| {
            let (_near, mut far) = tokio::io::duplex(1 << 10);
            let answering = reader_hello::answer(&mut far, (&parent.local, &parent.ties), bytes);
            timeout(Duration::from_millis(100), answering).await
        };
        assert!(answer(old.clone()).await.is_err(), "its proof is waited for");
        parent.ties.set_site(Some("frankfurt".into()));
        let why = answer(old).await.unwrap().unwrap_err();
        assert!(why.contains("server 1 is of frankfurt, one of several sites"), "{why}");
        assert!(answer(bytes).await.is_err());
    });
}

/// The hello of a reader.
async fn hello_of(reader: &Side) -> Vec<u8> {
    let (mut near, mut far) = tokio::io::duplex(1 << 10);
    let sides = (&reader.local, &*reader.ties);
    let calling = reader_hello::call(&mut near, sides, ReaderPurpose::Words, &[0; 16]);
    let reading = async {
        let bytes = hello::receive(&mut far, FrameKind::Hello).await.unwrap();
        hello::refuse(&mut far, "enough").await;
        bytes
    };
    tokio::join!(calling, reading).1
}

/// Of which site a reader hears that it is.
async fn called_at(reader: &Side, parent: &Side) -> Option<String> {
    let (mut near, mut far) = tokio::io::duplex(1 << 10);
    let answering = async {
        let bytes = hello::receive(&mut far, FrameKind::Hello).await.unwrap();
        reader_hello::answer(&mut far, (&parent.local, &parent.ties), bytes).await.unwrap()
    };
    let sides = (&reader.local, &*reader.ties);
    let calling = reader_hello::call(&mut near, sides, ReaderPurpose::Words, &[0; 16]);
    let (called, _) = tokio::join!(calling, answering);
    called.unwrap().0.site
}

/// A reader that can work at these feature levels.
fn of_levels(levels: Levels) -> Side {
    let own = TieOwner { is_reader: true, id: None, tag: 7 };
    let local = Puppet::new(255, Some("a secret")).local;
    let (ties, mut events) = Ties::new(own, levels, (2, 2181), local.share.partitions);
    Side { local, ties, events: events.remove(0) }
}

/// A tie of a parent, and what comes out at the socket of whoever is below.
async fn tied() -> (Side, ConnectionId, TcpStream, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let below = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (above, address) = listener.accept().await.unwrap();
    let parent = side(false, |_| {});
    let (id, mouth, said) = parent.ties.admit(asker(7), (address, "stoa".into()), 2182).unwrap();
    let ties = Arc::clone(&parent.ties);
    let run = tokio::task::spawn_local(async move {
        let why = tie::run(Stream::Plain(above), (&ties, &mouth), said, |heard| match heard {
            Heard::Word(word) => ties.tell(word.partition, TieEvent::ReaderSays(id, word)),
            Heard::List(list) => ties.listed(id, list),
            Heard::Offer(_) => mouth.end("it offers"),
        });
        let why = why.await;
        ties.gone(id);
        why
    });
    (parent, id, below, run)
}

async fn frame_of(socket: &mut TcpStream) -> (FrameKind, Bytes) {
    let mut buffer = bytes::BytesMut::new();
    loop {
        if let Some(frame) = frame::take(&mut buffer, 1 << 20).unwrap() {
            return frame;
        }
        // One byte at a time, so that nothing of the next frame is lost.
        let byte = timeout(PATIENCE, socket.read_u8()).await.unwrap().unwrap();
        buffer.extend_from_slice(&[byte]);
    }
}

#[test]
fn words_pass_both_ways_in_the_order_in_which_threads_say_them() {
    run(async {
        let (mut parent, id, mut below, _run) = tied().await;
        assert!(matches!(parent.events.recv().await, Some(TieEvent::ReaderCame(of, _)) if of == id));
        let word = |byte: u8| Pieces::from(Bytes::from(vec![byte; 3]));
        for partition in [0, 5, 0, 3] {
            // Which of them there are only the other side has to know.
            parent.ties.say_below(&[id], partition, word(partition));
        }
        for partition in [0, 5, 0, 3] {
            let said = frame_of(&mut below).await;
            assert_eq!(said, (FrameKind::Message, Bytes::from(vec![partition; 4])));
        }
        below.write_all(&frame::encode(FrameKind::Message, &[&[0], b"up"])).await.unwrap();
        let Some(TieEvent::ReaderSays(of, word)) = parent.events.recv().await else {
            panic!("it has spoken")
        };
        assert_eq!((of, word.partition, &*word.message), (id, 0, &b"up"[..]));
        let readers = parent.ties.readers();
        assert_eq!((readers.len(), readers[0].bytes_in), (1, 12));
        // It ends when what waits is said, with the reason.
        parent.ties.say_below(&[id], 0, Pieces::from(Bytes::from_static(b"last")));
        parent.ties.end_below(id, "it is told to go");
        parent.ties.say_below(&[id], 0, Pieces::from(Bytes::from_static(b"too late")));
        assert_eq!(frame_of(&mut below).await.1, Bytes::from_static(b"\0last"));
        assert_eq!(frame_of(&mut below).await, (FrameKind::Failed, Bytes::from_static(b"it is told to go")));
        assert!(matches!(parent.events.recv().await, Some(TieEvent::ReaderGone(of)) if of == id));
        assert!(parent.ties.readers().is_empty());
    });
}

#[test]
fn what_makes_no_sense_ends_a_tie() {
    run(async {
        let long = [&u32::MAX.to_le_bytes()[..], &[0; 5]].concat();
        let mut flipped = frame::encode(FrameKind::Message, &[&[0], b"up"]).to_vec();
        flipped[10] ^= 1;
        for (bytes, why) in [
            (frame::encode(FrameKind::Message, &[&[1], b"up"]).to_vec(), "a word of no partition"),
            (frame::encode(FrameKind::Message, &[]).to_vec(), "a word of no partition"),
            (frame::encode(FrameKind::Begin, &[&[1; 15]]).to_vec(), "its offer is cut short"),
            (frame::encode(FrameKind::Begin, &[&[1; 16]]).to_vec(), "it offers"),
            (frame::encode(FrameKind::Listing, &[&[1]]).to_vec(), "its list of readers cannot be read"),
            (frame::encode(FrameKind::Hello, &[]).to_vec(), "where that has no meaning"),
            (frame::encode(FrameKind::Failed, &[b"enough\x1b"]).to_vec(), "has ended it: enough\\u{1b}"),
            (long, "a frame of 4294967295 bytes"),
            (flipped, "does not fit its checksum"),
            (Vec::new(), "nothing was heard of the other side for 3 s"),
        ] {
            let (_parent, _, mut below, run) = tied().await;
            below.write_all(&bytes).await.unwrap();
            let ended = timeout(PATIENCE, run).await.unwrap().unwrap();
            assert!(ended.contains(why), "{ended} for {why}");
        }
    });
}

#[test]
fn who_does_not_take_what_it_is_told_is_let_go() {
    run(async {
        let (parent, id, mut below, run) = tied().await;
        let keep_alive = tokio::task::spawn_local(async move {
            loop {
                below.write_all(&frame::encode(FrameKind::Ping, &[])).await.unwrap();
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        });
        let word = Bytes::from(vec![1; 1 << 20]);
        for _ in 0..70 {
            parent.ties.say_below(&[id], 0, Pieces::from(word.clone()));
        }
        let why = timeout(PATIENCE, run).await.unwrap().unwrap();
        assert_eq!(why, "it takes too slowly what it is told");
        keep_alive.abort();
    });
}

#[test]
fn a_snapshot_goes_to_who_has_its_ticket_alone() {
    run(async {
        let parent = side(false, |_| {});
        let (id, _mouth, mut said) =
            parent.ties.admit(asker(7), (([127, 0, 0, 1], 1).into(), String::new()), 0).unwrap();
        let (header, file) = (Bytes::from_static(b"which"), "snapshot".into());
        assert!(parent.ties.offer(id, [3; 16], header.clone(), file).await);
        assert!(matches!(said.recv().await, Some(Saying::Offer(ticket)) if ticket == [3; 16]));
        assert!(parent.ties.take_offer(&[4; 16]).is_none());
        let (of, offer) = parent.ties.take_offer(&[3; 16]).unwrap();
        assert_eq!((of, &offer.header), (id, &header));
        assert!(parent.ties.take_offer(&[3; 16]).is_none(), "once");
        assert!(!parent.ties.take_back(id, &[3; 16]));
        assert!(parent.ties.offer(id, [5; 16], header.clone(), "snapshot".into()).await);
        assert!(parent.ties.take_back(id, &[5; 16]) && parent.ties.take_offer(&[5; 16]).is_none());
        parent.ties.gone(id);
        assert!(!parent.ties.offer(id, [6; 16], header, "snapshot".into()).await, "it is gone");
    });
}

#[test]
fn a_parent_says_how_it_stands_and_who_is_below_it() {
    run(async {
        let (parent, id, mut below, _run) = tied().await;
        let reader = side(true, |_| {});
        let standing = async || {
            let (mut near, mut far) = tokio::io::duplex(1 << 10);
            let answering = async {
                let bytes = hello::receive(&mut far, FrameKind::Hello).await.unwrap();
                reader_hello::answer(&mut far, (&parent.local, &parent.ties), bytes).await.unwrap()
            };
            let sides = (&reader.local, &*reader.ties);
            let calling = reader_hello::call(&mut near, sides, ReaderPurpose::Snapshot, &[0; 16]);
            let (called, answered) = tokio::join!(calling, answering);
            // Nothing was offered to who shows no ticket.
            assert!(parent.ties.take_offer(&answered.ticket).is_none());
            let offer = called.unwrap().0.tie.unwrap().offer(Duration::from_micros(7));
            (offer.readers, offer.readers_max, offer.distance, offer.round_trip_us)
        };
        assert_eq!(standing().await, (1, 2, None, 7));
        parent.ties.set_distance(Some(3));
        assert_eq!(standing().await, (1, 2, Some(3), 7));

        let lower = ListedReader {
            parent: None,
            address: ([10, 0, 0, 9], 2183).into(),
            since_ms: 5,
            software: "stoa".into(),
        };
        let list = ReaderList { readers: vec![lower], left_out: 4 };
        below.write_all(&frame::encode(FrameKind::Listing, &[&list.encode()])).await.unwrap();
        let listed = async {
            while parent.ties.list().readers.len() < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, listed).await.unwrap();
        let all = parent.ties.list();
        let places: Vec<_> = all.readers.iter().map(|one| (one.address.port(), one.parent)).collect();
        assert_eq!((places, all.left_out), (vec![(2182, None), (2183, Some(0))], 4));
        parent.ties.end_below(id, "enough");
    });
}

/// A reader with the number 4.
fn newcomer(change: impl FnOnce(&mut Local)) -> Side {
    owned_by(TieOwner { is_reader: true, id: Some(4), tag: 7 }, 0, change)
}

#[test]
fn who_is_to_join_is_let_in_where_it_proves_what_members_prove() {
    run(async {
        let parent = || with_room(false, 0, |_| {});
        refused(&side(true, |_| {}), &parent(), "lets no readers in: set max-readers on it").await;
        assert_eq!(meet(&newcomer(|_| {}), &parent()).await, (Ok(()), Ok(())));
        // Without a secret nothing is proved that max-readers would not have to allow.
        let open = |local: &mut Local| local.secret = None;
        let closed = with_room(false, 0, open);
        refused(&newcomer(open), &closed, "a server that is to join only where servers have a secret").await;
        assert_eq!(meet(&newcomer(open), &with_room(false, 1, open)).await, (Ok(()), Ok(())));
        // And no more of them than are good for one server.
        let full = parent();
        let ask = |tag| Asker { is_newcomer: true, ..asker(tag) };
        let address = || (([127, 0, 0, 1], 1).into(), String::new());
        let there: Vec<_> = (10..26).map(|tag| full.ties.admit(ask(tag), address(), 0).unwrap()).collect();
        refused(&newcomer(|_| {}), &full, "has 16 readers").await;
        assert!(full.ties.admit(ask(9), address(), 0).is_none());
        assert!(full.ties.admit(ask(25), address(), 0).is_some(), "a process takes its own place");
        drop(there);
    });
}

#[test]
fn a_leader_feeds_a_newcomer_only_where_nobody_else_does() {
    run(async {
        let leader = side(false, |_| {});
        let ask = Asker { is_newcomer: true, ..asker(9) };
        let (_, mouth, _said) =
            leader.ties.admit(ask, (([127, 0, 0, 1], 1).into(), String::new()), 0).unwrap();
        leader.ties.set_leads(true);
        assert!(mouth.ended().await.contains("another server of the ensemble feeds newcomers"));
        let newcomer = newcomer(|_| {});
        refused(&newcomer, &leader, "it leads").await;
        assert_eq!(meet(&side(true, |_| {}), &leader).await, (Ok(()), Ok(())), "readers are no newcomers");
        newcomer.ties.tried_all();
        assert_eq!(meet(&newcomer, &leader).await, (Ok(()), Ok(())));
        // Who has been turned away twice by all joins as if there was no such thing.
        newcomer.ties.tried_all();
        assert!(!newcomer.ties.is_let_in_nowhere());
        newcomer.ties.was_not_let_in(true);
        assert!(newcomer.ties.is_let_in_nowhere());
        newcomer.ties.attach(|_| {});
        assert!(!newcomer.ties.is_let_in_nowhere() && !newcomer.ties.has_tried_all());
    });
}
