//! The options that commands share. Each is declared once: clap reads it, and `ops` uses it as it was read. Jobs, channels and
//! the REPL set them without a command line.

pub mod grants;
pub mod job;
pub mod model;
pub mod turn;
pub mod value;
