//! The built-in tools by name, with the facts about each that other parts of the program need. A misspelled name in a rule would
//! silently forbid or allow nothing, so names are checked here. Patterns may use `*` and `?`.

/// A built-in tool.
#[derive(Debug)]
pub struct BuiltInTool {
    pub name: &'static str,
    /// Its kind in the words of the Agent Client Protocol, by which an editor chooses an icon.
    pub kind: &'static str,
    pub results: ToolResultContent,
    /// The arguments that identify a call in a line about it, in groups. The first group with an argument of the call is used.
    pub identified_by: &'static [&'static [&'static str]],
}

/// The content of a tool's results, by which the origin of a conversation rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolResultContent {
    /// Only text of this program.
    Own,
    /// Content or names of files.
    Files,
    /// Content of files, verbatim.
    FileQuotes,
    /// Untrusted content, unless the call shows another origin.
    Outside,
}

use ToolResultContent::{FileQuotes, Files, Outside, Own};

const fn built_in(
    name: &'static str,
    kind: &'static str,
    results: ToolResultContent,
    identified_by: &'static [&'static [&'static str]],
) -> BuiltInTool {
    BuiltInTool { name, kind, results, identified_by }
}

// Skipped by rustfmt, to keep one row for each tool.
#[rustfmt::skip]
/// All built-in tools that rules can name, offered or not. Tools of MCP servers and programs of the user are not listed; their
/// names begin with `mcp_` and `tool_`.
pub const BUILT_IN_TOOLS: &[BuiltInTool] = &[
    built_in("read_file", "read", FileQuotes, &[&["path"]]),
    built_in("write_file", "edit", Own, &[&["path"]]),
    built_in("edit_file", "edit", Files, &[&["path"]]),
    built_in("delete_file", "delete", Own, &[&["path"]]),
    built_in(APPLY_PATCH, "edit", Files, &[]),
    built_in(GENERATE_IMAGE, "edit", Own, &[&["path"]]),
    built_in("list_dir", "read", Files, &[&["path"]]),
    built_in("glob", "search", Files, &[&["pattern", "path"]]),
    built_in("grep", "search", FileQuotes, &[&["pattern", "path"]]),
    built_in(EXEC, "execute", Outside, &[&["command"]]),
    built_in(PROCESS, "execute", Outside, &[&["id", "input"]]),
    built_in(SESSIONS, "read", Outside, &[&["action", "key", "text"]]),
    built_in("todo", "think", Own, &[]),
    built_in(WEB_SEARCH, "fetch", Outside, &[&["query"]]),
    built_in(WEB_FETCH, "fetch", Outside, &[&["url"]]),
    built_in(MESSAGE, "other", Own, &[&["content"]]),
    built_in("spawn", "other", Own, &[&["label"], &["task"]]),
    built_in(CRON, "other", Own, &[&["action", "name", "job"]]),
];

/// The built-in tool of this name.
pub fn find_built_in(name: &str) -> Option<&'static BuiltInTool> {
    BUILT_IN_TOOLS.iter().find(|tool| tool.name == name)
}

/// The tool that asks the user. Only the REPL and editors have it, and no rule names it.
pub const ASK_USER: &str = "ask_user";

/// The beginning of the names of tools that are programs of the user.
pub const PROGRAM_PREFIX: &str = "tool_";

/// Words of rules that are not names of tools: changes of files that instruct later runs, and signatures.
pub(crate) const RESERVED_WORDS: &[&str] = &["notes", SIGNING, "startup"];

/// The reserved word for signatures of git, which only a rule of its own allows.
pub const SIGNING: &str = "signing";

/// Tools that read files. A rule about the paths of one applies to all of them: a path hidden from one must not be
/// visible through another.
pub const READ_TOOLS: &[&str] = &["read_file", "list_dir", "glob", "grep"];
/// Tools that change files. A rule about the paths of one applies to all of them, as with [`READ_TOOLS`].
pub const WRITE_TOOLS: &[&str] =
    &["write_file", "edit_file", "delete_file", APPLY_PATCH, GENERATE_IMAGE];

/// The tool that makes pictures.
pub const GENERATE_IMAGE: &str = "generate_image";

/// The tool that changes several files at once.
pub const APPLY_PATCH: &str = "apply_patch";

/// The tool that runs commands.
pub const EXEC: &str = "exec";

/// The tool for commands in the background. Its input is text for a program that may be a shell, so it is a command as far
/// as permissions and rules matter.
pub const PROCESS: &str = "process";

/// The tool that searches the web.
pub const WEB_SEARCH: &str = "web_search";

/// The tool that reads web pages.
pub const WEB_FETCH: &str = "web_fetch";

/// The tool that adds and removes jobs.
pub const CRON: &str = "cron";

/// The tool that writes to the user's chats.
pub const MESSAGE: &str = "message";

/// The tool for other conversations. It is for the user's own turns: the REPL and editors have it, and ask about each call;
/// other runs have it if the user names it, which allows its calls.
pub const SESSIONS: &str = "sessions";

/// True if `tool` runs commands or programs in the sandbox.
pub fn runs_commands(tool: &str) -> bool {
    [EXEC, PROCESS].contains(&tool) || tool.starts_with(PROGRAM_PREFIX)
}

/// The tools whose changes a call of `tool` can make, itself included.
pub(crate) fn tools_within(tool: &str) -> Vec<&str> {
    match tool {
        APPLY_PATCH => vec!["write_file", "edit_file", "delete_file", APPLY_PATCH],
        PROCESS => vec![PROCESS, EXEC],
        tool => vec![tool],
    }
}

/// The beginnings of the names of tools that servers and programs of the user bring.
pub(crate) const EXTERNAL_PREFIXES: [&str; 2] = ["mcp_", PROGRAM_PREFIX];

/// The similarity (Jaro-Winkler) from which a name is treated as a misspelling of another.
const MIN_SIMILARITY: f64 = 0.8;

/// Checks that `name` can refer to a tool: a built-in, an `mcp_` or `tool_` name, or a pattern.
///
/// # Errors
/// If it cannot: a phrase to append to the name, with the closest known name.
pub fn check(name: &str) -> Result<(), String> {
    let is_external = EXTERNAL_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    if find_built_in(name).is_some() || is_external || name.contains(['*', '?']) {
        return Ok(());
    }
    let lower = name.to_lowercase();
    let names = BUILT_IN_TOOLS.iter().map(|tool| tool.name);
    let closest = names
        .clone()
        .map(|tool| (strsim::jaro_winkler(&lower, tool), tool))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    Err(match closest {
        Some((_, tool)) => format!("is not a tool; did you mean `{tool}`?"),
        None => {
            format!("is not a tool; the tools are {}", names.collect::<Vec<_>>().join(", "))
        }
    })
}

/// The tool's own spelling of `name` if only the case differs (environment variable names are often upper case), else
/// `name`.
pub(crate) fn canonical_name(name: &str) -> &str {
    let same = |tool: &&BuiltInTool| tool.name.eq_ignore_ascii_case(name);
    BUILT_IN_TOOLS.iter().find(same).map_or(name, |tool| tool.name)
}

#[cfg(test)]
mod tests {
    use super::{
        BUILT_IN_TOOLS, FileQuotes, Files, READ_TOOLS, WRITE_TOOLS, canonical_name, check,
    };

    #[test]
    fn names() {
        let check = |name: &str, expect: Result<(), &str>| match (check(name), expect) {
            (Ok(()), Ok(())) => {}
            (Err(message), Err(part)) => assert!(message.contains(part), "{name}: {message}"),
            (actual, _) => panic!("{name}: {actual:?}"),
        };
        check("exec", Ok(()));
        check("mcp_github_search", Ok(()));
        check("tool_weather", Ok(()));
        check("*", Ok(()));
        check("read_*", Ok(()));
        check("exce", Err("did you mean `exec`?"));
        check("Exec", Err("did you mean `exec`?"));
        check("readfile", Err("did you mean `read_file`?"));
        check("zzz", Err("the tools are read_file"));
        check("notes", Err("is not a tool"));
        check("", Err("is not a tool"));
        assert_eq!(canonical_name("WEB_FETCH"), "web_fetch");
        assert_eq!(canonical_name("MCP_X"), "MCP_X");
    }

    /// A rule about paths would not hold for one that is in neither list.
    #[test]
    fn tools_of_files_are_known_to_the_rules_of_paths() {
        for tool in BUILT_IN_TOOLS {
            let takes_path = tool.identified_by.iter().any(|group| group.contains(&"path"));
            let is_of_files = takes_path
                || matches!(tool.results, Files | FileQuotes)
                || ["edit", "delete"].contains(&tool.kind);
            let is_listed = READ_TOOLS.contains(&tool.name) || WRITE_TOOLS.contains(&tool.name);
            assert_eq!(is_of_files, is_listed, "{}: READ_TOOLS or WRITE_TOOLS", tool.name);
        }
    }
}
