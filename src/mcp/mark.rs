//! Fingerprints of the ways to reach a server, so that data recorded for one configuration is not used for another.
//! Secrets of the configuration are hashed in and cannot be read back.

use crate::settings::servers::{Reached, Remote, Server};
use crate::sys::env::Env;
use crate::sys::paths;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Fingerprint of what is reached: the program with its arguments, or the address.
pub fn of_place(server: &Server) -> String {
    let mut mark = Mark::default();
    mark.place(&server.reached);
    mark.done()
}

/// Returns eight hexadecimal digits for a name, which may contain any characters.
pub fn of_name(name: &str) -> String {
    let mut mark = Mark::default();
    mark.add(name);
    mark.done()[..8].to_owned()
}

/// Fingerprint of everything that determines what a server offers: the program or address, all of its configuration,
/// and the program file itself. Some programs, such as `python` and `node`, only start another one, so programs among
/// the arguments count as well. Other files among the arguments do not count: a server's data files change with each
/// call.
pub fn of_all(server: &Server, env: &Env) -> String {
    let mut mark = Mark::default();
    mark.add(env!("CARGO_PKG_VERSION"));
    mark.place(&server.reached);
    match &server.reached {
        Reached::Program {
            command,
            arguments,
            env: own,
            directory,
        } => {
            for (name, value) in own {
                mark.add(name);
                mark.add(value.expose());
            }
            let directory = directory.as_deref().unwrap_or_default();
            mark.add(directory);
            let own = own.iter().find(|(name, _)| name == "PATH");
            let path = match own {
                Some((_, path)) => path.expose(),
                None => env.get("PATH").unwrap_or_default(),
            };
            match command.contains('/') {
                true => mark.file(&Path::new(directory).join(command)),
                false => match paths::program(command, path) {
                    Some(program) => mark.file(&program),
                    None => mark.add("missing"),
                },
            }
            for argument in arguments {
                let file = Path::new(directory).join(argument);
                if file.is_absolute() && is_program(&file) {
                    mark.file(&file);
                }
            }
        }
        Reached::Http(remote) | Reached::Sse(remote) => {
            for (name, value) in &remote.headers {
                mark.add(name);
                mark.add(value.expose());
            }
        }
    }
    mark.done()
}

/// True if a file is a program, by its extension or because it is executable.
pub(super) fn is_program(path: &Path) -> bool {
    const SCRIPTS: &[&str] = &[
        "cjs", "jar", "js", "mjs", "php", "pl", "py", "pyz", "rb", "sh", "ts", "wasm",
    ];
    let name = path.extension().and_then(|end| end.to_str());
    let is_script = name.is_some_and(|name| SCRIPTS.contains(&name));
    std::fs::metadata(path)
        .is_ok_and(|about| about.is_file() && (is_script || about.mode() & 0o111 != 0))
}

#[derive(Default)]
struct Mark(SipHasher13);

impl Mark {
    fn add(&mut self, text: &str) {
        // The length comes first, to distinguish all lists of texts.
        self.0.write_usize(text.len());
        self.0.write(text.as_bytes());
    }

    fn place(&mut self, reached: &Reached) {
        let (kind, Remote { url, .. }) = match reached {
            Reached::Program {
                command, arguments, ..
            } => {
                self.add("program");
                self.add(command);
                arguments.iter().for_each(|argument| self.add(argument));
                return self.0.write_usize(arguments.len());
            }
            Reached::Http(remote) => ("http", remote),
            Reached::Sse(remote) => ("sse", remote),
        };
        self.add(kind);
        self.add(url);
    }

    /// Adds the file at `path`, following links, by its size and modification time.
    fn file(&mut self, path: &Path) {
        let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        self.add(&real.to_string_lossy());
        if let Ok(about) = std::fs::metadata(&real) {
            self.0.write_u64(about.len());
            self.0.write_i64(about.mtime());
            self.0.write_i64(about.mtime_nsec());
        }
    }

    fn done(&self) -> String {
        let hash = self.0.finish128();
        format!("{:016x}{:016x}", hash.h1, hash.h2)
    }
}

#[cfg(test)]
mod tests {
    use super::{of_all, of_place};
    use crate::settings::servers::{Reached, Remote, Server};
    use crate::sys::env::Env;
    use crate::sys::secret::Secret;

    fn program(command: &str, arguments: &[&str], env: &[(&str, &str)]) -> Server {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), Secret::new(*value));
        Server {
            name: "s".into(),
            reached: Reached::Program {
                command: command.into(),
                arguments: arguments.iter().map(|it| (*it).to_owned()).collect(),
                env: env.iter().map(pair).collect(),
                directory: None,
            },
            ..Server::default()
        }
    }

    fn remote(url: &str, token: &str) -> Server {
        Server {
            reached: Reached::Http(Remote {
                url: url.into(),
                headers: vec![("Authorization".into(), Secret::new(token))],
            }),
            ..Server::default()
        }
    }

    #[test]
    fn marks_tell_what_matters() {
        let env: Env = [("HOME", "/h"), ("PATH", "/usr/bin:/bin")]
            .into_iter()
            .collect();
        let check = |one: &Server, other: &Server, same_place: bool, same: bool| {
            assert_eq!(of_place(one) == of_place(other), same_place);
            assert_eq!(of_all(one, &env) == of_all(other, &env), same);
        };
        let sh = program("sh", &["a", "b"], &[("K", "1")]);
        check(&sh, &sh.clone(), true, true);
        check(&sh, &program("sh", &["a", "b"], &[("K", "2")]), true, false);
        check(&sh, &program("sh", &["ab"], &[("K", "1")]), false, false);
        check(
            &sh,
            &program("cat", &["a", "b"], &[("K", "1")]),
            false,
            false,
        );
        let web = remote("https://a.example/mcp", "one");
        check(&web, &remote("https://a.example/mcp", "two"), true, false);
        check(&web, &remote("https://a.example/x", "one"), false, false);
        let named = Server {
            enabled: vec!["x".into()],
            required: true,
            ..web.clone()
        };
        check(&web, &named, true, true);
    }

    #[test]
    fn a_changed_file_is_another_program() {
        let env: Env = [("HOME", "/h"), ("PATH", "/usr/bin:/bin")]
            .into_iter()
            .collect();
        let temp = tempfile::tempdir().unwrap();
        let script = temp.path().join("server.py");
        std::fs::write(&script, "one").unwrap();
        let store = temp.path().join("store.db");
        std::fs::write(&store, "one").unwrap();
        let files = [script.to_str().unwrap(), store.to_str().unwrap()];
        let server = program("sh", &files, &[]);
        let before = of_all(&server, &env);
        std::fs::write(&store, "more").unwrap();
        assert_eq!(before, of_all(&server, &env));
        std::fs::write(&script, "another").unwrap();
        assert_ne!(before, of_all(&server, &env));
    }
}
