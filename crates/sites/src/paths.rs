//! Paths, and what they lie in.

use stoa_wire::path::bytes_equal;

/// The path of the directory that something lies in; `None` for what lies in the root, and for the root: neither moves
/// with the root.
pub(crate) fn above(path: &str) -> Option<&str> {
    let slash = last_slash(path.as_bytes())?;
    (slash > 0).then(|| &path[..slash])
}

/// Names are short: that is faster than what is made for long texts.
fn last_slash(mut bytes: &[u8]) -> Option<usize> {
    while let Some((rest, word)) = bytes.split_last_chunk::<8>() {
        let slashes = bytes_equal(u64::from_le_bytes(*word), b'/');
        if slashes != 0 {
            return Some(bytes.len() - 1 - slashes.leading_zeros() as usize / 8);
        }
        bytes = rest;
    }
    bytes.iter().rposition(|byte| *byte == b'/')
}

/// Whether a path is `top` or leads to something below it.
#[must_use]
pub fn is_at_or_below(path: &str, top: &str) -> bool {
    top == "/" || path.strip_prefix(top).is_some_and(|tail| tail.is_empty() || tail.starts_with('/'))
}

/// Whether the token of a path may leave the hub: with the root all would go that has no mark, `/zookeeper` is the
/// system's, and at `/em` programs are registered, of which all have to know.
#[must_use]
pub fn is_movable(path: &str) -> bool {
    path != "/" && !is_at_or_below(path, "/zookeeper") && !is_at_or_below(path, "/em")
}

/// A path and all that it lies in, the deepest first, without the root.
pub fn upward(path: &str) -> impl Iterator<Item = &str> {
    core::iter::successors((path.len() > 1).then_some(path), |path| above(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_something_lies_in() {
        assert_eq!(upward("/a/b/c").collect::<Vec<_>>(), ["/a/b/c", "/a/b", "/a"]);
        let long = "/a-directory/with a long name, and one/é";
        let slashes = |path: &str| (upward(path).map(str::len).collect::<Vec<_>>(), path.len());
        assert_eq!(slashes(long), (vec![long.len(), 38, 12], long.len()));
        for len in 1..40 {
            let (top, below) = (format!("/{}", "x".repeat(len)), "y".repeat(40 - len));
            assert_eq!(above(&format!("{top}/{below}")), Some(top.as_str()));
            assert_eq!(above(&top), None);
        }
        assert_eq!((upward("/").count(), upward("").count(), above("/a"), above("a")), (0, 0, None, None));
        assert!(is_at_or_below("/a/b", "/a") && is_at_or_below("/a", "/a") && is_at_or_below("/a", "/"));
        assert!(!is_at_or_below("/ab", "/a") && !is_at_or_below("/", "/a"));
        let movable = ["/", "/zookeeper", "/zookeeper/sites", "/em/p", "/zookeepers", "/a"].map(is_movable);
        assert_eq!(movable, [false, false, false, false, true, true]);
    }
}
