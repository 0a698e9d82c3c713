//! The sockets of a stand-in: a thread for each connection. All of them end when the stand-in is dropped.

use crate::wait::{DEADLINE, until};
use rustix::net::{Shutdown, shutdown};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Weak};
use std::thread::Builder;

/// A listener on loopback. Dropping it closes its port and its connections.
pub(crate) struct Listener {
    pub(crate) port: u16,
    socket: Arc<TcpListener>,
}

impl Listener {
    /// Listens on a free port of 127.0.0.1, and calls `serve` with each connection.
    pub(crate) fn start(serve: impl Fn(&TcpStream) + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0", serve)
    }

    pub(crate) fn start_at(
        address: &str,
        serve: impl Fn(&TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let socket = Arc::new(TcpListener::bind(address).expect("a free port"));
        let port = socket.local_addr().expect("a bound listener has an address").port();
        let listener = Self { port, socket: Arc::clone(&socket) };
        // Its threads inherit the name.
        let thread = Builder::new().name(thread_name(port));
        thread.spawn(move || accept_all(&socket, &serve)).expect("a thread starts");
        listener
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        shutdown(&self.socket, Shutdown::Both).expect("it listens");
    }
}

fn thread_name(port: u16) -> String {
    format!("port {port}")
}

/// A port at which nothing listens, or a server of others will. The system does not give it to another socket, since it is below those
/// from which it chooses.
pub(crate) fn unused_port() -> u16 {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + u16::try_from(std::process::id() % 1000).unwrap() * 10;
    let mut ports = std::iter::repeat_with(|| first + COUNT.fetch_add(1, Ordering::Relaxed));
    ports.find(|port| TcpStream::connect(("127.0.0.1", *port)).is_err()).unwrap()
}

/// Serves connections until `socket` is shut down, which then happens to them too.
fn accept_all(socket: &TcpListener, serve: &(impl Fn(&TcpStream) + Sync)) {
    std::thread::scope(|scope| {
        let mut open: Vec<Weak<TcpStream>> = Vec::new();
        while let Ok((stream, _)) = socket.accept() {
            let stream = Arc::new(stream);
            open.retain(|stream| stream.strong_count() > 0);
            open.push(Arc::downgrade(&stream));
            scope.spawn(move || serve(&stream));
        }
        for stream in open.iter().filter_map(Weak::upgrade) {
            // The client may have closed it.
            drop(stream.shutdown(std::net::Shutdown::Both));
        }
    });
}

fn thread_count(name: &str) -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = threads.filter_map(|it| std::fs::read_to_string(it.path().join("comm")).ok());
    names.filter(|it| it.trim_end() == name).count()
}

#[test]
fn threads_and_connections_end_with_their_listener() {
    let listener = Listener::start(|mut stream| {
        let _count = std::io::copy(&mut &*stream, &mut stream).unwrap();
    });
    let (port, name) = (listener.port, thread_name(listener.port));
    let mut clients = [(); 3].map(|()| TcpStream::connect(("127.0.0.1", port)).unwrap());
    for client in &mut clients {
        client.set_read_timeout(Some(DEADLINE)).unwrap();
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
    }
    assert_eq!(thread_count(&name), 4);
    // One that is closed by its client needs none any more.
    let [mut client, others @ ..] = clients;
    drop(others);
    until("the threads of closed connections remain", || thread_count(&name) == 2);
    drop(listener);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    until("threads remain", || thread_count(&name) == 0);
}
