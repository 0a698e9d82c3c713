//! Decides what the config of a repository that commands created may contain, and which keys of an older config they may
//! change. They may always change what branches track, the user's name, which files are checked out, and habits such as
//! whether a pull rebases. Unless the conversation has untrusted content, they may also change remotes, submodules and the other keys that
//! a new repository may have. All other keys must stay unchanged, above all those that make git run a program.

use super::git_config::{ConfigEntry, format, parse_plain, without_dots};
use super::new_repository::enclosing_git_dir;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The permitted form of a config value.
#[derive(Clone, Copy)]
enum ValueKind {
    /// Any text: it never names a program, a path or a repository.
    Text,
    /// A truth value. Anything else would be a program.
    Boolean,
    /// The name of a remote: [`names_remote`] decides on it.
    RemoteName,
    /// The address of another repository, with one of git's built-in schemes: other schemes name programs that fetch.
    /// Or the path of a repository, whose own hooks git may run: [`ConfigPolicy::permits_remote`] decides on it.
    Url,
    /// The working tree of a submodule, relative to its git directory. With any other one, a checkout would write
    /// outside of the repository.
    Worktree,
}

/// Keys of a section that run no program, with blanks between them.
struct KeyRule {
    section: &'static str,
    /// True if the keys belong to a subsection.
    has_subsection: bool,
    kind: ValueKind,
    /// The keys that commands may always change. They weaken no check.
    always: &'static str,
    /// The keys that a new repository may have, and that commands may change in others while the conversation has no untrusted content. `*`
    /// means every key.
    of_new: &'static str,
}

const fn keys(section: &'static str, always: &'static str, of_new: &'static str) -> KeyRule {
    KeyRule { section, has_subsection: false, kind: ValueKind::Text, always, of_new }
}

const fn subsection_keys(
    section: &'static str,
    kind: ValueKind,
    always: &'static str,
    of_new: &'static str,
) -> KeyRule {
    KeyRule { section, has_subsection: true, kind, always, of_new }
}

const fn keys_of(kind: ValueKind, section: &'static str, of_new: &'static str) -> KeyRule {
    KeyRule { section, has_subsection: false, kind, always: "", of_new }
}

/// The keys that run no program, from git-config(1).
const KEY_RULES: &[KeyRule] = &[
    keys(
        "core",
        "abbrev quotepath whitespace commentchar sparsecheckout sparsecheckoutcone repositoryformatversion",
        "filemode bare logallrefupdates ignorecase symlinks precomposeunicode autocrlf eol safecrlf commentstring trustctime \
         checkstat untrackedcache splitindex preloadindex multipackindex commitgraph compression bigfilethreshold longpaths \
         fscache",
    ),
    keys_of(ValueKind::Boolean, "core", "fsmonitor"),
    keys_of(ValueKind::Worktree, "core", "worktree"),
    keys(
        "extensions",
        "worktreeconfig",
        "objectformat compatobjectformat refstorage relativeworktrees preciousobjects noop",
    ),
    keys_of(ValueKind::RemoteName, "extensions", "partialclone"),
    keys("user", "name email", "useconfigonly"),
    keys("author", "", "name email"),
    keys("committer", "", "name email"),
    keys("init", "defaultbranch", ""),
    subsection_keys("remote", ValueKind::Url, "", "url pushurl"),
    subsection_keys(
        "remote",
        ValueKind::Text,
        "",
        "fetch push mirror tagopt prune prunetags promisor partialclonefilter skipdefaultupdate skipfetchall followremotehead \
         gh-resolved",
    ),
    keys_of(ValueKind::RemoteName, "remote", "pushdefault"),
    subsection_keys("branch", ValueKind::RemoteName, "remote pushremote", ""),
    subsection_keys(
        "branch",
        ValueKind::Text,
        "merge rebase description vscode-merge-base gh-merge-base",
        "",
    ),
    keys("branch", "", "autosetupmerge autosetuprebase sort"),
    subsection_keys("submodule", ValueKind::Url, "", "url"),
    subsection_keys(
        "submodule",
        ValueKind::Text,
        "",
        "active branch ignore shallow fetchrecursesubmodules",
    ),
    keys("submodule", "", "recurse fetchjobs active propagatebranches"),
    keys("pull", "rebase ff", ""),
    keys(
        "push",
        "default autosetupremote followtags",
        "gpgsign recursesubmodules useforceifincludes",
    ),
    keys(
        "fetch",
        "prune prunetags",
        "parallel all output recursesubmodules fsckobjects writecommitgraph showforcedupdates negotiationalgorithm unpacklimit",
    ),
    keys("commit", "", "gpgsign verbose status cleanup"),
    keys("tag", "", "gpgsign forcesignannotated sort"),
    keys("gpg", "", "format"),
    keys(
        "merge",
        "ff conflictstyle",
        "renames renamelimit directoryrenames log stat autostash verbosity",
    ),
    keys(
        "rebase",
        "autosquash autostash updaterefs stat",
        "missingcommitscheck forkpoint rebasemerges abbreviatecommands",
    ),
    keys("rerere", "enabled autoupdate", ""),
    keys(
        "diff",
        "algorithm renames colormoved mnemonicprefix context",
        "renamelimit colormovedws noprefix interhunkcontext indentheuristic submodule ignoresubmodules wserrorhighlight \
         statgraphwidth",
    ),
    keys("color", "ui diff status branch", "*"),
    subsection_keys("color", ValueKind::Text, "", "*"),
    keys("column", "", "*"),
    keys("advice", "", "*"),
    keys(
        "status",
        "short branch showstash showuntrackedfiles",
        "aheadbehind submodulesummary relativepaths renames",
    ),
    keys("log", "date decorate abbrevcommit", "follow showsignature showroot"),
    keys("stash", "", "showpatch showstat showincludeuntracked"),
    keys("grep", "", "linenumber column patterntype extendedregexp fullname threads"),
    keys(
        "gc",
        "",
        "auto autodetach autopacklimit pruneexpire reflogexpire reflogexpireunreachable worktreepruneexpire writecommitgraph \
         packrefs cruftpacks bigpackthreshold",
    ),
    keys("maintenance", "", "auto autodetach strategy"),
    subsection_keys("maintenance", ValueKind::Text, "", "enabled schedule"),
    keys(
        "pack",
        "",
        "threads window windowmemory depth compression packsizelimit usebitmaps writereverseindex",
    ),
    keys("index", "", "version threads sparse skiphash"),
    keys("feature", "", "manyfiles experimental"),
    keys("i18n", "", "commitencoding logoutputencoding"),
    keys("worktree", "", "guessremote userelativepaths"),
    keys("checkout", "", "guess workers"),
    keys("receive", "", "denycurrentbranch denynonfastforwards denydeletes fsckobjects"),
    keys("transfer", "", "fsckobjects"),
    keys("http", "", "postbuffer lowspeedlimit lowspeedtime version"),
    keys("lfs", "", "repositoryformatversion"),
    subsection_keys("lfs", ValueKind::Text, "", "access locksverify"),
];

impl KeyRule {
    /// The rule for the key of `entry`, if the key runs no program.
    fn find(entry: &ConfigEntry) -> Option<&'static Self> {
        // Git itself refuses the name of a submodule with two dots: it is a part of paths. The name of a remote that begins with a
        // dash would be an option of the `git fetch` that `git fetch --all` starts for each remote.
        let is_plain = |name: &String| {
            !name.starts_with('-') && !name.contains(['"', '\\', '\n']) && !name.contains("..")
        };
        if !entry.subsection.as_ref().is_none_or(is_plain) {
            return None;
        }
        KEY_RULES.iter().find(|rule| {
            rule.section == entry.section
                && rule.has_subsection == entry.subsection.is_some()
                && [rule.always, rule.of_new].iter().any(|names| has_name(names, &entry.key))
        })
    }
}

fn has_name(names: &str, key: &str) -> bool {
    names.split(' ').any(|name| name == key || name == "*")
}

/// A config without entries that could make git run a program.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HarmlessConfig {
    pub(super) text: String,
    /// The entries that were removed, as `section.key = value`.
    pub(super) removed: Vec<String>,
}

/// Decides what the config of a new repository may contain.
pub(super) struct ConfigPolicy<'a> {
    /// The git directory of the config.
    pub(super) git_dir: &'a Path,
    /// True if the repository at this absolute path may be a remote.
    pub(super) permits_remote: &'a dyn Fn(&Path) -> bool,
}

impl ConfigPolicy<'_> {
    /// True if a config with these remotes may have `entry`.
    fn permits_entry(&self, entry: &ConfigEntry, remotes: &HashSet<String>) -> bool {
        let value = entry.value.as_str();
        KeyRule::find(entry).is_some_and(|rule| match rule.kind {
            ValueKind::Text => true,
            ValueKind::Boolean => ["true", "false", "yes", "no", "on", "off", "0", "1"]
                .contains(&&*value.to_ascii_lowercase()),
            ValueKind::RemoteName => names_remote(value, remotes),
            ValueKind::Worktree => value.starts_with("..") && self.is_worktree(value),
            ValueKind::Url => match local_path(value) {
                Some(path) => self.absolute(path).is_some_and(|path| (self.permits_remote)(&path)),
                None => is_remote_address(value),
            },
        })
    }

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

    /// True if `path` is a directory within the repository that contains the submodule.
    fn is_worktree(&self, path: &str) -> bool {
        let outer = self.outer_git_dir();
        let Some(top) = outer.as_deref().and_then(Path::parent) else {
            return false;
        };
        let path = without_dots(&self.git_dir.join(path));
        path.starts_with(top) && path != top && enclosing_git_dir(&path).is_none()
    }
}

/// Removes from `config` the entries that could make git run a program: all of them, if the config is not in the form that git writes.
pub(super) fn without_programs(config: &[u8], policy: &ConfigPolicy<'_>) -> HarmlessConfig {
    let Some(entries) = parse_plain(config) else {
        let text = String::from_utf8_lossy(config);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        return HarmlessConfig { text: String::new(), removed: lines.map(str::to_owned).collect() };
    };
    let no_remotes = HashSet::new();
    let permitted = entries.iter().filter(|entry| policy.permits_entry(entry, &no_remotes));
    let remotes = remotes_with_address(permitted);
    let (permitted, removed): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|entry| policy.permits_entry(entry, &remotes));
    let removed = removed.iter().map(ToString::to_string).collect();
    HarmlessConfig { text: format(&permitted), removed }
}

/// True if a command may change an existing config from `before` to `after`. With a `policy`, it may also change the keys that a
/// new repository may have.
pub(super) fn may_change(before: &[u8], after: &[u8], policy: Option<&ConfigPolicy<'_>>) -> bool {
    let [Some(before), Some(after)] = [before, after].map(parse_plain) else {
        return false;
    };
    let remotes_before = remotes_with_address(before.iter());
    let remotes = remotes_with_address(after.iter());
    let all_remotes: HashSet<String> = remotes_before.union(&remotes).cloned().collect();
    let may_remove = |entry: &&ConfigEntry| {
        KeyRule::find(entry).is_some_and(|rule| has_name(rule.always, &entry.key))
            || policy.is_some_and(|policy| policy.permits_entry(entry, &all_remotes))
    };
    let may_add = |entry: &ConfigEntry| match policy {
        Some(policy) => policy.permits_entry(entry, &remotes),
        None => KeyRule::find(entry).is_some_and(|rule| match rule.kind {
            ValueKind::RemoteName => names_remote(&entry.value, &remotes),
            _ => true,
        }),
    };
    // A downloaded repository may have any number of entries.
    let entries_before: HashSet<&ConfigEntry> = before.iter().collect();
    // An entry that names a remote must not outlast the address of the remote.
    let may_stay = |entry: &ConfigEntry| {
        let has_lost_address =
            remotes_before.contains(&entry.value) && !remotes.contains(&entry.value);
        entries_before.contains(entry) && !has_lost_address
    };
    // The order of the others matters: git may take the last one of several values.
    let others_before = before.iter().filter(|entry| !may_remove(entry));
    others_before.eq(after.iter().filter(|entry| !may_remove(entry)))
        && after.iter().filter(may_remove).all(|entry| may_stay(entry) || may_add(entry))
}

/// The names of the remotes to which `entries` of a config give an address. Git ignores a remote whose name begins with a slash.
fn remotes_with_address<'a>(entries: impl Iterator<Item = &'a ConfigEntry>) -> HashSet<String> {
    let urls = entries.filter(|entry| entry.is("remote", "url"));
    let names = urls.filter_map(|url| url.subsection.clone());
    names.filter(|name| !name.starts_with('/')).collect()
}

/// True if `value` names one of `remotes`, which have an address, or with a dot the repository itself. Git takes any other value for an
/// address or the path of a repository, and runs the hooks of that one when it pushes.
fn names_remote(value: &str, remotes: &HashSet<String>) -> bool {
    value == "." || remotes.contains(value)
}

/// The path in the address of a repository of this system: absolute, relative, or with the scheme `file`. `None` for other
/// addresses.
fn local_path(address: &str) -> Option<&str> {
    let path = match address.strip_prefix("file://") {
        // Git decodes such a path, and takes `file://a/b` for `//a/b`.
        Some(path) if path.contains('%') || !path.starts_with('/') => return None,
        Some(path) => path,
        None => address,
    };
    // A colon before the first slash ends the name of a host.
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

#[cfg(test)]
mod tests {
    use super::{ConfigPolicy, may_change, without_programs};
    use std::path::Path;

    #[test]
    fn harmless_configs() {
        let permits_remote = |path: &Path| {
            let permitted = ["/a/b.git", "/w/x y", "/a%2Fb.git", "/w/new/a/b.git"];
            permitted.iter().any(|permitted| path == Path::new(permitted))
        };
        let filter_in = |git_dir: &str, text: &[u8]| {
            let git_dir = Path::new(git_dir);
            let permits_remote = &permits_remote;
            without_programs(text, &ConfigPolicy { git_dir, permits_remote })
        };
        let filter = |text: &[u8]| filter_in("/w/new/.git", text);
        let check = |text: &str, expect: bool| {
            let actual = filter(text.as_bytes());
            assert_eq!(actual.removed.is_empty(), expect, "{text}: {actual:?}");
            // The remaining keys are harmless.
            assert!(filter(actual.text.as_bytes()).removed.is_empty(), "{text}");
        };
        let origin = "[remote \"origin\"]\n\turl = https://x.org/y\n";
        check("", true);
        check("[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n", true);
        check("[user]\n\tname = A\n\temail = a@b\n# x\n", true);
        check(
            "[remote \"origin\"]\n\turl = https://x.org/y\n\tfetch = +refs/heads/*:refs/x/*\n",
            true,
        );
        let branch = "[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n";
        check(&format!("{origin}{branch}"), true);
        check(branch, false);
        check("[core]\n\tfsmonitor = ./x\n", false);
        check("[core]\n\tBARE = false\n\tsshCommand = x\n", false);
        check("[alias]\n\tst = !x\n", false);
        check("[alias] st = !x\n", false);
        check("[include]\n\tpath = ../x\n", false);
        check("[remote \"o\"]\n\turl = ext::sh -c x\n", false);
        check("[remote \"o\"]\n\turl = /a/b.git\n", true);
        check("[remote \"o\"]\n\turl = ../b\n", false);
        check("[remote \"o\"]\n\tuploadpack = x\n", false);
        check("[filter \"x\"]\n\tclean = x\n", false);
        check("[core]\n\thookspath = x\n", false);
        assert_eq!(filter(b"[core]\n\xff").text, "");
        check("[core] fsmonitor = \"touch x; false\" #]\n", false);
        check("[core]fsmonitor=x[]\n", false);
        check("[core \"x\"]\n\tbare = false\n", false);
        check("[remote]\n\turl = https://x.org/y\n", false);
        check("[remote \"a\"] url = \"ext::x \"\n", false);
        check("[remote \"a\\\"b\"]\n\tfetch = x\n", false);
        check(&format!("{origin}[branch \"feature/a-1.2\"]\n\tremote = origin\n"), true);
        check("[includeIf \"gitdir:x\"]\n\tpath = ../x\n", false);
        check("[CORE]\n\tBare = false\n", true);
        check("[core]\n\tbare = a\\\n\tfsmonitor = x\n", false);
        check("bare = false\n", false);
        check("[core]\n\tbare\n", true);
        check("[user]\n\tname = Zo\u{eb} O'Neil (x)\n", true);
        check("[branch \"a\"]\n\tremote = ext::sh -c x\n", false);
        check("[branch \"a\"]\n\tremote = ../x\n", false);
        check("[branch \"a\"]\n\tremote = x/y\n", false);
        check("[branch \"a\"]\n\tremote = .\n", true);
        check("[branch \"a\"]\n\tremote = --upload-pack=x\n", false);
        check("[remote \"a\"]\n\turl = ssh://-oProxyCommand=x/y\n", false);
        check("[remote \"a\"]\n\turl = git@x.org:y/z.git\n", true);
        check("[core]\n\tworktree = ..\n", false);
        let in_module =
            |text: &str| filter_in("/w/new/.git/modules/lib", text.as_bytes()).removed.is_empty();
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
            check(&format!("{origin}{line}"), true);
        }
        for line in [
            "[gc]\n\trecentObjectsHook = x\n",
            "[remote \"o\"]\n\turl = foo://x/y\n",
            "[remote \"o\"]\n\turl = -oProxyCommand=x:y\n",
            "[remote \"o\"]\n\turl = a::/a/b.git\n",
            "[remote \"o\"]\n\turl = me@-x:y\n",
            "[remote \"o\"]\n\turl = file:///a%2Fb.git\n",
            "[remote \"o\"]\n\turl = file://a/b.git\n",
            "[remote \"--upload-pack=x\"]\n\turl = https://x.org/y\n",
            "[remote \"/x\"]\n\turl = https://x.org/y\n[branch \"a\"]\n\tremote = /x\n",
            "[remote \"o\"]\n\tvcs = x\n",
            "[submodule \"a/../../b\"]\n\tactive = true\n",
            "[submodule \"a\"]\n\tupdate = !x\n",
            "[url \"ext::x\"]\n\tinsteadOf = https://x.org\n",
            "[core]\n\tpager = less\n",
            "[diff \"x\"]\n\ttextconv = y\n",
        ] {
            check(line, false);
        }
        let actual =
            filter(b"# mine\n[core]\n\tbare = false\n\tfsmonitor = ./x\n[alias]\n\tst = !y\n");
        assert_eq!(actual.text, "[core]\n\tbare = \"false\"\n");
        assert_eq!(actual.removed, ["core.fsmonitor = ./x", "alias.st = !y"]);
        let actual = filter(b"[remote \"a\"]\n\turl = ext::x\n[branch \"b\"]\n\tremote = a\n");
        assert_eq!(actual.removed, ["remote.a.url = ext::x", "branch.b.remote = a"]);
    }

    const BEFORE: &str = "[core]\n\tbare = false\n\tfsmonitor = ./watch\n[remote \"origin\"]\n\turl = https://x.org/y\n\
                          \tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n\
                          [branch \"pr\"]\n\tremote = https://x.org/z\n[alias]\n\tx = !echo\n";

    #[test]
    fn only_branches_and_the_users_name_change() {
        let check = |after: String, expect: bool| {
            let actual = may_change(BEFORE.as_bytes(), after.as_bytes(), None);
            assert_eq!(actual, expect, "{after}");
        };
        let with = |text: &str| format!("{BEFORE}{text}");
        let changed = |from: &str, to: &str| BEFORE.replace(from, to);
        check(BEFORE.into(), true);
        check(with("[user]\n\temail = a@b.c\n\tname = \"A # B\"\n"), true);
        check(with("[branch \"b\"]\n\tremote = origin\n\tmerge = \"refs/heads/#1\"\n"), true);
        check(
            with("[branch \"b\"]\n\tremote = .\n\tmerge = refs/heads/main\n\trebase = true\n"),
            true,
        );
        check(changed("[branch \"main\"]", "[branch \"trunk\"]"), true);
        check(
            changed("[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n", ""),
            true,
        );
        check(changed("[alias]", "# a comment\n[alias]"), true);
        // Programs, other repositories, and what only looks like a harmless key.
        check(with("[branch \"b\"]\n\tremote = other\n"), false);
        check(with("[branch \"b\"]\n\tremote = https://x.org/z\n"), false);
        check(with("[branch \"b\"]\n\tremote = ../z\n"), false);
        check(with("[remote \"other\"]\n\turl = https://x.org/z\n"), false);
        check(with("[core]\n\teditor = ./x\n"), false);
        check(with("[core]\n\thooksPath = .husky\n"), false);
        check(with("[core]\n\tsparseCheckout = true\n"), true);
        check(with("[extensions]\n\tworktreeConfig = true\n"), true);
        check(with("[extensions]\n\tpartialClone = z\n"), false);
        check(with("[user]\n\tsigningkey = x\n"), false);
        check(with("[user] email = a\n"), true);
        check(changed("[branch \"pr\"]\n\tremote = https://x.org/z\n", ""), true);
        check(with("[branch \"b\"]\n\tmerge = a\\\n\n"), false);
        check(with("[branch \"b\"]\n\tmerge = a\r"), false);
        check(with("[include]\n\tpath = x\n"), false);
        check(changed("https://x.org/y", "https://z.org/y"), false);
        check(changed("\tfsmonitor = ./watch\n", ""), false);
        check(changed("[alias]\n", "[diff]\n"), false);
        check(changed("[core]", "[includeIf \"onbranch:x\"]"), false);
        check(with("[core]]\n"), false);
        check(String::new(), false);
    }

    #[test]
    fn without_content_from_outside_what_runs_nothing_changes() {
        let check = |after: String, expect: bool| {
            let policy = ConfigPolicy {
                git_dir: Path::new("/w/.git"),
                permits_remote: &|path| path == Path::new("/a/b.git"),
            };
            let actual = may_change(BEFORE.as_bytes(), after.as_bytes(), Some(&policy));
            assert_eq!(actual, expect, "{after}");
        };
        let with = |text: &str| format!("{BEFORE}{text}");
        check(
            with(
                "[remote \"fork\"]\n\turl = git@x.org:y/z.git\n\tfetch = +refs/heads/*:refs/remotes/fork/*\n",
            ),
            true,
        );
        check(with("[remote \"near\"]\n\turl = /a/b.git\n"), true);
        check(with("[remote \"near\"]\n\turl = /a/c.git\n"), false);
        check(with("[submodule \"lib\"]\n\turl = /a/b.git\n\tactive = true\n"), true);
        check(with("[core]\n\tautocrlf = input\n"), true);
        check(BEFORE.replace("https://x.org/y", "https://z.org/y"), true);
        check(with("[core]\n\thooksPath = .husky\n"), false);
        check(with("[remote \"z\"]\n\turl = ext::sh -c x\n"), false);
        check(with("[submodule \"a\"]\n\tupdate = !x\n"), false);
        check(BEFORE.replace("[alias]\n\tx = !echo\n", ""), false);
        check(BEFORE.replace("\tfsmonitor = ./watch\n", ""), false);
        check(with("[alias]\n\ty = !z\n"), false);
        // A remote that a branch tracks, or that is pushed to by default, must have an address, and keep it.
        let tracked = "[branch \"b\"]\n\tremote = fork\n[remote]\n\tpushDefault = fork\n";
        check(with(tracked), false);
        check(with(&format!("[remote \"fork\"]\n\turl = git@x.org:y/z.git\n{tracked}")), true);
        let renamed = BEFORE.replace("[remote \"origin\"]", "[remote \"up\"]");
        check(renamed.clone(), false);
        check(renamed.replace("remote = origin", "remote = up"), true);
    }

    #[test]
    fn a_remote_without_an_address_is_none() {
        let before = "[remote \"x\"]\n\tprune = true\n";
        let after = format!("{before}[branch \"b\"]\n\tremote = x\n");
        assert!(!may_change(before.as_bytes(), after.as_bytes(), None));
    }

    #[test]
    fn the_order_of_other_keys_counts() {
        let [one, two] = ["true", "./x"].map(|value| format!("[core]\n\tfsmonitor = {value}\n"));
        let [before, after] = [format!("{one}{two}"), format!("{two}{one}")];
        assert!(!may_change(before.as_bytes(), after.as_bytes(), None));
    }
}
