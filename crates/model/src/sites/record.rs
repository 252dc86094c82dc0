//! Accesses that were recorded: a text, one a line.

use std::fmt;

use stoa_sites::Site;

use super::accesses::{Accesses, Order, WRITES_MAX, sorted};

/// A line of a record that says no access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// Which one, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for BadLine {}

/// Reads accesses, one a line: the time in milliseconds, the name of the site and the path, with spaces between them.
/// Times do not go back. Empty lines and those that begin with `#` say nothing. `site` knows the names.
///
/// # Errors
/// At the first line that says something else, or when no line says anything.
pub fn read_record(text: &str, site: impl Fn(&str) -> Option<Site>) -> Result<Accesses, BadLine> {
    let (mut all, mut paths, mut last_us) = (Vec::new(), Vec::new(), 0);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let bad = |why: String| BadLine { line: index + 1, why };
        let words: Vec<&str> = line.split_whitespace().collect();
        let [time, name, path] = words[..] else {
            return Err(bad("it is a time in milliseconds, a site and a path".to_owned()));
        };
        let time_us = time.parse::<f64>().ok().map(|ms| ms * 1e3).filter(|us| (0.0..=1e15).contains(us));
        let time_us = time_us.ok_or_else(|| bad(format!("`{time}` is no time in milliseconds")))? as u64;
        if time_us < last_us {
            return Err(bad("it is before the line above".to_owned()));
        }
        let site = site(name).ok_or_else(|| bad(format!("there is no site `{name}`")))?;
        if !path.starts_with('/') || (path.ends_with('/') && path.len() > 1) || path.contains("//") {
            return Err(bad(format!("`{path}` is no path of a znode")));
        }
        if all.len() == WRITES_MAX {
            return Err(bad("these are more than ten million accesses".to_owned()));
        }
        last_us = time_us;
        paths.push(path.to_owned());
        all.push((time_us, site));
    }
    if all.is_empty() {
        return Err(BadLine {
            line: text.lines().count(),
            why: "no access was found before the end".to_owned(),
        });
    }
    let (paths, places) = sorted(&[paths]);
    let timed = all.into_iter().zip(&places[0]).map(|((us, site), at)| (us, site, *at)).collect();
    Ok(Accesses { paths, order: Order::Timed(timed) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Accesses, BadLine> {
        read_record(text, |name| {
            ["hub", "far"].iter().position(|known| *known == name).map(|at| Site(at as u8))
        })
    }

    #[test]
    fn accesses_are_read_line_by_line() {
        let accesses = read("# when who what\n0 far /b\n\n 1.5\thub /a/c \r\n1.5 far /b\n").unwrap();
        assert_eq!(accesses.paths, ["/a/c", "/b"]);
        let Order::Timed(timed) = accesses.order else { panic!("{accesses:?}") };
        assert_eq!(timed, [(0, Site(1), 1), (1500, Site(0), 0), (1500, Site(1), 1)]);
    }

    #[test]
    fn mistakes_are_said_with_their_line() {
        for (line, said) in [
            ("5 far", "line 2: it is a time in milliseconds, a site and a path"),
            ("5 far /a /b", "line 2: it is a time in milliseconds, a site and a path"),
            ("x far /a", "line 2: `x` is no time in milliseconds"),
            ("-1 far /a", "line 2: `-1` is no time in milliseconds"),
            ("nan far /a", "line 2: `nan` is no time in milliseconds"),
            ("5 tokyo /a", "line 2: there is no site `tokyo`"),
            ("0 far /a", "line 2: it is before the line above"),
            ("5 far a", "line 2: `a` is no path of a znode"),
            ("5 far /a/", "line 2: `/a/` is no path of a znode"),
        ] {
            assert_eq!(read(&format!("1 far /a\n{line}\n")).unwrap_err().to_string(), said, "{line}");
        }
        assert_eq!(
            read("# nothing\n").unwrap_err().to_string(),
            "line 1: no access was found before the end"
        );
    }
}
