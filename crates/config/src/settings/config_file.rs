//! One file of the config: its text, its values under current key names, and the position of each value.
//!
//! The format is JSON with comments, trailing commas and an optional byte order mark, and no other extension. Reading
//! converts key names to the table's spelling and moves values from obsolete keys to current ones. The text itself is
//! only edited value by value, so comments, order and unknown keys survive.

use super::key_node::KeyNode;
use super::key_spelling::{find_provider_name, format_path};
use super::keys::RENAMED_KEYS;
use anyhow::{Context, Result};
use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use jsonc_parser::cst::{CstInputValue, CstObject, CstObjectProp, CstRootNode};
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::{CollectOptions, ParseOptions};
use nanobot_base::error::{Exit, WithHint, fail};
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

/// One file of the config: its text, and its values by their current key names.
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
        let file = if is_opened { File::open(path) } else { durable_file::open_nonblocking(path) };
        let file = match file {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::missing(path)),
            Err(error) => return Err(read_error(path, &error)),
        };
        let metadata = file.metadata().map_err(|error| read_error(path, &error))?;
        if !is_opened && (metadata.file_type().is_fifo() || metadata.file_type().is_socket()) {
            let cause = format!("config `{}` is not a regular file", path.display());
            return Err(fail(Exit::Config, cause));
        }
        let bytes = durable_file::read_to_size(file, metadata.len(), MAX_BYTES + 1)
            .map_err(|error| read_error(path, &error))?;
        if bytes.len() as u64 > MAX_BYTES {
            let cause = format!("config `{}` is larger than 4 MiB", path.display());
            return Err(fail(Exit::Config, cause));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid_length = error.utf8_error().valid_up_to();
            let valid_text = String::from_utf8_lossy(&error.as_bytes()[..valid_length]);
            let (line, column) = line_and_column(&valid_text, valid_length);
            let cause = format!("{}:{line}:{column}: not UTF-8", path.display());
            fail(Exit::Config, cause)
        })?;
        // An empty file may have lost its limits; an empty device or pipe is meant as it is.
        if metadata.is_file() && text.trim().is_empty() {
            let cause = format!("config `{}` is empty", path.display());
            let hint = "restore the file, or write `{}` for an empty config";
            return Err(fail(Exit::Config, cause).with_hint(hint));
        }
        Ok(Self {
            exposure: metadata.is_file().then(|| describe_exposure(path, &metadata)).flatten(),
            ..Self::parse(path, &text)?
        })
    }

    /// True if `path` names a descriptor that our caller opened, such as `/dev/stdin` or `<(…)`. Other files below `/dev`
    /// and `/proc`, such as `/dev/shm/nanobot.json`, are files like any other.
    pub(super) fn is_opened(path: &Path) -> bool {
        let dir = path.parent().unwrap_or(path);
        path == Path::new("/dev/stdin")
            || dir == Path::new("/dev/fd")
            || (dir.starts_with("/proc") && dir.ends_with("fd"))
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
        let to_error = |offset: usize, message: &str| {
            let (line, column) = line_and_column(text, offset);
            fail(Exit::Config, format!("{}:{line}:{column}: {message}", path.display()))
                .with_hint("correct the file by hand; nanobot never overwrites it")
        };
        let root = jsonc_parser::parse_to_ast(text, &CollectOptions::default(), &parse_options())
            .map_err(|error| {
            let start = error.range().start;
            let bracket = match error.kind() {
                ParseErrorKind::UnterminatedObject => '{',
                ParseErrorKind::UnterminatedArray => '[',
                other => return to_error(start, &lowercase_first(&other.to_string())),
            };
            let (line, column) = line_and_column(text, start);
            let message = format!("the file ends, but the `{bracket}` at {line}:{column} is open");
            to_error(text.trim_end().len(), &message)
        })?;
        let mut config = Self { text: Some(text.to_owned()), ..Self::missing(path) };
        match root.value {
            None => {}
            Some(ast::Value::Object(object)) => {
                let mut converter = AstConverter { config: &mut config, to_error: &to_error };
                config.value = converter.object(object, Some(KeyNode::root()), &mut Vec::new())?;
                config.move_old_keys();
            }
            Some(other) => return Err(to_error(other.start(), "expected an object: `{`")),
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
    /// Status 74 if it is a device, a pipe, a socket or a descriptor.
    pub(super) fn check_replaceable(path: &Path) -> Result<()> {
        let is_special = |target: Metadata| !target.is_file() && !target.is_dir();
        if Self::is_opened(path) || path.metadata().is_ok_and(is_special) {
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
        let path_text = format_path(&path);
        for (old, _) in RENAMED_KEYS.iter().filter(|(_, new)| *new == path_text) {
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
            let old_path: KeyPath = old.split('.').map(str::to_owned).collect();
            let new_path: KeyPath = new.split('.').map(str::to_owned).collect();
            let offset = self.offset(&old_path).unwrap_or_default();
            let is_new_set = get_in(&self.value, &new_path).is_some_and(|value| !value.is_null());
            let text = if is_new_set {
                format!("`{old}` is an old name of `{new}`, which is also set and takes precedence")
            } else {
                format!("`{old}` is an old name of `{new}`")
            };
            self.remarks.push(Remark { offset, text });
            self.offsets.remove(&old_path);
            if !is_new_set {
                set_in(&mut self.value, &new_path, value);
                self.offsets.insert(new_path, offset);
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
        node: Option<KeyNode>,
        path: &mut KeyPath,
    ) -> Result<Value> {
        let mut values = Map::new();
        let mut spellings: BTreeMap<String, String> = BTreeMap::new();
        for member in object.properties {
            let offset = member.name.start();
            let spelling = member.name.into_string();
            let name = node.map_or_else(|| spelling.clone(), |node| node.canonical(&spelling));
            let name = if *path == ["providers"] {
                find_provider_name(values.keys(), &name)
            } else {
                name
            };
            if let Some(earlier) = spellings.get(&name) {
                // The table's own spelling wins, and else the last one.
                let is_ignored = *earlier == name && spelling != name;
                let winner = if is_ignored { earlier } else { &spelling };
                self.report_duplicate(offset, earlier, &spelling, winner);
                if is_ignored {
                    continue;
                }
                path.push(name.clone());
                self.config.offsets.retain(|other_path, _| !other_path.starts_with(path));
                path.pop();
            }
            path.push(name.clone());
            self.config.offsets.insert(path.clone(), member.value.start());
            let child = node.and_then(|node| node.child(&name));
            let value = self.value(member.value, child, path)?;
            path.pop();
            spellings.insert(name.clone(), spelling);
            values.insert(name, value);
        }
        Ok(Value::Object(values))
    }

    fn value(
        &mut self,
        value: ast::Value<'_>,
        node: Option<KeyNode>,
        path: &mut KeyPath,
    ) -> Result<Value> {
        Ok(match value {
            ast::Value::Object(object) => self.object(object, node, path)?,
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

    fn report_duplicate(&mut self, offset: usize, earlier: &str, later: &str, winner: &str) {
        let text = if earlier == later {
            format!("duplicate key `{later}`; the last value is used")
        } else {
            format!("`{earlier}` and `{later}` are the same key; `{winner}` is used")
        };
        self.config.remarks.push(Remark { offset, text });
    }
}

/// Returns the value at `path`.
pub fn get_in<'v>(value: &'v Value, path: &[impl AsRef<str>]) -> Option<&'v Value> {
    path.iter().try_fold(value, |inner, name| inner.get(name.as_ref()))
}

/// Stores `new_value` at `path` and creates the objects above it. A value above it that is not an object is replaced.
pub fn set_in(value: &mut Value, path: &[String], new_value: Value) {
    let Some((name, rest)) = path.split_first() else {
        *value = new_value;
        return;
    };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    if let Value::Object(members) = value {
        let member = members.entry(name.as_str()).or_insert(Value::Null);
        set_in(member, rest, new_value);
    }
}

fn take_from(value: &mut Value, path: &str) -> Option<Value> {
    let (parent_path, name) = path.rsplit_once('.')?;
    let mut parent = value;
    for name in parent_path.split('.') {
        parent = parent.get_mut(name)?;
    }
    parent.as_object_mut()?.shift_remove(name)
}

/// Returns the members of `object` that spell `name`, with the effective one last.
fn find_members(object: &CstObject, node: Option<KeyNode>, name: &str) -> Vec<CstObjectProp> {
    let mut others = Vec::new();
    let mut exact = Vec::new();
    for member in object.properties() {
        let Some(spelling) = member.decoded_name() else {
            continue;
        };
        if node.map_or_else(|| spelling == name, |node| node.is_same_name(&spelling, name)) {
            if spelling == name { exact.push(member) } else { others.push(member) }
        }
    }
    others.extend(exact);
    others
}

fn set_in_text(top: &CstObject, path: &[&str], value: &Value) {
    let mut object = top.clone();
    let mut node = Some(KeyNode::root());
    for (depth, name) in path.iter().enumerate() {
        let member = find_members(&object, node, name).pop();
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
        node = node.and_then(|node| node.child(name));
    }
}

/// Removes the value at `path`, and the objects above it that this leaves empty. An object with a comment stays.
fn remove_from_text(top: &CstObject, path: &[&str]) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let mut object = top.clone();
    let mut node = Some(KeyNode::root());
    for name in parents {
        let Some(child) =
            find_members(&object, node, name).pop().and_then(|member| member.object_value())
        else {
            return;
        };
        object = child;
        node = node.and_then(|node| node.child(name));
    }
    let members = find_members(&object, node, last);
    if members.is_empty() {
        return;
    }
    for member in members {
        member.remove();
    }
    let is_empty = object.to_string().replace(char::is_whitespace, "") == "{}";
    if is_empty && !parents.is_empty() {
        remove_from_text(top, parents);
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

/// Describes which other users can change the config at `path`, with the command that prevents it; `None` if there are none.
fn describe_exposure(path: &Path, metadata: &Metadata) -> Option<String> {
    let path = path.display();
    let mode = metadata.mode() & 0o777;
    let owner = metadata.uid();
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
