//! Facts that a turn tells the model about its repository: the branch, the changed files, the last commits.

use crate::ops::context::Context;
use crate::ops::turn_setup::TurnSetup;
use crate::ops::turn_setup::toolset::exec_tool;
use nanobot_base::message::{Message, Origin, plain_text, tagged_block};
use nanobot_config::policy::net::Net;
use nanobot_config::policy::{Policy, Sandbox};
use nanobot_config::settings::Settings;
use nanobot_os::secret;
use nanobot_store::trust;
use nanobot_tool::files::Files;
use nanobot_tool::run_alone;
use serde_json::json;
use std::sync::Arc;

/// The tag around the facts.
const TAG: &str = "git";
/// The time that git may take, in seconds. Without an answer by then, the turn begins without facts.
const TIMEOUT_SECS: u64 = 2;
/// At most 20 changed files and 3 commits. Git reads the index without refreshing it on disk. `git log` fails in a
/// repository without commits, whose branch and files are facts all the same.
const COMMAND: &str = "git --no-optional-locks status --short --branch . 2>/dev/null | head -21; \
                       git log -3 --format='%h %s' 2>/dev/null || true";

/// The facts about the repository around the directory of the turn, unless `messages` have them already. `None` for a directory that is not
/// trusted, because somebody else may have named its branches and commits. Raises the origin of the conversation.
pub(crate) fn git_facts(
    ctx: &Context,
    settings: &Settings,
    setup: &TurnSetup,
    messages: &[Message],
) -> Option<String> {
    // A model without `exec` could not read these facts by itself, so they are not sent.
    let has_exec = setup.toolbox.names().contains(&"exec");
    if setup.instructions.trusted.is_empty() || !has_exec {
        return None;
    }
    let text = ask_git(ctx, settings, &setup.policy)?;
    let facts = tagged_block(TAG, None, &text);
    let content = "the branch, the files and the commits of the repository";
    setup.shared.provenance.raise(Origin::Project, content);
    (!are_sent(messages, &facts)).then_some(facts)
}

/// True if the latest message with facts about a repository has the same ones. Notes about undone changes and the
/// comments of hooks may follow them.
fn are_sent(messages: &[Message], facts: &str) -> bool {
    let opening = format!("<{TAG}");
    let latest = messages.iter().rev().find_map(|message| match message {
        Message::User(user) if user.runtime_facts.contains(&opening) => Some(&user.runtime_facts),
        _ => None,
    });
    latest.is_some_and(|runtime_facts| runtime_facts.contains(facts))
}

/// The output of git, in the sandbox and without write access: a repository can name programs that git runs.
fn ask_git(ctx: &Context, settings: &Settings, policy: &Policy) -> Option<String> {
    let mut policy = policy.clone();
    let scope = &mut policy.file_scope;
    trust::repository_root(&scope.directory)?;
    scope.roots.iter_mut().for_each(|root| root.may_write = false);
    policy.sandbox = Sandbox::Auto;
    policy.net = Net::Default;
    let files = Arc::new(Files::new(policy.file_scope.clone()).ok()?);
    let exec = exec_tool(ctx, settings, &policy, &files);
    let arguments = json!({ "command": COMMAND, "timeout": TIMEOUT_SECS });
    let output = run_alone(&exec, &arguments).ok()?;
    let text = secret::redact_all(&plain_text(&output.parts)).into_owned();
    (!output.command_failed && text.starts_with("## ")).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::are_sent;
    use nanobot_base::message::{Message, UserMessage};

    #[test]
    fn facts_are_sent_once_until_they_change() {
        let check = |earlier: &[&str], expect: bool| {
            let to_message = |runtime_facts: &&str| {
                Message::User(UserMessage {
                    runtime_facts: (*runtime_facts).to_owned(),
                    ..UserMessage::default()
                })
            };
            let messages: Vec<Message> = earlier.iter().map(to_message).collect();
            assert_eq!(are_sent(&messages, "<git>\n## main\n</git>"), expect, "{earlier:?}");
        };
        check(&[], false);
        check(&["[now]"], false);
        check(&["[now]\n\n<git>\n## main\n</git>"], true);
        check(&["[now]\n\n<git>\n## main\n</git>\n\nA hook's comment.", "[now]"], true);
        check(&["<git>\n## main\n</git>", "<git>\n## other\n</git>\n\nA comment."], false);
    }
}
