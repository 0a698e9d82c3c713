//! What a turn works with: its places, its tools, and the system text that tells of them.

use crate::World;
use crate::cli::Agent as Arguments;
use crate::error::{Exit, fail, fail_hint};
use crate::policy::{Reach, Root};
use crate::prompt::{self, Brief, Section};
use crate::report::Report;
use crate::settings::{Directory, Settings};
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
use std::path::{Path, PathBuf};
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
    report: &mut Report,
) -> Result<Scene> {
    let rehearsal = arguments.replay.is_some() || arguments.dry_run.is_some();
    if !rehearsal {
        store::create_dir(&workspace.root)?;
    }
    let mut real = Real::default();
    let home = real.of(&absolute(&workspace.root));
    let reach = reach(world, arguments, settings, &home, &mut real)?;
    let directory = reach.directory.clone();
    let may_write = reach
        .roots
        .iter()
        .any(|root| root.path == directory && root.may_write);
    let grants: Vec<String> = reach
        .roots
        .iter()
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
    let files =
        Arc::new(Files::new(reach).with_context(|| format!("open `{}`", directory.display()))?);
    let toolbox = toolbox(world, arguments, settings, &files)?;

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
    let sections = prompt::sections(&Brief {
        platform: &platform,
        workspace: &home,
        directory: &directory,
        may_write,
        grants: &grants,
        has_tools,
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
    files: &Arc<Files>,
) -> Result<Toolbox> {
    let limits = Limits {
        timeout: settings.exec.timeout,
        result: settings.max_tool_result_chars,
        path_prepend: settings.exec.path_prepend.clone(),
        path_append: settings.exec.path_append.clone(),
        allowed_env_keys: settings.exec.allowed_env_keys.clone(),
    };
    let mut tools: Vec<Box<dyn Tool>> = vec![
        Box::new(ReadFile::new(Arc::clone(files), skill::BUILT_IN.to_vec())),
        Box::new(WriteFile::new(Arc::clone(files))),
        Box::new(EditFile::new(Arc::clone(files))),
        Box::new(ListDir::new(Arc::clone(files))),
    ];
    if settings.exec.enabled {
        tools.push(Box::new(Exec::new(Arc::clone(files), &limits, &world.env)));
    }
    if let Some(names) = &arguments.tools {
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
    if arguments.no_tools {
        tools.clear();
    }
    Ok(Toolbox::new(tools, arguments.max_parallel as usize))
}

/// What may be touched.
fn reach(
    world: &World,
    arguments: &Arguments,
    settings: &Settings,
    workspace: &Path,
    real: &mut Real,
) -> Result<Reach> {
    let directory = directory(world, arguments, settings, workspace, real)?;
    let mut roots = Vec::new();
    let mut add = |path: PathBuf, may_write: bool| match roots
        .iter_mut()
        .find(|root: &&mut Root| root.path == path)
    {
        Some(root) => root.may_write |= may_write,
        None => roots.push(Root { path, may_write }),
    };
    if workspace.is_dir() {
        add(workspace.to_owned(), true);
    }
    add(directory.clone(), false);
    for path in &arguments.read {
        add(existing(path)?, false);
    }
    for path in &arguments.write {
        let path = if path == Path::new(".") {
            directory.clone()
        } else {
            existing(path)?
        };
        add(path, true);
    }
    if settings.restrict_to_workspace && roots.iter().any(|root| root.path != *workspace) {
        return Err(fail_hint(
            Exit::Refused,
            "`tools.restrictToWorkspace` forbids other places than the workspace",
            "leave out `-C`, `--read` and `--write=PATH`",
        ));
    }
    let root = real.of(&world.paths.root);
    let inner = |name: &str| workspace.join(name);
    Ok(Reach {
        directory,
        home: real.of(&absolute(&world.paths.home)),
        roots,
        hidden: vec![
            inner("sessions"),
            root.join("sessions"),
            root.join("history"),
            real.of(&absolute(&world.paths.auth())),
            real.of(&absolute(&world.paths.config)),
        ],
        read_only: vec![
            inner("cron"),
            inner(".git"),
            inner(".nanobot"),
            root.join("cron"),
        ],
    })
}

/// Where the work is.
fn directory(
    world: &World,
    arguments: &Arguments,
    settings: &Settings,
    workspace: &Path,
    real: &mut Real,
) -> Result<PathBuf> {
    if let Some(path) = &arguments.directory {
        return existing(path);
    }
    if settings.restrict_to_workspace || settings.directory == Directory::Workspace {
        return Ok(workspace.to_owned());
    }
    let Ok(current) = std::env::current_dir() else {
        return Ok(workspace.to_owned());
    };
    // The home directory holds what no agent should stumble over. Before there is a workspace nothing is sent anywhere:
    // that is a rehearsal, which may look around.
    let home = real.of(&absolute(&world.paths.home));
    Ok(if home.starts_with(&current) && workspace.is_dir() {
        workspace.to_owned()
    } else {
        current
    })
}

fn existing(path: &Path) -> Result<PathBuf> {
    std::fs::canonicalize(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            fail(Exit::NoInput, format!("there is no `{}`", path.display()))
        }
        _ => anyhow::Error::new(error).context(format!("look at `{}`", path.display())),
    })
}

/// `path` from the current directory on. Where there is none any more, it stays as it is.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn capital(word: &str) -> String {
    match word {
        "macos" => "macOS".into(),
        _ => word[..1].to_uppercase() + &word[1..],
    }
}
