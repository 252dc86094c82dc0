//! Direct clients, with a connection to each partition, of a real server.
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stoa_client::protocol::{Call, Reply};
use stoa_client::{
    Acl, AddWatchMode, Client, CreateMode, ErrorCode, EventKind, Operation, Options, ReadOperation, State,
    WatcherKind,
};
use stoa_core::Placement;
use stoa_wire::{PREAMBLE, SideHello, begin_frame, end_frame, side_answer};
use tempfile::TempDir;

const PARTITIONS: u8 = 4;
/// Longer than anything here takes on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server on a port of the system's choice; killed when dropped.
struct Server {
    process: Child,
    port: u16,
    _folder: TempDir,
}

impl Server {
    fn start(flags: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_stoa"));
        command.args(["serve", "--admin-port=0", "--words=*", "--port=0"]);
        command.args(flags).arg("--data-dir").arg(folder.path());
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let port = ready.trim().rsplit(':').next().unwrap().parse().unwrap();
        Self { process, port, _folder: folder }
    }

    fn divided() -> Self {
        Self::start(&[&format!("--partitions={PARTITIONS}")])
    }

    fn options(&self) -> Options {
        Options::new(&format!("127.0.0.1:{}", self.port)).unwrap()
    }

    async fn connect(&self) -> Client {
        Client::connect(self.options()).await.unwrap()
    }

    async fn connect_direct(&self) -> Client {
        let client = Client::connect(self.options().direct(true)).await.unwrap();
        assert_eq!(client.status().borrow().connections, usize::from(PARTITIONS));
        client
    }

    fn word(&self, word: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(word.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn metric(&self, name: &str) -> u64 {
        let lines = self.word("mntr");
        let value = lines.lines().find_map(|line| line.strip_prefix(&format!("zk_{name}\t")));
        value.unwrap_or_else(|| panic!("{name} in {lines}")).parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Directories right below the root, one for each partition.
fn tops() -> Vec<String> {
    let placement = Placement::new(PARTITIONS);
    let find = |of| (0..).map(|number| format!("/top-{number}")).find(|path| placement.of(path) == of);
    (0..PARTITIONS).map(|of| find(of).unwrap()).collect()
}

async fn make(client: &Client, paths: &[String]) {
    for path in paths {
        client.create(path, b"first", CreateMode::Persistent).await.unwrap();
    }
}

fn get(path: &str) -> Call {
    Call::GetData { path: path.to_owned(), watch: None }
}

fn set(path: &str, data: &[u8]) -> Call {
    Call::SetData { path: path.to_owned(), data: data.to_owned(), version: None }
}

fn data_of(reply: Result<Reply, ErrorCode>) -> Vec<u8> {
    let Ok(Reply::Data { data, .. }) = reply else { panic!("{reply:?}") };
    data
}

#[tokio::test]
async fn everything_works_as_with_one_connection() {
    let server = Server::divided();
    let (direct, plain) = (server.connect_direct().await, server.connect().await);
    let tops = tops();
    make(&direct, &tops).await;
    for (number, top) in tops.iter().enumerate() {
        let child = format!("{top}/child");
        direct.create(&child, &[number as u8], CreateMode::Ephemeral).await.unwrap();
        assert_eq!(plain.get_data(&child).await.unwrap().0, [number as u8]);
        assert_eq!(direct.get_children(top).await.unwrap(), ["child"]);
        plain.set_data(top, b"second", Some(0)).await.unwrap();
        direct.sync(top).await.unwrap();
        assert_eq!(direct.get_data(top).await.unwrap().0, b"second");
        assert_eq!(direct.set_data(top, b"third", Some(0)).await, Err(ErrorCode::BadVersion));
    }
    // Each came in where its znode lives.
    let session = format!("sid=0x{:x}", direct.status().borrow().session_id.unwrap());
    let lines = server.word("cons");
    for partition in 0..PARTITIONS {
        let of = format!("partition={partition},");
        let line = lines.lines().find(|line| line.contains(&session) && line.contains(&of)).unwrap();
        let received = line.split("recved=").nth(1).unwrap().split(',').next().unwrap();
        assert!(received.parse::<u64>().unwrap() >= 5, "{line}");
    }
    // What concerns the session or several partitions.
    assert_eq!(direct.get_ephemerals("/").await.unwrap().len(), tops.len());
    assert!(direct.get_all_children_number("/").await.unwrap() >= 8);
    assert_eq!(direct.who_am_i().await.unwrap().len(), 1);
    let read = |path: &String| ReadOperation::GetData { path: path.clone() };
    assert_eq!(direct.multi_read(tops.iter().map(read).collect()).await.unwrap().len(), tops.len());
    let moved =
        |path: &String| Operation::SetData { path: path.clone(), data: b"all".to_vec(), version: None };
    direct.multi(tops.iter().map(moved).collect()).await.unwrap();
    for top in &tops {
        assert_eq!(direct.get_data(top).await.unwrap().0, b"all");
    }
    let owned = format!("{}/child", tops[1]);
    direct.delete(&owned, None).await.unwrap();
    assert_eq!(direct.exists(&owned).await.unwrap(), None);
    direct.close().await.unwrap();
    for top in &tops {
        assert!(plain.get_children(top).await.unwrap().is_empty(), "ephemerals end with the session");
    }
}

#[tokio::test]
async fn servers_of_one_partition_and_plain_clients_have_one_connection() {
    let whole = Server::start(&[]);
    let client = Client::connect(whole.options().direct(true)).await.unwrap();
    assert_eq!(client.status().borrow().connections, 1);
    client.create("/a", b"data", CreateMode::Persistent).await.unwrap();
    let (data, _, mut watch) = client.fast().get_data_and_watch("/a").await.unwrap();
    assert_eq!(data, b"data");
    client.set_data("/a", b"", None).await.unwrap();
    assert_eq!(watch.next().await.unwrap().kind, EventKind::DataChanged);
    // A side connection is closed there.
    let mut stream = TcpStream::connect(("127.0.0.1", whole.port)).unwrap();
    stream.write_all(&[&PREAMBLE[..], &[0]].concat()).unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0);
    let divided = Server::divided();
    let plain = divided.connect().await;
    assert_eq!(plain.status().borrow().connections, 1);
    assert_eq!(plain.fast().exists("/zookeeper").await.unwrap().map(|stat| stat.version), Some(0));
}

#[tokio::test]
async fn calls_take_effect_in_their_order_whatever_partitions_they_are_for() {
    let server = Server::divided();
    let client = server.connect_direct().await;
    let tops = tops();
    make(&client, &tops).await;
    for round in 0..50_u8 {
        let mut calls = Vec::new();
        for step in 0..40_u8 {
            let top = &tops[usize::from((round ^ step) % 7) % tops.len()];
            calls.extend([set(top, &[round, step]), get(top)]);
        }
        let replies = client.call_all(calls).await;
        for (step, pair) in replies.chunks(2).enumerate() {
            assert_eq!(data_of(pair[1].clone()), [round, step as u8]);
        }
    }
}

/// One writes something on all partitions and then says so on one; the other looks there and must see all
/// of it.
#[tokio::test]
async fn what_is_seen_on_one_partition_is_there_on_the_others() {
    let server = Server::divided();
    let (writer, reader) = (server.connect_direct().await, server.connect_direct().await);
    let tops = tops();
    make(&writer, &tops).await;
    let writing = async {
        for round in 0..300_u32 {
            let (ready, others) = tops.split_at(1);
            let data = round.to_be_bytes();
            let calls = others.iter().chain(ready).map(|path| set(path, &data));
            for reply in writer.call_all(calls).await {
                reply.unwrap();
            }
        }
    };
    let number = |data: Vec<u8>| u32::from_be_bytes(data.try_into().unwrap_or_default());
    let reading = async {
        let mut last = 0;
        while last < 299 {
            last = number(reader.get_data(&tops[0]).await.unwrap().0);
            for other in &tops[1..] {
                let seen = number(reader.get_data(other).await.unwrap().0);
                assert!(seen >= last, "{seen} was there before {last}");
            }
        }
    };
    tokio::time::timeout(PATIENCE, async { tokio::join!(writing, reading) }).await.unwrap();
}

/// Events of several partitions come in the order in which one caused the other, and before replies that
/// show what followed.
#[tokio::test]
async fn events_come_in_order_and_before_replies_that_show_what_followed() {
    let server = Server::divided();
    let (writer, reader) = (server.connect().await, server.connect_direct().await);
    let tops = tops();
    make(&writer, &tops).await;
    let mut watches = Vec::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    for top in &tops {
        let mut watch = reader.add_watch(top, AddWatchMode::Persistent).await.unwrap();
        let told = Arc::clone(&told);
        watches.push(tokio::spawn(async move {
            while let Ok(event) = watch.next().await {
                told.lock().unwrap().push(event.zxid);
            }
        }));
    }
    for round in 0..200_u32 {
        for top in &tops {
            writer.set_data(top, &round.to_be_bytes(), None).await.unwrap();
        }
        let shown = reader.get_data(&tops[(round % 4) as usize]).await.unwrap().1.mzxid;
        // The tasks that note events run on this thread: let them.
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        let told = told.lock().unwrap();
        assert!(told.is_sorted(), "{told:?}");
        let before = (round * 4 + round % 4) as usize;
        assert!(told.len() > before, "an event is missing before {shown:x}: {} of {before}", told.len());
    }
    let all = async {
        while told.lock().unwrap().len() < 800 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all).await.unwrap();
}

#[tokio::test]
async fn fast_reads_and_fast_watches_work_beside_the_others() {
    let server = Server::divided();
    let client = server.connect_direct().await;
    let tops = tops();
    make(&client, &tops).await;
    for top in &tops {
        let (data, stat, mut fast) = client.fast().get_data_and_watch(top).await.unwrap();
        assert_eq!((data, stat.version), (b"first".to_vec(), 0));
        let (.., mut ordered) = client.get_data_and_watch(top).await.unwrap();
        let mut children = client.fast().add_watch(top, AddWatchMode::PersistentRecursive).await.unwrap();
        client.set_data(top, b"second", None).await.unwrap();
        for watch in [&mut fast, &mut ordered, &mut children] {
            assert_eq!(watch.next().await.unwrap().kind, EventKind::DataChanged);
        }
        let child = format!("{top}/child");
        client.create(&child, b"", CreateMode::Persistent).await.unwrap();
        assert_eq!(children.next().await.unwrap().path, child);
        assert_eq!(client.fast().get_children(top).await.unwrap().0, ["child"]);
        assert_eq!(client.fast().get_acl(top).await.unwrap().0, Acl::open());
        assert_eq!(client.fast().get_data("/none").await, Err(ErrorCode::NoNode));
    }
    // A fast read does not wait for what was asked before.
    let mut calls = vec![set(&tops[0], b"slow"); 500];
    calls.push(Call::Fast(Box::new(get(&tops[1]))));
    let replies = client.call_all(calls).await;
    assert_eq!(data_of(replies.last().unwrap().clone()), b"second");
}

#[tokio::test]
async fn recursive_watches_on_the_root_and_removals_work() {
    let server = Server::divided();
    let client = server.connect_direct().await;
    let tops = tops();
    let mut all = client.add_watch("/", AddWatchMode::PersistentRecursive).await.unwrap();
    make(&client, &tops).await;
    for top in &tops {
        assert_eq!(all.next().await.unwrap().path, *top);
    }
    for top in &tops {
        let (_, mut watch) = client.exists_and_watch(top).await.unwrap();
        assert!(client.check_watches(top, WatcherKind::Data).await.unwrap());
        client.remove_watches(top, WatcherKind::Data).await.unwrap();
        assert!(watch.next().await.is_err());
        assert!(!client.check_watches(top, WatcherKind::Data).await.unwrap());
    }
    assert!(client.check_watches("/", WatcherKind::PersistentRecursive).await.unwrap());
    client.remove_watches("/", WatcherKind::PersistentRecursive).await.unwrap();
    let (names, _, mut watch) = client.get_children_and_watch("/").await.unwrap();
    assert_eq!(names.len(), tops.len() + 1);
    client.delete(&tops[2], None).await.unwrap();
    assert_eq!(watch.next().await.unwrap().kind, EventKind::ChildrenChanged);
}

#[tokio::test]
async fn identities_and_chroots_hold_on_every_connection() {
    let server = Server::divided();
    let plain = server.connect().await;
    let tops = tops();
    make(&plain, &tops).await;
    let direct = server.connect_direct().await;
    direct.auth("digest", b"me:secret").await.unwrap();
    let mine =
        || stoa_client::CreateOptions { mode: CreateMode::Persistent, acl: Acl::creator_only(), ttl: None };
    for top in &tops {
        let path = format!("{top}/mine");
        direct.create(&path, b"secret", mine()).await.unwrap();
        assert_eq!(plain.get_data(&path).await, Err(ErrorCode::NoAuth));
        assert_eq!(direct.get_data(&path).await.unwrap().0, b"secret");
        let servers = format!("127.0.0.1:{}{top}", server.port);
        let options = Options::new(&servers).unwrap().direct(true).identity("digest", b"me:secret");
        let inside = Client::connect(options).await.unwrap();
        assert_eq!(inside.get_data("/mine").await.unwrap().0, b"secret");
        assert_eq!(inside.fast().get_data("/mine").await.unwrap().0, b"secret");
    }
}

/// A connection that is passed on, and for which partition if it is a side connection.
type Passed = (Option<u8>, TcpStream);

/// Passes connections on to a server; the first bytes of each tell what it is.
struct Proxy {
    port: u16,
    open: Arc<Mutex<Vec<Passed>>>,
    refuses_sides: Arc<AtomicBool>,
    sides_seen: Arc<AtomicU8>,
}

fn pump(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}

impl Proxy {
    fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            port: listener.local_addr().unwrap().port(),
            open: Arc::default(),
            refuses_sides: Arc::default(),
            sides_seen: Arc::default(),
        };
        let (open, refuses) = (Arc::clone(&proxy.open), Arc::clone(&proxy.refuses_sides));
        let seen = Arc::clone(&proxy.sides_seen);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let mut client = client.unwrap();
                let mut first = [0; 5];
                if client.read_exact(&mut first).is_err() {
                    continue;
                }
                let side = (first[..4] == PREAMBLE).then_some(first[4]);
                seen.fetch_add(u8::from(side.is_some()), Ordering::SeqCst);
                if side.is_some() && refuses.load(Ordering::SeqCst) {
                    continue;
                }
                let mut server = TcpStream::connect(("127.0.0.1", server)).unwrap();
                server.write_all(&first).unwrap();
                open.lock().unwrap().push((side, client.try_clone().unwrap()));
                pump(client.try_clone().unwrap(), server.try_clone().unwrap());
                pump(server, client);
            }
        });
        proxy
    }

    fn cut(&self, which: impl Fn(Option<u8>) -> bool) {
        self.open.lock().unwrap().retain(|(side, stream)| {
            if which(*side) {
                let _ = stream.shutdown(Shutdown::Both);
            }
            !which(*side)
        });
    }

    fn options(&self) -> Options {
        Options::new(&format!("127.0.0.1:{}", self.port)).unwrap().direct(true)
    }
}

/// Tries until a call is answered.
async fn until_done<T, F: Future<Output = Result<T, ErrorCode>>>(call: impl Fn() -> F) -> T {
    let start = Instant::now();
    loop {
        match call().await {
            Ok(done) => return done,
            Err(ErrorCode::ConnectionLoss) if start.elapsed() < PATIENCE => {}
            Err(code) => panic!("{code}"),
        }
    }
}

#[tokio::test]
async fn a_side_connection_that_is_cut_is_opened_again_and_loses_no_event() {
    let server = Server::divided();
    let proxy = Proxy::to(server.port);
    let (client, writer) = (Client::connect(proxy.options()).await.unwrap(), server.connect().await);
    let session = client.status().borrow().session_id;
    let tops = tops();
    make(&writer, &tops).await;
    for round in 0..10_u8 {
        let mut watches = Vec::new();
        for top in &tops {
            watches.push(until_done(|| client.get_data_and_watch(top)).await.2);
        }
        proxy.cut(|side| side.is_some_and(|side| side == round % 4));
        for top in &tops {
            writer.set_data(top, &[round], None).await.unwrap();
        }
        for (top, watch) in tops.iter().zip(&mut watches) {
            assert_eq!(until_done(|| client.get_data(top)).await.0, [round]);
            let event = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap().unwrap();
            assert_eq!((event.kind, &event.path), (EventKind::DataChanged, top));
        }
    }
    let status = client.status().borrow().clone();
    assert_eq!((status.session_id, status.state), (session, State::Connected));
    assert_eq!(status.connections, usize::from(PARTITIONS));
}

#[tokio::test]
async fn a_main_connection_that_is_cut_takes_all_with_it_and_the_session_goes_on() {
    let server = Server::divided();
    let proxy = Proxy::to(server.port);
    let (client, writer) = (Client::connect(proxy.options()).await.unwrap(), server.connect().await);
    let session = client.status().borrow().session_id;
    let tops = tops();
    make(&writer, &tops).await;
    client.create(&format!("{}/mine", tops[1]), b"", CreateMode::Ephemeral).await.unwrap();
    for round in 0..5_u8 {
        let mut watches = Vec::new();
        for top in &tops {
            watches.push(until_done(|| client.get_data_and_watch(top)).await.2);
        }
        proxy.cut(|side| side.is_none());
        for top in &tops {
            writer.set_data(top, &[round], None).await.unwrap();
        }
        for (top, watch) in tops.iter().zip(&mut watches) {
            let event = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap().unwrap();
            assert_eq!((event.kind, &event.path), (EventKind::DataChanged, top));
            assert_eq!(until_done(|| client.get_data(top)).await.0, [round]);
        }
    }
    let status = client.status().borrow().clone();
    assert_eq!((status.session_id, status.connections), (session, usize::from(PARTITIONS)));
    assert_eq!(writer.get_children(&tops[1]).await.unwrap(), ["mine"]);
}

#[tokio::test]
async fn where_side_connections_are_refused_the_main_one_serves() {
    let server = Server::divided();
    let proxy = Proxy::to(server.port);
    proxy.refuses_sides.store(true, Ordering::SeqCst);
    let client = Client::connect(proxy.options()).await.unwrap();
    assert_eq!(client.status().borrow().connections, 1);
    assert_eq!(proxy.sides_seen.load(Ordering::SeqCst), PARTITIONS - 1);
    let tops = tops();
    make(&client, &tops).await;
    for top in &tops {
        let (.., mut watch) = client.fast().get_data_and_watch(top).await.unwrap();
        client.set_data(top, b"second", None).await.unwrap();
        assert_eq!(watch.next().await.unwrap().path, *top);
    }
    // The limit for an address counts all of a client's connections.
    let limited = Server::start(&["--partitions=4", "--max-connections-per-address=3"]);
    let client = Client::connect(limited.options().direct(true)).await.unwrap();
    assert_eq!(client.status().borrow().connections, 3);
    make(&client, &tops).await;
    for top in &tops {
        assert_eq!(client.get_data(top).await.unwrap().0, b"first");
    }
}

#[test]
fn strangers_get_no_side_connection() {
    let server = Server::divided();
    let hello = |partition: u8, body: &[u8]| {
        let mut bytes = [&PREAMBLE[..], &[partition]].concat();
        let start = begin_frame(&mut bytes);
        bytes.extend_from_slice(body);
        let frame = bytes.len() - start;
        assert_eq!(frame, body.len() + 4);
        end_frame(&mut bytes, start);
        bytes
    };
    let said = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // It may be reset, when the server has not read all.
        let _ = stream.read_to_end(&mut answer);
        answer
    };
    let mut wrong = Vec::new();
    SideHello { session_id: 0x1234, password: &[7; 16] }.encode(&mut wrong);
    for partition in 0..PARTITIONS {
        let answer = said(&hello(partition, &wrong));
        assert_eq!(side_answer(&answer[4..]), Ok(ErrorCode::SessionExpired as i32));
    }
    assert!(said(&hello(PARTITIONS, &wrong)).is_empty(), "no such partition");
    assert!(said(&hello(255, &wrong)).is_empty());
    assert!(said(&hello(1, b"nonsense")).is_empty());
    assert!(said(&hello(1, b"")).is_empty());
    assert!(said(&[&PREAMBLE[..], &[1, 0x7f, 0xff, 0xff, 0xff]].concat()).is_empty(), "far too long");
    assert!(said(&[&PREAMBLE[..], &[1], &PREAMBLE[..]].concat()).is_empty());
    assert!(server.word("ruok").contains("imok"));
    assert!(server.metric("connection_drop_count") >= 4);
}
