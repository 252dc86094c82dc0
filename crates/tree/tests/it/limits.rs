//! Bounds, and bytes that mean harm.

use crate::divided::{load, snapshot};
use crate::parts::rich;
use crate::placed;
use crate::world::*;
use proptest::prelude::*;
use stoa_tree::{Caller, Options, Stamp, Tree, Update, Updates};
use stoa_wire::CreateMode::*;
use stoa_wire::{Acl, ErrorCode, OPEN_ACL, Opcode, READ_ACL, ZXID_MAX, perms};

/// A log with every kind of operation in it.
pub(crate) fn rich_world() -> World {
    let mut world = World::new();
    world.propose_session(5);
    world.propose(&create("/a", b"data", Persistent), 5).unwrap();
    world.propose(&create_acl("/a/r", b"", Persistent, READ_ACL), 5).unwrap();
    world.propose(&create("/a/e", b"x", Ephemeral), 5).unwrap();
    world.propose(&create("/c", b"", Container), 5).unwrap();
    world.propose(&create_raw(Opcode::CreateTtl, "/t", 5, Some(1_000)), 5).unwrap();
    world.propose(&set_null("/a"), 5).unwrap();
    world.propose(&set_acl("/a", &[Acl { perms: 31, scheme: "digest", id: "u:p" }], -1), 0).unwrap();
    world.propose(&multi(&[create("/m", b"", Persistent), check("/m", 0), delete("/m", 0)]), 5).unwrap();
    world.apply_all();
    world
}

/// That, two trees that are one together, and one with a table of what lives where, each with its log.
fn rich_trees() -> Vec<(Tree, Vec<Vec<u8>>)> {
    let world = rich_world();
    let parts = rich().members.into_iter().chain([placed::full()]);
    let parts = parts.map(|member| (member.tree, member.log.into_iter().map(|(_, batch)| batch).collect()));
    [(world.tree, world.log)].into_iter().chain(parts).collect()
}

/// What each of them was at first.
fn empty_trees() -> [Tree; 4] {
    let options = Options::default;
    [Tree::new(options()), Tree::new(options()), Tree::new_part(options()), Tree::new(options())]
}

#[test]
fn a_name_may_be_as_long_as_its_request() {
    const EDGE: usize = 65_535;
    let mut world = World::new();
    let mut wanted = vec![String::from("zookeeper")];
    for len in [EDGE - 1, EDGE, EDGE + 1, 1_000_000] {
        let name = "n".repeat(len);
        let path = format!("/{name}");
        world.must(&create(&path, b"data", Persistent));
        for data in [&b"other"[..], b"data5", &[7; 300], b""] {
            world.must(&set(&path, data, -1));
            assert_eq!(world.tree.get(&path).unwrap().data(), Some(data), "{len}");
        }
        world.must(&create(&format!("{path}/below"), b"", Persistent));
        wanted.push(name);
    }
    let sequential = format!("/{}", "s".repeat(EDGE - 9));
    world.must(&create(&sequential, b"", PersistentSequential));
    wanted.push(format!("{}0000000004", &sequential[1..]));
    assert!(world.children("/") == wanted, "too long to be shown");
    let loaded = load(&snapshot(&mut world.tree, 1 << 20)).unwrap();
    assert!(loaded.get("/").unwrap().children().eq(wanted.iter().map(String::as_str)));
    let mut other = World::new();
    other.log = world.log.clone();
    other.apply_all();
    assert_eq!(other.tree.digest(), world.tree.digest());
    for name in &wanted[1..5] {
        world.must(&delete(&format!("/{name}/below"), -1));
        world.must(&delete(&format!("/{name}"), -1));
    }
    assert!(world.children("/") == ["zookeeper", &*wanted[5]], "too long to be shown");
}

#[test]
fn nothing_bounds_the_depth_of_a_tree() {
    const LEVELS: usize = 5_000;
    let mut world = World::new();
    let deepest = "/d".repeat(LEVELS);
    for level in 1..=LEVELS {
        world.propose(&create(&deepest[..2 * level], b"", Persistent), 0).unwrap();
    }
    world.apply_all();
    assert_eq!(world.tree.count_below("/d"), Some(LEVELS - 1));
    world.must(&set(&deepest, b"deep", 0));
    let loaded = load(&snapshot(&mut world.tree, 1 << 20)).unwrap();
    assert_eq!(loaded.get(&deepest).unwrap().data(), Some(&b"deep"[..]));
    world.must(&delete(&deepest, -1));
    assert!(!world.exists(&deepest));
}

#[test]
fn nothing_bounds_the_operations_of_a_multi_or_the_entries_of_an_acl() {
    const MANY: usize = 20_000;
    let mut world = World::new();
    world.must(&create("/m", b"", Persistent));
    let ops: Vec<Frame> = (0..MANY).map(|n| create(&format!("/m/{n}"), b"", Persistent)).collect();
    assert_eq!(world.must(&multi(&ops)).answers.len(), MANY);
    assert_eq!(world.stat("/m").num_children, MANY as i32);

    const ENTRIES: usize = 2_000;
    let ids: Vec<String> = (0..ENTRIES).map(|n| format!("user-{n}:hash")).collect();
    let acl: Vec<_> = ids.iter().map(|id| Acl { perms: perms::ALL, scheme: "digest", id }).collect();
    world.must(&create_acl("/a", b"", Persistent, &acl));
    assert_eq!(world.tree.get("/a").unwrap().acl().list().len(), ENTRIES);
    let last = identity("digest", &ids[ENTRIES - 1]);
    world.propose_session(9);
    world.ask_as(&set("/a", b"mine", -1), 9, &[last]).unwrap();
    assert_eq!(code(world.propose(&set("/a", b"", -1), 9)), ErrorCode::NoAuth);
}

#[test]
fn nothing_bounds_the_number_of_acls() {
    const MANY: usize = 3_000;
    let mut world = World::new();
    for n in 0..MANY {
        let acl = [Acl { perms: perms::ALL, scheme: "digest", id: &format!("user-{n}:hash") }];
        world.propose(&create_acl(&format!("/{n}"), b"", Persistent, &acl), 0).unwrap();
    }
    world.apply_all();
    // Besides the open one and that of the ensemble's configuration.
    assert_eq!(world.tree.acl_count(), MANY + 2);
}

#[test]
fn what_auth_stands_for_in_an_acl_is_bounded() {
    const BYTES_MAX: usize = 1 << 20;
    let mut world = World::new();
    world.propose_session(9);
    let entry_bytes = 12 + "digest".len();
    let auth = |perms| Acl { perms, scheme: "auth", id: "" };
    let twice = create_acl("/a", b"", Persistent, &[auth(perms::READ), auth(perms::ALL)]);
    let fits = identity("digest", &"i".repeat(BYTES_MAX / 2 - entry_bytes));
    let mut too_long = fits.clone();
    too_long.id.push('i');
    let refused = world.ask_as(&twice, 9, &[too_long]).unwrap_err();
    assert_eq!(code(Err(refused)), ErrorCode::InvalidAcl);
    world.ask_as(&twice, 9, &[fits]).unwrap();
    assert_eq!(world.tree.get("/a").unwrap().acl().list().len(), 2);
}

/// Proposes a write and changes the number that its update has at this place.
fn proposed_with(world: &mut World, frame: &Frame, at: usize, number: i32) {
    world.propose(frame, 0).unwrap();
    let update = world.log.last_mut().unwrap();
    update[at..at + 4].copy_from_slice(&number.to_le_bytes());
    world.apply_all();
}

/// Where the operation of an update begins that is alone in its batch.
const OP: usize = 4 + 3 * 8;

#[test]
fn numbers_of_sequential_znodes_go_on_below_zero() {
    let mut world = World::new();
    world.must(&create("/p", b"", Persistent));
    // All but one of those that there are have been given.
    let path = "/p/x";
    proposed_with(&mut world, &create(path, b"", Persistent), OP + 3 + path.len() + 1, i32::MAX);
    for _ in 0..3 {
        world.must(&create("/p/n-", b"", PersistentSequential));
    }
    assert_eq!(world.children("/p"), ["x", "n-2147483647", "n--2147483648", "n--2147483647"]);
    // Twice the children ever created, less those that are there.
    let creates = i32::MIN + 2;
    assert_eq!(world.stat("/p").cversion, creates.wrapping_mul(2).wrapping_sub(4));
    let loaded = load(&snapshot(&mut world.tree, 1 << 20)).unwrap();
    assert_eq!(loaded.get("/p").unwrap().stat(), world.stat("/p"));
}

#[test]
fn versions_go_on_below_zero() {
    let mut world = World::new();
    world.must(&create("/a", b"", Persistent));
    let at = OP + 2 + "/a".len();
    proposed_with(&mut world, &set("/a", b"1", -1), at, i32::MAX);
    assert_eq!(world.stat("/a").version, i32::MAX);
    world.must(&set("/a", b"2", i32::MAX));
    assert_eq!(world.stat("/a").version, i32::MIN);
    assert_eq!(world.ask(&set("/a", b"3", i32::MAX)).unwrap_err(), ErrorCode::BadVersion);
    proposed_with(&mut world, &set("/a", b"3", i32::MIN), at, -2);
    for version in [-1, 0, 1] {
        world.must(&set("/a", b"4", -1));
        assert_eq!(world.stat("/a").version, version);
    }
    let acl_version = OP + 2 + "/a".len();
    proposed_with(&mut world, &set_acl("/a", READ_ACL, -1), acl_version, i32::MAX);
    world.must(&set_acl("/a", OPEN_ACL, i32::MAX));
    assert_eq!(world.stat("/a").aversion, i32::MIN);
}

#[test]
fn requests_that_are_no_writes_are_not_prepared() {
    let mut tree = Tree::new(Options::default());
    let mut batch = Vec::new();
    let stamp = Stamp { zxid: 1, time_ms: 1 };
    let refused = tree.prepare(&stoa_wire::Request::Ping, &Caller::SERVER, stamp, &mut batch);
    assert_eq!(code(refused), ErrorCode::Unimplemented);
    assert!(batch.is_empty());
}

#[test]
fn an_update_is_applied_once() {
    let mut world = rich_world();
    let digest = world.tree.digest();
    world.applied = 0;
    let notes = world.apply_all();
    assert!(notes.answers.is_empty() && notes.changes.is_empty());
    assert_eq!(world.tree.digest(), digest);
}

#[test]
fn equal_updates_give_equal_states() {
    let world = rich_world();
    let mut other = World::with(Options { hash_seed: 1234, ..Options::default() });
    other.log = world.log.clone();
    other.apply_all();
    assert_eq!(other.tree.digest(), world.tree.digest());
}

/// FNV-1a.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[test]
fn what_is_on_disks_stays_readable() {
    let mut world = rich_world();
    // Other numbers are another format: whoever has data on disk has to be told.
    assert_eq!(sum(&world.log.concat()), 0xea0d_76ef_316a_97d9);
    assert_eq!(sum(&snapshot(&mut world.tree, 1 << 20).concat()), 0xafee_37a0_11e9_724c);
    assert_eq!(world.tree.digest(), 0x2105_a199_1962_8c1d);
}

#[test]
fn updates_are_described_for_people() {
    let world = rich_world();
    let lines: Vec<String> = world
        .log
        .iter()
        .flat_map(|batch| Updates::new(batch))
        .map(|update| update.unwrap().describe().to_string())
        .collect();
    assert_eq!(lines[0], "zxid=0x1 time_ms=1010 session=0x5 create_session timeout_ms=5000");
    assert!(lines[1].ends_with(r#"create "/a" bytes=4"#), "{}", lines[1]);
    assert!(lines[2].ends_with(r#"create "/a/r" bytes=0 acl"#), "{}", lines[2]);
    assert!(lines[3].ends_with("ephemeral"), "{}", lines[3]);
    assert!(lines[5].ends_with("ttl_ms=1000"), "{}", lines[5]);
    assert!(lines[6].ends_with(r#"set_data "/a" null version=1"#), "{}", lines[6]);
    assert!(lines[8].ends_with(r#"multi create "/m" bytes=0 check "/m" delete "/m""#), "{}", lines[8]);
}

#[test]
fn updates_that_do_not_fit_the_state_are_reported() {
    let world = rich_world();
    for skipped in [0, 1] {
        let mut tree = Tree::new(Options::default());
        let result = world.log[skipped + 1..]
            .iter()
            .flat_map(|batch| Updates::new(batch))
            .try_for_each(|update| tree.apply(&update.unwrap(), &mut ()));
        let text = result.unwrap_err().to_string();
        assert!(text.contains("cannot be applied"), "{text}");
    }
}

#[test]
fn updates_cut_at_any_byte_are_refused() {
    let trees = rich_trees();
    for batch in trees.iter().flat_map(|(_, log)| log) {
        for len in 1..batch.len() {
            let mut updates = Updates::new(&batch[..len]);
            assert!(updates.next().unwrap().is_err());
            assert!(updates.next().is_none());
        }
        // Cut inside: with a length that fits, so that it is the operations that are short.
        for len in 0..batch.len() - 4 {
            let mut tree = Tree::new(Options::default());
            if let Ok(update) = Update::decode(&batch[4..4 + len]) {
                assert!(tree.apply(&update, &mut ()).is_err());
            }
        }
    }
}

/// The next zxid has to be larger: a leader that took such a one up could not go on.
#[test]
fn zxids_without_room_for_the_next_one_are_refused() {
    for (zxid, fits) in [(ZXID_MAX, true), (ZXID_MAX + 1, false), (i64::MAX, false), (-1, false)] {
        let (mut tree, log) = rich_trees().remove(0);
        let mut update = log[0][4..].to_vec();
        update[..8].copy_from_slice(&zxid.to_le_bytes());
        assert_eq!(Update::decode(&update).is_ok(), fits, "0x{zxid:x} of an update");
        let mut slices = snapshot(&mut tree, usize::MAX);
        let old = tree.last_zxid().to_le_bytes();
        let at = slices[0].windows(8).position(|bytes| bytes == old).unwrap();
        slices[0][at..at + 8].copy_from_slice(&zxid.to_le_bytes());
        let loaded = load(&slices).map_err(|error| error.to_string());
        let out_of_range = loaded.is_err_and(|error| error.contains("zxid is out of range"));
        assert_eq!(out_of_range, !fits, "0x{zxid:x} of a snapshot");
    }
}

#[test]
fn snapshots_with_anything_missing_are_refused() {
    for (mut tree, _) in rich_trees() {
        let mut slices = snapshot(&mut tree, 1);
        slices.retain(|slice| !slice.is_empty());
        assert!(slices.len() > 6);
        let whole = load(&slices).unwrap();
        assert_eq!(whole.digest(), tree.digest());
        for missing in 0..slices.len() {
            let mut slices = slices.clone();
            slices.remove(missing);
            assert!(load(&slices).is_err(), "without slice {missing}");
        }
        let all = slices.concat();
        for len in 0..all.len() {
            assert!(load(&[all[..len].to_vec()]).is_err(), "{len} of {} bytes", all.len());
        }
        let twice = [slices.concat(), slices.concat()];
        assert!(load(&twice).is_err());
    }
}

#[test]
fn snapshots_with_any_bit_flipped_are_refused_or_equal() {
    for (mut tree, _) in rich_trees() {
        let all = snapshot(&mut tree, 1 << 20).concat();
        let mut refused = 0;
        for bit in 0..all.len() * 8 {
            let mut damaged = all.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            match load(&[damaged]) {
                Err(_) => refused += 1,
                // The header's zxid is not part of the digest, and a consistent change of ids is none.
                Ok(loaded) => assert_eq!(loaded.digest(), tree.digest(), "bit {bit}"),
            }
        }
        assert!(refused > all.len() * 7, "{refused} of {}", all.len() * 8);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_an_update_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200), tail in any::<bool>(), tree in 0_usize..4,
    ) {
        let mut tree = rich_trees().swap_remove(tree).0;
        let mut update = vec![0, 0, 0, 0, 0, 0, 1, 0];
        update.extend([0; 8]);
        update.extend([5, 0, 0, 0, 0, 0, 0, 0]);
        update.extend(&bytes);
        if tail {
            update = bytes;
        }
        if let Ok(update) = Update::decode(&update) {
            let _ = update.describe().to_string();
            let _ = tree.apply(&update, &mut ());
        }
    }

    #[test]
    fn no_change_of_an_update_makes_it_panic(which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        for (mut tree, (_, mut log)) in empty_trees().into_iter().zip(rich_trees()) {
            let changed = which.index(log.len());
            let at = at.index(log[changed].len());
            log[changed][at] = byte;
            for update in log.iter().flat_map(|batch| Updates::new(batch)) {
                let Ok(update) = update else { break };
                if tree.apply(&update, &mut ()).is_err() {
                    break;
                }
                assert_eq!(tree.digest(), tree.recomputed_digest());
            }
        }
    }

    #[test]
    fn no_bytes_make_a_snapshot_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), format in 1_u8..5) {
        let mut slice = vec![1, format];
        slice.extend([0; 32]);
        slice.extend(&bytes);
        prop_assert!(load(&[slice]).is_err());
        prop_assert!(load(&[bytes]).is_err());
    }
}
