//! Pointsman: a metrics gateway and multiplexer.
