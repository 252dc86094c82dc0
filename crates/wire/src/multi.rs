//! Multi: several operations in one request, several results in one reply.
//!
//! `(MultiHeader, operation)*` and an end mark with type -1 and `done` set.

use crate::codec::{DecodeError, Reader, put};
use crate::opcode::Opcode;
use crate::request::Request;
use crate::stat::Stat;
use alloc::vec::Vec;

/// Stands before each operation and each result of a multi.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MultiHeader {
    /// An [`Opcode`] as a number; -1 for an error result and for the end.
    pub opcode: i32,
    /// Whether this is the end.
    pub done: bool,
    /// The error code of an error result, else -1 in requests and 0 in replies.
    pub err: i32,
}

impl MultiHeader {
    /// The end mark.
    pub const END: Self = Self { opcode: -1, done: true, err: -1 };

    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put::i32(out, self.opcode);
        put::bool(out, self.done);
        put::i32(out, self.err);
    }

    /// Reads the record.
    ///
    /// # Errors
    /// When fewer than 9 bytes are left.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { opcode: reader.i32()?, done: reader.bool()?, err: reader.i32()? })
    }
}

/// The operations of a multi or multiRead as they stand in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MultiOps<'a> {
    count: usize,
    bytes: &'a [u8],
}

impl<'a> MultiOps<'a> {
    /// Checks every operation and borrows them. Writes and reads must not be mixed; which of the two
    /// the request's opcode allows is not looked at here.
    ///
    /// # Errors
    /// When an operation may not stand in a multi, is cut short, or reads and writes are mixed.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let bytes = reader.rest();
        let mut count = 0;
        let mut reads = 0;
        loop {
            let header = MultiHeader::decode(reader)?;
            if header.done {
                break;
            }
            reads += usize::from(decode_op(header, reader)?.is_read());
            count += 1;
        }
        if reads != 0 && reads != count {
            return Err(DecodeError::BadValue("type of a multi operation (reads and writes are mixed)"));
        }
        Ok(Self { count, bytes })
    }

    /// Number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The operations in order.
    pub fn iter(&self) -> impl Iterator<Item = Request<'a>> + use<'a> {
        self.places().map(|(_, op)| op)
    }

    /// The same, each with the place where it begins in what they were decoded from: see [`MultiOps::op_at`].
    pub fn places(&self) -> impl Iterator<Item = (usize, Request<'a>)> + use<'a> {
        let (mut reader, len) = (Reader::new(self.bytes), self.bytes.len());
        // The bytes were checked by `decode`, so no operation is lost to `ok()`.
        (0..self.count).map_while(move |_| {
            let place = len - reader.rest().len();
            let header = MultiHeader::decode(&mut reader).ok()?;
            Some((place, decode_op(header, &mut reader).ok()?))
        })
    }

    /// The operation that begins at a place of what [`MultiOps::decode`] was given: one of many, without a
    /// look at the others.
    ///
    /// # Errors
    /// When there is none.
    pub fn op_at(bytes: &'a [u8], place: usize) -> Result<Request<'a>, DecodeError> {
        let mut reader = Reader::new(bytes.get(place..).unwrap_or_default());
        let header = MultiHeader::decode(&mut reader)?;
        decode_op(header, &mut reader)
    }
}

fn decode_op<'a>(header: MultiHeader, reader: &mut Reader<'a>) -> Result<Request<'a>, DecodeError> {
    let opcode = Opcode::from_i32(header.opcode).ok_or(DecodeError::BadValue("type of a multi operation"))?;
    match opcode {
        Opcode::Create
        | Opcode::Create2
        | Opcode::CreateContainer
        | Opcode::CreateTtl
        | Opcode::Delete
        | Opcode::SetData
        | Opcode::Check
        | Opcode::GetData
        | Opcode::GetChildren => Request::decode(opcode, reader),
        _ => Err(DecodeError::BadValue("type of a multi operation")),
    }
}

impl<'a> Request<'a> {
    /// The path of an operation of a multi or multiRead; `None` for what can be none.
    #[must_use]
    #[inline]
    pub fn op_path(&self) -> Option<&'a str> {
        match *self {
            Self::Create(create)
            | Self::Create2(create)
            | Self::CreateContainer(create)
            | Self::CreateTtl(create) => Some(create.path),
            Self::Delete { path, .. }
            | Self::SetData { path, .. }
            | Self::Check { path, .. }
            | Self::GetData { path, .. }
            | Self::GetChildren { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Whether this is one of the two reads that multiRead knows.
    fn is_read(&self) -> bool {
        matches!(self, Self::GetData { .. } | Self::GetChildren { .. })
    }
}

/// One result of a multi or multiRead, as a client reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the protocol, and their types say the rest")]
pub enum MultiResult<'a> {
    Created { path: &'a str, stat: Option<Stat> },
    Deleted,
    DataSet { stat: Stat },
    Checked,
    Data { data: Option<&'a [u8]>, stat: Stat },
    Children(Vec<&'a str>),
    Error(i32),
}

/// Writes the results of a multi to a reply, one call a result.
#[derive(Debug)]
pub struct MultiResults;

impl MultiResults {
    /// The path of a create, with the Stat for the kinds that answer it (create2, TTL, container).
    pub fn created(out: &mut Vec<u8>, path: &str, stat: Option<&Stat>) {
        let opcode = if stat.is_some() { Opcode::Create2 } else { Opcode::Create };
        result_header(out, opcode);
        put::str(out, path);
        if let Some(stat) = stat {
            stat.encode(out);
        }
    }

    /// A delete.
    pub fn deleted(out: &mut Vec<u8>) {
        result_header(out, Opcode::Delete);
    }

    /// The Stat after a setData.
    pub fn data_set(out: &mut Vec<u8>, stat: &Stat) {
        result_header(out, Opcode::SetData);
        stat.encode(out);
    }

    /// A check.
    pub fn checked(out: &mut Vec<u8>) {
        result_header(out, Opcode::Check);
    }

    /// The data and Stat of a getData.
    pub fn data(out: &mut Vec<u8>, data: Option<&[u8]>, stat: &Stat) {
        result_header(out, Opcode::GetData);
        put::opt_buffer(out, data);
        stat.encode(out);
    }

    /// The header of a getChildren; the caller appends the vector of names.
    pub fn children(out: &mut Vec<u8>) {
        result_header(out, Opcode::GetChildren);
    }

    /// An operation that failed, or was not tried because another one failed.
    pub fn error(out: &mut Vec<u8>, err: i32) {
        MultiHeader { opcode: -1, done: false, err }.encode(out);
        put::i32(out, err);
    }

    /// The end mark.
    pub fn end(out: &mut Vec<u8>) {
        MultiHeader::END.encode(out);
    }

    /// Reads all results of a reply.
    ///
    /// # Errors
    /// When a result is cut short or of an unknown type.
    pub fn decode<'a>(reader: &mut Reader<'a>) -> Result<Vec<MultiResult<'a>>, DecodeError> {
        let mut results = Vec::new();
        loop {
            let header = MultiHeader::decode(reader)?;
            if header.done {
                return Ok(results);
            }
            results.push(match Opcode::from_i32(header.opcode) {
                Some(Opcode::Create) => MultiResult::Created { path: reader.str()?, stat: None },
                Some(Opcode::Create2) => {
                    MultiResult::Created { path: reader.str()?, stat: Some(Stat::decode(reader)?) }
                }
                Some(Opcode::Delete) => MultiResult::Deleted,
                Some(Opcode::SetData) => MultiResult::DataSet { stat: Stat::decode(reader)? },
                Some(Opcode::Check) => MultiResult::Checked,
                Some(Opcode::GetData) => {
                    MultiResult::Data { data: reader.buffer()?, stat: Stat::decode(reader)? }
                }
                Some(Opcode::GetChildren) => {
                    let count = reader.count(4)?;
                    MultiResult::Children((0..count).map(|_| reader.str()).collect::<Result<_, _>>()?)
                }
                None if header.opcode == -1 => MultiResult::Error(reader.i32()?),
                _ => return Err(DecodeError::BadValue("type of a multi result")),
            });
        }
    }
}

fn result_header(out: &mut Vec<u8>, opcode: Opcode) {
    MultiHeader { opcode: opcode as i32, done: false, err: 0 }.encode(out);
}
