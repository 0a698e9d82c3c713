//! An on-disk cache of what servers offer, and of recent connection failures.
//!
//! With a cached offer, a run that calls none of a server's tools does not start the server. With a cached failure, a
//! dead server does not cost each run its timeout. The cache is optional: if it cannot be read or written, the server
//! is asked.

use super::mark;
use super::offer::Offer;
use crate::settings::servers::Server;
use crate::sys::clock::Clock;
use crate::sys::env::Env;
use crate::sys::store;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The version of the file format.
const VERSION: u64 = 1;
/// Lifetime of a cached offer, in seconds. Calls renew it; the offer of a server that is never called expires.
const OFFER: i64 = 30 * 24 * 3600;
/// Lifetime of a cached failure, in seconds.
const FAILURE: i64 = 600;
/// The largest file that is read, in bytes.
const LARGEST: u64 = 64 << 20;
/// File name suffix for the offers of servers that may ask the user (elicitation).
const ASKED: &str = "-asked";
/// Maximum of characters of the server's name in a file name.
const NAME: usize = 40;

/// The cache of offers and failures.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
    clock: Clock,
    env: Env,
    /// True if servers may ask the user (elicitation). They may offer more then, so such offers are cached separately.
    asked: bool,
}

/// A cached result for one server.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    Offers(Offer),
    /// The server could not be reached, `age_secs` seconds ago.
    Failed {
        words: String,
        ago: i64,
    },
}

#[derive(Serialize, Deserialize)]
struct Written {
    v: u64,
    /// Seconds since 1970.
    when: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    offer: Option<Offer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

impl Cache {
    /// Opens the cache in `mcp_dir`, our directory for MCP servers.
    pub fn at(folder: &Path, clock: &Clock, env: &Env) -> Self {
        Self {
            folder: folder.join("cache"),
            clock: clock.clone(),
            env: env.clone(),
            asked: false,
        }
    }

    /// Selects the offers that servers make when they may ask the user, if `with_elicitation` is true.
    pub fn asking(self, asked: bool) -> Self {
        Self { asked, ..self }
    }

    /// Returns the cached result for `server`, if its configuration and its program are unchanged.
    pub fn get(&self, server: &Server) -> Option<Known> {
        let path = self.path(server);
        let mut text = Vec::new();
        let file = store::open_existing(&path).ok()??;
        file.take(LARGEST).read_to_end(&mut text).ok()?;
        let written: Written = serde_json::from_slice(&text).ok()?;
        let ago = self.now() - written.when;
        let counts = |most: i64| written.v == VERSION && (0..most).contains(&ago);
        match (written.offer, written.failed) {
            (Some(offer), _) if counts(OFFER) => Some(Known::Offers(offer)),
            (None, Some(words)) if counts(FAILURE) => Some(Known::Failed { words, ago }),
            _ => None,
        }
    }

    /// Caches what `server` offers.
    pub fn keep(&self, server: &Server, offer: &Offer) {
        self.write(server, Some(offer.clone()), None);
    }

    /// Caches the reason why `server` could not be reached.
    pub fn keep_failure(&self, server: &Server, words: &str) {
        self.write(server, None, Some(words.to_owned()));
    }

    /// Removes all cached results for the server `name`, for any configuration of it.
    pub fn forget(&self, name: &str) {
        self.sweep(name, None);
    }

    fn write(&self, server: &Server, offer: Option<Offer>, failed: Option<String>) {
        let written = Written {
            v: VERSION,
            when: self.now(),
            offer,
            failed,
        };
        let path = self.path(server);
        let write = || -> Result<()> {
            store::create_dir(&self.folder)?;
            let text = serde_json::to_vec(&written).context("serialize the cached features")?;
            store::replace(&path, &text)
        };
        match write() {
            Ok(()) => self.sweep(&server.name, Some(&path)),
            Err(error) => {
                log::info!(target: "mcp", "cannot cache the features of `{}`: {error:#}", server.name);
            }
        }
    }

    /// Removes the files of a server, except for `except`.
    fn sweep(&self, name: &str, kept: Option<&Path>) {
        let start = start(name);
        let is_its = |file: &Path| {
            let file = file.file_name().and_then(|file| file.to_str());
            file.is_some_and(|file| file.starts_with(&start))
        };
        let files = std::fs::read_dir(&self.folder).into_iter().flatten();
        for file in files.flatten().map(|file| file.path()) {
            let is_of_kind = kept.is_none() || is_asked(&file) == self.asked;
            if is_its(&file) && is_of_kind && Some(&*file) != kept {
                // A file that remains does no harm.
                drop(std::fs::remove_file(file));
            }
        }
    }

    fn path(&self, server: &Server) -> PathBuf {
        let mark = mark::of_all(server, &self.env);
        let start = start(&server.name);
        let kind = if self.asked { ASKED } else { "" };
        self.folder.join(format!("{start}{mark}{kind}.json"))
    }

    fn now(&self) -> i64 {
        self.clock.timestamp().as_second()
    }
}

/// True if `file` holds the offer of a server that may ask the user.
fn is_asked(file: &Path) -> bool {
    let stem = file.file_stem().and_then(|stem| stem.to_str());
    stem.is_some_and(|stem| stem.ends_with(ASKED))
}

/// The file name prefix that is unique to a server.
fn start(name: &str) -> String {
    let plain = |letter: char| match letter.is_ascii_alphanumeric() || letter == '-' {
        true => letter,
        false => '_',
    };
    let short: String = name.chars().take(NAME).map(plain).collect();
    format!("{short}-{}", mark::of_name(name))
}

#[cfg(test)]
mod tests {
    use super::{Cache, Known};
    use crate::mcp::offer::{Offer, Offered};
    use crate::settings::servers::{Reached, Remote, Server};
    use crate::sys::clock::Clock;
    use crate::sys::env::Env;
    use std::path::Path;

    fn server(name: &str, url: &str) -> Server {
        Server {
            name: name.into(),
            reached: Reached::Http(Remote {
                url: url.into(),
                headers: Vec::new(),
            }),
            ..Server::default()
        }
    }

    fn cache(folder: &Path, time: &str) -> Cache {
        let env: Env = [("HOME", "/h")].into_iter().collect();
        Cache::at(folder, &Clock::Fixed(time.parse().unwrap()), &env)
    }

    #[test]
    fn offers_and_failures_are_known_for_their_time() {
        let temp = tempfile::tempdir().unwrap();
        let at = |time: &str| cache(temp.path(), time);
        let a = server("a/b", "http://a/");
        let offer = Offer {
            server: "x".into(),
            tools: vec![Offered::default()],
            ..Offer::default()
        };
        assert_eq!(at("2026-01-01T00:00:00Z").get(&a), None);
        at("2026-01-01T00:00:00Z").keep_failure(&a, "no");
        let failed = |ago| Known::Failed {
            words: "no".into(),
            ago,
        };
        assert_eq!(at("2026-01-01T00:09:59Z").get(&a), Some(failed(599)));
        assert_eq!(at("2026-01-01T00:10:00Z").get(&a), None);
        assert_eq!(at("2025-12-31T23:59:59Z").get(&a), None, "from the future");
        at("2026-01-01T00:00:00Z").keep(&a, &offer);
        let known = Some(Known::Offers(offer));
        assert_eq!(at("2026-01-20T00:00:00Z").get(&a), known);
        assert_eq!(at("2026-02-20T00:00:00Z").get(&a), None);
        assert_eq!(
            at("2026-01-20T00:00:00Z").get(&server("a/b", "http://b/")),
            None
        );
    }

    #[test]
    fn one_file_is_left_of_each_server() {
        let temp = tempfile::tempdir().unwrap();
        let cache = cache(temp.path(), "2026-01-01T00:00:00Z");
        let count = || {
            std::fs::read_dir(temp.path().join("cache"))
                .unwrap()
                .count()
        };
        let offer = Offer::default();
        cache.keep(&server("a", "http://1/"), &offer);
        cache.keep(&server("a-b", "http://1/"), &offer);
        cache.keep(&server("a", "http://2/"), &offer);
        assert_eq!(count(), 2);
        cache.forget("a");
        assert_eq!(count(), 1);
        assert!(cache.get(&server("a-b", "http://1/")).is_some());
        for file in std::fs::read_dir(temp.path().join("cache")).unwrap() {
            std::fs::write(file.unwrap().path(), "{ half").unwrap();
        }
        assert_eq!(cache.get(&server("a-b", "http://1/")), None);
    }
}
