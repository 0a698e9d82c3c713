//! The runs of jobs: which slot is due, the condition, the turn with its record, and whom to notify.

pub(crate) mod job_run;
pub(crate) mod job_runner;
pub(crate) mod job_slot;
mod notification;
pub(crate) mod probe;
pub(crate) mod run_condition;
pub(crate) mod scheduled_run;
pub(crate) mod trigger;
