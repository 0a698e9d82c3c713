//! Contact with the operating system and the network, one module per subject. Depends on `std`, external crates and
//! `error`, and on no other module of this crate.

pub mod address;
pub mod beneath;
pub mod clock;
pub mod crontab;
pub mod defect;
pub mod editor;
pub mod env;
pub mod hosts;
pub mod http;
pub mod input;
pub mod invisible;
pub mod leash;
pub mod letters;
pub mod log;
pub mod paths;
pub mod process;
pub mod sandbox;
pub mod secret;
pub mod shell;
pub mod signal;
pub mod sse;
pub mod store;
pub mod sync;
pub mod terminal;
pub mod test_hooks;
pub mod web_url;
