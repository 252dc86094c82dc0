//! The words after `cargo xtask`.

/// Words that have not been asked for yet.
pub(crate) struct Arguments {
    words: Vec<String>,
}

impl Arguments {
    pub(crate) fn new(words: impl IntoIterator<Item = String>) -> Arguments {
        Arguments { words: words.into_iter().collect() }
    }

    /// The next word that is not an option.
    pub(crate) fn word(&mut self) -> Option<String> {
        if self.words.first().is_some_and(|word| !word.starts_with('-')) {
            Some(self.words.remove(0))
        } else {
            None
        }
    }

    /// The value of `--name VALUE` or `--name=VALUE`.
    pub(crate) fn value(&mut self, name: &str) -> Result<Option<String>, String> {
        let joined = format!("{name}=");
        if let Some(index) = self.words.iter().position(|word| word.starts_with(&joined)) {
            return Ok(Some(self.words.remove(index).split_off(joined.len())));
        }
        let Some(index) = self.words.iter().position(|word| word == name) else { return Ok(None) };
        self.words.remove(index);
        if index < self.words.len() {
            Ok(Some(self.words.remove(index)))
        } else {
            Err(format!("`{name}` needs a value"))
        }
    }

    /// The value of `--name NUMBER`.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<u64>, String> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        value.parse().map(Some).map_err(|_| format!("`{name}` needs a whole number, not `{value}`"))
    }

    /// Whether `--name` is there.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let before = self.words.len();
        self.words.retain(|word| word != name);
        self.words.len() < before
    }

    /// What is left is for the program that is about to be started.
    pub(crate) fn rest(self) -> Vec<String> {
        self.words
    }

    /// Nothing may be left.
    pub(crate) fn finish(self) -> Result<(), String> {
        match self.words.first() {
            Some(word) => Err(format!("`{word}` is not understood here; see `cargo xtask help`")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Arguments {
        Arguments::new(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_taken_out_in_any_order() {
        let mut given = arguments("kazoo --against zookeeper --rounds=7");
        assert_eq!(given.word().as_deref(), Some("kazoo"));
        assert_eq!(given.number("--rounds"), Ok(Some(7)));
        assert_eq!(given.value("--against"), Ok(Some("zookeeper".to_owned())));
        assert_eq!(given.finish(), Ok(()));
    }

    #[test]
    fn a_flag_is_there_or_not() {
        let mut given = arguments("--long -k kafka");
        assert!(given.flag("--long"));
        assert!(!given.flag("--long"));
        assert_eq!(given.rest(), ["-k", "kafka"]);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        assert!(arguments("--nonsense").finish().is_err_and(|message| message.contains("--nonsense")));
        assert!(arguments("--rounds many").number("--rounds").is_err());
        assert!(arguments("--rounds").number("--rounds").is_err());
    }
}
