//! Fingerprints of server configurations, so that data recorded for one configuration is not used for another.
//! Secrets of the configuration are hashed in and cannot be read back.

use nanobot_config::settings::servers::{McpServer, RemoteEndpoint, SamplingMode, ServerTransport};
use nanobot_os::env::Env;
use nanobot_os::paths;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Fingerprint of the program with its arguments, or of the address.
pub(crate) fn of_endpoint(server: &McpServer) -> String {
    let mut hasher = FingerprintHasher::default();
    hasher.add_endpoint(&server.transport);
    hasher.finish()
}

/// Returns eight hexadecimal digits for a name, which may contain any characters.
pub(crate) fn short_hash(name: &str) -> String {
    let mut hasher = FingerprintHasher::default();
    hasher.add(name);
    hasher.finish()[..8].to_owned()
}

/// Fingerprint of everything that determines what a server offers: the program or address, all of its configuration,
/// and the program file itself. Some programs, such as Python and Node.js, only start another one, so programs among the arguments are
/// included. Other files among the arguments are not: a server's data files change with each call.
pub fn of_server(server: &McpServer, env: &Env) -> String {
    let mut hasher = FingerprintHasher::default();
    hasher.add(env!("CARGO_PKG_VERSION"));
    hasher.add_endpoint(&server.transport);
    if server.sampling != SamplingMode::Off {
        // A server may offer more if it may use the model.
        hasher.add("sampling");
    }
    let inherited_path = env.get("PATH").unwrap_or_default();
    match &server.transport {
        ServerTransport::Program { command, arguments, env, directory } => {
            for (name, value) in env {
                hasher.add(name);
                hasher.add(value.identity());
            }
            let directory = directory.as_deref().unwrap_or_default();
            hasher.add(directory);
            let own_path = env.iter().find(|(name, _)| name == "PATH");
            let search_path = own_path.map_or(inherited_path, |(_, path)| path.identity());
            if command.contains('/') {
                hasher.add_file(&Path::new(directory).join(command));
            } else {
                match paths::find_program(command, search_path) {
                    Some(program) => hasher.add_file(&program),
                    None => hasher.add("missing"),
                }
            }
            for argument in arguments {
                let file = Path::new(directory).join(argument);
                if file.is_absolute() && is_program(&file) {
                    hasher.add_file(&file);
                }
            }
        }
        ServerTransport::Http(remote) | ServerTransport::Sse(remote) => {
            for (name, value) in &remote.headers {
                hasher.add(name);
                hasher.add(value.identity());
            }
        }
    }
    hasher.finish()
}

/// True if a file is a program, by its extension or because it is executable.
pub(super) fn is_program(path: &Path) -> bool {
    const SCRIPT_EXTENSIONS: &[&str] =
        &["cjs", "jar", "js", "mjs", "php", "pl", "py", "pyz", "rb", "sh", "ts", "wasm"];
    let extension = path.extension().and_then(|extension| extension.to_str());
    let is_script = extension.is_some_and(|extension| SCRIPT_EXTENSIONS.contains(&extension));
    std::fs::metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && (is_script || metadata.mode() & 0o111 != 0))
}

#[derive(Default)]
struct FingerprintHasher(SipHasher13);

impl FingerprintHasher {
    fn add(&mut self, text: &str) {
        // The length comes first, to distinguish all lists of texts.
        self.0.write_usize(text.len());
        self.0.write(text.as_bytes());
    }

    fn add_endpoint(&mut self, transport: &ServerTransport) {
        let (kind, RemoteEndpoint { url, .. }) = match transport {
            ServerTransport::Program { command, arguments, .. } => {
                self.add("program");
                self.add(command);
                arguments.iter().for_each(|argument| self.add(argument));
                return self.0.write_usize(arguments.len());
            }
            ServerTransport::Http(remote) => ("http", remote),
            ServerTransport::Sse(remote) => ("sse", remote),
        };
        self.add(kind);
        self.add(url);
    }

    /// Adds the file at `path`, following links, by its size and modification time.
    fn add_file(&mut self, path: &Path) {
        let real_path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        self.add(&real_path.to_string_lossy());
        if let Ok(metadata) = std::fs::metadata(&real_path) {
            self.0.write_u64(metadata.len());
            self.0.write_i64(metadata.mtime());
            self.0.write_i64(metadata.mtime_nsec());
        }
    }

    fn finish(&self) -> String {
        let hash = self.0.finish128();
        format!("{:016x}{:016x}", hash.h1, hash.h2)
    }
}

#[cfg(test)]
mod tests {
    use super::{of_endpoint, of_server};
    use nanobot_config::settings::servers::{McpServer, RemoteEndpoint, ServerTransport};
    use nanobot_os::env::Env;
    use nanobot_os::secret::LazySecret;

    fn program(command: &str, arguments: &[&str], env: &[(&str, &str)]) -> McpServer {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), LazySecret::new(*value));
        McpServer {
            name: "s".into(),
            transport: ServerTransport::Program {
                command: command.into(),
                arguments: arguments.iter().map(|it| (*it).to_owned()).collect(),
                env: env.iter().map(pair).collect(),
                directory: None,
            },
            ..McpServer::default()
        }
    }

    fn remote(url: &str, token: &str) -> McpServer {
        McpServer {
            transport: ServerTransport::Http(RemoteEndpoint {
                url: url.into(),
                headers: vec![("Authorization".into(), LazySecret::new(token))],
                uses_login: false,
            }),
            ..McpServer::default()
        }
    }

    #[test]
    fn fingerprints_cover_the_relevant_configuration() {
        let env: Env = [("HOME", "/h"), ("PATH", "/usr/bin:/bin")].into_iter().collect();
        let check = |one: &McpServer, other: &McpServer, same_endpoint: bool, same: bool| {
            assert_eq!(of_endpoint(one) == of_endpoint(other), same_endpoint);
            assert_eq!(of_server(one, &env) == of_server(other, &env), same);
        };
        let sh = program("sh", &["a", "b"], &[("K", "1")]);
        check(&sh, &sh.clone(), true, true);
        check(&sh, &program("sh", &["a", "b"], &[("K", "2")]), true, false);
        check(&sh, &program("sh", &["ab"], &[("K", "1")]), false, false);
        check(&sh, &program("cat", &["a", "b"], &[("K", "1")]), false, false);
        let web = remote("https://a.example/mcp", "one");
        check(&web, &remote("https://a.example/mcp", "two"), true, false);
        check(&web, &remote("https://a.example/x", "one"), false, false);
        let named = McpServer { enabled_tools: vec!["x".into()], is_required: true, ..web.clone() };
        check(&web, &named, true, true);
    }

    #[test]
    fn a_changed_program_file_changes_the_fingerprint() {
        let env: Env = [("HOME", "/h"), ("PATH", "/usr/bin:/bin")].into_iter().collect();
        let temp = tempfile::tempdir().unwrap();
        let script = temp.path().join("server.py");
        std::fs::write(&script, "one").unwrap();
        let store = temp.path().join("store.db");
        std::fs::write(&store, "one").unwrap();
        let files = [script.to_str().unwrap(), store.to_str().unwrap()];
        let server = program("sh", &files, &[]);
        let before = of_server(&server, &env);
        std::fs::write(&store, "more").unwrap();
        assert_eq!(before, of_server(&server, &env));
        std::fs::write(&script, "another").unwrap();
        assert_ne!(before, of_server(&server, &env));
    }
}
