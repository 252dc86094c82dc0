//! Golden transcripts: what Apache ZooKeeper really sends, byte for byte.
//!
//! One file an opcode. A file is a list of cases; each case is a title, the request that was sent and
//! every frame that came back, as hexadecimal digits without the length in front:
//!
//! ```text
//! # a znode that is not there
//! request 0000000200000003...
//! reply   00000002000000...
//! event   ffffffff000000...
//! ```

use crate::answer;
use crate::call::{AclEntry, Call, Moment, Name, Op, Resolve};
use crate::describe::hex;
use crate::link::Link;
use crate::menu;
use crate::servers::{Kind, Server};
use std::fmt::Write as _;
use std::path::Path;
use stoa_wire::{ConnectRequest, Opcode};

/// One exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// What it shows.
    pub title: String,
    /// The payload of the request's frame.
    pub request: Vec<u8>,
    /// The payloads of the frames that came back, in order.
    pub replies: Vec<Vec<u8>>,
}

/// Reads a transcript.
///
/// # Errors
/// With the line that is not as it should be.
pub fn parse(text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    let mut title = String::new();
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |what: &str| format!("line {number}: {what}: {line:?}");
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "" => {}
            "#" => rest.clone_into(&mut title),
            "request" => {
                let request = unhex(rest.trim()).ok_or_else(|| wrong("not hexadecimal"))?;
                cases.push(Case { title: std::mem::take(&mut title), request, replies: Vec::new() });
            }
            "reply" | "event" => {
                let frame = unhex(rest.trim()).ok_or_else(|| wrong("not hexadecimal"))?;
                cases.last_mut().ok_or_else(|| wrong("no request before it"))?.replies.push(frame);
            }
            _ => return Err(wrong("unknown word")),
        }
    }
    Ok(cases)
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) || !digits.is_ascii() {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}

/// Writes a transcript.
#[must_use]
pub fn render(cases: &[Case]) -> String {
    let mut text = String::new();
    for case in cases {
        // Writing to a string does not fail.
        let _ = writeln!(text, "# {}\nrequest {}", case.title, hex(&case.request));
        for frame in &case.replies {
            let word = if answer::is_event(frame) { "event" } else { "reply" };
            let _ = writeln!(text, "{word:7} {}", hex(frame));
        }
        text.push('\n');
    }
    text
}

struct Nothing;

impl Resolve for Nothing {
    fn sequential(&self, _: usize) -> &str {
        "/none"
    }

    fn zxid(&self, moment: Moment) -> i64 {
        match moment {
            Moment::Fixed(zxid) => zxid,
            Moment::WritesAgo(_) => 0,
        }
    }
}

/// Records every chapter from an Apache ZooKeeper of its own into `folder`. Answers how many.
///
/// # Errors
/// When the server does not come up, does not answer, or a file cannot be written.
pub fn record(folder: &Path) -> Result<usize, String> {
    let server = Server::start(Kind::ZooKeeper)?;
    let mut recorder = Recorder { address: server.address, link: None, xid: 0 };
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut chapters = vec![("connect", recorder.greetings()?)];
    recorder.open()?;
    for chapter in chapters_of_requests() {
        let mut cases = Vec::new();
        for (title, call) in chapter.calls {
            let case = recorder.ask(title, &call)?;
            if !title.is_empty() {
                cases.push(case);
            }
        }
        chapters.push((chapter.name, cases));
    }
    for (name, cases) in &chapters {
        let path = folder.join(name).with_extension("txt");
        std::fs::write(&path, render(cases)).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(chapters.len())
}

struct Recorder {
    address: std::net::SocketAddr,
    link: Option<Link>,
    xid: i32,
}

impl Recorder {
    fn open(&mut self) -> Result<(), String> {
        self.greet("", 0, Some(false)).map(|_| ())
    }

    /// A greeting on a connection of its own, which stays open.
    fn greet(&mut self, title: &str, session_id: i64, read_only: Option<bool>) -> Result<Case, String> {
        let mut request = Vec::new();
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 700_000,
            session_id,
            password: &[0; 16],
            read_only,
        }
        .encode(&mut request);
        let mut link = Link::open(self.address).map_err(|error| format!("{}: {error}", self.address))?;
        let length = i32::try_from(request.len()).unwrap_or(0).to_be_bytes();
        link.send(&[&length[..], &request].concat());
        let reply = link.receive().map_err(|ended| format!("{title}: {ended:?}"))?;
        self.link = Some(link);
        Ok(Case { title: title.to_owned(), request, replies: vec![reply] })
    }

    fn greetings(&mut self) -> Result<Vec<Case>, String> {
        Ok(vec![
            self.greet("a new session", 0, Some(false))?,
            self.greet("a new session for a client that would take a read-only server", 0, Some(true))?,
            self.greet("a new session for a client older than 3.4", 0, None)?,
            self.greet("a session that does not exist", 0x1234, Some(false))?,
            self.greet("a session that does not exist, asked for by a client older than 3.4", 0x1234, None)?,
        ])
    }

    fn ask(&mut self, title: &str, call: &Call) -> Result<Case, String> {
        self.xid += 1;
        let mut bytes = Vec::new();
        call.encode(&mut bytes, call.op.fixed_xid().unwrap_or(self.xid), &Nothing);
        let link = self.link.as_mut().ok_or("not connected")?;
        link.send(&bytes);
        let mut replies = Vec::new();
        loop {
            let frame = link.receive().map_err(|ended| format!("{title}: {}: {ended:?}", call.op))?;
            let is_reply = !answer::is_event(&frame);
            replies.push(frame);
            if is_reply {
                break;
            }
        }
        if call.op.travels_alone()
            && call.op.opcode() != Opcode::Sasl as i32
            && ends_connection(&replies, call)
        {
            self.open()?;
        }
        Ok(Case { title: title.to_owned(), request: bytes[4..].to_vec(), replies })
    }
}

/// Whether the connection is over after this answer.
fn ends_connection(replies: &[Vec<u8>], call: &Call) -> bool {
    let failed = replies.last().and_then(|frame| answer::header(frame)).is_some_and(|header| header.err != 0);
    failed || call.op.opcode() == Opcode::CloseSession as i32
}

struct Chapter {
    name: &'static str,
    /// Cases in order; those without a title prepare the next and are not recorded.
    calls: Vec<(&'static str, Call)>,
}

fn path(opcode: Opcode, path: &str) -> Call {
    Op::Path { opcode, path: Name::text(path) }.into()
}

fn watch(opcode: Opcode, path: &str, watch: bool) -> Call {
    Op::Watch { opcode, path: Name::text(path), watch }.into()
}

fn number(opcode: Opcode, path: &str, number: i32) -> Call {
    Op::Number { opcode, path: Name::text(path), number }.into()
}

fn create_op(opcode: Opcode, path: &str, data: Option<&[u8]>, flags: i32) -> Op {
    let acl = menu::open_acl();
    Op::Create {
        opcode,
        path: Name::text(path),
        data: data.map(<[u8]>::to_vec),
        acl,
        flags,
        ttl_ms: 86_400_000,
    }
}

fn create(opcode: Opcode, path: &str, data: Option<&[u8]>, flags: i32) -> Call {
    create_op(opcode, path, data, flags).into()
}

fn set_data_op(path: &str, data: Option<&[u8]>, version: i32) -> Op {
    Op::SetData { path: Name::text(path), data: data.map(<[u8]>::to_vec), version }
}

fn set_acl(path: &str, acl: Vec<AclEntry>) -> Call {
    Op::SetAcl { path: Name::text(path), acl: Some(acl), version: -1 }.into()
}

fn number_op(opcode: Opcode, path: &str, version: i32) -> Op {
    number(opcode, path, version).op
}

fn multi(opcode: Opcode, ops: Vec<Op>) -> Call {
    Op::Multi { opcode, ops }.into()
}

fn set_watches(opcode: Opcode, lists: [&[&str]; 5]) -> Call {
    let lists = lists.map(|list| list.iter().map(|path| Name::text(*path)).collect());
    Op::SetWatches { opcode, seen: Moment::Fixed(1), lists }.into()
}

fn auth(scheme: &'static str, auth: &'static [u8]) -> Call {
    Op::Auth { scheme, auth }.into()
}

fn chapters_of_requests() -> Vec<Chapter> {
    let mut chapters = writes();
    chapters.extend(reads());
    chapters.extend(watches());
    chapters.extend(connection());
    chapters
}

fn writes() -> Vec<Chapter> {
    use Opcode::{Check, Create, Create2, CreateContainer, CreateTtl, Delete, Multi};
    vec![
        Chapter {
            name: "create",
            calls: vec![
                ("a persistent znode", create(Create, "/g", Some(b"data"), 0)),
                ("one that exists already", create(Create, "/g", Some(b"data"), 0)),
                ("null data", create(Create, "/g/null", None, 0)),
                ("empty data", create(Create, "/g/empty", Some(b""), 0)),
                ("an ephemeral znode", create(Create, "/g/ephemeral", Some(b"e"), 1)),
                ("a sequential znode", create(Create, "/g/s-", Some(b"s"), 2)),
                (
                    "an ephemeral sequential znode with a name of digits only",
                    create(Create, "/g/", Some(b"s"), 3),
                ),
                ("below a znode that is not there", create(Create, "/missing/x", Some(b""), 0)),
                ("below an ephemeral znode", create(Create, "/g/ephemeral/x", Some(b""), 0)),
                ("a path that is none", create(Create, "/g//x", Some(b""), 0)),
                ("a name beyond ASCII", create(Create, "/g/\u{e9}\u{4e2d}", Some(b""), 0)),
            ],
        },
        Chapter {
            name: "create2",
            calls: vec![
                ("a persistent znode", create(Create2, "/g/two", Some(b"data"), 0)),
                ("an ephemeral znode", create(Create2, "/g/two-ephemeral", None, 1)),
                ("one that exists already", create(Create2, "/g/two", Some(b"data"), 0)),
            ],
        },
        Chapter {
            name: "createContainer",
            calls: vec![
                ("a container", create(CreateContainer, "/g/container", Some(b"c"), 4)),
                ("one that exists already", create(CreateContainer, "/g/container", Some(b"c"), 4)),
            ],
        },
        Chapter {
            name: "createTTL",
            calls: vec![
                ("a TTL znode", create(CreateTtl, "/g/ttl", Some(b"t"), 5)),
                ("a sequential TTL znode", create(CreateTtl, "/g/ttl-", Some(b"t"), 6)),
                ("one that exists already", create(CreateTtl, "/g/ttl", Some(b"t"), 5)),
            ],
        },
        Chapter {
            name: "delete",
            calls: vec![
                ("a znode with children", number(Delete, "/g", -1)),
                ("a wrong version", number(Delete, "/g/two", 5)),
                ("a znode", number(Delete, "/g/two", 0)),
                ("one that is not there", number(Delete, "/g/two", -1)),
            ],
        },
        Chapter {
            name: "deleteContainer",
            calls: vec![
                ("a container", path(Opcode::DeleteContainer, "/g/container")),
                ("one that is not there", path(Opcode::DeleteContainer, "/g/container")),
            ],
        },
        Chapter {
            name: "setData",
            calls: vec![
                ("any version", set_data_op("/g", Some(b"new data"), -1).into()),
                ("null data", set_data_op("/g/empty", None, 0).into()),
                ("a wrong version", set_data_op("/g", Some(b""), 7).into()),
                ("a znode that is not there", set_data_op("/missing", Some(b""), -1).into()),
            ],
        },
        Chapter {
            name: "multi",
            calls: vec![
                ("nothing", multi(Multi, vec![])),
                (
                    "one of each",
                    multi(
                        Multi,
                        vec![
                            number_op(Check, "/g", 1),
                            create_op(Create, "/g/m", Some(b"m"), 0),
                            create_op(Create2, "/g/m2", None, 1),
                            create_op(CreateContainer, "/g/mc", Some(b""), 4),
                            create_op(CreateTtl, "/g/mt", Some(b""), 5),
                            set_data_op("/g/m", Some(b"changed"), 0),
                            number_op(Delete, "/g/m2", -1),
                        ],
                    ),
                ),
                (
                    "one that fails between two that would not",
                    multi(
                        Multi,
                        vec![
                            set_data_op("/g/m", Some(b"never"), -1),
                            number_op(Delete, "/missing", -1),
                            set_data_op("/g/m", Some(b"never"), -1),
                        ],
                    ),
                ),
            ],
        },
    ]
}

fn reads() -> Vec<Chapter> {
    use Opcode::{Exists, GetAcl, GetAllChildrenNumber, GetChildren, GetChildren2, GetData, GetEphemerals};
    let digest = |id| AclEntry { perms: 31, scheme: Some("digest"), id: Some(id) };
    let read = AclEntry { perms: 1, scheme: Some("world"), id: Some("anyone") };
    let read_by_op = |opcode, path: &str| watch(opcode, path, false).op;
    vec![
        Chapter {
            name: "exists",
            calls: vec![
                ("a znode", watch(Exists, "/g", false)),
                ("an ephemeral znode", watch(Exists, "/g/ephemeral", false)),
                ("one that is not there", watch(Exists, "/missing", false)),
            ],
        },
        Chapter {
            name: "getData",
            calls: vec![
                ("a znode", watch(GetData, "/g", false)),
                ("null data", watch(GetData, "/g/null", false)),
                ("a TTL znode", watch(GetData, "/g/ttl", false)),
                ("one that is not there", watch(GetData, "/missing", false)),
            ],
        },
        Chapter {
            name: "getChildren",
            calls: vec![
                ("children", watch(GetChildren, "/g", false)),
                ("none", watch(GetChildren, "/g/null", false)),
                ("a znode that is not there", watch(GetChildren, "/missing", false)),
            ],
        },
        Chapter {
            name: "getChildren2",
            calls: vec![
                ("children", watch(GetChildren2, "/g", false)),
                ("none", watch(GetChildren2, "/g/null", false)),
                ("a znode that is not there", watch(GetChildren2, "/missing", false)),
            ],
        },
        Chapter {
            name: "multiRead",
            calls: vec![
                ("nothing", multi(Opcode::MultiRead, vec![])),
                (
                    "data, children, and what is not there",
                    multi(
                        Opcode::MultiRead,
                        vec![
                            read_by_op(GetData, "/g"),
                            read_by_op(GetChildren, "/g"),
                            read_by_op(GetData, "/missing"),
                            read_by_op(GetData, "/g/null"),
                        ],
                    ),
                ),
            ],
        },
        Chapter {
            name: "setACL",
            calls: vec![
                ("one identity and the world", set_acl("/g/empty", vec![digest("alice:hash"), read.clone()])),
                ("no entry", set_acl("/g/empty", vec![])),
                ("not permitted any more", set_acl("/g/empty", vec![read])),
            ],
        },
        Chapter {
            name: "getACL",
            calls: vec![
                ("open", path(GetAcl, "/g")),
                ("a digest that is not shown", path(GetAcl, "/g/empty")),
                ("a znode that is not there", path(GetAcl, "/missing")),
            ],
        },
        Chapter {
            name: "getEphemerals",
            calls: vec![
                ("all", path(GetEphemerals, "/")),
                ("below a path", path(GetEphemerals, "/g/eph")),
                ("null for all", Op::Path { opcode: GetEphemerals, path: Name::Null }.into()),
                ("none", path(GetEphemerals, "/x")),
            ],
        },
        Chapter {
            name: "getAllChildrenNumber",
            calls: vec![
                ("a znode", path(GetAllChildrenNumber, "/g")),
                ("the root", path(GetAllChildrenNumber, "/")),
                ("a znode that is not there", path(GetAllChildrenNumber, "/missing")),
            ],
        },
        Chapter {
            name: "sync",
            calls: vec![
                ("a znode", path(Opcode::Sync, "/g")),
                ("one that is not there", path(Opcode::Sync, "/missing")),
            ],
        },
    ]
}

fn watches() -> Vec<Chapter> {
    use Opcode::{AddWatch, CheckWatches, Create, Delete, Exists, GetChildren, GetData, RemoveWatches};
    vec![
        Chapter {
            name: "notification",
            calls: vec![
                ("", watch(Exists, "/g/w", true)),
                ("created", create(Create, "/g/w", Some(b""), 0)),
                ("", watch(GetData, "/g/w", true)),
                ("data changed", set_data_op("/g/w", Some(b"x"), -1).into()),
                ("", watch(GetData, "/g/w", true)),
                ("", watch(GetChildren, "/g", true)),
                ("deleted, and with it the children of another", number(Delete, "/g/w", -1)),
            ],
        },
        Chapter {
            name: "addWatch",
            calls: vec![
                ("persistent", number(AddWatch, "/g/p", 0)),
                ("persistent and recursive", number(AddWatch, "/g/r", 1)),
                ("a mode that there is not", number(AddWatch, "/g/r", 9)),
            ],
        },
        Chapter {
            name: "checkWatches",
            calls: vec![
                ("persistent", number(CheckWatches, "/g/p", 4)),
                ("none of that kind", number(CheckWatches, "/g/p", 2)),
                ("a kind that there is not", number(CheckWatches, "/g/p", 9)),
            ],
        },
        Chapter {
            name: "removeWatches",
            calls: vec![
                ("any", number(RemoveWatches, "/g/p", 3)),
                ("not there any more", number(RemoveWatches, "/g/p", 3)),
                ("persistent and recursive", number(RemoveWatches, "/g/r", 5)),
            ],
        },
        Chapter {
            name: "setWatches",
            calls: vec![
                (
                    "what happened since is reported at once",
                    set_watches(
                        Opcode::SetWatches,
                        [&["/g", "/missing"], &["/g", "/later"], &["/g"], &[], &[]],
                    ),
                ),
                ("nothing to set", set_watches(Opcode::SetWatches, [&[]; 5])),
            ],
        },
        Chapter {
            name: "setWatches2",
            calls: vec![(
                "persistent ones too",
                set_watches(Opcode::SetWatches2, [&["/missing"], &[], &["/g"], &["/g/p"], &["/g/r"]]),
            )],
        },
    ]
}

fn connection() -> Vec<Chapter> {
    let mut reconfig = vec![0xff; 12];
    reconfig.extend_from_slice(&(-1_i64).to_be_bytes());
    vec![
        Chapter {
            name: "auth",
            calls: vec![
                ("digest", auth("digest", b"alice:a")),
                ("the superuser", auth("digest", b"super:test")),
                ("a scheme that there is not", auth("nonsense", b"x")),
            ],
        },
        Chapter {
            name: "whoAmI",
            calls: vec![
                ("the address alone", Op::Bare(Opcode::WhoAmI).into()),
                ("", auth("digest", b"alice:a")),
                ("the address and a digest", Op::Bare(Opcode::WhoAmI).into()),
            ],
        },
        Chapter { name: "ping", calls: vec![("a ping", Op::Bare(Opcode::Ping).into())] },
        Chapter { name: "check", calls: vec![("alone it is no request", number(Opcode::Check, "/g", -1))] },
        Chapter {
            name: "reconfig",
            calls: vec![("disabled", Op::Raw { opcode: Opcode::Reconfig as i32, body: reconfig }.into())],
        },
        Chapter {
            name: "sasl",
            calls: vec![(
                "to a server that does not know it",
                Op::Raw { opcode: Opcode::Sasl as i32, body: vec![0, 0, 0, 2, b'h', b'i'] }.into(),
            )],
        },
        Chapter { name: "closeSession", calls: vec![("the end", Op::Bare(Opcode::CloseSession).into())] },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transcript_reads_as_it_was_written() {
        let cases = vec![Case {
            title: "two frames".to_owned(),
            request: vec![0, 1, 0xff],
            replies: vec![[&[0xff; 4][..], &[0; 12]].concat(), vec![0; 16]],
        }];
        let text = render(&cases);
        assert_eq!(
            text,
            "# two frames\nrequest 0001ff\nevent   ffffffff000000000000000000000000\nreply   00000000000000000000000000000000\n\n"
        );
        assert_eq!(parse(&text), Ok(cases));
    }

    #[test]
    fn a_damaged_transcript_is_refused() {
        assert!(parse("reply 00").is_err());
        assert!(parse("request 0").is_err());
        assert!(parse("request 0g").is_err());
        assert!(parse("answer 00").is_err());
    }
}
