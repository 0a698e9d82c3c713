//! Tool usage statistics: one line per turn in the append-only file `tools.jsonl`. A line lists the tools called, the
//! skills read, and the tokens per request that describe them to the model, to reveal what costs tokens but is never
//! used. Nothing depends on this file: a lost line only makes a number too small.

use super::Account;
use crate::sys::clock::Clock;
use crate::sys::{signal, store};
use anyhow::{Context, Result};
use jiff::{Timestamp, civil::Date};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Longest line that is parsed, in bytes; enough for a thousand tools.
const LONGEST: usize = 256 << 10;

/// Tools and skills used in a turn, and the cost of their descriptions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Used {
    /// Number of requests that carried the descriptions.
    pub requests: u32,
    /// Calls per tool name.
    #[serde(default)]
    pub tools: BTreeMap<String, Calls>,
    /// Names of the skills that were read.
    #[serde(default)]
    pub skills: BTreeSet<String>,
    /// Estimated tokens per request for tool definitions, by MCP server; the empty name stands for built-in tools.
    #[serde(default, rename = "told")]
    pub told: BTreeMap<String, u64>,
    /// Estimated tokens per request for the list of skills.
    #[serde(default, rename = "told_of_skills")]
    pub told_of_skills: u64,
}

/// Call counts of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    pub count: u32,
    /// Unsuccessful calls, including denied ones.
    #[serde(default)]
    pub failed: u32,
    #[serde(default)]
    pub denied: u32,
}

/// A parsed line of the file.
#[derive(Debug)]
pub struct Line {
    pub time: Timestamp,
    /// Local date.
    pub day: Date,
    pub session: String,
    pub turn: String,
    pub used: Used,
}

/// A line in the format of the file.
#[derive(Serialize, Deserialize)]
struct Written {
    v: u64,
    time: String,
    day: String,
    session: String,
    turn: String,
    #[serde(default)]
    job: Option<String>,
    #[serde(flatten)]
    used: Used,
}

impl Written {
    fn read(self) -> Option<Line> {
        Some(Line {
            time: self.time.parse().ok()?,
            day: self.day.parse().ok()?,
            session: self.session,
            turn: self.turn,
            used: self.used,
        })
    }
}

/// The file `tools.jsonl`.
#[derive(Clone, Debug)]
pub struct Tools {
    path: PathBuf,
    clock: Clock,
}

impl Tools {
    /// Opens the file in the user's data directory `root`.
    pub fn new(root: &Path, clock: &Clock) -> Self {
        Self {
            path: root.join("tools.jsonl"),
            clock: clock.clone(),
        }
    }

    /// Appends a line for a turn.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn record(&self, account: &Account, used: Used) -> Result<()> {
        let now = self.clock.now();
        let line = Written {
            v: 1,
            time: now.timestamp().to_string(),
            day: now.date().to_string(),
            session: account.session.clone(),
            turn: account.turn.clone(),
            job: account.job.clone(),
            used,
        };
        let mut text = serde_json::to_string(&line).context("serialize the tool usage")?;
        text.push('\n');
        if let Some(folder) = self.path.parent() {
            store::create_dir(folder)?;
        }
        store::append(&self.path, text.as_bytes())
    }

    /// Passes every line to `each`, oldest first; invalid lines are skipped. Returns false if nothing was ever
    /// recorded.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if the run is being stopped.
    pub fn lines(&self, each: &mut dyn FnMut(Line)) -> Result<bool> {
        let reading = || format!("read `{}`", self.path.display());
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Ok(false);
            }
            Err(error) => return Err(error).with_context(reading),
        };
        let mut log = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            signal::check()?;
            line.clear();
            let count = (&mut log).take(LONGEST as u64).read_until(b'\n', &mut line);
            if count.with_context(reading)? == 0 {
                return Ok(true);
            }
            if line.len() == LONGEST && !line.ends_with(b"\n") {
                log.skip_until(b'\n').with_context(reading)?;
                continue;
            }
            let written = serde_json::from_slice::<Written>(&line);
            let ours = written.ok().filter(|line| line.v == 1);
            if let Some(line) = ours.and_then(Written::read) {
                each(line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Calls, Tools, Used};
    use crate::ledger::Account;
    use crate::sys::clock::Clock;
    use crate::sys::env::Env;
    use crate::sys::test_hooks;

    #[test]
    fn what_is_written_is_read_and_torn_lines_are_passed_over() {
        let home = tempfile::tempdir().unwrap();
        let env: Env = [(test_hooks::TIME.name(), "2026-11-22T10:00:00Z")]
            .into_iter()
            .collect();
        let tools = Tools::new(home.path(), &Clock::from_env(&env).unwrap());
        assert!(!tools.lines(&mut |_| panic!("there is none")).unwrap());
        let calls = Calls {
            count: 3,
            failed: 1,
            denied: 0,
        };
        let used = Used {
            requests: 2,
            tools: [("mcp_git_log".to_owned(), calls)].into(),
            skills: ["github".to_owned()].into(),
            told: [(String::new(), 900), ("git".to_owned(), 500)].into(),
            told_of_skills: 70,
        };
        let account = Account {
            session: "cli:direct".into(),
            turn: "t1".into(),
            ..Account::default()
        };
        tools.record(&account, used.clone()).unwrap();
        let path = home.path().join("tools.jsonl");
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.insert_str(0, "{\"v\":1,\"ti\nnull\n{\"v\":2}\n");
        std::fs::write(&path, text).unwrap();
        tools.record(&account, Used::default()).unwrap();
        let mut found = Vec::new();
        assert!(tools.lines(&mut |line| found.push(line)).unwrap());
        assert_eq!(found.len(), 2);
        assert_eq!((&found[0].used, found[0].turn.as_str()), (&used, "t1"));
        assert_eq!(found[1].used, Used::default());
    }
}
