//! The socket in the private directory of a command, over which git in the sandbox requests signatures. A thread answers
//! until the command has ended.

use super::signing_client::{SIGNED, SigningProgram};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum bytes of an object to be signed.
const MAX_PAYLOAD_BYTES: usize = 1 << 20;
/// Maximum time for the arrival of a request, and for the reading of its answer.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Signs a payload for the program that git calls.
pub(super) type SignFunction =
    dyn Fn(SigningProgram, &[u8]) -> Result<Vec<u8>, String> + Send + Sync;

/// The listening socket. Dropping this ends it.
pub struct SigningListener {
    path: PathBuf,
    stop: Option<io::PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl SigningListener {
    /// Listens at `path`, in a directory that only this user and the command reach.
    ///
    /// # Errors
    /// The socket cannot be created.
    pub fn start(path: &Path, sign: Box<SignFunction>) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        let (stopped, stop) = io::pipe()?;
        let thread = std::thread::spawn(move || serve(&listener, &stopped, &sign));
        Ok(Self { path: path.to_owned(), stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for SigningListener {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A join fails only after a panic, which would have ended the process.
            drop(thread.join());
        }
        // The directory is removed with the run.
        drop(std::fs::remove_file(&self.path));
    }
}

fn serve(listener: &UnixListener, stopped: &io::PipeReader, sign: &SignFunction) {
    while is_ready(listener, stopped, None) {
        let Ok((mut stream, _)) = listener.accept() else {
            continue;
        };
        // The caller of a failed request gets no signature, and says so.
        if let Err(error) = answer(&mut stream, stopped, sign) {
            log::debug!(target: "sandbox", "a request to sign failed: {error}");
        }
    }
}

/// Reads and answers one request, unless the command ends meanwhile.
fn answer(
    stream: &mut UnixStream,
    stopped: &io::PipeReader,
    sign: &SignFunction,
) -> io::Result<()> {
    let deadline = Instant::now() + EXCHANGE_TIMEOUT;
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if !is_ready(&*stream, stopped, Some(deadline)) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match stream.read(&mut buffer)? {
            0 => break,
            count => request.extend(&buffer[..count]),
        }
        if request.len() > MAX_PAYLOAD_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
    let end = request.iter().position(|byte| *byte == b'\n').ok_or(io::ErrorKind::InvalidData)?;
    let program = SigningProgram::from_name(&request[..end]).ok_or(io::ErrorKind::InvalidData)?;
    let answer = match sign(program, &request[end + 1..]) {
        Ok(signature) => [&[SIGNED], &signature[..]].concat(),
        Err(reason) => reason.into_bytes(),
    };
    stream.set_write_timeout(Some(EXCHANGE_TIMEOUT))?;
    stream.write_all(&answer)
}

/// Waits until `fd` can be read. Returns false if the command has ended, or `deadline` is over.
fn is_ready(fd: impl AsFd, stopped: &io::PipeReader, deadline: Option<Instant>) -> bool {
    loop {
        let time_left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
        let timeout = time_left.and_then(|time_left| Timespec::try_from(time_left).ok());
        let mut fds = [PollFd::new(&fd, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) => return false,
            Ok(_) => return fds[1].revents().is_empty() && !fds[0].revents().is_empty(),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}
