//! The containment of the hooks of a run: the sandbox of its commands for those that run in it, and for the others the places
//! that they do not see, because the run may change them.

use crate::ops::changeable_paths::{add_scope, changeable_paths};
use crate::ops::context::Context;
use nanobot_base::message::Origin;
use nanobot_config::policy::file_scope::FileScope;
use nanobot_config::policy::net::Net;
use nanobot_config::policy::provenance::ProvenanceTracker;
use nanobot_config::policy::{Policy, Sandbox, tool_names};
use nanobot_config::settings::Settings;
use nanobot_os::sync::IgnorePoison;
use nanobot_sandbox::process;
use nanobot_sandbox::{HiddenPaths, private_tmp};
use nanobot_tool::exec::ExecTool;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// The containment of the hooks of a run. Clones share the places.
#[derive(Clone)]
pub(crate) struct HookContainment {
    /// Runs hooks in the sandbox. `None` if the permissions of the run are unknown.
    pub(super) exec: Option<Arc<ExecTool>>,
    /// The provenance of the run, and the origin of the output of a hook in the sandbox.
    provenance: Option<(Arc<ProvenanceTracker>, Origin)>,
    /// `None` if commands run outside of the sandbox: they may change everything.
    places: Option<Arc<Mutex<HiddenPaths>>>,
    /// False if the run changes nothing, not even temporary files, so that nothing needs to be hidden.
    may_change: bool,
}

impl HookContainment {
    /// Holds the hooks of a run under `policy`, whose commands `exec` runs.
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
        let places = changeable_paths(ctx, settings, policy);
        // A command changes the temporary directories of the run at least.
        let runs_commands = settings.exec.enabled && policy.is_offered(tool_names::EXEC)
            || !settings.tools.programs.is_empty();
        let may_change =
            runs_commands || places.as_ref().is_some_and(|places| !places.covered.is_empty());
        Self {
            exec: Some(Arc::new(exec)),
            provenance: provenance.map(|provenance| (provenance, origin)),
            may_change,
            places: places.map(|places| Arc::new(Mutex::new(places))),
        }
    }

    /// Holds the hooks around a run that could not begin, which had at most the `written` places.
    pub(crate) fn of_unknown_run(written: Vec<PathBuf>) -> Self {
        let covered = written.into_iter().filter_map(|path| path.canonicalize().ok()).collect();
        let places = HiddenPaths { covered, visible: Vec::new() };
        Self {
            exec: None,
            provenance: None,
            places: Some(Arc::new(Mutex::new(places))),
            may_change: true,
        }
    }

    /// The places that a hook outside of the sandbox does not see. `None` if it sees all.
    pub(super) fn hidden_paths(&self) -> Option<HiddenPaths> {
        let mut places = self.places.as_ref()?.lock().ignore_poison().clone();
        places.covered.extend(private_tmp::existing_directories());
        Some(places)
    }

    /// Makes sure that the places can be hidden, if there are any.
    ///
    /// # Errors
    /// The reason that they cannot.
    pub(super) fn require_hiding(&mut self) -> Result<(), String> {
        let hidden = self.hidden_paths();
        match hidden.map_or(Ok(()), |places| process::check_hiding(&places)) {
            Err(_) if !self.may_change => {
                self.places = None;
                Ok(())
            }
            checked => checked,
        }
    }

    /// Hides also what `scope` lets the run change.
    pub(super) fn hide_also(&self, scope: &FileScope) {
        if let Some(places) = &self.places {
            add_scope(&mut places.lock().ignore_poison(), scope);
        }
    }

    /// Raises the origin of the conversation by the output of the hook `name`, which is that of a command.
    pub(super) fn raise_origin(&self, name: &str) {
        if let Some((provenance, origin)) = &self.provenance {
            provenance.raise(*origin, &format!("hook `{name}`"));
        }
    }
}
