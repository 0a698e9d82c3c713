//! Exports jobs as a complete crontab, for tables that other programs manage.

use super::{ExportFile, HEADER, path_text};
use crate::crontab_block;
use std::path::Path;

/// Returns a table with `lines` as our block, in the form that `nanobot cron sync` recognizes in a user's own table.
///
/// # Errors
/// A message, if the workspace's path cannot be written in a table.
pub fn crontab_file(workspace: &Path, lines: &[String]) -> Result<ExportFile, String> {
    let table = crontab_block::with_block(HEADER.as_bytes(), path_text(workspace)?, lines);
    Ok(ExportFile {
        name: "nanobot.crontab".into(),
        text: String::from_utf8_lossy(&table).into_owned(),
    })
}
