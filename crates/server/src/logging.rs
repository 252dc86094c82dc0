//! Where log lines go: standard error, as text or JSON. Standard output is left to the one line that
//! says that the server is ready.

use std::io::{IsTerminal, Write};

use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::config::{LogFormat, LogLevel, Settings};
use crate::progress::above_bars;

/// Takes filters such as `info,stoa_core=debug`, and wins over the setting log-level.
const FILTER_ENVIRONMENT: &str = "STOA_LOG";

/// Starts logging. What is wrong with the filter is returned, to be logged by then.
///
/// Only the first call in a process has an effect.
pub fn start(settings: &Settings) -> Option<String> {
    let level = settings.log_level.name();
    let wanted = std::env::var(FILTER_ENVIRONMENT).ok().filter(|filter| !filter.is_empty());
    let (filter, problem) = match wanted.map(EnvFilter::try_new) {
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => {
            (EnvFilter::new(level), Some(format!("{FILTER_ENVIRONMENT} is not a log filter: {error}")))
        }
        None => (EnvFilter::new(level), None),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(StandardError);
    // A second subscriber in the same process, as in tests, is refused and the first one stays.
    let _ = match settings.log_format {
        LogFormat::Text => {
            let shows_modules = matches!(settings.log_level, LogLevel::Debug | LogLevel::Trace);
            let is_terminal = std::io::stderr().is_terminal();
            builder.with_target(shows_modules).with_ansi(is_terminal).try_init()
        }
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    problem
}

struct StandardError;

impl<'a> MakeWriter<'a> for StandardError {
    type Writer = StandardError;
    fn make_writer(&'a self) -> StandardError {
        StandardError
    }
}

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        above_bars(|| std::io::stderr().write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}
