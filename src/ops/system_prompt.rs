//! The parts of the system prompt about the platform and the policy.

use nanobot_base::format::on_one_line;
use nanobot_config::policy::Policy;
use nanobot_config::policy::file_scope::FileScope;
use nanobot_sandbox::process::CommandShell;
use nanobot_tool::Toolbox;

/// The operating system and CPU architecture, as named in the prompt.
pub(crate) fn platform() -> String {
    let system = capitalize(std::env::consts::OS);
    format!("{system} {}", std::env::consts::ARCH)
}

/// Describes the granted paths other than the working directory and the workspace.
pub(crate) fn describe_extra_grants(policy: &Policy) -> Vec<String> {
    let FileScope { directory, workspace, roots, .. } = &policy.file_scope;
    roots
        .iter()
        .filter(|root| root.path != *directory && root.path != *workspace)
        .map(|root| {
            format!(
                "{} ({})",
                on_one_line(&root.path),
                if root.may_write && !policy.reads_only { "read and change" } else { "read" }
            )
        })
        .collect()
}

/// Describes what the tools may do.
pub(crate) fn describe_policy(policy: &Policy, toolbox: &Toolbox, is_interactive: bool) -> String {
    let specs = toolbox.requested_specs(&[]);
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    if names.is_empty() {
        String::new()
    } else {
        policy.describe_for_model(&names, CommandShell::find().name(), is_interactive)
    }
}

/// The name of an operating system in its usual spelling.
fn capitalize(system: &str) -> String {
    match system {
        "macos" => "macOS".into(),
        _ => system[..1].to_uppercase() + &system[1..],
    }
}
