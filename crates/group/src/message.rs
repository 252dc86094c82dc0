//! What members say to each other, and how it is written.
//!
//! ```text
//! message := header, entries
//! header  := kind u8, flags u8, to u64, from u64, term u64, log_term u64, position u64, committed u64,
//!            committed_term u64, request_snapshot u64, hint u64, context, [mark]
//! ```
//! Integers are little-endian; `context` has its length (u32) before it; `mark` and `entries` are those of
//! [`crate::codec`]. `to` is 0 in an append that is for all members. The header is whose message it is and for whom; the entries are the same bytes in every
//! message that carries them, so that one copy can serve many.

use crate::codec::{self, DecodeError, get_bytes, get_mark, get_number, get_u8, put_bytes, put_mark};
use crate::held::{Entry, Mark};
use crate::pieces::Pieces;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::{Buf, Bytes};
use core::fmt;
use raft::eraftpb::MessageType;

const REJECT: u8 = 1;
const FLAGS: u8 = REJECT | codec::MARK_FLAGS;

/// What a header without context and mark takes.
const HEADER_BYTES: usize = 2 + 9 * 8 + 4;

/// Kinds that travel, with their numbers. The others are the engine's own business.
const KINDS: [(u8, MessageType); 12] = [
    (1, MessageType::MsgAppend),
    (2, MessageType::MsgAppendResponse),
    (3, MessageType::MsgRequestVote),
    (4, MessageType::MsgRequestVoteResponse),
    (5, MessageType::MsgSnapshot),
    (6, MessageType::MsgHeartbeat),
    (7, MessageType::MsgHeartbeatResponse),
    (8, MessageType::MsgTimeoutNow),
    (9, MessageType::MsgReadIndex),
    (10, MessageType::MsgReadIndexResp),
    (11, MessageType::MsgRequestPreVote),
    (12, MessageType::MsgRequestPreVoteResponse),
];

/// Entries that follow one another, by where they begin and end. A position and a term name one entry, and what is
/// before it is the same in every log that has it (Raft's log matching): so one span is the same entries, whoever
/// sends them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Position of the first.
    pub first: u64,
    /// Position of the last.
    pub last: u64,
    /// Term of the last.
    pub term: u64,
}

/// A message from one member to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Large, and handed on a few times: so it stays where it is.
    pub(crate) raft: Box<raft::eraftpb::Message>,
}

impl Message {
    /// Whether its sender is for the lead of whom it is for: votes for it, or would.
    #[must_use]
    pub fn grants(&self) -> bool {
        let kind = self.raft.get_msg_type();
        let votes = [MessageType::MsgRequestVoteResponse, MessageType::MsgRequestPreVoteResponse];
        votes.contains(&kind) && !self.raft.reject
    }

    /// Whom it is for; 0 for all.
    #[must_use]
    pub fn to(&self) -> u64 {
        self.raft.to
    }

    /// Who says it.
    #[must_use]
    pub fn from(&self) -> u64 {
        self.raft.from
    }

    /// The sender's term.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.raft.term
    }

    /// Which entries of the log it carries; `None` when it carries none.
    #[must_use]
    pub fn span(&self) -> Option<Span> {
        // The entry of a question where the log ends is none of the log.
        let entries = self.raft.get_entries();
        let (first, last) = entries.first().zip(entries.last())?;
        (self.raft.get_msg_type() == MessageType::MsgAppend).then_some(Span {
            first: first.index,
            last: last.index,
            term: last.term,
        })
    }

    /// Whether only somebody who leads says this: entries, a snapshot, that it is alive.
    #[must_use]
    pub fn is_of_leader(&self) -> bool {
        let kind = self.raft.get_msg_type();
        matches!(kind, MessageType::MsgAppend | MessageType::MsgHeartbeat | MessageType::MsgSnapshot)
    }

    /// Whether it tells of a snapshot, which travels beside the messages: see
    /// [`crate::Output::SendSnapshot`].
    #[must_use]
    pub fn snapshot(&self) -> Option<Mark> {
        (self.raft.get_msg_type() == MessageType::MsgSnapshot)
            .then(|| Mark::from_raft(self.raft.get_snapshot()))
    }

    /// What its entries take, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.entries_bytes() as u64
    }

    /// Writes it behind what is in `out`.
    pub fn encode(&self, out: &mut Pieces) {
        out.reserve(self.header_bytes() + self.entries_bytes());
        self.encode_header(out);
        self.encode_entries(out);
    }

    /// Writes what it says to its receiver alone; [`Message::encode_entries`] has the rest.
    pub fn encode_header(&self, out: &mut Pieces) {
        let raft = &self.raft;
        let kind = KINDS.iter().find(|(_, kind)| *kind == raft.get_msg_type());
        let (kind, _) = kind.expect("what does not travel is not handed out");
        let mark = self.snapshot();
        let flags = if raft.reject { REJECT } else { 0 } | codec::mark_flags(mark.as_ref());
        out.reserve(self.header_bytes());
        out.put(&[*kind, flags]);
        for number in [
            raft.to,
            raft.from,
            raft.term,
            raft.log_term,
            raft.index,
            raft.commit,
            raft.commit_term,
            raft.request_snapshot,
            raft.reject_hint,
        ] {
            out.put(&number.to_le_bytes());
        }
        put_bytes(out, &raft.context);
        if let Some(mark) = &mark {
            put_mark(out, mark);
        }
    }

    /// Writes its entries: the same bytes for every message of the same [`Message::span`].
    pub fn encode_entries(&self, out: &mut Pieces) {
        out.reserve(self.entries_bytes());
        codec::put_entries(out, self.raft.get_entries().iter().map(Entry::from_raft));
    }

    fn header_bytes(&self) -> usize {
        HEADER_BYTES + self.raft.context.len()
    }

    fn entries_bytes(&self) -> usize {
        codec::entries_bytes(self.raft.get_entries().iter().map(|entry| &entry.data))
    }

    /// Reads what [`Message::encode`] wrote. Payloads are not copied. What it takes is in proportion
    /// to the bytes, whatever they say.
    ///
    /// # Errors
    /// When they are anything but exactly one message.
    pub fn decode(mut bytes: Bytes) -> Result<Self, DecodeError> {
        let mut message = Self { raft: Box::default() };
        message.get_header(&mut bytes)?;
        message.get_entries(bytes)?;
        Ok(message)
    }

    /// Puts together what [`Message::encode_header`] and [`Message::encode_entries`] wrote, which may have come by
    /// different ways. `span` is [`Message::span`] of the message whose header it is, as its sender has told it:
    /// entries of an earlier leader that were replaced since may fit behind the header, and would be stored.
    ///
    /// # Errors
    /// When they are anything but one header and the entries of this span.
    pub fn decode_parts(mut header: Bytes, span: Option<Span>, entries: Bytes) -> Result<Self, DecodeError> {
        let mut message = Self { raft: Box::default() };
        message.get_header(&mut header)?;
        if header.has_remaining() {
            return Err(DecodeError::Long);
        }
        message.get_entries(entries)?;
        if message.span() == span { Ok(message) } else { Err(DecodeError::Span) }
    }

    /// Takes a header off the front.
    fn get_header(&mut self, bytes: &mut Bytes) -> Result<(), DecodeError> {
        let raft = &mut self.raft;
        let (kind, flags) = (get_u8(bytes)?, get_u8(bytes)?);
        let (_, kind) = *KINDS.iter().find(|(number, _)| *number == kind).ok_or(DecodeError::Kind(kind))?;
        let is_snapshot = kind == MessageType::MsgSnapshot;
        if flags & !FLAGS != 0 {
            return Err(DecodeError::Flags(flags));
        }
        raft.set_msg_type(kind);
        raft.reject = flags & REJECT != 0;
        for field in [
            &mut raft.to,
            &mut raft.from,
            &mut raft.term,
            &mut raft.log_term,
            &mut raft.index,
            &mut raft.commit,
            &mut raft.commit_term,
            &mut raft.request_snapshot,
            &mut raft.reject_hint,
        ] {
            *field = get_number(bytes)?;
        }
        let is_for_all = raft.to == 0 && raft.get_msg_type() == MessageType::MsgAppend;
        if raft.from == 0 || raft.to == 0 && !is_for_all {
            return Err(DecodeError::Member);
        }
        raft.context = get_bytes(bytes)?;
        match get_mark(bytes, flags)? {
            Some(mark) if is_snapshot => raft.set_snapshot(mark.to_raft()),
            None if !is_snapshot => {}
            _ => return Err(DecodeError::Flags(flags)),
        }
        Ok(())
    }

    fn get_entries(&mut self, mut bytes: Bytes) -> Result<(), DecodeError> {
        let entries = codec::get_entries(&mut bytes)?;
        let entries: Option<Vec<_>> = entries.iter().map(Entry::to_raft).collect();
        self.raft.set_entries(entries.ok_or(DecodeError::Entry)?.into());
        if bytes.has_remaining() { Err(DecodeError::Long) } else { Ok(()) }
    }
}

/// One line for people: `1 to 2: append, term 3, behind 7 of term 2, committed 6, 2 entries`.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raft = &self.raft;
        match raft.to {
            0 => write!(f, "{} to all: ", raft.from)?,
            to => write!(f, "{} to {to}: ", raft.from)?,
        }
        let no = if raft.reject { "no" } else { "yes" };
        let (position, term) = (raft.index, raft.log_term);
        match raft.get_msg_type() {
            MessageType::MsgAppend => {
                write!(f, "append behind {position} of term {term}, committed {}", raft.commit)?;
                for entry in raft.get_entries() {
                    write!(f, ", {} of term {}", entry.index, entry.term)?;
                }
            }
            MessageType::MsgAppendResponse if raft.reject => {
                write!(f, "not behind {position}, perhaps behind {}", raft.reject_hint)?;
            }
            MessageType::MsgAppendResponse => write!(f, "have {position}")?,
            MessageType::MsgRequestVote => write!(f, "vote for me, last {position} of term {term}")?,
            MessageType::MsgRequestVoteResponse => write!(f, "vote: {no}")?,
            MessageType::MsgRequestPreVote => {
                write!(f, "would you vote for me, last {position} of term {term}")?;
            }
            MessageType::MsgRequestPreVoteResponse => write!(f, "would vote: {no}")?,
            MessageType::MsgSnapshot => {
                let mark = Mark::from_raft(raft.get_snapshot());
                write!(f, "snapshot of {} of term {}", mark.position, mark.term)?;
            }
            MessageType::MsgHeartbeat => write!(f, "heartbeat, committed {}", raft.commit)?,
            MessageType::MsgHeartbeatResponse => write!(f, "alive")?,
            MessageType::MsgTimeoutNow => write!(f, "lead now")?,
            MessageType::MsgReadIndex => write!(f, "from where may be read")?,
            MessageType::MsgReadIndexResp => write!(f, "may be read from {position}")?,
            other => write!(f, "{other:?}")?,
        }
        write!(f, " (term {})", raft.term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held::EntryKind;
    use crate::members::Members;

    fn sample() -> Message {
        let entries = [
            Entry {
                position: 8,
                term: 2,
                kind: EntryKind::Payload,
                payload: Bytes::from_static(b"some update"),
            },
            Entry {
                position: 9,
                term: 3,
                kind: EntryKind::Change,
                payload: Bytes::from_static(&[1, 4, 0, 0, 0, 0, 0, 0, 0]),
            },
        ];
        let mut raft = raft::eraftpb::Message { to: 2, from: 1, term: 3, log_term: 2, ..Default::default() };
        raft.set_msg_type(MessageType::MsgSnapshot);
        raft.index = 7;
        raft.commit = 6;
        raft.reject = true;
        raft.context = Bytes::from_static(b"why");
        raft.set_entries(entries.iter().map(|entry| entry.to_raft().unwrap()).collect());
        let members =
            Members { learners: vec![4], auto_leave: true, outgoing: vec![5], ..Members::of_voters(&[1, 2]) };
        raft.set_snapshot(Mark { position: 6, term: 2, members }.to_raft());
        Message { raft: raft.into() }
    }

    fn encoded(message: &Message) -> Vec<u8> {
        let mut pieces = Pieces::default();
        message.encode(&mut pieces);
        pieces.join().into()
    }

    /// Header and entries.
    fn parts(message: &Message) -> [Bytes; 2] {
        let mut parts = [Pieces::default(), Pieces::default()];
        message.encode_header(&mut parts[0]);
        message.encode_entries(&mut parts[1]);
        parts.map(Pieces::join)
    }

    /// What a leader of term 3 says to a member: entries of these terms behind position 7.
    fn append(to: u64, committed: u64, terms: &[u64]) -> Message {
        let mut raft = raft::eraftpb::Message { to, from: 1, term: 3, log_term: 2, ..Default::default() };
        raft.set_msg_type(MessageType::MsgAppend);
        (raft.index, raft.commit) = (7, committed);
        let entries = (8..).zip(terms).map(|(position, term)| {
            let payload = Bytes::from(format!("{position} of {term}"));
            Entry { position, term: *term, kind: EntryKind::Payload, payload }.to_raft().unwrap()
        });
        raft.set_entries(entries.collect());
        Message { raft: raft.into() }
    }

    #[test]
    fn one_body_of_entries_serves_the_headers_of_many() {
        let (second, third) = (append(2, 5, &[2, 3]), append(3, 7, &[2, 3]));
        assert_eq!(second.span(), Some(Span { first: 8, last: 9, term: 3 }));
        assert_eq!(second.span(), third.span());
        let ([_, entries], [header, _]) = (parts(&second), parts(&third));
        assert_ne!(header, parts(&second)[0]);
        assert_eq!(Message::decode_parts(header.clone(), third.span(), entries.clone()), Ok(third.clone()));
        assert_eq!(Message::decode([header, entries].concat().into()), Ok(third));
    }

    #[test]
    fn entries_that_do_not_belong_to_a_header_are_refused() {
        let message = append(2, 5, &[2, 3]);
        let [header, entries] = parts(&message);
        let join = |entries: &Bytes| Message::decode_parts(header.clone(), message.span(), entries.clone());
        assert_eq!(join(&entries), Ok(message.clone()));
        // Those of a leader that was replaced, fewer, more, and none.
        for terms in [&[2, 2][..], &[2], &[2, 3, 3], &[]] {
            let [_, others] = parts(&append(2, 5, terms));
            assert_eq!(join(&others), Err(DecodeError::Span), "{terms:?}");
        }
        let no_entries = Message::decode_parts(header.clone(), None, entries.clone());
        assert_eq!(no_entries, Err(DecodeError::Span));
        for cut in 0..header.len() {
            let cut = Message::decode_parts(header.slice(..cut), message.span(), entries.clone());
            assert_eq!(cut, Err(DecodeError::Short));
        }
        for cut in 0..entries.len() {
            assert_eq!(join(&entries.slice(..cut)), Err(DecodeError::Short));
        }
        let long = |bytes: &Bytes| Bytes::from([bytes, &[0][..]].concat());
        assert_eq!(join(&long(&entries)), Err(DecodeError::Long));
        let long = Message::decode_parts(long(&header), message.span(), entries.clone());
        assert_eq!(long, Err(DecodeError::Long));
    }

    #[test]
    fn only_what_appends_carries_entries_of_the_log() {
        let mut question = append(1, 0, &[0]);
        question.raft.set_msg_type(MessageType::MsgReadIndex);
        let [header, entries] = parts(&question);
        assert_eq!(question.span(), None);
        assert_eq!(Message::decode_parts(header, None, entries), Ok(question));
        assert_eq!(append(2, 5, &[]).span(), None);
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = encoded(&sample());
        let read = Message::decode(bytes.into()).unwrap();
        assert_eq!(read, sample());
        assert_eq!(read.snapshot().unwrap().members.outgoing, [5]);
    }

    /// Servers of one release after the other understand one another.
    #[test]
    fn its_bytes_are_what_they_have_always_been() {
        let hex: String = encoded(&sample()).iter().map(|byte| format!("{byte:02x}")).collect();
        let header = "05070200000000000000010000000000000003000000000000000200000000000000070000000000000006\
                      00000000000000000000000000000000000000000000000000000000000000030000007768790600000000\
                      00000002000000000000000200010000000000000002000000000000000100040000000000000001000500\
                      0000000000000000";
        let entries = "0200000000080000000000000002000000000000000b000000736f6d65207570646174650109000000000000\
                       00030000000000000009000000010400000000000000";
        assert_eq!(hex, [header, entries].concat());
        assert_eq!(encoded(&sample()), parts(&sample()).concat());
    }

    #[test]
    fn a_message_that_is_cut_or_too_long_is_refused() {
        let mut bytes = encoded(&sample());
        for len in 0..bytes.len() {
            assert!(Message::decode(Bytes::copy_from_slice(&bytes[..len])).is_err(), "cut at {len}");
        }
        bytes.push(0);
        assert_eq!(Message::decode(bytes.into()), Err(DecodeError::Long));
    }

    #[test]
    fn a_snapshot_says_who_was_taken_out() {
        let mut message = sample();
        let mut mark = message.snapshot().unwrap();
        mark.members.removed = [(3, 4), (5, 2)].into();
        message.raft.set_snapshot(mark.to_raft());
        let bytes = encoded(&message);
        assert_eq!(Message::decode(bytes.clone().into()).unwrap().snapshot(), Some(mark));
        for len in 0..bytes.len() {
            assert!(Message::decode(bytes[..len].to_vec().into()).is_err(), "cut at {len}");
        }
    }

    #[test]
    fn a_change_that_completes_itself_is_one_of_a_snapshot() {
        let mut message = sample();
        message.raft.set_msg_type(MessageType::MsgHeartbeat);
        message.raft.clear_snapshot();
        let mut bytes = encoded(&message);
        assert_eq!(Message::decode(bytes.clone().into()), Ok(message));
        bytes[1] |= codec::AUTO_LEAVE;
        assert_eq!(Message::decode(bytes.into()), Err(DecodeError::Flags(REJECT | codec::AUTO_LEAVE)));
    }

    #[test]
    fn any_flipped_bit_gives_another_message_or_an_error() {
        let bytes = encoded(&sample());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(read) = Message::decode(flipped.into()) {
                assert_ne!(read, sample(), "bit {bit}");
            }
        }
    }

    #[test]
    fn a_count_is_not_believed_before_the_bytes_are_there() {
        let mut raft = raft::eraftpb::Message { to: 1, from: 2, ..Default::default() };
        raft.set_msg_type(MessageType::MsgAppend);
        let mut bytes = encoded(&Message { raft: raft.into() });
        let at = bytes.len() - 4;
        bytes[at..].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Message::decode(bytes.into()), Err(DecodeError::Short));
    }
}
