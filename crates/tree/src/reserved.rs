//! Paths that mean something to the tree itself.

pub(crate) const ROOT: &str = "/";
pub(crate) const ZOOKEEPER: &str = "/zookeeper";
pub(crate) const QUOTA: &str = "/zookeeper/quota";
/// Where the list of servers stands.
pub const CONFIG_PATH: &str = "/zookeeper/config";

/// Where programs are registered that run inside the service. What is written there has to go by way of whoever
/// runs them: a multi that does so is refused (`Unimplemented`).
pub const PROGRAMS: &str = "/em";

/// Whether the znode at a path is always there and cannot be deleted.
pub(crate) fn contains(path: &str) -> bool {
    matches!(path, ROOT | ZOOKEEPER | QUOTA | CONFIG_PATH)
}

pub(crate) fn is_of_programs(path: &str) -> bool {
    is_at_or_below(path, PROGRAMS)
}

/// The program that a znode right below one is of: such are acknowledgements, but for one that says who has registered it.
pub(crate) fn program_of(path: &str) -> Option<&str> {
    let (program, _) = path.rsplit_once('/')?;
    let (manager, name) = program.rsplit_once('/')?;
    (manager == PROGRAMS && !name.is_empty()).then_some(program)
}

/// Whether a path is `top` or leads to something below it.
pub(crate) fn is_at_or_below(path: &str, top: &str) -> bool {
    path.strip_prefix(top).is_some_and(|tail| tail.is_empty() || tail.starts_with('/'))
}
