//! The prompts at the terminal: answers the model's questions, and asks the user to approve calls that exceed the run's
//! permissions.

use super::bell::Bell;
use super::form;
use crate::ops::approval_text;
use crate::ops::change_preview::ChangePreview;
use crate::ops::context::Context;
use crate::ops::permanent_rule::{self, PermanentRule};
use crate::options::turn::TurnOptions;
use crate::repl::editor::{Choice, Editor, InputLine};
use console::Style;
use nanobot_agent::report::short_text::truncate_line;
use nanobot_base::diff::Diff;
use nanobot_mcp::client::ElicitationHandler;
use nanobot_mcp::sanitize;
use nanobot_os::signal;
use nanobot_os::sync::IgnorePoison;
use nanobot_os::terminal::{StyledLine, sanitize, theme, wrap_words};
use nanobot_tool::ask_user::UserPrompt;
use nanobot_tool::{Approval, ApprovalRequest, ToolError};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Maximum characters shown of a server's question.
const MAX_QUESTION_CHARS: usize = 1000;
/// The answers to a yes-or-no question, and the index of the one that Enter alone is.
const YES_NO: [Choice; 2] = [YES, NO];
const NO_INDEX: usize = 1;

const YES: Choice = Choice::immediate("yes");
const NO: Choice = Choice::immediate("no");
const REASON: Choice = Choice::immediate("reason");
const VIEW: Choice = Choice::immediate("view");
// A grant beyond this call takes more than one key.
const SESSION: Choice = Choice::confirmed("session");
const ALWAYS: Choice = Choice::confirmed("always");
/// Number of attempts that the user has to enter a valid answer.
const MAX_ATTEMPTS: usize = 3;

/// The editor, shared by the loop and the prompts for approval.
pub(super) type SharedEditor = Arc<Mutex<Editor>>;

/// Asks the user at the terminal.
pub(super) struct TerminalPrompter {
    ctx: Context,
    editor: SharedEditor,
    bell: Arc<Bell>,
    grants: Mutex<SessionGrants>,
}

/// Permissions that the user granted for longer than one call.
struct SessionGrants {
    /// Pairs of a tool and the missing permission: such calls are allowed until the conversation ends.
    granted: BTreeSet<(String, String)>,
    /// The profile of the turns, to which a rule is written.
    profile: Option<String>,
}

/// An answer to a request for approval.
enum ApprovalAnswer {
    Yes,
    Session,
    Always,
    No(Option<String>),
}

impl TerminalPrompter {
    /// Creates a prompter without any grants.
    pub(super) fn new(
        ctx: &Context,
        arguments: &TurnOptions,
        editor: &SharedEditor,
        bell: &Arc<Bell>,
    ) -> Self {
        Self {
            ctx: ctx.clone(),
            editor: Arc::clone(editor),
            bell: Arc::clone(bell),
            grants: Mutex::new(SessionGrants {
                granted: BTreeSet::new(),
                profile: arguments.grants.profile.clone(),
            }),
        }
    }

    /// Switches to another profile, and drops all grants made under the previous one.
    pub(super) fn change_profile(&self, profile: Option<&str>) {
        self.grants().profile = profile.map(str::to_owned);
        self.clear_grants();
    }

    /// Drops the grants of this conversation, because another one begins.
    pub(super) fn clear_grants(&self) {
        self.grants().granted.clear();
    }

    fn grants(&self) -> MutexGuard<'_, SessionGrants> {
        self.grants.lock().ignore_poison()
    }

    /// Reads an answer to `prompt`, which the `options` suggest. `is_new` is false for a later part of a question.
    fn read_answer(
        &self,
        prompt: &str,
        options: &[String],
        is_new: bool,
    ) -> Result<String, ToolError> {
        let mut editor = self.editor.lock().ignore_poison();
        to_answer(editor.prompt(prompt, options, is_new))
    }

    /// Reads one of `choices`; Enter alone is the choice `default`.
    fn read_choice(
        &self,
        prompt: &str,
        choices: &[Choice],
        default: Option<usize>,
    ) -> Result<String, ToolError> {
        let mut editor = self.editor.lock().ignore_poison();
        to_answer(editor.choose(prompt, choices, default))
    }

    /// Asks a question; only a yes is one.
    pub(super) fn confirm(&self, question: &str) -> bool {
        // The last sentence stands on a row of its own, which is drawn again with the answer.
        let (before, last) = question.rsplit_once(". ").unwrap_or(("", question));
        for row in wrap_words(before, self.width(), 2).lines() {
            self.print_styled(row, &Style::new().bold());
        }
        let answer = self.read_choice(last, &YES_NO, Some(NO_INDEX));
        answer.is_ok_and(|answer| answer == YES.word)
    }

    /// Asks the user for the value of a field, which is `Some(None)` if they leave it out; `None` if they stop.
    fn ask_field(&self, field: &form::FormField) -> Option<Option<Value>> {
        for row in wrap(&sanitize(&field.question), self.width()) {
            self.print_styled(&format!("  {row}"), &Style::new());
        }
        for attempt in 0..MAX_ATTEMPTS {
            let text = self.read_answer("  answer: ", &[], attempt == 0).ok()?;
            match field.parse(&text) {
                Ok(value) => return Some(value),
                Err(words) => {
                    self.print_styled(&format!("  {}", sanitize(&words)), &Style::new().dim());
                }
            }
        }
        None
    }

    fn print_styled(&self, text: &str, style: &Style) {
        let row = StyledLine::default().styled(text, style.clone());
        self.ctx.terminal.eprint_exact(&row);
    }

    /// Prints a question, which `?` marks.
    fn print_question(&self, question: &str) {
        let strong = theme::attention().bold();
        for row in wrap_words(&format!("? {question}"), self.width(), 2).lines() {
            self.print_styled(row, &strong);
        }
    }

    /// Asks for approval of `case` until there is a valid answer.
    fn request_approval(
        &self,
        case: &ApprovalRequest<'_>,
        rule: Option<&PermanentRule>,
    ) -> Result<ApprovalAnswer, ToolError> {
        self.bell.ring_if_long();
        let strong = theme::attention().bold();
        let dim = Style::new().dim();
        let head = approval_text::headline(case, ChangePreview::is_new_file(case));
        self.print_question(&head);
        if let Some(why) = approval_text::reason(case) {
            for row in wrap(&sanitize(&truncate_line(why, 300)), self.width()) {
                self.print_styled(&format!("  {row}"), &dim);
            }
        }
        let rows = self.call_rows(case);
        // Keep both the details of the call and the question on the screen.
        let room = self.ctx.terminal.stdout_height().saturating_sub(10).max(8);
        let is_cut = rows.len() > room;
        for (text, style) in rows.iter().take(room) {
            self.print_styled(text, style);
        }
        if is_cut {
            let more = format!("  … and {} more rows; v shows all", rows.len() - room);
            self.print_styled(&more, &strong);
            self.print_question(&head);
        }
        let mut choices = vec![YES, NO, REASON];
        choices.extend(is_cut.then_some(VIEW));
        // A hook's question is about one call.
        let is_lasting = case.refusal.suggested_flag.is_some();
        let rule = rule.filter(|_| is_lasting);
        choices.extend(is_lasting.then_some(SESSION));
        choices.extend(rule.map(|_| ALWAYS));
        let view = if is_cut { " · [v]iew all" } else { "" };
        let mut words = vec![format!("[y]es, once · [n]o · no, with a [r]eason{view}")];
        let session = || format!("this [s]ession: {}", approval_text::permission(case));
        words.extend(is_lasting.then(session));
        words.extend(
            rule.map(|rule| format!("[a]lways, in every run: the rule `{}`", rule.description)),
        );
        let print_keys = || {
            for row in wrap_words(&words.join("\n"), self.width(), 2).lines() {
                self.print_styled(&format!("  {row}"), &dim);
            }
        };
        print_keys();
        loop {
            return Ok(match self.read_choice("  allow? ", &choices, None)?.as_str() {
                "yes" => ApprovalAnswer::Yes,
                "session" => ApprovalAnswer::Session,
                "always" => ApprovalAnswer::Always,
                "no" => ApprovalAnswer::No(None),
                "reason" => {
                    let why = self.read_answer("  why not? ", &[], false)?;
                    ApprovalAnswer::No((!why.is_empty()).then_some(why))
                }
                "view" => {
                    for (text, style) in &rows {
                        self.print_styled(text, style);
                    }
                    self.print_question(&head);
                    print_keys();
                    continue;
                }
                _ => {
                    self.print_styled("  one of the keys in brackets", &dim);
                    continue;
                }
            });
        }
    }

    /// Columns of a row in a prompt.
    fn width(&self) -> usize {
        let width = self.ctx.terminal.stdout_width().unwrap_or(80);
        width.saturating_sub(5).max(20)
    }

    /// Everything that the user decides about, in rows: the command or the change, and every other argument. Each row
    /// begins with a mark of ours, so that no argument can imitate a row.
    fn call_rows(&self, case: &ApprovalRequest<'_>) -> Vec<(String, Style)> {
        let mut rows = Vec::new();
        let mut add = |mark: &str, text: &str, style: &Style| {
            for line in text.split('\n') {
                for (number, row) in wrap(&sanitize(line), self.width()).into_iter().enumerate() {
                    let mark = if number == 0 { mark } else { "│" };
                    rows.push((format!("  {mark} {row}"), style.clone()));
                }
            }
        };
        let plain = Style::new();
        let ApprovalRequest { tool, arguments, .. } = *case;
        let text = |key: &str| arguments[key].as_str().unwrap_or_default();
        let mut shown: &[&str] = &[];
        match tool {
            "exec" => {
                shown = &["command"];
                add("$", text("command"), &plain);
            }
            "process" if arguments["input"].is_string() => {
                shown = &["input"];
                add("›", text("input").trim_end_matches('\n'), &plain);
            }
            "write_file" | "edit_file" => {
                if approval_text::headline_path(case).is_none() {
                    add("·", &format!("path: {}", text("path")), &plain);
                }
                let change = ChangePreview::for_request(case);
                if !change.is_complete {
                    let words = "replaces a file that is too large to show, or is not text";
                    add("·", words, &plain);
                }
                shown = match tool {
                    "write_file" => &["path", "content"],
                    _ => &["path", "old_text", "new_text"],
                };
                for line in Diff::new(&change.before, &change.after).unified(2).lines() {
                    add(" ", line, &diff_line_style(line));
                }
            }
            // A patch shows every change itself.
            "apply_patch" => {
                shown = &["patch"];
                for line in text("patch").trim_end().lines() {
                    add(" ", line, &diff_line_style(line));
                }
            }
            "read_file" | "delete_file" if approval_text::headline_path(case).is_some() => {
                shown = &["path"];
            }
            _ => {}
        }
        for change in case.withheld {
            for line in Diff::new(&change.before, &change.after).unified(2).lines() {
                add(" ", line, &diff_line_style(line));
            }
        }
        for (name, value) in arguments.as_object().into_iter().flatten() {
            if shown.contains(&name.as_str()) {
                continue;
            }
            add("·", &format!("{name}: {}", argument_text(value)), &plain);
        }
        rows
    }
}

fn diff_line_style(line: &str) -> Style {
    match line.chars().next() {
        Some('+') => Style::new().green(),
        Some('-') => Style::new().red(),
        Some('@') => Style::new().fg(theme::accent()),
        _ => Style::new(),
    }
}

/// The text of an answer.
fn to_answer(line: anyhow::Result<InputLine>) -> Result<String, ToolError> {
    match line {
        Ok(InputLine::Text(text) | InputLine::NextProfile(text)) => Ok(text.trim().to_owned()),
        Ok(InputLine::End) => Err(ToolError::Declined(
            "Tool call denied: the user did not answer. Continue without it.".into(),
        )),
        Ok(InputLine::Interrupted) => {
            signal::record_interrupt();
            Err("the user interrupted".into())
        }
        // The terminal may be gone, for example. The cause that ends the run is reported elsewhere.
        Err(_) => Err(ToolError::Declined(
            "Tool call denied: the user could not be asked. Continue without it.".into(),
        )),
    }
}

/// Wraps `text` into rows of at most `width` columns, at blanks if possible. A run of more than 24 blanks is replaced
/// by its length, so that it cannot hide the text after it.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut line = String::new();
    let mut blanks = 0;
    for letter in text.trim_end().chars().chain(['\n']) {
        match letter {
            ' ' | '\t' => blanks += 1,
            _ => {
                if blanks > 24 && !line.is_empty() {
                    line.push_str(&format!(" ⟨{blanks} blanks⟩ "));
                } else {
                    line.extend(std::iter::repeat_n(' ', blanks));
                }
                blanks = 0;
                line.push(letter);
            }
        }
    }
    line.pop();
    let (mut rows, mut row, mut columns) = (Vec::new(), String::new(), 0);
    for word in line.split_inclusive(' ') {
        let own = word.trim_end_matches(' ').width();
        // A word that fits into a row is not broken.
        if columns + own > width && own <= width && columns > 0 {
            rows.push(std::mem::take(&mut row));
            columns = 0;
        }
        for letter in word.chars() {
            let own = letter.width().unwrap_or(0);
            if columns + own > width {
                rows.push(std::mem::take(&mut row));
                columns = 0;
            }
            row.push(letter);
            columns += own;
        }
    }
    rows.push(row);
    rows
}

impl ElicitationHandler for TerminalPrompter {
    fn ask_user(&self, server: &str, asks: &str, form: &Value) -> Option<Map<String, Value>> {
        let fields = form::fields(form);
        self.ctx.terminal.with_exclusive_use(|| {
            let server = sanitize::single_line(server, 80);
            self.bell.ring_if_long();
            self.print_question(&format!("the server `{server}` asks you:"));
            for line in sanitize::clean(&truncate_line(asks, MAX_QUESTION_CHARS)).split('\n') {
                for row in wrap(&sanitize(line), self.width()) {
                    self.print_styled(&format!("  │ {row}"), &Style::new());
                }
            }
            let all = "your answers are sent to this server; an empty line skips a question, and Ctrl-D cancels";
            for row in wrap(all, self.width()) {
                self.print_styled(&format!("  {row}"), &Style::new().dim());
            }
            let mut entered = Map::new();
            for field in &fields {
                let value = self.ask_field(field)?;
                entered.extend(value.map(|value| (field.name.clone(), value)));
            }
            let sure = if fields.is_empty() { "  continue? [y/N] " } else { "  send this? [y/N] " };
            let answer = self.read_choice(sure, &YES_NO, Some(NO_INDEX)).ok()?;
            (answer == YES.word).then_some(entered)
        })
    }
}

impl UserPrompt for TerminalPrompter {
    fn answer(&self, question: &str, options: &[String]) -> Result<String, ToolError> {
        self.ctx.terminal.with_exclusive_use(|| {
            self.bell.ring_if_long();
            self.print_question("the model asks:");
            for line in question.split('\n') {
                for row in wrap(&sanitize(line), self.width()) {
                    self.print_styled(&format!("  │ {row}"), &Style::new());
                }
            }
            let clean = |option: &String| option.replace(['\n', '\r'], " ");
            let options: Vec<String> = options.iter().map(clean).collect();
            for (number, option) in options.iter().enumerate() {
                let number = format!("{}.", number + 1);
                // The rows after the first one hang below its text.
                let mark = |row: usize| if row == 0 { number.as_str() } else { "  " };
                let rows = wrap(&sanitize(option), self.width().saturating_sub(1));
                for (row, text) in rows.iter().enumerate() {
                    self.print_styled(&format!("  {} {text}", mark(row)), &Style::new());
                }
            }
            let text = self.read_answer("  answer: ", &options, true)?;
            if text.is_empty() {
                return Err(ToolError::Declined("the user gave no answer; decide yourself".into()));
            }
            let number = text.parse().ok().and_then(|number: usize| number.checked_sub(1));
            Ok(number.and_then(|number| options.get(number)).cloned().unwrap_or(text))
        })
    }

    fn approve(&self, case: &ApprovalRequest<'_>) -> Result<Approval, ToolError> {
        let grant = case.refusal.suggested_flag.clone().unwrap_or_default();
        let key = (case.tool.to_owned(), grant);
        // If two calls ask at the same time, the first answer may already cover the second call.
        self.ctx.terminal.with_exclusive_use(|| {
            if self.grants().granted.contains(&key) {
                return Ok(Approval::Earlier);
            }
            let profile = self.grants().profile.clone();
            let rule = permanent_rule::rule_for(&self.ctx, profile.as_deref(), case);
            match self.request_approval(case, rule.as_ref())? {
                ApprovalAnswer::Yes => {}
                ApprovalAnswer::Session => {
                    self.grants().granted.insert(key.clone());
                }
                ApprovalAnswer::Always => {
                    self.grants().granted.insert(key.clone());
                    let message = match rule.as_ref().map(|rule| rule.write(&self.ctx)) {
                        Some(Err(error)) => format!("nanobot: cannot save the rule: {error:#}"),
                        Some(Ok(place)) => format!("  (saved in {place})"),
                        None => String::new(),
                    };
                    self.print_styled(&message, &Style::new().dim());
                }
                ApprovalAnswer::No(None) => {
                    return Err(ToolError::Declined(
                        "Tool call denied: the user said no. Continue without it.".into(),
                    ));
                }
                ApprovalAnswer::No(Some(why)) => {
                    return Err(ToolError::Declined(format!(
                        "Tool call denied: the user said no: {why}"
                    )));
                }
            }
            Ok(Approval::Asked)
        })
    }
}

/// An argument as a person reads it.
fn argument_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn rows_are_whole_and_fit() {
        let check = |text: &str, width: usize, expect: &[&str]| {
            assert_eq!(wrap(text, width), expect, "{text:?}");
        };
        check("", 10, &[""]);
        check("touch a", 10, &["touch a"]);
        check("touch a b c d", 10, &["touch a b ", "c d"]);
        check("a command", 8, &["a ", "command"]);
        check("abcdefghijklm", 10, &["abcdefghij", "klm"]);
        check("日本語日本語", 10, &["日本語日本", "語"]);
        check("\t  x", 10, &["   x"]);
        let padded = format!("touch a #{}? exec", " ".repeat(500));
        check(&padded, 40, &["touch a # ⟨500 blanks⟩ ? exec"]);
        // No text is lost.
        let long = "word ".repeat(50);
        assert_eq!(wrap(&long, 20).concat(), long.trim_end());
    }
}
