//! The network of commands: loopback of their own, which the commands of a run share, and nothing else does.

use super::fixture::{SandboxFixture, Task, check_tasks};
use crate::requirements::require;
use crate::server::{Responder, calls, says};
use crate::situation::{User, available_users};
use crate::story::Story;
use crate::wait::accept;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

const TASKS: [Task; 12] = [
    (
        "curl",
        "mkdir -p w; echo page > w/x; python3 -m http.server 8001 --bind 127.0.0.1 -d w >log 2>&1 & \
         until curl -fs http://localhost:8001/x; do :; done; kill $!; wait",
        "page",
    ),
    (
        "curl",
        "python3 -m http.server 8001 --bind ::1 -d w >log 2>&1 & \
         until curl -fs 'http://[::1]:8001/x'; do :; done; kill $!; wait",
        "page",
    ),
    (
        "python3",
        "cat > test_server.py <<'end'
import http.server, threading, unittest, urllib.request
class Test(unittest.TestCase):
    def test_answers(self):
        server = http.server.ThreadingHTTPServer(('localhost', 0), http.server.SimpleHTTPRequestHandler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with urllib.request.urlopen('http://localhost:%d/w/x' % server.server_port) as page:
            self.assertEqual(page.read(), b'page\\n')
        server.shutdown()
end
python3 -m unittest -q test_server 2>&1 | tail -1",
        "OK",
    ),
    (
        "python3",
        "python3 -c 'import socket as s; a=s.socket(s.AF_INET6,s.SOCK_DGRAM); a.bind((\"::1\",0)); \
         b=s.socket(s.AF_INET6,s.SOCK_DGRAM); b.sendto(b\"datagram\",a.getsockname()); print(a.recv(99).decode())'",
        "datagram",
    ),
    (
        "node",
        "node -e 'const s=require(\"http\").createServer((q,r)=>r.end(\"node\")); s.listen(0,()=>fetch(`http://localhost:${s.address().port}`)\
         .then(r=>r.text()).then(t=>{console.log(t);s.close()}))'",
        "node",
    ),
    (
        "node",
        "node -e 'console.log(require(\"os\").networkInterfaces().lo.map(a => a.address).join())'",
        "127.0.0.1,::1",
    ),
    (
        "gcc",
        "cat > s.c <<'end'
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
int main(void) {
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *found;
    if (getaddrinfo(\"localhost\", \"8002\", &hints, &found)) return 1;
    int server = socket(found->ai_family, SOCK_STREAM, 0), client = socket(found->ai_family, SOCK_STREAM, 0);
    if (bind(server, found->ai_addr, found->ai_addrlen) || listen(server, 1)) return 2;
    if (connect(client, found->ai_addr, found->ai_addrlen)) return 3;
    int peer = accept(server, 0, 0);
    char text[9] = \"\";
    write(peer, \"from C\", 7);
    read(client, text, 7);
    puts(text);
}
end
gcc s.c -o s && ./s",
        "from C",
    ),
    ("getent", "getent ahosts localhost | grep -c STREAM > /dev/null && echo resolved", "resolved"),
    ("ip", "ip -o addr | awk '{ print $2, $4 }' | paste -sd,", "lo 127.0.0.1/8,lo ::1/128"),
    (
        "ss",
        "python3 -c 'import socket, subprocess as p; s = socket.create_server((\"127.0.0.1\", 8003)); p.run([\"ss\", \"-Hltn\"], stderr=-3)' | \
         awk '{ print $4 }'",
        "127.0.0.1:8003",
    ),
    ("", "grep -h ^Cap /proc/self/status | grep -v Bnd | sort -u -k2 | awk '{ print $2 }'", "0000000000000000"),
    (
        "python3",
        "python3 - <<'end'
import socket, struct
# Brings the interface down by netlink, which takes a capability.
route = socket.socket(16, socket.SOCK_RAW, 0)
route.send(struct.pack('=IHHIIBxHiII', 32, 16, 5, 1, 0, 0, 0, 1, 0, 1))
print(struct.unpack('=i', route.recv(99)[16:20])[0])
end",
        "-1",
    ),
];

#[test]
fn servers_and_their_tests_work_on_loopback() {
    for user in available_users() {
        let fixture = SandboxFixture::new(user);
        let results = fixture.run_commands(&["--write"], &TASKS.map(|(_, command, _)| command));
        check_tasks(user, &TASKS, &results, "tasks on loopback");
    }
}

/// A server in the background.
const SERVER: &str = "mkdir $TMPDIR/w && echo page > $TMPDIR/w/x && exec python3 -m http.server 8001 --bind 127.0.0.1 -d $TMPDIR/w";
const ASKS: &str = "until curl -fs http://127.0.0.1:8001/x; do :; done";
const ASKS_ONCE: &str = "curl -fsS --max-time 9 http://127.0.0.1:8001/x; echo $?";

fn starts_server() -> (&'static str, Value) {
    ("exec", json!({ "command": SERVER, "background": true }))
}

#[test]
fn the_next_command_asks_a_server_in_the_background() {
    if !require("curl") || !require("python3") {
        return;
    }
    for user in available_users() {
        let asks = || ("exec", json!({ "command": ASKS, "timeout": 60 }));
        let all = vec![starts_server(), asks(), asks()];
        let outputs = SandboxFixture::new(user).run_calls(&[], all);
        assert_eq!(outputs[1..], ["page", "page"], "{user:?}");
        // The command before it had made the network.
        let echo = ("exec", json!({ "command": "echo first" }));
        let all = vec![echo.clone(), echo, starts_server(), asks()];
        let outputs = SandboxFixture::new(user).run_calls(&[], all);
        assert_eq!(outputs[3], "page", "{user:?}");
    }
}

/// Another run, and a sub-agent, do not reach the server of this one.
#[test]
fn each_run_has_a_network_of_its_own() {
    if !require("curl") || !require("python3") {
        return;
    }
    let story = Story::new();
    let messages: Arc<Mutex<Vec<String>>> = Arc::default();
    let results = Arc::clone(&messages);
    let other_run: Responder = Box::new(move |request| {
        assert_eq!(request.last_content(), "page");
        let other = SandboxFixture::new(User::Current).run_commands(&[], &[ASKS_ONCE]);
        results.lock().unwrap().extend(other);
        says("done")(request)
    });
    let (name, arguments) = starts_server();
    let asks = json!({ "command": ASKS, "timeout": 60 });
    story.server().script([calls(name, arguments), calls("exec", asks), other_run]);
    story.run(["agent", "-m", "go", "--ephemeral"]).stdout("done\n");
    let messages = messages.lock().unwrap();
    assert!(messages[0].contains("\n7"), "{messages:?}");
}

/// The provenance of what a server of the run itself answers is the project's.
#[test]
fn output_over_loopback_is_not_external() {
    if !require("curl") || !require("python3") {
        return;
    }
    let story = Story::new();
    let (name, arguments) = starts_server();
    let job = json!({ "action": "add", "name": "tea", "message": "tea", "at": "2026-01-03T09:00" });
    let asks = json!({ "command": ASKS, "timeout": 60 });
    story.server().script([
        calls(name, arguments),
        calls("exec", asks),
        calls("cron", job),
        says("done"),
    ]);
    let run_result = story.run(["agent", "-m", "go", "--json", "--ephemeral"]);
    let result = run_result.json();
    drop(run_result.error_text());
    assert_eq!(result["denials"], json!([]), "{result}");
}

#[test]
fn without_namespaces_there_is_no_loopback_and_it_is_said() {
    if !require("curl") {
        return;
    }
    let fixture = SandboxFixture::new(User::Current).without_namespaces();
    let outputs = fixture
        .run_commands(&[], &["curl -sS http://127.0.0.1:8001/", "curl -sS http://192.0.2.1/"]);
    for output in outputs {
        assert!(output.contains("without user namespaces not even loopback"), "{output}");
    }
    let outputs = SandboxFixture::new(User::Current)
        .run_commands(&[], &["curl -sS http://127.0.0.1:8001/", "curl -sS http://192.0.2.1/"]);
    assert!(outputs[0].contains("only servers that they start listen there"), "{}", outputs[0]);
    assert!(outputs[1].contains("no network but loopback of their own"), "{}", outputs[1]);
}

/// Runs `command` in a run with `flags`, and returns the result with its denials.
fn run_strictly(flags: &[&str], command: &str, status: i32) -> (Value, String) {
    let story = Story::new();
    story.server().script([calls("exec", json!({ "command": command })), says("Done.")]);
    let arguments = [&["agent", "-m", "go", "--strict", "--json"], flags].concat();
    let result = story.run(arguments).status(status);
    let denials = result.json()["denials"].clone();
    drop(result.error_text());
    (denials, story.requests()[1].last_content())
}

/// A command that fails because it did not reach a server of the machine is denied, with the narrowest flag. The kernel counts the
/// connection that was refused, and the machine has a listener at that address.
#[test]
fn a_server_of_the_machine_that_is_not_reached_is_a_denial() {
    if !require("curl") || !require("python3") {
        return;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let port = address.port();
    let denied = [
        format!("curl -sS http://{address}/"),
        format!("curl -s http://localhost:{port}/"),
        format!("python3 -c 'import urllib.request as u; u.urlopen(\"http://{address}/\")'"),
        format!("echo 'http://{address}/' > $TMPDIR/x; curl -fsS $(cat $TMPDIR/x)"),
    ];
    for command in &denied {
        let (denials, content) = run_strictly(&[], command, 5);
        assert_eq!(denials[0]["grant"], format!("--net={address}"), "{command}: {denials}");
        assert!(content.contains("loopback of their own in this run"), "{content}");
    }
    let flag = format!("--net={address}");
    let answer = std::thread::spawn(move || {
        let mut stream = accept(&listener);
        let mut request = [0; 64];
        let _: usize = std::io::Read::read(&mut stream, &mut request).unwrap();
        let page = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\npage\n";
        std::io::Write::write_all(&mut stream, page).unwrap();
    });
    let (denials, content) = run_strictly(&[&flag], &denied[0], 0);
    answer.join().unwrap();
    assert_eq!((denials, content.as_str()), (json!([]), "page"));
    // The listener is closed: now the command would fail without a sandbox, too. The model cannot tell.
    let (denials, content) = run_strictly(&[], &denied[0], 0);
    assert_eq!(denials, json!([]));
    assert!(content.contains(&format!("`--net={address}`")), "{content}");
}

/// Only what the kernel has seen in the run counts, not words.
#[test]
fn a_failure_that_only_talks_about_a_server_is_no_denial() {
    if !require("curl") {
        return;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for command in [
        format!("echo 'connect ECONNREFUSED {address}'; false"),
        format!("curl -sS http://{address}/ || true"),
        format!("curl -sS http://127.0.0.1:1/; echo {}; false", address.ip()),
    ] {
        let (denials, _) = run_strictly(&[], &command, 0);
        assert_eq!(denials, json!([]), "{command}");
    }
}

/// With hosts, a program that does not use the proxy reaches nothing, and the flag is the one that gives it the network.
#[test]
fn a_connection_without_the_proxy_is_a_denial() {
    if !require("curl") {
        return;
    }
    let command = "curl -sS --noproxy '*' http://192.0.2.1/";
    let (denials, content) = run_strictly(&["--net=example.org"], command, 5);
    assert_eq!(denials[0]["grant"], "--net", "{denials}");
    assert!(content.contains("commands reach only example.org in this run"), "{content}");
}
