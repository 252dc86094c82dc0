//! The flags of `stoa serve`, one for each row of the table of settings.

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::settings::{SETTINGS, Setting, Settings};

const CONFIG: &str = "config";
/// Names the configuration file when the flag does not.
pub(super) const CONFIG_ENVIRONMENT: &str = "STOA_CONFIG";

/// The flags of `stoa serve` as they were given.
#[derive(Clone, Debug, Default)]
pub struct ServeArgs {
    /// The configuration file.
    pub config: Option<PathBuf>,
    /// The flags that were given, by the index of their setting.
    pub(super) flags: Vec<(usize, String)>,
}

impl Args for ServeArgs {
    fn augment_args(command: Command) -> Command {
        let config =
            Arg::new(CONFIG).long(CONFIG).value_name("FILE").value_parser(clap::value_parser!(PathBuf)).help(
                format!("A configuration file: TOML, or a zoo.cfg as it is [env: {CONFIG_ENVIRONMENT}]"),
            );
        SETTINGS.iter().fold(command.arg(config), |command, setting| command.arg(argument(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn argument(setting: &'static Setting) -> Arg {
    let mut help = setting.help.trim().to_owned();
    if !setting.default.is_empty() {
        help += &format!(" [default: {}]", setting.default);
    }
    help += &format!(" [env: {}]", setting.environment);
    let check = move |text: &str| {
        // A wrong value is shown here. That of a secret is looked at later, where it is not.
        if setting.is_secret() || setting.set(&mut Settings::default(), text) {
            Ok(text.to_owned())
        } else {
            Err(format!("expected {}", setting.expected))
        }
    };
    let argument = Arg::new(setting.key)
        .long(setting.key)
        .value_name(setting.placeholder)
        .value_parser(check)
        .help(help);
    if setting.is_flag() { argument.num_args(0..=1).default_missing_value("true") } else { argument }
}

impl FromArgMatches for ServeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut arguments = ServeArgs::default();
        arguments.update_from_arg_matches(matches)?;
        Ok(arguments)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        if let Some(config) = matches.get_one::<PathBuf>(CONFIG) {
            self.config = Some(config.clone());
        }
        for (index, setting) in SETTINGS.iter().enumerate() {
            if matches.value_source(setting.key) == Some(ValueSource::CommandLine)
                && let Some(value) = matches.get_one::<String>(setting.key)
            {
                self.flags.push((index, value.clone()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<ServeArgs, clap::Error> {
        let command = ServeArgs::augment_args(Command::new("serve").no_binary_name(true));
        ServeArgs::from_arg_matches(&command.try_get_matches_from(arguments)?)
    }

    fn given(arguments: &ServeArgs) -> Vec<(&'static str, &str)> {
        arguments.flags.iter().map(|(index, value)| (SETTINGS[*index].key, value.as_str())).collect()
    }

    #[test]
    fn only_flags_that_were_given_count() {
        let arguments = parse(&["--port", "2182", "--config", "zoo.cfg", "--skip-acl"]).unwrap();
        assert_eq!(arguments.config, Some(PathBuf::from("zoo.cfg")));
        assert_eq!(given(&arguments), [("port", "2182"), ("skip-acl", "true")]);
        assert_eq!(given(&parse(&["--fsync", "no"]).unwrap()), [("fsync", "no")]);
    }

    #[test]
    fn a_wrong_value_is_refused_with_what_was_expected() {
        let error = parse(&["--port", "70000"]).unwrap_err().to_string();
        assert!(parse(&["--peer-secret", &"x".repeat(2000)]).is_ok(), "it would be shown");
        assert!(error.contains("'70000' for '--port <PORT>': expected a port, 0 to 65535"), "{error}");
    }

    #[test]
    fn help_names_every_setting_with_default_and_environment() {
        let help =
            ServeArgs::augment_args(Command::new("serve")).term_width(0).render_long_help().to_string();
        for setting in SETTINGS {
            assert!(help.contains(&format!("--{}", setting.key)), "{}", setting.key);
            assert!(help.contains(&format!("[env: {}]", setting.environment)), "{}", setting.key);
        }
        assert!(help.contains("[default: ./stoa-data]"));
    }
}
