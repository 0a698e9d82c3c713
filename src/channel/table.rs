//! The table of channels.

use super::dialect::{Dialect, LengthUnit, TextLimit};
use super::setup::ChannelSetup;
use super::{
    Channel, discord, email, matrix, mattermost, ntfy, slack, telegram, webhook, whatsapp,
};
use anyhow::Result;

/// A row of the table: what differs between services apart from the wire format.
pub struct ChannelKind {
    /// The name in the config, on the command line, and in keys of sessions.
    pub name: &'static str,
    /// True if messages come from it. Otherwise a poll only sends what waits.
    pub receives: bool,
    /// True if messages come by `channel listen` only: a poll answers those that it has stored.
    pub is_pushed: bool,
    /// True if unknown senders of direct messages may get a pairing code.
    pub pairs: bool,
    /// True if user names, which can change hands, are matched with `allowFrom` besides ids.
    pub matches_names: bool,
    /// True for mail: each message is answered by itself, by one message with all text and files; addresses are compared
    /// without case, and a sender starts few turns.
    pub is_mail: bool,
    /// The form of its texts.
    pub dialect: Dialect,
    /// Questions of `channel login`, asked while a required key is not set.
    pub login: &'static [LoginQuestion],
    /// Creates the channel from its config.
    pub open: fn(&ChannelSetup) -> Result<Box<dyn Channel>>,
}

/// A question of `channel login`.
pub struct LoginQuestion {
    /// The rest of the config key, after the channel's name.
    pub key: &'static str,
    /// Text of the question, without punctuation at the end.
    pub text: &'static str,
    /// True if the value may stay empty.
    pub is_optional: bool,
}

impl LoginQuestion {
    const fn required(key: &'static str, text: &'static str) -> Self {
        Self {
            key,
            text,
            is_optional: false,
        }
    }
}

/// All channels, in the order of help and lists.
pub const CHANNELS: &[ChannelKind] = &[
    ChannelKind {
        name: "telegram",
        receives: true,
        is_pushed: false,
        pairs: true,
        matches_names: true,
        is_mail: false,
        dialect: Dialect::TelegramHtml,
        login: &[LoginQuestion::required(
            "token",
            "Token of the bot, from @BotFather in Telegram",
        )],
        open: telegram::open,
    },
    ChannelKind {
        name: "matrix",
        receives: true,
        is_pushed: false,
        pairs: true,
        matches_names: false,
        is_mail: false,
        dialect: Dialect::MatrixHtml,
        login: &[
            LoginQuestion::required("homeserver", "Homeserver"),
            LoginQuestion::required("accessToken", "Access token of the bot's account"),
        ],
        open: matrix::open,
    },
    ChannelKind {
        name: "mattermost",
        receives: true,
        is_pushed: false,
        pairs: true,
        matches_names: false,
        is_mail: false,
        dialect: Dialect::Mattermost,
        login: &[
            LoginQuestion::required("serverUrl", "Server"),
            LoginQuestion::required("token", "Access token of the bot's account"),
        ],
        open: mattermost::open,
    },
    ChannelKind {
        name: "slack",
        receives: true,
        is_pushed: false,
        pairs: true,
        matches_names: false,
        is_mail: false,
        dialect: Dialect::Slack,
        login: &[
            LoginQuestion::required("botToken", "Token of the bot, which begins with xoxb-"),
            LoginQuestion {
                is_optional: true,
                ..LoginQuestion::required(
                    "appToken",
                    "Token of the app for Socket Mode, which begins with xapp-",
                )
            },
        ],
        open: slack::open,
    },
    ChannelKind {
        name: "discord",
        receives: true,
        is_pushed: false,
        pairs: true,
        matches_names: false,
        is_mail: false,
        dialect: Dialect::Discord,
        login: &[LoginQuestion::required(
            "token",
            "Token of the bot, from Discord's developer portal",
        )],
        open: discord::open,
    },
    ChannelKind {
        name: "whatsapp",
        receives: true,
        is_pushed: true,
        pairs: true,
        matches_names: false,
        is_mail: false,
        dialect: Dialect::WhatsApp,
        login: &[
            LoginQuestion::required(
                "phoneNumberId",
                "Id of the phone number, in the app dashboard",
            ),
            LoginQuestion::required("accessToken", "Access token of a system user"),
            LoginQuestion::required("appSecret", "Secret of the app"),
            LoginQuestion::required("verifyToken", "A password of your choice, for the webhook"),
        ],
        open: whatsapp::open,
    },
    ChannelKind {
        name: "email",
        receives: true,
        is_pushed: false,
        pairs: false,
        matches_names: false,
        is_mail: true,
        dialect: Dialect::MailHtml,
        login: &[
            LoginQuestion::required(
                "consentGranted",
                "Does the owner of the mailbox agree that its mail is read and answered? yes or no",
            ),
            LoginQuestion::required("imapHost", "IMAP server"),
            LoginQuestion::required("imapUsername", "User name there"),
            LoginQuestion::required("imapPassword", "Password there"),
            LoginQuestion::required("smtpHost", "SMTP server"),
            LoginQuestion::required("smtpUsername", "User name there"),
            LoginQuestion::required("smtpPassword", "Password there"),
            LoginQuestion {
                is_optional: true,
                ..LoginQuestion::required("fromAddress", "Address, if the user name is not one")
            },
        ],
        open: email::open,
    },
    ChannelKind {
        name: "ntfy",
        receives: true,
        is_pushed: false,
        pairs: false,
        matches_names: false,
        is_mail: false,
        dialect: Dialect::Plain(NTFY_LIMIT),
        login: &[
            LoginQuestion::required("server", "Server"),
            LoginQuestion::required("topic", "Topic; everyone who knows it can read it"),
            LoginQuestion {
                is_optional: true,
                ..LoginQuestion::required("token", "Access token, if the topic is protected")
            },
        ],
        open: ntfy::open,
    },
    ChannelKind {
        name: "webhook",
        receives: false,
        is_pushed: false,
        pairs: false,
        matches_names: false,
        is_mail: false,
        dialect: Dialect::Mattermost,
        login: &[LoginQuestion::required("url", "Address")],
        open: webhook::open,
    },
];

/// The size above which ntfy makes a message an attachment (`message-size-limit` of its server).
const NTFY_LIMIT: TextLimit = TextLimit {
    amount: 4096,
    unit: LengthUnit::Bytes,
};

/// The channel named `name`.
pub fn find(name: &str) -> Option<&'static ChannelKind> {
    CHANNELS.iter().find(|kind| kind.name == name)
}

#[cfg(test)]
mod tests {
    use super::CHANNELS;
    use crate::settings::channels::ENABLED_KEYS;

    #[test]
    fn the_settings_have_the_key_that_enables_each_channel() {
        let named: Vec<&str> = CHANNELS.iter().map(|kind| kind.name).collect();
        assert_eq!(ENABLED_KEYS.map(|(name, _)| name).to_vec(), named);
        for (name, key) in ENABLED_KEYS {
            assert_eq!(key.path, format!("channels.{name}.enabled"));
        }
    }
}
