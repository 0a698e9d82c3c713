//! Patches in the format of git: the changes of a run that works on a copy, and their application to a directory.
//!
//! The format is that of `git diff --binary` without renames (git-diff(1), "Generating patch text with -p"); the binary part is defined by
//! git's `diff.c` and `apply.c`. A patch is UTF-8: content that is not UTF-8 is binary, and so are large files. Names begin
//! at the top of the repository, as `git apply` expects, or at the directory if there is none.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use std::fmt::Write as _;

pub mod apply;
mod base85;
pub mod copy;
pub mod format;
pub mod parse;
pub mod turn_diff;

/// The digits of an abbreviated id are too few to identify a content. An id that names one has 40 digits (SHA-1) or 64 (SHA-256).
const SHA1_ID_CHARS: usize = 40;
const SHA256_ID_CHARS: usize = 64;

/// A file as git stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitFile {
    pub kind: FileKind,
    /// The content, or the target of a link.
    pub bytes: Vec<u8>,
}

/// The kinds of files that git distinguishes by mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    Regular,
    Executable,
    Link,
}

impl FileKind {
    /// The mode in a patch, in octal digits.
    fn mode(self) -> &'static str {
        match self {
            Self::Regular => "100644",
            Self::Executable => "100755",
            Self::Link => "120000",
        }
    }
}

/// The function by which a repository names its objects (`extensions.objectFormat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObjectFormat {
    #[default]
    Sha1,
    Sha256,
}

impl ObjectFormat {
    /// The id of a blob with this content.
    fn blob_id(self, bytes: &[u8]) -> String {
        let mut context = Context::new(match self {
            Self::Sha1 => &SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => &SHA256,
        });
        context.update(format!("blob {}\0", bytes.len()).as_bytes());
        context.update(bytes);
        let mut id = String::new();
        for byte in context.finish().as_ref() {
            write!(id, "{byte:02x}").expect("writing to a string cannot fail");
        }
        id
    }

    /// The id that stands for no content.
    fn null_id(self) -> String {
        "0".repeat(match self {
            Self::Sha1 => SHA1_ID_CHARS,
            Self::Sha256 => SHA256_ID_CHARS,
        })
    }
}
