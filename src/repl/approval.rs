//! The prompts at the terminal: answers the model's questions, and asks the user to approve calls that exceed the run's
//! permissions.

use super::{form, rule};
use crate::diff::Diff;
use crate::mcp::client::ElicitationHandler;
use crate::mcp::words;
use crate::ops::context::Context;
use crate::ops::turn_options::TurnOptions;
use crate::report::short_text::cut;
use crate::sys::editor::{Editor, Line};
use crate::sys::signal;
use crate::sys::store;
use crate::sys::sync::IgnorePoison;
use crate::sys::terminal::{Row, harmless};
use crate::tool::ask_user::Person;
use crate::tool::{Case, Failure};
use console::Style;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The largest file whose change is shown, in bytes.
const LARGEST: u64 = 1 << 20;
/// Maximum characters shown of a server's question.
const ASKED: usize = 1000;
/// Number of attempts that the user has to enter a valid answer.
const TRIES: usize = 3;

/// The editor, shared by the loop and the prompts for approval.
pub(super) type SharedEditor = Arc<Mutex<Editor>>;

/// Asks the user at the terminal.
pub(super) struct TerminalPrompter {
    ctx: Context,
    editor: SharedEditor,
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
enum Answer {
    Yes,
    Session,
    Always,
    No(Option<String>),
}

impl TerminalPrompter {
    /// Creates a prompter without any grants.
    pub(super) fn new(ctx: &Context, arguments: &TurnOptions, editor: &SharedEditor) -> Self {
        Self {
            ctx: ctx.clone(),
            editor: Arc::clone(editor),
            grants: Mutex::new(SessionGrants {
                granted: BTreeSet::new(),
                profile: arguments.grants.profile.clone(),
            }),
        }
    }

    /// Switches to another profile, and drops all grants made under the previous one.
    pub(super) fn change_profile(&self, profile: Option<&str>) {
        self.grants().profile = profile.map(str::to_owned);
        self.forget();
    }

    /// Drops the grants of this conversation, because another one begins.
    pub(super) fn forget(&self) {
        self.grants().granted.clear();
    }

    fn grants(&self) -> MutexGuard<'_, SessionGrants> {
        self.grants.lock().ignore_poison()
    }

    /// Reads an answer to `prompt`.
    fn read(&self, prompt: &str) -> Result<String, Failure> {
        let line = self.editor.lock().ignore_poison().ask(prompt);
        match line {
            Ok(Line::Text(text)) => Ok(text.trim().to_owned()),
            Ok(Line::End) => Err(Failure::Declined(
                "refused: the user did not answer. Continue without it.".into(),
            )),
            Ok(Line::Interrupted) => {
                signal::interrupt();
                Err("the user interrupted".into())
            }
            // The terminal may be gone, for example. The cause that ends the run is reported elsewhere.
            Err(_) => Err(Failure::Declined(
                "refused: the user could not be asked. Continue without it.".into(),
            )),
        }
    }

    /// Asks the user for the value of a field, which is `Some(None)` if they leave it out; `None` if they stop.
    fn fill(&self, field: &form::Field) -> Option<Option<Value>> {
        for row in wrapped(&harmless(&field.question), self.width()) {
            self.show(&format!("  {row}"), &Style::new());
        }
        for _ in 0..TRIES {
            let text = self.read("  answer: ").ok()?;
            match field.read(&text) {
                Ok(value) => return Some(value),
                Err(words) => self.show(&format!("  {}", harmless(&words)), &Style::new().dim()),
            }
        }
        None
    }

    fn show(&self, text: &str, style: &Style) {
        let row = Row::default().styled(text, style.clone());
        self.ctx.terminal.question(&row);
    }

    /// Asks for approval of `case` until there is a valid answer.
    fn ask(&self, case: &Case<'_>, rule: Option<&rule::Rule>) -> Result<Answer, Failure> {
        let strong = Style::new().yellow().bold();
        let head = head(case);
        self.show(&format!("? {head}"), &strong);
        let flag = case.refusal.grant.as_deref().unwrap_or_default();
        // The reason for a request under an `--allow` rule is written for the model, and tells the user nothing.
        let is_consent = flag.starts_with("--allow");
        if !is_consent && !case.again {
            let why = harmless(&cut(&case.refusal.words, 300));
            for row in wrapped(&why, self.width()) {
                self.show(&format!("  {row}"), &Style::new().dim());
            }
        }
        let rows = self.rows(case);
        // Keep both the details of the call and the question on the screen.
        let room = self.ctx.terminal.height().saturating_sub(9).max(8);
        let is_cut = rows.len() > room;
        for (text, style) in rows.iter().take(room) {
            self.show(text, style);
        }
        if is_cut {
            let more = format!("  … and {} more rows; v shows all", rows.len() - room);
            self.show(&more, &strong);
            self.show(&format!("? {head}"), &strong);
        }
        let view = if is_cut { "v(iew all) · " } else { "" };
        let session = format!("s(ession: each `{}` that needs `{flag}`)", case.tool);
        let always = rule.map_or_else(String::new, |rule| format!(" · a(lways: {})", rule.words));
        let choices = format!("{view}y(es, once) · {session}{always} · n(o), or a reason");
        for row in wrapped(&choices, self.width()) {
            self.show(&format!("  {row}"), &Style::new().dim());
        }
        loop {
            let text = self.read("  allow? ")?;
            let lower = text.to_lowercase();
            return Ok(match lower.as_str() {
                "y" | "yes" => Answer::Yes,
                "s" | "session" => Answer::Session,
                "a" | "always" if rule.is_some() => Answer::Always,
                "n" | "no" => Answer::No(None),
                "v" | "view" => {
                    for (text, style) in &rows {
                        self.show(text, style);
                    }
                    self.show(&format!("? {head}"), &strong);
                    continue;
                }
                // Ask again: so short a text is not a reason for declining, and neither is a slash command.
                _ if text.chars().count() < 5 || text.starts_with('/') => {
                    self.show("  y, s, a, n, or a reason why not", &Style::new().dim());
                    continue;
                }
                _ => {
                    let why = ["no because", "no, because", "no:", "no,", "n,", "n:"];
                    let why = why.iter().find(|begin| lower.starts_with(**begin));
                    let text = why.map_or(text.as_str(), |begin| text[begin.len()..].trim());
                    Answer::No((!text.is_empty()).then(|| text.to_owned()))
                }
            });
        }
    }

    /// Columns of a row in a prompt.
    fn width(&self) -> usize {
        let width = self.ctx.terminal.width().unwrap_or(80);
        width.saturating_sub(5).max(20)
    }

    /// Everything that the user decides about, in rows: the command or the change, and every other argument. Each row
    /// begins with a mark of ours, so that no argument can imitate a row.
    fn rows(&self, case: &Case<'_>) -> Vec<(String, Style)> {
        let mut rows = Vec::new();
        let mut add = |mark: &str, text: &str, style: &Style| {
            for line in text.split('\n') {
                for (number, row) in wrapped(&harmless(line), self.width())
                    .into_iter()
                    .enumerate()
                {
                    let mark = if number == 0 { mark } else { "│" };
                    rows.push((format!("  {mark} {row}"), style.clone()));
                }
            }
        };
        let plain = Style::new();
        let Case {
            tool, arguments, ..
        } = *case;
        let text = |key: &str| arguments[key].as_str().unwrap_or_default();
        let mut shown: &[&str] = &[];
        match tool {
            "exec" => {
                shown = &["command"];
                add("$", text("command"), &plain);
            }
            "write_file" | "edit_file" => {
                add("·", &format!("path: {}", text("path")), &plain);
                let old = self.content(case);
                let (before, after) = match (tool, old) {
                    ("write_file", Content::Text(old)) => (old, text("content").to_owned()),
                    ("write_file", Content::None) => (String::new(), text("content").to_owned()),
                    ("edit_file", Content::Text(old)) if old.contains(text("old_text")) => {
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
                for line in Diff::between(&before, &after).unified(2).lines() {
                    let style = match line.chars().next() {
                        Some('+') => Style::new().green(),
                        Some('-') => Style::new().red(),
                        Some('@') => Style::new().cyan(),
                        _ => Style::new(),
                    };
                    add(" ", line, &style);
                }
            }
            _ => {}
        }
        for (name, value) in arguments.as_object().into_iter().flatten() {
            if shown.contains(&name.as_str()) {
                continue;
            }
            let value = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            add("·", &format!("{name}: {value}"), &plain);
        }
        rows
    }

    /// The current content of the file that `case` would change.
    fn content(&self, case: &Case<'_>) -> Content {
        let given = case.arguments["path"].as_str().unwrap_or_default();
        let path = case.reach.absolute(given);
        match std::fs::metadata(&path) {
            Err(_) => return Content::None,
            Ok(about) if !about.is_file() || about.len() > LARGEST => return Content::Other,
            Ok(_) => {}
        }
        match store::read_at_most(&path, LARGEST).map(|bytes| bytes.map(String::from_utf8)) {
            Ok(Some(Ok(text))) => Content::Text(text),
            Ok(None) => Content::None,
            _ => Content::Other,
        }
    }
}

/// The content of a file.
enum Content {
    None,
    Text(String),
    /// Cannot be shown: too large, not a regular file, or not UTF-8.
    Other,
}

/// The question for the user, in one line of fixed text.
fn head(case: &Case<'_>) -> String {
    let Case { tool, again, .. } = case;
    let flag = case.refusal.grant.as_deref().unwrap_or_default();
    let place = case.reach.directory.display();
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
fn wrapped(text: &str, width: usize) -> Vec<String> {
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
    let (mut rows, mut row, mut wide) = (Vec::new(), String::new(), 0);
    for letter in line.chars() {
        let own = letter.width().unwrap_or(0);
        if wide + own > width {
            // Do not go back far for a blank, so that text without blanks is cut at the end of the row.
            let at = row
                .rfind(' ')
                .filter(|at| row.len() - at < width / 2 && *at > 0);
            let rest = at.map_or_else(String::new, |at| row.split_off(at + 1));
            rows.push(std::mem::replace(&mut row, rest));
            wide = row.width();
        }
        row.push(letter);
        wide += own;
    }
    rows.push(row);
    rows
}

impl ElicitationHandler for TerminalPrompter {
    fn enter(&self, server: &str, asks: &str, form: &Value) -> Option<Map<String, Value>> {
        let fields = form::fields(form);
        self.ctx.terminal.alone(|| {
            let strong = Style::new().yellow().bold();
            let server = words::line(server, 80);
            self.show(&format!("? the server `{server}` asks you:"), &strong);
            for line in words::clean(&cut(asks, ASKED)).split('\n') {
                for row in wrapped(&harmless(line), self.width()) {
                    self.show(&format!("  │ {row}"), &Style::new());
                }
            }
            let all = "your answers are sent to this server; an empty line skips a question, and Ctrl-D cancels";
            for row in wrapped(all, self.width()) {
                self.show(&format!("  {row}"), &Style::new().dim());
            }
            let mut entered = Map::new();
            for field in &fields {
                let value = self.fill(field)?;
                entered.extend(value.map(|value| (field.name.clone(), value)));
            }
            let sure = match fields.is_empty() {
                true => "  continue? [y/N] ",
                false => "  send this? [y/N] ",
            };
            let answer = self.read(sure).ok()?;
            let agrees = ["y", "yes"].contains(&answer.to_lowercase().as_str());
            agrees.then_some(entered)
        })
    }
}

impl Person for TerminalPrompter {
    fn answer(&self, question: &str, options: &[String]) -> Result<String, Failure> {
        self.ctx.terminal.alone(|| {
            let strong = Style::new().yellow().bold();
            self.show("? the model asks:", &strong);
            for line in question.split('\n') {
                for row in wrapped(&harmless(line), self.width()) {
                    self.show(&format!("  │ {row}"), &Style::new());
                }
            }
            for (number, option) in options.iter().enumerate() {
                let option = option.replace(['\n', '\r'], " ");
                for row in wrapped(&harmless(&option), self.width()) {
                    self.show(&format!("  {}. {row}", number + 1), &Style::new());
                }
            }
            let text = self.read("  answer: ")?;
            if text.is_empty() {
                return Err(Failure::Declined(
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

    fn judge(&self, case: &Case<'_>) -> Result<(), Failure> {
        let grant = case.refusal.grant.clone().unwrap_or_default();
        let key = (case.tool.to_owned(), grant);
        // If two calls ask at the same time, the first answer may already cover the second call.
        self.ctx.terminal.alone(|| {
            if self.grants().granted.contains(&key) {
                return Ok(());
            }
            let profile = self.grants().profile.clone();
            let rule = rule::of(&self.ctx, profile.as_deref(), case);
            match self.ask(case, rule.as_ref())? {
                Answer::Yes => {}
                Answer::Session => {
                    self.grants().granted.insert(key.clone());
                }
                Answer::Always => {
                    self.grants().granted.insert(key.clone());
                    let message = match rule.as_ref().map(|rule| rule.write(&self.ctx)) {
                        Some(Err(error)) => format!("nanobot: cannot save the rule: {error:#}"),
                        Some(Ok(place)) => format!("  (saved in {place})"),
                        None => String::new(),
                    };
                    self.show(&message, &Style::new().dim());
                }
                Answer::No(None) => {
                    return Err(Failure::Declined(
                        "refused: the user said no. Continue without it.".into(),
                    ));
                }
                Answer::No(Some(why)) => {
                    return Err(Failure::Declined(format!(
                        "refused: the user said no: {why}"
                    )));
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn rows_are_whole_and_fit() {
        let check = |text: &str, width: usize, expect: &[&str]| {
            assert_eq!(wrapped(text, width), expect, "{text:?}");
        };
        check("", 10, &[""]);
        check("touch a", 10, &["touch a"]);
        check("touch a b c d", 10, &["touch a b ", "c d"]);
        check("abcdefghijklm", 10, &["abcdefghij", "klm"]);
        check("日本語日本語", 10, &["日本語日本", "語"]);
        check("\t  x", 10, &["   x"]);
        let padded = format!("touch a #{}? exec", " ".repeat(500));
        check(&padded, 40, &["touch a # ⟨500 blanks⟩ ? exec"]);
        // No text is lost.
        let long = "word ".repeat(50);
        assert_eq!(wrapped(&long, 20).concat(), long.trim_end());
    }
}
