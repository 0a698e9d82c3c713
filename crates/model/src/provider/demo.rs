//! `--replay demo`: a provider that needs no key, network or model, for a first try of the program. Its replies depend only on the
//! conversation: it calls the real `list_dir` and `read_file`, and its answers quote only their results.

use super::budget::estimate_usage;
use super::{Delta, DeltaSink, Provider, ProviderError, ProviderResult, Request, ToolChoice};
use nanobot_base::message::{FinishReason, Message, Reply, ToolCall, ToolResult, plain_text};
use serde_json::{Value, json};
use std::fmt::Write;

/// The name that selects the demo.
pub const NAME: &str = "demo";

/// A path that selects the demo even if a file named `demo` exists: no file can be at this path.
pub const UNSHADOWED_PATH: &str = "/dev/null/demo";

/// The demo provider.
pub struct DemoProvider;

impl Provider for DemoProvider {
    fn reply(&self, request: &Request<'_>, on_delta: &mut DeltaSink<'_>) -> ProviderResult<Reply> {
        let turn = request
            .messages
            .iter()
            .rposition(|message| matches!(message, Message::User(_)))
            .unwrap_or(0);
        let results: Vec<&ToolResult> = request.messages[turn..]
            .iter()
            .filter_map(|message| match message {
                Message::Tool(result) => Some(result),
                _ => None,
            })
            .collect();
        let has_tool = |name: &str| {
            request.tool_choice != ToolChoice::None
                && request.tools.iter().any(|tool| tool.name == name)
        };
        let step = match results[..] {
            [] if has_tool("list_dir") => DemoStep::Call("list_dir", json!({ "path": "." })),
            [] => DemoStep::Answer(
                "This is the built-in demo, without a model, and this run has no tools to show."
                    .into(),
            ),
            [list_result] if list_result.failed => DemoStep::Answer(format!(
                "The folder cannot be listed: {}",
                plain_text(&list_result.parts)
            )),
            [list_result] => match choose_file(&listed_names(&plain_text(&list_result.parts))) {
                Some(name) if has_tool("read_file") => {
                    DemoStep::Call("read_file", json!({ "path": name }))
                }
                _ => DemoStep::Answer(summarize_listing(list_result, None)),
            },
            [list_result, read_result, ..] => {
                DemoStep::Answer(summarize_listing(list_result, Some(read_result)))
            }
        };
        let mut reply =
            Reply { id: request.reply_id.to_owned(), model: NAME.into(), ..Reply::default() };
        match step {
            DemoStep::Call(name, arguments) => {
                let id = format!("call_{}", request.messages.len());
                reply.tool_calls.push(ToolCall { id, name: name.into(), arguments });
                reply.finish_reason = FinishReason::ToolCalls;
            }
            DemoStep::Answer(text) => {
                for line in text.split_inclusive('\n') {
                    on_delta(Delta::Text(line)).map_err(ProviderError::Aborted)?;
                }
                reply.text = text;
            }
        }
        reply.usage = estimate_usage(request, reply.text.len());
        Ok(reply)
    }
}

enum DemoStep {
    Call(&'static str, Value),
    Answer(String),
}

/// The names in a listing; directories end with a slash.
fn listed_names(listing: &str) -> Vec<&str> {
    let lines = listing.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('('));
    // Two spaces come before the size.
    lines.map(|line| line.split("  ").next().unwrap_or(line).trim()).collect()
}

/// Selects a README, or else the first file that looks like text.
fn choose_file<'a>(names: &[&'a str]) -> Option<&'a str> {
    let extensions = [
        ".md", ".txt", ".toml", ".json", ".py", ".rs", ".js", ".sh", ".c", ".go", ".html", ".csv",
        ".yml", ".yaml",
    ];
    let readme =
        names.iter().find(|name| name.to_lowercase().starts_with("readme") && !name.ends_with('/'));
    let text = || {
        names.iter().find(|name| {
            extensions.iter().any(|extension| name.to_lowercase().ends_with(extension))
        })
    };
    readme.or_else(text).copied()
}

fn summarize_listing(list_result: &ToolResult, read_result: Option<&ToolResult>) -> String {
    let listing = plain_text(&list_result.parts);
    let names = listed_names(&listing);
    let folders = names.iter().filter(|name| name.ends_with('/')).count();
    let mut text = match (names.len(), folders) {
        (0, _) => "This folder is empty.\n".to_owned(),
        (count, folders) => {
            format!(
                "This folder contains {} and {}:\n\n",
                pluralize(count - folders, "file"),
                pluralize(folders, "folder")
            )
        }
    };
    for name in names.iter().take(30) {
        writeln!(text, "- {name}").expect("writing to a string cannot fail");
    }
    if names.len() > 30 {
        writeln!(text, "- and {} more", names.len() - 30).expect("writing to a string cannot fail");
    }
    if let Some(read_result) = read_result {
        let name = choose_file(&names).unwrap_or("the file");
        let content = plain_text(&read_result.parts);
        let summary = if read_result.failed {
            format!("{name} cannot be read: {content}")
        } else if let Some(line) = first_text_line(&content) {
            format!("{name} begins: {line}")
        } else {
            format!("{name} contains no text.")
        };
        writeln!(text, "\n{summary}").expect("writing to a string cannot fail");
    }
    text.push_str(
        "\n(This was the built-in demo: the tool calls were real, but the text came from a fixed program, not a model. \
         Run `nanobot onboard` to set up a real one.)",
    );
    text
}

fn pluralize(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

/// The first line of a numbered listing that contains text.
fn first_text_line(content: &str) -> Option<String> {
    let lines = content.lines().filter_map(|line| line.split_once("| ").map(|(_, text)| text));
    let mut texts = lines
        .map(|line| line.trim_matches(['#', '=', '-', '/', '*', '!', ' ', '"']))
        .filter(|line| !line.is_empty());
    texts.next().map(|line| line.chars().take(200).collect())
}

#[cfg(test)]
mod tests {
    use super::{choose_file, first_text_line, listed_names};

    #[test]
    fn a_listing_is_read() {
        assert_eq!(listed_names("src/\na file.txt  12 B\n(2 entries)\n"), ["src/", "a file.txt"]);
        assert_eq!(choose_file(&["a.txt", "README.md", "src/"]), Some("README.md"));
        assert_eq!(choose_file(&["bin", "a.txt"]), Some("a.txt"));
        assert_eq!(choose_file(&["readme/", "a.bin"]), None);
        assert_eq!(first_text_line("1| \n2| # Title #\n3| x"), Some("Title".into()));
        assert_eq!(first_text_line("1| \n"), None);
    }
}
