//! The symbolic links that lead to granted places. A command's own root has these places under their real paths, and
//! would lack the other names that programs know them by.

use super::spec::SandboxSpec;
use nanobot_os::symlinks::trace_links;
use std::path::{Path, PathBuf};

impl SandboxSpec {
    /// Adds the symbolic links that `path` leads through. A relative path is ignored.
    pub fn add_links(&mut self, path: &Path) {
        if !path.is_absolute() {
            return;
        }
        for (link, target) in trace_links(path).links {
            // A link in a granted directory is there already. The root is a directory of the command's own.
            let mut granted = self.readable.iter().filter(|place| *place != Path::new("/"));
            let parent = link.parent().unwrap_or(&link);
            if !granted.any(|place| parent.starts_with(place)) {
                self.links.insert(link, target);
            }
        }
    }

    /// Adds the symbolic links directly beneath the root, such as `/bin`.
    pub(super) fn add_root_links(&mut self) {
        let entries = std::fs::read_dir("/").into_iter().flatten().flatten();
        let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
        let links: Vec<PathBuf> = links.map(|entry| entry.path()).collect();
        links.iter().for_each(|path| self.add_links(path));
    }
}

#[cfg(test)]
mod tests {
    use crate::SandboxSpec;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    #[test]
    fn links_outside_of_granted_directories_are_found() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        std::fs::create_dir_all(dir.join("granted/in")).unwrap();
        symlink("granted", dir.join("one")).unwrap();
        symlink(dir.join("one/../two/in"), dir.join("long")).unwrap();
        symlink("one/.", dir.join("two")).unwrap();
        symlink("in", dir.join("granted/inner")).unwrap();
        symlink("round", dir.join("round")).unwrap();
        let check = |path: &str, expect: &[&str]| {
            let reads = vec![dir.join("granted")];
            let mut sandbox = SandboxSpec { readable: reads, ..SandboxSpec::default() };
            sandbox.add_links(&dir.join(path));
            let expect: Vec<PathBuf> = expect.iter().map(|name| dir.join(name)).collect();
            let found = sandbox.links.into_keys();
            let found: Vec<PathBuf> = found.filter(|link| link.starts_with(&dir)).collect();
            assert_eq!(found, expect, "{path}");
        };
        check("granted/in", &[]);
        check("granted/inner", &[]);
        check("one/in", &["one"]);
        check("long", &["long", "one", "two"]);
        check("two/inner/missing", &["one", "two"]);
        check("round", &["round"]);
    }
}
