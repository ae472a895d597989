//! The OpenTelemetry resource of a process: service, process, host, and how it was traced.

use std::borrow::Cow;

use gputrace_wire::definition::{origin_of, rung};

use crate::model::definitions::Definitions;
use crate::spans::span::Value;
use crate::spans::trace_context::{Malformed, resource_attributes};

/// The service name and resource attributes of the exporting user; they win over the program's own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Naming {
    service: Option<String>,
    attributes: Vec<(String, String)>,
}

impl Naming {
    /// From the values of OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES.
    pub fn new(service: Option<String>, attributes: Option<&str>) -> Result<Naming, Malformed> {
        let attributes = attributes.map(resource_attributes).transpose()?.unwrap_or_default();
        Ok(Naming { service: service.filter(|name| !name.is_empty()), attributes })
    }
}

/// A resource being built; the first value of a key is kept.
#[derive(Debug, Default)]
struct Resource(Vec<(Cow<'static, str>, Value)>);

impl Resource {
    fn add(&mut self, key: impl Into<Cow<'static, str>>, value: Value) {
        let key = key.into();
        if !self.0.iter().any(|(known, _)| *known == key) {
            self.0.push((key, value));
        }
    }

    fn add_text(&mut self, key: &'static str, text: Option<&str>) {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.add(key, Value::text(text));
        }
    }
}

/// The attributes of a process's resource; unknown and malformed ones are left out.
pub fn resource(definitions: &Definitions, naming: &Naming) -> Vec<(Cow<'static, str>, Value)> {
    let mut resource = Resource::default();
    resource.add_text("service.name", naming.service.as_deref());
    for (key, value) in &naming.attributes {
        resource.add(key.clone(), Value::text(value));
    }
    resource.add_text("service.name", definitions.origin(origin_of::SERVICE_NAME));
    let given = definitions.origin(origin_of::RESOURCE_ATTRIBUTES).map(resource_attributes);
    for (key, value) in given.and_then(Result::ok).unwrap_or_default() {
        resource.add(key, Value::text(&value));
    }
    let process = definitions.process().unwrap_or_default();
    let command = process.command.first().map_or("", String::as_str);
    let program = command.rsplit('/').next().unwrap_or(command);
    resource.add_text(
        "service.name",
        Some(if program.is_empty() { "unknown_service:gputrace" } else { program }),
    );
    if process.pid != 0 {
        resource.add("process.pid", Value::number(process.pid));
        resource.add("process.parent_pid", Value::number(process.parent_pid));
    }
    resource.add_text("process.executable.name", Some(program));
    resource.add_text("process.command", Some(command));
    let arguments = process.command.iter().filter(|argument| !argument.is_empty());
    let arguments: Vec<_> = arguments.map(|argument| argument.as_str().into()).collect();
    if !arguments.is_empty() {
        resource.add("process.command_args", Value::Texts(arguments));
    }
    resource.add_text("host.name", definitions.origin(origin_of::HOST_NAME));
    resource.add_text("host.arch", definitions.origin(origin_of::HOST_ARCH).map(architecture));
    resource.add("os.type", Value::text("linux"));
    if process.driver_version > 0 {
        let (major, minor) = (process.driver_version / 1000, process.driver_version % 1000 / 10);
        resource.add("gpu.library.cuda", Value::text(&format!("{major}.{minor}")));
    }
    let has_times = definitions.has_device_records() && definitions.rung() != rung::HOOKS;
    let mut capabilities = vec!["host_calls".into()];
    capabilities.extend(has_times.then(|| "device_times".into()));
    resource.add("gpu.tracing.backends", Value::Texts(vec!["cuda".into()]));
    resource.add("gpu.tracing.capabilities", Value::Texts(capabilities));
    if definitions.simulated() {
        resource.add("gpu.tracing.simulated", Value::Flag(true));
    }
    resource.add("telemetry.sdk.name", Value::text("gputrace"));
    resource.add("telemetry.sdk.language", Value::text("rust"));
    resource.add("telemetry.sdk.version", Value::text(env!("CARGO_PKG_VERSION")));
    resource.0
}

/// OpenTelemetry's name of an architecture.
fn architecture(machine: &str) -> &str {
    match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
