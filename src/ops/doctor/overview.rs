//! The overview of `nanobot status`: configuration, spending, memory, and the next jobs.

use crate::ops::context::Context;
use crate::ops::context_window::context_window;
use crate::ops::default_session::default_session_key;
use crate::ops::doctor::unused_tools::UnusedTools;
use crate::ops::jobs::time_format::to_one_line;
use crate::ops::jobs::timing;
use crate::ops::jobs::workspace_jobs;
use crate::ops::model::{self, Endpoint};
use crate::ops::permissions::{self, WorkspacePlace};
use crate::options::grants::Grants;
use crate::options::turn::TurnOptions;
use anyhow::Result;
use jiff::Timestamp;
use nanobot_base::error::hint_for;
use nanobot_base::message::{Message, Usage};
use nanobot_config::policy::Policy;
use nanobot_config::policy::file_scope::FileScope;
use nanobot_config::policy::profile::Profile;
use nanobot_config::settings::Settings;
use nanobot_cron::job::{HEARTBEAT_ID, Job};
use nanobot_model::ledger::{Ledger, PeriodCosts};
use nanobot_store::memory::Memory;
use nanobot_store::memory::last_run::LastRun;
use nanobot_store::memory::request::{self, CHARS_PER_TOKEN};
use nanobot_store::session::{self, Session, SessionStore, SessionSummary};
use nanobot_store::trust::{self, DirectoryInstructions, TrustList};

/// The permissions of a run started from the current directory.
pub(crate) struct RunScope {
    pub(crate) profile: Profile,
    pub(crate) policy: Policy,
}

impl RunScope {
    /// Resolves the permissions of a run with these grants.
    pub(crate) fn new(ctx: &Context, grants: &Grants, settings: &Settings) -> Result<Self> {
        let profile = permissions::resolve_profile(ctx, grants, settings)?;
        let home = WorkspacePlace::find(&settings.workspace);
        let policy = permissions::build_policy(ctx, grants, settings, &profile, &home)?;
        Ok(Self { profile, policy })
    }

    /// True if there are instruction files in the directory.
    pub(crate) fn has_instructions(&self) -> bool {
        trust::has_instruction_files(&self.policy.file_scope.directory)
    }

    /// The instructions of the directory, as far as it is trusted; `None` in the workspace itself, whose instructions are always read.
    pub(crate) fn read_instructions(&self, ctx: &Context) -> Result<Option<DirectoryInstructions>> {
        let FileScope { directory, workspace, .. } = &self.policy.file_scope;
        if directory == workspace {
            return Ok(None);
        }
        TrustList::load(&ctx.paths.trust())?.read_instructions(directory).map(Some)
    }
}

pub(crate) struct MemoryState {
    /// Size of the memory in bytes.
    pub(crate) bytes: usize,
    /// Estimated size of the memory in tokens.
    pub(crate) tokens: usize,
    /// Size limit of the memory in tokens.
    pub(crate) budget_tokens: usize,
    pub(crate) is_over_budget: bool,
    pub(crate) last_consolidation: Option<LastRun>,
    /// The reason why the last consolidation failed.
    pub(crate) last_error: Option<String>,
    /// The reason why the memory cannot be written.
    pub(crate) write_error: Option<String>,
}

impl MemoryState {
    fn read(ctx: &Context, settings: &Settings) -> Result<Self> {
        let memory = Memory::new(&settings.workspace, &ctx.clock);
        let bytes = memory.read()?.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let budget_tokens = settings.memory.budget_tokens;
        Ok(Self {
            bytes: bytes.len(),
            tokens: text.chars().count().div_ceil(CHARS_PER_TOKEN),
            budget_tokens,
            is_over_budget: request::is_over_budget(&text, budget_tokens),
            last_consolidation: memory.last_run()?,
            last_error: memory.last_error()?,
            write_error: memory.check_writable().err().map(|error| format!("{error:#}")),
        })
    }
}

/// The share of the context window that the conversation uses which a run would continue.
pub(crate) struct ContextUse {
    /// The key of the session.
    pub(crate) session: String,
    /// The tokens of the last reply and its request.
    pub(crate) tokens: u64,
    /// The context window of the model, in tokens.
    pub(crate) window: u32,
}

impl ContextUse {
    /// Reads the session; `None` if it has no reply, or cannot be read, which `status check` reports.
    fn read(
        ctx: &Context,
        settings: &Settings,
        store: &SessionStore,
        key: Option<&str>,
    ) -> Option<Self> {
        let key = key.map_or_else(|| default_session_key(ctx, settings, None), str::to_owned);
        let session = Session::read(store, &key, &mut |_| {}).ok()?;
        let usage = session.messages().iter().rev().find_map(usage_of_reply)?;
        Some(Self {
            session: key,
            tokens: usage.input + usage.output,
            window: context_window(ctx, settings),
        })
    }
}

fn usage_of_reply(message: &Message) -> Option<Usage> {
    match message {
        Message::Assistant(reply) if reply.usage.input > 0 => Some(reply.usage),
        _ => None,
    }
}

/// A short summary of the jobs.
pub(crate) struct JobsSummary {
    /// All jobs except the heartbeat.
    pub(crate) jobs: Result<Vec<Job>>,
    /// The job that runs next, and its time.
    pub(crate) next_run: Option<(Job, Timestamp)>,
    /// The heartbeat's job, and the time of its next run.
    pub(crate) heartbeat: Option<(Job, Option<Timestamp>)>,
    /// The job that failed last.
    pub(crate) last_failed: Option<Job>,
}

impl JobsSummary {
    /// Reads the jobs and their next runs.
    pub(crate) fn new(ctx: &Context, settings: &Settings) -> Self {
        let mut jobs = workspace_jobs::open(ctx, settings).jobs();
        let now = ctx.clock.timestamp();
        let next_run = |job: &Job| timing::upcoming_runs(ctx, job, now, 1).pop();
        let heartbeat = match &mut jobs {
            Ok(jobs) => jobs.pop_if(|job| job.id == HEARTBEAT_ID),
            Err(_) => None,
        };
        let all = jobs.as_deref().unwrap_or_default();
        let runs = all.iter().filter(|job| job.enabled);
        let runs = runs.filter_map(|job| Some((job, next_run(job)?)));
        let failed = all.iter().filter(|job| job.state.last_status.as_deref() == Some("error"));
        Self {
            next_run: runs.min_by_key(|(_, time)| *time).map(|(job, time)| (job.clone(), time)),
            last_failed: failed.max_by_key(|job| job.state.last_run).cloned(),
            heartbeat: heartbeat.map(|job| (job.clone(), next_run(&job))),
            jobs,
        }
    }

    /// The number of enabled jobs.
    pub(crate) fn enabled(&self) -> usize {
        let jobs = self.jobs.as_deref().unwrap_or_default();
        jobs.iter().filter(|job| job.enabled).count()
    }

    /// The suggested next step for the job that failed last.
    pub(crate) fn next_step(&self) -> Option<String> {
        let failed = self.last_failed.as_ref()?;
        Some(format!("nanobot cron logs {}", to_one_line(&failed.id)))
    }
}

/// All data of `nanobot status`.
pub(crate) struct Overview {
    pub(crate) settings: Settings,
    /// The provider and model that a run would use.
    pub(crate) endpoint: Result<Endpoint>,
    /// Number of sessions.
    pub(crate) session_count: usize,
    pub(crate) context: Option<ContextUse>,
    pub(crate) memory: MemoryState,
    pub(crate) jobs: JobsSummary,
    pub(crate) scope: Result<RunScope>,
    pub(crate) tools: UnusedTools,
    pub(crate) costs: PeriodCosts,
    /// The suggested next step.
    pub(crate) next_step: Option<String>,
}

impl Overview {
    /// Collects the data for runs with these options.
    pub(crate) fn collect(ctx: &Context, options: &TurnOptions) -> Result<Self> {
        let (settings, _) =
            permissions::settings_with_profile(ctx, &options.grants, options.model.overrides())?;
        let endpoint = model::resolve_endpoint(ctx, &settings, &settings.models[0], true, true);
        let store = ctx.session_store(&settings)?;
        // Those that `session list` shows.
        let sessions = session::list(&store)?.sessions;
        let is_shown = |summary: &&SessionSummary| !session::is_temporary(&summary.key);
        let session_count = sessions.iter().filter(is_shown).count();
        let context = ContextUse::read(ctx, &settings, &store, options.session.key.as_deref());
        let memory = MemoryState::read(ctx, &settings)?;
        let jobs = JobsSummary::new(ctx, &settings);
        let scope = RunScope::new(ctx, &options.grants, &settings);
        let tools = UnusedTools::new(ctx, &settings)?;
        let ledger = Ledger::new(&ctx.paths.root, &ctx.clock);
        let costs = ledger.period_costs()?;
        let next_step = match &endpoint {
            Err(error) => hint_for(error).map(str::to_owned),
            Ok(_) => jobs.next_step(),
        };
        Ok(Self {
            settings,
            endpoint,
            session_count,
            context,
            memory,
            jobs,
            scope,
            tools,
            costs,
            next_step,
        })
    }
}
