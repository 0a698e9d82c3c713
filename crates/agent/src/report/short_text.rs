//! Formats calls, refusals, times and sizes as short one-line texts.

use jiff::Timestamp;
use nanobot_base::event::Denial;
use nanobot_base::message::{MessagePart, plain_text};
use nanobot_base::patch::{self, FilePatch};
use nanobot_config::policy::tool_names::{APPLY_PATCH, find_built_in};
use nanobot_os::durable_file::format_size;
use serde_json::Value;
use std::time::Duration;

/// Maximum characters of the reason of a denial.
const MAX_REASON_CHARS: usize = 300;
/// Maximum characters of the lines that are joined; no window is wider.
const MAX_JOINED_CHARS: usize = 400;

/// Formats a denial on one line, with the flag that would have allowed the call. The first paragraph of its message is the
/// reason; the output of a command may follow.
pub fn format_denial(denial: &Denial) -> String {
    let reason = denial.message.split("\n\n").next().unwrap_or_default();
    let mut line =
        format!("denied: {}: {}", denial.tool_name, truncate_line(reason, MAX_REASON_CHARS));
    // A reason that is cut may have lost the flag.
    let is_cut = reason.chars().count() > MAX_REASON_CHARS;
    if let Some(flag) = &denial.suggested_flag
        && (is_cut || !denial.names_flag)
    {
        line.push_str(&format!("; `{flag}` would allow it"));
    }
    // A name may contain a line break, which could forge a line of output.
    line.replace(['\n', '\r'], "␊")
}

/// Describes a call in a few words: its name, and its first argument if that is text.
pub fn call_hint(name: &str, arguments: &Value) -> String {
    call_hint_within(name, arguments, 60)
}

/// Like [`call_hint`], with the first `limit` characters of the argument.
pub fn call_hint_within(name: &str, arguments: &Value, limit: usize) -> String {
    match arguments.as_object().and_then(|object| object.values().next()).and_then(Value::as_str) {
        Some(text) => format!("{name}(\"{}\")", truncate_line(text, limit)),
        None => name.to_owned(),
    }
}

/// Returns the first `limit` characters of `text` on one line.
pub fn truncate_line(text: &str, limit: usize) -> String {
    let line = text.replace(['\n', '\r'], " ");
    match line.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Returns the identifying arguments of a call: of tools that are not built in, the first text.
pub fn identifying_arguments(name: &str, arguments: &Value) -> String {
    let text = |key: &&str| arguments[*key].as_str().map(str::to_owned);
    if name == APPLY_PATCH {
        let patch = text(&"patch").unwrap_or_default();
        let sections = patch::parse(&patch).unwrap_or_default();
        let paths: Vec<&str> = sections.iter().map(FilePatch::path).collect();
        return paths.join(" ");
    }
    let line = match find_built_in(name) {
        Some(tool) => tool.identified_by.iter().find_map(|keys| {
            let texts: Vec<String> = keys.iter().filter_map(text).collect();
            (!texts.is_empty()).then(|| texts.join(" "))
        }),
        None => arguments
            .as_object()
            .and_then(|arguments| arguments.values().find_map(Value::as_str))
            .map(str::to_owned),
    };
    join_lines(line.as_deref().unwrap_or_default())
}

/// Returns the lines of `text` in one, as much as a line of the window can show.
fn join_lines(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let joined = lines.collect::<Vec<_>>().join(" ⏎ ");
    truncate_line(&joined, MAX_JOINED_CHARS)
}

/// Returns the first non-blank line, with a mark if more follow.
pub(super) fn first_line(text: &str) -> String {
    let text = text.trim();
    match text.split_once('\n') {
        Some((first, _)) => format!("{} …", first.trim_end()),
        None => text.to_owned(),
    }
}

/// Describes the size of a tool's result.
pub(super) fn describe_size(parts: &[MessagePart]) -> String {
    let text = plain_text(parts);
    let others = parts.iter().filter(|part| !matches!(part, MessagePart::Text(_)));
    let bytes = format_size(text.len() as u64);
    match (text.lines().count(), others.count()) {
        (0, 0) => "nothing".into(),
        (0, 1) => "an image".into(),
        (0 | 1, _) => bytes,
        (lines, _) => format!("{} lines, {bytes}", group_thousands(lines as u64)),
    }
}

/// Formats an elapsed time.
pub(super) fn format_elapsed(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{} ms", duration.as_millis()),
        1..60 => format!("{:.1} s", duration.as_secs_f64()),
        _ => format_running_time(duration),
    }
}

/// Formats a running time in whole seconds.
pub(super) fn format_running_time(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Formats a count with separated thousands.
pub fn group_thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun, such as `1 message`.
pub fn count_noun(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Formats the age of `time` as a single number with its unit.
pub fn format_age(time: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(time).as_secs();
    match (seconds / 60, seconds / 3600, seconds / 86_400) {
        (..=0, _, _) => "now".into(),
        (minutes, ..=0, _) => format!("{minutes}m"),
        (_, hours, ..=0) => format!("{hours}h"),
        (_, _, days @ ..730) => format!("{days}d"),
        (_, _, days) => format!("{}y", days / 365),
    }
}

/// Rounds a count for a line that changes constantly.
pub(super) fn abbreviate_count(count: u64) -> String {
    match count {
        0..1000 => count.to_string(),
        1000..1_000_000 => format!("{:.1}k", count as f64 / 1e3),
        _ => format!("{:.1}M", count as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        abbreviate_count, call_hint, count_noun, describe_size, format_age, format_denial,
        format_elapsed, format_running_time, group_thousands, identifying_arguments,
    };
    use nanobot_base::event::Denial;
    use nanobot_base::message::MessagePart;
    use serde_json::{Value, json};
    use std::time::Duration;

    #[test]
    fn a_call_is_hinted_by_its_first_text() {
        assert_eq!(
            call_hint("read_file", &json!({"path": "a.md", "limit": 3})),
            "read_file(\"a.md\")"
        );
        assert_eq!(call_hint("list", &json!({})), "list");
        assert_eq!(call_hint("exec", &json!({"command": "a\nb"})), "exec(\"a b\")");
        assert_eq!(
            call_hint("exec", &json!({"command": "x".repeat(61)})),
            format!("exec(\"{}…\")", "x".repeat(60))
        );
    }

    #[test]
    fn a_call_is_told_by_what_tells_it_from_others() {
        let check = |name: &str, arguments: Value, expect: &str| {
            assert_eq!(identifying_arguments(name, &arguments), expect, "{name}");
        };
        check("read_file", json!({ "limit": 3, "path": "a.md" }), "a.md");
        check("write_file", json!({ "content": "x", "path": "a.md" }), "a.md");
        check("grep", json!({ "path": "src", "pattern": "fn" }), "fn src");
        check("grep", json!({ "pattern": "fn" }), "fn");
        check("exec", json!({ "command": "set -e\n\n  make test\n" }), "set -e ⏎ make test");
        check("exec", json!({ "command": "\n make \n" }), "make");
        check("web_search", json!({ "count": 3, "query": "rust" }), "rust");
        check("spawn", json!({ "task": "look around", "label": "look" }), "look");
        check("spawn", json!({ "task": "look around" }), "look around");
        check("cron", json!({ "action": "list" }), "list");
        check("cron", json!({ "action": "remove", "job": "tea" }), "remove tea");
        check("todo", json!({ "items": "x" }), "");
        let patch = "*** Begin Patch\n*** Delete File: a\n*** Update File: b\n-x\n*** End Patch";
        check("apply_patch", json!({ "patch": patch }), "a b");
        check("apply_patch", json!({ "patch": "-x" }), "");
        check("mcp_thing", json!({ "n": 1, "what": "that" }), "that");
        check("mcp_thing", json!({}), "");
        check("mcp_thing", Value::Null, "");
        check("read_file", json!({ "path": 7 }), "");
    }

    #[test]
    fn a_denial_names_its_flag_once() {
        let line = |message: &str, names_flag: bool| {
            format_denial(&Denial {
                call_id: String::new(),
                tool_name: "exec".into(),
                message: message.into(),
                suggested_flag: Some("--net".into()),
                names_flag,
            })
        };
        assert_eq!(
            line("no network; grant `--net`", true),
            "denied: exec: no network; grant `--net`"
        );
        assert_eq!(
            line("refused\n\noutput", false),
            "denied: exec: refused; `--net` would allow it"
        );
        assert!(line(&"x".repeat(301), true).ends_with("…; `--net` would allow it"));
    }

    #[test]
    fn sizes_and_times_are_short() {
        let text = |text: &str| describe_size(&[MessagePart::Text(text.into())]);
        assert_eq!(text(""), "nothing");
        assert_eq!(text("done"), "4 B");
        assert_eq!(text("a\nb\n"), "2 lines, 4 B");
        assert_eq!(format_elapsed(Duration::from_millis(12)), "12 ms");
        assert_eq!(format_elapsed(Duration::from_millis(1250)), "1.2 s");
        assert_eq!(format_elapsed(Duration::from_secs(61)), "1 min 1 s");
        assert_eq!(format_running_time(Duration::from_millis(900)), "0 s");
        assert_eq!(format_running_time(Duration::from_secs(3660)), "1 h 1 min");
        assert_eq!(group_thousands(1_234_567), "1,234,567");
        assert_eq!(group_thousands(123), "123");
        assert_eq!(count_noun(1, "message"), "1 message");
        assert_eq!(count_noun(0, "message"), "0 messages");
        assert_eq!(abbreviate_count(999), "999");
        assert_eq!(abbreviate_count(12_345), "12.3k");
        assert_eq!(abbreviate_count(2_500_000), "2.5M");
    }

    #[test]
    fn ages_are_one_number() {
        let check = |used: &str, expect: &str| {
            let now = "2026-03-01T12:00:00Z".parse().unwrap();
            assert_eq!(format_age(used.parse().unwrap(), now), expect, "{used}");
        };
        check("2026-03-01T12:00:10Z", "now");
        check("2026-03-01T11:59:01Z", "now");
        check("2026-03-01T11:59:00Z", "1m");
        check("2026-03-01T10:00:01Z", "1h");
        check("2026-02-28T12:00:00Z", "1d");
        check("2024-03-02T12:00:00Z", "729d");
        check("2024-03-01T12:00:00Z", "2y");
    }
}
