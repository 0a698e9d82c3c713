//! The prompts at the terminal: answers the model's questions, and asks the user to approve calls that exceed the run's
//! permissions.

use super::bell::Bell;
use super::form;
use crate::ops::approval_text;
use crate::ops::change_preview::ChangePreview;
use crate::ops::context::Context;
use crate::ops::permanent_rule::{self, PermanentRule};
use crate::options::turn::TurnOptions;
use crate::repl::editor::{Choice, Editor, EditorLine};
use console::Style;
use nanobot_agent::report::short_text::truncate_line;
use nanobot_base::diff::Diff;
use nanobot_mcp::client::ElicitationHandler;
use nanobot_mcp::sanitize;
use nanobot_os::signal;
use nanobot_os::terminal::{StyledLine, sanitize, theme, wrap_words};
use nanobot_tool::ask_user::UserPrompt;
use nanobot_tool::{Approval, ApprovalRequest, ToolError};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::Arc;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Maximum characters shown of a server's question.
const MAX_QUESTION_CHARS: usize = 1000;
/// Maximum characters shown of the reason for a request.
const MAX_REASON_CHARS: usize = 300;
/// Rows of the screen that are reserved for the question, and the minimum number of rows for the details of a call.
const QUESTION_ROWS: usize = 10;
const MIN_CALL_ROWS: usize = 8;
/// The longest run of blanks in a text that is shown unchanged.
const MAX_BLANKS: usize = 24;
/// The answers to a yes-or-no question, and the index of the default, which Enter alone selects.
const YES_NO: [Choice; 2] = [YES, NO];
const NO_INDEX: usize = 1;

pub(super) const YES: Choice = Choice::immediate("yes");
pub(super) const NO: Choice = Choice::immediate("no");
/// Neither yes nor no: the action that was asked about is left out.
pub(super) const CANCEL: Choice = Choice::immediate("cancel");
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

/// An answer to a field of a form.
enum FieldAnswer {
    Value(Value),
    /// The user leaves the field out.
    Omitted,
    /// The user cancels the form, or has given no valid answer.
    Canceled,
}

impl TerminalPrompter {
    /// Creates a prompter without any grants.
    pub(super) fn new(
        ctx: &Context,
        options: &TurnOptions,
        editor: &SharedEditor,
        bell: &Arc<Bell>,
    ) -> Self {
        Self {
            ctx: ctx.clone(),
            editor: Arc::clone(editor),
            bell: Arc::clone(bell),
            grants: Mutex::new(SessionGrants {
                granted: BTreeSet::new(),
                profile: options.grants.profile.clone(),
            }),
        }
    }

    /// Switches to another profile, and drops all grants made under the previous one.
    pub(super) fn change_profile(&self, profile: Option<&str>) {
        self.grants.lock().profile = profile.map(str::to_owned);
        self.clear_grants();
    }

    /// Drops the grants of this conversation, because another one begins.
    pub(super) fn clear_grants(&self) {
        self.grants.lock().granted.clear();
    }

    /// Reads an answer to `prompt`, which the `options` suggest. `is_new` is false for a later part of a question.
    fn read_answer(
        &self,
        prompt: &str,
        options: &[String],
        is_new: bool,
    ) -> Result<String, ToolError> {
        let mut editor = self.editor.lock();
        to_answer(editor.prompt(prompt, options, is_new))
    }

    /// Reads one of `choices`; Enter alone is the choice `default`.
    fn read_choice(
        &self,
        prompt: &str,
        choices: &[Choice],
        default: Option<usize>,
    ) -> Result<String, ToolError> {
        let mut editor = self.editor.lock();
        to_answer(editor.choose(prompt, choices, default))
    }

    /// Lets the user choose one of `options`, which are shown with numbers: by the number, by its text, or by the arrow keys.
    /// Other text is returned as it is; `None` if nothing was chosen. Not for a turn, as [`Self::choose`].
    pub(super) fn pick(&self, prompt: &str, options: &[String]) -> Option<String> {
        let line = self.editor.lock().prompt(prompt, options, true);
        let text = answer_text(line.ok()?)?;
        (!text.is_empty()).then(|| option_or_text(text, options))
    }

    /// Asks a yes-or-no question. Any answer other than yes is a no, and so is none. Not for a turn, as [`Self::choose`].
    pub(super) fn confirm(&self, question: &str) -> bool {
        self.choose(question, &YES_NO).is_some_and(|answer| answer == YES.word)
    }

    /// Asks for one of `choices`, whose second is the default. `None` if the user gives no answer: nothing is to be changed then. A
    /// command of the conversation asks so, not a turn, and so Ctrl-C stops nothing else.
    pub(super) fn choose(&self, question: &str, choices: &[Choice]) -> Option<String> {
        // The last sentence has a row of its own, which is drawn again with the answer.
        let (explanation, prompt) = question.rsplit_once(". ").unwrap_or(("", question));
        for row in wrap_words(explanation, self.width(), 2).lines() {
            self.print_styled(row, &Style::new().bold());
        }
        let line = self.editor.lock().choose(prompt, choices, Some(NO_INDEX));
        answer_text(line.ok()?)
    }

    /// Asks the user for the value of a field.
    fn ask_field(&self, field: &form::FormField) -> FieldAnswer {
        for row in wrap(&sanitize(&field.question), self.width()) {
            self.print_styled(&format!("  {row}"), &Style::new());
        }
        for attempt in 0..MAX_ATTEMPTS {
            let Ok(text) = self.read_answer("  answer: ", &[], attempt == 0) else {
                return FieldAnswer::Canceled;
            };
            match field.parse(&text) {
                Ok(Some(value)) => return FieldAnswer::Value(value),
                Ok(None) => return FieldAnswer::Omitted,
                Err(problem) => {
                    self.print_styled(&format!("  {}", sanitize(&problem)), &Style::new().dim());
                }
            }
        }
        FieldAnswer::Canceled
    }

    fn print_styled(&self, text: &str, style: &Style) {
        let row = StyledLine::default().styled(text, style.clone());
        self.ctx.terminal.eprint_exact(&row);
    }

    /// Prints a question after a `?`.
    fn print_question(&self, question: &str) {
        let strong = theme::attention().bold();
        for row in wrap_words(&format!("? {question}"), self.width(), 2).lines() {
            self.print_styled(row, &strong);
        }
    }

    /// Asks for approval of `request` until there is a valid answer.
    fn request_approval(
        &self,
        request: &ApprovalRequest<'_>,
        rule: Option<&PermanentRule>,
    ) -> Result<ApprovalAnswer, ToolError> {
        self.bell.ring_if_long();
        let strong = theme::attention().bold();
        let dim = Style::new().dim();
        let file = ChangePreview::named_file(request);
        let head = approval_text::headline(request, &file);
        self.print_question(&head);
        if let Some(reason) = approval_text::reason(request) {
            for row in wrap(&sanitize(&truncate_line(reason, MAX_REASON_CHARS)), self.width()) {
                self.print_styled(&format!("  {row}"), &dim);
            }
        }
        let rows = self.call_rows(request, file.target.as_deref());
        // Keep both the details of the call and the question on the screen.
        let height = self.ctx.terminal.stdout_height();
        let max_rows = height.saturating_sub(QUESTION_ROWS).max(MIN_CALL_ROWS);
        let is_cut = rows.len() > max_rows;
        for (text, style) in rows.iter().take(max_rows) {
            self.print_styled(text, style);
        }
        if is_cut {
            let more = format!("  … and {} more rows; v shows all", rows.len() - max_rows);
            self.print_styled(&more, &strong);
            self.print_question(&head);
        }
        let mut choices = vec![YES, NO, REASON];
        choices.extend(is_cut.then_some(VIEW));
        // A hook's question is about one call.
        let is_lasting = request.refusal.suggested_flag.is_some();
        let rule = if is_lasting { rule } else { None };
        choices.extend(is_lasting.then_some(SESSION));
        choices.extend(rule.map(|_| ALWAYS));
        let view = if is_cut { " · [v]iew all" } else { "" };
        let duration = if approval_text::is_yes_lasting(request) { "from now on" } else { "once" };
        let mut keys = vec![format!("[y]es, {duration} · [n]o · no, with a [r]eason{view}")];
        if is_lasting {
            keys.push(format!("this [s]ession: {}", approval_text::permission(request)));
        }
        if let Some(rule) = rule {
            keys.push(format!("[a]lways, in every run: the rule `{}`", rule.description));
        }
        let print_keys = || {
            for row in wrap_words(&keys.join("\n"), self.width(), 2).lines() {
                self.print_styled(&format!("  {row}"), &dim);
            }
        };
        print_keys();
        loop {
            let answer = self.read_choice("  allow? ", &choices, None)?;
            // Where lines are typed, it may be any word.
            let is_offered = choices.iter().any(|choice| choice.word == answer);
            return Ok(match answer.as_str() {
                _ if !is_offered => {
                    self.print_styled("  press one of the keys in brackets", &dim);
                    continue;
                }
                "yes" => ApprovalAnswer::Yes,
                "session" => ApprovalAnswer::Session,
                "always" => ApprovalAnswer::Always,
                "reason" => {
                    match self.read_answer("  why not? ", &[], false) {
                        // Escape leaves the reason, not the question.
                        Err(ToolError::Declined(_)) => continue,
                        reason => ApprovalAnswer::No(Some(reason?).filter(|text| !text.is_empty())),
                    }
                }
                "view" => {
                    for (text, style) in &rows {
                        self.print_styled(text, style);
                    }
                    self.print_question(&head);
                    print_keys();
                    continue;
                }
                _ => ApprovalAnswer::No(None),
            });
        }
    }

    /// Columns of a row in a prompt.
    fn width(&self) -> usize {
        let width = self.ctx.terminal.stdout_width().unwrap_or(80);
        width.saturating_sub(5).max(20)
    }

    /// The rows with everything that the user decides about: the command or the change, and every other argument; `link_target` is the
    /// file that changes if the call names a link. Each row begins with a mark of this program, so that no argument can imitate a row.
    fn call_rows(
        &self,
        request: &ApprovalRequest<'_>,
        link_target: Option<&str>,
    ) -> Vec<(String, Style)> {
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
        let ApprovalRequest { tool, arguments, .. } = *request;
        let text = |key: &str| arguments[key].as_str().unwrap_or_default();
        // The arguments that have rows already.
        let mut displayed: &[&str] = &[];
        match tool {
            "exec" => {
                displayed = &["command"];
                add("$", text("command"), &plain);
            }
            "process" if arguments["input"].is_string() => {
                displayed = &["input"];
                add("›", text("input").trim_end_matches('\n'), &plain);
            }
            "write_file" | "edit_file" => {
                if approval_text::headline_path(request).is_none() {
                    add("·", &format!("path: {}", text("path")), &plain);
                }
                if let Some(target) = link_target {
                    add("·", &format!("changes: {target}"), &plain);
                }
                let change = ChangePreview::for_request(request);
                if !change.is_complete {
                    let note = "replaces a file that is too large to show, or is not text";
                    add("·", note, &plain);
                }
                displayed = match tool {
                    "write_file" => &["path", "content"],
                    _ => &["path", "old_text", "new_text"],
                };
                for line in Diff::new(&change.before, &change.after).unified(2).lines() {
                    add(" ", line, &theme::diff_line(line));
                }
            }
            // A patch shows every change itself.
            "apply_patch" => {
                displayed = &["patch"];
                for line in text("patch").trim_end().lines() {
                    add(" ", line, &theme::diff_line(line));
                }
            }
            "read_file" | "delete_file" if approval_text::headline_path(request).is_some() => {
                displayed = &["path"];
            }
            _ => {}
        }
        for change in request.withheld {
            for line in Diff::new(&change.before, &change.after).unified(2).lines() {
                add(" ", line, &theme::diff_line(line));
            }
        }
        for (name, value) in arguments.as_object().into_iter().flatten() {
            if displayed.contains(&name.as_str()) {
                continue;
            }
            add("·", &format!("{name}: {}", argument_text(value)), &plain);
        }
        rows
    }
}

/// The option with the text or the number `text`, or else `text` itself. Its text comes first: the arrow keys enter it, and it may be a
/// number too.
fn option_or_text(text: String, options: &[String]) -> String {
    if options.contains(&text) {
        return text;
    }
    let number = text.parse().ok().and_then(|number: usize| number.checked_sub(1));
    number.and_then(|number| options.get(number)).cloned().unwrap_or(text)
}

/// The text of an answer; `None` if the user gave none.
fn answer_text(line: EditorLine) -> Option<String> {
    match line {
        EditorLine::Text(text) | EditorLine::Key(_, text) => Some(text.trim().to_owned()),
        EditorLine::End | EditorLine::Interrupted => None,
    }
}

/// The answer to a question of a turn, which Ctrl-C stops.
fn to_answer(line: anyhow::Result<EditorLine>) -> Result<String, ToolError> {
    match line {
        Ok(EditorLine::Text(text) | EditorLine::Key(_, text)) => Ok(text.trim().to_owned()),
        Ok(EditorLine::End) => Err(ToolError::Declined(
            "Tool call denied: the user did not answer. Continue without it.".into(),
        )),
        Ok(EditorLine::Interrupted) => {
            signal::record_interrupt();
            Err("the user interrupted the run at this question".into())
        }
        // The terminal may be gone, for example. The cause of the run's end is reported elsewhere.
        Err(_) => Err(ToolError::Declined(
            "Tool call denied: the user could not be asked. Continue without it.".into(),
        )),
    }
}

/// Wraps `text` into rows of at most `width` columns, at blanks if possible. A run of more than [`MAX_BLANKS`] blanks is replaced
/// by its length, so that it cannot hide the text after it.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut line = String::new();
    let mut blanks = 0;
    for letter in text.trim_end().chars().chain(['\n']) {
        match letter {
            ' ' | '\t' => blanks += 1,
            _ => {
                if blanks > MAX_BLANKS && !line.is_empty() {
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
    let mut rows = Vec::new();
    let mut row = String::new();
    let mut columns = 0;
    for word in line.split_inclusive(' ') {
        let word_columns = word.trim_end_matches(' ').width();
        // A word that fits into a row is not broken.
        if columns + word_columns > width && word_columns <= width && columns > 0 {
            rows.push(std::mem::take(&mut row));
            columns = 0;
        }
        for letter in word.chars() {
            let letter_columns = letter.width().unwrap_or(0);
            if columns + letter_columns > width {
                rows.push(std::mem::take(&mut row));
                columns = 0;
            }
            row.push(letter);
            columns += letter_columns;
        }
    }
    rows.push(row);
    rows
}

impl ElicitationHandler for TerminalPrompter {
    fn ask_user(&self, server: &str, question: &str, form: &Value) -> Option<Map<String, Value>> {
        let fields = form::fields(form);
        self.ctx.terminal.with_exclusive_use(|| {
            let server = sanitize::single_line(server, 80);
            self.bell.ring_if_long();
            self.print_question(&format!("the server `{server}` asks you:"));
            let question = sanitize::truncate(&sanitize::clean(question), MAX_QUESTION_CHARS);
            for line in question.trim().split('\n') {
                for row in wrap(&sanitize(line), self.width()) {
                    self.print_styled(&format!("  │ {row}"), &Style::new());
                }
            }
            let note = "your answers are sent to this server; an empty line skips a question, and Ctrl-D cancels";
            for row in wrap(note, self.width()) {
                self.print_styled(&format!("  {row}"), &Style::new().dim());
            }
            let mut answers = Map::new();
            for field in &fields {
                match self.ask_field(field) {
                    FieldAnswer::Value(value) => drop(answers.insert(field.name.clone(), value)),
                    FieldAnswer::Omitted => {}
                    FieldAnswer::Canceled => return None,
                }
            }
            let prompt =
                if fields.is_empty() { "  continue? [y/N] " } else { "  send this? [y/N] " };
            let answer = self.read_choice(prompt, &YES_NO, Some(NO_INDEX)).ok()?;
            (answer == YES.word).then_some(answers)
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
            let no_answer =
                || ToolError::Declined("the user did not answer; decide yourself".into());
            let answer = self.read_answer("  answer: ", &options, true);
            let text = answer.map_err(|error| match error {
                ToolError::Declined(_) => no_answer(),
                error => error,
            })?;
            if text.is_empty() {
                return Err(no_answer());
            }
            Ok(option_or_text(text, &options))
        })
    }

    fn approve(&self, request: &ApprovalRequest<'_>) -> Result<Approval, ToolError> {
        let grant = request.refusal.suggested_flag.clone().unwrap_or_default();
        let key = (request.tool.to_owned(), grant);
        // If two calls ask at the same time, the first answer may already cover the second call.
        self.ctx.terminal.with_exclusive_use(|| {
            if self.grants.lock().granted.contains(&key) {
                return Ok(Approval::Earlier);
            }
            let profile = self.grants.lock().profile.clone();
            let rule = permanent_rule::rule_for(&self.ctx, profile.as_deref(), request);
            match self.request_approval(request, rule.as_ref())? {
                ApprovalAnswer::Yes => {}
                ApprovalAnswer::Session => {
                    self.grants.lock().granted.insert(key.clone());
                }
                ApprovalAnswer::Always => {
                    self.grants.lock().granted.insert(key.clone());
                    let message = match rule.as_ref().map(|rule| rule.write(&self.ctx)) {
                        Some(Err(error)) => format!("nanobot: cannot save the rule: {error:#}"),
                        Some(Ok(file)) => format!("  (saved in {file})"),
                        None => String::new(),
                    };
                    self.print_styled(&message, &Style::new().dim());
                }
                ApprovalAnswer::No(None) => {
                    return Err(ToolError::Declined(
                        "Tool call denied: the user said no. Continue without it.".into(),
                    ));
                }
                ApprovalAnswer::No(Some(reason)) => {
                    return Err(ToolError::Declined(format!(
                        "Tool call denied: the user said no: {reason}"
                    )));
                }
            }
            Ok(Approval::Asked)
        })
    }
}

/// An argument in a readable form.
fn argument_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{option_or_text, wrap};

    #[test]
    fn an_option_is_chosen_by_its_text_or_its_number() {
        let options = ["0", "1", "two"].map(str::to_owned);
        let check = |text: &str, expect: &str| {
            assert_eq!(option_or_text(text.to_owned(), &options), expect);
        };
        check("1", "1");
        check("two", "two");
        check("3", "two");
        check("4", "4");
        check("none of them", "none of them");
    }

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
