//! The permissions granted to a job: as flags, and as stored with the job.

use crate::ops::permissions;
use crate::options::grants::Grants;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, fail};
use nanobot_base::shell_quote::quote;
use nanobot_cron::job::JobOptions;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The permission flags stored with a job.
pub(crate) fn stored_grants(options: &JobOptions) -> Result<Grants> {
    match &options.grants {
        Value::Null => Ok(Grants::default()),
        grants => serde_json::from_value(grants.clone()).map_err(|error| {
            fail(Exit::Config, format!("cannot parse the job's permissions: {error}"))
        }),
    }
}

/// True if any of these flags was given.
pub(crate) fn has_any_flag(grants: &Grants) -> Result<bool> {
    let to_json = |grants: &Grants| serde_json::to_value(grants).context("serialize the flags");
    Ok(to_json(grants)? != to_json(&Grants::default())?)
}

/// `grants` as stored: with absolute paths, since cron starts jobs in another directory, and one list of denied tools.
pub(crate) fn to_stored(grants: &Grants) -> Result<Value> {
    // `.` is kept: it is the working directory of the job.
    let to_absolute = |path: &PathBuf| {
        if path == Path::new(".") { path.clone() } else { permissions::absolute(path) }
    };
    let mut grants = grants.clone();
    grants.write = grants.write.iter().map(to_absolute).collect();
    grants.read = grants.read.iter().map(|path| permissions::absolute(path)).collect();
    grants.deny.append(&mut grants.disabled_tools);
    grants.directory = grants.directory.map(|path| permissions::absolute(&path));
    serde_json::to_value(&grants).map_err(|_| {
        fail(Exit::Usage, "a path that is not valid UTF-8 cannot be stored with a job")
    })
}

/// `grants` as given to a job that had `old_grants`. Its directory, which is no permission, and its denials stay unless they are given
/// again: a change never widens unseen what a job may do. An empty denial removes the earlier ones.
pub(crate) fn keep_limits(grants: &Grants, old_grants: &Grants) -> Grants {
    let mut grants = grants.clone();
    if grants.directory.is_none() {
        grants.directory.clone_from(&old_grants.directory);
    }
    if grants.deny.is_empty() && grants.disabled_tools.is_empty() {
        grants.deny.clone_from(&old_grants.deny);
        grants.disabled_tools.clone_from(&old_grants.disabled_tools);
    }
    grants.deny.retain(|rule| !rule.trim().is_empty());
    grants
}

/// The flags that grant `grants`.
pub(crate) fn as_flags(grants: &Grants) -> String {
    let Grants {
        profile,
        write,
        read,
        net,
        allow,
        deny,
        tools,
        disabled_tools,
        no_tools,
        directory,
        sandbox,
        private_copy: _,
    } = grants;
    let mut flags = Vec::new();
    // An empty value is a flag without a value.
    let mut add = |flag: &str, value: &str| match value {
        "" => flags.push(flag.to_owned()),
        value => flags.push(format!("{flag}={}", quote(value))),
    };
    if let Some(name) = profile {
        add("--profile", name);
    }
    if let Some(path) = directory {
        add("--directory", &path.display().to_string());
    }
    for path in write {
        if path == Path::new(".") {
            add("--write", "");
        } else {
            add("--write", &path.display().to_string());
        }
    }
    read.iter().for_each(|path| add("--read", &path.display().to_string()));
    if let Some(hosts) = net {
        add("--net", &hosts.join(","));
    }
    allow.iter().for_each(|rule| add("--allow", rule));
    deny.iter().chain(disabled_tools).for_each(|rule| add("--deny", rule));
    if let Some(names) = tools {
        add("--tools", &names.join(","));
    }
    if *no_tools {
        add("--no-tools", "");
    }
    if let Some(sandbox) = sandbox
        && let Value::String(name) = json!(sandbox)
    {
        add("--sandbox", &name);
    }
    flags.join(" ")
}
