//! The checked config of the channel, with derived values.

use super::address::MailAddress;
use crate::access::AccessRules;
use crate::setup::ChannelSetup;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::settings::channels::ChannelConfig;
use nanobot_net::web_url::is_loopback;
use nanobot_os::secret::Secret;
use serde::{Deserialize, Serialize};

/// The smallest interval at which a server without IDLE is asked, in seconds.
const MIN_POLL_INTERVAL_SECS: u64 = 5;

/// A server, and the way to encrypt the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MailServer {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) security: MailSecurity,
    pub(super) login: Option<MailLogin>,
}

/// The encryption of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MailSecurity {
    /// TLS from the start.
    Tls,
    /// TLS after a command, without which nothing else is sent.
    StartTls,
    /// None, for this machine only.
    Cleartext,
}

/// A user, and the proof of the login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MailLogin {
    pub(super) user: String,
    pub(super) proof: LoginProof,
    /// The key of the proof, for errors.
    pub(super) key: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LoginProof {
    Password(Secret),
    /// A command that prints an access token of OAuth 2.
    TokenCommand(String),
    /// Such a token.
    Token(Secret),
}

/// The action on a mail in the mailbox, after its answer was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PostAction {
    Keep,
    Delete { expunges: bool },
    Move(String),
}

/// The settings of the channel.
#[derive(Clone, Debug)]
pub(super) struct MailSettings {
    pub(super) imap: MailServer,
    pub(super) smtp: MailServer,
    pub(super) mailbox: String,
    pub(super) from: MailAddress,
    /// Our addresses, in lower case: mail from them is not answered.
    pub(super) own_addresses: Vec<String>,
    pub(super) replies: bool,
    pub(super) marks_seen: bool,
    pub(super) post_action: PostAction,
    pub(super) poll_interval_secs: u64,
    pub(super) max_body_chars: usize,
    pub(super) subject_prefix: String,
    pub(super) attachments: AttachmentLimits,
    pub(super) verification: SenderVerification,
}

/// The attachments that are accepted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttachmentLimits {
    /// Media types, as `image/*`; `*` for all.
    pub(super) types: Vec<String>,
    pub(super) max_bytes: u64,
    pub(super) max_count: usize,
}

/// The proof of the sender's address that a mail needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SenderVerification {
    /// False if senders are believed.
    pub(super) is_required: bool,
    pub(super) needs_dkim: bool,
    pub(super) needs_spf: bool,
    /// The servers whose `Authentication-Results` are believed, in lower case.
    pub(super) trusted_ids: Vec<String>,
}

impl MailSettings {
    /// Reads the config.
    ///
    /// # Errors
    /// Status 78 without consent, for a missing value, and for a connection that would not be encrypted.
    pub(super) fn read(setup: &ChannelSetup) -> Result<Self> {
        let config = &setup.config;
        if !config.flag("consentGranted") {
            return Err(fail(Exit::Config, "the owner of the mailbox has not agreed: `channels.email.consentGranted` is not true")
                .with_hint("`nanobot config set channels.email.consentGranted true`"));
        }
        let imap = imap_server(config)?;
        let smtp = smtp_server(config)?;
        let user = |server: &MailServer| server.login.as_ref().map(|login| login.user.clone());
        let from = config.text("fromAddress");
        let from = from.or_else(|| user(&smtp)).or_else(|| user(&imap));
        let from = from.unwrap_or_default();
        let Some(from) = MailAddress::parse(&from) else {
            let cause = format!("`channels.email.fromAddress`: `{from}` is not an address");
            return Err(fail(Exit::Config, cause));
        };
        let own_addresses = [user(&imap), user(&smtp), Some(from.address.clone())]
            .into_iter()
            .flatten()
            .filter(|user| user.contains('@'))
            .map(|address| address.to_ascii_lowercase());
        let count = |key: &str| config.count(key).unwrap_or(u64::MAX);
        let size = |key: &str| usize::try_from(count(key)).unwrap_or(usize::MAX);
        Ok(Self {
            imap,
            smtp,
            mailbox: config.text("imapMailbox").unwrap_or_else(|| "INBOX".to_owned()),
            from,
            own_addresses: own_addresses.collect(),
            replies: config.flag("autoReplyEnabled"),
            marks_seen: config.flag("markSeen"),
            post_action: post_action(config)?,
            poll_interval_secs: count("pollIntervalSeconds").max(MIN_POLL_INTERVAL_SECS),
            max_body_chars: size("maxBodyChars"),
            // Not trimmed: the blank at the end is a part of the prefix.
            subject_prefix: config.raw_text("subjectPrefix").unwrap_or_default(),
            attachments: AttachmentLimits {
                types: config.list("allowedAttachmentTypes"),
                max_bytes: count("maxAttachmentSize"),
                max_count: size("maxAttachmentsPerEmail"),
            },
            verification: SenderVerification::read(config, &setup.access),
        })
    }
}

impl MailSettings {
    /// The mailbox with its user and its server. Positions are valid within it.
    pub(super) fn mailbox_name(&self) -> String {
        let MailServer { host, login, .. } = &self.imap;
        let user = login.as_ref().map_or("", |login| login.user.as_str());
        format!("{user} {host} {}", self.mailbox)
    }
}

impl SenderVerification {
    /// Addresses of senders can be forged, so a list of them needs proof. Where everyone may write, proof is checked only
    /// if the config names servers that verify it.
    fn read(config: &ChannelConfig, access: &AccessRules) -> Self {
        let ids = config.list("trustedAuthservIds");
        let trusted_ids: Vec<String> =
            ids.iter().map(|id| id.trim().to_ascii_lowercase()).collect();
        let (needs_dkim, needs_spf) = (config.flag("verifyDkim"), config.flag("verifySpf"));
        let admits_all = access.allow_from.iter().any(|entry| entry == "*");
        Self {
            is_required: (needs_dkim || needs_spf) && (!admits_all || !trusted_ids.is_empty()),
            needs_dkim,
            needs_spf,
            trusted_ids,
        }
    }
}

fn imap_server(config: &ChannelConfig) -> Result<MailServer> {
    let host = config.required_text("imapHost", "mail.example.org")?;
    let security = if config.flag("imapUseSsl") {
        MailSecurity::Tls
    } else if is_loopback(&host) {
        MailSecurity::Cleartext
    } else {
        MailSecurity::StartTls
    };
    let user = config.required_text("imapUsername", "USER")?;
    let login = Some(mail_login(config, user, "imapPassword")?);
    Ok(MailServer { port: port(config, "imapPort"), host, security, login })
}

fn smtp_server(config: &ChannelConfig) -> Result<MailServer> {
    let host = config.required_text("smtpHost", "mail.example.org")?;
    let security = if config.flag("smtpUseSsl") {
        MailSecurity::Tls
    } else if config.flag("smtpUseTls") {
        MailSecurity::StartTls
    } else if is_loopback(&host) {
        MailSecurity::Cleartext
    } else {
        return Err(fail(
            Exit::Config,
            "mail would be sent unencrypted: `smtpUseTls` and `smtpUseSsl` are false",
        )
        .with_hint("`nanobot config set channels.email.smtpUseTls true`"));
    };
    let user = config.text("smtpUsername");
    let login = user.map(|user| mail_login(config, user, "smtpPassword")).transpose()?;
    Ok(MailServer { port: port(config, "smtpPort"), host, security, login })
}

/// The login of a user: by the command that prints a token, else by the password of `key`.
fn mail_login(config: &ChannelConfig, user: String, key: &'static str) -> Result<MailLogin> {
    let proof = match config.text("tokenCommand") {
        Some(command) => LoginProof::TokenCommand(command),
        None => LoginProof::Password(config.required_secret(key)?.clone()),
    };
    Ok(MailLogin { user, proof, key })
}

fn port(config: &ChannelConfig, key: &str) -> u16 {
    let port = config.count(key);
    port.and_then(|port| u16::try_from(port).ok()).unwrap_or(0)
}

fn post_action(config: &ChannelConfig) -> Result<PostAction> {
    match config.text("postAction").as_deref() {
        None => Ok(PostAction::Keep),
        Some("delete") => Ok(PostAction::Delete { expunges: config.flag("postActionExpunge") }),
        // The table of keys allows no other value.
        Some(_) => {
            let mailbox = config.required_text("postActionMoveMailbox", "Done")?;
            Ok(PostAction::Move(mailbox))
        }
    }
}
