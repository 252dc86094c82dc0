//! Processes that are killed and paused.

use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};

/// A running process. It is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Result<Self, String> {
        command.spawn().map(Self).map_err(|error| format!("cannot start {command:?}: {error}"))
    }

    /// Stops it where it is.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        // A process that has ended is there until it is waited for, and takes no notice.
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        // Its end is all that is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Whether it has ended, and if so whether that went well.
    pub(crate) fn ended(&mut self) -> Option<bool> {
        self.0.try_wait().ok().flatten().map(|status| status.success())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
