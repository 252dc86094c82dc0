//! Recipes with a service that answers what a test has written down.

use alloc::borrow::ToOwned;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::future::{Future, pending, ready};
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::{Arc, Mutex};

use stoa_client_core::{Call, Event, Operation, OperationResult, Reply, State, WatchEnd, WatchId};
use stoa_wire::{ErrorCode, EventKind, Stat};

use super::*;

type Answer = Result<Reply, ErrorCode>;

const SESSION: i64 = 5;

#[derive(Clone)]
struct Script(Arc<Mutex<Lines>>);

struct Lines {
    /// What is still to be answered, with the session in which it is.
    answers: VecDeque<(i64, Answer)>,
    session: i64,
    asked: Vec<Call>,
    /// What watches tell, each one at most one event.
    told: VecDeque<Option<Event>>,
    /// The clock, and how far it goes on with each answer.
    now: Duration,
    trip: Duration,
    /// Answers what the script has none for.
    service: Option<fn(&Call) -> Answer>,
    /// The number of the request whose answer never comes.
    silent_at: Option<usize>,
}

struct Told(Option<Event>);

impl Events for Told {
    async fn next(&mut self) -> Result<Event, WatchEnd> {
        match self.0.take() {
            Some(event) => Ok(event),
            None => pending().await,
        }
    }
}

impl Script {
    fn new(answers: impl IntoIterator<Item = (i64, Answer)>) -> Self {
        let answers = answers.into_iter().collect();
        let (asked, told) = (Vec::new(), VecDeque::new());
        let (now, trip) = (Duration::ZERO, Duration::ZERO);
        let (session, service, silent_at) = (SESSION, None, None);
        Self(Arc::new(Mutex::new(Lines { answers, session, asked, told, now, trip, service, silent_at })))
    }

    /// A service that answers each request by itself, but for the one with that number.
    fn answering(service: fn(&Call) -> Answer, silent_at: usize) -> Self {
        let script = Self::new([]);
        let mut lines = script.0.lock().unwrap();
        (lines.service, lines.silent_at) = (Some(service), Some(silent_at));
        drop(lines);
        script
    }

    fn asked(&self) -> Vec<Call> {
        self.0.lock().unwrap().asked.clone()
    }
}

impl Service for Script {
    type Watch = Told;

    fn call(&self, call: Call) -> impl Future<Output = Answer> + Send {
        let mut lines = self.0.lock().unwrap();
        let is_silent = lines.silent_at == Some(lines.asked.len());
        let by_itself = lines.service.map_or(Err(ErrorCode::SessionExpired), |answer| answer(&call));
        lines.asked.push(call);
        let (session, answer) = lines.answers.pop_front().unwrap_or((SESSION, by_itself));
        lines.session = session;
        let this = self.clone();
        async move {
            if is_silent {
                pending::<()>().await;
            }
            let lines = &mut *this.0.lock().unwrap();
            lines.now += lines.trip;
            answer
        }
    }

    async fn call_and_watch(&self, call: impl FnOnce(WatchId) -> Call + Send) -> (Answer, Told) {
        let answer = self.call(call(WatchId(0))).await;
        (answer, Told(self.0.lock().unwrap().told.pop_front().flatten()))
    }

    fn situation(&self) -> Situation {
        Situation { state: State::Connected, session: Some(self.0.lock().unwrap().session), connections: 1 }
    }

    fn changed(&self, _: Situation) -> impl Future<Output = ()> + Send {
        pending()
    }

    fn now(&self) -> Duration {
        self.0.lock().unwrap().now
    }

    fn sleep(&self, _: Duration) -> impl Future<Output = ()> + Send {
        ready(())
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        now(task);
    }

    fn unique(&self) -> u64 {
        0xff
    }
}

/// What comes of a future that waits for nothing but the script.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the script has no answer"),
    }
}

fn lost() -> (i64, Answer) {
    (SESSION, Err(ErrorCode::ConnectionLoss))
}

fn there() -> (i64, Answer) {
    (SESSION, Err(ErrorCode::NodeExists))
}

fn created(path: &str) -> (i64, Answer) {
    let stat = Stat { czxid: 9, ephemeral_owner: SESSION, ..Stat::default() };
    (SESSION, Ok(Reply::Created { path: path.to_owned(), stat }))
}

fn listed(names: &[&str]) -> (i64, Answer) {
    (SESSION, Ok(Reply::Children { names: names.iter().map(|&name| name.to_owned()).collect(), stat: None }))
}

const OWN: &str = "00000000000000ff-lock-0000000001";

fn held(rest: impl IntoIterator<Item = (i64, Answer)>) -> (Script, Held<Script>) {
    let entered = [there(), created(&format!("/lock/{OWN}")), listed(&[OWN])];
    let script = Script::new(entered.into_iter().chain(rest));
    let held = now(Lock::with(&script, "/lock", Primitive::SyncQueue).acquire()).unwrap();
    assert_eq!((held.token(), held.session(), held.standing()), (Token(9), SESSION, Standing::Sure));
    (script, held)
}

/// A directory goes when it has been empty for a while. Who was not there for so long that this may cost another trip
/// asks for it along with a place.
#[test]
fn who_was_away_from_a_lock_asks_for_its_directory_too() {
    for (trip, away, asks) in [(10, 1000, true), (10, 5, false), (1, 1000, false), (1, 60_000, true)] {
        let place = || [created(&format!("/lock/{OWN}")), listed(&[OWN])];
        let first = [there()].into_iter().chain(place()).chain([(SESSION, Ok(Reply::Nothing))]);
        let script = Script::new(first.chain(asks.then(there)).chain(place()));
        script.0.lock().unwrap().trip = Duration::from_millis(trip);
        let lock = Lock::with(&script, "/lock", Primitive::SyncQueue);
        now(now(lock.acquire()).unwrap().release()).unwrap();
        script.0.lock().unwrap().now += Duration::from_millis(away);
        let before = script.asked().len();
        assert_eq!(now(lock.acquire()).unwrap().token(), Token(9));
        let asked = script.asked().split_off(before);
        let directories = asked.iter().filter(|call| {
            matches!(call, Call::Multi(operations)
            if matches!(&operations[..], [Operation::Create { path, .. }, _] if path == "/lock"))
        });
        assert_eq!(directories.count(), usize::from(asks), "{trip} ms, {away} ms: {asked:?}");
    }
}

/// Who has held it says so, and is gone, in one request.
fn is_release(call: &Call) -> bool {
    let Call::Multi(operations) = call else { return false };
    let place = format!("/lock/{OWN}");
    matches!(&operations[..], [Operation::SetData { path, .. }, Operation::Delete { path: gone, .. }]
        if *path == place && *gone == place)
}

#[test]
fn a_release_that_is_repeated_is_one() {
    let (_, held) = held([lost(), (SESSION, Err(ErrorCode::NoNode))]);
    assert_eq!(now(held.release()), Ok(()));
}

/// The delete is repeated in a new session, and finds nothing: the old session may have ended before it.
#[test]
fn a_release_after_the_end_of_the_session_is_none() {
    let (_, held) = held([lost(), (SESSION + 1, Err(ErrorCode::NoNode))]);
    assert_eq!(now(held.release()), Err(Error::SessionLost));
}

#[test]
fn what_somebody_else_has_deleted_was_not_released() {
    let (_, held) = held([(SESSION, Err(ErrorCode::NoNode))]);
    assert_eq!(now(held.release()), Err(Error::Removed { path: format!("/lock/{OWN}") }));
}

/// A full disk refuses for a while: whoever has no use for the error does not see it, and it is tried again.
#[test]
fn what_is_refused_for_now_is_tried_again_in_the_background() {
    let (script, held) =
        held([(SESSION, Err(ErrorCode::SystemError)), lost(), (SESSION, Ok(Reply::Nothing))]);
    drop(held);
    let deletes = script.asked().into_iter().filter(is_release);
    assert_eq!(deletes.count(), 3);
}

#[test]
fn a_release_that_is_refused_says_so_and_is_tried_again() {
    let (script, held) = held([(SESSION, Err(ErrorCode::SystemError)), (SESSION, Ok(Reply::Nothing))]);
    let path = format!("/lock/{OWN}");
    assert_eq!(now(held.release()), Err(Error::Refused { path, code: ErrorCode::SystemError }));
    assert_eq!(script.asked().iter().filter(|call| is_release(call)).count(), 2);
}

/// Whoever gives up while its create is under way is taken back, also when the service cannot say at first whether it
/// is there.
#[test]
fn what_was_under_way_is_found_when_the_service_can_say_so() {
    let synced = || (SESSION, Ok(Reply::Path("/lock".to_owned())));
    let script = Script::new([
        there(),
        // Nobody waits for this one.
        created(&format!("/lock/{OWN}")),
        (SESSION, Err(ErrorCode::SystemError)),
        synced(),
        listed(&["other-lock-0000000000", OWN]),
        synced(),
        (SESSION, Ok(Reply::Stat(Stat::default()))),
        (SESSION, Ok(Reply::Nothing)),
    ]);
    script.0.lock().unwrap().silent_at = Some(1);
    let lock = Lock::with(&script, "/lock", Primitive::SyncQueue);
    assert!(pin!(lock.acquire()).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let delete = Call::Delete { path: format!("/lock/{OWN}"), version: None };
    assert_eq!(script.asked().last(), Some(&delete));
}

/// Of the witness there is no trace: its session has ended, and nobody knows.
#[test]
fn an_update_whose_witness_is_gone_is_uncertain() {
    let number = Reply::Data { data: b"1".to_vec(), stat: Stat::default() };
    let script = Script::new([
        (SESSION, Ok(number)),
        created("/counter/00000000000000ff-witness"),
        lost(),
        (SESSION + 1, Ok(Reply::Path("/counter".to_owned()))),
        (SESSION + 1, Err(ErrorCode::NoNode)),
    ]);
    assert_eq!(now(Counter::new(&script, "/counter").add(1)), Err(Error::Uncertain));
}

/// The answer says that it was not done, and the witness that it was.
#[test]
fn a_witness_is_believed_before_an_error() {
    let number = Reply::Data { data: b"1".to_vec(), stat: Stat::default() };
    for (version, expected) in [(1, Ok(2)), (0, Err(ErrorCode::SystemError))] {
        let script = Script::new([
            (SESSION, Ok(number.clone())),
            created("/counter/00000000000000ff-witness"),
            (SESSION, Err(ErrorCode::SystemError)),
            (SESSION, Ok(Reply::Path("/counter".to_owned()))),
            (SESSION, Ok(Reply::Stat(Stat { version, ..Stat::default() }))),
        ]);
        let result = now(Counter::new(&script, "/counter").add(1));
        let path = "/counter/00000000000000ff-witness".to_owned();
        assert_eq!(result, expected.map_err(|code| Error::Refused { path, code }));
    }
}

/// A service that has its programs spared by this session for a while is asked again.
#[test]
fn what_was_put_off_is_asked_again() {
    let said = Reply::Data { data: b"42".to_vec(), stat: Stat::default() };
    let script = Script::new([
        created("/em/counter:counter"),
        created("/counter"),
        created("/counter/00000000000000ff-witness"),
        (SESSION, Err(ErrorCode::ThrottledOp)),
        (SESSION, Ok(Reply::Path("/counter".to_owned()))),
        (SESSION, Ok(Reply::Data { data: Vec::new(), stat: Stat::default() })),
        (SESSION, Ok(said)),
    ]);
    assert_eq!(now(Counter::extended(&script, "/counter").add(1)), Ok(42));
}

/// What a program has said is found in the witness when the answer is lost.
#[test]
fn what_a_program_said_is_not_lost_with_its_answer() {
    let said = |data: &[u8], version| {
        let stat = Stat { version, ..Stat::default() };
        (SESSION, Ok(Reply::Data { data: data.to_vec(), stat }))
    };
    let script = Script::new([
        created("/em/counter:app:%253a"),
        created("/app/%3a"),
        created("/app/%3a/00000000000000ff-witness"),
        lost(),
        (SESSION, Ok(Reply::Path("/app/%3a".to_owned()))),
        said(b"42", 1),
        said(b"43", 0),
    ]);
    let mut counter = Counter::extended(&script, "/app/%3a");
    assert_eq!(now(counter.add(1)), Ok(42));
    // The second time one request is enough.
    assert_eq!(now(counter.add(1)), Ok(43));
    let asked = script.asked();
    let Some(Call::Create { path, data, .. }) = asked.first() else { panic!("{asked:?}") };
    assert_eq!(path, "/em/counter:app:%253a");
    assert!(core::str::from_utf8(data).unwrap().contains(r#"on_operation("read", "/app/%3a/add/*");"#));
    let Some(Call::GetData { path, .. }) = asked.last() else { panic!("{asked:?}") };
    assert_eq!(path, "/app/%3a/add/1.00000000000000ff-witness.1");
}

/// The session ends after the witness was asked for, and before it says what the program has done.
#[test]
fn what_a_program_said_and_nobody_can_read_any_more_is_uncertain() {
    let script = Script::new([
        created("/em/counter:counter"),
        created("/counter"),
        created("/counter/00000000000000ff-witness"),
        lost(),
        (SESSION, Ok(Reply::Path("/counter".to_owned()))),
        (SESSION + 1, Err(ErrorCode::SessionExpired)),
    ]);
    assert_eq!(now(Counter::extended(&script, "/counter").add(1)), Err(Error::Uncertain));
}

/// A queue of one element, of which it says nothing to whoever takes it but by the witness.
fn takes_in_silence(call: &Call) -> Answer {
    let (taken, data) = (Stat { version: 1, ..Stat::default() }, b"element".to_vec());
    match call {
        Call::GetChildren { .. } => listed(&["item-0000000003"]).1,
        Call::GetData { path, .. } if path.starts_with("/queue/head/") => lost().1,
        Call::GetData { path, .. } if path.starts_with("/queue/items/") => {
            Ok(Reply::Data { data, stat: Stat::default() })
        }
        Call::GetData { .. } => Ok(Reply::Data { data, stat: taken }),
        Call::Exists { .. } => Ok(Reply::Stat(taken)),
        Call::Sync { path } => Ok(Reply::Path(path.clone())),
        Call::Create { path, .. } => created(path).1,
        Call::Multi(operations) if matches!(operations.first(), Some(Operation::Delete { .. })) => lost().1,
        Call::Multi(_) => Ok(Reply::Results(Vec::new())),
        _ => Ok(Reply::Nothing),
    }
}

/// What those who put an element back ask for.
fn puts_back(call: &Call) -> bool {
    let Call::Multi(operations) = call else { return false };
    let Some(Operation::Create { path, data, .. }) = operations.first() else { return false };
    path.starts_with("/queue/items/item-") && data == b"element"
}

/// Whoever gives up a take at any moment between its request and its end puts the element back.
#[test]
fn an_element_is_put_back_whenever_its_taker_gives_up() {
    for form in [Queue::new, Queue::extended] {
        let mut silent_at = 0;
        loop {
            let script = Script::answering(takes_in_silence, silent_at);
            let mut queue = form(&script, "/queue");
            let taken = pin!(queue.try_take()).poll(&mut Context::from_waker(Waker::noop()));
            let asked = script.asked();
            let has_asked = asked.iter().take(silent_at + 1).any(|call| match call {
                Call::GetData { path, .. } => path.starts_with("/queue/head/"),
                Call::Multi(operations) => matches!(operations.first(), Some(Operation::Delete { .. })),
                _ => false,
            });
            let is_back = asked.iter().filter(|call| puts_back(call)).count();
            if let Poll::Ready(taken) = taken {
                // What is asked when the queue itself is given up has its answer.
                script.0.lock().unwrap().silent_at = None;
                assert_eq!((taken, is_back), (Ok(Some(b"element".to_vec())), 0));
                break;
            }
            assert_eq!(is_back, usize::from(has_asked), "given up at request {silent_at}: {asked:?}");
            silent_at += 1;
        }
        assert!(silent_at > 4, "there was something to give up");
    }
}

/// The service has no room for anything: what was taken is put back when it has some, and so is the question whether
/// it was taken.
#[test]
fn an_element_is_put_back_when_there_is_room_for_it() {
    let refused = || (SESSION, Err(ErrorCode::SystemError));
    let synced = || (SESSION, Ok(Reply::Path("/queue".to_owned())));
    let over =
        vec![OperationResult::Failed(ErrorCode::QuotaExceeded), OperationResult::Failed(ErrorCode::Ok)];
    let script = Script::new([
        created("/em/queue:queue"),
        created("/queue/clients/00000000000000ff-witness"),
        // Nobody waits for this one.
        lost(),
        refused(),
        synced(),
        (
            SESSION,
            Ok(Reply::Data { data: b"element".to_vec(), stat: Stat { version: 1, ..Stat::default() } }),
        ),
        refused(),
        synced(),
        (SESSION, Ok(Reply::Stat(Stat { version: 1, ..Stat::default() }))),
        (SESSION, Ok(Reply::Results(over))),
        (SESSION, Ok(Reply::Results(Vec::new()))),
        (SESSION, Ok(Reply::Nothing)),
    ]);
    script.0.lock().unwrap().silent_at = Some(2);
    let mut queue = Queue::extended(&script, "/queue");
    assert!(pin!(queue.try_take()).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let asked = script.asked();
    assert_eq!(asked.iter().filter(|call| puts_back(call)).count(), 3, "{asked:?}");
    assert!(matches!(asked.last(), Some(Call::Delete { .. })), "{asked:?}");
}

#[test]
fn znodes_above_are_made_from_the_top() {
    let no_node = || (SESSION, Err(ErrorCode::NoNode));
    let script = Script::new([no_node(), no_node(), lost(), created("/a"), there(), created("/a/b/c")]);
    assert_eq!(now(Barrier::new(&script, "/a/b/c").set()), Ok(()));
    let made = script.asked().into_iter().filter_map(|call| match call {
        Call::Create { path, .. } => Some(path),
        _ => None,
    });
    let made: Vec<String> = made.collect();
    assert_eq!(made, ["/a/b/c", "/a/b", "/a", "/a", "/a/b", "/a/b/c"]);
}

const CANDIDATE: &str = "/lead/00000000000000ff-candidate-2";
const ASKED: &str = "/lead/acquire/00000000000000ff-candidate";

/// The program says that there is a place, which was the first at once or was not.
fn placed(was_first: bool) -> (i64, Answer) {
    let stat = Stat { czxid: 9, version: i32::from(was_first), ephemeral_owner: SESSION, ..Stat::default() };
    (SESSION, Ok(Reply::Created { path: CANDIDATE.to_owned(), stat }))
}

fn campaigns(script: &Script) -> Result<Held<Script>, Error> {
    now(Election::extended(script, "/lead").campaign(b"data"))
}

/// One request takes a place, with what others are told of the candidate.
#[test]
fn a_candidate_asks_once() {
    for told in [None, Some(10)] {
        let program = || created("/em/election:lead");
        let script = Script::new([program(), there(), placed(told.is_none())]);
        let event = told.map(|zxid| Event { kind: EventKind::DataChanged, path: ASKED.to_owned(), zxid });
        script.0.lock().unwrap().told.push_back(event);
        let held = campaigns(&script).unwrap();
        assert_eq!((held.token(), held.session()), (Token(9), SESSION));
        let asked = script.asked();
        let Some(Call::Telling { path, call, .. }) = asked.last() else { panic!("{asked:?}") };
        assert!(asked.len() == 3 && path == ASKED, "{asked:?}");
        assert!(matches!(&**call, Call::Create { path, data, .. } if path == ASKED && data == b"data"));
    }
}

/// One request gives up a place and takes another one, also when its answer is lost.
#[test]
fn a_leader_that_stands_again_asks_once() {
    const AGAIN: &str = "/lead/00000000000000ff-candidate-7";
    let placed_again = || {
        let stat = Stat { czxid: 15, ephemeral_owner: SESSION, ..Stat::default() };
        (SESSION, Ok(Reply::Created { path: AGAIN.to_owned(), stat }))
    };
    let start = [created("/em/election:lead"), there(), placed(true)];
    for lost in [None, Some(lost())] {
        // What was told while the answer was lost is not told again: so it looks, and listens no more.
        let looks = lost.is_some().then(|| [listed(&["00000000000000ff-candidate-7"]), there()]);
        let answers = lost.into_iter().chain([placed_again()]).chain(looks.into_iter().flatten());
        let asks = answers.clone().count();
        let script = Script::new(start.iter().cloned().chain(answers));
        let event = Event { kind: EventKind::DataChanged, path: ASKED.to_owned(), zxid: 16 };
        script.0.lock().unwrap().told.extend([None, Some(event)]);
        let election = Election::extended(&script, "/lead");
        let held = now(election.campaign(b"data")).unwrap();
        let held = now(election.requeue(held, b"more")).unwrap();
        assert_eq!((held.token(), held.session()), (Token(15), SESSION));
        let asked = script.asked();
        assert_eq!(asked.len(), start.len() + asks, "{asked:?}");
        let Call::Telling { path, call, .. } = &asked[start.len()] else { panic!("{asked:?}") };
        let Call::Create { path: wanted, data, .. } = &**call else { panic!("{asked:?}") };
        assert_eq!(path, ASKED);
        assert_eq!(wanted, "/lead/requeue/00000000000000ff-candidate-2");
        assert_eq!(data, b"more");
    }
}

/// What is told after a reconnect, or of something before, makes nobody a leader. Nor does the end of patience, while
/// there is somebody before.
#[test]
fn only_what_is_told_of_later_appoints() {
    let others = || listed(&["00000000000000ee-candidate-1", "00000000000000ff-candidate-2"]);
    let alone = || listed(&["00000000000000ff-candidate-2"]);
    let start = [created("/em/election:lead"), there(), placed(false)];
    let again = [placed(false), others(), placed(false), others()];
    // The patience has come to its end, and the program may be missing.
    let missing = [there(), created("/em/election:lead/a"), placed(false)];
    for (listed, leads) in [(others(), false), (alone(), true)] {
        let script = [&start[..], &again, &missing, &[listed]].concat();
        let length = script.len();
        let script = Script::new(script);
        let event = |kind, zxid| Event { kind, path: ASKED.to_owned(), zxid };
        let told = [event(EventKind::Deleted, -1), event(EventKind::DataChanged, 9)].map(Some);
        script.0.lock().unwrap().told.extend(told);
        let outcome = campaigns(&script);
        if leads {
            assert_eq!(outcome.map(|held| held.token()), Ok(Token(9)));
            assert_eq!(script.asked()[length..].len(), 2, "it withdraws its watch, and then its znode");
        } else {
            // It has looked for all that the script says, and then its session has ended.
            assert_eq!(outcome.err(), Some(Error::SessionLost));
            assert!(script.asked().len() > length);
        }
    }
}

/// Who has been told while its answer was lost looks: nobody is told twice.
#[test]
fn an_answer_that_is_lost_is_no_place_to_wait_at() {
    let alone = listed(&["00000000000000ff-candidate-2"]);
    let script = Script::new([created("/em/election:lead"), there(), lost(), there(), placed(false), alone]);
    assert!(campaigns(&script).is_ok());
}

const BEFORE: &str = "00000000000000ee-lock-0000000000";

fn data(mzxid: i64, owner: i64) -> (i64, Answer) {
    let stat = Stat { mzxid, ephemeral_owner: owner, ..Stat::default() };
    (SESSION, Ok(Reply::Data { data: Vec::new(), stat }))
}

/// What a waiter does with an event of the place before it, of the session `owner`, with somebody else before that
/// one or not: how often it asks until it has the lock.
fn asks(kind: EventKind, zxid: i64, owner: i64, first: Option<&str>) -> usize {
    let names: Vec<&str> = first.into_iter().chain([BEFORE, OWN]).collect();
    let entered = [there(), created(&format!("/lock/{OWN}")), listed(&names)];
    let watched = [data(9, SESSION), data(5, owner)];
    let script = Script::new(entered.into_iter().chain(watched).chain([listed(&[OWN])]));
    let event = Event { kind, path: format!("/lock/{BEFORE}"), zxid };
    script.0.lock().unwrap().told.extend([None, Some(event)]);
    let held = now(Lock::with(&script, "/lock", Primitive::SyncQueue).acquire()).unwrap();
    let asked = script.asked().len();
    assert_eq!(held.token(), Token(9));
    asked
}

/// Only a holder changes its place, and it was not told before the watch was set.
#[test]
fn what_was_handed_over_is_not_looked_for() {
    const OTHER: &str = "00000000000000dd-lock--000000001";
    let (trusted, looked_for) = (5, 6);
    assert_eq!(asks(EventKind::DataChanged, 6, 8, Some(OTHER)), trusted);
    // It may be the creation of the place, told once more after a reconnect.
    assert_eq!(asks(EventKind::DataChanged, 5, 8, Some(OTHER)), looked_for);
    assert_eq!(asks(EventKind::DataChanged, -1, 8, Some(OTHER)), looked_for);
    // It may have given up waiting.
    assert_eq!(asks(EventKind::Deleted, 6, 8, Some(OTHER)), looked_for);
    // Nobody was before it.
    assert_eq!(asks(EventKind::Deleted, 6, 8, None), trusted);
    // With its session the waiter's own place is gone too.
    assert_eq!(asks(EventKind::Deleted, 6, SESSION, None), looked_for);
}

/// Who was taken out of the queue does not take what comes behind that for its turn.
#[test]
fn whoever_has_lost_its_place_is_not_handed_anything() {
    let entered = [there(), created(&format!("/lock/{OWN}")), listed(&[BEFORE, OWN])];
    let watched = [data(9, SESSION), data(5, 8)];
    let script = Script::new(entered.into_iter().chain(watched).chain([listed(&[])]));
    let event = |name: &str, kind| Some(Event { kind, path: format!("/lock/{name}"), zxid: 10 });
    let told = [event(OWN, EventKind::Deleted), event(BEFORE, EventKind::DataChanged)];
    script.0.lock().unwrap().told.extend(told);
    let error = now(Lock::with(&script, "/lock", Primitive::SyncQueue).acquire()).err();
    assert_eq!(error, Some(Error::Removed { path: format!("/lock/{OWN}") }));
}

/// The leaf is found by what it says, and deleted in its own session only, once.
#[test]
fn a_leaf_is_found_again_and_deleted_as_long_as_it_is_ours() {
    let leaf = |data: &[u8], session| {
        let stat = Stat { czxid: 9, ephemeral_owner: session, ..Stat::default() };
        (SESSION, Ok(Reply::Data { data: data.to_vec(), stat }))
    };
    let synced = || (SESSION, Ok(Reply::Path("/lock".to_owned())));
    let refused = || (SESSION, Err(ErrorCode::SystemError));
    let script = Script::new([
        lost(),
        // Until the service can say what there is, there is nothing to go by.
        refused(),
        synced(),
        leaf(b"00000000000000ff", SESSION),
        // The delete was carried out, and somebody else has the lock.
        lost(),
        synced(),
        refused(),
        synced(),
        leaf(b"00000000000000ee", 8),
    ]);
    let held = now(Lock::with(&script, "/lock", Primitive::TasWatch).acquire()).unwrap();
    assert_eq!((held.token(), held.session()), (Token(9), SESSION));
    assert_eq!(now(held.release()), Ok(()));
    let asked = script.asked();
    assert_eq!(asked.len(), 9, "{asked:?}");
    let Call::Within { session: SESSION, call } = &asked[4] else { panic!("{asked:?}") };
    assert_eq!(**call, Call::Delete { path: "/lock".to_owned(), version: None });
}

/// An empty directory is taken out of the way of a leaf, by a request that no leaf answers to.
#[test]
fn an_empty_directory_makes_room_for_a_leaf() {
    let directory = Stat { ephemeral_owner: i64::MIN, version: 1, ..Stat::default() };
    let script = Script::new([
        there(),
        (SESSION, Ok(Reply::Data { data: Vec::new(), stat: directory })),
        (SESSION, Ok(Reply::Nothing)),
        created("/lock"),
    ]);
    let held = now(Lock::with(&script, "/lock", Primitive::TasWatch).acquire()).unwrap();
    assert_eq!(script.asked()[2], Call::Delete { path: "/lock".to_owned(), version: Some(1) });
    drop(held);
}
