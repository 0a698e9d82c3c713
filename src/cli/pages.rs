//! Help and man page sections of each command beside its flags: exit statuses, variables, files, examples.
//!
//! There is a row for each command. [`documented`] adds them to the help; the man pages are made from the same rows.

use clap::{Arg, Command};
use std::fmt::Write;

/// Documentation of one command.
#[derive(Debug)]
pub struct Page {
    /// Words after `nanobot`; empty for the program itself.
    pub command: &'static str,
    /// Exit statuses and their meanings; empty for the table of all statuses.
    pub statuses: &'static [(u8, &'static str)],
    /// Environment variables it reads, beside those that all commands read.
    pub variables: &'static [&'static str],
    /// Files it uses: a part of the path of each.
    pub files: &'static [&'static str],
    /// Working command lines with descriptions.
    pub examples: &'static [(&'static str, &'static str)],
}

/// Length of the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `-h`: what fits a screen.
    Short,
    /// `--help`: everything.
    Long,
}

/// The row of `command`.
pub fn page(command: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.command == command)
}

/// Adds the rows to `command` and its subcommands. Builds the whole command tree, which is slow: for help only.
pub fn documented(mut command: Command, form: Form, statuses: &str) -> Command {
    command.build();
    told(command, &mut Vec::new(), form, statuses)
}

fn told(command: Command, words: &mut Vec<String>, form: Form, statuses: &str) -> Command {
    let path = words.join(" ");
    let below: Vec<String> = command
        .get_subcommands()
        .map(|below| below.get_name().to_owned())
        .collect();
    let mut command = match form {
        Form::Short => short(command, &path),
        Form::Long => long(command, page(&path), statuses),
    };
    for name in below {
        words.push(name.clone());
        command = command.mut_subcommand(name, |below| told(below, words, form, statuses));
        words.pop();
    }
    command
}

/// A single list of flags, without the global ones, and a pointer to the long help.
fn short(command: Command, path: &str) -> Command {
    let line = match path {
        "" => {
            "Flags, examples and exit statuses: nanobot --help, nanobot COMMAND --help".to_owned()
        }
        path => format!("All flags, examples and exit statuses: nanobot {path} --help"),
    };
    let command = command.mut_args(|arg| {
        let is_shared = SHARED.contains(&arg.get_id().as_str());
        let arg = match arg.is_positional() {
            true => arg,
            false => arg.help_heading(None::<&'static str>),
        };
        match is_shared {
            true => arg.hide_short_help(true),
            false => arg,
        }
    });
    let command = match path {
        "" => {
            command.help_template("{about}\n{usage-heading} {usage}\n\n{subcommands}{after-help}")
        }
        _ => command,
    };
    command.after_help(line)
}

fn long(command: Command, page: Option<&Page>, statuses: &str) -> Command {
    let Some(page) = page else {
        return command;
    };
    let mut text = String::new();
    if !page.examples.is_empty() {
        text.push_str("Examples:\n");
        for (line, does) in page.examples {
            writeln!(text, "  {line}\n      {does}").expect("writing to a string cannot fail");
        }
        text.push('\n');
    }
    match page.statuses {
        [] => text.push_str(statuses),
        of_it => {
            let of_it: Vec<String> = of_it
                .iter()
                .map(|(number, meaning)| format!("{number} {meaning}"))
                .collect();
            text.push_str(&format!("Exit status: {}", of_it.join("; ")));
        }
    }
    command.after_long_help(text)
}

/// Flags of every command, shown only in the long help.
const SHARED: &[&str] = &["config", "workspace", "color", "quiet", "help", "version"];

/// True if `arg` is a flag of every command.
pub fn is_shared(arg: &Arg) -> bool {
    SHARED.contains(&arg.get_id().as_str())
}

const DONE: (u8, &str) = (0, "done");
const USAGE: (u8, &str) = (2, "usage error");
const IO: (u8, &str) = (74, "could not read or write");
const CONFIG: (u8, &str) = (78, "the config is invalid");
const NO_SESSION: (u8, &str) = (66, "no such session");
const BUSY: (u8, &str) = (75, "the session is in use");
const NO_SKILL: (u8, &str) = (66, "no such skill");
const NO_JOB: (u8, &str) = (66, "no such job");
/// Statuses of most commands that print or change something.
const PLAIN: &[(u8, &str)] = &[DONE, USAGE, IO, CONFIG];
const NO_SERVER: (u8, &str) = (66, "no such server, tool or resource");
const AWAY: (u8, &str) = (69, "a server does not answer");
const CHANGED: (u8, &str) = (77, "a tool has changed since it was accepted");
const OF_SERVER: &[(u8, &str)] = &[DONE, USAGE, NO_SERVER, AWAY, IO, CONFIG];
const OF_SESSION: &[(u8, &str)] = &[DONE, USAGE, NO_SESSION, IO, BUSY, CONFIG];
const OF_JOB: &[(u8, &str)] = &[DONE, USAGE, NO_JOB, IO, CONFIG];
/// Statuses of commands that only group subcommands.
const NONE_ITSELF: &[(u8, &str)] = &[(2, "usage error: the command is missing or unknown")];
/// Statuses of commands that run a turn: the table of all.
const AS_AGENT: &[(u8, &str)] = &[];

/// Files of skills and of the trust in them.
const SKILLS: &[&str] = &["skills/NAME/SKILL.md", "trust.json"];

/// Environment variables that a turn reads.
const OF_TURN: &[&str] = &[
    "NANOBOT_STDIN",
    "NANOBOT_STDIN_TIMEOUT_S",
    "NANOBOT_LOG",
    "NANOBOT_LLM_TIMEOUT_S",
    "NANOBOT_STREAM_IDLE_TIMEOUT_S",
    "NO_COLOR",
    "HTTPS_PROXY",
    "OPENAI_API_KEY",
    "BRAVE_API_KEY",
    "CREDENTIALS_DIRECTORY",
];
const OF_MODEL: &[&str] = &[
    "NANOBOT_LLM_TIMEOUT_S",
    "NANOBOT_STREAM_IDLE_TIMEOUT_S",
    "HTTPS_PROXY",
    "OPENAI_API_KEY",
    "CREDENTIALS_DIRECTORY",
];
const SESSIONS: &[&str] = &["sessions/KEY.jsonl"];
const JOBS: &[&str] = &["cron/jobs.json", "cron/ID/"];

#[rustfmt::skip]
/// The rows, in the order of the commands.
pub const PAGES: &[Page] = &[
    Page { command: "", statuses: AS_AGENT, variables: OF_TURN, files: &["/"], examples: &[
        ("nanobot agent --replay demo -m 'What is in this folder?'", "Try it: recorded answers, real tools, no key and no network"),
        ("nanobot onboard", "Choose a provider and a model"),
        ("git diff --staged | nanobot agent -m 'write a commit message' | git commit -F -", "One turn in a pipeline"),
        ("nanobot cron add --cron '0 8 * * 1-5' --read ~/inbox -m 'summarise what is new in ~/inbox'", "A turn each working day"),
        ("nanobot status --check", "Test whether everything works"),
    ] },
    Page { command: "agent", statuses: AS_AGENT, variables: OF_TURN, files: &["config.json", "profiles/", "trust.json", "workspace/", "usage", "undo/"], examples: &[
        ("nanobot agent -m 'what time is it in Tokyo?'", "One turn of the session `cli:direct`"),
        ("nanobot agent -m 'which of these lines matter?' < /var/log/syslog > report.md", "Piped text follows the message"),
        ("nanobot agent --write -m 'fix the typos in README.md'", "Allow it to change files in this directory"),
        ("nanobot agent -s work --resume", "Continue an interrupted turn"),
        ("nanobot agent --schema 'name, age int' -m 'Ada, 36' | jq -r .name", "JSON that matches a schema"),
        ("find . -name '*.md' -print0 | xargs -0 -P4 -I{} nanobot agent -s review:{} -m 'review {}'", "Many turns in parallel, each with its own session"),
    ] },
    Page { command: "repl", statuses: AS_AGENT, variables: OF_TURN, files: &["config.json", "profiles/", "trust.json", "workspace/", "usage", "undo/"], examples: &[
        ("nanobot repl", "Continue the session `cli:direct`"),
        ("nanobot repl -s work --write", "A session that may change files in this directory"),
        ("nanobot repl --replay demo", "Try it without a key"),
    ] },
    Page { command: "onboard", statuses: &[DONE, USAGE, IO, CONFIG], variables: &["OPENAI_API_KEY"], files: &["config.json", "workspace/"], examples: &[
        ("nanobot onboard", "Interactive setup"),
        ("nanobot onboard --provider anthropic --api-key-env ANTHROPIC_API_KEY --yes", "Without questions, for scripts"),
        ("nanobot onboard --provider custom --api-base http://127.0.0.1:8000/v1 --model local --yes", "A server of your own"),
    ] },
    Page { command: "config", statuses: NONE_ITSELF, variables: &[], files: &["config.json"], examples: &[
        ("nanobot config set agents.defaults.model gpt-6-luna", "Change a key"),
        ("nanobot config get --origin", "All effective values and their origins"),
    ] },
    Page { command: "config path", statuses: &[DONE, USAGE], variables: &[], files: &["config.json"], examples: &[
        ("${EDITOR:-vi} \"$(nanobot config path)\"", "Open the config in an editor"),
    ] },
    Page { command: "config get", statuses: &[DONE, USAGE, IO, (78, "no such key, or the config is invalid")], variables: &[], files: &["config.json"], examples: &[
        ("nanobot config get agents.defaults.model", "One key"),
        ("nanobot config get --origin", "All keys with their origins"),
    ] },
    Page { command: "config set", statuses: &[DONE, USAGE, (65, "standard input is not text"), (66, "standard input is empty"), IO, (78, "no such key, or the value is invalid")], variables: &[], files: &["config.json"], examples: &[
        ("nanobot config set agents.defaults.maxToolIterations 60", "A number"),
        ("nanobot config set agents.defaults.fallbackModels '[\"gpt-6-luna\"]'", "A list, as JSON"),
        ("pass show openai | nanobot config set providers.openai.apiKey -", "An API key that stays out of the shell history"),
        ("nanobot config set --unset agents.defaults.model", "Remove a key"),
    ] },
    Page { command: "config check", statuses: &[(0, "no errors"), USAGE, IO, (78, "there are errors")], variables: &[], files: &["config.json"], examples: &[
        ("nanobot config check", "Errors and warnings with line and column"),
    ] },
    Page { command: "config schema", statuses: &[DONE, USAGE, IO], variables: &[], files: &[], examples: &[
        ("nanobot config schema > config.schema.json", "For an editor that supports JSON schemas"),
        ("nanobot config schema --events", "The schema of `agent --output-format stream-json`"),
    ] },
    Page { command: "session", statuses: NONE_ITSELF, variables: &[], files: SESSIONS, examples: &[
        ("nanobot session list", "All sessions, newest first"),
        ("nanobot session show cli:direct -n 4", "The last four messages of a session"),
    ] },
    Page { command: "session list", statuses: PLAIN, variables: &[], files: SESSIONS, examples: &[
        ("nanobot session list 'review:*' --since 7d", "Sessions with this prefix, used in the last seven days"),
        ("nanobot session list --sort cost -n 5 --json", "The five most expensive, as JSON"),
    ] },
    Page { command: "session show", statuses: OF_SESSION, variables: &[], files: SESSIONS, examples: &[
        ("nanobot session show", "The session `cli:direct`"),
        ("nanobot session show telegram:42 -n 2 --full", "The last two messages, with full tool results"),
    ] },
    Page { command: "session search", statuses: &[(0, "something matches"), (1, "nothing matches"), USAGE, NO_SESSION, IO, CONFIG], variables: &[], files: &["sessions/KEY.jsonl", "memory/"], examples: &[
        ("nanobot session search -i 'invoice [0-9]+'", "Search all sessions and the memory"),
        ("nanobot session search -l -F 'Ada'", "Only the keys of matching sessions"),
    ] },
    Page { command: "session export", statuses: OF_SESSION, variables: &[], files: SESSIONS, examples: &[
        ("nanobot session export cli:direct -o talk.md", "As a Markdown document"),
        ("nanobot session export cli:direct --format json | jq length", "As JSON"),
    ] },
    Page { command: "session fork", statuses: OF_SESSION, variables: &[], files: SESSIONS, examples: &[
        ("nanobot session fork cli:direct other --at 6", "Continue from the sixth message, in a copy"),
    ] },
    Page { command: "session context", statuses: OF_SESSION, variables: &[], files: SESSIONS, examples: &[
        ("nanobot session context cli:direct", "Tokens by part of the context"),
    ] },
    Page { command: "session compact", statuses: AS_AGENT, variables: OF_MODEL, files: SESSIONS, examples: &[
        ("nanobot session compact cli:direct keep all file names", "With instructions for the summary"),
    ] },
    Page { command: "session rename", statuses: OF_SESSION, variables: &[], files: SESSIONS, examples: &[
        ("nanobot session rename pipe:3fa2 invoices", "Give it a readable key"),
    ] },
    Page { command: "session rm", statuses: OF_SESSION, variables: &[], files: &["sessions/KEY.jsonl", ".trash"], examples: &[
        ("nanobot session rm invoices review:a", "Move to the trash"),
        ("nanobot session rm --for-good invoices", "Delete permanently"),
    ] },
    Page { command: "session restore", statuses: OF_SESSION, variables: &[], files: &["sessions/KEY.jsonl", ".trash"], examples: &[
        ("nanobot session restore", "List the trash"),
        ("nanobot session restore invoices", "Restore a session"),
    ] },
    Page { command: "session prune", statuses: PLAIN, variables: &[], files: &["sessions/KEY.jsonl", ".trash"], examples: &[
        ("nanobot session prune 'pipe:*' --older-than 30d --dry-run", "List what would be moved"),
        ("nanobot session prune 'pipe:*' --older-than 30d --yes", "For a crontab"),
    ] },
    Page { command: "session repair", statuses: &[DONE, (1, "something could not be repaired"), USAGE, NO_SESSION, IO, BUSY, CONFIG], variables: &[], files: &["sessions/KEY.jsonl"], examples: &[
        ("nanobot session repair --all --dry-run", "Check all sessions"),
    ] },
    Page { command: "memory", statuses: NONE_ITSELF, variables: &[], files: &["memory/"], examples: &[
        ("nanobot memory show", "Print the memory"),
        ("nanobot memory undo", "Undo the last change"),
    ] },
    Page { command: "memory consolidate", statuses: AS_AGENT, variables: OF_MODEL, files: &["memory/", "sessions/KEY.jsonl"], examples: &[
        ("nanobot memory consolidate --dry-run", "List what is due"),
        ("nanobot memory consolidate -s cli:direct", "One session, due or not"),
    ] },
    Page { command: "memory show", statuses: PLAIN, variables: &[], files: &["memory/MEMORY.md"], examples: &[
        ("nanobot memory show | less", "Read it"),
    ] },
    Page { command: "memory search", statuses: &[(0, "something matches"), (1, "nothing matches"), USAGE, IO, CONFIG], variables: &[], files: &["memory/MEMORY.md", "memory/HISTORY.md"], examples: &[
        ("nanobot memory search '(?i)dentist'", "Ignoring case"),
    ] },
    Page { command: "memory edit", statuses: &[DONE, (1, "the editor failed"), USAGE, IO, (75, "another run is changing the memory"), CONFIG], variables: &["VISUAL", "EDITOR"], files: &["memory/MEMORY.md", "memory/.versions"], examples: &[
        ("EDITOR=nano nanobot memory edit", "With another editor"),
    ] },
    Page { command: "memory log", statuses: PLAIN, variables: &[], files: &["memory/.versions"], examples: &[
        ("nanobot memory log", "The versions, newest first"),
    ] },
    Page { command: "memory diff", statuses: &[DONE, USAGE, (66, "no such version"), IO, CONFIG], variables: &[], files: &["memory/.versions"], examples: &[
        ("nanobot memory diff", "The last change"),
        ("nanobot memory diff 3 7", "Between two versions"),
    ] },
    Page { command: "memory undo", statuses: &[DONE, USAGE, (66, "no such version"), IO, (75, "another run is changing the memory"), CONFIG], variables: &[], files: &["memory/MEMORY.md", "memory/.versions"], examples: &[
        ("nanobot memory undo", "Restore the previous version"),
        ("nanobot memory undo 3", "Restore a version from `memory log`"),
    ] },
    Page { command: "model", statuses: NONE_ITSELF, variables: &[], files: &["config.json"], examples: &[
        ("nanobot model list", "All known models"),
        ("nanobot model show gpt-6-luna", "Provider and price of a model"),
    ] },
    Page { command: "model list", statuses: &[DONE, USAGE, (69, "the provider is not available"), (77, "the API key was rejected"), CONFIG], variables: OF_MODEL, files: &["config.json"], examples: &[
        ("nanobot model list --provider anthropic", "Limits and prices of one provider's models"),
        ("nanobot model list --remote", "Ask the configured provider"),
    ] },
    Page { command: "model show", statuses: &[DONE, USAGE, CONFIG], variables: OF_MODEL, files: &["config.json"], examples: &[
        ("nanobot model show claude-sonnet-5", "Provider, endpoint, limits and price"),
    ] },
    Page { command: "provider", statuses: NONE_ITSELF, variables: OF_MODEL, files: &["config.json", "auth/"], examples: &[
        ("nanobot provider list", "All providers, and which have an API key"),
        ("nanobot provider login github-copilot", "Use an account instead of an API key"),
    ] },
    Page { command: "provider list", statuses: PLAIN, variables: OF_MODEL, files: &["config.json", "auth/"], examples: &[
        ("nanobot provider list --json", "As JSON"),
    ] },
    Page { command: "provider login", statuses: &[(0, "logged in"), USAGE, (69, "the provider is not available"), IO, (77, "the login was refused"), CONFIG], variables: &["HTTPS_PROXY"], files: &["auth/"], examples: &[
        ("nanobot provider login openai-codex", "Prints a code to enter in any browser"),
    ] },
    Page { command: "provider logout", statuses: &[(0, "logged out"), USAGE, IO, CONFIG], variables: &[], files: &["auth/"], examples: &[
        ("nanobot provider logout openai-codex", "Remove the saved login"),
    ] },
    Page { command: "cron", statuses: NONE_ITSELF, variables: &[], files: JOBS, examples: &[
        ("nanobot cron add --every 2h -m 'anything new in ~/inbox?' --read ~/inbox", "Create a job"),
        ("nanobot cron list", "All jobs with their next and last runs"),
        ("nanobot cron logs --output digest", "The output of a job's last run"),
    ] },
    Page { command: "cron add", statuses: &[DONE, (1, "the job was created, but the crontab could not be changed"), USAGE, IO, CONFIG], variables: &["OPENAI_API_KEY"], files: &["cron/jobs.json", "cron/ID/", "crontab.lock"], examples: &[
        ("nanobot cron add -n digest --cron '0 8 * * 1-5' --read ~/inbox -m 'summarise what is new in ~/inbox'", "At eight, Monday to Friday"),
        ("nanobot cron add --in 2h -m 'remind me of the cake'", "Once, in two hours"),
        ("nanobot cron add --every 30m --when 'test -s /var/mail/me' -m 'is any of this mail urgent?' --channel file --to ~/urgent.txt", "Only if a command succeeds, with answers appended to a file"),
    ] },
    Page { command: "cron list", statuses: PLAIN, variables: &[], files: JOBS, examples: &[
        ("nanobot cron list --all", "Disabled jobs too"),
        ("nanobot cron list --json", "As JSON"),
    ] },
    Page { command: "cron show", statuses: OF_JOB, variables: &[], files: JOBS, examples: &[
        ("nanobot cron show digest", "Message, schedule and permissions"),
    ] },
    Page { command: "cron edit", statuses: OF_JOB, variables: &[], files: JOBS, examples: &[
        ("nanobot cron edit digest --cron '30 7 * * *'", "Change the schedule"),
        ("nanobot cron edit digest --when ''", "Remove a setting"),
    ] },
    Page { command: "cron run", statuses: AS_AGENT, variables: OF_TURN, files: JOBS, examples: &[
        ("nanobot cron run digest", "Run it now"),
        ("nanobot cron run digest --as-cron", "As cron would, to find what is missing in its environment"),
        ("nanobot cron run --due", "For a scheduler other than cron"),
    ] },
    Page { command: "cron enable", statuses: OF_JOB, variables: &[], files: JOBS, examples: &[
        ("nanobot cron enable digest", "Enable a job"),
    ] },
    Page { command: "cron disable", statuses: OF_JOB, variables: &[], files: JOBS, examples: &[
        ("nanobot cron disable digest", "Disable a job, but keep it"),
    ] },
    Page { command: "cron remove", statuses: OF_JOB, variables: &[], files: JOBS, examples: &[
        ("nanobot cron remove digest", "Remove a job with its records and session"),
    ] },
    Page { command: "cron sync", statuses: &[DONE, (1, "the crontab could not be changed"), USAGE, IO, CONFIG], variables: &[], files: &["cron/jobs.json", "crontab.lock"], examples: &[
        ("nanobot cron sync --dry-run", "Show what would change in the crontab"),
    ] },
    Page { command: "cron logs", statuses: OF_JOB, variables: &[], files: JOBS, examples: &[
        ("nanobot cron logs -n 5", "The last five runs of all jobs"),
        ("nanobot cron logs digest --output", "The output of the last run"),
        ("nanobot cron logs --follow", "New runs as they end, until Ctrl-C"),
    ] },
    Page { command: "cron export", statuses: OF_JOB, variables: &[], files: JOBS, examples: &[
        ("nanobot cron export --format systemd -o ~/.config/systemd/user", "systemd timers instead of a crontab"),
        ("nanobot cron export --format kubernetes digest | kubectl apply -f -", "One job as a CronJob"),
    ] },
    Page { command: "heartbeat", statuses: AS_AGENT, variables: OF_TURN, files: &["workspace/", "cron/ID/"], examples: &[
        ("nanobot heartbeat", "Check now"),
        ("nanobot heartbeat enable --every 30m", "Check every 30 minutes with cron"),
    ] },
    Page { command: "heartbeat enable", statuses: &[DONE, (1, "enabled, but the crontab could not be changed"), USAGE, IO, CONFIG], variables: &[], files: JOBS, examples: &[
        ("nanobot heartbeat enable --every 2h --channel file --to ~/heartbeat.txt", "Append answers to a file"),
    ] },
    Page { command: "heartbeat disable", statuses: &[DONE, (1, "disabled, but the crontab could not be changed"), USAGE, IO, CONFIG], variables: &[], files: JOBS, examples: &[
        ("nanobot heartbeat disable", "Stop checking"),
    ] },
    Page { command: "undo", statuses: &[DONE, (1, "a file was changed since; nothing was undone"), USAGE, (66, "nothing to undo"), IO], variables: &[], files: &["undo/"], examples: &[
        ("nanobot undo --dry-run", "Show what would change"),
        ("nanobot undo", "Undo the last turn in this directory"),
        ("nanobot undo --redo", "Reapply the undone changes"),
    ] },
    // With `--check` the status is that of the first failed check.
    Page { command: "status", statuses: AS_AGENT, variables: OF_MODEL, files: &["config.json", "workspace/", "cron/jobs.json"], examples: &[
        ("nanobot status", "The configuration on one screen"),
        ("nanobot status --check", "Test everything as at run time"),
        ("nanobot status --check --json | jq -r '.[] | select(.ok == false) | .detail'", "Details of failed checks"),
    ] },
    Page { command: "policy", statuses: NONE_ITSELF, variables: &[], files: &["config.json", "profiles/"], examples: &[
        ("nanobot policy explain exec 'git push'", "The decision about a command, and the reason"),
        ("nanobot policy test", "Test the sandbox"),
    ] },
    Page { command: "policy explain", statuses: &[(0, "the call is allowed"), USAGE, (77, "the call is denied"), CONFIG], variables: &[], files: &["config.json", "profiles/"], examples: &[
        ("nanobot policy explain", "Permissions of a run without flags"),
        ("nanobot policy explain write_file /etc/hosts --write", "A call, with a flag"),
        ("nanobot policy explain web_fetch https://example.org --net=example.org", "A URL"),
    ] },
    Page { command: "policy test", statuses: &[(0, "all checks passed"), (1, "a check failed"), USAGE, CONFIG, (126, "the system has no sandbox")], variables: &[], files: &["config.json", "profiles/"], examples: &[
        ("nanobot policy test --net", "With the flags of a run"),
    ] },
    Page { command: "tool", statuses: NONE_ITSELF, variables: &[], files: &["config.json", "profiles/"], examples: &[
        ("nanobot tool list", "All tools"),
        ("nanobot tool run read_file '{\"path\": \"README.md\"}'", "The result the model would get"),
    ] },
    Page { command: "tool list", statuses: PLAIN, variables: &[], files: &["config.json", "profiles/"], examples: &[
        ("nanobot tool list --profile plan --json", "As JSON, with the schemas"),
    ] },
    Page { command: "tool run", statuses: &[DONE, (1, "the tool failed"), USAGE, (77, "the policy denies the call"), CONFIG], variables: &["HTTPS_PROXY", "BRAVE_API_KEY"], files: &["config.json", "profiles/", "undo/"], examples: &[
        ("nanobot tool run grep '{\"pattern\": \"TODO\"}'", "Search this directory as the agent would"),
        ("nanobot tool run exec '{\"command\": \"id; ls /root\"}'", "See the sandbox from inside"),
    ] },
    Page { command: "mcp", statuses: NONE_ITSELF, variables: &[], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp add time -- uvx mcp-server-time", "Add a local server"),
        ("nanobot mcp list", "All servers"),
        ("nanobot mcp test", "Test all servers; the agent starts a server when it calls one of its tools"),
    ] },
    Page { command: "mcp list", statuses: PLAIN, variables: &[], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp list --json | jq -r 'select(.error).name'", "Servers with an error"),
    ] },
    Page { command: "mcp show", statuses: OF_SERVER, variables: &[], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp show time", "Tools, resources and prompts"),
        ("nanobot mcp show time convert_time", "A tool with the schema of its arguments"),
    ] },
    Page { command: "mcp test", statuses: &[(0, "all answer, with unchanged tools"), USAGE, NO_SERVER, AWAY, CHANGED, IO, CONFIG], variables: &["HTTPS_PROXY"], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp test", "Test all servers"),
        ("nanobot mcp test time || nanobot mcp show time", "In a script"),
    ] },
    Page { command: "mcp add", statuses: &[DONE, USAGE, AWAY, IO, CONFIG], variables: &["HTTPS_PROXY"], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes", "It may read and write the paths in its command: ~/notes"),
        ("nanobot mcp add hub https://example.org/mcp -H 'Authorization: Bearer ${HUB_TOKEN}'", "A remote server; the token stays in the environment"),
        ("nanobot mcp add time --allow -- uvx mcp-server-time", "Approve all of its tools"),
    ] },
    Page { command: "mcp remove", statuses: &[DONE, USAGE, NO_SERVER, IO, CONFIG], variables: &[], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp remove time", "From the config, with its cached data"),
    ] },
    Page { command: "mcp accept", statuses: &[(0, "everything was accepted"), USAGE, NO_SERVER, AWAY, (77, "something was not accepted"), IO, CONFIG], variables: &["HTTPS_PROXY"], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp accept time", "Review the changes, and accept or reject them"),
        ("nanobot mcp accept time convert_time --yes", "One tool, without asking"),
    ] },
    Page { command: "mcp call", statuses: &[DONE, (1, "the tool failed"), USAGE, NO_SERVER, AWAY, CHANGED, IO, CONFIG, (124, "timed out (`--timeout`)")], variables: &["HTTPS_PROXY"], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp call time get_current_time '{\"timezone\": \"America/Lima\"}'", "Call a tool, by hand or in a script"),
        ("nanobot mcp call docs 'file:///readme.md'", "Read a resource"),
    ] },
    Page { command: "skill", statuses: NONE_ITSELF, variables: &[], files: SKILLS, examples: &[
        ("nanobot skill list", "All skills"),
        ("nanobot skill install ~/Downloads/pdf", "Install a skill, after a review"),
    ] },
    Page { command: "skill list", statuses: PLAIN, variables: &[], files: SKILLS, examples: &[
        ("nanobot skill list", "All skills, with missing requirements"),
        ("nanobot skill list --json | jq -r 'select(.missing != []) | .name'", "Skills with missing requirements"),
    ] },
    Page { command: "skill show", statuses: &[DONE, USAGE, (65, "the file is not text"), NO_SKILL, IO, CONFIG], variables: &[], files: SKILLS, examples: &[
        ("nanobot skill show memory", "The text that the model would read, and the other files"),
        ("nanobot skill show skill-creator --file scripts/check.sh | sh -s -- tea/SKILL.md", "Run one of its scripts"),
    ] },
    Page { command: "skill check", statuses: &[(0, "no problems"), (1, "there are problems"), USAGE, (65, "not a skill"), NO_SKILL, IO, CONFIG], variables: &[], files: SKILLS, examples: &[
        ("nanobot skill check", "Check all skills"),
        ("nanobot skill check ./tea", "Check a skill that is not installed"),
    ] },
    Page { command: "skill new", statuses: &[DONE, (1, "a skill of that name exists"), USAGE, IO, CONFIG], variables: &[], files: SKILLS, examples: &[
        ("nanobot skill new tea -d 'How tea is made here; for any question about tea'", "Prints the path of the new SKILL.md"),
        ("$EDITOR \"$(nanobot skill new tea)\"", "Create it and open it in an editor"),
    ] },
    Page { command: "skill install", statuses: &[DONE, (1, "a skill of that name exists, or the answer was no"), USAGE, (65, "not a valid skill"), (66, "no such file or directory"), IO, CONFIG], variables: &[], files: SKILLS, examples: &[
        ("nanobot skill install --dry-run ~/Downloads/pdf", "Print the review only"),
        ("nanobot skill install --yes ~/Downloads/pdf", "In a script"),
        ("nanobot skill install skill-creator", "Copy a built-in skill, to change it"),
    ] },
    Page { command: "skill remove", statuses: &[DONE, (1, "the answer was no"), USAGE, NO_SKILL, IO, CONFIG], variables: &[], files: SKILLS, examples: &[
        ("nanobot skill remove tea", "Delete it permanently"),
    ] },
    Page { command: "trust", statuses: &[DONE, USAGE, (66, "no such directory"), IO], variables: &[], files: &["trust.json"], examples: &[
        ("nanobot trust", "The current directory"),
        ("nanobot trust --list", "List trusted directories"),
        ("nanobot trust --revoke ~/src/other", "Stop trusting a directory"),
    ] },
    Page { command: "usage", statuses: PLAIN, variables: &[], files: &["usage.jsonl"], examples: &[
        ("nanobot usage --since month", "Cost of this month, by day"),
        ("nanobot usage --by job --since 7d", "Cost of each job"),
    ] },
    Page { command: "completions", statuses: &[DONE, USAGE, IO], variables: &[], files: &[], examples: &[
        ("nanobot completions bash > ~/.local/share/bash-completion/completions/nanobot", "For bash"),
        ("nanobot completions zsh > ~/.zfunc/_nanobot", "For zsh, if ~/.zfunc is in fpath"),
        ("nanobot completions fish > ~/.config/fish/completions/nanobot.fish", "For fish"),
    ] },
];
