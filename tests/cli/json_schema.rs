//! Validates values against JSON schemas of others.

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

/// A compiled schema.
pub(crate) struct Validator {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Validator {
    pub(crate) fn new(schema: &Value) -> Self {
        let (mut compiler, mut schemas) = (Compiler::new(), Schemas::new());
        compiler
            .add_resource("schema.json", schema.clone())
            .expect("the schema has no address yet");
        let index = compiler.compile("schema.json", &mut schemas).expect("a schema is a schema");
        Self { schemas, index }
    }

    /// Validates `value`; the error says where it is invalid.
    pub(crate) fn validate(&self, value: &Value) -> Result<(), String> {
        let checked = self.schemas.validate(value, self.index);
        checked.map_err(|error| error.to_string())
    }
}
