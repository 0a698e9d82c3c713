//! The live status of a turn: takes events and returns lines. Some lines are permanent, such as that of a finished
//! call; the others form the status area at the bottom of the terminal. It reads no clock and prints nothing.

use super::lines::{self, Fold};
use crate::event::{Event, Outcome};
use crate::format::dollars;
use crate::message::{Reply, ToolCall, ToolResult, Usage, plain_text};
use crate::report::short_text::{first_line, grouped, rounded, running, short, size, took};
use crate::sys::terminal::Row;
use console::Style;
use serde_json::Value;
use std::time::{Duration, Instant};

/// The frames of the spinner, and the duration of each.
const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const FRAME: Duration = Duration::from_millis(100);
/// An answer without new text for this long no longer counts as being printed.
const SILENCE: Duration = Duration::from_millis(1500);
/// Lines that `-v` shows of a result, or of a command's output while it runs.
const HEAD: usize = 10;
/// Lines that `-v` shows of a call's arguments.
const ARGUMENTS: usize = 40;

/// The display settings at the time of an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// Columns of the window.
    pub(super) width: usize,
    /// `-v`
    pub(super) detailed: bool,
    /// True if the answer is streamed to this terminal.
    pub(super) speaks: bool,
    pub(super) now: Instant,
}

/// The state of the turn.
#[derive(Debug)]
pub(super) struct Scene {
    began: Instant,
    doing: Doing,
    calls: Vec<Call>,
    usage: Usage,
    /// US dollars; `None` once the cost of a request is unknown.
    cost: Option<f64>,
    requests: u32,
    tools: u32,
    fold: Fold,
}

/// The current activity of the model.
#[derive(Clone, Debug)]
enum Doing {
    Asking,
    Thinking { since: Instant, letters: usize },
    Speaking { last: Instant },
    Waiting { until: Instant, what: &'static str },
    Compacting { tokens: u64 },
}

/// A running tool, or a sub-agent that it started.
#[derive(Debug)]
struct Call {
    id: String,
    /// The name of the tool or the sub-agent.
    name: String,
    short: String,
    arguments: Value,
    since: Instant,
    is_subagent: bool,
    /// Its latest output, and the number of lines of it that were shown.
    last: String,
    told: usize,
    fold: Fold,
}

impl Scene {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            began: now,
            doing: Doing::Asking,
            calls: Vec::new(),
            usage: Usage::default(),
            cost: Some(0.0),
            requests: 0,
            tools: 0,
            fold: Fold::default(),
        }
    }

    /// Processes an event; returns the permanent lines.
    pub(super) fn take(&mut self, event: &Event<'_>, view: View) -> Vec<Row> {
        let mut rows = Vec::new();
        if !matches!(event, Event::Reasoning { .. } | Event::Notice(_)) {
            rows.extend(self.thought(view));
        }
        match event {
            Event::User(user) if user.injected => rows.extend(self.reported(&user.id, view.now)),
            Event::User(_) => self.doing = Doing::Asking,
            Event::Reasoning { text, .. } => rows.extend(self.think(text, view)),
            Event::Text { .. } if view.speaks => self.doing = Doing::Speaking { last: view.now },
            Event::Text { .. } => self.doing = Doing::Asking,
            Event::Assistant { reply, .. } => self.doing = self.said(reply),
            Event::ToolCall(call) => self.begin(call, view.now),
            Event::ToolOutput { call, text } => rows.extend(self.output(call, text, view)),
            Event::ToolResult {
                result,
                outcome,
                unsuccessful,
                changes,
                duration,
                denied: _,
            } => {
                let fails = *unsuccessful || *outcome != Outcome::Ok;
                rows.extend(self.end(result, (*outcome, fails), *changes, *duration, view));
            }
            Event::Retry {
                attempt,
                wait,
                cause,
            } => {
                rows.push(Row::of("  ").giving(format!("… {cause}; attempt {}", attempt + 1)));
                self.wait("retrying", *wait, view.now);
            }
            Event::CompactStart { tokens, .. } => {
                self.doing = Doing::Compacting { tokens: *tokens };
            }
            Event::CompactEnd { .. } => self.doing = Doing::Asking,
            Event::Usage { usage, cost, .. } => self.pay(*usage, *cost),
            Event::Fallback { .. } | Event::Notice(_) => {}
        }
        rows
    }

    /// Starts a wait during which nothing else happens.
    pub(super) fn wait(&mut self, what: &'static str, wait: Duration, now: Instant) {
        let until = now.checked_add(wait).unwrap_or(now);
        self.doing = Doing::Waiting { until, what };
    }

    fn said(&self, reply: &Reply) -> Doing {
        // If there are calls, their status follows.
        match (&self.doing, reply.calls.is_empty()) {
            (Doing::Compacting { tokens }, _) => Doing::Compacting { tokens: *tokens },
            _ => Doing::Asking,
        }
    }

    fn pay(&mut self, usage: Usage, cost: Option<f64>) {
        self.usage += usage;
        self.cost = self.cost.zip(cost).map(|(sum, cost)| sum + cost);
        self.requests += 1;
    }

    fn think(&mut self, text: &str, view: View) -> Vec<Row> {
        let before = match self.doing {
            Doing::Thinking { since, letters } => (since, letters),
            _ => (view.now, 0),
        };
        self.doing = Doing::Thinking {
            since: before.0,
            letters: before.1 + text.chars().count(),
        };
        match view.detailed {
            true => self.fold.put(text, view.width),
            false => Vec::new(),
        }
    }

    /// Ends the reasoning phase; returns a line with its duration.
    fn thought(&mut self, view: View) -> Vec<Row> {
        let Doing::Thinking { since, letters } = self.doing else {
            return Vec::new();
        };
        self.doing = Doing::Asking;
        let letters = grouped(letters as u64);
        let time = running(view.now.saturating_duration_since(since));
        let line = Row::of("  ").dim(format!("thought for {time} ({letters} characters)"));
        self.fold.rest().into_iter().chain([line]).collect()
    }

    fn begin(&mut self, call: &ToolCall, now: Instant) {
        self.tools += 1;
        self.doing = Doing::Asking;
        self.calls.push(Call {
            id: call.id.clone(),
            name: call.name.clone(),
            short: short(&call.name, &call.arguments),
            arguments: call.arguments.clone(),
            since: now,
            is_subagent: false,
            last: String::new(),
            told: 0,
            fold: Fold::default(),
        });
    }

    fn output(&mut self, id: &str, text: &str, view: View) -> Vec<Row> {
        let Some(call) = self.calls.iter_mut().rev().find(|call| call.id == id) else {
            return Vec::new();
        };
        let lines = text.lines().rev().map(str::trim);
        if let Some(line) = lines.clone().find(|line| !line.is_empty()) {
            let own = call.is_subagent.then(|| format!("{}: ", call.name));
            let line = own.and_then(|own| line.strip_prefix(&own)).unwrap_or(line);
            line.clone_into(&mut call.last);
        }
        if !view.detailed {
            return Vec::new();
        }
        let mut rows = call.fold.put(text, view.width);
        // A sub-agent's output is short and shown in full; a command may print for hours.
        if !call.is_subagent {
            rows.truncate(HEAD.saturating_sub(call.told));
        }
        call.told += rows.len();
        rows
    }

    /// Ends a call; returns its final line and the lines below it.
    fn end(
        &mut self,
        result: &ToolResult,
        (outcome, fails): (Outcome, bool),
        changes: Option<&str>,
        duration: Duration,
        view: View,
    ) -> Vec<Row> {
        let at = self.calls.iter().position(|call| call.id == result.call);
        let call = at.map(|at| self.calls.remove(at));
        let text = plain_text(&result.parts);
        if let Some(call) = &call
            && call.name == "spawn"
            && outcome == Outcome::Ok
            && let Some(name) = text.split('`').nth(1)
        {
            // The sub-agent continues under its own name, until its report arrives.
            let call = Call {
                id: call.id.clone(),
                name: name.to_owned(),
                short: call.short.clone(),
                arguments: Value::Null,
                since: view.now,
                is_subagent: true,
                last: String::new(),
                told: 0,
                fold: Fold::default(),
            };
            self.calls.push(call);
            return Vec::new();
        }
        let short = call.as_ref().map_or("", |call| call.short.as_str());
        let time = took(duration);
        let head = match (outcome, fails) {
            (Outcome::Denied, _) => headed(denied(), &result.name, short, "denied"),
            (Outcome::Ok, false) => {
                let size = changes.map_or_else(|| size(&result.parts), lines::changed);
                let about = format!("{time}, {size}");
                headed(done(), &result.name, short, &about)
            }
            (Outcome::Ok, true) => {
                let last = text.lines().next_back().unwrap_or_default();
                headed(failed(), &result.name, short, &format!("{time}, {last}"))
            }
            _ => headed(failed(), &result.name, short, &time),
        };
        let mut rows = vec![head];
        if view.detailed
            && changes.is_none()
            && let Some(call) = &call
        {
            rows.extend(arguments(&call.arguments, short, view.width));
        }
        match outcome {
            Outcome::Ok => match changes {
                Some(diff) => rows.extend(lines::of_diff(diff, view.detailed)),
                None if view.detailed && call.is_none_or(|call| call.told == 0) => {
                    rows.extend(lines::head(&text, HEAD));
                }
                None => {}
            },
            Outcome::Failed | Outcome::Skipped if view.detailed => {
                rows.extend(lines::head(&text, HEAD));
            }
            Outcome::Failed | Outcome::Skipped => rows.push(lines::dim(&first_line(&text))),
            // The reason is reported once per kind, as everywhere.
            Outcome::Denied => {}
        }
        rows
    }

    /// Handles a sub-agent's report, which arrives as a message with this id.
    fn reported(&mut self, id: &str, now: Instant) -> Option<Row> {
        let name = id.rsplit('-').next()?;
        let is_it = |call: &Call| call.is_subagent && call.name == name;
        let at = self.calls.iter().position(is_it)?;
        let call = self.calls.remove(at);
        let time = took(now.saturating_duration_since(call.since));
        let mark = match call.last == "is done" {
            true => done(),
            false => failed(),
        };
        let about = format!("{time}, {}", call.last);
        Some(headed(mark, name, &call.short, &about))
    }

    /// Returns the current status area.
    pub(super) fn rows(&self, now: Instant) -> Vec<Row> {
        let since = |then: Instant| now.saturating_duration_since(then);
        let frame = since(self.began).as_millis() / FRAME.as_millis();
        let spinner = FRAMES[frame as usize % FRAMES.len()];
        let mut rows: Vec<Row> = self
            .calls
            .iter()
            .map(|call| {
                let mut row = Row::of("  ")
                    .styled(spinner, Style::new().cyan())
                    .and(format!(" {} ", call.name))
                    .giving(&call.short)
                    .dim(format!("  {}", running(since(call.since))));
                if !call.last.is_empty() {
                    row = row.dim(format!("  {}", call.last));
                }
                row
            })
            .collect();
        let doing = match &self.doing {
            Doing::Speaking { last } if since(*last) < SILENCE => return rows,
            Doing::Asking | Doing::Speaking { .. } => running(since(self.began)),
            Doing::Thinking { since: then, .. } => format!("thinking… {}", running(since(*then))),
            Doing::Waiting { until, what } => {
                let left = until.saturating_duration_since(now);
                // Rounded up, so it shows 1 s until the wait is over.
                let left = Duration::from_secs(left.as_millis().div_ceil(1000) as u64);
                format!("{what} in {}", running(left))
            }
            Doing::Compacting { tokens } => format!("compacting {} tokens…", grouped(*tokens)),
        };
        let mut row = Row::of("  ")
            .styled(spinner, Style::new().cyan())
            .dim(format!(" {doing}"));
        if self.requests > 0 {
            let Usage { input, output, .. } = self.usage;
            row = row.dim(format!(" · {} in, {} out", rounded(input), rounded(output)));
            if let Some(cost) = self.cost.filter(|cost| *cost > 0.0) {
                row = row.dim(format!(" · ${}", dollars(cost)));
            }
        }
        rows.push(row);
        rows
    }

    /// Returns a one-line summary.
    pub(super) fn summary(&self, now: Instant) -> Row {
        let Usage {
            input,
            cached,
            output,
            ..
        } = self.usage;
        let mut parts = vec![took(now.saturating_duration_since(self.began))];
        parts.push(counted(self.requests, "request"));
        let cached = match cached {
            0 => String::new(),
            cached => format!(" ({} cached)", grouped(cached)),
        };
        let (input, output) = (grouped(input), grouped(output));
        parts.push(format!("{input} tokens in{cached}, {output} out"));
        parts.extend(self.cost.map(|cost| format!("${}", dollars(cost))));
        if self.tools > 0 {
            parts.push(counted(self.tools, "tool call"));
        }
        Row::default().dim(parts.join(" · "))
    }

    /// True if there was any request to summarize.
    pub(super) fn has_asked(&self) -> bool {
        self.requests > 0
    }
}

fn counted(count: u32, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {what}{s}")
}

/// The mark of a call, with its colour.
type Mark = (&'static str, Style);

fn done() -> Mark {
    ("✓", Style::new().green())
}

fn failed() -> Mark {
    ("✗", Style::new().red())
}

fn denied() -> Mark {
    ("⊘", Style::new().yellow())
}

fn headed((mark, style): Mark, name: &str, short: &str, about: &str) -> Row {
    Row::of("  ")
        .styled(mark, style)
        .and(format!(" {name} "))
        .giving(short)
        .dim(format!("  {about}"))
}

/// Shows a call's arguments in full, unless the line already contains all of them.
fn arguments(arguments: &Value, short: &str, width: usize) -> Vec<Row> {
    let Some(all) = arguments.as_object() else {
        return Vec::new();
    };
    if all.len() == 1 && all.values().all(|value| value == short) {
        return Vec::new();
    }
    let lines: Vec<String> = all
        .iter()
        .map(|(name, value)| match value.as_str() {
            Some(text) if text.contains('\n') => format!("{name}:\n{text}"),
            Some(text) => format!("{name}: {text}"),
            None => format!("{name}: {value}"),
        })
        .collect();
    let mut rows = Fold::default().put(&(lines.join("\n") + "\n"), width);
    if rows.len() > ARGUMENTS {
        let more = grouped((rows.len() - ARGUMENTS) as u64);
        rows.truncate(ARGUMENTS);
        rows.push(lines::dim(&format!("… {more} more lines")));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::{Scene, View};
    use crate::event::{Event, Outcome};
    use crate::message::{Part, ToolCall, ToolResult, Usage, User};
    use crate::sys::terminal::Row;
    use serde_json::{Value, json};
    use std::time::{Duration, Instant};

    /// A scene with a manually set clock.
    struct Stage {
        scene: Scene,
        view: View,
        kept: Vec<String>,
    }

    impl Stage {
        fn new(detailed: bool) -> Self {
            let now = Instant::now();
            let view = View {
                width: 60,
                detailed,
                speaks: true,
                now,
            };
            Self {
                scene: Scene::new(now),
                view,
                kept: Vec::new(),
            }
        }

        fn after(&mut self, millis: u64) -> &mut Self {
            self.view.now += Duration::from_millis(millis);
            self
        }

        fn tell(&mut self, event: Event<'_>) -> &mut Self {
            let rows = self.scene.take(&event, self.view);
            self.kept.extend(rows.iter().map(Row::text));
            self
        }

        fn call(&mut self, id: &str, name: &str, arguments: Value) -> &mut Self {
            self.tell(Event::ToolCall(&ToolCall {
                id: id.into(),
                name: name.into(),
                arguments,
            }))
        }

        fn result(&mut self, id: &str, name: &str, text: &str, outcome: Outcome) -> &mut Self {
            self.ends(id, name, text, outcome, None)
        }

        fn ends(
            &mut self,
            id: &str,
            name: &str,
            text: &str,
            outcome: Outcome,
            changes: Option<&str>,
        ) -> &mut Self {
            let result = ToolResult {
                call: id.into(),
                name: name.into(),
                parts: vec![Part::Text(text.into())],
                failed: outcome != Outcome::Ok,
            };
            self.tell(Event::ToolResult {
                denied: None,
                result: &result,
                outcome,
                unsuccessful: false,
                changes,
                duration: Duration::from_millis(12),
            })
        }

        #[track_caller]
        fn kept(&mut self, expect: &[&str]) -> &mut Self {
            let kept = std::mem::take(&mut self.kept);
            assert_eq!(kept, expect);
            self
        }

        /// Checks the status area, without the spinner's frames.
        #[track_caller]
        fn foot(&mut self, expect: &[&str]) -> &mut Self {
            let rows = self.scene.rows(self.view.now);
            let bare = |row: &Row| {
                let text = row.text();
                text.trim_start().chars().skip(2).collect::<String>()
            };
            let rows: Vec<String> = rows.iter().map(bare).collect();
            assert_eq!(rows, expect);
            self
        }
    }

    #[test]
    fn a_call_turns_into_its_result() {
        Stage::new(false)
            .after(3200)
            .foot(&["3 s"])
            .call("1", "read_file", json!({ "path": "a.md" }))
            .call("2", "grep", json!({ "pattern": "x", "path": "src" }))
            .after(1500)
            .foot(&["read_file a.md  1 s", "grep x src  1 s", "4 s"])
            .result("1", "read_file", "one\ntwo\n", Outcome::Ok)
            .foot(&["grep x src  1 s", "4 s"])
            .result("2", "grep", "no such place", Outcome::Failed)
            .kept(&[
                "  ✓ read_file a.md  12 ms, 2 lines, 8 B",
                "  ✗ grep x src  12 ms",
                "    no such place",
            ])
            .call("3", "write_file", json!({ "path": "b.md", "content": "x" }))
            .result("3", "write_file", "refused", Outcome::Denied)
            .kept(&["  ⊘ write_file b.md  denied"])
            .foot(&["4 s"]);
    }

    #[test]
    fn more_is_shown_to_those_who_want_it() {
        Stage::new(true)
            .call("1", "read_file", json!({ "path": "a.md", "limit": 3 }))
            .result("1", "read_file", "one\ntwo\n", Outcome::Ok)
            .kept(&[
                "  ✓ read_file a.md  12 ms, 2 lines, 8 B",
                "    path: a.md",
                "    limit: 3",
                "    one",
                "    two",
            ])
            .call("2", "exec", json!({ "command": "make" }))
            .tell(Event::ToolOutput {
                call: "2",
                text: "cc a.c\ncc ",
            })
            .kept(&["    cc a.c"])
            .foot(&["exec make  0 s  cc", "0 s"])
            .result("2", "exec", "cc a.c\ncc b.c", Outcome::Ok)
            .kept(&["  ✓ exec make  12 ms, 2 lines, 13 B"]);
    }

    #[test]
    fn changes_of_a_file_are_shown_and_folded() {
        let diff: String = (0..30).map(|line| format!("+{line}\n")).collect();
        let mut stage = Stage::new(false);
        stage
            .call("1", "write_file", json!({ "path": "a", "content": "…" }))
            .ends("1", "write_file", "created a", Outcome::Ok, Some(&diff));
        assert_eq!(stage.kept.len(), 22);
        assert_eq!(stage.kept[21], "    … 10 more lines; `-v` shows them");
        assert_eq!(stage.kept[1], "    +0");
    }

    #[test]
    fn thinking_is_folded() {
        let piece = |text: &'static str| Event::Reasoning { message: "m", text };
        let mut stage = Stage::new(false);
        stage
            .tell(piece("first this, "))
            .after(2000)
            .tell(piece("then that"))
            .foot(&["thinking… 2 s"])
            .kept(&[])
            .tell(Event::Text {
                message: "m",
                text: "so",
            })
            .kept(&["  thought for 2 s (21 characters)"])
            // While the answer is being printed, the status area is empty.
            .foot(&[])
            .after(2000)
            .foot(&["4 s"]);
        Stage::new(true)
            .tell(piece("first this,\nthen that"))
            .kept(&["    first this,"])
            .call("1", "todo", json!({}))
            .kept(&["    then that", "  thought for 0 s (21 characters)"]);
    }

    #[test]
    fn waits_are_counted_down_and_money_is_counted_up() {
        let usage = Usage {
            input: 12_345,
            cached: 2000,
            output: 240,
            ..Usage::default()
        };
        let mut stage = Stage::new(false);
        stage
            .tell(Event::Retry {
                attempt: 1,
                wait: Duration::from_secs(5),
                cause: "busy",
            })
            .kept(&["  … busy; try 2"])
            .foot(&["retrying in 5 s"])
            .after(1200)
            .foot(&["retrying in 4 s"])
            .tell(Event::Usage {
                message: "m",
                usage,
                cost: Some(0.0123),
            })
            .foot(&["retrying in 4 s · 12.3k in, 240 out · $0.0123"])
            .tell(Event::CompactStart {
                tokens: 12_345,
                threshold: None,
            })
            .foot(&["compacting 12,345 tokens… · 12.3k in, 240 out · $0.0123"]);
        let summary = stage.scene.summary(stage.view.now).text();
        assert_eq!(
            summary,
            "1.2 s · 1 request · 12,345 tokens in (2,000 cached), 240 out · $0.0123"
        );
    }

    #[test]
    fn a_sub_agent_goes_on_under_its_own_name() {
        let said = |text: &'static str| Event::ToolOutput { call: "1", text };
        let report = User {
            id: "turn-spawn1".into(),
            injected: true,
            ..User::default()
        };
        Stage::new(false)
            .call("1", "spawn", json!({ "task": "look", "label": "look" }))
            .result(
                "1",
                "spawn",
                "started as `spawn1`; its report comes as a message",
                Outcome::Ok,
            )
            .kept(&[])
            .tell(said("spawn1: read_file(\"a\"): ok\n"))
            .after(2000)
            .foot(&["spawn1 look  2 s  read_file(\"a\"): ok", "2 s"])
            .tell(said("spawn1: is done\n"))
            .tell(Event::User(&report))
            .kept(&["  ✓ spawn1 look  2.0 s, is done"])
            .foot(&["2 s"]);
    }
}
