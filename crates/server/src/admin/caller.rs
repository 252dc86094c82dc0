//! Who asks, and whether he may change something.
//!
//! As in ZooKeeper 3.9, whoever changes something needs all permissions on the root of the tree. He is known by the
//! address that he connects from, by the certificate that he shows, and by what he proves with
//! `Authorization: SCHEME PROOF`. Unlike ZooKeeper's, address and certificate count without that header too, so a tree
//! that is open to everybody takes no header; and all permissions means each of the five, where ZooKeeper is content
//! with any of them.

use std::fmt;
use std::net::SocketAddr;

use axum::http::{HeaderMap, StatusCode, header};
use stoa_core::by_address;
use stoa_tree::Identity;

use super::Refusal;
use crate::config::Settings;

/// Whoever has sent a request.
#[derive(Debug)]
pub(super) struct AdminCaller {
    address: SocketAddr,
    /// What he has proved to be, his address among it.
    identities: Vec<Identity>,
    /// Whether there is more than the address.
    has_proved: bool,
}

impl AdminCaller {
    pub(super) fn identities(&self) -> &[Identity] {
        &self.identities
    }

    /// Why he may not, when his identities are not enough: 401 when he has shown none, else 403, as in ZooKeeper.
    pub(super) fn refusal(&self) -> Refusal {
        if self.has_proved {
            (StatusCode::FORBIDDEN, "Not authorized: it takes all permissions on /".to_owned())
        } else {
            let why = "Auth info is missing for the command: it takes all permissions on /, by the address, a \
                       certificate or the header `Authorization: digest USER:PASSWORD`";
            (StatusCode::UNAUTHORIZED, why.to_owned())
        }
    }
}

impl fmt::Display for AdminCaller {
    /// Without what is a digest of a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        for Identity { scheme, id } in self.identities.iter().filter(|identity| identity.scheme != "ip") {
            let name = if scheme == "digest" { id.split(':').next().unwrap_or_default() } else { id };
            write!(f, ", {scheme}:{}", name.escape_debug())?;
        }
        Ok(())
    }
}

/// Who has sent a request with these headers from this address.
///
/// # Errors
/// The header `Authorization` is there and proves nothing: 401, as in ZooKeeper. The schemes are `digest`, `ip` and
/// `x509`; the last is `shown`, what the certificate of the connection proves, which counts without the header too.
pub(super) fn caller(
    settings: &Settings,
    address: SocketAddr,
    headers: &HeaderMap,
    shown: &[Identity],
) -> Result<AdminCaller, Refusal> {
    let ip = address.ip();
    let mut identities = vec![by_address(ip)];
    identities.extend_from_slice(shown);
    let mut proofs = headers.get_all(header::AUTHORIZATION).iter();
    let Some(proof) = proofs.next() else {
        return Ok(AdminCaller { address, identities, has_proved: !shown.is_empty() });
    };
    let unproven = || (StatusCode::UNAUTHORIZED, "Not authenticated".to_owned());
    if proofs.next().is_some() {
        return Err(unproven());
    }
    let mut parts = proof.as_bytes().splitn(2, |byte| *byte == b' ');
    let scheme = parts.next().and_then(|scheme| str::from_utf8(scheme).ok()).ok_or_else(unproven)?;
    let auth = parts.next();
    if scheme == "x509" && !shown.is_empty() {
        return Ok(AdminCaller { address, identities, has_proved: true });
    }
    if scheme == "digest" && auth.is_none() {
        return Err(unproven());
    }
    let proved = settings.authentication().check(scheme, auth.unwrap_or_default(), ip);
    let proved = proved.filter(|proved| !proved.is_empty()).ok_or_else(unproven)?;
    identities.extend(proved.into_iter().filter(|own| own.scheme != "ip"));
    Ok(AdminCaller { address, identities, has_proved: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(authorization: &[&str]) -> Result<AdminCaller, u16> {
        let super_digest = Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned());
        let settings = Settings { super_digest, ..Settings::default() };
        let mut headers = HeaderMap::new();
        for value in authorization {
            headers.append(header::AUTHORIZATION, value.parse().unwrap());
        }
        let address = "[::ffff:192.0.2.1]:7".parse().unwrap();
        caller(&settings, address, &headers, &[]).map_err(|(status, _)| status.as_u16())
    }

    fn names(caller: &AdminCaller) -> Vec<String> {
        let name = |Identity { scheme, id }: &Identity| format!("{scheme}:{id}");
        caller.identities().iter().map(name).collect()
    }

    #[test]
    fn the_address_always_counts_and_a_proof_besides() {
        let nobody = of(&[]).unwrap();
        assert_eq!(names(&nobody), ["ip:192.0.2.1"]);
        assert_eq!(nobody.refusal().0, 401);
        let bob = of(&["digest bob:a b"]).unwrap();
        assert_eq!(
            names(&bob),
            ["ip:192.0.2.1".to_owned(), format!("digest:{}", stoa_core::digest_id("bob:a b"))]
        );
        assert_eq!(bob.refusal().0, 403);
        assert_eq!(bob.to_string(), "[::ffff:192.0.2.1]:7, digest:bob", "no digest of a password is told");
        let first = of(&["digest super:test"]).unwrap();
        assert_eq!(names(&first)[1], "super:");
        let by_address = of(&["ip"]).unwrap();
        assert_eq!((names(&by_address).len(), by_address.refusal().0.as_u16()), (1, 403));
    }

    #[test]
    fn what_proves_nothing_is_refused() {
        let long = format!("digest a:{}", "x".repeat(8 << 10));
        for wrong in ["", "digest", "Basic YTpi", "x509", "super super:test", "digest\tbob:x", &long] {
            assert_eq!(of(&[wrong]).unwrap_err(), 401, "{wrong:?}");
        }
        assert_eq!(of(&["digest a:b", "digest super:test"]).unwrap_err(), 401);
    }
}
