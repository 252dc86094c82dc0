//! How events look: lines as ZooKeeper's, and JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value, json as value};
use stoa_core::{AuditEvent, AuditOperation, AuditResult};
use stoa_tree::Identity;
use stoa_wire::{CreateMode, ErrorCode};

use super::{AdminEvent, Event, HandshakeEvent};
use crate::date;

/// One line as ZooKeeper 3.9 writes it (`AuditEvent.toString`): `key=value` with tabs between them, without what is not
/// known, behind the time and the level as in its logging pattern. `None` for what ZooKeeper has no line of.
pub(super) fn text(wall_ms: i64, event: &Event, server_user: &str) -> Option<String> {
    let mut fields = Vec::new();
    let result = match event {
        Event::Start { is_good } => {
            fields.extend([("user", server_user.to_owned()), ("operation", "serverStart".to_owned())]);
            if *is_good { AuditResult::Success } else { AuditResult::Failure }
        }
        Event::Stop => {
            fields.extend([("user", server_user.to_owned()), ("operation", "serverStop".to_owned())]);
            AuditResult::Invoked
        }
        Event::Client(event) => {
            if matches!(event.operation, AuditOperation::Login | AuditOperation::Move) {
                return None;
            }
            let user = match event.address {
                Some(_) => {
                    let named = names(&event.users).map(|(_, name)| name);
                    named.filter(|name| !name.trim().is_empty()).collect::<Vec<_>>().join(",")
                }
                None => server_user.to_owned(),
            };
            fields.push(("session", format!("0x{:x}", event.session)));
            fields.push(("user", user));
            fields.extend(event.address.map(|address| ("ip", address.to_string())));
            fields.push(("operation", operation(event.operation).to_owned()));
            fields.extend(event.path.clone().map(|path| ("znode", path)));
            fields.extend(event.kind.map(|kind| ("znode_type", kind_name(kind).to_owned())));
            fields.extend(event.acl.clone().map(|acl| ("acl", acl)));
            event.result
        }
        Event::Admin(_) | Event::Handshake(_) => return None,
    };
    let level = if result == AuditResult::Failure { "ERROR" } else { "INFO" };
    let mut line = format!("{} {level} audit: ", date::log4j(wall_ms));
    for (key, value) in fields {
        // What would begin another field or another line is left out: by it a client could write lines of its own.
        let _ = write!(line, "{key}={}\t", value.replace(['\t', '\n', '\r'], ""));
    }
    let _ = write!(line, "result={}", result_name(result));
    Some(line)
}

/// One object, on one line.
pub(super) fn json(wall_ms: i64, event: &Event, server_user: &str) -> String {
    let mut fields = Map::new();
    let mut put = |key: &str, value: Value| drop(fields.insert(key.to_owned(), value));
    put("time", date::rfc3339(wall_ms).into());
    match event {
        Event::Start { is_good } => {
            put("user", value!([server_user]));
            put("operation", "serverStart".into());
            put("result", if *is_good { "success" } else { "failure" }.into());
        }
        Event::Stop => {
            put("user", value!([server_user]));
            put("operation", "serverStop".into());
            put("result", "invoked".into());
        }
        Event::Admin(AdminEvent { address, users, command, status }) => {
            put("user", users_value(users));
            put("ip", address.to_canonical().to_string().into());
            put("operation", "adminCommand".into());
            put("command", (*command).into());
            put("status", (*status).into());
            put("result", if *status < 400 { "success" } else { "failure" }.into());
        }
        Event::Handshake(HandshakeEvent { address, why }) => {
            put("ip", address.to_canonical().to_string().into());
            put("operation", "login".into());
            put("result", "failure".into());
            put("error", why.as_str().into());
        }
        Event::Client(event) => client_fields(event, server_user, &mut put),
    }
    Value::Object(fields).to_string()
}

fn client_fields(event: &AuditEvent, server_user: &str, put: &mut impl FnMut(&str, Value)) {
    if event.session != 0 {
        put("session", format!("0x{:x}", event.session).into());
    }
    match event.address {
        Some(address) => {
            put("user", users_value(&event.users));
            put("ip", address.to_string().into());
        }
        None => put("user", value!([server_user])),
    }
    put("operation", operation(event.operation).into());
    if let Some(path) = &event.path {
        put("znode", path.as_str().into());
    }
    if let Some(kind) = event.kind {
        put("znode_type", kind_name(kind).into());
    }
    if let Some(to) = event.to {
        put("partition", to.into());
    }
    if let Some(acl) = &event.acl {
        put("acl", acl.as_str().into());
    }
    put("result", result_name(event.result).into());
    if event.error != 0 {
        let error = ErrorCode::from_i32(event.error);
        put("error", error.map_or_else(|| event.error.to_string(), |error| format!("{error:?}")).into());
    }
}

fn users_value(users: &[Identity]) -> Value {
    names(users).map(|(scheme, name)| format!("{scheme}:{name}")).collect()
}

/// What each is called, as ZooKeeper's providers tell it (`getUserName`): of a digest the name alone. The mark of a
/// super user is no name, and whoever has it has another one too.
fn names(users: &[Identity]) -> impl Iterator<Item = (&str, &str)> {
    users.iter().filter(|user| user.scheme != "super").map(|user| {
        let id = user.id.as_str();
        let name = if user.scheme == "digest" { id.split(':').next().unwrap_or_default() } else { id };
        (user.scheme.as_str(), name)
    })
}

fn operation(operation: AuditOperation) -> &'static str {
    match operation {
        AuditOperation::Create => "create",
        AuditOperation::Delete => "delete",
        AuditOperation::SetData => "setData",
        AuditOperation::SetAcl => "setAcl",
        AuditOperation::Multi => "multiOperation",
        AuditOperation::Reconfig => "reconfig",
        AuditOperation::EphemeralEnds => "ephemeralZNodeDeletionOnSessionCloseOrExpire",
        AuditOperation::Move => "move",
        AuditOperation::Login => "login",
    }
}

fn result_name(result: AuditResult) -> &'static str {
    match result {
        AuditResult::Success => "success",
        AuditResult::Failure => "failure",
        AuditResult::Invoked => "invoked",
    }
}

/// The names of Java's `CreateMode`, in small letters.
fn kind_name(kind: CreateMode) -> &'static str {
    match kind {
        CreateMode::Persistent => "persistent",
        CreateMode::Ephemeral => "ephemeral",
        CreateMode::PersistentSequential => "persistent_sequential",
        CreateMode::EphemeralSequential => "ephemeral_sequential",
        CreateMode::Container => "container",
        CreateMode::PersistentTtl => "persistent_with_ttl",
        CreateMode::PersistentSequentialTtl => "persistent_sequential_with_ttl",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_795_298_605_007;

    fn created() -> AuditEvent {
        let user = |scheme: &str, id: &str| Identity { scheme: scheme.into(), id: id.into() };
        AuditEvent {
            session: 0x1000_0000_001f,
            address: Some("192.0.2.7".parse().unwrap()),
            users: vec![
                user("ip", "192.0.2.7"),
                user("digest", "bob:aGFzaA=="),
                user("super", "x"),
                user("sasl", "zk@R"),
            ],
            operation: AuditOperation::Create,
            path: Some("/a".into()),
            kind: Some(CreateMode::EphemeralSequential),
            to: None,
            acl: None,
            result: AuditResult::Success,
            error: 0,
        }
    }

    fn line(event: Event) -> String {
        text(NOW, &event, "stoa").unwrap()
    }

    #[test]
    fn lines_are_those_of_zookeeper() {
        let event = created();
        assert_eq!(
            line(Event::Client(event.clone())),
            "2026-11-21 22:03:25,007 INFO audit: session=0x10000000001f\tuser=192.0.2.7,bob,zk@R\tip=192.0.2.7\t\
             operation=create\tznode=/a\tznode_type=ephemeral_sequential\tresult=success"
        );
        let refused = AuditEvent {
            operation: AuditOperation::SetAcl,
            kind: None,
            acl: Some("world:anyone:r".into()),
            result: AuditResult::Failure,
            error: -102,
            ..event.clone()
        };
        assert_eq!(
            line(Event::Client(refused)),
            "2026-11-21 22:03:25,007 ERROR audit: session=0x10000000001f\tuser=192.0.2.7,bob,zk@R\tip=192.0.2.7\t\
             operation=setAcl\tznode=/a\tacl=world:anyone:r\tresult=failure"
        );
        let ended = AuditEvent {
            address: None,
            users: Vec::new(),
            operation: AuditOperation::EphemeralEnds,
            kind: None,
            ..event
        };
        assert_eq!(
            line(Event::Client(ended)),
            "2026-11-21 22:03:25,007 INFO audit: session=0x10000000001f\tuser=stoa\t\
             operation=ephemeralZNodeDeletionOnSessionCloseOrExpire\tznode=/a\tresult=success"
        );
        let of_server = |event| line(event).split_once("audit: ").unwrap().1.to_owned();
        assert_eq!(
            of_server(Event::Start { is_good: true }),
            "user=stoa\toperation=serverStart\tresult=success"
        );
        assert_eq!(
            of_server(Event::Start { is_good: false }),
            "user=stoa\toperation=serverStart\tresult=failure"
        );
        assert_eq!(of_server(Event::Stop), "user=stoa\toperation=serverStop\tresult=invoked");
    }

    #[test]
    fn no_name_makes_a_line_or_a_field_of_its_own() {
        let path = Some("/a\tresult=failure\n2026 INFO audit: x\r".to_owned());
        let event = Event::Client(AuditEvent { path, kind: None, ..created() });
        let line = line(event.clone());
        assert!(line.ends_with("\tznode=/aresult=failure2026 INFO audit: x\tresult=success"), "{line}");
        assert!(!line.contains('\n') && !line.contains('\r'));
        assert_eq!(json(NOW, &event, "stoa").lines().count(), 1);
    }

    #[test]
    fn json_has_what_text_has_not() {
        let parsed = |event: Event| -> Value { serde_json::from_str(&json(NOW, &event, "stoa")).unwrap() };
        let refused = AuditEvent { result: AuditResult::Failure, error: -102, ..created() };
        assert_eq!(
            parsed(Event::Client(refused)),
            value!({
                "time": "2026-11-21T22:03:25.007Z", "session": "0x10000000001f",
                "user": ["ip:192.0.2.7", "digest:bob", "sasl:zk@R"], "ip": "192.0.2.7", "operation": "create",
                "znode": "/a", "znode_type": "ephemeral_sequential", "result": "failure", "error": "NoAuth",
            })
        );
        let login = Event::Client(AuditEvent {
            session: 0,
            operation: AuditOperation::Login,
            path: None,
            kind: None,
            result: AuditResult::Failure,
            error: -115,
            ..created()
        });
        assert_eq!(text(NOW, &login, "stoa"), None);
        assert_eq!(
            (&parsed(login.clone())["operation"], &parsed(login)["error"]),
            (&value!("login"), &value!("AuthFailed"))
        );
        let address = "::ffff:192.0.2.7".parse().unwrap();
        let asked =
            Event::Admin(AdminEvent { address, users: created().users, command: "snapshot", status: 403 });
        assert_eq!(text(NOW, &asked, "stoa"), None);
        let asked = parsed(asked);
        assert_eq!(
            (&asked["ip"], &asked["command"], &asked["result"]),
            (&value!("192.0.2.7"), &value!("snapshot"), &value!("failure"))
        );
    }
}
