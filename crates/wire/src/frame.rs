//! Frames: a big-endian `i32` length, then that many bytes.

use alloc::vec::Vec;
use core::fmt;

/// A length that no frame may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameError {
    /// The announced length in bytes.
    pub announced: i32,
    /// The longest frame that is accepted here, in bytes.
    pub limit: usize,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { announced, limit } = self;
        write!(f, "a frame of {announced} bytes was announced, the limit is {limit} (setting jute.maxbuffer)")
    }
}

impl core::error::Error for FrameError {}

/// A payload and the bytes that follow its frame.
pub type Split<'a> = (&'a [u8], &'a [u8]);

/// Splits the first whole frame off `bytes`: its payload and what follows it. `None` when more bytes
/// are needed.
///
/// # Errors
/// When the announced length is negative or above `limit`.
#[inline]
pub fn next_frame(bytes: &[u8], limit: usize) -> Result<Option<Split<'_>>, FrameError> {
    let Some((head, tail)) = bytes.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let announced = i32::from_be_bytes(*head);
    match usize::try_from(announced) {
        Ok(len) if len <= limit => Ok(tail.split_at_checked(len)),
        _ => Err(FrameError { announced, limit }),
    }
}

/// Starts a frame at the end of `out`; give the result to [`end_frame`].
#[inline]
pub fn begin_frame(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    start
}

/// Fills in the length of the frame that began at `start`.
#[inline]
pub fn end_frame(out: &mut [u8], start: usize) {
    let len = out.len() - start - 4;
    let len = i32::try_from(len).unwrap_or(i32::MAX);
    if let Some(head) = out.get_mut(start..start + 4) {
        head.copy_from_slice(&len.to_be_bytes());
    }
}
