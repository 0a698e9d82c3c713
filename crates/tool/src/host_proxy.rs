//! The proxy through which commands reach the hosts that the user has granted to them. It is a process of its own outside of
//! their network namespace, listens inside the namespace, and connects to these hosts only.
//!
//! Its listening sockets are created in the namespace and passed to it. It checks the host of each connection before it sends
//! anything: the host in the address, in a TLS client's first message, and in each plain request. Bytes are counted
//! before they reach a command, so that the origin of the command's output is known in time.

mod client_hello;
mod grants;
mod request;
mod server;

pub use grants::CommandHosts;
pub use server::{HostUsage, become_proxy};

use nanobot_os::signal::{self, Deadline};
use nanobot_sandbox::process::helper::Helper;
use nanobot_sandbox::{NetworkListeners, SharedNetwork};
use parking_lot::Mutex;
use server::{PROXY_ARG0, ProxyTask};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// The time that a proxy may take to answer with its counts. It normally takes much less than a millisecond.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The counts of the proxies of a run, by `HOST:PORT`.
#[derive(Debug, Default)]
pub struct HostTraffic {
    proxies: Mutex<Vec<Helper>>,
    /// The refused hosts that were reported before.
    reported: Mutex<BTreeSet<String>>,
}

impl HostTraffic {
    /// The counts of each host. `None` if a proxy does not answer.
    fn usage(&self) -> Option<BTreeMap<String, HostUsage>> {
        let mut total: BTreeMap<String, HostUsage> = BTreeMap::new();
        for helper in self.proxies.lock().iter_mut() {
            for (host, usage) in ask(helper)? {
                let sum = total.entry(host).or_default();
                sum.connections += usage.connections;
                sum.sent_bytes += usage.sent_bytes;
                sum.received_bytes += usage.received_bytes;
                sum.refused += usage.refused;
            }
        }
        Some(total)
    }

    /// The counts of each host that was connected to.
    pub fn connected(&self) -> Vec<(String, HostUsage)> {
        let usage = self.usage().unwrap_or_default().into_iter();
        usage.filter(|(_, usage)| usage.connections > 0).collect()
    }

    /// True if the output of commands may contain data that another machine has sent, or if that is unknown.
    pub fn may_have_carried(&self) -> bool {
        let has_bytes = |usage: &HostUsage| usage.sent_bytes + usage.received_bytes > 0;
        self.usage().is_none_or(|usage| usage.values().any(has_bytes))
    }

    /// The hosts that were refused since the last call.
    pub(crate) fn take_refused(&self) -> Vec<String> {
        let mut reported = self.reported.lock();
        let usage = self.usage().unwrap_or_default().into_iter();
        let refused_hosts = usage.filter(|(_, usage)| usage.refused > 0).map(|(host, _)| host);
        refused_hosts.filter(|host| reported.insert(host.clone())).collect()
    }

    /// The network of commands that may reach `hosts`. Its proxy starts when the network is created.
    pub fn network(self: &Arc<Self>, hosts: CommandHosts) -> SharedNetwork {
        if hosts.is_empty() {
            return SharedNetwork::default();
        }
        let traffic = Arc::clone(self);
        let mut addresses = vec![hosts.proxy_address()];
        addresses.extend(hosts.forwarded());
        SharedNetwork::with_listeners(NetworkListeners {
            addresses,
            on_open: Box::new(move |listeners| traffic.start_proxy(&hosts, &listeners)),
        })
    }

    fn start_proxy(&self, hosts: &CommandHosts, listeners: &[OwnedFd]) {
        let task = ProxyTask { hosts: hosts.clone(), proxy: hosts.proxy_address() };
        let helper = serde_json::to_vec(&task)
            .map_err(std::io::Error::other)
            .and_then(|message| Helper::start(PROXY_ARG0, &message, listeners));
        match helper {
            Ok(helper) => self.proxies.lock().push(helper),
            // Without a proxy the connections of commands are refused.
            Err(error) => log::warn!(target: "sandbox", "no proxy for commands: {error}"),
        }
    }
}

/// Asks a proxy for its counts: any byte is the question, and a line of JSON the answer.
fn ask(helper: &mut Helper) -> Option<BTreeMap<String, HostUsage>> {
    helper.connection.write_all(b"?").ok()?;
    let mut line = Vec::new();
    let mut deadline = Deadline::after(ANSWER_TIMEOUT);
    let mut block = [0; 4096];
    while line.last() != Some(&b'\n') {
        if !signal::wait_readable(&helper.connection, &mut deadline).ok()? {
            return None;
        }
        match helper.connection.read(&mut block) {
            Ok(0) | Err(_) => return None,
            Ok(count) => line.extend_from_slice(&block[..count]),
        }
    }
    serde_json::from_slice(&line).ok()
}
