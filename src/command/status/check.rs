//! `status --check`: prints the result of each check as a row or a JSON object.

use crate::cli::status::StatusArgs as Arguments;
use crate::ops::context::Context;
use crate::ops::doctor::check::{CheckResult, Severity};
use crate::ops::doctor::{checks, moved_home};
use anyhow::Result;
use console::Style;
use nanobot_agent::report::columns::hanging_indent;
use nanobot_base::error::Exit;
use nanobot_os::terminal::{StdoutWriter, sanitize, theme};
use serde_json::{Value, json};

/// Columns before the result.
const RESULT_INDENT: usize = 19;

/// Runs `status --check`.
pub(super) fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    let Arguments { check: _, fix, offline, no_crontab, json } = *arguments;
    let mut printer = CheckPrinter { ctx, json, exit: Exit::Answered, rows: Vec::new() };
    if fix {
        printer.add("moved", moved_home::correct_paths(ctx, no_crontab)?)?;
    }
    checks::run_all(ctx, offline, no_crontab, &mut |name, results| printer.add(name, results))?;
    printer.end()
}

/// Prints results, and determines the exit status.
struct CheckPrinter<'a> {
    ctx: &'a Context,
    json: bool,
    /// The exit status of the first failure.
    exit: Exit,
    rows: Vec<Value>,
}

impl CheckPrinter<'_> {
    fn add(&mut self, name: &str, results: Vec<CheckResult>) -> Result<()> {
        for result in results {
            if result.severity == Severity::Failed && self.exit == Exit::Answered {
                self.exit = result.exit;
            }
            if self.json {
                self.rows.push(result_json(name, &result));
            } else {
                self.print(name, &result)?;
            }
        }
        Ok(())
    }

    fn print(&self, name: &str, result: &CheckResult) -> Result<()> {
        let one_line =
            |text: &str| sanitize(&text.split_whitespace().collect::<Vec<_>>().join(" "));
        let mut page = StdoutWriter::new(self.ctx.terminal);
        let level = level_word(result.severity);
        page.write_styled(level, &level_style(result.severity))?;
        let name = format!("{:<gap$}  {name:<11}  ", "", gap = 4 - level.len());
        // The level is printed already, but takes room in the first line too.
        let room = self.ctx.terminal.stdout_width();
        let row = hanging_indent(&format!("{level}{name}"), &one_line(&result.message), room);
        page.write(&format!("{}\n", &row[level.len()..]))?;
        if let Some(hint) = &result.hint {
            let head = format!("{:RESULT_INDENT$}try: ", "");
            page.write(&format!("{}\n", hanging_indent(&head, &one_line(hint), room)))?;
        }
        page.finish()
    }

    fn end(self) -> Result<Exit> {
        if self.json {
            self.ctx.terminal.print_json(&Value::Array(self.rows))?;
        }
        Ok(self.exit)
    }
}

fn result_json(name: &str, result: &CheckResult) -> Value {
    let CheckResult { severity: level, message: words, hint, jobs, exit } = result;
    let is_failed = *level == Severity::Failed;
    json!({
        "name": name, "ok": !is_failed, "level": level_word(*level), "detail": words, "try": hint, "jobs": jobs,
        "status": is_failed.then_some(exit.code()),
    })
}

fn level_word(level: Severity) -> &'static str {
    match level {
        Severity::Ok => "ok",
        Severity::Warn => "warn",
        Severity::Failed => "no",
    }
}

fn level_style(level: Severity) -> Style {
    match level {
        Severity::Ok => Style::new().green(),
        Severity::Warn => theme::attention(),
        Severity::Failed => Style::new().red().bold(),
    }
}
