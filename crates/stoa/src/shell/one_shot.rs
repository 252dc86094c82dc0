//! A word of the shell as a command of its own: `stoa get /a`.

use clap::Parser;

use super::ShellArgs;
use super::session::Shell;
use crate::failure::{Failure, Result};

/// The options of the shell, wherever they stand among the word's own.
#[derive(Debug, Parser)]
#[command(name = "stoa", no_binary_name = true)]
struct OneShot {
    #[command(flatten)]
    shell: ShellArgs,
}

/// Options of [`ShellArgs`] that have a value, and those that have none.
const WITH_VALUE: [&str; 7] = [
    "--server",
    "--timeout",
    "--auth",
    "--tls-authority",
    "--tls-certificate",
    "--tls-key",
    "--tls-password-file",
];
const WITHOUT_VALUE: [&str; 3] = ["--json", "--read-only", "--tls-no-host-check"];

/// Whether a command line begins with an option of the shell, so that a word must follow:
/// `stoa --json get /a`.
pub(crate) fn begins_with_option(first: &str) -> bool {
    let name = first.split('=').next().unwrap_or_default();
    WITH_VALUE.contains(&name) || WITHOUT_VALUE.contains(&first)
}

/// Carries out one word. If it set watches, waits for what they see: a one-time watch ends it, a
/// persistent one goes on until the command is interrupted.
pub(crate) fn run(parts: Vec<String>) -> Result<()> {
    let (options, word) = separate(parts);
    let args =
        OneShot::try_parse_from(options).map_err(|error| Failure::usage(error.to_string().trim_end()))?.shell;
    let is_json = args.json;
    let (mut shell, notices) = Shell::new(args);
    // A mistake in the word should not need a server to be found.
    let name = word.first().map_or("", String::as_str);
    let needs_server = !matches!(name, "help" | "version" | "connect" | "status");
    super::words::find(name)?;
    if needs_server {
        shell.connect()?;
    }
    shell.parts(&word)?.print(is_json)?;
    let client = shell.shared_client();
    drop(shell);
    for notice in notices {
        notice.print(is_json)?;
    }
    drop(client);
    Ok(())
}

/// Tells the shell's options from the word and what belongs to it.
fn separate(parts: Vec<String>) -> (Vec<String>, Vec<String>) {
    let (mut options, mut word) = (Vec::new(), Vec::new());
    let mut parts = parts.into_iter();
    while let Some(part) = parts.next() {
        let name = part.split('=').next().unwrap_or_default();
        if part == "--" {
            word.push(part);
            break;
        } else if WITH_VALUE.contains(&name) {
            let is_whole = part.len() > name.len();
            options.push(part);
            if !is_whole {
                options.extend(parts.next());
            }
        } else if WITHOUT_VALUE.contains(&part.as_str()) {
            options.push(part);
        } else {
            word.push(part);
        }
    }
    word.extend(parts);
    (options, word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn separated(line: &str) -> (String, String) {
        let (options, word) = separate(line.split(' ').map(str::to_owned).collect());
        (options.join(" "), word.join(" "))
    }

    #[test]
    fn options_may_stand_anywhere_before_two_dashes() {
        let expected = ("--server h:1 --json".to_owned(), "get -s /a".to_owned());
        assert_eq!(separated("get --server h:1 -s /a --json"), expected);
        assert_eq!(separated("set --auth=a:b /a -- --json").1, "set /a -- --json");
    }

    #[test]
    fn every_option_of_the_shell_is_known_here() {
        for argument in OneShot::command().get_arguments().filter(|argument| argument.get_id() != "help") {
            let name = format!("--{}", argument.get_long().unwrap());
            let takes_value = argument.get_action().takes_values();
            let known = if takes_value { &WITH_VALUE[..] } else { &WITHOUT_VALUE[..] };
            assert!(known.contains(&name.as_str()), "{name}");
        }
    }
}
