//! The grammar that all commands share: what a verb means, and what each command does with its output. The man page
//! prints it, and a test checks the command tree against it.

#[rustfmt::skip]
/// The verbs of commands, with their meanings, in the order of the man page.
pub const VERBS: &[(&[&str], &str)] = &[
    (&["list", "show", "search"], "print many things, one thing, or what matches; change nothing"),
    (&["get", "path", "schema", "context", "explain", "diff", "log", "logs", "inbox", "metrics"], "print what the name says; change nothing"),
    (&["check"], "look for problems; the exit status says whether there are any"),
    (&["add", "new", "fork", "import", "apply"], "create something; what exists is kept, unless a flag says otherwise"),
    (&["set", "unset", "use", "edit", "update", "rename", "title", "enable", "disable", "accept", "approve", "bind"], "change something that exists"),
    (&["remove", "prune"], "remove something"),
    (&["restore", "undo", "repair"], "bring back what was"),
    (&["run", "rerun", "sync", "compact", "consolidate", "poll", "send", "retry"], "do the work now"),
    (&["export"], "write a document"),
    (&["login", "logout"], "begin and end the use of an account"),
];

/// The second name of a verb, wherever it occurs.
pub const ALIASES: &[(&str, &str)] = &[("list", "ls"), ("remove", "rm")];

/// The words that begin a command line, and those that they stand for.
pub type CommandWords = (&'static str, &'static str);

/// Short names of commands.
pub const SHORTCUTS: &[CommandWords] = &[
    ("doctor", "status check"),
    ("chat", "repl"),
    ("login", "model provider login"),
    ("ls", "session list"),
];

/// Names that commands had before. They are neither listed nor offered, but scripts, crontabs and the configs of other programs
/// have them. A flag among them may stand anywhere behind the words.
pub const OLD_NAMES: &[CommandWords] = &[
    ("status --check", "status check"),
    ("policy test", "policy check"),
    ("mcp test", "mcp check"),
    ("mcp call", "tool run"),
    ("channel test", "channel check"),
    ("channels test", "channel check"),
    ("pipe", "serve pipe"),
    ("acp", "serve acp"),
    ("mcp serve", "serve mcp"),
    ("channel listen", "serve webhook"),
    ("channels listen", "serve webhook"),
    ("provider", "model provider"),
    ("heartbeat", "cron heartbeat"),
    ("metrics", "status metrics"),
    ("skill install", "skill add"),
];

/// The rules, as paragraphs.
pub const RULES: &str = "A command is a noun and a verb: `nanobot session list`. A noun is in the singular, and a verb \
means the same with each noun; `serve` alone stands before what it serves. `ls` stands for `list` and `rm` for `remove`; `help` after a noun lists its verbs.\n\n\
A command that prints data has `--json`: one object for one thing, and one object per line for many. Fields may be added; a \
field never changes its meaning, and none is removed. nanobot-json(5) describes them.\n\n\
Results go to standard output; everything else goes to standard error. A command that creates or \
removes something says so in one line, which `-q` suppresses; `config set` and `config unset` are silent.\n\n\
Only commands with `--yes` ask for confirmation; without a terminal they need it. With `--dry-run` a command prints what it \
would do.\n\n\
The exit status is 0 if the command did what was asked, 1 if it found nothing or found problems, 2 if the command line is \
wrong, 66 if what it names does not exist, 75 if it is in use, and as for a turn otherwise.";
