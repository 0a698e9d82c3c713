//! A session as one HTML page, which has no scripts and loads nothing. The texts of the session are escaped, apart from their
//! Markdown.

use super::exported_message::{ExportedMessage, MessageAuthor};
use nanobot_channel::dialect::{self, Dialect};

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
body{max-width:48rem;margin:2rem auto;padding:0 1rem;font:16px/1.55 system-ui,sans-serif;color:var(--text);background:var(--ground)}
header{border-bottom:1px solid var(--line);margin-bottom:1.5rem}h1{font-size:1.5rem;margin:0}header p,h2 span{color:var(--faint)}
h2{font-size:.85rem;margin:0 0 .3rem}h2 span{font-weight:normal}section{margin:1.5rem 0}
section.user{background:var(--panel);border:1px solid var(--line);border-radius:.5rem;padding:.75rem 1rem}
details{border-left:3px solid var(--line);padding-left:.75rem;color:var(--faint)}summary{cursor:pointer}summary p{display:inline}
pre{background:var(--panel);padding:.75rem;border-radius:.4rem;overflow-x:auto}code{font:.875em ui-monospace,monospace}
table{border-collapse:collapse}td,th{border:1px solid var(--line);padding:.3rem .6rem}a{color:var(--accent)}
blockquote{margin:0;padding-left:1rem;border-left:3px solid var(--line)}p{margin:.5rem 0}@media print{details{display:none}}
</style>
";

/// Formats the start of the page.
pub(super) fn page_start(key: &str, dates: &str) -> String {
    let key = dialect::escape_html(key);
    let dates = dialect::escape_html(dates);
    format!(
        "{HEAD}<title>{key}</title>\n{STYLE}</head>\n<body>\n<header><h1>{key}</h1><p>{dates}</p></header>\n"
    )
}

pub(super) const PAGE_END: &str = "</body>\n</html>\n";

/// Formats one message.
pub(super) fn section(message: &ExportedMessage) -> String {
    let ExportedMessage { number, author, heading, time, body } = message;
    let body = to_html(body);
    if *author == MessageAuthor::Tool {
        let heading = to_html(heading);
        return format!("<details id=\"m{number}\"><summary>{heading}</summary>{body}</details>\n");
    }
    let class = match author {
        MessageAuthor::User => "user",
        MessageAuthor::Agent | MessageAuthor::Tool => "agent",
    };
    let (heading, time) = (dialect::escape_html(heading), dialect::escape_html(time));
    format!(
        "<section class=\"{class}\" id=\"m{number}\"><h2>{heading} <span>{time}</span></h2>{body}</section>\n"
    )
}

/// Renders Markdown as HTML of a small set of tags.
fn to_html(markdown: &str) -> String {
    let parts = dialect::render(markdown, Dialect::MailHtml);
    parts.into_iter().map(|part| part.markup).collect()
}
