//! `status check`: prints the result of each check as a row or a JSON object.

use crate::cli::status::StatusCheckArgs;
use crate::ops::context::Context;
use crate::ops::doctor::check::{CheckResult, Severity};
use crate::ops::doctor::{checks, moved_home};
use crate::ops::jobs::time_format::to_one_line;
use anyhow::Result;
use console::Style;
use nanobot_agent::report::columns::hanging_indent;
use nanobot_base::error::Exit;
use nanobot_os::terminal::{StdoutWriter, sanitize, theme};
use serde_json::{Value, json};

/// Columns before the result.
const RESULT_INDENT: usize = 19;

/// Runs `status check`.
pub(super) fn run(ctx: &Context, arguments: StatusCheckArgs) -> Result<Exit> {
    let StatusCheckArgs { fix, offline, no_crontab, json } = arguments;
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
        let one_line = |text: &str| sanitize(&to_one_line(text));
        let mut writer = StdoutWriter::new(self.ctx.terminal);
        let width = self.ctx.terminal.stdout_width();
        let level = level_name(result.severity);
        writer.write_styled(level, &level_style(result.severity))?;
        // The level is printed already, but its columns are part of the first line.
        let head = format!("{level:<4}  {name:<11}  ");
        let row = hanging_indent(&head, &one_line(&result.message), width);
        writer.write(&format!("{}\n", &row[level.len()..]))?;
        if let Some(hint) = &result.hint {
            let head = format!("{:RESULT_INDENT$}try: ", "");
            writer.write(&format!("{}\n", hanging_indent(&head, &one_line(hint), width)))?;
        }
        writer.finish()
    }

    fn end(self) -> Result<Exit> {
        if self.json {
            self.ctx.terminal.print_json(&Value::Array(self.rows))?;
        }
        Ok(self.exit)
    }
}

fn result_json(name: &str, result: &CheckResult) -> Value {
    let CheckResult { severity, message, hint, jobs, exit } = result;
    let is_failed = *severity == Severity::Failed;
    json!({
        "name": name, "ok": !is_failed, "level": level_name(*severity), "detail": message, "try": hint, "jobs": jobs,
        "status": is_failed.then_some(exit.code()),
    })
}

fn level_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Ok => "ok",
        Severity::Warn => "warn",
        Severity::Failed => "no",
    }
}

fn level_style(severity: Severity) -> Style {
    match severity {
        Severity::Ok => Style::new().green(),
        Severity::Warn => theme::attention(),
        Severity::Failed => Style::new().red().bold(),
    }
}
