//! Jobs: creates and changes them, keeps their schedules and crontab lines, and delivers their answers.
//! [`super::job_runs`] runs them.

pub(crate) mod cron_environment;
pub(crate) mod crontab_status;
pub(crate) mod crontab_sync;
pub(crate) mod delivery;
pub(crate) mod export;
pub(crate) mod heartbeat;
pub(crate) mod heartbeat_job;
pub(crate) mod job_apply;
pub(crate) mod job_context;
pub(crate) mod job_edit;
pub(crate) mod job_grants;
pub(crate) mod job_notices;
pub(crate) mod job_options;
pub(crate) mod job_status;
pub(crate) mod lifecycle;
pub(crate) mod ping;
pub(crate) mod resolved_job;
pub(crate) mod retry;
pub(crate) mod run_log;
pub(crate) mod scheduler;
pub(crate) mod scheduler_problems;
pub(crate) mod time_format;
pub(crate) mod time_zone;
pub(crate) mod timing;
pub(crate) mod unseen_answers;
pub(crate) mod workspace_jobs;
