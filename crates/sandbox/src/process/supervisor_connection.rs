//! The parent's end of the connection to a supervisor: starts the supervisor, sends the launch description, and reads its reports.

use super::helper::{MAX_DESCRIPTORS, send_message};
use super::supervisor::{LaunchSpec, SupervisorReport};
use crate::NetworkNamespace;
use nanobot_os::signal::{self, Deadline};
use parking_lot::MutexGuard;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::Pid;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

/// The time that a supervisor may take to start its child, a command or a server. It normally takes milliseconds.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// The connection to a supervisor. When it is closed, the supervisor ends the processes that it has started.
#[derive(Debug)]
pub(super) struct SupervisorConnection {
    pub(super) control: UnixStream,
    /// Bytes received from the supervisor that are not a complete report yet.
    received: Vec<u8>,
}

/// A running supervisor, the leader of a process group.
#[derive(Debug)]
pub(super) struct SupervisorProcess {
    pub(super) process: Child,
    pub(super) connection: SupervisorConnection,
}

/// A network namespace that a supervisor has created, and the sockets that listen in it.
pub(super) struct CreatedNetwork {
    pub(super) namespace: NetworkNamespace,
    pub(super) listeners: Vec<OwnedFd>,
}

impl SupervisorProcess {
    /// Starts the supervisor that `builder` describes, with the output streams that are set there. Its id is added to `pids`,
    /// which stays locked until then, so that the supervisor is never mistaken for a leftover.
    pub(super) fn start(
        mut builder: Command,
        mut pids: MutexGuard<'_, Vec<Pid>>,
    ) -> io::Result<Self> {
        let (control, supervisor_end) = UnixStream::pair()?;
        builder.env_clear().process_group(0);
        // The builder is dropped at the end. It holds the other end of the socket, which must close when the supervisor ends.
        let process = builder.stdin(OwnedFd::from(supervisor_end)).spawn()?;
        pids.push(Pid::from_child(&process));
        let connection = SupervisorConnection { control, received: Vec::new() };
        Ok(Self { process, connection })
    }
}

impl SupervisorConnection {
    /// Waits for the network that a supervisor has created, which arrives before every other report. Returns `None` if it has created none.
    /// A report then says why.
    pub(super) fn receive_network(&mut self) -> io::Result<Option<CreatedNetwork>> {
        let mut deadline = Deadline::after(START_TIMEOUT);
        if !matches!(signal::wait_readable(&self.control, &mut deadline), Ok(true)) {
            return Ok(None);
        }
        let mut block = [0; 512];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut block)];
        let received = rustix::net::recvmsg(
            &self.control,
            &mut parts,
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        self.received.extend_from_slice(&block[..received.bytes]);
        let mut descriptors = ancillary.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
            _ => Vec::new(),
        });
        let (Some(network), Some(user)) = (descriptors.next(), descriptors.next()) else {
            return Ok(None);
        };
        let namespace = NetworkNamespace { network, user };
        Ok(Some(CreatedNetwork { namespace, listeners: descriptors.collect() }))
    }

    /// Sends the supervisor the launch description, with the streams.
    pub(super) fn launch(&mut self, launch: &LaunchSpec, streams: [OwnedFd; 3]) -> io::Result<()> {
        match self.send(launch, &streams) {
            // The supervisor ended before it read everything. Its report says why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            other => other?,
        }
        // Only the supervisor holds its ends from then on.
        drop(streams);
        self.control.set_nonblocking(true)
    }

    /// Sends the launch description and the streams.
    fn send(&self, launch: &LaunchSpec, streams: &[OwnedFd; 3]) -> io::Result<()> {
        let message = serde_json::to_vec(launch).map_err(io::Error::other)?;
        send_message(&self.control, &message, streams)
    }

    /// Waits for the report that the child has started or failed.
    ///
    /// # Errors
    /// There is no report; [`io::ErrorKind::Interrupted`] if the run is cancelled.
    pub(super) fn wait_for_start(&mut self) -> io::Result<SupervisorReport> {
        let mut deadline = Deadline::after(START_TIMEOUT);
        loop {
            let has_more = self.read_reports();
            match self.next_report() {
                Some(
                    SupervisorReport::Entered
                    | SupervisorReport::Ended { .. }
                    | SupervisorReport::Leftovers,
                ) => {}
                Some(report) => return Ok(report),
                None if has_more => match signal::wait_readable(&self.control, &mut deadline) {
                    Ok(true) => {}
                    Ok(false) => return Err(io::ErrorKind::TimedOut.into()),
                    Err(_) => return Err(io::ErrorKind::Interrupted.into()),
                },
                None => return Err(io::Error::other("its supervisor has ended")),
            }
        }
    }

    /// Reads pending reports from the supervisor. Returns true if more may follow.
    pub(super) fn read_reports(&mut self) -> bool {
        let mut block = [0; 512];
        loop {
            match self.control.read(&mut block) {
                Ok(0) => return false,
                Ok(count) => self.received.extend_from_slice(&block[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    /// The next of the reports that were read.
    pub(super) fn next_report(&mut self) -> Option<SupervisorReport> {
        let end = self.received.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.received.drain(..=end).collect();
        serde_json::from_slice(&line).ok()
    }

    /// Orders the supervisor to end.
    pub(super) fn order_end(&self) {
        // If the supervisor is gone already, no order is needed.
        drop(self.control.shutdown(Shutdown::Write));
    }
}
