//! Help and man page sections of each command beside its flags: exit statuses, variables, files, examples. There is a row for
//! each command.

/// Documentation of one command.
#[derive(Debug)]
pub struct HelpPage {
    /// Words after `nanobot`; empty for the program itself.
    pub command: &'static str,
    /// Its own exit statuses and their meanings; empty for the table of all statuses. [`Self::exit_statuses`] adds those of all
    /// commands.
    statuses: &'static [(u8, &'static str)],
    /// Environment variables it reads, beside those that all commands read.
    pub variables: &'static [&'static str],
    /// Files it uses: a part of the path of each.
    pub files: &'static [&'static str],
    /// Working command lines with descriptions.
    pub examples: &'static [(&'static str, &'static str)],
}

impl HelpPage {
    /// All exit statuses and their meanings, in the order of their numbers. Empty for the table of all statuses.
    pub fn exit_statuses(&self) -> Vec<(u8, &'static str)> {
        let mut statuses = self.statuses.to_vec();
        if !statuses.is_empty() && self.statuses != GROUP_STATUSES {
            // Each command can be called wrongly, and each prints something.
            for common in [USAGE, IO] {
                if statuses.iter().all(|(number, _)| *number != common.0) {
                    statuses.push(common);
                }
            }
        }
        statuses.sort_unstable_by_key(|(number, _)| *number);
        statuses
    }
}

/// The row of `command`.
pub fn page(command: &str) -> Option<&'static HelpPage> {
    PAGES.iter().find(|page| page.command == command)
}

const DONE: (u8, &str) = (0, "done");
const USAGE: (u8, &str) = (2, "usage error");
const IO: (u8, &str) = (74, "could not read or write");
const CONFIG: (u8, &str) = (78, "the config is invalid");
const NO_KEY: (u8, &str) = (2, "no such key");
const NO_PATH: (u8, &str) = (66, "no such file or directory");
const FILE_BUSY: (u8, &str) = (75, "another process is changing the file");
const NO_SESSION: (u8, &str) = (66, "no such session");
const BUSY: (u8, &str) = (75, "the session is in use");
const NO_SKILL: (u8, &str) = (66, "no such skill");
const NO_JOB: (u8, &str) = (66, "no such job");
/// Statuses of most commands that print or change something.
const COMMON_STATUSES: &[(u8, &str)] = &[DONE, CONFIG];
const NO_SERVER: (u8, &str) = (66, "no such server, tool or resource");
const SERVER_UNAVAILABLE: (u8, &str) = (69, "a server does not answer");
const TOOL_CHANGED: (u8, &str) = (77, "a tool has changed since it was accepted");
const SERVER_STATUSES: &[(u8, &str)] = &[DONE, NO_SERVER, SERVER_UNAVAILABLE, CONFIG];
const SESSION_STATUSES: &[(u8, &str)] = &[DONE, NO_SESSION, BUSY, CONFIG];
const JOB_STATUSES: &[(u8, &str)] = &[DONE, NO_JOB, CONFIG];
/// Statuses of commands that change jobs.
const JOB_CHANGE_STATUSES: &[(u8, &str)] =
    &[DONE, (1, "the job was changed, but the crontab could not be"), NO_JOB, FILE_BUSY, CONFIG];
/// Statuses of commands that only group subcommands.
const GROUP_STATUSES: &[(u8, &str)] = &[(2, "usage error: the command is missing or unknown")];
/// Statuses of commands that run a turn: the table of all.
const ALL_STATUSES: &[(u8, &str)] = &[];

/// Files of skills and of the trust in them.
const SKILL_FILES: &[&str] = &["skills/NAME/", "trust.json"];

/// Environment variables that a turn reads.
const TURN_VARIABLES: &[&str] = &[
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
const MODEL_VARIABLES: &[&str] = &[
    "NANOBOT_LLM_TIMEOUT_S",
    "NANOBOT_STREAM_IDLE_TIMEOUT_S",
    "HTTPS_PROXY",
    "OPENAI_API_KEY",
    "CREDENTIALS_DIRECTORY",
];
const SESSION_FILES: &[&str] = &["sessions/KEY.jsonl"];
const CHANNEL_FILES: &[&str] = &["channels/NAME/", "pairing.json", "media/"];
#[rustfmt::skip]
const CHANNEL_STATUSES: &[(u8, &str)] = &[
    (0, "nothing new, or all answered and delivered"),
    (1, "a turn failed"),
    (4, "stopped by a budget"),
    (65, "a message cannot be delivered: its chat does not exist"),
    (66, "nothing to send, or a file or an id is missing"),
    (69, "the service is unavailable after all retries"),
    (75, "another poll is at work, or a rate limit; messages wait"),
    (77, "the service rejects the token, or a recipient does not accept messages"),
    (78, "the config is incomplete, or no sender is allowed"),
    (143, "terminated; the next poll does the rest"),
];
const JOB_FILES: &[&str] = &["cron/jobs.json", "cron/ID/"];

#[rustfmt::skip]
/// The rows, in the order of the commands.
pub const PAGES: &[HelpPage] = &[
    HelpPage { command: "", statuses: ALL_STATUSES, variables: TURN_VARIABLES, files: &["/"], examples: &[
        ("nanobot agent --replay demo -m 'What is in this folder?'", "Try it: recorded answers, real tools, no key and no network"),
        ("nanobot onboard", "Choose a provider and a model"),
        ("git diff --staged | nanobot agent -m 'write a commit message' | git commit -F -", "One turn in a pipeline"),
        ("nanobot cron add --cron '0 8 * * 1-5' --read ~/inbox -m 'summarise what is new in ~/inbox'", "A turn each working day"),
        ("nanobot status check", "Check whether everything works"),
    ] },
    HelpPage { command: "agent", statuses: ALL_STATUSES, variables: TURN_VARIABLES, files: &["config.json", "profiles/", "trust.json", "workspace/", "usage", "undo/"], examples: &[
        ("nanobot agent -m 'what time is it in Tokyo?'", "One turn of the session `cli:direct`"),
        ("nanobot agent -m 'which of these lines matter?' < /var/log/syslog > report.md", "Piped text follows the message"),
        ("nanobot agent --write -m 'fix the typos in README.md'", "Allow it to change files in this directory"),
        ("nanobot agent --write -m 'repair the code' --until 'make test'", "Continue until the tests pass"),
        ("nanobot agent --propose -m 'fix the typo' | git apply", "The changes as a patch; nothing else is changed"),
        ("nanobot agent -s work --resume", "Continue an interrupted turn"),
        ("nanobot agent --schema 'name, age int' -m 'Ada, 36' | jq -r .name", "JSON that matches a schema"),
        ("find . -name '*.md' -print0 | xargs -0 -P4 -I{} nanobot agent -s review:{} -m review -a {}", "Many turns in parallel, each with its own session"),
    ] },
    HelpPage { command: "run", statuses: ALL_STATUSES, variables: TURN_VARIABLES, files: &["config.json", "profiles/", "prompts/", "trust.json", "workspace/", "usage", "undo/"], examples: &[
        ("nanobot run tides.md Brest", "A prompt file with an argument"),
        ("nanobot run --write tidy.md < list.txt", "Flags of `nanobot agent` stand before the file"),
        ("nanobot run --save shorter --model small -m 'In $1 words:'", "Keep a prompt under a name"),
    ] },
    HelpPage { command: "repl", statuses: ALL_STATUSES, variables: TURN_VARIABLES, files: &["config.json", "profiles/", "trust.json", "workspace/", "usage", "undo/"], examples: &[
        ("nanobot repl", "Continue the session `cli:direct`"),
        ("nanobot repl -s work --write", "A session that may change files in this directory"),
        ("nanobot repl --replay demo", "Try it without a key"),
    ] },
    HelpPage { command: "onboard", statuses: &[DONE, FILE_BUSY, CONFIG], variables: &["OPENAI_API_KEY"], files: &["config.json", "workspace/"], examples: &[
        ("nanobot onboard", "Interactive setup"),
        ("nanobot onboard --provider anthropic --api-key-env ANTHROPIC_API_KEY --yes", "Without questions, for scripts"),
        ("nanobot onboard --provider custom --api-base http://127.0.0.1:8000/v1 --model local --yes", "A server of your own"),
    ] },
    HelpPage { command: "config", statuses: GROUP_STATUSES, variables: &[], files: &["config.json"], examples: &[
        ("nanobot config set agents.defaults.model gpt-6-luna", "Change a key"),
        ("nanobot config list --origin", "What differs from the defaults, and where it is set"),
    ] },
    HelpPage { command: "config path", statuses: &[DONE], variables: &[], files: &["config.json"], examples: &[
        ("${EDITOR:-vi} \"$(nanobot config path)\"", "Open the config in an editor"),
    ] },
    HelpPage { command: "config get", statuses: &[DONE, NO_KEY, CONFIG], variables: &[], files: &["config.json"], examples: &[
        ("nanobot config get agents.defaults.model", "One key"),
        ("nanobot config get agents.defaults.model --json", "With its origin"),
    ] },
    HelpPage { command: "config set", statuses: &[DONE, NO_KEY, (65, "standard input is not text"), (66, "standard input is empty"), FILE_BUSY, (77, "the key is locked by /etc/nanobot/config.json"), (78, "the value is invalid")], variables: &[], files: &["config.json"], examples: &[
        ("nanobot config set agents.defaults.maxToolIterations 60", "A number"),
        ("nanobot config set agents.defaults.fallbackModels '[\"gpt-6-luna\"]'", "A list, as JSON"),
        ("nanobot config set 'models.\"gpt-4.1\".price' '{\"input\": 2, \"output\": 8}'", "A name with a dot, in quotes"),
        ("pass show openai | nanobot config set providers.openai.apiKey -", "An API key that stays out of the shell history"),
    ] },
    HelpPage { command: "config apply", statuses: &[DONE, (65, "the file is not text, or empty"), NO_PATH, FILE_BUSY, (77, "a key is locked by /etc/nanobot/config.json"), (78, "no such key, or a value is invalid; nothing was written")], variables: &[], files: &["config.json"], examples: &[
        ("nanobot config apply -f team.json --dry-run", "What would change"),
        ("nanobot config apply -f - < team.json", "From standard input"),
    ] },
    HelpPage { command: "config list", statuses: &[DONE, CONFIG], variables: &[], files: &["config.json"], examples: &[
        ("nanobot config list", "What differs from the defaults"),
        ("nanobot config list --all --origin", "All keys with their origins"),
        ("nanobot config list --json | jq -r .key", "The names of the keys that differ"),
    ] },
    HelpPage { command: "config unset", statuses: &[DONE, NO_KEY, (66, "the key is not set"), FILE_BUSY, CONFIG], variables: &[], files: &["config.json"], examples: &[
        ("nanobot config unset agents.defaults.model", "Return to the default"),
    ] },
    HelpPage { command: "config edit", statuses: &[(0, "no errors"), (1, "the editor failed"), FILE_BUSY, (78, "there are errors")], variables: &["VISUAL", "EDITOR"], files: &["config.json"], examples: &[
        ("EDITOR=nano nanobot config edit", "With another editor"),
    ] },
    HelpPage { command: "config check", statuses: &[(0, "no errors"), (78, "there are errors")], variables: &[], files: &["config.json"], examples: &[
        ("nanobot config check", "Errors and warnings with line and column"),
    ] },
    HelpPage { command: "config schema", statuses: &[DONE], variables: &[], files: &[], examples: &[
        ("nanobot config schema > config.schema.json", "For an editor that supports JSON schemas"),
        ("nanobot config schema --events", "The schema of `agent --output-format stream-json`"),
    ] },
    HelpPage { command: "session", statuses: GROUP_STATUSES, variables: &[], files: SESSION_FILES, examples: &[
        ("nanobot session list", "All sessions, newest first"),
        ("nanobot session show cli:direct -n 4", "The last four messages of a session"),
    ] },
    HelpPage { command: "session list", statuses: COMMON_STATUSES, variables: &[], files: SESSION_FILES, examples: &[
        ("nanobot session list 'review:*' --since 7d", "Sessions with this prefix, used in the last seven days"),
        ("nanobot session list --sort cost -n 5 --json", "The five most expensive, as JSON"),
    ] },
    HelpPage { command: "session show", statuses: SESSION_STATUSES, variables: &[], files: SESSION_FILES, examples: &[
        ("nanobot session show", "The session `cli:direct`"),
        ("nanobot session show telegram:42 -n 2 --full", "The last two messages, with full tool results"),
    ] },
    HelpPage { command: "session search", statuses: &[(0, "something matches"), (1, "nothing matches"), (4, "a budget is used up"), NO_SESSION, (69, "the server of `--meaning` does not answer"), (77, "it refuses the key"), CONFIG], variables: &[], files: &["sessions/KEY.jsonl", "sessions/.embeddings.json", "memory/"], examples: &[
        ("nanobot session search -i 'invoice [0-9]+'", "Search all sessions and the memory"),
        ("nanobot session search -l -F 'Ada'", "Only the keys of matching sessions"),
        ("nanobot session search --meaning 'the trip to the sea'", "What is closest, whatever its words"),
    ] },
    HelpPage { command: "session export", statuses: SESSION_STATUSES, variables: &[], files: SESSION_FILES, examples: &[
        ("nanobot session export cli:direct -o talk.md", "As a Markdown document"),
        ("nanobot session export cli:direct --format json | jq length", "As JSON"),
    ] },
    HelpPage { command: "session fork", statuses: SESSION_STATUSES, variables: &[], files: SESSION_FILES, examples: &[
        ("nanobot session fork cli:direct other --at 6", "Continue from the sixth message, in a copy"),
    ] },
    HelpPage { command: "session import", statuses: &[DONE, USAGE, (65, "the file is no session of a known program"), (66, "there is no such file"), IO, BUSY, CONFIG], variables: &[], files: SESSION_FILES, examples: &[
        ("nanobot session import ~/.claude/projects/-src-tea/ID.jsonl tea", "Go on with a conversation of Claude Code: `nanobot agent -s tea`"),
    ] },
    HelpPage { command: "session context", statuses: SESSION_STATUSES, variables: &[], files: SESSION_FILES, examples: &[
        ("nanobot session context cli:direct", "Tokens by part of the context"),
    ] },
    HelpPage { command: "session compact", statuses: ALL_STATUSES, variables: MODEL_VARIABLES, files: SESSION_FILES, examples: &[
        ("nanobot session compact cli:direct keep all file names", "With instructions for the summary"),
    ] },
    HelpPage { command: "session rename", statuses: SESSION_STATUSES, variables: &[], files: SESSION_FILES, examples: &[
        ("nanobot session rename pipe:3fa2 invoices", "Give it a readable key"),
    ] },
    HelpPage { command: "session title", statuses: SESSION_STATUSES, variables: &[], files: SESSION_FILES, examples: &[
        ("nanobot session title cli:direct 'Tax return'", "Shown by `nanobot session list`"),
    ] },
    HelpPage { command: "session remove", statuses: SESSION_STATUSES, variables: &[], files: &["sessions/KEY.jsonl", ".trash"], examples: &[
        ("nanobot session remove invoices review:a", "Move to the trash"),
        ("nanobot session remove --for-good invoices", "Delete permanently"),
    ] },
    HelpPage { command: "session restore", statuses: SESSION_STATUSES, variables: &[], files: &["sessions/KEY.jsonl", ".trash"], examples: &[
        ("nanobot session restore", "List the trash"),
        ("nanobot session restore invoices", "Restore a session"),
    ] },
    HelpPage { command: "session prune", statuses: COMMON_STATUSES, variables: &[], files: &["sessions/KEY.jsonl", ".trash"], examples: &[
        ("nanobot session prune 'pipe:*' --older-than 30d --dry-run", "List what would be moved"),
        ("nanobot session prune 'pipe:*' --older-than 30d --yes", "For a crontab"),
    ] },
    HelpPage { command: "session repair", statuses: &[DONE, (1, "something could not be repaired"), NO_SESSION, BUSY, CONFIG], variables: &[], files: &["sessions/KEY.jsonl"], examples: &[
        ("nanobot session repair --all --dry-run", "Check all sessions"),
    ] },
    HelpPage { command: "memory", statuses: GROUP_STATUSES, variables: &[], files: &["memory/"], examples: &[
        ("nanobot memory show", "Print the memory"),
        ("nanobot memory undo", "Undo the last change"),
    ] },
    HelpPage { command: "memory consolidate", statuses: ALL_STATUSES, variables: MODEL_VARIABLES, files: &["memory/", "sessions/KEY.jsonl"], examples: &[
        ("nanobot memory consolidate --dry-run", "List what is due"),
        ("nanobot memory consolidate -s cli:direct", "One session, due or not"),
    ] },
    HelpPage { command: "memory show", statuses: COMMON_STATUSES, variables: &[], files: &["memory/MEMORY.md"], examples: &[
        ("nanobot memory show | less", "Read it"),
    ] },
    HelpPage { command: "memory search", statuses: &[(0, "something matches"), (1, "nothing matches"), (4, "a budget is used up"), (69, "the server of `--meaning` does not answer"), (77, "it refuses the key"), CONFIG], variables: &[], files: &["memory/MEMORY.md", "memory/HISTORY.md", "memory/.embeddings.json"], examples: &[
        ("nanobot memory search '(?i)dentist'", "Ignoring case"),
        ("nanobot memory search --meaning 'when do I see the doctor?'", "What is closest, whatever its words"),
    ] },
    HelpPage { command: "memory edit", statuses: &[DONE, (1, "the editor failed"), (75, "another run is changing the memory"), CONFIG], variables: &["VISUAL", "EDITOR"], files: &["memory/MEMORY.md", "memory/.versions"], examples: &[
        ("EDITOR=nano nanobot memory edit", "With another editor"),
    ] },
    HelpPage { command: "memory accept", statuses: &[DONE, (75, "another run is changing the memory"), CONFIG], variables: &[], files: &["memory/MEMORY.md", "memory/.versions"], examples: &[
        ("nanobot memory accept", "After a review"),
    ] },
    HelpPage { command: "memory log", statuses: COMMON_STATUSES, variables: &[], files: &["memory/.versions"], examples: &[
        ("nanobot memory log", "The versions, newest first"),
    ] },
    HelpPage { command: "memory diff", statuses: &[DONE, (66, "no such version"), CONFIG], variables: &[], files: &["memory/.versions"], examples: &[
        ("nanobot memory diff", "The last change"),
        ("nanobot memory diff 3 7", "Between two versions"),
    ] },
    HelpPage { command: "memory undo", statuses: &[DONE, (66, "no such version"), (75, "another run is changing the memory"), CONFIG], variables: &[], files: &["memory/MEMORY.md", "memory/.versions"], examples: &[
        ("nanobot memory undo", "Restore the previous version"),
        ("nanobot memory undo 3", "Restore a version from `memory log`"),
    ] },
    HelpPage { command: "model", statuses: GROUP_STATUSES, variables: &[], files: &["config.json"], examples: &[
        ("nanobot model list", "All known models"),
        ("nanobot model show gpt-6-luna", "Provider and price of a model"),
    ] },
    HelpPage { command: "model list", statuses: &[DONE, (69, "the provider is not available"), (77, "the API key was rejected"), CONFIG], variables: MODEL_VARIABLES, files: &["config.json"], examples: &[
        ("nanobot model list --provider anthropic", "Limits and prices of one provider's models"),
        ("nanobot model list --remote", "Ask the configured provider"),
    ] },
    HelpPage { command: "model use", statuses: &[DONE, FILE_BUSY, CONFIG], variables: MODEL_VARIABLES, files: &["config.json"], examples: &[
        ("nanobot model use claude-sonnet-5", "Runs without `--model` use it"),
    ] },
    HelpPage { command: "model show", statuses: &[DONE, CONFIG], variables: MODEL_VARIABLES, files: &["config.json"], examples: &[
        ("nanobot model show claude-sonnet-5", "Provider, endpoint, limits and price"),
    ] },
    HelpPage { command: "model provider", statuses: GROUP_STATUSES, variables: MODEL_VARIABLES, files: &["config.json", "auth/"], examples: &[
        ("nanobot model provider list", "All providers, and which have an API key"),
        ("nanobot model provider login githubCopilot", "Use an account instead of an API key"),
    ] },
    HelpPage { command: "model provider list", statuses: COMMON_STATUSES, variables: MODEL_VARIABLES, files: &["config.json", "auth/"], examples: &[
        ("nanobot model provider list --json", "As JSON"),
    ] },
    HelpPage { command: "model provider show", statuses: &[DONE, (2, "no such provider"), CONFIG], variables: MODEL_VARIABLES, files: &["config.json", "auth/"], examples: &[
        ("nanobot model provider show anthropic", "Its address, default model, and where its key comes from"),
    ] },
    HelpPage { command: "model provider login", statuses: &[(0, "logged in"), (69, "the provider is not available"), FILE_BUSY, (77, "the login was refused"), CONFIG], variables: &["HTTPS_PROXY"], files: &["auth/"], examples: &[
        ("nanobot model provider login openaiCodex", "Prints a code to enter in any browser"),
    ] },
    HelpPage { command: "model provider logout", statuses: &[(0, "logged out"), FILE_BUSY, CONFIG], variables: &[], files: &["auth/"], examples: &[
        ("nanobot model provider logout openaiCodex", "Remove the saved login"),
    ] },
    HelpPage { command: "cron", statuses: GROUP_STATUSES, variables: &[], files: JOB_FILES, examples: &[
        ("nanobot cron add --every 2h -m 'anything new in ~/inbox?' --read ~/inbox", "Create a job"),
        ("nanobot cron list", "All jobs with their next and last runs"),
        ("nanobot cron logs --output digest", "The output of a job's last run"),
    ] },
    HelpPage { command: "cron add", statuses: &[DONE, (1, "the job was created, but the crontab could not be changed"), NO_PATH, FILE_BUSY, CONFIG], variables: &["OPENAI_API_KEY"], files: &["cron/jobs.json", "cron/ID/", "crontab.lock"], examples: &[
        ("nanobot cron add -n digest --cron '0 8 * * 1-5' --read ~/inbox -m 'summarise what is new in ~/inbox'", "At eight, Monday to Friday"),
        ("nanobot cron add --in 2h -m 'remind me of the cake'", "Once, in two hours"),
        ("nanobot cron add -n mail --after digest -m 'make a letter of this' --channel command --to 'mail -s digest me'", "After each run of another job that gives an answer"),
        ("nanobot cron add --every 30m --when 'test -s /var/mail/me' -m 'is any of this mail urgent?' --channel file --to ~/urgent.txt", "Only if a command succeeds, with answers appended to a file"),
        ("nanobot cron add -n disk --every 1h --command 'df -h | awk \"\\$5+0 > 90\"' --channel telegram --to 123456", "Without a model: what a command prints, if it prints anything"),
    ] },
    HelpPage { command: "cron apply", statuses: &[DONE, (1, "a job was saved, but the crontab could not be changed"), (65, "the file is not a list of jobs"), (66, "there is no such file"), FILE_BUSY, CONFIG], variables: &[], files: &["cron/jobs.json", "cron/ID/", "crontab.lock"], examples: &[
        ("nanobot cron apply -f jobs.yaml", "Create and change what the file lists"),
        ("nanobot cron apply -f jobs.yaml --prune --json", "For a configuration management system"),
    ] },
    HelpPage { command: "cron list", statuses: COMMON_STATUSES, variables: &[], files: JOB_FILES, examples: &[
        ("nanobot cron list --all", "Disabled jobs too"),
        ("nanobot cron list --json", "As JSON"),
    ] },
    HelpPage { command: "cron check", statuses: &[(0, "no job has a problem"), (1, "some jobs fail, are overdue or cannot run"), CONFIG], variables: &[], files: JOB_FILES, examples: &[
        ("report=$(nanobot cron check) || echo \"$report\" | mail -s 'nanobot jobs' root", "Mail the problems, if there are any"),
        ("nanobot cron check --json", "For a monitoring system"),
    ] },
    HelpPage { command: "cron show", statuses: JOB_STATUSES, variables: &[], files: JOB_FILES, examples: &[
        ("nanobot cron show digest", "Message, schedule and permissions"),
    ] },
    HelpPage { command: "cron edit", statuses: JOB_CHANGE_STATUSES, variables: &[], files: JOB_FILES, examples: &[
        ("nanobot cron edit digest --cron '30 7 * * *'", "Change the schedule"),
        ("nanobot cron edit digest --when ''", "Remove a setting"),
    ] },
    HelpPage { command: "cron run", statuses: ALL_STATUSES, variables: TURN_VARIABLES, files: JOB_FILES, examples: &[
        ("nanobot cron run digest", "Run it now"),
        ("nanobot cron run digest --as-cron", "As cron would, to find what is missing in its environment"),
        ("nanobot cron run --due", "For a scheduler other than cron"),
    ] },
    HelpPage { command: "cron enable", statuses: JOB_CHANGE_STATUSES, variables: &[], files: JOB_FILES, examples: &[
        ("nanobot cron enable digest", "Enable a job"),
    ] },
    HelpPage { command: "cron disable", statuses: JOB_CHANGE_STATUSES, variables: &[], files: JOB_FILES, examples: &[
        ("nanobot cron disable digest", "Disable a job, but keep it"),
    ] },
    HelpPage { command: "cron remove", statuses: JOB_CHANGE_STATUSES, variables: &[], files: JOB_FILES, examples: &[
        ("nanobot cron remove digest", "Remove a job with its records and session"),
    ] },
    HelpPage { command: "cron sync", statuses: &[DONE, (1, "the crontab could not be changed"), FILE_BUSY, CONFIG], variables: &[], files: &["cron/jobs.json", "crontab.lock"], examples: &[
        ("nanobot cron sync --dry-run", "Show what would change in the crontab"),
    ] },
    HelpPage { command: "cron logs", statuses: JOB_STATUSES, variables: &[], files: JOB_FILES, examples: &[
        ("nanobot cron logs -n 5", "The last five runs of all jobs"),
        ("nanobot cron logs digest --output", "The output of the last run"),
        ("nanobot cron logs --run 1a2b3c4d", "One run, with its tool calls"),
        ("nanobot cron logs --follow", "New runs as they end, until Ctrl-C"),
    ] },
    HelpPage { command: "cron rerun", statuses: ALL_STATUSES, variables: TURN_VARIABLES, files: JOB_FILES, examples: &[
        ("nanobot cron rerun 1a2b3c4d", "Run the job again with the input of that run"),
    ] },
    HelpPage { command: "cron export", statuses: &[DONE, (1, "something was not exported"), NO_JOB, CONFIG], variables: &[], files: JOB_FILES, examples: &[
        ("nanobot cron export --format systemd -o ~/.config/systemd/user", "systemd timers instead of a crontab"),
        ("nanobot cron export --format kubernetes digest | kubectl apply -f -", "One job as a CronJob"),
    ] },
    HelpPage { command: "cron heartbeat", statuses: ALL_STATUSES, variables: TURN_VARIABLES, files: &["workspace/", "cron/ID/"], examples: &[
        ("nanobot cron heartbeat", "Check now"),
        ("nanobot cron heartbeat enable --every 30m", "Check every 30 minutes with cron"),
    ] },
    HelpPage { command: "cron heartbeat enable", statuses: &[DONE, (1, "enabled, but the crontab could not be changed"), NO_PATH, FILE_BUSY, CONFIG], variables: &[], files: JOB_FILES, examples: &[
        ("nanobot cron heartbeat enable --every 2h --channel file --to ~/heartbeat.txt", "Append answers to a file"),
    ] },
    HelpPage { command: "cron heartbeat disable", statuses: &[DONE, (1, "disabled, but the crontab could not be changed"), FILE_BUSY, CONFIG], variables: &[], files: JOB_FILES, examples: &[
        ("nanobot cron heartbeat disable", "Stop checking"),
    ] },
    HelpPage { command: "channel", statuses: CHANNEL_STATUSES, variables: &[], files: CHANNEL_FILES, examples: &[
        ("nanobot channel login telegram", "Ask for the token, try it, and set the command menu"),
        ("* * * * * nanobot channel poll --wait 60", "A crontab line that answers messages at once"),
    ] },
    HelpPage { command: "channel list", statuses: &[DONE, CONFIG], variables: &[], files: CHANNEL_FILES, examples: &[
        ("nanobot channel list --json", "Messages that wait, for a monitor"),
    ] },
    HelpPage { command: "channel show", statuses: &[DONE, CONFIG], variables: &[], files: CHANNEL_FILES, examples: &[
        ("nanobot channel show telegram", "Settings, and the ids of refused senders"),
    ] },
    HelpPage { command: "channel check", statuses: CHANNEL_STATUSES, variables: &[], files: &[], examples: &[
        ("nanobot channel check telegram", "Our user name there"),
    ] },
    HelpPage { command: "channel login", statuses: CHANNEL_STATUSES, variables: &[], files: &[], examples: &[
        ("nanobot channel login telegram", "Ask for the token, try it, and set the command menu"),
    ] },
    HelpPage { command: "channel pair", statuses: &[DONE, (66, "there is no such code"), FILE_BUSY, CONFIG], variables: &[], files: &["pairing.json"], examples: &[
        ("nanobot channel pair approve ABCD-EFGH", "Allow a sender"),
    ] },
    HelpPage { command: "channel pair list", statuses: &[DONE, CONFIG], variables: &[], files: &["pairing.json"], examples: &[
        ("nanobot channel pair list", "The codes that are valid now"),
    ] },
    HelpPage { command: "channel pair approve", statuses: &[DONE, (66, "there is no such code"), FILE_BUSY, CONFIG], variables: &[], files: &["pairing.json"], examples: &[
        ("nanobot channel pair approve ABCD-EFGH", "Allow a sender"),
        ("nanobot channel pair approve ABCD-EFGH -w ~/kids", "Allow a sender, with a memory apart"),
    ] },
    HelpPage { command: "channel bind", statuses: &[DONE, (2, "there is no such channel, or nothing to bind"), (66, "there is no such binding"), FILE_BUSY, CONFIG], variables: &[], files: &["config.json"], examples: &[
        ("nanobot channel bind telegram --sender 123456 -w ~/kids --profile plan --budget 0.50", "A person with a memory and limits of their own"),
        ("nanobot channel bind telegram --chat -100123456 -w ~/family", "A group with a memory of its own"),
        ("nanobot channel bind telegram --chat -100123456 --remove", "As all other chats"),
    ] },
    HelpPage { command: "channel poll", statuses: CHANNEL_STATUSES, variables: TURN_VARIABLES, files: CHANNEL_FILES, examples: &[
        ("nanobot channel poll", "Answer what is new, and exit"),
        ("* * * * * nanobot channel poll --wait 60", "A crontab line that answers messages at once"),
        ("nanobot channel poll --follow", "Listen until told to stop, for a supervisor"),
    ] },
    HelpPage { command: "channel export", statuses: &[DONE, (1, "something was not exported"), (2, "no such channel"), CONFIG], variables: &[], files: CHANNEL_FILES, examples: &[
        ("nanobot channel export --format systemd -o ~/.config/systemd/user", "A unit that listens to all channels"),
        ("nanobot channel export --format kubernetes | kubectl apply -f -", "A Deployment of one pod"),
    ] },
    HelpPage { command: "channel send", statuses: CHANNEL_STATUSES, variables: &[], files: CHANNEL_FILES, examples: &[
        ("nanobot channel send telegram 123456 'Backup done'", "Send a text"),
        ("df -h | nanobot channel send telegram 123456", "Send the output of a command"),
        ("nanobot channel send telegram 123456 -a report.pdf --key report-7", "Send a file, and only once"),
    ] },
    HelpPage { command: "channel inbox", statuses: &[DONE, CONFIG], variables: &[], files: CHANNEL_FILES, examples: &[
        ("nanobot channel inbox telegram", "What waits, was given up or failed"),
    ] },
    HelpPage { command: "channel retry", statuses: CHANNEL_STATUSES, variables: &[], files: CHANNEL_FILES, examples: &[
        ("nanobot channel retry send.report-7", "Send a message again"),
    ] },
    HelpPage { command: "serve", statuses: GROUP_STATUSES, variables: &[], files: &["config.json", "workspace/"], examples: &[
        ("nanobot serve pipe < messages.jsonl", "Answer JSON lines"),
        ("nanobot serve mcp", "The command of a server, for the config of an MCP client"),
    ] },
    HelpPage { command: "serve pipe", statuses: ALL_STATUSES, variables: TURN_VARIABLES, files: &["config.json", "workspace/", "usage", "undo/", "pipes/"], examples: &[
        ("echo '{\"session\":\"test\",\"text\":\"hello\"}' | nanobot serve pipe", "One message"),
        ("mosquitto_sub -q 1 -c -i bot -t ask -F %j | jq -c '{session: .topic, text: .payload}' | nanobot serve pipe -j 4", "Messages of an MQTT topic"),
        ("nanobot serve pipe --name orders < orders.jsonl >> answers.jsonl", "After a crash, the same line again answers what is missing and repeats the rest"),
    ] },
    HelpPage { command: "serve acp", statuses: ALL_STATUSES, variables: TURN_VARIABLES, files: &["config.json", "workspace/", "usage", "undo/"], examples: &[
        ("nanobot serve acp --model anthropic/claude-sonnet-4-5", "The command of an editor's agent"),
    ] },
    HelpPage { command: "serve mcp", statuses: &[DONE, NO_PATH, CONFIG], variables: TURN_VARIABLES, files: &["config.json", "profiles/", "trust.json", "workspace/", "usage", "undo/"], examples: &[
        ("nanobot serve mcp", "The command of a server, for the config of a client"),
        ("nanobot serve mcp --tools 'read_file,grep'", "Only these tools, and `ask`"),
    ] },
    HelpPage { command: "serve webhook", statuses: CHANNEL_STATUSES, variables: TURN_VARIABLES, files: CHANNEL_FILES, examples: &[("nanobot serve webhook whatsapp", "Answer the request on standard input, as a service of inetd or systemd")] },
    HelpPage { command: "apply", statuses: &[(0, "applied, or an empty patch"), (65, "no patch, or a file is not as the patch expects it; nothing was changed"), NO_PATH, (77, "the policy refuses a change; nothing was changed"), CONFIG], variables: &[], files: &["config.json", "trust.json", "undo/"], examples: &[
        ("nanobot apply fix.patch", "Apply a patch"),
        ("nanobot agent --propose -m 'fix the typo' > fix.patch && less fix.patch && nanobot apply fix.patch", "Review a proposal first"),
    ] },
    HelpPage { command: "undo", statuses: &[DONE, (1, "a file was changed since; nothing was undone"), (66, "nothing to undo"), (75, "the turn is still running")], variables: &[], files: &["undo/"], examples: &[
        ("nanobot undo --dry-run", "Show what would change"),
        ("nanobot undo", "Undo the last turn in this directory"),
        ("nanobot undo --redo", "Reapply the undone changes"),
    ] },
    HelpPage { command: "forget", statuses: &[DONE, (1, "it was not found, or the answer was no"), (66, "there is no such `--file`"), (74, "a file cannot be read or written"), (75, "a file is in use"), (77, "in a run's sandbox"), CONFIG], variables: &[], files: &["/"], examples: &[
        ("nanobot forget --dry-run 'Ada Lovelace'", "List where a text occurs, and what would happen"),
        ("nanobot forget --session telegram:123456", "A session, with what belongs to it"),
        ("nanobot forget --sender telegram:123456 --yes", "All of a person, in a script"),
        ("nanobot forget 'Ada Lovelace' --file tests/recording.jsonl", "In a recording too"),
    ] },
    HelpPage { command: "status", statuses: COMMON_STATUSES, variables: MODEL_VARIABLES, files: &["config.json", "workspace/", "cron/jobs.json"], examples: &[
        ("nanobot status", "The configuration on one screen"),
    ] },
    // The status is that of the first failed check.
    HelpPage { command: "status check", statuses: ALL_STATUSES, variables: MODEL_VARIABLES, files: &["config.json", "workspace/", "cron/jobs.json"], examples: &[
        ("nanobot status check", "Check everything as at run time"),
        ("nanobot status check --json | jq -r '.[] | select(.ok == false) | .detail'", "Details of failed checks"),
    ] },
    HelpPage { command: "status metrics", statuses: COMMON_STATUSES, variables: &[], files: &["usage.jsonl", "cron/jobs.json", "cron/ID/"], examples: &[
        ("nanobot status metrics > nanobot.prom.$$ && mv nanobot.prom.$$ /var/lib/node_exporter/nanobot.prom", "From a crontab line"),
    ] },
    HelpPage { command: "policy", statuses: GROUP_STATUSES, variables: &[], files: &["config.json", "profiles/"], examples: &[
        ("nanobot policy explain exec 'git push'", "The decision about a command, and the reason"),
        ("nanobot policy check", "Check the sandbox"),
    ] },
    HelpPage { command: "policy explain", statuses: &[(0, "the call is allowed"), NO_PATH, (77, "the call is refused"), CONFIG], variables: &[], files: &["config.json", "profiles/"], examples: &[
        ("nanobot policy explain", "Permissions of a run without flags"),
        ("nanobot policy explain write_file /etc/hosts --write", "A call, with a flag"),
        ("nanobot policy explain web_fetch https://example.org --net=example.org", "A URL"),
    ] },
    HelpPage { command: "policy check", statuses: &[(0, "all checks passed"), (1, "a check failed"), NO_PATH, CONFIG, (126, "the system has no sandbox")], variables: &[], files: &["config.json", "profiles/"], examples: &[
        ("nanobot policy check --net", "With the flags of a run"),
    ] },
    HelpPage { command: "tool", statuses: GROUP_STATUSES, variables: &[], files: &["config.json", "profiles/", "tools/NAME"], examples: &[
        ("nanobot tool list", "All tools"),
        ("nanobot tool run read_file '{\"path\": \"README.md\"}'", "The result the model would get"),
    ] },
    HelpPage { command: "tool list", statuses: &[DONE, NO_PATH, CONFIG], variables: &[], files: &["config.json", "profiles/"], examples: &[("nanobot tool list --profile plan --json", "As JSON, with the schemas")] },
    HelpPage { command: "tool show", statuses: &[DONE, (2, "there is no such tool"), NO_PATH, CONFIG], variables: &[], files: &["config.json", "profiles/"], examples: &[("nanobot tool show grep", "Its arguments")] },
    HelpPage { command: "tool new", statuses: &[DONE, (1, "there is such a file already"), CONFIG], variables: &[], files: &["config.json", "tools/NAME"], examples: &[("nanobot tool new tides -d 'Times of high and low water'", "A program to complete; then try it with `tool run tides`")] },
    HelpPage { command: "tool check", statuses: &[DONE, (1, "a program cannot be used"), CONFIG], variables: &[], files: &["config.json", "tools/NAME"], examples: &[("nanobot tool check", "All programs, and the reason why one cannot be used")] },
    HelpPage { command: "tool run", statuses: &[DONE, (1, "the tool failed"), (66, "no such file or directory, server, tool or resource"), SERVER_UNAVAILABLE, (77, "the policy denies the call, or the tool has changed since it was accepted"), CONFIG, (124, "timed out (`--timeout`)")], variables: &["HTTPS_PROXY", "BRAVE_API_KEY"], files: &["config.json", "profiles/", "undo/", "mcp/"], examples: &[
        ("nanobot tool run grep '{\"pattern\": \"TODO\"}'", "Search this directory as the agent would"),
        ("nanobot tool run exec '{\"command\": \"id; ls /root\"}'", "See the sandbox from inside"),
        ("nanobot tool run time get_current_time '{\"timezone\": \"America/Lima\"}'", "Call a tool of the MCP server `time`"),
        ("nanobot tool run docs 'file:///readme.md'", "Read a resource of the server `docs`"),
    ] },
    HelpPage { command: "mcp", statuses: GROUP_STATUSES, variables: &[], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp add time -- uvx mcp-server-time", "Add a local server"),
        ("nanobot mcp list", "All servers"),
        ("nanobot mcp check", "Check all servers; the agent starts a server when it calls one of its tools"),
    ] },
    HelpPage { command: "mcp login", statuses: &[DONE, (66, "there is no such server"), (69, "a server does not answer"), (75, "the time to log in was over"), (77, "the login was refused"), (78, "the server has no login that can be used, or the config is invalid")], variables: &["HTTPS_PROXY"], files: &["config.json", "auth/mcp"], examples: &[
        ("nanobot mcp login linear", "In the browser of this machine"),
        ("nanobot mcp login linear --paste", "With a browser elsewhere"),
    ] },
    HelpPage { command: "mcp logout", statuses: &[DONE, (66, "there is no such login"), FILE_BUSY], variables: &[], files: &["auth/mcp"], examples: &[("nanobot mcp logout linear", "Forget the login")] },
    HelpPage { command: "mcp list", statuses: COMMON_STATUSES, variables: &[], files: &["config.json", "mcp/"], examples: &[("nanobot mcp list --json | jq -r 'select(.error).name'", "Servers with an error")] },
    HelpPage { command: "mcp show", statuses: SERVER_STATUSES, variables: &[], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp show time", "Tools, resources and prompts"),
        ("nanobot mcp show time convert_time", "A tool with the schema of its arguments"),
    ] },
    HelpPage { command: "mcp check", statuses: &[(0, "all answer, with unchanged tools"), NO_SERVER, SERVER_UNAVAILABLE, TOOL_CHANGED, CONFIG], variables: &["HTTPS_PROXY"], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp check", "Check all servers"),
        ("nanobot mcp check time || nanobot mcp show time", "In a script"),
    ] },
    HelpPage { command: "mcp add", statuses: &[DONE, SERVER_UNAVAILABLE, FILE_BUSY, CONFIG], variables: &["HTTPS_PROXY"], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes", "It may read and write the paths in its command: ~/notes"),
        ("nanobot mcp add hub https://example.org/mcp -H 'Authorization: Bearer ${HUB_TOKEN}'", "A remote server; the token stays in the environment"),
        ("nanobot mcp add time --allow -- uvx mcp-server-time", "Approve all of its tools"),
    ] },
    HelpPage { command: "mcp remove", statuses: &[DONE, NO_SERVER, FILE_BUSY, CONFIG], variables: &[], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp remove time", "From the config, with its cached data"),
    ] },
    HelpPage { command: "mcp accept", statuses: &[(0, "everything was accepted"), NO_SERVER, SERVER_UNAVAILABLE, FILE_BUSY, (77, "something was not accepted"), CONFIG], variables: &["HTTPS_PROXY"], files: &["config.json", "mcp/"], examples: &[
        ("nanobot mcp accept time", "Review the changes, and accept or reject them"),
        ("nanobot mcp accept time convert_time --yes", "One tool, without asking"),
    ] },
    HelpPage { command: "skill", statuses: GROUP_STATUSES, variables: &[], files: SKILL_FILES, examples: &[
        ("nanobot skill list", "All skills"),
        ("nanobot skill add ~/Downloads/pdf", "Install a skill, after a review"),
    ] },
    HelpPage { command: "skill list", statuses: COMMON_STATUSES, variables: &[], files: SKILL_FILES, examples: &[
        ("nanobot skill list", "All skills, with missing requirements"),
        ("nanobot skill list --json | jq -r 'select(.missing != []) | .name'", "Skills with missing requirements"),
    ] },
    HelpPage { command: "skill show", statuses: &[DONE, (65, "the file is not text"), NO_SKILL, CONFIG], variables: &[], files: SKILL_FILES, examples: &[
        ("nanobot skill show memory", "The text that the model would read, and the other files"),
        ("nanobot skill show skill-creator --file scripts/check.sh | sh -s -- tea/SKILL.md", "Run one of its scripts"),
    ] },
    HelpPage { command: "skill check", statuses: &[(0, "no problems"), (1, "there are problems"), (65, "not a skill"), NO_SKILL, CONFIG], variables: &[], files: SKILL_FILES, examples: &[
        ("nanobot skill check", "Check all skills"),
        ("nanobot skill check ./tea", "Check a skill that is not installed"),
    ] },
    HelpPage { command: "skill new", statuses: &[DONE, (1, "a skill of that name exists"), CONFIG], variables: &[], files: SKILL_FILES, examples: &[
        ("nanobot skill new tea -d 'How tea is made here; for any question about tea'", "Prints the path of the new SKILL.md"),
        ("$EDITOR \"$(nanobot skill new tea)\"", "Create it and open it in an editor"),
    ] },
    HelpPage { command: "skill add", statuses: &[DONE, (1, "a skill of that name exists, or the answer was no"), (65, "not a valid skill, or another archive than the digest says"), (66, "no such file or directory"), (69, "it cannot be fetched"), CONFIG], variables: &[], files: SKILL_FILES, examples: &[
        ("nanobot skill add --dry-run ~/Downloads/pdf", "Print the review only"),
        ("nanobot skill add --yes ~/Downloads/pdf", "In a script"),
        ("nanobot skill add 'https://example.org/skills.tar.gz#pdf'", "One of the skills in an archive"),
        ("nanobot skill add https://example.org/pdf.git@COMMIT", "A commit of a repository"),
        ("nanobot skill add skill-creator", "Copy a built-in skill, to change it"),
    ] },
    HelpPage { command: "skill update", statuses: &[DONE, (1, "the answer was no"), (65, "not a valid skill, another skill, or another archive than the digest says"), NO_SKILL, (69, "it cannot be fetched"), CONFIG], variables: &[], files: SKILL_FILES, examples: &[
        ("nanobot skill update pdf ~/Downloads/pdf", "Show the changes, and ask"),
        ("nanobot skill update --dry-run pdf https://example.org/pdf.zip", "Show the changes only"),
    ] },
    HelpPage { command: "skill remove", statuses: &[DONE, (1, "the answer was no"), NO_SKILL, CONFIG], variables: &[], files: SKILL_FILES, examples: &[
        ("nanobot skill remove tea", "Delete it permanently"),
    ] },
    HelpPage { command: "trust", statuses: &[DONE, (66, "no such directory"), FILE_BUSY], variables: &[], files: &["trust.json"], examples: &[
        ("nanobot trust", "The current directory"),
        ("nanobot trust --list", "List trusted directories"),
        ("nanobot trust --revoke ~/src/other", "Stop trusting a directory"),
    ] },
    HelpPage { command: "usage", statuses: COMMON_STATUSES, variables: &[], files: &["usage.jsonl"], examples: &[
        ("nanobot usage --since month", "Cost of this month, by day"),
        ("nanobot usage --by job --since 7d", "Cost of each job"),
    ] },
    HelpPage { command: "uninstall", statuses: &[DONE, (1, "the answer was no"), (75, "a file is in use"), (77, "in a run's sandbox")], variables: &[], files: &["/"], examples: &[
        ("nanobot uninstall --dry-run", "List what is where, with sizes"),
    ] },
    HelpPage { command: "completions", statuses: &[DONE], variables: &[], files: &[], examples: &[
        ("nanobot completions bash > ~/.local/share/bash-completion/completions/nanobot", "For bash, if the directory exists"),
        ("nanobot completions zsh > ~/.zfunc/_nanobot", "For zsh, if ~/.zfunc exists and is in fpath"),
        ("nanobot completions fish > ~/.config/fish/completions/nanobot.fish", "For fish"),
    ] },
];
