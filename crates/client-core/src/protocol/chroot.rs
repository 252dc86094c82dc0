//! A client that sees only a part of the tree.

use alloc::borrow::Cow;
use alloc::string::String;

use stoa_wire::path;

/// The list of servers. It concerns every client, wherever its root is, so it has this name below any root that it is not
/// below itself, as for `getConfig` of ZooKeeper's clients.
const CONFIG: &str = "/zookeeper/config";

/// The znode that the client takes for the root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chroot {
    /// Empty for the real root, else a valid path.
    prefix: String,
}

impl Chroot {
    /// The chroot at `root`; `None` when that is no valid path.
    #[must_use]
    pub fn new(root: &str) -> Option<Self> {
        match root {
            "" | "/" => Some(Self::default()),
            _ => path::is_valid(root).then(|| Self { prefix: root.into() }),
        }
    }

    /// The chroot as a path of the server.
    #[must_use]
    pub fn path(&self) -> &str {
        if self.prefix.is_empty() { "/" } else { &self.prefix }
    }

    /// The server's name for the client's `path`.
    pub(super) fn full<'a>(&self, path: &'a str) -> Cow<'a, str> {
        let is_outside = |path: &str| self.local(path).len() == path.len();
        if self.prefix.is_empty() || path == CONFIG && is_outside(path) {
            return Cow::Borrowed(path);
        }
        let tail = if path == "/" { "" } else { path };
        let mut full = String::with_capacity(self.prefix.len() + tail.len());
        full.push_str(&self.prefix);
        full.push_str(tail);
        Cow::Owned(full)
    }

    /// The client's name for the server's `path`. One from outside is left as it is: it is the list of servers, or
    /// comes from a server that is confused.
    pub(super) fn local<'a>(&self, path: &'a str) -> &'a str {
        match path.strip_prefix(self.prefix.as_str()) {
            Some("") if !self.prefix.is_empty() => "/",
            Some(local) if local.starts_with('/') => local,
            _ => path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_go_in_and_come_out() {
        let chroot = Chroot::new("/app/one").unwrap();
        for (local, full) in [("/", "/app/one"), ("/a", "/app/one/a"), ("/a/b", "/app/one/a/b")] {
            assert_eq!(chroot.full(local), full);
            assert_eq!(chroot.local(full), local);
        }
        assert_eq!(chroot.local("/app/ones"), "/app/ones");
        assert_eq!(chroot.local("/else"), "/else");
    }

    #[test]
    fn the_list_of_servers_has_one_name_below_any_root() {
        for root in ["/app", "/zoo", "/"] {
            let chroot = Chroot::new(root).unwrap();
            assert_eq!((&*chroot.full(CONFIG), chroot.local(CONFIG)), (CONFIG, CONFIG), "{root}");
        }
        let around = Chroot::new("/zookeeper").unwrap();
        assert_eq!((&*around.full("/config"), around.local(CONFIG)), (CONFIG, "/config"));
        assert_eq!(Chroot::new("/app").unwrap().full("/zookeeper/quota"), "/app/zookeeper/quota");
    }

    #[test]
    fn the_root_changes_nothing() {
        for root in ["", "/"] {
            let chroot = Chroot::new(root).unwrap();
            assert_eq!((&*chroot.full("/a"), chroot.local("/a"), chroot.path()), ("/a", "/a", "/"));
        }
    }

    #[test]
    fn a_bad_path_is_no_chroot() {
        for root in ["app", "/app/", "/a//b", "/.."] {
            assert_eq!(Chroot::new(root), None, "{root:?}");
        }
    }
}
