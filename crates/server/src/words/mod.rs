//! Four-letter words: what an operator or a script asks a server by sending four bytes in place of a
//! handshake.

#[cfg(test)]
mod tests;
mod text;

pub use text::answer;
pub(crate) use text::{NOT_SERVING, by_path, interest_ops, java_address, server_id};

macro_rules! words {
    ($($(#[$doc:meta])* $word:ident = $name:literal,)+) => {
        /// A four-letter word.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Word { $($(#[$doc])* $word,)+ }

        impl Word {
            /// Every word there is.
            pub const ALL: &'static [Word] = &[$(Word::$word),+];

            /// The four letters.
            pub fn name(self) -> &'static str {
                match self { $(Word::$word => $name),+ }
            }
        }
    };
}

words! {
    /// The settings.
    Conf = "conf",
    /// The connections, in full.
    Cons = "cons",
    /// Resets the counters of every connection.
    Crst = "crst",
    /// How large snapshots and log are.
    Dirs = "dirs",
    /// Sessions and their ephemeral znodes.
    Dump = "dump",
    /// The environment that the server runs in.
    Envi = "envi",
    /// The trace mask.
    Gtmk = "gtmk",
    /// The history of digests of the tree.
    Hash = "hash",
    /// Whether the server only reads.
    Isro = "isro",
    /// Every metric.
    Mntr = "mntr",
    /// Whether the server is up.
    Ruok = "ruok",
    /// Resets the counters of the server.
    Srst = "srst",
    /// The server in short.
    Srvr = "srvr",
    /// The server and its connections in short.
    Stat = "stat",
    /// Sets the trace mask.
    Stmk = "stmk",
    /// Watches by session.
    Wchc = "wchc",
    /// Watches by path.
    Wchp = "wchp",
    /// Watches, counted.
    Wchs = "wchs",
}

impl Word {
    /// The word with this name.
    pub fn from_name(name: &str) -> Option<Word> {
        Word::ALL.iter().copied().find(|word| word.name() == name)
    }
}

/// What telnet sends when it is ended; the connection is closed without a word.
pub const TELNET_END: [u8; 4] = [0xff, 0xf4, 0xff, 0xfd];

/// The word that a fresh connection begins with, if its first four bytes are one.
///
/// The same four bytes may be the length of a handshake; no word is a length that a handshake can have.
pub fn parse(first: [u8; 4]) -> Option<Word> {
    std::str::from_utf8(&first).ok().and_then(Word::from_name)
}

/// How many bytes after the word belong to it.
pub fn argument_len(word: Word) -> usize {
    if word == Word::Stmk { 8 } else { 0 }
}
