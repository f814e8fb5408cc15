//! Command lines of the processes.

use std::path::Path;

use crate::{config, pki::PROXY, plane::Options, workdir::Workdir};

/// Loopback ports of one plane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) etcd: u16,
    pub(crate) etcd_peer: u16,
    pub(crate) apiserver: u16,
    pub(crate) controller_manager: u16,
    pub(crate) scheduler: u16,
    pub(crate) kwok: u16,
}

/// What the product relies on, and nothing that needs a cloud or real nodes. An unknown name ends the process.
const CONTROLLERS: [&str; 21] = [
    "certificatesigningrequest-approving",
    "certificatesigningrequest-signing",
    "clusterrole-aggregation",
    "cronjob",
    "daemonset",
    "deployment",
    "disruption",
    "garbage-collector",
    "horizontal-pod-autoscaler",
    "job",
    "namespace",
    "node-lifecycle", // also takes away the taint that every new node gets
    "pod-garbage-collector",
    "replicaset",
    "resourcequota",
    "root-ca-certificate-publisher",
    "serviceaccount",
    "serviceaccount-token",
    "statefulset",
    "ttl-after-finished",
    "validatingadmissionpolicy-status",
];

/// Collects `--name=value` arguments.
#[derive(Default)]
struct Args(Vec<String>);

impl Args {
    fn set(&mut self, name: &str, value: impl std::fmt::Display) -> &mut Self {
        self.0.push(format!("--{name}={value}"));
        self
    }

    fn path(&mut self, name: &str, path: &Path) -> &mut Self {
        self.set(name, path.display())
    }
}

pub(crate) fn etcd(ports: Ports, dir: &Workdir, options: &Options) -> Vec<String> {
    let client = format!("http://127.0.0.1:{}", ports.etcd);
    let peer = format!("http://127.0.0.1:{}", ports.etcd_peer);
    let mut args = Args::default();
    args.set("name", "plane")
        .path("data-dir", &dir.join("etcd"))
        .set("listen-client-urls", &client)
        .set("advertise-client-urls", &client)
        .set("listen-peer-urls", &peer)
        .set("initial-advertise-peer-urls", &peer)
        .set("initial-cluster", format!("plane={peer}"))
        // A single member elects itself: the defaults only make it wait for nobody.
        .set("heartbeat-interval", 50)
        .set("election-timeout", 250)
        .set("quota-backend-bytes", 8_u64 << 30)
        .set("unsafe-no-fsync", !options.fsync);
    args.0
}

pub(crate) fn apiserver(ports: Ports, dir: &Workdir, options: &Options) -> Vec<String> {
    let mut args = Args::default();
    args.set("etcd-servers", format!("http://127.0.0.1:{}", ports.etcd))
        .set("bind-address", "127.0.0.1")
        .set("secure-port", ports.apiserver)
        .path("tls-cert-file", &dir.join("pki/server.crt"))
        .path("tls-private-key-file", &dir.join("pki/server.key"))
        .path("client-ca-file", &dir.join("pki/ca.crt"))
        // As whom it calls the API server of a garden, and how that knows the user. Without the first three the other processes fill their
        // logs with complaints.
        .path("requestheader-client-ca-file", &dir.join("pki/ca.crt"))
        .set("requestheader-allowed-names", PROXY)
        .set("requestheader-username-headers", "X-Remote-User")
        .set("requestheader-group-headers", "X-Remote-Group")
        .set("requestheader-extra-headers-prefix", "X-Remote-Extra-")
        .path("proxy-client-cert-file", &dir.join("pki/proxy.crt"))
        .path("proxy-client-key-file", &dir.join("pki/proxy.key"))
        .path("token-auth-file", &dir.join("tokens.csv"))
        .set("authorization-mode", "RBAC")
        .set("service-account-issuer", "https://kubernetes.default.svc")
        .path("service-account-key-file", &dir.join("pki/account.pub"))
        .path("service-account-signing-key-file", &dir.join("pki/account.key"))
        .set("service-cluster-ip-range", "10.0.0.0/24")
        .set("endpoint-reconciler-type", "none")
        // Nobody reads how many objects of each kind there are, and to ask takes time of each plane that only waits.
        .set("etcd-count-metric-poll-period", 0)
        .set("etcd-db-metric-poll-interval", 0)
        .set("allow-privileged", true)
        .set("event-ttl", "10m");
    if options.audit && !options.scale {
        args.path("audit-policy-file", &dir.join("audit-policy.yaml"))
            .path("audit-log-path", &dir.join("audit.log"))
            // An event is in the log before its request is answered; and the log is never rotated away from a reader.
            .set("audit-log-mode", "blocking")
            .set("audit-log-maxsize", 1_000_000);
    }
    if options.scale {
        args.set("enable-priority-and-fairness", false)
            .set("max-requests-inflight", 0)
            .set("max-mutating-requests-inflight", 0)
            .set("storage-media-type", "application/json");
    }
    args.0.extend(options.apiserver_args.iter().cloned());
    args.0
}

pub(crate) fn controller_manager(ports: Ports, dir: &Workdir, options: &Options) -> Vec<String> {
    let kubeconfig = dir.kubeconfig(config::CONTROLLER_MANAGER);
    let controllers = CONTROLLERS.map(|name| format!("{name}-controller")).join(",");
    let mut args = component(ports.controller_manager, dir, &kubeconfig);
    args.path("root-ca-file", &dir.join("pki/ca.crt"))
        .path("service-account-private-key-file", &dir.join("pki/account.key"))
        .path("cluster-signing-cert-file", &dir.join("pki/ca.crt"))
        .path("cluster-signing-key-file", &dir.join("pki/ca.key"))
        .set("use-service-account-credentials", true)
        .set("kube-api-qps", 200)
        .set("kube-api-burst", 400)
        // A busy machine may be late with the lease; no test wants its pods evicted for that.
        .set("node-monitor-grace-period", "10m")
        .set("controllers", controllers);
    args.0.extend(options.controller_manager_args.iter().cloned());
    args.0
}

pub(crate) fn scheduler(ports: Ports, dir: &Workdir) -> Vec<String> {
    let mut args = component(ports.scheduler, dir, &dir.kubeconfig(config::SCHEDULER));
    args.set("kube-api-qps", 200).set("kube-api-burst", 400);
    args.0
}

/// What the controller manager and the scheduler have in common.
fn component(port: u16, dir: &Workdir, kubeconfig: &Path) -> Args {
    let mut args = Args::default();
    args.path("kubeconfig", kubeconfig)
        .path("authentication-kubeconfig", kubeconfig)
        .path("authorization-kubeconfig", kubeconfig)
        .set("leader-elect", false)
        .set("bind-address", "127.0.0.1")
        .set("secure-port", port)
        .path("tls-cert-file", &dir.join("pki/server.crt"))
        .path("tls-private-key-file", &dir.join("pki/server.key"));
    args
}

pub(crate) fn kwok(ports: Ports, dir: &Workdir) -> Vec<String> {
    let mut args = Args::default();
    args.path("kubeconfig", &dir.kubeconfig(config::KWOK))
        .path("config", &dir.join("kwok.yaml"))
        .set("manage-all-nodes", false)
        .set("manage-nodes-with-annotation-selector", "kwok.x-k8s.io/node=fake")
        .set("node-lease-duration-seconds", 40)
        .set("server-address", format!("127.0.0.1:{}", ports.kwok));
    args.0
}
