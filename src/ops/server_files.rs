//! Files with MCP servers that a flag names: an `.mcp.json` of a project or of another agent, or a file in the format of our config. They are
//! read as an entry of the config is, once the user has pinned the file: it names programs to start, paths that they may use, and the
//! servers that get the keys in its variables.

use crate::ops::context::Context;
use crate::ops::permissions::absolute;
use crate::options::turn::ServerFiles;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::shell_quote::quote;
use nanobot_config::settings::expand::expand_defaults;
use nanobot_config::settings::key_spelling::format_path;
use nanobot_config::settings::servers::McpServer;
use nanobot_config::settings::{Config, FlagOverrides, Settings};
use nanobot_os::input;
use nanobot_store::trust::TrustList;
use serde_json::{Value, json};
use std::path::Path;

/// Maximum size of a file in bytes.
const MAX_FILE_BYTES: usize = 1 << 20;

/// Adds the servers of `files` to those of `settings`. A server takes the place of one with the same name.
///
/// # Errors
/// A file cannot be read; it has no servers (status 65); it is not pinned (status 77).
pub(crate) fn add_to(ctx: &Context, files: &ServerFiles, settings: &mut Settings) -> Result<()> {
    for path in &files.paths {
        for server in read(ctx, path)? {
            check_unlocked(settings, &server, "--mcp")?;
            settings.servers.retain(|other| other.name != server.name);
            settings.servers.push(server);
        }
    }
    Ok(())
}

/// Refuses a server that `source` adds, if keys of servers with its name are locked.
///
/// # Errors
/// Status 77 if they are.
pub(crate) fn check_unlocked(settings: &Settings, server: &McpServer, source: &str) -> Result<()> {
    settings.locks.check_flag(&format_path(&["tools", "mcpServers", &server.name]), source)
}

fn read(ctx: &Context, path: &Path) -> Result<Vec<McpServer>> {
    let name = path.display().to_string();
    let unusable = |cause: String| fail(Exit::BadInput, format!("`{name}`: {cause}"));
    let bytes = input::read_file(path, &name, MAX_FILE_BYTES)?;
    let file: Value = serde_json::from_slice(&bytes)
        .map_err(|error| unusable(format!("it is not JSON: {error}")))?;
    let servers = file.get("mcpServers").or_else(|| file.pointer("/tools/mcpServers"));
    let servers = servers.and_then(Value::as_object).ok_or_else(|| {
        let hint = "`{\"mcpServers\": {\"NAME\": {\"command\": \"…\"}}}`";
        fail(Exit::BadInput, format!("`{name}` has no object `mcpServers`")).with_hint(hint)
    })?;
    let real_path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if !TrustList::load(&ctx.paths.trust())?.is_pinned(&real_path, &bytes) {
        let cause = format!("`{name}` starts programs, and is not trusted as it is now");
        let hint = format!("`nanobot trust {}` after reading it", quote(&name));
        return Err(fail(Exit::Refused, cause).with_hint(hint));
    }
    let mut servers = Value::Object(servers.clone());
    expand_defaults(&mut servers, &ctx.env);
    let config = json!({ "tools": { "mcpServers": servers } });
    let settings = Config::parse(path, &config.to_string())
        .and_then(|config| {
            Settings::resolve(&config, &ctx.env, &FlagOverrides::default(), &ctx.paths)
        })
        .map_err(|error| unusable(format!("{error:#}")))?;
    let is_of_file = |server: &McpServer| servers.get(&server.name).is_some();
    let servers = settings.servers.into_iter().filter(is_of_file);
    Ok(servers.map(|server| McpServer { file: Some(absolute(path)), ..server }).collect())
}
