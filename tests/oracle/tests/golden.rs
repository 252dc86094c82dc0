//! stoa-wire against bytes that Apache ZooKeeper produced: every request and every reply of the
//! transcripts decodes, and encodes to the same bytes again.

use std::path::{Path, PathBuf};
use stoa_oracle::golden::{Case, parse};
use stoa_wire::request::encode;
use stoa_wire::{
    Acl, AclList, ConnectRequest, ConnectResponse, Create, MultiHeader, MultiResult, MultiResults, Opcode,
    Reader, ReplyHeader, Request, RequestHeader, SetWatches, Stat, StrList, WatcherEvent, put, xid,
};

type Bytes = Vec<u8>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

fn transcripts() -> Vec<(String, Vec<Case>)> {
    let mut transcripts: Vec<_> = std::fs::read_dir(folder())
        .expect("the folder of transcripts is there")
        .map(|entry| {
            let path = entry.expect("its entries can be listed").path();
            let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).expect("a transcript is text");
            (name.clone(), parse(&text).unwrap_or_else(|error| panic!("{name}: {error}")))
        })
        .collect();
    transcripts.sort_by(|one, other| one.0.cmp(&other.0));
    transcripts
}

/// The requests of clients with the opcode that each asks for.
fn exchanges() -> impl Iterator<Item = (String, Opcode, Case)> {
    transcripts().into_iter().filter(|(name, _)| name != "connect").flat_map(|(name, cases)| {
        cases.into_iter().map(move |case| {
            let header =
                RequestHeader::decode(&mut Reader::new(&case.request)).expect("a request has a header");
            let opcode = Opcode::from_i32(header.opcode).expect("an opcode of the protocol");
            (format!("{name}: {}", case.title), opcode, case)
        })
    })
}

#[test]
fn there_is_a_transcript_for_every_opcode_of_a_client() {
    let names: Vec<String> = transcripts().into_iter().map(|(name, _)| name).collect();
    for opcode in Opcode::ALL {
        // A connect request takes the place of createSession.
        let name = if *opcode == Opcode::CreateSession { "connect" } else { opcode.name() };
        assert!(names.iter().any(|known| known == name), "no transcript for {name}");
    }
}

#[test]
fn greetings_encode_to_the_bytes_they_were_decoded_from() {
    let (_, cases) = transcripts().into_iter().find(|(name, _)| name == "connect").expect("a transcript");
    for case in cases {
        let request = ConnectRequest::decode(&case.request).expect(&case.title);
        let mut bytes = Bytes::new();
        request.encode(&mut bytes);
        assert_eq!(bytes, case.request, "{}", case.title);
        assert_eq!(case.replies.len(), 1, "{}", case.title);
        for reply in &case.replies {
            let response = ConnectResponse::decode(reply).expect(&case.title);
            assert_eq!(response.read_only.is_some(), request.read_only.is_some(), "{}", case.title);
            let mut bytes = Bytes::new();
            response.encode(&mut bytes);
            assert_eq!(&bytes, reply, "{}", case.title);
        }
    }
}

#[test]
fn requests_encode_to_the_bytes_they_were_decoded_from() {
    for (title, opcode, case) in exchanges() {
        let mut reader = Reader::new(&case.request);
        let header = RequestHeader::decode(&mut reader).expect(&title);
        let request = Request::decode(opcode, &mut reader).unwrap_or_else(|error| panic!("{title}: {error}"));
        assert!(reader.rest().is_empty(), "{title}: bytes are left over");
        assert_eq!(request.opcode(), opcode, "{title}");
        let mut bytes = Bytes::new();
        header.encode(&mut bytes);
        encode_request(&mut bytes, &request);
        assert_eq!(bytes, case.request, "{title}");
    }
}

#[test]
fn replies_encode_to_the_bytes_they_were_decoded_from() {
    for (title, opcode, case) in exchanges() {
        assert!(!case.replies.is_empty(), "{title}: ZooKeeper did not answer");
        for frame in &case.replies {
            let mut reader = Reader::new(frame);
            let mut bytes = Bytes::new();
            let header = ReplyHeader::decode(&mut reader).expect(&title);
            header.encode(&mut bytes);
            if header.xid == xid::NOTIFICATION {
                WatcherEvent::decode(&mut reader).expect(&title).encode(&mut bytes);
            } else if header.err == 0 {
                reply_body(opcode, &mut reader, &mut bytes)
                    .unwrap_or_else(|error| panic!("{title}: {error}"));
            }
            assert!(reader.rest().is_empty(), "{title}: bytes are left over");
            assert_eq!(&bytes, frame, "{title}");
        }
    }
}

fn acl_of<'a>(list: AclList<'a>) -> Vec<Acl<'a>> {
    list.iter().collect()
}

fn encode_create(out: &mut Bytes, create: &Create<'_>, with_ttl: bool) {
    let ttl_ms = with_ttl.then_some(create.ttl_ms);
    encode::create(out, create.path, create.data, &acl_of(create.acl), create.flags, ttl_ms);
}

fn encode_watches(out: &mut Bytes, watches: &SetWatches<'_>, lists: usize) {
    fn paths<'a>(list: &StrList<'a>) -> Vec<&'a str> {
        list.iter().collect()
    }
    let all = [
        paths(&watches.data),
        paths(&watches.exist),
        paths(&watches.child),
        paths(&watches.persistent),
        paths(&watches.persistent_recursive),
    ];
    let all: Vec<&[&str]> = all[..lists].iter().map(Vec::as_slice).collect();
    encode::set_watches(out, watches.relative_zxid, &all);
}

fn encode_request(out: &mut Bytes, request: &Request<'_>) {
    match request {
        Request::Create(create) | Request::Create2(create) | Request::CreateContainer(create) => {
            encode_create(out, create, false);
        }
        Request::CreateTtl(create) => encode_create(out, create, true),
        Request::Exists { path, watch }
        | Request::GetData { path, watch }
        | Request::GetChildren { path, watch }
        | Request::GetChildren2 { path, watch } => encode::path_watch(out, path, *watch),
        Request::DeleteContainer { path }
        | Request::GetAcl { path }
        | Request::Sync { path }
        | Request::GetAllChildrenNumber { path } => encode::path(out, path),
        Request::GetEphemerals { prefix } => match prefix {
            Some(prefix) => encode::path(out, prefix),
            None => put::i32(out, -1),
        },
        Request::Delete { path, version } | Request::Check { path, version } => {
            encode::path_version(out, path, *version);
        }
        Request::CheckWatches { path, kind: number }
        | Request::RemoveWatches { path, kind: number }
        | Request::AddWatch { path, mode: number } => encode::path_number(out, path, *number),
        Request::SetData { path, data, version } => encode::set_data(out, path, *data, *version),
        Request::SetAcl { path, acl, version } => encode::set_acl(out, path, &acl_of(*acl), *version),
        Request::Multi(ops) | Request::MultiRead(ops) => {
            for op in ops.iter() {
                MultiHeader { opcode: op.opcode() as i32, done: false, err: -1 }.encode(out);
                encode_request(out, &op);
            }
            MultiHeader::END.encode(out);
        }
        Request::Reconfig(reconfig) => {
            for servers in [reconfig.joining, reconfig.leaving, reconfig.new_members] {
                put::opt_buffer(out, servers.map(str::as_bytes));
            }
            put::i64(out, reconfig.current_config);
        }
        Request::Auth { scheme, auth } => encode::auth(out, scheme, auth),
        Request::Sasl { token } => put::buffer(out, token),
        Request::SetWatches(watches) => encode_watches(out, watches, 3),
        Request::SetWatches2(watches) => encode_watches(out, watches, 5),
        Request::CreateSession { timeout_ms } => put::i32(out, *timeout_ms),
        Request::Ping | Request::WhoAmI | Request::CloseSession => {}
    }
}

type Outcome = Result<(), stoa_wire::DecodeError>;

fn reply_body(opcode: Opcode, reader: &mut Reader<'_>, out: &mut Bytes) -> Outcome {
    match opcode {
        Opcode::Create | Opcode::Sync => put::str(out, reader.str()?),
        Opcode::Create2 | Opcode::CreateContainer | Opcode::CreateTtl => {
            put::str(out, reader.str()?);
            Stat::decode(reader)?.encode(out);
        }
        Opcode::Exists | Opcode::SetData | Opcode::SetAcl => Stat::decode(reader)?.encode(out),
        Opcode::GetData => {
            put::opt_buffer(out, reader.buffer()?);
            Stat::decode(reader)?.encode(out);
        }
        Opcode::GetAcl => {
            Acl::encode_list(out, acl_of(AclList::decode(reader)?).into_iter());
            Stat::decode(reader)?.encode(out);
        }
        Opcode::GetChildren | Opcode::GetEphemerals => strings(reader, out)?,
        Opcode::GetChildren2 => {
            strings(reader, out)?;
            Stat::decode(reader)?.encode(out);
        }
        Opcode::GetAllChildrenNumber | Opcode::AddWatch => put::i32(out, reader.i32()?),
        Opcode::Sasl => put::opt_buffer(out, reader.buffer()?),
        Opcode::WhoAmI => {
            let count = reader.count(8)?;
            put::len(out, count);
            for _ in 0..count {
                put::str(out, reader.str()?);
                put::str(out, reader.str()?);
            }
        }
        Opcode::Multi | Opcode::MultiRead => results(&MultiResults::decode(reader)?, out),
        _ => {}
    }
    Ok(())
}

fn strings(reader: &mut Reader<'_>, out: &mut Bytes) -> Outcome {
    let list = StrList::decode(reader)?;
    put::len(out, list.len());
    list.iter().for_each(|item| put::str(out, item));
    Ok(())
}

fn results(results: &[MultiResult<'_>], out: &mut Bytes) {
    for result in results {
        match result {
            MultiResult::Created { path, stat } => MultiResults::created(out, path, stat.as_ref()),
            MultiResult::Deleted => MultiResults::deleted(out),
            MultiResult::DataSet { stat } => MultiResults::data_set(out, stat),
            MultiResult::Checked => MultiResults::checked(out),
            MultiResult::Data { data, stat } => MultiResults::data(out, *data, stat),
            MultiResult::Children(names) => {
                MultiResults::children(out);
                put::len(out, names.len());
                names.iter().for_each(|name| put::str(out, name));
            }
            MultiResult::Error(err) => MultiResults::error(out, *err),
        }
    }
    MultiResults::end(out);
}
