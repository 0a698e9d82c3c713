//! What only this program keeps of a job's runs, in the job's folder: the stamps that say which times were handled, and a
//! record of each run.
//!
//! A stamp is on the disk before a run begins and after it has ended. One that has begun and not ended, while nobody holds
//! the job's lock, is a run of which nobody knows how it ended.

use crate::error::{Exit, fail, fail_hint};
use crate::sys::store::{self, Lock};
use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of records after which a new file is begun; the one before it is kept.
const ROTATE: u64 = 1 << 20;
/// Bytes of stamps that are read.
const LONGEST: u64 = 64 << 10;
/// How many answers are kept.
const OUTPUTS: usize = 50;

/// The folder of a job.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

/// Which times of a job were handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Stamps {
    pub v: u32,
    /// The last time that was run or passed over, in milliseconds since 1970.
    pub handled_ms: Option<i64>,
    /// A run that has begun.
    pub started: Option<Started>,
}

/// A run that has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Started {
    pub at_ms: i64,
    /// The time it was due; `None` when somebody asked for it.
    pub slot_ms: Option<i64>,
    pub pid: u32,
}

impl Started {
    pub fn at(&self) -> Option<Timestamp> {
        Timestamp::from_millisecond(self.at_ms).ok()
    }
}

impl Stamps {
    /// The version of this layout.
    const V: u32 = 1;

    pub fn handled(&self) -> Option<Timestamp> {
        self.handled_ms
            .and_then(|at| Timestamp::from_millisecond(at).ok())
    }
}

/// Why a job was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trigger {
    /// It was due.
    Schedule,
    /// Somebody asked for it.
    Hand,
}

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It answered.
    Ok,
    /// It had nothing to say.
    Nothing,
    /// `--when` said no.
    No,
    Failed,
    /// It was running already.
    Busy,
    /// Its time had passed when there was a chance to run it.
    Missed,
    /// Another program had run it at that time.
    Elsewhere,
    /// It had begun, and nobody knows how it ended.
    Unknown,
}

impl Outcome {
    /// In a word or two.
    pub fn words(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Nothing => "nothing to report",
            Self::No => "not needed",
            Self::Failed => "failed",
            Self::Busy => "still running",
            Self::Missed => "missed",
            Self::Elsewhere => "run elsewhere",
            Self::Unknown => "outcome unknown",
        }
    }

    /// Whether the job ran, or was to.
    pub fn is_run(self) -> bool {
        matches!(
            self,
            Self::Ok | Self::Nothing | Self::No | Self::Failed | Self::Unknown
        )
    }
}

/// A record of a run: a line of `runs.jsonl`. Times in UTC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The version of this layout.
    pub version: u32,
    pub job: String,
    /// As the job was called then.
    pub name: String,
    pub trigger: Trigger,
    /// The time it was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    pub start: String,
    pub end: String,
    pub outcome: Outcome,
    /// The status with which it ended, and its name.
    pub status: u8,
    pub cause: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(flatten)]
    pub spent: Spent,
    /// Where its answer is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<PathBuf>,
    /// Where its answer went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered: Option<String>,
}

/// What a run cost and was denied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spent {
    pub session: String,
    pub turn: String,
    pub model: String,
    pub iterations: u32,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// US dollars; `None` where no price is known.
    pub cost_usd: Option<f64>,
    /// What it was denied: tools, each as often as it was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<String>,
}

impl Record {
    pub const VERSION: u32 = 1;
}

impl Spent {
    /// Count what was spent before it. Where that is all there was, it stands as it is.
    pub fn add(&mut self, before: &Self) {
        if self.model.is_empty() {
            self.model.clone_from(&before.model);
        }
        self.cost_usd = match self.input_tokens + self.output_tokens {
            0 => before.cost_usd,
            _ => self.cost_usd.zip(before.cost_usd).map(|(a, b)| a + b),
        };
        self.iterations += before.iterations;
        self.input_tokens += before.input_tokens;
        self.output_tokens += before.output_tokens;
    }
}

impl Folder {
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Take the right to run the job. Whoever has it keeps it for the whole run.
    ///
    /// # Errors
    /// Status 75 with whoever has it.
    pub fn lock(&self, name: &str, now: &str) -> Result<Lock> {
        store::create_dir(&self.path)?;
        let path = self.path.join("lock");
        let what = format!("the job `{name}`");
        let busy = &mut |_: Option<&store::Holder>| {};
        Lock::take(&path, &what, now, Duration::ZERO, busy).map_err(|error| {
            match crate::error::exit_of(&error) {
                Exit::TryAgain => {
                    // Whoever has it may not have said yet who that is.
                    let cause = format!("{error:#}")
                        .replace("is in use by", "is still run by")
                        .replace("is in use", "runs already");
                    fail_hint(
                        Exit::TryAgain,
                        cause,
                        "`nanobot cron logs`, to see what it is at",
                    )
                }
                _ => error,
            }
        })
    }

    /// Whether the job runs now.
    pub fn is_running(&self) -> Result<bool> {
        Lock::is_held(&self.path.join("lock"))
    }

    /// # Errors
    /// Status 78 where they cannot be read: without them a time might be run twice.
    pub fn stamps(&self) -> Result<Stamps> {
        let path = self.path.join("state.json");
        let Some(bytes) = store::read_at_most(&path, LONGEST)? else {
            return Ok(Stamps::default());
        };
        let stamps: Stamps = serde_json::from_slice(&bytes).map_err(|error| {
            fail_hint(
                Exit::Config,
                format!("`{}` cannot be read: {error}", path.display()),
                "remove it, if the job may run again at once",
            )
        })?;
        match stamps.v > Stamps::V {
            true => Err(fail(
                Exit::Config,
                format!("`{}` was written by a newer release", path.display()),
            )),
            false => Ok(stamps),
        }
    }

    /// Write the stamps; they are on the disk when this returns.
    pub fn stamp(&self, stamps: &Stamps) -> Result<()> {
        store::create_dir(&self.path)?;
        let stamps = Stamps {
            v: Stamps::V,
            ..*stamps
        };
        let text = serde_json::to_vec(&stamps).context("write a stamp")?;
        store::replace(&self.path.join("state.json"), &text)
    }

    /// Where the records are.
    pub fn runs(&self) -> PathBuf {
        self.path.join("runs.jsonl")
    }

    /// Append a record; it is on the disk when this returns.
    pub fn record(&self, record: &Record) -> Result<()> {
        store::create_dir(&self.path)?;
        let path = self.runs();
        let mut line = serde_json::to_vec(record).context("write a record")?;
        line.push(b'\n');
        let file = store::open_lines(&path)?;
        store::while_locked(&file, &path, || {
            let before = store::size(&file, &path)?;
            store::append_to(&file, &path, before, &line)?;
            store::sync(&file, &path)?;
            // Whoever has the file open goes on with the one that has another name now.
            match before > ROTATE {
                true => std::fs::rename(&path, self.older()).context("begin a new file of records"),
                false => Ok(()),
            }
        })
    }

    fn older(&self) -> PathBuf {
        self.path.join("runs.1.jsonl")
    }

    /// The last `count` records, oldest first. A line that is none is passed over.
    pub fn records(&self, count: usize) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        for path in [self.older(), self.runs()] {
            records.extend(read(&path)?);
        }
        let skip = records.len().saturating_sub(count);
        Ok(records.split_off(skip))
    }

    /// Keep an answer. The oldest ones go.
    pub fn keep(&self, start: Timestamp, text: &str) -> Result<PathBuf> {
        let folder = self.path.join("output");
        store::create_dir(&folder)?;
        let name = format!("{}.txt", start.strftime("%Y%m%dT%H%M%S%.3fZ"));
        let path = folder.join(name);
        store::replace(&path, text.as_bytes())?;
        let mut kept: Vec<PathBuf> = std::fs::read_dir(&folder)
            .with_context(|| format!("look into `{}`", folder.display()))?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|kind| kind == "txt"))
            .collect();
        kept.sort();
        let surplus = kept.len().saturating_sub(OUTPUTS);
        for old in &kept[..surplus] {
            std::fs::remove_file(old).with_context(|| format!("remove `{}`", old.display()))?;
        }
        Ok(path)
    }
}

fn read(path: &Path) -> Result<Vec<Record>> {
    let Some(file) = store::open_existing(path)? else {
        return Ok(Vec::new());
    };
    let lines = BufReader::new(file).split(b'\n');
    let mut records = Vec::new();
    for line in lines {
        let line = line.with_context(|| format!("read `{}`", path.display()))?;
        records.extend(serde_json::from_slice::<Record>(&line));
    }
    Ok(records)
}
