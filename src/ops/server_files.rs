//! Files with MCP servers that a flag names: an `.mcp.json` of a project or of another agent, or a file in the format of our config. They are
//! read as an entry of the config is. What only our format has and what loosens the containment of a server is refused in a file
//! that the user has not pinned: a reader of an `.mcp.json` would not look for it.

use crate::ops::context::Context;
use crate::ops::permissions::absolute;
use crate::options::turn::ServerFiles;
use anyhow::Result;
use nanobot_base::error::{Exit, fail, fail_with_hint};
use nanobot_base::shell_quote::quote;
use nanobot_config::settings::expand::expand_defaults;
use nanobot_config::settings::servers::McpServer;
use nanobot_config::settings::{Config, FlagOverrides, Settings};
use nanobot_os::input;
use nanobot_store::trust::TrustList;
use serde_json::{Map, Value, json};
use std::path::Path;

/// Maximum size of a file in bytes.
const MAX_FILE_BYTES: usize = 1 << 20;

/// The keys of a server that loosen its containment.
const LOOSENING_KEYS: [&str; 5] = ["read", "sampling", "sandbox", "trusted", "write"];

/// Adds the servers of `files` to those of `settings`. A server takes the place of one with the same name.
///
/// # Errors
/// A file cannot be read; it has no servers (status 65); it is not pinned, and loosens the containment of a server (status 77).
pub(crate) fn add_to(ctx: &Context, files: &ServerFiles, settings: &mut Settings) -> Result<()> {
    for path in &files.paths {
        for server in read(ctx, path)? {
            settings.servers.retain(|other| other.name != server.name);
            settings.servers.push(server);
        }
    }
    Ok(())
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
        fail_with_hint(Exit::BadInput, format!("`{name}` has no object `mcpServers`"), hint)
    })?;
    if let Some((server, key)) = find_loosening_key(servers) {
        let real_path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if !TrustList::load(&ctx.paths.trust())?.is_pinned(&real_path, &bytes) {
            let cause = format!("`{name}` sets `{key}` of the server `{server}`");
            let hint = format!("`nanobot trust {}` after reading it", quote(&name));
            return Err(fail_with_hint(Exit::Refused, cause, hint));
        }
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

/// The first key that loosens the containment of a server, with the name of the server. A secret that is an object may be the output of a
/// command, or a file.
fn find_loosening_key(servers: &Map<String, Value>) -> Option<(&str, String)> {
    servers.iter().find_map(|(name, server)| {
        let is_loosening = |key: &&String| LOOSENING_KEYS.contains(&key.to_lowercase().as_str());
        let key = server.as_object()?.keys().find(is_loosening).cloned();
        let secret = ["env", "headers"].into_iter().find_map(|key| {
            let (secret, _) =
                server[key].as_object()?.iter().find(|(_, value)| value.is_object())?;
            Some(format!("{key}.{secret}"))
        });
        Some((name.as_str(), key.or(secret)?))
    })
}
