//! The name and the data of a znode in one allocation, behind a pointer of eight bytes.
//!
//! A `Box<[u8]>` is two words, since it keeps its length beside the pointer. Here both lengths lie
//! in front of the bytes: with a million znodes that is 8 MB less, in the node that every lookup
//! reads. It is one of two places of the project that safe Rust cannot express; the other one
//! (`server/src/peers/lifeline.rs`) is a thread with files of its own.
//!
//! ```text
//! allocation := name_len u16, data_len u32, [long_name_len u32], name, data
//! ```
//! A name of 65,535 bytes or more, which hardly anybody has, has its length behind the two, and 65,535 in
//! front.
#![expect(unsafe_code, reason = "a thin pointer to bytes whose length is in front of them")]

use alloc::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use core::fmt;
use core::ops::Range;
use core::ptr::NonNull;

const NAME_LEN_BYTES: usize = size_of::<u16>();
const HEADER_BYTES: usize = NAME_LEN_BYTES + size_of::<u32>();

/// In place of the length of a name that is as long as this or longer.
const LONG: u16 = u16::MAX;
const LONG_HEADER_BYTES: usize = HEADER_BYTES + size_of::<u32>();

/// What a blob without any bytes points to: it needs no allocation.
static EMPTY: [u8; HEADER_BYTES] = [0; HEADER_BYTES];

/// A name and data. The name stays; the data may be written over by as many bytes.
///
/// The invariant that every `unsafe` below rests on: `start` points to the header, which is initialized,
/// and with it to `name().end + data_len()` initialized bytes that are aligned to 1, that live as long as
/// this value, and that nobody else reaches. The header is [`LONG_HEADER_BYTES`] long when it begins with
/// [`LONG`], otherwise [`HEADER_BYTES`]. When both lengths are 0 these are the bytes of [`EMPTY`], which are
/// never written nor freed; otherwise they came from `alloc` with [`Blob::layout`] of those lengths. The
/// lengths are written once, by [`Blob::new`].
pub(crate) struct Blob {
    start: NonNull<u8>,
}

// SAFETY: a blob owns its bytes as a `Box<[u8]>` does: they are reached through it alone (or, for
// an empty one, are a static that nobody writes), and the global allocator takes memory back from
// any thread.
unsafe impl Send for Blob {}
// SAFETY: a shared blob only reads.
unsafe impl Sync for Blob {}

impl Blob {
    /// The data is given in two parts.
    ///
    /// # Panics
    /// When the name or the data have more than 4 GiB.
    pub(crate) fn new(name: &[u8], data: [&[u8]; 2]) -> Self {
        let bytes = data[0].len() + data[1].len();
        if name.is_empty() && bytes == 0 {
            return Self::empty();
        }
        let bounded = "names and data are bounded by the frame they came in";
        let name_len = u32::try_from(name.len()).expect(bounded).to_le_bytes();
        let data_len = u32::try_from(bytes).expect(bounded).to_le_bytes();
        let short = u16::try_from(name.len()).unwrap_or(LONG);
        let layout = Self::layout(name.len(), bytes);
        // SAFETY: the layout has at least the header's bytes.
        let allocated = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(allocated) else { handle_alloc_error(layout) };
        let mut end = start;
        let mut put = |part: &[u8]| {
            // SAFETY: the lengths of what is put add up to the layout's size, so that each part lies within the
            // allocation and `end` at most one past it; the allocation is new, so it overlaps none.
            unsafe {
                end.copy_from_nonoverlapping(NonNull::from(part).cast(), part.len());
                end = end.add(part.len());
            }
        };
        put(&short.to_le_bytes());
        put(&data_len);
        if short == LONG {
            put(&name_len);
        }
        put(name);
        // Hardly any data has a first part: no call for nothing.
        if !data[0].is_empty() {
            put(data[0]);
        }
        put(data[1]);
        Self { start }
    }

    /// Without name and data, and without an allocation.
    pub(crate) fn empty() -> Self {
        Self { start: NonNull::from(&EMPTY).cast() }
    }

    fn layout(name_len: usize, data_len: usize) -> Layout {
        let header = if name_len < usize::from(LONG) { HEADER_BYTES } else { LONG_HEADER_BYTES };
        Layout::array::<u8>(header + name_len + data_len).expect("less than 9 GiB")
    }

    /// Where the name is, from the start on.
    #[inline]
    fn name_span(&self) -> Range<usize> {
        // SAFETY: the first two bytes of the header are initialized.
        let short = u16::from_le_bytes(unsafe { self.start.cast().read() });
        if short != LONG {
            return HEADER_BYTES..HEADER_BYTES + usize::from(short);
        }
        // SAFETY: such a blob has a header with four bytes more, which are initialized.
        let len = u32::from_le_bytes(unsafe { self.start.add(HEADER_BYTES).cast().read() });
        LONG_HEADER_BYTES..LONG_HEADER_BYTES + len as usize
    }

    /// Bytes of data.
    #[inline]
    pub(crate) fn data_len(&self) -> usize {
        // SAFETY: these four bytes are in every header, and initialized.
        u32::from_le_bytes(unsafe { self.start.add(NAME_LEN_BYTES).cast().read() }) as usize
    }

    #[inline]
    pub(crate) fn name(&self) -> &[u8] {
        let Range { start, end } = self.name_span();
        // SAFETY: the name's initialized bytes are there; they are lent as long as `self`.
        unsafe { NonNull::slice_from_raw_parts(self.start.add(start), end - start).as_ref() }
    }

    #[inline]
    pub(crate) fn data(&self) -> &[u8] {
        let before = self.name_span().end;
        // SAFETY: `data_len` initialized bytes follow the name; they are lent as long as `self`.
        unsafe { NonNull::slice_from_raw_parts(self.start.add(before), self.data_len()).as_ref() }
    }

    #[inline]
    pub(crate) fn data_mut(&mut self) -> &mut [u8] {
        let before = self.name_span().end;
        // SAFETY: as in `data`, and `self` is borrowed for nobody else. An empty blob lends no byte
        // of the static.
        unsafe { NonNull::slice_from_raw_parts(self.start.add(before), self.data_len()).as_mut() }
    }
}

impl Drop for Blob {
    fn drop(&mut self) {
        let (name_len, data_len) = (self.name_span().len(), self.data_len());
        if name_len + data_len > 0 {
            // SAFETY: it came from `alloc` with the layout of these lengths, and is not used again.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(name_len, data_len)) }
        }
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blob").field("name", &self.name()).field("data", &self.data()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        let long = vec![b'x'; 70_000];
        let edge = usize::from(LONG);
        for name in [&b""[..], b"n", b"some-name", &long[..edge - 1], &long[..edge], &long[..edge + 1], &long]
        {
            for data in [&b""[..], b"d", b"0123456789", &long] {
                let blob = Blob::new(name, data.split_at(data.len() / 2).into());
                assert_eq!((blob.name(), blob.data(), blob.data_len()), (name, data, data.len()));
            }
        }
        assert_eq!(size_of::<Option<Blob>>(), 8);
    }

    #[test]
    fn data_is_written_over_and_the_name_stays() {
        let mut blob = Blob::new(b"name", [b"", b"abc"]);
        blob.data_mut().copy_from_slice(b"xyz");
        assert_eq!((blob.name(), blob.data()), (&b"name"[..], &b"xyz"[..]));
        assert!(Blob::empty().data_mut().is_empty());
    }

    #[test]
    fn another_thread_may_free_it() {
        let blob = Blob::new(b"a", [b"", b"b"]);
        std::thread::spawn(move || assert_eq!(blob.data(), b"b")).join().unwrap();
    }
}
