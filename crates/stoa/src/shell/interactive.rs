//! The shell at a terminal, or fed with lines.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::mpsc;

use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor, ExternalPrinter};

use super::ShellArgs;
use super::answer::Answer;
use super::complete::Completion;
use super::session::Shell;
use crate::failure::{Context as _, Failure, Result};

/// Lines kept between sessions.
const HISTORY_LINES_MAX: usize = 1000;

/// Runs until the end of the input or `quit`. Like zkCli, ends as the last line did when the input
/// is not a terminal.
pub(super) fn run(args: ShellArgs) -> Result<()> {
    let is_terminal = io::stdin().is_terminal();
    let is_json = args.json;
    let (mut shell, notices) = Shell::new(args);
    match shell.connect() {
        Ok(()) => shell.follow_state(),
        // At a terminal there is still `connect`.
        Err(failure @ Failure::Failed(_)) if is_terminal => complain(&failure),
        Err(failure) => return Err(failure),
    }
    if is_terminal { edit(&mut shell, notices) } else { feed(&mut shell, notices, is_json) }
}

/// Lines from a file or pipe.
fn feed(shell: &mut Shell, notices: mpsc::Receiver<Answer>, is_json: bool) -> Result<()> {
    std::thread::spawn(move || {
        for notice in notices {
            // A closed standard output ends the shell by its next answer.
            let _ = notice.print(is_json);
        }
    });
    let mut last = Ok(());
    for line in io::stdin().lock().lines() {
        if let Err(failure) = std::mem::replace(&mut last, Ok(())) {
            complain(&failure);
        }
        last = shell.line(&line.context("cannot read standard input")?);
        if shell.has_quit() {
            break;
        }
    }
    last
}

/// Lines typed at a terminal.
fn edit(shell: &mut Shell, notices: mpsc::Receiver<Answer>) -> Result<()> {
    let config = Config::builder()
        .max_history_size(HISTORY_LINES_MAX)
        .and_then(|config| config.history_ignore_dups(true))
        .context("cannot set up the history")?
        .auto_add_history(false)
        .build();
    let mut editor: Editor<Completion, FileHistory> =
        Editor::with_config(config).context("cannot set up the terminal")?;
    editor.set_helper(Some(Completion::new(shell.shared_client())));
    let history = history_file();
    if let Some(history) = &history {
        // There is none the first time.
        let _ = editor.load_history(history);
    }
    let mut printer = editor.create_external_printer().context("cannot set up the terminal")?;
    let is_json = shell.is_json();
    std::thread::spawn(move || {
        for notice in notices {
            // A terminal that is gone ends the shell by its next line.
            let _ = printer.print(notice.render(is_json));
        }
    });
    while !shell.has_quit() {
        match editor.readline(&shell.prompt()) {
            Ok(line) => {
                // Passwords have no place in a file.
                if !line.trim_start().starts_with("addauth") {
                    editor.add_history_entry(&line).context("cannot keep the line")?;
                }
                if let Err(failure) = shell.line(&line) {
                    complain(&failure);
                }
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(Failure::failed(format!("cannot read a line: {error}"))),
        }
    }
    if let Some(history) = &history {
        let saved = history.parent().map_or(Ok(()), std::fs::create_dir_all);
        if let Err(error) = saved.map_err(ReadlineError::from).and_then(|()| editor.save_history(history)) {
            complain(&Failure::failed(format!("cannot write the history to {}: {error}", history.display())));
        }
    }
    Ok(())
}

fn complain(failure: &Failure) {
    // Nothing is left to be done about a closed standard error.
    let _ = writeln!(io::stderr(), "{failure}");
}

/// The history's place among the user's files.
fn history_file() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    Some(state.join("stoa/shell-history"))
}
