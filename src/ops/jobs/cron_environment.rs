//! Differences between this environment and that of cron: variables, and the API keys in them. They are reported when a
//! job is created, because a job without its key would fail unattended.

use crate::ops::context::Context;
use crate::ops::jobs::resolved_job::{ResolvedJob, resolve};
use crate::ops::model::{self, Endpoint};
use crate::ops::permissions;
use anyhow::Result;
use nanobot_config::settings::keys::{ConfigKey, config_key};
use nanobot_config::settings::{Config, FlagOverrides, LayeredConfig, Settings};
use nanobot_cron::job::Job;
use nanobot_os::env::{self, Env};
use nanobot_os::log;
use nanobot_os::symlinks::PathResolver;
use std::path::{Path, PathBuf};

/// The variables that a crontab line passes on, in addition to those that cron sets.
const PASSED_VARIABLES: &[&str] = &["HOME", "LOGNAME", "PATH", env::HOME_DIR];
/// Variables that change a run, each group with the config key that has the same effect for jobs.
const RELEVANT_VARIABLES: &[(&[&str], &ConfigKey)] = &[
    (env::PROXY_VARIABLES, const { config_key("http.proxy") }),
    (env::NO_PROXY_VARIABLES, const { config_key("http.noProxy") }),
    (&["SSL_CERT_FILE", "SSL_CERT_DIR"], const { config_key("http.caFile") }),
    (&[env::FIRST_BYTE_TIMEOUT], const { config_key("http.firstByteTimeout") }),
    (&[env::STREAM_IDLE_TIMEOUT], const { config_key("http.streamIdleTimeout") }),
];

/// The environment of a job that cron starts.
pub(crate) fn simulated_env(env: &Env) -> Env {
    let passed = PASSED_VARIABLES.iter().filter_map(|name| Some((*name, env.get(name)?)));
    passed.chain([("SHELL", "/bin/sh")]).collect()
}

/// The real path of the workspace that cron finds without `--workspace`: the one that the config file at `path` names. `None` if
/// the config file names no usable workspace.
pub(crate) fn default_workspace(ctx: &Context, path: &Path) -> Option<PathBuf> {
    let config = Config::load(&ctx.paths.with_config(path)).ok()?;
    let env = simulated_env(&ctx.env);
    let settings = Settings::resolve(&config, &env, &FlagOverrides::default(), &ctx.paths);
    Some(real_path(&settings.ok()?.workspace))
}

/// The real path of a workspace, which need not exist yet.
pub(crate) fn real_path(workspace: &Path) -> PathBuf {
    PathResolver::default().resolve(&permissions::absolute(workspace))
}

/// A message about variables that change a run here and that cron does not have. A variable whose config key is set is
/// left out.
pub(crate) fn missing_variables(ctx: &Context) -> Option<String> {
    let config = Config::load(&ctx.paths).ok()?;
    let layers = LayeredConfig::new(&config, &ctx.env);
    let mut names: Vec<&str> = layers.variables().collect();
    let mut keys: Vec<&str> = Vec::new();
    // Cron has none of these variables, so only the config file matters.
    let cron_env = Env::default();
    let cron_layers = LayeredConfig::new(&config, &cron_env);
    let mut report = |variables: &[&'static str], key: &'static ConfigKey| {
        let is_missing = !matches!(cron_layers.read_key(key), Ok(Some(_)));
        if is_missing && !variables.is_empty() {
            names.extend(variables);
            keys.push(key.path);
        }
    };
    for (variables, key) in RELEVANT_VARIABLES {
        let is_set = |name: &&&str| ctx.env.get(name).is_some();
        let set: Vec<&str> = variables.iter().filter(is_set).copied().collect();
        report(&set, key);
    }
    if log::event_file(&ctx.env).is_some() {
        report(&[env::LOG], const { config_key("log.events") });
    }
    names.sort_unstable();
    names.dedup();
    let keys = if keys.is_empty() { String::new() } else { format!(": {}", keys.join(", ")) };
    (!names.is_empty()).then(|| {
        format!(
            "jobs will not have {} under cron: put settings for jobs in the config file (`nanobot config set`{keys})",
            names.join(", ")
        )
    })
}

/// A difference between the provider used here and the one used under cron.
pub(crate) struct EndpointMismatch {
    pub(crate) message: String,
    /// A command that stores the key where cron finds it.
    pub(crate) fix_command: Option<String>,
    /// True if a run under cron would fail.
    pub(crate) is_fatal: bool,
}

impl EndpointMismatch {
    pub(crate) fn describe(self) -> String {
        match self.fix_command {
            Some(command) => format!("{}: {command} stores it in the config file", self.message),
            None => self.message,
        }
    }
}

/// Compares the provider used here with that used under cron. `None` if they are the same.
pub(crate) fn endpoint_mismatch(
    ctx: &Context,
    job: &Job,
    resolved: &ResolvedJob,
) -> Option<EndpointMismatch> {
    let resolve_endpoint = |ctx: &Context, settings: &Settings| -> Result<Endpoint> {
        model::resolve_endpoint(ctx, settings, &settings.models[0], false, true)
    };
    let here = resolve_endpoint(ctx, &resolved.settings);
    let cron_ctx = Context { env: simulated_env(&ctx.env), ..ctx.clone() };
    let under_cron = resolve(&cron_ctx, &job.options.clone().unwrap_or_default())
        .and_then(|job| resolve_endpoint(&cron_ctx, &job.settings));
    let is_fatal = under_cron.is_err();
    let mut fix_command = None;
    let message = match (here, under_cron) {
        (Ok(here), Err(error)) => {
            let choice = &here.choice;
            Some(match choice.key_label.variable() {
                Some(variable) => {
                    let provider = &choice.provider;
                    fix_command = Some(format!(
                        "`printenv {variable} | nanobot config set providers.{provider}.apiKey -`"
                    ));
                    format!("the API key is only in ${variable}, which cron does not set")
                }
                None => format!("runs started by cron will fail: {error:#}"),
            })
        }
        (Ok(here), Ok(under_cron)) => {
            let (cron, shell) = (&under_cron.choice, &here.choice);
            let is_same = cron.provider == shell.provider && cron.model == shell.model;
            (!is_same).then(|| {
                format!(
                    "under cron the job uses `{}` of {}, not `{}` of {} as in this shell",
                    cron.model, cron.provider, shell.model, shell.provider,
                )
            })
        }
        (Err(_), Err(error)) => Some(format!("runs will fail: {error:#}")),
        (Err(_), Ok(_)) => None,
    };
    message.map(|message| EndpointMismatch { message, fix_command, is_fatal })
}
