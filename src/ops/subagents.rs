//! Sub-agents: who starts them, on how many threads, and what is heard of them. A crew belongs to a run and is empty until
//! something is spawned; each member is a turn of its own, see [`child`], and all of them are ended together.

use crate::error::Stop;
use crate::history::spawned;
use crate::ledger::Account;
use crate::ops::context::Context;
use crate::ops::model::{self, ModelHandle};
use crate::ops::permissions;
use crate::ops::shared_state::SharedState;
use crate::ops::turn_options::TurnOptions;
use crate::policy::Policy;
use crate::policy::profile::{Kind, Profile};
use crate::report::cut;
use crate::settings::{Overrides, Settings};
use crate::sys::defect;
use crate::sys::leash::{self, Leash};
use crate::sys::secret::hide;
use crate::sys::signal::{self, Patience};
use crate::tool::spawn::{Order, Spawn, Starts};
use crate::tool::{Failure, Tool};
use crate::turn::beside::{Beside, News, Report};
use crate::turn::ending::Tally;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

mod child;

/// Characters of a label, and of a task that stands for one.
const LABEL: usize = 40;

/// The sub-agents of a run.
#[derive(Clone)]
pub(crate) struct Crew(Arc<Inner>);

struct Inner {
    ctx: Context,
    arguments: TurnOptions,
    settings: Settings,
    /// Set when the turn begins: before, nothing can be started.
    stage: OnceLock<Stage>,
    /// Who answers for the models that profiles name.
    hired: Mutex<BTreeMap<String, Hired>>,
    state: Mutex<State>,
}

/// A turn is going on. Whatever happens to it, a panic even, no sub-agent outlives this, and so none of their children.
#[must_use]
pub(crate) struct Open<'a>(&'a Crew);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The turn that a crew works beside.
pub(crate) struct Stage {
    pub(crate) policy: Arc<Policy>,
    pub(crate) common: SharedState,
    /// The names of the turn's tools: no sub-agent has another.
    pub(crate) tools: Vec<String>,
    pub(crate) chosen: ModelHandle,
    pub(crate) account: Account,
    /// The highest number of a sub-agent that the conversation knows.
    pub(crate) last: usize,
}

/// A model, and how it is to be asked.
#[derive(Clone)]
struct Hired {
    chosen: ModelHandle,
    settings: Settings,
}

/// A task on its way to a thread.
struct Job {
    number: usize,
    call: String,
    label: String,
    task: String,
    policy: Arc<Policy>,
    profile: Option<Profile>,
    hired: Hired,
}

#[derive(Default)]
struct State {
    /// Sub-agents so far, in this turn.
    count: usize,
    /// Those that wait for a thread.
    queue: VecDeque<Job>,
    running: usize,
    threads: Vec<JoinHandle<()>>,
    /// Reports that have not been heard.
    open: usize,
    news: VecDeque<News>,
    /// Refusals that were told.
    refused: BTreeSet<String>,
    means: Option<Arc<Means>>,
    /// The bell has been rung and not been heard: it holds at most one byte, so that ringing never waits.
    rung: bool,
}

/// What is needed once there is a sub-agent.
struct Means {
    leash: Arc<Leash>,
    /// Can be read when there is news.
    bell: PipeReader,
    hammer: PipeWriter,
}

impl Means {
    fn new() -> std::io::Result<Self> {
        let (bell, hammer) = std::io::pipe()?;
        Ok(Self {
            leash: Leash::new()?,
            bell,
            hammer,
        })
    }
}

impl State {
    /// Add news, and wake whoever waits for it.
    fn tell(&mut self, news: impl IntoIterator<Item = News>) {
        self.news.extend(news);
        if let Some(means) = self.means.as_ref().filter(|_| !self.rung) {
            self.rung = (&means.hammer).write(b"!").is_ok();
        }
    }
}

impl Job {
    fn name(&self) -> String {
        format!("{}{}", spawned::TOOL, self.number)
    }

    /// The report of a job that ended in this way, `text` being what it has to say.
    fn report(&self, how: &str, text: &str, tally: Tally) -> News {
        let limit = self.hired.settings.max_tool_result_chars;
        News::Report(Report {
            mark: self.name(),
            words: hide(&child::words(&self.name(), &self.label, how, text, limit)).into_owned(),
            tally,
        })
    }
}

impl Crew {
    pub(crate) fn new(ctx: &Context, arguments: &TurnOptions, settings: &Settings) -> Self {
        Self(Arc::new(Inner {
            ctx: ctx.clone(),
            arguments: arguments.clone(),
            settings: settings.clone(),
            stage: OnceLock::new(),
            hired: Mutex::default(),
            state: Mutex::default(),
        }))
    }

    /// The tool that starts sub-agents.
    pub(crate) fn tool(&self) -> Box<dyn Tool> {
        Box::new(Spawn::new(self.clone(), &self.profiles()))
    }

    /// The turn begins; when what is returned is dropped, it is over, however it ended.
    pub(crate) fn open(&self, stage: Stage) -> Open<'_> {
        drop(self.0.stage.set(stage));
        Open(self)
    }

    /// The user's own profiles for sub-agents: name and purpose. One that cannot be read is told about when it is used.
    fn profiles(&self) -> Vec<(String, String)> {
        let ctx = &self.0.ctx;
        let own = permissions::own(ctx).into_iter();
        let profiles = own.filter_map(|name| {
            let profile = permissions::find(ctx, &name).ok()??;
            let about = cut(&profile.about, 200);
            (profile.kind == Kind::Subagent).then_some((name, about))
        });
        profiles.collect()
    }

    /// The profile `name`, which must be one for sub-agents.
    fn profile(&self, name: &str) -> Result<Profile, Failure> {
        let found = permissions::find(&self.0.ctx, name);
        let found =
            found.map_err(|error| Failure::Failed(format!("{error:#}; use another one")))?;
        found
            .filter(|profile| profile.kind == Kind::Subagent)
            .ok_or_else(|| {
                let mut names = vec!["explore".to_owned()];
                names.extend(self.profiles().into_iter().map(|(name, _)| name));
                let names = names.join(", ");
                Failure::Failed(format!(
                    "there is no profile `{name}` for sub-agents; there are: {names}; or leave `profile` out"
                ))
            })
    }

    /// Who answers a sub-agent under `profile`: the turn's own model, unless the profile names one.
    fn hire(&self, stage: &Stage, profile: Option<&Profile>) -> Result<Hired> {
        let Inner {
            ctx,
            arguments,
            settings,
            hired,
            ..
        } = &*self.0;
        let own = profile.and_then(|profile| profile.model.as_deref());
        // A recording has no other models, and neither has the demo.
        let Some(model) = own.filter(|_| arguments.replay.is_none()) else {
            return Ok(Hired {
                chosen: stage.chosen.clone(),
                settings: settings.clone(),
            });
        };
        let mut hired = hired.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hired) = hired.get(model) {
            return Ok(hired.clone());
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
        let run = &stage.chosen.run;
        let chosen = model::choose_for_subagent(
            ctx,
            arguments,
            &settings,
            &stage.account,
            run,
            &mut notice,
        )?;
        self.state().tell(notices);
        let new = Hired { chosen, settings };
        hired.insert(model.to_owned(), new.clone());
        Ok(new)
    }

    /// What a sub-agent under `profile` may do: what both that and the turn allow. What the user granted this run counts for
    /// it as well, as far as the profile does not say otherwise.
    fn policy(&self, stage: &Stage, profile: &Profile) -> Result<Arc<Policy>> {
        let ours = &stage.policy;
        let read = ours.reach.roots.iter().map(|root| root.path.clone());
        let grants = permissions::Grants {
            profile: None,
            write: Vec::new(),
            read: read.collect(),
            net: None,
            tools: None,
            no_tools: false,
            directory: Some(ours.reach.directory.clone()),
            ..self.0.arguments.grants.clone()
        };
        let Inner { ctx, settings, .. } = &*self.0;
        let workspace = &ours.reach.workspace;
        let mut theirs = permissions::policy(ctx, &grants, settings, profile, workspace)?;
        stage.common.mcp_tools.add_to_policy(&mut theirs);
        if profile.net == crate::policy::net::Net::Default {
            theirs.net = ours.net.clone();
            theirs.typed.clone_from(&ours.typed);
        }
        Ok(Arc::new(ours.and(&theirs)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many may run at a time.
    fn width(&self) -> usize {
        let most = self.0.settings.max_subagents.unwrap_or(usize::MAX);
        most.min(self.0.arguments.max_parallel as usize).max(1)
    }

    /// Do `job`, and after it what waits, on this thread.
    fn work(&self, mut job: Job, leash: &Arc<Leash>) {
        loop {
            let say = |news: News| self.state().tell([news]);
            let report = leash::under(Some(Arc::clone(leash)), || {
                let done = || child::run(self, &job, &say);
                defect::caught(done)
            });
            let report = report.unwrap_or_else(|_| {
                let how = "has failed: it broke down, which is a defect of nanobot's";
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

    /// Tell of a refusal, each kind once.
    fn refused(&self, line: String) {
        let mut state = self.state();
        if state.refused.insert(line.clone()) {
            state.tell([News::Notice(line)]);
        }
    }
}

impl Starts for Crew {
    fn start(&self, order: &Order<'_>) -> Result<String, Failure> {
        let Some(stage) = self.0.stage.get() else {
            return Err("sub-agents work beside a turn, and here is none; do it yourself".into());
        };
        let failed = |error: anyhow::Error| {
            let words = format!("no sub-agent was started: {error:#}; go on without it");
            Failure::Failed(words)
        };
        let profile = order.profile.map(|name| self.profile(name)).transpose()?;
        let policy = match &profile {
            Some(profile) => self.policy(stage, profile).map_err(failed)?,
            None => Arc::clone(&stage.policy),
        };
        let hired = self.hire(stage, profile.as_ref()).map_err(failed)?;
        let mut state = self.state();
        let means = match &state.means {
            Some(means) => Arc::clone(means),
            None => {
                let means = Means::new().map_err(|error| failed(error.into()))?;
                Arc::clone(state.means.insert(Arc::new(means)))
            }
        };
        let job = Job {
            number: stage.last + state.count + 1,
            call: order.call.to_owned(),
            label: cut(order.label.unwrap_or(order.task), LABEL),
            task: order.task.to_owned(),
            policy,
            profile,
            hired,
        };
        let name = job.name();
        if state.running < self.width() {
            let crew = self.clone();
            let thread = std::thread::Builder::new()
                .name(name.clone())
                .spawn(move || crew.work(job, &means.leash));
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

impl Beside for Crew {
    fn news(&self, wait: bool) -> Result<Option<News>, Stop> {
        loop {
            let means = {
                let mut state = self.state();
                if let Some(news) = state.news.pop_front() {
                    if matches!(news, News::Report(_)) {
                        state.open -= 1;
                    }
                    return Ok(Some(news));
                }
                match state.means.as_ref().filter(|_| wait && state.open > 0) {
                    Some(means) => Arc::clone(means),
                    None => return Ok(None),
                }
            };
            if signal::readable(&means.bell, &mut Patience::endless())? {
                // It may have been rung for news that was taken since.
                let mut state = self.state();
                drop((&means.bell).read(&mut [0]));
                state.rung = false;
            }
        }
    }

    fn is_open(&self) -> bool {
        self.state().open > 0
    }

    fn stop(&self) {
        let (means, threads) = {
            let mut state = self.state();
            let queue = std::mem::take(&mut state.queue);
            let never = "was never begun: the run has to end";
            let reports = queue
                .iter()
                .map(|job| job.report(never, "", Tally::default()));
            let reports: Vec<News> = reports.collect();
            state.tell(reports);
            state.rung = false;
            (state.means.take(), std::mem::take(&mut state.threads))
        };
        if let Some(means) = means {
            means.leash.cut();
        }
        for thread in threads {
            // A panic is caught where it happens, and told.
            drop(thread.join());
        }
    }
}
