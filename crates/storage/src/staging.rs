//! Where a batch is put together: memory and file are in step, so that a disk can be handed whole blocks.

use alloc::vec::Vec;

/// So much is written at once; a larger batch takes several writes.
const WRITE_BYTES: usize = 1 << 20;

/// Bytes on their way to a file, at the same distance from the start of a block as they will have there.
pub(crate) struct Staging {
    /// Never grows, so what is aligned stays so. Zeros at first, which costs no memory until it is used.
    memory: Vec<u8>,
    /// Where the first block begins.
    start: usize,
    len: usize,
    block_bytes: usize,
}

impl core::fmt::Debug for Staging {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Staging").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Staging {
    /// For blocks of so many bytes, a power of two.
    pub(crate) fn new(block_bytes: usize) -> Self {
        let block_bytes = block_bytes.max(1).next_power_of_two().min(WRITE_BYTES);
        let memory = alloc::vec![0; WRITE_BYTES + block_bytes];
        let start = memory.as_ptr().align_offset(block_bytes).min(block_bytes);
        Self { memory, start, len: 0, block_bytes }
    }

    /// How far a byte of a file is from the start of its block.
    pub(crate) fn within_block(&self, at: u64) -> usize {
        at as usize & (self.block_bytes - 1)
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Everything put in since it was clear.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.len]
    }

    /// Takes as much as there is room for; returns the rest.
    pub(crate) fn put<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (taken, rest) = bytes.split_at(bytes.len().min(WRITE_BYTES - self.len));
        self.memory[self.start + self.len..][..taken.len()].copy_from_slice(taken);
        self.len += taken.len();
        rest
    }

    /// Puts zeros as far as there is room; returns how many are left.
    pub(crate) fn put_zeros(&mut self, count: u64) -> u64 {
        let taken = count.min((WRITE_BYTES - self.len) as u64);
        self.memory[self.start + self.len..][..taken as usize].fill(0);
        self.len += taken as usize;
        count - taken
    }
}
