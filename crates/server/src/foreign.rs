//! Protocols that are not spoken on a port, by the first bytes that somebody sends there.

use std::fmt;

/// What somebody speaks who has come to the wrong port, or whose settings say something else than ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    Tls,
    Http,
}

/// What requests begin with; the last one is HTTP/2.
const HTTP_METHODS: [&[u8; 4]; 10] =
    [b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"CONN", b"OPTI", b"TRAC", b"PATC", b"PRI "];
/// A record of TLS that belongs to a handshake, of whatever version since SSL 3.
const TLS_HANDSHAKE: [u8; 2] = [22, 3];

impl Foreign {
    /// What these may be the beginning of. Neither a handshake of this server's clients nor one of other servers
    /// begins so: as lengths they would be far out of range.
    pub(crate) fn of(first: &[u8]) -> Option<Self> {
        if first.starts_with(&TLS_HANDSHAKE) {
            return Some(Self::Tls);
        }
        HTTP_METHODS.iter().any(|method| first.starts_with(&method[..])).then_some(Self::Http)
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls => "TLS",
            Self::Http => "HTTP",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_speak_is_known_by_its_first_bytes() {
        // A ClientHello as it comes from openssl and from browsers.
        assert_eq!(Foreign::of(&[22, 3, 1, 2, 0, 1]), Some(Foreign::Tls));
        assert_eq!(Foreign::of(&[22, 3]), Some(Foreign::Tls));
        for line in ["GET / HTTP/1.1", "HEAD / HTTP/1.1", "OPTIONS * HTTP/1.1", "PRI * HTTP/2.0"] {
            assert_eq!(Foreign::of(line.as_bytes()), Some(Foreign::Http), "{line}");
        }
        // Handshakes of clients and of servers, words, and what is too short to tell.
        for other in [&[0, 0, 0, 45][..], &[88, 0, 0, 0], b"srvr", b"GET", &[22], &[]] {
            assert_eq!(Foreign::of(other), None, "{other:?}");
        }
    }
}
