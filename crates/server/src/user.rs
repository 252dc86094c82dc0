//! Whom the server runs as.

/// The name of the user that the process runs as, if the machine's own list has it.
pub(crate) fn user_name() -> Option<String> {
    let id = rustix::process::getuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let mut users = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    users.find(|fields| fields.get(2) == Some(&id.as_str())).map(|fields| fields[0].to_owned())
}
