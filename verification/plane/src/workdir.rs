//! The folder of a plane: its layout and its end.

use std::{
    env,
    fs::{self, DirBuilder, File},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::error::{Error, Result, io};

const PREFIX: &str = "coppice-plane-";
/// Locked as long as the plane lives. A temporary folder whose lock is free was left by a killed process.
const LOCK: &str = "lock";

/// A folder that is private to its owner, and removed at the end unless it is to be kept.
#[derive(Debug)]
pub(crate) struct Workdir {
    path: PathBuf,
    temporary: Option<TempDir>,
    lock: Option<File>,
}

impl Workdir {
    /// `dir` if given, which is kept, else a new temporary folder.
    pub(crate) fn create(dir: Option<&Path>) -> Result<Self> {
        let workdir = match dir {
            Some(dir) => Self::named(dir)?,
            None => Self::temporary()?,
        };
        for part in ["log", "kubeconfig", "pki"] {
            let path = workdir.join(part);
            fs::create_dir_all(&path).map_err(io(format!("create {}", path.display())))?;
        }
        Ok(workdir)
    }

    fn named(dir: &Path) -> Result<Self> {
        let action = || format!("create {}", dir.display());
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io(action()))?;
        let path = fs::canonicalize(dir).map_err(io(action()))?;
        match fs::read_dir(&path).map_err(io(action()))?.next() {
            None => Ok(Self { path, temporary: None, lock: None }),
            Some(_) => Err(Error::NotEmpty(path)),
        }
    }

    fn temporary() -> Result<Self> {
        let base = env::temp_dir();
        sweep(&base);
        let action = "create a temporary folder";
        let temporary = tempfile::Builder::new().prefix(PREFIX).tempdir_in(base).map_err(io(action))?;
        let path = fs::canonicalize(temporary.path()).map_err(io(action))?;
        // Locked before it has its name, or a sweep by another process could come between.
        let (unnamed, named) = (path.join("lock.new"), path.join(LOCK));
        let lock = File::create(&unnamed).map_err(io(action))?;
        lock.lock().map_err(io(action))?;
        fs::rename(&unnamed, &named).map_err(io(action))?;
        Ok(Self { path, temporary: Some(temporary), lock: Some(lock) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn log(&self, process: &str) -> PathBuf {
        self.join("log").join(format!("{process}.log"))
    }

    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        self.join("kubeconfig").join(format!("{}.yaml", user.chars().map(plain).collect::<String>()))
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> Result<()> {
        let path = self.join(name);
        fs::write(&path, content).map_err(io(format!("write {}", path.display())))
    }

    pub(crate) fn read(&self, name: &str) -> Result<String> {
        let path = self.join(name);
        fs::read_to_string(&path).map_err(io(format!("read {}", path.display())))
    }

    /// Empties the folder for another attempt.
    pub(crate) fn clear(&self) -> Result<()> {
        let action = || format!("empty {}", self.path.display());
        for entry in fs::read_dir(&self.path).map_err(io(action()))? {
            let path = entry.map_err(io(action()))?.path();
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(io(action()))?;
        }
        Ok(())
    }

    /// Leaves the folder when the plane ends.
    pub(crate) fn keep(&mut self) {
        if let Some(temporary) = &mut self.temporary {
            temporary.disable_cleanup(true);
            // Without it, no sweep takes the folder.
            let _ = fs::remove_file(self.path.join(LOCK));
            self.lock = None;
        }
    }
}

impl Drop for Workdir {
    fn drop(&mut self) {
        // Of a temporary folder that is kept for its logs, the database is the big part that says little.
        if self.temporary.is_some() && self.lock.is_none() {
            let _ = fs::remove_dir_all(self.path.join("etcd"));
        }
    }
}

/// Removes what killed processes left. Whatever cannot be removed is somebody else's.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if !ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let free = File::open(entry.path().join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok());
        if free {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_takes_only_what_nobody_holds() {
        let base = tempfile::tempdir().unwrap();
        let dir = |name: &str| {
            let path = base.path().join(name);
            fs::create_dir(&path).unwrap();
            File::create(path.join(LOCK)).unwrap()
        };
        let held = dir("coppice-plane-held");
        held.lock().unwrap();
        drop(dir("coppice-plane-left"));
        drop(dir("other"));
        fs::create_dir(base.path().join("coppice-plane-kept")).unwrap();
        sweep(base.path());
        let mut names: Vec<_> = fs::read_dir(base.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["coppice-plane-held", "coppice-plane-kept", "other"]);
    }

    #[test]
    fn a_kept_folder_loses_its_database_only_at_the_end() {
        let mut dir = Workdir::create(None).unwrap();
        let path = dir.path().to_owned();
        fs::create_dir(dir.join("etcd")).unwrap();
        dir.keep();
        assert!(path.join("etcd").exists());
        drop(dir);
        assert!(path.join("log").exists() && !path.join("etcd").exists());
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_folder_with_content_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("x"), "").unwrap();
        assert!(matches!(Workdir::create(Some(dir.path())), Err(Error::NotEmpty(_))));
    }
}
