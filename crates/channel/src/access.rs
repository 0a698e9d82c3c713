//! The decision about a message by its sender and chat: answer it, offer a pairing, refuse it, or ignore it. No I/O.

use super::{Chat, InboundMessage};
use std::collections::BTreeSet;

/// The rules of a channel.
#[derive(Clone, Debug, Default)]
pub struct AccessRules {
    /// Ids, user names where the service has them, or `*`.
    pub allow_from: Vec<String>,
    /// Ids that a pairing has approved.
    pub approved: BTreeSet<String>,
    /// Offer a pairing to unknown senders of direct messages.
    pub pairs: bool,
    /// Match user names besides ids.
    pub matches_names: bool,
    pub group_policy: GroupPolicy,
    /// Chats that the group policy `allowlist` answers in.
    pub group_allow_from: Vec<String>,
    pub direct: DirectRule,
}

/// The senders of direct messages that are answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DirectRule {
    /// The senders of [`AccessRules::allow_from`].
    #[default]
    AllowFrom,
    /// The senders of this list instead.
    Listed(Vec<String>),
    /// No sender.
    Disabled,
}

/// The messages of allowed senders in groups that are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupPolicy {
    /// Messages that mention us or reply to us.
    #[default]
    Mention,
    /// All messages.
    Open,
    /// All messages in the listed groups.
    Allowlist,
}

impl GroupPolicy {
    /// Converts the value of a `groupPolicy` key.
    pub fn parse(text: &str) -> Self {
        match text {
            "open" => Self::Open,
            "allowlist" => Self::Allowlist,
            _ => Self::Mention,
        }
    }
}

/// The decision about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessDecision {
    Answer,
    /// Send a pairing code to the sender.
    Pair,
    /// Do not answer it, and list the sender, who is not allowed.
    Refuse,
    /// Do not answer it: it does not address us.
    Ignore,
}

impl AccessRules {
    /// True if any sender may be answered or paired.
    pub fn admits_any_sender(&self) -> bool {
        let is_direct_open = matches!(&self.direct, DirectRule::Listed(list) if !list.is_empty());
        !self.allow_from.is_empty() || !self.approved.is_empty() || self.pairs || is_direct_open
    }

    /// True if more than one person may be answered.
    pub fn admits_several_senders(&self) -> bool {
        let is_open = self.allow_from.iter().any(|entry| entry.trim() == "*");
        is_open || self.allow_from.len() + self.approved.len() > 1
    }

    /// True if this id is listed or paired.
    pub fn allows(&self, id: &str) -> bool {
        self.is_allowed(&self.allow_from, id, None)
    }

    /// The ids in the list for direct messages, and the paired ones.
    pub(crate) fn direct_ids(&self) -> impl Iterator<Item = &str> {
        let list = match &self.direct {
            DirectRule::AllowFrom => self.allow_from.as_slice(),
            DirectRule::Listed(list) => list.as_slice(),
            DirectRule::Disabled => &[],
        };
        let ids = list.iter().map(|entry| entry.trim());
        ids.chain(self.approved.iter().map(String::as_str))
    }

    /// Decides about a message.
    pub fn decide(&self, message: &InboundMessage) -> AccessDecision {
        let InboundMessage { chat, from, .. } = message;
        let list = match &self.direct {
            DirectRule::Disabled if chat.is_direct => return AccessDecision::Ignore,
            DirectRule::Listed(list) if chat.is_direct => list,
            _ => &self.allow_from,
        };
        // Bots answer each other without end.
        if from.is_bot && !self.has_id(list, &from.id) {
            return AccessDecision::Ignore;
        }
        if !self.addresses_us(chat, message.mentions_us) {
            return AccessDecision::Ignore;
        }
        if from.is_unverified {
            return AccessDecision::Refuse;
        }
        if self.is_allowed(list, &from.id, from.name.as_deref()) {
            AccessDecision::Answer
        } else if chat.is_direct && self.pairs && list.is_empty() {
            AccessDecision::Pair
        } else {
            AccessDecision::Refuse
        }
    }

    /// True if `list` has the sender or `*`, or if a pairing has approved the sender.
    fn is_allowed(&self, list: &[String], id: &str, name: Option<&str>) -> bool {
        self.has_id(list, id)
            || list.iter().any(|entry| entry == "*")
            || self.approved.contains(id)
            || (self.matches_names && name.is_some_and(|name| has_name(list, name)))
    }

    fn addresses_us(&self, chat: &Chat, mentions_us: bool) -> bool {
        chat.is_direct
            || match self.group_policy {
                GroupPolicy::Open => true,
                GroupPolicy::Mention => mentions_us,
                GroupPolicy::Allowlist => self.group_allow_from.contains(&chat.id),
            }
    }

    /// True if a list has this id, or a pairing has approved it: a person whom the owner has named.
    pub fn names_person(&self, id: &str) -> bool {
        let direct = match &self.direct {
            DirectRule::Listed(list) => list.as_slice(),
            DirectRule::AllowFrom | DirectRule::Disabled => &[],
        };
        self.lists_id(id) || self.has_id(direct, id) || self.approved.contains(id)
    }

    /// True if an entry is this id.
    pub fn lists_id(&self, id: &str) -> bool {
        self.has_id(&self.allow_from, id)
    }

    /// True if an entry of `list` is this id, or `ID|NAME` as the Python program writes it.
    fn has_id(&self, list: &[String], id: &str) -> bool {
        !id.is_empty()
            && list.iter().map(|entry| entry.trim()).any(|entry| {
                let entry_id =
                    if self.matches_names { entry.split('|').next() } else { Some(entry) };
                entry_id == Some(id)
            })
    }
}

/// True if an entry is this user name. An entry that is a number is an id, and no name matches it.
fn has_name(list: &[String], name: &str) -> bool {
    let mut names =
        list.iter().map(|entry| entry.trim().trim_start_matches('@')).filter(|entry| !is_id(entry));
    !is_id(name) && names.any(|entry| entry.eq_ignore_ascii_case(name))
}

/// True if `text` is an id, or begins with one.
fn is_id(text: &str) -> bool {
    let first = text.split('|').next().unwrap_or_default();
    let digits = first.strip_prefix('-').unwrap_or(first);
    digits.is_empty() || digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::{AccessDecision, AccessRules, DirectRule, GroupPolicy};
    use crate::{Chat, InboundMessage, Sender};

    fn rules(allow_from: &[&str]) -> AccessRules {
        AccessRules {
            allow_from: allow_from.iter().map(|entry| (*entry).to_owned()).collect(),
            pairs: true,
            matches_names: true,
            ..AccessRules::default()
        }
    }

    fn message(id: &str, name: &str, is_direct: bool) -> InboundMessage {
        InboundMessage {
            chat: Chat { id: "-5".into(), thread: None, is_direct },
            from: Sender {
                id: id.into(),
                name: Some(name.into()),
                is_bot: false,
                ..Sender::default()
            },
            ..InboundMessage::default()
        }
    }

    #[test]
    fn senders_are_allowed_by_whole_ids() {
        let check = |allow: &[&str], id: &str, name: &str, expect: AccessDecision| {
            let decision = rules(allow).decide(&message(id, name, true));
            assert_eq!(decision, expect, "{allow:?} {id} {name}");
        };
        check(&["7"], "7", "ann", AccessDecision::Answer);
        check(&["7|ann"], "7", "eve", AccessDecision::Answer);
        check(&["*"], "7", "ann", AccessDecision::Answer);
        check(&["@ann"], "7", "Ann", AccessDecision::Answer);
        check(&["7"], "77", "ann", AccessDecision::Refuse);
        // A user name that looks like an entry for an id.
        check(&["7"], "8", "7", AccessDecision::Refuse);
        check(&["7|ann"], "8", "7|ann", AccessDecision::Refuse);
        check(&["7|ann"], "8", "ann", AccessDecision::Refuse);
        check(&["*x"], "8", "", AccessDecision::Refuse);
        check(&[""], "", "", AccessDecision::Refuse);
        check(&[], "7", "ann", AccessDecision::Pair);
    }

    #[test]
    fn groups_need_a_mention_unless_the_policy_says_otherwise() {
        let check = |policy, mentions_us, groups: &[&str], id: &str, expect| {
            let rules = AccessRules {
                group_policy: policy,
                group_allow_from: groups.iter().map(|id| (*id).to_owned()).collect(),
                ..rules(&["7"])
            };
            let message = InboundMessage { mentions_us, ..message(id, "ann", false) };
            assert_eq!(rules.decide(&message), expect, "{policy:?} {id}");
        };
        check(GroupPolicy::Mention, false, &[], "7", AccessDecision::Ignore);
        check(GroupPolicy::Mention, true, &[], "7", AccessDecision::Answer);
        check(GroupPolicy::Mention, true, &[], "8", AccessDecision::Refuse);
        check(GroupPolicy::Open, false, &[], "7", AccessDecision::Answer);
        check(GroupPolicy::Open, false, &[], "8", AccessDecision::Refuse);
        check(GroupPolicy::Allowlist, true, &[], "7", AccessDecision::Ignore);
        check(GroupPolicy::Allowlist, false, &["-5"], "7", AccessDecision::Answer);
    }

    #[test]
    fn no_pairing_in_groups_and_none_for_bots() {
        let mut unknown = message("8", "eve", false);
        unknown.mentions_us = true;
        assert_eq!(rules(&[]).decide(&unknown), AccessDecision::Refuse);
        let mut bot = message("8", "eve", true);
        bot.from.is_bot = true;
        assert_eq!(rules(&["*"]).decide(&bot), AccessDecision::Ignore);
        assert_eq!(rules(&["8"]).decide(&bot), AccessDecision::Answer);
        let closed = AccessRules { pairs: false, ..rules(&[]) };
        assert_eq!(closed.decide(&message("8", "eve", true)), AccessDecision::Refuse);
        assert!(!closed.admits_any_sender());
    }
    #[test]
    fn direct_messages_have_their_own_list() {
        let check = |direct: DirectRule, id: &str, is_direct: bool, expect| {
            let rules = AccessRules { direct, ..rules(&["7"]) };
            let mut message = message(id, "ann", is_direct);
            message.mentions_us = true;
            assert_eq!(rules.decide(&message), expect, "{id}");
        };
        let listed = || DirectRule::Listed(vec!["8".into()]);
        check(listed(), "8", true, AccessDecision::Answer);
        check(listed(), "7", true, AccessDecision::Refuse);
        check(listed(), "7", false, AccessDecision::Answer);
        check(listed(), "8", false, AccessDecision::Refuse);
        let no_sender = DirectRule::Listed(Vec::new());
        check(no_sender, "7", true, AccessDecision::Pair);
        check(DirectRule::Disabled, "7", true, AccessDecision::Ignore);
        check(DirectRule::Disabled, "7", false, AccessDecision::Answer);
    }
}
