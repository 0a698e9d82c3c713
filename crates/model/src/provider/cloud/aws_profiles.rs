//! The files of AWS with profiles, `~/.aws/credentials` and `~/.aws/config`.

use anyhow::Result;
use nanobot_base::error::{Exit, fail};
use nanobot_os::env::Env;
use nanobot_os::input;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Maximum size of a file.
const MAX_FILE_BYTES: usize = 1 << 20;

/// The values of a profile, by name.
pub(super) type AwsProfile = BTreeMap<String, String>;

/// The profiles of both files, by name.
pub(super) struct Profiles {
    /// The paths of the files, for messages.
    pub(super) file_names: String,
    profiles: BTreeMap<String, AwsProfile>,
}

impl Profiles {
    /// Reads both files. A file that does not exist has no profiles.
    ///
    /// # Errors
    /// Status 78 if a file cannot be read or parsed.
    pub(super) fn read(env: &Env) -> Result<Self> {
        let [credentials, config] = paths(env);
        let mut profiles = BTreeMap::new();
        // A value in the file of credentials takes precedence.
        for (path, prefix) in [(&config, "profile "), (&credentials, "")] {
            for (name, values) in read_file(path)? {
                let name = match name.strip_prefix(prefix) {
                    Some(name) => name.trim().trim_matches('"'),
                    // The only profile whose section has no prefix.
                    None if name == DEFAULT_PROFILE => DEFAULT_PROFILE,
                    None => continue,
                };
                profiles.entry(name.to_owned()).or_insert_with(AwsProfile::new).extend(values);
            }
        }
        let file_names = format!("`{}` and `{}`", credentials.display(), config.display());
        Ok(Self { file_names, profiles })
    }

    pub(super) fn find(&self, name: &str) -> Option<&AwsProfile> {
        self.profiles.get(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }
}

/// The profile of who names none.
pub(super) const DEFAULT_PROFILE: &str = "default";

/// The paths of the files of credentials and of the config.
fn paths(env: &Env) -> [PathBuf; 2] {
    let home = env.home().unwrap_or_default();
    let path = |variable: &str, name: &str| {
        env.path(variable).unwrap_or_else(|| home.join(".aws").join(name))
    };
    [path("AWS_SHARED_CREDENTIALS_FILE", "credentials"), path("AWS_CONFIG_FILE", "config")]
}

/// Reads the sections of a file, by name.
fn read_file(path: &Path) -> Result<BTreeMap<String, AwsProfile>> {
    if !path.exists() {
        return Ok(BTreeMap::new());
    }
    let file_name = path.display().to_string();
    let bytes = input::read_file(path, &file_name, MAX_FILE_BYTES)
        .map_err(|error| fail(Exit::Config, format!("{error:#}")))?;
    parse(&String::from_utf8_lossy(&bytes)).map_err(|line| {
        let cause =
            format!("line {line} of `{file_name}` is neither `[PROFILE]` nor `NAME = VALUE`");
        fail(Exit::Config, cause)
    })
}

/// Parses sections of values. Returns the number of the first line that is neither.
fn parse(text: &str) -> Result<BTreeMap<String, AwsProfile>, usize> {
    let mut sections: BTreeMap<String, AwsProfile> = BTreeMap::new();
    let mut current = None;
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let is_indented = line.starts_with([' ', '\t']);
        let line = line.trim();
        // An indented line belongs to the value before it, such as those of `s3 =`, which no one needs here.
        if line.is_empty() || line.starts_with(['#', ';']) || (is_indented && current.is_some()) {
            continue;
        }
        let section = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        match (section, line.split_once('='), &mut current) {
            (Some((name, _)), ..) => {
                let name = name.trim().to_owned();
                sections.entry(name.clone()).or_default();
                current = Some(name);
            }
            (None, Some((name, value)), Some(section)) => {
                let section = sections.entry(section.clone()).or_default();
                section.insert(name.trim().to_lowercase(), value.trim().to_owned());
            }
            _ => return Err(index + 1),
        }
    }
    Ok(sections)
}

#[cfg(test)]
mod tests {
    use super::{Profiles, parse};
    use nanobot_os::env::Env;

    #[test]
    fn profiles_are_merged_from_both_files() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        std::fs::create_dir(folder.path().join(".aws")).unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(".aws").join(name), text).unwrap();
        };
        write("credentials", "# mine\n[work]\nAWS_access_key_id=id=1\n\n[default]\nkey = a\n");
        write(
            "config",
            "[default]\nregion = r1\nkey = b\n[profile work]\ns3 =\n  max = 3\nregion = r2\n\
             [profile \"two words\"]\n[sso-session x]\nregion = no\n",
        );
        let profiles = Profiles::read(&[("HOME", home)].into_iter().collect::<Env>()).unwrap();
        let value = |profile: &str, key: &str| profiles.find(profile)?.get(key).cloned();
        assert_eq!(value("work", "aws_access_key_id").as_deref(), Some("id=1"));
        assert_eq!(value("work", "region").as_deref(), Some("r2"));
        assert_eq!(value("default", "key").as_deref(), Some("a"));
        assert_eq!(value("default", "region").as_deref(), Some("r1"));
        assert_eq!(value("work", "max"), None);
        assert_eq!(profiles.names().collect::<Vec<_>>(), ["default", "two words", "work"]);
    }

    #[test]
    fn fuzz_a_damaged_file_is_reported_with_its_line() {
        assert_eq!(parse("[a]\nb = c\nkey\n").unwrap_err(), 3);
        assert_eq!(parse("b = c\n[a]\n").unwrap_err(), 1);
        assert_eq!(parse("\u{0}\u{1}").unwrap_err(), 1);
        nanobot_base::fuzz::check(&[b"[a]\nb = c\n  d = e\n;\n"], |input, _| {
            let text = nanobot_base::fuzz::lossy_text(input);
            if let Err(line) = parse(&text) {
                assert!(line <= text.lines().count());
            }
        });
    }
}
