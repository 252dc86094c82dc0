//! Requests that another site's page makes a browser send are refused.
//!
//! A browser on this machine reaches what only this machine is to reach. Every browser says of each request that may
//! change something, and that a page has caused, where the page is from (`Origin`; newer ones `Sec-Fetch-Site` too,
//! for every request); no shell does. So no header of our own is asked for, and `curl -X POST` works as it does with
//! ZooKeeper.
//!
//! A page whose own name is made to stand for this machine's address (DNS rebinding) is of the same origin. It is
//! known by the name that was asked for, `Host`: an attacker's is none of ours, and an address cannot be made to stand
//! for another one. That is held against what changes something, and where admin HTTP is for this machine alone also
//! against what only reads. Where it is open to others, reading is too, and load balancers and scrapers ask by
//! names that nobody has told us.

use std::net::{IpAddr, Ipv6Addr};

use axum::http::{HeaderMap, Method, StatusCode, header};

use super::Refusal;
use crate::config::Settings;

/// Set by browsers: how the page that caused a request is related to where that goes (W3C Fetch Metadata).
const SITE: &str = "sec-fetch-site";

/// By which names the server may be asked.
#[derive(Debug)]
pub(super) struct Names {
    /// In lower case.
    own: Vec<String>,
    is_any: bool,
    /// Whether the one who reads has to know one of them, too.
    for_all: bool,
}

impl Names {
    /// Those of the settings, and that of the machine.
    pub(super) fn new(settings: &Settings, machine: &str) -> Self {
        let member = settings.own_member().map(|own| own.host.as_str());
        let own = settings.admin_hosts.iter().map(String::as_str).chain(member).chain([machine]);
        Self {
            own: own.filter(|name| !name.is_empty()).map(str::to_ascii_lowercase).collect(),
            is_any: settings.admin_hosts.iter().any(|name| name == "*"),
            for_all: settings.admin_address().is_loopback(),
        }
    }

    fn know(&self, host: &[u8]) -> bool {
        let Some(name) = str::from_utf8(host).ok().and_then(without_port) else { return false };
        let in_brackets = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        if let Some(address) = in_brackets {
            return address.parse::<Ipv6Addr>().is_ok();
        }
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        name == "localhost" || name.parse::<IpAddr>().is_ok() || self.own.contains(&name)
    }

    /// Refuses what a page of another site may have caused.
    ///
    /// # Errors
    /// 403, and what gave it away.
    pub(super) fn check(&self, method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
        let only_reads = matches!(*method, Method::GET | Method::HEAD);
        let refused = |why: String| Err((StatusCode::FORBIDDEN, why));
        if !only_reads && headers.contains_key(header::ORIGIN) {
            return refused("not from a page in a browser: the request has the header Origin".to_owned());
        }
        let is_own = |site: &[u8]| matches!(site, b"none" | b"same-origin");
        if !only_reads && !headers.get_all(SITE).iter().all(|site| is_own(site.as_bytes())) {
            return refused(
                "not from another site's page: the request has the header Sec-Fetch-Site".to_owned(),
            );
        }
        // HTTP/1.0 has no such header, and every browser sends it.
        let mut hosts = headers.get_all(header::HOST).iter();
        if (!only_reads || self.for_all) && !self.is_any && !hosts.all(|host| self.know(host.as_bytes())) {
            let why = "this server does not know the name that it is asked by (the header Host): ask by an IP \
                       address or localhost, or name it in admin-hosts";
            return refused(why.to_owned());
        }
        Ok(())
    }
}

/// The host of `HOST[:PORT]`.
fn without_port(host: &str) -> Option<&str> {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => {
            port.bytes().all(|byte| byte.is_ascii_digit()).then_some(name)
        }
        _ => Some(host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(settings: &Settings) -> Names {
        Names::new(settings, "Machine.example")
    }

    fn passes(names: &Names, method: &Method, headers: &[(&'static str, &str)]) -> bool {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        names.check(method, &headers.collect()).is_ok()
    }

    #[test]
    fn what_a_page_causes_changes_nothing() {
        let names = names(&Settings::default());
        let page: [&[(&str, &str)]; 6] = [
            &[("origin", "http://elsewhere.example")],
            &[("origin", "null")],
            &[("origin", "http://localhost:8080")],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")],
        ];
        for headers in page {
            assert!(!passes(&names, &Method::POST, headers), "{headers:?}");
            assert!(passes(&names, &Method::GET, headers), "a link to a page that only reads: {headers:?}");
        }
        for site in ["none", "same-origin"] {
            assert!(passes(&names, &Method::POST, &[("sec-fetch-site", site)]));
        }
        assert!(passes(&names, &Method::POST, &[]));
    }

    #[test]
    fn a_name_that_stands_for_this_machine_but_is_none_of_its_own_is_refused() {
        let closed = names(&Settings::default());
        let open = Settings { admin_bind: Some("::".parse().unwrap()), ..Settings::default() };
        let post = |names: &Names, host| passes(names, &Method::POST, &[("host", host)]);
        let known = [
            "localhost",
            "LOCALHOST:8080",
            "localhost.:8080",
            "127.0.0.1",
            "127.0.0.1:8080",
            "192.0.2.1:80",
            "[::1]",
            "[::1]:8080",
            "machine.example:8080",
            "machine.example",
        ];
        let unknown = [
            "",
            ":8080",
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.1",
            "2130706433",
            "::1",
            "[evil.example]",
            "[::1",
            "localhost:evil",
            "[127.0.0.1]",
            "a:b:1",
        ];
        for names in [&closed, &names(&open)] {
            assert!(known.iter().all(|host| post(names, host)));
            let passed: Vec<_> = unknown.iter().filter(|host| post(names, host)).collect();
            assert!(passed.is_empty(), "{passed:?}");
        }
        let twice = [("host", "localhost"), ("host", "evil.example")];
        assert!(!passes(&closed, &Method::POST, &twice));
        // Reading is for this machine alone where nothing else is said.
        let get = |names: &Names| passes(names, &Method::GET, &[("host", "evil.example:8080")]);
        assert!(!get(&closed) && get(&names(&open)));
    }

    #[test]
    fn names_come_from_the_settings() {
        let named = |hosts: &[&str]| {
            let admin_hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
            let settings = Settings { admin_hosts, ..crate::view::tests::ensemble_settings(1) };
            let post = |host| passes(&names(&settings), &Method::POST, &[("host", host)]);
            ["zoo1.example", "Balancer:80", "other.example"].map(post)
        };
        assert_eq!(named(&[]), [true, false, false]);
        assert_eq!(named(&["balancer"]), [true, true, false]);
        assert_eq!(named(&["*"]), [true, true, true]);
    }
}
