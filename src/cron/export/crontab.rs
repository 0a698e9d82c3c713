//! Jobs as a whole crontab, for tables that others write.

use super::{File, MARK, text};
use crate::cron::table;
use std::path::Path;

/// A table of these lines: our block, as `nanobot cron sync` knows it where the table is the user's own.
///
/// # Errors
/// In words, where the workspace has a name that no table can say.
pub fn file(workspace: &Path, lines: &[String]) -> Result<File, String> {
    let table = table::with_block(MARK.as_bytes(), text(workspace)?, lines);
    Ok(File {
        name: "nanobot.crontab".into(),
        text: String::from_utf8_lossy(&table).into_owned(),
    })
}
