//! What is open to whom: the ports of a server, told in one line at the start.

use std::net::SocketAddr;

/// What somebody must show at a port before he is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    Nothing,
    /// That the address is one of another server.
    ServersAddress,
    /// The secret of the ensemble's servers.
    PeerSecret,
    /// A certificate of the authority.
    Certificate,
    /// Both.
    CertificateAndPeerSecret,
}

impl Asks {
    /// What the servers of an ensemble ask of each other.
    pub(crate) fn of_peers(has_secret: bool, has_tls: bool) -> Self {
        match (has_tls, has_secret) {
            (true, true) => Self::CertificateAndPeerSecret,
            (true, false) => Self::Certificate,
            (false, true) => Self::PeerSecret,
            (false, false) => Self::ServersAddress,
        }
    }

    fn of_whom(self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::ServersAddress => Some("whoever has the address of a server"),
            Self::PeerSecret => Some("who knows the peer secret"),
            Self::Certificate => Some("who has a certificate of the authority"),
            Self::CertificateAndPeerSecret => {
                Some("who has a certificate of the authority and knows the peer secret")
            }
        }
    }
}

/// A port that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    /// For whom it is.
    what: &'static str,
    address: SocketAddr,
    asks: Asks,
    is_encrypted: bool,
}

impl Opening {
    /// A port in the clear.
    pub(crate) fn new(what: &'static str, address: SocketAddr, asks: Asks) -> Self {
        Self { what, address, asks, is_encrypted: false }
    }

    /// Whether what goes over it is encrypted.
    pub(crate) fn encrypted(self, is_encrypted: bool) -> Self {
        Self { is_encrypted, ..self }
    }

    fn told(&self) -> String {
        let Self { what, address, asks, is_encrypted } = self;
        let is_here = address.ip().to_canonical().is_loopback();
        let way = match (is_encrypted, is_here) {
            (true, _) => Some("encrypted"),
            (false, false) => Some("in the clear"),
            // It does not leave the machine.
            (false, true) => None,
        };
        let whom = match (is_here, asks.of_whom()) {
            (true, None) => "this machine".to_owned(),
            (true, Some(who)) => format!("this machine, {who}"),
            (false, who) => who.unwrap_or("everybody").to_owned(),
        };
        let how = [Some(whom), way.map(str::to_owned)];
        format!("{what} on {address} ({})", how.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// All of them on one line.
pub(crate) fn told(openings: &[Opening]) -> String {
    let each: Vec<String> = openings.iter().map(Opening::told).collect();
    format!("open: {}", each.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening(what: &'static str, address: &str, asks: Asks) -> Opening {
        Opening::new(what, address.parse().unwrap(), asks)
    }

    #[test]
    fn a_line_says_who_may_connect_and_what_is_encrypted() {
        let openings = [
            opening("clients", "[::]:2181", Asks::Nothing),
            opening("admin HTTP", "127.0.0.1:8080", Asks::Nothing),
            opening("other servers", "[::]:2888", Asks::of_peers(true, false)),
        ];
        assert_eq!(
            told(&openings),
            "open: clients on [::]:2181 (everybody, in the clear), admin HTTP on 127.0.0.1:8080 (this machine), \
             other servers on [::]:2888 (who knows the peer secret, in the clear)"
        );
    }

    #[test]
    fn each_kind_of_port_has_its_words() {
        let peers = |address, has_secret, has_tls| {
            opening("x", address, Asks::of_peers(has_secret, has_tls)).encrypted(has_tls).told()
        };
        let by_address = "x on 10.0.0.1:1 (whoever has the address of a server, in the clear)";
        assert_eq!(peers("10.0.0.1:1", false, false), by_address);
        let by_certificate = "x on 10.0.0.1:1 (who has a certificate of the authority, encrypted)";
        assert_eq!(peers("10.0.0.1:1", false, true), by_certificate);
        let both =
            "x on 10.0.0.1:1 (who has a certificate of the authority and knows the peer secret, encrypted)";
        assert_eq!(peers("10.0.0.1:1", true, true), both);
        assert_eq!(
            peers("127.0.0.9:1", true, false),
            "x on 127.0.0.9:1 (this machine, who knows the peer secret)"
        );
        let own = |address| opening("x", address, Asks::Nothing).told();
        assert_eq!(own("[::1]:1"), "x on [::1]:1 (this machine)");
        assert_eq!(own("[::ffff:127.0.0.1]:1"), "x on [::ffff:127.0.0.1]:1 (this machine)");
    }
}
