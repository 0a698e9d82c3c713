//! The explanations that follow a failed command: the access that the sandbox refused, and the flag that grants it.

use super::loopback_addresses::find_loopback_addresses;
use super::{
    CommandEnd, EXIT_CODE, EndedCommand, ExecTool, Explanation, RefusalCertainty, git_guard,
};
use crate::sandbox_spec;
use nanobot_base::shell_quote::quote;
use nanobot_config::policy::file_scope::{FileAccess, FileScope};
use nanobot_config::policy::secrets;
use nanobot_os::symlinks::trace_links;
use nanobot_sandbox::SandboxSpec;
use nanobot_sandbox::process;
use rustix::fs::Access;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use url::Url;

/// The path in the git directory that git cannot change, as it says in `line`.
fn protected_git_path(line: &str) -> &str {
    let path_and_rest = line.split_once("config file ");
    let path = path_and_rest.and_then(|(_, rest)| rest.split_once(": "));
    path.map_or(".git/config", |(path, _)| path.trim_matches(['\'', '"']))
}

impl ExecTool {
    /// Names the hosts that the proxy has refused since the last command, and the flag that permits the first.
    pub(super) fn explain_refused_hosts(&self) -> Option<Explanation> {
        let refused_hosts = self.host_traffic.take_refused();
        let first = refused_hosts.first()?;
        // These ports are granted with the host.
        let host = [":443", ":80"].iter().find_map(|port| first.strip_suffix(port));
        let flag = format!("--net={}", host.unwrap_or(first));
        let message = format!(
            "(not reached, because not granted to commands: {}; the user can grant it with `{flag}`)",
            refused_hosts.join(", ")
        );
        Some(Explanation::with_flag(message, flag))
    }

    /// Explains the failure of a command, if the sandbox was the cause: from its output or, if that says nothing, from what it could not
    /// reach.
    pub(super) fn explain_failure(&self, ended: &EndedCommand<'_>) -> Option<Explanation> {
        if !self.containment.is_sandboxed {
            return None;
        }
        self.explain_output(ended).or_else(|| {
            if let Some(address) = missing_loopback_address(ended) {
                return Some(self.explain_own_loopback(Some(address), ended));
            }
            let has_sought = ended.failed_attempts.elsewhere > 0;
            // The output may name another cause.
            has_sought.then(|| Explanation {
                certainty: certain_if(ended.is_silent),
                ..self.explain_missing_network(None, ended)
            })
        })
    }

    /// Explains the failure of a command from its output. A command that timed out may have printed nothing.
    fn explain_output(&self, ended: &EndedCommand<'_>) -> Option<Explanation> {
        let EndedCommand { command, text, end, .. } = *ended;
        let scope = &self.files.file_scope;
        let sandbox = self.prepare_sandbox().ok();
        let private = sandbox.as_ref().and_then(SandboxSpec::private);
        if let Some(top) = private.and_then(|private| git_guard::take_stopped(scope, private)) {
            let flag = format!("--write={}", quote(&top.to_string_lossy()));
            let directory = scope.directory.display();
            let cause = format!(
                "git would have changed files outside of `{directory}`, so it changed nothing"
            );
            if scope.is_private_copy {
                return Some(Explanation::new(format!("({cause})")));
            }
            let message =
                format!("({cause}; the user can grant the whole working tree with `{flag}`)");
            return Some(Explanation::with_flag(message, flag));
        }
        if let Some(explanation) = self.explain_closed_file(ended) {
            return Some(explanation);
        }
        // A command that succeeded may have printed text that is not about its own failure. Error messages of programs have a colon.
        let lines_with = |signs: &'static [&'static str]| {
            text.lines().filter(move |line| {
                (end != CommandEnd::Success || line.contains(": "))
                    && signs.iter().any(|sign| line.contains(sign))
            })
        };
        let find_line = |signs| lines_with(signs).next();
        let has_waited = end == CommandEnd::Timeout && has_program(command, NETWORK_PROGRAMS);
        let network_line = find_line(NETWORK_SIGNS);
        if !self.containment.has_network && (has_waited || network_line.is_some()) {
            return Some(self.explain_missing_network(network_line, ended));
        }
        if find_line(SIGNING_SIGNS).is_some() {
            // The signer has said why.
            if self.signer.is_some() {
                return None;
            }
            let message = "(not signed: commands have no access to the user's keys in this run; the user can allow signatures of commits \
                           and tags with `--allow signing`)";
            return Some(Explanation::with_flag(message, "--allow signing"));
        }
        if let Some(line) = find_line(BUSY_SIGNS)
            && !self.writable_roots().is_empty()
            && !scope.is_private_copy
        {
            let file = protected_git_path(line);
            let exists = self.files.file_scope.directory.join(file).exists();
            let file = quote(file);
            let message = format!(
                "(in this run `.git/config`, as remotes and submodules need it, git hooks, start-up files and files that a \
                 rule denies to change cannot be replaced, nor the directories that contain them moved or removed; the user can also grant \
                 one of them, as with `--write --write={file}`)"
            );
            return Some(if exists {
                Explanation::with_flag(message, format!("--write={file}"))
            } else {
                Explanation::new(message)
            });
        }
        if let Some(message) = find_line(REPOSITORY_SIGNS).and_then(|_| self.explain_repository()) {
            return Some(Explanation::new(message));
        }
        let unseen_paths: Vec<UnseenPath> =
            lines_with(UNSEEN_SIGNS).filter_map(|line| self.unseen_path(command, line)).collect();
        if let Some(first) = unseen_paths.first() {
            let grantable = unseen_paths.iter().find(|unseen| self.can_grant(command, unseen));
            return Some(self.explain_unseen_path(first, grantable, command));
        }
        if find_line(RIGHTS_SIGNS).is_some() {
            let message = "(in the sandbox no command can change owners, mount, trace other processes, change the system, or take the right to read from the owner of a file; the user can run such a command)";
            return Some(Explanation::new(message));
        }
        // If the shell cannot execute a file, the sandbox is not the cause.
        if end == CommandEnd::NotExecutable {
            return None;
        }
        let first_line = find_line(FILE_SIGNS)?;
        if find_line(LIST_SIGNS).is_some()
            && let Some(message) = self.explain_unlisted_directory()
        {
            return Some(Explanation::new(message));
        }
        // `--write` permits all changes in the working directory, so another place is named first.
        let line = lines_with(FILE_SIGNS).find(|line| self.unwritable_path(line).is_some());
        Some(self.explain_file_access(line.unwrap_or(first_line), command))
    }

    /// Explains that no flag opens a path of nanobot's own to commands.
    fn explain_own_path(&self, path: &Path) -> Option<Explanation> {
        self.is_own_path(path).then(|| {
            let path = path.display();
            Explanation::denied(format!(
                "(`{path}` is internal to nanobot and not accessible to commands)"
            ))
        })
    }

    /// Explains that commands do not see the path `unseen`. The model does not learn which paths exist, nor what is behind their links:
    /// only the user reads which path is grantable.
    fn explain_unseen_path(
        &self,
        unseen: &UnseenPath,
        grantable_unseen: Option<&UnseenPath>,
        command: &str,
    ) -> Explanation {
        if let Some(explanation) = self.explain_own_path(&unseen.named) {
            return explanation;
        }
        let flag = |path: &Path, access: FileAccess| {
            let value = quote(&path.to_string_lossy());
            match access {
                FileAccess::Read => format!("--read={value}"),
                FileAccess::Write => format!("--write={value}"),
            }
        };
        let explain = |path: &Path, access: FileAccess| {
            let (flag, shown_path) = (flag(path, access), path.display());
            let what = if path.starts_with("/tmp") {
                format!(
                    "commands have a /tmp of their own in this run and do not see `{shown_path}` of the system's"
                )
            } else {
                format!("commands cannot see `{shown_path}` in this run, whether it exists or not")
            };
            format!("({what}; the user can grant it with `{flag}`)")
        };
        let message = explain(&unseen.named, unseen.access);
        let Some(UnseenPath { target_path, access, .. }) = grantable_unseen else {
            return Explanation::new(message);
        };
        Explanation {
            message_for_user: Some(explain(target_path, *access)),
            certainty: certain_if(!self.may_be_remote(command)),
            ..Explanation::with_flag(message, flag(target_path, *access))
        }
    }

    /// True if the output of `command` may be about the files of another machine or of a container.
    fn may_be_remote(&self, command: &str) -> bool {
        self.containment.has_network || has_program(command, REMOTE_PROGRAMS)
    }

    /// Explains that a rule of the user closes a file or directory that a line of the output names. What cannot be replaced is often named
    /// by the command alone.
    fn explain_closed_file(&self, ended: &EndedCommand<'_>) -> Option<Explanation> {
        let scope = &self.files.file_scope;
        let has = |line: &str, signs: &[&str]| signs.iter().any(|sign| line.contains(sign));
        let is_refused = |line: &&str| has(line, FILE_SIGNS) || has(line, BUSY_SIGNS);
        let mut lines: Vec<&str> = ended.text.lines().filter(is_refused).collect();
        // A directory cannot be moved away with what is protected in it.
        let is_busy = lines.iter().any(|line| has(line, BUSY_SIGNS));
        if is_busy {
            lines.push(ended.command);
        }
        if lines.is_empty() {
            return None;
        }
        let to_path_word = |word| {
            let path = scope.absolute(word);
            (word, path.exists(), path)
        };
        let path_words: Vec<(&str, bool, PathBuf)> =
            lines.iter().flat_map(|line| possible_paths(line)).map(to_path_word).collect();
        let is_named = |closed_path: &&PathBuf| {
            path_words.iter().any(|(word, exists, path)| {
                // A command may have been in another directory, unless there is such a file in this one.
                let mut parents = Path::new(word.trim_start_matches("../")).ancestors();
                let is_around = closed_path.starts_with(path) && !scope.directory.starts_with(path);
                path.starts_with(closed_path)
                    || is_around && is_busy
                    || !exists
                        && parents
                            .any(|path| path.file_name().is_some() && closed_path.ends_with(path))
            })
        };
        let sandbox = self.prepare_sandbox().ok()?;
        [
            (FileAccess::Read, "is closed to commands"),
            (FileAccess::Write, "is read-only to commands"),
        ]
        .into_iter()
        .find_map(|(access, what)| {
            let closed_paths = sandbox_spec::denied_files(scope, &sandbox, access).ok()?;
            let path = closed_paths.iter().find(is_named)?;
            let shown_path = path.strip_prefix(&scope.directory).unwrap_or(path).display();
            let rule = &scope.find_denial(path, access)?.rule;
            let message =
                format!("(`{shown_path}` {what} by the rule `{rule}`, which no flag lifts)");
            // A search that met the file has done its work in the others.
            let is_sought = ended.command.contains(&*path.file_name()?.to_string_lossy());
            let mut others =
                ended.text.lines().filter(|line| !is_refused(line) && !line.starts_with(EXIT_CODE));
            let has_found = access == FileAccess::Read && !is_sought && others.next().is_some();
            Some(if has_found { Explanation::new(message) } else { Explanation::denied(message) })
        })
    }

    /// Explains that commands have a loopback of their own. `address` is the one of a server that the command did not reach.
    fn explain_own_loopback(
        &self,
        address: Option<SocketAddr>,
        ended: &EndedCommand<'_>,
    ) -> Explanation {
        let grant = match address {
            Some(address) => format!("a server of the machine with `--net={address}`"),
            None => "a server of the machine with `--net=127.0.0.1:PORT`".into(),
        };
        let message = format!(
            "(commands have a loopback of their own in this run: only servers that they start listen there, as with `background`; the \
             user can grant {grant})"
        );
        // The message does not tell the model whether a program of the machine listens there.
        let mut addresses = named_addresses(ended);
        match addresses.find(|address| nanobot_sandbox::is_listening_at(*address)) {
            Some(address) if ended.failed_attempts.loopback > 0 => {
                Explanation::with_flag(message, format!("--net={address}"))
            }
            _ => Explanation::new(message),
        }
    }

    /// Explains that commands do not reach other machines. A `line` of output may name this machine instead.
    fn explain_missing_network(&self, line: Option<&str>, ended: &EndedCommand<'_>) -> Explanation {
        let has_loopback = self
            .prepare_sandbox()
            .is_ok_and(|sandbox| process::require_namespaces(&sandbox).is_ok());
        let is_loopback = |line: &str| LOOPBACK_NAMES.iter().any(|name| line.contains(name));
        if has_loopback && line.is_some_and(is_loopback) {
            return self.explain_own_loopback(named_addresses(ended).next(), ended);
        }
        let hosts = self.hosts.hosts.join(", ");
        if has_loopback && !self.hosts.is_empty() {
            let message = format!(
                "(commands reach only {hosts} in this run, through the proxy that `http_proxy` and `https_proxy` name; the user \
                 can grant another host with `--net=HOST`, or all hosts, also without the proxy, with `--net`)"
            );
            // A request by the proxy is not such an attempt.
            return if ended.failed_attempts.elsewhere > 0 {
                Explanation::with_flag(message, "--net")
            } else {
                Explanation::new(message)
            };
        }
        // A proxy, which lets single hosts through, needs a network of the run's own.
        if !has_loopback {
            let message = "(commands have no network in this run, and without user namespaces not even loopback; the user can \
                           grant it with `--net`)";
            return Explanation::with_flag(message, "--net");
        }
        let host = named_host(ended.command);
        let message = format!(
            "(commands have no network but loopback of their own in this run; the user can grant hosts with `--net={}`, or all with \
             `--net`)",
            host.as_deref().unwrap_or("HOSTS")
        );
        let flag = host.map_or_else(|| "--net".into(), |host| format!("--net={host}"));
        Explanation::with_flag(message, flag)
    }

    /// Explains which files commands can access, and which flag grants more: the path that a `line` of output names, if it
    /// names one. What a command may not write is mounted read-only; other errors may come from the mode of a file.
    fn explain_file_access(&self, line: &str, command: &str) -> Explanation {
        let is_read_only = READ_ONLY_SIGNS.iter().any(|sign| line.contains(sign));
        let roots = self.writable_roots();
        let scope = &self.files.file_scope;
        let directory = &scope.directory;
        let may_write = roots.contains(directory);
        if self.containment.reads_only && is_read_only {
            return Explanation::denied(
                "(the profile of this run changes nothing; the user can choose another with `--profile default --write`)",
            );
        }
        if let Some(unwritable) = self.unwritable_path(line)
            && !scope.is_private_copy
        {
            let is_certain = is_read_only && !self.may_be_remote(command);
            return self.explain_unwritable_path(unwritable, may_write, certain_if(is_certain));
        }
        let mut writable_paths: Vec<String> = roots
            .iter()
            .map(|path| {
                format!("{} (except start-up files and git's config and hooks)", path.display())
            })
            .collect();
        writable_paths.push("$TMPDIR".into());
        let has_fixed_writes = scope.is_private_copy || self.containment.reads_only;
        let flags = match (has_fixed_writes, may_write) {
            (true, _) => "`--read=PATH`",
            (false, true) => "`--read=PATH` or `--write=PATH`",
            (false, false) => "`--read=PATH` or `--write`",
        };
        let message = format!(
            "(in this run commands can read the system, the working directory and little else, and write only in {}; the user \
             can grant more with {flags})",
            writable_paths.join(", ")
        );
        // `--write` grants no other place. The first word is the name of the program.
        let is_elsewhere =
            |word: &str| word.starts_with('/') && !Path::new(word).starts_with(directory);
        if may_write || has_fixed_writes {
            return Explanation::new(message);
        }
        let is_certain = is_read_only && !possible_paths(line).skip(1).any(is_elsewhere);
        Explanation {
            certainty: certain_if(is_certain),
            ..Explanation::with_flag(message, "--write")
        }
    }

    /// Explains that commands cannot change a path. Only the user reads the place to grant. `may_write` is true if they can change the
    /// working directory.
    fn explain_unwritable_path(
        &self,
        UnwritablePath { named, target_path }: UnwritablePath,
        may_write: bool,
        certainty: RefusalCertainty,
    ) -> Explanation {
        let FileScope { directory, workspace, .. } = &self.files.file_scope;
        if let Some(explanation) = self.explain_own_path(&named) {
            return explanation;
        }
        if named.starts_with(workspace) {
            return Explanation::new(format!(
                "(commands cannot change `{}` in this run: the file tools change the workspace)",
                named.display()
            ));
        }
        // An entry of a protected directory can be replaced only if the directory is granted. A whole `.git` is never
        // proposed.
        let protected = self.prepare_sandbox().map_or(Vec::new(), |sandbox| sandbox.protected);
        let grantable_parent = |path: PathBuf| {
            let is_grantable =
                |parent: &&PathBuf| path.starts_with(parent) && !parent.ends_with(".git");
            protected.iter().find(is_grantable).cloned().unwrap_or(path)
        };
        let shorten = |path: &Path| {
            path.strip_prefix(directory).unwrap_or(path).to_string_lossy().into_owned()
        };
        let flag = |path: &Path| format!("--write={}", quote(&shorten(path)));
        let explain = |path: &Path| {
            let (shown_path, flag) = (shorten(path), flag(path));
            let other_flags = if may_write { "--write " } else { "" };
            format!(
                "(commands cannot change `{shown_path}` in this run; the user can grant it with `{other_flags}{flag}`)"
            )
        };
        let message = explain(&grantable_parent(named));
        match target_path.map(grantable_parent) {
            Some(target_path) => Explanation {
                message_for_user: Some(explain(&target_path)),
                certainty,
                ..Explanation::with_flag(message, flag(&target_path))
            },
            None => Explanation::new(message),
        }
    }

    /// Explains why git does not find the repository that the working directory is in.
    fn explain_repository(&self) -> Option<String> {
        let scope = &self.files.file_scope;
        if let Some(pointer) =
            scope.repository.as_ref().and_then(|repository| repository.unpinned.first())
        {
            return Some(format!(
                "(`{}` leads to `{}`, which commands do not see in this run; the user can allow it with `nanobot trust {}`)",
                pointer.file.display(),
                pointer.target.display(),
                quote(&scope.directory.to_string_lossy())
            ));
        }
        let mut ancestors = scope.directory.ancestors();
        let is_top = |path: &&Path| path.join(".git").symlink_metadata().is_ok();
        let top = ancestors.find(is_top).filter(|top| *top != scope.directory)?;
        Some(format!(
            "(the repository begins at `{}`, which commands do not use in this run; the user can grant it with `--read={}`)",
            top.display(),
            quote(&top.to_string_lossy())
        ))
    }

    /// The path to grant for a change of `path`: in a home or a granted directory its nearest existing parent, but none of these as a whole.
    fn place_to_grant(&self, path: PathBuf) -> PathBuf {
        let scope = &self.files.file_scope;
        let mut ancestors = path.ancestors();
        match ancestors.find(|path| path.symlink_metadata().is_ok()) {
            Some(place) if self.is_in_known_place(place) && !is_whole_place(scope, place) => {
                place.to_owned()
            }
            _ => path,
        }
    }

    /// True if `path` is in a home or in a granted directory.
    fn is_in_known_place(&self, path: &Path) -> bool {
        let scope = &self.files.file_scope;
        path.starts_with(&scope.home) || scope.roots.iter().any(|root| path.starts_with(&root.path))
    }

    /// The path that a line of output names, if commands cannot change it. `--write` grants the whole working directory. The output may
    /// name any path: what commands do not see is judged by its name, and what is there decides only about the place to grant.
    fn unwritable_path(&self, line: &str) -> Option<UnwritablePath> {
        let sandbox = self.prepare_sandbox().ok()?;
        let scope = &self.files.file_scope;
        let can_change = |path: &Path| {
            let is_protected =
                sandbox.protected.iter().any(|protected| path.starts_with(protected));
            !is_protected && sandbox.writable.iter().any(|root| path.starts_with(root))
        };
        let may_write = self.writable_roots().contains(&scope.directory);
        let is_read_only = READ_ONLY_SIGNS.iter().any(|sign| line.contains(sign));
        let path_words =
            possible_paths(line).filter(|word| word.contains('/') || word.starts_with('.'));
        let is_candidate = |path: &Path| {
            !can_change(path)
                && (is_read_only || self.is_in_known_place(path))
                && (may_write || !path.starts_with(&scope.directory))
                && !is_whole_place(scope, path)
                && scope.find_denial(path, FileAccess::Write).is_none()
        };
        let is_seen = |path: &Path| {
            sandbox.readable.iter().chain(&sandbox.writable).any(|root| path.starts_with(root))
        };
        let mut named_paths =
            path_words.map(|word| scope.absolute(word)).filter(|path| !is_of_kernel(path));
        named_paths.find_map(|named| {
            let trace = trace_links(&named);
            let target_path = self.place_to_grant(trace.end.clone());
            let is_grantable = is_candidate(&target_path)
                && !self.is_own_path(&target_path)
                && self.can_access(&target_path, FileAccess::Write);
            if is_seen(&trace.end) && !trace.links.iter().any(|(link, _)| is_of_kernel(link)) {
                let is_shown = self.is_own_path(&target_path) || is_grantable;
                return is_shown.then(|| UnwritablePath {
                    named: target_path.clone(),
                    target_path: Some(target_path),
                });
            }
            (!is_seen(&named) && is_candidate(&named))
                .then(|| UnwritablePath { named, target_path: is_grantable.then_some(target_path) })
        })
    }

    /// The absolute path that a line of output of `command` names, if commands do not see it.
    fn unseen_path(&self, command: &str, line: &str) -> Option<UnseenPath> {
        let sandbox = self.prepare_sandbox().ok()?;
        let scope = &self.files.file_scope;
        let path_words =
            possible_paths(line).filter(|word| word.starts_with('/') || word.starts_with("~/"));
        let resolve = |path: &Path| trace_links(path).end;
        let mut named_paths = path_words.map(|word| scope.absolute(word));
        // A link that commands see, and what the kernel provides, is not followed: a command names what it likes.
        let named = named_paths
            .find(|path| !is_visible(&sandbox, path) && !is_visible(&sandbox, &resolve(path)))?;
        // The shell prints the same about a file that it is to write.
        let mut targets = command.split('>').skip(1).filter_map(|rest| {
            let rest = rest.trim_start_matches(['&', '|', ' ']);
            let word = rest.split([' ', ';', '|', '&', '\n', ')']).next()?;
            Some(scope.absolute(&word.trim_matches(['"', '\'']).replacen("$HOME", "~", 1)))
        });
        let is_written = ["create", "touch"].iter().any(|verb| line.contains(verb))
            || targets.any(|target| target == named);
        let path = resolve(&named);
        Some(if is_written {
            UnseenPath { target_path: self.place_to_grant(path), named, access: FileAccess::Write }
        } else {
            UnseenPath { target_path: path, named, access: FileAccess::Read }
        })
    }

    /// True if a flag gives a command what it lacked: the user has the access. Programs look for settings in a home on their own.
    fn can_grant(&self, command: &str, unseen: &UnseenPath) -> bool {
        let UnseenPath { target_path, access, .. } = unseen;
        let scope = &self.files.file_scope;
        let is_named =
            target_path.file_name().is_some_and(|name| command.contains(&*name.to_string_lossy()));
        (is_named || secrets::hidden_home_entry(target_path, &scope.home).is_none())
            && (*access == FileAccess::Read
                || !(scope.is_private_copy || self.containment.reads_only))
            && scope.find_denial(target_path, *access).is_none()
            && !self.is_own_path(target_path)
            && self.can_access(target_path, *access)
    }

    /// True if `path` is one of nanobot's own, which no flag opens to commands.
    fn is_own_path(&self, path: &Path) -> bool {
        self.files.file_scope.hidden.iter().any(|hidden| path.starts_with(hidden))
    }

    /// True if this process has the access to `path`, or may create a file there, in a known place. What the kernel provides is granted
    /// to no command.
    fn can_access(&self, path: &Path, access: FileAccess) -> bool {
        let mode = match access {
            FileAccess::Read => Access::READ_OK,
            FileAccess::Write => Access::WRITE_OK,
        };
        let is_new = access == FileAccess::Write
            && self.is_in_known_place(path)
            && path.symlink_metadata().is_err();
        let target = if is_new { path.parent() } else { Some(path) };
        !is_of_kernel(path) && target.is_some_and(|target| rustix::fs::access(target, mode).is_ok())
    }

    /// True if commands cannot see `path`, whether it exists or not.
    pub(super) fn hides(&self, path: &Path) -> bool {
        let sandbox = self.containment.is_sandboxed.then(|| self.prepare_sandbox().ok()).flatten();
        sandbox.is_some_and(|sandbox| !is_visible(&sandbox, path))
    }

    /// True if the directory contains one of the `denied` paths. Without mounts, access to the directory is then granted entry by
    /// entry.
    fn contains_denied_path(&self, denied: &[PathBuf]) -> bool {
        let directory = &self.files.file_scope.directory;
        let mut denied_inside = denied.iter().filter(|path| path.starts_with(directory));
        denied_inside.any(|path| path.exists())
    }

    /// The explanation if commands cannot list the directory.
    fn explain_unlisted_directory(&self) -> Option<String> {
        let sandbox = self.prepare_sandbox().ok()?;
        self.contains_denied_path(&sandbox.denied).then(|| {
            "(commands cannot list this directory because it contains denied paths; use `list_dir`, or access its entries by \
             name)"
                .to_owned()
        })
    }
}

/// The certainty of a refusal that a permission would change.
fn certain_if(is_certain: bool) -> RefusalCertainty {
    if is_certain { RefusalCertainty::Certain } else { RefusalCertainty::Possible }
}

/// The addresses of loopback that the output of a command names, and then those of the command itself.
fn named_addresses<'a>(ended: &EndedCommand<'a>) -> impl Iterator<Item = SocketAddr> + use<'a> {
    find_loopback_addresses(ended.text).chain(find_loopback_addresses(ended.command))
}

/// The host of the web addresses in a command, if it is the same in all, with its port if one is named.
fn named_host(command: &str) -> Option<String> {
    let is_separator =
        |character: char| character.is_whitespace() || "'\"`;|()<>".contains(character);
    let mut hosts = command.split(is_separator).filter_map(|word| {
        let url = Url::parse(word).ok().filter(|url| url.scheme().starts_with("http"))?;
        let host = url.host_str()?;
        Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
    });
    let first = hosts.next()?;
    hosts.all(|host| host == first).then_some(first)
}

/// The address of loopback that a command names, if a connection to loopback has failed.
fn missing_loopback_address(ended: &EndedCommand<'_>) -> Option<SocketAddr> {
    let mut addresses = named_addresses(ended);
    if ended.failed_attempts.loopback > 0 { addresses.next() } else { None }
}

/// The words of a line of output that may be paths.
fn possible_paths(line: &str) -> impl Iterator<Item = &str> {
    let is_separator = |character: char| {
        character.is_whitespace() || "'\"`:;,()\u{2018}\u{2019}".contains(character)
    };
    line.split(is_separator).filter(|word| word.len() > 1)
}

/// A path that commands do not see, and the access to it that one needed.
struct UnseenPath {
    /// The path as the output names it, which the model knows.
    named: PathBuf,
    /// The place to grant, without links. Only the user reads it.
    target_path: PathBuf,
    access: FileAccess,
}

/// A path that commands cannot change.
struct UnwritablePath {
    /// The path that the model reads: as the output names it, unless commands see it.
    named: PathBuf,
    /// The place to grant, without links, if the user can grant it.
    target_path: Option<PathBuf>,
}

/// True for the working directory and the home directory, which no flag for a path in them is to grant.
fn is_whole_place(scope: &FileScope, path: &Path) -> bool {
    path == scope.directory || path == scope.home
}

/// True for a path that the kernel provides. Links there lead to what is different for each process.
fn is_of_kernel(path: &Path) -> bool {
    ["/proc", "/dev", "/sys"].iter().any(|directory| path.starts_with(directory))
}

/// True if a `command` contains the name of one of the `programs`.
fn has_program(command: &str, programs: &[&str]) -> bool {
    let is_separator = |character: char| !character.is_alphanumeric() && character != '-';
    command.split(is_separator).any(|word| programs.contains(&word))
}

/// True if commands see `path`, or something in it.
fn is_visible(sandbox: &SandboxSpec, path: &Path) -> bool {
    let mut visible_roots = sandbox.readable.iter().chain(&sandbox.writable);
    is_of_kernel(path) || visible_roots.any(|root| path.starts_with(root) || root.starts_with(path))
}

/// Messages of git if it cannot sign.
const SIGNING_SIGNS: &[&str] = &[
    "failed to sign the data",
    "unable to sign the tag",
    "user.signingKey needs to be set for ssh signing",
    "Couldn't load public key",
    "failed to write commit object",
];

/// Messages that programs print if a directory contains a path protected by a mount, or is such a path itself.
const BUSY_SIGNS: &[&str] = &["Device or resource busy", "EBUSY", "resource busy or locked"];

/// Messages that programs print if a directory cannot be listed.
const LIST_SIGNS: &[&str] = &["cannot open directory", "scandir", "opendir", "listdir"];

/// Programs that wait silently for a missing network.
const NETWORK_PROGRAMS: &[&str] = &[
    "npm", "npx", "pnpm", "yarn", "pip", "pip3", "uv", "poetry", "cargo", "go", "gem", "bundle",
    "composer", "mvn", "gradle", "git", "apt", "apt-get", "curl", "wget", "ssh", "scp", "rsync",
];

/// Programs whose output may be about the files of another machine or of a container.
const REMOTE_PROGRAMS: &[&str] = &["ssh", "docker", "podman", "kubectl"];

/// Messages that programs print if access to a file is denied.
const FILE_SIGNS: &[&str] = &[
    "Permission denied",
    "permission denied",
    "Read-only file system",
    "read-only file system",
    "EACCES",
    "EROFS",
];

/// Messages that programs print if a file is mounted read-only.
const READ_ONLY_SIGNS: &[&str] = &["Read-only file system", "read-only file system", "EROFS"];

/// Messages that programs print if they lack a right that no command has in the sandbox.
const RIGHTS_SIGNS: &[&str] = &["Operation not permitted", "operation not permitted", "EPERM"];

/// Messages that programs print if a path does not exist, or cannot be opened where there are no mounts.
const UNSEEN_SIGNS: &[&str] = &[
    "No such file or directory",
    "ENOENT",
    "not a git repository: ",
    "Permission denied",
    "permission denied",
    "EACCES",
];

/// The messages of git outside of a repository, and without the objects of an alternate.
const REPOSITORY_SIGNS: &[&str] = &["not a git repository", "objects/info/alternates"];

/// The names of this machine on its own network.
const LOOPBACK_NAMES: &[&str] = &["localhost", "127.0.0.1", "::1"];

/// Messages that programs print if there is no network.
const NETWORK_SIGNS: &[&str] = &[
    "Address family not supported",
    "EAFNOSUPPORT",
    "Could not resolve host",
    "Couldn't connect to server",
    "Could not connect to server",
    "Failed to connect to",
    "Network is unreachable",
    "could not resolve",
    "Name or service not known",
    "Temporary failure in name resolution",
    "Temporary failure resolving",
    "getaddrinfo",
    "ENOTFOUND",
    "EAI_AGAIN",
];

#[cfg(test)]
mod tests {
    use super::named_host;

    #[test]
    fn the_host_of_a_command_is_that_of_all_its_addresses() {
        let check = |command: &str, expect: Option<&str>| {
            assert_eq!(named_host(command).as_deref(), expect, "{command}");
        };
        check("curl -s 'https://example.org/a?b' | wc", Some("example.org"));
        check(
            "curl http://a.example:8000/ && wget \"http://a.example:8000/x\"",
            Some("a.example:8000"),
        );
        check("curl https://example.org https://example.com", None);
        check("git push; ping example.org", None);
    }
}
