//! The names of the tools that a run can have, for whoever writes one: a name that means none would forbid or allow
//! nothing, and nobody would notice. Where a name stands alone, `*` and `?` mean several.

/// All tools, whether a run offers them or not; those of MCP servers begin with `mcp_`.
pub const TOOLS: &[&str] = &[
    "read_file",
    "write_file",
    "edit_file",
    "delete_file",
    "list_dir",
    "glob",
    "grep",
    "exec",
    "todo",
    "web_search",
    "web_fetch",
    "spawn",
    "cron",
];

/// Those that look at files, and those that change them: rules about their paths hold for all of a kind, since what one may
/// not show, another may not either.
pub const LOOKING: &[&str] = &["read_file", "list_dir", "glob", "grep"];
pub const CHANGING: &[&str] = &["write_file", "edit_file", "delete_file"];

/// Whether `name` can mean a tool.
///
/// # Errors
/// In words that follow the name: that it does not, and which one is near.
pub fn check(name: &str) -> Result<(), String> {
    if TOOLS.contains(&name) || name.starts_with("mcp_") || name.contains(['*', '?']) {
        return Ok(());
    }
    let small = name.to_lowercase();
    let near = TOOLS
        .iter()
        .map(|tool| (strsim::jaro_winkler(&small, tool), tool))
        .filter(|(score, _)| *score >= 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    Err(match near {
        Some((_, tool)) => format!("names no tool; did you mean `{tool}`?"),
        None => format!("names no tool; there are {}", TOOLS.join(", ")),
    })
}

/// `name` as the tool is called, where only the case differs: names of variables are often all capitals.
pub fn spelled(name: &str) -> &str {
    let same = |tool: &&&str| tool.eq_ignore_ascii_case(name);
    TOOLS.iter().find(same).copied().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::{check, spelled};

    #[test]
    fn names() {
        let check = |name: &str, expect: Result<(), &str>| match (check(name), expect) {
            (Ok(()), Ok(())) => {}
            (Err(words), Err(part)) => assert!(words.contains(part), "{name}: {words}"),
            (found, _) => panic!("{name}: {found:?}"),
        };
        check("exec", Ok(()));
        check("mcp_github_search", Ok(()));
        check("*", Ok(()));
        check("read_*", Ok(()));
        check("exce", Err("did you mean `exec`?"));
        check("Exec", Err("did you mean `exec`?"));
        check("readfile", Err("did you mean `read_file`?"));
        check("zzz", Err("there are read_file"));
        check("", Err("names no tool"));
        assert_eq!(spelled("WEB_FETCH"), "web_fetch");
        assert_eq!(spelled("MCP_X"), "MCP_X");
    }
}
