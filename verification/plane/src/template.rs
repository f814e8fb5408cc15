//! What a plane had when it ended, for others to start from: what was installed on it is installed once.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    error::{Result, io},
    pki::Pki,
    workdir::Workdir,
};

/// The database, without what etcd makes again, and the keys that tokens and objects in it were made with.
///
/// Clones share one folder, which goes with the last of them and with the process.
#[derive(Clone, Debug)]
pub struct Template(Arc<Workdir>);

impl Template {
    /// Of the folder of a plane whose processes have ended.
    pub(crate) fn of(ended: &Workdir) -> Result<Self> {
        let dir = Workdir::create(None)?;
        copy(&ended.join("etcd"), &dir.join("etcd"))?;
        copy(&ended.join("pki"), &dir.join("pki"))?;
        Ok(Self(Arc::new(dir)))
    }

    /// Its keys.
    pub(crate) fn pki(&self) -> Result<Pki> {
        Pki::read(&self.0)
    }

    /// Puts its database into the folder of a plane that is about to start.
    pub(crate) fn fill(&self, dir: &Workdir) -> Result<()> {
        copy(&self.0.join("etcd"), &dir.join("etcd"))
    }
}

/// Copies a folder, but for files that are only set aside for later (`0.tmp`: the next 64 MB of etcd's log).
fn copy(from: &Path, to: &Path) -> Result<()> {
    let failed = |path: &Path| io(format!("copy {}", path.display()));
    fs::create_dir_all(to).map_err(failed(to))?;
    for entry in fs::read_dir(from).map_err(failed(from))? {
        let path: PathBuf = entry.map_err(failed(from))?.path();
        let Some(name) = path.file_name() else { continue };
        if path.is_dir() {
            copy(&path, &to.join(name))?;
        } else if path.extension().is_none_or(|extension| extension != "tmp") {
            fs::copy(&path, to.join(name)).map_err(failed(&path))?;
        }
    }
    Ok(())
}
