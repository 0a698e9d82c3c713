//! `nanobot help TOPIC`: prints a topic.

use crate::cli::topics::HelpTopic;
use anyhow::Result;
use nanobot_agent::report::print_markdown;
use nanobot_base::error::Exit;
use nanobot_os::terminal::Terminal;

/// Runs `nanobot help TOPIC`.
pub fn run(terminal: Terminal, topic: &HelpTopic) -> Result<Exit> {
    print_markdown(terminal, &format!("# {}\n\n{}", topic.summary, topic.text))?;
    Ok(Exit::Answered)
}
