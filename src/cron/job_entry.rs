//! Converts a job between its entry in the job file and a [`Job`]; keys that we do not know are preserved. Releases
//! of the Python program spell keys in camelCase or snake_case; each key keeps its spelling.

use super::expression::Expression;
use super::job::{Delivery, Job, State};
use super::schedule::Schedule;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Maximum characters of a name.
const MAX_NAME_CHARS: usize = 200;

/// Converts `value` to a job, without the options that only this program stores.
pub(super) fn to_job(value: &Value) -> Job {
    let id = text(value, "id").unwrap_or_default();
    let payload = either(value, "payload", "payload");
    let schedule = either(value, "schedule", "schedule");
    let state = either(value, "state", "state");
    let time =
        |of: &Value, key: &str| millis(of, key).and_then(|at| Timestamp::from_millisecond(at).ok());
    let created = time(value, "createdAtMs").unwrap_or_default();
    let kind = text(payload, "kind").unwrap_or_else(|| "agent_turn".into());
    Job {
        name: name_of(value).unwrap_or_else(|| id.clone()),
        enabled: either(value, "enabled", "enabled")
            .as_bool()
            .unwrap_or(true),
        schedule: match kind.as_str() {
            "agent_turn" => schedule_of(schedule),
            _ => Err(format!(
                "it is an internal job of the Python program (`{kind}`)"
            )),
        },
        message: text(payload, "message").unwrap_or_default(),
        delivery: Delivery {
            deliver: payload["deliver"].as_bool().unwrap_or(false),
            channel: text(payload, "channel"),
            to: text(payload, "to"),
        },
        session: text(payload, "sessionKey"),
        created,
        state: State {
            next_run: time(state, "nextRunAtMs"),
            last_run: time(state, "lastRunAtMs"),
            last_status: text(state, "lastStatus"),
            last_error: text(state, "lastError"),
        },
        delete_after_run: either(value, "deleteAfterRun", "delete_after_run")
            .as_bool()
            .unwrap_or(false),
        terms: None,
        id,
    }
}

/// True if `value` is the job `id`.
pub(super) fn is(value: &Value, id: &str) -> bool {
    text(value, "id").as_deref() == Some(id)
}

/// Returns a job's name on one line, without characters that a terminal or a command would misinterpret.
fn name_of(value: &Value) -> Option<String> {
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    let name: String = text(value, "name")?
        .chars()
        .map(plain)
        .take(MAX_NAME_CHARS)
        .collect();
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    (!name.is_empty()).then_some(name)
}

/// Returns a value by either of its names.
fn either<'a>(value: &'a Value, name: &str, other: &str) -> &'a Value {
    match &value[name] {
        Value::Null => &value[other],
        found => found,
    }
}

/// Converts `camelCase` to `snake_case`; newer releases accept both.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

pub(super) fn text(value: &Value, key: &str) -> Option<String> {
    let text = either(value, key, &snake(key)).as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

/// Reads milliseconds, which some releases write as a string.
fn millis(value: &Value, key: &str) -> Option<i64> {
    let found = either(value, key, &snake(key));
    found
        .as_i64()
        .or_else(|| found.as_f64().map(|number| number as i64))
        .or_else(|| found.as_str()?.parse().ok())
}

pub(super) fn every(millis: i64) -> Result<Schedule, String> {
    match u64::try_from(millis) {
        Ok(millis) if millis > 0 => Ok(Schedule::Every(Duration::from_millis(millis))),
        _ => Err("its interval is not positive".into()),
    }
}

fn schedule_of(value: &Value) -> Result<Schedule, String> {
    match value["kind"].as_str() {
        Some("every") => every(millis(value, "everyMs").unwrap_or_default()),
        Some("at") => {
            let time = millis(value, "atMs").and_then(|at| Timestamp::from_millisecond(at).ok());
            time.map(Schedule::At).ok_or("it has no time".into())
        }
        Some("cron") => {
            let expression = text(value, "expr").ok_or("it has no expression")?;
            let parsed = Expression::parse(&expression)
                .map_err(|error| format!("invalid expression: {error}"))?;
            Ok(Schedule::Cron {
                expression: parsed,
                zone: text(value, "tz"),
            })
        }
        Some(kind) => Err(format!("unknown schedule kind `{kind}`")),
        None => Err("it has no schedule".into()),
    }
}

/// Updates `value` from `job`; unknown keys are preserved.
pub(super) fn fill(value: &mut Value, job: &Job, now: Timestamp) {
    let at = |time: Option<Timestamp>| json!(time.map(Timestamp::as_millisecond));
    value["id"] = json!(job.id);
    if name_of(value).as_ref() != Some(&job.name) {
        value["name"] = json!(job.name);
    }
    value["enabled"] = json!(job.enabled);
    if let Ok(schedule) = &job.schedule {
        let place = object(&mut value["schedule"]);
        let (kind, at_ms, every_ms, expression, zone) = match schedule {
            Schedule::At(time) => ("at", at(Some(*time)), Value::Null, Value::Null, Value::Null),
            Schedule::Every(period) => {
                let millis = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
                (
                    "every",
                    Value::Null,
                    json!(millis),
                    Value::Null,
                    Value::Null,
                )
            }
            Schedule::Cron { expression, zone } => (
                "cron",
                Value::Null,
                Value::Null,
                json!(expression.text()),
                json!(zone),
            ),
        };
        set(place, "kind", json!(kind));
        set(place, "atMs", at_ms);
        set(place, "everyMs", every_ms);
        set(place, "expr", expression);
        set(place, "tz", zone);
    }
    let payload = object(&mut value["payload"]);
    payload.entry("kind").or_insert(json!("agent_turn"));
    set(payload, "message", json!(job.message));
    set(payload, "deliver", json!(job.delivery.deliver));
    set(payload, "channel", json!(job.delivery.channel));
    set(payload, "to", json!(job.delivery.to));
    if job.session.is_some() || payload.contains_key("sessionKey") {
        set(payload, "sessionKey", json!(job.session));
    }
    let state = object(&mut value["state"]);
    set(state, "nextRunAtMs", at(job.state.next_run));
    set(state, "lastRunAtMs", at(job.state.last_run));
    set(state, "lastStatus", json!(job.state.last_status));
    set(state, "lastError", json!(job.state.last_error));
    if let Some(value) = value.as_object_mut() {
        set(value, "createdAtMs", at(Some(job.created)));
        set(value, "updatedAtMs", at(Some(now)));
        set(value, "deleteAfterRun", json!(job.delete_after_run));
    }
}

/// Sets a key in the spelling that it already has.
fn set(place: &mut Map<String, Value>, key: &str, value: Value) {
    let other = snake(key);
    let name = match place.contains_key(&other) && !place.contains_key(key) {
        true => &other,
        false => key,
    };
    place.insert(name.to_owned(), value);
}

fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(object) => object,
        _ => unreachable!("it was made an object"),
    }
}
