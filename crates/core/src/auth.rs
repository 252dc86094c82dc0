//! Who a client is.

use alloc::format;
use alloc::string::{String, ToString};
use base64::Engine;
use core::net::IpAddr;
use sha1::{Digest, Sha1};
use stoa_tree::Identity;

/// The identity `user:base64(sha1(user:password))` that ZooKeeper's digest scheme gives to
/// `user:password`.
#[must_use]
pub fn digest_id(user_password: &str) -> String {
    let user = user_password.split_once(':').map_or(user_password, |(user, _)| user);
    let hash = Sha1::digest(user_password.as_bytes());
    format!("{user}:{}", base64::engine::general_purpose::STANDARD.encode(hash))
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
    super_digest: Option<&str>,
) -> Option<(Option<Identity>, Identity)> {
    match scheme {
        "digest" => {
            let id = digest_id(core::str::from_utf8(auth).ok()?);
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
    fn unknown_schemes_prove_nothing() {
        let address = "127.0.0.1".parse().unwrap();
        assert!(authenticate("kerberos", b"x", address, None).is_none());
        assert!(authenticate("digest", b"\xff", address, None).is_none());
    }
}
