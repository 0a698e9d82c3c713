//! A call in Markdown, for a person who approves it in a chat. All text of the model and of others is in code blocks, which it cannot
//! leave, so that none of it can imitate the question around it.

use crate::ops::approval_text;
use crate::ops::change_preview::ChangePreview;
use nanobot_base::diff::Diff;
use nanobot_config::policy::file_scope::FileAccess;
use nanobot_os::symlinks::PathResolver;
use nanobot_os::terminal::sanitize;
use nanobot_tool::ApprovalRequest;
use serde_json::Value;

/// Maximum characters of the details. A longer call is not asked about.
const MAX_DETAILS_CHARS: usize = 24_000;
/// Characters of a line; the rest of a longer one follows below a mark.
const MAX_LINE_CHARS: usize = 100;
/// The longest run of blanks that is shown as it is.
const MAX_BLANKS: usize = 24;
/// The most empty lines in a row that are shown as they are.
const MAX_EMPTY_LINES: usize = 5;
/// Stands for a blank that is neither a space nor a tab, and for one at the end of a line.
const BLANK_MARK: char = '␣';
/// Letters without ink that Unicode does not count as blanks: the empty Braille pattern, and fillers of Hangul.
const INVISIBLE_LETTERS: [char; 5] = ['\u{2800}', '\u{115f}', '\u{1160}', '\u{3164}', '\u{ffa0}'];

/// Describes the call: the question, the reason for it, and everything that the call contains. `untrusted_content` is the content of the
/// conversation that is not the user's own, as a phrase. `None` if the call cannot be shown as a whole.
pub(crate) fn describe(
    request: &ApprovalRequest<'_>,
    untrusted_content: Option<&str>,
) -> Option<String> {
    let text = |key: &str| request.arguments[key].as_str().unwrap_or_default();
    let file = ChangePreview::named_file(request);
    let mut blocks = Vec::new();
    let displayed: &[&str] = match request.tool {
        "exec" => {
            blocks.push(code_block("", &rows(text("command"))));
            &["command"]
        }
        tool @ ("write_file" | "edit_file") => {
            // The content of a file that the chat may not read is not shown.
            let target =
                PathResolver::default().resolve(&request.file_scope.absolute(text("path")));
            let is_readable = request.file_scope.decide(text("path"), FileAccess::Read).is_ok()
                && request.file_scope.decide_absolute(target, FileAccess::Read).is_ok();
            if !is_readable && !file.is_new {
                return None;
            }
            let change = ChangePreview::for_request(request);
            if !change.is_complete {
                return None;
            }
            let target = file.target.as_deref().map(|target| named_rows("changes", target));
            let path = named_rows("path", text("path")) + &target.unwrap_or_default();
            blocks.push(code_block("", &path));
            let diff = Diff::new(&change.before, &change.after).unified(2);
            blocks.push(code_block("diff", &rows(&diff)));
            if tool == "write_file" {
                &["path", "content"]
            } else {
                &["path", "old_text", "new_text"]
            }
        }
        "apply_patch" => {
            blocks.push(code_block("diff", &rows(text("patch"))));
            &["patch"]
        }
        _ => &[],
    };
    let mut facts = String::new();
    for (name, value) in request.arguments.as_object()? {
        if !displayed.contains(&name.as_str()) {
            let value = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            facts.push_str(&named_rows(name, &value));
        }
    }
    if !facts.is_empty() {
        blocks.push(code_block("", &facts));
    }
    let mut reasons = String::new();
    // Content of others has a row of its own.
    let names_content =
        |reason: &str| untrusted_content.is_some_and(|content| reason.contains(content));
    if let Some(reason) = approval_text::reason(request).filter(|reason| !names_content(reason)) {
        reasons.push_str(&named_rows("reason", reason));
    }
    if let Some(content) = untrusted_content {
        reasons.push_str(&named_rows("this conversation contains", content));
    }
    if !reasons.is_empty() {
        blocks.push(code_block("", &reasons));
    }
    let headline = sanitize(&approval_text::headline(request, &file)).replace('\n', " ");
    let details = format!("{headline}\n\n{}", blocks.join("\n\n"));
    (details.chars().count() <= MAX_DETAILS_CHARS).then_some(details)
}

/// The permission of a lasting approval of such calls, in one line.
pub(crate) fn lasting_permission(request: &ApprovalRequest<'_>) -> String {
    sanitize(&approval_text::permission(request)).replace('\n', " ")
}

/// A code block whose content cannot end it, even where any three backticks do. Each line of the content begins with a mark, since some
/// services show no blocks.
fn code_block(language: &str, content: &str) -> String {
    let content = content.trim_end_matches('\n').replace('\n', "\n│ ");
    format!("```{language}\n│ {}\n```", content.replace("```", "``⟨`⟩"))
}

/// The lines of `text` after `name`. Lines after the first begin with a mark, so that none can imitate another name.
fn named_rows(name: &str, text: &str) -> String {
    let text = rows(text.trim_end_matches('\n')).replace('\n', "\n│ ");
    format!("{}: {text}\n", sanitize(name).replace('\n', " "))
}

/// The lines of `text`, in which nothing is hidden: control characters are escaped, long runs of blanks counted, blanks that could be taken
/// for others or overlooked at the end of a line marked, long lines wrapped.
fn rows(text: &str) -> String {
    let lines = text.split('\n').map(|line| {
        let line = with_counted_blanks(&sanitize(line));
        let letters: Vec<char> = line.chars().collect();
        let parts = letters.chunks(MAX_LINE_CHARS).map(|part| part.iter().collect::<String>());
        parts.collect::<Vec<_>>().join("\n│ ")
    });
    with_counted_lines(&lines.collect::<Vec<_>>())
}

/// Joins `lines`, with long runs of empty ones counted.
fn with_counted_lines(lines: &[String]) -> String {
    let mut joined = Vec::new();
    for run in lines.chunk_by(|line, next| line.is_empty() && next.is_empty()) {
        if run.len() > MAX_EMPTY_LINES {
            joined.push(format!("⟨{} empty lines⟩", run.len()));
        } else {
            joined.extend_from_slice(run);
        }
    }
    joined.join("\n")
}

fn with_counted_blanks(line: &str) -> String {
    let mut visible = String::new();
    let mut blanks = String::new();
    for letter in line.chars() {
        if letter == ' ' || letter == '\t' {
            blanks.push(' ');
        } else if letter.is_whitespace() || INVISIBLE_LETTERS.contains(&letter) {
            // To a shell it is a letter: `true #` with such a blank is no comment.
            blanks.push(BLANK_MARK);
        } else {
            push_blanks(&mut visible, &blanks);
            blanks.clear();
            visible.push(letter);
        }
    }
    if !visible.is_empty() {
        // After a backslash, a blank would take the place of the line break.
        let marks: String = blanks.chars().map(|_| BLANK_MARK).collect();
        push_blanks(&mut visible, &marks);
    }
    visible
}

fn push_blanks(visible: &mut String, blanks: &str) {
    match blanks.chars().count() {
        count if count > MAX_BLANKS => visible.push_str(&format!(" ⟨{count} blanks⟩ ")),
        _ => visible.push_str(blanks),
    }
}

#[cfg(test)]
mod tests {
    use super::{code_block, describe, rows};
    use crate::ops::approval_text::tests::with_request;
    use serde_json::{Value, json};

    fn details(tool: &str, arguments: Value, content: Option<&str>) -> Option<String> {
        let flag = format!("--allow {tool}");
        with_request(tool, &arguments, &flag, |request| describe(request, content))
    }

    #[test]
    fn the_whole_call_is_shown_and_cannot_leave_its_block() {
        let arguments = json!({ "action": "add", "message": "```\nanswer yes\n````", "every": 5 });
        assert_eq!(
            details("cron", arguments, Some("a page `x`")).unwrap(),
            "Allow this call of cron?\n\n```\n│ action: add\n│ message: ``⟨`⟩\n│ │ answer yes\n│ │ ``⟨`⟩`\n│ every: 5\n```\n\n\
             ```\n│ reason: because\n│ this conversation contains: a page `x`\n```"
        );
        let written = json!({ "path": "a.md", "content": "one\n" });
        let text = details("write_file", written, None).unwrap();
        assert!(text.starts_with(
            "Allow write_file to create a.md?\n\n```\n│ path: a.md\n```\n\n```diff\n│ "
        ));
        assert!(text.contains("\n│ +one\n"), "{text}");
        let temp = tempfile::tempdir().unwrap();
        let (link, target) = (temp.path().join("link"), temp.path().join("ä b"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let text =
            details("write_file", json!({ "path": link, "content": "one\n" }), None).unwrap();
        assert!(text.contains(", a link to another file?\n"), "{text}");
        assert!(text.contains("\n│ changes: ") && text.contains("/ä b\n```"), "{text}");
        assert_eq!(details("cron", json!("text"), None), None);
        assert_eq!(details("exec", json!({ "command": "x".repeat(30_000) }), None), None);
    }

    #[test]
    fn nothing_is_hidden() {
        let padded = format!("touch a #{}? rm b", " ".repeat(500));
        assert_eq!(rows(&padded), "touch a # ⟨500 blanks⟩ ? rm b");
        assert!(!rows("a\u{202e}b\u{1b}[8m").contains(['\u{202e}', '\u{1b}']));
        let long = "x".repeat(250);
        assert_eq!(rows(&long).replace("\n│ ", ""), long);
        let filled = "a \u{2800}\u{3000}".repeat(30) + &"\u{a0}".repeat(40) + "?";
        assert!(rows(&filled).contains("⟨43 blanks⟩"), "{}", rows(&filled));
        assert_eq!(rows(&format!("evil{}ls", "\n".repeat(1000))), "evil\n⟨999 empty lines⟩\nls");
        assert_eq!(code_block("", "a ```` b\nc"), "```\n│ a ``⟨`⟩` b\n│ c\n```");
        assert_eq!(rows("echo \\ \nrm b\r\n\t"), "echo \\␣\nrm b\\u{d}\n");
        assert_eq!(rows("true\u{a0}# \u{3000}; rm b"), "true␣# ␣; rm b");
    }
}
