//! Finds the binaries of the control plane, or builds them once from the Go modules under `tools/`; and the kinds of Cluster API.

use std::{
    env,
    fs::{self, File, TryLockError},
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    definitions,
    error::{Error, Result, io},
};

/// Environment variable that names a folder of ready binaries; Go is not needed then.
pub const BIN_VARIABLE: &str = "COPPICE_PLANE_BIN";
/// Environment variable that names Coppice's cache folder, in place of `coppice` in the user's.
pub const CACHE_VARIABLE: &str = "COPPICE_CACHE";
/// Environment variable that names the folder `tools` of the source tree.
pub const TOOLS_VARIABLE: &str = "COPPICE_TOOLS";

/// Build settings that give the same binary for every user and machine.
const GO_ENV: [(&str, &str); 4] = [
    ("CGO_ENABLED", "0"),
    ("GOTOOLCHAIN", "local"),
    ("GOWORK", "off"),
    ("GOFLAGS", "-trimpath -buildvcs=false"),
];

/// The package of a module that is itself the tool, and not only names it in `go.mod`.
const OWN_PACKAGE: &str = ".";
/// The folder of a module that is no program: its `CustomResourceDefinitions` are what is used of it.
const DEFINITIONS: &str = "config/crd/bases";

/// One binary and where it comes from.
struct Tool {
    name: &'static str,
    /// Folder of the Go module below `tools/`.
    module: &'static str,
    package: &'static str,
    /// Build tags, separated by commas.
    tags: &'static str,
    /// Shown while it builds: with cold caches on two cores.
    takes: &'static str,
}

const fn tool(name: &'static str, module: &'static str, package: &'static str, takes: &'static str) -> Tool {
    Tool { name, module, package, tags: "", takes }
}

/// Everything that a plane runs. The API server comes first of its module: the others reuse most of what it compiled.
const PLANE: [Tool; 6] = [
    tool("etcd", "etcd", "go.etcd.io/etcd/server/v3", "half a minute"),
    tool("kube-apiserver", "kube", "k8s.io/kubernetes/cmd/kube-apiserver", "2 to 5 minutes"),
    tool("kube-controller-manager", "kube", "k8s.io/kubernetes/cmd/kube-controller-manager", "half a minute"),
    tool("kube-scheduler", "kube", "k8s.io/kubernetes/cmd/kube-scheduler", "a few seconds"),
    tool("kubectl", "kube", "k8s.io/kubernetes/cmd/kubectl", "15 seconds"),
    tool("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok", "about 1 minute"),
];

const HELM: [Tool; 1] = [tool("helm", "helm", "helm.sh/helm/v4/cmd/helm", "about 1 minute")];

/// Without the discovery of targets at cloud providers, which is more than half of it.
const PROMTOOL: [Tool; 1] = [Tool {
    tags: "remove_all_sd",
    ..tool("promtool", "promtool", "github.com/prometheus/prometheus/cmd/promtool", "2 to 3 minutes")
}];

const MAIL_SERVER: [Tool; 1] = [tool("mail-server", "mail", OWN_PACKAGE, "a few seconds")];

/// Gardener's API server, and what makes authorities that it reads.
const GARDENER: [Tool; 2] = [
    tool(
        "gardener-apiserver",
        "gardener",
        "github.com/gardener/gardener/cmd/gardener-apiserver",
        "3 to 4 minutes",
    ),
    tool("shoot-authority", "gardener", OWN_PACKAGE, "a few seconds"),
];

/// No binary: the definitions of Cluster API's kinds, in one file.
const CLUSTER_API: [Tool; 1] = [tool("cluster-api.json", "cluster-api", DEFINITIONS, "a few seconds")];

/// A folder with the six binaries of a plane: etcd, the four of Kubernetes, and KWOK.
#[derive(Clone, Debug)]
pub struct Binaries {
    dir: PathBuf,
}

impl Binaries {
    /// The folder that `COPPICE_PLANE_BIN` names, or the cache, which is filled first if need be: that takes minutes
    /// and prints a line for each binary on standard error. Processes that come at the same time wait for the first.
    pub fn locate() -> Result<Self> {
        match env::var_os(BIN_VARIABLE).filter(|dir| !dir.is_empty()) {
            Some(dir) => Self::in_dir(Path::new(&dir)),
            None => Ok(Self { dir: cached(&PLANE)? }),
        }
    }

    /// Ready binaries in `dir`; all six must be there.
    pub fn in_dir(dir: &Path) -> Result<Self> {
        // Absolute, because the processes run in folders of their own.
        let dir = std::path::absolute(dir).map_err(io(format!("find {}", dir.display())))?;
        match PLANE.iter().find(|tool| !dir.join(tool.name).is_file()) {
            Some(tool) => Err(Error::NoBinary { tool: tool.name, dir }),
            None => Ok(Self { dir }),
        }
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of one binary.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// The Helm binary for checks of the chart: from `COPPICE_PLANE_BIN` if it is there, else built once into the cache.
pub fn helm() -> Result<PathBuf> {
    single(&HELM)
}

/// Prometheus's `promtool` for tests of alert rules: from `COPPICE_PLANE_BIN` if it is there, else built once into the cache.
pub fn promtool() -> Result<PathBuf> {
    single(&PROMTOOL)
}

/// The mail server of tests and the demo, which `tools/mail` is: from `COPPICE_PLANE_BIN` if it is there, else built once
/// into the cache.
pub fn mail_server() -> Result<PathBuf> {
    single(&MAIL_SERVER)
}

/// The folder of `gardener-apiserver` and `shoot-authority`, for tests with Shoots: `COPPICE_PLANE_BIN` if they are there, else the cache, which
/// they are built into once.
pub fn gardener() -> Result<PathBuf> {
    folder(&GARDENER)
}

/// A file with the `CustomResourceDefinitions` of Cluster API, a `List` in JSON, for tests with its clusters: from `COPPICE_PLANE_BIN` if it is
/// there, else made once in the cache. Each has the version `v1beta2` alone, and no conversion.
pub fn cluster_api() -> Result<PathBuf> {
    single(&CLUSTER_API)
}

fn single(tool: &[Tool; 1]) -> Result<PathBuf> {
    Ok(folder(tool)?.join(tool[0].name))
}

fn folder(tools: &[Tool]) -> Result<PathBuf> {
    let has_all = |dir: &PathBuf| tools.iter().all(|tool| dir.join(tool.name).is_file());
    let ready = env::var_os(BIN_VARIABLE).map(PathBuf::from).filter(has_all);
    ready.map_or_else(|| cached(tools), Ok)
}

/// The cache folder of a set of tools, built if it is not there.
fn cached(tools: &[Tool]) -> Result<PathBuf> {
    let source = source_dir()?;
    let go = go_version(&source, tools)?;
    let cache = cache_dir()?;
    let dir = cache.join(key(&source, tools, &go)?);
    if dir.is_dir() {
        return Ok(dir);
    }
    fs::create_dir_all(&cache).map_err(io(format!("create {}", cache.display())))?;
    let _lock = lock(&cache.join("build.lock"))?;
    // Another process may have built it while this one waited.
    if !dir.is_dir() {
        build(&source, tools, &dir)?;
    }
    Ok(dir)
}

/// Builds into a folder beside `dir` and renames it, so that `dir` is complete or absent.
fn build(source: &Path, tools: &[Tool], dir: &Path) -> Result<()> {
    let partial = dir.with_extension("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial).map_err(io(format!("remove {}", partial.display())))?;
    }
    fs::create_dir_all(&partial).map_err(io(format!("create {}", partial.display())))?;
    for (index, tool) in tools.iter().enumerate() {
        eprintln!("building {} ({} of {}, takes {}) ...", tool.name, index + 1, tools.len(), tool.takes);
        let (module, file) = (source.join(tool.module), partial.join(tool.name));
        if tool.package == DEFINITIONS {
            let found = definitions::list(&downloaded(&module, tool)?.join(DEFINITIONS))?;
            fs::write(&file, found.to_string()).map_err(io(format!("write {}", file.display())))?;
            continue;
        }
        let output = go(&module)
            .args(["build", "-tags", tool.tags, "-ldflags", &linker_flags(source, tool)?, "-o"])
            .arg(file)
            .arg(tool.package)
            .output()
            .map_err(io("run go build"))?;
        succeeded(tool, &output)?;
    }
    fs::rename(&partial, dir).map_err(io(format!("rename {} to {}", partial.display(), dir.display())))
}

/// The folder in Go's cache of the one module that this one requires, which Go compares with `go.sum`.
fn downloaded(module: &Path, tool: &Tool) -> Result<PathBuf> {
    let output = go(module).args(["mod", "download", "-json"]).output().map_err(io("run go mod download"))?;
    succeeded(tool, &output)?;
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    found["Dir"].as_str().map(PathBuf::from).ok_or_else(|| Error::Module {
        file: module.join("go.mod"),
        missing: "it does not require one module".to_owned(),
    })
}

/// An error with the end of what Go printed, unless it has done what it was to do. Of a download it says on standard output what went wrong.
fn succeeded(tool: &Tool, output: &Output) -> Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let said = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
    let text = String::from_utf8_lossy(said);
    let lines: Vec<&str> = text.lines().collect();
    let output = lines[lines.len().saturating_sub(20)..].join("\n");
    Err(Error::Build { tool: tool.name, output })
}

/// Held until dropped; the system frees it when the process dies.
fn lock(path: &Path) -> Result<File> {
    let action = || format!("lock {}", path.display());
    let file = File::create(path).map_err(io(action()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            eprintln!("waiting for another process that builds the control plane ...");
            file.lock().map_err(io(action()))?;
        }
        Err(TryLockError::Error(error)) => return Err(io(action())(error)),
    }
    Ok(file)
}

/// Names the folder by all that decides its content.
fn key(source: &Path, tools: &[Tool], go: &str) -> Result<String> {
    let mut hash = Sha256::new();
    hash.update(go);
    for (name, value) in GO_ENV {
        hash.update(format!("{name}={value}\n"));
    }
    let mut last = "";
    for tool in tools {
        hash.update(format!("{} {} {}\n", tool.name, tool.package, linker_flags(source, tool)?));
        if !tool.tags.is_empty() {
            hash.update(format!("tags {}\n", tool.tags));
        }
        if tool.module != last {
            hash.update(read(&source.join(tool.module).join("go.mod"))?);
            hash.update(read(&source.join(tool.module).join("go.sum"))?);
            last = tool.module;
        }
        if tool.package == DEFINITIONS {
            hash.update(include_str!("definitions.rs"));
        }
        if tool.package == OWN_PACKAGE {
            for file in go_files(&source.join(tool.module))? {
                hash.update(read(&file)?);
            }
        }
    }
    let mut digest = format!("{:x}", hash.finalize());
    digest.truncate(12);
    Ok(digest)
}

/// The Go files of a folder, in the order of their names.
fn go_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let list = || io(format!("list {}", dir.display()));
    let mut files = fs::read_dir(dir)
        .map_err(list())?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(list())?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "go"));
    files.sort();
    Ok(files)
}

/// Without a version in the binary, `/version` answers with a placeholder that clients fail to parse.
fn linker_flags(source: &Path, tool: &Tool) -> Result<String> {
    let file = source.join(tool.module).join("go.mod");
    let text = read(&file)?;
    let version = |module: &str| {
        let found = text.lines().find_map(|line| {
            let mut words = line.trim().trim_start_matches("require ").split_whitespace();
            (words.next() == Some(module)).then(|| words.next().map(str::to_owned)).flatten()
        });
        found.ok_or_else(|| Error::Module {
            file: file.clone(),
            missing: format!("it does not require {module}"),
        })
    };
    match tool.module {
        "kube" => {
            let version = version("k8s.io/kubernetes")?;
            let mut numbers = version.trim_start_matches('v').split('.');
            let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
            let base = "k8s.io/component-base/version";
            Ok(format!(
                "-s -w -X {base}.gitVersion={version} -X {base}.gitMajor={major} -X {base}.gitMinor={minor} \
                 -X {base}.gitTreeState=clean -X k8s.io/client-go/pkg/version.gitVersion={version}"
            ))
        }
        _ => Ok("-s -w".to_owned()),
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(io(format!("read {}", path.display())))
}

/// The version of the Go toolchain, if it is new enough for every module.
fn go_version(source: &Path, tools: &[Tool]) -> Result<String> {
    let mut wanted = String::new();
    for tool in tools {
        let text = read(&source.join(tool.module).join("go.mod"))?;
        let needs = text.lines().find_map(|line| line.strip_prefix("go ")).unwrap_or_default().trim();
        if numbers(needs) > numbers(&wanted) {
            needs.clone_into(&mut wanted);
        }
    }
    let missing = |found: String| Error::Go { wanted: wanted.clone(), found, variable: BIN_VARIABLE };
    // Outside of any module: an old Go refuses to say its version inside one that it cannot read.
    let output = match go(&env::temp_dir()).args(["env", "GOVERSION"]).output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(missing("none was found".to_owned()));
        }
        Err(error) => return Err(io("run go")(error)),
    };
    let version = String::from_utf8_lossy(&output.stdout).trim().trim_start_matches("go").to_owned();
    if numbers(&version) >= numbers(&wanted) {
        Ok(version)
    } else {
        Err(missing(format!("found {}", if version.is_empty() { "an unknown version" } else { &version })))
    }
}

/// `1.26.8` as numbers that compare.
fn numbers(version: &str) -> Vec<u32> {
    let number =
        |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
    version.split('.').map(number).collect()
}

fn go(dir: &Path) -> Command {
    let mut command = Command::new("go");
    command.current_dir(dir).envs(GO_ENV);
    command
}

/// The folder `tools`: named, above the current folder, or where this crate was compiled.
fn source_dir() -> Result<PathBuf> {
    if let Some(dir) = env::var_os(TOOLS_VARIABLE).filter(|dir| !dir.is_empty()) {
        return std::path::absolute(dir).map_err(io("find the folder named by COPPICE_TOOLS"));
    }
    let current = env::current_dir().map_err(io("read the current folder"))?;
    current
        .ancestors()
        .chain(Path::new(env!("CARGO_MANIFEST_DIR")).ancestors())
        .map(|dir| dir.join("tools"))
        .find(|tools| tools.join("kube/go.mod").is_file())
        .ok_or_else(|| Error::NoTools(current.clone()))
}

fn cache_dir() -> Result<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let of_the_user = || {
        let caches = set("XDG_CACHE_HOME").or_else(|| Some(env::home_dir()?.join(".cache")));
        caches.unwrap_or_else(env::temp_dir).join("coppice")
    };
    let ours = set(CACHE_VARIABLE).unwrap_or_else(of_the_user);
    std::path::absolute(ours.join("plane")).map_err(io("find the cache folder"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert!(numbers("1.26.8") > numbers("1.26.0"));
        assert!(numbers("1.9.9") < numbers("1.26.0"));
        assert!(numbers("1.26rc1") < numbers("1.26.1"));
        assert!(numbers("") < numbers("1"));
    }

    #[test]
    fn the_version_is_that_of_the_module() {
        let flags = linker_flags(&source_dir().unwrap(), &PLANE[1]).unwrap();
        assert!(flags.contains("gitVersion=v1.") && flags.contains("gitMajor=1 "), "{flags}");
    }

    #[test]
    fn a_change_of_our_own_source_is_another_binary() {
        let dir = tempfile::tempdir().unwrap();
        let module = dir.path().join(MAIL_SERVER[0].module);
        std::fs::create_dir(&module).unwrap();
        for file in ["go.mod", "go.sum", "main.go", "notes.txt"] {
            std::fs::write(module.join(file), "").unwrap();
        }
        let changed = |file: &str| {
            std::fs::write(module.join(file), "changed").unwrap();
            key(dir.path(), &MAIL_SERVER, "1.26.0").unwrap()
        };
        let before = key(dir.path(), &MAIL_SERVER, "1.26.0").unwrap();
        assert_eq!(changed("notes.txt"), before);
        assert_ne!(changed("main.go"), before);
    }

    #[test]
    fn an_incomplete_folder_names_the_missing_binary() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("etcd"), "").unwrap();
        let error = Binaries::in_dir(dir.path()).unwrap_err().to_string();
        assert!(error.starts_with("kube-apiserver is missing in "), "{error}");
    }
}
