//! The symbolic links that a path leads through.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// The most symbolic links that one path may lead through, as in the kernel.
pub const MAX_LINKS: usize = 40;

/// The way of a path through symbolic links. A name that does not exist is followed as if it were a directory.
#[derive(Debug)]
pub struct LinkTrace {
    /// The real places of the links with their targets, in the order in which the path leads through them. At most
    /// [`MAX_LINKS`].
    pub links: Vec<(PathBuf, PathBuf)>,
    /// The place that the path leads to.
    pub end: PathBuf,
}

/// Follows the links of an absolute path.
pub fn trace_links(path: &Path) -> LinkTrace {
    let mut rest = VecDeque::from(parts_of(path));
    let (mut end, mut links) = (PathBuf::from("/"), Vec::new());
    while let Some(part) = rest.pop_front() {
        match Path::new(&part).components().next() {
            Some(Component::ParentDir) => _ = end.pop(),
            Some(Component::Normal(_)) => {
                let next = end.join(&part);
                match std::fs::read_link(&next) {
                    Ok(target) if links.len() < MAX_LINKS => {
                        let parts = parts_of(&target).into_iter().rev();
                        parts.for_each(|part| rest.push_front(part));
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

fn parts_of(path: &Path) -> Vec<OsString> {
    let parts = path.components();
    parts.map(|part| part.as_os_str().to_owned()).collect()
}
