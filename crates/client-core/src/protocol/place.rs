//! Where a direct client sends what: to the partition where a znode lives, as far as the client knows. The
//! servers say so where it is wrong, and the main connection takes anything.

use stoa_wire::{AddWatchMode, Table};

use super::call::Call;
use super::chroot::Chroot;
use crate::types::{Operation, ReadOperation};

/// The partition that has the root and the sessions.
const FIRST: u8 = 0;

/// What a direct client knows of where everything lives.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) partitions: u8,
    /// That of the thread to which the main connection leads.
    pub(super) own: u8,
    pub(super) table: Table,
}

impl Places {
    /// Where the znode at a path of the server lives.
    pub(super) fn of(&self, path: &str) -> u8 {
        self.table.of(path, self.partitions)
    }

    /// The partition that a call is for; `None` where it concerns the session, or several partitions.
    pub(super) fn of_call(&self, call: &Call, chroot: &Chroot) -> Option<u8> {
        let of = |path: &str| self.of(&chroot.full(path));
        match call {
            Call::Create { path, .. } | Call::Delete { path, .. } => Some(self.of_parent(&chroot.full(path))),
            Call::Exists { path, .. }
            | Call::GetData { path, .. }
            | Call::SetData { path, .. }
            | Call::GetAcl { path }
            | Call::SetAcl { path, .. }
            | Call::GetChildren { path, .. }
            | Call::Sync { path }
            | Call::CheckWatches { path, .. }
            | Call::RemoveWatches { path, .. } => Some(of(path)),
            Call::GetAllChildrenNumber { path } => self.of_whole(&chroot.full(path)),
            Call::AddWatch { path, mode, .. } => match mode {
                AddWatchMode::Persistent => Some(of(path)),
                AddWatchMode::PersistentRecursive => self.of_whole(&chroot.full(path)),
            },
            Call::Multi(operations) => operations.first().map(|operation| match operation {
                Operation::Create { path, .. }
                | Operation::Delete { path, .. }
                | Operation::SetData { path, .. }
                | Operation::Check { path, .. } => of(path),
            }),
            Call::MultiRead(operations) => {
                let mut places = operations.iter().map(|operation| match operation {
                    ReadOperation::GetData { path } | ReadOperation::GetChildren { path } => of(path),
                });
                let first = places.next()?;
                places.all(|place| place == first).then_some(first)
            }
            Call::Fast(call) | Call::Within { call, .. } | Call::Telling { call, .. } => {
                self.of_call(call, chroot)
            }
            Call::Check { .. }
            | Call::Reconfig { .. }
            | Call::Auth { .. }
            | Call::GetEphemerals { .. }
            | Call::WhoAmI
            | Call::Close => None,
        }
    }

    /// Who makes and deletes a znode: the partition of its parent.
    fn of_parent(&self, path: &str) -> u8 {
        let is_cut = |path: &str| self.table.exceptions.iter().any(|(root, _)| root == path);
        match path.rsplit_once('/') {
            Some(("", _)) | None => FIRST,
            Some((parent, _)) if is_cut(path) => self.of(parent),
            Some(_) => self.of(path),
        }
    }

    /// The partition that has a whole subtree.
    fn of_whole(&self, path: &str) -> Option<u8> {
        let is_below = |root: &str| root.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
        let is_divided = path == "/" || self.table.exceptions.iter().any(|(root, _)| is_below(root));
        (!is_divided).then(|| self.of(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WatchId;
    use alloc::borrow::ToOwned;
    use alloc::vec;
    use stoa_wire::{CreateMode, partition_of};

    #[test]
    fn calls_go_where_their_znodes_live() {
        let elsewhere = (partition_of(b"/app", 4) + 1) % 4;
        let table = Table { version: 1, exceptions: vec![("/app/x".to_owned(), elsewhere)] };
        let elsewhere = Some(elsewhere);
        let places = Places { partitions: 4, own: 0, table };
        let of = |chroot: &str, call: Call| places.of_call(&call, &Chroot::new(chroot).unwrap());
        let get = |path: &str| Call::GetData { path: path.to_owned(), watch: None };
        let create = |path: &str| Call::Create {
            path: path.to_owned(),
            data: vec![],
            acl: vec![],
            mode: CreateMode::Persistent,
            ttl_ms: None,
            with_stat: false,
        };
        let app = Some(partition_of(b"/app", 4));
        assert_eq!(
            [of("/", get("/app/y")), of("/app", get("/y")), of("/app", get("/x/z"))],
            [app, app, elsewhere]
        );
        let made = [create("/app"), create("/app/x"), create("/app/x/z"), create("/app/y")];
        assert_eq!(made.map(|call| of("/", call)), [Some(FIRST), app, elsewhere, app]);
        let watch = |path: &str| Call::AddWatch {
            path: path.to_owned(),
            mode: AddWatchMode::PersistentRecursive,
            watch: WatchId(1),
        };
        let whole = [watch("/"), watch("/app"), watch("/app/x"), watch("/app/y")];
        assert_eq!(whole.map(|call| of("/", call)), [None, None, elsewhere, app]);
        let reads = |paths: &[&str]| {
            Call::MultiRead(
                paths.iter().map(|path| ReadOperation::GetData { path: (*path).to_owned() }).collect(),
            )
        };
        assert_eq!([of("/", reads(&["/app", "/app/y"])), of("/", reads(&["/app", "/app/x"]))], [app, None]);
        assert_eq!([of("/", Call::WhoAmI), of("/", Call::Multi(vec![]))], [None, None]);
    }
}
