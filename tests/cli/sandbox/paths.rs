//! Files that no command can write, and files that none can read.

use super::fixture::{SandboxFixture, print_count};
use crate::requirements::skip;
use crate::situation::{User, available_users};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Startup and policy files beneath a home or a directory: existing ones first, and from `.zlogout` on those that do not
/// exist.
const STARTUP_FILES: [&str; 61] = [
    ".git/hooks/pre-commit",
    ".git/hooks/post-checkout",
    ".git/config",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".inputrc",
    ".config/fish/config.fish",
    ".ssh/authorized_keys",
    ".ssh/config",
    ".gnupg/gpg.conf",
    ".xprofile",
    ".config/autostart/x.desktop",
    ".config/systemd/user/x.service",
    ".vimrc",
    ".emacs",
    ".gdbinit",
    ".tmux.conf",
    ".gitconfig",
    ".envrc",
    ".vscode/tasks.json",
    ".claude/settings.json",
    ".cargo/config.toml",
    ".nanobot/config.json",
    ".nanobot/nanobot.json",
    ".zlogout",
    ".bash_logout",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".logout",
    ".pam_environment",
    ".forward",
    ".xsession",
    ".xsessionrc",
    ".xinitrc",
    ".config/environment.d/x.conf",
    ".config/plasma-workspace/env/x.sh",
    ".local/share/systemd/user/x.service",
    ".local/share/applications/x.desktop",
    ".local/share/dbus-1/services/x.service",
    ".gvimrc",
    ".config/nvim/init.lua",
    ".exrc",
    ".emacs.d/init.el",
    ".dir-locals.el",
    ".lldbinit",
    ".pdbrc",
    ".irbrc",
    ".screenrc",
    ".config/git/config",
    ".idea/workspace.xml",
    ".mcp.json",
    ".git/commondir",
    ".git/config.worktree",
];

const EXISTING_COUNT: usize = 29;

fn create_startup_files(fixture: &SandboxFixture, dir: &Path) {
    for name in &STARTUP_FILES[..EXISTING_COUNT] {
        if !dir.join(name).exists() {
            fixture.write_file(&dir.join(name), "mine\n");
        }
    }
    fixture.write_file(&dir.join(".git/HEAD"), "ref: refs/heads/main\n");
}

/// The content of each file, if it exists.
fn read_contents(dir: &Path) -> BTreeMap<&'static str, Option<String>> {
    let read = |name: &&'static str| (*name, std::fs::read_to_string(dir.join(name)).ok());
    STARTUP_FILES.iter().map(read).collect()
}

/// Every way to write `name` in the current directory, one after another.
fn write_attempts(name: &str) -> String {
    let parent = Path::new(name).parent().unwrap().display().to_string();
    let parent = if parent.is_empty() { "." } else { &parent };
    let first = name.split('/').next().unwrap();
    [
        format!("rm -rf {first}"),
        format!("mkdir -p {parent}; echo evil > {name}"),
        format!("mkdir -p {parent}; echo evil >> {name}"),
        format!("t=$(mktemp -p .); echo evil > $t; mkdir -p {parent}; mv -f $t {name}"),
        format!("mkdir -p {parent}; cd {parent} && echo evil > ./$(basename {name})"),
        format!("mkdir -p own; echo evil > own/f; ln -f own/f {name}"),
        // The parent directory is renamed and recreated.
        format!("mv {first} moved$$; mkdir -p {parent}; echo evil > {name}"),
        format!("mkdir -p own; echo evil > own/f; rm -rf {name}; ln -s $PWD/own/f {name}"),
    ]
    .map(|command| format!("( {command} )\n"))
    .concat()
}

#[test]
fn startup_files_are_never_changed() {
    for user in available_users() {
        for (case_flags, flags, is_home) in [
            ("of the home", &[][..], true),
            ("of the directory", &[][..], false),
            ("of the directory that is written", &["--write", "--deny", "startup"][..], false),
        ] {
            let fixture = SandboxFixture::new(user);
            let dir = if is_home { fixture.story.home() } else { fixture.story.dir() };
            create_startup_files(&fixture, &dir);
            let before = read_contents(&dir);
            // Each command attempts some that are far from one another in the list, and so seldom in the same directory.
            let commands = [0, 1, 2, 3, 4, 5, 6, 7].map(|first| {
                let attempts = STARTUP_FILES.iter().skip(first).step_by(8);
                let attempts: String = attempts.map(|name| write_attempts(name)).collect();
                format!("cd {}\n{attempts}", dir.display())
            });
            let outputs = fixture.run_commands(flags, &commands);
            let after = read_contents(&dir);
            let wrong: Vec<String> = STARTUP_FILES
                .iter()
                .enumerate()
                .filter(|(_, name)| before[*name] != after[*name])
                .map(|(number, name)| format!("{name}: {:?}\n{}", after[name], outputs[number % 8]))
                .collect();
            print_count(&format!(
                "{user:?}, {case_flags}: {} of {} start-up files unchanged",
                STARTUP_FILES.len() - wrong.len(),
                STARTUP_FILES.len()
            ));
            assert!(wrong.is_empty(), "{user:?}, {case_flags}:\n{}", wrong.join("\n"));
        }
    }
}

/// Files of a home that start something, which are ordinary files elsewhere.
const HOME_FILES: [&str; 14] = [
    "bin/ls",
    ".bashrc.d/x",
    ".bash_completion",
    ".config/powershell/profile.ps1",
    ".config/starship.toml",
    ".config/i3/config",
    ".config/sway/config",
    ".config/hypr/hyprland.conf",
    ".config/kitty/kitty.conf",
    ".config/Code/User/settings.json",
    ".ipython/profile_default/startup/x.py",
    ".julia/config/startup.jl",
    ".psqlrc",
    ".wgetrc",
];

#[test]
fn startup_files_of_a_granted_home_are_never_changed() {
    for user in available_users() {
        for is_there in [false, true] {
            let fixture = SandboxFixture::new(user);
            let home = fixture.story.home();
            if is_there {
                for name in HOME_FILES {
                    fixture.write_file(&home.join(name), "mine\n");
                }
            }
            let commands = HOME_FILES.map(|name| {
                format!("echo x > ~/plain && cd && {}", write_attempts(name).trim_end())
            });
            let grant = format!("--write={}", home.display());
            let outputs = fixture.run_commands(&[&grant], &commands);
            let expect = is_there.then_some("mine\n");
            for (name, output) in HOME_FILES.iter().zip(&outputs) {
                let content = std::fs::read_to_string(home.join(name)).ok();
                assert_eq!(content.as_deref(), expect, "{user:?}: {name}: {output}");
            }
            assert!(home.join("plain").exists(), "{outputs:?}");
        }
    }
}

/// A directory that the user makes meanwhile is not lost: it cannot be told from one of the command.
#[test]
fn a_new_protected_directory_is_kept_under_another_name() {
    let fixture = SandboxFixture::new(User::Current);
    let home = fixture.story.home();
    let grant = format!("--write={}", home.display());
    fixture.run_commands(&[&grant], &["mkdir -p ~/.ssh ~/.gnupg && echo key > ~/.ssh/id_new"]);
    assert!(!home.join(".ssh").exists() && !home.join(".gnupg").exists());
    let entries = std::fs::read_dir(&home).unwrap().flatten().map(|entry| entry.path());
    let directories = entries.filter(|path| path.join("id_new").exists());
    let names: Vec<String> =
        directories.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    assert!(names.len() == 1 && names[0].starts_with(".ssh.set-aside-"), "{names:?}");
}

/// A directory that the owner may not enter or read hides nothing from the check after a command, nor from the next one.
#[test]
fn directories_that_a_command_closed_are_searched() {
    for user in available_users() {
        let fixture = SandboxFixture::new(user);
        let dir = fixture.story.dir();
        for name in [".git", ".git/modules/sub", "sub/.git"] {
            fixture.write_file(&dir.join(name).join("HEAD"), "ref: refs/heads/main\n");
            fixture.write_file(&dir.join(name).join("config"), "[core]\n");
        }
        let hook =
            "mkdir -p $g/hooks; echo evil > $g/hooks/post-commit; chmod +x $g/hooks/post-commit";
        fixture.run_commands(
            &["--write", "--deny", "startup"],
            &[
                format!("mkdir -p d/e; echo evil > d/e/AGENTS.md; git init -q d/n; g=d/n/.git; {hook}; chmod 600 d"),
                format!("git init -q f; g=f/.git; {hook}; chmod 400 f"),
                format!("g=sub/.git; {hook}; chmod 600 sub"),
                "chmod 600 .git/modules".into(),
                format!("chmod 700 .git/modules; g=.git/modules/sub; {hook}"),
            ],
        );
        for name in [
            "d/e/AGENTS.md",
            "d/n/.git/hooks/post-commit",
            "f/.git/hooks/post-commit",
            "sub/.git/hooks/post-commit",
            ".git/modules/sub/hooks/post-commit",
        ] {
            assert!(!dir.join(name).exists(), "{user:?}: {name}");
        }
    }
}

#[test]
fn nested_repositories_keep_their_hooks_and_config() {
    let fixture = SandboxFixture::new(User::Current);
    let dir = fixture.story.dir();
    for name in ["sub", "a/b/c/d/e/f/deep", "gone"] {
        fixture.write_file(&dir.join(name).join(".git/HEAD"), "ref: refs/heads/main\n");
        fixture.write_file(&dir.join(name).join(".git/config"), "mine\n");
    }
    fixture.write_file(&dir.join("sub/.git/modules/x/y/HEAD"), "ref: refs/heads/main\n");
    let outputs = fixture.run_commands(
            &["--write"],
            &[
                "mkdir -p sub/.git/hooks; echo evil > sub/.git/hooks/post-checkout; echo evil > sub/.git/config",
                "echo evil > a/b/c/d/e/f/deep/.git/config; echo evil > sub/.git/modules/x/y/config",
                "mv sub aside; mkdir -p sub/.git; echo evil > sub/.git/config",
                "rm -rf gone",
                "git init -q new && git -C new config user.name mine",
                "echo fine > sub/fine; echo x > sub/.git/index",
            ],
        );
    for (number, put_back) in [true, true, true, false, false, false].into_iter().enumerate() {
        // The one that was moved away is replaced by another repository.
        let phrases = ["commands may not change", "it was taken out"];
        let is_reported = phrases.iter().any(|phrase| outputs[number].contains(phrase));
        assert_eq!(is_reported, put_back, "{number}: {}", outputs[number]);
    }
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).ok();
    let mine = Some("mine\n".to_owned());
    assert_eq!(read("sub/.git/config").as_deref(), Some(""));
    assert_eq!(read("a/b/c/d/e/f/deep/.git/config"), mine);
    assert!(read("new/.git/config").is_some_and(|text| text.contains("name = mine")));
    assert_eq!(read("sub/.git/hooks/post-checkout"), None);
    assert_eq!(read("sub/.git/modules/x/y/config"), None);
    assert_eq!(read("sub/fine").as_deref(), Some("fine\n"));
    // A directory may be removed as a whole.
    assert!(!dir.join("gone").exists());
}

/// Files of a home that no command can read, including our own.
const SECRET_FILES: [&str; 60] = [
    ".ssh/id_ed25519",
    ".ssh/config",
    ".gnupg/private-keys-v1.d/x.key",
    ".aws/credentials",
    ".azure/accessTokens.json",
    ".config/gcloud/credentials.db",
    ".boto",
    ".s3cfg",
    ".kube/config",
    ".docker/config.json",
    ".config/containers/auth.json",
    ".config/rclone/rclone.conf",
    ".config/heroku/x",
    ".config/doctl/config.yaml",
    ".terraform.d/credentials.tfrc.json",
    ".databrickscfg",
    ".vault-token",
    ".netrc",
    ".authinfo",
    ".git-credentials",
    ".config/git/credentials",
    ".config/gh/hosts.yml",
    ".config/glab-cli/config.yml",
    ".config/hub",
    ".config/github-copilot/hosts.json",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".config/pip/pip.conf",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".config/composer/auth.json",
    ".huggingface/token",
    ".kaggle/kaggle.json",
    ".pgpass",
    ".my.cnf",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
    ".mozilla/firefox/x/logins.json",
    ".config/google-chrome/Default/Cookies",
    ".config/chromium/Default/Login Data",
    ".config/BraveSoftware/x",
    ".thunderbird/x/key4.db",
    ".config/Signal/config.json",
    ".config/Slack/Cookies",
    ".local/share/keyrings/login.keyring",
    ".password-store/x.gpg",
    ".config/op/config",
    ".bitcoin/wallet.dat",
    ".bash_history",
    ".zsh_history",
    ".psql_history",
    ".python_history",
    ".Xauthority",
    ".nanobot/config.json",
    ".nanobot/auth/openai-codex.json",
    ".nanobot/workspace/sessions/other.jsonl",
];

const CANARY: &str = "canary-5f1d";

fn create_secrets(fixture: &SandboxFixture) {
    for name in SECRET_FILES {
        let path = fixture.story.home().join(name);
        if !path.exists() {
            fixture.write_file(&path, &format!("{CANARY}\n"));
        }
    }
}

#[test]
fn secrets_are_never_read() {
    for user in available_users() {
        // The home may be granted, or be the directory: secrets stay denied.
        for flags in
            [&[][..], &["--write"][..], &["-C", "HOME"][..], &["--write", "-C", "HOME"][..]]
        {
            let fixture = SandboxFixture::new(user);
            create_secrets(&fixture);
            let home = fixture.story.home();
            fixture.write_file(&home.join("notes.txt"), "open\n");
            let flags: Vec<String> =
                flags.iter().map(|flag| flag.replace("HOME", home.to_str().unwrap())).collect();
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            let mut commands: Vec<String> = SECRET_FILES
                .iter()
                .map(|name| {
                    format!(
                        "cat '{0}/{name}'; cp '{0}/{name}' $TMPDIR/c; cat $TMPDIR/c; ln '{0}/{name}' $TMPDIR/h; cat $TMPDIR/h; \
                         ln -s '{0}/{name}' $TMPDIR/s; cat $TMPDIR/s; cat < /proc/self/root'{0}/{name}'",
                        home.display()
                    )
                })
                .collect();
            commands.push(format!("cat {}/notes.txt", home.display()));
            let mut outputs = fixture.run_commands(&flags, &commands);
            let open = outputs.pop().unwrap();
            // Without the sandbox all of them are readable.
            if flags.is_empty() {
                let outputs =
                    fixture.run_commands(&["--sandbox", "off"], &commands[..SECRET_FILES.len()]);
                let read = outputs
                    .iter()
                    .filter(|output| output.contains(CANARY) || output.contains("apiKey"));
                assert_eq!(read.count(), SECRET_FILES.len());
            }
            assert_eq!(open.contains("open"), flags.contains(&"-C"), "{open}");
            // A key would be redacted in the output, but the text around it would not.
            let is_read = |output: &str| output.contains(CANARY) || output.contains("apiKey");
            let read: Vec<&str> = SECRET_FILES
                .into_iter()
                .zip(&outputs)
                .filter(|(_, output)| is_read(output))
                .map(|(name, _)| name)
                .collect();
            print_count(&format!(
                "{user:?} {flags:?}: {} of {} secrets unread",
                SECRET_FILES.len() - read.len(),
                SECRET_FILES.len()
            ));
            assert!(read.is_empty(), "{user:?} {flags:?}: {read:?}");
        }
    }
}

#[test]
fn other_processes_keep_their_secrets() {
    for user in available_users() {
        let mut fixture = SandboxFixture::new(user);
        fixture.story = fixture.story.env("CANARY_OF_THE_STORY", CANARY);
        let commands: Vec<String> = [
            "cat /proc/[0-9]*/environ | tr '\\0' '\\n'",
            "cat /proc/$PPID/environ",
            "cat /proc/$PPID/mem | head -c 10",
            "cat /proc/$PPID/maps",
            "ls -l /proc/$PPID/fd/",
            "ls -l /proc/$PPID/cwd/",
            "ls /proc/$PPID/root/",
            "cat /proc/$PPID/task/*/environ",
            "env",
            "cat /etc/shadow /etc/gshadow /etc/sudoers",
        ]
        .map(str::to_owned)
        .into();
        let outputs = fixture.run_commands(&[], &commands);
        for (command, output) in commands.iter().zip(&outputs) {
            assert!(!output.contains(CANARY), "{user:?}: {command}\n{output}");
        }
        for number in [1, 2, 3, 4, 6, 7] {
            assert!(outputs[number].contains("Permission denied"), "{user:?}: {}", outputs[number]);
        }
        assert!(!outputs[9].contains(":*:") && !outputs[9].contains(":!"), "{}", outputs[9]);
        // Without the sandbox it is readable by root and by the same user.
        if user == User::Current && rustix::process::getuid().is_root() {
            let outputs = fixture.run_commands(&["--sandbox", "off"], &commands[1..2]);
            assert!(outputs[0].contains(CANARY), "{}", outputs[0]);
        }
    }
}

/// Our own files are denied to commands, wherever they are.
#[test]
fn our_own_files_are_denied_within_a_granted_directory() {
    let fixture = SandboxFixture::new(User::Current);
    let workspace: PathBuf = fixture.story.workspace();
    fixture.write_file(&workspace.join("sessions/s.jsonl"), CANARY);
    fixture.write_file(&workspace.join("memory/MEMORY.md"), "remembered");
    let outputs = fixture.run_commands(
        &["-C", workspace.to_str().unwrap()],
        &[
            "cat sessions/s.jsonl",
            "cat memory/MEMORY.md",
            "echo new > memory/new.md && cat memory/new.md",
        ],
    );
    assert!(!outputs[0].contains(CANARY), "{}", outputs[0]);
    assert_eq!(outputs[1], "remembered");
    assert_eq!(outputs[2], "new");
}

/// A grant for a startup file must name that file, and covers nothing else.
#[test]
fn a_protected_file_granted_by_name_is_writable() {
    let fixture = SandboxFixture::new(User::Current);
    let dir = fixture.story.dir();
    for name in [".git/HEAD", ".git/config", ".bashrc"] {
        fixture.write_file(&dir.join(name), "mine\n");
    }
    let outputs = fixture.run_commands(
        &["--write", "--write=.git/config"],
        &[
            "echo new > .git/config.lock && mv .git/config.lock .git/config",
            "echo new > .bashrc",
            "mkdir -p .git/hooks; echo new > .git/hooks/pre-commit",
        ],
    );
    assert_eq!(outputs[0], "(no output)");
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).ok();
    assert_eq!(read(".git/config").as_deref(), Some("new\n"));
    assert_eq!(read(".bashrc").as_deref(), Some("mine\n"));
    assert_eq!(read(".git/hooks/pre-commit"), None);
}

/// A directory with a denied path can be listed if mounts hide the path; otherwise the reason is given.
#[test]
fn a_directory_with_a_denied_path_is_listed_or_the_reason_is_given() {
    for has_namespaces in [true, false] {
        let mut fixture = SandboxFixture::new(User::Current);
        if !has_namespaces {
            fixture = fixture.without_namespaces();
        }
        let home = fixture.story.home();
        fixture.write_file(&home.join(".ssh/id_ed25519"), CANARY);
        fixture.write_file(&home.join("notes.txt"), "open\n");
        let home = home.to_str().unwrap();
        let outputs =
            fixture.run_commands(&["-C", home], &["ls && cat notes.txt", "cat .ssh/*; ls .ssh"]);
        let is_listed = outputs[0].contains("notes.txt") && outputs[0].contains("open");
        assert!(is_listed || outputs[0].contains("use `list_dir`"), "{}", outputs[0]);
        assert!(
            !outputs[1].contains(CANARY) && !outputs[1].contains("id_ed25519"),
            "{}",
            outputs[1]
        );
    }
}

/// A grant around a home, or within one: startup files are found at their usual paths.
#[test]
fn startup_files_of_a_home_are_protected_under_any_grant() {
    for user in available_users() {
        for inside in [".", "home", "home/.config", "home/.config/fish/conf.d"] {
            let fixture = SandboxFixture::new(user);
            let home = fixture.story.home();
            fixture.write_file(&home.join(".config/fish/config.fish"), "mine\n");
            fixture.write_file(&home.join(".config/fish/conf.d/a.fish"), "mine\n");
            fixture.write_file(&home.join(".bashrc"), "mine\n");
            let names = [".bashrc", ".zlogin", ".config/autostart/x.desktop"];
            let fish = ".config/fish/config.fish";
            let granted = home.parent().unwrap().join(inside);
            let granted = granted.canonicalize().unwrap();
            let mut commands: Vec<String> = names
                .iter()
                .chain([&fish])
                .map(|name| {
                    let path = home.join(name);
                    let parent = path.parent().unwrap().display();
                    format!("mkdir -p {parent}; echo evil > {}", path.display())
                })
                .collect();
            let new = granted.join("new");
            commands.push(format!("echo good > {}", new.display()));
            let outputs =
                fixture.run_commands(&[&format!("--write={}", granted.display())], &commands);
            let what = format!("{user:?} {inside}: {outputs:?}");
            let is = |name: &str| std::fs::read_to_string(home.join(name)).ok();
            assert_eq!(is(".bashrc").as_deref(), Some("mine\n"), "{what}");
            assert_eq!(is(fish).as_deref(), Some("mine\n"), "{what}");
            assert_eq!(is(names[1]), None, "{what}");
            assert_eq!(is(names[2]), None, "{what}");
            assert_eq!(std::fs::read_to_string(new).unwrap(), "good\n", "{what}");
        }
    }
}

/// A read-only grant stays read-only within a writable directory.
#[test]
fn a_read_only_grant_within_a_writable_one_is_not_writable() {
    for user in available_users() {
        let fixture = SandboxFixture::new(user);
        let outer = fixture.outside_dir();
        let inner = outer.join("deep/inner");
        fixture.write_file(&inner.join("file"), "mine\n");
        let outputs = fixture.run_commands(
            &[&format!("--read={}", inner.display()), &format!("--write={}", outer.display())],
            &[
                format!("echo evil > {}/new", inner.display()),
                format!("echo evil >> {}/file", inner.display()),
                format!("mv {0} {0}.away; mkdir {0}", inner.display()),
                format!("cat {}/file", inner.display()),
                format!("echo good > {}/new", outer.display()),
            ],
        );
        let file = std::fs::read_to_string(inner.join("file"));
        assert_eq!(file.unwrap(), "mine\n", "{outputs:?}");
        assert!(!inner.join("new").exists(), "{outputs:?}");
        assert_eq!(outputs[3], "mine");
        assert!(outer.join("new").exists(), "{outputs:?}");
    }
}

/// Where a command may create a repository, git's own interpretation of a config must not run commands.
#[test]
fn a_new_repository_cannot_make_git_run_commands() {
    for user in available_users() {
        let fixture = SandboxFixture::new(user);
        let config = fixture.story.dir().join(".git/config");
        let configs = [
            "[core] fsmonitor = \"touch pwned; false\" #]\\n",
            "[core]\\n\\tbare = false\\r\\tfsmonitor = x\\n",
            "[core]\\n\\tbare = a\\\\\\n\\tfsmonitor = x\\n",
            "[include]\\n\\tpath = ../x\\n",
        ];
        let make = |text: &str| {
            format!(
                "mkdir -p .git/hooks; printf '{text}' > .git/config; test -s .git/config && echo made"
            )
        };
        for text in configs {
            let outputs = fixture.run_commands(&["--write"], &[make(text)]);
            assert!(outputs[0].contains("made"), "{outputs:?}");
            assert!(outputs[0].contains("it was taken out"), "{outputs:?}");
            let config_text = std::fs::read_to_string(&config).unwrap_or_default();
            let is_gone = ["fsmonitor", "path", "\\", "\r"].map(|part| !config_text.contains(part));
            assert_eq!(is_gone, [true; 4], "{user:?}: {text}: {config_text:?}");
            std::fs::remove_dir_all(fixture.story.dir().join(".git")).unwrap();
        }
        let outputs = fixture.run_commands(&["--write"], &[make("[core]\\n\\tbare = false\\n")]);
        assert_eq!(outputs, ["made"]);
        assert!(config.exists());
    }
}

/// Root can read everybody's files. The homes of this story are at the system's path, for the program only.
#[test]
fn secrets_of_other_homes_are_never_read() {
    let fixture = SandboxFixture::new(User::Current);
    let homes = fixture.outside_dir();
    fixture.write_file(&homes.join("other/.ssh/id_rsa"), CANARY);
    fixture.write_file(&homes.join("other/.config/gh/hosts.yml"), CANARY);
    fixture.write_file(&homes.join("other/notes"), "open");
    fixture.write_file(&homes.join("other/.bashrc"), "mine\n");
    let bind = format!("mount --bind {} /home && exec \"$@\"", homes.display());
    let unshare = ["unshare", "-Urm", "sh", "-c", &bind, "sh"];
    let mut tried = std::process::Command::new("unshare");
    let tried = tried.args(&unshare[1..]).args(["ls", "/home/other"]);
    if !tried.output().is_ok_and(|tried| tried.status.success()) {
        skip("there are no namespaces of mounts, or no `/home`");
        return;
    }
    let fixture = fixture.with_wrapper(&unshare);
    for flags in [["--read=/home"], ["--read=/home/other"], ["--write=/home"]] {
        let outputs = fixture.run_commands(
            &flags,
            &[
                "cat /home/other/.ssh/id_rsa",
                "cat /home/other/.config/gh/hosts.yml",
                "cat /home/other/notes",
                "echo evil >> /home/other/.bashrc; echo evil > /home/other/.zshrc",
            ],
        );
        assert!(!outputs[0].contains(CANARY) && !outputs[1].contains(CANARY), "{outputs:?}");
        assert_eq!(outputs[2], "open");
        let bashrc = std::fs::read_to_string(homes.join("other/.bashrc"));
        assert_eq!(bashrc.unwrap(), "mine\n", "{outputs:?}");
        assert!(!homes.join("other/.zshrc").exists(), "{outputs:?}");
    }
}

/// With the home as the directory: none of our files can be created in any way, and existing ones stay.
#[test]
fn nothing_new_can_be_created_next_to_our_files() {
    let fixture = SandboxFixture::new(User::Current);
    let home = fixture.story.home();
    let own_dir = home.join(".nanobot");
    let flags = ["-C", home.to_str().unwrap(), "--write"];
    fixture.run_commands(
        &flags,
        &[
            "echo evil > .nanobot/new",
            "echo evil > .nanobot/nanobot.json",
            "mkdir -p .nanobot/profiles && echo evil > .nanobot/profiles/a.md",
            "echo evil > .nanobot/trust.json",
            "mkdir -p .nanobot/cron && echo evil > .nanobot/cron/jobs.json",
            "mv .nanobot .elsewhere && mkdir .nanobot && echo evil > .nanobot/config.json",
        ],
    );
    for name in ["new", "nanobot.json", "profiles/a.md", "trust.json", "cron/jobs.json"] {
        assert!(!own_dir.join(name).exists(), "{name}");
    }
    assert!(!home.join(".elsewhere").exists());
    let config = std::fs::read_to_string(own_dir.join("config.json")).unwrap();
    assert!(!config.contains("evil"));
}

/// Instruction files of other runs cannot be created while a command runs, in the workspace or around it; existing ones
/// cannot be changed.
#[test]
fn no_instruction_file_or_job_can_be_created_by_a_command() {
    const INSTRUCTION_FILES: &[&str] = &[
        "AGENTS.md",
        "SOUL.md",
        "USER.md",
        "TOOLS.md",
        "IDENTITY.md",
        "HEARTBEAT.md",
        "skills/evil/SKILL.md",
        "cron/jobs.json",
        "sessions/evil.jsonl",
    ];

    for is_around in [false, true] {
        let fixture = SandboxFixture::new(User::Current);
        let workspace = fixture.story.workspace();
        let (directory, inner) = if is_around {
            (fixture.story.home(), ".nanobot/workspace/")
        } else {
            (workspace.clone(), "")
        };
        let commands: Vec<String> = INSTRUCTION_FILES
                .iter()
                .map(|name| {
                    let path = format!("{inner}{name}");
                    format!("mkdir -p $(dirname {path}); rm -f {path}; echo ev''il > {path}; grep evil {path}")
                })
                .collect();
        let flags = ["-C", directory.to_str().unwrap(), "--write"];
        let outputs = fixture.run_commands(&flags, &commands);
        let what = format!("{is_around}");
        for (name, output) in INSTRUCTION_FILES.iter().zip(&outputs) {
            assert!(!output.contains("evil\n"), "{what}: {name}: {output}");
            let text = std::fs::read_to_string(workspace.join(name)).unwrap_or_default();
            assert!(!text.contains("evil"), "{what}: {name}");
        }
    }
}
