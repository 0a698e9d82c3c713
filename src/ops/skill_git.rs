//! Reads the files of a commit in a git repository elsewhere. git runs in the sandbox, reaches only the host of the repository, and reads
//! no config but its own defaults. Nothing is checked out: files are read as they are stored, so no hook, filter or submodule takes part.

use crate::ops::context::Context;
use crate::ops::permissions;
use crate::ops::turn_setup::toolset::hook_runner;
use crate::options::grants::{Grants, SandboxMode};
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::settings::Settings;
use nanobot_os::terminal::sanitize;
use nanobot_os::test_hooks;
use nanobot_store::skill::folder::{EntryType, FolderEntry};
use nanobot_store::skill::install::PackageEntry;
use nanobot_tool::archive::unpacked::MAX_ARCHIVE_BYTES;
use nanobot_tool::exec::ExecTool;
use nanobot_tool::exec::hook_call::HookCall;
use nanobot_tool::files::Files;
use nanobot_tool::host_proxy::{CommandHosts, HostTraffic};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use url::Url;

/// Maximum size of the list of a commit's files, in bytes.
const MAX_LIST_BYTES: usize = 8 << 20;
const GIT_TIMEOUT: Duration = Duration::from_secs(300);
/// The name of the profile whose permissions git has.
const PROFILE: &str = "default";

/// git without the config of the user and of the system. A file of more than 64 MiB, or 128, ends it: `ulimit -f` counts blocks of 512 bytes, or of 1024 in bash.
const GIT: &str = "ulimit -f 131072; export HOME=\"$PWD\" GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 LC_ALL=C; \
    unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_SSH_COMMAND GIT_ASKPASS SSH_ASKPASS; ";
/// Fetches a commit, and lists its files.
const FETCH: &str = "set -e; git init -q --bare --template= repository; cd repository; \
    git -c protocol.allow=never -c protocol.http.allow=always -c protocol.https.allow=always -c http.followRedirects=false \
    -c credential.helper= -c core.hooksPath=/dev/null -c transfer.fsckObjects=true -c gc.auto=0 \
    fetch -q --depth=1 --no-tags --no-recurse-submodules --no-write-fetch-head -- \"$SKILL_URL\" \"$SKILL_COMMIT\"; \
    test \"$(git cat-file -t \"$SKILL_COMMIT\")\" = commit; exec git ls-tree -r -l -z --full-tree \"$SKILL_COMMIT\"";
/// Prints the objects whose names are on standard input.
const READ: &str = "cd repository; exec git -c core.hooksPath=/dev/null cat-file --batch";

/// A file, link or submodule of a commit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommitEntry {
    /// The mode in octal digits, with the type of the entry.
    mode: String,
    object: String,
    /// `None` of a submodule.
    size: Option<u64>,
    pub(crate) path: String,
}

/// A commit in a repository of its own.
pub(crate) struct FetchedCommit {
    exec: ExecTool,
    url: Url,
    pub(crate) entries: Vec<CommitEntry>,
    /// Removed with the repository in it.
    _directory: TempDir,
}

impl FetchedCommit {
    /// Fetches `commit` from `url`, and lists its files.
    ///
    /// # Errors
    /// Status 69: it cannot be fetched. Status 77 if the config locks what git needs, or there is no sandbox.
    pub(crate) fn fetch(
        ctx: &Context,
        settings: &Settings,
        url: &Url,
        commit: &str,
    ) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("nanobot-skill-").tempdir();
        let directory = directory.context("create a directory for the repository")?;
        let exec = git_runner(ctx, settings, url, &directory)?;
        let variables = [("SKILL_URL", url.as_str()), ("SKILL_COMMIT", commit)];
        let listing = run(&exec, url, FETCH, Vec::new(), &variables, MAX_LIST_BYTES)?;
        let entries = parse_listing(&listing)
            .map_err(|cause| fail(Exit::BadInput, format!("`{url}`: {cause}")))?;
        Ok(Self { exec, url: url.clone(), entries, _directory: directory })
    }

    /// Reads the files whose paths `relative` maps to paths in the folder of the skill.
    ///
    /// # Errors
    /// Status 65: one is a link or a submodule, or they are too large.
    pub(crate) fn read(
        &self,
        relative: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Vec<PackageEntry>> {
        let refuse = |cause: String| fail(Exit::BadInput, format!("`{}`: {cause}", self.url));
        let mut entries = Vec::new();
        let mut objects = String::new();
        let mut total_bytes: u64 = 0;
        for entry in &self.entries {
            let Some(path) = relative(&entry.path) else {
                continue;
            };
            let what = match (entry.mode.as_str(), entry.size) {
                ("100644" | "100755", Some(size)) => {
                    let is_executable = entry.mode == "100755";
                    total_bytes = total_bytes.saturating_add(size);
                    objects.push_str(&entry.object);
                    objects.push('\n');
                    entries.push(FolderEntry {
                        path: path.into(),
                        entry_type: EntryType::File { size, is_executable },
                    });
                    continue;
                }
                ("120000", _) => "a link",
                ("160000", _) => "a submodule",
                _ => "neither a file nor a folder",
            };
            return Err(refuse(format!("`{}` in it is {what}", entry.path.escape_debug())));
        }
        if total_bytes > MAX_ARCHIVE_BYTES {
            return Err(refuse("its files are larger than 1 MiB in total".into()));
        }
        // Each object is printed with a header of less than a hundred bytes.
        let limit = usize::try_from(MAX_ARCHIVE_BYTES).unwrap_or(usize::MAX) + 100 * entries.len();
        let output = run(&self.exec, &self.url, READ, objects.into_bytes(), &[], limit)?;
        let bytes = split_objects(&output, &entries)
            .ok_or_else(|| refuse("git printed other files".into()))?;
        Ok(entries.into_iter().zip(bytes).collect())
    }
}

/// The tool that runs git in `directory`, where it may reach the host of `url`.
fn git_runner(
    ctx: &Context,
    settings: &Settings,
    url: &Url,
    directory: &TempDir,
) -> Result<ExecTool> {
    let host = url.host_str().unwrap_or_default();
    let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    let path = directory.path().canonicalize().context("resolve the directory")?;
    let grants = Grants {
        profile: Some(PROFILE.to_owned()),
        directory: Some(path.clone()),
        write: vec![path],
        net: Some(vec![host.clone()]),
        sandbox: Some(SandboxMode::Strict),
        ..Grants::default()
    };
    let policy = permissions::policy_of(ctx, &grants, settings)?;
    let files = Arc::new(Files::new(policy.file_scope.clone()).context("open the directory")?);
    let hosts = CommandHosts {
        hosts: vec![host],
        allowed_ranges: settings.web.allowed_ranges.clone(),
        test_hosts: test_hooks::HOSTS.get(&ctx.env).map(str::to_owned),
    };
    let exec = hook_runner(ctx, settings, &policy, &files);
    Ok(exec.with_hosts(hosts, &Arc::<HostTraffic>::default()))
}

/// Runs a script of git, and returns its output.
fn run(
    exec: &ExecTool,
    url: &Url,
    script: &str,
    input: Vec<u8>,
    variables: &[(&str, &str)],
    limit_bytes: usize,
) -> Result<Vec<u8>> {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let finished = exec.run_hook(HookCall {
        command: &format!("{GIT}{script}"),
        input,
        variables: variables.collect(),
        timeout: GIT_TIMEOUT,
        capture_bytes: limit_bytes,
    });
    let finished = finished.map_err(|cause| fail(Exit::Unavailable, format!("git: {cause}")))?;
    let result = finished.result;
    if let Some(stop) = result.stop {
        return Err(stop.into());
    }
    if !result.status.is_some_and(|status| status.success()) {
        let message = sanitize(&String::from_utf8_lossy(&finished.stderr));
        let last_line = message.lines().rev().find(|line| !line.trim().is_empty());
        let cause = format!("`{url}` cannot be fetched: {}", last_line.unwrap_or("git failed"));
        let hint = "a commit that is at the tip of a branch, or the archive of it";
        return Err(fail(Exit::Unavailable, cause).with_hint(hint));
    }
    if result.omitted_bytes > 0 {
        return Err(fail(Exit::BadInput, format!("`{url}` has too many files")));
    }
    Ok([result.head, result.tail].concat())
}

/// Parses what `git ls-tree -r -l -z` prints: mode, type, object, size and path of each file.
fn parse_listing(listing: &[u8]) -> Result<Vec<CommitEntry>, String> {
    let listing = std::str::from_utf8(listing).map_err(|_| "a path in it is not UTF-8")?;
    let lines = listing.split('\0').filter(|line| !line.is_empty());
    let entry = |line: &str| {
        let (head, path) = line.split_once('\t')?;
        let mut fields = head.split_whitespace();
        let (mode, _type, object) = (fields.next()?, fields.next()?, fields.next()?);
        Some(CommitEntry {
            mode: mode.to_owned(),
            object: object.to_owned(),
            size: fields.next()?.parse().ok(),
            path: path.to_owned(),
        })
    };
    lines.map(|line| entry(line).ok_or_else(|| "its list of files is damaged".to_owned())).collect()
}

/// Splits what `git cat-file --batch` prints: for each object a line `OBJECT blob SIZE`, its bytes, and a newline.
fn split_objects(output: &[u8], entries: &[FolderEntry]) -> Option<Vec<Vec<u8>>> {
    let mut rest = output;
    let mut contents = Vec::new();
    for entry in entries {
        let EntryType::File { size, .. } = entry.entry_type else {
            return None;
        };
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let (head, after) = (&rest[..end], &rest[end + 1..]);
        if !head.ends_with(format!(" blob {size}").as_bytes()) {
            return None;
        }
        let (bytes, after) = after.split_at_checked(usize::try_from(size).ok()?)?;
        rest = after.strip_prefix(b"\n")?;
        contents.push(bytes.to_vec());
    }
    rest.is_empty().then_some(contents)
}

#[cfg(test)]
mod tests {
    use super::{parse_listing, split_objects};
    use nanobot_store::skill::folder::{EntryType, FolderEntry};

    #[test]
    fn the_list_of_a_commit() {
        let listing = b"100644 blob aa      5\tSKILL.md\x00160000 commit bb       -\tsub\0";
        let entries = parse_listing(listing).unwrap();
        let text: Vec<String> = entries
            .iter()
            .map(|entry| format!("{} {:?} {}", entry.mode, entry.size, entry.path))
            .collect();
        assert_eq!(text, ["100644 Some(5) SKILL.md", "160000 None sub"]);
        assert!(
            parse_listing(b"junk\0").is_err()
                && parse_listing(b"100644 blob aa 5\t\xff\0").is_err()
        );
    }

    #[test]
    fn the_contents_of_files() {
        let entry = |size| FolderEntry {
            path: "a".into(),
            entry_type: EntryType::File { size, is_executable: false },
        };
        let check = |output: &[u8], sizes: &[u64], expect: Option<&[&[u8]]>| {
            let entries: Vec<FolderEntry> = sizes.iter().map(|size| entry(*size)).collect();
            let expect = expect.map(|expect| expect.iter().map(|bytes| bytes.to_vec()).collect());
            assert_eq!(split_objects(output, &entries), expect);
        };
        check(b"", &[], Some(&[]));
        check(b"aa blob 2\nx\n\nbb blob 0\n\n", &[2, 0], Some(&[b"x\n", b""]));
        check(b"aa missing\n", &[2], None);
        check(b"aa blob 3\nxyz\n", &[2], None);
        check(b"aa blob 2\nxy", &[2], None);
        check(b"aa blob 2\nxy\nmore", &[2], None);
    }
}
