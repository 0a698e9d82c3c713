//! Removal of old run records, and of the outputs of these runs.

use super::{JobDir, RunOutcome, RunRecord, is_at, output_name};
use anyhow::Result;
use jiff::Timestamp;
use nanobot_os::age::is_older;
use nanobot_os::durable_file;
use nanobot_os::file_lock;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A line of a record file.
struct RecordLine<'a> {
    /// The file that it is in.
    path: &'a Path,
    bytes: &'a [u8],
    /// `None` if the line is not a record, or one of a later release.
    record: Option<RunRecord>,
    /// True if the line stays, whatever its age.
    is_needed: bool,
}

impl RecordLine<'_> {
    fn start(&self) -> Option<Timestamp> {
        self.record.as_ref()?.start.parse().ok()
    }

    /// True if its run ended before `limit`. A line that is not a record has no age.
    fn is_old(&self, limit: SystemTime) -> bool {
        let end: Option<Timestamp> =
            self.record.as_ref().and_then(|record| record.end.parse().ok());
        end.is_some_and(|end| SystemTime::from(end) < limit)
    }
}

impl JobDir {
    /// Removes the records of runs that ended before `limit`, and their outputs. With `keeps_last`, the last run stays, and so do the
    /// last success and the last answer: the state of the job, and the jobs after it, depend on them.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn remove_old_runs(&self, limit: SystemTime, keeps_last: bool) -> Result<()> {
        let paths = [self.rotated_path(), self.record_path()];
        let mut kept_starts = None;
        while kept_starts.is_none() && paths.iter().any(|path| path.exists()) {
            let path = self.record_path();
            let file = durable_file::open_line_log(&path)?;
            // Under this lock no process appends a record, or rotates the file.
            kept_starts = file_lock::with_lock(&file, &path, || {
                let is_current = is_at(&file, &path)?;
                is_current.then(|| self.remove_old_records(&paths, limit, keeps_last)).transpose()
            })?;
        }
        self.remove_old_outputs(limit, &kept_starts.unwrap_or_default())
    }

    /// Removes the old records from the files at `paths`, oldest first. Returns the starts of the other runs.
    fn remove_old_records(
        &self,
        paths: &[PathBuf],
        limit: SystemTime,
        keeps_last: bool,
    ) -> Result<Vec<Timestamp>> {
        let texts: Vec<Vec<u8>> = paths
            .iter()
            .map(|path| Ok(durable_file::read(path)?.unwrap_or_default()))
            .collect::<Result<_>>()?;
        let mut lines: Vec<RecordLine<'_>> = Vec::new();
        for (path, text) in paths.iter().zip(&texts) {
            lines.extend(text.split_inclusive(|byte| *byte == b'\n').map(|bytes| RecordLine {
                path,
                bytes,
                record: serde_json::from_slice(bytes).ok(),
                is_needed: false,
            }));
        }
        if keeps_last {
            mark_last_ones(&mut lines);
        }
        // The record of a run whose end is not in the run state yet.
        let started = self.read_state()?.started.and_then(|started| started.started_at());
        lines.retain(|line| {
            let is_ending = started.is_some() && line.start() == started;
            line.is_needed || is_ending || !line.is_old(limit)
        });
        for (path, text) in paths.iter().zip(&texts) {
            let lines_of_file = lines.iter().filter(|line| line.path == path);
            let new_text = lines_of_file.map(|line| line.bytes).collect::<Vec<_>>().concat();
            if new_text.len() < text.len() {
                durable_file::replace(path, &new_text)?;
            }
        }
        Ok(lines.iter().filter_map(RecordLine::start).collect())
    }

    /// Removes the outputs that were stored before `limit`, apart from those of the runs that began at `kept_starts`.
    fn remove_old_outputs(&self, limit: SystemTime, kept_starts: &[Timestamp]) -> Result<()> {
        let kept_names: Vec<String> = kept_starts.iter().map(|start| output_name(*start)).collect();
        let directory = self.path.join("output");
        // A link leads to files of others.
        if directory.is_symlink() {
            return Ok(());
        }
        for entry in durable_file::list_dir(&directory)? {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_kept = kept_names.iter().any(|kept_name| name.starts_with(kept_name));
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            if is_kept || !is_file || !name.ends_with(".txt") || !is_older(&path, limit) {
                continue;
            }
            durable_file::remove(&path)?;
        }
        Ok(())
    }
}

/// Marks the last run, the last one that was attempted, the last success and the last answer as needed.
fn mark_last_ones(lines: &mut [RecordLine<'_>]) {
    let conditions: [&dyn Fn(&RunRecord) -> bool; 4] = [
        &|_| true,
        &|record| record.outcome.was_attempted(),
        &|record| record.outcome.was_attempted() && !record.outcome.is_failure(),
        &|record| record.outcome == RunOutcome::Ok,
    ];
    for is_met in conditions {
        let mut newest_first = lines.iter_mut().rev();
        if let Some(last) = newest_first.find(|line| line.record.as_ref().is_some_and(is_met)) {
            last.is_needed = true;
        }
    }
}
