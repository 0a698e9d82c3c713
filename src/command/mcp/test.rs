//! `mcp test`: contacts servers, all at once.

use super::list::way;

use crate::error::{Exit, exit_of, hint_of};
use crate::mcp::roster::Look;
use crate::mcp::words;
use crate::ops::mcp_servers::{McpContext, ServerTest, ask};
use crate::settings::servers::Server;
use crate::sys::signal;
use anyhow::Result;
use serde_json::{Value, json};

/// Runs `mcp test`.
pub(super) fn run(desk: &McpContext<'_>, names: &[String], as_json: bool) -> Result<Exit> {
    let servers: Vec<&Server> = match names.is_empty() {
        true => desk
            .servers
            .iter()
            .filter(|server| !server.disabled)
            .collect(),
        false => names
            .iter()
            .map(|name| desk.server(name))
            .collect::<Result<_>>()?,
    };
    if servers.is_empty() {
        desk.ctx.notice("there are no MCP servers to test");
    }
    waiting(desk, &servers);
    let mut worst = Exit::Answered;
    let mut printed = Ok(());
    ask(desk, &servers, &mut |asked| {
        worst = graver(worst, status(&asked));
        if printed.is_ok() {
            printed = tell(desk, &asked, as_json);
        }
    });
    desk.roster.end();
    printed?;
    signal::check()?;
    Ok(worst)
}

/// Contacts a server that was just added. It stays in the config even if it does not answer.
pub(super) fn added(desk: &McpContext<'_>, name: &str) -> Result<Exit> {
    let server = desk.server(name)?;
    waiting(desk, &[server]);
    let mut all = Vec::new();
    ask(desk, &[server], &mut |asked| all.push(asked));
    desk.roster.end();
    let mut status = Exit::Answered;
    for mut asked in all {
        if let Err(error) = asked.look {
            desk.ctx.notice(&format!(
                    "`{name}` was added to the config anyway: add it again with `--force`, or `nanobot mcp remove {name}`"
                ),
            );
            return Err(error);
        }
        // Adding a server accepts its tools, except those that have changed since an earlier version of them was
        // stored.
        if let Ok(look) = &mut asked.look {
            let is_same = |name: &String| !look.changed.iter().any(|change| change.tool == *name);
            let taken: Vec<String> = look
                .unaccepted
                .iter()
                .filter(|it| is_same(it))
                .cloned()
                .collect();
            desk.roster.accept(name, Some(&taken))?;
            look.unaccepted.retain(|name| !taken.contains(name));
        }
        tell(desk, &asked, false)?;
        status = self::status(&asked);
    }
    Ok(status)
}

/// Prints on a terminal that the servers are being contacted, since that takes time.
fn waiting(desk: &McpContext<'_>, servers: &[&Server]) {
    let words = match servers {
        [] => return,
        [one] => format!("contacting `{}` …", one.name),
        many => format!("contacting {} servers …", many.len()),
    };
    if desk.ctx.terminal.err {
        desk.ctx.notice(&words);
    }
}

fn status(asked: &ServerTest<'_>) -> Exit {
    match &asked.look {
        Err(error) => exit_of(error),
        Ok(look) if !look.changed.is_empty() => Exit::Refused,
        Ok(_) => Exit::Answered,
    }
}

/// The more severe of two exit statuses: a server that was not contacted at all counts before a failure, and a failure
/// before tools that have changed.
fn graver(one: Exit, other: Exit) -> Exit {
    let weight = |exit: Exit| match exit {
        Exit::Answered => 0,
        Exit::Refused => 1,
        Exit::Unavailable | Exit::Failed => 2,
        Exit::Config => 3,
        _ => 4,
    };
    match weight(other) > weight(one) {
        true => other,
        false => one,
    }
}

fn tell(desk: &McpContext<'_>, asked: &ServerTest<'_>, as_json: bool) -> Result<()> {
    let terminal = desk.ctx.terminal;
    if as_json {
        return terminal.print_json_text(&format!("{}\n", object(asked)));
    }
    let name = &asked.server.name;
    let took = asked.took.as_millis();
    let mut line = match &asked.look {
        Ok(Look { offer, .. }) => {
            let head = if asked.changed().is_empty() {
                "ok    "
            } else {
                "warn  "
            };
            let count = |count: usize, one: &str| match count {
                1 => format!("1 {one}"),
                count => format!("{count} {one}s"),
            };
            format!(
                "{head}{name}: {took} ms, {}, MCP {} by {}, {}, {}, {}",
                words::line(&offer.server, 80),
                words::line(&offer.protocol, 20),
                way(asked.server),
                count(offer.tools.len(), "tool"),
                count(offer.resources.len() + offer.templates.len(), "resource"),
                count(offer.prompts.len(), "prompt"),
            )
        }
        Err(error) => {
            let hint =
                hint_of(error).map_or_else(String::new, |hint| format!("\n      try: {hint}"));
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
        let changed: Vec<String> = changed.iter().map(|it| words::line(it, 80)).collect();
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

fn object(asked: &ServerTest<'_>) -> Value {
    let ms = u64::try_from(asked.took.as_millis()).unwrap_or(u64::MAX);
    let changed = asked.changed();
    let mut line = json!({
        "name": asked.server.name, "ok": asked.look.is_ok() && changed.is_empty(), "ms": ms,
        "by": way(asked.server), "changed": changed, "unaccepted": asked.unaccepted(), "error": null,
    });
    match &asked.look {
        Err(error) => line["error"] = json!(format!("{error:#}")),
        Ok(Look { offer, .. }) => {
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
