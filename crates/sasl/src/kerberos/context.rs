//! Per-message tokens of RFC 4121: wrapped, but not sealed, which is all that SASL without a security layer needs.

use picky_krb::constants::key_usages::{ACCEPTOR_SEAL, INITIATOR_SEAL};
use picky_krb::crypto::CipherSuite;
use subtle::ConstantTimeEq;

const HEADER_BYTES: usize = 16;
const TOKEN_ID: [u8; 2] = [5, 4];
const SENT_BY_ACCEPTOR: u8 = 1;
const SEALED: u8 = 2;
const ACCEPTOR_SUBKEY: u8 = 4;

/// What client and server have agreed upon.
pub(crate) struct Context {
    suite: CipherSuite,
    key: Vec<u8>,
    /// That of the flags of all tokens which says whose key it is: the server has made it, or not.
    key_flag: u8,
    /// The number of the next token of each.
    own_number: u32,
    client_number: u32,
}

impl Context {
    pub(super) fn new(suite: CipherSuite, key: Vec<u8>, own_number: u32, client_number: u32) -> Self {
        Self { suite, key, key_flag: 0, own_number, client_number }
    }

    /// The same with a key that the server has made: both have to use it then (RFC 4121, 2).
    pub(super) fn with_own_key(self) -> Self {
        Self { key_flag: ACCEPTOR_SUBKEY, ..self }
    }

    /// Wraps what is for the client.
    pub(crate) fn wrap(&mut self, payload: &[u8]) -> Result<Vec<u8>, String> {
        let mut header = header(SENT_BY_ACCEPTOR | self.key_flag, self.own_number);
        self.own_number = self.own_number.wrapping_add(1);
        let checksum = self.checksum(ACCEPTOR_SEAL, payload, &header)?;
        header[5] = u8::try_from(checksum.len()).map_err(|_| "a checksum is too long".to_owned())?;
        Ok([&header[..], payload, &checksum].concat())
    }

    /// Unwraps what the client has wrapped. It has to be the next of its tokens.
    pub(crate) fn unwrap(&mut self, token: &[u8]) -> Result<Vec<u8>, String> {
        let (header, body) = token
            .split_first_chunk::<HEADER_BYTES>()
            .filter(|(header, _)| header[..2] == TOKEN_ID && header[3] == 0xff)
            .ok_or("the client's answer is no wrap token of RFC 4121")?;
        let flags = header[2];
        if flags & SENT_BY_ACCEPTOR != 0 {
            return Err("the client's wrap token says that it is the server's".to_owned());
        }
        if flags & (SEALED | ACCEPTOR_SUBKEY) != self.key_flag {
            return Err(
                "the client's wrap token is sealed, or made with a key that was not agreed upon".to_owned()
            );
        }
        let short = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
        let (checksum_bytes, rotation) = (short(4), short(6));
        let mut body = body.to_vec();
        if !body.is_empty() {
            let rotation = rotation % body.len();
            body.rotate_left(rotation);
        }
        let payload_bytes =
            body.len().checked_sub(checksum_bytes).ok_or("the client's wrap token is too short")?;
        let (payload, checksum) = body.split_at(payload_bytes);
        let mut plain = *header;
        plain[4..8].fill(0);
        let expected = self.checksum(INITIATOR_SEAL, payload, &plain)?;
        if !bool::from(expected.as_slice().ct_eq(checksum)) {
            return Err("the client's wrap token was changed, or made with another key".to_owned());
        }
        if header[8..12] != [0; 4] || header[12..] != self.client_number.to_be_bytes() {
            return Err("the client's wrap token is not the next one of this exchange".to_owned());
        }
        self.client_number = self.client_number.wrapping_add(1);
        Ok(payload.to_vec())
    }

    /// The checksum over a payload and a header whose counts are 0.
    fn checksum(&self, usage: i32, payload: &[u8], header: &[u8; HEADER_BYTES]) -> Result<Vec<u8>, String> {
        let hasher = self.suite.cipher().checksum_type().hasher();
        hasher.checksum(&self.key, usage, &[payload, header].concat()).map_err(|error| error.to_string())
    }
}

/// A header whose counts are 0.
fn header(flags: u8, number: u32) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..2].copy_from_slice(&TOKEN_ID);
    header[2] = flags;
    header[3] = 0xff;
    header[12..].copy_from_slice(&number.to_be_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context {
        Context::new(CipherSuite::Aes256CtsHmacSha196, vec![3; 32], 9, 7)
    }

    /// A token of the client.
    fn token(flags: u8, number: u32, rotation: u16) -> Vec<u8> {
        let mut header = header(flags, number);
        let checksum = context().checksum(INITIATOR_SEAL, b"payload", &header).unwrap();
        header[5] = 12;
        header[6..8].copy_from_slice(&rotation.to_be_bytes());
        let mut body = [&b"payload"[..], &checksum].concat();
        let count = usize::from(rotation) % body.len();
        body.rotate_right(count);
        [&header[..], &body].concat()
    }

    #[test]
    fn tokens_are_unwrapped_however_they_are_turned() {
        for rotation in [0, 1, 12, 18, 19, 65_535] {
            assert_eq!(context().unwrap(&token(0, 7, rotation)).unwrap(), b"payload");
        }
    }

    #[test]
    fn what_is_not_the_next_token_is_refused() {
        let mut context = context();
        assert!(context.unwrap(&token(0, 8, 0)).unwrap_err().contains("next one"));
        context.unwrap(&token(0, 7, 0)).unwrap();
        assert!(context.unwrap(&token(0, 7, 0)).is_err());
        context.unwrap(&token(0, 8, 0)).unwrap();
        for flags in 1..8 {
            assert!(context.unwrap(&token(flags, 9, 0)).is_err(), "{flags}");
        }
    }

    #[test]
    fn who_was_given_a_key_has_to_use_it() {
        let context = || context().with_own_key();
        assert_eq!(context().unwrap(&token(ACCEPTOR_SUBKEY, 7, 0)).unwrap(), b"payload");
        for flags in (0..8).filter(|flags| *flags != ACCEPTOR_SUBKEY) {
            assert!(context().unwrap(&token(flags, 7, 0)).is_err(), "{flags}");
        }
        assert_eq!(context().wrap(b"").unwrap()[2], SENT_BY_ACCEPTOR | ACCEPTOR_SUBKEY);
    }

    #[test]
    fn each_byte_is_looked_at() {
        let good = token(0, 7, 5);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(context().unwrap(&bad).is_err(), "{at}");
            assert!(context().unwrap(&good[..at]).is_err(), "{at}");
        }
    }

    #[test]
    fn own_tokens_are_numbered() {
        let mut context = context();
        let first = context.wrap(&[1, 0, 0, 0]).unwrap();
        assert_eq!(first.len(), 16 + 4 + 12);
        assert_eq!(first[..20], [5, 4, 1, 255, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 1, 0, 0, 0]);
        assert_eq!(context.wrap(b"").unwrap()[15], 10);
    }
}
