//! Sub-agents: separate turns that the model starts in parallel to its own turn, on threads, with at most that turn's
//! permissions.

pub(crate) mod pool;
mod run;
pub(crate) mod task;
