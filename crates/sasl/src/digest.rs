//! DIGEST-MD5 (RFC 2831) as the JDK's server does it for ZooKeeper: initial authentication only, `auth` only.

mod directives;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use subtle::ConstantTimeEq;

use crate::Secret;
use directives::Directives;

/// The server's name and its only realm: ZooKeeper has it in the source of server and clients.
const REALM: &str = "zk-sasl-md5";

/// What the client has to say it wants to reach, in letters of either case.
const DIGEST_URI: &str = "zookeeper/zk-sasl-md5";

/// The JDK takes no more, in bytes.
const RESPONSE_BYTES_MAX: usize = 4096;

/// Names and passwords.
pub(crate) type Users = std::collections::BTreeMap<String, Secret>;

/// An exchange after the challenge.
pub(crate) struct Challenged {
    nonce: String,
}

/// What a client has proved.
pub(crate) struct Proved {
    /// Its user name.
    pub(crate) name: String,
    /// `rspauth`, by which the client knows that the server has the password too.
    pub(crate) token: Vec<u8>,
}

impl Challenged {
    /// Begins an exchange: the challenge, with directives in the order in which the JDK has them. It names no `qop`,
    /// which is `auth`.
    pub(crate) fn begin(random: [u8; 32]) -> (Self, Vec<u8>) {
        let nonce = STANDARD.encode(random);
        let challenge = format!("realm=\"{REALM}\",nonce=\"{nonce}\",charset=utf-8,algorithm=md5-sess");
        (Self { nonce }, challenge.into_bytes())
    }

    /// Checks the response. The nonce is good for this one, so no nonce count but the first can be right.
    ///
    /// # Errors
    /// What is wrong with it, without a secret.
    pub(crate) fn finish(self, response: &[u8], users: &Users) -> Result<Proved, String> {
        if response.len() > RESPONSE_BYTES_MAX {
            return Err(format!(
                "the digest-response has {} bytes, more than {RESPONSE_BYTES_MAX}",
                response.len()
            ));
        }
        let directives = Directives::parse(response)?;
        self.check(&directives)?;
        let name = core::str::from_utf8(directives.needed("username")?)
            .map_err(|_| "the user's name is not UTF-8".to_owned())?;
        let known = users.get(name);
        // Who is not known takes as long.
        let secret = known.map_or("", Secret::reveal);
        let proof = Proof {
            start: start(name, secret),
            nonce: &self.nonce,
            cnonce: directives.needed("cnonce")?,
            authzid: directives.get("authzid"),
            digest_uri: directives.needed("digest-uri")?,
        };
        let expected = proof.value("AUTHENTICATE");
        let same = bool::from(expected.as_bytes().ct_eq(directives.needed("response")?));
        if known.is_none() {
            return Err(format!("there is no user {}", crate::shown(name)));
        }
        if !same {
            return Err(format!("the password of user {} is another one", crate::shown(name)));
        }
        let token = format!("rspauth={}", proof.value("")).into_bytes();
        Ok(Proved { name: name.to_owned(), token })
    }

    /// Checks what does not depend on the user.
    fn check(&self, directives: &Directives) -> Result<(), String> {
        if directives.get("charset").is_some_and(|charset| charset != b"utf-8") {
            return Err("the charset is another one than utf-8".to_owned());
        }
        if directives.get("realm") != Some(REALM.as_bytes()) {
            return Err(format!("the realm is another one than {REALM}"));
        }
        if !bool::from(directives.needed("nonce")?.ct_eq(self.nonce.as_bytes())) {
            return Err("the nonce is another one than the server's".to_owned());
        }
        if directives.get("nc").is_some_and(|count| count != b"00000001") {
            return Err("the nonce count is another one than 00000001".to_owned());
        }
        if directives.get("qop").is_some_and(|qop| qop != b"auth") {
            return Err("the quality of protection is another one than auth".to_owned());
        }
        if !directives.needed("digest-uri")?.eq_ignore_ascii_case(DIGEST_URI.as_bytes()) {
            return Err(format!("the digest-uri is another one than {DIGEST_URI}"));
        }
        Ok(())
    }
}

/// What the values of a client and of a server are made of (RFC 2831 section 2.1.2.1).
struct Proof<'a> {
    /// H(user : realm : password)
    start: [u8; 16],
    nonce: &'a str,
    cnonce: &'a [u8],
    authzid: Option<&'a [u8]>,
    digest_uri: &'a [u8],
}

impl Proof<'_> {
    /// The value in hexadecimal, with the name of the method for a client and without for the server.
    fn value(&self, method: &str) -> String {
        let mut first = Md5::new();
        first.update(self.start);
        for part in [Some(self.nonce.as_bytes()), Some(self.cnonce), self.authzid].into_iter().flatten() {
            first.update(b":");
            first.update(part);
        }
        let mut second = Md5::new();
        second.update(method);
        second.update(b":");
        second.update(self.digest_uri);
        let mut whole = Md5::new();
        whole.update(hex(&first.finalize()));
        whole.update(b":");
        whole.update(self.nonce);
        whole.update(b":00000001:");
        whole.update(self.cnonce);
        whole.update(b":auth:");
        whole.update(hex(&second.finalize()));
        hex(&whole.finalize())
    }
}

fn start(name: &str, secret: &str) -> [u8; 16] {
    let mut hash = Md5::new();
    hash.update(narrow(name));
    hash.update(b":");
    hash.update(REALM);
    hash.update(b":");
    hash.update(narrow(secret));
    hash.finalize().into()
}

/// A text in ISO 8859-1 if it can be, else in UTF-8, whether or not the client has said `charset`: as the JDK does.
fn narrow(text: &str) -> Vec<u8> {
    let narrow: Result<Vec<u8>, _> = text.chars().map(|it| u8::try_from(u32::from(it))).collect();
    narrow.unwrap_or_else(|_| text.as_bytes().to_vec())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
