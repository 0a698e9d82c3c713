//! The programs that a run offers as tools: programs in `~/.nanobot/tools` that the config enables, and programs of a trusted directory.
//! Each describes itself with `--spec`, in a sandbox that can change nothing; the descriptions are cached by the digest of the file.
//!
//! A run without such programs does not search for any: the config names the user's programs, and the list of trusted directories has the
//! programs of a directory.

use crate::ops::context::Context;
use crate::ops::turn_setup::toolset::exec_tool;
use anyhow::{Context as _, Result, bail};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::message::plain_text;
use nanobot_config::policy::file_scope::FileAccess;
use nanobot_config::policy::net::Net;
use nanobot_config::policy::{Policy, tool_names};
use nanobot_config::settings::Settings;
use nanobot_os::digest::{MAX_PROGRAM_BYTES, digest_program};
use nanobot_os::durable_file;
use nanobot_tool::exec::program_call::ProgramCall;
use nanobot_tool::files::Files;
use nanobot_tool::program::{MAX_NAME_CHARS, ProgramSpec, ToolProgram, program_name, tool_name};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirEntry;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time that a program has to describe itself.
const SPEC_TIMEOUT: Duration = Duration::from_secs(10);
/// The version of the cache's format.
const FORMAT_VERSION: u64 = 1;
/// Maximum size of the cache in bytes. A larger one is replaced.
const MAX_CACHE_BYTES: u64 = 4 << 20;

/// The descriptions of programs, by path.
#[derive(Default, Serialize, Deserialize)]
struct SpecCache {
    v: u64,
    programs: BTreeMap<PathBuf, CachedSpec>,
    /// The digests of programs that took too long to describe themselves, so that not every run waits for them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    timed_out: BTreeMap<PathBuf, String>,
    /// True if the cache differs from its file.
    #[serde(skip)]
    is_changed: bool,
}

#[derive(Serialize, Deserialize)]
struct CachedSpec {
    digest: String,
    spec: ProgramSpec,
}

impl SpecCache {
    /// Reads the cache; it is empty if the file is missing or cannot be read.
    fn load(path: &Path) -> Self {
        let bytes = durable_file::read_limited(path, MAX_CACHE_BYTES).ok().flatten();
        let cache: Option<Self> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        cache.filter(|cache| cache.v == FORMAT_VERSION).unwrap_or_default()
    }

    fn store(mut self, path: &Path) -> Result<()> {
        self.v = FORMAT_VERSION;
        self.programs.retain(|program, _| program.exists());
        self.timed_out.retain(|program, _| program.exists());
        let text = serde_json::to_vec(&self).context("serialize the descriptions of tools")?;
        durable_file::create_dir(path.parent().context("the cache has no directory")?)?;
        durable_file::replace(path, &text)
    }
}

/// The programs of a run. `trusted_programs` are those of trusted directories. A program that cannot be used is left out, with a
/// notice. `stores` is false for a run that writes nothing.
pub(crate) fn load(
    ctx: &Context,
    settings: &Settings,
    policy: &Policy,
    trusted_programs: &[PathBuf],
    stores: bool,
    notice: &mut dyn FnMut(&str),
) -> Arc<[ToolProgram]> {
    let enabled = &settings.tools.programs;
    if enabled.is_empty() && trusted_programs.is_empty() {
        return Arc::default();
    }
    let mut paths = enabled_programs(ctx, enabled, notice);
    let own_count = paths.len();
    paths.extend(trusted_programs.iter().cloned());
    let cache_path = ctx.paths.tool_specs();
    let mut cache = SpecCache::load(&cache_path);
    let mut programs = Vec::new();
    let mut names = BTreeSet::new();
    for (index, path) in paths.iter().enumerate() {
        // Programs of a trusted directory are pinned by their content, so a run may write in their directory.
        let is_pinned = index >= own_count;
        match load_program(ctx, settings, policy, path, is_pinned, &mut names, &mut cache) {
            Ok(program) => programs.extend(program),
            Err(error) => {
                let path = ctx.paths.display(path);
                notice(&format!("the tool `{path}` is not offered: {error:#}"));
            }
        }
    }
    if cache.is_changed
        && stores
        && let Err(error) = cache.store(&cache_path)
    {
        notice(&format!("the descriptions of tools were not stored: {error:#}"));
    }
    programs.into()
}

/// Loads the program at `path`; `None` if the policy does not offer it, or if `names` has its name already.
fn load_program(
    ctx: &Context,
    settings: &Settings,
    policy: &Policy,
    path: &Path,
    is_pinned: bool,
    names: &mut BTreeSet<String>,
    cache: &mut SpecCache,
) -> Result<Option<ToolProgram>> {
    let (name, path) = check_program(path)?;
    if !policy.is_offered(&tool_name(&name)) || !names.insert(name.clone()) {
        return Ok(None);
    }
    if !is_pinned && may_change(policy, &path) {
        bail!("it leads to `{}`, which this run may change", ctx.paths.display(&path));
    }
    let digest = digest_program(&path).with_context(|| {
        let max_size = durable_file::format_size(MAX_PROGRAM_BYTES);
        format!("it cannot be read, or is larger than {max_size}")
    })?;
    let cached = cache.programs.get(&path).filter(|cached| cached.digest == digest);
    if let Some(CachedSpec { spec, .. }) = cached {
        let spec = spec.clone();
        return Ok(Some(ToolProgram { name, path, digest, spec }));
    }
    if cache.timed_out.get(&path) == Some(&digest) {
        bail!("{}", describe_timeout(&name));
    }
    let start = Instant::now();
    let spec = match ask_spec(ctx, settings, policy, &path) {
        Ok(spec) => spec,
        Err(error) => {
            if start.elapsed() >= SPEC_TIMEOUT {
                cache.timed_out.insert(path, digest);
                cache.is_changed = true;
            }
            return Err(error);
        }
    };
    let cached = CachedSpec { digest: digest.clone(), spec: spec.clone() };
    cache.programs.insert(path.clone(), cached);
    cache.is_changed = true;
    Ok(Some(ToolProgram { name, path, digest, spec }))
}

/// True if a run under `policy` may change the program at the real path `path`.
fn may_change(policy: &Policy, path: &Path) -> bool {
    let scope = &policy.file_scope;
    let writable_dirs = scope.command_writable_paths();
    let is_read_only = scope.read_only.iter().any(|protected| path.starts_with(protected));
    !is_read_only
        && !scope.is_unrestricted
        && (writable_dirs.iter().any(|directory| path.starts_with(directory))
            || scope.decide_absolute(path.to_owned(), FileAccess::Write).is_ok())
}

/// The message that the program `name` is not asked again.
fn describe_timeout(name: &str) -> String {
    let seconds = SPEC_TIMEOUT.as_secs();
    format!("`--spec` took longer than {seconds} s; `nanobot tool check {name}` tries it again")
}

/// The enabled programs that runs leave out because they took too long to describe themselves: their paths, and the remedy.
pub(crate) fn timed_out(ctx: &Context, enabled: &[String]) -> Vec<(PathBuf, String)> {
    if enabled.is_empty() {
        return Vec::new();
    }
    let mut programs = Vec::new();
    for (path, digest) in SpecCache::load(&ctx.paths.tool_specs()).timed_out {
        if is_enabled(enabled, &path) && digest_program(&path).as_ref() == Some(&digest) {
            let message = describe_timeout(&program_name(&path).unwrap_or_default());
            programs.push((path, message));
        }
    }
    programs
}

/// Lets runs ask the program at `path` for its description again, since it has given one.
///
/// # Errors
/// The cache cannot be written.
pub(crate) fn forget_timeout(ctx: &Context, path: &Path) -> Result<()> {
    let cache_path = ctx.paths.tool_specs();
    let mut cache = SpecCache::load(&cache_path);
    match cache.timed_out.remove(path) {
        Some(_) => cache.store(&cache_path),
        None => Ok(()),
    }
}

/// The paths of the programs in `~/.nanobot/tools` that the config enables. One that is missing is named in a notice.
fn enabled_programs(
    ctx: &Context,
    enabled: &[String],
    notice: &mut dyn FnMut(&str),
) -> Vec<PathBuf> {
    if enabled.is_empty() {
        return Vec::new();
    }
    let programs = match list(ctx) {
        Ok(programs) => programs,
        Err(error) => {
            notice(&format!("{error:#}"));
            return Vec::new();
        }
    };
    if enabled.iter().any(|name| name == "*") {
        return programs;
    }
    let mut paths = Vec::new();
    for name in enabled {
        match programs.iter().find(|path| is_enabled(std::slice::from_ref(name), path)) {
            Some(path) => paths.push(path.clone()),
            None => notice(&format!(
                "`tools.programs` names `{name}`, which is not an executable file in {}",
                ctx.paths.display(&ctx.paths.tools())
            )),
        }
    }
    paths
}

/// True if the program at `path` is among `enabled`, names of files with or without extension, or `*`.
pub(crate) fn is_enabled(enabled: &[String], path: &Path) -> bool {
    enabled.iter().any(|name| {
        name == "*"
            || path.file_name().is_some_and(|file_name| file_name == name.as_str())
            || program_name(path).as_deref() == Some(name)
    })
}

/// The executable files in `~/.nanobot/tools`, by name.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn list(ctx: &Context) -> Result<Vec<PathBuf>> {
    let entries = durable_file::list_dir(&ctx.paths.tools())?;
    let is_program = |path: &PathBuf| {
        program_name(path).is_some()
            && path.metadata().is_ok_and(|metadata| {
                metadata.is_file() && metadata.permissions().mode() & 0o111 != 0
            })
    };
    let mut paths: Vec<PathBuf> = entries.iter().map(DirEntry::path).filter(is_program).collect();
    paths.sort();
    Ok(paths)
}

/// Checks that the program at `path` can be a tool, and returns its name and its real path.
///
/// # Errors
/// The program cannot be a tool, for this reason.
pub(crate) fn check_program(path: &Path) -> Result<(String, PathBuf)> {
    let name = program_name(path).with_context(|| {
        format!(
            "the name of `{}` is not that of a tool: letters, digits, `-` and `_`, {MAX_NAME_CHARS} at most",
            path.display()
        )
    })?;
    let real = std::fs::canonicalize(path)
        .map_err(|error| fail(Exit::NoInput, format!("read `{}`: {error}", path.display())))?;
    let metadata = real.metadata().with_context(|| format!("stat `{}`", real.display()))?;
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        let cause = format!("`{}` is not an executable file", path.display());
        return Err(fail(Exit::Usage, cause).with_hint(format!("chmod +x {}", path.display())));
    }
    if let Some(reason) = durable_file::unsafe_permissions(&real) {
        return Err(fail(Exit::Config, format!("`{}` {reason}", path.display())));
    }
    Ok((name, real))
}

/// Runs the program with `--spec`, in a sandbox that can change nothing and has no network, and reads its description.
///
/// # Errors
/// The program cannot be run, or its description cannot be used.
pub(crate) fn ask_spec(
    ctx: &Context,
    settings: &Settings,
    policy: &Policy,
    program: &Path,
) -> Result<ProgramSpec> {
    let mut policy = Policy { net: Net::Default, reads_only: true, ..policy.clone() };
    policy.file_scope.roots.iter_mut().for_each(|root| root.may_write = false);
    let files = Files::new(policy.file_scope.clone()).context("open the granted directories")?;
    let exec =
        exec_tool(ctx, settings, &policy, &Arc::new(files)).with_programs(vec![program.to_owned()]);
    let call = ProgramCall {
        call_id: "",
        program,
        arguments: &["--spec"],
        input: "",
        timeout: Some(SPEC_TIMEOUT),
    };
    let spec_error = |text: String| {
        let cause = format!("`{} --spec` {text}", program.display());
        fail(Exit::BadInput, cause).with_hint("`nanobot help programs` for the format")
    };
    let output = exec
        .run_program(call, &mut |_| {})
        .map_err(|error| spec_error(format!("failed: {}", error.message())))?;
    let output_text = plain_text(&output.parts);
    if output.command_failed {
        return Err(spec_error(format!("failed: {}", output_text.trim())));
    }
    ProgramSpec::parse(&output_text).map_err(spec_error)
}

/// True if `name` denotes the tool `tool` of the user: with or without the prefix of the names of such tools.
pub(crate) fn is_tool_name(tool: &str, name: &str) -> bool {
    tool == name || tool.strip_prefix(tool_names::PROGRAM_PREFIX) == Some(name)
}
