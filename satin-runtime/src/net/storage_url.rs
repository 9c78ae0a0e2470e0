//! The store that a URL names.

use std::sync::Arc;

use super::{
    credential::Credential,
    store_client::{RemoteStore, StoreThread},
};
use crate::stable::{
    Stable, StableError, StoreUrl,
    file::Directory,
    servers::{Member, Servers},
};

/// Opens the store that a URL names. Servers are not called before they are needed; S3 is asked once, which may take
/// [`STORE_CALL`](super::limits::STORE_CALL) if it does not answer.
///
/// # Errors
/// The directory or the bucket cannot be used, this build cannot use such a store, or the system gives no thread.
pub fn open(url: &StoreUrl, credential: &Credential) -> Result<Arc<dyn Stable>, StableError> {
    let failed = |error| StableError::Failed {
        path: url.to_string(),
        error,
    };
    match url {
        StoreUrl::File(path) => Ok(Arc::new(Directory::open(path)?)),
        StoreUrl::Servers { servers, copies } => {
            let thread = StoreThread::start().map_err(failed)?;
            let member = |name: &String| Member {
                name: name.clone(),
                store: Arc::new(RemoteStore::new(name, credential, &thread)),
            };
            let members = servers.iter().map(member).collect();
            Ok(Arc::new(Servers::new(members, *copies)))
        }
        #[cfg(feature = "s3")]
        StoreUrl::S3 { bucket, prefix } => {
            let variables = std::env::vars_os();
            let texts = variables.filter_map(|(name, value)| {
                Some((name.into_string().ok()?, value.into_string().ok()?))
            });
            let store = super::s3_store::S3Store::open(bucket, prefix, texts)?;
            Ok(Arc::new(store))
        }
        #[cfg(not(feature = "s3"))]
        StoreUrl::S3 { .. } => {
            let text = "this executable is built without S3: a program needs `satin = { features = [\"s3\"] }` in its Cargo.toml, \
                        the command `satin` needs `cargo install satin-cli --features s3`; or use a directory (file:PATH) or servers \
                        (satin://HOST:PORT)";
            Err(failed(std::io::Error::new(
                std::io::ErrorKind::Unsupported,
                text,
            )))
        }
    }
}
