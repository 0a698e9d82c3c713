//! Tests that commands of a run cannot do what its sandbox forbids.

use crate::ops::context::Context;
use crate::ops::turn_setup::toolset;
use crate::ops::turn_setup::{self, TurnSetup};
use crate::options::grants::Grants;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::policy::Sandbox;
use nanobot_sandbox::process;
use nanobot_sandbox::self_test::SelfTestResult;
use nanobot_sandbox::{self as sandbox, SandboxSpec, namespaces};
use std::path::PathBuf;

/// Paths that no command may read if they exist, unless the user grants them by name.
const SECRET_PATHS: &[&str] = &[".ssh", ".aws", ".gnupg", ".netrc", ".git-credentials"];

/// The test of a run's sandbox.
pub(crate) struct SandboxTest {
    sandbox: SandboxSpec,
    /// Directories that no command may write.
    outside: Vec<PathBuf>,
    /// Paths that no command may read.
    hidden: Vec<PathBuf>,
}

impl SandboxTest {
    /// Prepares the test of a run with these permissions.
    ///
    /// # Errors
    /// Such a run has no sandbox, or this system has none.
    pub(crate) fn new(ctx: &Context, grants: &Grants) -> Result<Self> {
        let TurnSetup { policy, shared, .. } =
            turn_setup::build_without_turn(ctx, grants, false, false, Vec::new(), None)?;
        if policy.sandbox == Sandbox::Off {
            let cause = "nothing to test: with these flags commands run without a sandbox";
            let hint = "without `--sandbox off` and `--profile full`";
            return Err(fail(Exit::Failed, cause).with_hint(hint));
        }
        if let Err(error) = sandbox::check_available() {
            return Err(fail(Exit::NoSandbox, format!(
                    "no sandbox is available: {error}; parsers of documents use the parts that are available"
                )).with_hint("`--sandbox off` to run commands without one"));
        }
        let settings = ctx.settings()?;
        let exec = toolset::exec_tool(ctx, &settings, &policy, &shared.files);
        let sandbox_spec = exec.prepare_sandbox().context("set up the sandbox")?;
        let home = &policy.file_scope.home;
        let may_write =
            |path: &PathBuf| sandbox_spec.writable.iter().any(|root| path.starts_with(root));
        let outside: Vec<PathBuf> =
            [home, &ctx.paths.root, &policy.file_scope.directory, &policy.file_scope.workspace]
                .into_iter()
                .filter(|path| path.is_dir() && !may_write(path))
                .cloned()
                .collect();
        let is_granted =
            |path: &PathBuf| policy.file_scope.roots.iter().any(|root| root.path.starts_with(path));
        let secrets = SECRET_PATHS.iter().map(|name| home.join(name));
        let hidden: Vec<PathBuf> = policy
            .file_scope
            .hidden
            .iter()
            .cloned()
            .chain(secrets)
            .chain([PathBuf::from("/etc/shadow")])
            .filter(|path| path.exists() && !is_granted(path))
            .collect();
        Ok(Self { sandbox: sandbox_spec, outside, hidden })
    }

    /// The reason why this system does not allow all layers of the sandbox; `None` if it does.
    pub(crate) fn missing_layers(&self) -> Option<String> {
        let error = process::check_namespaces(&self.sandbox).err()?;
        Some(format!("{error}; {}", namespaces::explain_refusal()))
    }

    /// Tries the operations that the sandbox has to prevent.
    ///
    /// # Errors
    /// The commands of the test cannot be run.
    pub(crate) fn run(&self) -> Result<Vec<SelfTestResult>> {
        process::test_sandbox(&self.sandbox, &self.outside, &self.hidden)
            .context("test the sandbox")
    }
}
