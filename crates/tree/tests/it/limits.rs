//! Bounds, and bytes that mean harm.

use crate::divided::{load, snapshot};
use crate::parts::rich;
use crate::placed;
use crate::world::*;
use proptest::prelude::*;
use stoa_tree::{Caller, NAME_BYTES_MAX, Options, Stamp, Tree, Update, Updates};
use stoa_wire::CreateMode::*;
use stoa_wire::{Acl, ErrorCode, Opcode, READ_ACL};

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
fn names_have_a_longest_length() {
    let mut world = World::new();
    let longest = format!("/{}", "n".repeat(NAME_BYTES_MAX));
    world.must(&create(&longest, b"data", Persistent));
    assert_eq!(world.tree.get(&longest).unwrap().data(), Some(&b"data"[..]));
    assert_eq!(
        world.ask(&create(&format!("{longest}n"), b"", Persistent)).unwrap_err(),
        ErrorCode::BadArguments
    );
    let sequential = &longest[..longest.len() - 9];
    let refused = world.ask(&create(sequential, b"", PersistentSequential));
    assert_eq!(refused.unwrap_err(), ErrorCode::BadArguments);
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
