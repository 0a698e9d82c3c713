//! The sandbox, held against what commands can think of: each table is of our own making, and prints its count.

mod destructive;
mod escapes;
mod everyday;
mod paths;
mod refusals;
mod sockets;
mod turns;
mod yard;

pub(crate) use refusals::without_landlock;
