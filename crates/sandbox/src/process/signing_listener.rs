//! The socket in the private directory of a command, over which git in the sandbox requests signatures. A thread answers
//! until the command has ended.

use super::signing_client::{SIGNED, SigningProgram};
use nanobot_os::cancel::{self, CancelToken};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum bytes of a request: the name of the program, and the object to be signed.
const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Maximum time for the arrival of a request, and for the reading of its answer.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Signs a payload for the program that git calls.
pub(super) type SignFunction =
    dyn Fn(SigningProgram, &[u8]) -> Result<Vec<u8>, String> + Send + Sync;

/// The listening socket. Dropping this cancels a signature that is being made, and waits for the end of the thread.
pub struct SigningListener {
    path: PathBuf,
    token: Arc<CancelToken>,
    thread: Option<JoinHandle<()>>,
}

impl SigningListener {
    /// Listens at `path`, in a directory that only this user and the command reach.
    ///
    /// # Errors
    /// The socket or the thread cannot be created.
    pub fn start(path: &Path, sign: Box<SignFunction>) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        let token = CancelToken::new()?;
        let thread = std::thread::Builder::new().spawn({
            let token = Arc::clone(&token);
            move || cancel::scope(Some(Arc::clone(&token)), || serve(&listener, &token, &sign))
        })?;
        Ok(Self { path: path.to_owned(), token, thread: Some(thread) })
    }
}

impl Drop for SigningListener {
    fn drop(&mut self) {
        self.token.cancel();
        if let Some(thread) = self.thread.take() {
            // A join fails only after a panic, which would have ended the process.
            drop(thread.join());
        }
        // The directory is removed with the run.
        drop(std::fs::remove_file(&self.path));
    }
}

fn serve(listener: &UnixListener, token: &CancelToken, sign: &SignFunction) {
    while is_ready(listener, token, None) {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            // Without descriptors the next attempt would fail as well.
            Err(error) => return log::warn!(target: "sandbox", "no more signatures: {error}"),
        };
        // The caller of a failed request gets no signature, and says so.
        if let Err(error) = answer(&mut stream, token, sign) {
            log::debug!(target: "sandbox", "a request to sign failed: {error}");
        }
    }
}

/// Reads and answers one request, unless the command ends meanwhile.
fn answer(stream: &mut UnixStream, token: &CancelToken, sign: &SignFunction) -> io::Result<()> {
    let deadline = Instant::now() + EXCHANGE_TIMEOUT;
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if !is_ready(&*stream, token, Some(deadline)) {
            let is_cancelled = token.is_cancelled();
            let kind = if is_cancelled {
                io::ErrorKind::ConnectionAborted
            } else {
                io::ErrorKind::TimedOut
            };
            return Err(kind.into());
        }
        match stream.read(&mut buffer)? {
            0 => break,
            count => request.extend(&buffer[..count]),
        }
        if request.len() > MAX_REQUEST_BYTES {
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
fn is_ready(fd: impl AsFd, token: &CancelToken, deadline: Option<Instant>) -> bool {
    loop {
        let time_left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
        let timeout = time_left.and_then(|time_left| Timespec::try_from(time_left).ok());
        let mut fds = [PollFd::new(&fd, PollFlags::IN), PollFd::new(&token.wake_rx, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) => return false,
            Ok(_) => return fds[1].revents().is_empty() && !fds[0].revents().is_empty(),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{SigningListener, SigningProgram};
    use nanobot_os::signal;
    use std::io::Write;
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn the_end_of_the_command_cancels_a_signature() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sign");
        let (began_tx, began_rx) = mpsc::channel();
        let (ended_tx, ended_rx) = mpsc::channel();
        let sign = move |_: SigningProgram, _: &[u8]| {
            began_tx.send(()).unwrap();
            // A passphrase dialog that the user has left open.
            let result = signal::sleep(Duration::from_secs(20));
            ended_tx.send(result.is_err()).unwrap();
            Err("no signature".to_owned())
        };
        let listener = SigningListener::start(&path, Box::new(sign)).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"gpg\nobject").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        began_rx.recv().unwrap();
        drop(listener);
        assert!(ended_rx.recv().unwrap(), "it was not cancelled");
        assert!(!path.exists());
    }
}
