//! Guards, which may stop or modify a turn. The turn calls each guard in order before every request to the model, and
//! knows them only by their trait.

pub mod compaction;
pub mod context_warning;
pub mod iteration_limit;
pub mod loop_detection;
pub mod orphaned_subagents;
pub mod plan_mode;
