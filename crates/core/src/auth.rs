//! Who a client is.

use alloc::format;
use alloc::string::{String, ToString};
use base64::Engine;
use core::net::IpAddr;
use sha1::{Digest, Sha1};
use stoa_tree::Identity;

/// Identities that one connection can hold: each costs a comparison per ACL check.
pub(crate) const IDENTITIES_MAX: usize = 64;

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

/// What every connection may call itself from the start.
pub(crate) fn by_address(address: IpAddr) -> Identity {
    Identity { scheme: "ip".into(), id: address.to_canonical().to_string() }
}

/// Checks an auth packet: the identities it proves, or `None` when it proves nothing. The digest of
/// the super user proves `super` as well.
pub(crate) fn authenticate(
    scheme: &str,
    auth: &[u8],
    address: IpAddr,
    algorithm: DigestAlgorithm,
    super_digest: Option<&str>,
) -> Option<(Option<Identity>, Identity)> {
    match scheme {
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
