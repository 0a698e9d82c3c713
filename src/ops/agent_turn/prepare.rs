//! A turn that is ready to run: its session, tools, system prompt and message.

use super::origin::TurnOrigin;
use super::request::{ChatCommand, TurnRequest};
use crate::answer::Schema;
use crate::message::User;
use crate::ops::context::Context;
use crate::ops::jobs::scheduler::StoreScheduler;
use crate::ops::setup_input::SetupInput;
use crate::ops::subagents::pool::SubagentPool;
use crate::ops::turn_options::TurnOptions;
use crate::ops::turn_setup::{self, TurnSetup};
use crate::policy::Policy;
use crate::prompt;
use crate::report::{Report, json};
use crate::session::Session;
use crate::settings::Settings;
use crate::tool::cron::Planner;
use crate::turn::agent::Answer;
use crate::workspace::Workspace;
use anyhow::Result;
use std::sync::Arc;

/// A turn that is ready to run.
pub(crate) struct PreparedTurn {
    pub(crate) settings: Settings,
    pub(crate) session: Session,
    pub(crate) setup: TurnSetup,
    /// The sub-agents of the turn.
    pub(crate) subagents: SubagentPool,
    /// The schema that the answer must satisfy.
    pub(crate) schema: Option<Schema>,
    /// The system prompt.
    pub(crate) system: String,
    /// The user's message; `None` when an interrupted turn is resumed.
    pub(crate) message: Option<User>,
    /// Compact the session instead of running a turn. Holds the instructions for the summary.
    pub(crate) compaction: Option<Option<String>>,
    /// True if the profile forbids changes.
    pub(crate) reads_only: bool,
    /// The id of the job that runs the turn.
    pub(crate) job: Option<String>,
}

impl PreparedTurn {
    /// The check that the answer must pass.
    pub(crate) fn answer(&self) -> Option<&dyn Answer> {
        self.schema.as_ref().map(|schema| schema as &dyn Answer)
    }
}

/// Builds tools, policy and prompt for `request`.
pub(crate) fn prepare(
    ctx: &Context,
    options: &TurnOptions,
    origin: &TurnOrigin<'_>,
    request: TurnRequest,
    session: Session,
    (report, summary): (&mut Report, &mut json::Run),
) -> Result<PreparedTurn> {
    let TurnRequest {
        settings,
        profile,
        schema,
        parts,
        command,
        key: _,
        id_mark,
    } = request;
    let job = origin.job();
    let subagents = SubagentPool::new(ctx, options, &settings);
    let mut setup = {
        let input = SetupInput {
            grants: &options.grants,
            settings: &settings,
            workspace: &Workspace::new(&settings.workspace),
            profile: &profile,
            turn: &report.stamp.turn.clone(),
            session: session.key(),
            parallel: options.max_parallel,
            offline: options.offline,
            is_dry_run_or_replay: options.is_dry_run_or_replay(),
            policy_limit: job.and_then(|job| job.policy_limit),
            person: origin.repl().map(|repl| Arc::clone(&repl.person)),
            answers: origin.repl().map(|repl| Arc::clone(&repl.answers)),
            // A job cannot create jobs: they could multiply without end.
            scheduler: job
                .is_none()
                .then(|| Arc::new(StoreScheduler::new(ctx, &settings)) as Arc<dyn Planner>),
        };
        let spawn = subagents.tool();
        turn_setup::prepare(ctx, &input, vec![spawn], &mut |text| report.notice(text))?
    };
    log_policy(&profile.name, &setup);
    report_ignored_files(ctx, &setup, report, summary);
    if let Some(job) = job {
        setup.sections.push(prompt::job(job.job_prompt));
        if let Some(reason) = job.untrusted_reason {
            setup.shared.seen.taint(reason);
        }
    }
    let message = (!parts.is_empty()).then(|| User {
        id: format!("{}-{id_mark}", report.stamp.turn),
        parts,
        facts: prompt::facts(&ctx.clock.now(), session.key()),
        injected: false,
    });
    let sections = prompt::joined(&setup.sections);
    let system = match &schema {
        Some(schema) => format!("{sections}\n\n{}", schema.words()),
        None => sections,
    };
    Ok(PreparedTurn {
        settings,
        session,
        setup,
        subagents,
        schema,
        system,
        message,
        compaction: match command {
            Some(ChatCommand::Compact(instructions)) => Some(instructions),
            _ => None,
        },
        reads_only: profile.reads_only,
        job: job.map(|job| job.id.to_owned()),
    })
}

fn log_policy(profile: &str, setup: &TurnSetup) {
    let Policy {
        reach, reads_only, ..
    } = &*setup.policy;
    let tools = setup.toolbox.names().join(", ");
    log::info!(target: "policy", "profile `{profile}` in `{}`; tools: {tools}", reach.directory.display());
    for root in &reach.roots {
        let may = if root.may_write && !reads_only {
            "read and change"
        } else {
            "read"
        };
        log::debug!(target: "policy", "may {may} `{}`", root.path.display());
    }
}

/// Reports the instruction files that were not read because their directory is not trusted.
fn report_ignored_files(
    ctx: &Context,
    setup: &TurnSetup,
    report: &mut Report,
    summary: &mut json::Run,
) {
    let Some(path) = setup.ignored.first() else {
        return;
    };
    summary.ignored.clone_from(&setup.ignored);
    if ctx.terminal.err {
        let more = match setup.ignored.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let path = path.display();
        report.notice(&format!(
            "`{path}`{more} ignored: not trusted; read it, then run `nanobot trust` to use it"
        ));
    }
}
