//! The runs of jobs. `start` starts them, `scheduled_run` decides which slot is due, `job_runner` runs the job, and `job_process`
//! starts those that run after it.

mod job_process;
pub(crate) mod job_runner;
mod job_update;
mod notification;
pub(crate) mod probe;
pub(crate) mod scheduled_run;
pub(crate) mod start;
