//! What a turn works with: its places, its tools, and the system text that tells of them.

use crate::World;
use crate::cli::Agent as Arguments;
use crate::command::granted;
use crate::error::{Exit, fail_hint};
use crate::policy::Policy;
use crate::policy::profile::Profile;
use crate::policy::reach::Root;
use crate::prompt::{self, Brief, Section};
use crate::report::Report;
use crate::settings::Settings;
use crate::skill;
use crate::sys::paths::Real;
use crate::sys::store;
use crate::tool::edit_file::EditFile;
use crate::tool::exec::{Exec, Limits};
use crate::tool::files::Files;
use crate::tool::list_dir::ListDir;
use crate::tool::read_file::ReadFile;
use crate::tool::write_file::WriteFile;
use crate::tool::{Tool, Toolbox};
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::path::Path;
use std::sync::Arc;

/// The tools, and the text about them and all else.
pub(super) struct Scene {
    pub(super) toolbox: Toolbox,
    /// What the system text is made of.
    pub(super) sections: Vec<Section>,
}

/// Set the scene of a turn.
pub(super) fn set(
    world: &World,
    arguments: &Arguments,
    settings: &Settings,
    workspace: &Workspace,
    profile: &Profile,
    report: &mut Report,
) -> Result<Scene> {
    let rehearsal = arguments.replay.is_some() || arguments.dry_run.is_some();
    if !rehearsal {
        store::create_dir(&workspace.root)?;
    }
    let mut real = Real::default();
    let home = real.of(&granted::absolute(&workspace.root));
    let policy = Arc::new(granted::policy(
        world,
        &arguments.grants,
        settings,
        profile,
        &home,
    )?);
    let directory = policy.reach.directory.clone();
    let may_write = |place: &Path| {
        let is_place = |root: Root| root.path == place && root.may_write;
        policy.exec_roots().any(is_place)
    };
    let grants: Vec<String> = policy
        .exec_roots()
        .filter(|root| root.path != directory && root.path != home)
        .map(|root| {
            format!(
                "{} ({})",
                root.path.display(),
                if root.may_write {
                    "read and change"
                } else {
                    "read"
                }
            )
        })
        .collect();
    let files = Arc::new(
        Files::new(policy.reach.clone())
            .with_context(|| format!("open `{}`", directory.display()))?,
    );
    let toolbox = toolbox(world, arguments, settings, &policy, &files)?;

    let notes = workspace.notes()?;
    let mut notices = Vec::new();
    let skills = skill::find(
        &workspace.root,
        &settings.disabled_skills,
        &world.env,
        &mut notices,
    );
    notices.iter().for_each(|notice| report.notice(notice));
    let platform = format!(
        "{} {}",
        capital(std::env::consts::OS),
        std::env::consts::ARCH
    );
    let has_tools = !toolbox.specs().is_empty();
    let summary = if has_tools {
        skill::summary(&skills)
    } else {
        String::new()
    };
    let names: Vec<&str> = toolbox
        .specs()
        .iter()
        .map(|spec| spec.name.as_str())
        .collect();
    let rules = match has_tools {
        true => policy.for_model(&names),
        false => String::new(),
    };
    let sections = prompt::sections(&Brief {
        platform: &platform,
        workspace: &home,
        directory: &directory,
        may_write: may_write(&directory),
        may_note: may_write(&home),
        grants: &grants,
        has_tools,
        policy: &rules,
        profile: profile
            .prompt
            .as_deref()
            .map(|text| (profile.name.as_str(), text)),
        bootstrap: &notes.bootstrap,
        memory: notes.memory.as_deref(),
        active_skills: &skill::active(&skills),
        skills: &summary,
    });
    Ok(Scene { toolbox, sections })
}

/// The tools of this run, in the order of the Python program.
fn toolbox(
    world: &World,
    arguments: &Arguments,
    settings: &Settings,
    policy: &Arc<Policy>,
    files: &Arc<Files>,
) -> Result<Toolbox> {
    let limits = Limits {
        timeout: settings.exec.timeout,
        result: settings.max_tool_result_chars,
        path_prepend: settings.exec.path_prepend.clone(),
        path_append: settings.exec.path_append.clone(),
        allowed_env_keys: settings.exec.allowed_env_keys.clone(),
    };
    let mut tools: Vec<Box<dyn Tool>> = Vec::new();
    if settings.tools.files {
        let built_in = skill::BUILT_IN.to_vec();
        tools.push(Box::new(ReadFile::new(Arc::clone(files), built_in)));
        tools.push(Box::new(WriteFile::new(Arc::clone(files))));
        tools.push(Box::new(EditFile::new(Arc::clone(files))));
        tools.push(Box::new(ListDir::new(Arc::clone(files))));
    }
    if settings.exec.enabled {
        tools.push(Box::new(Exec::new(Arc::clone(files), &limits, &world.env)));
    }
    if let Some(names) = &arguments.grants.tools {
        let known: Vec<String> = tools.iter().map(|tool| tool.spec().name.clone()).collect();
        if let Some(name) = names.iter().find(|name| !known.contains(name)) {
            return Err(fail_hint(
                Exit::Usage,
                format!("there is no tool `{name}`"),
                known.join(", "),
            ));
        }
        tools.retain(|tool| names.contains(&tool.spec().name));
    }
    tools.retain(|tool| policy.offers(&tool.spec().name));
    if arguments.grants.no_tools {
        tools.clear();
    }
    let parallel = arguments.max_parallel as usize;
    Ok(Toolbox::new(tools, parallel, Arc::clone(policy)))
}

fn capital(word: &str) -> String {
    match word {
        "macos" => "macOS".into(),
        _ => word[..1].to_uppercase() + &word[1..],
    }
}
