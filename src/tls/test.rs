//! Loading certificates that are right, and that are not.
