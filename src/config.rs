//! Configuration: files and environment in, typed sections or a list of all mistakes out.

pub mod mistake;

pub use mistake::{Mistake, did_you_mean};
