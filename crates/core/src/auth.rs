//! Who a client is.

use alloc::format;
use alloc::string::{String, ToString};
use base64::Engine;
use core::net::IpAddr;
use sha1::{Digest, Sha1};
use stoa_tree::Identity;
use stoa_wire::{Opcode, Reader, Request, RequestHeader};

/// Identities that one connection can hold, that of its address among them: each costs a comparison per ACL check,
/// and all go along with its writes. A packet that would prove more of them is refused.
pub(crate) const IDENTITIES_MAX: usize = 64;

/// Bytes of all of them: they go along with each request that is forwarded.
pub(crate) const IDENTITIES_BYTES_MAX: usize = 16 << 10;

/// The longest data of an auth packet, bytes: what somebody is called is held. More of it proves nothing.
pub(crate) const AUTH_BYTES_MAX: usize = 4 << 10;

/// Not an identity: with this scheme a client of any kind says how new what it reads must be. Each read
/// of a linearizable connection is as if a sync stood before it.
pub(crate) const CONSISTENCY: &str = "consistency";
pub(crate) const LINEARIZABLE: &[u8] = b"linearizable";
pub(crate) const SEQUENTIAL: &[u8] = b"sequential";

/// The hash behind the digest scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DigestAlgorithm {
    /// ZooKeeper's default; what almost every client library computes.
    #[default]
    Sha1,
    /// SHA-2 with 224 bits.
    Sha224,
    /// SHA-2 with 256 bits.
    Sha256,
    /// SHA-2 with 384 bits.
    Sha384,
    /// SHA-2 with 512 bits.
    Sha512,
}

impl DigestAlgorithm {
    /// The identity `user:base64(hash(user:password))` that the digest scheme gives to
    /// `user:password`.
    #[must_use]
    pub fn id(self, user_password: &str) -> String {
        fn base64_of<D: Digest>(text: &str) -> String {
            base64::engine::general_purpose::STANDARD.encode(D::digest(text.as_bytes()))
        }
        let user = user_password.split_once(':').map_or(user_password, |(user, _)| user);
        let hash = match self {
            Self::Sha1 => base64_of::<Sha1>(user_password),
            Self::Sha224 => base64_of::<sha2::Sha224>(user_password),
            Self::Sha256 => base64_of::<sha2::Sha256>(user_password),
            Self::Sha384 => base64_of::<sha2::Sha384>(user_password),
            Self::Sha512 => base64_of::<sha2::Sha512>(user_password),
        };
        format!("{user}:{hash}")
    }
}

/// The identity that the digest scheme gives to `user:password` unless another hash is set.
#[must_use]
pub fn digest_id(user_password: &str) -> String {
    DigestAlgorithm::Sha1.id(user_password)
}

/// What an auth packet says that is not known of everybody: the same if it says the same, or takes back what the other
/// says.
pub(crate) fn proof(frame: &[u8]) -> Option<(&str, &[u8])> {
    let mut reader = Reader::new(frame);
    RequestHeader::decode(&mut reader).ok()?;
    match Request::decode(Opcode::Auth, &mut reader).ok()? {
        Request::Auth { scheme: "digest", auth } if auth.len() <= AUTH_BYTES_MAX => Some(("digest", auth)),
        Request::Auth { scheme: CONSISTENCY, auth: LINEARIZABLE | SEQUENTIAL } => Some((CONSISTENCY, b"")),
        _ => None,
    }
}

/// What every connection may call itself from the start.
#[must_use]
pub fn by_address(address: IpAddr) -> Identity {
    Identity { scheme: "ip".into(), id: address.to_canonical().to_string() }
}

/// Checks an auth packet: the identities it proves, or `None` when it proves nothing. The digest of
/// the super user proves `super` as well, which comes first.
#[must_use]
pub fn authenticate(
    scheme: &str,
    auth: &[u8],
    address: IpAddr,
    algorithm: DigestAlgorithm,
    super_digest: Option<&str>,
) -> Option<(Option<Identity>, Identity)> {
    match scheme {
        _ if auth.len() > AUTH_BYTES_MAX => None,
        "digest" => {
            let id = algorithm.id(core::str::from_utf8(auth).ok()?);
            let is_super = super_digest.is_some_and(|digest| digest == id);
            let rank = is_super.then(|| Identity { scheme: "super".into(), id: String::new() });
            Some((rank, Identity { scheme: "digest".into(), id }))
        }
        "ip" => Some((None, by_address(address))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_that_of_zookeeper() {
        // From ZooKeeper's administrator's guide.
        assert_eq!(digest_id("super:test"), "super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
        assert_eq!(digest_id("bob:bobspassword").split(':').next(), Some("bob"));
    }

    #[test]
    fn other_hashes_give_other_identities() {
        let sha256 = "super:wjySwxg860UATFtciuZ1lpzrCHrPeov6SPu/ZD56uig=";
        assert_eq!(DigestAlgorithm::Sha256.id("super:test"), sha256);
        let address = "127.0.0.1".parse().unwrap();
        let proves_super = |algorithm| {
            let (rank, _) = authenticate("digest", b"super:test", address, algorithm, Some(sha256)).unwrap();
            rank.is_some()
        };
        assert!(proves_super(DigestAlgorithm::Sha256));
        assert!(!proves_super(DigestAlgorithm::Sha1));
    }

    #[test]
    fn unknown_schemes_prove_nothing() {
        let address = "127.0.0.1".parse().unwrap();
        assert!(authenticate("kerberos", b"x", address, DigestAlgorithm::Sha1, None).is_none());
        assert!(authenticate("digest", b"\xff", address, DigestAlgorithm::Sha1, None).is_none());
    }
}
