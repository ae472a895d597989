//! The process's origin: the trace that it belongs to, its telemetry resource, and its machine. Spans need
//! all three, also when they are made from the trace on another machine.

use core::ffi::{CStr, c_char};

use gputrace_producer::session::Session;
use gputrace_producer::system;
use gputrace_wire::definition::{kind, origin_of};

use crate::process::settings;

/// The variables, and whether each may hold the same secrets as a program's arguments.
const VARIABLES: [(&CStr, u64, bool); 5] = [
    (c"TRACEPARENT", origin_of::TRACEPARENT, false),
    (c"TRACESTATE", origin_of::TRACESTATE, true),
    (c"BAGGAGE", origin_of::BAGGAGE, true),
    (c"OTEL_SERVICE_NAME", origin_of::SERVICE_NAME, false),
    (c"OTEL_RESOURCE_ATTRIBUTES", origin_of::RESOURCE_ATTRIBUTES, true),
];

/// The longest recorded value: the limit of baggage in its standard.
const VALUE_MAX_BYTES: usize = 8192;

pub fn define(session: &Session, redacted: bool) {
    for (name, of, may_be_private) in VARIABLES {
        let Some(value) = settings::get(name).map(CStr::to_bytes) else { continue };
        if redacted && may_be_private {
            continue;
        }
        if value.len() > VALUE_MAX_BYTES {
            session.notice(1, 0, b"a variable of OpenTelemetry's is longer than 8 KiB and was not read");
            continue;
        }
        session.define(kind::ORIGIN, &[of], value);
    }
    if let Some(machine) = system::uname() {
        session.define(kind::ORIGIN, &[origin_of::HOST_NAME], text(&machine.nodename));
        session.define(kind::ORIGIN, &[origin_of::HOST_ARCH], text(&machine.machine));
    }
}

/// The bytes before the NUL.
fn text(field: &[c_char; 65]) -> &[u8] {
    // SAFETY: chars are bytes, signed or not, and the field is whole.
    let bytes = unsafe { core::slice::from_raw_parts(field.as_ptr().cast::<u8>(), field.len()) };
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}
