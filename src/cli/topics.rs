//! Topics: pages about what several commands share, for `nanobot help TOPIC` and as man pages.

/// A topic.
#[derive(Debug)]
pub struct HelpTopic {
    pub name: &'static str,
    /// One line for the list of topics.
    pub about: &'static str,
    /// Markdown: paragraphs, lists, indented commands, and headings of the second level.
    pub text: &'static str,
}

/// All topics, in the order of the list.
pub const TOPICS: &[HelpTopic] = &[
    HelpTopic {
        name: "scripting",
        about: "Streams, attachments, schemas, recordings, exit statuses",
        text: include_str!("topics/scripting.md"),
    },
    HelpTopic {
        name: "permissions",
        about: "What a run may do, and how to allow more",
        text: include_str!("topics/permissions.md"),
    },
    HelpTopic {
        name: "models",
        about: "Models, providers, keys, costs and budgets",
        text: include_str!("topics/models.md"),
    },
    HelpTopic {
        name: "sessions",
        about: "Conversations, and what is sent of them",
        text: include_str!("topics/sessions.md"),
    },
    HelpTopic {
        name: "memory",
        about: "What outlasts a conversation",
        text: include_str!("topics/memory.md"),
    },
    HelpTopic {
        name: "jobs",
        about: "Scheduled jobs, under cron and other schedulers",
        text: include_str!("topics/jobs.md"),
    },
    HelpTopic {
        name: "channels",
        about: "Answers in Telegram, Matrix and ntfy, and messages from scripts",
        text: include_str!("topics/channels.md"),
    },
    HelpTopic {
        name: "servers",
        about: "MCP servers and skills",
        text: include_str!("topics/servers.md"),
    },
    HelpTopic {
        name: "terminal",
        about: "The REPL, completions, checks",
        text: include_str!("topics/terminal.md"),
    },
    HelpTopic {
        name: "privacy",
        about: "What leaves the machine, and when",
        text: include_str!("topics/privacy.md"),
    },
];

/// The topic named `name`.
///
/// # Errors
/// There is none; the message lists the names.
pub fn find_topic(name: &str) -> Result<&'static HelpTopic, String> {
    let names = TOPICS.iter().map(|topic| topic.name);
    let found = TOPICS.iter().find(|topic| topic.name == name);
    found.ok_or_else(|| format!("the topics are {}", names.collect::<Vec<_>>().join(", ")))
}
