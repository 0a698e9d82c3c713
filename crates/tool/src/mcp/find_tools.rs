//! Searches the tools of MCP servers by words, if they are too many to be in each request. What a call finds is in the requests
//! after it.

use crate::{Call, CallEffect, Tool, ToolError, ToolOutput};
use nanobot_base::message::ToolSpec;
use nanobot_mcp::sanitize;
use nanobot_mcp::tool_list::ToolView;
use nanobot_mcp::tool_name::{FIND_TOOLS, PREFIX};
use serde_json::{Value, json};
use std::cmp::Reverse;

/// The longest list of names in the description of the tool, in bytes.
const MAX_NAMES_BYTES: usize = 4000;
/// Maximum number of tools that a call finds.
const MAX_FOUND_TOOLS: usize = 8;
/// The longest description in a result, in characters. The request has the whole one.
const MAX_DESCRIPTION_CHARS: usize = 200;

/// The tool that searches the tools of servers.
pub(super) struct FindTools {
    spec: ToolSpec,
    tools: Vec<ToolView>,
}

impl FindTools {
    /// Creates the tool that searches `tools`.
    pub(super) fn new(tools: &[ToolView]) -> Self {
        let properties =
            json!({ "query": { "type": "string", "description": "words of the task, or names" } });
        let parameters =
            json!({ "type": "object", "required": ["query"], "properties": properties });
        let description = format!(
            "Find tools of the connected MCP servers, which you can call from then on. They are: {}",
            list_names(tools)
        );
        Self { spec: ToolSpec::new(FIND_TOOLS, &description, parameters), tools: tools.to_vec() }
    }

    /// The tools that match `query`, the best first.
    fn search(&self, query: &str) -> Vec<&ToolView> {
        let query = query.to_lowercase();
        let query_words: Vec<&str> = words_of(&query).collect();
        let scored = self.tools.iter().map(|tool| (score(tool, &query_words), tool));
        let mut matches: Vec<_> = scored.filter(|(score, _)| *score > 0).collect();
        matches.sort_by_key(|(score, _)| Reverse(*score));
        matches.into_iter().take(MAX_FOUND_TOOLS).map(|(_, tool)| tool).collect()
    }
}

impl Tool for FindTools {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self, _: &Value) -> CallEffect {
        CallEffect::Reads
    }

    fn found_tools(&self, arguments: &Value) -> Vec<String> {
        let tools = self.search(arguments["query"].as_str().unwrap_or_default());
        tools.into_iter().map(|tool| tool.name.clone()).collect()
    }

    fn run(&self, call: &mut Call<'_>) -> Result<ToolOutput, ToolError> {
        let tools = self.search(call.arguments["query"].as_str().unwrap_or_default());
        if tools.is_empty() {
            return Err("no tool has any of these words in its name or description".into());
        }
        let lines = tools.into_iter().map(|tool| {
            let description = sanitize::single_line(&tool.description, MAX_DESCRIPTION_CHARS);
            format!("{}: {description}\n", tool.name)
        });
        Ok(lines.collect::<String>().into())
    }
}

/// The names of `tools`, as many as fit.
fn list_names(tools: &[ToolView]) -> String {
    let mut list = String::new();
    for (index, tool) in tools.iter().enumerate() {
        if list.len() + tool.name.len() > MAX_NAMES_BYTES {
            list.push_str(&format!(" and {} more", tools.len() - index));
            break;
        }
        if index > 0 {
            list.push_str(", ");
        }
        list.push_str(&tool.name);
    }
    list
}

fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// Rates how well `tool` matches `query_words`, which are in lower case: a word of its name counts most, one in its description least.
fn score(tool: &ToolView, query_words: &[&str]) -> usize {
    let name = tool.name.to_lowercase();
    let name = name.strip_prefix(PREFIX).unwrap_or(&name);
    let description = tool.description.to_lowercase();
    let rate = |word: &&str| {
        if words_of(name).any(|part| part == *word) {
            4
        } else if name.contains(word) {
            2
        } else {
            usize::from(words_of(&description).any(|part| part == *word))
        }
    };
    query_words.iter().map(rate).sum()
}

#[cfg(test)]
mod tests {
    use super::{FindTools, MAX_FOUND_TOOLS, MAX_NAMES_BYTES};
    use crate::Tool;
    use nanobot_mcp::tool_list::ToolView;
    use serde_json::{Value, json};

    fn view(name: &str, description: &str) -> ToolView {
        ToolView {
            name: name.to_owned(),
            server: "s".into(),
            tool: name.to_owned(),
            description: description.to_owned(),
            schema: Value::Null,
            reads_only: true,
            has_changed: false,
        }
    }

    #[test]
    fn the_best_match_comes_first() {
        let tools = FindTools::new(&[
            view("mcp_git_log", "Show commits"),
            view("mcp_jira_create_issue", "Create an issue"),
            view("mcp_github_issues", "List issues"),
            view("mcp_mail_send", "Send a mail about an issue"),
        ]);
        let check = |query: &str, expect: &[&str]| {
            assert_eq!(tools.found_tools(&json!({ "query": query })), expect, "{query}");
        };
        check("Create an ISSUE!", &["mcp_jira_create_issue", "mcp_github_issues", "mcp_mail_send"]);
        check("mcp_git_log", &["mcp_git_log", "mcp_github_issues"]);
        check("github", &["mcp_github_issues"]);
        check("weather", &[]);
        check(" ,.", &[]);
        assert!(tools.found_tools(&json!({})).is_empty());
    }

    #[test]
    fn lists_are_bounded() {
        let many: Vec<ToolView> =
            (0..400).map(|number| view(&format!("mcp_s_look_{number}"), "x")).collect();
        let tools = FindTools::new(&many);
        assert_eq!(tools.found_tools(&json!({ "query": "look" })).len(), MAX_FOUND_TOOLS);
        let description = &tools.spec().description;
        assert!(
            description.len() < MAX_NAMES_BYTES + 200 && description.ends_with(" more"),
            "{description}"
        );
    }
}
