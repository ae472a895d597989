//! Explains to the user why a request failed, from the errors of hyper, rustls and the system.

use std::error::Error;
use std::io;

use crate::otlp::delivery::{Delivery, RetryCause, one_line};
use crate::otlp::{Protocol, grpc};

/// `is_known`: whether the back end has answered before, so that the protocol is the right one.
pub fn explain(error: &hyper_util::client::legacy::Error, protocol: Protocol, is_known: bool) -> Delivery {
    let is_doubtful = !is_known && !error.is_connect();
    let error: &(dyn Error + 'static) = error;
    let wrong = |why: String| Delivery::RetryLater { why, after: None, cause: RetryCause::WrongService };
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = tls_error(error) {
            return wrong(explain_tls(tls));
        }
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse)
            && protocol != Protocol::Grpc
        {
            return wrong(format!("it does not speak HTTP there; {}", grpc::WRONG));
        }
        let text = match error.downcast_ref::<io::Error>() {
            Some(error) => error.to_string().split(" (os error").next().unwrap_or_default().to_lowercase(),
            None => error.to_string(),
        };
        // The server sends first, as HTTP/2 servers do.
        if protocol != Protocol::Grpc && text.contains("unexpected message from connection") {
            return wrong(format!("it does not speak HTTP there; {}", grpc::WRONG));
        }
        if protocol == Protocol::Grpc && text.contains("frame with invalid size") {
            return wrong(format!("it does not speak gRPC there; {}", grpc::WRONG));
        }
        // An error's text often contains that of its source.
        texts.retain(|above| !above.contains(&text) && !above.starts_with("client error"));
        texts.push(text);
        next = error.source();
    }
    texts.dedup();
    let why = one_line(&texts.join(": "));
    Delivery::unreachable(if is_doubtful { format!("{why}; {}", grpc::WRONG) } else { why })
}

/// Finds a TLS error inside I/O errors. `source` skips the error inside an I/O error, so `get_ref` is used.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    let nested = inside.and_then(|inside| inside.downcast_ref::<io::Error>()).and_then(io::Error::get_ref);
    error.downcast_ref().or_else(|| inside?.downcast_ref()).or_else(|| nested?.downcast_ref())
}

fn explain_tls(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer) => {
            "its certificate is by an authority that is not trusted here; name a file with the authority's in \
             OTEL_EXPORTER_OTLP_CERTIFICATE"
                .to_owned()
        }
        rustls::Error::InvalidCertificate(_) => one_line(&format!("its certificate is not accepted: {error}")),
        rustls::Error::InvalidMessage(_) => {
            "it does not speak TLS there; a URL that begins with http:// goes without".to_owned()
        }
        _ => one_line(&format!("no TLS connection: {error}")),
    }
}
