//! Reads the config of a new repository, and takes out what could make git run a program. It understands git's syntax
//! only as far as git itself writes it: one key on each line. What is not understood is taken out too.

use super::new_repository::enclosing_git_dir;
use std::path::{Component, Path, PathBuf};

/// The permitted form of a config value.
#[derive(Clone, Copy)]
enum ValueKind {
    /// Any text: it never names a program, a path or a repository.
    Text,
    /// A truth value. Anything else would be a program.
    Boolean,
    /// The name of a remote. With a slash it would be the path of a repository.
    RemoteName,
    /// The address of another repository, with one of git's built-in schemes: other schemes name programs that fetch.
    /// Also the path of one, whose own hooks git may run: the caller decides on it.
    Url,
    /// The working tree of a submodule, relative to its git directory. With any other one, a checkout would write
    /// outside of the repository.
    Worktree,
}

/// The config keys that run nothing: section, true if the section has a subsection name, form of the values, keys with
/// blanks between them. `*` stands for every key. From git-config(1).
const HARMLESS_KEYS: &[(&str, bool, ValueKind, &str)] = &[
    (
        "core",
        false,
        ValueKind::Text,
        "repositoryformatversion filemode bare logallrefupdates ignorecase symlinks \
         precomposeunicode autocrlf eol safecrlf whitespace quotepath abbrev commentchar \
         commentstring trustctime checkstat untrackedcache splitindex preloadindex sparsecheckout \
         sparsecheckoutcone multipackindex commitgraph compression bigfilethreshold longpaths \
         fscache",
    ),
    ("core", false, ValueKind::Boolean, "fsmonitor"),
    ("core", false, ValueKind::Worktree, "worktree"),
    (
        "extensions",
        false,
        ValueKind::Text,
        "objectformat compatobjectformat refstorage worktreeconfig relativeworktrees \
         preciousobjects noop",
    ),
    ("extensions", false, ValueKind::RemoteName, "partialclone"),
    ("user", false, ValueKind::Text, "name email useconfigonly"),
    ("author", false, ValueKind::Text, "name email"),
    ("committer", false, ValueKind::Text, "name email"),
    ("init", false, ValueKind::Text, "defaultbranch"),
    ("remote", true, ValueKind::Url, "url pushurl"),
    (
        "remote",
        true,
        ValueKind::Text,
        "fetch push mirror tagopt prune prunetags promisor partialclonefilter skipdefaultupdate \
         skipfetchall followremotehead gh-resolved",
    ),
    ("remote", false, ValueKind::RemoteName, "pushdefault"),
    ("branch", true, ValueKind::RemoteName, "remote pushremote"),
    ("branch", true, ValueKind::Text, "merge rebase description vscode-merge-base gh-merge-base"),
    ("branch", false, ValueKind::Text, "autosetupmerge autosetuprebase sort"),
    ("submodule", true, ValueKind::Url, "url"),
    ("submodule", true, ValueKind::Text, "active branch ignore shallow fetchrecursesubmodules"),
    ("submodule", false, ValueKind::Text, "recurse fetchjobs active propagatebranches"),
    ("pull", false, ValueKind::Text, "rebase ff"),
    (
        "push",
        false,
        ValueKind::Text,
        "default autosetupremote followtags gpgsign recursesubmodules useforceifincludes",
    ),
    (
        "fetch",
        false,
        ValueKind::Text,
        "prune prunetags parallel all output recursesubmodules fsckobjects writecommitgraph \
         showforcedupdates negotiationalgorithm unpacklimit",
    ),
    ("commit", false, ValueKind::Text, "gpgsign verbose status cleanup"),
    ("tag", false, ValueKind::Text, "gpgsign forcesignannotated sort"),
    ("gpg", false, ValueKind::Text, "format"),
    (
        "merge",
        false,
        ValueKind::Text,
        "ff conflictstyle renames renamelimit directoryrenames log stat autostash verbosity",
    ),
    (
        "rebase",
        false,
        ValueKind::Text,
        "autosquash autostash updaterefs stat missingcommitscheck forkpoint rebasemerges \
         abbreviatecommands",
    ),
    ("rerere", false, ValueKind::Text, "enabled autoupdate"),
    (
        "diff",
        false,
        ValueKind::Text,
        "algorithm renames renamelimit colormoved colormovedws mnemonicprefix noprefix context \
         interhunkcontext indentheuristic submodule ignoresubmodules wserrorhighlight \
         statgraphwidth",
    ),
    ("color", false, ValueKind::Text, "*"),
    ("color", true, ValueKind::Text, "*"),
    ("column", false, ValueKind::Text, "*"),
    ("advice", false, ValueKind::Text, "*"),
    (
        "status",
        false,
        ValueKind::Text,
        "short branch aheadbehind showuntrackedfiles showstash submodulesummary relativepaths \
         renames",
    ),
    ("log", false, ValueKind::Text, "date decorate abbrevcommit follow showsignature showroot"),
    ("stash", false, ValueKind::Text, "showpatch showstat showincludeuntracked"),
    (
        "grep",
        false,
        ValueKind::Text,
        "linenumber column patterntype extendedregexp fullname threads",
    ),
    (
        "gc",
        false,
        ValueKind::Text,
        "auto autodetach autopacklimit pruneexpire reflogexpire reflogexpireunreachable \
         worktreepruneexpire writecommitgraph packrefs cruftpacks bigpackthreshold",
    ),
    ("maintenance", false, ValueKind::Text, "auto autodetach strategy"),
    ("maintenance", true, ValueKind::Text, "enabled schedule"),
    (
        "pack",
        false,
        ValueKind::Text,
        "threads window windowmemory depth compression packsizelimit usebitmaps writereverseindex",
    ),
    ("index", false, ValueKind::Text, "version threads sparse skiphash"),
    ("feature", false, ValueKind::Text, "manyfiles experimental"),
    ("i18n", false, ValueKind::Text, "commitencoding logoutputencoding"),
    ("worktree", false, ValueKind::Text, "guessremote userelativepaths"),
    ("checkout", false, ValueKind::Text, "guess workers"),
    (
        "receive",
        false,
        ValueKind::Text,
        "denycurrentbranch denynonfastforwards denydeletes fsckobjects",
    ),
    ("transfer", false, ValueKind::Text, "fsckobjects"),
    ("http", false, ValueKind::Text, "postbuffer lowspeedlimit lowspeedtime version"),
    ("lfs", false, ValueKind::Text, "repositoryformatversion"),
    ("lfs", true, ValueKind::Text, "access locksverify"),
];

/// A config without what could make git run a program.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HarmlessConfig {
    pub(super) text: Vec<u8>,
    /// The lines that were taken out, as `section.key = value`.
    pub(super) removed: Vec<String>,
}

/// The git directory of a config, and the repositories of this system that its remotes may be.
pub(super) struct ConfigPlace<'a> {
    pub(super) git_dir: &'a Path,
    /// True if the repository at this absolute path may be a remote.
    pub(super) permits: &'a dyn Fn(&Path) -> bool,
}

impl ConfigPlace<'_> {
    /// The outermost git directory, if the one of the config is within it.
    fn outer_git_dir(&self) -> Option<PathBuf> {
        enclosing_git_dir(self.git_dir).filter(|outer| outer != self.git_dir)
    }

    /// The absolute path of a remote. `None` for a relative one of a submodule or a linked worktree, which starts from
    /// another directory.
    fn absolute(&self, path: &str) -> Option<PathBuf> {
        let is_inner = self.outer_git_dir().is_some();
        let directory =
            if self.git_dir.ends_with(".git") { self.git_dir.parent()? } else { self.git_dir };
        (path.starts_with('/') || !is_inner).then(|| without_dots(&directory.join(path)))
    }

    /// True if `path` is a directory within the repository around a submodule.
    fn is_worktree(&self, path: &str) -> bool {
        let outer = self.outer_git_dir();
        let Some(top) = outer.as_deref().and_then(Path::parent) else {
            return false;
        };
        let path = without_dots(&self.git_dir.join(path));
        path.starts_with(top) && path != top && enclosing_git_dir(&path).is_none()
    }
}

/// Takes out of `config` what could make git run a program. Returns `None` for what is not text.
pub(super) fn without_programs(config: &[u8], place: &ConfigPlace<'_>) -> Option<HarmlessConfig> {
    let text = std::str::from_utf8(config).ok()?;
    let (mut kept, mut removed) = (Vec::new(), Vec::new());
    // The current section, and its header until a line of it is kept.
    let (mut section, mut header) = (None, None);
    for whole in text.split('\n') {
        let line = whole.trim_matches([' ', '\t']);
        let is_plain = !line.contains(|letter: char| letter.is_control() && letter != '\t');
        if is_plain && (line.is_empty() || line.starts_with(['#', ';'])) {
            kept.push(whole);
        } else if is_plain && line.starts_with('[') {
            section = SectionHeader::parse(line);
            header = Some(whole);
            if section.is_none() {
                removed.push(line.to_owned());
            }
        } else if let Some(section) = section.as_ref().filter(|_| is_plain)
            && section.permits_line(line, place)
        {
            kept.extend(header.take());
            kept.push(whole);
        } else {
            let name = section.as_ref().map(SectionHeader::name);
            removed.push(format!("{}.{line}", name.unwrap_or_default()));
        }
    }
    let text = kept.join("\n").into_bytes();
    Some(HarmlessConfig { text, removed })
}

/// The header of a section, `[core]` or `[remote "origin"]`.
pub(super) struct SectionHeader<'a> {
    pub(super) section: String,
    pub(super) subsection: Option<&'a str>,
}

impl<'a> SectionHeader<'a> {
    /// Parses a line that is entirely a header.
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        let inner = line.strip_prefix('[')?.strip_suffix(']')?;
        let (section, subsection) = match inner.split_once(' ') {
            None => (inner, None),
            Some((section, quoted)) => {
                let name = quoted.strip_prefix('"')?.strip_suffix('"')?;
                (section, Some(name))
            }
        };
        let is_name =
            !section.is_empty() && section.bytes().all(|byte| byte.is_ascii_alphanumeric());
        // Git itself refuses such names of submodules: they are parts of paths.
        let is_plain = |name: &str| !name.contains(['"', '\\']) && !name.contains("..");
        (is_name && subsection.is_none_or(is_plain))
            .then(|| Self { section: section.to_ascii_lowercase(), subsection })
    }

    pub(super) fn name(&self) -> String {
        let section = &self.section;
        self.subsection.map_or_else(|| section.clone(), |name| format!("{section}.{name}"))
    }

    /// True if the config at `place`, of a new repository, may have the line.
    pub(super) fn permits_line(&self, line: &str, place: &ConfigPlace<'_>) -> bool {
        // A key alone stands for true.
        let (key, value) = line.split_once('=').unwrap_or((line, "true"));
        let blank = [' ', '\t'];
        let key = key.trim_end_matches(blank).to_ascii_lowercase();
        let is_key = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let Some(value) = plain_value(value.trim_matches(blank)).filter(|_| is_key) else {
            return false;
        };
        HARMLESS_KEYS
            .iter()
            .filter(|(section, has_subsection, _, keys)| {
                *section == self.section
                    && *has_subsection == self.subsection.is_some()
                    && keys.split(' ').any(|name| name == key || name == "*")
            })
            .any(|(_, _, kind, _)| match kind {
                ValueKind::Text => true,
                ValueKind::Boolean => ["true", "false", "yes", "no", "on", "off", "0", "1"]
                    .contains(&&*value.to_ascii_lowercase()),
                ValueKind::RemoteName => is_remote_name(&value),
                ValueKind::Worktree => value.starts_with("..") && place.is_worktree(&value),
                ValueKind::Url => match local_path(&value) {
                    Some(path) => place.absolute(path).is_some_and(|path| (place.permits)(&path)),
                    None => is_remote_address(&value),
                },
            })
    }
}

/// The value that git reads from `text`, if that is as git writes it: quoted as a whole or not at all.
pub(super) fn plain_value(text: &str) -> Option<String> {
    let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let mut value = String::new();
    let mut letters = quoted.unwrap_or(text).chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => value.push(letters.next().filter(|next| ['"', '\\'].contains(next))?),
            '"' => return None,
            // The beginning of a comment.
            '#' | ';' if quoted.is_none() => return None,
            other => value.push(other),
        }
    }
    Some(value)
}

/// True if no URL, path or option can have this name. A dot is the repository itself.
fn is_remote_name(name: &str) -> bool {
    let is_safe = |letter: char| letter.is_alphanumeric() || "._+@-".contains(letter);
    let is_first = |letter: char| is_safe(letter) && !"-.".contains(letter);
    name == "." || name.starts_with(is_first) && name.chars().all(is_safe)
}

/// The path of a repository of this system that a remote's address is, if it is one: absolute, relative, or with the
/// scheme `file`.
fn local_path(address: &str) -> Option<&str> {
    let path = address.strip_prefix("file://").unwrap_or(address);
    // A colon before the first slash makes it a host.
    let is_host = path.split('/').next().is_some_and(|part| part.contains(':'));
    (!path.is_empty() && !path.starts_with('-') && !path.contains("::") && !is_host).then_some(path)
}

/// True for the address of a repository on another system that git itself can reach: by a scheme, or `host:path`.
fn is_remote_address(address: &str) -> bool {
    let is_safe = |letter: char| letter.is_alphanumeric() || "/._~:@+%=?&,!()[]-".contains(letter);
    let schemes = ["https://", "http://", "ssh://", "git://", "git+ssh://"];
    let rest = match schemes.iter().find_map(|scheme| address.strip_prefix(scheme)) {
        None if address.contains("//") => return false,
        rest => rest.unwrap_or(address),
    };
    // A host that begins with a dash would be an option of ssh.
    let host = rest.split('/').next().unwrap_or(rest);
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    ![rest, host].iter().any(|part| part.is_empty() || part.starts_with('-'))
        && rest.chars().all(is_safe)
        && !rest.contains("::")
}

/// `path` without `.` and `..`, by its words alone.
pub(super) fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = plain.pop(),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::{ConfigPlace, without_programs};
    use std::path::Path;

    #[test]
    fn harmless_configs() {
        let permits = |path: &Path| path == Path::new("/a/b.git") || path == Path::new("/w/x y");
        let filter_in = |git_dir: &str, text: &[u8]| {
            let git_dir = Path::new(git_dir);
            let permits = &permits;
            without_programs(text, &ConfigPlace { git_dir, permits })
        };
        let filter = |text: &[u8]| filter_in("/w/new/.git", text);
        let check = |text: &str, expect: bool| {
            let found = filter(text.as_bytes()).unwrap();
            assert_eq!(found.removed.is_empty(), expect, "{text}: {found:?}");
            // What is left is harmless, and nothing harmless is changed.
            assert_eq!(found.text == text.as_bytes(), expect, "{text}");
            assert!(filter(&found.text).unwrap().removed.is_empty(), "{text}");
        };
        check("", true);
        check("[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n", true);
        check("[user]\n\tname = A\n\temail = a@b\n# x\n", true);
        check(
            "[remote \"origin\"]\n\turl = https://x.org/y\n\tfetch = +refs/heads/*:refs/x/*\n",
            true,
        );
        check("[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n", true);
        check("[core]\n\tfsmonitor = ./x\n", false);
        check("[core]\n\tBARE = false\n\tsshCommand = x\n", false);
        check("[core]\n\tbare = false \\\n\tx\n", false);
        check("[alias]\n\tst = !x\n", false);
        check("[alias] st = !x\n", false);
        check("[include]\n\tpath = ../x\n", false);
        check("[remote \"o\"]\n\turl = ext::sh -c x\n", false);
        check("[remote \"o\"]\n\turl = /a/b.git\n", true);
        check("[remote \"o\"]\n\turl = ../b\n", false);
        check("[remote \"o\"]\n\tuploadpack = x\n", false);
        check("[filter \"x\"]\n\tclean = x\n", false);
        check("bare = false\n", false);
        check("[core]\n\thookspath = x\n", false);
        assert_eq!(filter(b"[core]\n\xff"), None);
        // Headers, and text after them on the same line.
        check("[core] fsmonitor = \"touch x; false\" #]\n", false);
        check("[core] fsmonitor = x ;]\n", false);
        check("[core]fsmonitor=x[]\n", false);
        check("[core] bare = false\n", false);
        check("[core]]\n", false);
        check("[core] # x\n", false);
        check("[core\n", false);
        check("[]\n", false);
        check("[ core ]\n", false);
        check("[core \"x\"]\n\tbare = false\n", false);
        check("[remote]\n\turl = https://x.org/y\n", false);
        check("[remote \"a\\\"b\"]\n", false);
        check("[remote \"a\"] url = ext::x \"]\n", false);
        check("[remote.origin]\n\turl = https://x.org/y\n", false);
        check("[branch \"feature/a-1.2\"]\n\tremote = up\n", true);
        check("[includeIf \"gitdir:x\"]\n\tpath = ../x\n", false);
        check("[CORE]\n\tBare = false\n", true);
        // Values.
        check("[core]\n\tbare\n", true);
        check("[core]\n\tbare = false # x\n", false);
        check("[core]\n\tbare = \"false\"\n", true);
        check("[core]\n\tbare = \"fal\"se\n", false);
        check("[core]\n\tbare = a\\\n\tfsmonitor = x\n", false);
        check("[user]\n\tname = A \\\n", false);
        check("[user]\n\tname = \"A\n", false);
        check("[user]\n\tname = Zo\u{eb} O'Neil (x)\n", true);
        check("[user]\n\tname = A # B\n", false);
        check("[branch \"a\"]\n\tremote = ext::sh -c x\n", false);
        check("[branch \"a\"]\n\tremote = ../x\n", false);
        check("[branch \"a\"]\n\tremote = x/y\n", false);
        check("[branch \"a\"]\n\tremote = .\n", true);
        check("[branch \"a\"]\n\tremote = --upload-pack=x\n", false);
        check("[remote \"a\"]\n\turl = ssh://-oProxyCommand=x/y\n", false);
        check("[remote \"a\"]\n\turl = git@x.org:y/z.git\n", true);
        // Separators that git may treat as line breaks or white space.
        check("[core]\r\n\tbare = false\r\n", false);
        check("[core]\r\tfsmonitor = x\n", false);
        check("# x\r[core]\n", false);
        check("\u{feff}[core]\n", false);
        check("[core]\n\u{a0}bare = false\n", false);
        check("[core]\n\u{b}bare = false\n", false);
        check("[core]\n  bare\t=\tfalse \t\n", true);
        check("[core]\n\tworktree = ..\n", false);
        let in_module = |text: &str| {
            let found = filter_in("/w/new/.git/modules/lib", text.as_bytes());
            found.unwrap().removed.is_empty()
        };
        assert!(in_module("[core]\n\tworktree = ../../../sub-1\n"));
        assert!(!in_module("[core]\n\tworktree = ../../..\n"));
        assert!(!in_module("[core]\n\tworktree = ../../../..\n"));
        assert!(!in_module("[core]\n\tworktree = /w/new/sub\n"));
        assert!(!in_module("[core]\n\tworktree = ../../hooks\n"));
        assert!(!in_module("[remote \"o\"]\n\turl = ../x y\n"));
        assert!(in_module("[remote \"o\"]\n\turl = /a/b.git\n"));
        check("[core]\n\tworktree = /etc\n", false);
        check("[submodule \"lib\"]\n\turl = https://x.org/y\n\tactive = true\n", true);
        // What git and its users write.
        for line in [
            "[core]\n\tfsmonitor = false\n\tsparseCheckout = true\n\tcommentChar = \";\"\n",
            "[extensions]\n\tpartialClone = origin\n\tworktreeConfig = true\n",
            "[remote \"origin\"]\n\ttagOpt = --no-tags\n\tmirror = true\n\tpromisor = true\n\tpartialclonefilter = blob:none\n",
            "[remote \"o\"]\n\turl = http://x.org:8080/y?a=b\n\tpushurl = me@x:y/z.git\n",
            "[remote \"o\"]\n\turl = file:///a/b.git\n[remote \"p\"]\n\turl = ../../a/b.git\n",
            "[remote \"o\"]\n\turl = ../x y\n",
            "[branch \"fix/#12\"]\n\tremote = origin\n\tmerge = \"refs/heads/fix/#12\"\n\trebase = true\n",
            "[push]\n\tdefault = current\n\tautoSetupRemote = true\n[color]\n\tui = auto\n[rerere]\n\tenabled\n",
            "[user]\n\tname = \"A # \\\"B\\\"\"\n",
        ] {
            check(line, true);
        }
        for line in [
            "[gc]\n\trecentObjectsHook = x\n",
            "[remote \"o\"]\n\turl = foo://x/y\n",
            "[remote \"o\"]\n\turl = -oProxyCommand=x:y\n",
            "[remote \"o\"]\n\turl = a::/a/b.git\n",
            "[remote \"o\"]\n\turl = me@-x:y\n",
            "[remote \"o\"]\n\tvcs = x\n",
            "[submodule \"a/../../b\"]\n\tactive = true\n",
            "[submodule \"a\"]\n\tupdate = !x\n",
            "[url \"ext::x\"]\n\tinsteadOf = https://x.org\n",
            "[core]\n\tpager = less\n",
            "[diff \"x\"]\n\ttextconv = y\n",
        ] {
            check(line, false);
        }
        let found =
            filter(b"# mine\n[core]\n\tbare = false\n\tfsmonitor = ./x\n[alias]\n\tst = !y\n");
        let found = found.unwrap();
        assert_eq!(found.text, b"# mine\n[core]\n\tbare = false\n");
        assert_eq!(found.removed, ["core.fsmonitor = ./x", "alias.st = !y"]);
    }
}
