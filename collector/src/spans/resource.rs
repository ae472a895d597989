//! What a process's spans are of: the service, the process, its machine and how it was traced.

use std::borrow::Cow;

use gputrace_wire::definition::{origin_of, rung};

use crate::model::definitions::Definitions;
use crate::spans::span::Value;
use crate::spans::trace_context::{Malformed, resource_attributes};

/// What whoever exports wants spans to be called; it wins over what the program was given.
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

/// A resource in the making; what is said first of a key stands.
#[derive(Debug, Default)]
struct Resource(Vec<(Cow<'static, str>, Value)>);

impl Resource {
    fn say(&mut self, key: impl Into<Cow<'static, str>>, value: Value) {
        let key = key.into();
        if !self.0.iter().any(|(known, _)| *known == key) {
            self.0.push((key, value));
        }
    }

    fn said(&mut self, key: &'static str, text: Option<&str>) {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.say(key, Value::text(text));
        }
    }
}

/// The resource of a process, as far as it is known; malformed attributes are left out.
pub fn resource(definitions: &Definitions, naming: &Naming) -> Vec<(Cow<'static, str>, Value)> {
    let mut resource = Resource::default();
    resource.said("service.name", naming.service.as_deref());
    for (key, value) in &naming.attributes {
        resource.say(key.clone(), Value::text(value));
    }
    resource.said("service.name", definitions.origin(origin_of::SERVICE_NAME));
    let given = definitions.origin(origin_of::RESOURCE_ATTRIBUTES).map(resource_attributes);
    for (key, value) in given.and_then(Result::ok).unwrap_or_default() {
        resource.say(key, Value::text(&value));
    }
    let process = definitions.process().unwrap_or_default();
    let command = process.command.first().map_or("", String::as_str);
    let program = command.rsplit('/').next().unwrap_or(command);
    resource
        .said("service.name", Some(if program.is_empty() { "unknown_service:gputrace" } else { program }));
    if process.pid != 0 {
        resource.say("process.pid", Value::number(process.pid));
        resource.say("process.parent_pid", Value::number(process.parent_pid));
    }
    resource.said("process.executable.name", Some(program));
    resource.said("process.command", Some(command));
    let arguments = process.command.iter().filter(|argument| !argument.is_empty());
    let arguments: Vec<_> = arguments.map(|argument| argument.as_str().into()).collect();
    if !arguments.is_empty() {
        resource.say("process.command_args", Value::Texts(arguments));
    }
    resource.said("host.name", definitions.origin(origin_of::HOST_NAME));
    resource.said("host.arch", definitions.origin(origin_of::HOST_ARCH).map(architecture));
    resource.say("os.type", Value::text("linux"));
    if process.driver_version > 0 {
        let (major, minor) = (process.driver_version / 1000, process.driver_version % 1000 / 10);
        resource.say("gpu.library.cuda", Value::text(&format!("{major}.{minor}")));
    }
    let has_times = definitions.has_device_records() && definitions.rung() != rung::HOOKS;
    let mut capabilities = vec!["host_calls".into()];
    capabilities.extend(has_times.then(|| "device_times".into()));
    resource.say("gpu.tracing.backends", Value::Texts(vec!["cuda".into()]));
    resource.say("gpu.tracing.capabilities", Value::Texts(capabilities));
    if definitions.simulated() {
        resource.say("gpu.tracing.simulated", Value::Flag(true));
    }
    resource.say("telemetry.sdk.name", Value::text("gputrace"));
    resource.say("telemetry.sdk.language", Value::text("rust"));
    resource.say("telemetry.sdk.version", Value::text(env!("CARGO_PKG_VERSION")));
    resource.0
}

/// The name that OpenTelemetry has for what the kernel calls otherwise.
fn architecture(machine: &str) -> &str {
    match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
