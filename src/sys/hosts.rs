//! Where tests say that hosts are, in place of the system's resolver: `name=address,address;other=…`. After a `|` come
//! the addresses of the next asking, so that a name can change its mind; `*` stands for every other name.

use super::env::Env;
use super::test_hooks;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The hosts that are known without asking.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Arc<BTreeMap<String, Answers>>);

#[derive(Debug, Default)]
struct Answers {
    /// Never empty.
    all: Vec<Vec<IpAddr>>,
    asked: AtomicUsize,
}

impl Hosts {
    /// Those that a test has put into the environment.
    pub fn of(env: &Env) -> Self {
        let text = test_hooks::HOSTS.get(env).unwrap_or_default();
        let entry = |entry: &str| {
            let (name, answers) = entry.split_once('=')?;
            let addresses = |list: &str| list.split(',').flat_map(str::parse).collect();
            let answers = Answers {
                all: answers.split('|').map(addresses).collect(),
                asked: AtomicUsize::new(0),
            };
            Some((name.trim().to_owned(), answers))
        };
        Self(Arc::new(text.split(';').filter_map(entry).collect()))
    }

    /// The addresses of `host`; `None` where the system is to be asked. The last answer is given ever after.
    pub(super) fn find(&self, host: &str) -> Option<Vec<IpAddr>> {
        let answers = self.0.get(host).or_else(|| self.0.get("*"))?;
        let number = answers.asked.fetch_add(1, Ordering::Relaxed);
        answers.all.get(number.min(answers.all.len() - 1)).cloned()
    }
}
