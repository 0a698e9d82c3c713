//! The `todo` tool: a task list that the model keeps during a long task. It is kept until the end of the run, and is shown as the result of
//! each call.

use super::{Call, CallEffect, Tool, ToolError, ToolOutput};
use nanobot_base::message::{ToolSpec, without_blanks};
use parking_lot::Mutex;
use serde_json::Value;

/// Maximum entries of a list.
const MAX_ENTRIES: usize = 100;

/// The `todo` tool.
pub struct Todo {
    spec: ToolSpec,
    list: Mutex<Vec<TodoEntry>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct TodoEntry {
    content: String,
    status: TodoStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TodoStatus {
    Pending,
    InProgress,
    Completed,
    Cancelled,
}

impl TodoStatus {
    /// The name, the status, and its mark in the list.
    const ALL: [(&str, Self, char); 4] = [
        ("pending", Self::Pending, ' '),
        ("in_progress", Self::InProgress, '>'),
        ("completed", Self::Completed, 'x'),
        ("cancelled", Self::Cancelled, '-'),
    ];

    fn from_name(name: &str) -> Option<Self> {
        let row = Self::ALL.iter().find(|(status_name, ..)| *status_name == name);
        row.map(|(_, status, _)| *status)
    }

    fn mark(self) -> char {
        let row = Self::ALL.iter().find(|(_, status, _)| *status == self);
        row.map_or(' ', |(.., mark)| *mark)
    }
}

impl Default for Todo {
    fn default() -> Self {
        Self::new()
    }
}

impl Todo {
    /// Creates the tool with an empty list.
    pub fn new() -> Self {
        let spec = ToolSpec {
            name: "todo".into(),
            description:
                "Your task list for multi-step work: todos replaces it; omit todos to read it"
                    .into(),
            parameters: const { &without_blanks(br#"{ "type": "object", "properties": {
                "todos": { "type": "array", "items": {
                    "type": "object", "required": ["content", "status"], "properties": {
                        "content": { "type": "string" },
                        "status": { "type": "string", "enum": ["pending", "in_progress", "completed", "cancelled"] }
                    } } }
            } }"#) }.into(),
        };
        Self { spec, list: Mutex::default() }
    }
}

impl Tool for Todo {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Replacing the list is treated as a write, so that two lists in one reply are applied in order.
    fn effect(&self, arguments: &Value) -> CallEffect {
        if arguments["todos"].is_null() { CallEffect::Reads } else { CallEffect::Writes }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<ToolOutput, ToolError> {
        let arguments = call.arguments;
        let mut list = self.list.lock();
        if let Some(todos) = arguments["todos"].as_array() {
            *list = parse_entries(todos)?;
        }
        Ok(format_list(&list).into())
    }
}

/// Checks the entries of a list as the model wrote it.
///
/// # Errors
/// An entry is invalid. The error is a text for the model that names it.
fn parse_entries(todos: &[Value]) -> Result<Vec<TodoEntry>, String> {
    if todos.len() > MAX_ENTRIES {
        return Err(format!(
            "{} todos are too many; at most {MAX_ENTRIES}: merge some",
            todos.len()
        ));
    }
    let entry = |todo: &Value| {
        let content = todo["content"].as_str().unwrap_or_default();
        // An entry must fit on one line of the list.
        let content = content.split_whitespace().collect::<Vec<_>>().join(" ");
        let status = todo["status"].as_str().and_then(TodoStatus::from_name)?;
        (!content.is_empty()).then_some(TodoEntry { content, status })
    };
    let list: Option<Vec<TodoEntry>> = todos.iter().map(entry).collect();
    let list = list.ok_or("each todo needs a content and a status")?;
    let duplicate = list
        .iter()
        .enumerate()
        .find(|(index, entry)| list[..*index].iter().any(|other| other.content == entry.content));
    match duplicate {
        Some((_, entry)) => Err(format!("`{}` is in the list twice", entry.content)),
        None => Ok(list),
    }
}

fn format_list(list: &[TodoEntry]) -> String {
    if list.is_empty() {
        return "(the list is empty)".into();
    }
    let line = |entry: &TodoEntry| format!("[{}] {}", entry.status.mark(), entry.content);
    let lines: Vec<String> = list.iter().map(line).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::Todo;
    use crate::arguments::cast_and_check;
    use crate::{CallEffect, Tool, run_alone};
    use nanobot_base::message::plain_text;
    use serde_json::{Value, json};

    #[test]
    fn lists() {
        let todo = Todo::new();
        let check = |sent: Value, expect: Result<&str, &str>| {
            let actual = match cast_and_check(&todo.spec().parameters, &sent) {
                Err(message) => Err(message),
                Ok(arguments) => match run_alone(&todo, &arguments) {
                    Ok(output) => Ok(plain_text(&output.parts)),
                    Err(failure) => Err(failure.message().to_owned()),
                },
            };
            match (&actual, expect) {
                (Ok(text), Ok(expect)) => assert_eq!(text, expect, "{sent}"),
                (Err(message), Err(expect)) => assert!(message.contains(expect), "{message}"),
                _ => panic!("{sent}: {actual:?}"),
            }
        };
        let one = |status: &str| json!({ "content": "a", "status": status });
        check(json!({}), Ok("(the list is empty)"));
        check(
            json!({ "todos": [one("completed"), { "content": "b\nc", "status": "in_progress" }] }),
            Ok("[x] a\n[>] b c"),
        );
        check(json!({ "todos": null }), Ok("[x] a\n[>] b c"));
        check(json!({ "todos": [one("done")] }), Err("must be one of"));
        check(json!({ "todos": [one("pending"), one("pending")] }), Err("twice"));
        check(json!({ "todos": [{ "content": " ", "status": "pending" }] }), Err("content"));
        check(json!({ "todos": [{ "content": "a" }] }), Err("missing"));
        check(json!({ "todos": vec![one("pending"); 101] }), Err("too many"));
        // A refused call has changed nothing; a list sent as a string is accepted.
        check(json!({}), Ok("[x] a\n[>] b c"));
        check(json!({ "todos": "[]" }), Ok("(the list is empty)"));
        check(json!({ "todos": [one("cancelled")] }), Ok("[-] a"));
        assert_eq!(todo.effect(&json!({})), CallEffect::Reads);
        assert_eq!(todo.effect(&json!({ "todos": [] })), CallEffect::Writes);
    }
}
