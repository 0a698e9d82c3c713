//! A session as one HTML page, which has no scripts and loads nothing. The texts of the session are escaped, apart from their
//! Markdown. A tool call and its result are one closed element.

use super::exported_message::close_fence;
use super::transcript::day_and_time;
use nanobot_agent::report::short_text::identifying_arguments;
use nanobot_base::message::{Message, ToolCall, ToolResult, plain_text};
use nanobot_channel::dialect::{self, Dialect};
use nanobot_os::secret::{redact_known, redact_known_json};
use nanobot_store::session::LoggedMessage;
use serde_json::Value;

/// The start of a page, before its title. The policy keeps a browser from loading anything.
const HEAD: &str = r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
"#;

const STYLE: &str = "<style>
:root{--text:#1f2328;--ground:#fff;--faint:#59636e;--panel:#f6f8fa;--line:#d1d9e0;--accent:#0969da}
@media (prefers-color-scheme:dark){:root{--text:#e6edf3;--ground:#0d1117;--faint:#8b949e;--panel:#161b22;--line:#30363d;--accent:#58a6ff}}
body{max-width:48rem;margin:2rem auto;padding:0 1rem;font:16px/1.55 system-ui,sans-serif;color:var(--text);background:var(--ground);overflow-wrap:break-word}
h1,h2,h3,h4,h5,h6{line-height:1.25;margin:1.2em 0 .4em}
h1{font-size:1.6rem}h2{font-size:1.4rem}h3{font-size:1.25rem}h4{font-size:1.125rem}h5{font-size:1.05rem}h6{font-size:1rem}
body>header{border-bottom:1px solid var(--line);margin-bottom:1.5rem}body>header h1{font-size:1.8rem;margin:0}
body>header p,section>header span{color:var(--faint)}section>header{font-size:.85rem;font-weight:bold}section>header span{font-weight:normal}section>header+*{margin-top:.3rem}
section{margin:1.5rem 0}section.user{background:var(--panel);border:1px solid var(--line);border-radius:.5rem;padding:.75rem 1rem}
details{border-left:3px solid var(--line);padding-left:.75rem;margin:.3rem 0;font-size:.9rem;color:var(--faint)}
summary{cursor:pointer;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
pre{background:var(--panel);padding:.75rem;border-radius:.4rem;overflow:auto}details pre{max-height:24rem;margin:.4rem 0}summary+pre{white-space:pre-wrap}
code,details pre{font:.875em/1.45 ui-monospace,monospace}pre code{font-size:.875rem}
table{border-collapse:collapse;margin:.8rem 0}td,th{border:1px solid var(--line);padding:.3rem .6rem;text-align:left}a{color:var(--accent)}
blockquote{margin:0;padding-left:1rem;border-left:3px solid var(--line)}p{margin:.5rem 0}@media print{details{display:none}}
</style>
";

/// Formats the start of the page. `facts` are shown below the title.
pub(super) fn page_start(title: &str, facts: &[String]) -> String {
    let title = escape(title);
    let facts = escape(&facts.join(" · "));
    format!(
        "{HEAD}<title>{title}</title>\n{STYLE}</head>\n<body>\n<header><h1>{title}</h1><p>{facts}</p></header>\n"
    )
}

/// The messages of a page, formatted one after the other. Calls wait for their results.
#[derive(Debug, Default)]
pub(super) struct PageBody {
    pending_calls: Vec<ToolCall>,
}

impl PageBody {
    /// Formats one more message.
    pub(super) fn push(&mut self, logged: &LoggedMessage) -> String {
        let id = logged.index + 1;
        let time = day_and_time(&logged.time);
        match &logged.message {
            Message::User(user) => {
                self.take_unanswered()
                    + &section("user", "User", id, &time, &plain_text(&user.parts))
            }
            Message::Assistant(reply) => {
                let mut page = self.take_unanswered();
                if !reply.text.trim().is_empty() || reply.tool_calls.is_empty() {
                    page += &section("agent", "nanobot", id, &time, &reply.text);
                }
                self.pending_calls.clone_from(&reply.tool_calls);
                page
            }
            Message::Tool(result) => {
                let is_answered = |call: &ToolCall| call.id == result.call_id;
                let position = self.pending_calls.iter().position(is_answered);
                let call = position.map(|position| self.pending_calls.remove(position));
                result_details(id, call.as_ref(), result)
            }
        }
    }

    /// Formats the end of the page.
    pub(super) fn end(mut self) -> String {
        self.take_unanswered() + "</body>\n</html>\n"
    }

    /// Formats the calls without a result.
    fn take_unanswered(&mut self) -> String {
        let calls = std::mem::take(&mut self.pending_calls);
        let details = calls.iter().map(|call| {
            let arguments = format_arguments(&call.arguments);
            format!("<details>{} (no result)</summary>{arguments}</details>\n", summary_start(call))
        });
        details.collect()
    }
}

fn section(class: &str, author: &str, id: usize, time: &str, markdown: &str) -> String {
    let time = escape(time);
    let markdown = close_fence(&redact_known(markdown));
    let parts = dialect::render(&markdown, Dialect::MailHtml);
    let body: String = parts.into_iter().map(|part| part.markup).collect();
    format!(
        "<section class=\"{class}\" id=\"m{id}\"><header>{author} <span>{time}</span></header>{body}</section>\n"
    )
}

fn result_details(id: usize, call: Option<&ToolCall>, result: &ToolResult) -> String {
    let summary = match call {
        Some(call) => summary_start(call),
        None => format!("<summary><code>{}</code>", escape(&result.name)),
    };
    let failed = if result.failed { " (failed)" } else { "" };
    let arguments = call.map(|call| format_arguments(&call.arguments)).unwrap_or_default();
    let text = escape(plain_text(&result.parts).trim_end());
    format!(
        "<details id=\"m{id}\">{summary}{failed}</summary>{arguments}<pre>{text}</pre></details>\n"
    )
}

/// The summary of a call, without its end.
fn summary_start(call: &ToolCall) -> String {
    let arguments = identifying_arguments(&call.name, &redact_known_json(&call.arguments));
    format!("<summary><code>{}</code> {}", escape(&call.name), escape(&arguments))
}

/// Formats arguments, one on each line, with texts as they are.
fn format_arguments(arguments: &Value) -> String {
    let arguments = redact_known_json(arguments);
    let Some(arguments) = arguments.as_object() else {
        return format!("<pre>{}</pre>", escape(&arguments.to_string()));
    };
    let lines = arguments.iter().map(|(name, value)| match value {
        Value::String(text) => format!("{name}: {text}"),
        other => format!("{name}: {other}"),
    });
    format!("<pre>{}</pre>", escape(&lines.collect::<Vec<_>>().join("\n")))
}

/// Escapes `text` without known keys. They must be found before some of their characters are escaped.
fn escape(text: &str) -> String {
    dialect::escape_html(&redact_known(text))
}
