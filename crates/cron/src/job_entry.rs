//! Converts a job between its entry in the job file and a [`Job`]; keys that we do not know are preserved. Releases
//! of the Python program spell keys in camelCase or snake_case; each key keeps its spelling.

use super::expression::Expression;
use super::job::{Delivery, Job, JobState};
use super::schedule::Schedule;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The kind of the schedule of a job that runs after another one.
const AFTER_KIND: &str = "after";
/// Maximum characters of a name.
const MAX_NAME_CHARS: usize = 200;

/// Converts `value` to a job, without the options that only this program stores.
pub(super) fn to_job(value: &Value) -> Job {
    let id = get_text(value, "id").unwrap_or_default();
    let payload = &value["payload"];
    let schedule = &value["schedule"];
    let state = &value["state"];
    let time = |object: &Value, key: &str| {
        get_millis(object, key).and_then(|millis| Timestamp::from_millisecond(millis).ok())
    };
    let created = time(value, "createdAtMs").unwrap_or_default();
    let kind = get_text(payload, "kind").unwrap_or_else(|| "agent_turn".into());
    Job {
        name: display_name(value).unwrap_or_else(|| id.clone()),
        enabled: value["enabled"].as_bool().unwrap_or(true),
        schedule: match kind.as_str() {
            "agent_turn" => parse_schedule(schedule),
            _ => Err(format!("it is an internal job of the Python program (`{kind}`)")),
        },
        message: get_text(payload, "message").unwrap_or_default(),
        delivery: Delivery {
            deliver: payload["deliver"].as_bool().unwrap_or(false),
            channel: get_text(payload, "channel"),
            to: get_text(payload, "to"),
        },
        session: get_text(payload, "sessionKey"),
        created,
        state: JobState {
            next_run: time(state, "nextRunAtMs"),
            last_run: time(state, "lastRunAtMs"),
            last_status: get_text(state, "lastStatus"),
            last_error: get_text(state, "lastError"),
        },
        delete_after_run: get(value, "deleteAfterRun").as_bool().unwrap_or(false),
        options: None,
        predecessor: None,
        id,
    }
}

/// True if `value` is the job `id`.
pub(super) fn has_id(value: &Value, id: &str) -> bool {
    get_text(value, "id").as_deref() == Some(id)
}

/// Returns a job's name on one line, without characters that a terminal or a command would misinterpret.
fn display_name(value: &Value) -> Option<String> {
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    let name: String = get_text(value, "name")?.chars().map(plain).take(MAX_NAME_CHARS).collect();
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    (!name.is_empty()).then_some(name)
}

/// Returns a value by its key in either spelling.
fn get<'a>(object: &'a Value, key: &str) -> &'a Value {
    match &object[key] {
        Value::Null => &object[to_snake_case(key).as_str()],
        value => value,
    }
}

/// Converts `camelCase` to `snake_case`; newer releases accept both.
fn to_snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

pub(super) fn get_text(value: &Value, key: &str) -> Option<String> {
    let text = get(value, key).as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

/// Reads milliseconds, which some releases write as a string.
fn get_millis(value: &Value, key: &str) -> Option<i64> {
    let millis = get(value, key);
    millis
        .as_i64()
        .or_else(|| millis.as_f64().map(|number| number as i64))
        .or_else(|| millis.as_str()?.parse().ok())
}

pub(super) fn parse_period(millis: i64) -> Result<Schedule, String> {
    match u64::try_from(millis) {
        Ok(millis) if millis > 0 => Ok(Schedule::Every(Duration::from_millis(millis))),
        _ => Err("its interval is not positive".into()),
    }
}

fn parse_schedule(value: &Value) -> Result<Schedule, String> {
    match value["kind"].as_str() {
        Some("every") => parse_period(get_millis(value, "everyMs").unwrap_or_default()),
        Some("at") => {
            let time = get_millis(value, "atMs")
                .and_then(|millis| Timestamp::from_millisecond(millis).ok());
            time.map(Schedule::At).ok_or("it has no time".into())
        }
        Some("cron") => {
            let text = get_text(value, "expr").ok_or("it has no expression")?;
            let expression =
                Expression::parse(&text).map_err(|error| format!("invalid expression: {error}"))?;
            Ok(Schedule::Cron { expression, zone: get_text(value, "tz") })
        }
        // The store sets the id.
        Some(AFTER_KIND) => Ok(Schedule::After(String::new())),
        Some(kind) => Err(format!("unknown schedule kind `{kind}`")),
        None => Err("it has no schedule".into()),
    }
}

/// Updates `value` from `job`; unknown keys are preserved.
pub(super) fn update_entry(value: &mut Value, job: &Job, now: Timestamp) {
    let millis = |time: Option<Timestamp>| json!(time.map(Timestamp::as_millisecond));
    value["id"] = json!(job.id);
    if display_name(value).as_ref() != Some(&job.name) {
        value["name"] = json!(job.name);
    }
    value["enabled"] = json!(job.enabled);
    if let Ok(schedule) = &job.schedule {
        let (kind, at_ms, every_ms, expr, tz) = match schedule {
            Schedule::At(time) => {
                ("at", millis(Some(*time)), Value::Null, Value::Null, Value::Null)
            }
            Schedule::Every(period) => {
                let every_ms = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
                ("every", Value::Null, json!(every_ms), Value::Null, Value::Null)
            }
            Schedule::Cron { expression, zone } => {
                ("cron", Value::Null, Value::Null, json!(expression.text()), json!(zone))
            }
            // The Python program never runs a job of a kind that it does not know. The id is in our own options.
            Schedule::After(_) => (AFTER_KIND, Value::Null, Value::Null, Value::Null, Value::Null),
        };
        let object = ensure_object(&mut value["schedule"]);
        set_key(object, "kind", json!(kind));
        set_key(object, "atMs", at_ms);
        set_key(object, "everyMs", every_ms);
        set_key(object, "expr", expr);
        set_key(object, "tz", tz);
    }
    let payload = ensure_object(&mut value["payload"]);
    payload.entry("kind").or_insert(json!("agent_turn"));
    set_key(payload, "message", json!(job.message));
    set_key(payload, "deliver", json!(job.delivery.deliver));
    set_key(payload, "channel", json!(job.delivery.channel));
    set_key(payload, "to", json!(job.delivery.to));
    if job.session.is_some() || payload.contains_key("sessionKey") {
        set_key(payload, "sessionKey", json!(job.session));
    }
    let state = ensure_object(&mut value["state"]);
    set_key(state, "nextRunAtMs", millis(job.state.next_run));
    set_key(state, "lastRunAtMs", millis(job.state.last_run));
    set_key(state, "lastStatus", json!(job.state.last_status));
    set_key(state, "lastError", json!(job.state.last_error));
    if let Some(value) = value.as_object_mut() {
        set_key(value, "createdAtMs", millis(Some(job.created)));
        set_key(value, "updatedAtMs", millis(Some(now)));
        set_key(value, "deleteAfterRun", json!(job.delete_after_run));
    }
}

/// Sets a key in the spelling that it already has.
fn set_key(object: &mut Map<String, Value>, key: &str, value: Value) {
    let snake_case = to_snake_case(key);
    let has_snake_case = object.contains_key(&snake_case) && !object.contains_key(key);
    object.insert(if has_snake_case { snake_case } else { key.to_owned() }, value);
}

fn ensure_object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(object) => object,
        _ => unreachable!("it was replaced by an object"),
    }
}
