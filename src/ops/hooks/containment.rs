//! The containment of the hooks of a run: hooks that run in the sandbox get the sandbox of the run's commands. For the other hooks, the
//! paths that the run may change are hidden.

use crate::ops::changeable_paths::{add_scope, changeable_paths};
use crate::ops::context::Context;
use nanobot_base::message::Origin;
use nanobot_config::policy::file_scope::FileScope;
use nanobot_config::policy::net::Net;
use nanobot_config::policy::provenance::ProvenanceTracker;
use nanobot_config::policy::{Policy, Sandbox, tool_names};
use nanobot_config::settings::Settings;
use nanobot_sandbox::process;
use nanobot_sandbox::{HiddenPaths, private_tmp};
use nanobot_tool::exec::ExecTool;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;

/// The containment of the hooks of a run. Clones share the hidden paths.
#[derive(Clone)]
pub(crate) struct HookContainment {
    /// Runs hooks in the sandbox. `None` if the permissions of the run are unknown.
    pub(super) exec: Option<Arc<ExecTool>>,
    /// The provenance of the run, and the origin of the output of a hook in the sandbox.
    provenance: Option<(Arc<ProvenanceTracker>, Origin)>,
    /// The paths that are hidden from hooks outside of the sandbox. `None` if commands run outside of the sandbox too: they may
    /// change everything.
    hidden: Option<Arc<Mutex<HiddenPaths>>>,
    /// False if the run changes nothing, not even temporary files, so that nothing needs to be hidden.
    may_change: bool,
}

impl HookContainment {
    /// The containment for a run under `policy`, whose commands `exec` runs.
    pub(crate) fn of_run(
        ctx: &Context,
        settings: &Settings,
        policy: &Policy,
        exec: ExecTool,
        provenance: Option<Arc<ProvenanceTracker>>,
    ) -> Self {
        let origin = if policy.net == Net::Any || policy.sandbox == Sandbox::Off {
            Origin::External
        } else {
            Origin::Project
        };
        let hidden = changeable_paths(ctx, settings, policy);
        // A command can at least change the temporary directories of the run.
        let runs_commands = settings.exec.enabled && policy.is_offered(tool_names::EXEC)
            || !settings.tools.programs.is_empty();
        let may_change =
            runs_commands || hidden.as_ref().is_some_and(|hidden| !hidden.covered.is_empty());
        Self {
            exec: Some(Arc::new(exec)),
            provenance: provenance.map(|provenance| (provenance, origin)),
            may_change,
            hidden: hidden.map(|hidden| Arc::new(Mutex::new(hidden))),
        }
    }

    /// The containment for a run that could not begin. It could have changed at most `changeable_paths`.
    pub(crate) fn of_unknown_run(changeable_paths: Vec<PathBuf>) -> Self {
        let covered =
            changeable_paths.into_iter().filter_map(|path| path.canonicalize().ok()).collect();
        let hidden = HiddenPaths { covered, visible: Vec::new() };
        Self {
            exec: None,
            provenance: None,
            hidden: Some(Arc::new(Mutex::new(hidden))),
            may_change: true,
        }
    }

    /// The paths that are hidden from a hook outside of the sandbox. `None` if no path is hidden.
    pub(super) fn hidden_paths(&self) -> Option<HiddenPaths> {
        let mut hidden = self.hidden.as_ref()?.lock().clone();
        hidden.covered.extend(private_tmp::existing_directories());
        Some(hidden)
    }

    /// Makes sure that paths can be hidden, if there are any to hide.
    ///
    /// # Errors
    /// The paths cannot be hidden, for this reason.
    pub(super) fn require_hiding(&mut self) -> Result<(), String> {
        let Some(hidden) = self.hidden_paths() else {
            return Ok(());
        };
        let result = process::check_hiding(&hidden);
        if result.is_err() && !self.may_change {
            self.hidden = None;
            return Ok(());
        }
        result
    }

    /// Also hides the paths that `scope` lets the run change.
    pub(super) fn hide_also(&self, scope: &FileScope) {
        if let Some(hidden) = &self.hidden {
            add_scope(&mut hidden.lock(), scope);
        }
    }

    /// Records that the conversation has the output of the hook `name`. It has the origin of a command's output.
    pub(super) fn raise_origin(&self, name: &str) {
        if let Some((provenance, origin)) = &self.provenance {
            provenance.raise(*origin, &format!("hook `{name}`"));
        }
    }
}
