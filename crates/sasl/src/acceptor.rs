//! The door: a configuration that was checked, and exchanges with clients.

use core::fmt;
use std::sync::Arc;

use crate::digest::{Challenged, Users};
use crate::jaas::Login;
use crate::kerberos::{Context, Service, Taken};
use crate::names::Names;
use crate::{Secret, shown};

/// A token has no more bytes than that; one that has ends the exchange.
pub const TOKEN_BYTES_MAX: usize = 64 << 10;

/// Who may come, and how those are called who came.
#[derive(Clone)]
pub struct Config {
    users: Users,
    /// The bytes of a keytab, and whose keys in it count.
    service: Option<(Vec<u8>, String)>,
    taken: Vec<Taken>,
    rules: String,
    default_realm: Option<String>,
    remove_host: bool,
    remove_realm: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            users: Users::new(),
            service: None,
            taken: Vec::new(),
            rules: "DEFAULT".to_owned(),
            default_realm: None,
            remove_host: false,
            remove_realm: false,
        }
    }
}

impl Config {
    /// A configuration that lets nobody in.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes over the users of a login configuration. The keytab that it names is handed in by
    /// [`keytab`](Self::keytab).
    #[must_use]
    pub fn login(mut self, login: &Login) -> Self {
        self.users.extend(login.users().iter().cloned());
        self
    }

    /// Adds a user of DIGEST-MD5, or gives one another password: `super`, for example, that of
    /// `zookeeper.SASLAuthenticationProvider.superPassword`.
    #[must_use]
    pub fn user(mut self, name: &str, password: Secret) -> Self {
        self.users.insert(name.to_owned(), password);
        self
    }

    /// Takes clients with tickets for this principal, `zookeeper/HOST@REALM`, by its keys in the keytab with these bytes.
    /// Without a realm it is the only one of that name in the keytab.
    #[must_use]
    pub fn keytab(mut self, keytab: &[u8], principal: &str) -> Self {
        self.service = Some((keytab.to_vec(), principal.to_owned()));
        self
    }

    /// Takes none of these logins again: what [`Acceptor::poll_taken`] has told, also before a restart. Those that are
    /// too old to be taken anyway may be left out.
    #[must_use]
    pub fn taken(mut self, taken: Vec<Taken>) -> Self {
        self.taken = taken;
        self
    }

    /// Sets the rules by which names become short, `zookeeper.security.auth_to_local`; without, they are `DEFAULT`.
    #[must_use]
    pub fn rules(mut self, rules: &str) -> Self {
        rules.clone_into(&mut self.rules);
        self
    }

    /// Sets the realm that `DEFAULT` is about, `default_realm` of a `krb5.conf`; without, it is the one of the server.
    #[must_use]
    pub fn default_realm(mut self, realm: &str) -> Self {
        self.default_realm = Some(realm.to_owned());
        self
    }

    /// Leaves the host out of ids, `zookeeper.kerberos.removeHostFromPrincipal`.
    #[must_use]
    pub fn remove_host(mut self, remove: bool) -> Self {
        self.remove_host = remove;
        self
    }

    /// Leaves the realm out of ids, `zookeeper.kerberos.removeRealmFromPrincipal`.
    #[must_use]
    pub fn remove_realm(mut self, remove: bool) -> Self {
        self.remove_realm = remove;
        self
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Config")
            .field("users", &self.users)
            .field("principal", &self.service.as_ref().map(|(_, principal)| principal))
            .field("rules", &self.rules)
            .field("default_realm", &self.default_realm)
            .field("remove_host", &self.remove_host)
            .field("remove_realm", &self.remove_realm)
            .finish()
    }
}

/// Why a configuration is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl core::error::Error for Error {}

/// What all exchanges of a server share. Copies share it, too.
#[derive(Clone)]
pub struct Acceptor(Arc<Shared>);

struct Shared {
    users: Users,
    service: Option<Service>,
    names: Names,
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Acceptor").field("users", &self.0.users.len()).finish_non_exhaustive()
    }
}

impl Acceptor {
    /// Checks a configuration.
    ///
    /// # Errors
    /// When nobody could come, or the rules or the keytab are not as they should be.
    pub fn new(config: Config) -> Result<Self, Error> {
        if config.users.is_empty() && config.service.is_none() {
            return Err(Error("SASL has neither users nor a keytab".to_owned()));
        }
        let service =
            config.service.map(|(keytab, principal)| Service::new(&keytab, &principal, config.taken));
        let service = service.transpose().map_err(Error)?;
        let own_realm = || service.as_ref().map(|service| service.realm().to_owned());
        let realm = config.default_realm.or_else(own_realm).unwrap_or_default();
        let names =
            Names::new(&config.rules, realm, config.remove_host, config.remove_realm).map_err(Error)?;
        Ok(Self(Arc::new(Shared { users: config.users, service, names })))
    }

    /// A login by Kerberos that was taken since this was asked last. Whoever keeps it, and hands it in by
    /// [`Config::taken`] at the next start, has nobody let in by what he has overheard before.
    #[must_use]
    pub fn poll_taken(&self) -> Option<Taken> {
        self.0.service.as_ref()?.poll_taken()
    }

    /// Begins an exchange with a client.
    #[must_use]
    pub fn begin(&self) -> Exchange {
        Exchange { shared: self.0.clone(), state: State::Begun }
    }
}

/// One authentication of one client.
///
/// Each token of a client is one [`step`](Self::step), and each step one answer to the request `sasl`. How it goes, with
/// ZooKeeper's server (`ZooKeeperServer.processSasl`) on the other end or with this:
///
/// | the client sends | the server answers |
/// | --- | --- |
/// | an empty token: DIGEST-MD5 | [`Step::Challenge`]: the digest-challenge |
/// | the digest-response | [`Step::Done`] with a token, `rspauth` |
/// | an AP-REQ that wants proof: GSSAPI | [`Step::Challenge`]: the AP-REP |
/// | an empty token | [`Step::Challenge`]: that there are no security layers, wrapped |
/// | that it wants none, wrapped | [`Step::Done`] without a token |
///
/// Who asks for no proof, as Java's client does, is told of the security layers at once. Whom the client would like to be
/// with GSSAPI is of no account, as with ZooKeeper: the id is made of the name in the ticket.
///
///
/// What the clients do at the end:
///
/// - Java's (`ZooKeeperSaslClient`) takes `rspauth`, checks it and sends nothing more. Until then it sends no other
///   request. It is the answer to its last token that it waits for, also with GSSAPI, whose last answer has no token;
///   a null token is an empty one to it.
/// - kazoo (pure-sasl) sends an empty token first, checks `rspauth`, and sends nothing more. Its responses name no
///   charset. An error code in the answer's header is AuthFailedError to it.
/// - The C client (Cyrus SASL) has to be told the host `zk-sasl-md5`. It empties the first token with DIGEST-MD5,
///   checks `rspauth`, and sends nothing more; with GSSAPI it waits for the answer to its last token, whatever it is.
///
/// So the token of [`Step::Done`] has to be sent, and where there is none, an answer with a null token. After
/// [`Step::Failed`] ZooKeeper answers AuthFailed with a null token and closes the connection.
pub struct Exchange {
    shared: Arc<Shared>,
    state: State,
}

enum State {
    Begun,
    Digest(Challenged),
    /// An AP-REP was sent.
    Proved(Peer),
    /// The security layers were offered.
    Offered(Peer),
    Over,
}

/// A client of Kerberos.
struct Peer {
    name: String,
    context: Context,
}

/// That there is no security layer, and so nothing that it could hold (RFC 4752 section 3.2).
const NO_LAYER: [u8; 4] = [1, 0, 0, 0];

/// What a token leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The client is asked something: to be sent with no error.
    Challenge(Vec<u8>),
    /// The client is who it says.
    Done {
        /// To be sent with no error; a null token when there is none.
        token: Option<Vec<u8>>,
        /// The id of the client, for ACLs of the scheme `sasl`.
        name: String,
    },
    /// The client is nobody. The exchange is over.
    Failed(
        /// Why, in plain words for the log. There is no secret in it, but it is not for the client either.
        String,
    ),
}

impl fmt::Debug for Exchange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Begun => "begun",
            State::Digest(_) => "challenged",
            State::Proved(_) => "proved",
            State::Offered(_) => "offered",
            State::Over => "over",
        };
        formatter.debug_tuple("Exchange").field(&state).finish()
    }
}

impl Exchange {
    /// Takes a token of the client. `now_ms` is milliseconds since 1970, by a clock that is right within minutes;
    /// `random` is bytes that nobody can guess, other ones at each step.
    pub fn step(&mut self, token: &[u8], now_ms: u64, random: [u8; 32]) -> Step {
        match self.advance(token, now_ms, random) {
            Ok(step) => step,
            Err(message) => Step::Failed(message),
        }
    }

    fn advance(&mut self, token: &[u8], now_ms: u64, random: [u8; 32]) -> Result<Step, String> {
        let state = core::mem::replace(&mut self.state, State::Over);
        if token.len() > TOKEN_BYTES_MAX {
            return Err(format!("a token has {} bytes, more than {TOKEN_BYTES_MAX}", token.len()));
        }
        match state {
            State::Begun => self.begin(token, now_ms, random),
            State::Digest(challenged) => {
                let proved = challenged.finish(token, &self.shared.users)?;
                self.done(&proved.name, Some(proved.token))
            }
            State::Proved(peer) if token.is_empty() => self.offer(peer),
            State::Proved(_) => Err("the client says something where it has nothing to say".to_owned()),
            State::Offered(peer) => self.choice(peer, token),
            State::Over => Err("the exchange is over".to_owned()),
        }
    }

    /// The first token tells the mechanism.
    fn begin(&mut self, token: &[u8], now_ms: u64, random: [u8; 32]) -> Result<Step, String> {
        match token.first() {
            None if self.shared.users.is_empty() => {
                Err("the client asks for DIGEST-MD5, which has no users here".to_owned())
            }
            None => {
                let (challenged, challenge) = Challenged::begin(random);
                self.state = State::Digest(challenged);
                Ok(Step::Challenge(challenge))
            }
            Some(0x60) => self.begin_kerberos(token, now_ms, random),
            Some(first) => Err(format!(
                "a first token that begins with {first:#04x} is of neither mechanism: one of DIGEST-MD5 is empty, one \
                 of GSSAPI begins with 0x60"
            )),
        }
    }

    fn begin_kerberos(&mut self, token: &[u8], now_ms: u64, random: [u8; 32]) -> Result<Step, String> {
        let Some(service) = &self.shared.service else {
            return Err("the client asks for GSSAPI, which has no keytab here".to_owned());
        };
        let accepted = service.accept(token, now_ms, random)?;
        let peer = Peer { name: accepted.name, context: accepted.context };
        match accepted.reply {
            Some(reply) => {
                self.state = State::Proved(peer);
                Ok(Step::Challenge(reply))
            }
            None => self.offer(peer),
        }
    }

    /// Tells which security layers there are.
    fn offer(&mut self, mut peer: Peer) -> Result<Step, String> {
        let token = peer.context.wrap(&NO_LAYER)?;
        self.state = State::Offered(peer);
        Ok(Step::Challenge(token))
    }

    /// Takes the client's choice: a layer, the most that it holds, and whom the client would like to be.
    fn choice(&self, mut peer: Peer, token: &[u8]) -> Result<Step, String> {
        let choice = peer.context.unwrap(token)?;
        match choice.split_first_chunk() {
            Some(([1, _, _, _], _asked)) => self.done(&peer.name, None),
            Some(([layer, ..], _)) => {
                Err(format!("the client wants the security layer {layer}; there is 1, none"))
            }
            None => Err("the client's choice of a security layer is too short".to_owned()),
        }
    }

    fn done(&self, proved: &str, token: Option<Vec<u8>>) -> Result<Step, String> {
        let name =
            self.shared.names.id_of(proved).map_err(|message| {
                format!("{} has proved who it is, but has no id: {message}", shown(proved))
            })?;
        Ok(Step::Done { token, name })
    }
}

#[cfg(test)]
mod tests;
