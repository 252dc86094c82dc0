//! What a znode's path may look like.

/// Whether `path` names a znode: absolute, no empty, `.` or `..` component, no `/` at the end, and
/// none of the characters that ZooKeeper refuses (NUL, 01-1F, 7F-9F, D800-F8FF, FFF0-FFFF, and all
/// beyond FFFF, which it sees as surrogates).
#[must_use]
pub fn is_valid(path: &str) -> bool {
    let Some(tail) = path.strip_prefix('/') else {
        return false;
    };
    if tail.is_empty() {
        return true;
    }
    // One pass for the common case: printable ASCII without dots next to slashes.
    let mut component_start = true;
    let mut dots_only = true;
    let mut component_len = 0_usize;
    for byte in tail.bytes() {
        match byte {
            b'/' => {
                if component_start || (dots_only && component_len <= 2) {
                    return false;
                }
                component_start = true;
                dots_only = true;
                component_len = 0;
            }
            0x20..=0x7e => {
                component_start = false;
                dots_only &= byte == b'.';
                component_len += 1;
            }
            0x80.. => {
                component_start = false;
                dots_only = false;
                component_len += 1;
            }
            _ => return false,
        }
    }
    if component_start || (dots_only && component_len <= 2) {
        return false;
    }
    tail.is_ascii() || !tail.chars().any(is_refused)
}

fn is_refused(c: char) -> bool {
    matches!(u32::from(c), 0x00..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..)
}

/// Splits a valid path into its parent and its last component; `None` for the root.
#[must_use]
#[inline]
pub fn split(path: &str) -> Option<(&str, &str)> {
    let slash = last_slash(path)?;
    let name = path.get(slash + 1..).filter(|name| !name.is_empty())?;
    let parent = if slash == 0 { "/" } else { path.get(..slash)? };
    Some((parent, name))
}

/// Where the last slash is. Names are short: to look at each byte is cheaper than the call that would look at many.
#[must_use]
#[inline]
pub fn last_slash(path: &str) -> Option<usize> {
    path.bytes().rposition(|byte| byte == b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_zookeeper_accepts() {
        for path in ["/", "/a", "/a/b", "/a.b", "/...", "/.a", "/a..", "/zoo keeper", "/\u{e9}/\u{4e2d}"] {
            assert!(is_valid(path), "{path:?}");
        }
    }

    #[test]
    fn refuses_what_zookeeper_refuses() {
        for path in [
            "",
            "a",
            "a/b",
            "//",
            "/a/",
            "/a//b",
            "/.",
            "/..",
            "/a/./b",
            "/a/..",
            "/../a",
            "/a\0b",
            "/\u{1}",
            "/\u{7f}",
            "/\u{85}",
            "/\u{e000}",
            "/\u{fff0}",
            "/\u{ffff}",
            "/\u{1f600}",
            "/a\n",
        ] {
            assert!(!is_valid(path), "{path:?}");
        }
    }

    #[test]
    fn split_gives_parent_and_name() {
        assert_eq!(split("/"), None);
        assert_eq!(split("/a"), Some(("/", "a")));
        assert_eq!(split("/a/b"), Some(("/a", "b")));
    }
}
