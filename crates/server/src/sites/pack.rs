//! Messages between sites are compressed (LZ4) where that makes them shorter: what is far away is reached by lines that
//! cost by the byte.
//!
//! ```text
//! packed := length u32, block        little-endian; the length is that of the message
//! ```

use bytes::Bytes;
use lz4_flex::block::{compress_prepend_size, decompress, uncompressed_size};

use crate::peers::frame::MESSAGE_BYTES_MAX;

/// What is shorter stays as it is.
const WORTH_BYTES: usize = 512;

/// The message in fewer bytes, if there are.
pub(super) fn pack(message: &[u8]) -> Option<Vec<u8>> {
    if message.len() < WORTH_BYTES {
        return None;
    }
    let packed = compress_prepend_size(message);
    (packed.len() < message.len()).then_some(packed)
}

/// The message; `None` if this is none, or too long.
pub(super) fn unpack(packed: &[u8]) -> Option<Bytes> {
    let (len, block) = uncompressed_size(packed).ok()?;
    if len > MESSAGE_BYTES_MAX {
        return None;
    }
    let message = decompress(block, len).ok().filter(|message| message.len() == len)?;
    Some(message.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back() {
        let message = b"the same again, ".repeat(1000);
        let packed = pack(&message).unwrap();
        assert!(packed.len() < message.len() / 20, "{}", packed.len());
        assert_eq!(unpack(&packed).unwrap(), message);
        assert!(pack(b"short").is_none());
        let random: Vec<u8> = (0..4096_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        assert!(pack(&random).is_none_or(|packed| unpack(&packed).unwrap() == random));
    }

    #[test]
    fn what_is_no_message_or_claims_to_be_endless_is_refused() {
        let packed = pack(&[7; 4096]).unwrap();
        for len in 0..packed.len() {
            assert!(unpack(&packed[..len]).is_none_or(|message| message.len() <= 4096), "{len}");
        }
        let mut endless = u32::MAX.to_le_bytes().to_vec();
        endless.extend_from_slice(&packed[4..]);
        assert!(unpack(&endless).is_none());
    }
}
