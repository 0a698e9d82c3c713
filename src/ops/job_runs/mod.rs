//! The runs of jobs: which slot is due, the condition, the turn with its record, and the notifications.

pub(crate) mod job_run;
pub(crate) mod job_runner;
pub(crate) mod probe;
pub(crate) mod scheduled_run;
pub(crate) mod trigger;
