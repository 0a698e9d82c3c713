//! The messages by which a service tells systemd that it is ready, alive or about to end (sd_notify(3)).

use crate::env::{Env, NOTIFY_SOCKET, WATCHDOG_USEC};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The socket of the service manager that started this process, if one waits for messages.
#[derive(Debug, Default)]
pub struct ServiceManager {
    address: Option<SocketAddr>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Reads the variables that systemd sets for a service. Those of another process, which inherited them, are ignored.
    pub fn from_env(env: &Env) -> Self {
        let Some(path) = env.get(NOTIFY_SOCKET) else {
            return Self::default();
        };
        let address = match path.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(path),
        };
        let is_own =
            env.get("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let watchdog = env.get(WATCHDOG_USEC).filter(|_| is_own);
        let watchdog = watchdog.and_then(|micros| micros.parse().ok()).filter(|micros| *micros > 0);
        let watchdog = watchdog.map(Duration::from_micros);
        Self { address: address.ok(), watchdog }
    }

    /// The interval at which `WATCHDOG=1` is expected: half of the time after which the service is restarted.
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.map(|limit| limit / 2)
    }

    /// Sends a message, such as `READY=1`, if there is a manager. A message that cannot be sent is logged.
    pub fn send(&self, message: &str) {
        let Some(address) = &self.address else {
            return;
        };
        let send_to = |socket: UnixDatagram| socket.send_to_addr(message.as_bytes(), address);
        if let Err(error) = UnixDatagram::unbound().and_then(send_to) {
            log::warn!(target: "channel", "send `{message}` to the service manager: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ServiceManager;
    use crate::env::Env;
    use std::time::Duration;

    #[test]
    fn the_watchdog_of_another_process_is_not_ours() {
        let interval = |pid: &str| {
            let variables =
                [("NOTIFY_SOCKET", "@s"), ("WATCHDOG_USEC", "60000000"), ("WATCHDOG_PID", pid)];
            ServiceManager::from_env(&variables.into_iter().collect::<Env>()).watchdog_interval()
        };
        assert_eq!(interval(&std::process::id().to_string()), Some(Duration::from_secs(30)));
        assert_eq!(interval("1"), None);
    }
}
