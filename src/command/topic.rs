//! `nanobot help TOPIC`: prints a topic.

use crate::cli::topics::HelpTopic;
use crate::error::Exit;
use crate::report::print_markdown;
use crate::sys::terminal::Terminal;
use anyhow::Result;

/// Runs `nanobot help TOPIC`.
pub fn run(terminal: Terminal, topic: &HelpTopic) -> Result<Exit> {
    print_markdown(terminal, &format!("# {}\n\n{}", topic.about, topic.text))?;
    Ok(Exit::Answered)
}
