//! The pool of a turn's sub-agents: starts them, limits how many run concurrently, collects reports, and stops them
//! together.

use super::run;
use super::task::{ModelBinding, SubagentTask, TurnContext};
use crate::ops::context::Context;
use crate::ops::model;
use crate::ops::permissions::{self, WorkspacePlace};
use crate::ops::profiles;
use crate::options::grants::Grants;
use crate::options::turn::TurnOptions;
use anyhow::Result;
use nanobot_agent::report::short_text::truncate_line;
use nanobot_agent::turn::background::{BackgroundEvent, BackgroundTasks};
use nanobot_agent::turn::ending::TurnStats;
use nanobot_base::error::Stop;
use nanobot_config::policy::Policy;
use nanobot_config::policy::profile::{Profile, ProfileKind};
use nanobot_config::settings::{FlagOverrides, Settings};
use nanobot_os::cancel::{self, CancelToken};
use nanobot_os::signal::{self, Deadline};
use nanobot_tool::spawn::{Spawn, SubagentRequest, SubagentStarter};
use nanobot_tool::{Tool, ToolError};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// Maximum length in characters of a label, or of the task text that replaces it.
const MAX_LABEL_CHARS: usize = 40;
/// Maximum length in characters of a profile's purpose in the description of the tool.
const MAX_PURPOSE_CHARS: usize = 200;

/// The sub-agents of a run.
#[derive(Clone)]
pub(crate) struct SubagentPool(Arc<PoolInner>);

struct PoolInner {
    ctx: Context,
    options: TurnOptions,
    settings: Arc<Settings>,
    /// Set when the turn begins. Until then no sub-agent can start.
    turn: OnceLock<TurnContext>,
    /// The models that profiles name.
    models: Mutex<BTreeMap<String, ModelBinding>>,
    state: Mutex<PoolState>,
}

/// A turn in progress. Dropping it stops all sub-agents and their child processes.
#[must_use]
pub(crate) struct TurnGuard<'a>(&'a SubagentPool);

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[derive(Default)]
struct PoolState {
    /// Number of sub-agents in this turn so far.
    started_count: usize,
    /// Tasks that wait for a thread.
    queue: VecDeque<SubagentTask>,
    running_count: usize,
    threads: Vec<JoinHandle<()>>,
    /// Number of reports that the turn has not received.
    pending_reports: usize,
    events: VecDeque<BackgroundEvent>,
    /// Refusals that were already reported.
    reported_denials: BTreeSet<String>,
    wake: Option<Arc<PoolWakePipe>>,
    /// True if the wake pipe holds an unread byte. It holds at most one, so writing to it never blocks.
    is_signalled: bool,
}

/// The wake pipe and the cancellation token, created with the first sub-agent.
struct PoolWakePipe {
    cancel_token: Arc<CancelToken>,
    /// Readable when an event was added.
    wake_rx: PipeReader,
    wake_tx: PipeWriter,
}

impl PoolWakePipe {
    fn new() -> std::io::Result<Self> {
        let (wake_rx, wake_tx) = std::io::pipe()?;
        Ok(Self { cancel_token: CancelToken::new()?, wake_rx, wake_tx })
    }
}

impl PoolState {
    /// Adds events, and wakes the thread that waits for one.
    fn push_events(&mut self, events: impl IntoIterator<Item = BackgroundEvent>) {
        self.events.extend(events);
        if !self.is_signalled
            && let Some(wake) = &self.wake
        {
            self.is_signalled = (&wake.wake_tx).write(b"!").is_ok();
        }
    }
}

impl SubagentPool {
    /// Creates the pool of a run.
    pub(crate) fn new(ctx: &Context, options: &TurnOptions, settings: &Arc<Settings>) -> Self {
        Self(Arc::new(PoolInner {
            ctx: ctx.clone(),
            options: options.clone(),
            settings: Arc::clone(settings),
            turn: OnceLock::new(),
            models: Mutex::default(),
            state: Mutex::default(),
        }))
    }

    /// The tool that starts sub-agents.
    pub(crate) fn tool(&self) -> Arc<dyn Tool> {
        Arc::new(Spawn::new(self.clone(), &own_profiles(&self.0.ctx)))
    }

    /// Begins the turn. Dropping the returned guard ends it.
    pub(crate) fn begin_turn(&self, turn: TurnContext) -> TurnGuard<'_> {
        drop(self.0.turn.set(turn));
        TurnGuard(self)
    }

    /// The profile `name`. It must be one for sub-agents.
    fn profile(&self, name: &str) -> Result<Profile, ToolError> {
        let profile = profiles::find(&self.0.ctx, name);
        let profile = profile
            .map_err(|error| ToolError::Failed(format!("{error:#}; use another profile")))?;
        profile.filter(|profile| profile.kind == ProfileKind::Subagent).ok_or_else(|| {
            let mut names = vec!["explore".to_owned()];
            names.extend(own_profiles(&self.0.ctx).into_iter().map(|(name, _)| name));
            let names = names.join(", ");
            ToolError::Failed(format!(
                "there is no sub-agent profile `{name}`; use one of {names}, or omit `profile`"
            ))
        })
    }

    /// The model of a sub-agent under `profile`: the turn's own, unless the profile names another.
    fn resolve_model(&self, turn: &TurnContext, profile: Option<&Profile>) -> Result<ModelBinding> {
        let PoolInner { ctx, options, settings, models, .. } = &*self.0;
        let model = match profile {
            // A recording has no other models, and neither does the demo.
            Some(profile) if options.recording.replay.is_none() => profile.model.as_deref(),
            _ => None,
        };
        let model = match model {
            Some(_) if ctx.load_config()?.check_flag(permissions::MODEL_KEY, "").is_err() => None,
            model => model,
        };
        let Some(model) = model else {
            return Ok(ModelBinding { handle: turn.model.clone(), settings: Arc::clone(settings) });
        };
        let mut models = models.lock();
        if let Some(binding) = models.get(model) {
            return Ok(binding.clone());
        }
        let flags = FlagOverrides { model: Some(model.to_owned()), ..options.model.overrides() };
        let settings = Arc::new(ctx.settings_with(flags)?);
        let mut notices = Vec::new();
        let mut notice = |text: &str| notices.push(BackgroundEvent::Notice(text.to_owned()));
        let handle = model::choose_for_subagent(
            ctx,
            options,
            &settings,
            &turn.purpose,
            &turn.model.budget,
            &mut notice,
        )?;
        self.0.state.lock().push_events(notices);
        let binding = ModelBinding { handle, settings };
        models.insert(model.to_owned(), binding.clone());
        Ok(binding)
    }

    /// The policy of a sub-agent under `profile`: the intersection of the turn's policy and the profile's. The user's
    /// grants for this run also apply, unless the profile overrides them.
    fn policy(&self, turn: &TurnContext, profile: &Profile) -> Result<Arc<Policy>> {
        let parent_policy = &turn.policy;
        let read = parent_policy.file_scope.roots.iter().map(|root| root.path.clone());
        let grants = Grants {
            profile: None,
            write: Vec::new(),
            read: read.collect(),
            net: None,
            tools: None,
            no_tools: false,
            directory: Some(parent_policy.file_scope.directory.clone()),
            ..self.0.options.grants.clone()
        };
        let PoolInner { ctx, settings, .. } = &*self.0;
        let workspace = WorkspacePlace::of_run(&parent_policy.file_scope.workspace);
        let mut own_policy =
            permissions::build_inner_policy(ctx, &grants, settings, profile, &workspace)?;
        turn.shared.mcp_tools.add_to_policy(&mut own_policy);
        if profile.net == nanobot_config::policy::net::Net::Default {
            own_policy.net = parent_policy.net.clone();
            own_policy.explicit_addresses.clone_from(&parent_policy.explicit_addresses);
        }
        Ok(Arc::new(parent_policy.intersection(&own_policy)))
    }

    /// Maximum number of sub-agents that run concurrently.
    fn max_concurrent(&self) -> usize {
        let limit = self.0.settings.max_subagents.unwrap_or(usize::MAX);
        limit.min(self.0.options.limits.max_parallel as usize).max(1)
    }

    /// Runs `task` on this thread, and then the queued tasks.
    fn run_queue(&self, mut task: SubagentTask, cancel_token: &Arc<CancelToken>) {
        loop {
            let on_event = |event| self.0.state.lock().push_events([event]);
            let report =
                cancel::scope(Some(Arc::clone(cancel_token)), || self.run_task(&task, &on_event));
            let mut state = self.0.state.lock();
            state.push_events([report]);
            match state.queue.pop_front() {
                Some(next) => task = next,
                None => {
                    state.running_count -= 1;
                    return;
                }
            }
        }
    }

    fn run_task(&self, task: &SubagentTask, on_event: &dyn Fn(BackgroundEvent)) -> BackgroundEvent {
        let PoolInner { ctx, options, turn, .. } = &*self.0;
        let turn = turn.get().expect("a task exists only within a turn");
        let on_denial = |line| self.report_denial(line);
        run::run_task(ctx, turn, task, options.limits.max_parallel as usize, on_event, &on_denial)
    }

    /// Reports a denied tool call. If several have the same line, only the first one is reported.
    fn report_denial(&self, line: String) {
        let mut state = self.0.state.lock();
        if state.reported_denials.insert(line.clone()) {
            state.push_events([BackgroundEvent::Notice(line)]);
        }
    }
}

/// The user's own profiles for sub-agents: name and purpose. Errors in a profile are reported when it is used.
fn own_profiles(ctx: &Context) -> Vec<(String, String)> {
    let mut own_profiles = Vec::new();
    for name in profiles::own_names(ctx) {
        if let Ok(Some(profile)) = profiles::find(ctx, &name)
            && profile.kind == ProfileKind::Subagent
        {
            own_profiles.push((name, truncate_line(&profile.description, MAX_PURPOSE_CHARS)));
        }
    }
    own_profiles
}

/// The tool that starts sub-agents, for a command without a turn: it is described, and refuses to start any.
pub(crate) fn tool_without_turn(ctx: &Context) -> Arc<dyn Tool> {
    Arc::new(Spawn::new(NoTurn, &own_profiles(ctx)))
}

/// The starter of sub-agents outside of a turn: it refuses every task.
struct NoTurn;

const NO_TURN: &str = "sub-agents can only be started within a turn; do the task yourself";

impl SubagentStarter for NoTurn {
    fn start(&self, _: &SubagentRequest<'_>) -> Result<String, ToolError> {
        Err(NO_TURN.into())
    }
}

impl SubagentStarter for SubagentPool {
    fn start(&self, request: &SubagentRequest<'_>) -> Result<String, ToolError> {
        let Some(turn) = self.0.turn.get() else {
            return Err(NO_TURN.into());
        };
        let failed = |error: anyhow::Error| {
            let message = format!("no sub-agent was started: {error:#}; continue without it");
            ToolError::Failed(message)
        };
        let profile = request.profile.map(|name| self.profile(name)).transpose()?;
        let policy = match &profile {
            Some(profile) => self.policy(turn, profile).map_err(failed)?,
            None => Arc::clone(&turn.policy),
        };
        let model = self.resolve_model(turn, profile.as_ref()).map_err(failed)?;
        let mut state = self.0.state.lock();
        let wake = match &state.wake {
            Some(wake) => Arc::clone(wake),
            None => {
                let wake = PoolWakePipe::new().map_err(|error| failed(error.into()))?;
                Arc::clone(state.wake.insert(Arc::new(wake)))
            }
        };
        let task = SubagentTask {
            number: turn.last_number + state.started_count + 1,
            call_id: request.call.to_owned(),
            label: truncate_line(request.label.unwrap_or(request.task), MAX_LABEL_CHARS),
            task: request.task.to_owned(),
            policy,
            profile,
            model,
        };
        let name = task.name();
        if state.running_count < self.max_concurrent() {
            let pool = self.clone();
            let thread = std::thread::Builder::new()
                .name(name.clone())
                .spawn(move || pool.run_queue(task, &wake.cancel_token))
                .map_err(|error| failed(error.into()))?;
            state.threads.push(thread);
            state.running_count += 1;
        } else {
            state.queue.push_back(task);
        }
        state.started_count += 1;
        state.pending_reports += 1;
        Ok(name)
    }
}

impl BackgroundTasks for SubagentPool {
    fn next_event(&self, wait: bool) -> Result<Option<BackgroundEvent>, Stop> {
        loop {
            let wake = {
                let mut state = self.0.state.lock();
                if let Some(event) = state.events.pop_front() {
                    if matches!(event, BackgroundEvent::Report(_)) {
                        state.pending_reports -= 1;
                    }
                    return Ok(Some(event));
                }
                match &state.wake {
                    Some(wake) if wait && state.pending_reports > 0 => Arc::clone(wake),
                    _ => return Ok(None),
                }
            };
            if signal::wait_readable(&wake.wake_rx, &mut Deadline::never())? {
                // The byte may be for an event that was already taken.
                let mut state = self.0.state.lock();
                drop((&wake.wake_rx).read(&mut [0]));
                state.is_signalled = false;
            }
        }
    }

    fn has_pending_reports(&self) -> bool {
        self.0.state.lock().pending_reports > 0
    }

    fn stop(&self) {
        let (wake, threads) = {
            let mut state = self.0.state.lock();
            let queue = std::mem::take(&mut state.queue);
            let never = "was not started: the run is ending";
            let reports = queue.iter().map(|task| task.to_report(never, "", TurnStats::default()));
            let reports: Vec<BackgroundEvent> = reports.collect();
            state.push_events(reports);
            state.is_signalled = false;
            (state.wake.take(), std::mem::take(&mut state.threads))
        };
        if let Some(wake) = wake {
            wake.cancel_token.cancel();
        }
        for thread in threads {
            // A join fails only after a panic, which would have ended the process.
            drop(thread.join());
        }
    }
}
