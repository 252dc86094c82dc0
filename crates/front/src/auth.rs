//! Who a client is.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use base64::Engine;
use core::net::IpAddr;
use sha1::{Digest, Sha1};
use stoa_tree::Identity;
use stoa_wire::{Opcode, Reader, Request, RequestHeader};

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
    /// SHA-3 with 224 bits.
    Sha3With224,
    /// SHA-3 with 256 bits.
    Sha3With256,
    /// SHA-3 with 384 bits.
    Sha3With384,
    /// SHA-3 with 512 bits.
    Sha3With512,
}

/// How clients prove who they are, and whether they have to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authentication {
    /// Whether there is the digest scheme.
    pub has_digest: bool,
    /// The hash behind it.
    pub digest: DigestAlgorithm,
    /// `user:base64(hash(user:password))` of the super user.
    pub super_digest: Option<String>,
    /// What the ensemble is called: a client that names another one is turned away. Empty where nobody asks.
    pub ensemble_names: Vec<String>,
    /// Whether the driver answers tokens of SASL.
    pub has_sasl: bool,
    /// Whether a client is kept that has failed to prove who it is by SASL.
    pub allows_failed_sasl: bool,
    /// With an identity of one of these schemes a client is served; all are where there are none here.
    pub demands: Vec<String>,
    /// Whether the driver wants to know who has changed what, by [`crate::Connections::poll_audit`].
    pub is_audited: bool,
}

impl Default for Authentication {
    fn default() -> Self {
        Self {
            has_digest: true,
            digest: DigestAlgorithm::default(),
            super_digest: None,
            ensemble_names: Vec::new(),
            has_sasl: false,
            allows_failed_sasl: false,
            demands: Vec::new(),
            is_audited: false,
        }
    }
}

impl Authentication {
    /// Whether nobody is served but by SASL.
    pub(crate) fn demands_sasl(&self) -> bool {
        self.demands.iter().any(|scheme| scheme == "sasl")
    }

    /// Whether a client of these identities is served.
    #[must_use]
    pub fn is_met_by(&self, identities: &[Identity]) -> bool {
        self.demands.is_empty() || identities.iter().any(|identity| self.demands.contains(&identity.scheme))
    }

    /// Checks an auth packet: the identities it proves, or `None` when it proves nothing. The digest of
    /// the super user proves `super` as well.
    #[must_use]
    pub fn check(&self, scheme: &str, auth: &[u8], address: IpAddr) -> Option<Vec<Identity>> {
        match scheme {
            _ if auth.len() > AUTH_BYTES_MAX => None,
            "digest" if self.has_digest => {
                let id = self.digest.id(core::str::from_utf8(auth).ok()?);
                let is_super = self.super_digest.as_ref().is_some_and(|digest| *digest == id);
                let rank = is_super.then(|| Identity { scheme: "super".into(), id: String::new() });
                Some(rank.into_iter().chain([Identity { scheme: "digest".into(), id }]).collect())
            }
            "ip" => Some(vec![by_address(address)]),
            // Who names nothing is asked nothing, as in ZooKeeper (`EnsembleAuthenticationProvider`).
            "ensemble" if !self.ensemble_names.is_empty() => {
                let is_ours =
                    auth.is_empty() || self.ensemble_names.iter().any(|name| name.as_bytes() == auth);
                is_ours.then(Vec::new)
            }
            _ => None,
        }
    }
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
            Self::Sha3With224 => base64_of::<sha3::Sha3_224>(user_password),
            Self::Sha3With256 => base64_of::<sha3::Sha3_256>(user_password),
            Self::Sha3With384 => base64_of::<sha3::Sha3_384>(user_password),
            Self::Sha3With512 => base64_of::<sha3::Sha3_512>(user_password),
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
        let proves_super = |digest| {
            let of =
                Authentication { digest, super_digest: Some(sha256.into()), ..Authentication::default() };
            of.check("digest", b"super:test", address).unwrap().len() == 2
        };
        assert!(proves_super(DigestAlgorithm::Sha256));
        assert!(!proves_super(DigestAlgorithm::Sha1));
        // As Java's MessageDigest computes it.
        assert_eq!(
            DigestAlgorithm::Sha3With256.id("super:test"),
            "super:cRy/KPYuDpW/dtsepniTMpuiuupnWgdU9txltIfv3hA="
        );
    }

    #[test]
    fn unknown_schemes_prove_nothing() {
        let address = "127.0.0.1".parse().unwrap();
        let of = Authentication::default();
        assert!(of.check("kerberos", b"x", address).is_none());
        assert!(of.check("digest", b"\xff", address).is_none());
        assert!(of.check("ensemble", b"ours", address).is_none());
        let of = Authentication { has_digest: false, ensemble_names: vec!["ours".into()], ..of };
        assert!(of.check("digest", b"a:b", address).is_none());
        assert_eq!(of.check("ensemble", b"ours", address), Some(vec![]));
        assert_eq!(of.check("ensemble", b"", address), Some(vec![]));
        assert!(of.check("ensemble", b"theirs", address).is_none());
    }
}
