//! The state of a shell, and the words that are about the shell itself.

use std::cell::{Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use serde_json::json;
use stoa_client::tls::Tls;
use stoa_client::{Options, State, Watch, blocking};

use super::ShellArgs;
use super::answer::{self, Answer};
use super::arguments::{Arguments, split};
use super::words;
use crate::failure::{Failure, Result};

/// The client, shared with the completion of paths.
pub(super) type SharedClient = Rc<RefCell<Option<blocking::Client>>>;

/// Lines that `history` shows.
const HISTORY_SHOWN: usize = 11;

/// A shell.
pub(super) struct Shell {
    args: ShellArgs,
    client: SharedClient,
    history: Vec<String>,
    prints_watches: Arc<AtomicBool>,
    notices: mpsc::Sender<Answer>,
    has_quit: bool,
}

impl Shell {
    /// A shell that is not connected, and what it hears from watches.
    pub(super) fn new(args: ShellArgs) -> (Self, mpsc::Receiver<Answer>) {
        let (notices, heard) = mpsc::channel();
        let shell = Self {
            args,
            client: SharedClient::default(),
            history: Vec::new(),
            prints_watches: Arc::new(AtomicBool::new(true)),
            notices,
            has_quit: false,
        };
        (shell, heard)
    }

    /// Opens a session.
    pub(super) fn connect(&self) -> Result<()> {
        // The old session is closed first: it may hold what the new one wants.
        self.client.replace(None);
        let client = blocking::Client::connect(self.args.options()?).map_err(Failure::failed)?;
        self.client.replace(Some(client));
        Ok(())
    }

    /// Reports changes of the connection's state like watch events.
    pub(super) fn follow_state(&self) {
        let Ok(client) = self.client() else { return };
        let mut status = client.client().status();
        let (notices, prints_watches) = (self.notices.clone(), Arc::clone(&self.prints_watches));
        client.spawn(async move {
            let mut last = status.borrow().state;
            while status.changed().await.is_ok() {
                let state = status.borrow_and_update().state;
                if state != last && state != State::Closed && prints_watches.load(Ordering::Relaxed) {
                    // The shell is about to end if nobody listens any more.
                    let _ = notices.send(answer::state(state));
                }
                last = state;
            }
        });
    }

    /// Reports what a watch sees.
    pub(super) fn follow(&self, mut watch: Watch) -> Result<()> {
        let (notices, prints_watches) = (self.notices.clone(), Arc::clone(&self.prints_watches));
        self.client()?.spawn(async move {
            while let Ok(event) = watch.next().await {
                if prints_watches.load(Ordering::Relaxed) && notices.send(answer::event(&event)).is_err() {
                    return;
                }
            }
        });
        Ok(())
    }

    /// Where and how it connects.
    pub(super) fn options(&self) -> Result<Options> {
        self.args.options()
    }

    /// TLS, if that is how it connects.
    pub(super) fn tls(&self) -> Result<Option<Tls>> {
        self.args.tls.tls()
    }

    /// The client.
    pub(super) fn client(&self) -> Result<Ref<'_, blocking::Client>> {
        Ref::filter_map(self.client.borrow(), Option::as_ref)
            .map_err(|_| Failure::failed("Not connected; `connect host:port` connects"))
    }

    /// The client, shared.
    pub(super) fn shared_client(&self) -> SharedClient {
        Rc::clone(&self.client)
    }

    /// Whether answers are JSON.
    pub(super) fn is_json(&self) -> bool {
        self.args.json
    }

    /// Whether `quit` was said.
    pub(super) fn has_quit(&self) -> bool {
        self.has_quit
    }

    /// What stands before the cursor.
    pub(super) fn prompt(&self) -> String {
        let state = self.client().map_or("CLOSED", |client| match client.status().state {
            State::Connected => "CONNECTED",
            State::ConnectedReadOnly => "CONNECTEDREADONLY",
            State::Connecting | State::Suspended | State::Lost => "CONNECTING",
            State::AuthFailed => "AUTH_FAILED",
            State::Closed => "CLOSED",
        });
        format!("[zk: {}({state}) {}] ", self.args.server, self.history.len())
    }

    /// Carries out a line and prints its answer. Empty lines and comments do nothing.
    pub(super) fn line(&mut self, line: &str) -> Result<()> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let result = self.parts(&split(line));
        self.history.push(line.to_owned());
        result?.print(self.is_json())
    }

    /// Carries out a word with its flags and arguments.
    pub(super) fn parts(&mut self, parts: &[String]) -> Result<Answer> {
        let Some((name, rest)) = parts.split_first() else {
            return Err(Failure::usage("a word is missing; `help` lists them"));
        };
        let word = words::find(name)?;
        let arguments = Arguments::parse(word.name, &word.syntax, rest)?;
        (word.run)(self, &arguments)
    }
}

pub(super) fn connect(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    if let Some(server) = arguments.get(0) {
        server.clone_into(&mut shell.args.server);
    }
    shell.connect()?;
    shell.follow_state();
    Ok(Answer::new(format!("Connected to {}\n", shell.args.server), json!({ "server": shell.args.server })))
}

pub(super) fn close(shell: &mut Shell, _: &Arguments) -> Result<Answer> {
    shell.client()?;
    shell.client.replace(None);
    Ok(Answer::done())
}

pub(super) fn quit(shell: &mut Shell, _: &Arguments) -> Result<Answer> {
    shell.client.replace(None);
    shell.has_quit = true;
    Ok(Answer::done())
}

pub(super) fn history(shell: &mut Shell, _: &Arguments) -> Result<Answer> {
    let lines = shell.history.iter().enumerate();
    let shown: Vec<_> = lines.skip(shell.history.len().saturating_sub(HISTORY_SHOWN)).collect();
    let text: String = shown.iter().map(|(number, line)| format!("{number} - {line}\n")).collect();
    let json =
        shown.iter().map(|(number, line)| json!({ "number": number, "line": line })).collect::<Vec<_>>();
    Ok(Answer::new(text, json!({ "history": json })))
}

pub(super) fn redo(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let line = arguments.at(0).parse().ok().and_then(|number: usize| shell.history.get(number));
    let parts =
        split(line.ok_or_else(|| Failure::usage("Command index out of range; `history` shows them"))?);
    if parts.first().is_some_and(|word| word == "redo") {
        return Err(Failure::usage("No redoing redos"));
    }
    shell.parts(&parts)
}

pub(super) fn print_watches(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    match arguments.get(0) {
        Some(value @ ("on" | "off")) => shell.prints_watches.store(value == "on", Ordering::Relaxed),
        Some(other) => return Err(Failure::usage(format!("{other}: expected on or off"))),
        None => {
            let is_on = shell.prints_watches.load(Ordering::Relaxed);
            let text = format!("printwatches is {}\n", if is_on { "on" } else { "off" });
            return Ok(Answer::new(text, json!({ "printwatches": is_on })));
        }
    }
    Ok(Answer::done())
}

pub(super) fn version(_: &mut Shell, _: &Arguments) -> Result<Answer> {
    let version = env!("CARGO_PKG_VERSION");
    Ok(Answer::new(format!("Stoa shell version: {version}\n"), json!({ "version": version })))
}

pub(super) fn help(_: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let text = match arguments.get(0) {
        None => words::overview(),
        Some(name) => words::find(name)?.describe(),
    };
    Ok(Answer::new(text.clone(), json!({ "help": text })))
}
