//! For the fuzzer, too.

use stoa_wire::{AclList, Request, StrList};

/// Reads everything that was borrowed and is decoded a second time when it is used.
pub(crate) fn walk(request: &Request<'_>) {
    let acl = |list: &AclList<'_>| assert_eq!(list.iter().count(), list.len());
    let strings = |list: &StrList<'_>| assert_eq!(list.iter().count(), list.len());
    match request {
        Request::Create(create)
        | Request::Create2(create)
        | Request::CreateContainer(create)
        | Request::CreateTtl(create) => acl(&create.acl),
        Request::SetAcl { acl: list, .. } => acl(list),
        Request::Multi(ops) | Request::MultiRead(ops) => {
            assert_eq!(ops.iter().count(), ops.len());
            ops.iter().for_each(|op| walk(&op));
        }
        Request::SetWatches(watches) | Request::SetWatches2(watches) => {
            let lists = [
                &watches.data,
                &watches.exist,
                &watches.child,
                &watches.persistent,
                &watches.persistent_recursive,
            ];
            lists.into_iter().for_each(strings);
        }
        _ => {}
    }
}
