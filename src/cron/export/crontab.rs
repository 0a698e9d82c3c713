//! Exports jobs as a complete crontab, for tables that other programs manage.

use super::{File, MARK, text};
use crate::cron::table;
use std::path::Path;

/// Returns a table with `lines` as our block, in the form that `nanobot cron sync` recognizes in a user's own table.
///
/// # Errors
/// A message, if the workspace's path cannot be written in a table.
pub fn file(workspace: &Path, lines: &[String]) -> Result<File, String> {
    let table = table::with_block(MARK.as_bytes(), text(workspace)?, lines);
    Ok(File {
        name: "nanobot.crontab".into(),
        text: String::from_utf8_lossy(&table).into_owned(),
    })
}
