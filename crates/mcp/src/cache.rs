//! An on-disk cache of the features of servers, and of recent connection failures.
//!
//! With cached features, a run that calls none of a server's tools does not start the server. With a cached failure, a
//! dead server does not cost each run its timeout. The cache is optional: if it cannot be read or written, the server
//! is asked.

use super::fingerprint;
use super::protocol::ServerFeatures;
use anyhow::{Context, Result};
use nanobot_config::settings::servers::McpServer;
use nanobot_os::clock::Clock;
use nanobot_os::durable_file;
use nanobot_os::env::Env;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The version of the file format.
const FORMAT_VERSION: u64 = 1;
/// Lifetime of cached features, in seconds. Calls renew it; the features of a server that is never called expire.
const FEATURES_LIFETIME_SECS: i64 = 30 * 24 * 3600;
/// Lifetime of a cached failure, in seconds.
const FAILURE_LIFETIME_SECS: i64 = 600;
/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// File name suffix for the features of servers that may ask the user (elicitation).
const ELICITATION_SUFFIX: &str = "-asked";
/// Maximum of characters of the server's name in a file name.
const MAX_NAME_CHARS: usize = 40;

/// The cache of features and failures.
#[derive(Clone, Debug)]
pub struct McpCache {
    dir: PathBuf,
    clock: Clock,
    env: Env,
    /// True if servers may ask the user (elicitation). They may offer more then, so such features are cached separately.
    with_elicitation: bool,
}

/// A cached result for one server.
#[derive(Clone, Debug, PartialEq)]
pub enum CachedResult {
    Features(ServerFeatures),
    /// The server could not be reached, `age_secs` seconds ago.
    Failed {
        message: String,
        age_secs: i64,
    },
}

#[derive(Serialize, Deserialize)]
struct CacheFile {
    #[serde(rename = "v")]
    version: u64,
    /// Seconds since 1970.
    #[serde(rename = "when")]
    stored_at: i64,
    #[serde(rename = "offer", skip_serializing_if = "Option::is_none")]
    features: Option<ServerFeatures>,
    #[serde(rename = "failed", skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

impl McpCache {
    /// Opens the cache in `mcp_dir`, our directory for MCP servers.
    pub fn new(mcp_dir: &Path, clock: &Clock, env: &Env) -> Self {
        Self {
            dir: mcp_dir.join("cache"),
            clock: clock.clone(),
            env: env.clone(),
            with_elicitation: false,
        }
    }

    /// Selects the features that servers have when they may ask the user, if `with_elicitation` is true.
    pub(crate) fn with_elicitation(self, with_elicitation: bool) -> Self {
        Self { with_elicitation, ..self }
    }

    /// Returns the cached result for `server`, if its configuration and its program are unchanged.
    pub fn get(&self, server: &McpServer) -> Option<CachedResult> {
        self.read(server).map(|(result, _)| result)
    }

    /// Like [`Self::get`], for the later one of the results with and without elicitation.
    pub fn get_latest(&self, server: &McpServer) -> Option<CachedResult> {
        let read = |with_elicitation| self.clone().with_elicitation(with_elicitation).read(server);
        let results = [false, true].into_iter().filter_map(read);
        results.min_by_key(|(_, age_secs)| *age_secs).map(|(result, _)| result)
    }

    /// The cached result, with its age in seconds.
    fn read(&self, server: &McpServer) -> Option<(CachedResult, i64)> {
        let path = self.path(server);
        let mut text = Vec::new();
        let file = durable_file::open_existing(&path).ok()??;
        file.take(MAX_FILE_BYTES).read_to_end(&mut text).ok()?;
        let CacheFile { version, stored_at, features, failure } =
            serde_json::from_slice(&text).ok()?;
        let age_secs = self.now().checked_sub(stored_at)?;
        let is_valid = |lifetime_secs: i64| {
            version == FORMAT_VERSION && (0..lifetime_secs).contains(&age_secs)
        };
        let result = match (features, failure) {
            (Some(features), _) if is_valid(FEATURES_LIFETIME_SECS) => {
                CachedResult::Features(features)
            }
            (None, Some(message)) if is_valid(FAILURE_LIFETIME_SECS) => {
                CachedResult::Failed { message, age_secs }
            }
            _ => return None,
        };
        Some((result, age_secs))
    }

    /// Caches the features of `server`.
    pub fn store(&self, server: &McpServer, features: &ServerFeatures) {
        self.write(server, Some(features.clone()), None);
    }

    /// Caches the reason why `server` could not be reached, in the place of its features.
    pub(crate) fn store_failure(&self, server: &McpServer, message: &str) {
        self.write(server, None, Some(message.to_owned()));
    }

    /// Removes all cached results for the server `name`, for any configuration of it.
    pub fn remove(&self, name: &str) {
        self.remove_files(name, None);
    }

    fn write(&self, server: &McpServer, features: Option<ServerFeatures>, failure: Option<String>) {
        let cache_file =
            CacheFile { version: FORMAT_VERSION, stored_at: self.now(), features, failure };
        let path = self.path(server);
        let write = || -> Result<()> {
            durable_file::create_dir(&self.dir)?;
            let text = serde_json::to_vec(&cache_file).context("serialize the cached features")?;
            durable_file::replace(&path, &text)
        };
        match write() {
            Ok(()) => self.remove_files(&server.name, Some(&path)),
            Err(error) => {
                log::info!(target: "mcp", "cannot write the cache of `{}`: {error:#}", server.name);
            }
        }
    }

    /// Removes the files of the server `name`, except for `except` and, if that is given, those of the other mode of
    /// elicitation.
    fn remove_files(&self, name: &str, except: Option<&Path>) {
        let prefix = file_prefix(name);
        for entry in std::fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_of_server = entry.file_name().to_string_lossy().starts_with(&prefix);
            let is_same_mode =
                except.is_none() || is_with_elicitation(&path) == self.with_elicitation;
            if is_of_server && is_same_mode && Some(&*path) != except {
                // A file that remains does no harm.
                drop(std::fs::remove_file(path));
            }
        }
    }

    fn path(&self, server: &McpServer) -> PathBuf {
        let prefix = file_prefix(&server.name);
        let fingerprint = fingerprint::of_server(server, &self.env);
        let suffix = if self.with_elicitation { ELICITATION_SUFFIX } else { "" };
        self.dir.join(format!("{prefix}{fingerprint}{suffix}.json"))
    }

    fn now(&self) -> i64 {
        self.clock.timestamp().as_second()
    }
}

/// True if `file` holds the features of a server that may ask the user.
fn is_with_elicitation(file: &Path) -> bool {
    let stem = file.file_stem().and_then(|stem| stem.to_str());
    stem.is_some_and(|stem| stem.ends_with(ELICITATION_SUFFIX))
}

/// The file name prefix that is unique to a server.
fn file_prefix(name: &str) -> String {
    let to_plain =
        |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    let short_name: String = name.chars().take(MAX_NAME_CHARS).map(to_plain).collect();
    format!("{short_name}-{}", fingerprint::short_hash(name))
}

#[cfg(test)]
mod tests {
    use super::{CachedResult, McpCache};
    use crate::protocol::{ServerFeatures, ToolInfo};
    use nanobot_config::settings::servers::{McpServer, RemoteEndpoint, ServerTransport};
    use nanobot_os::clock::Clock;
    use nanobot_os::env::Env;
    use std::path::Path;

    fn server(name: &str, url: &str) -> McpServer {
        McpServer {
            name: name.into(),
            transport: ServerTransport::Http(RemoteEndpoint {
                url: url.into(),
                headers: Vec::new(),
                uses_login: false,
            }),
            ..McpServer::default()
        }
    }

    fn cache(folder: &Path, time: &str) -> McpCache {
        let env: Env = [("HOME", "/h")].into_iter().collect();
        McpCache::new(folder, &Clock::Fixed(time.parse().unwrap()), &env)
    }

    #[test]
    fn features_and_failures_expire() {
        let temp = tempfile::tempdir().unwrap();
        let at = |time: &str| cache(temp.path(), time);
        let a = server("a/b", "http://a/");
        let features = ServerFeatures {
            server: "x".into(),
            tools: vec![ToolInfo::default()],
            ..ServerFeatures::default()
        };
        assert_eq!(at("2026-01-01T00:00:00Z").get(&a), None);
        at("2026-01-01T00:00:00Z").store_failure(&a, "no");
        let failure = |ago| CachedResult::Failed { message: "no".into(), age_secs: ago };
        assert_eq!(at("2026-01-01T00:09:59Z").get(&a), Some(failure(599)));
        assert_eq!(at("2026-01-01T00:10:00Z").get(&a), None);
        assert_eq!(at("2025-12-31T23:59:59Z").get(&a), None, "from the future");
        at("2026-01-01T00:00:00Z").store(&a, &features);
        let cached = Some(CachedResult::Features(features));
        assert_eq!(at("2026-01-20T00:00:00Z").get(&a), cached);
        assert_eq!(at("2026-02-20T00:00:00Z").get(&a), None);
        assert_eq!(at("2026-01-20T00:00:00Z").get(&server("a/b", "http://b/")), None);
    }

    #[test]
    fn the_latest_result_is_that_of_either_mode() {
        let temp = tempfile::tempdir().unwrap();
        let at = |time: &str| cache(temp.path(), time);
        let a = server("a", "http://a/");
        let features = ServerFeatures { server: "x".into(), ..ServerFeatures::default() };
        at("2026-01-01T00:00:00Z").with_elicitation(true).store(&a, &features);
        let now = at("2026-01-01T00:05:00Z");
        assert_eq!(now.get(&a), None);
        assert_eq!(now.get_latest(&a), Some(CachedResult::Features(features)));
        now.store_failure(&a, "no");
        let failure = CachedResult::Failed { message: "no".into(), age_secs: 0 };
        assert_eq!(now.get_latest(&a), Some(failure));
    }

    #[test]
    fn old_files_of_a_server_are_removed() {
        let temp = tempfile::tempdir().unwrap();
        let cache = cache(temp.path(), "2026-01-01T00:00:00Z");
        let count = || std::fs::read_dir(temp.path().join("cache")).unwrap().count();
        let features = ServerFeatures::default();
        cache.store(&server("a", "http://1/"), &features);
        cache.store(&server("a-b", "http://1/"), &features);
        cache.store(&server("a", "http://2/"), &features);
        assert_eq!(count(), 2);
        cache.remove("a");
        assert_eq!(count(), 1);
        assert!(cache.get(&server("a-b", "http://1/")).is_some());
        for file in std::fs::read_dir(temp.path().join("cache")).unwrap() {
            std::fs::write(file.unwrap().path(), "{ half").unwrap();
        }
        assert_eq!(cache.get(&server("a-b", "http://1/")), None);
        let old = r#"{"v":1,"when":-9223372036854775808,"failed":"x"}"#;
        std::fs::write(cache.path(&server("a-b", "http://1/")), old).unwrap();
        assert_eq!(cache.get(&server("a-b", "http://1/")), None);
    }
}
