//! Host addresses set by tests, instead of the system's resolver: `name=address,address;other=…`. After a `|` come the
//! addresses of the next query, to simulate a name whose addresses change (DNS rebinding); `*` matches every other
//! name.

use nanobot_os::env::Env;
use nanobot_os::test_hooks;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The hosts with fixed addresses.
#[derive(Clone, Debug, Default)]
pub struct TestHosts(Arc<BTreeMap<String, DnsAnswers>>);

#[derive(Debug, Default)]
struct DnsAnswers {
    /// Never empty.
    answers: Vec<Vec<IpAddr>>,
    query_count: AtomicUsize,
}

impl TestHosts {
    /// Reads the hosts from the test hook.
    pub fn from_env(env: &Env) -> Self {
        Self::from_text(test_hooks::HOSTS.get(env).unwrap_or_default())
    }

    /// Reads the hosts from the value of the test hook.
    pub fn from_text(text: &str) -> Self {
        let entry = |entry: &str| {
            let (name, answers) = entry.split_once('=')?;
            let addresses = |list: &str| list.split(',').flat_map(str::parse).collect();
            let answers = DnsAnswers {
                answers: answers.split('|').map(addresses).collect(),
                query_count: AtomicUsize::new(0),
            };
            Some((name.trim().to_owned(), answers))
        };
        Self(Arc::new(text.split(';').filter_map(entry).collect()))
    }

    /// Returns the addresses of `host`; `None` if the system's resolver is to be used. The last answer repeats.
    pub(crate) fn next_addresses(&self, host: &str) -> Option<Vec<IpAddr>> {
        let answers = self.0.get(host).or_else(|| self.0.get("*"))?;
        let number = answers.query_count.fetch_add(1, Ordering::Relaxed);
        answers.answers.get(number.min(answers.answers.len() - 1)).cloned()
    }
}
