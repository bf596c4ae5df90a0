//! Counted things in words: one point, two points.

/// `1 point`, `2 points`: so many of what is called `one` and, if there is another number of it, has an s
/// at its end.
pub fn counted(count: impl Into<u64>, one: &str) -> String {
    let count = count.into();
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {one}{end}")
}

/// What goes with so many.
pub fn was(count: impl Into<u64>) -> &'static str {
    if count.into() == 1 { "was" } else { "were" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_one_and_none_are_many() {
        for (count, expected) in [
            (0_u64, "0 points were"),
            (1, "1 point was"),
            (2, "2 points were"),
            (11, "11 points were"),
            (21, "21 points were"),
            (u64::MAX, "18446744073709551615 points were"),
        ] {
            assert_eq!(format!("{} {}", counted(count, "point"), was(count)), expected);
        }
    }
}
