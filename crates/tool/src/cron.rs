//! The `cron` tool: reminders and recurring tasks. A job of the model is the same as one created on the command line, but
//! contains only a message and a schedule: no command, file, flag, profile or model. The jobs are stored behind
//! [`JobScheduler`].
//!
//! A job outlives its conversation, so untrusted content must not cause one: no job is added, changed or removed while the context has
//! untrusted content, except for a [`RepliedJob`], which a person has pointed at. A job may do no more than the run that made it, and runs
//! may make at most [`MAX_MODEL_JOBS`] jobs. The new text of a job needs the user's permission in any case.

use super::message::ChatTarget;
use super::{Call, CallEffect, Tool, ToolError, ToolOutput};
use nanobot_base::message::{ToolSpec, without_blanks};
use nanobot_config::policy::provenance::{ChangeGrants, Grant, GuardedChange, ProvenanceTracker};
use nanobot_config::policy::{Policy, Refusal};
use serde_json::Value;
use std::sync::Arc;

/// Maximum number of jobs created by runs.
pub const MAX_MODEL_JOBS: usize = 20;
/// The shortest period, in seconds: cron checks once a minute.
const MIN_PERIOD_SECS: u64 = 60;
/// Maximum characters of a name that the model gives, and of one taken from the start of the message.
const MAX_NAME_CHARS: usize = 60;
const MAX_DEFAULT_NAME_CHARS: usize = 30;
/// Maximum characters of a message.
const MAX_MESSAGE_CHARS: usize = 10_000;

/// The state of a job that is not listed: it may go on in another workspace, or be disabled.
const NOT_LISTED: &str = "not among the jobs of this chat, or over";

/// Stores jobs.
pub trait JobScheduler: Send + Sync {
    /// Creates a job. An implementation that can lock the jobs must count those created by runs again under the lock, see
    /// [`job_limit_error`].
    ///
    /// # Errors
    /// The schedule is wrong. The error is a text for the model that shows the correct form; it never quotes another program.
    fn add(&self, request: &JobRequest<'_>) -> Result<CreatedJob, ToolError>;

    /// Lists all jobs, by next run.
    ///
    /// # Errors
    /// The errors of [`Self::add`].
    fn list(&self) -> Result<Vec<ListedJob>, ToolError>;

    /// Removes the job with that id; false if there is none. The tool has already checked with [`Self::list`] that it
    /// may be removed.
    ///
    /// # Errors
    /// The errors of [`Self::add`].
    fn remove(&self, id: &str) -> Result<bool, ToolError>;

    /// Disables the job with that id, which the user made; false if there is none.
    ///
    /// # Errors
    /// The errors of [`Self::add`].
    fn disable(&self, id: &str) -> Result<bool, ToolError>;

    /// Gives a job another schedule or message. Returns its next run, for people.
    ///
    /// # Errors
    /// The errors of [`Self::add`].
    fn change(&self, change: &RequestedChange<'_>) -> Result<String, ToolError>;
}

/// A change of a job. What is `None` stays as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedChange<'a> {
    pub id: &'a str,
    pub schedule: Option<RequestedSchedule<'a>>,
    pub message: Option<&'a str>,
    /// The permissions of the run that changes the message.
    pub policy: Value,
}

/// A job whose delivered message a person replies to, known by the service's id of that message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepliedJob {
    pub id: String,
    /// Its message, if the job was removed after its run.
    pub message: Option<String>,
    /// The time of the delivery, in milliseconds since 1970: a later job with this id is another one.
    pub delivered_at: i64,
}

impl RepliedJob {
    /// True if `job` is this one.
    fn is(&self, job: &ListedJob) -> bool {
        job.id == self.id && job.created_at <= self.delivered_at
    }
}

/// A job as the model requests it.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRequest<'a> {
    /// One line.
    pub name: String,
    /// The message that the run gets.
    pub message: &'a str,
    pub schedule: RequestedSchedule<'a>,
    /// The chat that the answer is sent to; `None` for the run's default output.
    pub chat: Option<&'a ChatTarget>,
    /// The permissions of the run that makes the job, as from [`Policy::snapshot`].
    pub policy: Value,
}

/// The schedule, as the model wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedSchedule<'a> {
    /// Period in seconds, at least [`MIN_PERIOD_SECS`].
    Every(u64),
    Cron {
        expression: &'a str,
        zone: Option<&'a str>,
    },
    /// An ISO 8601 time.
    At(&'a str),
}

/// A job that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedJob {
    pub id: String,
    /// The first run, for people.
    pub next: String,
}

/// A job as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedJob {
    pub id: String,
    /// `None` if another program created the job: its name may be untrusted content.
    pub name: Option<String>,
    /// Built only from fixed text, numbers and time zone names: `every 5m`, `cron: 0 8 * * 1-5 (Europe/Berlin)`.
    pub schedule: String,
    /// The next run, for people; `None` for never.
    pub next: Option<String>,
    /// True if a run created it, false if a person did.
    pub by_model: bool,
    pub chat: Option<ChatTarget>,
    /// The message of its runs; `None` if they have none, or another program has changed it.
    pub message: Option<String>,
    /// In milliseconds since 1970.
    pub created_at: i64,
}

impl ListedJob {
    /// One line about the job.
    fn describe(&self) -> String {
        let name = match &self.name {
            Some(name) => single_line(name, MAX_NAME_CHARS),
            None => "(from another program)".into(),
        };
        let next = self.next.as_deref().unwrap_or("never");
        let Self { id, schedule, .. } = self;
        format!("{name} (id: {id}, {schedule}), next run: {next}")
    }
}

/// The failure for a job beyond [`MAX_MODEL_JOBS`].
pub fn job_limit_error() -> ToolError {
    format!(
        "runs have created {MAX_MODEL_JOBS} jobs, which is the maximum; remove one that is no longer needed, or ask the user to add this \
         with `nanobot cron add`"
    )
    .into()
}

/// The `cron` tool.
pub struct CronTool {
    spec: ToolSpec,
    scheduler: Arc<dyn JobScheduler>,
    policy: Arc<Policy>,
    provenance: Arc<ProvenanceTracker>,
    grants: ChangeGrants,
    chat: Option<ChatTarget>,
    replied_jobs: Vec<RepliedJob>,
}

impl CronTool {
    /// Creates the tool for the session `key`. Its jobs run under `policy` at most. `provenance` and `grants` decide whether it may change
    /// jobs other than `replied_jobs`.
    pub fn new(
        scheduler: Arc<dyn JobScheduler>,
        policy: Arc<Policy>,
        provenance: Arc<ProvenanceTracker>,
        grants: ChangeGrants,
        key: &str,
        replied_jobs: Vec<RepliedJob>,
    ) -> Self {
        Self {
            spec: spec(),
            scheduler,
            policy,
            provenance,
            grants,
            chat: ChatTarget::from_session_key(key),
            replied_jobs,
        }
    }

    /// Refuses an action, unless the conversation, the user, or the reply of a person to a message of the job permits it.
    fn check_action(&self, action: JobAction, arguments: &Value) -> Result<(), ToolError> {
        let id = text_argument(arguments, "job_id").filter(|_| action != JobAction::Add);
        let is_replied = id.is_some_and(|id| self.replied_jobs.iter().any(|job| job.id == id));
        let external = self.provenance.external_content().filter(|_| !is_replied);
        let what = format!("jobs cannot be {}", action.participle());
        self.grants.check(GuardedChange::Jobs, external, &what)?;
        if action != JobAction::Change || text_argument(arguments, "message").is_none() {
            return Ok(());
        }
        // A reply does not take over a job of the user, which may have more permissions.
        if let FoundJob::Listed { job, .. } = self.find(arguments, action)?
            && let Some(refusal) = self.foreign_job_refusal(&job, action)
        {
            return Err(refusal.into());
        }
        if self.grants.jobs != Grant::Allowed {
            return Err(ToolError::Denied(Refusal {
                message: "the text of a job cannot be changed without permission".to_owned(),
                suggested_flag: Some(format!("--allow {}", GuardedChange::Jobs.word())),
                names_flag: false,
            }));
        }
        Ok(())
    }

    fn add(&self, arguments: &Value) -> Result<String, ToolError> {
        let message = message_argument(arguments)?.ok_or("message is required for add")?;
        let name = text_argument(arguments, "name");
        self.create(name, message, parse_schedule(arguments)?)
    }

    fn create(
        &self,
        name: Option<&str>,
        message: &str,
        schedule: RequestedSchedule<'_>,
    ) -> Result<String, ToolError> {
        let jobs = self.scheduler.list()?;
        if jobs.iter().filter(|job| job.by_model).count() >= MAX_MODEL_JOBS {
            return Err(job_limit_error());
        }
        let name = match name {
            Some(name) => single_line(name, MAX_NAME_CHARS),
            None => single_line(message, MAX_DEFAULT_NAME_CHARS),
        };
        let CreatedJob { id, next } = self.scheduler.add(&JobRequest {
            name: name.clone(),
            message,
            schedule,
            chat: self.chat.as_ref(),
            policy: self.policy.snapshot(),
        })?;
        Ok(format!("Created job '{name}' (id: {id}), first run: {next}"))
    }

    /// Runs a job's message once more, at another time.
    fn snooze(&self, arguments: &Value) -> Result<String, ToolError> {
        let time = text_argument(arguments, "at").ok_or("at is required for snooze")?;
        let found_job = self.find(arguments, JobAction::Snooze)?;
        let message = match &found_job {
            FoundJob::Listed { job, .. } => job.message.as_deref(),
            FoundJob::Over(job) => job.message.as_deref(),
        };
        let message = message.ok_or("the message of this job cannot be repeated")?;
        let name = match &found_job {
            FoundJob::Listed { job, .. } => job.name.as_deref(),
            FoundJob::Over(_) => None,
        };
        self.create(name, message, RequestedSchedule::At(time))
    }

    fn change(&self, arguments: &Value) -> Result<String, ToolError> {
        let message = message_argument(arguments)?;
        let has_schedule = ["every_seconds", "cron_expr", "at"].iter().any(|name| {
            text_argument(arguments, name).is_some()
                || arguments[*name].as_i64().is_some_and(|number| number != 0)
        });
        let schedule =
            if has_schedule || message.is_none() { Some(parse_schedule(arguments)?) } else { None };
        let FoundJob::Listed { job, .. } = self.find(arguments, JobAction::Change)? else {
            let id = text_argument(arguments, "job_id").unwrap_or_default();
            return Err(format!("Job {id} is {NOT_LISTED}; `snooze` runs it once more").into());
        };
        let change =
            RequestedChange { id: &job.id, schedule, message, policy: self.policy.snapshot() };
        let next = self.scheduler.change(&change)?;
        Ok(format!("Changed job {}, next run: {next}", job.id))
    }

    fn list(&self) -> Result<String, ToolError> {
        Ok(list_text(&self.scheduler.list()?))
    }

    fn remove(&self, arguments: &Value) -> Result<String, ToolError> {
        let (job, is_replied) = match self.find(arguments, JobAction::Remove)? {
            FoundJob::Listed { job, is_replied } => (job, is_replied),
            FoundJob::Over(job) => return Err(format!("Job {} is {NOT_LISTED}", job.id).into()),
        };
        let id = &job.id;
        // The user's own job stays, so that it can be enabled again.
        let (is_done, text) = if is_replied && !job.by_model {
            let text = format!("Stopped job {id}; the user can run `nanobot cron enable {id}`");
            (self.scheduler.disable(id)?, text)
        } else {
            (self.scheduler.remove(id)?, format!("Removed job {id}"))
        };
        if is_done { Ok(text) } else { Err(not_found(id)) }
    }

    /// The job that the arguments name, if it may be changed: one that a run has created in this chat, or one that a person replies to.
    fn find(&self, arguments: &Value, action: JobAction) -> Result<FoundJob<'_>, ToolError> {
        let id = text_argument(arguments, "job_id")
            .ok_or_else(|| format!("job_id is required for {}", action.verb()))?;
        let replied_job = self.replied_jobs.iter().find(|job| job.id == id);
        let mut jobs = self.scheduler.list()?;
        let is_meant =
            |job: &ListedJob| replied_job.map_or(job.id == id, |replied_job| replied_job.is(job));
        let index = jobs.iter().position(is_meant);
        match (index, replied_job) {
            (Some(index), _) => {
                let (job, is_replied) = (jobs.swap_remove(index), replied_job.is_some());
                match self.foreign_job_refusal(&job, action).filter(|_| !is_replied) {
                    Some(refusal) => Err(refusal.into()),
                    None => Ok(FoundJob::Listed { job, is_replied }),
                }
            }
            (None, Some(replied_job)) => Ok(FoundJob::Over(replied_job)),
            (None, None) => Err(not_found(id)),
        }
    }

    /// The refusal for a job that no run has created in this chat.
    fn foreign_job_refusal(&self, job: &ListedJob, action: JobAction) -> Option<Refusal> {
        let reason = match job {
            ListedJob { by_model: false, .. } => "was created by the user, not by a run",
            ListedJob { chat, .. } if *chat != self.chat => "was created in another chat",
            ListedJob { .. } => return None,
        };
        let (id, verb, command) = (&job.id, action.verb(), action.command());
        Some(Refusal::new(format!(
            "the job `{id}` {reason}; the user can {verb} it with `nanobot cron {command} {id}`"
        )))
    }
}

/// A job that the model names.
enum FoundJob<'a> {
    Listed {
        job: ListedJob,
        is_replied: bool,
    },
    /// It is not listed.
    Over(&'a RepliedJob),
}

/// An action that changes the jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobAction {
    Add,
    Remove,
    Change,
    Snooze,
}

impl JobAction {
    const ALL: [Self; 4] = [Self::Add, Self::Remove, Self::Change, Self::Snooze];

    /// The action of a call; `None` if it only reads.
    fn of_call(arguments: &Value) -> Option<Self> {
        let name = arguments["action"].as_str()?;
        Self::ALL.into_iter().find(|action| action.verb() == name)
    }

    fn verb(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Remove => "remove",
            Self::Change => "change",
            Self::Snooze => "snooze",
        }
    }

    fn participle(self) -> &'static str {
        match self {
            Self::Add => "added",
            Self::Remove => "removed",
            Self::Change => "changed",
            Self::Snooze => "snoozed",
        }
    }

    /// The command of the user for it, after `nanobot cron`.
    fn command(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Remove => "remove",
            Self::Change => "edit",
            Self::Snooze => "rerun",
        }
    }
}

fn not_found(id: &str) -> ToolError {
    format!("Job {id} not found; `list` shows the ids").into()
}

/// The list of `jobs` as text, one job in a line.
pub fn list_text(jobs: &[ListedJob]) -> String {
    if jobs.is_empty() {
        return "No scheduled jobs.".into();
    }
    let lines = jobs.iter().map(|job| format!("\n- {}", job.describe()));
    format!("Scheduled jobs:{}", lines.collect::<String>())
}

/// The facts about jobs whose messages the user replies to, for the model. `jobs` are those that there are.
pub fn replied_jobs_note(replied_jobs: &[RepliedJob], jobs: &[ListedJob]) -> String {
    let describe = |replied: &RepliedJob| match jobs.iter().find(|job| replied.is(job)) {
        Some(job) => job.describe(),
        None => format!("that is {NOT_LISTED} (id: {})", replied.id),
    };
    let jobs: Vec<String> = replied_jobs.iter().map(describe).collect();
    format!(
        "[the message that is replied to is of the job {}. If the user wants it, `cron` repeats a job once (`snooze` with `job_id` and `at`), \
         gives it a new time (`change`) or stops it (`remove`)]",
        jobs.join(" and of ")
    )
}

impl Tool for CronTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self, arguments: &Value) -> CallEffect {
        match arguments["action"].as_str() {
            Some("list") => CallEffect::Reads,
            _ => CallEffect::Writes,
        }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<ToolOutput, ToolError> {
        let arguments = call.arguments;
        let Some(action) = JobAction::of_call(arguments) else {
            return Ok(self.list()?.into());
        };
        self.check_action(action, arguments)?;
        let text = match action {
            JobAction::Add => self.add(arguments),
            JobAction::Remove => self.remove(arguments),
            JobAction::Change => self.change(arguments),
            JobAction::Snooze => self.snooze(arguments),
        };
        Ok(text?.into())
    }

    fn check_call(&self, arguments: &Value) -> Result<(), ToolError> {
        if let Some(action) = JobAction::of_call(arguments) {
            self.check_action(action, arguments)?;
        }
        Ok(())
    }
}

/// The tool's description for the model.
pub fn spec() -> ToolSpec {
    ToolSpec {
        name: "cron".into(),
        description: "Reminders and recurring tasks: at its time a separate run gets the message, and its answer goes to the \
                      user. Memory alone triggers nothing"
            .into(),
        parameters: const { &without_blanks(br#"{ "type": "object", "required": ["action"], "properties": {
            "action": { "type": "string", "enum": ["add", "list", "remove", "change", "snooze"] },
            "message": {
                "type": "string",
                "description": "add: the complete task; its run does not see this conversation"
            },
            "name": { "type": "string" },
            "every_seconds": { "type": "integer", "description": "add: period, at least 60" },
            "cron_expr": { "type": "string", "description": "add: five fields, as `0 9 * * 1-5`" },
            "tz": { "type": "string", "description": "of cron_expr, as `Europe/Berlin`; default: the user's" },
            "at": { "type": "string", "description": "once, as `2026-12-24T18:00`, in the user's zone" },
            "job_id": { "type": "string" }
        } }"#) }.into(),
    }
}

/// Reads the schedule from the arguments. Models fill arguments that they do not mean with empty text or zero.
fn parse_schedule(arguments: &Value) -> Result<RequestedSchedule<'_>, String> {
    let seconds = arguments["every_seconds"].as_i64().filter(|seconds| *seconds != 0);
    let (expression, zone) =
        (text_argument(arguments, "cron_expr"), text_argument(arguments, "tz"));
    let schedule = match (seconds, expression, text_argument(arguments, "at")) {
        (Some(seconds), None, None) => match u64::try_from(seconds) {
            Ok(seconds) if seconds >= MIN_PERIOD_SECS => RequestedSchedule::Every(seconds),
            _ => {
                return Err(format!(
                    "every_seconds must be at least {MIN_PERIOD_SECS}: cron checks once a minute"
                ));
            }
        },
        (None, Some(expression), None) => return Ok(RequestedSchedule::Cron { expression, zone }),
        (None, None, Some(time)) => RequestedSchedule::At(time),
        (None, None, None) => {
            return Err("either every_seconds, cron_expr, or at is required".into());
        }
        _ => return Err("only one of every_seconds, cron_expr and at can be used".into()),
    };
    match zone {
        Some(_) => Err("tz can only be used with cron_expr; for `at`, include the offset, as `2026-12-24T18:00+01:00`"
            .into()),
        None => Ok(schedule),
    }
}

/// The text of an argument; `None` if it is empty or blank.
fn text_argument<'a>(arguments: &'a Value, key: &str) -> Option<&'a str> {
    let text = arguments[key].as_str().map(str::trim);
    text.filter(|text| !text.is_empty())
}

/// The message of a job; `None` if there is none.
fn message_argument(arguments: &Value) -> Result<Option<&str>, String> {
    let message = text_argument(arguments, "message");
    if message.is_some_and(|message| message.chars().count() > MAX_MESSAGE_CHARS) {
        return Err(format!(
            "`message` has more than {MAX_MESSAGE_CHARS} characters; put long text into a file and refer to it"
        ));
    }
    Ok(message)
}

/// Puts `text` on one line of at most `max_chars` characters.
fn single_line(text: &str, max_chars: usize) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(max_chars).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        ChatTarget, CreatedJob, CronTool, JobRequest, JobScheduler, ListedJob, MAX_MODEL_JOBS,
        RepliedJob, RequestedChange, RequestedSchedule,
    };
    use crate::arguments::cast_and_check;
    use crate::{CallEffect, Tool, ToolError, run_alone};
    use nanobot_base::message::Origin;
    use nanobot_base::message::plain_text;
    use nanobot_config::policy::Policy;
    use nanobot_config::policy::file_scope::FileScope;
    use nanobot_config::policy::provenance::{
        ChangeGrants, Grant, ProvenanceTracker, TrustContext,
    };
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use std::path::Path;
    use std::sync::Arc;

    /// Stores jobs in memory, and a description of each plan.
    #[derive(Default)]
    struct MemoryScheduler {
        jobs: Mutex<Vec<ListedJob>>,
        requests: Mutex<Vec<String>>,
    }

    impl JobScheduler for MemoryScheduler {
        fn add(&self, plan: &JobRequest<'_>) -> Result<CreatedJob, ToolError> {
            let JobRequest { name, message, schedule: when, chat, policy } = plan;
            if matches!(when, RequestedSchedule::Cron { zone: Some("Mars"), .. }) {
                return Err("unknown timezone 'Mars'".into());
            }
            assert!(Policy::from_snapshot(policy).is_ok());
            let plan = format!("{message:?} {when:?}");
            self.requests.lock().push(plan);
            let mut jobs = self.jobs.lock();
            let id = format!("job{}", jobs.len());
            jobs.push(ListedJob {
                id: id.clone(),
                name: Some(name.clone()),
                schedule: "every 5m".into(),
                next: Some("tomorrow".into()),
                by_model: true,
                chat: chat.cloned(),
                message: Some((*message).to_owned()),
                created_at: 0,
            });
            let next = "tomorrow".into();
            Ok(CreatedJob { id, next })
        }

        fn list(&self) -> Result<Vec<ListedJob>, ToolError> {
            Ok(self.jobs.lock().clone())
        }

        fn remove(&self, id: &str) -> Result<bool, ToolError> {
            let mut jobs = self.jobs.lock();
            let before = jobs.len();
            jobs.retain(|job| job.id != id);
            Ok(jobs.len() < before)
        }

        fn disable(&self, id: &str) -> Result<bool, ToolError> {
            self.requests.lock().push(format!("disable {id}"));
            self.remove(id)
        }

        fn change(&self, change: &RequestedChange<'_>) -> Result<String, ToolError> {
            let RequestedChange { id, schedule, message, .. } = change;
            self.requests.lock().push(format!("change {id} {schedule:?} {message:?}"));
            Ok("later".into())
        }
    }

    fn provenance_tracker() -> Arc<ProvenanceTracker> {
        Arc::new(ProvenanceTracker::new(TrustContext {
            file_scope: FileScope::default(),
            workspace: "/w".into(),
            commands_write_anywhere: false,
            commands_have_network: false,
            hosts_have_sent: Box::new(|| false),
            trusted_tools: Vec::new(),
            skill_hosts: Vec::new(),
            is_private: |_| false,
            resolve_real_path: Box::new(Path::to_owned),
        }))
    }

    fn tool(scheduler: &Arc<MemoryScheduler>, key: &str) -> (CronTool, Arc<ProvenanceTracker>) {
        tool_with(scheduler, key, ChangeGrants::default())
    }

    fn tool_with(
        scheduler: &Arc<MemoryScheduler>,
        key: &str,
        grants: ChangeGrants,
    ) -> (CronTool, Arc<ProvenanceTracker>) {
        let provenance = provenance_tracker();
        let jobs = Arc::clone(scheduler) as Arc<dyn JobScheduler>;
        let policy = Arc::new(Policy::default());
        let cron = CronTool::new(jobs, policy, Arc::clone(&provenance), grants, key, Vec::new());
        (cron, provenance)
    }

    fn call(cron: &CronTool, sent: &Value) -> Result<String, ToolError> {
        let arguments = cast_and_check(&cron.spec().parameters, sent)?;
        let output = run_alone(cron, &arguments)?;
        Ok(plain_text(&output.parts))
    }

    #[track_caller]
    fn check(cron: &CronTool, sent: Value, expect: Result<&str, &str>) {
        match (call(cron, &sent), expect) {
            (Ok(text), Ok(expect)) => assert_eq!(text, expect, "{sent}"),
            (Err(failure), Err(expect)) => {
                let message = failure.message();
                assert!(message.contains(expect), "{sent}: {message}");
            }
            (actual, _) => panic!("{sent}: {actual:?}"),
        }
    }

    #[test]
    fn jobs_are_added_listed_and_removed() {
        let scheduler = Arc::new(MemoryScheduler::default());
        let (cron, _) = tool(&scheduler, "cli:direct");
        let check = |sent: Value, expect| check(&cron, sent, expect);
        check(json!({"action": "list"}), Ok("No scheduled jobs."));
        let tea = "Remind the user:\nthe tea is ready, and the cake too";
        check(
            json!({"action": "add", "message": tea, "at": "2026-12-24T18:00"}),
            Ok("Created job 'Remind the user: the tea is re' (id: job0), first run: tomorrow"),
        );
        // Arguments that are not meant are empty or zero.
        check(
            json!({"action": "add", "name": " Mail\nnow ", "message": "m", "every_seconds": "300", "cron_expr": "",
                "tz": "", "at": null}),
            Ok("Created job 'Mail now' (id: job1), first run: tomorrow"),
        );
        check(
            json!({"action": "add", "message": "m", "cron_expr": "0 9 * * *", "tz": "Europe/Berlin",
                "every_seconds": 0}),
            Ok("Created job 'm' (id: job2), first run: tomorrow"),
        );
        assert_eq!(
            *scheduler.requests.lock(),
            [
                format!("{tea:?} At(\"2026-12-24T18:00\")"),
                "\"m\" Every(300)".into(),
                "\"m\" Cron { expression: \"0 9 * * *\", zone: Some(\"Europe/Berlin\") }".into(),
            ]
        );
        check(json!({"action": "remove", "job_id": "job2"}), Ok("Removed job job2"));
        check(json!({"action": "remove", "job_id": "job2"}), Err("Job job2 not found"));
        check(
            json!({"action": "list"}),
            Ok(
                "Scheduled jobs:\n- Remind the user: the tea is re (id: job0, every 5m), next run: tomorrow\n- Mail now (id: \
                 job1, every 5m), next run: tomorrow",
            ),
        );
        assert_eq!(cron.effect(&json!({"action": "list"})), CallEffect::Reads);
        for action in ["add", "remove", "", "LIST"] {
            assert_eq!(cron.effect(&json!({ "action": action })), CallEffect::Writes);
        }
    }

    #[test]
    fn mistakes_are_reported() {
        let scheduler = Arc::new(MemoryScheduler::default());
        let (cron, _) = tool(&scheduler, "cli:direct");
        let wrong = |sent: Value, expect: &str| check(&cron, sent, Err(expect));
        wrong(json!({}), "missing");
        wrong(json!({"action": "edit"}), "must be one of");
        wrong(json!({"action": "add", "at": "2026-12-24"}), "message is required for add");
        wrong(
            json!({"action": "add", "message": " ", "at": "2026-12-24"}),
            "message is required for add",
        );
        wrong(
            json!({"action": "add", "message": "m"}),
            "either every_seconds, cron_expr, or at is required",
        );
        wrong(
            json!({"action": "add", "message": "m", "at": "x", "cron_expr": "* * * * *"}),
            "only one of",
        );
        for seconds in [1, 59, -300] {
            wrong(
                json!({"action": "add", "message": "m", "every_seconds": seconds}),
                "at least 60",
            );
        }
        for schedule in [json!({"at": "x"}), json!({"every_seconds": 90})] {
            let mut sent = json!({"action": "add", "message": "m", "tz": "Europe/Berlin"});
            let fields = sent.as_object_mut().unwrap();
            fields.extend(schedule.as_object().unwrap().clone());
            wrong(sent, "tz can only be used with cron_expr");
        }
        wrong(
            json!({"action": "add", "message": "m", "cron_expr": "* * * * *", "tz": "Mars"}),
            "unknown timezone 'Mars'",
        );
        wrong(
            json!({"action": "add", "message": "m".repeat(10_001), "every_seconds": 90}),
            "put long text into a file",
        );
        wrong(json!({"action": "remove"}), "job_id is required for remove");
        wrong(json!({"action": "remove", "job_id": "x"}), "Job x not found");
        assert!(scheduler.requests.lock().is_empty());
    }

    #[test]
    fn content_from_outside_changes_jobs_only_with_permission() {
        let scheduler = Arc::new(MemoryScheduler::default());
        let (cron, provenance) = tool(&scheduler, "cli:direct");
        let add = json!({"action": "add", "message": "m", "every_seconds": 90});
        let remove = json!({"action": "remove", "job_id": "job0"});
        assert!(call(&cron, &add).is_ok());
        assert!(cron.check_call(&add).is_ok());
        provenance.raise(Origin::Project, "piped input");
        assert!(cron.check_call(&add).is_ok());
        provenance.raise(Origin::External, "a web page");
        for sent in [&add, &remove, &json!({"action": "add"})] {
            for actual in [call(&cron, sent).err(), cron.check_call(sent).err()] {
                let Some(ToolError::Denied(refusal)) = actual else {
                    panic!("{sent}: {actual:?}");
                };
                assert!(refusal.message.contains("a web page"), "{}", refusal.message);
                assert_eq!(refusal.suggested_flag.as_deref(), Some("--allow cron"));
            }
        }
        let jobs = "Scheduled jobs:\n- m (id: job0, every 5m), next run: tomorrow";
        check(&cron, json!({"action": "list"}), Ok(jobs));
        assert!(cron.check_call(&json!({"action": "list"})).is_ok());
        let (granted, provenance) = tool_with(
            &scheduler,
            "cli:direct",
            ChangeGrants { jobs: Grant::Allowed, ..ChangeGrants::default() },
        );
        provenance.raise(Origin::External, "a web page");
        assert!(granted.check_call(&add).is_ok());
    }

    #[test]
    fn only_jobs_of_runs_in_this_chat_are_removed() {
        let scheduler = Arc::new(MemoryScheduler::default());
        let add = json!({"action": "add", "message": "m", "every_seconds": 90});
        let (ours, _) = tool(&scheduler, "telegram:1");
        let (theirs, _) = tool(&scheduler, "telegram:2");
        let (here, _) = tool(&scheduler, "cli:direct");
        for cron in [&ours, &theirs, &here] {
            assert!(call(cron, &add).is_ok());
        }
        let foreign = |id: &str, name: Option<&str>| ListedJob {
            id: id.into(),
            name: name.map(str::to_owned),
            schedule: "at 2026-12-24T18:00".into(),
            next: None,
            by_model: false,
            chat: None,
            message: None,
            created_at: 0,
        };
        scheduler.jobs.lock().extend([foreign("hers", Some("back\nup")), foreign("its", None)]);
        let remove = |cron: &CronTool, id: &str, expect: Result<&str, &str>| {
            check(cron, json!({"action": "remove", "job_id": id}), expect);
        };
        remove(&ours, "job1", Err("was created in another chat"));
        remove(&ours, "job2", Err("was created in another chat"));
        remove(&here, "job0", Err("was created in another chat"));
        remove(&here, "hers", Err("nanobot cron remove hers"));
        remove(&here, "its", Err("was created by the user, not by a run"));
        // Another session on this machine does not count as another chat.
        let (there, _) = tool(&scheduler, "work");
        remove(&there, "job2", Ok("Removed job job2"));
        remove(&ours, "job0", Ok("Removed job job0"));
        check(
            &ours,
            json!({"action": "list"}),
            Ok(
                "Scheduled jobs:\n- m (id: job1, every 5m), next run: tomorrow\n- back up (id: hers, at 2026-12-24T18:00), next \
                 run: never\n- (from another program) (id: its, at 2026-12-24T18:00), next run: never",
            ),
        );
    }

    #[test]
    fn the_job_that_is_replied_to_can_be_snoozed_moved_and_stopped() {
        let scheduler = Arc::new(MemoryScheduler::default());
        let job = |id: &str, by_model: bool, chat: &str, created_at: i64| ListedJob {
            id: id.into(),
            name: Some("Tea".into()),
            schedule: "every 5m".into(),
            next: None,
            by_model,
            chat: ChatTarget::from_session_key(chat),
            message: Some("say tea".into()),
            created_at,
        };
        scheduler.jobs.lock().extend([
            job("ours", true, "telegram:1", 5),
            job("hers", false, "telegram:1", 5),
            job("other", true, "telegram:2", 5),
            job("later", true, "telegram:1", 50),
        ]);
        let (mut cron, provenance) = tool(&scheduler, "telegram:1");
        let replied = |id: &str, message: Option<&str>| RepliedJob {
            id: id.into(),
            message: message.map(str::to_owned),
            delivered_at: 9,
        };
        cron.replied_jobs = vec![
            replied("ours", None),
            replied("hers", None),
            replied("over", Some("say cake")),
            replied("later", None),
        ];
        provenance.raise(Origin::External, "a web page");
        let at = "2026-12-24T18:00";
        let check = |sent: Value, expect| check(&cron, sent, expect);
        let denied = "jobs cannot be snoozed without permission";
        check(json!({ "action": "snooze", "job_id": "other", "at": at }), Err(denied));
        check(json!({ "action": "add", "message": "m", "at": at, "job_id": "ours" }), Err("added"));
        check(
            json!({ "action": "snooze", "job_id": "ours", "at": at }),
            Ok("Created job 'Tea' (id: job4), first run: tomorrow"),
        );
        check(
            json!({ "action": "snooze", "job_id": "over", "at": at }),
            Ok("Created job 'say cake' (id: job5), first run: tomorrow"),
        );
        check(json!({ "action": "snooze", "job_id": "ours" }), Err("at is required for snooze"));
        check(
            json!({ "action": "change", "job_id": "hers", "every_seconds": 90 }),
            Ok("Changed job hers, next run: later"),
        );
        check(json!({ "action": "change", "job_id": "hers" }), Err("either every_seconds"));
        let text = json!({ "action": "change", "job_id": "ours", "message": "new" });
        check(text.clone(), Err("the text of a job cannot be changed without permission"));
        let over = "Job over is not among the jobs of this chat, or over";
        check(json!({ "action": "remove", "job_id": "over" }), Err(over));
        // An older message does not point at a job that was made since.
        check(json!({ "action": "remove", "job_id": "later" }), Err("Job later is not among"));
        check(
            json!({ "action": "remove", "job_id": "hers" }),
            Ok("Stopped job hers; the user can run `nanobot cron enable hers`"),
        );
        assert_eq!(
            *scheduler.requests.lock(),
            [
                format!("\"say tea\" At({at:?})"),
                format!("\"say cake\" At({at:?})"),
                "change hers Some(Every(90)) None".into(),
                "disable hers".into(),
            ]
        );
        let grants = ChangeGrants { jobs: Grant::Allowed, ..ChangeGrants::default() };
        let (granted, _) = tool_with(&scheduler, "telegram:1", grants);
        super::tests::check(&granted, text, Ok("Changed job ours, next run: later"));
        for (jobs, expect) in [(Grant::Denied, "denied by a rule"), (Grant::ReadOnly, "profile")] {
            cron.grants = ChangeGrants { jobs, ..ChangeGrants::default() };
            super::tests::check(
                &cron,
                json!({ "action": "remove", "job_id": "ours" }),
                Err(expect),
            );
        }
    }

    #[test]
    fn the_number_of_jobs_is_limited() {
        let scheduler = Arc::new(MemoryScheduler::default());
        let (cron, _) = tool(&scheduler, "cli:direct");
        let add = json!({"action": "add", "message": "m", "every_seconds": 90});
        for _ in 0..MAX_MODEL_JOBS {
            assert!(call(&cron, &add).is_ok());
        }
        check(&cron, add.clone(), Err("which is the maximum"));
        // Jobs made by the user do not count.
        scheduler.jobs.lock()[0].by_model = false;
        assert!(call(&cron, &add).is_ok());
    }

    #[test]
    fn chats_of_sessions() {
        let check = |key: &str, expect: Option<(&str, &str)>| {
            let chat = ChatTarget::from_session_key(key);
            let actual = chat.as_ref().map(|it| (it.channel.as_str(), it.recipient.as_str()));
            assert_eq!(actual, expect, "{key}");
        };
        check("telegram:123", Some(("telegram", "123")));
        check("slack:C1:173.4", Some(("slack", "C1:173.4")));
        check("cli:direct", None);
        check("work", None);
        check("pipe:0af3", None);
        check("fork:0af3", None);
        check("file:/etc/passwd", None);
        check("command:rm -r x", None);
        check("cron:ab12cd34", None);
        check("acp:ab12cd34", None);
        check("mcp:1", None);
        check("import:talk", None);
        check(" File:/etc/passwd", None);
        check(":x", None);
        check("telegram:", None);
    }

    /// A job consists only of a message and a schedule.
    #[test]
    fn a_job_has_no_other_arguments() {
        let (cron, _) = tool(&Arc::default(), "cli:direct");
        let fields = cron.spec().parameters["properties"].as_object().unwrap();
        let names: Vec<&str> = fields.keys().map(String::as_str).collect();
        let all = ["action", "message", "name", "every_seconds", "cron_expr", "tz", "at", "job_id"];
        assert_eq!(names, all);
    }
}
