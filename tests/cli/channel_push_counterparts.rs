//! The stand-ins for DingTalk, Feishu, QQ, WeCom and Mochat with the clients of the vendors and of the Python program, and
//! our client of the WhatsApp bridge with the bridge's own server.

use crate::listener::unused_port;
use crate::mochat_server::MochatServer;
use crate::push_servers::{PushServer, SECRET};
use crate::server::says;
use crate::story::Story;
use crate::wait::until;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

fn run_client(name: &str, port: u16) -> Child {
    let clients = std::env::var("NANOBOT_REAL_CLIENTS").expect("tests/real/push sets it");
    let environment = match name {
        "wecom" => "wecom",
        "mochat" => "program",
        _ => "clients",
    };
    let python = format!("{clients}/{environment}/bin/python");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/push_clients.py");
    let mut client = Command::new(python);
    client.arg(script).args([name, &port.to_string()]);
    client.stdout(Stdio::piped()).spawn().unwrap()
}

#[track_caller]
fn is_ok(client: Child, name: &str) {
    let output = client.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.ends_with("ok\n"), "{name}: {text}");
}

/// The vendors' clients take our servers for theirs.
#[test]
#[ignore = "needs packages; see tests/README.md"]
fn real_push_clients() {
    for name in ["dingtalk", "feishu", "qq", "wecom"] {
        let server = PushServer::by_name(name);
        let client = run_client(name, server.http.port);
        server.write("m1", "ann", "hi");
        is_ok(client, name);
        assert_eq!(server.answers()[0], ("ann".to_owned(), "hello".to_owned()), "{name}");
        let answers = server.answers().len();
        assert_eq!(answers, if matches!(name, "feishu" | "wecom") { 2 } else { 1 }, "{name}");
        assert!(!matches!(name, "dingtalk" | "feishu") || server.pending() == 0, "{name}");
    }
}

/// The channel of the Python program takes our Mochat for the service.
#[test]
#[ignore = "needs packages; see tests/README.md"]
fn real_mochat_channel() {
    let server = MochatServer::start();
    server.write("session_1", "m1", "ann", "before");
    server.write("panel1", "m2", "ann", "hi");
    let client = run_client("mochat", server.http.port);
    until("the first look", || !server.calls("/api/claw/sessions/watch").is_empty());
    server.write("session_1", "m3", "ann", "hi");
    is_ok(client, "mochat");
    assert_eq!(server.answers().len(), 2);
}

/// Our channel with the server of the bridge; its client of WhatsApp is scripted.
#[test]
#[ignore = "needs packages; see tests/README.md"]
fn real_bridge() {
    let script = std::env::var_os("NANOBOT_REAL_BRIDGE").expect("tests/real/push sets it");
    let port = unused_port();
    let mut bridge = Command::new("node")
        .arg(script)
        .args([&port.to_string(), SECRET])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(bridge.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let keys = json!({ "enabled": true, "bridgeUrl": format!("ws://127.0.0.1:{port}"), "bridgeToken": SECRET,
        "allowFrom": ["49170"] });
    let story =
        Story::new().set("channels", json!({ "whatsapp": keys })).script([says("**Hello** Ann.")]);
    story.run(["channel", "check", "whatsapp"]).stdout_has("the bridge");
    let poll = story.command(["channel", "poll", "--wait", "20"]).spawn().unwrap();
    let mut stdin = bridge.stdin.take().unwrap();
    // It keeps nothing, so the message is repeated until we are connected.
    let message = json!({ "id": "m1", "sender": "49170@s.whatsapp.net", "pn": "", "content": "hi", "timestamp": 1_767_323_045,
        "isGroup": false });
    until("the question", || {
        writeln!(stdin, "{message}").unwrap();
        !story.requests().is_empty()
    });
    let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(line, json!({ "to": "49170@s.whatsapp.net", "text": "*Hello* Ann." }));
    story.wait(poll);
    story.run(["channel", "send", "whatsapp", "+49170", "Done"]).text();
    let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(line["text"], "Done");
    story.run(["channel", "send", "whatsapp", "0", "x"]).status(69).stderr_has("Not connected");
    let wrong = story.set("channels.whatsapp.bridgeToken", json!("wrong"));
    wrong.run(["channel", "check", "whatsapp"]).status(77).stderr_has("bridgeToken");
    assert_eq!(wrong.requests().len(), 1);
    bridge.kill().unwrap();
    bridge.wait().unwrap();
}

/// A server of XMPP, which ends with the test.
struct Prosody {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl Prosody {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = unused_port();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let config = folder.path().join("prosody.cfg.lua");
        let (key, certificate) = (folder.path().join("key.pem"), folder.path().join("cert.pem"));
        let mut openssl = Command::new("openssl");
        openssl.args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
        ]);
        openssl.args(["-addext", "subjectAltName=DNS:localhost", "-keyout"]).arg(&key);
        let output = openssl.arg("-out").arg(&certificate).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = format!(
            "run_as_root = true\ndata_path = {data:?}\npidfile = {:?}\nssl = {{ key = {key:?}, certificate = {certificate:?} }}\n\
             modules_enabled = {{ \"tls\"; \"roster\"; \"saslauth\"; \"disco\"; \"ping\"; \"offline\" }}\n\
             modules_disabled = {{ \"s2s\" }}\nc2s_ports = {{ {port} }}\nc2s_interfaces = {{ \"127.0.0.1\" }}\n\
             authentication = \"internal_hashed\"\nstorage = \"internal\"\nVirtualHost \"localhost\"\n",
            folder.path().join("pid")
        );
        std::fs::write(&config, text).unwrap();
        for user in ["robot", "ann"] {
            let mut register = Command::new("prosodyctl");
            register.arg("--config").arg(&config).args(["register", user, "localhost", "password"]);
            let output = register.output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        let mut server = Command::new("prosody");
        server.arg("-F").arg("--config").arg(&config).stdout(Stdio::null());
        let child = server.spawn().unwrap();
        until("prosody listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { child, port, folder }
    }
}

impl Drop for Prosody {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The recipe for XMPP with Prosody; the other user is the recipe too, driven by hand.
#[test]
#[ignore = "needs packages; see tests/README.md"]
fn real_xmpp_recipe() {
    let server = Prosody::start();
    let clients = std::env::var("NANOBOT_REAL_CLIENTS").expect("tests/real/push sets it");
    let python = format!("{clients}/clients/bin/python");
    let recipe = concat!(env!("CARGO_MANIFEST_DIR"), "/recipes/xmpp.py");
    let host = format!("127.0.0.1:{}", server.port);
    let certificate = server.folder.path().join("cert.pem");
    let story = Story::new()
        .set(
            "channels",
            json!({ "xmpp": { "enabled": true, "command": python, "allowFrom": ["ann@localhost"],
                "args": [recipe, "robot@localhost"],
                "env": { "XMPP_PASSWORD": "password", "XMPP_SERVER": host, "XMPP_CA_FILE": certificate } } }),
        )
        .script([says("**Hello** Ann.")]);
    let mut ann = Command::new(&python)
        .args([recipe, "ann@localhost"])
        .env("XMPP_PASSWORD", "password")
        .env("XMPP_SERVER", &host)
        .env("XMPP_CA_FILE", &certificate)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = ann.stdin.take().unwrap();
    let mut lines = BufReader::new(ann.stdout.take().unwrap()).lines();
    // The server keeps it until the robot comes.
    let line = json!({ "type": "message", "id": "a1", "chat": "robot@localhost", "text": "hi", "files": [] });
    writeln!(stdin, "{line}").unwrap();
    let read = |line: Option<std::io::Result<String>>| -> Value {
        serde_json::from_str(&line.unwrap().unwrap()).unwrap()
    };
    assert_eq!(read(lines.next()), json!({ "type": "ack", "id": "a1" }));
    story.run(["channel", "poll", "--wait", "8"]);
    let answer = read(lines.next());
    assert_eq!(
        (&answer["text"], &answer["from"]),
        (&json!("Hello Ann."), &json!("robot@localhost"))
    );
    story.session("xmpp_ann@localhost.jsonl");
    drop(stdin);
    ann.wait().unwrap();
}
