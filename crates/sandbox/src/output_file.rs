//! The file with the complete text of an output that is too long for the model.
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

/// Maximum bytes of all files of a run together. Their directory may be in memory.
const MAX_TOTAL_BYTES: u64 = 64 << 20;

/// Bytes in the files of this run, and the number of these files.
static TOTAL_BYTES: AtomicU64 = AtomicU64::new(0);
static FILE_COUNT: AtomicU64 = AtomicU64::new(0);

/// Receives an output in parts. There is no file as long as the output is short.
pub struct OutputFileWriter {
    /// Candidate parents of the directory.
    parents: Vec<PathBuf>,
    /// Maximum bytes of an output that gets no file.
    limit_bytes: usize,
    /// The output so far, while there is no file.
    start: String,
    redactor: StreamRedactor,
    state: WriterState,
}

/// The file of an output.
pub struct OutputFile {
    pub path: PathBuf,
    /// Bytes in it.
    pub bytes: u64,
    /// False if the limit of the run has cut the output.
    pub is_whole: bool,
}

impl OutputFile {
    /// Describes the file to the model, as the end of a sentence about the omitted part.
    pub fn describe(&self) -> String {
        let Self { path, bytes, is_whole } = self;
        let amount = if *is_whole {
            "the whole output is".to_owned()
        } else {
            format!("the first {} are", durable_file::format_size(*bytes))
        };
        format!("; until this run ends, {amount} in `{}` for read_file and grep", path.display())
    }
}

/// Stores the output `text` in a directory in one of `parents`. `None` if that fails.
pub fn store(parents: &[PathBuf], text: &str) -> Option<OutputFile> {
    let mut writer = OutputFileWriter::new(parents, 0);
    writer.feed(text);
    writer.finish()
}

enum WriterState {
    Short,
    Long(File, OutputFile),
    /// The file cannot be written.
    Failed,
}

impl OutputFileWriter {
    /// Writes an output of more than `limit_bytes` into a directory in one of `parents`.
    pub fn new(parents: &[PathBuf], limit_bytes: usize) -> Self {
        Self {
            parents: parents.to_vec(),
            limit_bytes,
            start: String::new(),
            redactor: StreamRedactor::for_all_keys(),
            state: WriterState::Short,
        }
    }

    /// Adds a part of the output.
    pub fn feed(&mut self, text: &str) {
        // Bytes that are not written need not be searched for keys.
        match &self.state {
            WriterState::Short => {}
            WriterState::Long(_, output_file) if output_file.is_whole => {}
            WriterState::Long(..) | WriterState::Failed => return,
        }
        let clean = self.redactor.feed(text).into_owned();
        self.add(&clean);
    }

    /// Ends the output. `None` if it is short, the file cannot be written, or the limit of the run leaves no space for it.
    pub fn finish(mut self) -> Option<OutputFile> {
        let rest = self.redactor.finish();
        self.add(&rest);
        match self.state {
            WriterState::Long(_, output_file) => Some(output_file).filter(|file| file.bytes > 0),
            WriterState::Short | WriterState::Failed => None,
        }
    }

    fn add(&mut self, text: &str) {
        if matches!(self.state, WriterState::Short) {
            self.start.push_str(text);
            if self.start.len() > self.limit_bytes {
                let start = std::mem::take(&mut self.start);
                self.state = match create(&self.parents) {
                    Ok((file, path)) => {
                        WriterState::Long(file, OutputFile { path, bytes: 0, is_whole: true })
                    }
                    Err(error) => {
                        log::info!(target: "tool", "the output is not kept: {error:#}");
                        WriterState::Failed
                    }
                };
                self.append(&start);
            }
        } else {
            self.append(text);
        }
    }

    fn append(&mut self, text: &str) {
        let WriterState::Long(file, output_file) = &mut self.state else {
            return;
        };
        let length = text.len() as u64;
        let total = TOTAL_BYTES.fetch_add(length, Ordering::Relaxed) + length;
        output_file.is_whole &= total <= MAX_TOTAL_BYTES;
        if !output_file.is_whole {
            return;
        }
        output_file.bytes += length;
        if file.write_all(text.as_bytes()).is_err() {
            self.state = WriterState::Failed;
        }
    }
}

fn create(parents: &[PathBuf]) -> Result<(File, PathBuf)> {
    let number = FILE_COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    let path = private_tmp::output_directory(parents)?.join(format!("output-{number}.txt"));
    Ok((durable_file::open_append(&path)?, path))
}

#[cfg(test)]
mod tests {
    use super::{OutputFile, OutputFileWriter, WriterState};

    #[test]
    fn a_file_without_content_is_not_named() {
        let check = |bytes: u64, expect: bool| {
            let mut writer = OutputFileWriter::new(&[], 0);
            let file = OutputFile { path: "/x".into(), bytes, is_whole: false };
            writer.state = WriterState::Long(tempfile::tempfile().unwrap(), file);
            assert_eq!(writer.finish().is_some(), expect, "{bytes}");
        };
        check(1, true);
        check(0, false);
    }
}
