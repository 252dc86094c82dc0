//! What an update does, operation by operation, for operators: whoever carries out updates reads them otherwise.

use crate::ZnodeKind;
use crate::sites::SiteOp;
use crate::update::{CorruptUpdate, Op, Update};

/// One operation of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation<'a> {
    /// What kind it is of, as a client would call it where clients ask for such.
    pub name: &'static str,
    /// The znode.
    pub path: Option<&'a str>,
    /// The data that it gives the znode.
    pub data: Option<&'a [u8]>,
}

impl<'a> Update<'a> {
    /// Calls `each` with every operation, in order.
    ///
    /// # Errors
    /// When one of them cannot be read; then none was told.
    pub fn for_each_operation(&self, mut each: impl FnMut(Operation<'a>)) -> Result<(), CorruptUpdate> {
        self.for_each_op(|op| {
            each(operation(op));
            Ok(())
        })
    }
}

fn operation(op: Op<'_>) -> Operation<'_> {
    let of = |name, path| Operation { name, path: Some(path), data: None };
    let bare = |name| Operation { name, path: None, data: None };
    match op {
        Op::Create { create, .. } => {
            let name = match create.kind {
                ZnodeKind::Persistent => "create",
                ZnodeKind::Ephemeral { .. } => "create ephemeral",
                ZnodeKind::Container => "create container",
                ZnodeKind::Ttl { .. } => "create with TTL",
            };
            Operation { data: create.data, ..of(name, create.path) }
        }
        Op::Delete { path } => of("delete", path),
        Op::SetData { path, data, .. } => Operation { data, ..of("setData", path) },
        Op::SetAcl { path, .. } => of("setACL", path),
        Op::Check { path } => of("check", path),
        Op::CreateSession { .. } => bare("begin of a session"),
        Op::OpenSession { .. } => bare("a session's client at another server"),
        Op::CloseSession => bare("end of a session"),
        Op::Site(SiteOp::Token { path, .. }) => of("token to another site", path),
        Op::Site(SiteOp::Home { .. }) => bare("session to another site"),
        Op::Site(_) => bare("about the sites"),
        Op::Partition(_) => bare("about partitions"),
    }
}
