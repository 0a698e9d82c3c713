//! The overview of `nanobot status`: configuration, spending, memory, and the next jobs.

use crate::error::hint_of;
use crate::ledger::{Ledger, Totals};
use crate::memory::Memory;
use crate::memory::last::Last;
use crate::memory::request::{self, LETTERS};
use crate::ops::context::Context;
use crate::ops::doctor::jobs_summary::JobsSummary;
use crate::ops::doctor::unused_tools::UnusedTools;
use crate::ops::model::{self, Endpoint};
use crate::ops::permissions::{self, Grants};
use crate::policy::Policy;
use crate::session;
use crate::settings::Settings;
use crate::sys::paths::Real;
use anyhow::Result;

/// The permissions of a run started from the current directory.
pub(crate) struct Scope {
    /// The profile's name.
    pub(crate) profile: String,
    pub(crate) policy: Policy,
}

impl Scope {
    fn of(ctx: &Context, settings: &Settings) -> Result<Self> {
        let grants = Grants::default();
        let profile = permissions::profile(ctx, &grants, settings)?;
        let home = Real::default().of(&permissions::absolute(&settings.workspace));
        let policy = permissions::policy(ctx, &grants, settings, &profile, &home)?;
        Ok(Self {
            profile: profile.name,
            policy,
        })
    }
}

/// The state of the memory.
pub(crate) struct MemoryState {
    /// Size of the memory in bytes.
    pub(crate) bytes: usize,
    /// Estimated size of the memory in tokens.
    pub(crate) tokens: usize,
    /// Size limit of the memory in tokens.
    pub(crate) budget_tokens: usize,
    pub(crate) is_over_budget: bool,
    pub(crate) last_consolidation: Option<Last>,
    /// Why the last consolidation failed.
    pub(crate) trouble: Option<String>,
}

impl MemoryState {
    fn read(ctx: &Context, settings: &Settings) -> Result<Self> {
        let memory = Memory::new(&settings.workspace, &ctx.clock);
        let bytes = memory.read()?.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let budget_tokens = settings.memory.budget;
        Ok(Self {
            bytes: bytes.len(),
            tokens: text.chars().count().div_ceil(LETTERS),
            budget_tokens,
            is_over_budget: request::is_over(&text, budget_tokens),
            last_consolidation: memory.last()?,
            trouble: memory.trouble()?,
        })
    }
}

/// All data of `nanobot status`.
pub(crate) struct Overview {
    pub(crate) settings: Settings,
    /// The provider and model that a run would use.
    pub(crate) endpoint: Result<Endpoint>,
    /// Number of sessions.
    pub(crate) sessions: usize,
    pub(crate) memory: MemoryState,
    pub(crate) jobs: JobsSummary,
    pub(crate) scope: Result<Scope>,
    pub(crate) tools: UnusedTools,
    /// Tokens used and cost in US dollars.
    pub(crate) spent: Totals,
    /// The suggested next step.
    pub(crate) next_step: Option<String>,
}

impl Overview {
    /// Collects the data.
    pub(crate) fn collect(ctx: &Context) -> Result<Self> {
        let settings = ctx.settings()?;
        let endpoint = model::resolve_endpoint(ctx, &settings, &settings.asked[0], true, true);
        let sessions = session::list(&ctx.session_place(&settings)?)?
            .sessions
            .len();
        let memory = MemoryState::read(ctx, &settings)?;
        let jobs = JobsSummary::of(ctx, &settings);
        let scope = Scope::of(ctx, &settings);
        let tools = UnusedTools::of(ctx, &settings)?;
        let ledger = Ledger::new(&ctx.paths.root, &ctx.clock);
        let spent = ledger.spent()?.unwrap_or_default();
        let next_step = match &endpoint {
            Err(error) => hint_of(error).map(str::to_owned),
            Ok(_) => jobs.next_step(),
        };
        Ok(Self {
            settings,
            endpoint,
            sessions,
            memory,
            jobs,
            scope,
            tools,
            spent,
            next_step,
        })
    }
}
