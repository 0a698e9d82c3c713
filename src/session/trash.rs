//! Deletion of sessions. They are moved to a trash directory beside the sessions, under names that no release reads as
//! a session, and can be restored for a while.

use super::files::{logs, none};
use super::integrity::{is_newer, side_files};
use super::list::{Summary, look};
use super::lock::try_lock;
use super::place::{Place, coded_name, key_from_name, key_in};
use crate::error::{Exit, fail_hint};
use crate::sys::store;
use anyhow::{Context, Result};
use jiff::ToSpan;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The trash directory beside the sessions; below, the suffix of its files.
const TRASH: &str = ".trash";
const GONE: &str = ".gone";

/// A session in the trash.
#[derive(Clone, Debug)]
pub struct Discarded {
    pub key: String,
    pub path: PathBuf,
    /// The time of deletion: the digits of a local time.
    pub stamp: String,
    /// Its original file name.
    name: String,
}

/// Moves a session and its side files to the trash, if `confirm` agrees once the lock is held. Returns true if it
/// was moved.
///
/// # Errors
/// Status 66 if there is no such session, 75 if it is in use.
pub fn discard(place: &Place, key: &str, still: &dyn Fn(&Summary) -> bool) -> Result<bool> {
    let path = place.find(key)?;
    store::open_existing(&path)?.ok_or_else(|| none(place, key))?;
    let lock = try_lock(place, key, &path)?;
    if !still(&look(place, key)?) {
        return Ok(false);
    }
    let stamp = digits(&place.clock.stamp());
    // A copy in another release's directory would reappear as this session.
    for copy in place.copies(key)? {
        put_away(&copy, &stamp)?;
    }
    lock.remove()?;
    Ok(true)
}

/// Deletes a session permanently, including its copies in the trash.
///
/// # Errors
/// Status 66 if there is no such session, 75 if it is in use.
pub fn remove(place: &Place, key: &str) -> Result<()> {
    let path = place.find(key)?;
    let mut found = false;
    if path.exists() {
        let lock = try_lock(place, key, &path)?;
        for copy in place.copies(key)? {
            remove_files(&copy)?;
        }
        lock.remove()?;
        found = true;
    }
    for discarded in trash(place)? {
        if discarded.key == key {
            for (path, _) in discarded.files()? {
                std::fs::remove_file(&path)
                    .with_context(|| format!("remove `{}`", path.display()))?;
            }
            found = true;
        }
    }
    match found {
        true => Ok(()),
        false => Err(none(place, key)),
    }
}

/// Lists the trash, newest first.
pub fn trash(place: &Place) -> Result<Vec<Discarded>> {
    let mut found = Vec::new();
    for dir in place.directories() {
        for (path, stamp, name) in gone(&dir.join(TRASH))? {
            if !name.ends_with(".jsonl") {
                continue;
            }
            let key = key_in(&path)?.unwrap_or_else(|| key_from_name(Path::new(&name)));
            found.push(Discarded {
                key,
                path,
                stamp,
                name,
            });
        }
    }
    found.sort_by(|one, other| other.stamp.cmp(&one.stamp));
    Ok(found)
}

/// Restores the most recently deleted session `key`.
///
/// # Errors
/// Status 66 if the trash has none, 2 if another session has that key now.
pub fn restore(place: &Place, key: &str) -> Result<()> {
    let found = trash(place)?
        .into_iter()
        .find(|discarded| discarded.key == key);
    let Some(found) = found else {
        let cause = format!("there is no session `{key}` in the trash");
        return Err(fail_hint(Exit::NoInput, cause, "nanobot session restore"));
    };
    let dir = found.path.parent().and_then(Path::parent);
    let dir = dir.context("the trash path has no parent directory")?;
    let mut home = dir.join(&found.name);
    if home.exists() {
        // Another key that maps to the same file name uses it now.
        home = dir.join(coded_name(key));
    }
    let is_free = || match place.find(key)?.exists() {
        false => Ok(()),
        true => Err(fail_hint(
            Exit::Usage,
            format!("session `{key}` already exists"),
            format!("nanobot session rename {key} NEW"),
        )),
    };
    is_free()?;
    let lock = try_lock(place, key, &home)?;
    is_free()?;
    let name = home.file_name().unwrap_or_default().to_string_lossy();
    for (path, rest) in found.files()? {
        store::rename_new(&path, &dir.join(format!("{name}{rest}")))?;
    }
    drop(lock);
    Ok(())
}

/// Removes files that have been in the trash for more than `days` days. Returns their number.
pub fn empty_trash(place: &Place, days: i64) -> Result<usize> {
    let limit = place.clock.now().saturating_sub(days.days());
    let limit = limit.strftime("%Y%m%d%H%M%S%6f").to_string();
    let mut count = 0;
    for dir in place.directories() {
        for (path, stamp, _) in gone(&dir.join(TRASH))? {
            if stamp < limit {
                std::fs::remove_file(&path)
                    .with_context(|| format!("remove `{}`", path.display()))?;
                count += 1;
            }
        }
    }
    Ok(count)
}

impl Discarded {
    /// Its file and side files, each with the suffix that its name adds to the session's file name.
    fn files(&self) -> Result<Vec<(PathBuf, String)>> {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        let mut files = vec![(self.path.clone(), String::new())];
        for (path, stamp, name) in gone(dir)? {
            let rest = name.strip_prefix(&self.name);
            if let Some(rest) = rest.filter(|rest| stamp == self.stamp && !rest.is_empty()) {
                files.push((path, rest.to_owned()));
            }
        }
        Ok(files)
    }
}

/// Lists the files of a trash directory: path, deletion time and original name.
fn gone(trash: &Path) -> Result<Vec<(PathBuf, String, String)>> {
    let entries = match std::fs::read_dir(trash) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("read `{}`", trash.display())),
    };
    let parse = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix(GONE)?.to_owned();
        let (stamp, name) = name.split_once('-')?;
        let is_stamp = stamp.bytes().all(|byte| byte.is_ascii_digit());
        is_stamp.then(|| (path.clone(), stamp.to_owned(), name.to_owned()))
    };
    Ok(entries
        .flatten()
        .filter_map(|entry| parse(entry.path()))
        .collect())
}

/// Moves a session's file and side files to the trash beside it.
fn put_away(path: &Path, stamp: &str) -> Result<()> {
    let trash = path.with_file_name(TRASH);
    store::create_dir(&trash)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let place = |stamp: &str, name: &str| trash.join(format!("{stamp}-{name}{GONE}"));
    let mut stamp = stamp.to_owned();
    // The same name was deleted at the same moment. No race: this process holds the lock of that name.
    while place(&stamp, &name).exists() {
        let next = stamp.parse::<u128>().unwrap_or_default() + 1;
        stamp = next.to_string();
    }
    for aside in side_files(path)? {
        let name = aside.file_name().unwrap_or_default().to_string_lossy();
        store::rename_new(&aside, &place(&stamp, &name))?;
    }
    store::rename_new(path, &place(&stamp, &name)).map(drop)
}

fn remove_files(path: &Path) -> Result<()> {
    for path in side_files(path)?.into_iter().chain([path.to_owned()]) {
        std::fs::remove_file(&path).with_context(|| format!("remove `{}`", path.display()))?;
    }
    Ok(())
}

/// The digits of a time.
fn digits(stamp: &str) -> String {
    stamp.chars().filter(char::is_ascii_digit).collect()
}

/// Retention time of sessions created for piped input.
const PIPES_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Maximum number removed at a time, so that a run is not slowed down noticeably.
const PRUNED_AT_ONCE: usize = 8;

/// Removes old sessions of piped input. A session that is in use or cannot be removed is left alone.
pub fn prune(place: &Place) -> Result<()> {
    let Some(limit) = SystemTime::from(place.clock.timestamp()).checked_sub(PIPES_KEPT) else {
        return Ok(());
    };
    let is_pipe = |path: &PathBuf| {
        path.file_name()
            .map(|name| name.to_string_lossy())
            // The second prefix is the base64 form of `pipe:` in the file names of newer releases.
            .is_some_and(|name| name.starts_with("pipe_") || name.starts_with("cGlwZT"))
    };
    // The name is only a hint: a user's own key may look like it.
    let of_a_pipe = |path: &PathBuf| {
        key_in(path).is_ok_and(|key| key.is_some_and(|key| key.starts_with("pipe:")))
    };
    let is_old = |path: &PathBuf| {
        std::fs::metadata(path)
            .and_then(|about| about.modified())
            .is_ok_and(|modified| modified < limit)
    };
    for path in logs(place.home())?
        .into_iter()
        .filter(is_pipe)
        .filter(is_old)
        .filter(of_a_pipe)
        .filter(|path| is_newer(path).is_ok_and(|is_newer| !is_newer))
        .take(PRUNED_AT_ONCE)
    {
        if let Ok(lock) = try_lock(place, "", &path)
            && is_old(&path)
            && remove_files(&path).is_ok()
        {
            drop(lock.remove());
        }
    }
    Ok(())
}
