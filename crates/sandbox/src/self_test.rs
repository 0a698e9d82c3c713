//! Tests a sandbox by attempting forbidden operations inside it.

use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// An address of another machine that no network routes (RFC 5737).
const REMOTE_ADDRESS: &str = "192.0.2.1:9";

/// An attempted operation and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfTestResult {
    /// The operation.
    pub operation: String,
    /// True if it was refused, as it must be.
    pub is_refused: bool,
    /// The system's error message, or a note that the operation worked.
    pub outcome: String,
}

/// The operations to attempt inside a sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SelfTest {
    #[serde(with = "nanobot_os::wire_paths::path")]
    canary: PathBuf,
    address: SocketAddr,
    #[serde(with = "nanobot_os::wire_paths::path")]
    socket: PathBuf,
    #[serde(with = "nanobot_os::wire_paths::list")]
    outside: Vec<PathBuf>,
    #[serde(with = "nanobot_os::wire_paths::list")]
    denied: Vec<PathBuf>,
    /// The name of the file to create.
    file_name: String,
    has_network: bool,
}

/// The files and sockets that a test tries to reach.
pub struct SelfTestTargets {
    temp: TempDir,
    /// The files that it tries to create.
    created: Vec<PathBuf>,
    _tcp: TcpListener,
    _local: UnixListener,
}

impl SelfTest {
    /// Creates a test that tries to create a file in each of `outside`, to read each of `denied`, and to open sockets;
    /// internet ones unless the sandbox `has_network`. The targets must exist while it runs.
    ///
    /// # Errors
    /// The files and sockets that it needs cannot be created.
    pub fn new(
        outside: &[PathBuf],
        denied: &[PathBuf],
        has_network: bool,
    ) -> io::Result<(Self, SelfTestTargets)> {
        let temp = tempfile::tempdir()?;
        let canary = temp.path().join("canary");
        std::fs::write(&canary, "alive")?;
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        let socket = temp.path().join("socket");
        let local = UnixListener::bind(&socket)?;
        let test = Self {
            canary,
            address: tcp.local_addr()?,
            socket,
            outside: outside.to_vec(),
            denied: denied.to_vec(),
            file_name: format!(".nanobot-{}", nanobot_os::secret::random_hex(8)),
            has_network,
        };
        let targets = SelfTestTargets {
            temp,
            created: outside.iter().map(|directory| directory.join(&test.file_name)).collect(),
            _tcp: tcp,
            _local: local,
        };
        Ok((test, targets))
    }

    /// Attempts the operations. Called inside the sandbox.
    ///
    /// A file that could be created in `outside` may be in a directory that only the sandbox has: [`SelfTestTargets::check`]
    /// finds out.
    pub fn run(&self) -> Vec<SelfTestResult> {
        let mut results = Vec::new();
        let mut add = |operation: String, result: io::Result<()>| {
            results.push(SelfTestResult {
                operation,
                is_refused: result.is_err(),
                outcome: result.map_or_else(|error| error.to_string(), |()| "succeeded".into()),
            });
        };
        let written = OpenOptions::new().write(true).truncate(true).open(&self.canary);
        add("write to another program's file".into(), written.map(drop));
        add("remove that file".into(), std::fs::remove_file(&self.canary));
        for directory in &self.outside {
            let path = directory.join(&self.file_name);
            let created = OpenOptions::new().write(true).create_new(true).open(path);
            add(create_operation(directory), created.map(drop));
        }
        for path in &self.denied {
            add(format!("read `{}`", path.display()), read_any(path));
        }
        if !self.has_network {
            add(
                "connect to another program over TCP".into(),
                TcpStream::connect(self.address).map(drop),
            );
            let remote =
                UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.connect(REMOTE_ADDRESS));
            add("send to another machine over UDP".into(), remote);
        }
        add("connect to a UNIX socket".into(), UnixStream::connect(&self.socket).map(drop));
        results
    }
}

impl SelfTestTargets {
    /// Completes the results of the test with what can be seen from outside.
    pub fn check(&self, results: &mut Vec<SelfTestResult>) {
        for path in &self.created {
            let operation = create_operation(path.parent().unwrap_or(path));
            // If the sandbox failed and the file cannot be removed, the report still shows its directory.
            let is_refused = path.symlink_metadata().is_err();
            drop(std::fs::remove_file(path));
            for result in results.iter_mut().filter(|result| result.operation == operation) {
                if is_refused && !result.is_refused {
                    result.outcome = "only in a directory of its own".into();
                }
                result.is_refused = is_refused;
            }
        }
        let canary = std::fs::read(self.temp.path().join("canary"));
        let is_alive = canary.is_ok_and(|text| text == b"alive");
        results.push(SelfTestResult {
            operation: "change the test file in any of these ways".into(),
            is_refused: is_alive,
            outcome: if is_alive { "unchanged" } else { "changed" }.into(),
        });
    }
}

fn create_operation(directory: &Path) -> String {
    format!("create a file in `{}`", directory.display())
}

/// Reads something of a file or directory. An empty one is refused access too: it covers a closed path.
fn read_any(path: &PathBuf) -> io::Result<()> {
    let has_content = if path.is_dir() {
        std::fs::read_dir(path)?.next().is_some()
    } else {
        File::open(path)?.read(&mut [0])? > 0
    };
    if has_content { Ok(()) } else { Err(io::Error::other("it is empty")) }
}
