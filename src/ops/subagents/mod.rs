//! Sub-agents: turns that the model starts with the `spawn` tool. They run on threads, in parallel to the turn that
//! started them, and have at most its permissions.

pub(crate) mod pool;
mod run;
pub(crate) mod task;
