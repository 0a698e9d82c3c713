//! One file of the config: its text, its values under current key names, and the position of each value.
//!
//! The format is JSON with comments, trailing commas and an optional byte order mark, and no other extension. Reading
//! converts key names to the table's spelling and moves values from obsolete keys to current ones. The text itself is
//! only edited value by value, so comments, order and unknown keys survive.

use super::key_node::KeyNode;
use super::key_spelling::format_path;
use super::other_releases::RENAMED_KEYS;
use anyhow::{Context, Result};
use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use jsonc_parser::cst::{CstInputValue, CstObject, CstObjectProp, CstRootNode};
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::{CollectOptions, ParseOptions};
use nanobot_base::error::{Exit, fail, fail_with_hint};
use nanobot_os::durable_file;
use nanobot_os::owner::user_id;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Maximum size of a config file in bytes. The largest that the Python program writes is about 10 KB.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Key names from the top of the config, in the table's spelling.
pub type KeyPath = Vec<String>;

/// A file of the config.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    path: PathBuf,
    /// `None` if the file does not exist.
    text: Option<String>,
    value: Value,
    /// The byte offset at which each value starts.
    offsets: BTreeMap<KeyPath, usize>,
    remarks: Vec<Remark>,
    /// A phrase about the file that says which other users can change it, if any.
    exposure: Option<String>,
}

/// A remark about how a key is written, to be reported to the user.
#[derive(Clone, Debug)]
pub struct Remark {
    /// Byte offset in the text.
    pub offset: usize,
    pub text: String,
}

impl ConfigFile {
    /// Reads the file; a missing file is an empty config.
    ///
    /// # Errors
    /// Status 78 if the content is not a valid config, 74 if it cannot be read. A named pipe is rejected, because it
    /// would block every command and shell completion. A descriptor opened by our caller, such as `/dev/stdin` or
    /// `<(…)`, is read to its end.
    pub fn load(path: &Path) -> Result<Self> {
        let is_opened = Self::is_opened(path);
        let opened =
            if is_opened { File::open(path) } else { durable_file::open_nonblocking(path) };
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::missing(path)),
            Err(error) => return Err(read_error(path, &error)),
        };
        let about = file.metadata().map_err(|error| read_error(path, &error))?;
        if !is_opened && (about.file_type().is_fifo() || about.file_type().is_socket()) {
            let cause = format!("config `{}` is not a regular file", path.display());
            return Err(fail(Exit::Config, cause));
        }
        let bytes = durable_file::read_to_size(file, about.len(), MAX_BYTES + 1)
            .map_err(|error| read_error(path, &error))?;
        if bytes.len() as u64 > MAX_BYTES {
            let cause = format!("config `{}` is larger than 4 MiB", path.display());
            return Err(fail(Exit::Config, cause));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = error.utf8_error().valid_up_to();
            let (line, column) =
                line_and_column(&String::from_utf8_lossy(&error.as_bytes()[..good]), good);
            let cause = format!("{}:{line}:{column}: not UTF-8", path.display());
            fail(Exit::Config, cause)
        })?;
        // An empty file may have lost its limits; an empty device or pipe is meant as it is.
        if about.is_file() && text.trim().is_empty() {
            let cause = format!("config `{}` is empty", path.display());
            let hint = "restore the file, or write `{}` for an empty config";
            return Err(fail_with_hint(Exit::Config, cause, hint));
        }
        Ok(Self {
            exposure: about.is_file().then(|| describe_exposure(path, &about)).flatten(),
            ..Self::parse(path, &text)?
        })
    }

    /// True if our caller opened the file at `path`, such as `/dev/stdin` or `<(…)`.
    pub(super) fn is_opened(path: &Path) -> bool {
        path.starts_with("/dev") || path.starts_with("/proc")
    }

    /// Returns the empty config of a missing file.
    pub fn missing(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            text: None,
            value: Value::Object(Map::new()),
            offsets: BTreeMap::new(),
            remarks: Vec::new(),
            exposure: None,
        }
    }

    /// A phrase about the file that says which other users can change it, if any. The config decides what runs.
    pub fn exposure(&self) -> Option<&str> {
        self.exposure.as_deref()
    }

    /// Parses `text`; `path` is used in messages. An empty text, such as that of `/dev/null`, is an empty config.
    pub fn parse(path: &Path, text: &str) -> Result<Self> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let broken = |at: usize, words: &str| {
            let (line, column) = line_and_column(text, at);
            fail_with_hint(
                Exit::Config,
                format!("{}:{line}:{column}: {words}", path.display()),
                "correct the file by hand; nanobot never overwrites it",
            )
        };
        let root = jsonc_parser::parse_to_ast(text, &CollectOptions::default(), &parse_options())
            .map_err(|error| {
            let start = error.range().start;
            let bracket = match error.kind() {
                ParseErrorKind::UnterminatedObject => '{',
                ParseErrorKind::UnterminatedArray => '[',
                other => return broken(start, &lowercase_first(&other.to_string())),
            };
            let (line, column) = line_and_column(text, start);
            let words = format!("the file ends, but the `{bracket}` at {line}:{column} is open");
            broken(text.trim_end().len(), &words)
        })?;
        let mut config = Self { text: Some(text.to_owned()), ..Self::missing(path) };
        match root.value {
            None => {}
            Some(ast::Value::Object(object)) => {
                let mut reader = AstConverter { config: &mut config, to_error: &broken };
                let value = reader.object(object, Some(KeyNode::root()), &mut Vec::new())?;
                config.value = value;
                config.move_old_keys();
            }
            Some(other) => return Err(broken(other.start(), "expected an object: `{`")),
        }
        Ok(config)
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if the file exists.
    pub fn exists(&self) -> bool {
        self.text.is_some()
    }

    /// The file's text without a byte order mark; empty if there is no file.
    pub fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// All values under their current key names.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Remarks about how keys are written.
    pub(crate) fn remarks(&self) -> &[Remark] {
        &self.remarks
    }

    /// Returns the byte offset of the value at `path`, or of its nearest enclosing object.
    pub fn offset(&self, path: &[String]) -> Option<usize> {
        (1..=path.len()).rev().find_map(|length| self.offsets.get(&path[..length])).copied()
    }

    /// Formats a byte offset as `FILE:LINE:COLUMN`.
    pub fn position(&self, offset: usize) -> String {
        let (line, column) = line_and_column(self.text(), offset);
        format!("{}:{line}:{column}", self.path.display())
    }

    /// Writes `value` at `path` in the spelling that the file already uses. Comments and all other text are
    /// preserved.
    pub fn set(&mut self, path: &[impl AsRef<str>], value: &Value) -> Result<()> {
        self.edit(path, Some(value))
    }

    /// Removes the value at `path` in every spelling, and the objects that this leaves empty. Returns false if there was
    /// none.
    pub fn unset(&mut self, path: &[impl AsRef<str>]) -> Result<bool> {
        let Some(before) = self.text.clone() else {
            return Ok(false);
        };
        self.edit(path, None)?;
        Ok(self.text() != before)
    }

    /// Writes the text, readable by its owner only, unless it is `before`.
    ///
    /// # Errors
    /// Status 74 if it cannot be written, or is not a regular file.
    pub(super) fn write(&self, before: &Self) -> Result<()> {
        if self.text == before.text {
            return Ok(());
        }
        Self::check_replaceable(&self.path)?;
        durable_file::replace(&self.path, self.text().as_bytes())
    }

    /// Checks that the file at `path` may be replaced by a regular file.
    ///
    /// # Errors
    /// Status 74 if it is a device, a pipe or a socket.
    pub(super) fn check_replaceable(path: &Path) -> Result<()> {
        let is_special = |target: Metadata| !target.is_file() && !target.is_dir();
        if path.metadata().is_ok_and(is_special) {
            let cause = format!("write `{}`: not a regular file", path.display());
            Err(fail(Exit::Io, cause))
        } else {
            Ok(())
        }
    }

    fn edit(&mut self, path: &[impl AsRef<str>], value: Option<&Value>) -> Result<()> {
        let path: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
        let text = match self.text() {
            text if text.trim().is_empty() => "{}\n",
            text => text,
        };
        let root =
            CstRootNode::parse(text, &parse_options()).context("parse the config for editing")?;
        let top = root.object_value_or_set();
        let joined = format_path(&path);
        for (old, _) in RENAMED_KEYS.iter().filter(|(_, new)| *new == joined) {
            let old: Vec<&str> = old.split('.').collect();
            remove_from_text(&top, &old);
        }
        match value {
            Some(value) => set_in_text(&top, &path, value),
            None => remove_from_text(&top, &path),
        }
        *self = Self::parse(&self.path, &root.to_string())?;
        Ok(())
    }

    /// Moves values from the keys of older releases to the current ones.
    fn move_old_keys(&mut self) {
        for (old, new) in RENAMED_KEYS {
            let Some(value) = take_from(&mut self.value, old) else {
                continue;
            };
            let from: KeyPath = old.split('.').map(str::to_owned).collect();
            let to: KeyPath = new.split('.').map(str::to_owned).collect();
            let at = self.offset(&from).unwrap_or_default();
            let taken = get_in(&self.value, &to).is_some_and(|present| !present.is_null());
            let text = if taken {
                format!("`{old}` is an old name of `{new}`, which is also set and takes precedence")
            } else {
                format!("`{old}` is an old name of `{new}`")
            };
            self.remarks.push(Remark { offset: at, text });
            self.offsets.remove(&from);
            if !taken {
                set_in(&mut self.value, &to, value);
                self.offsets.insert(to, at);
            }
        }
    }
}

/// Converts the parsed text to values, with key names in the table's spelling and the position of each value.
struct AstConverter<'c, F> {
    config: &'c mut ConfigFile,
    to_error: &'c F,
}

impl<F: Fn(usize, &str) -> anyhow::Error> AstConverter<'_, F> {
    fn object(
        &mut self,
        object: ast::Object<'_>,
        branch: Option<KeyNode>,
        path: &mut KeyPath,
    ) -> Result<Value> {
        let mut values = Map::new();
        let mut spellings: BTreeMap<String, String> = BTreeMap::new();
        for member in object.properties {
            let at = member.name.start();
            let written = member.name.into_string();
            let name = branch.map_or_else(|| written.clone(), |here| here.canonical(&written));
            if let Some(earlier) = spellings.get(&name) {
                let loses = *earlier == name && written != name;
                self.report_duplicate(
                    at,
                    earlier,
                    &written,
                    if loses { earlier } else { &written },
                );
                if loses {
                    continue;
                }
                path.push(name.clone());
                self.config.offsets.retain(|known, _| !known.starts_with(path));
                path.pop();
            }
            path.push(name.clone());
            self.config.offsets.insert(path.clone(), member.value.start());
            let value =
                self.value(member.value, branch.and_then(|here| here.child(&name)), path)?;
            path.pop();
            spellings.insert(name.clone(), written);
            values.insert(name, value);
        }
        Ok(Value::Object(values))
    }

    fn value(
        &mut self,
        value: ast::Value<'_>,
        branch: Option<KeyNode>,
        path: &mut KeyPath,
    ) -> Result<Value> {
        Ok(match value {
            ast::Value::Object(object) => self.object(object, branch, path)?,
            ast::Value::Array(array) => {
                let mut items = Vec::with_capacity(array.elements.len());
                for (index, item) in array.elements.into_iter().enumerate() {
                    path.push(index.to_string());
                    items.push(self.value(item, None, path)?);
                    path.pop();
                }
                Value::Array(items)
            }
            ast::Value::StringLit(text) => Value::String(text.value.into_owned()),
            ast::Value::BooleanLit(truth) => Value::Bool(truth.value),
            ast::Value::NullKeyword(_) => Value::Null,
            ast::Value::NumberLit(number) => serde_json::from_str(number.value)
                .map_err(|_| (self.to_error)(number.range.start, "number out of range"))?,
        })
    }

    fn report_duplicate(&mut self, at: usize, earlier: &str, later: &str, winner: &str) {
        let text = if earlier == later {
            format!("duplicate key `{later}`; the last value is used")
        } else {
            format!("`{earlier}` and `{later}` are the same key; `{winner}` is used")
        };
        self.config.remarks.push(Remark { offset: at, text });
    }
}

/// Returns the value at `path`.
pub fn get_in<'v>(value: &'v Value, path: &[impl AsRef<str>]) -> Option<&'v Value> {
    path.iter().try_fold(value, |inner, name| inner.get(name.as_ref()))
}

/// Stores `new` at `path` and creates the objects on the way. A value on the way that is not an object is replaced.
pub fn set_in(value: &mut Value, path: &[String], new: Value) {
    let Some((name, rest)) = path.split_first() else {
        *value = new;
        return;
    };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    if let Value::Object(members) = value {
        let member = members.entry(name.as_str()).or_insert(Value::Null);
        set_in(member, rest, new);
    }
}

fn take_from(value: &mut Value, path: &str) -> Option<Value> {
    let (above, last) = path.rsplit_once('.')?;
    let mut holder = value;
    for name in above.split('.') {
        holder = holder.get_mut(name)?;
    }
    holder.as_object_mut()?.shift_remove(last)
}

/// Returns the members of `object` that spell `name`, with the effective one last.
fn members(object: &CstObject, branch: Option<KeyNode>, name: &str) -> Vec<CstObjectProp> {
    let mut found: Vec<(bool, CstObjectProp)> = object
        .properties()
        .into_iter()
        .filter_map(|member| {
            let written = member.decoded_name()?;
            let canonical = branch.map_or_else(|| written.clone(), |here| here.canonical(&written));
            (canonical == name).then_some((written == name, member))
        })
        .collect();
    found.sort_by_key(|(exact, _)| *exact);
    found.into_iter().map(|(_, member)| member).collect()
}

fn set_in_text(top: &CstObject, path: &[&str], value: &Value) {
    let mut object = top.clone();
    let mut branch = Some(KeyNode::root());
    for (depth, name) in path.iter().enumerate() {
        let member = members(&object, branch, name).pop();
        if depth + 1 == path.len() {
            match member {
                Some(member) => member.set_value(to_cst_value(value)),
                None => drop(object.append(name, to_cst_value(value))),
            }
            return;
        }
        object = member
            .unwrap_or_else(|| object.append(name, CstInputValue::Object(Vec::new())))
            .object_value_or_set();
        branch = branch.and_then(|here| here.child(name));
    }
}

/// Removes the value at `path`, and the objects above it that it leaves empty, without a comment.
fn remove_from_text(top: &CstObject, path: &[&str]) {
    let Some((last, above)) = path.split_last() else {
        return;
    };
    let mut object = top.clone();
    let mut branch = Some(KeyNode::root());
    for name in above {
        let Some(inner) =
            members(&object, branch, name).pop().and_then(|member| member.object_value())
        else {
            return;
        };
        object = inner;
        branch = branch.and_then(|here| here.child(name));
    }
    let found = members(&object, branch, last);
    let is_found = !found.is_empty();
    for member in found {
        member.remove();
    }
    let is_empty = object.to_string().replace(char::is_whitespace, "") == "{}";
    if is_found && is_empty && !above.is_empty() {
        remove_from_text(top, above);
    }
}

fn to_cst_value(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(truth) => CstInputValue::Bool(*truth),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(to_cst_value).collect()),
        Value::Object(members) => CstInputValue::Object(
            members.iter().map(|(name, value)| (name.clone(), to_cst_value(value))).collect(),
        ),
    }
}

/// Sets strict options: the parser's defaults accept nearly JSON5, which no other reader of this file supports.
fn parse_options() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

/// Line and column of the byte at `offset`, both counted from 1; the column counts characters.
fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

fn lowercase_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect()
}

fn read_error(path: &Path, error: &std::io::Error) -> anyhow::Error {
    let exit = match error.kind() {
        ErrorKind::IsADirectory => Exit::Config,
        _ => Exit::Io,
    };
    fail(exit, format!("read config `{}`: {error}", path.display()))
}

/// Tells who else can change the config at `path`, and the command that changes that.
fn describe_exposure(path: &Path, about: &Metadata) -> Option<String> {
    let path = path.display();
    let mode = about.mode() & 0o777;
    let owner = about.uid();
    if ![0, user_id()].contains(&owner) {
        let own = user_id();
        return Some(format!(
            "it belongs to another user ({owner}), who can change it: `sudo chown {own} {path}`"
        ));
    }
    (mode & 0o002 != 0)
        .then(|| format!("every user can change it (mode {mode:04o}): `chmod go-w {path}`"))
}

#[cfg(test)]
mod tests {
    use super::{ConfigFile, get_in};
    use nanobot_base::error::{Exit, exit_for};
    use serde_json::json;
    use std::path::Path;

    fn parse(text: &str) -> ConfigFile {
        parse_at(Path::new("c.json"), text)
    }

    fn parse_at(path: &Path, text: &str) -> ConfigFile {
        ConfigFile::parse(path, text).unwrap()
    }

    #[test]
    fn an_open_bracket_is_reported_with_the_end() {
        let check = |text: &str, expect: &str| {
            let error = ConfigFile::parse(Path::new("c.json"), text).unwrap_err();
            assert_eq!(error.to_string(), expect, "{text}");
        };
        check(
            "{\"agents\": {\"defaults\": {\"model\": 5,}}\n",
            "c.json:1:39: the file ends, but the `{` at 1:1 is open",
        );
        check("{\n \"a\": [1,\n 2", "c.json:3:3: the file ends, but the `[` at 2:7 is open");
        check(
            "{\"a\" 1}",
            "c.json:1:6: expected colon after the string or word in object property",
        );
    }

    #[test]
    fn objects_that_a_removal_leaves_empty_are_removed() {
        let check = |text: &str, path: &str, expect: &str| {
            let mut config = parse(text);
            let path: Vec<&str> = path.split('.').collect();
            config.unset(&path).unwrap();
            assert_eq!(config.text(), expect, "{text}");
        };
        let text = "{\"a\": {\"b\": {\"c\": 1}}, \"d\": 2}";
        check(text, "a.b.c", "{ \"d\": 2}");
        check("{\"a\": {\"b\": 1}}", "a.b", "{}");
        check("{\"a\": {}}", "a.b", "{\"a\": {}}");
        let text = "{\"a\": {\"b\": 1, \"c\": 2}}";
        check(text, "a.b", "{\"a\": { \"c\": 2}}");
    }

    #[test]
    fn key_names_are_normalized() {
        let check = |text: &str, expect: serde_json::Value| {
            assert_eq!(*parse(text).value(), expect, "{text}");
        };
        check("", json!({}));
        check("// nothing\n", json!({}));
        check("\u{feff}{}", json!({}));
        check(
            r#"{"agents": {"defaults": {"max_tokens": 5,}}, /* x */}"#,
            json!({"agents": {"defaults": {"maxTokens": 5}}}),
        );
        check(
            r#"{"tools": {"mcp_servers": {"my_s": {"tool_timeout": 5, "env": {"A_B": "c"}}}}}"#,
            json!({"tools": {"mcpServers": {"my_s": {"toolTimeout": 5, "env": {"A_B": "c"}}}}}),
        );
        check(
            r#"{"providers": {"openai_codex": {"api_key": "k"}}, "my_own": {"a_b": 1}}"#,
            json!({"providers": {"openaiCodex": {"apiKey": "k"}}, "my_own": {"a_b": 1}}),
        );
        check(
            r#"{"tools": {"exec": {"restrict_to_workspace": true}}}"#,
            json!({"tools": {"exec": {}, "restrictToWorkspace": true}}),
        );
        check(
            r#"{"tools": {"exec": {"restrictToWorkspace": true}, "restrictToWorkspace": false}}"#,
            json!({"tools": {"exec": {}, "restrictToWorkspace": false}}),
        );
        check(
            r#"{"agents": {"defaults": {"maxIterations": 3}}}"#,
            json!({"agents": {"defaults": {"maxToolIterations": 3}}}),
        );
    }

    #[test]
    fn the_canonical_spelling_takes_precedence() {
        let check = |text: &str, expect: u64, remark: &str| {
            let config = parse(text);
            let path = ["agents", "defaults", "maxTokens"].map(str::to_owned);
            assert_eq!(get_in(config.value(), &path), Some(&json!(expect)), "{text}");
            assert_eq!(config.remarks()[0].text, remark);
            let at = config.offset(&path).unwrap();
            assert!(config.text()[at..].starts_with(&expect.to_string()));
        };
        check(
            r#"{"agents": {"defaults": {"maxTokens": 1, "max_tokens": 2}}}"#,
            1,
            "`maxTokens` and `max_tokens` are the same key; `maxTokens` is used",
        );
        check(
            r#"{"agents": {"defaults": {"max_tokens": 2, "maxTokens": 1}}}"#,
            1,
            "`max_tokens` and `maxTokens` are the same key; `maxTokens` is used",
        );
        check(
            r#"{"agents": {"defaults": {"maxTokens": 1, "maxTokens": 2}}}"#,
            2,
            "duplicate key `maxTokens`; the last value is used",
        );
    }

    #[test]
    fn syntax_errors_have_line_and_column() {
        let check = |text: &str, expect: &str| {
            let error = ConfigFile::parse(Path::new("c.json"), text).unwrap_err();
            assert_eq!(exit_for(&error), Exit::Config);
            assert!(error.to_string().starts_with(expect), "{error}");
        };
        check("[]", "c.json:1:1: expected an object");
        check("{\n  \"a\": }", "c.json:2:");
        check("{\"a\": 1 \"b\": 2}", "c.json:1:");
        check("{a: 1}", "c.json:1:2:");
        check("{'a': 1}", "c.json:1:2:");
        check("{\"a\": 1e999}", "c.json:1:7: number out of range");
        check("{\"a\": NaN}", "c.json:1:7:");
        check("{\"a\": \"b", "c.json:1:7:");
        check("{", "c.json:1:2:");
        check("{} {}", "c.json:1:4:");
        check(&"[".repeat(100_000), "c.json:1:");
    }

    #[test]
    fn an_edit_preserves_everything_else() {
        let text = "{\n  // mine\n  \"agents\": {\n    \"defaults\": {\n      \"max_tokens\": 5, // small\n      \"own\": [1]\n    }\n  }\n}\n";
        let mut config = parse(text);
        let path = ["agents", "defaults", "maxTokens"];
        config.set(&path, &json!(7)).unwrap();
        assert_eq!(config.text(), text.replace(": 5", ": 7"));
        config.set(&["providers", "openai", "apiKey"], &json!("${K}")).unwrap();
        assert!(
            config.text().contains(
                "\"providers\": {\n    \"openai\": {\n      \"apiKey\": \"${K}\"\n    }\n  }"
            ),
            "{}",
            config.text()
        );
        assert!(config.unset(&path).unwrap());
        assert!(!config.unset(&path).unwrap());
        assert!(!config.text().contains("max_tokens"));
        assert!(config.text().contains("// mine"));
        assert!(config.text().contains("\"own\": [1]"));
    }

    #[test]
    fn a_new_value_replaces_an_old_key() {
        let mut config = parse(r#"{"tools": {"exec": {"restrictToWorkspace": true}}}"#);
        config.set(&["tools", "restrictToWorkspace"], &json!(false)).unwrap();
        assert!(config.remarks().is_empty());
        assert_eq!(*config.value(), json!({"tools": {"restrictToWorkspace": false}}));
    }

    #[test]
    fn a_new_file_is_plain_json() {
        let mut config = ConfigFile::missing(Path::new("c.json"));
        config.set(&["agents", "defaults", "maxTokens"], &json!(1)).unwrap();
        config.set(&["agents", "defaults", "temperature"], &json!(0.1)).unwrap();
        config.set(&["tools", "exec", "timeout"], &json!(60)).unwrap();
        let pretty = serde_json::to_string_pretty(&json!({
            "agents": {"defaults": {"maxTokens": 1, "temperature": 0.1}},
            "tools": {"exec": {"timeout": 60}}
        }));
        assert_eq!(config.text(), pretty.unwrap() + "\n");
    }

    #[test]
    fn non_utf8_files_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.json");
        assert!(!ConfigFile::load(&path).unwrap().exists());
        std::fs::write(&path, b"{\n \"a\": \"\xff\"}").unwrap();
        let error = ConfigFile::load(&path).unwrap_err();
        assert!(error.to_string().ends_with("c.json:2:8: not UTF-8"), "{error}");
        let error = ConfigFile::load(folder.path()).unwrap_err();
        assert_eq!(exit_for(&error), Exit::Config);
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
        let error = ConfigFile::load(&pipe).unwrap_err();
        assert_eq!(exit_for(&error), Exit::Config);
        assert!(error.to_string().ends_with("is not a regular file"), "{error}");
        let device = folder.path().join("device");
        std::os::unix::fs::symlink("/dev/null", &device).unwrap();
        assert!(ConfigFile::load(&device).unwrap().exists());
    }

    #[test]
    fn fuzz_any_config_is_read_or_refused_and_edits_keep_it_readable() {
        let seeds: &[&[u8]] = &[
            br#"{"agents": {"defaults": {"model": "m", "maxTokens": 4096, "temperature": 0.5}}, "providers": {"custom": {"apiKey": "${KEY}", "apiBase": "http://x/v1"}}}"#,
            b"// mine\n{\n  \"tools\": { \"exec\": { \"timeout\": 60, }, \"restrict_to_workspace\": true }, /* x */\n}\n",
            b"{\"providers\": {\"a\": null, \"a\": {}}, \"providers\": 3, \"\\ud83d\": []}",
        ];
        nanobot_base::fuzz::check(seeds, |input, _| {
            let path = Path::new("/c.json");
            if let Ok(mut config) = ConfigFile::parse(path, &nanobot_base::fuzz::lossy_text(input))
                && config.set(&["agents", "defaults", "model"], &json!("other")).is_ok()
            {
                let again = ConfigFile::parse(path, config.text()).unwrap();
                assert_eq!(
                    get_in(again.value(), &["agents", "defaults", "model"]),
                    Some(&json!("other"))
                );
            }
        });
    }
}
