//! The prompts at the terminal: answers the model's questions, and asks the user to approve calls that exceed the run's
//! permissions.

use super::bell::Bell;
use super::{form, rule};
use crate::diff::Diff;
use crate::mcp::client::ElicitationHandler;
use crate::mcp::sanitize;
use crate::ops::context::Context;
use crate::ops::turn_options::TurnOptions;
use crate::report::short_text::truncate_line;
use crate::sys::durable_file;
use crate::sys::editor::{Editor, InputLine};
use crate::sys::signal;
use crate::sys::sync::IgnorePoison;
use crate::sys::terminal::{StyledLine, sanitize, theme, wrap_words};
use crate::tool::ask_user::UserPrompt;
use crate::tool::{ApprovalRequest, ToolError};
use console::Style;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The largest file whose change is shown, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Maximum characters shown of a server's question.
const MAX_QUESTION_CHARS: usize = 1000;
/// The keys that answer a yes-or-no question.
const YES_NO: [char; 2] = ['y', 'n'];
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

    /// Reads an answer to `prompt`; each of `keys` is one without Enter.
    fn read_answer(&self, prompt: &str, keys: &[char]) -> Result<String, ToolError> {
        let line = self.editor.lock().ignore_poison().prompt(prompt, keys);
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

    /// Asks a question; only a yes is one.
    pub(super) fn confirm(&self, question: &str) -> bool {
        let answer = self.read_answer(question, &YES_NO).unwrap_or_default();
        matches!(answer.to_lowercase().as_str(), "y" | "yes")
    }

    /// Asks the user for the value of a field, which is `Some(None)` if they leave it out; `None` if they stop.
    fn ask_field(&self, field: &form::FormField) -> Option<Option<Value>> {
        for row in wrap(&sanitize(&field.question), self.width()) {
            self.print_styled(&format!("  {row}"), &Style::new());
        }
        for _ in 0..MAX_ATTEMPTS {
            let text = self.read_answer("  answer: ", &[]).ok()?;
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
        rule: Option<&rule::PermanentRule>,
    ) -> Result<ApprovalAnswer, ToolError> {
        self.bell.ring_if_long();
        let strong = theme::attention().bold();
        let head = question_for(case);
        self.print_question(&head);
        let flag = case.refusal.suggested_flag.as_deref().unwrap_or_default();
        // The reason for a request under an `--allow` rule is written for the model, and tells the user nothing.
        let is_consent = flag.starts_with("--allow");
        if !is_consent && !case.is_retry {
            let why = sanitize(&truncate_line(&case.refusal.message, 300));
            for row in wrap(&why, self.width()) {
                self.print_styled(&format!("  {row}"), &Style::new().dim());
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
        let view = if is_cut { " · [v]iew all" } else { "" };
        let mut choices = vec![
            format!("[y]es, once · [n]o · no, with a [r]eason{view}"),
            format!(
                "for this [s]ession, with Enter: each `{}` that needs `{flag}`",
                case.tool
            ),
        ];
        choices.extend(
            rule.map(|rule| format!("[a]lways, with Enter, as a rule: {}", rule.description)),
        );
        for row in wrap_words(&choices.join("\n"), self.width(), 2).lines() {
            self.print_styled(&format!("  {row}"), &Style::new().dim());
        }
        loop {
            // A grant beyond this call takes more than one key: a single letter could begin a sentence.
            let text = self.read_answer("  allow? ", &['y', 'n', 'r', 'v'])?;
            let lower = text.to_lowercase();
            return Ok(match lower.as_str() {
                "y" | "yes" => ApprovalAnswer::Yes,
                "s" | "session" => ApprovalAnswer::Session,
                "a" | "always" if rule.is_some() => ApprovalAnswer::Always,
                "n" | "no" => ApprovalAnswer::No(None),
                "r" | "reason" => {
                    let why = self.read_answer("  why not? ", &[])?;
                    ApprovalAnswer::No((!why.is_empty()).then_some(why))
                }
                "v" | "view" => {
                    for (text, style) in &rows {
                        self.print_styled(text, style);
                    }
                    self.print_question(&head);
                    continue;
                }
                // Ask again: so short a text is not a reason for declining, and neither is a slash command.
                _ if text.chars().count() < 5 || text.starts_with('/') => {
                    self.print_styled("  one of the keys in brackets", &Style::new().dim());
                    continue;
                }
                _ => {
                    let why = ["no because", "no, because", "no:", "no,", "n,", "n:"];
                    let why = why.iter().find(|begin| lower.starts_with(**begin));
                    let text = why.map_or(text.as_str(), |begin| text[begin.len()..].trim());
                    ApprovalAnswer::No((!text.is_empty()).then(|| text.to_owned()))
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
        let ApprovalRequest {
            tool, arguments, ..
        } = *case;
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
                add("·", &format!("path: {}", text("path")), &plain);
                let old = self.current_content(case);
                let (before, after) = match (tool, old) {
                    ("write_file", CurrentContent::Text(old)) => (old, text("content").to_owned()),
                    ("write_file", CurrentContent::None) => {
                        (String::new(), text("content").to_owned())
                    }
                    ("edit_file", CurrentContent::Text(old)) if old.contains(text("old_text")) => {
                        let all = arguments["replace_all"] == true;
                        let (old_text, new_text) = (text("old_text"), text("new_text"));
                        let new = match all {
                            true => old.replace(old_text, new_text),
                            false => old.replacen(old_text, new_text, 1),
                        };
                        (old, new)
                    }
                    ("edit_file", _) => {
                        add("·", "the file does not contain `old_text`", &plain);
                        (text("old_text").to_owned(), text("new_text").to_owned())
                    }
                    (_, _) => {
                        add(
                            "·",
                            "replaces a file that is too large to show, or is not text",
                            &plain,
                        );
                        (String::new(), text("content").to_owned())
                    }
                };
                shown = match tool {
                    "write_file" => &["path", "content"],
                    _ => &["path", "old_text", "new_text"],
                };
                for line in Diff::new(&before, &after).unified(2).lines() {
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
            _ => {}
        }
        for (name, value) in arguments.as_object().into_iter().flatten() {
            if shown.contains(&name.as_str()) {
                continue;
            }
            add("·", &format!("{name}: {}", argument_text(value)), &plain);
        }
        rows
    }

    /// The current content of the file that `case` would change.
    fn current_content(&self, case: &ApprovalRequest<'_>) -> CurrentContent {
        let given = case.arguments["path"].as_str().unwrap_or_default();
        let path = case.file_scope.absolute(given);
        match std::fs::metadata(&path) {
            Err(_) => return CurrentContent::None,
            Ok(about) if !about.is_file() || about.len() > MAX_FILE_BYTES => {
                return CurrentContent::Other;
            }
            Ok(_) => {}
        }
        match durable_file::read_limited(&path, MAX_FILE_BYTES)
            .map(|bytes| bytes.map(String::from_utf8))
        {
            Ok(Some(Ok(text))) => CurrentContent::Text(text),
            Ok(None) => CurrentContent::None,
            _ => CurrentContent::Other,
        }
    }
}

/// The content of a file.
enum CurrentContent {
    None,
    Text(String),
    /// Cannot be shown: too large, not a regular file, or not UTF-8.
    Other,
}

fn diff_line_style(line: &str) -> Style {
    match line.chars().next() {
        Some('+') => Style::new().green(),
        Some('-') => Style::new().red(),
        Some('@') => Style::new().fg(theme::accent()),
        _ => Style::new(),
    }
}

/// The question for the user, in one line of fixed text.
fn question_for(case: &ApprovalRequest<'_>) -> String {
    let ApprovalRequest {
        tool,
        is_retry: again,
        ..
    } = case;
    let flag = case.refusal.suggested_flag.as_deref().unwrap_or_default();
    let place = case.file_scope.directory.display();
    match (flag, again) {
        ("--write", true) => format!(
            "{tool} failed, perhaps because it may not write: run it again with write access to {place}?"
        ),
        ("--net", true) => {
            format!(
                "{tool} failed, perhaps because it has no network: run it again with network access?"
            )
        }
        (flag, true) => format!("{tool} failed: run it again with `{flag}`?"),
        (flag, false) if flag.starts_with("--allow") => {
            format!("{tool} needs approval: allow it?")
        }
        (flag, false) => {
            format!("{tool} exceeds this run's permissions: allow it, as with `{flag}`?")
        }
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
                match blanks > 24 && !line.is_empty() {
                    true => line.push_str(&format!(" ⟨{blanks} blanks⟩ ")),
                    false => line.extend(std::iter::repeat_n(' ', blanks)),
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
            let sure = match fields.is_empty() {
                true => "  continue? [y/N] ",
                false => "  send this? [y/N] ",
            };
            let answer = self.read_answer(sure, &YES_NO).ok()?;
            let agrees = ["y", "yes"].contains(&answer.to_lowercase().as_str());
            agrees.then_some(entered)
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
            for (number, option) in options.iter().enumerate() {
                let option = option.replace(['\n', '\r'], " ");
                for row in wrap(&sanitize(&option), self.width()) {
                    self.print_styled(&format!("  {}. {row}", number + 1), &Style::new());
                }
            }
            let text = self.read_answer("  answer: ", &[])?;
            if text.is_empty() {
                return Err(ToolError::Declined(
                    "the user gave no answer; decide yourself".into(),
                ));
            }
            let number = text
                .parse()
                .ok()
                .and_then(|number: usize| number.checked_sub(1));
            Ok(number
                .and_then(|number| options.get(number))
                .cloned()
                .unwrap_or(text))
        })
    }

    fn approve(&self, case: &ApprovalRequest<'_>) -> Result<(), ToolError> {
        let grant = case.refusal.suggested_flag.clone().unwrap_or_default();
        let key = (case.tool.to_owned(), grant);
        // If two calls ask at the same time, the first answer may already cover the second call.
        self.ctx.terminal.with_exclusive_use(|| {
            if self.grants().granted.contains(&key) {
                return Ok(());
            }
            let profile = self.grants().profile.clone();
            let rule = rule::rule_for(&self.ctx, profile.as_deref(), case);
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
            Ok(())
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
