//! Parsers of untrusted documents, each document in a process of its own: this program, started again, receives the document over
//! a socket, answers, and ends. The process has no files, no environment, no network and limited memory, as far as the system has the means. A parser that crashes,
//! loops or needs too much memory is an error of one document.

use super::helper::{Helper, HelperTask, receive_task};
use super::own_program::becomes_helpers;
use crate::parser::{limit_parser, restrict_parser_calls};
use nanobot_base::error::Stop;
use nanobot_os::signal::{self, Deadline};
use nanobot_os::test_hooks;
use rustix::process::Signal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The name (`argv[0]`) that makes this program parse a document.
const PARSER_ARG0: &str = "nanobot-parser";
/// The stack of a parser, in bytes: some recurse for each nested element.
const STACK_BYTES: usize = 64 << 20;
/// Maximum bytes of the answer of a parser.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// A parser of a kind of document.
pub trait IsolatedParser {
    /// The name by which the process selects the parser.
    const NAME: &'static str;
    /// Maximum time for a document.
    const TIMEOUT: Duration;
    /// Maximum memory of the process in MiB, including this program and the stack.
    const MEMORY_MIB: u64;
    /// The options of the parser.
    type Parameters: Serialize + DeserializeOwned;
    /// The result for a document.
    type Output: Serialize + DeserializeOwned;

    /// Parses a document. It has no access to anything else.
    fn parse(parameters: Self::Parameters, document: &[u8]) -> Self::Output;
}

/// The reason why a document could not be parsed.
#[derive(Debug)]
pub enum ParserError {
    /// The run ends.
    Stopped(Stop),
    TimedOut(Duration),
    /// The parser crashed, or needed more memory than these MiB.
    Crashed(u64),
    /// The process cannot be started.
    Start(io::Error),
}

impl fmt::Display for ParserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped(stop) => write!(f, "{stop}"),
            Self::TimedOut(limit) => {
                write!(f, "its parser did not finish within {} s", limit.as_secs())
            }
            Self::Crashed(mib) => {
                write!(f, "its parser crashed, or needed more than {mib} MiB of memory")
            }
            Self::Start(error) => {
                write!(f, "the process of its parser cannot be started: {error}")
            }
        }
    }
}

impl std::error::Error for ParserError {}

/// The entry of a parser in the list that the process searches by name.
#[derive(Debug)]
pub struct NamedParser {
    name: &'static str,
    memory_mib: u64,
    parse: fn(Value, &[u8]) -> serde_json::Result<Vec<u8>>,
}

impl NamedParser {
    /// The entry of `P`.
    pub const fn new<P: IsolatedParser>() -> Self {
        Self {
            name: P::NAME,
            memory_mib: P::MEMORY_MIB,
            parse: |parameters, document| {
                let parameters = serde_json::from_value(parameters)?;
                serde_json::to_vec(&P::parse(parameters, document))
            },
        }
    }
}

/// The first line of the message to the process, as JSON. The document follows.
#[derive(Serialize, Deserialize)]
struct ParserTask {
    parser: String,
    parameters: Value,
}

/// Parses `document` in a process of its own.
///
/// # Errors
/// The process cannot be started, the parser did not finish, or the run ends.
pub fn parse<P: IsolatedParser>(
    parameters: P::Parameters,
    document: &[u8],
) -> Result<P::Output, ParserError> {
    // A program of unit tests does not become a parser.
    if cfg!(feature = "test-hooks") && !becomes_helpers() {
        return Ok(P::parse(parameters, document));
    }
    let to_error = |error: serde_json::Error| ParserError::Start(error.into());
    let parameters = serde_json::to_value(parameters).map_err(to_error)?;
    let task = ParserTask { parser: P::NAME.to_owned(), parameters };
    let mut message = serde_json::to_vec(&task).map_err(to_error)?;
    message.push(b'\n');
    message.extend_from_slice(document);
    let helper = Helper::start(PARSER_ARG0, &message, &[]).map_err(ParserError::Start)?;
    let answer = read_answer(&helper.connection, P::TIMEOUT)?;
    let crashed = ParserError::Crashed(P::MEMORY_MIB);
    serde_json::from_slice(&answer.ok_or(crashed)?).map_err(|error| {
        // The answer of a process that crashed is incomplete.
        log::debug!(target: "sandbox", "the answer of the parser `{}` is invalid: {error}", P::NAME);
        ParserError::Crashed(P::MEMORY_MIB)
    })
}

/// Reads until the process closes the connection. `None` if it breaks, or the answer is too long.
fn read_answer(
    mut connection: &UnixStream,
    timeout: Duration,
) -> Result<Option<Vec<u8>>, ParserError> {
    connection.set_nonblocking(true).map_err(ParserError::Start)?;
    let mut deadline = Deadline::after(timeout);
    let mut answer = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        if !signal::wait_readable(connection, &mut deadline).map_err(ParserError::Stopped)? {
            return Err(ParserError::TimedOut(timeout));
        }
        match connection.read(&mut buffer) {
            Ok(0) => return Ok(Some(answer)),
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return Ok(None),
        }
        if answer.len() > MAX_ANSWER_BYTES {
            return Ok(None);
        }
    }
}

/// Parses a document with one of `parsers` if this program was started for that, and returns `None` otherwise. Returns true
/// if the answer was sent.
pub fn become_parser(parsers: &[NamedParser]) -> Option<bool> {
    let task = receive_task(PARSER_ARG0)?;
    super::harden();
    Some(task.and_then(|task| serve(parsers, task)).is_ok())
}

fn serve(parsers: &[NamedParser], task: HelperTask) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let HelperTask { connection, message, .. } = task;
    let invalid = || io::Error::from(ErrorKind::InvalidData);
    let end = message.iter().position(|byte| *byte == b'\n').ok_or_else(invalid)?;
    let (line, document) = (&message[..end], &message[end + 1..]);
    let ParserTask { parser, parameters } = serde_json::from_slice(line)?;
    let parser = parsers.iter().find(|other| other.name == parser).ok_or_else(invalid)?;
    limit_parser(parser.memory_mib << 20)?;
    let answer = std::thread::scope(|scope| {
        let parse = || {
            // Without seccomp the limits and the other layers remain; the self test reports that.
            drop(restrict_parser_calls());
            test_hooks::fail_as_parser(document);
            (parser.parse)(parameters, document)
        };
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        let thread = thread.spawn_scoped(scope, parse)?;
        let answer = thread.join().map_err(|_| io::Error::other("the parser crashed"))?;
        io::Result::Ok(answer?)
    })?;
    // A file is written with `write`, a socket with a call that could name a recipient.
    File::from(OwnedFd::from(connection)).write_all(&answer)
}
