//! The acceptor's side of Kerberos in GSS-API (RFC 4120, RFC 4121): who has sent a ticket for this service.
//!
//! Keys and checksums are those of `picky-krb`; the messages are read here, strictly, as they come from anybody.

mod context;
mod der;
mod keytab;
mod message;
mod replay;

use core::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use picky_krb::constants::key_usages::{AP_REP_ENC, AP_REQ_AUTHENTICATOR, TICKET_REP};
use picky_krb::crypto::CipherSuite;
use subtle::ConstantTimeEq;

use crate::shown;
pub(crate) use context::Context;
use keytab::Key;
use message::{ApReq, Authenticator, Encrypted, Ticket};
use replay::Replays;
pub use replay::Taken;

/// By how much clocks may differ, in seconds: RFC 4120 and all that follow it say five minutes.
const SKEW_S: i64 = 300;

/// What a client wants of GSS-API (RFC 4121 section 4.1.1.1).
const MUTUAL: u32 = 0x02;
const DCE_STYLE: u32 = 0x1000;

/// Flags of a ticket (RFC 4120 section 5.3).
const INVALID: u32 = 1 << 24;
const TRANSIT_CHECKED: u32 = 1 << 19;

/// A message is not of its grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Malformed;

/// A name in a realm.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Principal {
    parts: Vec<String>,
    realm: String,
}

impl Principal {
    /// A name as people write it. Without a realm, that is empty.
    fn parse(text: &str) -> Self {
        let (parts, realm) = text.rsplit_once('@').unwrap_or((text, ""));
        Self { parts: parts.split('/').map(str::to_owned).collect(), realm: realm.to_owned() }
    }

    /// The name as ACLs and rules know it.
    ///
    /// # Errors
    /// When a part has a separator in it: then the text could be another one's.
    fn text(&self) -> Result<String, String> {
        let bad = |part: &String| {
            part.is_empty() || part.contains(['/', '@', '\\']) || part.contains(char::is_control)
        };
        if self.parts.is_empty() || self.parts.iter().chain([&self.realm]).any(bad) {
            return Err(format!(
                "the client's name {} has a separator in one of its parts",
                shown(&self.to_string())
            ));
        }
        Ok(self.to_string())
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@{}", self.parts.join("/"), self.realm)
    }
}

/// A service with its keys.
pub(crate) struct Service {
    principal: Principal,
    keys: Vec<(Key, CipherSuite)>,
    replays: Mutex<Replays>,
}

/// A client that has proved who it is.
pub(crate) struct Accepted {
    /// Its name with the realm.
    pub(crate) name: String,
    pub(crate) context: Context,
    /// What it has to be answered, when it wants proof of the server.
    pub(crate) reply: Option<Vec<u8>>,
}

impl Service {
    /// Takes the keys of a principal from a keytab. Without a realm the principal is the only one of that name. What was
    /// `taken` before is not taken again.
    ///
    /// # Errors
    /// When there is none that can be used.
    pub(crate) fn new(keytab: &[u8], principal: &str, taken: Vec<Taken>) -> Result<Self, String> {
        let mut wanted = Principal::parse(principal);
        let all = keytab::read(keytab)?;
        let is_wanted = |key: &Key| {
            key.principal.parts == wanted.parts
                && (wanted.realm.is_empty() || key.principal.realm == wanted.realm)
        };
        let (mine, others): (Vec<Key>, Vec<Key>) = all.into_iter().partition(is_wanted);
        let Some(first) = mine.first() else {
            let mut names: Vec<_> = others.iter().map(|key| key.principal.to_string()).collect();
            names.dedup();
            names.truncate(10);
            return Err(format!("the keytab has no key of {principal}, only of {names:?}"));
        };
        wanted.realm.clone_from(&first.principal.realm);
        if let Some(other) = mine.iter().find(|key| key.principal != wanted) {
            return Err(format!("the keytab has {wanted} and {}: say which realm", other.principal));
        }
        let types: Vec<_> = mine.iter().map(|key| etype_name(key.etype)).collect();
        let mut keys: Vec<_> =
            mine.into_iter().filter_map(|key| suite(&key).map(|suite| (key, suite))).collect();
        if keys.is_empty() {
            return Err(format!(
                "the keytab has no key of {wanted} that can be used: aes256-cts-hmac-sha1-96 and \
                 aes128-cts-hmac-sha1-96 can, and it has {types:?}"
            ));
        }
        keys.sort_by_key(|(key, _)| core::cmp::Reverse(key.version));
        Ok(Self { principal: wanted, keys, replays: Mutex::new(Replays::new(taken)) })
    }

    fn replays(&self) -> MutexGuard<'_, Replays> {
        self.replays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was taken since somebody asked last, one at a time.
    pub(crate) fn poll_taken(&self) -> Option<Taken> {
        self.replays().poll()
    }

    pub(crate) fn realm(&self) -> &str {
        &self.principal.realm
    }

    /// Takes the first token of a client: a ticket for this service, and that it is the client's.
    ///
    /// # Errors
    /// Why it is nobody.
    pub(crate) fn accept(&self, token: &[u8], now_ms: u64, random: [u8; 32]) -> Result<Accepted, String> {
        let request = ApReq::parse(token)?;
        let (ticket, session) = self.open(&request)?;
        let sealed = request.authenticator;
        let plain = decrypt(&session, &ticket.key, AP_REQ_AUTHENTICATOR, sealed).map_err(|error| {
            format!("the authenticator does not open with the key of the ticket: {error}")
        })?;
        let authenticator =
            Authenticator::parse(&plain).map_err(|_| "the authenticator is malformed".to_owned())?;
        if authenticator.client != ticket.client {
            return Err("the ticket is another one's than the authenticator".to_owned());
        }
        let now_s = i64::try_from(now_ms / 1000).unwrap_or(i64::MAX);
        self.check_times(&ticket, &authenticator, now_s)?;
        check_ticket(&ticket, self.realm())?;
        if authenticator.gss_flags & DCE_STYLE != 0 {
            return Err("the client wants an exchange in the way of DCE".to_owned());
        }
        let name = ticket.client.text()?;
        self.replays().note(sealed.cipher, now_ms)?;
        let (suite, key) = match &authenticator.subkey {
            Some((etype, key)) => (strong(*etype, key)?, key.to_vec()),
            None => (session.clone(), ticket.key.to_vec()),
        };
        if authenticator.gss_flags & MUTUAL == 0 && !request.mutual {
            // Who asks for no proof begins to count where it says that it counts itself.
            let context = Context::new(suite, key, authenticator.number, authenticator.number);
            return Ok(Accepted { name, context, reply: None });
        }
        // A key of the server's own, new for each login: what was overheard of another one says nothing with it, also
        // where the server has forgotten that, in a restart.
        let own_key = &random[..suite.cipher().key_size()];
        let part = message::reply_part(&authenticator, (u32::from(u8::from(&suite)), own_key));
        let sealed =
            session.cipher().encrypt(&ticket.key, AP_REP_ENC, &part).map_err(|error| error.to_string())?;
        let reply = message::reply(u32::from(u8::from(&session)), &sealed);
        let context =
            Context::new(suite, own_key.to_vec(), authenticator.number, authenticator.number).with_own_key();
        Ok(Accepted { name, context, reply: Some(reply) })
    }

    /// Opens the ticket with the key that it says, or with one of the same type if none has its version.
    fn open(&self, request: &ApReq<'_>) -> Result<(Ticket, CipherSuite), String> {
        if request.service != self.principal {
            return Err(format!(
                "the ticket is for {}, and this server is {}",
                shown(&request.service.to_string()),
                self.principal
            ));
        }
        let sealed = request.ticket;
        let of_type = || self.keys.iter().filter(|(key, _)| key.etype == sealed.etype);
        let of_version = of_type().find(|(key, _)| Some(i64::from(key.version)) == sealed.version);
        let (key, suite) = of_version.or_else(|| of_type().next()).ok_or_else(|| {
            format!("the keytab has no key of the ticket's type, {}", etype_name(sealed.etype))
        })?;
        let plain = decrypt(suite, &key.bytes, TICKET_REP, sealed).map_err(|error| {
            let version = sealed.version.map_or("no number".to_owned(), |version| version.to_string());
            format!(
                "the ticket does not open with the key of the keytab ({error}): the ticket's key has version {version}, \
                 the keytab's {}; is the keytab the newest?",
                key.version
            )
        })?;
        let ticket = Ticket::parse(&plain).map_err(|_| "the ticket is malformed".to_owned())?;
        let session = strong(ticket.etype, &ticket.key)?;
        Ok((ticket, session))
    }

    fn check_times(&self, ticket: &Ticket, authenticator: &Authenticator, now_s: i64) -> Result<(), String> {
        let apart_s = now_s - authenticator.time_s;
        if apart_s.abs() > SKEW_S {
            return Err(format!("the clocks of client and server are {apart_s} s apart; {SKEW_S} may be"));
        }
        if ticket.start_s > now_s + SKEW_S {
            return Err(format!("the ticket is good in {} s only", ticket.start_s - now_s));
        }
        if ticket.end_s < now_s - SKEW_S {
            return Err(format!("the ticket expired {} s ago", now_s - ticket.end_s));
        }
        Ok(())
    }
}

/// Checks what else there is to a ticket. Whatever addresses it names is not looked at.
fn check_ticket(ticket: &Ticket, own_realm: &str) -> Result<(), String> {
    if ticket.flags & INVALID != 0 {
        return Err("the ticket is not valid yet".to_owned());
    }
    if ticket.client.realm != own_realm && ticket.has_transited && ticket.flags & TRANSIT_CHECKED == 0 {
        return Err("the ticket came by way of other realms, and no KDC has checked these".to_owned());
    }
    Ok(())
}

/// Opens what was encrypted. Checksums are compared in constant time.
fn decrypt(suite: &CipherSuite, key: &[u8], usage: i32, sealed: Encrypted<'_>) -> Result<Vec<u8>, String> {
    if suite_of(sealed.etype).as_ref() != Some(suite) {
        return Err(format!("it is encrypted by {}", etype_name(sealed.etype)));
    }
    let cipher = suite.cipher();
    let opened = cipher.decrypt_no_checksum(key, usage, sealed.cipher).map_err(|error| error.to_string())?;
    let whole = [opened.confounder.as_slice(), &opened.plaintext].concat();
    let expected = cipher.encryption_checksum(key, usage, &whole).map_err(|error| error.to_string())?;
    if bool::from(expected.as_slice().ct_eq(&opened.checksum)) {
        Ok(opened.plaintext)
    } else {
        Err("another key has made it, or it was changed".to_owned())
    }
}

fn suite(key: &Key) -> Option<CipherSuite> {
    strong(key.etype, &key.bytes).ok()
}

/// How to use a key, if it is of a type that is good enough, and as long as it has to be.
fn strong(etype: i64, key: &[u8]) -> Result<CipherSuite, String> {
    suite_of(etype)
        .filter(|suite| suite.cipher().key_size() == key.len())
        .ok_or_else(|| format!("a key of the type {} is not taken; AES with SHA-1 is", etype_name(etype)))
}

fn suite_of(etype: i64) -> Option<CipherSuite> {
    match etype {
        17 => Some(CipherSuite::Aes128CtsHmacSha196),
        18 => Some(CipherSuite::Aes256CtsHmacSha196),
        _ => None,
    }
}

/// What people call an encryption type.
fn etype_name(etype: i64) -> String {
    let name = match etype {
        1 => "des-cbc-crc",
        3 => "des-cbc-md5",
        16 => "des3-cbc-sha1",
        17 => "aes128-cts-hmac-sha1-96",
        18 => "aes256-cts-hmac-sha1-96",
        19 => "aes128-cts-hmac-sha256-128",
        20 => "aes256-cts-hmac-sha384-192",
        23 => "arcfour-hmac",
        _ => return format!("number {etype}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests;
