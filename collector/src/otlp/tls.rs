//! TLS settings: trusted authorities and the client's own certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// PEM files, each with the variable that named it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Files {
    /// Authorities to trust instead of the system's.
    pub roots: Option<(String, PathBuf)>,
    /// The client's own certificate; `key` is its key.
    pub certificate: Option<(String, PathBuf)>,
    pub key: Option<(String, PathBuf)>,
}

pub fn config(files: &Files) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("no TLS: {error}"))?
        .with_root_certificates(roots(files)?);
    let (Some(certificate), Some(key)) = (&files.certificate, &files.key) else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates(certificate)?;
    let (name, path) = key;
    let key = PrivateKeyDer::from_pem_file(path).map_err(|error| unreadable(name, path, "key", &error))?;
    builder.with_client_auth_cert(chain, key).map_err(|error| {
        format!("{name} {}: the key does not do for the certificate: {error}", path.display())
    })
}

fn roots(files: &Files) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(named) = &files.roots {
        for certificate in certificates(named)? {
            let (name, path) = named;
            roots.add(certificate).map_err(|error| {
                format!("{name} {}: a certificate in it is malformed: {error}", path.display())
            })?;
        }
        return Ok(roots);
    }
    let found = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(
            "this machine has no certificates to trust: install its ca-certificates, or name a file of \
                    them in OTEL_EXPORTER_OTLP_CERTIFICATE"
                .to_owned(),
        );
    }
    Ok(roots)
}

fn certificates((name, path): &(String, PathBuf)) -> Result<Vec<CertificateDer<'static>>, String> {
    let unreadable = |error| unreadable(name, path, "certificate", &error);
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .map_err(unreadable)?
        .map(|each| each.map_err(unreadable))
        .collect();
    let found = found?;
    if found.is_empty() {
        return Err(format!("{name} {}: there is no certificate in it", path.display()));
    }
    Ok(found)
}

fn unreadable(name: &str, path: &Path, what: &str, error: &rustls::pki_types::pem::Error) -> String {
    use rustls::pki_types::pem::Error;
    let why = match error {
        Error::NoItemsFound => format!("there is no {what} in it"),
        Error::Io(error) => error.to_string().split(" (os error").next().unwrap_or_default().to_lowercase(),
        _ => "it is no PEM file".to_owned(),
    };
    format!("{name} {}: {why}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_files_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let named = |file: &str, text: &str| {
            let path = folder.path().join(file);
            std::fs::write(&path, text).unwrap();
            Some(("VARIABLE".to_owned(), path))
        };
        let error_of = |files: Files| config(&files).map(drop).unwrap_err();
        let missing = Some(("VARIABLE".to_owned(), folder.path().join("missing.pem")));
        let missing_error = error_of(Files { roots: missing, ..Files::default() });
        assert!(missing_error.contains("missing.pem: no such file"), "{missing_error}");
        let empty_error = error_of(Files { roots: named("empty.pem", ""), ..Files::default() });
        assert!(empty_error.contains("empty.pem: there is no certificate in it"), "{empty_error}");
        let broken = "-----BEGIN CERTIFICATE-----\nnot base64!\n-----END CERTIFICATE-----\n";
        let broken_error = error_of(Files { roots: named("broken.pem", broken), ..Files::default() });
        assert!(broken_error.contains("broken.pem: it is no PEM file"), "{broken_error}");
        let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let garbage_error = error_of(Files { roots: named("garbage.pem", garbage), ..Files::default() });
        assert!(garbage_error.contains("garbage.pem: a certificate in it is malformed"), "{garbage_error}");
    }
}
