//! `channel`: attachments of mail, mail that answers none, waiting for mail, and connections that are not secure.

use crate::attach::png_image;
use crate::channel::send_signal;
use crate::mail::mail_story;
use crate::mail_server::{BOT, MailServer, TOKEN, verified};
use crate::provider_http::start_tls_server;
use crate::server::{calls, says};
use crate::story::Story;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mail_parser::{MessageParser, MimeHeaders};
use rustix::process::Signal;
use serde_json::json;

/// A ZIP archive with one file, which is not compressed.
fn zip(name: &str, text: &str) -> Vec<u8> {
    let u16 = |number: usize| u16::try_from(number).unwrap().to_le_bytes();
    let u32 = |number: usize| u32::try_from(number).unwrap().to_le_bytes();
    let sizes = [u32(0), u32(text.len()), u32(text.len())].concat();
    let common = [&[20, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &sizes, &u16(name.len())].concat();
    let local = [b"PK\x03\x04", &common[..], &[0, 0], name.as_bytes(), text.as_bytes()].concat();
    let entry = [b"PK\x01\x02\x14\0", &common[..], &[0; 16], name.as_bytes()].concat();
    let end = [
        b"PK\x05\x06\0\0\0\0".to_vec(),
        [u16(1), u16(1)].concat(),
        [u32(entry.len()), u32(local.len())].concat(),
        vec![0, 0],
    ];
    [local, entry, end.concat()].concat()
}

/// A part of a mail.
fn part(name: &str, media_type: &str, content: &[u8]) -> String {
    format!(
        "--b1\nContent-Type: {media_type}\nContent-Disposition: attachment; filename=\"{name}\"\n\
         Content-Transfer-Encoding: base64\n\n{}\n",
        STANDARD.encode(content)
    )
}

/// Receives a mail by Ann with these parts.
fn receive_parts(server: &MailServer, parts: &[String]) {
    let header = format!(
        "{}\nFrom: ann@example.org\nSubject: files\nMessage-ID: <f{}@example.org>\nMIME-Version: 1.0\n\
         Content-Type: multipart/mixed; boundary=b1",
        verified(),
        server.mails().len()
    );
    let text = "--b1\nContent-Type: text/plain\n\nlook at these\n";
    server.add(&header, &format!("{text}{}--b1--\n", parts.concat()));
}

#[test]
fn attachments_are_read_by_their_content() {
    let (story, server) = mail_story();
    let story = story.set("channels.email.maxAttachmentSize", json!(4000)).script([says("Seen.")]);
    let image = png_image(3, 2);
    let document = zip(
        "word/document.xml",
        "<w:document xmlns:w=\"x\"><w:body><w:p><w:r><w:t>from a document</w:t></w:r></w:p></w:body></w:document>",
    );
    receive_parts(
        &server,
        &[
            part("a.bin", "application/octet-stream", &image),
            part("../../notes.txt", "text/plain", b"buy milk"),
            part("report.docx", "application/octet-stream", &document),
            part("fake.png", "image/png", b"\x00\xff\xfe"),
            part("big.txt", "text/plain", &[b'x'; 5000]),
            part("extra.txt", "text/plain", b"too many"),
        ],
    );
    story.run(["channel", "poll"]);
    let raw = &story.requests()[0].raw;
    for text in [
        "look at these",
        "buy milk",
        "from a document",
        "data:image/png;base64,",
        "fake.png]",
        "big.txt - too large",
        "Attachments left out: extra.txt",
    ] {
        assert!(raw.contains(text), "{text}: {raw}");
    }
    assert!(!raw.contains("too many") && !raw.contains("xxxx"));
    assert_eq!(server.sent().len(), 1);
    let whole = server.commands().into_iter().filter(|it| it.contains("PEEK[]"));
    assert_eq!(whole.count(), 2, "the mail is fetched for its text, and once for all files");
}

#[test]
fn attachments_of_other_types_are_left_out() {
    let (story, server) = mail_story();
    let story = story
        .set("channels.email.allowedAttachmentTypes", json!(["text/*"]))
        .script([says("Seen."), says("None.")]);
    receive_parts(
        &server,
        &[part("a.txt", "text/plain", b"buy milk"), part("b.pdf", "application/pdf", b"%PDF-1")],
    );
    story.run(["channel", "poll"]);
    let raw = story.requests()[0].raw.clone();
    assert!(raw.contains("buy milk") && raw.contains("left out: b.pdf"), "{raw}");
    let story = story.set("channels.email.allowedAttachmentTypes", json!([]));
    receive_parts(&server, &[part("a.txt", "text/plain", b"buy milk")]);
    story.run(["channel", "poll"]);
    let raw = story.requests()[1].raw.clone();
    assert!(raw.contains("left out: a.txt"), "{raw}");
}

#[test]
fn text_and_files_are_one_mail() {
    let (story, server) = mail_story();
    let story = story.file("report.pdf", "%PDF-1").file("b.txt", "more");
    let send = [
        "channel",
        "send",
        "email",
        "Bob@Example.com",
        "# Numbers\n\nSee *below*",
        "-a",
        "report.pdf",
        "-a",
        "b.txt",
        "--key",
        "k1",
    ];
    let id = story.run(send).text();
    assert_eq!(story.run(send).text(), id);
    let messages = server.sent();
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].to, "bob@example.com");
    let mail = MessageParser::new().parse(&messages[0].raw).unwrap();
    assert_eq!(mail.subject(), Some("Numbers"));
    assert_eq!(mail.message_id(), Some(id.trim()));
    assert_eq!(mail.header_raw("Auto-Submitted").map(str::trim), Some("auto-generated"));
    let files: Vec<_> =
        mail.attachments().map(|part| (part.attachment_name().unwrap(), part.contents())).collect();
    assert_eq!(files, [("report.pdf", &b"%PDF-1"[..]), ("b.txt", &b"more"[..])]);
    // Files without a text.
    story.run(["channel", "send", "email", "bob@example.com", "-a", "b.txt"]).text();
    let messages = server.sent();
    let mail = MessageParser::new().parse(&messages[1].raw).unwrap();
    assert_eq!(mail.subject(), Some("b.txt"));
    let copies = std::fs::read_dir(story.home().join(".nanobot/media/email")).unwrap();
    assert_eq!(copies.count(), 0);
}

#[test]
fn the_message_tool_writes_mail() {
    let (story, server) = mail_story();
    let message = json!({ "content": "Done", "channel": "email", "chat_id": "ann@example.org", "media": ["a.txt"] });
    let story = story.file("a.txt", "x").script([
        calls("message", message),
        calls(
            "message",
            json!({ "content": "psst", "channel": "email", "chat_id": "eve@evil.example" }),
        ),
        says("Sent."),
    ]);
    story
        .run(["agent", "-m", "tell her"])
        .stdout("Sent.\n")
        .stderr_has("email:eve@evil.example is not a chat of the user");
    let messages = server.sent();
    assert_eq!(messages.len(), 1);
    assert_eq!(MessageParser::new().parse(&messages[0].raw).unwrap().attachment_count(), 1);
}

#[test]
fn offline_reaches_no_mail_server() {
    let server = MailServer::start();
    let message = json!({ "content": "Done", "channel": "email", "chat_id": "ann@example.org" });
    let story = Story::new()
        .set("channels", json!({ "email": server.keys() }))
        .set("channels.email.smtpHost", json!("mail.invalid"))
        .set("channels.email.smtpUseTls", json!(true))
        .script([calls("message", message), says("No.")]);
    story.run(["agent", "--offline", "-m", "tell her"]).stdout("No.\n").error_text();
    let result = story.requests()[1].last_content();
    assert!(result.contains("is sent later"), "{result}");
    story.run(["channel", "inbox", "email"]).stdout_has("undelivered");
}

#[test]
fn what_is_too_large_is_not_sent() {
    let (story, server) = mail_story();
    let story = story.file("a", vec![b'x'; 1_200_000]).file("b", vec![b'x'; 18_100_000]);
    let send =
        |file: &str| story.run(["channel", "send", "email", "bob@example.com", "hi", "-a", file]);
    send("a").status(65).stderr_has("larger than the server accepts (1000000 bytes)");
    send("b").status(65).stderr_has("is larger than 18 MB");
    assert!(server.sent().is_empty());
    for recipient in ["bob", "a@b>\r\nRCPT TO:<c@d", "a@b, c@d"] {
        story
            .run(["channel", "send", "email", recipient, "hi"])
            .status(65)
            .stderr_has("is not a mail address");
    }
}

#[test]
fn new_mail_is_answered_while_a_poll_waits() {
    for capabilities in ["IMAP4rev1 AUTH=PLAIN IDLE", "IMAP4rev1 AUTH=PLAIN"] {
        let (story, server) = mail_story();
        let story = story
            .set("channels.email.pollIntervalSeconds", json!(5))
            .script([says("One."), says("Two.")]);
        server.set_capabilities(capabilities);
        let mut command = story.command(["channel", "poll", "--follow"]);
        let child = story.start(&mut command);
        let waits = if capabilities.ends_with("IDLE") { "IDLE" } else { "NOOP" };
        server.wait_for(waits, 1);
        server.receive("x", "one?");
        server.wait_for("END OF DATA", 1);
        server.receive("y", "two?");
        server.wait_for("END OF DATA", 2);
        send_signal(&child, Signal::TERM);
        let result = story.wait(child);
        assert_eq!(result.signal(), Some(15));
        result.error_text();
        assert_eq!(server.sent().len(), 2);
    }
}

#[test]
fn a_token_takes_the_place_of_the_passwords() {
    let server = MailServer::start();
    let mut keys = server.keys();
    keys["imapPassword"] = json!("");
    keys["smtpPassword"] = json!("");
    keys["tokenCommand"] = json!(format!("echo {TOKEN}"));
    let story = Story::new().set("channels", json!({ "email": keys }));
    story.run(["channel", "check", "email"]).stdout("bot@example.net (bot@example.net)\n");
    let logins = server.commands().into_iter().filter(|it| it.contains("XOAUTH2"));
    assert_eq!(logins.count(), 2);
    let story = story.set("channels.email.tokenCommand", json!("echo expired-token"));
    story
        .run(["channel", "check", "email"])
        .status(77)
        .stderr_has("`channels.email.tokenCommand` is not accepted for `bot@example.net`");
    let story = story.set("channels.email.tokenCommand", json!("false"));
    story.run(["channel", "check", "email"]).status(78).stderr_has("the command failed");
}

#[test]
fn nothing_goes_over_a_connection_that_is_not_secure() {
    let (story, server) = mail_story();
    let story = story.set("channels.email.smtpUseTls", json!(true));
    let before = server.commands().len();
    story
        .run(["channel", "send", "email", "ann@example.org", "hi"])
        .status(78)
        .stderr_has("does not offer TLS");
    let commands = server.commands();
    assert_eq!(commands[before..], ["EHLO [127.0.0.1]"]);
    let story = story
        .set("channels.email.smtpUseTls", json!(false))
        .set("channels.email.smtpHost", json!("mail.example.net"));
    story
        .run(["channel", "send", "email", "ann@example.org", "hi"])
        .status(78)
        .stderr_has("mail would be sent unencrypted");
}

#[test]
fn the_certificate_of_a_server_must_be_valid() {
    for is_trusted in [true, false] {
        let server = MailServer::start();
        let mut story = Story::new().set("channels", json!({ "email": server.keys() }));
        let Some((mut tls, port)) = start_tls_server(&story, "no mail") else {
            return;
        };
        story = story
            .set("channels.email.imapHost", json!("localhost"))
            .set("channels.email.imapPort", json!(port))
            .set("channels.email.imapUseSsl", json!(true));
        let expect = if is_trusted {
            "does not respond as IMAP does"
        } else {
            "the certificate of `localhost` is not accepted"
        };
        if is_trusted {
            let ca = story.dir().join("ca.pem");
            story = story.env("SSL_CERT_FILE", ca.to_str().unwrap());
        }
        story.run(["channel", "check", "email"]).status(69).stderr_has(expect);
        drop(tls.kill());
        tls.wait().unwrap();
    }
}

#[test]
fn answered_mail_is_moved_or_deleted() {
    for (action, command) in [("move", "UID MOVE 101 \"Done\""), ("delete", "UID EXPUNGE 101")] {
        let (story, server) = mail_story();
        let story = story
            .set("channels.email.postAction", json!(action))
            .set("channels.email.postActionMoveMailbox", json!("Done"))
            .set("channels.email.postActionExpunge", json!(true))
            .script([says("Hi.")]);
        server.receive("x", "hi");
        story.run(["channel", "poll"]);
        assert!(server.commands().iter().any(|it| it == command), "{:?}", server.commands());
        assert_eq!(server.mails().len(), 1);
    }
}

#[test]
fn without_automatic_answers_mail_is_read_only() {
    let (story, server) = mail_story();
    let story = story
        .set("channels.email.autoReplyEnabled", json!(false))
        .script([says("Nobody gets this.")]);
    server.receive("x", "hi");
    story.run(["channel", "poll"]);
    assert_eq!(story.requests().len(), 1);
    assert!(server.sent().is_empty());
    story.run(["channel", "send", "email", "ann@example.org", "hi"]).text();
    assert_eq!(server.sent()[0].from, BOT);
}

#[test]
fn one_sender_gets_twenty_answers_in_an_hour() {
    let (story, server) = mail_story();
    story.server().always(says("Hi."));
    for number in 0..22 {
        server.receive(&format!("mail {number}"), "hi");
    }
    let result = story.run(["channel", "poll"]);
    result.stderr_has("a message of ann@example.org was not answered: too many turns in an hour");
    assert_eq!(server.sent().len(), 20);
}

/// The keys of nanobot 0.1.4, and those that 0.3.5 has besides.
#[test]
fn configs_of_both_python_releases_are_used() {
    let server = MailServer::start();
    let mut keys = server.keys();
    keys["allowFrom"] = json!([]);
    keys["trustedAuthservIds"].take();
    for (name, value) in json!({
        "imapMailbox": "INBOX", "fromAddress": "Bot <bot@example.net>", "smtpUseSsl": false, "autoReplyEnabled": true,
        "pollIntervalSeconds": 30, "markSeen": true, "maxBodyChars": 12000, "subjectPrefix": "Re: ",
    })
    .as_object()
    .unwrap()
    {
        keys[name] = value.clone();
    }
    let story = Story::new().set("channels", json!({ "email": keys }));
    story
        .run(["config", "check"])
        .stdout_has("`channels.email.allowFrom` is empty: no sender is answered")
        .stdout_has("`channels.email.trustedAuthservIds` is empty");
    story.run(["channel", "poll"]).status(78).stderr_has("no sender is allowed");
    for (name, value) in json!({
        "allowFrom": ["ann@example.org"], "postAction": null, "postActionMoveMailbox": null, "postActionExpunge": false,
        "postActionIgnoreSkipped": true, "verifyDkim": true, "verifySpf": true,
        "trustedAuthservIds": ["MX.example.net"], "allowedAttachmentTypes": [], "maxAttachmentSize": 2_000_000,
        "maxAttachmentsPerEmail": 5,
    })
    .as_object()
    .unwrap()
    {
        keys[name] = value.clone();
    }
    let story = story.set("channels", json!({ "email": keys })).script([says("Hi.")]);
    let checked = story.run(["config", "check"]).text();
    assert!(!checked.contains("unknown") && !checked.contains("email.trusted"), "{checked}");
    story.run(["channel", "poll"]);
    server.receive("x", "hi");
    story.run(["channel", "poll"]);
    let messages = server.sent();
    assert!(
        messages[0].raw.contains("From: Bot <bot@example.net>\r\n")
            || messages[0].raw.contains("From: \"Bot\" <bot@example.net>\r\n"),
        "{}",
        messages[0].raw
    );
}

/// A file that is sent during a turn belongs to the thread of the mail that the turn answers.
#[test]
fn the_message_tool_stays_in_the_thread() {
    let (story, server) = mail_story();
    let message = json!({ "content": "The file.", "media": ["a.txt"] });
    let story =
        story.workspace_file("a.txt", "x").script([calls("message", message), says("Sent.")]);
    server.receive("Report", "send it");
    story.run(["channel", "poll"]);
    let messages = server.sent();
    // The final text does not follow.
    assert_eq!(messages.len(), 1);
    let mail = MessageParser::new().parse(&messages[0].raw).unwrap();
    assert_eq!(mail.subject(), Some("Re: Report"));
    assert_eq!(mail.in_reply_to().as_text(), Some("m1@example.org"));
    assert_eq!(mail.attachment_count(), 1);
}

#[test]
fn logins_and_addresses_follow_the_extensions_of_the_server() {
    let (story, server) = mail_story();
    let send = |to: &str| story.run(["channel", "send", "email", to, "hi"]);
    server.set_extensions("250 AUTH LOGIN");
    assert!(send("bob@example.com").text().contains('@'));
    send("jürgen@example.com").status(65).stderr_has("SMTPUTF8");
    server.set_extensions("250 AUTH GSSAPI");
    send("bob@example.com").status(78).stderr_has("does not offer password logins");
    server.set_extensions("250-SMTPUTF8\r\n250-8BITMIME\r\n250 AUTH PLAIN");
    send("jürgen@example.com").text();
    let messages = server.sent();
    // The mail that waited goes first.
    assert_eq!(messages[1].to, "bob@example.com");
    assert_eq!(messages[2].to, "jürgen@example.com");
    let commands = server.commands();
    assert!(
        commands.iter().any(|it| it.starts_with("MAIL") && it.ends_with(" SMTPUTF8")),
        "{commands:?}"
    );
}
