//! The source of a skill to add: a directory or file here, a built-in skill, an archive at an `https` address, or a commit of a git
//! repository there. What comes from elsewhere has files only, at most 1 MiB of them, and no path that leads out of its folder.

use crate::ops::context::Context;
use crate::ops::skill_git;
use crate::ops::skill_package::SkillPackage;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::settings::Settings;
use nanobot_net::content_digest::sha256_hex;
use nanobot_net::http::{Http, HttpMethod, HttpTimeouts};
use nanobot_net::web_url;
use nanobot_store::skill::BuiltInSkill;
use nanobot_store::skill::folder::{EntryType, FolderEntry};
use nanobot_store::skill::install::{PackageEntry, check_paths};
use nanobot_tool::archive;
use nanobot_tool::archive::unpacked::MAX_ARCHIVE_BYTES;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use url::Url;

const TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(10),
    first_byte: Duration::from_secs(30),
    idle: Duration::from_secs(30),
    total: Duration::from_secs(120),
};
/// Digits of the id of a commit: of SHA-1, and of SHA-256.
const COMMIT_DIGITS: [usize; 2] = [40, 64];
/// Maximum number of folders that an error lists.
const MAX_LISTED_FOLDERS: usize = 10;

/// The source of a skill.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PackageSource<'a> {
    /// A directory, a SKILL.md, or the name of a built-in skill.
    Local(&'a Path),
    Archive {
        url: Url,
        /// The folder in it; `None` for the only one with a SKILL.md.
        folder: Option<String>,
    },
    Commit {
        url: Url,
        /// The whole id, in lower case.
        commit: String,
        folder: Option<String>,
    },
}

/// A skill that was read from its source.
pub(crate) struct SourcedPackage {
    pub(crate) package: SkillPackage,
    /// The SHA-256 digest of the archive; `None` of another source.
    pub(crate) digest: Option<String>,
}

impl<'a> PackageSource<'a> {
    /// Parses the argument of a command.
    ///
    /// # Errors
    /// Status 2: an address that is not one of an archive or of a commit.
    pub(crate) fn parse(argument: &'a Path) -> Result<Self> {
        let text = argument.to_str().unwrap_or_default();
        let Some((scheme, _)) = text.split_once("://") else {
            return Ok(Self::Local(argument));
        };
        let usage = |cause: &str| {
            let hint = "`https://HOST/NAME.zip`, `.tar.gz`, or `https://HOST/REPOSITORY@COMMIT`; `#FOLDER` after it";
            fail(Exit::Usage, format!("`{text}` {cause}")).with_hint(hint)
        };
        let (address, folder) = text.split_once('#').unwrap_or((text, ""));
        let folder = folder.trim_matches('/');
        let folder = (!folder.is_empty()).then(|| folder.to_owned());
        if let Some(folder) = &folder {
            check_paths([folder.as_str()].into_iter()).map_err(|cause| usage(&cause))?;
        }
        let is_commit = |text: &str| {
            COMMIT_DIGITS.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let (address, commit) = match address.rsplit_once('@') {
            Some((address, commit)) if is_commit(commit) => (address, Some(commit)),
            Some((_, rest)) if !rest.contains('/') => {
                return Err(usage("has no whole commit id after its `@`"));
            }
            _ => (address, None),
        };
        let url =
            web_url::parse(address).map_err(|cause| usage(&format!("cannot be used: {cause}")))?;
        if scheme != "https" && !url.host_str().is_some_and(web_url::is_loopback) {
            return Err(usage("is not encrypted"));
        }
        if commit.is_none() && url.path().ends_with(".git") {
            return Err(usage("names a repository, but no commit of it"));
        }
        Ok(match commit {
            Some(commit) => Self::Commit { url, commit: commit.to_ascii_lowercase(), folder },
            None => Self::Archive { url, folder },
        })
    }

    /// True if the skill comes from elsewhere.
    pub(crate) fn is_remote(&self) -> bool {
        !matches!(self, Self::Local(_))
    }

    /// Reads the skill. An archive must have the SHA-256 `digest`, if there is one.
    ///
    /// # Errors
    /// Status 66: there is nothing. Status 65: it is not a valid skill, or has another digest. Status 69: it cannot be fetched.
    pub(crate) fn read(
        &self,
        ctx: &Context,
        settings: &Settings,
        digest: Option<&str>,
    ) -> Result<SourcedPackage> {
        match self {
            Self::Local(path) => {
                let is_name = !path.exists();
                let name = path.to_str().filter(|_| is_name);
                let package = match name.and_then(BuiltInSkill::by_name) {
                    Some(built_in) => SkillPackage::from_built_in(ctx, built_in)?,
                    None => SkillPackage::read(ctx, path)?,
                };
                Ok(SourcedPackage { package, digest: None })
            }
            Self::Archive { url, folder } => {
                let bytes = download(ctx, settings, url)?;
                let actual = sha256_hex(&bytes);
                if let Some(digest) = digest.filter(|digest| !digest.eq_ignore_ascii_case(&actual))
                {
                    let cause = format!("`{url}` has the SHA-256 digest {actual}, not {digest}");
                    return Err(fail(Exit::BadInput, cause));
                }
                let files = archive::unpack(url.as_str(), &bytes)?;
                let files = files.into_iter().map(|file| {
                    let size = file.bytes.len() as u64;
                    let is_executable = file.is_executable;
                    (file.path, EntryType::File { size, is_executable }, file.bytes)
                });
                let files: Vec<_> = files.collect();
                let paths: Vec<&str> = files.iter().map(|(path, _, _)| path.as_str()).collect();
                let chosen = choose_folder(&paths, folder.as_deref())
                    .map_err(|cause| fail(Exit::BadInput, format!("`{url}`: {cause}")))?;
                let entries = files.into_iter().filter_map(|(path, entry_type, bytes)| {
                    let path = chosen.relative(&path)?.into();
                    Some((FolderEntry { path, entry_type }, bytes))
                });
                let package = package(ctx, &chosen, url, entries.collect())?;
                Ok(SourcedPackage { package, digest: Some(actual) })
            }
            Self::Commit { url, commit, folder } => {
                let fetched_commit = skill_git::FetchedCommit::fetch(ctx, settings, url, commit)?;
                let paths: Vec<&str> =
                    fetched_commit.entries.iter().map(|entry| entry.path.as_str()).collect();
                let chosen = choose_folder(&paths, folder.as_deref())
                    .map_err(|cause| fail(Exit::BadInput, format!("`{url}`: {cause}")))?;
                let entries =
                    fetched_commit.read(&|path| chosen.relative(path).map(str::to_owned))?;
                let package = package(ctx, &chosen, url, entries)?;
                Ok(SourcedPackage { package, digest: None })
            }
        }
    }
}

/// The skill in the files of `chosen`, which come from `url`.
fn package(
    ctx: &Context,
    chosen: &ChosenFolder,
    url: &Url,
    entries: Vec<PackageEntry>,
) -> Result<SkillPackage> {
    let in_address = || url.path_segments().and_then(|mut names| names.next_back());
    let name = chosen.0.rsplit('/').next().filter(|name| !name.is_empty()).or_else(in_address);
    SkillPackage::new(ctx, name.unwrap_or_default(), entries, Vec::new(), Vec::new())
}

/// Fetches an archive from the public internet, over TLS.
fn download(ctx: &Context, settings: &Settings, url: &Url) -> Result<Vec<u8>> {
    let context = || format!("fetch `{url}`");
    let http = Http::public_only(TIMEOUTS, &settings.network, &ctx.env);
    let response = http.request(url.as_str(), &[], HttpMethod::Get).with_context(context)?;
    match response.status {
        200..300 => {}
        404 | 410 => return Err(fail(Exit::NoInput, format!("there is no `{url}`"))),
        status => {
            let cause = format!("fetch `{url}`: the server responded with status {status}");
            return Err(fail(Exit::Unavailable, cause));
        }
    }
    let bytes = response.read_body(MAX_ARCHIVE_BYTES + 1, None).with_context(context)?;
    if bytes.len() as u64 > MAX_ARCHIVE_BYTES {
        return Err(fail(Exit::BadInput, format!("`{url}` is larger than 1 MiB")));
    }
    Ok(bytes)
}

/// The folder of the skill among fetched files: its path without a slash at the end, empty for the top.
struct ChosenFolder(String);

impl ChosenFolder {
    /// The path within the folder; `None` if `path` is not in it.
    fn relative<'p>(&self, path: &'p str) -> Option<&'p str> {
        let path = plain_path(path);
        if self.0.is_empty() {
            return Some(path);
        }
        path.strip_prefix(&self.0)?.strip_prefix('/')
    }
}

/// Some archives begin each path with this.
fn plain_path(path: &str) -> &str {
    path.strip_prefix("./").unwrap_or(path)
}

/// Chooses the folder of the skill among the files at `paths`, and checks their paths. A `wanted` one may lack the folder that is around
/// all files.
fn choose_folder(paths: &[&str], wanted: Option<&str>) -> Result<ChosenFolder, String> {
    let folders: BTreeSet<&str> = paths
        .iter()
        .filter_map(|path| plain_path(path).strip_suffix("SKILL.md"))
        .filter(|folder| folder.is_empty() || folder.ends_with('/'))
        .map(|folder| folder.trim_end_matches('/'))
        .collect();
    let matches = |folder: &&&str| match wanted {
        None => true,
        Some(wanted) => {
            **folder == wanted || folder.split_once('/').is_some_and(|(_, rest)| rest == wanted)
        }
    };
    let candidates: Vec<&str> = folders.iter().filter(matches).copied().collect();
    let chosen = match candidates.as_slice() {
        [folder] => ChosenFolder((*folder).to_owned()),
        // A skill at the top may have examples with a SKILL.md of their own.
        ["", ..] => ChosenFolder(String::new()),
        [] if folders.is_empty() => return Err("it has no SKILL.md".into()),
        [] => return Err(format!("it has no SKILL.md there, but in {}", list(&folders))),
        _ => {
            return Err(format!(
                "it has several skills; add `#FOLDER` to its address: {}",
                list(&folders)
            ));
        }
    };
    check_paths(paths.iter().filter_map(|path| chosen.relative(path)))?;
    // A path out of the folder is no file of the skill, and still a reason to take nothing from there.
    let leads_out = |path: &&str| path.starts_with('/') || path.split('/').any(|name| name == "..");
    check_paths(paths.iter().map(|path| plain_path(path)).filter(leads_out))?;
    Ok(chosen)
}

fn list(folders: &BTreeSet<&str>) -> String {
    let names: Vec<String> = folders
        .iter()
        .take(MAX_LISTED_FOLDERS)
        .map(|folder| format!("`{}`", folder.escape_debug()))
        .collect();
    let more = if folders.len() > MAX_LISTED_FOLDERS { " …" } else { "" };
    names.join(", ") + more
}

#[cfg(test)]
mod tests {
    use super::{PackageSource, choose_folder};
    use std::path::Path;

    #[test]
    fn sources() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let check = |text: &str, expect: &str| {
            let source = PackageSource::parse(Path::new(text));
            let actual = match source {
                Ok(PackageSource::Local(_)) => "local".to_owned(),
                Ok(PackageSource::Archive { url, folder }) => format!("{url} {folder:?}"),
                Ok(PackageSource::Commit { url, commit, folder }) => {
                    format!("{url} {} {folder:?}", &commit[..4])
                }
                Err(error) => error.to_string(),
            };
            assert!(actual.contains(expect), "{text}: {actual}");
        };
        check("skills/tea", "local");
        check("weather", "local");
        check("https://a.example/x.zip", "https://a.example/x.zip None");
        check(
            "https://a.example/x.tgz#skills/tea/",
            "https://a.example/x.tgz Some(\"skills/tea\")",
        );
        check(
            &format!("https://a.example/u/r@{commit}#tea"),
            "https://a.example/u/r 0123 Some(\"tea\")",
        );
        check(&format!("https://a.example/r.git@{commit}"), "https://a.example/r.git 0123 None");
        check("https://a.example/u/r@main", "has no whole commit id");
        check("https://a.example/u/r@0123456", "has no whole commit id");
        check("https://a.example/r.git", "no commit of it");
        check("http://a.example/x.zip", "is not encrypted");
        check("https://me:pw@a.example/x.zip", "user name or a password");
        check("git://a.example/x", "is not `http` or `https`");
        check("https://a.example/x.zip#../up", "`..`");
    }

    #[test]
    fn the_folder_of_a_skill() {
        let check = |paths: &[&str], wanted: Option<&str>, expect: &str| {
            let actual = choose_folder(paths, wanted).map_or_else(|cause| cause, |chosen| chosen.0);
            assert!(
                actual.contains(expect) && (!expect.is_empty() || actual.is_empty()),
                "{paths:?}: {actual}"
            );
        };
        check(&["SKILL.md", "a/SKILL.md"], None, "");
        check(&["./SKILL.md", "./a.md"], None, "");
        check(&["r-1/SKILL.md", "r-1/a.md"], None, "r-1");
        check(&["r/a/SKILL.md", "r/b/SKILL.md"], None, "several skills");
        check(&["r/a/SKILL.md", "r/b/SKILL.md"], Some("b"), "r/b");
        check(&["r/a/SKILL.md", "r/b/SKILL.md"], Some("r/b"), "r/b");
        check(&["r/a/SKILL.md"], Some("c"), "there, but in `r/a`");
        check(&["r/README.md", "r/NOT-SKILL.md"], None, "no SKILL.md");
        check(&["r/SKILL.md", "../x"], None, "`..`");
        check(&["r/SKILL.md", "/etc/x"], None, "absolute");
        check(&["r/SKILL.md", "r/A.md", "r/a.md"], None, "differ in case only");
    }
}
