//! The locations of our files: no other module joins names to the home directory. Also the search for a program, and the
//! names of directories without files of the project itself.

use crate::env::{Env, HOME_DIR};
use crate::home::{NoHomeError, expand_home};
use crate::test_hooks::SYSTEM_CONFIG_DIR;
use nanobot_base::error::{Exit, WithHint as _, fail};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A file or directory of this program, as documented in the README.
pub struct DocumentedPath {
    /// The path, with placeholders.
    pub path: &'static str,
    /// The purpose of the file.
    pub meaning: &'static str,
    /// The treatment of a text in it by `nanobot forget`.
    pub erasure: Erasure,
}

/// The treatment of a file, or of the files of a directory, in which `nanobot forget` finds a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Erasure {
    /// The text is overwritten.
    Overwrite,
    /// The file is removed.
    RemoveFile,
    /// The documented directory is removed, with all its files.
    RemoveDirectory,
    /// The file stays as it is, for this reason.
    Keep(&'static str),
}

/// Reasons to keep files.
const CONFIG: &str = "the config: `nanobot config edit`";
const OWN_TEXT: &str = "a text of your own, which is yours to change";
const NO_TEXT: &str = "it has no text of conversations";
const LOGIN: &str = "a login";
const JOB: &str = "a job: `nanobot cron edit`";

/// A file that stays as it is, for `reason`.
const fn retained(
    path: &'static str,
    reason: &'static str,
    meaning: &'static str,
) -> DocumentedPath {
    DocumentedPath { path, meaning, erasure: Erasure::Keep(reason) }
}

const fn erased(path: &'static str, erasure: Erasure, meaning: &'static str) -> DocumentedPath {
    DocumentedPath { path, meaning, erasure }
}

// One row per line keeps the table readable.
#[rustfmt::skip]
/// All files. A word in capitals stands for a name: `KEY` for a session's key, `ID` for that of a job, `PROVIDER` for the argument of
/// `model provider login`, and `NAME` for what the meaning of the path says.
pub const DOCUMENTED_PATHS: &[DocumentedPath] = &[
    retained("~/.nanobot/config.json", CONFIG, "the config file (`-c FILE`, or the variable `NANOBOT_CONFIG`, for another; `NANOBOT_HOME` moves the whole directory)"),
    retained("~/.nanobot/nanobot.json", CONFIG, "the keys of the config that the Python program would refuse or drop, layered over `config.json` (with `-c x.json`: `x.nanobot.json`)"),
    retained("/etc/nanobot/config.json", "the config of the system", "system-wide defaults below the config of each user; root can lock keys in it, and deny"),
    retained("~/.nanobot/profiles/NAME.md", OWN_TEXT, "a custom profile: permissions of a run, with an optional prompt and model"),
    retained("~/.nanobot/commands/NAME.md", OWN_TEXT, "the message that `/NAME` sends in `nanobot repl`; `$ARGUMENTS` in it stands for the text after the command, `$1` to `$9` for its words"),
    retained("~/.nanobot/prompts/NAME.md", OWN_TEXT, "the prompt that `nanobot run NAME` runs; `nanobot run --save NAME` writes one"),
    retained("~/.nanobot/prompts/.announced", NO_TEXT, "the notice about what a prompt file is sent with was shown"),
    retained("~/.nanobot/skills/NAME/", OWN_TEXT, "a skill of yours for every workspace; no run may change it"),
    retained("~/.nanobot/hooks/NAME", OWN_TEXT, "programs of hooks; no run may change them (`hooks` of the config names the commands)"),
    retained("~/.nanobot/hooks/.announced", NO_TEXT, "marks that the notice about where hooks run was shown"),
    retained("~/.nanobot/tools/NAME", OWN_TEXT, "a program that is a tool, once `tools.programs` of the config names it; no run may change it"),
    erased("~/.nanobot/tools/.specs.json", Erasure::RemoveFile, "cached descriptions of these programs; can be removed at any time"),
    retained("~/.nanobot/trust.json", "paths of directories that you trust: `nanobot trust --list`", "trusted directories, whose AGENTS.md, skills and tools are used, with digests of these files and of the skills in `skills.directories`; and the git directories elsewhere that they use"),
    retained("~/.nanobot/git-objects", NO_TEXT, "names of the git objects that commands wrote while their conversation had untrusted content, so that no later run takes instruction files from them"),
    retained("~/.nanobot/write-locks/", NO_TEXT, "locks by which commands that may change the same directory take turns; can be removed when nothing runs"),
    retained("~/.nanobot/written-skills", NO_TEXT, "digests of the skills that a run wrote after untrusted content or that were fetched; their hosts are not yours until you name or change them"),
    retained("~/.nanobot/auth/PROVIDER.json", LOGIN, "login tokens, renewed automatically"),
    retained("~/.nanobot/auth/PROVIDER.json.lock", NO_TEXT, "lock file, locked while the login is renewed"),
    retained("~/.nanobot/auth/mcp-SERVER.json", LOGIN, "tokens of the login to an MCP server, renewed automatically"),
    retained("~/.nanobot/auth/mcp-SERVER.json.lock", NO_TEXT, "lock file, locked while that login is renewed"),
    erased("~/.nanobot/history/repl_history", Erasure::Overwrite, "input history of `nanobot repl`, up to 10,000 entries; the Python program's `cli_history` in the same directory is imported once"),
    retained("~/.nanobot/workspace/", "a file in the workspace, which is yours to change", "the workspace, with the instruction files sent with each request: `AGENTS.md`, `SOUL.md`, `USER.md`, `TOOLS.md`, `IDENTITY.md`"),
    erased("~/.nanobot/workspace/memory/MEMORY.md", Erasure::Overwrite, "long-term memory, sent with each request"),
    erased("~/.nanobot/workspace/memory/HISTORY.md", Erasure::Overwrite, "chronological log, for `grep`"),
    erased("~/.nanobot/workspace/memory/.versions/", Erasure::Overwrite, "the last 200 versions of `MEMORY.md`, and a log of the changes"),
    erased("~/.nanobot/workspace/memory/.embeddings.json", Erasure::RemoveFile, "the lines of the memory with their embeddings, for `memory search --meaning`; can be removed at any time"),
    retained("~/.nanobot/workspace/memory/.lock", NO_TEXT, "lock file, locked while the memory is changed; names the process"),
    retained("~/.nanobot/workspace/skills/NAME/", OWN_TEXT, "a skill: `SKILL.md`, which the agent reads when it needs it, and its other files"),
    erased("~/.nanobot/workspace/sessions/KEY.jsonl", Erasure::Overwrite, "a session, append-only"),
    retained("~/.nanobot/workspace/sessions/KEY.jsonl.lock", NO_TEXT, "lock file, locked while a turn runs; names the process"),
    erased("~/.nanobot/workspace/sessions/.embeddings.json", Erasure::RemoveFile, "the messages with their embeddings, for `session search --meaning`; can be removed at any time, and is removed with a session"),
    erased("~/.nanobot/workspace/sessions/KEY.jsonl.torn-TIME", Erasure::Overwrite, "an incomplete last line, moved here by a repair"),
    erased("~/.nanobot/workspace/sessions/.trash/TIME-KEY.jsonl.gone", Erasure::Overwrite, "a removed session; `nanobot session prune` deletes those older than `retention.trash`, 30 days"),
    retained("~/.nanobot/workspace/cron/jobs.json", JOB, "the jobs, in the Python program's format; `~/.nanobot/cron/jobs.json` of older releases is read too"),
    retained("~/.nanobot/workspace/cron/jobs.json.lock", NO_TEXT, "lock file, locked while the jobs are changed"),
    retained("~/.nanobot/cron/ID/job.json", JOB, "the permissions and options of the job `ID`"),
    erased("~/.nanobot/cron/ID/", Erasure::Overwrite, "further data of the job `ID`: its run state, the records of its runs, and the last 50 outputs"),
    erased("~/.nanobot/cron/unseen.jsonl", Erasure::Overwrite, "runs of jobs whose answers cron had no program to mail with, until `status` or a run at a terminal names them; at most 20"),
    retained("~/.nanobot/cron/crontab.lock", NO_TEXT, "lock file, locked while the crontab is changed"),
    retained("~/.nanobot/cron/running.lock", NO_TEXT, "lock file with `cron.maxRunning`: each job that runs or waits locks a byte"),
    erased("~/.nanobot/notify.json", Erasure::Overwrite, "failures of which `notify.target` was told, until they end, and notices that wait to be sent"),
    retained("~/.nanobot/notify.json.lock", NO_TEXT, "lock file, locked while `notify.json` is changed"),
    retained("~/.nanobot/notify.lock", NO_TEXT, "lock file, locked while notices are sent"),
    erased("~/.nanobot/usage.jsonl", Erasure::Overwrite, "the ledger: usage and cost of each model request, append-only"),
    retained("~/.nanobot/usage.under-way/", NO_TEXT, "requests in progress, which count against a budget, each locked by its process"),
    erased("~/.nanobot/tools.jsonl", Erasure::Overwrite, "tools, servers and skills offered to and used by each turn"),
    retained("~/.nanobot/pairing.json", "a sender who may write: `nanobot forget --sender CHANNEL:ID`", "senders that were allowed by a pairing code, and open codes"),
    erased("~/.nanobot/channels/NAME/inbox.jsonl", Erasure::Overwrite, "messages of a chat channel with their answers, append-only until all are settled"),
    erased("~/.nanobot/channels/NAME/approvals.json", Erasure::RemoveFile, "calls that wait for an approval in a chat, their results, and what was approved for good"),
    retained("~/.nanobot/channels/NAME/", "data that the channel needs", "further data of the channel `NAME`: the position in its messages, our account, lock files"),
    erased("~/.nanobot/pipes/NAME/approvals.json", Erasure::RemoveFile, "calls that wait for an approval by `nanobot serve pipe --approvals`, and their results"),
    erased("~/.nanobot/pipes/NAME/", Erasure::Overwrite, "the journal and the lock file of `nanobot serve pipe --name NAME`: what waits, and the answers of `retention.inbox`, a week, at most 10,000"),
    erased("~/.nanobot/media/NAME/", Erasure::RemoveFile, "attachments of chat messages, and in `clipboard` images that were pasted in the REPL; removed after `retention.media`, 30 days"),
    erased("~/.nanobot/mcp/cache/", Erasure::RemoveFile, "cached catalogs of MCP servers; can be removed at any time"),
    retained("~/.nanobot/mcp/pins.json", "tools of a server, as you accepted them", "fingerprints of each server's tools when first seen or accepted; changes are reported"),
    retained("~/.nanobot/mcp/pins.json.lock", NO_TEXT, "lock file, locked while `pins.json` is changed"),
    retained("~/.nanobot/mcp/state/SERVER/", "data of an MCP server", "the directory of a local MCP server, for its caches and data"),
    erased("~/.nanobot/mcp/logs/SERVER.log", Erasure::Overwrite, "standard error of an MCP server, at most 128 KiB; older output in `.log.old`"),
    erased("~/.nanobot/undo/N/", Erasure::RemoveDirectory, "changes that a turn made, for `nanobot undo`: the last 100 turns of `retention.undo`, 7 days, at most 1 GiB"),
    retained("~/.nanobot/retention.json", NO_TEXT, "for each workspace the time at which old data was last looked for, once a day if the config has a key of `retention`"),
    retained("~/.nanobot/worktrees/REPOSITORY/BRANCH/", "a worktree of your repository", "a worktree that `--worktree` made"),
    erased("~/.nanobot/defects/TIME.txt", Erasure::Overwrite, "panic report to attach to a bug report, without API keys and conversation text; the last ten"),
    retained("~/.nanobot/limits/", "facts about model servers", "facts about model servers: limits of requests and the requests of the last minute, context windows, addresses, and the models that they list"),
];

/// The base locations for this run.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The user's home directory; the root for a user without one.
    pub home: PathBuf,
    /// `~/.nanobot`, or the value of `NANOBOT_HOME`.
    pub root: PathBuf,
    /// The config file: `config.json` in the root, or the argument of `-c`.
    pub config: PathBuf,
    /// The system-wide config file, which most machines do not have.
    pub system_config: PathBuf,
}

impl Paths {
    /// Determines the locations. `config` is the argument of `-c`.
    ///
    /// # Errors
    /// Status 78 if the user has no home directory and `NANOBOT_HOME` is not set.
    pub fn resolve(env: &Env, config: Option<&Path>) -> anyhow::Result<Self> {
        let home = env.home();
        let root = match env.get(HOME_DIR) {
            Some(root) => expand_home(Path::new(root), home.clone()),
            None => home.as_ref().map(|home| home.join(".nanobot")).ok_or(NoHomeError),
        };
        let root = root.map_err(|error| {
            fail(Exit::Config, error.to_string())
                .with_hint(format!("set {HOME_DIR} to an absolute path"))
        })?;
        let root = std::path::absolute(&root).unwrap_or(root);
        Ok(Self {
            home: home.unwrap_or_else(|| root.clone()),
            config: config.map_or_else(|| root.join("config.json"), Path::to_path_buf),
            system_config: Path::new(SYSTEM_CONFIG_DIR.get(env).unwrap_or("/etc/nanobot"))
                .join("config.json"),
            root,
        })
    }

    /// Returns the same locations with another config file.
    #[must_use]
    pub fn with_config(&self, config: &Path) -> Self {
        Self { config: config.to_owned(), ..self.clone() }
    }

    /// Returns the directory of panic reports.
    pub fn panic_reports(&self) -> PathBuf {
        self.root.join("defects")
    }

    /// Returns the default config file.
    pub fn default_config(&self) -> PathBuf {
        self.root.join("config.json")
    }

    /// Expands a leading `~`. A path below `~/.nanobot` follows `NANOBOT_HOME`.
    pub fn expand(&self, path: &str) -> PathBuf {
        if let Some(rest) = path.strip_prefix("~/.nanobot")
            && (rest.is_empty() || rest.starts_with('/'))
        {
            return self.root.join(rest.trim_start_matches('/'));
        }
        let path = Path::new(path);
        expand_home(path, Some(self.home.clone())).unwrap_or_else(|_| path.to_owned())
    }

    /// Returns `path` for display, with the home directory as `~`.
    pub fn display(&self, path: &Path) -> String {
        match path.strip_prefix(&self.home) {
            Ok(rest) if rest.as_os_str().is_empty() => "~".into(),
            Ok(rest) => format!("~/{}", rest.display()),
            Err(_) => path.display().to_string(),
        }
    }

    /// Returns the directory of logins, with one file for each provider.
    pub fn auth(&self) -> PathBuf {
        self.root.join("auth")
    }

    /// Returns the file that lists the trusted directories, whose instructions the agent reads.
    pub fn trust(&self) -> PathBuf {
        self.root.join("trust.json")
    }

    /// Returns the directory of the user's slash commands, one `NAME.md` each.
    pub fn commands(&self) -> PathBuf {
        self.root.join("commands")
    }

    /// Returns the directory of the user's prompts, one `NAME.md` each.
    pub fn prompts(&self) -> PathBuf {
        self.root.join("prompts")
    }

    /// Returns the file that records that the notice about what a prompt file is sent with was shown.
    pub fn bare_runs_announced(&self) -> PathBuf {
        self.root.join("prompts/.announced")
    }

    /// Returns the directory of the user's profiles, one `NAME.md` each.
    pub fn profiles(&self) -> PathBuf {
        self.root.join("profiles")
    }

    /// Returns the file with the names of the git objects that commands wrote after untrusted content.
    pub fn git_objects(&self) -> PathBuf {
        self.root.join("git-objects")
    }

    /// Returns the record of the skills that runs wrote after untrusted content.
    pub fn written_skills(&self) -> PathBuf {
        self.root.join("written-skills")
    }

    /// Returns the directory of the locks of directories that commands may change.
    pub fn write_locks(&self) -> PathBuf {
        self.root.join("write-locks")
    }

    /// Returns the directory of the programs of the user's hooks.
    pub fn hooks(&self) -> PathBuf {
        self.root.join("hooks")
    }

    /// Returns the file that records that the notice about where hooks run was shown.
    pub fn hooks_announced(&self) -> PathBuf {
        self.root.join("hooks/.announced")
    }

    /// Returns the directory of the user's programs that are tools.
    pub fn tools(&self) -> PathBuf {
        self.root.join("tools")
    }

    /// Returns the file with the descriptions of the user's programs that are tools.
    pub fn tool_specs(&self) -> PathBuf {
        self.root.join("tools/.specs.json")
    }

    /// Returns the directory of the user's own skills, beside those of the workspace.
    pub fn skills(&self) -> PathBuf {
        self.root.join("skills")
    }

    /// Returns the directory of undo data, with one folder for each turn.
    pub fn undo(&self) -> PathBuf {
        self.root.join("undo")
    }

    /// Returns the file with the times at which old data was last looked for.
    pub fn last_retention(&self) -> PathBuf {
        self.root.join("retention.json")
    }

    /// Returns the directory of this program's own data about jobs, with one folder for each job.
    pub fn cron(&self) -> PathBuf {
        self.root.join("cron")
    }

    /// Returns the file in which jobs that run, or wait for others, have their places.
    pub fn running_jobs(&self) -> PathBuf {
        self.cron().join("running.lock")
    }

    /// Returns the file of the notices for `notify.target` of the config.
    pub fn notices(&self) -> PathBuf {
        self.root.join("notify.json")
    }

    /// Returns the lock file of the process that sends notices.
    pub fn notices_lock(&self) -> PathBuf {
        self.root.join("notify.lock")
    }

    /// Returns the directory of chat channels, with one folder for each.
    pub fn channels(&self) -> PathBuf {
        self.root.join("channels")
    }

    /// Returns the directory of the journals of `nanobot serve pipe`, with one folder for each name.
    pub fn pipes(&self) -> PathBuf {
        self.root.join("pipes")
    }

    /// Returns the directory of attachments of chat messages, with one folder for each channel.
    pub fn media(&self) -> PathBuf {
        self.root.join("media")
    }

    /// Returns the file that lists the paired senders, in the Python program's format.
    pub fn pairing(&self) -> PathBuf {
        self.root.join("pairing.json")
    }

    /// Returns the directory of this program's data about MCP servers.
    pub fn mcp(&self) -> PathBuf {
        self.root.join("mcp")
    }

    /// Returns the REPL's history file. The Python program's file is in the same directory.
    pub fn history(&self) -> PathBuf {
        self.root.join("history/repl_history")
    }

    /// Returns the directory of the worktrees of `--worktree`.
    pub fn worktrees(&self) -> PathBuf {
        self.root.join("worktrees")
    }

    /// Returns the directory of sessions up to release 0.1.3.post7, and of the store of 0.3.
    pub fn old_sessions(&self) -> PathBuf {
        self.root.join("sessions")
    }
}

/// Finds the program `name` in the directories of `path`, a `PATH`. Relative entries are ignored.
pub fn find_program(name: &str, path: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        std::fs::metadata(path)
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    path.split(':')
        .filter(|entry| entry.starts_with('/'))
        .map(|entry| Path::new(entry).join(name))
        .find(is_program)
}

/// Directories without files of the project itself: git, dependencies and builds create and remove their content.
const GENERATED_DIRS: [&str; 6] = [".git", "node_modules", "target", ".venv", "venv", "vendor"];

/// True if the name of the directory `path` says that it has no files of the project itself.
pub fn is_generated_dir(path: &Path) -> bool {
    GENERATED_DIRS.iter().any(|name| path.ends_with(name))
}

#[cfg(test)]
mod tests {
    use super::Paths;
    use crate::env::Env;
    use std::path::{Path, PathBuf};

    #[test]
    fn variables_may_begin_with_the_home() {
        let variables = [("HOME", "/h"), ("NANOBOT_HOME", "~/nb"), ("SSL_CERT_FILE", "~/ca")];
        let env: Env = variables.into_iter().collect();
        let paths = Paths::resolve(&env, None).unwrap();
        assert_eq!(paths.root, Path::new("/h/nb"));
        assert_eq!(paths.expand("~/.nanobot/x"), Path::new("/h/nb/x"));
        assert_eq!(paths.expand("~/.nanobotx"), Path::new("/h/.nanobotx"));
        assert_eq!(env.path("SSL_CERT_FILE"), Some(PathBuf::from("/h/ca")));
    }
}
