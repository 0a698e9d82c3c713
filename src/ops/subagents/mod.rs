//! Sub-agents: turns of their own that the model starts beside its turn, on threads, with at most the rights of that turn.

pub(crate) mod job;
pub(crate) mod pool;
mod run;
