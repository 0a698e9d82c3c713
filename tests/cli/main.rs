//! Stories told from outside: the real binary, real files, a scripted model server on loopback.

mod config;
mod crash;
mod crowd;
mod docs;
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
