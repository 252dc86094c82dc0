//! Frames: what a segment and a snapshot are made of after their preamble.

use super::{BODY_BYTES_MAX, Fields, checksum};

/// The header of a frame.
pub(crate) const FRAME_BYTES: usize = 32;
/// The header of an entry in a batch.
pub(crate) const ENTRY_HEADER_BYTES: usize = 16;
/// Frames of a segment begin at multiples of this.
pub(crate) const FRAME_ALIGNMENT: u64 = 8;
/// The body of a snapshot's footer.
pub(crate) const FOOTER_BYTES: usize = 20;

pub(crate) const FRAME_MAGIC: [u8; 4] = *b"SFRM";

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Entries that were stored together.
    Batch,
    /// Proves that everything before it was synced.
    Seal,
    /// The last frame of a segment that has a successor.
    End,
    /// A piece of a snapshot.
    Chunk,
    /// The end of a snapshot.
    Footer,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Self::Batch => 1,
            Self::Seal => 2,
            Self::End => 3,
            Self::Chunk => 4,
            Self::Footer => 5,
        }
    }

    fn of(code: u8) -> Option<Self> {
        [Self::Batch, Self::Seal, Self::End, Self::Chunk, Self::Footer]
            .into_iter()
            .find(|kind| kind.code() == code)
    }
}

/// The header of a frame, without its magic and checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    pub(crate) entries: u32,
    pub(crate) body_bytes: u32,
    pub(crate) body_crc: u32,
}

impl FrameHeader {
    /// A frame with nothing in it.
    pub(crate) fn bare(kind: Kind, number: u64) -> Self {
        Self { number, kind, entries: 0, body_bytes: 0, body_crc: 0 }
    }

    pub(crate) fn encode(&self, seed: u32) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        bytes[..4].copy_from_slice(&FRAME_MAGIC);
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16] = self.kind.code();
        bytes[20..24].copy_from_slice(&self.entries.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[28..].copy_from_slice(&self.body_crc.to_le_bytes());
        let crc = checksum(seed, &bytes[8..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(seed: u32, bytes: &[u8; FRAME_BYTES]) -> Result<Self, BadFrame> {
        const SHORT: BadFrame = BadFrame::torn("the frame's header is cut");
        let mut fields = Fields(bytes);
        if fields.array::<4>() != Some(FRAME_MAGIC) {
            return Err(BadFrame::torn("no frame begins here"));
        }
        let crc = fields.u32().ok_or(SHORT)?;
        if checksum(seed, fields.0) != crc {
            return Err(BadFrame::torn("the checksum of the frame's header is wrong"));
        }
        let number = fields.u64().ok_or(SHORT)?;
        let [code, ..] = fields.array::<4>().ok_or(SHORT)?;
        let header = Self {
            number,
            kind: Kind::of(code)
                .ok_or(BadFrame::written("the frame is of a kind that this program does not know"))?,
            entries: fields.u32().ok_or(SHORT)?,
            body_bytes: fields.u32().ok_or(SHORT)?,
            body_crc: fields.u32().ok_or(SHORT)?,
        };
        if u64::from(header.body_bytes) > BODY_BYTES_MAX {
            return Err(BadFrame::written("the frame is larger than frames may be"));
        }
        Ok(header)
    }
}

/// Why the bytes at an offset are not the frame that belongs there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadFrame {
    pub(crate) what: &'static str,
    /// Whether an interrupted write can have left this. If the header's checksum is right and
    /// what it says is not, somebody wrote it so.
    pub(crate) may_be_torn: bool,
}

impl BadFrame {
    pub(crate) const fn torn(what: &'static str) -> Self {
        Self { what, may_be_torn: true }
    }

    pub(crate) const fn written(what: &'static str) -> Self {
        Self { what, may_be_torn: false }
    }
}

/// The fields before an entry's payload.
pub(crate) fn entry_header(timeline: u32, payload_bytes: u32, position: u64) -> [u8; ENTRY_HEADER_BYTES] {
    let mut bytes = [0; ENTRY_HEADER_BYTES];
    bytes[..4].copy_from_slice(&timeline.to_le_bytes());
    bytes[4..8].copy_from_slice(&payload_bytes.to_le_bytes());
    bytes[8..].copy_from_slice(&position.to_le_bytes());
    bytes
}

/// The entries of a batch whose checksum was right.
pub(crate) struct Entries<'a> {
    left: u32,
    body_bytes: usize,
    fields: Fields<'a>,
}

/// An entry as it is found in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundEntry<'a> {
    /// Where in the body it begins.
    pub(crate) offset: usize,
    pub(crate) timeline: u32,
    pub(crate) position: u64,
    pub(crate) payload: &'a [u8],
}

impl<'a> Entries<'a> {
    pub(crate) fn new(entries: u32, body: &'a [u8]) -> Self {
        Self { left: entries, body_bytes: body.len(), fields: Fields(body) }
    }

    fn take(&mut self) -> Option<FoundEntry<'a>> {
        let offset = self.body_bytes - self.fields.0.len();
        let timeline = self.fields.u32()?;
        let payload_bytes = self.fields.u32()?;
        let position = self.fields.u64()?;
        let payload = self.fields.bytes(usize::try_from(payload_bytes).ok()?)?;
        Some(FoundEntry { offset, timeline, position, payload })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<FoundEntry<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            let padding = core::mem::take(&mut self.fields.0);
            let bad = padding.len() as u64 >= FRAME_ALIGNMENT || padding.iter().any(|&b| b != 0);
            return bad.then_some(Err("more bytes follow the batch's last entry"));
        }
        let entry = self.take();
        match entry {
            Some(entry) => {
                self.left -= 1;
                Some(Ok(entry))
            }
            None => {
                self.left = 0;
                self.fields = Fields(&[]);
                Some(Err("an entry is longer than its batch"))
            }
        }
    }
}

/// What a snapshot's last frame says about all before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) chunks: u64,
    pub(crate) chunk_bytes: u64,
    /// Over the chunks' frame headers, which hold the checksums of their bodies.
    pub(crate) crc: u32,
}

impl Footer {
    /// Counts a chunk in.
    pub(crate) fn add(&mut self, header: &[u8; FRAME_BYTES], body_bytes: u64) {
        self.chunks += 1;
        self.chunk_bytes += body_bytes;
        self.crc = checksum(self.crc, header);
    }

    pub(crate) fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut bytes = [0; FOOTER_BYTES];
        bytes[..8].copy_from_slice(&self.chunks.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.chunk_bytes.to_le_bytes());
        bytes[16..].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let footer = Self { chunks: fields.u64()?, chunk_bytes: fields.u64()?, crc: fields.u32()? };
        fields.0.is_empty().then_some(footer)
    }

    /// How long a snapshot with this footer is.
    pub(crate) fn file_bytes(&self, preamble_bytes: u64) -> Option<u64> {
        let frames = self.chunks.checked_add(1)?.checked_mul(FRAME_BYTES as u64)?;
        preamble_bytes.checked_add(frames)?.checked_add(self.chunk_bytes)?.checked_add(FOOTER_BYTES as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back_with_its_seed_only() {
        let header = FrameHeader { number: 9, kind: Kind::Batch, entries: 3, body_bytes: 80, body_crc: 1 };
        let bytes = header.encode(5);
        assert_eq!(FrameHeader::decode(5, &bytes), Ok(header));
        assert!(FrameHeader::decode(6, &bytes).is_err());
        for bit in 0..FRAME_BYTES * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(FrameHeader::decode(5, &bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_body_that_does_not_add_up_is_an_error() {
        let mut body = entry_header(1, 3, 1).to_vec();
        body.extend_from_slice(b"abc");
        body.resize(24, 0);
        let all: Result<Vec<_>, _> = Entries::new(1, &body).collect();
        assert_eq!(all.map(|all| all[0].payload), Ok(&b"abc"[..]));
        assert!(Entries::new(2, &body).any(|entry| entry.is_err()));
        assert!(Entries::new(0, &body).any(|entry| entry.is_err()));
        assert!(Entries::new(1, &body[..18]).any(|entry| entry.is_err()));
        body[23] = 1;
        assert!(Entries::new(1, &body).any(|entry| entry.is_err()));
    }

    #[test]
    fn a_footer_is_read_back() {
        let mut footer = Footer::default();
        footer.add(&[1; FRAME_BYTES], 10);
        footer.add(&[2; FRAME_BYTES], 5);
        assert_eq!(Footer::decode(&footer.encode()), Some(footer));
        assert_eq!(footer.file_bytes(64), Some(64 + 3 * 32 + 15 + 20));
        let huge = Footer { chunks: u64::MAX, ..footer };
        assert_eq!(huge.file_bytes(64), None);
    }
}
