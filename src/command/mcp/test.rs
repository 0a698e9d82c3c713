//! `mcp test`: contacts servers, all at once.

use super::list::transport_name;

use crate::ops::mcp_servers::{McpContext, ServerTest, query_servers, query_under_cron};
use anyhow::Result;
use nanobot_base::error::{Exit, exit_for, hint_for};
use nanobot_config::settings::servers::McpServer;
use nanobot_mcp::catalog::ServerView;
use nanobot_mcp::client::unmakeable_files;
use nanobot_mcp::sanitize;
use nanobot_os::signal;
use serde_json::{Value, json};

/// Runs `mcp test`.
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
    let mut printed = Ok(());
    let mut working = Vec::new();
    query_servers(mcp, &servers, &mut |asked| {
        worst = more_severe(worst, exit_status(&asked));
        working.extend(asked.result.is_ok().then_some(asked.server));
        if printed.is_ok() {
            printed = print_test(mcp, &asked, as_json);
        }
    });
    printed?;
    signal::check()?;
    for server in &servers {
        let files = unmakeable_files(server, &mcp.ctx.paths).into_iter();
        for file in files.filter(|file| !file.exists) {
            print_warning(mcp, &server.name, "sandbox", &file.explanation, as_json)?;
        }
    }
    for (name, words) in query_under_cron(mcp, &working)? {
        print_warning(mcp, &name, "cron", &words, as_json)?;
    }
    Ok(worst)
}

/// Prints why a server that answers will not work in `environment`.
fn print_warning(
    mcp: &McpContext<'_>,
    name: &str,
    environment: &str,
    words: &str,
    as_json: bool,
) -> Result<()> {
    let terminal = mcp.ctx.terminal;
    if as_json {
        let line = json!({ "name": name, "ok": false, "environment": environment, "error": words });
        return terminal.print_json_text(&format!("{line}\n"));
    }
    terminal.print(&format!("warn  {name}: {words}\n"))
}

/// Contacts a server that was just added. It stays in the config even if it does not answer.
pub(super) fn test_added_server(mcp: &McpContext<'_>, name: &str) -> Result<Exit> {
    let server = mcp.server(name)?;
    announce(mcp, &[server]);
    let mut all = Vec::new();
    query_servers(mcp, &[server], &mut |asked| all.push(asked));
    mcp.catalog.shut_down();
    let mut status = Exit::Answered;
    for mut asked in all {
        if let Err(error) = asked.result {
            mcp.ctx.notice(&format!(
                    "`{name}` was added to the config anyway: add it again with `--force`, or `nanobot mcp remove {name}`"
                ),
            );
            return Err(error);
        }
        // Adding a server accepts its tools, except those that have changed since an earlier version of them was
        // stored.
        if let Ok(look) = &mut asked.result {
            let is_same = |name: &String| !look.changed.iter().any(|change| change.name == *name);
            let taken: Vec<String> =
                look.unaccepted.iter().filter(|it| is_same(it)).cloned().collect();
            mcp.catalog.accept(name, Some(&taken))?;
            look.unaccepted.retain(|name| !taken.contains(name));
        }
        print_test(mcp, &asked, false)?;
        status = self::exit_status(&asked);
    }
    Ok(status)
}

/// Prints on a terminal that the servers are being contacted, since that takes time.
fn announce(mcp: &McpContext<'_>, servers: &[&McpServer]) {
    let words = match servers {
        [] => return,
        [one] => format!("contacting `{}` …", one.name),
        many => format!("contacting {} servers …", many.len()),
    };
    if mcp.ctx.terminal.stderr_is_tty {
        mcp.ctx.notice(&words);
    }
}

fn exit_status(asked: &ServerTest<'_>) -> Exit {
    match &asked.result {
        Err(error) => exit_for(error),
        Ok(look) if !look.changed.is_empty() => Exit::Refused,
        Ok(_) => Exit::Answered,
    }
}

/// The more severe of two exit statuses: a server that was not contacted at all counts before a failure, and a failure
/// before tools that have changed.
fn more_severe(one: Exit, other: Exit) -> Exit {
    let weight = |exit: Exit| match exit {
        Exit::Answered => 0,
        Exit::Refused => 1,
        Exit::Unavailable | Exit::Failed => 2,
        Exit::Config => 3,
        _ => 4,
    };
    if weight(other) > weight(one) { other } else { one }
}

fn print_test(mcp: &McpContext<'_>, asked: &ServerTest<'_>, as_json: bool) -> Result<()> {
    let terminal = mcp.ctx.terminal;
    if as_json {
        return terminal.print_json_text(&format!("{}\n", test_json(asked)));
    }
    let name = &asked.server.name;
    let took = asked.duration.as_millis();
    let mut line = match &asked.result {
        Ok(ServerView { features: offer, .. }) => {
            let head = if asked.changed().is_empty() { "ok    " } else { "warn  " };
            let count = |count: usize, one: &str| match count {
                1 => format!("1 {one}"),
                count => format!("{count} {one}s"),
            };
            format!(
                "{head}{name}: {took} ms, {}, MCP {} by {}, {}, {}, {}",
                sanitize::single_line(&offer.server, 80),
                sanitize::single_line(&offer.protocol, 20),
                transport_name(asked.server),
                count(offer.tools.len(), "tool"),
                count(offer.resources.len() + offer.templates.len(), "resource"),
                count(offer.prompts.len(), "prompt"),
            )
        }
        Err(error) => {
            let hint =
                hint_for(error).map_or_else(String::new, |hint| format!("\n      try: {hint}"));
            let words = format!("{error:#}");
            // The row begins with the server's name already.
            let own = format!("MCP server `{name}`");
            let words = words.strip_prefix(&own).unwrap_or(&words);
            let words = words.trim_start_matches([':', ' ']);
            format!("no    {name}: {words}{hint}")
        }
    };
    let changed = asked.changed();
    if !changed.is_empty() {
        let changed: Vec<String> = changed.iter().map(|it| sanitize::single_line(it, 80)).collect();
        line.push_str(&format!(
            "\n      changed: {}\n      try: nanobot mcp accept {name}",
            changed.join(", ")
        ));
    }
    let unaccepted = asked.unaccepted();
    if !unaccepted.is_empty() {
        line.push_str(&format!(
            "\nwarn  {name}: {} not accepted yet, and untrusted content until then\n      try: nanobot mcp accept {name}",
            unaccepted.len()
        ));
    }
    terminal.print(&format!("{line}\n"))
}

fn test_json(asked: &ServerTest<'_>) -> Value {
    let ms = u64::try_from(asked.duration.as_millis()).unwrap_or(u64::MAX);
    let changed = asked.changed();
    let mut line = json!({
        "name": asked.server.name, "ok": asked.result.is_ok() && changed.is_empty(), "ms": ms,
        "by": transport_name(asked.server), "changed": changed, "unaccepted": asked.unaccepted(), "error": null,
    });
    match &asked.result {
        Err(error) => line["error"] = json!(format!("{error:#}")),
        Ok(ServerView { features: offer, .. }) => {
            line["protocol"] = json!(offer.protocol);
            line["server"] = json!(offer.server);
            let names: Vec<&str> = offer.tools.iter().map(|tool| tool.name.as_str()).collect();
            line["tools"] = json!(names);
            line["resources"] = json!(offer.resources.len() + offer.templates.len());
            line["prompts"] = json!(offer.prompts.len());
        }
    }
    line
}
