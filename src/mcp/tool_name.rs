//! The names by which a model knows the tools of servers: `mcp_SERVER_TOOL`, in characters that every provider accepts,
//! compatible with the Python program. No two tools get the same name, so one tool cannot impersonate another. Pure.

use siphasher::sip::SipHasher13;
use std::collections::BTreeMap;
use std::hash::Hasher;

/// The prefix of all names.
pub const PREFIX: &str = "mcp_";
/// The name of our own tool that reads a resource of a server.
pub const READ_RESOURCE: &str = "mcp_read_resource";
/// The name of our own tool that requests a prompt from a server.
pub const GET_PROMPT: &str = "mcp_get_prompt";

/// The longest name that all providers accept, in characters.
const MAX_NAME_CHARS: usize = 64;
/// The part of a longer name that is kept, in characters. A fingerprint follows, to distinguish names with the same
/// prefix.
const TRUNCATED_NAME_CHARS: usize = 55;

/// Returns the name for `tool` of `server`.
pub fn for_tool(server: &str, tool: &str) -> String {
    let name = replace_special_chars(&format!("{PREFIX}{server}_{tool}"));
    if name.len() <= MAX_NAME_CHARS {
        return name;
    }
    let mut hasher = SipHasher13::new();
    hasher.write(server.as_bytes());
    hasher.write_u8(0);
    hasher.write(tool.as_bytes());
    let mark = hasher.finish() & 0xffff_ffff;
    format!("{}_{mark:08x}", &name[..TRUNCATED_NAME_CHARS])
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
        let plain = letter.is_ascii_alphanumeric() || letter == '-';
        match plain {
            true => name.push(letter),
            false if name.ends_with('_') => {}
            false => name.push('_'),
        }
    }
    name
}

/// The assigned names, each with its server and tool.
#[derive(Debug, Default)]
pub struct AssignedNames(BTreeMap<String, (String, String)>);

impl AssignedNames {
    /// Assigns the name for `tool` of `server`, if no other tool has it.
    ///
    /// # Errors
    /// The reason why the tool gets no name, worded to follow the tool's name.
    pub fn assign(&mut self, server: &str, tool: &str) -> Result<String, String> {
        if tool.trim().is_empty() {
            return Err("has no name".into());
        }
        let name = for_tool(server, tool);
        if name == READ_RESOURCE || name == GET_PROMPT {
            return Err(format!("would be `{name}`, which is a built-in tool"));
        }
        if let Some((other, theirs)) = self.0.get(&name) {
            return Err(match other == server {
                true if theirs == tool => "is listed twice".into(),
                true => format!("would be `{name}`, like its tool `{theirs}`"),
                false => format!("would be `{name}`, like `{theirs}` of `{other}`"),
            });
        }
        let owner = (server.to_owned(), tool.to_owned());
        self.0.insert(name.clone(), owner);
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::{AssignedNames, for_tool, server_prefix};

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
        let check = |tools: &[(&str, &str)], expect: &[&str]| {
            let mut names = AssignedNames::default();
            let taken = tools.iter().map(|(server, tool)| {
                let taken = names.assign(server, tool);
                taken.unwrap_or_else(|words| format!("no: {words}"))
            });
            assert_eq!(taken.collect::<Vec<String>>(), expect);
        };
        check(&[("a", "b"), ("a", "c")], &["mcp_a_b", "mcp_a_c"]);
        check(
            &[("a", "b_c"), ("a_b", "c")],
            &["mcp_a_b_c", "no: would be `mcp_a_b_c`, like `b_c` of `a`"],
        );
        check(
            &[("a", "b-c"), ("a", "b c"), ("a", "b/c"), ("a", "b-c")],
            &[
                "mcp_a_b-c",
                "mcp_a_b_c",
                "no: would be `mcp_a_b_c`, like its tool `b c`",
                "no: is listed twice",
            ],
        );
        check(
            &[("read", "resource"), ("get", "prompt"), ("a", " ")],
            &[
                "no: would be `mcp_read_resource`, which is a built-in tool",
                "no: would be `mcp_get_prompt`, which is a built-in tool",
                "no: has no name",
            ],
        );
    }

    #[test]
    fn fuzz_names_are_plain_and_short() {
        crate::fuzz::check(&[b"server tool", "\u{e9}__/ -".as_bytes()], |input, _| {
            let text = crate::fuzz::lossy_text(input);
            let (server, tool) = text.split_at(text.floor_char_boundary(text.len() / 2));
            let name = for_tool(server, tool);
            let is_plain = |letter: u8| letter.is_ascii_alphanumeric() || b"_-".contains(&letter);
            assert!(name.len() <= 64 && name.bytes().all(is_plain));
            assert!(
                name.starts_with(&server_prefix(server)),
                "{name} {server:?}"
            );
        });
    }
}
