//! The names by which a model knows the tools of servers: `mcp_SERVER_TOOL`, in characters that every provider accepts,
//! compatible with the Python program. No two tools get the same name, so one tool cannot impersonate another. No I/O.

use super::protocol::ToolInfo;
use siphasher::sip::SipHasher13;
use std::collections::BTreeMap;
use std::hash::Hasher;

/// The prefix of all names.
pub const PREFIX: &str = "mcp_";
/// The name of our own tool that reads a resource of a server.
pub const READ_RESOURCE: &str = "mcp_read_resource";
/// The name of our own tool that requests a prompt from a server.
pub const GET_PROMPT: &str = "mcp_get_prompt";

/// The name of our own tool that searches the tools of all servers.
pub const FIND_TOOLS: &str = "mcp_find_tools";
/// The names that no tool of a server gets.
pub const OWN_TOOLS: [&str; 3] = [READ_RESOURCE, GET_PROMPT, FIND_TOOLS];

/// The longest name that all providers accept, in characters.
const MAX_NAME_CHARS: usize = 64;
/// The part of a longer name that is kept, in characters. A fingerprint follows, to distinguish names with the same
/// prefix.
const TRUNCATED_NAME_CHARS: usize = 55;

/// Returns the tools of `server`, each with its name. If several tools would get the same name, only a tool whose own name is unchanged in
/// it gets that name. So the names do not depend on the order of the tools.
pub fn for_tools<'a>(server: &str, tools: &'a [ToolInfo]) -> Vec<(&'a ToolInfo, String)> {
    let mut count_by_name = BTreeMap::from(OWN_TOOLS.map(|name| (name.to_owned(), 1)));
    for tool in tools {
        let name = for_tool(server, &tool.name);
        *count_by_name.entry(name).or_insert(0) += 1;
    }
    let name = |tool: &'a ToolInfo| {
        let name = for_tool(server, &tool.name);
        let is_unchanged =
            !OWN_TOOLS.contains(&&*name) && name.ends_with(&format!("_{}", tool.name));
        if count_by_name[&name] > 1 && !is_unchanged {
            (tool, with_digest(server, &tool.name))
        } else {
            (tool, name)
        }
    };
    tools.iter().map(name).collect()
}

/// Returns the name for `tool` of `server` if no other tool has it.
fn for_tool(server: &str, tool: &str) -> String {
    let name = replace_special_chars(&format!("{PREFIX}{server}_{tool}"));
    if name.len() <= MAX_NAME_CHARS { name } else { with_digest(server, tool) }
}

/// Returns a name for `tool` of `server` that no other tool has.
fn with_digest(server: &str, tool: &str) -> String {
    let mut name = replace_special_chars(&format!("{PREFIX}{server}_{tool}"));
    let mut hasher = SipHasher13::new();
    hasher.write(server.as_bytes());
    hasher.write_u8(0);
    hasher.write(tool.as_bytes());
    let digest = hasher.finish() & 0xffff_ffff;
    name.truncate(TRUNCATED_NAME_CHARS);
    format!("{name}_{digest:08x}")
}

/// Returns the common prefix of the names of all tools of `server`.
pub fn server_prefix(server: &str) -> String {
    let mut name = replace_special_chars(&format!("{PREFIX}{server}_"));
    name.truncate(TRUNCATED_NAME_CHARS);
    name
}

/// Replaces each run of characters that providers do not accept by one `_`.
fn replace_special_chars(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_ascii_alphanumeric() || letter == '-' {
            name.push(letter);
        } else if !name.ends_with('_') {
            name.push('_');
        }
    }
    name
}

/// The assigned names, each with its server and tool.
#[derive(Debug, Default)]
pub struct AssignedNames(BTreeMap<String, (String, String)>);

impl AssignedNames {
    /// Assigns `name`, of [`for_tools`], to `tool` of `server`, or another one if a tool of another server has it.
    ///
    /// # Errors
    /// The reason why the tool gets no name, worded to follow the tool's name.
    pub fn assign(&mut self, server: &str, tool: &str, name: String) -> Result<String, String> {
        if tool.trim().is_empty() {
            return Err("has no name".into());
        }
        let owner = (server.to_owned(), tool.to_owned());
        let name = match self.0.get(&name) {
            Some(other) if *other == owner => return Err("is listed twice".into()),
            Some(_) => with_digest(server, tool),
            None => name,
        };
        match self.0.insert(name.clone(), owner) {
            None => Ok(name),
            Some(_) => Err("is listed twice".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AssignedNames, for_tool, for_tools, server_prefix};
    use crate::protocol::ToolInfo;

    #[test]
    fn names_are_accepted_by_every_provider() {
        let check = |server: &str, tool: &str, expect: &str| {
            assert_eq!(for_tool(server, tool), expect);
            assert!(for_tool(server, tool).starts_with(&server_prefix(server)));
        };
        check("git", "log", "mcp_git_log");
        check("My-Git", "show__all", "mcp_My-Git_show_all");
        check("a.b", "c/d e", "mcp_a_b_c_d_e");
        check("a_", "_b", "mcp_a_b");
        check("é", "日本", "mcp_");
        check("git", "../../etc", "mcp_git_etc");
        check("git", "exec", "mcp_git_exec");
        let long = "x".repeat(500);
        let name = for_tool("git", &long);
        assert_eq!(name.len(), 64);
        assert!(name.starts_with("mcp_git_xxx") && name.starts_with(&server_prefix("git")));
        assert_ne!(name, for_tool("git", &format!("{long}y")));
        assert!(for_tool(&long, "t").starts_with(&server_prefix(&long)));
        assert_eq!(for_tool("s", &"y".repeat(58)).len(), 64);
    }

    #[test]
    fn no_two_tools_share_a_name() {
        let check = |servers: &[(&str, &[&str])], expect: &[&str]| {
            let mut assigned = AssignedNames::default();
            let mut names = Vec::new();
            for (server, tools) in servers {
                let info =
                    |name: &&str| ToolInfo { name: (*name).to_owned(), ..ToolInfo::default() };
                let tools: Vec<ToolInfo> = tools.iter().map(info).collect();
                for (tool, name) in for_tools(server, &tools) {
                    let name = assigned.assign(server, &tool.name, name);
                    names.push(name.unwrap_or_else(|reason| format!("no: {reason}")));
                }
            }
            assert_eq!(names, expect);
        };
        check(&[("a", &["b", "c"])], &["mcp_a_b", "mcp_a_c"]);
        check(&[("a", &["b_c"]), ("a_b", &["c"])], &["mcp_a_b_c", "mcp_a_b_c_2f5190bc"]);
        // The names do not depend on the order.
        let (slash, blank) = ("mcp_a_b_c_42631ff9", "mcp_a_b_c_18cc3b57");
        check(
            &[("a", &["b-c", "b c", "b/c", "b-c"])],
            &["mcp_a_b-c", blank, slash, "no: is listed twice"],
        );
        check(&[("a", &["b/c", "b c"])], &[slash, blank]);
        check(&[("a", &["b c", "b_c"])], &[blank, "mcp_a_b_c"]);
        check(&[("a", &["b c", "d"])], &["mcp_a_b_c", "mcp_a_d"]);
        check(
            &[("read", &["resource"]), ("get", &["prompt"]), ("a", &[" "])],
            &["mcp_read_resource_7fdcdc22", "mcp_get_prompt_be7695c2", "no: has no name"],
        );
    }

    #[test]
    fn fuzz_names_are_plain_and_short() {
        nanobot_base::fuzz::check(&[b"server tool", "\u{e9}__/ -".as_bytes()], |input, _| {
            let text = nanobot_base::fuzz::lossy_text(input);
            let (server, tool) = text.split_at(text.floor_char_boundary(text.len() / 2));
            let name = for_tool(server, tool);
            let is_plain = |letter: u8| letter.is_ascii_alphanumeric() || b"_-".contains(&letter);
            assert!(name.len() <= 64 && name.bytes().all(is_plain));
            assert!(name.starts_with(&server_prefix(server)), "{name} {server:?}");
        });
    }
}
