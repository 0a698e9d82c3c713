//! `status --check`: prints the result of each check as a row or a JSON object.

use crate::cli::status::Status as Arguments;
use crate::error::Exit;
use crate::ops::context::Context;
use crate::ops::doctor::check::{CheckResult, Level};
use crate::ops::doctor::checks;
use crate::report::columns::hanging_indent;
use crate::sys::terminal::{Page, harmless};
use anyhow::Result;
use console::Style;
use serde_json::{Value, json};

/// Columns before the result.
const INDENT: usize = 19;

/// Runs `status --check`.
pub(super) fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    let Arguments {
        check: _,
        offline,
        no_crontab,
        json,
    } = *arguments;
    let mut printer = Printer {
        ctx,
        json,
        exit: Exit::Answered,
        rows: Vec::new(),
    };
    checks::run_all(ctx, offline, no_crontab, &mut |name, results| {
        printer.add(name, results)
    })?;
    printer.end()
}

/// Prints results, and determines the exit status.
struct Printer<'a> {
    ctx: &'a Context,
    json: bool,
    /// The exit status of the first failure.
    exit: Exit,
    rows: Vec<Value>,
}

impl Printer<'_> {
    fn add(&mut self, name: &str, results: Vec<CheckResult>) -> Result<()> {
        for result in results {
            if result.level == Level::Failed && self.exit == Exit::Answered {
                self.exit = result.exit;
            }
            match self.json {
                true => self.rows.push(row(name, &result)),
                false => self.print(name, &result)?,
            }
        }
        Ok(())
    }

    fn print(&self, name: &str, result: &CheckResult) -> Result<()> {
        let one_line =
            |text: &str| harmless(&text.split_whitespace().collect::<Vec<_>>().join(" "));
        let mut page = Page::on(self.ctx.terminal);
        let level = level_word(result.level);
        page.paint(level, &level_style(result.level))?;
        let name = format!("{:<gap$}  {name:<11}  ", "", gap = 4 - level.len());
        // The level is printed already, but takes room in the first line too.
        let room = self.ctx.terminal.width();
        let row = hanging_indent(&format!("{level}{name}"), &one_line(&result.words), room);
        page.put(&format!("{}\n", &row[level.len()..]))?;
        if let Some(hint) = &result.hint {
            let head = format!("{:INDENT$}try: ", "");
            page.put(&format!(
                "{}\n",
                hanging_indent(&head, &one_line(hint), room)
            ))?;
        }
        page.end()
    }

    fn end(self) -> Result<Exit> {
        if self.json {
            self.ctx.terminal.print_json(&Value::Array(self.rows))?;
        }
        Ok(self.exit)
    }
}

fn row(name: &str, result: &CheckResult) -> Value {
    let CheckResult {
        level,
        words,
        hint,
        jobs,
        exit,
    } = result;
    let is_failed = *level == Level::Failed;
    json!({
        "name": name, "ok": !is_failed, "level": level_word(*level), "detail": words, "try": hint, "jobs": jobs,
        "status": is_failed.then_some(exit.code()),
    })
}

fn level_word(level: Level) -> &'static str {
    match level {
        Level::Ok => "ok",
        Level::Warn => "warn",
        Level::Failed => "no",
    }
}

fn level_style(level: Level) -> Style {
    match level {
        Level::Ok => Style::new().green(),
        Level::Warn => Style::new().yellow(),
        Level::Failed => Style::new().red().bold(),
    }
}
