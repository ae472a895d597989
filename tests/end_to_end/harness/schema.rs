//! The JSON for programs against the schemas that are published in docs/reference.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

/// Kinds of documents, and the file of each one's schema.
const FILES: [(&str, &str); 2] =
    [("gputrace-report", "report.schema.json"), ("gputrace-diff", "diff.schema.json")];

static PUBLISHED: LazyLock<(Schemas, [SchemaIndex; 2])> = LazyLock::new(|| {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    let indices = FILES.map(|(_, file)| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference").join(file);
        let schema: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let id = schema["$id"].as_str().unwrap().to_owned();
        compiler.add_resource(&id, schema).unwrap();
        compiler.compile(&id, &mut schemas).unwrap_or_else(|error| panic!("{file}: {error:#}"))
    });
    (schemas, indices)
});

/// What its schema forbids of a report or a comparison.
pub fn fault(document: &Value) -> Option<String> {
    let kind = FILES.iter().position(|(kind, _)| document["schema"] == *kind);
    let (schemas, indices) = &*PUBLISHED;
    let Some(kind) = kind else { return Some(format!("no schema is called {}", document["schema"])) };
    schemas.validate(document, indices[kind]).err().map(|error| format!("{error:#}"))
}

/// Fails if this is a report or a comparison that its schema forbids. Other text is none of its business.
#[track_caller]
pub fn check(text: &str) {
    let is_document =
        FILES.iter().any(|(kind, _)| text.starts_with(&format!("{{\n  \"schema\": \"{kind}\"")));
    // A text that was cut off is for the test to judge.
    if is_document && let Ok(document) = serde_json::from_str(text) {
        assert_eq!(fault(&document), None, "{text}");
    }
}
