//! A way to the API server that can be cut.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Passes connections on to the API server; dropped or cut, all of them break and no new one is taken.
pub struct Proxy {
    address: SocketAddr,
    target: String,
    serving: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy to the API server at this URL, on a free port.
    pub async fn start(url: &str) -> anyhow::Result<Self> {
        let target = url.trim_start_matches("https://").trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut proxy = Self { address: listener.local_addr()?, target, serving: None };
        proxy.serve(listener);
        Ok(proxy)
    }

    fn serve(&mut self, listener: TcpListener) {
        let target = self.target.clone();
        self.serving = Some(tokio::spawn(async move {
            // Aborted with this task, and so are the connections in it.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((mut from, _)) = listener.accept().await {
                let target = target.clone();
                connections.spawn(async move {
                    if let Ok(mut to) = TcpStream::connect(target).await {
                        let _ = copy_bidirectional(&mut from, &mut to).await;
                    }
                });
            }
        }));
    }

    /// A copy of a kubeconfig that goes through the proxy.
    pub fn kubeconfig(&self, original: &Path) -> anyhow::Result<PathBuf> {
        let text = std::fs::read_to_string(original)?;
        let path = original.with_extension(format!("{}.yaml", self.address.port()));
        let through = text.replace(&self.target, &self.address.to_string());
        anyhow::ensure!(through != text, "the kubeconfig does not name {}", self.target);
        std::fs::write(&path, through)?;
        Ok(path)
    }

    /// Breaks every connection and takes no new one.
    pub async fn cut(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            let _ = serving.await;
        }
    }

    /// Takes connections again, on the same port.
    pub async fn heal(&mut self) -> anyhow::Result<()> {
        let listener = TcpListener::bind(self.address).await.context("the port is taken")?;
        self.serve(listener);
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
        }
    }
}
