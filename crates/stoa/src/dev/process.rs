//! A server's process: started, listened to, told to end.

use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::sync::mpsc::Sender;

use super::ADDRESS;
use super::plan::{DevPlan, ServerPlan};
use crate::certificate::SERVER_FILES;
use crate::failure::{Context as _, Failure, Result};

/// What a server says on its standard output when clients are served.
const READY: &str = "stoa is ready for clients on ";
/// A longer line is shown in pieces.
const LINE_BYTES_MAX: usize = 16 * 1024;
/// Readers that each server lets in.
const READERS_MAX: &str = "100";
/// More servers than that would fill the screen with whom each of them meets.
const CHATTY_MAX: usize = 9;

/// What becomes of a server, with its id.
#[derive(Debug)]
pub(super) enum ProcessEvent {
    /// It wrote a line.
    Line(u8, String),
    /// It serves clients.
    Ready(u8),
    /// It has ended, and everything that it wrote was shown.
    Ended(u8, std::io::Result<ExitStatus>),
}

/// A process that runs, or has ended a moment ago.
pub(super) struct Process {
    pub(super) pid: u32,
    /// Stands for this very process, also when its number has gone to another one.
    handle: OwnedFd,
}

impl Process {
    /// Starts a server. What becomes of it is told to `events`, its end last.
    pub(super) fn start<E>(
        plan: &DevPlan,
        server: &ServerPlan,
        secret: &str,
        events: Sender<E>,
    ) -> Result<Process>
    where
        E: From<ProcessEvent> + Send + 'static,
    {
        let id = server.id;
        let starting = format!("cannot start server {id}");
        let mut child = command(plan, server, secret)?.spawn().context(&starting)?;
        let pid = child.id().ok_or_else(|| Failure::failed(format!("{starting}: it has no process")))?;
        let handle = i32::try_from(pid).ok().and_then(Pid::from_raw).map(|pid| {
            // It cannot be another process yet: nobody has waited for this one.
            rustix::process::pidfd_open(pid, PidfdFlags::empty())
        });
        let handle = handle.ok_or_else(|| Failure::failed(format!("{starting}: {pid} is no process")))?;
        let handle = handle.context(&starting)?;
        let (out, error) = (child.stdout.take(), child.stderr.take());
        tokio::spawn(async move {
            tokio::join!(follow(id, out, &events, true), follow(id, error, &events, false));
            let _ = events.send(ProcessEvent::Ended(id, child.wait().await).into()).await;
        });
        Ok(Process { pid, handle })
    }

    /// Lets it finish what is under way and stop.
    pub(super) fn stop(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends it at once.
    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        // A process that has ended needs no signal.
        let _ = rustix::process::pidfd_send_signal(&self.handle, signal);
    }
}

fn command(plan: &DevPlan, server: &ServerPlan, secret: &str) -> Result<Command> {
    let executable = std::env::current_exe().context("cannot find the executable of stoa")?;
    let mut command = Command::new(executable);
    command
        .arg("serve")
        .args(["--parent", &std::process::id().to_string()])
        .args(["--bind", &ADDRESS.to_string(), "--peer-bind", &ADDRESS.to_string()])
        .args(["--admin-port", &server.admin_port.to_string(), "--words", "*"])
        .args(plan.partitions.get(server.site).map(|partitions| format!("--partitions={partitions}")))
        .arg("--data-dir")
        .arg(&server.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        // Ctrl-C is for this process, which then stops them one and all.
        .process_group(0);
    if server.is_reader() {
        command.args(["--reader-of", &server.reader_of(), "--port", &server.port.to_string()]);
        command.args(["--reader-port", &server.peer_port.to_string(), "--max-readers", READERS_MAX]);
    } else {
        command.args(["--servers", &plan.servers(server.site), "--server-id", &server.id.to_string()]);
        if plan.readers(server.site).is_some() {
            command.args(["--max-readers", READERS_MAX]);
        }
    }
    let is_said = |name| std::env::var_os(name).is_some();
    if plan.servers.len() > CHATTY_MAX && !is_said("STOA_LOG_LEVEL") && !is_said("STOA_LOG") {
        command.args(["--log-level", "warn"]);
    }
    // A reader hears from its parent of which site it is.
    if let Some(site) = plan.sites.get(server.site).filter(|_| !server.is_reader()) {
        command
            .args(["--site", &site.name, "--sites", &plan.sites(server.site)])
            .args(["--site-port", &server.site_port.to_string()])
            .args(plan.is_automatic.then_some("--site-automatic-promotion=true"));
        for (end, file) in SERVER_FILES {
            command.arg(format!("--site-tls-{end}")).arg(plan.folder.join(file));
        }
    }
    // What is set for another server must not come between these.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name != "STOA_LOG") {
        if name.as_encoded_bytes().starts_with(b"STOA_") {
            command.env_remove(name);
        }
    }
    // Not a flag: those can be seen by everybody on the machine.
    command.env("STOA_PEER_SECRET", secret);
    Ok(command)
}

/// Tells every line of an output until it is closed.
async fn follow<E: From<ProcessEvent>>(
    id: u8,
    output: Option<impl AsyncRead + Unpin>,
    events: &Sender<E>,
    is_standard_output: bool,
) {
    let Some(mut output) = output else { return };
    let mut buffer = Vec::new();
    loop {
        let read = output.read_buf(&mut buffer).await.unwrap_or(0);
        while let Some(line) = take_line(&mut buffer, read == 0) {
            let is_ready = is_standard_output && line.starts_with(READY);
            let _ = events.send(ProcessEvent::Line(id, line).into()).await;
            if is_ready {
                let _ = events.send(ProcessEvent::Ready(id).into()).await;
            }
        }
        if read == 0 {
            return;
        }
    }
}

/// Takes the first line out of a buffer; at the end of the output, or when it gets too long, also what
/// there is of one.
fn take_line(buffer: &mut Vec<u8>, is_end: bool) -> Option<String> {
    let end = match buffer.iter().position(|byte| *byte == b'\n') {
        Some(end) => end + 1,
        None if (is_end && !buffer.is_empty()) || buffer.len() >= LINE_BYTES_MAX => buffer.len(),
        None => return None,
    };
    let line: Vec<u8> = buffer.drain(..end).collect();
    Some(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned())
}

/// Ends this process when the one that started it ends, however that happens.
pub(crate) fn end_with(parent: i32) -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot follow the end of the process that started this one")?;
    // It may have ended before the system was told.
    match rustix::process::getppid() {
        Some(pid) if pid.as_raw_nonzero().get() == parent => Ok(()),
        _ => Err(Failure::failed(format!("process {parent}, which this server belongs to, has ended"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_cut_into_lines() {
        let mut buffer = b"one\r\ntwo\nthr".to_vec();
        assert_eq!(take_line(&mut buffer, false).as_deref(), Some("one"));
        assert_eq!(take_line(&mut buffer, false).as_deref(), Some("two"));
        assert_eq!(take_line(&mut buffer, false), None);
        assert_eq!(take_line(&mut buffer, true).as_deref(), Some("thr"));
        assert_eq!(take_line(&mut buffer, true), None);
        let mut long = vec![b'x'; LINE_BYTES_MAX];
        assert_eq!(take_line(&mut long, false).map(|line| line.len()), Some(LINE_BYTES_MAX));
    }

    #[test]
    fn a_process_of_somebody_else_is_not_followed() {
        // No process has the number 0.
        let error = end_with(0).unwrap_err().to_string();
        rustix::process::set_parent_process_death_signal(None).unwrap();
        assert!(error.contains("process 0, which this server belongs to, has ended"), "{error}");
    }
}
