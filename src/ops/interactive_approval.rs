//! Approval of denied tool calls by the user, in the REPL.

use crate::ops::context::Context;
use crate::ops::permissions::{self, Grants};
use crate::ops::shared_state::SharedState;
use crate::ops::toolset::all_tools;
use crate::policy::Policy;
use crate::policy::profile::Profile;
use crate::settings::Settings;
use crate::tool::ask_user::Person;
use crate::tool::{Appeals, Case, Failure, Toolbox};
use anyhow::Result;
use std::sync::Arc;

/// Asks the user about a denied call. The user may grant for it what a flag would.
pub(crate) struct InteractiveApproval {
    pub(crate) person: Arc<dyn Person>,
    pub(crate) ctx: Context,
    pub(crate) settings: Settings,
    pub(crate) profile: Profile,
    pub(crate) grants: Grants,
    pub(crate) policy: Arc<Policy>,
    pub(crate) shared: SharedState,
}

impl Appeals for InteractiveApproval {
    fn consents(&self, case: &Case<'_>) -> Result<(), Failure> {
        self.person.judge(case)
    }

    fn widened(&self, case: &Case<'_>) -> Result<Toolbox, Failure> {
        let refused = || Failure::Denied(case.refusal.clone());
        let flag = case.refusal.grant.as_deref().ok_or_else(refused)?;
        let mut grants = self.grants.clone();
        permissions::add(&mut grants, flag).ok_or_else(refused)?;
        // A denial that no flag can lift in this run is final, so the user is not asked.
        let workspace = &self.policy.reach.workspace;
        let policy =
            permissions::policy(&self.ctx, &grants, &self.settings, &self.profile, workspace);
        let mut policy = policy.map_err(|_| refused())?;
        self.shared.mcp_tools.add_to_policy(&mut policy);
        self.person.judge(case)?;
        policy.reach.notes.clone_from(&self.policy.reach.notes);
        policy.reach.trusted.clone_from(&self.policy.reach.trusted);
        let policy = Arc::new(policy);
        let files = self.shared.files.beside(policy.reach.clone());
        let files = files.map_err(|error| format!("open the granted directories: {error}"))?;
        let shared = SharedState {
            files: Arc::new(files),
            ..self.shared.clone()
        };
        let tools = all_tools(&self.ctx, &self.settings, &policy, &shared);
        Ok(Toolbox::new(tools, 1, policy))
    }
}
