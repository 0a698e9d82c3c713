//! `channel`: mail against Dovecot and Postfix, which `tests/real/mail` starts.

use crate::attach::png_image;
use crate::channel::send_signal;
use crate::fault_injection::run_with_fault;
use crate::server::{Request, Responder, says};
use crate::story::Story;
use crate::wait::until;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mail_parser::MessageParser;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;

const BOT: &str = "bot@example.net";
/// Number of users whose mail is answered.
const USERS: usize = 20;

/// The servers: their folder, and the ports of IMAP over TLS, of SMTP, and of submission.
struct RealMail {
    folder: PathBuf,
    imaps: u16,
    smtp: u16,
    submission: u16,
}

impl RealMail {
    fn from_env() -> Self {
        let value = std::env::var("NANOBOT_REAL_MAIL").expect("tests/real/mail sets it");
        let parts: Vec<&str> = value.split(' ').collect();
        let port = |index: usize| parts[index].parse().unwrap();
        Self { folder: parts[0].into(), imaps: port(1), smtp: port(2), submission: port(3) }
    }

    fn keys(&self) -> Value {
        json!({
            "enabled": true, "consentGranted": true,
            "imapHost": "localhost", "imapPort": self.imaps,
            "imapUsername": BOT, "imapPassword": "password-of-the-story",
            "smtpHost": "localhost", "smtpPort": self.submission,
            "smtpUsername": BOT, "smtpPassword": "password-of-the-story",
            "allowFrom": ["*"], "trustedAuthservIds": ["mx.example.net"],
        })
    }

    /// Sends a mail to the bot, as any server does.
    fn deliver(&self, from: &str, header: &str, body: &str) {
        let stream = TcpStream::connect(("127.0.0.1", self.smtp)).unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut stream = stream;
        let mail = format!("From: {from}\nTo: {BOT}\n{header}\n\n{body}\n.");
        let commands = [
            "EHLO story".to_owned(),
            format!("MAIL FROM:<{from}>"),
            format!("RCPT TO:<{BOT}>"),
            "DATA".to_owned(),
            mail.replace('\n', "\r\n"),
            "QUIT".to_owned(),
        ];
        for command in [None].into_iter().chain(commands.map(Some)) {
            if let Some(command) = command {
                stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
            }
            let mut replies = lines.by_ref().map(Result::unwrap);
            let last = replies.find(|line| line.as_bytes()[3] != b'-').unwrap();
            assert!(matches!(last.as_bytes()[0], b'2' | b'3'), "{last}");
        }
    }

    /// The mails in the mailbox of a user, with their file names, which hold the flags.
    fn mails(&self, user: &str) -> Vec<(String, String)> {
        let folders = ["new", "cur"].map(|name| self.folder.join("mail").join(user).join(name));
        let files = folders.iter().flat_map(std::fs::read_dir).flatten().flatten();
        let mails = files.map(|file| {
            let name = file.file_name().to_string_lossy().into_owned();
            let raw = std::fs::read(file.path()).unwrap_or_default();
            (name, String::from_utf8_lossy(&raw).into_owned())
        });
        mails.collect()
    }

    /// Waits until a user has so many mails.
    fn wait_for(&self, user: &str, count: usize) {
        until(&format!("{user} has fewer than {count} mails"), || self.mails(user).len() >= count);
    }
}

/// A model that repeats the number in the attachment, if it gets the image too.
fn attachment_model() -> Responder {
    Box::new(|request: &Request| {
        let raw = request.messages().last().unwrap().to_string();
        let number = raw.rsplit("number ").next().unwrap_or_default();
        let number: String = number.chars().take_while(char::is_ascii_digit).collect();
        if raw.contains("data:image/png;base64,") || !raw.contains("number ") {
            says(&format!("It is {number}."))(request)
        } else {
            says("There is no image.")(request)
        }
    })
}

#[test]
#[ignore = "needs Dovecot and Postfix: tests/real/mail"]
fn real_dovecot_and_postfix() {
    let real = RealMail::from_env();
    let ca = real.folder.join("ca.pem");
    let story = Story::new()
        .env("SSL_CERT_FILE", ca.to_str().unwrap())
        .set("channels", json!({ "email": real.keys(), "maxParallel": 2 }));
    story.server().always(attachment_model());
    story.run(["channel", "check", "email"]).stdout("bot@example.net (bot@example.net)\n");
    story.run(["channel", "poll"]);

    // Mail that must not be answered, and one whose answer comes back as a bounce.
    real.deliver("user20@example.org", "Subject: away\nAuto-Submitted: auto-replied", "number 77");
    real.deliver("user20@example.org", "Subject: list\nList-Id: <x>", "number 77");
    real.deliver("eve@evil.example", "Subject: forged", "number 77");
    real.deliver("ghost@example.org", "Subject: ghost", "hello");
    // Twenty mails with attachments. Each is there while two polls are killed, and every second one is answered meanwhile.
    let image = STANDARD.encode(png_image(2, 2));
    let mut kills = 0;
    let kinds = ["sendto", "write", "fsync", "recvfrom"];
    for (number, kind) in (0..USERS).zip(kinds.into_iter().cycle()) {
        let header = format!(
            "Subject: mail {number}\nMessage-ID: <m{number}@example.org>\nMIME-Version: 1.0\n\
             Content-Type: multipart/mixed; boundary=b"
        );
        let body = format!(
            "--b\n\nWhich number?\n--b\nContent-Type: image/png\nContent-Transfer-Encoding: base64\n\n{image}\n--b\n\
             Content-Type: text/plain; name=\"a.txt\"\nContent-Disposition: attachment; filename=\"a.txt\"\n\n\
             number {number}\n--b--"
        );
        real.deliver(&format!("user{number}@example.org"), &header, &body);
        real.wait_for(BOT, number + 5);
        let fault = (kind, "SIGKILL", 1 + number * 5 % 14);
        let (result, is_killed) = run_with_fault(&story, &["channel", "poll"], &[], fault);
        result.code();
        result.text();
        result.error_text();
        kills += usize::from(is_killed);
        if number % 2 == 1 {
            story.run(["channel", "poll"]);
        }
    }
    assert!(kills > USERS / 2, "only {kills} kills");
    assert_eq!(story.run(["channel", "inbox"]).text(), "");
    let mut repeated = 0;
    for number in 0..USERS {
        let user = format!("user{number}@example.org");
        real.wait_for(&user, 1);
        let mails = real.mails(&user);
        let answers: BTreeSet<(String, String, String)> = mails
            .iter()
            .map(|(_, raw)| {
                let mail = MessageParser::new().parse(raw).unwrap();
                (
                    mail.message_id().unwrap().to_owned(),
                    mail.in_reply_to().as_text().unwrap().to_owned(),
                    mail.body_text(0).unwrap().trim().to_owned(),
                )
            })
            .collect();
        assert_eq!(answers.len(), 1, "{answers:?}");
        let (_, answer, text) = answers.into_iter().next().unwrap();
        assert_eq!((answer, text), (format!("m{number}@example.org"), format!("It is {number}.")));
        repeated += mails.len() - 1;
    }
    assert!(repeated <= kills, "{repeated} answers came twice");
    assert!(real.mails("user20@example.org").is_empty());

    // The bounce of the answer to the ghost is not answered.
    real.wait_for(BOT, USERS + 5);
    let requests = story.requests().len();
    story.run(["channel", "poll"]);
    assert_eq!(story.requests().len(), requests);
    let marked = real.mails(BOT).into_iter().filter(|(name, _)| {
        name.rsplit(",").next().is_some_and(|flags| flags.contains('R') && flags.contains('S'))
    });
    let marked = marked.count();
    assert!(marked + kills > USERS && marked <= USERS + 1, "{marked} are marked");

    // A mailbox that was numbered anew.
    std::fs::remove_file(real.folder.join("mail").join(BOT).join("dovecot-uidlist")).unwrap();
    for file in std::fs::read_dir(real.folder.join("mail").join(BOT)).unwrap().flatten() {
        if file.file_name().to_string_lossy().starts_with("dovecot") {
            std::fs::remove_file(file.path()).unwrap();
        }
    }
    real.deliver("user20@example.org", "Subject: new", "hello");
    real.wait_for(BOT, USERS + 6);
    story.run(["channel", "poll"]);
    real.wait_for("user20@example.org", 1);
    assert_eq!(story.requests().len(), requests + 1, "only the new one");

    // IDLE.
    let mut follow = story.command(["channel", "poll", "--follow"]);
    let child = story.start(&mut follow);
    for number in 2..4 {
        real.deliver("user20@example.org", &format!("Subject: more {number}"), "hello");
        real.wait_for("user20@example.org", number);
    }
    send_signal(&child, Signal::TERM);
    let result = story.wait(child);
    assert_eq!(result.signal(), Some(15));
    result.error_text();
    drop(result);

    // A wrong password, and a certificate without a known issuer.
    let story = story.set("channels.email.imapPassword", json!("wrong-password"));
    story.run(["channel", "check", "email"]).status(77).stderr_has("AUTHENTICATIONFAILED");
    let story = story.env("SSL_CERT_FILE", "/dev/null");
    story.run(["channel", "check", "email"]).status(78).stderr_has("`/dev/null`, which is empty");
}
