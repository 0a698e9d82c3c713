//! `mcp check`: contacts servers, all at once.

use super::list::transport_name;
use crate::cli::mcp::McpAddArgs;
use crate::ops::context::report_error;
use crate::ops::mcp_servers::{
    McpContext, ServerTest, allow_rule, query_servers, query_under_cron,
};
use anyhow::Result;
use nanobot_base::error::{Exit, exit_for, hint_for};
use nanobot_config::settings::Config;
use nanobot_config::settings::servers::{McpServer, ServerTransport};
use nanobot_mcp::catalog::ServerView;
use nanobot_mcp::client::unmakeable_files;
use nanobot_mcp::protocol::INSTRUCTIONS;
use nanobot_mcp::sanitize;
use nanobot_os::signal;
use serde_json::{Value, json};

/// Runs `mcp check`.
pub(super) fn run(mcp: &McpContext<'_>, names: &[String], as_json: bool) -> Result<Exit> {
    let servers: Vec<&McpServer> = if names.is_empty() {
        mcp.servers.iter().filter(|server| !server.is_disabled).collect()
    } else {
        names.iter().map(|name| mcp.server(name)).collect::<Result<_>>()?
    };
    if servers.is_empty() {
        mcp.ctx.notice("there are no MCP servers to test");
    }
    announce(mcp, &servers);
    let mut worst = Exit::Answered;
    let mut print_result = Ok(());
    let mut working = Vec::new();
    query_servers(mcp, &servers, &mut |test| {
        worst = more_severe(worst, exit_status(&test));
        if test.result.is_ok() {
            working.push(test.server);
        }
        if print_result.is_ok() {
            print_result = print_test(mcp, &test, as_json);
        }
    });
    print_result?;
    signal::check()?;
    for server in &servers {
        let files = unmakeable_files(server, &mcp.ctx.paths).into_iter();
        for file in files.filter(|file| !file.exists) {
            print_warning(mcp, &server.name, "sandbox", &file.explanation, as_json)?;
        }
    }
    for (name, error) in query_under_cron(mcp, &working)? {
        print_warning(mcp, &name, "cron", &error, as_json)?;
    }
    Ok(worst)
}

/// Prints why a server that answers will not work in `environment`.
fn print_warning(
    mcp: &McpContext<'_>,
    name: &str,
    environment: &str,
    error: &str,
    as_json: bool,
) -> Result<()> {
    let terminal = mcp.ctx.terminal;
    if as_json {
        let line = json!({ "name": name, "ok": false, "environment": environment, "error": error });
        return terminal.print_json(&line);
    }
    terminal.print(&format!("warn  {name}: {error}\n"))
}

/// Removes what [`add`](super::add) wrote to the config.
fn remove_new_entry(config: &mut Config, arguments: &McpAddArgs) -> Result<bool> {
    if arguments.allow {
        let rule = allow_rule(&arguments.name);
        let rules = config.get_path("tools.allow").and_then(Value::as_array).cloned();
        let others = rules.unwrap_or_default().into_iter().filter(|it| *it != rule).collect();
        config.set(&["tools", "allow"], &Value::Array(others))?;
    }
    config.unset(&["tools", "mcpServers", &arguments.name])
}

/// Contacts a server that was just added. A new program that does not answer is removed again. A remote server stays: it may need a login.
pub(super) fn test_added_server(mcp: &McpContext<'_>, arguments: &McpAddArgs) -> Result<Exit> {
    let name = arguments.name.as_str();
    let server = mcp.server(name)?;
    announce(mcp, &[server]);
    let mut tests = Vec::new();
    query_servers(mcp, &[server], &mut |test| tests.push(test));
    mcp.catalog.shut_down();
    let mut exit = Exit::Answered;
    for mut test in tests {
        let view = match test.result {
            Ok(ref mut view) => view,
            Err(error) => {
                let exit = report_error(&error, mcp.ctx.terminal);
                let is_program = matches!(server.transport, ServerTransport::Program { .. });
                mcp.ctx.notice(&if is_program && !arguments.force {
                    // Earlier data under this name stays: it may belong to a server of another config.
                    Config::change(&mcp.ctx.paths, |config| remove_new_entry(config, arguments))?;
                    if arguments.allow {
                        mcp.ctx.notice(&format!("removed the rule `{}` too", allow_rule(name)));
                    }
                    format!("`{name}` was not added: `--untested` adds it without a test")
                } else {
                    format!("`{name}` was added to the config anyway: add it again with `--force`, or `nanobot mcp remove {name}`")
                });
                return Ok(exit);
            }
        };
        // Adding a server accepts its tools, except those that have changed since an earlier version of them was stored.
        let is_unchanged =
            |name: &&String| !view.changed.iter().any(|change| change.name == **name);
        let accepted: Vec<String> = view.unaccepted.iter().filter(is_unchanged).cloned().collect();
        mcp.catalog.accept(name, Some(&accepted))?;
        view.unaccepted.retain(|name| !accepted.contains(name));
        print_test(mcp, &test, false)?;
        if accepted.iter().any(|name| name == INSTRUCTIONS) {
            print_instructions(mcp, &test)?;
        }
        exit = exit_status(&test);
    }
    Ok(exit)
}

/// Prints the instructions of a server, which were accepted with it and which the user has not seen yet.
fn print_instructions(mcp: &McpContext<'_>, test: &ServerTest<'_>) -> Result<()> {
    let Ok(ServerView { features, .. }) = &test.result else {
        return Ok(());
    };
    let text = sanitize::clean(features.instructions.as_deref().unwrap_or_default());
    let lines: String = text.trim().lines().map(|line| format!("      > {line}\n")).collect();
    let name = &test.server.name;
    mcp.ctx.terminal.print(&format!(
        "      its instructions, which are part of the prompt from now on:\n{lines}      try: `nanobot mcp remove {name}` if they are not what you expect\n"
    ))
}

/// Prints on a terminal that the servers are being contacted, since that takes time.
fn announce(mcp: &McpContext<'_>, servers: &[&McpServer]) {
    if !mcp.ctx.terminal.stderr_is_tty {
        return;
    }
    match servers {
        [] => {}
        [server] => mcp.ctx.notice(&format!("contacting `{}` …", server.name)),
        servers => mcp.ctx.notice(&format!("contacting {} servers …", servers.len())),
    }
}

fn exit_status(test: &ServerTest<'_>) -> Exit {
    match &test.result {
        Err(error) => exit_for(error),
        Ok(view) if !view.changed.is_empty() => Exit::Refused,
        Ok(_) => Exit::Answered,
    }
}

/// The more severe of two exit statuses: a server that was not contacted at all counts before a failure, and a failure
/// before tools that have changed.
fn more_severe(exit: Exit, other_exit: Exit) -> Exit {
    let severity = |exit: Exit| match exit {
        Exit::Answered => 0,
        Exit::Refused => 1,
        Exit::Unavailable | Exit::Failed => 2,
        Exit::Config => 3,
        _ => 4,
    };
    if severity(other_exit) > severity(exit) { other_exit } else { exit }
}

fn print_test(mcp: &McpContext<'_>, test: &ServerTest<'_>, as_json: bool) -> Result<()> {
    let terminal = mcp.ctx.terminal;
    if as_json {
        return terminal.print_json(&test_json(test));
    }
    let name = &test.server.name;
    let millis = test.duration.as_millis();
    let mut line = match &test.result {
        Ok(ServerView { features, .. }) => {
            let status = if test.changed().is_empty() { "ok" } else { "warn" };
            let count = |count: usize, noun: &str| match count {
                1 => format!("1 {noun}"),
                count => format!("{count} {noun}s"),
            };
            format!(
                "{status:<4}  {name}: {millis} ms, {}, MCP {} by {}, {}, {}, {}",
                sanitize::single_line(&features.server, 80),
                sanitize::single_line(&features.protocol, 20),
                transport_name(test.server),
                count(features.tools.len(), "tool"),
                count(features.resources.len() + features.templates.len(), "resource"),
                count(features.prompts.len(), "prompt"),
            )
        }
        Err(error) => {
            let hint =
                hint_for(error).map_or_else(String::new, |hint| format!("\n      try: {hint}"));
            // The row begins with the server's name already.
            let cause = format!("{error:#}");
            let cause = cause.strip_prefix(&format!("MCP server `{name}`")).unwrap_or(&cause);
            let cause = cause.trim_start_matches([':', ' ']);
            format!("no    {name}: {cause}{hint}")
        }
    };
    let changed = test.changed();
    if !changed.is_empty() {
        let names: Vec<String> =
            changed.iter().map(|name| sanitize::single_line(name, 80)).collect();
        line.push_str(&format!(
            "\n      changed: {}\n      try: {}",
            names.join(", "),
            test.server.accept_command()
        ));
    }
    let unaccepted = test.unaccepted();
    if !unaccepted.is_empty() {
        line.push_str(&format!(
            "\nwarn  {name}: {} not accepted yet, and untrusted content until then\n      try: {}",
            unaccepted.len(),
            test.server.accept_command()
        ));
    }
    terminal.print(&format!("{line}\n"))
}

fn test_json(test: &ServerTest<'_>) -> Value {
    let ms = u64::try_from(test.duration.as_millis()).unwrap_or(u64::MAX);
    let changed = test.changed();
    let mut line = json!({
        "name": test.server.name, "ok": test.result.is_ok() && changed.is_empty(), "ms": ms,
        "by": transport_name(test.server), "changed": changed, "unaccepted": test.unaccepted(), "error": null,
    });
    match &test.result {
        Err(error) => line["error"] = json!(format!("{error:#}")),
        Ok(ServerView { features, .. }) => {
            line["protocol"] = json!(features.protocol);
            line["server"] = json!(features.server);
            let names: Vec<&str> = features.tools.iter().map(|tool| tool.name.as_str()).collect();
            line["tools"] = json!(names);
            line["resources"] = json!(features.resources.len() + features.templates.len());
            line["prompts"] = json!(features.prompts.len());
        }
    }
    line
}
