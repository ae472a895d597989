//! Why a request did not get through, in words, from what the layers below say.

use std::error::Error;
use std::io;

use crate::otlp::answer::{Answer, Kind, one_line};
use crate::otlp::{Protocol, grpc};

/// `is_known`: whether it has answered before, so that it speaks what it should.
pub fn explain(error: &hyper_util::client::legacy::Error, protocol: Protocol, is_known: bool) -> Answer {
    let is_doubtful = !is_known && !error.is_connect();
    let error: &(dyn Error + 'static) = error;
    let wrong = |why: String| Answer::Later { why, after: None, kind: Kind::Wrong };
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
        // It talks first, as HTTP/2 does.
        if protocol != Protocol::Grpc && text.contains("unexpected message from connection") {
            return wrong(format!("it does not speak HTTP there; {}", grpc::WRONG));
        }
        if protocol == Protocol::Grpc && text.contains("frame with invalid size") {
            return wrong(format!("it does not speak gRPC there; {}", grpc::WRONG));
        }
        // What stands above a reason often has it in its own text.
        texts.retain(|above| !above.contains(&text) && !above.starts_with("client error"));
        texts.push(text);
        next = error.source();
    }
    texts.dedup();
    let why = one_line(&texts.join(": "));
    Answer::away(if is_doubtful { format!("{why}; {}", grpc::WRONG) } else { why })
}

/// An I/O error's own source is its inside's, so that the inside is asked for by name.
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
