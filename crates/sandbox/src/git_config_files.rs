//! The files that configs of git name: further configs, hooks, and others that git reads.

use super::git_config;
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

/// The user's own config, relative to the home.
const USER_CONFIGS: [&str; 2] = [".gitconfig", ".config/git/config"];
/// The keys whose values are paths that git reads: section, key.
const PATH_KEYS: [(&str, &str); 8] = [
    ("core", "excludesfile"),
    ("core", "attributesfile"),
    ("commit", "template"),
    ("mailmap", "file"),
    ("blame", "ignorerevsfile"),
    ("diff", "orderfile"),
    ("init", "templatedir"),
    ("gpg", "allowedsignersfile"),
];
/// Maximum number of configs that are read, included ones among them.
const MAX_CONFIGS: usize = 100;

/// The paths that configs name, whether they exist or not.
#[derive(Debug, Default)]
pub(super) struct NamedPaths {
    /// Further configs.
    pub(super) configs: BTreeSet<PathBuf>,
    /// The directories of hooks.
    pub(super) hooks: BTreeSet<PathBuf>,
    /// Other files that git reads.
    files: BTreeSet<PathBuf>,
}

impl NamedPaths {
    /// Collects the paths that `configs` and the configs included by them name. The home of the user is
    /// `home`; a relative path of hooks starts from `top`, where they run.
    pub(super) fn find(
        configs: impl IntoIterator<Item = PathBuf>,
        top: &Path,
        home: &Path,
    ) -> Self {
        let mut named_paths = Self::default();
        let mut queue: VecDeque<PathBuf> = configs.into_iter().collect();
        let mut files_read = BTreeSet::new();
        while let Some(file) = queue.pop_front() {
            // A symbolic link is followed: many users have their config in a repository.
            let real_path = file.canonicalize().ok();
            let Some(entries) = real_path.and_then(|path| git_config::read(&path)) else {
                continue;
            };
            if files_read.len() == MAX_CONFIGS || !files_read.insert(file.clone()) {
                continue;
            }
            let named_path = |value: &str, directory: &Path| match value.strip_prefix("~/") {
                Some(rest) => home.join(rest),
                None => directory.join(value),
            };
            let directory = file.parent().unwrap_or(&file);
            for entry in entries {
                let path = named_path(&entry.value, directory);
                if entry.is_include() {
                    queue.push_back(path.clone());
                    named_paths.configs.insert(path);
                } else if entry.is("core", "hookspath") {
                    named_paths.hooks.insert(named_path(&entry.value, top));
                } else if PATH_KEYS.iter().any(|(section, key)| entry.is(section, key)) {
                    named_paths.files.insert(path);
                }
            }
        }
        named_paths
    }
}

/// The configs of the user whose home is `home`.
pub(super) fn user_configs(home: &Path) -> [PathBuf; 2] {
    USER_CONFIGS.map(|name| home.join(name))
}

/// The files that the config of the user whose home is `home` names, further configs among them.
pub(super) fn files_of_user(home: &Path) -> Vec<PathBuf> {
    let NamedPaths { mut files, configs, .. } = NamedPaths::find(user_configs(home), home, home);
    files.extend(configs);
    let is_file_or_template = |path: &PathBuf| {
        path.is_file() || path.join("info").is_dir() || path.join("hooks").is_dir()
    };
    files.into_iter().filter(is_file_or_template).collect()
}

#[cfg(test)]
mod tests {
    use super::files_of_user;

    #[test]
    fn files_that_the_user_config_names() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().canonicalize().unwrap();
        std::fs::create_dir_all(home.join("d/templates/info")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(home.join(name), text).unwrap();
        write("d/gitconfig", "[include]\npath = ~/d/work\n[core]\nexcludesFile = ~/d/ignored\n");
        std::os::unix::fs::symlink("d/gitconfig", home.join(".gitconfig")).unwrap();
        write("d/work", "[includeIf \"gitdir:~/w/\"]\npath = more\n[include]\npath = work\n");
        write("d/more", "[commit]\ntemplate = /etc/passwd\n[init]\ntemplateDir = ~/d/templates\n");
        write("d/ignored", "");
        write("d/unnamed", "");
        let expect = ["/etc/passwd", "d/ignored", "d/more", "d/templates", "d/work"];
        let mut expect = expect.map(|name| home.join(name));
        expect.sort();
        assert_eq!(files_of_user(&home), expect);
    }
}
