//! The options that commands share. Each is declared once: clap parses it, and `ops` uses the parsed value. Jobs, channels and
//! the REPL set them without a command line.

pub mod grants;
pub mod job;
pub mod model;
pub mod turn;
pub mod value;
