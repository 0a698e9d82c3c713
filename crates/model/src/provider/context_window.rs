//! The context window of a model on a local server, as the server reports it. Its user chooses the window when the model
//! is loaded, so no table knows it. The report is stored in a file, and requested again after a day.

use anyhow::Result;
use nanobot_net::http::{Http, HttpMethod};
use nanobot_os::clock::Clock;
use nanobot_os::durable_file;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// The age at which a report is outdated.
const MAX_REPORT_AGE: Duration = Duration::from_hours(24);

/// Maximum number of bytes read of a report. Ollama's include the model's licence and template.
const MAX_REPORT_BYTES: u64 = 4 << 20;

/// The report of one server about one model, on disk.
pub struct WindowReport {
    pub path: PathBuf,
    pub clock: Clock,
}

impl WindowReport {
    /// The context window in tokens, if the server has reported it.
    pub fn tokens(&self) -> Option<u32> {
        self.read().map(|(tokens, _)| tokens).filter(|tokens| *tokens > 0)
    }

    /// Calls `ask` and stores its result, unless the report is recent. The answer of a server that does not know its window is
    /// stored too, as 0; a server that cannot be reached is asked again.
    pub fn update(&self, ask: impl FnOnce() -> Result<Option<u32>>) {
        let now = self.clock.timestamp().as_second();
        let is_recent = |reported_at: i64| {
            let age = now.checked_sub(reported_at).and_then(|age| u64::try_from(age).ok());
            age.is_some_and(|age| age < MAX_REPORT_AGE.as_secs())
        };
        if self.read().is_some_and(|(_, reported_at)| is_recent(reported_at)) {
            return;
        }
        let stored = ask().and_then(|tokens| {
            let line = format!("{} {now}\n", tokens.unwrap_or(0));
            self.path.parent().map_or(Ok(()), durable_file::create_dir)?;
            durable_file::replace(&self.path, line.as_bytes())
        });
        if let Err(error) = stored {
            log::info!(target: "model", "the context window is not known: {error:#}");
        }
    }

    /// The reported tokens, 0 if the server does not know them, and the time in Unix seconds.
    fn read(&self) -> Option<(u32, i64)> {
        let text = std::fs::read_to_string(&self.path).ok()?;
        let (tokens, reported_at) = text.trim().split_once(' ')?;
        Some((tokens.parse().ok()?, reported_at.parse().ok()?))
    }
}

/// Asks the server at `base_url` for the context window of `model`: for its properties (llama.cpp), the description of
/// the model (Ollama), and the list of models (vLLM). `None` if none of these has the window.
///
/// # Errors
/// The server cannot be reached.
pub fn ask_server(
    http: &Http,
    base_url: &str,
    headers: &[(String, String)],
    model: &str,
) -> Result<Option<u32>> {
    // The paths of the first two do not begin with the version.
    let root = base_url
        .rsplit_once("/v")
        .filter(|(_, version)| version.bytes().all(|byte| byte.is_ascii_digit()))
        .map_or(base_url, |(root, _)| root);
    let exchange = |url: &str, method: HttpMethod<'_>| -> Result<Option<Value>> {
        let response = http.exchange_json(url, headers, method, MAX_REPORT_BYTES)?;
        Ok((response.status == 200).then_some(response.body))
    };
    let properties = exchange(&format!("{root}/props"), HttpMethod::Get)?;
    let window = properties.and_then(|properties| window_in_properties(&properties));
    if window.is_some() {
        return Ok(window);
    }
    let body = json!({ "model": model }).to_string();
    let method = HttpMethod::Post("application/json", body.as_bytes());
    let description = exchange(&format!("{root}/api/show"), method)?;
    let window = description.and_then(|description| window_in_description(&description));
    if window.is_some() {
        return Ok(window);
    }
    let list = exchange(&format!("{base_url}/models"), HttpMethod::Get)?;
    Ok(list.and_then(|list| window_in_list(&list, model)))
}

/// The window in a list of models. A server with a single model serves it under any name.
fn window_in_list(list: &Value, model: &str) -> Option<u32> {
    let items = list["data"].as_array()?;
    let item = match items.as_slice() {
        [item] => item,
        items => items.iter().find(|item| item["id"] == model)?,
    };
    ["max_model_len", "context_length"].iter().find_map(|key| to_tokens(&item[*key]))
}

fn window_in_properties(properties: &Value) -> Option<u32> {
    to_tokens(&properties["default_generation_settings"]["n_ctx"])
        .or_else(|| to_tokens(&properties["n_ctx"]))
}

/// The window in the description of a model: the configured one, or else that of its architecture.
fn window_in_description(description: &Value) -> Option<u32> {
    let parameters = description["parameters"].as_str().unwrap_or_default();
    let configured = parameters.lines().find_map(|line| {
        let number = line.trim().strip_prefix("num_ctx")?.trim();
        number.parse().ok().filter(|tokens| *tokens > 0)
    });
    let of_architecture = || {
        let info = description["model_info"].as_object()?;
        let (_, tokens) = info.iter().find(|(name, _)| name.ends_with(".context_length"))?;
        to_tokens(tokens)
    };
    configured.or_else(of_architecture)
}

fn to_tokens(value: &Value) -> Option<u32> {
    let tokens = u32::try_from(value.as_u64()?).ok()?;
    (tokens > 0).then_some(tokens)
}

#[cfg(test)]
mod tests {
    use super::{WindowReport, window_in_description, window_in_list, window_in_properties};
    use nanobot_os::clock::Clock;
    use serde_json::json;

    #[test]
    fn a_report_is_recent_for_a_day_from_a_time_that_can_be() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::Fixed("2026-01-02T00:00:00Z".parse().unwrap());
        let report = WindowReport { path: folder.path().join("window"), clock };
        let now = report.clock.timestamp().as_second();
        for (reported_at, is_recent) in [
            (now, true),
            (now - 86_399, true),
            (now - 86_400, false),
            (now + 1, false),
            (i64::MIN, false),
        ] {
            std::fs::write(&report.path, format!("8192 {reported_at}\n")).unwrap();
            report.update(|| Ok(Some(4096)));
            let expect = if is_recent { 8192 } else { 4096 };
            assert_eq!(report.tokens(), Some(expect), "{reported_at}");
        }
    }

    #[test]
    fn reports_in_the_forms_of_servers() {
        let vllm = json!({ "object": "list", "data": [
            { "id": "a", "max_model_len": 8192 }, { "id": "b", "max_model_len": 4096 }, { "id": "c" }] });
        assert_eq!(window_in_list(&vllm, "b"), Some(4096));
        assert_eq!(window_in_list(&vllm, "c"), None);
        assert_eq!(window_in_list(&vllm, "d"), None);
        let single = json!({ "data": [{ "id": "a", "context_length": 16384 }] });
        assert_eq!(window_in_list(&single, "default"), Some(16384));
        assert_eq!(window_in_list(&json!({ "models": [] }), "a"), None);
        let llama = json!({ "default_generation_settings": { "n_ctx": 32768 }, "total_slots": 1 });
        assert_eq!(window_in_properties(&llama), Some(32768));
        assert_eq!(window_in_properties(&json!({ "error": "no" })), None);
        let info = json!({ "general.architecture": "qwen3", "qwen3.context_length": 40960 });
        let show = |parameters: &str| {
            window_in_description(&json!({ "parameters": parameters, "model_info": info }))
        };
        assert_eq!(show("temperature 1\nnum_ctx                        4096\n"), Some(4096));
        assert_eq!(show("stop \"x\""), Some(40960));
        assert_eq!(window_in_description(&json!({})), None);
    }
}
