//! What a name may be, whatever the protocol: any text of up to 1024 bytes without control
//! characters.
//!
//! Each encoder makes it fit for its backend.

use crate::ParseError;
use crate::token::has_control;

/// Refuses what is no name.
pub(crate) fn check(name: &str) -> Result<(), ParseError> {
    check_length(name)?;
    if has_control(name) { Err(ParseError::ControlCharacter) } else { Ok(()) }
}

/// Refuses a name that is empty or too long; for whoever has looked for control characters.
pub(crate) fn check_length(name: &str) -> Result<(), ParseError> {
    match name.len() {
        0 => Err(ParseError::EmptyName),
        1..=BYTES_MAX => Ok(()),
        _ => Err(ParseError::NameTooLong),
    }
}

/// The longest name.
pub(crate) const BYTES_MAX: usize = 1024;
