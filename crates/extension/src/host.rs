//! What a program reaches the state through.

use alloc::string::String;
use stoa_wire::ErrorCode;

/// A znode, as a program sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object<'a> {
    /// Its data; empty if it has none.
    pub data: &'a [u8],
    /// How often its data was set.
    pub version: i32,
    /// The update that created it (czxid).
    pub created: i64,
    /// The update that set its data last (mzxid).
    pub modified: i64,
    /// How many children it has.
    pub children: i64,
    /// The session that it goes with; 0 if it stays.
    pub owner: i64,
}

/// What to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateKind {
    /// A znode that stays.
    Persistent,
    /// The same, with a number behind its name.
    Sequential,
    /// A znode that goes with the session of the caller.
    Ephemeral,
}

/// The state proxy of the paper (section 4.1.2): the operations of the service, with the rights of the
/// caller. Reads show what the writes of the same call have done. Nothing lasts before whoever called the
/// program keeps it.
///
/// Whatever is refused ends the call, so an implementation need not be usable after an error.
pub trait Host {
    /// Whether there is a znode.
    ///
    /// # Errors
    /// When nobody may ask.
    fn exists(&mut self, path: &str) -> Result<bool, ErrorCode>;

    /// A znode.
    ///
    /// # Errors
    /// As of a getData.
    fn read(&mut self, path: &str) -> Result<Object<'_>, ErrorCode>;

    /// All children of a znode, in any order, with their names, until `each` says that it is enough.
    ///
    /// # Errors
    /// As of a getChildren, and of a getData of each of them.
    fn sub_objects(
        &mut self,
        path: &str,
        each: &mut dyn FnMut(&str, Object<'_>) -> bool,
    ) -> Result<(), ErrorCode>;

    /// The child of a znode that was created first, with its name; of those of one update the first by name.
    /// `each` is asked before each child that is looked at whether to go on; if not, nothing comes of it.
    ///
    /// # Errors
    /// As of a getChildren, and of a getData of this child.
    fn oldest<'h>(
        &'h mut self,
        path: &'h str,
        each: &mut dyn FnMut() -> bool,
    ) -> Result<Option<(&'h str, Object<'h>)>, ErrorCode>;

    /// Creates a znode and returns its path.
    ///
    /// # Errors
    /// As of a create.
    fn create(&mut self, path: &str, data: &[u8], kind: CreateKind) -> Result<String, ErrorCode>;

    /// Deletes a znode that has this version; any, if it is -1.
    ///
    /// # Errors
    /// As of a delete.
    fn delete(&mut self, path: &str, version: i32) -> Result<(), ErrorCode>;

    /// Sets the data of a znode that has this version; any, if it is -1. Returns the new version.
    ///
    /// # Errors
    /// As of a setData.
    fn update(&mut self, path: &str, data: &[u8], version: i32) -> Result<i32, ErrorCode>;
}
