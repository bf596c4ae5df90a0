//! The names of the keys that a section may hold, asked of its own `Deserialize`.
//!
//! So that a table which holds the keys of two rooms can be split, and no list of names has
//! to be kept true by hand.

use serde::de::{Deserialize, Deserializer, Error as _, Visitor, value::Error};
use std::cell::Cell;

/// The keys of `T`, in the order of its fields. Empty if `T` is not read from a table.
pub fn fields_of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let fields = Cell::new(&[][..]);
    // The probe never has a value to offer, so this is always an error; what counts is that
    // it was asked.
    let _ = T::deserialize(Probe(&fields)).is_err();
    fields.get()
}

/// A deserializer that only listens to which fields are asked for.
struct Probe<'a>(&'a Cell<&'static [&'static str]>);

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("there is nothing to read"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.set(fields);
        self.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        option unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier
        ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_told_as_the_configuration_spells_them() {
        assert_eq!(
            fields_of::<crate::route::Config>(),
            ["name", "match", "to", "final", "rewrite"]
        );
        assert_eq!(fields_of::<crate::backend::stdout::Config>(), [""; 0]);
        assert_eq!(fields_of::<String>(), [""; 0]);
    }
}
