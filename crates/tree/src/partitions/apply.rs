//! Carrying out what concerns other partitions.

use crate::observer::Observer;
use crate::partitions::ops::PartitionOp;
use crate::tree::Tree;
use crate::update::{CorruptUpdate, Update};

impl Tree {
    pub(crate) fn apply_partition_op(
        &mut self,
        update: &Update<'_>,
        op: PartitionOp<'_>,
        observer: &mut impl Observer,
    ) -> Result<(), CorruptUpdate> {
        let corrupt = |reason| update.corrupt(reason);
        match op {
            PartitionOp::Adopt { path, parent_cversion } => {
                self.apply_adopt(update, path, parent_cversion, observer)
            }
            PartitionOp::Disown { path } => self.apply_disown(update, path, observer),
            PartitionOp::CreateAt(create) if self.create_at_of_ended(update, &create, observer) => Ok(()),
            PartitionOp::CreateAt(create) => self.apply_create_at(update, &create, observer),
            PartitionOp::DeleteAt { path } => self.apply_delete_at(update, path, observer),
            PartitionOp::Visit { .. } if self.has_ended(update.session) => Ok(()),
            PartitionOp::Visit { partition } => self.note_visit(update, update.session, partition),
            PartitionOp::Visits { partition, sessions } => {
                let mut sessions = sessions.iter().map(|session| i64::from_le_bytes(*session));
                sessions.try_for_each(|session| self.note_visit(update, session, partition))
            }
            PartitionOp::AdoptOf { path, parent_cversion, owner } if self.has_ended(owner) => {
                self.adopt_of_ended(update, path, parent_cversion, owner)
            }
            PartitionOp::AdoptOf { path, parent_cversion, owner } => {
                self.apply_adopt(update, path, parent_cversion, observer)?;
                self.sites.divided.owned_away.add(path, owner);
                Ok(())
            }
            PartitionOp::RemoteSession { .. } if self.has_ended(update.session) => Ok(()),
            PartitionOp::RemoteSession { home } => {
                self.sessions.make_remote(update.session, home);
                Ok(())
            }
            PartitionOp::Give { path, digest } => {
                self.leaves_with_sites(path);
                self.apply_give(path, digest).map_err(corrupt)?;
                observer.moved(path, false);
                Ok(())
            }
            PartitionOp::Take { path, content } => {
                if let Some(moved) = self.apply_take(path, content).map_err(corrupt)? {
                    self.comes_with_sites(path, moved, update.zxid);
                }
                observer.moved(path, true);
                Ok(())
            }
            PartitionOp::Place { changes } => {
                self.partitions.placed.change(changes).map_err(corrupt)?;
                self.forget_marks();
                Ok(())
            }
            PartitionOp::Mark { path, holder } => {
                self.note_mark(path, holder);
                Ok(())
            }
            PartitionOp::Unmark { path } => {
                self.forget_mark(path);
                Ok(())
            }
        }
    }

    fn note_visit(&mut self, update: &Update<'_>, session: i64, partition: u8) -> Result<(), CorruptUpdate> {
        let noted = self.sessions.visit(session, partition);
        noted.ok_or_else(|| update.corrupt("it is of a session that is not there"))
    }
}
