//! What help and man pages say of a command beside its flags: statuses, variables, files, examples.
//!
//! A row for each command. [`documented`] puts them into the help; the man pages are made from the same rows.

use clap::{Arg, Command};
use std::fmt::Write;

/// What is said of one command.
#[derive(Debug)]
pub struct Page {
    /// Its words after `nanobot`; none for the program itself.
    pub command: &'static str,
    /// What it ends with, and what that means; none where the table of all statuses is meant.
    pub statuses: &'static [(u8, &'static str)],
    /// The variables that matter to it, beside those that matter to all.
    pub variables: &'static [&'static str],
    /// The files that matter to it: a part of the path of each.
    pub files: &'static [&'static str],
    /// Command lines that work as they stand, and what each does.
    pub examples: &'static [(&'static str, &'static str)],
}

/// How much of the help is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `-h`: what fits a screen.
    Short,
    /// `--help`: all there is.
    Long,
}

/// The row of `command`.
pub fn page(command: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.command == command)
}

/// `command` and all below it, with what the rows say of them. It is built for that, which only help has time for.
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

/// One list of flags without what all commands share, and where the rest is.
fn short(command: Command, path: &str) -> Command {
    let line = match path {
        "" => "Flags, examples and statuses: nanobot --help, nanobot COMMAND --help".to_owned(),
        path => format!("All flags, examples and statuses: nanobot {path} --help"),
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

/// The flags of every command, which the short help leaves to the long one.
const SHARED: &[&str] = &["config", "workspace", "color", "quiet", "help", "version"];

/// Whether `arg` is one of the flags of every command.
pub fn is_shared(arg: &Arg) -> bool {
    SHARED.contains(&arg.get_id().as_str())
}

const DONE: (u8, &str) = (0, "done");
const USAGE: (u8, &str) = (2, "wrong usage");
const IO: (u8, &str) = (74, "could not read or write");
const CONFIG: (u8, &str) = (78, "the config cannot be used");
const NO_SESSION: (u8, &str) = (66, "there is no such conversation");
const BUSY: (u8, &str) = (75, "the conversation is in use");
const NO_SKILL: (u8, &str) = (66, "there is no such skill");
const NO_JOB: (u8, &str) = (66, "there is no such job");
/// Of most commands that print or change something.
const PLAIN: &[(u8, &str)] = &[DONE, USAGE, IO, CONFIG];
const NO_SERVER: (u8, &str) = (66, "there is no such server, tool or address");
const AWAY: (u8, &str) = (69, "a server does not answer");
const CHANGED: (u8, &str) = (77, "a tool is not what it was when it was accepted");
const OF_SERVER: &[(u8, &str)] = &[DONE, USAGE, NO_SERVER, AWAY, IO, CONFIG];
const OF_SESSION: &[(u8, &str)] = &[DONE, USAGE, NO_SESSION, IO, BUSY, CONFIG];
const OF_JOB: &[(u8, &str)] = &[DONE, USAGE, NO_JOB, IO, CONFIG];
/// Of the commands that only have others below them.
const NONE_ITSELF: &[(u8, &str)] = &[(2, "wrong usage: a command is missing, or unknown")];
/// Of the commands that run a turn: the table of all.
const AS_AGENT: &[(u8, &str)] = &[];

/// Where skills are, and what decides about them.
const SKILLS: &[&str] = &["skills/NAME/SKILL.md", "trust.json"];

/// The variables that a turn goes by.
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
        ("nanobot agent --replay demo -m 'What is in this folder?'", "Try it: a canned model, real tools, no key and no network"),
        ("nanobot onboard", "Choose a provider and a model"),
        ("git diff --staged | nanobot agent -m 'write a commit message' | git commit -F -", "One turn between two others"),
        ("nanobot cron add --cron '0 8 * * 1-5' --read ~/inbox -m 'summarise what is new in ~/inbox'", "A turn each working day"),
        ("nanobot status --check", "Try whether everything works"),
    ] },
    Page { command: "agent", statuses: AS_AGENT, variables: OF_TURN, files: &["config.json", "profiles/", "trust.json", "workspace/", "usage", "undo/"], examples: &[
        ("nanobot agent -m 'what time is it in Tokyo?'", "One turn of the conversation `cli:direct`"),
        ("nanobot agent -m 'which of these lines matter?' < /var/log/syslog > report.md", "Piped text follows the message"),
        ("nanobot agent --write -m 'fix the typos in README.md'", "Let it change files in this directory"),
        ("nanobot agent -s work --resume", "Go on where a turn was cut off"),
        ("nanobot agent --schema 'name, age int' -m 'Ada, 36' | jq -r .name", "JSON that satisfies a schema"),
        ("find . -name '*.md' -print0 | xargs -0 -P4 -I{} nanobot agent -s review:{} -m 'review {}'", "Many turns side by side, a conversation each"),
    ] },
    Page { command: "repl", statuses: AS_AGENT, variables: OF_TURN, files: &["config.json", "profiles/", "trust.json", "workspace/", "usage", "undo/"], examples: &[
        ("nanobot repl", "Go on with the conversation `cli:direct`"),
        ("nanobot repl -s work --write", "A conversation about this directory, whose files may change"),
        ("nanobot repl --replay demo", "Try it without a key"),
    ] },
    Page { command: "onboard", statuses: &[DONE, USAGE, IO, CONFIG], variables: &["OPENAI_API_KEY"], files: &["config.json", "workspace/"], examples: &[
        ("nanobot onboard", "Asks, on a terminal"),
        ("nanobot onboard --provider anthropic --api-key-env ANTHROPIC_API_KEY --yes", "Asks nothing, for scripts"),
        ("nanobot onboard --provider custom --api-base http://127.0.0.1:8000/v1 --model local --yes", "A server of your own"),
    ] },
    Page { command: "config", statuses: NONE_ITSELF, variables: &[], files: &["config.json"], examples: &[
        ("nanobot config set agents.defaults.model gpt-6-luna", "Change a key"),
        ("nanobot config get --origin", "All that is in force, and where it comes from"),
    ] },
    Page { command: "config path", statuses: &[DONE, USAGE], variables: &[], files: &["config.json"], examples: &[
        ("${EDITOR:-vi} \"$(nanobot config path)\"", "Open the config in an editor"),
    ] },
    Page { command: "config get", statuses: &[DONE, USAGE, IO, (78, "there is no such key, or the config cannot be used")], variables: &[], files: &["config.json"], examples: &[
        ("nanobot config get agents.defaults.model", "One key"),
        ("nanobot config get --origin", "All, and where each comes from"),
    ] },
    Page { command: "config set", statuses: &[DONE, USAGE, (65, "standard input is no text"), (66, "standard input is empty"), IO, (78, "there is no such key, or the value does not fit")], variables: &[], files: &["config.json"], examples: &[
        ("nanobot config set agents.defaults.maxToolIterations 60", "A number"),
        ("nanobot config set agents.defaults.fallbackModels '[\"gpt-6-luna\"]'", "A list, as JSON"),
        ("pass show openai | nanobot config set providers.openai.apiKey -", "A key that no shell history keeps"),
        ("nanobot config set --unset agents.defaults.model", "As if it had never been set"),
    ] },
    Page { command: "config check", statuses: &[(0, "there is no error"), USAGE, IO, (78, "there are errors")], variables: &[], files: &["config.json"], examples: &[
        ("nanobot config check", "Line and column of everything that is odd"),
    ] },
    Page { command: "config schema", statuses: &[DONE, USAGE, IO], variables: &[], files: &[], examples: &[
        ("nanobot config schema > config.schema.json", "For an editor that knows JSON schemas"),
        ("nanobot config schema --events", "Of what `agent --output-format stream-json` prints"),
    ] },
    Page { command: "session", statuses: NONE_ITSELF, variables: &[], files: SESSIONS, examples: &[
        ("nanobot session list", "What there is, newest first"),
        ("nanobot session show cli:direct -n 4", "The last four messages of one"),
    ] },
    Page { command: "session list", statuses: PLAIN, variables: &[], files: SESSIONS, examples: &[
        ("nanobot session list 'review:*' --since 7d", "Those of one kind that were used this week"),
        ("nanobot session list --sort cost -n 5 --json", "The five that cost most, for a program"),
    ] },
    Page { command: "session show", statuses: OF_SESSION, variables: &[], files: SESSIONS, examples: &[
        ("nanobot session show", "The conversation `cli:direct`"),
        ("nanobot session show telegram:42 -n 2 --full", "Its last two messages, with all that tools gave"),
    ] },
    Page { command: "session search", statuses: &[(0, "something was found"), (1, "nothing was found"), USAGE, NO_SESSION, IO, CONFIG], variables: &[], files: &["sessions/KEY.jsonl", "memory/"], examples: &[
        ("nanobot session search -i 'invoice [0-9]+'", "In all conversations and in the memory"),
        ("nanobot session search -l -F 'Ada'", "Only the keys of those that have it"),
    ] },
    Page { command: "session export", statuses: OF_SESSION, variables: &[], files: SESSIONS, examples: &[
        ("nanobot session export cli:direct -o talk.md", "As a document"),
        ("nanobot session export cli:direct --format json | jq length", "For a program"),
    ] },
    Page { command: "session fork", statuses: OF_SESSION, variables: &[], files: SESSIONS, examples: &[
        ("nanobot session fork cli:direct other --at 6", "Go on from the sixth message, in a copy"),
    ] },
    Page { command: "session context", statuses: OF_SESSION, variables: &[], files: SESSIONS, examples: &[
        ("nanobot session context cli:direct", "Where its tokens go"),
    ] },
    Page { command: "session compact", statuses: AS_AGENT, variables: OF_MODEL, files: SESSIONS, examples: &[
        ("nanobot session compact cli:direct keep all file names", "With what the summary is to heed"),
    ] },
    Page { command: "session rename", statuses: OF_SESSION, variables: &[], files: SESSIONS, examples: &[
        ("nanobot session rename pipe:3fa2 invoices", "A key that can be remembered"),
    ] },
    Page { command: "session rm", statuses: OF_SESSION, variables: &[], files: &["sessions/KEY.jsonl", ".trash"], examples: &[
        ("nanobot session rm invoices review:a", "Into the trash"),
        ("nanobot session rm --for-good invoices", "So that nothing is left"),
    ] },
    Page { command: "session restore", statuses: OF_SESSION, variables: &[], files: &["sessions/KEY.jsonl", ".trash"], examples: &[
        ("nanobot session restore", "What the trash has"),
        ("nanobot session restore invoices", "Bring it back"),
    ] },
    Page { command: "session prune", statuses: PLAIN, variables: &[], files: &["sessions/KEY.jsonl", ".trash"], examples: &[
        ("nanobot session prune 'pipe:*' --older-than 30d --dry-run", "Which would go"),
        ("nanobot session prune 'pipe:*' --older-than 30d --yes", "For a crontab"),
    ] },
    Page { command: "session repair", statuses: &[DONE, (1, "something could not be mended"), USAGE, NO_SESSION, IO, BUSY, CONFIG], variables: &[], files: &["sessions/KEY.jsonl"], examples: &[
        ("nanobot session repair --all --dry-run", "Only tell"),
    ] },
    Page { command: "memory", statuses: NONE_ITSELF, variables: &[], files: &["memory/"], examples: &[
        ("nanobot memory show", "What is remembered"),
        ("nanobot memory undo", "Take the last change back"),
    ] },
    Page { command: "memory consolidate", statuses: AS_AGENT, variables: OF_MODEL, files: &["memory/", "sessions/KEY.jsonl"], examples: &[
        ("nanobot memory consolidate --dry-run", "What is due"),
        ("nanobot memory consolidate -s cli:direct", "One conversation, due or not"),
    ] },
    Page { command: "memory show", statuses: PLAIN, variables: &[], files: &["memory/MEMORY.md"], examples: &[
        ("nanobot memory show | less", "Read it"),
    ] },
    Page { command: "memory search", statuses: &[(0, "something was found"), (1, "nothing was found"), USAGE, IO, CONFIG], variables: &[], files: &["memory/MEMORY.md", "memory/HISTORY.md"], examples: &[
        ("nanobot memory search '(?i)dentist'", "In capitals or not"),
    ] },
    Page { command: "memory edit", statuses: &[DONE, (1, "the editor failed"), USAGE, IO, (75, "another run is changing the memory"), CONFIG], variables: &["VISUAL", "EDITOR"], files: &["memory/MEMORY.md", "memory/.versions"], examples: &[
        ("EDITOR=nano nanobot memory edit", "With another editor, this once"),
    ] },
    Page { command: "memory log", statuses: PLAIN, variables: &[], files: &["memory/.versions"], examples: &[
        ("nanobot memory log", "The versions, newest first"),
    ] },
    Page { command: "memory diff", statuses: &[DONE, USAGE, (66, "there is no such version"), IO, CONFIG], variables: &[], files: &["memory/.versions"], examples: &[
        ("nanobot memory diff", "What the last change did"),
        ("nanobot memory diff 3 7", "From one version to another"),
    ] },
    Page { command: "memory undo", statuses: &[DONE, USAGE, (66, "there is no such version"), IO, (75, "another run is changing the memory"), CONFIG], variables: &[], files: &["memory/MEMORY.md", "memory/.versions"], examples: &[
        ("nanobot memory undo", "The version before"),
        ("nanobot memory undo 3", "One of those that `memory log` lists"),
    ] },
    Page { command: "model", statuses: NONE_ITSELF, variables: &[], files: &["config.json"], examples: &[
        ("nanobot model list", "What is known"),
        ("nanobot model show gpt-6-luna", "Who would be asked for one"),
    ] },
    Page { command: "model list", statuses: &[DONE, USAGE, (69, "the provider does not answer"), (77, "the key was rejected"), CONFIG], variables: OF_MODEL, files: &["config.json"], examples: &[
        ("nanobot model list --provider anthropic", "Limits and prices of one provider's"),
        ("nanobot model list --remote", "Ask the provider that is configured"),
    ] },
    Page { command: "model show", statuses: &[DONE, USAGE, CONFIG], variables: OF_MODEL, files: &["config.json"], examples: &[
        ("nanobot model show claude-sonnet-5", "Provider, address, limits and price"),
    ] },
    Page { command: "provider", statuses: NONE_ITSELF, variables: OF_MODEL, files: &["config.json", "auth/"], examples: &[
        ("nanobot provider list", "Which there are, and which have a key"),
        ("nanobot provider login github-copilot", "An account instead of a key"),
    ] },
    Page { command: "provider list", statuses: PLAIN, variables: OF_MODEL, files: &["config.json", "auth/"], examples: &[
        ("nanobot provider list --json", "For a program"),
    ] },
    Page { command: "provider login", statuses: &[(0, "logged in"), USAGE, (69, "the provider does not answer"), IO, (77, "the login was refused"), CONFIG], variables: &["HTTPS_PROXY"], files: &["auth/"], examples: &[
        ("nanobot provider login openai-codex", "Prints a code to enter in any browser"),
    ] },
    Page { command: "provider logout", statuses: &[(0, "no login is left"), USAGE, IO, CONFIG], variables: &[], files: &["auth/"], examples: &[
        ("nanobot provider logout openai-codex", "Forget the login"),
    ] },
    Page { command: "cron", statuses: NONE_ITSELF, variables: &[], files: JOBS, examples: &[
        ("nanobot cron add --every 2h -m 'anything new in ~/inbox?' --read ~/inbox", "Make a job"),
        ("nanobot cron list", "When each runs next, and how it last went"),
        ("nanobot cron logs --output digest", "What the last run of one said"),
    ] },
    Page { command: "cron add", statuses: &[DONE, (1, "the job is made, and the crontab could not be changed"), USAGE, IO, CONFIG], variables: &["OPENAI_API_KEY"], files: &["cron/jobs.json", "cron/ID/", "crontab.lock"], examples: &[
        ("nanobot cron add -n digest --cron '0 8 * * 1-5' --read ~/inbox -m 'summarise what is new in ~/inbox'", "At eight, from Monday to Friday"),
        ("nanobot cron add --in 2h -m 'remind me of the cake'", "Once, in two hours"),
        ("nanobot cron add --every 30m --when 'test -s /var/mail/me' -m 'is any of this mail urgent?' --channel file --to ~/urgent.txt", "Only when a command says so, into a file"),
    ] },
    Page { command: "cron list", statuses: PLAIN, variables: &[], files: JOBS, examples: &[
        ("nanobot cron list --all", "Also those that are disabled"),
        ("nanobot cron list --json", "For a program"),
    ] },
    Page { command: "cron show", statuses: OF_JOB, variables: &[], files: JOBS, examples: &[
        ("nanobot cron show digest", "What it is told, when, and what it may do"),
    ] },
    Page { command: "cron edit", statuses: OF_JOB, variables: &[], files: JOBS, examples: &[
        ("nanobot cron edit digest --cron '30 7 * * *'", "Another time"),
        ("nanobot cron edit digest --when ''", "Take a setting away"),
    ] },
    Page { command: "cron run", statuses: AS_AGENT, variables: OF_TURN, files: JOBS, examples: &[
        ("nanobot cron run digest", "Now"),
        ("nanobot cron run digest --as-cron", "As cron would, to find out what is missing there"),
        ("nanobot cron run --due", "For a scheduler that is not cron"),
    ] },
    Page { command: "cron enable", statuses: OF_JOB, variables: &[], files: JOBS, examples: &[
        ("nanobot cron enable digest", "Let it run again"),
    ] },
    Page { command: "cron disable", statuses: OF_JOB, variables: &[], files: JOBS, examples: &[
        ("nanobot cron disable digest", "Keep it and let it rest"),
    ] },
    Page { command: "cron remove", statuses: OF_JOB, variables: &[], files: JOBS, examples: &[
        ("nanobot cron remove digest", "With its records and its conversation"),
    ] },
    Page { command: "cron sync", statuses: &[DONE, (1, "the crontab could not be changed"), USAGE, IO, CONFIG], variables: &[], files: &["cron/jobs.json", "crontab.lock"], examples: &[
        ("nanobot cron sync --dry-run", "What would change in the crontab"),
    ] },
    Page { command: "cron logs", statuses: OF_JOB, variables: &[], files: JOBS, examples: &[
        ("nanobot cron logs -n 5", "The last five runs of all jobs"),
        ("nanobot cron logs digest --output", "What the last run said"),
        ("nanobot cron logs --follow", "What comes, until Ctrl-C"),
    ] },
    Page { command: "cron export", statuses: OF_JOB, variables: &[], files: JOBS, examples: &[
        ("nanobot cron export --format systemd -o ~/.config/systemd/user", "Timers instead of a crontab"),
        ("nanobot cron export --format kubernetes digest | kubectl apply -f -", "One job for a cluster"),
    ] },
    Page { command: "heartbeat", statuses: AS_AGENT, variables: OF_TURN, files: &["workspace/", "cron/ID/"], examples: &[
        ("nanobot heartbeat", "Look now"),
        ("nanobot heartbeat enable --every 30m", "Let cron look"),
    ] },
    Page { command: "heartbeat enable", statuses: &[DONE, (1, "it is enabled, and the crontab could not be changed"), USAGE, IO, CONFIG], variables: &[], files: JOBS, examples: &[
        ("nanobot heartbeat enable --every 2h --channel file --to ~/heartbeat.txt", "Answers into a file"),
    ] },
    Page { command: "heartbeat disable", statuses: &[DONE, (1, "it is disabled, and the crontab could not be changed"), USAGE, IO, CONFIG], variables: &[], files: JOBS, examples: &[
        ("nanobot heartbeat disable", "Let it rest"),
    ] },
    Page { command: "undo", statuses: &[DONE, (1, "somebody else has changed a file since; nothing is done"), USAGE, (66, "there is nothing to undo"), IO], variables: &[], files: &["undo/"], examples: &[
        ("nanobot undo --dry-run", "What would be done"),
        ("nanobot undo", "The last turn that worked on this directory"),
        ("nanobot undo --redo", "After all"),
    ] },
    // With `--check` the status is that of the first thing that failed.
    Page { command: "status", statuses: AS_AGENT, variables: OF_MODEL, files: &["config.json", "workspace/", "cron/jobs.json"], examples: &[
        ("nanobot status", "On one screen"),
        ("nanobot status --check", "Try everything as it will be at run time"),
        ("nanobot status --check --json | jq -r '.[] | select(.ok == false) | .detail'", "For a program"),
    ] },
    Page { command: "policy", statuses: NONE_ITSELF, variables: &[], files: &["config.json", "profiles/"], examples: &[
        ("nanobot policy explain exec 'git push'", "What is decided about a command, and why"),
        ("nanobot policy test", "Whether the sandbox holds"),
    ] },
    Page { command: "policy explain", statuses: &[(0, "the call is allowed"), USAGE, (77, "the call is refused"), CONFIG], variables: &[], files: &["config.json", "profiles/"], examples: &[
        ("nanobot policy explain", "All that a run without flags may do"),
        ("nanobot policy explain write_file /etc/hosts --write", "One call, with one flag"),
        ("nanobot policy explain web_fetch https://example.org --net=example.org", "One address"),
    ] },
    Page { command: "policy test", statuses: &[(0, "everything held"), (1, "something did not hold"), USAGE, CONFIG, (126, "this system has no sandbox")], variables: &[], files: &["config.json", "profiles/"], examples: &[
        ("nanobot policy test --net", "With the flags of the run that is meant"),
    ] },
    Page { command: "tool", statuses: NONE_ITSELF, variables: &[], files: &["config.json", "profiles/"], examples: &[
        ("nanobot tool list", "Which there are"),
        ("nanobot tool run read_file '{\"path\": \"README.md\"}'", "What the model would get"),
    ] },
    Page { command: "tool list", statuses: PLAIN, variables: &[], files: &["config.json", "profiles/"], examples: &[
        ("nanobot tool list --profile plan --json", "For a program, with the schemas"),
    ] },
    Page { command: "tool run", statuses: &[DONE, (1, "the tool could not do it"), USAGE, (77, "the policy refuses it"), CONFIG], variables: &["HTTPS_PROXY", "BRAVE_API_KEY"], files: &["config.json", "profiles/", "undo/"], examples: &[
        ("nanobot tool run grep '{\"pattern\": \"TODO\"}'", "Search this directory as the agent does"),
        ("nanobot tool run exec '{\"command\": \"id; ls /root\"}'", "See the sandbox from inside"),
    ] },
    Page { command: "mcp", statuses: NONE_ITSELF, variables: &[], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp add time -- uvx mcp-server-time", "A server that is a program"),
        ("nanobot mcp list", "Which there are"),
        ("nanobot mcp test", "Whether they answer; the agent starts one when it calls a tool of it"),
    ] },
    Page { command: "mcp list", statuses: PLAIN, variables: &[], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp list --json | jq -r 'select(.error).name'", "Those that something is wrong with"),
    ] },
    Page { command: "mcp show", statuses: OF_SERVER, variables: &[], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp show time", "What it offers"),
        ("nanobot mcp show time convert_time", "One tool, with the schema of its arguments"),
    ] },
    Page { command: "mcp test", statuses: &[(0, "all answer, and offer what they did"), USAGE, NO_SERVER, AWAY, CHANGED, IO, CONFIG], variables: &["HTTPS_PROXY"], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp test", "All of them, at once"),
        ("nanobot mcp test time || nanobot mcp show time", "For a script"),
    ] },
    Page { command: "mcp add", statuses: &[DONE, USAGE, AWAY, IO, CONFIG], variables: &["HTTPS_PROXY"], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes", "It may read and change what its command names: ~/notes"),
        ("nanobot mcp add hub https://example.org/mcp -H 'Authorization: Bearer ${HUB_TOKEN}'", "At an address; the token stays in the environment"),
        ("nanobot mcp add time --allow -- uvx mcp-server-time", "Its tools need no consent"),
    ] },
    Page { command: "mcp remove", statuses: &[DONE, USAGE, NO_SERVER, IO, CONFIG], variables: &[], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp remove time", "Out of the config, with all that was kept of it"),
    ] },
    Page { command: "mcp accept", statuses: &[(0, "all is accepted"), USAGE, NO_SERVER, AWAY, (77, "something was not accepted"), IO, CONFIG], variables: &["HTTPS_PROXY"], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp accept time", "See what has changed, and say yes or no"),
        ("nanobot mcp accept time convert_time --yes", "One tool, once you have seen it"),
    ] },
    Page { command: "mcp call", statuses: &[DONE, (1, "the tool could not do it"), USAGE, NO_SERVER, AWAY, CHANGED, IO, CONFIG, (124, "`--timeout` ran out")], variables: &["HTTPS_PROXY"], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp call time get_current_time '{\"timezone\": \"America/Lima\"}'", "By hand, or from a script"),
        ("nanobot mcp call docs 'file:///readme.md'", "A resource of a server"),
    ] },
    Page { command: "skill", statuses: NONE_ITSELF, variables: &[], files: SKILLS, examples: &[
        ("nanobot skill list", "Which there are"),
        ("nanobot skill install ~/Downloads/pdf", "Take one over, after a look at it"),
    ] },
    Page { command: "skill list", statuses: PLAIN, variables: &[], files: SKILLS, examples: &[
        ("nanobot skill list", "Which can be used, and what the others lack"),
        ("nanobot skill list --json | jq -r 'select(.missing != []) | .name'", "Those that lack something"),
    ] },
    Page { command: "skill show", statuses: &[DONE, USAGE, (65, "it cannot be read"), NO_SKILL, IO, CONFIG], variables: &[], files: SKILLS, examples: &[
        ("nanobot skill show memory", "All that the model would read, and what else there is"),
        ("nanobot skill show skill-creator --file scripts/check.sh | sh -s -- tea/SKILL.md", "Run one of its scripts"),
    ] },
    Page { command: "skill check", statuses: &[(0, "nothing is odd or missing"), (1, "something is"), USAGE, (65, "it is no skill"), NO_SKILL, IO, CONFIG], variables: &[], files: SKILLS, examples: &[
        ("nanobot skill check", "All of them"),
        ("nanobot skill check ./tea", "One that is being written"),
    ] },
    Page { command: "skill new", statuses: &[DONE, (1, "there is one of that name"), USAGE, IO, CONFIG], variables: &[], files: SKILLS, examples: &[
        ("nanobot skill new tea -d 'How tea is made here; for any question about tea'", "Prints the path of its SKILL.md"),
        ("$EDITOR \"$(nanobot skill new tea)\"", "Begin at once"),
    ] },
    Page { command: "skill install", statuses: &[DONE, (1, "there is one of that name, or the answer was no"), USAGE, (65, "it is no skill, or must not be copied"), (66, "there is nothing at PATH"), IO, CONFIG], variables: &[], files: SKILLS, examples: &[
        ("nanobot skill install --dry-run ~/Downloads/pdf", "Only what it contains"),
        ("nanobot skill install --yes ~/Downloads/pdf", "For a script"),
        ("nanobot skill install skill-creator", "A built-in one, to change it"),
    ] },
    Page { command: "skill remove", statuses: &[DONE, (1, "the answer was no"), USAGE, NO_SKILL, IO, CONFIG], variables: &[], files: SKILLS, examples: &[
        ("nanobot skill remove tea", "For good"),
    ] },
    Page { command: "trust", statuses: &[DONE, USAGE, (66, "there is no such directory"), IO], variables: &[], files: &["trust.json"], examples: &[
        ("nanobot trust", "The current directory"),
        ("nanobot trust --list", "Which are trusted"),
        ("nanobot trust --revoke ~/src/other", "Not any more"),
    ] },
    Page { command: "usage", statuses: PLAIN, variables: &[], files: &["usage.jsonl"], examples: &[
        ("nanobot usage --since month", "What this month has cost, by day"),
        ("nanobot usage --by job --since 7d", "Which job spends"),
    ] },
    Page { command: "completions", statuses: &[DONE, USAGE, IO], variables: &[], files: &[], examples: &[
        ("nanobot completions bash > ~/.local/share/bash-completion/completions/nanobot", "For bash, once and for all"),
        ("nanobot completions zsh > ~/.zfunc/_nanobot", "For zsh, where ~/.zfunc is in its fpath"),
        ("nanobot completions fish > ~/.config/fish/completions/nanobot.fish", "For fish"),
    ] },
];
