//! Standard input: its type, whether to read it, and decoding its bytes as text. Also reads files that the user names.

use crate::durable_file::format_size;
use crate::signal::{self, Deadline};
use crate::terminal::eprint_on_terminal;
use anyhow::{Context, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

/// Silence after which the user is notified that standard input is being waited for.
const NOTICE_DELAY: Duration = Duration::from_secs(2);
/// Silence of a pipe that the user named, after which a terminal shows a notice.
const FILE_NOTICE_DELAY: Duration = Duration::from_secs(1);
/// Wait for a socket's data or end. Shells and runtimes that build pipes from sockets provide both at once or soon after;
/// a supervisor's socket stays silent.
const SOCKET_GRACE: Duration = Duration::from_secs(1);
/// Default limit of silence. After it the run fails, rather than continuing without its input.
pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum size of a message on standard input, in bytes. No model takes a tenth of it, so larger input is a mistake and
/// is reported as one.
pub const MAX_STDIN_BYTES: usize = 16 << 20;

/// A type of standard input, as documented in help and README, and its default handling.
pub struct StdinKind {
    /// The name in the documentation.
    pub name: &'static str,
    file_type: FileType,
    /// Its handling without a flag.
    pub default: DefaultHandling,
    /// The effect of reading it with `--stdin`.
    pub with_stdin_flag: &'static str,
}

/// The handling of a type of standard input without `--stdin` and `--no-stdin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultHandling {
    /// Read to its end, because it was connected deliberately.
    Read,
    /// Read to its end if it has data or has ended within [`SOCKET_GRACE`].
    ReadUnlessSilent,
    /// Not read, because it is often inherited.
    Ignore,
}

impl DefaultHandling {
    /// The description in the documentation.
    pub fn description(self) -> &'static str {
        match self {
            Self::Read => "read to its end",
            Self::ReadUnlessSilent => "read to its end; left alone if it stays silent for 1 s",
            Self::Ignore => "left alone",
        }
    }
}

/// All types. A descriptor that was closed at start is replaced by `/dev/null`.
pub const STDIN_KINDS: &[StdinKind] = &[
    StdinKind {
        name: "pipe, named pipe",
        file_type: FileType::Fifo,
        default: DefaultHandling::Read,
        with_stdin_flag: "read to its end",
    },
    StdinKind {
        name: "file",
        file_type: FileType::RegularFile,
        default: DefaultHandling::Read,
        with_stdin_flag: "read to its end",
    },
    StdinKind {
        name: "socket",
        file_type: FileType::Socket,
        default: DefaultHandling::ReadUnlessSilent,
        with_stdin_flag: "read to its end",
    },
    StdinKind {
        name: "terminal, `/dev/null`, another device; closed",
        file_type: FileType::CharacterDevice,
        default: DefaultHandling::Ignore,
        with_stdin_flag: "read to its end",
    },
    StdinKind {
        name: "directory",
        file_type: FileType::Directory,
        default: DefaultHandling::Ignore,
        with_stdin_flag: "fails with status 74",
    },
];

/// The user's choice about reading standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinMode {
    /// The default handling of its [`StdinKind`].
    Auto,
    /// `--stdin`: it is read.
    Always,
    /// `--no-stdin`: it is not read.
    Never,
}

/// Reads standard input to its end; `None` if it is not to be read. `idle_timeout` is the maximum silence; zero means
/// no limit. `on_notice` receives a notice for the waiting user.
///
/// # Errors
/// A pipe that stays silent, input above [`MAX_STDIN_BYTES`], a failed read, or cancellation.
pub fn read_stdin(
    mode: StdinMode,
    idle_timeout: Duration,
    on_notice: &mut dyn FnMut(&str),
) -> Result<Option<Vec<u8>>> {
    let stdin = rustix::stdio::stdin();
    let file_type = rustix::fs::fstat(stdin).map(|stat| FileType::from_raw_mode(stat.st_mode));
    let handling = match (mode, file_type) {
        (StdinMode::Never, _) | (StdinMode::Auto, Err(_)) => DefaultHandling::Ignore,
        (StdinMode::Always, _) => DefaultHandling::Read,
        (StdinMode::Auto, Ok(file_type)) => {
            let kind = STDIN_KINDS.iter().find(|kind| kind.file_type == file_type);
            kind.map_or(DefaultHandling::Ignore, |kind| kind.default)
        }
    };
    let is_read = match handling {
        DefaultHandling::Read => true,
        DefaultHandling::Ignore => false,
        DefaultHandling::ReadUnlessSilent => {
            signal::wait_readable(stdin, &mut Deadline::after(SOCKET_GRACE))?
        }
    };
    if !is_read {
        if handling == DefaultHandling::ReadUnlessSilent {
            on_notice("standard input is a silent socket and is not read; `--stdin` waits for it");
        }
        return Ok(None);
    }
    let too_long = || {
        let cause = format!("standard input is longer than {} MiB", MAX_STDIN_BYTES >> 20);
        let hint = "shorten it first, for example with `tail -n 2000`";
        fail(Exit::BadInput, cause).with_hint(hint)
    };
    read_to_end(MAX_STDIN_BYTES, &too_long, idle_timeout, on_notice).map(Some)
}

/// Reads standard input, which the user named as the source of a file or a value of at most `limit` bytes.
fn read_named_stdin(limit: usize) -> Result<Vec<u8>> {
    let too_long = || {
        let size = format_size(limit as u64);
        fail(Exit::BadInput, format!("standard input is longer than {size}"))
    };
    read_to_end(limit, &too_long, DEFAULT_IDLE_TIMEOUT, &mut |_| {})
}

/// Reads standard input to its end. Above `limit` bytes, the error is `too_long`.
fn read_to_end(
    limit: usize,
    too_long: &dyn Fn() -> anyhow::Error,
    idle_timeout: Duration,
    on_notice: &mut dyn FnMut(&str),
) -> Result<Vec<u8>> {
    let stdin = rustix::stdio::stdin();
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    let mut has_notified = false;
    loop {
        wait_until_readable(stdin, idle_timeout, &mut has_notified, on_notice)?;
        // `Stdin` is not used, because `poll` does not see bytes in its buffer.
        let count = match rustix::io::read(stdin, &mut chunk) {
            // Another process read the bytes first, or the pipe is non-blocking.
            Err(Errno::INTR | Errno::AGAIN) => continue,
            other => other.map_err(std::io::Error::from).context("read standard input")?,
        };
        if count == 0 {
            return Ok(bytes);
        }
        bytes.extend_from_slice(&chunk[..count]);
        if bytes.len() > limit {
            return Err(too_long());
        }
    }
}

/// Waits until standard input is readable. Notifies the user once.
fn wait_until_readable(
    stdin: BorrowedFd<'_>,
    idle_timeout: Duration,
    has_notified: &mut bool,
    on_notice: &mut dyn FnMut(&str),
) -> Result<()> {
    let mut deadline = Deadline::after_or_never(idle_timeout);
    if !*has_notified {
        let mut quiet = deadline.min(Deadline::after(NOTICE_DELAY));
        if signal::wait_readable(stdin, &mut quiet)? {
            return Ok(());
        }
        *has_notified = true;
        on_notice("waiting for standard input; `--no-stdin` skips it");
        deadline.subtract(NOTICE_DELAY);
    }
    if !deadline.is_expired() && signal::wait_readable(stdin, &mut deadline)? {
        return Ok(());
    }
    let cause = format!("timed out after {} s without standard input", idle_timeout.as_secs());
    Err(fail(Exit::NoInput, cause)
        .with_hint("`--no-stdin`, or `NANOBOT_STDIN=never` in loops and supervisors"))
}

/// Returns the text of a file that the user named, or of standard input for `-`. Either may have `limit` bytes.
///
/// # Errors
/// Those of [`read_file`], for standard input too; status 65 if it is not UTF-8.
pub fn read_file_or_stdin(path: &Path, limit: usize) -> Result<String> {
    let name = path.display().to_string();
    let bytes = if name == "-" { read_named_stdin(limit)? } else { read_file(path, &name, limit)? };
    String::from_utf8(bytes).map_err(|_| fail(Exit::BadInput, format!("`{name}` is not UTF-8")))
}

/// Returns the content of a file that the user named. A pipe, as from `<(…)`, is read to its end.
///
/// # Errors
/// Status 66 if it is missing or stays silent, 65 if it is larger than `limit` bytes; cancellation.
pub fn read_file(path: &Path, name: &str, limit: usize) -> Result<Vec<u8>> {
    // Opening a FIFO would block until it has a writer. The wait happens below, where a signal can end it.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let context = || format!("read `{name}`");
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => {
            return Err(fail(Exit::NoInput, format!("no such file: `{name}`")));
        }
        other => other.map_err(std::io::Error::from).with_context(context)?,
    };
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    let mut has_notified = false;
    loop {
        let mut is_ready = false;
        if !has_notified {
            is_ready = signal::wait_readable(&file, &mut Deadline::after(FILE_NOTICE_DELAY))?;
            if !is_ready {
                has_notified = true;
                eprint_on_terminal(&format!("nanobot: waiting for `{name}`"));
            }
        }
        if !is_ready && !signal::wait_readable(&file, &mut Deadline::after(DEFAULT_IDLE_TIMEOUT))? {
            return Err(fail(Exit::NoInput, format!("timed out reading `{name}`")));
        }
        let count = match rustix::io::read(&file, &mut chunk) {
            Err(Errno::INTR | Errno::AGAIN) => continue,
            other => other.map_err(std::io::Error::from).with_context(context)?,
        };
        bytes.extend_from_slice(&chunk[..count]);
        if bytes.len() > limit {
            let cause = format!("`{name}` is longer than {}", format_size(limit as u64));
            return Err(fail(Exit::BadInput, cause));
        }
        if count == 0 {
            return Ok(bytes);
        }
    }
}

/// Returns the text of a file that the user named, as by [`read_file`] and [`decode`].
///
/// # Errors
/// The errors of both functions.
pub fn read_text(path: &Path, name: &str, limit: usize) -> Result<Decoded> {
    decode(read_file(path, name, limit)?, &format!("`{name}`"))
}

/// Returns the media type of an image that models accept, from its first bytes: PNG, JPEG, GIF or WebP.
pub fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// Decoded text.
#[derive(Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The text.
    pub text: String,
    /// A notice for the user if some bytes could not be decoded.
    pub notice: Option<String>,
}

/// Decodes UTF-8, or UTF-16 with a byte order mark. Invalid sequences are replaced and reported in the notice. `subject`
/// names the input in messages.
///
/// # Errors
/// Status 65 if the decoded bytes contain NUL, and so are not text.
pub fn decode(bytes: Vec<u8>, subject: &str) -> Result<Decoded> {
    let binary = || fail(Exit::BadInput, format!("{subject} is binary, not text"));
    if let Some((encoding, mark_bytes)) = encoding_rs::Encoding::for_bom(&bytes) {
        let (text, has_errors) = encoding.decode_without_bom_handling(&bytes[mark_bytes..]);
        if text.contains('\0') {
            return Err(binary());
        }
        let notice = has_errors.then(|| {
            format!("{subject} is not valid {}; invalid sequences were replaced", encoding.name())
        });
        return Ok(Decoded { text: text.into_owned(), notice });
    }
    if bytes.contains(&0) {
        return Err(binary());
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Decoded { text, notice: None }),
        Err(error) => {
            let error_byte = error.utf8_error().valid_up_to() + 1;
            let notice = format!(
                "{subject} is not valid UTF-8 (first error at byte {error_byte}); invalid sequences were replaced"
            );
            Ok(Decoded {
                text: String::from_utf8_lossy(error.as_bytes()).into_owned(),
                notice: Some(notice),
            })
        }
    }
}

/// Reads a value from standard input, without the final newline.
///
/// # Errors
/// Status 65 if it is too long or not UTF-8, and 66 if it is empty or stays silent; cancellation.
pub fn read_stdin_value() -> Result<String> {
    let text = String::from_utf8(read_named_stdin(MAX_STDIN_BYTES)?)
        .map_err(|_| fail(Exit::BadInput, "standard input is not UTF-8"))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        Err(fail(Exit::NoInput, "standard input is empty"))
    } else {
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::{decode, read_file};
    use std::io::Write;

    #[test]
    fn text_in_its_encodings() {
        let check = |bytes: &[u8], expect: &str, noticed: bool| {
            let decoded = decode(bytes.to_vec(), "input").unwrap();
            assert_eq!(
                (decoded.text.as_str(), decoded.notice.is_some()),
                (expect, noticed),
                "{bytes:?}"
            );
        };
        check(b"", "", false);
        check("h\u{e9}".as_bytes(), "h\u{e9}", false);
        check(b"\xef\xbb\xbfx", "x", false);
        check(b"\xff\xfeh\x00i\x00", "hi", false);
        check(b"\xfe\xff\x00h\x00i", "hi", false);
        check(b"caf\xe9!", "caf\u{fffd}!", true);
        check(b"\xff\xfeh\x00i", "h\u{fffd}", true);
        let binaries: [&[u8]; 4] = [
            b"\x7fELF\0",
            b"\xef\xbb\xbfa\0b",
            b"\xfe\xff\0a\0\0",
            // UTF-32, whose byte order mark begins with that of UTF-16.
            b"\xff\xfe\0\0a\0\0\0",
        ];
        for bytes in binaries {
            assert!(decode(bytes.to_vec(), "input").is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_file_above_the_limit_is_an_error_that_names_the_limit() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![b'x'; (16 << 10) + 1]).unwrap();
        let error = read_file(file.path(), "key", 16 << 10).unwrap_err();
        assert_eq!(error.to_string(), "`key` is longer than 16.0 KB");
        assert_eq!(read_file(file.path(), "key", (16 << 10) + 1).unwrap().len(), (16 << 10) + 1);
    }

    #[test]
    fn fuzz_any_bytes_are_text_or_none() {
        let seeds: &[&[u8]] = &[
            "h\u{e9}\u{1f642}".as_bytes(),
            b"\xff\xfeh\x00i\x00\x3d\xd8",
            b"\xfe\xff\x00h\x00i",
            b"\xef\xbb\xbfx\x89PNG\r\n\x1a\n",
        ];
        nanobot_base::fuzz::check(seeds, |input, _| {
            super::image_type(input);
            if let (Ok(decoded), Ok(text)) =
                (decode(input.to_vec(), "x"), std::str::from_utf8(input))
            {
                assert!(
                    decoded.text == text.trim_start_matches('\u{feff}')
                        || text.starts_with('\u{feff}')
                );
            }
        });
    }
}
