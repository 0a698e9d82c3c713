//! Well-known locations of secrets: keys, logins, browser profiles, shell histories. No I/O.
//!
//! They are closed to commands and file tools even beneath a granted directory; granting exactly such a location opens
//! it. Secrets that a project keeps within itself (`.env`, `*.pem`) are not listed: the agent's work involves them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Locations beneath a home directory. Compared case-insensitively, because some file systems are.
const HOME_SECRETS: &[&str] = &[
    // Keys and logins.
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".config/gcloud",
    ".config/gh",
    ".config/glab-cli",
    ".config/hub",
    ".config/op",
    ".config/rclone",
    ".config/sops",
    ".config/age",
    ".config/git/credentials",
    ".git-credentials",
    ".netrc",
    ".authinfo",
    ".authinfo.gpg",
    ".pgpass",
    ".my.cnf",
    ".mylogin.cnf",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".vault-token",
    ".s3cfg",
    ".boto",
    ".databrickscfg",
    ".cache/huggingface/token",
    ".local/share/uv/credentials",
    ".dotnet/corefx/cryptography",
    ".npm-global/etc/npmrc",
    ".password-store",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".config/keepassxc",
    ".config/Bitwarden",
    ".config/1Password",
    ".Xauthority",
    ".ICEauthority",
    // Other agents.
    ".claude.json",
    ".config/github-copilot",
    // Browsers, mail, chats.
    ".mozilla",
    ".thunderbird",
    ".config/google-chrome",
    ".config/google-chrome-beta",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/opera",
    ".config/vivaldi",
    ".config/Signal",
    ".config/Slack",
    ".config/discord",
    ".local/share/TelegramDesktop",
    ".local/share/evolution",
    "Library/Keychains",
    "Library/Cookies",
    "Library/Safari",
    "Library/Messages",
    "Library/Application Support/Firefox",
    "Library/Application Support/Google/Chrome",
    "Library/Application Support/Chromium",
    "Library/Application Support/BraveSoftware",
    // Histories of typed input.
    ".bash_history",
    ".zsh_history",
    ".histfile",
    ".sh_history",
    ".ash_history",
    ".python_history",
    ".node_repl_history",
    ".irb_history",
    ".psql_history",
    ".mysql_history",
    ".sqlite_history",
    ".rediscli_history",
    ".mongosh",
    ".lesshst",
    ".viminfo",
    // Clouds, clusters, registries, databases and other services with logins.
    ".age",
    ".pki",
    ".config/Bitwarden CLI",
    ".oci",
    ".ibmcloud",
    ".docker",
    ".config/containers",
    ".config/doctl",
    ".config/heroku",
    ".config/hcloud",
    ".config/linode-cli",
    ".config/scw",
    ".config/vercel",
    ".config/netlify",
    ".fly",
    ".terraform.d",
    ".terraformrc",
    ".snowflake",
    ".ansible",
    ".vagrant.d",
    ".yarnrc",
    ".config/pip",
    ".pip",
    ".bundle/config",
    ".gradle/init.d",
    ".nuget/NuGet",
    ".config/NuGet",
    ".huggingface",
    ".kaggle",
    ".mongorc.js",
    ".rediscli_auth",
    ".claude",
    ".codex",
    ".gemini",
    ".config/openai",
    ".config/opencode",
    ".local/share/opencode",
    ".cursor",
    ".aider.conf.yml",
    ".librewolf",
    ".cache/mozilla",
    ".cache/google-chrome",
    ".cache/chromium",
    ".cache/thunderbird",
    ".var/app",
    "snap",
    ".config/Element",
    ".purple",
    ".irssi",
    ".weechat",
    ".mbsyncrc",
    ".msmtprc",
    ".fetchmailrc",
    ".offlineimaprc",
    ".muttrc",
    ".bitcoin",
    ".ethereum",
    ".electrum",
    ".config/solana",
    ".local/share/fish",
    ".config/pulse/cookie",
    ".zhistory",
    ".local/share/atuin",
    ".config/configstore",
    ".cloudflared",
    ".pulumi",
    ".local/share/password-store",
    ".config/Code/User/globalStorage",
    ".config/VSCodium/User/globalStorage",
    ".config/Cursor/User/globalStorage",
    ".config/evolution",
    ".cache/evolution",
    ".local/share/akonadi",
    ".local/share/mail",
    ".mail",
    ".maildir",
    "Mail",
    "Maildir",
];

/// System-wide locations.
const SYSTEM_SECRETS: &[&str] = &[
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/krb5.keytab",
    "/etc/NetworkManager/system-connections",
    "/etc/wireguard",
    "/var/lib/NetworkManager",
    "/run/secrets",
    "/run/credentials",
    "/var/run/secrets",
    "/proc/kcore",
    "/proc/keys",
    "/etc/security/opasswd",
    "/etc/pki/tls/private",
    "/etc/letsencrypt",
    "/etc/ipsec.secrets",
    "/etc/ipsec.d",
    "/etc/openvpn",
    "/etc/ppp",
    "/etc/wpa_supplicant",
    "/etc/netplan",
    "/etc/kubernetes",
    "/etc/rancher",
    "/etc/docker",
    "/etc/mysql/debian.cnf",
    "/etc/apt/auth.conf",
    "/etc/apt/auth.conf.d",
    "/etc/crypttab",
    "/etc/sssd",
    "/etc/samba",
    "/etc/ssh/ssh_host_rsa_key",
    "/etc/ssh/ssh_host_ecdsa_key",
    "/etc/ssh/ssh_host_ed25519_key",
    "/etc/ssh/ssh_host_dsa_key",
];

/// Parent directories of home directories, one for each user.
pub const HOME_PARENTS: &[&str] = &["/home", "/Users"];
/// The home directory outside [`HOME_PARENTS`].
pub const ROOT_HOME: &str = "/root";

/// Files in `/proc/PID` that expose a process's environment, arguments or memory.
const PROCESS_SECRETS: &[&str] = &["environ", "mem", "auxv", "cmdline"];

/// The secret location that `path` is, or is in. `home` is the user's home directory; other users' homes count too.
pub fn secret_containing(path: &Path, home: &Path) -> Option<PathBuf> {
    // Every path of a search is checked, so the lists are compared as text, with a path in its shortest form.
    let path: &Path = &path.components().collect::<PathBuf>();
    let in_homes = || {
        let home = home_containing(path, home)?;
        let rest = path.strip_prefix(&home).ok()?;
        let secret = HOME_SECRETS.iter().find_map(|name| {
            leading_part(rest, name.len()).filter(|part| part.eq_ignore_ascii_case(name))
        })?;
        Some(home.join(secret))
    };
    let in_system = || {
        let mut secrets = SYSTEM_SECRETS.iter();
        let secret = secrets
            .find(|secret| leading_part(path, secret.len()).is_some_and(|part| part == **secret));
        secret.map(PathBuf::from)
    };
    let in_proc = || {
        let is_secret = path.starts_with("/proc") && is_process_secret(path);
        is_secret.then(|| path.to_owned())
    };
    in_homes().or_else(in_system).or_else(in_proc)
}

/// The hidden entry of a home directory that `path` is, or is in. A grant of the home does not open it: such entries hold
/// settings and logins of programs that no list covers.
pub fn hidden_home_entry(path: &Path, home: &Path) -> Option<PathBuf> {
    let home = home_containing(path, home)?;
    let first = path.strip_prefix(&home).ok()?.components().next()?;
    let is_hidden = first.as_os_str().as_encoded_bytes().starts_with(b".");
    is_hidden.then(|| home.join(first))
}

/// The secret locations of `home`, existing or not.
pub fn home_secrets(home: &Path) -> impl Iterator<Item = PathBuf> {
    HOME_SECRETS.iter().map(|name| home.join(name))
}

/// The system-wide secret locations.
pub fn system_secrets() -> impl Iterator<Item = PathBuf> {
    SYSTEM_SECRETS.iter().map(PathBuf::from)
}

/// True if the file name is one of the sensitive files of `/proc/PID`, wherever procfs is mounted.
pub fn is_process_secret(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| PROCESS_SECRETS.contains(&name))
}

/// The home directory that contains `path`.
pub(super) fn home_containing(path: &Path, home: &Path) -> Option<PathBuf> {
    if path.starts_with(home) && home.parent().is_some() {
        return Some(home.to_owned());
    }
    let depth = match path.components().nth(1)?.as_os_str().to_str()? {
        "root" => 2,
        "home" | "Users" => 3,
        _ => return None,
    };
    let parts: Vec<Component<'_>> = path.components().take(depth).collect();
    (parts.len() == depth).then(|| parts.into_iter().collect())
}

/// The first `length` bytes of `path`, if a component ends there.
fn leading_part(path: &Path, length: usize) -> Option<&OsStr> {
    let (part, rest) = path.as_os_str().as_bytes().split_at_checked(length)?;
    matches!(rest, [] | [b'/', ..]).then(|| OsStr::from_bytes(part))
}

#[cfg(test)]
mod tests {
    use super::secret_containing;
    use std::path::Path;

    #[test]
    fn secret_locations() {
        let check = |path: &str, expect: Option<&str>| {
            let actual = secret_containing(Path::new(path), Path::new("/srv/me"));
            assert_eq!(actual.as_deref(), expect.map(Path::new), "{path}");
        };
        check("/srv/me/.ssh/id_rsa", Some("/srv/me/.ssh"));
        check("/srv/me/.ssh", Some("/srv/me/.ssh"));
        check("/srv/me/.SSH/x", Some("/srv/me/.SSH"));
        check("/srv/me/.sshx/y", None);
        check("/srv/me/project/.ssh/x", None);
        check("/srv/me//.config/./gh/", Some("/srv/me/.config/gh"));
        check("/srv/me/project/.env", None);
        check(
            "/srv/me/.config/google-chrome/Default/Cookies",
            Some("/srv/me/.config/google-chrome"),
        );
        check("/srv/me/.config", None);
        check("/srv/me/.docker/config.json", Some("/srv/me/.docker"));
        check("/srv/me/.dockerfile", None);
        check("/home/other/.aws/credentials", Some("/home/other/.aws"));
        check("/home/.aws", None);
        check("/root/.bash_history", Some("/root/.bash_history"));
        check("/Users/x/Library/Keychains/a", Some("/Users/x/Library/Keychains"));
        check("/etc/shadow", Some("/etc/shadow"));
        check("/etc//sudoers.d/x", Some("/etc/sudoers.d"));
        check("/etc/shadows", None);
        check("/etc/Shadow", None);
        check("/etc/passwd", None);
        check("/proc/1/environ", Some("/proc/1/environ"));
        check("/proc/1/task/2/environ", Some("/proc/1/task/2/environ"));
        check("/proc/1/status", None);
        check("/srv/other/environ", None);
        check("/", None);
    }
}
