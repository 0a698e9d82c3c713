//! Contact with the operating system and the network, one module per subject. Depends on `std`, external crates and
//! `error`, and on no other module of this crate.

pub mod cancel;
pub mod clock;
pub mod crontab;
pub mod digest;
pub mod durable_file;
pub mod editor;
pub mod entry_mode;
pub mod env;
pub mod file_lock;
pub mod hidden_chars;
pub mod host;
pub mod http;
pub mod input;
pub mod ip_ranges;
pub mod kept_output;
pub mod log;
pub mod owner;
pub mod panic_report;
pub mod paths;
pub mod process;
pub mod process_group;
pub mod rooted_fs;
pub mod sandbox;
pub mod secret;
pub mod shell;
pub mod signal;
pub mod sse;
pub mod stdin_lines;
pub mod sync;
pub mod terminal;
pub mod test_dns;
pub mod test_hooks;
pub mod utf8_stream;
pub mod web_url;
pub mod webhook_request;
