//! Environment variables for tests only. They replace the clock, name resolution and checks, so they are compiled in
//! only with the cargo feature `test-hooks`: without it every hook is unset, and the binary contains none of their
//! names.

use crate::env::Env;
use std::fmt;

/// An environment variable that is read only in a test build.
#[derive(Clone, Copy, Debug)]
pub struct TestHook {
    #[cfg(feature = "test-hooks")]
    name: &'static str,
}

/// The time of every clock, as `2026-01-02T03:04:05Z`; sleeping then takes no time.
pub const TIME: TestHook = TestHook::new("NANOBOT_TEST_TIME");
/// The system's time zone, as `Europe/Berlin`.
pub const ZONE: TestHook = TestHook::new("NANOBOT_TEST_ZONE");
/// The directory of the system-wide config, instead of `/etc/nanobot`.
pub const SYSTEM_CONFIG_DIR: TestHook = TestHook::new("NANOBOT_TEST_ETC");
/// `yes`, `no` or `unknown`: whether a cron daemon runs on this machine.
pub const CRON_DAEMON: TestHook = TestHook::new("NANOBOT_TEST_DAEMON");
/// `yes` or `no`: whether cron can mail what jobs print.
pub const MAILER: TestHook = TestHook::new("NANOBOT_TEST_MAILER");
/// The time limit of a turn in a chat, in seconds.
pub const CHAT_TIMEOUT: TestHook = TestHook::new("NANOBOT_TEST_CHAT_TIMEOUT");
/// Any value makes a turn panic.
pub const PANIC: TestHook = TestHook::new("NANOBOT_TEST_DEFECT");
/// The base URL of every login server, as `http://127.0.0.1:8000`; only loopback is accepted.
pub const LOGIN_BASE: TestHook = TestHook::new("NANOBOT_TEST_LOGIN_BASE");
/// `loopback` allows pages to be fetched from this machine, also without TLS.
pub const FETCH: TestHook = TestHook::new("NANOBOT_TEST_FETCH");
/// The addresses of hosts for the web tools, as `name=address,address;name=…`.
pub const HOSTS: TestHook = TestHook::new("NANOBOT_TEST_HOSTS");
/// With any value, the file tools are confined as on a kernel without `openat2`.
pub const NO_OPENAT2: TestHook = TestHook::new("NANOBOT_TEST_STEPS");

#[cfg(feature = "test-hooks")]
impl TestHook {
    const fn new(name: &'static str) -> Self {
        Self { name }
    }

    /// Returns the variable's value, as [`Env::get`].
    pub fn get(self, env: &Env) -> Option<&str> {
        env.get(self.name)
    }

    /// Returns the variable's name.
    pub fn name(self) -> &'static str {
        self.name
    }
}

#[cfg(not(feature = "test-hooks"))]
impl TestHook {
    const fn new(_name: &'static str) -> Self {
        Self {}
    }

    /// Always returns `None`.
    pub fn get(self, _env: &Env) -> Option<&str> {
        None
    }

    /// Returns the variable's name, which is empty in this build.
    pub fn name(self) -> &'static str {
        ""
    }
}

impl fmt::Display for TestHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Fails as a parser of documents may, if the document asks for it.
#[cfg(feature = "test-hooks")]
pub fn fail_as_parser(document: &[u8]) {
    let has = |text: &str| document.windows(text.len()).any(|part| part == text.as_bytes());
    if has("parser test: crash") {
        panic!("a parser crashed on purpose");
    } else if has("parser test: endless loop") {
        loop {
            std::hint::spin_loop();
        }
    } else if has("parser test: memory") {
        std::hint::black_box(vec![1_u8; 4 << 30]);
    } else if has("parser test: files") {
        assert!(
            std::fs::read("/etc/passwd").is_err()
                && std::net::UdpSocket::bind("127.0.0.1:0").is_err()
        );
    }
}

#[cfg(not(feature = "test-hooks"))]
pub fn fail_as_parser(_document: &[u8]) {}
