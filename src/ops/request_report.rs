//! The composition of a request: each part, its size, and why it is sent.

use crate::message::Message;
use crate::message::ToolSpec;
use crate::message::token_estimate;
use crate::prompt::Section;
use crate::report::columns::{Side, aligned};
use crate::session::{Outline, Session};
use crate::sys::terminal::harmless;
use crate::turn::agent::weight_of;
use serde_json::{Value, json};

/// The contents of a request before it is sent.
pub(crate) struct RequestBreakdown<'a> {
    /// The sections of the system prompt.
    pub(crate) sections: &'a [Section],
    /// The tools on offer.
    pub(crate) specs: &'a [ToolSpec],
    pub(crate) session: &'a Session,
    /// Number of the session's messages that are new.
    pub(crate) fresh: usize,
    /// Maximum number of messages from the log that are sent in full.
    pub(crate) window: usize,
    /// Tokens at which the session is compacted.
    pub(crate) threshold: Option<u64>,
    /// The model's context window in tokens.
    pub(crate) room: u32,
}

/// A part of the request.
struct Row {
    part: String,
    tokens: u64,
    why: String,
}

impl RequestBreakdown<'_> {
    fn rows(&self) -> Vec<Row> {
        let row = |part: &str, tokens: u64, why: String| Row {
            part: part.to_owned(),
            tokens,
            why,
        };
        let mut rows: Vec<Row> = self
            .sections
            .iter()
            .map(|section| {
                let tokens = token_estimate::of_text(&section.text);
                row(&section.name, tokens, section.why.to_owned())
            })
            .collect();
        if !self.specs.is_empty() {
            let names: Vec<&str> = self.specs.iter().map(|spec| spec.name.as_str()).collect();
            let tokens = self.specs.iter().map(weight_of).sum();
            rows.push(row("tools", tokens, names.join(", ")));
        }
        let messages = self.session.messages();
        let (old, new) = messages.split_at(messages.len() - self.fresh);
        let old = match (self.session.summary(), old) {
            (Some(summary), [first, rest @ ..]) => {
                let words = match summary.words.len() {
                    1 => "1 user message verbatim".to_owned(),
                    count => format!("{count} user messages verbatim"),
                };
                let why = format!("replaces the compacted messages, with {words}");
                rows.push(row("summary", token_estimate::of_message(first), why));
                rest
            }
            _ => old,
        };
        if !old.is_empty() {
            rows.push(row(
                "history",
                token_estimate::of_messages(old),
                self.history(old),
            ));
        }
        if !new.is_empty() {
            rows.push(row(
                "message",
                token_estimate::of_messages(new),
                "this turn's".into(),
            ));
        }
        rows
    }

    fn history(&self, sent: &[Message]) -> String {
        let Outline { aged, start, .. } = self.session.outline();
        let first = start + 1;
        let mut why = format!("{} messages, starting at number {first}", sent.len());
        if aged > start {
            why.push_str(&format!(
                "; long results before number {} truncated",
                aged + 1
            ));
        }
        why
    }

    /// Describes the messages in the log that are not sent.
    fn left_out(&self) -> Vec<String> {
        let Outline {
            start,
            consolidated,
            ..
        } = self.session.outline();
        let from = self.session.summary().map_or(0, |summary| summary.from);
        let mut words = Vec::new();
        let mut at = 0;
        for (to, why) in [
            (consolidated, "consolidated into the memory".to_owned()),
            (from, "compacted: replaced by the summary".to_owned()),
            (
                start,
                format!("before the window of {} messages", self.window),
            ),
        ] {
            if to > at {
                words.push(format!("{} to {to}: {why}", at + 1));
                at = to;
            }
        }
        words
    }

    fn ratio(&self) -> f64 {
        self.session.outline().ratio.unwrap_or(1.0)
    }

    fn total(&self) -> u64 {
        let sum: u64 = self.rows().iter().map(|row| row.tokens).sum();
        (sum as f64 * self.ratio()) as u64
    }

    /// The report as a table for people.
    pub(crate) fn table(&self) -> String {
        let columns = [
            ("PART", Side::Left),
            ("TOKENS", Side::Right),
            ("WHY", Side::Left),
        ];
        let cells = |Row { part, tokens, why }: Row| {
            let tokens = (tokens as f64 * self.ratio()) as u64;
            vec![harmless(&part), tokens.to_string(), harmless(&why)]
        };
        let mut rows: Vec<Vec<String>> = self.rows().into_iter().map(cells).collect();
        let why = match self.session.outline().ratio {
            Some(ratio) => format!("estimate, scaled by {ratio:.2} from the provider's last count"),
            None => "estimate; corrected by the provider's count after the first reply".into(),
        };
        rows.push(vec!["TOTAL".into(), self.total().to_string(), why]);
        let mut text = String::new();
        for line in aligned(&columns, &rows) {
            text.push_str(&line);
            text.push('\n');
        }
        for words in self.left_out() {
            text.push_str(&format!("not sent: messages {words}\n"));
        }
        let limit = match self.threshold {
            Some(threshold) => format!("compacted at {threshold} tokens"),
            None => "never compacted".into(),
        };
        text.push_str(&format!("{limit}; context window {}\n", self.room));
        text
    }

    /// The report as one JSON object, in tokens.
    pub(crate) fn json(&self) -> Value {
        let scaled = |tokens: u64| (tokens as f64 * self.ratio()) as u64;
        let rows: Vec<Value> = self
            .rows()
            .into_iter()
            .map(|Row { part, tokens, why }| json!({ "part": part, "tokens": scaled(tokens), "why": why }))
            .collect();
        json!({ "parts": rows, "total": self.total(), "ratio": self.session.outline().ratio,
                "not_sent": self.left_out(), "threshold": self.threshold, "model_takes": self.room })
    }
}
