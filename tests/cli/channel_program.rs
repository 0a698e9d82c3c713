//! Programs as channels: a scripted one, and the recipe for IRC with ngIRCd.

use crate::channel::send_signal;
use crate::channel_adapter::open_failure;
use crate::chat_services::{FACTS, ServiceFacts, StandIn};
use crate::listener::unused_port;
use crate::requirements::require;
use crate::server::says;
use crate::story::{Story, write, write_program};
use crate::wait::{DEADLINE, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// A program that prints the lines of a file at each start, notes the lines that it reads, and acknowledges messages.
const PROGRAM: &str = r#"#!/bin/sh
printf '%s\n' 'A greeting.' >&2
cd "${0%/*}"
cat inbound.jsonl 2>/dev/null
while read -r line; do
  case "$line" in
    *'"type":"message"'*)
      id=${line#*\"id\":\"}; id=${id%%\"*}
      [ -e refusal ] && { printf '{"type":"error","id":"%s",%s}\n' "$id" "$(cat refusal)"; continue; }
      printf '%s\n' "$line" >> received.jsonl
      printf '{"type":"ack","id":"%s"}\n' "$id" ;;
    *) printf '%s\n' "$line" >> notes.jsonl ;;
  esac
done
"#;

/// A story with the program, in which only Ann is allowed.
pub(crate) fn program_story() -> Story {
    let story = Story::new();
    write_program(&story.home().join("chat"), PROGRAM);
    let keys = json!({ "enabled": true, "command": "~/chat", "allowFrom": ["ann"] });
    story.set("channels", json!({ "program": keys }))
}

/// The lines that the program prints.
pub(crate) fn prints(story: &Story, lines: &[Value]) {
    print_lines(&story.home(), lines);
}

fn print_lines(directory: &Path, lines: &[Value]) {
    let lines: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
    write(&directory.join("inbound.jsonl"), lines.concat().as_bytes());
}

fn noted(story: &Story, name: &str) -> Vec<Value> {
    lines_of(&story.home(), name)
}

fn lines_of(directory: &Path, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(directory.join(name)).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The messages that the program has got, as chat and text.
pub(crate) fn received(story: &Story) -> Vec<(String, String)> {
    let text = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
    let lines = noted(story, "received.jsonl");
    lines.iter().map(|line| (text(line, "chat"), text(line, "text"))).collect()
}

pub(crate) fn message(id: &str, from: &str, text: &str) -> Value {
    json!({ "id": id, "chat": from, "from": from, "text": text })
}

/// A chat service of this program, in a directory of its own.
pub(crate) struct ProgramService(tempfile::TempDir);

impl ProgramService {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        write_program(&directory.path().join("chat"), PROGRAM);
        Self(directory)
    }

    /// The messages to a chat.
    fn sent_to(&self, chat: usize) -> Vec<Value> {
        let mut lines = lines_of(self.0.path(), "received.jsonl");
        lines.retain(|line| line["chat"] == format!("ann{chat}"));
        lines
    }

    /// Adds a line to what the program prints.
    fn add(&self, chat: usize, text: &str, reply_to: &Value) {
        let mut lines = lines_of(self.0.path(), "inbound.jsonl");
        let mut line = message(&lines.len().to_string(), &format!("ann{chat}"), text);
        line["reply_to"] = reply_to.clone();
        lines.push(line);
        print_lines(self.0.path(), &lines);
    }
}

impl StandIn for ProgramService {
    fn facts(&self) -> ServiceFacts {
        ServiceFacts {
            name: "program",
            session_file: "program_ann0.jsonl",
            keeps_messages: true,
            ..FACTS
        }
    }

    fn open_chats(&self, count: usize) -> Value {
        let senders: Vec<String> = (0..count).map(|chat| format!("ann{chat}")).collect();
        json!({ "enabled": true, "command": self.0.path().join("chat"), "allowFrom": senders })
    }

    fn write_in(&self, chat: usize, text: &str) {
        self.add(chat, text, &Value::Null);
    }

    fn answers_in(&self, chat: usize) -> Vec<String> {
        let lines = self.sent_to(chat);
        lines.iter().map(|line| line["text"].as_str().unwrap().to_owned()).collect()
    }

    fn reply_in(&self, chat: usize, text: &str) {
        self.add(chat, text, &self.sent_to(chat).last().unwrap()["id"]);
    }
}

#[test]
fn a_line_of_a_program_is_answered_once() {
    let story = program_story().script([says("**Hello** Ann.")]);
    let mut line = message("m1", "ann", "hi");
    line["facts"] = json!({ "x": 1 });
    prints(&story, &[json!("stray"), line, json!({ "type": "message", "id": "m2" })]);
    story.run(["channel", "poll"]);
    let answer = &noted(&story, "received.jsonl")[0];
    assert_eq!(answer["text"], "Hello Ann.");
    assert_eq!(answer["in_reply_to"], "m1");
    assert_eq!(answer["facts"], json!({ "x": 1 }));
    let notes = noted(&story, "notes.jsonl");
    assert_eq!(notes[0], json!({ "v": 1, "type": "ack", "id": "m1" }));
    assert!(notes[1]["error"].as_str().unwrap().contains("`chat`"), "{notes:?}");
    // It prints the same line again at its next start.
    story.run(["channel", "poll"]);
    assert_eq!(received(&story).len(), 1);
    assert_eq!(story.requests().len(), 1);
    story.session("program_ann.jsonl");
    story.run(["channel", "send", "program", "bob", "Done", "--key", "k"]).stdout("send.k.0\n");
    assert_eq!(received(&story)[1], ("bob".to_owned(), "Done".to_owned()));
    story.run(["channel", "check", "program"]).stdout_has("/chat");
}

#[test]
fn groups_and_senders_of_programs_follow_the_policies() {
    let group = |id: &str, from: &str, mention: bool| {
        let mut line = message(id, from, "hi");
        (line["chat"], line["direct"], line["mention"]) =
            (json!("#c"), json!(false), json!(mention));
        line
    };
    let lines = [
        group("1", "ann", false),
        group("2", "eve", true),
        group("3", "ann", true),
        message("4", "eve", "x"),
    ];
    let story = program_story().script([says("Yes?")]);
    prints(&story, &lines);
    story.run(["channel", "poll"]);
    assert_eq!(received(&story), [("#c".to_owned(), "Yes?".to_owned())]);
    story.run(["channel", "show", "program"]).stdout_has("refused sender eve");
    let story = program_story()
        .set("channels.program.allowFrom", json!([]))
        .set("channels.program.env", json!({ "TOKEN": "a-secret-of-the-story" }));
    prints(&story, &lines[3..]);
    story.run(["channel", "poll"]);
    assert!(received(&story)[0].1.contains("pairing code"));
    let stdout = story.run(["channel", "show", "program"]).text();
    assert!(stdout.contains("TOKEN") && !stdout.contains("a-secret"), "{stdout}");
}

#[test]
fn failures_of_programs_have_their_statuses() {
    assert_eq!(open_failure("program", &json!({})), 78);
    assert_eq!(open_failure("irc", &json!({ "command": "no-such-program-here" })), 78);
    let story = program_story().script([says("Hello.")]);
    prints(&story, &[message("m1", "ann", "hi")]);
    write(&story.home().join("refusal"), br#""error":"later","retry":true"#);
    story.run(["channel", "poll"]).status(69).stderr_has("later");
    write(&story.home().join("refusal"), br#""error":"no such user""#);
    let send = ["channel", "send", "program", "bob", "x"];
    story.run(send).status(65).stderr_has("no such user");
    std::fs::remove_file(story.home().join("refusal")).unwrap();
    story.run(["channel", "poll"]);
    assert_eq!(received(&story).len(), 1);
    write_program(&story.home().join("chat"), "#!/bin/sh\necho 'no network' >&2\nexit 3\n");
    story.run(["channel", "poll"]).status(69).stderr_has("it exited with status 3: no network");
}

#[test]
fn a_program_ends_with_the_poll() {
    let story = program_story().script([says("One."), says("Two.")]);
    prints(&story, &[message("m1", "ann", "hi")]);
    let mut poll = story.command(["channel", "poll", "--follow"]).spawn().unwrap();
    until("the answer", || received(&story).len() == 1);
    // It has ended when the poll has: its input is closed.
    send_signal(&poll, Signal::TERM);
    poll.wait().unwrap();
    prints(&story, &[message("m2", "ann", "again")]);
    story.run(["channel", "poll"]);
    assert_eq!(received(&story).len(), 2);
}

/// A server of IRC, which ends with the test.
struct IrcServer {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl IrcServer {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("ngircd.conf");
        let port = unused_port();
        let text = format!(
            "[Global]\nName = irc.story\nListen = 127.0.0.1\nPorts = {port}\nServerUID = 65534\nServerGID = 65534\n\
             MotdPhrase = hi\n[Options]\nPAM = no\nDNS = no\nIdent = no\n[Limits]\nMaxConnectionsIP = 0\n"
        );
        std::fs::write(&config, text).unwrap();
        let child = std::process::Command::new("/usr/sbin/ngircd")
            .args(["-n", "-f"])
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("ngircd listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { child, port, _folder: folder }
    }
}

impl Drop for IrcServer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Another user of the server.
struct IrcUser {
    stream: TcpStream,
    lines: BufReader<TcpStream>,
}

impl IrcUser {
    fn connect(server: &IrcServer, nick: &str) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap());
        let mut user = Self { stream, lines };
        user.write(&format!("NICK {nick}\r\nUSER {nick} 0 * :{nick}"));
        user.read_until(" 001 ");
        user
    }

    fn write(&mut self, line: &str) {
        self.stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    }

    /// Reads until a line that contains `text`, and returns it.
    fn read_until(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "no {text}");
            if let Some(token) = line.strip_prefix("PING ") {
                self.write(&format!("PONG {}", token.trim()));
            }
            if line.contains(text) {
                return line.trim_end().to_owned();
            }
        }
    }
}

#[test]
fn the_recipe_for_irc_works_with_ngircd() {
    if !(require("ngircd") && require("python3")) {
        return;
    }
    let server = IrcServer::start();
    let recipe = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("recipes/irc.py");
    let long = format!("# Title\n\n- {}\n", "wörd ".repeat(150));
    let story = Story::new().script([says("**Hello** Ann."), says(&long)]).set(
        "channels",
        json!({ "irc": { "enabled": true, "command": recipe, "allowFrom": ["*"],
            "args": ["127.0.0.1", server.port.to_string(), "robot", "#room"] } }),
    );
    let mut ann = IrcUser::connect(&server, "ann");
    ann.write("JOIN #room");
    ann.read_until(" 366 ");
    let mut poll = story.command(["channel", "poll", "--follow"]).spawn().unwrap();
    ann.read_until(" JOIN :#room");
    ann.write("PRIVMSG #room :not for the robot");
    ann.write("PRIVMSG #room :robot: are you there?");
    let answer = ann.read_until("PRIVMSG #room");
    assert!(answer.ends_with(":Hello Ann."), "{answer}");
    ann.write("PRIVMSG robot :tell me more");
    assert!(ann.read_until("PRIVMSG ann").ends_with(":Title"));
    let mut text = String::new();
    while text.matches("wörd").count() < 150 {
        let line = ann.read_until("PRIVMSG ann");
        assert!(line.len() < 500, "{line}");
        text += line.splitn(3, ':').nth(2).unwrap();
    }
    send_signal(&poll, Signal::TERM);
    poll.wait().unwrap();
    assert_eq!(story.requests().len(), 2);
    let content = story.requests()[0].last_content();
    assert!(content.contains("are you there?") && !content.contains("robot:"), "{content}");
    story.session("irc_#room.jsonl");
}

/// signal-cli with its lines of JSON-RPC: it receives one message, and sends to all but one recipient.
const SIGNAL_CLI: &str = r#"#!/usr/bin/env python3
import json, sys
assert sys.argv[1:] == ["-o", "json", "-a", "+4930", "jsonRpc"], sys.argv
group = {"groupId": "Z3JvdXA=", "type": "DELIVER"}
for text, info in [("hi", None), ("all of you", group)]:
    quote = {"id": 1767323040000, "author": "+4930", "text": "Tea."}
    data = {"message": text, "timestamp": 1767323045000, "groupInfo": info, "mentions": [], "quote": quote}
    envelope = {"source": "+49170", "sourceNumber": "+49170", "sourceName": "Ann", "timestamp": 1767323045000 + len(text),
                "dataMessage": data}
    print(json.dumps({"jsonrpc": "2.0", "method": "receive", "params": {"envelope": envelope, "account": "+4930"}}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    with open("sent.jsonl", "a") as file:
        file.write(json.dumps(request["params"]) + "\n")
    answer = {"jsonrpc": "2.0", "id": request["id"]}
    if request["params"].get("recipient") == ["+490"]:
        answer["error"] = {"code": -1, "message": "Unregistered user"}
    else:
        answer["result"] = {"timestamp": 1767323046000, "results": [{"type": "SUCCESS"}]}
    print(json.dumps(answer), flush=True)
"#;

#[test]
fn the_recipe_for_signal_speaks_json_rpc() {
    if !require("python3") {
        return;
    }
    let recipe = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("recipes/signal-cli.py");
    let story = Story::new().script([says("**Hello** Ann.")]);
    let programs = story.home().join("programs");
    write_program(&programs.join("signal-cli"), SIGNAL_CLI);
    let story = story.set(
        "channels",
        json!({ "signal": { "enabled": true, "command": recipe, "args": ["+4930"], "allowFrom": ["+49170"],
            "env": { "PATH": format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display()) } } }),
    );
    story.run(["channel", "poll", "--wait", "4"]);
    let messages = noted(&story, "sent.jsonl");
    assert_eq!(messages.len(), 1, "{messages:?}");
    let expect = json!({ "recipient": ["+49170"], "message": "Hello Ann.", "attachments": [] });
    assert_eq!(messages[0], expect);
    let journal = story.home().join(".nanobot/channels/signal/inbox.jsonl");
    let journal = std::fs::read_to_string(journal).unwrap();
    assert!(journal.contains(r#""replied":{"id":"1767323040000"}"#), "{journal}");
    assert!(!story.last_request().raw.contains("Tea."));
    story
        .run(["channel", "send", "signal", "+490", "x"])
        .status(65)
        .stderr_has("Unregistered user");
    story.run(["channel", "send", "signal", "group:Z3JvdXA=", "Done"]).stdout("1767323046000\n");
    assert_eq!(noted(&story, "sent.jsonl")[2]["groupId"], "Z3JvdXA=");
}
