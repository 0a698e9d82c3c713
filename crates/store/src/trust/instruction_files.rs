//! The instruction files of a directory: their names, how they are read, and the digests by which they are recognized.

use anyhow::{Context, Result};
use nanobot_os::digest::{MAX_PROGRAM_BYTES, keyed_digest};
use nanobot_os::durable_file;
use nanobot_os::paths::is_generated_dir;
use nanobot_os::rooted_fs;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The largest AGENTS.md that is read, in bytes: about 16,000 tokens, which are paid for with every request.
const MAX_INSTRUCTIONS_BYTES: u64 = 64 << 10;
/// The largest SKILL.md for which a digest is computed, in bytes: larger ones are not read as skills either.
const MAX_SKILL_BYTES: u64 = 1 << 20;

/// The folders of a directory that may hold skills, in order of precedence: ours, then those that other agents use.
pub(super) const SKILL_DIRS: [&str; 3] = ["skills", ".agents/skills", ".claude/skills"];

/// The folder of a directory that may hold tools: programs that a run offers to the model.
pub(super) const TOOL_DIR: &str = ".nanobot/tools";

/// The paths at which `directory` may hold instructions for the agent, or tools.
pub fn instruction_paths(directory: &Path) -> impl Iterator<Item = PathBuf> {
    text_paths(directory).chain([directory.join(TOOL_DIR)])
}

/// The paths at which `directory` may hold instructions for the agent. Each run stats those of a directory that is not
/// trusted, so one more name would cost every run one more system call.
pub(super) fn text_paths(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let names = std::iter::once("AGENTS.md").chain(SKILL_DIRS);
    names.map(|name| directory.join(name))
}

/// True if `file` is an instruction file of `directory` itself, not of a directory beneath it.
pub fn is_own_instruction_file(file: &Path, directory: &Path) -> bool {
    instruction_paths(directory).any(|path| file.starts_with(path))
}

/// True if there is an instruction file in `directory`.
pub fn has_instruction_files(directory: &Path) -> bool {
    directory.join("AGENTS.md").is_file()
        || skill_files(directory).next().is_some()
        || tool_files(directory).next().is_some()
}

/// The digests of all instruction files in `directory` and the directories beneath it, by relative path. Links are not
/// followed, and paths that are not UTF-8 are left out.
pub(super) fn digest_all(directory: &Path, key: &[u8; 16]) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(dir) = pending.pop() {
        let agents = read_agents_file(&dir)?;
        let agents = agents.map(|bytes| (dir.join("AGENTS.md"), bytes));
        let skills = skill_files(&dir);
        let skills = skills.filter_map(|path| read_skill(&path).map(|bytes| (path, bytes)));
        let tools = tool_files(&dir);
        let tools = tools.filter_map(|path| read_tool(&path).map(|bytes| (path, bytes)));
        for (path, bytes) in agents.into_iter().chain(skills).chain(tools) {
            let relative = path.strip_prefix(directory).unwrap_or(&path);
            if let Some(relative) = relative.to_str() {
                files.insert(relative.to_owned(), keyed_digest(key, &bytes));
            }
        }
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let is_generated = is_generated_dir(&entry.path());
            if !is_generated && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                pending.push(entry.path());
            }
        }
    }
    Ok(files)
}

/// Reads the AGENTS.md of `directory`, only if it is a regular file and no link.
pub(super) fn read_agents_file(directory: &Path) -> Result<Option<Vec<u8>>> {
    let what = || format!("read `{}`", directory.join("AGENTS.md").display());
    let root = match rooted_fs::RootDir::open(directory) {
        Ok(root) => root,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Ok(None),
        Err(error) => return Err(error).with_context(what),
    };
    let file = match root.open_for_reading(Path::new("AGENTS.md")) {
        Ok(file) => file,
        // A link may lead out of the trusted directory.
        Err(error)
            if error.kind() == std::io::ErrorKind::NotFound || rooted_fs::is_link(&error) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error).with_context(what),
    };
    if !file.metadata().with_context(what)?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(MAX_INSTRUCTIONS_BYTES).read_to_end(&mut bytes).with_context(what)?;
    Ok(Some(bytes))
}

/// The paths of the SKILL.md files of `directory`.
pub(super) fn skill_files(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let dirs = SKILL_DIRS.map(|name| directory.join(name)).into_iter();
    let entries = dirs.flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten());
    let paths = entries.map(|entry| entry.path().join("SKILL.md"));
    paths.filter(|path| path.symlink_metadata().is_ok())
}

/// The paths of the programs in the tool folder of `directory`.
pub(super) fn tool_files(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(directory.join(TOOL_DIR));
    let mut paths: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| is_program(path))
        .collect();
    paths.sort();
    paths.into_iter()
}

/// True if there is an executable file at `path`, which is no link: its target could be outside of the trusted directory.
fn is_program(path: &Path) -> bool {
    let metadata = path.symlink_metadata();
    metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Reads the program at `path`; `None` if it cannot be offered as a tool.
pub(super) fn read_tool(path: &Path) -> Option<Vec<u8>> {
    durable_file::read_limited(path, MAX_PROGRAM_BYTES).ok()?
}

/// Reads the SKILL.md at `path`; `None` if it would not be read as a skill either.
pub(super) fn read_skill(path: &Path) -> Option<Vec<u8>> {
    if !path.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_SKILL_BYTES + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_SKILL_BYTES).then_some(bytes)
}
