//! `nanobot mcp login` and `logout`: logs in to remote servers by OAuth.

use crate::cli::mcp::McpLoginArgs;
use crate::ops::context::Context;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, Stop, WithHint, fail};
use nanobot_config::settings::Config;
use nanobot_config::settings::servers::{McpServer, ServerTransport};
use nanobot_mcp::oauth::client_credentials;
use nanobot_mcp::oauth::discovery::discover;
use nanobot_mcp::oauth::flow::PendingLogin;
use nanobot_mcp::oauth::token_request::{ClientSecret, RegisteredClient};
use nanobot_mcp::oauth::token_store::{self, login_file};
use nanobot_net::http::{Http, HttpTimeouts, RedirectListener};
use nanobot_os::clock::Clock;
use nanobot_os::input;
use nanobot_os::line_buffer::StdinLines;
use nanobot_os::signal::Deadline;
use nanobot_os::terminal::sanitize;
use serde_json::json;
use std::time::Duration;

/// Timeouts of the requests to the servers of a login.
const TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(15),
    first_byte: Duration::from_secs(30),
    idle: Duration::from_secs(30),
    total: Duration::from_secs(60),
};
/// Maximum size of a key in bytes.
const MAX_KEY_BYTES: usize = 64 << 10;
/// Time that a person has to log in in the browser.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(600);

/// Runs `nanobot mcp login`.
pub(super) fn run(ctx: &Context, arguments: &McpLoginArgs) -> Result<()> {
    let McpLoginArgs {
        server,
        scope,
        client_id: _,
        client_secret_env: _,
        client_key: _,
        client_credentials,
        paste,
        offline,
    } = arguments;
    let settings = ctx.settings()?;
    let url = remote_url(&settings.servers, server)?;
    let client = registered_client(ctx, arguments)?;
    let http = Http::new(TIMEOUTS, *offline, &settings.network);
    let clock = Clock::from_env(&ctx.env)?;
    let discover_server =
        || discover(&http, &url).with_context(|| format!("MCP server `{server}`"));
    let file = login_file(&ctx.paths.auth(), server);
    let login_server = token_store::login_server(&http, &clock, file.login_command());
    let login = match client {
        Some(client) if *client_credentials => client_credentials::log_in(
            &login_server,
            &discover_server()?,
            client,
            scope.clone(),
            &url,
        )?,
        client => {
            let listener = RedirectListener::open().context("listen for the browser's redirect")?;
            let login = PendingLogin::begin(
                &login_server,
                discover_server()?,
                client,
                scope.clone(),
                listener.url(),
            )?;
            let query = redirect_query(ctx, &login, &listener, *paste)?;
            login.finish(&login_server, &url, &query)?
        }
    };
    file.write(&login, &clock)?;
    Config::change(&ctx.paths, |config| {
        config.set(&["tools", "mcpServers", server, "auth"], &json!("oauth"))
    })?;
    if !ctx.quiet {
        ctx.terminal.print(&format!("logged in to `{}`\n", sanitize(server)))?;
    }
    Ok(())
}

/// The client that the flags name.
fn registered_client(ctx: &Context, arguments: &McpLoginArgs) -> Result<Option<RegisteredClient>> {
    let McpLoginArgs { client_id, client_secret_env, client_key, client_credentials, .. } =
        arguments;
    let has_secret = client_secret_env.is_some() || client_key.is_some();
    let Some(id) = client_id else {
        return if has_secret {
            Err(fail(Exit::Usage, "a secret or a key of the client needs `--client-id`"))
        } else {
            Ok(None)
        };
    };
    if *client_credentials && !has_secret {
        let cause = "`--client-credentials` needs `--client-secret-env` or `--client-key`";
        return Err(fail(Exit::Usage, cause));
    }
    let secret = match (client_secret_env, client_key) {
        (Some(variable), _) => Some(ClientSecret::Password(read_secret(ctx, variable)?)),
        (None, Some(path)) => {
            let bytes = input::read_file(path, &path.display().to_string(), MAX_KEY_BYTES)?;
            let pem = String::from_utf8_lossy(&bytes).into_owned();
            Some(ClientSecret::PrivateKey(pem))
        }
        (None, None) => None,
    };
    Ok(Some(RegisteredClient { id: id.clone(), secret }))
}

/// Shows the address to open, and returns the query of the redirect.
fn redirect_query(
    ctx: &Context,
    login: &PendingLogin,
    listener: &RedirectListener,
    is_pasted: bool,
) -> Result<String> {
    let address = login.authorization_url()?;
    ctx.terminal.eprint(&format!(
        "Open this address in a browser, and log in:\n\n  {}\n",
        sanitize(&address)
    ));
    if is_pasted {
        return read_pasted(ctx);
    }
    let query = listener.wait(&mut Deadline::after(LOGIN_TIMEOUT))?;
    query.ok_or_else(|| {
        fail(Exit::TryAgain, "no login was completed within ten minutes")
            .with_hint("`--paste`, if the browser is on another machine")
    })
}

/// Runs `nanobot mcp logout`.
pub(super) fn log_out(ctx: &Context, server: &str) -> Result<()> {
    let clock = Clock::from_env(&ctx.env)?;
    let removed = login_file(&ctx.paths.auth(), server).remove(&clock)?;
    if !removed {
        let cause = format!("there is no login to `{}`", sanitize(server));
        return Err(fail(Exit::NoInput, cause).with_hint("nanobot mcp list"));
    }
    if !ctx.quiet {
        ctx.terminal.print(&format!("logged out of `{}`\n", sanitize(server)))?;
    }
    Ok(())
}

/// The address of a remote server of the config.
fn remote_url(servers: &[McpServer], name: &str) -> Result<String> {
    let server = servers.iter().find(|server| server.name == name);
    match server.map(|server| &server.transport) {
        Some(ServerTransport::Http(remote) | ServerTransport::Sse(remote))
            if !remote.url.is_empty() =>
        {
            Ok(remote.url.clone())
        }
        Some(_) => Err(fail(
            Exit::Usage,
            format!("MCP server `{name}` has no URL, and only servers with one have a login"),
        )),
        None => Err(fail(Exit::NoInput, format!("there is no MCP server `{}`", sanitize(name)))
            .with_hint("nanobot mcp list")),
    }
}

fn read_secret(ctx: &Context, variable: &str) -> Result<String> {
    let value = ctx.env.get(variable).filter(|value| !value.is_empty());
    let value =
        value.ok_or_else(|| fail(Exit::Config, format!("the variable `{variable}` is not set")))?;
    Ok(value.to_owned())
}

/// Reads the address that the browser was sent to.
fn read_pasted(ctx: &Context) -> Result<String> {
    ctx.terminal
        .eprint("Then paste the address that the browser shows in the end (it need not have loaded), and press Enter:");
    match StdinLines::open().next_line()? {
        Some(Ok(line)) if !line.trim_ascii().is_empty() => {
            Ok(String::from_utf8_lossy(&line).into_owned())
        }
        Some(Err(reason)) => Err(fail(Exit::BadInput, reason)),
        _ => Err(Stop(Exit::NoInput).into()),
    }
}
