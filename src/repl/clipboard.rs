//! `/paste` and Ctrl-V: an image in the desktop's clipboard becomes a file that the next message mentions.

use super::repl_session::ReplSession;
use crate::ops::channel::attachments;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_channel::inbox::InboxState;
use nanobot_os::durable_file;
use nanobot_os::paths::find_program;
use nanobot_os::secret::random_hex;
use nanobot_sandbox::process::{self, CommandSpec};
use std::path::Path;
use std::time::Duration;

/// A program that reads the clipboard, with the arguments that list the types of its content, and those that precede and follow the
/// type to be written to standard output.
struct ClipboardReader {
    program: &'static str,
    list: &'static [&'static str],
    before_type: &'static [&'static str],
    after_type: &'static [&'static str],
}

/// The programs for Wayland and for X11.
const CLIPBOARD_READERS: [ClipboardReader; 2] = [
    ClipboardReader {
        program: "wl-paste",
        list: &["--list-types"],
        before_type: &["-t"],
        after_type: &[],
    },
    ClipboardReader {
        program: "xclip",
        list: &["-selection", "clipboard", "-t", "TARGETS", "-o"],
        before_type: &["-selection", "clipboard", "-t"],
        after_type: &["-o"],
    },
];

/// The types of images that can be attached, with the extensions of their files. A clipboard offers most images as PNG.
const IMAGE_TYPES: [(&str, &str); 4] =
    [("image/png", "png"), ("image/jpeg", "jpg"), ("image/webp", "webp"), ("image/gif", "gif")];

/// Time limit of a program that reads the clipboard.
const CLIPBOARD_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of an image.
const MAX_IMAGE_BYTES: usize = 32 << 20;

impl ReplSession<'_> {
    /// Saves the image of the clipboard, and adds a mention of it to the next input.
    pub(super) fn paste(&mut self) -> Result<()> {
        let path_variable = self.ctx.env.get("PATH").unwrap_or_default();
        let is_there =
            |reader: &&ClipboardReader| find_program(reader.program, path_variable).is_some();
        let mut readers = CLIPBOARD_READERS.iter().filter(is_there).peekable();
        if readers.peek().is_none() {
            return Err(fail(Exit::Failed, "there is no program that reads the clipboard")
                .with_hint("`wl-clipboard` or `xclip`, which packages of these names install"));
        }
        for reader in readers {
            // One of the two may be there without its display.
            let Some(types) = self.read_clipboard(reader.program, reader.list)? else {
                continue;
            };
            let types = String::from_utf8_lossy(&types).into_owned();
            let is_offered = |name: &str| types.lines().any(|line| line.trim() == name);
            let Some((name, extension)) =
                IMAGE_TYPES.into_iter().find(|(name, _)| is_offered(name))
            else {
                continue;
            };
            let arguments = [reader.before_type, &[name][..], reader.after_type].concat();
            if let Some(image) = self.read_clipboard(reader.program, &arguments)? {
                return self.mention_image(&image, extension);
            }
        }
        Err(fail(Exit::NoInput, "there is no image in the clipboard"))
    }

    /// Returns what `program` writes; `None` if it fails.
    fn read_clipboard(&self, program: &str, arguments: &[&str]) -> Result<Option<Vec<u8>>> {
        let env = self.ctx.env.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let spec = CommandSpec {
            program: program.into(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            directory: "/".into(),
            env: env.collect(),
            timeout: CLIPBOARD_TIMEOUT,
            capture_bytes: MAX_IMAGE_BYTES,
            sandbox: None,
            input: None,
        };
        let (result, _) =
            process::run_split_stderr(&spec).with_context(|| format!("run `{program}`"))?;
        if let Some(stop) = result.stop {
            return Err(stop.into());
        }
        if !result.tail.is_empty() {
            return Err(fail(Exit::BadInput, "the image in the clipboard has more than 32 MiB"));
        }
        let has_succeeded = result.status.is_some_and(|status| status.success());
        Ok(has_succeeded.then_some(result.head))
    }

    fn mention_image(&mut self, image: &[u8], extension: &str) -> Result<()> {
        let directory = self.ctx.paths.media().join("clipboard");
        durable_file::create_dir(&directory)?;
        let age = self.settings()?.retention.media;
        let now = self.ctx.clock.timestamp().into();
        attachments::remove_old(&directory, age, now, &InboxState::default());
        let path = directory.join(format!("{}.{extension}", random_hex(4)));
        durable_file::replace(&path, image)?;
        if !self.draft.is_empty() && !self.draft.ends_with(char::is_whitespace) {
            self.draft.push(' ');
        }
        self.draft.push_str(&mention(&self.ctx.paths.display(&path), &path));
        Ok(())
    }
}

/// The mention of the file `path`, whose name for people is `name`, in a message.
fn mention(name: &str, path: &Path) -> String {
    if name.contains(char::is_whitespace) {
        format!("@\"{}\" ", path.display())
    } else {
        format!("@{name} ")
    }
}
