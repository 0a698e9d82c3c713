//! Topics: pages about what several commands share, for `nanobot help TOPIC` and as man pages.

use super::page_table::PAGES;
use nanobot_config::settings::keys::nearest;

/// A topic.
#[derive(Debug)]
pub struct HelpTopic {
    pub name: &'static str,
    /// One line for the list of topics.
    pub summary: &'static str,
    /// Markdown: paragraphs, lists, indented commands, and headings of the second level.
    pub text: &'static str,
}

/// All topics, in the order of the list.
#[rustfmt::skip]
pub const TOPICS: &[HelpTopic] = &[
    topic("scripting", "Streams, attachments, schemas, recordings, exit statuses", include_str!("topics/scripting.md")),
    topic("permissions", "What a run may do, and how to allow more", include_str!("topics/permissions.md")),
    topic("models", "Models, providers, keys, costs and budgets", include_str!("topics/models.md")),
    topic("sessions", "Conversations, and what is sent of them", include_str!("topics/sessions.md")),
    topic("memory", "What outlasts a conversation", include_str!("topics/memory.md")),
    topic("jobs", "Scheduled jobs, under cron and other schedulers", include_str!("topics/jobs.md")),
    topic("channels", "Answers in chat services and by e-mail, and messages from scripts", include_str!("topics/channels.md")),
    topic("servers", "MCP servers and skills", include_str!("topics/servers.md")),
    topic("hooks", "Commands of yours before and after tool calls, turns and jobs", include_str!("topics/hooks.md")),
    topic("programs", "Programs of yours as tools, and nanobot as a program for others", include_str!("topics/programs.md")),
    topic("terminal", "The REPL, completions, checks, upgrades and removal", include_str!("topics/terminal.md")),
    topic("privacy", "What leaves the machine, and when", include_str!("topics/privacy.md")),
];

const fn topic(name: &'static str, summary: &'static str, text: &'static str) -> HelpTopic {
    HelpTopic { name, summary, text }
}

/// The topic named `name`.
///
/// # Errors
/// There is no such topic. The message lists the names.
pub fn find_topic(name: &str) -> Result<&'static HelpTopic, String> {
    let names = TOPICS.iter().map(|topic| topic.name);
    let topic = TOPICS.iter().find(|topic| topic.name == name);
    topic.ok_or_else(|| {
        let commands = PAGES.iter().map(|page| page.command);
        let suggestion = nearest(name, names.clone().chain(commands))
            .map(|nearest| format!("; did you mean `{nearest}`?"));
        format!(
            "there is no such command or topic; the topics are {}{}",
            names.collect::<Vec<_>>().join(", "),
            suggestion.unwrap_or_default()
        )
    })
}
