//! `nanobot provider`: lists the providers, and logs in to those that use accounts instead of keys.

use crate::cli::provider::Provider as Arguments;
use crate::error::{Exit, hint_of};
use crate::ops::context::Context;
use crate::ops::model;
use crate::provider::login::{self, Endpoints, Prompt, Vendor};
use crate::provider::registry::{self, Kind, ProviderConfig, Standing, TABLE};
use crate::report::columns::{Side, aligned, clipped};
use crate::settings::Settings;
use crate::sys::http::{Http, Timeouts};
use crate::sys::terminal::{Page, harmless};
use crate::sys::web_url;
use anyhow::Result;
use console::Style;
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// Timeouts for login servers, which answer quickly or not at all.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(10),
    first_byte: Duration::from_secs(30),
    idle: Duration::from_secs(30),
    total: Duration::from_secs(60),
};

/// Runs `nanobot provider`.
pub fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    match arguments {
        Arguments::List { json } => list(ctx, *json)?,
        Arguments::Login { name } => log_in(ctx, Vendor::named(name)?)?,
        Arguments::Logout { name } => log_out(ctx, Vendor::named(name)?)?,
    }
    Ok(Exit::Answered)
}

/// A provider in the list.
struct Row {
    name: String,
    label: String,
    kind: &'static str,
    is_usable: bool,
    /// The source of its key: the kind of source, and a description.
    key: Option<(&'static str, String)>,
    address: String,
    /// The expiry of a login's token, which is then renewed.
    until: Option<Timestamp>,
    /// The reason why the configuration cannot be used.
    problem: Option<anyhow::Error>,
}

fn list(ctx: &Context, as_json: bool) -> Result<()> {
    let settings = ctx.settings()?;
    let blocks = model::blocks(ctx, &settings);
    let own = blocks.keys().filter(|name| registry::entry(name).is_none());
    let names = TABLE.iter().map(|entry| entry.name);
    let names = names.chain(own.map(String::as_str));
    let mut rows: Vec<Row> = names
        .map(|name| row(ctx, &settings, &blocks, name))
        .collect();
    if as_json {
        let lines: String = rows.iter().map(line).collect();
        return ctx.terminal.print_json_text(&lines);
    }
    let width = ctx.terminal.width();
    if width.is_some() {
        rows.sort_by_key(|row| !row.is_usable);
    }
    let mut page = Page::on(ctx.terminal);
    table(&rows, width, &mut page)?;
    page.end()?;
    for problem in rows.iter().filter_map(|row| row.problem.as_ref()) {
        ctx.terminal.complain(&format!("nanobot: {problem:#}"));
        if let Some(hint) = hint_of(problem) {
            ctx.terminal.complain(&format!("  try: {hint}"));
        }
    }
    Ok(())
}

fn row(
    ctx: &Context,
    settings: &Settings,
    blocks: &BTreeMap<String, ProviderConfig>,
    name: &str,
) -> Row {
    let Standing {
        entry,
        base,
        mut key,
        mut is_usable,
    } = registry::standing(name, blocks, &ctx.env);
    let (mut until, mut problem) = (None, settings.block(name).err());
    if entry.is_some_and(|entry| entry.kind == Kind::Login) {
        let found = Vendor::named(name).and_then(|vendor| login::expiry(vendor, &ctx.paths.auth()));
        match found {
            Ok(expires) => until = expires,
            Err(error) => problem = problem.or(Some(error)),
        }
        is_usable &= until.is_some();
        key = key.filter(|_| until.is_some());
    }
    Row {
        name: name.to_owned(),
        label: entry.map_or_else(String::new, |entry| entry.label.to_owned()),
        kind: entry.map_or("custom", |entry| entry.kind.name()),
        is_usable: is_usable && problem.is_none(),
        key,
        address: web_url::redacted(&base),
        until,
        problem,
    }
}

fn line(row: &Row) -> String {
    let Row {
        name,
        label,
        kind,
        is_usable,
        key,
        address,
        until,
        problem,
    } = row;
    let (from, place) = key
        .as_ref()
        .map_or((None, None), |(from, place)| (Some(from), Some(place)));
    let line = json!({
        "name": name, "label": label, "kind": kind, "usable": is_usable, "key": from,
        "key_place": place.map(|place| place.replace('`', "")), "address": address,
        "token_until": until.map(|until| until.to_string()),
        "problem": problem.as_ref().map(|problem| format!("{problem:#}")),
    });
    format!("{line}\n")
}

/// Prints the rows. On a terminal, whose columns are `width`, usable providers are marked.
fn table(rows: &[Row], width: Option<usize>, page: &mut Page) -> Result<()> {
    let columns = [
        ("NAME", Side::Left),
        ("KIND", Side::Left),
        ("KEY", Side::Left),
        ("ADDRESS", Side::Left),
        ("LABEL", Side::Left),
    ];
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let cells = [&row.name, row.kind, &key(row), &row.address, &row.label];
            cells.map(harmless).to_vec()
        })
        .collect();
    for (number, line) in aligned(&columns, &cells).iter().enumerate() {
        let is_usable = number > 0 && rows[number - 1].is_usable;
        if width.is_some() {
            let mark = if is_usable { "*" } else { " " };
            page.paint(mark, &Style::new().green())?;
            page.put(" ")?;
        }
        let room = width.map(|width| width.saturating_sub(2));
        page.put(&format!("{}\n", clipped(line, room)))?;
    }
    Ok(())
}

/// A short description of a provider's key.
fn key(row: &Row) -> String {
    match (&row.problem, &row.key, row.until, row.kind) {
        (Some(_), ..) => "cannot be used".into(),
        (None, _, Some(until), _) => format!("login, token until {until}"),
        (None, Some((_, place)), ..) => place.replace('`', ""),
        (None, None, None, "login") => "not logged in".into(),
        (None, None, None, "unbuilt") => "not in this release".into(),
        (None, None, None, "local" | "custom") if row.address.is_empty() => "no address".into(),
        (None, None, None, "local" | "custom") => "not needed".into(),
        (None, None, None, _) => "none".into(),
    }
}

/// Logs in to `vendor`, with the login flow of its server.
pub(super) fn log_in(ctx: &Context, vendor: Vendor) -> Result<()> {
    let endpoints = Endpoints::from_env(&ctx.env)?;
    let http = Http::new(TIMEOUTS, false, &ctx.env);
    // Print this even with `--quiet`, since the login cannot succeed without the code.
    let mut tell = |prompt: Prompt<'_>| {
        let Prompt {
            address,
            code,
            valid,
        } = prompt;
        ctx.terminal
            .complain(&format!("open {address} and enter {code}"));
        let minutes = valid.as_secs().div_ceil(60);
        ctx.terminal
            .complain(&format!("waiting for the login, {minutes} min at most"));
    };
    let folder = ctx.paths.auth();
    login::login(vendor, &folder, &http, &ctx.clock, &endpoints, &mut tell)?;
    let done = format!("logged in to {}\n", vendor.label());
    ctx.terminal.print(&done)
}

fn log_out(ctx: &Context, vendor: Vendor) -> Result<()> {
    let done = match login::logout(vendor, &ctx.paths.auth(), &ctx.clock)? {
        true => "logged out of",
        false => "not logged in to",
    };
    ctx.terminal.print(&format!("{done} {}\n", vendor.label()))
}

#[cfg(test)]
mod tests {
    use crate::sys::web_url;

    #[test]
    fn an_address_keeps_its_secrets() {
        for (base, expect) in [
            ("https://a.example/v1", "https://a.example/v1"),
            ("http://u:p@a.example:8/v1", "http://***@a.example:8/v1"),
            ("http://u:p@a.example", "http://***@a.example"),
            ("https://a.example/v1?key=k", "https://a.example/v1?***"),
            ("https://a.example/@x", "https://a.example/@x"),
            ("", ""),
        ] {
            assert_eq!(web_url::redacted(base), expect);
        }
    }
}
