//! Standard input: what it is, whether to read it, and its bytes as text.

use crate::error::{Exit, fail, fail_hint};
use crate::sys::signal::{self, Patience};
use anyhow::{Context, Result};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;
use std::time::Duration;

/// After so long a silence a person is told what is being waited for.
const TELL_AFTER: Duration = Duration::from_secs(2);
/// What said nothing for so long will not; the run fails rather than going on without its input.
pub const GIVE_UP_AFTER: Duration = Duration::from_secs(600);
/// The most that is read. No model takes a tenth of it; what is larger is a mistake, and told as one.
pub const LIMIT: usize = 16 << 20;

/// What standard input can be, for help and README, and what is done with it when nothing is said about it.
pub struct Kind {
    pub name: &'static str,
    kind: FileType,
    /// It is read by itself: whoever connected it meant it. The others are there by chance, as in a supervisor.
    pub is_read: bool,
    /// What reading it gives when `--stdin` asks for it.
    pub when_asked: &'static str,
}

/// Every kind. A descriptor that was closed is made an empty device when the program starts.
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
        when_asked: "a failure, status 74",
    },
];

/// Whether standard input is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// It depends on its [`Kind`].
    Auto,
    Always,
    Never,
}

/// Read standard input to its end. `None` when it is not to be read; `tell` takes what a waiting person should know.
/// `silence` is how long it may say nothing; a zero is no limit.
///
/// # Errors
/// A pipe that stays silent, input above [`LIMIT`], a failed read, or a run that is to end.
pub fn read(
    reading: Reading,
    silence: Duration,
    tell: &mut dyn FnMut(&str),
) -> Result<Option<Vec<u8>>> {
    let stdin = std::io::stdin();
    let kind = rustix::fs::fstat(&stdin).map(|stat| FileType::from_raw_mode(stat.st_mode));
    let wanted = match (reading, kind) {
        (Reading::Never, _) => false,
        (Reading::Always, _) => true,
        (Reading::Auto, Ok(found)) => KINDS.iter().any(|kind| kind.kind == found && kind.is_read),
        (Reading::Auto, Err(_)) => false,
    };
    if !wanted {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    let mut told = false;
    loop {
        wait(&stdin, silence, &mut told, tell)?;
        // Past the buffer of `Stdin`, so that the wait and the read see the same bytes.
        let count = match rustix::io::read(&stdin, &mut chunk) {
            // Somebody else read what we were told of; or the pipe is one that does not wait.
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
                "cut it first, as with `tail -n 2000`",
            ));
        }
    }
}

/// Wait until there is something to read. A person is told once what is being waited for.
fn wait(
    stdin: &std::io::Stdin,
    silence: Duration,
    told: &mut bool,
    tell: &mut dyn FnMut(&str),
) -> Result<()> {
    let mut patience = Patience::unless_zero(silence);
    if !*told {
        let mut quiet = patience.min(Patience::of(TELL_AFTER));
        if signal::readable(stdin, &mut quiet)? {
            return Ok(());
        }
        *told = true;
        tell("waiting for standard input, which is silent; `--no-stdin` goes without it");
        patience.spend(TELL_AFTER);
    }
    if !patience.is_over() && signal::readable(stdin, &mut patience)? {
        return Ok(());
    }
    let cause = format!(
        "standard input stayed silent for {} seconds",
        silence.as_secs()
    );
    Err(fail_hint(
        Exit::NoInput,
        cause,
        "`--no-stdin`, or `NANOBOT_STDIN=never` in loops and supervisors",
    ))
}

/// The content of a file that the user named; a pipe, as of `<(…)`, is read to its end.
///
/// # Errors
/// Status 66 when it is missing or stays silent, 65 when it is above `limit`; and a run that is to end.
pub fn read_file(path: &Path, name: &str, limit: usize) -> Result<Vec<u8>> {
    // Without waiting for whoever may write to it: that is done where a signal is seen.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let what = || format!("read `{name}`");
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => {
            return Err(fail(Exit::NoInput, format!("there is no file `{name}`")));
        }
        other => other.map_err(std::io::Error::from).with_context(what)?,
    };
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    loop {
        if !signal::readable(&file, &mut Patience::of(GIVE_UP_AFTER))? {
            return Err(fail(Exit::NoInput, format!("`{name}` stayed silent")));
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

/// The media type of an image that models take, told by its first bytes: PNG, JPEG, GIF or WebP.
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

/// Bytes as text.
#[derive(Debug, PartialEq, Eq)]
pub struct Decoded {
    pub text: String,
    /// What was odd about the bytes, for the user.
    pub notice: Option<String>,
}

/// `bytes` as text: UTF-8, or UTF-16 with a byte order mark. Bytes that are neither are replaced, and that is said.
///
/// # Errors
/// Bytes with NULs in them are no text. `what` names them in the message.
pub fn decode(bytes: Vec<u8>, what: &str) -> Result<Decoded> {
    if let Some((encoding, mark)) = encoding_rs::Encoding::for_bom(&bytes) {
        let (text, broken) = encoding.decode_without_bom_handling(&bytes[mark..]);
        let notice = broken.then(|| {
            format!(
                "{what} is not all {}; what is not was replaced",
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
                "{what} is not all UTF-8 (first at byte {}); what is not was replaced",
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
