//! Brings a control plane up and takes it down.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    api::Api,
    audit::{self, AuditEvent},
    config::{self, Account, User},
    error::{Error, ProbeError, Result, io},
    flags::{self, Ports},
    pki::{self, Pki},
    process::Process,
    stages,
    template::Template,
    tools::Binaries,
    workdir::Workdir,
};

/// Starts after a port was taken by somebody else in between.
const ATTEMPTS: usize = 5;
/// Generous: a busy machine is not a broken one, and a process that ends is noticed at once.
pub(crate) const READY_TIMEOUT: Duration = Duration::from_mins(4);
/// An API server that starts looks through all of its parts each time it is asked whether it is ready, for five seconds and longer.
pub(crate) const POLL: Duration = Duration::from_millis(100);
/// Below the range from which systems give out ports to outgoing connections, which would race with the listeners.
const PORTS: std::ops::Range<u16> = 15_000..32_000;

const ETCD: &str = "etcd";
const APISERVER: &str = "kube-apiserver";
const CONTROLLER_MANAGER: &str = "kube-controller-manager";
const SCHEDULER: &str = "kube-scheduler";
const KWOK: &str = "kwok";

/// How to start a plane. The default is what functional tests want.
#[derive(Clone, Debug)]
pub struct Options {
    /// Write an audit log, which [`Plane::audit`] reads. On by default.
    pub audit: bool,
    /// The policy of that log, instead of the one that logs everything that tests want to read.
    pub audit_policy: Option<String>,
    /// Have etcd write to the disk before it answers. Off by default; latencies that are published need it.
    pub fsync: bool,
    /// For very many objects: no limit of requests in flight, no audit log, and objects stored as JSON, so that they can
    /// be seeded into etcd directly. Off by default.
    pub scale: bool,
    /// What becomes of pods.
    pub pods: Pods,
    /// Users beside the administrator, the operator, `alice`, `bob` and `viewer`.
    pub users: Vec<User>,
    /// A folder, absent or empty, for all files of the plane. It is kept at the end; without it a temporary folder is
    /// made and removed.
    pub keep_dir: Option<PathBuf>,
    /// A folder of ready binaries instead of those that [`Binaries::locate`] finds.
    pub binaries: Option<PathBuf>,
    /// More arguments for the API server, such as [`HISTORY_ARGS`].
    pub apiserver_args: Vec<String>,
    /// More arguments for the controller manager.
    pub controller_manager_args: Vec<String>,
    /// What to start from, other than nothing. Objects are stored in it as its plane stored them.
    pub template: Option<Template>,
}

/// What becomes of the pods of a plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pods {
    /// They are scheduled, and do what their labels say. The default.
    #[default]
    Run,
    /// They stay `Pending`: there is neither a scheduler nor KWOK with its node. Such a plane starts sooner and takes less.
    Pending,
}

/// Arguments for the API server that keep every revision in etcd, readable as JSON.
pub const HISTORY_ARGS: [&str; 2] = ["--etcd-compaction-interval=0", "--storage-media-type=application/json"];

impl Default for Options {
    fn default() -> Self {
        Self {
            audit: true,
            audit_policy: None,
            fsync: false,
            scale: false,
            pods: Pods::default(),
            users: Vec::new(),
            keep_dir: None,
            binaries: None,
            apiserver_args: Vec::new(),
            controller_manager_args: Vec::new(),
            template: None,
        }
    }
}

/// A running control plane: etcd, API server, controller manager, and if [`Pods::Run`] scheduler, and KWOK with one fake node.
///
/// All of it ends with this value, and with the process, however that ends.
#[derive(Debug)]
pub struct Plane {
    // The order of the fields is the order of the end: the processes first, then their folder.
    processes: Vec<Process>,
    dir: Workdir,
    url: String,
    etcd_url: String,
    ca_pem: String,
    users: Vec<(String, String)>,
    kubectl: PathBuf,
    audit: Option<audit::Log>,
}

impl Plane {
    /// Starts a plane and returns when pods can be created in it: in a few seconds, or minutes if the binaries have to
    /// be built first.
    pub async fn start(options: Options) -> Result<Self> {
        let given = options.binaries.clone();
        let find = move || given.map_or_else(Binaries::locate, |dir| Binaries::in_dir(&dir));
        let binaries = tokio::task::spawn_blocking(find).await??;
        for _ in 1..ATTEMPTS {
            match Start::run(&options, &binaries, true).await {
                Err(error) if error.is_port_clash() => {}
                result => return result,
            }
        }
        Start::run(&options, &binaries, false).await
    }

    /// Address of the API server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Address of etcd's clients; it needs no credentials.
    pub fn etcd_url(&self) -> &str {
        &self.etcd_url
    }

    /// Certificate of the authority that signed the API server's.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The folder with all files of the plane; logs are in `log/`.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The kubeconfig of a member of `system:masters`.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.dir.kubeconfig(config::ADMIN)
    }

    /// The kubeconfig of a declared user.
    pub fn kubeconfig(&self, user: &str) -> Result<PathBuf> {
        self.token(user).map(|_| self.dir.kubeconfig(user))
    }

    /// A kubeconfig for a user who is not declared, such as a service account, by a token of theirs.
    pub fn write_kubeconfig(&self, user: &str, token: &str) -> Result<PathBuf> {
        let account = Account { user: User::new(user, [""; 0]), token: token.to_owned() };
        let path = self.dir.kubeconfig(user);
        let text = config::kubeconfig(&self.url, &self.ca_pem, &account);
        fs::write(&path, text).map_err(io(format!("write {}", path.display())))?;
        Ok(path)
    }

    /// The bearer token of a declared user.
    pub fn token(&self, user: &str) -> Result<&str> {
        let found = self.users.iter().find(|(name, _)| name == user);
        found.map(|(_, token)| token.as_str()).ok_or_else(|| Error::NoUser(user.to_owned()))
    }

    /// The kubectl binary.
    pub fn kubectl(&self) -> &Path {
        &self.kubectl
    }

    /// A kubectl command that speaks as `user` and leaves no cache behind.
    pub fn kubectl_as(&self, user: &str) -> Result<Command> {
        let mut command = Command::new(&self.kubectl);
        command.env("KUBECONFIG", self.kubeconfig(user)?).env("KUBECACHEDIR", self.dir.join("kubectl-cache"));
        Ok(command)
    }

    /// The audit log so far, in the order of its writing.
    pub fn audit(&self) -> Result<Vec<Arc<AuditEvent>>> {
        self.audit.as_ref().ok_or(Error::NoAudit)?.read()
    }

    /// An error if one of the processes has ended.
    pub fn check(&mut self) -> Result<()> {
        self.processes.iter_mut().try_for_each(Process::check)
    }

    /// Leaves the folder with the logs behind at the end, and tells where it is.
    pub fn keep(&mut self) -> &Path {
        self.dir.keep();
        self.dir.path()
    }

    /// Ends all processes politely, and removes the folder unless it is to be kept. Dropping does it less politely.
    pub async fn stop(mut self) -> Result<()> {
        Ok(tokio::task::spawn_blocking(move || self.end()).await?)
    }

    /// The same; others can start from what it had.
    pub async fn into_template(mut self) -> Result<Template> {
        tokio::task::spawn_blocking(move || {
            self.end();
            Template::of(&self.dir)
        })
        .await?
    }

    fn end(&mut self) {
        // The database last: an API server that misses it would not end before it is killed.
        let others = self.processes.split_off(self.processes.len().min(1));
        for mut group in [others, std::mem::take(&mut self.processes)] {
            group.iter_mut().for_each(Process::terminate);
            group.iter_mut().for_each(Process::wait);
        }
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        // All at once; each is waited for when it is dropped itself.
        self.processes.iter_mut().for_each(Process::kill);
    }
}

/// A start under way.
struct Start<'a> {
    options: &'a Options,
    binaries: &'a Binaries,
    // As in `Plane`, the processes end before their folder does.
    processes: Vec<Process>,
    dir: Workdir,
    ports: Ports,
    pki: Pki,
    accounts: Vec<Account>,
}

impl<'a> Start<'a> {
    /// One attempt. After a failure the folder is kept with the logs, unless there is to be another attempt.
    async fn run(options: &'a Options, binaries: &'a Binaries, again: bool) -> Result<Plane> {
        let mut start = Self {
            options,
            binaries,
            processes: Vec::new(),
            dir: Workdir::create(options.keep_dir.as_deref())?,
            ports: pick_ports()?,
            pki: options.template.as_ref().map_or_else(Pki::generate, Template::pki)?,
            accounts: config::accounts(&options.users)?,
        };
        start.write_files()?;
        let Err(error) = start.bring_up().await else { return Ok(start.finish()) };
        start.processes.clear();
        if again && error.is_port_clash() {
            start.dir.clear()?;
        } else {
            start.dir.keep();
        }
        Err(error)
    }

    fn finish(self) -> Plane {
        Plane {
            url: self.url(),
            etcd_url: self.etcd_url(),
            processes: self.processes,
            audit: (self.options.audit && !self.options.scale)
                .then(|| audit::Log::new(self.dir.join("audit.log"))),
            dir: self.dir,
            ca_pem: self.pki.ca_cert,
            users: self.accounts.into_iter().map(|account| (account.user.name, account.token)).collect(),
            kubectl: self.binaries.path("kubectl"),
        }
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.apiserver)
    }

    fn etcd_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.etcd)
    }

    fn write_files(&self) -> Result<()> {
        let (dir, pki) = (&self.dir, &self.pki);
        if let Some(template) = &self.options.template {
            template.fill(dir)?;
        }
        pki.write(dir)?;
        dir.write("tokens.csv", &config::token_file(&self.accounts))?;
        let audit_policy = self.options.audit_policy.as_deref();
        dir.write("audit-policy.yaml", audit_policy.unwrap_or(include_str!("audit-policy.yaml")))?;
        dir.write("kwok.yaml", &stages::config())?;
        for (index, account) in self.accounts.iter().enumerate() {
            let path = dir.kubeconfig(&account.user.name);
            if self.accounts[..index].iter().any(|earlier| dir.kubeconfig(&earlier.user.name) == path) {
                return Err(Error::DuplicateUser(account.user.name.clone()));
            }
            let text = config::kubeconfig(&self.url(), &pki.ca_cert, account);
            fs::write(&path, text).map_err(io(format!("write {}", path.display())))?;
        }
        Ok(())
    }

    /// etcd, then the API server, then all the others at once.
    async fn bring_up(&mut self) -> Result<()> {
        let (ports, options) = (self.ports, self.options);
        let token = self
            .accounts
            .iter()
            .find(|account| account.user.name == config::ADMIN)
            .map(|admin| &*admin.token);
        let api = Api::new(&self.pki.ca_cert, token.unwrap_or_default())?;
        let (server, etcd) = (self.url(), self.etcd_url());
        let get = |url: String| {
            let api = api.clone();
            move || {
                let (api, url) = (api.clone(), url.clone());
                async move { api.get(url).await }
            }
        };
        self.spawn(ETCD, flags::etcd(ports, &self.dir, options))?;
        self.until(ETCD, get(format!("{etcd}/health"))).await?;
        self.spawn(APISERVER, flags::apiserver(ports, &self.dir, options))?;
        self.until(APISERVER, get(format!("{server}/readyz"))).await?;

        self.spawn(CONTROLLER_MANAGER, flags::controller_manager(ports, &self.dir, options))?;
        let health = |port: u16| format!("https://127.0.0.1:{port}/healthz");
        if options.pods == Pods::Run {
            self.spawn(KWOK, flags::kwok(ports, &self.dir))?;
            self.spawn(SCHEDULER, flags::scheduler(ports, &self.dir))?;
            let (node, nodes) = (config::node(), format!("{server}/api/v1/nodes"));
            self.until(APISERVER, || api.create(nodes.clone(), &node)).await?;
            self.until(SCHEDULER, get(health(ports.scheduler))).await?;
            // What a pod in a fresh cluster waits for: its node, and below the account that admission wants.
            let node_url = format!("{nodes}/{}", config::NODE);
            self.until(KWOK, || async { node_ready(&api.get(node_url.clone()).await?) }).await?;
        }
        self.until(CONTROLLER_MANAGER, get(health(ports.controller_manager))).await?;
        let account = format!("{server}/api/v1/namespaces/default/serviceaccounts/default");
        self.until(CONTROLLER_MANAGER, get(account)).await?;
        Ok(())
    }

    fn spawn(&mut self, name: &'static str, args: Vec<String>) -> Result<()> {
        let (program, log) = (self.binaries.path(name), self.dir.log(name));
        self.processes.push(Process::spawn(name, &program, args, self.dir.path(), &log)?);
        Ok(())
    }

    /// Polls until the probe succeeds, which is the business of `process`; any process that ends, ends the wait.
    async fn until<T, F>(&mut self, process: &'static str, mut probe: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T, ProbeError>>,
    {
        let since = Instant::now();
        loop {
            let last = match probe().await {
                Ok(value) => return Ok(value),
                Err(last) => last,
            };
            for running in &mut self.processes {
                running.check()?;
                if since.elapsed() > READY_TIMEOUT && running.name() == process {
                    return Err(running.not_ready(READY_TIMEOUT, &last));
                }
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Ready, and without the taint that every node has at first.
fn node_ready(text: &str) -> Result<(), ProbeError> {
    let node: Value = serde_json::from_str(text).map_err(ProbeError::NoObject)?;
    let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    if !node["status"]["conditions"].as_array().is_some_and(|conditions| conditions.iter().any(ready)) {
        return Err(ProbeError::NodeNotReady);
    }
    match &node["spec"]["taints"] {
        Value::Null => Ok(()),
        taints => Err(ProbeError::Taints(taints.clone())),
    }
}

/// A free loopback port. It can be lost before it is used: then the start of a plane is tried again.
pub(crate) fn free_port() -> Result<(u16, TcpListener)> {
    loop {
        let port = PORTS.start + u16::from_le_bytes(pki::random()?) % (PORTS.end - PORTS.start);
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return Ok((port, listener));
        }
    }
}

/// As many as a plane has, all different.
fn pick_ports() -> Result<Ports> {
    let mut held = Vec::new();
    let mut next = || -> Result<u16> {
        let (port, listener) = free_port()?;
        // Held until all are found, so that none is found twice.
        held.push(listener);
        Ok(port)
    };
    Ok(Ports {
        etcd: next()?,
        etcd_peer: next()?,
        apiserver: next()?,
        controller_manager: next()?,
        scheduler: next()?,
        kwok: next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_can_be_spawned() {
        fn sendable(_: impl Send) {}
        sendable(Plane::start(Options::default()));
    }

    #[test]
    fn a_node_is_ready_without_its_taint() {
        let node = |taints| {
            let conditions = serde_json::json!([{"type": "Ready", "status": "True"}]);
            serde_json::json!({"spec": {"taints": taints}, "status": {"conditions": conditions}}).to_string()
        };
        assert!(node_ready(&node(Value::Null)).is_ok());
        assert!(node_ready(&node(serde_json::json!([{"key": "x"}]))).is_err());
        assert!(node_ready("{}").is_err());
    }
}
