//! Answers are whole, however late or slowly they are read, and whatever else is sent meanwhile.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use common::{Client, LATE, framed, long_answers, request, server};
use stoa_wire::request::encode;
use stoa_wire::{Opcode, RequestHeader};

#[test]
fn a_long_word_is_whole_however_late_its_reader_begins_and_whatever_follows_it() {
    let mut watcher = Client::new(server());
    let paths: Vec<_> = (0..30_000).map(|number| format!("/none/{}{number}", "x".repeat(250))).collect();
    for part in paths.chunks(500) {
        for path in part {
            watcher.send(1, Opcode::Exists, |body| encode::path_watch(body, path, true));
        }
        part.iter().for_each(|_| drop(watcher.frame().unwrap()));
    }
    let readers = [&b""[..], b"\r\n", b" and much more than that, which nobody reads"].map(|behind| {
        std::thread::spawn(move || {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server().clients)).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            stream.write_all(b"wchp").unwrap();
            stream.write_all(behind).unwrap();
            std::thread::sleep(LATE);
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        })
    });
    for reader in readers {
        let answer = reader.join().unwrap().unwrap();
        let watched = answer.lines().filter(|line| line.starts_with("/none/")).count();
        assert!(watched == paths.len() && answer.ends_with("\n\n"), "{watched} of {}", paths.len());
    }
}

#[test]
fn words_may_come_in_pieces_and_their_sender_end_his_side() {
    let ports = server();
    let ask = |pieces: &[&[u8]]| {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, ports.clients)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        for piece in pieces {
            stream.write_all(piece).unwrap();
            std::thread::sleep(Duration::from_millis(30));
        }
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert_eq!(ask(&[b"ruok"]), "imok");
    assert_eq!(ask(&[b"r", b"uo", b"k", b"\n"]), "imok");
    assert!(ask(&[b"con", b"f"]).contains("clientPort="));
    assert_eq!(ask(&[b"stmk\0\0\0", b"\0\0\0\0", b"\x07"]), "7");
    assert!(ask(&[b"stmk\n"]).starts_with("stmk takes the mask as eight bytes"));
    assert_eq!(ask(&[b"ruo"]), "");
}

#[test]
fn a_client_has_all_its_answers_when_the_server_ends_the_connection() {
    type Last = fn() -> Vec<u8>;
    let close: Last = || request(9, Opcode::CloseSession, |_| ());
    let bad_frame: Last = || i32::MAX.to_be_bytes().to_vec();
    let unknown: Last = || framed(|frame| RequestHeader { xid: 9, opcode: 4321 }.encode(frame));
    let endings = [(close, 9), (bad_frame, 8), (unknown, 9)];
    let clients = endings.map(|(last, xid)| {
        std::thread::spawn(move || {
            let mut client = Client::new(server());
            let get = long_answers(&mut client);
            let mut requests: Vec<u8> = (2..9).flat_map(get).collect();
            requests.extend(last());
            // What comes behind is read by nobody, and may not be taken at all.
            requests.extend(request(-2, Opcode::Ping, |_| ()).repeat(500_000));
            client.send_beside(requests);
            std::thread::sleep(LATE);
            let answers: Vec<_> = client.answers().into_iter().filter(|xid| *xid > 0).collect();
            assert_eq!(answers, (2..=xid).collect::<Vec<_>>());
        })
    });
    for client in clients {
        client.join().unwrap();
    }
}

#[test]
fn a_client_that_has_ended_its_side_gets_what_was_answered() {
    let mut client = Client::new(server());
    let get = long_answers(&mut client);
    client.0.write_all(&(2..9).flat_map(get).collect::<Vec<_>>()).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    client.0.shutdown(std::net::Shutdown::Write).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let answers = client.answers();
    assert!(!answers.is_empty() && answers == (2..9).take(answers.len()).collect::<Vec<_>>(), "{answers:?}");
}

#[test]
fn a_client_that_is_refused_is_told_so_whatever_it_has_sent_behind() {
    let mut client = Client::connect(server(), 0x77);
    client.send_beside(vec![0; 16_000_000]);
    std::thread::sleep(Duration::from_millis(100));
    let answer = client.frame().unwrap();
    // Version, timeout, session: zeros say that the session is over.
    assert!(answer[..16].iter().all(|byte| *byte == 0), "{answer:?}");
    assert_eq!(client.0.read(&mut [0]).unwrap(), 0, "and the stream ends as it should");
}

#[test]
fn pages_are_whole_though_more_comes_behind_the_request() {
    let ports = server();
    let page = |request: &str, ends: bool| {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, ports.admin)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        if ends {
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    };
    let get = "GET /commands/monitor HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (request, ends) in [(get.to_owned(), true), (get.repeat(500), false), (get.repeat(2), true)] {
        let page = page(&request, ends);
        let (head, body) = page.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200") && body.ends_with("}\n"), "{page}");
    }
}
