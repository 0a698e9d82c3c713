//! Consolidation: old messages of sessions become long-term memory.

pub(crate) mod consolidator;
pub(crate) mod deferred;
pub(crate) mod memory_edit;
pub(crate) mod run;
