//! A server that is told to stop, and what its clients get. It is the only test of its process, which is told too.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use common::{Client, LATE, long_answers, request, start};
use stoa_wire::request::encode;
use stoa_wire::{OPEN_ACL, Opcode};

#[test]
fn clients_get_what_was_answered_before_the_server_stops() {
    let (ports, serving) = start(&[]);
    // Its answers are more than sockets hold, and more requests lie unread behind those that are answered.
    let mut slow = Client::new(&ports);
    let get = long_answers(&mut slow);
    let mut requests: Vec<u8> = (2..30).flat_map(&get).collect();
    requests.extend(request(-2, Opcode::Ping, |_| ()).repeat(100_000));
    slow.send_beside(requests);
    // The last of its requests are on their way to the disk.
    let mut writing = Client::new(&ports);
    let idle = Client::new(&ports);
    std::thread::sleep(Duration::from_millis(500));
    let create = |xid| {
        let path = format!("/written{xid}");
        request(xid, Opcode::Create, |body| encode::create(body, &path, None, OPEN_ACL, 0, None))
    };
    // In one piece: what has not come when the server stops is not asked.
    writing.0.write_all(&(2..10).flat_map(create).collect::<Vec<_>>()).unwrap();
    writing.frame().unwrap();
    let began = Instant::now();
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
    std::thread::sleep(LATE);
    assert_eq!(writing.answers(), (3..10).collect::<Vec<_>>());
    let answers = slow.answers();
    assert!(answers.len() >= 2, "{answers:?}");
    assert_eq!(answers, (2..).take(answers.len()).collect::<Vec<_>>());
    drop((slow, writing));
    // Somebody who does not care delays it by little.
    assert_eq!(serving.join().unwrap(), ExitCode::SUCCESS);
    assert!(began.elapsed() < LATE + Duration::from_secs(3), "{:?}", began.elapsed());
    drop(idle);
}
