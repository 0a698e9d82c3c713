//! The sandbox against hostile commands. Each file has a table of attempts and prints its count.

mod destructive;
mod escapes;
mod everyday;
mod paths;
mod refusals;
mod sockets;
mod turns;
mod yard;

pub(crate) use refusals::without_landlock;
