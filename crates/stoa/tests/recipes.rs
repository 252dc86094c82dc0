//! The client library's recipes with a real server.
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use stoa_client::recipes::{
    Barrier, Cache, Counter, DoubleBarrier, Election, Error, Group, Lock, Primitive, Queue, RwLock,
    Semaphore, Standing,
};
use stoa_client::{Acl, Client, CreateMode, ErrorCode, Options, blocking};
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Longer than anything here takes on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(30);
/// Long enough for what should not happen to happen.
const A_WHILE: Duration = Duration::from_millis(150);

/// A server on a port of the system's choice; killed when dropped.
struct Server {
    process: Child,
    port: u16,
    _folder: TempDir,
}

impl Server {
    fn start() -> Self {
        Self::with_partitions(2)
    }

    fn with_partitions(partitions: u8) -> Self {
        let folder = TempDir::new().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_stoa"));
        command.args(["serve", "--admin-port=0", "--words=*", "--port=0"]);
        command.arg(format!("--partitions={partitions}")).arg("--data-dir");
        let mut process =
            command.arg(folder.path()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let port = ready.trim().rsplit(':').next().unwrap().parse().unwrap();
        Self { process, port, _folder: folder }
    }

    fn options(&self) -> Options {
        Options::new(&format!("127.0.0.1:{}", self.port)).unwrap()
    }

    fn word(&self, word: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(word.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// How many watches there are, of all kinds.
    fn watches(&self) -> usize {
        let answer = self.word("mntr");
        let line = answer.lines().find_map(|line| line.strip_prefix("zk_watch_count\t"));
        line.unwrap().parse().unwrap()
    }

    /// Of each path whose data is watched, by how many sessions.
    fn watchers(&self) -> BTreeMap<String, usize> {
        let mut watchers = BTreeMap::new();
        let mut path = String::new();
        for line in self.word("wchp").lines().filter(|line| !line.is_empty()) {
            if line.starts_with('/') {
                path = line.to_owned();
            } else {
                *watchers.entry(path.clone()).or_default() += 1;
            }
        }
        watchers
    }

    async fn connect(&self) -> Client {
        Client::connect(self.options()).await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until a directory has so many children.
async fn until_children(client: &Client, path: &str, count: usize) {
    let settled = async {
        while client.get_children(path).await.map_or(0, |names| names.len()) != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, settled).await.unwrap_or_else(|_| panic!("{path} never has {count} children"));
}

#[tokio::test]
async fn a_lock_goes_from_one_to_the_next() {
    let server = Server::start();
    let (a, b) = (server.connect().await, server.connect().await);
    let first = Lock::new(&a, "/locks/deep/one").acquire().await.unwrap();
    assert_eq!(first.standing(), Standing::Sure);
    let lock = Lock::new(&b, "/locks/deep/one");
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert!(timeout(A_WHILE, lock.acquire()).await.is_err());
    // Who has given up is not in the way of others.
    until_children(&a, "/locks/deep/one", 1).await;
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until_children(&a, "/locks/deep/one", 2).await;
    let token = first.token();
    first.release().await.unwrap();
    let second = timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap();
    assert!(second.token() > token);
    drop(second);
    until_children(&a, "/locks/deep/one", 0).await;
    assert!(Lock::new(&a, "/locks/deep/one").try_acquire().await.unwrap().is_some());
}

/// Who waits watches the one before it, so that the end of one wakes one.
#[tokio::test]
async fn nobody_is_woken_in_vain() {
    const WAITING: usize = 6;
    let server = Server::start();
    let client = server.connect().await;
    let _held = Lock::with(&client, "/lock", Primitive::SyncQueue).acquire().await.unwrap();
    let semaphore = Semaphore::new(&client, "/semaphore", 1);
    let _lease = semaphore.acquire().await.unwrap();
    for _ in 0..WAITING {
        let client = server.connect().await;
        tokio::spawn(async move {
            let lock = Lock::with(&client, "/lock", Primitive::SyncQueue);
            let semaphore = Semaphore::new(&client, "/semaphore", 1);
            tokio::join!(async { lock.acquire().await.map(drop) }, async {
                semaphore.acquire().await.map(drop)
            })
        });
    }
    until_children(&client, "/lock", 1 + WAITING).await;
    until_children(&client, "/semaphore/gate", WAITING).await;
    // Each has one on the place before it and one on its own, and one of them sees the leases.
    let settled = async {
        while server.watches() != 4 * WAITING - 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, settled).await.unwrap();
    let watchers = server.watchers();
    let below = |path: &str| watchers.keys().filter(|watched| watched.starts_with(path)).count();
    // Its own session, and the one behind it.
    assert!(watchers.values().all(|count| *count <= 2), "{watchers:?}");
    assert_eq!((below("/lock/"), below("/semaphore/gate/")), (WAITING + 1, WAITING));
}

#[tokio::test]
async fn a_holder_is_told_when_its_session_ends() {
    let server = Server::start();
    let (a, b) = (server.connect().await, server.connect().await);
    let held = Lock::new(&a, "/lock").acquire().await.unwrap();
    let waiter = Lock::new(&a, "/lock");
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    until_children(&b, "/lock", 2).await;
    assert!(timeout(A_WHILE, held.lost()).await.is_err());
    a.close().await.unwrap();
    timeout(PATIENCE, held.lost()).await.unwrap();
    assert_eq!(held.standing(), Standing::Lost);
    assert_eq!(held.release().await, Err(Error::SessionLost));
    assert_eq!(waiting.await.unwrap().unwrap_err(), Error::SessionLost);
    assert!(Lock::new(&b, "/lock").acquire().await.is_ok());
}

#[tokio::test]
async fn whoever_is_deleted_while_it_waits_says_so() {
    let server = Server::start();
    let (a, b) = (server.connect().await, server.connect().await);
    let held = Lock::new(&a, "/lock").acquire().await.unwrap();
    let waiter = Lock::new(&b, "/lock");
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    until_children(&a, "/lock", 2).await;
    let mut names = a.get_children("/lock").await.unwrap();
    names.sort_by_key(|name| name.rsplit('-').next().map(str::to_owned));
    // The one who waits first: the other one would have handed it the lock.
    for name in names.iter().rev() {
        a.delete(&format!("/lock/{name}"), None).await.unwrap();
    }
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(&error, Error::Removed { path } if path.starts_with("/lock/")), "{error}");
    assert!(matches!(held.release().await, Err(Error::Removed { .. })));
}

/// Whichever way it is taken: one at a time, each with a larger token than the one before, and nothing is left but an
/// empty directory.
async fn all_at_once(options: Options, path: &str, ways: &[Option<Primitive>]) {
    const TURNS: usize = 12;
    let inside = Arc::new(Mutex::new(0_i64));
    let mut all = Vec::new();
    for primitive in ways.iter().copied() {
        let client = Client::connect(options.clone()).await.unwrap();
        let lock = match primitive {
            Some(primitive) => Lock::with(&client, path, primitive),
            None => Lock::new(&client, path),
        };
        let inside = Arc::clone(&inside);
        all.push(tokio::spawn(async move {
            for turn in 0..TURNS {
                let held = lock.acquire().await.unwrap();
                // Whoever comes in meanwhile finds it taken.
                let mut last = inside.try_lock().unwrap_or_else(|_| panic!("{primitive:?} is not alone"));
                assert!(held.token().0 > *last, "{primitive:?}: {} after {last}", held.token());
                *last = held.token().0;
                tokio::time::sleep(Duration::from_millis(if turn % 3 == 0 { 5 } else { 0 })).await;
                drop(last);
                held.release().await.unwrap();
            }
        }));
    }
    for one in all {
        timeout(PATIENCE, one).await.unwrap().unwrap();
    }
    let client = Client::connect(options).await.unwrap();
    until_children(&client, path, 0).await;
    let left = client.exists(path).await.unwrap();
    assert!(left.is_none_or(|left| [0, i64::MIN].contains(&left.ephemeral_owner)), "{left:?}");
}

#[tokio::test]
async fn all_ways_to_take_a_lock_exclude_one_another() {
    let ways: Vec<_> = Primitive::ALL.map(Some).into_iter().chain([None]).collect();
    for partitions in [1, 4] {
        let server = Server::with_partitions(partitions);
        // At a cut between partitions, and below one.
        for path in ["/lock-a", "/lock-b", "/lock-c", "/locks/deep/a", "/locks-b/deep/a"] {
            all_at_once(server.options(), path, &ways).await;
        }
    }
    if let Some(options) = elsewhere() {
        let ways: Vec<_> = ways.into_iter().filter(|way| *way != Some(Primitive::Extension)).collect();
        all_at_once(options, "/locks/deep/a", &ways).await;
    }
}

/// A server of another make, which runs no programs: `cargo xtask peer --port 2181 --data-dir D`, and `LOCKS_AT` names
/// it.
fn elsewhere() -> Option<Options> {
    std::env::var("LOCKS_AT").ok().map(|server| Options::new(&server).unwrap())
}

/// Whoever is next is told, and has nothing to ask, whoever else has waited before it.
async fn handed_over(options: Options, path: &str, primitive: Primitive) {
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    let observer = Client::connect(options.clone()).await.unwrap();
    for place in 0..4 {
        let client = Client::connect(options.clone()).await.unwrap();
        let lock = Lock::with(&client, path, primitive);
        if place == 0 {
            held.push(lock.acquire().await.unwrap());
            continue;
        }
        waiting.push((client, tokio::spawn(async move { lock.acquire().await })));
        until_children(&observer, path, place + 1).await;
    }
    // They have set their watches.
    tokio::time::sleep(A_WHILE).await;
    for (client, next) in waiting {
        let sent = client.bytes_sent();
        held.pop().unwrap().release().await.unwrap();
        held.push(timeout(PATIENCE, next).await.unwrap().unwrap().unwrap());
        assert_eq!(client.bytes_sent(), sent, "{primitive}");
    }
    held.pop().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_lock_is_handed_over_without_a_request() {
    for partitions in [1, 4] {
        let server = Server::with_partitions(partitions);
        for primitive in [Primitive::SyncQueue, Primitive::AsyncQueueWatch] {
            handed_over(server.options(), "/lock", primitive).await;
            handed_over(server.options(), "/locks/deep/a", primitive).await;
        }
        handed_over(server.options(), "/extended/lock", Primitive::Extension).await;
    }
    if let Some(options) = elsewhere() {
        handed_over(options.clone(), "/locks/deep/b", Primitive::SyncQueue).await;
        handed_over(options, "/locks/deep/b", Primitive::AsyncQueueWatch).await;
    }
}

/// A lock that finds itself alone stops queueing up, and one that does not begins to again.
#[tokio::test]
async fn a_lock_chooses_by_what_it_finds() {
    let server = Server::start();
    let (a, b) = (server.connect().await, server.connect().await);
    let lock = Lock::new(&a, "/lock");
    assert_eq!(lock.choice().primitive, Primitive::AsyncQueueWatch);
    let mut turns = 0;
    while lock.choice().primitive != Primitive::TasWatch {
        lock.acquire().await.unwrap().release().await.unwrap();
        turns += 1;
        assert!(turns < 500, "{}", lock.choice());
    }
    let held = lock.acquire().await.unwrap();
    assert_eq!(a.exists("/lock").await.unwrap().unwrap().ephemeral_owner, held.session());
    assert!(Lock::with(&b, "/lock", Primitive::AsyncQueue).try_acquire().await.unwrap().is_none());
    held.release().await.unwrap();
    let other = Lock::with(&b, "/lock", Primitive::SyncQueue);
    while lock.choice().primitive == Primitive::TasWatch {
        let held = other.acquire().await.unwrap();
        let waiting = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await }
        });
        until_children(&a, "/lock", 2).await;
        held.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        turns += 1;
        assert!(turns < 1000, "{}", lock.choice());
    }
}

/// Whoever may use a program does: it is looked for, and not registered.
#[tokio::test]
async fn a_lock_uses_its_program_where_there_is_one() {
    let server = Server::start();
    let (a, b) = (server.connect().await, server.connect().await);
    let lock = Lock::new(&a, "/lock");
    lock.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(lock.choice().primitive, Primitive::AsyncQueueWatch);
    Lock::with(&b, "/lock", Primitive::Extension).acquire().await.unwrap().release().await.unwrap();
    let lock = Lock::new(&a, "/lock");
    let settled = async {
        while lock.choice().primitive != Primitive::Extension {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, settled).await.unwrap();
    let watches = server.watches();
    let held = lock.acquire().await.unwrap();
    assert!(Lock::with(&b, "/lock", Primitive::Extension).try_acquire().await.unwrap().is_none());
    held.release().await.unwrap();
    // By which it was to be told.
    let settled = async {
        while server.watches() != watches {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, settled).await.unwrap();
}

#[tokio::test]
async fn readers_share_and_writers_do_not() {
    let server = Server::start();
    let client = server.connect().await;
    let lock = RwLock::new(&client, "/rw");
    let readers = (lock.read().await.unwrap(), lock.read().await.unwrap());
    let writing = tokio::spawn({
        let lock = lock.clone();
        async move { lock.write().await.unwrap() }
    });
    until_children(&client, "/rw", 3).await;
    // Who comes behind a writer waits for it, so that writers do not starve.
    assert!(timeout(A_WHILE, lock.read()).await.is_err());
    readers.0.release().await.unwrap();
    assert!(!writing.is_finished());
    readers.1.release().await.unwrap();
    let writer = timeout(PATIENCE, writing).await.unwrap().unwrap();
    writer.release().await.unwrap();
    timeout(PATIENCE, lock.read()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_semaphore_has_so_many_leases() {
    let server = Server::start();
    let client = server.connect().await;
    let semaphore = Semaphore::new(&client, "/semaphore", 2);
    let first = semaphore.acquire().await.unwrap();
    let second = semaphore.acquire().await.unwrap();
    assert!(first.token() < second.token());
    let (one, other) = (semaphore.clone(), semaphore.clone());
    let third = tokio::spawn(async move { one.acquire().await.unwrap() });
    let fourth = tokio::spawn(async move { other.acquire().await.unwrap() });
    tokio::time::sleep(A_WHILE).await;
    assert!(!third.is_finished() && !fourth.is_finished());
    // Whichever lease ends, somebody else gets one.
    second.release().await.unwrap();
    first.release().await.unwrap();
    let (third, fourth) = timeout(PATIENCE, async { tokio::join!(third, fourth) }).await.unwrap();
    assert_ne!(third.unwrap().token(), fourth.unwrap().token());
}

#[tokio::test]
async fn the_next_candidate_leads_and_everybody_can_know() {
    the_next_candidate_leads(Election::new).await;
}

#[tokio::test]
async fn the_next_candidate_is_appointed_and_everybody_can_know() {
    the_next_candidate_leads(Election::extended).await;
}

async fn the_next_candidate_leads(form: fn(&Client, &str) -> Election<Client>) {
    let server = Server::start();
    let (a, b, observer) = (server.connect().await, server.connect().await, server.connect().await);
    let election = Election::new(&observer, "/election");
    assert_eq!(election.leader().await.unwrap(), None);
    let seen = tokio::spawn({
        let election = election.clone();
        async move { election.next_leader(None).await.unwrap() }
    });
    let leading = form(&a, "/election").campaign(b"anna").await.unwrap();
    let seen = timeout(PATIENCE, seen).await.unwrap().unwrap();
    assert_eq!((seen.data.as_slice(), seen.token), (&b"anna"[..], leading.token()));
    let candidate = form(&b, "/election");
    let campaign = tokio::spawn(async move { candidate.campaign(b"bruno").await.unwrap() });
    until_children(&observer, "/election", 2).await;
    // A leader whose process ends is replaced.
    a.close().await.unwrap();
    let next = timeout(PATIENCE, election.next_leader(Some(seen.token))).await.unwrap().unwrap();
    assert_eq!(next.data, b"bruno");
    assert_eq!(timeout(PATIENCE, campaign).await.unwrap().unwrap().token(), next.token);
}

#[tokio::test]
async fn a_leader_that_stands_again_comes_after_all_who_wait() {
    for form in [Election::new as fn(&Client, &str) -> Election<Client>, Election::extended] {
        let server = Server::start();
        let (a, b) = (server.connect().await, server.connect().await);
        let (anna, bruno) = (form(&a, "/election"), form(&b, "/election"));
        let mut leading = anna.campaign(b"anna").await.unwrap();
        let mut campaign = tokio::spawn(async move { bruno.campaign(b"bruno").await });
        until_children(&a, "/election", 2).await;
        // The two take turns.
        for (client, data) in [(&a, b"anna".as_slice()), (&b, b"bruno"), (&a, b"anna")] {
            let (election, data, token) = (form(client, "/election"), data.to_owned(), leading.token());
            let again = tokio::spawn(async move { election.requeue(leading, &data).await });
            leading = timeout(PATIENCE, campaign).await.unwrap().unwrap().unwrap();
            assert!(leading.token() > token);
            campaign = again;
            until_children(&a, "/election", 2).await;
        }
        leading.release().await.unwrap();
        let leading = timeout(PATIENCE, campaign).await.unwrap().unwrap().unwrap();
        // Who is alone is the next one, too.
        let token = leading.token();
        let leading = timeout(PATIENCE, anna.requeue(leading, b"alone")).await.unwrap().unwrap();
        assert!(leading.token() > token);
        let leader = anna.leader().await.unwrap().unwrap();
        assert_eq!((leader.data.as_slice(), leader.token), (&b"alone"[..], leading.token()));
        until_children(&a, "/election", 1).await;
    }
}

/// With a program the next leader hears of it, and nobody else does; nobody looks who is before it, or leaves a watch.
#[tokio::test]
async fn a_program_tells_the_next_leader_and_nobody_else() {
    const WAITING: usize = 5;
    for partitions in [1, 4] {
        let server = Server::with_partitions(partitions);
        let client = server.connect().await;
        let mut held = Election::extended(&client, "/election").campaign(b"").await.unwrap();
        let mut waiting = VecDeque::new();
        for number in 1..=WAITING {
            let candidate = server.connect().await;
            let election = Election::extended(&candidate, "/election");
            let campaign =
                tokio::spawn(async move { election.campaign(format!("{number}").as_bytes()).await });
            waiting.push_back((candidate, campaign));
            until_children(&client, "/election", 1 + number).await;
        }
        // They have their answers.
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(server.watches(), 0);
        let sent = |waiting: &VecDeque<(Client, _)>| -> Vec<u64> {
            waiting.iter().map(|(candidate, _)| candidate.bytes_sent()).collect()
        };
        for number in 1..=WAITING {
            let before = sent(&waiting);
            held.release().await.unwrap();
            // Sooner than somebody would look who is not told.
            let (_, next) = waiting.front_mut().unwrap();
            held = timeout(Duration::from_secs(4), next).await.unwrap().unwrap().unwrap();
            assert_eq!(sent(&waiting), before);
            let leader = Election::new(&client, "/election").leader().await.unwrap().unwrap();
            assert_eq!((leader.data, leader.token), (format!("{number}").into_bytes(), held.token()));
            waiting.pop_front();
        }
        held.release().await.unwrap();
        until_children(&client, "/election", 0).await;
    }
}

/// Who gives up waiting for a program to tell it has nothing left at its client or the server.
#[tokio::test]
async fn who_gives_up_a_campaign_is_forgotten() {
    let server = Server::start();
    let (a, b) = (server.connect().await, server.connect().await);
    let election = Election::extended(&b, "/election");
    let held = Election::extended(&a, "/election").campaign(b"").await.unwrap();
    for _ in 0..3 {
        assert!(timeout(A_WHILE, election.campaign(b"")).await.is_err());
    }
    until_children(&a, "/election", 1).await;
    assert_eq!(server.watches(), 0);
    held.release().await.unwrap();
    timeout(PATIENCE, election.campaign(b"")).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_counter_counts_for_all() {
    let server = Server::start();
    let client = server.connect().await;
    let adders = (0..4).map(|_| {
        let mut counter = Counter::new(&client, "/app/counter");
        tokio::spawn(async move {
            for _ in 0..25 {
                counter.add(1).await.unwrap();
            }
        })
    });
    for adder in adders.collect::<Vec<_>>() {
        adder.await.unwrap();
    }
    let mut counter = Counter::new(&client, "/app/counter");
    assert_eq!(counter.add(-3).await, Ok(97));
    assert_eq!(counter.get().await, Ok(97));
    client.set_data("/app/counter", i64::MAX.to_string().as_bytes(), None).await.unwrap();
    assert!(matches!(counter.add(1).await, Err(Error::Foreign { .. })));
    client.set_data("/app/counter", b"many", None).await.unwrap();
    let error = counter.get().await.unwrap_err();
    assert_eq!(error.to_string(), "/app/counter is not of this recipe: its data is no number of 64 bits");
    drop(counter);
    until_children(&client, "/app/counter", 0).await;
}

#[tokio::test]
async fn a_queue_gives_each_element_to_one_taker() {
    let server = Server::start();
    let client = server.connect().await;
    let mut queue = Queue::new(&client, "/queue");
    assert_eq!(queue.try_take().await, Ok(None));
    for element in [b"one", b"two", b"six"] {
        queue.put(element).await.unwrap();
    }
    assert_eq!(queue.try_take().await.unwrap().unwrap(), b"one");
    assert_eq!(queue.take().await.unwrap(), b"two");
    assert_eq!(queue.take().await.unwrap(), b"six");
    // Takers that wait get one each, and one that gives up is not in their way.
    assert!(timeout(A_WHILE, queue.take()).await.is_err());
    let takers: Vec<_> = (0..3)
        .map(|_| {
            let mut queue = Queue::new(&client, "/queue");
            tokio::spawn(async move { queue.take().await.unwrap() })
        })
        .collect();
    until_children(&client, "/queue/gate", 3).await;
    for element in [b"a", b"b", b"c"] {
        queue.put(element).await.unwrap();
    }
    let mut taken = Vec::new();
    for taker in takers {
        taken.push(timeout(PATIENCE, taker).await.unwrap().unwrap());
    }
    taken.sort();
    assert_eq!(taken, [b"a", b"b", b"c"]);
    drop(queue);
    until_children(&client, "/queue/clients", 0).await;
}

/// However early or late a take is given up, its element is taken once or there.
async fn put_back(client: &Client, new: impl Fn() -> Queue<Client>, step_us: u64) {
    const ELEMENTS: usize = 40;
    let mut queue = new();
    for element in 0..ELEMENTS {
        queue.put(element.to_string().as_bytes()).await.unwrap();
    }
    let mut taken = Vec::new();
    for step in 0..400 {
        let mut queue = new();
        if let Ok(element) = timeout(Duration::from_micros(step * step_us), queue.try_take()).await {
            taken.extend(element.unwrap());
        }
    }
    until_children(client, "/queue/clients", 1).await;
    while let Some(element) = queue.try_take().await.unwrap() {
        taken.push(element);
    }
    let mut taken: Vec<usize> =
        taken.iter().map(|it| std::str::from_utf8(it).unwrap().parse().unwrap()).collect();
    taken.sort_unstable();
    assert_eq!(taken, (0..ELEMENTS).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_was_taken_for_nobody_is_put_back() {
    let server = Server::start();
    let client = server.connect().await;
    put_back(&client, || Queue::new(&client, "/queue"), 5).await;
}

#[tokio::test]
async fn a_barrier_holds_everybody_up_until_it_is_lifted() {
    let server = Server::start();
    let client = server.connect().await;
    let barrier = Barrier::new(&client, "/barriers/one");
    barrier.wait().await.unwrap();
    barrier.set().await.unwrap();
    barrier.set().await.unwrap();
    let waiting = tokio::spawn({
        let barrier = barrier.clone();
        async move { barrier.wait().await.unwrap() }
    });
    tokio::time::sleep(A_WHILE).await;
    assert!(!waiting.is_finished());
    barrier.lift().await.unwrap();
    timeout(PATIENCE, waiting).await.unwrap().unwrap();
    barrier.lift().await.unwrap();
}

#[tokio::test]
async fn a_round_begins_when_enough_have_come_and_ends_when_all_have_left() {
    rounds_begin_and_end(DoubleBarrier::new).await;
}

#[tokio::test]
async fn a_program_lets_in_when_enough_have_come() {
    rounds_begin_and_end(DoubleBarrier::extended).await;
}

async fn rounds_begin_and_end(form: fn(&Client, &str, usize) -> DoubleBarrier<Client>) {
    let server = Server::start();
    let client = server.connect().await;
    let barrier = form(&client, "/meeting", 3);
    for _round in 0..3 {
        let enter = || {
            let barrier = barrier.clone();
            tokio::spawn(async move { barrier.enter().await.unwrap() })
        };
        let (one, two) = (enter(), enter());
        // Who gives up does not count.
        until_children(&client, "/meeting", 2).await;
        assert!(timeout(A_WHILE, form(&client, "/meeting", 4).enter()).await.is_err());
        until_children(&client, "/meeting", 2).await;
        assert!(!one.is_finished() && !two.is_finished());
        let all = timeout(PATIENCE, async { tokio::join!(one, two, enter()) }).await.unwrap();
        let (one, two, three) = (all.0.unwrap(), all.1.unwrap(), all.2.unwrap());
        let left = timeout(PATIENCE, async { tokio::join!(one.leave(), two.leave(), three.leave()) });
        assert_eq!(left.await.unwrap(), (Ok(()), Ok(()), Ok(())));
    }
}

#[tokio::test]
async fn a_round_is_left_together() {
    nobody_is_left_behind(DoubleBarrier::new).await;
}

#[tokio::test]
async fn a_round_is_left_together_with_a_program() {
    nobody_is_left_behind(DoubleBarrier::extended).await;
}

async fn nobody_is_left_behind(form: fn(&Client, &str, usize) -> DoubleBarrier<Client>) {
    let server = Server::start();
    let client = server.connect().await;
    let barrier = form(&client, "/meeting", 2);
    let (one, two) = tokio::join!(barrier.enter(), barrier.enter());
    let (one, two) = (one.unwrap(), two.unwrap());
    let leaving = tokio::spawn(one.leave());
    tokio::time::sleep(A_WHILE).await;
    assert!(!leaving.is_finished());
    // Who comes meanwhile is of the next round.
    let next = tokio::spawn({
        let barrier = barrier.clone();
        async move { barrier.enter().await.unwrap() }
    });
    tokio::time::sleep(A_WHILE).await;
    assert!(!next.is_finished());
    two.leave().await.unwrap();
    timeout(PATIENCE, leaving).await.unwrap().unwrap().unwrap();
    let (other, next) = timeout(PATIENCE, async { tokio::join!(barrier.enter(), next) }).await.unwrap();
    drop((other.unwrap(), next.unwrap()));
}

#[tokio::test]
async fn a_group_knows_who_is_there() {
    let server = Server::start();
    let (a, b) = (server.connect().await, server.connect().await);
    let group = Group::new(&a, "/group");
    let mut members = group.watch();
    assert_eq!(members.next().await.unwrap(), []);
    let anna = group.join("anna", b"10.0.0.1").await.unwrap();
    let listed = timeout(PATIENCE, members.next()).await.unwrap().unwrap();
    assert_eq!(listed.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["anna"]);
    assert_eq!(group.data(&listed[0]).await.unwrap().unwrap(), b"10.0.0.1");
    let again = Group::new(&b, "/group").join("anna", b"10.0.0.2").await.unwrap();
    assert_eq!(timeout(PATIENCE, members.next()).await.unwrap().unwrap().len(), 2);
    anna.leave().await.unwrap();
    let listed = timeout(PATIENCE, members.next()).await.unwrap().unwrap();
    assert_eq!(group.data(&listed[0]).await.unwrap().unwrap(), b"10.0.0.2");
    b.close().await.unwrap();
    again.lost().await;
    assert_eq!(timeout(PATIENCE, members.next()).await.unwrap().unwrap(), []);
    assert_eq!(group.data(&listed[0]).await, Ok(None));
}

#[tokio::test]
async fn a_cache_follows_a_subtree() {
    let server = Server::start();
    let (a, b) = (server.connect().await, server.connect().await);
    let mut cache = Cache::new(&a, "/data");
    assert_eq!(cache.update().await.unwrap(), [""; 0]);
    for path in ["/data", "/data/a", "/data/a/b", "/data/a-c", "/other"] {
        b.create(path, path.as_bytes(), CreateMode::Persistent).await.unwrap();
    }
    while cache.iter().count() < 4 {
        timeout(PATIENCE, cache.update()).await.unwrap().unwrap();
    }
    assert_eq!(cache.get("/data/a/b").unwrap().data, b"/data/a/b");
    assert!(cache.get("/other").is_none());
    b.set_data("/data/a/b", b"new", None).await.unwrap();
    assert_eq!(timeout(PATIENCE, cache.update()).await.unwrap().unwrap(), ["/data/a/b"]);
    assert_eq!(cache.get("/data/a/b").unwrap().data, b"new");
    b.delete("/data/a/b", None).await.unwrap();
    b.delete("/data/a", None).await.unwrap();
    while cache.get("/data/a").is_some() {
        timeout(PATIENCE, cache.update()).await.unwrap().unwrap();
    }
    assert_eq!(cache.iter().map(|(path, _)| path).collect::<Vec<_>>(), ["/data", "/data/a-c"]);
}

#[tokio::test]
async fn znodes_are_made_with_the_acl_that_is_asked_for() {
    let server = Server::start();
    let options = server.options().identity("digest", b"anna:secret");
    let (anna, other) = (Client::connect(options).await.unwrap(), server.connect().await);
    let _held = Lock::new(&anna, "/private").acl(Acl::creator_only()).acquire().await.unwrap();
    let error = Lock::new(&other, "/private").acquire().await.unwrap_err();
    assert!(matches!(error, Error::Refused { code: ErrorCode::NoAuth, .. }), "{error}");
    assert_eq!(
        error.to_string(),
        "a request for /private was refused: NoAuth (-102): not permitted by the znode's ACL"
    );
}

#[tokio::test]
async fn a_client_with_a_connection_to_each_partition_has_them_too() {
    let server = Server::start();
    let client = Client::connect(server.options().direct(true)).await.unwrap();
    let mut taken = Vec::new();
    for top in ["/one", "/two", "/three", "/four"] {
        let held = Lock::new(&client, &format!("{top}/lock")).acquire().await.unwrap();
        let mut queue = Queue::new(&client, &format!("{top}/queue"));
        queue.put(held.token().to_string().as_bytes()).await.unwrap();
        taken.push((held.token().to_string().into_bytes(), queue.take().await.unwrap()));
        held.release().await.unwrap();
        assert_eq!(Counter::new(&client, &format!("{top}/counter")).add(2).await, Ok(2));
    }
    assert!(taken.iter().all(|(put, taken)| put == taken), "{taken:?}");
}

#[tokio::test]
async fn programs_add_and_take_as_clients_do() {
    let server = Server::start();
    let (a, b) = (server.connect().await, server.connect().await);
    let mut counters = [Counter::extended(&a, "/app/counter"), Counter::extended(&b, "/app/counter")];
    for sum in 1..=10 {
        let counter = &mut counters[usize::from(sum % 2 == 0)];
        assert_eq!(counter.add(1).await, Ok(sum));
    }
    // Both forms at once.
    assert_eq!(Counter::new(&a, "/app/counter").add(-3).await, Ok(7));
    assert_eq!(counters[0].add(-7).await, Ok(0));
    let mut queues = [Queue::extended(&a, "/app/queue"), Queue::extended(&b, "/app/queue")];
    assert_eq!(queues[0].try_take().await, Ok(None));
    for element in [b"one".as_slice(), b"", b"six"] {
        queues[0].put(element).await.unwrap();
    }
    assert_eq!(queues[1].try_take().await.unwrap().unwrap(), b"one");
    assert_eq!(Queue::new(&a, "/app/queue").try_take().await.unwrap().unwrap(), b"");
    assert_eq!(queues[0].take().await.unwrap(), b"six");
    assert_eq!(queues[1].try_take().await, Ok(None));
    let [mut waiting, mut queue] = queues;
    queue.put(b"").await.unwrap();
    assert_eq!(waiting.take().await.unwrap(), b"");
    let taking = tokio::spawn(async move { waiting.take().await });
    until_children(&a, "/app/queue/gate", 1).await;
    queue.put(b"late").await.unwrap();
    assert_eq!(timeout(PATIENCE, taking).await.unwrap().unwrap().unwrap(), b"late");
    // Somebody has deregistered a program.
    let programs = a.get_children("/em").await.unwrap();
    let program = programs.into_iter().find(|name| name.starts_with("counter")).unwrap();
    a.delete(&format!("/em/{program}"), None).await.unwrap();
    assert_eq!(counters[1].add(5).await, Ok(5));
    let barrier = DoubleBarrier::extended(&a, "/app/barrier", 1);
    drop(barrier.enter().await.unwrap());
    a.delete("/em/barrier:app:barrier", None).await.unwrap();
    barrier.enter().await.unwrap().leave().await.unwrap();
    // What is no number is left alone.
    a.set_data("/app/counter", b"many", None).await.unwrap();
    assert!(matches!(counters[1].add(1).await, Err(Error::Refused { code: ErrorCode::SystemError, .. })));
}

#[tokio::test]
async fn what_a_program_has_taken_for_nobody_is_put_back() {
    let server = Server::start();
    let client = server.connect().await;
    put_back(&client, || Queue::extended(&client, "/queue"), 8).await;
}

#[test]
fn the_blocking_front_waits_for_recipes_too() {
    let server = Server::start();
    let client = blocking::Client::connect(server.options()).unwrap();
    let lock = Lock::new(client.client(), "/lock");
    let held = client.wait(lock.acquire()).unwrap();
    assert!(client.wait(lock.try_acquire()).unwrap().is_none());
    // What is dropped outside of the runtime is given back in it.
    drop(held);
    let held = client.wait(lock.acquire()).unwrap();
    client.wait(held.release()).unwrap();
}
