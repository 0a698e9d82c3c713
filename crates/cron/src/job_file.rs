//! The job file as JSON: reads it, changes it under its lock, and copies it if it is damaged. Its entries, one for each
//! job, are interpreted in [`super::job_entry`].

use super::job_entry::has_id;
use anyhow::{Context, Result};
use jiff::Timestamp;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::durable_file;
use nanobot_os::file_lock::FileLock;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Maximum size of the job file in bytes.
pub(super) const READ_LIMIT_BYTES: u64 = 64 << 20;
/// Prefix of the names of the copies of damaged files.
const COPY_PREFIX: &str = "jobs.json.corrupt-";
/// Maximum number of copies of damaged files.
const MAX_COPIES: usize = 5;

/// Reads the file at `path`; empty if it does not exist.
pub(super) fn load(path: &Path) -> Result<Map<String, Value>> {
    let Some(bytes) = durable_file::read_limited(path, READ_LIMIT_BYTES)? else {
        return Ok(Map::new());
    };
    let cause = match serde_json::from_slice(&bytes) {
        Ok(Value::Object(file)) if file.get("jobs").is_none_or(Value::is_array) => {
            let version = file.get("version").and_then(Value::as_u64).unwrap_or(1);
            if version > 1 {
                return Err(fail(
                    Exit::Config,
                    format!(
                        "`{}` has format version {version}, which this release does not support",
                        path.display()
                    ),
                ));
            }
            return Ok(file);
        }
        Ok(_) => "it is not a JSON object with a list of `jobs`".to_owned(),
        Err(error) => error.to_string(),
    };
    let copy = save_copy(path, &bytes)?;
    let error = damaged_error(path, &cause);
    Err(error.context(format!("a copy is kept as `{}`", copy.display())))
}

/// Reads the entry of the job `id` from the file at `path`. The entries of other jobs are only checked for valid JSON.
/// If no entry is found that way, the whole file is parsed.
pub(super) fn find_entry(path: &Path, id: &str) -> Result<Option<Value>> {
    #[derive(Deserialize)]
    struct RawJobFile<'a> {
        version: u64,
        #[serde(borrow)]
        jobs: Vec<&'a RawValue>,
    }
    let Some(bytes) = durable_file::read(path)? else {
        return Ok(None);
    };
    if let Ok(RawJobFile { version: 1, jobs }) = serde_json::from_slice(&bytes) {
        let candidates = jobs.iter().filter(|job| job.get().contains(id));
        let mut values = candidates.flat_map(|job| serde_json::from_str::<Value>(job.get()));
        if let Some(value) = values.find(|value| has_id(value, id)) {
            return Ok(Some(value));
        }
    }
    let file = load(path)?;
    Ok(entries(&file).find(|value| has_id(value, id)).cloned())
}

/// Copies a damaged file, unless a copy of this version exists: its name contains the modification time of the file.
/// The file itself is not changed, so that the user can repair it.
fn save_copy(path: &Path, bytes: &[u8]) -> Result<PathBuf> {
    let time = std::fs::metadata(path)
        .and_then(|metadata| metadata.modified())
        .with_context(|| format!("stat `{}`", path.display()))?;
    let time = Timestamp::try_from(time).unwrap_or_default();
    let name = format!("{COPY_PREFIX}{}", time.strftime("%Y%m%dT%H%M%SZ"));
    let copy = path.with_file_name(name);
    if !copy.exists() {
        durable_file::replace(&copy, bytes)?;
        remove_old_copies(&copy)?;
    }
    Ok(copy)
}

/// Removes the oldest copies, so that [`MAX_COPIES`] with `newest` remain. Their names sort by time.
fn remove_old_copies(newest: &Path) -> Result<()> {
    let directory = newest.parent().unwrap_or(newest);
    let entries = std::fs::read_dir(directory);
    let entries = entries.with_context(|| format!("read `{}`", directory.display()))?;
    let mut copies: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            path != newest && name.is_some_and(|name| name.starts_with(COPY_PREFIX))
        })
        .collect();
    copies.sort();
    let excess_count = (copies.len() + 1).saturating_sub(MAX_COPIES);
    for old in &copies[..excess_count] {
        durable_file::remove(old)?;
    }
    Ok(())
}

/// The error for a job file that cannot be used because of `cause`.
pub(super) fn damaged_error(path: &Path, cause: &str) -> anyhow::Error {
    fail(Exit::Config, format!("`{}` cannot be used: {cause}", path.display()))
        .with_hint("fix the file by hand; it is not changed while it is invalid")
}

/// Takes the lock for a change of the file at `path`.
pub(super) fn lock(path: &Path) -> Result<FileLock> {
    durable_file::lock_for_change(path, "the job file")
}

/// Changes the file at `path` under its lock. The file is written only if `change` returns true. Returns the same.
pub(super) fn update(
    path: &Path,
    change: impl FnOnce(&mut Map<String, Value>) -> Result<bool>,
) -> Result<bool> {
    let _lock = lock(path)?;
    update_locked(path, change)
}

/// Like [`update`], while the caller has the lock.
pub(super) fn update_locked(
    path: &Path,
    change: impl FnOnce(&mut Map<String, Value>) -> Result<bool>,
) -> Result<bool> {
    let mut file = load(path)?;
    if !path.exists() {
        file.entry("version").or_insert(json!(1));
    }
    let is_changed = change(&mut file)?;
    if is_changed {
        let text = serde_json::to_vec_pretty(&file).context("encode the jobs")?;
        durable_file::replace(path, &text)?;
    }
    Ok(is_changed)
}

/// The entries of the jobs. Values of other types than an object are skipped.
pub(super) fn entries(file: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let jobs = file.get("jobs").and_then(Value::as_array);
    jobs.into_iter().flatten().filter(|value| value.is_object())
}

pub(super) fn has_job(file: &Map<String, Value>, id: &str) -> bool {
    entries(file).any(|value| has_id(value, id))
}

/// Like [`entries`], to change them.
pub(super) fn entries_mut(file: &mut Map<String, Value>) -> impl Iterator<Item = &mut Value> {
    let jobs = file.get_mut("jobs").and_then(Value::as_array_mut);
    jobs.into_iter().flatten().filter(|value| value.is_object())
}
