//! `nanobot model provider`: lists the providers, and logs in to those that use accounts instead of keys.

use crate::cli::model::ProviderCommand;
use crate::command::name_pattern::NamePattern;
use crate::ops::context::Context;
use crate::ops::model;
use anyhow::Result;
use console::Style;
use jiff::Timestamp;
use nanobot_agent::report::columns::{Column, Side, format_table, hanging_indent};
use nanobot_base::error::{Exit, WithHint, fail, hint_for};
use nanobot_config::settings::Settings;
use nanobot_config::settings::keys::nearest;
use nanobot_model::provider::login::{self, DevicePrompt, LoginEndpoints, Vendor};
use nanobot_model::provider::registry::{
    self, PROVIDERS, ProviderConfig, ProviderInfo, ProviderKind, ProviderStatus, normalize_name,
};
use nanobot_net::http::{Http, HttpTimeouts};
use nanobot_net::web_url;
use nanobot_os::terminal::{StdoutWriter, sanitize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Timeouts for login servers, which answer quickly or not at all.
const TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(10),
    first_byte: Duration::from_secs(30),
    idle: Duration::from_secs(30),
    total: Duration::from_secs(60),
};

/// Runs `nanobot model provider`.
pub fn run(ctx: &Context, command: &ProviderCommand) -> Result<Exit> {
    match command {
        ProviderCommand::List { pattern, json } => {
            list(ctx, NamePattern(pattern.as_deref()), *json)?;
        }
        ProviderCommand::Show { name, json } => show(ctx, name, *json)?,
        ProviderCommand::Login { name } => log_in(ctx, Vendor::from_name(name)?)?,
        ProviderCommand::Logout { name } => log_out(ctx, Vendor::from_name(name)?)?,
    }
    Ok(Exit::Answered)
}

/// A provider in the list.
struct ProviderRow {
    name: String,
    /// The entry of the built-in table.
    entry: Option<&'static ProviderInfo>,
    is_usable: bool,
    /// The source of its key: the kind of source, and a description.
    key: Option<(&'static str, String)>,
    address: String,
    /// The expiry of a login's token, which is then renewed.
    expires: Option<Timestamp>,
    /// The reason why the configuration cannot be used.
    problem: Option<anyhow::Error>,
}

impl ProviderRow {
    fn kind(&self) -> &'static str {
        self.entry.map_or("custom", |entry| entry.kind.name())
    }

    fn label(&self) -> &'static str {
        self.entry.map_or("", |entry| entry.label)
    }
}

fn list(ctx: &Context, pattern: NamePattern<'_>, as_json: bool) -> Result<()> {
    let settings = ctx.settings()?;
    let configs = model::provider_configs(ctx, &settings);
    let custom = configs.keys().filter(|name| registry::find_provider(name).is_none());
    let names = PROVIDERS.iter().map(|entry| entry.name).chain(custom.map(String::as_str));
    let mut rows: Vec<ProviderRow> = names
        .filter(|name| pattern.matches(name))
        .map(|name| provider_row(ctx, &settings, &configs, name))
        .collect();
    if as_json {
        return ctx.terminal.print_json_lines(rows.iter().map(provider_json));
    }
    if rows.is_empty() {
        ctx.explain_empty("no provider matches");
        return Ok(());
    }
    let width = ctx.terminal.stdout_width();
    if width.is_some() {
        rows.sort_by_key(|row| !row.is_usable);
    }
    let mut writer = StdoutWriter::new(ctx.terminal);
    print_table(&rows, width, &mut writer)?;
    writer.finish()?;
    for problem in rows.iter().filter_map(|row| row.problem.as_ref()) {
        ctx.terminal.eprint(&format!("nanobot: {problem:#}"));
        if let Some(hint) = hint_for(problem) {
            ctx.terminal.eprint(&format!("  try: {hint}"));
        }
    }
    Ok(())
}

/// Prints one provider. The name may be written in any of the usual ways, such as `githubCopilot` or `github-copilot`.
fn show(ctx: &Context, name: &str, as_json: bool) -> Result<()> {
    let settings = ctx.settings()?;
    let configs = model::provider_configs(ctx, &settings);
    let entry = PROVIDERS.iter().find(|entry| normalize_name(entry.name) == normalize_name(name));
    if entry.is_none() && !configs.contains_key(name) {
        let names = PROVIDERS.iter().map(|entry| entry.name);
        let hint = match nearest(name, names) {
            Some(similar) => format!("`{similar}`"),
            None => "`nanobot model provider list`".into(),
        };
        let cause = format!("there is no provider `{name}`");
        return Err(fail(Exit::Usage, cause).with_hint(hint));
    }
    let row = provider_row(ctx, &settings, &configs, entry.map_or(name, |entry| entry.name));
    if as_json {
        return ctx.terminal.print_json(&provider_json(&row));
    }
    let mut rows = vec![
        ("name", row.name.clone()),
        ("label", row.label().to_owned()),
        ("kind", row.kind().to_owned()),
        ("address", row.address.clone()),
        ("key", describe_key(&row)),
    ];
    if let Some(entry) = entry {
        rows.push(("variables", entry.key_variables.join(", ")));
        rows.push(("model", entry.default_model.to_owned()));
    }
    rows.extend(row.problem.as_ref().map(|problem| ("problem", format!("{problem:#}"))));
    rows.retain(|(_, value)| !value.is_empty());
    let width = ctx.terminal.stdout_width();
    let line = |(name, value): &(&str, String)| {
        hanging_indent(&format!("{name:9}  "), &sanitize(value), width) + "\n"
    };
    ctx.terminal.print(&rows.iter().map(line).collect::<String>())
}

fn provider_row(
    ctx: &Context,
    settings: &Settings,
    configs: &BTreeMap<String, ProviderConfig>,
    name: &str,
) -> ProviderRow {
    let ProviderStatus { entry, base_url, mut key, mut is_usable } =
        registry::provider_status(name, configs, &ctx.env);
    let mut expires = None;
    let mut problem = settings.provider(name).err();
    if entry.is_some_and(|entry| entry.kind == ProviderKind::Login) {
        let vendor = Vendor::from_name(name);
        match vendor.and_then(|vendor| login::expiry(vendor, &ctx.paths.auth())) {
            Ok(expiry) => expires = expiry,
            Err(error) => problem = problem.or(Some(error)),
        }
        if expires.is_none() {
            is_usable = false;
            key = None;
        }
    }
    ProviderRow {
        name: name.to_owned(),
        entry,
        is_usable: is_usable && problem.is_none(),
        key,
        address: web_url::redact_url(&base_url),
        expires,
        problem,
    }
}

fn provider_json(row: &ProviderRow) -> Value {
    let key = row.key.as_ref();
    json!({
        "name": row.name, "label": row.label(), "kind": row.kind(), "usable": row.is_usable, "key": key.map(|(kind, _)| kind),
        "key_place": key.map(|(_, source)| source.replace('`', "")), "address": row.address,
        "token_until": row.expires.map(|expires| expires.to_string()),
        "problem": row.problem.as_ref().map(|problem| format!("{problem:#}")),
    })
}

/// Prints the rows. On a terminal, whose columns are `width`, usable providers are marked.
fn print_table(
    rows: &[ProviderRow],
    width: Option<usize>,
    writer: &mut StdoutWriter,
) -> Result<()> {
    let columns: [Column<'_, ProviderRow>; 5] = [
        ("NAME", Side::Left, &|row| sanitize(&row.name)),
        ("KIND", Side::Left, &|row| row.kind().to_owned()),
        ("KEY", Side::Left, &|row| sanitize(&describe_key(row))),
        ("ADDRESS", Side::Left, &|row| sanitize(&row.address)),
        ("LABEL", Side::Left, &|row| sanitize(row.label())),
    ];
    let table = format_table(rows, &columns, width.map(|width| width.saturating_sub(2)));
    for (index, line) in table.lines().enumerate() {
        // The first line is the heading.
        let is_usable = index > 0 && rows[index - 1].is_usable;
        if width.is_some() {
            let mark = if is_usable { "*" } else { " " };
            writer.write_styled(mark, &Style::new().green())?;
            writer.write(" ")?;
        }
        writer.write(&format!("{line}\n"))?;
    }
    Ok(())
}

/// A short description of a provider's key.
fn describe_key(row: &ProviderRow) -> String {
    if row.problem.is_some() {
        return "cannot be used".into();
    }
    if let Some(expires) = row.expires {
        return format!("login, token until {expires}");
    }
    if let Some((_, source)) = &row.key {
        return source.replace('`', "");
    }
    match row.entry.map(|entry| entry.kind) {
        Some(ProviderKind::Login) => "not logged in".into(),
        Some(ProviderKind::Unsupported) => "not in this release".into(),
        Some(ProviderKind::Local | ProviderKind::Direct) | None if row.address.is_empty() => {
            "no address".into()
        }
        Some(ProviderKind::Local | ProviderKind::Direct) | None => "not needed".into(),
        Some(ProviderKind::Standard | ProviderKind::Gateway) => "none".into(),
    }
}

/// Logs in to `vendor`, with the login flow of its server.
pub(super) fn log_in(ctx: &Context, vendor: Vendor) -> Result<()> {
    let endpoints = LoginEndpoints::from_env(&ctx.env)?;
    let http = Http::new(TIMEOUTS, false, &ctx.settings()?.network);
    // This is printed even with `--quiet`, since the login cannot succeed without the code.
    let mut print_prompt = |prompt: DevicePrompt<'_>| {
        let DevicePrompt { url, code, lifetime } = prompt;
        ctx.terminal.eprint(&format!("open {url} and enter {code}"));
        let minutes = lifetime.as_secs().div_ceil(60);
        ctx.terminal.eprint(&format!("waiting for the login, {minutes} min at most"));
    };
    let folder = ctx.paths.auth();
    login::login(vendor, &folder, &http, &ctx.clock, &endpoints, &mut print_prompt)?;
    ctx.terminal.print(&format!("logged in to {}\n", vendor.label()))
}

fn log_out(ctx: &Context, vendor: Vendor) -> Result<()> {
    let had_login = login::logout(vendor, &ctx.paths.auth(), &ctx.clock)?;
    let outcome = if had_login { "logged out of" } else { "not logged in to" };
    ctx.terminal.print(&format!("{outcome} {}\n", vendor.label()))
}
