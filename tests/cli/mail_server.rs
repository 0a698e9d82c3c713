//! A stand-in for a mail service on loopback: IMAP for one mailbox, and SMTP that keeps what is sent. `tests/real/mail` has
//! the real counterparts, Dovecot and Postfix.

use crate::listener::Listener;
use crate::wait::DEADLINE;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};

/// Our address there.
pub(crate) const BOT: &str = "bot@example.net";
pub(crate) const PASSWORD: &str = "password-of-the-story";
/// An access token of OAuth 2.
pub(crate) const TOKEN: &str = "token-of-the-story";
/// The id of the server that verifies senders.
pub(crate) const VERIFIER: &str = "mx.example.net";
/// The fixed time of a story.
const ARRIVAL: &str = "02-Jan-2026 03:04:05 +0000";

/// A mail in the mailbox.
#[derive(Clone, Debug)]
pub(crate) struct StoredMail {
    pub(crate) uid: u32,
    pub(crate) raw: String,
    pub(crate) flags: BTreeSet<String>,
}

/// A mail that was sent.
#[derive(Clone, Debug)]
pub(crate) struct SentMail {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) raw: String,
}

#[derive(Default)]
struct State {
    uid_validity: u32,
    next_uid: u32,
    mails: Vec<StoredMail>,
    sent: Vec<SentMail>,
    commands: Vec<String>,
    /// Replies that replace the usual ones, by the beginning of the command, used up in order. `None` closes the
    /// connection.
    failures: Vec<(String, Option<String>)>,
    capabilities: String,
    /// The items and the attributes of [`MailServer::garble`], by UID.
    garbled: BTreeMap<u32, (String, String)>,
    /// The extensions of SMTP, from the second line of the reply to `EHLO`.
    extensions: String,
}

type Shared = Arc<(Mutex<State>, Condvar)>;

pub(crate) struct MailServer {
    pub(crate) imap: Listener,
    smtp: Listener,
    shared: Shared,
}

impl MailServer {
    pub(crate) fn start() -> Self {
        let shared: Shared = Arc::default();
        {
            let mut state = shared.0.lock().unwrap();
            (state.uid_validity, state.next_uid) = (7, 100);
            state.extensions =
                "250-SIZE 1000000\r\n250-8BITMIME\r\n250 AUTH PLAIN LOGIN".to_owned();
            state.capabilities = "IMAP4rev1 SASL-IR AUTH=PLAIN IDLE MOVE UIDPLUS".to_owned();
        }
        Self { imap: listen(&shared, serve_imap), smtp: listen(&shared, serve_smtp), shared }
    }

    /// The keys of the channel, with which Ann is answered.
    pub(crate) fn keys(&self) -> Value {
        json!({
            "enabled": true, "consentGranted": true,
            "imapHost": "127.0.0.1", "imapPort": self.imap.port, "imapUseSsl": false,
            "imapUsername": BOT, "imapPassword": PASSWORD,
            "smtpHost": "127.0.0.1", "smtpPort": self.smtp.port, "smtpUseTls": false,
            "smtpUsername": BOT, "smtpPassword": PASSWORD,
            "allowFrom": ["Ann@Example.org"], "trustedAuthservIds": [VERIFIER],
        })
    }

    /// Adds a mail with these header fields and this body.
    pub(crate) fn add(&self, header: &str, body: &str) -> u32 {
        let mut state = self.shared.0.lock().unwrap();
        let uid = state.next_uid;
        state.next_uid += 1;
        let raw = format!("{}\n\n{body}", header.trim()).replace('\n', "\r\n");
        let flags = BTreeSet::new();
        state.mails.push(StoredMail { uid, raw, flags });
        drop(state);
        self.shared.1.notify_all();
        uid
    }

    /// A mail by Ann, whose domain is verified.
    pub(crate) fn receive(&self, subject: &str, body: &str) -> u32 {
        let number = self.mails().len();
        let header = format!(
            "{}\nFrom: Ann <ann@example.org>\nTo: {BOT}\nSubject: {subject}\nMessage-ID: <m{number}@example.org>",
            verified()
        );
        self.add(&header, body)
    }

    /// The next command that begins like this gets this reply, without its tag; `None` closes the connection.
    pub(crate) fn fail(&self, command: &str, reply: Option<&str>) {
        let mut state = self.shared.0.lock().unwrap();
        let reply = reply.map(str::to_owned);
        state.failures.push((command.to_owned(), reply));
    }

    /// Gives all mails other numbers, as a server does that lost its index.
    pub(crate) fn renumber(&self) {
        let mut state = self.shared.0.lock().unwrap();
        state.uid_validity += 1;
        state.next_uid = 1;
        for index in 0..state.mails.len() {
            state.mails[index].uid = state.next_uid;
            state.next_uid += 1;
        }
    }

    pub(crate) fn set_extensions(&self, text: &str) {
        self.shared.0.lock().unwrap().extensions = text.to_owned();
    }

    pub(crate) fn set_capabilities(&self, text: &str) {
        self.shared.0.lock().unwrap().capabilities = text.to_owned();
    }

    /// Answers with `attributes` when `item` of the mail `uid` is fetched.
    pub(crate) fn garble(&self, uid: u32, item: &str, attributes: &str) {
        let answer = (item.to_owned(), attributes.to_owned());
        self.shared.0.lock().unwrap().garbled.insert(uid, answer);
    }

    pub(crate) fn mails(&self) -> Vec<StoredMail> {
        self.shared.0.lock().unwrap().mails.clone()
    }

    pub(crate) fn sent(&self) -> Vec<SentMail> {
        self.shared.0.lock().unwrap().sent.clone()
    }

    /// The commands so far, without their tags.
    pub(crate) fn commands(&self) -> Vec<String> {
        self.shared.0.lock().unwrap().commands.clone()
    }

    /// Waits until `count` commands begin like this.
    pub(crate) fn wait_for(&self, command: &str, count: usize) {
        let state = self.shared.0.lock().unwrap();
        let is_missing = |state: &mut State| {
            let commands = state.commands.iter().filter(|it| it.starts_with(command));
            commands.count() < count
        };
        let waited = self.shared.1.wait_timeout_while(state, DEADLINE, is_missing);
        let (state, timeout) = waited.unwrap();
        assert!(!timeout.timed_out(), "{command}: {:?}", state.commands);
    }
}

/// The header that the server adds to a mail of Ann's.
pub(crate) fn verified() -> String {
    format!("Authentication-Results: {VERIFIER}; dmarc=pass header.from=example.org")
}

fn listen(shared: &Shared, serve: fn(&TcpStream, &Shared) -> Option<()>) -> Listener {
    let shared = shared.clone();
    Listener::start(move |stream| serve(stream, &shared).unwrap_or_default())
}

fn read_line(reader: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    let count = reader.read_until(b'\n', &mut line).ok()?;
    let text = String::from_utf8_lossy(&line).trim_end().to_owned();
    (count > 0).then_some(text)
}

/// Notes a command. Returns the reply that replaces the usual one, if any.
fn note(shared: &Shared, command: &str) -> Option<Option<String>> {
    let mut state = shared.0.lock().unwrap();
    state.commands.push(command.to_owned());
    shared.1.notify_all();
    let upper = command.to_uppercase();
    let failure = state.failures.iter().position(|(start, _)| upper.starts_with(start.as_str()));
    failure.map(|index| state.failures.remove(index).1)
}

fn is_login(base64: &str) -> bool {
    let accepted =
        [format!("\0{BOT}\0{PASSWORD}"), format!("user={BOT}\x01auth=Bearer {TOKEN}\x01\x01")];
    STANDARD.decode(base64).is_ok_and(|text| accepted.iter().any(|it| text == it.as_bytes()))
}

fn serve_imap(mut stream: &TcpStream, shared: &Shared) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut send = |text: &str| stream.write_all(format!("{text}\r\n").as_bytes()).ok();
    send("* OK the story's server")?;
    let mut mail_count = 0;
    loop {
        let line = read_line(&mut reader)?;
        let (tag, command) = line.split_once(' ')?;
        if ["SELECT", "UID SEARCH"].iter().any(|it| command.starts_with(it)) {
            mail_count = shared.0.lock().unwrap().mails.len();
        }
        match note(shared, command) {
            Some(None) => return None,
            Some(Some(reply)) => {
                send(&format!("{tag} {reply}"))?;
                continue;
            }
            None => {}
        }
        let arguments: Vec<&str> = command.split(' ').collect();
        let end = match arguments[0] {
            "CAPABILITY" => {
                let capabilities = shared.0.lock().unwrap().capabilities.clone();
                send(&format!("* CAPABILITY {capabilities}"))?;
                "OK done"
            }
            "AUTHENTICATE" => {
                let response = match arguments.get(2) {
                    Some(response) => (*response).to_owned(),
                    None => {
                        send("+ ")?;
                        read_line(&mut reader)?
                    }
                };
                if is_login(&response) {
                    "OK welcome"
                } else {
                    "NO [AUTHENTICATIONFAILED] wrong password"
                }
            }
            "LOGIN" if command == format!("LOGIN \"{BOT}\" \"{PASSWORD}\"") => "OK welcome",
            "LOGIN" => "NO wrong password",
            "SELECT" if arguments[1] == "\"INBOX\"" => {
                let state = shared.0.lock().unwrap();
                let (validity, next) = (state.uid_validity, state.next_uid);
                drop(state);
                send("* FLAGS (\\Answered \\Seen \\Deleted)")?;
                send("* OK [PERMANENTFLAGS (\\Answered \\Seen \\Deleted \\*)] kept")?;
                send(&format!("* OK [UIDVALIDITY {validity}] valid"))?;
                send(&format!("* OK [UIDNEXT {next}] next"))?;
                "OK [READ-WRITE] selected"
            }
            "SELECT" => "NO no such mailbox",
            "UID" => {
                for response in uid_command(shared, &arguments[1..]) {
                    send(&response)?;
                }
                "OK done"
            }
            "IDLE" => {
                send("+ idling")?;
                idle(shared, mail_count, &mut reader, &mut send)?;
                "OK done"
            }
            "NOOP" => "OK done",
            _ => "BAD what?",
        };
        send(&format!("{tag} {end}"))?;
    }
}

/// Tells of mail that the client does not know of, until it has enough.
fn idle(
    shared: &Shared,
    mut mail_count: usize,
    reader: &mut BufReader<&TcpStream>,
    send: &mut dyn FnMut(&str) -> Option<()>,
) -> Option<()> {
    loop {
        let timeout = Some(std::time::Duration::from_millis(20));
        reader.get_ref().set_read_timeout(timeout).unwrap();
        let is_ended = match reader.fill_buf() {
            Ok([]) => return None,
            Ok(_) => true,
            Err(_) => false,
        };
        reader.get_ref().set_read_timeout(None).unwrap();
        if is_ended {
            return (read_line(reader)? == "DONE").then_some(());
        }
        let now = shared.0.lock().unwrap().mails.len();
        if std::mem::replace(&mut mail_count, now) != now {
            send(&format!("* {now} EXISTS"))?;
        }
    }
}

/// The responses to a command with UIDs.
fn uid_command(shared: &Shared, arguments: &[&str]) -> Vec<String> {
    let mut state = shared.0.lock().unwrap();
    let last = state.mails.last().map_or(0, |mail| mail.uid);
    let is_in = |set: &str, uid: u32| {
        set.split(',').any(|range| match range.split_once(':') {
            // As real servers do: `*` is the last mail, even if its number is lower.
            Some((first, "*")) => uid >= first.parse::<u32>().unwrap().min(last),
            _ => range.parse() == Ok(uid),
        })
    };
    let rest = arguments[1..].join(" ");
    match arguments[0] {
        "SEARCH" => {
            let set = rest.strip_prefix("UID ").unwrap_or("1:*");
            let uids = state.mails.iter().map(|mail| mail.uid);
            let uids: Vec<String> =
                uids.filter(|uid| is_in(set, *uid)).map(|it| it.to_string()).collect();
            vec![format!("* SEARCH {}", uids.join(" "))]
        }
        "FETCH" => {
            let mails = state.mails.iter().enumerate();
            let mails = mails.filter(|(_, mail)| is_in(arguments[1], mail.uid));
            mails
                .map(|(index, mail)| match state.garbled.get(&mail.uid) {
                    Some((item, attributes)) if rest.contains(item) => {
                        format!("* {} FETCH (UID {} {attributes})", index + 1, mail.uid)
                    }
                    _ => fetch(index + 1, mail, &rest),
                })
                .collect()
        }
        "STORE" => {
            let flags = rest.split_once('(').unwrap().1.trim_end_matches(')');
            let flags: Vec<String> = flags.split(' ').map(str::to_owned).collect();
            let mails = state.mails.iter_mut().filter(|mail| is_in(arguments[1], mail.uid));
            mails.for_each(|mail| mail.flags.extend(flags.iter().cloned()));
            Vec::new()
        }
        "MOVE" | "EXPUNGE" => {
            state.mails.retain(|mail| !is_in(arguments[1], mail.uid));
            Vec::new()
        }
        other => panic!("UID {other}"),
    }
}

fn fetch(number: usize, mail: &StoredMail, items: &str) -> String {
    let (uid, size) = (mail.uid, mail.raw.len());
    let header_end = mail.raw.find("\r\n\r\n").unwrap() + 4;
    let (section, content) = if items.contains("BODY.PEEK[HEADER]") {
        ("BODY[HEADER]<0>", &mail.raw[..header_end.min(64 << 10)])
    } else {
        ("BODY[]<0>", &mail.raw[..])
    };
    format!(
        "* {number} FETCH (UID {uid} RFC822.SIZE {size} INTERNALDATE \"{ARRIVAL}\" {section} {{{}}}\r\n{content})",
        content.len()
    )
}

fn serve_smtp(mut stream: &TcpStream, shared: &Shared) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut send = |text: &str| stream.write_all(format!("{text}\r\n").as_bytes()).ok();
    let (mut from, mut to) = (String::new(), String::new());
    send("220-the story's server\r\n220 at your service")?;
    loop {
        let command = read_line(&mut reader)?;
        match note(shared, &command) {
            Some(None) => return None,
            Some(Some(reply)) => {
                send(&reply)?;
                continue;
            }
            None => {}
        }
        let upper = command.to_uppercase();
        let address = || command.split(['<', '>']).nth(1).unwrap_or_default().to_owned();
        let reply = match upper.split(' ').next()? {
            "EHLO" => {
                let extensions = shared.0.lock().unwrap().extensions.clone();
                send(&format!("250-hello\r\n{extensions}"))?;
                continue;
            }
            "AUTH" if upper == "AUTH LOGIN" => {
                let mut texts = Vec::new();
                for question in ["VXNlcm5hbWU6", "UGFzc3dvcmQ6"] {
                    send(&format!("334 {question}"))?;
                    texts.push(STANDARD.decode(read_line(&mut reader)?).ok()?);
                }
                if texts == [BOT.as_bytes(), PASSWORD.as_bytes()] {
                    "235 welcome"
                } else {
                    "535 5.7.8 wrong password"
                }
            }
            "AUTH" if is_login(command.split(' ').nth(2)?) => "235 welcome",
            "AUTH" => "535 5.7.8 wrong password",
            "MAIL" => {
                from = address();
                "250 ok"
            }
            "RCPT" => {
                to = address();
                "250 ok"
            }
            "DATA" => {
                send("354 go on")?;
                let raw = read_data(&mut reader)?;
                match note(shared, "END OF DATA") {
                    Some(None) => return None,
                    Some(Some(reply)) => {
                        send(&reply)?;
                        continue;
                    }
                    None => {}
                }
                let mail = SentMail { from: from.clone(), to: to.clone(), raw };
                shared.0.lock().unwrap().sent.push(mail);
                "250 taken"
            }
            "QUIT" => {
                send("221 bye")?;
                return Some(());
            }
            _ => "500 what?",
        };
        send(reply)?;
    }
}

/// Reads a mail up to the line with one dot.
fn read_data(reader: &mut impl Read) -> Option<String> {
    let mut raw = Vec::new();
    let mut byte = [0];
    while !raw.ends_with(b"\r\n.\r\n") {
        reader.read_exact(&mut byte).ok()?;
        raw.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&raw[..raw.len() - 3]).into_owned();
    Some(text.replace("\r\n..", "\r\n."))
}
