//! Endpoint URLs by OTLP's rules. No message shows a part of a URL that may be secret.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;
use hyper::header::HeaderValue;

use crate::otlp::{Protocol, Signal, headers};

/// A URL from the user, and how its path is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UrlForm<'a> {
    /// A URL for all signals: over HTTP the signal's path is appended.
    Base(&'a str),
    /// A URL for one signal, used as it is.
    Exact(&'a str),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The URL to which requests are posted.
    pub uri: Uri,
    /// From a user name and password in the URL.
    pub authorization: Option<HeaderValue>,
}

impl Endpoint {
    pub fn parse(
        form: UrlForm<'_>,
        signal: Signal,
        protocol: Protocol,
        insecure: bool,
    ) -> Result<Endpoint, String> {
        let (UrlForm::Base(asked) | UrlForm::Exact(asked)) = form;
        let asked = asked.trim();
        let with_scheme;
        let (scheme, rest) = split_scheme(asked);
        let text = match scheme {
            Some("http" | "https") => asked,
            Some(scheme) => return Err(format!("{scheme}:// is not http:// or https://")),
            None if protocol == Protocol::Grpc && !asked.is_empty() => {
                with_scheme = format!("{}://{asked}", if insecure { "http" } else { "https" });
                &with_scheme
            }
            None => return Err("it does not begin with http:// or https://".to_owned()),
        };
        if is_ambiguous(rest) {
            // Parsed literally, a part of the password would be looked up as a host, and shown.
            return Err("there is an @ behind a / ? or #\n  \
                hint: a / ? or # in a password is written %2F, %3F or %23, and an @ elsewhere %40"
                .to_owned());
        }
        let uri: Uri = text.parse().map_err(|_| "it is not a URL".to_owned())?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err("it is not a URL".to_owned());
        };
        if authority.host().is_empty() {
            return Err("it has no host".to_owned());
        }
        let has_port = authority.as_str().rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let is_userinfo = authority.as_str().rsplit_once('@').is_some_and(|(_, host)| !host.contains(':'));
        if has_port && !is_userinfo && authority.port_u16().is_none_or(|port| port == 0) {
            return Err("its port is none from 1 to 65535".to_owned());
        }
        let (userinfo, host) = match authority.as_str().rsplit_once('@') {
            Some((userinfo, host)) => (Some(userinfo), host),
            None => (None, authority.as_str()),
        };
        let authorization = userinfo.map(basic).transpose()?;
        let path = path(form, signal, protocol, &uri);
        let uri = Uri::builder().scheme(scheme).authority(host).path_and_query(path).build();
        Ok(Endpoint { uri: uri.map_err(|_| "it is not a URL".to_owned())?, authorization })
    }

    pub fn is_tls(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }

    /// The URL for messages: without user, password and query.
    pub fn shown(&self, protocol: Protocol) -> String {
        let host = self.uri.authority().map_or("", |authority| authority.as_str());
        let path = if protocol == Protocol::Grpc { "" } else { self.uri.path() };
        format!("{}://{host}{path}", self.uri.scheme_str().unwrap_or("http"))
    }
}

/// Splits a URL at `://` into scheme and rest; no scheme if the text before it is none.
pub(super) fn split_scheme(url: &str) -> (Option<&str>, &str) {
    let is_scheme = |text: &str| {
        let mut bytes = text.bytes();
        bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    match url.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme), rest),
        _ => (None, url),
    }
}

/// Whether an @ follows the first delimiter, so that the end of user and password is uncertain.
pub(super) fn is_ambiguous(rest: &str) -> bool {
    rest.find(['/', '?', '#']).is_some_and(|end| rest[end..].contains('@'))
}

fn path(form: UrlForm<'_>, signal: Signal, protocol: Protocol, uri: &Uri) -> String {
    let below = match signal {
        Signal::Traces => "v1/traces",
        Signal::Metrics => "v1/metrics",
    };
    if protocol == Protocol::Grpc {
        let service = match signal {
            Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        };
        return service.to_owned();
    }
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    match form {
        UrlForm::Exact(_) => format!("{}{query}", uri.path()),
        UrlForm::Base(_) => {
            // The user may have given the full URL of one signal.
            let base = uri.path().trim_end_matches('/');
            let base =
                ["/v1/traces", "/v1/metrics"].iter().find_map(|end| base.strip_suffix(end)).unwrap_or(base);
            format!("{base}/{below}{query}")
        }
    }
}

fn basic(userinfo: &str) -> Result<HeaderValue, String> {
    let decoded = headers::decode(userinfo).ok_or("its user name or password is malformed")?;
    let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(decoded)))
        .map_err(|_| "its user name or password is malformed")?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(form: UrlForm<'_>, signal: Signal, protocol: Protocol) -> String {
        Endpoint::parse(form, signal, protocol, false).unwrap().uri.to_string()
    }

    #[test]
    fn base_gets_the_signals_path_and_an_exact_one_is_used_as_it_is() {
        use Protocol::{Grpc, HttpProtobuf};
        use Signal::{Metrics, Traces};
        use UrlForm::{Base, Exact};
        for (form, signal, protocol, expected) in [
            (Base("http://h:4318"), Traces, HttpProtobuf, "http://h:4318/v1/traces"),
            (Base("http://h:4318/"), Metrics, HttpProtobuf, "http://h:4318/v1/metrics"),
            (Base("https://h/otlp/?key=1"), Traces, HttpProtobuf, "https://h/otlp/v1/traces?key=1"),
            (Base("https://h/otlp/v1/traces"), Metrics, HttpProtobuf, "https://h/otlp/v1/metrics"),
            (Exact("http://h:1/own"), Traces, HttpProtobuf, "http://h:1/own"),
            (Exact("http://[::1]:1"), Traces, HttpProtobuf, "http://[::1]:1/"),
            (
                Exact("http://h:4317/x"),
                Metrics,
                Grpc,
                "http://h:4317/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            ),
        ] {
            assert_eq!(uri(form, signal, protocol), expected);
        }
    }

    #[test]
    fn grpc_needs_no_scheme() {
        for (insecure, scheme) in [(true, "http"), (false, "https")] {
            let endpoint =
                Endpoint::parse(UrlForm::Base("h:4317"), Signal::Traces, Protocol::Grpc, insecure).unwrap();
            assert_eq!(endpoint.shown(Protocol::Grpc), format!("{scheme}://h:4317"));
        }
    }

    #[test]
    fn users_become_a_header_and_are_not_shown() {
        let url = "https://me:pass%40word@h:1/x?token=secret";
        let endpoint =
            Endpoint::parse(UrlForm::Exact(url), Signal::Traces, Protocol::HttpProtobuf, false).unwrap();
        assert_eq!(endpoint.shown(Protocol::HttpProtobuf), "https://h:1/x");
        assert_eq!(endpoint.uri.to_string(), "https://h:1/x?token=secret");
        assert_eq!(endpoint.authorization.unwrap(), "Basic bWU6cGFzc0B3b3Jk");
    }

    #[test]
    fn malformed_urls_are_errors() {
        for (text, why) in [
            ("h:4318", "it does not begin with http:// or https://"),
            ("", "it does not begin with http:// or https://"),
            ("ftp://h", "ftp:// is not http:// or https://"),
            ("http://", "it is not a URL"),
            ("http://h h", "it is not a URL"),
            ("http://h:99999", "its port is none from 1 to 65535"),
            ("http://h:0", "its port is none from 1 to 65535"),
            ("http://:80", "it has no host"),
        ] {
            let error = Endpoint::parse(UrlForm::Base(text), Signal::Traces, Protocol::HttpProtobuf, false);
            assert_eq!(error.unwrap_err(), why, "{text}");
        }
    }
}
