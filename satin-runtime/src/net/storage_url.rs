//! The store that a URL names.

use std::{io, sync::Arc};

use super::{
    credential::Credential,
    store_client::{RemoteStore, StoreThread},
};
use crate::stable::{
    Stable, StableError, StoreUrl,
    file::Directory,
    servers::{Member, Servers},
};

/// Opens the store that a URL names. Servers are not called before they are needed.
///
/// # Errors
/// The directory cannot be used, this build cannot use such a store, or the system gives no thread.
pub fn open(url: &StoreUrl, credential: &Credential) -> Result<Arc<dyn Stable>, StableError> {
    let failed = |source| StableError::Failed {
        path: url.to_string(),
        source,
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
        StoreUrl::S3 { .. } => {
            let text = "S3 is not built yet: use a directory (file:PATH) or servers (satin://HOST:PORT, see `satin store`)";
            Err(failed(io::Error::new(io::ErrorKind::Unsupported, text)))
        }
    }
}
