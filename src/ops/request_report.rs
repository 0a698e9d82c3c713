//! The composition of a request: each part, its size, and the reason why it is sent.

use nanobot_agent::prompt::PromptSection;
use nanobot_agent::report::columns::{Side, align_and_wrap};
use nanobot_agent::report::meter::{draw_meter, format_percent};
use nanobot_agent::turn::agent::tool_tokens;
use nanobot_base::message::Message;
use nanobot_base::message::ToolSpec;
use nanobot_base::message::token_estimate;
use nanobot_os::terminal::{sanitize, wrap_words};
use nanobot_store::session::{HistoryWindow, Session};
use serde_json::{Value, json};

/// Columns of a meter, and of the narrowest window with a meter in each row.
const METER_COLUMNS: usize = 10;
const MIN_METER_WINDOW_COLUMNS: usize = 60;

/// The contents of a request before it is sent.
pub(crate) struct RequestBreakdown<'a> {
    /// The sections of the system prompt.
    pub(crate) sections: &'a [PromptSection],
    /// The tools on offer.
    pub(crate) specs: &'a [ToolSpec],
    pub(crate) session: &'a Session,
    /// Number of the session's messages that are new.
    pub(crate) new_count: usize,
    /// Maximum number of messages from the log that are sent in full.
    pub(crate) message_window: usize,
    /// Tokens at which the session is compacted.
    pub(crate) threshold: Option<u64>,
    /// The model's context window in tokens.
    pub(crate) context_window: u32,
}

/// A part of the request.
struct BreakdownRow {
    part: String,
    tokens: u64,
    reason: String,
}

impl RequestBreakdown<'_> {
    fn rows(&self) -> Vec<BreakdownRow> {
        let row = |part: &str, tokens: u64, reason: String| BreakdownRow {
            part: part.to_owned(),
            tokens,
            reason,
        };
        let mut rows: Vec<BreakdownRow> = self
            .sections
            .iter()
            .map(|section| {
                let tokens = token_estimate::for_text(&section.text);
                row(&section.name, tokens, section.reason.to_owned())
            })
            .collect();
        if !self.specs.is_empty() {
            let names: Vec<&str> = self.specs.iter().map(|spec| spec.name.as_str()).collect();
            let tokens = self.specs.iter().map(tool_tokens).sum();
            rows.push(row("tools", tokens, names.join(", ")));
        }
        let messages = self.session.messages();
        let (old, new) = messages.split_at(messages.len() - self.new_count);
        let old = match (self.session.summary(), old) {
            (Some(summary), [first, rest @ ..]) => {
                let messages = match summary.user_messages.len() {
                    1 => "1 user message verbatim".to_owned(),
                    count => format!("{count} user messages verbatim"),
                };
                let reason = format!("replaces the compacted messages, with {messages}");
                rows.push(row("summary", token_estimate::for_message(first), reason));
                rest
            }
            _ => old,
        };
        if !old.is_empty() {
            rows.push(row(
                "history",
                token_estimate::for_messages(old),
                self.describe_history(old),
            ));
        }
        if !new.is_empty() {
            rows.push(row("message", token_estimate::for_messages(new), "this turn's".into()));
        }
        rows
    }

    fn describe_history(&self, sent: &[Message]) -> String {
        let HistoryWindow { shortened_before, start, .. } = self.session.history_window();
        let mut text = format!("{} messages, starting at number {}", sent.len(), start + 1);
        if shortened_before > start {
            let number = shortened_before + 1;
            text.push_str(&format!("; long results before number {number} truncated"));
        }
        text
    }

    /// Describes the messages in the log that are not sent.
    fn describe_omitted(&self) -> Vec<String> {
        let HistoryWindow { start, consolidated, .. } = self.session.history_window();
        let first_sent = self.session.summary().map_or(0, |summary| summary.first_sent);
        let mut ranges = Vec::new();
        let mut start_of_range = 0;
        for (end, reason) in [
            (consolidated, "consolidated, archived, or left out by `/new`".to_owned()),
            (first_sent, "compacted: replaced by the summary".to_owned()),
            (start, format!("before the window of {} messages", self.message_window)),
        ] {
            if end > start_of_range {
                ranges.push(format!("{} to {end}: {reason}", start_of_range + 1));
                start_of_range = end;
            }
        }
        ranges
    }

    fn ratio(&self) -> f64 {
        self.session.history_window().token_ratio.unwrap_or(1.0)
    }

    fn total(&self) -> u64 {
        let sum: u64 = self.rows().iter().map(|row| row.tokens).sum();
        (sum as f64 * self.ratio()) as u64
    }

    /// The report as a table for people. A terminal has `width` columns. A wide one shows meters: the share of each part, and the share of
    /// the request in the context window.
    pub(crate) fn table(&self, width: Option<usize>) -> String {
        let parts = self.rows();
        let sum: u64 = parts.iter().map(|row| row.tokens).sum();
        let has_meters = width.is_some_and(|width| width >= MIN_METER_WINDOW_COLUMNS);
        let cells = |BreakdownRow { part, tokens, reason }: BreakdownRow| {
            let share = tokens as f64 / sum.max(1) as f64;
            let mut count = ((tokens as f64 * self.ratio()) as u64).to_string();
            if has_meters {
                count.push_str(&format!(" {}", draw_meter(share, METER_COLUMNS)));
            }
            vec![sanitize(&part), count, sanitize(&reason)]
        };
        let mut rows: Vec<Vec<String>> = parts.into_iter().map(cells).collect();
        let total_reason = match self.session.history_window().token_ratio {
            Some(ratio) => format!("estimate, scaled by {ratio:.2} from the provider's last count"),
            None => "estimate; corrected by the provider's count after the first reply".into(),
        };
        let meter_columns = if has_meters { METER_COLUMNS + 1 } else { 0 };
        let blank = " ".repeat(meter_columns);
        rows.push(vec!["TOTAL".into(), format!("{}{blank}", self.total()), total_reason]);
        let tokens_heading = format!("TOKENS{blank}");
        let columns =
            [("PART", Side::Left), (tokens_heading.as_str(), Side::Right), ("WHY", Side::Left)];
        let mut text = String::new();
        for line in align_and_wrap(&columns, &rows, width) {
            text.push_str(&line);
            text.push('\n');
        }
        for range in self.describe_omitted() {
            text.push_str(&format!("not sent: messages {range}\n"));
        }
        let limit = match self.threshold {
            Some(threshold) => format!("compacted at {threshold} tokens"),
            None => "never compacted".into(),
        };
        let window = self.context_window;
        text.push_str(&match width {
            Some(width) => {
                let meter =
                    draw_meter(self.total() as f64 / f64::from(window.max(1)), METER_COLUMNS);
                let percent = format_percent(self.total(), window.into());
                let line = format!("{meter} {percent} of the context window {window}; {limit}");
                wrap_words(&line, width, METER_COLUMNS + 1)
            }
            None => format!("{limit}; context window {window}"),
        });
        text.push('\n');
        text
    }

    /// The report as one JSON object, in tokens.
    pub(crate) fn json(&self) -> Value {
        let scaled = |tokens: u64| (tokens as f64 * self.ratio()) as u64;
        let rows: Vec<Value> = self
            .rows()
            .into_iter()
            .map(|BreakdownRow { part, tokens, reason }| json!({ "part": part, "tokens": scaled(tokens), "why": reason }))
            .collect();
        json!({ "parts": rows, "total": self.total(), "ratio": self.session.history_window().token_ratio,
                "not_sent": self.describe_omitted(), "threshold": self.threshold, "model_takes": self.context_window })
    }
}
