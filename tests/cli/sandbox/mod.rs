//! The sandbox against hostile commands. Each file has a table of attempts and prints its count.

mod closed_places;
mod destructive;
mod escapes;
mod everyday;
mod fixture;
mod git;
mod git_layouts;
mod hosts;
mod limits;
mod loopback;
mod new_repositories;
mod paths;
mod refusals;
mod shell;
mod signing;
mod sockets;
mod tracing;
mod write_lock;

pub(crate) use fixture::print_count;
pub(crate) use refusals::command_without_landlock;
