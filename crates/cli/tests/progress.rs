//! What reads the cluster or writes to it says so while it takes longer than a second.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

use coppice_cli::Io;
use http::{Request, Response};
use jiff::Timestamp;
use kube::client::Body;
use tokio::sync::watch;

/// Where nothing is said, the answer comes after this time, so that the test ends.
const DEADLINE: Duration = Duration::from_secs(30);

/// Standard error, and whether it has said that something takes long.
struct Screen {
    text: Vec<u8>,
    said: watch::Sender<bool>,
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.text.extend_from_slice(bytes);
        self.said.send_replace(String::from_utf8_lossy(&self.text).contains("so far"));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What a command says on standard error whose API server answers nothing before it says something.
fn says(line: &str, stdin: &str) -> String {
    let (said, heard) = watch::channel(false);
    let service = tower::service_fn(move |_: Request<Body>| {
        let mut heard = heard.clone();
        async move {
            // What it finds does not matter here.
            let _ = tokio::time::timeout(DEADLINE, heard.wait_for(|said| *said)).await;
            Ok::<_, std::io::Error>(Response::builder().status(404).body(Body::empty()).unwrap())
        }
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = {
        let _inside = runtime.enter();
        kube::Client::new(service, "default")
    };
    let (mut out, mut err) = (Vec::new(), Screen { text: Vec::new(), said });
    let mut io = Io {
        stdin: &mut stdin.as_bytes(),
        out: &mut out,
        err: &mut err,
        now: Timestamp::UNIX_EPOCH,
        color: false,
        width: None,
        progress: true,
        client: Some(client),
    };
    coppice_cli::run(line.split(' ').map(OsString::from), &mut io);
    String::from_utf8(err.text).unwrap()
}

#[test]
fn what_reads_the_cluster_or_writes_to_it_says_that_it_takes_long() {
    let manager = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: ci}, spec: {selector: \
                   {names: ['ci-*']}, ttl: {after: 1h}}}";
    std::thread::scope(|scope| {
        for (line, expected) in [
            ("coppice list -A", "reading managers and records"),
            ("coppice list --deleted", "reading the records of deletions"),
            ("coppice doctor", "looking at the cluster"),
            ("coppice plan", "reading the cluster"),
            ("coppice preview -f -", "reading the cluster"),
            ("coppice explain web", "reading the namespace"),
            ("coppice simulate", "reading the cluster"),
            ("coppice hold web --for 1h", "asking who you are"),
            ("coppice extend web --by 1h", "asking who you are"),
            ("coppice release web", "changing the record of the namespace"),
            ("coppice release web/e2e", "changing the manager"),
            ("coppice wake web", "reading what is scaled down"),
            ("coppice wake web/e2e", "changing the manager"),
            ("coppice rearm web", "reading the managers"),
            ("coppice rearm web/e2e", "changing the manager"),
            ("coppice message web", "reading the cluster"),
            ("coppice acknowledge pods-2026-12-01T18:00:00Z", "changing the settings"),
            ("coppice tree", "reading the trees"),
            ("coppice tree adopt shop/shop-web", "reading the Subnamespace"),
            ("coppice tree delete shop/shop-web", "reading the Subnamespace"),
            ("coppice tree detach shop", "reading the tree"),
            ("coppice quota shop-web", "reading the namespace"),
            ("coppice create shop/shop-web --quota pods=5", "creating the Subnamespace"),
            ("coppice create shop/shop-web --dry-run", "creating the Subnamespace"),
            ("coppice give-back shop-web --amount pods=5", "reading the namespace"),
            (
                "coppice transfer shop-web --to shop-api --amount pods=5 --reason test",
                "reading the namespaces",
            ),
            ("coppice transfer approve shop-web/to-shop-api", "reading the transfer"),
            ("coppice cluster plan shop -n team", "reading the ManagedCluster"),
            ("coppice cluster drift shop -n team", "reading the ManagedCluster"),
        ] {
            scope.spawn(move || {
                let err = says(line, manager);
                assert!(err.starts_with(&format!("{expected}: 1 s so far ...\n")), "{line}: {err}");
            });
        }
    });
}
