//! The address of a model server. Users often give it without its `/v1`, as in Ollama's own variable.

use nanobot_os::durable_file;
use parking_lot::Mutex;
use std::path::PathBuf;

/// The base URL of a server, and other URLs that the user may have meant.
pub struct BaseAddress {
    configured: String,
    /// The file that holds the address that answers instead of the configured one. It usually does not exist.
    path: PathBuf,
    current: Mutex<String>,
}

impl BaseAddress {
    /// The base URL `configured`, or the one that an earlier run has used instead of it and stored at `path`.
    pub fn new(configured: String, path: PathBuf) -> Self {
        let completed = completions(&configured);
        let stored = if completed.is_empty() { None } else { std::fs::read_to_string(&path).ok() };
        // The key is sent to this address, so no other text of the file is trusted.
        let current =
            completed.into_iter().find(|url| stored.as_deref().map(str::trim) == Some(url));
        Self {
            current: Mutex::new(current.unwrap_or_else(|| configured.clone())),
            configured,
            path,
        }
    }

    /// The base URL without a trailing slash.
    pub fn current(&self) -> String {
        self.current.lock().clone()
    }

    /// Replaces the address.
    pub fn set_current(&self, base: String) {
        *self.current.lock() = base;
    }

    /// The addresses that may be meant instead of the current one.
    pub fn others(&self) -> Vec<String> {
        let current = self.current();
        let mut addresses = completions(&self.configured);
        if !addresses.is_empty() {
            addresses.push(self.configured.clone());
        }
        addresses.retain(|url| *url != current);
        addresses
    }

    /// Stores the current address for later runs. Best effort: a run without it tries the addresses again.
    pub fn store(&self) {
        drop(self.path.parent().map(durable_file::create_dir));
        drop(durable_file::replace(&self.path, format!("{}\n", self.current()).as_bytes()));
    }
}

/// The addresses that may be meant by a base URL without a path, or with the path of Ollama's own API.
fn completions(base: &str) -> Vec<String> {
    if base.contains(['?', '#']) {
        return Vec::new();
    }
    let Some((scheme, rest)) = base.split_once("://") else {
        return Vec::new();
    };
    match rest.split_once('/') {
        None => vec![format!("{base}/v1")],
        Some((host, "api")) => vec![format!("{scheme}://{host}/v1"), format!("{base}/v1")],
        Some(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{BaseAddress, completions};

    #[test]
    fn addresses_that_may_be_meant() {
        let check = |base: &str, expect: &[&str]| assert_eq!(completions(base), expect, "{base}");
        check("http://h:11434", &["http://h:11434/v1"]);
        check("http://h:11434/api", &["http://h:11434/v1", "http://h:11434/api/v1"]);
        check("http://h:11434/v1", &[]);
        check("https://h/openai", &[]);
        check("https://h?key=1", &[]);
        check("h", &[]);
    }

    #[test]
    fn only_such_an_address_is_taken_from_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("limits/h.address");
        let address = |base: &str| BaseAddress::new(base.to_owned(), path.clone());
        let of_host = address("http://h");
        assert_eq!(of_host.current(), "http://h");
        assert_eq!(of_host.others(), ["http://h/v1"]);
        of_host.set_current("http://h/v1".to_owned());
        of_host.store();
        assert_eq!(address("http://h").current(), "http://h/v1");
        assert_eq!(address("http://h").others(), ["http://h"]);
        assert_eq!(address("http://other").current(), "http://other");
        assert_eq!(address("http://h/v2").current(), "http://h/v2");
        assert!(address("http://h/v2").others().is_empty());
    }
}
