//! Whether the server's whole state is the model's.

use crate::model::{Entry, Model};
use crate::{Checked, wrong};
use stoa_tree::{Contact, Tree};

/// Compares everything that a tree holds with the model, and its counters with what they count.
pub(super) fn compare(tree: &Tree, model: &Model) -> Checked {
    if tree.last_zxid() != model.zxid() {
        return wrong(format!("the state is at zxid {}, it should be at {}", tree.last_zxid(), model.zxid()));
    }
    for (path, node) in model.nodes() {
        let Some(found) = tree.get(path) else {
            return wrong(format!("{path} is missing"));
        };
        if found.stat() != node.stat() {
            return wrong(format!("{path} has {:?}, it should have {:?}", found.stat(), node.stat()));
        }
        if found.data() != node.data.as_deref() {
            return wrong(format!("{path} holds other data than it should"));
        }
        let entry = |acl: stoa_wire::Acl<'_>| Entry {
            perms: acl.perms,
            scheme: acl.scheme.into(),
            id: acl.id.into(),
        };
        let acl: Vec<Entry> = found.acl().list().iter().map(entry).collect();
        if acl != *node.acl {
            return wrong(format!("{path} has the ACL {acl:?}, it should have {:?}", node.acl));
        }
        let children: Vec<&str> = found.children().collect();
        if children != node.children {
            return wrong(format!(
                "{path} has the children {children:?}, it should have {:?}",
                node.children
            ));
        }
    }
    if tree.znode_count() != model.node_count() {
        return wrong(format!(
            "there are {} znodes, it should be {}",
            tree.znode_count(),
            model.node_count()
        ));
    }
    compare_sessions(tree, model)?;
    let recomputed = tree.recomputed_digest();
    if tree.digest() != recomputed {
        return wrong(format!("the digest is {:x}, recomputed it is {recomputed:x}", tree.digest()));
    }
    Ok(())
}

fn compare_sessions(tree: &Tree, model: &Model) -> Checked {
    for (id, session) in model.sessions() {
        let Some(found) = tree.session(id) else {
            return wrong(format!("session {id:#x} is missing"));
        };
        let password_fits = session.password.is_none_or(|password| password == found.password);
        // There is one server only.
        let contact_fits = found.contact == Contact { server: 1, opening: session.opening };
        if found.timeout_ms != session.timeout_ms || !password_fits || !contact_fits {
            return wrong(format!("session {id:#x} is {found:?}, it should be {session:?}"));
        }
        let mut owned: Vec<String> = tree.ephemerals_of(id).collect();
        owned.sort_unstable();
        let mut wanted: Vec<&str> = model.ephemerals_of(id).collect();
        wanted.sort_unstable();
        if owned != wanted {
            return wrong(format!("session {id:#x} owns {owned:?}, it should own {wanted:?}"));
        }
    }
    let (found, wanted) = (tree.session_count(), model.sessions().count());
    if found != wanted {
        return wrong(format!("there are {found} sessions, it should be {wanted}"));
    }
    let owned: usize = model.sessions().map(|(id, _)| model.ephemerals_of(id).count()).sum();
    if tree.ephemeral_count() != owned {
        return wrong(format!(
            "{} ephemeral znodes are counted, it should be {owned}",
            tree.ephemeral_count()
        ));
    }
    Ok(())
}
