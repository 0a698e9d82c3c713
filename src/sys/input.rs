//! Standard input: its type, whether to read it, and decoding its bytes as text. Also reads files that the user names.

use crate::error::{Exit, fail, fail_hint};
use crate::sys::signal::{self, Patience};
use anyhow::{Context, Result};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;
use std::time::Duration;

/// Silence after which the user is notified that standard input is being waited for.
const TELL_AFTER: Duration = Duration::from_secs(2);
/// Default limit of silence. After it the run fails, rather than continuing without its input.
pub const GIVE_UP_AFTER: Duration = Duration::from_secs(600);
/// Maximum size of standard input, in bytes. No model takes a tenth of it, so larger input is a mistake and is reported
/// as one.
pub const LIMIT: usize = 16 << 20;

/// A type of standard input, as documented in help and README, and its default handling.
pub struct Kind {
    /// The name in the documentation.
    pub name: &'static str,
    kind: FileType,
    /// True if it is read by default, because it was connected deliberately. The other types are often inherited, for
    /// example from a supervisor.
    pub is_read: bool,
    /// The effect of reading it with `--stdin`.
    pub when_asked: &'static str,
}

/// All types. A descriptor that was closed at start is replaced by `/dev/null`.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "pipe, named pipe",
        kind: FileType::Fifo,
        is_read: true,
        when_asked: "read to its end",
    },
    Kind {
        name: "file",
        kind: FileType::RegularFile,
        is_read: true,
        when_asked: "read to its end",
    },
    Kind {
        name: "socket",
        kind: FileType::Socket,
        is_read: false,
        when_asked: "read to its end",
    },
    Kind {
        name: "terminal, `/dev/null`, another device; closed",
        kind: FileType::CharacterDevice,
        is_read: false,
        when_asked: "read to its end",
    },
    Kind {
        name: "directory",
        kind: FileType::Directory,
        is_read: false,
        when_asked: "fails with status 74",
    },
];

/// The user's choice about reading standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// As its [`StdinKind`] says.
    Auto,
    /// As with `--stdin`.
    Always,
    /// As with `--no-stdin`.
    Never,
}

/// Reads standard input to its end; `None` if it is not to be read. `idle_timeout` is the maximum silence; zero means
/// no limit. `on_notice` receives a notice for the waiting user.
///
/// # Errors
/// A pipe that stays silent, input above [`MAX_STDIN_BYTES`], a failed read, or cancellation.
pub fn read(
    reading: Reading,
    silence: Duration,
    tell: &mut dyn FnMut(&str),
) -> Result<Option<Vec<u8>>> {
    let stdin = std::io::stdin();
    let kind = rustix::fs::fstat(&stdin).map(|stat| FileType::from_raw_mode(stat.st_mode));
    let is_read = match (reading, kind) {
        (Reading::Never, _) => false,
        (Reading::Always, _) => true,
        (Reading::Auto, Ok(found)) => KINDS.iter().any(|kind| kind.kind == found && kind.is_read),
        (Reading::Auto, Err(_)) => false,
    };
    if !is_read {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    let mut has_notified = false;
    loop {
        wait(&stdin, silence, &mut has_notified, tell)?;
        // Bypasses the buffer of `Stdin`, because `poll` does not see buffered bytes.
        let count = match rustix::io::read(&stdin, &mut chunk) {
            // Another process read the bytes first, or the pipe is non-blocking.
            Err(Errno::INTR | Errno::AGAIN) => continue,
            other => other
                .map_err(std::io::Error::from)
                .context("read standard input")?,
        };
        if count == 0 {
            return Ok(Some(bytes));
        }
        bytes.extend_from_slice(&chunk[..count]);
        if bytes.len() > LIMIT {
            let cause = format!("standard input is longer than {} MiB", LIMIT >> 20);
            return Err(fail_hint(
                Exit::BadInput,
                cause,
                "shorten it first, for example with `tail -n 2000`",
            ));
        }
    }
}

/// Waits until standard input is readable. Notifies the user once.
fn wait(
    stdin: &std::io::Stdin,
    silence: Duration,
    has_notified: &mut bool,
    tell: &mut dyn FnMut(&str),
) -> Result<()> {
    let mut deadline = Patience::unless_zero(silence);
    if !*has_notified {
        let mut quiet = deadline.min(Patience::of(TELL_AFTER));
        if signal::readable(stdin, &mut quiet)? {
            return Ok(());
        }
        *has_notified = true;
        tell("waiting for standard input; `--no-stdin` skips it");
        deadline.spend(TELL_AFTER);
    }
    if !deadline.is_over() && signal::readable(stdin, &mut deadline)? {
        return Ok(());
    }
    let cause = format!(
        "timed out after {} s without standard input",
        silence.as_secs()
    );
    Err(fail_hint(
        Exit::NoInput,
        cause,
        "`--no-stdin`, or `NANOBOT_STDIN=never` in loops and supervisors",
    ))
}

/// Returns the content of a file that the user named. A pipe, as from `<(…)`, is read to its end.
///
/// # Errors
/// Status 66 if it is missing or stays silent, 65 if it is larger than `limit` bytes; cancellation.
pub fn read_file(path: &Path, name: &str, limit: usize) -> Result<Vec<u8>> {
    // Opening a FIFO would block until it has a writer. The wait happens below, where a signal can end it.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let what = || format!("read `{name}`");
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => {
            return Err(fail(Exit::NoInput, format!("no such file: `{name}`")));
        }
        other => other.map_err(std::io::Error::from).with_context(what)?,
    };
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    loop {
        if !signal::readable(&file, &mut Patience::of(GIVE_UP_AFTER))? {
            return Err(fail(Exit::NoInput, format!("timed out reading `{name}`")));
        }
        let count = match rustix::io::read(&file, &mut chunk) {
            Err(Errno::INTR | Errno::AGAIN) => continue,
            other => other.map_err(std::io::Error::from).with_context(what)?,
        };
        bytes.extend_from_slice(&chunk[..count]);
        if bytes.len() > limit {
            let cause = format!("`{name}` is longer than {} MiB", limit >> 20);
            return Err(fail(Exit::BadInput, cause));
        }
        if count == 0 {
            return Ok(bytes);
        }
    }
}

/// Returns the media type of an image that models accept, from its first bytes: PNG, JPEG, GIF or WebP.
pub fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
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

/// Decodes UTF-8, or UTF-16 with a byte order mark. Invalid sequences are replaced and reported in the notice. `what`
/// names the input in messages.
///
/// # Errors
/// Status 65 if the bytes contain NUL, and so are not text.
pub fn decode(bytes: Vec<u8>, what: &str) -> Result<Decoded> {
    if let Some((encoding, mark)) = encoding_rs::Encoding::for_bom(&bytes) {
        let (text, broken) = encoding.decode_without_bom_handling(&bytes[mark..]);
        let notice = broken.then(|| {
            format!(
                "{what} is not valid {}; invalid sequences were replaced",
                encoding.name()
            )
        });
        return Ok(Decoded {
            text: text.into_owned(),
            notice,
        });
    }
    if bytes.contains(&0) {
        return Err(fail(Exit::BadInput, format!("{what} is binary, not text")));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Decoded { text, notice: None }),
        Err(error) => {
            let place = error.utf8_error().valid_up_to();
            let notice = format!(
                "{what} is not valid UTF-8 (first error at byte {}); invalid sequences were replaced",
                place + 1
            );
            Ok(Decoded {
                text: String::from_utf8_lossy(error.as_bytes()).into_owned(),
                notice: Some(notice),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::decode;

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
        assert!(decode(b"\x7fELF\0".to_vec(), "input").is_err());
    }

    #[test]
    fn fuzz_any_bytes_are_text_or_none() {
        let seeds: &[&[u8]] = &[
            "h\u{e9}\u{1f642}".as_bytes(),
            b"\xff\xfeh\x00i\x00\x3d\xd8",
            b"\xfe\xff\x00h\x00i",
            b"\xef\xbb\xbfx\x89PNG\r\n\x1a\n",
        ];
        crate::fuzz::hold(seeds, |input, _| {
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
