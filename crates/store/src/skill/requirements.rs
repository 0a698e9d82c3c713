//! The requirements of skills, and checks of whether they are met.
//!
//! Each program is searched once per run. The results are not cached on disk: a search is only a few directory
//! look-ups, and the user may install the program at any time.

use nanobot_os::env::Env;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The requirements of a skill.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SkillRequirements {
    /// Programs that are all required.
    pub programs: Vec<String>,
    /// Programs; one of them is required.
    pub(crate) any_program: Vec<String>,
    /// Environment variables that are all required.
    pub variables: Vec<String>,
    /// Operating systems, such as `linux` or `darwin`; one of them is required.
    pub systems: Vec<String>,
    /// The author's instructions for installing the programs.
    pub install: Vec<String>,
}

impl SkillRequirements {
    /// Reads the requirements from the object under `nanobot` or `openclaw` in a skill's metadata.
    pub(super) fn from_metadata(metadata: &Value) -> Self {
        let requires = &metadata["requires"];
        let install = metadata["install"].as_array().into_iter().flatten();
        Self {
            programs: text_list(&requires["bins"]),
            any_program: text_list(&requires["anyBins"]),
            variables: text_list(&requires["env"]),
            systems: text_list(&metadata["os"]),
            install: install.filter_map(install_command).collect(),
        }
    }

    /// Describes the requirements, and marks those that are not met.
    pub fn describe(&self, checker: &RequirementChecker<'_>) -> Vec<String> {
        let requirements = self.check(checker).into_iter();
        requirements
            .map(
                |CheckedRequirement { name, is_met }| {
                    if is_met { name } else { format!("{name} (missing)") }
                },
            )
            .collect()
    }

    /// Lists the requirements that are not met, such as `CLI: gh`.
    pub(super) fn unmet(&self, checker: &RequirementChecker<'_>) -> Vec<String> {
        let unmet = self.check(checker).into_iter().filter(|requirement| !requirement.is_met);
        unmet.map(|requirement| requirement.name).collect()
    }

    fn check(&self, checker: &RequirementChecker<'_>) -> Vec<CheckedRequirement> {
        let programs = self.programs.iter().map(|name| CheckedRequirement {
            name: format!("CLI: {name}"),
            is_met: checker.is_installed(name),
        });
        let one_of = (!self.any_program.is_empty()).then(|| CheckedRequirement {
            name: format!("CLI: {}", self.any_program.join(" or ")),
            is_met: self.any_program.iter().any(|name| checker.is_installed(name)),
        });
        let variables = self.variables.iter().map(|name| CheckedRequirement {
            name: format!("ENV: {name}"),
            is_met: checker.is_set(name),
        });
        let systems = (!self.systems.is_empty()).then(|| CheckedRequirement {
            name: format!("OS: {}", self.systems.join(" or ")),
            is_met: self.systems.iter().any(|name| is_current_os(name)),
        });
        programs.chain(one_of).chain(variables).chain(systems).collect()
    }
}

/// A requirement, with its state on this machine.
struct CheckedRequirement {
    /// The requirement in words, such as `CLI: gh`.
    name: String,
    is_met: bool,
}

/// Checks requirements on this machine, each only once.
pub struct RequirementChecker<'a> {
    env: &'a Env,
    programs: RefCell<BTreeMap<String, bool>>,
}

impl<'a> RequirementChecker<'a> {
    /// Creates a checker for the environment `env`.
    pub fn new(env: &'a Env) -> Self {
        Self { env, programs: RefCell::default() }
    }

    fn is_installed(&self, program: &str) -> bool {
        if let Some(is_installed) = self.programs.borrow().get(program) {
            return *is_installed;
        }
        let is_installed = is_on_path(program, self.env.get("PATH").unwrap_or_default());
        self.programs.borrow_mut().insert(program.to_owned(), is_installed);
        is_installed
    }

    fn is_set(&self, variable: &str) -> bool {
        self.env.get(variable).is_some()
    }
}

/// True if `program` is an executable in a directory of the search path `path`.
pub fn is_on_path(program: &str, path: &str) -> bool {
    path.split(':').filter(|dir| !dir.is_empty()).any(|dir| {
        let metadata = Path::new(dir).join(program).metadata();
        metadata.is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o111 != 0)
    })
}

fn is_current_os(name: &str) -> bool {
    let name = match name.to_lowercase().as_str() {
        "darwin" => "macos".to_owned(),
        "win32" => "windows".to_owned(),
        other => other.to_owned(),
    };
    name == std::env::consts::OS
}

/// Reads one text, or a list of texts.
fn text_list(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// Describes an installation step, such as `brew install gh`.
fn install_command(step: &Value) -> Option<String> {
    let text = |key: &str| step[key].as_str().filter(|text| !text.is_empty());
    let package = ["formula", "package", "module", "tap"].iter().find_map(|key| text(key));
    match (text("kind"), package) {
        (Some(kind), Some(package)) => Some(format!("{kind} install {package}")),
        _ => text("label").map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::{RequirementChecker, SkillRequirements};
    use nanobot_os::env::Env;
    use serde_json::{Value, json};

    #[test]
    fn missing_requirements_are_reported() {
        let env: Env =
            [("PATH", "/usr/bin:/bin"), ("SET", "x"), ("EMPTY", "")].into_iter().collect();
        let requirements = RequirementChecker::new(&env);
        let check = |said: Value, expect: &[&str]| {
            assert_eq!(
                SkillRequirements::from_metadata(&said).unmet(&requirements),
                expect,
                "{said}"
            );
        };
        check(Value::Null, &[]);
        check(json!({ "requires": null }), &[]);
        check(json!({ "requires": { "bins": "sh" } }), &[]);
        check(json!({ "requires": { "bins": ["sh", "no-such"] } }), &["CLI: no-such"]);
        check(json!({ "requires": { "bins": ["no-such", 7] } }), &["CLI: no-such"]);
        check(json!({ "requires": { "anyBins": ["no-such", "sh"] } }), &[]);
        check(json!({ "requires": { "anyBins": ["no-such", "nor"] } }), &["CLI: no-such or nor"]);
        check(
            json!({ "requires": { "env": ["SET", "EMPTY", "UNSET"] } }),
            &["ENV: EMPTY", "ENV: UNSET"],
        );
        check(json!({ "os": ["darwin", "linux"] }), &[]);
        check(json!({ "os": ["plan9"] }), &["OS: plan9"]);
    }

    #[test]
    fn hints_are_commands() {
        let said = json!({ "install": [
            { "id": "brew", "kind": "brew", "formula": "gh", "bins": ["gh"], "label": "with brew" },
            { "kind": "apt", "package": "gh" }, { "label": "from the site" }, {}, 7,
        ] });
        let expect = ["brew install gh", "apt install gh", "from the site"];
        assert_eq!(SkillRequirements::from_metadata(&said).install, expect);
    }
}
