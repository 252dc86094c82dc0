//! Changes to the text of the hints. What is not concerned stays as it is, remarks and mistakes too.

use stoa_core::Hint;

/// The text with one more hint, in place of those that it contradicts.
pub(super) fn with(text: &str, hint: &Hint) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.retain(|line| match (Hint::parse(line), hint) {
        (Ok(Some(Hint::Balance(_))), Hint::Balance(_)) => false,
        (Ok(Some(Hint::Pin(path, _) | Hint::Stay(path))), Hint::Pin(other, _) | Hint::Stay(other)) => {
            path != *other
        }
        _ => true,
    });
    if let Hint::Together(paths) = hint {
        lines = paths
            .iter()
            .fold(lines, |lines, path| lines.iter().filter_map(|line| apart(line, path)).collect());
    }
    // That is so if nothing is said.
    if *hint != Hint::Balance(true) {
        lines.push(hint.to_string());
    }
    joined(&lines)
}

/// The text with nothing said of a subtree.
pub(super) fn without(text: &str, path: &str) -> String {
    let lines = text.lines().filter(|line| match Hint::parse(line) {
        Ok(Some(Hint::Pin(of, _) | Hint::Stay(of))) => of != path,
        _ => true,
    });
    joined(&lines.filter_map(|line| apart(line, path)).collect::<Vec<_>>())
}

/// A line without a subtree that lives together with others by it; those who are left stay together.
fn apart(line: &str, path: &str) -> Option<String> {
    let Ok(Some(Hint::Together(mut paths))) = Hint::parse(line) else { return Some(line.to_owned()) };
    if !paths.iter().any(|member| member == path) {
        return Some(line.to_owned());
    }
    paths.retain(|member| member != path);
    (paths.len() > 1).then(|| Hint::Together(paths).to_string())
}

fn joined(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# mine\npin /a 1\nnonsense\ntogether /b /c /d\nstay /e\nbalance off\n";

    #[test]
    fn a_hint_takes_the_place_of_what_it_contradicts() {
        let with = |hint: &str| with(TEXT, &Hint::parse(hint).unwrap().unwrap());
        assert_eq!(with("pin /a 2"), TEXT.replace("pin /a 1\n", "") + "pin /a 2\n");
        assert_eq!(with("stay /a"), TEXT.replace("pin /a 1\n", "") + "stay /a\n");
        assert_eq!(with("pin /b 2"), TEXT.to_owned() + "pin /b 2\n");
        assert_eq!(with("balance on"), TEXT.replace("balance off\n", ""));
        assert_eq!(with("balance off"), TEXT);
        assert_eq!(with("together /b /x"), TEXT.replace("/b /c", "/c") + "together /b /x\n");
        assert_eq!(with("together /b /c"), TEXT.replace("together /b /c /d\n", "") + "together /b /c\n");
    }

    #[test]
    fn what_is_said_of_a_subtree_is_taken_back() {
        assert_eq!(without(TEXT, "/a"), TEXT.replace("pin /a 1\n", ""));
        assert_eq!(without(TEXT, "/e"), TEXT.replace("stay /e\n", ""));
        assert_eq!(without(TEXT, "/c"), TEXT.replace("/b /c", "/b"));
        assert_eq!(without(TEXT, "/f"), TEXT);
        assert_eq!(without("together /x /y", "/x"), "");
    }
}
