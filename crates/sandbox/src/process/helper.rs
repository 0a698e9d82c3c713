//! Helpers: this program, started again for one task, with a message and descriptors that it receives over a socket. The socket
//! is its standard input. The helper reads the end of the socket when the run is gone.

use super::own_program::helper_executable;
use nanobot_os::children::{detached, prepare};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use rustix::process::Pid;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Maximum number of descriptors that a helper can receive.
pub(crate) const MAX_DESCRIPTORS: usize = 64;

/// A running helper. Dropping this ends it.
#[derive(Debug)]
pub struct Helper {
    /// The socket to the helper.
    pub connection: UnixStream,
    process: Child,
}

impl Helper {
    /// Starts this program under the name `name`, by which it recognises its task, with an empty environment.
    ///
    /// # Errors
    /// The program cannot be started, it ended before it received the message, or there are more than 64 descriptors.
    pub fn start(name: &str, message: &[u8], descriptors: &[OwnedFd]) -> io::Result<Self> {
        prepare();
        let (connection, helper_end) = UnixStream::pair()?;
        let mut builder = Command::new(helper_executable()?);
        builder.arg0(name).env_clear().current_dir("/").process_group(0);
        builder.stdin(OwnedFd::from(helper_end)).stdout(Stdio::null()).stderr(Stdio::null());
        let process = {
            let mut detached_pids = detached();
            let process = builder.spawn()?;
            detached_pids.push(Pid::from_child(&process));
            process
        };
        let helper = Self { connection, process };
        // The builder holds the other end of the socket.
        drop(builder);
        send_message(&helper.connection, message, descriptors)?;
        Ok(helper)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // An error means that the helper has ended.
        drop(self.process.kill());
        drop(self.process.wait());
        let pid = Pid::from_child(&self.process);
        detached().retain(|other| *other != pid);
    }
}

/// The input of a helper process.
#[derive(Debug)]
pub struct HelperTask {
    /// The connection to the run.
    pub connection: UnixStream,
    pub message: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
}

/// Receives the message and the descriptors of this process, if it was started as the helper `name`.
///
/// # Errors
/// The run is gone.
pub fn receive_task(name: &str) -> Option<io::Result<HelperTask>> {
    if std::env::args_os().next()? != name {
        return None;
    }
    let receive = || {
        let connection = UnixStream::from(rustix::stdio::stdin().try_clone_to_owned()?);
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        let ReceivedMessage { message, descriptors } = receive_message(&connection)?;
        Ok(HelperTask { connection, message, descriptors })
    };
    Some(receive())
}

/// Sends `message` behind its length, to whose eight bytes (little-endian) the `descriptors` are attached.
///
/// # Errors
/// The other side is gone, or there are more than [`MAX_DESCRIPTORS`].
pub(super) fn send_message(
    mut connection: &UnixStream,
    message: &[u8],
    descriptors: &[OwnedFd],
) -> io::Result<()> {
    let length = (message.len() as u64).to_le_bytes();
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts = [IoSlice::new(&length)];
    rustix::net::sendmsg(connection, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
    connection.write_all(message)
}

/// A message of [`send_message`].
pub(super) struct ReceivedMessage {
    pub(super) message: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
}

/// Receives a message of [`send_message`].
///
/// # Errors
/// The other side is gone.
pub(super) fn receive_message(mut connection: &UnixStream) -> io::Result<ReceivedMessage> {
    let mut length = [0; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut length)];
    let received =
        rustix::net::recvmsg(connection, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    });
    let descriptors = descriptors.collect();
    if received.bytes != length.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let length = usize::try_from(u64::from_le_bytes(length)).map_err(io::Error::other)?;
    let mut message = vec![0; length];
    connection.read_exact(&mut message)?;
    Ok(ReceivedMessage { message, descriptors })
}
