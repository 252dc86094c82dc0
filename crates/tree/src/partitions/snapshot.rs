//! What snapshots say of other partitions.

use crate::load::Loader;
use crate::node::{Node, ROOT_ID};
use crate::partitions::records::{AWAY, SCAFFOLD, tag};
use crate::records::{LoadError, PlaceRecord, RecordReader, Result, put_bytes};
use crate::session::PARTITIONS_MAX;
use crate::tree::Tree;
use crate::walk::Walk;

impl Tree {
    /// Writes the table of what lives elsewhere than the rule says, unless it was never changed.
    pub(crate) fn write_placed(&self, walk: &mut Walk) {
        let placed = &self.partitions.placed;
        if placed.version() == 0 {
            return;
        }
        let block = walk.block();
        block.push(tag::PLACED);
        block.extend_from_slice(&placed.version().to_le_bytes());
        for (path, partition) in placed.iter() {
            let block = walk.block();
            block.extend_from_slice(&[tag::EXCEPT, partition]);
            put_bytes(block, path.as_bytes());
        }
    }

    /// Checks what always holds at a cut, see [`crate::partitions::cut`], of a node that is not the root.
    pub(crate) fn check_loaded_cut(&self, id: u32) -> Result<()> {
        let node = &self.nodes[id];
        if !node.is_absent() {
            return Ok(());
        }
        let parent_is_absent = self.nodes[node.parent].is_absent();
        let is_needless = node.is_scaffold() && self.ext_of(node).num_children == 0;
        if node.is_away() == parent_is_absent || is_needless {
            return Err(LoadError::Malformed("the way to a znode is not as it has to be at a cut"));
        }
        Ok(())
    }
}

impl Loader {
    /// Reads a record of a kind that a tree by itself does not have.
    pub(crate) fn read_of_partitions(&mut self, tag: u8, reader: &mut RecordReader<'_>) -> Result<()> {
        match tag {
            tag::ABSENT => self.read_absent(reader),
            tag::VISITS => self.read_visits(reader),
            tag::PLACED => self.read_placed(reader),
            tag::EXCEPT => self.read_exception(reader),
            _ => Err(LoadError::Malformed("it has a record of an unknown kind")),
        }
    }

    fn read_absent(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        let kind = reader.u8()?;
        let place = PlaceRecord::decode(reader, self.format)?;
        let name = reader.name()?;
        place.check(name)?;
        let node = match kind {
            SCAFFOLD => Node::scaffold(name),
            AWAY if place.id != ROOT_ID => Node::away(name),
            _ => return Err(LoadError::Malformed("a node is absent in a way that is not known")),
        };
        let id = self.free_slot_of(place)?;
        self.put(id, place, node);
        Ok(())
    }

    fn read_visits(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        let (session, partitions) = (reader.i64()?, reader.u64()?);
        if partitions == 0 || self.tree.visited(session) != 0 {
            return Err(LoadError::Malformed("a session has visits twice, or none"));
        }
        for partition in (0..PARTITIONS_MAX).filter(|partition| partitions & 1 << partition != 0) {
            let noted = self.tree.sessions.visit(session, partition);
            noted.ok_or(LoadError::Malformed("a session that is missing has visits"))?;
        }
        Ok(())
    }

    fn read_placed(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        let version = reader.u64()?;
        self.tree.partitions.placed.load_version(version).map_err(LoadError::Malformed)
    }

    fn read_exception(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        let partition = reader.u8()?;
        let path = core::str::from_utf8(reader.bytes()?);
        let path = path.map_err(|_| LoadError::Malformed("the path of an exception is not UTF-8"))?;
        self.tree.partitions.placed.load(path, partition).map_err(LoadError::Malformed)
    }
}
