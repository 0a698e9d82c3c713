//! `nanobot tool`: lists and runs tools by hand, under the same policy as a turn.

mod program;
mod server_call;

use crate::cli::policy::{ToolCommand, ToolRunArgs};
use crate::ops::context::Context;
use crate::ops::jobs::scheduler::StoreScheduler;
use crate::ops::mcp_servers::McpContext;
use crate::ops::server_errors::unknown_server_error;
use crate::ops::subagents::pool;
use crate::ops::turn_setup::programs;
use crate::ops::turn_setup::{self, TurnSetup};
use crate::options::grants::Grants;
use anyhow::{Context as _, Error, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nanobot_agent::report::columns::hanging_indent;
use nanobot_base::error::{Exit, Stop, WithHint as _, fail, fail_with_parts};
use nanobot_base::event::ToolOutcome;
use nanobot_base::message::{Document, Image, MessagePart, ToolCall, ToolSpec};
use nanobot_base::shell_quote::quote;
use nanobot_config::settings::keys::nearest;
use nanobot_os::input::read_stdin_value;
use nanobot_os::signal;
use nanobot_os::terminal::{sanitize, wrap_words};
use nanobot_tool::CompletedCall;
use nanobot_tool::ask_user;
use nanobot_tool::cron::JobScheduler;
use nanobot_tool::sessions;
use serde_json::{Value, json};
use std::sync::Arc;

/// Runs `nanobot tool`.
pub fn run(ctx: &Context, command: &ToolCommand) -> Result<Exit> {
    match command {
        ToolCommand::List { grants, json } => {
            list_tools(ctx, grants, *json).map(|()| Exit::Answered)
        }
        ToolCommand::Show { name, grants, json } => {
            show_tool(ctx, grants, name, *json).map(|()| Exit::Answered)
        }
        ToolCommand::New { name, description, language } => {
            program::create(ctx, name, description.as_deref(), *language)
        }
        ToolCommand::Check { programs, json } => program::check(ctx, programs, *json),
        ToolCommand::Run(arguments) => run_tool(ctx, arguments),
    }
}

/// Bytes kept of a tool's live output, to separate it from the message about it.
const LIVE_OUTPUT_LIMIT_BYTES: usize = 1 << 20;

/// The setup of a turn with these permissions and all tools of `nanobot agent`. A dry run creates nothing.
fn build_setup(
    ctx: &Context,
    grants: &Grants,
    offline: bool,
    is_dry_run: bool,
) -> Result<TurnSetup> {
    let scheduler: Arc<dyn JobScheduler> =
        Arc::new(StoreScheduler::new(ctx, &Arc::new(ctx.settings()?), None));
    let spawn = pool::tool_without_turn(ctx);
    turn_setup::build_without_turn(ctx, grants, offline, is_dry_run, vec![spawn], Some(scheduler))
}

/// Lists the tools of a run with these permissions, and apart from them those that only a conversation with a person has.
fn list_tools(ctx: &Context, grants: &Grants, as_json: bool) -> Result<()> {
    let setup = build_setup(ctx, grants, false, true)?;
    if as_json {
        return ctx.terminal.print_json_lines(setup.toolbox.specs().iter().map(spec_json));
    }
    let interactive_specs = interactive_specs(&setup, grants);
    print_specs(ctx, setup.toolbox.specs())?;
    if !interactive_specs.is_empty() {
        ctx.terminal.print("\nIn the REPL and in editors also:\n")?;
        print_specs(ctx, &interactive_specs)?;
    }
    Ok(())
}

/// Lists the tools of a turn of the REPL with these permissions.
pub(super) fn list_repl_tools(ctx: &Context, grants: &Grants) -> Result<()> {
    let setup = build_setup(ctx, grants, false, true)?;
    print_specs(ctx, &[setup.toolbox.specs(), &interactive_specs(&setup, grants)].concat())
}

/// The tools that a run has only if it can ask a person.
fn interactive_specs(setup: &TurnSetup, grants: &Grants) -> Vec<ToolSpec> {
    let mut specs = vec![sessions::spec(), ask_user::spec()];
    specs.retain(|ToolSpec { name, .. }| {
        setup.policy.is_offered(name)
            && !grants.no_tools
            && (grants.tools.is_none() || grants.lists_tool(name))
            && setup.toolbox.find(name).is_none()
    });
    specs
}

fn print_specs(ctx: &Context, specs: &[ToolSpec]) -> Result<()> {
    let width = specs.iter().map(|spec| spec.name.len()).max().unwrap_or(0);
    for spec in specs {
        let head = format!("{:width$}  ", spec.name);
        let line = hanging_indent(&head, &spec.description, ctx.terminal.stdout_width());
        ctx.terminal.print(&format!("{line}\n"))?;
    }
    Ok(())
}

/// A tool as JSON, with the schema of its arguments.
fn spec_json(spec: &ToolSpec) -> Value {
    json!({ "name": spec.name, "description": spec.description, "parameters": *spec.parameters })
}

/// Prints one tool of a run with these permissions.
fn show_tool(ctx: &Context, grants: &Grants, name: &str, as_json: bool) -> Result<()> {
    let setup = build_setup(ctx, grants, false, true)?;
    let specs = [setup.toolbox.specs(), &interactive_specs(&setup, grants)].concat();
    let Some(spec) = specs.iter().find(|spec| spec.name == name) else {
        let cause = format!("there is no tool `{name}` with these permissions");
        let hint = match nearest(name, specs.iter().map(|spec| &*spec.name)) {
            Some(similar) => format!("nanobot tool show {similar}"),
            None => "nanobot tool list".into(),
        };
        return Err(fail(Exit::Usage, cause).with_hint(hint));
    };
    if as_json {
        return ctx.terminal.print_json(&spec_json(spec));
    }
    let text = wrap_words(
        &sanitize(&spec.description),
        ctx.terminal.stdout_width().unwrap_or(usize::MAX),
        0,
    );
    ctx.terminal.print(&format!(
        "{}\n\n{text}\n\n{}\n",
        sanitize(&spec.name),
        sanitize(&format!("{:#}", *spec.parameters))
    ))
}

/// Parses the arguments of a call, which `schema` describes. `-` reads them from standard input.
fn parse_arguments(name: &str, arguments: &str, schema: &Value) -> Result<Value> {
    let text = match arguments {
        "-" => read_stdin_value()?,
        text => text.to_owned(),
    };
    serde_json::from_str(&text).ok().filter(Value::is_object).ok_or_else(|| {
        let example = example_arguments(schema, text.trim()).to_string();
        let hint = format!("`nanobot tool run {name} {}`", quote(&example));
        fail(Exit::Usage, "the arguments are not a JSON object").with_hint(hint)
    })
}

/// An example of the arguments that `schema` requires. The value of the first is `text`, which is not JSON.
fn example_arguments(schema: &Value, text: &str) -> Value {
    let required = schema["required"].as_array().into_iter().flatten();
    let names = required.filter_map(Value::as_str);
    let value = |(index, name): (usize, &str)| {
        let value = match schema["properties"][name]["type"].as_str() {
            Some("string") if index == 0 && !text.starts_with(['{', '[', '"']) => {
                // The user may have typed NAME=VALUE.
                let value = text.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
                json!(value.unwrap_or(text))
            }
            Some("integer" | "number") => json!(1),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            Some("object") => json!({}),
            _ => json!("…"),
        };
        (name.to_owned(), value)
    };
    names.enumerate().map(value).collect()
}

fn result_text(parts: &[MessagePart]) -> String {
    let mut text = String::new();
    for part in parts {
        match part {
            MessagePart::Text(part) => text.push_str(part),
            _ => text.push_str("[an image or a document, which a model would see]"),
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    text.trim_end().to_owned()
}

/// The result as JSON, in the form of a server's.
fn result_json(completed_call: &CompletedCall) -> Value {
    let part_json = |part: &MessagePart| match part {
        MessagePart::Text(text) => json!({ "type": "text", "text": text }),
        MessagePart::Image(Image { media_type, bytes, .. }) => {
            json!({ "type": "image", "kind": media_type, "base64": STANDARD.encode(bytes) })
        }
        MessagePart::Document(Document { media_type, bytes, .. }) => {
            json!({ "type": "document", "kind": media_type, "base64": STANDARD.encode(bytes) })
        }
    };
    let is_error = completed_call.outcome == ToolOutcome::Failed || completed_call.command_failed;
    let content: Vec<Value> = completed_call.result.parts.iter().map(part_json).collect();
    json!({ "is_error": is_error, "content": content, "structured": null })
}

/// Runs `nanobot tool run`. Signals and `--timeout` stop the command.
fn run_tool(ctx: &Context, arguments: &ToolRunArgs) -> Result<Exit> {
    signal::install(arguments.timeout).context("wait for signals")?;
    let (result, callee) = match server_tool(ctx, arguments)? {
        Some(tool) => (server_call::run(&McpContext::open(ctx)?, arguments, tool), "server"),
        None => (call_tool(ctx, arguments), "tool"),
    };
    result.map_err(|error| {
        // The command is ending. Waits have to work again for a moment, so that the error can be printed.
        signal::begin_shutdown_if_stopped();
        match error.downcast_ref::<Stop>() {
            Some(Stop(Exit::Timeout)) => {
                let cause = format!("timed out before the {callee} answered");
                fail(Exit::Timeout, cause).with_hint("a longer `--timeout`")
            }
            _ => error,
        }
    })
}

/// The tool of a server, if the arguments begin with a server.
fn server_tool<'a>(ctx: &Context, run_args: &'a ToolRunArgs) -> Result<Option<&'a str>> {
    let ToolRunArgs { name, tool: Some(tool), arguments, grants, offline, .. } = run_args else {
        return Ok(None);
    };
    let is_server = |name: &str| {
        ctx.settings().is_ok_and(|settings| settings.servers.iter().any(|one| one.name == name))
    };
    if run_args.begins_with_tool() || arguments.is_none() && !is_server(name) {
        return Ok(None);
    }
    if *offline || *grants != Grants::default() {
        let cause =
            "a call of a server is yours: its tool is not under a policy that flags could change";
        let hint = "the tool's name in `nanobot tool list`, without the server's: the policy applies to it";
        return Err(fail(Exit::Usage, cause).with_hint(hint));
    }
    Ok(Some(tool))
}

/// The error for a tool that does not exist, if one with a similar name does.
fn misspelt_tool_error(setup: &TurnSetup, name: &str) -> Option<Error> {
    let names = setup.toolbox.specs().iter().map(|spec| &*spec.name);
    let similar = nearest(name, names).filter(|similar| *similar != name)?;
    let cause = format!("there is no tool `{name}`");
    Some(fail(Exit::Usage, cause).with_hint(format!("`nanobot tool run {similar}`")))
}

fn call_tool(ctx: &Context, run_args: &ToolRunArgs) -> Result<Exit> {
    let ToolRunArgs { name, tool, json, grants, offline, .. } = run_args;
    let setup = build_setup(ctx, grants, *offline, false)?;
    let mut specs = setup.toolbox.specs().iter();
    let spec = specs.find(|spec| programs::is_tool_name(&spec.name, name));
    if spec.is_none() && !run_args.begins_with_tool() {
        return Err(match misspelt_tool_error(&setup, name) {
            Some(error) => error,
            None => unknown_server_error(&ctx.settings()?.servers, name),
        });
    }
    let name = spec.map_or(name.as_str(), |spec| &spec.name);
    let arguments = tool.as_deref().unwrap_or("{}");
    let schema = spec.map(|spec| &*spec.parameters);
    let arguments = parse_arguments(name, arguments, schema.unwrap_or(&Value::Null))?;
    let call = ToolCall { id: "by-hand".into(), name: name.to_owned(), arguments };
    let mut live_output = String::new();
    let (results, emitted) =
        setup.toolbox.run(std::slice::from_ref(&call), false, &mut |_, text| {
            if live_output.len() + text.len() <= LIVE_OUTPUT_LIMIT_BYTES {
                live_output.push_str(text);
            }
            Ok(())
        });
    let hooks = setup.shared.hooks.iter();
    hooks.flat_map(|hooks| hooks.take_notices()).for_each(|notice| ctx.notice(&notice));
    emitted?;
    signal::check()?;
    let executed = results.first().expect("one call has one result");
    let text = result_text(&executed.result.parts);
    match executed.outcome {
        ToolOutcome::Ok | ToolOutcome::Failed if *json => {
            let result = result_json(executed);
            ctx.terminal.print_json(&result)?;
            Ok(if result["is_error"] == true { Exit::Failed } else { Exit::Answered })
        }
        ToolOutcome::Ok => {
            ctx.terminal.print(&format!("{text}\n"))?;
            Ok(if executed.command_failed { Exit::Failed } else { Exit::Answered })
        }
        ToolOutcome::Failed => {
            let (output, cause) = split_output(&text, &live_output);
            ctx.terminal.print(&output)?;
            Err(fail(Exit::Failed, cause))
        }
        ToolOutcome::Skipped => {
            let error = misspelt_tool_error(&setup, name);
            Err(error.unwrap_or_else(|| fail(Exit::Usage, text)))
        }
        ToolOutcome::Denied => {
            let Some(denial) = &executed.denial else {
                return Err(Stop(Exit::Refused).into());
            };
            let (output, cause) = split_output(&denial.message, &live_output);
            ctx.terminal.print(&output)?;
            let flag = denial.suggested_flag.iter().map(|flag| format!("`{flag}`").into());
            Err(fail_with_parts(Exit::Refused, cause, flag))
        }
    }
}

/// Splits the text of a failure into the output of the tool, which it begins with, and the message about it. If the output in
/// the text was cut or redacted, the last line is the message.
fn split_output(failure: &str, live_output: &str) -> (String, String) {
    let live_output = live_output.trim();
    let (output, cause) = match failure.strip_prefix(live_output) {
        Some(rest) if !live_output.is_empty() => (live_output, rest),
        None => failure.rsplit_once('\n').unwrap_or(("", failure)),
        Some(rest) => ("", rest.strip_prefix("(no output)").unwrap_or(rest)),
    };
    let output = match output {
        "" => String::new(),
        output => format!("{output}\n"),
    };
    (output, cause.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::split_output;

    #[test]
    fn a_failure_is_split_into_output_and_message() {
        let check = |failure: &str, live_output: &str, output: &str, cause: &str| {
            let expect = (output.to_owned(), cause.to_owned());
            assert_eq!(split_output(failure, live_output), expect, "{failure:?} {live_output:?}");
        };
        check("there is no `x`", "", "", "there is no `x`");
        check("one\ntwo", "", "", "one\ntwo");
        check("(no output)\nTimed out", "", "", "Timed out");
        check("on\nTimed out\n(hint)", "on\n", "on\n", "Timed out\n(hint)");
        check("o\n[… left out …]\nn\nTimed out", "ooonnn", "o\n[… left out …]\nn\n", "Timed out");
    }
}
