//! What is open to whom: the ports of a server, told in one line at the start.

use std::net::SocketAddr;

use crate::config::{ClientCertificates, Settings, TlsOnPort};

/// What somebody must show at a port before he is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    Nothing,
    /// That the address is one of another server.
    ServersAddress,
    /// Who they are, by one of the schemes that are demanded.
    Identity,
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
            Self::Identity => Some("who proves who he is"),
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
    encryption: Encryption,
}

/// Whether what goes over a port is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    None,
    /// Of those who begin with TLS.
    Some,
    All,
}

impl Opening {
    /// A port in the clear.
    pub(crate) fn new(what: &'static str, address: SocketAddr, asks: Asks) -> Self {
        Self { what, address, asks, encryption: Encryption::None }
    }

    /// One for clients.
    pub(crate) fn of_clients(settings: &Settings, address: SocketAddr, tls: TlsOnPort) -> Self {
        let needs_certificate = settings.tls_client_certificates == ClientCertificates::Need;
        let asks = match tls {
            TlsOnPort::Only if needs_certificate => Asks::Certificate,
            _ if settings.require_schemes.is_empty() => Asks::Nothing,
            _ => Asks::Identity,
        };
        Self::new("clients", address, asks).encrypted(match tls {
            TlsOnPort::No => Encryption::None,
            TlsOnPort::Also => Encryption::Some,
            TlsOnPort::Only => Encryption::All,
        })
    }

    /// Whether what goes over it is encrypted.
    pub(crate) fn encrypted(self, encryption: Encryption) -> Self {
        Self { encryption, ..self }
    }

    fn told(&self) -> String {
        let Self { what, address, asks, encryption } = self;
        let is_here = address.ip().to_canonical().is_loopback();
        let way = match (encryption, is_here) {
            (Encryption::All, _) => Some("encrypted"),
            (Encryption::Some, _) => Some("encrypted or in the clear"),
            (Encryption::None, false) => Some("in the clear"),
            // It does not leave the machine.
            (Encryption::None, true) => None,
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
            let encryption = if has_tls { Encryption::All } else { Encryption::None };
            opening("x", address, Asks::of_peers(has_secret, has_tls)).encrypted(encryption).told()
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
