//! Retries of failed runs: when the next try of a slot is due.

use crate::ops::context::Context;
use crate::ops::jobs::timing;
use jiff::{SignedDuration, Timestamp};
use nanobot_base::error::Exit;
use nanobot_cron::job::Job;
use nanobot_cron::run_record::{PendingRetry, RunOutcome, RunRecord, RunState, Trigger};

/// Maximum time before a retry. A retry that is further ahead was planned with a wrong clock.
const MAX_RETRY_DELAY: SignedDuration = SignedDuration::from_hours(24);

/// The retry of the run in `record`, which has ended. `None` if its failure is not retried, all retries are used, or the
/// next slot comes first.
pub(crate) fn plan(ctx: &Context, job: &Job, record: &RunRecord) -> Option<PendingRetry> {
    let policy = job.retry_policy();
    let is_retryable = record.trigger == Trigger::Schedule
        && record.outcome == RunOutcome::Failed
        && job.retries(Exit::from_code(record.status.into()))
        && record.retry < policy.limit;
    if !is_retryable {
        return None;
    }
    let slot: Timestamp = record.slot.as_deref()?.parse().ok()?;
    let now = ctx.clock.timestamp();
    let at = now.checked_add(policy.delay).ok()?;
    let next_runs = timing::upcoming_runs(ctx, job, now, 1);
    let is_before_next_run = next_runs.iter().all(|next| at < *next);
    is_before_next_run.then(|| PendingRetry {
        slot_ms: slot.as_millisecond(),
        at_ms: at.as_millisecond(),
        number: record.retry + 1,
    })
}

/// The retry that `job` waits for. A retry of a slot before the job was enabled or its schedule changed is ignored.
pub(crate) fn pending(job: &Job, state: &RunState) -> Option<PendingRetry> {
    let earliest = job.earliest_slot();
    state.retry.filter(|retry| retry.slot() >= earliest)
}

/// The retry of `job` that is due at `now`.
pub(crate) fn due(job: &Job, state: &RunState, now: Timestamp) -> Option<PendingRetry> {
    let is_due = |retry: &PendingRetry| {
        let wait = retry.at().duration_since(now);
        wait <= SignedDuration::ZERO || wait > MAX_RETRY_DELAY
    };
    pending(job, state).filter(is_due)
}
