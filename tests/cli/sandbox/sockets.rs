//! Attempts to open or reach a socket. Listeners count the connections.

use super::fixture::{SandboxFixture, print_count};
use crate::requirements::require;
use crate::situation::available_users;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Python programs, where `TCP`, `UDP` are ports and `STREAM`, `DGRAM` paths of listening sockets. Each prints `open` if it
/// succeeded.
const PYTHON: [(&str, &str); 24] = [
    ("tcp", "s=socket.create_connection(('127.0.0.1',TCP))"),
    ("udp", "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.sendto(b'x',('127.0.0.1',UDP))"),
    ("tcp over IPv6", "socket.socket(socket.AF_INET6,socket.SOCK_STREAM)"),
    ("icmp", "socket.socket(socket.AF_INET,socket.SOCK_DGRAM,1)"),
    ("raw", "socket.socket(socket.AF_INET,socket.SOCK_RAW,255)"),
    ("sctp", "socket.socket(socket.AF_INET,socket.SOCK_STREAM,132)"),
    ("a UNIX stream", "s=socket.socket(socket.AF_UNIX); s.connect(STREAM)"),
    ("a UNIX datagram", "s=socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM); s.sendto(b'x',DGRAM)"),
    ("an abstract one", "s=socket.socket(socket.AF_UNIX); s.connect(ABSTRACT)"),
    ("netlink", "socket.socket(16,socket.SOCK_RAW,0)"),
    ("packets", "socket.socket(17,socket.SOCK_RAW,0)"),
    ("vsock", "socket.socket(40,socket.SOCK_STREAM)"),
    ("the kernel's ciphers", "socket.socket(38,5)"),
    ("bluetooth", "socket.socket(31,socket.SOCK_RAW,1)"),
    (
        "a pair led elsewhere",
        "a,b=socket.socketpair(socket.AF_UNIX,socket.SOCK_DGRAM); a.sendto(b'x',DGRAM)",
    ),
    ("a stream of a pair led elsewhere", "a,b=socket.socketpair(); b.close(); a.connect(STREAM)"),
    ("tcp to another machine", "socket.create_connection(('192.0.2.1',80),3)"),
    ("udp to another machine", "socket.socket(2,2 ).sendto(b'x',('192.0.2.1',53))"),
    ("udp to another machine over IPv6", "socket.socket(10,2 ).sendto(b'x',('2001:db8::1',53))"),
    ("a packet of one's own", "socket.socket(10,3 ,58)"),
    ("the sockets of the machine", "socket.socket(16,3 ,4)"),
    ("the firewall", "socket.socket(16,3 ,12)"),
    (
        "an interface brought down",
        "fcntl.ioctl(socket.socket(2,2 ),0x8914,struct.pack('16sh14x',b'lo',0))",
    ),
    ("io_uring", "assert call(425,8,ctypes.create_string_buffer(120))>=0"),
];

/// Shell commands.
const SHELL: [(&str, &str, &str); 3] = [
    ("bash", "bash's own", "bash -c 'echo x > /dev/tcp/127.0.0.1/TCP' && echo open"),
    ("bash", "bash's own datagram", "bash -c 'echo x > /dev/udp/127.0.0.1/UDP' && echo open"),
    (
        "perl",
        "perl's",
        "perl -MIO::Socket::INET -e 'print \"open\" if IO::Socket::INET->new(\"127.0.0.1:TCP\")'",
    ),
];

/// Sockets that open in a network namespace of its own, and lead to no other program.
const OPEN_IN_OWN_NETWORK: [&str; 4] = ["udp", "tcp over IPv6", "netlink", "bash's own datagram"];

#[test]
fn sockets_cannot_be_opened() {
    if !require("python3") {
        return;
    }
    for (user, has_namespaces) in
        available_users().into_iter().flat_map(|user| [(user, true), (user, false)])
    {
        let mut fixture = SandboxFixture::new(user);
        if !has_namespaces {
            fixture = fixture.without_namespaces();
        }
        let arrived = Arc::new(AtomicUsize::new(0));
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let stream_path = fixture.story.dir().join("stream");
        let datagram_path = fixture.story.dir().join("datagram");
        let stream = UnixListener::bind(&stream_path).unwrap();
        let datagram = UnixDatagram::bind(&datagram_path).unwrap();
        for path in [&stream_path, &datagram_path] {
            let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            std::fs::set_permissions(path, everybody).unwrap();
        }
        let abstract_name =
            format!("nanobot-test-{}-{user:?}-{has_namespaces}", std::process::id());
        let abstract_address =
            <std::os::unix::net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(
                &abstract_name,
            )
            .unwrap();
        let abstract_one = UnixListener::bind_addr(&abstract_address).unwrap();
        let (tcp_port, udp_port) = (
            tcp.local_addr().unwrap().port().to_string(),
            udp.local_addr().unwrap().port().to_string(),
        );
        let count = |work: Box<dyn Fn() -> bool + Send>| {
            let arrived = Arc::clone(&arrived);
            std::thread::spawn(move || {
                while work() {
                    arrived.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        count(Box::new(move || tcp.accept().is_ok()));
        count(Box::new(move || udp.recv(&mut [0; 9]).is_ok()));
        count(Box::new(move || stream.accept().is_ok()));
        count(Box::new(move || datagram.recv(&mut [0; 9]).is_ok()));
        count(Box::new(move || abstract_one.accept().is_ok()));
        let filled = |text: &str| {
            text.replace("TCP", &tcp_port)
                .replace("UDP", &udp_port)
                .replace("STREAM)", &format!("'{}')", stream_path.display()))
                .replace("DGRAM)", &format!("'{}')", datagram_path.display()))
                .replace("ABSTRACT", &format!("'\\0{abstract_name}'"))
                .replace("socket.SOCK_'", "socket.SOCK_")
        };
        let mut names: Vec<&str> = Vec::new();
        let mut commands = Vec::new();
        for (name, text) in PYTHON {
            names.push(name);
            // The names of kinds end like those of paths.
            let text = text
                .replace("SOCK_STREAM)", "1 )")
                .replace("SOCK_DGRAM)", "2 )")
                .replace("socket.1 )", "1 )")
                .replace("socket.2 )", "2 )");
            commands.push(format!(
                "python3 - <<'end'\nimport socket, ctypes, fcntl, struct\ncall = ctypes.CDLL(None).syscall\ntry:\n  {}\n  print('open')\nexcept OSError as error:\n  \
                 print('held', error)\nexcept AssertionError:\n  print('held')\nend",
                filled(&text)
            ));
        }
        for (program, name, text) in SHELL {
            if require(program) {
                names.push(name);
                commands.push(filled(text));
            }
        }
        let outputs = fixture.run_commands(&[], &commands);
        let open: Vec<String> = names
            .iter()
            .zip(&outputs)
            .filter(|(name, _)| !has_namespaces || !OPEN_IN_OWN_NETWORK.contains(name))
            .filter(|(_, output)| output.contains("open"))
            .map(|(name, output)| format!("{name}: {output}"))
            .collect();
        for (name, output) in names.iter().zip(&outputs).take(PYTHON.len()) {
            assert!(
                output.starts_with("held") || output.starts_with("open"),
                "{name} was not tried: {output}"
            );
        }
        print_count(&format!(
            "{user:?}, namespaces {has_namespaces}: {} of {} sockets not opened, {} connections arrived",
            names.len() - open.len(),
            names.len(),
            arrived.load(Ordering::SeqCst)
        ));
        assert!(open.is_empty(), "{user:?}, {has_namespaces}:\n{}", open.join("\n"));
        assert_eq!(arrived.load(Ordering::SeqCst), 0);
        // Without the sandbox they open and connect.
        let outputs = fixture.run_commands(
            &["--sandbox", "off"],
            &[&commands[0], &commands[1], &commands[6], &commands[7], &commands[14]],
        );
        assert!(outputs.iter().all(|output| output.starts_with("open")), "{outputs:?}");
        // The listeners' threads count accepted connections.
        crate::wait::until("all arrive", || arrived.load(Ordering::SeqCst) >= outputs.len());
    }
}
