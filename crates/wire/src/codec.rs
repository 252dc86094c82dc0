//! Primitive encodings.

use core::fmt;

/// Why bytes could not be read as the record they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// The record ends in the middle of a field.
    Truncated,
    /// A length or count is negative (and not -1) or larger than the bytes that follow.
    BadLength,
    /// A string is not UTF-8.
    NotUtf8,
    /// A field that must not be null is null.
    UnexpectedNull,
    /// A field has a value that the protocol does not know.
    BadValue(&'static str),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the record ends in the middle of a field"),
            Self::BadLength => f.write_str("a length does not fit the bytes that follow it"),
            Self::NotUtf8 => f.write_str("a string is not UTF-8"),
            Self::UnexpectedNull => f.write_str("a field that must be present is null"),
            Self::BadValue(field) => write!(f, "the field {field} has an unknown value"),
        }
    }
}

impl core::error::Error for DecodeError {}

type Result<T> = core::result::Result<T, DecodeError>;

/// Reads records from a byte slice, borrowing strings and buffers from it.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes not read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes the next `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated)?;
        self.rest = tail;
        Ok(*head)
    }

    /// One byte, zero is false.
    #[inline]
    pub fn bool(&mut self) -> Result<bool> {
        Ok(self.array::<1>()? != [0])
    }

    /// A 32-bit integer.
    #[inline]
    pub fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// A 64-bit integer.
    #[inline]
    pub fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// A buffer; `None` when null.
    #[inline]
    pub fn buffer(&mut self) -> Result<Option<&'a [u8]>> {
        let len = self.i32()?;
        if len == -1 {
            return Ok(None);
        }
        let len = usize::try_from(len).map_err(|_| DecodeError::BadLength)?;
        if len > self.rest.len() {
            return Err(DecodeError::BadLength);
        }
        self.take(len).map(Some)
    }

    /// A string; null reads as the empty string, because some clients send null for "".
    #[inline]
    pub fn str(&mut self) -> Result<&'a str> {
        let bytes = self.buffer()?.unwrap_or_default();
        core::str::from_utf8(bytes).map_err(|_| DecodeError::NotUtf8)
    }

    /// A path: null is refused, as ZooKeeper does.
    #[inline]
    pub fn path(&mut self) -> Result<&'a str> {
        let bytes = self.buffer()?.ok_or(DecodeError::UnexpectedNull)?;
        core::str::from_utf8(bytes).map_err(|_| DecodeError::NotUtf8)
    }

    /// A string that keeps null apart from "".
    pub fn opt_str(&mut self) -> Result<Option<&'a str>> {
        self.buffer()?.map(core::str::from_utf8).transpose().map_err(|_| DecodeError::NotUtf8)
    }

    /// The count of a vector; null reads as 0. `item_bytes_min` is the least that one item takes:
    /// a count that could not possibly fit is refused before anybody allocates for it.
    #[inline]
    pub fn count(&mut self, item_bytes_min: usize) -> Result<usize> {
        let count = self.i32()?;
        if count == -1 {
            return Ok(0);
        }
        let count = usize::try_from(count).map_err(|_| DecodeError::BadLength)?;
        if count.saturating_mul(item_bytes_min) > self.rest.len() {
            return Err(DecodeError::BadLength);
        }
        Ok(count)
    }
}

/// Writes primitives to the end of a buffer.
pub mod put {
    use alloc::vec::Vec;

    /// One byte.
    #[inline]
    pub fn bool(out: &mut Vec<u8>, value: bool) {
        out.push(u8::from(value));
    }

    /// A 32-bit integer.
    #[inline]
    pub fn i32(out: &mut Vec<u8>, value: i32) {
        out.extend_from_slice(&value.to_be_bytes());
    }

    /// A 64-bit integer.
    #[inline]
    pub fn i64(out: &mut Vec<u8>, value: i64) {
        out.extend_from_slice(&value.to_be_bytes());
    }

    /// A length or count. Nothing that we send reaches 2 GiB: frames are bounded far below.
    #[inline]
    pub fn len(out: &mut Vec<u8>, len: usize) {
        i32(out, i32::try_from(len).unwrap_or(i32::MAX));
    }

    /// A buffer.
    #[inline]
    pub fn buffer(out: &mut Vec<u8>, bytes: &[u8]) {
        len(out, bytes.len());
        out.extend_from_slice(bytes);
    }

    /// A buffer or null.
    #[inline]
    pub fn opt_buffer(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => buffer(out, bytes),
            None => i32(out, -1),
        }
    }

    /// A string.
    #[inline]
    pub fn str(out: &mut Vec<u8>, text: &str) {
        buffer(out, text.as_bytes());
    }
}
