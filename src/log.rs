//! Logging: to standard error, as text for people or as JSON for machines.
//!
//! Colour only on a terminal, and not where `NO_COLOR` is set to anything.

use clap::ValueEnum;
use std::io::{IsTerminal as _, Write as _, stderr};
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// How lines of the log look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One object a line.
    Json,
}

/// Starts logging; a second call changes nothing.
pub fn start(format: Format, level: EnvFilter, no_color: bool) {
    let builder = tracing_subscriber::fmt()
        .with_writer(stderr)
        .with_env_filter(level)
        .with_target(false)
        .with_ansi(stderr().is_terminal() && !no_color);
    // Somebody else's subscriber, in a test say, is as good as ours.
    let _ = match format {
        Format::Text => builder.finish().with(filter_fn(is_harmless)).try_init(),
        Format::Json => {
            let builder = builder.json().flatten_event(true).with_span_list(false);
            builder.finish().with(filter_fn(is_harmless)).try_init()
        }
    };
}

/// Whatever level is asked for: the AMQP client traces whole frames, the one with the password too.
fn is_harmless(metadata: &Metadata<'_>) -> bool {
    *metadata.level() != Level::TRACE || !metadata.target().starts_with("lapin")
}

/// Writes a text for people to standard error, where nobody may be listening.
pub fn tell(text: &str) {
    let _ = stderr().lock().write_all(text.as_bytes());
}

/// Reads a level, or directives such as `info,pointsman=debug`.
///
/// # Errors
///
/// What is wrong with the text.
pub fn level(text: &str) -> Result<EnvFilter, String> {
    match text.parse::<tracing_subscriber::filter::LevelFilter>() {
        Ok(level) if !text.is_empty() => {
            let mut filter = EnvFilter::default().add_directive(level.into());
            // A connection that ends is an error to it; ours to tell, with what it was for.
            filter =
                QUIET.iter().flat_map(|quiet| quiet.parse()).fold(filter, EnvFilter::add_directive);
            Ok(filter)
        }
        // A lone word would be taken for the name of a module.
        _ if !text.contains('=') => {
            Err("write off, error, warn, info, debug or trace, or module=level".to_owned())
        }
        _ => EnvFilter::try_new(text).map_err(|error| error.to_string()),
    }
}

/// Libraries that log what we tell.
const QUIET: [&str; 1] = ["lapin=off"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels() {
        for text in ["info", "off", "TRACE", "info,pointsman::lane=debug"] {
            assert!(level(text).is_ok(), "{text}");
        }
        for text in ["loud", "", "pointsman=loud"] {
            assert!(level(text).is_err(), "{text}");
        }
    }
}
