//! The exporter's configuration, from `--otlp` and the OTEL_ variables. A malformed value is an error, since
//! data must not go elsewhere, or in another way, than the user asked for.

use std::path::PathBuf;
use std::time::Duration;

use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};

use crate::otlp::endpoint::{self, Endpoint, UrlForm};
use crate::otlp::headers;
use crate::otlp::tls::Files;
use crate::otlp::{Protocol, Signal};

/// The value of `--otlp`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// A URL for all signals, which wins over endpoints in variables.
    Url(String),
    /// `env`: the variables name the endpoints.
    Variables,
}

/// Where and how one signal is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignalTarget {
    pub signal: Signal,
    pub protocol: Protocol,
    pub endpoint: Endpoint,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub gzip: bool,
    /// Of one request.
    pub timeout: Duration,
    pub tls: Files,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExporterConfig {
    pub(super) targets: Vec<SignalTarget>,
    /// Messages about signals that are not sent.
    pub notes: Vec<String>,
}

const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait at the end of a program, and how much longer it is than a request's timeout.
const DRAIN_MAX: Duration = Duration::from_secs(5);
const DRAIN_MORE: Duration = Duration::from_millis(500);
const GRPC_PORT: u16 = 4317;

impl Asked {
    pub fn parse(text: &str) -> Asked {
        if text.trim() == "env" { Asked::Variables } else { Asked::Url(text.trim().to_owned()) }
    }
}

impl ExporterConfig {
    /// `variable` reads an environment variable.
    pub fn new(asked: &Asked, variable: impl Fn(&str) -> Option<String>) -> Result<ExporterConfig, String> {
        let variables = Variables { look_up: &variable };
        let mut config = ExporterConfig::default();
        if variables.is_true("OTEL_SDK_DISABLED") {
            config.notes.push("OTEL_SDK_DISABLED=true: nothing is sent".to_owned());
            return Ok(config);
        }
        for (signal, exporter) in
            [(Signal::Traces, "OTEL_TRACES_EXPORTER"), (Signal::Metrics, "OTEL_METRICS_EXPORTER")]
        {
            if variables.value(exporter).is_some_and(|value| value.trim().eq_ignore_ascii_case("none")) {
                config.notes.push(format!("{exporter}=none: no {} are sent", signal.items()));
                continue;
            }
            config.targets.push(target(asked, signal, &variables)?);
        }
        Ok(config)
    }

    pub fn sends(&self, signal: Signal) -> bool {
        self.targets.iter().any(|target| target.signal == signal)
    }

    /// Keeps that signal alone.
    pub fn only(mut self, signal: Signal) -> ExporterConfig {
        self.targets.retain(|target| target.signal == signal);
        self
    }

    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// How long the end of a program waits for the queue to be sent.
    pub fn drain_limit(&self) -> Duration {
        // So that an attempt in progress fails within the limit, and its error is reported.
        self.timeout().saturating_add(DRAIN_MORE).min(DRAIN_MAX)
    }

    /// The longest timeout of a request.
    pub fn timeout(&self) -> Duration {
        self.targets.iter().map(|target| target.timeout).max().unwrap_or(TIMEOUT)
    }
}

fn target(asked: &Asked, signal: Signal, variables: &Variables<'_>) -> Result<SignalTarget, String> {
    let own = |name: &str| variables.of_signal(signal, name);
    let named = own("PROTOCOL").map(|(name, value)| {
        Protocol::parse(&value)
            .ok_or_else(|| format!("{name}={value} is none of grpc, http/protobuf and http/json"))
    });
    let named = named.transpose()?;
    let from_variables = own("ENDPOINT");
    let (name, text, is_exact) = match (asked, &from_variables) {
        (Asked::Url(url), _) => ("--otlp".to_owned(), url.clone(), false),
        (Asked::Variables, Some((name, value))) => {
            (name.clone(), value.clone(), name != "OTEL_EXPORTER_OTLP_ENDPOINT")
        }
        (Asked::Variables, None) => {
            let port = if named == Some(Protocol::Grpc) { GRPC_PORT } else { 4318 };
            ("the default".to_owned(), format!("http://localhost:{port}"), false)
        }
    };
    // Without a named protocol, the usual port of gRPC decides.
    let protocol =
        named.unwrap_or(if port(&text) == Some(GRPC_PORT) { Protocol::Grpc } else { Protocol::HttpProtobuf });
    let form = if is_exact { UrlForm::Exact(&text) } else { UrlForm::Base(&text) };
    let insecure = own("INSECURE").is_some_and(|(_, value)| value.trim().eq_ignore_ascii_case("true"));
    let endpoint = Endpoint::parse(form, signal, protocol, insecure)
        .map_err(|why| format!("{name} {}: {why}", shown(&text)))?;
    let mut headers = match own("HEADERS") {
        Some((name, value)) => headers::parse(&value).map_err(|why| format!("{name}: {why}"))?,
        None => Vec::new(),
    };
    if let Some(authorization) = &endpoint.authorization
        && !headers.iter().any(|(name, _)| name == AUTHORIZATION)
    {
        headers.push((AUTHORIZATION, authorization.clone()));
    }
    let gzip = match own("COMPRESSION") {
        None => false,
        Some((_, value)) if value.trim() == "none" => false,
        Some((_, value)) if value.trim() == "gzip" => true,
        Some((name, value)) => return Err(format!("{name}={value} is neither gzip nor none")),
    };
    let timeout = match own("TIMEOUT") {
        None => TIMEOUT,
        Some((name, value)) => match value.trim().parse::<u64>() {
            Ok(ms) if ms > 0 => Duration::from_millis(ms),
            _ => return Err(format!("{name}={value} is no number of milliseconds")),
        },
    };
    let file = |name| own(name).map(|(name, value)| (name, PathBuf::from(value)));
    let tls = Files {
        roots: file("CERTIFICATE"),
        certificate: file("CLIENT_CERTIFICATE"),
        key: file("CLIENT_KEY"),
    };
    if let (Some((name, _)), None) | (None, Some((name, _))) = (&tls.certificate, &tls.key) {
        return Err(format!("{name} is set alone: the client's certificate and its key belong together"));
    }
    Ok(SignalTarget { signal, protocol, endpoint, headers, gzip, timeout, tls })
}

fn port(url: &str) -> Option<u16> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next()?;
    authority.rsplit_once(':')?.1.parse().ok()
}

/// The scheme and host of a malformed URL, for messages: without secrets, and without the host if the URL is
/// ambiguous.
fn shown(url: &str) -> String {
    let (scheme, rest) = endpoint::split_scheme(url.trim());
    let scheme = scheme.map(|scheme| format!("{scheme}://")).unwrap_or_default();
    if endpoint::is_ambiguous(rest) {
        return format!("{scheme}…");
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    // What is no number may be the password of a user whose host was forgotten.
    let host = match host.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') && port.parse::<u32>().is_err() => host,
        _ => host,
    };
    format!("{scheme}{host}")
}

struct Variables<'a> {
    look_up: &'a dyn Fn(&str) -> Option<String>,
}

impl Variables<'_> {
    /// The variable's value; an empty one counts as unset.
    fn value(&self, name: &str) -> Option<String> {
        (self.look_up)(name).filter(|value| !value.trim().is_empty())
    }

    fn is_true(&self, name: &str) -> bool {
        self.value(name).is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
    }

    /// The name and value of the signal's own variable, else of the one for all signals.
    fn of_signal(&self, signal: Signal, name: &str) -> Option<(String, String)> {
        let own = match signal {
            Signal::Traces => "TRACES_",
            Signal::Metrics => "METRICS_",
        };
        [own, ""].iter().find_map(|signal| {
            let name = format!("OTEL_EXPORTER_OTLP_{signal}{name}");
            self.value(&name).map(|value| (name, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(asked: &str, variables: &[(&str, &str)]) -> Result<ExporterConfig, String> {
        ExporterConfig::new(&Asked::parse(asked), |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn shown(asked: &str, variables: &[(&str, &str)]) -> Vec<String> {
        let targets = config(asked, variables).unwrap().targets;
        let shown = |target: &SignalTarget| format!("{} {}", target.protocol.name(), target.endpoint.uri);
        targets.iter().map(shown).collect()
    }

    #[test]
    fn protocol_is_the_named_one_or_that_of_the_port() {
        let url = "http://h:4318";
        assert_eq!(shown(url, &[])[0], "http/protobuf http://h:4318/v1/traces");
        assert_eq!(
            shown(url, &[("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")])[1],
            "http/json http://h:4318/v1/metrics"
        );
        assert!(shown("http://h:4317", &[])[0].starts_with("grpc http://h:4317/opentelemetry"));
        let said = [("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")];
        assert_eq!(shown("http://h:4317", &said)[0], "http/protobuf http://h:4317/v1/traces");
        assert!(shown("http://h:4317", &said)[1].starts_with("grpc "), "the variable is for traces alone");
    }

    #[test]
    fn signal_variables_win_and_empty_is_unset() {
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4318/base"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://one/own"),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", " "),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=1"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "b=2"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "none"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "250"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/all.pem"),
            ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "/one.pem"),
        ];
        let targets = config("env", &variables).unwrap().targets;
        let [traces, metrics] = &targets[..] else { panic!("{targets:?}") };
        assert_eq!(traces.endpoint.uri, "https://one/own");
        assert_eq!(metrics.endpoint.uri, "http://all:4318/base/v1/metrics");
        assert_eq!((traces.headers[0].0.as_str(), metrics.headers[0].0.as_str()), ("b", "a"));
        assert_eq!((traces.gzip, metrics.gzip), (false, true));
        assert_eq!((traces.timeout, metrics.timeout), (Duration::from_millis(250), TIMEOUT));
        assert!(traces.tls.roots.as_ref().is_some_and(|(_, path)| path.ends_with("one.pem")));
        assert!(metrics.tls.roots.as_ref().is_some_and(|(_, path)| path.ends_with("all.pem")));
        // A URL on the command line is for both signals.
        assert_eq!(shown("http://other:1", &variables)[0], "http/protobuf http://other:1/v1/traces");
    }

    #[test]
    fn default_is_this_machine() {
        assert_eq!(shown("env", &[])[0], "http/protobuf http://localhost:4318/v1/traces");
        let grpc = shown("env", &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
        assert!(grpc[0].starts_with("grpc http://localhost:4317/"));
    }

    #[test]
    fn disabled_signals_are_not_sent_and_reported() {
        let off = config("http://h:1", &[("OTEL_SDK_DISABLED", "true")]).unwrap();
        assert!(off.is_empty());
        assert_eq!(off.notes, ["OTEL_SDK_DISABLED=true: nothing is sent"]);
        let one = config("http://h:1", &[("OTEL_METRICS_EXPORTER", "none")]).unwrap();
        assert!(one.sends(Signal::Traces) && !one.sends(Signal::Metrics));
        assert_eq!(one.notes, ["OTEL_METRICS_EXPORTER=none: no data points are sent"]);
        let other = config("http://h:1", &[("OTEL_TRACES_EXPORTER", "console")]).unwrap();
        assert!(other.sends(Signal::Traces), "that is for the program's own");
    }

    #[test]
    fn malformed_settings_are_errors_without_secrets() {
        for (asked, variable, value, why) in [
            ("https://me:secret@h:x/p?secret", "", "", "--otlp https://h: its port is none"),
            ("me:secret@h", "", "", "--otlp h: it does not begin with http:// or https://"),
            (
                "http://h",
                "OTEL_EXPORTER_OTLP_PROTOCOL",
                "kafka",
                "is none of grpc, http/protobuf and http/json",
            ),
            (
                "http://h",
                "OTEL_EXPORTER_OTLP_HEADERS",
                "k=%zzsecret",
                "OTEL_EXPORTER_OTLP_HEADERS: the value of k",
            ),
            ("http://h", "OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "is no number of milliseconds"),
            ("http://h", "OTEL_EXPORTER_OTLP_COMPRESSION", "zip", "is neither gzip nor none"),
            ("http://h", "OTEL_EXPORTER_OTLP_CLIENT_KEY", "/k", "belong together"),
            (
                "env",
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                "h:1",
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT h:1: it does",
            ),
        ] {
            let error = config(asked, &[(variable, value)]).unwrap_err();
            assert!(error.contains(why), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    /// A delimiter in a password can make parts of it look like a host, a port, a path or a scheme.
    #[test]
    fn messages_have_no_part_of_a_password() {
        let ambiguous = "a / ? or # in a password is written %2F";
        for (url, why) in [
            ("http://me:sec/ret@h:4318", ambiguous),
            ("http://me:sec?ret@h:4318", ambiguous),
            ("http://me:sec#ret@h:4318", ambiguous),
            ("http://me:12/ret@h:4318", ambiguous),
            ("http://sec/ret@h", ambiguous),
            ("http://me:se@c/ret@h:4318", ambiguous),
            ("http://h:4318/p?from=me@ret", ambiguous),
            ("https://me:sec/ret@[::1]:4317/p", ambiguous),
            ("http://me:sec@ret@h:0", "http://h:0: "),
            ("http://me:sec ret@h:4318", "http://h:4318: "),
            ("http://me:sec\\ret@h:4318", "http://h:4318: "),
            ("http://me:sec%zzret@h:4318", "http://h:4318: "),
            ("http://me:secret", "http://me: its port is none"),
            ("http://h:0/sec?ret", "http://h:0: its port is none"),
            ("grpc://me:secret@h:4317", "grpc://h:4317: grpc:// is not"),
            ("grpc://me:sec/ret@h:4317", "grpc://…: "),
            ("me:sec://ret@h:4318", "does not begin with http:// or https://"),
            ("me:sec/ret@h:4318", "does not begin with http:// or https://"),
        ] {
            let of_variable = [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url)];
            for error in [config(url, &[]), config("env", &of_variable)].map(Result::unwrap_err) {
                assert!(error.contains(why), "{url}: {error}");
                assert!(!error.contains("sec") && !error.contains("ret"), "{url}: {error}");
            }
        }
        let grpc = [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
        for url in ["me:sec/ret@h:4317", "me:12/ret@h:4317", "me:sec?ret@h", "grpc://me:sec/ret@h"] {
            let error = config(url, &grpc).unwrap_err();
            assert!(!error.contains("sec") && !error.contains("ret"), "{url}: {error}");
        }
    }
}
