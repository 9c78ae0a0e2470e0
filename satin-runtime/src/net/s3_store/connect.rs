//! The way to the server: settings, and a client for HTTP whose TLS uses the same cryptography as everything else.

use std::{io, sync::Arc};

use object_store::{
    ClientConfigKey, ClientOptions, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey},
    client::{HttpClient, HttpConnector},
    path::Path,
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_platform_verifier::BuilderVerifierExt;

use super::failure::Reach;
use crate::{
    net::limits,
    stable::{StableError, StoreUrl},
};

/// The client for that bucket, as the variables say.
pub(super) fn connect(
    bucket: &str,
    prefix: &str,
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<(AmazonS3, Reach), StableError> {
    let mut builder = AmazonS3Builder::new();
    for (name, value) in variables {
        // As `AmazonS3Builder::from_env` does it; but a variable that is empty is not set.
        if name.starts_with("AWS_")
            && !value.is_empty()
            && let Ok(key) = name.to_ascii_lowercase().parse()
        {
            builder = builder.with_config(key, value);
        }
    }
    let setting = |key| builder.get_config_value(&key);
    let endpoint = setting(AmazonS3ConfigKey::S3Endpoint).or(setting(AmazonS3ConfigKey::Endpoint));
    let may_be_plain = setting(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    let url = StoreUrl::S3 {
        bucket: bucket.into(),
        prefix: prefix.into(),
    };
    let reach = Reach::new(url, endpoint.clone());
    if endpoint.is_some_and(|endpoint| endpoint.starts_with("http:"))
        && may_be_plain.as_deref() != Some("true")
    {
        let text = "AWS_ENDPOINT_URL is a URL without encryption: use https://, or set AWS_ALLOW_HTTP=true if the network is to \
                    be trusted";
        return Err(reach.io_error("", invalid(text)));
    }
    Path::parse(prefix).map_err(|error| reach.io_error("", invalid(error.to_string())))?;
    let client = builder
        .with_bucket_name(bucket)
        .with_http_connector(Connector)
        .with_retry(RetryConfig {
            max_retries: limits::S3_RETRIES,
            retry_timeout: limits::S3_RETRY,
            ..RetryConfig::default()
        })
        .build();
    match client {
        Ok(client) => Ok((client, reach)),
        Err(error) => Err(reach.explain("", super::Failure::Object(error))),
    }
}

fn invalid(text: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Makes clients for HTTP. The one that `object_store` makes itself would need a provider of cryptography for the whole
/// process, which is the program's to choose.
#[derive(Debug)]
struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let failed = |source| object_store::Error::Generic {
            store: "TLS",
            source,
        };
        let may_be_plain = options.get_config_value(&ClientConfigKey::AllowHttp);
        let may_be_plain = may_be_plain.as_deref() == Some("true");
        let tls = tls(may_be_plain).map_err(|error| failed(error.into()))?;
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .https_only(!may_be_plain)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(limits::STORE_CONNECT)
            .pool_idle_timeout(limits::S3_IDLE)
            .build();
        let client = client.map_err(|error| failed(error.into()))?;
        Ok(HttpClient::new(client))
    }
}

/// TLS with the roots that this machine trusts. A machine without any can use servers without encryption.
fn tls(may_be_plain: bool) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let versions = || {
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()
    };
    let config = match versions()?.with_platform_verifier() {
        Ok(config) => config,
        Err(_) if may_be_plain => versions()?.with_root_certificates(RootCertStore::empty()),
        Err(error) => return Err(error),
    };
    Ok(config.with_no_client_auth())
}
