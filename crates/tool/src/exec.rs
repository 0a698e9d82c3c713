//! The `exec` tool: runs a shell command in its own process group, with a deadline and without our keys in its
//! environment. Unless the user has turned it off, the kernel sandbox limits the command to what the policy allows.
//!
//! Here are the specification of a command and its run. The modules beside it: other callers of the same run (`hook_call` for
//! hooks, `program_call` for programs with arguments), commands in the background and the tool `process` that reads them
//! (`background_commands`, `process_tool`), git (`git_environment`, `git_guard`, `stash`; `signing`, `signer` and
//! `signed_object` for signatures), and the result for the model (`output`, `failures` with `loopback_addresses`, `withheld`).

pub mod background_commands;
mod failures;
mod git_environment;
mod git_guard;
pub mod hook_call;
mod loopback_addresses;
mod output;
pub mod process_tool;
pub mod program_call;
mod signed_object;
pub mod signer;
mod signing;
mod stash;
mod withheld;

use super::arguments::usize_argument;
use super::call_result::MissingGrant;
use super::files::Files;
use super::host_proxy::{CommandHosts, HostTraffic};
use super::sandbox_spec::{self, InstalledTools};
use super::{Call, Tool, ToolError, ToolOutput, dangerous_command};
use background_commands::BackgroundCommands;
use nanobot_base::message::{ToolSpec, without_blanks};
use nanobot_base::trace_context::TraceContext;
use nanobot_config::policy::{Refusal, startup_files};
use nanobot_os::clock;
use nanobot_os::env::{Env, INSIDE_SANDBOX, TRACEPARENT, TRACESTATE};
use nanobot_os::paths::find_program;
use nanobot_os::secret::random_hex;
use nanobot_sandbox::process::{
    self, CapturedText, CommandResult, CommandShell, CommandSpec, SigningListener, TextOutput,
};
use nanobot_sandbox::project_file_rules::{Callback, ProjectFileAccess};
use nanobot_sandbox::{
    self as sandbox, FailedAttempts, NetworkAccess, SandboxError, SandboxSpec, UndoneChange,
    namespaces, private_tmp, system_paths,
};
use output::format_output;
use serde_json::Value;
use signer::Signer;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use withheld::{UndoneResult, explain_undone};

/// Linux accepts no argument of a program of this size in bytes or more (`MAX_ARG_STRLEN`).
const MAX_ARGUMENT_BYTES: usize = 128 << 10;
/// The exit status of a shell that found a file which it may not or cannot execute (POSIX).
const NOT_EXECUTABLE_STATUS: i32 = 126;
/// The line of a result with the exit status of a command that failed begins so.
const EXIT_CODE: &str = "Exit code: ";
/// The exit status of a shell that found no such program (POSIX).
const NOT_FOUND_STATUS: i32 = 127;
/// Maximum length of the note on the omitted middle of an output, in characters.
const MAX_NOTE_CHARS: usize = 256;
/// Environment variables that are passed on to a command if they are set.
const PASSED_VARIABLES: &[&str] =
    &["HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", TRACEPARENT, TRACESTATE];
/// Variables that point tools into the command's private directory, and the path within it.
const PRIVATE_DIR_VARIABLES: &[(&str, &str)] = &[
    ("TMPDIR", ""),
    ("XDG_CACHE_HOME", "cache"),
    ("XDG_STATE_HOME", "state"),
    ("npm_config_cache", "npm"),
    // The user's own .npmrc may hold tokens, and npm exits if it cannot read the file.
    ("npm_config_userconfig", "npmrc"),
    ("GOMODCACHE", "go"),
];

/// Variables that turn off retries and online checks, set if there is no network: without them tools would retry until
/// the timeout.
const FAIL_FAST_ENV: &[(&str, &str)] = &[
    ("npm_config_fetch_retries", "0"),
    ("PIP_RETRIES", "0"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("CARGO_NET_RETRY", "0"),
];

/// Settings for commands.
#[derive(Clone, Debug)]
pub struct ExecLimits {
    pub timeout: Duration,
    /// The memory of a command, in bytes.
    pub memory_bytes: Option<u64>,
    /// Maximum characters of a result.
    pub max_result_chars: usize,
    /// Prepended to PATH, as `path_append` is appended.
    pub path_prepend: String,
    pub path_append: String,
    /// Further variables that are passed on to a command.
    pub allowed_env_keys: Vec<String>,
}

/// The confinement of commands.
#[derive(Clone, Debug)]
pub struct ExecContainment {
    /// True if commands run in the sandbox. If it is unavailable, they are refused.
    pub is_sandboxed: bool,
    /// True if commands may use the network of the machine.
    pub has_network: bool,
    /// True if the profile permits no changes, whatever else is granted.
    pub reads_only: bool,
}

/// The `exec` tool.
pub struct ExecTool {
    spec: ToolSpec,
    shell: CommandShell,
    files: Arc<Files>,
    timeout: Duration,
    memory_bytes: Option<u64>,
    /// Bytes kept of the start of the output, and as many of its end.
    capture_bytes: usize,
    env: Vec<(String, String)>,
    containment: ExecContainment,
    /// Candidate parents of the run's private directory.
    temp_parents: Vec<PathBuf>,
    tools: InstalledTools,
    /// Programs that commands may read and run in addition.
    programs: Vec<PathBuf>,
    before_first_run: Option<Box<BeforeFirstRun>>,
    /// The directory of the locks by which commands of several runs take turns.
    lock_directory: Option<PathBuf>,
    /// `None` if nothing is signed for commands.
    signer: Option<Arc<Signer>>,
    /// `None` if no commands can be started in the background.
    background: Option<Arc<BackgroundCommands>>,
    /// The hosts that commands reach through a proxy, and the traffic of that proxy.
    hosts: CommandHosts,
    host_traffic: Arc<HostTraffic>,
    /// `None` if the run has no trace of its own.
    call_trace: Option<Arc<CallTrace>>,
    sandbox_spec: OnceLock<SandboxSpec>,
}

/// The span of the tool call with this id, which its command continues.
pub type CallTrace = dyn Fn(&str) -> Option<TraceContext> + Send + Sync;

/// Creates missing paths that a mount is to protect. Returns true if there were any.
pub type BeforeFirstRun = dyn Fn() -> anyhow::Result<bool> + Send + Sync;

impl ExecTool {
    /// Creates the tool. Of `env`, only the variables on the allow list are passed on to commands.
    pub fn new(
        files: Arc<Files>,
        limits: &ExecLimits,
        env: &Env,
        containment: ExecContainment,
    ) -> Self {
        let shell = CommandShell::find();
        let spec = ToolSpec {
            name: "exec".into(),
            description: format!(
                "Run a command with {} in the working directory; no stdin; timeout {} s",
                shell.name(),
                limits.timeout.as_secs()
            ),
            parameters: const {
                &without_blanks(
                    br#"{ "type": "object", "required": ["command"], "properties": {
                "command": { "type": "string", "minLength": 1 },
                "working_dir": { "type": "string" },
                "timeout": { "type": "integer", "maximum": 600, "description": "seconds" }
            } }"#,
                )
            }
            .into(),
        };
        let mut variables = command_environment(limits, env, shell);
        variables.extend(git_environment::variables(env, &files.file_scope));
        let path = variables.iter().find(|(name, _)| name == "PATH");
        let note_chars = MAX_NOTE_CHARS.min(limits.max_result_chars / 4);
        let tools = InstalledTools::new(path.map_or("", |(_, path)| path), env);
        Self {
            spec,
            shell,
            files,
            timeout: limits.timeout,
            memory_bytes: limits.memory_bytes,
            // Leave space for the text added below, so that the result is not cut again: only the first cut knows the
            // full size.
            capture_bytes: (limits.max_result_chars - note_chars) / 32 * 15,
            env: variables,
            containment,
            temp_parents: private_tmp::candidate_parents(env.get("TMPDIR")),
            tools,
            programs: Vec::new(),
            before_first_run: None,
            lock_directory: None,
            signer: None,
            background: None,
            hosts: CommandHosts::default(),
            host_traffic: Arc::default(),
            call_trace: None,
            sandbox_spec: OnceLock::new(),
        }
    }

    /// Sets a function that runs before the first command if mounts protect read-only paths. Mounts can protect only
    /// paths that exist: a missing one could be created, and give instructions to other runs until it is removed again.
    pub fn with_before_first_run(mut self, before_first_run: Box<BeforeFirstRun>) -> Self {
        self.before_first_run = Some(before_first_run);
        self
    }

    /// Lets commands take turns with those of other runs, by locks in `directory`. Commands cannot open it.
    pub fn with_locks(mut self, directory: PathBuf) -> Self {
        self.lock_directory = Some(directory);
        self
    }

    /// Lets commands reach `hosts`, where they have a network of their own.
    pub fn with_hosts(mut self, hosts: CommandHosts, traffic: &Arc<HostTraffic>) -> Self {
        if self.containment.is_sandboxed && !self.containment.has_network {
            self.hosts = hosts;
            self.host_traffic = Arc::clone(traffic);
        }
        self
    }

    /// Lets commands continue the spans of their calls, instead of the trace in the environment.
    pub fn with_call_trace(mut self, call_trace: Arc<CallTrace>) -> Self {
        self.call_trace = Some(call_trace);
        self
    }

    /// Lets the model start commands in the background, for a [`ProcessTool`] with the same `commands`.
    pub fn with_background(mut self, commands: Arc<BackgroundCommands>) -> Self {
        self.spec.parameters = const { &without_blanks(br#"{ "type": "object", "required": ["command"], "properties": {
            "command": { "type": "string", "minLength": 1 },
            "working_dir": { "type": "string" },
            "timeout": { "type": "integer", "maximum": 600, "description": "seconds" },
            "background": {
                "type": "boolean",
                "description": "return at once, with an id for `process`; the command ends with your turn"
            }
        } }"#) }.into();
        self.background = Some(commands);
        self
    }

    /// The paths that commands may change, apart from their private directory.
    fn writable_roots(&self) -> Vec<PathBuf> {
        self.files.file_scope.command_writable_paths()
    }

    /// The sandbox that all commands share. The first call prepares it: it creates the private directory and `/tmp`, installs
    /// the git guard, prepares the signer, and may create files of the workspace.
    ///
    /// # Errors
    /// The private directory cannot be created, or there are too many home directories to close.
    pub fn prepare_sandbox(&self) -> std::io::Result<SandboxSpec> {
        if let Some(sandbox) = self.sandbox_spec.get() {
            return Ok(sandbox.clone());
        }
        let private = private_tmp::run_directory(&self.temp_parents)?;
        let scope = &self.files.file_scope;
        let mut sandbox = sandbox_spec::for_scope(
            scope,
            &self.tools,
            &self.programs,
            if self.containment.has_network {
                NetworkAccess::Machine
            } else {
                let network = self.host_traffic.network(self.hosts.clone());
                NetworkAccess::Loopback { shared: Arc::new(network) }
            },
            startup_files::always_protected_from_commands(),
        )?;
        sandbox.memory = self.memory_bytes.map(process::memory_limit);
        sandbox.project_files.names = startup_files::project_files();
        sandbox.project_files.skipped = vec![private.clone()];
        sandbox.project_files.changed = self.files.changed_startup_files();
        sandbox.project_files.git = self.files.git_history();
        git_guard::install(scope, &private, &self.tools.path)?;
        sandbox.mask_configs(&sandbox_spec::git_configs(scope), &private)?;
        sandbox.add_private(private);
        sandbox.lock_directory.clone_from(&self.lock_directory);
        for (_, value) in &self.env {
            sandbox.add_links(Path::new(value));
        }
        if let Some(signer) = &self.signer {
            signer.prepare(&sandbox);
        }
        let tmp = private_tmp::tmp_directory(&self.temp_parents)?;
        sandbox.project_files.skipped.push(tmp.clone());
        sandbox.tmp = Some(tmp);
        if let Some(before_first_run) = &self.before_first_run
            && !self.writable_roots().is_empty()
            && process::require_namespaces(&sandbox).is_ok()
            && before_first_run().map_err(std::io::Error::other)?
        {
            // The files that were created are not changes of the command.
            clock::wait_for_later_file_time().map_err(std::io::Error::other)?;
        }
        Ok(self.sandbox_spec.get_or_init(|| sandbox).clone())
    }

    /// The changes of project files that commands may make now.
    fn project_file_access(&self) -> ProjectFileAccess {
        let has_network = self.containment.has_network || self.host_traffic.may_have_carried();
        self.files.project_file_access(false, has_network)
    }

    /// The environment of the command of a tool call.
    fn call_environment(&self, private: Option<&Path>, call_id: &str) -> Vec<(String, String)> {
        let mut env =
            private.map_or_else(|| self.env.clone(), |path| self.sandbox_environment(path));
        if let Some(context) = self.call_trace.as_ref().and_then(|call_trace| call_trace(call_id)) {
            for (_, value) in env.iter_mut().filter(|(name, _)| name == TRACEPARENT) {
                *value = context.to_string();
            }
        }
        env
    }

    /// The environment of a command in the sandbox, with the variables that point tools into the private directory.
    fn sandbox_environment(&self, private: &Path) -> Vec<(String, String)> {
        let private_variables = PRIVATE_DIR_VARIABLES.iter().map(|(name, subpath)| {
            let path = match *subpath {
                "" => private.to_owned(),
                subpath => private.join(subpath),
            };
            ((*name).to_owned(), path.to_string_lossy().into_owned())
        });
        let mut env: Vec<(String, String)> = self
            .env
            .iter()
            .filter(|(name, _)| !PRIVATE_DIR_VARIABLES.iter().any(|(private, _)| private == name))
            .cloned()
            .chain(private_variables)
            .collect();
        for (_, value) in env.iter_mut().filter(|(name, _)| name == "PATH") {
            let guarded_path = git_guard::extend_path(&self.files.file_scope, private, value);
            guarded_path.into_iter().for_each(|path| *value = path);
        }
        env.push((INSIDE_SANDBOX.into(), "1".into()));
        env.extend(self.hosts.variables());
        // Otherwise git does maintenance in a background process, which would be killed with the command and reported as
        // left running.
        let git_config = [
            ("GIT_CONFIG_COUNT", "2"),
            ("GIT_CONFIG_KEY_0", "gc.autoDetach"),
            ("GIT_CONFIG_VALUE_0", "false"),
            ("GIT_CONFIG_KEY_1", "maintenance.autoDetach"),
            ("GIT_CONFIG_VALUE_1", "false"),
        ];
        env.extend(git_config.map(|(name, value)| (name.to_owned(), value.to_owned())));
        // As root, tar changes the owners of files to those in the archive, which the sandbox forbids.
        let is_set = env.iter().any(|(name, _)| name == "TAR_OPTIONS");
        if rustix::process::geteuid().is_root() && !is_set {
            env.push(("TAR_OPTIONS".into(), "--no-same-owner".into()));
        }
        if !self.containment.has_network {
            let is_unset =
                |(name, _): &&(&str, &str)| !self.env.iter().any(|(other, _)| other == name);
            let fail_fast = FAIL_FAST_ENV.iter().filter(is_unset);
            env.extend(fail_fast.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        }
        env
    }
}

impl Tool for ExecTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run(&self, call: &mut Call<'_>) -> Result<ToolOutput, ToolError> {
        let arguments = call.arguments;
        let command = arguments["command"].as_str().unwrap_or_default();
        self.prepare(command)?;
        let working_dir = arguments["working_dir"].as_str().unwrap_or(".");
        // The directory stays open, so that the command starts in it even if its path leads elsewhere by then.
        let (directory, _) = self.files.open_directory(working_dir)?;
        let timeout = usize_argument(arguments, "timeout")
            .map_or(self.timeout, |seconds| Duration::from_secs(seconds as u64));
        let is_background = arguments["background"] == true;
        let sandbox = self.sandbox_of_command(is_background)?;
        let private = sandbox.as_ref().and_then(SandboxSpec::private);
        let (script, input) = if command.len() < MAX_ARGUMENT_BYTES {
            (command.to_owned(), None)
        } else {
            (script_from_input(command, is_background), Some(command.into()))
        };
        let mut env = self.call_environment(private, call.id);
        let signing = match &sandbox {
            Some(sandbox) if !is_background => self.start_signing(sandbox, &mut env),
            _ => Ok(None),
        };
        let signing = signing.map_err(|error| format!("cannot listen for signatures: {error}"))?;
        let spec = CommandSpec {
            program: self.shell.path().into(),
            arguments: self.shell.arguments(script),
            directory: format!("/proc/self/fd/{}", directory.as_raw_fd()).into(),
            env,
            timeout,
            capture_bytes: self.capture_bytes,
            sandbox,
            input,
        };
        if is_background {
            return self.start_in_background(command, &spec);
        }
        self.run_to_end(command, spec, signing, call.on_output)
    }

    fn check_call(&self, arguments: &Value) -> Result<(), ToolError> {
        let command = arguments["command"].as_str().unwrap_or_default();
        Ok(dangerous_command::check(command, "not run")?)
    }
}

impl ExecTool {
    /// Runs a command to its end. `command` is its text for explanations. Until the end `signing` signs for it.
    fn run_to_end(
        &self,
        command: &str,
        mut spec: CommandSpec,
        signing: Option<SigningListener>,
        on_output: &mut dyn FnMut(&str),
    ) -> Result<ToolOutput, ToolError> {
        let timeout = spec.timeout;
        let mut output = TextOutput::new(spec.capture_bytes, &self.temp_parents);
        // `output` captures text; the result of the command has none.
        spec.capture_bytes = 0;
        let mut run = || process::run(&spec, &mut |bytes| on_output(&output.feed(bytes)));
        let result = self.files.record_command(&mut run);
        // From here on nothing is signed for it.
        drop(signing);
        let result = result.map_err(|error| start_error(&error, timeout))?;
        on_output(&output.end());
        self.to_output(command, result, &output.take(), timeout)
    }

    /// Refuses probable accidents, and requires the sandbox.
    fn prepare(&self, command: &str) -> Result<(), Refusal> {
        dangerous_command::check(command, "not run")?;
        self.require_sandbox()
    }

    /// Prepares the sandbox if commands may change files: its directories, and a supervisor that shows whether there are namespaces.
    /// Refuses every command while a required sandbox is unavailable.
    fn require_sandbox(&self) -> Result<(), Refusal> {
        if !self.containment.is_sandboxed {
            return Ok(());
        }
        let may_change = self.writable_roots().iter().any(|path| path.is_dir());
        if may_change
            && let Ok(sandbox) = self.prepare_sandbox()
            && let Err(error) = process::require_namespaces(&sandbox)
        {
            sandbox::check_available().map_err(sandbox_missing)?;
            return Err(without_sandbox(format!(
                "not run: commands that may change files need user namespaces, which this system does not allow ({error}), so \
                 that git hooks and start-up files stay protected; the file tools work, and so do commands without `--write`; \
                 the user can allow them ({}), or run commands without a sandbox with `--sandbox off`",
                namespaces::explain_refusal()
            )));
        }
        Ok(())
    }

    /// The sandbox of the next command: the shared one, with what is allowed now. `None` if it is turned off.
    fn sandbox_of_command(&self, is_background: bool) -> Result<Option<SandboxSpec>, String> {
        if !self.containment.is_sandboxed {
            log::info!(target: "sandbox", "the command is not sandboxed: `--sandbox off`");
            return Ok(None);
        }
        let sandbox = self.prepare_sandbox();
        let sandbox = sandbox.map_err(|error| format!("cannot set up the sandbox: {error}"))?;
        let mut sandbox = sandbox.without_mounts_in_removable_git_dirs();
        sandbox_spec::apply_rules(&self.files.file_scope, &mut sandbox)
            .map_err(|error| format!("cannot set up the sandbox: {error}"))?;
        sandbox.project_files.access = self.project_file_access();
        if is_background || !self.hosts.is_empty() {
            let (files, traffic) = (Arc::clone(&self.files), Arc::clone(&self.host_traffic));
            let has_network = self.containment.has_network;
            let access_now =
                move || files.project_file_access(false, has_network || traffic.may_have_carried());
            sandbox.project_files.access_now = Some(Callback(Arc::new(access_now)));
        }
        sandbox.project_files.stash = Some(self.stash_reader(&sandbox));
        // Each command has a directory of its own, since one in the background may still use another.
        let config_copies = |private: &Path| private.join(format!("git-{}", random_hex(8)));
        sandbox.config_copies = sandbox.private().map(config_copies);
        let (has_network, count) = (self.containment.has_network, sandbox.writable.len());
        log::info!(target: "sandbox", "the command is sandboxed: {count} writable paths, {} network", if has_network { "with" } else { "no" });
        Ok(Some(sandbox))
    }

    /// The result of `command` for the model.
    fn to_output(
        &self,
        command: &str,
        result: CommandResult,
        captured_text: &CapturedText,
        timeout: Duration,
    ) -> Result<ToolOutput, ToolError> {
        let mut text = format_output(captured_text);
        let code = result.status.and_then(|status| status.code());
        let end = match (code, result.signal()) {
            (Some(0), _) => CommandEnd::Success,
            (Some(code), _) => {
                text.push_str(&format!("\n{EXIT_CODE}{code}"));
                if code == NOT_EXECUTABLE_STATUS {
                    CommandEnd::NotExecutable
                } else {
                    CommandEnd::Failure
                }
            }
            (None, Some(signal)) => {
                text.push_str(&format!("\nKilled by signal {signal}"));
                CommandEnd::Failure
            }
            (None, None) if result.stop.is_some() => {
                text.push_str(
                    "\nInterrupted because the run was ended; all its processes were killed",
                );
                CommandEnd::Interrupted
            }
            (None, None) => {
                text.push_str(&format!(
                    "\nTimed out after {} seconds; all its processes were killed",
                    timeout.as_secs()
                ));
                CommandEnd::Timeout
            }
        };
        for object in self.report_signed() {
            text.push_str(&format!("\n({object})"));
        }
        let is_unfinished = matches!(end, CommandEnd::Timeout | CommandEnd::Interrupted);
        if result.had_leftovers && !is_unfinished {
            text.push_str("\n(its background processes were killed)");
        }
        let scope = &self.files.file_scope;
        let add_undone = |text: &mut String, undone: &[UndoneChange]| {
            for reason in explain_undone(scope, undone).message.lines() {
                text.push_str(&format!("\n({reason})"));
            }
        };
        if end == CommandEnd::Interrupted {
            // The user cannot be asked about its changes any more.
            add_undone(&mut text, &result.undone);
            return Err(text.trim_start().into());
        }
        let command_failed = end != CommandEnd::Success;
        let is_not_found = code == Some(NOT_FOUND_STATUS);
        let missing_program = is_not_found.then(|| self.missing_program(command, &text)).flatten();
        let mut missing_grant = None;
        let ended = EndedCommand {
            failed_attempts: result.failed_attempts,
            is_silent: captured_text.is_blank(),
            ..EndedCommand::new(command, &text, end)
        };
        let explanation = self.explain_refused_hosts().or_else(|| self.explain_failure(&ended));
        if let Some(Explanation { message, message_for_user, suggested_flag, certainty }) =
            explanation
        {
            if certainty != RefusalCertainty::Note {
                let message = message_for_user.as_ref().unwrap_or(&message);
                let message = message.trim_matches(['(', ')']).to_owned();
                let refusal = Refusal { message, suggested_flag, names_flag: true };
                let is_certain = certainty == RefusalCertainty::Certain;
                missing_grant = Some(MissingGrant { refusal, is_certain });
            }
            text.push_str(&format!("\n{message}"));
        }
        if !result.undone_in_background.is_empty() {
            text.push_str("\n(a background command changed protected files:)");
            add_undone(&mut text, &result.undone_in_background);
        }
        let undone = result.undone;
        if !undone.is_empty() {
            let files = Arc::clone(&self.files);
            let undone_result = UndoneResult { files, text, command_failed, undone };
            return Err(undone_result.into_error());
        }
        if is_unfinished {
            return Err(text.trim_start().into());
        }
        Ok(ToolOutput {
            command_failed,
            missing_program,
            missing_grant,
            ..text.trim_start_matches('\n').to_owned().into()
        })
    }

    /// The first word of `command` if the shell, whose `output` begins its message with it, found no program of that name. A path is one
    /// only if commands cannot see it: otherwise the run may create that file.
    fn missing_program(&self, command: &str, output: &str) -> Option<String> {
        let name = command.split_whitespace().next()?;
        if name.starts_with('/') || name.starts_with("~/") {
            let path = self.files.file_scope.absolute(name);
            // Commands have a `/tmp` of their own.
            let can_appear = path.starts_with("/tmp") && !path.exists();
            let is_reported = output.contains(&format!("{}: ", path.display()));
            return (is_reported && !can_appear && self.hides(&path)).then(|| name.to_owned());
        }
        let is_name =
            name.chars().all(|letter| letter.is_alphanumeric() || "-_.+".contains(letter));
        let path = self.env.iter().find(|(variable, _)| variable == "PATH");
        let path = path.map_or("", |(_, path)| path);
        let is_reported = output.contains(&format!("{name}: "));
        (is_name && is_reported && find_program(name, path).is_none()).then(|| name.to_owned())
    }
}

/// The explanation of a failed command.
struct Explanation {
    /// A sentence in parentheses, which names the flag.
    message: String,
    /// The same for the user, if it names what the model is not told.
    message_for_user: Option<String>,
    /// The flag that permits what was refused.
    suggested_flag: Option<String>,
    certainty: RefusalCertainty,
}

/// The certainty that the sandbox refused what a failed command needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RefusalCertainty {
    /// A note for the model. No permission is known to be missing.
    Note,
    /// A person who can be asked decides. The cause may be another: the mode of a file, for example.
    Possible,
    /// It is reported as a denial.
    Certain,
}

impl Explanation {
    /// An explanation for the model.
    fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            message_for_user: None,
            suggested_flag: None,
            certainty: RefusalCertainty::Note,
        }
    }

    /// A refusal that no flag changes.
    fn denied(message: impl Into<String>) -> Self {
        Self { certainty: RefusalCertainty::Certain, ..Self::new(message) }
    }

    /// A refusal that a flag changes.
    fn with_flag(message: impl Into<String>, flag: impl Into<String>) -> Self {
        Self { suggested_flag: Some(flag.into()), ..Self::denied(message) }
    }
}

/// A script that runs `command`, which is too long for an argument, from the beginning of standard input. A command in the
/// background gets the rest of the input.
fn script_from_input(command: &str, is_background: bool) -> String {
    let input = if is_background { "" } else { " </dev/null" };
    format!("eval \"$(head -c {})\"{input}", command.len())
}

/// The end of a command, as far as the explanation of a failure needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandEnd {
    Success,
    Failure,
    /// The shell found no program that it may run.
    NotExecutable,
    Timeout,
    /// The run was ended.
    Interrupted,
}

/// A command that has ended, for the explanation of its failure.
struct EndedCommand<'a> {
    command: &'a str,
    /// Its output.
    text: &'a str,
    end: CommandEnd,
    /// The attempts to reach something that its network does not have.
    failed_attempts: FailedAttempts,
    /// True if it printed nothing.
    is_silent: bool,
}

impl<'a> EndedCommand<'a> {
    /// A command of which only the output is known.
    fn new(command: &'a str, text: &'a str, end: CommandEnd) -> Self {
        let failed_attempts = FailedAttempts::default();
        Self { command, text, end, failed_attempts, is_silent: false }
    }
}

/// The refusal of a command that runs only without a sandbox. The message names the flag.
fn without_sandbox(message: String) -> Refusal {
    Refusal { message, suggested_flag: Some("--sandbox off".into()), names_flag: true }
}

fn sandbox_missing(error: SandboxError) -> Refusal {
    without_sandbox(format!(
        "not run: commands require a sandbox, and it is unavailable ({error}); the user can run them without one with \
         `--sandbox off`"
    ))
}

/// The error for a command that could not be started.
fn start_error(error: &std::io::Error, timeout: Duration) -> ToolError {
    let sandbox_error = error.get_ref().and_then(|inner| inner.downcast_ref::<SandboxError>());
    if let Some(sandbox_error) = sandbox_error {
        return sandbox_missing(*sandbox_error).into();
    }
    match error.kind() {
        std::io::ErrorKind::ResourceBusy => format!(
            "not run: timed out after {} s waiting for another command that may change the same files; try again",
            timeout.as_secs()
        ),
        std::io::ErrorKind::OutOfMemory => format!(
            "cannot start the shell: {}; the user can allow more with `tools.exec.memory`",
            process::describe_start_error(error)
        ),
        _ => format!(
            "cannot start the shell: {}",
            process::describe_start_error(error)
        ),
    }
    .into()
}

/// The complete environment of a command. Variables are passed by an allow list, so that no key is passed on by
/// oversight.
fn command_environment(
    limits: &ExecLimits,
    env: &Env,
    shell: CommandShell,
) -> Vec<(String, String)> {
    let user_path = env.get("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin");
    let parts = [limits.path_prepend.as_str(), user_path, limits.path_append.as_str()];
    let path = parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(":");
    let fixed = [("PATH", path.as_str()), ("SHELL", shell.path()), ("TERM", "dumb")];
    let is_passed = |name: &str| {
        PASSED_VARIABLES.contains(&name)
            || system_paths::RELOCATED_TOOLS.iter().any(|(variable, ..)| *variable == name)
            || name.starts_with("LC_")
            || limits.allowed_env_keys.iter().any(|key| key == name)
    };
    let passed = env
        .iter()
        .filter(|(name, _)| is_passed(name) && !CommandShell::is_removed_variable(name))
        .filter(|(name, _)| !fixed.iter().any(|(fixed_name, _)| fixed_name == name));
    fixed
        .into_iter()
        .chain(passed)
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{CommandShell, ExecContainment, ExecLimits, ExecTool, command_environment};
    use crate::files::{Files, tests::files};
    use crate::{Tool, ToolError, run_alone};
    use nanobot_base::message::plain_text;
    use nanobot_config::policy::file_scope::{FileScope, ScopeRoot};
    use nanobot_os::env::Env;
    use nanobot_sandbox::SandboxSpec;
    use serde_json::{Value, json};
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::time::Duration;

    fn limits() -> ExecLimits {
        let (path_prepend, path_append) = ("/first".into(), "/last".into());
        ExecLimits {
            timeout: Duration::from_secs(10),
            memory_bytes: None,
            max_result_chars: 16_000,
            path_prepend,
            path_append,
            allowed_env_keys: ["EXTRA", "BASH_ENV"].map(str::to_owned).into(),
        }
    }

    #[test]
    fn only_named_variables_are_passed() {
        let env: Env = [
            ("PATH", "/bin"),
            ("HOME", "/h"),
            ("LC_ALL", "C"),
            ("OPENAI_API_KEY", "k"),
            ("EXTRA", "e"),
            ("LD_PRELOAD", "x"),
            ("SHELL", "/evil"),
            ("BASH_ENV", "/evil"),
        ]
        .into_iter()
        .collect();
        let shell = CommandShell::find();
        let mut environment = command_environment(&limits(), &env, shell);
        environment.sort();
        let actual: Vec<String> =
            environment.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            actual,
            [
                "EXTRA=e",
                "HOME=/h",
                "LC_ALL=C",
                "PATH=/first:/bin:/last",
                &format!("SHELL={}", shell.path()),
                "TERM=dumb"
            ]
        );
    }

    #[test]
    fn results_as_the_model_sees_them() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        let containment =
            ExecContainment { is_sandboxed: true, has_network: false, reads_only: false };
        let exec =
            ExecTool::new(Arc::new(files(&dir, false)), &limits(), &Env::default(), containment);
        let _alone = nanobot_os::children::serialize_tests();
        let check = |command: &str, expect: Result<&str, &str>| {
            let result = run_alone(&exec, &json!({ "command": command, "timeout": 1 }));
            let result = result.map(|output| plain_text(&output.parts));
            assert_eq!(result.as_deref().map_err(ToolError::message), expect, "{command}");
        };
        check("echo out; echo err >&2", Ok("out\nerr"));
        check("true", Ok("(no output)"));
        check("echo no; exit 3", Ok("no\nExit code: 3"));
        check("kill -9 $$", Ok("(no output)\nKilled by signal 9"));
        check("printf 'a\\377b'", Ok("a\u{fffd}b"));
        check("pwd", Ok(dir.to_str().unwrap()));
        check("cat", Ok("(no output)"));
        check(
            "echo on; sleep 9",
            Err("on\nTimed out after 1 seconds; all its processes were killed"),
        );
        check("sleep 30 & echo on", Ok("on\n(its background processes were killed)"));
        let long = run_alone(&exec, &json!({ "command": "seq 1 100000" })).unwrap();
        let long = plain_text(&long.parts);
        assert!(
            long.starts_with("1\n2\n")
                && long.ends_with("99999\n100000")
                && long.contains("bytes left out")
        );
        assert!(long.len() < 16_000);
        assert!(run_alone(&exec, &json!({ "command": "pwd", "working_dir": "/etc" })).is_err());
        check(
            "touch here",
            Ok(
                "touch: cannot touch 'here': Permission denied\nExit code: 1\n(in this run commands can read the \
                system, the working directory and little else, and write only in $TMPDIR; the user can grant more with `--read=PATH` \
                or `--write`)",
            ),
        );
        nanobot_sandbox::private_tmp::remove_all();
    }

    #[test]
    fn an_intersection_keeps_the_denials_of_both() {
        let temp = tempfile::tempdir().unwrap();
        let home = std::fs::canonicalize(temp.path()).unwrap();
        for name in ["d/.config/nvim", ".aws", "w"] {
            std::fs::create_dir_all(home.join(name)).unwrap();
        }
        let _alone = nanobot_os::children::serialize_tests();
        let scope = |directory: &str, roots: &[(&str, bool)]| FileScope {
            directory: home.join(directory),
            workspace: home.join("w"),
            home: home.clone(),
            roots: roots
                .iter()
                .map(|(path, may_write)| ScopeRoot { path: home.join(path), may_write: *may_write })
                .collect(),
            ..FileScope::default()
        };
        let ours = scope("w", &[("d", true), ("w", true), ("", false)]);
        let theirs = scope("d", &[("d/.config", true), ("w", true), (".aws", false)]);
        let prepare = |scope: FileScope| {
            let containment =
                ExecContainment { is_sandboxed: true, has_network: false, reads_only: false };
            let files = Arc::new(Files::new(scope).unwrap());
            let exec = ExecTool::new(files, &limits(), &Env::default(), containment);
            exec.prepare_sandbox().unwrap()
        };
        let access = |sandbox: &SandboxSpec, name: &str| {
            let path = &home.join(name);
            let is_in = |roots: &[PathBuf]| roots.iter().any(|root| path.starts_with(root));
            let is_writable = is_in(&sandbox.writable) && !is_in(&sandbox.protected);
            (is_in(&sandbox.readable) && !is_in(&sandbox.denied), is_writable)
        };
        let names = ["d/x", "d/.config/x", "d/.config/nvim/x", "w/x", ".aws/x"];
        let both = prepare(ours.intersection(&theirs));
        for name in names {
            let (one, other) =
                (access(&prepare(ours.clone()), name), access(&prepare(theirs.clone()), name));
            assert_eq!(access(&both, name), (one.0 && other.0, one.1 && other.1), "{name}");
        }
        assert_eq!(access(&both, "d/.config/x"), (true, true));
        nanobot_sandbox::private_tmp::remove_all();
    }

    #[test]
    fn a_command_in_the_background_has_one_more_argument() {
        let dir = tempfile::tempdir().unwrap();
        let new = || {
            let containment =
                ExecContainment { is_sandboxed: false, has_network: false, reads_only: false };
            let files = Arc::new(files(dir.path(), false));
            ExecTool::new(files, &limits(), &Env::default(), containment)
        };
        let mut expect = Value::clone(&new().spec().parameters);
        let tool = new().with_background(Arc::default());
        let actual = &tool.spec().parameters;
        expect["properties"]["background"] = actual["properties"]["background"].clone();
        assert_eq!(**actual, expect);
    }
}
