//! Raw QUIC between two threads of this process, each with an endpoint and a runtime of its own, on loopback: what satin's
//! network is compared with.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::mpsc,
    thread,
};

use anyhow::{Context, Result};
use quinn::Connection;
use satin::net::Credential;

/// Gives one side of a connection to `serve`, on a thread of its own, and the other to `ask`; returns what that found.
///
/// # Errors
/// If there is no connection, or one of `ask`.
pub fn connect<T>(
    credential: &Credential,
    serve: impl AsyncFnOnce(Connection) -> Result<()> + Send + 'static,
    ask: impl AsyncFnOnce(&Connection) -> Result<T>,
) -> Result<T> {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
    };
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server_config = quinn::ServerConfig::with_crypto(credential.server());
    let (tell, told) = mpsc::channel();
    let server = thread::spawn(move || -> Result<()> {
        runtime()?.block_on(async {
            let endpoint = quinn::Endpoint::server(server_config, local)?;
            tell.send(endpoint.local_addr()?)?;
            let connection = endpoint.accept().await.context("no connection")?.await?;
            serve(connection).await
        })
    });
    let addr = told.recv().context("the server did not start")?;
    let client_config = quinn::ClientConfig::new(credential.client());
    let found = runtime()?.block_on(async {
        let mut endpoint = quinn::Endpoint::client(local)?;
        endpoint.set_default_client_config(client_config);
        let connection = endpoint.connect(addr, "satin")?.await?;
        let found = ask(&connection).await?;
        connection.close(0u32.into(), b"bye");
        endpoint.wait_idle().await;
        anyhow::Ok(found)
    })?;
    // Its error is that the connection is closed.
    let _ = server.join();
    Ok(found)
}
