//! A client's request as it has come, with its header read: by way of how many hands it goes, that is done
//! once.

use alloc::boxed::Box;
use alloc::vec::Vec;
use stoa_wire::{Opcode, Reader, RequestHeader};

const HEADER_BYTES: usize = 8;

/// A request.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// Its header.
    pub header: RequestHeader,
    /// `None` where nobody knows it.
    pub opcode: Option<Opcode>,
    /// Header and body.
    pub bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    /// `None` when there is not even a whole header. Always inlined: what a call returns by way of memory,
    /// field by field, is copied from there in larger pieces, which has to wait for the stores: 15 ns.
    #[inline(always)]
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let header = RequestHeader::decode(&mut Reader::new(bytes)).ok()?;
        Some(Self { header, opcode: Opcode::from_i32(header.opcode), bytes })
    }

    /// What follows the header.
    #[inline]
    #[must_use]
    pub fn body(&self) -> Reader<'a> {
        Reader::new(self.bytes.get(HEADER_BYTES..).unwrap_or_default())
    }
}

/// A request as its client sent it.
#[must_use]
pub fn frame(header: RequestHeader, body: &[u8]) -> Box<[u8]> {
    let mut frame = Vec::with_capacity(body.len() + 8);
    header.encode(&mut frame);
    frame.extend_from_slice(body);
    frame.into()
}
