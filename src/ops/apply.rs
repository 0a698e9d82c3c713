//! Applies a patch to a directory, as a run with `--write` could change it.

use crate::ops::agent_turn::execute::startup_files_notices;
use crate::ops::context::Context;
use crate::ops::proposal::prefix_in_repository;
use crate::ops::turn_setup;
use crate::options::grants::Grants;
use anyhow::{Context as _, Result};
use nanobot_agent::report::PROGRAM_PREFIX;
use nanobot_base::error::{Exit, Stop, fail};
use nanobot_base::message::Origin;
use nanobot_config::policy::{PolicyDecision, Refusal};
use nanobot_os::cancel::{self, CancelToken};
use nanobot_os::{input, signal};
use nanobot_tool::git_patch::apply::{self, AppliedChange};
use nanobot_tool::git_patch::parse;
use serde_json::json;
use std::io::{Read, stdin};
use std::path::Path;

/// The largest patch, in bytes.
const MAX_PATCH_BYTES: usize = 512 << 20;

/// A patch that was applied.
#[derive(Default)]
pub(crate) struct AppliedPatch {
    pub(crate) changes: Vec<AppliedChange>,
    /// A signal that came meanwhile. It ends the program once the changes are reported.
    pub(crate) stop: Option<Stop>,
}

/// Applies the patch in `file`, or on standard input if that is `-`, to `directory`, or else to the current one. `allow` are rules of the
/// policy.
///
/// # Errors
/// As [`apply::apply`]; the patch cannot be read.
pub(crate) fn apply(
    ctx: &Context,
    file: &Path,
    directory: Option<&Path>,
    allow: &[String],
) -> Result<AppliedPatch> {
    let patch = read(file)?;
    if patch.trim_ascii().is_empty() {
        ctx.notice("the patch is empty, and nothing was changed");
        return Ok(AppliedPatch::default());
    }
    let patches = parse::parse(&patch)?;
    let grants = Grants {
        directory: Some(directory.unwrap_or(Path::new(".")).to_owned()),
        write: vec![".".into()],
        allow: allow.to_vec(),
        no_tools: true,
        ..Grants::default()
    };
    let setup = turn_setup::build_without_turn(ctx, &grants, true, false, Vec::new(), None)?;
    // A patch does not tell where its content is from.
    setup.shared.provenance.raise(Origin::External, "the patch");
    let decide = |tool: &str, path: &str| -> Result<(), Refusal> {
        match setup.policy.decide(tool, &json!({ "path": path })) {
            PolicyDecision::Allow(_) => Ok(()),
            PolicyDecision::Deny(refusal) | PolicyDecision::Ask(refusal) => Err(refusal),
        }
    };
    let files = &setup.shared.files;
    let prefix = prefix_in_repository(&setup.policy.file_scope.directory);
    signal::install(None).context("wait for signals")?;
    // A part of a patch is worse than all of it, so a signal waits.
    let token = CancelToken::shielded().context("apply the patch")?;
    let changes = cancel::scope(Some(token), || apply::apply(files, &patches, &prefix, &decide));
    let stop = signal::check().err();
    signal::begin_shutdown_if_stopped();
    let changes = changes?;
    for notice in startup_files_notices(ctx, files, true, false, PROGRAM_PREFIX) {
        ctx.notice(&notice);
    }
    Ok(AppliedPatch { changes, stop })
}

fn read(file: &Path) -> Result<Vec<u8>> {
    if file != Path::new("-") {
        return input::read_file(file, &file.display().to_string(), MAX_PATCH_BYTES);
    }
    let mut patch = Vec::new();
    // The run that makes the patch prints nothing before its end, so silence has no limit.
    let limit = MAX_PATCH_BYTES as u64 + 1;
    stdin().lock().take(limit).read_to_end(&mut patch).context("read the patch")?;
    if patch.len() > MAX_PATCH_BYTES {
        return Err(fail(Exit::BadInput, "the patch is too large"));
    }
    Ok(patch)
}
