//! The operating system: paths, variables, the clock, files, locks, secrets, signals, and the terminal.
//!
//! Nothing else of the program reads a variable or a clock, or writes to a terminal. Processes are the subject of
//! `nanobot-sandbox`, connections that of `nanobot-net`; agents, models and configs are unknown here. Start with
//! [`durable_file`], through which files are written, [`paths`] and [`env`].

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "cases of a table read best as values")
)]

pub mod age;
pub mod cancel;
pub mod children;
pub mod clock;
pub mod deferred;
pub mod digest;
pub mod durable_file;
pub mod entry_mode;
pub mod env;
pub mod file_lock;
pub mod hidden_chars;
pub mod home;
pub mod host;
pub mod input;
pub mod line_buffer;
pub mod log;
pub mod owner;
pub mod panic_report;
pub mod paths;
pub mod process_group;
pub mod repository;
pub mod rooted_fs;
pub mod secret;
pub mod semaphore;
pub mod service_manager;
pub mod shell;
pub mod signal;
pub mod symlinks;
pub mod terminal;
pub mod test_hooks;
pub mod utf8_stream;
pub mod wire_paths;
