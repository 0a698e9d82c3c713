//! `--when`: the user's shell command that decides if a job runs.

use crate::ops::job_runs::job_runner::{JobRunner, redact_and_shorten};
use crate::ops::jobs::delivery;
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use nanobot_base::error::{Exit, fail};
use nanobot_cron::job::Job;
use nanobot_sandbox::process::{self, CommandSpec};

/// Bytes of the command's output that are kept, from its beginning and from its end.
const OUTPUT_LIMIT_BYTES: usize = 256 << 10;

/// The result of a condition.
pub(super) enum ConditionResult {
    /// Run the job, with this output as its input.
    Met(Vec<u8>),
    NotMet,
}

impl JobRunner<'_> {
    /// Runs the command of the condition.
    pub(super) fn check_condition(
        &self,
        job: &Job,
        command: &str,
        slot: Option<Timestamp>,
    ) -> Result<ConditionResult> {
        let spec = CommandSpec {
            capture_bytes: OUTPUT_LIMIT_BYTES,
            ..delivery::shell_spec(self.ctx, self.settings, job, slot, command, None)
        };
        let finished = process::run(&spec, &mut |_| {}).context("run `--when`")?;
        if let Some(stop) = finished.stop {
            return Err(stop.into());
        }
        let output = || redact_and_shorten(String::from_utf8_lossy(&finished.head).trim());
        let failed = |how: String| {
            let output = output();
            let colon = if output.is_empty() { "" } else { ": " };
            fail(Exit::Failed, format!("`--when` {how}{colon}{output}"))
        };
        match finished.status.and_then(|status| status.code()) {
            Some(0) => {
                let mut output = finished.head;
                if finished.omitted_bytes > 0 {
                    let gap = format!("\n[… {} bytes left out …]\n", finished.omitted_bytes);
                    output.extend(gap.as_bytes());
                }
                output.extend(finished.tail);
                Ok(ConditionResult::Met(output))
            }
            Some(code @ (126 | 127)) => Err(failed(format!("cannot be run (exit status {code})"))),
            Some(_) => Ok(ConditionResult::NotMet),
            None => match finished.signal() {
                Some(number) => Err(failed(format!("was killed by signal {number}"))),
                None => Err(failed("timed out".into())),
            },
        }
    }
}
