//! Who goes first where there are more threads than cores.

/// Lets those who serve requests go first: what the calling thread does can wait.
pub(crate) fn step_back() {
    let thread = Some(rustix::thread::gettid());
    // Priorities are those of threads on Linux. Where that is refused, it competes.
    let _ = rustix::process::getpriority_process(thread)
        .and_then(|nice| rustix::process::setpriority_process(thread, (nice + 10).min(19)));
}
