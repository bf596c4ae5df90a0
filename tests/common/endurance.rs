//! How much of it: the endurance tests are short in the ordinary suite, and as long as an outage
//! when `POINTSMAN_ENDURANCE=full` asks for it.

use std::env;

/// The first in the ordinary suite, the second at full length.
pub fn size<T>(ordinary: T, full: T) -> T {
    match env::var("POINTSMAN_ENDURANCE").as_deref() {
        Ok("full") => full,
        Ok(other) => panic!("POINTSMAN_ENDURANCE is \"full\" or not set, but never {other:?}"),
        Err(_) => ordinary,
    }
}
