//! Validates the calls at a stand-in against its vendor's description of them, which `tests/schemas/chat.py` makes.

use crate::json_schema::Validator;
use crate::server::Request;
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex};
use url::form_urlencoded;

/// The calls that a vendor describes.
struct CallSchemas(Vec<CallSchema>);

/// A call: its method, the segments of its path, and the schema of the rest.
struct CallSchema {
    method: String,
    segments: Vec<String>,
    schema: Value,
    validator: Validator,
}

/// Validates the calls at one stand-in.
#[derive(Clone)]
pub(crate) struct CallCheck(Arc<(CallSchemas, Mutex<Violations>)>);

#[derive(Default)]
struct Violations {
    found: Vec<String>,
    is_ignored: bool,
}

/// Fails the test at its end if a call was not as described.
pub(crate) struct CallGuard(CallCheck);

impl CallCheck {
    /// Reads the schemas of a vendor.
    pub(crate) fn new(source: &str) -> Self {
        let schemas: Value = serde_json::from_str(source).unwrap();
        let schemas = schemas["$defs"].as_object().unwrap().iter();
        let schemas = schemas
            .map(|(name, schema)| {
                let (method, path) = name.split_once(' ').unwrap();
                CallSchema {
                    method: method.to_owned(),
                    segments: path.split('/').map(str::to_owned).collect(),
                    schema: schema.clone(),
                    validator: Validator::new(schema),
                }
            })
            .collect();
        Self(Arc::new((CallSchemas(schemas), Mutex::default())))
    }

    pub(crate) fn guard(&self) -> CallGuard {
        CallGuard(self.clone())
    }

    /// Validates a call, whose path is `path` without the base address.
    pub(crate) fn check(&self, request: &Request, path: &str) {
        let (schemas, violations) = &*self.0;
        if let Err(error) = schemas.validate(request, path) {
            let violation = format!("{} {path}: {error}", request.method);
            violations.lock().unwrap().found.push(violation);
        }
    }

    /// Lets every call pass: clients of others call more than the program does.
    pub(crate) fn ignore(&self) {
        self.0.1.lock().unwrap().is_ignored = true;
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        let violations = self.0.0.1.lock().unwrap();
        if !std::thread::panicking() && !violations.is_ignored {
            assert_eq!(violations.found, Vec::<String>::new());
        }
    }
}

fn is_parameter(segment: &str) -> bool {
    segment.starts_with('{')
}

impl CallSchemas {
    fn validate(&self, request: &Request, path: &str) -> Result<(), String> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let segments: Vec<String> = path.split('/').map(decode).collect();
        let is_meant = |call: &&CallSchema| {
            let pairs = call.segments.iter().zip(&segments);
            call.method == request.method
                && call.segments.len() == segments.len()
                && pairs
                    .into_iter()
                    .all(|(segment, value)| is_parameter(segment) || segment == value)
        };
        // Paths that differ in the names of their parameters only are several.
        let mut outcome = Err("the service has no such call".to_owned());
        for call in self.0.iter().filter(is_meant) {
            outcome = call.validate(request, &segments, query);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }
}

impl CallSchema {
    fn validate(&self, request: &Request, segments: &[String], query: &str) -> Result<(), String> {
        let named = self.segments.iter().zip(segments);
        let named = named.filter(|(segment, _)| is_parameter(segment));
        let named =
            named.map(|(segment, value)| (segment.trim_matches(['{', '}']), value.as_str()));
        let query: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        let query = query.iter().map(|(name, value)| (&**name, &**value));
        let mut value = json!({
            "path": self.typed("path", named),
            "query": self.typed("query", query),
        });
        if let Some((name, body)) = self.body(request)? {
            value[name] = body;
        }
        self.validator.validate(&value)
    }

    /// The body, and the name that the schema has for its kind.
    fn body(&self, request: &Request) -> Result<Option<(&'static str, Value)>, String> {
        let kind = request.header("content-type").unwrap_or_default();
        if kind.is_empty() && request.raw.is_empty() {
            return Ok(None);
        }
        if kind.split(';').next() == Some("application/json") {
            let body = serde_json::from_str(&request.raw).map_err(|error| error.to_string())?;
            return Ok(Some(("body", body)));
        }
        let fields = form_fields(kind, &request.raw).ok_or(format!("a body of type `{kind}`"))?;
        let (json, fields): (Vec<FormField>, Vec<FormField>) =
            fields.into_iter().partition(|field| field.name == "payload_json");
        let fields = fields.iter().map(|it| (it.name.as_str(), it.value.as_str()));
        let mut form = self.typed("form", fields);
        // The other members of a form with files (Discord, "Uploading Files").
        for field in json {
            let members: Map<String, Value> =
                serde_json::from_str(&field.value).map_err(|error| error.to_string())?;
            form.extend(members);
        }
        Ok(Some(("form", form.into())))
    }

    /// The values of texts, in the types that the schema of `part` has for them.
    fn typed<'p>(
        &self,
        part: &str,
        pairs: impl Iterator<Item = (&'p str, &'p str)>,
    ) -> Map<String, Value> {
        let types = &self.schema["properties"][part]["properties"];
        let typed = pairs.map(|(name, text)| {
            let value = match types[name]["type"].as_str() {
                Some("string") | None => text.into(),
                Some(_) => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
            };
            (name.to_owned(), value)
        });
        typed.collect()
    }
}

fn decode(segment: &str) -> String {
    let segment = segment.replace('+', "%2B");
    let mut decoded = form_urlencoded::parse(segment.as_bytes());
    decoded.next().map_or_else(String::new, |(segment, _)| segment.into_owned())
}

/// A field of a form.
pub(crate) struct FormField {
    pub(crate) name: String,
    /// The name of its file, if it is one.
    pub(crate) file_name: Option<String>,
    pub(crate) value: String,
}

/// The fields of a form. `None` if a body of this media type is none.
pub(crate) fn form_fields(media_type: &str, raw: &str) -> Option<Vec<FormField>> {
    if media_type == "application/x-www-form-urlencoded" {
        let fields = form_urlencoded::parse(raw.as_bytes()).map(|(name, value)| FormField {
            name: name.into_owned(),
            file_name: None,
            value: value.into_owned(),
        });
        return Some(fields.collect());
    }
    let (_, boundary) = media_type.split_once("boundary=")?;
    let boundary = format!("--{}", boundary.trim_matches('"'));
    let fields = raw.split(boundary.as_str()).filter_map(|part| {
        let (head, value) = part.split_once("\r\n\r\n")?;
        let parameter = |name: &str| {
            let (_, rest) = head.split_once(&format!("; {name}=\""))?;
            rest.split('"').next().map(str::to_owned)
        };
        Some(FormField {
            name: parameter("name")?,
            file_name: parameter("filename"),
            value: value.strip_suffix("\r\n")?.to_owned(),
        })
    });
    Some(fields.collect())
}
