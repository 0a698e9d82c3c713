//! The symbolic links that a path leads through.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// Maximum number of symbolic links that one path may lead through, as in the kernel.
pub const MAX_LINKS: usize = 40;

/// The symbolic links that a path leads through, and its end. A name that does not exist is followed as if it were a
/// directory.
#[derive(Debug)]
pub struct LinkTrace {
    /// The real paths of the links with their targets, in the order in which the path leads through them. At most
    /// [`MAX_LINKS`].
    pub links: Vec<(PathBuf, PathBuf)>,
    /// The real path.
    pub end: PathBuf,
}

/// Follows the links of an absolute path.
pub fn trace_links(path: &Path) -> LinkTrace {
    let mut rest = VecDeque::from(components(path));
    let (mut end, mut links) = (PathBuf::from("/"), Vec::new());
    while let Some(component) = rest.pop_front() {
        match Path::new(&component).components().next() {
            Some(Component::ParentDir) => _ = end.pop(),
            Some(Component::Normal(_)) => {
                let next = end.join(&component);
                match std::fs::read_link(&next) {
                    Ok(target) if links.len() < MAX_LINKS => {
                        for component in components(&target).into_iter().rev() {
                            rest.push_front(component);
                        }
                        links.push((next, target));
                    }
                    _ => end = next,
                }
            }
            Some(Component::RootDir) => end = PathBuf::from("/"),
            Some(Component::CurDir | Component::Prefix(_)) | None => {}
        }
    }
    LinkTrace { links, end }
}

fn components(path: &Path) -> Vec<OsString> {
    path.components().map(|component| component.as_os_str().to_owned()).collect()
}
