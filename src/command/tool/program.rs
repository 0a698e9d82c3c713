//! `nanobot tool new` and `check`: programs of the user as tools.

use crate::cli::policy::ProgramLanguage;
use crate::ops::context::Context;
use crate::ops::permissions;
use crate::ops::turn_setup::programs;
use crate::options::grants::Grants;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::settings::Config;
use nanobot_os::durable_file;
use nanobot_os::terminal::sanitize;
use nanobot_tool::program::{MAX_NAME_CHARS, program_name, tool_name};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The key of the config that names the enabled programs.
const PROGRAMS_KEY: [&str; 2] = ["tools", "programs"];

const PYTHON_TEMPLATE: &str = r#"#!/usr/bin/env python3
import json, sys

SPEC = {
    "description": "DESCRIPTION",
    "parameters": {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "what it is about"}},
        "required": ["text"],
    },
}

if "--spec" in sys.argv[1:]:
    print(json.dumps(SPEC))
    sys.exit()
arguments = json.load(sys.stdin)
# What is printed is the result; another exit status than 0 is a failure, which the model sees too.
print(arguments["text"])
"#;

const SH_TEMPLATE: &str = r#"#!/bin/sh
if [ "$1" = --spec ]; then
    cat <<'SPEC'
{
    "description": "DESCRIPTION",
    "parameters": {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "what it is about"}},
        "required": ["text"]
    }
}
SPEC
    exit
fi
# The arguments are one line of JSON on standard input; jq can take them apart. What is printed is the result; another exit
# status than 0 is a failure, which the model sees too.
cat
"#;

/// Runs `nanobot tool new`.
pub(super) fn create(
    ctx: &Context,
    name: &str,
    description: Option<&str>,
    language: ProgramLanguage,
) -> Result<Exit> {
    let dir = ctx.paths.tools();
    let path = dir.join(name);
    let is_file_name = path.file_name().is_some_and(|file| file == name);
    let own_name = if is_file_name { program_name(&path) } else { None };
    let Some(own_name) = own_name else {
        let cause = format!("`{}` cannot be the name of a tool", sanitize(name));
        let hint = format!("a letter, then letters, digits, `-` and `_`, {MAX_NAME_CHARS} at most");
        return Err(fail(Exit::Usage, cause).with_hint(hint));
    };
    if path.symlink_metadata().is_ok() {
        let cause = format!("`{}` exists already", ctx.paths.display(&path));
        return Err(fail(Exit::Failed, cause).with_hint("another name, or edit that file"));
    }
    let template = match language {
        ProgramLanguage::Python => PYTHON_TEMPLATE,
        ProgramLanguage::Sh => SH_TEMPLATE,
    };
    let text =
        description.unwrap_or("what it does and when to use it; the model decides by this text");
    let text = template.replace("\"DESCRIPTION\"", &Value::from(text).to_string());
    durable_file::create_dir(&dir)?;
    durable_file::replace(&path, text.as_bytes())?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))
        .with_context(|| format!("make `{}` executable", path.display()))?;
    Config::change(&ctx.paths, |config| {
        let enabled = config.get_path(&PROGRAMS_KEY.join("."));
        let mut enabled: Vec<Value> =
            enabled.and_then(Value::as_array).cloned().unwrap_or_default();
        let covers = |entry: &Value| {
            let entry = entry.as_str().unwrap_or_default();
            entry == "*" || entry == name || entry == own_name
        };
        if !enabled.iter().any(covers) {
            enabled.push(json!(name));
        }
        config.set(&PROGRAMS_KEY, &Value::Array(enabled))
    })?;
    ctx.terminal.print(&format!("{}\n", path.display()))?;
    Ok(Exit::Answered)
}

/// Runs `nanobot tool check` for these names or paths, or for all programs of the user.
pub(super) fn check(ctx: &Context, names: &[PathBuf], as_json: bool) -> Result<Exit> {
    let settings = ctx.settings()?;
    let policy = permissions::policy_of(ctx, &Grants::default(), &settings)?;
    let paths = if names.is_empty() {
        programs::list(ctx)?
    } else {
        names.iter().map(|name| find(ctx, name)).collect()
    };
    if paths.is_empty() {
        ctx.explain_empty("there are no programs in ~/.nanobot/tools");
    }
    let mut exit = Exit::Answered;
    for path in paths {
        let result = programs::check_program(&path).and_then(|(name, real_path)| {
            let spec = programs::ask_spec(ctx, &settings, &policy, &real_path)?;
            programs::forget_timeout(ctx, &real_path)?;
            Ok((name, spec))
        });
        let is_enabled = programs::is_enabled(&settings.tools.programs, &path);
        if result.is_err() {
            exit = Exit::Failed;
        }
        if as_json {
            ctx.terminal.print_json(&match result {
                Ok((name, spec)) => json!({
                    "path": path.display().to_string(), "tool": tool_name(&name), "enabled": is_enabled, "description": spec.description,
                    "parameters": spec.parameters,
                }),
                Err(error) => json!({ "path": path.display().to_string(), "error": format!("{error:#}") }),
            })?;
            continue;
        }
        let line = match result {
            Ok((name, spec)) => {
                let first_line = spec.description.lines().next().unwrap_or_default();
                // A program elsewhere is not installed yet.
                let note = if is_enabled || path.parent() != Some(&ctx.paths.tools()) {
                    ""
                } else {
                    "\n      not enabled: `tools.programs` of the config does not name it"
                };
                format!("ok    {}: {}{note}", tool_name(&name), sanitize(first_line))
            }
            Err(error) => {
                let path = ctx.paths.display(&path);
                format!("fail  {path}: {}", sanitize(&format!("{error:#}")))
            }
        };
        ctx.terminal.print(&format!("{line}\n"))?;
    }
    Ok(exit)
}

/// The path that `name` denotes: itself, or a program in `~/.nanobot/tools`.
fn find(ctx: &Context, name: &Path) -> PathBuf {
    if name.components().count() != 1 {
        return name.to_owned();
    }
    let path = ctx.paths.tools().join(name);
    if path.is_file() {
        return path;
    }
    // A program may also be named without its extension.
    let names = [name.to_string_lossy().into_owned()];
    let programs = programs::list(ctx).unwrap_or_default();
    let program = programs.into_iter().find(|path| programs::is_enabled(&names, path));
    program.unwrap_or_else(|| name.to_owned())
}
