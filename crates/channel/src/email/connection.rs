//! Connections to mail servers, and the common part of IMAP and SMTP: retries, logins, errors.

use super::settings::{LoginProof, MailLogin, MailSecurity, MailServer};
use crate::service_client::failure;
use crate::setup::ChannelSetup;
use crate::{ChannelError, ChannelResult};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nanobot_net::http::{Http, HttpTimeouts, LineStream, shown_message};
use nanobot_os::clock::Clock;
use nanobot_os::secret::{self, Secret};
use nanobot_sandbox::stored_secret;
use std::sync::Arc;
use std::time::Duration;

/// Timeouts of mail servers. One may need minutes to accept a large mail.
const TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(20),
    first_byte: Duration::from_secs(120),
    idle: Duration::from_secs(60),
    total: Duration::from_secs(600),
};

/// Opens connections.
#[derive(Clone)]
pub(super) struct MailConnector {
    http: Arc<Http>,
    clock: Clock,
    max_attempts: u32,
    /// The environment of the command that prints a token.
    env: Arc<Vec<(String, String)>>,
}

/// A connection to a server.
pub(super) struct MailConnection {
    stream: LineStream,
    http: Arc<Http>,
    host: String,
    port: u16,
}

impl MailConnector {
    /// Prepares connections; none is opened.
    ///
    /// # Errors
    /// Status 78 for an unusable proxy.
    pub(super) fn new(setup: &ChannelSetup) -> anyhow::Result<Self> {
        let http = Http::new(TIMEOUTS, false, &setup.network);
        let proxy = setup.config.secret("proxy")?;
        Ok(Self {
            http: Arc::new(http.with_proxy(proxy, "`channels.email.proxy`")?),
            clock: setup.clock.clone(),
            max_attempts: setup.max_attempts,
            env: Arc::new(setup.command_env.clone()),
        })
    }

    /// Connects to a server, with retries.
    pub(super) fn connect(&self, server: &MailServer) -> ChannelResult<MailConnection> {
        let (host, port) = (&server.host, server.port);
        let is_encrypted = server.security == MailSecurity::Tls;
        let mut attempts = 0;
        loop {
            let cause = match self.http.open_stream(host, port, is_encrypted) {
                Ok(stream) => {
                    return Ok(MailConnection {
                        stream,
                        http: Arc::clone(&self.http),
                        host: host.clone(),
                        port,
                    });
                }
                Err(error) => failure(error)?,
            };
            let cause = format!("connect to `{host}:{port}`: {cause}");
            attempts += 1;
            if attempts >= self.max_attempts {
                return Err(ChannelError::Unavailable(cause));
            }
            log::warn!(target: "channel", "email: {cause}; attempt {} of {}", attempts + 1, self.max_attempts);
            let pause = Duration::from_secs(1 << (attempts - 1));
            self.clock.sleep(pause).map_err(anyhow::Error::from)?;
        }
    }

    /// The server with a token, if a command prints it.
    pub(super) fn with_token(&self, server: &MailServer) -> ChannelResult<MailServer> {
        let mut server = server.clone();
        if let Some(login) = &mut server.login
            && let LoginProof::TokenCommand(command) = &login.proof
        {
            let token = stored_secret::run_command(command, &self.env)
                .map_err(|error| error.context("`channels.email.tokenCommand`"))?;
            secret::register(&token);
            login.proof = LoginProof::Token(token);
        }
        Ok(server)
    }
}

impl MailConnection {
    /// Encrypts the connection.
    pub(super) fn encrypt(self) -> ChannelResult<Self> {
        let stream = self.http.start_tls(self.stream, &self.host, self.port);
        Ok(Self { stream: stream.map_err(|error| to_channel_error(error, &self.host))?, ..self })
    }

    /// Like [`LineStream::write`].
    pub(super) fn write(&mut self, bytes: &[u8]) -> ChannelResult<()> {
        let result = self.stream.write(bytes);
        result.map_err(|error| to_channel_error(error, &self.host))
    }

    /// Like [`LineStream::read_line`].
    pub(super) fn read_line(
        &mut self,
        buffer: &mut Vec<u8>,
        limit_bytes: usize,
    ) -> ChannelResult<()> {
        let result = self.stream.read_line(buffer, limit_bytes);
        result.map_err(|error| to_channel_error(error, &self.host))
    }

    /// Like [`LineStream::read_exact`].
    pub(super) fn read_exact(&mut self, buffer: &mut Vec<u8>, count: usize) -> ChannelResult<()> {
        let result = self.stream.read_exact(buffer, count);
        result.map_err(|error| to_channel_error(error, &self.host))
    }

    /// Like [`LineStream::wait_until`].
    pub(super) fn wait_until(&mut self, end: Duration) -> ChannelResult<bool> {
        let result = self.stream.wait_until(end);
        result.map_err(|error| to_channel_error(error, &self.host))
    }

    /// A server's reply on one line, without secrets and control characters.
    pub(super) fn describe(&self, reply: &[u8]) -> String {
        format!("`{}` responds: {}", self.host, shown_message(&String::from_utf8_lossy(reply)))
    }
}

fn to_channel_error(error: anyhow::Error, host: &str) -> ChannelError {
    match failure(error) {
        Ok(cause) => ChannelError::Unavailable(format!("`{host}`: {cause}")),
        Err(error) => error,
    }
}

/// The error of a server that speaks another protocol.
pub(super) fn unexpected(server: &MailServer, protocol: &str) -> ChannelError {
    let (host, port) = (&server.host, server.port);
    ChannelError::Unavailable(format!("`{host}:{port}` does not respond as {protocol} does"))
}

/// The error of a server that cannot encrypt the connection.
pub(super) fn no_tls(server: &MailServer) -> ChannelError {
    let (host, port) = (&server.host, server.port);
    ChannelError::Misconfigured(format!("`{host}:{port}` does not offer TLS"))
}

/// The SASL mechanism of a login, and the initial response in Base64: XOAUTH2 with a token, else PLAIN (RFC 4616) if the
/// server offers it.
pub(super) fn authentication(
    login: &MailLogin,
    offers: &dyn Fn(&str) -> bool,
) -> Option<(&'static str, String)> {
    let (user, proof) = login.user_and_proof();
    if matches!(login.proof, LoginProof::Token(_)) {
        let response = format!("user={user}\x01auth=Bearer {proof}\x01\x01");
        return Some(("XOAUTH2", to_base64(&response)));
    }
    offers("PLAIN").then(|| ("PLAIN", to_base64(&format!("\0{user}\0{proof}"))))
}

/// The form of texts in SASL.
pub(super) fn to_base64(text: &str) -> String {
    STANDARD.encode(text)
}

impl MailLogin {
    /// The user, and the password or token.
    pub(super) fn user_and_proof(&self) -> (&str, &str) {
        let proof = match &self.proof {
            LoginProof::Password(secret) | LoginProof::Token(secret) => Secret::expose(secret),
            LoginProof::TokenCommand(_) => "",
        };
        (&self.user, proof)
    }

    /// The error of a login that the server rejects.
    pub(super) fn rejected(&self, cause: &str) -> ChannelError {
        let key = match self.proof {
            LoginProof::Password(_) => self.key,
            LoginProof::Token(_) | LoginProof::TokenCommand(_) => "tokenCommand",
        };
        ChannelError::TokenRejected(format!(
            "{cause}; `channels.email.{key}` is not accepted for `{}`",
            self.user
        ))
    }
}
