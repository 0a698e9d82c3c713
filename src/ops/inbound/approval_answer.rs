//! Answers to questions about calls in a chat: a reply to the question, its code, or `yes` and `no` alone where it is certain what they
//! are about. In doubt, a message is no answer, and goes to the model, which can approve nothing.

use crate::ops::channel::open_channel::{ChannelFiles, OpenChannel};
use crate::ops::channel::persona::Persona;
use crate::ops::context::Context;
use crate::ops::inbound::channel_run::LockedChannel;
use crate::ops::inbound::code_span;
use anyhow::Result;
use nanobot_base::message::Origin;
use nanobot_channel::approvals::{
    ApprovalFile, ApprovalQuestion, LastingApproval, QUESTION_KEY_PREFIX,
};
use nanobot_channel::inbox::{InboundEntry, InboxState, OutboundEntry, OutboundMessage};
use nanobot_channel::settlement::Settlement;
use nanobot_channel::{Chat, InboundMessage};
use std::borrow::Cow;
use std::path::PathBuf;

/// Characters of a question that is shown at once. A longer one takes its code, which `/show` shows with all of it.
const MAX_SHOWN_CHARS: usize = 1500;

/// The words of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AnswerWords {
    verdict: Verdict,
    /// In upper case.
    code: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Yes,
    No,
    Always,
}

/// The effect of a message that may answer a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QuestionAnswer {
    /// It answers none.
    None,
    /// It is answered with this text.
    Reply(String),
    /// It approves the call of the question with this id, for good if `lasting`.
    Approval { id: String, lasting: bool },
}

impl QuestionAnswer {
    /// A press answers a question, or none; it never goes to the model.
    pub(crate) fn or_gone(self, message: &InboundMessage) -> Self {
        if self == Self::None && message.press.is_some() {
            Self::Reply("The question is no longer there. Nothing was done.".to_owned())
        } else {
            self
        }
    }
}

impl AnswerWords {
    /// Parses a text that consists of an answer: `yes`, `no` or `always`, and a code after it. In a mail, the first line counts, since a
    /// signature may follow.
    pub(crate) fn parse(text: &str, is_mail: bool) -> Option<Self> {
        let text = text.trim();
        let text = if is_mail { text.lines().next().unwrap_or_default() } else { text };
        // In a group, the bot is named.
        let is_word = |word: &&str| !word.starts_with('@') && !word.starts_with("<@");
        let mut answer_words = text.split_whitespace().filter(is_word);
        let verdict =
            match answer_words.next()?.trim_end_matches(['.', '!', ',']).to_lowercase().as_str() {
                "yes" => Verdict::Yes,
                "no" => Verdict::No,
                "always" => Verdict::Always,
                _ => return None,
            };
        let code = answer_words.next().map(|word| word.trim_end_matches('.').to_uppercase());
        let is_code = |code: &String| {
            let letters = code.bytes().filter(|byte| *byte != b'-');
            // `yes tomorrow` has no code.
            let is_marked = code.bytes().any(|byte| byte == b'-' || byte.is_ascii_digit());
            is_marked
                && letters.clone().count() == 8
                && letters.clone().all(|byte| byte.is_ascii_alphanumeric())
        };
        let is_whole = answer_words.next().is_none() && code.as_ref().is_none_or(is_code);
        is_whole.then_some(Self { verdict, code })
    }
}

/// True if no turn may answer the message together with others, because it may be an answer.
pub(crate) fn stands_alone(text: &str) -> bool {
    let is_mail = false;
    AnswerWords::parse(text, is_mail).is_some()
}

/// The file with the questions of a channel.
fn path_of(files: &ChannelFiles) -> PathBuf {
    files.directory.join(ApprovalFile::FILE_NAME)
}

/// The questions of a channel, as of now.
fn load(files: &ChannelFiles) -> Result<ApprovalFile> {
    ApprovalFile::load(&path_of(files), files.now())
}

/// Changes the questions of a channel.
fn change<T>(files: &ChannelFiles, change: impl FnOnce(&mut ApprovalFile) -> T) -> Result<T> {
    ApprovalFile::change(&path_of(files), files.now(), change)
}

/// The file for a turn that answers `message`; `None` if its calls cannot be approved: approvals are off, the config lists neither
/// an approver who is in the chat nor the sender by id, or the channel does not say what the sender has typed, as the bridge of WhatsApp.
/// A sender that is bound to a workspace must be an approver: otherwise it could approve a call that reads another workspace.
///
/// # Errors
/// The pairings cannot be read.
pub(crate) fn file_for_turn(
    persona: &Persona,
    files: &ChannelFiles,
    message: &InboundMessage,
) -> Result<Option<PathBuf>> {
    // A mail takes the code, and what its sender has typed is never certain.
    let is_own = files.kind.is_mail || message.text.is_typed();
    if !files.config.flag("approvals") || !is_person(message) || !is_own {
        return Ok(None);
    }
    let approvers = files.listed_senders("approvers");
    let has_approver = if approvers.is_empty() {
        !persona.has_own_workspace()
            && files.access_rules(&persona.ctx)?.names_person(&message.from.id)
    } else {
        // Only the sender sees the questions of a direct chat.
        !message.chat.is_direct || approvers.contains(&message.from.id)
    };
    Ok(has_approver.then(|| path_of(files)))
}

/// True if a reply of this sender to a message of a job permits what the job's owner could do: in a group, that of an approver, or without
/// those of a person whom the owner has named.
///
/// # Errors
/// The pairings cannot be read.
pub(crate) fn may_change_jobs(
    ctx: &Context,
    files: &ChannelFiles,
    message: &InboundMessage,
) -> Result<bool> {
    if message.chat.is_direct {
        return Ok(true);
    }
    let (id, approvers) = (&message.from.id, files.listed_senders("approvers"));
    let is_named = if approvers.is_empty() {
        files.access_rules(ctx)?.names_person(id)
    } else {
        approvers.contains(id)
    };
    Ok(is_named && is_person(message))
}

/// True if the message is from one person, as far as the service says. The bridge of WhatsApp names the group as the sender.
fn is_person(message: &InboundMessage) -> bool {
    let InboundMessage { from, chat, .. } = message;
    !from.is_bot && !from.is_unverified && (chat.is_direct || from.id != chat.id)
}

/// True if the sender of `message` may answer the question.
fn may_answer(files: &ChannelFiles, question: &ApprovalQuestion, message: &InboundMessage) -> bool {
    let approvers = files.listed_senders("approvers");
    let is_approver = if approvers.is_empty() {
        question.sender.as_ref() == Some(&message.from.id)
    } else {
        approvers.contains(&message.from.id)
    };
    let is_verified = !files.kind.is_mail || message.from.passed_dmarc;
    // A question of a direct chat is for its sender. Another person may have been invited to it since.
    let is_for_person =
        !message.chat.is_direct || question.sender.as_ref() == Some(&message.from.id);
    is_person(message) && is_approver && is_verified && is_for_person
}

/// The message, and if it is a press, that in the chat of its question, as this was put there; `None` for a press below something else.
pub(crate) fn place_press<'m>(
    inbox_state: &InboxState,
    message: &'m InboundMessage,
) -> Option<Cow<'m, InboundMessage>> {
    let Some(press) = &message.press else {
        return Some(Cow::Borrowed(message));
    };
    let replied_id = replied_id(message)?;
    let is_meant = |entry: &&OutboundEntry| {
        let chat = &entry.message.destination.chat;
        let question = entry.message.key.strip_prefix(QUESTION_KEY_PREFIX);
        let is_question = match &press.question {
            Some(named) => question == Some(named),
            None => question.is_some() && entry.sent.values().any(|id| id == replied_id),
        };
        // A service may state the thread alone.
        is_question
            && (chat.id == message.chat.id || chat.thread.as_ref() == Some(&message.chat.id))
    };
    let entry = inbox_state.outbound.iter().rev().find(is_meant)?;
    let chat = entry.message.destination.chat.clone();
    Some(Cow::Owned(InboundMessage { chat, ..message.clone() }))
}

/// Recognizes an answer. Nothing is approved yet; what is declined is closed.
///
/// # Errors
/// The questions cannot be read or written.
pub(crate) fn recognize(
    channel: &LockedChannel,
    persona: &Persona,
    entry: &InboundEntry,
) -> Result<QuestionAnswer> {
    let (files, message) = (&channel.open.files, &entry.message);
    let is_mail = files.kind.is_mail;
    let Some(answer_words) = AnswerWords::parse(&message.text, is_mail) else {
        return Ok(QuestionAnswer::None);
    };
    if file_for_turn(persona, files, message)?.is_none() || !message.files.is_empty() {
        return Ok(QuestionAnswer::None);
    }
    let file = load(files)?;
    let is_approved_by_it =
        |question: &&ApprovalQuestion| question.approved_by() == Some(message.id.as_str());
    if let Some(question) = file.questions_of(&entry.session).find(is_approved_by_it) {
        // An earlier poll was killed before the message was answered.
        let id = question.id.clone();
        return Ok(QuestionAnswer::Approval { id, lasting: false });
    }
    if !entry.turns.is_empty() {
        // It was no answer when its turn began.
        return Ok(QuestionAnswer::None);
    }
    let reply = |text: &str| Ok(QuestionAnswer::Reply(text.to_owned()));
    let target = find_target(&file, channel.inbox.lock().state(), entry, &answer_words, is_mail);
    let question = match target {
        AnswerTarget::None => return Ok(QuestionAnswer::None),
        AnswerTarget::Text(text) => return reply(&text),
        AnswerTarget::Question(question) => question,
        AnswerTarget::UnknownCode => {
            // From others, and without a question, the word that looks like a code is one of a conversation, such as a date.
            let mut open_questions = file.open_questions(&entry.session);
            if !open_questions.any(|question| may_answer(files, question, message)) {
                return Ok(QuestionAnswer::None);
            }
            let has_closed = change(files, |file| file.record_wrong_code(&entry.session))?;
            return reply(if has_closed {
                "That was one wrong code too many: the questions here are closed. Nothing was done."
            } else {
                "There is no open question with this code here. Nothing was done."
            });
        }
    };
    let number = question.number;
    if !may_answer(files, question, message) {
        return reply(&if is_mail {
            format!("You cannot answer question {number} in this way. Nothing was done.")
        } else {
            format!("Question {number} is for somebody else to answer. Nothing was done.")
        });
    }
    if !question.is_open() {
        // An expired one stays closed if the clock is set back.
        change(files, |_| ())?;
        return reply(&format!("Question {number} is no longer open. Nothing was done."));
    }
    let id = question.id.clone();
    if answer_words.verdict == Verdict::No {
        change(files, |file| file.close(|question| question.id == id))?;
        show_outcome(channel, question, message, "no");
        return reply(&format!("Question {number} is answered with no. Nothing was done."));
    }
    Ok(QuestionAnswer::Approval { id, lasting: answer_words.verdict == Verdict::Always })
}

/// The question that a message is about.
enum AnswerTarget<'f> {
    None,
    /// It is answered with this text.
    Text(String),
    /// No question of the conversation has its code.
    UnknownCode,
    Question(&'f ApprovalQuestion),
}

fn find_target<'f>(
    file: &'f ApprovalFile,
    inbox_state: &InboxState,
    entry: &InboundEntry,
    answer_words: &AnswerWords,
    is_mail: bool,
) -> AnswerTarget<'f> {
    if let Some(code) = &answer_words.code {
        let question = file.question_by_code(&entry.session, code);
        return question.map_or(AnswerTarget::UnknownCode, AnswerTarget::Question);
    }
    // A mail can be forged by its headers, and has no message that is certainly the last.
    if is_mail {
        return AnswerTarget::None;
    }
    let target = if entry.message.quotes.is_empty() {
        find_last(file, inbox_state, entry, answer_words.verdict)
    } else {
        find_replied(file, inbox_state, entry)
    };
    match target {
        AnswerTarget::Question(question) if is_long(question) => AnswerTarget::Text(format!(
            "Question {number} is too long to be shown at once. /show {number} shows all of it, with the code that answers it. \
             Nothing was done.",
            number = question.number
        )),
        target => target,
    }
}

/// The question that the message replies to, by the service's id of the question's message.
fn find_replied<'f>(
    file: &'f ApprovalFile,
    inbox_state: &InboxState,
    entry: &InboundEntry,
) -> AnswerTarget<'f> {
    let Some(replied_id) = replied_id(&entry.message) else {
        return AnswerTarget::None;
    };
    let named = entry.message.press.as_ref().and_then(|press| press.question.as_ref());
    let mut questions = file.questions_of(&entry.session);
    let question = questions.find(|question| {
        let is_named = named.is_none_or(|named| *named == question.id);
        is_named
            && inbox_state.outbound(&question.key()).is_some_and(|outbound| {
                outbound.message.destination.chat.id == entry.message.chat.id
                    && outbound.sent.values().any(|id| id == replied_id)
            })
    });
    question.map_or(AnswerTarget::None, AnswerTarget::Question)
}

/// The service's id of the only message that `message` replies to.
fn replied_id(message: &InboundMessage) -> Option<&String> {
    match message.quotes.as_slice() {
        [quote] => quote.replied.as_ref()?.id.as_ref(),
        _ => None,
    }
}

/// The question that is our last message in a direct chat, if it is the only one that is open there, and the message is the first that
/// came after it.
fn find_last<'f>(
    file: &'f ApprovalFile,
    inbox_state: &InboxState,
    entry: &InboundEntry,
    verdict: Verdict,
) -> AnswerTarget<'f> {
    let InboundEntry { message, session, received_at, .. } = entry;
    if !message.chat.is_direct {
        return AnswerTarget::None;
    }
    let mut open_questions = file.open_questions(session);
    let is_in_chat = |chat: &Chat| chat.id == message.chat.id;
    let sent = || inbox_state.outbound.iter().filter(|it| is_in_chat(&it.message.destination.chat));
    let last = sent().next_back();
    let Some(question) =
        open_questions.find(|question| last.is_some_and(|last| last.message.key == question.key()))
    else {
        return AnswerTarget::None;
    };
    let Some(delivered_at) = question.delivered_at else {
        return AnswerTarget::None;
    };
    // A message that is still being sent, or that another turn has begun, may stand below the question.
    let is_settled = sent().all(|it| it.settlement.is_some())
        && last.is_some_and(|last| last.settlement == Some(Settlement::Delivered));
    let received = inbox_state.inbound.iter().map(|it| &it.message);
    let mut received = received.filter(|it| is_in_chat(&it.chat)).map(|it| &it.id);
    let is_first =
        received.any(|id| *id == question.message) && received.next() == Some(&message.id);
    // The service's time has seconds; in the same one, the message may have come first.
    let is_later = *received_at >= delivered_at && message.sent_at > delivered_at.div_euclid(1000);
    if !is_settled || !is_first || !is_later {
        return AnswerTarget::None;
    }
    match file.open_questions(session).count() {
        1 if verdict == Verdict::Always => AnswerTarget::Text(
            "Send `always` as a reply to the question, or with its code. Nothing was done."
                .to_owned(),
        ),
        1 => AnswerTarget::Question(question),
        count => AnswerTarget::Text(format!(
            "{count} questions are open. Reply to one of them, or send `yes` with its code. Nothing was done."
        )),
    }
}

/// Approves the call of the question by the message of `entry`. Returns the reason why it cannot be approved, for the sender.
///
/// # Errors
/// The questions cannot be read or written.
pub(crate) fn approve(
    channel: &LockedChannel,
    entry: &InboundEntry,
    id: &str,
    lasting: bool,
) -> Result<Option<String>> {
    let approve = |file: &mut ApprovalFile| {
        file.approve(id, &entry.message.id, lasting)?;
        Ok(file.questions_of(&entry.session).find(|question| question.id == id).cloned())
    };
    match change(&channel.open.files, approve)? {
        Err(reason) => Ok(Some(reason)),
        Ok(question) => {
            let word = if lasting { "always" } else { "yes" };
            if let Some(question) = question {
                show_outcome(channel, &question, &entry.message, word);
            }
            Ok(None)
        }
    }
}

/// Shows in the message of a question how and by whom it was answered, instead of its buttons. Best effort, since an answer follows:
/// some services do not change messages.
fn show_outcome(
    channel: &LockedChannel,
    question: &ApprovalQuestion,
    message: &InboundMessage,
    word: &str,
) {
    let open = &channel.open;
    let Some(entry) = channel.inbox.lock().state().outbound(&question.key()).cloned() else {
        return;
    };
    let destination = &entry.message.destination;
    let chat = &destination.chat;
    if is_long(question) || channel.is_closed_for(chat) {
        return;
    }
    let sender = &message.from;
    let by = if chat.is_direct {
        String::new()
    } else {
        format!(" by {}", person_span(&sender.id, sender.name.as_deref()))
    };
    let (number, details) = (question.number, &question.draft.details);
    let parts =
        open.files.render(&format!("Question {number}: {details}\n\nAnswered with `{word}`{by}."));
    if let (Some(part), Some(id)) = (parts.last(), entry.sent.get(&(parts.len() - 1)))
        && entry.sent.len() == parts.len()
        && let Err(error) = open.service.edit(destination, id, part)
    {
        log::debug!(target: "channel", "{}: a question was not changed: {error}", open.name());
    }
}

/// The questions of a conversation that were not put yet, as messages to the chat of `entry`. `origin` is that of the conversation.
///
/// # Errors
/// The questions cannot be read.
pub(crate) fn unsent_questions(
    channel: &LockedChannel,
    entry: &InboundEntry,
    origin: Option<Origin>,
) -> Result<Vec<OutboundMessage>> {
    let open = &channel.open;
    if !open.files.config.flag("approvals") {
        return Ok(Vec::new());
    }
    let file = load(&open.files)?;
    let inbox = channel.inbox.lock();
    let is_unsent = |question: &&ApprovalQuestion| {
        question.delivered_at.is_none() && inbox.state().outbound(&question.key()).is_none()
    };
    let questions = file.open_questions(&entry.session).filter(is_unsent);
    let to_message = |question: &ApprovalQuestion| {
        let text = question_text(open, question, &entry.message);
        let key = question.key();
        let mut message = open.render_message(&entry.message, &entry.session, &key, &text);
        // A question that is cut has no buttons: it is answered by its code.
        if let Some(part) = message.parts.last_mut().filter(|_| !is_long(question)) {
            part.question = Some(question.id.clone());
        }
        OutboundMessage { origin, ..message }
    };
    Ok(questions.map(to_message).collect())
}

/// The codes of the open questions of a conversation.
///
/// # Errors
/// The questions cannot be read.
pub(crate) fn open_codes(channel: &LockedChannel, session: &str) -> Result<Vec<String>> {
    let files = &channel.open.files;
    if !files.config.flag("approvals") {
        return Ok(Vec::new());
    }
    let file = load(files)?;
    Ok(file.open_questions(session).map(|question| question.code.clone()).collect())
}

/// Records that the service has taken the message `key`, if it is a question.
///
/// # Errors
/// The questions cannot be read or written.
pub(crate) fn record_delivery(files: &ChannelFiles, key: &str) -> Result<()> {
    match key.strip_prefix(QUESTION_KEY_PREFIX) {
        Some(id) => change(files, |file| file.record_delivery(id, files.now())),
        None => Ok(()),
    }
}

/// True if the message `key` is a question that must wait, because an earlier message to its chat is not sent.
pub(crate) fn waits_for_others(inbox_state: &InboxState, key: &str) -> bool {
    let Some(question) = inbox_state.outbound(key).filter(|_| key.starts_with(QUESTION_KEY_PREFIX))
    else {
        return false;
    };
    let chat = &question.message.destination.chat;
    let earlier = inbox_state.outbound.iter().take_while(|it| it.message.key != key);
    earlier.filter(|it| it.message.destination.chat.id == chat.id).any(|it| it.settlement.is_none())
}

/// Closes the open questions of a conversation. With `only_unsent`, those that were not put yet.
///
/// # Errors
/// The questions cannot be read or written.
pub(crate) fn close_questions(
    channel: &LockedChannel,
    session: &str,
    only_unsent: bool,
) -> Result<()> {
    let files = &channel.open.files;
    if load(files)?.open_questions(session).next().is_none() {
        return Ok(());
    }
    let inbox = channel.inbox.lock();
    let is_unsent = |question: &ApprovalQuestion| inbox.state().outbound(&question.key()).is_none();
    change(files, |file| {
        file.close(|question| question.session == session && (!only_unsent || is_unsent(question)));
    })
}

fn is_long(question: &ApprovalQuestion) -> bool {
    question.draft.details.chars().count() > MAX_SHOWN_CHARS
}

/// The message that puts a question in the chat of `message`.
fn question_text(
    open: &OpenChannel,
    question: &ApprovalQuestion,
    message: &InboundMessage,
) -> String {
    let ApprovalQuestion { number, code, draft, .. } = question;
    if is_long(question) {
        let headline = draft.details.lines().next().unwrap_or_default();
        let count = draft.details.lines().count();
        return format!(
            "Question {number}: {headline}\n\nThe call is too long to be shown here ({count} lines). /show {number} shows all of it, \
             with the code that answers it. It is open for an hour."
        );
    }
    let head = format!("Question {number}: {}", draft.details);
    let answers = if open.files.kind.is_mail {
        format!("Answer `yes {code}` or `no {code}` in the first line of a mail, within an hour.")
    } else if message.chat.is_direct {
        format!(
            "Answer `yes` or `no` within an hour, or `yes {code}` if other messages came in between."
        )
    } else {
        format!(
            "It is for a message of {}. Send `yes {code}` or `no {code}` within an hour, or reply to this message with `yes` or `no`.",
            sender_span(question, message)
        )
    };
    format!("{head}\n\n{answers} {}", always_text(question, message))
}

/// The sender whose message led to the call, with its name if `message` is of the same one.
fn sender_span(question: &ApprovalQuestion, message: &InboundMessage) -> String {
    let Some(id) = &question.sender else {
        return code_span("a program");
    };
    person_span(id, message.from.name.as_deref().filter(|_| *id == message.from.id))
}

/// A person by name and id, because a name alone is what its bearer chooses.
fn person_span(id: &str, name: Option<&str>) -> String {
    match name.filter(|name| *name != id) {
        Some(name) => format!("{} ({})", code_span(name), code_span(id)),
        None => code_span(id),
    }
}

/// The sentence about a lasting approval, which names its sender where there are several.
fn always_text(question: &ApprovalQuestion, message: &InboundMessage) -> String {
    let sender_part = if message.chat.is_direct {
        String::new()
    } else {
        format!(" for messages of {}", sender_span(question, message))
    };
    format!(
        "With `always {}`, what needs the same permission is no longer asked about in this chat{sender_part}: {}.",
        question.code,
        code_span(&question.draft.permission)
    )
}

/// The answer to `/show` with the argument `number`.
///
/// # Errors
/// The questions cannot be read.
pub(crate) fn show(channel: &LockedChannel, entry: &InboundEntry, number: &str) -> Result<String> {
    let files = &channel.open.files;
    let file = load(files)?;
    let mut open_questions = file.open_questions(&entry.session);
    let Some(question) = open_questions.find(|it| number.parse() == Ok(it.number)) else {
        return Ok("There is no open question with this number here.".to_owned());
    };
    if !may_answer(files, question, &entry.message) {
        return Ok("Only who may answer this question can see it.".to_owned());
    }
    let (number, code, details) = (question.number, &question.code, &question.draft.details);
    Ok(format!(
        "Question {number}: {details}\n\nAnswer `yes {code}` or `no {code}`. {}",
        always_text(question, &entry.message)
    ))
}

/// The answer to `/grants` with these arguments in the message of `entry`.
///
/// # Errors
/// The approvals cannot be read or written.
pub(crate) fn grants(
    channel: &LockedChannel,
    entry: &InboundEntry,
    arguments: &str,
) -> Result<String> {
    let (files, session) = (&channel.open.files, entry.session.as_str());
    let line = |approval: &LastingApproval| code_span(&approval.permission);
    if let Some(number) = arguments.strip_prefix("remove") {
        let number = number.trim().parse().unwrap_or_default();
        let removed = change(files, |file| file.remove_lasting(session, number))?;
        return Ok(match removed {
            Some(approval) => format!("Taken back: {}", line(&approval)),
            None => "There is no approval with this number. /grants lists them.".to_owned(),
        });
    }
    let file = load(files)?;
    let InboundMessage { chat, from, .. } = &entry.message;
    let lines: Vec<String> = (1..)
        .zip(file.lasting_of(session))
        .map(|(number, approval)| {
            let is_own = chat.is_direct && approval.sender == from.id;
            let sender_part =
                if is_own { String::new() } else { format!(" (for {})", approval.sender) };
            format!("{number}. {}{sender_part}", line(approval))
        })
        .collect();
    if lines.is_empty() {
        return Ok("Nothing is approved for good in this chat.".to_owned());
    }
    Ok(format!(
        "Approved for good in this chat:\n{}\n/grants remove 1 takes one back.",
        lines.join("\n")
    ))
}

#[cfg(test)]
mod tests {
    use super::AnswerWords;

    #[test]
    fn only_whole_answers_are_parsed() {
        let check = |text: &str, is_mail: bool, expect: &str| {
            let answer_words = AnswerWords::parse(text, is_mail);
            let answer_words =
                answer_words.map(|it| format!("{:?} {}", it.verdict, it.code.unwrap_or_default()));
            assert_eq!(answer_words.unwrap_or_default(), expect, "{text}");
        };
        check("yes", false, "Yes ");
        check(" Yes.\n", false, "Yes ");
        check("NO!", false, "No ");
        check("yes abcd-1234", false, "Yes ABCD-1234");
        check("@bot always ABCD1234.", false, "Always ABCD1234");
        check("<@U1> yes", false, "Yes ");
        check("yes ABCD-1234\n\n-- \nAnn", true, "Yes ABCD-1234");
        for text in [
            "",
            "yes please",
            "yes ABCD",
            "yes yes",
            "yess",
            "> yes",
            "oh yes",
            "yes ABCD-1234 now",
        ] {
            check(text, false, "");
        }
        check("> yes ABCD-1234\nhello", true, "");
        check("yes ABCD-1234\n\n-- \nAnn", false, "");
    }
}
