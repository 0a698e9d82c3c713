//! `mcp add` and `mcp remove`: add servers to the config and remove them.

use crate::cli::mcp::{McpAddArgs, TransportArg};
use crate::ops::agent_turn::tool_usage::find_server;
use crate::ops::context::Context;
use crate::ops::mcp_servers::{McpContext, allow_rule};
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::shell_quote::quote;
use nanobot_config::policy::rule::{PolicyRule, RuleEffect};
use nanobot_config::settings::Config;
use nanobot_config::settings::expand::has_reference;
use nanobot_config::settings::secrets;
use nanobot_config::settings::servers::McpServer;
use nanobot_mcp::client;
use nanobot_os::paths::find_program;
use serde_json::{Map, Value, json};
use std::path::{Component, Path};

/// Maximum characters of a server's name. The names of its tools contain it and are limited too.
const MAX_NAME_CHARS: usize = 32;

/// Adds the server to the config. Returns the rule that was added for it, if any.
pub(super) fn add_server(ctx: &Context, arguments: &McpAddArgs) -> Result<Option<String>> {
    let name = arguments.name.as_str();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME_CHARS || !name.bytes().all(is_plain) {
        let cause = format!("`{name}` is not a valid server name");
        let hint = format!("at most {MAX_NAME_CHARS} letters, digits, `-` and `_`");
        return Err(fail(Exit::Usage, cause).with_hint(hint));
    }
    Config::change(&ctx.paths, |config| add_entry(ctx, arguments, config))
}

/// Adds the server's entry, and the rule if one is requested, to `config`.
fn add_entry(ctx: &Context, arguments: &McpAddArgs, config: &mut Config) -> Result<Option<String>> {
    let name = arguments.name.as_str();
    let path = ["tools", "mcpServers", name];
    if config.get_path(&path.join(".")).is_some() {
        if !arguments.force {
            let cause = format!("the config already has a server `{name}`");
            return Err(fail(Exit::Usage, cause).with_hint("`--force` to replace it"));
        }
        config.unset(&path)?;
    }
    let entry = server_entry(ctx, arguments)?;
    if !arguments.untested {
        require_program(ctx, &entry)?;
    }
    config.set(&path, &Value::Object(entry))?;
    let rule = arguments.allow.then(|| allow_rule(name));
    if let Some(rule) = &rule {
        PolicyRule::parse(rule, RuleEffect::Allow, "tools.allow")
            .map_err(|error| fail(Exit::Usage, format!("`{rule}` {error}")))?;
        let rules = config.get_path("tools.allow").and_then(Value::as_array);
        let mut rules: Vec<Value> = rules.cloned().unwrap_or_default();
        if !rules.iter().any(|other| other == rule) {
            rules.push(json!(rule));
        }
        config.set(&["tools", "allow"], &Value::Array(rules))?;
    }
    Ok(rule)
}

/// Builds the server's entry for the config.
fn server_entry(ctx: &Context, arguments: &McpAddArgs) -> Result<Map<String, Value>> {
    let McpAddArgs {
        name: _,
        url: _,
        command,
        transport: _,
        env,
        header,
        cwd,
        read,
        write,
        tools,
        tool_timeout,
        allow: _,
        required,
        untested: _,
        force: _,
    } = arguments;
    let transport_type = parse_transport_type(arguments)?;
    let mut server = Map::new();
    let mut put = |key: &str, value: Value| drop(server.insert(key.to_owned(), value));
    if let Some((program, program_arguments)) = command.split_first() {
        let program = if program.contains('/') && !program.starts_with('~') {
            absolute_path(Path::new(program))?
        } else {
            program.clone()
        };
        put("command", json!(program));
        if !program_arguments.is_empty() {
            let arguments = program_arguments.iter();
            let arguments = arguments.map(|argument| match cwd {
                None => absolute_argument(ctx, argument),
                Some(_) => Ok(argument.clone()),
            });
            put("args", json!(arguments.collect::<Result<Vec<_>>>()?));
        }
    }
    if let Some(url) = remote_url(arguments)? {
        put("url", json!(url));
    }
    if let Some(transport_type) = transport_type {
        put("type", json!(transport_type));
    }
    let mut shows_secrets = false;
    for (key, values, separator, flag) in
        [("env", env, '=', "--env"), ("headers", header, ':', "--header")]
    {
        if !values.is_empty() {
            let pairs = parse_pairs(values, separator, flag)?;
            let is_secret = |(name, value): (&String, &Value)| {
                let value = value.as_str().unwrap_or_default();
                !has_reference(value) && secrets::looks_secret(name, value)
            };
            shows_secrets |= pairs.iter().any(is_secret);
            put(key, Value::Object(pairs));
        }
    }
    if shows_secrets {
        ctx.terminal.eprint(
            "nanobot: every process can see the command line; for a secret, write `${VARIABLE}` instead",
        );
    }
    if let Some(cwd) = cwd {
        put("cwd", json!(absolute_path(cwd)?));
    }
    for (key, paths) in [("read", read), ("write", write)] {
        if !paths.is_empty() {
            let paths = paths.iter().map(|path| absolute_path(path)).collect::<Result<Vec<_>>>()?;
            put(key, json!(paths));
        }
    }
    if !tools.is_empty() {
        put("enabledTools", json!(tools));
    }
    if let Some(seconds) = tool_timeout {
        put("toolTimeout", json!(seconds));
    }
    if *required {
        put("required", json!(true));
    }
    Ok(server)
}

/// Fails if the program of `entry` does not exist, so that a misspelt one is not added.
fn require_program(ctx: &Context, entry: &Map<String, Value>) -> Result<()> {
    let Some(program) = entry.get("command").and_then(Value::as_str) else {
        return Ok(());
    };
    let entry_path = entry.get("env").and_then(|env| env["PATH"].as_str());
    let path = entry_path.or(ctx.env.get("PATH")).unwrap_or_default();
    let exists = if program.contains('/') {
        ctx.paths.expand(program).is_file()
    } else {
        has_reference(path) || find_program(program, path).is_some()
    };
    if exists {
        Ok(())
    } else {
        Err(fail(Exit::NoInput, format!("there is no program `{program}`, and nothing was added"))
            .with_hint("`--untested` to add it before it is installed"))
    }
}

/// The `type` of the entry, for a remote server with an explicit transport.
fn parse_transport_type(arguments: &McpAddArgs) -> Result<Option<&'static str>> {
    match (arguments.transport, arguments.command.is_empty()) {
        (Some(TransportArg::Stdio), true) => {
            Err(fail(Exit::Usage, "`--transport stdio` needs a command, not a URL")
                .with_hint("`--transport http` or `--transport sse`"))
        }
        (Some(TransportArg::Http | TransportArg::Sse), false) => {
            let cause = "`--transport http` and `--transport sse` need a URL, not a command";
            Err(fail(Exit::Usage, cause).with_hint("without `--transport`"))
        }
        (Some(TransportArg::Http), true) => Ok(Some("streamableHttp")),
        (Some(TransportArg::Sse), true) => Ok(Some("sse")),
        (Some(TransportArg::Stdio) | None, _) => Ok(None),
    }
}

/// The address of a remote server; `None` for a local one.
fn remote_url(arguments: &McpAddArgs) -> Result<Option<&str>> {
    let McpAddArgs { name, url, command, .. } = arguments;
    match url.as_slice() {
        [] if command.is_empty() => Err(fail(Exit::Usage, "no URL and no command is given")
            .with_hint(format!("nanobot mcp add {name} -- COMMAND, or its URL"))),
        [] => Ok(None),
        [url] => {
            let is_web = url.starts_with("http://") || url.starts_with("https://");
            if !is_web || url::Url::parse(url).is_err() {
                let cause = format!("`{url}` is not the URL of a server");
                let hint = "a URL such as `https://example.org/mcp`, or `--` and a command";
                return Err(fail(Exit::Usage, cause).with_hint(hint));
            }
            Ok(Some(url))
        }
        command => {
            let command: Vec<String> = command.iter().map(|argument| quote(argument)).collect();
            Err(fail(Exit::Usage, "a command needs `--` before it, and a URL is one word")
                .with_hint(format!("nanobot mcp add {name} -- {}", command.join(" "))))
        }
    }
}

/// Parses the names and values of a repeated flag. A variable without a value becomes a reference to the environment
/// variable of that name.
fn parse_pairs(values: &[String], separator: char, flag: &str) -> Result<Map<String, Value>> {
    let parse_pair = |text: &String| {
        let (name, value) = match text.split_once(separator) {
            Some((name, value)) => (name.trim(), value.trim_start().to_owned()),
            None if separator == '=' => (text.trim(), format!("${{{}}}", text.trim())),
            None => (text.as_str(), String::new()),
        };
        if name.is_empty() || value.is_empty() {
            return Err(fail(Exit::Usage, format!("`{flag} {text}` has no value")));
        }
        Ok((name.to_owned(), json!(value)))
    };
    values.iter().map(parse_pair).collect()
}

/// Removes the server from the config with its stored data, and the rules that allow its tools, since another server may later have the
/// same name. Returns false if there was nothing to remove.
pub(super) fn remove_server(mcp: &McpContext<'_>, name: &str) -> Result<bool> {
    let ctx = mcp.ctx;
    let rules = Config::change(&ctx.paths, |config| remove_entry(name, &mcp.servers, config))?;
    let had_data = mcp.catalog.remove(name)?;
    client::remove_server_files(&ctx.paths, name)
        .with_context(|| format!("remove the stored data of `{name}`"))?;
    for rule in rules.iter().flatten() {
        ctx.notice(&format!("removed the rule `{rule}` too"));
    }
    Ok(rules.is_some() || had_data)
}

/// Removes the server's entry and the rules that allow its tools from `config`. Returns the rules.
fn remove_entry(
    name: &str,
    servers: &[McpServer],
    config: &mut Config,
) -> Result<Option<Vec<String>>> {
    let path = ["tools", "mcpServers", name];
    if !config.unset(&path)? {
        return Ok(None);
    }
    let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    let is_for_server = |rule: &Value| {
        let rule = rule.as_str().unwrap_or_default();
        find_server(rule, &names) == Some(name)
    };
    let rules = config.get_path("tools.allow").and_then(Value::as_array);
    let (removed, remaining): (Vec<Value>, Vec<Value>) =
        rules.cloned().unwrap_or_default().into_iter().partition(is_for_server);
    if !removed.is_empty() {
        config.set(&["tools", "allow"], &Value::Array(remaining))?;
    }
    Ok(Some(removed.iter().filter_map(|rule| rule.as_str().map(str::to_owned)).collect()))
}

/// `argument` as an absolute path, if it is the path of a file from here: the server runs in another directory.
fn absolute_argument(ctx: &Context, argument: &str) -> Result<String> {
    let is_path = ["./", "../"].iter().any(|start| argument.starts_with(start));
    let is_absolute = argument.starts_with('/');
    if !is_path && (is_absolute || !Path::new(argument).is_file()) {
        return Ok(argument.to_owned());
    }
    let path = absolute_path(Path::new(argument))?;
    ctx.notice(&format!(
        "`{argument}` is `{path}` for the server, which runs in a directory of its own; `--cwd DIR` sets another"
    ));
    Ok(path)
}

fn absolute_path(path: &Path) -> Result<String> {
    let path = std::path::absolute(path).with_context(|| format!("`{}`", path.display()))?;
    // The server may not see the directories before a `..`.
    let has_parent = path.components().any(|part| part == Component::ParentDir);
    let path = if has_parent { path.canonicalize().unwrap_or(path) } else { path };
    path.into_os_string().into_string().map_err(|path| {
        let cause = format!("`{}` is not UTF-8", path.display());
        fail(Exit::Usage, cause)
    })
}
