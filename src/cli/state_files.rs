//! The behaviour of nanobot when one of its own files is damaged, for the man page about files. A story tries each cell.

/// A file, and the behaviour of nanobot for each kind of damage.
#[derive(Clone, Copy, Debug)]
pub struct StateFile {
    /// The path, with a placeholder for the variable part.
    pub path: &'static str,
    /// The file is empty.
    pub empty: &'static str,
    /// The file is truncated.
    pub torn: &'static str,
    /// The file cannot be opened as a file, or may not be read.
    pub unreadable: &'static str,
    /// A newer release wrote the file.
    pub newer: &'static str,
    /// Two processes change the file at once.
    pub concurrent: &'static str,
}

/// The state files, as documented.
pub const STATE_FILES: &[StateFile] = &[
    StateFile {
        path: "~/.nanobot/config.json",
        empty: "Status 78: what limits a run must not be lost silently. `{}` is an empty config.",
        torn: "Status 78, with line and column. The file is never overwritten.",
        unreadable: "Status 78.",
        newer: "Keys that this release does not know are reported, as misspelt or of a newer nanobot, and kept; under `budget` and `tools` an unknown key that may limit a run is status 78.",
        concurrent: "Locked, read, changed and replaced: no change is lost.",
    },
    StateFile {
        path: "~/.nanobot/nanobot.json",
        empty: "As `config.json`.",
        torn: "As `config.json`.",
        unreadable: "Status 78.",
        newer: "As `config.json`.",
        concurrent: "Changed under the lock of `config.json`, and before it: a key that moves stands in both after a crash.",
    },
    StateFile {
        path: "~/.nanobot/trust.json",
        empty: "Kept as `trust.json.damaged` and reported; no directory is trusted.",
        torn: "As an empty one.",
        unreadable: "Status 74 where a directory's files are to be read.",
        newer: "Read as far as it is understood.",
        concurrent: "Locked, read, changed and replaced: no change is lost.",
    },
    StateFile {
        path: "~/.nanobot/git-objects",
        empty: "Nothing was written.",
        torn: "Lines that cannot be read are skipped. What was written by a command whose record has no end is known by its time.",
        unreadable: "After content from outside, commands that may write are refused.",
        newer: "Lines that this release does not know are skipped.",
        concurrent: "Each record is appended in one write. What is written while another run has an open record counts as that run's too.",
    },
    StateFile {
        path: "~/.nanobot/written-skills",
        empty: "All skills of the workspace are the user's.",
        torn: "A digest that is incomplete is none.",
        unreadable: "Status 74 if a skill of the workspace has addresses; no skill is written.",
        newer: "Lines that this release does not know are skipped.",
        concurrent: "Each digest is appended in one write.",
    },
    StateFile {
        path: "~/.nanobot/workspace/cron/jobs.json",
        empty: "Status 78; a copy is kept as `jobs.json.corrupt-TIME`, and the file and the crontab stay as they are.",
        torn: "As an empty one.",
        unreadable: "Status 74.",
        newer: "Status 78; nothing is changed.",
        concurrent: "Locked, read, changed and replaced, like the crontab: no change is lost.",
    },
    StateFile {
        path: "~/.nanobot/cron/ID/job.json",
        empty: "That job is listed as one that never runs, with the reason, and its start is status 78; the others run.",
        torn: "As an empty one.",
        unreadable: "As an empty one.",
        newer: "As an empty one.",
        concurrent: "Changed under the lock of `jobs.json`.",
    },
    StateFile {
        path: "~/.nanobot/cron/ID/state.json",
        empty: "That job does not start (status 78), since a slot could run twice; the others run. `cron list` names the file.",
        torn: "As an empty one.",
        unreadable: "That job does not start (status 74); the others run.",
        newer: "That job does not start (status 78); the others run.",
        concurrent: "Changed under the job's own lock, which a run holds.",
    },
    StateFile {
        path: "~/.nanobot/cron/ID/runs.jsonl",
        empty: "The job has no past runs.",
        torn: "Lines that cannot be read are skipped; the next record begins on a line of its own.",
        unreadable: "`cron list` names the file and lists the jobs; `cron logs` is status 74.",
        newer: "Lines are read as far as they are understood.",
        concurrent: "Each record is appended under a lock.",
    },
    StateFile {
        path: "~/.nanobot/usage.jsonl",
        empty: "Nothing was spent.",
        torn: "The rest counts; `usage` reports the number of lines that it skipped. The next line begins on a line of its own.",
        unreadable: "`usage` is status 74; with a budget, no request is sent.",
        newer: "Lines of another version are skipped and reported.",
        concurrent: "Each line is appended under a lock, with the sums of its day and month. `usage --rotate` replaces the file under that lock, and a process that waits for it goes on with the new file.",
    },
    StateFile {
        path: "~/.nanobot/pipes/NAME/inbox.jsonl",
        empty: "Nothing waits, and no id was answered.",
        torn: "Lines that cannot be read are skipped: their messages come again, since they have no acknowledgement.",
        unreadable: "Status 74; nothing is answered.",
        newer: "Lines are read as far as they are understood.",
        concurrent: "A pipe holds the lock of its name; another one ends with status 75.",
    },
    StateFile {
        path: "~/.nanobot/workspace/sessions/KEY.jsonl",
        empty: "A new session.",
        torn: "The incomplete last line is moved to `KEY.jsonl.torn-TIME` and reported; the turn goes on.",
        unreadable: "Status 74.",
        newer: "Status 78: read-only for this release.",
        concurrent: "A turn holds the session's lock; another one waits for it, and then ends with status 75.",
    },
    StateFile {
        path: "~/.nanobot/workspace/memory/MEMORY.md",
        empty: "An empty memory.",
        torn: "Read as it is: it is text. `memory undo` restores an earlier version.",
        unreadable: "Status 74.",
        newer: "Read as it is: it has no version.",
        concurrent: "Changed under a lock; a change by another program is kept as a version of its own.",
    },
];
