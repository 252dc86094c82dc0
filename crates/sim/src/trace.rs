//! What happened, as a fingerprint always and as text when somebody reads along.

use std::fmt;
use std::io::{self, Write};

/// The record of a run.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    hash: u64,
    printing: bool,
    /// Whose events these are, where there are several sites.
    site: Option<u8>,
}

impl Trace {
    /// Prints each event if `printing`.
    pub(crate) fn new(printing: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, printing, site: None }
    }

    /// They are a site's.
    pub(crate) fn is_of(&mut self, site: u8) {
        self.site = Some(site);
    }

    /// Takes bytes into the fingerprint: equal runs have equal fingerprints.
    pub(crate) fn mix(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.hash = (self.hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3);
            self.hash ^= self.hash >> 29;
        }
        self.hash = (self.hash ^ bytes.len() as u64).wrapping_mul(0x0000_0100_0000_01b3);
    }

    /// The fingerprint so far.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.hash
    }

    /// Whether somebody reads along.
    pub(crate) fn is_printing(&self) -> bool {
        self.printing
    }

    /// Notes an event: one line in fixed columns.
    pub(crate) fn event(&mut self, now_us: u64, who: &str, what: fmt::Arguments<'_>) {
        self.mix(&now_us.to_le_bytes());
        self.mix(who.as_bytes());
        self.detail(now_us, who, what);
    }

    /// Prints what is not part of the fingerprint.
    pub(crate) fn detail(&mut self, now_us: u64, who: &str, what: fmt::Arguments<'_>) {
        if self.printing {
            let site = self.site.map(|site| format!("site {site}  ")).unwrap_or_default();
            let at_ms = now_us as f64 / 1000.0;
            let written = writeln!(io::stdout(), "{at_ms:>12.3} ms  {site}{who:<12} {what}");
            // Whoever read along has seen enough.
            self.printing = written.is_ok();
        }
    }
}
