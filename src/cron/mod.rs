//! Scheduled jobs: when they are due, their entries in the job file, and their lines in the crontab.
//!
//! [`expression`], [`schedule`], [`line`] and [`table`] are pure: times are passed in as values, and text is
//! returned. [`store`] reads and writes the job file, which is shared with the Python program. [`record`] holds what
//! only this program stores of a job, in a separate folder: its terms, the runs that were started, and their
//! outcomes.

pub mod command;
pub mod export;
pub mod expression;
pub mod job;
mod job_entry;
mod job_file;
pub mod line;
pub mod record;
pub mod schedule;
pub mod store;
pub mod table;
