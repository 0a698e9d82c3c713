//! `approvals.json` of a channel or a named pipe: the calls that wait for a person's approval, those that were approved, and what was
//! approved for good. Each change is on disk before the step that follows it.
//!
//! A call is made once: [`ApprovalFile::begin`] is on disk before the call, its result before the turn that gets it. Whatever is not
//! exactly as it was when the person was asked ends the question without a call.

use super::pairing::random_code;
use crate::json_file;
use anyhow::Result;
use nanobot_base::message::Origin;
use nanobot_os::digest::keyed_digest;
use nanobot_os::durable_file;
use nanobot_os::secret::random_hex;
use nanobot_os::symlinks::PathResolver;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Time for which a question is open, and its call may begin, in milliseconds.
const QUESTION_LIFETIME_MILLIS: i64 = 3_600_000;
/// Time for which a question that was answered is kept, in milliseconds: a repeated answer is recognized for as long.
const KEPT_MILLIS: i64 = 7 * 24 * 3_600_000;
/// Maximum number of open questions of a conversation.
const MAX_OPEN_QUESTIONS: usize = 3;
/// Maximum size of a file that a call would change, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Maximum number of lasting approvals of a channel.
const MAX_LASTING_APPROVALS: usize = 200;
/// Number of wrong codes after which the questions of a conversation are closed.
const MAX_WRONG_CODES: u32 = 5;

/// The content of `approvals.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ApprovalFile {
    /// The number of the last question.
    last_number: u64,
    questions: Vec<ApprovalQuestion>,
    lasting: Vec<LastingApproval>,
    #[serde(flatten)]
    unknown_members: Map<String, Value>,
}

/// A call, and the permission that it lacks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoredCall {
    pub tool: String,
    pub arguments: Value,
    /// The flag that would grant the permission.
    pub flag: String,
}

/// The content of a file that a call would change, and the place where links lead to it, as a fingerprint that cannot be forged without
/// its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFingerprint {
    pub path: PathBuf,
    key: String,
    /// `None` in a question of an earlier build about a file that did not exist. It matches nothing, so the call is asked about anew.
    digest: Option<String>,
}

impl FileFingerprint {
    /// The fingerprint of the file at `path`.
    ///
    /// # Errors
    /// It is not a regular file, is too large, or cannot be read.
    pub fn compute(path: &Path) -> Result<Self> {
        let key = random_hex(8);
        let digest = Some(Self::digest(&key, path)?);
        Ok(Self { path: path.to_owned(), key, digest })
    }

    /// True if the file is as it was.
    pub fn is_current(&self) -> bool {
        Self::digest(&self.key, &self.path).is_ok_and(|digest| Some(digest) == self.digest)
    }

    fn digest(key: &str, path: &Path) -> Result<String> {
        let mut key_bytes = [0; 16];
        key_bytes.iter_mut().zip(key.bytes()).for_each(|(target, byte)| *target = byte);
        let content = durable_file::read_limited(path, MAX_FILE_BYTES)?;
        let target = PathResolver::default().resolve(path);
        let mut bytes = target.as_os_str().as_bytes().to_vec();
        // Where there is no file, links lead to a place too.
        if let Some(content) = content {
            bytes.push(0);
            bytes.extend(content);
        }
        Ok(keyed_digest(&key_bytes, &bytes))
    }
}

/// A call in the form of a question.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QuestionDraft {
    pub call: StoredCall,
    /// The call in Markdown, whole; its first line is the question.
    pub details: String,
    /// The permission that a lasting approval gives, in one line.
    pub permission: String,
    /// The files that the call would change.
    pub files: Vec<FileFingerprint>,
}

/// A question about a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalQuestion {
    /// Identifies it in the keys of messages.
    pub id: String,
    /// Its number in the channel, for people.
    pub number: u64,
    /// The code that answers it.
    pub code: String,
    /// The conversation that asks.
    pub session: String,
    /// The sender whose message the conversation answers; `None` for a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// The id of that message.
    pub message: String,
    #[serde(flatten)]
    pub draft: QuestionDraft,
    /// Milliseconds since 1970.
    pub asked_at: i64,
    /// The time at which the service had taken the question, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<i64>,
    /// The number of wrong codes that were sent while it was open.
    #[serde(default)]
    wrong_codes: u32,
    pub state: QuestionState,
}

/// The state of a question. `by` is the id of the message that answered it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub enum QuestionState {
    Open,
    /// The call may begin.
    Approved {
        by: String,
    },
    /// The call has begun. Whether it was made is not known.
    Begun {
        by: String,
    },
    /// The call has ended.
    Completed {
        by: String,
        result: ApprovedResult,
    },
    /// It was declined, or cannot be approved any more.
    Closed,
}

/// The result of a call that was approved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovedResult {
    pub text: String,
    /// The origin of the conversation with it, and its first content of that origin as a phrase.
    pub origin: Origin,
    pub content: String,
}

/// An approval of all calls of a tool that lack a permission, for one sender in one conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastingApproval {
    pub session: String,
    pub sender: String,
    pub tool: String,
    pub flag: String,
    /// The permission, for people.
    pub permission: String,
}

/// A call that a person has approved.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovedCall {
    pub call: StoredCall,
    pub start: CallStart,
}

/// The start of an approved call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallStart {
    /// It is to be made now.
    Begin,
    /// It was made by an earlier process.
    Completed(ApprovedResult),
    /// An earlier process was stopped while it was made.
    Unknown,
    /// It must not be made any more.
    Expired,
}

impl ApprovalQuestion {
    /// The key of the message that asks.
    pub fn key(&self) -> String {
        format!("{QUESTION_KEY_PREFIX}{}", self.id)
    }

    /// True if it can be answered.
    pub fn is_open(&self) -> bool {
        self.state == QuestionState::Open
    }

    /// The id of the message that has approved it.
    pub fn approved_by(&self) -> Option<&str> {
        match &self.state {
            QuestionState::Approved { by }
            | QuestionState::Begun { by }
            | QuestionState::Completed { by, .. } => Some(by),
            QuestionState::Open | QuestionState::Closed => None,
        }
    }

    /// A file that is not as it was when the question was asked.
    fn changed_file(&self) -> Option<&Path> {
        let mut files = self.draft.files.iter();
        files.find(|file| !file.is_current()).map(|file| file.path.as_path())
    }

    fn lasting_approval(&self) -> Option<LastingApproval> {
        Some(LastingApproval {
            session: self.session.clone(),
            sender: self.sender.clone()?,
            tool: self.draft.call.tool.clone(),
            flag: self.draft.call.flag.clone(),
            permission: self.draft.permission.clone(),
        })
    }
}

/// The start of the keys of messages that ask.
pub const QUESTION_KEY_PREFIX: &str = "ask.";

impl ApprovalFile {
    /// The name of the file in the directory of a channel or a pipe.
    pub const FILE_NAME: &'static str = "approvals.json";

    /// Reads the file as of `now`, in milliseconds since 1970; a missing one is empty.
    ///
    /// # Errors
    /// Status 78 if it is damaged: calls that were made could be made again.
    pub fn load(path: &Path, now: i64) -> Result<Self> {
        let mut file = Self::read(path)?;
        file.close_expired(now);
        Ok(file)
    }

    fn read(path: &Path) -> Result<Self> {
        json_file::load(path, "remove the file: its questions are closed then")
    }

    /// Reads the file as of `now`, changes and replaces it, while no other process changes it.
    ///
    /// # Errors
    /// As [`Self::load`], and status 74.
    pub fn change<T>(path: &Path, now: i64, change: impl FnOnce(&mut Self) -> T) -> Result<T> {
        json_file::change(path, "the approvals", Self::read, |file| {
            file.close_expired(now);
            change(file)
        })
    }

    /// Closes the questions without an answer and the approved ones whose call has not begun in time, and forgets what is old. Since
    /// that is written with the next change of the file, a clock that is set back after it opens none of them again.
    fn close_expired(&mut self, now: i64) {
        let age = |question: &ApprovalQuestion| now.saturating_sub(question.asked_at);
        self.questions.retain(|question| age(question).saturating_abs() < KEPT_MILLIS);
        for question in &mut self.questions {
            let is_expired = !(0..QUESTION_LIFETIME_MILLIS).contains(&age(question));
            let is_pending =
                matches!(question.state, QuestionState::Open | QuestionState::Approved { .. });
            if is_expired && is_pending {
                question.state = QuestionState::Closed;
            }
        }
    }

    /// Adds a question; `None` if the conversation has too many open ones. The same call of an earlier message is asked about anew, so
    /// that the question stands below the last messages.
    pub fn ask(
        &mut self,
        session: &str,
        sender: Option<&str>,
        message: &str,
        draft: QuestionDraft,
        now: i64,
    ) -> Option<&ApprovalQuestion> {
        let is_same = |question: &ApprovalQuestion| {
            question.is_open()
                && question.session == session
                && question.sender.as_deref() == sender
                && question.draft.call == draft.call
        };
        if let Some(index) = self.questions.iter().position(is_same) {
            let question = &mut self.questions[index];
            if question.message == message {
                return self.questions.get(index);
            }
            question.state = QuestionState::Closed;
        }
        if self.open_questions(session).count() >= MAX_OPEN_QUESTIONS {
            return None;
        }
        let mut code = random_code();
        while self.questions.iter().any(|question| question.code == code) {
            code = random_code();
        }
        self.last_number += 1;
        self.questions.push(ApprovalQuestion {
            id: random_hex(8),
            number: self.last_number,
            code,
            session: session.to_owned(),
            sender: sender.map(str::to_owned),
            message: message.to_owned(),
            draft,
            asked_at: now,
            delivered_at: None,
            wrong_codes: 0,
            state: QuestionState::Open,
        });
        self.questions.last()
    }

    /// The open questions of a conversation, in their order.
    pub fn open_questions<'f>(
        &'f self,
        session: &str,
    ) -> impl Iterator<Item = &'f ApprovalQuestion> {
        self.questions_of(session).filter(|question| question.is_open())
    }

    /// The questions of a conversation, also those that were answered.
    pub fn questions_of<'f>(&'f self, session: &str) -> impl Iterator<Item = &'f ApprovalQuestion> {
        self.questions.iter().filter(move |question| question.session == session)
    }

    /// The question of a conversation with this code, in any case and with or without its hyphen.
    pub fn question_by_code(&self, session: &str, code: &str) -> Option<&ApprovalQuestion> {
        let plain = |code: &str| code.trim().replace('-', "").to_ascii_uppercase();
        self.questions_of(session).find(|question| plain(&question.code) == plain(code))
    }

    fn question_mut(&mut self, id: &str) -> Option<&mut ApprovalQuestion> {
        self.questions.iter_mut().find(|question| question.id == id)
    }

    /// Records that the service has taken the question.
    pub fn record_delivery(&mut self, id: &str, now: i64) {
        if let Some(question) = self.question_mut(id) {
            question.delivered_at.get_or_insert(now);
        }
    }

    /// Approves an open question by the message `by`. With `lasting`, later calls of this kind are approved too.
    ///
    /// # Errors
    /// The reason why it cannot be approved, for the sender of that message.
    pub fn approve(&mut self, id: &str, by: &str, lasting: bool) -> Result<(), String> {
        let Some(question) = self.questions.iter_mut().find(|question| question.id == id) else {
            return Err("The question is no longer there. Nothing was done.".to_owned());
        };
        let number = question.number;
        if question.approved_by() == Some(by) {
            return Ok(());
        }
        if !question.is_open() {
            return Err(format!("Question {number} is no longer open. Nothing was done."));
        }
        if let Some(path) = question.changed_file() {
            let reason = format!(
                "`{}` has changed since question {number} was asked. Nothing was done.",
                path.display()
            );
            question.state = QuestionState::Closed;
            return Err(reason);
        }
        let lasting_approval = question.lasting_approval().filter(|_| lasting);
        if let Some(approval) = lasting_approval
            && !self.lasting.contains(&approval)
        {
            if self.lasting.len() >= MAX_LASTING_APPROVALS {
                return Err(format!(
                    "This channel has {MAX_LASTING_APPROVALS} approvals for good, and takes no more. Answer question {number} with yes, \
                     or take one back: /grants lists those of this chat. Nothing was done."
                ));
            }
            self.lasting.push(approval);
        }
        question.state = QuestionState::Approved { by: by.to_owned() };
        Ok(())
    }

    /// Records that a message had a code of none of the conversation's questions. True if that was one too many: the questions are
    /// closed.
    pub fn record_wrong_code(&mut self, session: &str) -> bool {
        let is_open =
            |question: &&mut ApprovalQuestion| question.session == session && question.is_open();
        let mut has_closed = false;
        for question in self.questions.iter_mut().filter(is_open) {
            question.wrong_codes += 1;
            if question.wrong_codes >= MAX_WRONG_CODES {
                question.state = QuestionState::Closed;
                has_closed = true;
            }
        }
        has_closed
    }

    /// Closes the open questions that `is_closed` selects.
    pub fn close(&mut self, is_closed: impl Fn(&ApprovalQuestion) -> bool) {
        for question in &mut self.questions {
            if question.is_open() && is_closed(question) {
                question.state = QuestionState::Closed;
            }
        }
    }

    /// Begins the call of a question that was approved, unless a file that it changes is not as it was; `None` if there is no such
    /// question. Only for [`CallStart::Begin`] it may be made.
    pub fn begin(&mut self, id: &str) -> Option<ApprovedCall> {
        let question = self.question_mut(id)?;
        let start = match &question.state {
            QuestionState::Approved { .. } if question.changed_file().is_some() => {
                question.state = QuestionState::Closed;
                CallStart::Expired
            }
            QuestionState::Approved { by } => {
                question.state = QuestionState::Begun { by: by.clone() };
                CallStart::Begin
            }
            QuestionState::Begun { .. } => CallStart::Unknown,
            QuestionState::Completed { result, .. } => CallStart::Completed(result.clone()),
            QuestionState::Open | QuestionState::Closed => CallStart::Expired,
        };
        Some(ApprovedCall { call: question.draft.call.clone(), start })
    }

    /// Records the result of a call that was begun.
    pub fn end(&mut self, id: &str, result: ApprovedResult) {
        if let Some(question) = self.question_mut(id)
            && let QuestionState::Begun { by } = &question.state
        {
            question.state = QuestionState::Completed { by: by.clone(), result };
        }
    }

    /// The lasting approvals of a conversation, in their order.
    pub fn lasting_of<'a>(&'a self, session: &'a str) -> impl Iterator<Item = &'a LastingApproval> {
        self.lasting.iter().filter(move |approval| approval.session == session)
    }

    /// True if a lasting approval covers this call.
    pub fn has_lasting(&self, session: &str, sender: Option<&str>, call: &StoredCall) -> bool {
        self.lasting_of(session).any(|approval| {
            sender == Some(&approval.sender)
                && approval.tool == call.tool
                && approval.flag == call.flag
        })
    }

    /// Removes the questions and the lasting approvals that `is_removed` selects by their session and sender. Returns their number.
    pub fn remove(&mut self, is_removed: impl Fn(&str, Option<&str>) -> bool) -> usize {
        let count = self.questions.len() + self.lasting.len();
        self.questions
            .retain(|question| !is_removed(&question.session, question.sender.as_deref()));
        self.lasting
            .retain(|approval| !is_removed(&approval.session, Some(approval.sender.as_str())));
        count - self.questions.len() - self.lasting.len()
    }

    /// Takes back the lasting approval with this number, counted from 1 in the conversation.
    pub fn remove_lasting(&mut self, session: &str, number: usize) -> Option<LastingApproval> {
        let approval = self.lasting_of(session).nth(number.checked_sub(1)?)?.clone();
        self.lasting.retain(|other| *other != approval);
        Some(approval)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        ApprovalFile, ApprovedResult, CallStart, FileFingerprint, KEPT_MILLIS,
        MAX_LASTING_APPROVALS, QUESTION_LIFETIME_MILLIS, QuestionDraft, StoredCall,
    };
    use nanobot_base::error::{Exit, exit_for};
    use nanobot_base::message::Origin;
    use serde_json::json;

    fn call(number: u32) -> StoredCall {
        StoredCall {
            tool: "cron".into(),
            arguments: json!({ "action": "add", "message": number }),
            flag: "--allow cron".into(),
        }
    }

    fn ask(file: &mut ApprovalFile, number: u32, now: i64) -> Option<String> {
        let draft = QuestionDraft { call: call(number), ..QuestionDraft::default() };
        file.close_expired(now);
        file.ask("telegram:7", Some("7"), "m", draft, now).map(|question| question.id.clone())
    }

    fn approve(file: &mut ApprovalFile, id: &str, by: &str, now: i64) -> bool {
        file.close_expired(now);
        file.approve(id, by, false).is_ok()
    }

    fn begin(file: &mut ApprovalFile, id: &str, now: i64) -> CallStart {
        file.close_expired(now);
        file.begin(id).unwrap().start
    }

    #[test]
    fn a_call_is_made_once_and_within_an_hour() {
        let mut file = ApprovalFile::default();
        let id = ask(&mut file, 1, 1000).unwrap();
        assert_eq!(ask(&mut file, 1, 1001).as_ref(), Some(&id), "asked already");
        assert_eq!(begin(&mut file, &id, 1001), CallStart::Expired, "not approved");
        assert!(!approve(&mut file, "other", "m1", 1002));
        assert!(approve(&mut file, &id, "m1", 1002));
        assert!(approve(&mut file, &id, "m1", 1003), "the same message, after a kill");
        assert!(!approve(&mut file, &id, "m2", 1003), "a repeated yes");
        assert_eq!(begin(&mut file, &id, 1004), CallStart::Begin);
        assert_eq!(begin(&mut file, &id, 1005), CallStart::Unknown, "after a kill");
        let result = ApprovedResult {
            text: "done".into(),
            origin: Origin::External,
            content: "a page".into(),
        };
        file.end(&id, result.clone());
        assert_eq!(begin(&mut file, &id, 9_999_999), CallStart::Completed(result));
        let late = ask(&mut file, 2, 1000).unwrap();
        assert!(approve(&mut file, &late, "m3", 1001));
        assert_eq!(begin(&mut file, &late, 1000 + QUESTION_LIFETIME_MILLIS), CallStart::Expired);
        assert_eq!(begin(&mut file, &late, 1002), CallStart::Expired, "for good");
        file.close_expired(1000 + KEPT_MILLIS);
        assert!(file.questions.is_empty());
    }

    #[test]
    fn an_expired_question_stays_closed_if_the_clock_is_set_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(ApprovalFile::FILE_NAME);
        let is_open = |now: i64| {
            let file = ApprovalFile::load(&path, now).unwrap();
            file.open_questions("telegram:7").next().is_some()
        };
        for later in [1000 + QUESTION_LIFETIME_MILLIS, 999] {
            let id = ApprovalFile::change(&path, 1000, |file| ask(file, 1, 1000)).unwrap().unwrap();
            assert!(is_open(1001) && !is_open(later) && is_open(1001), "{later}");
            ApprovalFile::change(&path, later, |_| ()).unwrap();
            assert!(!is_open(1001), "{later}");
            let approved = ApprovalFile::change(&path, 1001, |file| file.approve(&id, "m", false));
            assert!(approved.unwrap().is_err(), "{later}");
        }
    }

    #[test]
    fn questions_are_limited_and_closed() {
        let mut file = ApprovalFile::default();
        let ids: Vec<String> = (0..3).filter_map(|number| ask(&mut file, number, 1000)).collect();
        assert_eq!((ids.len(), ask(&mut file, 3, 1000)), (3, None));
        let other = QuestionDraft::default();
        assert!(file.ask("telegram:8", Some("8"), "m", other, 1000).is_some());
        let codes = file.open_questions("telegram:7").map(|question| &question.code);
        assert_eq!(codes.collect::<std::collections::BTreeSet<_>>().len(), 3);
        // The call of a later message is asked about anew.
        let draft = QuestionDraft { call: call(2), ..QuestionDraft::default() };
        let again = file.ask("telegram:7", Some("7"), "m2", draft, 1001).unwrap().id.clone();
        assert!(!ids.contains(&again) && !approve(&mut file, &ids[2], "m", 1001));
        file.close(|question| question.session == "telegram:7");
        assert_eq!(file.open_questions("telegram:7").count(), 0);
        assert!(!approve(&mut file, &ids[0], "m", 1001));
        assert!(ask(&mut file, 3, 1000).is_some());
    }

    #[test]
    fn wrong_codes_close_the_questions_of_their_conversation() {
        let mut file = ApprovalFile::default();
        let id = ask(&mut file, 1, 1000).unwrap();
        let other = file.ask("telegram:8", Some("8"), "m", QuestionDraft::default(), 1000);
        let other = other.unwrap().id.clone();
        let closes: Vec<bool> = (0..5).map(|_| file.record_wrong_code("telegram:7")).collect();
        assert_eq!(closes, [false, false, false, false, true]);
        assert!(!file.record_wrong_code("telegram:7"), "none is open");
        assert!(!approve(&mut file, &id, "m", 1001) && approve(&mut file, &other, "m", 1001));
    }

    #[test]
    fn lasting_approvals_are_limited_and_none_is_dropped_silently() {
        let mut file = ApprovalFile::default();
        for number in 0..=MAX_LASTING_APPROVALS {
            let stored_call = StoredCall { flag: format!("--write=/{number}"), ..call(1) };
            let draft = QuestionDraft { call: stored_call, ..QuestionDraft::default() };
            let question = file.ask("telegram:7", Some("7"), "m", draft, 1000).unwrap();
            let id = question.id.clone();
            let is_full = number == MAX_LASTING_APPROVALS;
            assert_eq!(file.approve(&id, "m", true).is_err(), is_full, "{number}");
            if is_full {
                assert!(file.approve(&id, "m", false).is_ok(), "it is still open");
            }
        }
    }

    #[test]
    fn a_lasting_approval_is_for_one_sender_and_taken_back() {
        let mut file = ApprovalFile::default();
        let id = ask(&mut file, 1, 1000).unwrap();
        file.approve(&id, "m", true).unwrap();
        assert!(file.has_lasting("telegram:7", Some("7"), &call(2)));
        assert!(!file.has_lasting("telegram:7", Some("8"), &call(2)));
        assert!(!file.has_lasting("telegram:8", Some("7"), &call(2)));
        let other = StoredCall { flag: "--allow notes".into(), ..call(2) };
        assert!(!file.has_lasting("telegram:7", Some("7"), &other));
        assert!(file.remove_lasting("telegram:8", 1).is_none());
        assert!(file.remove_lasting("telegram:7", 0).is_none());
        assert!(file.remove_lasting("telegram:7", 1).is_some());
        assert!(!file.has_lasting("telegram:7", Some("7"), &call(2)));
        let id = ask(&mut file, 3, 1000).unwrap();
        file.approve(&id, "m", true).unwrap();
        assert_eq!(file.remove(|_, sender| sender == Some("8")), 0);
        assert_eq!(file.remove(|_, sender| sender == Some("7")), 3);
        assert!(!file.has_lasting("telegram:7", Some("7"), &call(3)));
    }

    #[test]
    fn a_changed_file_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let missing = FileFingerprint::compute(&path).unwrap();
        assert!(missing.is_current());
        std::fs::write(&path, "one").unwrap();
        let present = FileFingerprint::compute(&path).unwrap();
        assert!(present.is_current() && !missing.is_current());
        std::fs::write(&path, "two").unwrap();
        assert!(!present.is_current());
        assert!(FileFingerprint::compute(directory.path()).is_err());
        std::fs::write(&path, "").unwrap();
        assert!(!missing.is_current());
        let stored = serde_json::to_string(&missing).unwrap();
        assert_eq!(serde_json::from_str::<FileFingerprint>(&stored).unwrap(), missing);
    }

    #[test]
    fn the_place_of_a_new_file_is_where_links_lead() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        let point_to = |name: &str| {
            let target = directory.path().join(name);
            std::fs::create_dir_all(&target).unwrap();
            drop(std::fs::remove_file(&link));
            std::os::unix::fs::symlink(target, &link).unwrap();
        };
        point_to("a");
        let new = FileFingerprint::compute(&link.join("new")).unwrap();
        assert!(new.is_current());
        point_to("b");
        assert!(!new.is_current());
        point_to("a");
        assert!(new.is_current());
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(ApprovalFile::FILE_NAME);
        for text in ["{", "[]", "{\"questions\":1}", "{\"questions\":[{\"id\":\"x\"}]}"] {
            std::fs::write(&path, text).unwrap();
            let error = ApprovalFile::change(&path, 1000, |file| ask(file, 1, 1000)).unwrap_err();
            assert_eq!(exit_for(&error), Exit::Config);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
