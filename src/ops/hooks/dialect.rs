//! The names of tools and arguments as scripts for other programs know them. A hook that is configured in the notation of another program
//! receives and returns that program's names; all other names stay ours.

use nanobot_config::settings::hooks::HookDialect;
use nanobot_mcp::tool_name::{OWN_TOOLS, server_prefix};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::cmp::Reverse;

/// A tool of ours, and its names in other programs.
struct ToolAlias {
    name: &'static str,
    vibe: &'static [&'static str],
    claude_code: &'static [&'static str],
    /// Our arguments, Vibe's and Claude Code's.
    arguments: &'static [Argument],
}

type Argument = (&'static str, &'static str, &'static str);

const fn row(
    name: &'static str,
    vibe: &'static [&'static str],
    claude_code: &'static [&'static str],
    arguments: &'static [Argument],
) -> ToolAlias {
    ToolAlias { name, vibe, claude_code, arguments }
}

const EDIT_ARGUMENTS: &[Argument] = &[
    ("path", "file_path", "file_path"),
    ("old_text", "old_string", "old_string"),
    ("new_text", "new_string", "new_string"),
];
const SPAWN_ARGUMENTS: &[Argument] =
    &[("task", "task", "prompt"), ("label", "label", "description")];

/// Tools with a counterpart. The first name is the one that scripts receive; the others are older ones, which matchers may
/// use.
const TOOLS: &[ToolAlias] = &[
    row("exec", &["bash"], &["Bash"], &[]),
    row("read_file", &["read", "read_file"], &["Read"], &[("path", "file_path", "file_path")]),
    row("write_file", &["write_file"], &["Write"], &[("path", "path", "file_path")]),
    row("edit_file", &["edit", "search_replace"], &["Edit", "MultiEdit"], EDIT_ARGUMENTS),
    row("grep", &["grep"], &["Grep"], &[]),
    row("glob", &[], &["Glob"], &[]),
    row("list_dir", &[], &["LS"], &[]),
    row("web_fetch", &["web_fetch"], &["WebFetch"], &[]),
    row("web_search", &["web_search"], &["WebSearch"], &[]),
    row("todo", &["todo"], &["TodoWrite"], &[]),
    row("spawn", &["task"], &["Agent", "Task"], SPAWN_ARGUMENTS),
];

/// Claude Code's time limit of a command is in milliseconds, ours and Vibe's in seconds.
const MILLISECONDS: u64 = 1000;

fn alias(tool: &str) -> Option<&'static ToolAlias> {
    TOOLS.iter().find(|alias| alias.name == tool)
}

/// The names of `tool` for a matcher, the one that scripts receive first. `servers` are the names of the MCP servers.
pub(super) fn tool_names<'a>(
    dialect: HookDialect,
    tool: &'a str,
    servers: &[String],
) -> Vec<Cow<'a, str>> {
    let aliases = match (dialect, alias(tool)) {
        (HookDialect::Vibe, Some(alias)) => alias.vibe,
        (HookDialect::ClaudeCode, Some(alias)) => alias.claude_code,
        _ => &[],
    };
    let own = (!aliases.contains(&tool)).then_some(tool);
    let names = aliases.iter().copied().chain(own).map(Cow::Borrowed);
    match dialect {
        HookDialect::ClaudeCode => {
            server_tool_names(tool, servers).map(Cow::Owned).chain(names).collect()
        }
        _ => names.collect(),
    }
}

/// Claude Code's names of a tool of a server: `mcp__SERVER__TOOL`. If one server's name begins with that of another, our name can mean
/// several; the first is that of the longest.
fn server_tool_names(tool: &str, servers: &[String]) -> impl Iterator<Item = String> {
    let mut servers: Vec<&String> = servers.iter().collect();
    servers.sort_by_key(|server| Reverse(server.len()));
    servers.into_iter().filter(move |_| !OWN_TOOLS.contains(&tool)).filter_map(move |server| {
        let rest = tool.strip_prefix(&server_prefix(server))?;
        let is_kept = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
        Some(format!("mcp__{}__{rest}", server.replace(|letter| !is_kept(letter), "_")))
    })
}

/// The arguments of a call of `tool`, under the names of `dialect`.
pub(super) fn to_dialect(dialect: HookDialect, tool: &str, arguments: &Value) -> Value {
    rename(dialect, tool, arguments, Direction::ToDialect)
}

/// The arguments that a hook of `dialect` gave for a call of `tool`, under our names.
pub(super) fn from_dialect(dialect: HookDialect, tool: &str, arguments: &Value) -> Value {
    rename(dialect, tool, arguments, Direction::FromDialect)
}

/// The direction in which arguments are renamed.
#[derive(Clone, Copy)]
enum Direction {
    ToDialect,
    FromDialect,
}

fn rename(dialect: HookDialect, tool: &str, arguments: &Value, direction: Direction) -> Value {
    let (Some(alias), Some(fields)) = (alias(tool), arguments.as_object()) else {
        return arguments.clone();
    };
    let new_name = |name: &str| {
        let mut pairs = alias.arguments.iter().filter_map(|(own, vibe, claude_code)| {
            let foreign = match dialect {
                HookDialect::Nanobot => return None,
                HookDialect::Vibe => vibe,
                HookDialect::ClaudeCode => claude_code,
            };
            Some(match direction {
                Direction::ToDialect => (own, foreign),
                Direction::FromDialect => (foreign, own),
            })
        });
        pairs.find(|(old, _)| **old == name).map_or(name, |(_, new)| new).to_owned()
    };
    let is_time_limit = |name: &str| {
        dialect == HookDialect::ClaudeCode && alias.name == "exec" && name == "timeout"
    };
    let renamed: Map<String, Value> = fields
        .iter()
        .map(|(name, value)| match (value.as_u64(), direction) {
            (Some(limit), Direction::ToDialect) if is_time_limit(name) => {
                (name.clone(), limit.saturating_mul(MILLISECONDS).into())
            }
            (Some(limit), Direction::FromDialect) if is_time_limit(name) => {
                (name.clone(), limit.div_ceil(MILLISECONDS).into())
            }
            _ => (new_name(name), value.clone()),
        })
        .collect();
    Value::Object(renamed)
}

#[cfg(test)]
mod tests {
    use super::{from_dialect, to_dialect, tool_names};
    use nanobot_config::settings::hooks::HookDialect;
    use nanobot_config::settings::hooks::HookDialect::{ClaudeCode, Nanobot, Vibe};
    use serde_json::json;

    #[test]
    fn the_tool_of_a_server_has_the_names_of_the_other_program() {
        let check = |dialect: HookDialect, tool: &str, servers: &[&str], expect: &[&str]| {
            let servers: Vec<String> = servers.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(tool_names(dialect, tool, &servers), expect, "{servers:?}");
        };
        let tool = "mcp_my_server_list_all";
        let whole = "mcp__my_server__list_all";
        check(ClaudeCode, tool, &["other", "my_server"], &[whole, tool]);
        check(ClaudeCode, tool, &["my", "my_server"], &[whole, "mcp__my__server_list_all", tool]);
        check(ClaudeCode, tool, &["my.server"], &[whole, tool]);
        check(ClaudeCode, tool, &["my__server"], &["mcp__my__server__list_all", tool]);
        check(ClaudeCode, tool, &["other"], &[tool]);
        check(Vibe, tool, &["my_server"], &[tool]);
        check(ClaudeCode, "mcp_read_resource", &["read"], &["mcp_read_resource"]);
        check(ClaudeCode, "exec", &["exec"], &["Bash", "exec"]);
    }

    #[test]
    fn names_and_arguments_are_translated_both_ways() {
        let check = |dialect, tool: &str, name: &str, ours: serde_json::Value, theirs| {
            assert_eq!(tool_names(dialect, tool, &[])[0], name);
            assert_eq!(to_dialect(dialect, tool, &ours), theirs);
            assert_eq!(from_dialect(dialect, tool, &theirs), ours);
        };
        let edit = json!({"path": "a", "old_text": "b", "new_text": "c", "replace_all": true});
        let theirs =
            json!({"file_path": "a", "old_string": "b", "new_string": "c", "replace_all": true});
        check(Nanobot, "edit_file", "edit_file", edit.clone(), edit.clone());
        check(ClaudeCode, "edit_file", "Edit", edit.clone(), theirs.clone());
        check(Vibe, "edit_file", "edit", edit, theirs);
        let command = json!({"command": "ls", "timeout": 5});
        check(
            ClaudeCode,
            "exec",
            "Bash",
            command.clone(),
            json!({"command": "ls", "timeout": 5000}),
        );
        check(Vibe, "exec", "bash", command.clone(), command);
        check(ClaudeCode, "mcp_a_b", "mcp_a_b", json!({"path": 1}), json!({"path": 1}));
        check(Vibe, "write_file", "write_file", json!({"path": "a"}), json!({"path": "a"}));
    }
}
