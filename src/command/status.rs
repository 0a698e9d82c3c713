//! `nanobot status`: what is configured, what was spent, how the memory is, and what cron does next, on one screen.

use crate::cli::status::Status as Arguments;
use crate::error::{Exit, hint_of};
use crate::ledger::{Ledger, Totals, rounded};
use crate::memory::Memory;
use crate::memory::last::Outcome;
use crate::memory::request::{self, LETTERS};
use crate::ops::context::Context;
use crate::ops::doctor::unused_tools::Offered;
use crate::ops::doctor::{check, cron};
use crate::ops::model::{self, Endpoint};
use crate::ops::permissions;
use crate::ops::permissions::Grants;
use crate::ops::toolset::may_write;
use crate::policy::{Policy, Sandbox};
use crate::report::columns::hanging_indent;
use crate::session;
use crate::settings::Settings;
use crate::sys::paths::Real;
use crate::sys::sandbox;
use crate::sys::store::size_in_words;
use crate::sys::terminal::{Page, harmless};
use anyhow::Result;
use console::Style;
use serde_json::{Value, json};

/// Columns before what is said.
const INDENT: usize = 11;
/// Rows that stand out: something is wrong, or to be done.
const LOUD: [&str; 3] = ["trouble", "failed", "next"];

/// What a run from here may do.
struct Scope {
    profile: String,
    policy: Policy,
}

impl Scope {
    fn of(ctx: &Context, settings: &Settings) -> Result<Self> {
        let grants = Grants::default();
        let profile = permissions::profile(ctx, &grants, settings)?;
        let home = Real::default().of(&permissions::absolute(&settings.workspace));
        let policy = permissions::policy(ctx, &grants, settings, &profile, &home)?;
        Ok(Self {
            profile: profile.name,
            policy,
        })
    }

    fn rows(&self, ctx: &Context) -> [(&'static str, String); 2] {
        let place = ctx.paths.display(&self.policy.reach.directory);
        let directory = match may_write(&self.policy) {
            true => format!("{place}, which may be changed"),
            false => format!("{place}, read only without `--write`"),
        };
        let commands = match (self.policy.sandbox, sandbox::available()) {
            (Sandbox::Off, _) => "commands are not contained".into(),
            (_, Ok(())) => "commands run in the sandbox".into(),
            (_, Err(lack)) => format!("commands are refused: {lack}"),
        };
        let profile = format!("{}; {commands}", self.profile);
        [("directory", directory), ("profile", profile)]
    }

    fn json(&self) -> Value {
        json!({
            "directory": self.policy.reach.directory, "may_write": may_write(&self.policy), "profile": self.profile,
            "sandbox": match self.policy.sandbox {
                Sandbox::Off => "off",
                _ if sandbox::available().is_ok() => "on",
                _ => "none",
            },
        })
    }
}

/// What this day and this month have cost.
fn spent_in_words(settings: &Settings, spent: &Totals) -> String {
    let part = |spent: f64, limit: Option<f64>| match limit {
        Some(limit) => format!("${spent:.2} of ${limit:.2}"),
        None => format!("${spent:.2}"),
    };
    let budget = &settings.budget;
    format!(
        "{} today, {} this month",
        part(spent.daily, budget.daily),
        part(spent.monthly, budget.monthly)
    )
}

pub fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    if arguments.check {
        return check::run(ctx, arguments);
    }
    let settings = ctx.settings()?;
    let asked = model::resolve_endpoint(ctx, &settings, &settings.asked[0], true, true);
    let sessions = session::list(&ctx.session_place(&settings)?)?
        .sessions
        .len();
    let memory = Memory::new(&settings.workspace, &ctx.clock);
    let text = memory.read()?.unwrap_or_default();
    let shown = String::from_utf8_lossy(&text);
    let (tokens, budget) = (
        shown.chars().count().div_ceil(LETTERS),
        settings.memory.budget,
    );
    let is_over = request::is_over(&shown, budget);
    let last = memory.last()?;
    let trouble = memory.trouble()?;
    let cron = cron::Glance::of(ctx, &settings);
    let scope = Scope::of(ctx, &settings);
    let offered = Offered::of(ctx, &settings)?;
    let ledger = Ledger::new(&ctx.paths.root, &ctx.clock);
    let spent = ledger.spent()?.unwrap_or_default();
    let next = match &asked {
        Err(error) => hint_of(error).map(str::to_owned),
        Ok(_) => cron.next_step(),
    };
    if arguments.json {
        let (choice, error) = match &asked {
            Ok(Endpoint { choice, .. }) => (Some(choice), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        let memory = json!({
            "bytes": text.len(), "tokens": tokens, "budget_tokens": budget, "over_budget": is_over,
            "last_consolidation": last,
            "trouble": trouble,
        });
        let line = json!({
            "model": choice.map(|choice| &choice.model), "provider": choice.map(|choice| &choice.provider),
            "key": choice.map(|choice| choice.key_place.replace('`', "")), "error": error,
            "config": ctx.paths.config, "workspace": settings.workspace, "sessions": sessions, "memory": memory,
            "cron": cron.json(), "scope": scope.as_ref().ok().map(Scope::json),
            "offered": offered.json(),
            "spent": { "day_usd": rounded(spent.daily), "month_usd": rounded(spent.monthly) }, "next": next,
        });
        ctx.terminal.print_json(&line)?;
        return Ok(Exit::Answered);
    }
    let config_shown = ctx.paths.display(&ctx.paths.config);
    let mut rows = vec![(
        "config",
        match ctx.paths.config.exists() {
            true => config_shown,
            false => format!("{config_shown}, which is not there yet"),
        },
    )];
    rows.extend(match &asked {
        Ok(Endpoint { choice, wire }) => vec![
            ("model", choice.model.clone()),
            ("provider", choice.provider.clone()),
            (
                "key",
                match wire.key.is_some() {
                    true => choice.key_place.replace('`', ""),
                    false => "none".into(),
                },
            ),
        ],
        Err(error) => vec![("model", format!("none can be asked: {error:#}"))],
    });
    let place = ctx.paths.display(&settings.workspace);
    rows.push((
        "workspace",
        match settings.workspace.is_dir() {
            true => place,
            false => format!("{place}, which is not there yet"),
        },
    ));
    match &scope {
        Ok(scope) => rows.extend(scope.rows(ctx)),
        Err(error) => rows.push(("profile", format!("{error:#}"))),
    }
    rows.extend(offered.rows());
    rows.push(("sessions", sessions.to_string()));
    let over = match is_over {
        true => "; that is over its budget, and the next consolidation is asked to tidy it",
        false => "",
    };
    let size = size_in_words(text.len() as u64);
    rows.push((
        "memory",
        format!("{size}, some {tokens} of {budget} tokens{over}"),
    ));
    let when = last.map_or_else(
        || "never".into(),
        |last| {
            let outcome = match last.outcome {
                Outcome::New => "",
                Outcome::Same => "; the memory stayed as it was",
                Outcome::Aside => "; the new text is kept aside",
                Outcome::Raw => "; the history has its messages as they are",
            };
            format!("{}, of {}{outcome}", last.time, last.session)
        },
    );
    rows.push(("made", when));
    rows.extend(
        trouble.map(|words| ("trouble", format!("the last consolidation failed: {words}"))),
    );
    rows.extend(cron.rows(ctx));
    rows.push(("spent", spent_in_words(&settings, &spent)));
    rows.extend(next.map(|step| ("next", step)));
    show(ctx, &rows)?;
    Ok(Exit::Answered)
}

/// A row for each; on a terminal no wider than that.
fn show(ctx: &Context, rows: &[(&str, String)]) -> Result<()> {
    let mut page = Page::on(ctx.terminal);
    for (name, words) in rows {
        let is_loud = LOUD.contains(name);
        let style = if is_loud {
            Style::new().yellow()
        } else {
            Style::new().bold()
        };
        let words = harmless(words);
        page.paint(name, &style)?;
        let head = format!("{name:INDENT$}");
        let row = hanging_indent(&head, &words, ctx.terminal.width());
        page.put(&format!("{}\n", &row[name.len()..]))?;
    }
    page.end()
}
