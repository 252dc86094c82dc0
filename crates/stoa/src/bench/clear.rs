//! Takes away what runs leave behind: znodes, and programs that work on them.

use stoa_client::{Client, ErrorCode};
use stoa_tree::PROGRAMS;

type Answer<T> = Result<T, ErrorCode>;

/// Removes a znode with all that is below it, and the programs of recipes there, whether they are of this run or of
/// one that was interrupted.
pub(super) async fn clear(keeper: &Client, root: &str) -> Answer<()> {
    keeper.sync("/").await?;
    // In names of programs a path has colons.
    let of_root = root.replace('/', ":");
    let is_of_root = |name: &str| name.ends_with(&of_root) || name.contains(&format!("{of_root}:"));
    // First, so that they do not react to the rest.
    for program in children(keeper, PROGRAMS).await?.iter().filter(|name| is_of_root(name)) {
        delete(keeper, &format!("{PROGRAMS}/{program}")).await?;
    }
    // Parents before their children.
    let mut paths = vec![root.to_owned()];
    for at in 0.. {
        let Some(path) = paths.get(at).cloned() else { break };
        paths.extend(children(keeper, &path).await?.iter().map(|name| format!("{path}/{name}")));
    }
    for path in paths.iter().rev() {
        delete(keeper, path).await?;
    }
    Ok(())
}

async fn children(client: &Client, path: &str) -> Answer<Vec<String>> {
    match client.get_children(path).await {
        Err(ErrorCode::NoNode) => Ok(Vec::new()),
        listed => listed,
    }
}

/// Deletes a znode, if it is there.
async fn delete(client: &Client, path: &str) -> Answer<()> {
    match client.delete(path, None).await {
        Err(ErrorCode::NoNode) => Ok(()),
        deleted => deleted,
    }
}
