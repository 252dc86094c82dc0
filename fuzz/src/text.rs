//! What people write: programs and configuration files.

use std::path::Path;
use stoa_extension::{Event, EventKind, Limits, OperationKind, Program, Request, TreeHost, Used};
use stoa_server::config::{self, ConfigError, Loaded};
use stoa_tree::{Caller, Stamp};

/// The source of a program, which is called in every way if it can be.
pub fn extension(data: &[u8]) {
    let Ok(source) = core::str::from_utf8(data) else { return };
    let limits = Limits { steps: 1000, memory_bytes: 256 << 10, ..Limits::default() };
    let Ok(program) = Program::compile("fuzzed", source, &limits) else { return };
    let mut tree = crate::tree::a_tree();
    let before = tree.digest();
    let zxid = tree.last_zxid() + 1;
    let stamp = Stamp { zxid, time_ms: 2000 };
    let caller = Caller { session: 1, identities: &[] };
    for kind in OperationKind::ALL {
        let mut batch = Vec::new();
        let request = Request {
            kind: *kind,
            path: "/a/b",
            data: b"12",
            version: -1,
            session: 1,
            ephemeral: false,
            sequential: false,
        };
        let mut used = Used::default();
        let result = TreeHost::carry_out(&mut tree, caller, stamp, &mut batch, |host| {
            program.operation(host, &request, &mut used)
        });
        assert!(result.is_ok() || batch.is_empty(), "a call that failed leaves a trace");
        tree.abandon_proposed();
        assert_eq!(tree.digest(), before, "nothing is applied");
    }
    let mut batch = Vec::new();
    let event = Event { kind: EventKind::Deleted, path: "/a/b" };
    let _ = TreeHost::carry_out(&mut tree, caller, stamp, &mut batch, |host| {
        program.event(host, &event, &mut Used::default())
    });
}

/// A `zoo.cfg`.
pub fn zoo_cfg(data: &[u8]) {
    look_at(configuration("zoo.cfg", data));
}

/// A configuration file of Stoa's own kind.
pub fn toml(data: &[u8]) {
    look_at(configuration("stoa.toml", data));
}

fn look_at(loaded: Result<Loaded, ConfigError>) {
    match loaded {
        Ok(loaded) => assert!(!loaded.summary().is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The settings of a file, which finds those that it names: with the number of a server in it, or a list of them.
///
/// # Errors
/// When it is wrong.
pub fn configuration(name: &str, data: &[u8]) -> Result<Loaded, ConfigError> {
    config::of_file(Path::new(name), data.to_vec(), &|path| {
        let is_number = path.ends_with("myid");
        Ok(if is_number { "2\n" } else { "server.1=a:1:2;3\nserver.2=b:1:2;3\nversion=1a\n" }.to_owned())
    })
}
