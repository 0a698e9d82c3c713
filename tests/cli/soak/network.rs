//! A network that breaks: a relay in front of each server, whose connections are refused, cut or held back for a while.

use crate::crash::Random;
use crate::listener::Listener;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// The state of a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fault {
    /// Everything arrives.
    #[default]
    None,
    /// Connections are closed as soon as they are made.
    Closed,
    /// The server gets a request, and its response is cut.
    Cut,
    /// Nothing is passed on.
    Stalled,
    /// Each request is answered with status 500, and does not reach the server.
    Failing,
}

impl Fault {
    const ALL: [Self; 4] = [Self::Closed, Self::Cut, Self::Stalled, Self::Failing];

    pub(super) fn any(random: &mut Random) -> Self {
        Self::ALL[random.next_below(Self::ALL.len())]
    }
}

/// Bytes of a response that arrive before it is cut.
const CUT_BYTES: usize = 20;
const FAILURE: &[u8] = b"HTTP/1.1 500 Failing\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

#[derive(Default)]
struct State {
    fault: Fault,
    /// Both sides of each connection.
    open: Vec<TcpStream>,
}

/// A network between a client and a server.
#[derive(Default)]
struct Network {
    state: Mutex<State>,
    changed: Condvar,
}

/// The relay of a network.
pub(super) struct Relay {
    pub(super) port: u16,
    network: Arc<Network>,
    _listener: Listener,
}

impl Relay {
    pub(super) fn to(server_port: u16) -> Self {
        let network: Arc<Network> = Arc::default();
        let shared = Arc::clone(&network);
        let listener = Listener::start(move |client| drop(shared.pass_on(client, server_port)));
        Self { port: listener.port, network, _listener: listener }
    }

    /// Changes the state of the network. The connections end.
    pub(super) fn set(&self, fault: Fault) {
        let mut state = self.network.state.lock().unwrap();
        state.fault = fault;
        for stream in state.open.drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
        self.network.changed.notify_all();
    }
}

impl Network {
    fn fault(&self) -> Fault {
        self.state.lock().unwrap().fault
    }

    fn pass_on(&self, mut client: &TcpStream, server_port: u16) -> std::io::Result<()> {
        match self.fault() {
            Fault::Closed => return Ok(()),
            Fault::Failing => {
                let _count = client.read(&mut [0; 4096])?;
                return client.write_all(FAILURE);
            }
            Fault::Stalled => {
                let state = self.state.lock().unwrap();
                drop(self.changed.wait_while(state, |state| state.fault == Fault::Stalled));
                return Ok(());
            }
            Fault::None | Fault::Cut => {}
        }
        let mut server = TcpStream::connect(("127.0.0.1", server_port))?;
        {
            let mut state = self.state.lock().unwrap();
            // Those that have ended are forgotten.
            state.open.retain(|stream| stream.peer_addr().is_ok());
            state.open.extend([client.try_clone()?, server.try_clone()?]);
        }
        let (mut sender, mut receiver) = (client.try_clone()?, server.try_clone()?);
        let requests = std::thread::spawn(move || {
            drop(std::io::copy(&mut sender, &mut receiver));
            drop(receiver.shutdown(Shutdown::Write));
        });
        let mut bytes = [0; 16 << 10];
        while let Ok(count @ 1..) = server.read(&mut bytes) {
            if self.fault() == Fault::Cut {
                client.write_all(&bytes[..count.min(CUT_BYTES)])?;
                break;
            }
            client.write_all(&bytes[..count])?;
        }
        for stream in [client, &server] {
            drop(stream.shutdown(Shutdown::Both));
        }
        requests.join().unwrap();
        Ok(())
    }
}
