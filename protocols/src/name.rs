//! How long a name may be, whatever the protocol.
//!
//! What it may be made of is for each protocol to say, and each encoder makes it fit.

use crate::ParseError;

/// Refuses a name that is empty or too long.
pub(crate) fn check_length(name: &str) -> Result<(), ParseError> {
    match name.len() {
        0 => Err(ParseError::EmptyName),
        1..=BYTES_MAX => Ok(()),
        _ => Err(ParseError::NameTooLong),
    }
}

/// The longest name.
pub(crate) const BYTES_MAX: usize = 1024;
