//! Completion of words, and of paths as the server has them now.

use std::time::Duration;

use rustyline::completion::Completer;
use rustyline::{Context, Helper, Highlighter, Hinter, Validator};

use super::session::SharedClient;
use super::tree::child;
use super::words::WORDS;

/// Typing must not wait longer for a server.
const PATIENCE: Duration = Duration::from_millis(800);

/// Completes lines.
#[derive(Helper, Highlighter, Hinter, Validator)]
pub(super) struct Completion {
    client: SharedClient,
}

impl Completion {
    pub(super) fn new(client: SharedClient) -> Self {
        Self { client }
    }

    /// Paths that begin like `path`.
    fn paths(&self, path: &str) -> Vec<String> {
        let client = self.client.borrow();
        let (Some(client), Some((parent, start))) = (client.as_ref(), path.rsplit_once('/')) else {
            return Vec::new();
        };
        let parent = if parent.is_empty() { "/" } else { parent };
        let list = async { tokio::time::timeout(PATIENCE, client.client().get_children(parent)).await };
        let Ok(Ok(mut names)) = client.wait(list) else {
            return Vec::new();
        };
        names.retain(|name| name.starts_with(start));
        names.sort_unstable();
        names.iter().map(|name| child(parent, name)).collect()
    }
}

impl Completer for Completion {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = &line[..position];
        let start = typed.rfind(char::is_whitespace).map_or(0, |space| space + 1);
        let part = &typed[start..];
        let candidates = if typed[..start].trim().is_empty() {
            let names = WORDS.iter().map(|word| word.name).filter(|name| name.starts_with(part));
            names.map(|name| format!("{name} ")).collect()
        } else if part.starts_with('/') {
            self.paths(part)
        } else {
            Vec::new()
        };
        Ok((start, candidates))
    }
}
