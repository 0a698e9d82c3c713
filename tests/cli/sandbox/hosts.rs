//! The hosts that `--net=HOSTS` grants to commands: package managers and git reach them through the proxy, and nothing
//! else is reached.

use super::fixture::{SandboxFixture, Task, check_tasks, print_count};
use crate::listener::Listener;
use crate::requirements::require;
use crate::server::{Responder, calls, says};
use crate::situation::{User, available_users};
use crate::wait::until_exists;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const REGISTRY: &str = include_str!("registry.py");
/// The address of the registry, to which the names of hosts lead that tests declare as public.
const ADDRESS: &str = "127.7.7.7";

/// A registry that runs outside of the sandbox, and a fixture whose commands know its name.
struct Registry {
    yard: SandboxFixture,
    process: Child,
    secure: String,
    plain: String,
}

impl Drop for Registry {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Registry {
    /// Starts it; `None` if a program is missing.
    fn start(user: User) -> Option<Self> {
        if !require("python3") || !require("openssl") || !require("git") || !require("curl") {
            return None;
        }
        let mut fixture = SandboxFixture::new(user);
        let hosts = format!(
            "registry.test={ADDRESS};other.test={ADDRESS};inner.test=10.0.0.1;rebind.test={ADDRESS}|127.0.0.1"
        );
        fixture.story = fixture.story.env("NANOBOT_TEST_HOSTS", &hosts);
        fixture.story =
            fixture.story.set("tools", json!({ "ssrfWhitelist": [format!("{ADDRESS}/32")] }));
        let dir = fixture.outside_dir().join("registry");
        std::fs::create_dir_all(&dir).unwrap();
        let mut server = fixture.story.program("python3");
        server.current_dir(&dir).args(["-c", REGISTRY, ADDRESS, "registry.test"]);
        let mut process = server.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (secure, plain) = line.trim().split_once(' ').expect("the registry names its ports");
        let (secure, plain) = (secure.to_owned(), plain.to_owned());
        // What the client needs is in the working directory.
        let client = dir.join("client");
        let copied =
            fixture.story.program("cp").args(["-rT", client.to_str().unwrap(), "."]).status();
        assert!(copied.unwrap().success());
        std::fs::copy(dir.join("ca.pem"), fixture.story.dir().join("ca.pem")).unwrap();
        Some(Self { yard: fixture, process, secure, plain })
    }

    /// The flag that grants the registry.
    fn flag(&self) -> String {
        format!("--net=registry.test:{},registry.test:{}", self.secure, self.plain)
    }

    fn fill(&self, command: &str) -> String {
        command.replace("SECURE", &self.secure).replace("PLAIN", &self.plain)
    }

    /// The paths and hosts that were requested.
    fn requests(&self) -> String {
        let log = self.yard.outside_dir().join("registry/log");
        std::fs::read_to_string(log).unwrap_or_default()
    }
}

const TASKS: [Task; 9] = [
    ("curl", "curl -fsS --cacert ca.pem https://registry.test:SECURE/page", "page"),
    ("curl", "curl -fsS http://registry.test:PLAIN/page", "page"),
    (
        "git",
        "export GIT_SSL_CAINFO=$PWD/ca.pem && git clone -q https://registry.test:SECURE/repo.git r && \
         git -C r fetch -q https://registry.test:SECURE/repo.git main && cat r/f",
        "from git",
    ),
    ("git", "git clone -q http://registry.test:PLAIN/repo.git plain && cat plain/f", "from git"),
    (
        "npm",
        "npm_config_cafile=$PWD/ca.pem npm ci --no-audit --no-fund --registry https://registry.test:SECURE/ > /dev/null && \
         node -p 'require(\"left\")'",
        "from npm",
    ),
    (
        "python3",
        "python3 -m pip install -q --root-user-action=ignore --cert ca.pem --index-url https://registry.test:SECURE/simple/ --target p left && \
         PYTHONPATH=p python3 -c 'import left; print(left.text)'",
        "from pip",
    ),
    (
        "cargo",
        "export CARGO_HOME=$TMPDIR/cargo CARGO_HTTP_CAINFO=$PWD/ca.pem CARGO_REGISTRIES_MINE_INDEX=sparse+https://registry.test:SECURE/index/; \
         cargo fetch -q && ls $CARGO_HOME/registry/cache/*/",
        "left-1.0.0.crate",
    ),
    (
        "python3",
        "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://registry.test:PLAIN/page\").read().decode().strip())'",
        "page",
    ),
    (
        "python3",
        "python3 -c 'import socket
proxies = [socket.create_connection((\"127.0.0.1\", 3128)) for _ in range(160)]
for proxy in proxies:
    proxy.sendall(b\"GET http://registry.test:PLAIN/page HTTP/1.1\\r\\n\\r\\n\")
    assert b\"page\" in b\"\".join(iter(lambda: proxy.recv(4096), b\"\"))
    proxy.close()
print(\"all answered\")'",
        "all answered",
    ),
];

#[test]
fn package_managers_and_git_reach_a_named_host() {
    for user in available_users() {
        let Some(registry) = Registry::start(user) else {
            return;
        };
        let commands = TASKS.map(|(_, command, _)| registry.fill(command));
        let results = registry.yard.run_commands(&["--write", &registry.flag()], &commands);
        check_tasks(user, &TASKS, &results, "downloads from a named host");
    }
}

/// Says a request to the proxy, and prints the status of the answer.
const SAYS: &str = "python3 - <<'end'
import os, socket
address = os.environ['http_proxy'].removeprefix('http://').split(':')
def say(text):
    try:
        with socket.create_connection((address[0], int(address[1])), 30) as proxy:
            proxy.sendall(text.encode())
            answer = proxy.recv(99)
            return answer.split()[1].decode() if answer else 'end'
    except ConnectionError: return 'end'
";

/// Requests to the proxy, and the status of the answer.
const REFUSED: [(&str, &str); 27] = [
    ("CONNECT 127.0.0.1:CANARY HTTP/1.1\\r\\n\\r\\n", "403"),
    ("CONNECT localhost:CANARY HTTP/1.1\\r\\n\\r\\n", "403"),
    ("CONNECT [::1]:CANARY HTTP/1.1\\r\\n\\r\\n", "403"),
    ("CONNECT [::ffff:127.0.0.1]:CANARY HTTP/1.1\\r\\n\\r\\n", "403"),
    ("CONNECT 2130706433:CANARY HTTP/1.1\\r\\n\\r\\n", "403"),
    ("CONNECT 0x7f.1:CANARY HTTP/1.1\\r\\n\\r\\n", "403"),
    ("CONNECT 127.7.7.7:SECURE HTTP/1.1\\r\\n\\r\\n", "403"),
    ("CONNECT 169.254.169.254:80 HTTP/1.1\\r\\n\\r\\n", "403"),
    ("CONNECT 1.1.1.1:443 HTTP/1.1\\r\\n\\r\\n", "403"),
    ("CONNECT other.test:SECURE HTTP/1.1\\r\\n\\r\\n", "403"),
    ("CONNECT other.test.:SECURE HTTP/1.1\\r\\nhost: registry.test\\r\\n\\r\\n", "403"),
    ("CONNECT registry.test.other.test:SECURE HTTP/1.1\\r\\n\\r\\n", "403"),
    ("CONNECT registry.test:22 HTTP/1.1\\r\\n\\r\\n", "403"),
    ("CONNECT registry.test:443 HTTP/1.1\\r\\n\\r\\n", "403"),
    ("CONNECT registry.test:SECURE@other.test:SECURE HTTP/1.1\\r\\n\\r\\n", "400"),
    ("CONNECT registry.test HTTP/1.1\\r\\n\\r\\n", "400"),
    ("CONNECT inner.test:80 HTTP/1.1\\r\\n\\r\\n", "502"),
    ("GET http://127.0.0.1:CANARY/ HTTP/1.1\\r\\n\\r\\n", "403"),
    ("GET http://registry.test@127.0.0.1:CANARY/ HTTP/1.1\\r\\n\\r\\n", "400"),
    ("GET http://169.254.169.254/latest/meta-data HTTP/1.1\\r\\n\\r\\n", "403"),
    ("GET http://registry.test:PLAIN/page HTTP/1.1\\r\\nhost: other.test\\r\\n\\r\\n", "403"),
    (
        "GET http://registry.test:PLAIN/page HTTP/1.1\\r\\nhost: registry.test:PLAIN\\r\\nhost: other.test\\r\\n\\r\\n",
        "403",
    ),
    ("GET /page HTTP/1.1\\r\\nhost: registry.test:PLAIN\\r\\n\\r\\n", "400"),
    ("GET https://registry.test:SECURE/page HTTP/1.1\\r\\n\\r\\n", "400"),
    (
        "POST http://registry.test:PLAIN/ HTTP/1.1\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n",
        "411",
    ),
    (
        "POST http://registry.test:PLAIN/ HTTP/1.1\\r\\ncontent-length: 0\\r\\ncontent-length: 9\\r\\n\\r\\n",
        "400",
    ),
    ("GET http://registry.test:PLAIN/page HTTP/1.1\\r\\nx: y\\r\\n folded: z\\r\\n\\r\\n", "400"),
];

/// Further commands, of which none prints `open`.
const CLOSED: [&str; 8] = [
    // A TLS client that asks for another host of the same server, and one that asks for none.
    "curl -fsS --cacert ca.pem --connect-to other.test:443:registry.test:SECURE https://other.test/page && echo open",
    "openssl s_client -proxy 127.0.0.1:3128 -connect registry.test:SECURE -noservername < /dev/null 2>&1 | grep 'Server certificate' && echo open",
    "openssl s_client -proxy 127.0.0.1:3128 -connect registry.test:SECURE -servername other.test < /dev/null 2>&1 | grep 'Server certificate' && echo open",
    // Past the proxy.
    "curl -fsS --noproxy '*' --resolve registry.test:PLAIN:127.7.7.7 http://registry.test:PLAIN/page && echo open",
    "curl -fsS http://127.0.0.1:CANARY/ && echo open",
    // A name that leads elsewhere when it is asked for again.
    "curl -sS http://rebind.test:PLAIN/page > /dev/null; curl -fsS http://rebind.test:PLAIN/page && echo open",
    "for port in $(seq CANARY $((CANARY + 50))); do curl -fsS http://registry.test:$port/ && echo open; done 2>/dev/null",
    "curl -fsS http://other.test:PLAIN/page && echo open",
];

#[test]
fn nothing_but_named_hosts_is_reached() {
    for user in available_users() {
        let Some(registry) = Registry::start(user) else {
            return;
        };
        let arrived = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&arrived);
        let canary = Listener::start(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
        });
        let port = canary.port.to_string();
        let fill = |text: &str| registry.fill(text).replace("CANARY", &port);
        let commands = REFUSED.map(|(text, _)| format!("{SAYS}print(say('{}'))\nend", fill(text)));
        let flag = format!("{},inner.test,rebind.test:{}", registry.flag(), registry.plain);
        let outputs = registry.yard.run_commands(&[&flag], &commands);
        for ((text, expect), output) in REFUSED.iter().zip(&outputs) {
            assert_eq!(output.lines().next(), Some(*expect), "{user:?}: {text}: {output}");
        }
        // The refusal names its flag.
        assert!(
            outputs[9].contains(&fill(
                "other.test:SECURE; the user can grant it with `--net=other.test:SECURE`"
            )),
            "{}",
            outputs[9]
        );
        let tls_command = "openssl s_client -proxy 127.0.0.1:3128 -connect registry.test:SECURE -servername registry.test < /dev/null 2>&1 | grep -c \
                     'Server certificate'";
        assert_eq!(registry.yard.run_commands(&[&flag], &[fill(tls_command)]), ["1"]);
        let outputs = registry.yard.run_commands(&[&flag], &CLOSED.map(fill));
        for (command, output) in CLOSED.iter().zip(&outputs) {
            assert!(!output.contains("open"), "{user:?}: {command}: {output}");
        }
        assert_eq!(arrived.load(Ordering::SeqCst), 0);
        assert_eq!(registry.requests().lines().count(), 1, "{}", registry.requests());
        // The second request of a connection is not read, and the header `host` is the proxy's.
        let twice = fill(
            "GET http://registry.test:PLAIN/page HTTP/1.1\\r\\n\\r\\nGET http://registry.test:PLAIN/other HTTP/1.1\\r\\nhost: other.test\\r\\n\\r\\n",
        );
        let outputs =
            registry.yard.run_commands(&[&flag], &[format!("{SAYS}print(say('{twice}'))\nend")]);
        assert_eq!(outputs[0], "200", "{user:?}");
        let requests = registry.requests();
        let expect = fill("GET /page registry.test:PLAIN");
        assert_eq!(requests.lines().skip(1).collect::<Vec<_>>(), [expect], "{requests}");
        print_count(&format!(
            "{user:?}: {} ways past the proxy closed",
            REFUSED.len() + CLOSED.len()
        ));
    }
}

/// A port of the web that is named without a number takes TLS for that host only.
#[test]
fn at_the_ports_of_the_web_only_tls_and_plain_http_are_carried() {
    if !require("python3") || !rustix::process::getuid().is_root() {
        return;
    }
    // Another address than that of the registries, whose ports are their own.
    let address = "127.7.7.8";
    let _server = Listener::start_at(&format!("{address}:443"), |mut stream| {
        drop(std::io::copy(&mut &*stream, &mut stream));
    });
    let mut fixture = SandboxFixture::new(User::Current);
    fixture.story = fixture.story.env("NANOBOT_TEST_HOSTS", &format!("echo.test={address}"));
    fixture.story =
        fixture.story.set("tools", json!({ "ssrfWhitelist": [format!("{address}/32")] }));
    let command = format!(
        "{SAYS}with socket.create_connection((address[0], int(address[1])), 30) as proxy:
    proxy.sendall(b'CONNECT echo.test:443 HTTP/1.1\\r\\n\\r\\n')
    print(proxy.recv(99)[:12])
    proxy.sendall(b'SSH-2.0-x\\r\\n')
    print(proxy.recv(99))
end"
    );
    let outputs = fixture.run_commands(&["--net=echo.test"], &[&command]);
    assert_eq!(outputs[0], "b'HTTP/1.1 200'\nb''");
    let outputs = fixture.run_commands(&["--net=echo.test:443"], &[&command]);
    assert_eq!(outputs[0], "b'HTTP/1.1 200'\nb'SSH-2.0-x\\r\\n'");
}

/// A server of the machine's own loopback, and the hosts in the result.
#[test]
fn a_named_loopback_port_is_forwarded_and_hosts_are_told() {
    for user in available_users() {
        let Some(registry) = Registry::start(user) else {
            return;
        };
        let flag = format!("--net={ADDRESS}:{},registry.test:{}", registry.plain, registry.plain);
        let job =
            json!({ "action": "add", "name": "tea", "message": "tea", "at": "2026-01-03T09:00" });
        let run = |command: &str| -> Value {
            let command = json!({ "command": registry.fill(command) });
            let story = &registry.yard.story;
            story.server().script([
                calls("exec", command),
                calls("cron", job.clone()),
                says("done"),
            ]);
            let mut command = registry.yard.command(&[&flag, "--json"]);
            let run_result = story.wait(command.spawn().unwrap());
            let result = run_result.json();
            drop(run_result.error_text());
            result
        };
        // Without a byte from elsewhere the output is the project's.
        let result = run("echo local");
        assert_eq!((&result["hosts"], &result["denials"]), (&json!([]), &json!([])), "{result}");
        let result = run(&format!("curl -fsS --noproxy '*' http://{ADDRESS}:PLAIN/page"));
        assert_eq!(result["denials"][0]["tool"], "cron", "{result}");
        let host = &result["hosts"][0];
        assert_eq!(host["host"], format!("{ADDRESS}:{}", registry.plain), "{result}");
        assert_eq!(host["connections"], 1);
        assert!(
            host["sent_bytes"].as_u64() > Some(20) && host["received_bytes"].as_u64() > Some(20)
        );
        let result = run("curl -fsS http://registry.test:PLAIN/page");
        assert_eq!(result["denials"][0]["tool"], "cron", "{result}");
        assert_eq!(result["hosts"][0]["host"], registry.fill("registry.test:PLAIN"), "{result}");
        let result = run("curl -sS http://other.test:PLAIN/page; true");
        assert_eq!(result["hosts"], json!([]), "{result}");
    }
}

#[test]
fn without_namespaces_commands_reach_no_named_host() {
    if !require("curl") {
        return;
    }
    let fixture = SandboxFixture::new(User::Current).without_namespaces();
    let outputs = fixture.run_commands(&["--net=a.test"], &["curl -sS http://a.test/"]);
    assert!(outputs[0].contains("without user namespaces not even loopback"), "{}", outputs[0]);
}

/// A command that itself brings a page and an instruction file. What it writes before a byte has arrived is as ever.
#[test]
fn what_a_command_has_downloaded_instructs_nothing() {
    for user in available_users() {
        let Some(registry) = Registry::start(user) else {
            return;
        };
        let story = &registry.yard.story;
        let flags = ["--write", &registry.flag()];
        let outputs = registry.yard.run_commands(&flags, &["echo mine > GEMINI.md"]);
        assert_eq!(outputs, ["(no output)"], "{user:?}");
        let download = "curl -fsS http://registry.test:PLAIN/page | tee AGENTS.md .envrc > page";
        let outputs = registry.yard.run_commands(&flags, &[registry.fill(download)]);
        assert!(outputs[0].contains("`AGENTS.md` is read by programs"), "{user:?}: {}", outputs[0]);
        let exists = |name: &str| story.dir().join(name).exists();
        let exist = ["GEMINI.md", "page", "AGENTS.md", ".envrc"].map(exists);
        assert_eq!(exist, [true, true, false, false], "{user:?}: {outputs:?}");
    }
}

/// A page that a command in the background has brought is read as a file, without another call of a command.
#[test]
fn what_a_background_command_has_downloaded_is_from_outside() {
    for user in available_users() {
        let Some(registry) = Registry::start(user) else {
            return;
        };
        let story = &registry.yard.story;
        let download = registry
            .fill("curl -fsS http://registry.test:PLAIN/page > part && mv part got; exec sleep 60");
        let path = story.dir().join("got");
        let waits: Responder = Box::new(move |request| {
            until_exists(&path);
            calls("read_file", json!({ "path": "got" }))(request)
        });
        let job =
            json!({ "action": "add", "name": "tea", "message": "tea", "at": "2026-01-03T09:00" });
        story.server().script([
            calls("exec", json!({ "command": download, "background": true })),
            waits,
            calls("cron", job),
            says("done"),
        ]);
        let mut command = registry.yard.command(&["--write", &registry.flag(), "--json"]);
        let run_result = story.wait(command.spawn().unwrap());
        let result = run_result.json();
        drop(run_result.error_text());
        assert_eq!(result["denials"][0]["tool"], "cron", "{user:?}: {result}");
    }
}

/// A client that never says which host it means fills no memory.
#[test]
fn a_first_message_without_an_end_is_cut_off() {
    if !require("python3") {
        return;
    }
    let Some(registry) = Registry::start(User::Current) else {
        return;
    };
    let command = format!(
        "{SAYS}with socket.create_connection((address[0], int(address[1])), 30) as proxy:
    proxy.sendall(b'CONNECT registry.test:SECURE HTTP/1.1\\r\\n\\r\\n')
    proxy.recv(99)
    sent = 0
    try:
        proxy.sendall(b'\\x16\\x03\\x01\\x00\\x01\\x01')
        while sent < 64 << 20: sent += proxy.send(b'\\x17\\x03\\x03\\xff\\xff' + bytes(65535))
    except OSError: pass
    print('all' if sent >= 64 << 20 else 'cut off')
end"
    );
    let outputs = registry.yard.run_commands(&[&registry.flag()], &[registry.fill(&command)]);
    assert_eq!(outputs, ["cut off"]);
}
