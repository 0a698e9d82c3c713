//! The `apply_patch` tool: changes several files with one patch, in the format that OpenAI's models were trained on. A
//! patch is applied as a whole or not at all.

use super::files::change::{
    ChangeAllError, ExpectedState, FileChange, LoadedFile, RevertibleChange,
};
use super::files::text_file::{TextFile, text_to_change};
use super::files::{Files, FinalLink};
use super::function_tool::FunctionTool;
use super::masked_text::{edit_masked, restore_keys};
use super::{CallEffect, ToolError, ToolOutput, make_diff};
use nanobot_base::message::{ToolSpec, without_blanks};
use nanobot_base::patch::{self, FilePatch, Hunk};
use nanobot_config::policy::call_files::files_of_call;
use nanobot_config::policy::file_scope::FileScope;
use nanobot_config::policy::tool_names::APPLY_PATCH;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The families of models that were trained on the format.
const MODEL_FAMILIES: &[&str] = &["gpt-4.1", "gpt-5", "o3", "o4-mini", "codex", "gpt-oss"];

const DESCRIPTION: &str = "Apply a patch to one or several files, all of it or nothing. Format:\n\
    *** Begin Patch\n\
    *** Add File: path (then lines that begin with +)\n\
    *** Delete File: path\n\
    *** Update File: path (then optionally *** Move to: path)\n\
    @@ optional line above the change, such as that of its function\n \
    context\n\
    -old\n\
    +new\n\
    *** End Patch";

/// True if the model `name` was trained on the format. A vendor before the last slash is ignored.
pub fn is_trained_model(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or(name).to_lowercase();
    // Names on Bedrock: `openai.gpt-oss-120b-1:0`.
    let name = name.strip_prefix("openai.").unwrap_or(&name);
    let ends_family = |rest: &str| !rest.starts_with(char::is_alphanumeric);
    let mut families = MODEL_FAMILIES.iter();
    families.any(|family| name.strip_prefix(family).is_some_and(ends_family))
}

/// Builds the `apply_patch` tool.
pub fn tool(files: Arc<Files>) -> FunctionTool {
    let parameters = const {
        &without_blanks(
            br#"{ "type": "object", "required": ["patch"], "properties": {
        "patch": { "type": "string", "minLength": 1 }
    } }"#,
        )
    };
    let spec = ToolSpec::new(APPLY_PATCH, DESCRIPTION, parameters);
    FunctionTool::new(spec, CallEffect::Writes, move |arguments| apply(&files, arguments))
}

fn apply(files: &Files, arguments: &Value) -> Result<ToolOutput, ToolError> {
    let text = arguments["patch"].as_str().unwrap_or_default();
    let patches = patch::parse(text).map_err(|message| to_unapplied(message.into()))?;
    let plan = plan_patches(files, arguments, &patches).map_err(to_unapplied)?;
    // A moved file is removed only after it was written at its new path.
    let writes = plan.iter().filter_map(PlannedPatch::write);
    let removals = plan.iter().filter_map(PlannedPatch::removal);
    let changes: Vec<RevertibleChange<'_>> = writes.chain(removals).collect();
    let paths = files.change_all(&changes).map_err(|error| match error {
        ChangeAllError::Unchanged(error) => to_unapplied(error),
        ChangeAllError::Changed(message) => {
            format!("the patch failed, and a part of it was applied: {message}").into()
        }
    })?;
    let (mut lines, mut written_paths) = (Vec::new(), Vec::new());
    // Without the diff of one file there is none: that of the others would look like all changes.
    let mut diff = Some(String::new());
    for patch in &plan {
        let written_path =
            patch.new.as_ref().and_then(|new| paths.get(new.path)).map(PathBuf::as_path);
        lines.push(patch.describe(&files.file_scope, written_path));
        written_paths.extend(written_path);
        let heading = (plan.len() > 1).then(|| format!("{}\n", patch.path));
        let changes = patch.diff();
        diff =
            diff.zip(changes).map(|(all, changes)| all + &heading.unwrap_or_default() + &changes);
    }
    let report = written_paths
        .into_iter()
        .fold(lines.join("\n"), |text, path| files.add_instructions(text, path));
    Ok(ToolOutput { diff, ..report.into() })
}

/// Reads the files of `patches`, and applies their hunks.
fn plan_patches<'a>(
    files: &Files,
    arguments: &Value,
    patches: &'a [FilePatch<'a>],
) -> Result<Vec<PlannedPatch<'a>>, ToolError> {
    // Check before reading: if a file is read-only, the model should get that error.
    for file in files_of_call(APPLY_PATCH, arguments) {
        let is_removal = file.tool == "delete_file";
        let last = if is_removal { FinalLink::NoFollow } else { FinalLink::Follow };
        files.decide_change(&file.path, last)?;
    }
    patches.iter().map(|patch| PlannedPatch::new(files, patch)).collect()
}

/// The error of a patch that changed no file.
fn to_unapplied(error: ToolError) -> ToolError {
    match error {
        ToolError::Failed(message) => {
            format!("the patch was not applied, and no file was changed: {message}").into()
        }
        error => error,
    }
}

/// The patch of one file, with the contents of its file before and after.
struct PlannedPatch<'a> {
    path: &'a str,
    old: Option<LoadedFile>,
    /// `None` if the file is deleted.
    new: Option<NewFile<'a>>,
}

/// A file after a patch.
struct NewFile<'a> {
    path: &'a str,
    bytes: Vec<u8>,
    text: String,
}

impl<'a> PlannedPatch<'a> {
    /// Reads the file of `patch`, and applies its hunks.
    fn new(files: &Files, patch: &'a FilePatch<'a>) -> Result<Self, ToolError> {
        let path = patch.path();
        let load = || files.load_for_change(path);
        let (old, new) = match patch {
            FilePatch::Add { text, .. } => {
                let text = restore_keys("", text).map_err(|error| format!("`{path}`: {error}"))?;
                let bytes = text.as_bytes().to_vec();
                (None, Some(NewFile { path, bytes, text: text.into_owned() }))
            }
            FilePatch::Delete { .. } => (Some(load()?), None),
            FilePatch::Update { new_path, hunks, .. } => {
                let old = load()?;
                let file = text_to_change(path, &old.bytes)?;
                let text = update(path, &file.text, hunks)?;
                let bytes = file.encode(&text, &old.bytes);
                let bytes = bytes.map_err(|error| format!("`{path}`: {error}"))?;
                (Some(old), Some(NewFile { path: new_path.unwrap_or(path), bytes, text }))
            }
        };
        Ok(Self { path, old, new })
    }

    /// The written file.
    fn write(&self) -> Option<RevertibleChange<'_>> {
        let NewFile { path, bytes, .. } = self.new.as_ref()?;
        let old = self.old.as_ref();
        let (replaced, moved) = if *path == self.path { (old, None) } else { (None, old) };
        Some(RevertibleChange {
            change: FileChange {
                path,
                new: Some(bytes),
                // The set-user-ID and set-group-ID bits are dropped, as with every change.
                mode: moved.map(|old| old.mode & 0o1777),
                expect: replaced.map_or(ExpectedState::Missing, |old| {
                    ExpectedState::Digest(old.digest.clone())
                }),
            },
            old: replaced,
        })
    }

    /// The file that is removed.
    fn removal(&self) -> Option<RevertibleChange<'_>> {
        let old = self.old.as_ref()?;
        let is_kept = self.new.as_ref().is_some_and(|new| new.path == self.path);
        (!is_kept).then(|| RevertibleChange {
            change: FileChange {
                path: self.path,
                new: None,
                mode: None,
                expect: ExpectedState::Digest(old.digest.clone()),
            },
            old: Some(old),
        })
    }

    /// Describes the change. `written_path` is the path of the file that was written; `None` if it was deleted.
    fn describe(&self, file_scope: &FileScope, written_path: Option<&Path>) -> String {
        let old_path = file_scope.absolute(self.path);
        let old_path = old_path.display();
        let is_moved = self.new.as_ref().is_some_and(|new| new.path != self.path);
        match written_path.map(Path::display) {
            None => format!("deleted {old_path}"),
            Some(path) if self.old.is_none() => format!("added {path}"),
            Some(path) if is_moved => format!("moved {old_path} to {path}"),
            Some(path) => format!("updated {path}"),
        }
    }

    fn diff(&self) -> Option<String> {
        let old = self.old.as_ref().map(|old| match TextFile::new(&old.bytes) {
            Some(file) => file.text,
            None => String::from_utf8_lossy(&old.bytes).into_owned(),
        });
        let new = self.new.as_ref().map(|new| new.text.as_str());
        make_diff(&old.unwrap_or_default(), new.unwrap_or_default())
    }
}

/// The content of the file `path` after the `hunks`.
fn update(path: &str, old: &str, hunks: &[Hunk<'_>]) -> Result<String, String> {
    let new = edit_masked(old, |text| patch::apply(text, hunks))
        .map_err(|error| format!("`{path}`: {error}"))?;
    if new == old && !hunks.is_empty() {
        return Err(format!("`{path}`: the hunks change nothing"));
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::{is_trained_model, tool};
    use crate::files::READ_LIMIT_BYTES;
    use crate::files::tests::files;
    use crate::{ToolError, run_alone};
    use serde_json::json;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;
    use std::sync::Arc;

    #[test]
    fn models_that_were_trained_on_the_format() {
        let check = |name: &str, expect: bool| assert_eq!(is_trained_model(name), expect, "{name}");
        check("gpt-4.1", true);
        check("gpt-4.1-mini", true);
        check("gpt-5", true);
        check("openai/gpt-5.2-codex", true);
        check("openrouter/openai/GPT-5-mini", true);
        check("o3", true);
        check("o3-pro", true);
        check("o4-mini", true);
        check("codex-mini-latest", true);
        check("gpt-oss:20b", true);
        check("openai.gpt-oss-120b-1:0", true);
        check("gpt-4o", false);
        check("gpt-4.10", false);
        check("o1", false);
        check("o3x", false);
        check("claude-sonnet-4-5", false);
        check("gpt-5/claude", false);
        check("my-gpt-5", false);
        check("", false);
    }

    /// Applies the sections in `body`; `None` if the policy refused the call, else its text.
    fn run(dir: &Path, may_write: bool, body: &str) -> Result<String, Option<String>> {
        let tool = tool(Arc::new(files(dir, may_write)));
        let patch = format!("*** Begin Patch\n{body}*** End Patch");
        match run_alone(&tool, &json!({ "patch": patch })) {
            Ok(output) => {
                let text = nanobot_base::message::plain_text(&output.parts);
                Ok(text.replace(dir.to_str().unwrap(), "$DIR"))
            }
            Err(ToolError::Failed(message)) => Err(Some(message)),
            Err(ToolError::Denied(_)) => Err(None),
            Err(other) => panic!("{other:?}"),
        }
    }

    /// The files in `dir`, with their contents.
    fn tree(dir: &Path) -> Vec<(String, String)> {
        let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
        let files = entries.filter(|entry| entry.path().is_file());
        let mut files: Vec<(String, String)> = files
            .map(|entry| {
                let bytes = std::fs::read(entry.path()).unwrap();
                let name = entry.file_name().into_string().unwrap();
                (name, String::from_utf8_lossy(&bytes).into_owned())
            })
            .collect();
        files.sort();
        files
    }

    #[test]
    fn patches_change_several_files() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
        write("a", "one\ntwo\n");
        write("b", "b\n");
        write("script", "echo 1\n");
        let mode = std::fs::Permissions::from_mode(0o751);
        std::fs::set_permissions(dir.join("script"), mode).unwrap();
        let body = format!(
            "*** Add File: new/c\n+c\n*** Update File: a\n@@\n-two\n+2\n*** Delete File: {}\n*** Update File: \
             script\n*** Move to: bin/run\n-echo 1\n+echo 2\n",
            dir.join("b").display()
        );
        let expect =
            "added $DIR/new/c\nupdated $DIR/a\ndeleted $DIR/b\nmoved $DIR/script to $DIR/bin/run";
        assert_eq!(run(&dir, true, &body).unwrap(), expect);
        assert_eq!(tree(&dir), [("a".into(), "one\n2\n".into())]);
        assert_eq!(std::fs::read(dir.join("new/c")).unwrap(), b"c\n");
        assert_eq!(std::fs::read(dir.join("bin/run")).unwrap(), b"echo 2\n");
        let mode = std::fs::metadata(dir.join("bin/run")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o7777, 0o751);
        // A move without hunks.
        run(&dir, true, "*** Update File: a\n*** Move to: z\n").unwrap();
        assert_eq!(tree(&dir), [("z".into(), "one\n2\n".into())]);
    }

    #[test]
    fn a_patch_that_fails_changes_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let parent = std::fs::canonicalize(temp.path()).unwrap();
        let dir = parent.join("in");
        std::fs::create_dir_all(dir.join("folder")).unwrap();
        let write = |name: &str, text: &[u8]| std::fs::write(dir.join(name), text).unwrap();
        write("a", b"one\ntwo\none\n");
        write("b", b"b\n");
        write("binary", &[0xff, 0, b'\n']);
        write("locked", b"l\n");
        let mode = std::fs::Permissions::from_mode(0o444);
        std::fs::set_permissions(dir.join("locked"), mode).unwrap();
        std::fs::write(parent.join("outside"), "o\n").unwrap();
        symlink(parent.join("outside"), dir.join("link")).unwrap();
        symlink("a", dir.join("same")).unwrap();
        let before = tree(&dir);
        let good = "*** Add File: new\n+n\n*** Update File: b\n-b\n+c\n";
        let check = |body: &str, expect: Option<&str>| {
            // The failing section comes after sections that could be applied, and before them.
            for body in [format!("{good}{body}"), format!("{body}{good}")] {
                let error = run(&dir, true, &body).unwrap_err();
                match (&error, expect) {
                    (None, None) => {}
                    (Some(error), Some(expect)) => {
                        assert!(error.contains(expect), "{body}: {error}");
                        assert!(error.contains("no file was changed"), "{error}");
                    }
                    _ => panic!("{body}: {error:?}"),
                }
                assert_eq!(tree(&dir), before, "{body}");
                assert_eq!(std::fs::read(parent.join("outside")).unwrap(), b"o\n");
            }
        };
        check("*** Update File: missing\n-a\n", Some("there is no `missing`"));
        check("*** Delete File: missing\n", Some("there is no `missing`"));
        check("*** Delete File: folder\n", Some("`folder` is a directory"));
        check("*** Add File: a\n+x\n", Some("`a` exists already"));
        check("*** Add File: a/x\n+x\n", Some("`a/x`"));
        check("*** Update File: a\n*** Move to: binary\n", Some("`binary` exists already"));
        check("*** Update File: a\n-one\n", Some("`a`: hunk 1: its lines occur 2 times"));
        check(
            "*** Update File: a\n-zzz\n",
            Some("`a`: hunk 1: the file does not have these lines:\nzzz"),
        );
        check("*** Update File: a\n two\n", Some("`a`: the hunks change nothing"));
        check("*** Update File: binary\n-a\n", Some("`binary` is a binary file"));
        check("*** Update File: locked\n-l\n+x\n", Some("`locked`"));
        check("*** Delete File: b\n", Some("`b` is changed more than once"));
        check(
            "*** Update File: a\n-two\n*** Update File: same\n-two\n",
            Some("`same` is changed more than once"),
        );
        check("*** Add File: x\nx\n", Some("expected"));
        // The policy's refusals.
        check("*** Add File: ../x\n+x\n", None);
        check("*** Add File: /etc/x\n+x\n", None);
        check("*** Update File: link\n-o\n+x\n", None);
        check("*** Update File: a\n*** Move to: ../x\n", None);
        check("*** Add File: .git/hooks/pre-commit\n+x\n", None);
        assert_eq!(run(&dir, false, good), Err(None));
        assert_eq!(tree(&dir), before);
        // This fails only when it is done, after the first change.
        let error = run(&dir, true, "*** Add File: x\n+x\n*** Add File: x/y\n+y\n").unwrap_err();
        assert!(error.is_some_and(|error| error.contains("`x/y`")));
        assert_eq!(tree(&dir), before);
    }

    #[test]
    fn a_change_that_remains_is_not_denied() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        // Too large to be saved for undo, so its creation cannot be undone when the next section fails.
        let text = "x".repeat(1 + usize::try_from(READ_LIMIT_BYTES).unwrap());
        let body = format!("*** Add File: x\n+{text}\n*** Add File: x/y\n+y\n");
        let error = run(&dir, true, &body).unwrap_err().unwrap();
        assert!(error.contains("a part of it was applied"), "{error}");
        assert!(error.contains("`x` could not be restored"), "{error}");
        assert!(!error.contains("no file was changed"), "{error}");
        assert!(dir.join("x").exists());
    }
}
