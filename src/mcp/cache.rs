//! What servers offer, kept on disk, so that a run which calls none of their tools starts none of them; and which of them
//! could not be reached a moment ago, so that a dead one does not cost each run the time in which it would have answered.
//! What is kept is of no matter: where it cannot be read or written, the server is asked.

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

/// The layout of a file.
const VERSION: u64 = 1;
/// Seconds for which an offer counts. Calls renew it; what is never called is looked at again in this time.
const OFFER: i64 = 30 * 24 * 3600;
/// Seconds for which a failure counts.
const FAILURE: i64 = 600;
/// The largest file that is read.
const LARGEST: u64 = 64 << 20;
/// What the name of a file ends with that has what a server offers to whom it may ask.
const ASKED: &str = "-asked";
/// Characters of a server's name in the name of its file.
const NAME: usize = 40;

/// What is known of servers.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
    clock: Clock,
    env: Env,
    /// Servers are told that they may ask a person, and may offer more then.
    asked: bool,
}

/// What is known of one.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    Offers(Offer),
    /// It could not be reached, so many seconds ago.
    Failed {
        words: String,
        ago: i64,
    },
}

#[derive(Serialize, Deserialize)]
struct Written {
    v: u64,
    /// In seconds since 1970.
    when: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    offer: Option<Offer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

impl Cache {
    /// That in `folder`, ours for servers.
    pub fn at(folder: &Path, clock: &Clock, env: &Env) -> Self {
        Self {
            folder: folder.join("cache"),
            clock: clock.clone(),
            env: env.clone(),
            asked: false,
        }
    }

    /// What servers offer to whom they may ask, where `asked` says so.
    pub fn asking(self, asked: bool) -> Self {
        Self { asked, ..self }
    }

    /// What is known of `server`, as it is configured and as its program is now.
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

    /// Keep what `server` offers.
    pub fn keep(&self, server: &Server, offer: &Offer) {
        self.write(server, Some(offer.clone()), None);
    }

    /// Keep why `server` could not be reached.
    pub fn keep_failure(&self, server: &Server, words: &str) {
        self.write(server, None, Some(words.to_owned()));
    }

    /// Forget what is known of the server of that name, however it was reached.
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
            let text = serde_json::to_vec(&written).context("write an offer")?;
            store::replace(&path, &text)
        };
        match write() {
            Ok(()) => self.sweep(&server.name, Some(&path)),
            Err(error) => {
                log::info!(target: "mcp", "what `{}` offers is not kept: {error:#}", server.name);
            }
        }
    }

    /// Remove the files of a server but for `kept`.
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
                // What stays behind is of no harm.
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

/// Whether `file` is of what a server offers to whom it may ask.
fn is_asked(file: &Path) -> bool {
    let stem = file.file_stem().and_then(|stem| stem.to_str());
    stem.is_some_and(|stem| stem.ends_with(ASKED))
}

/// What the names of a server's files begin with, and those of no other server.
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
