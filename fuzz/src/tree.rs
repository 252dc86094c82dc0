//! The tree: what requests do to it, and what it makes of snapshots.

use stoa_tree::{Caller, Contact, LoadError, Loader, Options, Stamp, Tree, Updates};
use stoa_wire::{Acl, AclList, Create, OPEN_ACL, Opcode, Reader, Request};

/// Where the header of a snapshot has its digest.
const DIGEST_AT: usize = 10;

/// A multi of a client, and whatever else it may ask: the first byte says which opcode it is, where it is not a
/// multi by being even.
pub fn multi(data: &[u8]) {
    let Some((first, body)) = data.split_first() else { return };
    let opcode = match first % 2 {
        0 => Opcode::Multi,
        _ => Opcode::ALL[usize::from(first / 2) % Opcode::ALL.len()],
    };
    let Ok(request) = Request::decode(opcode, &mut Reader::new(body)) else { return };
    let mut tree = a_tree();
    let zxid = tree.last_zxid() + 1;
    let caller = Caller { session: 1, identities: &[] };
    let before = tree.digest();
    let mut batch = Vec::new();
    for zxid in [zxid, zxid + 1] {
        let stamp = Stamp { zxid, time_ms: 2000 };
        let written = batch.len();
        if tree.prepare(&request, &caller, stamp, &mut batch).is_err() {
            assert_eq!(batch.len(), written, "a request that is refused leaves a trace");
        }
    }
    assert_eq!(tree.digest(), before, "nothing is applied yet");
    apply(&mut tree, &batch);
    assert!(!tree.has_proposed());
    check(tree);
}

fn apply(tree: &mut Tree, batch: &[u8]) {
    for update in Updates::new(batch) {
        let update = update.expect("it was just prepared");
        tree.apply(&update, &mut ()).expect("it was just prepared");
    }
}

fn open_acl() -> Vec<u8> {
    let mut acl = Vec::new();
    Acl::encode_list(&mut acl, OPEN_ACL.iter().copied());
    acl
}

/// A tree with one of everything.
pub(crate) fn a_tree() -> Tree {
    let mut tree = Tree::new(Options { enforce_quota: true, ..Options::default() });
    let mut zxid = 0;
    let mut stamp = || {
        zxid += 1;
        Stamp { zxid, time_ms: 1000 + zxid }
    };
    let mut batch = Vec::new();
    for session in 1..=2 {
        let created =
            tree.prepare_create_session(session, 5000, [0; 16], Contact::default(), stamp(), &mut batch);
        created.expect("there is no such session");
    }
    let acl = open_acl();
    let acl = AclList::decode(&mut Reader::new(&acl)).expect("it was just encoded");
    let quota = Some(&b"count=3,bytes=20"[..]);
    for (path, data, flags, session) in [
        ("/a", None, 0, 1),
        ("/a/b", Some(&b"data"[..]), 0, 1),
        ("/a/c", Some(b""), 1, 1),
        ("/a/d", Some(b"x"), 0, 1),
        ("/e", None, 4, 1),
        ("/e/f", None, 1, 2),
        ("/zookeeper/quota/a", None, 0, 0),
        ("/zookeeper/quota/a/zookeeper_limits", quota, 0, 0),
    ] {
        let create = Create { path, data, acl, flags, ttl_ms: 0 };
        let caller = Caller { session, identities: &[] };
        let created = tree.prepare(&Request::Create(create), &caller, stamp(), &mut batch);
        created.unwrap_or_else(|refusal| panic!("{path}: {refusal:?}"));
    }
    apply(&mut tree, &batch);
    tree
}

/// A snapshot, in two slices. Where only its digest is wrong it is loaded once more with the right one, since no
/// fuzzer guesses that.
pub fn snapshot(data: &[u8]) {
    let found = match load(data) {
        Ok(tree) => return check(tree),
        Err(LoadError::DigestMismatch { found, .. }) => found,
        Err(_) => return,
    };
    let mut right = data.to_vec();
    right[DIGEST_AT..DIGEST_AT + 8].copy_from_slice(&found.to_le_bytes());
    check(load(&right).expect("nothing else was wrong with it"));
}

fn load(data: &[u8]) -> Result<Tree, LoadError> {
    let mut loader = Loader::new(Options::default());
    loader.chunk(data)?;
    loader.finish()
}

/// A tree that is sound comes out of a snapshot as it was, and can be taken apart.
fn check(mut tree: Tree) {
    assert_eq!(tree.digest(), tree.recomputed_digest());
    let bytes = bytes_of(&mut tree);
    let again = load(&bytes).expect("it was just written");
    assert_eq!(again.digest(), tree.digest());
    let paths = paths_of(&tree);
    assert_eq!(paths_of(&again), paths, "children come in the same order");
    let mut zxid = tree.last_zxid();
    if zxid > i64::MAX / 2 {
        return;
    }
    let mut batch = Vec::new();
    for path in paths.iter().rev() {
        // Others are somewhere else, and only known by name.
        if tree.get(path).is_none() {
            continue;
        }
        zxid += 1;
        let stamp = Stamp { zxid, time_ms: 5000 };
        let _ = tree.prepare(&Request::Delete { path, version: -1 }, &Caller::SERVER, stamp, &mut batch);
        apply(&mut tree, &batch);
        batch.clear();
    }
    assert_eq!(tree.digest(), tree.recomputed_digest());
}

/// Snapshots of a tree with one of everything, and of one whose children are in another order than their slots.
#[must_use]
pub fn snapshots() -> (Vec<u8>, Vec<u8>) {
    let mut shuffled = a_tree();
    let mut batch = Vec::new();
    let zxid = shuffled.last_zxid();
    let stamp = |at| Stamp { zxid: zxid + at, time_ms: 3000 };
    let delete = Request::Delete { path: "/a/b", version: -1 };
    shuffled.prepare(&delete, &Caller::SERVER, stamp(1), &mut batch).expect("it is there");
    apply(&mut shuffled, &batch);
    batch.clear();
    let acl = open_acl();
    let acl = AclList::decode(&mut Reader::new(&acl)).expect("it was just encoded");
    for (at, path) in [(2, "/g"), (3, "/a/b"), (4, "/a/b/h")] {
        let create = Request::Create(Create { path, data: None, acl, flags: 0, ttl_ms: 0 });
        shuffled.prepare(&create, &Caller::SERVER, stamp(at), &mut batch).expect("it can be made");
    }
    apply(&mut shuffled, &batch);
    (bytes_of(&mut a_tree()), bytes_of(&mut shuffled))
}

/// The whole snapshot of a tree, in one slice.
fn bytes_of(tree: &mut Tree) -> Vec<u8> {
    let mut bytes = Vec::new();
    tree.snapshot_begin();
    while tree.snapshot_slice(&mut bytes, 1 << 20) {}
    bytes
}

/// All that it has, parents first.
fn paths_of(tree: &Tree) -> Vec<String> {
    let mut paths = vec!["/".to_owned()];
    let mut next = 0;
    while let Some(parent) = paths.get(next).cloned() {
        let above = if parent == "/" { "" } else { &parent };
        paths.extend(tree.names_below(&parent).map(|name| format!("{above}/{name}")));
        next += 1;
    }
    paths
}
