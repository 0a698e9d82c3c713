//! Stories told from outside: the real binary, real files, a scripted model server on loopback.

mod server;
mod story;
mod tidy;
