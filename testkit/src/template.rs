//! Empty data directories of database servers, made once and copied: making one takes a server a second of processor time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Copies what `make` makes to `to`, which must not exist. The original is beside the running program, for this program and all
/// others there; `program` makes it, and another build of it makes another one.
///
/// # Errors
///
/// Those of `make`, and of the file system.
pub(crate) fn copy(program: &Path, to: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    static MAKING: Mutex<()> = Mutex::new(());
    let original = original(program)?;
    {
        let _one_at_a_time = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if !original.is_dir() {
            make(to)?;
            // Several programs may make it at once; the renaming is atomic, and what they make is the same.
            let scratch = original.with_extension(std::process::id().to_string());
            tree(to, &scratch)?;
            return fs::rename(&scratch, &original).or_else(|_| fs::remove_dir_all(&scratch));
        }
    }
    tree(&original, to)
}

fn original(program: &Path) -> io::Result<PathBuf> {
    let folder = std::env::current_exe()?.parent().map(Path::to_path_buf).ok_or(io::ErrorKind::NotFound)?;
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", program.display()));
    let file = fs::metadata(program).map_err(named)?;
    let built = file.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    Ok(folder.join(format!("tenure-{name}-{built}-{}", file.len())))
}

/// Copies a directory with everything in it, and who may read it. Links are followed: there are none.
fn tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let copy = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            tree(&entry.path(), &copy)?
        } else {
            fs::copy(entry.path(), copy).map(drop)?
        }
    }
    Ok(())
}
