//! Stories told from outside: the real binary, real files, a scripted model server on loopback.

mod answers;
mod attach;
mod config;
pub(crate) mod crash;
mod crowd;
mod docs;
mod faults;
mod keys;
mod login;
mod models;
mod money;
mod pipes;
mod replay;
mod schema;
mod server;
mod sessions;
mod signals;
mod standins;
mod statuses;
mod story;
mod streams;
mod tidy;
mod turn;
mod usage;
mod wire;
