//! Words about watches.

use stoa_client::{AddWatchMode, WatcherKind};

use super::answer::{Answer, server_error};
use super::arguments::Arguments;
use super::session::Shell;
use crate::failure::{Failure, Result};

pub(super) fn add(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let path = arguments.at(0);
    let mode = match arguments.option('m').map(str::to_ascii_uppercase).as_deref() {
        None | Some("PERSISTENT_RECURSIVE") => AddWatchMode::PersistentRecursive,
        Some("PERSISTENT") => AddWatchMode::Persistent,
        Some(other) => {
            return Err(Failure::usage(format!("-m {other}: expected PERSISTENT or PERSISTENT_RECURSIVE")));
        }
    };
    let watch = shell.client()?.add_watch(path, mode).map_err(|code| server_error(code, path))?;
    shell.follow(watch)?;
    Ok(Answer::done())
}

pub(super) fn remove(shell: &mut Shell, arguments: &Arguments) -> Result<Answer> {
    let path = arguments.at(0);
    let kinds = [
        ('c', WatcherKind::Children),
        ('d', WatcherKind::Data),
        ('p', WatcherKind::Persistent),
        ('r', WatcherKind::PersistentRecursive),
    ];
    let kind = kinds.into_iter().find(|(letter, _)| arguments.has(*letter));
    let kind = kind.map_or(WatcherKind::Any, |(_, kind)| kind);
    shell.client()?.remove_watches(path, kind).map_err(|code| server_error(code, path))?;
    Ok(Answer::done())
}
