//! The whole of an output that is too long to be sent, in a file of the run.
//!
//! The files are in a private directory that commands of the run cannot change, and are removed when the run ends. Keys
//! are redacted.

use crate::private_tmp;
use anyhow::Result;
use nanobot_os::durable_file;
use nanobot_os::secret::StreamRedactor;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Upper limit of all files of a run together. Their directory may be in memory.
const MAX_KEPT_BYTES: u64 = 64 << 20;

/// Bytes in the files of this run, and the number of these files.
static KEPT_BYTES: AtomicU64 = AtomicU64::new(0);
static FILE_COUNT: AtomicU64 = AtomicU64::new(0);

/// Receives an output piece by piece. As long as it is short there is no file.
pub struct OutputKeeper {
    /// Candidate parents of the directory.
    parents: Vec<PathBuf>,
    /// Number of bytes from which on it is kept.
    limit: usize,
    /// The output so far, while there is no file.
    start: String,
    redactor: StreamRedactor,
    state: KeeperState,
}

/// The file of an output.
pub struct KeptOutput {
    pub path: PathBuf,
    /// Bytes in it.
    pub bytes: u64,
    /// False if the limit of the run has cut it.
    pub is_whole: bool,
}

impl KeptOutput {
    /// Tells the model where the output is, as the end of a sentence about what is left out.
    pub fn describe(&self) -> String {
        let Self { path, bytes, is_whole } = self;
        let amount = match is_whole {
            true => "the whole output is".to_owned(),
            false => format!("the first {} are", durable_file::format_size(*bytes)),
        };
        format!("; until this run ends, {amount} in `{}` for read_file and grep", path.display())
    }
}

/// Keeps the output `text` in a directory in one of `parents`. `None` if it cannot be kept.
pub fn keep(parents: &[PathBuf], text: &str) -> Option<KeptOutput> {
    let mut keeper = OutputKeeper::new(parents, 0);
    keeper.feed(text);
    keeper.finish()
}

enum KeeperState {
    Short,
    Long(File, KeptOutput),
    /// The file cannot be written.
    Failed,
}

impl OutputKeeper {
    /// Keeps an output of more than `limit` bytes, in one of `parents`.
    pub fn new(parents: &[PathBuf], limit: usize) -> Self {
        Self {
            parents: parents.to_vec(),
            limit,
            start: String::new(),
            redactor: StreamRedactor::for_all_keys(),
            state: KeeperState::Short,
        }
    }

    /// Adds a piece of the output.
    pub fn feed(&mut self, text: &str) {
        // What is not kept need not be searched for keys.
        match &self.state {
            KeeperState::Short => {}
            KeeperState::Long(_, kept) if kept.is_whole => {}
            KeeperState::Long(..) | KeeperState::Failed => return,
        }
        let clean = self.redactor.feed(text).into_owned();
        self.add(&clean);
    }

    /// Ends the output. `None` if it is short, or cannot be kept.
    pub fn finish(mut self) -> Option<KeptOutput> {
        let rest = self.redactor.finish();
        self.add(&rest);
        match self.state {
            KeeperState::Long(_, kept) => Some(kept),
            KeeperState::Short | KeeperState::Failed => None,
        }
    }

    fn add(&mut self, text: &str) {
        if matches!(self.state, KeeperState::Short) {
            self.start.push_str(text);
            if self.start.len() > self.limit {
                let start = std::mem::take(&mut self.start);
                self.state = match create(&self.parents) {
                    Ok((file, path)) => {
                        let kept = KeptOutput { path, bytes: 0, is_whole: true };
                        KeeperState::Long(file, kept)
                    }
                    Err(error) => {
                        log::info!(target: "tool", "the output is not kept: {error:#}");
                        KeeperState::Failed
                    }
                };
                self.append(&start);
            }
        } else {
            self.append(text);
        }
    }

    fn append(&mut self, text: &str) {
        let KeeperState::Long(file, kept) = &mut self.state else {
            return;
        };
        let length = text.len() as u64;
        let total = KEPT_BYTES.fetch_add(length, Ordering::Relaxed) + length;
        kept.is_whole &= total <= MAX_KEPT_BYTES;
        if !kept.is_whole {
            return;
        }
        kept.bytes += length;
        if file.write_all(text.as_bytes()).is_err() {
            self.state = KeeperState::Failed;
        }
    }
}

fn create(parents: &[PathBuf]) -> Result<(File, PathBuf)> {
    let number = FILE_COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    let path = private_tmp::output_directory(parents)?.join(format!("output-{number}.txt"));
    Ok((durable_file::open_append(&path)?, path))
}
