//! The table of channels.

use super::dialect::{Dialect, LengthUnit, TextLimit};
use super::setup::ChannelSetup;
use super::{
    Channel, Chat, dingtalk, discord, email, feishu, matrix, mattermost, mochat, ntfy, program, qq,
    slack, telegram, webhook, wecom, weixin, whatsapp,
};
use anyhow::Result;

/// A row of the table: what differs between services apart from the wire format.
pub struct ChannelKind {
    /// The name in the config, on the command line, and in keys of sessions.
    pub name: &'static str,
    /// True if messages come from it. Otherwise, a poll only sends the messages in the outbox.
    pub receives: bool,
    /// True if messages come by `serve webhook` only: a poll answers those that it has stored.
    pub is_pushed: bool,
    /// True if unknown senders of direct messages may get a pairing code.
    pub pairs: bool,
    /// True if user names, which can change hands, are matched with `allowFrom` besides ids.
    pub matches_names: bool,
    /// True for mail: each message is answered by itself, by one message with all text and files; addresses are compared
    /// without case, and a sender starts few turns.
    pub is_mail: bool,
    /// True if a message that was sent can be changed cheaply: a draft can become the answer.
    pub changes_messages: bool,
    /// True for a program of the user.
    pub is_program: bool,
    /// The length at which its clients cut what a user pastes, in UTF-16 code units; `None` if they cut nothing.
    pub max_typed_length: Option<usize>,
    /// The form of its texts.
    pub dialect: Dialect,
    /// Questions of `channel login`, asked while a required key is not set.
    pub login: &'static [LoginQuestion],
    /// The text between a chat and its thread in keys of sessions, and in recipients. `None` if the threads of a chat are one
    /// conversation.
    pub(crate) thread_mark: Option<&'static str>,
    /// The chat of a recipient: an id, or the rest of a session's key after the channel's name.
    parse_chat: fn(&str, Option<&str>) -> Chat,
    /// Creates the channel from its config.
    pub open: fn(&ChannelSetup) -> Result<Box<dyn Channel>>,
}

impl ChannelKind {
    /// The key of the session in which the messages of a chat are answered.
    pub fn session_key(&self, chat: &Chat) -> String {
        let key = format!("{}:{}", self.name, chat.id);
        match (&chat.thread, self.thread_mark) {
            (Some(thread), Some(mark)) => format!("{key}{mark}{thread}"),
            _ => key,
        }
    }

    /// True for the chats that `onboard` offers: the ones that need nothing but a login, and answer by polling.
    pub fn is_offered_by_onboard(&self) -> bool {
        self.receives && !self.is_mail && !self.is_pushed && !self.is_program
    }

    /// The chat that a recipient names: an id, or the rest of a session's key after the channel's name.
    pub fn parse_chat(&self, recipient: &str) -> Chat {
        (self.parse_chat)(recipient, self.thread_mark)
    }
}

/// A question of `channel login`.
pub struct LoginQuestion {
    /// The rest of the config key, after the channel's name.
    pub key: &'static str,
    /// Text of the question. That of a flag ends with a question mark, any other without punctuation.
    pub text: &'static str,
    /// True if the value may stay empty.
    pub is_optional: bool,
    /// True if the answer is yes or no.
    pub is_flag: bool,
}

const fn required(key: &'static str, text: &'static str) -> LoginQuestion {
    LoginQuestion { key, text, is_optional: false, is_flag: false }
}

const fn optional(key: &'static str, text: &'static str) -> LoginQuestion {
    LoginQuestion { is_optional: true, ..required(key, text) }
}

/// The row of a chat with plain text, from which the others differ.
const CHAT: ChannelKind = ChannelKind {
    name: "",
    receives: true,
    is_pushed: false,
    pairs: true,
    matches_names: false,
    is_mail: false,
    changes_messages: false,
    is_program: false,
    max_typed_length: None,
    dialect: Dialect::Plain(PLAIN_LIMIT),
    login: &[],
    thread_mark: None,
    parse_chat: Chat::of_recipient,
    open: program::open,
};

/// The row of a program that speaks the lines of `nanobot serve pipe`.
const fn program_kind(name: &'static str) -> ChannelKind {
    const QUESTIONS: &[LoginQuestion] =
        &[required("command", "Program that speaks the lines of `nanobot serve pipe`")];
    ChannelKind { name, login: QUESTIONS, is_program: true, thread_mark: Some(":thread:"), ..CHAT }
}

/// All channels, in the order of help and lists.
pub const CHANNELS: &[ChannelKind] = &[
    ChannelKind {
        name: "telegram",
        changes_messages: true,
        max_typed_length: Some(4096),
        matches_names: true,
        dialect: Dialect::TelegramHtml,
        login: &[required("token", "Token of the bot, from @BotFather in Telegram")],
        thread_mark: Some(":topic:"),
        open: telegram::open,
        ..CHAT
    },
    ChannelKind {
        name: "matrix",
        dialect: Dialect::MatrixHtml,
        login: &[
            required("homeserver", "Homeserver"),
            required("accessToken", "Access token of the bot's account"),
        ],
        open: matrix::open,
        ..CHAT
    },
    ChannelKind {
        name: "mattermost",
        changes_messages: true,
        dialect: Dialect::Mattermost,
        login: &[
            required("serverUrl", "Server"),
            required("token", "Access token of the bot's account"),
        ],
        thread_mark: Some(":"),
        open: mattermost::open,
        ..CHAT
    },
    ChannelKind {
        name: "slack",
        changes_messages: true,
        dialect: Dialect::Slack,
        login: &[
            required("botToken", "Token of the bot, which begins with xoxb-"),
            optional("appToken", "Token of the app for Socket Mode, which begins with xapp-"),
        ],
        thread_mark: Some(":"),
        open: slack::open,
        ..CHAT
    },
    ChannelKind {
        name: "discord",
        changes_messages: true,
        max_typed_length: Some(2000),
        dialect: Dialect::Discord,
        login: &[required("token", "Token of the bot, from Discord's developer portal")],
        thread_mark: Some(":thread:"),
        open: discord::open,
        ..CHAT
    },
    ChannelKind {
        name: "whatsapp",
        is_pushed: true,
        dialect: Dialect::WhatsApp,
        login: &[
            required("phoneNumberId", "Id of the phone number, in the app dashboard"),
            required("accessToken", "Access token of a system user"),
            required("appSecret", "Secret of the app"),
            required("verifyToken", "A password of your choice, for the webhook"),
        ],
        open: whatsapp::open,
        ..CHAT
    },
    ChannelKind {
        name: "email",
        pairs: false,
        is_mail: true,
        dialect: Dialect::MailHtml,
        login: &[
            LoginQuestion {
                key: "consentGranted",
                text: "Does the owner of the mailbox agree that its mail is read and answered?",
                is_optional: false,
                is_flag: true,
            },
            required("imapHost", "IMAP server"),
            required("imapUsername", "User name there"),
            required("imapPassword", "Password there"),
            required("smtpHost", "SMTP server"),
            required("smtpUsername", "User name there"),
            required("smtpPassword", "Password there"),
            optional("fromAddress", "Address, if the user name is not one"),
        ],
        parse_chat: email::parse_chat,
        open: email::open,
        ..CHAT
    },
    ChannelKind {
        name: "ntfy",
        pairs: false,
        dialect: Dialect::Plain(NTFY_LIMIT),
        login: &[
            required("server", "Server"),
            required("topic", "Topic; everyone who knows it can read it"),
            optional("token", "Access token, if the topic is protected"),
        ],
        open: ntfy::open,
        ..CHAT
    },
    ChannelKind {
        name: "feishu",
        // Cards may have 30 kB of JSON.
        dialect: Dialect::Markdown(TextLimit { amount: 20_000, unit: LengthUnit::Bytes }),
        changes_messages: true,
        thread_mark: Some(":"),
        open: feishu::open,
        ..CHAT
    },
    ChannelKind {
        name: "dingtalk",
        dialect: Dialect::Markdown(PLAIN_LIMIT),
        login: &[
            required("clientId", "Client id, from DingTalk's developer console"),
            required("clientSecret", "Client secret"),
        ],
        thread_mark: Some(":"),
        parse_chat: dingtalk::parse_chat,
        open: dingtalk::open,
        ..CHAT
    },
    ChannelKind {
        name: "qq",
        // Only five parts are taken.
        dialect: Dialect::Markdown(PLAIN_LIMIT),
        login: &[
            required("appId", "Id of the bot, from QQ's console"),
            required("secret", "Secret of the bot"),
        ],
        open: qq::open,
        ..CHAT
    },
    ChannelKind {
        name: "wecom",
        dialect: Dialect::Markdown(TextLimit { amount: 20_480, unit: LengthUnit::Bytes }),
        login: &[
            required("botId", "Id of the bot, from WeCom's console"),
            required("secret", "Secret of its long connection"),
        ],
        open: wecom::open,
        ..CHAT
    },
    ChannelKind {
        name: "weixin",
        dialect: Dialect::Plain(TextLimit { amount: 1800, unit: LengthUnit::Utf16 }),
        open: weixin::open,
        ..CHAT
    },
    ChannelKind {
        name: "mochat",
        login: &[
            required("clawToken", "Token of the agent"),
            required("agentUserId", "Id of the agent"),
        ],
        parse_chat: mochat::parse_chat,
        open: mochat::open,
        ..CHAT
    },
    program_kind("signal"),
    program_kind("irc"),
    program_kind("xmpp"),
    program_kind("program"),
    ChannelKind {
        name: "webhook",
        receives: false,
        pairs: false,
        dialect: Dialect::Mattermost,
        login: &[required("url", "Address")],
        open: webhook::open,
        ..CHAT
    },
];

/// The size above which ntfy makes a message an attachment (`message-size-limit` of its server).
const NTFY_LIMIT: TextLimit = TextLimit { amount: 4096, unit: LengthUnit::Bytes };

/// A size that chat services without a known limit take.
const PLAIN_LIMIT: TextLimit = TextLimit { amount: 4000, unit: LengthUnit::Utf16 };

/// The channel named `name`.
pub fn find(name: &str) -> Option<&'static ChannelKind> {
    CHANNELS.iter().find(|kind| kind.name == name)
}

#[cfg(test)]
mod tests {
    use super::CHANNELS;
    use nanobot_config::settings::channels::enabled_keys;

    #[test]
    fn the_settings_have_the_key_that_enables_each_channel() {
        let named: Vec<&str> = CHANNELS.iter().map(|kind| kind.name).collect();
        let enabled: Vec<&str> = enabled_keys().map(|(name, _)| name).collect();
        assert_eq!(enabled, named);
    }
}
