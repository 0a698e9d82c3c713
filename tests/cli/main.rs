//! Stories told from outside: the real binary, real files, a scripted model server on loopback.

mod attach;
mod config;
pub(crate) mod crash;
mod crowd;
mod docs;
mod faults;
mod login;
mod pipes;
mod replay;
mod schema;
mod server;
mod sessions;
mod signals;
mod statuses;
mod story;
mod streams;
mod tidy;
mod turn;
mod wire;
