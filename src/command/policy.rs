//! `nanobot policy`: what a run may do, why, and whether it holds.

use crate::World;
use crate::cli::{Grants, Policy as Command, PolicyExplain};
use crate::command::agent::places::{self, Scene};
use crate::command::tool::scene;
use crate::error::{Exit, fail_hint};
use crate::policy::reach::Access;
use crate::policy::{Decision, Policy, Sandbox};
use crate::settings::{Config, Overrides, Settings};
use crate::sys::sandbox::{self, trial, trial::Trial};
use crate::tool::files::Files;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub fn run(world: &World, command: &Command) -> Result<Exit> {
    match command {
        Command::Explain(arguments) => explain(world, arguments),
        Command::Test { grants, json } => test(world, grants, *json),
    }
}

fn explain(world: &World, arguments: &PolicyExplain) -> Result<Exit> {
    let PolicyExplain {
        tool,
        arguments,
        grants,
        json,
    } = arguments;
    let Scene {
        toolbox, policy, ..
    } = scene(world, grants, false, true)?;
    let Some(tool) = tool else {
        return all(world, &policy, *json);
    };
    let Some(found) = toolbox.find(tool) else {
        let names: Vec<&str> = toolbox
            .specs()
            .iter()
            .map(|spec| spec.name.as_str())
            .collect();
        let cause = format!("a run with these flags has no tool `{tool}`");
        return Err(fail_hint(Exit::Refused, cause, names.join(", ")));
    };
    let call = reading(arguments, &found.spec().parameters);
    let mut decision = policy.decide(tool, &call);
    // What is decided about a place is the places' word.
    if let (Decision::Allow(rule), Some((path, access))) = (&decision, path_of(tool, &call)) {
        decision = match policy.reach.decide(path, access) {
            Ok(spot) => Decision::Allow(format!(
                "{rule}; it lies in `{}`",
                policy.reach.roots[spot.root].path.display()
            )),
            Err(refusal) => Decision::Deny(refusal),
        };
    }
    let (word, why, grant) = match decision {
        Decision::Allow(rule) => ("allowed", rule, None),
        Decision::Ask(refusal) => ("refused", refusal.words, refusal.grant),
        Decision::Deny(refusal) => ("refused", refusal.words, refusal.grant),
    };
    let line = match json {
        true => {
            json!({ "tool": tool, "arguments": call, "decision": word, "why": why, "grant": grant })
                .to_string()
        }
        false => match &grant {
            Some(flag) => format!("{word}: {why}\ngrant: {flag}"),
            None => format!("{word}: {why}"),
        },
    };
    world.terminal.print(&format!("{line}\n"))?;
    Ok(if word == "allowed" {
        Exit::Answered
    } else {
        Exit::Refused
    })
}

/// The arguments as JSON; or as the one text that the tool needs.
fn reading(text: &str, schema: &Value) -> Value {
    if let Ok(call @ Value::Object(_)) = serde_json::from_str(text) {
        return call;
    }
    let needed = schema["required"][0].as_str();
    let known = ["path", "command", "url", "query"];
    let has = |name: &&&str| schema["properties"].get(**name).is_some();
    let name = needed.or(known.iter().find(has).copied()).unwrap_or("text");
    json!({ name: text })
}

fn path_of<'a>(tool: &str, call: &'a Value) -> Option<(&'a str, Access)> {
    let access = match tool {
        "write_file" | "edit_file" | "delete_file" => Access::Write,
        "read_file" | "list_dir" | "glob" | "grep" => Access::Read,
        _ => return None,
    };
    Some((call["path"].as_str().unwrap_or("."), access))
}

fn all(world: &World, policy: &Policy, as_json: bool) -> Result<Exit> {
    let lines = policy.for_people(&|path: &Path| world.paths.display(path));
    if as_json {
        let lines: Vec<Value> = lines
            .iter()
            .map(|(name, value)| json!({ "what": name, "value": value }))
            .collect();
        world.terminal.print(&format!("{}\n", json!(lines)))?;
        return Ok(Exit::Answered);
    }
    for (name, value) in lines {
        world.terminal.print(&format!("{name:<11} {value}\n"))?;
    }
    Ok(Exit::Answered)
}

/// Places that no command may read, where they are there and the user has not named them.
const CLOSED: &[&str] = &[".ssh", ".aws", ".gnupg", ".netrc", ".git-credentials"];

fn test(world: &World, grants: &Grants, as_json: bool) -> Result<Exit> {
    let Scene { policy, .. } = scene(world, grants, false, false)?;
    if policy.sandbox == Sandbox::Off {
        return Err(fail_hint(
            Exit::Failed,
            "nothing to try: with these flags commands are not contained",
            "leave `--sandbox off` and `--profile full` out",
        ));
    }
    if let Err(lack) = sandbox::available() {
        return Err(fail_hint(
            Exit::NoSandbox,
            format!("here is no sandbox: {lack}"),
            "commands are refused, unless `--sandbox off` says otherwise",
        ));
    }
    let config = Config::load(&world.paths.config)?;
    let settings = Settings::resolve(&config, &world.env, &Overrides::default(), &world.paths)?;
    let files = Files::new(policy.reach.clone()).context("open the places of the run")?;
    let exec = places::exec(world, &settings, &policy, &Arc::new(files));
    let fence = exec.fence().context("set the sandbox up")?;
    let home = &policy.reach.home;
    let may_write = |path: &PathBuf| fence.writes.iter().any(|place| path.starts_with(place));
    let outside: Vec<PathBuf> = [
        home,
        &world.paths.root,
        &policy.reach.directory,
        &policy.reach.workspace,
    ]
    .into_iter()
    .filter(|path| path.is_dir() && !may_write(path))
    .cloned()
    .collect();
    let named = |path: &PathBuf| {
        policy
            .reach
            .roots
            .iter()
            .any(|root| root.path.starts_with(path))
    };
    let secrets = CLOSED.iter().map(|name| home.join(name));
    let own = policy.reach.hidden.iter().cloned();
    let closed: Vec<PathBuf> = own
        .chain(secrets)
        .chain([PathBuf::from("/etc/shadow")])
        .filter(|path| path.exists() && !named(path))
        .collect();
    let trials = trial::run(&fence, &outside, &closed).context("try the sandbox")?;
    let mut exit = Exit::Answered;
    for Trial { what, held, found } in trials {
        if !held {
            exit = Exit::Failed;
        }
        let line = match as_json {
            true => json!({ "what": what, "held": held, "found": found }).to_string(),
            false => format!(
                "{:6}  a command cannot {what}: {found}",
                if held { "ok" } else { "FAILED" }
            ),
        };
        world.terminal.print(&format!("{line}\n"))?;
    }
    Ok(exit)
}
