//! Builds the policy of a run from flags, config and profile. Every command that runs tools uses it.

use crate::ops::context::Context;
use crate::ops::profiles;
use crate::ops::protected_paths::{instruction_files, memory_files, protected_paths};
use crate::ops::repository;
use crate::ops::skill_directories::{SkillDirectories, protected_directories};
use crate::options::grants::{Grants, SandboxMode};
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, HintPart, WithHint, fail, fail_with_parts};
use nanobot_config::policy::file_scope::{FileScope, LinkName, ScopeRoot};
use nanobot_config::policy::net::{self, Net};
use nanobot_config::policy::profile::{self, Profile};
use nanobot_config::policy::provenance::Grant;
use nanobot_config::policy::refusal::SuggestedFlag;
use nanobot_config::policy::rule::{Pattern, PolicyRule, RuleEffect};
use nanobot_config::policy::tool_names::{SESSIONS, SIGNING};
use nanobot_config::policy::{CommandPattern, Permission, Policy, Sandbox};
use nanobot_config::settings::keys::nearest;
use nanobot_config::settings::{DefaultDirectory, FlagOverrides, Locks, Settings};
use nanobot_os::deferred::Deferred;
use nanobot_os::repository::Repository;
use nanobot_os::symlinks::{PathResolver, real_directory};
use nanobot_sandbox::git_paths;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The key of the model.
pub(crate) const MODEL_KEY: &str = "agents.defaults.model";
const MAX_ITERATIONS_KEY: &str = "agents.defaults.maxToolIterations";

/// The settings, with the overrides of the profile that `grants` selects, and that profile.
pub(crate) fn settings_with_profile(
    ctx: &Context,
    grants: &Grants,
    mut overrides: FlagOverrides,
) -> Result<(Settings, Profile)> {
    let config = ctx.load_config()?;
    let settings = ctx.resolve(&config, overrides.clone())?;
    check_overrides(&settings.locks, &overrides)?;
    let profile = resolve_profile(ctx, grants, &settings)?;
    check_grants(grants, &settings, &profile)?;
    if profile.model.is_none() && profile.max_iterations.is_none() {
        return Ok((settings, profile));
    }
    let is_free = |key: &str| settings.locks.check_flag(key, "").is_ok();
    if is_free(MODEL_KEY) {
        overrides.model = overrides.model.or_else(|| profile.model.clone());
    }
    if is_free(MAX_ITERATIONS_KEY) {
        overrides.max_iterations = overrides.max_iterations.or(profile.max_iterations);
    }
    Ok((ctx.resolve(&config, overrides)?, profile))
}

/// Refuses flags of the model that would set a locked key.
///
/// # Errors
/// Status 77 for the first such flag.
fn check_overrides(locks: &Locks, overrides: &FlagOverrides) -> Result<()> {
    let FlagOverrides {
        model,
        fallbacks,
        max_tokens,
        temperature,
        reasoning_effort,
        max_iterations,
        // Of these, the first two have no key, and the last one is checked where it is given.
        verbosity: _,
        body_fields: _,
        workspace: _,
    } = overrides;
    let flags = [
        (model.is_some(), MODEL_KEY, "--model"),
        (fallbacks.is_some(), "agents.defaults.fallbackModels", "--fallback"),
        (max_tokens.is_some(), "agents.defaults.maxTokens", "--max-tokens"),
        (temperature.is_some(), "agents.defaults.temperature", "--temperature"),
        (reasoning_effort.is_some(), "agents.defaults.reasoningEffort", "--reasoning-effort"),
        (max_iterations.is_some(), MAX_ITERATIONS_KEY, "--max-iterations"),
    ];
    let mut used = flags.into_iter().filter(|(is_used, _, _)| *is_used);
    used.try_for_each(|(_, key, flag)| locks.check_flag(key, flag))
}

/// Refuses grants that would set a locked key. A flag that only narrows, such as `--deny`, sets none. Every policy is built from grants
/// that pass this check, and a new field of them does not compile without a decision here.
///
/// # Errors
/// Status 77 for the first such grant.
fn check_grants(grants: &Grants, settings: &Settings, profile: &Profile) -> Result<()> {
    let Grants {
        profile: profile_name,
        write,
        read,
        net,
        allow,
        tools,
        directory,
        sandbox,
        private_copy,
        deny: _,
        disabled_tools: _,
        no_tools: _,
    } = grants;
    let locks = &settings.locks;
    let chooses_profile = profile_name.as_ref().is_some_and(|name| *name != settings.profile);
    let weakens_sandbox = sandbox.is_some_and(|mode| mode != SandboxMode::Strict);
    let lists_sessions = tools.iter().flatten().any(|tool| tool == SESSIONS);
    // The grants of a private copy are of the paths in it, and were checked before it was made.
    let is_copy = private_copy.is_some();
    let leaves_workspace = !is_copy
        && locks.locks_to("agents.defaults.directory", "workspace")
        && directory
            .as_ref()
            .is_some_and(|path| real_directory(path) != real_directory(&settings.workspace));
    let flags = [
        (chooses_profile, "agents.defaults.profile", "--profile"),
        (!allow.is_empty(), "tools.allow", "--allow"),
        (net.is_some(), "tools.net", "--net"),
        (!is_copy && !read.is_empty(), "tools.read", "--read"),
        (!is_copy && !write.is_empty(), "tools.write", "--write"),
        (weakens_sandbox, "tools.sandbox", "--sandbox"),
        (profile.is_unrestricted, "tools.sandbox", "--profile"),
        // A list that names this tool allows it, too.
        (lists_sessions, "tools.allow", "--tools sessions"),
        (lists_sessions, "tools.permissions", "--tools sessions"),
        (leaves_workspace, "agents.defaults.directory", "--directory"),
    ];
    let mut used = flags.into_iter().filter(|(is_used, _, _)| *is_used);
    used.try_for_each(|(_, key, flag)| locks.check_flag(key, flag))
}

/// The profile that the flags name, or else the config. A profile for sub-agents only is rejected.
pub(crate) fn resolve_profile(
    ctx: &Context,
    grants: &Grants,
    settings: &Settings,
) -> Result<Profile> {
    let name = grants.profile.as_deref().unwrap_or(&settings.profile);
    let profile_error = |cause: String, hint: &str| match grants.profile {
        Some(_) => fail(Exit::Usage, cause).with_hint(hint),
        None => fail(Exit::Config, format!("`agents.defaults.profile`: {cause}")).with_hint(hint),
    };
    let profile = profiles::find(ctx, name)?.ok_or_else(|| {
        let names = profiles::names(ctx);
        let hint = match nearest(name, names.iter().map(String::as_str)) {
            Some(nearest) => format!("`{nearest}`"),
            None => names.join(", "),
        };
        profile_error(format!("there is no profile `{name}`"), &hint)
    })?;
    if profile.kind == profile::ProfileKind::Subagent {
        return Err(profile_error(
            format!("the profile `{name}` is for sub-agents"),
            "default, plan",
        ));
    }
    if profile.is_unrestricted && grants.profile.is_none() {
        return Err(profile_error(
            format!("profile `{name}` cannot be the default: it must be given on each run"),
            "`nanobot agent --profile full`",
        ));
    }
    Ok(profile)
}

/// The workspace at the start of a run.
pub(crate) struct WorkspacePlace {
    /// Its path, without links.
    pub(crate) path: PathBuf,
    exists: bool,
}

impl WorkspacePlace {
    /// Finds the workspace at `path`, which need not exist.
    pub(crate) fn find(path: &Path) -> Self {
        match real_directory(path) {
            Some(path) => Self { path, exists: true },
            None => Self::of_run(&PathResolver::default().resolve(&absolute(path))),
        }
    }

    /// The workspace of a run that has begun. `path` has no links, and is not resolved again: a run may change links.
    pub(crate) fn of_run(path: &Path) -> Self {
        Self { path: path.to_owned(), exists: path.is_dir() }
    }
}

/// The policy of a run with these grants.
///
/// # Errors
/// As [`build_policy`].
pub(crate) fn policy_of(ctx: &Context, grants: &Grants, settings: &Settings) -> Result<Policy> {
    let profile = resolve_profile(ctx, grants, settings)?;
    build_policy(ctx, grants, settings, &profile, &WorkspacePlace::find(&settings.workspace))
}

/// Builds the policy of a run under `profile`.
///
/// # Errors
/// Status 77 if the grants set a locked key; 2 or 78 for a mistake in them or in the config.
pub(crate) fn build_policy(
    ctx: &Context,
    grants: &Grants,
    settings: &Settings,
    profile: &Profile,
    workspace: &WorkspacePlace,
) -> Result<Policy> {
    check_grants(grants, settings, profile)?;
    build_inner_policy(ctx, grants, settings, profile, workspace)
}

/// Builds a policy from grants that follow from those of another policy, which limits it.
///
/// # Errors
/// Status 2 or 78 for a mistake in the grants or in the config.
pub(crate) fn build_inner_policy(
    ctx: &Context,
    grants: &Grants,
    settings: &Settings,
    profile: &Profile,
    workspace: &WorkspacePlace,
) -> Result<Policy> {
    if profile.is_unrestricted && grants.sandbox == Some(SandboxMode::Strict) {
        let cause = format!(
            "profile `{}` has no sandbox, but `--sandbox strict` requires one",
            profile.name
        );
        return Err(fail(Exit::Usage, cause).with_hint("only one of the two"));
    }
    let mut real_paths = PathResolver::with_real_path(&workspace.path);
    let file_scope = build_file_scope(ctx, grants, settings, profile, workspace, &mut real_paths)?;
    let mut policy = Policy {
        profile: profile.name.clone(),
        file_scope,
        net: allowed_hosts(grants, settings, profile)?,
        explicit_addresses: explicit_addresses(grants.net.as_deref().unwrap_or_default()),
        sandbox: sandbox_mode(grants, settings, profile),
        tool_filters: profile.tools.iter().cloned().collect(),
        permissions: tool_permissions(grants, settings, profile)?,
        rules: Vec::new(),
        auto_approve: profile.auto_approve,
        reads_only: profile.reads_only,
        ..Policy::default()
    };
    let tools = &settings.tools;
    policy.command_patterns.denied =
        parse_patterns(&tools.deny_patterns, "tools.exec.denyPatterns")?;
    let allowed = parse_patterns(&tools.allow_patterns, "tools.exec.allowPatterns")?;
    if !allowed.is_empty() {
        policy.command_patterns.allowed.push(allowed);
    }
    for rule in &profile.rules {
        policy.add(rule.clone());
    }
    add_rules(&mut policy, grants, settings)?;
    policy.file_scope.deny_link_targets(|path| real_paths.resolve(path));
    // The memory, which every conversation may change otherwise, is among the notes that a rule denies.
    if policy.change_grants().notes == Grant::Denied {
        policy.file_scope.instruction_files.extend(memory_files(&workspace.path));
    }
    if grants.private_copy.is_some() {
        policy.file_scope.allowed.clear();
    }
    Ok(policy)
}

/// The permissions of tools: those of the config, followed by those of the profile.
fn tool_permissions(
    grants: &Grants,
    settings: &Settings,
    profile: &Profile,
) -> Result<Vec<(Pattern, Permission)>> {
    let mut permissions = Vec::new();
    for (tool, permission) in &settings.tools.permissions {
        let entry = Permission::parse_entry(tool, permission)
            .map_err(|error| fail(Exit::Config, format!("`tools.permissions.{tool}` {error}")))?;
        permissions.push(entry);
    }
    let is_web_tool = |name: &Pattern| ["web_search", "web_fetch"].contains(&name.text());
    // `--net` grants the web tools too.
    let applies = |(name, _): &&(Pattern, Permission)| grants.net.is_none() || !is_web_tool(name);
    permissions.extend(profile.permissions.iter().filter(applies).cloned());
    let flag = grants.tools.iter().flatten().map(String::as_str);
    let mut listed = flag.chain(profile.tools.iter().flatten().map(Pattern::text));
    // A list that names this tool, and not by a pattern, allows it too.
    if listed.any(|name| name == SESSIONS) {
        permissions.push((Pattern::new(SESSIONS), Permission::Always));
    }
    Ok(permissions)
}

/// The sandbox mode of commands.
fn sandbox_mode(grants: &Grants, settings: &Settings, profile: &Profile) -> Sandbox {
    match grants.sandbox {
        Some(SandboxMode::Strict) => Sandbox::Strict,
        Some(SandboxMode::Off) => Sandbox::Off,
        _ if settings.tools.needs_sandbox && !profile.is_unrestricted => Sandbox::Strict,
        Some(SandboxMode::Auto) => Sandbox::Auto,
        None if profile.is_unrestricted => Sandbox::Off,
        None => Sandbox::Auto,
    }
}

/// Adds the rules of the config and of the flags.
fn add_rules(policy: &mut Policy, grants: &Grants, settings: &Settings) -> Result<()> {
    let tools = &settings.tools;
    let sources = [
        (&tools.allow, RuleEffect::Allow, "tools.allow", Exit::Config),
        (&tools.deny, RuleEffect::Deny, "tools.deny", Exit::Config),
        (&grants.allow, RuleEffect::Allow, "--allow", Exit::Usage),
        (&grants.deny, RuleEffect::Deny, "--deny", Exit::Usage),
        (&grants.disabled_tools, RuleEffect::Deny, "--deny", Exit::Usage),
    ];
    for (rules, effect, origin, exit) in sources {
        for text in rules {
            let rule = PolicyRule::parse(text, effect, origin)
                .map_err(|error| fail(exit, format!("{origin}: rule `{text}` {error}")))?;
            // A rule that allows fetching from a host also allows connecting to it.
            if let (RuleEffect::Allow, "web_fetch", Some(host)) =
                (effect, rule.tool.text(), &rule.argument)
                && !host.text().contains('/')
            {
                match &mut policy.net {
                    Net::Hosts { hosts, .. } => hosts.push(host.clone()),
                    Net::Default => {
                        let hosts = vec![host.clone()];
                        policy.net = Net::Hosts { hosts, commands: Vec::new() };
                    }
                    Net::Any => {}
                }
            }
            policy.add(rule);
        }
    }
    Ok(())
}

/// Adds to `grants` the permission that `flag` describes, as named in a denial. Returns `None` if the user cannot grant
/// it for a single call.
pub(crate) fn add_flag(grants: &mut Grants, flag: &str) -> Option<()> {
    let SuggestedFlag { name, value } = SuggestedFlag::parse(flag)?;
    match (name, value) {
        ("--write", path) => grants.write.push(path.map_or_else(|| ".".into(), PathBuf::from)),
        ("--read", Some(path)) => grants.read.push(path.into()),
        // Signing is granted only by a flag or config that the user writes.
        ("--allow", Some(rule)) if rule != SIGNING => grants.allow.push(rule),
        ("--net", None) => grants.net = Some(Vec::new()),
        ("--net", Some(host)) => match &mut grants.net {
            // All hosts are already granted.
            Some(hosts) if hosts.is_empty() => {}
            hosts => hosts.get_or_insert_default().push(host),
        },
        _ => return None,
    }
    Some(())
}

fn parse_patterns(texts: &[String], key: &str) -> Result<Vec<CommandPattern>> {
    let compile = |text: &String| {
        CommandPattern::compile(text)
            .map_err(|error| fail(Exit::Config, format!("`{key}`: `{text}` {error}")))
    };
    texts.iter().map(compile).collect()
}

/// The IP addresses among `hosts`. Host names are excluded, because a name could resolve to any address.
fn explicit_addresses(hosts: &[String]) -> Vec<(IpAddr, Option<u16>)> {
    let parse = |text: &String| net::literal_address(&net::parse_host(text).ok()?);
    hosts.iter().filter_map(parse).collect()
}

/// The hosts of the config and of `--net=HOSTS`, or else of the profile. The hosts of the config and of the rules are only for the web
/// tools.
fn allowed_hosts(grants: &Grants, settings: &Settings, profile: &Profile) -> Result<Net> {
    let mut configured: Vec<Pattern> = Vec::new();
    for text in &settings.tools.net {
        configured.push(
            net::parse_host(text)
                .map_err(|error| fail(Exit::Config, format!("`tools.net`: `{text}` {error}")))?,
        );
    }
    if let Some(hosts) = &grants.net {
        if hosts.is_empty() {
            return Ok(Net::Any);
        }
        let mut granted = Vec::new();
        for text in hosts {
            granted.push(net::parse_host(text).map_err(|error| {
                fail(Exit::Usage, format!("`--net`: `{text}` {error}"))
                    .with_hint("`--net=example.org,*.example.com`; bare `--net` for all")
            })?);
        }
        return Ok(Net::Hosts { hosts: [configured, granted.clone()].concat(), commands: granted });
    }
    Ok(match &profile.net {
        Net::Any => Net::Any,
        Net::Hosts { hosts, commands } => Net::Hosts {
            hosts: [configured.as_slice(), hosts].concat(),
            commands: commands.clone(),
        },
        Net::Default if configured.is_empty() => Net::Default,
        Net::Default => Net::Hosts { hosts: configured, commands: Vec::new() },
    })
}

/// The paths that tools may access.
fn build_file_scope(
    ctx: &Context,
    grants: &Grants,
    settings: &Settings,
    profile: &Profile,
    workspace_place: &WorkspacePlace,
    real_paths: &mut PathResolver,
) -> Result<FileScope> {
    let workspace = &workspace_place.path;
    let directory = working_directory(ctx, grants, settings, workspace_place, real_paths)?;
    refuse_paths_of_replaced_directory(ctx, grants, settings, &directory)?;
    if profile.reads_only && !grants.write.is_empty() {
        let cause =
            format!("profile `{}` is read-only, so `--write` cannot be used with it", profile.name);
        return Err(fail(Exit::Usage, cause).with_hint("only one of the two"));
    }
    let mut roots = GrantedPaths::default();
    if workspace_place.exists {
        roots.add(workspace.to_owned(), !profile.reads_only);
    }
    let position = roots.0.len();
    for path in &grants.read {
        roots.add(resolve_existing(path, None)?, false);
    }
    for path in &grants.write {
        let path = if path == Path::new(".") {
            directory.clone()
        } else {
            // A missing path may become a file or a directory.
            resolve_existing(path, Some("`mkdir` it first, or `touch` it for a file"))?
        };
        roots.add(path, true);
    }
    roots.add_configured(ctx, settings, profile, &directory)?;
    for path in SkillDirectories::find(ctx, settings).iter() {
        roots.add(path.to_owned(), false);
    }
    roots.add_directory(&directory, position);
    let home = real_paths.resolve(&absolute(&ctx.paths.home));
    let (hidden, own_read_only) = protected_paths(ctx, workspace);
    let repository = if settings.restrict_to_workspace {
        None
    } else {
        repository::find(ctx, &directory, &home, &hidden, grants.private_copy.as_ref())?
    };
    if let Some(repository) = &repository {
        roots.add_repository(repository);
    }
    if let Some(copy) = &grants.private_copy {
        roots.keep_writable(&[workspace, &copy.path]);
    }
    let roots = roots.0;
    if settings.restrict_to_workspace && roots.iter().any(|root| root.path != *workspace) {
        let cause = "`tools.restrictToWorkspace` allows no paths outside the workspace";
        let hint = "the command without `-C`, `--read` and `--write=PATH`";
        return Err(fail(Exit::Refused, cause).with_hint(hint));
    }
    if profile.is_unrestricted {
        return Ok(FileScope {
            directory,
            workspace: workspace.to_owned(),
            home,
            roots,
            repository,
            is_unrestricted: true,
            ..FileScope::default()
        });
    }
    let writable = roots.iter().filter(|root| root.may_write).map(|root| &root.path);
    let mut writable: Vec<PathBuf> = writable.cloned().collect();
    for git_dir in repository.iter().flat_map(|repository| &repository.git_dirs) {
        if !writable.iter().any(|root| git_dir.starts_with(root)) {
            writable.push(git_dir.clone());
        }
    }
    let user_home = home.clone();
    let skill_directories = protected_directories(ctx, settings);
    let read_only = Deferred::new(move || {
        let mut read_only = own_read_only.to_vec();
        read_only.extend(skill_directories);
        for root in &writable {
            let granted_below =
                || writable.iter().filter(|other| *other != root && other.starts_with(root));
            for path in git_paths::configured_paths(root, &user_home) {
                // A path that the user grants by name may be changed, such as a directory of hooks.
                if !granted_below().any(|granted| path.starts_with(granted)) {
                    read_only.push(path);
                }
            }
        }
        read_only
    });
    Ok(FileScope {
        is_private_copy: grants.private_copy.is_some(),
        names: link_names(ctx, grants, settings, profile, &directory, &home),
        directory,
        workspace: workspace.to_owned(),
        home,
        roots,
        repository,
        hidden,
        instruction_files: instruction_files(workspace),
        read_only,
        ..FileScope::default()
    })
}

/// The paths that tools may access, without duplicates.
#[derive(Default)]
struct GrantedPaths(Vec<ScopeRoot>);

impl GrantedPaths {
    fn add(&mut self, path: PathBuf, may_write: bool) {
        match self.0.iter_mut().find(|root| root.path == path) {
            Some(root) => root.may_write |= may_write,
            None => self.0.push(ScopeRoot { path, may_write }),
        }
    }

    /// Adds the working directory at `position`, unless it was granted by name. It is read-only, unless one of its parents
    /// was granted for writing.
    fn add_directory(&mut self, directory: &Path, position: usize) {
        if self.0.iter().all(|root| root.path != *directory) {
            let may_write =
                self.0.iter().any(|root| root.may_write && directory.starts_with(&root.path));
            let path = directory.to_owned();
            self.0.insert(position, ScopeRoot { path, may_write });
        }
    }

    /// Makes all paths read-only but those beneath `directories`.
    fn keep_writable(&mut self, directories: &[&Path]) {
        for root in &mut self.0 {
            root.may_write &= directories.iter().any(|directory| root.path.starts_with(directory));
        }
    }

    /// Adds the directories of the repository that no root contains, read-only: a grant for writing is for its own path.
    fn add_repository(&mut self, repository: &Repository) {
        if repository.git_dirs.is_empty() {
            return;
        }
        for path in std::iter::once(&repository.top).chain(repository.outside()) {
            if !self.0.iter().any(|root| path.starts_with(&root.path)) {
                self.add(path.clone(), false);
            }
        }
    }

    /// Adds the paths that the config and the profile name.
    fn add_configured(
        &mut self,
        ctx: &Context,
        settings: &Settings,
        profile: &Profile,
        directory: &Path,
    ) -> Result<()> {
        let tools = &settings.tools;
        let sources = [
            (&tools.read, false, "`tools.read`"),
            (&tools.write, true, "`tools.write`"),
            (&profile.read, false, "the profile"),
            (&profile.write, true, "the profile"),
        ];
        for (configured_paths, may_write, origin) in sources {
            for configured in configured_paths {
                let path = match configured.as_str() {
                    "." => directory.to_owned(),
                    // A configured path may be missing. One given by a flag must exist.
                    configured => {
                        match resolve_if_exists(&directory.join(ctx.paths.expand(configured))) {
                            Ok(Some(path)) => path,
                            Ok(None) => {
                                log::info!(target: "policy", "{origin} names `{configured}`, which does not exist");
                                continue;
                            }
                            Err(error) => {
                                return Err(error.context(format!("resolve a path from {origin}")));
                            }
                        }
                    }
                };
                self.add(path, may_write && !profile.reads_only);
            }
        }
        Ok(())
    }
}

/// The names through links by which the user gave paths, and that of the home directory. The longest ones are first.
fn link_names(
    ctx: &Context,
    grants: &Grants,
    settings: &Settings,
    profile: &Profile,
    directory: &Path,
    home: &Path,
) -> Vec<LinkName> {
    let tools = &settings.tools;
    let configured = [&tools.read, &tools.write, &profile.read, &profile.write];
    let configured = configured.into_iter().flatten();
    let configured = configured.map(|path| directory.join(ctx.paths.expand(path)));
    let paths = grants.read.iter().chain(&grants.write).chain(&grants.directory);
    let paths = paths.map(|path| absolute(path)).chain(configured);
    let links = paths.filter_map(|path| {
        let real_path = resolve_if_exists(&path).ok().flatten()?;
        // Without a slash at the end, and `.`.
        Some(LinkName { name: path.components().collect(), path: real_path })
    });
    let home = LinkName { name: absolute(&ctx.paths.home), path: home.to_owned() };
    let mut names: Vec<LinkName> =
        links.chain([home]).filter(|link| link.name != link.path).collect();
    names.sort_by_key(|link| std::cmp::Reverse(link.name.components().count()));
    names
}

/// The working directory of the run.
fn working_directory(
    ctx: &Context,
    grants: &Grants,
    settings: &Settings,
    workspace: &WorkspacePlace,
    real_paths: &mut PathResolver,
) -> Result<PathBuf> {
    if let Some(path) = &grants.directory {
        let directory = resolve_existing(path, None)?;
        return if directory.is_dir() {
            Ok(directory)
        } else {
            Err(fail(Exit::Usage, format!("`-C`: `{}` is not a directory", path.display()))
                .with_hint("its parent directory"))
        };
    }
    if settings.restrict_to_workspace || settings.directory == DefaultDirectory::Workspace {
        return Ok(workspace.path.clone());
    }
    let Ok(current) = std::env::current_dir() else {
        return Ok(workspace.path.clone());
    };
    let is_replaced = is_replaced_by_workspace(ctx, &current, workspace.exists, real_paths);
    Ok(if is_replaced { workspace.path.clone() } else { current })
}

/// True if the workspace replaces `directory`, an absolute path without links, as working directory: the home directory and
/// its parents contain private files. Before the workspace exists, a run sends nothing, so it may use them.
pub(crate) fn is_replaced_by_workspace(
    ctx: &Context,
    directory: &Path,
    has_workspace: bool,
    real_paths: &mut PathResolver,
) -> bool {
    let home = real_paths.resolve(&absolute(&ctx.paths.home));
    home.starts_with(directory) && has_workspace
}

/// True if a flag or the config chooses the working directory.
fn is_directory_chosen(grants: &Grants, settings: &Settings) -> bool {
    grants.directory.is_some()
        || settings.restrict_to_workspace
        || settings.directory == DefaultDirectory::Workspace
}

/// A notice that the workspace replaces the current directory, which is the home directory, one of its parents, or deleted.
/// The notice is given if `--write` was meant for the current directory, or if `is_requested`.
pub(crate) fn replaced_directory_notice(
    ctx: &Context,
    grants: &Grants,
    settings: &Settings,
    policy: &Policy,
    is_requested: bool,
) -> Option<String> {
    let directory = &policy.file_scope.directory;
    let writes_directory = grants.write.iter().any(|path| path == Path::new("."));
    if !(writes_directory || is_requested) || is_directory_chosen(grants, settings) {
        return None;
    }
    let cause = match std::env::current_dir() {
        Ok(current) if current == *directory => return None,
        Ok(current) if current == ctx.paths.home => {
            "the home directory is used as working directory only with `-C .`".to_owned()
        }
        Ok(current) => format!(
            "`{}` contains the home directory, and is used as working directory only with `-C .`",
            current.display()
        ),
        Err(error) => format!("the current directory cannot be found: {error}"),
    };
    let effect = if writes_directory { "`--write` applies to" } else { "working in" };
    let directory_name = ctx.paths.display(directory);
    let text = format!("{effect} `{directory_name}`: {cause}");
    ctx.single_notices.is_new(&text).then_some(text)
}

/// Fails if a flag names a relative path where the workspace replaces the current directory: tools would look for it in the workspace.
fn refuse_paths_of_replaced_directory(
    ctx: &Context,
    grants: &Grants,
    settings: &Settings,
    directory: &Path,
) -> Result<()> {
    let mut paths = grants.read.iter().chain(&grants.write);
    let relative = paths.find(|path| path.is_relative() && path.as_path() != Path::new("."));
    match (relative, std::env::current_dir()) {
        (Some(path), Ok(current))
            if !is_directory_chosen(grants, settings) && current != directory =>
        {
            let cause = format!(
                "`{}` is relative, and the tools work in `{}`, not in the current directory",
                path.display(),
                ctx.paths.display(directory)
            );
            Err(fail(Exit::Usage, cause)
                .with_hint(format!("`{}`", ctx.paths.display(&current.join(path)))))
        }
        _ => Ok(()),
    }
}

fn resolve_existing(path: &Path, hint: Option<&str>) -> Result<PathBuf> {
    resolve_if_exists(path)?.ok_or_else(|| {
        let message = format!("no such file or directory: `{}`", path.display());
        fail_with_parts(Exit::NoInput, message, hint.map(HintPart::from))
    })
}

/// The real path of `path`; `None` if it does not exist.
fn resolve_if_exists(path: &Path) -> Result<Option<PathBuf>> {
    match std::fs::canonicalize(path) {
        Ok(path) => Ok(Some(path)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| format!("resolve `{}`", path.display())),
    }
}

/// Makes `path` absolute from the current directory. If the current directory was deleted, `path` is returned
/// unchanged.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
