//! Which paths a program is concerned with.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use stoa_wire::path;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    Is(Box<str>),
    Any,
}

/// A path in which `*` stands for any one name, and `**`, at the end, for one or more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    names: Vec<Name>,
    /// Whether one or more names follow, whatever they are.
    open: bool,
}

/// Why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternError(&'static str);

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl core::error::Error for PatternError {}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// When it is no valid path, or has a `*` beside other characters, or a `**` that is not the end.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if !path::is_valid(text) {
            return Err(PatternError(
                "a pattern is a path: it begins with `/`, does not end with it, and has no empty name, `.` or `..`",
            ));
        }
        let mut pattern = Self { names: Vec::new(), open: false };
        for name in text.split('/').skip(1).filter(|name| !name.is_empty()) {
            if pattern.open {
                return Err(PatternError("`**` can only be the end of a pattern"));
            }
            match name {
                "**" => pattern.open = true,
                "*" => pattern.names.push(Name::Any),
                _ if name.contains('*') => {
                    return Err(PatternError("`*` stands for a whole name; it cannot be a part of one"));
                }
                _ => pattern.names.push(Name::Is(name.into())),
            }
        }
        Ok(pattern)
    }

    /// Whether it fits.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let mut names = path.split('/').skip(1).filter(|name| !name.is_empty());
        let fits = self.names.iter().all(|expected| match (expected, names.next()) {
            (_, None) => false,
            (Name::Any, Some(_)) => true,
            (Name::Is(expected), Some(name)) => **expected == *name,
        });
        fits && names.next().is_some() == self.open
    }

    /// The name right below the root of all paths that fit, if they have one in common.
    #[must_use]
    pub fn first_name(&self) -> Option<&str> {
        match self.names.first() {
            Some(Name::Is(name)) => Some(name),
            _ => None,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for name in &self.names {
            text.push('/');
            text.push_str(match name {
                Name::Is(name) => name,
                Name::Any => "*",
            });
        }
        if self.open {
            text.push_str("/**");
        }
        f.write_str(if text.is_empty() { "/" } else { &text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_what_they_say() {
        for (pattern, fitting, other) in [
            ("/", &["/"][..], &["/a"][..]),
            ("/a", &["/a"], &["/", "/b", "/a/b", "/ab"]),
            ("/a/*", &["/a/b", "/a/c"], &["/a", "/a/b/c", "/b/b"]),
            ("/*/b", &["/a/b", "/c/b"], &["/a", "/a/c", "/b"]),
            ("/a/**", &["/a/b", "/a/b/c"], &["/a", "/b/c", "/ab/c"]),
            ("/**", &["/a", "/a/b"], &["/"]),
            ("/a/*/**", &["/a/b/c", "/a/b/c/d"], &["/a/b", "/a"]),
        ] {
            let parsed = Pattern::parse(pattern).unwrap();
            use alloc::string::ToString;
            assert_eq!(parsed.to_string(), pattern);
            for path in fitting {
                assert!(parsed.matches(path), "{pattern} {path}");
            }
            for path in other {
                assert!(!parsed.matches(path), "{pattern} {path}");
            }
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in
            ["", "a", "a/b", "/a/", "//", "/a//b", "/..", "/a/./b", "/a\0", "/a*", "/**/b", "/a/**/**"]
        {
            assert!(Pattern::parse(text).is_err(), "{text:?}");
        }
    }
}
