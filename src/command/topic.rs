//! `nanobot help TOPIC`: prints a topic.

use crate::cli::topics::HelpTopic;
use crate::ops::pager;
use anyhow::Result;
use nanobot_agent::report::render_markdown;
use nanobot_base::error::Exit;
use nanobot_os::env::Env;
use nanobot_os::terminal::Terminal;

/// Runs `nanobot help TOPIC`.
pub fn run(env: &Env, terminal: Terminal, topic: &HelpTopic) -> Result<Exit> {
    let text = if terminal.stdout_is_rich { join_lines(topic.text) } else { topic.text.to_owned() };
    let page = render_markdown(terminal, &format!("# {}\n\n{text}", topic.summary))?;
    pager::show(env, terminal, page)?;
    Ok(Exit::Answered)
}

/// Joins the lines of each paragraph and of each item of a list, so that they can be wrapped at another width. Code, tables and
/// headings stay.
fn join_lines(text: &str) -> String {
    let mut joined = String::new();
    for line in text.lines() {
        let is_own_line = ["    ", "|", "#", "- "].iter().any(|start| line.starts_with(start));
        let continues = !joined.is_empty() && !joined.ends_with('\n');
        if line.is_empty() {
            joined.push_str(if continues { "\n\n" } else { "\n" });
        } else if continues && is_own_line {
            joined.push('\n');
            joined.push_str(line);
        } else {
            joined.push_str(if continues { " " } else { "" });
            joined.push_str(if continues { line.trim_start() } else { line });
        }
    }
    joined.push('\n');
    joined
}

#[cfg(test)]
mod tests {
    use super::join_lines;

    #[test]
    fn lines_of_a_paragraph_are_joined() {
        let check = |text: &str, expect: &str| assert_eq!(join_lines(text), expect, "{text}");
        check("a\nb\n\nc\nd\n", "a b\n\nc d\n");
        check("- a\n  b\n- c\n  d\n\ne\n", "- a b\n- c d\n\ne\n");
        check("a\n\n    x\n    y\n\nb\n", "a\n\n    x\n    y\n\nb\n");
        check("## a\n\n| b | c |\n|---|---|\n", "## a\n\n| b | c |\n|---|---|\n");
    }
}
