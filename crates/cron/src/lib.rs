//! Scheduled jobs: when they are due, their entries in the job file, and their lines in the crontab.
//!
//! [`expression`], [`schedule`], [`time_fields`] and [`crontab_block`] do no I/O: times are passed in as values, and text is returned.
//! [`job_store`] reads and writes the job file, which is shared with the Python program. [`run_record`] has the records of runs that were
//! started, with their outcomes, in a separate directory.
//!
//! Jobs are run and delivered by the program. Start with [`job`] and [`schedule`].

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "cases of a table read best as values")
)]

pub mod command_line;
pub mod crontab;
pub mod crontab_block;
pub mod export;
pub mod expression;
pub mod job;
pub mod job_chain;
mod job_entry;
mod job_file;
pub mod job_store;
pub mod run_record;
pub mod schedule;
pub mod start_delay;
pub mod time_fields;
