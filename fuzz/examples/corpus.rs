//! Writes the corpora that the fuzzer begins with: a few inputs for each target that are as they should be, for it
//! to damage. `cargo run --manifest-path fuzz/Cargo.toml --example corpus`, whenever a format changes. Inputs that
//! were added because something was found with them stay.

use bytes::Bytes;
use std::fs;
use std::io;
use std::path::Path;
use stoa_fuzz::{Hears, Member, Pair, put_piece};
use stoa_group::{Config, Group, Mark, Members, Output, Restored};
use stoa_wire::request::encode;
use stoa_wire::{
    ConnectRequest, ConnectResponse, MultiHeader, MultiResults, OPEN_ACL, Opcode, ReplyHeader, RequestHeader,
    SideHello, Stat, ask_direct, begin_frame, end_frame, put,
};

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let write = |target: &str, inputs: Vec<(&str, Vec<u8>)>| {
        let folder = root.join("corpus").join(target);
        fs::create_dir_all(&folder)?;
        inputs.into_iter().try_for_each(|(name, bytes)| fs::write(folder.join(name), bytes))
    };
    write("frames", frames())?;
    write("handshake", handshakes())?;
    write("multi", requests())?;
    write("client", conversations())?;
    write("peer", members())?;
    write("reader", below())?;
    write("reader_hello", reader_frames())?;
    write("site", between_sites())?;
    write("site_hello", greetings())?;
    write("forest", forests())?;
    write("group", groups())?;
    write("records", records())?;
    write("folder", edits())?;
    write("snapshot", snapshots())?;
    write("extension", programs(root)?)?;
    write("key_store", stores(root)?)?;
    write("jaas", vec![("server", JAAS.as_bytes().to_vec())])?;
    write("sasl", logins(root)?)?;
    write(
        "zoo_cfg",
        [("alone", ALONE), ("ensemble", ENSEMBLE)].map(|it| configuration("zoo.cfg", it)).into(),
    )?;
    write(
        "toml",
        [("settings", SETTINGS), ("servers", SERVERS)].map(|it| configuration("stoa.toml", it)).into(),
    )
}

/// A configuration file that a server would take.
fn configuration(file: &str, (name, text): (&'static str, &str)) -> (&'static str, Vec<u8>) {
    if let Err(error) = stoa_fuzz::configuration(file, text.as_bytes()) {
        panic!("{name}: {error}");
    }
    (name, text.as_bytes().to_vec())
}

/// A login configuration with everything in it.
const JAAS: &str = r#"Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_super="a\"\101" /* one */ user_bob=secret debug=true; // the other
    com.sun.security.auth.module.Krb5LoginModule requisite
    useKeyTab=true keyTab="${/}zk.keytab" principal="zookeeper/zk1@EXAMPLE.COM";
};
"#;

/// Exchanges that real clients have begun, each as its tokens.
fn logins(root: &Path) -> io::Result<Vec<(&'static str, Vec<u8>)>> {
    let recorded = root.join("../crates/sasl/tests/recorded");
    let read = |name: &str| fs::read(recorded.join(name));
    let exchange = |tokens: &[&[u8]]| {
        bytes(|out| {
            out.push(0);
            tokens.iter().for_each(|token| put_piece(out, token));
        })
    };
    Ok(vec![
        ("jdk-digest", exchange(&[b"", &read("jdk-response")?])),
        ("pure-sasl-digest", exchange(&[b"", &read("pure-sasl-response")?])),
        ("jdk-kerberos", exchange(&[&read("jdk-ap-req")?, b"\x05\x04\0\xff"])),
        ("mutual-kerberos", exchange(&[&read("jdk-ap-req-mutual")?, b"", b"\x05\x04\0\xff"])),
        ("pure-sasl-kerberos", exchange(&[&read("pure-sasl-ap-req")?, b"", b""])),
        (
            "rules",
            bytes(|out| {
                out.push(1);
                put_piece(out, br"RULE:[2:$1@$0](.*@EXAMPLE\.COM)s/@(.*)/$1/gDEFAULT");
                put_piece(out, b"");
                put_piece(out, b"x");
            }),
        ),
        (
            "keytab",
            bytes(|out| {
                out.push(2);
                out.extend(fs::read(recorded.join("server.keytab")).unwrap_or_default());
            }),
        ),
    ])
}

fn bytes(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn frame(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    bytes(|out| {
        let start = begin_frame(out);
        write(out);
        end_frame(out, start);
    })
}

fn request(xid: i32, opcode: Opcode, body: &[u8]) -> Vec<u8> {
    frame(|out| {
        RequestHeader { xid, opcode: opcode as i32 }.encode(out);
        out.extend(body);
    })
}

/// One body of each shape.
fn bodies() -> Vec<(&'static str, Opcode, Vec<u8>)> {
    vec![
        ("create", Opcode::Create2, create("/k", 0)),
        ("ephemeral", Opcode::Create, create("/k/e-", 3)),
        ("ttl", Opcode::CreateTtl, bytes(|out| encode::create(out, "/t", None, OPEN_ACL, 5, Some(1000)))),
        ("delete", Opcode::Delete, bytes(|out| encode::path_version(out, "/a/b", -1))),
        ("get", Opcode::GetData, bytes(|out| encode::path_watch(out, "/a/b", true))),
        ("children", Opcode::GetChildren2, bytes(|out| encode::path_watch(out, "/a", true))),
        ("set", Opcode::SetData, bytes(|out| encode::set_data(out, "/a", Some(b"some data"), 0))),
        ("acl", Opcode::SetAcl, bytes(|out| encode::set_acl(out, "/a", OPEN_ACL, -1))),
        ("auth", Opcode::Auth, bytes(|out| encode::auth(out, "digest", b"alice:a"))),
        ("watch", Opcode::AddWatch, bytes(|out| encode::path_number(out, "/a", 1))),
        ("unwatch", Opcode::RemoveWatches, bytes(|out| encode::path_number(out, "/a", 3))),
        (
            "watches",
            Opcode::SetWatches2,
            bytes(|out| encode::set_watches(out, 1, &[&["/a", "/k"], &["/c"], &["/a"], &["/d"], &["/"]])),
        ),
        ("sync", Opcode::Sync, bytes(|out| encode::path(out, "/a"))),
        ("multi", Opcode::Multi, multi()),
        ("close", Opcode::CloseSession, Vec::new()),
    ]
}

fn create(path: &str, flags: i32) -> Vec<u8> {
    bytes(|out| encode::create(out, path, Some(b"data"), OPEN_ACL, flags, None))
}

fn multi() -> Vec<u8> {
    let op = |out: &mut Vec<u8>, opcode: Opcode, body: &[u8]| {
        MultiHeader { opcode: opcode as i32, done: false, err: -1 }.encode(out);
        out.extend(body);
    };
    bytes(|out| {
        op(out, Opcode::Check, &bytes(|out| encode::path_version(out, "/", -1)));
        op(out, Opcode::Create, &create("/a/n", 0));
        op(out, Opcode::Create2, &create("/e/n-", 2));
        op(out, Opcode::SetData, &bytes(|out| encode::set_data(out, "/a/n", None, 0)));
        op(out, Opcode::Delete, &bytes(|out| encode::path_version(out, "/a/n", 1)));
        MultiHeader::END.encode(out);
    })
}

fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let stream: Vec<u8> =
        bodies().iter().flat_map(|(_, opcode, body)| request(*opcode as i32, *opcode, body)).collect();
    let answer = |body: &dyn Fn(&mut Vec<u8>)| {
        frame(|out| {
            ReplyHeader { xid: 1, zxid: 2, err: 0 }.encode(out);
            body(out);
        })
    };
    let stat = Stat { czxid: 1, data_length: 3, ..Stat::default() };
    let answers = [
        answer(&|out| stat.encode(out)),
        answer(&|out| {
            MultiResults::created(out, "/a", Some(&stat));
            MultiResults::deleted(out);
            MultiResults::data(out, Some(b"abc"), &stat);
            MultiResults::end(out);
        }),
    ];
    vec![("requests", stream), ("answers", answers.concat())]
}

fn handshakes() -> Vec<(&'static str, Vec<u8>)> {
    let hello = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 9,
        timeout_ms: 30_000,
        session_id: 7,
        password: &[1; 16],
        read_only: Some(true),
    };
    let direct = bytes(|out| {
        hello.encode(out);
        ask_direct(out);
    });
    let answer = ConnectResponse {
        protocol_version: 0,
        timeout_ms: 30_000,
        session_id: 7,
        password: [1; 16],
        read_only: Some(false),
    };
    let side = SideHello { session_id: 7, password: &[1; 16] };
    vec![
        ("hello", bytes(|out| hello.encode(out))),
        ("direct", direct),
        ("answer", bytes(|out| answer.encode(out))),
        ("side", bytes(|out| side.encode(out))),
    ]
}

/// What the target `multi` takes: the opcode, a byte, and the body.
fn requests() -> Vec<(&'static str, Vec<u8>)> {
    let input = |(name, opcode, body): (&'static str, Opcode, Vec<u8>)| {
        let at = Opcode::ALL.iter().position(|other| *other == opcode).expect("it is one of all");
        let first = if opcode == Opcode::Multi { 0 } else { at as u8 * 2 + 1 };
        (name, [vec![first], body].concat())
    };
    bodies().into_iter().map(input).collect()
}

/// Who says it, and what.
fn said(out: &mut Vec<u8>, who: u8, piece: &[u8]) {
    out.push(who);
    put_piece(out, piece);
}

fn conversations() -> Vec<(&'static str, Vec<u8>)> {
    let all = bytes(|out| {
        for (_, opcode, body) in bodies() {
            said(out, 0, &request(opcode as i32, opcode, &body));
        }
    });
    let at_once = bytes(|out| {
        said(out, 1, &stoa_fuzz::hello());
        for (_, opcode, body) in bodies().into_iter().rev().skip(1) {
            said(out, 65, &request(opcode as i32, opcode, &body));
        }
        out.extend([251, 253]);
        said(out, 0, &request(1, Opcode::Create, &create("/k", 1)));
        out.extend([252, 251, 251]);
    });
    let source = br#"on_operation("read", "/x"); fn read(request) { return local.read("/k").data; }"#;
    let program = bytes(|out| {
        let register = bytes(|out| encode::create(out, "/em/p", Some(source), OPEN_ACL, 0, None));
        said(out, 0, &request(1, Opcode::Create, &create("/k", 0)));
        said(out, 0, &request(2, Opcode::Create, &register));
        said(out, 0, &request(3, Opcode::GetData, &bytes(|out| encode::path_watch(out, "/x", false))));
        said(out, 0, &request(4, Opcode::Delete, &bytes(|out| encode::path_version(out, "/em/p", -1))));
    });
    vec![("all", all), ("at-once", at_once), ("program", program)]
}

/// What the first of three members is told: as the leader, and as one that follows.
fn members() -> Vec<(&'static str, Vec<u8>)> {
    let told = |first: u8| {
        let mut servers: Vec<Member> = (1..=3).map(|id| Member::new(id, &[1, 2, 3])).collect();
        let mut told = Vec::new();
        for at in 0..60 {
            for (id, server) in (1..).zip(&mut servers) {
                if at > 40 || id == first {
                    server.pass(10);
                    told.extend((id == 1).then_some(137));
                }
            }
            if at == 40 {
                servers[0].from_client(0, &stoa_fuzz::hello());
                said(&mut told, 200, &stoa_fuzz::hello());
                servers[1].from_client(0, &stoa_fuzz::hello());
            }
            if at == 50 {
                let create = request(1, Opcode::Create, &create("/k", 1));
                servers[0].from_client(0, &create);
                said(&mut told, 200, &create);
                servers[1].from_client(0, &create);
            }
            let mut under_way = true;
            while std::mem::take(&mut under_way) {
                for from in 1..=3_u8 {
                    let mut messages = Vec::new();
                    servers[usize::from(from) - 1].settle_with(|to, message| messages.push((to, message)));
                    for (to, message) in messages {
                        under_way = true;
                        let server = &mut servers[usize::from(to) - 1];
                        if to == 1 {
                            said(&mut told, from, &message);
                        }
                        let taken = server.server.peer_message(from, message.into(), server.now);
                        taken.expect("they understand each other");
                    }
                }
            }
        }
        told
    };
    vec![("leads", told(1)), ("follows", told(2))]
}

/// What a reader hears of its parent, and what that hears of it, with a client of the reader.
fn below() -> Vec<(&'static str, Vec<u8>)> {
    let told = |to: Hears| {
        let mut told = Vec::new();
        let how = if to == Hears::Parent { 0 } else { 40 };
        let mut hears = |of: Hears, word: &Bytes| {
            if of == to {
                said(&mut told, how, word);
            }
        };
        let mut pair = Pair::new(&mut hears);
        let mut sync = Vec::new();
        encode::path(&mut sync, "/k");
        let requests = [
            stoa_fuzz::hello(),
            request(1, Opcode::Create, &create("/k", 0)),
            request(2, Opcode::Sync, &sync),
        ];
        for bytes in requests {
            pair.reader.from_client(0, &bytes);
            pair.settle(&mut hears);
            pair.pass(20);
            pair.settle(&mut hears);
        }
        told
    };
    vec![("parent", told(Hears::Parent)), ("reader", told(Hears::Reader))]
}

/// The first frames of a reader, and what follows them on its connection.
fn reader_frames() -> Vec<(&'static str, Vec<u8>)> {
    let mut hello = b"STOAPEER".to_vec();
    hello.extend(5_u32.to_le_bytes());
    // A reader without a secret, with one partition, at feature level 1.
    hello.extend([4, 0, 0, 1, 0, 0, 1, 1]);
    hello.extend([7; 8 + 16 + 32]);
    hello.push(2);
    hello.extend([1; 16]);
    hello.extend(b"stoa 0.1.0");
    let frame = |kind: u8, payload: &[u8]| {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&[kind]);
        hasher.update(payload);
        let head = [u32::try_from(payload.len()).expect("it is short"), hasher.finalize()];
        [&head[0].to_le_bytes()[..], &head[1].to_le_bytes(), &[kind], payload].concat()
    };
    let words = [frame(1, &hello), frame(6, b"\x00\x02abcdefgh"), frame(5, &[]), frame(7, &[9; 16])].concat();
    vec![("hello", hello), ("words", words)]
}

/// What the hub hears of another site, and what that hears of the hub, with a client of each.
fn between_sites() -> Vec<(&'static str, Vec<u8>)> {
    let told = |to: u8| {
        let (mut sites, mut told) = (stoa_fuzz::sites(), vec![to - 1]);
        let requests = [
            stoa_fuzz::hello(),
            request(1, Opcode::Create, &create("/k", 0)),
            request(2, Opcode::Create, &create("/k/l", 1)),
        ];
        for bytes in requests {
            for (id, site) in (1..).zip(&mut sites) {
                if id == to {
                    said(&mut told, 200, &bytes);
                }
                site.from_client(0, &bytes);
            }
            while stoa_fuzz::talk(&mut sites, &mut |hears, message| {
                if hears == to {
                    said(&mut told, 0, message);
                }
            }) {}
        }
        told
    };
    vec![("hub", told(stoa_fuzz::HUB)), ("leaf", told(stoa_fuzz::LEAF))]
}

/// A claim: its reign, the hub, how often that was given up, who is lost and who is needed, whether by itself.
fn put_site_claim(out: &mut Vec<u8>) {
    put::i64(out, 3);
    for number in [1, 0, 4, 8] {
        put::i32(out, number);
    }
    put::bool(out, false);
}

fn put_levels(out: &mut Vec<u8>) {
    for level in [1, 2, 2, 1] {
        put::i32(out, level);
    }
}

/// What leaders of two sites say first.
fn greetings() -> Vec<(&'static str, Vec<u8>)> {
    let mut hello = Vec::new();
    put::str(&mut hello, "stoa sites");
    put::i32(&mut hello, 4);
    put::str(&mut hello, "frankfurt");
    put::i64(&mut hello, 7);
    put::bool(&mut hello, true);
    put::i64(&mut hello, 40);
    put::i32(&mut hello, 1);
    put::i64(&mut hello, 3);
    put::i32(&mut hello, 1);
    put::i64(&mut hello, 2);
    put::bool(&mut hello, true);
    put_site_claim(&mut hello);
    put::str(&mut hello, "stoa 1");
    put_levels(&mut hello);
    let mut welcome = Vec::new();
    for number in [2, 1, 1] {
        put::i32(&mut welcome, number);
    }
    put::i64(&mut welcome, 2);
    put::i32(&mut welcome, 2);
    put::i64(&mut welcome, 9);
    put_site_claim(&mut welcome);
    put::bool(&mut welcome, true);
    put::str(&mut welcome, "stoa 1");
    put::i64(&mut welcome, 0x5002);
    put_levels(&mut welcome);
    vec![("hello", hello), ("welcome", welcome)]
}

/// What a server that follows is told of small appends and large ones, what it asks, and what comes of it.
fn forests() -> Vec<(&'static str, Vec<u8>)> {
    use stoa_forest::{Acknowledge, Acknowledgement, Complaint, Epoch, Frame, Place, Pull, Pulled};
    let spread = bytes(|out| {
        for (previous, last, len) in [(10, 12, 20), (12, 15, 3000), (15, 15, 5)] {
            out.extend([0, 10, previous, last - previous]);
            put_piece(out, &vec![7; len]);
            out.extend([0, 2, last, 0, 4, last, 0, 1, 0, 0]);
        }
    });
    let epoch = Epoch { term: 3, count: 1 };
    let item = Acknowledgement { server: 4, disk: 7, position: 12, round: 0 };
    let said = [
        Frame::Acknowledge(Acknowledge { term: 3, items: vec![item] }),
        Frame::Pull(Pull { term: 3, after: 9, upto: 12 }),
        Frame::Pulled(Pulled { term: 3, place: Place { previous: 9, last: 12 }, body: vec![7; 30].into() }),
        Frame::Complaint(Complaint { epoch, tree: 1, about: 5 }),
    ];
    let said = bytes(|out| {
        out.extend([0, 8, 3]);
        for frame in said {
            out.extend([3, 11]);
            put_piece(out, &frame.encode());
        }
    });
    vec![("spread", spread), ("said", said)]
}

/// What the first of three members of a group is told, and what it stored.
fn groups() -> Vec<(&'static str, Vec<u8>)> {
    let told = |leader: usize| {
        let base = Mark { members: Members::of_voters(&[1, 2, 3]), ..Mark::default() };
        let restored = Restored { base, ..Restored::default() };
        let new = |id| Group::new(&Config::new(id, id), &restored).expect("it is sound");
        let mut groups: Vec<Group> = (1..=3).map(new).collect();
        let (mut told, mut stored) = (vec![1, 0], Vec::new());
        for turn in 0..4 {
            if turn == 0 {
                groups[leader].campaign();
                told.extend((leader == 0).then_some(0));
            } else {
                let _ = groups[leader].propose(b"ours".as_slice().into());
                told.extend((leader == 0).then_some(1));
            }
            let mut under_way = true;
            while std::mem::take(&mut under_way) {
                for at in 0..3 {
                    while let Some(output) = groups[at].poll() {
                        under_way = true;
                        match output {
                            Output::Send(message) => {
                                let mut piece = stoa_group::Pieces::default();
                                message.encode(&mut piece);
                                if message.to() == 1 {
                                    said(&mut told, 9, &piece.join());
                                }
                                let to = message.to() as usize - 1;
                                groups[to].step(message).expect("they understand each other");
                            }
                            Output::Store(store) => {
                                if at == 0 {
                                    stored.push(store.encode().join());
                                }
                                groups[at].stored(store.number);
                            }
                            _ => {}
                        }
                    }
                }
            }
        }
        (told, stored)
    };
    let (leads, stored) = told(0);
    let (follows, _) = told(1);
    let again = bytes(|out| {
        out.extend([1, stored.len().min(7) as u8]);
        stored.iter().take(7).for_each(|record| put_piece(out, record));
        out.extend([0, 3, 4, 5, 6, 7, 8, 2, 1]);
    });
    vec![("leads", leads), ("follows", follows), ("again", again)]
}

fn records() -> Vec<(&'static str, Vec<u8>)> {
    let mut member = Member::new(1, &[1]);
    member.from_client(0, &stoa_fuzz::hello());
    member.settle_with(|_, _| ());
    for (_, opcode, body) in bodies() {
        member.from_client(0, &request(opcode as i32, opcode, &body));
        member.settle_with(|_, _| ());
    }
    let log = bytes(|out| {
        out.push(0);
        member.records.iter().for_each(|record| put_piece(out, record));
    });
    vec![("log", log)]
}

fn edits() -> Vec<(&'static str, Vec<u8>)> {
    let at = |how: &str| stoa_fuzz::EDIT.iter().position(|edit| *edit == how).expect("it is one") as u8;
    let edit = |how: &str, file: u8, offset: u16, piece: Option<&[u8]>| {
        bytes(|out| {
            out.extend([at(how), file]);
            out.extend(offset.to_le_bytes());
            piece.iter().for_each(|piece| put_piece(out, piece));
        })
    };
    let all = |mends: u8, edits: &[Vec<u8>]| [vec![mends], edits.concat()].concat();
    vec![
        ("whole", all(1, &[])),
        ("preamble", all(1, &[edit("put", 1, 48, Some(&[9; 8]))])),
        ("position", all(1, &[edit("put", 2, 64 + 16 + 32 + 8, Some(&[9]))])),
        ("kind", all(1, &[edit("put", 2, 64 + 16 + 16, Some(&[2]))])),
        ("length", all(1, &[edit("put", 5, 64 + 24, Some(&[0xff, 0xff, 0xff, 0x3f]))])),
        ("torn", all(0, &[edit("cut", 4, 150, None), edit("extend", 4, 500, None)])),
        ("mixed", all(0, &[edit("swap", 1, 2, None), edit("remove", 3, 0, None)])),
    ]
}

fn snapshots() -> Vec<(&'static str, Vec<u8>)> {
    let (rich, shuffled) = stoa_fuzz::snapshots();
    vec![("rich", rich), ("shuffled", shuffled)]
}

fn programs(root: &Path) -> io::Result<Vec<(&'static str, Vec<u8>)>> {
    let examples = root.join("../examples/extensions");
    let names = ["counter", "queue", "barrier", "election"];
    let read = |name: &'static str| Ok((name, fs::read(examples.join(format!("{name}.rhai")))?));
    let mut programs: Vec<_> = names.into_iter().map(read).collect::<io::Result<_>>()?;
    programs.push(("everything", EVERYTHING.into()));
    Ok(programs)
}

/// What the target `key_store` takes: which of its ways, and a file.
fn stores(root: &Path) -> io::Result<Vec<(&'static str, Vec<u8>)>> {
    let data = root.join("../crates/keys/tests/data");
    let files = [
        ("jks", 0, "p256.jks"),
        ("jks-trust", 2, "trust.jks"),
        ("pkcs12", 1, "openssl-plain.p12"),
        ("pkcs12-legacy", 0, "openssl-legacy.p12"),
        ("pkcs12-trust", 3, "trust-plain.p12"),
        ("pem", 1, "pkcs8.pem"),
        ("pem-encrypted", 0, "encrypted.pem"),
        ("pem-half", 1, "sec1-half.pem"),
        ("pem-trust", 3, "chain.pem"),
        ("subject", 6, "leaf.der"),
    ];
    let read = |(name, first, file)| Ok((name, [vec![first], fs::read(data.join(file))?].concat()));
    let mut stores: Vec<_> = files.into_iter().map(read).collect::<io::Result<_>>()?;
    // A pair is cut in its middle.
    let [certificate, key] = ["leaf.pem", "leaf-key.pem"].map(|file| fs::read(data.join(file)));
    let (certificate, mut key) = (certificate?, key?);
    key.resize(certificate.len().max(key.len()), b'\n');
    stores.push(("pem-pair", [vec![5], certificate, key].concat()));
    stores.push(("name", b"\x08CN=\"a, b\"+OU=c\\,d; 2.5.4.3=#130161,O=\\41".to_vec()));
    Ok(stores)
}

/// Everything that the language has.
const EVERYTHING: &str = r#"
const N = 3;
on_operation("read", "/a/*");
on_operation("create", "/in/**");
on_event("deleted", "/a/*");
fn helper(a, b) { if a > b { return a - b; } else { return b - a; } }
fn read(request) {
    let all = local.sub_objects("/a");
    let texts = [];
    for (one, i) in all { if i == N { break; } texts.push(`${one.name}=${one.data}`); }
    let map = #{a: 1, "b": [2, 3], c: #{d: ()}};
    map.b[0] += helper(7, 9); map.c.d = texts;
    let next = request.data.to_int() + 1;
    if !local.exists("/n") && next % 2 == 0 || "a" in map { local.create("/n", next.pad(5)); }
    local.update("/a/b", next);
    local.cas("/a/b", next, -next * 2 / 3);
    let path = local.create_sequential("/a/s-", "x".to_string());
    local.monitor("/mine"); local.delete(path);
    for i in 0..=N { for k in map.keys().sorted() { continue; } }
    if "x,y".split(",").len() != 2 { throw "no"; }
    return path.name_of().sub_string(1, 3) + path.parent_of() + texts.join(";") + "ab".index_of("b");
}
fn create(request) { local.block("/in/" + request.name); }
fn deleted(event) { local.suppress(); local.notify(event.name.len(), event.path); }
"#;

const ALONE: &str = "# A comment\ntickTime=2000\ndataDir=/var/lib/zookeeper\nclientPort = 2181\n\
    maxClientCnxns:60\n4lw.commands.whitelist=stat, ruok, conf\\\n , isro\nautopurge.purgeInterval=1\n\
    metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider\n\
    admin.enableServer=false\nglobalOutstandingLimit=1000\njute.maxbuffer=0xfffff\n";

const ENSEMBLE: &str = "initLimit=10\nsyncLimit=5\nreconfigEnabled=true\nstandaloneEnabled=false\n\
    dynamicConfigFile=zoo.cfg.dynamic\nserver.1=one:2888:3888:participant;2181\n\
    server.2=10.0.0.2:2888:3888|[::1]:2889:3889;0.0.0.0:2181\nserver.3=three:2888:3888:observer\n\
    dataDir=/\\u00e9\n";

const SETTINGS: &str = "data-dir = \"/var/lib/stoa\"\nport = 2181\nlog-level = \"info\"\n\
    min-session-timeout = \"4s\"\nmax-request-bytes = '1MiB'\n\
    words = ['srvr', \"ruok\"]\nskip-acl = true\nadmin-bind = '::1'\nextension-steps = 0x10\n";

const SERVERS: &str = "server-id = 2\npartitions = 4\npeer-secret = '0123456789abcdef0123456789abcdef'\n\
    servers = [\n  \"1=one:2888:3888;2181\", '2=two:2888;2181',\n  \"\"\"3=[::1]:2888:observer\"\"\",\n]\n";
