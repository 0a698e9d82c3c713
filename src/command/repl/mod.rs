//! A conversation, line by line.

pub mod known;
