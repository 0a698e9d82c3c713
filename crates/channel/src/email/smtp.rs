//! A session with an SMTP server for submission (RFC 5321, RFC 6409).

use super::connection::{
    MailConnection, MailConnector, authentication, no_tls, to_base64, unexpected,
};
use super::settings::{LoginProof, MailLogin, MailSecurity, MailServer};
use crate::{ChannelError, ChannelResult, RateLimit};
use std::time::Duration;

/// Maximum size of a line of a reply, in bytes.
const MAX_LINE_BYTES: usize = 64 << 10;
/// Maximum number of lines of a reply.
const MAX_REPLY_LINES: usize = 200;
/// The delay before the next attempt with a mail that the server does not accept now.
const RETRY_DELAY: Duration = Duration::from_secs(300);
/// Our name. A server for users who log in cannot verify one, so it is an address of this machine.
const HELLO_NAME: &str = "[127.0.0.1]";

/// Reply codes (RFC 5321 §4.2.3, RFC 4954 §6; 523 is used by some services for a mail that is too large).
const READY: u16 = 220;
const AUTHENTICATED: u16 = 235;
const CONTINUE_AUTHENTICATION: u16 = 334;
const START_MAIL_INPUT: u16 = 354;
const SHUTTING_DOWN: u16 = 421;
const MAIL_ABOVE_LIMIT: u16 = 523;
const LOGIN_REQUIRED: u16 = 530;
const LOGIN_TOO_WEAK: u16 = 534;
const LOGIN_REJECTED: u16 = 535;
const ENCRYPTION_REQUIRED: u16 = 538;
const MAIL_TOO_LARGE: u16 = 552;

/// A session in which we are logged in.
pub(super) struct SmtpSession {
    server: MailServer,
    connection: MailConnection,
    /// Keywords in upper case, with their parameters.
    extensions: Vec<String>,
}

/// The sender and the recipient of a mail, as commands name them.
#[derive(Clone, Copy, Debug)]
pub(super) struct MailEnvelope<'e> {
    pub(super) from: &'e str,
    pub(super) to: &'e str,
}

/// A reply: its code, and the texts of its lines.
struct SmtpReply {
    code: u16,
    lines: Vec<Vec<u8>>,
}

impl SmtpReply {
    fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

impl SmtpSession {
    /// Connects, and logs in.
    pub(super) fn open(connector: &MailConnector, server: &MailServer) -> ChannelResult<Self> {
        let server = connector.with_token(server)?;
        let mut session =
            Self { connection: connector.connect(&server)?, server, extensions: Vec::new() };
        let greeting = session.read_reply()?;
        if greeting.code != READY {
            return Err(session.refusal(&greeting, ChannelError::Unavailable));
        }
        session.say_hello()?;
        if session.server.security == MailSecurity::StartTls {
            if !session.has("STARTTLS") {
                return Err(no_tls(&session.server));
            }
            let reply = session.command("STARTTLS")?;
            if reply.code != READY {
                return Err(session.refusal(&reply, ChannelError::Unavailable));
            }
            session.connection = session.connection.encrypt()?;
            session.say_hello()?;
        }
        if let Some(login) = session.server.login.clone() {
            session.log_in(&login)?;
        }
        Ok(session)
    }

    fn say_hello(&mut self) -> ChannelResult<()> {
        let mut reply = self.command(&format!("EHLO {HELLO_NAME}"))?;
        if reply.code >= 500 {
            reply = self.command(&format!("HELO {HELLO_NAME}"))?;
        }
        if !reply.is_success() {
            return Err(self.refusal(&reply, ChannelError::Unavailable));
        }
        let lines = reply.lines.iter().skip(1);
        let lines = lines.map(|line| String::from_utf8_lossy(line).to_ascii_uppercase());
        self.extensions = lines.collect();
        Ok(())
    }

    /// The parameters of an extension.
    fn extension(&self, keyword: &str) -> Option<&str> {
        let lines = self.extensions.iter();
        let mut parameters = lines.filter_map(|line| {
            let rest = line.strip_prefix(keyword)?;
            (rest.is_empty() || rest.starts_with([' ', '=']))
                .then(|| rest[rest.len().min(1)..].trim())
        });
        parameters.next()
    }

    fn has(&self, keyword: &str) -> bool {
        self.extension(keyword).is_some()
    }

    fn log_in(&mut self, login: &MailLogin) -> ChannelResult<()> {
        let offered = self.extension("AUTH").unwrap_or_default().to_owned();
        let offers = |mechanism: &str| offered.split(' ').any(|other| other == mechanism);
        let mut reply = match authentication(login, &offers) {
            Some((mechanism, response)) => self.command(&format!("AUTH {mechanism} {response}"))?,
            None if offers("LOGIN") => {
                let (user, password) = login.user_and_proof();
                let mut reply = self.command("AUTH LOGIN")?;
                for text in [user, password] {
                    if reply.code == CONTINUE_AUTHENTICATION {
                        reply = self.command(&to_base64(text))?;
                    }
                }
                reply
            }
            None => {
                let cause = format!("`{}` does not offer password logins", self.server.host);
                return Err(ChannelError::Misconfigured(cause));
            }
        };
        if reply.code == CONTINUE_AUTHENTICATION && matches!(login.proof, LoginProof::Token(_)) {
            // The server explains a failure, which is answered with an empty line.
            reply = self.command("")?;
        }
        match reply.code {
            AUTHENTICATED => Ok(()),
            400..500 => Err(self.refusal(&reply, ChannelError::Unavailable)),
            _ => {
                let cause = self.connection.describe(&describe_reply(&reply));
                Err(login.rejected(&cause))
            }
        }
    }

    /// Sends a mail to one recipient.
    pub(super) fn send(&mut self, envelope: MailEnvelope<'_>, mail: &[u8]) -> ChannelResult<()> {
        let MailEnvelope { from, to } = envelope;
        let mut parameters = String::new();
        if let Some(limit) = self.extension("SIZE") {
            let limit = limit.parse::<usize>().unwrap_or(0);
            if limit > 0 && mail.len() > limit {
                let cause = format!("the mail is larger than the server accepts ({limit} bytes)");
                return Err(ChannelError::Undeliverable(cause));
            }
            parameters += &format!(" SIZE={}", mail.len());
        }
        if !mail.is_ascii() && self.has("8BITMIME") {
            parameters += " BODY=8BITMIME";
        }
        if !from.is_ascii() || !to.is_ascii() {
            if !self.has("SMTPUTF8") {
                let cause =
                    format!("the server does not accept addresses like `{to}`: it lacks SMTPUTF8");
                return Err(ChannelError::Undeliverable(cause));
            }
            parameters += " SMTPUTF8";
        }
        let reply = self.command(&format!("MAIL FROM:<{from}>{parameters}"))?;
        if !reply.is_success() {
            return Err(self.refusal(
                &reply,
                match reply.code {
                    MAIL_TOO_LARGE | MAIL_ABOVE_LIMIT => ChannelError::Undeliverable,
                    _ => ChannelError::Misconfigured,
                },
            ));
        }
        let reply = self.command(&format!("RCPT TO:<{to}>"))?;
        if !reply.is_success() {
            return Err(self.refusal(&reply, ChannelError::RecipientRefused));
        }
        let reply = self.command("DATA")?;
        if reply.code != START_MAIL_INPUT {
            return Err(self.refusal(&reply, ChannelError::Undeliverable));
        }
        self.connection.write(&to_data(mail))?;
        let reply = self.read_reply()?;
        if reply.is_success() {
            Ok(())
        } else {
            Err(self.refusal(&reply, ChannelError::Undeliverable))
        }
    }

    /// Ends the session. The mail was taken, so a failure does not matter.
    pub(super) fn quit(mut self) {
        if let Err(error) = self.command("QUIT") {
            log::debug!(target: "channel", "email: {error}");
        }
    }

    fn command(&mut self, line: &str) -> ChannelResult<SmtpReply> {
        self.connection.write(format!("{line}\r\n").as_bytes())?;
        self.read_reply()
    }

    fn read_reply(&mut self) -> ChannelResult<SmtpReply> {
        let mut lines = Vec::new();
        while lines.len() < MAX_REPLY_LINES {
            let mut line = Vec::new();
            self.connection.read_line(&mut line, MAX_LINE_BYTES)?;
            let digits = line.get(..3).and_then(|code| std::str::from_utf8(code).ok());
            let Some(code) = digits.and_then(|code| code.parse::<u16>().ok()) else {
                break;
            };
            let is_last = line.get(3) != Some(&b'-');
            lines.push(line.get(4..).unwrap_or_default().to_vec());
            if is_last {
                return Ok(SmtpReply { code, lines });
            }
        }
        Err(unexpected(&self.server, "SMTP"))
    }

    /// The error of a reply that refuses. A temporary refusal leaves the mail for a later attempt.
    fn refusal(&self, reply: &SmtpReply, permanent: fn(String) -> ChannelError) -> ChannelError {
        let cause = self.connection.describe(&describe_reply(reply));
        match reply.code {
            SHUTTING_DOWN => ChannelError::Unavailable(cause),
            400..500 => ChannelError::RateLimited(RateLimit(RETRY_DELAY), cause),
            LOGIN_REQUIRED | LOGIN_TOO_WEAK | LOGIN_REJECTED | ENCRYPTION_REQUIRED => {
                ChannelError::TokenRejected(cause)
            }
            _ => permanent(cause),
        }
    }
}

fn describe_reply(reply: &SmtpReply) -> Vec<u8> {
    let text = reply.lines.join(&b' ');
    [reply.code.to_string().as_bytes(), b" ", &text].concat()
}

/// A mail as it follows `DATA`: lines end in CRLF, a dot at the start of a line is doubled, and a line with one dot ends it.
fn to_data(mail: &[u8]) -> Vec<u8> {
    let mut data = Vec::with_capacity(mail.len() + mail.len() / 50 + 16);
    let mail = mail.strip_suffix(b"\n").unwrap_or(mail);
    for line in mail.split(|byte| *byte == b'\n') {
        if line.starts_with(b".") {
            data.push(b'.');
        }
        data.extend_from_slice(line.strip_suffix(b"\r").unwrap_or(line));
        data.extend_from_slice(b"\r\n");
    }
    data.extend_from_slice(b".\r\n");
    data
}

#[cfg(test)]
mod tests {
    use super::to_data;

    #[test]
    fn dots_are_doubled_and_lines_ended() {
        let check = |mail: &str, expect: &str| {
            assert_eq!(String::from_utf8(to_data(mail.as_bytes())).unwrap(), expect);
        };
        check("a\r\n.\r\n..b\nc.", "a\r\n..\r\n...b\r\nc.\r\n.\r\n");
        check("a\r\n", "a\r\n.\r\n");
        check("", "\r\n.\r\n");
    }
}
