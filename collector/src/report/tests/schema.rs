//! The published schemas of the JSON, made of the structs that are serialized, so that they cannot differ.

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use super::golden;
use crate::otlp::ExportStatus;
use crate::report::diff::{self, DiffReport};
use crate::report::json::{self, WholeReport};

/// The schema of what `T` is serialized as, whose fields `schema` and `version` have these values.
fn published<T: JsonSchema>(name: &str, version: u32) -> Value {
    let mut made =
        SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>();
    RecursiveTransform(for_programs).transform(&mut made);
    let mut root = Map::new();
    root.extend(made.remove("$schema").map(|draft| ("$schema".to_owned(), draft)));
    root.insert("$id".to_owned(), format!("urn:{name}:{version}").into());
    root.insert("title".to_owned(), name.into());
    made.remove("title");
    root.extend(made.ensure_object().clone());
    root["properties"]["schema"] = json!({ "const": name });
    root["properties"]["version"] = json!({ "const": version });
    Value::Object(root)
}

/// Takes out what is Rust's alone.
fn for_programs(schema: &mut Schema) {
    // Formats such as `uint64` are no part of the standard, and strict validators refuse them.
    schema.remove("format");
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace("`None`", "null").replace('\n', " ");
    }
    let required = schema.get("required").cloned().unwrap_or_default();
    let Some(Value::Object(fields)) = schema.get_mut("properties") else { return };
    // A field that is absent where there is nothing is never null.
    for (_, field) in fields.iter_mut().filter(|(name, _)| !names(&required).contains(&name.as_str())) {
        for (key, null) in [("type", json!("null")), ("anyOf", json!({ "type": "null" }))] {
            if let Some(Value::Array(either)) = field.get_mut(key) {
                either.retain(|one| *one != null);
            }
        }
    }
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[track_caller]
fn is_published(schema: &Value, file: &str) {
    golden(&format!("../../docs/reference/{file}"), &format!("{schema:#}\n"));
}

#[test]
fn schema_of_the_report_is_published() {
    let schema = published::<WholeReport<'_, ExportStatus>>(json::SCHEMA, json::VERSION);
    let required = names(&schema["required"]);
    let properties = schema["properties"].as_object().unwrap();
    for always in ["schema", "wall_ns", "launches", "whole_graphs", "notices"] {
        assert!(required.contains(&always), "{always} is in every report");
    }
    for at_times in ["recording", "part", "findings", "steps", "otlp"] {
        assert!(
            properties.contains_key(at_times) && !required.contains(&at_times),
            "{at_times} may be absent"
        );
    }
    for other in ["counts", "paused", "graph_level", "closed_in_order"] {
        assert!(!properties.contains_key(other), "{other} is no key of the JSON");
    }
    // What is unknown is null; what is absent is not.
    let kernel = &schema["$defs"]["KernelReport"];
    assert_eq!(names(&kernel["properties"]["total_ns"]["type"]), ["integer", "null"]);
    assert!(names(&kernel["required"]).contains(&"total_ns"));
    assert_eq!(properties["part"]["anyOf"], json!([{ "$ref": "#/$defs/PartReport" }]));
    is_published(&schema, "report.schema.json");
}

#[test]
fn schema_of_a_comparison_is_published() {
    is_published(&published::<DiffReport>(diff::SCHEMA, diff::VERSION), "diff.schema.json");
}
