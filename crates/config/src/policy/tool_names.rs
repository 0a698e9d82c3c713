//! The names of the tools that a run can offer. A misspelled name in a rule would silently forbid or allow nothing, so
//! names are checked here. Patterns may use `*` and `?`.

/// All built-in tools, offered or not. Tools of MCP servers and programs of the user are not listed; their names
/// begin with `mcp_` and `tool_`.
pub const TOOLS: &[&str] = &[
    "read_file",
    "write_file",
    "edit_file",
    "delete_file",
    APPLY_PATCH,
    "list_dir",
    "glob",
    "grep",
    EXEC,
    PROCESS,
    SESSIONS,
    "todo",
    "web_search",
    "web_fetch",
    MESSAGE,
    "spawn",
    "cron",
];

/// The beginning of the names of tools that are programs of the user.
pub const PROGRAM_PREFIX: &str = "tool_";

/// Words that name in a rule what no tool is: changes of files that instruct later runs, and signatures. No tool has such a name.
pub const RESERVED_WORDS: &[&str] = &["notes", SIGNING, "startup"];

/// The reserved word for signatures of git, which only a rule of its own allows.
pub const SIGNING: &str = "signing";

/// Tools that read files. A rule about the paths of one applies to all of them: a path hidden from one must not be
/// visible through another.
pub const READ_TOOLS: &[&str] = &["read_file", "list_dir", "glob", "grep"];
/// Tools that change files. A rule about the paths of one applies to all of them, as with [`READ_TOOLS`].
pub const WRITE_TOOLS: &[&str] = &["write_file", "edit_file", "delete_file", APPLY_PATCH];

/// The tool that changes several files at once.
pub const APPLY_PATCH: &str = "apply_patch";

/// The tool that runs commands.
pub const EXEC: &str = "exec";

/// The tool for commands in the background. Its input is text for a program that may be a shell, so it is a command as far
/// as permissions and rules matter.
pub const PROCESS: &str = "process";

/// The tool that writes to the user's chats.
pub const MESSAGE: &str = "message";

/// The tool for other conversations. It is for the user's own turns: the repl has it, other runs if the user names it.
pub const SESSIONS: &str = "sessions";

/// True if `tool` runs commands or programs in the sandbox.
pub fn runs_commands(tool: &str) -> bool {
    [EXEC, PROCESS].contains(&tool) || tool.starts_with(PROGRAM_PREFIX)
}

/// The tools whose changes a call of `tool` can make, itself included.
pub fn tools_within(tool: &str) -> Vec<&str> {
    match tool {
        APPLY_PATCH => WRITE_TOOLS.to_vec(),
        PROCESS => vec![PROCESS, EXEC],
        tool => vec![tool],
    }
}

/// Checks that `name` can refer to a tool: a built-in, an `mcp_` or `tool_` name, or a pattern.
///
/// # Errors
/// If it cannot: a phrase to append to the name, with the closest known name.
pub fn check(name: &str) -> Result<(), String> {
    let is_external = ["mcp_", PROGRAM_PREFIX].iter().any(|prefix| name.starts_with(prefix));
    if TOOLS.contains(&name) || is_external || name.contains(['*', '?']) {
        return Ok(());
    }
    let small = name.to_lowercase();
    let near = TOOLS
        .iter()
        .map(|tool| (strsim::jaro_winkler(&small, tool), tool))
        .filter(|(score, _)| *score >= 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    Err(match near {
        Some((_, tool)) => format!("is not a tool; did you mean `{tool}`?"),
        None => format!("is not a tool; the tools are {}", TOOLS.join(", ")),
    })
}

/// The tool's own spelling of `name` if only the case differs (environment variable names are often upper case), else
/// `name`.
pub fn canonical_name(name: &str) -> &str {
    let same = |tool: &&&str| tool.eq_ignore_ascii_case(name);
    TOOLS.iter().find(same).copied().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::{canonical_name, check};

    #[test]
    fn names() {
        let check = |name: &str, expect: Result<(), &str>| match (check(name), expect) {
            (Ok(()), Ok(())) => {}
            (Err(message), Err(part)) => assert!(message.contains(part), "{name}: {message}"),
            (found, _) => panic!("{name}: {found:?}"),
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
}
