//! The place of notifications, which `notify.target` of the config names.

use nanobot_config::settings::Settings;
use nanobot_cron::job::AnswerDestination;

/// The command behind `mail`: a mail to this user by the local mailer. Its directories are not in cron's PATH.
const MAIL_COMMAND: &str = r#"PATH=$PATH:/usr/sbin:/usr/lib; { printf 'Subject: nanobot\nContent-Type: text/plain; charset=utf-8\n\n'; cat; } | sendmail -i "$(id -un)""#;

/// Reads the place; `None` if the config names none, or none that can be used.
pub(crate) fn find(settings: &Settings) -> Option<AnswerDestination> {
    let text = settings.notify_target.as_deref()?;
    match text.split_once(':') {
        None if text == "mail" => Some(AnswerDestination::Command(MAIL_COMMAND.to_owned())),
        None => None,
        Some(("command", command)) => Some(AnswerDestination::Command(command.to_owned())),
        Some((channel, to)) => {
            Some(AnswerDestination::Chat { channel: channel.to_owned(), to: to.to_owned() })
        }
    }
}

/// True if there is a place for the failures of `channel`: it is on another channel, or on none.
pub(crate) fn covers_channel(settings: &Settings, channel: &str) -> bool {
    match find(settings) {
        Some(AnswerDestination::Chat { channel: target_channel, .. }) => target_channel != channel,
        target => target.is_some(),
    }
}
