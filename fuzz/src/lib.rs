//! Every way in which bytes of others come into Stoa, as a function of bytes. Each of the programs in
//! `fuzz_targets` has libFuzzer call one of them; a panic is what it looks for, and an input that takes long or
//! much memory.
#![forbid(unsafe_code)]

mod disk;
mod forest;
mod group;
mod keys;
mod reader;
mod sasl;
mod server;
mod text;
mod tree;
mod wire;

pub use disk::{EDIT, Image, folder, records};
pub use forest::forest;
pub use group::group;
pub use keys::key_store;
pub use reader::{Hears, Pair, reader};
pub use sasl::{jaas, sasl};
pub use server::{HUB, LEAF, Member, client, hello, peer, site, sites, talk};
pub use text::{configuration, extension, toml, zoo_cfg};
pub use tree::{multi, snapshot, snapshots};
pub use wire::{frames, handshake};

/// Takes what a fuzzer has made up apart.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    /// The next byte; 0 at the end.
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(crate) fn short(&mut self) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()]))
    }

    pub(crate) fn number(&mut self) -> usize {
        self.short() | self.short() << 16
    }

    /// So many bytes, or what is left.
    pub(crate) fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// Bytes with their length, two bytes, before them.
    pub(crate) fn piece(&mut self) -> &'a [u8] {
        let count = self.short();
        self.bytes(count)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What [`Input::piece`] takes: for those who make a corpus.
///
/// # Panics
/// When it is longer than 65,535 bytes.
pub fn put_piece(out: &mut Vec<u8>, piece: &[u8]) {
    let len = u16::try_from(piece.len()).expect("a piece of a corpus is short");
    out.extend(len.to_le_bytes());
    out.extend(piece);
}
