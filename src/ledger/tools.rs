//! What turns used: one line for each turn in `tools.jsonl`, which is only ever appended to. It says which tools were
//! called and which skills were read, and how many tokens of each request went into telling the model of them, so that what
//! costs and is never used can be found. Nothing depends on it: a line that is lost is a number that is too small.

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

/// The longest line that is looked at: one with a thousand tools.
const LONGEST: usize = 256 << 10;

/// What a turn used, and what it was offered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Used {
    /// Requests that carried the descriptions.
    pub requests: u32,
    /// Calls of each tool.
    #[serde(default)]
    pub tools: BTreeMap<String, Calls>,
    /// The skills that were read.
    #[serde(default)]
    pub skills: BTreeSet<String>,
    /// Tokens of each request, by our estimate, that tell of tools, by whose they are: the server's name, or nothing for ours.
    #[serde(default)]
    pub told: BTreeMap<String, u64>,
    /// The same for the list of skills.
    #[serde(default)]
    pub told_of_skills: u64,
}

/// How often a tool was called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    pub count: u32,
    /// Of these, the ones that did not do what they were asked for, the denied ones included.
    #[serde(default)]
    pub failed: u32,
    #[serde(default)]
    pub denied: u32,
}

/// A line of the file.
#[derive(Debug)]
pub struct Line {
    pub time: Timestamp,
    /// As the clock on the wall had it.
    pub day: Date,
    pub session: String,
    pub turn: String,
    pub used: Used,
}

/// A line as it is written.
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

/// The file.
#[derive(Clone, Debug)]
pub struct Tools {
    path: PathBuf,
    clock: Clock,
}

impl Tools {
    /// That of the user whose data lies in `root`.
    pub fn new(root: &Path, clock: &Clock) -> Self {
        Self {
            path: root.join("tools.jsonl"),
            clock: clock.clone(),
        }
    }

    /// Write down what a turn used.
    ///
    /// # Errors
    /// The file cannot be written.
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
        let mut text = serde_json::to_string(&line).context("write down which tools were used")?;
        text.push('\n');
        if let Some(folder) = self.path.parent() {
            store::create_dir(folder)?;
        }
        store::append(&self.path, text.as_bytes())
    }

    /// Hand over each line, from the oldest; what is no line of ours is passed over. False where nothing was ever written.
    ///
    /// # Errors
    /// The file cannot be read, or the run is to end.
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
