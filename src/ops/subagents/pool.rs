//! The pool of a turn's sub-agents: starts them, limits how many run concurrently, collects reports, and stops them
//! together.

use super::job::{Job, ModelBinding, TurnContext};
use super::run;
use crate::error::Stop;
use crate::ops::context::Context;
use crate::ops::model;
use crate::ops::permissions;
use crate::ops::profiles;
use crate::ops::turn_options::TurnOptions;
use crate::policy::Policy;
use crate::policy::profile::{Kind, Profile};
use crate::report::short_text::cut;
use crate::settings::{Overrides, Settings};
use crate::sys::defect;
use crate::sys::leash::{self, Leash};
use crate::sys::signal::{self, Patience};
use crate::sys::sync::IgnorePoison;
use crate::tool::spawn::{Order, Spawn, Starts};
use crate::tool::{Failure, Tool};
use crate::turn::beside::{Beside, News};
use crate::turn::ending::Tally;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;

/// Maximum length in characters of a label, or of the task text that replaces it.
const LABEL: usize = 40;

/// The sub-agents of a run.
#[derive(Clone)]
pub(crate) struct SubagentPool(Arc<Inner>);

struct Inner {
    ctx: Context,
    arguments: TurnOptions,
    settings: Settings,
    /// Set when the turn begins. Until then no sub-agent can start.
    turn: OnceLock<TurnContext>,
    /// The models that profiles name.
    models: Mutex<BTreeMap<String, ModelBinding>>,
    state: Mutex<State>,
}

/// A turn in progress. Dropping it, even in a panic, stops all sub-agents and their child processes.
#[must_use]
pub(crate) struct TurnGuard<'a>(&'a SubagentPool);

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[derive(Default)]
struct State {
    /// Number of sub-agents in this turn so far.
    count: usize,
    /// Jobs that wait for a thread.
    queue: VecDeque<Job>,
    running: usize,
    threads: Vec<JoinHandle<()>>,
    /// Number of reports that the turn has not received.
    open: usize,
    news: VecDeque<News>,
    /// Refusals that were already reported.
    refused: BTreeSet<String>,
    wake: Option<Arc<WakePipe>>,
    /// True if the wake pipe holds an unread byte. It holds at most one, so writing to it never blocks.
    is_signalled: bool,
}

/// The wake pipe and the cancellation handle, created with the first sub-agent.
struct WakePipe {
    leash: Arc<Leash>,
    /// Readable when there is news.
    wake_rx: PipeReader,
    wake_tx: PipeWriter,
}

impl WakePipe {
    fn new() -> std::io::Result<Self> {
        let (wake_rx, wake_tx) = std::io::pipe()?;
        Ok(Self {
            leash: Leash::new()?,
            wake_rx,
            wake_tx,
        })
    }
}

impl State {
    /// Adds news, and wakes the thread that waits for it.
    fn tell(&mut self, news: impl IntoIterator<Item = News>) {
        self.news.extend(news);
        if let Some(wake) = self.wake.as_ref().filter(|_| !self.is_signalled) {
            self.is_signalled = (&wake.wake_tx).write(b"!").is_ok();
        }
    }
}

impl SubagentPool {
    /// Creates the pool of a run.
    pub(crate) fn new(ctx: &Context, arguments: &TurnOptions, settings: &Settings) -> Self {
        Self(Arc::new(Inner {
            ctx: ctx.clone(),
            arguments: arguments.clone(),
            settings: settings.clone(),
            turn: OnceLock::new(),
            models: Mutex::default(),
            state: Mutex::default(),
        }))
    }

    /// The tool that starts sub-agents.
    pub(crate) fn tool(&self) -> Box<dyn Tool> {
        Box::new(Spawn::new(self.clone(), &self.profiles()))
    }

    /// Begins the turn. Dropping the returned guard ends it.
    pub(crate) fn open(&self, turn: TurnContext) -> TurnGuard<'_> {
        drop(self.0.turn.set(turn));
        TurnGuard(self)
    }

    /// The user's own profiles for sub-agents: name and purpose. Errors in a profile are reported when it is used.
    fn profiles(&self) -> Vec<(String, String)> {
        let ctx = &self.0.ctx;
        let own = profiles::own(ctx).into_iter();
        let profiles = own.filter_map(|name| {
            let profile = profiles::find(ctx, &name).ok()??;
            let about = cut(&profile.about, 200);
            (profile.kind == Kind::Subagent).then_some((name, about))
        });
        profiles.collect()
    }

    /// The profile `name`. It must be one for sub-agents.
    fn profile(&self, name: &str) -> Result<Profile, Failure> {
        let found = profiles::find(&self.0.ctx, name);
        let found =
            found.map_err(|error| Failure::Failed(format!("{error:#}; use another profile")))?;
        found
            .filter(|profile| profile.kind == Kind::Subagent)
            .ok_or_else(|| {
                let mut names = vec!["explore".to_owned()];
                names.extend(self.profiles().into_iter().map(|(name, _)| name));
                let names = names.join(", ");
                Failure::Failed(format!(
                    "there is no sub-agent profile `{name}`; use one of {names}, or omit `profile`"
                ))
            })
    }

    /// The model of a sub-agent under `profile`: the turn's own, unless the profile names another.
    fn resolve_model(&self, turn: &TurnContext, profile: Option<&Profile>) -> Result<ModelBinding> {
        let Inner {
            ctx,
            arguments,
            settings,
            models,
            ..
        } = &*self.0;
        let own = profile.and_then(|profile| profile.model.as_deref());
        // A recording has no other models, and neither does the demo.
        let Some(model) = own.filter(|_| arguments.replay.is_none()) else {
            return Ok(ModelBinding {
                chosen: turn.chosen.clone(),
                settings: settings.clone(),
            });
        };
        let mut models = models.lock().ignore_poison();
        if let Some(binding) = models.get(model) {
            return Ok(binding.clone());
        }
        let flags = Overrides {
            model: Some(model.to_owned()),
            max_tokens: arguments.max_tokens,
            temperature: arguments.temperature,
            reasoning_effort: arguments.reasoning_effort.clone(),
            max_iterations: arguments.max_iterations,
            workspace: None,
        };
        let settings = ctx.settings_with(flags)?;
        let mut notices = Vec::new();
        let mut notice = |text: &str| notices.push(News::Notice(text.to_owned()));
        let run = &turn.chosen.run;
        let chosen =
            model::choose_for_subagent(ctx, arguments, &settings, &turn.account, run, &mut notice)?;
        self.state().tell(notices);
        let binding = ModelBinding { chosen, settings };
        models.insert(model.to_owned(), binding.clone());
        Ok(binding)
    }

    /// The policy of a sub-agent under `profile`: the intersection of the turn's policy and the profile's. The user's
    /// grants for this run also apply, unless the profile overrides them.
    fn policy(&self, turn: &TurnContext, profile: &Profile) -> Result<Arc<Policy>> {
        let parent_policy = &turn.policy;
        let read = parent_policy
            .reach
            .roots
            .iter()
            .map(|root| root.path.clone());
        let grants = permissions::Grants {
            profile: None,
            write: Vec::new(),
            read: read.collect(),
            net: None,
            tools: None,
            no_tools: false,
            directory: Some(parent_policy.reach.directory.clone()),
            ..self.0.arguments.grants.clone()
        };
        let Inner { ctx, settings, .. } = &*self.0;
        let workspace = &parent_policy.reach.workspace;
        let mut own_policy = permissions::policy(ctx, &grants, settings, profile, workspace)?;
        turn.common.mcp_tools.add_to_policy(&mut own_policy);
        if profile.net == crate::policy::net::Net::Default {
            own_policy.net = parent_policy.net.clone();
            own_policy.typed.clone_from(&parent_policy.typed);
        }
        Ok(Arc::new(parent_policy.and(&own_policy)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().ignore_poison()
    }

    /// Maximum number of sub-agents that run concurrently.
    fn width(&self) -> usize {
        let most = self.0.settings.max_subagents.unwrap_or(usize::MAX);
        most.min(self.0.arguments.max_parallel).max(1)
    }

    /// Runs `job` on this thread, and then the queued jobs.
    fn work(&self, mut job: Job, leash: &Arc<Leash>) {
        loop {
            let say = |news: News| self.state().tell([news]);
            let report = leash::under(Some(Arc::clone(leash)), || {
                let done = || self.run_job(&job, &say);
                defect::caught(done)
            });
            let report = report.unwrap_or_else(|_| {
                let how = "failed: internal error in nanobot";
                job.report(how, "", Tally::default())
            });
            let mut state = self.state();
            state.tell([report]);
            match state.queue.pop_front() {
                Some(next) => job = next,
                None => {
                    state.running -= 1;
                    return;
                }
            }
        }
    }

    fn run_job(&self, job: &Job, on_news: &dyn Fn(News)) -> News {
        let Inner {
            ctx,
            arguments,
            turn,
            ..
        } = &*self.0;
        let turn = turn.get().expect("a job exists only within a turn");
        let on_refusal = |line| self.refused(line);
        run::run(ctx, turn, job, arguments.max_parallel, on_news, &on_refusal)
    }

    /// Reports a refusal, each kind once.
    fn refused(&self, line: String) {
        let mut state = self.state();
        if state.refused.insert(line.clone()) {
            state.tell([News::Notice(line)]);
        }
    }
}

impl Starts for SubagentPool {
    fn start(&self, order: &Order<'_>) -> Result<String, Failure> {
        let Some(turn) = self.0.turn.get() else {
            return Err(
                "sub-agents can only be started within a turn; do the task yourself".into(),
            );
        };
        let failed = |error: anyhow::Error| {
            let words = format!("no sub-agent was started: {error:#}; continue without it");
            Failure::Failed(words)
        };
        let profile = order.profile.map(|name| self.profile(name)).transpose()?;
        let policy = match &profile {
            Some(profile) => self.policy(turn, profile).map_err(failed)?,
            None => Arc::clone(&turn.policy),
        };
        let model = self.resolve_model(turn, profile.as_ref()).map_err(failed)?;
        let mut state = self.state();
        let wake = match &state.wake {
            Some(wake) => Arc::clone(wake),
            None => {
                let wake = WakePipe::new().map_err(|error| failed(error.into()))?;
                Arc::clone(state.wake.insert(Arc::new(wake)))
            }
        };
        let job = Job {
            number: turn.last + state.count + 1,
            call: order.call.to_owned(),
            label: cut(order.label.unwrap_or(order.task), LABEL),
            task: order.task.to_owned(),
            policy,
            profile,
            model,
        };
        let name = job.name();
        if state.running < self.width() {
            let pool = self.clone();
            let thread = std::thread::Builder::new()
                .name(name.clone())
                .spawn(move || pool.work(job, &wake.leash));
            state
                .threads
                .push(thread.map_err(|error| failed(error.into()))?);
            state.running += 1;
        } else {
            state.queue.push_back(job);
        }
        state.count += 1;
        state.open += 1;
        Ok(name)
    }
}

impl Beside for SubagentPool {
    fn news(&self, wait: bool) -> Result<Option<News>, Stop> {
        loop {
            let wake = {
                let mut state = self.state();
                if let Some(news) = state.news.pop_front() {
                    if matches!(news, News::Report(_)) {
                        state.open -= 1;
                    }
                    return Ok(Some(news));
                }
                match state.wake.as_ref().filter(|_| wait && state.open > 0) {
                    Some(wake) => Arc::clone(wake),
                    None => return Ok(None),
                }
            };
            if signal::readable(&wake.wake_rx, &mut Patience::endless())? {
                // The byte may stand for news that was already taken.
                let mut state = self.state();
                drop((&wake.wake_rx).read(&mut [0]));
                state.is_signalled = false;
            }
        }
    }

    fn is_open(&self) -> bool {
        self.state().open > 0
    }

    fn stop(&self) {
        let (wake, threads) = {
            let mut state = self.state();
            let queue = std::mem::take(&mut state.queue);
            let never = "was not started: the run is ending";
            let reports = queue
                .iter()
                .map(|job| job.report(never, "", Tally::default()));
            let reports: Vec<News> = reports.collect();
            state.tell(reports);
            state.is_signalled = false;
            (state.wake.take(), std::mem::take(&mut state.threads))
        };
        if let Some(wake) = wake {
            wake.leash.cut();
        }
        for thread in threads {
            // A panic was already caught and reported by the thread itself.
            drop(thread.join());
        }
    }
}
