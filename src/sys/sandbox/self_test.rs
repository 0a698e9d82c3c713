//! Tests a sandbox by attempting forbidden operations inside it, on a thread that then ends.

use super::{ProtectedPids, SandboxSpec};
use std::fs::{File, OpenOptions};
use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

/// An attempted operation and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfTestResult {
    /// The operation.
    pub operation: String,
    /// True if it was refused, as it must be.
    pub is_refused: bool,
    /// The system's error message, or a note that the operation worked.
    pub outcome: String,
}

/// Tries to create a file in each of `outside`, to read each of `denied`, and to open sockets.
///
/// # Errors
/// The sandbox cannot be applied, or the files and sockets that the test needs cannot be created.
pub fn run_self_test(
    sandbox: &SandboxSpec,
    outside: &[PathBuf],
    denied: &[PathBuf],
) -> io::Result<Vec<SelfTestResult>> {
    let temp = tempfile::tempdir()?;
    let canary = temp.path().join("canary");
    std::fs::write(&canary, "alive")?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let socket = temp.path().join("socket");
    let _there = UnixListener::bind(&socket)?;
    let mut trials = sandbox.run_inside(&ProtectedPids::current(), || {
        let mut trials = Vec::new();
        let mut tried = |what: String, done: io::Result<()>| {
            trials.push(SelfTestResult {
                operation: what,
                is_refused: done.is_err(),
                outcome: done.map_or_else(|error| error.to_string(), |()| "succeeded".into()),
            });
        };
        let over = OpenOptions::new().write(true).truncate(true).open(&canary);
        tried("write to another program's file".into(), over.map(drop));
        tried("remove that file".into(), std::fs::remove_file(&canary));
        for place in outside {
            let path = place.join(format!(".nanobot-{}", crate::sys::secret::random_hex(8)));
            let created = OpenOptions::new().write(true).create_new(true).open(&path);
            if created.is_ok() {
                // The sandbox failed. If the file cannot be removed, the report still shows its directory.
                drop(std::fs::remove_file(&path));
            }
            tried(
                format!("create a file in `{}`", place.display()),
                created.map(drop),
            );
        }
        for path in denied {
            let read = match path.is_dir() {
                true => std::fs::read_dir(path).map(drop),
                false => File::open(path).map(drop),
            };
            tried(format!("read `{}`", path.display()), read);
        }
        if !sandbox.net {
            tried(
                "connect over TCP".into(),
                TcpStream::connect(address).map(drop),
            );
            tried(
                "open a UDP socket".into(),
                UdpSocket::bind("127.0.0.1:0").map(drop),
            );
        }
        tried(
            "connect to a UNIX socket".into(),
            UnixStream::connect(&socket).map(drop),
        );
        Ok(trials)
    })?;
    let alive = std::fs::read(&canary).is_ok_and(|text| text == b"alive");
    trials.push(SelfTestResult {
        operation: "change the test file in any of these ways".into(),
        is_refused: alive,
        outcome: if alive { "unchanged" } else { "changed" }.into(),
    });
    Ok(trials)
}
