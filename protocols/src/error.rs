//! What can be wrong with input, and what an encoder cannot say.
//!
//! Small closed enums, so that hostile input costs a counter and nothing else. Each has a
//! stable label for metrics and a sentence for people.

use std::fmt;

macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($variant:ident => $label:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $(#[doc = $text] $variant,)*
        }

        impl $name {
            /// Every reason, in the order of [`index`](Self::index).
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The value of the metric label `reason`. Never changes.
            pub const fn label(self) -> &'static str {
                match self { $($name::$variant => $label,)* }
            }

            /// A place in a table of counters.
            pub const fn index(self) -> usize {
                self as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($name::$variant => $text,)* })
            }
        }

        impl std::error::Error for $name {}
    };
}

reasons! {
    /// Why a line, a datagram or an item was refused.
    ParseError {
        InvalidUtf8 => "invalid_utf8", "the line is not UTF-8";
        ControlCharacter => "control_character", "a control character in a name or tag";
        EmptyName => "empty_name", "the name is empty";
        NameTooLong => "name_too_long", "the name is longer than 1024 bytes";
        LineTooLong => "line_too_long", "the line is longer than the listener's limit";
        MissingValue => "missing_value", "there is no value";
        InvalidValue => "invalid_value", "the value is not a finite decimal number";
        MissingKind => "missing_kind", "there is no kind after the value";
        UnknownKind => "unknown_kind", "the kind is none of c, g, ms, h, d, s";
        InvalidRate => "invalid_rate", "the sample rate is not a number in (0, 1]";
        InvalidTag => "invalid_tag", "a tag has no key, or has to be key=value and is not";
        DuplicateTag => "duplicate_tag", "a tag key stands twice with different values";
        TooManyTags => "too_many_tags", "there are more tags than the listener's limit";
        MissingTags => "missing_tags", "there is no tag, and the listener is strict";
        InvalidTimestamp => "invalid_timestamp", "the timestamp is not a positive number of seconds or milliseconds";
        TimestampOutOfRange => "ts_out_of_range", "the timestamp is outside the listener's time window";
        InvalidEvent => "invalid_event", "an event or service check is malformed";
        UnknownCommand => "unknown_command", "the command is unknown";
        TooFewWords => "too_few_words", "a put needs a metric, a timestamp and a value";
        InvalidJson => "invalid_json", "the JSON cannot be parsed";
        NotAPoint => "not_a_point", "the item is not an object that describes a point";
        NoFields => "no_fields", "the point has no value and no field";
        InvalidField => "invalid_field", "a field is neither a number, a truth value nor text";
        UnknownType => "unknown_type", "the type is none of counter, gauge, timer, set, histogram, distribution";
        ColumnMismatch => "column_mismatch", "a row has not as many cells as there are columns";
        UnsupportedEvent => "unsupported_event", "events and service checks have no backend";
        BodyTooLarge => "body_too_large", "the rows of the body repeat more names and tags than the listener takes";
        TooManyFields => "too_many_fields", "there are more fields than the listener takes";
        NotAField => "not_a_field", "a field has no key, or is not key=value";
        DuplicateField => "duplicate_field", "a field stands twice";
        UnbalancedQuotes => "unbalanced_quotes", "the text of a field does not end with its quote";
    }
}

reasons! {
    /// Why an encoder cannot write a point.
    Skip {
        NotFinite => "not_finite", "the value is not a finite number";
        Unrepresentable => "unrepresentable", "the backend has no way to say this";
        TooLarge => "too_large", "the encoded point is larger than the backend takes";
        EmptyName => "empty_name", "nothing is left of the name once it is made fit";
    }
}
