//! What a znode's path may look like.

/// Whether `path` names a znode: absolute, no empty, `.` or `..` component, no `/` at the end, and
/// none of the characters that ZooKeeper refuses (NUL, 01-1F, 7F-9F, D800-F8FF, FFF0-FFFF, and all
/// beyond FFFF, which it sees as surrogates).
#[must_use]
pub fn is_valid(path: &str) -> bool {
    is_plainly_valid(path.as_bytes()) || is_valid_by_character(path)
}

/// Whether a path consists of printable ASCII and no component begins with a dot. Most do; it looks at eight bytes at
/// once.
#[inline]
fn is_plainly_valid(path: &[u8]) -> bool {
    let ([b'/', .., last], (words, tail)) = (path, path.as_chunks::<8>()) else { return false };
    // Of each byte the highest bit: whether the byte before is a slash, and whether something is wrong with it.
    let (mut after_slash, mut wrong) = (0, 0);
    let mut look_at = |word: u64| {
        let slashes = bytes_equal(word, b'/');
        let begins = slashes << 8 | after_slash;
        wrong |= begins & (slashes | bytes_equal(word, b'.')) | bytes_unprintable(word);
        after_slash = slashes >> 56;
    };
    words.iter().for_each(|word| look_at(u64::from_le_bytes(*word)));
    let mut end = [b'a'; 8];
    for (to, from) in end.iter_mut().zip(tail) {
        *to = *from;
    }
    look_at(u64::from_le_bytes(end));
    wrong == 0 && *last != b'/'
}

const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;

/// Looks at eight bytes at once: the highest bit of each that is this one. No carry leaves a byte.
#[must_use]
#[inline]
pub fn bytes_equal(word: u64, byte: u8) -> u64 {
    let zero_if_equal = word ^ u64::from_le_bytes([byte; 8]);
    !(((zero_if_equal & LOW) + LOW) | zero_if_equal | LOW)
}

/// The highest bit of each byte that is not in 20..7E.
#[inline]
fn bytes_unprintable(word: u64) -> u64 {
    let from_space = (word & LOW) + u64::from_le_bytes([0x60; 8]);
    (word | !from_space) & !LOW | bytes_equal(word, 0x7f)
}

fn is_valid_by_character(path: &str) -> bool {
    let Some(tail) = path.strip_prefix('/') else {
        return false;
    };
    if tail.is_empty() {
        return true;
    }
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
    fn what_is_plainly_valid_is_valid() {
        // Each byte at each place, beside others that may matter together with it.
        for around in ["/aaaaaaaaaaaaaaaaaa", "/a/bcdefg/h.jk/lmn.", "/aaa/aaaaaaa/aaaa/a"] {
            for at in 0..around.len() {
                for byte in 0..0x80 {
                    let mut path = around.as_bytes().to_vec();
                    path[at] = byte;
                    let path = core::str::from_utf8(&path).unwrap();
                    let (plain, valid) = (is_plainly_valid(path.as_bytes()), is_valid_by_character(path));
                    let is_plain = !path.contains("/.");
                    assert_eq!(plain, valid && is_plain, "{path:?}");
                }
            }
            for len in 0..around.len() {
                let path = &around[..len];
                let is_plain = len > 1 && is_valid_by_character(path);
                assert_eq!(is_plainly_valid(path.as_bytes()), is_plain, "{path:?}");
            }
        }
        assert!(!is_plainly_valid("/\u{e9}/\u{4e2d}".as_bytes()));
    }

    #[test]
    fn split_gives_parent_and_name() {
        assert_eq!(split("/"), None);
        assert_eq!(split("/a"), Some(("/", "a")));
        assert_eq!(split("/a/b"), Some(("/a", "b")));
    }
}
